"""The text of a plain routine: validated with places, printed, read back, rehearsed, explained."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runner.test_plain_form import EXCHANGE, GIVEN, NESTED, Shop, prepared, written

from em.compiler.routine_text import text_of
from em.runner.card import public_form
from em.runner.engine import run_routine
from em.runner.package import parse_yaml, read_routine
from em.runner.preparation import prepare_routine
from em.runner.rehearsal import result_in_words, schema_in_words
from em.runner.routine import Routine
from em.runner.validation import validate


def problems(folder: Path, text: str) -> list[str]:
    found = validate(written(folder, text))
    return [f"{one.line}: {one.place}: {one.message}" for one in found if one.severity == "error"]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_a_plain_routine_is_valid(tmp_path: Path) -> None:
    assert validate(written(tmp_path, EXCHANGE)) == []
    assert problems(tmp_path, NESTED) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name=wanted.name", "name=wnted.name", "step item, field value: 'wnted' is not defined"),
        ("over: {wanted: items", "over: {wanted: itms", "step each, field over.wanted: 'itms' is"),
        ("over: {wanted: items", "over: {wanted: '{{ items }}'",
         "step each, field over.wanted: expected a bare expression"),
        ("check: order.user_id == user.user_id", "check: item.id == user.user_id",
         "step own, field check: 'item' is used before it exists"),
        ("check: 'distinct(every(each", "check: 'distinct(every(item",
         "step distinct, field check: 'item' is known only in the block that saves it"),
        ("tool: get_product", "tool: get_produkt", "step product, field tool: the tool"),
        ("{id: item, type: let", "{id: order, type: let", "step order, field id: two steps have"),
        ("expect: {properties: {available: {const: true}}}", "expect: {properties: 3}",
         "step variant, field expect.properties: invalid JSON Schema"),
        ("held: 3/3", "held: 3 of 3", "step variant, field held: "),
        ("save_as: variant", "save_az: variant", "step variant, field save_az: unknown field"),
        ("checks: hand_over", "checks: hand_on", "checks: Invalid enum value 'hand_on'"),
        ("checks: hand_over", 'checks: hand_over\nrequests: ["I am {mail}"]',
         "requests[0]: 'mail' is not an input"),
        ("checks: hand_over", 'checks: hand_over\nrequests: ["I am {email}{note}"]',
         "requests[0]: two holes must have"),
        ("when: given(note)", "when: given(nope)", "step told, field when: 'nope' is not defined"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_block_is_found_with_its_place(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in EXCHANGE
    text = EXCHANGE.replace(old, new)
    found = [one for one in problems(tmp_path, text) if says in one]
    assert found, problems(tmp_path, text)
    part = new.rpartition("\n")[2]
    assert abs(int(found[0].partition(":")[0]) - line_of(text, part)) <= 2


def test_names_of_a_block_that_hide_a_function_are_warned_of(tmp_path: Path) -> None:
    found = validate(written(tmp_path, EXCHANGE.replace("wanted", "where")))
    assert [(one.severity, one.place) for one in found] == [
        ("warning", "step each, field over.where")
    ]


# --- printing -------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["order", "item", "user", "row"])
_TEXTS = st.sampled_from(["{{ order.id }}", "plain", "{{ only(row.items, name=user.name) }}", "y"])
_COMMON = {
    "description": st.sampled_from(["", 'Say why: it\'s "so".']),
    "when": st.none() | st.just("given(order.id) and row"),
    "held": st.sampled_from(["", "3/3", "14/14"]),
}
_EXPECT = st.none() | st.sampled_from([{"required": ["id"]}, {"properties": {"a": {"const": 1}}}])


def _call(step_id: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "id": st.just(step_id), "type": st.just("tool.call"), "tool": _NAMES,
            "args": st.dictionaries(_NAMES, _TEXTS, max_size=2), "save_as": st.none() | _NAMES,
            "expect": _EXPECT, **_COMMON,
        }
    )  # fmt: skip


def _let(step_id: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "id": st.just(step_id), "type": st.just("let"), "value": _TEXTS, "save_as": _NAMES,
            "expect": _EXPECT, **_COMMON,
        }
    )  # fmt: skip


def _assert(step_id: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "id": st.just(step_id), "type": st.just("assert"), "check": st.just("order == row"),
            "message": st.sampled_from(["", "not his"]), **_COMMON,
        }
    )  # fmt: skip


def _steps(prefix: str, depth: int = 2) -> st.SearchStrategy[Any]:
    def block(step_id: str) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries(
            {
                "id": st.just(step_id), "type": st.just("for_each"),
                "over": st.dictionaries(_NAMES, st.just("order.items"), min_size=1, max_size=2),
                "max": st.none() | st.integers(0, 30), "save_as": st.none() | _NAMES,
                "steps": _steps(f"{step_id}_", depth - 1), **_COMMON,
            }
        )  # fmt: skip

    kinds = [_call, _let, _assert, *([block] if depth else [])]
    one = st.integers(0, len(kinds) - 1)
    return st.lists(one, min_size=1, max_size=3).flatmap(
        lambda found: st.tuples(*(kinds[k](f"{prefix}{n}") for n, k in enumerate(found))).map(list)
    )


@given(_steps("s"), st.sampled_from([None, "hand_over"]))
def test_a_printed_routine_is_read_back_as_it_was(steps: Any, checks: Any) -> None:
    plain = {"name": "x", "steps": steps, "requests": ["take {order}"]}
    plain |= {"checks": checks} if checks else {}
    routine = msgspec.convert(plain, Routine)
    text = text_of(routine)
    assert read_routine(parse_yaml(text.encode(), "here"), "here") == routine
    again = msgspec.json.decode(msgspec.json.encode(routine), type=Routine)
    assert again == routine
    assert text_of(again) == text
    assert public_form(routine).checks == checks
    assert [step.id for step in public_form(routine).all_steps] == [
        step.id for step in routine.all_steps
    ]


def test_every_walk_sees_the_steps_of_blocks(tmp_path: Path) -> None:
    routine = read_routine(parse_yaml(EXCHANGE.encode(), "here"), "here")
    assert "get_product" in routine.called_tools
    steps = {step.id: step for step in routine.all_steps}
    assert result_in_words(steps["variant"]) == ["`variant.available` is true (in 3/3 recordings)"]
    assert result_in_words(steps["order"]) == [
        "`order` has status, user_id, items (in 14/14 recordings)",
        '`order.status` is "delivered" (in 14/14 recordings)',
    ]


def test_a_schema_is_said_in_words() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"enum": [1, 2]}, "b": {"items": {"const": 0}, "minItems": 1}},
    }
    assert schema_in_words("x", schema) == [
        "`x` has a", "`x.a` is 1 or 2", "`x.b[]` is 0", '`x.b` fits {"minItems":1}',
    ]  # fmt: skip


# --- rehearsal ------------------------------------------------------------------------------------


def test_a_dry_run_makes_the_reads_of_blocks_and_plans_the_writes(tmp_path: Path) -> None:
    shop = Shop()
    result = prepared(tmp_path, shop, {"note": "hi"})
    assert (result.status, shop.written) == ("ok", [])
    assert [call for call, _ in shop.calls].count("get_product") == 2
    planned = {one.step: one for one in result.planned}
    assert [*planned] == ["exchange", "told", "result"]
    assert [one.value for one in planned["exchange"].arguments] == ["#W1", ["1", "2"], ["10", "20"]]
    assert planned["exchange"].expects == ['`done.status` is "exchange requested"']


def test_a_dry_run_says_that_a_run_would_hand_over(tmp_path: Path) -> None:
    shop = Shop()
    shop.order["status"] = "pending"
    result = prepared(tmp_path, shop)
    assert (result.status, result.reason.step_id) == ("needs_input", "order")


def test_writes_in_blocks_are_planned_for_each_turn(tmp_path: Path) -> None:
    made: list[str] = []
    tools = {"weigh": len, "send": lambda to, thing: made.append(thing)}
    boxes = {"boxes": [{"to": "x", "things": ["a", "bb"]}, {"to": "y", "things": ["ccc"]}]}
    tools["weigh"] = lambda thing: len(thing)  # noqa: PLW0108 - it is called by name
    result = prepare_routine(written(tmp_path, NESTED), boxes, tools)
    assert made == []
    assert [(one.step, one.item) for one in result.planned] == [("send", "0.1"), ("send", "1.0")]
    assert result.status == "ok"


def test_what_needs_the_result_of_a_write_in_a_block_waits(tmp_path: Path) -> None:
    text = NESTED.replace(
        'args: {to: "{{ box.to }}", thing: "{{ thing }}"}, when: weight > 1}',
        'args: {to: "{{ box.to }}", thing: "{{ thing }}"}, save_as: sent}\n'
        '    - {id: log, type: tool.call, tool: send, args: {to: "{{ sent }}", thing: "log"}}',
    )
    tools = {"weigh": lambda thing: 1, "send": lambda to, thing: "ok"}
    boxes = {"boxes": [{"to": "x", "things": ["a"]}]}
    result = prepare_routine(written(tmp_path, text), boxes, tools)
    planned = [(one.step, one.item, list(one.needs)) for one in result.planned]
    assert planned[:2] == [("send", "0.0", []), ("log", "0.0", ["the result of send"])]
    assert ("end", None, ["the result of boxes"]) in planned


def test_a_public_routine_keeps_its_checks(tmp_path: Path) -> None:
    routine = read_routine(parse_yaml(EXCHANGE.encode(), "here"), "here")
    (tmp_path / "public").mkdir()
    text = text_of(public_form(routine))
    shop = Shop()
    shop.order["user_id"] = "u2"
    result = run_routine(written(tmp_path / "public", text), GIVEN, shop.tools())
    assert result.reason is not None
    assert result.reason.step_id == "own"


def test_a_dry_run_finds_two_values_for_one_name(tmp_path: Path) -> None:
    text = "name: x\nchecks: hand_over\nsteps:\n"
    text += (
        "- {id: a, type: let, value: 1, save_as: n}\n- {id: b, type: let, value: 2, save_as: n}\n"
    )
    result = prepare_routine(written(tmp_path, text), {}, {})
    assert result.reason is not None
    assert (result.reason.step_id, result.reason.check) == ("b", "n")
