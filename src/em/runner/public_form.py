"""Public form: a routine as others see it, without personal data of its recordings.

MCP (tools and resources), skills, the tools of other agents and the headers of scripts show a
routine to people who may not see the traces. What several traces had in common, and what a run
compares or passes on as it is, stays. Of other recorded values only the shape is left, which is
what a run uses of them. Where a run would need the value itself, it asks: the public form never
acts where the routine does not.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.runner.agreement import names_in_expression
from em.runner.expressions.words import request_in_words
from em.runner.mentions import FUNCTION_WORDS, stem
from em.runner.routine import Asked, PlanStep, Routine, Step, ToolStep, UdfStep
from em.runner.sentences import words_in
from em.runner.task_plan import Effect, Form, Known, Slot, Wording
from em.values.canonical import Json, identical, short
from em.values.example_shape import blank, blanks, shapes, without_personal_data
from em.values.json_schema import examples_of, kind_of, properties_of
from em.values.syntax_tree import expression_of


def public_form(routine: Routine, *, is_shared: bool = False) -> Routine:
    """Return a routine that can be given to others. It runs, and asks more often.

    is_shared: its words are those of several traces, not of one person.
    """
    schema, few = routine.input_schema or {}, _few(routine)
    properties = properties_of(schema)
    if properties:
        shown = {name: _property(one, few.get(name)) for name, one in schema["properties"].items()}
        schema = {**schema, "properties": shown}
    request = routine.request
    if request is not None and not is_shared:
        template = _without_names(request.template, _names_in(routine))
        request = msgspec.structs.replace(request, template=without_personal_data(template, {}))
    return Routine(
        name=routine.name,
        description=description_of(routine, is_shared=is_shared),
        checks=routine.checks,
        # The words of one person's request may be personal.
        requests=routine.requests if is_shared else (),
        tools=routine.tools,
        input_schema=schema or None,
        output_schema=routine.output_schema,
        secrets=routine.secrets,
        request=request,
        asks={name: _asked(one) for name, one in routine.asks.items()},
        steps=[_step(step, properties, is_shared=is_shared) for step in routine.steps],
    )


def _property(one: Any, few: Sequence[Any] | None) -> Any:
    """Return an input of the schema with the shapes of recorded values."""
    if not isinstance(one, dict) or "examples" not in one:
        return one
    examples = examples_of(one) if few is not None else shapes(examples_of(one))
    rest = {name: value for name, value in one.items() if name != "examples"}
    return {**rest, "examples": examples} if examples else rest


def _asked(asked: Asked) -> Asked:
    """Return an input that is asked for on every run, since its recorded value is not there."""
    shown = [blank(one) for one in (asked.recorded, *asked.others)]
    candidates = [text for text in asked.candidates if names_in_expression(text)]
    return Asked(
        recorded=shown[0],
        candidates=candidates,
        is_unused=asked.is_unused,
        tasks=asked.tasks,
        others=shown[1:] or shown,
    )


_NAME = re.compile(r"(?<![\w{])[^\W\d_a-z][\w'’-]+")


def _names_in(routine: Routine) -> set[str]:
    """Return the names in the words of a recorded request: no beginnings, no words of its tools.

    If there are some, no words of others fit the request as a whole, and a run asks.
    """
    given = properties_of(routine.input_schema).values()
    is_recorded = routine.asks or any("examples" in one for one in given)
    if routine.request is None or not is_recorded:
        return set()  # somebody wrote it
    own = {stem(word) for tool in routine.called_tools for word in re.findall(r"[a-z]+", tool)}
    text = re.sub(r"\{\{.*?\}\}", "{}", routine.request.template)
    found = set()
    for name in _NAME.finditer(text):
        before, word = text[: name.start()].rstrip(" \"'([*-"), name[0].lower()
        is_start = not before or before[-1] in ".!?:;\n"
        if not is_start and word not in FUNCTION_WORDS and stem(word) not in own:
            found.add(name[0])
    return found


def _without_names(text: str, names: set[str]) -> str:
    return _NAME.sub(lambda name: blank(name[0]) if name[0] in names else name[0], text)


# --- steps ----------------------------------------------------------------------------------------


def _step(step: Step, properties: Mapping[str, Any], *, is_shared: bool) -> Step:
    if isinstance(step, ToolStep | UdfStep):
        guards = tuple(_guard(text, is_shared=is_shared) for text in step.guards)
        return msgspec.structs.replace(step, reasons={}, guards=guards)
    if not isinstance(step, PlanStep):
        return step
    form = None if step.form is None else _form(step.form)
    wording = _wording(step.wording)
    return msgspec.structs.replace(
        step,
        effects={
            name: _effect(one, form, wording, properties) for name, one in step.effects.items()
        },
        inputs={name: Known(examples=blanks(one.examples)) for name, one in step.inputs.items()},
        form=form,
        wording=wording,
    )


def _form(form: Form) -> Form:
    """Return a form without the words that only one task said."""
    once = set(form.once)
    harmless = [word for word in form.harmless if word not in once]
    return msgspec.structs.replace(form, harmless=harmless, once=())


def _wording(wording: Wording) -> Wording:
    """Return how requests were worded, without words that only one task said."""
    once = set(wording.once)
    return Wording(turns=[turn for turn in wording.turns if turn not in once])


def _effect(
    effect: Effect, form: Form | None, wording: Wording, properties: Mapping[str, Any]
) -> Effect:
    slots = {
        name: _slot(slot, form, wording, _shared(slot, properties.get(name)))
        for name, slot in effect.slots.items()
    }
    guards = [_guard(text, is_shared=True) for text in effect.guards]
    return msgspec.structs.replace(effect, slots=slots, guards=guards, reasons={})


def _guard(text: str, *, is_shared: bool) -> str:
    """Return a check without the words of read texts that only some traces had, such as names.

    is_shared: all recorded ones had the last words of the check, and not a single one.
    """
    if not text.startswith(("strange_text(", "strange_items(")):
        return text
    check = expression_of(text)
    call = check.left if isinstance(check, ast.Compare) else check
    if not isinstance(call, ast.Call):
        return text
    *first, _, always = map(ast.unparse, call.args)
    words = always if is_shared else "[]"
    return f"{ast.unparse(call.func)}({', '.join([*first, words, words])}) == none"


def _shared(slot: Slot, described: Any) -> list[Any]:
    """Return the values that several traces had, as the input schema shows them."""
    examples = described.get("examples", []) if isinstance(described, dict) else []
    if slot.many and len(examples) == 1 and isinstance(examples[0], list):
        (examples,) = examples
    return [one for one in slot.values if any(identical(one, other) for other in examples)]


def _slot(slot: Slot, form: Form | None, wording: Wording, shared: Sequence[Any]) -> Slot:
    """Return a value of an effect. If words can't be bound without what is left out, it is asked.

    A shape tells as much of an example as a run looks at: its form, its type and its first sign.
    """
    examples = blanks(slot.examples)
    if form is None:
        is_whole = len(shared) == len(slot.values)
        default = slot.default if is_whole else ()
        if slot.values and not shared:
            examples = []  # without values, anything that looks like an example would do
        return msgspec.structs.replace(slot, values=shared, examples=examples, default=default)
    known = {*map(stem, words_in(wording)), *form.words, *form.hints}
    is_open = (
        len(shared) == len(slot.values)
        and not slot.aliases
        and not slot.strange
        and not slot.means
        and all(_is_known(cue, known) for cue in slot.cues)
    )
    if is_open:
        return msgspec.structs.replace(slot, examples=examples)
    return msgspec.structs.replace(
        slot,
        values=(),
        examples=(),
        looks=(),
        cues=(),
        cued=True,
        aliases={},
        means={},
        strange=(),
        default=(),
    )


def _is_known(cue: str, known: set[str]) -> bool:
    words = re.findall(r"\w+", cue.lower())
    # A single letter stands before the digits of an id.
    return all(len(w) == 1 or w in FUNCTION_WORDS or stem(w) in known for w in words)


# --- descriptions ---------------------------------------------------------------------------------


def described_input(routine: Routine) -> Json:
    """Return the schema of the input for whoever fills it in, with what a run would ask for.

    It shows what recorded values look like and not the values, since they may be personal data.
    """
    notes = {
        name: f"Ask the user if they did not say it. It was like {_looks(asked)} when recorded"
        + (", and no step uses it." if asked.is_unused else ".")
        for name, asked in routine.asks.items()
    }
    if routine.request is not None:
        words = _without_names(request_in_words(routine.request.template), _names_in(routine))
        notes[routine.request.input] = (
            f"The whole request in words. It was like: {without_personal_data(words, {})}"
        )
    few = _few(routine)
    schema = routine.input_schema or {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    described = {
        name: _described(one, notes.get(name, ""), few.get(name))
        for name, one in properties.items()
    }
    return {**schema, "properties": described}


def _few(routine: Routine) -> dict[str, list[Any]]:
    """Return the recorded values of learnt inputs; their examples are public already."""
    return {
        name: list(slot.values)
        for step in routine.steps
        if isinstance(step, PlanStep)
        for effect in step.effects.values()
        for name, slot in effect.slots.items()
    }


def _looks(asked: Asked) -> str:
    found = shapes([asked.recorded, *asked.others])
    return short(found[0]) if found else f"a {kind_of(asked.recorded).get('type', 'null')}"


def _described(one: Any, note: str, few: list[Any] | None) -> Any:
    """Return a property as others see it; few: the recorded values of a learnt one."""
    if not isinstance(one, dict):
        return one
    described = {"description": note, **one} if note else dict(one)
    described.pop("examples", None)
    examples = examples_of(one)
    if few is None:
        examples = shapes(examples)
    elif few and examples == few:
        # Several traces had each of them, so they are no secret of one.
        return {**described, "enum": few}
    return {**described, "examples": examples} if examples else described


def description_of(routine: Routine, *, is_shared: bool = False) -> str:
    """Return what a routine is for, with recorded values as `{name}`: they may be personal.

    is_shared: its words are those of several traces, not of one person.
    """
    known = {name: asked.recorded for name, asked in routine.asks.items()}
    for name, one in properties_of(routine.input_schema).items():
        known.setdefault(name, one.get("examples"))
    text = without_personal_data(routine.description, known)
    return text if is_shared else _without_names(text, _names_in(routine))
