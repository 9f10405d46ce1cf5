"""Relations: what held between records and inputs in every recording, and must hold again.

A few plain forms: identifiers of one record that equal one of another, and numbers and dates
that are never above or below another that was read.
"""

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from em.compiler.choice import are_comparable
from em.compiler.evidence import ENOUGH_TO_ACT, information
from em.compiler.example import Example
from em.compiler.places import ELEMENT, Key, is_code, key_of, plain
from em.compiler.steps import Writer
from em.compiler.terms import field_text
from em.values.canonical import Json, same

ENOUGH_NESTED = 8
"""Examples from which on a field of a record inside another one may identify something."""
MOST_CROSSED = 30
"""Examples whose values are paired with those of others."""


class Known(NamedTuple):
    """A record that the routine has under a name, in one example.

    asked: the values that it was read by, known if `asked_when`.
    """

    name: str
    record: Any
    asked: dict[str, Any]
    when: str
    asked_when: str = ""


class Pair(NamedTuple):
    """How two values related in one example."""

    holds: bool
    key: Key
    bits: float
    when: tuple[str, ...]


class Relations:
    """Finds relations between what a writer's steps have read, and writes them as checks."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known = {id(one): [*self._known_in(one)] for one in writer.examples}

    def write(self) -> None:
        """Write all relations that hold in every example."""
        self._identifiers()
        self._limits()

    def _known_in(self, example: Example) -> Iterator[Known]:
        writer = self._writer
        # A name that is saved in several ways is always there.
        times = Counter(step.get("save_as") for step in writer.top)
        for role, step in writer.read_steps.items():
            if step not in writer.top:
                continue
            when = step.get("when", "") if times[step["save_as"]] == 1 else ""
            reads = [read for one, _, read in writer.space.reads[role] if one is example]
            if reads:
                texts = {str(text)[3:-3]: value for text, value in _asked(step, reads[0].args)}
                yield Known(step["save_as"], reads[0].result, texts, when, step.get("when", ""))
        for step, choice in writer.picks:
            if step in writer.top:
                chosen = [record for one, record in choice.chosen if one is example]
                if chosen:
                    yield Known(step["save_as"], chosen[0], {}, step.get("when", ""))

    def _identifiers(self) -> None:
        """Write that an identifier in one record is what another one was found by."""
        facts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        for example in self._writer.examples:
            known = self._known[id(example)]
            for one in known:
                for place, value in plain(one.record):
                    if not is_code(value) or _is_among(value, one.asked.values()):
                        continue
                    if len(place) > 1 and len(self._writer.examples) < ENOUGH_NESTED:
                        continue
                    text = field_text(one.name, tuple(map(str, place)))
                    for other in known:
                        if other.name != one.name:
                            self._compare(facts, text, value, one, other)
        tried = math.log2(1 + len(facts))
        told: set[str] = set()
        for (text, other_text), pairs in facts.items():
            bits = sum({pair.key: pair.bits for pair in pairs}.values()) - tried
            if text in told or not all(pair.holds for pair in pairs) or bits < ENOUGH_TO_ACT:
                continue
            told.add(text)
            self._write(f"{text} == {other_text}", pairs)

    @staticmethod
    def _compare(
        facts: dict[tuple[str, str], list[Pair]], text: str, value: Any, one: Known, other: Known
    ) -> None:
        bare = {} if isinstance(other.record, dict | list) else {other.name: other.record}
        rows = [(other.asked_when, other.asked), (other.when, bare)]
        for other_when, texts in rows:
            when = tuple(sorted({one.when, other_when} - {""}))
            for other_text, found in texts.items():
                if is_code(found) and other_text != text:
                    pair = Pair(same(value, found), key_of(value), information(value), when)
                    facts[text, other_text].append(pair)

    def _limits(self) -> None:
        """Write that an input was never above, or never below, a number or date that was read."""
        facts: dict[tuple[str, str], list[tuple[Any, Any, str]]] = defaultdict(list)
        for example in self._writer.examples:
            for text, value in self._inputs(example):
                for other, limit, when in self._numbers(example):
                    if are_comparable(value, limit):
                        facts[text, other].append((value, limit, when))
        tried = math.log2(1 + len(facts))
        for (text, other), rows in facts.items():
            pairs = [(value, limit) for value, limit, _ in rows]
            sign = order_of(pairs, tried)
            if sign:
                self._write(
                    f"{text} {sign} {other}",
                    [
                        Pair(True, key_of(value), 1.0, (when,) if when else ())
                        for value, _, when in rows
                    ],
                )

    def _inputs(self, example: Example) -> Iterator[tuple[str, Any]]:
        for place, value in example.said(None).leaves:
            if ELEMENT not in place and are_comparable(value, value):
                yield self._writer.input_text(place), value

    def _numbers(self, example: Example) -> Iterator[tuple[str, Any, str]]:
        for one in self._known[id(example)]:
            for place, value in plain(one.record):
                if are_comparable(value, value):
                    yield field_text(one.name, tuple(map(str, place))), value, one.when

    def _write(self, text: str, pairs: list[Pair]) -> None:
        step: Json = {"type": "assert", "check": text}
        conditions = sorted({one for pair in pairs for one in pair.when})
        if conditions:
            step["when"] = " and ".join(conditions)
        self._writer.add_check(step, len(pairs))


def _asked(step: Json, args: Json) -> Iterator[tuple[Any, Any]]:
    for name, text in step["args"].items():
        if isinstance(text, str) and text.startswith("{{"):
            yield text, args.get(name)


def _is_among(value: Any, values: Any) -> bool:
    return any(same(value, one) for one in values)


def order_of(pairs: Sequence[tuple[Any, Any]], tried: float) -> str:
    """Return `<=` or `>=` if the first of two values never was beyond the second, else "".

    Either it could have been: pairing the values otherwise would break it, so often that chance
    does not explain that they never did. Or no pairing breaks it, and the values come close: then
    it is a limit that nobody has reached yet.
    """
    if len(pairs) < ENOUGH_TO_ACT or all(one == other for one, other in pairs):
        return ""
    for sign, holds in (("<=", operator.le), (">=", operator.ge)):
        if not all(holds(one, other) for one, other in pairs):
            continue
        crossed = [
            holds(one, other)
            for n, (one, _) in enumerate(pairs[:MOST_CROSSED])
            for m, (_, other) in enumerate(pairs[:MOST_CROSSED])
            if n != m
        ]
        share = sum(crossed) / len(crossed)
        if share == 1:
            return sign if _come_close(pairs) else ""
        if -math.log2(max(share, 1e-9)) * len(pairs) - tried >= ENOUGH_TO_ACT:
            return sign
    return ""


def _come_close(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether two ranges of values that don't overlap are no further apart than wide."""
    ones, others = ([_as_number(row[side]) for row in pairs] for side in (0, 1))
    gap = max(min(ones) - max(others), min(others) - max(ones))
    return gap <= max(max(ones) - min(ones), max(others) - min(others))


def _as_number(value: Any) -> float:
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    return float(value)
