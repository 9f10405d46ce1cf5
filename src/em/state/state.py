"""State: what is true about a subject, as typed objects of the generated module.

A collection is loaded when it is first used, with the records of the state's own version. A state
of the past has the same classes, with the records that had happened by then. An `Origin` tells who
said a fact, when, in which words, and how em came to know it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import takewhile
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from em.errors import NotFound, StateError
from em.log.event import EventQuery, subject_stream
from em.state import rules
from em.state.code import policy_of, subject_module, write_module
from em.state.fold import UNREAD, fold, records_of, sort_events
from em.state.knowledge import Knowledge, Mentions, Unread, by_mention
from em.state.rows import RowBlock, rows_decoder
from em.state.rules import Alert, UserRule
from em.state.schema import (
    KIND,
    PROFILE,
    Constraint,
    Coverage,
    Entry,
    Extraction,
    FieldSchema,
    How,
    StateSchema,
    Status,
    TypeSchema,
)
from em.state.types import converter
from em.store.protocol import Record, Store
from em.traces.trace import Source, least_trusted
from em.values.canonical import Json, uncollected
from em.values.mismatch import closest
from em.values.times import Moment, from_micros, moment, now, to_micros

if TYPE_CHECKING:
    from em.state.checkpoint import Checkpoint


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fact or a record comes from.

    how: by a record, an agent, a model or a person's decision. confidence: decided, confirmed,
    stated or inferred. words: those that say it. at: since when it holds. unread: newer texts that
    nobody has read and that mention it. origin: the least trusted of the observations.
    """

    value: Any
    speaker: str
    words: str
    how: How
    confidence: Status
    at: datetime
    recorded_at: datetime
    event_ids: tuple[str, ...]
    source: str = ""
    unread: tuple[str, ...] = ()
    origin: Source = "own"


class Why:
    """Finds where facts and records come from: `why("profile.city")` or `why.profile.city`."""

    def __init__(
        self, find: Callable[[Any, Sequence[Any]], Origin | None], owner: str = ""
    ) -> None:
        self._find, self._owner = find, owner

    def __call__(self, what: Any, key: Sequence[Any] = ()) -> Origin | None:
        """Return where a fact or a record comes from; None for a field without a value.

        what: a field (`profile.city`, or `Person.city` with the key of the record), or a record.
        """
        return self._find(what, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._owner:
            return Why(self._find, name)
        try:
            return self._find(f"{self._owner}.{name}", ())
        except NotFound as error:
            raise AttributeError(str(error)) from None


def origin_of_entry(entry: Any, unread: Sequence[str] = ()) -> Origin:
    """Return the origin of a value of a single-valued field."""
    same = ("value", "speaker", "words", "how", "at", "recorded_at", "source", "origin")
    return Origin(
        **{name: getattr(entry, name) for name in same},
        confidence=entry.status,
        event_ids=tuple(entry.event_ids),
        unread=tuple(unread),
    )


def origin_of_record(store: Store, subject: str, value: Json, events: Sequence[str]) -> Origin:
    """Return the origin of a record, read from its events; a correction is the last of them."""
    found = {event.id: event for event in store.read(EventQuery(ids=list(events)))}
    first, last = found[events[0]], found[events[-1]]
    body = first.body or {}
    decider = (last.body or {}).get("by") if last.kind == "decided" else ""
    how: How = "decision" if last.kind == "decided" else "record"
    confidence: Status = "decided" if last.kind == "decided" else "stated"
    words = ""
    if "text" in body:
        read = [one for one in items_of(store, subject) if one[1]["events"][0] == last.id]
        # A text may state several records: the one with these values, read last.
        for reading, item in sorted(read, key=lambda one: one[1]["record"] == value):
            if item.get("op") != "same":
                how, confidence = reading.method, item.get("status") or "inferred"
                words = " … ".join(item.get("evidence") or ())
    return Origin(
        value=value,
        speaker=decider or body.get("speaker") or body.get("role") or "",
        words=words,
        how=how,
        confidence=confidence,
        at=first.at,
        recorded_at=last.recorded_at,
        event_ids=tuple(events),
        source=body.get("source") or "",
        origin=least_trusted((one.body or {}).get("origin", "own") for one in found.values()),
    )


def source_of(store: Store, event_ids: Collection[str]) -> Source:
    """Return the least trusted of the observations that something comes from."""
    found = store.read(EventQuery(ids=[*event_ids])) if event_ids else ()
    return least_trusted(["own", *((one.body or {}).get("origin") or "own" for one in found)])


def items_of(store: Store, subject: str) -> Iterator[tuple[Extraction, Json]]:
    """Yield the records that were read in texts, oldest first, each with its reading."""
    for event in store.read(EventQuery(stream=subject_stream(subject), kinds=("extracted",))):
        if event.body is not None:
            reading = msgspec.convert(event.body, Extraction)
            yield from ((reading, item) for item in reading.records)


Result = TypeVar("Result")


class Snapshot:
    """The records of one version, also when newer ones are stored.

    The store has those of the newest version. Older ones are folded again from the log, up to where
    that version had read it. The same log gives the same records, without what was forgotten.
    """

    def __init__(self, store: Store, schema: StateSchema, version: int) -> None:
        self._store, self._schema, self._version = store, schema, version
        self._folded: dict[str, list[Record]] | None = None

    def read(self, type_: str, use: Callable[[Iterator[Record]], Result]) -> Result:
        """Return what `use` makes of the records of a type, which is given by its class's name.

        Records are read first and the version after them: if it is still the newest one, they were
        its own. Else `use` gets those that are folded from the log.
        """
        if self._folded is None:
            try:
                found = use(self._store.records(self._schema.subject, type_))
            except Exception:
                if self._is_newest():
                    raise
            else:
                if self._is_newest():
                    return found
            self._folded = self._fold()
        return use(iter(self._folded.get(type_, ())))

    @property
    def is_folded(self) -> bool:
        """Whether the records come from the log, since newer ones are stored."""
        return self._folded is not None

    def _is_newest(self) -> bool:
        newest = self._store.artefact(KIND, self._schema.subject)
        return newest is None or newest.version == self._version

    def _fold(self) -> dict[str, list[Record]]:
        """Fold the log up to where this version had read it."""
        old = self._schema
        events = self._store.rows(EventQuery(stream=subject_stream(old.subject)))
        material = sort_events(takewhile(lambda row: row.pos <= old.watermark, events), 0)
        new = StateSchema(subject=old.subject, policies=dict(old.policies))
        keys = {
            type_.given: type_.key
            for type_ in old.types.values()
            if type_.key is not None and type_.given != PROFILE
        }
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for given, record in records_of(new, fold(new, material, keys), None):
            found[old.types[given].name if given in old.types else given].append(record)
        return found


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A field with contradicting values, and the one that was chosen.

    open: no value was chosen, a person must decide. policy: how it was chosen. event_ids: those of
    the chosen value; against: those of the others. entries: all values, oldest first.
    """

    field: str
    key: list[Any]
    value: Any
    policy: str
    open: bool
    event_ids: tuple[str, ...]
    against: tuple[str, ...]
    entries: list[Any]


_NO_TYPE = TypeSchema("", "", "")


class Unstructured(msgspec.Struct, frozen=True):
    """An observation that could not be structured, or only in part, and why."""

    event_id: str
    reason: str


class State:
    """A subject's state. `state.trips` are the records of Trip, `state.profile` single facts."""

    def __init__(
        self,
        store: Store,
        schema: StateSchema,
        version: int,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        user_rules: Sequence[UserRule] = (),
    ) -> None:
        self._store = store
        self.schema, self.version = schema, version
        self.subject = schema.subject
        self.as_of, self.known_at = as_of, known_at
        self._rules = user_rules
        self.report: Checkpoint | None = None
        self._types = {
            type_.collection: type_ for type_ in schema.types.values() if type_.given != PROFILE
        }
        self._loaded: dict[str, list[Any]] = {}
        self._snapshot = Snapshot(store, schema, version)

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{type_.count - type_.gone} {name}" if type_.key is None else name
            for name, type_ in self._types.items()
        )
        return f"<State of {self.subject!r}, version {self.version}: {counts or 'no records'}>"

    def is_same(self, other: "State") -> bool:
        """Tell whether another state has the same records, classes and rules."""
        mine = (self.version, self.as_of, self.known_at, self._rules, self.schema)
        return mine == (other.version, other.as_of, other.known_at, other._rules, other.schema)

    @cached_property
    def code(self) -> str:
        """The text of the generated module."""
        return write_module(self.schema)

    @cached_property
    def module(self) -> ModuleType:
        """The generated module, loaded: its classes, rules and arbitration."""
        self._store.database.refuse_code(f"the classes and rules of the state of {self.subject!r}")
        return subject_module(self.schema)

    @property
    def coverage(self) -> Coverage:
        """How many observations became records or facts."""
        return self.schema.coverage

    @property
    def collections(self) -> Mapping[str, TypeSchema]:
        """The types of the collections, by the collection's name."""
        return self._types

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._types])

    def __getattr__(self, name: str) -> list[Any]:
        types = self.__dict__.get("_types", {})
        plain = name.removesuffix("_")  # `state.rules_`: records, where State has `rules` itself
        if name in types or plain in types:
            return self.collection(name if name in types else plain)
        close = get_close_matches(name, [*types, "profile"], 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"the state has no collection {name!r}{hint}")

    def collection(self, name: str) -> list[Any]:
        """Return the records of a collection, also of one that is named like a part of State."""
        if name not in self._loaded:
            type_ = self._types[name]
            keyed = type_.key is not None
            with uncollected():
                self._loaded[name] = self._entities(type_) if keyed else self._records(type_)
        return self._loaded[name]

    @cached_property
    def profile(self) -> Any:
        """The current facts about the subject; `profile.history` has all values."""
        type_ = self.schema.types.get(PROFILE)
        found = [] if type_ is None else self._entities(type_)
        return found[0] if found else self.module.Profile()

    def _whole(self, type_: TypeSchema, records: Iterator[Record]) -> Iterator[Record]:
        """Pass the blocks of a type on; StateError if some are missing."""
        count = 0
        for record in records:
            count += 1
            yield record
        if count != type_.blocks and not self._snapshot.is_folded:
            raise StateError(
                f"expected {type_.blocks} blocks of {type_.name} records, found {count}: "
                "the state changed while it was read, or part of it was erased",
                place=f"state of {self.subject!r}",
                fix="load it again, or `em state checkpoint SUBJECT --rebuild`",
            )

    def _records(self, type_: TypeSchema) -> list[Any]:
        decode = rows_decoder(getattr(self.module, type_.name)).decode
        return self._read_blocks(type_, decode)

    def _read_blocks(self, type_: TypeSchema, decode: Callable[[str], list[Any]]) -> list[Any]:
        def read(records: Iterator[Record]) -> list[Any]:
            found: list[Any] = []
            for record in self._whole(type_, records):
                assert record.body is not None
                rows = decode(record.body["rows"])
                if self._is_past or record.body.get("gone"):
                    shown = self._in_view(record)
                    rows = [row for row, is_shown in zip(rows, shown, strict=True) if is_shown]
                found += rows
            return found

        return self._snapshot.read(type_.name, read)

    @property
    def _is_past(self) -> bool:
        return self.as_of is not None or self.known_at is not None

    def _in_view(self, record: Record) -> Iterator[bool]:
        block = msgspec.convert(record.body, RowBlock)
        for (at, known), gone in zip(block.times(), block.ends(), strict=True):
            yield self._is_in_view(at, known) and not self._is_gone(gone)

    def _is_gone(self, gone: str) -> bool:
        """Tell whether a record was corrected or taken back, as far as was known by `known_at`."""
        if not gone:
            return False
        return self.known_at is None or int(gone.rstrip("+")) <= to_micros(self.known_at)

    def _is_in_view(self, at: int, recorded_at: int) -> bool:
        """Tell whether something had happened by `as_of` and was recorded by `known_at`."""
        happened = self.as_of is None or at <= to_micros(self.as_of)
        return happened and (self.known_at is None or recorded_at <= to_micros(self.known_at))

    def rows(self, collection: str) -> list[Json]:
        """Return the records of a collection as plain rows, the form that the sandbox takes."""
        type_ = self._types[collection]
        if type_.key is not None:
            return [_row(one, self.module) for one in self.collection(collection)]
        return self._plain_rows(type_)

    def _plain_rows(self, type_: TypeSchema) -> list[Json]:
        return self._read_blocks(type_, msgspec.json.decode)

    def profile_row(self) -> Json:
        """Return the profile as a plain row."""
        return _row(self.profile, self.module)

    def _histories(self, type_: TypeSchema) -> Iterator[tuple[list[Any], dict[str, list[Entry]]]]:
        """Yield the key and the values of each record."""
        for record in self._snapshot.read(type_.name, list):
            assert record.body is not None
            facts = msgspec.convert(record.body["facts"], dict[str, list[Entry]])
            shown = {
                field: [entry for entry in entries if self._is_in_view(entry.at, entry.recorded_at)]
                for field, entries in facts.items()
            }
            if any(shown.values()):
                yield record.body["key"], {field: es for field, es in shown.items() if es}

    def _entities(self, type_: TypeSchema) -> list[Any]:
        class_ = getattr(self.module, type_.name)
        found = []
        for _, facts in self._histories(type_):
            row: Json = {}
            as_given: Json = {}
            events: list[str] = []
            history: dict[str, tuple[Any, ...]] = {}
            for given, entries in facts.items():
                field = type_.fields[given]
                history[field.name] = tuple(self._by_time(entries))
                chosen = self._settled(type_, field.name, history[field.name])
                if chosen is None:
                    continue
                events += chosen.event_ids
                convert = converter(field)
                value, exact = (chosen.value, True) if convert is None else convert(chosen.value)
                if value is not None:
                    row[field.name] = value
                if not exact or value is None:
                    as_given[given] = chosen.value
            row["event_ids"], row["as_given"] = list(dict.fromkeys(events)), as_given
            one = msgspec.convert(row, class_)
            object.__setattr__(one, "history", history)
            found.append(one)
        return found

    def _by_time(self, entries: Iterable[Entry]) -> list[Any]:
        """Return the values of a field as the module has them, oldest first."""
        return sorted(map(self._entry, entries), key=lambda entry: (entry.at, entry.recorded_at))

    def _entry(self, entry: Entry) -> Any:
        fields = msgspec.structs.asdict(entry)
        fields["event_ids"] = tuple(fields.pop("events"))
        times = {name: from_micros(fields[name]) for name in ("at", "recorded_at")}
        return self.module.Entry(**{**fields, **times})

    def _settled(self, type_: TypeSchema, field: str, entries: Sequence[Any]) -> Any:
        return self.module.SETTLE[type_.name][field](entries)

    def history(self, field: str) -> list[tuple[list[Any], Any]]:
        """Return all values of a field with the keys of their records, oldest first."""
        type_, wanted = self.find_field(field)
        found = []
        for key, facts in self._histories(type_):
            for given, entries in facts.items():
                if given == wanted.given:
                    found += [(key, one) for one in self._by_time(entries)]
        return found

    @property
    def why(self) -> Why:
        """Where facts and records come from: `why("profile.city")`, or `why.profile.city`."""
        return Why(self._why)

    def _why(self, what: Any, key: Sequence[Any]) -> Origin | None:
        if not isinstance(what, str):
            value = self.as_record(what)
            found = origin_of_record(self._store, self.subject, value, what.event_ids)
            mentions = Mentions()
            mentions.add_record("", value, to_micros(found.at))
            unread = [one.event_id for one in mentions.texts(self._store, self._unread_ids)]
            return msgspec.structs.replace(found, unread=tuple(unread))
        type_, field = self.find_field(what)
        name = field.name
        entries = [entry for known, entry in self.history(what) if list(known) == list(key)]
        chosen = self._settled(type_, name, entries) if entries else None
        if chosen is None:
            return None
        return origin_of_entry(chosen, self._unread_of(type_, name, chosen, key))

    def _unread_of(
        self, type_: TypeSchema, name: str, chosen: Any, key: Sequence[Any]
    ) -> Sequence[str]:
        """Return the texts that mention a field of the profile, or a record by its key or value."""
        if type_.given == PROFILE:
            return self._mentioned.get(f"profile.{name}", ())
        mentions = Mentions()
        for said in (chosen.value, *key):
            mentions.add("", said, to_micros(chosen.at))
        return [one.event_id for one in mentions.texts(self._store, self._unread_ids)]

    def field_origins(self, type_: TypeSchema, key: Sequence[Any] = ()) -> dict[str, Origin]:
        """Return where each value of one record with a key comes from, by the field's name.

        The profile is the record with an empty key. This reads the records once, not per field.
        """
        found: dict[str, Origin] = {}
        for known, facts in self._histories(type_):
            if list(known) != list(key):
                continue
            for given, entries in facts.items():
                name = type_.fields[given].name
                chosen = self._settled(type_, name, self._by_time(entries))
                if chosen is not None and chosen.value is not None:
                    unread = self._unread_of(type_, name, chosen, key)
                    found[name] = origin_of_entry(chosen, unread)
        return found

    def events_of_profile(self, names: Collection[str]) -> list[str]:
        """Return the events of the profile's values that code names; of all, if it names none."""
        type_ = self.schema.types.get(PROFILE)
        if type_ is None or "profile" not in names:
            return []
        origins = self.field_origins(type_)
        named = [origins[name] for name in origins.keys() & names] or origins.values()
        return [event for one in named for event in one.event_ids]

    @cached_property
    def _unread_ids(self) -> list[str]:
        return [one.event_id for one in self.unstructured if one.reason == UNREAD]

    @cached_property
    def unread(self) -> list[Unread]:
        """The texts that nobody has read and that mention a stored value, its field or a type."""
        return self._unread(self.schema.types.values())

    def _unread(self, types: Iterable[TypeSchema]) -> list[Unread]:
        if not self._unread_ids:
            return []
        only = msgspec.structs.replace(self.schema, types={one.given: one for one in types})
        return list(Mentions.of_state(only, self._store).texts(self._store, self._unread_ids))

    @cached_property
    def _mentioned(self) -> Mapping[str, tuple[str, ...]]:
        return by_mention(self.unread)

    def unread_in(self, names: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return what code uses, by the names in it, and newer unread texts mention, with these."""
        owners = {one.collection: one for one in self.schema.types.values()}
        profile = self.schema.types.get(PROFILE)
        owners |= {} if profile is None else {"profile": profile}
        found = by_mention(self._unread([one for name, one in owners.items() if name in names]))
        return {
            name: events
            for name, events in found.items()
            if all(part in names for part in name.split("."))
        }

    def source_of(self, event_ids: Collection[str]) -> Source:
        """Return the least trusted of the observations that something comes from."""
        return source_of(self._store, event_ids)

    def sources(self) -> dict[str, Source]:
        """Return what does not come from this process alone: facts, and collections by name."""
        found = {}
        if PROFILE in self.schema.types:
            known = self.field_origins(self.schema.types[PROFILE])
            found = {f"profile.{name}": one.origin for name, one in known.items()}
        for name in self.collections:
            events = {event for one in self.collection(name) for event in one.event_ids}
            found[name] = self.source_of(events)
        return {name: source for name, source in found.items() if source != "own"}

    def origins(self, what: str, key: Sequence[Any] = ()) -> list[Origin]:
        """Return the origin of a field's value, or those of the records of an event.

        what: as for `why`, or the id of an event. A field without a value has none.
        """
        try:
            found = self.why(what, key)
        except NotFound:
            keyless = [name for name, type_ in self._types.items() if type_.key is None]
            records = [one for name in keyless for one in self.collection(name)]
            origins = [self.why(one) for one in records if what in one.event_ids]
            if not origins:
                raise
            return [one for one in origins if one is not None]
        return [] if found is None else [found]

    def inferred(self, record: Any) -> bool:
        """Tell whether a record was inferred from a text, not stated."""
        return record.event_ids[-1] in self._inferred

    @cached_property
    def _inferred(self) -> frozenset[str]:
        return frozenset(
            event
            for _, item in items_of(self._store, self.subject)
            for event in item["events"]
            if item.get("status", "inferred") == "inferred"
        )

    def place(self, record: Any) -> str:
        """Return the place of a record without a key, by which a correction finds it.

        record: one of this state, or the id of the event that it came from.
        """
        known = Knowledge(self.schema, {})
        known.stored(self._store)
        found = []
        for name, type_ in self._types.items():
            if type_.key is None:
                places = [one.place for one in known.records if one.type == type_.given]
                own = self.collection(name)
                if len(own) != len(places):
                    raise StateError(
                        "the state changed while it was read",
                        place=f"state of {self.subject!r}",
                        fix="load it again with memory.state, and take the record from there",
                    )
                for place, one in zip(places, own, strict=True):
                    if one is record or record in one.event_ids:
                        found.append(place)
        if len(found) != 1:
            raise NotFound(
                f"expected one record without a key from {record!r:.80}, found {len(found)}",
                place="record",
                fix="give a record of the current state, such as state.trips[0]",
            )
        return found[0]

    def find_field(self, field: str) -> tuple[TypeSchema, FieldSchema]:
        """Find the type and the field that `profile.city`, `Profile.city` or `city` names."""
        for type_ in self.schema.types.values():
            if type_.key is None:
                continue
            owners = {type_.name.lower(), type_.collection, type_.given.lower()}
            for known in type_.fields.values():
                for name in (known.name, known.given):
                    owner = field.removesuffix(f".{name}")
                    is_own = field == name and type_.given == PROFILE
                    if is_own or (owner != field and owner.lower() in owners):
                        return type_, known
        known_names = [one.name for one in self.schema.types.get(PROFILE, _NO_TYPE).fields.values()]
        raise NotFound(
            f"no single-valued field {field!r}",
            place="field",
            fix=closest(field.removeprefix("profile."), known_names)
            or "write Profile.city or city; `em state code SUBJECT` shows the fields",
        )

    def conflicts(self) -> list[Conflict]:
        """Return the fields with contradicting values, those that wait for a person first."""
        found: list[Conflict] = []
        for type_ in self.schema.types.values():
            if type_.key is None:
                continue
            for key, facts in self._histories(type_):
                for given, entries in facts.items():
                    found += self._conflict(type_, given, key, entries)
        return sorted(found, key=lambda one: (not one.open, one.field, str(one.key)))

    def _conflict(
        self, type_: TypeSchema, given: str, key: list[Any], entries: list[Entry]
    ) -> Iterator[Conflict]:
        if all(entry.value == entries[0].value for entry in entries):
            return
        field = type_.fields[given]
        by_time = self._by_time(entries)
        chosen = self._settled(type_, field.name, by_time)
        policy = policy_of(self.schema, type_, field)
        value = None if chosen is None else chosen.value
        against = [one for one in by_time if chosen is None or one.value != value]
        yield Conflict(
            field=f"{type_.name}.{field.name}",
            key=key,
            value=value,
            policy=policy.name + (f" ({', '.join(policy.order)})" if policy.order else ""),
            open=chosen is None,
            event_ids=() if chosen is None else chosen.event_ids,
            against=tuple(dict.fromkeys(e for one in against for e in one.event_ids)),
            entries=by_time,
        )

    @cached_property
    def unstructured(self) -> list[Unstructured]:
        """The observations that could not be structured, or only in part. Recall finds them."""
        return [
            Unstructured(row["event_ids"][0], row["as_given"]["reason"])
            for row in self._plain_rows(self.schema.unstructured)
        ]

    def as_record(self, record: Any) -> Any:
        """Return a record as it was given."""
        return self.module.as_record(record)

    @cached_property
    def view(self) -> "Records":
        """The collections by their plain names, also where State has an attribute of that name."""
        return Records(self)

    @property
    def rules(self) -> list[Constraint]:
        """The rules that a model derived, with a person's verdict, the worst first."""
        return sorted(self.schema.constraints, key=lambda one: (rules.RANKS[one.severity], one.id))

    @property
    def actions(self) -> list[str]:
        """The actions that have rules. For other actions `check` returns nothing."""
        every = [*self.module.RULES, *self._rules]
        return sorted({one.action for one in every if one.action is not None})

    def check(self, action: str, /, **details: Any) -> list[Alert]:
        """Return the rules that fire before an action, the worst first, with their evidence."""
        return rules.check(self, self._rules, action, details, self.as_of or now())

    def alerts(self, now_: Moment | None = None) -> list[Alert]:
        """Return what is due: deadlines, active windows, and what the user's alerts find."""
        at = (self.as_of or now()) if now_ is None else moment(now_)
        return rules.check(self, self._rules, None, {}, at)


class Records:
    """The collections and the profile of a state, by their names: what compiled rules see."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return self._state.profile if name == "profile" else self._state.collection(name)


def _row(record: Any, module: ModuleType) -> Json:
    """Return a typed record as the row that its class reads."""
    row: Json = msgspec.to_builtins(record)
    row.pop("history", None)
    return {name: value for name, value in row.items() if value is not None}
