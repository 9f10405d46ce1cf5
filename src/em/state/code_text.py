"""The parts of a generated module that are the same in each."""

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
    """One value that a single-valued field was said to have, with both times."""

    value: Any
    at: datetime.datetime
    recorded_at: datetime.datetime
    event_ids: tuple[str, ...] = ()
    source: str = ""
    status: Literal["decided", "confirmed", "stated", "inferred"] = "stated"


@dataclass(frozen=True, kw_only=True)
class Money:
    """An amount with its currency; amounts of several currencies are never added up."""

    amount: Decimal
    currency: str
'''

ARBITRATION = '''
def latest(entries: Sequence[Entry]) -> Entry | None:
    """The newest by when it happened; of those, the one taken in last."""
    return max(entries, key=lambda entry: (entry.at, entry.recorded_at), default=None)


def by_source(entries: Sequence[Entry], order: Sequence[str]) -> Entry | None:
    """A person's decision, then the first source of the order that spoke; among its own, latest."""
    for source in order:
        said = [entry for entry in entries if entry.source == source]
        if said:
            return latest([*said, *(entry for entry in entries if entry.status == "decided")])
    return latest(entries)


def confirmed_first(entries: Sequence[Entry]) -> Entry | None:
    """Decided, then confirmed, then stated, then inferred; among equals, latest."""
    for status in ("decided", "confirmed", "stated", "inferred"):
        said = [entry for entry in entries if entry.status == status]
        if said:
            return latest(said)
    return None


def ask(entries: Sequence[Entry]) -> Entry | None:
    """Nothing, until a person decides; what is said after the decision opens it again."""
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
    """A compiled constraint."""

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
    """A day or a moment so much later; nothing for none."""
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
    """A comparison; texts without regard to case, and nothing is larger than what is missing."""
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
    """A record as it was given: the inverse of reading it."""
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
