"""Sandbox: the one shape of every back end, and the choice among them.

Values go in and come out as JSON, exactly: whole numbers of any size, floats bit by bit, texts in
any script. A result that is more than JSON becomes plain by fixed rules, the same in every back
end (`inside/plain.py`): dates and times as ISO 8601 texts, decimals and UUIDs as texts, tuples as
lists, sets as sorted lists, dataclasses as mappings, an enumeration's member as its value.
Anything else (bytes, NaN, a generator, a key that is no text) is refused as the code's fault.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import msgspec

from em.errors import SandboxRefused, UsageError

MEGABYTE = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one piece of code may use: seconds for each call, memory and size of a result."""

    seconds: float = 10.0
    memory_bytes: int = 512 * MEGABYTE
    output_bytes: int = 8 * MEGABYTE

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.memory_bytes > 0 and self.output_bytes > 0):
            raise ValueError("a limit is more than nothing")


DEFAULT_LIMITS = Limits()


class Session(ABC):
    """One piece of code, defined once and called many times. A context manager.

    Calls from several threads are served one after the other. A session whose process was ended
    (by a limit, or by the code itself) starts afresh with the next call: what the code kept in its
    own globals is lost then.
    """

    @abstractmethod
    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        """Call one of the code's functions; a plain JSON value. A SandboxError if that fails."""

    @abstractmethod
    def close(self) -> None:
        """End what runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Sandbox(ABC):
    """A back end."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why this back end can't be used here; empty if it can. Tried once for each process."""

    @abstractmethod
    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> Session:
        """A session; the code is run when it is first called."""

    def run(
        self, code: str, function: str, args: dict[str, Any], limits: Limits = DEFAULT_LIMITS
    ) -> Any:
        """Define the code's functions, call one of them with `args` by name, give its result."""
        with self.open(code, limits) as session:
            return session.call(function, args)


def backends() -> list[type[Sandbox]]:
    """Every back end, in the order in which they are chosen."""
    from em.runner.sandbox.bubblewrap import Bubblewrap
    from em.runner.sandbox.landlock import Landlock
    from em.runner.sandbox.monty import MontySandbox

    return [MontySandbox, Bubblewrap, Landlock]


def choose(code: str, *, trust: bool = False, prefer: str | None = None) -> Sandbox:
    """The first back end that is there and can run this code.

    trust: a person has read it; it runs in this process.
    prefer: the name of the only back end to try.
    """
    if trust:
        from em.runner.sandbox.in_process import InProcess

        return InProcess()
    from em.runner.sandbox.subset import lint

    known = {backend.name: backend for backend in backends()}
    if prefer is not None and prefer not in known:
        raise UsageError(
            f"there is no sandbox {prefer!r}", place="prefer", fix=f"there are: {', '.join(known)}"
        )
    reasons: dict[str, str] = {}
    findings: list[str] = []
    for name, backend in known.items():
        if prefer is not None and name != prefer:
            continue
        if reason := backend.missing():
            reasons[name] = reason
        elif name == "monty" and (found := lint(code)):
            findings = [str(finding) for finding in found]
            reasons[name] = "the code is more than its subset of Python: " + "; ".join(findings)
        else:
            return backend()
    raise SandboxRefused(
        "nothing here can run code that a model wrote: "
        + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()),
        fix="pip install 'em-core[sandbox]', or install bubblewrap; "
        "or read the code and say so: `em trust DIR`, --trust",
        reasons=reasons,
        findings=findings,
    )
