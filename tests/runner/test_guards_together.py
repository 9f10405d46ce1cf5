"""Guards that are checked together hold exactly where each of them holds by itself."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from em.errors import EmError
from em.runner.expressions.direct import together
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import Missing, compile_expression

GUARDS = [
    'order.status == "open"',
    'order.status in ["open", "late", 1, none]',
    'order.status not in ["open"]',
    "order.total > 0",
    "order.total >= order_id",
    "order.items[0].sku == order_id",
    'order["a key"] != order.status',
    "order.order_id == order_id",
    "order_id == true",
    "error_of(order) == none",
    'shape_of(order) == "mapping"',
    'strange_keys(order, "status", "total") == none',
    'empty_keys(order, "status") == none',
    'missing_keys(order, "status", "items") == none',
    'strange_fields(order, {"status": "text", "total": "number", "items": "list"}) == none',
    'strange_fields(order, {"items": "list", "items.*.@": ["sku"]}) == none',
    'strange_fields(order, {"items": "list", "items.*.sku": ["#W1"]}) == none',
    'kind_of(order.status) == "word"',
    'among(every(order, "items.*"), order_id) == order_id',
    'absent(order.status, "closed")',
    "len(order.items) == 1",
    'among(["open", "late"], order.status) == order.status',
    "only(order.items).sku == order_id",
    "parsed(order.note).sku == order_id",
    "order_id in [order.sku, order.total]",
]
LEFT_ALONE = [
    "order.total + 1 == 2",
    "order.total > 1e999",
    'len(select(order.items, where={"sku": order_id})) == 1',
    "order.status is defined",
    "order.status",
    'order.status == "open" and order.total > 0',
]


class Record:
    """A result that is no JSON."""

    status = "open"
    total = 1


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.floats(allow_nan=True)
    | st.sampled_from(["open", "late", "closed", "#W1", "", "Error: not found"])
    | st.builds(Missing)
    | st.builds(Record)
    | st.just(len)
    | st.just(int)
)
KEYS = st.sampled_from(["status", "total", "items", "order_id", "a key", "sku", "error", "deleted"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=6)
    ),
    max_leaves=12,
)
GOOD = {"status": "open", "total": 1, "items": [{"sku": "#W1"}], "order_id": "#W1", "a key": 2}
RECORDS = VALUES | st.dictionaries(KEYS, VALUES, max_size=3).map(lambda more: {**GOOD, **more})
SCOPES = st.fixed_dictionaries({}, optional={"order": RECORDS, "order_id": VALUES})


def holds(guard: str, scope: Any) -> bool:
    """Whether a guard holds by itself; one that can't be evaluated does not."""
    try:
        return bool(compile_expression(guard, "")(scope))
    except EmError:
        return False


def holds_together(guards: list[str], scope: Any) -> bool:
    """Whether guards hold as a run sees it: together, else one by one."""
    return together(guards).hold(scope) or all(holds(one, scope) for one in guards)


@given(st.lists(st.sampled_from(GUARDS), min_size=1, max_size=6), SCOPES)
@example(["error_of(order) == none", 'order.status == "open"'], {"order": GOOD})
def test_guards_hold_together_only_where_each_holds(guards: list[str], known: Any) -> None:
    scope = {**FUNCTIONS, **known}
    assert holds_together(guards, scope) == all(holds(one, scope) for one in guards)


@given(st.dictionaries(KEYS, st.sampled_from(["open", "", 0, 1, None, False]), max_size=4))
def test_of_plain_records_the_one_function_tells_the_same_by_itself(record: Any) -> None:
    scope = {**FUNCTIONS, "order": record, "order_id": "#W1"}
    for guard in GUARDS:
        assert together([guard]).hold(scope) == holds(guard, scope)


def test_all_known_forms_are_checked_together_and_others_are_left_alone() -> None:
    found = together([*GUARDS, *LEFT_ALONE])
    assert found.sources == GUARDS


def test_a_function_of_the_user_in_the_place_of_one_of_em_is_not_called_together() -> None:
    called: list[Any] = []
    guards = together(["error_of(order) == none"])
    assert guards.hold({"order": {}})
    assert not guards.hold({"order": {}, "error_of": called.append})
    assert called == []


@pytest.mark.parametrize(
    "text",
    [
        '\\"] or print("x") or ["',
        "'); print('x",
        "{{ order }}",
        "\\\\",
        "\u2028",
        "scope",
        "__class__",
    ],
)
def test_what_a_guard_says_never_becomes_code(text: str) -> None:
    source = f"order[{text!r}] == {text!r}"
    guards = together([source])
    if guards.sources:  # else Jinja evaluates it
        assert guards.hold({"order": {text: text}})
        assert not guards.hold({"order": {text: f"{text}x"}})
        assert not guards.hold({"order": {}})
