"""Job: queued work, as an event in the log. The queue itself stores only the job's id."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, cast

import msgspec

from em.errors import InputError, UsageError, WorkError
from em.log.event import Event, EventQuery, job_stream, run_stream, trace_stream
from em.log.kinds import Edge, event_body, event_flow
from em.log.summary import Summary, event_summary
from em.memory import Memory
from em.redaction.redactor import Redactor
from em.values.canonical import Json, canonical
from em.values.leaves import differences

Kind = Literal["routine", "workflow", "checkpoint", "compile", "reflect", "embed"]
State = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""The state of a job. `waiting`: it has ended, and some of its runs wait for an answer."""
OVER = frozenset({"waiting", "done", "failed", "cancelled"})
OPEN = frozenset({"queued", "running"})
EVERYTHING_ELSE = "*"
"""The item of an embedding job for lessons and for texts without a subject."""


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


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its state. problem: why the whole job could not run."""

    id: str
    state: State
    kind: str = ""
    name: str = ""
    subject: str | None = None
    items: int = 0
    queue: str = ""
    worker: str | None = None
    attempts: int = 0
    queued_at: datetime | None = None
    ended_at: datetime | None = None
    report: JobReport | None = None
    problem: str = ""


@event_body("job_cancelled")
class JobCancelled(msgspec.Struct, frozen=True):
    """Body of an event: a job stops before its next step. by: who wanted it."""

    by: str = ""


@event_summary("job_cancelled")
def _summarise_cancellation(made: Summary, _body: Json, at: datetime) -> None:
    if made.ended is None:
        made.status, made.ended = "cancelled", at


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
    shown = redactor.value(value)
    if shown != value:
        hidden = next((at for at, *_ in differences(value, shown) if at), "the whole value")
        raise InputError(
            "this looks like a secret, and secrets are never stored in the log",
            place=f"{place}, {hidden}",
            fix="leave it out: make it a secret input of the routine, and set it in the "
            f"environment of the {where}",
        )


class Queued(NamedTuple):
    """A job as it was read: with the id of its event, and its subject.

    pos: the position of the last event before its report: only one worker can report.
    is_cancelled: a person cancelled it.
    """

    job: Job
    event_id: str
    subject: str | None
    pos: int = 1
    is_cancelled: bool = False

    @property
    def runs(self) -> list[str]:
        """The ids of its runs."""
        has_runs = self.job.kind in ("routine", "workflow")
        return [item.id for item in self.job.items] if has_runs else []


def read_job(memory: Memory, job_id: str) -> Queued:
    """Read a job from the log."""
    kinds = ["job_queued", "job_cancelled"]
    query = EventQuery(stream=job_stream(job_id), kinds=kinds)
    found: Queued | None = None
    for event in memory.store.read(query):
        if event.body is None:
            raise WorkError("the content of this job was forgotten", place=f"job {job_id}")
        if found is None:
            found = Queued(msgspec.convert(event.body, Job), event.id, event.subject)
        else:
            found = found._replace(is_cancelled=True, pos=event.pos)
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
