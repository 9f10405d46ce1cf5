"""A fix that made a run succeed becomes a change of the routine, proved by the run itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.compiler.compile_trace import compile_trace
from em.compiler.package_files import write_package
from em.errors import NotFound, RoutineError
from em.runner.package import Package
from em.traces.trace import Mission, ToolCall, Trace
from em.values.call import Fix

REFUND = Trace(
    mission=Mission("refund", {"order": "#W1001", "limit": 100}),
    events=[
        ToolCall(
            tool="get_order",
            args={"order": "#W1001"},
            result={"id": "#W1001", "status": "delivered", "owner": "U-1001"},
        ),
        ToolCall(tool="refund", args={"order": "#W1001", "amount": 100}, result="100 for #W1001"),
    ],
)
GIVEN = {"order": "#W2002", "limit": 70}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "refund"
    write_package(compile_trace(REFUND, name="refund").draft, folder)
    return folder


def tools(refund: Callable[..., Any], status: str = "delivered") -> dict[str, Any]:
    def get_order(order: str) -> dict[str, str]:
        return {"id": order, "status": status, "owner": f"U-{order[2:]}"}

    return {"get_order": get_order, "refund": refund}


@pytest.fixture
def unchecked(folder: Path) -> Path:
    """The same routine, in which a fix may change what is written: it does not hand over."""
    text = (folder / "routine.yaml").read_text()
    (folder / "routine.yaml").write_text(text.replace("checks: hand_over\n", ""))
    return folder


def by_id(order_id: str, amount: int) -> str:
    return f"{amount} for {order_id}"


def renamed(context: Any) -> Fix:
    args = context["args"]
    return Fix(strategy="modify_args", args={"order_id": args["order"], "amount": args["amount"]})


def steps_of(folder: Path) -> dict[str, Any]:
    return {step.id: step for step in Package(folder).routine.steps}


def test_healing_keeps_checks_marks_and_comments(memory: Memory, folder: Path) -> None:
    before = steps_of(folder)
    text = (folder / "routine.yaml").read_text()
    (folder / "routine.yaml").write_text(
        text.replace("- {id: refund", "# Ana checks\n- {id: refund")
    )
    run = memory.run(folder, GIVEN, tools(by_id), renamed)
    assert (run.status, run.output) == ("ok", "70 for #W2002"), run.failure
    assert memory.heal(run.run_id).changed
    new = (folder / "routine.yaml").read_text()
    assert "# outcome unknown" in new
    assert "# Ana checks" in new
    after = steps_of(folder)
    assert [*after] == [*before]
    assert [step.expect for step in after.values()] == [step.expect for step in before.values()]
    other = {"order": "#W3003", "limit": 50}
    assert memory.run(folder, other, tools(by_id)).output == "50 for #W3003"
    stopped = memory.run(folder, other, tools(by_id, "cancelled"))
    assert stopped.status != "ok"


def test_the_patch_shows_the_change_and_nothing_else(memory: Memory, folder: Path) -> None:
    run = memory.run(folder, GIVEN, tools(by_id), renamed)
    lines = memory.heal(run.run_id, dry_run=True).patch.splitlines()
    changed = [line for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]
    assert [line[0] for line in changed] == ["-", "+"]
    assert "order_id:" in changed[1]


def test_a_healed_package_has_the_run_as_its_recording(memory: Memory, folder: Path) -> None:
    run = memory.run(folder, GIVEN, tools(by_id), renamed)
    memory.heal(run.run_id)
    kept = msgspec.json.decode((folder / "recording.json").read_bytes())
    assert kept["outcome"] == "unknown"
    (recording,) = kept["recordings"]
    assert (recording["inputs"], recording["output"]) == (GIVEN, "70 for #W2002")
    assert [(call["tool"], call["args"]) for call in recording["calls"]] == [
        ("get_order", {"order": "#W2002"}),
        ("refund", {"order_id": "#W2002", "amount": 70}),
    ]


def adding(name: str, value: Callable[[Any], Any]) -> Callable[[Any], Fix]:
    def fix(context: Any) -> Fix:
        args = context["args"]
        return Fix(strategy="modify_args", args={**args, name: value(args)})

    return fix


@pytest.mark.parametrize(("name", "value"), [("owner", "U-2002"), ("amount", 71)])
def test_a_fix_can_not_change_what_checks_were_made_for(
    memory: Memory, folder: Path, name: str, value: Any
) -> None:
    def refund(**args: Any) -> str:
        if args.get(name) != value:
            raise ValueError(f"another {name}, please")
        return "paid"

    run = memory.run(folder, GIVEN, tools(refund), adding(name, lambda _args: value))
    assert run.status == "failed"
    with pytest.raises(RoutineError):
        memory.heal(run.run_id)


def test_a_new_argument_is_taken_from_where_its_value_stands(
    memory: Memory, unchecked: Path
) -> None:
    def refund(order: str, amount: int, owner: str) -> str:
        return f"{amount} for {order} to {owner}"

    fix = adding("owner", lambda args: f"U-{args['order'][2:]}")
    run = memory.run(unchecked, GIVEN, tools(refund), fix)
    memory.heal(run.run_id)
    healed = memory.run(unchecked, {"order": "#W3003", "limit": 50}, tools(refund))
    assert healed.output == "50 for #W3003 to U-3003"


def test_several_places_that_have_the_value_are_refused(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "routine.yaml").write_text(
        "name: two\nsteps:\n"
        '  - {id: find, type: tool.call, tool: find, args: {name: "{{ name }}"}, save_as: user,'
        " effect: read}\n"
        "  - {id: close, type: tool.call, tool: close, args: {}, save_as: done}\n"
        '  - {id: end, type: return, value: "{{ done }}"}\n'
    )
    user = {"account": "U-7717", "main": "U-7717"}
    tools = {"find": lambda name: user, "close": lambda account: "closed"}
    fix = Fix(strategy="modify_args", args={"account": "U-7717"})
    run = memory.run(folder, {"name": "ana"}, tools, lambda _: fix)
    healing = memory.heal(run.run_id)
    assert ([*healing.changed], len(healing.refused)) == ([], 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("owner", "somebody else"), ("amount", 4711), ("order", "#W9009")],
)
def test_what_was_right_for_one_run_only_is_refused(
    memory: Memory, unchecked: Path, name: str, value: Any
) -> None:
    def refund(**args: Any) -> str:
        if args.get(name) != value:
            raise ValueError(f"another {name}, please")
        return "paid"

    text = (unchecked / "routine.yaml").read_text()
    run = memory.run(unchecked, GIVEN, tools(refund), adding(name, lambda _args: value))
    assert run.status == "ok"
    healing = memory.heal(run.run_id)
    assert [*healing.changed] == []
    assert f"args.{name}" in healing.refused[0]
    assert (unchecked / "routine.yaml").read_text() == text


def test_a_value_of_the_run_does_not_take_the_place_of_a_constant(
    memory: Memory, unchecked: Path
) -> None:
    text = (unchecked / "routine.yaml").read_text()
    (unchecked / "routine.yaml").write_text(text.replace("amount:", "note: plain, amount:"))

    def refund(order: str, amount: int, note: str) -> str:
        if note == "plain":
            raise ValueError("say whose it is")
        return "paid"

    fix = adding("note", lambda args: f"U-{args['order'][2:]}")
    run = memory.run(unchecked, GIVEN, tools(refund), fix)
    assert run.status == "ok", run.failure
    assert [*memory.heal(run.run_id).changed] == []


def test_a_run_that_a_check_stopped_is_not_healed(memory: Memory, folder: Path) -> None:
    run = memory.run(folder, GIVEN, tools(by_id, "cancelled"), renamed)
    assert run.status != "ok"
    with pytest.raises(RoutineError):
        memory.heal(run.run_id)


def test_a_run_that_asks_for_inputs_is_not_healed(memory: Memory, folder: Path) -> None:
    asked = memory.run(folder, {"order": "#W2002"}, tools(by_id), renamed)
    assert asked.status == "needs_input"
    with pytest.raises(RoutineError):
        memory.heal(asked.run_id)


def test_a_step_in_a_block_is_healed(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "each"
    folder.mkdir()
    (folder / "routine.yaml").write_text(
        "name: each\nsteps:\n"
        "  - id: all\n    type: for_each\n    over: {order: orders}\n    save_as: all\n"
        "    steps:\n"
        '    - {id: pay, type: tool.call, tool: refund, args: {order: "{{ order.id }}",'
        " amount: 10}, save_as: paid}\n"
        '  - {id: end, type: return, value: "{{ all }}"}\n'
    )
    given = {"orders": [{"id": "#W1001"}, {"id": "#W1002"}]}
    run = memory.run(folder, given, {"refund": by_id}, renamed)
    assert run.status == "ok", run.failure
    assert memory.heal(run.run_id).changed
    again = memory.run(folder, {"orders": [{"id": "#W5005"}]}, {"refund": by_id})
    assert again.output == [{"order": {"id": "#W5005"}, "paid": "10 for #W5005"}]


def test_a_healed_routine_is_forgotten_with_the_run_it_was_healed_by(
    memory: Memory, folder: Path
) -> None:
    run = memory.run(folder, GIVEN, tools(by_id), renamed)
    healing = memory.heal(run.run_id)
    memory.forget([event.id for event in memory.log.read(stream=f"run/{run.run_id}")])
    with pytest.raises(NotFound, match="erased"):
        memory.run(healing.new, GIVEN, tools(by_id))
