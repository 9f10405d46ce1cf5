"""Templates of recorded requests: holes for inputs, and nobody's own values as words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.compiler.example import Call, Example
from em.compiler.facts import look_of
from em.compiler.request_templates import request_templates
from em.runner.template import fill

SCHEMA: Any = {
    "type": "object",
    "required": ["order_id"],
    "properties": {
        "order_id": {"type": "string", "pattern": "^#W[0-9]+$"},
        "who": {"type": "object", "properties": {"email": {"type": "string", "format": "email"}}},
        "to": {"type": "string", "minLength": 1},
        "note": {"type": "string", "minLength": 1},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "fast": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    },
}


def example(request: str, subject: str = "", read: Any = None, **inputs: Any) -> Example:
    calls = [Call("get", {}, read)] if read is not None else []
    return Example(inputs, calls, request=request, subject=subject, name=request)


@pytest.mark.parametrize(
    ("request_", "inputs", "template"),
    [
        ("Cancel #W1, please.", {"order_id": "#W1"}, "Cancel {order_id}, please."),
        ("Cancel #W1! I mean #W1.", {"order_id": "#W1"}, "Cancel {order_id}! I mean {order_id}."),
        ("I'm a@b.c. Cancel #W1", {"order_id": "#W1", "who": {"email": "a@b.c"}},
         "I'm {who.email}. Cancel {order_id}"),
        ("Send 'See you there' to Bob.", {"to": "Bob", "note": "See you there"},
         "Send '{note:3}' to {to:1}."),
        ("3 lamps at 4.50 each", {"count": 3, "price": 4.5}, "{count} lamps at {price} each"),
        ("Return the Mat and the Red Lamp of #W1",
         {"order_id": "#W1", "items": [{"name": "Mat"}, {"name": "Red Lamp"}]},
         "Return the {items.name:2^} and the {items.name:2^} of {order_id}"),
        ("Tag #W1 with red and blue", {"order_id": "#W1", "tags": ["red", "blue"]},
         "Tag {order_id} with {tags:1} and {tags:1}"),
        ("Swap 2 mats and 2 lamps",
         {"items": [{"count": 2, "name": "mats"}, {"count": 2, "name": "lamps"}]},
         "Swap {items.count} {items.name:1} and {items.count} {items.name:1}"),
        ("Cancel #W1 fast.", {"order_id": "#W1", "fast": True},
         "Cancel {order_id} fast. {fast=true}"),
        ("Send 'lot 7, red' to Bob.", {"to": "Bob", "note": "lot 7, red"},
         "Send '{note:3+,0}' to {to:1}."),
        ("Cancel #w1.", {"order_id": "#W1"}, "Cancel {order_id|upper}."),
        ("Meet Bob on 3 May 2026.", {"to": "Bob", "day": "2026-05-03"},
         "Meet {to:1} on {day|%d %B %Y}."),
        ("Meet Bob on 5/2/2026.", {"to": "Bob", "day": "2026-05-02"},
         "Meet {to:1} on {day|%m/%d/%Y}."),
        ("Write to Bob in French.", {"to": "Bob", "note": "french"},
         "Write to {to:1} in {note|lower:1}."),
        ("Use {braces} for #W1", {"order_id": "#W1"}, "Use {{braces}} for {order_id}"),
    ],
)  # fmt: skip
def test_inputs_become_holes(request_: str, inputs: Any, template: str) -> None:
    assert request_templates([example(request_, **inputs)], SCHEMA) == [template]
    assert fill([template], request_, SCHEMA) == inputs


@pytest.mark.parametrize(
    ("request_", "inputs"),
    [
        ("Cancel my order.", {"order_id": "#W1"}),
        ("Cancel #W12.", {"order_id": "#W1"}),
        ("Cancel order #w1.", {"to": "Order", "order_id": "#W1"}),
        ("Cancel #W1 for Bob.", {"order_id": "#W1", "to": "Bob", "note": "Bob"}),
        ("Tag #W1 with blue and red", {"order_id": "#W1", "tags": ["red", "blue"]}),
        ("", {"order_id": "#W1"}),
    ],
)
def test_a_request_that_does_not_say_it_to_the_letter_gives_none(
    request_: str, inputs: Any
) -> None:
    assert request_templates([example(request_, **inputs)], SCHEMA) == []


def test_a_member_of_an_enumeration_may_be_written_in_another_case() -> None:
    schema = {"properties": {"to": {"enum": ["north", "south"]}}}
    (made,) = request_templates([example("Go North, now", to="north")], schema)
    assert fill([made], "go SOUTH, now", schema) == {"to": "south"}


def test_what_no_word_names_is_known_for_the_recorded_text_only() -> None:
    once = example("Cancel #W1 now.", order_id="#W1", fast=True)
    made = request_templates([once], SCHEMA)
    assert fill(made, "cancel #W1  now!", SCHEMA) == {"order_id": "#W1", "fast": True}
    assert fill(made, "Cancel #W2 now.", SCHEMA) is None
    again = example("Cancel #W3 now.", order_id="#W3", fast=True)
    assert request_templates([once, again], SCHEMA) == ["Cancel {order_id} now. {fast=true}"]


def test_an_argument_that_a_wording_leaves_out_is_left_out_with_other_values() -> None:
    schema = {"properties": {"order_id": {}, "fast": {"type": ["boolean", "null"]}}}
    made = request_templates([example("Cancel #W1 now.", order_id="#W1", fast=None)], schema)
    assert fill(made, "Cancel #W2 now.", schema) == {"order_id": "#W2", "fast": None}


def test_how_long_recorded_values_were_splits_no_words_between_two_holes() -> None:
    near = example("Meet Ana New York, please.", to="Ana", note="New York")
    made = request_templates([near], SCHEMA)
    assert fill(made, "meet Ana  New York, please", SCHEMA) == near.inputs
    assert fill(made, "Meet Mary Ann Porto, please.", SCHEMA) is None


def test_a_name_takes_no_small_words_beside_it() -> None:
    names = ["Bo", "Ann Lee"]
    made = request_templates([example(f"Book for {one}, please.", to=one) for one in names], SCHEMA)
    assert fill(made, "Book for Ida Roe, please.", SCHEMA) == {"to": "Ida Roe"}
    assert fill(made, "book for ida, please.", SCHEMA) == {"to": "ida"}
    for said in ("not Bo", "Bo twice", "Bo NOT"):
        assert fill(made, f"Book for {said}, please.", SCHEMA) is None
    small = example("Book for Ludwig van Ost, please.", to="Ludwig van Ost")
    assert fill(request_templates([small], SCHEMA), small.request.upper(), SCHEMA) is not None


def test_between_quotation_marks_any_words_are_a_value() -> None:
    made = request_templates([example("Say 'Hi' to Bob.", to="Bob", note="Hi")], SCHEMA)
    told = {"to": "Eve", "note": "I will be late, at 7: wait"}
    assert fill(made, "Say 'I will be late, at 7: wait' to Eve.", SCHEMA) == told
    assert fill(made, "Say 'so' and 'not' to Eve.", SCHEMA) is None
    assert fill(made, "Say 'so' to Eve if it rains.", SCHEMA) is None


def test_a_code_is_told_from_the_words_beside_it() -> None:
    examples = [
        example(f"Meet {to} {note}, please.", to=to, note=note)
        for to, note in [("Elm Row", "9"), ("Quarry Hill", "22c"), ("Tanner Row", "14")]
    ]
    number = {"type": "string", "pattern": look_of(["9", "22c", "14"])}
    schema = {"properties": {"to": {"type": "string"}, "note": number}}
    made = request_templates(examples, schema)
    told = {"to": "Brewery Road", "note": "7b"}
    assert fill(made, "Meet Brewery Road 7b, please.", schema) == told


def test_a_date_is_read_in_the_format_that_recordings_had() -> None:
    told = example("Meet Bob on May 3, 2026.", to="Bob", day="2026-05-03")
    made = request_templates([told], SCHEMA)
    assert fill(made, "meet Ana on october 12, 2027", SCHEMA) == {"to": "Ana", "day": "2027-10-12"}
    for odd in ("May 32, 2026", "3 May 2026", "2026-05-03", "May 3, 2026 or May 4, 2026"):
        assert fill(made, f"Meet Bob on {odd}.", SCHEMA) is None


def test_a_yes_or_no_is_told_by_the_words_of_its_name() -> None:
    schema = {"properties": {"order_id": {"type": "string"}, "gift_wrap": {"type": "boolean"}}}
    once = example("Wrap #W1 as a gift.", order_id="#W1", gift_wrap=True)
    made = request_templates([once], schema)
    assert fill(made, "Wrap #W2 as a gift.", schema) == {"order_id": "#W2", "gift_wrap": True}


def test_a_case_that_recordings_disagree_on_is_taken_from_no_other_text() -> None:
    french = example("Write in French.", note="french")
    polish = example("Write in Polish.", note="Polish")
    made = request_templates([french, polish], SCHEMA)
    assert fill(made, "Write in French.", SCHEMA) == {"note": "french"}
    assert fill(made, "Write in Danish.", SCHEMA) is None


def test_what_other_requests_leave_out_was_asked_for_by_the_wording() -> None:
    plain = [example(f"Cancel #W{one}.", order_id=f"#W{one}") for one in (1, 2)]
    told = example("Cancel #W3 by courier.", order_id="#W3", fast=True)
    made = request_templates([*plain, told], SCHEMA)
    assert fill(made, "Cancel #W9 by courier.", SCHEMA) == {"order_id": "#W9", "fast": True}
    assert fill(made, "Cancel #W9.", SCHEMA) == {"order_id": "#W9"}
    other = example("Cancel #W4 by courier.", order_id="#W4", fast=False)
    doubtful = request_templates([*plain, told, other], SCHEMA)
    assert fill(doubtful, "Cancel #W9 by courier.", SCHEMA) is None
    assert fill(doubtful, "Cancel #W3 by courier.", SCHEMA) == told.inputs


TOLD = st.text(alphabet="ab ,3", min_size=1, max_size=5).map(str.strip).filter(bool)
WORDINGS = st.sampled_from(
    ["Tell {to} {note}", "{to} and {note} it is", "I'm {own} ({id}). Say '{note}' to {to}!",
     "{own}, {id}: {to}  {note} {{x}}", "{note}\n{to} ({own})", "{to} of {word} {note}"]
)  # fmt: skip
OWN = st.sampled_from(["Ann", "Bob", "a", "Ann Lee", "3"])
READS = st.sampled_from(["name", "id", "word"])


@st.composite
def recordings(draw: st.DrawFn) -> Example:
    """Return a recording that read names, ids and words, of which its request may say some."""
    said = {"to": draw(TOLD), "note": draw(TOLD)}
    own = {"own": draw(OWN), "id": draw(st.sampled_from(["W-1", "b@c.d", "77"])), "word": "Tell"}
    read = {"name": own["own"], "id": own["id"], "word": own["word"], "other": "it is"}
    fast = draw(st.sampled_from([{}, {"fast": True}, {"fast": False}]))
    request = draw(WORDINGS).format(**said, **own)
    return example(request, draw(st.sampled_from("abc")), read, **said, **fast)


@given(st.lists(recordings(), min_size=1, max_size=12))
def test_learning_never_unlearns(examples: list[Example]) -> None:
    """Each request whose values can be told apart gives its own inputs, however many follow."""
    for count in range(1, len(examples) + 1):
        made = request_templates(examples[:count], SCHEMA)
        for one in examples[:count]:
            told = [other.inputs for other in examples[:count] if _is_same(one, other)]
            is_clear = request_templates([one], SCHEMA) != []
            if told == [one.inputs] * len(told) and is_clear:
                assert fill(made, one.request, SCHEMA) == one.inputs
            else:
                assert fill(made, one.request, SCHEMA) in (None, one.inputs)


@given(recordings())
def test_a_request_that_says_each_value_once_is_understood(one: Example) -> None:
    words = [one.request.count(value) for value in (one.inputs["to"], one.inputs["note"])]
    made = request_templates([one], SCHEMA)
    if words == [1, 1]:
        assert fill(made, one.request, SCHEMA) == one.inputs


def _is_same(one: Example, other: Example) -> bool:
    first, second = (each.request.rstrip("!.").casefold().split() for each in (one, other))
    return first == second


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_value_that_no_input_takes_is_understood_as_recorded_and_hidden(count: int) -> None:
    examples = [
        example(f"{name} here. Cancel #W{one}, ticket T-{one}1.", str(one), {"name": name},
                order_id=f"#W{one}")
        for one, name in enumerate(["Hildegard Klum", "Ana Lee", "Bo"][:count])
    ]  # fmt: skip
    made = request_templates(examples, SCHEMA)
    for one in examples:
        assert fill(made, one.request, SCHEMA) == one.inputs
    assert fill(made, "Hildegard Klum here. Cancel #W7, ticket T-01.", SCHEMA) is None
    assert fill(made, "Ida here. Cancel #W0, ticket T-01.", SCHEMA) is None
    for hidden in ("hildegard", "klum", "ana", "t-01", "t-11"):
        assert hidden not in "\n".join(made).lower()


def test_a_value_that_two_people_said_may_stand() -> None:
    read = {"status": "pending"}
    both = [
        example("Cancel the pending #W1.", "a", read, order_id="#W1"),
        example("Cancel the pending #W2.", "b", read, order_id="#W2"),
    ]
    assert request_templates(both, SCHEMA) == ["Cancel the pending {order_id}."]
    (own,) = request_templates(both[:1], SCHEMA)
    assert "pending" not in own
    assert fill([own], "Cancel the pending #W2.", SCHEMA) is None


@pytest.mark.parametrize(
    ("request_", "inputs"),
    [
        ("#W1", {"order_id": "#W1"}),
        ("Cancel #W1 for 2026-10-02.", {"order_id": "#W1", "count": 10}),
        ("Meet Ana  New York,\n please", {"to": "Ana", "note": "New York"}),
        ("I'm 7: {cancel} #W1 of B-2", {"order_id": "#W1"}),
    ],
)
def test_the_exact_text_of_a_recording_gives_what_was_recorded(request_: str, inputs: Any) -> None:
    made = request_templates([example(request_, "a", {"id": "B-2"}, **inputs)], SCHEMA)
    assert fill(made, request_, SCHEMA) == inputs


def test_a_template_that_misreads_another_request_is_dropped() -> None:
    free = example("Tell Bob hi", to="Bob", note="hi")
    other = example("Tell Eve hi", to="Eve", note="hi")
    assert request_templates([free, other], SCHEMA) == ["Tell {to:1} {note:1}"]


words = st.lists(
    st.sampled_from(
        ["Please", "cancel", "it", "for", "Bob", "7", "#W7", "and", ",", "'", "{x}", "?"]
    ),
    max_size=6,
).map(" ".join)


@given(
    st.lists(
        st.tuples(
            words,
            words,
            words,
            st.sampled_from(["Bob", "Ana Lee", "it", "x y"]),
            st.integers(1, 99),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_recorded_request_always_fills_its_own_template(rows: Any) -> None:
    examples = [
        example(f"{one} {to} {two} #W{number} {three}", str(n), to=to, order_id=f"#W{number}")
        for n, (one, two, three, to, number) in enumerate(rows)
    ]
    found = request_templates(examples, SCHEMA)
    for one in examples:
        own = request_templates([one], SCHEMA)
        assert not own or fill(own, one.request, SCHEMA) == one.inputs
        read = fill(found, one.request, SCHEMA)
        assert read is None or read == one.inputs
