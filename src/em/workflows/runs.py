"""Workflows: start a run, resume it, inspect past runs, erase old ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import msgspec

from em.errors import StoreError, UsageError, WorkflowError
from em.llm.client import LlmClient
from em.log.event import WORKFLOW_CLEAN_UP, Draft, Event, EventQuery, run_stream
from em.log.summary import Cursor, Summary, SummaryQuery, Totals
from em.redaction.redactor import MARKER
from em.runner.answers import check_steps
from em.runner.engine import drive_run, refuse_lost_secrets, same_input
from em.runner.expressions.language import as_text
from em.runner.history import (
    RETRIED,
    RunFilter,
    RunSummary,
    find_runs,
    refuse_partial,
    run_id_of,
    run_query,
)
from em.runner.journal import (
    WORKFLOW_STARTED,
    Journal,
    Note,
    answered_note,
    keepable,
    retried_note,
)
from em.runner.run import RunResult, StepReport
from em.runner.secrets import Secrets, without_secrets
from em.runner.tools import Tool, ToolRegistry, Tools
from em.runner.tools.mcp import Servers
from em.runner.validation import Problem
from em.settings import AllowSettings, Settings, WorkflowMemorySettings
from em.store import Commit, open_store
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.times import new_id
from em.workflows.builtins import Binding, Models, Sourced, Sources, no_source
from em.workflows.conductor import Conductor, Ensemble
from em.workflows.definition import WorkflowDef, WorkflowFile, check_params, prompt_of
from em.workflows.inspection import (
    PastWorkflow,
    Rehearsed,
    RunView,
    WorkflowResult,
    inspect_run,
    latest_output,
    rehearse,
)
from em.workflows.needs import Need
from em.workflows.plan import Plan, plan_of, refuse_invalid, refuse_misfits, validate_file
from em.workflows.slices import CountTokens, RunContext, about

CLEANED = "workflow_cleaned"
EVERY = timedelta(hours=1)
"""The shortest time between two automatic clean-ups."""


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased, and in `left` the old runs that were not, with the reason."""

    runs: Sequence[str] = ()
    events: int = 0
    bytes: int = 0
    left: dict[str, str] = {}
    scrubbed: bool = True


class MemoryStore:
    """What workflows left, as the original's `MemoryStore`: one class to look after it.

    db: a path or an address; where it is not given, that of the settings.
    """

    def __init__(self, db: str | Path | Store | None = None) -> None:
        self._owns = db is None or isinstance(db, str | Path)
        self._store: Store = (
            open_store(db, Settings.load()) if db is None or isinstance(db, str | Path) else db
        )

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._owns:
            self._store.close()

    def cleanup_old_entries(self, days_old: float = 30) -> int:
        """Erase what finished runs of this age left; return the number of entries."""
        return clean(self._store, older_than=timedelta(days=days_old)).events


def clean(
    store: Store,
    *,
    older_than: timedelta | None = None,
    max_bytes: float | None = None,
    reason: str = "clean-up of workflow memory",
    dry_run: bool = False,
) -> Cleaned:
    """Erase old runs; and the oldest runs while there is more than `max_bytes`."""
    if older_than is not None and older_than < timedelta(0):
        raise UsageError("an age is not negative", place="days_old")
    chosen = _chosen(store, older_than, max_bytes)
    left = _left(store, chosen)
    gone = [run for run in chosen.values() if run.id not in left]
    events = [event for run in gone for event in _events(store, run)]
    cleaned = Cleaned(
        runs=[run.id for run in gone],
        events=len(events),
        bytes=sum(run.size for run in gone),
        left=left,
    )
    if dry_run or not gone:
        return cleaned
    erasure = store.erase([event.id for event in events], reason=reason)
    _note(store, cleaned, reason)
    return msgspec.structs.replace(cleaned, scrubbed=erasure.scrubbed)


def clean_if_due(store: Store, limits: WorkflowMemorySettings) -> Cleaned | None:
    """Clean up by the limits of em.yaml, at most once an hour."""
    query = EventQuery(stream=WORKFLOW_CLEAN_UP, kinds=[CLEANED], limit=1, newest=True)
    for event in store.read(query):
        if datetime.now(UTC) - event.at < EVERY:
            return None
    cleaned = clean(
        store,
        older_than=None if limits.keep_days is None else timedelta(days=limits.keep_days),
        max_bytes=None if limits.max_mb is None else limits.max_mb * 1e6,
        reason="em.yaml, workflow_memory",
    )
    if not cleaned.runs:
        _note(store, cleaned, "em.yaml, workflow_memory")
    return cleaned


def _note(store: Store, cleaned: Cleaned, reason: str) -> None:
    body = {
        "runs": list(cleaned.runs),
        "events": cleaned.events,
        "bytes": cleaned.bytes,
        "reason": reason,
    }
    store.commit(Commit(events=[Draft(stream=WORKFLOW_CLEAN_UP, kind=CLEANED, body=body)]))


OVER = ("ok", "failed", "cancelled", "forgotten")


def _chosen(
    store: Store, older_than: timedelta | None, max_bytes: float | None
) -> dict[str, Summary]:
    """Choose the runs to erase, oldest first. Reads only those, not the runs that stay."""
    every = SummaryQuery(noun="workflow", oldest=True)
    chosen: dict[str, Summary] = {}
    if older_than is not None:
        before = datetime.now(UTC) - older_than + timedelta(microseconds=1)
        until = msgspec.structs.replace(every, until=before)
        chosen |= {run.id: run for run in store.summaries.read(until)}
    if max_bytes is not None:
        too_much = sum(one.size for one in store.summaries.totals(every)) - max_bytes
        for run in store.summaries.read(every):
            if too_much <= 0:
                break
            too_much -= run.size
            chosen[run.id] = run
    return chosen


def _events(store: Store, run: Summary) -> list[Event]:
    found = store.read(EventQuery(stream=run.stream))
    return [event for event in found if event.body is not None and event.kind != "erased"]


def _left(store: Store, runs: Mapping[str, Summary]) -> dict[str, str]:
    """Return the runs that can't be erased, with the reason."""
    left = {run.id: "it is not over" for run in runs.values() if run.status not in OVER}
    owners = {
        event.id: run.id
        for run in runs.values()
        if run.id not in left
        for event in _events(store, run)
    }
    uses = list(_uses(store, owners))
    more = True
    while more:
        # Who stays for one run's sake may be what another is needed for.
        more = False
        for owner, user, told in uses:
            if owner not in left and (user in left or user not in runs):
                left[owner] = f"{told} refers to it"
                more = True
    return left


def _uses(store: Store, owners: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each use of a run by something else: the run, the user's run, and its name."""
    found = store.holders(list(owners))
    ids = sorted({one.holder for one in found if one.noun == "events"})
    users = {event.id: run_id_of(event) for event in _steps(store, ids)}
    for source, noun, holder in found:
        if noun == "artefacts":
            yield owners[source], "", holder
        elif users.get(holder, owners[source]) != owners[source]:
            yield owners[source], users[holder], f"run {users[holder]}"


def _steps(store: Store, ids: Sequence[str]) -> Iterator[Event]:
    """Read those of these events that are steps of runs, or the end of one."""
    kinds = ("step_started", "step_done", "run_paused", "run_ended")
    for start in range(0, len(ids), 500):
        for event in store.read(EventQuery(ids=ids[start : start + 500])):
            if event.kind in kinds and event.body is not None:
                yield event


class WorkflowOptions(TypedDict, total=False):
    """Options of starting and resuming."""

    answers: Mapping[str, Json] | None
    """A person's answers, by the names of steps."""
    on_step: Callable[[StepReport], None] | None
    """Called with the report of each step that ended."""
    on_start: Callable[[str], None] | None
    """Called with the name of each step that begins."""
    resume_with: str
    """The options that `em resume` needs again, stored to be shown."""
    subject: str | None
    """Who the run is about: forgetting the subject forgets the run. A resumed run keeps its own."""


PATIENCE = 30.0
"""Seconds for which a run waits for a database that went away, instead of failing."""

MOST_READY = 256
"""The number of planned workflows in the cache."""


class _Ready(NamedTuple):
    """A checked workflow, its plan, and the first body of its runs."""

    workflow: WorkflowDef
    plan: Plan
    body: Json

    @classmethod
    def of(cls, workflow: WorkflowDef) -> "_Ready":
        definition = msgspec.to_builtins(workflow)
        text = msgspec.json.encode(definition).decode()
        body = {"workflow": workflow.name, "hash": workflow.hash, "definition": text}
        return cls(workflow, plan_of(definition), body)


_READY: dict[int, _Ready] = {}
"""Workflows that were checked and planned already, by the identity of their definition.

Each entry holds its definition, so that no other object can get that identity. Definitions are
immutable, and `WorkflowFile` makes one for each text of a file: a changed file has others.
"""


class Workflows:
    """The workflows of a file, run in one memory.

    file: the YAML file; em.yaml by default. client: one LLM client for every provider. sources:
    where needs from outside the run are fetched.
    """

    def __init__(
        self,
        store: Store,
        *,
        file: str | Path | None = None,
        tools: Tools = None,
        client: LlmClient | None = None,
        settings: Settings | None = None,
        allow: AllowSettings | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.store = store
        self.file = WorkflowFile(file)
        self.settings = Settings.load() if settings is None else settings
        self.tools = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._allow = self.settings.allow if allow is None else allow
        self._sources = sources or Sources()
        self.models = Models(self.settings, client)
        # The tools that were found to fit, by the identity of the workflow's definition.
        self._fitting: dict[int, list[Tool | None]] = {}

    def start(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        run_id: str | None = None,
        **options: Unpack[WorkflowOptions],
    ) -> WorkflowResult:
        """Run a workflow. A failing step is reported in the result; raises if it can't run at all.

        With the `run_id` of an existing run, resume that run, or return its result if it is over:
        starting it again does no harm.
        """
        if run_id is not None and self.store.head(run_stream(run_id))[0]:
            return self._again(name, params, prompt, run_id, options)
        workflow = self.file.workflow(name)
        return self.start_this(workflow, params, prompt=prompt, run_id=run_id, **options)

    def start_this(
        self,
        workflow: WorkflowDef,
        params: Mapping[str, Any] | None = None,
        *,
        prompt: str | None = None,
        run_id: str | None = None,
        **options: Unpack[WorkflowOptions],
    ) -> WorkflowResult:
        """Run a workflow definition."""
        ready = self._planned(workflow)
        given = check_params(workflow, params or {})
        run_id = run_id or new_id()
        body: Json = {**ready.body, "input": given}
        said = prompt_of(workflow, given, prompt)
        if prompt is not None:
            body["prompt"] = prompt
        if options.get("resume_with"):
            body["resume_with"] = options["resume_with"]
        return self._run(ready.plan, given, said, run_id, [(WORKFLOW_STARTED, body)], None, options)

    def resume(
        self,
        run_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        prompt: str | None = None,
        retry: bool = False,
        by: str = "",
        **options: Unpack[WorkflowOptions],
    ) -> WorkflowResult:
        """Resume a run that was interrupted or waits; return the result of one that is over.

        No completed step runs again. `retry`: resume a run that failed or was cancelled at the step
        where it stopped; `by`: who wants it, for the log. Pass `params` and `prompt` again if they
        held a secret: the journal does not store secrets.
        """
        past = PastWorkflow.read(self.store, run_id)
        if retry or past.status == "forgotten":
            refuse_partial(past.run, WorkflowError)
        is_retried = retry and past.status in RETRIED
        if past.run.is_over and not is_retried:
            if options.get("answers"):
                raise WorkflowError(f"this run is over: {past.status}", place=f"run {run_id}")
            return past.result()
        if params is not None:
            past.params = same_input(past.run, dict(params))
            past.run.input = past.params
        refuse_lost_secrets(past.run, options.get("answers") or {})
        plan = plan_of(past.definition)
        said = past.prompt if prompt is None else prompt
        if said is not None and MARKER.search(said):
            raise WorkflowError(
                "the prompt of this run held a secret, which the journal does not store",
                place=f"run {run_id}",
                fix="pass the prompt again (prompt=, or --prompt)",
            )
        notes = [retried_note(by)] if is_retried else []
        return self._run(plan, past.params, said, run_id, notes, past, options)

    def result(self, run_id: str) -> WorkflowResult:
        """Return the result of a run so far."""
        return PastWorkflow.read(self.store, run_id).result()

    def names(self) -> list[WorkflowDef]:
        """Return the workflows of the file."""
        return [self.file.workflow(name) for name in self.file.values()]

    def validate(self, name: str | None = None, *, with_tools: bool = False) -> list[Problem]:
        """Return every problem of the workflows of the file, or of one."""
        return validate_file(self.file, name, self.tools if with_tools else None)

    def plan(self, name: str) -> Plan:
        """Check a workflow and return its plan."""
        return self._planned(self.file.workflow(name)).plan

    def dry_run(
        self, name: str, params: Mapping[str, Any] | None = None, *, prompt: str | None = None
    ) -> list[Rehearsed]:
        """Return every step as it would be called, with prompts filled in. Calls nothing."""
        return rehearse(self.file, name, self.tools, params or {}, prompt)

    def inspect(self, run_id: str, count: CountTokens = about) -> RunView:
        """Return what each step of a run was given and left, with tokens."""
        return inspect_run(self.store, run_id, count)

    def runs(
        self, limit: int | None = None, before: Cursor | None = None, **chosen: Unpack[RunFilter]
    ) -> Sequence[RunSummary]:
        """List runs in short, newest first."""
        return find_runs(self.store, "workflow", limit=limit, before=before, **chosen).runs

    def statistics(self, **chosen: Unpack[RunFilter]) -> Sequence[Totals]:
        """Return what runs left in memory, by workflow: runs, steps and bytes."""
        return self.store.summaries.totals(run_query("workflow", **chosen))

    def cleanup(self, days_old: float = 30, *, dry_run: bool = False) -> Cleaned:
        """Erase what old finished runs left, unless something refers to it."""
        return clean(self.store, older_than=timedelta(days=days_old), dry_run=dry_run)

    def _again(
        self,
        name: str,
        params: Mapping[str, Any] | None,
        prompt: str | None,
        run_id: str,
        options: WorkflowOptions,
    ) -> WorkflowResult:
        past = PastWorkflow.read(self.store, run_id)
        before = past.prompt or ""
        same = prompt is None or before == prompt or MARKER.search(before) is not None
        if past.workflow != name or not same:
            raise UsageError(
                f"the run {run_id!r} belongs to {past.workflow!r}, or has another prompt",
                place="run_id",
                fix="leave run_id out, or pass another",
            )
        given = None
        if params is not None:
            given = check_params(plan_of(past.definition).workflow, params)
            same_input(past.run, given)
        return self.resume(run_id, params=given, prompt=prompt, **options)

    def _planned(self, workflow: WorkflowDef) -> "_Ready":
        """Check and plan a workflow, once; check again that its tools fit if they are others."""
        key, ready = id(workflow), _READY.get(id(workflow))
        if ready is None:
            refuse_invalid(workflow, self.tools, self.file.place)
            if len(_READY) >= MOST_READY:
                _READY.clear()
            ready = _READY[key] = _Ready.of(workflow)
            return ready
        tools = [self.tools.get(step.tool) for step in workflow.steps]
        if self._fitting.get(key) != tools:
            refuse_misfits(workflow, self.tools, self.file.place)
            if len(self._fitting) >= MOST_READY:
                self._fitting.clear()
            self._fitting[key] = tools
        return ready

    def _run(
        self,
        plan: Plan,
        params: Json,
        prompt: str | None,
        run_id: str,
        notes: list[Note],
        past: PastWorkflow | None,
        options: WorkflowOptions,
    ) -> WorkflowResult:
        answers = dict(options.get("answers") or {})
        if answers:
            notes += _answered(plan, answers)
        restored = None if past is None else past.run.restored
        known = {**(restored.answers if restored else {}), **answers}
        subject = options.get("subject") if past is None else past.run.subject
        secrets, servers = Secrets(), Servers()
        secrets.learn(params)
        registered = self.tools.named(plan.tools)
        retry = any(kind == "run_retried" for kind, _ in notes)
        binding = Binding(
            self, plan, self._allow, secrets, known, servers, registered, subject, retry=retry
        )
        conductor = binding.conductor = Conductor(
            plan,
            RunContext(prompt, params, [step.name for step in plan.steps]),
            partial(self._fetched, subject),
            run_id,
            restored=restored,
            done=past.done() if past else None,
            fetched=past.fetched() if past else None,
        )
        tools = conductor.recorded(binding.tools)
        pos = past.run.pos if past else 0
        journal = Journal(self.store, run_id, pos, PATIENCE, subject=subject)
        machine = Ensemble(
            plan.program,
            run_id=run_id,
            tools=tools,
            udfs={},
            answers=answers,
            on_step=secrets.telling(options.get("on_step")),
            on_start=options.get("on_start"),
            notes=notes,
            restored=restored,
            secrets=secrets,
            conductor=conductor,
            write=journal.write,
        )
        with servers:
            driven = drive_run(plan.workflow.name, machine.run({}), journal.write, None)
            result = secrets.result(driven)
        self._clean()
        return _told(plan, conductor, result)

    def _fetched(self, subject: str | None, need: Need, asked: Sequence[Any]) -> Sourced:
        """Fetch a need from outside the run; recall is about the run's subject, unless it says."""
        words = [as_text(one) for one in asked]
        if need.kind == "run":
            return Sourced(*latest_output(self.store, words[0], words[1]))
        if need.kind == "recall" and self._sources.recall is not None:
            about = words[1] if words[1:] else subject
            found = self._sources.recall(words[0], need.k, None if need.everybody else about)
            return Sourced("\n".join(map(as_text, found.value)), found.from_events)
        if need.kind == "heuristics" and self._sources.heuristics is not None:
            return self._sources.heuristics(words[0], need.k)
        if need.kind == "state" and self._sources.state is not None:
            return self._sources.state(words[0], words[1])
        raise no_source(need.kind)

    def recall(self, query: Any, k: int = 5, subject: str | None = None, **only: Any) -> Sourced:
        """Search for the tool `recall`."""
        if self._sources.recall is None:
            raise no_source("recall")
        return self._sources.recall(as_text(query), int(k), subject, **only)

    def _clean(self) -> None:
        """Clean up if em.yaml sets a limit."""
        limits = self.settings.workflow_memory
        if limits.keep_days is None and limits.max_mb is None:
            return
        with suppress(StoreError):  # the run is over and stays so; the next one cleans up
            clean_if_due(self.store, limits)


def _own(plan: Plan, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers for this run; those for an inner routine are in its own journal."""
    return {
        name: said
        for name, said in answers.items()
        if "/" not in name or name.partition("/")[0] not in plan.program.tool_names
    }


def _answered(plan: Plan, answers: Mapping[str, Any]) -> list[Note]:
    """Check that answers match a question, an inner routine or a pending call; and note them."""
    asking = [step.name for step in plan.steps if step.prompt is not None]
    own = _own(plan, answers)
    check_steps(plan.program, own, asking=asking)
    stored = without_secrets(plan.questions, own)
    return [answered_note(keepable(stored, "answers"))]


def _told(plan: Plan, conductor: Conductor, result: RunResult) -> WorkflowResult:
    return WorkflowResult.of(
        plan.workflow.name,
        result,
        status=result.status,
        steps=result.steps,
        outputs=conductor.outputs,
        warnings=tuple(dict.fromkeys(conductor.warnings)),
    )
