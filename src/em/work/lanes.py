"""Lanes: the queues of DBOS, and how many of their jobs run at a time."""

from collections.abc import Callable
from typing import Any

from em.errors import UsageError
from em.log.event import check_name
from em.settings import WorkSettings
from em.work.job import Job

DEFAULT = "default"
"""The queue of what is queued without naming one."""


def lane_of(job: Job, queue: str | None, settings: WorkSettings) -> str:
    """The queue a job goes to: a workflow whose runs are limited has one of its own."""
    if job.kind == "workflow" and job.name in settings.limits.workflows:
        if queue is not None:
            raise UsageError(
                f"the workflow {job.name!r} has a limit, and so a queue of its own",
                place="queue",
                fix=f"leave the queue out; a worker can name it as workflow:{job.name}",
            )
        return f"workflow:{job.name}"
    if queue is None:
        return DEFAULT
    if queue.startswith("workflow:"):
        raise UsageError(
            f"{queue!r} can't be the name of a queue",
            place="queue",
            fix="it is the one of a workflow that has a limit (work.limits.workflows)",
        )
    return check_lane(queue)


def check_lane(name: str) -> str:
    """A name that a queue can have; those with an underscore before them are DBOS's own."""
    check_name(name, "queue")
    if name.startswith("_"):
        raise UsageError(f"{name!r} can't be the name of a queue", place="queue")
    return name


def register(
    make: Callable[..., Any], lane: str, settings: WorkSettings, concurrency: int | None = None
) -> None:
    """Make a queue known; one that is there keeps what was said of it, unless it is said anew."""
    limit = settings.limits.workflows.get(lane.removeprefix("workflow:"))
    limit = limit if lane.startswith("workflow:") else None
    at_a_time = concurrency or settings.concurrency
    make(
        lane,
        worker_concurrency=at_a_time if limit is None else min(at_a_time, limit),
        global_concurrency=limit,
        polling_interval_sec=settings.poll,
        on_conflict="never_update" if limit is None and concurrency is None else "always_update",
    )
