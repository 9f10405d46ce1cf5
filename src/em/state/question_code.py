"""A question's code in the sandbox: the typed collections in scope, and nothing else.

The classes are written once more in the subset of Python that every sandbox runs; rows go in as
JSON and become objects there.
"""

from collections.abc import Iterator
from typing import Any

from em.runner.sandbox import Limits, choose
from em.runner.sandbox.monty import MontySandbox
from em.state.code import class_names
from em.state.evolution import names_in
from em.state.schema import PROFILE, FieldSchema, StateSchema, TypeSchema
from em.state.state import State
from em.state.types import Typed
from em.values.canonical import Json

_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "__getattribute__", "eval", "exec"})
LIMITS = Limits(seconds=60.0, memory_bytes=2 * 1024 * 1024 * 1024)

HEADER = """\
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

CALL = """

def _em_ask(data, parameters):
    read = {}
    for name, rows in data["rows"].items():
        read[name] = [_EM_READ[name](row) for row in rows]
    state = State(**read)
    state.profile = _em_read_Profile(data["profile"])
    records = None
    if "used" in data["functions"]:
        records = used(state, **parameters)
        records = [records] if hasattr(records, "event_ids") else list(records)
    value = answer(state, **parameters)
    ids = None
    if records is not None:
        ids = [event for record in records for event in record.event_ids]
    return {"value": value, "ids": ids, "records": None if records is None else len(records)}
"""


def sandbox_code(schema: StateSchema) -> str:
    """The classes and their readers, in the subset that monty runs."""
    names = class_names(schema)
    parts = [HEADER]
    for type_ in schema.types.values():
        for nested, name in names.nested_of(type_):
            parts += _class(nested, name, names, plain=True)
        parts += _class(type_, type_.name, names)
    if PROFILE not in schema.types:
        parts += _class(TypeSchema(PROFILE, PROFILE, "profile", []), PROFILE, names)
    collections = [one for one in schema.types.values() if one.given != PROFILE]
    parts += [
        "class State:",
        f"    def __init__(self{''.join(f', {c.collection}=()' for c in collections)}):",
    ]
    parts += [f"        self.{c.collection} = {c.collection}" for c in collections]
    parts += ["        self.profile = None", "", ""]
    readers = ", ".join(f'"{c.collection}": _em_read_{c.name}' for c in collections)
    parts += [f"_EM_READ = {{{readers}}}", ""]
    return "\n".join(parts)


def _class(type_: TypeSchema, name: str, names: Any, *, plain: bool = False) -> Iterator[str]:
    typed = {field.name: names.typed(field) for field in type_.fields.values()}
    yield "@dataclass(frozen=True)"
    yield f"class {name}:"
    for field in type_.fields.values():
        yield f"    {field.name}: {typed[field.name].annotation} = None"
    yield "    event_ids: Any = ()"
    yield ""
    yield ""
    yield f"def _em_read_{name}(row):"
    yield f"    return {name}("
    for field in type_.fields.values():
        yield f"        {field.name}={_read(field, typed[field.name], names)},"
    if not plain:
        yield '        event_ids=tuple(row.get("event_ids", ())),'
    yield "    )"
    yield ""
    yield ""


def _read(field: FieldSchema, typed: Typed, names: Any) -> str:
    value = f'row.get("{field.name}")'
    read = _reading("item", field, typed, names)
    if read == "item":
        return value
    return (
        f'None if {value} is None else {_reading(f"""row["{field.name}"]""", field, typed, names)}'
    )


def _reading(value: str, field: FieldSchema, typed: Typed, names: Any) -> str:
    target = typed.target
    simple = {
        "time": f"datetime.time.fromisoformat({value})",
        "datetime": f"_em_moment({value})",
        "decimal": f"Decimal({value})",
        "money": f"_em_money({value})",
    }
    if target in simple:
        return simple[target]
    if target.startswith("datetime") is False and target.startswith("date"):
        return f"datetime.date.fromisoformat({value})"
    if target.startswith("nested("):
        return f"_em_read_{typed.annotation}({value})"
    if target.startswith("list(") and field.items is not None:
        inner = _reading("item", field.items, names.typed(field.items), names)
        return value if inner == "item" else f"[{inner} for item in {value}]"
    return value


def run_in_sandbox(state: State, code: str, parameters: Json) -> Json:
    """Run a question's code over the collections that it names; a SandboxError if that fails."""
    mentioned = names_in(code)
    # One that is reached by a name made up at run time must not seem empty.
    named = state.collections if mentioned & _DYNAMIC else mentioned
    used = {name: state.rows(name) for name in state.collections if name in named}
    data = {
        "rows": used,
        "profile": state.profile_row(),
        "functions": [name for name in ("used", "answer") if f"def {name}(" in code],
    }
    whole = sandbox_code(state.schema) + "\n" + code + "\n" + CALL
    # The subset has no door at all; all of Python only where there is nothing else.
    sandbox = choose(whole, prefer=None if MontySandbox.missing() else MontySandbox.name)
    found: Json = sandbox.run(whole, "_em_ask", {"data": data, "parameters": parameters}, LIMITS)
    if found["ids"] is None:
        rows = [row for rows in used.values() for row in rows]
        found["ids"] = [event for row in rows for event in row["event_ids"]]
        found["records"] = len(rows)
    return found
