"""Pages of behaviours: hits, misses, hand-overs, and their reasons."""

from collections.abc import Sequence
from typing import Any

from litestar import Response, get

from em.behaviour.cache import (
    BehaviourFilter,
    Counts,
    behaviour_of,
    find_behaviour,
    id_of,
    list_behaviours,
    recent_counts,
    recent_uses,
    steps_in,
    taught_of,
)
from em.behaviour.task import HOLE
from em.serve.auth import PAGES
from em.serve.pages.table import (
    SINCE,
    UNTIL,
    Column,
    Filter,
    Found,
    ListShape,
    ListView,
    place_of_event,
)
from em.serve.pages.view import page, parameter, short
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Artefact, Store

LONGEST = 90
"""The most characters of a title."""
BEHAVIOURS = ListShape(
    "/behaviours",
    "behaviours",
    (
        Column("Task", "task"),
        Column("Engine", "engine"),
        Column("State"),
        Column("Steps", "steps", is_number=True),
        Column("Hits", is_number=True),
        Column("Handed over", is_number=True),
        Column("Saved", is_number=True),
        Column("Recorded", "at"),
    ),
    (
        Filter("q", "Words of the task", "words", is_first=True),
        Filter("engine", "Engine", is_first=True),
        Filter("status", "State", "choice", ("in use", "retired")),
        SINCE,
        UNTIL,
    ),
    "at",
)


@get(f"{PAGES}/behaviours", include_in_schema=False, sync_to_thread=True)
def get_behaviours(request: AnyRequest) -> Response[str]:
    """Show behaviours, and the reasons of the newest misses and hand-overs."""
    service = service_of(request)
    service.caller(request).must_see(None)
    engine = parameter(request, "engine") or None
    uses = recent_uses(service.store, engine)
    view = ListView(BEHAVIOURS, request)
    found = _listed(service.store, view)
    rows = [(artefact, _state(artefact), _counts(service.store, artefact)) for artefact in found]
    return page(
        request,
        "behaviours.html",
        view=view,
        rows=rows,
        id_of=id_of,
        steps_in=steps_in,
        title_of=title_of,
        uses=uses,
    )


def _listed(store: Store, view: ListView) -> Sequence[Artefact]:
    chosen: BehaviourFilter = {
        "engine": view.get("engine") or None,
        "words": view.get("q"),
        "status": view.get("status"),
        "since": view.time("since"),
        "until": view.time("until"),
    }

    def read(place: str, oldest: bool, limit: int) -> Found[Artefact]:
        beyond = place_of_event(place)
        found = list_behaviours(store, limit=limit, beyond=beyond, oldest=oldest, **chosen)
        return Found(found.behaviours, str(found.first or ""), str(found.further or ""))

    return view.page(
        read,
        {
            "task": lambda one: title_of(one).casefold(),
            "engine": lambda one: one.name.casefold(),
            "steps": steps_in,
        },
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
        title=title_of(artefact),
        artefact=artefact,
        engine=engine,
        state=_state(artefact),
        behaviour=None if artefact.body is None else behaviour_of(artefact),
        taught=None if artefact.body is None else taught_of(service.store, artefact),
        counts=_counts(service.store, artefact),
        uses=recent_uses(service.store, engine, key=key),
    )


def title_of(artefact: Artefact) -> str:
    """Return the title of a behaviour: what it was asked to do; its id once that was erased."""
    if artefact.body is None:
        return id_of(artefact)
    return title(artefact.name.rpartition("/")[0], artefact.body.get("task"))


def title(engine: str, task: Any) -> str:
    """Put a task into words: its text if that is all there is, else the call of its engine."""
    if isinstance(task, dict) and len(task) == 1:
        (only,) = task.values()
        task = only if isinstance(only, str) and " " in HOLE.sub("…", only).strip() else task
    if isinstance(task, dict):
        given = ", ".join(f"{name}={_in_words(value)}" for name, value in task.items())
        return short(f"{engine}({given})", LONGEST)
    return short(HOLE.sub("…", task), LONGEST) if isinstance(task, str) else engine


def _in_words(value: Any) -> str:
    """Return an argument in short; what varies from call to call is left open."""
    if isinstance(value, str):
        return short(HOLE.sub("…", value), 30)
    if isinstance(value, dict | list):
        noun = "field" if isinstance(value, dict) else "item"
        return f"{len(value)} {noun}" + ("" if len(value) == 1 else "s")
    return short(value, 30)


def _counts(store: Any, artefact: Artefact) -> Counts:
    engine, _, key = artefact.name.rpartition("/")
    return recent_counts(store, engine, key).get(artefact.version, Counts())


def _state(artefact: Artefact) -> str:
    if artefact.body is None:
        return "erased"
    return "retired" if artefact.retired_at else "in use"


HANDLERS = [get_behaviours, get_behaviour]
