"""Behaviours as people look at them: listed, found by a short name, taken away."""

import msgspec

from em.behaviour.behaviour import KIND, Behaviour
from em.behaviour.cache import Cache, as_stored, behaviour_id
from em.errors import InputError, NotFound
from em.log.event import EventQuery
from em.store import Erasure, Store
from em.store.artefact import Artefact

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
