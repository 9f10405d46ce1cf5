"""Jinja2's sandbox as em uses it: mappings by key, strict about what is undefined, bounded."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from em.errors import ExpressionError
from em.runner.expressions.bounds import (
    Counting,
    bounded_filters,
    bounded_function,
    budget,
    charged,
    check_operands,
    may_have,
    refuse_statements,
)
from em.runner.expressions.language import Evaluate, Missing, Scope, as_text, undefined


class _MethodIfCalled(jinja2.StrictUndefined):
    """`order.items()` is the method; `order.items` without such a key is undefined."""

    # what Jinja asks of everything it calls
    unsafe_callable = alters_data = False
    jinja_pass_arg = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._undefined_obj, str(self._undefined_name))(*args, **kwargs)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`a.b` on a mapping is the key, also where dict has a method of that name."""
        if isinstance(obj, Mapping):
            if attribute in obj:
                return obj[attribute]
            methods = ("get", "items", "keys", "values")
            kind = _MethodIfCalled if attribute in methods else self.undefined
            return kind(obj=obj, name=attribute)
        if isinstance(obj, Missing):
            return obj
        if not may_have(obj, attribute):
            return self.unsafe_undefined(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`a["b"]` is the key `b`, or what `a.b` is."""
        if isinstance(argument, str) and not isinstance(obj, Mapping):
            return self.getattr(obj, argument)
        try:
            found = obj[argument]
        except (LookupError, TypeError):
            return self.undefined(obj=obj, name=argument)
        return charged(found) if isinstance(argument, slice) else found

    # Named as Jinja names them: any other name may be an argument's.
    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - see above
        """What a function gives is counted."""
        function = bounded_function(__obj)
        found = super().call(__context, function, *args, **kwargs)
        return charged(found, deep=__obj is zip)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """No expression eats the machine's memory or time."""
        check_operands(operator, left, right)
        found = super().call_binop(context, operator, left, right)
        return charged(found, deep=isinstance(found, list | tuple))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        refuse_statements(tree)
        return tree

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        counted = Counting().visit(source)
        counted.set_environment(self)
        return super()._generate(counted, *args, **kwargs)


class Sandboxed:
    """Compiles expressions and texts."""

    missing = object()

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._environment = _Environment(
            undefined=jinja2.StrictUndefined,
            finalize=_finalize,
            autoescape=False,  # these are values for tools, not HTML
            keep_trailing_newline=True,
        )
        self._environment.globals = dict(functions)
        self._environment.filters = bounded_filters(self._environment.filters)

    def expression(self, source: str, place: str) -> Evaluate:
        """A bare expression; its value keeps its type."""
        with _explained(place, source), budget():
            compiled = self._environment.compile_expression(source, undefined_to_none=False)

        def evaluate(scope: Scope) -> Any:
            with _explained(place, source, scope), budget():
                value = compiled(**scope)
                if isinstance(value, jinja2.Undefined):
                    str(value)  # raises, and says what is undefined
                return _settled(value)

        return evaluate

    def text(self, source: str, place: str) -> Evaluate:
        """A text with expressions in it."""
        with _explained(place, source), budget():
            template = self._environment.from_string(source)

        def evaluate(scope: Scope) -> Any:
            with _explained(place, source, scope), budget():
                return "".join(map(charged, template.generate(scope)))

        return evaluate

    def names(self, source: str, place: str) -> set[str]:
        """The names that a text refers to."""
        with _explained(place, source):
            return jinja2.meta.find_undeclared_variables(self._environment.parse(source))

    def syntax(self, source: str, place: str, *, bare: bool) -> Any:
        """The tree of a text, or of a bare expression."""
        with _explained(place, source):
            if not bare:
                return self._environment.parse(source)
            parser = Parser(self._environment, source, state="variable")
            expression = parser.parse_expression()
            if not parser.stream.eos:
                parser.fail("more than one expression")
            return expression

    def lexed(self, source: str, place: str) -> list[tuple[int, str, str]]:
        """The tokens of a text."""
        with _explained(place, source):
            return list(self._environment.lex(source))

    def attribute(self, value: Any, name: str) -> Any:
        """An attribute that the sandbox allows, else `missing`."""
        found = self._environment.getattr(value, name)
        return self.missing if isinstance(found, jinja2.Undefined) else found


def _finalize(value: Any) -> Any:
    return as_text(value) if isinstance(value, dict | list) else value


def _settled(value: Any) -> Any:
    """What a filter yields lazily, as a list; a function is no value."""
    if isinstance(value, Iterator):
        return list(value)
    if type(value) is Missing:
        return ""
    if callable(value) and not isinstance(value, type):
        raise SecurityError("the expression gives a function; call it, or name a key")
    return value


class _explained:  # noqa: N801 - reads as a word in `with _explained(…)`
    """Turns Jinja's errors into ours, with the place and the name."""

    def __init__(self, place: str, source: str, scope: Scope | None = None) -> None:
        self._place, self._source, self._scope = place, source, scope

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, ExpressionError) or not isinstance(error, Exception):
            return
        if isinstance(error, jinja2.TemplateSyntaxError):
            message = f"{self._source.strip()[:80]!r} is no expression: {error.message}"
            raise ExpressionError(message, place=self._place) from error
        if isinstance(error, jinja2.UndefinedError) and self._scope is not None:
            message = str(error)
            name = message.split("'")[1] if message.endswith("is undefined") else ""
            if name and name not in self._scope:
                raise undefined(name, self._scope, self._place) from error
        message = f"{self._source.strip()[:80]!r} failed: {str(error) or type(error).__name__}"
        raise ExpressionError(message, place=self._place) from error
