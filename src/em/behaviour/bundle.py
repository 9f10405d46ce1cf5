"""Bundle: a behaviour exported as a routine package, and a routine imported as a behaviour."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Step
from em.behaviour.cache import Cache, behaviour_of, id_of
from em.behaviour.codec import TAG
from em.behaviour.task import make_task
from em.compiler.calls import Names, identifier, infer_effect
from em.compiler.draft import Draft, Recorded
from em.compiler.package_files import write_package
from em.compiler.verification import verify_draft
from em.errors import InputError, NotFound, RoutineError
from em.log.event import EventQuery
from em.runner.package import Package
from em.runner.routine import ReturnStep, Routine, ToolSpec, ToolStep
from em.runner.routine import Step as RoutineStep
from em.store import Store
from em.store.protocol import Artefact
from em.traces.trace import Mission, ToolCall, Trace, trace_events
from em.values.canonical import Json
from em.values.ids import new_id, new_ids
from em.values.json_schema import of_input, of_output

ORIGIN = "behaviour.json"
"""The file beside the routine with what a routine can't express, such as captures."""


def export_behaviour(store: Store, artefact: Artefact, folder: Path) -> Draft:
    """Write a behaviour as a routine package, verified by replaying it against its recording."""
    behaviour = behaviour_of(artefact)
    trace = _trace_of(store, artefact)
    engine, _, key = artefact.name.rpartition("/")
    draft = _draft(behaviour, trace, identifier(engine.rpartition(".")[2]))
    verify_draft(draft)
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


def _draft(behaviour: Behaviour, trace: Trace, name: str) -> Draft:
    calls = [call for call in trace.calls if isinstance(call, ToolCall) and call.error is None]
    names, recorded = Names(), []
    steps: list[RoutineStep] = []
    comments: dict[str, list[str]] = {}
    for step, call in zip(behaviour.steps, calls, strict=True):
        own = names.free(identifier(step.tool))
        live = {n: f"{{{{ {behaviour.steps[s].save_as} }}}}" for n, s in step.live.items()}
        was = {n: calls[source].result for n, source in step.live.items()}
        steps.append(
            ToolStep(
                id=own,
                tool=step.tool,
                args={**_plain(step.args), **live},
                agree=step.agree,
                guards=tuple(step.guards),
                expects=tuple(step.expects),
                save_as=step.save_as,
            )
        )
        args = {**_plain(call.args), **was}
        recorded.append(Recorded(own, step.tool, False, args, call.result))
        comments[own] = _lost(step)
    answer = behaviour.answer
    value = _plain(answer.value)
    if answer.live is not None:
        value = f"{{{{ {behaviour.steps[answer.live].save_as} }}}}"
    steps.append(ReturnStep(id=names.free("return"), value=value))
    output = trace.final_output if answer.form != "tagged" else _plain(answer.value)
    used = _inputs(behaviour, trace.mission.input_summary)
    routine = Routine(
        name=name,
        description=trace.mission.goal,
        tools=[
            ToolSpec(
                name=tool,
                effect=effect or infer_effect(tool.rpartition(".")[2]),
                effect_inferred=effect is None,
            )
            for tool, effect in {call.tool: call.effect for call in calls}.items()
        ],
        input_schema=of_input(used),
        output_schema=of_output(value, output) or None,
        steps=steps,
    )
    return Draft(routine, used, output, recorded, {}, (), (), (), comments)


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
    """Make a behaviour of the routine's steps, with what only `known` has."""
    names = Names()
    before = {names.free(identifier(step.tool)): step for step in known.steps}
    steps: list[Step] = []
    answer = known.answer
    for step in routine.steps:
        if isinstance(step, ReturnStep):
            answer = _answer(step, known)
        else:
            steps.append(_step(step, before.get(step.id)))
    return msgspec.structs.replace(known, steps=steps, answer=answer, routine=routine.name)


def _answer(step: ReturnStep, known: Behaviour) -> Answer:
    if known.answer.live is not None or step.value == _plain(known.answer.value):
        return known.answer
    return Answer(value=step.value, form="typed" if known.answer.form == "typed" else "")


def _step(step: RoutineStep, before: Step | None) -> Step:
    plain = ToolStep(id=step.id, tool="", save_as=step.save_as, description=step.description)
    own = None
    if isinstance(step, ToolStep):
        own = msgspec.structs.replace(
            step, tool="", args={}, agree={}, guards=(), expects=(), effect=None
        )
    if not isinstance(step, ToolStep) or own != plain:
        raise RoutineError(
            "a behaviour can only have plain tool calls and a return",
            place=f"step {step.id}",
            fix="run this routine with `em run`, or reduce the step to a plain tool call",
        )
    if before is None or before.tool != step.tool:
        return Step(
            tool=step.tool,
            code="",
            args=step.args,
            agree=step.agree,
            guards=step.guards,
            expects=step.expects,
            save_as=step.save_as,
        )
    args = {
        # Use the tagged value where the routine has not changed it.
        name: before.args[name]
        if name in before.args and _plain(before.args[name]) == value
        else value
        for name, value in step.args.items()
        if name not in before.live
    }
    return msgspec.structs.replace(
        before,
        args=args,
        agree=step.agree,
        guards=step.guards,
        expects=step.expects,
        save_as=step.save_as,
    )


def _recording(folder: Path, routine: Routine) -> Trace:
    """Return the calls that the package was compiled from, as a trace."""
    recording = _read(folder / "recording.json") or {}
    return Trace(
        app={"name": routine.name},
        mission=Mission(routine.description, _read(folder / "input.json") or {}),
        events=[
            ToolCall(tool=call["name"], args=call["args"], result=call.get("result"))
            for call in recording.get("calls", ())
            if not call.get("is_udf")
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
