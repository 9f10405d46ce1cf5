"""What a request leaves open is asked for once: the input schema as a form; an answer is enough."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient
from em.runner.agent_reply import reply
from em.runner.run import RunResult
from em.serve.pages.overview import waiting_runs

ROUTINE = """
name: book_berth
checks: hand_over
requests: ["Book {boat} for {nights} nights."]
input_schema:
  type: object
  required: [boat, nights]
  additionalProperties: false
  properties:
    boat: {type: string, pattern: "^BT-[0-9]+$"}
    nights: {type: integer, minimum: 1}
    side: {enum: [north, south]}
tools: [{name: look, effect: read}, {name: book, effect: write}]
steps:
- {id: look, type: tool.call, tool: look, args: {boat: "{{ boat }}"}, save_as: seen,
   expect: {properties: {fits: {const: true}}}}
- {id: book, type: tool.call, tool: book, args: {boat: "{{ boat }}", nights: "{{ nights }}"}}
- {id: result, type: return, value: "{{ side | default('any') }}"}
"""
WORDS = {"request": "Could BT-44 stay with you? Five nights I think, on the south side."}
EVERY = {"boat": "BT-44", "nights": 5, "side": "south"}


class Marina:
    def __init__(self) -> None:
        self.booked: list[Any] = []
        self.fits = True

    @property
    def tools(self) -> dict[str, Any]:
        return {"look": lambda boat: {"fits": self.fits}, "book": self.book}

    def book(self, boat: str, nights: int) -> str:
        self.booked.append((boat, nights))
        return "ok"


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    with Memory(tmp_path / "em.db") as opened:
        yield opened


def asked(result: RunResult) -> dict[str, bool]:
    """Return the fields of the form, and whether each must be filled."""
    assert (result.status, result.reason) == ("needs_input", None)
    assert result.pending_prompt is not None
    assert result.pending_prompt.step_id == "inputs"
    return {one["name"]: one.get("required", True) for one in result.pending_prompt.fields}


FORM = {"boat": True, "nights": True, "side": False}


@pytest.mark.parametrize("answer", [EVERY, {"boat": "BT-44", "nights": 5}])
def test_an_answer_with_every_value_is_not_asked_for_again(
    memory: Memory, tmp_path: Path, answer: Any
) -> None:
    marina = Marina()
    result = memory.run(tmp_path, WORDS, marina.tools)
    assert (asked(result), marina.booked) == (FORM, [])
    done = memory.resume(result.run_id, marina.tools, answers={"inputs": answer})
    assert (done.status, done.output) == ("ok", answer.get("side", "any"))
    assert marina.booked == [("BT-44", 5)]


def test_an_answer_may_come_with_the_request(memory: Memory, tmp_path: Path) -> None:
    marina = Marina()
    result = memory.run(tmp_path, WORDS, marina.tools, answers={"inputs": EVERY})
    assert (result.status, marina.booked) == ("ok", [("BT-44", 5)])


def test_only_what_an_answer_lacks_or_has_wrong_is_asked_for_again(
    memory: Memory, tmp_path: Path
) -> None:
    marina = Marina()
    result = memory.run(tmp_path, WORDS, marina.tools)
    again = memory.resume(result.run_id, marina.tools, answers={"inputs": {"boat": "BT-44"}})
    assert asked(again) == {"nights": True, "side": False}
    assert again.pending_prompt is not None
    assert "BT-44" in again.pending_prompt.message
    wrong = memory.resume(result.run_id, marina.tools, answers={"inputs": {"nights": 0}})
    assert asked(wrong) == {"nights": True, "side": False}
    assert wrong.pending_prompt is not None
    assert "nights" in wrong.pending_prompt.problem
    assert marina.booked == []
    done = memory.resume(result.run_id, marina.tools, answers={"inputs": {"nights": 5}})
    assert (done.status, marina.booked) == ("ok", [("BT-44", 5)])


def test_what_is_known_is_shown_and_not_asked_for(memory: Memory, tmp_path: Path) -> None:
    marina = Marina()
    result = memory.run(tmp_path, {**WORDS, "boat": "BT-44"}, marina.tools)
    assert asked(result) == {"nights": True, "side": False}
    assert result.pending_prompt is not None
    assert 'boat is "BT-44"' in result.pending_prompt.message
    done = memory.resume(result.run_id, marina.tools, answers={"inputs": {"nights": 5}})
    assert (done.status, marina.booked) == ("ok", [("BT-44", 5)])


def test_a_failed_check_is_no_form(memory: Memory, tmp_path: Path) -> None:
    marina = Marina()
    marina.fits = False
    result = memory.run(tmp_path, {"boat": "BT-44", "nights": 5}, marina.tools)
    assert (result.status, result.pending_prompt) == ("needs_input", None)
    assert result.reason is not None
    assert (result.reason.check, result.reason.now) == ("seen.fits", False)
    waiting = memory.run(tmp_path, WORDS, marina.tools)
    done = memory.resume(waiting.run_id, marina.tools, answers={"inputs": EVERY})
    assert (done.status, done.pending_prompt, marina.booked) == ("needs_input", None, [])
    assert done.reason is not None


@pytest.mark.parametrize("text", ["", " \n", "x" * 1_000_001, "Book BT-44 for x nights"])
def test_a_request_that_says_nothing_or_too_much_acts_nowhere(
    memory: Memory, tmp_path: Path, text: str
) -> None:
    marina = Marina()
    result = memory.run(tmp_path, {"request": text}, marina.tools)
    assert (result.status, marina.booked) == ("needs_input", [])
    if not text.strip() or len(text) > 100:
        assert (result.pending_prompt, bool(result.reason)) == (None, True)


def test_a_routine_that_needs_no_input_is_not_run_on_words_that_nobody_read(
    memory: Memory, tmp_path: Path
) -> None:
    (tmp_path / "routine.yaml").write_text(ROUTINE.replace("  required: [boat, nights]\n", ""))
    marina = Marina()
    result = memory.run(tmp_path, {"request": "please don't"}, marina.tools)
    assert (result.status, result.pending_prompt, marina.booked) == ("needs_input", None, [])


def test_what_a_model_misread_is_no_form(memory: Memory, tmp_path: Path) -> None:
    marina = Marina()
    reading = {"fits": True, "inputs": {"boat": "BT-45"}, "missing": [], "not_expressed": []}
    client = ScriptedClient([reading])
    result = memory.run(tmp_path, WORDS, marina.tools, client=client)
    assert (result.status, result.pending_prompt, marina.booked) == ("needs_input", None, [])


def test_where_nobody_can_be_asked_the_run_hands_over(memory: Memory, tmp_path: Path) -> None:
    marina = Marina()
    result = memory.run(tmp_path, WORDS, marina.tools, asks=False)
    assert (result.status, result.pending_prompt, marina.booked) == ("needs_input", None, [])
    assert result.reason is not None
    assert result.reason.step_id == "inputs"


def test_a_question_that_nobody_answers_does_not_wait_for_ever(
    memory: Memory, tmp_path: Path
) -> None:
    marina = Marina()
    memory.run(tmp_path, WORDS, marina.tools, run_id="asked")

    def lost(boat: str, nights: int) -> str:
        raise TimeoutError("no answer")

    memory.run(tmp_path, EVERY, {**marina.tools, "book": lost}, run_id="lost")
    memory.run(tmp_path, WORDS, marina.tools, run_id="agent", asks=False)
    began = datetime.now(UTC)

    def waiting(since: datetime) -> list[str]:
        return [one.id for one in waiting_runs(memory.store, since)]

    assert waiting(began - timedelta(days=7)) == ["lost", "asked"]
    assert waiting(began + timedelta(minutes=1)) == ["lost"]  # what became of it must be said
    done = memory.resume("asked", marina.tools, answers={"inputs": EVERY})
    assert done.status == "ok"  # it can be answered all the same


LISTED = """
name: cancel_order
checks: hand_over
requests: ["Cancel {order} for {email}."]
input_schema:
  type: object
  required: [email, order]
  properties: {email: {type: string}, order: {type: string}}
tools: [{name: find_user, effect: read}, {name: get_order, effect: read}, {name: cancel, effect: write}]
steps:
- {id: user, type: tool.call, tool: find_user, args: {email: "{{ email }}"}, save_as: user}
- {id: own, type: assert, check: "order in user.orders", held: 4/4}
- {id: get, type: tool.call, tool: get_order, args: {order: "{{ order }}"}, save_as: found,
   expect: {properties: {status: {const: pending}}}}
- {id: cancel, type: tool.call, tool: cancel, args: {order: "{{ found.id }}"}}
"""  # noqa: E501 - a line of YAML


def desk(statuses: dict[str, str], cancelled: list[str]) -> dict[str, Any]:
    def cancel(order: str) -> None:
        cancelled.append(order)

    return {
        "find_user": lambda email: {"orders": [*statuses]},
        "get_order": lambda order: {"id": order, "status": statuses[order]},
        "cancel": cancel,
    }


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    (tmp_path / "routine.yaml").write_text(LISTED)
    return tmp_path


GUS = {"email": "gus@mail.example"}


def test_one_candidate_that_passes_all_checks_is_taken_and_shown(
    memory: Memory, listed: Path
) -> None:
    cancelled: list[str] = []
    tools = desk({"W-1": "shipped", "W-2": "pending", "W-3": "shipped"}, cancelled)
    result = memory.run(listed, GUS, tools)
    assert (result.status, result.chosen, cancelled) == ("ok", {"order": "W-2"}, ["W-2"])
    (answered,) = memory.log.read(kinds=["run_answered"])
    assert answered.body == {"answers": {"inputs": {"order": "W-2"}}}


def test_one_of_two_inputs_that_stand_for_each_other_is_enough(
    memory: Memory, listed: Path
) -> None:
    text = LISTED.replace(
        "required: [email, order]",
        "required: [email]\n  allOf: [{anyOf: [{required: [order]}, {required: [which]}]}]",
    ).replace("order: {type: string}}", "order: {type: string}, which: {type: object}}")
    (listed / "routine.yaml").write_text(text)
    cancelled: list[str] = []
    result = memory.run(listed, GUS, desk({"W-1": "shipped", "W-2": "pending"}, cancelled))
    assert (result.status, result.chosen, cancelled) == ("ok", {"order": "W-2"}, ["W-2"])
    result = memory.run(listed, GUS, desk({"W-1": "pending", "W-2": "pending"}, cancelled))
    assert (asked(result), cancelled) == ({"order": True}, ["W-2"])


@pytest.mark.parametrize("statuses", [["pending", "pending", "shipped"], ["shipped"], []])
def test_several_candidates_are_shown_and_none_is_taken(
    memory: Memory, listed: Path, statuses: list[str]
) -> None:
    cancelled: list[str] = []
    tools = desk({f"W-{n}": one for n, one in enumerate(statuses)}, cancelled)
    result = memory.run(listed, GUS, tools)
    assert (asked(result), cancelled, result.chosen) == ({"order": True}, [], {})
    assert result.pending_prompt is not None
    (field,) = result.pending_prompt.fields
    assert field.get("candidates", []) == ["W-0", "W-1"][: statuses.count("pending")]
    if statuses[1:]:
        done = memory.resume(result.run_id, tools, answers={"inputs": {"order": "W-1"}})
        assert (done.status, cancelled) == ("ok", ["W-1"])


def test_a_plan_has_the_one_candidate_and_commits_it(memory: Memory, listed: Path) -> None:
    cancelled: list[str] = []
    tools = desk({"W-1": "shipped", "W-2": "pending"}, cancelled)
    plan = memory.prepare(listed, GUS, tools)
    assert (plan.status, plan.chosen, cancelled) == ("ok", {"order": "W-2"}, [])
    assert (memory.commit(plan.token, tools).status, cancelled) == ("ok", ["W-2"])


def test_an_agent_is_told_what_was_chosen(memory: Memory, listed: Path) -> None:
    result = memory.run(listed, GUS, desk({"W-2": "pending"}, []))
    assert reply(result)["chosen"] == {"order": "W-2"}


def test_candidates_of_one_of_several_missing_inputs_are_shown(
    memory: Memory, listed: Path
) -> None:
    text = LISTED.replace("required: [email, order]", "required: [email, order, why]")
    text = text.replace("properties: {email", "properties: {why: {type: string}, email")
    (listed / "routine.yaml").write_text(text)
    cancelled: list[str] = []
    result = memory.run(listed, GUS, desk({"W-1": "shipped", "W-2": "pending"}, cancelled))
    assert asked(result) == {"order": True, "why": True}
    assert result.pending_prompt is not None
    fields = {field["name"]: field.get("candidates") for field in result.pending_prompt.fields}
    assert (fields, cancelled) == ({"order": ["W-1", "W-2"], "why": None}, [])


def test_nothing_is_chosen_for_words_that_nobody_read(memory: Memory, listed: Path) -> None:
    cancelled: list[str] = []
    tools = desk({"W-2": "pending"}, cancelled)
    result = memory.run(listed, {"request": "keep what gus@mail.example has", **GUS}, tools)
    assert (result.status, result.chosen, cancelled) == ("needs_input", {}, [])


def test_a_choice_stays_when_the_run_is_resumed(memory: Memory, listed: Path) -> None:
    statuses, cancelled = {"W-2": "pending"}, list[str]()
    tools = desk(statuses, cancelled)

    def lost(order: str) -> None:
        cancelled.append(order)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.run(listed, GUS, {**tools, "cancel": lost}, run_id="cut")
    statuses["W-3"], statuses["W-2"] = "pending", "shipped"
    answers = {"cancel?": {"happened": True}}
    assert memory.resume("cut", tools, answers=answers).status == "ok"
    assert cancelled == ["W-2"]


def test_candidates_are_shown_beside_a_request_that_nobody_read(
    memory: Memory, listed: Path
) -> None:
    cancelled: list[str] = []
    tools = desk({"W-1": "pending", "W-2": "shipped"}, cancelled)
    result = memory.run(listed, {**GUS, "request": "the small one, if it is late"}, tools)
    assert (asked(result), cancelled) == ({"order": True}, [])
    assert result.pending_prompt is not None
    (field,) = result.pending_prompt.fields
    assert field["candidates"] == ["W-1"], "it is not taken: nobody read the condition"
