"""The outline of a plain routine: its inputs, checks and constants, as a person reads them."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from em.compiler.checks import Check, checks_of, value_in_words, walked
from em.compiler.evidence import ENOUGH_ALIKE
from em.compiler.example import Example
from em.runner.expressions.language import acting
from em.values.canonical import Json, short


class Input(msgspec.Struct, frozen=True):
    """An input. looks: what kind of value it is, in words."""

    name: str
    looks: str
    required: bool
    description: str = ""


class Constant(msgspec.Struct, frozen=True):
    """An argument that is the same in every run. place: the step with the argument."""

    place: str
    value: Any

    @property
    def argument(self) -> str:
        """The name of the argument that it stands in."""
        return self.place.partition(".")[2].partition(".")[0].partition("[")[0]

    def __str__(self) -> str:
        return f"{self.place} is always {short(self.value)}"


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What a person looks at before they use a routine.

    alternatives: sets of inputs of which one must be given. struck: checks that a person struck.
    """

    inputs: Sequence[Input]
    alternatives: Sequence[Sequence[str]]
    checks: Sequence[Check]
    constants: Sequence[Constant]
    struck: Sequence[str]


def outline_of(document: Json) -> Outline:
    """Return the outline of a routine."""
    schema = document.get("input_schema") or {}
    required = schema.get("required", ())
    return Outline(
        inputs=[
            Input(name, value_in_words(one), name in required, one.get("description", ""))
            for name, one in schema.get("properties", {}).items()
        ],
        alternatives=[one["required"] for one in schema.get("anyOf", ()) if "required" in one],
        checks=checks_of(document),
        constants=[
            Constant(f"{step['id']}.{path}", value)
            for step in walked(document.get("steps", ()))
            for name, one in step.get("args", {}).items()
            for path, value in _constants(one, name)
        ],
        struck=document.get("struck", []),
    )


def open_constants(document: Json, recordings: int) -> list[Constant]:
    """Return the constants that too few recordings show; not those that a person wanted."""
    if recordings >= ENOUGH_ALIKE:
        return []
    wanted = {name.rpartition(".")[2] for name in document.get("review", {}).get("constants", ())}
    return [one for one in outline_of(document).constants if one.argument not in wanted]


def open_values(document: Json, asked: Sequence[str], examples: Sequence[Example]) -> list[str]:
    """Return what recordings leave open.

    These are constants that few show, inputs that nothing explains, and reads that nothing uses.
    """
    constants = (one.place for one in open_constants(document, len(examples)))
    return [*constants, *asked, *unused_reads(document, examples)]


def unused_reads(document: Json, examples: Sequence[Example]) -> list[str]:
    """Return what is read before a write though no step uses it, if it may limit the write.

    What holds a number or a date may be a limit or the time: recordings don't show which.
    """
    steps = [{**one, "steps": ()} for one in walked(document.get("steps", ()))]
    writes = [number for number, one in enumerate(steps) if one.get("effect") == "write"]
    before = steps[: max(writes, default=0)]
    used: set[str] = set()
    found = None
    while found != used:
        found = {*used}
        for step in steps:
            if step["type"] != "let" or step["save_as"] in used:
                used |= {*_NAME.findall(json.dumps([*acting(step)]))}
    return [
        f"what {step['tool']} is read for"
        for step in before
        if step["type"] == "tool.call" and step.get("save_as", "") not in used
        if any(
            _has_digits(read.result) for one in examples for _, read in one.by_tool[step["tool"]]
        )
    ]


_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def _has_digits(value: Any) -> bool:
    return any(map(str.isdigit, json.dumps(value)))


def _constants(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values that no expression makes, each with its place."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _constants(one, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield from _constants(one, f"{path}[{number}]")
    elif not isinstance(value, str) or "{{" not in value:
        yield path, value
