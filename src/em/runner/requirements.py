"""Requirements: what a routine needs before it acts and what must come of it, in plain words."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from em.runner.expressions.words import check_in_words, in_words, request_in_words
from em.runner.remedies import Rule, facts_in_words
from em.runner.routine import Asked, PlanStep, Routine, RulesStep, ToolStep, UdfStep
from em.runner.task_plan import Effect, Slot
from em.values.canonical import Json, short
from em.values.example_shape import shapes, without_personal_data
from em.values.json_schema import kind_of


class Requirement(NamedTuple):
    """What must be so before and after one step, in words.

    agree: what must agree. hold: what must hold. expect: what must be so of the call's result.
    """

    step_id: str
    agree: list[str]
    hold: list[str]
    expect: list[str]


class AskedFor(NamedTuple):
    """An input that a run with other inputs asks for."""

    name: str
    recorded: str
    why: str


def requirements(routine: Routine) -> Iterator[Requirement]:
    """Yield what must be so before and after each step that requires something."""
    for step in routine.steps:
        if isinstance(step, ToolStep | UdfStep) and (step.agree or step.guards or step.expects):
            agree = [
                f"{place} must also be {', and '.join(map(in_words, texts))}"
                for place, texts in step.agree.items()
            ]
            hold = [_guard_in_words(text, step.reasons) for text in step.guards]
            yield Requirement(step.id, agree, hold, [*map(check_in_words, step.expects)])
        elif isinstance(step, PlanStep):
            for name, effect in step.effects.items():
                said = [_said(slot, how) for slot, how in effect.slots.items()]
                must = [_guard_in_words(text, effect.reasons) for text in effect.guards]
                yield Requirement(name, said, must, expected_in_words(effect))
        elif isinstance(step, RulesStep):
            for name, rule in step.rules.items():
                reasons = [" and ".join(facts_in_words(when)) for when in rule.when]
                changed = [f"{symptom} must be different then" for symptom in rule.cures]
                yield Requirement(name, [], [*reasons, *_arguments(rule)], changed)


def _guard_in_words(text: str, reasons: Mapping[str, str]) -> str:
    error = reasons.get(text)
    return check_in_words(text) + (f" (otherwise it failed: {error})" if error else "")


def expected_in_words(effect: Effect) -> list[str]:
    """Say what an effect of a plan must return, and what reads must show after it."""
    return [
        *map(check_in_words, effect.expects),
        *(
            f"{check.tool} is called, and {check_in_words(text)}"
            for check in effect.checks
            for text in check.shows
        ),
    ]


def goal_checks(routine: Routine) -> Iterator[str]:
    """Say what is looked at after effects, and what it must show."""
    reads = {tool.name for tool in routine.tools if tool.known_effect == "read"}
    for step in routine.steps:
        if isinstance(step, PlanStep):
            for name, effect in step.effects.items():
                shown = msgspec.structs.replace(effect, expects=())
                yield from (f"after {name}: {words}" for words in expected_in_words(shown))
        elif isinstance(step, RulesStep):
            yield from (f"at the end: {name} must show a state that is known" for name in step.goal)
        elif isinstance(step, ToolStep) and step.tool in reads:
            yield from (f"{step.id}: {check_in_words(text)}" for text in step.expects)


def _arguments(rule: Rule) -> list[str]:
    """Say where each argument of a fix comes from; all of it must agree."""
    said = [
        f"{name} is {', and '.join(map(str, origins)) or 'known'}"
        for call in rule.calls
        for name, origins in call.args.items()
    ]
    return list(dict.fromkeys(said))


def _said(name: str, slot: Slot) -> str:
    """Say where a value of an effect comes from."""
    if slot.of:
        return f"{name} must be in {in_words(slot.records)}, one for each of {slot.of}"
    if slot.records:
        return f"{name} must be in {in_words(slot.records)}, and the request must say which"
    if slot.values:
        return f"the request must say {name}: {', '.join(map(short, slot.values))}"
    if slot.default:
        return f"{name} is {', and '.join(map(in_words, slot.default))}"
    return f"the request must say {name}, such as {', '.join(map(short, slot.examples[:2]))}"


def asked_for(routine: Routine) -> Iterator[AskedFor]:
    """Yield the inputs that a run asks for unless all inputs are the recorded ones."""
    for name, asked in routine.asks.items():
        yield AskedFor(name, short(asked.recorded), why_asked(asked))


def why_asked(asked: Asked) -> str:
    """Say in words why a run asks for an input."""
    if asked.is_unused:
        return "no step uses it, but it may have been a reason for what was done"
    known = [words for words in map(in_words, asked.candidates) if not words.startswith("always")]
    why = f"it may be {', or '.join(known)}" if known else "nothing recorded explains it"
    if not asked.others:
        return why
    return f"it was {', '.join(map(short, asked.others))} in other recordings; {why}"


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
        words = request_in_words(routine.request.template)
        notes[routine.request.input] = (
            f"The whole request in words. It was like: {without_personal_data(words, {})}"
        )
    few = {
        name: list(slot.values)
        for step in routine.steps
        if isinstance(step, PlanStep)
        for effect in step.effects.values()
        for name, slot in effect.slots.items()
    }
    schema = routine.input_schema or {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    described = {
        name: _described(one, notes.get(name, ""), few.get(name))
        for name, one in properties.items()
    }
    return {**schema, "properties": described}


def _looks(asked: Asked) -> str:
    found = shapes([asked.recorded, *asked.others])
    return short(found[0]) if found else f"a {kind_of(asked.recorded).get('type', 'null')}"


def _described(one: Any, note: str, few: list[Any] | None) -> Any:
    """Return a property as others see it; few: the recorded values of a learnt one."""
    if not isinstance(one, dict):
        return one
    described = {"description": note, **one} if note else dict(one)
    examples = described.pop("examples", [])
    if few is None:
        examples = shapes(examples)
    elif few and examples == few:
        # Several traces had each of them, so they are no secret of one.
        return {**described, "enum": few}
    return {**described, "examples": examples} if examples else described


def description_of(routine: Routine) -> str:
    """Return what a routine is for, with recorded values as `{name}`: they may be personal."""
    known = {name: asked.recorded for name, asked in routine.asks.items()}
    properties = (routine.input_schema or {}).get("properties")
    for name, one in properties.items() if isinstance(properties, dict) else ():
        if isinstance(one, dict):
            known.setdefault(name, one.get("examples"))
    return without_personal_data(routine.description, known)
