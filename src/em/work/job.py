"""Job: queued work, as an event in the log. The queue itself stores only the job's id."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from em.errors import InputError, InvalidWorkflow, UsageError, WorkError
from em.log.event import Event, EventQuery, check_name, job_stream, run_stream, trace_stream
from em.log.kinds import Edge, event_body, event_flow
from em.log.summary import Summary, event_summary
from em.memory import Memory
from em.redaction.redactor import Redactor
from em.runner.package import find_routine
from em.state.portions import subjects_of
from em.values.canonical import Json, canonical
from em.values.ids import new_ids

Kind = Literal["routine", "workflow", "checkpoint", "compile", "reflect", "embed"]
State = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""The state of a job. `waiting`: it has ended, and some of its runs wait for an answer."""
EVERYTHING_ELSE = "*"
"""The item of an embedding that stands for lessons and for what is about nobody."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of a job: a run, a subject to checkpoint or embed, a task, or a trace to reflect on.

    id: the id of the run or the trace, the subject's name, or the task.
    input, prompt: the input of a run, and what its user asked for.
    traces: the ids of the traces to compile.
    """

    id: str
    input: Json = {}
    prompt: str | None = None
    traces: Sequence[str] = ()


@event_body("job_queued")
class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of an event: a job was queued. A worker runs its items one after the other.

    name: the routine or workflow to run. how: options, by name. from_events: what it was made of.
    """

    kind: Kind
    items: Sequence[Item]
    name: str = ""
    how: Json = {}
    from_events: Sequence[str] = ()


@event_summary("job_queued")
def _summarise_start(made: Summary, body: Json, _at: datetime) -> None:
    made.name, made.status, made.calls = body.get("name", ""), "queued", len(body["items"])
    made.shown = {"kind": body["kind"]}


@event_body("job_done")
class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an event: a job has ended.

    done: how many items are done.
    waiting: the runs that wait for an answer, each with the command that resumes it.
    failed: the items that failed, each with its reason.
    """

    done: int = 0
    waiting: dict[str, str] = {}
    failed: dict[str, str] = {}
    worker: str = ""
    from_events: Sequence[str] = ()

    @property
    def total(self) -> int:
        """How many items were run."""
        return self.done + len(self.waiting) + len(self.failed)


@event_body("job_cancelled")
class JobCancelled(msgspec.Struct, frozen=True):
    """Body of an event: a job stops before its next step. by: who wanted it."""

    by: str = ""


@event_summary("job_cancelled")
def _summarise_cancellation(made: Summary, _body: Json, at: datetime) -> None:
    if made.ended is None:
        made.status, made.ended = "cancelled", at


@event_body("job_split")
class JobSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an event: a job took too long; another one does its items from `at` on."""

    at: int
    rest: str
    from_events: Sequence[str] = ()


@event_summary("job_done")
def _summarise_end(made: Summary, body: Json, at: datetime) -> None:
    made.ended, made.failed = at, len(body.get("failed") or ())
    is_waiting = bool(body.get("waiting")) and not made.failed
    made.status = "waiting" if is_waiting else "failed" if made.failed else "done"


@event_flow("job_queued")
def made_by_job(events: Sequence[Event]) -> Iterator[Edge]:
    """Yield the edges from a job to its report and its runs, which hold what it was queued with."""
    first = events[0]
    for event in events[1:]:
        yield first.id, event.id
        if event.kind == "job_split" and event.body is not None:
            yield first.id, job_stream(event.body["rest"])
    body = first.body or {}
    if body.get("kind") in ("routine", "workflow"):
        for item in body["items"]:
            yield first.id, run_stream(item["id"])


def body_of(job: Job, redactor: Redactor) -> Json:
    """Return the body of a job's event. Refuse a job that redaction would change."""
    if not job.items:
        raise UsageError("expected a job with at least one item, found none", place="items")
    place = f"{job.kind} {job.name}".rstrip()
    body = cast("Json", canonical(msgspec.structs.asdict(job), place)[1])
    refuse_secrets(body, redactor, place, "worker")
    return body


def refuse_secrets(value: Json, redactor: Redactor, place: str, where: str) -> None:
    """Refuse a value that redaction would change: what acts on it would act on the marker.

    where: whose environment can have the secret instead.
    """
    hidden = first_difference(value, redactor.value(value))
    if hidden is not None:
        raise InputError(
            "this looks like a secret, and secrets are never stored in the log",
            place=f"{place}, {hidden}",
            fix="leave it out: make it a secret input of the routine, and set it in the "
            f"environment of the {where}",
        )


class Queued(NamedTuple):
    """A job as it was read: with the id of its event, and its subject.

    rest: the job that does the items which were split off; they are not in `job`.
    pos: the position of the last event before its report: only one worker can report.
    is_cancelled: a person cancelled it.
    """

    job: Job
    event_id: str
    subject: str | None
    rest: str = ""
    pos: int = 1
    is_cancelled: bool = False

    @property
    def runs(self) -> list[str]:
        """The ids of its runs."""
        has_runs = self.job.kind in ("routine", "workflow")
        return [item.id for item in self.job.items] if has_runs else []


def read_job(memory: Memory, job_id: str) -> Queued:
    """Read a job from the log."""
    kinds = ["job_queued", "job_split", "job_cancelled"]
    query = EventQuery(stream=job_stream(job_id), kinds=kinds)
    found: Queued | None = None
    for event in memory.store.read(query):
        if event.body is None:
            raise WorkError("the content of this job was forgotten", place=f"job {job_id}")
        if found is None:
            found = Queued(msgspec.convert(event.body, Job), event.id, event.subject)
        elif event.kind == "job_cancelled":
            found = found._replace(is_cancelled=True, pos=event.pos)
        else:
            split = msgspec.convert(event.body, JobSplit)
            job = msgspec.structs.replace(found.job, items=found.job.items[: split.at])
            found = found._replace(job=job, rest=split.rest, pos=event.pos)
    if found is not None:
        return found
    raise WorkError(
        "this job is not in the log",
        place=f"job {job_id}",
        fix="start the worker with the database that the job was queued in (--db)",
    )


def read_report(memory: Memory, job_id: str) -> JobReport | None:
    """Read a job's report from the log. None if the job has not ended, or was forgotten."""
    query = EventQuery(stream=job_stream(job_id), kinds=["job_done"], limit=1, newest=True)
    for event in memory.store.read(query):
        return None if event.body is None else msgspec.convert(event.body, JobReport)
    return None


def failed_sources(memory: Memory, job: Job, report: JobReport) -> list[str]:
    """Return the last event of each failed run or subject: the reason may quote what it holds.

    The reasons of a compilation are about what its job names.
    """
    found: list[str] = []
    for name in report.failed:
        if job.kind in ("checkpoint", "embed"):
            query = EventQuery(subject=name, newest=True, limit=1)
        elif job.kind == "reflect":
            query = EventQuery(stream=trace_stream(name), newest=True, limit=1)
        else:
            query = EventQuery(stream=run_stream(name), newest=True, limit=1)
        if job.kind != "compile":
            found += [event.id for event in memory.store.read(query) if event.body is not None]
    return found


def first_difference(one: Any, other: Any, place: str = "") -> str | None:
    """Return the path at which two JSON values first differ; None if they are equal."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        parts: Iterable[tuple[str, Any, Any]] = ((f".{key}", one[key], other[key]) for key in one)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = ((f"[{n}]", *pair) for n, pair in enumerate(zip(one, other, strict=True)))
    else:
        return None if one == other else place.lstrip(".") or "the whole value"
    for name, left, right in parts:
        found = first_difference(left, right, place + name)
        if found is not None:
            return found
    return None


T = TypeVar("T")


def routine_jobs(
    memory: Memory, routine: str, inputs: Iterable[Json | None], chunk: int
) -> Iterator[Job]:
    """Make jobs that run a stored routine in its current version, once for each input."""
    found = find_routine(memory.store, routine)
    name = f"{found.name}@{found.version}"
    for part in portions(_runs(inputs), chunk):
        yield Job(kind="routine", name=name, items=part)


def workflow_jobs(
    memory: Memory,
    workflow: str,
    params: Iterable[Mapping[str, Any] | None],
    chunk: int,
    *,
    prompt: str | None = None,
    file: str | Path | None = None,
) -> Iterator[Job]:
    """Make jobs that run a workflow as it is written now. Workers don't need its file."""
    from em.workflows.definition import WorkflowFile, check_params
    from em.workflows.plan import validate_file

    source = WorkflowFile(file)
    found = source.workflow(workflow)
    problems = [one for one in validate_file(source, workflow) if one.severity == "error"]
    if problems:
        raise InvalidWorkflow(
            str(problems[0]),
            place=source.place,
            fix="`em workflow validate` lists all its problems",
            problems=list(map(str, problems)),
        )
    how = {"definition": msgspec.to_builtins(found)}
    checked = (check_params(found, given or {}) for given in params)
    for part in portions(_runs(checked, prompt), chunk):
        yield Job(kind="workflow", name=workflow, items=part, how=how)


def checkpoint_jobs(
    memory: Memory, subjects: Iterable[str] | None, chunk: int, how: Json
) -> Iterator[Job]:
    """Make jobs that checkpoint these subjects, or all subjects with observations."""
    names = subjects_of(memory.store) if subjects is None else subjects
    items = (Item(id=check_name(name, "subject")) for name in names)
    for part in portions(items, chunk):
        yield Job(kind="checkpoint", items=part, how=how)


def compile_jobs(
    memory: Memory, tasks: Mapping[str, Sequence[str]], chunk: int, how: Json
) -> Iterator[Job]:
    """Make jobs that compile the traces of each task, given by their ids."""
    items = (Item(id=task, traces=list(ids)) for task, ids in tasks.items())
    for part in portions(items, chunk):
        # A task is what the traces say that they are about.
        events = _first_events(memory, [trace for item in part for trace in item.traces])
        yield Job(kind="compile", items=part, how=how, from_events=events)


def reflect_jobs(
    memory: Memory, traces: Iterable[str] | None, chunk: int, how: Json
) -> Iterator[Job]:
    """Make jobs that learn lessons from these traces, or from all."""
    if traces is None:
        prefix = trace_stream("")
        traces = (name.removeprefix(prefix) for name in memory.store.streams(prefix))
    for part in portions((Item(id=check_name(one, "trace")) for one in traces), chunk):
        events = _first_events(memory, [item.id for item in part])
        yield Job(kind="reflect", items=part, how=how, from_events=events)


def embed_jobs(memory: Memory, subjects: Iterable[str] | None, chunk: int) -> Iterator[Job]:
    """Make jobs that compute the missing vectors of these subjects, or of everything."""
    names = subjects
    if names is None:
        names = [*subjects_of(memory.store), EVERYTHING_ELSE]
    for part in portions((Item(id=check_name(name, "subject")) for name in names), chunk):
        yield Job(kind="embed", items=part)


def _first_events(memory: Memory, traces: Sequence[str]) -> list[str]:
    firsts = [EventQuery(stream=trace_stream(one), limit=1) for one in traces]
    return [event.id for query in firsts for event in memory.store.read(query)]


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the things in lists of at most `size`."""
    left = iter(things)
    while portion := list(islice(left, size)):
        yield portion


def _runs(inputs: Iterable[Any], prompt: str | None = None) -> list[Item]:
    given = [{} if one is None else one for one in inputs]
    return [
        Item(id=run_id, input=one, prompt=prompt)
        for run_id, one in zip(new_ids(len(given)), given, strict=True)
    ]
