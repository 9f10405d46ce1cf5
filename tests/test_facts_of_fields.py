"""Fields inside of records must be as all traces saw them: nested, in lists, and beside others."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from em.compiler.record_facts import Shown, record_facts
from em.runner.expressions.direct import together
from em.runner.expressions.functions import FUNCTIONS, field_kind, objection, strange_fields
from test_facts_of_reads import World, why

SAME = ("Pay out {}.",) * 5
VARIED = (
    "Pay out {}.",
    "Please pay out {}.",
    "Could you pay out {}?",
    "I want to pay out {}.",
    "Pay out {}, thanks",
)
FORMS = {"a plan": VARIED, "a template": SAME, "one trace": SAME[:1]}


def loans(path: Path, record: Callable[[int, bool], Any], words: Sequence[str]) -> World:
    """A bank that looks at a loan, and pays out its sum."""
    world = World(path / "m.db")

    def loan(loan_id: str, is_new: bool) -> Any:
        number = int(loan_id[5:])
        return {"loan_id": loan_id, "total": number * 10 + 0.75, **record(number, is_new)}

    world.add("get_loan", ("loan_id",), loan)
    world.add("pay_out", ("loan_id", "total"), None)
    tasks = {}
    for number, text in enumerate(words, 601):
        own = f"LOAN-{number}"
        paid = loan(own, False)["total"]
        tasks[text.format(own)] = [("get_loan", own), ("pay_out", own, paid)]
    world.learn(tasks)
    return world


def refuses(world: World, said: str) -> None:
    refused = world.run("Pay out LOAN-608.", changed=True)
    assert world.written == []
    assert refused.status in ("needs_input", "failed")
    assert said in why(refused)
    assert world.run("Pay out LOAN-608.", changed=False).status == "ok"
    assert len(world.written) == 1


Case = tuple[Callable[[int, bool], Any], str]
ALWAYS: dict[str, Case] = {
    "a flag of a member": (
        lambda n, new: {"papers": [{"title": f"paper {n}", "signed": not new}]},
        "papers.signed false",
    ),
    "a new field of a member": (
        lambda n, new: {"papers": [{"page": n, **({"torn": True} if new else {})}]},
        "papers.torn",
    ),
    "a member that is no record": (
        lambda n, new: {"papers": ["lost"] if new else [{"page": n}]},
        "lost",
    ),
    "a field of a member that is gone": (
        lambda n, new: {"papers": [{"page": n, **({} if new else {"signed": True})}]},
        "papers.signed",
    ),
    "a flag three levels deep in a list": (
        lambda n, new: {"a": {"b": [{"c": {"open": not new}}]}},
        "a.b.c.open false",
    ),
    "a word in a list": (
        lambda n, new: {"holders": {"marks": ["sanctioned"] if new else ["known"]}},
        "sanctioned",
    ),
    "a code": (lambda n, new: {"cur": "JPY" if new else "EUR"}, "JPY"),
    "a level": (lambda n, new: {"risk_level": 4 if new else 1}, "4"),
    "a list for a name": (
        lambda n, new: {"banker": ["Ana", "Bo"] if new else f"Banker{n}"},
        "banker",
    ),
    "a flag for a number": (lambda n, new: {"years": True if new else 3 + n % 4}, "years"),
    "a word for a day": (
        lambda n, new: {"until": "soon" if new else f"2026-03-{n % 20 + 1:02}"},
        "until",
    ),
    "another unit": (lambda n, new: {"fee": "180 USD" if new else f"{n} EUR"}, "180 USD"),
    "a payee who is another": (
        lambda n, new: {"holder": f"Holder{n}", "payee": "Somebody" if new else f"Holder{n}"},
        "payee",
    ),
    "an end before the start": (
        lambda n, new: {"start": f"2026-0{5 if new else 3}-02", "end": f"2026-04-{n % 20 + 1:02}"},
        "start",
    ),
    "more than its limit": (
        lambda n, new: {"drawn": 9000 if new else n % 7 + 1, "draw_limit": 40 + n},
        "drawn",
    ),
    "a note that speaks against it": (
        lambda n, new: {"note": "DO NOT PAY" if new else f"seen by clerk {n}"},
        "DO NOT PAY",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ALWAYS)
def test_a_field_must_be_as_recorded_even_by_one_trace(
    tmp_path: Path, form: str, case: str
) -> None:
    record, said = ALWAYS[case]
    refuses(loans(tmp_path, record, FORMS[form]), said)


SEVERAL: dict[str, Case] = {
    "a number that was always the same": (
        lambda n, new: {"payments": 20 if new else 12}, "is 20 now; it was 12"
    ),
    "one of two codes": (lambda n, new: {"cur": "JPY" if new else ("EUR", "USD")[n % 2]}, "JPY"),
    "more drawn than there is": (
        lambda n, new: {"drawn": 9000 if new else n - 590, "held": n + 1}, "drawn"
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["a plan", "a template"])
@pytest.mark.parametrize("case", SEVERAL)
def test_what_several_traces_had_in_common_must_be_so_again(
    tmp_path: Path, form: str, case: str
) -> None:
    record, said = SEVERAL[case]
    refuses(loans(tmp_path, record, FORMS[form]), said)


def facts(*records: Any, used: str = "") -> list[str]:
    return [*record_facts("loan", [Shown({}, one) for one in records], used=used)]


def test_what_varied_is_not_compared() -> None:
    names = ("Ana Lund", "do not call Bo", "Cy", "Di Vang", "Eva")
    found = facts(
        *(
            {"who": who, "rate": rate, "left": 9 - rate, "marks": [{"colour": who}], "odd": odd}
            for who, rate, odd in zip(names, (1, 8, 3, 7, 5), ("a", 2, None, [1], "b"), strict=True)
        )
    )
    text = " ".join(found)
    assert '"who": "any text"' in text
    assert '"odd": "list or nothing or number or text"' in text
    assert "loan.rate <=" not in text
    assert "loan.left <=" not in text
    assert not any(name in text for name in names)


def test_other_members_of_a_list_that_something_is_chosen_from_don_t_matter() -> None:
    records = [{"papers": [{"page": n, "signed": True}], "marks": ["known"]} for n in range(3)]
    assert "papers.*.signed" in " ".join(facts(*records))
    chosen = " ".join(facts(*records, used='every(loan, "papers.*.page")'))
    assert '"papers": "list"' in chosen
    assert "papers.*.signed" not in chosen
    assert "strange_items(loan.marks" in chosen


def test_keys_that_are_data_are_no_names_of_fields() -> None:
    members = [{"options": {name: "x"}} for name in ("colour", "size", "weight")]
    assert not any('options.@"' in one for one in facts({"items": members}))


def test_one_order_that_follows_from_others_is_left_out() -> None:
    days = [{"a": f"2026-01-0{n}", "b": f"2026-02-0{n}", "c": f"2026-03-0{n}"} for n in (1, 2)]
    found = [one for one in facts(*days) if " <= " in one]
    assert found == ["loan.a <= loan.b", "loan.b <= loan.c"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "nothing"), (True, "boolean"), (2.5, "number"), ("2026-01-02", "date"),
        ("a@b.example", "e-mail"), ("70 EUR", "# EUR"), ("12kg", "# kg"), ("€ 5", "€#"),
        ("Ana Lund", "text"), ("R12", "text"), ("do not pay", "any text"), ([1], "list"),
    ],
)  # fmt: skip
def test_a_field_has_a_kind(value: Any, kind: str) -> None:
    assert field_kind(value) == kind


def test_a_long_text_is_a_document_and_no_note() -> None:
    assert objection("Please don’t.")
    assert not objection("A note about a knot.")
    assert not objection("word " * 300 + "not")


@pytest.mark.parametrize(
    "known",
    [
        {"a": "number"}, {"a": "text"}, {"a": "number or nothing"}, {"a": ["x", "y"]},
        {"a.*": "text"}, {"a.*.b": [True]}, {"a.*.@": ["b"]}, {"*.b": "date"}, {"a": "# EUR"},
        {"a": "any text", "b": "list"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "value",
    [
        {}, {"a": 1}, {"a": True}, {"a": "x"}, {"a": "do not"}, {"a": None}, {"a": ["x", 1]},
        {"a": [{"b": True}]}, {"a": [{"b": 1, "c": 2}]}, {"a": "5 EUR", "b": []}, [], [{"b": "x"}],
        "x", None, {"a": {"k": {"b": True}}}, {"a": [[]]},
    ],
)  # fmt: skip
def test_the_fast_check_holds_only_if_nothing_is_strange(known: Any, value: Any) -> None:
    text = f"strange_fields(record, {str(known).replace('True', 'true')}) == none"
    check = together([text])
    assert list(check.sources) == [text]
    if check.hold({**FUNCTIONS, "record": value}):
        assert strange_fields(value, known) is None


def test_the_fast_check_holds_for_a_record_as_recorded() -> None:
    records = [
        {"id": f"L-{n}", "n": n, "tags": ["a"], "rows": [{"x": 1.5, "on": False}]} for n in range(3)
    ]
    found = facts(*records)
    check = together(found)
    assert list(check.sources) == found
    assert check.hold({**FUNCTIONS, "loan": {**records[0], "n": 7}})
    assert not check.hold({**FUNCTIONS, "loan": {**records[0], "rows": [{"x": 1.5, "on": True}]}})


def parcels(path: Path) -> World:
    """A depot that weighs parcels, and sends light ones by bike and heavy ones by van."""
    world = World(path / "m.db")
    weights = [n * 0.3 + 0.5 for n in range(9)] + [n * 0.4 + 6.2 for n in range(9)]

    def parcel(parcel_id: str, is_new: Any) -> Any:
        number = int(parcel_id[4:]) - 100
        weight = is_new if number >= len(weights) else weights[number]
        return {"parcel_id": parcel_id, "weight": weight}

    world.add("get_parcel", ("parcel_id",), parcel)
    world.add("send_by_bike", ("parcel_id",), None)
    world.add("send_by_van", ("parcel_id",), None)
    tasks = {}
    for number, weight in enumerate(weights, 100):
        own = f"PAR-{number}"
        way = "send_by_bike" if weight < 5 else "send_by_van"
        tasks[f"Take care of {own}."] = [("get_parcel", own), (way, own)]
    world.learn(tasks)
    return world


def test_ways_part_by_numbers_like_the_recorded_ones_only(tmp_path: Path) -> None:
    world = parcels(tmp_path)
    for weight in (True, 2400, 0.001, "2.0", -1):
        world.is_new = weight  # type: ignore[assignment]  # what the new parcel weighs
        world.memory.run(world.routine, {"request": "Take care of PAR-300."}, world.tools)
        assert world.written == []
    for weight in (2.0, 25):
        world.is_new = weight  # type: ignore[assignment]  # what the new parcel weighs
        world.memory.run(world.routine, {"request": "Take care of PAR-300."}, world.tools)
    assert len(world.written) == 2


def boxes(path: Path, *, on_one: bool) -> World:
    """A store in which some boxes are sealed and some are shipped, in one task both."""
    world = World(path / "m.db")
    world.add("get_box", ("box_id",), lambda box, is_new: {"box_id": box, "state": "stored"})
    world.add("ship_box", ("box_id", "city"), None)
    world.add("seal_box", ("box_id",), None)
    two = "BX-873" if on_one else "BX-874"

    def ship(box: str, city: str) -> list[tuple[Any, ...]]:
        return [("get_box", box), ("ship_box", box, city)]

    def seal(box: str) -> list[tuple[Any, ...]]:
        return [("get_box", box), ("seal_box", box)]

    world.learn(
        {
            "Ship BX-870 to Lyon.": ship("BX-870", "Lyon"),
            "Please seal BX-871.": seal("BX-871"),
            f"Seal BX-873. Ship {two} to Turin.": [*seal("BX-873"), *ship(two, "Turin")],
            "Seal BX-875. Ship BX-876 to Lyon.": [*seal("BX-875"), *ship("BX-876", "Lyon")],
            "Could you ship BX-877 to Turin?": ship("BX-877", "Turin"),
            "I want to seal BX-878.": seal("BX-878"),
        }
    )
    return world


def test_two_effects_on_one_thing_need_a_trace_that_had_both(tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    (tmp_path / "on one").mkdir()
    apart = boxes(tmp_path / "apart", on_one=False)
    refused = apart.run("Seal BX-880. Ship BX-880 to Lyon.", changed=False)
    assert apart.written == []
    assert "are both asked for BX-880" in why(refused)
    assert apart.run("Seal BX-880. Ship BX-881 to Lyon.", changed=False).status == "ok"
    on_one = boxes(tmp_path / "on one", on_one=True)
    assert on_one.run("Seal BX-880. Ship BX-880 to Lyon.", changed=False).status == "ok"
    assert on_one.written == [("BX-880",), ("BX-880", "Lyon")]
