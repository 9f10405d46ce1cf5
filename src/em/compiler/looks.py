"""Looks: the reads that traces of one kind made to see the state of things, and their arguments.

Every value of a call gets all origins that no trace contradicts. A read that a trace made for
several records is a look for each item of a list; the record that is meant is the one that has a
value of the request in it.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.evidence import (
    ENOUGH,
    OWN_REASON,
    information,
    is_incredible,
    of_choice,
    of_constant,
    of_match,
)
from em.compiler.homes import Example
from em.compiler.sources import places, quoted
from em.runner.expressions.functions import ANY
from em.runner.remedies import MEMBER, Findings, Look, Origin, at, number_of, plain_text
from em.runner.symptoms import member_name

FIRST = 3
"""Traces whose values propose origins; the others confirm or refute them."""
MOST_FIELDS = 40
"""Fields of a record that may tell it from others."""


class Occurrence(NamedTuple):
    """A value of a call, and what was known before the call. `task`: which task it belongs to."""

    value: Any
    found: Findings
    task: str


class Seen(NamedTuple):
    """A call of a trace: the look that it is, or none; the value that it was made with."""

    call: TracedCall
    look: str
    member: Any = None


def origins_of(occurrences: Sequence[Occurrence]) -> list[Origin]:
    """Return all origins of a value that no trace contradicts."""
    proposed = {
        msgspec.json.encode(origin): origin
        for one in occurrences[:FIRST]
        for origin in _proposed(one.value, one.found)
    }
    kept = [origin for origin in proposed.values() if _is_confirmed(origin, occurrences)]
    if any(not one.always and not one.where for one in kept) and all(
        is_incredible(one.value) for one in occurrences
    ):
        # An id that stands in the request or in a result is not a constant.
        kept = [one for one in kept if not one.always]
    return kept


def is_enough(
    name: str,
    origins: Iterable[Origin],
    occurrences: Sequence[Occurrence],
    reasons: Collection[str] = (),
) -> bool:
    """Return whether one of the origins of a value may be acted on.

    reasons: symptoms that are the reason for the call.
    """
    return any(_bits(name, one, occurrences, reasons) >= ENOUGH for one in origins)


def _proposed(value: Any, found: Findings) -> Iterator[Origin]:
    yield Origin(always=(value,))
    if value is None or isinstance(value, bool | dict | list):
        return
    wanted = plain_text(value)
    is_number = not isinstance(value, str)
    for name, said in found.values.items():
        if plain_text(said) == wanted and (not is_number or number_of(said) is not None):
            yield Origin(said=name, is_number=is_number)
    for look, result in found.results.items():
        if found.members.get(look) is not None and plain_text(found.members[look]) == wanted:
            yield Origin(look=look, path=MEMBER)
        for place in places(0, result):
            if plain_text(place.value) != wanted or any("." in str(one) for one in place.parts):
                continue
            if place.is_fixed:
                yield Origin(look=look, path=".".join(map(str, place.parts)))
            elif len(place.collections) == 1 and ANY in place.general:
                yield from _selections(look, place, found.values)


def _selections(look: str, place: Any, values: Mapping[str, Any]) -> Iterator[Origin]:
    """Yield how an item is told from the others of its list: by a field that only it has so."""
    depth, items = place.collections[0]
    item = items[place.parts[depth]]
    path, field = ".".join(place.general[: depth + 1]), ".".join(place.general[depth + 1 :])
    if not isinstance(item, dict) or not field:
        return
    others = [one for one in _items(items) if one is not item]
    if any(plain_text(at(one, field)) == plain_text(place.value) for one in others):
        return
    for key in list(item)[:MOST_FIELDS]:
        own = item[key]
        if key == field or "." in str(key) or isinstance(own, dict | list | float) or own is None:
            continue
        if any(plain_text(at(one, str(key))) == plain_text(own) for one in others):
            continue
        yield Origin(look=look, path=path, where=str(key), equals=own, field=field)
        for name, said in values.items():
            if plain_text(said) == plain_text(own):
                yield Origin(look=look, path=path, where=str(key), like=name, field=field)


def _items(items: Any) -> Iterable[Any]:
    return items.values() if isinstance(items, dict) else items


def _is_confirmed(origin: Origin, occurrences: Sequence[Occurrence]) -> bool:
    """Return whether no occurrence contradicts an origin, and at least half confirm it."""
    confirmed = 0
    for one in occurrences:
        if origin.look and origin.look not in one.found.results:
            continue  # this trace did not look there
        found = one.found.all(origin)
        if len(found) != 1 or plain_text(found[0]) != plain_text(one.value):
            return False
        confirmed += 1
    return confirmed * 2 >= len(occurrences)


def _bits(
    name: str, origin: Origin, occurrences: Sequence[Occurrence], reasons: Collection[str]
) -> float:
    """Return the evidence for an origin."""
    tasks = len({one.task for one in occurrences})
    if origin.always:
        return of_constant(tasks)
    if origin.where:
        whole = Origin(look=origin.look, path=origin.path)
        sizes = [len(one.found.all(whole)) for one in occurrences]
        shown = member_name(f"{origin.look}: {origin.path}.{origin.where}", origin.equals)
        own = OWN_REASON if not origin.like and shown in reasons else 0.0
        return of_choice(max(sizes, default=1), tasks) + own
    last = (origin.said or origin.path).rpartition(".")[2]
    distinct = {plain_text(one.value): one.value for one in occurrences}
    counts = [1 + sum(1 for _ in places(0, one.found.results)) for one in occurrences[:FIRST]]
    return sum(
        of_match(value, math.ceil(max(counts)), equal_names=last == name)
        for value in distinct.values()
    )


class Looks:
    """The looks of traces, and which call of a trace is which look."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples
        self.looks: dict[str, Look] = {}
        self._named: dict[tuple[int, int], tuple[str, Any]] = {}
        for tool in self._tools():
            self._learn(tool)

    def calls(self, number: int) -> list[Seen]:
        """Return the calls of a trace, each with the look that it is."""
        return [
            Seen(call, *self._named.get((number, call.index), ("", None)))
            for call in self.examples[number].calls
        ]

    def before(self, number: int, index: int) -> Findings:
        """Return what was known in a trace before a call."""
        found = Findings(self.examples[number].said)
        for seen in self.calls(number)[:index]:
            if seen.look:
                found.add(seen.look, seen.call.result, seen.member)
        return found

    def occurrences(self, calls: Sequence[tuple[int, TracedCall]], name: str) -> list[Occurrence]:
        """Return the values of an argument with what was known before each call."""
        return [
            Occurrence(call.args.get(name), self.before(number, call.index), self.task(number))
            for number, call in calls
        ]

    def task(self, number: int) -> str:
        """Return a text that traces of one task share: the same words and the same effects."""
        example = self.examples[number]
        return quoted([example.said, *([call.name, call.args] for call in example.writes)])

    def _tools(self) -> list[str]:
        """Return the tools of reads, those that were called first before the others."""
        ranks: dict[str, list[int]] = {}
        for example in self.examples:
            firsts: dict[str, int] = {}
            for call in example.calls:
                if call.effect == "read":
                    firsts.setdefault(call.name, call.index)
            for tool, index in firsts.items():
                ranks.setdefault(tool, []).append(index)
        return sorted(ranks, key=lambda tool: sum(ranks[tool]) / len(ranks[tool]))

    def _learn(self, tool: str) -> None:
        made = {
            number: [call for call in example.calls if call.name == tool and call.effect == "read"]
            for number, example in enumerate(self.examples)
        }
        made = {number: calls for number, calls in made.items() if calls}
        if all(len({quoted(call.args) for call in calls}) == 1 for calls in made.values()):
            self._add(tool, made)
        elif not self._learn_each(tool, made):
            self._learn_constants(tool, made)

    def _add(self, tool: str, made: Mapping[int, Sequence[TracedCall]], name: str = "") -> None:
        """Take the calls of a tool as one look."""
        name = name or tool
        firsts = [(number, calls[0]) for number, calls in made.items()]
        args = self._arguments(firsts)
        if args is None:
            return
        self.looks[name] = Look(tool=tool, args=args)
        for number, calls in made.items():
            for call in calls:
                self._named[number, call.index] = name, None

    def _arguments(
        self, calls: Sequence[tuple[int, TracedCall]], without: str = ""
    ) -> dict[str, list[Origin]] | None:
        """Return the origins of all arguments; None if one has none."""
        found = {}
        for name in {name: None for _, call in calls for name in call.args}:
            if name == without:
                continue
            occurrences = self.occurrences(calls, name)
            origins = origins_of(occurrences)
            if not is_enough(name, origins, occurrences):
                origins = _constant(occurrences)
            if not origins:
                return None
            found[name] = origins
        return found

    def _learn_constants(self, tool: str, made: Mapping[int, Sequence[TracedCall]]) -> None:
        """Take the calls of a tool with the same arguments as a look of their own."""
        by_args: dict[str, dict[int, list[TracedCall]]] = {}
        for number, calls in made.items():
            for call in calls:
                by_args.setdefault(quoted(call.args), {}).setdefault(number, []).append(call)
        for args, own in by_args.items():
            if len(own) * 2 >= len(made):
                self._add(tool, own, f"{tool} {args}")

    def _learn_each(self, tool: str, made: Mapping[int, Sequence[TracedCall]]) -> bool:
        """Take the calls of a tool as a look for each item of a list, if they are one."""
        firsts = [(number, call) for number, calls in made.items() for call in calls]
        names = {name for _, call in firsts for name in call.args}
        for by in sorted(names):
            args = self._arguments(firsts[:1], without=by)
            each = self._list_of(by, made)
            if each is None or args is None:
                continue
            joins = self._joins(by, made)
            if not joins:
                continue
            self.looks[tool] = Look(tool=tool, args=args, each=each, by=by, joins=joins)
            self._name_meant(tool, made)
            return True
        return False

    def _list_of(self, by: str, made: Mapping[int, Sequence[TracedCall]]) -> Origin | None:
        """Return the list whose items are what the calls were made with, in every trace."""
        proposed: dict[Origin, None] = {}
        for number, calls in list(made.items())[:FIRST]:
            found, wanted = self.before(number, calls[0].index), plain_text(calls[0].args.get(by))
            for look, result in found.results.items():
                for place in places(0, result):
                    if not place.is_fixed and plain_text(place.value) == wanted:
                        proposed[Origin(look=look, path=".".join(place.general))] = None
        for origin in proposed:
            if all(self._holds_all(origin, by, number, calls) for number, calls in made.items()):
                return origin
        return None

    def _holds_all(self, origin: Origin, by: str, number: int, calls: Sequence[TracedCall]) -> bool:
        found = self.before(number, calls[0].index)
        held = {plain_text(one) for one in found.all(origin)}
        return all(plain_text(call.args.get(by)) in held for call in calls)

    def _joins(self, by: str, made: Mapping[int, Sequence[TracedCall]]) -> dict[str, Origin]:
        """Return the fields of the record that is meant, with the value of the request in them."""
        candidates: dict[tuple[str, str], int] = {}
        for number, calls in made.items():
            records = {plain_text(call.args.get(by)): call.result for call in calls}
            values = self.before(number, calls[0].index).values
            for name, said in values.items():
                for field in _fields_with(records.values(), said):
                    candidates[field, name] = candidates.get((field, name), 0) + 1
        return {
            field: Origin(said=name)
            for (field, name), count in candidates.items()
            if count == len(made)
        }

    def _name_meant(self, tool: str, made: Mapping[int, Sequence[TracedCall]]) -> None:
        look = self.looks[tool]
        for number, calls in made.items():
            values = Findings(self.examples[number].said)
            for call in calls:
                is_meant = all(
                    plain_text(at(call.result, field)) == plain_text(values.agreed("", [origin]))
                    for field, origin in look.joins.items()
                )
                if is_meant:
                    self._named[number, call.index] = tool, call.args.get(look.by)


def _fields_with(records: Iterable[Any], said: Any) -> set[str]:
    """Return the fields in which exactly one record has a value that is said."""
    counts: dict[str, int] = {}
    if information(said) < ENOUGH:
        return set()
    for record in records:
        for field in record if isinstance(record, dict) else ():
            if plain_text(at(record, field)) == plain_text(said):
                counts[field] = counts.get(field, 0) + 1
    return {field for field, count in counts.items() if count == 1}


def _constant(occurrences: Sequence[Occurrence]) -> list[Origin]:
    """Return the value of a read that was always the same: it does no harm."""
    if len({quoted(one.value) for one in occurrences}) == 1:
        return [Origin(always=(occurrences[0].value,))]
    return []
