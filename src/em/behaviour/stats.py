"""What became of replays, counted from the log."""

from collections.abc import Mapping

import msgspec

from em.behaviour.cache import behaviour_id
from em.models.event import EventQuery
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
                _count(counts, event.kind, body)
    stats.behaviours = behaviours
    return stats


def _count(counts: Counts, kind: str, body: Mapping[str, object]) -> None:
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
        return
    if body["outcome"] != "handed_over":
        return  # interrupted: nobody can say what would have become of it
    counts.hand_overs += 1
    counts.failures += body.get("cause") in ("error", "time")
