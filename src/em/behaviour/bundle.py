"""Bundle: what a behaviour teaches, exported as a routine package."""

from pathlib import Path
from typing import Any

from em.behaviour.cache import behaviour_of, taught_of
from em.behaviour.codec import TAG
from em.behaviour.lesson import Recording
from em.compiler.checks import walked
from em.compiler.draft import Draft, Recorded, write_package
from em.store import Store
from em.store.protocol import Artefact
from em.values.json_schema import of_input


def export_behaviour(store: Store, artefact: Artefact, folder: Path) -> int:
    """Write a behaviour as a routine package; return how many calls it makes."""
    behaviour, taught = behaviour_of(artefact), taught_of(store, artefact)
    recorded = Recording.of(behaviour)
    names = taught.routine["input_schema"].get("properties", {})
    inputs = {name: one for name, one in recorded.inputs.items() if name in names} | taught.given
    document = _plain(taught.routine) | {"input_schema": of_input(inputs)}
    for step in walked(document["steps"]):
        seen = [one for one in behaviour.steps if one.tool == step.get("tool")]
        whats = [what for what in ("pre", "post") if any(getattr(one, what) for one in seen)]
        notes = [f"the {what}-check of this call is not part of the routine" for what in whats]
        if notes:
            step["description"] = "; ".join(notes)
    calls = [call._replace(args=_plain(call.args)) for call in recorded.calls]
    own = Recorded(inputs=inputs, calls=calls, output=_plain(recorded.output))
    write_package(Draft(document=document, recordings=[own], output=own.output), folder)
    return len(taught.calls)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON, without tags of types."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _plain(item) for key, item in value.items()}
    return _plain(value["items"]) if "items" in value else value["text"]
