"""Pages of routines: the list; one with its code, proof and versions; a form to run it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import unified_diff
from itertools import islice
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath

from em.compiler.growth import made_of
from em.compiler.shadow import shadow_report, stream_of
from em.errors import EmError, InputError, NotFound, UsageError
from em.log.event import EventQuery, routine_stream, trace_stream
from em.runner.card import ListedRoutine, list_routines
from em.runner.history import run_query
from em.runner.package import (
    ROUTINE,
    KeptRoutine,
    current_version,
    find_routine,
    kept_routines,
    proof_of,
    routine_of,
    texts_of,
)
from em.runner.routine import Routine
from em.runner.standing import changes, file_changes, proof_change, standing_of, version, versions
from em.runner.tools.coding import is_coding_tool
from em.runner.trial import Trial, Verdict
from em.serve.auth import PAGES, Caller
from em.serve.pages.drafts import review_of_kept
from em.serve.pages.forms import PREFIX, FormField, acted, input_fields, read_fields
from em.serve.pages.overview import count_runs, outcome
from em.serve.pages.runs import background_of
from em.serve.pages.table import SINCE, UNTIL, Column, Filter, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Artefact, Store
from em.values.canonical import Json

SHOWN_RUNS, SHOWN_TRIALS, SHOWN_TRACES, SHOWN_ACTS = 8, 200, 20, 20
SHOWN_COMPARISONS, COMPARED = 10, 2_000
"""Comparisons with agents that are shown, and that are counted, the newest."""
MOST_LINES = 4_000
"""Lines of both texts that are compared: longer ones take too long."""
VERDICTS: Sequence[Verdict] = ("wrong", "handed over", "right")
_ACTS = {
    "routine_struck": "changed {ref}: {what}",
    "routine_accepted": "accepted {ref}",
    "acceptance_withdrawn": "took back that {ref} was accepted",
    "routine_retired": "retired {ref}",
    "routine_restored": "restored {ref}",
}

ROUTINES = ListShape(
    "/routines",
    "routines",
    (
        Column("Routine"),
        Column("What it does"),
        Column("Proof"),
        Column("Steps", is_number=True),
        Column("Versions", is_number=True),
        Column("Newest"),
    ),
    (
        Filter("q", "Words", "words", hint="name or what it does", is_first=True),
        Filter("status", "Status", "choice", ("in use", "proposed", "retired"), is_first=True),
        SINCE,
        UNTIL,
    ),
)


@get(f"{PAGES}/routines", include_in_schema=False, sync_to_thread=True)
def get_routines(request: AnyRequest) -> Response[str]:
    """Show the stored routines: searched, filtered, page by page."""
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
    found = view.page_of(sorted(listed, key=lambda one: one.at, reverse=True))
    routines = [_shown(service.store, one) for one in found]
    return page(request, "routines.html", view=view, routines=routines)


def _shown(store: Store, listed: ListedRoutine) -> Json:
    """Return a row with the routine itself; None if this version of em can't read it."""
    shown: Json = {"listed": listed, "routine": None, "standing": None}
    with suppress(EmError):
        artefact = find_routine(store, listed.ref)
        shown |= {"routine": routine_of(artefact), "standing": standing_of(store, artefact)}
    return shown


@get(f"{PAGES}/routine", include_in_schema=False, sync_to_thread=True)
def get_routine(request: AnyRequest) -> Response[str]:
    """Show one routine."""
    service = service_of(request)
    service.caller(request).must_see(None)
    ref = parameter(request, "ref")
    return _show(request, service, ref, done=parameter(request, "done"))


def _show(
    request: AnyRequest,
    service: Service,
    ref: str,
    problem: EmError | None = None,
    given: dict[str, Any] | None = None,
    done: str = "",
) -> Response[str]:
    store = service.store
    artefact = version(store, ref)
    routine, texts = routine_of(artefact), texts_of(artefact)
    known = list(kept_routines(store, artefact.name))
    newest = islice(store.summaries.read(run_query("routine", name=artefact.name)), SHOWN_RUNS)
    return page(
        request,
        "routine.html",
        code=200 if problem is None else 400,
        ref=routine.ref,
        artefact=artefact,
        routine=routine,
        texts=texts,
        proof=_proof(store, artefact, routine),
        review=review_of_kept(routine, texts),
        runs=count_runs(store, artefact.name),
        newest=[(row, outcome(row) or row.status) for row in newest],
        versions=known,
        current=current_version(store, artefact.name).version,
        in_use=[one for one in known if one.retired_at is None and one.body is not None],
        standing=standing_of(store, artefact),
        history=_history(store, artefact.name),
        shadow=_shadow(store, routine.ref),
        diff=_diff(artefact, known, whole_number(request, "against")),
        fields=_fields(routine, texts),
        given=given or {},
        needs_code=_needs_code(routine),
        problem=problem,
        done=done if done in ("struck", "accepted", "withdrawn", "retired", "restored") else "",
    )


# --- how it was proved ----------------------------------------------------------------------------


def _proof(store: Store, artefact: Artefact, routine: KeptRoutine) -> Json:
    """Return how a routine did on recordings that were left out, by policy and by recording.

    tried: each with its trials, the wrong ones first. learnt_from: the recordings it comes from.
    """
    trials, proof = routine.trials, proof_of(texts_of(artefact))
    made = {} if proof is None else {how: one for how, one in proof.trials.items() if one}
    tried: dict[str, dict[str, Trial]] = {}
    for how, some in made.items():
        for one in some:
            tried.setdefault(one.trace, {})[how] = one
    worst_first = sorted(
        tried.items(), key=lambda one: min(VERDICTS.index(t.verdict) for t in one[1].values())
    )[:SHOWN_TRIALS]
    learnt, _ = made_of(store, artefact)
    goals = _goals(store, [*(trace for trace, _ in worst_first), *learnt[:SHOWN_TRACES]])
    best = [*reversed(VERDICTS)]
    return {
        "proof": proof,
        "trials": trials,
        "counts": [(verdict, trials.count(verdict)) for verdict in best],
        "policies": {how: [sum(t.verdict == v for t in made[how]) for v in best] for how in made},
        "tried": [(trace, goals.get(trace, ""), by) for trace, by in worst_first],
        "tried_count": len(tried),
        "learnt_from": [(trace, goals.get(trace, "")) for trace in learnt[:SHOWN_TRACES]],
        "learnt_count": len(learnt),
    }


def _goals(store: Store, traces: Sequence[str]) -> dict[str, str]:
    """Return what was asked for in traces, of those that are there."""
    found = store.summaries.of([trace_stream(one) for one in traces])
    return {row.id: row.name or row.id for row in found.values()}


def _shadow(store: Store, ref: str) -> Json | None:
    """Return how a version did beside the agent, and the newest comparisons that did not agree.

    looked_at: how many were counted, if there may be more; else 0.
    """
    reports = shadow_report(store, ref, newest=COMPARED)
    if not reports:
        return None
    (report,) = reports
    differing = [one for one in report.comparisons if one.verdict != "agreed"]
    looked_at = COMPARED if store.head(stream_of(ref))[0] > COMPARED else 0
    newest = differing[::-1][:SHOWN_COMPARISONS]
    return {"report": report, "newest": newest, "looked_at": looked_at}


def _history(store: Store, name: str) -> list[tuple[datetime, str, str]]:
    """Return what people did with a routine, newest first: when, what, and who."""
    acts = []
    query = EventQuery(
        stream=routine_stream(name), kinds=list(_ACTS), limit=SHOWN_ACTS, newest=True
    )
    for event in store.read(query):
        body = event.body or {}
        what = body.get("words") or "its content was forgotten"
        words = _ACTS[event.kind].format(ref=body.get("routine", name), what=what)
        acts.append((event.at, words, str(body.get("by", ""))))
    return acts[::-1]


# --- the form -------------------------------------------------------------------------------------


def _fields(routine: Routine, texts: dict[str, str]) -> list[FormField]:
    """Return the fields of the input, filled in with the recorded example."""
    try:
        example = msgspec.json.decode(texts.get("input.json", "{}"), type=dict[str, Any])
    except msgspec.MsgspecError:
        example = {}
    secret = {one.name for one in routine.secrets}
    fields = input_fields(routine.input_schema, example)
    return [field for field in fields if field.name not in secret]


def _needs_code(routine: Routine) -> list[str]:
    """Return the tools that only the user's program has and the service can't call."""
    without_code = {tool.name for tool in routine.tools if tool.says_how}
    return sorted(name for name in routine.called_tools - without_code if not is_coding_tool(name))


# --- changes --------------------------------------------------------------------------------------


def _diff(artefact: Artefact, versions: list[Artefact], against: int | None) -> Json | None:
    """Return the changes since a version, or the previous one: in words, and as lines."""
    others = [one for one in versions if one.version != artefact.version and one.body is not None]
    if against is not None:
        other = next((one for one in others if one.version == against), None)
    else:
        other = next((one for one in reversed(others) if one.version < artefact.version), None)
    if other is None:
        return None
    old, new = routine_of(other), routine_of(artefact)
    files, before = texts_of(artefact), texts_of(other)
    was, now = (one[ROUTINE].splitlines()[:MOST_LINES] for one in (before, files))
    lines = [*unified_diff(was, now, lineterm="")][2:]
    is_tried_again = old.trials.summary != new.trials.summary
    proof = proof_change(old.trials, new.trials) if is_tried_again else ""
    said = [*changes(old, new), *file_changes(before, files)]
    return {"since": other.version, "changes": said, "proof": proof, "lines": lines}


# --- what a person does ---------------------------------------------------------------------------


@post(f"{PAGES}/routine/run", include_in_schema=False)
async def post_run(request: AnyRequest) -> Response[str]:
    """Run a routine with the submitted input, and go to the page of the run."""

    def act(service: Service, ref: str, form: Mapping[str, Any], _by: str) -> str:
        artefact = find_routine(service.store, ref)
        if artefact.retired_at is not None:
            raise UsageError(
                "this version is not in use",
                place=f"{artefact.name}@{artefact.version}",
                fix="put it in use first, or run another version",
            )
        fields = _fields(routine_of(artefact), texts_of(artefact))
        run_id = background_of(request).start(ref, read_fields(fields, form))
        return address("/run", id=run_id)

    return await _change_routine(request, act)


@post(f"{PAGES}/routine/{{done:str}}", include_in_schema=False)
async def post_act(request: AnyRequest, done: FromPath[str]) -> Response[str]:
    """Strike checks of a routine, accept, withdraw, retire or restore a version, and show it."""

    def act(service: Service, ref: str, form: Mapping[str, Any], by: str) -> str:
        memory = service.memory
        match done:
            case "strike":
                named = form.get("check", "")
                checks = named if isinstance(named, list) else [named]
                return shown(memory.strike(ref, *map(str, checks), by=by).new, "struck")
            case "accept":
                return shown(memory.accept(ref, by=by).routine, "accepted")
            case "withdraw":
                return shown(memory.withdraw(ref, by=by).routine, "withdrawn")
            case "restore":
                return shown(memory.restore(ref, by=by).routine, "restored")
            case "retire":
                name = find_routine(service.store, ref).name
                for one in list(versions(service.store, name)) if form.get("all") else ():
                    if one.retired_at is None:
                        memory.retire(f"{one.name}@{one.version}", by=by)
                return shown(memory.retire(ref, by=by).routine, "retired")
        raise NotFound(f"there is no act {done[:40]!r}")

    def shown(ref: str, how: str) -> str:
        return address("/routine", ref=ref, done=how)

    return await _change_routine(request, act)


Acting = Callable[[Service, str, Mapping[str, Any], str], str]
"""Takes the service, the routine, the form and who acts; returns the address to go to."""


async def _change_routine(request: AnyRequest, act: Acting) -> Response[str]:
    """Do what a form asks for, or show the routine with the problem and what was given."""

    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        caller.must_see(None)
        ref = str(form.get("ref", ""))
        if not ref:
            raise InputError("the form has no routine", place="ref")
        try:
            return go_to(act(service, ref, form, caller.name))
        except EmError as problem:
            own = {name: one for name, one in form.items() if name.startswith(PREFIX)}
            given = {name.removeprefix(PREFIX): one for name, one in own.items()}
            return _show(request, service, ref, problem, given)

    return await acted(request, do)


HANDLERS = [get_routines, get_routine, post_run, post_act]
