"""Bundle: a behaviour exported as a routine package, and a package imported as a behaviour.

A behaviour is a routine with captures: the package is the routine with its recording, and the
captures stand in a file beside it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.behaviour.behaviour import FORMAT, Answer, Behaviour
from em.behaviour.cache import Cache, behaviour_of, id_of
from em.behaviour.codec import TAG
from em.behaviour.task import make_task
from em.compiler.draft import Draft, Recorded
from em.compiler.package_files import write_package
from em.errors import InputError, RoutineError
from em.runner.package import Package
from em.runner.routine import AssertStep, LetStep, ReturnStep, Step, ToolStep
from em.store import Store
from em.store.protocol import Artefact
from em.traces.trace import Mission, ToolCall, Trace, trace_events
from em.values.canonical import Json
from em.values.ids import new_id, new_ids
from em.values.json_schema import of_input

ORIGIN = "behaviour.json"
"""The file beside the routine with the behaviour as it was stored."""


def export_behaviour(artefact: Artefact, folder: Path) -> int:
    """Write a behaviour as a routine package; return how many calls it makes."""
    behaviour = behaviour_of(artefact)
    if behaviour.format < FORMAT:
        raise RoutineError(
            "the behaviour was recorded by an older em",
            place=id_of(artefact),
            fix="let the engine record the task again",
        )
    document, recordings = _in_order(_plain(behaviour.routine)), [*behaviour.recordings[-1:]]
    output = None
    if recordings:
        (newest,) = recordings
        document = {**document, "input_schema": of_input(newest.inputs)}
        calls = [call._replace(args=_plain(call.args)) for call in newest.calls]
        output = _plain(newest.output)
        recordings = [Recorded(inputs=newest.inputs, calls=calls, output=output)]
    write_package(Draft(document=document, recordings=recordings, output=output), folder)
    engine, _, key = artefact.name.rpartition("/")
    origin = {"engine": engine, "key": key, "behaviour": artefact.body}
    text = msgspec.json.format(msgspec.json.encode(origin), indent=2)
    (folder / ORIGIN).write_bytes(text + b"\n")
    return len(behaviour.steps)


_ORDER = ("id", "type", "description", "tool", "check", "value", "args", "save_as", "expect")


def _in_order(document: Json) -> Json:
    """Return a routine with its fields in the order in which people read them."""
    steps = [{name: step[name] for name in _ORDER if name in step} for step in document["steps"]]
    head = {name: document[name] for name in ("version", "name", "checks", "tools")}
    return {**head, **document, "steps": steps}


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
    for step in package.routine.steps:
        _refuse_other(step)
    origin = _read(folder / ORIGIN)
    if origin is not None:
        known = msgspec.convert(origin["behaviour"], Behaviour)
        key, engine = str(origin["key"]), engine or str(origin["engine"])
    else:
        given = task if task is not None else _read(folder / "input.json") or {}
        varying = list(given) if params is None else params
        made = make_task(given, sorted(tags), {name: given[name] for name in varying})
        known = Behaviour(task=made.template, tags=list(tags), params=list(varying), format=FORMAT)
        key = made.key
    if engine is None:
        raise InputError(
            "the package does not name an engine", place=str(folder), fix="name it with --engine"
        )
    document: Json = {"version": "1", **msgspec.to_builtins(package.routine)}
    behaviour = msgspec.structs.replace(known, routine=_with_types(document, known))
    if behaviour.returns != known.returns and known.answer.live is None:
        answer = Answer(form="typed" if known.answer.form == "typed" else "", free={})
        behaviour = msgspec.structs.replace(behaviour, answer=answer)
    drafts = trace_events(_recording(folder, behaviour), new_id())
    ids = new_ids(len(drafts) + 1)
    events = [
        msgspec.structs.replace(draft, id=event_id)
        for draft, event_id in zip(drafts, ids, strict=False)
    ]
    return Cache(store, engine).add(key, behaviour, events, ids)


def _refuse_other(step: Step) -> None:
    """Refuse a step that a behaviour can't have: it makes the same calls each time, each once."""
    has_own = isinstance(step, ToolStep | AssertStep | LetStep | ReturnStep)
    own = [step.when, step.for_each]
    if isinstance(step, ToolStep):
        own += [step.retry, step.timeout, step.checks, step.idempotency_key]
    if not has_own or any(one is not None for one in own) or step.on_error != "fail":
        raise RoutineError(
            "a behaviour can only have plain tool calls, asserts, named values and a return",
            place=f"step {step.id}",
            fix="run this routine with `em run`, or reduce the step to a plain tool call",
        )


def _with_types(document: Json, known: Behaviour) -> Json:
    """Return a routine with the tags of types where it has not changed what was exported."""
    before = {one["id"]: one for one in known.routine.get("steps", ())}
    steps = []
    for step in document["steps"]:
        old = before.get(step["id"], {})
        typed = {
            name: old[name]
            for name in ("args", "value")
            if name in old and _plain(old[name]) == step.get(name)
        }
        steps.append({**step, **typed})
    found = {**document, "steps": steps}
    if known.recordings and found.get("input_schema") == of_input(known.recordings[-1].inputs):
        found.pop("input_schema")
    return found


def _recording(folder: Path, behaviour: Behaviour) -> Trace:
    """Return the calls that a behaviour was recorded with, as a trace."""
    return Trace(
        app={"name": str(behaviour.routine.get("name", ""))},
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
