"""Verification: a routine must repeat the recorded calls in a replay that has no effects.

`verify_draft` replays a compiled routine exactly. `verify_improved` lets a model's version omit
reads, and `verify_renamed` compares both on other values than the recorded ones.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.draft import Draft, Recorded
from em.errors import EmError, RoutineError
from em.redaction.redactor import MARKER
from em.runner.drivers import Effects, Wait, drive
from em.runner.journal import keepable
from em.runner.machine import Machine
from em.runner.routine import AssertStep, Program, PromptStep, Routine, Step, ToolStep, UdfStep
from em.runner.run import RunResult, cause_of
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool
from em.values.call import Effect
from em.values.canonical import Json, identical, short
from em.values.leaves import is_by_id, is_informative, is_telling, mentioned_in, scalars
from em.values.syntax_tree import module_of

ASK = "ask a person"
"""The name of a question among the effects of a replay; no tool has such a name."""

Same = Callable[[Any, Any], bool]
"""Compares an output with the expected one."""


class NotReproduced(RoutineError):
    """A replay of the routine differs from the trace."""

    code = "not_reproduced"


class _Replay:
    """Answers calls from the recording, in the recorded order."""

    def __init__(self, recording: list[Recorded]) -> None:
        self._left = list(reversed(recording))
        self.difference: NotReproduced | None = None

    def tool(self, name: str, real: Function | None = None) -> Any:
        """Return a stand-in for a tool, which calls `real` and compares its result, if given."""

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
        """Raise the first difference, or an error if recorded calls are left."""
        if self.difference is not None:
            raise self.difference
        if self._left:
            left = self._left[-1]
            raise NotReproduced(f"the routine never calls {left.name}", place=f"step {left.step}")


class _FreerReplay:
    """Answers calls from the recording: effects in the recorded order, reads in any order."""

    def __init__(self, recording: Sequence[Recorded], effects: Mapping[str, Effect | None]) -> None:
        self._writes = [item for item in recording if effects.get(item.name) != "read"]
        self._reads = [item for item in recording if effects.get(item.name) == "read"]
        self.difference: NotReproduced | None = None
        self._step = ""
        self._called_by: set[str] = set()

    def start(self, step_id: str) -> None:
        """Note the step that starts now."""
        self._step = step_id

    def tool(self, name: str) -> Any:
        """Return a stand-in for a tool."""

        def call(**args: Any) -> Any:
            self._called_by.add(self._step)
            if self._writes and _is(self._writes[0], name, args):
                return self._writes.pop(0).result
            for item in self._reads:
                if _is(item, name, args):
                    self._reads.remove(item)
                    return item.result
            self.difference = self.difference or self._unexpected(name, args)
            raise self.difference

        return call

    def _unexpected(self, name: str, args: Json) -> NotReproduced:
        if any(_is(item, name, args) for item in self._writes):
            first = self._writes[0]
            return NotReproduced(
                f"{name}({short(args)}) is called before {first.name}({short(first.args)})",
                place=f"step {self._step}",
            )
        same = [item for item in (*self._writes, *self._reads) if item.name == name]
        return _differs(same[0] if same else None, name, args)

    def check_all_called(self, steps: Sequence[Step], reads: set[str]) -> None:
        """Refuse steps with an effect that the replay never called: other inputs could."""
        acting = [s for s in steps if isinstance(s, ToolStep) and s.tool not in reads]
        for step in acting:
            if step.id not in self._called_by:
                raise NotReproduced(
                    f"{step.tool} has an effect and the replay never called it: remove the step",
                    place=f"step {step.id}",
                )

    def finish(self) -> None:
        """Raise the first difference, or an error if recorded effects are left."""
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
    """Replay a routine against its recording: calls, arguments and output must be the same.

    The functions in `udfs` are called, and their results must equal the recorded ones.
    """
    real = udfs or {}
    replay = _Replay(list(draft.recording))
    names = {item.name for item in draft.recording if item.is_udf}
    stand_ins = {name: replay.tool(name, real.get(name)) for name in names}
    return _verify(draft, replay, stand_ins)


def effects_of(draft: Draft) -> dict[str, Effect | None]:
    """Return the effect of each tool of a draft."""
    return {tool.name: tool.effect for tool in draft.routine.tools}


def verify_improved(
    draft: Draft,
    udfs: Mapping[str, Function],
    effects: Mapping[str, Effect | None],
    same: Same = identical,
) -> RunResult:
    """Replay a rewritten routine with its own functions; `effects` are those of its draft.

    Effects and questions must be the same in the same order, and so must the output. Reads may be
    left out but not added. The recording must come from `rehearsed`, which adds the questions.
    """
    recording = [item for item in draft.recording if not item.is_udf]
    replay = _FreerReplay(recording, effects)
    steps = draft.routine.steps
    asking = msgspec.structs.replace(draft, routine=_asking(draft.routine))
    result = _verify(asking, replay, udfs, replay.start, same)
    replay.check_all_called(steps, {name for name, effect in effects.items() if effect == "read"})
    return result


def rehearsed(draft: Draft) -> Draft:
    """Run a draft with the recorded results; return it with the calls and output of that run.

    The calls include the questions that it asks. Nothing is compared.
    """
    results = {item.step: item for item in draft.recording}
    made: list[Recorded] = []
    at = ""

    def start(step_id: str) -> None:
        nonlocal at
        at = step_id

    def stand_in(name: str, *, is_udf: bool) -> Function:
        def call(**args: Any) -> Any:
            found = results.get(at)
            result = None if found is None else found.result
            made.append(Recorded(at, name, is_udf, args, result))
            return result

        return call

    names = {item.name for item in draft.recording if not item.is_udf} | {ASK}
    result = _run(
        msgspec.structs.replace(draft, routine=_asking(draft.routine)),
        {name: Tool(name, stand_in(name, is_udf=False)) for name in names},
        {item.name: stand_in(item.name, is_udf=True) for item in draft.recording if item.is_udf},
        start,
    )
    if result.status != "ok":
        why = cause_of(result.failure) if result.failure else "an answer is missing"
        raise NotReproduced(f"the draft fails on these values: {why}")
    return msgspec.structs.replace(draft, recording=made, output=result.output)


def _asking(routine: Routine) -> Routine:
    """Return a routine with a call before each question that reports its words."""
    steps: list[Step] = []
    for step in routine.steps:
        if isinstance(step, PromptStep):
            args = {"step": step.id, "message": step.prompt.message}
            steps.append(ToolStep(id=f"{step.id}, {ASK}", tool=ASK, args=args, when=step.when))
        steps.append(step)
    return msgspec.structs.replace(routine, steps=steps)


def _run(
    draft: Draft,
    tools: Mapping[str, Tool],
    udfs: Mapping[str, Function],
    on_start: Callable[[str], None] | None = None,
) -> RunResult:
    machine = Machine(
        Program(draft.routine),
        run_id="verification",
        tools=tools,
        udfs=udfs,
        answers=draft.answers,
        on_start=on_start,
        # The recording has a marker in place of each secret. A replay never reads secrets from the
        # environment.
        secrets=Secrets(
            [secret for secret in draft.routine.secrets if draft.secrets.get(secret.name)],
            draft.secrets,
        ),
    )
    return drive(at_once(machine.run(declared_input(draft))))


def declared_input(draft: Draft) -> Json:
    """Return the recorded inputs that the routine declares; a model's may need fewer of them."""
    properties = (draft.routine.input_schema or {}).get("properties")
    if properties is None:
        return draft.input
    return {name: value for name, value in draft.input.items() if name in properties}


def replayed(
    draft: Draft, stand_in: Callable[[str], Function], udfs: Mapping[str, Function] | None = None
) -> RunResult:
    """Run a draft with stand-ins for its tools and functions; compare nothing.

    udfs: functions that are called themselves.
    """
    named = {item.name for item in draft.recording if item.is_udf}
    functions = {name: stand_in(name) for name in named} | dict(udfs or {})
    names = {item.name for item in draft.recording if not item.is_udf} | draft.routine.called_tools
    return _run(draft, {name: Tool(name, stand_in(name)) for name in names}, functions)


def at_once(running: Effects[RunResult]) -> Effects[RunResult]:
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


def _verify(
    draft: Draft,
    replay: "_Replay | _FreerReplay",
    udfs: Mapping[str, Function],
    on_start: Callable[[str], None] | None = None,
    same: Same = identical,
) -> RunResult:
    # A step of a way that this recording did not go is not made, and has to be there.
    recorded = {item.name for item in draft.recording if not item.is_udf}
    names = recorded | {ASK} | draft.routine.called_tools
    tools = {name: Tool(name, replay.tool(name)) for name in names}
    result = _run(draft, tools, udfs, on_start)
    if replay.difference is None and result.failure is not None:
        raise NotReproduced(
            f"the replay failed: {cause_of(result.failure)}",
            place=f"step {result.failure.step_id}",
        )
    if replay.difference is None and result.pending_prompt is not None:
        raise NotReproduced(
            f"the replay asks: {result.pending_prompt.message}",
            place=f"step {result.pending_prompt.step_id}",
        )
    if replay.difference is None and result.reason is not None:
        raise NotReproduced(
            f"the replay hands over: {result.reason.message}",
            place=f"step {result.reason.step_id}",
        )
    replay.finish()
    if not same(result.output, draft.output):
        raise NotReproduced(
            "the output differs from the recorded one",
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
    except Exception as error:  # a function may raise anything; the error reports it
        raise NotReproduced(
            f"{call} returned {short(expected.result)} in the trace,"
            f" the function raised {type(error).__name__}: {error}",
            place=place,
            recorded=expected.result,
        ) from error
    if not identical(found, expected.result):
        raise NotReproduced(
            f"{call} returned {short(expected.result)} in the trace, the function {short(found)}",
            place=place,
            fix="fix the function, or leave it out: then a stub is written",
            recorded=expected.result,
            replayed=found,
        )
    return found


def _differs(expected: Recorded | None, name: str, args: Json) -> NotReproduced:
    if expected is None:
        return NotReproduced(f"the routine calls {name} more often than the trace")
    return NotReproduced(
        f"the trace called {expected.name}({short(expected.args)}),"
        f" the routine {name}({short(args)})",
        place=f"step {expected.step}",
        recorded=expected.args,
        replayed=args,
    )


LONGEST_SHOWN = 80


def written_in(draft: Draft, improved: Draft) -> list[str]:
    """Return problems: values that the improved routine hard-codes and the draft does not."""
    allowed = {_text(found.recorded) for found in draft.explained if found.how == "constant"}
    steps = steps_text(improved)
    literals = set(_literals(improved.udf_source))
    problems: dict[str, None] = {}
    for found in draft.explained:
        if found.how in ("constant", "parts") or not is_informative(found.recorded):
            continue
        value = _text(found.recorded)
        if value in allowed:
            continue
        shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
        if value in steps:
            problems[f"{shown!r} is hard-coded in a step: take it from {found.wired}"] = None
        if value in literals:
            problems[f"{shown!r} is hard-coded in udf.py: pass it as an argument"] = None
    return list(problems)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_NOT_ACTING = ("description", "id", "expects")
"""Fields of steps whose values no call is made with."""


def steps_text(draft: Draft) -> str:
    """Return all texts and values that the steps act with."""
    steps = []
    for step in msgspec.to_builtins(draft.routine)["steps"]:
        steps.append({key: item for key, item in step.items() if key not in _NOT_ACTING})
    return "\n".join(_text(value) for _, value in scalars(steps))


def _literals(code: str) -> Iterator[str]:
    """Yield the literals of Python code, without docstrings."""
    tree = module_of(code)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            value = node.value
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                yield _text(value)


_DATE = re.compile(r"(\d{4})(-\d{2}-\d{2}.*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,6})?")


class Way(NamedTuple):
    """How values are replaced: text before and after, what to add to a number, years to a date."""

    before: str
    after: str
    more: int
    years: int


WAYS = (Way("", "-qx7", 1_013, 400), Way("zk4-", "", 20_011, 800))
"""Two ways, since a draft may depend on the beginning or on the end of a text."""


def verify_renamed(
    draft: Draft, improved: Draft, udfs: Mapping[str, Function], way: Way
) -> str | None:
    """Compare an improved routine with its draft on other values; raise if they differ.

    Return None if they do the same, or the reason if the draft itself fails on these values.
    """
    try:
        expected = rehearsed(_renamed(draft, way))
    except EmError as error:
        return str(error)
    other = msgspec.structs.replace(
        expected, routine=_only_what_acts(draft.routine, improved.routine)
    )
    known = answered(expected, udfs)

    def same(found: Any, wanted: Any) -> bool:
        return _same_but_computed(found, wanted, draft.output)

    try:
        verify_improved(other, {**udfs, **known}, effects_of(draft), same)
    except NotReproduced as error:
        raise NotReproduced(
            f"with other values in the recording it differs from the draft: {error}",
            fix="take every value from where the draft takes it, without conditions, and call"
            " the draft's functions as the draft does",
        ) from None
    return None


def answered(expected: Draft, udfs: Mapping[str, Function]) -> dict[str, Function]:
    """Return functions that answer from the recording, and call `udfs` for other arguments."""
    names = {item.name for item in expected.recording if item.is_udf}
    return {name: _answered(expected, name, udfs.get(name)) for name in names}


def _answered(expected: Draft, name: str, real: Function | None) -> Function:
    def call(*args: Any, **named: Any) -> Any:
        for item in expected.recording:
            if item.is_udf and item.name == name and not args and identical(item.args, named):
                return item.result
        if real is None:
            raise NotReproduced(f"{name} is called with arguments that the draft never uses")
        return real(*args, **named)

    return call


def _same_but_computed(found: Any, expected: Any, recorded: Any) -> bool:
    """Compare, except for numbers that the draft only repeats: those may be computed now."""
    if isinstance(expected, dict) and isinstance(found, dict) and isinstance(recorded, dict):
        return found.keys() == expected.keys() == recorded.keys() and all(
            _same_but_computed(found[key], expected[key], recorded[key]) for key in expected
        )
    if isinstance(expected, list) and isinstance(found, list) and isinstance(recorded, list):
        return len(found) == len(expected) == len(recorded) and all(
            _same_but_computed(*items) for items in zip(found, expected, recorded, strict=True)
        )
    if _is_number(found) and _is_number(expected) and identical(expected, recorded):
        return True
    return identical(found, expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _only_what_acts(old: Routine, new: Routine) -> Routine:
    """Return the routine without its added checks, which may name a recorded value."""
    steps: list[Step] = []
    checks = {step.check for step in old.steps if isinstance(step, AssertStep)}
    for step in new.steps:
        if isinstance(step, AssertStep) and step.check not in checks:
            continue
        if isinstance(step, ToolStep | UdfStep):
            step = msgspec.structs.replace(  # noqa: PLW2901 - the same step
                step, checks=None, expects=()
            )
        steps.append(step)
    return msgspec.structs.replace(new, steps=steps)


def _renamed(draft: Draft, way: Way) -> Draft:
    text = steps_text(draft)

    def other(value: Any) -> Any:
        # A value that the draft itself contains is a constant, not data of this recording.
        return value if mentioned_in(value, text) else _other(value, way)

    steps = [
        # Other results are not the expected ones.
        msgspec.structs.replace(step, expects=()) if isinstance(step, ToolStep | UdfStep) else step
        for step in draft.routine.steps
    ]
    return msgspec.structs.replace(
        draft,
        routine=msgspec.structs.replace(draft.routine, steps=steps),
        input={name: _each(value, other) for name, value in draft.input.items()},
        answers={
            step: {name: _each(value, other) for name, value in answer.items()}
            for step, answer in draft.answers.items()
        },
        recording=[
            msgspec.structs.replace(item, result=_each(item.result, other))
            for item in draft.recording
        ],
    )


def _each(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        keys = other if is_by_id(value) else _same
        return {keys(key): _each(item, other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_each(item, other) for item in value]
    return other(value)


def _same(value: Any) -> Any:
    return value


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
