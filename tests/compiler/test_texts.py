"""Texts that hold values: put together again for other values, or handed over, never wrong."""

import json
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from em.compiler.evidence import BY_PERSON
from em.compiler.example import Call, Example
from em.compiler.learner import Learnt, learn
from em.runner.engine import run_routine
from em.runner.run import RunResult


class Ran(NamedTuple):
    result: RunResult
    written: list[dict[str, Any]]


def learnt(text: Any, record: Any = None, request: str = "", **inputs: Any) -> Learnt:
    """Compile one recording that read a record, if there is one, and wrote a text."""
    calls = [] if record is None else [Call("get_record", {"ref": inputs["ref"]}, record)]
    calls.append(Call("post", {"text": text}, {"ok": True}, None, "write"))
    example = Example(inputs, calls, request=request)
    return learn("task", [example], caution=BY_PERSON)


def ran(made: Learnt, record: Any = None, **inputs: Any) -> Ran:
    written: list[dict[str, Any]] = []

    def post(**args: Any) -> Any:
        written.append(args)
        return {"ok": True}

    tools: dict[str, Callable[..., Any]] = {"post": post, "get_record": lambda ref: record}
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(made.routine, ensure_ascii=False)
        (Path(folder) / "routine.yaml").write_text(text)
        return Ran(run_routine(folder, inputs, tools), written)


# ---- any text, any values

WORDS = "the order of this week is ready please look after it with care".split()
SIGNS = [" ", ", ", ": ", " - ", "\n", "/", "; ", " (", "=", ". ", '"', "'", "<", "|"]
NAMES = st.sampled_from("Mira Jonas Odile Tarek Winnie Boris Freya Anselm".split())
VALUES = {
    "name": NAMES,
    "full": st.tuples(NAMES, NAMES).map(" ".join),
    "code": st.tuples(st.sampled_from("ABX"), st.integers(1000, 99999)).map("{0[0]}-{0[1]}".format),
    "number": st.integers(100, 99999),
    "money": st.integers(101, 999_999).map(lambda cents: cents / 100),
    "day": st.dates(date(2021, 1, 1), date(2029, 12, 31)).map(str),
    "rough": st.text("Zq'\"&<>, |/;=\n-", min_size=3, max_size=12),
    "names": st.lists(NAMES, min_size=2, max_size=5, unique=True),
}
FORMS: dict[str, list[Callable[[Any], str]]] = {
    "name": [str, str.upper, str.lower],
    "full": [str, lambda one: one.split()[0], lambda one: one.lower().replace(" ", "-")],
    "money": [str, "{:.2f}".format, "{:,.2f}".format],
    "day": [str, lambda one: date.fromisoformat(one).strftime("%d.%m.%Y")],
    "names": [", ".join, "\n".join, lambda one: "\n".join(f"* {name}" for name in one)],
}


class Drawn(NamedTuple):
    """A text with values: how it is written, and the values of the recording and of the run."""

    write: Callable[[dict[str, Any]], str]
    old: dict[str, Any]
    new: dict[str, Any]


@st.composite
def texts(draw: st.DrawFn) -> Drawn:
    kinds = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=4, unique=True))
    forms = {kind: draw(st.sampled_from(FORMS.get(kind, [str]))) for kind in kinds}
    order = draw(st.lists(st.sampled_from(kinds), min_size=len(kinds), max_size=6))
    sign, word = st.sampled_from(SIGNS), st.sampled_from(WORDS)
    pieces = [draw(sign) + draw(word) + draw(sign) for _ in range(len(order) + 1)]

    def write(values: dict[str, Any]) -> str:
        found = [pieces[0]]
        for kind, piece in zip(order, pieces[1:], strict=True):
            found += [forms[kind](values[kind]), piece]
        return "".join(found)

    both = [{kind: draw(VALUES[kind]) for kind in kinds} for _ in range(2)]
    return Drawn(write, both[0], both[1])


def _is_rewritten(made: Ran, expected: str) -> bool:
    assert made.written in ([], [{"text": expected}])
    assert made.result.status == ("ok" if made.written else "needs_input")
    return bool(made.written)


@settings(deadline=None, max_examples=150)
@given(texts())
def test_a_text_of_inputs_is_rewritten_or_handed_over(drawn: Drawn) -> None:
    made = learnt(drawn.write(drawn.old), **drawn.old)
    _is_rewritten(ran(made, **drawn.new), drawn.write(drawn.new))


@settings(deadline=None, max_examples=150)
@given(texts())
def test_a_text_of_a_record_is_rewritten_or_handed_over(drawn: Drawn) -> None:
    made = learnt(drawn.write(drawn.old), drawn.old, ref="K77aa")
    found = ran(made, drawn.new, ref="M31bb")
    _is_rewritten(found, drawn.write(drawn.new))


# ---- plain forms

PLAIN = [
    ("Dear {0},", lambda v: v.split()[0], "Carla Mendes", "Henrik Sand"),
    ("*** {0} ***", str.upper, "Leipzig", "Gdansk"),
    ("due on {0}.", lambda v: f"{date.fromisoformat(v):%-d %B %Y}", "2026-03-04", "2027-11-23"),
    ("pay {0} now", lambda v: f"${v:,.2f}", 1234.5, 98765.25),
    ("net {0} EUR", lambda v: f"{v:.2f}".replace(".", ","), 99.9, 450.25),
    ("img_{0}.png", lambda v: f"{v:04d}", 12, 7),
    ("with {0} today", lambda v: ", ".join(v[:-1]) + " and " + v[-1], ["Eva", "Nils", "Tom"],
     ["Gina", "Paul", "Lea", "Max"]),
    ("https://x.example/{0}?q=1", lambda v: v.replace(" ", "%20"), "Mill Lane", "Old Town Road"),
    ('{{"event": {0}, "v": 2}}', json.dumps, "badge printed", 'sign "Exit" moved'),
    ("UPDATE t SET city = '{0}' WHERE n = 4", lambda v: v.replace("'", "''"), "Porto", "L'Aquila"),
    ("convert -i {0} out", lambda v: v if " " not in v else f"'{v}'", "a.mov", "my film.mov"),
    ("/{0}/x", lambda v: v.lower().replace(" ", "_"), "Acme Tools", "Blue Fjord"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "form", "old", "new"), PLAIN)
@pytest.mark.parametrize("is_read", [False, True])
def test_a_value_is_written_in_the_form_that_was_recorded(
    text: str, form: Callable[[Any], str], old: Any, new: Any, is_read: bool
) -> None:
    if is_read:
        made = learnt(text.format(form(old)), {"value": old}, ref="K77aa")
        found = ran(made, {"value": new}, ref="M31bb")
    else:
        made = learnt(text.format(form(old)), value=old)
        found = ran(made, value=new)
    assert found.written == [{"text": text.format(form(new))}]


# ---- what is left over

LEFT = [
    ("Total 12.50 for Mira", {"who": "Mira"}),
    ("Mira comes on 2026-03-04", {"who": "Mira"}),
    ("Mira comes on 4 March 2026", {"who": "Mira"}),
    ("Mira: ask Berg", {"who": "Mira", "boss": "Olaf Berg Lund"}),
    ("T081500 Mira", {"who": "Mira", "at": "0815"}),
]


@pytest.mark.parametrize(("text", "inputs"), LEFT)
def test_what_differs_from_run_to_run_is_asked_for(text: str, inputs: dict[str, Any]) -> None:
    assert learnt(text, **inputs).asked == ["text_part"]


def test_a_word_of_the_request_is_not_taken_for_wording() -> None:
    made = learnt("Hello Mira, welcome to Bergen", request="Welcome Mira to Bergen.", who="Mira")
    assert made.asked == ["text_part"]


def test_a_number_that_is_part_of_a_name_is_asked_for() -> None:
    assert learnt("tier-2 for Mira", {"who": "Mira", "replies": 2}, ref="K77aa").asked


@pytest.mark.parametrize(("old", "new"), [(3, 1), (1, 3)])
def test_one_and_many_are_not_taken_for_each_other(old: int, new: int) -> None:
    word = "item" if old == 1 else "items"
    made = learnt(f"There is {old} {word} for Mira", pieces=old, who="Mira")
    assert ran(made, pieces=new, who="Jonas").result.status == "needs_input"
    assert ran(made, pieces=old, who="Jonas").written == [
        {"text": f"There is {old} {word} for Jonas"}
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"{0}";open', 'the "old" one'),
        ("2026,{0},open", "Berg, Olaf"),
        ("<b>{0}</b>", "Salt & Stone"),
        ("| {0} | open |", "a | b"),
        ("kind={0}\nstate=open", "x\nstate=shut"),
        ("rm -r {0} now", "-rf"),
    ],
)
def test_a_value_that_would_be_read_otherwise_is_handed_over(text: str, value: str) -> None:
    made = learnt(text.format("Mira"), who="Mira")
    assert ran(made, who="Jonas").written == [{"text": text.format("Jonas")}]
    assert ran(made, who=value).result.status == "needs_input"


# ---- lists

ROWS = [{"sku": "K1", "sum": 40.5}, {"sku": "K7", "sum": 12.25}]
MORE = [{"sku": "B2", "sum": 7.5}, {"sku": "B3", "sum": 8.75}, {"sku": "K1", "sum": 2.0}]


@pytest.mark.parametrize(
    ("line", "glue", "frame"),
    [
        ("{sku},{sum}", "\n", "sku,sum\n{}\n"),
        ("| {sku} | {sum:.2f} |", "\n", "| a | b |\n{}"),
        ("{sku} ({sum})", ", ", "Sold: {}."),
    ],
)
def test_a_list_is_written_line_by_line(line: str, glue: str, frame: str) -> None:
    def text(rows: list[dict[str, Any]]) -> str:
        return frame.format(glue.join(line.format(**row) for row in rows))

    made = learnt(text(ROWS), {"rows": ROWS}, ref="K77aa")
    assert ran(made, {"rows": MORE}, ref="M31bb").written == [{"text": text(MORE)}]
    assert ran(made, {"rows": []}, ref="M31bb").result.status == "needs_input"


def test_things_are_counted_by_their_name() -> None:
    made = learnt("2 rows are new", {"rows": ROWS}, ref="K77aa")
    assert ran(made, {"rows": MORE}, ref="M31bb").written == [{"text": "3 rows are new"}]
    assert learnt("2 days are left", {"rows": ROWS}, ref="K77aa").asked == ["text_part"]


# ---- results that are texts

RECORD = {"ref": "K77aa", "title": "Pruning Roses", "mode": "open", "pages": 31}
OTHER = {"ref": "M31bb", "title": "Winter Compost", "mode": "open", "pages": 8}


def as_lines(record: dict[str, Any]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in record.items())


def as_table(record: dict[str, Any]) -> str:
    cells = [(name, str(value)) for name, value in record.items()]
    widths = [max(map(len, row)) + 2 for row in cells]
    rows = ([row[side] for row in cells] for side in (0, 1))
    return "\n".join(
        "".join(one.ljust(width) for one, width in zip(row, widths, strict=True)) for row in rows
    )


@pytest.mark.parametrize("shape", [json.dumps, repr, as_lines, as_table])
def test_a_text_that_writes_out_a_record_is_read_as_one(shape: Callable[[Any], str]) -> None:
    made = learnt("New: Pruning Roses", shape(RECORD), ref="K77aa")
    assert any(
        step.get("value") == "{{ structure(record_text) }}" for step in made.routine["steps"]
    )
    assert ran(made, shape(OTHER), ref="M31bb").written == [{"text": "New: Winter Compost"}]
    shut = {**OTHER, "mode": "shut"}
    assert ran(made, shape(shut), ref="M31bb").result.status == "needs_input"


def test_a_part_of_a_text_is_found_by_the_wording_around_it() -> None:
    page = "The hall is open to all; ask {0} for the key."
    made = learnt("Mrs Vale", page.format("Mrs Vale"), ref="K77aa")
    assert ran(made, page.format("Mr Orr"), ref="M31bb").written == [{"text": "Mr Orr"}]
    shut = page.format("Mr Orr").replace("open", "shut")
    assert ran(made, shut, ref="M31bb").result.status == "needs_input"


def test_a_text_that_was_read_is_written_back_with_one_value_replaced() -> None:
    page = "port: 8080\nimage: cart:{0}\nlimit: 4\n"
    made = learnt(page.format("3.1"), page.format("3.0"), ref="K77aa", image="cart:3.1")
    other = "port: 99\nimage: login:{0}\nlimit: 4\nmore: yes\n"
    found = ran(made, other.format("6.9"), ref="M31bb", image="login:7.0")
    assert found.written == [{"text": other.format("7.0")}]


def test_a_text_with_lines_of_one_that_was_read_is_no_wording() -> None:
    page = "first line here\nsecond line here\nthird line here"
    text = page.replace("second line here", "another one") + "\nMira"
    assert learnt(text, page, ref="K77aa", who="Mira").asked == ["text"]


@pytest.mark.parametrize(("name", "written"), [("foo_bar", "Foo_Bar"), ("it's late", "It'S Late")])
def test_a_form_is_what_a_run_makes_of_it(name: str, written: str) -> None:
    text = f"See {written} today."
    made = ran(learnt(text, name=name), name=name)
    assert made.written in ([], [{"text": text}])
