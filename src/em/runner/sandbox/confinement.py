"""Sandboxes for the whole of Python: a process that may do nothing but compute."""

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from em.errors import SandboxBroken, SandboxError
from em.runner.sandbox import reach
from em.runner.sandbox.faults import (
    fault,
    no_such_function,
    plain_arguments,
    too_large,
    too_much_memory,
)
from em.runner.sandbox.process import Process
from em.runner.sandbox.sandbox import DEFAULT_LIMITS, Limits, Sandbox, Session


class Confined(Sandbox):
    """A back end whose code runs in a confined process; how it is confined differs."""

    landlock: ClassVar[bool]

    @abstractmethod
    def command(self) -> list[str]:
        """What starts Python; its arguments follow."""

    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> Session:
        """A session in a process of its own, which starts with the first call."""
        return _ConfinedSession(self, code, limits)

    def start(self, limits: Limits) -> Process:
        """A confined process, without any code yet."""
        config = {
            "landlock": self.landlock,
            "paths": reach.readable() if self.landlock else (),
            "memory_bytes": limits.memory_bytes,
            "output_bytes": limits.output_bytes,
        }
        return Process(self.command(), config, limits)

    @classmethod
    def trial(cls) -> str:
        """Try it: why it does not work here, or nothing."""
        if not reach.interpreter():
            return "there is no Python to start"
        try:
            answer = cls().run("def works(): return 'yes'", "works", {})
        except SandboxError as error:
            return error.message
        return "" if answer == "yes" else "it gave a wrong answer"


class _ConfinedSession(Session):
    def __init__(self, sandbox: Confined, code: str, limits: Limits) -> None:
        self._sandbox, self._code, self._limits = sandbox, code, limits
        self._lock = threading.Lock()
        self._process: Process | None = None

    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        given, named = plain_arguments(function, args, positional)
        with self._lock:
            if self._process is None or not self._process.alive:
                self._process = self._started()
            request = {"function": function, "positional": given, "args": named}
            return self._told(self._process, self._process.ask(request), function)

    def _started(self) -> Process:
        """A process in which the code is defined."""
        process = self._sandbox.start(self._limits)
        try:
            self._told(process, process.ask({"code": self._code}), "")
        except BaseException:
            process.end()
            raise
        return process

    def _told(self, process: Process, answer: Any, function: str) -> Any:
        failed = answer.get("failed", "") if isinstance(answer, dict) else "nonsense"
        if not failed and "value" in answer:
            return answer["value"]
        if failed == "raised":
            return _raise(answer)
        if failed == "missing":
            raise no_such_function(function)
        if failed == "output":
            raise too_large(self._limits)
        process.end()
        if failed == "memory":
            raise too_much_memory(self._limits)
        raise SandboxBroken("its process answered with nonsense")

    def close(self) -> None:
        process = self._process
        if process is not None:
            process.kill()  # whoever still waits for it, in another thread, is told at once
        with self._lock:
            if self._process is not None:
                self._process.end()
                self._process = None


def _raise(answer: dict[str, Any]) -> Any:
    try:
        kind, message, line = str(answer["type"]), str(answer["message"]), int(answer["line"])
    except (KeyError, TypeError, ValueError):
        raise SandboxBroken("its process answered with nonsense") from None
    raise fault(kind, message, line)
