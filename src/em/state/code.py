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
from types import CodeType, ModuleType
from typing import NamedTuple

from em.errors import StateInvalid
from em.state.conditions import Conditions, comparison_source, literal
from em.state.rules import RANKS
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
    how: str = ""
    words: str = ""
    speaker: str = ""
    origin: Literal["own", "agent", "imported", "web"] = "own"
'''

MONEY = '''
@dataclass(frozen=True, kw_only=True)
class Money:
    """An amount with its currency. Amounts of one currency add up and compare, others don't."""

    amount: Decimal
    currency: str

    def _of(self, other: "Money") -> Decimal:
        """Return the other amount, if it has the same currency."""
        if self.currency != other.currency:
            raise TypeError(f"{self.currency} and {other.currency} can't be added or compared")
        return other.amount

    def __add__(self, other: Any) -> "Money":
        if not isinstance(other, Money):
            return NotImplemented
        return Money(amount=self.amount + self._of(other), currency=self.currency)

    def __radd__(self, other: Any) -> "Money":
        """Begin a sum: `sum` adds the first amount to the number 0."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __sub__(self, other: Any) -> "Money":
        return self + -other if isinstance(other, Money) else NotImplemented

    def __neg__(self) -> "Money":
        return Money(amount=-self.amount, currency=self.currency)

    def __mul__(self, factor: int | Decimal) -> "Money":
        return Money(amount=self.amount * factor, currency=self.currency)

    def __truediv__(self, divisor: int | Decimal) -> "Money":
        return Money(amount=self.amount / divisor, currency=self.currency)
'''

MONEY_ORDER = """
    def __lt__(self, other: Any) -> bool:
        return self.amount < self._of(other) if isinstance(other, Money) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.amount <= self._of(other) if isinstance(other, Money) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self.amount > self._of(other) if isinstance(other, Money) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.amount >= self._of(other) if isinstance(other, Money) else NotImplemented
"""

ARBITRATION = '''
def latest(entries: Sequence[Entry]) -> Entry | None:
    """Choose the entry with the latest time, of those that no decision came after."""
    decided = [entry.recorded_at for entry in entries if entry.status == "decided"]
    left = [e for e in entries if e.recorded_at >= max(decided)] if decided else entries
    return max(left, key=lambda entry: (entry.at, entry.recorded_at), default=None)


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
    deadlines: "Callable[[State, Mapping[str, Any]], list[tuple[Any, Any]]] | None" = None
    each: "Callable[[State, Mapping[str, Any]], list[Any]] | None" = None
    offset: str | None = None
    event_ids: tuple[str, ...] = ()
    proposed: bool = False
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

SANDBOX_HEADER = f"""\
import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal
{MONEY.replace(", kw_only=True", "")}

def _em_money(row):
    return Money(amount=Decimal(row["amount"]), currency=row["currency"])


def _em_moment(text):
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
"""


class Dialect(NamedTuple):
    """How to write classes.

    documented: for people, with the texts that a field may have and which fields have a default;
    else every field has one, so that subjects share the code. examples: with values of records.
    readers: behind each class comes a function that makes it from a JSON row, for the sandbox.
    """

    documented: bool = False
    examples: bool = False
    readers: bool = False

    @property
    def decorator(self) -> str:
        """The decorator of each class: sandboxes know no others."""
        return f"@dataclass(frozen=True{'' if self.readers else ', kw_only=True, slots=True'})"


def write_module(schema: StateSchema, *, examples: bool = True) -> str:
    """Write the module. Without examples it shows types only, no values of records."""
    about = f'"""State of {_doc(schema.subject)}. Compiled by em: changes here are lost."""\n'
    parts = [about, *_parts(schema, Dialect(documented=True, examples=examples))]
    return "\n".join(parts).rstrip() + "\n"


def write_shape(schema: StateSchema) -> str:
    """Write the module that this process runs: the same for all subjects of the same shape.

    It has no docstrings, no texts of records and no rules.
    """
    return "\n".join(_parts(schema, Dialect()))


def _parts(schema: StateSchema, dialect: Dialect) -> Iterator[str]:
    check_names(schema)
    names = ClassNames(schema)
    yield from (_header(schema), BASE, MONEY + MONEY_ORDER)
    yield from (*_classes(schema, names, dialect), "", *_state(schema))
    yield from (ARBITRATION, *_arbitration(schema), RULES)
    if schema.constraints:
        yield from ("", comparison_source())
    if dialect.documented:
        yield from _rules(schema)
    yield from (*_names_table(schema, names), AS_RECORD)


def class_lines(schema: StateSchema) -> Iterator[str]:
    """Yield a line for each class: its fields with their types, and where the records are."""
    check_names(schema)
    names = ClassNames(schema)
    for type_ in schema.types.values():
        for nested, name in names.nested_of(type_):
            yield f"{name}({_fields(nested, names)})"
        is_profile = type_.name == PROFILE
        place = "state.profile" if is_profile else f"state.{type_.collection}: {type_.count}"
        yield f"{type_.name}({_fields(type_, names)}): {place}"


def _fields(type_: TypeSchema, names: "ClassNames") -> str:
    fields = type_.fields.values()
    return ", ".join(f"{one.name}: {_wide(names.typed(one).annotation)}" for one in fields)


def write_sandbox_code(schema: StateSchema) -> str:
    """Write the classes for the sandbox, with `_EM_READ`: the reader of each collection's rows."""
    check_names(schema)
    names = ClassNames(schema)
    collections = [type_ for type_ in schema.types.values() if type_.given != PROFILE]
    arguments = "".join(f", {one.collection}=()" for one in collections)
    readers = ", ".join(f'"{one.collection}": _em_read_{one.name}' for one in collections)
    parts = [
        SANDBOX_HEADER,
        *_classes(schema, names, Dialect(readers=True)),
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
_LITERAL = re.compile(r'Literal\[(?:"(?:[^"\\]|\\.)*"(?:, )?)*\]')


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
            f"expected a name that em gives to a {what}, got {name[:60]!r}",
            place="the stored state",
            fix="somebody changed it; compile it again from the log: em state checkpoint SUBJECT",
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
        is_partial = is_keyed or typed.nullable or field.count < type_.count
        optional = is_partial or not dialect.documented
        annotation = typed.annotation if dialect.documented else _wide(typed.annotation)
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


def _wide(annotation: str) -> str:
    """Write `str` for the texts that a field may have."""
    return _LITERAL.sub("str", annotation)


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
    count = type_.count - type_.gone
    what = f"{_doc(type_.given)}: {count} record{'s' if count != 1 else ''}."
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


def _header(schema: StateSchema) -> str:
    """Write the imports; rules also need regular expressions."""
    return HEADER.replace(
        "import datetime\n", "import datetime\nimport re\n", bool(schema.constraints)
    )


def _rules(schema: StateSchema) -> Iterator[str]:
    """Write the functions of the rules, and the table of the rules."""
    made = list(enumerate(ordered(schema.constraints), 1))
    for number, constraint in made:
        yield from _functions(constraint, number, schema)
    yield from ("", "", "RULES: tuple[Rule, ...] = (")
    yield from (_rule(constraint, number) for number, constraint in made)
    yield from (")", "")


_TAKES = "state: State, details: Mapping[str, Any]"


def _function(constraint: Constraint, number: int) -> str:
    return f"rule_{number}_{constraint.id.replace('-', '_')}"


def _functions(constraint: Constraint, number: int, schema: StateSchema) -> Iterator[str]:
    code = Conditions(schema, f"constraint {constraint.id!r}")
    yield from ("", "", f"def {_function(constraint, number)}({_TAKES}) -> bool:")
    yield f'    """{_doc(constraint.message)}"""'
    when = "True" if constraint.when is None else code.condition(constraint.when)
    yield f"    return {when}"
    if isinstance(constraint.deadline, dict):
        yield from ("", "", f"def deadlines_{number}({_TAKES}) -> list[tuple[Any, Any]]:")
        yield f"    return {code.deadlines(constraint.deadline)}"
    if constraint.each is not None:
        yield from ("", "", f"def each_{number}({_TAKES}) -> list[Any]:")
        yield f"    return {code.each(constraint.each)}"


def ordered(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Sort constraints by severity, the worst first, then by id; without rejected ones."""
    found = [one for one in constraints if one.verdict != "rejected"]
    return sorted(found, key=lambda found: (RANKS[found.severity], found.id))


def _rule(constraint: Constraint, number: int) -> str:
    deadline = constraint.deadline
    names = ("id", "severity", "message", "action", "active_from", "active_until", "offset")
    fields = {name: getattr(constraint, name) for name in names}
    fields["deadline"] = deadline if isinstance(deadline, str) else None
    written = {name: literal(one) for name, one in fields.items() if one is not None}
    written["proposed"] = literal(constraint.verdict == "proposed")
    written["event_ids"] = f"({''.join(f'{literal(one)}, ' for one in constraint.events)})"
    written["holds"] = _function(constraint, number)
    if isinstance(deadline, dict):
        written["deadlines"] = f"deadlines_{number}"
    if constraint.each is not None:
        written["each"] = f"each_{number}"
    return f"    Rule({', '.join(f'{name}={one}' for name, one in written.items())}),"


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


@lru_cache(maxsize=1024)
def _compiled_rules(code: str) -> CodeType:
    return compile(code, f"<rules of {MODULE}>", "exec")


def subject_module(schema: StateSchema) -> ModuleType:
    """Return the module of a subject: that of its shape, with its own rules run in it."""
    module = ModuleType(MODULE)
    module.__dict__.update(load_module(write_shape(schema)).__dict__)
    exec(_compiled_rules("\n".join(_rules(schema))), module.__dict__)  # noqa: S102 - written by em
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
