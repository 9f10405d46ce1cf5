"""A secret that is known is found however it is written."""

import base64
import html
import json
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.redaction.masker import forms
from em.runner.secrets import Secrets

ODD = "Tr0ub4/do+r &\"'<é3>\\\n"
WAYS = {
    "json": lambda text: json.dumps({"k": text}),
    "json in json": lambda text: json.dumps(json.dumps({"k": text})),
    "utf-8 json": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "ascii": ascii,
    "path": quote,
    "part": lambda text: quote(text, safe=""),
    "plus": quote_plus,
    "form": lambda text: urlencode({"k": text}),
    "html": html.escape,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "url base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "upper": str.upper,
    "lower": str.lower,
    "strip": str.strip,
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_writing_it_gets_past(way: str) -> None:
    secrets = Secrets()
    secrets.add("key", ODD)
    shown = secrets.masked(f"bad {WAYS[way](ODD)}!")
    assert "[redacted:key]" in shown
    assert "ub4" not in shown.lower()
    assert WAYS[way](ODD).strip('"')[2:-3] not in shown


@given(st.binary(max_size=5), st.text("abcXYZ019-_é", min_size=9, max_size=40), st.binary())
def test_it_is_found_inside_of_base64(before: bytes, secret: str, behind: bytes) -> None:
    whole = base64.b64encode(before + secret.encode() + behind).decode()
    assert any(form in whole for form in forms(secret))


def test_a_secret_that_is_a_number_is_found_as_one() -> None:
    secrets = Secrets()
    secrets.add("pin", "0739154")
    assert secrets.masked({"pin": 739154, "n": [739154.0, 7, True]}) == {
        "pin": "[redacted:pin]",
        "n": ["[redacted:pin]", 7, True],
    }


def test_masking_twice_is_masking_once_and_a_made_up_marker_hides_nothing() -> None:
    secrets = Secrets()
    secrets.add("key", "key")
    assert secrets.masked(secrets.masked("a key!")) == "a [redacted:key]!"
    secrets.add("other", "hush-hush")
    assert "hush" not in secrets.masked("[redacted:hush-hush]")
    assert len(secrets.masked({"a hush-hush": 1, "a HUSH-HUSH": 2})) == 2
