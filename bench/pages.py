"""Every page of a filled database beside its limits; the overview also with 100,000 runs."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec

from bench import audit
from bench.figure import Figure, in_turns, seconds, time_figure
from bench.filled.database import FULL, data_folder, fill
from bench.service import served
from bench.startup import run
from em import Memory, Settings
from em.log.event import Draft
from em.runner.package import keep_routine, opened
from em.store.protocol import Commit

MANY, FEW, DAYS = 100_000, 100, 90
ROUTINE = """
version: "1"
name: greet
steps:
  - {id: done, type: return, value: hello}
"""
USAGE = {"usage": {"tokens": 8_200, "cost_usd": 0.041, "duration_ms": 21_000, "calls": 9}}

MOST_MS, MOST_MS_LARGEST = 300, 1_000


def every() -> Iterator[Figure]:
    """All pages that three clicks lead to, as they are answered and as a browser shows them."""
    with tempfile.TemporaryDirectory(prefix="em-bench-") as folder:
        db = Path(folder) / "em.db"
        fill(db, FULL, data_folder())
        with Memory(db) as memory:
            largest = _largest_trace(memory)
        with served(db) as url, httpx.Client(base_url=url, timeout=120) as client:
            audit.settle(client)
            site = audit.crawl(client, of_a_kind=3, from_a_page=1)
            print(f"  {len(site.visited)} pages of {len(site.links):,} addresses that were found")
            yield from _times(client, site)
            yield from _weights(client, site)
            yield from _reach(site)
            yield from _looks(url, site, largest)


def _times(client: httpx.Client, site: audit.Site) -> Iterator[Figure]:
    start = statistics.median(run([sys.executable, "-c", "pass"]) for _ in range(9))
    print(f"  python -c pass takes {start * 1e3:.0f} ms here")
    found = {}
    for link in site.visited:
        took = [seconds(lambda link=link: client.get(link.address)) for _ in range(5)]
        found[link.address] = statistics.median(took) * 1e3
    worst = sorted(found, key=found.__getitem__, reverse=True)
    for address in worst[:5]:
        print(f"    {found[address]:6.0f} ms  {address}")
    yield _limit(f"slowest page, {worst[0]}", found[worst[0]], MOST_MS, "ms")


def _weights(client: httpx.Client, site: audit.Site) -> Iterator[Figure]:
    found = {link.address: audit.weight(client, link.address) for link in site.visited}
    heaviest = max(found, key=found.__getitem__)
    what = f"heaviest page without its data, {heaviest}"
    yield _limit(what, found[heaviest] / 1e3, audit.MOST_WEIGHT / 1e3, "kB")


def _reach(site: audit.Site) -> Iterator[Figure]:
    unreached = site.unreached()
    for one in [*unreached, *site.broken]:
        print(f"    {one}")
    yield _none("kinds of pages that three clicks do not lead to", len(unreached))
    yield _none("links that lead nowhere", len(site.broken))


def _looks(url: str, site: audit.Site, largest: str) -> Iterator[Figure]:
    if audit.chromium() is None:
        print("  no Chromium: make setup-browser installs it; nothing was looked at")
        return
    with audit.eye(url) as eye:
        if not eye.has_axe:
            print("  axe-core is not there: pip install axe-playwright-python")
        took = statistics.median(eye.seconds_until_drawn(largest) for _ in range(3))
        what = "largest trace, until the browser has drawn it"
        yield _limit(what, took * 1e3, MOST_MS_LARGEST, "ms")
        looks = [eye.look(link.address) for link in site.visited]
    wrong = [one for one in looks if one.problems]
    for one in wrong:
        print(f"    {one.address}")
        for problem in one.problems:
            print(f"        {problem}")
    yield _none(
        "pages with overflow, a complaint of the browser or of axe, or too high", len(wrong)
    )


def _largest_trace(memory: Memory) -> str:
    most = max(memory.traces(), key=lambda kept: len(kept.trace.events))
    return f"/ui/trace?id={most.id}"


def _limit(what: str, ours: float, most: float, unit: str) -> Figure:
    return Figure(what, ours, "its limit", most, unit, ours / most, 1.0, False)


def _none(what: str, count: int) -> Figure:
    return Figure(what, count, "none", 0, "", count, 0.0, False)


def overview() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="em-bench-") as folder:
        many = _filled(Path(folder) / "many.db", MANY)
        few = _filled(Path(folder) / "few.db", FEW)
        pages = {memory: _Page(memory) for memory in (many, few)}
        yield time_figure(
            f"overview page with {MANY:,} runs",
            f"the same with {FEW}",
            in_turns(pages[many].seconds, pages[few].seconds, 30),
            2.0,
        )
        many.close(), few.close()


def _filled(path: Path, runs: int) -> Memory:
    memory = Memory(path)
    files = {"routine.yaml": ROUTINE, "recording.json": msgspec.json.encode(USAGE).decode()}
    ref = keep_routine(memory.store, files).ref
    with opened(memory.store, ref) as package:
        content = package.content_hash
    first = datetime.now(UTC) - timedelta(days=DAYS)
    step = timedelta(days=DAYS) / runs

    def commits() -> Iterator[Commit]:
        for number in range(runs):
            yield Commit(events=_run(number, runs, ref, content, first + step * number))

    memory.store.commit_all(commits())
    return memory


def _run(number: int, runs: int, ref: str, content: str, at: datetime) -> list[Draft]:
    stream = f"run/{number:08}"
    started = {"routine": "greet", "hash": content, "stored": ref, "input": {"n": number}}
    failure = {"step_id": "a", "error_type": "ValueError", "message": "no", "context": {}}
    ended = {"status": "ok", "output": "hello"}
    if number % 20 == 0:
        ended = {"status": "failed", "failure": failure}
    told = [("run_started", started)]
    told += [("step_done", {"step": s, "result": 1, "duration_ms": 3.5}) for s in "abc"]
    # As many wait in each: what waits is shown, however many there were.
    told.append(
        ("run_paused", {"prompt": {"message": "?"}}) if number >= runs - 5 else ("run_ended", ended)
    )
    return [Draft(stream=stream, kind=kind, body=body, at=at) for kind, body in told]


class _Page:
    """The page as a browser asks for it, without the network."""

    def __init__(self, memory: Memory) -> None:
        from em.serve.app import make_app

        self._app = make_app(memory, Settings())

    def seconds(self) -> float:
        return asyncio.run(self._ask())

    async def _ask(self) -> float:
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            start = time.perf_counter()
            answer = await client.get("/ui")
            took = time.perf_counter() - start
        assert answer.status_code == 200
        assert "Still counting" not in answer.text
        return took
