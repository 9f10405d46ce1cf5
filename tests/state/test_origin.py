"""Every fact tells where it comes from; records can be corrected, not only forgotten."""

import datetime
from typing import Any

import pytest
from tests.careful import careful

from em import Memory
from em.errors import InputError, NotFound


def test_a_fact_tells_who_said_it_when_and_in_which_words(memory: Memory) -> None:
    fact = {"op": "set", "field": "city", "value": "Porto", "evidence": "I live in Porto."}
    at = "2025-04-07T12:00:00Z"
    event = memory.observe("ana", "I live in Porto.", speaker="Ana", at=at, facts=[fact])
    why = memory.checkpoint("ana").why("profile.city")
    assert (why.value, why.speaker, why.words) == ("Porto", "Ana", "I live in Porto.")
    assert (why.how, why.confidence, why.event_ids) == ("agent", "stated", (event,))
    assert (why.at.isoformat(), why.recorded_at > why.at) == ("2025-04-07T12:00:00+00:00", True)
    assert memory.subjects.look_up("ana", "profile.city.why")[0]["words"] == "I live in Porto."


def test_what_a_model_and_a_record_and_a_person_say_is_told_apart(memory: Memory) -> None:
    memory.observe("ana", {"age": 33, "city": "Faro"}, type="Profile", speaker="form")
    memory.observe("ana", "I love green tea, and I had a cup today.", role="user")
    words = {"evidence": ["love green tea"], "events": ["e1"]}
    tea = {"op": "set", "field": "drink", "value": "green tea", "status": "inferred", **words}
    cup = {"op": "add", "type": "Cup", "record": {"of": "green tea"}, "status": "inferred", **words}
    state = memory.checkpoint("ana", llm=careful({"facts": [cup, tea]}))
    whys = [state.why(name) for name in ("age", "drink")]
    assert [(one.how, one.confidence) for one in whys] == [
        ("record", "stated"),
        ("model", "inferred"),
    ]
    assert whys[1].words == "love green tea"
    memory.resolve("ana", "city", value="Porto")
    state = memory.checkpoint("ana")
    assert (state.why("city").how, state.why("city").confidence) == ("decision", "decided")
    (cup_,) = state.cups
    why = state.why(cup_)
    assert (why.how, why.words, why.speaker, why.confidence) == (
        "model",
        "love green tea",
        "user",
        "inferred",
    )
    assert state.inferred(cup_)
    with pytest.raises(NotFound, match="no single-valued field"):
        state.why("profile.shoe_size")


def test_a_decision_tells_who_made_it(memory: Memory) -> None:
    memory.observe("ana", {"city": "Faro", "job": "nurse"}, type="Profile", speaker="form")
    memory.observe("ana", {"to": "Rome", "cost": 10}, type="Trip", speaker="form")
    memory.checkpoint("ana")
    (trip,) = memory.state("ana").trips
    memory.subjects.resolve("ana", "city", value="Porto", by="reception")
    memory.subjects.correct("ana", trip, {"cost": 12}, by="accounts")
    memory.subjects.retract("ana", "profile.job", by="reception")
    state = memory.checkpoint("ana")
    assert (state.why("city").speaker, state.why(state.trips[0]).speaker) == (
        "reception",
        "accounts",
    )
    assert state.profile.history["job"][-1].speaker == "reception"
    assert state.field_origins(state.schema.types["Profile"]) == {"city": state.why("city")}


def test_an_event_with_several_values_decides_only_with_the_value(memory: Memory) -> None:
    memory.declare("ana", "Person", "name")
    text = memory.observe("ana", "Bo lives in Rome, and Cy lives in Oslo.", role="user")
    records = [
        {"op": "add", "type": "Person", "record": {"name": name, "city": city}, "evidence": [words]}
        for name, city, words in (
            ("Bo", "Rome", "Bo lives in Rome"),
            ("Cy", "Oslo", "Cy lives in Oslo"),
        )
    ]
    reply = {"facts": [{**one, "events": ["e1"]} for one in records]}
    memory.checkpoint("ana", llm=careful(reply))
    with pytest.raises(InputError, match="several values"):
        memory.resolve("ana", "Person.city", event=text)
    memory.resolve("ana", "Person.city", event=text, key=["Bo"])
    with pytest.raises(NotFound, match="no such value"):
        memory.resolve("ana", "Person.city", event=text, value="Bern")
    memory.resolve("ana", "Person.city", event=text, value="Oslo")
    state = memory.checkpoint("ana")
    (collection,) = state.collections
    cities = {
        one.name: (one.city, one.history["city"][-1].status) for one in getattr(state, collection)
    }
    assert cities == {"Bo": ("Rome", "decided"), "Cy": ("Oslo", "decided")}


def test_a_record_can_be_corrected_and_taken_back_and_both_undone(memory: Memory) -> None:
    for cost, by in ((10, "bus"), (20, "bus"), (30, "bus")):
        memory.observe("ana", {"to": "Rome", "cost": cost, "by": by}, type="Trip")
    state = memory.checkpoint("ana")
    before = list(memory.log.read(kinds="observation"))[-1].recorded_at
    corrected = memory.correct("ana", state.trips[1], cost=25, by="car")
    state = memory.checkpoint("ana")
    assert [(one.cost, one.by) for one in state.trips] == [(10, "bus"), (25, "car"), (30, "bus")]
    assert state.why(state.trips[1]).how == "decision"
    retracted = memory.retract("ana", state.trips[1])
    memory.correct("ana", state.trips[2], cost=35)
    assert [one.cost for one in memory.checkpoint("ana").trips] == [10, 35]
    assert [one.cost for one in memory.state("ana", known_at=before).trips] == [10, 20, 30]
    assert memory.ask("ana", code="sum(t.cost for t in trips)").value == 45
    memory.undo("ana", retracted)
    assert [one.cost for one in memory.checkpoint("ana").trips] == [10, 25, 35]
    memory.undo("ana", corrected)
    assert [one.cost for one in memory.checkpoint("ana").trips] == [10, 20, 35]
    assert [one.cost for one in memory.checkpoint("ana", rebuild=True).trips] == [10, 20, 35]


def test_a_field_can_be_taken_back(memory: Memory) -> None:
    memory.observe("ana", {"city": "Porto", "name": "Ana"}, type="Profile", at="2024-01-01")
    memory.checkpoint("ana")
    memory.retract("ana", "profile.city")
    state = memory.checkpoint("ana")
    assert (state.profile.city, state.profile.name) == (None, "Ana")
    assert [one.value for one in state.profile.history["city"]] == ["Porto", None]


def test_a_correction_goes_with_the_record_that_it_corrects(memory: Memory) -> None:
    event = memory.observe("ana", {"to": "Rome", "cost": 10}, type="Trip")
    memory.checkpoint("ana")
    memory.correct("ana", event, cost=11)
    assert [one.cost for one in memory.checkpoint("ana").trips] == [11]
    memory.forget(event)
    assert not hasattr(memory.state("ana"), "trips")
    with pytest.raises(NotFound, match="expected one record"):
        memory.correct("ana", event, cost=12)


def test_a_correction_needs_one_record_and_changes(memory: Memory) -> None:
    memory.observe("ana", {"to": "Rome"}, type="Trip")
    state = memory.checkpoint("ana")
    with pytest.raises(InputError, match="at least one field"):
        memory.correct("ana", state.trips[0])
    with pytest.raises(NotFound, match="expected one record"):
        memory.correct("ana", "nothing", to="Oslo")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost_usdd": 100}, "a Trip has no field 'cost_usdd'.*did you mean 'cost_usd'"),
        ({"weather": "rain"}, "no field 'weather'.*it has: cost_usd"),
        ({"cost_usd": "abc"}, "'cost_usd' holds int, not 'abc'.*such as 300"),
        ({"cost_usd": [1]}, "'cost_usd' holds int"),
        ({"cost_usd": True}, "'cost_usd' holds int"),
        ({"day": "soon"}, "'day' holds datetime.date, not 'soon'"),
        ({"to": 5}, "'to' holds str, not 5.*in quotes"),
        ({"tags": ["a", 1]}, "'tags' holds list"),
        ({"hotel": {"stars": "four"}}, "'hotel' holds object"),
        ({"hotel": {"star": 4}}, "'hotel' holds object"),
    ],
)
def test_a_correction_refuses_unknown_fields_and_values_of_another_type(
    memory: Memory, changes: dict[str, Any], message: str
) -> None:
    trip = {"to": "Rome", "day": "2024-07-01", "tags": ["a"], "hotel": {"stars": 3}}
    event = memory.observe("ana", {**trip, "cost_usd": 300}, type="Trip")
    memory.checkpoint("ana")
    with pytest.raises(InputError, match=message):
        memory.correct("ana", event, **changes)
    assert not list(memory.log.read(kinds="decided"))


def test_a_correction_takes_other_forms_of_a_fields_type(memory: Memory) -> None:
    trip = {"to": "Rome", "day": "2024-07-01", "tags": ["a"], "hotel": {"stars": 3}}
    event = memory.observe("ana", {**trip, "cost_usd": 300, "note": None}, type="Trip")
    memory.checkpoint("ana")
    day = datetime.date(2024, 7, 2)
    memory.correct("ana", event, cost_usd=12.5, day=day, hotel={"stars": 4}, tags=[], note="late")
    (found,) = memory.checkpoint("ana").trips
    assert (found.cost_usd, found.day, found.hotel.stars, found.tags, found.note) == (
        12.5,
        day,
        4,
        [],
        "late",
    )
    memory.correct("ana", found, cost_usd=None)
    assert memory.checkpoint("ana").trips[0].cost_usd is None


def test_a_decided_value_must_be_of_the_fields_type(memory: Memory) -> None:
    memory.observe("ana", {"city": "Porto", "age": 30}, type="Profile")
    memory.checkpoint("ana")
    with pytest.raises(InputError, match="'age' holds int, not 'thirty'"):
        memory.resolve("ana", "age", value="thirty")
    memory.resolve("ana", "age", value=31)
    assert memory.checkpoint("ana").profile.age == 31


def test_the_origin_of_a_fact_is_also_an_attribute(memory: Memory) -> None:
    memory.observe("ana", {"city": "Porto"}, type="Profile", at="2025-04-07")
    state = memory.checkpoint("ana")
    assert state.why.profile.city == state.why("profile.city")
    with pytest.raises(AttributeError, match="shoe"):
        _ = state.why.profile.shoe


def test_each_record_of_a_text_has_its_own_words(memory: Memory) -> None:
    cups = [
        {"op": "add", "type": "Cup", "record": {"of": of}, "evidence": words}
        for of, words in (("tea", "a cup of tea"), ("coffee", "one of coffee"))
    ]
    event = memory.observe("ana", "I had a cup of tea and one of coffee.", facts=cups)
    state = memory.checkpoint("ana")
    assert [state.why(cup).words for cup in state.cups] == ["a cup of tea", "one of coffee"]
    cups[0] = {**cups[0], "evidence": "tea and one"}
    memory.observe("ana", event=event, facts=cups[:1])
    state = memory.checkpoint("ana")
    assert [state.why(cup).words for cup in state.cups] == ["tea and one"]
