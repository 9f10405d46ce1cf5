"""A routine as a plain function does what the runner does."""

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_learner import (
    Shop,
    cancel,
    facts,
    give_back,
    recorded,
    returned,
    routine_of,
    run,
    write_note,
)

from em.compiler.export.function import function_text, python_expression, python_value
from em.compiler.export.script import export_python
from em.errors import ExportError
from em.runner.package import Package

SOLVED = [(cancel, facts), (give_back, returned), (write_note, facts)]


def _as_script(folder: Path, routine: Any) -> Any:
    """Return a function that runs the script of a routine, as a stranger to em would."""
    (folder / "routine.yaml").write_text(json.dumps(routine))
    scope: dict[str, Any] = {"__name__": "script"}
    exec(compile(export_python(Package(folder)), "script", "exec"), scope)
    return lambda given, shop: scope["run"](given, shop.tools())


@pytest.mark.parametrize(("solve", "given"), SOLVED)
def test_a_script_does_what_the_routine_does(tmp_path: Path, solve: Any, given: Any) -> None:
    routine = routine_of([recorded(solve, given(number)) for number in range(6)])
    plain, script = Shop(), Shop()
    taken = {name: given(8)[name] for name in routine["input_schema"]["properties"]}
    ended = run(tmp_path, routine, taken, plain)
    assert _as_script(tmp_path, routine)(taken, script) == ended.output
    assert script.calls == plain.calls
    assert script.writes


@pytest.mark.parametrize(("solve", "given"), SOLVED)
def test_a_script_hands_over_where_the_routine_does(tmp_path: Path, solve: Any, given: Any) -> None:
    routine = routine_of([recorded(solve, given(number)) for number in range(6)])
    script_of = _as_script(tmp_path, routine)
    for number, order in enumerate(Shop().orders):
        for field in ("status", "person_id", "items"):
            plain, script = Shop(), Shop()
            for shop in (plain, script):
                shop.orders[order][field] = copy.deepcopy({"items": []}.get(field, "x"))
            said = given(number % 10)
            taken = {name: said[name] for name in routine["input_schema"]["properties"]}
            run(tmp_path, routine, taken, plain)
            with suppress(Exception):  # it hands over, or a selection fails
                script_of(taken, script)
            assert script.writes == plain.writes


def test_a_function_reads_like_one() -> None:
    text = function_text(routine_of([recorded(cancel, facts(number)) for number in range(6)]))
    assert "def task(email: str, order_id: str, reason: str, *, tools: Any) -> Any:" in text
    assert "    order = tools.get_order(order_id=order_id)\n" in text
    assert "['orders'])  # held in 6/6\n" in text
    assert "    done = tools.cancel_order(order_id=order_id, reason=reason)\n" in text


@pytest.mark.parametrize(
    ("expression", "python"),
    [
        ("order.status == 'open'", "order['status'] == 'open'"),
        ("given(who.email, x)", "given(who, 'email') and given(x)"),
        ("only(a.items, name=b.name)", "only(a['items'], name=b['name'])"),
        ("(a + b) * 2 > -c", "(a + b) * 2 > -c"),
        ("names | join(', ')", "', '.join(map(str, names))"),
        ("a ~ 'x'", "str(a) + str('x')"),
        ("not where(items, open=true)", "not where(items, open=True)"),
    ],
)
def test_expressions(expression: str, python: str) -> None:
    assert python_expression(expression, "") == python


def test_texts_with_expressions() -> None:
    assert python_value("{{ a.b }}", "") == "a['b']"
    assert python_value("Dear {{ a }}, {x}", "") == "as_text('Dear ', a, ', {x}')"
    assert python_value(["a", 1, None, {"b": "{{ c }}"}], "") == "['a', 1, None, {'b': c}]"


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({"type": "plan"}, "plan"),
        ({"type": "let", "value": "{{ x | tojson }}", "save_as": "a"}, "tojson"),
        ({"type": "let", "value": "{% if x %}a{% endif %}", "save_as": "a"}, "{%"),
        ({"type": "let", "value": "{{ odd(x) }}", "save_as": "a"}, "odd"),
        ({"type": "tool.call", "tool": "t", "retry": {"attempts": 2}}, "retry"),
        ({"type": "let", "value": 1, "save_as": "a", "expect": {"not": {}}}, "not"),
    ],
)
def test_what_plain_python_can_not_say_is_an_error(step: Any, problem: str) -> None:
    with pytest.raises(ExportError, match=problem.replace("{", r"\{").replace(".", r"\.")):
        function_text({"name": "x", "steps": [{"id": "s", **step}]})
