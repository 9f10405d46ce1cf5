"""Rules: functions that a user wrote, beside those compiled from constraints.

@rule("take", severity="high")
def interaction(state, drug, meal=None):
    ...return a message, or Fired(message, evidence=[records]), or nothing

@alert(severity="warning")
def check_up(state, now): ...
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from em.errors import InputError
from em.state.evolution import Dependent, names_in
from em.state.schema import Severity
from em.values.times import moment, parse_duration

RANKS: Mapping[str, int] = {"critical": 0, "high": 1, "warning": 2, "info": 3}
_MOMENT = timedelta(microseconds=1)
F = TypeVar("F", bound=Callable[..., Any])


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired, or that failed: then `error` says how, and nothing is known of it."""

    severity: Severity
    message: str
    rule: str
    event_ids: tuple[str, ...] = ()
    due: datetime | None = None
    overdue: bool = False
    error: str = ""


class Fired(msgspec.Struct, frozen=True):
    """What a rule may return: its message, and the records or event ids that speak for it."""

    message: str
    evidence: Sequence[Any] = ()
    severity: Severity | None = None


class UserRule(msgspec.Struct, frozen=True):
    """A decorated function. `action` is None for one that finds what is due."""

    name: str
    severity: Severity
    function: Callable[..., Any]
    action: str | None
    uses: frozenset[str]


def rule(action: str, *, severity: Severity = "warning") -> Callable[[F], F]:
    """Mark a function that is asked before an action: `(state, **details)`."""
    return _marker(action, severity)


def alert(*, severity: Severity = "warning") -> Callable[[F], F]:
    """Mark a function that finds what is due: `(state, now)`."""
    return _marker(None, severity)


def _marker(action: str | None, severity: Severity) -> Callable[[F], F]:
    if severity not in RANKS:
        raise InputError(f"{severity!r} is no severity", place="rule", fix=", ".join(RANKS))

    def mark(function: F) -> F:
        name = function.__name__
        try:
            uses = names_in(inspect.cleandoc(inspect.getsource(function)))
        except (OSError, TypeError):
            uses = frozenset()
        found = UserRule(name, severity, function, action, uses)
        function.em_rule = found  # type: ignore[attr-defined]  # how it is found in its module
        return function

    return mark


def collect(namespace: Mapping[str, Any]) -> list[UserRule]:
    """The decorated functions of a module."""
    found = [getattr(value, "em_rule", None) for value in namespace.values()]
    return sorted((one for one in found if isinstance(one, UserRule)), key=lambda one: one.name)


def load_rules(file: str | Path) -> list[UserRule]:
    """The rules in a Python file of the user's own; it runs in the process, as their code does."""
    import importlib.util

    path = Path(file)
    spec = importlib.util.spec_from_file_location(f"em_rules_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError("this is no Python file", place=str(path), fix="name a .py file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"it does not run: {type(error).__name__}: {error}", place=str(path)
        ) from error
    return collect(vars(module))


def dependents(rules: Iterable[UserRule]) -> list[Dependent]:
    """The rules as what depends on a state's names."""
    return [Dependent(f"rule {one.name}", one.uses) for one in rules]


def check(
    state: Any, rules: Iterable[UserRule], action: str, details: Mapping[str, Any], now: datetime
) -> list[Alert]:
    """The rules that fire before an action, the worst first; one that raises is told as such."""
    found: list[Alert] = []
    for compiled in state.module.RULES:
        if compiled.action == action and _is_active(compiled, now):
            found += _try(compiled.id, compiled.severity, _compiled, compiled, state, details)
    for own in rules:
        if own.action == action:
            found += _try(own.name, own.severity, _asked, own, state, details)
    return _sorted(found)


def due(state: Any, rules: Iterable[UserRule], now: datetime) -> list[Alert]:
    """What is due now: deadlines, active windows, and what the user's own rules find."""
    found: list[Alert] = []
    for compiled in state.module.RULES:
        if compiled.action is None and _is_active(compiled, now):
            found += _try(compiled.id, compiled.severity, _due, compiled, state, now)
    for own in rules:
        if own.action is None:
            found += _try(own.name, own.severity, _found_due, own, state, now)
    return _sorted(found)


def _sorted(found: list[Alert]) -> list[Alert]:
    return sorted(found, key=lambda one: (RANKS[one.severity], one.rule, one.message))


def _try(
    name: str, severity: Severity, run: Callable[..., Iterator[Alert]], *given: Any
) -> list[Alert]:
    try:
        return list(run(*given))
    except Exception as error:  # noqa: BLE001 - a rule that raises must not hide the others
        said = f"{type(error).__name__}: {error}"
        return [Alert(severity=severity, message="the rule failed", rule=name, error=said)]


def _is_active(compiled: Any, now: datetime) -> bool:
    begun = compiled.active_from is None or moment(compiled.active_from) <= now
    return begun and (compiled.active_until is None or now < moment(compiled.active_until))


def _compiled(compiled: Any, state: Any, details: Mapping[str, Any]) -> Iterator[Alert]:
    if compiled.holds(state, details):
        yield Alert(
            severity=compiled.severity,
            message=filled(compiled.message, details),
            rule=compiled.id,
            event_ids=tuple(compiled.event_ids),
        )


def filled(message: str, details: Mapping[str, Any]) -> str:
    """A message with its details; each is put in once, and never read as a template."""
    parts = message.replace("}", "{").split("{")
    return "".join(
        part if number % 2 == 0 else str(details.get(part, f"{{{part}}}"))
        for number, part in enumerate(parts)
    )


def _due(compiled: Any, state: Any, now: datetime) -> Iterator[Alert]:
    for who, when in _deadlines(compiled, state):
        details = _details(who)
        told, ends = (None, None) if when is None else _from_to(when, compiled.offset)
        if (told is not None and now < told) or not compiled.holds(state, details):
            continue
        if when is not None:
            details["deadline"] = moment(when).date().isoformat()
        ids = (*compiled.event_ids, *getattr(who, "event_ids", ()))
        yield Alert(
            severity=compiled.severity,
            message=filled(compiled.message, details),
            rule=compiled.id,
            event_ids=tuple(dict.fromkeys(ids)),
            due=None if when is None else moment(when),
            overdue=ends is not None and now >= ends,
        )


def _deadlines(compiled: Any, state: Any) -> Iterator[tuple[Any, date | None]]:
    """Every deadline of a rule, with the record that has it; None for one without any."""
    if compiled.deadlines is not None:
        yield from ((who, when) for who, when in compiled.deadlines(state) if when is not None)
    elif compiled.deadline is None:
        yield None, None
    elif len(compiled.deadline) == len("2025-06-01"):
        yield None, date.fromisoformat(compiled.deadline)
    else:
        yield None, moment(compiled.deadline)


def _from_to(when: date, offset: str | None) -> tuple[datetime, datetime]:
    """From when on a deadline is told, and when it is over: a day with its end."""
    due = moment(when)
    lead = parse_duration(offset, "offset") if offset else timedelta(0)
    return due - lead, due + timedelta(days=1) if type(when) is date else due + _MOMENT


def _details(who: Any) -> dict[str, Any]:
    """What a message may say of the record that a deadline is of."""
    return {} if who is None else {field.name: getattr(who, field.name) for field in fields(who)}


def _asked(own: UserRule, state: Any, details: Mapping[str, Any]) -> Iterator[Alert]:
    return _own(own, own.function(state, **details))


def _found_due(own: UserRule, state: Any, now: datetime) -> Iterator[Alert]:
    return _own(own, own.function(state, now))


def _own(own: UserRule, said: Any) -> Iterator[Alert]:
    if isinstance(said, list | tuple):
        for one in said:
            yield from _own(own, one)
        return
    if said is None or said is False or said == "":
        return
    if said is True:
        said = (own.function.__doc__ or own.name).strip().partition("\n")[0]
    fired = said if isinstance(said, Fired) else Fired(str(said))
    yield Alert(
        severity=fired.severity or own.severity,
        message=fired.message,
        rule=own.name,
        event_ids=_evidence(fired.evidence),
    )


def _evidence(given: Sequence[Any]) -> tuple[str, ...]:
    ids: list[str] = []
    for one in given:
        ids += [one] if isinstance(one, str) else getattr(one, "event_ids", ())
    return tuple(dict.fromkeys(ids))
