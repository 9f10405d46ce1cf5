"""Other values: does a rewritten routine do what its draft does, also where values are others?

The draft is run on a recording, then again with other values in its inputs and in all results. What
it writes and asks then is what the rewritten routine must write and ask. And a person who says no
must be heard: nothing may be written after that.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.example import APPROVAL, Call
from em.compiler.promises import Steps
from em.compiler.replay_world import (
    InTurn,
    NotReproduced,
    Recording,
    World,
    as_recorded,
    program_of,
)
from em.redaction.redactor import MARKER
from em.runner.tools import Function
from em.values.canonical import Json, identical, short
from em.values.leaves import is_by_id, is_informative, is_telling, mentioned_in, texts

_DATE = re.compile(r"(\d{4})(-\d{2}-\d{2}.*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,6})?")


class Way(NamedTuple):
    """How values are replaced: text before and after, what to add to a number, years to a date."""

    before: str
    after: str
    more: int
    years: int


WAYS = (Way("", "-qx7", 1_013, 400), Way("zk4-", "", 20_011, 800))
"""Two ways, since a routine may depend on the beginning or on the end of a text."""


class Compared(NamedTuple):
    """How both compare on a recording.

    not_compared: why other values could not be used, if so. output: what the routine returned.
    acted: the ids of its steps that wrote.
    """

    not_compared: str
    output: Any = None
    acted: Collection[str] = ()


class Both(NamedTuple):
    """A draft and the routine that a model made of it, with its functions."""

    draft: Json
    improved: Json
    functions: Mapping[str, Function]

    def compare(self, recording: Recording, output: Any) -> "Compared":
        """Compare them on a recording, and raise NotReproduced if they differ.

        output: as it was recorded.
        """
        known = as_recorded(recording, {})
        if known.run(program_of(self.draft)).verdict != "right":
            return Compared("the recording does not have all that the draft reads")
        found = self._run(as_recorded(recording, {}), self.improved, known.made, "")
        is_same = identical(found.output, known.output)
        if not is_same and not identical(found.output, output):
            raise NotReproduced(
                f"the output differs: it was {short(known.output)}, and is {short(found.output)}"
            )
        self._deny(recording, self.draft, self.improved)
        problems = [self._compare_in(way, recording, known, is_same) for way in WAYS]
        return Compared(problems[0] if all(problems) else "", found.output, found.acted)

    def _run(self, world: World, routine: Json, made: Sequence[Call], where: str) -> World:
        """Run a routine that must ask and write as it was `made`."""
        outcome = world.run(program_of(routine), self.functions)
        if outcome.verdict != "right":
            stops = "it stops, and the draft does not: " if outcome.verdict != "wrong" else ""
            raise NotReproduced(f"{where}{stops}{outcome.reason}")
        wanted, found = _acts(made), _acts(world.made)
        for one, other in zip(wanted, found, strict=False):
            if not identical(one, other):
                raise NotReproduced(f"{where}the draft does {short(one)}, it does {short(other)}")
        if len(wanted) != len(found):
            raise NotReproduced(f"{where}it asks a person another number of times")
        return world

    def _compare_in(self, way: Way, recording: Recording, known: World, is_same: bool) -> str:
        """Compare them with other values; return why that can't be done, if so."""
        text = "\n".join(texts(self.draft, names=True))

        def other(value: Any) -> Any:
            # A value that the draft itself contains is a constant, not data of the recording.
            return value if mentioned_in(value, text) else _other(value, way)

        inputs = {name: _each(value, other) for name, value in recording.inputs.items()}
        log = [call._replace(result=_each(call.result, other)) for call in known.made]
        again = InTurn(inputs, log)
        outcome = again.run(program_of(_loose(self.draft)))
        if outcome.verdict != "right":
            return f"the draft fails on other values: {outcome.reason}"
        reads = [
            call._replace(args=_each(call.args, other), result=_each(call.result, other))
            for call in recording.calls
            if call.effect == "read"
        ]
        calls = [*again.made, *reads]
        loose, where = _loose(self.improved), "with other values: "
        found = self._run(World(inputs, calls), loose, again.made, where)
        if is_same and not identical(found.output, again.output):
            raise NotReproduced(f"{where}the output differs from the draft's")
        self._deny(Recording(inputs, calls), _loose(self.draft), loose)
        return ""

    def _deny(self, recording: Recording, draft: Json, improved: Json) -> None:
        """Let the person say no to each question; raise if that is not heard any more."""
        for number, call in enumerate(recording.calls):
            if call.tool != APPROVAL or True not in call.result.values():
                continue
            no = {name: False if one is True else one for name, one in call.result.items()}
            calls = [*recording.calls]
            calls[number] = call._replace(result=no)
            denied = Recording(recording.inputs, calls)
            if self._is_heard(denied, no, draft) and not self._is_heard(denied, no, improved):
                raise NotReproduced(
                    "a person who says no must be heard: right after each prompt.user, an assert"
                    " must check the answer"
                )

    def _is_heard(self, recording: Recording, no: Json, routine: Json) -> bool:
        """Return whether nothing is written after a person said no."""
        world = as_recorded(recording, {})
        world.run(program_of(routine), self.functions)
        acts = [call for call in world.made if call.effect == "write"]
        heard = [n for n, one in enumerate(acts) if one.tool == APPROVAL and one.result == no]
        return bool(heard) and all(one.tool == APPROVAL for one in acts[heard[0] :])


def _acts(made: Sequence[Call]) -> list[list[Any]]:
    return [[call.tool, call.args] for call in made if call.effect == "write"]


def _loose(document: Json) -> Json:
    """Return a routine without its checks, which may name a recorded value; answers still count."""
    steps = Steps(document["steps"], ())
    answers = [step.get("save_as", "") for step in steps.calling("prompt.user")]

    def acting(several: Sequence[Json]) -> list[Json]:
        found = []
        for step in several:
            if step["type"] == "assert" and not any(
                re.search(rf"\b{name}\b", step["check"]) for name in answers if name
            ):
                continue
            kept = {
                name: one for name, one in step.items() if name not in ("expect", "checks", "max")
            }
            if "steps" in step:
                kept["steps"] = acting(step["steps"])
            found.append(kept)
        return found

    schema = document["input_schema"]
    properties = {
        name: {key: one[key] for key in ("default", "title") if key in one}
        for name, one in schema.get("properties", {}).items()
    }
    loose = {"type": "object", "properties": properties}
    kept = {name: one for name, one in document.items() if name != "output_schema"}
    return {**kept, "input_schema": loose, "steps": acting(document["steps"])}


def _each(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        by_id = is_by_id(value)
        return {other(key) if by_id else key: _each(one, other) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each(item, other) for item in value]
    return other(value)


def _other(value: Any, way: Way) -> Any:
    """Return another value of the same kind: a date for a date, a number for a number."""
    if not (is_informative(value) or is_telling(value)):
        return value
    if isinstance(value, int | float):
        return value + way.more
    if MARKER.search(value):
        return value
    date = _DATE.fullmatch(value)
    if date is not None:
        # The calendar repeats every 400 years.
        return f"{int(date[1]) + way.years:04}{date[2]}"
    if _NUMBER.fullmatch(value):
        whole, dot, rest = value.partition(".")
        return f"{int(whole) + way.more}{dot}{rest}"
    return f"{way.before}{value}{way.after}"
