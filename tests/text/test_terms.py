"""What of a text goes into the index."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.text import terms
from em.text.terms import PIECE, length_of, pieces, shape_of, stem, words_of

AT = datetime(2025, 4, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "common"),
    [
        ("run running runs ran", "run"),
        ("relational relation relate", "relat"),
        ("hopping hopped hops", "hop"),
        ("go went gone goes going", "go"),
        ("happy happiness", "happi"),
        ("conditional conditions", "condit"),
        ("child children", "child"),
    ],
)
def test_forms_of_a_word_share_a_stem(words: str, common: str) -> None:
    assert {stem(word) for word in words.split()} == {common}


@given(st.text())
def test_any_text_becomes_words_that_any_store_takes(text: str) -> None:
    for word in words_of(text):
        assert word
        assert not set(word) & set(" \0\"'")
    for piece in pieces(text, AT, text) if text else []:
        assert piece.terms.isascii()
        assert all(part.isprintable() and len(part) < 600 for part in piece.terms.split(" "))
        assert 0 <= piece.shape < 256


@given(st.text(min_size=1), st.integers(1, 3_000))
def test_the_pieces_of_a_text_are_the_text(text: str, times: int) -> None:
    whole = text * times
    parts = pieces(whole, AT, None)
    assert "".join(whole[part.start : part.end] for part in parts) == whole
    assert all(0 < part.end - part.start <= PIECE for part in parts)


def test_a_long_text_is_cut_between_words() -> None:
    text = "word " * 2_000
    assert all(text[part.end - 1] == " " for part in pieces(text, AT, None))


def test_a_shape_says_how_long_a_passage_is_and_whether_it_asks() -> None:
    for length in (1, 2, 12, 100, 2_000):
        assert length_of(shape_of(length, "")) == pytest.approx(length, rel=0.1)
    assert shape_of(5, "Really?") == shape_of(5, "Really.") | 128


def test_the_day_the_speaker_and_what_is_spoken_of_are_kept() -> None:
    (piece,) = pieces("we met last Friday", AT, "Ana María")
    assert {"=20250407", "=202504", "=20250404", "@ana", "@maria"} <= set(piece.terms.split())


MIXED = st.text(
    alphabet="aB1 _-.\n\té\u0301ΣσİßÅ한\u1112\u1161\u11ab日本😀→½ﬁ\u00a0\u2028=\u0338’क\u0b3e",
    max_size=20,
)


@given(MIXED | st.text(max_size=20))
def test_words_are_the_same_whatever_stands_beside_them(text: str) -> None:
    """Only what has other signs than ASCII is folded, between spaces: that is as good as all."""
    whole = [
        part
        for word in terms._WORD.findall(terms._folded(text.lower()))
        for part in terms._parts(word)
    ]
    assert words_of(text) == whole
