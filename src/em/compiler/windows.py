"""Windows: how much time may go by between a moment in a record and the time that was read.

The later moment is an input, or was read without asking for anything, as a clock is. What limits
the time is a number that was read beside it, also one of the element that another value names; of
several the tightest. Where nothing limits it, the agent knew a limit: no more time may go by than
recordings ever saw.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.places import Key, is_number, is_scalar, key_of
from em.compiler.situation import Known, Pair, Said, Situation, fields, read_off, said_in
from em.compiler.term import field_text, fits_text
from em.runner.expressions.functions import SECONDS, days, elapsed
from em.values.times import is_date, seconds_of

FAR_FROM_IT = 10
"""A limit so many times what was ever reached is about something else."""
FEWEST_SEEN = 10
"""Units of time below which a smaller unit says how long it ever took."""


class _Span(NamedTuple):
    """The time from one moment to another in one situation, and the numbers that may limit it."""

    start: Said
    end: Said
    limits: Mapping[str, Said]

    @property
    def are_dates(self) -> bool:
        """Whether both are dates without a time."""
        return all(is_date(one.value) and len(one.value) == 10 for one in (self.start, self.end))

    def lasted(self, unit: str) -> float:
        """Return how long it took; for no unit, how many days the calendar has between them."""
        if unit:
            return elapsed(self.start.value, self.end.value, unit)
        both = (self.start.value, self.end.value)
        return days(both[0], both[1]) if all(map(is_date, both)) else math.inf

    def pair(self, unit: str, limit: str) -> Pair:
        """Return how long it took beside a limit."""
        other = self.limits[limit]
        when = tuple(sorted({self.start.when, self.end.when, other.when} - {""}))
        return Pair(self.lasted(unit), other.value, when)


def windows(
    situations: Sequence[Situation], is_used: Callable[[str], bool], bounded: Iterable[str]
) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that no more time went by than a number says, or than ever was seen.

    is_used: whether a step uses what was read. bounded: moments that a check limits already.
    """
    rows: dict[tuple[str, str], list[_Span]] = defaultdict(list)
    for situation, values in zip(situations, read_off(situations), strict=True):
        for span in _spans(situation, values, is_used):
            rows[span.start.text, span.end.text].append(span)
    always = {
        texts: spans
        for texts, spans in rows.items()
        if len(spans) == len(situations) > 1 and all(span.lasted("seconds") >= 0 for span in spans)
    }
    limited = {texts: found for texts, spans in always.items() if (found := _limited(spans))}
    yield from limited.values()
    told = {*bounded, *(end for _, end in limited)}
    # Of a record that has a clock and a deadline, one says what the other is read for.
    done = {spans[0].end.holder for (_, end), spans in always.items() if end in told}
    for spans in always.values():
        end = spans[0].end
        is_read = end.text not in situations[0].inputs
        if is_read and end.holder not in done and not is_used(end.text):
            yield _longest(spans)


def _spans(
    situation: Situation, told: Sequence[Said], is_used: Callable[[str], bool]
) -> Iterator[_Span]:
    """Yield the spans from each moment to the time that was read or given."""
    moments = [one for one in told if seconds_of(one.value) is not None]
    context = {known.name for known in situation.known if known.is_context}
    ends = [one for one in moments if one.text in situation.inputs or one.holder in context]
    if not ends or len(ends) == len(moments) == 1:
        return
    limits = {one.text: one for one in _numbers(situation, is_used)}
    for end in ends:
        for start in moments:
            is_here = not situation.own or {start.holder, end.holder} & situation.own
            if start.holder != end.holder and is_here:
                yield _Span(start, end, limits)


def _numbers(situation: Situation, is_used: Callable[[str], bool]) -> Iterator[Said]:
    """Yield the numbers that may be limits: rules of the house, and what nothing else uses."""
    for known in situation.known:
        if not known.is_context and is_used(known.name):
            continue
        for one in (known, *_named_elements(known, situation)):
            for text, value in fields(one):
                if is_number(value) and seconds_of(value) is None:
                    yield Said(text, value, known.when)


def _named_elements(known: Known, situation: Situation) -> Iterator[Known]:
    """Yield the elements of a record's lists and mappings that a value of another one names."""
    values = [
        one for one in said_in(situation) if one.holder != known.name and is_scalar(one.value)
    ]
    for text, held in _holders(known.name, known.record):
        rows: dict[tuple[str, Key], list[Any]] = defaultdict(list)
        for row in held if isinstance(held, list) else ():
            for name, value in row.items() if isinstance(row, dict) else ():
                if is_scalar(value) and not is_number(value):
                    rows[str(name), key_of(value)].append(row)
        names = {name for name, _ in rows}
        for one in values if rows or isinstance(held, dict) else ():
            if isinstance(held, dict) and isinstance(one.value, str) and one.value in held:
                yield Known(f"{text}[{one.text}]", held[one.value], {}, known.when)
            for name in names:
                if len(found := rows.get((name, key_of(one.value)), [])) == 1:
                    picked = f"only({text}{fits_text({(name,): one.text})})"
                    yield Known(picked, found[0], {}, known.when)


def _holders(text: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the lists and records inside a value that stand in no list, by their expressions."""
    if isinstance(value, list | dict):
        yield text, value
    for name, one in value.items() if isinstance(value, dict) else ():
        yield from _holders(field_text(text, (str(name),)), one)


def _limited(spans: Sequence[_Span]) -> tuple[str, list[Pair]] | None:
    """Return the tightest limit that was kept in all spans, and came near enough to be one."""
    found: list[tuple[float, str, list[Pair]]] = []
    both = f"{spans[0].start.text}, {spans[0].end.text}"
    for limit in spans[0].limits:
        if any(limit not in span.limits for span in spans):
            continue
        for unit, length in (*SECONDS.items(), ("", SECONDS["days"])):
            pairs = [span.pair(unit, limit) for span in spans]
            longest, most = (
                max(each) for each in zip(*((o.one, o.other) for o in pairs), strict=True)
            )
            is_kept = all(pair.one <= pair.other for pair in pairs)
            if is_kept and longest * FAR_FROM_IT >= most:
                took = f"days({both})"
                if unit and not (unit == "days" and spans[0].are_dates):
                    took = f'elapsed({both}, "{unit}")'
                total = sum(pair.other for pair in pairs) * length
                found.append((total, f"{took} <= {limit}", pairs))
    if not found:
        return None
    _, text, pairs = min(found, key=lambda row: (row[0], len(row[1])))
    return text, pairs


def _longest(spans: Sequence[_Span]) -> tuple[str, list[Pair]]:
    """Return that no more time may go by than in any of the spans."""
    both = f"{spans[0].start.text}, {spans[0].end.text}"
    if all(span.are_dates for span in spans):
        unit, took = "days", f"days({both})"
    else:
        longest = max(span.lasted("seconds") for span in spans)
        unit = next(
            (unit for unit, each in reversed(SECONDS.items()) if longest >= FEWEST_SEEN * each),
            "seconds",
        )
        took = f'elapsed({both}, "{unit}")'
    most = math.ceil(max(span.lasted(unit) for span in spans))
    when = tuple(sorted({spans[0].start.when, spans[0].end.when} - {""}))
    return f"{took} <= {most}", [Pair(span.lasted(unit), most, when) for span in spans]
