"""Sandbox: the interface of every back end, the choice among them, and the files they can read.

Values go in and come out as JSON, exactly: whole numbers of any size, floats bit by bit, texts in
any script. Other results are converted by fixed rules, the same in every back end
(`inside/plain.py`): dates and times to ISO 8601 texts, decimals and UUIDs to texts, tuples to
lists, sets to sorted lists, dataclasses to mappings, a member of an enumeration to its value.
Anything else (bytes, NaN, a generator, a key that is not a text) is an error of the code.
"""

import os
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from em.errors import (
    InputError,
    SandboxFault,
    SandboxMemory,
    SandboxOutput,
    SandboxRefused,
    SandboxTimeout,
    UsageError,
)
from em.runner.sandbox.inside.plain import NotPlain, plain

MEGABYTE = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one piece of code: seconds per call, memory, and size of a result."""

    seconds: float = 10.0
    memory_bytes: int = 512 * MEGABYTE
    output_bytes: int = 8 * MEGABYTE

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.memory_bytes > 0 and self.output_bytes > 0):
            raise ValueError("limits must be greater than 0")


DEFAULT_LIMITS = Limits()


class SandboxSession(ABC):
    """One piece of code, defined once and called many times. A context manager.

    Calls from several threads run one after the other. If the process ends (by a limit, or by the
    code itself), the next call starts a new one, and the code's global variables are lost.
    """

    @abstractmethod
    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        """Call one of the code's functions, return a JSON value. Raise SandboxError if it fails."""

    @abstractmethod
    def close(self) -> None:
        """End the process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Sandbox(ABC):
    """A way to run code that a model wrote."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Return why this back end can't be used here, or "". Checked once for each process."""

    @abstractmethod
    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> SandboxSession:
        """Open a session; the code runs at the first call."""

    def run(
        self, code: str, function: str, args: dict[str, Any], limits: Limits = DEFAULT_LIMITS
    ) -> Any:
        """Define the code's functions, call one of them with named `args`, return its result."""
        with self.open(code, limits) as session:
            return session.call(function, args)


def backends() -> list[type[Sandbox]]:
    """Return every back end, in order of preference."""
    from em.runner.sandbox.monty import MontySandbox
    from em.runner.sandbox.process import Bubblewrap, Landlock

    return [MontySandbox, Bubblewrap, Landlock]


def choose(code: str, *, prefer: str | None = None) -> Sandbox:
    """Choose the first back end that is available and can run this code.

    prefer: the name of the only back end to try.
    """
    from em.runner.sandbox.monty import lint

    known = {backend.name: backend for backend in backends()}
    if prefer is not None and prefer not in known:
        raise UsageError(
            f"prefer must be one of {', '.join(known)}, got {prefer!r}", place="prefer"
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
            reasons[name] = "the code uses more than its subset of Python: " + "; ".join(findings)
        else:
            return backend()
    raise SandboxRefused(
        "no sandbox here can run code that a model wrote: "
        + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()),
        fix="pip install 'em-core[sandbox]', or install bubblewrap; "
        "or read the code and run `em trust DIR`, or pass --trust",
        reasons=reasons,
        findings=findings,
    )


MAX_MESSAGE = 2_000


def plain_arguments(
    function: str, args: dict[str, Any], positional: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as JSON values; raise InputError for any other value."""
    try:
        return plain(list(positional)), plain(args)
    except NotPlain as error:
        raise InputError(
            f"an argument can't go into the sandbox: {error}", place=f"arguments of {function}"
        ) from None


def fault(kind: str, message: str, line: int) -> SandboxFault:
    """Return the error for code that raised an exception."""
    reason = message[:MAX_MESSAGE]
    return SandboxFault(
        f"{kind}: {reason}" if reason else kind,
        place=f"line {line}" if line else "",
        type=kind,
        reason=reason,
        line=line,
    )


def no_such_function(name: str) -> SandboxFault:
    """Return the error for a function that the code does not define."""
    return SandboxFault(
        f"the code defines no function {name!r}",
        fix=f"define {name} in the code",
        type="NameError",
        reason=f"no function {name!r}",
        line=0,
    )


def too_slow(limits: Limits) -> SandboxTimeout:
    """Return the error for code that runs past its time limit."""
    return SandboxTimeout(
        f"no result within {limits.seconds:g} s", fix="make it faster, or raise Limits.seconds"
    )


def too_much_memory(limits: Limits) -> SandboxMemory:
    """Return the error for code that needs more memory than its limit."""
    return SandboxMemory(
        f"the code needs more than {limits.memory_bytes:,} bytes of memory",
        fix="make it smaller, or raise Limits.memory_bytes",
    )


def too_large(limits: Limits) -> SandboxOutput:
    """Return the error for a result above the size limit."""
    return SandboxOutput(
        f"the result is more than {limits.output_bytes:,} bytes of JSON",
        fix="return less, or raise Limits.output_bytes",
    )


SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
PACKAGES = ("site-packages", "dist-packages")
"""Folders of installed packages, which the code must not read."""


def interpreter() -> str:
    """Return the Python that runs confined code: this one, without its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable or "")


def library() -> str:
    """Return the folder of the standard library."""
    return os.path.dirname(os.path.realpath(os.__file__))


@lru_cache(maxsize=1)
def shared_libraries() -> tuple[str, ...]:
    """Return the shared libraries that the interpreter is linked with."""
    folder = str(sysconfig.get_config_var("LIBDIR") or "")
    if not folder or any(folder == name or folder.startswith(f"{name}/") for name in SYSTEM):
        return ()
    return tuple(sorted(path for path in glob(f"{folder}/*.so*") if _stays(path, folder)))


def _stays(path: str, folder: str) -> bool:
    """Return whether a path is inside a folder after its symbolic links are followed."""
    return os.path.realpath(path).startswith(f"{os.path.realpath(folder)}/")


@lru_cache(maxsize=1)
def hidden() -> tuple[str, ...]:
    """Return the folders of installed packages inside readable folders."""
    found = [Path(library()) / name for name in PACKAGES]
    found += [Path(folder) / "python3" / name for folder in SYSTEM[:4] for name in PACKAGES]
    return tuple(sorted({os.path.realpath(path) for path in found if path.is_dir()}))


@lru_cache(maxsize=1)
def readable() -> tuple[str, ...]:
    """Return every readable file and folder, without the hidden ones inside."""
    found: list[str] = []
    for path in (*SYSTEM, *shared_libraries(), library()):
        if os.path.exists(path):
            _add(os.path.realpath(path), found)
    return tuple(dict.fromkeys(found))


def _add(path: str, found: list[str]) -> None:
    inside = [name for name in hidden() if name == path or name.startswith(f"{path}/")]
    if not inside:
        found.append(path)
    elif path not in inside:
        for child in sorted(os.listdir(path)):
            # A rule for a link would allow what it points at, wherever that is. Links work without
            # a rule: the target is readable or not.
            if not os.path.islink(os.path.join(path, child)):
                _add(os.path.join(path, child), found)
