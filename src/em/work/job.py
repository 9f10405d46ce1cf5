"""Job: work that is queued, as the log keeps it. The queue itself knows only its id."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from em.log.kinds import event_body
from em.values.canonical import Json

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


def job_stream(job_id: str) -> str:
    """The stream of a job."""
    return f"job/{job_id}"
