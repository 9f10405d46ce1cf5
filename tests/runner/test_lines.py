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
        (r'between(text, "\nversion = \"", "\"\n", "line")', "1.2.3"),
        (r'between(text, "name = \"", "\"", "line")', "x"),
        (r'line_place(log, "before first", "## ")', 2),
        (r'line_place(log, "after", "# Changelog\n\n")', 2),
        ('line_place(log, "end")', 7),
        (r'line_place(log, "before", "\n## 1\n")', 5),
        (r'line_place("a\n- b\n- c\nd\n", "after block", "- ")', 3),
        (r'line_place("a\n- b\n- d\ne\n", "in order", "- ", "- c\n")', 2),
        (r'line_place("a\n- b\n- d\ne\n", "in order", "- ", "- e\n")', 3),
        (r'line_place("a\nc\n", "in order", "", "b\n")', 1),
        (r'line_place("- a\nb\n- c\nd\n", "after last", "- ")', 3),
        (r'line_place("# A\n\n- a\n- b\n\n# B\n- c\n", "after list", "# A", "- ")', 4),
        (r'stands_once("a\nb = 1\nc\n", "b = 1", "lines")', True),
        (r'stands_once("a\n  b = 1\nc\n", "b = 1", "lines")', False),
        (r'stands_once("b = 1\n# b = 1\n", "b = 1", "lines")', False),
        ('stands_once(text, "1.2.3")', True),
        ('stands_once(text, "version")', False),
        ('stands_once(text, "")', False),
        ('stands_in("a 1.2.3 b", "1.2.3")', True),
        ('stands_in("a 1.2.3 b", "1.2")', False),
        ('stands_in("TabList", "Tab")', False),
        ('stands_in("see (x).", "(x)")', True),
        ('stands_in("a", "")', False),
        ('stands_in("for 120.50 now", 120.5)', True),
        ('stands_in("for 1,205.50 now", 1205.5)', True),
        ('stands_in("for 1205.0 now", 120)', False),
        ('stands_in("for -5 now", 5)', False),
        ('stands_in("X-1 is x/X-1?", "X-1", 2)', True),
        ('stands_in("X-1 is x/X-12?", "X-1", 2)', False),
        (r'next_number("0008_a.sql\n0009_b.sql\nREADME\n", "\n", "_")', "0010"),
        (r'next_number("- 9. a\n- 10. b\n", "- ", ". ")', "11"),
        ('shown("DatePicker", "dashed")', "date-picker"),
        ('shown("HTTPServer", "underscored")', "http_server"),
        ('shown("date-picker", "pascal")', "DatePicker"),
        ('shown("date picker", "camel")', "datePicker"),
        ('part_of("Ana Maria Silva", "first word")', "Ana"),
        ('part_of("Ana Maria Silva", "last word")', "Silva"),
        ('part_of("shop/cart.py", "stem")', "cart"),
        ('part_of("shop/cart.py", "folder")', "shop"),
        ('part_of("cart.py", "folder")', ""),
        (r'lists_only("./a.py:3:x\nb.py:1:y\n", "a.py", "b.py", "c.py")', True),
        (r'lists_only("./a.py\nd.py\n", "a.py", "b.py")', False),
        ('lists_only("", "a.py")', False),
        ('part_of("./src/shop/cart.py", "module")', "shop.cart"),
        ('part_of("./shop/cart.py", "module")', "shop.cart"),
        ('part_of("shop/__init__.py", "module")', "shop"),
    ],
)
def test_the_one_place_that_fits_is_found(expression: str, expected: object) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        r'between(text, "version = \"", "\"", "line")',
        r'between(text, "\nnothing = \"", "\"", "line")',
        r'between(text, "", "", "line")',
        r'next_number("a.sql\n", "\n", "_")',
        r'between(text, "a\nb", "c", "line")',
        r'between(text, "name = \"", "\"", "page")',
        r'stands_once(text, "version", "words")',
        'line_place(log, "above", "## 1")',
        'line_place(log, "after")',
        r'line_place(log, "before first", "### ")',
        r'line_place(log, "after", "\n")',
        'line_place("no line break", "end")',
        r'line_place(log, "before", "## 3\n")',
        r'line_place(log, "before", "\n")',
        r'line_place(log, "before", "## 1")',
        r'line_place(text, "after block", "[")',
        r'line_place(text, "after block", "- ")',
        r'line_place(text, "after block", "")',
        r'line_place(text, "after last", "@")',
        r'line_place(text, "after list", "no such line", "- ")',
        r'line_place("- d\n- b\n", "in order", "- ", "- c")',
        r'line_place("- b\n\n- d\n", "in order", "- ", "- c")',
        'part_of("shop/cart.txt", "module")',
        'part_of("../cart.py", "module")',
        'part_of("lib/cart.py", "module")',
        'part_of("shop/cart.py", "suffix")',
        'part_of(" ", "first word")',
        'part_of(7, "last word")',
    ],
)
def test_no_place_or_several_fail(expression: str) -> None:
    with pytest.raises(ExpressionError):
        value(expression)
