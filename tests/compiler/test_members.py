"""A call for each member of a list that was read becomes a loop over that list."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import EmError
from em.traces.trace import Message, Mission, ToolCall, Trace

Ticket = dict[str, Any]


class Desk:
    """A helpdesk: the tickets of each person, and what was done with them."""

    def __init__(self, tickets: Sequence[Ticket], *, together: bool = False) -> None:
        self.tickets = [dict(one) for one in tickets]
        self.done: list[tuple[Any, ...]] = []
        self.events: list[ToolCall] = []
        self._together = together

    def list_tickets(self, person: str) -> list[Ticket]:
        return [dict(one) for one in self.tickets]

    def list_ids(self, person: str) -> dict[str, Any]:
        return {"person": person, "tickets": [one["id"] for one in self.tickets]}

    def get_ticket(self, ticket_id: str) -> Ticket:
        return dict(next(one for one in self.tickets if one["id"] == ticket_id))

    def close_ticket(self, ticket_id: str) -> str:
        self.done.append(("close", ticket_id))
        next(one for one in self.tickets if one["id"] == ticket_id)["status"] = "closed"
        if self._together:
            # Tickets about the same machine are closed with it.
            for one in self.tickets:
                one["status"] = "closed"
        return "ok"

    def escalate_ticket(self, ticket_id: str) -> str:
        self.done.append(("escalate", ticket_id))
        return "ok"

    def notify_owner(self, ticket_id: str) -> str:
        self.done.append(("notify", ticket_id))
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in TOOLS}

    def call(self, tool: str, **args: Any) -> Any:
        """Call a tool as an agent does, and record it."""
        result = getattr(self, tool)(**args)
        self.events.append(ToolCall(tool=tool, args=args, result=result, effect=TOOLS[tool]))
        return result


TOOLS: dict[str, Any] = {
    "list_tickets": "read",
    "list_ids": "read",
    "get_ticket": "read",
    "close_ticket": "write",
    "escalate_ticket": "write",
    "notify_owner": "write",
}
PEOPLE = "ana@it.example ben@it.example cleo@it.example dan@it.example eve@it.example".split()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def ticket(number: int, status: str, **more: Any) -> Ticket:
    return {"id": f"T-{4000 + 37 * number}", "status": status, "subject": f"case {number}", **more}


def queue(start: int, states: str, **more: Any) -> list[Ticket]:
    """Tickets whose states are given by their first letters."""
    names = {"o": "open", "w": "waiting", "c": "closed", "l": "locked"}
    return [ticket(start + n, names[state], **more) for n, state in enumerate(states)]


def trace(desk: Desk, said: str, given: dict[str, Any] | None = None) -> Trace:
    events: list[Any] = [*([Message(role="user", text=said)] if said else []), *desk.events]
    return Trace(
        mission=Mission(goal="tidy up", input_summary=given or {}),
        events=events,
        outcome="success",
    )


SAID = "Please close all waiting tickets of {}."


def closed(person: str, tickets: Sequence[Ticket], which: str = "waiting") -> Trace:
    """An agent lists the tickets, and closes those in a state."""
    desk = Desk(tickets)
    for one in desk.call("list_tickets", person=person):
        if which in ("", one["status"]):
            desk.call("close_ticket", ticket_id=one["id"])
    return trace(desk, SAID.format(person))


def learnt(memory: Memory, traces: Sequence[Trace]) -> Any:
    return memory.compile([memory.add_trace(one) for one in traces], name="tidy")


QUEUES = ("owc", "wwoc", "cow", "wocw", "ooww")


@pytest.fixture
def waiting(memory: Memory) -> Any:
    return learnt(
        memory,
        [closed(p, queue(10 * n, q)) for n, (p, q) in enumerate(zip(PEOPLE, QUEUES, strict=True))],
    )


def run(memory: Memory, routine: Any, desk: Desk, person: str = "zoe@it.example") -> Any:
    return memory.run(routine, {"request": SAID.format(person)}, desk.tools())


@pytest.mark.parametrize("states", ["w", "owcw", "wwwwww", "ccow"])
def test_what_was_done_to_some_members_is_done_to_those_that_are_alike(
    memory: Memory, waiting: Any, states: str
) -> None:
    desk = Desk(queue(70, states))
    wanted = [("close", one["id"]) for one in desk.tickets if one["status"] == "waiting"]
    result = run(memory, waiting, desk)
    assert (result.status, desk.done) == ("ok", wanted), result.failure


def test_the_loop_was_right_on_traces_that_it_was_not_learnt_from(waiting: Any) -> None:
    assert "right in 5 of 5" in str(waiting.trials)


@pytest.mark.parametrize("states", ["wl", "oc", ""])
def test_a_member_in_another_state_or_no_member_at_all_is_handed_over(
    memory: Memory, waiting: Any, states: str
) -> None:
    desk = Desk(queue(70, states))
    result = run(memory, waiting, desk)
    assert (result.status != "ok", desk.done) == (True, [])


def test_the_same_id_twice_is_handed_over(memory: Memory, waiting: Any) -> None:
    one = ticket(70, "waiting")
    desk = Desk([one, ticket(71, "open"), one])
    result = run(memory, waiting, desk)
    assert (result.status != "ok", desk.done) == (True, [])


def handed_over(memory: Memory, routine: Any, desk: Desk, said: str) -> bool:
    """Whether nothing was done."""
    result = memory.run(routine, {"request": said}, desk.tools())
    return result.status != "ok" and desk.done == []


def done(memory: Memory, routine: Any, desk: Desk, said: str) -> list[tuple[Any, ...]]:
    result = memory.run(routine, {"request": said}, desk.tools())
    assert result.status == "ok", result.failure or result.pending_prompt
    return desk.done


# --- all members ----------------------------------------------------------------------------------


ALL = "Please close all tickets of {}."


def closed_all(person: str, tickets: Sequence[Ticket]) -> Trace:
    desk = Desk(tickets)
    for one in desk.call("list_tickets", person=person):
        desk.call("close_ticket", ticket_id=one["id"])
    return trace(desk, ALL.format(person))


def test_what_was_done_to_all_members_is_done_to_all(memory: Memory) -> None:
    several = zip(PEOPLE, ("ww", "ow", "o", "wow"), strict=False)
    routine = learnt(memory, [closed_all(p, queue(9 * n, q)) for n, (p, q) in enumerate(several)])
    assert routine.trials.count("wrong") == 0
    desk = Desk(queue(70, "owwoo"))
    wanted = [("close", one["id"]) for one in desk.tickets]
    assert done(memory, routine, desk, ALL.format("zoe@it.example")) == wanted
    said = ALL.format("zoe@it.example")
    assert handed_over(memory, routine, Desk(queue(70, "owl")), said), "none was locked"
    assert handed_over(memory, routine, Desk([]), said), "no list was empty"


def test_a_list_that_always_had_two_members_does_not_show_what_all_means(memory: Memory) -> None:
    traces = [closed_all(p, queue(9 * n, "ow")) for n, p in enumerate(PEOPLE)]
    try:
        routine = learnt(memory, traces)
    except EmError:
        return
    desk = Desk(queue(70, "owo"))
    assert handed_over(memory, routine, desk, ALL.format("zoe@it.example"))


def test_one_trace_does_not_show_what_all_means(memory: Memory) -> None:
    routine = learnt(memory, [closed_all(PEOPLE[0], queue(1, "www"))])
    desk = Desk(queue(70, "ww"))
    assert handed_over(memory, routine, desk, ALL.format("zoe@it.example"))


# --- what is read about each member ---------------------------------------------------------------


def looked_up(person: str, tickets: Sequence[Ticket], *, at_once: bool, **how: Any) -> Trace:
    """An agent gets ids, looks each one up, and closes those that wait; at once or at the end."""
    desk = Desk(tickets, **how)
    found = []
    for one in desk.call("list_ids", person=person)["tickets"]:
        record = desk.call("get_ticket", ticket_id=one)
        if record["status"] == "waiting":
            found.append(one)
            if at_once:
                desk.call("close_ticket", ticket_id=one)
    for one in () if at_once else found:
        desk.call("close_ticket", ticket_id=one)
    return trace(desk, SAID.format(person))


def test_what_was_read_about_each_member_decides(memory: Memory) -> None:
    several = zip(PEOPLE, QUEUES, strict=True)
    routine = learnt(
        memory,
        [looked_up(p, queue(9 * n, q), at_once=False) for n, (p, q) in enumerate(several)],
    )
    assert routine.trials.count("wrong") == 0
    assert routine.trials.count("right") >= 4
    desk = Desk(queue(70, "cwoww"))
    wanted = [("close", one["id"]) for one in desk.tickets if one["status"] == "waiting"]
    assert done(memory, routine, desk, SAID.format("zoe@it.example")) == wanted
    assert handed_over(memory, routine, Desk(queue(70, "wwl")), SAID.format("zoe@it.example"))


def test_a_read_and_a_write_in_turns_are_one_loop(memory: Memory) -> None:
    several = zip(PEOPLE, QUEUES, strict=True)
    routine = learnt(
        memory,
        [looked_up(p, queue(9 * n, q), at_once=True) for n, (p, q) in enumerate(several)],
    )
    assert routine.trials.count("wrong") == 0
    assert routine.trials.count("right") >= 4
    desk = Desk(queue(70, "cwoww"))
    wanted = [("close", one["id"]) for one in desk.tickets if one["status"] == "waiting"]
    assert done(memory, routine, desk, SAID.format("zoe@it.example")) == wanted
    said = SAID.format("zoe@it.example")
    assert handed_over(memory, routine, Desk(queue(70, "wwl")), said), "before the first is closed"
    # One write closes all: what the next turns read is what counts.
    desk = Desk(queue(70, "owww"), together=True)
    assert done(memory, routine, desk, said) == [("close", desk.tickets[1]["id"])]


# --- ways within a loop ---------------------------------------------------------------------------


SORT = "Please go through the tickets of {}."


def sorted_out(person: str, tickets: Sequence[Ticket]) -> Trace:
    """What is urgent is escalated, and the owner told; what waits is closed; the rest stays."""
    desk = Desk(tickets)
    for one in desk.call("list_tickets", person=person):
        if one["level"] == "urgent":
            desk.call("escalate_ticket", ticket_id=one["id"])
            desk.call("notify_owner", ticket_id=one["id"])
        elif one["level"] == "minor":
            desk.call("close_ticket", ticket_id=one["id"])
    return trace(desk, SORT.format(person))


def levels(start: int, text: str) -> list[Ticket]:
    names = {"u": "urgent", "m": "minor", "n": "normal", "v": "vip"}
    return [
        ticket(start + n, "open", level=names[one], words=7 * (start + n) % 11 + 5)
        for n, one in enumerate(text)
    ]


@pytest.fixture
def sorting(memory: Memory) -> Any:
    several = zip(PEOPLE, ("unmum", "mmnu", "nuumn", "munnm", "umnu"), strict=True)
    return learnt(memory, [sorted_out(p, levels(9 * n, q)) for n, (p, q) in enumerate(several)])


def test_members_go_one_of_several_ways(memory: Memory, sorting: Any) -> None:
    assert sorting.trials.count("wrong") == 0
    assert sorting.trials.count("right") >= 4
    desk = Desk(levels(70, "nmuum"))
    ids = [one["id"] for one in desk.tickets]
    assert done(memory, sorting, desk, SORT.format("zoe@it.example")) == [
        ("close", ids[1]),
        ("escalate", ids[2]),
        ("notify", ids[2]),
        ("escalate", ids[3]),
        ("notify", ids[3]),
        ("close", ids[4]),
    ]


def test_a_way_that_no_member_went_is_handed_over(memory: Memory, sorting: Any) -> None:
    assert handed_over(memory, sorting, Desk(levels(70, "muv")), SORT.format("zoe@it.example"))


# --- what decides ---------------------------------------------------------------------------------


def chosen(person: str, tickets: Sequence[Ticket], test: Any, said: str = SORT) -> Trace:
    desk = Desk(tickets)
    for one in desk.call("list_tickets", person=person):
        if test(one):
            desk.call("close_ticket", ticket_id=one["id"])
    return trace(desk, said.format(person))


def test_reasons_that_disagree_are_handed_over_with_the_member(memory: Memory) -> None:
    """All that waited were remote ones too: nobody knows which of the two was the reason."""

    def mixed(start: int, states: str) -> list[Ticket]:
        return [
            {**one, "place": "remote" if one["status"] == "waiting" else "office"}
            for one in queue(start, states)
        ]

    states = ("wowo", "owow", "wwoo", "owwo", "woow")
    several = zip(PEOPLE, states, strict=True)
    is_waiting = lambda one: one["status"] == "waiting"  # noqa: E731 - one of several tests
    routine = learnt(
        memory, [chosen(p, mixed(9 * n, q), is_waiting) for n, (p, q) in enumerate(several)]
    )
    said = SORT.format("zoe@it.example")
    desk = Desk(mixed(70, "wow"))
    assert len(done(memory, routine, desk, said)) == 2
    odd = {**ticket(80, "waiting"), "place": "office"}
    desk = Desk([*mixed(70, "wo"), odd])
    result = memory.run(routine, {"request": said}, desk.tools())
    assert (result.status, desk.done) == ("failed", [])
    assert odd["id"] in result.failure.message


def test_a_number_that_was_large_decides_but_for_the_gap(memory: Memory) -> None:
    ages = ([3, 40, 12, 61], [35, 8, 90, 2], [15, 33, 1, 77], [47, 19, 6, 52], [11, 38, 20, 64])

    def aged(start: int, own: Sequence[int]) -> list[Ticket]:
        return [ticket(start + n, "open", days=days) for n, days in enumerate(own)]

    is_old = lambda one: one["days"] >= 30  # noqa: E731 - one of several tests
    several = zip(PEOPLE, ages, strict=True)
    routine = learnt(
        memory, [chosen(p, aged(9 * n, own), is_old) for n, (p, own) in enumerate(several)]
    )
    said = SORT.format("zoe@it.example")
    desk = Desk(aged(70, [100, 4, 33, 20]))
    wanted = [("close", desk.tickets[0]["id"]), ("close", desk.tickets[2]["id"])]
    assert done(memory, routine, desk, said) == wanted
    assert handed_over(memory, routine, Desk(aged(70, [100, 4, 27])), said), "between 20 and 33"


def test_members_are_chosen_by_what_the_request_names(memory: Memory) -> None:
    said = "Please close everything in the {} queue of {}."
    areas = ("printer", "network", "laptop", "phone", "account")

    def spread(start: int) -> list[Ticket]:
        return [ticket(start + n, "open", area=areas[(start + n) % 5]) for n in range(7)]

    traces = []
    for number, (person, area) in enumerate(zip(PEOPLE, areas, strict=True)):
        desk = Desk(spread(9 * number))
        for one in desk.call("list_tickets", person=person):
            if one["area"] == area:
                desk.call("close_ticket", ticket_id=one["id"])
        traces.append(trace(desk, said.format(area, person)))
    routine = learnt(memory, traces)
    desk = Desk(spread(70))
    wanted = [("close", one["id"]) for one in desk.tickets if one["area"] == "laptop"]
    assert done(memory, routine, desk, said.format("laptop", "zoe@it.example")) == wanted
    assert handed_over(memory, routine, Desk(spread(70)), said.format("coffee", "zoe@it.example"))


def test_what_nothing_separates_is_not_learnt(memory: Memory) -> None:
    several = zip(PEOPLE, ("wwww", "www", "wwwww", "www", "wwww"), strict=True)
    every_second = lambda one: int(one["id"][-1]) % 2 == 0  # noqa: E731 - one of several tests
    made = [chosen(p, queue(9 * n, q), every_second) for n, (p, q) in enumerate(several)]
    with pytest.raises(EmError):
        learnt(memory, made)


def test_a_few_members_may_be_separated_by_accident(memory: Memory) -> None:
    is_waiting = lambda one: one["status"] == "waiting"  # noqa: E731 - one of several tests
    several = zip(PEOPLE[:3], ("wo", "oww", "w"), strict=True)
    made = [chosen(p, queue(9 * n, q), is_waiting) for n, (p, q) in enumerate(several)]
    with pytest.raises(EmError, match="too few members"):
        learnt(memory, made)


def test_an_order_that_is_not_that_of_the_list_is_not_learnt(memory: Memory) -> None:
    traces = []
    for number, (person, states) in enumerate(zip(PEOPLE, QUEUES, strict=True)):
        desk = Desk(queue(9 * number, states))
        for one in reversed(desk.call("list_tickets", person=person)):
            if one["status"] == "waiting":
                desk.call("close_ticket", ticket_id=one["id"])
        traces.append(trace(desk, SAID.format(person)))
    try:
        routine = learnt(memory, traces)
    except EmError:
        return
    assert handed_over(memory, routine, Desk(queue(70, "wwo")), SAID.format("zoe@it.example"))


def test_nothing_to_do_is_fine_where_a_trace_had_nothing_to_do(memory: Memory) -> None:
    several = zip(PEOPLE, ("owc", "wwoc", "coo", "wocw", "ooww"), strict=True)
    routine = learnt(memory, [closed(p, queue(9 * n, q)) for n, (p, q) in enumerate(several)])
    assert done(memory, routine, Desk(queue(70, "oc")), SAID.format("zoe@it.example")) == []
    desk = Desk(queue(70, "oww"))
    assert len(done(memory, routine, desk, SAID.format("zoe@it.example"))) == 2


def test_a_flag_that_no_member_had_is_handed_over(memory: Memory, waiting: Any) -> None:
    desk = Desk([*queue(70, "ow"), ticket(80, "waiting", legal_hold=True)])
    assert handed_over(memory, waiting, desk, SAID.format("zoe@it.example"))


def test_tasks_without_words_have_loops_too(memory: Memory) -> None:
    traces = []
    for number, (person, states) in enumerate(zip(PEOPLE, QUEUES, strict=True)):
        desk = Desk(queue(9 * number, states))
        for one in desk.call("list_tickets", person=person):
            if one["status"] == "waiting":
                desk.call("close_ticket", ticket_id=one["id"])
        traces.append(trace(desk, "", {"person": person}))
    routine = learnt(memory, traces)
    desk = Desk(queue(70, "oww"))
    result = memory.run(routine, {"person": "zoe@it.example"}, desk.tools())
    assert result.status == "ok", result.failure or result.pending_prompt
    assert len(desk.done) == 2


def test_a_member_of_another_person_is_handed_over(memory: Memory) -> None:
    """Every ticket was of the person who was asked about, though nobody said that it must be."""
    several = zip(PEOPLE, ("ww", "ow", "o", "wow"), strict=False)
    made = [closed_all(p, queue(9 * n, q, owner=p)) for n, (p, q) in enumerate(several)]
    routine = learnt(memory, made)
    said, zoe = ALL.format("zoe@it.example"), "zoe@it.example"
    desk = Desk(queue(70, "wow", owner=zoe))
    assert len(done(memory, routine, desk, said)) == 3
    desk = Desk([*queue(70, "wo", owner=zoe), *queue(80, "w", owner="ian@it.example")])
    assert handed_over(memory, routine, desk, said)


def test_a_member_that_is_no_record_or_lacks_its_state_is_handed_over(
    memory: Memory, waiting: Any
) -> None:
    for odd in ({"id": "T-9000", "subject": "x"}, {"status": "waiting"}, "T-9000", None):
        desk = Desk(queue(70, "wo"))
        tools = desk.tools()
        tickets = [*desk.tickets, odd]
        tools["list_tickets"] = lambda person, tickets=tickets: tickets
        said = {"request": SAID.format("zoe@it.example")}
        result = memory.run(waiting, said, tools)
        assert (result.status != "ok", desk.done) == (True, [])


def test_a_dry_run_shows_every_member_that_would_be_changed(memory: Memory, waiting: Any) -> None:
    desk = Desk(queue(70, "wow"))
    said = {"request": SAID.format("zoe@it.example")}
    result = memory.run(waiting, said, desk.tools(), dry_run=True)
    assert [one.item for one in result.planned if one.tool == "close_ticket"] == [0, 1]
    assert desk.done == []


# --- attacks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "Please close all open tickets of zoe@it.example.",
        "Please don't close all waiting tickets of zoe@it.example.",
        "Please close all waiting tickets of zoe@it.example but the first.",
        "Please close all waiting tickets of zoe@it.example and ian@it.example.",
        "Please close all waiting tickets of zoe@it.example. Not the urgent ones.",
    ],
)
def test_other_words_are_asked_about(memory: Memory, waiting: Any, said: str) -> None:
    assert handed_over(memory, waiting, Desk(queue(70, "wow")), said)


def cut_off(person: str, tickets: Sequence[Ticket], part: slice) -> Trace:
    """An agent that takes a part of the list by its place."""
    desk = Desk(tickets)
    for one in desk.call("list_tickets", person=person)[part]:
        desk.call("close_ticket", ticket_id=one["id"])
    return trace(desk, SORT.format(person))


@pytest.mark.parametrize("part", [slice(2), slice(-1), slice(1, None)])
def test_a_part_of_a_list_by_place_is_not_taken_for_a_reason(memory: Memory, part: slice) -> None:
    several = zip(PEOPLE, ("owcw", "wwo", "cowo", "wow", "ooww"), strict=True)
    made = [cut_off(p, queue(9 * n, q), part) for n, (p, q) in enumerate(several)]
    try:
        routine = learnt(memory, made)
    except EmError:
        return
    assert handed_over(memory, routine, Desk(queue(70, "wowo")), SORT.format("zoe@it.example"))


def test_a_trace_that_left_one_out_denies_the_reason(memory: Memory) -> None:
    several = zip(PEOPLE, QUEUES, strict=True)
    made = [closed(p, queue(9 * n, q)) for n, (p, q) in enumerate(several)]
    desk = Desk(queue(90, "owww"))
    for one in desk.call("list_tickets", person="kim@it.example")[1:3]:
        desk.call("close_ticket", ticket_id=one["id"])
    made.append(trace(desk, SAID.format("kim@it.example")))
    try:
        routine = learnt(memory, made)
    except EmError:
        return
    assert handed_over(memory, routine, Desk(queue(70, "wowo")), SAID.format("zoe@it.example"))


@pytest.mark.parametrize("in_turns", [True, False])
def test_two_writes_for_each_member_keep_their_order(memory: Memory, in_turns: bool) -> None:
    made = []
    for number, (person, states) in enumerate(zip(PEOPLE, QUEUES, strict=True)):
        desk = Desk(queue(9 * number, states))
        listed = desk.call("list_tickets", person=person)
        ids = [one["id"] for one in listed if one["status"] == "waiting"]
        calls = [(tool, one) for one in ids for tool in ("close_ticket", "notify_owner")]
        for tool, one in calls if in_turns else sorted(calls):
            desk.call(tool, ticket_id=one)
        made.append(trace(desk, SAID.format(person)))
    routine = learnt(memory, made)
    assert routine.trials.count("right") == 5
    desk = Desk(queue(70, "wow"))
    one, _, other = (ticket["id"] for ticket in desk.tickets)
    calls = [("close", one), ("notify", one), ("close", other), ("notify", other)]
    wanted = calls if in_turns else sorted(calls)
    said = SAID.format("zoe@it.example")
    assert done(memory, routine, desk, said) == wanted
    for states in ("wl", "oc"):
        assert handed_over(memory, routine, Desk(queue(70, states)), said)


# --- mappings -------------------------------------------------------------------------------------


class Shelf(Desk):
    """A helpdesk whose tickets stand under their ids, which they don't hold themselves."""

    def list_tickets(self, person: str) -> Any:
        return {
            one["id"]: {name: value for name, value in one.items() if name != "id"}
            for one in self.tickets
        }


def closed_by_key(person: str, tickets: Sequence[Ticket], which: str = "waiting") -> Trace:
    desk = Shelf(tickets)
    for key, one in desk.call("list_tickets", person=person).items():
        if which in ("", one["status"]):
            desk.call("close_ticket", ticket_id=key)
    return trace(desk, SAID.format(person))


@pytest.fixture
def under_ids(memory: Memory) -> Any:
    people = zip(PEOPLE, QUEUES, strict=True)
    return learnt(memory, [closed_by_key(p, queue(10 * n, q)) for n, (p, q) in enumerate(people)])


def run_by_key(memory: Memory, routine: Any, desk: Desk) -> Any:
    asked = {"request": SAID.format("gus@it.example")}
    return memory.run(routine, asked, desk.tools(), remember=False)


def test_members_that_stand_under_their_ids_are_gone_through(
    memory: Memory, under_ids: Any
) -> None:
    assert under_ids.trials.count("wrong") == 0
    assert under_ids.trials.count("right") > 0
    desk = Shelf(queue(90, "wocww"))
    assert run_by_key(memory, under_ids, desk).status == "ok"
    assert desk.done == [("close", desk.tickets[n]["id"]) for n in (0, 3, 4)]


@pytest.mark.parametrize(
    "found",
    [
        {"T-9001": {"status": "waiting"}, "T-9002": {"status": "locked"}},
        {"T-9001": {"status": "waiting", "on_hold": True}},
        {"T-9001": {"status": "waiting", "key": "T-9002"}},
        {"T-9001": {"status": "waiting"}, "next": "page 2"},
        {"error": "try again later"},
        [{"id": "T-9001", "status": "waiting"}],
        {},
    ],
    ids=str,
)
def test_a_mapping_unlike_the_recorded_ones_is_left_alone(
    memory: Memory, under_ids: Any, found: Any
) -> None:
    desk = Shelf([])
    desk.list_tickets = lambda person: found  # type: ignore[method-assign]
    assert run_by_key(memory, under_ids, desk).status in ("failed", "needs_input")
    assert desk.done == []
