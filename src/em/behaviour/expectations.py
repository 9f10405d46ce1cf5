"""Expectations: what a call with an effect returned, as far as it must return that again.

A tool may say in its result that nothing was done: `{"ok": false}`, `{"error": …}`, a text that
begins with "Error"; or that something else was done: another id, another amount, a warning. A field
that repeated an argument (`given`) must repeat it. Ids, amounts, days and names that may differ
after the next call are not looked at.
"""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from em.behaviour.guards import STATUSES, describes, fact, is_person
from em.behaviour.sources import Parts, is_collection, quoted, reference
from em.behaviour.weight import ENOUGH, EQUAL_NAMES
from em.compiler.calls import words_of
from em.compiler.evidence import information
from em.errors import EmError
from em.redaction.redactor import MARKER
from em.runner.expressions.functions import ANY, KEYS, SCOPE
from em.runner.expressions.guard_functions import error_of, field_kind, parsed, shape_of, size_of
from em.runner.expressions.language import GIVEN, compile_expression
from em.runner.expressions.texts import kind_of
from em.runner.expressions.words import left_of
from em.values.canonical import Json, identical
from em.values.leaves import leaves

RESULT = "result"
"""The name of a call's result in its own expectations."""
MOST_FACTS = 12
"""Flags and statuses of one result that must be the same again."""
MOST_GIVEN = 40
"""Values of the arguments of one call that are looked for in its result."""
MOST_VALUES = 500
"""Values of one result that are looked at."""
MOST_FIELDS = 60
"""Fields of one result whose kinds are compared."""
MOST_COMPARED = 12
"""Numbers and dates of one mapping that are compared with each other."""
MOST_WORDS = 40
"""Different members of a list that are still a few words, and no data."""
MANY_TIMES = 3
"""How often each word of a list stood there, if it is one of a few."""
DEEPEST = 4
"""Mappings within each other whose facts are looked at."""
DEEPEST_GIVEN = 6
"""Mappings within each other in which what was given is looked for."""

_STATUS = re.compile(r"[A-Za-z][A-Za-z ()/_-]{0,60}")
_OUTCOMES = STATUSES | {"result", "outcome"}
"""Words in the names of fields that say how a call ended."""
_DONE = frozenset(
    "ok okay done yes success successful successfully succeeded accepted approved confirmed"
    " complete completed finished processed sent saved created updated deleted removed cancelled"
    " canceled refunded paid booked queued pending scheduled".split()
)
"""Words of a text that says how a call ended; another word may be an id such as `facade`."""
_BOUNDS = frozenset("limit max maximum most cap capacity quota ceiling".split())
"""Words in the names of numbers that others stay below."""
_LEVELS = frozenset(
    "type kind tier level class mode category priority stage phase severity".split()
)
"""Words in the names of numbers that are one of a few."""
_IDS = frozenset("id ids number no nr key index seq sequence position".split())
"""Words in the names of fields that have another value after another call."""
_DAY_OR_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d{2}")

Way = tuple[str, ...]


class Returned(Protocol):
    """A recorded call: what it was given, and what it returned."""

    @property
    def args(self) -> Json:
        """Its arguments."""

    @property
    def result(self) -> Any:
        """Its result; None if nothing was recorded."""


def expectations(call: Returned) -> list[str]:
    """Return what a call must return again, as expressions over `result` and `given`."""
    if call.result is None:
        return []
    found = dict.fromkeys([*_general(call.result), *_statuses(call.result, call.args)])
    known = {f"{text.replace(' == ', ' in [', 1)}]" for text in found}
    found |= dict.fromkeys(text for text in _facts(call) if text not in known)
    # What is not there, or is an error, has no fields.
    first = sorted(found, key=lambda text: not text.startswith(("shape_of(", "error_of(")))
    scope = {**SCOPE, RESULT: call.result, GIVEN: call.args}
    return [check for check in first if _holds(check, scope)]


def _holds(check: str, scope: Json) -> bool:
    try:
        return bool(compile_expression(check, "")(scope))
    except EmError:
        return False


def _general(result: Any) -> Iterator[str]:
    yield f"shape_of({RESULT}) == {quoted(shape_of(result))}"
    if isinstance(result, str) and result and kind_of(result) != "text":
        # An id or a word; a message has several words.
        yield f'kind_of({RESULT}) != "text"'


# --- how a call ended -----------------------------------------------------------------------------


def _statuses(result: Any, args: Json) -> list[str]:
    """Return that flags and statuses are as recorded, unless they repeat an argument."""
    given = {str(value).lower() for _, value in leaves(args) if isinstance(value, str)}
    found = []
    for parts, value in _fields(result):
        key = str(parts[-1]) if parts else ""
        if isinstance(value, bool):
            repeats = key in args and args[key] is value
        else:
            repeats = not _is_status(key, value) or bool(given & {value.lower(), *_words(value)})
        if not repeats:
            found.append(f"{reference(RESULT, parts)} == {quoted(value)}")
    return found[:MOST_FACTS]


def _words(text: str) -> set[str]:
    """Return the longer words of a text, in lower case."""
    return {word for word in text.lower().split() if len(word) > 2}


def _fields(result: Any, parts: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """Yield a result that is one value, or its values at the top and one level down."""
    if not isinstance(result, dict):
        yield parts, result
    elif len(parts) < 2 and not is_collection(result):
        for key, value in result.items():
            # What describes somebody or something, such as an address, is not an outcome.
            if isinstance(key, str) and not (isinstance(value, dict) and describes(key)):
                yield from _fields(value, (*parts, key))


def _is_status(key: str, value: Any) -> bool:
    """Return whether a value says how a call ended: `cancelled`, or a whole result `done`."""
    if not isinstance(value, str) or not _STATUS.fullmatch(value):
        return False
    words = value.lower().split()
    says_done = not _DONE.isdisjoint(words)
    if not key:
        return len(words) <= 3 and says_done
    return not (_is_place(value) and not says_done) and not _OUTCOMES.isdisjoint(words_of(key))


def _is_place(value: Any) -> bool:
    """Return whether a state may be a part of a country, such as TX."""
    return isinstance(value, str) and len(value) <= 3 and value.isupper()


# --- what the record says -------------------------------------------------------------------------


def _facts(call: Returned) -> Iterator[str]:
    """Yield what was so of a result, as far as another call must show it again."""
    text, result = RESULT, call.result
    if isinstance(result, str) and not isinstance(parsed(result), str):
        text, result = f"parsed({RESULT})", parsed(result)
    given = dict(itertools.islice(_values(GIVEN, call.args).items(), MOST_GIVEN))
    values = _values(text, result)
    repeats = _repeats(values, given)
    echoes = {what: _echo(what, values[what], several) for what, several in repeats.items()}
    for check in _record_facts(text, result, but=repeats):
        what = left_of(check)
        if what in repeats:
            if not echoes[what]:
                yield from _either(check, what, repeats[what])
        elif what not in values or _is_lasting(check.removeprefix(what), what, values[what]):
            yield check
    yield from filter(None, echoes.values())


def _record_facts(text: str, result: Any, but: Collection[str]) -> Iterator[str]:
    """Yield what is so of a record. text: its expression. but: fields that repeat arguments."""
    if error_of(result) is None:
        yield f"error_of({text}) == none"
    yield from _size(text, result)
    if result is None:
        return
    yield f"shape_of({text}) == {quoted(shape_of(result))}"
    yield from _keys(text, result)
    for way, value in _fixed(result):
        if _is_state(_last(way), value):
            yield f"{reference(text, way)} in {quoted([value])}"
    for way, value in _fixed(result):
        if _is_number(value) and value == 0:
            yield f"{reference(text, way)} == 0"
    yield from _lists(text, result)
    kinds = {
        ".".join(way): kind
        for way, kind in itertools.islice(_kinds(result), MOST_FIELDS)
        if reference(text, way) not in but
    }
    if kinds:
        yield f"strange_fields({text}, {quoted(kinds)}) == none"
    yield from _relations(text, result)


def _size(text: str, result: Any) -> Iterator[str]:
    """Yield that a result is empty, or is not."""
    if isinstance(result, str):
        yield f'{text} {"!=" if result.strip() else "=="} ""'
    elif result is None or isinstance(result, list | dict):
        # A record that has something under a key is not empty.
        is_record = isinstance(result, dict) and not is_collection(result)
        if not (is_record and size_of(result)):
            yield f"size_of({text}) {'> 0' if size_of(result) else '== 0'}"


def _keys(text: str, record: Any, way: Way = ()) -> Iterator[str]:
    """Yield that a record has no other fields, and has those that it had."""
    if not isinstance(record, dict) or is_collection(record) or not record or len(way) >= DEEPEST:
        return
    # What was empty is as new as what was not there.
    full = [quoted(str(key)) for key in record if size_of(record[key])]
    yield f"strange_keys({', '.join([reference(text, way), *full])}) == none"
    if full:
        yield f"empty_keys({', '.join([reference(text, way), *full])}) == none"
    for key, value in record.items():
        if not describes(str(key)):
            yield from _keys(text, value, (*way, str(key)))


def _lists(text: str, result: Any, way: Way = ()) -> Iterator[str]:
    """Yield that a list of words has no other ones, if those that it had were few."""
    if isinstance(result, dict) and not is_collection(result) and len(way) < DEEPEST:
        for key, value in result.items():
            if _is_name(key) and not (isinstance(value, dict) and describes(key)):
                yield from _lists(text, value, (*way, key))
    elif isinstance(result, list) and result and all(isinstance(one, str) for one in result):
        known = list(dict.fromkeys(result))
        if len(known) > MOST_WORDS or any(kind_of(one) != "word" for one in known):
            return  # ids are data, though the same ones may come again
        plain = all(_is_state(_last(way), one) for one in known)
        if plain or len(known) <= len(result) / MANY_TIMES:
            words = quoted(known)
            yield f"strange_items({reference(text, way)}, {words}, {words}) == none"


def _kinds(result: Any, way: Way = ()) -> Iterator[tuple[Way, str]]:
    """Yield the kinds of all fields but states, which are compared themselves."""
    if isinstance(result, dict) and not is_collection(result):
        for key, value in result.items() if len(way) <= DEEPEST else ():
            if _is_name(key) and not (isinstance(value, dict) and describes(key)):
                yield from _kinds(value, (*way, key))
    elif way and not isinstance(result, dict):
        kind = "list" if isinstance(result, list) else field_kind(result)
        is_compared = _is_state(_last(way), result) and not _is_number(result)
        if kind != "nothing" and not is_compared:
            yield way, kind


def _relations(text: str, result: Any) -> Iterator[str]:
    """Yield which fields of one mapping were the same, and which day or number was not above."""
    by_holder: dict[Way, dict[Way, Any]] = {}
    for way, value in _fixed(result):
        if way:
            by_holder.setdefault(way[:-1], {})[way] = value
    for fields in by_holder.values():
        same = [
            (one, other)
            for one, other in itertools.combinations(fields, 2)
            if identical(fields[one], fields[other])
            and information(fields[one]) >= ENOUGH
            and size_of(fields[one])
        ]
        yield from (f"{reference(text, b)} == {reference(text, a)}" for a, b in same)
        later = {other for _, other in same}
        yield from _ordered(text, {way: one for way, one in fields.items() if way not in later})


def _ordered(text: str, fields: Mapping[Way, Any]) -> Iterator[str]:
    """Yield the orders of days and of bounded numbers in a mapping, without those that follow."""
    comparable = [
        way for way, one in fields.items() if _is_number(one) or kind_of(one) in ("date", "time")
    ]
    ways = comparable[:MOST_COMPARED]
    below = {
        (one, other)
        for one, other in itertools.permutations(ways, 2)
        if _is_below(one, fields[one], other, fields[other])
    }
    for one, other in sorted(below):
        if not any((one, way) in below and (way, other) in below for way in ways):
            yield f"{reference(text, one)} <= {reference(text, other)}"


def _is_below(one: Way, first: Any, other: Way, second: Any) -> bool:
    if _is_number(first) and _is_number(second):
        is_bound = bool(_BOUNDS & {*words_of(_last(other))}) and not _BOUNDS & {
            *words_of(_last(one))
        }
        return is_bound and first < second
    both = isinstance(first, str) and isinstance(second, str) and len(first) == len(second)
    return both and kind_of(first) == kind_of(second) and first < second


def _fixed(result: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Yield the values of a result that keys alone lead to."""
    if isinstance(result, dict) and not is_collection(result):
        for key, value in result.items() if len(way) < DEEPEST else ():
            if _is_name(key) and not (isinstance(value, dict) and describes(key)):
                yield from _fixed(value, (*way, key))
    elif not isinstance(result, list | dict):
        yield way, result


def _is_state(field: str, value: Any) -> bool:
    """Return whether a value is a flag, a state, a level, or one of a few codes such as `EUR`."""
    if _is_number(value):
        return bool(_LEVELS & {*words_of(field)})
    if isinstance(value, str) and re.fullmatch(r"[A-Z]{2,5}", value) and not describes(field):
        return True
    is_plain = isinstance(value, bool | str) and not is_person(field, value)
    return is_plain and fact("x", field, value) is not None


def _is_name(key: Any) -> bool:
    """Return whether a key of a mapping can be a part of a path."""
    return isinstance(key, str) and "." not in key and key not in ("", ANY, KEYS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _last(way: Way) -> str:
    return way[-1] if way else ""


# --- what repeats an argument ---------------------------------------------------------------------


def _values(text: str, record: Any) -> dict[str, Any]:
    """Return by expression the values and lists that keys alone lead to, and the lists' sizes."""
    found: dict[str, Any] = {}
    for way, value in itertools.islice(_walked(record), MOST_VALUES):
        what = reference(text, way)
        found[what] = value
        if isinstance(value, list):
            found[f"len({what})"] = len(value)
    return found


def _walked(record: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    if not isinstance(record, dict):
        yield way, record
    elif len(way) < DEEPEST_GIVEN and (not way or not is_collection(record)):
        for key, value in record.items():
            if isinstance(key, str):
                yield from _walked(value, (*way, key))


def _repeats(values: Json, given: Json) -> dict[str, list[str]]:
    """Return which values were the same as arguments: by expression, those."""
    found: dict[str, list[str]] = {}
    for what, held in values.items():
        if held in (None, "", [], {}):
            continue
        same = [expression for expression, sent in given.items() if _same(held, sent)]
        if same:
            found[what] = same
    return found


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same; the order of a list does not count."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and sorted(map(quoted, one)) == sorted(map(quoted, other))
    return identical(one, other)


def _echo(what: str, held: Any, repeated: Sequence[str]) -> str:
    """Return that a field repeats what was given; empty if that may be chance."""
    bits = information(held)
    sure = [
        one
        for one in repeated
        if bits + (EQUAL_NAMES if _key(one) == _key(what) else 0.0) >= ENOUGH
    ]
    if isinstance(held, list):
        return f"strange_items({what}, {sure[0]}, {sure[0]}) == none" if len(sure) == 1 else ""
    if len(sure) == 1:
        return f"{what} == {sure[0]}"
    return f"{what} in [{', '.join(sure)}]" if sure else ""


def _key(expression: str) -> str:
    return expression.rpartition(".")[2].rstrip(")")


def _either(check: str, what: str, repeated: Sequence[str]) -> Iterator[str]:
    """Yield that a value is as recorded, or as given, where it was both."""
    rest = check.removeprefix(what)
    if rest.startswith(" == "):
        yield f"{what} in [{', '.join([rest.removeprefix(' == '), *repeated])}]"
    elif rest.startswith(" in [") and rest.endswith("]"):
        yield f"{what} in [{', '.join([rest[len(' in [') : -1], *repeated])}]"


def _is_lasting(wanted: str, what: str, held: Any) -> bool:
    """Return whether another call must show again what this one showed of a value.

    wanted: what it was: ` == "Paid"`. A day, an id and a secret are others after the next call.
    """
    if wanted.startswith(" == "):
        is_open = _DAY_OR_TIME.search(wanted) or MARKER.search(wanted)
        return not is_open and _IDS.isdisjoint(words_of(_key(what)))
    if wanted.startswith(" in ["):
        return not _is_place(held)
    # Of days and numbers that vary, one result tells nothing about their order.
    return not wanted.startswith(" <= ")
