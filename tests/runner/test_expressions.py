"""One expression language: types are kept, mappings go by key, what is undefined is an error."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.errors import ExpressionError
from em.runner.expressions import language
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import (
    compile_direct,
    compile_expression,
    compile_value,
    names_in,
    parse_reference,
)

SCOPE: dict[str, Any] = {
    "url": "http://x",
    "n": 3,
    "rows": [{"a": 1, "tags": ["x"]}, {"a": 2, "tags": []}],
    "order": {"items": [5], "id": "#W1", "first name": "Ana"},
    "nothing": None,
}


def value(text: Any) -> Any:
    return compile_value(text, "step s1, field args.x")(SCOPE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{ url }}", "http://x"),
        ("{{n}}", 3),
        ("{{ rows }}", SCOPE["rows"]),
        ("{{ rows[1].a }}", 2),
        ("{{ order.items }}", [5]),
        ("{{ order['first name'] }}", "Ana"),
        ("{{ nothing }}", None),
        ("{{ n * 2 }}", 6),
        ("{{ len(rows) > 1 }}", True),
        ("{{ rows | map(attribute='a') }}", [1, 2]),
        ("{{ rows | selectattr('a', 'equalto', 2) | first }}", {"a": 2, "tags": []}),
        ("{{ rows | map(attribute='a') | sum }}", 3),
        ("{{ missing | default('x') }}", "x"),
        ("{{ order.keys() | list }}", ["items", "id", "first name"]),
        ("order {{ order.id }}", "order #W1"),
        ("{{ n }} of {{ rows }}", '3 of [{"a":1,"tags":["x"]},{"a":2,"tags":[]}]'),
        ("{% if n > 2 %}many{% endif %}", "many"),
        (
            {"k": ["{{ n }}", {"deep": "{{ url }}"}], "c": 1},
            {"k": [3, {"deep": "http://x"}], "c": 1},
        ),
    ],
)
def test_values_keep_their_type(text: Any, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ ulr }}", "'ulr' is not defined (did you mean 'url'?)"),
        ("{{ ulr ~ 'x' }}", "'ulr' is not defined (did you mean 'url'?)"),
        ("{{ rows[5].a }}", "there is no item 5: the list has 2"),
        ("{{ order.itms }}", "there is no 'itms' (did you mean 'items'?)"),
        ("{{ order.none.x }}", "there is no 'none'"),
        ("{{ order.none ~ 'x' }}", "none"),
        ("{{ n.x }}", "a int has no 'x'"),
        ("{{ order.keys ~ '' }}", "keys"),
        ("{{ n. }}", "is not a valid expression"),
        ("{{ n", "is not a valid expression"),
        ("x {% if %}", "is not a valid expression"),
    ],
)
def test_mistakes_say_where_and_what(text: str, says: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        value(text)
    assert says in str(caught.value)
    assert caught.value.place == "step s1, field args.x"


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ rows.__class__ }}",
        "{{ rows['__class__'] ~ '' }}",
        "{{ rows.append }}",
        "{{ (rows | attr('__class__')) ~ '' }}",
        "{{ len.__globals__ }}",
        "{{ len.__self__ }}",
        "{{ 'a' * 100000000 }}",
        "{{ [0] * 100000000 }}",
        "{{ 9 ** 999999 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ range(1000000000) | list }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ str.format('{0.__class__}', 1) }}",
        "{{ 'a'.ljust(1500000000) | length }}",
        "{{ ('a' * 30000) | replace('a', 'b' * 30000) }}",
        "{{ len }}",
        "{{ url.upper }}",
        "{% for a in rows %}{% include 'x' %}{% endfor %}",
        "{% set x = rows.append(1) %}",
        "{{ 'a'['ljust'](1500000000) | length }}",
        "{{ 5['to_bytes'](1500000000) | length }}",
        "{{ ('a' | attr('ljust'))(1500000000) | length }}",
        "{{ [1] | tojson(indent=1500000000) }}",
        "{{ [1] | batch(1500000000, 0) | list }}",
        "{{ [1] | batch(linecount=1500000000, fill_with=0) | list }}",
        "{{ [1] | slice(1500000000) | list | length }}",
        "{{ 1.5 | round(1500000000, 'ceil') }}",
        "{{ 5 | round(-1500000000) }}",
        "{{ ([[0] * 100000] * 10) | sum(start=[]) }}",
        "{{ sum([[0] * 1000] * 1000 * 2, []) }}",
        "{{ (['a'] * 100000) | join('b' * 100000) }}",
        "{% set a = 'a' * 1000000 %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}",
        "{% set a = 'a' * 1000000 %}" + "{% set a = a + a %}" * 40 + "{{ a }}",
        "{% set a = 99 %}" + "{% set a = a * a %}" * 40 + "{{ a > 1 }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = {1: a, 2: a} %}" * 40 + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = zip(a, a) | list %}" * 40 + "{{ a }}",
        "{% set a = 'a' * 999999 %}" + "{{ a }}" * 100,
        "{% set a = 'a' * 9999 %}"
        + "{% for b in a %}" * 3
        + "{% if 0 %}b{% endif %}"
        + "{% endfor %}" * 3,
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set a %}aa{% endset %}{{ a }}",
        "{% for a in rows recursive %}{{ loop(rows) }}{% endfor %}",
    ],
)
def test_the_sandbox_holds(text: str) -> None:
    before = repr(SCOPE)
    with pytest.raises(ExpressionError):
        value(text)
    assert repr(SCOPE) == before


def test_a_value_is_never_looked_at_for_expressions_again() -> None:
    hostile = "{{ secret }} {% raw %} {{ '' }}"
    scope = {"said": hostile, "secret": "s3cret"}
    for text in ("{{ said }}", "{{ said ~ '' }}", "{{ [said][0] }}"):
        assert compile_value(text, "")(scope) == hostile
    assert compile_value("he said: {{ said }}", "")(scope) == f"he said: {hostile}"


@given(st.text())
def test_any_text_that_came_in_goes_out_as_it_was(text: str) -> None:
    scope = {"x": text}
    assert compile_value("{{ x }}", "")(scope) == text
    assert compile_value("{{ x | string }}", "")(scope) == text
    assert compile_value("<{{ x }}>", "")(scope) == f"<{text}>"


@given(
    st.lists(st.one_of(st.integers(0, 99), st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)))
)
def test_a_pure_reference_means_the_same_natively_and_in_jinja(path: list[Any]) -> None:
    source, data = "x", "leaf"
    for part in path:
        source += f"[{part}]" if isinstance(part, int) else f".{part}"
    for part in reversed(path):
        data = {part: data} if isinstance(part, str) else [None] * part + [data]  # type: ignore[assignment]
    if parse_reference(source) is not None:
        natively = compile_expression(source, "")({"x": data})
        in_jinja = compile_expression(f"({source})", "")({"x": data})
        assert natively == in_jinja == "leaf"


def test_names_are_found_for_validation() -> None:
    assert names_in("{{ a.b }} and {{ c | default(d) }}", "") == {"a", "c", "d"}
    assert names_in("len(rows) > n", "", bare=True) == {"rows", "n"}


def test_a_text_around_references_needs_no_jinja_and_says_the_same() -> None:
    scope = {"a": {"b": 1.5, "none": None}, "list": [1, {"x": "é"}], "text": "{{ a }}"}
    for source in ("{{ a.b }} and {{list}}!", "x{{ a.none }}\n", "{{ text }}{{ list[1]['x'] }}"):
        native = language._compile_filled(source, "here")
        assert native is not None
        assert native(scope) == language._jinja().text(source, "here")(scope)
    for source in (
        "{{ a.b + 1 }} x",
        "{{- a }} x",
        "x {# no #}{{ a }}",
        "{% if a %}{{ a }}{% endif %}",
    ):
        assert language._compile_filled(source, "here") is None
    with pytest.raises(ExpressionError, match="'lost' is not defined"):
        language.compile_value("x {{ lost }}", "here")(scope)


@pytest.mark.parametrize("source", ["x.a in {}", "x.a not in {}"])
@pytest.mark.parametrize("held", ["open", "Open", "", 1, 1.0, True, None, ["open"], {"a": 1}])
def test_a_comparison_with_listed_values_needs_no_jinja_and_says_the_same(
    source: str, held: Any
) -> None:
    text = source.format('["open", "code", 1, 2.5, none, "say \\"it\\""]')
    native = compile_direct(text, "here")
    assert native is not None
    assert native({"x": {"a": held}}) == language._jinja().expression(text, "here")(
        {"x": {"a": held}}
    )
    with pytest.raises(ExpressionError, match="there is no 'a'"):
        native({"x": {"b": held}})


@pytest.mark.parametrize("y", ["open", 1, None])
def test_a_list_with_values_of_the_scope_needs_no_jinja_and_says_the_same(y: Any) -> None:
    native = compile_direct('x in [y, "shut"]', "here")
    assert native is not None
    for x in ("open", "shut", 1, True, None):
        scope = {"x": x, "y": y}
        assert native(scope) == language._jinja().expression('x in [y, "shut"]', "here")(scope)


@pytest.mark.parametrize("source", ["x in y | list", "x in [1] and y | length", "x in (1, 2)"])
def test_other_lists_are_left_to_jinja(source: str) -> None:
    assert compile_direct(source, "here") is None


LAMPS = {
    "lamps": [
        {"id": 1, "status": "open", "price": 9, "options": {"color": "black"}},
        {"id": 2, "status": "sold", "price": 5, "options": {"color": "Black"}},
        {"id": 3, "status": "open", "price": 7, "options": {"color": "black"}},
        {"id": 4, "status": "open", "price": 1, "options": {"color": "white"}},
    ],
    "wanted": {"color": "black", "status": "sold"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('where(lamps, {"options.color": "black"}) | map(attribute="id")', [1, 2, 3]),
        ('only(lamps, {"options.color": "white"}).id', 4),
        ('only(lamps, {"options.color": "black"}, status=wanted.status).id', 2),
        ('smallest(lamps, "price", {"options.color": "black"}, status="open").id', 3),
        ('largest(lamps, "price", status="open").id', 1),
    ],
)  # fmt: skip
def test_items_are_selected_by_their_nested_fields(text: str, expected: Any) -> None:
    assert compile_expression(text, "here")(LAMPS) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('only(lamps, {"options.color": "red"})', '"options.color":"white"'),
        ('only(lamps, {"options.color": "white"}, status="sold")', "0 of 4 fit"),
        ('only(lamps, status="open")', "3 of 4 fit"),
        ("only([])", "there are 0"),
    ],
)
def test_a_selection_that_finds_nothing_shows_what_there_is(text: str, says: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, "here")(LAMPS)
    assert says in str(caught.value)


def test_an_item_without_a_field_is_not_selected_by_it() -> None:
    scope = {"rows": [{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}]}
    assert compile_expression("where(rows, a=1, b=2)", "here")(scope) == [{"a": 1, "b": 2}]


def test_there_are_few_functions_and_one_line_documents_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "routine-reference.md").read_text()
    table = page.partition("| function | returns | fails |\n|---|---|---|\n")[2].partition("\n\n")[
        0
    ]
    rows = [re.fullmatch(r"\| `(\w+)\([^`]*\)` \| .+ \| .+ \|", row) for row in table.split("\n")]
    assert sorted(row[1] if row else "" for row in rows) == sorted(FUNCTIONS)
    assert f"There are {len(FUNCTIONS)} functions:" in page


@pytest.mark.parametrize("text", ["'x' | int", "rows | float", "'1,234' | int", "none | float"])
def test_what_is_not_a_number_does_not_become_zero(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text, "here")({"rows": [], "n": 1})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'12' | int", 12), ("'x' | int(7)", 7), ("'x' | float(default=0)", 0), ("n | float", 1.5),
        ("n | float > 1 and n | float < 2", True), ("1 + n | float", 2.5), ("m + n | float", 3.5),
    ],
)  # fmt: skip
def test_a_text_is_read_as_a_number(text: str, value: Any) -> None:
    assert compile_expression(text, "here")({"n": "1.5", "m": 2}) == value
