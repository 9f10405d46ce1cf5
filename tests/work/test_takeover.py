"""Jobs of workers that died, were slow or were cancelled: done once, by one of the others."""

import signal

import pytest
from tests.work.conftest import Workplace, kill

from em import Memory
from em.log.event import job_stream
from em.settings import WorkSettings
from em.state.schema import KIND
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
        ledger = Ledger(on_sqlite.db)
        for _ in range(ATTEMPTS):
            ledger.beat("mine", "here")
            assert ledger.take("mine", "default", 1) == [job]
            assert ledger.bury("mine", 1) == 1
        ledger.close()
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
        ledger = Ledger(on_sqlite.db)
        ledger.beat("mine", "here")
        ledger.take("mine", "default", 1)
        queue.cancel(job)
        assert ledger.bury("mine", 1) == 0
        ledger.close()
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert queue.job(job).state == "cancelled"
    assert not on_sqlite.effects()


def test_a_job_that_was_cancelled_in_the_log_only_is_not_begun(on_sqlite: Workplace) -> None:
    """Whoever cancelled it died after writing the log."""
    with on_sqlite.queue() as queue, Memory(on_sqlite.db) as memory:
        (job,) = queue.add_runs("plain_five", [{"n": 1}])
        memory.log.append(job_stream(job), "job_cancelled", {})
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert queue.job(job).state == "cancelled"
    assert not on_sqlite.effects()


def test_a_worker_does_not_get_a_job_twice_that_runs_in_it_already(workplace: Workplace) -> None:
    """Others have freed its jobs, because it was slow."""
    with workplace.queue() as queue:
        first, second = sorted(queue.add_runs("plain_five", [{"n": 1}, {"n": 2}]))
        ledger = Ledger(workplace.db)
        for worker in ("slow", "other"):
            ledger.beat(worker, "here")
        assert ledger.take("slow", "default", 1) == [first]
        assert ledger.bury("slow", 1) == 1
        ledger.beat("slow", "here")
        assert ledger.take("slow", "default", 4, but_not=[first]) == [second]
        assert ledger.take("other", "default", 4) == [first]
        assert ledger.take("slow", "default", 4) == []
        ledger.close()


def test_a_worker_that_was_buried_gets_no_job_before_its_next_heartbeat(
    workplace: Workplace,
) -> None:
    """It was slow, and may die now: nobody would watch it, and its jobs would be lost."""
    with workplace.queue() as queue:
        (job,) = queue.add_runs("plain_five", [{"n": 1}])
        ledger = Ledger(workplace.db)
        ledger.beat("slow", "here")
        ledger.beat("slow", "here")
        assert ledger.bury("slow", 1) is None, "its heartbeat has advanced"
        assert ledger.bury("slow", 2) == 0
        assert ledger.bury("slow", 2) is None, "somebody was first"
        assert ledger.take("slow", "default", 1) == []
        ledger.beat("slow", "here")
        assert ledger.take("slow", "default", 1) == [job]
        ledger.free("slow")
        assert queue.job(job).state == "queued"
        assert queue.workers() == {}
        ledger.close()


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
