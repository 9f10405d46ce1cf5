"""Making jobs: what is not there, or can't be run, is refused here, before anything is queued."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from em.errors import InvalidWorkflow
from em.log.event import check_name
from em.memory import Memory
from em.runner.library import find_routine
from em.state.parallel import subjects_of
from em.values.canonical import Json
from em.values.ids import new_ids
from em.work.job import Item, Job

T = TypeVar("T")


def routine_jobs(
    memory: Memory, routine: str, inputs: Iterable[Json | None], chunk: int
) -> Iterator[Job]:
    """Runs of a kept routine, in the version of now."""
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
    """Runs of a workflow as it is written now: a worker need not have its file."""
    from em.workflows.file import WorkflowFile
    from em.workflows.parameters import check_params
    from em.workflows.problems import validate_file

    source = WorkflowFile(file)
    found = source.workflow(workflow)
    problems = [one for one in validate_file(source, workflow) if one.severity == "error"]
    if problems:
        raise InvalidWorkflow(
            str(problems[0]),
            place=source.place,
            fix="`em workflow validate` lists everything that is wrong with it",
            problems=list(map(str, problems)),
        )
    how = {"definition": msgspec.to_builtins(found)}
    checked = (check_params(found, given or {}) for given in params)
    for part in portions(_runs(checked, prompt), chunk):
        yield Job(kind="workflow", name=workflow, items=part, how=how)


def checkpoint_jobs(
    memory: Memory, subjects: Iterable[str] | None, chunk: int, how: Json
) -> Iterator[Job]:
    """Checkpoints of subjects, or of all that something was observed about."""
    names = subjects_of(memory.store) if subjects is None else subjects
    items = (Item(id=check_name(name, "subject")) for name in names)
    for part in portions(items, chunk):
        yield Job(kind="checkpoint", items=part, how=how)


def compile_jobs(tasks: Mapping[str, Sequence[str]], chunk: int, how: Json) -> Iterator[Job]:
    """Routines of traces: for each task, the ids of the attempts at it."""
    items = (Item(id=task, traces=list(ids)) for task, ids in tasks.items())
    for part in portions(items, chunk):
        yield Job(kind="compile", items=part, how=how)


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """The things in lists of so many."""
    left = iter(things)
    while portion := list(islice(left, size)):
        yield portion


def _runs(inputs: Iterable[Any], prompt: str | None = None) -> list[Item]:
    given = [{} if one is None else one for one in inputs]
    return [
        Item(id=run_id, input=one, prompt=prompt)
        for run_id, one in zip(new_ids(len(given)), given, strict=True)
    ]
