"""Values that a request says and a read shows: filled in, and checked before a write."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from bench.words import desks
from bench.words.recorded import results
from hypothesis import given, settings
from hypothesis import strategies as st

from em import Memory, tool
from em.compiler.confirmations import with_confirmations
from em.compiler.example import Example
from em.runner.package import find_routine, routine_of

KINDS = [*desks.kinds()]
GUESTS = {
    "gus@mail.example": {"guest": "g1", "name": "Gus Lund", "phone": 5551, "room": "garden"},
    "ada@mail.example": {"guest": "g2", "name": "Ada Byrne", "phone": 5552, "room": "tower"},
    "ida@mail.example": {"guest": "g3", "name": "Ida Jo van Ost", "phone": 5553, "room": "garden"},
    "al@mail.example": {"guest": "g5", "name": "Gus Roe", "phone": 5551, "room": "garden"},
    "bo@mail.example": {"guest": "g4", "name": "Bo Roe", "phone": 7, "room": "tower"},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["name"])
@pytest.mark.parametrize("size", [1, 2, 4, 12])
def test_recorded_requests_of_kinds_with_reads_are_done_again(kind: Any, size: int) -> None:
    """So are those about other records, but for values unlike the recorded ones."""
    found = [(sort, how) for sort, how, *_ in results(kind, size)]
    assert [how for sort, how in found if sort == "same"] == ["right"] * size
    assert not [one for one in found if one[1] == "wrong"]
    if size == 12:
        assert {how for _, how in found} == {"right"}


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind["name"])
@pytest.mark.parametrize("words", ["not", "unless he objects", "Friday", "twice"])
def test_words_put_in_anywhere_lead_to_no_write(kind: Any, words: str) -> None:
    """All holes of these kinds take ids, dates, or what a read confirms."""
    asked = [case["request"].split(" ") for case in kind["recorded"][::3]]
    hostile = [
        {**kind["fresh"][0], "request": " ".join([*one[:place], words, *one[place:]])}
        for one in asked
        for place in range(len(one) + 1)
    ]
    found = [*results({**kind, "fresh": hostile}, 12)]
    assert len(found) > len(hostile) // 2
    assert {how for sort, how, *_ in found if sort != "same"} <= {"asked", "unlike"}


class Desk:
    """Tools of a clerk who looks up a guest and closes the account."""

    def __init__(self) -> None:
        self.closed: list[str] = []

        @tool(effect="read")
        def find_guest(email: str) -> Any:
            return GUESTS.get(email)

        @tool(effect="write")
        def close(guest: str) -> bool:
            self.closed.append(guest)
            return True

        self.tools = [find_guest, close]

    def do(self, email: str) -> None:
        find, close = self.tools
        close(find(email)["guest"])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as opened:
        yield opened


def learn(memory: Memory, *requests: str) -> Desk:
    desk = Desk()
    for request in requests:
        email = next(one for one in GUESTS if one in request)
        with memory.record("close", {"request": request}):
            desk.do(email)
    memory.compile([one.id for one in memory.traces()], name="close")
    desk.closed.clear()
    return desk


NAMED = [
    "I am Gus Lund (gus@mail.example): close it",
    "I am Ada Byrne (ada@mail.example): close it",
]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    ("request_", "closed"),
    [
        ("I am Ida Jo van Ost (ida@mail.example): close it", ["g3"]),
        ("I am Gus Lund (ida@mail.example): close it", []),
        ("I am Ida Jo van Ost, or not (ida@mail.example): close it", []),
        ("I am not (ida@mail.example): close it", []),
        ("I am Ida Jo van Ost (gus@mail.example): close it", []),
    ],
)
def test_a_name_must_be_that_of_the_record(
    memory: Memory, count: int, request_: str, closed: list[str]
) -> None:
    desk = learn(memory, *NAMED[:count])
    done = memory.run("close", {"request": request_}, desk.tools)
    assert desk.closed == closed
    assert done.status == ("ok" if closed else "needs_input")


def test_a_name_of_somebody_else_is_a_check_that_failed_and_no_question(memory: Memory) -> None:
    desk = learn(memory, *NAMED)
    done = memory.run("close", {"request": NAMED[0].replace("gus@", "ida@")}, desk.tools)
    assert done.reason is not None
    assert done.reason.step_id == "check_guest_name"
    assert done.pending_prompt is None


def test_what_is_confirmed_need_not_be_given(memory: Memory) -> None:
    desk = learn(memory, *NAMED)
    routine = routine_of(find_routine(memory.store, "close"))
    assert (routine.input_schema or {})["required"] == ["email"]
    assert memory.run("close", {"email": "ida@mail.example"}, desk.tools).status == "ok"
    wrong = {"email": "ida@mail.example", "guest_name": "Gus Lund"}
    assert memory.run("close", wrong, desk.tools).status == "needs_input"
    assert desk.closed == ["g3"]


def test_a_part_of_a_name_is_understood_once_requests_differ_in_it(memory: Memory) -> None:
    desk = learn(
        memory, "Gus here, gus@mail.example, close it", "Ada here, ada@mail.example, close it"
    )
    for said, email in [("Ida", "ida"), ("Ida Jo", "ida"), ("Ada", "ida")]:
        request = f"{said} here, {email}@mail.example, close it"
        memory.run("close", {"request": request}, desk.tools)
    assert desk.closed == ["g3"]


def test_a_number_of_the_request_must_be_that_of_the_record(memory: Memory) -> None:
    desk = learn(memory, "Close gus@mail.example, phone 5551", "Close ada@mail.example, phone 5552")
    for phone in (5551, 5553):
        request = f"Close ida@mail.example, phone {phone}"
        memory.run("close", {"request": request}, desk.tools)
    assert desk.closed == ["g3"]


def test_what_several_people_said_is_no_wording_if_others_said_something_else(
    memory: Memory,
) -> None:
    request = "Close the {} account of {}@mail.example"
    rooms = {"gus": "garden", "ida": "garden", "ada": "tower", "bo": "tower"}
    desk = learn(memory, *(request.format(room, name) for name, room in rooms.items()))
    for name, room in rooms.items():
        for said in ("garden", "tower"):
            memory.run("close", {"request": request.format(said, name)}, desk.tools)
        assert len(desk.closed) == 1, f"{room} is the only account of {name}"
        desk.closed.clear()


def test_a_small_number_may_stand_in_a_record_by_chance(memory: Memory) -> None:
    desk = learn(memory, "Close bo@mail.example with 7 others")
    for request in ("Close bo@mail.example with 7 others", "Close ida@mail.example with 7 others"):
        memory.run("close", {"request": request}, desk.tools)
    assert desk.closed == ["g4"]


def test_a_routine_without_templates_has_no_further_inputs(memory: Memory) -> None:
    desk = Desk()
    with memory.record("close", {"request": "Gus Lund, as always", "email": "gus@mail.example"}):
        desk.do("gus@mail.example")
    memory.compile([one.id for one in memory.traces()], name="close")
    routine = routine_of(find_routine(memory.store, "close"))
    assert (routine.requests, [*(routine.input_schema or {})["properties"]]) == ((), ["email"])


SAID = [
    "I am {name} ({email}): close it",
    "{first} here, {email}, close it",
    "Close the {room} account of {email}!",
    "Close {email}, phone {phone}, ticket T-{ticket}",
    "{email}: I am the {last} of the {room} room, {first}",
]


def request_of(wording: str, email: str, **other: Any) -> str:
    record = {**GUESTS[email], **other}
    first, *_, last = record["name"].split()
    ticket = len(record["name"])
    return wording.format(**record, email=email, first=first, last=last, ticket=ticket)


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from(SAID), st.sampled_from([*GUESTS])), max_size=6, min_size=1)
)
def test_what_was_recorded_is_done_again_and_what_contradicts_a_record_is_not(
    recorded: list[tuple[str, str]],
) -> None:
    requests = {request_of(*one): GUESTS[one[1]]["guest"] for one in recorded}
    with TemporaryDirectory() as folder, Memory(Path(folder) / "em.db") as memory:
        desk = learn(memory, *requests)
        for request, guest in requests.items():
            assert memory.run("close", {"request": request}, desk.tools).status == "ok"
            assert desk.closed == [guest]
            desk.closed.clear()
        for wording, email in recorded:
            for other in GUESTS.values():
                for field in ("name", "room", "phone"):
                    request = request_of(wording, email, **{field: other[field]})
                    if request not in requests and GUESTS[email][field] != other[field]:
                        is_same = request == request_of(wording, email)
                        memory.run("close", {"request": request}, desk.tools)
                        assert is_same or not desk.closed
                        desk.closed.clear()


def test_an_input_that_a_request_does_not_say_is_all_that_is_asked_for(memory: Memory) -> None:
    paid: list[Any] = []

    @tool(effect="read")
    def find_guest(email: str) -> Any:
        return {**GUESTS[email], "owed": 12}

    @tool(effect="write")
    def pay(guest: str, amount: int) -> None:
        paid.append((guest, amount))

    with memory.record("pay", {"request": "Pay what we said to gus@mail.example."}):
        pay(find_guest("gus@mail.example")["guest"], 12)
    memory.compile([one.id for one in memory.traces()], name="pay")
    asked = memory.run(
        "pay", {"request": "Pay what we said to gus@mail.example"}, [find_guest, pay]
    )
    assert asked.pending_prompt is not None
    assert [one["name"] for one in asked.pending_prompt.fields] == ["amount"]
    paid.clear()
    memory.resume(asked.run_id, [find_guest, pay], answers={"inputs": {"amount": 30}})
    assert paid == [("g1", 30)]


def test_names_that_the_routine_has_are_not_taken() -> None:
    steps: list[Any] = [
        {"type": "tool.call", "tool": "find", "args": {"q": "{{ email }}"}, "save_as": "guest"},
        {"id": "check_guest_name_2", "type": "assert", "check": "guest.name"},
        {"type": "let", "value": "{{ guest.name }}", "save_as": "guest_name"},
    ]
    schema = {"properties": {"email": {"type": "string"}}}
    one = Example({"email": "a@b.c"}, [], request="I am Gus Lund, a@b.c")
    found = with_confirmations(
        {"input_schema": schema, "steps": steps}, [one], [{"guest": {"name": "Gus Lund"}}]
    )
    assert [*found.names] == ["guest_name_2"]
    ids = [step["id"] for step in found.document["steps"] if "id" in step]
    assert ids == ["check_guest_name_2_2", "check_guest_name_2"]
    assert schema["properties"].keys() == {"email"}
