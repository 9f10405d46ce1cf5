"""Guard functions: what the recorded guards of behaviours say, and routines no longer do.

The evaluators know them beside the functions of routines, so that a recorded behaviour is replayed
as it was recorded. They go with the next issue, which rebuilds behaviours on plain routines.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from em.runner.expressions.functions import ANY, KEYS, at_path, bounded, every
from em.runner.expressions.selection import items_of
from em.runner.expressions.texts import SHORT, kind_of
from em.values.canonical import identical, same, short

MAX_COMPARISONS = 10_000_000
"""How often one function may compare two values."""


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


def matches(item: Any, fields: Mapping[str, Any]) -> bool:
    """Return whether an item has these fields with these values."""
    return isinstance(item, Mapping) and all(
        name in item and same(item[name], value) for name, value in fields.items()
    )


def pick_at(items: Any, path: str, wanted: Any) -> Any:
    """Return the one item that has a value at a path such as `options.size`, texts in any case."""
    found = [
        item for item in items_of(items) if any(same(one, wanted) for one in every(item, path))
    ]
    if len(found) != 1:
        raise ValueError(f"pick_at({path}, {wanted!r}) needs one item, there are {len(found)}")
    return found[0]


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
    held = [(record, at_path(record, key.split("."))) for record in items_of(records)]
    _check_comparisons(len(values), len(held))
    facts: list[Any] = []
    for value in values:
        found = [record for record, keys in held if any(equal(one, value) for one in keys)]
        if not found:
            raise ValueError(f"no record has {short(value)} as its {key}")
        facts += [fact for record in found for fact in at_path(record, field.split("."))]
    if not facts:
        raise ValueError(f"no record says its {field}")
    return facts


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


def equal(one: Any, other: Any) -> bool:
    """Compare two values; a number equals the same number as a text."""
    if type(one) is str and type(other) is str:
        return one == other
    if isinstance(one, str) != isinstance(other, str) and not isinstance(one, bool):
        numbers = int | float | str
        if isinstance(one, numbers) and isinstance(other, numbers) and not isinstance(other, bool):
            return str(one).strip() == str(other).strip()
    return identical(one, other)


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
                held = at_path(one, [last]) or ([None] if isinstance(one, Mapping) else [])
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
NUMBER = "#"
"""Stands for the number of a quantity."""
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


def _as_str(value: Any) -> str:
    return str(value)


def _as_int(value: Any) -> int:
    return bounded(int(value))


GUARD_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        function.__name__: function
        for function in (
            pick, pick_at, among, fact_of, least_of, least, most, value_at, kind_of, shape_of,
            size_of, strange_keys, empty_keys, strange_items, strange_fields, parsed, error_of,
        )
    },
    "sum": sum,
    "str": _as_str,
    "int": _as_int,
}  # fmt: skip
"""These functions by name."""
