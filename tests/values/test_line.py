"""The formats of texts that em adds to JSON Schema."""

import pytest

from em.values.json_schema import FORMATS, limits_text, misfit

HIDDEN = ("a\nb", "a\x00b", "a\u202eb", "a\u200bb", "a\u2028b", " a", "a ", "\u0410da", "\uff21da")


@pytest.mark.parametrize("text", HIDDEN)
@pytest.mark.parametrize("form", sorted(FORMATS.keys() - {"text"}))
def test_no_format_takes_hidden_or_look_alike_characters(form: str, text: str) -> None:
    assert misfit({"format": form}, text) is not None


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *(("name", one) for one in ("Zoë Müller", "Jean-Luc", "O'Brien", "Мария", "東京タワー")),
        *(("line", one) for one in ("Why? It's $5 (<10%)!", "Straße 3, 東京")),
        *(("code", one) for one in ("#W12", "a.b@mail.example", "2026-05-01T10:00:00Z")),
    ],
)
def test_plain_texts_fit_their_format(form: str, text: str) -> None:
    assert misfit({"format": form}, text) is None


@pytest.mark.parametrize(
    ("form", "text"), [("name", "ops; rm -rf /"), ("name", "a?x=1"), ("code", "rep-9$(id)")]
)
def test_signs_of_syntax_are_in_no_name_and_no_code(form: str, text: str) -> None:
    assert misfit({"format": form}, text) is not None


def test_signs_say_less_than_a_pattern() -> None:
    assert not any(limits_text({"type": "string", "format": form}) for form in FORMATS)
    assert limits_text({"pattern": "^a"})
    assert limits_text({"format": "date"})
