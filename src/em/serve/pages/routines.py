"""Pages of routines: the list; one with its graph, files and versions; a form to run it."""

import asyncio
from difflib import unified_diff
from typing import Any, NamedTuple

import msgspec
from litestar import Response, get, post

from em.compiler.shadow import ENOUGH, NotPromoted
from em.errors import EmError, InputError
from em.runner.card import ListedRoutine, list_routines
from em.runner.package import (
    ROUTINE,
    KeptRoutine,
    find_routine,
    kept_routines,
    routine_of,
    texts_of,
    trials_of,
)
from em.runner.requirements import asked_for, requirements
from em.runner.routine import Routine
from em.runner.tools.coding import is_coding_tool
from em.runner.version_change import changes, proof_change
from em.serve.auth import PAGES
from em.serve.pages.drawing import graph_of
from em.serve.pages.forms import Field, form_of, input_fields, read_fields
from em.serve.pages.runs import background_of
from em.serve.pages.shadow import shadow_view
from em.serve.pages.table import SINCE, UNTIL, Column, Filter, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Artefact, Store
from em.values.canonical import short

ROUTINES = ListShape(
    "/routines",
    "routines",
    (
        Column("Routine", "name"),
        Column("What it does"),
        Column("Proof"),
        Column("Steps", is_number=True),
        Column("Versions", "versions", is_number=True),
        Column("Newest", "at"),
    ),
    (
        Filter("q", "Words", "words", hint="name or what it does", is_first=True),
        Filter("status", "Status", "choice", ("in use", "retired"), is_first=True),
        SINCE,
        UNTIL,
    ),
    "at",
)


class Shown(NamedTuple):
    """A row of the list, with the routine itself; None if this version of em can't read it."""

    listed: ListedRoutine
    routine: KeptRoutine | None


@get(f"{PAGES}/routines", include_in_schema=False, sync_to_thread=True)
def get_routines(request: AnyRequest) -> Response[str]:
    """Show the stored routines: searched, filtered, sorted, page by page."""
    service = service_of(request)
    service.caller(request).must_see(None)
    view = ListView(ROUTINES, request)
    since, until, status = view.time("since"), view.time("until"), view.get("status")
    listed = [
        one
        for one in list_routines(service.store, view.get("q"))
        if status in ("", one.status)
        and (since is None or one.at >= since)
        and (until is None or one.at < until)
    ]
    keys = {"name": lambda one: one.name.casefold(), "versions": lambda one: one.versions}
    found = view.page_of_all(listed, {**keys, "at": lambda one: one.at})
    routines = [Shown(one, _readable(service.store, one)) for one in found]
    return page(request, "routines.html", view=view, routines=routines)


def _readable(store: Store, listed: ListedRoutine) -> KeptRoutine | None:
    try:
        return routine_of(find_routine(store, listed.ref))
    except EmError:
        return None


@get(f"{PAGES}/routine", include_in_schema=False, sync_to_thread=True)
def get_routine(request: AnyRequest) -> Response[str]:
    """Show one routine."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _show(request, service, parameter(request, "ref"))


def _show(
    request: AnyRequest,
    service: Service,
    ref: str,
    problem: EmError | None = None,
    given: dict[str, Any] | None = None,
    after: int = ENOUGH,
) -> Response[str]:
    artefact = find_routine(service.store, ref)
    routine, texts = routine_of(artefact), texts_of(artefact)
    versions = list(kept_routines(service.store, artefact.name))
    return page(
        request,
        "routine.html",
        code=200 if problem is None else 400,
        ref=f"{artefact.name}@{artefact.version}",
        artefact=artefact,
        routine=routine,
        texts=texts,
        graph=graph_of(routine),
        requirements=list(requirements(routine)),
        asked_for=list(asked_for(routine)),
        versions=versions,
        shadow=shadow_view(service.store, f"{artefact.name}@{artefact.version}"),
        diff=_diff(artefact, versions, whole_number(request, "against")),
        fields=_fields(routine, texts),
        given=given or {},
        needs_code=_needs_code(routine),
        after=after,
        problem=problem,
    )


def _fields(routine: Routine, texts: dict[str, str]) -> list[Field]:
    """Return the fields of the input, filled in with the recorded example."""
    try:
        example = msgspec.json.decode(texts.get("input.json", "{}"), type=dict[str, Any])
    except msgspec.MsgspecError:
        example = {}
    secret = {one.name for one in routine.secrets}
    # A recorded value that nothing explains must not be taken for one that a person chose.
    example = {name: value for name, value in example.items() if name not in routine.asks}
    fields = input_fields(routine.input_schema, example)
    help_ = {
        one.name: f"recorded: {one.recorded}. Leave it empty, and the run asks where it has to."
        for one in asked_for(routine)
    }
    if routine.request is not None:
        help_[routine.request.input] = (
            f"The whole request in words, like: {routine.request.template}."
            " The inputs that it mentions are read from it."
        )
    return [
        field._replace(help=help_.get(field.name, field.help))
        for field in fields
        if field.name not in secret
    ]


def _needs_code(routine: Routine) -> list[str]:
    """Return the tools that only the user's program has and the service can't call."""
    without_code = {tool.name for tool in routine.tools if tool.says_how}
    return sorted(name for name in routine.called_tools - without_code if not is_coding_tool(name))


def _diff(
    artefact: Artefact, versions: list[Artefact], against: int | None
) -> tuple[int, list[str], list[str]] | None:
    """Return the changes since a version, or the previous one: lines, and what was learnt."""
    others = [one for one in versions if one.version != artefact.version and one.body is not None]
    if against is not None:
        other = next((one for one in others if one.version == against), None)
    else:
        other = next((one for one in reversed(others) if one.version < artefact.version), None)
    if other is None:
        return None
    old, new = texts_of(other)[ROUTINE], texts_of(artefact)[ROUTINE]
    lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    learnt = [
        *changes(routine_of(other), routine_of(artefact)),
        proof_change(trials_of(texts_of(other)), trials_of(texts_of(artefact))),
    ]
    return other.version, [line for line in lines if not line.startswith(("---", "+++"))], learnt


@post(f"{PAGES}/routine/run", include_in_schema=False)
async def post_run(request: AnyRequest) -> Response[str]:
    """Run a routine with the submitted input, and go to the page of the run."""
    form = await form_of(request)
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    ref = str(form.get("ref", ""))
    if not ref:
        raise InputError("the form has no routine", place="ref")

    def work() -> Response[str]:
        artefact = find_routine(service.store, ref)
        fields = _fields(routine_of(artefact), texts_of(artefact))
        try:
            run_id = background_of(request).start(ref, read_fields(fields, form))
        except EmError as problem:
            given = {field.name: form.get(field.input_name, "") for field in fields}
            return _show(request, service, ref, problem, given)
        return go_to(address("/run", id=run_id))

    return await asyncio.to_thread(work)


@post(f"{PAGES}/routine/promote", include_in_schema=False)
async def post_promote(request: AnyRequest) -> Response[str]:
    """Put a retired version in use, if it agreed with the agent often enough, and show it."""
    form = await form_of(request)
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    ref, given = str(form.get("ref", "")), str(form.get("after", ""))
    if not ref:
        raise InputError("the form has no routine", place="ref")
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"after must be a number from 1 on, got {short(given)}", place="after")

    def work() -> Response[str]:
        try:
            promoted = service.memory.promote(ref, after=int(given))
        except NotPromoted as problem:
            return _show(request, service, ref, problem, after=int(given))
        return go_to(address("/routine", ref=promoted.routine))

    return await asyncio.to_thread(work)


HANDLERS = [get_routines, get_routine, post_run, post_promote]
