"""Selections choose one record or fail, and compare as a clerk would."""

from typing import Any

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from em.errors import ExpressionError
from em.runner.expressions import language
from em.runner.expressions.functions import FUNCTIONS, distinct, fits, merge
from em.runner.expressions.language import compile_direct, compile_expression
from em.values.canonical import same

ORDER: Any = {
    "user_id": "u1",
    "items": [
        {"name": "Desk Lamp", "id": "1", "price": 20, "options": {"color": "red", "size": "S"}},
        {"name": "Desk", "id": "2", "price": 90.5, "options": {"color": "red", "size": "L"}},
        {"name": "Chair", "id": "3", "price": 20, "options": {"color": "blue", "size": "L"}},
    ],
    "by_key": {"a": {"size": 1, "ship-to": {"city": "Rome"}}, "b": {"size": 2}},
}
SCOPE: Any = {
    "order": ORDER,
    "wanted": {"name": " desk   LAMP"},
    "nothing": None,
    "user": {"id": "u1"},
}


def value_of(source: str) -> Any:
    """Evaluate an expression in both evaluators; they must agree."""
    native = compile_direct(source, "here")
    assert native is not None
    scope = {**FUNCTIONS, **SCOPE}
    found = native(scope)
    assert found == language._jinja().expression(source, "here")(scope)
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("only(order.items, name=wanted.name).id", "1"),
        ('only(order.items, {"options.color": "blue"}).id', "3"),
        ('only(order.by_key, {"ship-to": {"city": "rome"}}).size', 1),
        ('only(order.items, options={"color": "RED", "size": "l"}).id', "2"),
        ("only_key(order.by_key, size=2)", "b"),
        (
            'not where([order], {"items": holding([{"id": "3"}, {"options": {"size": "S"}}])})',
            False,
        ),
        ('not where([order], {"items": holding([{"name": "chair"}, {"name": "bed"}])})', True),
        ('not where([order], {"items": holding([{"name": "chair"}, {"name": "chair"}])})', True),
        ('not where([order], {"items.*.name": holding("chair")})', False),
        ('not where([order], {"items.*.options.size": holding(["s", "L"])})', False),
        ('not where([order], {"nothing.*.name": holding("chair")})', True),
        ('only([order], holding({"items": [{"name": "desk"}]})).user_id', "u1"),
        ('only_key(order.by_key, holding({"size": 2}))', "b"),
        ('not where([order], holding({"items": [{"name": "desk"}]}), user_id="u2")', True),
        ('largest(order.items, "price").id', "2"),
        ('smallest(order.items, "price", options={"size": "L"}).id', "3"),
        ('len(where(order.items, options={"color": "red"}))', 2),
        ('not where(order.items, name="desk")', False),
        ('not where(order.items, name="bed")', True),
        ('every(order.items, "options.size")', ["S", "L", "L"]),
        ('common(order.items, "options.size", options={"color": "red"}, id="2")', "L"),
        ('distinct(every(order.items, "id"))', True),
        ('distinct(every(order.items, "options.color"))', False),
        ('"2" in every(order.items, "id")', True),
        ("order.user_id == user.id and not given(other)", True),
        ("given(wanted.name, nothing)", True),
        ("given(wanted.size)", False),
        ("given(unknown.part.of)", False),
        ("given(nothing.part)", False),
        ("given(len)", False),
        ('merge(wanted, {"name": "x"}).name if given(wanted) else 1', "x"),
    ],
)
def test_a_selection_finds_the_one_that_is_meant(source: str, found: Any) -> None:
    assert value_of(source) == found


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('only(order.items, name="bed")', "0 of 3 fit; there are"),
        ('only(order.items, options={"color": "red"})', "2 of 3 fit"),
        ("only(order.items)", "there are 3"),
        ('only_key(order.items, id="1")', "needs a mapping"),
        ("only_key(order.by_key)", "there are 2"),
        ('common(order.items, "options.size")', "the elements differ at 'options.size'"),
        ('common(order.items, "price", name="bed")', "0 of 3 fit"),
        ("only_key(order.by_key, size=at_least(1))", "2 of 2 fit"),
        ('smallest(order.items, "price")', "2 elements share the smallest 'price'"),
        ('smallest(order.items, "weight")', "one is nothing"),
        ('largest(order.items, "options")', "can't compare"),
        ('smallest(order.items, "price", name="bed")', "0 of 3 fit"),
        ('merge(wanted, {"size": 1})', "no field 'size'; it has: name"),
        ("only(order.items, name=wanted.size)", "no .*'size'"),
    ],
)
def test_a_selection_that_is_not_clear_fails(source: str, problem: str) -> None:
    scope = {**FUNCTIONS, **SCOPE}
    for evaluate in (
        compile_expression(source, "here"),
        language._jinja().expression(source, "here"),
    ):
        with pytest.raises(ExpressionError, match=problem):
            evaluate(scope)


def test_given_asks_about_an_object_as_about_a_record() -> None:
    from em.runner.run import StepReport

    scope = {**FUNCTIONS, "report": StepReport(id="a", status="done")}
    for source, found in (("given(report.status)", True), ("given(report.other)", False)):
        assert compile_expression(source, "here")(scope) is found
        assert language._jinja().expression(source, "here")(scope) is found


def test_a_function_of_udf_py_called_given_is_called() -> None:
    scope = {**FUNCTIONS, "x": 2, "given": lambda value: value + 1}
    assert compile_expression("given(x)", "here")(scope) == 3


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("Desk  Lamp ", "desk lamp", True),
        ("STRASSE", "straße", True),
        (1, 1.0, True),
        (True, 1, False),
        (None, "", False),
        (None, None, True),
        ("1", 1, False),
        ([1, " A"], [1.0, "a"], True),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": "X"}, {"a": "x"}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
    ],
)
def test_values_are_compared_as_a_clerk_would(one: Any, other: Any, are_same: bool) -> None:
    assert same(one, other) is same(other, one) is are_same
    assert distinct([one, other]) is not are_same


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["a", "A ", "b", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)


@generated(_VALUES, _VALUES)
def test_what_is_same_is_not_distinct(one: Any, other: Any) -> None:
    assert same(one, one)
    assert distinct([one, other]) is not same(one, other)


@generated(st.dictionaries(st.sampled_from("xyz"), _VALUES), st.data())
def test_a_record_fits_each_part_of_it(record: Any, data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(record)))) if record else set()
    part = {name: record[name] for name in names}
    assert fits(record, part)
    assert fits({**record, "more": 1}, part)
    assert merge(record, part) == record


@pytest.mark.parametrize("said", ["{}", "[]", "[{}]", '{"items": []}', '[{"name": "desk"}, {}]'])
def test_a_description_needs_at_least_one_property(said: str) -> None:
    with pytest.raises(ExpressionError, match="at least one property"):
        value_of(f"where([order], holding({said}))")
