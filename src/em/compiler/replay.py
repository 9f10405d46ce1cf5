"""Verification: a routine must make the recorded calls again, with no effect on the world."""

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from em.compiler.draft import Draft, Recorded
from em.errors import RoutineError
from em.models.canonical import Json, identical
from em.models.run import RunResult
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


def verify_draft(draft: Draft, udfs: Mapping[str, Function] | None = None) -> RunResult:
    """Replay a routine against its recording: the same calls, arguments and output.

    Functions that are given in `udfs` are called, and must give what was recorded.
    """
    real = udfs or {}
    replay = _Replay(list(draft.recording))
    names = {(item.name, item.is_udf) for item in draft.recording}
    machine = Machine(
        Program(draft.routine),
        run_id="verification",
        tools={name: Tool(name, replay.tool(name)) for name, is_udf in names if not is_udf},
        udfs={name: replay.tool(name, real.get(name)) for name, is_udf in names if is_udf},
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
            recorded=_short(draft.output),
            replayed=_short(result.output),
        )
    return result


def _same_result(expected: Recorded, function: Function) -> Any:
    place = f"step {expected.step}"
    call = f"{expected.name}({_short(expected.args)})"
    try:
        found = function(**msgspec.json.decode(msgspec.json.encode(expected.args)))
        if inspect.iscoroutine(found):
            import asyncio

            found = asyncio.run(found)
        found = keepable(found, expected.step)
    except Exception as error:  # a function may raise anything; it is told
        raise NotReproduced(
            f"{call} gave {_short(expected.result)} in the trace,"
            f" the function raised {type(error).__name__}: {error}",
            place=place,
            recorded=expected.result,
        ) from error
    if not identical(found, expected.result):
        raise NotReproduced(
            f"{call} gave {_short(expected.result)} in the trace, the function {_short(found)}",
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
        f"the trace called {expected.name}({_short(expected.args)}),"
        f" the routine {name}({_short(args)})",
        place=f"step {expected.step}",
        recorded=expected.args,
        replayed=args,
    )


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:200]
