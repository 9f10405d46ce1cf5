"""What differs between two versions of a routine is told in words, and nothing is left out."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from em.runner.routine import Routine
from em.runner.standing import changes, file_changes

ROUTINE: dict[str, Any] = {
    "version": "1",
    "name": "refund",
    "description": "Refund an order.",
    "checks": "hand_over",
    "tools": [
        {"name": "find", "effect": "read", "args_schema": {"type": "object"}},
        {"name": "pay", "effect": "write", "http": {"url": "https://shop.example/pay"}},
    ],
    "input_schema": {"type": "object", "properties": {"order": {"type": "string"}}},
    "requests": ["refund {order}"],
    "output_schema": {"type": "object"},
    "secrets": [{"name": "key", "env": "KEY"}],
    "review": {"inputs": ["pay.amount"], "constants": ["note"]},
    "struck": ["found.status is \"open\""],
    "steps": [
        {
            "id": "find",
            "type": "tool.call",
            "description": "Find it.",
            "tool": "find",
            "args": {"order": "{{ order }}", "deep": {"er": [1]}},
            "when": "order",
            "save_as": "found",
            "retry": {"attempts": 2, "backoff": 0.5, "errors": ["Timeout"]},
            "timeout": 5.0,
            "on_error": {"default": None},
            "checks": {"pre": ["order"], "post": ["result"]},
            "effect": "read",
            "idempotency_key": "{{ order }}",
            "expect": {"required": ["status"]},
            "held": "14/14",
        },
        {"id": "all", "type": "assert", "check": "found", "message": "no", "for_each": "{{ [1] }}"},
        {"id": "sum", "type": "udf.call", "function": "total", "args": {"a": 1}},
        {
            "id": "ask",
            "type": "prompt.user",
            "prompt": {"message": "Sure?", "fields": [{"name": "yes", "type": "confirm"}]},
        },
        {"id": "item", "type": "let", "value": "{{ only(found.items) }}", "save_as": "item"},
        {
            "id": "each",
            "type": "for_each",
            "over": {"one": "found.items"},
            "max": 25,
            "save_as": "each",
            "steps": [
                {"id": "look", "type": "tool.call", "tool": "find", "args": {"id": "{{ one }}"}},
                {"id": "fine", "type": "assert", "check": "one", "held": "3/3"},
            ],
        },
        {"id": "end", "type": "return", "value": {"paid": "{{ found }}"}},
    ],
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, dict | list):
            yield from places(item, (*path, name))
        else:
            yield (*path, name)


def routine(value: Any) -> Routine | None:
    try:
        return msgspec.convert(value, Routine)
    except msgspec.ValidationError:
        return None


def changed(path: tuple[Any, ...]) -> Iterator[Routine]:
    """The routine with another value in one place, and without it."""
    for other in ("other", 7, "read", "w3", True, False, ["other"], "delete me"):
        value = deepcopy(ROUTINE)
        inner = value
        for name in path[:-1]:
            inner = inner[name]
        if other == "delete me":
            del inner[path[-1]]
        elif inner[path[-1]] == other or isinstance(inner[path[-1]], dict):
            continue
        else:
            inner[path[-1]] = other
        found = routine(value)
        if found is not None:
            yield found


@pytest.mark.parametrize("path", list(places(ROUTINE)), ids=lambda path: ".".join(map(str, path)))
def test_a_change_of_any_field_is_told(path: tuple[Any, ...]) -> None:
    old = routine(ROUTINE)
    assert old is not None
    for new in changed(path):
        if new != old:
            assert changes(old, new), path
            assert changes(new, old), path


def test_every_field_of_a_routine_and_its_steps_is_among_them() -> None:
    old = routine(ROUTINE)
    assert old is not None
    assert changes(old, old) == []
    assert {field.name for field in msgspec.structs.fields(Routine)} == ROUTINE.keys()
    for field in msgspec.structs.fields(type(old.steps[0])):
        assert {"as_": "as"}.get(field.name, field.name) in {
            *ROUTINE["steps"][0],
            *ROUTINE["steps"][1],
            *ROUTINE["steps"][2],
            "as",
        }


def test_a_change_in_a_list_is_told_by_its_place() -> None:
    value = deepcopy(ROUTINE)
    value["requests"] = ["pay {order} back"]
    old, new = routine(ROUTINE), routine(value)
    assert old is not None
    assert new is not None
    assert changes(old, new) == [
        'requests[0] is "pay {order} back"; before: "refund {order}"',
    ]


def test_a_step_that_is_new_or_removed_is_one_line() -> None:
    value = deepcopy(ROUTINE)
    value["steps"].insert(1, {"id": "own", "type": "assert", "check": "found.by == 1"})
    old, new = routine(ROUTINE), routine(value)
    assert old is not None
    assert new is not None
    (order, said) = changes(old, new)
    assert order.startswith("order of the steps is")
    assert said.startswith("own: new: ")
    assert "own: removed" in changes(new, old)


def test_the_order_of_steps_is_told() -> None:
    value = deepcopy(ROUTINE)
    value["steps"][3], value["steps"][4] = value["steps"][4], value["steps"][3]
    old, new = routine(ROUTINE), routine(value)
    assert old is not None
    assert new is not None
    (said,) = changes(old, new)
    assert said.startswith("order of the steps is")


def test_a_change_of_the_code_beside_the_steps_is_told() -> None:
    old, new = {"routine.yaml": "a", "udf.py": "x = 1"}, {"routine.yaml": "b", "udf.py": "x = 2"}
    (said,) = file_changes(old, new)
    assert said.startswith("udf.py has changed")
    assert file_changes(old, old) == []


def test_a_step_that_moves_into_a_block_is_told() -> None:
    value = deepcopy(ROUTINE)
    value["steps"][5]["steps"].insert(0, value["steps"].pop(4))
    old, new = routine(ROUTINE), routine(value)
    assert old is not None
    assert new is not None
    assert 'each: steps is "item, look, fine"; before: "look, fine"' in changes(old, new)
