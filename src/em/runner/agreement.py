"""Agreement: a routine acts only if everything that may explain a value gives the same.

`Terms` are what a compiled step requires: expressions that must agree with its arguments, and
guards. `Agreement` checks them during a run. It binds the request to inputs, decides when recorded
values count, and asks a person about the rest. As much as possible is settled before the first
effect, so that a refusal comes before anything was done.
"""

import copy
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from em.errors import EmError, RoutineError
from em.runner.expressions.direct import together
from em.runner.expressions.functions import FUNCTIONS, equal
from em.runner.expressions.language import (
    Evaluate,
    compile_expression,
    compile_value,
    whole_expression,
)
from em.runner.expressions.words import (
    change_in_words,
    in_words,
    left_of,
    past_in_words,
    request_in_words,
)
from em.runner.run import Failed, PendingPrompt, failure_of
from em.values.canonical import Json, digest_unordered, identical, same, short
from em.values.json_schema import examples_of

INPUTS = "inputs"
"""The step id of the question for inputs and for values whose explanations differ."""
SETTLED = "_settled"
"""The name in a run's scope under which answers for single arguments stand, by step and place."""

_NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?!\w|\s*\(|\s*=[^=])")
"""Matches names of values: not functions, keys behind a dot, or names of arguments."""
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
HOLE = re.compile(r"\{\{\s*(\"(?:[^\"\\]|\\.)*\"|.*?)\s*\}\}", re.DOTALL)
"""Matches an expression in a text; a quoted text may hold braces itself."""
_WORDS = frozenset("true false none True False None and or not in is if else".split())


class GuardFailed(RoutineError):
    """The world differs from the recording in a fact that was read before acting."""

    code = "guard_failed"


class Term(NamedTuple):
    """An expression that a step requires: its text, its value, and the names it needs."""

    text: str
    evaluate: Evaluate
    names: frozenset[str]
    error: str = ""
    """With which error the call failed in a trace where it did not hold."""
    is_conditional: bool = False
    """Whether it counts only where its step is made: its text is not all that it depends on."""


class Leaf(NamedTuple):
    """One argument: where it stands, how it is written, and what must agree with it."""

    place: str
    own: Term
    others: Sequence[Term]
    terms: Sequence[Term]
    """Its own and the others that are not the same expression."""


class Terms:
    """What a step requires before its call."""

    __slots__ = ("guards", "leaves", "may_write", "names", "others", "step_id", "uses", "when")

    def __init__(
        self,
        step_id: str,
        args: Json,
        agree: Mapping[str, Sequence[str]],
        guards: Sequence[str],
        may_write: bool = True,
        more: Collection[str] = (),
        when: str | None = None,
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        """Take what a step requires; `more` are names that it needs beside its arguments.

        when: the condition of the step. Where it is false, nothing is required.
        reasons: by guard, with which error the call failed where it did not hold.
        """
        place = f"step {step_id}, field"
        self.step_id, self.may_write = step_id, may_write
        self.when = None if when is None else _term(when, f"{place} when")
        self.leaves = [
            _leaf(args, name, texts, f"{place} agree.{name}") for name, texts in agree.items()
        ]
        errors = reasons or {}
        self.guards = [
            self._if_made(_term(text, f"{place} guards")._replace(error=errors.get(text, "")))
            for text in guards
        ]
        # The other arguments that are computed: nothing must agree, but they must be there.
        others = [
            _own(value, f"{place} args.{name}")
            for name, value in single_places(args, agree)
            if name not in agree and not isinstance(value, int | float | None)
        ]
        self.others = [term for term in others if term.names]
        # The names that the arguments themselves need.
        self.uses = frozenset(names_of_value(args)) | frozenset(more)
        self.names = self.uses.union(
            *(term.names for leaf in self.leaves for term in (leaf.own, *leaf.others)),
            *(term.names for term in self.guards),
        )

    @property
    def is_checked(self) -> bool:
        """Whether something must agree or hold, as for a call with an effect."""
        return bool(self.guards) or any(leaf.others for leaf in self.leaves)

    def _if_made(self, guard: Term) -> Term:
        """Return a guard that holds where its step is not made."""
        when = self.when
        if when is None:
            return guard

        def evaluate(scope: Any) -> Any:
            return not when.evaluate(scope) or guard.evaluate(scope)

        names = guard.names | when.names
        return guard._replace(evaluate=evaluate, names=names, is_conditional=True)

    def may_be_made(self, scope: Json) -> bool:
        """Return whether the condition of the step holds, as far as its values are there."""
        if self.when is None:
            return True
        return _has(scope, self.when.names) and bool(self.when.evaluate(scope))


def _term(text: str, place: str) -> Term:
    return Term(text, compile_expression(text, place), frozenset(names_in_expression(text)))


def _lenient_term(text: str) -> Term:
    """Return an expression that fails where it is evaluated, also if it can't be compiled."""
    try:
        return _term(text, "")
    except EmError as error:
        problem = error

    def evaluate(_scope: Any) -> Any:
        raise problem.with_traceback(None)

    return Term(text, evaluate, frozenset(names_in_expression(text)))


def _leaf(args: Json, name: str, texts: Sequence[str], place: str) -> Leaf:
    template: Any = args
    for part in place_parts(name):
        try:
            template = template[part]
        except (KeyError, IndexError, TypeError):
            raise RoutineError(f"the step has no argument {name!r}", place=place) from None
    own, others = _own(template, place), [_term(text, place) for text in texts]
    written = (whole_expression(own.text) or "").strip()
    return Leaf(name, own, others, (own, *(one for one in others if one.text != written)))


def _own(template: Any, place: str) -> Term:
    """Return an argument as it is written."""
    shown = template if isinstance(template, str) else short(template)
    return Term(shown, compile_value(template, place), frozenset(names_of_value(template)))


_PLAIN_KEY = re.compile(r"[^.\[\]\"]+")
_PART = re.compile(r"\[(\"(?:[^\"\\]|\\.)*\")\]|\[(\d+)\]|([^.\[\]\"]+)")


def deeper(place: str, part: str | int) -> str:
    """Return the place of a part of a value: `items[0].sku`; unusual keys are quoted."""
    if isinstance(part, int):
        return f"{place}[{part}]"
    if not _PLAIN_KEY.fullmatch(part):
        import json

        return f"{place}[{json.dumps(part)}]"
    return f"{place}.{part}" if place else part


def place_parts(place: str) -> Iterator[str | int]:
    """Split a place such as `items[0].sku`."""
    for quoted, number, key in _PART.findall(place):
        yield int(number) if number else key or _unquoted(quoted)


def _unquoted(text: str) -> str:
    import json

    return str(json.loads(text))


def part_at(value: Any, place: str) -> Any:
    """Return the part of a value at a place."""
    for part in place_parts(place):
        value = value[part]
    return value


def single_places(
    template: Any, whole: Collection[str] = (), place: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield each single value of arguments with its place; those at `whole` are not divided."""
    if place not in whole and template and isinstance(template, dict | list):
        items = template.items() if isinstance(template, dict) else enumerate(template)
        for part, inner in items:
            yield from single_places(inner, whole, deeper(place, part))
    elif place:
        yield place, template


def names_in_expression(expression: str) -> set[str]:
    """Return the names of values that a bare expression uses."""
    return set(_NAME.findall(_TEXT.sub("''", expression))) - _WORDS


def names_of_value(value: Any) -> Iterator[str]:
    """Yield the names of values that the expressions in a value use."""
    if isinstance(value, str):
        for hole in HOLE.findall(value):
            yield from names_in_expression(hole)
    elif isinstance(value, dict):
        for item in value.values():
            yield from names_of_value(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_of_value(item)


Answer = Callable[[PendingPrompt], Json]


class _Question(NamedTuple):
    field: Json
    words: str


class Contract:
    """What a routine requires of each of its runs. It is prepared once, since no run changes it.

    terms: of the steps in their order; None for a step that requires nothing.
    saved: the names under which the steps save their results, in their order.
    """

    def __init__(
        self, routine: Any, terms: Sequence[Terms | None], saved: Sequence[str | None]
    ) -> None:
        self.asks, self.seen = routine.asks, routine.seen
        properties = (routine.input_schema or {}).get("properties")
        self.properties: Json = {
            name: one if isinstance(one, dict) else {}  # true and false are schemas too
            for name, one in (properties if isinstance(properties, dict) else {}).items()
        }
        self.request = routine.request
        self.wording = None
        if self.request is not None:
            from em.runner.wording import Wording

            self.wording = Wording(self.request, self.properties)
        # The inputs that are neither asked for nor the request itself.
        request = None if self.request is None else self.request.input
        self.needed = [
            name for name in self.properties if name not in self.asks and name != request
        ]
        self.candidates = {
            name: [_lenient_term(text) for text in one.candidates]
            for name, one in self.asks.items()
        }
        # Checks of recorded values that reads held.
        self.found = {
            name: tuple(_lenient_term(text) for text in one.found)
            for name, one in self.asks.items()
            if one.found
        }
        steps = [one for one in terms if one is not None]
        # From each step on: what it requires, and what the later ones do.
        self.rest = {one.step_id: steps[number:] for number, one in enumerate(steps)}
        # The inputs that each step needs.
        self.inputs = {one.step_id: one.names & self.properties.keys() for one in steps}
        # The guards by the name of the last value that they wait for: inputs come before results.
        results = {name: number for number, name in enumerate(saved)}
        self.waiting: dict[str, tuple[_Waiting, ...]] = {}
        for names, guards in _by_names(steps).items():
            last = max(sorted(names), key=lambda name: results.get(name, -1), default="")
            _wait_for(self.waiting, last, _waiting(names, guards))

    def example(self, name: str) -> Any:
        """Return the recorded value of an input; None if there is none."""
        return next(iter(self.examples(name)), None)

    def examples(self, name: str) -> Sequence[Any]:
        """Return the recorded values of an input that are kept."""
        return examples_of(self.properties[name])


class _Waiting(NamedTuple):
    """Guards that need the same values, each with its step."""

    names: frozenset[str]
    guards: Sequence[tuple[str, Term]]
    hold: Evaluate
    """Returns True only if all of them hold except `others`; else each must be looked at."""
    others: Sequence[tuple[str, Term]]


def _waiting(names: frozenset[str], guards: Sequence[tuple[str, Term]]) -> _Waiting:
    hold, known = together([one.text for _, one in guards if not one.is_conditional])
    others = [one for one in guards if one[1].is_conditional or one[1].text not in known]
    return _Waiting(names, guards, hold, others)


def _by_names(steps: Iterable[Terms]) -> dict[frozenset[str], list[tuple[str, Term]]]:
    found: dict[frozenset[str], list[tuple[str, Term]]] = {}
    for one in steps:
        for guard in one.guards:
            found.setdefault(guard.names, []).append((one.step_id, guard))
    return found


def _wait_for(waiting: dict[str, tuple[_Waiting, ...]], name: str, guards: _Waiting) -> None:
    waiting[name] = (*waiting.get(name, ()), guards)


class Agreement:
    """What a run has settled so far: its inputs, the guards that held, and people's answers.

    answer: returns a person's answers to a question, or raises Pause.
    """

    def __init__(self, contract: Contract, answer: Answer) -> None:
        self._contract = contract
        self._asks, self._properties = contract.asks, contract.properties
        # What reads returned when recorded, as hashes. Those that were the same are taken out.
        self._seen = dict(contract.seen)
        self._answer = answer
        self._planned = self._has_words = False
        # Values that the request names, if one of them does not look like the recorded ones.
        self._said: Json = {}
        self._doubts: dict[str, str] = {}
        # Inputs that nobody gave: they are as recorded while everything that may explain them is.
        self._assumed: set[str] = set()
        # Checks of recorded values that reads held. Those that hold are taken out.
        self._found = dict(contract.found)
        self.settled: dict[str, Json] = {}
        # The guards that wait for a value, by the name of that value.
        self._waiting = dict(contract.waiting)

    @property
    def input_names(self) -> Collection[str]:
        """The inputs that a run asks for if they are missing."""
        return self._properties

    # --- inputs -----------------------------------------------------------------------------------

    def inputs(self, given: Json) -> Json:
        """Return the inputs of a run: given, read from the request, or those of the recording."""
        known = dict(given)
        matched = self._bind(known)
        self._has_words = matched is not None
        contract, request = self._contract, self._contract.request
        recorded = all(
            name in known and same(known[name], contract.example(name)) for name in contract.needed
        ) and all(
            same(known[name], asked.recorded) for name, asked in self._asks.items() if name in known
        )
        # Some named inputs don't say what else was asked for in words; all of them do.
        full = all(name in known for name in self._asks)
        alike = matched is True or request is None or not given or (full and matched is None)
        if recorded and alike:
            for name, asked in self._asks.items():
                if name not in known and not asked.others:
                    known[name] = asked.recorded
                    self._assumed.add(name)
            return known
        for name, asked in self._asks.items():
            if asked.is_unused and name in known and not identical(known[name], asked.recorded):
                self._doubts[name] = (
                    f"{name} was {short(asked.recorded)} in the recording, and is"
                    f" {short(known[name])} now; nothing shows what depends on it."
                    " Go on as recorded?"
                )
            elif asked.is_unused:
                known.setdefault(name, asked.recorded)
        # Other words may ask for something else; without words they count only if they decide.
        other_words = matched is False
        if request is not None and (other_words or (request.decides and matched is None)):
            self._doubts[request.input] = (
                "Some values may follow from the wording of the request, which was:"
                f" {request_in_words(request.template)}. Do the same with these inputs?"
            )
        return known

    def _bind(self, known: Json) -> bool | None:
        """Take inputs from the request; None if there is none, False if its wording differs."""
        wording = self._contract.wording
        if wording is None or self._contract.request.input not in known:
            return None
        text = known[self._contract.request.input]
        bound = wording.bind(text) if isinstance(text, str) else None
        self._said = wording.named(text) if isinstance(text, str) and bound is None else {}
        if bound is None:
            return False
        for name, value in bound.items():
            value = _typed(value, self._properties.get(name, {}))  # noqa: PLW2901 - the same value
            if name in known and not same(known[name], value):
                raise RoutineError(
                    f"the request says {short(value)}, the input {short(known[name])}",
                    place=f"input {name}",
                    fix="give one of them",
                )
            known[name] = value
        return True

    # --- steps ------------------------------------------------------------------------------------

    def settle(self, terms: Terms, scope: Json, *, writes: bool) -> None:
        """Check what a step requires; before the first effect also what later steps require.

        Raise Pause to ask a person, and Failed where a guard does not hold.
        """
        scope.setdefault(SETTLED, self.settled)
        is_first = writes and not self._planned
        questions = self._open(terms, scope, is_now=True)
        if terms.others:
            _check_arguments(terms, scope)
        for one in self._later(terms, scope) if is_first else ():
            questions |= self._open(one, scope, is_now=False)
            _check_arguments(one, scope)
        if questions or is_first:
            self._settle_open(terms, scope, questions, writes=writes)
        if terms.guards and self._waiting:
            self._check_rest(terms, scope)
        if writes:
            self._planned = True

    def _settle_open(
        self, terms: Terms, scope: Json, questions: dict[str, _Question], *, writes: bool
    ) -> None:
        """Ask what is open, and with it what can be asked before anything is read."""
        if not self._planned:
            questions |= self._early([terms, *self._later(terms, scope)], scope)
        if questions:
            self._ask(questions, scope)
            # An answer may make other things known.
            self.learn(questions, scope)
            self.settle(terms, scope, writes=writes)

    def _early(self, steps: Sequence[Terms], scope: Json) -> dict[str, _Question]:
        """Return what can be asked before anything is read, so that it is asked at once.

        An input that something may explain is asked for when that has been read.
        """
        inputs = self._contract.inputs
        found = {
            name: self._missing(name, scope)
            for one in steps
            for name in sorted(inputs[one.step_id])
            if not _has(scope, {name}) and not self._waits(name, scope)
        }
        for name, words in self._doubts.items() if any(one.may_write for one in steps) else ():
            found[name] = _Question({"name": name, "type": "confirm", "label": words}, words)
        return found

    def _waits(self, name: str, scope: Json) -> bool:
        """Return whether something that may explain an input has not been read yet."""
        candidates = self._contract.candidates.get(name, ())
        return any(not _has(scope, term.names) for term in candidates)

    def _later(self, terms: Terms, scope: Json) -> list[Terms]:
        """Return the terms of the steps after one that are made, as far as that is known."""
        rest = self._contract.rest[terms.step_id]
        return [one for one in rest if one is not terms and one.may_be_made(scope)]

    def learn(self, names: Iterable[str], scope: Json) -> None:
        """Check every guard whose values are there now. Raise Failed where one does not hold."""
        for name in names:
            for waiting in self._waiting.pop(name, ()):
                guards = waiting.others if waiting.hold(scope) else waiting.guards
                if not guards:
                    continue
                if _has(scope, waiting.names):
                    for step_id, guard in guards:
                        _check_guard(guard, scope, step_id)
                else:
                    missing = min(one for one in waiting.names if not _has(scope, {one}))
                    _wait_for(self._waiting, missing, waiting)

    def _check_rest(self, terms: Terms, scope: Json) -> None:
        """Check the guards of a step that still wait for something."""
        for waiting in self._waiting.values():
            for step_id, guard in itertools.chain.from_iterable(one.guards for one in waiting):
                if step_id == terms.step_id:
                    _check_guard(guard, scope, step_id)

    def _open(self, terms: Terms, scope: Json, *, is_now: bool) -> dict[str, _Question]:
        """Return what is open about a step: inputs that are missing, values that differ."""
        found: dict[str, _Question] = {}
        if self._assumed or self._found or not _has(scope, self._contract.inputs[terms.step_id]):
            found = self._open_inputs(terms, scope)
        if not terms.leaves:
            return found
        settled = self.settled.get(terms.step_id, ())
        for leaf in terms.leaves:
            ready = is_now or _has(scope, leaf.own.names)
            if leaf.place in settled or not ready:
                continue
            explaining = leaf.terms
            if not is_now:
                others = [term for term in leaf.others if _has(scope, term.names)]
                explaining = (leaf.own, *others)
            if found and any(name in found for term in explaining for name in term.names):
                continue  # ask for the input first
            differing = _differing(explaining, scope)
            if differing is not None:
                kind, problem = differing
                field = f"{terms.step_id}.{leaf.place}"
                words = f"{leaf.place}: {problem}"
                found[field] = _Question({"name": field, "type": kind, "label": words}, words)
        return found

    def _open_inputs(self, terms: Terms, scope: Json) -> dict[str, _Question]:
        """Return the inputs of a step that are missing, or that what was read speaks against."""
        found: dict[str, _Question] = {}
        for name in sorted(self._contract.inputs[terms.step_id]):
            if not _has(scope, {name}):
                found[name] = self._missing(name, scope)
        if self._assumed:
            for name in sorted(self._assumed & terms.uses):
                if self._has_changed(name, scope):
                    found[name] = self._missing(name, scope)
        if self._found:
            for name in sorted(terms.uses & self._found.keys() - found.keys()):
                lost = self._lost(name, scope)
                if lost:
                    found[name] = self._missing(name, scope, lost)
        return found

    def _has_changed(self, name: str, scope: Json) -> bool:
        """Return whether what an assumed value may come from is not as it was when recorded.

        Where nothing is known to give it, anything that was read may have been its reason.
        """
        if self._differing_reads(scope):
            return True
        recorded = self._asks[name].recorded
        for term in self._contract.candidates[name]:
            if not term.names or not _has(scope, term.names):
                continue
            try:
                value = term.evaluate(scope)
            except EmError:
                return True
            if not equal(value, recorded):
                return True
        return False

    def _differing_reads(self, scope: Json) -> list[str]:
        """Return the names of results that differ from the recorded ones, as far as they are there.

        Each is looked at once: a run does not change what was read.
        """
        known = [name for name in self._seen if name in scope]
        for name in known:
            if _digest(scope[name]) == self._seen[name]:
                del self._seen[name]
        return [name for name in known if name in self._seen]

    def _lost(self, name: str, scope: Json) -> str:
        """Say what reads held of an input when recorded, and hold no more; empty if they do."""
        if not _has(scope, {name}):
            return ""
        for term in self._found[name]:
            if not _has(scope, term.names):
                continue
            try:
                term.evaluate(scope)
            except EmError as error:
                return f"{in_words(term.text)}; {error.message}"
            self._found[name] = tuple(one for one in self._found[name] if one is not term)
        return ""

    def _missing(self, name: str, scope: Json, lost: str = "") -> _Question:
        asked = self._asks.get(name)
        if asked is None:
            words = [self._why_needed(name)]
        else:
            words = [*filter(None, (_recorded_in_words(asked), lost))]
            differing = self._differing_reads(scope) if name in self._assumed else ()
            if differing:
                words.append(f"since then {', '.join(differing)} changed")
            # That it may always be this is worth saying beside another possibility only.
            candidates = self._contract.candidates[name]
            if any(term.names for term in candidates):
                words += filter(None, (_shown(term, scope) for term in candidates))
        label = f"{name}: {'; '.join(words)}"
        kind = self._properties.get(name, {}).get("type")
        field = {"name": name, "type": _FIELD_TYPES.get(kind, "json"), "label": label}
        return _Question(field, label)

    def _why_needed(self, name: str) -> str:
        """Say why an input that must be given is asked for."""
        request = self._contract.request
        wording = self._contract.wording
        if request is None or wording is None or name not in wording.names:
            return "the run needs it, and nothing recorded says what it is"
        why = "the request does not say it in the recorded words"
        if name in self._said:
            said = short(self._said[name])
            is_like = wording.fits(name, self._said[name])
            why = f"{said} does not look like the recorded ones"
            why = f"the request says {said}, but not all as it was recorded" if is_like else why
        example = self._contract.example(name)
        if example is None:
            return why
        was = f"it was {short(example)} in the recording"
        if name in request.closed:
            was = f"it was one of {short(self._contract.examples(name))}"
        return f"{why}; {was}" if self._has_words else f"the run needs it; {was}"

    def _ask(self, questions: Mapping[str, _Question], scope: Json) -> None:
        """Ask a person, and take the answers."""
        if not questions:
            return
        message = "" if self._planned else "Before anything is done: "
        message += ". ".join(question.words for question in questions.values())
        fields = [question.field for question in questions.values()]
        prompt = PendingPrompt(step_id=INPUTS, message=message, fields=fields)
        for name, answer in self._answer(prompt).items():
            self._take(name, answer, scope)

    def _take(self, name: str, answer: Any, scope: Json) -> None:
        if name in self._doubts:
            if answer is not True:
                raise Failed(failure_of("", GuardFailed("a person did not agree"), {}))
            del self._doubts[name]
        elif name in self._properties:
            self._assumed.discard(name)
            self._found.pop(name, None)
            scope[name] = answer
        else:
            step_id, _, place = name.partition(".")
            self.settled.setdefault(step_id, {})[place] = answer


def _recorded_in_words(asked: Any) -> str:
    """Say what an asked input was in the recording, or in several."""
    if not asked.others:
        return f"it was {short(asked.recorded)} in the recording"
    *first, last = map(short, (asked.recorded, *asked.others))
    return f"it was {', '.join(first)} and {last} in recordings"


# A yes or no that is a value is not a `confirm`, which `--yes` answers.
_FIELD_TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}


def _check_arguments(terms: Terms, scope: Json) -> None:
    """Compute the arguments whose values are there. Raise Failed where one can't be computed."""
    for term in terms.others:
        if _has(scope, term.names):
            try:
                term.evaluate(scope)
            except EmError as error:
                raise Failed(failure_of(terms.step_id, error, {})) from None


def _digest(value: Any) -> str | None:
    """Return the hash of a result; None for one that is not JSON, which no recording holds."""
    try:
        return digest_unordered(value)
    except (TypeError, ValueError):
        return None


def _check_guard(guard: Term, scope: Json, step_id: str) -> None:
    try:
        if guard.evaluate(scope):
            return
        now = compile_expression(left_of(guard.text), "")(scope)
        words = change_in_words(guard.text, now)
    except EmError as error:
        words = f"{past_in_words(guard.text)}; now it can't be seen: {error.message}"
    if guard.error:
        words += f"; in the traces the call failed then: {guard.error}"
    problem = GuardFailed(
        words,
        place=f"step {step_id}",
        fix="do it by hand or with the agent; remove the guard from routine.yaml if it does not"
        " matter",
    )
    raise Failed(failure_of(step_id, problem, {"guard": guard.text}))


def _has(scope: Json, names: Set[str]) -> bool:
    """Return whether a run's scope has all these values; a function of that name is not one."""
    for name in names:
        if name not in scope or (name in FUNCTIONS and scope[name] is FUNCTIONS[name]):
            return False
    return True


def _agree(terms: Sequence[Term], scope: Json) -> bool:
    """Return whether all explanations of a value can be computed, and give the same."""
    try:
        first = terms[0].evaluate(scope)
        for term in terms[1:]:
            if not equal(term.evaluate(scope), first):
                return False
    except EmError:
        return False
    return True


def _differing(terms: Sequence[Term], scope: Json) -> tuple[str, str] | None:
    """Return the type of a value and what its explanations give, in words; None if they agree."""
    if _agree(terms, scope):
        return None
    values: list[tuple[Any, Term]] = []
    problems: list[str] = []
    for term in terms:
        try:
            values.append((term.evaluate(scope), term))
        except EmError as error:
            problems.append(f"it is {in_words(term.text)}, but {error.message}")
    shown: dict[str, str] = {}
    for value, term in values:
        shown.setdefault(short(value), in_words(term.text))
    words = [*(f"{value} if it is {words}" for value, words in shown.items()), *problems]
    return _field_type([value for value, _ in values]), "; ".join(words)


def _field_type(values: Sequence[Any]) -> str:
    """Return the type of field in which a person can write any of these values."""
    if values and all(isinstance(value, str) for value in values):
        return "text"
    if values and all(isinstance(value, bool) for value in values):
        return "boolean"
    numbers = [value for value in values if isinstance(value, int | float)]
    if not values or len(numbers) < len(values) or any(isinstance(one, bool) for one in numbers):
        return "json"
    return "integer" if all(isinstance(one, int) for one in numbers) else "number"


def _shown(term: Term, scope: Json) -> str | None:
    try:
        return f"{short(term.evaluate(scope))} if it is {in_words(term.text)}"
    except EmError:
        return None


def with_answers(args: Json, settled: Mapping[str, Any]) -> Json:
    """Return arguments with the values that people gave for single places."""
    if not settled:
        return args
    changed = copy.deepcopy(args)
    for place, value in settled.items():
        *way, last = place_parts(place)
        holder: Any = changed
        for part in way:
            holder = holder[part]
        holder[last] = value
    return changed


def _typed(value: Any, schema: Json) -> Any:
    """Return a text of a request as the type of its input."""
    kind = schema.get("type")
    if kind in ("integer", "number") and isinstance(value, str):
        try:
            return int(value) if kind == "integer" else float(value)
        except ValueError:
            return value
    return value
