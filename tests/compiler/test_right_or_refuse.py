"""A routine does what it was asked for, or it asks: tried as a new user would."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory, recorded_tool
from em.compiler.compile_trace import compile_trace_file
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.package import find_routine, texts_of, write_files
from em.runner.run import RunResult
from em.traces.trace import Message, Mission, ToolCall, Trace

REFUNDED: list[str] = []


@recorded_tool
def refund(order: str) -> str:
    """Refund an order."""
    REFUNDED.append(order)
    return "refunded"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    REFUNDED.clear()
    with Memory(tmp_path / "em.db") as memory:
        yield memory


# --- a recorded agent -----------------------------------------------------------------------------


@pytest.fixture
def shop(memory: Memory) -> Memory:
    @memory.record(app="shop")
    def agent(request: str) -> str:
        return refund(order=request.rpartition(" ")[2])

    agent("refund order #W1001")
    agent("refund order #W2002")
    memory.compile([trace.id for trace in memory.traces()], name="refund")
    REFUNDED.clear()
    return memory


def test_a_request_in_other_words_is_handed_over_and_nothing_is_refunded(shop: Memory) -> None:
    asked = shop.run("refund", {"request": "Would you refund order #W9999"}, {"refund": refund})
    assert (asked.status, REFUNDED) == ("needs_input", [])


@pytest.mark.parametrize("given", [{"request": "refund order #W9999"}, {"order": "#W9999"}])
def test_the_order_is_taken_from_the_request_or_by_its_name(shop: Memory, given: Any) -> None:
    done = shop.run("refund", given, {"refund": refund})
    assert (done.status, REFUNDED) == ("ok", ["#W9999"])


def test_a_request_and_an_input_that_differ_are_refused(shop: Memory) -> None:
    given = {"request": "refund order #W9999", "order": "#W1001"}
    done = shop.run("refund", given, {"refund": refund})
    assert (done.status, REFUNDED) == ("needs_input", [])


def test_an_input_that_is_not_declared_is_refused_with_the_closest_name(shop: Memory) -> None:
    done = shop.run("refund", {"ordre": "#W9999"}, {"refund": refund})
    assert (done.status, REFUNDED) == ("needs_input", [])
    assert done.reason is not None
    assert "'order'" in done.reason.message


def test_a_dry_run_shows_what_would_be_refunded(shop: Memory) -> None:
    given = {"request": "refund order #W9999"}
    done = shop.prepare("refund", given, {"refund": refund})
    assert (done.status, REFUNDED) == ("ok", [])
    assert done.planned[0].arguments[0].value == "#W9999"


# --- several traces -------------------------------------------------------------------------------


def told(request: str, *calls: ToolCall, **more: Any) -> Trace:
    said = [Message(role="user", text=request)] if request else []
    return Trace(
        mission=more.pop("mission", Mission("")),
        events=[*said, *calls],
        outcome="success",
        **more,
    )


def close_up(request: str) -> Trace:
    return told(request, ToolCall(tool="lock_doors", args={}, result="ok"))


def test_what_was_done_for_different_requests_is_not_done_for_a_third(memory: Memory) -> None:
    requests = ("tidy up the shop", "close the shop for good")
    ids = [memory.add_trace(close_up(request)) for request in requests]
    try:
        made = memory.compile(ids)
    except RoutineError:
        return
    done: list[str] = []
    tools = {"lock_doors": lambda: done.append("locked") or "ok"}
    for request in ("set the shop on fire", "close the shop", "tidy up"):
        assert memory.run(made, {"request": request}, tools).status == "needs_input"
    assert done == []


def test_a_call_without_arguments_is_not_made_for_another_request(memory: Memory) -> None:
    made = memory.compile(memory.add_trace(close_up("close the shop for today")), name="close")
    done: list[str] = []
    tools = {"lock_doors": lambda: done.append("locked") or "ok"}
    other = memory.run(made, {"request": "set the shop on fire"}, tools)
    assert (other.status, done) == ("needs_input", [])
    assert memory.run(made, {"request": "Close the shop for today"}, tools).status == "ok"


def shell(request: str, command: str) -> Trace:
    return told(request, ToolCall(tool="bash", args={"command": command}, result=""))


@pytest.mark.parametrize(
    "requests",
    [
        ("delete the old report", "delete the old report"),
        ("delete january.txt", "delete february.txt"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("effect", ["write", "read"])
def test_a_file_name_in_which_two_shell_traces_differ_is_not_a_constant(
    memory: Memory, requests: tuple[str, str], effect: Any
) -> None:
    files = ("reports/january.txt", "reports/february.txt")
    traces = [shell(request, f"rm {file}") for request, file in zip(requests, files, strict=True)]
    ids = [memory.add_trace(trace) for trace in traces]
    made = memory.compile(ids, name="clean", declared={"bash": effect})
    done: list[str] = []
    tools = {"bash": lambda command: done.append(command) or ""}
    for given in ({}, {"request": "delete the reports of march"}):
        assert memory.run(made, given, tools).status != "ok", given
    assert done == []
    result = memory.run(made, {"file": "reports/march.txt"}, tools)
    assert (result.status, done) == ("ok", ["rm reports/march.txt"])


# --- outputs --------------------------------------------------------------------------------------


def test_an_output_that_repeats_a_short_result_is_that_result(memory: Memory) -> None:
    output = "ok"
    call = ToolCall(tool="who", args={"name": "ana.silva"}, result="ok")
    trace = told("", call, mission=Mission("who", {"name": "ana.silva"}), final_output=output)
    made = memory.compile(memory.add_trace(trace), declared={"who": "read"})
    done = memory.run(made, {"name": "bo.berg"}, {"who": lambda name: f"{name} is unknown"})
    assert json.dumps(output).replace("ok", "bo.berg is unknown") == json.dumps(done.output)


def test_without_arguments_too(memory: Memory) -> None:
    trace = told("", ToolCall(tool="who", args={}, result="ok"), final_output="ok")
    made = memory.compile(memory.add_trace(trace), name="who", declared={"who": "read"})
    assert memory.run(made, {}, {"who": lambda: "nobody"}).output == "nobody"


def distance(start: str, end: str) -> Trace:
    """The distance of two towns, by the codes that reads give."""
    codes = {town: f"{town[0]}-{len(town)}{ord(town[1])}" for town in (start, end)}
    looks = [
        ToolCall(tool="get_code", args={"town": town}, result={"code": codes[town]}, effect="read")
        for town in (start, end)
    ]
    args = {"start": codes[start], "end": codes[end]}
    miles = {"miles": ord(start[0]) + ord(end[1])}
    way = ToolCall(tool="get_distance", args=args, result=miles, effect="read")
    given = Mission("distance", {"start": start, "end": end})
    return told("", *looks, way, mission=given, final_output=miles["miles"])


def test_a_read_is_made_with_what_reads_before_it_gave(memory: Memory) -> None:
    towns = [("Kilby", "Ostrava"), ("Tregor", "Kilby"), ("Ostrava", "Tregor"), ("Gdansk", "Tregor")]
    made = memory.compile([memory.add_trace(distance(*one)) for one in towns], name="distance")
    asked: list[Any] = []
    tools = {
        "get_code": lambda town: {"code": f"{town[0]}-{len(town)}{ord(town[1])}"},
        "get_distance": lambda start, end: asked.append((start, end)) or {"miles": 71},
    }
    done = memory.run(made, {"start": "Rixdorf", "end": "Gdansk"}, tools)
    assert (done.status, done.output, asked) == ("ok", 71, [("R-7105", "G-6100")])
    assert memory.run(made, {"start": "Rixdorf"}, tools).status == "needs_input"
    assert len(asked) == 1


def test_an_argument_that_one_recording_had_keeps_nobody_from_learning(memory: Memory) -> None:
    given: list[dict[str, Any]] = [{"booking": f"B-70{n}"} for n in range(3)]
    given.append({"booking": "B-704", "policy": 7})
    ids = []
    for one in given:
        call = ToolCall(tool="find_invoice", args=one, result={"sum": one["booking"]})
        ids.append(memory.add_trace(told("", call, mission=Mission("invoice", one))))
    made = memory.compile(ids, name="invoice")
    asked: list[Any] = []
    tools = {"find_invoice": lambda **args: asked.append(args) or {"sum": "B-799"}}
    assert memory.run(made, {"booking": "B-799"}, tools).status == "ok"
    assert asked == [{"booking": "B-799"}]


# --- the order of keys and lists ------------------------------------------------------------------

ORDER = {
    "id": "#W1207",
    "status": "delivered",
    "owner": "ana_silva_4471",
    "items": {
        "tea-pot-771": {"id": "7712093", "name": "tea pot", "price": 31.5},
        "a-cup-102": {"id": "1029381", "name": "cup", "price": 4.25},
        "big-bowl-554": {"id": "5540012", "name": "bowl", "price": 12.75},
    },
    "paid_with": [
        {"source": "card_9981723", "kind": "card"},
        {"source": "gift_1100234", "kind": "gift card"},
    ],
}
RETURN = Trace(
    mission=Mission(
        "return an item",
        {"order": "#W1207", "item": "bowl", "kind": "gift card"},
    ),
    events=[
        ToolCall(tool="get_order", args={"order": "#W1207"}, result=ORDER),
        ToolCall(
            tool="return_item",
            args={"order": "#W1207", "item_id": "5540012", "to": "gift_1100234"},
            result="returned",
        ),
    ],
    outcome="success",
    final_output="returned",
)


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, chance)) for key, item in value.items()]
        return dict(chance.sample(items, len(items)))
    if isinstance(value, list):
        return [shuffled(item, chance) for item in chance.sample(value, len(value))]
    return value


@pytest.mark.parametrize("kept_in", ["file", "log"])
@pytest.mark.parametrize("is_journalled", [True, False])
def test_the_same_task_in_any_order_of_keys_and_lists(
    memory: Memory, tmp_path: Path, kept_in: str, is_journalled: bool
) -> None:
    folder: Any = tmp_path / "routine"
    if kept_in == "file":
        (tmp_path / "trace.json").write_bytes(msgspec.json.encode(RETURN))
        compile_trace_file(tmp_path / "trace.json", folder)
    else:
        made = memory.compile(memory.add_trace(RETURN))
        folder.mkdir()
        unpack(memory, made.ref, folder)
    for seed in range(8):
        returned: list[Any] = []
        result = return_bowl(memory if is_journalled else None, folder, seed, returned)
        assert (result.status, returned) == ("ok", [("#W1207", "5540012", "gift_1100234")])


def unpack(memory: Memory, ref: str, folder: Path) -> None:
    write_files(texts_of(find_routine(memory.store, ref)), folder)


def return_bowl(memory: Memory | None, folder: Path, seed: int, returned: list[Any]) -> RunResult:
    def get_order(order: str) -> Any:
        return shuffled({**ORDER, "id": order}, random.Random(seed))

    def return_item(order: str, item_id: str, to: str) -> str:
        returned.append((order, item_id, to))
        return "returned"

    tools = {"get_order": get_order, "return_item": return_item}
    assert RETURN.mission.input_summary
    given = dict(RETURN.mission.input_summary)
    if memory is None:
        return run_routine(folder, given, tools)
    return memory.run(folder, given, tools)


def test_an_effect_that_only_some_traces_had_is_asked_for(tmp_path: Path) -> None:
    def prepared(room: str, *, cooled: bool) -> Trace:
        acts = [*(["cool"] if cooled else []), "unlock"]
        return Trace(
            mission=Mission(goal="prepare", input_summary={"room": room}),
            events=[ToolCall(tool=act, args={"room": room}, effect="write") for act in acts],
            outcome="success",
        )

    with Memory(tmp_path / "em.db") as memory:
        warm = memory.add_trace(prepared("RM-1001", cooled=True))
        mild = memory.add_trace(prepared("RM-2002", cooled=False))
        made = memory.compile([warm, mild])
        assert made.input_schema is not None
        assert made.input_schema["required"] == ["room", "cool"], "nothing says when to cool"
