"""Where the ways of traces part, what separates all of them decides; otherwise nothing is done."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import EmError
from em.traces.trace import Message, Mission, ToolCall, Trace

Parcel = dict[str, Any]


class Office:
    """A post office: parcels, and what was done with them."""

    def __init__(self, **parcels: Parcel) -> None:
        self.parcels, self.done = parcels, []

    def act(self, *args: Any) -> str:
        self.done.append(args)
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {
            "get_parcel": lambda parcel_id: self.parcels[parcel_id],
            "wrap": lambda parcel_id: self.act("wrap", parcel_id),
            "send": lambda parcel_id, city: self.act("send", parcel_id, city),
        }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


CITIES = (
    "Rome Oslo Bern Lima Paris Cairo Kyoto Quito Delhi Dakar Sofia Minsk Accra Hanoi Perth Turin"
).split()


def sent(number: int, parcel: Parcel, *, wrapped: bool) -> Trace:
    parcel_id, city = f"P{7300 + number}", CITIES[number]
    calls = [("get_parcel", {"parcel_id": parcel_id}, parcel, "read")]
    if wrapped:
        calls.append(("wrap", {"parcel_id": parcel_id}, "ok", "write"))
    calls.append(("send", {"parcel_id": parcel_id, "city": city}, "ok", "write"))
    events = [
        Message(role="user", text=f"Please send {parcel_id} to {city} today."),
        *(ToolCall(tool=t, args=a, result=r, effect=e) for t, a, r, e in calls),
    ]
    return Trace(mission=Mission(goal="send"), events=events, outcome="success")


def learnt(memory: Memory, *traces: Trace) -> str:
    return memory.compile([memory.add_trace(one) for one in traces], name="post")


def parcel(kind: str, weight: int, **more: Any) -> Parcel:
    return {"kind": kind, "weight": weight, **more}


@pytest.fixture
def routine(memory: Memory) -> str:
    """What is fragile was wrapped; the weights say nothing."""
    return learnt(
        memory,
        *(
            sent(n, parcel("fragile" if n < 8 else "plain", 7 * n % 16 + 3), wrapped=n < 8)
            for n in range(16)
        ),
    )


SAID = {"request": "Please send P8811 to Tunis today."}


@pytest.mark.parametrize(
    ("kind", "done"),
    [
        ("fragile", [("wrap", "P8811"), ("send", "P8811", "Tunis")]),
        ("plain", [("send", "P8811", "Tunis")]),
    ],
)
def test_what_separates_all_traces_decides(
    memory: Memory, routine: str, kind: str, done: list[Any]
) -> None:
    office = Office(P8811=parcel(kind, 20))
    result = memory.run(routine, SAID, office.tools())
    assert (result.status, office.done) == ("ok", done)


def test_a_state_that_no_trace_had_is_handed_over(memory: Memory, routine: str) -> None:
    office = Office(P8811=parcel("liquid", 20))
    result = memory.run(routine, SAID, office.tools())
    assert (result.status, office.done) == ("failed", [])


def test_everything_that_separates_the_traces_must_agree(memory: Memory) -> None:
    """The heavy ones were the fragile ones: nobody knows which of the two was the reason."""
    fragile = [sent(n, parcel("fragile", 40 - n), wrapped=True) for n in range(8)]
    plain = [sent(n, parcel("plain", 2 + n), wrapped=False) for n in range(8, 16)]
    routine = learnt(memory, *fragile, *plain)
    for kind, weight, count in (("fragile", 35, 2), ("plain", 11, 1)):
        office = Office(P8811=parcel(kind, weight))
        assert memory.run(routine, SAID, office.tools()).status == "ok"
        assert len(office.done) == count
    for kind, weight in (("fragile", 11), ("plain", 35), ("plain", 25), ("fragile", 25)):
        office = Office(P8811=parcel(kind, weight))
        result = memory.run(routine, SAID, office.tools())
        assert (result.status, office.done) == ("failed", [])


def test_ways_that_nothing_separates_are_not_learnt(memory: Memory) -> None:
    made = [sent(n, parcel("plain", 5 + n), wrapped=n % 2 == 0) for n in range(6)]
    with pytest.raises(EmError):
        learnt(memory, *made)


def test_what_separates_a_few_traces_may_be_an_accident(memory: Memory) -> None:
    made = [sent(n, parcel("fragile", 12 + n), wrapped=True) for n in range(3)]
    made += [sent(n, parcel("plain", 9 + n), wrapped=False) for n in range(3, 6)]
    with pytest.raises(EmError, match="too few traces"):
        learnt(memory, *made)


def test_two_traces_of_a_way_are_too_few_to_go_it(memory: Memory) -> None:
    made = [sent(n, parcel("plain", 5 + n), wrapped=False) for n in range(4)]
    made += [sent(n, parcel("fragile", 5 + n), wrapped=True) for n in (4, 5)]
    with pytest.raises(EmError):
        learnt(memory, *made)
