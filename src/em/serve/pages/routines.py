"""Pages of routines: the list; one with its code, proof and versions; a form to run it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from litestar import Response, get, post

from em.compiler.growth import made_of
from em.errors import EmError, InputError, UsageError
from em.log.event import EventQuery, routine_stream, trace_stream
from em.log.summary import Summary
from em.runner.acceptance import Standing, standing_of
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
from em.runner.roster import version, versions
from em.runner.routine import Routine
from em.runner.run import HANDED_OVER
from em.runner.tools.coding import is_coding_tool
from em.runner.trial import Proof, Trial, Trials, Verdict
from em.runner.version_change import changes, file_changes, proof_change
from em.serve.auth import PAGES
from em.serve.pages.diff import DiffBlock, diff_of
from em.serve.pages.drawing import Chart, chart, graph_of
from em.serve.pages.forms import Field, form_of, input_fields, read_fields
from em.serve.pages.review import review_of_kept
from em.serve.pages.runs import background_of
from em.serve.pages.shadow import shadow_view
from em.serve.pages.table import SINCE, UNTIL, Column, Filter, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Artefact, Store
from em.values.times import now

DAYS = 30
LOOKED_AT = 5_000
"""Runs that the chart counts, the newest: it costs the same with many."""
SHOWN_RUNS, SHOWN_TRIALS, SHOWN_TRACES, SHOWN_ACTS = 8, 200, 20, 20
OUTCOMES = ("ok", "handed over", "asked", "failed")
_VERDICTS: Sequence[Verdict] = ("wrong", "handed over", "right")
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
        Column("Routine", "name"),
        Column("What it does"),
        Column("Proof"),
        Column("Steps", is_number=True),
        Column("Versions", "versions", is_number=True),
        Column("Newest", "at"),
    ),
    (
        Filter("q", "Words", "words", hint="name or what it does", is_first=True),
        Filter("status", "Status", "choice", ("in use", "proposed", "retired"), is_first=True),
        SINCE,
        UNTIL,
    ),
    "at",
)


class Shown(NamedTuple):
    """A row of the list, with the routine itself; None if this version of em can't read it."""

    listed: ListedRoutine
    routine: KeptRoutine | None
    standing: Standing | None


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
    routines = [_shown(service.store, one) for one in found]
    return page(request, "routines.html", view=view, routines=routines)


def _shown(store: Store, listed: ListedRoutine) -> Shown:
    try:
        artefact = find_routine(store, listed.ref)
        return Shown(listed, routine_of(artefact), standing_of(store, artefact))
    except EmError:
        return Shown(listed, None, None)


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
    return page(
        request,
        "routine.html",
        code=200 if problem is None else 400,
        ref=routine.ref,
        artefact=artefact,
        routine=routine,
        texts=texts,
        graph=graph_of(routine),
        proof=_proof(store, artefact, routine),
        review=review_of_kept(routine, texts),
        runs=_runs(store, artefact.name),
        versions=known,
        current=current_version(store, artefact.name).version,
        in_use=[one for one in known if one.retired_at is None and one.body is not None],
        standing=standing_of(store, artefact),
        history=_history(store, artefact.name),
        shadow=shadow_view(store, routine.ref),
        diff=_diff(artefact, known, whole_number(request, "against")),
        fields=_fields(routine, texts),
        given=given or {},
        needs_code=_needs_code(routine),
        problem=problem,
        done=done if done in ("struck", "accepted", "withdrawn", "retired", "restored") else "",
    )


# --- how it was proved ----------------------------------------------------------------------------


class Tried(NamedTuple):
    """A recording that a routine was tried on or learnt from, with its trials by policy."""

    trace: str
    goal: str
    trials: Mapping[str, Trial] = {}

    @property
    def worst(self) -> int:
        """Where it stands in the list: what went wrong stands first."""
        return min((_VERDICTS.index(one.verdict) for one in self.trials.values()), default=0)

    @property
    def reasons(self) -> list[str]:
        """Why its trials were not right, each reason once."""
        return [*dict.fromkeys(one.reason for one in self.trials.values() if one.reason)]


class ProofView(NamedTuple):
    """The proof of a routine: its trials by policy and by recording, and what it was learnt from.

    trials: those on recordings that were left out. counts: how these went. policies: each with how
    often it was right, handed over and wrong. tried: at most SHOWN_TRIALS of `tried_count`.
    """

    proof: Proof | None
    trials: Trials
    counts: Sequence[tuple[Verdict, int]]
    policies: Mapping[str, Sequence[int]]
    tried: Sequence[Tried]
    tried_count: int
    learnt_from: Sequence[Tried]
    learnt_count: int


def _proof(store: Store, artefact: Artefact, routine: KeptRoutine) -> ProofView:
    trials, proof = routine.trials, proof_of(texts_of(artefact))
    by_recording: dict[str, dict[str, Trial]] = {}
    made = {} if proof is None else {how: one for how, one in proof.trials.items() if one}
    for how, some in made.items():
        for one in some:
            by_recording.setdefault(one.trace, {})[how] = one
    tried = sorted((Tried(one, "", by) for one, by in by_recording.items()), key=lambda t: t.worst)
    tried = tried[:SHOWN_TRIALS]
    known, _ = made_of(store, artefact)
    goals = _goals(store, [*(one.trace for one in tried), *known[:SHOWN_TRACES]])
    best = [*reversed(_VERDICTS)]
    return ProofView(
        proof,
        trials,
        [(verdict, trials.count(verdict)) for verdict in best],
        {how: [sum(one.verdict == v for one in some) for v in best] for how, some in made.items()},
        [one._replace(goal=goals.get(one.trace, "")) for one in tried],
        len(by_recording),
        [Tried(one, goals.get(one, "")) for one in known[:SHOWN_TRACES]],
        len(known),
    )


def _goals(store: Store, traces: Sequence[str]) -> dict[str, str]:
    """Return what was asked for in traces, of those that are there."""
    found = store.summaries.of([trace_stream(one) for one in traces])
    return {row.id: row.name or row.id for row in found.values()}


# --- its runs and its history ---------------------------------------------------------------------


class RunsView(NamedTuple):
    """The newest runs of a routine with how they went, and how those of the last days went.

    looked_at: how many were counted, if there may be more; else 0.
    """

    newest: Sequence[tuple[Summary, str]]
    chart: Chart | None
    counts: Mapping[str, int]
    looked_at: int


def _runs(store: Store, name: str) -> RunsView:
    newest = islice(store.summaries.read(run_query("routine", name=name)), SHOWN_RUNS)
    today = now().date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    began = datetime.combine(days[0], time(), UTC)
    rows = islice(store.summaries.read(run_query("routine", name=name, since=began)), LOOKED_AT)
    ended = Counter((row.at.date(), _outcome(row)) for row in rows)
    counts = {one: sum(n for (_, how), n in ended.items() if how == one) for one in OUTCOMES}
    shown = [(day.isoformat(), [float(ended[day, one]) for one in OUTCOMES]) for day in days]
    drawn = chart("Runs by day", list(OUTCOMES), shown, [""] * len(OUTCOMES))
    every = ended.total()
    return RunsView(
        [(row, _outcome(row) or row.status) for row in newest],
        drawn if every else None,
        counts,
        every if every == LOOKED_AT else 0,
    )


def _outcome(row: Summary) -> str:
    """Say how a run went; one that a check stopped before it acted was handed over."""
    known = {"needs_input": "asked", HANDED_OVER: "handed over", "ok": "ok", "failed": "failed"}
    return known.get(row.status, "")


class Act(NamedTuple):
    """What a person did with a routine."""

    at: datetime
    words: str
    by: str


def _history(store: Store, name: str) -> list[Act]:
    """Return what people did with a routine, newest first."""
    acts = []
    query = EventQuery(
        stream=routine_stream(name), kinds=list(_ACTS), limit=SHOWN_ACTS, newest=True
    )
    for event in store.read(query):
        body = event.body or {}
        what = body.get("words") or "its content was forgotten"
        words = _ACTS[event.kind].format(ref=body.get("routine", name), what=what)
        acts.append(Act(event.at, words, str(body.get("by", ""))))
    return sorted(acts, key=lambda one: one.at, reverse=True)[:SHOWN_ACTS]


# --- the form -------------------------------------------------------------------------------------


def _fields(routine: Routine, texts: dict[str, str]) -> list[Field]:
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


class Change(NamedTuple):
    """A change in words; `step` is the number of the step that it is about, or 0."""

    step: int
    name: str
    words: str


class DiffView(NamedTuple):
    """The changes since a version: in words, and line by line."""

    since: int
    changes: Sequence[Change]
    proof: str
    blocks: Sequence[DiffBlock]
    added: int
    removed: int


def _diff(artefact: Artefact, versions: list[Artefact], against: int | None) -> DiffView | None:
    """Return the changes since a version, or the previous one."""
    others = [one for one in versions if one.version != artefact.version and one.body is not None]
    if against is not None:
        other = next((one for one in others if one.version == against), None)
    else:
        other = next((one for one in reversed(others) if one.version < artefact.version), None)
    if other is None:
        return None
    old, new = routine_of(other), routine_of(artefact)
    blocks = diff_of(texts_of(other)[ROUTINE], texts_of(artefact)[ROUTINE])
    kinds = Counter(line.kind for block in blocks for line in block.lines)
    said = [*changes(old, new), *file_changes(texts_of(other), texts_of(artefact))]
    learnt = [_change(words, old, new) for words in said]
    is_tried_again = old.trials.summary != new.trials.summary
    proof = proof_change(old.trials, new.trials) if is_tried_again else ""
    return DiffView(other.version, learnt, proof, blocks, kinds["add"], kinds["del"])


def _change(words: str, old: Routine, new: Routine) -> Change:
    """Name the step that a change is about by its number."""
    name, _, rest = words.partition(": ")
    for routine in (new, old):
        number = next((n for n, one in enumerate(routine.all_steps, 1) if one.id == name), 0)
        if number and rest:
            return Change(number, name, rest)
    return Change(0, "", words)


# --- what a person does ---------------------------------------------------------------------------


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
            _refuse_out_of_use(artefact)
            run_id = background_of(request).start(ref, read_fields(fields, form))
        except EmError as problem:
            given = {field.name: form.get(field.input_name, "") for field in fields}
            return _show(request, service, ref, problem, given)
        return go_to(address("/run", id=run_id))

    return await asyncio.to_thread(work)


def _refuse_out_of_use(artefact: Artefact) -> None:
    if artefact.retired_at is not None:
        raise UsageError(
            "this version is not in use",
            place=f"{artefact.name}@{artefact.version}",
            fix="put it in use first, or run another version",
        )


@post(f"{PAGES}/routine/strike", include_in_schema=False)
async def post_strike(request: AnyRequest) -> Response[str]:
    """Store a routine without some of its checks, and show the new version."""

    def act(service: Service, ref: str, form: Mapping[str, Any], by: str) -> str:
        named = form.get("check", "")
        checks = named if isinstance(named, list) else [named]
        return service.memory.strike(ref, *map(str, checks), by=by).new

    return await _act(request, "struck", act)


@post(f"{PAGES}/routine/accept", include_in_schema=False)
async def post_accept(request: AnyRequest) -> Response[str]:
    """Accept a version: it is in use, and used by itself."""

    def act(service: Service, ref: str, _form: Mapping[str, Any], by: str) -> str:
        return service.memory.accept(ref, by=by).routine

    return await _act(request, "accepted", act)


@post(f"{PAGES}/routine/withdraw", include_in_schema=False)
async def post_withdraw(request: AnyRequest) -> Response[str]:
    """Take back that a version was accepted."""

    def act(service: Service, ref: str, _form: Mapping[str, Any], by: str) -> str:
        return service.memory.withdraw(ref, by=by).routine

    return await _act(request, "withdrawn", act)


@post(f"{PAGES}/routine/retire", include_in_schema=False)
async def post_retire(request: AnyRequest) -> Response[str]:
    """Take a version, or all of them, out of use."""

    def act(service: Service, ref: str, form: Mapping[str, Any], by: str) -> str:
        name = find_routine(service.store, ref).name
        for one in list(versions(service.store, name)) if form.get("all") == "yes" else ():
            if one.retired_at is None:
                service.memory.retire(f"{one.name}@{one.version}", by=by)
        return service.memory.retire(ref, by=by).routine

    return await _act(request, "retired", act)


@post(f"{PAGES}/routine/restore", include_in_schema=False)
async def post_restore(request: AnyRequest) -> Response[str]:
    """Put a retired version in use again."""

    def act(service: Service, ref: str, _form: Mapping[str, Any], by: str) -> str:
        return service.memory.restore(ref, by=by).routine

    return await _act(request, "restored", act)


Acting = Callable[[Service, str, Mapping[str, Any], str], str]
"""Does something with a routine, for somebody, and returns the version to show."""


async def _act(request: AnyRequest, done: str, act: Acting) -> Response[str]:
    """Do what a form asks for and show the routine, with the problem if it could not be done."""
    form = await form_of(request)
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(None)
    ref = str(form.get("ref", ""))
    if not ref:
        raise InputError("the form has no routine", place="ref")

    def work() -> Response[str]:
        try:
            shown = act(service, ref, form, caller.name)
        except EmError as problem:
            return _show(request, service, ref, problem)
        return go_to(address("/routine", ref=shown, done=done))

    return await asyncio.to_thread(work)


HANDLERS = [
    get_routines,
    get_routine,
    post_run,
    post_strike,
    post_accept,
    post_withdraw,
    post_retire,
    post_restore,
]
