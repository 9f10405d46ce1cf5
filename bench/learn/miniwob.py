"""MiniWoB++ in a real browser: the goal of a page varies with its seed, and so do its elements.

For each of 20 pages a scripted solver makes three traces, of goals that differ; then other seeds
are scored by the page's own reward. The inputs are the parts of the goal that vary. The tools are
those of an agent in a browser: they name what is on the page by its text.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figure import Figure
from bench.learn.learner import Plain, Runnable, Tools
from bench.learn.report import Report
from bench.right.verdict import Ended, Verdict, zero
from bench.right.world import ToolError

if TYPE_CHECKING:
    from em.traces.trace import Trace

FOLDER = "EM_MINIWOB"
HOW_TO_GET_IT = (
    f"{FOLDER} names no folder with the pages of miniwob; this part is passed over. Get them with\n"
    "    python -m pip install --no-deps --target ../miniwob miniwob\n"
    f"    export {FOLDER}=$PWD/../miniwob"
)
NO_BROWSER = "there is no Chromium: `make setup-browser`; this part is passed over"
TRACES, EPISODES = 3, 20
COLUMNS = ("right", "asked", "refused", "negative", "unfinished", "not learnt")
"""Negative: the page gave a reward below 1. Unfinished: em acted, and the page waits for more."""
SETTLE = """seed => {
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = 1e9;
  core.startEpisodeReal();
}"""
LOOK = """() => {
  const shown = e => e.getClientRects().length > 0 && !e.closest('#query, #reward-display');
  const text = e => (e.innerText || e.textContent || '').trim();
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const kind = e.dataset.type || e.type || e.tagName.toLowerCase();
    let name = null;
    if (e.matches('button')) name = e.closest('.ui-dialog-titlebar') ? 'x' : text(e);
    else if (e.matches('.alink, [role=tab] a')) name = text(e);
    else if (e.matches('circle')) name = e.id;
    else if (e.matches('option')) name = text(e);
    else if (e.matches('.email-thread')) name = text(e.querySelector('.email-sender'));
    else if (e.matches('.trash, .star, .email-forward, .email-reply')) name = e.className;
    else if (e.matches('#send-forward, #send-reply')) name = 'send';
    else if (e.matches('input, textarea, select')) {
      const before = e.previousElementSibling;
      const label = e.closest('label') || (before && before.matches('label') ? before : null);
      name = label ? text(label).replace(/:$/, '') : kind;
    } else continue;
    if (shown(e) || e.matches('option')) found.push({e, kind, name});
  }
  window.found = found;
  const rows = [...document.querySelectorAll('#area tr')].map(row => [...row.children].map(text));
  const elements = found.map(({kind, name}) => ({kind, name}));
  return rows.length ? {elements, rows: Object.fromEntries(rows)} : {elements};
}"""


class Page(NamedTuple):
    """A page: the parts of its goal that vary, and how they are acted on.

    has_list: the first part names several things.
    """

    goal: str
    solve: Callable[["Browser", tuple[str, ...]], None]
    has_list: bool = False

    def inputs(self, goal: str) -> dict[str, Any]:
        """The parts of a goal as values."""
        parts = re.fullmatch(self.goal, goal)
        assert parts is not None, f"{goal!r} is not as expected"
        if self.has_list:
            return {"names": [one for one in parts[1].split(", ") if one != "nothing"]}
        return dict(zip(("first", "second"), parts.groups(), strict=False))


class Browser:
    """One page in Chromium, and the tools on it."""

    def __init__(self, html: Path, page: Any) -> None:
        self._html, self._page = html, page
        self.calls: list[dict[str, Any]] = []

    def begin(self, name: str, seed: str) -> str:
        """Load a page with a seed. Return its goal."""
        self._page.goto((self._html / f"{name}.html").as_uri())
        self._page.evaluate(SETTLE, seed)
        self.calls = []
        goal: str = self._page.evaluate("document.querySelector('#query').textContent")
        return re.sub(r"\s+", " ", goal).strip()

    @property
    def reward(self) -> float | None:
        """The reward, without a penalty for time; None while the page waits."""
        done, reward = self._page.evaluate("[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]")
        return float(reward) if done else None

    @property
    def has_acted(self) -> bool:
        return any(call["effect"] == "write" for call in self.calls)

    def tools(self) -> Tools:
        return {
            "look": self.look,
            "click": self.click,
            "click_kind": self.click_kind,
            "click_in": self.click_in,
            "choose": self.choose,
            "enter": self.enter,
        }

    def look(self) -> Any:
        """The elements of the page, and the rows of its table."""
        return self._made("look", {}, lambda: self._page.evaluate(LOOK), "read")

    def click(self, name: str) -> Any:
        """Click on what has this text; a box or a button beside a text is clicked itself."""
        return self._made("click", {"name": name}, lambda: self._element(name).click())

    def click_kind(self, kind: str) -> Any:
        """Click on the first element of a kind."""
        return self._made("click_kind", {"kind": kind}, lambda: self._element(kind=kind).click())

    def click_in(self, item: str, name: str) -> Any:
        """Click on something inside of an item of a list."""

        def act() -> None:
            inside = self._element(item).query_selector(f".{name}")
            if inside is None:
                raise ToolError(f"Error: there is no {name!r} in {item!r}")
            inside.click()

        return self._made("click_in", {"item": item, "name": name}, act)

    def choose(self, options: list[str]) -> Any:
        """Choose options of the list."""
        given = [str(one) for one in options]

        def act() -> None:
            listed = self._page.query_selector("#area select")
            known = [one.inner_text().strip() for one in listed.query_selector_all("option")]
            if not set(given) <= set(known):
                raise ToolError(f"Error: the options are {known}")
            listed.select_option(label=given)

        return self._made("choose", {"options": options}, act)

    def enter(self, field: str, text: str) -> Any:
        """Type a text into a field."""

        def act() -> None:
            element = self._element(field, fields=True)
            typed = str(text)
            if element.get_attribute("type") in ("date", "time"):
                # A browser moves from part to part by itself, if each has two digits.
                typed = re.sub(r"\W", "", re.sub(r"\b(\d)\b", r"0\1", typed))
            else:
                element.fill("")
            element.focus()
            self._page.keyboard.type(typed)

        return self._made("enter", {"field": field, "text": text}, act)

    def _element(self, name: str | None = None, kind: str = "", *, fields: bool = False) -> Any:
        self._page.evaluate(LOOK)
        found = self._page.evaluate_handle(
            """([name, kind, fields]) => window.found.find(one =>
              (name === null || one.name === name) && (!kind || one.kind === kind)
              && (!fields || one.e.matches('input, textarea')))?.e""",
            [name, kind, fields],
        ).as_element()
        if found is None:
            raise ToolError(f"Error: there is no {name or kind!r} on the page")
        return found

    def _made(
        self, tool: str, args: dict[str, Any], act: Callable[[], Any], effect: str = "write"
    ) -> Any:
        # A call that fails may have had an effect, so it is counted before it is made.
        call = {"type": "tool_call", "tool": tool, "args": args, "effect": effect}
        self.calls.append(call)
        call["result"] = act() if effect == "read" else act() or "done"
        return call["result"]


def _click(browser: Browser, parts: tuple[str, ...]) -> None:
    browser.click(parts[0])


def _boxes(browser: Browser, parts: tuple[str, ...]) -> None:
    for name in parts[0].split(", ") if parts[0] != "nothing" else ():
        browser.click(name)
    browser.click("Submit")


def _list(browser: Browser, parts: tuple[str, ...]) -> None:
    browser.choose(parts[0].split(", "))
    browser.click("Submit")


def _field(browser: Browser, parts: tuple[str, ...]) -> None:
    (field,) = (
        one["name"]
        for one in browser.calls[-1]["result"]["elements"]
        if one["kind"] in ("text", "date", "time")
    )
    browser.enter(field, parts[0])
    browser.click("Submit")


def _passwords(browser: Browser, parts: tuple[str, ...]) -> None:
    browser.enter("Password", parts[0])
    browser.enter("Verify password", parts[0])
    browser.click("Submit")


def _login(browser: Browser, parts: tuple[str, ...]) -> None:
    browser.enter("Username", parts[0])
    browser.enter("Password", parts[1])
    browser.click("Login")


def _forward(browser: Browser, parts: tuple[str, ...]) -> None:
    browser.click(parts[0])
    browser.click("email-forward")
    browser.enter("to", parts[1])
    browser.click("send")


def _table(browser: Browser, parts: tuple[str, ...]) -> None:
    rows = browser.calls[-1]["result"]["rows"]
    _field(browser, (rows[parts[0]],))


PAGES = {
    "choose-list": Page(r"Select (.+) from the list and click Submit\.", _list, True),
    "click-button": Page(r'Click on the "(.+)" button\.', _click),
    "click-checkboxes": Page(r"Select (.+) and click Submit\.", _boxes, True),
    "click-checkboxes-transfer": Page(r"Select (.+) and click Submit\.", _boxes, True),
    "click-dialog-2": Page(r'Click the button in the dialog box labeled "(.+)"\.', _click),
    "click-link": Page(r'Click on the link "(.+)"\.', _click),
    "click-option": Page(r"Select (.+) and click Submit\.", _boxes),
    "click-scroll-list": Page(r"Select (.+) from the scroll list and click Submit\.", _list, True),
    "click-tab": Page(r"Click on (.+)\.", _click),
    "click-widget": Page(r'Click on a "(.+)" widget\.', lambda b, p: b.click_kind(p[0])),
    "email-inbox-delete": Page(
        r"Find the email by (.+) and click the trash icon to delete it\.",
        lambda b, p: b.click_in(p[0], "trash"),
    ),
    "email-inbox-forward": Page(
        r"Find the email by (.+) and forward that email to (.+)\.", _forward
    ),
    "enter-date": Page(r"Enter (.+) as the date and hit submit\.", _field),
    "enter-password": Page(r'Enter the password "(.+)" into both text fields .+', _passwords),
    "enter-text": Page(r'Enter "(.+)" into the text field and press Submit\.', _field),
    "enter-text-dynamic": Page(r'Enter "(.+)" into the text field and press Submit\.', _field),
    "enter-time": Page(r"Enter (.+) as the time and press submit\.", _field),
    "grid-coordinate": Page(r"Click on the grid coordinate (.+)\.", _click),
    "login-user": Page(r'Enter the username "(.+)" and the password "(.+)" into .+', _login),
    "read-table": Page(r"Enter the value of (.+) into the text field and press Submit\.", _table),
}
"""The pages, the goals as the scripted solver reads them, and what it does."""


def trace_of(browser: Browser, name: str, seed: str) -> "Trace":
    """The trace of the scripted solver, which must succeed."""
    from em.traces.trace import Mission, ToolCall, Trace

    goal = browser.begin(name, seed)
    parts = re.fullmatch(PAGES[name].goal, goal)
    assert parts is not None, f"{name}: {goal!r} is not as expected"
    browser.look()
    PAGES[name].solve(browser, parts.groups())
    assert browser.reward == 1.0, f"{name}: {goal!r} was not solved: {browser.calls}"
    calls = [
        ToolCall(tool=call["tool"], args=call["args"], result=call["result"], effect=call["effect"])
        for call in browser.calls
    ]
    mission = Mission(goal=goal, input_summary=PAGES[name].inputs(goal))
    return Trace(mission=mission, events=calls, outcome="success", tags=(f"{name}: {goal}",))


def routine_of(browser: Browser, name: str, learner: Plain) -> Runnable | str:
    """The routine of a page, from the first seeds whose goals differ; or why there is none."""
    from em.errors import EmError

    found: dict[str, Trace] = {}
    for number in range(100):
        trace = trace_of(browser, name, f"learn {number}")
        found.setdefault(trace.mission.goal, trace)
        if len(found) == TRACES:
            break
    recorded = [(trace.mission.input_summary, trace) for trace in found.values()]
    try:
        return learner.learn({name: recorded}, frozenset({"look"}))[name]
    except EmError as error:
        return f"{error.code}: {error}"


def judge(browser: Browser, ended: Ended) -> Verdict:
    said = f"{ended.status}: {ended.said}"
    reward = browser.reward
    if reward is not None:
        if reward == 1.0:
            return Verdict("right")
        return Verdict("negative", f"reward {reward}; {_acts(browser)}; {said}")
    if ended.status == "ok" or browser.has_acted:
        return Verdict("unfinished", f"{_acts(browser)}; {said}")
    return Verdict("asked" if ended.status == "needs_input" else "refused", said)


def _acts(browser: Browser) -> list[tuple[str, Any]]:
    return [(call["tool"], call["args"]) for call in browser.calls if call["effect"] == "write"]


def episodes(limit: int | None, *, verbose: bool) -> Iterator[Figure]:
    """Score unseen seeds of each page. A limit is for the episodes of a page."""
    html = Path(os.environ.get(FOLDER, "")) / "miniwob" / "html" / "miniwob"
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not html.is_dir() or chromium is None:
        print(HOW_TO_GET_IT if chromium else NO_BROWSER)
        return
    from playwright.sync_api import sync_playwright

    tally = Report("MiniWoB, unseen seeds", columns=COLUMNS, verbose=verbose)
    # A person chose the recordings, so what is constant in all of them counts.
    learner = Plain(by="CONSTANTS_SHOWN")
    with sync_playwright() as driver:
        chrome = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        browser = Browser(html, chrome.new_page(locale="en-US", timezone_id="UTC"))
        for name, of in PAGES.items():
            learnt = routine_of(browser, name, learner)
            for number in range(min(limit or EPISODES, EPISODES)):
                goal = browser.begin(name, f"score {number}")
                if isinstance(learnt, str):
                    verdict = Verdict("not learnt", learnt)
                else:
                    ended = learnt.run(of.inputs(goal), browser.tools())
                    verdict = judge(browser, ended)
                tally.add(name, goal, verdict)
        chrome.close()
    tally.show()
    what, right, whole = "MiniWoB, unseen seeds", tally.count("right"), tally.count()
    yield Figure(f"{what}: right", right, "of", whole, "", right / max(whole, 1), 0.9, True)
    yield zero(f"{what}: negative rewards", tally.count("negative"), whole)
