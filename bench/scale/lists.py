"""Lists, pages, `needs`, alerts and the overview in a large log beside a small one."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec

from bench.figure import Figure, in_turns, seconds, time_figure
from em import Memory, Settings
from em.heuristics.heuristic import Lesson, list_heuristics
from em.log.event import Draft, heuristic_stream
from em.runner.history import find_runs
from em.runner.package import keep_routine, opened
from em.store.protocol import ArtefactDraft, Commit, Store
from em.traces.catalogue import list_traces
from em.workflows.inspection import latest_output

BAR = 2.0
ROUNDS = 15
REPEATED = 5
SUBJECTS = 64
DAYS = 60
ROUTINE = """
version: "1"
name: greet
steps:
  - {id: done, type: return, value: hello}
"""
USAGE = {"usage": {"tokens": 8_200, "cost_usd": 0.041, "duration_ms": 21_000, "calls": 9}}


class Size(NamedTuple):
    """How many runs and traces a log has. A run has 4 events, a trace 12."""

    runs: int
    traces: int

    @property
    def events(self) -> int:
        return 4 * self.runs + 12 * self.traces


SMALL = Size(1_000, 500)
LARGE = {"quick": Size(5_000, 2_500), "whole": Size(100_000, 50_000)}


def figures(size: str) -> Iterator[Figure]:
    """Yield the time of each list in a large log beside a small one."""
    large = LARGE[size]
    with (
        tempfile.TemporaryDirectory(prefix="em-bench-") as folder,
        Memory(Path(folder) / "many.db") as many,
        Memory(Path(folder) / "few.db") as few,
    ):
        for memory, count in ((many, large), (few, SMALL)):
            memory.store.commit_all(_commits(memory, count))
        beside = f"the same with {SMALL.runs:,} runs, {SMALL.events:,} events"
        for what, work in {**CALLS, **_requests(many, few)}.items():
            yield time_figure(
                f"{what}, {large.runs:,} runs, {large.events:,} events",
                beside,
                in_turns(_timed(work, many), _timed(work, few), ROUNDS),
                BAR,
            )
        yield _alerts(Path(folder))


def _timed(work: Callable[[Memory], object], memory: Memory) -> Callable[[], float]:
    return lambda: seconds(lambda: [work(memory) for _ in range(REPEATED)]) / REPEATED


def _pages_of(listed: Callable[[Any], Any], pages: int = 3) -> list[Any]:
    """Read a list page by page: the cost of a page must not grow with its place either."""
    before, found = None, []
    for _ in range(pages):
        page = listed(before)
        found.append(page)
        before = page.older
    return found


def _store_call(work: Callable[[Store], object]) -> Callable[[Memory], object]:
    return lambda memory: work(memory.store)


CALLS: dict[str, Callable[[Memory], object]] = {
    "25 traces": _store_call(lambda store: list_traces(store, limit=25)),
    "three pages of traces": _store_call(
        lambda store: _pages_of(lambda before: list_traces(store, limit=25, before=before))
    ),
    "25 failed traces": _store_call(lambda store: list_traces(store, outcome="failure", limit=25)),
    "25 traces of a subject": _store_call(
        lambda store: list_traces(store, subjects=["s3"], limit=25)
    ),
    "25 runs": _store_call(lambda store: find_runs(store, limit=25)),
    "25 failed runs": _store_call(lambda store: find_runs(store, status="failed", limit=25)),
    "25 runs of a workflow": _store_call(
        lambda store: find_runs(store, "workflow", name="flow3", limit=25)
    ),
    "needs: run(a, b)": _store_call(lambda store: latest_output(store, "flow3", "a")),
    "25 lessons": _store_call(
        lambda store: [one for one, _ in zip(list_heuristics(store), range(25), strict=False)]
    ),
}
PATHS = {
    "GET /trajectories": "/trajectories?limit=25",
    "GET /trajectories of a subject": "/trajectories?limit=25&subject=s3",
    "GET /runs": "/runs?limit=25",
    "GET /workflow-runs": "/workflow-runs?limit=25&workflow=flow3",
    "GET /heuristics": "/heuristics?limit=25",
    "page of traces": "/ui/traces",
    "page of runs": "/ui/runs",
    "page of failed runs": "/ui/runs?status=failed",
    "page of workflows": "/ui/workflows",
    "page of lessons": "/ui/lessons",
    "overview": "/ui",
}


def _requests(*memories: Memory) -> dict[str, Callable[[Memory], object]]:
    from em.serve.app import make_app

    apps = {id(memory): make_app(memory, Settings()) for memory in memories}

    def ask(path: str) -> Callable[[Memory], object]:
        return lambda memory: asyncio.run(_get(apps[id(memory)], path))

    return {what: ask(path) for what, path in PATHS.items()}


async def _get(app: Any, path: str) -> None:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, (path, answer.text[:200])


def _commits(memory: Memory, size: Size) -> Iterator[Commit]:
    files = {"routine.yaml": ROUTINE, "recording.json": msgspec.json.encode(USAGE).decode()}
    ref = keep_routine(memory.store, files).ref
    with opened(memory.store, ref) as package:
        content = package.content_hash
    first = datetime.now(UTC) - timedelta(days=DAYS)

    def at(number: int, of: int) -> datetime:
        return first + timedelta(days=DAYS) * (number / of)

    def commits() -> Iterator[Commit]:
        for start in range(0, size.runs, 100):
            runs = range(start, start + 100)
            yield Commit(
                events=[one for n in runs for one in _run(n, ref, content, at(n, size.runs))]
            )
        for start in range(0, size.traces, 50):
            traces = range(start, start + 50)
            yield Commit(events=[one for n in traces for one in _trace(n, at(n, size.traces))])
        for n in range(size.runs // 10):
            yield _lesson(n)

    return commits()


def _run(number: int, ref: str, content: str, at: datetime) -> list[Draft]:
    started: dict[str, Any] = {"hash": content, "input": {"n": number}}
    kind = "workflow_started" if number % 2 else "run_started"
    if kind == "workflow_started":
        started |= {"workflow": f"flow{number % 10}", "definition": "{}"}
    else:
        started |= {"routine": "greet", "stored": ref}
    ended: dict[str, Any] = {"status": "ok", "output": "hello"}
    if number % 20 < 2:
        failure = {"step_id": "a", "error_type": "ValueError", "message": "no", "context": {}}
        ended = {"status": "failed", "failure": failure}
    done = {"result": {"output": number}, "duration_ms": 3.5}
    told = [
        (kind, started),
        *(("step_done", {"step": name, **done}) for name in "ab"),
        ("run_ended", ended),
    ]
    return _drafts(f"run/r{number:08}", told, number, at)


def _trace(number: int, at: datetime) -> list[Draft]:
    call = {"tool": "pay", "args": {"order": f"#W{number}"}, "result": {"ok": True}}
    outcome = "failure" if number % 10 == 0 else "success"
    told: list[tuple[str, Any]] = [
        ("trace_started", {"goal": f"pay order {number % 100}", "input": {"n": number}}),
        *[("tool_call", call)] * 10,
        ("trace_ended", {"outcome": outcome, "usage": {"tokens": 900}}),
    ]
    return _drafts(f"trace/t{number:08}", told, number, at)


def _drafts(stream: str, told: list[tuple[str, Any]], number: int, at: datetime) -> list[Draft]:
    subject = f"s{number % 5}"
    return [
        Draft(stream=stream, kind=kind, body=body, at=at, subject=subject) for kind, body in told
    ]


def _lesson(number: int) -> Commit:
    lesson = Lesson(trigger=f"the order {number} fails", action="look again", how="model")
    body = msgspec.to_builtins(lesson)
    learned = Draft(
        stream=heuristic_stream(lesson.id), kind="heuristic_learned", body={"lesson": body}
    )
    draft = ArtefactDraft(kind="heuristic", name=lesson.id, body=body)
    return Commit(events=[learned], artefacts=[draft])


def _alerts(folder: Path) -> Figure:
    """Compare alerts that go round 64 subjects with alerts of one: each has code of its own."""
    with Memory(folder / "alerts.db") as memory:
        names = [f"person {number}" for number in range(SUBJECTS)]
        for number, name in enumerate(names):
            due = datetime.now(UTC) + timedelta(days=3 + number % 5)
            memory.observe(name, {"type": "invoice", "total": number, "due": f"{due:%Y-%m-%d}"})
            memory.checkpoint(name)

        def round_trip() -> float:
            start = time.perf_counter()
            for name in names:
                memory.alerts(name)
            return time.perf_counter() - start

        def one() -> float:
            return seconds(lambda: [memory.alerts(names[0]) for _ in names])

        sides = in_turns(round_trip, one, ROUNDS)
        each = (sides[0] / SUBJECTS, sides[1] / SUBJECTS, sides[2])
    return time_figure(
        f"alerts, in turns over {SUBJECTS} subjects", "alerts of one of them", each, BAR
    )
