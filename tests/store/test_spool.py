"""A batch of any length comes in whole or not at all, in the memory of one portion."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import InputError
from em.store.log import PORTION

MANY = 3 * PORTION + 7
PASSWORD = "tulips and rain"


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    postgres = request.param == "postgres"
    place = request.getfixturevalue("new_database")() if postgres else tmp_path / "em.db"
    with Memory(place) as found:
        yield found


class Told(dict[str, Any]):
    """A record that can be watched."""


def test_earlier_records_are_gone_before_later_ones_are_made(memory: Memory) -> None:
    alive: weakref.WeakSet[Told] = weakref.WeakSet()
    most = 0

    class Watched(Told):
        __hash__ = object.__hash__  # type: ignore[assignment]  # by identity, for the set

    def records() -> Iterator[Any]:
        nonlocal most
        for n in range(MANY):
            record = Watched(n=n, words=f"parcel {n} arrived")
            alive.add(record)
            most = max(most, len(alive))
            yield {"subject": f"ana{n % 3}", "record": record, "type": "Parcel"}

    ids = memory.observe_many(records())
    assert len(ids) == len(set(ids)) == MANY
    assert most <= PORTION + 2


def test_a_long_batch_is_stored_as_a_short_one_is(memory: Memory) -> None:
    ids = memory.observe_many((f"ana{n % 2}", f"Number {n} is blue.") for n in range(MANY))
    assert [event.id for event in memory.log.read()] == ids
    assert memory.log.verify().ok
    assert memory.store.head("subject/ana0")[0] == (MANY + 1) // 2
    (found, *_) = memory.recall(f"number {MANY - 1}", "ana0")
    assert found.text == f"Number {MANY - 1} is blue."


@pytest.mark.parametrize("bad", [PORTION - 1, PORTION, MANY - 1])
def test_one_bad_item_keeps_all_of_them_out(memory: Memory, bad: int) -> None:
    items = (("ana", {"x": float("nan") if n == bad else n}) for n in range(MANY))
    with pytest.raises(InputError, match="NaN") as refused:
        memory.observe_many(items)
    assert f"event {bad} of the batch" in refused.value.place
    misshapen = (("ana", 5 if n == bad else "a text") for n in range(MANY))
    with pytest.raises(InputError) as refused:
        memory.observe_many(misshapen)  # type: ignore[arg-type]  # that is the mistake
    assert refused.value.place.startswith(f"item {bad}")
    assert not list(memory.log.read())


def test_a_generator_that_fails_late_leaves_nothing(memory: Memory) -> None:
    def records() -> Iterator[Any]:
        yield from (("ana", f"text {n}") for n in range(MANY - 1))
        raise RuntimeError("the source went away")

    with pytest.raises(RuntimeError, match="went away"):
        memory.observe_many(records())
    assert not list(memory.log.read())
    assert memory.observe("ana", "still writable")


def test_a_secret_is_masked_wherever_its_stream_echoes_it(memory: Memory) -> None:
    def records() -> Iterator[Any]:
        for n in range(MANY):
            if n == PORTION + 5:
                yield "ana", {"password": PASSWORD}
            else:
                yield "ana", {"note": f"{n}: {PASSWORD}" if n in (3, MANY - 1) else n}

    memory.observe_many(records())
    stored = [event.body for event in memory.log.read()]
    assert PASSWORD not in str(stored)
    assert [n for n, body in enumerate(stored) if "redacted" in str(body)] == [
        3, PORTION + 5, MANY - 1,
    ]  # fmt: skip


@pytest.mark.parametrize("where", [":memory:", "em.db"])
def test_a_generator_may_use_the_memory_that_it_is_given_to(tmp_path: Path, where: str) -> None:
    with Memory(where if where == ":memory:" else tmp_path / where) as memory:
        memory.observe_many(("ana", f"text {n}") for n in range(MANY))

        def again() -> Iterator[Any]:
            for event in memory.log.read(subject="ana"):
                memory.observe("bo", "seen")
                yield "cy", (event.body or {})["text"]

        assert len(memory.observe_many(again())) == MANY
        assert memory.store.head("subject/bo")[0] == MANY


def test_a_checkpoint_is_made_after_a_long_batch(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("state: {checkpoint_every: 2000}\n")
    with Memory(tmp_path / "em.db") as memory:
        memory.observe_many(
            {"subject": "ana", "record": {"n": n}, "type": "Parcel"} for n in range(MANY)
        )
        assert len(memory.state("ana").parcels) == MANY
