"""Lesson: the routine that recordings of a task teach, and a run of it that is told results.

A behaviour is a routine: the compiler's learner reads the recordings as it reads traces, so loops,
branches and checks are those of every routine. What the agent returned counts as what a last call
wrote. An object that is passed from call to call is a handle: its name is a value like others.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from em.behaviour import guards
from em.behaviour.behaviour import Behaviour, Taught
from em.compiler.calls import identifier
from em.compiler.checks import walked
from em.compiler.evidence import BY_PERSON, CONSTANTS_SHOWN, Caution, is_small
from em.compiler.example import Call, Example
from em.errors import EmError, ExpressionError, NotRecordable
from em.runner.drivers import CallTool
from em.runner.expressions.language import whole_expression
from em.runner.machine import Machine
from em.runner.request import Bound
from em.runner.run import RunResult
from em.values.canonical import Json, identical, same
from em.values.leaves import leaves

if TYPE_CHECKING:
    from em.compiler.learner import Learnt

ANSWER, OUTPUT = "answer", "output"
"""The last call that the learner sees, and its argument: what the agent returned."""
HANDLE = "handle"
"""The field of a result that names the object itself."""
MOST_VALUES = 100_000
"""Values of results; with more of them nothing is learnt."""
MOST_REFUTED = 50
"""Checks that recordings may refute; then something else is wrong."""
FAILURES = (EmError, ExpressionError, ValueError, TypeError, LookupError, RecursionError)


class Recording(msgspec.Struct, frozen=True):
    """A behaviour as the learner reads it: the inputs, the calls, and the answer."""

    inputs: Json
    calls: Sequence[Call]
    output: Any = None

    @classmethod
    def of(cls, behaviour: Behaviour) -> "Recording":
        """Return what was recorded, with names in place of objects."""
        key = zlib.crc32(behaviour.tape)
        sources = {number for one in behaviour.steps for number in one.live.values()}
        live = behaviour.answer.live
        sources |= set() if live is None else {live}
        calls = []
        for number, one in enumerate(behaviour.steps):
            handles = {name: handle_of(key, source) for name, source in one.live.items()}
            result = one.result
            if number in sources:
                result = named(result, key, number)
            effect: Any = "write" if one.writes else "read"
            calls.append(Call(one.tool, {**one.args, **handles}, result, effect=effect))
        output = behaviour.answer.value if live is None else handle_of(key, live)
        return cls(behaviour.inputs, calls, output)


def handle_of(key: int, number: int) -> str:
    """Return the name of the object that a call returned."""
    return f"h{key:08x}n{number}"


def named(result: Any, key: int, number: int) -> Any:
    """Return a result with the name of the object."""
    if not isinstance(result, dict):
        raise NotRecordable("an object that is passed on can't be described")
    return {**result, HANDLE: handle_of(key, number)}


class Course:
    """A run of a routine on the runner's machine that stands at a call.

    step, tool, args: the call that it wants next. result: how it ended; None while it goes on.
    """

    def __init__(self, taught: Taught, inputs: Json) -> None:
        names = taught.routine["input_schema"].get("properties", {})
        inputs = {name: one for name, one in inputs.items() if name in names} | taught.given
        machine = Machine(
            taught.program,
            run_id="",
            tools=taught.tools,
            udfs={},
            on_start=self._begin,
            bound=Bound(inputs=inputs, how="given"),
        )
        self._running = machine.run(inputs)
        self.step = self.tool = ""
        self.args: Json = {}
        self.result: RunResult | None = None
        self.answer(None)

    def _begin(self, step: str) -> None:
        self.step = step

    def answer(self, result: Any) -> None:
        """Go on to the next call, now that this one returned a result."""
        try:
            effect = self._running.send(result)
        except StopIteration as end:
            self.result = end.value
        else:
            assert isinstance(effect, CallTool)
            self.tool, self.args = effect.function.__name__, effect.args

    @property
    def is_stopped(self) -> bool:
        """Whether it wants no further call."""
        return self.result is not None

    @property
    def is_over(self) -> bool:
        """Whether the routine has returned."""
        return self.result is not None and self.result.status == "ok"

    @property
    def output(self) -> Any:
        """What the routine returned."""
        return None if self.result is None else self.result.output

    def why_stopped(self) -> tuple[str, str, str]:
        """Return the step at which the routine stopped, why, and what was looked at."""
        assert self.result is not None
        found = self.result.reason
        if found is not None:
            return found.step_id, found.message, found.check
        failed = self.result.failure
        assert failed is not None
        why = failed.message.removeprefix(f"step {failed.step_id}: ")
        return failed.step_id, why, str(failed.context.get("check", ""))


def teach(name: str, behaviours: Sequence[Behaviour]) -> Taught:
    """Return the routine that recordings teach; raise NotRecordable if there is none."""
    recordings = [Recording.of(one) for one in behaviours]
    values = sum(1 for one in recordings for call in one.calls for _ in leaves(call.result))
    if values > MOST_VALUES:
        raise NotRecordable("the recordings have too many values to learn from")
    problem: Exception | None = None
    cautions = (BY_PERSON, CONSTANTS_SHOWN) if len(recordings) > 1 else (BY_PERSON,)
    best: Taught | None = None
    for is_flat in (False, True):
        found = [*_learnt(recordings, cautions, is_flat=is_flat)]
        for number, learnt in enumerate(found):
            beside = [one.routine for one in (*found[:number], *found[number + 1 :])]
            try:
                taught = _taught(name, behaviours, recordings, learnt, beside)
            except FAILURES as error:
                problem = error
                continue
            if not taught.given:
                return taught
            best = best or taught
    if best is not None:
        return best
    if isinstance(problem, NotRecordable):
        raise problem
    raise NotRecordable(f"the recordings contradict each other: {problem}")


def _learnt(
    recordings: Sequence[Recording], cautions: Sequence[Caution], *, is_flat: bool
) -> "Iterator[Learnt]":
    """Yield what recordings teach with each caution.

    is_flat: without loops. Then a write that is repeated is of a tool of its own each time, so that
    one may be given what another returned.
    """
    from em.compiler.learner import learn  # it is large, and a replay does not need it

    titles = {one.tool: one.tool for each in recordings for one in each.calls}
    examples = [_example(one, titles, is_flat=is_flat) for one in recordings]
    for caution in cautions:
        with suppress(*FAILURES):
            learnt = learn("behaviour", examples, caution=caution)
            asked = {
                name: values[-1]
                for name, values in learnt.values.items()
                if not is_small(values[-1]) and all(same(one, values[-1]) for one in values)
            }
            asked = {name: one for name, one in asked.items() if name not in _returned(learnt)}
            if asked:
                # What it would ask for may be a part of other values.
                more = [one.with_inputs({**asked, **one.inputs}) for one in examples]
                learnt = learn("behaviour", more, caution=caution)
                values = {name: [one] * len(examples) for name, one in asked.items()}
                learnt = learnt._replace(values={**values, **learnt.values})
            yield learnt._replace(routine=_returning(learnt.routine, titles))


def _returned(learnt: "Learnt") -> set[str]:
    """Return the inputs that are asked for because nothing explains the answer."""
    steps = [one for one in learnt.routine["steps"] if one.get("tool") == ANSWER]
    return {name for use in guards.uses_in({"steps": steps}) for name in use.names()}


def _taught(
    name: str,
    behaviours: Sequence[Behaviour],
    recordings: Sequence[Recording],
    learnt: "Learnt",
    beside: Sequence[Json],
) -> Taught:
    """Return what recordings teach, with guards. beside: routines whose checks count too."""
    given: Json = {}
    for asked, values in learnt.values.items():
        if any(not same(one, values[-1]) for one in values):
            raise NotRecordable(f"nothing explains {asked}")
        given[asked] = values[-1]
    uses = [*guards.uses_in(learnt.routine)]
    done = {name for use in uses if use.step != "return" for name in use.names()}
    said = {name for use in uses if use.step == "return" for name in use.names()}
    if not (said & given.keys()) <= done:
        raise NotRecordable("nothing explains the answer")
    constants = [one for _, one in learnt.constants]
    guards.refuse_hidden(behaviours[-1], [*constants, *given.values()])
    routine = {**learnt.routine, "name": identifier(name)}
    more = [*guards.unquoted(routine)]
    # What no check looks at before it is made.
    bare = {one.tool for each in behaviours for one in each.steps if one.writes and one.pre is None}
    writes = any(one.writes for each in behaviours for one in each.steps)
    answer = routine["steps"][-1]["value"]
    is_said = answer is not None and whole_expression(str(answer)) is None
    is_checked = not (bare if writes else is_said)
    posts = {one.tool for each in behaviours for one in each.steps if one.post is not None}
    if is_checked:
        seen = {one.tool for each in behaviours for one in each.steps if one.writes}
        routine = guards.without_checks(routine, seen - posts)
    else:
        for other in beside:
            routine = guards.beside(routine, other)
        _, made = _proved(Taught(routine=routine, given=given), recordings)
        rows = [
            (one.inputs, {step: call for step, call in zip(steps, one.calls, strict=True) if step})
            for one, steps in zip(recordings, made, strict=True)
        ]
        more += guards.unproved(routine, rows)
        more += guards.echoes(routine, rows, posts)
        routine = guards.without_expectations(routine, posts)
    taught = Taught(routine=guards.with_checks(routine, more), given=given)
    taught, made = _proved(taught, recordings)
    unexplained = [one for name, one in learnt.constants if name.partition(".")[0] in bare]
    tools = {one["id"]: one.get("tool") for one in walked(taught.routine["steps"])}
    bare_uses = [use for use in uses if tools.get(use.step) in bare]
    used = {name for use in bare_uses for name in use.names()}
    unexplained += [one for name, one in given.items() if name in used]
    pins = guards.pinned(taught.routine, behaviours, unexplained)
    return msgspec.structs.replace(
        taught,
        routine=_pinned(taught.routine, pins),
        made=made,
        is_open=not used.isdisjoint(given),
        is_checked=is_checked,
    )


def _pinned(routine: Json, pins: Mapping[str, Json]) -> Json:
    """Return a routine whose inputs must also be like this."""
    schema = routine["input_schema"]
    properties = {**schema.get("properties", {}), **pins}
    return {**routine, "input_schema": {**schema, "properties": properties}}


def _example(recording: Recording, titles: dict[str, str], *, is_flat: bool) -> Example:
    """Return a recording as an example; note the tools that names stand for."""
    calls, count = [], Counter[str]()
    for call in recording.calls:
        count[call.tool] += call.effect == "write"
        title = call.tool
        if is_flat and call.effect == "write" and count[call.tool] > 1:
            title = f"{call.tool}_{count[call.tool]}"
            titles[title] = call.tool
        calls.append(call._replace(tool=title))
    if recording.output is not None:
        calls.append(Call(ANSWER, {OUTPUT: recording.output}, effect="write"))
    example = Example(recording.inputs, calls)
    return example.flat() if is_flat else example


def _returning(routine: Json, titles: Mapping[str, str]) -> Json:
    """Return a routine that returns what it would have given to the last call."""
    steps = routine["steps"]
    answers = [one for one in steps if one.get("tool") == ANSWER]
    value = answers[0]["args"][OUTPUT] if answers else None
    kept = [
        {**one, "tool": titles[one["tool"]]} if one.get("tool") in titles else one
        for one in steps
        if one not in answers and one["type"] != "return"
    ]
    tools = {titles[one["name"]]: one for one in routine["tools"] if one["name"] != ANSWER}
    ended = {"id": "return", "type": "return", "value": value}
    named = [{**one, "name": name} for name, one in tools.items()]
    return {**routine, "tools": named, "steps": [*kept, ended]}


def _proved(taught: Taught, recordings: Sequence[Recording]) -> tuple[Taught, list[Sequence[str]]]:
    """Return what was learnt without the checks that a recording refutes.

    Beside it, by recording, the step that makes each call. Raise NotRecordable if it does not do
    what was recorded.
    """
    from em.compiler.checks import checks_of_reason, with_struck

    made: list[Sequence[str]] = []
    for recording in recordings:
        for _ in range(MOST_REFUTED):
            course, steps = retraced(taught, recording)
            reason = None if course.result is None else course.result.reason
            checks = checks_of_reason(taught.routine, reason) if reason else []
            if not checks:
                break
            routine = with_struck(taught.routine, [one.text for one in checks])
            routine.pop("struck", None)
            taught = msgspec.structs.replace(taught, routine=routine)
        if not is_shown(course, steps, recording):
            raise NotRecordable("the recordings contradict each other")
        made.append(steps)
    return taught, made


def retraced(taught: Taught, recording: Recording) -> tuple[Course, list[str]]:
    """Run a routine in a recording; return the run, and the step that makes each recorded call."""
    calls, course = recording.calls, Course(taught, recording.inputs)
    steps = [""] * len(calls)
    while not course.is_stopped:
        number = _recorded(course, calls, steps)
        if number is None:
            break
        steps[number] = steps[number] or course.step
        course.answer(calls[number].result)
    return course, steps


def is_shown(course: Course, steps: Sequence[str], recording: Recording) -> bool:
    """Return whether a run made all writes of a recording, and returned the same."""
    calls = zip(steps, recording.calls, strict=True)
    is_all = all(step or call.effect == "read" for step, call in calls)
    return course.is_over and is_all and identical(course.output, recording.output)


def _recorded(course: Course, calls: Sequence[Call], steps: Sequence[str]) -> int | None:
    """Return the number of the recorded call that a run wants; None if there is none.

    Of several reads, the nearest to the moment counts.
    """
    written = [n for n, one in enumerate(calls) if one.effect == "write" and not steps[n]]
    moment = written[0] if written else len(calls)
    alike = [
        n
        for n, one in enumerate(calls)
        if one.tool == course.tool
        and identical(one.args, course.args)
        and (one.effect == "read" or n == moment)
    ]
    return min(alike, key=lambda n: (n > moment, abs(moment - n), bool(steps[n])), default=None)
