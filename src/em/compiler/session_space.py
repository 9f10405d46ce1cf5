"""Space of explanations of sessions: every text of every effect, made of what was known before.

A text that differs from session to session is aligned (`alignment`): what all share is constant,
and each column of what differs must be an input, the day, or a part of a text that was read, found
by what stands around it (`context`), as it is or in a plain form. The arguments of the looks that
this needs are explained in the same way.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from typing import Any, NamedTuple

import msgspec

from em.compiler.alignment import COARSE, Column, cut, explained, joined, pieces_of, places_of
from em.compiler.calls import TracedCall
from em.compiler.evidence import CONSTANTS_SHOWN, ENOUGH_TO_ACT, SHORT_TEXT
from em.compiler.example import Example, Read, Role
from em.compiler.explanation import (
    Constant,
    Explanation,
    FromForm,
    FromInput,
    FromRead,
    FromText,
    Leaf,
    Source,
)
from em.compiler.file_changes import EDIT
from em.compiler.forms import FORMS, applied
from em.compiler.list_forms import VALUE
from em.compiler.places import Place, key_of
from em.compiler.prompt import name_of
from em.compiler.sessions import (
    FEWEST,
    FILES,
    Check,
    Look,
    Sessions,
    UnseenEnd,
    is_told_by_output,
    narrowed,
    shown_alike,
)
from em.compiler.skeleton import Spot, weakest_and_strongest
from em.compiler.space import Slot, Space
from em.compiler.surroundings import contexts, positions, successions
from em.compiler.term import unused
from em.errors import RoutineError
from em.runner.tools.coding import TODAY
from em.values.canonical import short

MOST_RIVALS = 4
"""Explanations of one column by the parts of one text."""
MOST_COMBINED = 64
"""Ways to take one token of each text that are tried."""
WIDEST = 7
"""Digits of a number with zeros in front, and one more."""
_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b|\b\d{1,2}\.\d{1,2}\.\d{2,4}\b")


class Rows(NamedTuple):
    """The sessions that a value is compared over, and how many calls were made before it there."""

    sessions: tuple[int, ...]
    before: tuple[int, ...]


class SessionSpace(Space):
    """The explanations of all texts of sessions that did the same."""

    def __init__(self, sessions: Sessions, inputs: Mapping[str, tuple[str, ...]]) -> None:
        self.sessions, self.inputs = sessions, dict(inputs)
        self.asked: list[str] = []
        self.caution = CONSTANTS_SHOWN
        self.examples = [
            Example({name: values[number] for name, values in inputs.items()}, (), name=str(number))
            for number in range(sessions.size)
        ]
        self.roles = defaultdict(lambda: defaultdict(Leaf))
        self.reads = defaultdict(list)
        self.habits = []
        self.output = Slot("return", range(0))
        self.looks: dict[Role, Look] = {}
        self._usable: dict[Role, bool] = {}
        self._forms: dict[str, dict[str, list[tuple[str, str]]]] = {}
        self.slots = [self._slot(number) for number in range(len(sessions.effects[0]))]
        self.checks = [one for one in sessions.checks if self._is_known(one)]

    # ---- effects

    def _slot(self, number: int) -> Slot:
        calls = [own[number] for own in self.sessions.effects]
        slot = Slot(calls[0].name, range(number, number + 1))
        slot.calls = [(call.args, call.result) for call in calls]
        rows = Rows((*range(len(calls)),), tuple(call.index for call in calls))
        if any(call.args.keys() != calls[0].args.keys() for call in calls):
            raise RoutineError(f"the sessions called {slot.tool} with other arguments")
        leaves = self._leaves_of(number, rows, may_ask=False)
        look = self.sessions.files[number]
        if any(map(is_told_by_output, calls)) and shown_alike(calls) is None:
            raise UnseenEnd(
                f"only the output of {calls[0].title} tells how it ended, and it differed",
                fix="record sessions that show its exit status",
            )
        if leaves is None and slot.tool == EDIT and look is not None:
            texts = [look.text(one) or "" for one in rows.sessions]
            edits = narrowed([call.args for call in calls], texts)
            for session, args in enumerate(edits or ()):
                changed = msgspec.structs.replace(calls[session], args=args)
                self.sessions.effects[session][number] = changed
        slot.leaves.update(leaves or self._leaves_of(number, rows, may_ask=True) or {})
        if look is not None and not self.is_usable(look):
            raise RoutineError(f"nothing explains which file {slot.tool} changes")
        return slot

    def _leaves_of(self, number: int, rows: Rows, *, may_ask: bool) -> dict[Place, Leaf] | None:
        """Return what explains the arguments of an effect; None if something is to be asked for."""
        calls = [own[number] for own in self.sessions.effects]
        found: dict[Place, Leaf] = {}
        for name in calls[0].args:
            values = [call.args[name] for call in calls]
            if name == "insert_line":
                leaf = self._place(number, rows, values)
            else:
                is_old = name == "old_string"
                is_free = may_ask and not is_old and name not in calls[0].fixed
                leaf = self._leaf(values, rows, is_old=is_old, may_ask=is_free)
            if leaf is None and not may_ask:
                return None
            if leaf is None:
                raise RoutineError(
                    f"nothing explains {name} of {calls[0].title} in all sessions:"
                    f" {', '.join(short(one) for one in values[:3])}",
                    fix="record more sessions, or leave out those that differ",
                )
            found[(name,)] = leaf
        return found

    def _place(self, number: int, rows: Rows, values: Sequence[Any]) -> Leaf | None:
        """Return the line behind which a text is inserted, by all that it may depend on."""
        look = self.sessions.files[number]
        if look is None or not self.is_usable(look):
            return None
        texts = [look.text(one) or "" for one in rows.sessions]
        new = [str(own[number].args["new_string"]) for own in self.sessions.effects]
        leaf = self._empty(values, rows)
        marks = self._marks(new, rows)
        heads = [next(cut(one, own))[0] for one, own in zip(new, marks, strict=True)]
        heads = [one.partition("\n")[0] for one in heads]
        for position in positions(texts, new, values, heads):
            effect = number if position.takes_new else None
            args = (position.how, *position.about)
            source = FromText(self._role(look), "line_place", args, effect)
            leaf.explanations[source] = self._explanation(source, values, rows, rows.sessions)
        return leaf if leaf.explanations else None

    # ---- texts

    def _leaf(
        self, values: Sequence[Any], rows: Rows, *, is_old: bool = False, may_ask: bool = False
    ) -> Leaf | None:
        """Return what explains a value in all sessions; None if something of it is open.

        is_old: it must stand in a file, so nobody has to know whether it is the day.
        """
        leaf = self._empty(values, rows)
        are_texts = all(isinstance(one, str) and one for one in values)
        is_same = all(key_of(one) == key_of(values[0]) and one == values[0] for one in values)
        if is_same and (is_old or not are_texts or not self._is_dated(values, rows)):
            source = Constant(key_of(values[0]))
            leaf.explanations[source] = self._explanation(source, values, rows, rows.sessions)
            return leaf
        if not are_texts:
            return None
        built = (
            self._built(values, rows)
            or self._built(values, rows, in_forms=True)
            or (self._built(values, rows, may_ask=True) if may_ask else None)
        )
        if built is None or not self._are_settled(built):
            return None
        dated = built if is_old else [*self._with_years(built, rows)]
        if None in dated:
            return None
        leaf.built = joined(one for one in dated if one is not None)
        return leaf

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

    def _with_years(self, built: Sequence[str | Leaf], rows: Rows) -> Iterator[str | Leaf | None]:
        """Yield a text in which the year of all sessions is constant only in that year."""
        for piece in built:
            if self._year is None or not isinstance(piece, str):
                yield piece
                continue
            for number, text in enumerate(self._year.split(piece)):
                year = Column((text,) * len(rows.sessions), "day")
                yield self._column(year, rows) if number % 2 else text

    def _built(
        self, values: Sequence[str], rows: Rows, *, in_forms: bool = False, may_ask: bool = False
    ) -> list[str | Leaf] | None:
        """Return texts as what they share and what explains the rest; None if nothing does."""
        return explained(
            pieces_of(values, self._marks(values, rows, in_forms=in_forms)),
            lambda one: self._column(one, rows),
            _is_glue,
            lambda one: self._ask(one, rows) if may_ask else None,
        )

    def _are_settled(self, built: Sequence[str | Leaf]) -> bool:
        """Return whether no date is constant of which nobody knows if it was the day."""
        dated = any(isinstance(one, str) and _DATE.search(one) for one in built)
        return self.sessions.has_days or not dated

    def _empty(self, values: Sequence[Any], rows: Rows) -> Leaf:
        leaf = Leaf()
        leaf.spots = [*self._spots(values, rows)]
        return leaf

    def _spots(self, values: Sequence[Any], rows: Rows) -> Iterator[Spot]:
        for number, value in zip(rows.sessions, values, strict=True):
            yield Spot(self.examples[number], None, 0, value)

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

    def _explanation(
        self, source: Source, values: Sequence[Any], rows: Rows, made: Sequence[int]
    ) -> Explanation:
        """Return the evidence of the sessions that made a look."""
        pairs = zip(rows.sessions, self._spots(values, rows), strict=True)
        first, *others = (
            Explanation(source, spot, self._cost) for number, spot in pairs if number in made
        )
        for other in others:
            first.meet(other)
        return first

    @cached_property
    def _cost(self) -> float:
        """Bits that trying so many places gives by chance."""
        texts = [one.text(0) or "" for one in self.sessions.every_look]
        return math.log2(2 + len(self.inputs) + sum(len(text.split()) for text in texts))

    # ---- columns

    def _column(self, column: Column, rows: Rows) -> Leaf | None:
        """Return all that explains what differs at one place; None if nothing does."""
        values = column.values
        if not all(values) or (len({*values}) == 1 and not column.known):
            return None
        leaf = self._empty(values, rows)
        for source, made, parts in (
            [*self._by_inputs(values, rows)]
            or [*self._by_looks(values, rows)]
            or [*self._by_succession(values, rows)]
            or [*self._by_forms(values, rows)]
        ):
            leaf.explanations[source] = self._explanation(source, values, rows, made)
            leaf.explanations[source].parts = [*parts]
        if leaf.explanations and len({*values}) == 1:
            constant = Constant(key_of(values[0]))
            leaf.explanations[constant] = self._explanation(constant, values, rows, rows.sessions)
        if not any(isinstance(one, FromForm) for one in leaf.explanations):
            leaf.values = [(one, None) for one in values]
        is_known = any(
            isinstance(one, FromInput) or found.net >= ENOUGH_TO_ACT
            for one, found in leaf.explanations.items()
        )
        return leaf if is_known else None

    def _by_inputs(self, values: Sequence[str], rows: Rows) -> Iterator["_Found"]:
        for name, given in self.inputs.items():
            own = [given[number] for number in rows.sessions]
            if own == [*values]:
                yield _Found(FromInput((name,)), rows.sessions)
                return
        for name, given in self.inputs.items():
            own = [given[number] for number in rows.sessions]
            fitting: list[tuple[Any, str | None]] = [
                (own[0], form) for form in FORMS if [applied(form, one) for one in own] == [*values]
            ]
            for _, form in weakest_and_strongest(fitting):
                yield self._in_form(str(form), FromInput((name,)), own, rows.sessions)
            if fitting:
                return

    def _by_looks(self, values: Sequence[str], rows: Rows) -> Iterator["_Found"]:
        """Yield the looks that showed the values, as a whole or in the same context.

        Looks of all sessions go first; those of some count only if there is no other.
        """
        is_everywhere = False
        for look, made, texts, own in self._shown_before(values, rows):
            if is_everywhere and len(made) < len(rows.sessions):
                return
            if not all(one in text for one, text in zip(own, texts, strict=True)):
                continue
            for source in self._parts(look, texts, own):
                is_everywhere |= len(made) == len(rows.sessions)
                yield _Found(source, made)

    def _parts(self, look: Look, texts: Sequence[str], values: Sequence[str]) -> Iterator[Source]:
        is_whole = all(text.strip("\n") == one for text, one in zip(texts, values, strict=True))
        if not is_whole and (look.tool == TODAY or len({*values}) < min(FEWEST, len(values))):
            return
        if is_whole:
            if self.is_usable(look):
                yield FromRead(self._role(look), ())
            return
        for context in islice(contexts(texts, values), MOST_RIVALS):
            if self.is_usable(look):
                yield FromText(self._role(look), "between", (*context, "line"))

    def _by_succession(self, values: Sequence[str], rows: Rows) -> Iterator["_Found"]:
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
                source = FromText(self._role(look), "next_number", context)
                if wide == own:
                    yield _Found(source, made)
                else:
                    yield self._in_form(f"{VALUE} | int", source, wide, made)
                break

    def _by_forms(self, values: Sequence[str], rows: Rows) -> Iterator["_Found"]:
        """Yield the parts of shown texts that give the values in a plain form."""
        for look, made, texts, own in self._shown_before(values, rows):
            if look.tool == TODAY or len({*own}) < min(FEWEST, len(own)):
                continue
            fitting = [
                self._formed(text).get(one, []) for text, one in zip(texts, own, strict=True)
            ]
            forms = set.intersection(*({form for form, _ in one} for one in fitting))
            for form in sorted(forms):
                tokens = [[token for other, token in one if other == form] for one in fitting]
                for chosen in islice(product(*tokens), MOST_COMBINED):
                    context = next(contexts(texts, chosen), None)
                    if context is not None and self.is_usable(look):
                        source = FromText(self._role(look), "between", (*context, "line"))
                        yield self._in_form(form, source, chosen, made)
                        return

    def _in_form(
        self, form: str, source: FromInput | FromText, values: Sequence[str], made: Sequence[int]
    ) -> "_Found":
        """Return that values of a source are written in a form."""
        some = Rows(tuple(made), tuple(0 for _ in made))
        return _Found(FromForm(form, source), made, [self._explanation(source, values, some, made)])

    def _formed(self, text: str) -> dict[str, list[tuple[str, str]]]:
        """Return the plain forms of the tokens of a text, each with the form and the token."""
        if text not in self._forms:
            found: dict[str, list[tuple[str, str]]] = defaultdict(list)
            for token in dict.fromkeys(COARSE.findall(text)):
                if len(token) > 2:
                    for form in FORMS:
                        made = applied(form, token)
                        if made and made != token:
                            found[made].append((form, token))
            self._forms[text] = found
        return self._forms[text]

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

    def _role(self, look: Look) -> Role:
        return Role(look.tool, (), look.which)

    def is_usable(self, look: Look) -> bool:
        """Return whether a look can be made again: all of its arguments are explained."""
        role = self._role(look)
        if role not in self._usable:
            self._usable[role] = False  # what it shows can't say how to make it
            self._usable[role] = self._use(role, look)
        return self._usable[role]

    def _use(self, role: Role, look: Look) -> bool:
        calls = [call for call in look.calls if call is not None]
        if any(call.args.keys() != calls[0].args.keys() for call in calls):
            return False
        rows = Rows(tuple(look.made), tuple(call.index for call in calls))
        leaves: dict[str, Leaf] = {}
        for name in calls[0].args:
            values = [call.args[name] for call in calls]
            if name in calls[0].fixed and any(one != values[0] for one in values):
                return False
            leaf = self._leaf(values, rows)
            if leaf is None:
                return False
            leaves[name] = leaf
        self.looks[role] = look
        self.roles[role] = defaultdict(Leaf, leaves)
        self.reads[role] = [
            (self.examples[number], None, Read(call.name, call.args, call.result, is_file=True))
            for number, call in enumerate(look.calls)
            if call is not None
        ]
        return True

    # ---- checks

    def _is_known(self, check: Check) -> bool:
        """Return whether a check can be made again.

        Raises RoutineError if not, where all sessions made it before something that is no change
        of a file: nobody knows whether that may be done without it.
        """
        look, names = check.look, [slot.tool for slot in self.slots]
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

    def _ask(self, column: Column, rows: Rows) -> Leaf | None:
        """Make what nothing explains an input, if it is a value of one line."""
        values = column.values
        is_plain = all(one.strip() == one and one and "\n" not in one for one in values)
        if not is_plain or len(rows.sessions) < self.sessions.size:
            return None
        name = unused(name_of(values, self.sessions), self.inputs)
        self.inputs[name] = values
        self.asked.append(name)
        for example, value in zip(self.examples, values, strict=True):
            example.inputs[name] = value
        return self._column(column, rows)


class _Found(NamedTuple):
    """A source, the sessions that show it, and what it is made of."""

    source: Source
    made: Sequence[int]
    parts: Sequence[Explanation] = ()


def _is_glue(text: str) -> bool:
    """Return whether a text that all share may be inside a value: signs and spaces on a line."""
    return "\n" not in text and not any(map(str.isalnum, text))
