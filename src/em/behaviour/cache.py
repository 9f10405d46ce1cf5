"""Cache: the stored behaviours of an engine; found by task, added, retired, listed and counted.

An artefact's name is `ENGINE/KEY`, its versions are the behaviours of that task. Additions and
retirements are events of the stream `behaviours/ENGINE`: reading its head shows whether the
behaviours loaded in this process are current. Replays are events of `behaviours/ENGINE/KEY`.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypedDict, Unpack

import msgspec

from em.behaviour.agent_run import Run
from em.behaviour.behaviour import FORMAT, KIND, Behaviour, Taught
from em.behaviour.codec import snapshot
from em.behaviour.lesson import teach
from em.behaviour.task import Task
from em.behaviour.way import MOST_RECORDINGS, Lessons, Way, tapes_of, taught_by
from em.errors import (
    Conflict,
    InputError,
    NotFound,
    NotRecordable,
    PositionConflict,
    RoutineError,
)
from em.log.event import TRACE_PREFIX, Draft, Event, EventQuery, behaviour_stream
from em.store import Commit, Erasure, Store
from em.store.log import anchor
from em.store.protocol import Artefact, ArtefactDraft, Committed
from em.traces.trace import trace_events
from em.values.canonical import Json, identical
from em.values.leaves import differences
from em.values.times import new_id, new_ids, now

TASKS_LOADED = 1_024
_NEWEST = EventQuery(limit=1, newest=True)
_CHANGES = ("behaviour_recorded", "behaviour_retired", "erased")
RECENT = 200
"""Replays of a task that are read to judge a behaviour."""


class Stored(NamedTuple):
    """One stored behaviour. `event` is the id of its `behaviour_recorded` event."""

    id: str
    artefact_id: str
    version: int
    created_at: datetime
    event: str
    behaviour: Behaviour


class Known:
    """The behaviours of one task that are not retired, oldest first."""

    def __init__(self, stored: Sequence[Stored]) -> None:
        self.stored = stored
        self.tapes = tapes_of([one for one in stored if one.behaviour.format == FORMAT])
        self.taught: Sequence[Way] | None = None
        self.fitting: tuple[int, Collection[str], str] | None = None


def behaviour_id(engine: str, key: str, version: int) -> str:
    """Return the id by which people and commands name a behaviour."""
    return f"{engine}/{key}@{version}"


class Cache:
    """The behaviours of one engine. Safe to share between threads."""

    def __init__(self, store: Store, engine: str) -> None:
        self.store = store
        self.engine = engine
        self.stream = behaviour_stream(engine)
        self._lock = threading.Lock()
        self._tasks: OrderedDict[str, Known] = OrderedDict()
        self._pos = 0
        self._seq = 0
        self._live: dict[str, str] | None = None
        self._anchors: dict[str, str] = {}
        self._lessons: Lessons = {}

    def find(self, key: str) -> Known:
        """Return the behaviours of a task: reads the stream's head, and loads what is missing."""
        self._catch_up()
        with self._lock:
            known = self._tasks.get(key)
            if known is not None:
                self._tasks.move_to_end(key)
                return known
            pos = self._pos
        known = Known(self._load(key))
        with self._lock:
            if self._pos == pos:
                self._tasks[key] = known
                while len(self._tasks) > TASKS_LOADED:
                    self._tasks.popitem(last=False)
        return known

    def lessons(self, key: str, known: Known | None = None) -> Sequence[Way]:
        """Return the ways that the recordings of a task teach: learnt when first needed."""
        known = self.find(key) if known is None else known
        if known.taught is None:
            if len(self._lessons) > TASKS_LOADED:
                self._lessons.clear()
            own = [one for one in known.stored if one.behaviour.format == FORMAT]
            known.taught = taught_by(self._name, own, self._lessons)
        return known.taught

    @property
    def _name(self) -> str:
        """The name of the routines."""
        return self.engine.rpartition(".")[2]

    def _ready(self, key: str, behaviour: Behaviour) -> Behaviour:
        """Return a behaviour as it can be stored: with its routine if it holds a secret.

        What is stored then does not show where the secret came from. Raise NotRecordable if a
        value may come from what can't be inspected.
        """
        if any(step.opaque for step in behaviour.steps):
            teach(self._name, [behaviour])
        body, redactor = msgspec.to_builtins(behaviour), self.store.redactor
        text = msgspec.json.encode(body)
        if not redactor.is_suspect(text) or identical(redactor.value(body), body):
            return behaviour
        before = [one.behaviour for one in self.find(key).stored]
        alike = [one for one in before if one.seen == behaviour.seen][1 - MOST_RECORDINGS :]
        try:
            taught = teach(self._name, [*alike, behaviour])
        except NotRecordable:
            taught = teach(self._name, [behaviour])
        return msgspec.structs.replace(behaviour, taught=taught)

    def _catch_up(self) -> None:
        """Drop the loaded behaviours that other processes have changed since."""
        pos, _ = self.store.head(self.stream)
        with self._lock:
            if pos == self._pos:
                return
            if not self._tasks and self._live is None:
                # Nothing is loaded yet, so earlier changes don't matter.
                self._seq = next(iter(self.store.read(_NEWEST))).seq
                self._pos, _ = self.store.head(self.stream)
                return
            for event in self.store.read(EventQuery(kinds=_CHANGES, after=self._seq)):
                self._seq = event.seq
                if event.stream == self.stream:
                    self._pos = event.pos
                    self._take_note(event)
            if self._pos < pos:
                # A reader across streams does not see the newest while an older commit is under
                # way: load again whatever is used until then.
                self._tasks.clear()
                self._live = None

    def _take_note(self, event: Event) -> None:
        body = event.body
        if body is None or "key" not in body:
            self._tasks.clear()  # an erased event doesn't name its task
            self._lessons.clear()
            self._live = None
            return
        self._tasks.pop(body["key"], None)
        if self._live is not None:
            _fold(self._live, event.kind, event.id, body)

    def _load(self, key: str) -> list[Stored]:
        return [
            stored
            for artefact in self.store.artefacts(KIND, f"{self.engine}/{key}")
            if (stored := as_stored(artefact)) is not None
        ]

    def record(
        self,
        task: Task,
        run: Run,
        behaviour: Behaviour,
        uses: Sequence[Draft],
        value: Any,
        sources: Sequence[str] = (),
    ) -> str:
        """Store a run and its behaviour in one transaction; return the behaviour's id.

        uses: events about this use.
        sources: events of the earlier behaviours that the run or the new behaviour contains.
        """
        trace = run.trace(final_output=snapshot(value)[0], seconds=behaviour.seconds)
        trace_id = new_id()
        drafts = trace_events(trace, trace_id, subject=task.subject, sources=sources)
        ids = new_ids(len(drafts) + 1)
        events = [
            msgspec.structs.replace(draft, id=event_id)
            for draft, event_id in zip(drafts, ids, strict=False)
        ]
        stored = self.add(task.key, behaviour, events, ids, uses)

        def late(why: str) -> None:
            """Store the end of the trace again, with the reason, and retire the behaviour."""
            changed = msgspec.structs.replace(trace, incomplete=why)
            with suppress(Exception):  # the call of the tool must not fail because of this
                self.log(*trace_events(changed, trace_id, subject=task.subject)[-1:])
                self.retire_by_id(task.key, stored, why)

        run.close("", late)
        return stored

    def add(
        self,
        key: str,
        behaviour: Behaviour,
        sources: Sequence[Draft] = (),
        ids: Sequence[str] | None = None,
        others: Sequence[Draft] = (),
    ) -> str:
        """Store a behaviour and return its id; the last of `ids` is its recording event's."""
        ids = ids or [new_id()]
        behaviour = self._ready(key, behaviour)
        recorded = Draft(
            stream=self.stream,
            kind="behaviour_recorded",
            id=ids[-1],
            body={
                "engine": self.engine,
                "key": key,
                "task": behaviour.task,
                "steps": len(behaviour.steps),
                "seconds": behaviour.seconds,
                "from_events": list(ids[:-1]),
            },
        )
        body = msgspec.to_builtins(behaviour)
        artefact = ArtefactDraft(
            kind=KIND, name=f"{self.engine}/{key}", body=body, from_events=list(reversed(ids))
        )
        committed = self._commit([*sources, *others, recorded], [artefact])
        stored = committed.artefacts[0]
        if not identical(_replayed(stored.body), _replayed(body)):
            # The store redacted a secret: a replay would pass on the redacted value.
            redacted = as_stored(stored)
            if redacted is not None:
                self.retire(key, redacted, "it contained a secret")
            raise NotRecordable(
                "a call contains a secret, and secrets are not stored",
                place=next(differences(_replayed(body), _replayed(stored.body)))[0],
                fix="declare it in params, or store it in the object that the tool belongs to",
            )
        return behaviour_id(self.engine, key, stored.version)

    def log(self, *drafts: Draft) -> None:
        """Append events about uses."""
        self._commit(drafts)

    def _commit(
        self, drafts: Sequence[Draft], artefacts: Sequence[ArtefactDraft] = ()
    ) -> Committed:
        """Commit events. A use of a behaviour that is about somebody is made of their anchor."""

        def commit() -> Committed:
            events = [*map(self._anchored, drafts)]
            return self.store.commit(Commit(events=events, artefacts=artefacts))

        try:
            return commit()
        except PositionConflict:
            raise
        except Conflict:
            if not self._anchors:
                raise
            # An anchor was forgotten since; the subject gets another.
            self._anchors.clear()
            return commit()

    def _anchored(self, use: Draft) -> Draft:
        """Return a use as its stream can hold it: that belongs to nobody. A trace's belongs."""
        subject = use.subject
        if subject is None or use.stream.startswith(TRACE_PREFIX):
            return use
        if subject not in self._anchors:
            self._anchors[subject] = anchor(self.store, subject)
        body = _quoting(use.body, self._anchors[subject])
        return msgspec.structs.replace(use, subject=None, body=body)

    def retire(self, key: str, item: Stored, reason: str) -> None:
        """Retire a behaviour, here and in every other process."""
        if not self.store.commit(Commit(retire=[item.artefact_id])).retired:
            return
        body: Json = {
            "engine": self.engine,
            "key": key,
            "version": item.version,
            "reason": reason,
            "recorded": item.event,
        }
        self.log(Draft(stream=self.stream, kind="behaviour_retired", body=body))

    def retire_by_id(self, key: str, own: str, reason: str) -> None:
        """Retire the behaviour of a task that has this id."""
        for item in self.find(key).stored:
            if item.id == own:
                self.retire(key, item, reason)

    def retire_doubtful(self, key: str, suspect: Stored, after: int) -> None:
        """Retire a behaviour whose last `after` replays all failed."""
        query = EventQuery(
            stream=behaviour_stream(self.engine, key),
            kinds=["behaviour_replayed"],
            limit=RECENT,
            newest=True,
        )
        failures = 0
        for event in reversed(list(self.store.read(query))):
            body = event.body
            if body is not None and suspect.version in body["versions"]:
                if body["outcome"] == "hit":
                    break
                failures += 1
        if failures >= after:
            self.retire(key, suspect, f"its last {failures} replays failed")

    def make_room(self, key: str, own: str, per_task: int | None) -> None:
        """Retire what a new behaviour says too, and the least used ones beyond a limit."""
        stored = self.find(key).stored
        new = next((item for item in stored if item.id == own), None)
        if new is None:
            return  # another process has retired it
        before = [item for item in stored if item.version < new.version]
        for item in before:
            if item.behaviour.format < FORMAT or _says_the_same(item, new):
                self.retire(key, item, "it was recorded again")
        stored = self.find(key).stored
        if per_task is None or len(stored) <= per_task:
            return
        used = self._last_uses(key)
        by_use = sorted(before, key=lambda item: (used.get(item.version, 0), item.version))
        for item in by_use[: len(stored) - per_task]:
            self.retire(key, item, f"more than {per_task} behaviours of one task")

    def _last_uses(self, key: str) -> dict[int, int]:
        query = EventQuery(
            stream=behaviour_stream(self.engine, key),
            kinds=["behaviour_replayed"],
            limit=5 * RECENT,
            newest=True,
        )
        used: dict[int, int] = {}
        for event in self.store.read(query):
            if event.body is not None and event.body["outcome"] == "hit":
                used.update(dict.fromkeys(event.body["versions"], event.seq))
        return used

    def limit(self, at_most: int) -> None:
        """Retire the oldest behaviours of the engine beyond a number."""
        self._catch_up()
        with self._lock:
            if self._live is None:
                self._live = {}
                for event in self.store.read(EventQuery(stream=self.stream)):
                    if event.body is not None:
                        _fold(self._live, event.kind, event.id, event.body)
            surplus = list(self._live.items())[: max(0, len(self._live) - at_most)]
        for event_id, key in surplus:
            for item in self.find(key).stored:
                if item.event == event_id:
                    self.retire(key, item, f"more than {at_most} behaviours of the engine")


def _fold(live: dict[str, str], kind: str, event_id: str, body: Json) -> None:
    """Update the behaviours in use, by the ids of their recording events."""
    if kind == "behaviour_recorded":
        live[event_id] = body["key"]
    elif kind == "behaviour_retired":
        live.pop(body.get("recorded", ""), None)


def _says_the_same(one: Stored, other: Stored) -> bool:
    sights = [
        [part and part.value for step in each.behaviour.steps for part in (step.pre, step.post)]
        for each in (one, other)
    ]
    return one.behaviour.tape == other.behaviour.tape and sights[0] == sights[1]


def as_stored(artefact: Artefact) -> Stored | None:
    """Return a behaviour, or None if it is retired, erased, or of a newer em."""
    if artefact.retired_at is not None or artefact.body is None:
        return None
    try:
        behaviour = _read(artefact.body)
    except msgspec.ValidationError:
        return None
    engine, _, key = artefact.name.rpartition("/")
    return Stored(
        behaviour_id(engine, key, artefact.version),
        artefact.id,
        artefact.version,
        artefact.created_at,
        artefact.from_events[0] if artefact.from_events else "",
        behaviour,
    )


def _replayed(body: Json | None) -> Json:
    """Return what a replay passes on: what a routine was learnt from may hold redacted secrets."""
    body = dict(body or {})
    steps = body.pop("steps", [])
    if "taught" in body:
        body = {name: one for name, one in body.items() if name not in ("inputs", "answer")}
        steps = [{**step, "args": None, "result": None} for step in steps]
    named = {f"step {n}, tool {step['tool']}": step for n, step in enumerate(steps, 1)}
    return named | body


def expired(item: Stored, ttl: timedelta | None) -> bool:
    """Return whether a behaviour is older than `ttl`."""
    return ttl is not None and now() - item.created_at > ttl


SHORT = 8


class BehaviourPage(msgspec.Struct, frozen=True):
    """Some behaviours in the order in which they were recorded, retired ones too.

    first: the number of the event that recorded the first. further: where to go on. 0 for none.
    """

    behaviours: Sequence[Artefact]
    first: int
    further: int


class BehaviourFilter(TypedDict, total=False):
    """Which behaviours to list.

    engine: of this engine. words: that their task contains, in upper or lower case.
    status: `in use` or `retired`. since, until: when they were recorded.
    """

    engine: str | None
    words: str
    status: str
    since: datetime | None
    until: datetime | None


LOOKED_AT = 500
"""Behaviours that don't match, after which a search ends and says where to go on."""


def list_behaviours(
    store: Store,
    *,
    limit: int,
    beyond: int = 0,
    oldest: bool = False,
    **chosen: Unpack[BehaviourFilter],
) -> BehaviourPage:
    """List behaviours by when they were recorded, the newest first. It reads what it returns.

    beyond: go on behind the event of this number. oldest: the oldest first instead.
    """
    found: dict[str, Artefact] = {}
    first, last, passed_over = 0, beyond, 0
    for event in _recorded(store, beyond, chosen, oldest=oldest):
        if len(found) >= limit or passed_over == LOOKED_AT:
            return BehaviourPage(list(found.values()), first, last)
        last = event.seq
        fitting = [one for one in _made_of(store, event, chosen) if one.id not in found]
        found |= {one.id: one for one in fitting}
        first = first or (last if fitting else 0)
        passed_over += not fitting
    return BehaviourPage(list(found.values()), first, 0)


def _recorded(
    store: Store, beyond: int, chosen: BehaviourFilter, *, oldest: bool
) -> Iterator[Event]:
    """Stream the events that recorded behaviours, a few at first."""
    size = 26
    while True:
        query = EventQuery(
            kinds=["behaviour_recorded"],
            since=chosen.get("since"),
            until=chosen.get("until"),
            after=beyond if oldest else 0,
            before=None if oldest else beyond or None,
            limit=size,
            newest=not oldest,
        )
        events = list(store.read(query))
        yield from events if oldest else reversed(events)
        if len(events) < size:
            return
        beyond, size = events[-1 if oldest else 0].seq, 500


def _made_of(store: Store, event: Event, chosen: BehaviourFilter) -> Iterator[Artefact]:
    """Yield the behaviours that an event recorded, those that are chosen."""
    if (body := event.body) is None or chosen.get("engine") not in (None, body["engine"]):
        return
    words, status = chosen.get("words", "").casefold(), chosen.get("status")
    for one in store.artefacts(KIND, f"{body['engine']}/{body['key']}"):
        is_chosen = not status or status == ("retired" if one.retired_at else "in use")
        if event.id in one.from_events and is_chosen and words in task_of(one).casefold():
            yield one


def task_of(artefact: Artefact) -> str:
    """Return the task of a behaviour as text; its name if it was erased."""
    if artefact.body is None:
        return artefact.name
    task = artefact.body.get("task")
    return task if isinstance(task, str) else msgspec.json.encode(task).decode()


def _quoting(body: Json, event_id: str) -> Json:
    """Return the body of an event that also quotes this one."""
    return {**body, "from_events": [*body.get("from_events", ()), event_id]}


def id_of(artefact: Artefact) -> str:
    """Return the id of a behaviour."""
    engine, _, key = artefact.name.rpartition("/")
    return behaviour_id(engine, key, artefact.version)


def short_id(artefact: Artefact) -> str:
    """Return a short id that a person can type."""
    return f"{artefact.name.rpartition('/')[2][:SHORT]}@{artefact.version}"


def find_behaviour(store: Store, given: str) -> Artefact:
    """Find a behaviour by its id or the start of its key: `ENGINE/KEY@1`, `3f2a91bc@1`."""
    name, _, version = given.rpartition("@")
    if not name or not version.isdecimal():
        raise InputError(
            f"expected the id of a behaviour, such as 3f2a91bc@1, got {given!r}",
            place="ID",
            fix="`em routine behaviours list` shows them",
        )
    artefact = store.artefact(KIND, name, int(version))
    if artefact is not None:
        return artefact
    events = store.read(EventQuery(kinds=["behaviour_recorded"]))
    known = (f"{body['engine']}/{body['key']}" for event in events if (body := event.body))
    names = {one for one in known if _begins(one, name)}
    found = [store.artefact(KIND, one, int(version)) for one in sorted(names)]
    matches = [artefact for artefact in found if artefact is not None]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputError(
            f"{len(matches)} behaviours match: {', '.join(map(id_of, matches[:5]))}",
            place="ID",
            fix="give more characters of the id",
        )
    raise NotFound(
        f"no behaviour {given!r}", place="ID", fix="`em routine behaviours list` shows them"
    )


def _begins(name: str, given: str) -> bool:
    return name.startswith(given) or name.rpartition("/")[2].startswith(given)


def behaviour_of(artefact: Artefact) -> Behaviour:
    """Return the behaviour of an artefact; raise NotFound if it was erased."""
    if artefact.body is None:
        raise NotFound("the behaviour was erased", place=id_of(artefact))
    return _read(artefact.body)


def _read(body: Json) -> Behaviour:
    """Read a behaviour; of one of an older format only what it is about."""
    if body.get("format", 1) < FORMAT:
        known = ("task", "tags", "params", "seconds", "format")
        body = {name: body[name] for name in known if name in body}
    return msgspec.convert(body, Behaviour)


def steps_in(artefact: Artefact) -> int:
    """Return how many calls a behaviour makes."""
    return len((artefact.body or {}).get("steps", ()))


def taught_of(store: Store, artefact: Artefact) -> Taught:
    """Return the routine that a behaviour teaches, with others of its task that are in use."""
    engine, _, key = artefact.name.rpartition("/")
    cache = Cache(store, engine)
    for way in cache.lessons(key):
        if way.taught is not None and any(one.artefact_id == artefact.id for one in way.stored):
            return way.taught
    behaviour = behaviour_of(artefact)
    if behaviour.format < FORMAT:
        raise RoutineError(
            "the behaviour was recorded by an older em",
            place=id_of(artefact),
            fix="let the engine record the task again",
        )
    return behaviour.taught or teach(cache.engine, [behaviour])


def forget_behaviour(store: Store, artefact: Artefact, *, only_retire: bool) -> Erasure | None:
    """Erase a behaviour and the run it came from, or only retire it."""
    engine, _, key = artefact.name.rpartition("/")
    stored = as_stored(artefact)
    if stored is not None:
        Cache(store, engine).retire(key, stored, "retired by a person")
    if only_retire:
        return None
    return store.erase(list(artefact.from_events), reason=f"behaviour {id_of(artefact)} forgotten")


_KINDS = ("behaviour_recorded", "behaviour_replayed", "behaviour_missed", "behaviour_retired")


class Counts(msgspec.Struct):
    """How often and how long. A failure is a hand-over after an error or a timeout."""

    hits: int = 0
    misses: int = 0
    hand_overs: int = 0
    failures: int = 0
    replay_seconds: float = 0.0
    agent_seconds: float = 0.0
    saved_seconds: float = 0.0
    saved_tokens: int = 0
    saved_cost_usd: float = 0.0


class Stats(Counts):
    """The counts of an engine, and of each of its behaviours by id."""

    recorded: int = 0
    retired: int = 0
    behaviours: Mapping[str, Counts] = {}


def read_stats(store: Store, engine: str | None = None) -> Stats:
    """Count the events of one engine, or of all."""
    stats = Stats()
    behaviours: dict[str, Counts] = {}
    for event in store.read(EventQuery(kinds=_KINDS)):
        body = event.body
        if body is None or (engine is not None and body["engine"] != engine):
            continue
        if event.kind == "behaviour_recorded":
            stats.recorded += 1
        elif event.kind == "behaviour_retired":
            stats.retired += 1
        else:
            own = [
                behaviours.setdefault(behaviour_id(body["engine"], body["key"], version), Counts())
                for version in body["versions"]
            ]
            for counts in (stats, *own):
                count(counts, event.kind, body)
    stats.behaviours = behaviours
    return stats


def count(counts: Counts, kind: str, body: Mapping[str, object]) -> None:
    """Count one replay, or one miss."""
    seconds = float(body["seconds"])  # type: ignore[arg-type]  # checked when it was written
    if kind == "behaviour_missed":
        counts.misses += not body.get("handed_over")
        counts.agent_seconds += seconds
        return
    counts.replay_seconds += seconds
    if body["outcome"] == "hit":
        counts.hits += 1
        saved = msgspec.convert(body.get("saved") or {}, dict[str, float])
        counts.saved_seconds += saved.get("seconds", 0.0)
        counts.saved_tokens += int(saved.get("tokens", 0))
        counts.saved_cost_usd += saved.get("cost_usd", 0.0)
        return
    if body["outcome"] != "handed_over":
        return  # interrupted: neither a hit nor a failure
    counts.hand_overs += 1
    counts.failures += body.get("cause") in ("error", "time")


USES_COUNTED = 500
"""Uses that are read where only the newest count."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an engine: its outcome, and the reason in words."""

    at: datetime
    engine: str
    key: str
    outcome: str
    reason: str
    seconds: float
    saved_seconds: float = 0.0


class Uses(msgspec.Struct, frozen=True):
    """The newest uses, newest first, and how often each outcome had each reason."""

    uses: Sequence[Use]
    reasons: Sequence[tuple[str, str, int]]

    @property
    def saved_seconds(self) -> float:
        """The seconds that the hits among them saved."""
        return sum(use.saved_seconds for use in self.uses)


def recent_uses(store: Store, engine: str | None, *, key: str | None = None) -> Uses:
    """Return the newest uses of an engine, or of one of its tasks, with their reasons."""
    stream = None if engine is None or key is None else behaviour_stream(engine, key)
    kinds = ("behaviour_replayed", "behaviour_missed")
    query = EventQuery(kinds=kinds, stream=stream, limit=USES_COUNTED, newest=True)
    found = [
        _use(event)
        for event in reversed(list(store.read(query)))
        if event.body is not None
        and engine in (None, event.body["engine"])
        and not event.body.get("handed_over")  # counted as the replay that handed over
    ]
    reasons = Counter((use.outcome, use.reason) for use in found if use.outcome != "hit")
    return Uses(found, [(*why, times) for why, times in reasons.most_common()])


def _use(event: Event) -> Use:
    body = event.body or {}
    outcome = "miss" if event.kind == "behaviour_missed" else str(body["outcome"])
    return Use(
        at=event.at,
        engine=str(body["engine"]),
        key=str(body["key"]),
        outcome=outcome.replace("_", " "),
        reason=str(body.get("reason") or body.get("error") or ""),
        seconds=float(body.get("seconds", 0.0)),
        saved_seconds=float((body.get("saved") or {}).get("seconds", 0.0)),
    )


def recent_counts(store: Store, engine: str, key: str) -> dict[int, Counts]:
    """Count the newest uses of one task, by the version of the behaviour."""
    kinds = ("behaviour_replayed", "behaviour_missed")
    query = EventQuery(
        kinds=kinds, stream=behaviour_stream(engine, key), limit=USES_COUNTED, newest=True
    )
    found: dict[int, Counts] = {}
    for event in store.read(query):
        for version in (event.body or {}).get("versions", ()):
            count(found.setdefault(version, Counts()), event.kind, event.body or {})
    return found
