"""Contents: the record that a request means, found by what inputs say about what is in it.

An element of a list is known by its own fields and by the record that a read by its id shows. Where
inputs describe that record ("the order in which the lamp is"), the id becomes an input that the
routine finds by itself: it reads the candidates, takes the only one that is as described, and goes
on as if the id had been given. Examples are rewritten so that everything behind it learns from ids.

At most `MOST_READ` candidates are read; none or two that fit hand over. A caller who has the id may
give it instead; then a description that is given too must fit its record.
"""

import copy
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.choice import fixed_fields
from em.compiler.evidence import ENOUGH_TO_ACT, information
from em.compiler.example import Example, Read, Role
from em.compiler.facts import Inputs, described_by
from em.compiler.places import (
    ELEMENT,
    KEY,
    MISSING,
    Key,
    Mark,
    Place,
    at,
    elements,
    is_code,
    is_exactly,
    is_scalar,
    is_word,
    key_of,
    last_name,
    marks_in,
    overlap,
    plain,
    walk,
)
from em.compiler.steps import Writer, hole, read_name
from em.compiler.term import (
    Result,
    Term,
    field_text,
    literal,
    names_in,
    path_text,
    singular,
    unused,
)
from em.runner.expressions.functions import is_held, is_telling
from em.values.canonical import Json, same
from em.values.leaves import is_by_id

SHARE = 0.9
"""Of the examples that read a list, in how many the id must have stood in it."""
MOST_WAYS = 12
"""Lists and reads that are tried for one id."""
_SIGNS = ".*@"
"""Signs of paths: a field with one of them in its name has no path."""
CANDIDATE, SHOWN = "candidate", "shown"
"""The parts of a candidate: the element of the list, and the record that a read by its id shows."""


class Condition(NamedTuple):
    """That an input describes a part of a candidate; `field` may go through a list."""

    field: Place
    input: Place


class Shown(NamedTuple):
    """The read that shows the record behind an id, and the argument that the id is.

    Its other arguments are the same for all candidates.
    """

    tool: str
    argument: str

    def reads(self, example: Example) -> list[Read]:
        """Return these reads of an example; none if their other arguments differ."""
        found = [
            read
            for _, read in _reads(example)
            if read.tool == self.tool and self.argument in read.args
        ]
        others = {
            key_of({name: one for name, one in read.args.items() if name != self.argument})
            for read in found
        }
        return found if len(others) == 1 else []

    def others(self, example: Example) -> list[str]:
        """Return the names of the other arguments."""
        return [
            name for read in self.reads(example)[:1] for name in read.args if name != self.argument
        ]


class Home(NamedTuple):
    """The list in which an id stands: the read that returns it, and the place of the id."""

    role: Role
    place: Place

    @property
    def cut(self) -> int:
        """Where in the place the element of the list stands."""
        return marks_in(self.place)[0]

    @property
    def rest(self) -> Place:
        """Where in the element the id stands."""
        return self.place[self.cut + 1 :]


class Candidate(NamedTuple):
    """An element of a list: its id and what is known about it. is_read: all that is needed."""

    id: Any
    record: Json
    is_read: bool


class Sighting(NamedTuple):
    """The candidates of one example, the number of the read that lists them, and the one taken."""

    example: Example
    listed: int
    candidates: list[Candidate]
    taken: Json


class Find(NamedTuple):
    """How an id is found.

    name: the input that it becomes. shown: None if the list itself says enough. state: a field of
    the candidate that must have this value. described: the inputs that say nothing but which
    candidate is meant. values: the ids of the examples.
    """

    name: str
    home: Home
    shown: Shown | None
    conditions: tuple[Condition, ...]
    state: tuple[tuple[Place, Any], ...]
    described: tuple[Place, ...]
    sightings: list[Sighting]
    values: list[Any]

    @property
    def others(self) -> list[str]:
        """The other arguments of the read that shows a candidate."""
        return [] if self.shown is None else self.shown.others(self.sightings[0].example)

    @property
    def inputs(self) -> set[Place]:
        """The inputs that say which candidate is meant."""
        return {one.input for one in self.conditions}

    def says(self, field: Place) -> bool:
        """Return whether inputs say what stands in a field of the candidate."""
        return _say(self.sightings, self.conditions, field)


class Contents(NamedTuple):
    """Examples with ids in place of descriptions, and how the ids are found.

    given: the inputs as they were given.
    """

    examples: Sequence[Example]
    finds: list[Find]
    given: list[Json]


def contents_of(examples: Sequence[Example]) -> Contents:
    """Return examples with the ids that are found by contents as inputs."""
    finds: list[Find] = []
    taken = {str(name) for example in examples for name in example.inputs}
    known: set[Key] = set()
    for name, values in (*_written_ids(examples), *_shown_ids(examples)):
        ids = key_of(values)
        if ids not in known:
            known.add(ids)
            find = _Search(examples, values).find(name, taken)
            if find is not None and all(find.conditions != one.conditions for one in finds):
                taken.add(find.name)
                finds.append(find)
    given = [example.inputs for example in examples]
    made = [_rewritten(example, number, finds) for number, example in enumerate(examples)]
    return Contents(made if finds else examples, finds, given)


def _written_ids(examples: Sequence[Example]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values of writes, with the names of their arguments, that are one per example."""
    found: dict[tuple[str, Place], list[Any]] = defaultdict(list)
    for example in examples:
        here: dict[tuple[str, Place], dict[Key, Any]] = defaultdict(dict)
        for write in example.writes:
            for place, value in plain(write.args):
                here[write.tool, place][key_of(value)] = value
        for where, values in here.items():
            if len(values) == 1:
                found[where] += values.values()
    for (_, place), every in found.items():
        if len(every) == len(examples):
            yield last_name(place), every


def _shown_ids(examples: Sequence[Example]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the ids of records with a written part that no input has."""
    found: dict[Shown, list[Any]] = defaultdict(list)
    for example in examples:
        used = [value for write in example.writes for _, _, value in walk(write.args)]
        used += [value for _, _, value in walk(example.output)]
        said = {key_of(value) for _, _, value in walk(example.inputs)}
        used = [
            value
            for value in used
            if key_of(value) not in said and information(value) >= ENOUGH_TO_ACT
        ]
        reads: dict[Shown, dict[Key, Read]] = defaultdict(dict)
        for shown in dict.fromkeys(
            Shown(read.tool, name) for _, read in _reads(example) for name in read.args
        ):
            for read in shown.reads(example):
                reads[shown][key_of(read.args[shown.argument])] = read
        for shown, by_id in reads.items():
            # What several of these records have says nothing about which one was meant.
            own = {*map(id, by_id.values())}
            every = [example.holding(value, example.first_write) for value in used]
            holding = [[read for _, read in some if id(read) in own] for some in every]
            alone = {id(held[0]): held[0] for held in holding if len(held) == 1}
            if len(alone) == 1:
                found[shown] += [read.args[shown.argument] for read in alone.values()]
    for shown, every in found.items():
        if len(every) == len(examples):
            yield shown.argument, every


def _rewritten(example: Example, number: int, finds: list[Find]) -> Example:
    """Return an example with ids as inputs, without the records that describe them."""
    if not finds:
        return example
    inputs = copy.deepcopy(example.inputs)
    for find in finds:
        for place in find.described:
            holder = at(inputs, place[:-1])
            if isinstance(holder, dict):
                holder.pop(place[-1], None)
        inputs[find.name] = find.values[number]
    return example.with_inputs(inputs)


class _Search:
    """Looks for the way in which one id was found, the same in all examples."""

    def __init__(self, examples: Sequence[Example], ids: Sequence[Any]) -> None:
        self._rows = [*zip(examples, ids, strict=True)]
        self._ids = [*ids]
        # The input that is the id, in the examples that have it.
        self._given = self._given_at()
        self._open = [
            row
            for row in self._rows
            if not self._given or at(row[0].inputs, self._given) is MISSING
        ]

    def find(self, name: str, taken: set[str]) -> Find | None:
        """Return the way, or None if inputs are the id, or don't describe it."""
        if not self._open:
            return None
        tried = [
            made
            for home in self._homes()
            for shown in (None, *self._shown())
            if (made := self._made(home, shown)) is not None
        ]
        if not tried:
            return None
        # The one that heeds most of what was said; the list itself before reads.
        best = min(tried, key=lambda one: (-len(one.inputs), one.shown is not None))
        if best.shown is None and self._is_plain(best):
            return None  # an ordinary choice by fields of the element
        return best._replace(name=str(self._given[0]) if self._given else unused(name, taken))

    def _given_at(self) -> Place:
        """Return the input that is the id wherever it is given; () if there is none."""
        agree: Counter[str] = Counter()
        for example, value in self._rows:
            for name, one in example.inputs.items():
                if is_scalar(one):
                    agree[name] += 1 if is_exactly(one, value) else -len(self._rows)
        found = [name for name, count in agree.items() if count > 0]
        return (max(found, key=lambda name: agree[name]),) if found else ()

    def _homes(self) -> list[Home]:
        """Return the lists in which the id stood in nearly all examples that read them."""
        stood: Counter[Home] = Counter()
        made: Counter[Role] = Counter()
        for example, value in self._open:
            here: set[Home] = set()
            roles: set[Role] = set()
            for number, read in _reads(example):
                role = example.role(number, None)
                roles.add(role)
                if read.holds(value):
                    here |= {
                        Home(role, place)
                        for place, _ in read.paths(value)
                        if len(marks_in(place)) == 1
                    }
            stood.update(here)
            made.update(roles)
        found = [home for home, count in stood.items() if count >= SHARE * made[home.role]]
        return sorted(found, key=lambda home: (-stood[home], str(home)))[:MOST_WAYS]

    def _shown(self) -> list[Shown]:
        """Return the reads by that id alone that show a record."""
        found = Counter(
            Shown(read.tool, name)
            for example, value in self._open
            for _, read in _reads(example)
            for name, one in read.args.items()
            if same(one, value) and isinstance(read.result, dict)
        )
        return [shown for shown, _ in found.most_common(MOST_WAYS)]

    def _made(self, home: Home, shown: Shown | None) -> Find | None:
        sightings = [
            one
            for example, value in self._open
            if (one := _sighting(example, value, home, shown)) is not None
        ]
        if not sightings or not all(_are_ids(one, home, shown) for one in sightings):
            return None
        conditions = self._conditions(sightings)
        if not conditions:
            return None
        state = _state(sightings, conditions)
        alone = sum(len(_left(one, conditions, state)) == 1 for one in sightings)
        if 2 * alone <= len(sightings) or 2 * len(sightings) < len(self._open):
            return None
        described = _described(sightings, conditions)
        return Find("", home, shown, conditions, state, described, sightings, self._ids)

    def _conditions(self, sightings: list[Sighting]) -> tuple[Condition, ...]:
        """Return what the inputs of all examples say about the record that was taken."""
        common: dict[Condition, dict[Key, float]] | None = None
        for one in sightings:
            here = _told(one.example, one.taken)
            if common is None:
                common = {condition: {} for condition in here}
            common = {
                condition: {**bits, here[condition][0]: here[condition][1]}
                for condition, bits in common.items()
                if condition in here
            }
        told = [
            condition
            for condition, bits in (common or {}).items()
            if sum(bits.values()) >= ENOUGH_TO_ACT
        ]
        # What the list itself was asked for by says little about its elements.
        asked = {place for one in sightings for place in _asked(one.example, one.listed)}
        free = [one for one in told if not any(overlap(one.input, place) for place in asked)]
        # Unless all of them were looked at, it does not tell one from the others.
        is_whole = all(each.is_read for one in sightings for each in one.candidates)
        return tuple(free or [one for one in told if one.input in asked and is_whole])

    def _is_plain(self, find: Find) -> bool:
        """Return whether fields of the element alone tell it, so that an ordinary choice does."""
        return not (
            self._given or find.described or any(ELEMENT in one.field for one in find.conditions)
        )


def _are_ids(sighting: Sighting, home: Home, shown: Shown | None) -> bool:
    """Return whether a list was told apart by these values: by id, not by some field."""
    ids = [one.id for one in sighting.candidates]
    is_told = shown is not None or home.rest == (KEY,) or all(map(is_code, ids))
    return is_told and len({*map(key_of, ids)}) == len(ids)


def _reads(example: Example) -> Iterator[tuple[int, Read]]:
    """Yield the reads before the first write: what is read later may have been changed by it."""
    yield from enumerate(example.reads[: example.first_write])


def _sighting(example: Example, value: Any, home: Home, shown: Shown | None) -> Sighting | None:
    """Return the candidates of an example; None if the one that was taken is not known."""
    for number, read in reversed([*_reads(example)]):
        if example.role(number, None) != home.role or not read.holds(value):
            continue
        candidates = [*_candidates(example, read, home, shown)]
        taken = [one for one in candidates if is_exactly(one.id, value)]
        if len(taken) == 1 and taken[0].is_read:
            return Sighting(example, number, candidates, taken[0].record)
    return None


def _candidates(
    example: Example, read: Read, home: Home, shown: Shown | None
) -> Iterator[Candidate]:
    mark = home.place[home.cut]
    assert isinstance(mark, Mark)
    reads = [] if shown is None else shown.reads(example)
    for key, element in elements(at(read.result, home.place[: home.cut]), mark):
        is_key = home.rest == (KEY,)
        name = key if is_key else at(element, home.rest)
        if shown is None:
            if isinstance(element, dict):
                yield Candidate(name, element, True)
            continue
        seen = [
            one.result
            for one in reads
            if same(one.args[shown.argument], name) and isinstance(one.result, dict)
        ]
        record = {CANDIDATE: key if is_key else element}
        yield Candidate(name, {**record, SHOWN: seen[-1]} if seen else record, bool(seen))


# ---- what inputs say


def _asked(example: Example, number: int) -> set[Place]:
    """Return the inputs that a read was asked by, itself or through the reads before it."""
    found: set[Place] = set()
    todo, done = [number], set[int]()
    while todo:
        one = todo.pop()
        if one not in done:
            done.add(one)
            found |= {place for _, place in example.role(one, None).sources if place is not None}
            for value in example.reads[one].args.values():
                todo += [earlier for earlier, _ in example.holding(value, one)]
    return found


def _described(sightings: list[Sighting], conditions: Iterable[Condition]) -> tuple[Place, ...]:
    """Return the inputs that are records and that nothing was read by."""
    asked = {
        place
        for one in sightings
        for number, _ in _reads(one.example)
        for _, place in one.example.role(number, None).sources
        if place is not None
    }
    return tuple(
        one.input
        for one in conditions
        if len(one.input) == 1
        and any(isinstance(at(each.example.inputs, one.input), dict) for each in sightings)
        and not any(overlap(one.input, place) for place in asked)
    )


def _told(example: Example, record: Json) -> dict[Condition, tuple[Key, float]]:
    """Return the inputs that describe a part of a record, with their evidence in bits."""
    fields = dict(_fields(record))
    said = example.said(None).leaves
    cost = math.log2(1 + len(said)) + math.log2(1 + len(fields))
    found: dict[Condition, tuple[Key, float]] = {}
    waiting: list[tuple[Place, Any]] = [((name,), one) for name, one in example.inputs.items()]
    while waiting:
        place, wanted = waiting.pop()
        if not is_telling(wanted) or (
            isinstance(wanted, list) and not all(map(is_telling, wanted))
        ):
            continue
        fit = [field for field, value in fields.items() if is_held(wanted, value)]
        if not is_scalar(wanted):
            # The description of a record, not of what is in it.
            fit = [one for one in fit if not any(one[:cut] in fit for cut in range(len(one)))]
        for field in fit:
            found[Condition(field, place)] = key_of(wanted), information(wanted) - cost
        if not fit and isinstance(wanted, dict):
            waiting += [((*place, name), one) for name, one in wanted.items()]
    return found


def _fields(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield all parts of a record that a path can name; those through a list as a list."""
    yield place, value
    if isinstance(value, dict) and not is_by_id(value):
        for name, one in value.items():
            if not set(name) & set(_SIGNS):
                yield from _fields(one, (*place, name))
    elif isinstance(value, list):
        inner: dict[Place, list[Any]] = defaultdict(list)
        for element in value:
            if isinstance(element, dict):
                for field, one in plain(element):
                    inner[field].append(one)
        for field, every in inner.items():
            yield (*place, ELEMENT, *field), every


def value_at(record: Any, field: Place) -> Any:
    """Return the part of a record at a field, or MISSING; through a list as a list."""
    if ELEMENT not in field:
        return at(record, field)
    cut = field.index(ELEMENT)
    held = at(record, field[:cut])
    if not isinstance(held, list):
        return MISSING
    found = [at(one, field[cut + 1 :]) for one in held]
    return [one for one in found if one is not MISSING]


def _left(
    sighting: Sighting, conditions: Iterable[Condition], state: Iterable[tuple[Place, Any]]
) -> list[Candidate]:
    """Return the candidates that are known to fit."""
    inputs = sighting.example.inputs
    return [
        one
        for one in sighting.candidates
        if one.is_read
        and all(
            is_held(at(inputs, each.input), value_at(one.record, each.field)) for each in conditions
        )
        and all(same(at(one.record, field), value) for field, value in state)
    ]


def _state(
    sightings: list[Sighting], conditions: Iterable[Condition]
) -> tuple[tuple[Place, Any], ...]:
    """Return the word that every taken record had, if enough others had another one there."""
    words = {
        field: value
        for field, value in plain(sightings[0].taken)
        if is_word(value)
        and not set("".join(map(str, field))) & set(_SIGNS)
        and all(same(at(one.taken, field), value) for one in sightings)
    }
    best: tuple[float, tuple[tuple[Place, Any], ...]] = (0.0, ())
    for field, value in words.items():
        if _say(sightings, conditions, field):
            continue
        gain = 0.0
        for one in sightings:
            found = [at(each.record, field) for each in one.candidates]
            known = [each for each in found if each is not MISSING]
            gain += math.log2(len(known) / sum(same(each, value) for each in known))
        if gain > best[0]:
            best = gain, ((field, value),)
    return best[1] if best[0] - math.log2(1 + len(words)) >= ENOUGH_TO_ACT else ()


def _say(sightings: Iterable[Sighting], conditions: Iterable[Condition], field: Place) -> bool:
    """Return whether inputs say what stands in a field of a candidate."""
    return any(
        field[: len(one.field)] == one.field
        and at(each.example.inputs, (*one.input, *field[len(one.field) :])) is not MISSING
        for each in sightings
        for one in conditions
    )


MOST_READ = 25
"""Candidates that are read one by one before choosing; more hand over."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Candidates:
    """Writes how the ids of a routine are found."""

    def __init__(self, writer: Writer, contents: Contents) -> None:
        self._writer, self._contents = writer, contents
        self._written: list[Find] = []

    def write(self) -> None:
        """Write the steps that find the ids, before everything that uses them."""
        writer, waiting = self._writer, [*self._contents.finds]
        writer.hidden |= {(find.name,) for find in waiting}
        while ready := next((one for one in waiting if self._is_known(one)), None):
            self._write(ready)
            waiting.remove(ready)
            self._written.append(ready)
            writer.reveal((ready.name,))
        for find in waiting:
            writer.reveal((find.name,))

    def _is_known(self, find: Find) -> bool:
        """Return whether the list can be read, and what describes its elements is there."""
        inputs = [
            place for place in self._writer.hidden for one in find.conditions if one.input == place
        ]
        if inputs or self._writer.result(find.home.role) is None:
            return False
        return all(self._other(find, name) is not None for name in find.others)

    def _other(self, find: Find, name: str) -> Term | None:
        """Return where another argument of the read comes from that shows a candidate."""
        role = self._role(find)
        return None if role is None else self._writer.argument_of(role, name)

    def _role(self, find: Find) -> Role | None:
        """Return what the read of the record that was found is for."""
        shown = find.shown
        if shown is None:
            return None
        return next(
            (
                role
                for role in self._writer.space.roles
                if role.tool == shown.tool and dict(role.sources)[shown.argument] == (find.name,)
            ),
            None,
        )

    def _write(self, find: Find) -> None:
        writer, home = self._writer, find.home
        base = field_text(writer.text(Result(home.role)), names_in(home.place[: home.cut]))
        missing = f"not given({find.name})"
        if find.shown is None:
            rows = self._conditions(find)
            if home.rest == (KEY,):
                text = _selection("only_key", base, rows)
            else:
                text = field_text(_selection("only", base, rows), names_in(home.rest))
        else:
            text = self._write_reads(find, base, missing)
        held = f"{len(find.sightings)}/{len(writer.examples)}"
        step = {"type": "let", "value": hole(text), "save_as": find.name, "when": missing}
        writer.top.append({**step, "held": held})

    def _write_reads(self, find: Find, base: str, missing: str) -> str:
        """Write the reads of all candidates; return the id of the one that fits."""
        writer, shown, rest = self._writer, find.shown, find.home.rest
        assert shown is not None
        noun = read_name(shown.tool)
        candidate, record = writer.fresh("candidate"), writer.fresh(f"{noun}_read")
        each = writer.fresh(f"each_{noun}")
        own = {field[1:]: value for field, value in find.state if field[0] == CANDIDATE}
        if own:
            rows = [(path_text(field), literal(value)) for field, value in own.items()]
            base = _selection("where", base, rows)
        if rest == (KEY,):
            base, rest = f'every({base}, "@")', ()
        chosen = field_text(candidate, names_in(rest))
        args = {shown.argument: hole(chosen)}
        for name in find.others:
            term = self._other(find, name)
            assert term is not None
            args[name] = writer.value(term, name)
        read = {"type": "tool.call", "tool": shown.tool, "args": args, "save_as": record}
        writer.top.append(
            {
                "type": "for_each",
                "over": {candidate: base},
                "max": MOST_READ,
                "when": missing,
                "steps": [read],
                "save_as": each,
            }
        )
        names = {CANDIDATE: candidate, SHOWN: record}
        rows = [
            *self._conditions(find, CANDIDATE, record=names[CANDIDATE], is_stated=not own),
            *self._conditions(find, SHOWN, record=names[SHOWN]),
        ]
        return f"{_selection('only', each, rows)}.{chosen}"

    def _conditions(
        self, find: Find, part: str = "", *, record: str = "", is_stated: bool = True
    ) -> list[tuple[str, str]]:
        """Return what a part of a candidate must be like, by paths in a record of this name."""
        cut, outer = (1, (record,) if record else ()) if part else (0, ())
        rows = [(one.field, self._wanted(find, one)) for one in find.conditions]
        rows += [(field, literal(value)) for field, value in find.state if is_stated]
        return [
            (path_text((*outer, *field[cut:])), text)
            for field, text in rows
            if field[:cut] == ((part,) if part else ())
        ]

    def _wanted(self, find: Find, condition: Condition) -> str:
        text = self._writer.input_text(condition.input)
        found = [at(one.example.inputs, condition.input) for one in find.sightings]
        is_plain = ELEMENT not in condition.field and all(map(is_scalar, found))
        return text if is_plain else f"holding({text})"

    # ---- checks of the record that was found, or whose id was given

    def check(self) -> None:
        """Write that what was found is as described and in a known state, also by a given id."""
        for find in self._written:
            record = self._write_element(find)
            if find.shown is not None:
                role = self._role(find)
                step = None if role is None else self._writer.read_steps.get(role)
                record = None if step is None else str(step["save_as"])
            if record is not None:
                self._check_record(find, record)

    def _check_record(self, find: Find, record: str) -> None:
        """Write that the record is as described."""
        rows = self._conditions(find, "" if find.shown is None else SHOWN)
        if rows:
            step: Json = {"type": "assert", "check": _selection("where", f"[{record}]", rows)}
            if find.described:
                step["when"] = self._writer.given_text(find.described)
            self._writer.add_check(step, len(find.sightings))
        self._check_parts(find, record)

    def _write_element(self, find: Find) -> str | None:
        """Write the element of the list that has the id; its words must be as they were."""
        writer, home = self._writer, find.home
        cut = () if find.shown is None else (CANDIDATE,)
        taken = [at(one.taken, cut) for one in find.sightings]
        fixed = {
            str(field[0]): {"const": value}
            for field, value in fixed_fields(taken).items()
            if not find.says((*cut, *field))
        }
        if find.shown is not None and not fixed:
            return None
        base = field_text(writer.text(Result(home.role)), names_in(home.place[: home.cut]))
        text = f"{base}[{find.name}]"
        if home.rest != (KEY,):
            text = _selection("only", base, [(path_text(home.rest), find.name)])
        name = singular(last_name(home.place[: home.cut]) or read_name(home.role.tool))
        step = {"type": "let", "value": hole(text), "save_as": writer.fresh(f"{name}_listed")}
        if fixed:
            held = f"{len(taken)}/{len(writer.examples)}"
            step |= {"expect": {"required": [*fixed], "properties": fixed}, "held": held}
        writer.top.append(step)
        return str(step["save_as"])

    def _check_parts(self, find: Find, record: str) -> None:
        """Write that an element by which the record was found is in the state that it always had.

        The object that a loan was found by must not have been recalled.
        """
        outer: Place = () if find.shown is None else (SHOWN,)
        for one in find.conditions:
            if ELEMENT not in one.field or (outer and one.field[0] != SHOWN):
                continue
            cut = one.field.index(ELEMENT)
            place, inner = one.field[len(outer) : cut], one.field[cut + 1 :]
            chosen = []
            for each in find.sightings:
                wanted = at(each.example.inputs, one.input)
                held = at(each.taken, (*outer, *place))
                chosen += [element for element in held if same(at(element, inner), wanted)]
            fixed = {f: value for f, value in fixed_fields(chosen).items() if f != inner}
            if not inner or not fixed:
                continue
            text = field_text(record, names_in(place))
            rows = [(path_text(inner), self._writer.input_text(one.input))]
            properties = {str(field[0]): {"const": value} for field, value in fixed.items()}
            items = {"required": [*properties], "properties": properties}
            self._writer.top.append(
                {
                    "type": "let",
                    "value": hole(_selection("where", text, rows)),
                    "save_as": self._writer.fresh(last_name(place) or "parts"),
                    "expect": {"type": "array", "minItems": 1, "items": items},
                    "held": f"{len(find.sightings)}/{len(self._writer.examples)}",
                }
            )

    # ---- inputs

    def inputs(self) -> list[Json]:
        """Return the inputs of the examples without what is found, and what it is found by."""
        names = {find.name for find in self._written}
        return [
            {name: one for name, one in example.inputs.items() if name not in names}
            for example in self._writer.examples
        ]

    def add_to(self, schema: Json, used: Collection[str]) -> None:
        """Add the ids and the descriptions to the schema of inputs: one of both must be given."""
        ways = []
        for find in self._written:
            properties = schema["properties"]
            properties[find.name] = Inputs(used).schema(find.values, (find.name,))
            names = list(dict.fromkeys(str(place[0]) for place in find.described))
            for name in names:
                values = [one[name] for one in self._contents.given if name in one]
                properties[name] = described_by(values, (name,))
            if names:
                ways.append({"anyOf": [{"required": [find.name]}, {"required": names}]})
        if ways:
            schema["allOf"] = [*schema.get("allOf", ()), *ways]


def _selection(function: str, base: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a call that selects by paths; two conditions on one path are two selections."""
    first: dict[str, str] = {}
    rest: list[tuple[str, str]] = []
    for path, text in rows:
        others = {path, *first} - {""}
        is_bare = "" in {path, *first}
        if path in first or (is_bare and not all(map(_NAME.fullmatch, others))):
            rest.append((path, text))
        else:
            first[path] = text
    if rest:
        base = _selection("where", base, rest)
    whole = [first.pop("")] if "" in first else []
    named = [f"{path}={text}" for path, text in first.items() if _NAME.fullmatch(path)]
    other = [
        f"{literal(path)}: {text}" for path, text in first.items() if not _NAME.fullmatch(path)
    ]
    mapping = ["{" + ", ".join(other) + "}"] if other else []
    return f"{function}({', '.join([base, *whole, *mapping, *named])})"
