"""Requirements: what a routine needs before it acts and what must come of it, in plain words."""

from typing import Any

from em.runner.expressions.words import check_in_words, in_words
from em.runner.routine import AssertStep, ForEachStep, Step
from em.values.canonical import short


def required_by(step: Step, field: str) -> list[str]:
    """Say what a field of a step requires, or when it lets the step be made at all."""
    if field == "check" and isinstance(step, AssertStep):
        return [check_in_words(step.check)]
    if field == "expect":
        return [f"afterwards {one}" for one in result_in_words(step)]
    if field == "when" and step.when is not None:
        return [check_in_words(step.when)]
    if field == "over" and isinstance(step, ForEachStep):
        lists = (f"`{name}` of {in_words(text)}" for name, text in step.over.items())
        return [f"for each {' and '.join(lists)}"]
    if field == "for_each" and step.for_each is not None:
        return [f"for each `{step.as_}` of {in_words(str(step.for_each))}"]
    return []


def result_in_words(step: Step) -> list[str]:
    """Say what the result of a step must be like."""
    if step.expect is None:
        return []
    return [f"{one}{_held(step)}" for one in schema_in_words(step.save_as or step.id, step.expect)]


def _held(step: Step) -> str:
    return f" (in {step.held} recordings)" if step.held else ""


def schema_in_words(name: str, schema: Any) -> list[str]:
    """Say what a value must be like: `order` has status; `order.status` is "pending"."""
    if not isinstance(schema, dict):
        return []
    found, rest = [], dict(schema)
    required = rest.pop("required", None)
    if isinstance(required, list) and required:
        found.append(f"`{name}` has {', '.join(map(str, required))}")
    if "const" in rest:
        found.append(f"`{name}` is {short(rest.pop('const'))}")
    if isinstance(rest.get("enum"), list):
        found.append(f"`{name}` is {' or '.join(map(short, rest.pop('enum')))}")
    properties = rest.pop("properties", None)
    if isinstance(properties, dict):
        for field, one in properties.items():
            found += schema_in_words(f"{name}.{field}", one)
    if isinstance(rest.get("items"), dict):
        found += schema_in_words(f"{name}[]", rest.pop("items"))
    if rest and rest != {"type": "object"}:
        found.append(f"`{name}` fits {short(rest)}")
    return found
