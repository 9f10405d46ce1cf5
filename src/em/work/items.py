"""Doing one item of a job, once or again: what began goes on, and what is over stays as it is.

A run is known by its id: one that began goes on from its journal, one that is over is only read.
A checkpoint or a compilation that is made again finds nothing new.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from em.errors import NotFound, WorkError
from em.memory import Memory
from em.models.job import Item, Job, Kind
from em.runner.journal import how_to_resume, read_run

if TYPE_CHECKING:
    from em.llm.protocol import LlmClient
    from em.models.run import RunResult
    from em.runner.engine import Tools


class Ended(NamedTuple):
    """What became of an item: `why` it waits or failed."""

    status: str
    why: str = ""


DONE = Ended("done")


class Doing(NamedTuple):
    """What a worker has to do items with."""

    memory: Memory
    tools: "Tools" = None
    client: "Callable[[], LlmClient] | None" = None


def do(doing: Doing, job: Job, item: Item) -> Ended:
    """Do one item. Raises what keeps it from being done."""
    return _WAYS[job.kind](doing, job, item)


def _routine(doing: Doing, job: Job, item: Item) -> Ended:
    memory = doing.memory
    try:
        past = read_run(memory.store, item.id)
    except NotFound:
        return _ended(memory.run(job.name, item.input, doing.tools, run_id=item.id))
    if past.status == "running":
        return _ended(memory.resume(item.id, doing.tools))
    if past.status == "needs_input":
        return Ended("waiting", how_to_resume(item.id, past.resume_with))
    if past.status == "failed":
        failure = past.notes[-1][1].get("failure") or {}
        return Ended("failed", _failure(failure))
    return DONE


def _ended(result: "RunResult") -> Ended:
    if result.status == "needs_input":
        return Ended("waiting", how_to_resume(result.run_id, ""))
    if result.status == "failed" and result.failure is not None:
        failure = result.failure
        return Ended(
            "failed",
            _failure({"step_id": failure.step_id, "message": failure.message}),
        )
    return DONE


def _failure(failure: Mapping[str, Any]) -> str:
    return f"step {failure.get('step_id')}: {failure.get('message')}"


def _checkpoint(doing: Doing, job: Job, item: Item) -> Ended:
    how = dict(job.how)
    client = doing.client() if how.pop("llm", False) and doing.client is not None else None
    doing.memory.subjects.checkpoint(item.id, client=client, **how)
    return DONE


def _compile(doing: Doing, job: Job, item: Item) -> Ended:
    how = dict(job.how)
    client = doing.client() if how.pop("llm", False) and doing.client is not None else None
    name = item.id if how.pop("named", False) else None
    doing.memory.compile(item.traces, name=name, client=client, **how)
    return DONE


def _workflow(_doing: Doing, _job: Job, _item: Item) -> Ended:
    raise WorkError("this em has no workflows")


_WAYS: Mapping[Kind, Callable[[Doing, Job, Item], Ended]] = {
    "routine": _routine,
    "workflow": _workflow,
    "checkpoint": _checkpoint,
    "compile": _compile,
}
