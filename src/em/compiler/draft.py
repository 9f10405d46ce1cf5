"""Draft: a routine with the recordings behind it, before it is stored or written to a folder.

Its functions are given by a user, as a mapping, a module or a file; the others are stubs.
"""

import importlib
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.example import Call
from em.compiler.replay_world import NotReproduced
from em.errors import InputError
from em.runner.authorship import is_model_written, model_of
from em.runner.journal import keepable
from em.runner.package import UDF, read_routine
from em.runner.routine import Routine
from em.runner.tools import Function, functions_of, load_module
from em.runner.trial import LEFT_OUT, Proof, Trials
from em.traces.trace import Outcome
from em.values.call import Usage
from em.values.canonical import Json, identical, short

Udfs = Mapping[str, Function] | str | None
"""Functions by name, or where to load them from: `package.module` or a file."""


class GivenUdfs(msgspec.Struct, frozen=True):
    """Functions that the user gave, and the text of their file, if they came from one."""

    functions: Mapping[str, Function] = {}
    text: str = ""
    written_by: str = ""
    """The model that wrote that file, if a model did and a person has read it."""


def load_udfs(udfs: Udfs) -> GivenUdfs:
    """Load the functions of a module, of a file or of a mapping."""
    if not isinstance(udfs, str):
        return GivenUdfs(dict(udfs or {}))
    functions = functions_of(load_module(udfs), imported=True)
    if not udfs.endswith(".py"):
        return GivenUdfs(functions)
    try:
        text = Path(udfs).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the file must be UTF-8: {error}", place=udfs) from None
    file = Path(udfs).resolve()
    marked = is_model_written(file.parent, file.name)
    return GivenUdfs(
        functions, text, (model_of(file.parent, file.name) or "model") if marked else ""
    )


def check_udfs(given: GivenUdfs, recorded: Mapping[str, Sequence[Call]]) -> None:
    """Call the given functions as they were recorded. Raise NotReproduced if a result differs."""
    for name, function in given.functions.items():
        for call in recorded.get(name, ()):
            _check(function, call)


def _check(function: Function, call: Call) -> None:
    said = f"{call.tool}({short(call.args)}) returned {short(call.result)} in the trace"
    place = f"{UDF}, {call.tool}"
    try:
        found = function(**msgspec.json.decode(msgspec.json.encode(call.args)))
        if inspect.iscoroutine(found):
            import asyncio

            found = asyncio.run(found)
        found = keepable(found, call.tool)
    except Exception as error:  # a function may raise anything; the error reports it
        raise NotReproduced(
            f"{said}, the function raised {type(error).__name__}: {error}",
            place=place,
            recorded=call.result,
        ) from error
    if not identical(found, call.result):
        raise NotReproduced(
            f"{said}, and the function returns {short(found)}",
            place=place,
            fix="fix the function, or leave it out: then a stub is written",
            recorded=call.result,
            replayed=found,
        )


def import_line(name: str, function: Any) -> str | None:
    """Return the import line for a function under this name; None if it can't be imported."""
    module, own = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not own.isidentifier():
        return None
    try:
        found = inspect.getattr_static(importlib.import_module(module), own, None)
    except ImportError:
        return None
    if found is not function:
        return None
    return f"from {module} import {own}" + (f" as {name}" if own != name else "")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A recording as `recording.json` holds it: what a routine is given, and what it must do."""

    inputs: Json
    calls: Sequence[Call]
    name: str = ""
    output: Any = None


class Draft(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A routine, with everything that its package holds.

    document: what its routine.yaml says. output: what it returns for its first recording.
    udf_source: the text of udf.py, if it holds more than stubs; written_by: the model that wrote
    it. outcome: what the recordings say about how they ended.
    """

    document: Json
    recordings: Sequence[Recorded]
    output: Any = None
    usage: Usage = Usage()
    outcome: Outcome = "success"
    proof: Proof | None = None
    udfs: GivenUdfs = GivenUdfs()
    udf_source: str = ""
    written_by: str = ""

    @cached_property
    def routine(self) -> Routine:
        """The routine that the document describes."""
        return read_routine(self.document, str(self.document.get("name", "routine")))

    @property
    def name(self) -> str:
        """The name of the routine."""
        return self.routine.name

    @property
    def trials(self) -> Trials:
        """How it did on recordings that it was not learnt from."""
        return Trials() if self.proof is None else Trials(self.proof.trials.get(LEFT_OUT, ()))

    @property
    def input(self) -> Json:
        """The inputs of the first recording."""
        return self.recordings[0].inputs if self.recordings else {}

    @property
    def functions(self) -> dict[str, list[Call]]:
        """The recorded calls of functions, by name."""
        found: dict[str, list[Call]] = {}
        for one in self.recordings:
            for call in one.calls:
                if call.is_udf and call.error is None:
                    found.setdefault(call.tool, []).append(call)
        return found
