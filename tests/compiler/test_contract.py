"""Limits that a tool declares count instead of those that few recordings suggest."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

import em
from em.compiler.recordings import with_contracts
from em.runner.package import find_routine, routine_of
from em.values.canonical import Json
from em.values.json_schema import problems

CALL = {"type": "tool.call", "tool": "book", "args": {"nights": "{{ nights }}"}}
LEARNT = {"properties": {"nights": {"type": "integer", "minimum": 2, "maximum": 16}}}


def joined(declared: Any, steps: Sequence[Json] = (CALL,), nights: int = 8) -> Any:
    tools = {"book": {"nights": declared}}
    made = with_contracts(LEARNT, steps, tools, [{"nights": nights}])
    return made["properties"]["nights"]


def book(room: Literal["attic", "studio", "hall"], people: int, price: float = 0) -> str:
    return room


def compiled(tool: Callable[..., Any], recorded: Sequence[Json]) -> Json:
    with em.Memory() as memory:
        for inputs in recorded:
            with memory.record("book a room", dict(inputs)):
                tool(**inputs)
        memory.compile([one.id for one in memory.traces()], name="book", force=True)
        return routine_of(find_routine(memory.store, "book")).input_schema or {}


def test_a_routine_takes_what_its_tool_declares() -> None:
    recorded = [
        {"room": room, "people": 4 + n, "price": 10 * n + 10}
        for n, room in enumerate(["attic", "studio"] * 4)
    ]
    schema = compiled(em.tool(book, effect="write"), recorded)
    assert {*schema["properties"]["room"]["enum"]} == {"attic", "studio", "hall"}
    fitting = {"room": "hall", "people": 5, "price": 12.5}
    assert not [*problems(schema, fitting)]
    assert [*problems(schema, {**fitting, "room": "cellar"})]
    assert [*problems(schema, {**fitting, "people": 5000})], "the tool declares no limit"


@pytest.mark.parametrize(
    ("declared", "made"),
    [
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"enum": [7, 8]}, {"type": "integer", "enum": [7, 8]}),
        ({"type": "number", "maximum": 9}, {"type": "number", "maximum": 9}),
        (
            {"description": "how long"},
            {**LEARNT["properties"]["nights"], "description": "how long"},
        ),
    ],
)
def test_what_is_declared_replaces_what_was_guessed(declared: Json, made: Json) -> None:
    assert joined(declared) == made


@pytest.mark.parametrize(
    "declared",
    [
        {"enum": [1, 2]},  # the recordings had 8
        {"type": "string", "pattern": "["},  # no schema
        {"type": "integer", "minimum": "none"},
        "redacted",
    ],
)
def test_what_recordings_contradict_or_nobody_can_read_is_left(declared: Any) -> None:
    assert joined(declared) == LEARNT["properties"]["nights"]


@pytest.mark.parametrize(
    "more",
    [
        {"type": "tool.call", "tool": "warn", "args": {}, "when": "nights > 7"},
        {"type": "let", "value": "{{ nights * 2 }}", "save_as": "double"},
        {"type": "tool.call", "tool": "keep", "args": {"text": "for {{ nights }} nights"}},
    ],
)
def test_an_input_that_decides_anything_else_keeps_its_limits(more: Json) -> None:
    assert joined({"type": "integer", "minimum": 1}, [CALL, more]) == LEARNT["properties"]["nights"]


@pytest.mark.parametrize(
    ("description", "words", "is_limit"),
    [
        ("title of the play", ["Faust", "The Seagull"], False),
        ("either Economy or Business", ["Business", "Economy"], True),
        ("in the customer's words", ["late", "lost"], True),
        ("", ["Faust", "The Seagull"], True),
    ],
)
def test_names_are_no_limit_of_a_text_whose_description_does_not_list_them(
    description: str, words: list[str], *, is_limit: bool
) -> None:
    learnt = {"properties": {"what": {"type": "string", "enum": words}}}
    step = {"type": "tool.call", "tool": "cancel", "args": {"what": "{{ what }}"}}
    tools = {"cancel": {"what": {"type": "string", "description": description}}}
    made = with_contracts(learnt, [step], tools, [{"what": words[0]}])["properties"]["what"]
    limits = {"enum": words} if is_limit else {"minLength": 1}
    assert made == {"type": "string", **limits, "description": description}


def test_a_check_of_the_input_stays_and_decides_nothing() -> None:
    check = {"type": "assert", "check": "nights < room.free"}
    assert joined({"minimum": 1}, [check, CALL]) == {"type": "integer", "minimum": 1}
