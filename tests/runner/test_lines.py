"""Parts of lines: one place fits, or the expression fails."""

import pytest

from em.errors import ExpressionError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_expression

PROJECT = '[project]\nversion = "1.2.3"\npython_version = "3.11"\n[other]\nname = "x"\n'
LOG = "# Changelog\n\n## 2\n\n- b\n\n## 1\n"


def value(expression: str) -> object:
    return compile_expression(expression, "")({**FUNCTIONS, "text": PROJECT, "log": LOG})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r'line_part(text, "\nversion = \"", "\"\n")', "1.2.3"),
        (r'line_part(text, "name = \"", "\"")', "x"),
        (r'lines_before(log, "## ")', 2),
        (r'lines_after(log, "# Changelog\n\n")', 2),
        ("line_count(log)", 7),
        (r'lines_above(log, "\n## 1\n")', 5),
        (r'lines_through("a\n- b\n- c\nd\n", "- ")', 3),
        (r'sorted_place("a\n- b\n- d\ne\n", "- ", "- c\n")', 2),
        (r'sorted_place("a\n- b\n- d\ne\n", "- ", "- e\n")', 3),
        (r'sorted_place("a\nc\n", "", "b\n")', 1),
        (r'lines_to_last("- a\nb\n- c\nd\n", "- ")', 3),
        (r'end_of_list("# A\n\n- a\n- b\n\n# B\n- c\n", "# A", "- ")', 4),
        (r'lines_once("a\nb = 1\nc\n", "b = 1")', True),
        (r'lines_once("a\n  b = 1\nc\n", "b = 1")', False),
        (r'lines_once("b = 1\n# b = 1\n", "b = 1")', False),
        ('stands_once(text, "1.2.3")', True),
        ('stands_once(text, "version")', False),
        ('stands_once(text, "")', False),
        (r'lists_only("./a.py:3:x\nb.py:1:y\n", "a.py", "b.py", "c.py")', True),
        (r'lists_only("./a.py\nd.py\n", "a.py", "b.py")', False),
        ('lists_only("", "a.py")', False),
        ('module_name("./src/shop/cart.py", "src")', "shop.cart"),
        ('module_name("./shop/cart.py", "src")', "shop.cart"),
        ('module_name("shop/__init__.py")', "shop"),
    ],
)
def test_the_one_place_that_fits_is_found(expression: str, expected: object) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        r'line_part(text, "version = \"", "\"")',
        r'line_part(text, "\nnothing = \"", "\"")',
        r'line_part(text, "", "")',
        r'line_part(text, "a\nb", "c")',
        r'line_like(text, "", " = \"", "\"")',
        r'once(text, "version")',
        r'lines_before(log, "### ")',
        r'lines_after(log, "\n")',
        'line_count("no line break")',
        r'lines_above(log, "## 3\n")',
        r'lines_above(log, "\n")',
        r'lines_above(log, "## 1")',
        r'lines_through(text, "[")',
        r'lines_through(text, "- ")',
        r'lines_through(text, "")',
        r'lines_to_last(text, "@")',
        r'end_of_list(text, "no such line", "- ")',
        r'sorted_place("- d\n- b\n", "- ", "- c")',
        r'sorted_place("- b\n\n- d\n", "- ", "- c")',
        'module_name("shop/cart.txt")',
        'module_name("../cart.py")',
        'module_name("lib/cart.py", "src")',
    ],
)
def test_no_place_or_several_fail(expression: str) -> None:
    with pytest.raises(ExpressionError):
        value(expression)
