"""What is queued: in chunks, once for each key, no more than may wait."""

import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager

import pytest
from tests.work.conftest import Workplace

from em import Memory
from em.errors import QueueFull, StoreUnreachable
from em.heuristics.heuristic import every_heuristic
from em.store.session import Params, Rows, SqlSession
from em.traces.trace import Mission, ToolCall, Trace
from em.work.ledger import Ledger
from em.work.queue import Queue

pytestmark = pytest.mark.timeout(1_800)  # for what hangs: workers wait as long as work is done


def test_what_computes_has_a_queue_of_its_own(
    on_sqlite: Workplace,
) -> None:
    with on_sqlite.queue() as queue:
        (computes,) = queue.add_checkpoints(["ana"])
        (asks,) = queue.add_checkpoints(["ana"], how={"llm": True})
        (runs,) = queue.add_runs("busy_one", [{"n": 1}])
        assert [queue.job(one).queue for one in (computes, asks, runs)] == [
            "batch", "default", "default",
        ]  # fmt: skip


def test_no_more_jobs_are_queued_than_may_wait_and_none_of_those_too_many(
    on_sqlite: Workplace,
) -> None:
    (on_sqlite.folder / "em.yaml").write_text("work: {lease: 2, most_waiting: 3}\n")
    with on_sqlite.queue() as queue:
        kept = queue.add_runs("busy_one", [{"n": n} for n in range(2)])
        with pytest.raises(QueueFull, match="2 jobs wait already, 2 more") as caught:
            queue.add_runs("busy_one", [{"n": n} for n in range(2)])
        assert caught.value.code == "queue_full"
        assert {one.id for one in queue.jobs()} == {*kept}
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        assert len(queue.add_runs("busy_one", [{"n": n} for n in range(3)])) == 3


def test_a_key_queues_once(workplace: Workplace) -> None:
    with workplace.queue() as queue:
        first = queue.add_runs("busy_one", [{"n": 1}, {"n": 2}], key="k")
        assert queue.add_runs("busy_one", [{"n": 1}, {"n": 2}], key="k") == first
        assert queue.add_runs("busy_one", [{"n": 1}], key="other") != first[:1]
        assert len(queue.jobs()) == 3


def test_jobs_are_found_by_kind_queue_and_subject(workplace: Workplace) -> None:
    with workplace.queue() as queue:
        (anas,) = queue.add_runs("busy_one", [{"n": 1}], subject="ana")
        (bos,) = queue.add_runs("busy_one", [{"n": 2}], subject="bo", queue="mine")
        (state,) = queue.add_checkpoints(["ana"])

        def ids(**chosen: object) -> list[str]:
            found = [view.id for view in queue.jobs(**chosen)]  # type: ignore[arg-type]
            assert queue.count(**chosen) == len(found)  # type: ignore[arg-type]
            return found

        # Their ids sort by the millisecond.
        assert ids() == sorted([state, bos, anas], reverse=True)
        assert ids(subject="ana") == [anas]
        assert ids(kind="checkpoint") == [state]
        assert ids(queue="mine") == [bos]
        assert ids(kind="routine", state="queued") == sorted([bos, anas], reverse=True)
        assert ids(subject="ana", state="done") == []
        assert [view.id for view in queue.jobs(limit=1, offset=1)] == ids()[1:2]


class Counted:
    """A session that notes the statements it gets."""

    def __init__(self, session: SqlSession, statements: list[str]) -> None:
        self._session, self._statements = session, statements

    def execute(self, sql: str, params: Params = ()) -> Rows:
        self._statements.append(sql)
        return self._session.execute(sql, params)


@contextmanager
def counted(queue: Queue) -> Iterator[list[str]]:
    """The statements that the queue's database gets."""
    statements: list[str] = []
    database = queue._ledger
    make = database._session
    database._session = lambda connection: Counted(make(connection), statements)  # type: ignore[assignment,return-value]
    yield statements
    database._session = make


def test_a_page_of_jobs_costs_the_same_however_many_there_are(on_sqlite: Workplace) -> None:
    costs = []
    with on_sqlite.queue() as queue:
        for _ in range(2):
            queue.add_runs("busy_one", [{"n": n} for n in range(30 if not costs else 270)])
            with counted(queue) as statements:
                assert len(queue.jobs(limit=5)) == 5
                assert queue.jobs(state="waiting") == []
            costs.append(len(statements))
    assert costs[0] == costs[1]


def test_lessons_are_learnt_by_workers_and_a_second_time_changes_nothing(
    on_sqlite: Workplace,
) -> None:
    def attempt(order: str) -> Trace:
        wrong = ToolCall(tool="get_order", args={"order_id": order}, error="unknown order")
        right = ToolCall(tool="get_order", args={"order_id": f"#{order}"}, result={"state": "open"})
        given = Mission(f"look up the order {order}", {"order": order})
        return Trace(mission=given, events=[wrong, right], outcome="success")

    with Memory(on_sqlite.db) as memory, on_sqlite.queue() as queue:
        for number in range(4):
            memory.add_trace(attempt(f"W{number}0017"))
        jobs = queue.add_reflections(chunk=2)
    on_sqlite.drain()

    def lessons() -> list[tuple[str, int]]:
        with Memory(on_sqlite.db) as memory:
            found = every_heuristic(memory.store)
            return sorted((one.lesson.trigger, one.use.learned) for one in found)

    with on_sqlite.queue() as queue:
        assert queue.reports(jobs).done == 4
        queue.add_reflections(chunk=2)
    learnt = lessons()
    assert learnt
    on_sqlite.drain()
    assert lessons() == learnt


def of_words(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts as three numbers."""
    return [[float(len(text)), float(text.count(" ")), 1.0] for text in texts]


def test_vectors_are_computed_subject_by_subject(on_sqlite: Workplace) -> None:
    from em.settings import Settings
    from em.work.job import EVERYTHING_ELSE
    from em.work.worker import Equipment, Queued, run_items

    with Memory(on_sqlite.db, embedder=of_words) as memory, Queue(memory) as queue:
        memory.observe("ana", "I moved to Porto in March.")
        memory.observe("bo", "I keep bees behind the house.")
        (job,) = queue.add_embeddings()
        items = queue.what(job).items
        assert [item.id for item in items] == ["ana", "bo", EVERYTHING_ELSE]
        equipment = Equipment(memory, None, Settings.load())
        queued = Queued(queue.what(job), "", None)
        done = run_items(equipment, queued, items[:1])
        assert [one.status for one in done] == ["done"]
        assert memory._recall.embed_all(subject="ana") == 0
        assert [one.status for one in run_items(equipment, queued, items)] == ["done"] * 3


@contextmanager
def held(on_sqlite: Workplace) -> Iterator[None]:
    """Hold the write lock of a queue's file that has no tables yet, as a starting process does."""
    path = Ledger(on_sqlite.db).path
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_two_processes_that_open_a_new_queue_wait_for_each_other(on_sqlite: Workplace) -> None:
    database = Ledger(on_sqlite.db)
    with ThreadPoolExecutor(1) as pool:
        with held(on_sqlite):
            made = pool.submit(database.make)
            wait([made], timeout=0.5)  # unless it fails at once
        made.result()
    assert database.exists()
    database.close()


def test_a_queue_that_stays_locked_is_an_error_of_em(
    on_sqlite: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("em.work.ledger.BUSY", 0.01)
    database = Ledger(on_sqlite.db)
    with held(on_sqlite), pytest.raises(StoreUnreachable, match="database is locked"):
        database.make()
    database.close()


def test_a_cancelled_job_is_queued_again_where_it_was(on_sqlite: Workplace) -> None:
    with on_sqlite.queue() as queue:
        (job,) = queue.add_checkpoints(["ana"], queue="slow")
        assert queue.cancel(job).queue == "slow"
        assert queue.job(queue.retry(job)).queue == "slow"
