"""Lists cost what they show: as many rows are read in a log of ten times the size."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import StoreBusy
from em.heuristics.heuristic import Lesson, learn, list_heuristics
from em.log.event import Draft, EventQuery
from em.log.summary import SummaryQuery
from em.runner.history import end_of_run, find_runs, read_run
from em.settings import Settings, WorkflowMemorySettings
from em.store.protocol import Commit
from em.store.sqlite import SqliteStore
from em.store.summaries import summarise_again
from em.traces.catalogue import children_of, count_traces, get_traces, list_traces
from em.traces.trace import Mission, ToolCall, Trace, trace_events
from em.workflows import Workflows
from em.workflows.inspection import latest_output
from em.workflows.runs import clean

AT = datetime(2026, 3, 1, tzinfo=UTC)
Counted = Callable[[], object]


def instructions(store: SqliteStore, work: Counted) -> int:
    """Count the instructions of SQLite's machine that some work takes: each row read takes some."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    with store._pool.connection() as connection:
        connection.set_progress_handler(count, 1)
    try:
        work()
    finally:
        with store._pool.connection() as connection:
            connection.set_progress_handler(None, 1)
    return counted


def run_of(number: int, kind: str = "run_started") -> list[Draft]:
    name = f"flow{number % 5}"
    started: dict[str, Any] = {"routine": name, "hash": "h", "input": {"n": number}}
    if kind == "workflow_started":
        started = {"workflow": name, "hash": "h", "definition": "{}", "input": {"n": number}}
    status = "failed" if number % 3 else "ok"
    done = {"step": "a", "result": {"output": number}}
    stream, at = f"run/{kind[0]}{number:06}", AT + timedelta(minutes=number)
    events = [(kind, started), ("step_done", done), ("run_ended", {"status": status})]
    return [
        Draft(stream=stream, kind=kind, body=body, at=at, subject=f"s{number % 5}")
        for kind, body in events
    ]


def fill(memory: Memory, count: int) -> None:
    """Add so many traces, runs, workflow runs, lessons and other events."""
    drafts = [one for n in range(count) for one in (*run_of(n), *run_of(n, "workflow_started"))]
    for number in range(count):
        call = ToolCall(tool="pay", args={"n": number}, result=number)
        outcome: Any = "failure" if number % 2 else "success"
        trace = Trace(mission=Mission(f"task {number % 9}"), events=[call] * 3, outcome=outcome)
        drafts += trace_events(trace, f"t{number:06}", subject=f"s{number % 5}")
    jobs = [
        Draft(stream=f"job/j{n}", kind="job_queued", body={"kind": "checkpoint", "items": []})
        for n in range(count)
    ]
    memory.store.commit(Commit(events=[*drafts, *jobs]))
    learn(memory.store, [Lesson(trigger=f"t{n}", action="a") for n in range(count)])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Memory, Memory]]:
    folder = tmp_path_factory.mktemp("logs")
    with Memory(folder / "small.db") as small, Memory(folder / "large.db") as large:
        fill(small, 300)
        fill(large, 3_000)
        yield small, large


LISTS: dict[str, Callable[[Any], object]] = {
    "traces": lambda store: list_traces(store, limit=25),
    "traces with an outcome": lambda store: list_traces(store, outcome="failure", limit=25),
    "traces of a subject": lambda store: list_traces(store, subjects=["s1"], limit=10),
    "failed traces of a subject": lambda store: list_traces(
        store, subjects=["s1"], outcome="failure", limit=5
    ),
    "traces of some hours": lambda store: list_traces(
        store, since=AT, until=AT + timedelta(hours=1), limit=10
    ),
    "sub-agents of a trace": lambda store: children_of(
        store, list_traces(store, limit=1).traces[0].id
    ),
    "a trace by its id": lambda store: get_traces(
        store, [list_traces(store, limit=1).traces[0].id]
    ),
    "runs": lambda store: find_runs(store, limit=25),
    "the oldest runs": lambda store: find_runs(store, oldest=True, limit=25),
    "runs of a routine": lambda store: find_runs(store, name="flow3", limit=5),
    "failed runs": lambda store: find_runs(store, status="failed", limit=25),
    "the ends of runs": lambda store: [
        end_of_run(store, one.run_id) for one in find_runs(store, limit=25).runs
    ],
    "runs of workflows": lambda store: find_runs(store, "workflow", limit=25),
    "what a step left in the newest run": lambda store: latest_output(store, "flow3", "a"),
    "lessons": lambda store: [next(listed) for listed in [list_heuristics(store)] for _ in "12345"],
    "the end of one job": lambda store: list(
        store.read(EventQuery(stream="job/j1", kinds=["job_done"], newest=True, limit=1))
    ),
    "the newest of several kinds": lambda store: list(
        store.read(EventQuery(kinds=["trace_started", "run_started"], newest=True, limit=10))
    ),
    "the first of several kinds": lambda store: list(
        store.read(EventQuery(kinds=["trace_started", "run_ended"], limit=10))
    ),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_list_reads_as_much_of_a_log_of_ten_times_the_size(
    two: tuple[Memory, Memory], what: str
) -> None:
    small, large = (instructions(one.store, lambda one=one: LISTS[what](one.store)) for one in two)  # type: ignore[arg-type, misc]
    assert small > 0
    assert large <= 1.3 * small + 100, f"{small:,} instructions became {large:,}"


def test_memory_traces_reads_only_the_traces_that_are_taken(two: tuple[Memory, Memory]) -> None:
    _, large = two
    found = large.traces(outcome="success")
    assert len(found) == 1_500
    reads: list[EventQuery] = []
    read = large.store.read
    large.store.read = lambda query: reads.append(query) or read(query)  # type: ignore[func-returns-value, method-assign]
    try:
        assert [one.trace.outcome for one in found[:3]] == ["success"] * 3
        assert found[-1].id == "t002998"
    finally:
        large.store.read = read  # type: ignore[method-assign]
    assert len(reads) == 4


def test_cleaning_up_costs_what_it_deletes(tmp_path: Path) -> None:
    """Old runs are found by their time; those that stay are not read."""
    taken: list[int] = []
    for number in (50, 500):
        with Memory(tmp_path / f"{number}.db") as memory:
            runs = [one for n in range(number) for one in run_of(n, "workflow_started")]
            memory.store.commit(Commit(events=runs))
            age = datetime.now(UTC) - (AT + timedelta(minutes=4))
            choose = lambda memory=memory, age=age: clean(  # noqa: E731 - one for each size
                memory.store, older_than=age, dry_run=True
            )
            assert len(choose().runs) == 5
            taken.append(instructions(memory.store, choose))  # type: ignore[arg-type]
    assert taken[1] <= 1.3 * taken[0] + 100, taken


def test_a_store_that_is_busy_when_old_runs_go_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = "workflows:\n  w:\n    steps:\n      - {name: a, tool: now}\n"
    (tmp_path / "flow.yaml").write_text(flow)
    limits = Settings(workflow_memory=WorkflowMemorySettings(keep_days=1))
    with Memory(tmp_path / "em.db") as memory:
        memory.store.commit(Commit(events=run_of(1, "workflow_started")))
        flows = Workflows(
            memory.store,
            file=tmp_path / "flow.yaml",
            settings=limits,
            tools={"now": lambda: "noon"},
        )

        def busy(*_given: Any, **_more: Any) -> None:
            raise StoreBusy("another process has locked the log")

        monkeypatch.setattr(memory.store, "erase", busy)
        assert flows.start("w").status == "ok"


def test_what_a_list_says_of_a_run_is_what_its_journal_says(tmp_path: Path) -> None:
    """Whatever the journal of the run has, in whatever order."""
    paused = ("run_paused", {"prompt": {"step_id": "s", "message": "why?"}})
    steps = [("step_done", {"step": f"s{n}", "result": n}) for n in range(3)]
    journals = {
        "new": [],
        "under-way": steps[:2],
        "waiting": [*steps[:1], paused],
        "answered": [*steps[:1], paused, ("run_answered", {"answers": {}}), *steps[1:]],
        "resumed": [*steps, ("run_resumed", {}), *steps, ("run_ended", {"status": "ok"})],
        "failed": [*steps, ("run_ended", {"status": "failed", "failure": {"message": "no"}})],
        "ok": [*steps, ("run_ended", {"status": "ok", "output": 4})],
    }
    with Memory(tmp_path / "em.db") as memory:
        for name, notes in journals.items():
            started = ("run_started", {"routine": "r", "hash": "h", "input": {"x": "y" * 900}})
            for kind, body in (started, *notes):
                memory.log.append(f"run/{name}", kind, body)
        for name in ("waiting", "ok"):
            (done,) = list(memory.log.read(stream=f"run/{name}", kinds="step_done"))[:1]
            memory.forget([done])
        for again in (False, True):
            listed = {one.run_id: one for one in find_runs(memory.store).runs}
            assert listed.keys() == journals.keys()
            for name, one in listed.items():
                past = read_run(memory.store, name)
                assert (one.status, one.began, one.ended) == (past.status, past.began, past.ended)
                if past.status in ("ok", "failed", "running"):
                    assert one.steps == past.step_count, (name, again)
                ended = {} if past.status == "forgotten" else past.end
                assert end_of_run(memory.store, name) in (ended, past.end)
            assert len(find_runs(memory.store, words="y" * 600).runs) == len(journals)
            memory.store.summaries.rebuild()
        assert memory.store.summaries.count(SummaryQuery(noun="run", status="forgotten")) == 2
        assert count_traces(memory.store) == 0


def test_events_of_several_kinds_come_once_each_in_their_order(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for number in range(30):
            memory.log.append(f"s{number % 4}", f"kind{number % 3}", {"n": number})

        def numbers(**chosen: Any) -> list[int]:
            return [event.body["n"] for event in memory.log.read(**chosen) if event.body]

        every = [number for number in range(30) if number % 3 != 2]
        assert numbers(kinds=["kind1", "kind0", "kind1"]) == every
        assert numbers(kinds=["kind0", "kind1"], limit=7) == every[:7]
        assert numbers(kinds=["kind0", "kind1"], limit=7, newest=True) == every[-7:]
        assert numbers(kinds=["kind0", "kind1"], stream="s1") == [n for n in every if n % 4 == 1]


def test_forgetting_an_observation_reads_no_stream_for_the_lists() -> None:
    """A subject's stream may have millions of events, and no list shows it."""

    class NoSession:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was called")

    summarise_again(NoSession(), ["subject/ana", "notes"])
