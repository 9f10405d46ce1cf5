"""Result facts: what all recorded results of one call with an effect had in common.

The result of a write is a record like any other: what was the same in all traces must be the same
again. A field that always repeated an argument (`given`) must repeat it, also where that is a list
or the number of its members. What a recording can't tell from chance is left open: days, ids, and
texts that say something else each time.
"""

import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Protocol

from em.compiler.calls import words_of
from em.compiler.evidence import ENOUGH, EQUAL_NAMES, information
from em.compiler.guards import NAMES, STATUSES
from em.compiler.record_facts import (
    FEWEST_SAME,
    Shown,
    Way,
    distinct,
    fixed_ways,
    known_fields,
    record_facts,
    text_facts,
)
from em.compiler.sources import is_collection, quoted, reference
from em.errors import EmError
from em.redaction.redactor import MARKER
from em.runner.expressions.direct import together
from em.runner.expressions.functions import (
    ANY,
    FUNCTIONS,
    every,
    kind_of,
    parsed,
    strange_fields,
)
from em.runner.expressions.language import GIVEN, Evaluate, compile_expression
from em.runner.expressions.words import left_of
from em.values.canonical import Json, identical

RESULT = "result"
"""The name of a call's result in its own expectations."""
DEEPEST = 6
"""Mappings within each other in which what was given is looked for."""
MOST_GIVEN = 40
"""Values of the arguments of one call that are looked for in its result."""
ENOUGH_ECHOES = 4.5
"""Bits of small values that repeat an argument: three values in three calls, or two in five."""
FEWEST_LISTS = 5
"""Results that show what the members of their lists are like."""
MOST_WAYS = 500
"""Values of one result that are looked at."""
MOST_TRIED = 8
"""Results that are left out in turn, to see whether the others have all of its fields."""
MOST_READ = 30
"""Texts that are looked at, and left out in turn to see whether the others say all of it."""
FEWEST_SIGNED = 10
"""Different numbers that show that one is never below 0, or above it."""
_IDS = frozenset("id ids number no nr key index seq sequence position".split())
"""Words in the names of fields that have another value after another call."""
_LEFT = frozenset(
    "stock available balance remaining left seats inventory capacity budget credit funds".split()
)
"""Words in the names of fields that say how much is left: the last one may be taken."""
_LOOKS = frozenset({"e-mail", "date", "time", "number", "code"})
NOT_TEXTS = NAMES - frozenset("text note comment message summary body content".split())
"""Words in the names of fields that name something, and tell nothing of what was done."""
_DAY_OR_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d{2}")


class Returned(Protocol):
    """A recorded call: what it was given, and what it returned."""

    @property
    def args(self) -> Json:
        """Its arguments."""

    @property
    def result(self) -> Any:
        """Its result; None if nothing was recorded."""


def result_facts(calls: Sequence[Returned]) -> Iterator[str]:
    """Yield what was so of all results, as expressions over `result` and `given`."""
    results = [call.result for call in calls]
    text = RESULT
    if all(isinstance(one, str) and not isinstance(parsed(one), str) for one in results):
        text, results = f"parsed({RESULT})", [parsed(one) for one in results]
    given = _given([call.args for call in calls])
    values = _values(text, results)
    repeats = _repeats(values, given)
    echoes = {what: _echo(what, values[what], several) for what, several in repeats.items()}
    seen = [Shown({}, one) for one in results]
    for fact in record_facts(text, seen, is_passed_on=True):
        what = left_of(fact)
        if fact.startswith("strange_fields("):
            yield from _closed_fields(text, results, but=repeats)
        elif what in repeats:
            if not echoes[what]:
                yield from _either(fact, what, repeats[what])
        elif what not in values or _is_lasting(fact.removeprefix(what), what, values[what]):
            yield fact
    yield from filter(None, echoes.values())
    for way in fixed_ways(results[:1]):
        what = reference(text, way)
        if what in values and what not in repeats:
            yield from _look(what, values[what])
            if not way or NOT_TEXTS.isdisjoint(words_of(way[-1])):
                yield from _closed_text(what, values[what], calls, given)


def holding(checks: Sequence[str], calls: Sequence[Returned]) -> list[str]:
    """Return the expectations that all calls were as."""
    fused = together(checks)
    scopes = [{**FUNCTIONS, RESULT: call.result, GIVEN: call.args} for call in calls]
    doubtful = [scope for scope in scopes if not fused.hold(scope)]
    kept = []
    for check in checks:
        holds = compile_expression(check, "")
        if all(_is_so(holds, one) for one in (doubtful if check in fused.sources else scopes)):
            kept.append(check)
    return kept


def _is_so(holds: Evaluate, scope: Json) -> bool:
    try:
        return bool(holds(scope))
    except EmError:
        return False


def _given(calls: Sequence[Json]) -> dict[str, list[Any]]:
    """Return by expression the values that all calls were given, and the sizes of their lists."""
    found = _values(GIVEN, calls)
    return dict(list(found.items())[:MOST_GIVEN])


def _values(text: str, records: Sequence[Any]) -> dict[str, list[Any]]:
    """Return by expression the values and lists that keys alone lead to, and the lists' sizes."""
    by_way = [dict(_walked(one)) for one in records]
    shared = [way for way in by_way[0] if all(way in own for own in by_way)][:MOST_WAYS]
    found: dict[str, list[Any]] = {}
    for way in shared:
        held, what = [own[way] for own in by_way], reference(text, way)
        found[what] = held
        if all(isinstance(one, list) for one in held):
            found[f"len({what})"] = [len(one) for one in held]
    return found


def _walked(record: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    if not isinstance(record, dict):
        yield way, record
    elif len(way) < DEEPEST and (not way or not is_collection(record)):
        for key, value in record.items():
            if isinstance(key, str):
                yield from _walked(value, (*way, key))


def _repeats(
    values: Mapping[str, Sequence[Any]], given: Mapping[str, Sequence[Any]]
) -> dict[str, list[str]]:
    """Return which values were each time the same as arguments: by expression, those."""
    found: dict[str, list[str]] = {}
    for what, held in values.items():
        if held[0] in (None, "", [], {}):
            continue
        same = [
            expression
            for expression, sent in given.items()
            if all(_same(one, other) for one, other in zip(held, sent, strict=True))
        ]
        if same:
            found[what] = same
    return found


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same; the order of a list does not count."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and sorted(map(quoted, one)) == sorted(map(quoted, other))
    return identical(one, other)


def _echo(what: str, held: Sequence[Any], repeated: Sequence[str]) -> str:
    """Return that a field repeats what was given; empty if that may be chance."""
    sure = [one for one in repeated if _is_sure(held, is_named_alike=_key(one) == _key(what))]
    if isinstance(held[0], list):
        return f"strange_items({what}, {sure[0]}, {sure[0]}) == none" if len(sure) == 1 else ""
    if len(sure) == 1:
        return f"{what} == {sure[0]}"
    return f"{what} in [{', '.join(sure)}]" if sure else ""


def _is_sure(held: Sequence[Any], *, is_named_alike: bool) -> bool:
    """Return whether values that repeat others do so by more than chance."""
    different = distinct(held)
    bits = sum(map(information, different)) + (EQUAL_NAMES if is_named_alike else 0.0)
    varied = len(held) * math.log2(len(different))
    return bits >= ENOUGH or varied >= ENOUGH_ECHOES


def _key(expression: str) -> str:
    return expression.rpartition(".")[2].rstrip(")")


def _either(fact: str, what: str, repeated: Sequence[str]) -> Iterator[str]:
    """Yield that a value is as recorded, or as given, where it was both each time."""
    rest = fact.removeprefix(what)
    if rest.startswith(" == "):
        yield f"{what} in [{', '.join([rest.removeprefix(' == '), *repeated])}]"
    elif rest.startswith(" in [") and rest.endswith("]"):
        yield f"{what} in [{', '.join([rest[len(' in [') : -1], *repeated])}]"


def _is_lasting(wanted: str, what: str, held: Sequence[Any]) -> bool:
    """Return whether another call must show again what all showed of a value.

    wanted: what it was: ` == "Paid"`, ` > 0`. A day, an id and a secret are others after the next
    call, though all traces of one day may have the same. Of a number that varies, few traces tell
    nothing about its sign.
    """
    if wanted.startswith(" == "):
        is_passing = _is_open(wanted) or not _IDS.isdisjoint(words_of(_key(what)))
        return not is_passing
    if wanted.startswith(" in ["):
        # A state may be a part of a country: TX.
        is_place = all(isinstance(one, str) and len(one) <= 3 and one.isupper() for one in held)
        return len(held) >= FEWEST_SAME or not is_place
    if wanted.startswith((" > ", " >= ", " < ", " <= ")):
        return len(distinct(held)) >= FEWEST_SIGNED and _LEFT.isdisjoint(words_of(_key(what)))
    return True


def _is_shown(path: str, was: Any, results: Sequence[Any]) -> bool:
    """Return whether enough results show what the members of a list are like.

    A flag or a state of members tells how they were done. Other fields need as many different
    lists: those of one customer are always the same.
    """
    parts = path.split(".")
    if ANY not in parts:
        return True
    flags = isinstance(was, list) and all(isinstance(one, bool) for one in was)
    if flags or not STATUSES.isdisjoint(words_of(parts[-1])):
        return len(results) >= FEWEST_LISTS
    above = ".".join(parts[: parts.index(ANY)])
    lists = [every(one, above) if above else one for one in results]
    return len(distinct(lists)) >= FEWEST_LISTS


def _closed_fields(text: str, results: Sequence[Any], but: Container[str]) -> Iterator[str]:
    """Yield the kinds of all fields, as far as each result is in them like all others.

    but: expressions of fields that are as they were given.
    """
    known = {
        path: was
        for path, was in known_fields(text, results).items()
        if reference(text, tuple(path.split("."))) not in but and _is_shown(path, was, results)
    }
    for number, one in enumerate(results[:MOST_TRIED] if len(results) >= FEWEST_SAME else ()):
        others = known_fields(text, [*results[:number], *results[number + 1 :]])
        for path in [path for path in known if strange_fields(one, {path: others.get(path, [])})]:
            del known[path]
    if known:
        yield f"strange_fields({text}, {quoted(known)}) == none"


def _look(what: str, held: Sequence[Any]) -> Iterator[str]:
    """Yield how a text looked that is another one each time: an id, a day, an e-mail."""
    if len(distinct(held)) < FEWEST_SAME or not all(isinstance(one, str) for one in held):
        return
    kinds = {kind_of(one) for one in held}
    if len(kinds) == 1 and kinds <= _LOOKS:
        yield f'kind_of({what}) == "{kinds.pop()}"'


def _closed_text(
    what: str,
    held: Sequence[Any],
    calls: Sequence[Returned],
    given: Mapping[str, Sequence[Any]],
) -> Iterator[str]:
    """Yield that a text says nothing new, if each recorded one says only what others say too.

    A text that says something of its own, as a name that was not given, tells nothing. Nor does
    one of several lines: the others are about something else, as the state of the whole phone.
    """
    if len(held) < 2 or not all(isinstance(one, str) and one.strip() for one in held):
        return
    if any("\n" in one.strip() for one in held):
        return
    if all(kind_of(one) != "text" for one in held) or any(map(_is_open, held)):
        return
    calls, held = calls[:MOST_READ], held[:MOST_READ]
    plain = {name: sent for name, sent in given.items() if not isinstance(sent[0], dict | list)}
    seen = [
        Shown({name: sent[number] for name, sent in plain.items()}, one)
        for number, one in enumerate(held)
    ]
    for number, call in enumerate(calls):
        facts = list(text_facts(what, [*seen[:number], *seen[number + 1 :]]))
        if len(holding(facts, [call])) < len(facts):
            return
    yield from text_facts(what, seen)


def _is_open(text: str) -> bool:
    return bool(_DAY_OR_TIME.search(text) or MARKER.search(text))
