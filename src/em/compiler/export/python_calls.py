"""The call of a step as Python, in the simplest form that does all that the step asks for."""

import ast
import keyword
from collections.abc import Sequence
from typing import Any, Protocol

from em.compiler.export.python_nodes import call, constant, name
from em.errors import ExportError
from em.runner.routine import Default, Step, ToolStep, UdfStep


class Script(Protocol):
    """What a call needs of the script it stands in."""

    def python(self, word: str) -> str:
        """What a name of the routine is called in the script."""
        ...

    def target(self, step: ToolStep | UdfStep) -> ast.expr:
        """The function that a step calls."""
        ...

    def translate(self, step: Step, field: str, value: Any, **local: str) -> ast.expr:
        """A value of a step."""
        ...

    def translate_bare(self, step: Step, field: str, source: str, **local: str) -> ast.expr:
        """A bare expression of a step."""
        ...


class StepCall:
    """The call of one step, in the simplest form that does all that the step asks for."""

    def __init__(self, script: Script, step: ToolStep | UdfStep) -> None:
        self._script, self._step = script, step
        self._each = step.for_each is not None
        self._item = script.python(step.as_) if self._each else ""
        self._local = {step.as_: self._item} if self._each else {}

    def value(self) -> tuple[ast.expr, list[ast.expr], list[ast.expr]]:
        """The call, with the checks that stand before and behind it."""
        step = self._step
        items = None
        if self._each:
            items = call("each", self._script.translate(step, "for_each", step.for_each))
        if items is not None and step.parallel > 1:
            return self._side_by_side(items), [], []
        has_checks = bool(step.checks and (step.checks.pre or step.checks.post))
        careful = bool(step.retry or step.timeout is not None or step.on_error != "fail")
        if careful or (has_checks and self._each):
            args = function_of(self._args(), bound=self._item)
            one: ast.expr = call("attempt", self._target(), args, **self._policy())
            return self._for_all(one, items), [], []
        pre = self._checks("pre")
        return self._for_all(self._plain(), items), pre, self._checks("post")

    def _target(self) -> ast.expr:
        return self._script.target(self._step)

    def _for_all(self, one: ast.expr, items: ast.expr | None) -> ast.expr:
        if items is None:
            return one
        target = ast.Name(self._item, ast.Store())
        return ast.ListComp(one, [ast.comprehension(target, items, [], 0)])

    def _plain(self) -> ast.expr:
        args = self._args()
        assert isinstance(args, ast.Dict)
        keywords, rest = [], ast.Dict([], [])
        for key, value in zip(args.keys, args.values, strict=True):
            if isinstance(key, ast.Constant) and is_word(key.value):
                keywords.append(ast.keyword(str(key.value), value))
            elif key is None:
                keywords.append(ast.keyword(None, value))
            else:
                rest.keys.append(key)
                rest.values.append(value)
        if rest.keys:
            keywords.append(ast.keyword(None, rest))
        return ast.Call(self._target(), [], keywords)

    def _args(self) -> ast.expr:
        step = self._step
        args = self._script.translate(step, "args", dict(step.args), **self._local)
        assert isinstance(args, ast.Dict)
        if step.idempotency_key is not None:
            if "idempotency_key" in step.args:
                raise ExportError(
                    "the key is also given as an argument", place=f"step {step.id}, field args"
                )
            key = self._script.translate(
                step, "idempotency_key", step.idempotency_key, **self._local
            )
            args.keys.append(None)
            args.values.append(call("key_for", self._target(), function_of(key, bound=self._item)))
        return args

    def _checks(self, when: str) -> list[ast.expr]:
        checks = self._step.checks
        sources: Sequence[str] = getattr(checks, when) if checks else ()
        local = {**self._local, "result": "result"} if when == "post" else self._local
        return [
            call(
                "check",
                self._script.translate_bare(self._step, f"checks.{when}[{n}]", source, **local),
                ast.Constant(when),
                ast.Constant(source),
            )
            for n, source in enumerate(sources)
        ]

    def _policy(self, *, with_item: bool = False) -> dict[str, ast.expr]:
        step = self._step
        found: dict[str, ast.expr] = {}
        item = [self._item] if with_item else []
        for when, names in (("pre", item), ("post", [*item, "result"])):
            checks = self._checks(when)
            if checks:
                all_of = checks[0] if len(checks) == 1 else ast.List(checks, ast.Load())
                found[when] = function_of(all_of, *names, bound="" if with_item else self._item)
        if step.retry is not None:
            found["attempts"] = ast.Constant(step.retry.attempts)
            found["backoff"] = ast.Constant(step.retry.backoff)
            if step.retry.errors:
                found["errors"] = constant(tuple(step.retry.errors), f"step {step.id}, field retry")
        if step.timeout is not None:
            found["timeout"] = ast.Constant(step.timeout)
        if step.on_error != "fail":
            default = step.on_error.default if isinstance(step.on_error, Default) else None
            found["otherwise"] = constant(default, f"step {step.id}, field on_error")
        return found

    def _side_by_side(self, items: ast.expr) -> ast.expr:
        return call(
            "side_by_side",
            items,
            self._target(),
            function_of(self._args(), self._item),
            at_once=ast.Constant(self._step.parallel),
            **self._policy(with_item=True),
        )


def is_word(word: Any) -> bool:
    """Whether Python can have it as a name."""
    return (
        isinstance(word, str)
        and word.isidentifier()
        and word.isascii()
        and not keyword.iskeyword(word)
        and not word.startswith("__")
    )


def function_of(body: ast.expr, *names: str, bound: str = "") -> ast.Lambda:
    """A function of these names; `bound` is one that keeps the value it has now."""
    taken = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(word) for word in (*names, *([bound] if bound else ()))],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[name(bound)] if bound else [],
    )
    return ast.Lambda(taken, body)
