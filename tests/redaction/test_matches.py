"""Seeking a shape from the words of its name finds what trying it everywhere finds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.redaction.patterns import FIELD_ANCHORS, SHAPES, Shape, matches
from em.redaction.redactor import MANY, Redactor

NAMED = [shape for shape in SHAPES if shape.begins_with_name]
PIECES = st.sampled_from(
    "password passwd pass secret token api_key api key secret_key access.key my_ DB_ X- . - _ = : "
    '" \\" \' hunter2x secretoken passecret 12345678 \n <a> => , é İ ſ a.b_c-'.split(" ")
)


@pytest.mark.parametrize("shape", NAMED, ids=lambda shape: shape.name)
@given(parts=st.lists(PIECES | st.text(max_size=3), max_size=30))
def test_the_same_is_found(shape: Shape, parts: list[str]) -> None:
    for text in ("".join(parts), " ".join(parts)):
        found = [match.span() for match in matches(shape, text)]
        assert found == [match.span() for match in shape.pattern.finditer(text)]


def test_a_name_longer_than_a_pattern_takes_is_found_where_the_pattern_finds_it() -> None:
    for shape in NAMED:
        for length in range(36, 46):
            text = (
                f"{'a' * length}_password = 'hunter2x' {'b.' * length}token: \"abc123def456ghi7\""
            )
            found = [match.span() for match in matches(shape, text)]
            assert found == [match.span() for match in shape.pattern.finditer(text)]


@given(st.lists(PIECES | st.text(max_size=3), max_size=9).map("".join))
def test_what_is_redacted_in_a_text_is_suspected_in_its_json(text: str) -> None:
    redactor = Redactor()
    if redactor.text(text) != text:
        encoded = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
        assert redactor.suspects([b"1", encoded]) == [1]


def test_every_anchor_is_found_in_any_case() -> None:
    for anchor in {anchor for shape in SHAPES for anchor in shape.anchors}:
        assert Redactor().suspects([b'"x"', f'"{anchor.upper()}0"'.encode()]) == [1]


def test_many_texts_are_searched_for_the_same_anchors_as_one() -> None:
    anchors = sorted({anchor for shape in SHAPES for anchor in shape.anchors} | {*FIELD_ANCHORS})
    texts = [f'"é {anchor.upper()}0"'.encode() for anchor in anchors]
    texts += [b'"asian"', b'"asia "', b'"passed"', b'"' + b"plain text " * MANY + b'"']
    one_by_one = [n for n, text in enumerate(texts) if Redactor().suspects([text])]
    assert Redactor().suspects(texts) == one_by_one
    assert one_by_one[: len(anchors)] == [*range(len(anchors))]


def test_a_sentence_that_lost_its_secret_is_a_sentence_still() -> None:
    """Redacting once more must not take it for a secret because its spaces are gone."""
    once = Redactor().value({"PASSWORD": ['password="hunter2x [redacted:foo]"']})
    assert once == {"PASSWORD": ['password="[redacted:password]"']}
    assert Redactor().value(once) == once
