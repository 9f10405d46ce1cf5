"""Syntax trees of Python code.

Python 3.11 counts how deep all threads are in their trees with one number. If another thread
interrupts at the wrong moment, it raises SystemError for good code: such code is parsed again.
"""

import ast

ATTEMPTS = 20


def module_of(code: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """Return code as a tree. Raise what `ast.parse` raises."""
    for _ in range(ATTEMPTS):
        try:
            return ast.parse(code, filename)
        except SystemError:
            continue
    return ast.parse(code, filename)


def expression_of(text: str) -> ast.expr:
    """Return an expression as a tree. Raise what `ast.parse` raises."""
    for _ in range(ATTEMPTS):
        try:
            return ast.parse(text, mode="eval").body
        except SystemError:
            continue
    return ast.parse(text, mode="eval").body
