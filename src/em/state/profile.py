"""Folding records into what is known of their types, column by column.

The counts of a profile add up, so that a type is the same whether its records came at once or one
checkpoint at a time.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from em.state.identifiers import class_name, collection_name, field_name
from em.state.scalars import kind_of, text_kind
from em.state.schema import Example, FieldSchema, StateSchema, TypeSchema
from em.values.canonical import Json

MAX_FIELDS = 250
"""Fields of one class; what a record has beyond them is kept as it was given."""
MAX_VALUES = 12
MAX_VALUE = 40
EXAMPLES = 3
EXAMPLE = 40
MAX_LEVELS = 8
"""Nested classes within each other."""
TEXTS = frozenset(
    "text date date_dmy date_mdy date_slashed time datetime".split()
    + "int_text decimal_text bool_text money".split()
)


def type_of(schema: StateSchema, given: str, key: list[str] | None = None) -> TypeSchema:
    """The type that records of this name have, known or new."""
    given = schema.renames.get(given, given)
    found = schema.types.get(given)
    if found is None:
        classes = {known.name for known in schema.types.values()}
        name = class_name(given, classes)
        taken = {known.collection for known in schema.types.values()}
        collection = collection_name(name, taken)
        found = TypeSchema(given=given, name=name, collection=collection, key=key)
        schema.types[given] = found
    return found


def fold_records(
    type_: TypeSchema, records: Sequence[Json], events: Sequence[str], level: int = 0
) -> None:
    """Take records, each with its event, into the profile of their type."""
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
        except KeyError:  # some don't have it
            having = [n for n, record in enumerate(records) if given in record]
            column = [records[n][given] for n in having]
            fold_column(field, column, [events[n] for n in having], level)
        else:
            fold_column(field, column, events, level)


def fold_column(
    field: FieldSchema, values: Sequence[Any], events: Sequence[str], level: int
) -> None:
    """Take the values of one field into its profile."""
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
