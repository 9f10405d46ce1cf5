"""No sandbox at all: what Python itself does with a piece of code, to compare with."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from em.runner.sandbox.inside.plain import plain
from em.runner.sandbox.sandbox import DEFAULT_LIMITS, Limits, Sandbox, SandboxSession, fault


class Unconfined(Sandbox):
    """Runs code in this process, without limits."""

    name: ClassVar[str] = "unconfined"

    @classmethod
    def missing(cls) -> str:
        return ""

    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> SandboxSession:
        return _Session(code)


class _Session(SandboxSession):
    def __init__(self, code: str) -> None:
        self._code = code

    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        module = ModuleType("udf")
        try:
            exec(compile(self._code, "<code>", "exec"), vars(module))
            return plain(vars(module)[function](*positional, **args))
        except Exception as error:
            raise fault(type(error).__name__, str(error), 0) from error

    def close(self) -> None:
        pass
