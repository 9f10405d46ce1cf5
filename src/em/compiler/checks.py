"""The checks of a plain routine: which there are, in words, and what a person strikes of them.

A check is an assert, or one thing that an `expect` says about a result. A person who knows that it
does not matter strikes it: the routine without it is a new version, and `struck` in it keeps the
check's text. A check that is about the same thing is not learnt again, also if more recordings
give it other values.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.evidence import ENOUGH_ALIKE
from em.compiler.example import Example
from em.compiler.routine_text import text_of
from em.errors import EmError, NotFound, UsageError
from em.log.event import Draft, routine_stream
from em.log.kinds import event_body
from em.runner.expressions.language import acting
from em.runner.package import (
    ROUTINE,
    current_version,
    keep_routine,
    parse_yaml,
    read_routine,
    texts_of,
)
from em.runner.routine import Program, Routine
from em.runner.run import Reason
from em.store.protocol import Store
from em.values.canonical import Json, short
from em.values.syntax_tree import expression_of

Parts = tuple[str, ...]
"""A place in a result: names of fields, ELEMENTS, and OTHERS at the end."""
ELEMENTS = "[]"
OTHERS = "*"
"""Names what is expected of a record or a list beside its fields, as how many there are."""
_PARTS = ("properties", "required", "items")
_PLAIN = ("type", "description")
_NUMBERED = re.compile(r"\[\d+\]")
_EXPECTED = re.compile(r"[^\s()\"']+ (?:is|has) ")
"""How the text of something that is expected begins: the place."""
_ABOUT = re.compile(r" \w+ …$")
_TYPES = {
    "string": "a text", "integer": "a whole number", "number": "a number", "object": "a record",
    "boolean": "true or false", "array": "a list", "null": "null",
}  # fmt: skip
_LIMITS = {
    "minimum": "at least {}", "exclusiveMinimum": "above {}", "maximum": "at most {}",
    "exclusiveMaximum": "below {}", "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters", "minItems": "of at least {} elements",
    "maxItems": "of at most {} elements", "minProperties": "of at least {} fields",
    "maxProperties": "of at most {} fields", "pattern": "that matches {}",
    "format": "in the format {}",
}  # fmt: skip


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a routine.

    id: how a person names it: the id of an assert, or the step with the field, `order.status`.
    text: the expression, or what is expected, as `struck` keeps it: `order.status is "pending"`.
    words: the same for a reader. place: where in the result, as `order.items[].name`; empty for an
    assert. held: in how many recordings it held. is_late: a write came before; if it fails then,
    the run fails, and says what was done.
    """

    id: str
    step_id: str
    text: str
    words: str
    place: str = ""
    held: str = ""
    is_late: bool = False


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """What a strike changed: the versions before and after."""

    words: str
    old: str
    new: str


@event_body("routine_struck")
class RoutineStruck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person struck checks of a routine, which became a new version.

    routine: the version that they saw. check: the ids, with commas between them.
    """

    routine: str
    check: str
    words: str
    reason: str = ""
    by: str = ""
    from_events: Sequence[str] = ()


# --- which there are ------------------------------------------------------------------------------


def is_plain(routine: Routine) -> bool:
    """Return whether a routine is of the plain form: its checks hand over."""
    return routine.checks == "hand_over"


def document_of(files: Mapping[str, str]) -> Json:
    """Return the document of a package: what its routine.yaml says."""
    document: Json = parse_yaml(files[ROUTINE].encode(), ROUTINE)
    return document


def checks_of(document: Json) -> list[Check]:
    """Return the checks of a routine, in the order of its text."""
    writes = {one["name"] for one in document.get("tools", ()) if one.get("effect") != "read"}
    found: list[Check] = []
    is_late = False
    for step in walked(document.get("steps", ())):
        is_late = is_late or step.get("effect") == "write" or step.get("tool") in writes
        found += (msgspec.structs.replace(one, is_late=is_late) for one in _of_step(step))
    return found


def walked(steps: Sequence[Json]) -> Iterator[Json]:
    """Yield the steps of a document, also those in blocks, in the order of the text."""
    for step in steps:
        yield step
        yield from walked(step.get("steps", ()))


def _of_step(step: Json) -> Iterator[Check]:
    own, held = step["id"], step.get("held", "")
    if step.get("type") == "assert":
        text = step["check"]
        yield Check(id=own, step_id=own, text=text, words=f"`{text}`", held=held)
    for parts, text in _expected(step.get("expect") or {}, ()):
        yield _of_part(step, parts, text)


def _of_part(step: Json, parts: Parts, text: str) -> Check:
    own, name = step["id"], step.get("save_as") or step["id"]
    is_beside = parts[-1:] == (OTHERS,)
    place = name + _path(parts[:-1] if is_beside else parts)
    said = f"{'has' if is_beside else 'is'} {text}"
    return Check(
        id=own + _path(parts),
        step_id=own,
        text=f"{place} {said}",
        words=f"`{place}` {said}",
        place=place,
        held=step.get("held", ""),
    )


def _path(parts: Parts) -> str:
    return "".join(ELEMENTS if one == ELEMENTS else f".{one}" for one in parts)


def _expected(schema: Json, parts: Parts) -> Iterator[tuple[Parts, str]]:
    """Yield what a schema says, each with its place: fields first, then what else is expected."""
    if not schema:
        return
    properties, inner = schema.get("properties", {}), schema.get("items")
    required = [name for name in schema.get("required", ()) if name not in properties]
    if not properties and not required and not isinstance(inner, dict):
        yield parts, value_in_words(schema)
        return
    for name, one in properties.items():
        yield from _expected(one, (*parts, name))
    for name in required:
        yield (*parts, name), "there"
    if isinstance(inner, dict):
        yield from _expected(inner, (*parts, ELEMENTS))
    others = {word: one for word, one in schema.items() if word not in (*_PARTS, *_PLAIN)}
    if others:
        yield (*parts, OTHERS), _limits(others).removeprefix("of ")


def value_in_words(schema: Json) -> str:
    """Say what a value must be: "pending", a number above 0."""
    if "const" in schema:
        return short(schema["const"])
    if isinstance(schema.get("enum"), list):
        return " or ".join(map(short, schema["enum"]))
    kinds = schema.get("type", [])
    named = [_TYPES.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    rest = {word: one for word, one in schema.items() if word not in _PLAIN}
    return " ".join(filter(None, [" or ".join(named) or "a value", _limits(rest)]))


def _limits(words: Json) -> str:
    return " and ".join(_limit(word, one) for word, one in words.items())


def _limit(word: str, value: Any) -> str:
    if value == 1 and word in ("minLength", "minItems"):
        return "that is not empty"
    return _LIMITS[word].format(value) if word in _LIMITS else f"that fits {short({word: value})}"


def checks_of_reason(document: Json, reason: Reason) -> list[Check]:
    """Return the checks that a hand-over names, each once; those that can be struck."""
    found: list[Check] = []
    for one in (reason, *reason.also):
        found += [each for each in _candidates(document, one) if each not in found][:1]
    return found


def _candidates(document: Json, reason: Reason) -> list[Check]:
    """Return the checks that a reason may be about: several only where fields are missing."""
    step_id = _NUMBERED.sub("", reason.step_id)
    found = [one for one in checks_of(document) if one.step_id == step_id]
    asserted = [one for one in found if not one.place]
    if asserted:
        return asserted[:1]
    place = _NUMBERED.sub("[]", reason.check)
    word = next(iter(reason.recorded), "") if isinstance(reason.recorded, dict) else ""
    if word == "required" and isinstance(reason.now, dict):
        missing = [name for name in reason.recorded[word] or () if name not in reason.now]
        places = [f"{place}.{name}" for name in missing]
        return [one for one in found if one.place in places]
    return [one for one in found if one.place == place][:1]


def to_strike(store: Store, ref: str, reason: Reason) -> tuple[str, list[Check]] | None:
    """Return the version in use, and the checks of it that made a run of a routine hand over."""
    try:
        artefact = current_version(store, ref.partition("@")[0])
        checks = checks_of_reason(document_of(texts_of(artefact)), reason)
    except EmError:  # forgotten since
        return None
    return (f"{artefact.name}@{artefact.version}", checks) if checks else None


# --- what is struck -------------------------------------------------------------------------------


def struck(document: Json, wanted: str) -> Json:
    """Return a routine without a check: its id, or that of a step for all that it expects."""
    found = [one for one in checks_of(document) if wanted in (one.id, one.step_id)]
    below = [one for one in checks_of(document) if _is_under(one.id, wanted)]
    if not found and not below:
        known = ", ".join(one.id for one in checks_of(document)) or "none"
        raise NotFound(
            f"there is no check {wanted[:60]!r} in {document.get('name')}",
            place=wanted[:60],
            fix=f"name one of its checks: {known[:600]}",
        )
    is_whole = len(found) != 1 or found[0].id != wanted
    texts = [f"{_common(found or below, wanted)} is as recorded"] if is_whole else [found[0].text]
    return with_struck(document, texts)


def _is_under(one: str, wanted: str) -> bool:
    return one.startswith((f"{wanted}.", f"{wanted}["))


def _common(found: Sequence[Check], wanted: str) -> str:
    """Return the place in the result that an id of several checks names."""
    one = found[0]
    name = re.split(r"[.\[]", one.place, maxsplit=1)[0]
    return name + wanted.removeprefix(one.step_id)


def with_struck(document: Json, texts: Sequence[str]) -> Json:
    """Return a routine without the checks that these texts are about; it keeps the texts."""
    if not texts:
        return document
    about = {*map(_about, texts)}
    rest = {name: one for name, one in document.items() if name not in ("struck", "steps")}
    known = [one for one in document.get("struck", ()) if one not in texts]
    return {**rest, "struck": [*known, *texts], "steps": _kept(document["steps"], texts, about)}


def _kept(steps: Sequence[Json], texts: Sequence[str], about: set[str]) -> list[Json]:
    found = []
    for step in steps:
        if step.get("type") == "assert" and _about(step["check"]) in about:
            continue
        made = dict(step)
        if "steps" in step:
            made["steps"] = _kept(step["steps"], texts, about)
        for parts, text in _expected(step.get("expect") or {}, ()):
            if _is_struck(step, parts, text, texts):
                made["expect"] = _narrowed(made["expect"], parts)
        if f"{step.get('save_as') or step['id']} is as recorded" in texts:
            made["expect"] = {}
        if "expect" in step and not made["expect"]:
            made = {name: one for name, one in made.items() if name not in ("expect", "held")}
        found.append(made)
    return found


def _is_struck(step: Json, parts: Parts, text: str, texts: Sequence[str]) -> bool:
    """Return whether a text is about the place of a check, or about one that holds it."""
    check = _of_part(step, parts, text)
    own = check.text.removesuffix(text)
    name = step.get("save_as") or step["id"]
    whole = [f"{name}{_path(parts[:end])} is as recorded" for end in range(len(parts) + 1)]
    return any(one.startswith(own) or one in whole for one in texts)


def _narrowed(schema: Json, parts: Parts) -> Json:
    """Return a schema without what it says at a place; an empty one if nothing is left."""
    if not parts:
        return {}
    (first, *rest), made = parts, dict(schema)
    if first == OTHERS and not rest and OTHERS not in schema.get("properties", {}):
        return {word: one for word, one in schema.items() if word in (*_PARTS, *_PLAIN)}
    if first == ELEMENTS:
        made["items"] = _narrowed(schema["items"], tuple(rest))
    else:
        fields = dict(schema.get("properties", {}))
        fields[first] = _narrowed(fields.get(first, {}), tuple(rest))
        made["properties"] = {name: one for name, one in fields.items() if one}
        if not rest:
            made["required"] = [one for one in schema.get("required", ()) if one != first]
    return {word: one for word, one in made.items() if one or word not in _PARTS}


def _about(text: str) -> str:
    """Return an expression without the recorded values that it compares something with."""
    try:
        tree = expression_of(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and _is_value(tree.comparators[0]):
        operator = tree.ops[0]
        sign = "is" if isinstance(operator, ast.Eq | ast.In) else type(operator).__name__
        return f"{ast.unparse(tree.left)} {sign} …"
    return ast.unparse(tree)


def general(texts: Sequence[str]) -> list[str]:
    """Return what struck checks were about, without the values of the recordings they came from.

    A routine that was learnt from others must not hold those. A text that may still have one is
    left out, so that its check is learnt again.
    """
    return [*dict.fromkeys(filter(None, map(_general, texts)))]


def _general(text: str) -> str:
    if text.endswith(" is as recorded"):
        return text
    expected = _EXPECTED.match(text)
    if expected:
        return f"{expected[0]}…"
    about = _about(text)
    try:
        tree = expression_of(_ABOUT.sub("", about))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    paths = {id(one) for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in paths:
            return ""
    return about


def _is_value(node: ast.AST) -> bool:
    try:
        ast.literal_eval(ast.unparse(node))
    except (ValueError, SyntaxError):
        return False
    return True


# --- in a memory ----------------------------------------------------------------------------------


def strike(
    store: Store, ref: str, checks: Sequence[str], *, reason: str = "", by: str = ""
) -> Strike:
    """Store a routine without some checks as a new version, and record who struck them.

    Only the version that the name means can be changed: otherwise a newer change would be lost.
    """
    name = ref.partition("@")[0]
    stream = routine_stream(name)
    head = store.head(stream)[0]
    artefact = current_version(store, name)
    old, files = f"{name}@{artefact.version}", texts_of(artefact)
    if ref not in (name, old):
        raise UsageError(f"{ref} is not the version in use", place=ref, fix=f"change {old}")
    document = document_of(files)
    if not is_plain(read_routine(document, old)):
        raise UsageError(
            "this routine does not say `checks: hand_over`",
            place=old,
            fix="change its routine.yaml",
        )
    made = document
    for check in dict.fromkeys(checks):
        made = struck(made, check)
    if made is document:
        raise UsageError(
            "no check is named", place=old, fix="name one that `em routine show` lists"
        )
    routine = read_routine(made, old)
    Program(routine)  # raises if it could not run
    text = text_of(routine, files[ROUTINE])
    words = f"struck: {'; '.join(made['struck'][-len(checks) :])}"
    body = RoutineStruck(
        routine=old, check=", ".join(checks), words=words, reason=reason, by=by,
        from_events=artefact.from_events,
    )  # fmt: skip
    kept = keep_routine(
        store,
        {**files, ROUTINE: text},
        artefact.from_events,
        retired=artefact.retired_at is not None,
        note=Draft(stream=stream, kind="routine_struck", body=msgspec.to_builtins(body)),
        expected_pos={stream: head},
    )
    return Strike(words=words, old=old, new=kept.ref)


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
