"""The generated module: readable, typed, importable alone, and every record comes back exactly."""

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from em import Memory
from em.llm import ScriptedClient
from em.values.canonical import identical
from strategies import examples

CONSTRAINT = {
    "id": "too-much",
    "severity": "high",
    "action": "book",
    "message": "{destination} again",
    "when": {
        "all": [
            {
                "op": ">",
                "left": {"sum": {"in": "trips", "field": "cost_usd"}},
                "right": {"value": 5},
            },
            {
                "some": {
                    "in": "trips",
                    "where": {
                        "op": "==",
                        "left": {"item": "destination"},
                        "right": {"detail": "destination"},
                    },
                }
            },
            {"op": "!=", "left": {"profile": "city"}, "right": {"value": "Nowhere"}},
        ]
    },
    "events": ["e1"],
}


def rich_state(memory: Memory) -> Any:
    for n in range(30):
        trip = {
            "destination": f"City {n}",
            "date": "2024-05-02",
            "bedtime": "23:30",
            "left_at": "2024-05-02T10:00:00Z",
            "cost_usd": n if n % 2 else n + 0.5,
            "price": "$1,234.50",
            "rate": "1.50",
            "nights": "12",
            "purpose": ("business", "family")[n % 2],
            "online": n % 2 == 0,
            "tags": ["a", "b"],
            "legs": [{"from": "LIS", "day": "2024-05-02"}],
            "hotel": {"name": "X", "stars": 4, "open": {"since": "2020-01-01"}},
            "class": "b",
            "Class": "c",
            "2nd try": None,
            "mixed": [1, "x", None, {"a": 1}][n % 4],
        }
        memory.observe("ana", trip, type="Trip")
    memory.observe("ana", {"city": "Porto", "age": 30}, type="Profile", source="ana")
    memory.observe("ana", "Tell me when I spend too much.")
    memory.checkpoint("ana")
    memory.resolve("ana", "city", policy="source", order=['a "doctor"', "ana"])
    model = ScriptedClient([{"facts": [], "constraints": [CONSTRAINT]}])
    return memory.checkpoint("ana", llm=model, again=True)


def test_types_are_inferred(memory: Memory) -> None:
    trip = rich_state(memory).trips[3]
    assert trip.date == datetime.date(2024, 5, 2)
    assert trip.bedtime == datetime.time(23, 30)
    assert trip.left_at == datetime.datetime(2024, 5, 2, 10, tzinfo=datetime.UTC)
    assert (trip.rate, trip.nights) == (Decimal("1.50"), 12)
    assert (trip.price.amount, trip.price.currency) == (Decimal("1234.50"), "USD")
    assert trip.legs[0].day == trip.date
    assert trip.hotel.open.since == datetime.date(2020, 1, 1)
    assert {trip.class_, trip.class__2} == {"b", "c"}
    assert trip.mixed.get("a") == 1


def test_it_is_readable_and_says_what_each_field_holds(memory: Memory) -> None:
    code = rich_state(memory).code
    assert 'purpose: Literal["business", "family"]' in code
    assert "cost_usd: int | float" in code
    assert '"""30 of 30 records; such as City 0, City 1, City 2"""' in code
    assert 'return by_source(entries, ("a \\"doctor\\"", "ana", ))' in code
    assert "def rule_1_too_much(state: State, details: Mapping[str, Any]) -> bool:" in code


def test_mypy_strict_accepts_it_and_it_imports_in_a_clean_interpreter(
    memory: Memory, tmp_path: Path
) -> None:
    module = tmp_path / "ana_state.py"
    module.write_text(rich_state(memory).code)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(module)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    alone = "import ana_state as m; print(m.State().trips, m.Profile().city, len(m.RULES))"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append('.')\n{alone}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout.strip() == "[] None 1", run.stderr


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        "2024-05-02|2024-02-30|02.05.2024|May 2, 2024|5/2/2024|25/12/2024|10:30|24:00|$5|1,5|€ 3"
        "|007|42|1.50|-0|true|False|2024-05-02T10:00:00+02:00|2024-05-02 10:00|1e5|NaN".split("|")
    ),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.one_of(
    st.text(max_size=8),
    st.sampled_from("class|Class|event_ids|as_given|date|list|def|a b|a_b|a-b|é|e".split("|")),
)


@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(st.dictionaries(NAMES, VALUES, max_size=5), min_size=1, max_size=6), st.integers(0, 6)
)
def test_every_record_comes_back_as_it_was_given(records: list[dict[str, Any]], split: int) -> None:
    with Memory(":memory:") as memory:
        for part in (records[:split], records[split:]):
            memory.observe_many({"subject": "ana", "record": one, "type": "Thing"} for one in part)
            if part:
                state = memory.checkpoint("ana")
        kept = [event.body["record"] for event in memory.log.read(kinds="observation")]  # type: ignore[index]
        assert [state.as_record(thing) for thing in state.things] == kept
        again = memory.checkpoint("ana", rebuild=True)
        assert again.code == state.code
        assert again.things == state.things


@pytest.mark.parametrize(
    "text", ['"""', "\\", '\\"""', "\N{RIGHT-TO-LEFT OVERRIDE}x", "a\nimport os"]
)
def test_nothing_given_can_end_a_docstring_or_a_name(compiled: Any, text: str) -> None:
    state = compiled({text: text, "x": text}, type=text.strip() or "t")
    (collection,) = state.collections
    assert state.as_record(getattr(state, collection)[0]) == {text: text, "x": text}


EXACT: list[Any] = [
    {"a": 0.1, "b": 1e300, "c": -0.0, "d": 1.0, "e": 5e-324},
    {"a": 10**30, "b": -(10**40), "c": 2**63, "d": 2**64},
    {"a": None},
    {},
    {"a": {"b": {"c": [1, 1.0, None, "x", {"d": []}]}}},
    {"a": [[1], [2, [3]]], "b": [{"x": 1}, {"y": None}]},
    {"a": "1.10", "b": "-0", "c": "1e5", "d": "0010", "e": " 5 ", "f": "+5"},
    {"a": "2024-05-02", "b": "2024-05-02T10:00:00.120Z", "c": "10:00:00.5", "d": "2024-W01"},
    {"a": "é", "b": "e\N{COMBINING ACUTE ACCENT}", "c": "\N{PILE OF POO}", "d": "\u2028\0"},
    {"a": True, "b": "true", "c": "TRUE", "d": 1},
    {"a": "$1,200.50", "b": "1.200,50 €", "c": "$", "d": "1 000 EUR", "e": "¥0"},
]


@pytest.mark.parametrize("record", EXACT, ids=str)
@pytest.mark.parametrize("copies", [1, 25])
def test_exactly(compiled: Any, record: dict[str, Any], copies: int) -> None:
    """To the type and the sign, alone and among many; None is there, and missing is not."""
    other = {"a": "text", "z": 1}
    state = compiled(*[record] * copies, other)
    back = [state.as_record(thing) for thing in state.things]
    assert [identical(one, record) for one in back[:copies]] == [True] * copies, back[0]
    assert identical(back[-1], other)
    alone = compiled(record, type="Alone")
    assert identical(alone.as_record(alone.alones[0]), record)


NASTY = (
    '"""',
    "\\",
    '\\"""',
    "'''",
    "a\nimport os",
    "{x.__class__}",
    "{0}%s",
    '"); raise SystemExit(); ("',
    "\N{RIGHT-TO-LEFT OVERRIDE}x",
    "x\N{LINE SEPARATOR}y\x0c\r",
    "#",
    "\N{FULLWIDTH QUOTATION MARK}\N{MATHEMATICAL BOLD SMALL C}lass",
)


@pytest.mark.parametrize("text", NASTY)
def test_nothing_given_becomes_code(memory: Memory, tmp_path: Path, text: str) -> None:
    """In names, values, literals, messages, sources, subjects: it stays what was said."""
    type_ = "".join(char if char.isprintable() else " " for char in text).strip()
    for _ in range(25):  # enough for a Literal
        memory.observe("ana", {text: text, "kind": text, "list": [text]}, type=type_, source=type_)
    memory.observe("ana", {text: 1}, type="Profile")
    memory.observe("ana", "Some rules.")
    memory.checkpoint("ana")
    memory.resolve("ana", f"Profile.{text}", policy="source", order=[text])
    message = text.replace("{", "(").replace("}", ")")
    rule = {
        "id": "r",
        "severity": "info",
        "action": text,
        "message": message,
        "when": {"op": "==", "left": {"value": text}, "right": {"value": {text: [text]}}},
        "events": ["e1"],
    }
    model = ScriptedClient([{"facts": [], "constraints": [rule]}])
    state = memory.checkpoint("ana", llm=model, again=True)
    first = getattr(state, next(iter(state.collections)))[0]
    assert state.as_record(first) == {text: text, "kind": text, "list": [text]}
    assert [one.message for one in state.module.RULES] == [message]
    module = tmp_path / "m.py"
    module.write_text(state.code)
    quiet = "import sys; sys.path.append('.'); before = set(sys.modules); import m; print('ok')"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", quiet],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.stdout, run.stderr) == ("ok\n", "")
