"""Verification: a routine must make the recorded calls again, with no effect on the world."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.draft import Draft, Recorded
from em.compiler.show import short
from em.errors import RoutineError
from em.models.canonical import Json, identical
from em.models.run import RunResult
from em.models.trace import Effect
from em.runner.drivers import drive
from em.runner.journal import keepable
from em.runner.machine import Machine
from em.runner.program import Program
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool


class NotReproduced(RoutineError):
    """The routine does not do what the trace did."""

    code = "not_reproduced"


class _Replay:
    """Answers calls from the recording, in its order."""

    def __init__(self, recording: list[Recorded]) -> None:
        self._left = list(reversed(recording))
        self.difference: NotReproduced | None = None

    def tool(self, name: str, real: Function | None = None) -> Any:
        """A stand-in for a tool; or the real function, whose results must be the recorded ones."""

        def call(**args: Any) -> Any:
            expected = self._left.pop() if self._left else None
            if expected is None or expected.name != name or not identical(expected.args, args):
                self.difference = self.difference or _differs(expected, name, args)
                raise self.difference
            if real is None:
                return expected.result
            try:
                return _same_result(expected, real)
            except NotReproduced as difference:
                self.difference = self.difference or difference
                raise

        return call

    def finish(self) -> None:
        """Nothing may be left over."""
        if self.difference is not None:
            raise self.difference
        if self._left:
            left = self._left[-1]
            raise NotReproduced(f"the routine never calls {left.name}", place=f"step {left.step}")


class _FreerReplay:
    """Answers calls from the recording: effects in its order, reads as they come."""

    def __init__(self, recording: Sequence[Recorded], effects: Mapping[str, Effect | None]) -> None:
        self._writes = [item for item in recording if effects.get(item.name) != "read"]
        self._reads = [item for item in recording if effects.get(item.name) == "read"]
        self.difference: NotReproduced | None = None

    def tool(self, name: str) -> Any:
        """A stand-in for a tool."""

        def call(**args: Any) -> Any:
            if self._writes and _is(self._writes[0], name, args):
                return self._writes.pop(0).result
            for item in self._reads:
                if _is(item, name, args):
                    self._reads.remove(item)
                    return item.result
            same = [item for item in (*self._writes, *self._reads) if item.name == name]
            self.difference = self.difference or _differs(same[0] if same else None, name, args)
            raise self.difference

        return call

    def finish(self) -> None:
        """No effect may be left over."""
        if self.difference is not None:
            raise self.difference
        if self._writes:
            left = self._writes[0]
            raise NotReproduced(
                f"the routine never calls {left.name}({short(left.args)})",
                place=f"step {left.step}",
            )


def _is(item: Recorded, name: str, args: Json) -> bool:
    return item.name == name and identical(item.args, args)


def verify_draft(draft: Draft, udfs: Mapping[str, Function] | None = None) -> RunResult:
    """Replay a routine against its recording: the same calls, arguments and output.

    Functions that are given in `udfs` are called, and must give what was recorded.
    """
    real = udfs or {}
    replay = _Replay(list(draft.recording))
    names = {item.name for item in draft.recording if item.is_udf}
    stand_ins = {name: replay.tool(name, real.get(name)) for name in names}
    return _verify(draft, replay, stand_ins)


def verify_improved(draft: Draft, udfs: Mapping[str, Function]) -> RunResult:
    """Replay a routine that was rewritten, with its own functions.

    The same effects in the same order, the same output; reads may be left out, none is added.
    """
    effects = {tool.name: tool.effect for tool in draft.routine.tools}
    recording = [item for item in draft.recording if not item.is_udf]
    return _verify(draft, _FreerReplay(recording, effects), udfs)


def _verify(
    draft: Draft, replay: "_Replay | _FreerReplay", udfs: Mapping[str, Function]
) -> RunResult:
    names = {item.name for item in draft.recording if not item.is_udf}
    machine = Machine(
        Program(draft.routine),
        run_id="verification",
        tools={name: Tool(name, replay.tool(name)) for name in names},
        udfs=udfs,
        answers=draft.answers,
        # The recording has a marker in place of each secret.
        secrets=Secrets(draft.routine.secrets, draft.secrets),
    )
    result = drive(machine.run(draft.input))
    if replay.difference is None and result.failure is not None:
        raise NotReproduced(
            f"replaying it failed: {result.failure.message}",
            place=f"step {result.failure.step_id}",
        )
    replay.finish()
    if not identical(result.output, draft.output):
        raise NotReproduced(
            "the output is another one",
            place="step return",
            recorded=short(draft.output),
            replayed=short(result.output),
        )
    return result


def _same_result(expected: Recorded, function: Function) -> Any:
    place = f"step {expected.step}"
    call = f"{expected.name}({short(expected.args)})"
    try:
        found = function(**msgspec.json.decode(msgspec.json.encode(expected.args)))
        if inspect.iscoroutine(found):
            import asyncio

            found = asyncio.run(found)
        found = keepable(found, expected.step)
    except Exception as error:  # a function may raise anything; it is told
        raise NotReproduced(
            f"{call} gave {short(expected.result)} in the trace,"
            f" the function raised {type(error).__name__}: {error}",
            place=place,
            recorded=expected.result,
        ) from error
    if not identical(found, expected.result):
        raise NotReproduced(
            f"{call} gave {short(expected.result)} in the trace, the function {short(found)}",
            place=place,
            fix="mend the function, or leave it out: then a stub is written",
            recorded=expected.result,
            replayed=found,
        )
    return found


def _differs(expected: Recorded | None, name: str, args: Json) -> NotReproduced:
    if expected is None:
        return NotReproduced(f"the routine calls {name} once more than the trace")
    return NotReproduced(
        f"the trace called {expected.name}({short(expected.args)}),"
        f" the routine {name}({short(args)})",
        place=f"step {expected.step}",
        recorded=expected.args,
        replayed=args,
    )
