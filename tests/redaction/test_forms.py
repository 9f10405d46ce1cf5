"""A secret that is known is found however it is written."""

import base64
import html
import json
import sys
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.redaction.masker import Masker, forms, without_secrets
from em.redaction.redactor import Redactor
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


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("ΠΑΣΤΑ-ΠΑΣ", "ΠΑΣΤΑ-ΠΑΣΑ"),
        ("5 µm gap", "5 ΜM GAP"),
        ("straßİ", "STRAẞi"),
        ("ſix-K", "SIX-k"),
    ],
)
def test_it_is_found_in_any_case_of_any_letters(secret: str, shown: str) -> None:
    secrets = Secrets()
    secrets.add("key", secret)
    assert secrets.masked(f"a {shown}!").startswith("a [redacted:key]")


class Login(msgspec.Struct):
    steps: list[dict[str, str]]


def calls_to_clean(secrets: int) -> int:
    """Count the calls of Python functions that it takes to mask as many secrets."""
    words = [f"{number:04d}kW7Qz9LpX2" for number in range(secrets)]
    login = Login([{"password": word, "note": f"wrong: {word}"} for word in words])
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        clean = without_secrets(login, Redactor())
    finally:
        sys.setprofile(None)
    marked = {"password": "[redacted:password]", "note": "wrong: [redacted:password]"}
    assert clean.steps == [marked] * secrets
    return calls


def test_masking_many_secrets_costs_in_proportion_to_their_number() -> None:
    calls_to_clean(1)  # what is compiled once
    assert calls_to_clean(200) < 15 * calls_to_clean(20)


def test_what_finds_secrets_is_built_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Masker] = []
    build = Masker._compile
    monkeypatch.setattr(Masker, "_compile", lambda self: (built.append(self), build(self))[1])
    for secrets in (10, 100):
        built.clear()
        calls_to_clean(secrets)
        assert len(built) == 1
