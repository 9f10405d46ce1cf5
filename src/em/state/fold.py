"""Fold a subject's events into its schema, its records and its facts.

What a model read in free text is an event too. So the same log always gives the same state,
without asking a model again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from em import deadline
from em.errors import InputError
from em.log.event import Row
from em.state.rows import Seen, block_id, blocks, placed
from em.state.rules import check_constraint, read_constraint, rule_key
from em.state.schema import (
    PROFILE,
    UNSTRUCTURED,
    Constraint,
    Decision,
    Entry,
    Extraction,
    Handed,
    How,
    StateSchema,
    TypeSchema,
)
from em.state.statement import Text
from em.state.types import fold_records, type_of
from em.store.protocol import Record, Store
from em.traces.trace import Source, least_trusted
from em.values.canonical import Json
from em.values.times import moment, to_micros

UNREAD = "nobody has read it"
"""Why a text is listed that neither a caller nor a model has read."""
UNACCEPTED = "anybody may have written it; it counts once a person accepts it"
"""Why an observation from the web is listed."""
SAID = Text.__struct_fields__[4:]
UNNAMED = "Record"
"""The type of records that name none."""


class Fact(msgspec.Struct, frozen=True):
    """One value of one field of a keyed record."""

    type: str
    key: tuple[Any, ...]
    field: str
    entry: Entry

    @property
    def holder(self) -> str:
        """The id of the record that this fact belongs to: a hash, since keys may be anything."""
        return sha256(written_key(self.key).encode()).hexdigest()[:32]


def entity(
    subject: str, type_: TypeSchema, known: Record | None, holder: str, facts: Sequence[Fact]
) -> Record:
    """Make the record of a keyed type, from what is known and new facts about it."""
    body: Json = {"key": list(facts[0].key), "facts": {}}
    if known is not None and known.body is not None:
        body = known.body
    history: dict[str, list[Any]] = body["facts"]
    events = list(known.from_events) if known is not None else []
    for fact in facts:
        history.setdefault(fact.field, []).append(msgspec.to_builtins(fact.entry))
        events += fact.entry.events
    sources_ = tuple(dict.fromkeys(events))
    return Record(
        subject=subject,
        type=type_.name,
        id=holder,
        body=body,
        from_events=sources_,
        from_log=True,
    )


def records_of(
    schema: StateSchema, folded: "Folded", store: Store | None
) -> Iterator[tuple[str, Record]]:
    """Yield the records that events add to a state, with the names that their types were given.

    store: has the records that they go on with; None to write all of them from the beginning.
    """
    subject, opened = schema.subject, None
    todo = [(given, schema.types[given], seen) for given, seen in folded.seen.items()]
    todo += [(UNSTRUCTURED, schema.unstructured, folded.unstructured)]
    for given, type_, seen in todo:
        if store is not None and type_.open_rows:
            opened = next(store.records(subject, type_.name, [block_id(type_.blocks)]), None)
        if seen:
            yield from ((given, one) for one in blocks(subject, type_, seen, opened))
        opened = None
    by_type: defaultdict[str, defaultdict[str, list[Fact]]] = defaultdict(lambda: defaultdict(list))
    for fact in folded.facts:
        by_type[fact.type][fact.holder].append(fact)
    for given, holders in by_type.items():
        type_ = schema.types[given]
        stored = store.records(subject, type_.name, list(holders)) if store is not None else ()
        known = {record.id: record for record in stored}
        for holder, facts in sorted(holders.items()):
            yield given, entity(subject, type_, known.get(holder), holder, facts)


class GivenRecord(NamedTuple):
    """A record on its way into the state. read: how, unless it was given as a record."""

    seen: Seen
    source: str
    read: Entry | None = None


class Correction(NamedTuple):
    """What changes a record without a key: new values of fields, or None to take it back."""

    changes: Json | None
    events: tuple[str, ...]
    recorded_at: int


class FoldInput(msgspec.Struct):
    """The contents of events, sorted by what becomes of them.

    speech: who said which text. whole: all events are here, not only the new ones. handed: what
    callers read in texts that were stored before, by the text, and nobody has judged yet. origins:
    of observations that are not this process's own. waiting: those that a person must accept.
    """

    records: list[tuple[str, Seen, str]] = []
    texts: list[Text] = []
    extractions: list[tuple[Extraction, int, int]] = []
    decisions: list[tuple[str, int, int, Decision]] = []
    observations: int = 0
    last_pos: int = 0
    last_seq: int = 0
    times: dict[str, tuple[int, int]] = {}
    speech: dict[str, str] = {}
    handed: dict[str, Handed] = {}
    origins: dict[str, Source] = {}
    waiting: list[str] = []
    whole: bool = False
    erased: bool = False
    undoes: bool = False

    @property
    def accepted(self) -> dict[str, int]:
        """The observations from the web that a person accepted, and when."""
        found = ((decision.accept, known) for _, _, known, decision in reversed(self.decisions))
        return {event: known for event, known in found if event is not None}

    @property
    def corrects(self) -> bool:
        """Tell whether something here changes a record that was there before."""
        return any(
            decision.place is not None or decision.same is not None
            for _, _, _, decision in self.decisions
        ) or any(
            (item.get("op") in ("update", "retract") and item.get("place"))
            or item.get("op") == "merge"
            for found, _, _ in self.extractions
            for item in found.records
        )


def sort_events(events: Iterable[Row], after_pos: int, *, again: bool = False) -> FoldInput:
    """Sort the contents of events after a position. Texts that were read already are left out.

    again: also list the texts that no model has read successfully.
    """
    material = FoldInput(whole=after_pos == 0)
    decode = msgspec.json.Decoder().decode
    for event in events:
        deadline.check()
        material.last_pos, material.last_seq = event.pos, event.seq
        if event.body is None or event.pos <= after_pos:
            continue
        if event.kind == "observation":
            _observation(material, event.id, decode(event.body), event.at, event.recorded_at)
        elif event.kind == "extracted":
            found = msgspec.json.decode(event.body, type=Extraction)
            material.extractions.append((found, event.at, event.recorded_at))
            for text in found.from_events if found.method == "model" or not again else ():
                material.handed.pop(text, None)
        elif event.kind == "read":
            handed = msgspec.json.decode(event.body, type=Handed)
            material.handed[handed.from_events[0]] = handed
        elif event.kind == "decided":
            decision = msgspec.json.decode(event.body, type=Decision)
            material.decisions.append((event.id, event.at, event.recorded_at, decision))
        elif event.kind == "erased":
            material.erased = True
    if again:
        by_model = [one for one in material.extractions if one[0].method == "model"]
        material.extractions = [one for one in by_model if not one[0].failed]
    _leave_undone(material)
    _leave_unaccepted(material)
    _newest_only(material)
    read = {event for found, _, _ in material.extractions for event in found.from_events}
    left = [text for text in material.texts if text.event not in read - material.handed.keys()]
    material.texts = [_with_handed(text, material.handed.get(text.event)) for text in left]
    return material


def _with_handed(text: Text, handed: Handed | None) -> Text:
    if handed is None:
        return text
    return msgspec.structs.replace(text, facts=handed.facts, rules=handed.rules)


def _leave_undone(material: FoldInput) -> None:
    """Drop decisions that were taken back, unless the taking back was itself taken back."""
    undone: set[str] = set()
    for event, _, _, decision in reversed(material.decisions):
        if decision.undo is not None:
            material.undoes = True
            if event not in undone:
                undone.add(decision.undo)
    material.decisions = [
        one for one in material.decisions if one[0] not in undone and one[3].undo is None
    ]


def _leave_unaccepted(material: FoldInput) -> None:
    """Drop what anybody may have written, with what was read in it, until a person accepts it.

    It is known from then on.
    """
    accepted = material.accepted
    for event in accepted.keys() & material.times.keys():
        material.times[event] = (material.times[event][0], accepted[event])
    for number, (given, seen, source) in enumerate(material.records if accepted else ()):
        if (known := accepted.get(seen.events[0])) is not None:
            material.records[number] = (given, seen._replace(recorded_at=known), source)
    left = {event for event, origin in material.origins.items() if origin == "web"}
    left -= accepted.keys()
    if left:
        material.waiting = [event for event in material.origins if event in left]
        material.records = [one for one in material.records if one[1].events[0] not in left]
        material.texts = [one for one in material.texts if one.event not in left]
        material.extractions = [
            one for one in material.extractions if left.isdisjoint(one[0].from_events)
        ]


def _newest_only(material: FoldInput) -> None:
    """Drop readings whose texts were all read again later."""
    owner: dict[str, int | None] = {
        event: number
        for number, (found, _, _) in enumerate(material.extractions)
        for event in found.from_events
    }
    owner |= dict.fromkeys(material.handed)
    material.extractions = [
        one
        for number, one in enumerate(material.extractions)
        if any(owner[event] == number for event in one[0].from_events)
    ]


def _observation(material: FoldInput, event: str, body: Json, at: int, known: int) -> None:
    material.observations += 1
    record, origin = body.get("record"), body.get("origin")
    if origin is not None:
        material.origins[event] = origin
    if record is None or origin is not None:
        material.times[event] = (at, known)
    if record is None:
        said = {name: body[name] for name in SAID if body.get(name) is not None}
        text = Text(event, body["text"], at, known, **said)
        material.speech[event] = text.speaker or text.role
        material.texts.append(text)
        return
    own = record.get("type")
    given = body.get("type") or (own if isinstance(own, str) and own else UNNAMED)
    source = body.get("source") or body.get("speaker") or ""
    material.records.append((given, Seen(record, (event,), at, known), source))


class Folded(msgspec.Struct):
    """What events add to a state. refused: why constraints, by id, can't be compiled."""

    seen: dict[str, list[Seen]] = {}
    facts: list[Fact] = []
    unstructured: list[Seen] = []
    problems: list[str] = []
    refused: dict[str, str] = {}


def fold(schema: StateSchema, material: FoldInput, declared: Mapping[str, list[str]]) -> Folded:
    """Add the contents of events to the schema; return the records and facts to write.

    declared: by type, the keys that the settings declare.
    """
    for _, _, _, decision in material.decisions:
        if decision.key is not None:
            type_of(schema, decision.type, decision.key).key = decision.key
        if decision.policy is not None and decision.field is not None:
            schema.policies[f"{decision.type}.{decision.field}"] = decision.policy
    named = {given for given, _, _ in material.records} | schema.types.keys()
    named |= {one["type"] for found, _, _ in material.extractions for one in found.records}
    for given in named & declared.keys():
        type_of(schema, given, declared[given]).key = declared[given]
    for extraction, _, _ in material.extractions:
        for given, key in extraction.keys.items():
            if given not in schema.types:
                type_of(schema, given, key)
    return _Folding(schema, material).result()


def _corrections(material: FoldInput) -> dict[str, list[Correction]]:
    """Return what changes records without a key, by their places, the oldest first."""
    found: list[tuple[int, str, Correction]] = []
    for extraction, at, known in material.extractions:
        for item in extraction.records:
            if item.get("op") in ("update", "retract") and item.get("place"):
                times = material.times.get(item["events"][0], (at, known))
                changes = item["record"] if item["op"] == "update" else None
                one = Correction(changes, tuple(item["events"]), times[1])
                found.append((times[1], item["place"], one))
    for event, _, known, decision in material.decisions:
        if decision.place is not None:
            found.append((known, decision.place, Correction(decision.changes, (event,), known)))
    by_place: defaultdict[str, list[Correction]] = defaultdict(list)
    for _, place, one in sorted(found, key=lambda one: one[0]):
        by_place[place].append(one)
    return by_place


def _corrected(seen: Seen, corrections: Sequence[Correction]) -> list[Seen]:
    """Return a record and what became of it; only the last one can still hold."""
    versions = [seen]
    for one in corrections:
        last = versions[-1]
        if last.gone:
            break
        if one.changes is None:
            versions[-1] = last._replace(gone=str(one.recorded_at))
            continue
        versions[-1] = last._replace(gone=f"{one.recorded_at}+")
        events = tuple(dict.fromkeys((*last.events, *one.events)))
        versions.append(Seen({**last.record, **one.changes}, events, last.at, one.recorded_at))
    return versions


class _Folding:
    """Events on their way into a schema whose types and policies are declared."""

    def __init__(self, schema: StateSchema, material: FoldInput) -> None:
        self._schema, self._material = schema, material
        self._folded = Folded()

    def result(self) -> Folded:
        """Fold everything."""
        schema, material = self._schema, self._material
        schema.coverage.observations += material.observations
        grouped: defaultdict[str, list[GivenRecord]] = defaultdict(list)
        for given, seen, source in material.records:
            grouped[given].append(GivenRecord(seen, source))
            schema.coverage.structured += 1
        self._readings(grouped)
        corrections = _corrections(material)
        for given, items in grouped.items():
            self._records(given, items, corrections)
        for event, at, known, decision in material.decisions:
            self._decision(event, at, known, decision)
        self._merge()
        self._facts_types()
        self._constraints()
        left = dict.fromkeys((text.event for text in material.texts), UNREAD)
        left |= dict.fromkeys(material.waiting, UNACCEPTED)
        for event, why in left.items():
            self._leave(event, material.times[event], why)
        return self._folded

    def _records(
        self, given: str, items: list[GivenRecord], corrections: Mapping[str, list[Correction]]
    ) -> None:
        type_ = type_of(self._schema, given, [] if given == PROFILE else None)
        if type_.key is None:
            seen = [item.seen for item in items]
            if corrections:
                at = placed(type_.given, seen, Counter())
                seen = [v for place, one in at for v in _corrected(one, corrections.get(place, ()))]
                type_.gone += sum(1 for one in seen if one.gone)
            fold_records(type_, [one.record for one in seen], [one.events[0] for one in seen])
            self._folded.seen.setdefault(type_.given, []).extend(seen)
            return
        for item in items:
            one = item.seen
            missing = [name for name in type_.key if one.record.get(name) is None]
            if missing:
                reason = f"a {given} without its key {missing[0]!r}"
                self._leave(one.events[0], (one.at, one.recorded_at), reason)
                self._schema.coverage.structured -= 1
                continue
            key = tuple(one.record[name] for name in type_.key)
            own = Entry(None, one.at, one.recorded_at, list(one.events), item.source, how="record")
            origin = self._material.origins.get(one.events[0], "own")
            own = msgspec.structs.replace(own, origin=origin)
            for name, value in one.record.items():
                entry = msgspec.structs.replace(item.read or own, value=value)
                self._folded.facts.append(Fact(type_.given, key, name, entry))

    def _readings(self, grouped: defaultdict[str, list[GivenRecord]]) -> None:
        """Add what was read in texts to the records, and to the facts."""
        extractions = self._material.extractions
        known = {one.seen.events[0] for items in grouped.values() for one in items}
        known |= {one["events"][0] for found, _, _ in extractions for one in found.records}
        for extraction, at, recorded_at in extractions:
            used, times = set[str](), (at, recorded_at)
            for item in extraction.records:
                used.update(item["events"])
                op = item.get("op", "add")
                if op == "same" and item["record"] and self._material.whole:
                    # What repeats a record becomes one of its own once that record was forgotten.
                    event = item["place"].rsplit("/", 2)[1]
                    op = op if event in known else "add"
                    known.add(event)
                if op == "add":
                    read = self._entry(item, extraction.method, times)
                    seen = Seen(item["record"], tuple(item["events"]), read.at, read.recorded_at)
                    grouped[item["type"]].append(GivenRecord(seen, read.source, read))
            for item in extraction.facts:
                if item.get("op") != "same":
                    used.update(item["events"])
                    entry = self._entry(item, extraction.method, times)
                    of = item.get("type") or PROFILE, tuple(item.get("key") or ())
                    self._folded.facts.append(Fact(*of, item["field"], entry))
            for item in extraction.constraints:
                used.update(item.get("events") or ())
            self._count(extraction, used, times)

    def _count(self, extraction: Extraction, used: set[str], times: tuple[int, int]) -> None:
        coverage = self._schema.coverage
        for event in extraction.from_events:
            if event in used:
                coverage.structured += 1
                coverage.by_model += extraction.method == "model"
                coverage.by_agent += extraction.method == "agent"
                continue
            left_out = "; ".join(extraction.left_out) if len(extraction.from_events) == 1 else ""
            nothing = f"the {extraction.method} found nothing to structure"
            reason = extraction.failed or left_out or nothing
            self._leave(event, self._material.times.get(event, times), reason)

    def _leave(self, event: str, times: tuple[int, int], reason: str) -> None:
        self._schema.coverage.unstructured += 1
        self._folded.unstructured.append(Seen({"reason": reason}, (event,), *times))

    def _entry(self, item: Json, how: How, times: tuple[int, int]) -> Entry:
        """Return the value of what was read, when it held, and who said it in which words."""
        events, material = item["events"], self._material
        at, known = material.times.get(events[0], times)
        return Entry(
            item.get("value"),
            at if item.get("at") is None else to_micros(partial_moment(item["at"])),
            known,
            list(events),
            item.get("source") or "",
            item.get("status") or "inferred",
            how,
            " … ".join(item.get("evidence") or ()),
            material.speech.get(events[0], ""),
            least_trusted(material.origins.get(event, "own") for event in events),
        )

    def _decision(self, event: str, at: int, known: int, decision: Decision) -> None:
        if decision.field is None or (decision.policy is not None and decision.event is None):
            return
        sources = [event] if decision.event is None else [event, decision.event]
        value = None if decision.retract else decision.value
        entry = Entry(
            value, at, known, sources, "person", "decided", "decision", speaker=decision.by
        )
        key = tuple(decision.record_key or ())
        self._folded.facts.append(Fact(decision.type, key, decision.field, entry))

    def _merge(self) -> None:
        """Give the facts of records that are the same as another to that one, with their history.

        The old key of a record is no fact of the new one.
        """
        schema, material = self._schema, self._material
        found = [
            (decision.type, decision.same, list(decision.record_key or ()))
            for _, _, _, decision in material.decisions
            if decision.same is not None
        ]
        found += [
            (item["type"], item["same"], item["into"])
            for extraction, _, _ in material.extractions
            for item in extraction.records
            if item.get("op") == "merge"
        ]
        for type_, one, into in found:
            of_type = {**schema.merged.get(type_, {}), written_key(one): into}
            schema.merged = {**schema.merged, type_: of_type}
        if not schema.merged:
            return
        facts, self._folded.facts = self._folded.facts, []
        for fact in facts:
            key = tuple(merged_key(schema, fact.type, fact.key))
            of = schema.types.get(fact.type)
            if key == fact.key or of is None or fact.field not in (of.key or ()):
                self._folded.facts.append(msgspec.structs.replace(fact, key=key))

    def _facts_types(self) -> None:
        """Type the fields of keyed records by all values that they ever had."""
        by_type: defaultdict[str, list[Fact]] = defaultdict(list)
        for fact in self._folded.facts:
            by_type[fact.type].append(fact)
        for given, facts in by_type.items():
            type_ = type_of(self._schema, given, [])
            records = [{fact.field: fact.entry.value} for fact in facts]
            fold_records(type_, records, [fact.entry.events[0] for fact in facts])

    def _constraints(self) -> None:
        """Replace constraints by newer ones of the same id; note those that can't be compiled."""
        schema, folded = self._schema, self._folded
        found = {constraint.id: constraint for constraint in schema.constraints}
        for extraction, _, _ in self._material.extractions:
            for item in extraction.constraints:
                given = {name: value for name, value in item.items() if name != "events"}
                try:
                    new = read_constraint(given, schema, list(item.get("events") or ()))
                except InputError as error:
                    folded.problems.append(str(error))
                    folded.refused[str(item.get("id"))] = str(error)
                else:
                    found[new.id] = new
        for _, _, _, decision in self._material.decisions:
            if decision.rule is not None and decision.verdict is not None:
                schema.verdicts = {**schema.verdicts, decision.rule: decision.verdict}
        schema.constraints = [
            msgspec.structs.replace(one, verdict=schema.verdicts.get(rule_key(one), "proposed"))
            for one in found.values()
        ]


def written_key(key: Sequence[Any]) -> str:
    """Return a key as JSON, by which it is compared."""
    return msgspec.json.encode(list(key)).decode()


def merged_key(schema: StateSchema, type_: str, key: Sequence[Any]) -> list[Any]:
    """Return the key of the record that has the fields of this one now."""
    of_type, seen = schema.merged.get(type_, {}), set[str]()
    found: list[Any] = list(key)
    while (name := written_key(found)) in of_type and name not in seen:
        seen.add(name)
        found = of_type[name]
    return found


def partial_moment(text: str) -> Any:
    """Read a moment; a missing day or month counts as the first."""
    if len(text) == 4 and text.isdigit():
        text += "-01-01"
    elif len(text) == 7 and text[4] == "-":
        text += "-01"
    return moment(text)


def broken_constraints(schema: StateSchema) -> list[tuple[Constraint, str]]:
    """Return the constraints that name something the schema no longer has, and why."""
    broken = []
    for constraint in schema.constraints:
        try:
            check_constraint(constraint, schema)
        except InputError as error:
            broken.append((constraint, str(error)))
    return broken
