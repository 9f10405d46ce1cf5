"""Generate a subject's code from its schema, in two dialects that share one writer.

The module is for people and for this process: documented classes, collections, arbitration and
rules, with nothing but the standard library. The sandbox's dialect has the same classes in the
subset of Python that every sandbox runs, each with a function that reads it from a JSON row.

Everything that came from outside enters as a quoted literal or as a cleaned name.
"""

import keyword
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from em.errors import StateInvalid
from em.state.rules import RANKS, condition_code, deadlines_code
from em.state.schema import PROFILE, Constraint, FieldSchema, Policy, StateSchema, TypeSchema
from em.state.types import Typed, class_name, quoted, resolve

HEADER = """\
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from typing import Any, Literal
"""

BASE = '''
@dataclass(frozen=True, kw_only=True)
class Entry:
    """One value of a single-valued field: when it held, when it was recorded, and its source."""

    value: Any
    at: datetime.datetime
    recorded_at: datetime.datetime
    event_ids: tuple[str, ...] = ()
    source: str = ""
    status: Literal["decided", "confirmed", "stated", "inferred"] = "stated"


@dataclass(frozen=True, kw_only=True)
class Money:
    """An amount with its currency. Never add up amounts of different currencies."""

    amount: Decimal
    currency: str
'''

ARBITRATION = '''
def latest(entries: Sequence[Entry]) -> Entry | None:
    """Choose the entry with the latest time; among equals, the one recorded last."""
    return max(entries, key=lambda entry: (entry.at, entry.recorded_at), default=None)


def by_source(entries: Sequence[Entry], order: Sequence[str]) -> Entry | None:
    """Choose the latest entry of the first source that has one, or a later decision."""
    for source in order:
        found = [entry for entry in entries if entry.source == source]
        if found:
            return latest([*found, *(entry for entry in entries if entry.status == "decided")])
    return latest(entries)


def confirmed_first(entries: Sequence[Entry]) -> Entry | None:
    """Prefer decided, then confirmed, stated and inferred entries; among equals, the latest."""
    for status in ("decided", "confirmed", "stated", "inferred"):
        found = [entry for entry in entries if entry.status == status]
        if found:
            return latest(found)
    return None


def ask(entries: Sequence[Entry]) -> Entry | None:
    """Choose nothing while values differ, until a person decides; newer values reopen it."""
    decided = max(
        (entry for entry in entries if entry.status == "decided"),
        key=lambda entry: entry.recorded_at,
        default=None,
    )
    newer = [e for e in entries if decided is None or e.recorded_at > decided.recorded_at]
    values = [entry.value for entry in newer] + ([] if decided is None else [decided.value])
    if any(value != values[0] for value in values):
        return None
    return decided or latest(entries)
'''

RULES = '''
@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule, compiled from a constraint."""

    id: str
    severity: Literal["info", "warning", "high", "critical"]
    message: str
    holds: "Callable[[State, Mapping[str, Any]], bool]"
    action: str | None = None
    active_from: str | None = None
    active_until: str | None = None
    deadline: str | None = None
    deadlines: "Callable[[State], list[tuple[Any, Any]]] | None" = None
    offset: str | None = None
    event_ids: tuple[str, ...] = ()


def _plus(moment: Any, seconds: int) -> Any:
    """Add seconds to a date or datetime; None stays None."""
    return None if moment is None else moment + datetime.timedelta(seconds=seconds)


def _comparable(value: Any) -> Any:
    if isinstance(value, str):
        return value.casefold()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in value]
    return value


def _holds(left: Any, op: str, right: Any) -> bool:
    """Compare two values: texts ignore case, and an order with None is never true."""
    one, other = _comparable(left), _comparable(right)
    if op in ("==", "!="):
        return bool((one == other) == (op == "=="))
    if op in ("in", "not in"):
        return bool((one in other) == (op == "in")) if other is not None else op == "not in"
    if op == "contains":
        return one is not None and bool(other in one)
    if one is None or other is None:
        return False
    return bool(
        one < other if op == "<" else one <= other if op == "<=" else one > other if op == ">"
        else one >= other
    )
'''

AS_RECORD = '''
def as_record(value: Any) -> Any:
    """Turn an object back into the record that was given."""
    if isinstance(value, Money):
        return {"amount": str(value.amount), "currency": value.currency}
    if is_dataclass(value) and not isinstance(value, type):
        names = NAMES.get(type(value).__name__, {})
        own = [f.name for f in fields(value) if f.name not in ("event_ids", "as_given", "history")]
        record = {
            names.get(name, name): as_record(getattr(value, name))
            for name in own
            if getattr(value, name) is not None
        }
        return {**record, **getattr(value, "as_given", {})}
    if isinstance(value, list):
        return [as_record(item) for item in value]
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        return text[:-6] + "Z" if text.endswith("+00:00") else text
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
'''

SANDBOX_HEADER = """\
import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str


def _em_money(row):
    return Money(amount=Decimal(row["amount"]), currency=row["currency"])


def _em_moment(text):
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
"""


class Dialect(NamedTuple):
    """How to write classes.

    optional: give every field a default. readers: after each class, write a function that makes it
    from a JSON row.
    """

    decorator: str
    documented: bool
    examples: bool
    optional: bool
    readers: bool


_MODULE = Dialect(
    "@dataclass(frozen=True, kw_only=True, slots=True)",
    documented=True,
    examples=True,
    optional=False,
    readers=False,
)
_SANDBOX = Dialect(
    "@dataclass(frozen=True)", documented=False, examples=False, optional=True, readers=True
)


def write_module(schema: StateSchema, *, examples: bool = True) -> str:
    """Write the module. Without examples it shows types only, no values of records."""
    check_names(schema)
    names = ClassNames(schema)
    parts = [
        f'"""State of {_doc(schema.subject)}. Compiled by em: changes here are lost."""',
        "",
        HEADER,
        BASE,
        *_classes(schema, names, _MODULE._replace(examples=examples)),
    ]
    parts += ["", *_state(schema)]
    parts.append(ARBITRATION)
    parts += _arbitration(schema)
    parts.append(RULES)
    parts += _rules(schema)
    parts += _names_table(schema, names)
    parts.append(AS_RECORD)
    return "\n".join(parts).rstrip() + "\n"


def write_sandbox_code(schema: StateSchema) -> str:
    """Write the classes for the sandbox, with `_EM_READ`: the reader of each collection's rows."""
    check_names(schema)
    names = ClassNames(schema)
    collections = [type_ for type_ in schema.types.values() if type_.given != PROFILE]
    arguments = "".join(f", {one.collection}=()" for one in collections)
    readers = ", ".join(f'"{one.collection}": _em_read_{one.name}' for one in collections)
    parts = [
        SANDBOX_HEADER,
        *_classes(schema, names, _SANDBOX),
        "",
        "class State:",
        f"    def __init__(self{arguments}):",
        *(f"        self.{one.collection} = {one.collection}" for one in collections),
        "        self.profile = None",
        "",
        "",
        f"_EM_READ = {{{readers}}}",
        "",
    ]
    return "\n".join(parts)


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def check_names(schema: StateSchema) -> None:
    """Raise for a name that is not as em makes them: a schema may come from anybody's database."""
    for constraint in schema.constraints:
        _check_name(constraint.id.replace("-", "_"), "constraint")
    for type_ in schema.types.values():
        _check_name(type_.name, "type")
        _check_name(type_.collection, "collection")
        _check_fields(type_)


def _check_fields(type_: TypeSchema) -> None:
    for field in type_.fields.values():
        _check_name(field.name, "field")
        nested = _nested(field)
        if nested is not None:
            _check_fields(nested)


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise StateInvalid(
            f"{name[:60]!r} is no name of a {what} that em gives",
            place="the stored state",
            fix="somebody changed it; compile the state again from the log: em checkpoint SUBJECT",
        )


class ClassNames:
    """Names for the classes of nested objects: Trip.hotel becomes TripHotel."""

    def __init__(self, schema: StateSchema) -> None:
        taken = {type_.name for type_ in schema.types.values()} | {PROFILE}
        self._names: dict[int, str] = {}
        self._below: dict[str, list[tuple[TypeSchema, str]]] = {}
        for type_ in schema.types.values():
            found: list[tuple[TypeSchema, str]] = []
            self._name(type_, type_.name, taken, found)
            self._below[type_.name] = found

    def _name(
        self, type_: TypeSchema, prefix: str, taken: set[str], found: list[tuple[TypeSchema, str]]
    ) -> None:
        for field in type_.fields.values():
            nested = _nested(field)
            if nested is None or not _has_class(field):
                continue
            name = class_name(f"{prefix}_{field.name}", taken)
            taken.add(name)
            self._names[id(nested)] = name
            self._name(nested, name, taken, found)
            found.append((nested, name))

    def nested_of(self, type_: TypeSchema) -> list[tuple[TypeSchema, str]]:
        """Return the nested classes of a type, the innermost first."""
        return self._below.get(type_.name, [])

    def typed(self, field: FieldSchema) -> Typed:
        """Resolve a field's type, using the name of its nested class."""
        nested = _nested(field)
        return resolve(field, "" if nested is None else self._names.get(id(nested), ""))


def _nested(field: FieldSchema) -> TypeSchema | None:
    while field.nested is None and field.items is not None:
        field = field.items
    return field.nested


def _has_class(field: FieldSchema) -> bool:
    """Tell whether this field's objects get a class."""
    return "nested(" in resolve(field, "X").target


def _classes(schema: StateSchema, names: ClassNames, dialect: Dialect) -> Iterator[str]:
    """Write every class after the classes it uses. Profile is always there."""
    types = list(schema.types.values())
    if PROFILE not in schema.types:
        types.append(TypeSchema(PROFILE, PROFILE, "profile", []))
    for type_ in types:
        for nested, name in names.nested_of(type_):
            yield from _class(nested, name, names, dialect, is_nested=True)
        yield from _class(type_, type_.name, names, dialect)


def _class(
    type_: TypeSchema,
    name: str,
    names: ClassNames,
    dialect: Dialect,
    *,
    is_nested: bool = False,
) -> Iterator[str]:
    is_keyed = type_.key is not None
    yield from ("", dialect.decorator, f"class {name}:")
    if dialect.documented:
        yield from (f'    """{_class_doc(type_, is_nested=is_nested)}"""', "")
    for field in type_.fields.values():
        typed = names.typed(field)
        optional = dialect.optional or is_keyed or typed.nullable or field.count < type_.count
        annotation = typed.annotation
        if optional and annotation not in ("Any", "None"):
            annotation += " | None"
        default = " = None" if optional or annotation in ("Any", "None") else ""
        yield f"    {field.name}: {annotation}{default}"
        if dialect.documented:
            doc = _field_doc(type_, field, typed, examples=dialect.examples)
            yield f'    """{_doc(doc)}"""'
    if dialect.readers:
        yield from ("    event_ids: tuple[str, ...] = ()", "", "")
        yield from _reader(type_, name, names, is_nested=is_nested)
    else:
        yield from _own_fields(is_nested=is_nested, is_keyed=is_keyed)
    yield ""


def _own_fields(*, is_nested: bool, is_keyed: bool) -> Iterator[str]:
    """Write the fields that em adds to a class: events, values as given, history."""
    if not is_nested:
        yield "    event_ids: tuple[str, ...] = field(default=(), repr=False, compare=False)"
        yield (
            "    as_given: Mapping[str, Any]"
            " = field(default_factory=dict, repr=False, compare=False)"
        )
    if is_keyed:
        yield (
            "    history: Mapping[str, tuple[Entry, ...]]"
            " = field(default_factory=dict, repr=False, compare=False)"
        )


def _reader(type_: TypeSchema, name: str, names: ClassNames, *, is_nested: bool) -> Iterator[str]:
    yield f"def _em_read_{name}(row):"
    yield f"    return {name}("
    for field in type_.fields.values():
        value = f'row.get("{field.name}")'
        read = _read(f'row["{field.name}"]', field, names)
        if read != f'row["{field.name}"]':
            value = f"None if {value} is None else {read}"
        yield f"        {field.name}={value},"
    if not is_nested:
        yield '        event_ids=tuple(row.get("event_ids", ())),'
    yield "    )"


def _read(value: str, field: FieldSchema, names: ClassNames) -> str:
    """Write the expression that turns a JSON value into the field's type."""
    typed = names.typed(field)
    target = typed.target
    simple = {
        "time": f"datetime.time.fromisoformat({value})",
        "datetime": f"_em_moment({value})",
        "decimal": f"Decimal({value})",
        "money": f"_em_money({value})",
    }
    if target in simple:
        return simple[target]
    if target.startswith("date"):
        return f"datetime.date.fromisoformat({value})"
    if target.startswith("nested("):
        return f"_em_read_{typed.annotation}({value})"
    if target.startswith("list(") and field.items is not None:
        inner = _read("item", field.items, names)
        return value if inner == "item" else f"[{inner} for item in {value}]"
    return value


def _class_doc(type_: TypeSchema, *, is_nested: bool) -> str:
    if type_.given == PROFILE:
        return "Facts about the subject: the current value of each. `history` has all values."
    what = f"{_doc(type_.given)}: {type_.count} record{'s' if type_.count != 1 else ''}."
    if is_nested:
        what = f"The object in the field {_doc(type_.given)}."
    elif type_.key:
        what = f"{_doc(type_.given)}: one for each {' and '.join(map(_doc, type_.key))}."
    if type_.left_out:
        what += f" {type_.left_out} values are in as_given only: the class has no more fields."
    return what


def _field_doc(type_: TypeSchema, field: FieldSchema, typed: Typed, *, examples: bool) -> str:
    named = "" if field.given == field.name else f"{field.given!r}; "
    counted = f"{field.count} of {type_.count} records"
    text = named + (counted if type_.key is None else f"recorded {field.count} times")
    if field.nulls:
        text += f", {field.nulls} null"
    if typed.note:
        text += f"; {typed.note}"
    if not examples:
        return text
    if typed.nullable and field.odd:
        text += f": {', '.join(repr(example.text) for example in field.odd)}"
    shown = field.examples or (field.items.examples if field.items else [])
    if shown:
        text += f"; such as {', '.join(example.text for example in shown)}"
    return text


def _doc(text: str) -> str:
    """Make text safe in a docstring: one printable line without quotes or backslashes."""
    clean = "".join(char if char.isprintable() else " " for char in text[:400])
    return clean.replace("\\", "/").replace('"', "'")


def _state(schema: StateSchema) -> Iterator[str]:
    yield ""
    yield "@dataclass(frozen=True, kw_only=True)"
    yield "class State:"
    yield '    """All records of the subject, as typed collections."""'
    yield ""
    yield "    profile: Profile = field(default_factory=Profile)"
    for type_ in schema.types.values():
        if type_.given != PROFILE:
            yield f"    {type_.collection}: list[{type_.name}] = field(default_factory=list)"
    yield ""


def policy_of(schema: StateSchema, type_: TypeSchema, field: FieldSchema) -> Policy:
    """Return the policy of a field: the one a person chose, else `latest`."""
    return schema.policies.get(f"{type_.given}.{field.given}", Policy())


def _arbitration(schema: StateSchema) -> Iterator[str]:
    table: list[str] = []
    for type_ in schema.types.values():
        if type_.key is None:
            continue
        rows = []
        for field in type_.fields.values():
            function = f"settle_{type_.name.lower()}_{field.name}"
            yield ""
            yield ""
            yield f"def {function}(entries: Sequence[Entry]) -> Entry | None:"
            yield f"    return {_settled(policy_of(schema, type_, field))}"
            rows.append(f"{quoted(field.name)}: {function}")
        table.append(f"    {quoted(type_.name)}: {{{', '.join(rows)}}},")
    yield ""
    yield ""
    yield "SETTLE: Mapping[str, Mapping[str, Callable[[Sequence[Entry]], Entry | None]]] = {"
    yield from table
    yield "}"
    yield ""


def _settled(policy: Policy) -> str:
    if policy.name == "source":
        return f"by_source(entries, ({''.join(f'{quoted(source)}, ' for source in policy.order)}))"
    return {"latest": "latest", "confirmed": "confirmed_first", "ask": "ask"}[policy.name] + (
        "(entries)"
    )


def _rules(schema: StateSchema) -> Iterator[str]:
    made: list[str] = []
    for number, constraint in enumerate(ordered(schema.constraints), 1):
        function = f"rule_{number}_{constraint.id.replace('-', '_')}"
        code = "True"
        if constraint.when is not None:
            code = condition_code(constraint.when, schema, f"constraint {constraint.id!r}")
        yield ""
        yield ""
        yield f"def {function}(state: State, details: Mapping[str, Any]) -> bool:"
        yield f'    """{_doc(constraint.message)}"""'
        yield f"    return {code}"
        if isinstance(constraint.deadline, dict):
            place = f"constraint {constraint.id!r}"
            yield ""
            yield ""
            yield f"def deadlines_{number}(state: State) -> list[tuple[Any, Any]]:"
            yield f"    return {deadlines_code(constraint.deadline, schema, place)}"
        made.append(_rule(constraint, function, number))
    yield ""
    yield ""
    yield "RULES: tuple[Rule, ...] = ("
    yield from made
    yield ")"
    yield ""


def ordered(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Sort constraints by severity, the worst first, then by id."""
    return sorted(constraints, key=lambda found: (RANKS[found.severity], found.id))


def _rule(constraint: Constraint, function: str, number: int) -> str:
    parts = [
        f"id={quoted(constraint.id)}",
        f"severity={quoted(constraint.severity)}",
        f"message={quoted(constraint.message)}",
        f"holds={function}",
    ]
    for name in ("action", "active_from", "active_until", "deadline", "offset"):
        value = getattr(constraint, name)
        if isinstance(value, dict):
            parts.append(f"deadlines=deadlines_{number}")
        elif value is not None:
            parts.append(f"{name}={quoted(value)}")
    events = "".join(f"{quoted(event)}, " for event in constraint.events)
    parts.append(f"event_ids=({events})")
    return f"    Rule({', '.join(parts)}),"


def _names_table(schema: StateSchema, names: ClassNames) -> Iterator[str]:
    yield "NAMES: Mapping[str, Mapping[str, str]] = {"
    classes = [(type_, type_.name) for type_ in schema.types.values()]
    for type_ in schema.types.values():
        classes += names.nested_of(type_)
    for type_, name in classes:
        changed = [f for f in type_.fields.values() if f.given != f.name]
        if changed:
            rows = ", ".join(f"{quoted(field.name)}: {quoted(field.given)}" for field in changed)
            yield f"    {quoted(name)}: {{{rows}}},"
    yield "}"
    yield ""


MODULE = "em_state"


_loading = threading.Lock()


@lru_cache(maxsize=64)
def load_module(code: str) -> ModuleType:
    """Run a generated module in this process. Only text that em itself wrote may come here."""
    module = ModuleType(MODULE)
    # dataclasses look up the module of a class by its name while the class is created.
    with _loading:
        sys.modules[MODULE] = module
        try:
            exec(compile(code, f"<{MODULE}>", "exec"), module.__dict__)  # noqa: S102 - written by em
        finally:
            del sys.modules[MODULE]
    return module


_DOC = re.compile(r' *"""[^"\\]*"""')
"""A docstring on one line that no quote can end and no backslash can change."""


def bare_module(code: str) -> str:
    """Remove the docstrings, so that subjects of the same shape have the same text.

    Every removed line is checked to be only a docstring; so running the rest proves the whole.
    """
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if line.lstrip(" ").startswith('"""'):
            if not _DOC.fullmatch(line):
                raise ValueError(f"line {number + 1} must be a docstring on one line")
            lines[number] = line[: -len(line.lstrip(" "))] + "..."
    return "\n".join(lines)
