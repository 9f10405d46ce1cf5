"""Equalities: values of two records, or of a record and an input, that always were the same.

Who pays is whose order it is. Texts in another case, and numbers that are written as texts, are
the same; the check says so.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any

from em.compiler.evidence import ENOUGH_TO_CHECK, NAMED_ALIKE, information, is_small
from em.compiler.explanation import SHARE
from em.compiler.places import are_comparable, is_code, is_number, is_word
from em.compiler.situation import Pair, Said, Situation, read_off, surprise_of

MOST_ALIKE = 30
"""Places with one value that are compared with each other."""


def equalities(
    situations: Sequence[Situation], echoed: Collection[str]
) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that two values are equal, which those of other recordings would not be.

    echoed: what records repeat of what they were asked by: two of these say nothing more.
    """
    values = [
        {one.text: one for one in own if _may_be_equal(one.value)} for own in read_off(situations)
    ]
    tried = math.log2(1 + max(len(one) for one in values) ** 2 / 2)
    inputs = situations[0].inputs
    told: dict[str, str] = {}
    for text, other_text in _candidates(situations, values):
        rows = [(one[text], one[other_text]) for one in values if {text, other_text} <= one.keys()]
        is_told = told.get(text, text) == told.get(other_text, other_text)
        if is_told or {text, other_text} <= {*echoed} or len(rows) < SHARE * len(situations):
            continue
        pairs = [
            Pair(one.value, other.value, tuple(sorted({one.when, other.when} - {""})))
            for one, other in rows
        ]
        holders = {one.holder for one in rows[0]}
        is_inside = text.rpartition(".")[0] == other_text.rpartition(".")[0]
        is_deep = len(holders) == 1 and not is_inside and (is_nested(text) or is_nested(other_text))
        # A word that was given and that a record has may be what the record was chosen by.
        are_ids = not any(isinstance(one.value, str) and not is_code(one.value) for one, _ in rows)
        if is_deep or ({text, other_text} & {*inputs} and not are_ids):
            continue
        found = equal_text(text, other_text, pairs)
        named = NAMED_ALIKE if are_named_alike(text, other_text) else 0.0
        if found and _bits(pairs) + named - tried >= ENOUGH_TO_CHECK:
            told[other_text] = told.setdefault(text, text)
            yield found, pairs


def _candidates(
    situations: Sequence[Situation], values: Sequence[dict[str, Said]]
) -> dict[tuple[str, str], None]:
    """Return the pairs of expressions that are equal in some situation."""
    found: dict[tuple[str, str], None] = {}
    for situation, told in zip(situations, values, strict=True):
        alike: dict[str, list[Said]] = defaultdict(list)
        for one in told.values():
            alike[bare(one.value)].append(one)
        for group in alike.values():
            for one, other in combinations(group[:MOST_ALIKE], 2):
                is_here = not situation.own or {one.holder, other.holder} & situation.own
                if is_here and not {one.text, other.text} <= situation.inputs.keys():
                    found[one.text, other.text] = None
    return found


def bare(value: Any) -> str:
    """Return a value as it is compared: as a text, in lower case."""
    return " ".join(str(value).lower().split())


def equal_text(text: str, other_text: str, pairs: Sequence[Pair]) -> str:
    """Return the check that two values are equal, in any case if need be; "" if they are not."""
    if all(pair.one == pair.other for pair in pairs):
        return f"{text} == {other_text}"
    if all(str(pair.one).lower() == str(pair.other).lower() for pair in pairs):
        forms = " | string | lower"
        return f"{text}{forms} == {other_text}{forms}"
    return ""


def _may_be_equal(value: Any) -> bool:
    """Return whether a value is equal to another one for a reason: words, ids, numbers."""
    if isinstance(value, list):
        return True
    return is_number(value) or is_code(value) or (isinstance(value, str) and is_word(value))


def is_nested(text: str) -> bool:
    """Return whether an expression is about a field of a record inside another one."""
    return len(re.findall(r"[.\[]", text)) > 1


def are_named_alike(text: str, other_text: str) -> bool:
    """Return whether two fields have one name, or one names the record of the other with it."""
    names = [one.rpartition(".")[2] for one in (text, other_text)]
    # The number tells a record's name from that of an input.
    whole = {re.sub(r"(_\d+)?\.", "_", one) for one in (text, other_text)}
    return names[0] == names[1] or not whole.isdisjoint(names)


def _bits(pairs: Sequence[Pair]) -> float:
    """Return the evidence that values are equal for a reason.

    Identifiers don't stand in two records by chance; of small numbers only what they say counts.
    """
    ones = {bare(pair.one): pair.one for pair in pairs}
    ids = [one for one in ones.values() if not is_word(one) and not _is_plain_date(one)]
    if all(map(is_small, ones.values())):
        return sum(map(information, ones.values()))
    told = sum(information(one) for one in ids if is_code(one) or isinstance(one, list))
    return max(surprise_of(pairs, lambda one, other: bare(one) == bare(other)), told)


def _is_plain_date(value: Any) -> bool:
    return isinstance(value, str) and are_comparable(value, value)
