"""Find rules that can never fire: conditions that no values satisfy, and windows without a moment.

The values around each literal of a condition are tried (below it, equal, between two, above,
another text, none). A part that this can't decide, such as a record of a collection, may be true or
false. So a rule is refused only if it certainly never fires.
"""

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise, product
from typing import Any, NamedTuple

import msgspec

from em.errors import InputError
from em.state.comparison import as_amount, as_day, as_number, as_time, holds, in_utc
from em.state.conditions import Conditions, kind_of_field
from em.state.schema import PROFILE, Constraint, StateSchema
from em.values.canonical import Json
from em.values.times import moment, parse_duration

MAX_TRIALS = 20_000
"""With more combinations of values than this, a condition counts as satisfiable."""

_DAY = datetime.timedelta(days=1)

Possible = tuple[bool, bool]
"""Whether a condition can be true, and whether it can be false."""


def check_satisfiable(constraint: Constraint, schema: StateSchema, place: str) -> None:
    """Refuse a rule that can never fire."""
    begins, ends = constraint.active_from, constraint.active_until
    if begins is not None and ends is not None and moment(begins) >= moment(ends):
        raise InputError(
            "the rule can never fire: its window ends before it begins", place=f"{place}, active"
        )
    if ends is not None and isinstance(constraint.deadline, str):
        lead = parse_duration(constraint.offset, "offset") if constraint.offset else None
        first = moment(constraint.deadline) - (lead or datetime.timedelta(0))
        if moment(ends) <= first:
            raise InputError(
                "the rule can never fire: its window ends before the deadline is near",
                place=f"{place}, active",
            )
    parts = [part for part in (constraint.when, _where(constraint)) if part is not None]
    for part in parts:
        if not Trial(schema).can_hold(part):
            raise InputError(
                "the rule can never fire: no values satisfy its condition",
                place=place,
                fix="see which parts of the condition exclude each other",
            )


def _where(constraint: Constraint) -> Json | None:
    """Return the condition on the records that a rule is about."""
    about = constraint.each
    if about is None and isinstance(constraint.deadline, dict):
        about = constraint.deadline
    found: Json | None = None if about is None else about.get("where")
    return found


class Trial:
    """Tries values for what a condition compares."""

    def __init__(self, schema: StateSchema) -> None:
        self._schema = schema

    def can_hold(self, condition: Any) -> bool:
        """Tell whether some values make the condition true."""
        return self._can(condition, {})

    def _can(self, condition: Any, known: dict[str, Any]) -> bool:
        pools = {
            term: values for term, values in self._pools(condition).items() if term not in known
        }
        number = 1
        for values in pools.values():
            number *= len(values)
        if number > MAX_TRIALS:
            return True
        return any(
            self._possible(condition, {**known, **dict(zip(pools, chosen, strict=True))})[0]
            for chosen in product(*pools.values())
        )

    def _possible(self, condition: Any, values: dict[str, Any]) -> Possible:
        if "op" in condition:
            return _compared(condition, values)
        ((word, inner),) = condition.items()
        if word == "not":
            can, can_not = self._possible(inner, values)
            return can_not, can
        if word == "some":
            where = inner.get("where")
            # A collection may be empty; and it has a fitting record only if one can exist.
            return where is None or Trial(self._schema).can_hold(where), True
        parts = [self._possible(part, values) for part in inner]
        both = (all, any) if word == "all" else (any, all)
        return both[0](can for can, _ in parts), both[1](can_not for _, can_not in parts)

    def _pools(self, condition: Any) -> dict[str, list[Any]]:
        """Return the values to try for each term that is compared with literals only."""
        literals: dict[str, list[Any]] = {}
        for comparison in _comparisons(condition):
            for one, other in (("left", "right"), ("right", "left")):
                term = _term(comparison[one])
                if term is not None and comparison[other].keys() == {"value"}:
                    value = comparison[other]["value"]
                    literals.setdefault(term, []).extend(
                        value if isinstance(value, list) else [value]
                    )
        return {term: self._around(term, given) for term, given in literals.items()}

    def _around(self, term: str, literals: Sequence[Any]) -> list[Any]:
        """Return values on both sides of each literal, in the types that it can be read as."""
        texts = [one for one in literals if isinstance(one, str)]
        numbers = [as_number(one) for one in texts]
        numbers += [Decimal(repr(one)) for one in literals if type(one) in (int, float)]
        found: list[Any] = [None, *literals, *_points(numbers, Decimal(1))]
        if term.startswith('{"count"'):
            return [one for one in found if isinstance(one, Decimal) and one >= 0]
        if self._kind(term) == "bool":
            return [None, True, False]
        days = [as_day(one) for one in texts]
        found += _points([at for day in days if day is not None for at in _bounds(day)], _DAY)
        amounts = [amount for one in texts if (amount := as_amount(one)) is not None]
        for currency in {currency for currency, _ in amounts}:
            of_it = [amount for known, amount in amounts if known == currency]
            found += [Amount(one, currency) for one in _points(of_it, Decimal(1))]
        times = [as_time(one) for one in texts]
        minutes = [60 * one.hour + one.minute for one in times if one is not None]
        points = [int(one) for one in _points(minutes, 1) if 0 <= one < 24 * 60]
        found += [datetime.time(one // 60, one % 60) for one in points]
        found += ["", *(other for one in texts for other in (f"{one}~", one[:-1]))]
        return [*found, True, False]

    def _kind(self, term: str) -> str:
        operand = msgspec.json.decode(term)
        if operand.keys() != {"profile"}:
            return ""
        type_ = self._schema.types.get(PROFILE)
        return kind_of_field(Conditions(self._schema, "").field(operand["profile"], type_))


class Amount(NamedTuple):
    """An amount to try, as the generated module has them."""

    amount: Decimal
    currency: str


def _points(bounds: Sequence[Any], step: Any) -> list[Any]:
    """Return the bounds, a value between each two, and one beyond each end."""
    known = sorted({one for one in bounds if one is not None})
    if not known:
        return []
    between = [one + (other - one) / 2 for one, other in pairwise(known)]
    return [known[0] - step, *known, *between, known[-1] + step]


def _bounds(day: datetime.date) -> list[datetime.datetime]:
    """Return where a comparison with this date or datetime changes: there, and around its day."""
    if isinstance(day, datetime.datetime):
        at = in_utc(day)
        start = at.replace(hour=0, minute=0, second=0, microsecond=0)
        return [at, start, start + _DAY]
    start = datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC)
    return [start, start + _DAY]


def _compared(comparison: Json, values: dict[str, Any]) -> Possible:
    sides = []
    operands = (comparison["left"], comparison["right"])
    if all(operand.keys() == {"value"} for operand in operands):
        return True, True  # literals only: not about any value
    for operand in operands:
        term = _term(operand)
        if operand.keys() == {"value"}:
            sides.append(operand["value"])
        elif term in values and comparison["op"] not in ("contains", "mentions"):
            sides.append(values[term])
        else:
            return True, True  # two unknowns, or a text in a text
    try:
        found = holds(sides[0], comparison["op"], sides[1])
    except TypeError:
        return False, False  # such a value has no order, so the field never has it
    return found, not found


def _term(operand: Json) -> str | None:
    """Return what identifies an unknown value; None for a literal, and for a date that is moved."""
    if operand.keys() & {"value", "plus", "minus"}:
        return None
    return msgspec.json.encode(operand, order="deterministic").decode()


def _comparisons(condition: Any) -> Iterator[Json]:
    """Return the comparisons of a condition, without those on records of a collection."""
    if "op" in condition:
        yield condition
    elif "some" not in condition:
        ((_, inner),) = condition.items()
        for part in inner if isinstance(inner, list) else [inner]:
            yield from _comparisons(part)
