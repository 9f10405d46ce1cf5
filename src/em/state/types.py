"""Types of records: what was seen in each field, the Python type that follows, and conversion.

Records are folded into the profile of their type column by column. The counts of a profile add up,
so a type is the same whether its records came at once or one checkpoint at a time. A value that
does not convert back to exactly what was given is stored beside the typed one (`as_given`).
"""

import builtins
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from em.state.schema import PROFILE, Example, FieldSchema, StateSchema, TypeSchema
from em.text.dates import MONTHS
from em.values.canonical import Json

LONGEST = 40
"""Longer texts are never read as dates, numbers or amounts."""

_TRUTHS = frozenset({"true", "false", "True", "False"})
_DIGIT = re.compile(r"\d")
_NUMERIC = frozenset("-0123456789")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_TIME = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?")
_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")
_INT = re.compile(r"-?(0|[1-9]\d{0,30})")
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,30})\.\d{1,30}")
_MONEY = re.compile(
    r"(?P<sign>-?)(?:(?P<symbol>US\$|[$€£¥])|(?P<before>[A-Z]{3}) )(?P<first>[\d,]+(?:\.\d+)?)"
    r"|(?P<last>-?[\d,]+(?:\.\d+)?) ?(?:(?P<behind>[A-Z]{3})|(?P<euro>€))"
)
_GROUPED = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")
CURRENCIES = {"US$": "USD", "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_KNOWN = frozenset(
    "USD EUR GBP JPY CHF CAD AUD NZD CNY INR BRL SEK NOK DKK".split()
    + "PLN CZK HUF MXN ZAR KRW SGD HKD".split()
)
_DAY_MONTH = re.compile(r"(\d{1,2})\.? ([A-Za-z]{3,9})\.?,? (\d{4})")
_MONTH_DAY = re.compile(r"([A-Za-z]{3,9})\.? (\d{1,2})(?:[a-z]{2})?,? (\d{4})")
_NUMERIC_DATES = (
    (re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})"), (1, 2, 3)),
    (re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})"), (3, 2, 1)),
)


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value; for a text, the kind of what it contains."""
    kind = _KINDS.get(type(value))
    return text_kind(value) if kind is None else kind


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    list: "list",
    dict: "object",
    type(None): "null",
}


def text_kind(text: str) -> str:
    """Name what a text contains, judged by its form: a date, a number, an amount, or `text`."""
    if not 0 < len(text) <= LONGEST:
        return "text"
    if text in _TRUTHS:
        return "bool_text"
    if _DIGIT.search(text) is None:
        return "text"  # every other kind has a digit
    # A text that begins with a letter can only be a date in words or an amount.
    for kind, test in _TESTS if text[0] in _NUMERIC else _WORDY:
        if test(text):
            return kind
    return _slashed_kind(text)


def _slashed_kind(text: str) -> str:
    """Name the order of a date with slashes. Only a number above 12 shows which part is the day."""
    found = _SLASHED.fullmatch(text)
    if found is None or (to_date(text, "dmy") is None and to_date(text, "mdy") is None):
        return "text"
    if int(found[1]) > 12:
        return "date_dmy"
    return "date_mdy" if int(found[2]) > 12 else "date_slashed"


def to_date(text: str, order: str = "") -> date | None:
    """Read a date: ISO 8601, in words, with dots, year first; with slashes only in `order`."""
    try:
        if _ISO_DATE.fullmatch(text):
            return date.fromisoformat(text)
        for pattern, (year, month, day) in _NUMERIC_DATES:
            if found := pattern.fullmatch(text):
                return date(int(found[year]), int(found[month]), int(found[day]))
        return _in_words(text) or _slashed(text, order)
    except (ValueError, KeyError):
        return None


def _in_words(text: str) -> date | None:
    if found := _DAY_MONTH.fullmatch(text):
        return date(int(found[3]), MONTHS[found[2].lower()], int(found[1]))
    if found := _MONTH_DAY.fullmatch(text):
        return date(int(found[3]), MONTHS[found[1].lower()], int(found[2]))
    return None


def _slashed(text: str, order: str) -> date | None:
    found = _SLASHED.fullmatch(text) if order else None
    if found is None:
        return None
    first, second, year = int(found[1]), int(found[2]), int(found[3])
    return date(year, second, first) if order == "dmy" else date(year, first, second)


def to_time(text: str) -> time | None:
    """Read a time of day."""
    try:
        return time.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        return None


def to_datetime(text: str) -> datetime | None:
    """Read a date with a time. A zone is preserved, and none is added."""
    try:
        return datetime.fromisoformat(text) if _DATETIME.fullmatch(text) else None
    except ValueError:
        return None


def to_decimal(value: Any) -> Decimal | None:
    """Read a number exactly, with the digits it was written with."""
    if type(value) in (int, float):
        return Decimal(repr(value))
    if isinstance(value, str) and (_INT.fullmatch(value) or _DECIMAL.fullmatch(value)):
        return Decimal(value)
    return None


def to_money(text: str) -> tuple[Decimal, str] | None:
    """Read an amount with a known currency; None without one."""
    found = _MONEY.fullmatch(text)
    if found is None:
        return None
    symbol = found["symbol"] or found["euro"]
    currency = CURRENCIES[symbol] if symbol else (found["before"] or found["behind"])
    number = (found["sign"] or "") + (found["first"] or found["last"])
    if currency not in _KNOWN or not _GROUPED.fullmatch(number):
        return None
    try:
        return Decimal(number.replace(",", "")), currency
    except InvalidOperation:
        return None


def written_datetime(value: datetime) -> str:
    """Write a datetime in ISO 8601, with Z for UTC."""
    text = value.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


_TESTS: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("date", to_date),
    ("time", to_time),
    ("datetime", to_datetime),
    ("int_text", _INT.fullmatch),
    ("decimal_text", _DECIMAL.fullmatch),
    ("money", to_money),
)
_WORDY: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("date", to_date),
    ("money", to_money),
)


MAX_NAME = 60
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^A-Za-z0-9]+")


_FIELDS = frozenset(
    {"as_given", "datetime", "event_ids", "field", "history"}
    | {one.__name__ for one in (bool, dict, float, int, list, str, tuple)}
)
"""Names that the body of a generated class uses, which a field can't have."""
_CLASSES = frozenset(dir(builtins)) | frozenset(
    "Any Callable Decimal Entry Literal Mapping Money Profile Rule Sequence State".split()
)
"""Names that generated code uses, which a class can't have."""


def _ascii(text: str) -> str:
    """Remove accents, and replace other letters beyond ASCII with their code points.

    So letters of two scripts that look alike never become the same name.
    """
    parts = []
    for char in unicodedata.normalize("NFKD", text[:MAX_NAME]):
        if char.isascii():
            parts.append(char)
        elif not unicodedata.combining(char):
            parts.append(f"_u{ord(char):04x}_" if char.isalnum() else "_")
    return "".join(parts)


def _words(text: str) -> list[str]:
    return [word for word in _NOT_WORD.split(_CAMEL.sub("_", _ascii(text))) if word]


def field_name(given: str, taken: Container[str]) -> str:
    """Return a free attribute name for a field."""
    name = "_".join(_words(given)).lower() or "field"
    if name[0].isdigit():
        name = f"n_{name}"
    if keyword.iskeyword(name):
        name += "_"
    if name in _FIELDS:
        name += "_"
    return _free(name, taken)


def class_name(given: str, taken: Container[str]) -> str:
    """Return a free class name for a type of records."""
    name = _plain_class(given)
    if (name in _CLASSES and given != PROFILE) or keyword.iskeyword(name):
        name += "Record"
    return _free(name, taken)


def _plain_class(given: str) -> str:
    words = _words(given) or ["record"]
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return f"N{name}" if name[0].isdigit() else name


def collection_name(given: str, taken: Container[str]) -> str:
    """Return a free name for the collection of a type: its plain plural, trips for Trip."""
    name = _plural("_".join(_words(_plain_class(given))).lower())
    if keyword.iskeyword(name):
        name += "_"
    return _free(name, taken)


def _plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word if word.endswith("s") and not word.endswith("ss") else word + "es"
    return word + "s"


def _free(name: str, taken: Container[str]) -> str:
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


MAX_FIELDS = 250
"""Fields of one class. Further fields of a record go to `as_given`."""
MAX_VALUES = 12
MAX_VALUE = 40
EXAMPLES = 3
EXAMPLE = 40
MAX_LEVELS = 8
"""How deep classes may be nested."""
TEXTS = frozenset({"text", "bool_text", "date_dmy", "date_mdy", "date_slashed", *dict(_TESTS)})


def type_of(schema: StateSchema, given: str, key: list[str] | None = None) -> TypeSchema:
    """Find the type of this name, or add it to the schema."""
    found = schema.types.get(given)
    if found is None:
        classes = {known.name for known in schema.types.values()}
        name = class_name(given, classes)
        taken = {known.collection for known in schema.types.values()}
        collection = collection_name(given, taken)
        found = TypeSchema(given=given, name=name, collection=collection, key=key)
        schema.types[given] = found
    return found


def fold_records(
    type_: TypeSchema, records: Sequence[Json], events: Sequence[str], level: int = 0
) -> None:
    """Add records, each with its event, to the profile of their type."""
    type_.count += len(records)
    names = dict.fromkeys(chain.from_iterable(records))
    for given in names:
        field = type_.fields.get(given)
        if field is None:
            if len(type_.fields) >= MAX_FIELDS:
                type_.left_out += sum(given in record for record in records)
                continue
            taken = {known.name for known in type_.fields.values()}
            field = FieldSchema(given=given, name=field_name(given, taken))
            type_.fields[given] = field
        try:
            column = [record[given] for record in records]
        except KeyError:  # some records lack the field
            having = [n for n, record in enumerate(records) if given in record]
            column = [records[n][given] for n in having]
            fold_column(field, column, [events[n] for n in having], level)
        else:
            fold_column(field, column, events, level)


def fold_column(
    field: FieldSchema, values: Sequence[Any], events: Sequence[str], level: int
) -> None:
    """Add the values of one field to its profile."""
    types = Counter(map(type, values))
    nulls = types.pop(type(None), 0)
    field.nulls += nulls
    field.count += len(values) - nulls
    kinds = Counter(field.kinds)
    if str in types:
        kinds.update(_fold_texts(field, values, events, only=len(types) == 1 and not nulls))
        del types[str]
    for type_, number in types.items():
        kinds[kind_of(type_())] += number
    field.kinds = dict(kinds)
    _fold_examples(field, values, events)
    if list in types:
        _fold_items(field, values, events, level)
    if dict in types:
        _fold_nested(field, values, events, level)


def _fold_texts(
    field: FieldSchema, values: Sequence[Any], events: Sequence[str], *, only: bool
) -> Counter[str]:
    texts = Counter(values if only else [value for value in values if type(value) is str])
    kinds: Counter[str] = Counter()
    for text, number in texts.items():
        kind = text_kind(text)
        kinds[kind] += number
        if kind == "text" and len(field.odd) < EXAMPLES:
            field.odd = [*field.odd, Example(text[:EXAMPLE], events[values.index(text)])]
    if field.values is not None:
        new = [text for text in texts if text not in field.values]
        if len(field.values) + len(new) > MAX_VALUES or any(len(t) > MAX_VALUE for t in new):
            field.values = None
        else:
            first = {text: events[values.index(text)] for text in new}
            field.values = {**field.values, **first}
    return kinds


def _fold_examples(field: FieldSchema, values: Sequence[Any], events: Sequence[str]) -> None:
    if len(field.examples) >= EXAMPLES:
        return
    seen = {example.text for example in field.examples}
    examples = list(field.examples)
    for value, event in zip(values[:200], events, strict=False):
        if len(examples) >= EXAMPLES:
            break
        if value is None or isinstance(value, list | dict):
            continue
        text = str(value)[:EXAMPLE]
        if text not in seen:
            seen.add(text)
            examples.append(Example(text, event))
    field.examples = examples


def _fold_items(
    field: FieldSchema, values: Sequence[Any], events: Sequence[str], level: int
) -> None:
    items, their_events = [], []
    for value, event in zip(values, events, strict=True):
        if type(value) is list:
            items += value
            their_events += [event] * len(value)
    if field.items is None:
        field.items = FieldSchema(given=field.given, name=field.name)
    if items:
        fold_column(field.items, items, their_events, level + 1)


def _fold_nested(
    field: FieldSchema, values: Sequence[Any], events: Sequence[str], level: int
) -> None:
    if level >= MAX_LEVELS:
        return
    chosen = [n for n, value in enumerate(values) if type(value) is dict]
    if field.nested is None:
        field.nested = TypeSchema(given=field.given, name="", collection="")
    fold_records(field.nested, [values[n] for n in chosen], [events[n] for n in chosen], level + 1)


RARE = 20
"""A column of dates stays one while at most one value in this many is another text."""
LITERAL_FROM = 20
LITERAL_VALUES = 8
MAP_KEYS = 24
"""An object with more keys than this is a mapping, not a class."""

_DATES = frozenset({"date", "date_dmy", "date_mdy", "date_slashed"})
_FAMILIES: Mapping[str, frozenset[str]] = {
    "date": _DATES,
    "time": frozenset({"time"}),
    "datetime": frozenset({"datetime"}),
    "money": frozenset({"money"}),
    "bool": frozenset({"bool", "bool_text"}),
    "number": frozenset({"int", "float", "int_text", "decimal_text"}),
}
_IDENTIFIER = re.compile(
    r"(^|_)(ids?|zip|zipcode|postcode|code|phone|tel|isbn|iban|account|number|no|ref|serial|"
    r"sku|ssn|ean|upc|pin)$"
)
"""Names of fields whose digits identify something: they stay texts."""


class Typed(NamedTuple):
    """A field's type as the generated module writes it.

    target: how values are converted. Fields with equal targets can read each other's rows.
    """

    annotation: str
    target: str
    nullable: bool = False
    note: str = ""


def resolve(field: FieldSchema, nested_name: str = "") -> Typed:
    """Derive a field's type from its profile."""
    kinds = {kind: number for kind, number in field.kinds.items() if number}
    total = sum(kinds.values())
    if not total:
        return Typed("None", "plain")
    for family, members in _FAMILIES.items():
        members_seen = sum(number for kind, number in kinds.items() if kind in members)
        rest = total - members_seen
        if members_seen and (not rest or (rest == kinds.get("text", 0) and rest * RARE <= total)):
            found = _of_family(family, field, kinds)
            if found is not None:
                note = f"{rest} not a {family}, see as_given" if rest else found.note
                return _nullable_if(found, rest, note)
    return _plain(field, kinds, nested_name)


def _nullable_if(found: Typed, rest: int, note: str) -> Typed:
    if not rest:
        return found._replace(note=note)
    target = "number" if found.target == "plain" else found.target
    return found._replace(target=target, nullable=True, note=note)


def _of_family(family: str, field: FieldSchema, kinds: Mapping[str, int]) -> Typed | None:
    if family == "date":
        return _dates(kinds)
    if family == "number":
        return _numbers(field, kinds)
    if family == "bool":
        return Typed("bool", "bool" if "bool_text" in kinds else "plain")
    return Typed("Money" if family == "money" else f"datetime.{family}", family)


def _dates(kinds: Mapping[str, int]) -> Typed | None:
    """Type a column of dates; None if dates with slashes leave the order of day and month open."""
    orders = {kind[5:] for kind in ("date_dmy", "date_mdy") if kind in kinds}
    if len(orders) > 1 or ("date_slashed" in kinds and not orders):
        return None
    return Typed("datetime.date", f"date{orders.pop() if orders else ''}")


def _numbers(field: FieldSchema, kinds: Mapping[str, int]) -> Typed | None:
    texts = {"int_text", "decimal_text"} & kinds.keys()
    if not texts:
        is_float = "float" in kinds
        return Typed(("int | float" if "int" in kinds else "float") if is_float else "int", "plain")
    if _IDENTIFIER.search(field.name):
        return None
    whole = kinds.keys() <= {"int", "int_text", "text"}
    return Typed("int", "int") if whole else Typed("Decimal", "decimal")


def _plain(field: FieldSchema, kinds: Mapping[str, int], nested_name: str) -> Typed:
    """Type a column by its JSON types, with a class if all values are objects."""
    is_text = bool(TEXTS & kinds.keys())
    scalars = [kind for kind in ("bool", "int", "float") if kind in kinds]
    if kinds.keys() == {"object"}:
        return _object(field, nested_name)
    if "object" in kinds:
        return Typed("Any", "plain", note="values of several kinds")
    if kinds.keys() == {"list"}:
        return _list(field, nested_name)
    if "list" in kinds:
        return Typed("Any", "plain", note="values of several kinds")
    if is_text and not scalars:
        return Typed(_literal(field) or "str", "plain")
    note = "values of several kinds" if is_text or len(scalars) > 1 else ""
    return Typed(" | ".join([*scalars, *(["str"] if is_text else [])]), "plain", note=note)


def _literal(field: FieldSchema) -> str:
    values = field.values
    if not values or field.count < LITERAL_FROM or len(values) > LITERAL_VALUES:
        return ""
    if field.count < 4 * len(values):
        return ""
    return f"Literal[{', '.join(map(quoted, sorted(values)))}]"


def _object(field: FieldSchema, nested_name: str) -> Typed:
    nested = field.nested
    if nested is None or not nested.fields or len(nested.fields) > MAP_KEYS or not nested_name:
        return Typed("dict[str, Any]", "plain")
    return Typed(nested_name, f"nested({layout(nested)})")


def _list(field: FieldSchema, nested_name: str) -> Typed:
    if field.items is None or not field.items.kinds:
        return Typed("list[Any]", "plain")
    if field.items.nulls:
        return Typed("list[Any]", "plain", note="some of its values are null")
    item = resolve(field.items, nested_name)
    if item.nullable or (item.target != "plain" and item.annotation == "Any"):
        return Typed("list[Any]", "plain")
    return Typed(
        f"list[{item.annotation}]", "plain" if item.target == "plain" else f"list({item.target})"
    )


def layout(type_: TypeSchema) -> str:
    """Describe how rows of this type are written. Equal layouts can share a block."""
    parts = []
    for field in type_.fields.values():
        target = resolve(field, "X").target
        if target not in ("plain",):
            parts.append(f"{field.given}={target}")
    return ";".join(parts)


def fits(old: TypeSchema, new: TypeSchema) -> bool:
    """Tell whether the new class reads rows that were written for the old profile."""
    for given, field in old.fields.items():
        if resolve(field, "X").target != resolve(new.fields[given], "X").target:
            return False
    return old.key == new.key


def quoted(text: str) -> str:
    """Write a text as a Python literal: double quotes, ASCII only."""
    escaped = text.encode("unicode_escape").decode("ascii")
    return '"' + escaped.replace('"', '\\"') + '"'


def holds(field: FieldSchema, value: Any) -> bool:
    """Tell whether a value fits the type that a field has: with it, the type stays the same.

    A text fits among a few known texts, and a number among numbers of another form. None always
    fits: the record then has no value there.
    """
    if value is None:
        return True
    if type(value) is list and field.items is not None and field.kinds.keys() == {"list"}:
        items = field.items
        return all(holds(items, item) for item in value)
    nested = field.nested
    if type(value) is dict and nested is not None and resolve(field, "X").annotation == "X":
        fields = nested.fields
        return all(given in fields and holds(fields[given], value[given]) for given in value)
    after = deepcopy(field)
    fold_column(after, [value], [""], 0)
    convert = converter(after)
    is_read = convert is None or convert(value)[0] is not None
    return is_read and _breadth(field) in (_breadth(after), "None")


def _breadth(field: FieldSchema) -> str:
    """Name a field's type without what any further value may change: known texts, decimals."""
    annotation = resolve(field, "X").annotation
    if annotation in ("int", "float", "int | float", "Decimal"):
        return "number"
    return "str" if annotation.startswith("Literal[") else annotation


Converted = tuple[Any, bool]
"""A converted value, and whether it converts back to exactly what was given."""
Convert = Callable[[Any], Converted]


def converter(field: FieldSchema) -> Convert | None:
    """Return the function that converts a field's values; None if they need no conversion."""
    typed = resolve(field, "X")
    if typed.target.startswith("nested("):
        return _nested_converter(field.nested)
    if typed.target.startswith("list("):
        assert field.items is not None
        return _list_converter(converter(field.items))
    return _CONVERTERS.get(typed.target)


def _nested_converter(nested: TypeSchema | None) -> Convert:
    assert nested is not None
    known = nested.fields
    made = {given: (field.name, converter(field)) for given, field in known.items()}

    def convert(value: Any) -> Converted:
        if type(value) is not dict:
            return None, False
        row: Json = {}
        exact = True
        for given, item in value.items():
            if given not in made or item is None:
                exact = False
                continue
            name, inner = made[given]
            row[name], same = (item, True) if inner is None else inner(item)
            exact = exact and same
        return row, exact

    return convert


def _list_converter(inner: Convert | None) -> Convert:
    assert inner is not None

    def convert(value: Any) -> Converted:
        if type(value) is not list:
            return None, False
        converted = [inner(item) for item in value]
        return [item for item, _ in converted], all(same for _, same in converted)

    return convert


def _timed(read: Callable[[str], Any]) -> Convert:
    """Return the converter of texts that are read as a date, a time or both."""

    def convert(value: Any) -> Converted:
        found = read(value) if isinstance(value, str) else None
        is_moment = isinstance(found, datetime)
        written = found and (written_datetime(found) if is_moment else found.isoformat())
        return written, written == value

    return convert


def _whole(value: Any) -> Converted:
    if type(value) is int:
        return value, True
    found = to_decimal(value)
    return None if found is None else int(found), False


def _exactly(value: Any) -> Converted:
    found = to_decimal(value)
    written = None if found is None else str(found)
    return written, type(value) is str and written == value


def _truth(value: Any) -> Converted:
    if type(value) is bool:
        return value, True
    return {"true": True, "false": False}.get(str(value).lower()), False


def _amount(value: Any) -> Converted:
    found = to_money(value) if isinstance(value, str) else None
    if found is None:
        return None, False
    amount, currency = found
    return {"amount": str(amount), "currency": currency}, False


def _number(value: Any) -> Converted:
    is_number = type(value) in (int, float)
    return (value, True) if is_number else (None, False)


_CONVERTERS: Mapping[str, Convert] = {
    "date": _timed(to_date),
    "datedmy": _timed(partial(to_date, order="dmy")),
    "datemdy": _timed(partial(to_date, order="mdy")),
    "time": _timed(to_time),
    "datetime": _timed(to_datetime),
    "int": _whole,
    "decimal": _exactly,
    "bool": _truth,
    "money": _amount,
    "number": _number,
}
