"""The world of a recording: it answers the calls of a routine as the recorded ones were answered.

A read is answered with what the same call returned at that point of the recording. A write has no
effect: it is noted, and answered if it is the next recorded one; any other write ends the run as
wrong. A read that was not recorded ends it too, and says nothing against the routine.

A policy changes a recording before it is replayed, in a way that a right routine does not notice.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import msgspec

from em.compiler.example import Call, Example
from em.compiler.places import is_scalar
from em.compiler.renaming import Renaming
from em.errors import RoutineError
from em.runner.drivers import Effects, Wait, drive
from em.runner.machine import Machine
from em.runner.routine import Program
from em.runner.run import RunResult
from em.runner.tools import Function, Tool
from em.values.canonical import Json, short
from em.values.json_schema import misfit, properties_of

Verdict = Literal["right", "handed over", "wrong"]


class Recording(NamedTuple):
    """What is replayed: the inputs of a task, and the calls that were made for it."""

    inputs: Json
    calls: Sequence[Call]

    @classmethod
    def of(cls, example: Example, routine: Json) -> Self:
        """Return an example with the inputs that a caller of this routine gives.

        He leaves out what it does not take. What it asks for, because nothing explains it, he
        says as it was recorded: it goes as it is into a write.
        """
        schema = routine.get("input_schema") or {}
        is_open = schema.get("additionalProperties") is not False
        taken = properties_of(schema)
        given = {name: one for name, one in example.inputs.items() if is_open or name in taken}
        for name in schema.get("required", ()):
            found = [] if name in given else [*_written(name, routine["steps"], example.calls)]
            if found:
                given[name] = found[0]
        return cls(given, example.calls)


def _written(name: str, steps: Sequence[Json], calls: Sequence[Call]) -> Iterator[Any]:
    """Yield what was written where a routine writes an input as it is."""
    for step in steps:
        yield from _written(name, step.get("steps", ()), calls)
        for argument, value in step.get("args", {}).items():
            if value == f"{{{{ {name} }}}}":
                yield from (
                    call.args[argument]
                    for call in calls
                    if call.tool == step.get("tool") and call.error is None
                    if argument in call.args
                )


class Outcome(NamedTuple):
    """How a run compares with the recording.

    is_unrecorded: it needed a read that the recording does not have.
    """

    verdict: Verdict
    reason: str = ""
    is_unrecorded: bool = False


class Ended(RoutineError):
    """A run in a recorded world is over."""

    code = "recording_ended"


class World:
    """The world of one recording, for one run.

    in_any_order: lists were put in another order, so what is made of them may come in any.
    """

    def __init__(self, inputs: Json, calls: Sequence[Call], *, in_any_order: bool = False) -> None:
        self.inputs, self._calls = inputs, calls
        self._key = _unordered_key if in_any_order else _key
        self._in_any_order = in_any_order
        acts = [call.effect == "write" and call.error is None for call in calls]
        self._left = [call for call, is_act in zip(calls, acts, strict=True) if is_act]
        self._made = 0
        # How many writes had been made before each call.
        self._moments = [0, *itertools.accumulate(acts)][:-1]
        self._end: Outcome | None = None

    def run(self, program: Program) -> Outcome:
        """Run a routine here, and compare what it did with the recording."""
        writes = {call.tool for call in self._calls if call.effect == "write"}
        writes |= {step.target for step in program.steps if step.is_write and step.target}
        names = program.tool_names | {call.tool for call in self._calls}
        stand_ins = {name: self._stand_in(name, is_write=name in writes) for name in names}
        machine = Machine(
            program,
            run_id="proof",
            tools={name: Tool(name, function) for name, function in stand_ins.items()},
            udfs={name: self._stand_in(name, is_write=False) for name in program.udf_names},
        )
        return self._outcome(drive(_without_pauses(machine.run(self.inputs))))

    def _stand_in(self, name: str, *, is_write: bool) -> Function:
        def call(**args: Any) -> Any:
            if self._end is not None:
                raise Ended(self._end.reason)
            found = self._write(name, args) if is_write else self._read(name, args)
            if found.error is not None:
                raise RuntimeError(str(found.error))
            return found.result

        return call

    def _read(self, name: str, args: Json) -> Call:
        """Return the recorded read; of several the one that was made after as many writes."""
        key = _key(args)
        found = [
            (self._distance(moment), number, call)
            for number, (call, moment) in enumerate(zip(self._calls, self._moments, strict=True))
            if call.tool == name and call.effect == "read" and _key(call.args) == key
        ]
        if not found:
            problem = f"{name}({short(args)}) was not recorded"
            raise self._over(Outcome("handed over", problem, is_unrecorded=True))
        return min(found, key=lambda row: row[:2])[2]

    def _distance(self, moment: int) -> tuple[int, int]:
        """Rank a moment: now, else before, else later."""
        side = 0 if moment == self._made else 1 if moment < self._made else 2
        return side, abs(moment - self._made)

    def _write(self, name: str, args: Json) -> Call:
        key = self._key(args)
        following = self._left if self._in_any_order else self._left[:1]
        for call in following:
            if call.tool == name and self._key(call.args) == key:
                self._left.remove(call)
                self._made += 1
                return call
        for call in self._calls:
            if call.error is not None and call.tool == name and _key(call.args) == _key(args):
                return call  # it was refused, and had no effect
        raise self._over(Outcome("wrong", self._difference(name, args)))

    def _over(self, outcome: Outcome) -> Ended:
        self._end = outcome
        return Ended(outcome.reason)

    def _difference(self, name: str, args: Json) -> str:
        """Say how a write differs from the recorded ones."""
        same = [call for call in self._left if call.tool == name]
        if not same:
            return f"it would have called {name} with {short(args)}; that was not recorded"
        recorded = same[0].args
        names = [one for one in {**recorded, **args} if recorded.get(one) != args.get(one)]
        if not names:
            return f"it would have called {name} before {self._left[0].tool}"
        now = {one: args.get(one) for one in names}
        then = {one: recorded.get(one) for one in names}
        return f"it would have called {name} with {short(now)}; recorded is {short(then)}"

    def _outcome(self, result: RunResult) -> Outcome:
        if self._end is not None:
            return self._end
        left = ", ".join(call.tool for call in self._left)
        if result.status == "ok":
            return (
                Outcome("wrong", f"it would not have called {left}") if left else Outcome("right")
            )
        stopped = _why_stopped(result)
        if self._made and left:
            return Outcome("wrong", f"it would have stopped before {left}: {stopped}")
        return Outcome("handed over", stopped)


def _why_stopped(result: RunResult) -> str:
    for why in (result.reason, result.pending_prompt, result.failure):
        if why is not None:
            return f"{why.step_id}: {why.message}" if why.step_id else why.message
    return result.status


def _without_pauses(running: Effects[RunResult]) -> Effects[RunResult]:
    """Run without the pauses between attempts."""
    try:
        effect = next(running)
        while True:
            if isinstance(effect, Wait):
                effect = running.send(None)
                continue
            try:
                outcome = yield effect
            except Exception as error:  # noqa: BLE001 - the machine decides what a failure means
                effect = running.throw(error)
            else:
                effect = running.send(outcome)
    except StopIteration as end:
        result: RunResult = end.value
        return result


# ---- comparison


def _key(value: Any) -> bytes:
    """Return a value as bytes that are equal for equal values: 1 is 1.0, keys have no order."""
    return msgspec.json.encode(_plain(value), order="sorted")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unordered_key(args: Json) -> bytes:
    """Return the same for arguments in which lists, and texts made of them, may have any order.

    Lists of equal length that stand side by side stay pairs.
    """
    lists = {name: value for name, value in args.items() if isinstance(value, list)}
    rest: Json = {name: value for name, value in args.items() if name not in lists}
    if len(lists) > 1 and len({len(value) for value in lists.values()}) == 1:
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        return _key(_unordered(rest | {"": rows}))
    return _key(_unordered(args))


def _unordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unordered(one) for name, one in value.items()}
    if isinstance(value, list):
        return sorted(map(_unordered, value), key=_key)
    return sorted(re.findall(r"\w+", value)) if isinstance(value, str) else value


# ---- policies


Policy = Callable[[Recording, Json], World]
"""Makes the world of a recording for a routine with this input schema."""


def as_recorded(recording: Recording, _schema: Json) -> World:
    """Return the world of a recording as it is."""
    return World(recording.inputs, recording.calls)


def other_order(recording: Recording, _schema: Json) -> World:
    """Return a world whose reads return keys and lists of records in another order."""
    calls = [
        call._replace(result=_turned(call.result)) if call.effect == "read" else call
        for call in recording.calls
    ]
    return World(recording.inputs, calls, in_any_order=True)


def fresh_inputs(recording: Recording, schema: Json) -> World:
    """Return a world in which the values of inputs are others, wherever they stand.

    Values that the routine lists one by one, or whose words it knows, stay: it takes no others.
    """
    values = [*_free_values(recording.inputs, schema)]
    beside = [recording.inputs, [[call.args, call.result] for call in recording.calls]]
    new = Renaming(values, beside)
    calls = [
        call._replace(args=new.of(call.args), result=new.of(call.result))
        for call in recording.calls
    ]
    return World(new.of(recording.inputs), calls)


POLICIES: Mapping[str, Policy] = {
    "as recorded": as_recorded,
    "other order": other_order,
    "fresh inputs": fresh_inputs,
}


def _turned(value: Any) -> Any:
    """Return a value with its keys and lists of records turned: every position changes."""
    if isinstance(value, Mapping):
        items = [(name, _turned(one)) for name, one in value.items()]
        return dict([*items[1:], *items[:1]])
    if isinstance(value, list):
        turned = [_turned(one) for one in value]
        return turned if any(map(is_scalar, value)) else [*turned[1:], *turned[:1]]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
        return msgspec.json.encode(_turned(found)).decode()
    return value


def _free_values(inputs: Any, schema: Any) -> Any:
    """Yield the scalars of inputs that may be others by their schema."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(inputs, Mapping):
        for name, one in inputs.items():
            yield from _free_values(one, properties_of(schema).get(name))
    elif isinstance(inputs, list):
        for one in inputs:
            yield from _free_values(one, schema.get("items"))
    elif misfit(dict(schema), Renaming([inputs]).of(inputs)) is None:
        yield inputs
