"""No sandbox: code that a person has read runs in this process."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from em.runner.sandbox.faults import fault, no_such_function
from em.runner.sandbox.inside.plain import plain
from em.runner.sandbox.sandbox import DEFAULT_LIMITS, Limits, Sandbox, Session

FILE = "<trusted>"


class InProcess(Sandbox):
    """Runs trusted code; it may do what this process may. No limit is kept."""

    name: ClassVar[str] = "process"

    @classmethod
    def missing(cls) -> str:
        """It is always there."""
        return ""

    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> Session:
        """A session in this process."""
        return _InProcessSession(code)


class _InProcessSession(Session):
    def __init__(self, code: str) -> None:
        self._code = code
        self._module: ModuleType | None = None

    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        try:
            found = getattr(self._defined(), function, None)
            result = plain(found(*positional, **args)) if callable(found) else None
        except Exception as error:
            raise fault(type(error).__name__, str(error), _line(error)) from error
        if not callable(found):
            raise no_such_function(function)
        return result

    def _defined(self) -> ModuleType:
        if self._module is None:
            module = ModuleType("udf")
            exec(compile(self._code, FILE, "exec"), vars(module))  # noqa: S102 - it is trusted
            self._module = module
        return self._module

    def close(self) -> None:
        self._module = None


def _line(error: BaseException) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
