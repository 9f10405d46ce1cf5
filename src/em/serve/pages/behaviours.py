"""Pages of behaviours: hits, misses, hand-overs, and their reasons."""

from typing import Any

from litestar import Response, get

from em.behaviour.cache import (
    Counts,
    behaviour_of,
    find_behaviour,
    id_of,
    newest_behaviours,
    recent_counts,
    recent_uses,
)
from em.log.event import behaviour_stream
from em.serve.auth import PAGES
from em.serve.pages.shadow import ShadowView, shadow_view
from em.serve.pages.view import page, parameter
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Artefact, Store

SHOWN = 50


@get(f"{PAGES}/behaviours", include_in_schema=False, sync_to_thread=True)
def get_behaviours(request: AnyRequest) -> Response[str]:
    """Show the newest behaviours, and the reasons of misses and hand-overs."""
    service = service_of(request)
    service.caller(request).must_see(None)
    engine = parameter(request, "engine") or None
    found = newest_behaviours(service.store, engine, SHOWN)
    uses = recent_uses(service.store, engine)
    rows = [(artefact, _state(artefact), _counts(service.store, artefact)) for artefact in found]
    engines = sorted({one.name.rpartition("/")[0] for one in found} | {u.engine for u in uses.uses})
    return page(
        request,
        "behaviours.html",
        rows=rows,
        id_of=id_of,
        engine=engine or "",
        engines=engines,
        uses=uses,
        shadow=_shadow(service.store, [engine] if engine else engines),
    )


@get(f"{PAGES}/behaviour", include_in_schema=False, sync_to_thread=True)
def get_behaviour(request: AnyRequest) -> Response[str]:
    """Show one behaviour: its steps, the sources of their values, its replays."""
    service = service_of(request)
    service.caller(request).must_see(None)
    artefact = find_behaviour(service.store, parameter(request, "id"))
    engine, _, key = artefact.name.rpartition("/")
    return page(
        request,
        "behaviour.html",
        id=id_of(artefact),
        artefact=artefact,
        engine=engine,
        state=_state(artefact),
        behaviour=None if artefact.body is None else behaviour_of(artefact),
        counts=_counts(service.store, artefact),
        uses=recent_uses(service.store, engine, key=key),
    )


def _shadow(store: Store, engines: list[str]) -> ShadowView | None:
    """Return how an engine did beside the agent; None if several are shown."""
    return shadow_view(store, behaviour_stream(engines[0])) if len(engines) == 1 else None


def _counts(store: Any, artefact: Artefact) -> Counts:
    engine, _, key = artefact.name.rpartition("/")
    return recent_counts(store, engine, key).get(artefact.version, Counts())


def _state(artefact: Artefact) -> str:
    if artefact.body is None:
        return "erased"
    return "retired" if artefact.retired_at else "in use"


HANDLERS = [get_behaviours, get_behaviour]
