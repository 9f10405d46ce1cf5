"""Behaviours as people look at them: listed, found by a short name, taken away."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from em.behaviour.behaviour import KIND, Behaviour
from em.behaviour.cache import Cache, as_stored, behaviour_id
from em.errors import InputError, NotFound
from em.log.event import Event, EventQuery
from em.log.stream import behaviour_stream
from em.store import Erasure, Store
from em.store.protocol import Artefact

SHORT = 8
_RECORDED = "behaviour_recorded"


def newest_behaviours(store: Store, engine: str | None, limit: int) -> list[Artefact]:
    """The newest behaviours, retired ones too, newest first."""
    found: dict[str, Artefact] = {}
    for name, event_id in reversed(_recorded(store, engine, limit)):
        for artefact in store.artefacts(KIND, name):
            if event_id in artefact.from_events:
                found.setdefault(artefact.id, artefact)
    return list(found.values())


def _recorded(store: Store, engine: str | None, limit: int) -> list[tuple[str, str]]:
    """Name and event of the newest behaviours, oldest first."""
    size = limit
    while True:
        events = list(store.read(EventQuery(kinds=[_RECORDED], newest=True, limit=size)))
        found = [
            (f"{body['engine']}/{body['key']}", event.id)
            for event in events
            if (body := event.body) is not None and engine in (None, body["engine"])
        ]
        if len(found) >= limit or len(events) < size:
            return found[-limit:]
        size *= 8  # others' are in between


def id_of(artefact: Artefact) -> str:
    """The id of a behaviour."""
    engine, _, key = artefact.name.rpartition("/")
    return behaviour_id(engine, key, artefact.version)


def short_id(artefact: Artefact) -> str:
    """As few characters as a person may type."""
    return f"{artefact.name.rpartition('/')[2][:SHORT]}@{artefact.version}"


def find_behaviour(store: Store, given: str) -> Artefact:
    """A behaviour by its id, or by the beginning of its key: `ENGINE/KEY@1`, `3f2a91bc@1`."""
    name, _, version = given.rpartition("@")
    if not name or not version.isdecimal():
        raise InputError(
            f"{given!r} is no id of a behaviour", place="ID", fix="`em cache list` shows them"
        )
    artefact = store.artefact(KIND, name, int(version))
    if artefact is not None:
        return artefact
    events = store.read(EventQuery(kinds=[_RECORDED]))
    known = (f"{body['engine']}/{body['key']}" for event in events if (body := event.body))
    names = {one for one in known if _begins(one, name)}
    found = [store.artefact(KIND, one, int(version)) for one in sorted(names)]
    matches = [artefact for artefact in found if artefact is not None]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputError(
            f"{len(matches)} behaviours begin so: {', '.join(map(id_of, matches[:5]))}",
            place="ID",
            fix="give more of it",
        )
    raise NotFound(f"no behaviour {given!r}", place="ID", fix="`em cache list` shows them")


def _begins(name: str, given: str) -> bool:
    return name.startswith(given) or name.rpartition("/")[2].startswith(given)


def behaviour_of(artefact: Artefact) -> Behaviour:
    """What a behaviour says; an error if it was erased."""
    if artefact.body is None:
        raise NotFound("it was erased", place=id_of(artefact))
    return msgspec.convert(artefact.body, Behaviour)


def forget_behaviour(store: Store, artefact: Artefact, *, only_retire: bool) -> Erasure | None:
    """Erase a behaviour with the run it came from, or only take it out of use."""
    engine, _, key = artefact.name.rpartition("/")
    stored = as_stored(artefact)
    if stored is not None:
        Cache(store, engine).retire(key, stored, "a person took it out of use")
    if only_retire:
        return None
    return store.erase(list(artefact.from_events), reason=f"behaviour {id_of(artefact)} forgotten")


_KINDS = ("behaviour_recorded", "behaviour_replayed", "behaviour_missed", "behaviour_retired")


class Counts(msgspec.Struct):
    """How often, and how long. A failure is a hand-over after an error, or for want of time."""

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
    """Count what the log says of one engine, or of all."""
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
        return  # interrupted: nobody can say what would have become of it
    counts.hand_overs += 1
    counts.failures += body.get("cause") in ("error", "time")


RECENT = 500
"""Uses that are looked at where only the newest count."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One time that an engine was asked: what became of it, and why in words."""

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
        """What the hits among them spared."""
        return sum(use.saved_seconds for use in self.uses)


def recent_uses(store: Store, engine: str | None, *, key: str | None = None) -> Uses:
    """Why the newest uses of an engine, or of one of its tasks, hit or did not."""
    stream = None if engine is None or key is None else behaviour_stream(engine, key)
    kinds = ("behaviour_replayed", "behaviour_missed")
    query = EventQuery(kinds=kinds, stream=stream, limit=RECENT, newest=True)
    found = [
        _use(event)
        for event in reversed(list(store.read(query)))
        if event.body is not None
        and engine in (None, event.body["engine"])
        and not event.body.get("handed_over")  # the replay that handed over tells of it already
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
    """The counts of the behaviours of one task by their versions, over its newest uses."""
    kinds = ("behaviour_replayed", "behaviour_missed")
    query = EventQuery(kinds=kinds, stream=behaviour_stream(engine, key), limit=RECENT, newest=True)
    found: dict[int, Counts] = {}
    for event in store.read(query):
        for version in (event.body or {}).get("versions", ()):
            count(found.setdefault(version, Counts()), event.kind, event.body or {})
    return found
