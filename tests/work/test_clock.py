"""The time that DBOS reads from SQLite, on versions that don't have it."""

import sqlite3
import time
from contextlib import closing

from tests.work.conftest import Workplace

from em.work.database import Database, give_clock, has_clock, sa


def test_a_connection_of_the_queue_knows_the_time_to_the_millisecond() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        give_clock(connection)
        assert has_clock(connection)
        (found,) = connection.execute("SELECT unixepoch('subsec')").fetchone()
        assert abs(found - time.time()) < 60
        assert found != int(found)


def test_jobs_have_their_times_in_every_python(on_sqlite: Workplace) -> None:
    with on_sqlite.queue() as queue:
        (job,) = queue.add_runs("busy_one", [{"n": 1}])
    database = Database(on_sqlite.db)
    with database.engine.begin() as connection:
        assert connection.execute(sa.text("SELECT unixepoch('subsec')")).scalar() is not None
    database.close()
    on_sqlite.drain()
    with on_sqlite.queue() as queue:
        view = queue.job(job)
    assert view.state == "done"
    assert view.queued_at is not None
    assert view.ended_at is not None
