"""Jobs of workers that died, were slow or were cancelled: done once, by one of the others."""

import re
import signal
from pathlib import Path

import pytest
from tests.work.conftest import Workplace, kill

import em.work
from em import Memory
from em.settings import WorkSettings
from em.state.schema import KIND
from em.work.database import Database, sa
from em.work.ledger import Ledger
from em.work.queue import ATTEMPTS
from em.work.worker import BEATS

pytestmark = pytest.mark.timeout(1_800)  # for what hangs: workers wait as long as work is done

SUBJECTS = 1_500
"""Enough that a worker is killed or frozen long before it is through."""


def observe(place: Workplace, subjects: int = SUBJECTS, records: int = 1) -> None:
    with Memory(place.db) as memory:
        memory.observe_many(
            {"subject": f"user-{who}", "type": "Trip", "record": {"id": n, "km": n * 2}}
            for who in range(subjects)
            for n in range(records)
        )


def versions(place: Workplace, subjects: int = SUBJECTS) -> set[int]:
    """How many states were written of each subject."""
    with Memory(place.db) as memory:
        return {len(list(memory.store.artefacts(KIND, f"user-{n}"))) for n in range(subjects)}


def reports_in_log(place: Workplace) -> int:
    with Memory(place.db) as memory:
        return len(list(memory.log.read(kinds="job_done")))


def test_a_dead_workers_jobs_wait_less_than_five_seconds_by_default() -> None:
    lease = WorkSettings().lease
    assert lease + 2 * lease / BEATS < 5


def test_nothing_private_of_dbos_is_used() -> None:
    sources = [path.read_text() for path in Path(em.work.__file__).parent.glob("*.py")]
    assert not re.findall(r"(?:DBOS|DBOSClient|_client|dbos)\._\w+", "\n".join(sources))


def test_subjects_of_a_killed_worker_are_checkpointed_by_the_other_exactly_once(
    workplace: Workplace,
) -> None:
    observe(workplace)
    with workplace.queue() as queue:
        jobs = queue.add_checkpoints(chunk=50)
    first = workplace.worker()
    workplace.until(lambda: reports_in_log(workplace) >= 1)
    kill(first)
    workplace.drain()
    with workplace.queue() as queue:
        assert queue.reports(jobs).done == SUBJECTS
    assert versions(workplace) == {1}
    assert reports_in_log(workplace) == len(jobs)


def test_a_worker_that_was_only_slow_writes_no_state_and_no_report_twice(
    on_sqlite: Workplace,
) -> None:
    (on_sqlite.folder / "em.yaml").write_text("busy_timeout: 3\nwork: {lease: 1}\n")
    observe(on_sqlite)
    with on_sqlite.queue() as queue:
        jobs = queue.add_checkpoints(chunk=50)
    slow = on_sqlite.worker()
    on_sqlite.until(lambda: reports_in_log(on_sqlite) >= 1)
    on_sqlite.freeze(slow)
    on_sqlite.drain()
    slow.send_signal(signal.SIGCONT)
    slow.send_signal(signal.SIGTERM)
    on_sqlite.said_by(slow)
    assert versions(on_sqlite) == {1}
    assert reports_in_log(on_sqlite) == len(jobs)
    with on_sqlite.queue() as queue:
        assert queue.reports(jobs).done == SUBJECTS


def test_a_job_that_its_workers_die_of_is_set_aside(on_sqlite: Workplace) -> None:
    with on_sqlite.queue() as queue:
        (job,) = queue.add_runs("plain_five", [{"n": 1}])
        database = Database(on_sqlite.db)
        for _ in range(ATTEMPTS):
            Ledger(database).died([job])
        database.close()
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        view = queue.job(job)
        assert (view.state, view.problem) == ("failed", "its worker died at every attempt")
        assert [one.id for one in queue.jobs(state="failed")] == [job]
    assert not on_sqlite.effects()


def test_a_job_that_is_cancelled_while_it_is_taken_over_stays_cancelled(
    on_sqlite: Workplace,
) -> None:
    """The one who takes it over has seen it before it was cancelled."""
    with on_sqlite.queue() as queue:
        (job,) = queue.add_runs("plain_five", [{"n": 1}])
        queue.cancel(job)
        queue._client.resume_workflow(job, queue_name="default")
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert queue.job(job).state == "cancelled"
    assert not on_sqlite.effects()


def test_only_one_worker_takes_a_dead_ones_jobs(on_sqlite: Workplace) -> None:
    """The others see its heartbeat advance, and begin to count again."""
    with on_sqlite.queue() as queue:
        queue.add_runs("keyed_five", [{"n": n} for n in range(20)])
    first = on_sqlite.worker(slow=0.05)
    on_sqlite.until(lambda: on_sqlite.effects().total() > 3)
    kill(first)
    others = [on_sqlite.worker("--drain") for _ in range(3)]
    said = [on_sqlite.said_by(one) for one in others]
    assert sum("is gone" in one for one in said) == 1
    assert set(on_sqlite.effects().values()) == {1}


def test_a_job_that_takes_long_is_split_and_its_parts_count_as_its_own(
    on_sqlite: Workplace,
) -> None:
    (on_sqlite.folder / "em.yaml").write_text("work: {lease: 2, chunk_seconds: 0.05}\n")
    observe(on_sqlite, subjects=400)
    with on_sqlite.queue() as queue:
        (job,) = queue.add_checkpoints(chunk=400)
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        parts = queue.jobs()
        assert len(parts) > 1
        assert {part.state for part in parts} == {"done"}
        assert queue.reports([job]).done == 400
        assert queue.counts([job]).over == 1
    assert versions(on_sqlite, 400) == {1}


def test_a_split_job_that_is_run_again_does_its_own_part_only(on_sqlite: Workplace) -> None:
    from em.log.event import Draft, job_stream
    from em.work.job import read_job

    observe(on_sqlite, subjects=10)
    with on_sqlite.queue() as queue, Memory(on_sqlite.db) as memory:
        (job,) = queue.add_checkpoints(chunk=10)
        # As if a worker had died after it split the job, before it queued the rest.
        whole = memory.log.read(stream=job_stream(job))
        (queued,) = list(whole)
        assert queued.body is not None
        rest = {**queued.body, "items": queued.body["items"][4:]}
        memory.log.append_many(
            [
                Draft(stream=job_stream(job), kind="job_split", body={"at": 4, "rest": "r" * 28}),
                Draft(stream=job_stream("r" * 28), kind="job_queued", body=rest),
            ]
        )
        assert len(read_job(memory, job).job.items) == 4
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert queue.job(job).report is not None
        assert queue.job("r" * 28).state == "done"
        assert queue.reports([job]).done == 10


def test_jobs_queued_before_there_was_a_ledger_are_listed_and_done(on_sqlite: Workplace) -> None:
    (on_sqlite.folder / "em.yaml").write_text("work: {lease: 2}\n")
    with on_sqlite.queue() as queue:
        (done,) = queue.add_runs("busy_one", [{"n": 1}])
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        (waits,) = queue.add_runs("busy_one", [{"n": 2}])
    database = Database(on_sqlite.db)
    with database.engine.begin() as connection:  # as the previous version left it
        connection.execute(sa.text("DROP TABLE em_jobs"))
        connection.execute(sa.text("DROP TABLE em_rates"))
    database.close()
    with on_sqlite.queue() as queue:
        assert [one.id for one in queue.jobs(state="done")] == [done]
        assert [one.id for one in queue.jobs(state="queued")] == [waits]
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert {one.state for one in queue.jobs()} == {"done"}
