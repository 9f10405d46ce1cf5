"""Loops over what others sent end at the deadline of who waits for them."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from em import Memory
from em.deadline import Deadline, check, current, suspended, until
from em.errors import Cancelled, Conflict, TookTooLong
from em.redaction.redactor import Redactor
from em.runner.engine import run_routine
from em.shell.syntax import parse
from em.store.postgres import PostgresStore
from em.text.terms import words_of

OVER = -1.0
KEY = "sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
fresh = count()


def test_without_a_deadline_nothing_ends() -> None:
    check()
    with until(Deadline()):
        check()
    with until(Deadline(OVER)), suspended():
        check()
    assert current() is None


def test_the_error_says_what_took_too_long_and_what_to_do() -> None:
    with until(Deadline(OVER, what="POST /x", fix="send less")), pytest.raises(TookTooLong) as told:
        check()
    assert (told.value.code, told.value.place, told.value.fix) == (
        "took_too_long",
        "POST /x",
        "send less",
    )


def test_the_first_word_counts_though_it_is_given_more_time_later() -> None:
    limit = Deadline(OVER)
    limit.extend(3600)
    with until(limit):
        check()
        limit.end(Cancelled("nobody waits"))
        with pytest.raises(Conflict):
            check()


class Ends(Deadline):
    """A deadline that is over when it has been looked at so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error()


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda n: Redactor().text("password " * n), id="names of secrets"),
        pytest.param(lambda n: Redactor().text(f"{KEY} " * n), id="forms of secrets"),
        pytest.param(lambda n: Redactor().value(["password " * 2] * n), id="values"),
        pytest.param(lambda n: [words_of("a b") for _ in range(n)], id="words"),
        pytest.param(lambda n: parse("; ".join([f"ls {next(fresh)}"] * n)), id="commands"),
    ],
)
def test_work_on_texts_looks_as_often_as_they_are_long(work: Callable[[int], object]) -> None:
    looks = []
    for size in (10, 100):
        limit = Ends(1_000_000)
        with until(limit):
            work(size)
        looks.append(1_000_000 - limit.left)
    assert looks[0] * 5 < looks[1] < looks[0] * 20
    with until(Ends(looks[1] // 2)), pytest.raises(TookTooLong):
        work(100)


def test_after_the_deadline_nothing_is_read_or_written(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        memory.observe("ana", "hello")
        with until(Deadline(OVER)):
            with pytest.raises(TookTooLong):
                memory.observe("ana", "late")
            with pytest.raises(TookTooLong):
                list(memory.log.read())
            with pytest.raises(TookTooLong):
                memory.checkpoint("ana")
        assert [event.body["text"] for event in memory.log.read()] == ["hello"]


def test_a_long_statement_ends_and_a_transaction_does_not(tmp_path: Path) -> None:
    counted = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {}) "
    with Memory(tmp_path / "em.db") as memory, until(Deadline(OVER)):
        with pytest.raises(TookTooLong), memory.store._reading() as reading:
            reading.execute(counted.format(10**12) + "SELECT MAX(x) FROM n").fetchone()
        with memory.store.snapshot() as whole:
            found = whole.execute(counted.format(10**6) + "SELECT MAX(x) FROM n").fetchone()
        assert found == (10**6,)


def test_the_server_ends_a_long_read_and_no_write(postgres_store: PostgresStore) -> None:
    with until(Deadline(0.3)):
        with pytest.raises(TookTooLong), postgres_store._reading() as reading:
            reading.execute("SELECT pg_sleep(60)")
        with postgres_store._writing() as writing:
            assert writing.execute("SELECT 1 FROM pg_sleep(0.5)").fetchone() == (1,)
    with postgres_store._reading() as reading:
        assert reading.execute("SELECT 1 FROM pg_sleep(0.5)").fetchone() == (1,)
    with until(Deadline(60)), postgres_store._reading() as reading:
        assert reading.execute("SELECT 1 FROM pg_sleep(0.5)").fetchone() == (1,)
        assert reading.execute("SHOW statement_timeout").fetchone() != ("0",)


STEPS = """
version: "1"
name: two
steps:
  - {id: one, type: tool.call, tool: one, effect: write, save_as: one}
  - {id: other, type: tool.call, tool: other, effect: write, save_as: other}
  - {id: done, type: return, value: "{{ one }} {{ other }}"}
"""


def test_a_run_stops_between_two_calls_and_goes_on_from_there(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(STEPS)
    limit, made = Deadline(), []

    def one() -> str:
        made.append("one")
        limit.end(limit.error())
        return "1"

    def other() -> str:
        made.append("other")
        return "2"

    with Memory(tmp_path / "em.db") as memory:
        with until(limit), pytest.raises(TookTooLong):
            run_routine(tmp_path, {}, {"one": one, "other": other}, store=memory.store, run_id="r")
        assert made == ["one"]
        done = memory.resume("r", {"one": one, "other": other})
        assert (done.status, done.output, made) == ("ok", "1 2", ["one", "other"])
