"""What became of replays, counted from the log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from em.behaviour.cache import behaviour_id
from em.log.event import Event, EventQuery
from em.store import Store

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
    stream = None if key is None else f"behaviours/{engine}/{key}"
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
    query = EventQuery(kinds=kinds, stream=f"behaviours/{engine}/{key}", limit=RECENT, newest=True)
    found: dict[int, Counts] = {}
    for event in store.read(query):
        for version in (event.body or {}).get("versions", ()):
            count(found.setdefault(version, Counts()), event.kind, event.body or {})
    return found
