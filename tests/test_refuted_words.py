"""Traces that did something else than their requests say teach nothing that may be acted on."""

import pytest

from em.compiler.calls import calls_of
from em.compiler.homes import Example
from em.compiler.kind_draft import draft_kind
from em.errors import RoutineError
from em.runner.trial import Trial, Trials
from em.traces.trace import Mission, ToolCall, Trace


def closed(number: int, said: str, ticket: str, reason: str) -> Example:
    person = f"P-30{number}"
    tickets = [f"T-{number}14", f"T-{number}24"]
    events = [
        ToolCall(tool="find_person", args={"email": f"u{number}@it.example"}, result=person,
                 effect="read"),
        ToolCall(tool="get_person", args={"person_id": person},
                 result={"person_id": person, "tickets": tickets}, effect="read"),
        ToolCall(tool="get_ticket", args={"ticket_id": ticket},
                 result={"ticket_id": ticket, "owner": person, "status": "open"}, effect="read"),
        ToolCall(tool="close_ticket", args={"ticket_id": ticket, "reason": reason},
                 result={"ticket_id": ticket, "status": "closed"}, effect="write"),
    ]  # fmt: skip
    calls, _ = calls_of(Trace(mission=Mission(goal=said), events=events), {})
    return Example(calls, said)


def traces(ticket: str) -> dict[str, Example]:
    """Return three tasks that name the first ticket of a person; `ticket` ends the one closed."""
    said = [
        "I'm u1@it.example. Close T-114, solved.",
        "I'm u2@it.example, please close T-214, solved.",
        "u3@it.example: close T-314, duplicate.",
    ]
    reasons = ["solved", "solved", "duplicate"]
    return {
        f"trace {n}": closed(n, words, f"T-{n}{ticket}", reason)
        for n, words, reason in zip((1, 2, 3), said, reasons, strict=True)
    }


def test_words_that_name_another_record_than_was_changed_are_refused() -> None:
    with pytest.raises(RoutineError, match="don't explain what was done") as refused:
        draft_kind(traces("24"), name="close")
    assert "where the agent had" in str(refused.value.fix)


def test_by_force_it_is_learnt_with_an_alarm() -> None:
    draft = draft_kind(traces("24"), name="close", force=True)
    assert draft is not None
    assert "NONE of 3 trials" in draft.trials.warning


def test_words_that_name_what_was_changed_are_learnt() -> None:
    draft = draft_kind(traces("14"), name="close")
    assert draft is not None
    assert draft.trials.count("right") >= 1
    assert not draft.trials.warning


def test_a_routine_that_was_never_right_says_so() -> None:
    made = Trials([Trial("a", "handed over", "it asked"), Trial("b", "handed over", "it asked")])
    assert made.warning.startswith("WARNING: this routine did what was recorded in NONE of 2")
    assert (made.as_dict() or {})["warning"] == made.warning
    assert not Trials([Trial("a", "right"), Trial("b", "handed over", "it asked")]).warning
    assert not Trials().warning
