"""Every page of a service: found by its links from the overview, and looked at in a browser.

A page is of the kind of its path and of the names of its parameters. All links that a visited page
has are counted; of each kind some pages are visited, so that a database of any size takes as long.
"""

import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

START = "/ui"
CLICKS = 3
MOST_WEIGHT = 300_000
MOST_SCREENS = 20
WIDTHS = {390: 844, 768: 1024, 1280: 800}
"""Widths in pixels, and how high a screen of that width is."""
SERIOUS = ("serious", "critical")
NOT_PAGES = ("/ui/static", "/ui/live", "/ui/login", "/docs")
_DATA = re.compile(rb"<(pre|textarea|script)\b[^>]*>.*?</\1>", re.DOTALL)

_IS_DARK = "parseInt(getComputedStyle(document.body).backgroundColor.split('(')[1]) < 128"


def chromium() -> str | None:
    """Return the browser of this system, if it has one that we can drive."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Link(NamedTuple):
    """The address of a page, and how many clicks it is from the overview."""

    address: str
    clicks: int

    @property
    def kind(self) -> str:
        """Its path with the names of its parameters."""
        return kind_of(self.address)

    @property
    def path(self) -> str:
        return urlsplit(self.address).path


def kind_of(address: str) -> str:
    """Return the path of an address with the names of its parameters."""
    parts = urlsplit(address)
    names = sorted({name for name, _ in parse_qsl(parts.query)})
    return parts.path + (f"?{'&'.join(names)}" if names else "")


class _Links(HTMLParser):
    """The addresses of a page: its links, and its forms that only ask."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        address = ""
        if tag == "a":
            address = given.get("href", "")
        elif tag == "form" and given.get("method", "get").lower() == "get":
            address = given.get("action", "")
        parts = urlsplit(address)
        ours = parts.path == START or parts.path.startswith(f"{START}/")
        if ours and not parts.netloc and not parts.path.startswith(NOT_PAGES):
            query = urlencode([(name, value) for name, value in parse_qsl(parts.query)])
            self.found[parts.path + (f"?{query}" if query else "")] = None


class Site(NamedTuple):
    """What a crawl found: all links, and the pages that were visited."""

    links: dict[str, int]
    visited: list[Link]
    broken: list[str]

    def paths(self) -> dict[str, int]:
        """Return the fewest clicks to a page of each path."""
        found: dict[str, int] = {}
        for address, clicks in self.links.items():
            path = urlsplit(address).path
            found[path] = min(clicks, found.get(path, clicks))
        return found

    def unreached(self) -> list[str]:
        """Return the pages of the service that no three clicks lead to."""
        paths = self.paths()
        return sorted(one for one in page_paths() if paths.get(one, CLICKS + 1) > CLICKS)


def page_paths() -> set[str]:
    """Return the paths of all pages that em has."""
    from em.serve.pages import HANDLERS

    found = set()
    for handler in HANDLERS:
        if "GET" in handler.http_methods:
            found |= {path for path in handler.paths if path.startswith(START)}
    # A path with two names is a part of a page, which its script asks for.
    return {one for one in found if not one.startswith(NOT_PAGES) and one.count("/") < 3}


def crawl(client: httpx.Client, of_a_kind: int = 6, from_a_page: int = 2) -> Site:
    """Follow links from the overview, at most three clicks far.

    of_a_kind: the most pages of one kind that are visited; from_a_page: of these, the most that
    one page leads to.
    """
    links, broken = {START: 0}, list[str]()
    kinds, visited = Counter[str](), list[Link]()
    waiting = deque([Link(START, 0)])
    while waiting:
        link = waiting.popleft()
        if kinds[link.kind] >= of_a_kind:
            continue
        kinds[link.kind] += 1
        answer = client.get(link.address)
        if answer.status_code != 200:
            broken.append(f"{link.address}: {answer.status_code}")
            continue
        if "text/html" not in answer.headers["content-type"]:
            continue
        visited.append(link)
        if link.clicks < CLICKS:
            waiting.extend(_next(answer.text, link, links, from_a_page))
    return Site(links, visited, broken)


def _next(text: str, link: Link, links: dict[str, int], most: int) -> Iterator[Link]:
    parser = _Links()
    parser.feed(text)
    here = Counter[str]()
    for address in parser.found:
        if address in links:
            continue
        links[address] = link.clicks + 1
        kind = kind_of(address)
        here[kind] += 1
        if here[kind] <= most:
            yield Link(address, link.clicks + 1)


def settle(client: httpx.Client, seconds: float = 600) -> None:
    """Wait until the overview has counted everything that is new to it."""
    deadline = time.monotonic() + seconds
    while "data-live" in client.get(START).text and time.monotonic() < deadline:
        time.sleep(0.2)


def weight(client: httpx.Client, address: str) -> int:
    """Return how many bytes a page has with its style sheet and scripts, and without its data.

    Data are long values and what a script draws from: what `pre`, `textarea` and `script` contain.
    """
    answer = client.get(address)
    names = set(re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', answer.text))
    files = sum(len(client.get(name).content) for name in names)
    return files + len(_DATA.sub(b"", answer.content))


class Look(NamedTuple):
    """What the browser shows of a page that it should not."""

    address: str
    problems: list[str]


class Eye:
    """A browser that looks at pages."""

    def __init__(self, browser: "Browser", url: str) -> None:
        self._context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 800})
        self._context.set_default_timeout(60_000)
        self.page: Page = self._context.new_page()
        self._complaints: list[str] = []
        self._url = url
        self.page.on("console", self._hear)
        self.page.on("request", self._ask)
        self.page.on("pageerror", lambda error: self._complaints.append(str(error)))
        self._axe = _axe()

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(message.text)

    def _ask(self, request: Any) -> None:
        if not request.url.startswith(self._url):
            self._complaints.append(f"asked another host: {request.url}")

    @property
    def has_axe(self) -> bool:
        return self._axe is not None

    def look(self, address: str, *, dark_rules: Iterable[str] = ("color-contrast",)) -> Look:
        """Look at a page in all widths, in light and in dark."""
        self._complaints.clear()
        self._open(address, "light")
        problems = []
        for width, height in WIDTHS.items():
            self.page.set_viewport_size({"width": width, "height": height})
            wide, high = self.page.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
            )
            if wide > width:
                problems.append(f"{wide} px wide on a screen of {width} px: {self._widest(width)}")
            if high > MOST_SCREENS * height:
                problems.append(f"{high / height:.0f} screens high at {width} px")
        problems += self._violations("light", None)
        self.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        if not self.page.evaluate(_IS_DARK):
            problems.append("not dark where the reader wants it dark")
        problems += self._violations("dark", list(dark_rules))
        problems += [f"console: {one}" for one in self._complaints]
        return Look(address, problems)

    def picture(self, address: str, scheme: Any) -> bytes:
        """Return what the browser shows of a page first, as a PNG."""
        self._open(address, scheme)
        return self.page.screenshot()

    def _open(self, address: str, scheme: Any) -> None:
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        self.page.goto(address)
        if self.page.locator(".timeline").count():
            self.page.wait_for_selector(".window .row")

    def seconds_until_drawn(self, address: str) -> float:
        """Return how long a trace takes until the rows of its timeline are there."""
        start = time.perf_counter()
        self.page.goto(address)
        self.page.wait_for_selector(".window .row")
        return time.perf_counter() - start

    def _widest(self, width: int) -> str:
        """Name the first element that stands out to the right."""
        found: str = self.page.evaluate(
            """width => { for (const e of document.querySelectorAll('main *'))
                if (e.getBoundingClientRect().right > width + 1) {
                    return `<${e.tagName.toLowerCase()} class="${e.getAttribute('class')}">`; }
                return '?' }""",
            width,
        )
        return found

    def _violations(self, scheme: str, rules: list[str] | None) -> list[str]:
        if self._axe is None:
            return []
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(self._axe)
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules is not None:
            options["runOnly"] = rules
        found = self.page.evaluate("options => axe.run(options)", options)["violations"]
        return [
            f"axe, {scheme}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:160]}"
            for one in found
            if one["impact"] in SERIOUS
        ]

    def close(self) -> None:
        self._context.close()


def _axe() -> str | None:
    """Return axe-core, which comes with a development dependency; None where that is missing."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        return None
    script: str = Axe().axe_script
    return script


@contextmanager
def eye(url: str) -> Iterator[Eye]:
    """Open a browser on a service."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            opened = Eye(browser, url)
            yield opened
            opened.close()
        finally:
            browser.close()
