"""Constancy: what must stay as it was in the records that a person's one recording read.

Which fields of a record matter can't be known from one recording. So every field that the routine
does not use is checked as far as it can be a state: words, truth values, nothing, empty and zero
stay as they were, and a positive number stays positive. How a word is written does not say whether
it is a name or a state: `Accepted` and `Vera`, `ready` and `lou`. Only where a record stands in a
list that shows many different words in a field, these are names. A person strikes what does not
matter, and a further recording in which a field differs strikes it too. What equalled an input, or
a value of another record, must still do so.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any, NamedTuple

from em.compiler.evidence import is_small
from em.compiler.example import Example, Read
from em.compiler.explanation import FromInput, Leaf, Source
from em.compiler.facts import (
    ENOUGH_SHARED,
    MOST_STATES,
    content,
    distinct,
    has_parts,
    text_pattern,
    type_of,
)
from em.compiler.memberships import contained_text, lists_of
from em.compiler.places import (
    ELEMENT,
    Over,
    Place,
    at,
    is_code,
    is_number,
    is_scalar,
    is_word,
    key_of,
    last_name,
    plain,
    walk,
)
from em.compiler.situation import Pair, are_named_alike, bare, equal_text
from em.compiler.steps import Writer, hole
from em.compiler.term import field_text, fits_text, paths_in, singular
from em.runner.expressions.language import acting
from em.values.canonical import Json, same
from em.values.leaves import is_by_id
from em.values.times import is_date


class Kept(NamedTuple):
    """A record that steps save under a name: what it was in each example that had it.

    beside: the elements of the lists that it was chosen from. known: texts that were known besides.
    """

    step: Json
    records: list[tuple[Example, Any]]
    told: frozenset[Place] = frozenset()
    beside: Sequence[Any] = ()
    known: Collection[str] = ()

    @property
    def name(self) -> str:
        """The name under which steps find it."""
        return str(self.step["save_as"])


class _Named(NamedTuple):
    """An input that names something: its expression, its name, and its value in each example."""

    text: str
    name: str
    values: list[Any]

    def stands_in(self, reads: Sequence[Read]) -> bool:
        """Return whether all results hold the value."""
        pairs = zip(self.values, reads, strict=True)
        return all(is_scalar(value) and key_of(value) in read.index for value, read in pairs)

    def elements(self, lists: Sequence[Any], text: str) -> Iterator[tuple[str, Place, list[Json]]]:
        """Yield the elements that it names, one of each list: expression, field, and elements.

        lists: what stands under a name in each example. text: that name. Of a mapping from ids the
        element with the id is meant, without a field.
        """
        if all(isinstance(items, dict) for items in lists):
            by_id = [items.get(value) for items, value in zip(lists, self.values, strict=True)]
            if all(isinstance(one, dict) for one in by_id):
                yield f"{text}[{self.text}]", (), by_id
            return
        if not all(isinstance(items, list) for items in lists):
            return
        rows = [[one for one in items if isinstance(one, dict)] for items in lists]
        for field in dict.fromkeys(name for row in rows for one in row for name in one):
            pairs = zip(rows, self.values, strict=True)
            found = [[one for one in row if same(one.get(field), value)] for row, value in pairs]
            is_told = field == self.name or not any(map(is_small, self.values))
            if is_told and all(len(one) == 1 for one in found):
                picked = f"only({text}{fits_text({(field,): self.text})})"
                yield picked, (field,), [one[0] for one in found]


def _holders(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of lists, and of mappings from ids, that stand in no other one."""
    if isinstance(value, list) or (isinstance(value, dict) and is_by_id(value)):
        yield place
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _holders(one, (*place, name))


def _elements(value: Any) -> Sequence[Any]:
    return [*value.values()] if isinstance(value, dict) else value


def _sources(leaf: Leaf) -> Iterator[Source]:
    """Yield where a value may come from, or the parts of a text."""
    yield from leaf.explanations
    for piece in leaf.built:
        if isinstance(piece, Leaf):
            yield from _sources(piece)


Others = dict[str, list[tuple[str, list[Any]]]]
"""What is known besides a record, by its first value: expressions with their values."""


class Constancy:
    """Writes what must stay as it was into the steps of a writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._kept = [one for one in self._records() if one.records]

    def _records(self) -> Iterator[Kept]:
        writer = self._writer
        for role in writer.read_steps:
            rows = [(example, read.result) for example, _, read in writer.space.reads[role]]
            known = set().union(*(example.known for example in writer.examples))
            yield Kept(writer.step_of(role), rows, known=known)
        for step, choice in writer.picks:
            told = frozenset(atom.field for atom in choice.atoms)
            beside = [element for row in choice.rows for element in row.elements]
            yield Kept(step, choice.chosen, told, beside)
        yield from self._acted_on({id(one) for _, each in writer.picks for _, one in each.chosen})

    def _acted_on(self, known: set[int]) -> Iterator[Kept]:
        """Write the elements of lists that an input of a write names: it acts on them."""
        writer, named = self._writer, [*self._named()]
        for role in writer.read_steps:
            step = writer.step_of(role)
            by_example = {id(example): read for example, _, read in writer.space.reads[role]}
            if step not in writer.top or "when" in step or len(by_example) < len(writer.examples):
                continue
            reads = [by_example[id(example)] for example in writer.examples]
            here = [one for one in named if one.stands_in(reads)]
            for place, one in product(_holders(reads[0].result), here):
                lists = [at(read.result, place) for read in reads]
                items = field_text(str(step["save_as"]), tuple(map(str, place)))
                for text, field, chosen in one.elements(lists, items):
                    if id(chosen[0]) in known:
                        continue
                    known.add(id(chosen[0]))
                    name = writer.fresh(singular(items.rpartition(".")[2]))
                    made = {"type": "let", "value": hole(text), "save_as": name}
                    writer.top.append(made)
                    records = [*zip(writer.examples, chosen, strict=True)]
                    beside = [*chain(*(_elements(each) for each in lists))]
                    yield Kept(made, records, frozenset({field} if field else ()), beside)

    def _named(self) -> Iterator["_Named"]:
        """Yield the inputs that writes take."""
        writer = self._writer
        leaves = [leaf for slot in writer.space.slots for leaf in slot.leaves.values()]
        for source in dict.fromkeys(one for leaf in leaves for one in _sources(leaf)):
            if isinstance(source, FromInput) and ELEMENT not in source.place:
                values = [at(example.inputs, source.place) for example in writer.examples]
                yield _Named(writer.input_text(source.place), last_name(source.place), values)
        for made in writer.promoted.values():
            calls = [] if made.part else writer.space.slots[made.slot].calls
            if len(calls) == len(writer.examples):
                values = [at(args, made.place) for args, _ in calls]
                yield _Named(made.name, last_name(made.place), values)

    # ---- what equalled something else

    def relate(self) -> None:
        """Write how fields relate to the inputs and to other records, as they did."""
        self._relate_dates()
        for number, kept in enumerate(self._kept):
            if kept.step not in self._writer.top:
                continue
            others: Others = defaultdict(list)
            for one in self._values(kept, self._kept[:number]):
                others[bare(one[1][0])].append(one)
            for place, value in plain(kept.records[0][1]):
                if place in kept.told:
                    continue
                if place and isinstance(value, str | int | float):
                    self._relate(kept, place, value, others)
            self._relate_lists(kept, others)

    def _relate_dates(self) -> None:
        """Write that a date is still before or after the inputs' dates, and those read alone."""
        moments = [*self._moments()]
        for kept in self._kept:
            for place, value in plain(kept.records[0][1]):
                if not place or kept.step not in self._writer.top or not is_date(value):
                    continue
                text = field_text(kept.name, tuple(map(str, place)))
                for other, moment in moments:
                    if len(moment) == len(value) and moment != value:
                        self._write(f"{text} {'>' if value > moment else '<'} {other}")

    def _moments(self) -> Iterator[tuple[str, str]]:
        """Yield the dates that are no part of a record, if this is the one recording."""
        if len(self._writer.examples) > 1:
            return
        example = self._writer.examples[0]
        for place, value in example.said(None).leaves:
            if is_date(value):
                yield self._writer.input_text(place), value
        for role in self._writer.space.habits:
            reads = [read for _, _, read in self._writer.space.reads[role]]
            if is_date(reads[0].result) and (text := self._writer.result_text(role)):
                yield text, reads[0].result

    def _relate(self, kept: Kept, place: Place, value: Any, known: "Others") -> None:
        """Write that a field of a record still equals what it did: an input, or another record."""
        text = field_text(kept.name, tuple(map(str, place)))
        values = [at(record, place) for _, record in kept.records]
        for other_text, others in known.get(bare(value), ()):
            if not is_small(value) or are_named_alike(text, other_text):
                self._write(equal_text(text, other_text, _pairs(values, others)))
                return

    def _relate_lists(self, kept: Kept, known: "Others") -> None:
        """Write that what was in a list of a record still is: who may, and who owns it."""
        lists = [dict(lists_of(kept.name, record)) for _, record in kept.records]
        for text, first in lists[0].items():
            values = [one.get(text, ()) for one in lists]
            here = chain(*(known.get(key, ()) for key in dict.fromkeys(map(bare, first))))
            for other_text, others in here:
                if not is_small(others[0]):
                    self._write(contained_text(other_text, text, _pairs(others, values)))
                    break

    def _values(self, kept: Kept, earlier: Sequence[Kept]) -> Iterator[tuple[str, list[Any]]]:
        """Yield the inputs, and the fields of earlier records, with what they were each time."""
        for where, value in self._writer.examples[0].said(None).leaves:
            if ELEMENT not in where and is_scalar(value):
                values = [at(example.inputs, where) for example, _ in kept.records]
                yield self._writer.input_text(where), values
        for other in earlier:
            if other.step in self._writer.top:
                records = [record for _, record in other.records[: len(kept.records)]]
                for where, value in plain(records[0]):
                    if is_number(value) or is_code(value) or is_word(value):
                        text = field_text(other.name, tuple(map(str, where)))
                        yield text, [at(record, where) for record in records]

    def _write(self, check: str) -> None:
        if check:
            self._writer.write_check(check, None, len(self._writer.examples))

    # ---- what must stay as it was

    def expect(self, steps: Sequence[Json]) -> None:
        """Write what the records must look like that these steps read."""
        used = "\n".join(_texts([one for step in steps for one in acting(step)]))
        written = "\n".join(_texts([s["args"] for s in steps if s.get("effect") == "write"]))
        for kept in self._kept:
            records = [record for _, record in kept.records]
            told = [field_text(kept.name, tuple(map(str, one))) for one in kept.told]
            source = _FROM_TEXT.fullmatch(str(kept.step.get("value", "")))
            if source and _names(source[1], written):
                told.append(kept.name)  # its text is written back, with all that it has
            look = Look("\n".join([used, *told]), self._looped(), kept.known)
            schema = look.schema(records, kept.name, kept.beside)
            if schema:
                total = len(self._writer.examples)
                held = len({id(example) for example, _ in kept.records})
                kept.step.update({"expect": schema, "held": f"{held}/{total}"})

    def unchecked(self) -> list[str]:
        """Return the pairs of an input and a number of a record that are not compared.

        Whether one limits the other can't be known from one recording, so a person is told.
        """
        found = []
        for place, value in self._writer.examples[0].said(None).leaves:
            if ELEMENT in place or not is_number(value):
                continue
            given = self._writer.input_text(place)
            for kept in self._kept:
                found += [
                    f"{given}, {field_text(kept.name, tuple(map(str, where)))}"
                    for where, other in plain(kept.records[0][1])
                    if where and is_number(other) and other != value
                ]
        return found

    def _looped(self) -> dict[str, str]:
        """Return the lists that loops go over, each with the name of its element."""
        return {
            self._writer.input_text(place): name
            for block in self._writer.blocks
            for place, name in block.over.items()
            if isinstance(place[0], Over)
        }


def _pairs(values: Sequence[Any], others: Sequence[Any]) -> list[Pair]:
    return [Pair(one, other, ()) for one, other in zip(values, others, strict=False)]


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts inside a value, expressions among them."""
    for _, _, one in walk(value):
        if isinstance(one, str):
            yield one


class Look:
    """What records must look like again.

    used: the expressions of the routine. looped: lists that are gone through, with the name of
    their element. known: texts that may be other ones in a text.
    """

    def __init__(self, used: str, looped: Mapping[str, str], known: Collection[str] = ()) -> None:
        self._used, self._paths = used, paths_in(used)
        self._looped, self._known = looped, known

    def schema(self, values: Sequence[Any], text: str, beside: Sequence[Any] = ()) -> Json:
        """Return what values that stand under a name must look like; {} if anything goes.

        beside: the values of other records at the same place.
        """
        if not values:
            return {}
        if all(isinstance(value, dict) for value in values):
            return self._record(values, text, beside)
        if all(isinstance(value, list) for value in values):
            return self._list(values, text)
        if self._is_used(text):
            is_unit = all(isinstance(value, str) and _UNIT.fullmatch(value) for value in values)
            return self._state(values) if is_unit else _loosely(content(values))
        return _content(values) if _are_names(beside) else self._state(values)

    def _list(self, values: Sequence[list[Any]], text: str) -> Json:
        if not all(values):
            return {"type": "array", **({} if any(values) else {"maxItems": 0})}
        items = [item for value in values for item in value]
        made: Json = {"type": "array", "minItems": 1}
        if text.isidentifier() and len(items) == len(values) and not self._is_used(text):
            # A result that is one record in a list is that record.
            return made | {"maxItems": 1, "items": self.schema(items, f"{text}[0]")}
        inner: Json = {}
        if text in self._looped and all(isinstance(item, dict) for item in items):
            inner = self.schema(items, self._looped[text])
        elif not self._is_used(text) and all(isinstance(i, str) and _is_state(i) for i in items):
            # Words of a list are states, as single ones are.
            inner = {"enum": [*distinct(items).values()]}
        return made | ({"items": inner} if inner else {})

    def _is_used(self, text: str, *, whole: bool = False) -> bool:
        if not whole and all(part.isidentifier() for part in text.split(".")):
            return text in self._paths
        return _names(text, self._used, whole=whole)

    def _record(self, values: Sequence[Any], text: str, beside: Sequence[Any]) -> Json:
        if is_by_id(values[0]):
            return {"type": "object", **({"minProperties": 1} if all(values) else {})}
        names = [name for name in values[0] if all(name in one for one in values)]
        fields: Json = {}
        for name in names:
            others = [one[name] for one in beside if isinstance(one, dict) and name in one]
            inner = self.schema([one[name] for one in values], field_text(text, (name,)), others)
            if inner:
                fields[name] = inner
        made: Json = {"type": "object"}
        if fields:
            made |= {"required": [*fields], "properties": fields}
        if self._is_used(text, whole=True):
            return made  # a document that is written back as a whole
        # A field that no record ever had may say that this one is not to be touched.
        return made | {"maxProperties": max(map(len, values))}

    def _state(self, values: Sequence[Any]) -> Json:
        """Return what values that the routine does not use must be, if they can be a state."""
        first = values[0]
        is_one = all(same(value, first) for value in values)
        is_blank = isinstance(first, str) and not first.strip()
        if first is None or isinstance(first, bool) or is_blank or first == 0 or _is_state(first):
            return {"const": first} if is_one else {}
        return self._wording(values) or _content(values)

    def _wording(self, values: Sequence[Any]) -> Json | None:
        """Return the words of texts about a record: they say a number, or what was known."""
        if not all(map(has_parts, values)):
            return None
        is_about = any(
            any(map(str.isdigit, one)) or any(text in one for text in self._known) for one in values
        )
        known = [self._known] * len(values)
        return text_pattern(values, known, ENOUGH_SHARED) if is_about else None


_UNIT = re.compile(r"[A-Z][A-Z_]{1,30}")
"""A word in capitals: a currency, a unit, a kind, also where the routine passes it on."""
_FROM_TEXT = re.compile(r"\{\{ structure\((\w+)\) \}\}")


def _names(text: str, said: str, *, whole: bool = False) -> bool:
    """Return whether expressions name a value or, unless as a whole, a part of it."""
    after = r"\w.\[" if whole else r"\w"
    return re.search(rf"(?<![\w.]){re.escape(text)}(?![{after}])", said) is not None


def _is_state(value: Any) -> bool:
    """Return whether a text may be a state: a few words, and no name of a file or an address."""
    return is_word(value) and not re.search(r"\w[./\\@]\w", value)


def _are_names(values: Sequence[Any]) -> bool:
    """Return whether words are too many to be states."""
    return all(isinstance(value, str) for value in values) and len(distinct(values)) > MOST_STATES


def _loosely(schema: Json) -> Json:
    """Return a schema that takes other numbers too: one recording has no fraction, no small one."""
    if schema["type"] not in ("integer", "number"):
        return schema
    least = {"exclusiveMinimum": 0} if "minimum" in schema else {}
    return (
        {name: one for name, one in schema.items() if name != "minimum"}
        | least
        | {"type": "number"}
    )


def _content(values: Sequence[Any]) -> Json:
    """Return what values must look like that may differ: their type, and not empty."""
    found = type_of(values)
    made: Json = {"type": "number" if found == "integer" else found}
    if all(isinstance(value, str) and value for value in values):
        made["minLength"] = 1
    if all(isinstance(value, int | float) and value > 0 for value in values):
        made["exclusiveMinimum"] = 0
    return made
