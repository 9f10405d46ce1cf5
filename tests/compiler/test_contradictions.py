"""An output that its own calls contradict is told; what an agent worked out itself is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from em.cli.root import root
from em.compiler.compile_trace import compile_trace
from em.traces.trace import Message, Mission, ToolCall, Trace

ORDER = {"order_id": "#W1001", "total": 940.25, "items": 3, "status": "pending", "user": "ana_77"}
ITEMS = [
    {"item_id": "8384507844", "name": "Desk Lamp", "price": 120.5},
    {"item_id": "1151293680", "name": "Keyboard", "price": 250.75},
]


def told(output: Any, *more: Any) -> list[tuple[str, Any, str, Any]]:
    trace = Trace(
        mission=Mission("report", {"limit": 5000}),
        events=[
            Message(role="user", text="order 77012 please"),
            ToolCall(tool="get_order", args={"id": "#W1001"}, result=ORDER),
            ToolCall(tool="get_items", args={"id": "#W1001"}, result=ITEMS),
            ToolCall(tool="get_old", args={"old": "#W0999"}, error="Error: total 77"),
            *more,
        ],
        final_output=output,
    )
    return [
        (found.place, found.says, found.tool, found.returned)
        for found in compile_trace(trace).contradictions
    ]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"order_id": "#W1002"}, [("output.order_id", "#W1002", "get_order", "#W1001")]),
        ({"total": 950.25}, [("output.total", 950.25, "get_order", 940.25)]),
        ({"items": 4}, [("output.items", 4, "get_order", 3)]),
        ({"a": [{"total": 1}]}, [("output.a[0].total", 1, "get_order", 940.25)]),
        (
            [{"item_id": "8384507844", "name": "Desk Lamp", "price": 130.5}],
            [("output[0].price", 130.5, "get_items", 120.5)],
        ),
    ],
)
def test_an_id_or_a_number_that_no_call_gave_is_told(output: Any, expected: Any) -> None:
    assert told(output) == expected


@pytest.mark.parametrize(
    "output",
    [
        ORDER,
        ITEMS,
        {"order_id": "#w1001", "total": "940.25"},
        {"total": 940},
        {"total": 940.3},
        {"total": 94025},
        {"price": 371.25},
        {"price": 2},
        {"price": 999},
        {"status": "cancelled"},
        {"order_id": "the order #W1002"},
        {"order_id": "1002"},
        {"order_id": "#W0999"},
        {"total": 5000},
        {"total": 77012},
        {"count": 17},
        {"items": True, "total": None},
        "order #W1002 was cancelled",
        [],
    ],
)
def test_what_may_well_be_true_is_not(output: Any) -> None:
    assert told(output) == []


def test_a_later_call_that_gave_the_value_settles_it() -> None:
    paid = ToolCall(tool="pay", args={"order": "#W1001"}, result={"total": 950.25})
    assert told({"total": 950.25}, paid) == []


def test_it_is_shown_side_by_side(tmp_path: Path) -> None:
    events = [{"type": "tool_call", "tool": "save", "args": {}, "result": {"saved": 2}}]
    (tmp_path / "t.json").write_text(json.dumps({"events": events, "final_output": {"saved": 3}}))

    def compiled(*more: str) -> Any:
        return CliRunner().invoke(root, ["compile", str(tmp_path / "t.json"), "-o", "out", *more])

    said = "output.saved: the output says 3, call 1 (save) returned 2"
    assert said in compiled().output
    assert f"# {said}" in Path("out/routine.yaml").read_text()
    assert "the output says" in compiled("--explain").output
    assert json.loads(compiled("--json").output)["contradictions"] == [
        {"place": "output.saved", "says": 3, "call": 1, "tool": "save", "returned": 2}
    ]


@pytest.mark.parametrize("total", [2.5e-222, 3e300])
def test_numbers_however_far_apart_are_compared(total: float) -> None:
    far = ToolCall(tool="get_far", args={}, result={"far": 1 / total, "name": "x-1"})
    assert [found[0] for found in told({"far": total, "name": "x-1"}, far)] == ["output.far"]
