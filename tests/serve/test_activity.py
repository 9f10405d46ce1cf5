"""What the overview counts: kept up with the log, the same however it was caught up."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.log.event import Draft
from em.runner.package import keep_routine, opened
from em.serve.pages import overview
from em.serve.pages.overview import Activity, Day

ROUTINE = 'version: "1"\nname: greet\nsteps:\n  - {id: done, type: return, value: hello}\n'
USAGE = {"tokens": 1_000, "cost_usd": 0.5, "duration_ms": 10_000, "calls": 4, "model_calls": 3}
AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    on_postgres = request.param == "postgres"
    db = request.getfixturevalue("new_database")() if on_postgres else tmp_path / "em.db"
    with Memory(db) as memory:
        yield memory


def kept(memory: Memory) -> tuple[str, str]:
    files = {
        "routine.yaml": ROUTINE,
        "recording.json": msgspec.json.encode({"usage": USAGE}).decode(),
    }
    ref = keep_routine(memory.store, files).ref
    with opened(memory.store, ref) as package:
        return ref, package.content_hash


def run(memory: Memory, run_id: str, *kinds: tuple[str, dict[str, Any]], day: int = 0) -> None:
    ref, content = kept(memory)
    started = {"routine": "greet", "hash": content, "stored": ref, "input": {}}
    at = AT + timedelta(days=day)
    memory.log.append_many(
        [
            Draft(stream=f"run/{run_id}", kind=kind, body=body, at=at)
            for kind, body in (("run_started", started), *kinds)
        ]
    )


DONE = ("step_done", {"step": "done", "result": "hello", "duration_ms": 250.0})
OK = ("run_ended", {"status": "ok", "output": "hello"})
FAILED = ("run_ended", {"status": "failed", "failure": {"step_id": "done", "message": "no"}})
PAUSED = ("run_paused", {"prompt": {"message": "?"}})
ANSWERED = ("run_answered", {"answers": {}})


def test_savings_are_counted_by_day_with_what_failed(memory: Memory) -> None:
    run(memory, "a", DONE, OK)
    run(memory, "b", DONE, OK, day=1)
    run(memory, "c", FAILED, day=1)
    run(memory, "d", PAUSED, day=2)
    run(memory, "e", PAUSED, ANSWERED, DONE, OK, day=2)
    seen = Activity(memory.store).look()
    assert list(seen.days) == ["2026-03-01", "2026-03-02", "2026-03-03"]
    first = seen.days["2026-03-01"]
    assert (first.runs, first.ok, first.failed) == (1, 1, 0)
    assert (first.calls, first.tokens, first.seconds, first.cost) == (6, 1_000, 9.75, 0.5)
    assert (seen.total.runs, seen.total.ok, seen.total.failed) == (5, 3, 1)
    assert (seen.behind, seen.newest) == (0, memory.log.head_seq())


def test_it_is_the_same_caught_up_step_by_step_or_anew(memory: Memory) -> None:
    lasting = Activity(memory.store)
    for number in range(12):
        run(memory, f"r{number}", *([DONE, OK], [FAILED], [PAUSED])[number % 3], day=number // 4)
        seen = lasting.look(within=0.0) if number % 2 else lasting.look()
    while seen.behind:
        seen = lasting.look(within=0.0)  # one event at a time
    fresh = Activity(memory.store).look()
    assert seen.days == fresh.days


def test_counts_are_kept_and_another_process_goes_on_from_them(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "KEPT_AFTER", 1)
    run(memory, "a", DONE, OK)
    before = Activity(memory.store).look()
    (record,) = memory.store.records(overview.SUBJECT, overview.TYPE)
    assert record.body["seq"] == memory.log.head_seq()
    run(memory, "b", DONE, OK)
    after = Activity(memory.store).look()
    assert (before.total.ok, after.total.ok) == (1, 2)


def test_what_is_forgotten_is_not_counted_any_more(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "KEPT_AFTER", 1)
    run(memory, "a", DONE, OK)
    run(memory, "b", FAILED)
    run(memory, "c", PAUSED)
    lasting = Activity(memory.store)
    assert lasting.look().total.runs == 3
    monkeypatch.setattr(overview, "KEPT_AFTER", 1_000)
    gone = [event for name in "bc" for event in memory.log.read(stream=f"run/{name}")]
    memory.forget(gone)
    for seen in (lasting.look(), Activity(memory.store).look(), lasting.look()):
        assert (seen.total.runs, seen.total.ok, seen.total.failed) == (1, 1, 0)
        assert seen.behind == 0


def test_an_empty_log_has_nothing_to_count(memory: Memory) -> None:
    seen = Activity(memory.store).look()
    assert (seen.days, seen.total, seen.behind, seen.newest) == ({}, Day(), 0, 0)
