"""A recorded world answers what was recorded, and judges every write."""

import copy
from typing import Any

import pytest
from test_learner import cancel, facts, give_back, recorded, returned, routine_of, write_note

from em.compiler.compile_trace import program_of
from em.compiler.example import Call, Example
from em.compiler.replay_world import (
    POLICIES,
    Recording,
    Renaming,
    as_recorded,
    fresh_inputs,
    other_order,
)
from em.values.canonical import Json

CANCELLED = [recorded(cancel, facts(number)) for number in range(6)]
FIRST = Recording(CANCELLED[0].inputs, CANCELLED[0].calls)


@pytest.fixture(scope="module")
def cancelling() -> Json:
    return routine_of(CANCELLED)


def _with(routine: Json, **changes: Any) -> Json:
    """The routine with other arguments of its write."""
    made = copy.deepcopy(routine)
    write = next(step for step in made["steps"] if step.get("effect") == "write")
    write["args"] |= changes
    return made


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("solve", [cancel, give_back, write_note])
def test_a_learnt_routine_is_right_in_its_own_recordings(policy: str, solve: Any) -> None:
    given = returned if solve is give_back else facts
    examples = [recorded(solve, given(number)) for number in range(6)]
    routine = routine_of(examples)
    for example in examples:
        world = POLICIES[policy](Recording.of(example, routine), routine["input_schema"])
        assert world.run(program_of(routine)).verdict == "right"


def test_another_write_is_wrong_and_says_how(cancelling: Json) -> None:
    other = _with(cancelling, reason="too late")
    found = as_recorded(FIRST, {}).run(program_of(other))
    assert found.verdict == "wrong"
    assert found.reason == (
        'it would have called cancel_order with {"reason":"too late"};'
        ' recorded is {"reason":"no longer needed"}'
    )


def test_a_constant_shows_with_fresh_inputs_only(cancelling: Json) -> None:
    order = FIRST.inputs["order_id"]
    constant = _with(cancelling, order_id=order)
    assert as_recorded(FIRST, {}).run(program_of(constant)).verdict == "right"
    fresh = fresh_inputs(FIRST, constant["input_schema"])
    found = fresh.run(program_of(constant))
    assert found.verdict == "wrong"
    assert order in found.reason


def test_a_position_shows_in_another_order_only() -> None:
    first = {"id": "first", "type": "let", "value": "{{ orders[0] }}", "save_as": "first"}
    routine = {
        "version": "1", "name": "x", "checks": "hand_over",
        "tools": [{"name": "list", "effect": "read"}, {"name": "ship", "effect": "write"}],
        "steps": [
            {"id": "a", "type": "tool.call", "tool": "list", "args": {}, "save_as": "orders"},
            first,
            {"id": "b", "type": "tool.call", "tool": "ship", "args": {"id": "{{ first.id }}"}},
        ],
    }  # fmt: skip
    orders = [{"id": "A-1"}, {"id": "B-2"}]
    calls = [Call("list", {}, orders), Call("ship", {"id": "A-1"}, None, None, "write")]
    assert as_recorded(Recording({}, calls), {}).run(program_of(routine)).verdict == "right"
    assert other_order(Recording({}, calls), {}).run(program_of(routine)).verdict == "wrong"


def test_a_read_that_was_not_recorded_is_no_fault(cancelling: Json) -> None:
    calls = [call for call in FIRST.calls if call.tool != "get_person"]
    found = as_recorded(Recording(FIRST.inputs, calls), {}).run(program_of(cancelling))
    assert (found.verdict, found.is_unrecorded) == ("handed over", True)
    assert "get_person" in found.reason


def test_a_write_that_is_left_out_is_wrong(cancelling: Json) -> None:
    calls = [*FIRST.calls, Call("send_note", {"to": "x"}, None, None, "write")]
    found = as_recorded(Recording(FIRST.inputs, calls), {}).run(program_of(cancelling))
    assert (found.verdict, found.reason) == ("wrong", "it would not have called send_note")


def test_reads_answer_as_at_that_point() -> None:
    routine = {
        "version": "1", "name": "x", "checks": "hand_over",
        "tools": [{"name": "get", "effect": "read"}, {"name": "add", "effect": "write"}],
        "steps": [
            {"id": "a", "type": "tool.call", "tool": "get", "args": {}, "save_as": "old"},
            {"id": "b", "type": "tool.call", "tool": "add", "args": {"to": "{{ old }}"}},
            {"id": "c", "type": "tool.call", "tool": "get", "args": {}, "save_as": "new"},
            {"id": "d", "type": "tool.call", "tool": "add", "args": {"to": "{{ new }}"}},
        ],
    }  # fmt: skip
    calls = [
        Call("get", {}, 1), Call("add", {"to": 1.0}, None, None, "write"),
        Call("get", {}, 2), Call("add", {"to": 2}, None, None, "write"),
    ]  # fmt: skip
    assert as_recorded(Recording({}, calls), {}).run(program_of(routine)).verdict == "right"


def test_words_are_renamed_wherever_they_stand() -> None:
    new = Renaming(["Ana Silva", "#W80200", 55001], {"note": "for ana-silva"})
    found = new.of({"text": "Dear ANA, W80200 is 80200.", "n": 55001, "by": {"W80200": {"x": 1}}})
    assert "ANA" not in found["text"]
    assert "W80200" not in found["text"]
    assert "80200." in found["text"], "another word"
    assert found["n"] != 55001
    assert [*found["by"]] != ["W80200"]
    assert new.of("Ana").istitle()
    assert new.of("#W80200")[:2] == "#W"
    assert new.of("2026-04-02") == "2026-04-02"


def test_what_a_routine_asks_for_is_said_as_it_was_recorded() -> None:
    """And an input that nothing uses must be as it always was."""

    def booked(seat: str, to: str) -> Example:
        calls = [Call("book", {"seat": seat, "to": to}, None, None, "write")]
        return Example({"to": to, "colour": "red"}, calls)

    example = booked("B7", "KIL")
    routine = routine_of([example, booked("C3", "OSL")])
    assert {*routine["input_schema"]["properties"]} == {"to", "seat", "colour"}
    assert routine["input_schema"]["properties"]["colour"] == {"const": "red"}
    recording = Recording.of(example, routine)
    assert recording.inputs == {"to": "KIL", "seat": "B7", "colour": "red"}
    assert as_recorded(recording, {}).run(program_of(routine)).verdict == "right"


@pytest.mark.parametrize(
    ("word", "beside"),
    [
        ("mole", ["ant", "fox", "mole", "newt", "owl"]),
        ("mole", ["mold", "mole", "molt"]),
        ("W80200", ["W70100", "W80200", "W90000"]),
        ("zebra", ["ant", "bee"]),
    ],
)
def test_a_new_word_keeps_its_place_among_the_others(word: str, beside: list[str]) -> None:
    new = Renaming([word], beside).of(word)
    others = [one for one in beside if one != word]
    assert new != word
    assert [one < new for one in others] == [one < word for one in others]


def test_a_word_without_room_between_its_neighbours_is_renamed_all_the_same() -> None:
    new = Renaming(["W1112"], ["W1111", "W1112", "W1113"]).of("W1112")
    assert new not in ("W1111", "W1112", "W1113")
