"""Bundle: a behaviour exported as a routine package. It is a routine with captures already."""

from pathlib import Path
from typing import Any

from em.behaviour.behaviour import FORMAT
from em.behaviour.cache import behaviour_of, id_of
from em.behaviour.codec import TAG
from em.compiler.draft import Draft, Recorded
from em.compiler.package_files import write_package
from em.errors import RoutineError
from em.store.protocol import Artefact
from em.values.json_schema import of_input


def export_behaviour(artefact: Artefact, folder: Path) -> int:
    """Write a behaviour as a routine package; return how many calls it makes."""
    behaviour = behaviour_of(artefact)
    if behaviour.format < FORMAT:
        raise RoutineError(
            "the behaviour was recorded by an older em",
            place=id_of(artefact),
            fix="let the engine record the task again",
        )
    document, recordings = _plain(behaviour.routine), [*behaviour.recordings[-1:]]
    output = None
    if recordings:
        (newest,) = recordings
        document = {**document, "input_schema": of_input(newest.inputs)}
        calls = [call._replace(args=_plain(call.args)) for call in newest.calls]
        output = _plain(newest.output)
        recordings = [Recorded(inputs=newest.inputs, calls=calls, output=output)]
    write_package(Draft(document=document, recordings=recordings, output=output), folder)
    return len(behaviour.steps)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON, without tags of types."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _plain(item) for key, item in value.items()}
    return _plain(value["items"]) if "items" in value else value["text"]
