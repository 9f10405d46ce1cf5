"""The reason of a hand-over: which check stopped a run before its first write, and why.

A routine that says `checks: hand_over` acts only where everything is as it was recorded. Where it
is not, the run ends with a finding: nothing was done, nothing is asked, and nothing can be resumed.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from em.errors import EmError
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import compile_expression
from em.runner.expressions.words import check_in_words
from em.values.canonical import Json, short
from em.values.json_schema import Misfit
from em.values.syntax_tree import expression_of

MOST_SHOWN = 8
"""Values that are shown of one check."""


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run handed over.

    step_id: the step whose check failed; `input` for the inputs. check: the expression, or the
    place in the result that is not as expected. recorded: what it must be like. now: what is there.
    held: in how many recordings it held, as the routine says. also: what else the same step expects
    and did not find, or the asserts behind it that don't hold either; the message names them too.
    """

    step_id: str
    check: str = ""
    message: str = ""
    recorded: Any = None
    now: Any = None
    held: str = ""
    also: "Sequence[Reason]" = ()

    def __str__(self) -> str:
        held = f" (it held in {self.held} recordings)" if self.held else ""
        return f"{self.step_id}: {self.message}{held}; nothing was done"

    @property
    def in_short(self) -> str:
        """Say what is there, and what was: `order.status is 'shipped'; it was 'pending' in 3 of 3`.

        What is no single value is said by its message.
        """
        recorded = self.recorded if isinstance(self.recorded, dict) else {}
        words = [*recorded.get("enum", ()), *([recorded["const"]] if "const" in recorded else ())]
        is_value = self.check and not self.also and not isinstance(self.now, dict | list)
        share = f" in {self.held.replace('/', ' of ')}" if self.held else ""
        if not words or not is_value:
            return f"{self.message}; it held{share}" if share else self.message
        return f"{self.check} is {self.now!r}; it was {' or '.join(map(repr, words))}{share}"


def context_of_check(check: str, scope: Json) -> Json:
    """Return what a failure says about an assert: the check, and its values now."""
    now: Json = {}
    for text in _references(check):
        try:
            value = compile_expression(text, "")(scope)
        except EmError:
            continue
        now[text] = short(value) if isinstance(value, dict | list) else value
        if len(now) == MOST_SHOWN:
            break
    return {"check": check, "recorded": check_in_words(check), "now": now}


def check_failed_in_words(about: Json) -> str:
    """Say which assert failed, and what its values are now."""
    now = ", ".join(f"`{text}` is {short(value)}" for text, value in about["now"].items())
    return f"it does not hold that {about['recorded']}{': ' if now else ''}{now}"


def _references(check: str) -> Iterator[str]:
    """Yield the references of an expression, such as `order.user_id`, each once."""
    try:
        tree = expression_of(check.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    seen: set[str] = set()
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and _is_reference(node):
            text = ast.unparse(node)
            if text not in seen and text not in SCOPE:
                seen.add(text)
                yield text
        else:
            waiting += ast.iter_child_nodes(node)


def _is_reference(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def context_of_misfit(name: str, found: Misfit) -> Json:
    """Return what a failure says about a value that does not fit its schema."""
    place = place_of(name, found)
    more = [{**context_of_misfit(name, one), "message": _in_words(name, one)} for one in found.also]
    about = {"check": place, "recorded": found.wanted, "now": found.found}
    return {**about, "also": more} if more else about


def place_of(name: str, found: Misfit) -> str:
    """Return where a value does not fit, as an expression would name it: `order.status`."""
    dot = "" if not found.where or found.where.startswith("[") else "."
    return f"{name}{dot}{found.where}"


def misfit_in_words(name: str, found: Misfit) -> str:
    """Say what does not fit: `order.status`: "pending" was expected, and it is "delivered"."""
    return "; ".join(_in_words(name, one) for one in (found, *found.also))


def _in_words(name: str, found: Misfit) -> str:
    is_now = "" if isinstance(found.found, dict | list) else f", and it is {short(found.found)}"
    return f"`{place_of(name, found)}`: {found.message}{is_now}"
