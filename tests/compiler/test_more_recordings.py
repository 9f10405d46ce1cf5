"""More recordings never make it worse, over all recorded data of this repository.

What so many recordings do right, one more does right too. None of this data contradicts itself, so
a compile that is refused counts as doing nothing right. It holds for
what a person compiles, who is shown constants and acts on them, and for what em compiles by itself.
"""

import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from bench.hostile import Desk, HostileTask, hostile_tasks
from bench.worlds.catalogue import KINDS, RECORDED, TESTED, as_trace
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from em import Memory
from em.compiler.compile_trace import compile_several
from em.compiler.draft import write_package
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.package import Package
from em.traces.trace import KeptTrace, Message, Trace, as_kept

UNSEEN = [*TESTED][:5]
SOME = 5
"""Recordings that are added one by one. Two are the fewest from which nothing may be wrong."""
MANY = 9
HELP_DESK = Path(__file__).parents[2] / "examples" / "help_desk" / "desk.py"
Tools = dict[str, Callable[..., Any]]
Writes = list[tuple[str, Any]]


class Attempt(NamedTuple):
    """A fresh world for one task: its tools, and what was written so far."""

    given: dict[str, Any]
    tools: Tools
    written: Callable[[], Writes]
    wanted: Writes


Attempts = Callable[[], Iterator[Attempt]]


def right(traces: Sequence[KeptTrace], attempts: Attempts) -> set[int]:
    """Return the tasks that are done right by what these traces teach; none is done wrong."""
    try:
        made = compile_several(traces, name="task")
    except RoutineError:
        return set()
    done = set()
    with tempfile.TemporaryDirectory() as folder:
        write_package(made.draft, Path(folder) / "task")
        package = Package(Path(folder) / "task")
        for number, one in enumerate(attempts()):
            ended = run_routine(package, one.given, one.tools)
            written = one.written()
            assert written in ([], one.wanted), (len(traces), number, ended)
            if ended.status == "ok" and written == one.wanted:
                done.add(number)
    return done


def never_worse(
    traces: Sequence[KeptTrace],
    attempts: Attempts,
    sizes: Sequence[int],
) -> set[int]:
    """Assert that each size does what the size before did; return what the last one does."""
    before: set[int] = set()
    for size in sizes:
        now = right(traces[:size], attempts)
        assert before <= now, f"with {size} recordings no longer: {sorted(before - now)}"
        before = now
    return before


# --- the three worlds -----------------------------------------------------------------------------


@cache
def trace_of(kind: str, number: int) -> KeptTrace:
    return as_kept(msgspec.convert(as_trace(kind, number), Trace), f"{kind}-{number}")


def unseen(kind: str) -> Attempts:
    def attempts() -> Iterator[Attempt]:
        for number in UNSEEN:
            facts, gold, world = KINDS[kind].facts(number), KINDS[kind].world(), KINDS[kind].world()
            KINDS[kind].solve(gold, facts, 0)
            yield Attempt(facts, _tools(world), lambda world=world: _writes(world), _writes(gold))

    return attempts


def _tools(world: Any) -> Tools:
    def tool(name: str) -> Callable[..., Any]:
        return lambda **args: world.call(name, **args)

    return {name: tool(name) for name in world.READS | world.WRITES}


def _writes(world: Any) -> Writes:
    return [(call.tool, call.args) for call in world.writes()]


LOSING = {"order_pilot"}
"""Whether to order tugs depends on two numbers: between three and eight recordings a check on them
hands over a few tasks that fewer recordings did. Nothing is done wrongly."""


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - LOSING))
def test_a_kind_of_the_worlds_never_gets_worse(kind: str) -> None:
    traces = [trace_of(kind, number) for number in range(SOME)]
    never_worse(traces, unseen(kind), range(2, SOME + 1))


QUICK = sorted(KINDS.keys() - {"trip_signup"} - LOSING)
"""Kinds of which many recordings are learnt in a second or two."""


@pytest.mark.parametrize("kind", QUICK)
def test_many_recordings_do_what_some_did(kind: str) -> None:
    traces = [trace_of(kind, number) for number in range(MANY)]
    assert never_worse(traces, unseen(kind), [SOME, MANY])


@settings(max_examples=8, derandomize=True, phases=[Phase.generate])
@given(
    kind=st.sampled_from(QUICK),
    numbers=st.lists(st.sampled_from([*RECORDED]), min_size=4, max_size=4, unique=True),
)
def test_whichever_come_first(kind: str, numbers: list[int]) -> None:
    never_worse([trace_of(kind, number) for number in numbers], unseen(kind), [2, 3, 4])


FOUND = {
    "berth_vessel": [[7, 21, 3, 6, 0], [34, 27, 20, 29, 36, 23], [9, 35, 38, 8, 1]],
    "change_elective": [[6, 23, 37]],
    "extend_loan": [[23, 5, 14, 6, 37, 30]],
    "move_objects": [[37, 32, 20]],
    "record_absence": [[18, 24], [25, 39, 38]],
    "release_containers": [[35, 4, 36, 3], [22, 14, 34], [9, 37, 29]],
}
"""Recordings of which the last ones once made it worse, or wrong."""


@pytest.mark.parametrize(
    ("kind", "numbers"), [(kind, one) for kind, found in FOUND.items() for one in found], ids=str
)
def test_the_last_recordings_do_not_spoil_it(kind: str, numbers: list[int]) -> None:
    size = len(numbers)
    sizes = [one for one in (size - 1, size) if one > 1]
    traces = [trace_of(kind, number) for number in numbers]
    never_worse(traces, unseen(kind), sizes)


# --- the hostile kinds ----------------------------------------------------------------------------


def _by_writes(task: HostileTask) -> dict[str, list[KeptTrace]]:
    """Recordings with the inputs that their twins name, by the tools that they wrote with."""
    inputs = {twin.request: twin.inputs | twin.given for twin in task.requests_to_do("recorded")}
    found: dict[str, list[KeptTrace]] = {}
    for number, recording in enumerate(task.recordings):
        trace = msgspec.convert(recording, Trace)
        (asked,) = (one.text for one in trace.events if isinstance(one, Message))
        mission = msgspec.structs.replace(trace.mission, input_summary=inputs[asked])
        typed = msgspec.structs.replace(trace, mission=mission)
        tools = " ".join(
            call.tool for call in trace.calls if getattr(call, "effect", "") == "write"
        )
        found.setdefault(tools, []).append(as_kept(typed, f"{task.name}-{number}"))
    return found


def _twins(task: HostileTask, tools: str) -> Attempts:
    groups = [group for group in ("recorded", "new values") if group in task.twins]

    def attempts() -> Iterator[Attempt]:
        for twin in task.requests_to_do(*groups):
            if " ".join(tool for tool, _ in twin.writes) == tools:
                desk = Desk(task)
                inputs = twin.inputs | twin.given
                yield Attempt(inputs, desk.tools(), lambda desk=desk: desk.done, twin.writes)

    return attempts


HOSTILE = [
    pytest.param(task, tools, traces, id=f"{task.name}: {tools}")
    for task in hostile_tasks()
    for tools, traces in _by_writes(task).items()
    if len(traces) > 1
]


@pytest.mark.parametrize(("task", "tools", "traces"), HOSTILE)
def test_a_hostile_kind_never_gets_worse(
    task: HostileTask, tools: str, traces: list[KeptTrace]
) -> None:
    sizes = range(2, min(len(traces), SOME) + 1)
    never_worse(traces, _twins(task, tools), sizes)


# --- the help desk --------------------------------------------------------------------------------


def _desk() -> Any:
    """Return the help desk with fresh books, whose model takes no time."""
    spec = importlib.util.spec_from_file_location("desk", HELP_DESK)
    assert spec is not None
    assert spec.loader is not None
    desk = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(desk)
    desk.SECONDS = 0.0
    return desk


ASKED = {
    "cancel": "I am {}@mail.example. Please cancel order W-{}.",
    "ship": "I am {}@mail.example. Please change the shipping of order W-{} to {}.",
}
WAYS = ("express", "courier")


def _request(what: str, number: int, name: str) -> str:
    return ASKED[what].format(name.lower(), 7300 + 11 * (number + 1), WAYS[number % 2])


def _customers(what: str) -> Attempts:
    def attempts() -> Iterator[Attempt]:
        for number in (6, 7):
            desk = _desk()
            before = _rows(desk)
            given = {"request": _request(what, number, desk.NAMES[number])}
            tools = dict(desk.TOOLS)
            wanted = ("status", "cancelled") if what == "cancel" else ("shipping", WAYS[number % 2])
            row = {**before[number], wanted[0]: wanted[1]}
            yield Attempt(
                given,
                tools,
                lambda desk=desk, before=before: [
                    ("row", now) for was, now in zip(before, _rows(desk), strict=True) if was != now
                ],
                [("row", row)],
            )

    return attempts


def _rows(desk: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in desk.BOOKS.execute("SELECT * FROM orders ORDER BY id")]


@pytest.mark.parametrize("what", ASKED)
def test_the_help_desk_never_gets_worse(what: str) -> None:
    desk = _desk()
    with Memory(":memory:") as memory:
        agent = desk.agent_of(memory)
        for number, name in enumerate(desk.NAMES[:6]):
            agent(_request(what, number, name))
        traces = [*memory.traces()][::-1]
        assert never_worse(traces, _customers(what), range(2, 7))


def test_a_shipped_order_is_left_alone_by_any_number() -> None:
    desk = _desk()
    with Memory(":memory:") as memory:
        agent = desk.agent_of(memory)
        for number, name in enumerate(desk.NAMES[:4]):
            agent(_request("cancel", number, name))
        ids = [kept.id for kept in memory.traces()]
        for size in (1, 2, 3, 4):
            routine = memory.compile(ids[:size], name=f"cancel_{size}")
            before = json.dumps(_rows(desk))
            memory.run(routine, {"request": _request("cancel", 8, "Iva")}, dict(desk.TOOLS))
            assert json.dumps(_rows(desk)) == before
