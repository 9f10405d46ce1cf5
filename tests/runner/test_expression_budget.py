"""No expression, however small, keeps the processor busy: what it does is paid from a budget."""

from pathlib import Path
from typing import Any

import pytest

from em.errors import ExpressionError
from em.runner.expressions import jinja
from em.runner.expressions.language import compile_expression, compile_value
from em.runner.validation import validate
from em.values.json_schema import Declared

SCOPE: dict[str, Any] = {
    "text": "f" * 1_000_000,
    "numbers": list(range(300_000)),
    "words": ["a" * 1_000 + str(n) for n in range(20_000)],
    "large": 10**1_200,
}

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    "text",
    [
        "{{ text|int(0, 16) }}",
        "{{ text|int(0, 16) % ('e' * 500000)|int(0, 16) }}",
        "{{ text|int(0, 16) // 7 > 3 }}",
        "{{ large * large }}",
        "{{ large * large > 1 }}",
        "{{ (large + large) - 1 }}{{ large * large }}",
        "{% for n in numbers %}{% if -1 in numbers %}x{% endif %}{% endfor %}",
        "{% for n in numbers %}{% if 'b' not in text %}{% else %}x{% endif %}{% endfor %}",
        "{{ numbers|map('string')|select('in', numbers)|list|length }}",
        "{{ numbers|reject('in', words)|list|length }}",
    ],
)
def test_what_would_take_minutes_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_value(text, "here")(SCOPE)


def test_the_time_of_an_evaluation_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1_000_000, 3))
    monkeypatch.setattr(jinja, "thread_time", lambda: next(clock))
    with pytest.raises(ExpressionError, match="took more than 5 seconds"):
        compile_value("{% for n in numbers %}x{% endfor %}", "here")(SCOPE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ 'ff'|int(0, 16) }}", 255),
        ("{{ 7 // 2 - 1 / 2 }}", 2.5),
        ("{{ 299999 in numbers }}", True),
        ("{{ 'b' not in text }}", True),
        ("{{ [1, 2, 3]|select('in', [2, 3])|list }}", [2, 3]),
        ("{{ 10 ** 20 + 1 }}", 10**20 + 1),
    ],
)
def test_what_routines_need_is_done(text: str, value: Any) -> None:
    assert compile_value(text, "here")(SCOPE) == value


def test_a_large_number_in_a_comparison_is_refused_before_jinja() -> None:
    with pytest.raises(ExpressionError, match="too large"):
        compile_expression("large * large > 1", "here")(SCOPE)


def test_validation_of_a_small_routine_ends(tmp_path: Path) -> None:
    slow = "('f' * 1000000)|int(0, 16) % ('e' * 500000)|int(0, 16)"
    (tmp_path / "routine.yaml").write_text(
        "version: '1'\nname: small\nsteps:\n"
        f'- {{id: a, type: return, value: "{{{{ {" ~ ".join([slow] * 8)} }}}}"}}\n'
    )
    assert validate(tmp_path) == []


def test_a_pattern_of_a_schema_ends_on_every_name() -> None:
    schema = {
        "type": "object",
        "properties": {},
        "patternProperties": {"^(a+)+$": {}},
        "additionalProperties": False,
    }
    names = ["a" * 60 + "!", "aaa"]
    assert Declared(schema).without(names) == ["a" * 60 + "!"]
