"""The overview page: with 100,000 runs beside the same with 100."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec

from bench.figure import Figure, in_turns, rate_figure, time_figure
from em import Memory, Settings
from em.log.event import Draft
from em.runner.package import keep_routine, opened
from em.serve.pages.overview import Activity
from em.store.protocol import Commit

MANY, FEW, DAYS = 100_000, 100, 90
ROUTINE = """
version: "1"
name: greet
steps:
  - {id: done, type: return, value: hello}
"""
USAGE = {"usage": {"tokens": 8_200, "cost_usd": 0.041, "duration_ms": 21_000, "calls": 9}}


def overview() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="em-bench-") as folder:
        many = _filled(Path(folder) / "many.db", MANY)
        few = _filled(Path(folder) / "few.db", FEW)
        counted = _catch_up(many)
        _catch_up(few)
        read = _read_all(many)
        sides = (counted, read, counted / read)
        yield rate_figure(
            f"count {MANY:,} runs for the overview, the first time", "read their events", MANY,
            sides, None,
        )  # fmt: skip
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


def _catch_up(memory: Memory) -> float:
    start = time.perf_counter()
    activity = Activity(memory.store)
    while activity.look().behind:
        pass
    return time.perf_counter() - start


def _read_all(memory: Memory) -> float:
    start = time.perf_counter()
    assert sum(1 for _ in memory.log.read()) > MANY
    return time.perf_counter() - start


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
