"""The functions of expressions. Those that select fail unless one thing fits."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

from em.runner.expressions.file_lines import (
    absent,
    end_of_list,
    line_count,
    line_part,
    lines_above,
    lines_after,
    lines_before,
    lines_once,
    lines_through,
    lines_to_last,
    lists_only,
    module_name,
    sign_of,
    sorted_place,
    stands_once,
)
from em.runner.expressions.selection import (
    ABSENT,
    MOST_SHOWN,
    OMITTED,
    at_least,
    at_most,
    common,
    distinct,
    fits,
    given,
    has,
    holding,
    largest,
    merge,
    only,
    only_key,
    smallest,
    where,
)
from em.runner.expressions.selection import items_of as items_of  # noqa: PLC0414 - for compilers
from em.runner.expressions.texts import TEXTS
from em.values.canonical import identical, same, short
from em.values.leaves import scalars

KEYS = "@"
"""The part of a path that stands for the keys of a mapping."""
ANY = "*"
"""The part of a path that stands for every item of a list, or every value of a mapping."""

MAX_BITS = 4096
"""The largest size of a whole number, in bits."""
MAX_COMPARISONS = 10_000_000
"""How often one function may compare two values."""


def check_size(bits: int) -> None:
    """Fail if a whole number is too large: computing with it could take for ever."""
    if bits > MAX_BITS:
        raise ValueError("the number is too large")


def bounded(number: int) -> int:
    """Return a whole number, if it is not too large."""
    check_size(number.bit_length())
    return number


def _check_comparisons(some: int, others: int) -> None:
    if some * others > MAX_COMPARISONS:
        raise ValueError(f"comparing {some:,} values with {others:,} is too much")


def pick(items: Any, **fields: Any) -> Any:
    """Return the one item whose fields have these values; texts match in any case."""
    found = [item for item in items_of(items) if matches(item, fields)]
    if len(found) != 1:
        asked = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise ValueError(f"pick({asked}) needs exactly one item, there are {len(found)}")
    return found[0]


def pick_at(items: Any, path: str, wanted: Any) -> Any:
    """Return the one item that has a value at a path such as `options.size`, texts in any case."""
    found = [
        item for item in items_of(items) if any(same(one, wanted) for one in every(item, path))
    ]
    if len(found) != 1:
        raise ValueError(f"pick_at({path}, {wanted!r}) needs one item, there are {len(found)}")
    return found[0]


def select(items: Any, where: Any, *, or_none: bool = False) -> list[Any]:
    """Return all items with these values at paths such as `options.size`; texts in any case.

    Instead of a value, `{"in": [...]}` takes several, and `{"at_least": 5, "at_most": 9}` numbers.
    Fail if no item has one of the paths, or no item fits. or_none: return an empty list then.
    """
    held = items_of(items)
    if not isinstance(where, Mapping) or not where:
        raise ValueError("select() needs at least one field: where={'status': 'open'}")
    if not held and or_none:
        return []
    if not held:
        raise ValueError("select() found nothing: there are no items")
    rows = [{path: every(item, path) for path in where} for item in held]
    unknown = next((path for path in where if not any(row[path] for row in rows)), None)
    if unknown is not None:
        raise ValueError(f"no item has {unknown!r}; the first one is {short(held[0])}")
    found = [
        item
        for item, row in zip(held, rows, strict=True)
        if all(any(_fits(one, where[path]) for one in row[path]) for path in where)
    ]
    if not found and not or_none:
        seen = [{path: values[0] for path, values in row.items() if values} for row in rows]
        raise ValueError(
            f"0 of {len(held)} items have {short(dict(where))}; there are"
            f" {', '.join(map(short, seen[:MOST_SHOWN]))}"
        )
    return found


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "in": lambda value, wanted: any(same(value, one) for one in wanted),
    "at_least": lambda value, wanted: value >= wanted,
    "at_most": lambda value, wanted: value <= wanted,
}


def _fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping) or not wanted or not wanted.keys() <= _TESTS.keys():
        return same(value, wanted)
    return all(_TESTS[name](value, one) for name, one in wanted.items())


def nth(items: Any, number: int) -> Any:
    """Return an item of a list by its position from 0. A mapping has no order to count by."""
    if isinstance(items, Mapping):
        raise TypeError("nth() needs a list: the keys of a mapping have no order")
    found = items_of(items)
    if number >= len(found):
        raise ValueError(f"there is no item {number}, there are {len(found)}")
    return found[number]


def every(value: Any, path: str) -> list[Any]:
    """Return all values at a path such as `items.*.id`: `*` is any item, `@` are the keys.

    The path of a list begins in its items.
    """
    parts = path.split(".")
    if isinstance(value, list | tuple) and parts[0] not in (ANY, KEYS):
        parts.insert(0, ANY)
    return _at(value, parts)


def _at(value: Any, parts: list[str]) -> list[Any]:
    """Follow a path one level at a time, which is fast for long lists."""
    found = [value]
    for part in parts:
        held, found = found, []
        if part == ANY:
            for one in held:
                if isinstance(one, Mapping):
                    found += one.values()
                elif isinstance(one, list | tuple):
                    found += one
        elif part == KEYS:
            for one in held:
                found += one if isinstance(one, Mapping) else ()
        else:
            found = [one[part] for one in held if isinstance(one, Mapping) and part in one]
    return found


def among(values: Any, wanted: Any) -> Any:
    """Return what is wanted, a value or a list of them, if all of it is among the values."""
    known = values if type(values) is list else items_of(values)
    # Most values are texts, and looking one up directly is much faster.
    if type(wanted) is str and wanted in known:
        return wanted
    if isinstance(wanted, list | tuple):
        _check_comparisons(len(wanted), len(known))
    for value in wanted if isinstance(wanted, list | tuple) else (wanted,):
        found = isinstance(value, str) and value in known
        if not found and not any(equal(value, one) for one in known):
            raise ValueError(f"{value!r} is not among the {len(known)} values there")
    return wanted


def fact_of(records: Any, key: str, wanted: Any, field: str) -> Any:
    """Return the value that a field has in every record whose key is wanted; fail if they differ.

    `key` and `field` are paths within a record.
    """
    facts = _facts(records, key, wanted, field)
    if any(not identical(fact, facts[0]) for fact in facts):
        raise ValueError(f"{field} differs between the records")
    return facts[0]


def least_of(records: Any, key: str, wanted: Any, field: str) -> Any:
    """Return the smallest number that a field has in the records whose key is wanted."""
    return min(_facts(records, key, wanted, field))


def _facts(records: Any, key: str, wanted: Any, field: str) -> list[Any]:
    values = wanted if isinstance(wanted, list | tuple) else [wanted]
    held = [(record, _at(record, key.split("."))) for record in items_of(records)]
    _check_comparisons(len(values), len(held))
    facts: list[Any] = []
    for value in values:
        found = [record for record, keys in held if any(equal(one, value) for one in keys)]
        if not found:
            raise ValueError(f"no record has {short(value)} as its {key}")
        facts += [fact for record in found for fact in _at(record, field.split("."))]
    if not facts:
        raise ValueError(f"no record says its {field}")
    return facts


def still_found(
    given: Any, value: Any, result: Any, path: str, key: str, facts: Mapping[str, Any]
) -> bool:
    """Return True if a value that a result held at a path is still there, with the same facts.

    A number above 0 may be another one above 0. A value that is not among the given ones does not
    matter. Fail if it is not there, or a fact differs.
    """
    if not any(equal(one, value) for _, one in scalars(given)):
        return True
    places = _at(result, path.split(".") if path else [])
    found = [record for place in places for record in _holding(place, key, value)]
    if not found:
        raise ValueError("it is not there any more")
    for field, fact in facts.items():
        now = [one for record in found for one in _at(record, field.split("."))]
        if not now:
            raise ValueError(f"it has no {field} any more")
        for one in now:
            if not identical(one, fact) and not (_is_above(fact) and _is_above(one)):
                raise ValueError(f"{field} is {short(one)} now")
    return True


def _holding(record: Any, key: str, value: Any) -> list[Any]:
    if key == KEYS:
        pairs = record.items() if isinstance(record, Mapping) else ()
        return [item for name, item in pairs if equal(name, value)]
    held = _at(record, key.split(".")) if key else [record]
    return [record] if any(equal(one, value) for one in held) else []


def _is_above(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def least(items: Any, path: str) -> Any:
    """Return the one item whose value at a path is the smallest, or earliest."""
    return _extreme(items, path, min)


def most(items: Any, path: str) -> Any:
    """Return the one item whose value at a path is the largest, or latest."""
    return _extreme(items, path, max)


def _extreme(items: Any, path: str, choose: Callable[[Any], Any]) -> Any:
    found = [(value, item) for item in items_of(items) for value in every(item, path)]
    if not found:
        raise ValueError(f"no item has {path!r}")
    try:
        bound = choose([value for value, _ in found])
    except TypeError:
        raise ValueError(f"the values of {path!r} can't be compared") from None
    best = [item for value, item in found if value == bound]
    if len(best) != 1:
        raise ValueError(f"{len(best)} items share the same {path!r}")
    return best[0]


def value_at(items: Any, key: Any) -> Any:
    """Return the value of a mapping under a key that is itself a value; texts in any case."""
    if not isinstance(items, Mapping):
        raise TypeError(f"a {type(items).__name__} has no keys")
    if isinstance(key, str) and key in items:
        return items[key]
    found = [value for name, value in items.items() if same(name, key)]
    if len(found) != 1:
        raise ValueError(f"there is no {key!r}")
    return found[0]


def keyed(items: Any) -> list[Any]:
    """Return the records of a mapping as a list, each with the key that it stands under as `key`.

    Fail if one is no record, or has a `key` of its own.
    """
    if not isinstance(items, Mapping):
        raise TypeError(f"a {type(items).__name__} has no keys")
    if any(not isinstance(one, Mapping) or "key" in one for one in items.values()):
        raise ValueError("keyed() needs a mapping of records that have no `key` of their own")
    return [{"key": key, **one} for key, one in items.items()]


def between(text: Any, before: str, after: str) -> str:
    """Return the part of a text between two texts. Each of the two must occur just once."""
    whole = str(text)
    if before and whole.count(before) != 1:
        raise ValueError(f"the text must contain {before!r} once")
    rest = whole.partition(before)[2] if before else whole
    if after and rest.count(after) != 1:
        raise ValueError(f"the text must contain {after!r} once")
    return rest.partition(after)[0] if after else rest


def once(text: Any, part: str) -> str:
    """Return a text if it stands exactly once in another one; else fail."""
    count = str(text).count(part) if part else 0
    if count != 1:
        raise ValueError(f"{part!r} must stand there once, and does {count} times")
    return part


def line_like(text: Any, *parts: str) -> str:
    """Return the one place of whole lines that has these parts, and something between them."""
    pattern = "^" + ".+".join(map(re.escape, parts)) + "$"
    found = re.findall(pattern, str(text), re.MULTILINE)
    if len(found) != 1:
        shown = " … ".join(parts)
        raise ValueError(f"one line must be like {shown!r}, and {len(found)} are")
    return str(found[0])


def looks_like(value: Any, first: str, last: str) -> bool:
    """Return whether a value is one word that begins and ends with signs of a kind.

    first, last: `digit`, `letter` or a certain sign; empty for any.
    """
    text = str(value)
    begins, ends = sign_of(text[:1]) == first or not first, sign_of(text[-1:]) == last or not last
    return text.split() == [text] and begins and ends


def equal(one: Any, other: Any) -> bool:
    """Compare two values; a number equals the same number as a text."""
    if type(one) is str and type(other) is str:
        return one == other
    if isinstance(one, str) != isinstance(other, str) and not isinstance(one, bool):
        numbers = int | float | str
        if isinstance(one, numbers) and isinstance(other, numbers) and not isinstance(other, bool):
            return str(one).strip() == str(other).strip()
    return identical(one, other)


_KINDS = {
    "e-mail": re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\S*"),
    "time": re.compile(r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?"),
    "number": re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*"),
    "code": re.compile(r"(?=\S*[0-9])\S*[^\s,;]"),
    "word": re.compile(r"\S*[^\s,;]"),
}


def kind_of(value: Any) -> str:
    """Return what a value looks like, so that an error message is not taken for an id."""
    if type(value) is str and len(value) <= SHORT:
        return _kind_of_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(sorted({kind_of(one) for one in value}))
    if isinstance(value, bool | Mapping) or value is None:
        return "none" if value is None else type(value).__name__
    return _looked_at(str(value))


SHORT = 200
"""Characters of a text whose kind is worth remembering."""


def _looked_at(text: str) -> str:
    kinds = (kind for kind, form in _KINDS.items() if form.fullmatch(text))
    return next((kind for kind in kinds if kind != "date" or _is_day(text)), "text")


def _is_day(text: str) -> bool:
    """Return whether a text begins with a day that the calendar has."""
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


_kind_of_text = lru_cache(maxsize=10_000)(_looked_at)


def shape_of(value: Any) -> str:
    """Return what a value is: nothing, boolean, number, text, list or mapping."""
    known = _SHAPES.get(type(value))
    if known is not None:
        return known
    return next((name for kind, name in _SHAPES.items() if isinstance(value, kind)), "object")


_SHAPES: dict[type, str] = {
    type(None): "nothing",
    bool: "boolean",  # before the numbers: a bool is an int
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    tuple: "list",
    dict: "mapping",
    Mapping: "mapping",
}


def missing_keys(value: Any, *keys: str) -> list[str] | None:
    """Return those of some keys that a mapping does not have; none if it has all of them."""
    lost = [key for key in keys if not isinstance(value, Mapping) or key not in value]
    return lost or None


ENDINGS = frozenset(
    "cancel cancelled canceled locked blocked deleted returned refunded closed ended expired error"
    " hold archived frozen suspended disabled terminated void voided revoked recalled discontinued"
    " banned".split()
)
"""Words in the names of fields that are empty until something ends."""
FREE = frozenset(
    "owner assignee assigned holder taken reserved claimed discount flag flags warning warnings"
    " lock conflict conflicts dispute disputed alert alerts restriction restricted fraud".split()
)
"""Words in the names of fields that are empty as long as nobody has it, or nothing is wrong."""
_FIELD_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def size_of(value: Any) -> int:
    """Return how much a value holds: its members, or the characters of a text; 0 for nothing."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.strip())
    return len(value) if isinstance(value, _HOLDERS) else 1


_HOLDERS = (dict, list, tuple, Mapping)


def may_matter(key: str, value: Any) -> bool:
    """Return whether a field that was never seen may speak against acting on a record.

    Everything that says something may. What tells of an end or of something wrong (`deleted`) says
    nothing as long as it is false.
    """
    words = {word.lower() for word in _FIELD_WORD.findall(key)}
    return bool(value) if words & (ENDINGS | FREE) else size_of(value) > 0


def strange_keys(value: Any, *keys: str) -> list[str] | None:
    """Return the other keys under which a mapping has what may matter; or none."""
    items = value.items() if type(value) is dict or isinstance(value, Mapping) else ()
    found = [str(key) for key, held in items if key not in keys and may_matter(str(key), held)]
    return found or None


def empty_keys(value: Any, *keys: str) -> list[str] | None:
    """Return those of some keys under which a mapping has nothing; or none."""
    held = value if type(value) is dict or isinstance(value, Mapping) else {}
    found: list[str] = []
    for key in keys:
        one = held.get(key)
        # Every guard on a record comes by here, and most of its values are there.
        if one and type(one) is not str:
            continue
        if size_of(one) == 0:
            found.append(key)
    return found or None


def strange_items(value: Any, seen: Sequence[Any], always: Sequence[Any]) -> list[Any] | None:
    """Return the members of a list that no recorded one had, and those that it lost; or none."""
    held = list(value) if isinstance(value, list | tuple) else [value]
    new = [one for one in held if not any(equal(one, other) for other in seen)]
    lost = [f"no {one}" for one in always if not any(equal(one, other) for other in held)]
    return [*new, *lost] or None


def strange_fields(value: Any, known: Mapping[str, Any]) -> list[str] | None:
    """Return what of a record is unlike all recorded ones, by the way to it; or none.

    known: by the path of a field, with `*` for the members of a list: the values that it had if
    they were few, else its kind (see `field_kind`), or several with `or` between them. A path that
    ends with `@` has the names of the fields of a mapping.
    """
    found: dict[str, None] = {}
    for path, was in known.items():
        above, _, last = path.rpartition(".")
        holders = every(value, above) if above else [value]
        shown = path.replace(f"{ANY}.", "").removesuffix(f".{ANY}")
        if last == KEYS:
            for one in holders:
                strange = strange_keys(one, *was) if isinstance(one, Mapping) else [short(one)]
                found |= dict.fromkeys(f"{shown.removesuffix(KEYS)}{key}" for key in strange or ())
        else:
            for one in holders:
                held = _at(one, [last]) or ([None] if isinstance(one, Mapping) else [])
                for own in held if last == ANY or isinstance(one, Mapping) else ():
                    if not is_like(own, was):
                        found[f"{shown.removesuffix(ANY)} {short(own)}".strip()] = None
    return [*found] or None


def is_like(value: Any, was: Any) -> bool:
    """Return whether a value is one of some, or of a kind; see `strange_fields`."""
    if not isinstance(was, str):
        return any(equal(value, other) for other in was)
    kinds = was.split(" or ")
    if isinstance(value, str) and (ANY_TEXT in kinds or ("text" in kinds and not objection(value))):
        return True
    return field_kind(value) in kinds


ANY_TEXT = "any text"
"""The kind of a field whose recorded texts had words against acting, such as `hold`."""
_QUANTITY = r"((?:[€$£¥₹]|[A-Z]{3} )?)\s?[+-]?\d[\d.,]*((?:\s?[a-z%°€$£¥₹/]{1,8}|\s[^\W\d_]{1,8})?)"
_OBJECTION = (
    r"\b(?:not|never|cannot|no longer|stop|stopped|hold|wait|until|forbidden|prohibited|refuse[ds]?"
    r"|reject(?:ed|s)?|declined?|fraud|fraudulent|disputed?|blocked|locked|frozen|suspended|revoked"
    r"|banned|invalid|unpaid|overdue|duplicate|warning|cancel(?:led|ed)?|void)\b|n['’]t\b"
)
_LONGEST_NOTE = 1_000


def objection(text: str) -> str:
    """Return the word of a short text that may speak against acting; empty if there is none."""
    if len(text) <= SHORT:
        return _objection_in(text)
    found = re.search(_OBJECTION, text, re.IGNORECASE) if len(text) <= _LONGEST_NOTE else None
    return found[0] if found else ""


@lru_cache(maxsize=10_000)
def _objection_in(text: str) -> str:
    found = re.search(_OBJECTION, text, re.IGNORECASE)
    return found[0] if found else ""


def field_kind(value: Any) -> str:
    """Return of what kind a field is: its shape, and of a text what it looks like.

    A quantity has its unit: `# EUR`. A text that may speak against something is `any text`.
    """
    shape = shape_of(value)
    if shape != "text":
        return shape
    kind = kind_of(value)
    if kind in ("date", "time", "e-mail"):
        return kind
    quantity = re.fullmatch(_QUANTITY, value.strip()) if len(value) <= SHORT else None
    if quantity and (quantity[1] or quantity[2]):
        return f"{quantity[1].strip()}{NUMBER} {quantity[2].strip()}".strip()
    return ANY_TEXT if objection(value) else "text"


def parsed(value: Any) -> Any:
    """Return what a text of JSON stands for; another value as it is."""
    bare = value.strip() if isinstance(value, str) else ""
    if bare[:1] in ("{", "[") and bare[-1:] in ("}", "]"):
        import json

        try:
            return json.loads(bare)
        except (ValueError, RecursionError):
            return value
    return value


NUMBER = "#"
"""Stands for any number in the turns of a text."""
GIVEN_VALUE = "@"
"""Stands for what a read was made with, in the turns of its text."""
_TEXT_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+(?:[.,:]\d+)*|[@#%+<>=!?-]")


def turns_of(text: Any, given: Sequence[Any], free: Sequence[str]) -> list[str]:
    """Return the words of a text that stand side by side on a line, without what it was read with.

    given: the values that the text was asked for by. free: labels behind which a line may say
    anything, as `owner` of `Owner: Ana`; `#` for numbers, which may be any.
    """
    texts = sorted({str(one).lower() for one in given if size_of(one)}, key=len, reverse=True)
    mask = re.compile("|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in texts) or r"(?!)")
    found: dict[str, None] = {}
    for line in re.split(r"[\n.;]+(?=\s|$)", str(text).lower()):
        label, colon, _ = line.partition(":")
        words = _TEXT_WORD.findall(mask.sub(GIVEN_VALUE, line))
        if colon and label.strip() in free:
            words = [*_TEXT_WORD.findall(label), ":"]
        if NUMBER in free:
            words = [NUMBER if word[0].isdigit() else word for word in words]
        if words:
            pairs = zip(["", *words], [*words, ""], strict=True)
            found |= dict.fromkeys(" ".join(pair) for pair in pairs)
    return list(found)


def strange_text(
    text: Any, given: Sequence[Any], free: Sequence[str], seen: Sequence[str], always: Sequence[str]
) -> list[str] | None:
    """Return what a text says that no recorded one said, or leaves out; or none.

    given, free: see `turns_of`. seen: the turns of all recorded texts. always: those that each had.
    """
    now = turns_of(text, given, free)
    new = [turn for turn in now if turn not in seen]
    known = {word for turn in seen for word in turn.split()}
    words = dict.fromkeys(w for turn in new for w in turn.split() if w not in known)
    lost = [f"no {turn.strip()!r}" for turn in always if turn not in now]
    return [*words] or [repr(turn.strip()) for turn in new] or lost or None


_ERROR_BEGINS = re.compile(
    r"\W*(?:(?-i:\w+(?:Error|Exception))|errors?|exception|traceback|fatal|fail(?:ed|ure)?|invalid"
    r"|denied|forbidden|unauthori[sz]ed|rejected|declined|refused|not found|cannot|can't"
    r"|could not|couldn't|unable to|no such)\b",
    re.IGNORECASE,
)
_ERROR_SAYS = re.compile(
    r"\b(?:not found|does not exist|doesn't exist|(?:permission|access) denied|timed out"
    r"|not (?:allowed|permitted|authori[sz]ed))\b",
    re.IGNORECASE,
)
_SHORT_TEXT = 200
_ERROR_KEYS = frozenset(
    "error errors errormessage errorcode exception failure failures failed iserror haserror"
    " fault traceback".split()
)
_SUCCESS_KEYS = frozenset("ok success succeeded successful issuccess".split())
_CODE_KEYS = frozenset("exitcode returncode exitstatus rc errno".split())
_STATUS_KEYS = frozenset("status statuscode httpstatus state outcome result".split())
_BAD = frozenset("error errored fail failed failure rejected denied declined refused".split())
_WRAPPERS = frozenset("result response data body output".split())
_TELLING_KEYS = _ERROR_KEYS | _SUCCESS_KEYS | _CODE_KEYS | _STATUS_KEYS | _WRAPPERS
_NO_ERROR = frozenset({"", "none", "null", "no", "ok", "0"})


def error_of(value: Any) -> Any:
    """Return the error that a result reports; none if it reports none.

    A text reports one by its first words, a mapping under a key such as `error`, `ok` or
    `exit_code`, and a list by an item. JSON in a text counts as what it stands for.
    """
    shape = shape_of(value)
    if shape == "text":
        return _error_in_text(value)
    if shape == "list":
        return next((found for one in value if (found := error_of(one)) is not None), None)
    if shape != "mapping":
        return None
    for key, held in value.items():
        name = _telling_name(key) if type(key) is str and len(key) <= SHORT else _plain_name(key)
        if name is None:
            continue
        if _is_bad(name, held):
            return held if name in _ERROR_KEYS and held is not True else f"{key} is {held}"
        if name in _WRAPPERS and isinstance(held, Mapping):
            inner = error_of(held)
            if inner is not None:
                return inner
    return None


def may_report(key: Any) -> bool:
    """Return whether a field of this name may report an error."""
    return _plain_name(key) is not None


def _plain_name(key: Any) -> str | None:
    """Return the name of a field that may report an error, without its signs; else None."""
    name = str(key).lower().replace("_", "").replace("-", "")
    return name if name in _TELLING_KEYS else None


_telling_name = lru_cache(maxsize=10_000)(_plain_name)


def _is_bad(name: str, held: Any) -> bool:
    """Return whether a field of a result says that something went wrong."""
    if name in _ERROR_KEYS:
        return bool(held) and (not isinstance(held, str) or held.strip().lower() not in _NO_ERROR)
    if name in _SUCCESS_KEYS:
        return held is False
    number = isinstance(held, int) and not isinstance(held, bool)
    if number and name in _CODE_KEYS:
        return bool(held != 0)
    if name not in _STATUS_KEYS:
        return False
    return 400 <= held < 600 if number else isinstance(held, str) and held.lower() in _BAD


def _error_in_text(text: str) -> Any:
    bare = text.strip()
    meant = parsed(text)
    if not isinstance(meant, str):
        return error_of(meant)
    if bare[:1] in ("{", "[") and bare[-1:] in ("}", "]"):
        return None
    says = len(bare) <= _SHORT_TEXT and _ERROR_SAYS.search(bare)
    return text if says or _ERROR_BEGINS.match(bare) else None


def matches(item: Any, fields: Mapping[str, Any]) -> bool:
    """Return whether an item has these fields with these values."""
    return isinstance(item, Mapping) and all(
        name in item and same(item[name], value) for name, value in fields.items()
    )


def _as_str(value: Any) -> str:
    return str(value)


def _as_int(value: Any) -> int:
    return bounded(int(value))


def _as_float(value: Any) -> float:
    return float(value)


SELECTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        given, only, only_key, smallest, largest, where, has, fits, merge, distinct, same,
        common, at_least, at_most, holding,
        pick, pick_at, select, every, among, fact_of, least_of, still_found, least, most, value_at,
        keyed, between, line_part, line_like, once, lines_after, lines_before, line_count,
        lines_above, lines_through, lines_to_last, end_of_list,
        sorted_place, module_name, looks_like, absent, stands_once,
        lines_once, lists_only, kind_of, shape_of, error_of, missing_keys, strange_keys, empty_keys,
        size_of,
        strange_text, strange_items, strange_fields, parsed,
    )
}  # fmt: skip
"""The functions that compiled routines select and check with; `direct` evaluates them."""
SELECTIONS |= TEXTS

FUNCTIONS: dict[str, Any] = {
    **{
        function.__name__: function
        for function in (len, sum, min, max, sorted, round, any, all, abs, zip, enumerate, nth)
    },
    **SELECTIONS,
    # Functions instead of the types, whose methods (`str.format`) the sandbox does not check.
    OMITTED: ABSENT,
    "str": _as_str,
    "int": _as_int,
    "float": _as_float,
}
