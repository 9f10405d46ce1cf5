"""Job: work that is queued, as the log keeps it. The queue itself knows only its id."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import msgspec

from em.errors import InputError, UsageError, WorkError
from em.log.event import EventQuery
from em.log.kinds import event_body
from em.log.stream import job_stream
from em.memory import Memory
from em.redaction.redactor import Redactor
from em.values.canonical import Json, canonical

Kind = Literal["routine", "workflow", "checkpoint", "compile"]


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing of a job: a run, a subject, or a routine to be compiled.

    id: of the run, the name of the subject, or what the routine is called.
    input: what a run is given. prompt: what its user said. traces: what a routine is made of.
    """

    id: str
    input: Json = {}
    prompt: str | None = None
    traces: Sequence[str] = ()


@event_body("job_queued")
class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of an event: a worker is to do this, one item after the other.

    name: the routine or workflow that runs. how: more that doing it may be told.
    """

    kind: Kind
    items: Sequence[Item]
    name: str = ""
    how: Json = {}


@event_body("job_done")
class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an event: a job is over.

    waiting: runs that ask something, by id. failed: what could not be done, and why.
    """

    done: int = 0
    waiting: dict[str, str] = {}
    failed: dict[str, str] = {}
    worker: str = ""


def body_of(job: Job, redactor: Redactor) -> Json:
    """The body of a job's event, once it is sure that a worker will find it whole."""
    if not job.items:
        raise UsageError("there is nothing to do in this job", place="items")
    place = f"{job.kind} {job.name}".rstrip()
    body = cast("Json", canonical(msgspec.structs.asdict(job), place)[1])
    hidden = first_difference(body, redactor.value(body))
    if hidden is not None:
        raise InputError(
            "this looks like a secret: what is queued is kept, and secrets are not",
            place=f"{place}, {hidden}",
            fix="leave it out, and let the worker have it: as a secret input of the routine, "
            "or in its environment",
        )
    return body


def read_job(memory: Memory, job_id: str) -> Job:
    """What a job is to do, from the log."""
    query = EventQuery(stream=job_stream(job_id), kinds=["job_queued"])
    for event in memory.store.read(query):
        if event.body is None:
            raise WorkError("what this job was to do was forgotten", place=f"job {job_id}")
        return msgspec.convert(event.body, Job)
    raise WorkError(
        "the log does not know this job",
        place=f"job {job_id}",
        fix="let the worker use the log that it was queued beside (--db)",
    )


def read_report(memory: Memory, job_id: str) -> JobReport | None:
    """What became of a job, from the log; nothing where it did not end, or was forgotten."""
    query = EventQuery(stream=job_stream(job_id), kinds=["job_done"], limit=1, newest=True)
    for event in memory.store.read(query):
        return None if event.body is None else msgspec.convert(event.body, JobReport)
    return None


def first_difference(one: Any, other: Any, place: str = "") -> str | None:
    """Where two JSON values begin to differ; None where they are the same."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        parts: Iterable[tuple[str, Any, Any]] = ((f".{key}", one[key], other[key]) for key in one)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = ((f"[{n}]", *pair) for n, pair in enumerate(zip(one, other, strict=True)))
    else:
        return None if one == other else place.lstrip(".") or "all of it"
    for name, left, right in parts:
        found = first_difference(left, right, place + name)
        if found is not None:
            return found
    return None
