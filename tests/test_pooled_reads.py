"""What other kinds of task show about finding a person is used by all kinds, without their data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler.compile_trace import compile_several
from em.traces.catalogue import get_traces
from em.traces.trace import Message, Mission, ToolCall, Trace

FIRST = "Mia Noah Lena Omar Ruth Ivan Tara Hugo Nina Paul Vera Yann".split()
LAST = "Sorel Brandt Costa Dahl Egger Falk Greco Holm Ilves Jansen Kovac Lind".split()


class Gym:
    """Members of a gym: found by e-mail, or by name and postcode."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []
        self.looked: list[str] = []

    def member(self, number: int) -> dict[str, Any]:
        return {
            "member_id": f"member_{7100 + 13 * number}",
            "bookings": [f"B-{3000 + 17 * number}", f"B-{5000 + 17 * number}"],
            "contract": f"K-{8000 + 19 * number}",
        }

    def email(self, number: int) -> str:
        return f"{FIRST[number].lower()}.{LAST[number].lower()}{number}@mail.example"

    def postcode(self, number: int) -> str:
        return str(40211 + 111 * number)

    def find_by_email(self, email: str) -> str:
        self.looked.append("email")
        number = next(n for n in range(len(FIRST)) if self.email(n) == email)
        return str(self.member(number)["member_id"])

    def find_by_name(self, first_name: str, last_name: str, postcode: str) -> str:
        self.looked.append("name")
        found = [
            n
            for n in range(len(FIRST))
            if (FIRST[n], LAST[n], self.postcode(n)) == (first_name, last_name, postcode)
        ]
        return str(self.member(found[0])["member_id"])

    def get_member(self, member_id: str) -> dict[str, Any]:
        every = (self.member(n) for n in range(len(FIRST)))
        return next(one for one in every if one["member_id"] == member_id)

    def act(self, tool: str, value: Any) -> str:
        self.done.append((tool, value))
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {
            "find_by_email": self.find_by_email,
            "find_by_name": self.find_by_name,
            "get_member": self.get_member,
            "cancel_booking": lambda booking_id: self.act("cancel", booking_id),
            "freeze_contract": lambda contract: self.act("freeze", contract),
        }


GYM = Gym()


def trace(said: str, number: int, effect: str, argument: str, value: str, *, by: str) -> Trace:
    member = GYM.member(number)
    found = (
        ("find_by_email", {"email": GYM.email(number)})
        if by == "email"
        else (
            "find_by_name",
            {
                "first_name": FIRST[number],
                "last_name": LAST[number],
                "postcode": GYM.postcode(number),
            },
        )
    )
    calls = [
        (*found, member["member_id"], "read"),
        ("get_member", {"member_id": member["member_id"]}, member, "read"),
        (effect, {argument: value}, "ok", "write"),
    ]
    events = [
        Message(role="user", text=said),
        *(ToolCall(tool=t, args=a, result=r, effect=e) for t, a, r, e in calls),
    ]
    return Trace(mission=Mission(goal="serve"), events=events, outcome="success")


def cancelled(number: int, words: str) -> Trace:
    booking = GYM.member(number)["bookings"][0]
    said = words.format(email=GYM.email(number), booking=booking)
    return trace(said, number, "cancel_booking", "booking_id", booking, by="email")


def frozen(number: int) -> Trace:
    contract = GYM.member(number)["contract"]
    who = f"{FIRST[number]} {LAST[number]}, {GYM.postcode(number)}"
    said = f"This is {who}. Freeze contract {contract}."
    return trace(said, number, "freeze_contract", "contract", contract, by="name")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


CANCELLED = (
    "I am {email}. Cancel {booking}.",
    "{email} here: please cancel my booking {booking}!",
    "Hello, {email}. I want to cancel {booking}.",
)


def own(memory: Memory) -> list[str]:
    return [memory.add_trace(cancelled(n, words)) for n, words in enumerate(CANCELLED)]


def others(memory: Memory, count: int = 4) -> list[str]:
    return [memory.add_trace(frozen(n)) for n in range(4, 4 + count)]


def said(number: int) -> dict[str, str]:
    who = f"{FIRST[number]} {LAST[number]}, {GYM.postcode(number)}"
    return {"request": f"I am {who}. Cancel {GYM.member(number)['bookings'][1]}."}


def run(memory: Memory, routine: Any, given: dict[str, str]) -> tuple[str, list[Any]]:
    gym = Gym()
    return memory.run(routine, given, gym.tools()).status, gym.done


def test_who_asks_is_found_as_in_other_kinds_of_task(memory: Memory) -> None:
    others(memory)
    routine = memory.compile(own(memory), name="cancel")
    wanted = [("cancel", GYM.member(11)["bookings"][1])]
    assert run(memory, routine, said(11)) == ("ok", wanted)
    by_email = {"request": f"I am {GYM.email(11)}. Cancel {GYM.member(11)['bookings'][1]}."}
    assert run(memory, routine, by_email) == ("ok", wanted)
    assert routine.trials.count("wrong") == 0
    assert routine.trials.count("right") == 1, (
        "the two others say who they are in ways of their own"
    )


def test_who_asks_is_said_as_in_other_kinds_of_task(memory: Memory) -> None:
    others(memory)
    ids = own(memory)
    booking = GYM.member(11)["bookings"][1]
    who = f"This is {FIRST[11]} {LAST[11]}, {GYM.postcode(11)}"
    request = {"request": f"{who}. Cancel {booking}."}
    alone = memory.compile(ids, name="alone", beside=[])
    assert run(memory, alone, request) == ("needs_input", [])
    routine = memory.compile(ids, name="cancel")
    assert run(memory, routine, request) == ("ok", [("cancel", booking)])
    hostile = (
        *("This is Sarcasm.", "This is not me.", "This is Ana.", f"{who} speaking of it."),
        *(f"{who}?", f"Not {who}.", f"{who} is on holiday.", f"I am not {FIRST[11]}."),
    )
    for talk in hostile:
        given = {"request": f"{talk} {who}. Cancel {booking}."}
        assert run(memory, routine, given) == ("needs_input", []), talk


def test_without_other_kinds_it_is_asked_for(memory: Memory) -> None:
    routine = memory.compile(own(memory), name="cancel")
    assert run(memory, routine, said(11)) == ("needs_input", [])


def test_another_person_than_the_mail_says_is_asked_about(memory: Memory) -> None:
    others(memory)
    routine = memory.compile(own(memory), name="cancel")
    who = f"{FIRST[10]} {LAST[10]}, {GYM.postcode(10)}"
    booking = GYM.member(11)["bookings"][1]
    both = {"request": f"I am {who}, {GYM.email(11)}. Cancel {booking}."}
    assert run(memory, routine, both) == ("needs_input", [])


def test_two_traces_of_others_are_too_few(memory: Memory) -> None:
    others(memory, 2)
    routine = memory.compile(own(memory), name="cancel")
    assert run(memory, routine, said(11)) == ("needs_input", [])


def test_a_read_that_once_gave_somebody_else_is_not_used(memory: Memory) -> None:
    odd = frozen(9)
    wrong = odd.events[1]
    assert isinstance(wrong, ToolCall)
    events = [
        odd.events[0],
        ToolCall(tool=wrong.tool, args=wrong.args, result="member_9999", effect="read"),
        *odd.events[2:],
    ]
    others(memory)
    memory.add_trace(Trace(mission=odd.mission, events=events, outcome="success"))
    routine = memory.compile(own(memory), name="cancel")
    assert run(memory, routine, said(11)) == ("needs_input", [])


def test_nothing_of_other_traces_gets_into_the_routine(memory: Memory) -> None:
    others(memory)
    kept = get_traces(memory.store, own(memory))
    pool = get_traces(memory.store, others(memory))
    made = compile_several(kept, name="cancel", pool=pool)
    text = "\n".join(made.files.values())
    assert "find_by_name" in text
    for number in range(4, 8):
        for value in (FIRST[number], LAST[number], GYM.postcode(number), *GYM.member(number)):
            if value not in GYM.member(0):
                assert value not in text
        assert GYM.member(number)["member_id"] not in text
    pooled = {event for one in pool for event in one.event_ids}
    assert pooled.isdisjoint(made.from_events), "forgetting another trace keeps the routine"


def test_named_traces_are_pooled_and_no_others(memory: Memory) -> None:
    named = others(memory)
    ids = own(memory)
    assert run(memory, memory.compile(ids, name="a", beside=[]), said(11))[0] == "needs_input"
    assert run(memory, memory.compile(ids, name="b", beside=named), said(11))[0] == "ok"


def test_growing_pools_too(memory: Memory) -> None:
    routine = memory.compile(own(memory), name="cancel")
    assert run(memory, routine, said(11)) == ("needs_input", [])
    others(memory)
    memory.add_trace(cancelled(3, CANCELLED[0]))
    grown = memory.compile_again("cancel")
    assert grown.new, grown.why_not
    assert run(memory, "cancel", said(11))[0] == "ok"


def rows_read(memory: Memory, monkeypatch: pytest.MonkeyPatch, ids: list[str]) -> int:
    count = 0
    read = type(memory.store).read

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal count
        for event in read(self, *args, **options):
            count += 1
            yield event

    with monkeypatch.context() as patched:
        patched.setattr(type(memory.store), "read", counted)
        memory.compile(ids, name="cancel")
    return count


def test_a_long_log_is_not_read_whole(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool has a bound: ten times as many traces, and as many rows are read."""
    from em.traces.catalogue import POOLED

    ids = own(memory)
    for _ in range(POOLED):
        memory.add_trace(frozen(4))
    few = rows_read(memory, monkeypatch, ids)
    for _ in range(9 * POOLED):
        memory.add_trace(frozen(5))
    assert rows_read(memory, monkeypatch, ids) <= few * 1.1
