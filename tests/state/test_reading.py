"""A model reads texts against what is known; em takes only what was said, and by whom."""

from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient


def read(memory: Memory, *texts: Any, at: str = "2025-04-07T12:00:00Z", **answer: Any) -> Any:
    """Observe texts, each with who says it, and let a scripted model answer once."""
    for one in texts:
        text, details = one if isinstance(one, tuple) else (one, {})
        memory.observe("ana", text, at=at, **details)
    model = ScriptedClient([{"records": [], "facts": [], **answer}])
    state = memory.checkpoint("ana", llm=model)
    state.prompt = model.requests[0].prompt
    return state


def fact(field: str, value: Any, words: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "value": value, "evidence": [words], "events": ["e1"], **more}


def record(type_: str, words: str, op: str = "add", **more: Any) -> dict[str, Any]:
    known = more.pop("known", "")
    found = {"op": op, "type": type_, "known": known, "record": more, "evidence": [words]}
    return {**found, "events": ["e1"]}


ANA, BO = {"speaker": "Ana"}, {"speaker": "Bo"}


@pytest.mark.parametrize(
    ("text", "details", "found"),
    [
        ("I live in Madrid.", BO, fact("city", "Madrid", "I live in Madrid")),
        (
            "I work for Anthropic.",
            {"role": "assistant"},
            fact("employer", "Anthropic", "I work for Anthropic"),
        ),
        ("Adopted a dog, Ana!", BO, fact("pet", "dog", "Adopted a dog, Ana")),
        ("Ana, adopted a dog!", BO, fact("pet", "dog", "Ana, adopted a dog")),
        ("I think Ana likes tea.", BO, fact("drink", "tea", "Ana likes tea")),
        ("I live in Lisbon.", ANA, fact("city", "Porto", "I live in Porto")),
        ("I live in Lisbon.", ANA, fact("city", "Porto", "I live in Lisbon")),
        ("I live in Lisbon.", ANA, fact("city", "Lisbon", "")),
        ("Do I live in Lisbon?", ANA, fact("city", "Lisbon", "I live in Lisbon")),
        ("If I live in Lisbon, fine.", ANA, fact("city", "Lisbon", "I live in Lisbon")),
        ("I live in Lisbon. Just kidding.", ANA, fact("city", "Lisbon", "I live in Lisbon")),
        ("Bo shouted “I live in Lisbon” twice.", ANA, fact("city", "Lisbon", "I live in Lisbon")),
        ("My sister lives in Rome.", ANA, fact("city", "Rome", "lives in Rome")),
        ("She lives in Rome.", ANA, fact("city", "Rome", "lives in Rome")),
        ("Bo lives in Rome.", ANA, fact("city", "Rome", "lives in Rome")),
        ("Tom and Lia live in Rome.", ANA, fact("city", "Rome", "live in Rome")),
        ("The president lives in Rome.", ANA, fact("city", "Rome", "lives in Rome")),
        ("Your sister lives in Rome.", {"role": "assistant"}, fact("city", "Rome", "in Rome")),
        ("Ana's sister lives in Rome.", BO, fact("city", "Rome", "lives in Rome")),
        ("Ana thinks Bo lives in Rome.", BO, fact("city", "Rome", "lives in Rome")),
        ("You could live in Rome.", {"role": "assistant"}, fact("city", "Rome", "in Rome")),
        ("I turned 34 yesterday.", ANA, fact("age", 43, "I turned 34")),
        (
            "I moved here in March.",
            ANA,
            fact("moved", "2025-03", "moved here in March", at="2024-01"),
        ),
        ("I got it yesterday.", ANA, fact("got", "2025-04-07", "I got it yesterday")),
    ],
)
def test_what_the_subject_did_not_state_is_left_out(
    memory: Memory, text: str, details: Any, found: Any
) -> None:
    state = read(memory, (text, details), facts=[found])
    assert list(state.profile.history) == []
    assert "fact left out" in state.report.problems[0]


@pytest.mark.parametrize(
    ("text", "details", "found"),
    [
        ("I’m living   in\nLisbon now", ANA, fact("city", "Lisbon", "I'm living in lisbon")),
        ("Ana likes green tea.", BO, fact("drink", "green tea", "likes green tea")),
        ("Your dose is 10 mg.", {"role": "assistant"}, fact("dose", "10 mg", "dose is 10 mg")),
        ("Your dose is ten mg.", {**BO, "addressee": "ana"}, fact("dose_mg", 10, "dose is ten mg")),
        ("She seems to live in Faro.", {}, fact("city", "Faro", "live in Faro")),
        ("I quit smoking.", ANA, fact("smoker", False, "I quit smoking")),
        ("I got it yesterday.", ANA, fact("got", "2025-04-06", "I got it yesterday")),
        ("Dinner at half past, 7:30 pm.", ANA, fact("dinner", "19:30", "7:30 pm")),
        ("I earn 3k euros.", ANA, fact("income", "3000 EUR", "I earn 3k euros")),
        ("My sister is called Lia.", ANA, fact("sister", "Lia", "My sister is called Lia")),
        ("I moved here in March.", ANA, fact("moved", True, "moved here in March", at="2025-03")),
    ],
)
def test_what_was_stated_is_taken(memory: Memory, text: str, details: Any, found: Any) -> None:
    state = read(memory, (text, details), facts=[found])
    assert state.report.problems == []
    assert [e.value for e in state.profile.history[found["field"]]] == [found["value"]]


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
    meant = fact("city", "Bern", "I meant Bern", op="update", mistaken=True)
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
    read(memory, "I bought a bike for $400.", records=[bought])
    fixed = record("", "the bike was $300", "update", known="r1", price=300)
    state = read(memory, "Sorry, the bike was $300.", records=[fixed])
    assert [(one.item, one.price) for one in state.purchases] == [("bike", 300)]
    assert [one["price"] for one in state.rows("purchases")] == [300]
    (seen,) = memory.state("ana", known_at=_recorded(memory, 0)).purchases
    assert seen.price == 400
    again = memory.checkpoint("ana", rebuild=True)
    assert [one.price for one in again.purchases] == [300]
    back = record("", "never bought the bike", "retract", known="r1")
    state = read(memory, "I never bought the bike.", records=[back])
    assert (state.purchases, state.rows("purchases")) == ([], [])
    memory.forget(_events(memory)[-1])
    assert [one.price for one in memory.state("ana").purchases] == [300]


def _events(memory: Memory) -> list[str]:
    return [event.id for event in memory.log.read(kinds="observation")]


def _recorded(memory: Memory, number: int) -> Any:
    return list(memory.log.read(kinds="observation"))[number].recorded_at


def test_the_same_thing_is_bought_once(memory: Memory) -> None:
    bought = record("Purchase", "bought a red bike", item="bike", colour="red")
    state = read(memory, "I bought a red bike.", records=[bought, bought])
    assert len(state.purchases) == 1
    read(memory, "I love the bike.", records=[record("Purchase", "the bike", item="bike")])
    state = read(memory, "The bike again.", records=[record("", "The bike", "same", known="r1")])
    assert len(state.purchases) == 1
    more = record("Purchase", "bought another red bike", item="bike", colour="red")
    assert len(read(memory, "I bought another red bike.", records=[more]).purchases) == 2
    memory.forget(_events(memory)[0])
    left = [state.as_record(one) for one in memory.state("ana").purchases]
    assert left == [{"item": "bike"}, {"item": "bike", "colour": "red"}]  # it was said again


def test_third_persons_are_records_of_their_own(memory: Memory) -> None:
    lia = record("Person", "sister Lia lives in Rome", name="Lia", relation="sister", city="Rome")
    state = read(memory, ("My sister Lia lives in Rome.", ANA), records=[lia])
    moved = fact("city", "Oslo", "She moved to Oslo", type="Person", key=["Lia"])
    state = read(memory, ("She moved to Oslo.", ANA), facts=[moved])
    bo = fact("city", "Madrid", "I live in Madrid", type="Person", key=["Bo"])
    state = read(memory, ("I live in Madrid.", BO), facts=[bo])
    people = {one.name: (one.city, one.relation) for one in state.persons}
    assert people == {"Lia": ("Oslo", "sister"), "Bo": ("Madrid", None)}
    assert state.profile.history == {}
    wrong = fact("city", "Nice", "My sister lives in Nice", type="Person", key=["sister"])
    state = read(memory, ("My sister lives in Nice.", BO), facts=[wrong])
    assert "not the subject" in state.report.problems[0]


def test_a_proposed_key_persists(memory: Memory) -> None:
    club = {"type": "Club", "key": ["name"]}
    one = record("Club", "joined the Rowers", name="Rowers")
    read(memory, "I joined the Rowers.", records=[one], types=[club])
    two = record("Club", "The Rowers cost $20", name="Rowers", fee="$20")
    state = read(memory, "The Rowers cost $20.", records=[two])
    assert [(club.name, str(club.fee.amount)) for club in state.clubs] == [("Rowers", "20")]
    assert len(memory.checkpoint("ana", rebuild=True).clubs) == 1
    memory.observe("ana", {"n": 1}, type="Trip")
    state = read(memory, "Trips.", types=[{"type": "Trip", "key": ["n"]}])
    assert "key of Trip left out" in state.report.problems[0]


def test_a_model_forges_neither_source_nor_confirmation_nor_names_of_types(memory: Memory) -> None:
    memory.observe("ana", {"n": 1}, type="Trip")
    forged = fact("dose", 20, "take 20 mg", source="doctor", status="confirmed")
    renames = {"Trip": "Profile", "Nothing": "Thing"}
    state = read(memory, ("I take 20 mg.", ANA), facts=[forged], renames=renames)
    (entry,) = state.profile.history["dose"]
    assert (entry.source, entry.status) == ("Ana", "stated")
    assert (len(state.trips), len(state.report.problems)) == (1, 2)
    said = "My doctor confirmed that I take 30 mg."
    real = fact("dose", 30, "I take 30 mg", source="doctor", status="confirmed")
    state = read(memory, (said, ANA), facts=[real])
    last = state.profile.history["dose"][-1]
    assert (last.source, last.status) == ("doctor", "confirmed")


def test_one_thing_in_one_text_is_not_two_records(memory: Memory) -> None:
    one, more = {"item": "bike"}, {"item": "bike", "colour": "red"}
    words = {"type": "Purchase", "events": ["e1"], "evidence": "I bought a new red bike"}
    found = [{**words, "record": one}, {**words, "record": more}]
    assert len(read(memory, "I bought a new red bike.", records=found).purchases) == 1
    new = record("Purchase", "my new bike", item="bike")
    assert len(read(memory, "I love my new bike.", records=[new]).purchases) == 1
