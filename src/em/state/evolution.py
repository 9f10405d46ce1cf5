"""Evolution of a state: the changes between two versions, and what they would break."""

import ast
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Literal

import msgspec

from em.state.schema import FieldSchema, StateSchema, TypeSchema
from em.state.types import Typed, resolve
from em.values.syntax_tree import module_of

Kind = Literal["added", "removed", "widened", "changed", "policy", "rule"]


class Change(msgspec.Struct, frozen=True):
    """One change. Code that uses any of `names` depends on it."""

    kind: Kind
    what: str
    before: str = ""
    after: str = ""
    breaking: bool = False
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        arrow = f": {self.before or 'nothing'} -> {self.after or 'nothing'}"
        return f"{self.kind} {self.what}{arrow if self.before or self.after else ''}"


class Dependent(msgspec.Struct, frozen=True):
    """A stored question or a rule, with the names of the state that its code uses."""

    what: str
    uses: frozenset[str]


class Break(msgspec.Struct, frozen=True):
    """Something that would stop working, and the change that breaks it."""

    what: str
    change: str


def compare(old: StateSchema, new: StateSchema) -> list[Change]:
    """List the changes between two versions, sorted by name."""
    changes: list[Change] = []
    for given in sorted(old.types.keys() | new.types.keys()):
        before_, after_ = old.types.get(given), new.types.get(given)
        if before_ is None and after_ is not None:
            changes.append(Change("added", after_.name, after=_fields_text(after_)))
        elif after_ is None and before_ is not None:
            names = (before_.collection, before_.name)
            changes.append(Change("removed", before_.name, breaking=True, names=names))
        elif before_ is not None and after_ is not None:
            changes += _fields(before_, after_)
    changes += _policies(old, new)
    changes += _rules(old, new)
    return changes


def _fields_text(type_: TypeSchema) -> str:
    return ", ".join(field.name for field in type_.fields.values())


def _fields(old: TypeSchema, new: TypeSchema) -> Iterator[Change]:
    if old.key != new.key:
        before, after = str(old.key or "none"), str(new.key or "none")
        yield Change("changed", f"the key of {new.name}", before, after, True, (new.collection,))
    for given in sorted(old.fields.keys() | new.fields.keys()):
        before_, after_ = old.fields.get(given), new.fields.get(given)
        if before_ is None and after_ is not None:
            typed = resolve(after_, after_.name)
            yield Change("added", f"{new.name}.{after_.name}", after=typed.annotation)
        elif after_ is None and before_ is not None:
            what = f"{old.name}.{before_.name}"
            yield Change("removed", what, breaking=True, names=(before_.name,))
        elif before_ is not None and after_ is not None:
            yield from _types(old, new, before_, after_)


def _types(
    old: TypeSchema, new: TypeSchema, before: FieldSchema, after: FieldSchema
) -> Iterator[Change]:
    one, other = resolve(before, before.name), resolve(after, after.name)
    was, is_ = _written(old, before, one), _written(new, after, other)
    if was == is_:
        return
    wider = _is_wider(one, other)
    what = f"{new.name}.{after.name}"
    kind: Kind = "widened" if wider else "changed"
    yield Change(kind, what, was, is_, not wider, (after.name,))


def _written(type_: TypeSchema, field: FieldSchema, typed: Typed) -> str:
    optional = type_.key is not None or typed.nullable or field.count < type_.count
    return typed.annotation + (" | None" if optional else "")


def _is_wider(one: Typed, other: Typed) -> bool:
    """Tell whether code that reads the first type also works with the second."""
    if one.annotation in (other.annotation, "None"):
        return True
    both_texts = all(
        typed.annotation == "str" or typed.annotation.startswith("Literal[")
        for typed in (one, other)
    )
    numbers = {"int", "float", "int | float", "Decimal"}
    both_numbers = one.annotation in numbers - {"Decimal"} and other.annotation in numbers
    is_list = one.annotation == "list[Any]" and other.annotation.startswith("list[")
    return both_texts or (both_numbers and other.annotation != "Decimal") or is_list


def _policies(old: StateSchema, new: StateSchema) -> Iterator[Change]:
    for field in sorted(old.policies.keys() | new.policies.keys()):
        before, after = old.policies.get(field), new.policies.get(field)
        if before != after:
            was, is_ = (policy.name if policy else "latest" for policy in (before, after))
            yield Change("policy", field, was, is_)


def _rules(old: StateSchema, new: StateSchema) -> Iterator[Change]:
    before = {rule.id: rule for rule in old.constraints}
    after = {rule.id: rule for rule in new.constraints}
    for rule in sorted(before.keys() | after.keys()):
        if before.get(rule) != after.get(rule):
            was, is_ = (found[rule].message if rule in found else "" for found in (before, after))
            yield Change("rule", rule, was, is_)


def breaks(changes: Sequence[Change], dependents: Sequence[Dependent]) -> list[Break]:
    """Find the dependents that use a name which these breaking changes touch."""
    return [
        Break(dependent.what, str(change))
        for change in changes
        for dependent in dependents
        if dependent.uses.intersection(change.names)
    ]


_PARSING = Lock()
"""Python 3.11 counts the depth of trees for all threads at once, and fails if two build trees."""


def names_in(code: str) -> frozenset[str]:
    """Return the names and attributes that code mentions; none if it is not valid Python."""
    try:
        with _PARSING:
            tree = module_of(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
