"""Session values: what gives each text that sessions wrote, the same in all of them.

A text that differs from session to session is aligned (`alignment`): what all share is constant,
and what differs must be an input, the day, or a part of a text that was read, found by what stands
around it (`surroundings`), as it is or in a plain form. The arguments of the looks that this needs
are explained in the same way.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice, product
from typing import Any, NamedTuple

from em.compiler.alignment import COARSE, Column, cut, explained, joined, pieces_of, places_of
from em.compiler.calls import TracedCall
from em.compiler.evidence import ENOUGH_ALIKE, ENOUGH_TO_ACT, SHORT_TEXT, information
from em.compiler.forms import FORMS, VALUE, applied
from em.compiler.places import key_of
from em.compiler.sessions import (
    FEWEST,
    FILES,
    Check,
    Look,
    Sessions,
    UnseenEnd,
    is_told_by_output,
    name_of,
    shown_alike,
)
from em.compiler.skeleton import weakest_and_strongest
from em.compiler.surroundings import contexts, positions, successions
from em.compiler.term import unused
from em.errors import RoutineError
from em.runner.tools.coding import TODAY
from em.values.canonical import short

MOST_RIVALS = 4
"""Ways to find one value in the parts of one text."""
MOST_COMBINED = 64
"""Ways to take one token of each text that are tried."""
WIDEST = 7
"""Digits of a number with zeros in front, and one more."""
_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b|\b\d{1,2}\.\d{1,2}\.\d{2,4}\b")


class Rows(NamedTuple):
    """The sessions that a value is compared over, and how many calls were made before it there."""

    sessions: tuple[int, ...]
    before: tuple[int, ...]


class Part(NamedTuple):
    """What gives a value: the input `of`, what the look with this number shows, or a part of that.

    how: the function that finds the part, and its arguments. effect: the one whose new text it
    takes, too. form: how the value is written, in which VALUE stands for it.
    """

    of: str | int
    how: str = ""
    args: tuple[str, ...] = ()
    effect: int | None = None
    form: str = ""


class Way(NamedTuple):
    """A way to know a value; without a part it is constant.

    made: the sessions that show it. bits: the evidence for it, less what chance gives.
    """

    part: Part | None
    made: tuple[int, ...]
    bits: float


class Differing(NamedTuple):
    """The values at one place of all sessions, and all ways to know them, which must agree."""

    values: tuple[Any, ...]
    ways: tuple[Way, ...]


Value = Sequence[str | Differing]
"""A value: constant texts, and what differs between them."""


@lru_cache(maxsize=100)
def _formed(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the plain forms of the tokens of a text, each with the form and the token."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for token in dict.fromkeys(COARSE.findall(text)):
        for form in FORMS if len(token) > 2 else ():
            made = applied(form, token)
            if made and made != token:
                found[made].append((form, token))
    return found


class SessionValues:
    """What gives the arguments of all effects of sessions, and those of the looks that they need.

    arguments: by effect. looks: all that may be needed; `needed` has the arguments of those that
    can be made again. checks: those that can be. asked: the inputs that nobody said.
    """

    def __init__(self, sessions: Sessions, inputs: Mapping[str, tuple[str, ...]]) -> None:
        self.sessions, self.inputs = sessions, dict(inputs)
        self.asked: list[str] = []
        self.looks = [*sessions.every_look, *(one.look for one in sessions.checks)]
        self.needed: dict[int, dict[str, Value] | None] = {}
        self.arguments = [self._effect(number) for number in range(len(sessions.effects[0]))]
        self.checks = [one for one in sessions.checks if self._is_known(one)]

    # ---- effects

    def _effect(self, number: int) -> dict[str, Value]:
        calls = [own[number] for own in self.sessions.effects]
        rows = Rows((*range(len(calls)),), tuple(call.index for call in calls))
        if any(call.args.keys() != calls[0].args.keys() for call in calls):
            raise RoutineError(f"the sessions called {calls[0].name} with other arguments")
        if any(map(is_told_by_output, calls)) and shown_alike(calls) is None:
            raise UnseenEnd(
                f"only the output of {calls[0].title} tells how it ended, and it differed",
                fix="record sessions that show its exit status",
            )
        look = self.sessions.files[number]
        found: dict[str, Value] = {}
        for name in calls[0].args:
            values = [call.args[name] for call in calls]
            if name == "insert_line":
                value = self._place(number, rows, values)
            else:
                is_old = name == "old_string"
                is_free = not is_old and name not in calls[0].fixed
                value = self._value(values, rows, is_old=is_old, may_ask=is_free)
            if value is None or not self._can_be_known(value):
                raise RoutineError(
                    f"nothing explains {name} of {calls[0].title} in all sessions:"
                    f" {', '.join(short(one) for one in values[:3])}",
                    fix="record more sessions, or leave out those that differ",
                )
            found[name] = value
        if look is not None and not self.is_usable(look):
            raise RoutineError(f"nothing explains which file {calls[0].name} changes")
        return found

    def _place(self, number: int, rows: Rows, values: Sequence[Any]) -> Value | None:
        """Return the line behind which a text is inserted, by all that it may depend on."""
        look = self.sessions.files[number]
        if look is None or not self.is_usable(look):
            return None
        texts = [look.text(one) or "" for one in rows.sessions]
        new = [str(own[number].args["new_string"]) for own in self.sessions.effects]
        marks = self._marks(new, rows)
        heads = [next(cut(one, own))[0] for one, own in zip(new, marks, strict=True)]
        heads = [one.partition("\n")[0] for one in heads]
        # A place in a file is what holds in all sessions, and all must agree.
        ways = [
            Way(
                Part(
                    self._number(look),
                    "line_place",
                    (position.how, *position.about),
                    number if position.takes_new else None,
                ),
                rows.sessions,
                math.inf,
            )
            for position in positions(texts, new, values, heads)
        ]
        return [Differing(tuple(values), tuple(ways))] if ways else None

    # ---- which way is taken

    def best(self, one: Differing) -> Way | None:
        """Return the way that gives a value: with the fewest looks, of the most sessions."""
        rows = [way for way in one.ways if way.part is None or way.bits >= ENOUGH_TO_ACT]

        def is_weak(way: Way) -> bool:
            return way.part is None and len(way.made) < ENOUGH_ALIKE

        # What few sessions had alike is constant only if the inputs don't explain it.
        if any(not is_weak(way) and not self.looks_of(way) for way in rows):
            rows = [way for way in rows if not is_weak(way)]
        order = [(len(self.looks_of(way)), -len(way.made), self._length(way)) for way in rows]
        return rows[order.index(min(order))] if rows else None

    def _length(self, way: Way) -> int:
        part = way.part
        look = self.looks[part.of] if part and isinstance(part.of, int) else None
        return len(repr((look and (look.tool, look.which), part and part[1:])))

    def looks_of(self, way: Way) -> set[int]:
        """Return the numbers of the looks that a way needs, and of those that they need."""
        if way.part is None or isinstance(way.part.of, str):
            return set()
        found = {way.part.of}
        for value in (self.needed.get(way.part.of) or {}).values():
            for one in value:
                inner = None if isinstance(one, str) else self.best(one)
                found |= self.looks_of(inner) if inner is not None else set()
        return found

    def _can_be_known(self, value: Value) -> bool:
        return all(isinstance(one, str) or self.best(one) is not None for one in value)

    # ---- texts

    def _value(
        self, values: Sequence[Any], rows: Rows, *, is_old: bool = False, may_ask: bool = False
    ) -> Value | None:
        """Return what gives a value in all sessions; None if something of it is open.

        is_old: it must stand in a file, so nobody has to know whether it is the day.
        """
        are_texts = all(isinstance(one, str) and one for one in values)
        is_same = all(key_of(one) == key_of(values[0]) and one == values[0] for one in values)
        if is_same and (is_old or not are_texts or not self._is_dated(values, rows)):
            return [Differing(tuple(values), (Way(None, rows.sessions, 0.0),))]
        if not are_texts:
            return None
        built = (
            self._built(values, rows)
            or self._built(values, rows, in_forms=True)
            or (self._built(values, rows, may_ask=True) if may_ask else None)
        )
        # Of a date that all share nobody may know whether it was the day.
        is_dated = any(isinstance(one, str) and _DATE.search(one) for one in built or ())
        if built is None or (is_dated and not self.sessions.has_days):
            return None
        dated = built if is_old else [*self._with_years(built, rows)]
        return None if None in dated else joined(one for one in dated if one is not None)

    def _is_dated(self, texts: Sequence[str], rows: Rows) -> bool:
        """Return whether a text that was always the same has a date, or the day of each session."""
        year = self._year and self._year.search(texts[0])
        return bool(year or _DATE.search(texts[0])) or any(self._marks(texts, rows))

    @cached_property
    def _year(self) -> re.Pattern[str] | None:
        """The year in which all sessions were, as a number of its own; None if they had several."""
        looks = (look for look in self.sessions.looks if look.tool == TODAY)
        shown = {
            one.result for look in looks if look.which[:3] == "%Y " for one in look.calls if one
        }
        return re.compile(rf"(?<!\d)({shown.pop()})(?!\d)") if len(shown) == 1 else None

    def _with_years(self, built: Value, rows: Rows) -> Iterator[str | Differing | None]:
        """Yield a text in which the year of all sessions is constant only in that year."""
        for piece in built:
            if self._year is None or not isinstance(piece, str):
                yield piece
                continue
            for number, text in enumerate(self._year.split(piece)):
                year = Column((text,) * len(rows.sessions), "day")
                yield self._differing(year, rows) if number % 2 else text

    def _built(
        self, values: Sequence[str], rows: Rows, *, in_forms: bool = False, may_ask: bool = False
    ) -> list[str | Differing] | None:
        """Return texts as what they share and what explains the rest; None if nothing does."""
        return explained(
            pieces_of(values, self._marks(values, rows, in_forms=in_forms)),
            lambda one: self._differing(one, rows),
            lambda text: "\n" not in text and not any(map(str.isalnum, text)),
            lambda one: self._ask(one, rows) if may_ask else None,
        )

    def _marks(
        self, values: Sequence[str], rows: Rows, *, in_forms: bool = False
    ) -> list[dict[str, str]]:
        """Return, of each text, the values in it that are known by name: inputs, and the day.

        All texts have each of them. in_forms: inputs in their plain forms too.
        """
        known = [
            ("day", [str(call.result) for call in calls if call is not None])
            for look in self.sessions.looks
            if look.tool == TODAY and (calls := [look.calls[number] for number in rows.sessions])
        ]
        for name, given in self.inputs.items():
            own = [given[number] for number in rows.sessions]
            known.append((f"input {name}", own))
            for form in FORMS if in_forms else ():
                made = [applied(form, one) or "" for one in own]
                known += [(f"input {name}", made)] if min(map(len, made)) >= SHORT_TEXT else []
        marks: list[dict[str, str]] = [{} for _ in values]
        for name, own in known:
            if len(own) == len(values) and all(map(places_of, values, own)):
                for mark, one in zip(marks, own, strict=True):
                    mark[one] = name
        return marks

    # ---- what differs

    def _differing(self, column: Column, rows: Rows) -> Differing | None:
        """Return all ways to know what differs at one place; None if there is none."""
        values = column.values
        if not all(values) or (len({*values}) == 1 and not column.known):
            return None
        ways = (
            [*self._by_inputs(values, rows)]
            or [*self._by_looks(values, rows)]
            or [*self._by_succession(values, rows)]
            or [*islice(self._by_forms(values, rows), 1)]
        )
        is_input = any(way.part and isinstance(way.part.of, str) for way in ways)
        if not is_input and all(way.bits < ENOUGH_TO_ACT for way in ways):
            return None
        if len({*values}) == 1:
            ways.append(Way(None, rows.sessions, 0.0))
        return Differing(tuple(values), tuple(ways))

    def _way(self, part: Part, made: Sequence[int], *shown: Sequence[str]) -> Way:
        """Return a way with its evidence. shown: the values, in each form that they go through."""
        bits = min(sum(map(information, {*values})) for values in shown) - self._cost
        return Way(part, tuple(made), bits)

    @cached_property
    def _cost(self) -> float:
        """Bits that trying so many places gives by chance."""
        texts = [one.text(0) or "" for one in self.sessions.every_look]
        return math.log2(2 + len(self.inputs) + sum(len(text.split()) for text in texts))

    def _by_inputs(self, values: Sequence[str], rows: Rows) -> Iterator[Way]:
        given = {name: [own[n] for n in rows.sessions] for name, own in self.inputs.items()}
        for name, own in given.items():
            if own == [*values]:
                yield self._way(Part(name), rows.sessions, values)
                return
        for name, own in given.items():
            fitting: list[tuple[Any, str | None]] = [
                (own[0], form) for form in FORMS if [applied(form, one) for one in own] == [*values]
            ]
            for _, form in weakest_and_strongest(fitting):
                yield self._way(Part(name, form=str(form)), rows.sessions, values, own)
            if fitting:
                return

    def _by_looks(self, values: Sequence[str], rows: Rows) -> Iterator[Way]:
        """Yield the looks that showed the values, as a whole or in the same context.

        Looks of all sessions go first; those of some count only if there is no other.
        """
        is_everywhere = False
        for look, made, texts, own in self._shown_before(values, rows):
            if is_everywhere and len(made) < len(rows.sessions):
                return
            if all(one in text for one, text in zip(own, texts, strict=True)):
                for part in self._parts(look, texts, own):
                    is_everywhere |= len(made) == len(rows.sessions)
                    yield self._way(part, made, own)

    def _parts(self, look: Look, texts: Sequence[str], values: Sequence[str]) -> Iterator[Part]:
        is_whole = all(text.strip("\n") == one for text, one in zip(texts, values, strict=True))
        if is_whole:
            if self.is_usable(look):
                yield Part(self._number(look))
        elif look.tool != TODAY and len({*values}) >= min(FEWEST, len(values)):
            for context in islice(contexts(texts, values), MOST_RIVALS):
                if self.is_usable(look):
                    yield Part(self._number(look), "between", (*context, "line"))

    def _by_succession(self, values: Sequence[str], rows: Rows) -> Iterator[Way]:
        """Yield the looks that showed the numbers of which the values are the next ones.

        They may be shown with zeros in front.
        """
        if not all(one.isdecimal() and int(one) for one in values):
            return
        for look, made, texts, own in self._shown_before(values, rows):
            for width in range(WIDEST):
                wide = [one.zfill(width) for one in own]
                context = next(successions(texts, wide), None)
                if len({*own}) < min(FEWEST, len(own)) or not context or not self.is_usable(look):
                    continue
                form = "" if wide == own else f"{VALUE} | int"
                part = Part(self._number(look), "next_number", tuple(context), form=form)
                yield self._way(part, made, own, wide)
                break

    def _by_forms(self, values: Sequence[str], rows: Rows) -> Iterator[Way]:
        """Yield the parts of shown texts that give the values in a plain form."""
        for look, made, texts, own in self._shown_before(values, rows):
            if look.tool == TODAY or len({*own}) < min(FEWEST, len(own)):
                continue
            fitting = [_formed(text).get(one, []) for text, one in zip(texts, own, strict=True)]
            forms = set.intersection(*({form for form, _ in one} for one in fitting))
            for form in sorted(forms):
                tokens = [[token for other, token in one if other == form] for one in fitting]
                for chosen in islice(product(*tokens), MOST_COMBINED):
                    context = next(contexts(texts, chosen), None)
                    if context is not None and self.is_usable(look):
                        args = (*context, "line")
                        part = Part(self._number(look), "between", args, form=form)
                        yield self._way(part, made, own, chosen)

    def _shown_before(
        self, values: Sequence[str], rows: Rows
    ) -> list[tuple[Look, list[int], list[str], list[str]]]:
        """Return the looks that enough sessions made before, those of most sessions first.

        Each with these sessions, what it showed in them, and their values.
        """
        found = []
        for look in self.sessions.every_look:
            made = {
                number: value
                for number, before, value in zip(*rows, values, strict=True)
                if (call := look.calls[number]) is not None and call.index < before
            }
            if len(made) >= max(min(FEWEST, len(rows.sessions)), len(rows.sessions) / 2):
                texts = [look.text(number) or "" for number in made]
                found.append((look, [*made], texts, [*made.values()]))
        return sorted(found, key=lambda row: -len(row[1]))

    # ---- looks

    def _number(self, look: Look) -> int:
        return next(number for number, one in enumerate(self.looks) if one is look)

    def is_usable(self, look: Look) -> bool:
        """Return whether a look can be made again: all of its arguments are explained."""
        number = self._number(look)
        if number not in self.needed:
            self.needed[number] = None  # what it shows can't say how to make it
            self.needed[number] = self._arguments(look)
        return self.needed[number] is not None

    def _arguments(self, look: Look) -> dict[str, Value] | None:
        calls = [call for call in look.calls if call is not None]
        if any(call.args.keys() != calls[0].args.keys() for call in calls):
            return None
        rows = Rows(tuple(look.made), tuple(call.index for call in calls))
        found: dict[str, Value] = {}
        for name in calls[0].args:
            values = [call.args[name] for call in calls]
            if name in calls[0].fixed and any(one != values[0] for one in values):
                return None
            value = self._value(values, rows)
            if value is None or not self._can_be_known(value):
                return None
            ways = [None if isinstance(one, str) else self.best(one) for one in value]
            is_own = len(value) > 1 or ways[0] is None or ways[0].part is None
            # What few of the sessions looked for is what they looked for, no constant.
            if is_own and 2 * len(calls) < self.sessions.size:
                return None
            found[name] = value
        return found

    # ---- checks

    def _is_known(self, check: Check) -> bool:
        """Return whether a check can be made again.

        Raises RoutineError if not, where all sessions made it before something that is no change
        of a file: nobody knows whether that may be done without it.
        """
        look, names = check.look, [one.name for one in self.sessions.effects[0]]
        made = [call for call in look.calls if call is not None]
        is_own = len(made) < FEWEST and self._is_about_session(made[0], look.made[0])
        is_told = shown_alike(made) is not None
        if not is_own and is_told and self.is_usable(look):
            return True
        is_last = FILES.isdisjoint(names[check.after :]) and check.after < len(names)
        if len(made) == self.sessions.size and not is_told:
            raise UnseenEnd(
                f"only the output of {made[0].title} tells how it ended, and it differed",
                fix="record sessions that show its exit status",
            )
        if len(made) == self.sessions.size and is_last:
            raise RoutineError(
                f"nothing explains the values of {made[0].title}, which all sessions ran before"
                f" {self.sessions.effects[0][check.after].title}",
                fix="record more sessions, or leave out those that differ",
            )
        return False

    def _is_about_session(self, call: TracedCall, session: int) -> bool:
        """Return whether a command has a value that only its own session was about."""
        said = [values[session] for values in self.inputs.values()]
        forms = [applied(form, one) for one in said for form in FORMS]
        return any(
            one in text for one in (*said, *forms) if one for text in map(str, call.args.values())
        )

    # ---- inputs that nobody said

    def _ask(self, column: Column, rows: Rows) -> Differing | None:
        """Make what nothing explains an input, if it is a value of one line."""
        values = column.values
        is_plain = all(one.strip() == one and one and "\n" not in one for one in values)
        if not is_plain or len(rows.sessions) < self.sessions.size:
            return None
        name = unused(name_of(values, self.sessions), self.inputs)
        self.inputs[name] = values
        self.asked.append(name)
        return self._differing(column, rows)
