"""Bundle: a behaviour exported as a routine package, and a routine imported as a behaviour.

What must hold before a call, or of what it returned, is an assert beside the call in the routine.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.behaviour.agreement import TEXT, names_in_expression, part_at, place_parts
from em.behaviour.arguments import OUTPUT
from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Step
from em.behaviour.cache import Cache, behaviour_of, id_of
from em.behaviour.codec import TAG
from em.behaviour.returned import RESULT
from em.behaviour.sources import places, reference
from em.behaviour.task import as_expression, make_task
from em.compiler.calls import Names, identifier, infer_effect
from em.compiler.draft import Draft, Recorded
from em.compiler.example import APPROVAL, Call
from em.compiler.package_files import write_package
from em.compiler.replay_world import World
from em.errors import InputError, NotFound, RoutineError
from em.log.event import EventQuery
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import GIVEN, compile_expression, compile_value
from em.runner.package import Package
from em.runner.routine import AssertStep, Program, ReturnStep, Routine, ToolStep
from em.runner.routine import Step as RoutineStep
from em.store import Store
from em.store.protocol import Artefact
from em.traces.trace import Mission, ToolCall, Trace, trace_events
from em.values.call import Effect
from em.values.canonical import Json, identical
from em.values.ids import new_id, new_ids
from em.values.json_schema import of_input, of_output

ORIGIN = "behaviour.json"
"""The file beside the routine with what a routine can't express, such as captures."""


def export_behaviour(store: Store, artefact: Artefact, folder: Path) -> Draft:
    """Write a behaviour as a routine package, verified by replaying it against its recording."""
    behaviour = behaviour_of(artefact)
    trace = _trace_of(store, artefact)
    engine, _, key = artefact.name.rpartition("/")
    draft = _Printer(behaviour, trace).draft(identifier(engine.rpartition(".")[2]))
    _prove(draft)
    write_package(draft, folder)
    origin = {"engine": engine, "key": key, "behaviour": artefact.body}
    text = msgspec.json.format(msgspec.json.encode(origin), indent=2)
    (folder / ORIGIN).write_bytes(text + b"\n")
    return draft


def _trace_of(store: Store, artefact: Artefact) -> Trace:
    """Return the recording that a behaviour came from."""
    events = store.read(EventQuery(ids=list(artefact.from_events)))
    bodies: dict[str, list[Json]] = {}
    for event in events:
        if event.body is not None:
            bodies.setdefault(event.kind, []).append(event.body)
    if "trace_started" not in bodies or "trace_ended" not in bodies:
        raise NotFound("the recording was erased from the log", place=id_of(artefact))
    started, ended = bodies["trace_started"][0], bodies["trace_ended"][0]
    calls = [
        msgspec.convert({**body, "type": "tool_call"}, ToolCall) for body in bodies["tool_call"]
    ]
    return Trace(
        mission=Mission(started["goal"], started.get("input") or {}),
        events=calls,
        final_output=ended.get("output"),
        outcome="success",
    )


def _prove(draft: Draft) -> None:
    """Replay a routine: it must make all recorded calls in their order, and return the output."""
    recorded = draft.recordings[0]
    # A write is answered only if it is the next recorded one, and so is each call here.
    world = World(recorded.inputs, [call._replace(effect="write") for call in recorded.calls])
    outcome = world.run(Program(draft.routine))
    if outcome.verdict == "right" and identical(world.output, draft.output):
        return
    raise RoutineError(
        f"the exported routine does not repeat its recording: {outcome.reason or 'its output'}",
        place=draft.name,
        fix="delete the behaviour, and record the task again",
    )


class _Printer:
    """Prints a behaviour as a plain routine."""

    def __init__(self, behaviour: Behaviour, trace: Trace) -> None:
        self._behaviour, self._trace = behaviour, trace
        found = (call for call in trace.calls if isinstance(call, ToolCall))
        self._calls = [call for call in found if call.error is None]
        self._inputs = _inputs(behaviour, trace.mission.input_summary)
        results = zip(behaviour.steps, self._calls, strict=True)
        self._scope = SCOPE | self._inputs | {s.save_as or "": c.result for s, c in results}
        self._names = Names()
        self._ids = _ids(behaviour.steps, self._names)
        self._checked: set[str] = set()

    def draft(self, name: str) -> Draft:
        """Return the routine, with its recording."""
        answer = self._behaviour.answer
        value = _plain(answer.value)
        if answer.live is not None:
            value = f"{{{{ {self._behaviour.steps[answer.live].save_as} }}}}"
        output = self._trace.final_output
        if answer.form == "tagged":
            output = compile_value(value, "")(self._scope)
        end = {"id": self._names.free("return"), "type": "return", "value": value}
        document: Json = {
            "version": "1",
            "name": name,
            "description": self._trace.mission.goal,
            "checks": "hand_over",
            "input_schema": of_input(self._inputs),
            "output_schema": of_output(value, output) or None,
            "tools": [_tool(call) for call in {call.tool: call for call in self._calls}.values()],
            "steps": [*self._steps(), end],
        }
        calls = [*map(self._recorded, self._behaviour.steps, self._calls)]
        return Draft(
            document={key: part for key, part in document.items() if part},
            recordings=[Recorded(inputs=self._inputs, calls=calls, output=output)],
            output=output,
        )

    def _recorded(self, step: Step, call: ToolCall) -> Call:
        was = {name: self._calls[source].result for name, source in step.live.items()}
        return Call(call.tool, {**_plain(call.args), **was}, call.result, effect=_effect(call))

    def _steps(self) -> Iterator[Json]:
        """Yield the calls and the checks; what can be checked before the first write is."""
        steps, answer = self._behaviour.steps, self._behaviour.answer
        before = [[*self._agreeing(step.args, step.agree), *step.guards] for step in steps]
        before.append([*self._agreeing({OUTPUT: answer.value}, answer.agree)])
        first = next((n for n, call in enumerate(self._calls) if _effect(call) == "write"), 0)
        known = {*self._inputs, *(step.save_as for step in steps[:first])}
        early = [one for own in before[first + 1 :] for one in own]
        before[first] += [one for one in early if names_in_expression(one) <= known]
        for number, (own, step) in enumerate(zip(self._ids, steps, strict=True)):
            yield from self._asserts(own, before[number])
            optional = {
                "description": "; ".join(_lost(step)),
                "save_as": step.save_as,
                "expect": step.expect,
            }
            yield {
                "id": own,
                "type": "tool.call",
                "tool": step.tool,
                "args": {**_plain(step.args), **_live(step, steps)},
                **{key: part for key, part in optional.items() if part},
            }
            if self._behaviour.format == FORMAT:
                yield from self._asserts(own, _expected(step, steps).values())
        yield from self._asserts("return", before[-1])

    def _asserts(self, own: str, checks: Iterable[str]) -> Iterator[Json]:
        """Yield checks that were not made before."""
        for check in dict.fromkeys(checks):
            if check not in self._checked:
                self._checked.add(check)
                yield {"id": self._names.free(f"{own}_check"), "type": "assert", "check": check}

    def _agreeing(self, args: Json, agree: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Yield what must agree: as equal values, or as equal texts where 7 was "7"."""
        for place, texts in agree.items():
            for text in texts:
                exact, loose = _same(args, place, text)
                yield exact if compile_expression(exact, "")(self._scope) is True else loose


def _effect(call: ToolCall) -> Effect:
    return call.effect or infer_effect(call.tool.rpartition(".")[2])


def _tool(call: ToolCall) -> Json:
    inferred = {"effect_inferred": True} if call.effect is None else {}
    return {"name": call.tool, "effect": _effect(call), **inferred}


def _ids(steps: Sequence[Step], names: Names) -> list[str]:
    """Return the ids of the calls in the routine."""
    return [names.free(identifier(step.tool)) for step in steps]


def _same(args: Json, place: str, text: str) -> tuple[str, str]:
    """Return the checks that another expression gives a part of arguments: as value, as text."""
    own = as_expression(part_at(args, place))
    return f"{own} == {text}", f"str({own}) == str({text})"


def _live(step: Step, steps: Sequence[Step]) -> dict[str, str]:
    return {name: f"{{{{ {steps[source].save_as} }}}}" for name, source in step.live.items()}


_OF_CALL = re.compile(
    rf"{TEXT.pattern}|(?<![\w.])({RESULT}|{GIVEN})(?!\w)"
    r"((?:\.\w+|\[\d+\]|\[\"(?:[^\"\\]|\\.)*\"\])*)"
)
"""Matches a text, or what expectations take of a call's result and arguments."""


def _expected(step: Step, steps: Sequence[Step]) -> dict[str, str]:
    """Return the expectations of a step, and each as a check after the call."""
    args = {**step.args, **_live(step, steps)}

    def named(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        if match[1] == RESULT:
            return f"{step.save_as}{match[2]}"
        template: Any = args
        parts: list[Any] = [*place_parts(match[2])]
        while parts and isinstance(template, dict | list):
            template = template[parts.pop(0)]
        own = as_expression(template)
        is_name = re.fullmatch(r"[\w.]+", own) is not None
        return reference(own if is_name else f"({own})", tuple(parts))

    return {text: _OF_CALL.sub(named, text) for text in step.expects}


def _inputs(behaviour: Behaviour, given: Json) -> Json:
    """Return the inputs under the names that expressions use, params first."""
    params = {name: given[name] for name in behaviour.params if name in given}
    arguments = {name: value for name, value in given.items() if name not in params}
    return make_task(arguments, [], params).inputs


def _lost(step: Step) -> list[str]:
    """Describe what a routine can't express of a step."""
    lost = [
        f"{name}: the {kind} of this call is not part of the routine"
        for name, kind, capture in (
            ("checks.pre", "pre-check", step.pre),
            ("checks.post", "post-check", step.post),
        )
        if capture is not None
    ]
    return lost + [
        f"args.{name}: the tool was given a type that JSON does not express" for name in step.forms
    ]


def _plain(value: Any) -> Any:
    """Return a value as plain JSON, without tags of types."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _plain(item) for key, item in value.items()}
    return _plain(value["items"]) if "items" in value else value["text"]


def import_routine(
    store: Store,
    folder: Path,
    *,
    engine: str | None = None,
    task: Json | None = None,
    params: Sequence[str] | None = None,
    tags: Sequence[str] = (),
) -> str:
    """Import a routine as a behaviour of an engine; return its id.

    An exported package names its engine and task. For another package, `task` are the agent's
    arguments (by default the recorded input), and `params` the names of those that vary (by
    default all).
    """
    package = Package(folder)
    origin = _read(folder / ORIGIN)
    if origin is not None:
        known = msgspec.convert(origin["behaviour"], Behaviour)
        key, engine = str(origin["key"]), engine or str(origin["engine"])
        behaviour = _behaviour(package.routine, known)
    else:
        given = task if task is not None else _read(folder / "input.json") or {}
        varying = list(given) if params is None else params
        made = make_task(given, sorted(tags), {name: given[name] for name in varying})
        empty = Behaviour(
            task=made.template,
            steps=(),
            tags=list(tags),
            params=list(varying),
            format=FORMAT,
        )
        key, behaviour = made.key, _behaviour(package.routine, empty)
    if engine is None:
        raise InputError(
            "the package does not name an engine", place=str(folder), fix="name it with --engine"
        )
    trace = _recording(folder, package.routine)
    drafts = trace_events(trace, new_id())
    ids = new_ids(len(drafts) + 1)
    events = [
        msgspec.structs.replace(draft, id=event_id)
        for draft, event_id in zip(drafts, ids, strict=False)
    ]
    return Cache(store, engine).add(key, behaviour, events, ids)


def _behaviour(routine: Routine, known: Behaviour) -> Behaviour:
    """Make a behaviour of the routine's steps, with what only `known` has.

    A check that `known` has stays what it is there. Another one is a guard of the next call, or
    is expected of the write before it if it is about what that returned.
    """
    before = dict(zip(_ids(known.steps, Names()), known.steps, strict=True))
    found = {step.check for step in routine.steps if isinstance(step, AssertStep)}
    writes = {tool.name for tool in routine.tools if tool.effect != "read"}
    answer = known.answer
    calls: dict[str, Step] = {}
    owned: set[str] = set()
    for step in routine.steps:
        if isinstance(step, ReturnStep):
            answer, own = _answer(step, known, found)
            owned |= own
        elif not (isinstance(step, AssertStep) and _is_plain(step)):
            calls[step.id], own = _kept(_step(step, before.get(step.id)), known.steps, found)
            owned |= own
    steps: list[Step] = []
    checks: list[str] = []
    for step in routine.steps:
        if isinstance(step, AssertStep):
            checks += [step.check] if step.check not in owned else []
        elif step.id in calls:
            if steps and steps[-1].tool in writes:
                checks = _expect(steps, checks)
            call = calls[step.id]
            steps.append(msgspec.structs.replace(call, guards=[*call.guards, *checks]))
            checks = []
    if steps:
        checks = _expect(steps, checks)
    if checks:
        raise RoutineError(
            f"a check before the return must be about the last call: {checks[0]}",
            place=f"routine {routine.name}",
            fix="move it before the call that needs it",
        )
    return msgspec.structs.replace(known, steps=steps, answer=answer, routine=routine.name)


def _is_plain(step: AssertStep) -> bool:
    return step == AssertStep(
        id=step.id,
        check=step.check,
        message=step.message,
        description=step.description,
        held=step.held,
    )


def _kept(step: Step, steps: Sequence[Step], found: set[str]) -> tuple[Step, set[str]]:
    """Return a known step with what the routine still checks, and those checks."""
    agree, owned = _agreed(step.args, step.agree, found)
    guards = [guard for guard in step.guards if guard in found]
    expected = {text: one for text, one in _expected(step, steps).items() if one in found}
    kept = msgspec.structs.replace(step, agree=agree, guards=guards, expects=list(expected))
    return kept, owned.union(guards, expected.values())


def _agreed(
    args: Json, agree: Mapping[str, Sequence[str]], found: set[str]
) -> tuple[dict[str, list[str]], set[str]]:
    """Return what must agree and is still checked, and those checks."""
    kept: dict[str, list[str]] = {}
    owned: set[str] = set()
    for place, texts in agree.items():
        for text in texts:
            checks = found.intersection(_same(args, place, text))
            if checks:
                kept.setdefault(place, []).append(text)
                owned |= checks
    return kept, owned


def _expect(steps: list[Step], checks: Sequence[str]) -> list[str]:
    """Expect of the last step what checks say of its result; return the other checks."""
    found = {check: _expectation(steps[-1], check) for check in checks}
    more = [text for text in found.values() if text is not None]
    steps[-1] = msgspec.structs.replace(steps[-1], expects=[*steps[-1].expects, *more])
    return [check for check, text in found.items() if text is None]


def _expectation(step: Step, check: str) -> str | None:
    """Return a check as an expectation; None unless it is about the result, and arguments, alone.

    An argument that is a name in the routine is `given` in the expectation.
    """
    if step.save_as is None or step.save_as not in names_in_expression(check):
        return None
    given = {as_expression(one.value): reference(GIVEN, one.parts) for one in places(0, step.args)}
    named = {text: own for text, own in given.items() if names_in_expression(text)}
    named[step.save_as] = RESULT
    options = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    pattern = re.compile(rf"{TEXT.pattern}|(?<![\w.])({options})(?!\w|\s*=[^=])")
    if names_in_expression(pattern.sub("''", check)):
        return None
    return pattern.sub(lambda match: named.get(match[1], match[0]), check)


def _answer(step: ReturnStep, known: Behaviour, found: set[str]) -> tuple[Answer, set[str]]:
    """Return the answer, and the checks that belong to it."""
    answer = known.answer
    if answer.live is None and step.value != _plain(answer.value):
        answer = Answer(value=step.value, form="typed" if answer.form == "typed" else "")
    agree, owned = _agreed({OUTPUT: answer.value}, answer.agree, found)
    return msgspec.structs.replace(answer, agree=agree), owned


def _step(step: RoutineStep, before: Step | None) -> Step:
    """Return a call as a step, with what the same step had before."""
    plain = ToolStep(id=step.id, tool="", save_as=step.save_as, description=step.description)
    own = None
    if isinstance(step, ToolStep):
        own = msgspec.structs.replace(step, tool="", args={}, effect=None, expect=None, held="")
    if not isinstance(step, ToolStep) or own != plain:
        raise RoutineError(
            "a behaviour can only have plain tool calls, asserts and a return",
            place=f"step {step.id}",
            fix="run this routine with `em run`, or reduce the step to a plain tool call",
        )
    shared: Json = {"expect": step.expect, "save_as": step.save_as}
    if before is None or before.tool != step.tool:
        return Step(tool=step.tool, code="", args=step.args, **shared)
    # Use the tagged value where the routine has not changed it.
    same = {n: one for n, one in before.args.items() if _plain(one) == step.args.get(n)}
    args = {n: same.get(n, one) for n, one in step.args.items() if n not in before.live}
    agree = {
        place: texts for place, texts in before.agree.items() if next(place_parts(place)) in same
    }
    return msgspec.structs.replace(before, args=args, agree=agree, **shared)


def _recording(folder: Path, routine: Routine) -> Trace:
    """Return the calls that the package was compiled from, as a trace."""
    recording = _read(folder / "recording.json") or {}
    return Trace(
        app={"name": routine.name},
        mission=Mission(routine.description, _read(folder / "input.json") or {}),
        events=[
            ToolCall(tool=call["tool"], args=call["args"], result=call.get("result"))
            for recorded in recording.get("recordings", ())[:1]
            for call in recorded["calls"]
            if not call.get("is_udf") and call["tool"] != APPROVAL
        ],
        final_output=_read(folder / "expected_output.json"),
        outcome="success",
    )


def _read(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"the file can't be read: {error}", place=str(path)) from None
