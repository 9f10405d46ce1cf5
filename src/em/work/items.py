"""Doing one item of a job, once or again: what began goes on, and what is over stays as it is.

A run is known by its id: one that began goes on from its journal, one that is over is only read.
A checkpoint or a compilation that is made again finds nothing new.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from em.errors import NotFound
from em.memory import Memory
from em.runner.journal import how_to_resume, read_run, stream_of
from em.settings import Settings
from em.values.canonical import Json
from em.work.job import Item, Job, Kind

if TYPE_CHECKING:
    from em.llm.interface import LlmClient
    from em.runner.engine import Tools
    from em.runner.run import RunResult


class Ended(NamedTuple):
    """What became of an item: `why` it waits or failed."""

    status: str
    why: str = ""


DONE = Ended("done")


class Doing(NamedTuple):
    """What a worker has to do items with."""

    memory: Memory
    tools: "Tools"
    settings: Settings
    limited: "Callable[[LlmClient], LlmClient]"
    """A client that is asked only while its provider has room."""

    def client(self, how: Json) -> "LlmClient | None":
        """The model that a job may ask, if it may."""
        if not how.pop("llm", False):
            return None
        from em.llm import get_llm_client

        return self.limited(get_llm_client(settings=self.settings))


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
        return Ended("failed", _failure(msgspec.structs.asdict(result.failure)))
    return DONE


def _failure(failure: Mapping[str, Any]) -> str:
    return f"step {failure.get('step_id')}: {failure.get('message')}"


def _checkpoint(doing: Doing, job: Job, item: Item) -> Ended:
    how = dict(job.how)
    client = doing.client(how)
    doing.memory.subjects.checkpoint(item.id, client=client, **how)
    return DONE


def _compile(doing: Doing, job: Job, item: Item) -> Ended:
    how = dict(job.how)
    client = doing.client(how)
    doing.memory.compile(item.traces, client=client, **how)
    return DONE


def _workflow(doing: Doing, job: Job, item: Item) -> Ended:
    from em.workflows.definition import read_workflow

    workflows = doing.memory.workflows(tools=doing.tools)
    workflows.models.limited = doing.limited
    if doing.memory.store.head(stream_of(item.id))[0]:
        result = workflows.resume(item.id, retry=bool(job.how.get("retry")))
    else:
        workflow = read_workflow(job.how["definition"], f"workflow {job.name}")
        result = workflows.start_this(workflow, item.input, prompt=item.prompt, run_id=item.id)
    if result.status == "needs_input":
        return Ended("waiting", f"em workflow resume {item.id}")
    if result.status == "failed" and result.failure is not None:
        return Ended("failed", _failure(msgspec.structs.asdict(result.failure)))
    return DONE


_WAYS: Mapping[Kind, Callable[[Doing, Job, Item], Ended]] = {
    "routine": _routine,
    "workflow": _workflow,
    "checkpoint": _checkpoint,
    "compile": _compile,
}
