"""Plan: every effect of a learnt routine with its arguments, before the first one is made.

A plan says what effects a kind of task has, and for each of their values where it lives: a list
that it is chosen from, reached by reads that are made when something needs them. The words of a
request, or named inputs, say which ones. A part of the words is read as an effect only if every
value of it is found, every list that held it holds it again, and nothing in the words is left.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from em.errors import EmError, ExpressionError
from em.runner.candidates import (
    holds,
    mentions_of,
    pairs_of,
    same_record,
    the_one_meant,
    titles,
    wanted_fields,
)
from em.runner.expressions.functions import FUNCTIONS, equal, every, items_of, kind_of, may_matter
from em.runner.expressions.language import compile_expression
from em.runner.expressions.words import change_in_words, left_of, past_in_words
from em.runner.frames import framing_of
from em.runner.free_words import Reader
from em.runner.mentions import FUNCTION_WORDS, Span, Words, analysed, is_chatter, stem, unread
from em.runner.mood import commands, requests
from em.runner.phrases import is_talk, parts_of, unseen
from em.runner.quantifiers import quantified, restricting, scattered, unclear_talk
from em.runner.signs import spans_in, unknown_sign
from em.runner.task_plan import (
    EARLIER,
    TASKS,
    Effect,
    EffectCall,
    Known,
    Plan,
    Read,
    Results,
    Slot,
    Unplanned,
    asking,
    asks_for,
    listed,
)
from em.values.canonical import Json, identical, short

MOST_READINGS = 24
"""Readings of one part of a request that are tried; with more of them the run asks."""
MOST_CANDIDATES = 25
"""Calls of one read that are made to find out who or what the words mean."""
FEWEST_FIELDS = 3
"""Fields of a record that is repeated by naming another one."""
SAME_AS = re.compile(r"\b(?:same as|as in)\s+\Z", re.IGNORECASE)


class _Reading(NamedTuple):
    """A way to read a part of the words: the values, and where they stand."""

    values: Json
    used: tuple[Span, ...]
    records: Mapping[str, Sequence[Any]] = {}
    segments: Mapping[str, Sequence[Span]] = {}
    is_whole: bool = False
    """A word like `all` says a value, so that no other word may restrict it."""


Call = Callable[[str, Json], Any]
"""Make a read: the tool and its arguments. Raises EmError if it fails."""


class Planner:
    """Makes the plan of one run. `call` makes reads; `evaluate` evaluates an expression."""

    def __init__(
        self, plan: Plan, call: Call, evaluate: Callable[[str, Mapping[str, Any]], Any]
    ) -> None:
        self._plan, self._call, self._evaluate = plan, call, evaluate
        self._known: Json = {}
        self._words = Words("")
        self._used: set[Span] = set()
        self._read_values: set[Span] = set()
        self._clause = Span(0, 0)
        self._before: Sequence[Span] = ()
        self._kept: set[Span] = set()
        self._done: list[tuple[Span, tuple[EffectCall, ...]]] = []
        self._made: dict[tuple[str, bytes], Any] = {}
        self._scope: Json = {name: self._reader(name) for name in plan.reads}
        self.sources: Mapping[str, str] = {}
        """Of a form: where each value came from, by `effect.value`."""

    def plan(self, request: str, scope: Json) -> list[EffectCall]:
        """Return the effects that are asked for, in the order in which they are made.

        request: the name of the input that holds the words.
        """
        # An input may have the name of a function, such as `zip`.
        names = {*self._plan.inputs, *self._plan.slot_names()}
        given = {name: scope[name] for name in names if name in scope}
        known = {name: value for name, value in given.items() if not callable(value)}
        words = scope.get(request)
        tasks = scope.get(TASKS)
        if isinstance(tasks, list) and tasks:
            return self._ordered(self._from_tasks(tasks, known, words))
        self._check_framing(words)
        if self._plan.form is not None and isinstance(words, str) and words.strip():
            return self._from_form(words, known, scope.get(EARLIER) or ())
        if isinstance(words, str) and words.strip():
            return self._ordered(self.from_words(words, known))
        return [self._from_inputs(known, request)]

    def _check_framing(self, words: Any) -> None:
        """Refuse words that are introduced as a test, a question, an example or a quotation."""
        acts = any(not effect.reads for effect in self._plan.effects.values())
        framed = framing_of(words) if acts and isinstance(words, str) else None
        if framed is not None:
            kind, said = framed
            raise Unplanned(f"{said!r} says that what follows is a {kind}".replace(" a e", " an e"))

    def _from_inputs(self, given: Json, request: str) -> EffectCall:
        """Return the one effect of a plan with values that are given by name."""
        if len(self._plan.effects) > 1 or not given:
            raise Unplanned("nothing says what to do", [request])
        self._words, self._known, self._used = Words(""), dict(given), set()
        ((name, effect),) = self._plan.effects.items()
        (args,) = self._readings(effect, self._words, 0)
        return EffectCall(name, args)

    def _from_tasks(self, tasks: Sequence[Any], given: Json, words: Any) -> list[EffectCall]:
        """Return the effects that are named with their values, checked as words are."""
        named = sorted(given.keys() - self._plan.inputs.keys())
        if named or (isinstance(words, str) and words.strip()) or self._plan.form is not None:
            other = f"{', '.join(named)} beside them" if named else "words as well"
            raise Unplanned(f"{TASKS} can't be read with {other}", [TASKS])
        planned = []
        for number, one in enumerate(tasks):
            name = one.get("effect") if isinstance(one, Mapping) else None
            if name not in self._plan.effects:
                known = ", ".join(self._plan.effects)
                raise Unplanned(f"{TASKS}[{number}] must have an effect: one of {known}", [TASKS])
            effect, values = self._plan.effects[name], dict(one)
            del values["effect"]
            unknown = sorted(values.keys() - effect.slots.keys() - self._plan.inputs.keys())
            if unknown:
                raise Unplanned(f"{TASKS}[{number}]: {name} has no {', '.join(unknown)}", [TASKS])
            self._words, self._known, self._used = Words(""), {**given, **values}, set()
            self._made = {}
            planned += [EffectCall(name, args) for args in self._readings(effect, self._words, 0)]
        _check_twice(planned)
        return planned

    def _from_form(self, words: str, given: Json, earlier: Any) -> list[EffectCall]:
        """Return the effects of a form, filled in by free words."""

        def evaluate(text: str, values: Json) -> Any:
            return self._evaluate(text, {**self._scope, **values})

        reader = Reader(self._plan, words, given, earlier, evaluate)
        planned = reader.effects()
        self.sources = reader.sources
        every = {one.effect: one.args for one in planned}
        for one in planned:
            reading = _Reading({**every, **one.args}, ())
            self._check_guards(self._plan.effects[one.effect], reading)
        return planned

    def _ordered(self, planned: list[EffectCall]) -> list[EffectCall]:
        """Return effects in the order of the words, but each behind those it came after."""
        todo, done = list(planned), []
        while todo:
            names = {one.effect for one in todo}
            following = next(
                (one for one in todo if names.isdisjoint(self._plan.effects[one.effect].after)),
                None,
            )
            if following is None:
                raise Unplanned(f"the order of {', '.join(sorted(names))} is not clear")
            todo.remove(following)
            done.append(following)
        self._check_apart(done)
        return done

    def _check_apart(self, planned: Sequence[EffectCall]) -> None:
        """Refuse to do something twice with what no task did it twice with.

        The same holds for two effects on one thing: the first may change what the second needs.
        """
        for one, other in itertools.combinations(planned, 2):
            if one.effect != other.effect:
                self._check_beside(one, other)
                continue
            for name in self._plan.effects[one.effect].apart:
                if name in one.args and identical(one.args[name], other.args.get(name)):
                    raise Unplanned(
                        f"{one.effect} is asked for twice, for {one.args[name]}", [name]
                    )

    def _check_beside(self, one: EffectCall, other: EffectCall) -> None:
        first, second = self._plan.effects[one.effect], self._plan.effects[other.effect]
        if not first.thing or not second.thing or other.effect in first.beside:
            return
        thing = one.args.get(first.thing)
        if identical(thing, other.args.get(second.thing)):
            raise Unplanned(
                f"{one.effect} and {other.effect} are both asked for {thing}; no recorded task did"
                " both with the same one",
                [first.thing],
            )

    # --- whole requests ---------------------------------------------------------------------------

    def from_words(self, text: str, given: Json) -> list[EffectCall]:
        """Return the effects that a request asks for, in the order of its words."""
        self._words, self._known, self._used = analysed(text), dict(given), set()
        self._made, self._done, self._read_values, self._kept = {}, [], set(), set()
        before, clauses = parts_of(self._plan, self._words)
        self._before = before
        self._check_questions(clauses)
        if not clauses:
            raise Unplanned("nothing in these words asks for something that was learnt")
        named = sorted(self._known.keys() & self._plan.slot_names() - self._plan.inputs.keys())
        if len(clauses) > 1 and named:
            raise Unplanned(
                f"{', '.join(named)} is given by name, and the words ask for {len(clauses)} things:"
                " say in the words to which of them it belongs"
            )
        planned: list[EffectCall] = []
        for span in clauses:
            self._clause = span
            calls = self._read_clause(span)
            self._done.append((span, calls))
            planned += calls
        self._check_rest(before)
        self._check_signs()
        _check_twice(planned)
        return planned

    def _check_signs(self) -> None:
        """Refuse signs that are no part of a value, and that no recorded request had."""
        if all(effect.reads for effect in self._plan.effects.values()):
            return
        values = [*spans_in(self._words), *self._used, *self._read_values]
        sign = unknown_sign(self._words.text, values, self._plan.signs)
        if sign:
            raise Unplanned(f"nothing accounts for the sign {sign!r}")

    def _check_questions(self, clauses: Sequence[Span]) -> None:
        """Refuse questions that don't ask for an effect, and signs that belong to no sentence."""
        pieces = self._words.pieces()
        signs = self._words.without(pieces).text.strip()
        if signs:
            raise Unplanned(f"it is not clear what {signs[:20]!r} means here")
        begun = {one.start for one in clauses}
        for piece in pieces:
            text = self._words.part(piece).text
            if text.rstrip().endswith("?") and piece.start not in begun:
                raise Unplanned(f"{_shown(self._words.part(piece))} asks something else")

    def _check_rest(self, before: Iterable[Span]) -> None:
        """Refuse words before the first effect that say something nothing used."""
        rest = self._words.without(self._used)
        for span in before:
            tells_who = any(span.start <= used.start < span.end for used in self._used)
            said, left = self._words.part(span), rest.part(span)
            asks_more = not tells_who and commands(said.text)
            was_told = span in self._kept or is_talk(self._plan, said, left)
            if asks_more or not was_told or not is_chatter(left):
                raise Unplanned(f"it is not clear what this asks for: {_shown(left)}")

    def _read_clause(self, span: Span) -> tuple[EffectCall, ...]:
        """Return the effect that a part of the words asks for, once for each id of a list."""
        words = self._words.part(span)
        found: list[tuple[EffectCall, ...]] = []
        problems: list[str] = []
        missing: list[str] = []
        for name, effect in self._plan.effects.items():
            if not asks_for(effect, words.text):
                continue
            try:
                _check_mood(effect, words.text)
                ids = listed(effect, effect.each, words) if effect.each else []
                if ids and effect.each not in self._known:
                    found.append(self._for_each(name, effect, words, span.start, ids))
                    continue
                readings = self._readings(effect, words, span.start)
                found += [(EffectCall(name, args),) for args in readings]
            except EmError as error:
                problems.append(f"{effect.tool}: {error.message}")
                missing += error.inputs if isinstance(error, Unplanned) else ()
        distinct = [one for n, one in enumerate(found) if one not in found[:n]]
        if len(distinct) != 1:
            said = _shown(words)
            if not distinct:
                raise Unplanned(f"{said}: {'; '.join(problems)}", missing)
            ways = "; ".join(f"{one.effect} {short(one.args)}" for one, *_ in distinct[:4])
            raise Unplanned(f"{said} can be read in {len(distinct)} ways: {ways}")
        return distinct[0]

    def _for_each(
        self, name: str, effect: Effect, words: Words, start: int, ids: list[tuple[Span, str]]
    ) -> tuple[EffectCall, ...]:
        """Return the effect once for each id of a list; all else must be the same for all."""
        calls: list[EffectCall] = []
        for own, _ in ids:
            # The words as if they named this one only, at the same place.
            others = [Span(ids[0][0].start, own.start), Span(own.end, ids[-1][0].end)]
            found = list(self._readings(effect, words.without(others), start))
            if any(args != found[0] for args in found):
                raise Unplanned(f"the words can be read in {len(found)} ways")
            calls.append(EffectCall(name, found[0]))
        rest = [{n: v for n, v in one.args.items() if n != effect.each} for one in calls]
        chosen = {short(one.args[effect.each]) for one in calls}
        if len(chosen) < len(calls) or any(one != rest[0] for one in rest):
            raise Unplanned(f"it is not clear what belongs to which {effect.each}")
        return tuple(calls)

    def _readings(self, effect: Effect, words: Words, start: int) -> Iterator[Json]:
        """Yield the arguments of every reading that leaves nothing of the words.

        start: where in the request the words begin.
        """
        readings = [_Reading({}, ())]
        for name, slot in effect.slots.items():
            problem: EmError | None = None
            more: list[_Reading] = []
            for reading in readings:
                try:
                    more += self._bound(name, slot, words, reading)
                except EmError as error:
                    problem = error
            if not more:
                raise problem or Unplanned(f"{name}: nothing says it")
            if len(more) > MOST_READINGS:
                raise Unplanned(f"{name}: more than {MOST_READINGS} readings")
            readings = more
        left, is_read = "", False
        for reading in readings:
            about = [Span(one.start - start, one.end - start) for one in self._used]
            used = [*reading.used, *self._restates(words, effect, reading)]
            used += [one for one in about if one.start >= 0 and one.end <= len(words.text)]
            bare = words.without(used)
            rest = unread(bare, self._allowed(effect, reading))
            rest += restricting(bare, effect) if reading.is_whole else []
            if rest:
                left = left or f"nothing accounts for {', '.join(map(repr, rest[:5]))}"
                continue
            verbs, is_whole = set(asking(effect)), reading.is_whole
            said = (words, verbs, reading.values, used)
            otherwise = unseen(self._plan.wording, *said, is_whole=is_whole)
            if otherwise:
                left = left or f"no recorded request was worded like {otherwise[0]!r}"
                continue
            self._check_lists(effect, reading, bare)
            self._check_guards(effect, reading)
            is_read = True
            self._read_values.update(Span(o.start + start, o.end + start) for o in reading.used)
            yield reading.values
        if not is_read:
            raise Unplanned(left)

    def _check_lists(self, effect: Effect, reading: _Reading, bare: Words) -> None:
        """Refuse things of one list that the words don't name in one enumeration."""
        paired = {slot.of for slot in effect.slots.values()}
        for name, segments in reading.segments.items():
            if name in paired:
                continue  # what is wanted for each of them stands between them
            first = min(one for one in reading.used if one.end == segments[0].start)
            apart = scattered(bare, effect, name, first, segments)
            if apart:
                raise Unplanned(
                    f"{name}: it is not clear whether all named ones are meant: {apart!r}"
                )

    def _allowed(self, effect: Effect, reading: _Reading) -> Iterator[str]:
        """Yield the words that may stand beside the values of an effect."""
        yield from asking(effect)
        for name in effect.slots:
            yield from re.findall(r"[a-z]+", name.lower())
        for records in () if reading.is_whole else reading.records.values():
            for record in records:
                yield from _names_in(record)

    def _restates(self, words: Words, effect: Effect, reading: _Reading) -> list[Span]:
        """Return where the words name a record only to repeat what they say: `same as #W2`.

        The record must hold every value that a record in the words gives.
        """
        given = [
            {name: value for name, value in one.value.items() if name in effect.slots}
            for one in words.literals
            if isinstance(one.value, dict) and one.span in reading.used
        ]
        told = [one for one in given if len(one) >= FEWEST_FIELDS]
        if len(told) != 1:
            return []
        found: list[Span] = []
        for span, code in words.without(reading.used).codes():
            for name, reads in self._plan.reads.items():
                if len(reads) == 1 and len(reads[0].given) == 1:
                    held = self._tried(name, code)
                    own = {n: v for n, v in told[0].items() if n not in reads[0].given}
                    if held is not None and holds(held, own):
                        said = SAME_AS.search(words.text, 0, span.start)
                        start = said.start() if said else span.start
                        found.append(Span(start, span.end))
        return found

    def _tried(self, name: str, value: Any) -> Any:
        try:
            return self._read(name, [value])
        except EmError:
            return None

    def _check_guards(self, effect: Effect, reading: _Reading) -> None:
        scope = {**self._scope, **reading.values}
        for guard in effect.guards:
            try:
                if self._evaluate(guard, scope):
                    continue
                now = self._evaluate(left_of(guard), scope)
                words = change_in_words(self._with_tools(guard), now)
            except ExpressionError:
                # A number that is none any more can't be compared.
                words = f"{past_in_words(self._with_tools(guard))}, and can't be seen now"
            error = effect.reasons.get(guard)
            raise Unplanned(words + (f"; otherwise {effect.tool} failed: {error}" if error else ""))

    def _with_tools(self, guard: str) -> str:
        """Return a check with the names of tools for what they return, as people know them."""
        found, text = "", guard
        while found != text:
            found = text
            for name, reads in self._plan.reads.items():
                tool = reads[0].tool if reads[0].tool.isidentifier() else name
                text = re.sub(rf"\b{name}\([^()]*\)", tool, text)
        return text

    # --- values -----------------------------------------------------------------------------------

    def _bound(self, name: str, slot: Slot, words: Words, reading: _Reading) -> Iterator[_Reading]:
        """Yield a reading for every value that the words may mean, or for the given one."""
        if name in self._known:
            yield self._given(name, slot, words, reading)
        elif slot.of:
            yield self._bound_to(name, slot, words, reading)
        elif slot.records and slot.many:
            yield from self._chosen(name, slot, words, reading)
        elif slot.records:
            yield from self._single(name, slot, words, reading)
        else:
            yield from self._free(name, slot, words, reading)

    def _given(self, name: str, slot: Slot, words: Words, reading: _Reading) -> _Reading:
        """Return the value that is given by name, if it is in the list that it must come from."""
        given = self._known[name]
        values = given if slot.many and isinstance(given, list) else [given]
        used = [span for value in values for span in words.find(value)]
        if not slot.records:
            return self._with(reading, name, given, used, ())
        records = []
        of = reading.records[slot.of] if slot.of else ()
        if slot.of and len(of) != len(values):
            raise Unplanned(f"{name} needs one for each of {slot.of}", [name])
        for number, value in enumerate(values):
            more = {"item": of[number]} if slot.of else {}
            pairs = pairs_of(self._records(slot.records, reading, **more), slot.key)
            held = [record for own, record in pairs if equal(own, value)]
            if len(held) != 1:
                known = short([own for own, _ in pairs][:8])
                raise Unplanned(f"{name}: {short(value)} is not one of {known}", [name])
            self._check(name, slot, value, held[0], reading)
            records.append(held[0])
        return self._with(reading, name, values if slot.many else given, used, records)

    def _records(self, expression: str, reading: _Reading, **more: Any) -> Any:
        return self._evaluate(expression, {**self._scope, **reading.values, **more})

    def _single(self, name: str, slot: Slot, words: Words, reading: _Reading) -> Iterator[_Reading]:
        """Yield each value of a list that the words mention, or whose record they describe."""
        pairs = pairs_of(self._records(slot.records, reading), slot.key)
        written = [one for one in words.literals if isinstance(one.value, dict)]
        found = False
        for value, record in pairs:
            spans = [span for span in words.find(value) if not words.is_in_literal(span.start)]
            spans += [one.span for one in written if equal(one.value.get(name), value)]
            if spans:
                found = True
                self._check(name, slot, value, record, reading)
                yield self._with(reading, name, value, spans, [record])
        if found:
            return
        if slot.default:
            values = [self._records(text, reading) for text in slot.default]
            if all(equal(value, values[0]) for value in values):
                yield self._with(reading, name, values[0], (), ())
                return
        known = short([value for value, _ in pairs][:8])
        raise Unplanned(f"{name} is not said; it is one of {known}", [name])

    def _check(self, name: str, slot: Slot, value: Any, record: Any, reading: _Reading) -> None:
        """Refuse a value that is not in every list that held it, or whose record is not alike."""
        for field, held in record.items() if slot.fields and isinstance(record, dict) else ():
            if field not in slot.fields and may_matter(field, held):
                raise Unplanned(
                    f"{name}: {field} of {short(value)} is {short(held)}, and nothing recorded"
                    " had that"
                )
        for field, allowed in slot.must.items():
            found = every(record, field)
            if not found or not any(equal(found[0], one) for one in allowed):
                seen = short(found[0]) if found else "missing"
                raise Unplanned(f"{name}: {field} of {short(value)} is {seen}")
        for expression in slot.among:
            lists = self._records(expression, reading)
            if not any(equal(value, one) for one in items_of(lists)):
                raise Unplanned(f"{name}: {short(value)} is not among {expression}")

    def _free(self, name: str, slot: Slot, words: Words, reading: _Reading) -> Iterator[_Reading]:
        """Yield values without a home: written in a record by name, or one of the recorded ones.

        One that was different every time is what looks like it in the words.
        """
        for one in words.literals:
            if isinstance(one.value, dict) and name in one.value:
                yield self._with(reading, name, one.value[name], [one.span], ())
                return
        if slot.default:
            values = [self._records(text, reading) for text in slot.default]
            if all(equal(value, values[0]) for value in values):
                yield self._with(reading, name, values[0], words.find(values[0]), ())
                return
        if slot.examples and not slot.values:
            yield from self._looking_alike(name, slot, words, reading)
            return
        said = [value for value in slot.values if isinstance(value, str) and words.find(value)]
        longest = [one for one in said if not any(one != o and one in o for o in said)]
        for value in longest:
            yield self._with(reading, name, value, words.find(value), ())
        if not longest:
            raise Unplanned(f"{name} is not said", [name])

    def _looking_alike(
        self, name: str, slot: Slot, words: Words, reading: _Reading
    ) -> Iterator[_Reading]:
        """Yield each id, number or quoted text in the words that looks like the recorded ones."""
        forms = {_form(one) for one in slot.examples}
        said = [*words.codes(), *((span, text) for span, text in words.quotes())]
        found = [(span, text) for span, text in said if _form(text) in forms]
        if not found:
            raise Unplanned(f"{name} is not said", [name])
        if slot.many:
            values = [_as_recorded(text, slot) for _, text in found]
            yield self._with(reading, name, values, [span for span, _ in found], ())
            return
        for span, text in found:
            yield self._with(reading, name, _as_recorded(text, slot), [span], ())

    def _chosen(self, name: str, slot: Slot, words: Words, reading: _Reading) -> Iterator[_Reading]:
        """Yield the records that the words describe, in the order of the words."""
        pairs = pairs_of(self._records(slot.records, reading), slot.key)
        if slot.whole:
            meant = quantified(words, pairs, name, lambda: self._elsewhere(slot, pairs, reading))
            if meant is not None and meant.phrase in slot.whole:
                self._check_talk(name, pairs)
                for value, record in meant.pairs:
                    self._check(name, slot, value, record, reading)
                values, records = map(list, zip(*meant.pairs, strict=True))
                done = self._with(reading, name, values, meant.used, records)
                yield done._replace(is_whole=True)
                return
        mentions = mentions_of(words, pairs)
        if not mentions:
            named = [next(titles(record), value) for value, record in pairs]
            raise Unplanned(f"{name} is not said; there are {short(named[:12])}", [name])
        values, records, used, segments = [], [], [], []
        for number, (span, held) in enumerate(mentions):
            end = mentions[number + 1][0].start if number + 1 < len(mentions) else len(words.text)
            segment = Span(span.end, end)
            (value, record), more = the_one_meant(words, segment, held)
            self._check(name, slot, value, record, reading)
            values.append(value)
            records.append(record)
            used += [span, *more]
            segments.append(segment)
        if len({short(value) for value in values}) < len(values):
            raise Unplanned(f"{name}: the words name the same one twice")
        done = self._with(reading, name, values, used, records)
        yield done._replace(segments={**reading.segments, name: segments})

    def _check_talk(self, name: str, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Refuse a word like `all` behind talk that may say what is not meant."""
        rest = self._words.without(self._used)
        for span in self._before:
            talk = rest.part(span)
            named = [where for where, _ in mentions_of(talk, pairs)]
            unclear = unclear_talk(talk, named)
            if unclear:
                raise Unplanned(f"{name}: {unclear[0]!r} may say which of them is not meant")
            self._kept |= {span} if named else set()

    def _elsewhere(
        self, slot: Slot, pairs: Sequence[tuple[Any, Any]], reading: _Reading
    ) -> list[tuple[Any, Any]]:
        """Return the records of a list that the request names before the part that is read.

        Where an effect names one, it must be of the same list.
        """
        owner = {n: v for n, v in reading.values.items() if re.search(rf"\b{n}\b", slot.records)}
        found: list[tuple[Any, Any]] = []
        for span, held in mentions_of(self._words.without([self._clause]), pairs):
            calls = next(
                (c for where, c in self._done if where.start <= span.start < where.end), ()
            )
            is_of_it = all(one.args.get(n) == v for one in calls for n, v in owner.items())
            has_it = all(_has_value(one.args, held[0][0]) for one in calls)
            if span.start > self._clause.start or len(held) != 1 or not (is_of_it and has_it):
                text = self._words.text[span.start : span.end]
                raise Unplanned(f"it is not clear whether {text!r} is meant too")
            found.append(held[0])
        return found

    def _bound_to(self, name: str, slot: Slot, words: Words, reading: _Reading) -> _Reading:
        """Return a value for each record of another slot: like it, but for what is wanted."""
        values, records, used = [], [], []
        of, segments = reading.records[slot.of], reading.segments.get(slot.of, ())
        if len(segments) != len(of) or any(not isinstance(i.get(slot.like), dict) for i in of):
            raise Unplanned(f"nothing in the words says {name}", [name])
        for item, segment in zip(of, segments, strict=True):
            pairs = pairs_of(self._records(slot.records, reading, item=item), slot.key)
            wanted, spans = wanted_fields(words, segment, item, slot.like, reading.used, pairs)
            target = {**item[slot.like], **wanted}
            fitting = [one for one in pairs if same_record(one[1].get(slot.like), target)]
            if len(fitting) != 1:
                raise Unplanned(f"{name}: {len(fitting)} have {short(target)}")
            values.append(fitting[0][0])
            records.append(fitting[0][1])
            used += spans
            self._check(name, slot, *fitting[0], reading)
        return self._with(reading, name, values, used, records)

    def _with(
        self, reading: _Reading, name: str, value: Any, used: Iterable[Span], records: Sequence[Any]
    ) -> _Reading:
        return reading._replace(
            values={**reading.values, name: value},
            used=(*reading.used, *used),
            records={**reading.records, name: records},
        )

    # --- reads ------------------------------------------------------------------------------------

    def _reader(self, name: str) -> Callable[..., Any]:
        def read(*given: Any) -> Any:
            return self._read(name, given)

        return read

    def _read(self, name: str, given: Sequence[Any]) -> Any:
        """Return the result of a read, which is found out once for each value."""
        key = (name, msgspec.json.encode(given))
        if key not in self._made:
            self._made[key] = self._new_read(name, given)
        return self._made[key]

    def _new_read(self, name: str, given: Sequence[Any]) -> Any:
        """Return the result of a read; all ways to it that can be gone must agree."""
        results: list[Any] = []
        missing: list[str] = []
        for read in self._plan.reads[name]:
            scope = {**self._scope, **self._known, **dict(zip(read.given, given, strict=True))}
            needed = [one for one in _inputs_of(read, self._plan.inputs) if one not in scope]
            if needed:
                found = self._from_text(read, needed, scope)
                missing += [] if found else needed
                results += found
            else:
                results.append(self._call(read.tool, self._args(read, scope)))
        if not results:
            raise Unplanned(f"{' or '.join(missing)} is not said", missing)
        if any(not equal(one, results[0]) for one in results):
            raise Unplanned(f"the words lead to different ones of {name}: {short(results[:4])}")
        return results[0]

    def _args(self, read: Read, scope: Json) -> Json:
        return {name: self._filled(value, scope) for name, value in read.args.items()}

    def _filled(self, value: Any, scope: Json) -> Any:
        if not isinstance(value, str) or not value.startswith("{{"):
            return value
        text = value.removeprefix("{{").removesuffix("}}").strip()
        return scope[text] if text in scope else self._evaluate(text, scope)

    def _from_text(self, read: Read, needed: Sequence[str], scope: Json) -> list[Any]:
        """Return the results of a read with what the words may say; those that fail don't count."""
        choices = [self._looking_like(self._plan.inputs[name]) for name in needed]
        ways = itertools.islice(itertools.product(*choices), MOST_CANDIDATES * 40)
        tried = [way for way in ways if _is_in_order(way)][:MOST_CANDIDATES]
        results: list[Any] = []
        for way in tried:
            said = {name: text for name, (_, text) in zip(needed, way, strict=True)}
            try:
                results.append(self._call(read.tool, self._args(read, {**scope, **said})))
            except EmError:
                continue
            self._used.update(span for span, _ in way)
        return results

    def _looking_like(self, known: Known) -> list[tuple[Span, str]]:
        """Return what in the words looks like the recorded values of an input."""
        forms = {_form(one) for one in known.examples}
        if "Word" in forms:
            return [
                (span, text)
                for span, text in self._words.capitals()
                if text.lower() not in FUNCTION_WORDS
            ]
        return [(span, text) for span, text in self._words.codes() if _form(text) in forms]


def planner_of(plan: Plan, results: Results) -> Planner:
    """Return what makes the plan of a run from the results of reads."""
    return Planner(plan, results.of, _evaluated)


def _evaluated(text: str, scope: Mapping[str, Any]) -> Any:
    # Most expressions are a field of what a read returned; Jinja takes twenty times as long.
    read = _as_read(text)
    held = _UNKNOWN if read is None else read.value(scope)
    if held is not _UNKNOWN:
        return held
    try:
        return _compiled(text)({**FUNCTIONS, **scope})
    except EmError as error:
        inner: BaseException | None = error
        while inner is not None and not isinstance(inner, Unplanned):
            inner = inner.__cause__ or inner.__context__
        raise inner or error from None


_UNKNOWN = object()
_NAMES = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_READ = re.compile(rf"([^\W\d]\w*)\((|{_NAMES}(?:, {_NAMES})*)\)((?:\.[^\W\d]\w*)*)")


class _Read(NamedTuple):
    """A read with values by name, and the way in its result: `order(item.order_id).items`."""

    name: str
    given: tuple[tuple[str, ...], ...]
    way: tuple[str, ...]

    def value(self, scope: Mapping[str, Any]) -> Any:
        """Return the field; _UNKNOWN if something is not there, so that Jinja says what."""
        make = scope.get(self.name)
        given = [_followed(scope, way) for way in self.given]
        if not callable(make) or any(one is _UNKNOWN for one in given):
            return _UNKNOWN
        return _followed(make(*given), self.way)


@lru_cache(maxsize=10_000)
def _as_read(text: str) -> _Read | None:
    found = _READ.fullmatch(text)
    if found is None:
        return None
    name, given, way = found.groups()
    ways = tuple(tuple(one.split(".")) for one in given.split(", ")) if given else ()
    return _Read(name, ways, tuple(way.split(".")[1:]))


def _followed(value: Any, way: Iterable[str]) -> Any:
    for part in way:
        if not isinstance(value, Mapping) or part not in value:
            return _UNKNOWN
        value = value[part]
    return value


@lru_cache(maxsize=10_000)
def _compiled(text: str) -> Callable[[Mapping[str, Any]], Any]:
    return compile_expression(text, "")


# --- helpers --------------------------------------------------------------------------------------


def _inputs_of(read: Read, inputs: Mapping[str, Known]) -> list[str]:
    text = " ".join(str(value) for value in read.args.values())
    return [name for name in inputs if re.search(rf"\b{name}\b", text) and name not in read.given]


def _form(value: Any) -> str:
    """Return what a value looks like: letters and digits replaced, runs of letters shortened."""
    text = str(value)
    kind = kind_of(text)
    if kind == "e-mail":
        return kind
    if kind == "word" and text[:1].isupper():
        return "Word"
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d", "9", text))


def _as_recorded(text: str, slot: Slot) -> Any:
    """Return a text of the words as the type of the recorded values."""
    kinds = {type(one) for one in slot.examples}
    if kinds <= {int, float} and kinds:
        try:
            return int(text) if kinds == {int} else float(text)
        except ValueError:
            raise Unplanned(f"{text!r} is not a number") from None
    return text


def _is_in_order(way: Sequence[tuple[Span, str]]) -> bool:
    """Return whether texts differ, and words that are names stand side by side."""
    spans = [span for span, _ in way]
    if len(set(spans)) < len(spans):
        return False
    names = sorted(span for span, text in way if text[:1].isupper())
    return all(0 < after.start - before.end <= 1 for before, after in itertools.pairwise(names))


def _has_value(args: Json, value: Any) -> bool:
    return any(
        equal(value, one)
        for held in args.values()
        for one in (held if isinstance(held, list) else [held])
    )


def _names_in(record: Any) -> Iterator[str]:
    """Yield the words of the names of a record's fields, also of a mapping in it."""
    for name, value in record.items() if isinstance(record, dict) else ():
        yield from re.findall(r"[a-z]+", str(name).lower())
        yield from _names_in(value)


def _check_mood(effect: Effect, text: str) -> None:
    """Refuse words that speak of an effect, and don't ask for it, or ask for it twice."""
    said = requests(text, set(asking(effect)))
    if not said:
        raise Unplanned("the words speak of it, but don't ask for it")
    spoken = Counter(stem(word) for _, word in Words(text).plain())
    twice = [word for word in said if spoken[stem(word)] > 1]
    if twice:
        raise Unplanned(f"{twice[0]!r} is said more than once")


def _check_twice(planned: Sequence[EffectCall]) -> None:
    for number, one in enumerate(planned):
        if one in planned[:number]:
            raise Unplanned(f"{one.effect} is asked for twice with the same values")


def _shown(words: Words) -> str:
    return repr(" ".join(words.text.split())[:160])
