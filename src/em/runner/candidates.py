"""Candidates: the records that words may name, and the one that they describe."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from em.runner.expressions.functions import equal, every, items_of, kind_of
from em.runner.mentions import Span, Words
from em.runner.task_plan import Unplanned
from em.values.canonical import Json, same, short


def pairs_of(items: Any, key: str) -> list[tuple[Any, Any]]:
    """Return each value of a list with the record that holds it."""
    if key == "@" and not isinstance(items, Mapping):
        raise Unplanned(f"a mapping was expected, there is {short(items)}")
    if key == "@":
        return list(items.items())
    if not key:
        return [(one, one) for one in items_of(items)]
    return [(value, one) for one in items_of(items) for value in every(one, key)]


_LETTERS = re.compile(r"[^\W\d_]{3}")


def titles(record: Any) -> Iterator[str]:
    """Yield the texts of a record that may be its name: with letters, not only an id."""
    for value in record.values() if isinstance(record, dict) else ():
        if isinstance(value, str) and _LETTERS.search(value) and kind_of(value) in ("word", "text"):
            yield value


def mentions_of(
    words: Words, pairs: Sequence[tuple[Any, Any]]
) -> list[tuple[Span, list[tuple[Any, Any]]]]:
    """Return where records are named, with those that have this name; the longer name counts."""
    held: dict[Span, list[tuple[Any, Any]]] = {}
    for value, record in pairs:
        for title in {str(value), *titles(record)}:
            for span in words.find(title):
                if not words.is_in_literal(span.start):
                    held.setdefault(span, []).append((value, record))
    spans = [
        span
        for span in held
        if not any(o != span and o.start <= span.start and span.end <= o.end for o in held)
    ]
    return [(span, held[span]) for span in sorted(spans)]


def the_one_meant(
    words: Words, segment: Span, held: list[tuple[Any, Any]]
) -> tuple[tuple[Any, Any], list[Span]]:
    """Return the one record that is meant, and what in the words describes it further."""
    described = next(
        (
            one
            for one in words.literals
            if segment.start <= one.span.start < segment.end
            and isinstance(one.value, dict)
            and one.value
            and any(_describes(one.value, record) for _, record in held)
        ),
        None,
    )
    if described is not None:
        held = [one for one in held if _describes(described.value, one[1])]
    if len(held) != 1:
        raise Unplanned(f"{len(held)} records fit {words.text[segment.start - 30 : segment.end]!r}")
    return held[0], [] if described is None else [described.span]


def _describes(wanted: Json, record: Any) -> bool:
    """Return whether a record, or a mapping in it, has all these fields."""
    if not isinstance(record, dict):
        return False
    inner = [value for value in record.values() if isinstance(value, dict)]
    return any(
        all(name in one and same(one[name], value) for name, value in wanted.items())
        for one in (record, *inner)
    )


def wanted_fields(
    words: Words,
    segment: Span,
    item: Json,
    like: str,
    used: Sequence[Span],
    pairs: Sequence[tuple[Any, Any]],
) -> tuple[Json, list[Span]]:
    """Return which fields the words want changed, and where they say so."""
    records = [
        one
        for one in words.literals
        if segment.start <= one.span.start < segment.end
        and isinstance(one.value, dict)
        and one.span not in used
    ]
    if len(records) == 1:
        return records[0].value, [records[0].span]
    if records:
        raise Unplanned(f"more than one record says what is wanted for {short(item)}")
    wanted: Json = {}
    spans: list[Span] = []
    for field, own in item[like].items():
        values = {str(record[like].get(field)) for _, record in pairs if like in record}
        for value in sorted(values | {str(own)}):
            found = [
                span
                for span in words.find(value)
                if segment.start <= span.start < segment.end and span not in used
            ]
            if value == str(own):
                spans += found  # as it is
                continue
            if found and field in wanted:
                raise Unplanned(f"{field} can be {wanted[field]} and {value}")
            if found:
                wanted[field] = value
                spans += found
    if not wanted:
        raise Unplanned(f"nothing says what is wanted for {short(item)}")
    if len(set(spans)) < len(spans):
        raise Unplanned(f"it is not clear which fields of {short(item)} are meant")
    return wanted, spans


def holds(record: Any, fields: Json) -> bool:
    """Return whether a mapping in a record has all these fields."""
    if not isinstance(record, dict):
        return False
    if all(name in record and equal(record[name], value) for name, value in fields.items()):
        return True
    return any(holds(one, fields) for one in record.values())


def same_record(one: Any, other: Any) -> bool:
    """Return whether two mappings have the same fields with the same values."""
    return (
        isinstance(one, dict)
        and one.keys() == other.keys()
        and all(same(value, other[name]) for name, value in one.items())
    )
