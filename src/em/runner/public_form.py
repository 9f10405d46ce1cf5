"""Public form: a routine as others see it, without personal data of its recordings.

MCP tools, skills, the tools of other agents and the headers of scripts show a routine to people who
may not see the traces. Its steps, and the values that several recordings had in common, stay. Of
recorded examples only the shape is left.
"""

from typing import Any

from em.runner.routine import Routine
from em.values.canonical import Json
from em.values.json_schema import examples_of, properties_of
from em.values.leaves import shapes, without_personal_data


def public_form(routine: Routine, *, is_shared: bool = False) -> Routine:
    """Return a routine that can be given to others, and runs.

    is_shared: its words are those of several traces, not of one person.
    """
    return Routine(
        name=routine.name,
        description=description_of(routine),
        checks=routine.checks,
        tools=routine.tools,
        input_schema=described_input(routine) or None,
        # The words of one person's request may be personal.
        requests=routine.requests if is_shared else (),
        output_schema=routine.output_schema,
        secrets=routine.secrets,
        steps=routine.steps,
    )


def described_input(routine: Routine) -> Json:
    """Return the schema of the input for whoever fills it in.

    It shows what recorded values look like and not the values, since they may be personal data.
    """
    schema = routine.input_schema or {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    return {**schema, "properties": {name: _described(one) for name, one in properties.items()}}


def _described(one: Any) -> Any:
    """Return an input of the schema with the shapes of recorded values."""
    if not isinstance(one, dict) or "examples" not in one:
        return one
    examples = shapes(examples_of(one))
    rest = {name: value for name, value in one.items() if name != "examples"}
    return {**rest, "examples": examples} if examples else rest


def description_of(routine: Routine) -> str:
    """Return what a routine is for, with recorded values as `{name}`: they may be personal."""
    properties = properties_of(routine.input_schema)
    known = {name: one.get("examples") for name, one in properties.items()}
    return without_personal_data(routine.description, known)
