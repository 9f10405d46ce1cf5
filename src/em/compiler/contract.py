"""Contract: what a tool declares of an argument that an input goes into as it is.

Few recordings show few values: limits that are learnt from them are a guess. Where the tool says
what it takes, its word counts: members of an enumeration, limits of numbers, forms of texts. An
input that decides anything else of the routine keeps its learnt limits, since the tool knows only
what it takes, not what else must be done then.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from em.compiler.checks import walked
from em.runner.expressions.language import acting
from em.values.canonical import Json, same
from em.values.json_schema import problems, properties_of, schema_problem
from em.values.leaves import texts

_WHOLE = re.compile(r"\{\{ ([A-Za-z_]\w*)(?: if given\(\1\) else omitted)? \}\}")
_WORD = re.compile(r"[A-Za-z_]\w*")
_LOOKS = ("enum", "pattern", "format", "minLength", "minimum", "maximum", "exclusiveMinimum")
"""Limits that recordings suggest of a single value."""


def with_contracts(
    schema: Json, steps: Sequence[Json], tools: Mapping[str, Json], recorded: Sequence[Json]
) -> Json:
    """Return a schema of inputs with what tools declare of the arguments that inputs go into.

    tools: by name, the JSON Schema of each declared parameter. recorded: inputs of the recordings;
    a declaration that they don't fit is left.
    """
    own, declared = properties_of(schema), _declared(steps, tools)
    made = {}
    for name, one in own.items():
        values = [each[name] for each in recorded if name in each]
        joined = _joined(one, declared[name]) if name in declared else one
        is_true = schema_problem(joined) is None and not any(
            any(problems(joined, value)) for value in values
        )
        made[name] = joined if is_true else one
    return {**schema, "properties": made} if made != own else schema


def _declared(steps: Sequence[Json], tools: Mapping[str, Json]) -> Json:
    """Return what is declared of inputs that do nothing but go into arguments."""
    uses: dict[str, list[Any]] = defaultdict(list)
    elsewhere: set[str] = set()
    for step in walked(steps):
        parameters = tools.get(step.get("tool", ""), {})
        args = step.get("args", {})
        for name, value in args.items():
            whole = _WHOLE.fullmatch(value) if isinstance(value, str) else None
            if whole:
                uses[whole[1]].append(parameters.get(name))
        elsewhere.update(_words_elsewhere(step))
    return {
        name: found[0]
        for name, found in uses.items()
        if name not in elsewhere and isinstance(found[0], dict)
        if all(same(one, found[0]) for one in found)
    }


def _words_elsewhere(step: Json) -> Iterator[str]:
    """Yield the words of a step but for inputs that are an argument; a check decides nothing."""
    for text in texts([*acting(step)]) if step.get("type") != "assert" else ():
        if not _WHOLE.fullmatch(text):
            yield from _WORD.findall(text)


def _joined(learnt: Any, declared: Any) -> Any:
    """Return what was learnt of a value with what is declared of it."""
    if not isinstance(learnt, dict) or not isinstance(declared, dict):
        return learnt
    made = dict(learnt)
    if made.get("type") == declared.get("type") == "string" and _is_free(made, declared):
        made = {name: one for name, one in made.items() if name != "enum"} | {"minLength": 1}
    if declared.keys() & {"enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "format"}:
        made = {name: one for name, one in made.items() if name not in _LOOKS}
    if (made.get("type"), declared.get("type")) == ("integer", "number"):
        made["type"] = "number"
    for word, one in declared.items():
        if word == "items":
            made["items"] = _joined(made.get("items", {}), one)
        elif word == "properties" and isinstance(one, dict):
            inner = properties_of(made)
            known = {name: _joined(inner.get(name, {}), each) for name, each in one.items()}
            made["properties"] = {**inner, **known}
        elif word not in ("type", "minItems"):
            made[word] = one
    return made


def _is_free(learnt: Json, declared: Json) -> bool:
    """Return whether recorded words are names, of which a described text may have any other."""
    said = str(declared.get("description", "")).casefold()
    is_limited = declared.keys() & {"enum", "pattern", "format"}
    words = [str(one) for one in learnt.get("enum", ())]
    is_listed = all(one.casefold() in said for one in words)
    has_names = any(one != one.casefold() for one in words)
    return bool(said) and has_names and not is_limited and not is_listed
