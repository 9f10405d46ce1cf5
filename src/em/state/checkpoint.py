"""Checkpoint: compile a subject's new events into its state, prove the result, and write it.

The artefact, the records and what a model read in texts are one commit. It is refused if the
subject's stream has moved on since it was read; then the checkpoint compiles again. Versions are
compared: a change that would break a stored question or a rule holds the new one.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from em.errors import NotFound, PositionConflict, StateHeld
from em.llm.client import LlmClient
from em.log.event import Draft, EventQuery, subject_stream
from em.state.fold import (
    UNACCEPTED,
    Folded,
    FoldInput,
    broken_constraints,
    fold,
    records_of,
    sort_events,
)
from em.state.knowledge import Knowledge
from em.state.reader import Second, read_by_model, read_given
from em.state.rows import prove
from em.state.rules import Dependent
from em.state.schema import (
    FORMAT,
    KIND,
    Coverage,
    Extraction,
    FieldSchema,
    StateSchema,
    TypeSchema,
)
from em.state.types import Typed, fits, resolve
from em.store.protocol import Artefact, ArtefactDraft, Commit, Committed, Record, Store
from em.values.canonical import Json, uncollected
from em.values.times import now_micros

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


ATTEMPTS = 20


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Report of a checkpoint. `version` is the state's, the same as before if nothing was new.

    proposed: ids of the rules that a model derived and nobody has accepted or rejected.
    """

    subject: str
    version: int
    new_events: int
    coverage: Coverage
    changes: list[Change] = []
    problems: list[str] = []
    rebuilt: bool = False
    accepted: list[Break] = []
    proposed: list[str] = []


class CheckpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to checkpoint.

    keys: the key fields of types for which the log has no decision.
    dependents: finds what uses the state; called only when a change could break something.
    accept: also write a state that breaks dependents.
    second_question: which facts the model is asked about once more (see `StateSettings`).
    again: read texts again that no model has read successfully. rebuild: compile the whole log.
    """

    client: LlmClient | None = None
    keys: Mapping[str, list[str]] = {}
    dependents: Callable[[], Sequence[Dependent]] = lambda: ()
    accept: bool = False
    second_question: Second = "all"
    again: bool = False
    rebuild: bool = False


def load_schema(store: Store, subject: str, version: int | None = None) -> tuple[StateSchema, int]:
    """Load the schema of a state and its version; NotFound if there is none in this format."""
    return schema_in(store.artefact(KIND, subject, version), subject, version)


def schema_in(
    artefact: Artefact | None, subject: str, version: int | None = None
) -> tuple[StateSchema, int]:
    """Read the schema in a state's artefact, and its version; NotFound if it has none."""
    if artefact is None or artefact.body is None or artefact.body.get("format") != FORMAT:
        which = "" if version is None else f", version {version}"
        raise NotFound(
            f"no state of {subject!r}{which}",
            place="subject",
            fix="compile it: `em state checkpoint SUBJECT`",
        )
    return msgspec.convert(artefact.body, StateSchema), artefact.version


class NewState(msgspec.Struct, frozen=True):
    """A state that was compiled and proved.

    commit: what is still to be written; None if nothing is new, or once it is written.
    """

    schema: StateSchema
    report: Checkpoint
    commit: Commit | None = None

    def written(self, committed: Committed) -> "NewState":
        """Return the state as written, with the version it got."""
        schema, version = schema_in(committed.artefacts[0], self.report.subject)
        return NewState(schema, msgspec.structs.replace(self.report, version=version))


def checkpoint(store: Store, subject: str, options: CheckpointOptions | None = None) -> NewState:
    """Compile what is new and write it, again while new events arrive in between."""
    run = CheckpointRun(store, subject, options or CheckpointOptions())
    with uncollected():
        for number in range(1, ATTEMPTS):
            try:
                return run.attempt()
            except PositionConflict:
                # Back off so that constant writers can't starve a checkpoint.
                time.sleep(random.uniform(0, 0.005 * number))  # noqa: S311 - a delay needs no secure randomness
        return run.attempt()


class CheckpointRun:
    """One checkpoint over several attempts, which read no text twice."""

    def __init__(self, store: Store, subject: str, options: CheckpointOptions) -> None:
        self._store, self._subject, self._options = store, subject, options
        self._stream = subject_stream(subject)
        self._read: list[Extraction] = []
        self._problems: list[str] = []

    def attempt(self) -> NewState:
        """Compile and write; PositionConflict if events arrived in between."""
        compiled = self.compile()
        if compiled.commit is None:
            return compiled
        return compiled.written(self._store.commit(compiled.commit))

    def compile(self) -> NewState:
        """Compile what is new, and prove it."""
        old, version = self._newest()
        fresh = self._options.rebuild or self._options.again or old.watermark == 0
        material = self._material(old, fresh=fresh)
        if not fresh and (material.erased or material.undoes or material.corrects):
            fresh, material = True, self._material(old, fresh=True)
        unknown = material.handed.keys() - material.times.keys()
        if not fresh and (unknown or material.accepted.keys() - material.times.keys()):
            # About older observations.
            fresh, material = True, self._material(old, fresh=True)
            unknown = material.handed.keys() - material.times.keys()
        self._problems = [
            f"what was read in {one} left out: no text has this id" for one in unknown
        ] + [f"{one} left out: {UNACCEPTED}" for one in material.waiting]
        if not fresh and material.last_pos <= old.watermark:
            report = Checkpoint(
                subject=self._subject,
                version=version,
                new_events=0,
                coverage=old.coverage,
                proposed=_proposed(old),
            )
            return NewState(old, report)
        if material.last_pos == 0:
            raise NotFound(
                f"nothing was observed about {self._subject!r}",
                place="subject",
                fix="observe something first: `em observe SUBJECT TEXT`",
            )
        drafts = self._extract(material, old, fresh=fresh)
        new, folded = self._folded(old, material, fresh=fresh)
        if not fresh and (material.corrects or not _grows(old, new)):
            fresh, material = True, self._material(old, fresh=True)
            self._reuse(material)
            new, folded = self._folded(old, material, fresh=True)
        return self._compiled(old, new, folded, material, drafts, fresh=fresh)

    def _newest(self) -> tuple[StateSchema, int]:
        try:
            return load_schema(self._store, self._subject)
        except NotFound:
            return StateSchema(subject=self._subject), 0

    def _material(self, old: StateSchema, *, fresh: bool) -> FoldInput:
        after = 0 if fresh else old.watermark_seq
        events = self._store.rows(EventQuery(stream=self._stream, after=after))
        return sort_events(events, 0 if fresh else old.watermark, again=self._options.again)

    def _reuse(self, material: FoldInput) -> None:
        """Add what this run has read already, which is not in the log yet."""
        now = now_micros()
        texts = {text.event for text in material.texts}
        known = [found for found in self._read if texts.intersection(found.from_events)]
        material.extractions += [(found, now, now) for found in known]
        read = {event for found in known for event in found.from_events}
        material.texts = [text for text in material.texts if text.event not in read]

    def _extract(self, material: FoldInput, old: StateSchema, *, fresh: bool) -> list[Draft]:
        self._reuse(material)
        if material.texts:
            for one in self._readings(material, old, fresh=fresh):
                self._problems += [*one.left_out, *([one.failed] if one.failed else ())]
                for part in _split(one):
                    # As the log will redact it: a state must not contain more than the log.
                    clean = self._store.redactor.value(msgspec.to_builtins(part))
                    self._read.append(msgspec.convert(clean, Extraction))
            self._reuse(material)
        return [
            Draft(
                stream=self._stream,
                kind="extracted",
                body=msgspec.to_builtins(found),
                subject=self._subject,
            )
            for found in self._read
        ]

    def _readings(self, material: FoldInput, old: StateSchema, *, fresh: bool) -> list[Extraction]:
        """Return what was read: by the callers that handed texts in, the rest by the model."""
        base = StateSchema(subject=self._subject) if fresh else _copy(old)
        known = Knowledge(base, self._options.keys)
        if not fresh:
            known.stored(self._store)
        known.add(material)
        client, second = self._options.client, self._options.second_question
        given = [text for text in material.texts if text.is_read]
        found = [read_given(text, material, known, client, second) for text in given]
        left = [text for text in material.texts if not text.is_read]
        if client is not None and left:
            found += read_by_model(left, material, known, client, second=second)
        return found

    def _folded(
        self, old: StateSchema, material: FoldInput, *, fresh: bool
    ) -> tuple[StateSchema, Folded]:
        base = StateSchema(subject=self._subject) if fresh else _copy(old)
        if fresh:
            for _, _, _, decision in material.decisions:
                if decision.policy is not None and decision.field is not None:
                    base.policies[f"{decision.type}.{decision.field}"] = decision.policy
        return base, fold(base, material, dict(self._options.keys))

    def _compiled(
        self,
        old: StateSchema,
        new: StateSchema,
        folded: Folded,
        material: FoldInput,
        drafts: list[Draft],
        *,
        fresh: bool,
    ) -> NewState:
        accepted = self._check_breaks(old, new, folded.refused)
        records = [one for _, one in records_of(new, folded, None if fresh else self._store)]
        self._store.database.refuse_code(f"the classes of the state of {self._subject!r}")
        prove(new, records)
        new.watermark = material.last_pos + len(drafts)
        new.watermark_seq = material.last_seq
        if fresh:
            records += self._gone(records)
        draft = ArtefactDraft(
            kind=KIND,
            name=self._subject,
            body=msgspec.to_builtins(new),
            from_events=sorted(sources(new)),
            from_log=True,
        )
        commit = Commit(
            events=drafts,
            artefacts=[draft],
            records=records,
            expected_pos={self._stream: material.last_pos},
        )
        report = Checkpoint(
            subject=self._subject,
            version=0,
            new_events=material.last_pos - (0 if fresh else old.watermark),
            coverage=new.coverage,
            changes=compare(old, new),
            problems=[*self._problems, *folded.problems],
            rebuilt=fresh and old.watermark > 0,
            accepted=accepted,
            proposed=_proposed(new),
        )
        return NewState(new, report, commit)

    def _check_breaks(
        self, old: StateSchema, new: StateSchema, refused: Mapping[str, str]
    ) -> list[Break]:
        """Refuse a state that breaks something, unless that is accepted; then drop broken rules."""
        broken = broken_constraints(new)
        breaking = [change for change in compare(old, new) if change.breaking]
        found = breaks(breaking, self._options.dependents()) if breaking else []
        found += [Break(f"rule {constraint.id}", why) for constraint, why in broken]
        left = {constraint.id for constraint in new.constraints}
        found += [
            Break(f"rule {constraint.id}", refused[constraint.id])
            for constraint in old.constraints
            if constraint.id in refused and constraint.id not in left
        ]
        if found and not self._options.accept:
            raise StateHeld(
                f"the new state would break {found[0].what}"
                + (f" and {len(found) - 1} more" if len(found) > 1 else ""),
                place=f"state of {self._subject!r}",
                fix="see `breaks`; to accept them: `em state checkpoint SUBJECT --accept`",
                breaks=[msgspec.to_builtins(one) for one in found],
            )
        gone = {constraint.id for constraint, _ in broken}
        new.constraints = [one for one in new.constraints if one.id not in gone]
        return found

    def _gone(self, records: Sequence[Record]) -> list[Record]:
        """Delete the stored records that are not among these."""
        new = {(record.type, record.id) for record in records}
        return [
            Record(subject=self._subject, type=record.type, id=record.id, body=None)
            for record in self._store.records(self._subject)
            if (record.type, record.id) not in new
        ]


def _proposed(schema: StateSchema) -> list[str]:
    return sorted(one.id for one in schema.constraints if one.verdict == "proposed")


def _grows(old: StateSchema, new: StateSchema) -> bool:
    """Tell whether records written for the old schema are still right under the new one."""
    return all(fits(type_, new.types[given]) for given, type_ in old.types.items())


def _copy(schema: StateSchema) -> StateSchema:
    return msgspec.convert(msgspec.to_builtins(schema), StateSchema)


def _split(found: Extraction) -> list[Extraction]:
    """Split a reading into one for each text, so that forgetting a text leaves the others.

    Texts that share an item stay together.
    """
    if len(found.from_events) == 1:
        return [found]
    items = [*found.records, *found.facts, *found.constraints]
    spanned = {event for item in items if len(item["events"]) > 1 for event in item["events"]}
    if spanned.issuperset(found.from_events):
        return [found]
    groups = [[event] for event in found.from_events if event not in spanned]
    if spanned:
        groups.append([event for event in found.from_events if event in spanned])
    return [_part(found, set(group), group) for group in groups]


def _part(found: Extraction, chosen: set[str], events: list[str]) -> Extraction:
    def own(items: list[Json]) -> list[Json]:
        return [item for item in items if chosen.issuperset(item["events"])]

    return msgspec.structs.replace(
        found,
        from_events=events,
        records=own(found.records),
        facts=own(found.facts),
        constraints=own(found.constraints),
    )


def sources(schema: StateSchema) -> set[str]:
    """Return the events that the schema quotes: in examples, literals and rules."""
    found = {event for constraint in schema.constraints for event in constraint.events}
    todo: list[FieldSchema | TypeSchema] = list(schema.types.values())
    while todo:
        part = todo.pop()
        if isinstance(part, TypeSchema):
            todo += part.fields.values()
            continue
        found.update(example.event for example in (*part.examples, *part.odd))
        found.update((part.values or {}).values())
        todo += [below for below in (part.items, part.nested) if below is not None]
    return found
