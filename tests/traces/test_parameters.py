"""What a tool declares of its parameters is in the trace of its calls."""

import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest

import em
from em.traces.adapters import LARGEST_DECLARATION, declared_parameters
from em.traces.catalogue import get_traces
from em.values.canonical import Json


class Side(enum.Enum):
    """The sides of a harbour."""

    NORTH = "north"
    SOUTH = "south"


def book(
    boat: str,
    side: Side,
    kind: Literal["sail", "motor"] | None = None,
    nights: Annotated[int, msgspec.Meta(ge=1, description="how many nights")] = 1,
    depth: float = 1.0,
) -> bool:
    return bool(boat)


PARAMETERS = {
    "side": {"enum": ["north", "south"], "description": "The sides of a harbour."},
    "kind": {"enum": ["motor", "sail"]},
    "nights": {"type": "integer", "minimum": 1, "description": "how many nights"},
    "depth": {"type": "number"},
}


def test_type_hints_say_what_a_parameter_may_be() -> None:
    assert declared_parameters(book) == PARAMETERS


def pay(amount: float, reason: str, to, account: str, notify: bool = True):  # type: ignore[no-untyped-def]  # as people write tools
    """Pay an amount.

    Args:
        amount (float): in cents, not euros
        reason: either 'refund' or 'salary'

    :param to: name of the person
    """


def test_a_docstring_says_what_parameters_are_for() -> None:
    assert declared_parameters(pay) == {
        "amount": {"type": "number", "description": "in cents, not euros"},
        "reason": {"type": "string", "description": "either 'refund' or 'salary'"},
        "to": {"description": "name of the person"},
        "notify": {"type": "boolean"},
    }


def test_a_definition_says_it_too_without_references() -> None:
    schema = {
        "type": "object",
        "properties": {
            "side": {"anyOf": [{"$ref": "#/$defs/Side"}, {"type": "null"}], "title": "Side"},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "round": {"$ref": "#/$defs/Round"},
        },
        "$defs": {
            "Side": {"enum": ["north", "south"], "type": "string"},
            "Part": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "Round": {"$ref": "#/$defs/Round"},
        },
    }
    assert declared_parameters(book, schema) == {
        "side": {"enum": ["north", "south"], "type": "string"},
        "parts": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }


def _undefined() -> Callable[..., Any]:
    def unknown(one: Any) -> None: ...

    unknown.__annotations__["one"] = "NobodyKnows"
    return unknown


@pytest.mark.parametrize(
    ("function", "schema"),
    [
        (_undefined(), None),
        (book, {"properties": {"side": "what"}}),
        (book, {"properties": {"side": {"enum": ["x" * LARGEST_DECLARATION]}}}),
        (book, {"properties": []}),
    ],
)
def test_what_says_nothing_or_too_much_is_left_out(
    function: Callable[..., Any], schema: Json | None
) -> None:
    assert declared_parameters(function, schema) == {}


def test_a_recording_has_it_for_the_tools_that_were_called() -> None:
    definition = {"name": "pay", "input_schema": {"properties": {"sum": {"type": "number"}}}}
    _, pay = em.tool((definition, lambda **given: given))
    tools = [em.tool(book), em.tool(lambda side: side, name="other")]
    with em.Memory() as memory:
        with memory.record("book a berth"):
            tools[0]("BT-1", Side.NORTH)
            pay(sum=2)
        (kept,) = get_traces(memory.store, [one.id for one in memory.traces()])
    assert kept.trace.tools == {"book": PARAMETERS, "pay": {"sum": {"type": "number"}}}
