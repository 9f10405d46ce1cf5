"""Requirements: what a routine needs before it acts and what must come of it, in plain words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.runner.expressions.words import check_in_words, in_words
from em.runner.remedies import Rule, facts_in_words
from em.runner.routine import (
    Asked,
    AssertStep,
    Decided,
    ForEachStep,
    LetStep,
    PlanStep,
    Routine,
    RulesStep,
    Step,
    ToolStep,
    UdfStep,
)
from em.runner.task_plan import Effect, Slot
from em.values.canonical import short


class Requirement(NamedTuple):
    """What must be so before and after one step, in words.

    agree: what must agree. hold: what must hold. expect: what must be so of the call's result.
    when: in which cases the step is made at all.
    """

    step_id: str
    agree: list[str]
    hold: list[str]
    expect: list[str]
    when: Sequence[str] = ()


class AskedFor(NamedTuple):
    """An input that a run with other inputs asks for."""

    name: str
    recorded: str
    why: str


def requirements(routine: Routine) -> Iterator[Requirement]:
    """Yield what must be so before and after each step that requires something."""
    for step in routine.all_steps:
        if isinstance(step, ToolStep | UdfStep | AssertStep | LetStep | ForEachStep):
            found = _of_step(step)
            if any(found[1:]):
                yield found
        elif isinstance(step, PlanStep):
            for name, effect in step.effects.items():
                said = [_said(slot, how) for slot, how in effect.slots.items()]
                must = [_guard_in_words(text, effect.reasons) for text in effect.guards]
                words = effect.words if step.form is None else step.form.words
                asked = [f"the request asks for it, with a word such as {', '.join(words)}"]
                yield Requirement(name, said, must, expected_in_words(effect), asked)
        elif isinstance(step, RulesStep):
            for name, rule in step.rules.items():
                reasons = [" and ".join(facts_in_words(when)) for when in rule.when]
                changed = [f"{symptom} must be different then" for symptom in rule.cures]
                hold = [*_also_so(rule), *_arguments(rule)]
                yield Requirement(name, [], hold, changed, reasons)
            yield _of_rules(step)


def _of_step(step: Step) -> Requirement:
    """Say what must be so before and after one step."""
    agree = [
        f"{place} must also be {', and '.join(map(in_words, texts))}"
        for place, texts in step.agree.items()
    ]
    hold = [_guard_in_words(text, step.reasons) for text in step.guards]
    if isinstance(step, AssertStep):
        hold.append(f"{check_in_words(step.check)}{_held(step)}")
    return Requirement(step.id, agree, hold, result_in_words(step), [*_cases(step)])


def result_in_words(step: Step) -> list[str]:
    """Say what the result of a step must be like."""
    words = [check_in_words(text) for text in step.expects]
    if step.expect is not None:
        name = step.save_as or step.id
        words += [f"{one}{_held(step)}" for one in schema_in_words(name, step.expect)]
    return words


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


def _cases(step: Step) -> Iterator[str]:
    """Say in which cases a step is made, if not once in every run."""
    if step.when is not None:
        yield check_in_words(step.when)
    if isinstance(step, ForEachStep):
        lists = (f"`{name}` of {in_words(text)}" for name, text in step.over.items())
        yield f"for each {' and '.join(lists)}"
    if step.for_each is not None:
        yield f"for each `{step.as_}` of {in_words(str(step.for_each))}"


def _also_so(rule: Rule) -> Iterator[str]:
    """Say what else was so whenever a fix was made: if it is not, nobody knows what to do."""
    reasons = {name for one in rule.when for name in one}
    given = {name: value for name, value in rule.given.items() if name not in reasons}
    yield from facts_in_words(given)
    if rule.after:
        yield f"{', '.join(rule.after)} must not be needed first"
    yield f"it was not made {'before' if rule.most == 1 else f'{rule.most} times'} in this run"


def _of_rules(step: RulesStep) -> Requirement:
    """Say what must be so for all rules together."""
    looks = [name for name in step.looks if name not in step.goal]
    hold = [f"what {', '.join(looks)} show{'s' if len(looks) == 1 else ''} is known from traces"]
    hold += [f"not both: {' and '.join(facts_in_words(pair))}" for pair in step.apart]
    goal = [f"what {', '.join(step.goal)} shows is known from traces"] if step.goal else []
    goal += [f"{name} is {' or '.join(map(short, known))}" for name, known in step.healthy.items()]
    return Requirement(step.id, [], hold, goal)


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
    for step in routine.all_steps:
        if isinstance(step, PlanStep):
            for name, effect in step.effects.items():
                shown = msgspec.structs.replace(effect, expects=())
                yield from (f"after {name}: {words}" for words in expected_in_words(shown))
        elif isinstance(step, RulesStep):
            yield from (f"at the end: {name} must show a state that is known" for name in step.goal)
        elif isinstance(step, ToolStep) and step.tool in reads:
            yield from (f"{step.id}: {words}" for words in result_in_words(step))


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
    if slot.same:
        found = f"{name} is the same as {slot.same}"
    elif slot.of:
        found = f"{name} must be in {in_words(slot.records)}, one for each of {slot.of}"
    elif slot.records:
        found = f"{name} must be in {in_words(slot.records)}, and the request must say which"
    elif slot.values:
        found = f"the request must say {name}: {', '.join(map(short, slot.values))}"
    elif slot.default:
        found = f"{name} is {', and '.join(map(in_words, slot.default))}"
    else:
        found = f"the request must say {name}, such as {', '.join(map(short, slot.examples[:2]))}"
    known = ", or ".join(f"`{way}`" for way in slot.earlier)
    return f"{found}, or an earlier call: {known}" if known else found


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


def decided_in_words(decided: Decided) -> str:
    """Say what a person decided about a value or a check."""
    if decided.drop:
        return f"before {decided.of} it need not be so: {check_in_words(decided.drop)}"
    if decided.ignore:
        return f"{decided.of} plays no part in what is done"
    return f"{decided.of} is {in_words(decided.take)}"
