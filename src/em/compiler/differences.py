"""Differences between traces that went the same way: what differs is not a constant.

Each trace shows what may explain a value. An explanation that another trace refutes is not acted
on: one that holds in all of them takes its place, and where there is none, the value is asked for
with the candidates that are left. Traces that were asked for different things, and did the same
whatever was asked, make no routine.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from em.compiler.calls import Names, identifier, result_name
from em.compiler.draft import Draft, Recorded, names_used
from em.compiler.evidence import ENOUGH, of_choice, of_match
from em.compiler.sources import places, quoted, text_key
from em.errors import EmError, RoutineError
from em.runner.agreement import (
    names_in_expression,
    part_at,
    place_parts,
    single_places,
    with_answers,
)
from em.runner.expressions.functions import FUNCTIONS, equal
from em.runner.expressions.language import compile_expression, compile_value
from em.runner.routine import Asked, Routine, Step, ToolStep, UdfStep
from em.values.canonical import Json, identical
from em.values.json_schema import of_input, titles_of
from em.values.leaves import leaves

MOST_SHOWN = 3
"""Values of other traces that a question shows."""
_BARE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
"""Matches an argument that is just a name."""
_WHOLE = re.compile(r"\{\{\s*((?:(?!\}\}).)*?)\s*\}\}", re.DOTALL)
"""Matches an argument that is just one expression."""


def told_apart(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft without the explanations that other traces of the task refute.

    others: drafts that make the same calls in the same order.
    """
    routine, apart = draft.routine, _Differences(draft, others)
    steps = [
        apart.step(step) if isinstance(step, ToolStep | UdfStep) else step for step in routine.steps
    ]
    given, asks = apart.given, apart.asks
    if not given:
        _check_requests([draft, *others])
    if steps == routine.steps and asks == routine.asks:
        return draft
    request = None if routine.request is None else routine.request.input
    routine = msgspec.structs.replace(
        routine,
        steps=steps,
        asks=asks,
        input_schema=of_input(
            given, asked=asks, request=request, titles=titles_of(routine.input_schema)
        ),
    )
    return msgspec.structs.replace(draft, routine=routine, input=given)


def settled(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft that no longer asks for what the traces together explain.

    A short value that equals an input says little. That it does so in every trace, and is another
    one each time, may say enough. Everything that holds in all of them must agree.
    others: drafts that make the same calls in the same order.
    """
    draft = _with_checks(with_names(draft, others), others)
    for name in [name for name, asked in draft.routine.asks.items() if not asked.is_unused]:
        found = _Together(draft, others).explained(name)
        if found:
            draft = _without_asking(draft, name, found)
    used = names_used(draft.routine)
    asks = {
        name: asked
        for name, asked in draft.routine.asks.items()
        if not (asked.is_unused and name in used)
    }
    if len(asks) == len(draft.routine.asks):
        return draft
    return msgspec.structs.replace(draft, routine=msgspec.structs.replace(draft.routine, asks=asks))


class _Together:
    """What several traces together show about the values that a draft asks for."""

    def __init__(self, draft: Draft, others: Sequence[Draft]) -> None:
        self._draft, self._all = draft, [draft, *others]
        self._scopes = [recorded_scope(draft, one) for one in self._all]
        asked = draft.routine.asks
        self._inputs = {name for name in draft.input if name not in asked or asked[name].is_unused}
        results = {step.save_as for step, _ in _recorded_steps(draft) if step.save_as is not None}
        self._known = self._inputs | results
        self._size = sum(1 for item in draft.recording for _ in leaves(item.result))

    def explained(self, name: str) -> list[str]:
        """Return the expressions that give an asked input in every trace, the best first."""
        found = [
            (number, place)
            for step, number in _recorded_steps(self._draft)
            for place, template in single_places(step.args, step.agree)
            if _bare_name(template) == name
        ]
        if not found:
            return []
        number, place = found[0]
        values = [_part(one.recording[number].args, place) for one in self._all]
        texts = dict.fromkeys(
            text
            for one in self._all
            for text in _explanations(one, number, place)
            if (names := names_in_expression(text)) and names <= self._known
        )
        holding = self._giving(texts, values)
        bits = {text: self._evidence(text, values) for text in holding}
        holding.sort(key=lambda text: -bits[text])
        return holding if holding and bits[holding[0]] >= ENOUGH else []

    def agreeing(self, number: int, place: str, texts: Sequence[str]) -> list[str]:
        """Return the expressions that give an argument in every trace."""
        values = [_part(one.recording[number].args, place) for one in self._all]
        return self._giving([t for t in texts if names_in_expression(t) <= self._known], values)

    def memberships(self, number: int, place: str, template: Any) -> list[str]:
        """Return checks that an argument is one of a list, if the values say so together."""
        found = _WHOLE.fullmatch(template.strip()) if isinstance(template, str) else None
        values = [_part(one.recording[number].args, place) for one in self._all]
        if found is None or not all(map(_singles, values)):
            return []
        wanted = {text_key(one) for one in _singles(values[0])}
        texts = dict.fromkeys(
            f"among(every({step.save_as}, {quoted('.'.join(one.general))}), {found[1]})"
            for step, at in _recorded_steps(self._draft)
            if at < number and step.save_as is not None
            for one in places(at, self._draft.recording[at].result)
            if one.collections and text_key(one.value) in wanted
        )
        singles = [one for value in values for one in _singles(value)]
        return [text for text in texts if self._evidence(text, singles) >= ENOUGH]

    def holds(self, guard: str) -> bool:
        """Return whether a guard holds in every trace."""
        if not names_in_expression(guard) <= self._known:
            return False
        return all(_gives(f"true if {guard} else false", scope, True) for scope in self._scopes)

    def _giving(self, texts: Iterable[str], values: Sequence[Any]) -> list[str]:
        return [
            text
            for text in texts
            if all(
                _gives(text, scope, value)
                for scope, value in zip(self._scopes, values, strict=True)
            )
        ]

    def _evidence(self, text: str, values: Sequence[Any]) -> float:
        """Return the evidence for an expression from the different values that it gave."""
        different = {
            text_key(value): value for value in values if not isinstance(value, dict | list)
        }
        names = names_in_expression(text)
        if "(" in text and not names & self._inputs:
            return of_choice(2, len(different))
        size = len(self._inputs) if names <= self._inputs else self._size
        return sum(of_match(value, size) for value in different.values())


def _singles(value: Any) -> list[Any]:
    """Return a value, or the items of a list; nothing if one of them is not single."""
    items = value if isinstance(value, list) else [value]
    return [] if any(isinstance(one, dict | list) or one is None for one in items) else items


def _explanations(draft: Draft, number: int, place: str) -> Iterator[str]:
    """Yield the expressions that may explain an argument in one trace."""
    step = next(step for step, at in _recorded_steps(draft) if at == number)
    template = _part(step.args, place)
    found = _WHOLE.fullmatch(template.strip()) if isinstance(template, str) else None
    asked = draft.routine.asks.get(_bare_name(template))
    if asked is not None:
        yield from asked.candidates
    elif found is not None:
        yield found[1]
    yield from step.agree.get(place, ())


def with_names(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft in which what was read has a name, so that checks can look there."""
    names = Names()
    for name in (*FUNCTIONS, *draft.input, *(step.save_as or "" for step in draft.routine.steps)):
        names.free(name)
    reads = {tool.name for tool in draft.routine.tools if tool.effect == "read"}
    named: dict[str, str] = {}
    for step, number in _recorded_steps(draft):
        if step.save_as is None and isinstance(step, ToolStep) and step.tool in reads:
            same = (next(s for s, at in _recorded_steps(one) if at == number) for one in others)
            known = next((one.save_as for one in same if one.save_as is not None), None)
            named[step.id] = names.free(known or result_name(step.tool, is_write=False))
    if not named:
        return draft
    steps = [
        msgspec.structs.replace(step, save_as=named[step.id]) if step.id in named else step
        for step in draft.routine.steps
    ]
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, steps=steps)
    )


def _with_checks(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft with the checks of other traces that hold in all of them.

    A short value of one trace says too little to be looked for in a list; that of another does.
    """
    together = _Together(draft, others)
    steps: dict[str, Step] = {}
    for step, number in _recorded_steps(draft):
        same = [next(s for s, at in _recorded_steps(one) if at == number) for one in others]
        guards = dict.fromkeys([*step.guards, *(text for one in same for text in one.guards)])
        agree = dict(step.agree)
        for place, template in single_places(step.args, step.agree):
            own = agree.get(place, ())
            more = [text for one in same for text in one.agree.get(place, ()) if text not in own]
            more += [] if own or more else together.memberships(number, place, template)
            held = together.agreeing(number, place, list(dict.fromkeys(more)))
            if held:
                agree[place] = [*own, *held]
        steps[step.id] = msgspec.structs.replace(
            step,
            agree=agree,
            guards=tuple(t for t in guards if t in step.guards or together.holds(t)),
        )
    changed = [steps.get(step.id, step) for step in draft.routine.steps]
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, steps=changed)
    )


def _without_asking(draft: Draft, name: str, found: Sequence[str]) -> Draft:
    """Return a draft in which expressions take the place of an asked input."""
    best, *rest = found

    def filled(step: Step) -> Step:
        if not isinstance(step, ToolStep | UdfStep):
            return step
        here = [
            place
            for place, template in single_places(step.args, step.agree)
            if _bare_name(template) == name
        ]
        agree = {
            place: [in_expression(text, name, best) for text in texts]
            for place, texts in step.agree.items()
        }
        for place in here:
            agree[place] = list(dict.fromkeys([*agree.get(place, ()), *rest]))
        return msgspec.structs.replace(
            step,
            args=with_answers(step.args, dict.fromkeys(here, f"{{{{ {best} }}}}")),
            agree={place: texts for place, texts in agree.items() if texts},
            guards=tuple(in_expression(text, name, best) for text in step.guards),
            reasons={in_expression(t, name, best): e for t, e in step.reasons.items()},
            expects=tuple(in_expression(text, name, best) for text in step.expects),
        )

    routine = draft.routine
    asks = {other: one for other, one in routine.asks.items() if other != name}
    given = {other: value for other, value in draft.input.items() if other != name}
    request = None if routine.request is None else routine.request.input
    schema = of_input(given, asked=asks, request=request, titles=titles_of(routine.input_schema))
    routine = msgspec.structs.replace(
        routine, steps=[filled(step) for step in routine.steps], asks=asks, input_schema=schema
    )
    return msgspec.structs.replace(draft, routine=routine, input=given)


def in_expression(text: str, name: str, expression: str) -> str:
    """Replace a name in an expression; not in its texts, and not the name of an argument."""
    parts = re.split(r"(\"(?:[^\"\\]|\\.)*\")", text)
    pattern = rf"(?<![\w.]){re.escape(name)}(?!\w|\s*\(|\s*=[^=])"
    parts[::2] = [re.sub(pattern, lambda _: expression, part) for part in parts[::2]]
    return "".join(parts)


def recorded_scope(draft: Draft, other: Draft) -> Json:
    """Return the inputs and results of another trace, under the names that a draft has for them."""
    results: Json = {}
    placed: Json = {}
    for step, number in _recorded_steps(draft):
        item = other.recording[number]
        if step.save_as is not None:
            results[step.save_as] = item.result
        for place, template in single_places(step.args, step.agree):
            name = _bare_name(template)
            if name in draft.input:
                placed.setdefault(name, _part(item.args, place))
    # What is asked for is named after its use, which may differ from trace to trace.
    asked = draft.routine.asks.keys() & placed
    given = {name: value for name, value in other.input.items() if name not in asked}
    return {**FUNCTIONS, **placed, **given, **results}


def _recorded_steps(draft: Draft) -> Iterator[tuple[ToolStep | UdfStep, int]]:
    """Yield the calls of a draft with their number in the recording."""
    numbers = {item.step: number for number, item in enumerate(draft.recording)}
    for step in draft.routine.steps:
        if isinstance(step, ToolStep | UdfStep) and step.id in numbers:
            yield step, numbers[step.id]


def _check_requests(drafts: Sequence[Draft]) -> None:
    """Refuse a routine without inputs if the traces were asked for different things."""
    requests = {
        "" if draft.routine.request is None else " ".join(draft.routine.request.template.split())
        for draft in drafts
    }
    if len(requests) > 1:
        raise RoutineError(
            "the traces were asked for different things, and no call depends on what was asked",
            place="traces",
            fix="compile one of them, or traces of one task",
            requests=sorted(requests),
        )


class _Differences:
    """What other traces show about the values of a draft.

    given: the inputs of the draft, with those that were made here. asks: those that are asked for.
    """

    def __init__(self, draft: Draft, others: Sequence[Draft]) -> None:
        self._draft, self._others = draft, others
        self._scopes = [recorded_scope(draft, other) for other in others]
        self._names = _names_in_use(draft.routine)
        self._numbers = {item.step: number for number, item in enumerate(draft.recording)}
        self.given = dict(draft.input)
        self.asks = {
            name: asked if asked.is_unused else self._seen_elsewhere(name, asked)
            for name, asked in draft.routine.asks.items()
        }

    def step(self, step: ToolStep | UdfStep) -> Step:
        """Return a step whose arguments no other trace refutes."""
        number = self._numbers.get(step.id)
        if number is None:
            return step
        recorded = self._draft.recording[number]
        calls = [other.recording[number] for other in self._others]
        made: Json = {}
        agree = dict(step.agree)
        for place, template in single_places(step.args, step.agree):
            values = [_part(call.args, place) for call in calls]
            if self._is_refuted(template, values):
                made[place] = self._instead(recorded, place, agree.pop(place, ()), values)
            elif place in agree:
                agree[place] = self._unrefuted(agree[place], values)
        agree = {place: texts for place, texts in agree.items() if texts}
        if not made and agree == step.agree:
            return step
        return msgspec.structs.replace(step, args=with_answers(step.args, made), agree=agree)

    def _is_refuted(self, template: Any, values: Sequence[Any]) -> bool:
        """Return whether an argument, as it is written, would be another one in another trace."""
        evaluate = compile_value(template, "")
        for scope, value in zip(self._scopes, values, strict=True):
            try:
                if not equal(evaluate(scope), value):
                    return True
            except EmError:
                continue  # it needs a secret, or something that this trace did not have
        return False

    def _unrefuted(self, texts: Sequence[str], values: Sequence[Any]) -> list[str]:
        """Return the expressions that must still agree. Only a success shows that one need not."""
        refuting = [
            (scope, value)
            for other, scope, value in zip(self._others, self._scopes, values, strict=True)
            if other.outcome == "success"
        ]
        return [
            text
            for text in texts
            if all(_gives(text, scope, value) is not False for scope, value in refuting)
        ]

    def _instead(
        self, recorded: Recorded, place: str, texts: Sequence[str], values: Sequence[Any]
    ) -> str:
        """Return an expression that holds in every trace, or an input that is asked for."""
        holding = next((text for text in texts if self._holds(text, values)), None)
        if holding is not None:
            return f"{{{{ {holding} }}}}"
        *_, last = (part for part in place_parts(place) if isinstance(part, str))
        name = self._names.free(identifier(last))
        value = part_at(recorded.args, place)
        self.given[name] = value
        self.asks[name] = Asked(recorded=value, others=_different(values, value))
        return f"{{{{ {name} }}}}"

    def _holds(self, text: str, values: Sequence[Any]) -> bool:
        """Return whether an expression gives these values in the other traces."""
        return all(
            _gives(text, scope, value) for scope, value in zip(self._scopes, values, strict=True)
        )

    def _seen_elsewhere(self, name: str, asked: Asked) -> Asked:
        """Return an asked input with its values in other traces, and what gives all of them."""
        known = [(scope, scope[name]) for scope in self._scopes if name in scope]
        candidates = [
            text
            for text in asked.candidates
            if all(_gives(text, scope, value) for scope, value in known)
        ]
        return msgspec.structs.replace(
            asked,
            candidates=candidates or (),
            others=_different([value for _, value in known], asked.recorded),
        )


def _bare_name(template: Any) -> str:
    """Return the name that an argument just is; empty for other arguments."""
    found = _BARE.fullmatch(template.strip()) if isinstance(template, str) else None
    return "" if found is None else found[1]


def _gives(text: str, scope: Json, value: Any) -> bool | None:
    """Return whether an expression gives a value; None if it can't be evaluated."""
    try:
        return equal(compile_expression(text, "")(scope), value)
    except EmError:
        return None


def _different(values: Sequence[Any], own: Any) -> tuple[Any, ...]:
    """Return the values that differ from the own one, each once, and at most a few."""
    found: list[Any] = []
    for value in values:
        if not any(identical(value, known) for known in (own, *found)):
            found.append(value)
    return tuple(found[:MOST_SHOWN])


def _names_in_use(routine: Routine) -> Names:
    names = Names()
    saved = [step.save_as for step in routine.steps if step.save_as is not None]
    properties = (routine.input_schema or {}).get("properties", {})
    for name in dict.fromkeys([*FUNCTIONS, *properties, *saved]):
        names.free(name)
    return names


def _part(args: Json, place: str) -> Any:
    try:
        return part_at(args, place)
    except (KeyError, IndexError, TypeError):
        return None
