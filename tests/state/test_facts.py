"""Typed facts come in beside a text; code takes only what the text has, from whom it may."""

from typing import Any

import pytest

from em import Memory
from em.errors import InputError
from em.state.schema import StateSchema
from em.state.statement import statement_schema

ANA, BO = {"speaker": "Ana"}, {"speaker": "Bo"}
AT = "2025-04-07T12:00:00Z"


def told(memory: Memory, text: str, *facts: Any, at: str = AT, **details: Any) -> Any:
    memory.observe("ana", text, at=at, facts=list(facts), **details)
    return memory.checkpoint("ana")


def fact(field: str, value: Any, evidence: str, **more: Any) -> dict[str, Any]:
    return {"op": "set", "field": field, "value": value, "evidence": evidence, **more}


def add(type_: str, evidence: str, again: bool = False, **record: Any) -> dict[str, Any]:
    found = {"op": "add", "type": type_, "record": record, "evidence": evidence}
    return {**found, "again": True} if again else found


def test_facts_of_every_kind_become_state(memory: Memory) -> None:
    moved = fact("city", "Porto", "moved to Porto in March", since="2025-03")
    trip = add(
        "Trip", "flew to Rome for $120 on 2 April", to="Rome", date="2025-04-02", cost="$120"
    )
    state = told(
        memory, "I moved to Porto in March, then flew to Rome for $120 on 2 April.", moved, trip
    )
    assert state.report.problems == []
    assert (state.profile.city, [str(one.cost.amount) for one in state.trips]) == ("Porto", ["120"])
    why = state.why("profile.city")
    assert (why.how, why.words, why.at.month) == ("agent", "moved to Porto in March", 3)
    left = {"op": "retract", "field": "city", "evidence": "moved away from Porto"}
    dearer = {
        "op": "set", "known": {"to": "Rome"}, "record": {"cost": "$90"},
        "evidence": "Rome was $90",
    }  # fmt: skip
    state = told(memory, "I moved away from Porto, and Rome was $90.", left, dearer, **ANA)
    assert state.report.problems == []
    assert (state.profile.city, [str(one.cost.amount) for one in state.trips]) == (None, ["90"])
    assert memory.state("ana", as_of="2025-03-20").profile.city == "Porto"
    rebuilt = memory.checkpoint("ana", rebuild=True)
    assert (rebuilt.profile.city, len(rebuilt.trips)) == (None, 1)


@pytest.mark.parametrize(
    ("text", "details", "found"),
    [
        ("I live in Madrid.", BO, fact("city", "Madrid", "I live in Madrid")),
        ("I live in Madrid.", {"role": "assistant"}, fact("city", "Madrid", "live in Madrid")),
        ("You live in Osaka.", {"role": "system"}, fact("city", "Osaka", "You live in Osaka")),
        ("Mariana lives in Rome.", BO, fact("city", "Rome", "Mariana lives in Rome")),
        ("I live in Lisbon.", ANA, fact("city", "Porto", "I live in Porto")),
        ("I live in Lisbon.", ANA, fact("city", "Porto", "I live in Lisbon")),
        ("Do I live in Lisbon?", ANA, fact("city", "Lisbon", "I live in Lisbon")),
        ("Bo said “I live in Lisbon” twice.", ANA, fact("city", "Lisbon", "I live in Lisbon")),
        ("> I live in London\nAgreed!", ANA, fact("city", "London", "I live in London")),
        ("I turned 34 yesterday.", ANA, fact("age", 43, "I turned 34")),
        ("I moved in March.", ANA, fact("moved", True, "moved in March", since="2024-01")),
        ("I got it yesterday.", ANA, fact("got", "2025-04-07", "I got it yesterday")),
        ("I left.", ANA, {"op": "retract", "field": "city", "evidence": "I left"}),
        ("Lia is my sister.", BO, add("Person", "Lia is my sister", name="Lia", relation="sister")),
        ("My sister lives in Nice.", BO, add("Person", "in Nice", name="sister", city="Nice")),
        ("She is in Rome.", ANA, add("Person", "She is in Rome", name="Lia", city="Rome")),
        ("Rome again.", ANA, {"op": "same", "known": {"to": "Rome"}, "evidence": "Rome again"}),
        # Somebody else speaks: without a second question nobody can tell about whom.
        ("Ana likes green tea.", BO, fact("drink", "green tea", "Ana likes green tea")),
        (
            "Ana's brother moved to Porto.",
            BO,
            fact("city", "Porto", "Ana's brother moved to Porto"),
        ),
        ("Your dose is 10 mg.", {"role": "assistant"}, fact("dose", "10 mg", "Your dose is 10 mg")),
        ("The dose is 10 mg.", {**BO, "addressee": "ana"}, fact("dose", "10 mg", "dose is 10 mg")),
        ("You live in Osaka.", {**BO, "addressee": "ana"}, fact("city", "Osaka", "live in Osaka")),
        # The value does not stand in the evidence word for word.
        ("Tea that is green.", ANA, fact("drink", "green tea", "Tea that is green")),
        ("I paid. It was 30.", ANA, fact("paid", 30, "I paid")),
        ("I moved out.", ANA, fact("city", " ", "I moved out")),
        ("It is -20 outside.", ANA, fact("outside", 20, "It is -20 outside")),
        # A part of a number that names something is another number.
        ("Member 004417.", ANA, fact("member", "4417", "Member 004417")),
        ("Call 0761-555-20.", ANA, fact("phone", "555", "Call 0761-555-20")),
        ("Call 0761-555-20.", ANA, fact("phone", "0761-555", "Call 0761-555-20")),
        ("It is A-10023.", ANA, fact("badge", "10023", "It is A-10023")),
        *(
            (f"It is {whole}.", ANA, fact("it", part, f"It is {whole}"))
            for whole, part in (
                ("004417", 4417),
                ("0761-555-20", 555),
                ("0761 555 20", "555"),
                ("0761 555 20", 555),
                ("0761 555 20", "0761 555"),
                ("+49 761 555", "49 761 555"),
                ("07:30", 7),
                ("07:30", 30),
                ("3/4", 3),
                ("2025-04-07", 4),
                ("1 250", 250),
                ("1 250", "250"),
                ("A-12", 12),
                ("3.5 million", 1_000_000),
                ("3 million", 3),
                ("half a million", 1_000_000),
                ("2 dozen", 2),
                ("5@example.com", 5),
                ("10.0.0.12", 12),
                ("10.0.0.12", "10.0.0"),
                ("v1.2.3", "1.2"),
                ("ana@gmail.com", "gmail.com"),
                ("ana@gmail.com", "ana"),
                ("shop.example.com", "example.com"),
                ("/home/ana/x", "home"),
                ("C++", "C"),
                ("AC/DC", "AC"),
                ("Smith-Jones", "Smith"),
                ("Smith-Jones", "Jones"),
                ("AT&T", "AT"),
                ("O'Neill", "Neill"),
                ("C:\\data", "data"),
                ("it_1", "1"),
            )
        ),
        ("I am Ana Smith-Jones.", ANA, fact("name", "Ana Smith", "I am Ana Smith")),
        ("Call 0761 555 20.", ANA, fact("phone", "0761 555", "Call 0761 555")),
        ("It is -20 C outside.", ANA, fact("outside", "20 C", "It is -20 C outside")),
        ("It is -20 C outside.", ANA, fact("outside", "20 C", "20 C outside")),
        ("It is minus 20.", ANA, fact("outside", 20, "It is minus 20")),
        ("It is minus twenty.", ANA, fact("outside", 20, "It is minus twenty")),
        ("It is 20 outside.", ANA, fact("outside", -20, "It is 20 outside")),
        ("I owe -$20 to Bo.", ANA, fact("debt", "$20", "I owe -$20")),
        ("I earn 3k.", ANA, fact("income", 3, "I earn 3k")),
        ("I ran 1,5 km.", ANA, fact("km", 15, "I ran 1,5 km")),
        ("I paid 1,200 EUR.", ANA, fact("paid", "200 EUR", "I paid 1,200 EUR")),
        ("I have two or three cats.", ANA, fact("cats", 5, "two or three cats")),
        ("I am thirty-two.", ANA, fact("age", 2, "I am thirty-two")),
        ("I spent 45 in Europe.", ANA, fact("spent", "45 USD", "spent 45 in Europe")),
        # Dates come from the evidence, and are completed from the time of the event alone.
        ("On 2 May I came. I left.", ANA, fact("left", "2025-05-02", "I left")),
        ("I came in May. I left.", ANA, fact("left", True, "I left", since="2025-05")),
        ("I moved in March.", ANA, fact("moved", "2025-03-14", "I moved in March")),
        ("I moved in 2024.", ANA, fact("moved", True, "I moved in 2024", since="2024-03")),
        ("I moved last week.", ANA, fact("moved", "2025-04-02", "I moved last week")),
        ("Dinner. I take 20 mg.", ANA, fact("dinner", "20:00", "I take 20 mg")),
    ],
)
def test_what_the_text_does_not_have_is_left_out_with_its_reason(
    memory: Memory, text: str, details: Any, found: Any
) -> None:
    state = told(memory, text, found, **details)
    assert [one for one in state.profile.history if one] == []
    assert not any(getattr(state, name) for name in state.collections)
    (problem,) = state.report.problems
    assert "left out" in problem
    assert [one.reason for one in state.unstructured] == [problem]


@pytest.mark.parametrize(
    ("text", "details", "found"),
    [
        ("I’m living   in\nLisbon now", ANA, fact("city", "Lisbon", "I'm living in lisbon")),
        ("I quit smoking.", ANA, fact("smoker", False, "I quit smoking")),
        ("I got it yesterday.", ANA, fact("got", "2025-04-06", "I got it yesterday")),
        ("Dinner at 7:30 pm.", ANA, fact("dinner", "19:30", "7:30 pm")),
        ("I earn 3k euros.", ANA, fact("income", "3k euros", "I earn 3k euros")),
        ("I paid 1,250 EUR.", ANA, fact("paid", 1250, "paid 1,250 EUR")),
        ("Is it far? I live in Faro.", ANA, fact("city", "Faro", "I live in Faro")),
        *(
            (f"It is {whole}.", ANA, fact("it", part, f"It is {whole}"))
            for whole, part in (
                ("0761-555-20", "0761-555-20"),
                ("0761 555 20", "0761 555 20"),
                ("1 250", 1250),
                ("1'250.50", 1250.5),
                ("3.5 million", 3_500_000),
                ("2 dozen", 24),
                ("20mg", 20),
                ("34-year-old", 34),
                ("5%", 5),
                ("$12", 12),
                ("(Porto)", "Porto"),
                ("Porto, really", "Porto"),
                ("Porto—really", "Porto"),
                ("Ana's", "Ana"),
                ("1990–2000", 1990),
                ("1990–2000", 2000),
                ("a C++ job", "C++"),
                ("#42", "42"),
                ("name:Ana", "Ana"),
                ("Rome,Paris", "Rome"),
                ("*Porto*", "Porto"),
                ("Smith-Jones", "Smith-Jones"),
                ("ana@gmail.com", "ana@gmail.com"),
            )
        ),
    ],
)
def test_what_the_text_states_is_taken(memory: Memory, text: str, details: Any, found: Any) -> None:
    state = told(memory, text, found, **details)
    assert state.report.problems == []
    assert [e.value for e in state.profile.history[found["field"]]] == [found["value"]]


def test_a_member_of_an_enumeration_need_not_be_said(memory: Memory) -> None:
    for number in range(24):
        visit = {"n": number, "kind": ("dental", "eye")[number % 2]}
        memory.observe("ana", visit, type="Visit")
    words = "went to the dentist for visit 30"
    memory.checkpoint("ana")
    state = told(memory, f"I {words}.", add("Visit", words, n=30, kind="dental"), **ANA)
    assert (state.report.problems, state.visits[-1].kind) == ([], "dental")
    state = told(memory, f"I {words}.", add("Visit", words, True, n=30, kind="checkup"), **ANA)
    assert len(state.report.problems) == 1


def test_other_people_have_records_of_their_own(memory: Memory) -> None:
    lia = add("Person", "sister Lia lives in Rome", name="Lia", relation="sister", city="Rome")
    told(memory, "My sister Lia lives in Rome.", lia, **ANA)
    state = told(
        memory, "She moved to Oslo.",
        fact("city", "Oslo", "She moved to Oslo", type="Person", key=["Lia"]), **ANA,
    )  # fmt: skip
    told(
        memory, "I live in Madrid.",
        fact("city", "Madrid", "I live in Madrid", type="Person", key=["Bo"]), **BO,
    )  # fmt: skip
    state = memory.checkpoint("ana")
    people = {one.name: (one.city, one.relation) for one in state.persons}
    assert people == {"Lia": ("Oslo", "sister"), "Bo": ("Madrid", None)}
    assert state.profile.history == {}


def test_a_thing_that_is_said_twice_is_counted_once_unless_it_is_another(memory: Memory) -> None:
    bike = add("Purchase", "bought a red bike", item="bike")
    told(memory, "I bought a red bike.", bike, bike)
    state = told(memory, "I bought a red bike.", bike)
    assert (len(state.purchases), "known one" in state.report.problems[0]) == (1, True)
    more = add("Purchase", "bought another bike", True, item="bike")
    assert len(told(memory, "I bought another bike.", more).purchases) == 2
    known = {"op": "same", "known": {"item": "bike"}, "evidence": "the bike"}
    state = told(memory, "I love the bike.", known)
    assert (len(state.purchases), state.report.problems) == (2, [])


def test_rules_come_in_with_a_text(memory: Memory) -> None:
    rule = {
        "id": "nsaid", "severity": "high", "action": "take", "message": "{drug} is an NSAID",
        "when": {"op": "in", "left": {"detail": "drug"}, "right": {"value": ["ibuprofen"]}},
    }  # fmt: skip
    memory.observe("ana", "NSAIDs make me ill.", facts=[], rules=[rule])
    memory.checkpoint("ana")
    (alert,) = memory.check("ana", "take", drug="ibuprofen")
    assert (alert.message, alert.proposed) == ("ibuprofen is an NSAID", True)


@pytest.mark.parametrize("evidence", ["I left", "I never said that"])
def test_what_is_taken_back_must_be_named(memory: Memory, evidence: str) -> None:
    memory.observe("ana", {"city": "Basel", "smoker": True}, type="Profile", at="2024-01-01")
    trip = memory.observe("ana", {"to": "Rome"}, type="Trip", at="2024-01-01")
    memory.checkpoint("ana")
    retracts = [{"op": "retract", **one, "evidence": evidence} for one in (
        {"field": "city"}, {"field": "smoker"}, {"known": trip}, {"known": {"to": "Rome"}},
    )]  # fmt: skip
    state = told(memory, f"{evidence}.", *retracts, **ANA)
    assert len(state.report.problems) == 4
    assert (state.profile.city, state.profile.smoker, len(state.trips)) == ("Basel", True, 1)
    named = [
        {"op": "retract", "field": "city", "evidence": "I left Basel"},
        {"op": "retract", "field": "smoker", "evidence": "no smoker any more"},
        {"op": "retract", "known": trip, "evidence": "Rome never happened"},
    ]
    text = "I left Basel, I am no smoker any more, and Rome never happened."
    state = told(memory, text, *named, **ANA)
    assert state.report.problems == []
    assert (state.profile.city, state.profile.smoker, state.trips) == (None, None, [])


def test_a_corrected_value_need_not_be_said_again_as_a_whole(memory: Memory) -> None:
    memory.observe("ana", {"name": "Ana Kowalski"}, type="Profile", at="2024-01-01")
    words = "Kowalska, not Kowalski"
    again = fact("name", "Ana Kowalska", words, mistaken=True)
    assert told(memory, f"*{words}", again, **ANA).profile.name == "Ana Kowalska"
    other = fact("name", "Bea Kowalska", words, mistaken=True)
    assert told(memory, f"*{words}", other, **ANA).profile.name == "Ana Kowalska"


@pytest.mark.parametrize("name", ["Ana", "Ana Silva", "ana silva", "Ana Sílva"])
def test_the_subject_speaks_under_its_id_and_under_the_names_of_its_profile(
    memory: Memory, name: str
) -> None:
    memory.observe("ana", {"name": "Ana Silva"}, type="Profile", at="2024-01-01")
    lives = fact("city", "Porto", "I live in Porto")
    state = told(memory, "I live in Porto.", lives, speaker=name)
    assert (state.report.problems, state.profile.city) == ([], "Porto")


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ([{"op": "set", "field": "city", "value": "Rome"}], "facts[0]"),
        ([{"op": "set", "field": "city", "evidence": "x"}], "facts[0]"),
        ([{"op": "add", "type": "Trip", "evidence": "x"}], "facts[0]"),
        ([{"op": "retract", "evidence": "x"}], "facts[0]"),
        ([{"op": "guess", "evidence": "x"}], "facts[0].op"),
        ([{"op": "add", "to": "x"}, {"op": "same", "known": "r", "evidence": "x"}], "facts[0]"),
    ],
)
def test_a_fact_of_another_form_is_left_out_alone(memory: Memory, facts: Any, place: str) -> None:
    lives = fact("city", "Rome", "I live in Rome")
    state = told(memory, "I live in Rome.", *facts, lives)
    assert state.profile.city == "Rome"
    assert state.report.problems[0].startswith(f"{place} left out: ")
    with pytest.raises(InputError):
        memory.observe("ana", {"city": "Rome"}, facts=[])


def test_texts_that_nobody_has_read_are_told_where_they_may_change_an_answer(
    memory: Memory,
) -> None:
    memory.observe("ana", {"city": "Basel", "employer": "Nokia"}, type="Profile", at="2024-01-01")
    memory.observe("ana", {"to": "Rome"}, type="Trip")
    memory.observe("ana", "I never liked Basel.", at="2023-01-01")  # older than the value
    quit_ = memory.observe("ana", "I quit Nokia. No regrets!", at="2025-04-07")
    trip = memory.observe("ana", "What a trip that was.", at="2025-04-08")
    memory.observe("ana", "My trip begins.", at="2025-04-08", facts=[])  # it was read
    state = memory.checkpoint("ana")
    assert [(one.event_id, one.mentions) for one in state.unread] == [
        (quit_, ("profile.employer",)),
        (trip, ("trips",)),
    ]
    assert state.profile.employer == "Nokia"  # nobody has said otherwise
    assert state.why("profile.employer").unread == (quit_,)
    assert state.why("profile.city").unread == ()
    answer = memory.ask("ana", code="len(trips)")
    assert (answer.value, answer.unread, "trips" in answer.note) == (1, (trip,), True)
    assert memory.ask("ana", code="profile.city").unread == ()
    assert memory.ask("ana", code="profile.employer").unread == (quit_,)


def test_an_unread_text_mentions_values_of_records_too(memory: Memory) -> None:
    memory.declare("ana", "Contact", key="name")
    lia = memory.observe(
        "ana", {"name": "Lia", "employer": "Nokia"}, type="Contact", at="2024-01-01"
    )
    memory.observe("ana", {"to": "Rome", "cost": 120, "paid": True}, type="Trip", at="2024-01-01")
    memory.observe("ana", "Rome, Lia and Nokia: I was 120 then.", at="2023-01-01")  # older
    rome = memory.observe("ana", "Rome was called off, True story for 120.", at="2025-01-01")
    quit_ = memory.observe("ana", "Lia quit.", at="2025-01-02")
    memory.observe("ana", "The 120 bus is late.", at="2025-01-03")
    state = memory.checkpoint("ana")
    assert [(one.event_id, one.mentions) for one in state.unread] == [
        (rome, ("trips",)),
        (quit_, ("contacts.employer", "contacts.name")),
    ]
    assert state.why(state.trips[0]).unread == (rome,)
    assert state.why("Contact.employer", ["Lia"]).unread == (quit_,)
    assert memory.ask("ana", code="sum(t.cost for t in trips)").unread == (rome,)
    assert memory.ask("ana", code="[c.employer for c in contacts]").unread == (quit_,)
    assert memory.ask("ana", code="len(contacts)").unread == ()
    assert state.why("Contact.employer", ["Lia"]).event_ids == (lia,)


def test_the_schema_of_facts_has_the_types_of_the_subject(memory: Memory) -> None:
    memory.observe("ana", {"to": "Rome", "cost": 3}, type="Trip")
    memory.observe("ana", {"city": "Basel"}, type="Profile")
    schema: StateSchema = memory.checkpoint("ana").schema
    properties = statement_schema(schema)["properties"]
    assert "Trip: cost, to" in properties["type"]["description"]
    assert "city" in properties["field"]["description"]


def test_a_stored_text_is_read_later_and_the_newest_reading_counts(memory: Memory) -> None:
    event = memory.observe("ana", "I live in Porto. I have a dog.", at="2025-04-01", **ANA)
    memory.observe("ana", {"to": "Rome"}, type="Trip")
    assert len(memory.checkpoint("ana").unstructured) == 1
    lives = fact("city", "Porto", "I live in Porto")
    memory.observe("ana", event=event, facts=[lives, fact("city", "Rome", "I live in Rome")])
    state = memory.checkpoint("ana")
    assert (state.profile.city, state.unstructured, len(state.report.problems)) == ("Porto", [], 1)
    why = state.why("city")
    assert (why.event_ids, why.at.isoformat()[:10], why.how) == ((event,), "2025-04-01", "agent")
    memory.observe("ana", event=event, facts=[add("Pet", "I have a dog", kind="dog")])
    for rebuild in (False, True):
        state = memory.checkpoint("ana", rebuild=rebuild)
        assert (state.profile.history, [one.kind for one in state.pets]) == ({}, ["dog"])
        assert [one.to for one in state.trips] == ["Rome"]
    memory.forget(event)
    assert list(memory.state("ana").collections) == ["trips"]
    left = [one.body for one in memory.log.read(subject="ana", kinds=["read", "extracted"])]
    assert left == [None] * 4


def test_only_a_text_of_the_subject_is_read_later(memory: Memory) -> None:
    lives = [fact("city", "Rome", "I live in Rome")]
    record = memory.observe("ana", {"to": "Rome"}, type="Trip")
    other = memory.observe("bo", "I live in Rome.")
    for event in (record, other, "nothing"):
        memory.observe("ana", event=event, facts=lives)
    state = memory.checkpoint("ana")
    assert state.profile.history == {}
    assert len(state.report.problems) == 3
    for bad in ({"facts": None}, {"facts": lives, "speaker": "Ana"}):
        with pytest.raises(InputError):
            memory.observe("ana", event=other, **bad)
    with pytest.raises(InputError):
        memory.observe("ana", "I live in Rome.", event=other, facts=lives)
    with pytest.raises(InputError):
        memory.observe("ana")


def test_what_repeats_a_record_is_checked_like_the_record(memory: Memory) -> None:
    """It becomes a record of its own once the first text is forgotten."""
    trip = add("Trip", "flew to Rome", to="Rome")
    first = memory.observe("ana", "I flew to Rome.", facts=[trip], **ANA)
    memory.checkpoint("ana")
    again = {"op": "same", "known": {"to": "Rome"}, "evidence": "that flight to Rome"}
    invented = {**again, "record": {"to": "Rome", "cost": 900}}
    state = told(memory, "I loved that flight to Rome.", invented, **ANA)
    assert len(state.report.problems) == 1
    memory.forget(first)
    assert list(memory.state("ana").collections) == []
