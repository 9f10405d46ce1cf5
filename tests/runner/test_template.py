"""A text that is word for word a template gives the inputs of a run; any other gives none."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from em import Memory
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.template import fill, filling, only_for, parse_template

CANCEL = "I am {email}. Please cancel {order_id}, {reason}."
SCHEMA: Any = {
    "type": "object",
    "required": ["email", "order_id", "reason"],
    "properties": {
        "email": {"type": "string"},
        "order_id": {"type": "string", "pattern": "^#W[0-9]+$"},
        "reason": {"enum": ["No longer needed", "ordered by mistake"]},
        "count": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "gift": {"type": "boolean"},
        "tags": {"type": "array"},
        "half": {"enum": [0.5, 2]},
        "who": {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]+$"}}},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {}, "count": {"type": "integer"}}},
        },
    },
}


@pytest.mark.parametrize(
    ("template", "text", "inputs"),
    [
        (CANCEL, "I am ana@x.de. Please cancel #W1, no longer needed.",
         {"email": "ana@x.de", "order_id": "#W1", "reason": "No longer needed"}),
        (CANCEL, "  i AM Ana@x.de.\n please  cancel #W1,\tordered by MISTAKE !! ",
         {"email": "Ana@x.de", "order_id": "#W1", "reason": "ordered by mistake"}),
        ("Order {count} lamps at {price}", "order 3 lamps at 4.50.", {"count": 3, "price": 4.5}),
        ("Wrap it: {gift}", "wrap it: TRUE", {"gift": True}),
        ("Tag it {tags}", 'Tag it ["a", "b"]', {"tags": ["a", "b"]}),
        ("Cut it by {half}", "cut it by 0.5", {"half": 0.5}),
        ("{email}, please", "Ana  Maria, please", {"email": "Ana  Maria"}),
        ("Stop everything", "STOP everything.", {}),
        ("Use {{braces}} for {email}", "use {braces} for x", {"email": "x"}),
        ("{email} and {email} again", "Ana and ana again", {"email": "Ana"}),
        ("In {who.zip}", "in 12345", {"who": {"zip": "12345"}}),
        ("Note {email:2}", "note two words", {"email": "two words"}),
        ("Note {email:2+0}", "note lot 7", {"email": "lot 7"}),
        ("Note {email:2^}", "Note Ann Lee", {"email": "Ann Lee"}),
        ("Note {email:2^}", "note ann lee", {"email": "ann lee"}),
        ("Note {email:2^}", "NOTE ANN LEE", {"email": "ANN LEE"}),
        ("Say '{email:1}' now", "say 'so, it is 7' now", {"email": "so, it is 7"}),
        ("Tag {tags} and {tags}", "tag a and b", {"tags": ["a", "b"]}),
        ("{items.count} {items.name} and {items.count} {items.name}", "1 mat and 2 lamps",
         {"items": [{"count": 1, "name": "mat"}, {"count": 2, "name": "lamps"}]}),
        ("Say '{email}'", "say 'so it is'!", {"email": "so it is"}),
    ],
)  # fmt: skip
def test_a_text_that_is_a_template_gives_its_holes(template: str, text: str, inputs: Any) -> None:
    assert fill([template], text, SCHEMA) == inputs


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (CANCEL, "I am ana@x.de. Please cancel #W1, no longer needed, and buy a lamp."),
        (CANCEL, "I am ana@x.de. Please don't cancel #W1, no longer needed."),
        (CANCEL, "I am ana@x.de. Please cancel W1, no longer needed."),
        (CANCEL, "I am . Please cancel #W1, no longer needed."),
        (CANCEL, "Hello, I am ana@x.de. Please cancel #W1, no longer needed."),
        ("Order {count} lamps", "Order three lamps"),
        ("Order {count} lamps", "Order 3.5 lamps"),
        ("Order {count} lamps", "Order  lamps"),
        ("{email} and {email}", "Ana and Bob"),
        ("Wrap it: {gift}", "wrap it: yes"),
        ("Stop everything", "Stop everything now"),
        (CANCEL, ""),
        ("Cancel {order_id}", "Cancel #W1?"),
        ("Cancel {order_id}", "Cancel #W1..."),
        ("Cancel {order_id}?", "Cancel #W1"),
        ("In {who.zip}", "in Rome"),
        ("Note {email:2}", "note more than two"),
        ("Note {email:2}", "note lot 7"),
        ("Note {email:2^}", "Note not Ann"),
        ("Note {email:2^}", "Note Ann Lee Roe"),
        ("Note {email:2^}", "Note Ann-7"),
        ("Note {email:2}", "note so, yes"),
        ("Note {email:2+0}", "note 7, yes"),
        ("Tag {tags} and {tags}", "tag a and b and c"),
        ("Say '{email}'", "say 'so' or 'no'"),
        ("Say “{email}”", "say “so” or “no”"),
        ("{items.count} {items.name} and {items.name}", "1 mat and lamp"),
    ],
)
def test_any_other_text_gives_none(template: str, text: str) -> None:
    assert fill([template], text, SCHEMA) is None


def test_a_text_that_can_be_read_in_two_ways_gives_none() -> None:
    assert filling(["send {a} to {b}"], "send a to b to c").problem.startswith(
        "the request can be read in two ways"
    )
    templates = ["send {a} to Bob", "send it to {b}"]
    assert fill(templates, "send tea to Bob") == {"a": "tea"}
    assert fill(templates, "send it to Ana") == {"b": "Ana"}
    assert "several of 2 templates" in filling(templates, "send it to Bob").problem
    assert filling(templates, "keep it").problem == "the request fits none of 2 templates"
    assert fill(["send {a}", "SEND {a}."], "send tea") == {"a": "tea"}, "both say the same"


def test_what_stands_between_elements_stands_in_none_of_them() -> None:
    two, three = "tag {tags:3+0,} and {tags:3+0,}", "tag {tags}, {tags} and {tags}"
    assert fill([two], "tag lot 7, red and blue", SCHEMA) == {"tags": ["lot 7, red", "blue"]}
    assert fill([two, three], "tag lot 7, red and blue", SCHEMA) == {
        "tags": ["lot 7", "red", "blue"]
    }
    assert fill(["tag {tags:3}", two], "tag red and blue", SCHEMA) == {"tags": ["red", "blue"]}


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{a}{b}", "between them"),
        ("{a b}", "the name of an input"),
        ("{}", "the name of an input"),
        ("{a:0}", "the name of an input"),
        ("{a.}", "the name of an input"),
        ("give {a", "single '{'"),
        ("give a}", "single '}'"),
        ("{a}.", "needs words"),
        ("Use {_}", "how long"),
        ("Use {a:=3}", "how long"),
        ("Use {a:=3} or {b} {=9f86d081884c7d65}", "how long"),
        ("", "needs words"),
    ],
)
def test_a_template_that_can_not_be_read_is_refused(template: str, problem: str) -> None:
    with pytest.raises(RoutineError, match=problem):
        parse_template(template)


def test_a_template_of_one_text_takes_values_by_their_lengths() -> None:
    text = " I'm  Ana (ana@x.de):\n cancel #W1!"
    (name, email, order_id) = (text.index(one) for one in ("Ana", "ana@x.de", "#W1"))
    made = only_for(
        text,
        [("_", name, name + 3), ("email", email, email + 8), ("order_id", order_id, order_id + 3)],
    )
    assert "Ana" not in made
    assert fill([made], text, SCHEMA) == {"email": "ana@x.de", "order_id": "#W1"}
    assert fill([made], text.upper().replace("  ", " ").replace("A@X.DE", "a@x.de")) is not None
    assert fill([made], text.replace("Ana", "Ida"), SCHEMA) is None
    assert fill([made.replace(":=8", ":=7")], text, SCHEMA) is None


WORDS = st.text(alphabet="abc ,", min_size=1, max_size=6)


@settings(max_examples=300)
@given(st.lists(WORDS, min_size=2, max_size=4), st.data())
def test_the_only_reading_is_found_and_two_are_refused(fixed: Any, data: st.DataObject) -> None:
    """Compare with trying all places, which is slow."""
    template = "".join(f"{part}{{h{n}}}" for n, part in enumerate(fixed[:-1])) + fixed[-1]
    values = data.draw(st.lists(WORDS, min_size=len(fixed), max_size=len(fixed)))
    text = "".join(itertools.chain.from_iterable(zip(fixed, values, strict=True)))
    text = data.draw(st.sampled_from([text, "".join(values), text[: -len(values[-1])]]))
    try:
        known = parse_template(template)
    except RoutineError:
        return
    plain = " ".join(text.split())
    found = {tuple(one) for one in _all_readings(list(known.fixed), plain)}
    got = fill([template], text)
    if len(found) == 1:
        (only,) = found
        assert got is not None
        assert [" ".join(value.split()) for value in got.values()] == list(only)
    elif not found:
        assert got is None
    elif got is not None:
        raise AssertionError(f"{len(found)} readings")


def _all_readings(fixed: list[str], text: str) -> Any:
    first, *inner, last = fixed
    if not text.startswith(first):
        return
    ends = range(len(first), len(text) + 1)
    for places in itertools.product(ends, repeat=len(inner)):
        spans, start, fits = [], len(first), True
        for place, part in zip(places, inner, strict=True):
            fits = fits and place > start and text.startswith(part, place)
            spans.append((start, place))
            start = place + len(part)
        end = len(text) - len(last)
        fits = fits and end > start and text.endswith(last)
        spans.append((start, end))
        values = [text[one:two].strip() for one, two in spans]
        if fits and all(values):
            yield values


@given(st.lists(st.text(alphabet="xyzÄß1", min_size=1, max_size=5), min_size=3, max_size=3))
def test_what_was_written_into_the_holes_comes_back(values: list[str]) -> None:
    text = CANCEL.format(email=values[0], order_id=values[1], reason=values[2])
    back = fill([CANCEL], text.upper() if text.upper().lower() == text.lower() else text)
    assert back is not None
    assert [one.casefold() for one in back.values()] == [one.casefold() for one in values]
    assert fill([CANCEL], text.replace(" ", " \n ")) == fill([CANCEL], text)


@pytest.mark.parametrize(
    "text",
    [
        "I am " + "a" * 990_000,
        "I am a. Please cancel " * 40_000,
        "I am " + ". Please cancel " * 60_000 + ", x",
        "I am" + " " * 900_000,
        "I am x. Please cancel y" + ", " * 450_000,
        "." * 990_000,
        ". " * 490_000,
    ],
)
def test_a_long_text_of_a_stranger_takes_no_time(text: str) -> None:
    start = time.process_time()
    assert fill([CANCEL] * 3, text) is None
    assert time.process_time() - start < 3


ROUTINE = f"""
name: cancel
checks: hand_over
input_schema:
  type: object
  required: [email, order_id, reason]
  properties:
    email: {{type: string}}
    order_id: {{type: string, pattern: "^#W[0-9]+$"}}
    reason: {{enum: [no longer needed, ordered by mistake]}}
requests: ["{CANCEL}", "Please cancel {{order_id}}, {{reason}}."]
tools: [{{name: cancel, effect: write}}]
steps:
- id: cancel
  type: tool.call
  tool: cancel
  args: {{by: "{{{{ email }}}}", order_id: "{{{{ order_id }}}}", why: "{{{{ reason }}}}"}}
  save_as: done
- {{id: end, type: return, value: "{{{{ done }}}}"}}
"""


def cancel(by: str, order_id: str, why: str) -> list[str]:
    return [by, order_id, why]


def test_a_run_that_is_given_only_a_request_fills_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    said = {"request": "I am ana@x.de. Please cancel #W1, no longer needed."}
    result = run_routine(tmp_path, said, {"cancel": cancel})
    assert result.output == ["ana@x.de", "#W1", "no longer needed"]
    result = run_routine(tmp_path, {"request": "Cancel my order"}, {"cancel": cancel})
    assert (result.status, result.reason) == ("needs_input", None)
    assert result.pending_prompt is not None
    assert result.pending_prompt.step_id == "inputs"
    assert "the request fits none of 2 templates" in result.pending_prompt.message
    result = run_routine(tmp_path, {**said, "email": "bob@x.de"}, {"cancel": cancel})
    assert result.reason is not None, "words beside inputs are not read"


def test_what_the_request_does_not_say_is_asked_for_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    said = {"request": "Please cancel #W1, no longer needed"}
    with Memory(tmp_path / "em.db") as memory:
        asked = memory.run(tmp_path, said, {"cancel": cancel}, run_id="r1")
        assert asked.pending_prompt is not None
        assert [field["name"] for field in asked.pending_prompt.fields] == ["email"]
        answers = {asked.pending_prompt.step_id: {"email": "ana@x.de"}}
        result = memory.resume("r1", {"cancel": cancel}, answers=answers)
    assert result.output == ["ana@x.de", "#W1", "no longer needed"]


def test_a_routine_with_an_input_called_request_takes_it_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: echo\nrequests: ['say {request}']\n"
        "input_schema: {type: object, properties: {request: {type: string}}}\n"
        'steps: [{id: end, type: return, value: "{{ request }}"}]\n'
    )
    assert run_routine(tmp_path, {"request": "say hi"}, {}).output == "say hi"
