"""The states of a store's subjects: checkpoint them, load them, ask questions, record decisions.

Memory delegates to `Subjects`. Many subjects are compiled on all cores, and written in portions.
"""

import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import msgspec

from em.errors import EmError, InputError, NotFound, PositionConflict, UsageError
from em.llm.client import LlmClient
from em.log.event import MAX_NAME, SUBJECT_PREFIX, Draft, EventQuery, subject_stream
from em.settings import StateSettings
from em.state import decisions
from em.state.checkpoint import (
    ATTEMPTS,
    Change,
    Checkpoint,
    CheckpointOptions,
    CheckpointRun,
    NewState,
    checkpoint,
    compare,
    load_schema,
    schema_in,
)
from em.state.questions import Answer, Asker, run_own_code
from em.state.rules import Dependent, UserRule, dependents, load_rules
from em.state.schema import (
    KIND,
    PROFILE,
    Decision,
    Question,
    Verdict,
)
from em.state.state import State
from em.store import open_store
from em.store.protocol import Artefact, ArtefactDraft, Commit, Passage, Store
from em.values.canonical import Json, uncollected
from em.values.times import Moment, moment, new_id, parse_duration

QUESTIONS = "questions"
MAX_QUESTIONS = 200
"""How many questions are stored for a subject; the oldest are dropped first."""
Recall = Callable[[str, str, datetime | None], Sequence[Passage]]
"""Search for a question about a subject, up to a moment; returns passages."""


class Cadence:
    """Decides when a checkpoint is due: after a number of events, or a time."""

    def __init__(self, every: int | str | None) -> None:
        self._events, self._seconds = _every(every)
        self._last: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        """Tell whether checkpoints are ever due."""
        return bool(self._events or self._seconds)

    def is_due(self, subject: str, pos: int, watermark: Callable[[str], int]) -> bool:
        """Tell whether a subject is due, whose stream now ends at `pos`."""
        with self._lock:
            if subject not in self._last:
                self._last[subject] = (watermark(subject), time.monotonic())
            last, at = self._last[subject]
        if self._events:
            return pos - last >= self._events
        return pos > last and time.monotonic() - at >= (self._seconds or 0)

    def done(self, subject: str, watermark: int) -> None:
        """Note that a subject was checkpointed."""
        with self._lock:
            self._last[subject] = (watermark, time.monotonic())


def _every(given: int | str | None) -> tuple[int | None, float | None]:
    if given is None:
        return None, None
    text = str(given).strip()
    if text.isdecimal() and len(text) < 10 and (events := int(text)):
        return events, None
    expected = "a number of events (500) or a duration (10m)"
    every = parse_duration(text, "checkpoint_every", expected=expected, error=UsageError)
    if not every:
        raise UsageError(f"checkpoint_every must be above zero, got {text!r}")
    return None, every.total_seconds()


P = ParamSpec("P")


def _recorded(
    make: Callable[Concatenate[State, P], Draft],
) -> "Callable[Concatenate[Subjects, str, P], str]":
    """Return a method that commits an event made from a subject's state as it is now."""

    @wraps(make)
    def record(subjects: "Subjects", subject: str, /, *given: P.args, **how: P.kwargs) -> str:
        def change() -> Commit:
            return Commit(events=[make(subjects.state(subject), *given, **how)])

        return subjects.decide(subject, change)

    return record


class Subjects:
    """The states of a store."""

    def __init__(
        self,
        store: Store,
        settings: StateSettings,
        *,
        recall: Recall = lambda _text, _subject, _until: (),
        client: LlmClient | None = None,
    ) -> None:
        self._store, self.settings, self.client = store, settings, client
        self._recall = recall
        self.rules: list[UserRule] = load_rules(settings.rules) if settings.rules else []
        self._cadence = Cadence(settings.checkpoint_every)

    def checkpoint(self, subject: str, **how: Any) -> Checkpoint:
        """Compile what is new about a subject; return the report.

        how: as for `Memory.checkpoint`: client, accept, again, rebuild.
        """
        return self._checkpoint(subject, self._options(subject, **how)).report

    def checkpoint_state(self, subject: str, **how: Any) -> State:
        """Compile what is new about a subject; return its state with the report."""
        compiled = self._checkpoint(subject, self._options(subject, **how))
        state = State(self._store, compiled.schema, compiled.report.version, user_rules=self.rules)
        state.report = compiled.report
        return state

    def compile(self, subject: str, **how: Any) -> NewState:
        """Compile what is new about a subject without writing it; `write` writes it."""
        with uncollected():
            return CheckpointRun(self._store, subject, self._options(subject, **how)).compile()

    def write(self, compiled: Sequence[NewState]) -> None:
        """Write compiled states in one transaction.

        Raises PositionConflict if one of the subjects has new events since it was compiled.
        """
        self._store.commit_all([one.commit for one in compiled if one.commit is not None])
        for one in compiled:
            self._drop_broken(one.report)

    def _options(
        self, subject: str, client: LlmClient | None = None, **how: bool
    ) -> CheckpointOptions:
        return CheckpointOptions(
            client=client or self.client,
            keys=self.settings.keys,
            second_question=self.settings.second_question,
            dependents=lambda: [*dependents(self.rules), *self._questions_used(subject)],
            **how,
        )

    def _checkpoint(self, subject: str, options: CheckpointOptions) -> NewState:
        compiled = checkpoint(self._store, subject, options)
        self._drop_broken(compiled.report)
        return compiled

    def _drop_broken(self, report: Checkpoint) -> None:
        if report.accepted:
            self._drop_questions(report.subject, {one.what for one in report.accepted})

    def state(
        self,
        subject: str,
        *,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        version: int | None = None,
    ) -> State:
        """Load the state as last compiled. If part of it was forgotten, rebuild it first."""
        artefact = self._store.artefact(KIND, subject, version)
        if version is None and artefact is not None and self._is_outdated(artefact):
            options = self._options(subject, accept=True, rebuild=True)
            compiled = self._checkpoint(subject, options)
            schema, number = compiled.schema, compiled.report.version
        else:
            schema, number = schema_in(artefact, subject, version)
        return State(
            self._store,
            schema,
            number,
            as_of=None if as_of is None else moment(as_of, "as_of"),
            known_at=None if known_at is None else moment(known_at, "known_at"),
            user_rules=self.rules,
        )

    def _is_outdated(self, artefact: Artefact) -> bool:
        """Tell whether part of a state was erased since it was compiled."""
        if artefact.body is None:
            return True
        query = EventQuery(
            stream=subject_stream(artefact.name),
            kinds=("erased",),
            after=int(artefact.body.get("watermark_seq", 0)),
            limit=1,
        )
        return next(iter(self._store.read(query)), None) is not None

    def has_state(self, subject: str) -> bool:
        """Tell whether a state of this subject was ever compiled."""
        return self._store.artefact(KIND, subject) is not None

    def look_up(self, subject: str, path: str) -> tuple[Any, list[str]]:
        """Return a value of a state by its path, and the events that it came from.

        path: a collection (`trips`, `trips.0.city`) or the profile (`profile.city`). The value is
        None where the subject has no state, or the state no such path.
        """
        if not self.has_state(subject):
            return None, []
        first, *rest = path.split(".")
        state = self.state(subject)
        rows: list[Any] = []
        found: Any = None
        if first == "profile":
            rows = [state.profile_row()]
            found = _plain_row(rows[0])
        elif first in state.collections:
            rows = state.rows(first)
            found = [_plain_row(row) for row in rows]
        if rest[1:] == ["why"]:
            why = state.why(".".join((first, rest[0]))) if rest[0] in (found or ()) else None
            found, rest = msgspec.to_builtins(why), []
        for part in rest:
            found = _part(found, part)
        return found, [one for row in rows for one in row.get("event_ids") or ()]

    def versions(self, subject: str) -> list[tuple[int, str, int]]:
        """List the versions: number, time of creation, and number of observations."""
        found = []
        for artefact in self._store.artefacts(KIND, subject):
            seen = 0 if artefact.body is None else artefact.body["coverage"]["observations"]
            found.append((artefact.version, artefact.created_at.isoformat(), seen))
        return found

    def diff(self, subject: str, old: int | None = None, new: int | None = None) -> list[Change]:
        """List the changes between two versions, by default the last two."""
        after, number = load_schema(self._store, subject, new)
        before = number - 1 if old is None else old
        if before < 1:
            return []
        return compare(load_schema(self._store, subject, before)[0], after)

    def ask(
        self,
        subject: str,
        question: str | None = None,
        *,
        code: str | None = None,
        client: LlmClient | None = None,
        as_of: Moment | None = None,
    ) -> Answer:
        """Answer a question in words, or run the caller's own code."""
        if (question is None) == (code is None):
            raise UsageError("ask needs either a question or code", place="question")
        state = self.state(subject, as_of=as_of)
        if code is not None:
            return run_own_code(state, code)
        assert question is not None
        asker = Asker(
            state,
            lambda text: self._recall(text, subject, state.as_of),
            client=client or self.client,
            stored=self.questions(subject),
            store=lambda answered: self._store_question(subject, answered),
        )
        return asker.ask(question)

    def questions(self, subject: str) -> list[Question]:
        """Return the stored questions about a subject, with their code."""
        artefact = self._store.artefact(QUESTIONS, subject)
        if artefact is None or artefact.body is None:
            return []
        return msgspec.convert(artefact.body["questions"], list[Question])

    def _questions_used(self, subject: str) -> list[Dependent]:
        return [
            Dependent(f"question {one.question[:80]!r}", frozenset(one.uses))
            for one in self.questions(subject)
        ]

    def _store_question(self, subject: str, question: Question) -> None:
        """Store a question with its code: as an event, and in the artefact of questions."""

        def change() -> Commit:
            event = Draft(
                stream=subject_stream(subject),
                kind="question",
                body=msgspec.to_builtins(question),
                subject=subject,
                id=new_id(),
            )
            others = [one for one in self.questions(subject) if one.template != question.template]
            return self._questions_commit(subject, [*others, question][-MAX_QUESTIONS:], [event])

        self.decide(subject, change)

    def _questions_commit(
        self, subject: str, stored: list[Question], events: list[Draft]
    ) -> Commit:
        artefact = self._store.artefact(QUESTIONS, subject)
        known = () if artefact is None or artefact.body is None else artefact.from_events
        draft = ArtefactDraft(
            kind=QUESTIONS,
            name=subject,
            body={"questions": msgspec.to_builtins(stored)},
            from_events=[*known, *(str(event.id) for event in events)],
        )
        return Commit(events=events, artefacts=[draft])

    def decide(self, subject: str, change: Callable[[], Commit]) -> str:
        """Commit a change that was made on what is stored now; return its first event's id.

        If the subject's stream moved meanwhile, the change is made again on the new content.
        """
        stream = subject_stream(subject)
        for number in range(1, ATTEMPTS + 1):
            head, _ = self._store.head(stream)
            commit = msgspec.structs.replace(change(), expected_pos={stream: head})
            try:
                events = self._store.commit(commit).events
            except PositionConflict:
                if number == ATTEMPTS:
                    raise
                # Back off so that constant writers can't starve a decision.
                time.sleep(random.uniform(0, 0.005 * number))  # noqa: S311 - a delay needs no secure randomness
            else:
                return events[0].id if events else ""
        raise AssertionError("unreachable")

    def _drop_questions(self, subject: str, broken: set[str]) -> None:
        def is_broken(one: Question) -> bool:
            return f"question {one.question[:80]!r}" in broken

        def change() -> Commit:
            left = [one for one in self.questions(subject) if not is_broken(one)]
            return self._questions_commit(subject, left, [])

        if any(map(is_broken, self.questions(subject))):
            self.decide(subject, change)

    def declare(self, subject: str, type_: str, key: Sequence[str], *, by: str = "") -> str:
        """Declare the fields that identify a record of a type; return the event's id."""
        if isinstance(key, str):
            key = [key]
        if not key or type_ == PROFILE:
            raise InputError("a key needs at least one field, and Profile has none", place="key")
        key_ = decisions.decided(subject, Decision(type=type_, key=list(key), by=by))
        return self.decide(subject, lambda: Commit(events=[key_]))

    resolve = _recorded(decisions.field_decision)
    correct = _recorded(decisions.correction)
    retract = _recorded(decisions.retraction)
    same = _recorded(decisions.merging)

    def judge(self, subject: str, rule: str, verdict: Verdict, *, by: str = "") -> str:
        """Record a person's verdict on a rule that a model derived, and apply it.

        The verdict is about the rule's content: a rule that changes later is proposed anew. Return
        the event's id.
        """
        event = _recorded(decisions.rule_verdict)(self, subject, rule, verdict, by=by)
        self.checkpoint(subject, accept=True)
        return event

    def accept(self, subject: str, event: str, *, by: str = "") -> str:
        """Let an observation from the web count, as a person decides; return the event's id."""
        return self.decide(
            subject, lambda: Commit(events=[decisions.acceptance(self._store, subject, event, by)])
        )

    def undo(self, subject: str, decision: str, *, by: str = "") -> str:
        """Take back a decision, or an earlier undo, by its event; return the new event's id."""
        return self.decide(
            subject,
            lambda: Commit(events=[decisions.undoing(self._store, subject, decision, by)]),
        )

    def observed(self, heads: Mapping[str | None, int]) -> None:
        """Checkpoint the subjects that are due by `checkpoint_every`.

        heads: the position of each subject's newest event; events without a subject don't count.
        """
        if not self._cadence.is_set:
            return
        for subject, pos in heads.items():
            if subject is not None and self._cadence.is_due(subject, pos, self._watermark):
                self._cadence.done(subject, pos)
                try:
                    self.checkpoint(subject)
                except EmError as error:
                    # The observation itself was stored, so the call that made it must not fail.
                    problem = f"the checkpoint of {subject!r} failed: {error}"
                    warnings.warn(problem, RuntimeWarning, stacklevel=4)

    def _watermark(self, subject: str) -> int:
        try:
            return load_schema(self._store, subject)[0].watermark
        except NotFound:
            return 0


def _plain_row(row: Json) -> Json:
    """Return a row without em's own fields."""
    return {name: value for name, value in row.items() if name not in ("event_ids", "as_given")}


def _part(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    return None


PORTION = 50
"""Subjects that a process gets at a time, and writes in one transaction."""
MANY_EVENTS = 20_000
"""Write a portion early once it has this many events, to bound memory."""

NEWS = ("observation", "read", "decided", "erased")
"""Kinds of events that change a state."""


def subjects_of(store: Store, after: int = 0) -> list[str]:
    """List the subjects with observations, sorted by name; only those with news after a seq."""
    if not after:
        return [name.removeprefix(SUBJECT_PREFIX) for name in store.streams(SUBJECT_PREFIX)]
    news = store.rows(EventQuery(kinds=NEWS, after=after))
    return sorted({row.subject for row in news if row.subject is not None})


LATELY = 1_000
"""The newest observations and decisions whose subjects come first."""


def find_subjects(
    store: Store, words: str = "", among: Iterable[str] | None = None
) -> Iterator[str]:
    """Yield the subjects whose name contains the words, those with news first, each once.

    The others come by name, found by how their names begin. among: look only at these.
    """
    each = _known(store, words) if among is None else iter(sorted(among))
    wanted, seen = words.casefold(), set[str]()
    for name in each:
        if name not in seen and wanted in name.casefold():
            seen.add(name)
            yield name


def _known(store: Store, words: str) -> Iterator[str]:
    news = store.rows(EventQuery(kinds=NEWS, limit=LATELY, newest=True))
    yield from (row.subject for row in reversed(list(news)) if row.subject)
    for prefix in dict.fromkeys((words, words.lower(), words.capitalize(), words.title())):
        if len(prefix) <= MAX_NAME and "\0" not in prefix:
            found = store.streams(SUBJECT_PREFIX + prefix)
            yield from (name.removeprefix(SUBJECT_PREFIX) for name in found)


def checkpoint_many(
    subjects: Subjects,
    names: Iterable[str],
    *,
    processes: int | None = None,
    db: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    **how: Any,
) -> tuple[int, dict[str, str]]:
    """Checkpoint subjects with all cores; return how many succeeded, and the errors of others.

    db: the store's address for the other processes; by default the one that em would choose.
    progress: called with the number of subjects that were looked at, and of all of them.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    every = list(names)
    portions = [every[start : start + PORTION] for start in range(0, len(every), PORTION)]
    done, failed = 0, dict[str, str]()
    with ExitStack() as ends:
        reports: Iterable[tuple[int, dict[str, str]]]
        reports = (_portion(subjects, portion, how) for portion in portions)
        if (wanted := processes or os.cpu_count() or 1) > 1:
            # Spawn, don't fork: a child must not inherit the store's connections.
            pool = ProcessPoolExecutor(wanted, mp_context=get_context("spawn"))
            elsewhere = partial(_in_process, db, subjects.settings, how)
            reports = ends.enter_context(pool).map(elsewhere, portions)
        for count, problems in reports:
            done += count
            failed |= problems
            progress(done + len(failed), len(every))
    return done, failed


_opened: dict[str | None, Subjects] = {}


def _in_process(
    db: str | None, settings: StateSettings, how: dict[str, Any], names: Sequence[str]
) -> tuple[int, dict[str, str]]:
    if db not in _opened:
        _opened[db] = Subjects(open_store(db, None, create=False), settings)
    return _portion(_opened[db], names, how)


def _portion(
    subjects: Subjects, names: Sequence[str], how: dict[str, Any]
) -> tuple[int, dict[str, str]]:
    """Compile subjects and write many at a time, because all processes share the write lock."""
    failed: dict[str, str] = {}
    waiting: list[NewState] = []
    for name in names:
        try:
            found = subjects.compile(name, **how)
        except EmError as error:
            failed[name] = str(error)
            continue
        if found.commit is not None:
            waiting.append(found)
        if len(waiting) >= PORTION or sum(one.report.new_events for one in waiting) >= MANY_EVENTS:
            failed |= _write(subjects, waiting, how)
            waiting = []
    if waiting:
        failed |= _write(subjects, waiting, how)
    return len(names) - len(failed), failed


def _write(subjects: Subjects, waiting: Sequence[NewState], how: dict[str, Any]) -> dict[str, str]:
    failed: dict[str, str] = {}
    try:
        subjects.write(waiting)
    except EmError:
        # One of them has new events or can't be written: write each on its own.
        for one in waiting:
            try:
                subjects.checkpoint(one.report.subject, **how)
            except EmError as error:
                failed[one.report.subject] = str(error)
    return failed
