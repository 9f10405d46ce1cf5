"""Where a routine asks or refuses, its exported script does the same, before anything is done."""

import ast
import copy
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from test_export_python import load, same

from em.compiler.compile_trace import compile_trace
from em.compiler.export import script, stand_ins
from em.compiler.export.agent_tools import export_openai, export_skill
from em.compiler.export.python import bound, export_python
from em.compiler.package_files import write_package
from em.errors import ExportError
from em.runner import agreement
from em.runner.expressions import functions, words
from em.runner.package import Package
from em.traces.trace import Mission, ToolCall, Trace

REQUEST = "Please refund order #W1001 of anna.k81@example.com, it is broken"
OTHER = "Please refund order #W2002 of anna.k81@example.com, it is broken"
ORDER: dict[str, Any] = {
    "order_id": "#W1001",
    "user_id": "anna_5512",
    "status": "delivered",
    "payment": {"method_id": "card_998811", "amount": 100},
    "items": [{"id": "it_55123", "price": 60}, {"id": "it_99812", "price": 40}],
}
REFUND = {
    "order_id": "#W1001",
    "amount": 100,
    "method": "card_998811",
    "items": ["it_99812"],
    "note": "as agreed",
}
REST = {"items": ["it_99812"], "note": "as agreed", "request": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = Trace(
        mission=Mission("refund", {"request": REQUEST, "limit": 100}),
        events=[
            ToolCall(tool="find_user", args={"email": "anna.k81@example.com"}, result="anna_5512"),
            ToolCall(tool="get_order", args={"order_id": "#W1001"}, result=ORDER),
            ToolCall(tool="refund_order", args=REFUND, result={"refund_id": "R-771231"}),
        ],
        final_output={"refund_id": "R-771231"},
        outcome="success",
    )
    folder = tmp_path_factory.mktemp("export") / "routine"
    write_package(compile_trace(trace), folder)
    return folder


class Shop:
    def __init__(self, **changed: Any) -> None:
        self._changed = changed

    def __call__(self) -> dict[str, Any]:
        def get_order(order_id: str) -> Any:
            order = {**copy.deepcopy(ORDER), "order_id": order_id, **self._changed}
            return {name: value for name, value in order.items() if value is not None}

        return {
            "find_user": lambda email: "anna_5512" if "anna" in email else "bob_7781",
            "get_order": get_order,
            "refund_order": lambda **_: {"refund_id": "R-771232"},
        }


def ended(done: dict[str, Any]) -> tuple[str, bool]:
    """How it ended, and whether money moved."""
    return done["end"][0], any(name == "refund_order" for name, _ in done["calls"])


@pytest.mark.parametrize(
    ("given", "answers", "changed", "end"),
    [
        ({"request": REQUEST, "limit": 100}, None, {}, ("ok", True)),
        ({"request": REQUEST, "limit": 100}, None, {"place": "São Tomé"}, ("needs_input", False)),
        ({}, None, {}, ("needs_input", False)),
        ({"request": OTHER, "limit": 100}, None, {}, ("needs_input", False)),
        ({"request": OTHER, "limit": 100}, {"inputs": REST}, {}, ("ok", True)),
        ({"request": OTHER, "limit": 500}, {"inputs": REST}, {}, ("needs_input", False)),
        ({"request": OTHER, "limit": 500}, {"inputs": {**REST, "refund_order.amount": 80}}, {},
         ("ok", True)),
        ({"request": OTHER, "limit": 100}, {"inputs": {**REST, "items": ["it_00000"]}}, {},
         ("needs_input", False)),
        ({"request": OTHER, "limit": 100}, {"inputs": {**REST, "items": "it_99812"}}, {},
         ("needs_input", False)),
        ({"request": OTHER, "limit": 100}, {"inputs": REST}, {"status": "shipped"},
         ("failed", False)),
        ({"request": OTHER, "limit": 100}, {"inputs": REST}, {"status": None}, ("failed", False)),
        ({"request": OTHER, "limit": 100}, {"inputs": REST}, {"user_id": "bob_7781"},
         ("failed", False)),
        ({"request": "Refund #W2002 at once", "limit": 100}, {"inputs": REST}, {},
         ("needs_input", False)),
        ({"request": OTHER, "order_id": "#W3003", "limit": 100}, None, {}, ("failed", False)),
        ({"request": OTHER, "limt": 100}, None, {}, ("failed", False)),
    ],
)  # fmt: skip
def test_a_script_asks_and_refuses_as_the_runner_does(
    folder: Path, given: Any, answers: Any, changed: Any, end: tuple[str, bool]
) -> None:
    assert ended(same(folder, given, Shop(**changed), answers)) == end


def test_a_failed_guard_is_told_by_its_step_and_in_words(folder: Path) -> None:
    module = load(folder)
    with pytest.raises(module["Failed"]) as caught:
        module["run"]({"request": REQUEST, "limit": 100}, Shop(status="shipped")())
    assert caught.value.error_type == "GuardFailed"
    words = '`order.status` is "shipped" now; it was "delivered" when recorded'
    assert words in caught.value.message


def test_a_question_shows_the_candidates(folder: Path) -> None:
    module = load(folder)
    with pytest.raises(module["NeedsInput"]) as caught:
        module["run"]({"request": OTHER, "limit": 500}, Shop()(), {"inputs": REST})
    labels = {field["name"]: field["label"] for field in caught.value.fields}
    assert "100 if it is `order.payment.amount`" in labels["refund_order.amount"]
    assert "500 if it is the input `limit`" in labels["refund_order.amount"]


def test_what_has_no_counterpart_in_a_guard_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: r\nsteps:\n"
        '  - {id: a, type: tool.call, tool: t, args: {x: "{{ n }}"}, guards: ["n is odd"]}\n'
    )
    with pytest.raises(ExportError) as caught:
        export_python(Package(tmp_path))
    assert caught.value.place == "step a, field guards"
    assert "the test 'odd'" in str(caught.value)
    assert "`em run`" in caught.value.fix


def test_modules_that_are_copied_into_one_script_share_no_name() -> None:
    seen: dict[str, str] = {}
    for module in (script, stand_ins, functions, words, agreement):
        for node in ast.parse(inspect.getsource(module)).body:
            for name in bound(node):
                assert seen.setdefault(name, module.__name__) == module.__name__, name


def test_a_script_that_asks_nothing_has_no_code_for_it(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        'name: r\nsteps:\n  - {id: a, type: return, value: "{{ n }}"}\n'
    )
    assert "Agreement" not in export_python(Package(tmp_path))


def test_agents_are_told_what_is_asked_for(folder: Path) -> None:
    module: dict[str, Any] = {"__name__": "script"}
    exec(export_openai(Package(folder)), module)
    about = module["FUNCTION"]["function"]["parameters"]["properties"]
    assert 'It was like "xx xxxxxx" when recorded' in about["note"]["description"]
    assert "refund order {{ order_id }} of" in about["request"]["description"]
    asked = json.loads(module["handle"]({"request": OTHER, "limit": 100}, Shop()()))
    assert asked["status"] == "needs_input"
    assert asked["step_id"] == "inputs"
    skill = export_skill(Package(folder))["SKILL.md"]
    assert "## When it asks or stops" in skill
    assert "--answers answers.json" in skill


@pytest.mark.parametrize(
    ("returns", "end"),
    [
        ({"refund_id": "R-771232"}, "ok"),
        ({"refund_id": "R-771232", "error": "card expired"}, "failed"),
        ({"ok": False}, "failed"),
        ("Error: order not found", "failed"),
    ],
)
def test_a_script_looks_at_what_a_call_with_an_effect_returned(
    folder: Path, returns: Any, end: str
) -> None:
    def tools() -> dict[str, Any]:
        return {**Shop()(), "refund_order": lambda **_: returns}

    assert ended(same(folder, {"request": REQUEST, "limit": 100}, tools)) == (end, True)
    module = load(folder)
    if end == "failed":
        with pytest.raises(module["Failed"]) as caught:
            module["run"]({"request": REQUEST, "limit": 100}, tools())
        assert caught.value.error_type == "UnexpectedResult"
        assert "the call was made" in caught.value.message
