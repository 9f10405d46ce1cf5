"""A request in words becomes inputs by a template, else by a model whose values are checked."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from em.errors import LlmUnavailable
from em.llm import ScriptedClient
from em.runner import reading as reading_module
from em.runner.engine import arun_routine, run_routine
from em.runner.reading import Reading, checked, misread, unexpressed
from em.runner.request import LONGEST_READ
from em.runner.routine import Routine
from em.runner.run import RunResult
from em.text.numbers import numbers_in

AT = datetime(2026, 4, 20, tzinfo=UTC)
ROUTINE = """
version: "1"
name: book_berth
description: Reserve a berth for a boat.
checks: hand_over
requests: ["Book {boat} from {since} for {nights} nights."]
input_schema:
  type: object
  required: [boat, since, nights]
  properties:
    boat: {type: string, pattern: "^BT-[0-9]+$"}
    since: {type: string, format: date}
    nights: {type: integer, minimum: 1}
    side: {enum: [north, south]}
    note: {type: string}
tools: [{name: book, effect: write}]
steps:
- {id: book, type: tool.call, tool: book, args: {boat: "{{ boat }}", nights: "{{ nights }}"}, save_as: done}
- {id: result, type: return, value: "{{ done }}"}
"""  # noqa: E501 - a line of YAML
INPUTS = {"boat": "BT-44", "since": "2026-05-02", "nights": 5}
NATURAL = "Could BT-44 stay with you five nights, from 2 May 2026? South side."
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "b": {"type": "string"},
        "n": {"type": "number"},
        "day": {"type": "string", "format": "date"},
    },
}


def reading(inputs: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"fits": True, "inputs": inputs, "missing": [], "not_expressed": [], **rest}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    return tmp_path


def run(folder: Path, given: dict[str, Any], *replies: Any) -> tuple[RunResult, list[Any]]:
    booked: list[Any] = []

    def book(boat: str, nights: int) -> str:
        booked.append((boat, nights))
        return "ok"

    client = ScriptedClient(list(replies)) if replies else None
    return run_routine(folder, given, {"book": book}, client=client), booked


def test_a_recorded_wording_needs_no_model(folder: Path) -> None:
    result, booked = run(folder, {"request": "book BT-9 from 2026-06-01 for 2 nights"})
    assert result.status == "ok"
    assert booked == [("BT-9", 2)]


def test_a_model_fills_the_inputs_of_other_words(folder: Path) -> None:
    result, booked = run(folder, {"request": NATURAL}, reading({**INPUTS, "side": "south"}))
    assert result.status == "ok"
    assert booked == [("BT-44", 5)]


@pytest.mark.parametrize(
    "reply",
    [
        reading({**INPUTS, "nights": 6}),  # invented
        reading({**INPUTS, "boat": "BT-45"}),
        reading({**INPUTS, "side": "west"}),  # not a member
        reading({**INPUTS, "berth": "BT-44"}),  # not an input
        reading({"boat": "BT-44", "nights": 5}, missing=["since"], fits=False),
        reading(INPUTS, not_expressed=["only if it is under 200"]),
        reading({"boat": "BT-44"}),  # the number and the date are not used
        LlmUnavailable("timed out", place="model"),
    ],
)
def test_what_the_request_does_not_say_is_never_acted_on(folder: Path, reply: Any) -> None:
    result, booked = run(folder, {"request": NATURAL}, reply)
    assert result.status == "needs_input"
    assert not booked
    assert result.reason is not None
    assert result.reason.step_id == "input"
    assert result.pending_prompt is None


@pytest.mark.parametrize("text", ["", "  \n", "x" * (LONGEST_READ + 1)])
def test_no_model_is_asked_about_nothing_or_too_much(folder: Path, text: str) -> None:
    result, booked = run(folder, {"request": text}, reading(INPUTS))
    assert result.status == "needs_input"
    assert not booked


@pytest.mark.parametrize("words", ["1 ", "12/3 ", "on 2 May 2026, "])
def test_typed_inputs_with_a_document_as_request_hand_over(folder: Path, words: str) -> None:
    result, booked = run(folder, {"request": words * LONGEST_READ, **INPUTS})
    assert result.reason is not None
    assert result.reason.step_id == "input"
    assert str(LONGEST_READ) in result.reason.message
    assert not booked


def test_prose_instead_of_an_answer_hands_over(folder: Path) -> None:
    result, booked = run(folder, {"request": NATURAL}, "Sure!", "I will.", "Done.")
    assert result.status == "needs_input"
    assert not booked


def test_what_is_missing_is_asked_for_and_the_rest_is_kept(folder: Path) -> None:
    words = "BT-44 please, from 2 May 2026"
    found = reading({"boat": "BT-44", "since": "2026-05-02"}, missing=["nights"])
    result, booked = run(folder, {"request": words}, found)
    assert result.pending_prompt is not None
    assert not booked
    assert [field["name"] for field in result.pending_prompt.fields] == ["nights"]


def test_given_inputs_count_and_a_request_must_not_contradict_them(folder: Path) -> None:
    words = "book BT-9 from 2026-06-01 for 2 nights"
    result, booked = run(folder, {"request": words, "nights": 3})
    assert result.status == "needs_input"
    assert not booked
    result, booked = run(folder, {"request": "as we said on the phone", **INPUTS})
    assert result.status == "ok"
    assert booked == [("BT-44", 5)]


def test_values_beside_a_request_that_nobody_reads_are_kept(folder: Path) -> None:
    result, booked = run(folder, {"request": "a berth for my boat", "boat": "BT-44"})
    assert result.pending_prompt is not None
    fields = {field["name"]: field for field in result.pending_prompt.fields}
    assert [*fields] == ["since", "nights", "side", "note"], "the whole form"
    assert not booked


@pytest.mark.parametrize(
    "words",
    [
        "BT-45 wants a berth",
        "as before, and for BT-9 too",
        "five or 6 nights",
        'as "Gull"',
        "for ana@mail.example, not for me",
    ],
)
def test_a_request_that_says_more_than_the_inputs_hold_is_not_acted_on(
    folder: Path, words: str
) -> None:
    result, booked = run(folder, {"request": words, **INPUTS})
    assert (result.status, booked) == ("needs_input", [])
    assert result.reason is not None
    assert result.reason.step_id == "input"


def test_a_model_reads_a_request_that_stands_beside_inputs(folder: Path) -> None:
    refused = {**reading(INPUTS), "fits": False}
    result, booked = run(folder, {"request": "never book it, too late for that", **INPUTS}, refused)
    assert (result.status, booked) == ("needs_input", [])
    agreed = reading({})
    result, booked = run(folder, {"request": "as we said on the phone", **INPUTS}, agreed)
    assert (result.status, booked) == ("ok", [("BT-44", 5)])


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("move ANNA  to 1,250", {"a": "anna", "n": 1250}),
        ("two hundred of them on May 2nd, 2026", {"n": 200, "day": "2026-05-02"}),
        ("on 30.11.2026", {"day": "2026-11-30"}),
        ("on 11/30/2026", {"day": "2026-11-30"}),
        ("from 2 May 2026 to 2 May 2026", {"day": "2026-05-02", "a": "2 may 2026"}),
        ("0,5 of it", {"n": 0.5}),
        ("call +43 (664) 555-0275", {"a": "+436645550275"}),
        ("1.250,75 for anna", {"n": 1250.75, "a": "anna"}),
        ("2 1/2 of them", {"n": 2.5}),
        ("3 from 3 August 2026", {"n": 3, "day": "2026-08-03"}),
        ("4 at 2.15 p.m. for anna", {"n": 4, "a": "anna", "b": "14:15"}),
        ("from 9.45 or 12 am", {"a": "09:45", "b": "00:00"}),
        ("at half past nine or quarter to 3", {"a": "09:30", "b": "14:45"}),
        ("at 20 to ten or noon", {"a": "21:40", "b": "12:00"}),
        ("at ten for 7 of them", {"a": "10:00", "n": 7}),
        ("at 5 in the afternoon", {"a": "17:00"}),
        ("half a dozen, or half", {"n": 6}),
        ("half a kilo", {"n": 0.5}),
        ("25 euros and fifty cents", {"n": 25.5}),
        ("43 dollars 20 cents back", {"n": 43.2}),
        ("on the third of May", {"day": "2026-05-03"}),
        ("on May the 3rd", {"day": "2026-05-03"}),
        ("on the twenty-first of July 2027", {"day": "2027-07-21"}),
        ("on 6 January", {"day": "2027-01-06"}),  # the next one
        ("on Friday", {"day": "2026-04-24"}),
        ("on Monday, 4 May", {"day": "2026-05-04"}),
    ],
)
def test_a_value_may_change_its_format(text: str, inputs: dict[str, Any]) -> None:
    assert misread(SCHEMA, text, inputs, {}, AT) == ""


DESCRIBED = {
    "type": "object",
    "properties": {
        "which": {"type": "object", "minProperties": 1, "properties": {"item": {"type": "string"}}},
        "item": {"type": "string"},
        "pay": {"type": "object", "minProperties": 1, "properties": {"by": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("return the lamp", {"which": {"item": "lamp"}, "item": "lamp"}),
        ("return the lamp by gift card", {"item": "lamp", "pay": {"by": "gift_card"}}),
    ],
)
def test_a_description_may_be_of_what_another_input_says(text: str, inputs: Any) -> None:
    assert misread(DESCRIBED, text, inputs, {}, AT) == ""


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("on 5/2/2026", {"day": "2026-05-02"}),  # or the fifth of February
        ("send it to anna", {"a": "anna", "b": "anna"}),  # said once, used twice
        ("write to joanna", {"a": "anna"}),
        ("pay A-1, not А-1", {"a": "A-2"}),
        ("pay А-17", {"a": "A-17"}),  # a Cyrillic letter
        ('write "hello there" to anna', {"a": "anna"}),  # the quotation is not used
        ("pay A-1 and A-2", {"a": "A-1"}),
        ("one of 12", {"n": 12.5}),
        ("half a dozen from the 3rd of August 2026", {"n": 3, "day": "2026-08-03"}),
        ("some of A-17", {"n": 17, "a": "A-17"}),
        ("a few at 10:30", {"n": 10, "a": "10:30"}),
        ("0,5 of it", {"n": 5}),
        ("1 2-person tent", {"a": "12"}),
        ("at 2.15", {"a": "14:15"}),
        ("43 dollars 2 days", {"n": 43.2}),
        ("on 6 January", {"day": "2026-01-06"}),  # it is over
        ("on Friday", {"day": "2026-04-17"}),
        ("on Monday, 4 May", {"day": "2026-04-20"}),
        ("half past nine", {"a": "09:15"}),
        ("on 9 July 2026", {"a": "09:00", "day": "2026-07-09"}),
        ("for 9 of them", {"a": "09:00", "n": 9}),
        ("on 3 or 5 August 2026", {"day": "2026-08-03"}),
        ("for 30418826 and 3", {"n": 3}),
        ("at 112b on 8 July 2026", {"day": "2026-07-08"}),
        ("at 112 on 8 July 2026", {"a": "8", "day": "2026-07-08"}),
    ],
)
def test_a_value_that_nobody_said_is_refused(text: str, inputs: dict[str, Any]) -> None:
    assert misread(SCHEMA, text, inputs, {}, AT) != ""


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("A boy wrote 'x'. His note \"BT-1 from red\" is on my boat", {"a": "BT-1", "b": "red"}),
        ("Take BT-16C or BT-16G", {"a": "BT-16C"}),
    ],
)
def test_what_the_request_says_and_no_input_uses_hands_over(
    text: str, inputs: dict[str, Any]
) -> None:
    assert misread(SCHEMA, text, inputs, {}, AT)


@pytest.mark.parametrize(
    ("text", "inputs", "left"),
    [
        ("BT-1, and 4 more", {"a": "BT-1"}, ["4"]),
        ("moving on the 31st, so 28 aug 2026", {"day": "2026-08-28"}, ["31st"]),
        ("North or south, as you like", {"side": "south"}, ["north"]),
        ("call 43 664 555 0275 1", {"a": "436645550275"}, ["1"]),
        ("4 of them at 4 bar", {"n": 4}, []),
    ],
)
def test_a_lone_number_or_member_that_no_input_uses_is_a_wish(
    text: str, inputs: dict[str, Any], left: list[str]
) -> None:
    schema = {"properties": {**SCHEMA["properties"], "side": {"enum": ["north", "south"]}}}
    assert not misread(schema, text, inputs, {}, AT)
    assert unexpressed(schema, text, inputs, AT) == left
    found = checked(
        Routine(name="r", input_schema=schema), text, Reading(True, inputs, [], []), {}, AT
    )
    assert len(found.wishes) == len(left)
    assert bool(found.problem) == bool(left)
    assert found.inputs == inputs


def test_a_number_beside_the_name_of_an_input_is_that_inputs() -> None:
    schema = {"properties": {"unused_days": {"type": "integer"}, "euros": {"type": "number"}}}
    text = "Unused days 2, pay back 88, please"
    assert misread(schema, text, {"unused_days": 88, "euros": 2}, {}, AT)
    assert not misread(schema, text, {"unused_days": 2, "euros": 88}, {}, AT)


def test_numbers_in_words_are_read() -> None:
    words = "two hundred and five of one thousand or thirty two or twelve".split()
    assert [*numbers_in(words)] == [205, 1000, 32, 12]


@pytest.mark.parametrize(
    ("more", "missing"),
    [({}, ["side", "note"]), ({"side": None, "note": ""}, []), ({"note": None}, ["note"])],
)
def test_what_a_model_leaves_open_of_inputs_that_need_not_be_given_is_not_asked_for(
    folder: Path, more: dict[str, Any], missing: list[str]
) -> None:
    answer = reading({**INPUTS, **more}, missing=missing)
    text = "Could BT-44 stay with you five nights, from 2 May 2026?"
    for words, replies in [(text, [answer]), (f"{text} We are 4.", [answer, YES])]:
        result, booked = run(folder, {"request": words}, *replies)
        assert (result.status, booked) == ("ok", [("BT-44", 5)])


def test_a_value_of_another_type_or_case_is_taken_as_the_schema_wants_it() -> None:
    schema = {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "sides": {"type": "array", "items": {"enum": ["north_side", "south"]}},
        },
    }
    found = Reading(True, {"count": "3", "sides": ["North side"]}, [], [])
    bound = checked(Routine(name="r", input_schema=schema), "3 on the North side", found, {}, AT)
    assert bound.inputs == {"count": 3, "sides": ["north_side"]}
    wrong = Reading(True, {"count": "three"}, [], [])
    assert checked(Routine(name="r", input_schema=schema), "three", wrong, {}, AT).problem


def test_a_model_may_use_the_names_of_the_recordings() -> None:
    schema = {"type": "object", "properties": {"the_days": {"type": "integer", "title": "days"}}}
    found = Reading(True, {"days": 3}, [], [])
    bound = checked(Routine(name="r", input_schema=schema), "for 3 days", found, {}, AT)
    assert (bound.inputs, bound.problem) == ({"the_days": 3}, "")


WISHED = "BT-44 from 2 May 2026 for 5 nights, berth 7 was too loud"
YES, NO = {"yes": True, "reason": "nothing else is asked"}, {"yes": False, "reason": "too loud"}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("replies", "done"),
    [
        ([YES], [("BT-44", 5)]),
        ([NO], []),
        (["Sure"] * 3, []),
        ([LlmUnavailable("no", place="")], []),
    ],
)
def test_a_wish_is_done_only_if_the_model_agrees_to_the_plan(
    folder: Path, replies: list[Any], done: list[Any], *, is_async: bool
) -> None:
    client, booked = ScriptedClient([reading(INPUTS), *replies]), []
    tools = {"book": lambda boat, nights: booked.append((boat, nights)) or "ok"}
    given = {"request": WISHED}
    if is_async:
        result = asyncio.run(arun_routine(folder, given, tools, client=client))
    else:
        result = run_routine(folder, given, tools, client=client)
    assert booked == done
    assert result.status == ("ok" if done else "needs_input")
    assert done or (result.reason is not None and result.reason.step_id == "input")


def test_one_call_is_the_plain_path_and_a_second_question_is_an_option(folder: Path) -> None:
    booked: list[Any] = []
    tools = {"book": lambda boat, nights: booked.append((boat, nights)) or "ok"}
    full, given = reading({**INPUTS, "side": "south"}), {"request": NATURAL}
    for replies, asks_twice, done in [
        ([full], False, 1),
        ([full, NO], True, 1),
        ([full, YES], True, 2),
    ]:
        client = ScriptedClient(replies)
        run_routine(folder, given, tools, client=client, second_question=asks_twice)
        assert len(client.requests) == len(replies)
        assert len(booked) == done


def test_a_template_needs_no_second_question(folder: Path) -> None:
    words = {"request": "book BT-9 from 2026-06-01 for 2 nights"}
    tools = {"book": lambda boat, nights: "ok"}
    client = ScriptedClient([])
    assert run_routine(folder, words, tools, client=client, second_question=True).status == "ok"


LISTED = """
version: "1"
name: renew
checks: hand_over
input_schema:
  type: object
  required: [title, card]
  properties: {title: {type: string}, card: {type: string}}
tools: [{name: loans, effect: read}, {name: renew, effect: write}]
steps:
- {id: loans, type: tool.call, tool: loans, args: {card: "{{ card }}"}, save_as: loans}
- {id: loan, type: let, value: "{{ only(loans, title=title) }}", save_as: loan}
- {id: renew, type: tool.call, tool: renew, args: {loan: "{{ loan.id }}"}, save_as: done, effect: write}
- {id: result, type: return, value: "{{ done }}"}
"""  # noqa: E501 - a line of YAML
LOANS = [
    {"id": 1, "title": "The Hobbit, or There and Back Again"},
    {"id": 2, "title": "Emma"},
    {"id": 3, "title": "Emma"},
]


@pytest.mark.parametrize(
    ("inputs", "replies", "renewed"),
    [
        ({"card": "C-1", "title": LOANS[0]["title"]}, [], [1]),  # said in part
        ({"card": "C-1", "title": "The Hobbit, a Play"}, [], []),  # no record has it
        ({"card": "C-1", "title": "Emma"}, [YES], []),  # two have it
        ({"card": "C-2", "title": LOANS[0]["title"]}, [], []),  # the routine chooses no card
    ],
)
def test_what_names_the_only_record_of_a_list_need_not_stand_in_the_request(
    tmp_path: Path, inputs: dict[str, str], replies: list[Any], renewed: list[int]
) -> None:
    assert renewal(tmp_path, "please renew the hobbit on C-1", inputs, replies) == renewed


@pytest.mark.parametrize(("reply", "renewed"), [(YES, [1]), (NO, [])])
def test_a_record_of_which_the_request_says_no_word_must_be_agreed_to(
    tmp_path: Path, reply: Any, renewed: list[int]
) -> None:
    inputs = {"card": "C-1", "title": LOANS[0]["title"]}
    assert renewal(tmp_path, "renew my fantasy novel, C-1", inputs, [reply]) == renewed


def renewal(folder: Path, text: str, inputs: dict[str, str], replies: list[Any]) -> list[int]:
    (folder / "routine.yaml").write_text(LISTED)
    renewed: list[int] = []

    def renew(loan: int) -> None:
        renewed.append(loan)

    tools = {"loans": lambda card: LOANS, "renew": renew}
    client = ScriptedClient([reading(inputs), *replies])
    result = run_routine(folder, {"request": text}, tools, client=client)
    assert (result.status == "ok") == bool(renewed)
    return renewed


@pytest.mark.parametrize("part", ["5 {n} ", "5 may {n} ", "half {n} past ten "])
def test_a_long_request_is_read_in_as_many_steps_as_it_has_words(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    read: list[int] = []
    plain = reading_module.spans

    def counted(words: Any, *args: Any, **options: Any) -> Any:
        read.append(len(words))
        return plain(words, *args, **options)

    monkeypatch.setattr(reading_module, "spans", counted)
    steps = []
    for count in (20, 200):
        text = "".join(part.format(n=2000 + number % 90) for number in range(count))
        read.clear()
        misread(SCHEMA, text, {"n": 5}, {}, AT)
        unexpressed(SCHEMA, text, {"n": 5}, AT)
        steps.append(sum(read))
    assert steps[1] <= 11 * steps[0]
