"""The pages in a real browser: Debian's Chromium, driven by Playwright."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import learnt
import pytest
import sample
from run_sample import prepare, release
from served import Serve
from tests.children import wait_until

from em import Memory, recorded_tool
from em.log.event import EventQuery
from em.runner.package import find_routine, keep_routine
from em.traces.trace import Message, Mission, ToolCall, Trace
from em.work.queue import Queue
from em.work.worker import Worker

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: make setup-browser installs it"),
]
TOKEN = "a-token-that-is-long-enough"
JOBS = "jobs-of-a-test"


SHADOWED = """\
version: "1"
name: refund
input_schema: {type: object, properties: {order_id: {type: string}}}
tools: [{name: pay, effect: write}]
steps:
  - {id: pay, type: tool.call, tool: pay, args: {order_id: "{{ order_id }}"}}
"""


@recorded_tool(effect="write")
def pay(order_id: str) -> str:
    return f"paid for {order_id}"


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Looking:
    """A page, and everything that the browser complained about."""

    def __init__(self, browser: "Browser", url: str, **options: Any) -> None:
        self.context = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(60_000)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on(
            "request",
            lambda asked: None if asked.url.startswith(url) else self.elsewhere.append(asked.url),
        )


@pytest.fixture
def look(browser: "Browser") -> Iterator[Any]:
    opened: list[Looking] = []

    def start(url: str, **options: Any) -> Looking:
        opened.append(Looking(browser, url, **options))
        return opened[-1]

    yield start
    for looking in opened:
        looking.context.close()


def fill(tmp_path: Path, word: str = "") -> dict[str, str]:
    with Memory(tmp_path / "em.db") as memory:
        return sample.addresses(sample.fill(memory, word))


def test_no_text_of_a_trace_becomes_a_part_of_a_page(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    addresses = fill(tmp_path, sample.HOSTILE)
    looking = look(serve().url, viewport={"width": 375, "height": 800})
    for name, address in addresses.items():
        looking.page.goto(address)
        assert looking.page.title() != "owned", name
        assert looking.page.evaluate("document.documentElement.scrollWidth") <= 375, name
        foreign = looking.page.evaluate(
            """() => [...document.querySelectorAll('*')].filter(e =>
                 (e.tagName === 'SCRIPT' && !e.getAttribute('src').startsWith('/ui/static/'))
                 || ['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'STYLE', 'BASE'].includes(e.tagName)
                 || [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style'
                     || /^\\s*javascript:/i.test(a.value))).map(e => e.outerHTML)"""
        )
        assert not foreign, name
        for control in looking.page.locator("summary").all()[:40]:
            control.evaluate("summary => summary.parentElement.open = true")
        assert "49" not in looking.page.locator("h1").inner_text(), "nor is it a template"
    assert not looking.complaints, "not even an attempt that the policy had to stop"
    assert not looking.elsewhere


def test_a_trace_of_thousands_of_calls_is_scrolled_filtered_and_read(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    events: list[Any] = []
    for number in range(3_000):
        if number % 20 == 0:
            events.append(Message(role="user", text=f"Go on with part {number}"))
        error = "there is no such file" if number % 500 == 7 else None
        args = {"file": f"f{number}.txt", "note": sample.HOSTILE}
        events.append(ToolCall(tool=("look", "write")[number % 2], args=args, error=error))
    with Memory(tmp_path / "em.db") as memory:
        trace = memory.add_trace(Trace(mission=Mission(goal="look around"), events=events))
    looking = look(serve().url, viewport={"width": 1280, "height": 800})
    page = looking.page
    page.goto(f"/ui/trace?id={trace}")
    page.wait_for_selector(".window .row")
    assert page.inner_text(".timeline .shown") == "3150 events"
    assert page.evaluate("document.documentElement.scrollHeight") < 20 * 800
    assert page.locator(".window .row").count() < 100, "only what is in view is drawn"
    page.evaluate("document.querySelector('.window').scrollTop = 60000")
    page.wait_for_selector("#row-2005")
    page.click("#row-2005 .name")
    page.wait_for_selector("#panel pre")
    assert sample.HOSTILE[:20] in page.inner_text("#panel")
    assert "n=2005" in page.url, "the address can be shared"
    page.focus(".window")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#row-2006[aria-selected=true]")
    page.select_option("#tl-outcome", "failed")
    assert page.inner_text(".timeline .shown") == "6 of 3150 events"
    page.select_option("#tl-outcome", "")
    page.fill("#tl-words", "f2999")
    assert page.inner_text(".timeline .shown") == "1 of 3150 events"
    page.fill("#tl-words", "")
    page.evaluate("document.querySelector('.window').scrollTop = 0")
    page.click("#row-0 .fold")
    assert page.inner_text(".timeline .shown") == "3130 of 3150 events"
    page.goto(f"/ui/trace?id={trace}&n=2005")
    page.wait_for_selector("#row-2005[aria-selected=true]")
    assert not looking.complaints


def test_a_trace_is_kept_and_learnt_from_by_a_button(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    address = fill(tmp_path)["/ui/trace"]
    page = look(serve().url).page
    page.goto(address)
    page.fill("#keep-name", "from_the_page")
    page.click("text=Compile and keep")
    assert page.inner_text("h1").startswith("from_the_page")
    page.goto(address)
    page.click("text=Make a lesson")
    assert "/ui/lesson?id=" in page.url or "there is no lesson in it" in page.inner_text("main")


def test_a_group_is_found_compiled_and_kept_by_buttons_whatever_it_is_called(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    tool, word = f"cancel_{'y' * 90}", f"{sample.HOSTILE} {'z' * 300}"
    with Memory(tmp_path / "em.db") as memory:
        for number in ("W-1001", "W-2044", "W-3977"):
            args = {"order_id": number}
            calls = [
                ToolCall(tool="get_order", args=args, result=args, effect="read"),
                ToolCall(tool=tool, args=args, result=f"done {word}", effect="write"),
            ]
            mission = Mission(goal=f"Cancel it {word}", input_summary=args)
            memory.add_trace(Trace(mission=mission, events=calls, outcome="success"))
    service = serve()
    looking = look(service.url, viewport={"width": 390, "height": 800})
    page = looking.page
    page.goto("/ui")
    page.get_by_role("heading", name="What can be saved").wait_for()
    compile_it = page.get_by_role("link", name="Compile: Cancel yyy")
    compile_it.wait_for()  # comes by itself, without a reload
    for width in (390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    compile_it.click()
    keep = page.get_by_role("button", name="Keep as a routine")
    keep.wait_for()
    for width in (1280, 768, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("row").get_by_text("right", exact=True).count() == 3
    assert page.title() != "owned"
    page.get_by_label("Name").fill("cancel")
    keep.click()
    assert page.inner_text("h1").startswith("cancel")
    page.goto("/ui")
    page.get_by_role("link", name="cancel", exact=True).first.wait_for()
    assert page.get_by_role("link", name="Compile").count() == 0
    assert (page.title(), looking.complaints, looking.elsewhere) == ("Overview · em", [], [])


def test_a_run_is_followed_cancelled_retried_and_ends_in_one_sitting(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    """Nothing is reloaded by hand, and hostile text stands wherever a text can stand."""
    prepare(tmp_path, sample.HOSTILE)
    looking = look(serve().url, viewport={"width": 390, "height": 800})
    page = looking.page
    page.goto("/ui/routine?ref=parcel")
    page.get_by_role("textbox", name="parcel").fill(f"P-1 {sample.HOSTILE}")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("heading", name="Waiting for an answer").wait_for()
    page.get_by_label("yes").check()
    page.get_by_role("button", name="Answer").click()
    page.locator(".waterfall .name", has_text="make").wait_for()  # it holds at the next step
    run = page.url
    page.get_by_role("button", name="Cancel").click()
    page.locator(".head .badge", has_text="cancelled").wait_for()
    page.get_by_role("button", name="Retry").wait_for()
    release(tmp_path, sample.HOSTILE)
    with Memory(tmp_path / "em.db") as memory:
        done = EventQuery(kinds=["step_done"])
        wait_until(lambda: "hold" in [one.body["step"] for one in memory.store.read(done)])
    page.goto(run)
    assert page.locator(".waterfall .name").all_inner_texts() == ["make", "hold"]
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("heading", name="Failed at label").wait_for()  # there is no label.txt
    (tmp_path / "label.txt").write_text(sample.HOSTILE)
    page.get_by_role("button", name="Retry from label").click()
    page.get_by_role("heading", name="Result").wait_for()
    assert sample.HOSTILE[:20] in page.locator("#live").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.title() != "owned"
    page.goto("/ui/log?follow=1&kind=run_cancelled")
    page.get_by_text("local").wait_for()
    assert not looking.complaints
    assert not looking.elsewhere


def test_a_job_is_cancelled_queued_again_and_seen_to_end_in_one_sitting(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    db = tmp_path / "em.db"
    with Memory(db) as memory, Queue(memory) as queue:
        memory.observe(sample.HOSTILE, {"city": sample.HOSTILE}, type="Profile")
        queue.add_checkpoints([sample.HOSTILE], subject=sample.HOSTILE, queue=JOBS)
    looking = look(serve().url, viewport={"width": 390, "height": 800})
    page = looking.page
    page.goto("/ui/runs")
    page.get_by_role("link", name="Queued jobs").click()
    page.get_by_role("link", name="checkpoint").click()
    assert sample.HOSTILE[:20] in page.locator(".facts").inner_text()
    page.get_by_role("button", name="Cancel").click()
    page.locator(".head .badge", has_text="cancelled").wait_for()
    page.get_by_role("button", name="Retry").click()
    page.locator(".head .badge", has_text="queued").wait_for()
    with Memory(db) as memory:
        Worker(memory, queues=[JOBS]).run(drain=True)
    page.locator(".head .badge", has_text="done").wait_for()  # nobody reloaded the page
    assert page.get_by_role("button", name="Cancel").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (looking.complaints, looking.elsewhere) == ([], [])
    assert page.title() != "owned"


def test_the_policy_would_stop_what_got_through(serve: Serve, look: Any) -> None:
    looking = look(serve().url)
    looking.page.goto("/ui")
    looking.page.evaluate(
        """() => {
             const script = document.createElement('script');
             script.textContent = "document.title='owned'";
             document.body.append(script);
             document.body.insertAdjacentHTML('beforeend',
               '<img src=x onerror="document.title=`owned`">');
           }"""
    )
    looking.page.wait_for_timeout(200)
    assert looking.page.title() != "owned"
    assert any("Content Security Policy" in one for one in looking.complaints)


def test_every_page_can_be_used_by_keyboard_and_read_aloud(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    addresses = fill(tmp_path)
    looking = look(serve().url)
    for name, address in addresses.items():
        page = looking.page
        page.goto(address)
        assert page.locator("main").count() == page.locator("header.top").count() == 1
        assert page.locator("h1").count() == 1, name
        assert page.locator("html").get_attribute("lang") == "en"
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
                 .filter(e => !e.labels.length && !e.ariaLabel).map(e => e.outerHTML)"""
        )
        assert not unnamed, name
        silent = page.evaluate(
            """() => [...document.querySelectorAll('svg[role=img]:not([aria-label]),'
                 + 'svg:not([role]):not([aria-hidden]), table:not(:has(thead th[scope]))')]
                 .map(e => e.outerHTML.slice(0, 200))"""
        )
        assert not silent, name
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids)), name
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip", name
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", "what is in focus can be seen"


def test_everything_is_searched_by_keyboard_from_any_page_whatever_it_holds(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    addresses = fill(tmp_path, sample.HOSTILE)
    looking = look(serve().url, viewport={"width": 1280, "height": 800})
    page = looking.page
    page.goto("/ui/lessons")
    box = page.get_by_role("combobox", name="Search everything")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    assert box.get_attribute("aria-expanded") == "false"
    page.keyboard.type("refund")
    page.get_by_role("listbox", name="Results").wait_for()
    assert box.get_attribute("aria-expanded") == "true"
    groups = page.get_by_role("group").evaluate_all(
        "all => all.map(g => document.getElementById(g.getAttribute('aria-labelledby'))?.innerText)"
    )
    assert {"Routines", "Runs", "Lessons"} <= set(groups)
    assert box.get_attribute("aria-activedescendant") is None
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    chosen = page.locator("[role=option][aria-selected=true]")
    assert chosen.get_attribute("id") == box.get_attribute("aria-activedescendant") == "found-0"
    page.keyboard.press("ArrowUp")
    assert chosen.inner_text().startswith("All results for"), "it goes round"
    page.keyboard.press("Escape")
    assert box.get_attribute("aria-expanded") == "false"
    assert "/ui/lessons" in page.url

    for words in ("script", "tea", "<img src=x"):
        page.keyboard.press("Control+k")
        page.keyboard.type(words)
        page.get_by_role("option", name=words).first.wait_for()
        made = page.evaluate(
            """() => [...document.querySelectorAll('.finder *')].filter(e =>
                 ['SCRIPT', 'IMG', 'SVG', 'svg', 'TEXTAREA'].includes(e.tagName)
                 || [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style'
                     || /^javascript:/i.test(a.value))).map(e => e.outerHTML)"""
        )
        assert not made, words
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, words
        page.goto(f"/ui/search?q={quote(words)}")
        assert page.title() == "Search · em", words

    page.keyboard.press("Control+k")
    page.keyboard.type("refund")
    page.get_by_role("option", name="refund").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/routine?*")
    page.goto("/ui/routines")
    page.locator("#filter-q").click()
    page.keyboard.type("/")
    assert page.locator("#filter-q").input_value() == "/", "who writes a / gets one"
    page.goto(addresses["/ui/trace"])
    page.keyboard.press("/")
    page.keyboard.type("pay")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/search?q=pay")
    assert page.get_by_role("heading", name="Traces").count() == 1
    assert (looking.complaints, looking.elsewhere) == ([], [])


def test_a_person_runs_a_routine_answers_and_sees_the_result_come(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    fill(tmp_path)
    page = look(serve().url).page
    page.goto("/ui/routines")
    page.get_by_role("link", name="refund").click()
    page.get_by_role("textbox", name="order").fill("C-5")
    page.get_by_role("spinbutton", name="amount").fill("7.5")
    page.get_by_role("combobox", name="reason").select_option("broken")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("Pay 7.5 back for order C-5?").wait_for()
    page.get_by_label("yes").check()
    page.get_by_role("button", name="Answer").click()
    page.get_by_role("heading", name="Result").wait_for()  # comes by itself, without a reload
    assert "C-5" in page.locator("#live").inner_text()
    page.goto("/ui/runs")
    assert page.get_by_role("row").nth(1).get_by_text("ok").count() == 1


def test_it_works_without_a_script(serve: Serve, look: Any, tmp_path: Path) -> None:
    fill(tmp_path)
    page = look(serve().url, java_script_enabled=False).page
    page.goto("/ui/state?subject=ana")
    page.locator("#ask").fill("window seats")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="Answer").wait_for()
    page.goto("/ui/state?subject=ana")
    page.locator(".past summary").first.click()
    page.locator(".past[open] td").first.wait_for()
    page.get_by_label("As of").fill("2025-02-15T00:00:00")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("This is the past").wait_for()
    assert "as_of=2025-02-15T00%3A00" in page.url
    page.goto("/ui/log?follow=1")
    page.get_by_role("link", name="Stop following").click()
    page.get_by_role("searchbox", name="Search everything").fill("refund")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="More runs").click()
    page.get_by_role("link", name="Next").click()
    page.get_by_role("link", name="First page").click()
    page.get_by_role("combobox", name="Status").select_option("failed")
    page.get_by_role("button", name="Search").click()
    assert "status=failed" in page.url
    assert page.get_by_role("row").count() == 9


def test_the_log_is_followed_live(serve: Serve, look: Any, tmp_path: Path) -> None:
    fill(tmp_path)
    service = serve()
    page = look(service.url).page
    page.goto("/ui/log?follow=1&kind=observation")
    service.post("/observations", {"subject": "cy", "text": "seen live"})
    page.get_by_text("seen live").wait_for()


def test_a_person_logs_in_goes_on_where_they_were_and_logs_out(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    fill(tmp_path)
    looking = look(serve(env={"EM_API_TOKEN": TOKEN}).url)
    page = looking.page
    page.goto("/ui/state?subject=ana")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="ana", exact=True).wait_for()
    (cookie,) = looking.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Log in").wait_for()
    page.goto("/ui/log")
    page.get_by_role("heading", name="Log in").wait_for()


def fill_state(path: Path) -> None:
    """A subject with an open contradiction, a history and records; hostile throughout."""
    word = sample.HOSTILE
    with Memory(path / "em.db") as memory:
        for at, source, dose in (("2025-01-02", "doctor", "10"), ("2025-01-03", word, "20")):
            record = {"dose": f"{dose} {word}", "city": "Faro", "job": "nurse", word: word}
            memory.observe("ana", record, type="Profile", at=at, source=source)
        memory.observe("ana", {"city": "Porto"}, type="Profile", at="2025-02-02", speaker=word)
        for cost in range(60):
            trip = {"to": f"={word}", "cost": cost, "on": f"2025-01-{cost % 28 + 1:02}"}
            memory.observe("ana", trip, type="Trip", at="2025-01-01")
        memory.checkpoint("ana")
        memory.resolve("ana", "dose", policy="ask")
        memory.checkpoint("ana")


def test_a_person_decides_corrects_takes_back_goes_through_time_and_asks(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    fill_state(tmp_path)
    looking = look(serve().url, viewport={"width": 1280, "height": 900})
    page = looking.page
    page.goto("/ui/state?subject=ana")
    facts = page.locator(".profile.state > div")
    city = facts.filter(has=page.locator("dt", has_text=re.compile("^city$")))
    history = city.locator(".panel").first
    assert not history.is_visible()
    city.get_by_text("3 values").hover()
    history.wait_for()
    assert re.search(r"Porto\s+2025-02-02.*Faro\s+2025-01-03", history.inner_text(), re.DOTALL)
    page.mouse.move(0, 0)
    history.wait_for(state="hidden")
    city.get_by_text("3 values").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    history.wait_for()  # by the keyboard alone
    decisions = page.locator("section[aria-labelledby=decide]")
    dose = decisions.locator("li.card", has_text="dose")
    dose.locator("li", has_text="doctor").get_by_role("button").click()
    decisions.locator("li.card", has_text="dose").wait_for(state="detached")
    assert "decided by local" in page.locator("#facts ~ *, .profile.state").first.inner_text()
    decisions.wait_for(state="detached")
    city.get_by_text("Change").click()
    city.get_by_label("Right value of city").fill(f"Bern {sample.HOSTILE}")
    city.get_by_role("button", name="Correct").click()
    city.get_by_text("4 values").wait_for()
    assert city.locator(".value").inner_text().startswith("Bern <script>")
    city.get_by_text("Change").click()
    city.get_by_role("button", name="Take back").click()
    city.get_by_text("no value").wait_for()

    page.get_by_label("As of").fill("2025-01-15T00:00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("This is the past").wait_for()
    assert city.locator(".value").inner_text() == "Faro"
    assert page.locator("main form[method=post]").count() == 0
    page.get_by_role("link", name="Show now").click()

    page.get_by_label("Words", exact=True).fill("2025-01-02")
    page.get_by_role("button", name="Filter").click()
    page.get_by_text("3 of 60 trips").wait_for()

    page.get_by_label("Ask about ana").fill("len(trips)")
    page.get_by_label("Python").check()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("heading", name="Answer").wait_for()
    assert page.locator(".answer .message").inner_text() == "60"
    assert page.title() == "ana · em"
    assert not looking.complaints


def test_a_form_on_another_site_does_nothing(serve: Serve, look: Any, tmp_path: Path) -> None:
    fill(tmp_path)
    service = serve()
    page = look(service.url).page
    before = service.get("/runs")["pagination"]["total"]
    page.goto("data:text/html,<h1>elsewhere</h1>")
    page.set_content(
        f'<form method=post action="{service.url}/ui/routine/run"><input name=ref value="refund@2">'
        '<input name="field.order" value=x><input name="field.amount" value=1>'
        '<input name="field.reason" value=late><button>go</button></form>'
    )
    page.get_by_role("button").click()
    page.wait_for_load_state()
    assert "not allowed" in page.content() or "not accepted" in page.content()
    assert service.get("/runs")["pagination"]["total"] == before


def test_a_person_accepts_a_routine_that_agreed_with_the_agent(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": SHADOWED}, retired=True)
        for order in ("A-1", "A-2", "A-3"):
            with memory.record("refund", {"order_id": order}, shadow=True):
                pay(order)
    service = serve()
    looking = look(service.url)
    page = looking.page
    page.goto("/ui/routine?ref=refund%401")
    section = page.locator("section[aria-labelledby=alone]")
    assert "agreed with the agent 3 times in a row" in section.inner_text()
    section.get_by_text("Accept version 1").click()
    section.get_by_role("button", name="Yes, accept it").click()
    section.get_by_role("button", name="Take it back").wait_for()
    with Memory(tmp_path / "em.db") as memory:
        assert find_routine(memory.store, "refund").retired_at is None
        (event,) = memory.store.read(EventQuery(kinds=["routine_accepted"]))
        assert event.body is not None
        assert event.body["put_in_use"]
    assert looking.complaints == []
    assert looking.elsewhere == []


def test_a_token_that_may_only_read_has_no_button_to_accept(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": SHADOWED}, retired=True)
    settings = "api:\n  tokens: [{env: READ_TOKEN, access: read}]\n"
    Path("em.yaml").write_text(settings)
    service = serve(env={"EM_API_TOKEN": TOKEN, "READ_TOKEN": f"read-{TOKEN}"})
    page = look(service.url).page
    page.goto("/ui/routine?ref=refund%401")
    page.get_by_label("Token").fill(f"read-{TOKEN}")
    page.get_by_role("button").click()
    section = page.locator("section[aria-labelledby=alone]")
    section.get_by_text("It is proposed").wait_for()
    assert section.get_by_role("button").count() == 0


def test_a_person_strikes_checks_compares_retires_and_restores_a_routine(
    serve: Serve, look: Any, tmp_path: Path
) -> None:
    with Memory(tmp_path / "em.db") as memory:
        trace = learnt.keep(memory, sample.HOSTILE)
    looking = look(serve().url, viewport={"width": 390, "height": 900})
    page = looking.page
    page.goto("/ui/routine?ref=refund")
    main = page.locator("main")
    assert "Right in 1 of 2, handed over in 1, wrong in 0" in main.inner_text()
    page.locator("summary", has_text="By recording").click()
    assert page.locator(f'a[href$="{trace}"]').first.is_visible()

    for number, check in enumerate(("check", "noted", "order.status"), 2):
        page.get_by_role("button", name=f"Strike {check}", exact=True).click()
        page.get_by_text(f"This is the new version {number}").wait_for()

    page.get_by_role("link", name="changes since then").nth(1).click()
    page.get_by_role("heading", name="Changes since version 2").wait_for()
    assert page.locator(".diff .del").count()

    page.locator("summary", has_text="Retire version 4").click()
    page.get_by_role("button", name="Yes, retire it").click()
    page.get_by_text("means version 3 now").wait_for()
    page.locator("summary", has_text="Restore version 4").click()
    page.get_by_role("button", name="Yes, restore it").click()
    page.get_by_text("means version 4 now").wait_for()

    page.get_by_label("limit", exact=True).select_option("500")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("heading", name="Result").wait_for()
    page.goto("/ui/routine?ref=refund")
    page.locator("summary", has_text="Retire all 4 versions").click()
    page.get_by_role("button", name="Yes, retire all").click()
    page.get_by_text("No version of").wait_for()

    assert page.title() != "owned"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for details in page.locator("details").all():
        details.evaluate("one => one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not looking.complaints
    assert not looking.elsewhere
