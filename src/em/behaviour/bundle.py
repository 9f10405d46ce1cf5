"""Bundle: a behaviour exported as a routine package, and a routine imported as a behaviour.

A behaviour is a routine with captures: its calls, guards and expectations are steps, asserts and
`expect`. What a routine can't express stands in a file beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Step
from em.behaviour.cache import Cache, behaviour_of, id_of
from em.behaviour.codec import TAG
from em.behaviour.task import make_task
from em.compiler.calls import Names, identifier
from em.compiler.draft import Draft, Recorded
from em.compiler.package_files import write_package
from em.compiler.replay_world import World
from em.errors import InputError, RoutineError
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import compile_value, names_in
from em.runner.package import Package
from em.runner.routine import AssertStep, Program, ReturnStep, Routine, ToolStep
from em.runner.routine import Step as RoutineStep
from em.store import Store
from em.store.protocol import Artefact
from em.traces.trace import Mission, ToolCall, Trace, trace_events
from em.values.canonical import Json, identical
from em.values.ids import new_id, new_ids
from em.values.json_schema import of_input, of_output

ORIGIN = "behaviour.json"
"""The file beside the routine with what a routine can't express, such as captures."""


def export_behaviour(artefact: Artefact, folder: Path) -> Draft:
    """Write a behaviour as a routine package, verified by replaying it against its recording."""
    behaviour = behaviour_of(artefact)
    if behaviour.format < FORMAT or not behaviour.recordings:
        raise RoutineError(
            "the behaviour has no recording that this em can export",
            place=id_of(artefact),
            fix="let the engine record the task again",
        )
    engine, _, key = artefact.name.rpartition("/")
    draft = _draft(behaviour, identifier(engine.rpartition(".")[2]))
    _prove(draft)
    write_package(draft, folder)
    origin = {"engine": engine, "key": key, "behaviour": artefact.body}
    text = msgspec.json.format(msgspec.json.encode(origin), indent=2)
    (folder / ORIGIN).write_bytes(text + b"\n")
    return draft


def _draft(behaviour: Behaviour, name: str) -> Draft:
    """Return the routine of a behaviour, with its newest recording."""
    steps, answer, recorded = behaviour.steps, behaviour.answer, behaviour.recordings[-1]
    value = _plain(answer.value)
    if answer.live is not None:
        value = f"{{{{ {steps[answer.live].save_as} }}}}"
    output = recorded.output
    if answer.live is not None or answer.form == "tagged":
        results = {s.save_as or "": c.result for s, c in zip(steps, recorded.calls, strict=True)}
        output = compile_value(value, "")(SCOPE | recorded.inputs | results)
    document: Json = {
        "version": "1",
        "name": name,
        "checks": "hand_over",
        "input_schema": of_input(recorded.inputs),
        "output_schema": of_output(value, output),
        "tools": [{"name": c.tool, "effect": c.effect} for c in _once(recorded)],
        "steps": [*_steps(behaviour, value)],
    }
    calls = []
    for step, call in zip(steps, recorded.calls, strict=True):
        live = {own: recorded.calls[source].result for own, source in step.live.items()}
        calls.append(call._replace(args={**_plain(call.args), **live}))
    return Draft(
        document={key: part for key, part in document.items() if part},
        recordings=[Recorded(inputs=recorded.inputs, calls=calls, output=output)],
        output=output,
    )


def _once(recorded: Recorded) -> Iterator[Any]:
    yield from {call.tool: call for call in recorded.calls}.values()


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


def _steps(behaviour: Behaviour, value: Any) -> Iterator[Json]:
    """Yield the calls and the checks; what can be checked before the first write is."""
    steps = behaviour.steps
    names = Names()
    ids = _ids(steps, names)
    saved = [step.save_as for step in steps]
    first = next((n for n, step in enumerate(steps) if not step.reads), 0)
    checks: list[list[str]] = [[] for _ in range(len(steps) + 1)]
    for number, own in enumerate([*(step.guards for step in steps), behaviour.answer.guards]):
        for guard in own:
            used = names_in(guard, "", bare=True)
            known = max((n for n, name in enumerate(saved, 1) if name in used), default=0)
            checks[min(number, max(first, known))].append(guard)
    for number, own_id in enumerate([*ids, "return"]):
        for guard in dict.fromkeys(checks[number]):
            yield {"id": names.free(f"{own_id}_check"), "type": "assert", "check": guard}
        if number == len(steps):
            yield {"id": names.free("return"), "type": "return", "value": value}
            return
        step = steps[number]
        optional = {
            "description": "; ".join(_lost(step)),
            "save_as": step.save_as,
            "expect": step.expect,
        }
        yield {
            "id": own_id,
            "type": "tool.call",
            "tool": step.tool,
            "args": {**_plain(step.args), **_live(step, steps)},
            **{key: part for key, part in optional.items() if part},
        }


def _ids(steps: Sequence[Step], names: Names) -> list[str]:
    """Return the ids of the calls in the routine."""
    return [names.free(identifier(step.tool)) for step in steps]


def _live(step: Step, steps: Sequence[Step]) -> dict[str, str]:
    return {name: f"{{{{ {steps[source].save_as} }}}}" for name, source in step.live.items()}


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
    else:
        given = task if task is not None else _read(folder / "input.json") or {}
        varying = list(given) if params is None else params
        made = make_task(given, sorted(tags), {name: given[name] for name in varying})
        key, known = (
            made.key,
            Behaviour(
                task=made.template, steps=(), tags=list(tags), params=list(varying), format=FORMAT
            ),
        )
    behaviour = _behaviour(package.routine, known)
    if engine is None:
        raise InputError(
            "the package does not name an engine", place=str(folder), fix="name it with --engine"
        )
    drafts = trace_events(_recording(folder, behaviour), new_id())
    ids = new_ids(len(drafts) + 1)
    events = [
        msgspec.structs.replace(draft, id=event_id)
        for draft, event_id in zip(drafts, ids, strict=False)
    ]
    return Cache(store, engine).add(key, behaviour, events, ids)


def _behaviour(routine: Routine, known: Behaviour) -> Behaviour:
    """Make a behaviour of the routine's steps, with what only `known` has.

    A check that `known` has stays where it is there; another one is a guard of what comes next.
    """
    before = dict(zip(_ids(known.steps, Names()), known.steps, strict=True))
    found = {step.check for step in routine.steps if isinstance(step, AssertStep)}
    reads = {tool.name for tool in routine.tools if tool.effect == "read"}
    placed = {one for step in known.steps for one in step.guards} | {*known.answer.guards}
    steps: list[Step] = []
    answer, checks = known.answer, list[str]()
    for step in routine.steps:
        if isinstance(step, AssertStep) and _is_plain(step):
            checks += [step.check] if step.check not in placed else []
            continue
        if isinstance(step, ReturnStep):
            if answer.live is None and step.value != _plain(answer.value):
                answer = Answer(value=step.value, form="typed" if answer.form == "typed" else "")
            own = [*(guard for guard in answer.guards if guard in found), *checks]
            answer = msgspec.structs.replace(answer, guards=own)
        else:
            call = _step(step, before.get(step.id), reads)
            own = [*(guard for guard in call.guards if guard in found), *checks]
            steps.append(msgspec.structs.replace(call, guards=own))
        checks = []
    return msgspec.structs.replace(known, steps=steps, answer=answer, routine=routine.name)


def _is_plain(step: AssertStep) -> bool:
    return step == AssertStep(
        id=step.id,
        check=step.check,
        message=step.message,
        description=step.description,
        held=step.held,
    )


def _step(step: RoutineStep, before: Step | None, reads: set[str]) -> Step:
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
        return Step(tool=step.tool, code="", args=step.args, reads=step.tool in reads, **shared)
    # Use the tagged value where the routine has not changed it.
    same: Mapping[str, Any] = {
        name: one for name, one in before.args.items() if _plain(one) == step.args.get(name)
    }
    args = {name: same.get(name, one) for name, one in step.args.items() if name not in before.live}
    return msgspec.structs.replace(before, args=args, **shared)


def _recording(folder: Path, behaviour: Behaviour) -> Trace:
    """Return the calls that a behaviour was recorded with, as a trace."""
    return Trace(
        app={"name": behaviour.routine or ""},
        mission=Mission("", _read(folder / "input.json") or {}),
        events=[
            ToolCall(tool=call.tool, args=call.args, result=call.result)
            for recorded in behaviour.recordings[-1:]
            for call in recorded.calls
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
