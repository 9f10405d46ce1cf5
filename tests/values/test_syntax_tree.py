"""Code is parsed in many threads at once; Python 3.11 may fail at that without a reason."""

import ast
from typing import Any

import pytest

from em.values.syntax_tree import ATTEMPTS, expression_of, module_of


def _fail(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    parse, left = ast.parse, [times]

    def failing(*args: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=51, after=45)")
        return parse(*args, **named)

    monkeypatch.setattr(ast, "parse", failing)


def test_code_is_parsed_though_another_thread_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail(monkeypatch, 3)
    assert ast.unparse(module_of("x = 1")) == "x = 1"
    _fail(monkeypatch, 3)
    assert ast.unparse(expression_of("1 + x")) == "1 + x"


def test_what_always_fails_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail(monkeypatch, ATTEMPTS + 1)
    with pytest.raises(SystemError):
        module_of("x = 1")
    with pytest.raises(SyntaxError):
        expression_of("1 +")
