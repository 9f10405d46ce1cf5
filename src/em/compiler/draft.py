"""Draft: a routine with the recordings behind it, before it is stored or written to a folder."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from em.compiler.example import Call
from em.compiler.given_udfs import GivenUdfs
from em.runner.package import read_routine
from em.runner.routine import Routine
from em.runner.trial import LEFT_OUT, Proof, Trials
from em.traces.trace import Outcome
from em.values.call import Usage
from em.values.canonical import Json


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
