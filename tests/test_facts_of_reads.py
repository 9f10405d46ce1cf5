"""What all traces saw before they wrote must be so again: in every form, for every kind of read."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from em import Memory, recorded_tool
from em.compiler.record_facts import Shown, record_facts
from em.runner.expressions.functions import strange_text, turns_of
from em.runner.public_form import public_form
from em.runner.run import RunResult

PLAN = (
    "Please book {} for {}.",
    "Please book {} on {}.",
    "Book {} for {} please",
    "I want to book {} for {}.",
)
FORMS = {"a plan": PLAN, "a template": PLAN[:1] * 4, "one trace": PLAN[:1]}
DAYS = ("2025-08-01", "2025-08-02", "2025-08-03", "2025-08-04")


class World:
    """Tools that a test defines; the reads know whether the traces are over."""

    def __init__(self, path: Path) -> None:
        self.memory = Memory(path)
        self.is_new = False
        self.written: list[tuple[Any, ...]] = []
        self.tools: dict[str, Callable[..., Any]] = {}

    def add(self, name: str, arguments: Sequence[str], result: Callable[..., Any] | None) -> None:
        def call(*given: Any, **named: Any) -> Any:
            values = (*given, *(named[one] for one in arguments if one in named))
            if result is not None:
                return result(*values, self.is_new)
            self.written.append(values)
            return {"done": True}

        call.__name__ = name
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(one, kind) for one in arguments])
        call.__signature__ = signature  # type: ignore[attr-defined]  # what a tool looks like
        effect: Any = "write" if result is None else "read"
        self.tools[name] = recorded_tool(effect=effect)(call)

    def learn(self, tasks: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
        @self.memory.record(app="tests")
        def agent(request: str) -> None:
            for tool, *args in tasks[request]:
                self.tools[tool](*args)

        for request in tasks:
            agent(request)
        traces = [trace.id for trace in self.memory.traces()]
        self.routine = self.memory.compile(traces, name="task")
        self.written.clear()

    def run(self, request: str, *, changed: bool) -> RunResult:
        self.is_new = changed
        return self.memory.run(self.routine, {"request": request}, self.tools)


def why(result: RunResult) -> str:
    """Return what a run says to a person."""
    if result.pending_prompt is not None:
        return result.pending_prompt.message
    return result.failure.message if result.failure is not None else ""


def booking(
    path: Path,
    result: Callable[..., Any],
    *,
    words: Sequence[str] = PLAN,
    ids: str = "ROOM-40{}",
    read_with: Sequence[str] = ("room_id",),
) -> tuple[World, str]:
    """Return a world in which rooms are looked at and booked, and the next request."""
    world = World(path / "m.db")
    world.add("get_room", read_with, result)
    world.add("book_room", ("room_id", "day"), None)
    tasks = {}
    for number, text in enumerate(words):
        given = {"room_id": ids.format(number + 1), "day": DAYS[number]}
        looked = ("get_room", *(given[name] for name in read_with))
        tasks[text.format(*given.values())] = [looked, ("book_room", *given.values())]
    world.learn(tasks)
    return world, words[0].format(ids.format(8), "2025-08-20")


Case = tuple[Callable[..., Any], Sequence[str], str]
BOTH = ("room_id", "day")
CASES: dict[str, Case] = {
    "a flag": (lambda room, day, new: not new, BOTH, "false"),
    "a state": (lambda room, new: "closed" if new else "available", ("room_id",), "closed"),
    "a count": (lambda room, day, new: 3 if new else 0, BOTH, "3"),
    "a list that was empty": (
        lambda room, day, new: [{"booking_id": "BK-1"}] if new else [],
        BOTH,
        "was empty in all recorded runs; now it has 1 member",
    ),
    "a list that was not empty": (
        lambda room, new: [] if new else ["projector"],
        ("room_id",),
        "was not empty in any recorded run; now it is",
    ),
    "a field that was empty": (
        lambda room, new: {"room": room, "complaints": ["flooded"] if new else []},
        ("room_id",),
        "has a field that no recorded one had: complaints",
    ),
    "a field that was not empty": (
        lambda room, new: {"room": room, "permits": [] if new else ["P-1"]},
        ("room_id",),
        "had in all recorded runs what is missing now: permits",
    ),
    "a new text": (
        lambda room, new: {"room": room, **({"access": "read-only"} if new else {})},
        ("room_id",),
        "has a field that no recorded one had: access",
    ),
    "a text": (
        lambda room, new: f"Room {room} is {'closed' if new else 'open'}.",
        ("room_id",),
        "says what no recorded one said: closed",
    ),
    "words in another order": (
        lambda room, new: "closed, not open" if new else "open, not closed",
        ("room_id",),
        "says what no recorded one said",
    ),
    "an error": (
        lambda room, new: {"error": "no such room"} if new else {"room": room},
        ("room_id",),
        "no such room",
    ),
    "nothing": (lambda room, new: None if new else {"room": room}, ("room_id",), "no such"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_what_was_read_before_a_write_must_be_so_again(
    tmp_path: Path, form: str, case: str
) -> None:
    result, read_with, said = CASES[case]
    world, request = booking(tmp_path, result, words=FORMS[form], read_with=read_with)
    refused = world.run(request, changed=True)
    assert world.written == []
    assert refused.status in ("needs_input", "failed")
    assert said in why(refused)
    assert "_keys(" not in why(refused)
    assert world.run(request, changed=False).status == "ok"
    assert world.written == [("ROOM-408", "2025-08-20")]


@pytest.mark.parametrize("ids", ["R{}", "1{}", "#1{}", "VAN-{}", "ROOM-40{}"])
def test_a_read_by_a_short_id_is_made_before_the_write(tmp_path: Path, ids: str) -> None:
    world, request = booking(
        tmp_path, lambda room, new: {"room": room, "state": "closed" if new else "free"}, ids=ids
    )
    refused = world.run(request, changed=True)
    assert world.written == []
    assert '"closed" now; it was "free" when recorded' in why(refused)
    assert world.run(request, changed=False).status == "ok"


def test_a_read_without_arguments_is_made_before_the_write(tmp_path: Path) -> None:
    world, request = booking(
        tmp_path, lambda new: {"bookings": "closed" if new else "open"}, read_with=()
    )
    world.run(request, changed=True)
    assert world.written == []
    assert world.run(request, changed=False).status == "ok"


@pytest.mark.parametrize("form", ["a plan", "a template"])
def test_a_day_stays_before_the_end_that_a_record_has(tmp_path: Path, form: str) -> None:
    world, request = booking(
        tmp_path,
        lambda room, new: {"room": room, "until": "2025-08-19" if new else "2025-12-31"},
        words=FORMS[form],
    )
    refused = world.run(request, changed=True)
    assert world.written == []
    assert '"2025-08-19" now; it was at least `day` when recorded' in why(refused)
    assert world.run(request, changed=False).status == "ok"


WITHDRAW = (
    "Withdraw {} from {}.",
    "Please withdraw {} from {}.",
    "I want to withdraw {} from {}.",
    "Could you withdraw {} from {}?",
)


@pytest.mark.parametrize("words", [WITHDRAW, WITHDRAW[:1] * 4], ids=["a plan", "a template"])
def test_an_amount_stays_within_what_a_record_says_there_is(
    tmp_path: Path, words: Sequence[str]
) -> None:
    world = World(tmp_path / "m.db")

    def account(account_id: str, is_new: bool) -> Any:
        return {"account_id": account_id, "funds_here": 49 if is_new else 300 + int(account_id[-1])}

    world.add("get_account", ("account_id",), account)
    world.add("withdraw", ("account_id", "amount"), None)
    tasks = {}
    for number, text in enumerate(words, 1):
        own = f"AC-440{number}"
        tasks[text.format(number * 20, own)] = [
            ("get_account", own),
            ("withdraw", own, number * 20),
        ]
    world.learn(tasks)
    world.run("Withdraw 50 from AC-4408.", changed=True)
    assert world.written == []
    assert world.run("Withdraw 50 from AC-4408.", changed=False).status == "ok"
    assert world.written == [("AC-4408", 50)]


@pytest.mark.parametrize(
    "odd", [{"ticket_id": None}, {"note": "do not close"}, {"tags": ["keep"]}, {"locked": True}]
)
def test_one_odd_member_of_a_loop_stops_it_before_the_first_write(tmp_path: Path, odd: Any) -> None:
    world = World(tmp_path / "m.db")
    states = ("waiting", "open", "closed")

    def tickets(owner: str, is_new: bool) -> Any:
        own = int(owner[3])
        found = [
            {"ticket_id": f"TK-7{own}{n}", "status": states[(own + n) % 3]} for n in range(1, 5)
        ]
        last = [one for one in found if one["status"] == "waiting"][-1]
        last.update(odd if is_new else {})
        return found

    world.add("list_tickets", ("owner",), tickets)
    world.add("close_ticket", ("ticket_id",), None)
    tasks = {}
    for number in range(1, 7):
        owner = f"own{number}@it.example"
        waiting = [one for one in tickets(owner, False) if one["status"] == "waiting"]
        tasks[f"Close all waiting tickets of {owner}."] = [
            ("list_tickets", owner),
            *(("close_ticket", one["ticket_id"]) for one in waiting),
        ]
    world.learn(tasks)
    world.run("Close all waiting tickets of own8@it.example.", changed=True)
    assert world.written == []
    assert world.run("Close all waiting tickets of own8@it.example.", changed=False).status == "ok"
    assert world.written == [("TK-781",), ("TK-784",)]


def test_the_words_of_a_text_are_compared_without_what_it_was_asked_for_by() -> None:
    seen = turns_of("Room R1 is open.\nOwner: Ana", ["R1"], ["owner", "#"])
    assert strange_text("Room R8 is open.\nOwner: Ben", ["R8"], ["owner", "#"], seen, seen) is None
    assert strange_text("Room R8 is shut.\nOwner: Ben", ["R8"], ["owner"], seen, seen) == ["shut"]
    assert strange_text("Room R8 is open.", ["R8"], ["owner"], seen, seen) == [
        "no 'owner'",
        "no 'owner :'",
        "no ':'",
    ]


MORE: dict[str, tuple[Callable[..., Any], str]] = {
    "a text of JSON": (
        lambda room, new: f'{{"room": "{room}", "state": "{"shut" if new else "free"}"}}',
        "shut",
    ),
    "a member of a list": (
        lambda room, new: [{"booking_id": "BK-1", "state": "active" if new else "cancelled"}],
        'is unlike all recorded ones: state "active"',
    ),
    "a word of a list": (
        lambda room, new: {"room": room, "tags": ["do-not-book"] if new else ["quiet"]},
        "has what no recorded one had: do-not-book",
    ),
    "a flag deep inside": (
        lambda room, new: {"room": room, "info": {"doors": {"main": {"open": not new}}}},
        "is false now; it was true when recorded",
    ),
    "the same owner each time": (
        lambda room, new: {"room": room, "owner": "Ben" if new else "Ana"},
        'is "Ben" now; it was "Ana" when recorded',
    ),
}


@pytest.mark.parametrize("form", ["a plan", "a template"])
@pytest.mark.parametrize("case", MORE)
def test_what_several_traces_saw_inside_of_a_result_must_be_so_again(
    tmp_path: Path, form: str, case: str
) -> None:
    result, said = MORE[case]
    world, request = booking(tmp_path, result, words=FORMS[form])
    refused = world.run(request, changed=True)
    assert world.written == []
    assert said in why(refused)
    assert world.run(request, changed=False).status == "ok"


@pytest.mark.parametrize("form", ["a plan", "a template"])
def test_a_read_that_all_traces_made_with_the_same_argument_is_made(
    tmp_path: Path, form: str
) -> None:
    world = World(tmp_path / "m.db")
    world.add("get_rules", ("topic",), lambda topic, is_new: {"allowed": not is_new})
    world.add("book_room", ("room_id", "day"), None)
    tasks = {}
    for number, text in enumerate(FORMS[form]):
        room = f"ROOM-40{number}"
        calls = [("get_rules", "rooms"), ("book_room", room, DAYS[number])]
        tasks[text.format(room, DAYS[number])] = calls
    world.learn(tasks)
    world.run("Please book ROOM-408 for 2025-08-20.", changed=True)
    assert world.written == []
    assert world.run("Please book ROOM-408 for 2025-08-20.", changed=False).status == "ok"


def test_a_plan_does_not_act_without_a_read_that_all_traces_made(tmp_path: Path) -> None:
    world = World(tmp_path / "m.db")
    found = iter(("red", "green", "blue", "grey"))
    world.add("ask_desk", ("question",), lambda question, is_new: {"answer": "yes"})
    world.add("book_room", ("room_id", "day"), None)
    tasks = {}
    for number, text in enumerate(PLAN):
        room = f"ROOM-40{number}"
        calls = [("ask_desk", f"the {next(found)} key"), ("book_room", room, DAYS[number])]
        tasks[text.format(room, DAYS[number])] = calls
    world.learn(tasks)
    assert world.run("Please book ROOM-408 for 2025-08-20.", changed=False).status != "ok"
    assert world.written == []


def test_others_don_t_see_the_words_that_a_read_text_had_in_one_trace(tmp_path: Path) -> None:
    names = {"ROOM-401": "Anabel", "ROOM-402": "Benno", "ROOM-403": "Cleo", "ROOM-404": "Dora"}
    world, request = booking(
        tmp_path, lambda room, new: f"{names.get(room, 'Anabel')} keeps {room} open."
    )
    assert world.run(request, changed=False).status == "ok"
    public = str(public_form(world.routine, is_shared=True))
    assert "keeps" in public
    assert not any(name.lower() in public.lower() for name in names.values())


def test_a_read_of_what_another_read_names_is_made_before_the_write(tmp_path: Path) -> None:
    world = World(tmp_path / "m.db")
    world.add(
        "get_visit", ("visit_id",), lambda visit, is_new: {"visit_id": visit, "who": f"P{visit}"}
    )
    world.add("get_patient", ("patient_id",), lambda who, is_new: {"allowed": not is_new})
    world.add("cancel_visit", ("visit_id",), None)
    world.add("move_visit", ("visit_id", "day"), None)
    tasks = {}
    for number, text in enumerate(
        ("Please cancel {}.", "Cancel {}, thanks.", "I need to cancel {}.")
    ):
        visit = f"A-500{number}"
        looked = [("get_visit", visit), ("get_patient", f"P{visit}")]
        tasks[text.format(visit)] = [*looked, ("cancel_visit", visit)]
    for number, text in enumerate(("Can you move {} to {}?", "Move {} to {}.", "Move {} to {}!")):
        visit = f"A-600{number}"
        looked = [("get_visit", visit), ("get_patient", f"P{visit}")]
        tasks[text.format(visit, DAYS[number])] = [*looked, ("move_visit", visit, DAYS[number])]
    world.learn(tasks)
    refused = world.run("Please cancel A-5008.", changed=True)
    assert world.written == []
    assert "`get_patient.allowed` is false now; it was true when recorded" in why(refused)
    assert world.run("Please cancel A-5008.", changed=False).status == "ok"


def test_ids_in_a_list_are_data_though_the_same_ones_came_again() -> None:
    orders = [["#W101", "#W102"], ["#W101", "#W102"], ["#W101", "#W102"], ["#W103"]]
    seen = [Shown({}, {"orders": one, "roles": ["guide"]}) for one in orders]
    facts = [*record_facts("user", seen)]
    assert not any("user.orders" in one and "strange_items" in one for one in facts)
    assert any("user.roles" in one and "strange_items" in one for one in facts)
