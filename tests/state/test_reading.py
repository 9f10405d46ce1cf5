"""A model reads texts against what is known; em takes only what was said, and by whom."""

from typing import Any

import msgspec
import pytest

from em import Memory
from em.llm import ScriptedClient
from em.log.event import EventQuery


def read(
    memory: Memory, *texts: Any, at: str = "2025-04-07T12:00:00Z", yes: Any = ("s1",), **answer: Any
) -> Any:
    """Observe texts, each with who says it, and let a scripted model answer.

    yes: what it answers to the second question, if it is asked.
    """
    for one in texts:
        text, details = one if isinstance(one, tuple) else (one, {})
        memory.observe("ana", text, at=at, **details)
    model = ScriptedClient([{"facts": [], **answer}, {"stated": list(yes)}])
    state = memory.checkpoint("ana", llm=model)
    state.prompt, state.asked = model.requests[0].prompt, len(model.requests)
    return state


def fact(field: str, value: Any, words: str, **more: Any) -> dict[str, Any]:
    said = {"field": field, "value": value, "evidence": [words], "events": ["e1"]}
    return {"op": "set", **said, **more}


def record(type_: str, words: str, op: str = "add", **more: Any) -> dict[str, Any]:
    known = more.pop("known", "")
    found = {"op": op, "type": type_, "known": known, "record": more, "evidence": [words]}
    return {**found, "events": ["e1"]}


ANA, BO = {"speaker": "Ana"}, {"speaker": "Bo"}


def test_the_model_sees_who_speaks_and_what_is_known(memory: Memory) -> None:
    memory.observe("ana", {"city": "Paris"}, type="Profile", at="2024-05-01")
    memory.observe("ana", {"item": "bike", "price": 300}, type="Purchase")
    memory.observe("ana", {"item": "lamp", "price": 20}, type="Purchase")
    said = {"speaker": "Bo", "role": "user", "addressee": "Ana"}
    prompt = read(memory, ("Nice bike!", said)).prompt
    assert 'The subject is "ana".' in prompt
    assert 'Profile.city = "Paris" (since 2024-05-01, stated)' in prompt
    assert 'r1 Purchase: {"item":"bike","price":300}' in prompt
    assert "lamp" not in prompt
    assert '"Bo" [not the subject, "user"] to "Ana": "Nice bike!"' in prompt


def test_a_correction_changes_the_past_and_a_retraction_ends_it(memory: Memory) -> None:
    found = fact("city", "Paris", "live in Paris")
    read(memory, "I live in Paris.", facts=[found], at="2025-01-01")
    meant = fact("city", "Bern", "I meant Bern", mistaken=True)
    state = read(memory, "I meant Bern.", facts=[meant], at="2025-02-01")
    assert state.profile.city == "Bern"
    assert memory.state("ana", as_of="2025-01-15").profile.city == "Bern"
    assert [e.value for e in state.profile.history["city"]] == ["Paris", "Bern"]
    gone = {"op": "retract", "field": "city", "evidence": ["I left"], "events": ["e1"]}
    state = read(memory, "I left.", facts=[gone], at="2025-03-01")
    assert state.profile.city is None
    assert memory.state("ana", as_of="2025-02-15").profile.city == "Bern"
    assert memory.checkpoint("ana", rebuild=True).profile.city is None
    never = {**gone, "evidence": ["I never said that"]}
    assert "no value" in read(memory, "I never said that.", facts=[never]).report.problems[0]


def test_a_record_is_corrected_and_taken_back_by_its_label(memory: Memory) -> None:
    bought = record("Purchase", "bought a bike for $400", item="bike", price=400)
    read(memory, "I bought a bike for $400.", facts=[bought])
    fixed = record("Purchase", "the bike was $300", "set", known="r1", price=300)
    state = read(memory, "Sorry, the bike was $300.", facts=[fixed])
    assert [(one.item, one.price) for one in state.purchases] == [("bike", 300)]
    assert [one["price"] for one in state.rows("purchases")] == [300]
    (seen,) = memory.state("ana", known_at=_recorded(memory, 0)).purchases
    assert seen.price == 400
    again = memory.checkpoint("ana", rebuild=True)
    assert [one.price for one in again.purchases] == [300]
    back = record("Purchase", "never bought the bike", "retract", known="r1")
    state = read(memory, "I never bought the bike.", facts=[back])
    assert (state.purchases, state.rows("purchases")) == ([], [])
    memory.forget(_events(memory)[-1])
    assert [one.price for one in memory.state("ana").purchases] == [300]


def _events(memory: Memory) -> list[str]:
    return [event.id for event in memory.log.read(kinds="observation")]


def _recorded(memory: Memory, number: int) -> Any:
    return list(memory.log.read(kinds="observation"))[number].recorded_at


def test_a_proposed_key_persists(memory: Memory) -> None:
    club = {"type": "Club", "key": ["name"]}
    one = record("Club", "joined the Rowers", name="Rowers")
    read(memory, "I joined the Rowers.", facts=[one], types=[club])
    two = record("Club", "The Rowers cost $20", name="Rowers", fee="$20")
    state = read(memory, "The Rowers cost $20.", facts=[two])
    assert [(club.name, str(club.fee.amount)) for club in state.clubs] == [("Rowers", "20")]
    assert len(memory.checkpoint("ana", rebuild=True).clubs) == 1
    memory.observe("ana", {"n": 1}, type="Trip")
    state = read(memory, "Trips.", types=[{"type": "Trip", "key": ["n"]}])
    assert "key of Trip left out" in state.report.problems[0]


def test_a_model_forges_neither_source_nor_confirmation(memory: Memory) -> None:
    memory.observe("ana", {"n": 1}, type="Trip")
    forged = fact("dose", 20, "take 20 mg", source="doctor", status="confirmed")
    state = read(memory, ("I take 20 mg.", ANA), facts=[forged])
    (entry,) = state.profile.history["dose"]
    assert (entry.source, entry.status) == ("Ana", "stated")
    assert (len(state.trips), len(state.report.problems)) == (1, 0)
    said = "My doctor confirmed that I take 30 mg."
    real = fact("dose", 30, "I take 30 mg", source="doctor", status="confirmed")
    state = read(memory, (said, ANA), facts=[real])
    last = state.profile.history["dose"][-1]
    assert (last.source, last.status) == ("doctor", "confirmed")


PARIS = [fact("city", "Paris", "live in Paris")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I don't live in Rome, I'd love to.", fact("city", "Rome", "live in Rome")),
        ("I live in Rome, is it far?", fact("city", "Rome", "I live in Rome")),
        ("I left Paris.", {**fact("city", None, "I left Paris"), "op": "retract"}),
    ],
)
@pytest.mark.parametrize("is_stated", [True, False])
def test_only_what_changes_or_is_in_doubt_may_be_asked_about_once_more(
    memory: Memory, text: str, found: Any, is_stated: bool
) -> None:
    settings = memory.subjects.settings
    memory.subjects.settings = msgspec.structs.replace(settings, second_question="changes")
    state = read(memory, "I live in Paris.", facts=PARIS)
    assert state.asked == 1
    state = read(memory, text, facts=[found], yes=["s1"] if is_stated else [])
    assert state.asked == 2
    assert state.profile.city == (found["value"] if is_stated else "Paris")
    assert bool(state.report.problems) is not is_stated


DENIED = "I'd live in Rome if I could."
ROME = {"op": "set", "field": "city", "value": "Rome", "evidence": "live in Rome"}


@pytest.mark.parametrize(
    ("second", "answers", "city", "asked"),
    [
        ("all", [{"stated": []}], None, 1),
        ("all", [{"stated": ["s1"]}], "Rome", 1),
        ("all", ["no"] * 3, None, 3),
        ("changes", [], "Rome", 0),
        ("none", [], "Rome", 0),
    ],
)
def test_a_model_is_asked_about_what_an_agent_read_too(
    memory: Memory, second: Any, answers: Any, city: Any, asked: int
) -> None:
    settings = memory.subjects.settings
    memory.subjects.settings = msgspec.structs.replace(settings, second_question=second)
    memory.observe("ana", DENIED, speaker="Ana", facts=[ROME])
    model = ScriptedClient(answers)
    state = memory.checkpoint("ana", llm=model)
    assert (getattr(state.profile, "city", None), len(model.requests)) == (city, asked)
    assert len(state.report.problems) == len(state.unstructured) == (city is None)
    if asked:
        assert f'e1 {state_time(state)} "Ana" [the subject]: "{DENIED}"' in model.requests[0].prompt
        assert '"value":"Rome"' in model.requests[0].prompt


def state_time(state: Any) -> str:
    (event,) = state._store.read(EventQuery(subject="ana", kinds=["observation"]))
    return str(event.at.isoformat())


def test_the_second_question_can_be_turned_off(memory: Memory) -> None:
    settings = memory.subjects.settings
    memory.subjects.settings = msgspec.structs.replace(settings, second_question="none")
    read(memory, "I live in Paris.", facts=PARIS)
    state = read(memory, "I live in Rome.", facts=[fact("city", "Rome", "I live in Rome")])
    assert (state.asked, state.profile.city) == (1, "Rome")
    state = read(memory, "I live in Bern?", facts=[fact("city", "Bern", "I live in Bern")])
    assert (state.asked, state.profile.city, len(state.report.problems)) == (1, "Rome", 1)


def test_a_text_that_its_caller_has_read_goes_to_no_model(memory: Memory) -> None:
    memory.observe("ana", "Nothing to note.", facts=[])
    model = ScriptedClient([])
    memory.checkpoint("ana", llm=model)
    assert model.requests == []
