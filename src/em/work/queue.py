"""Queue: jobs for `em worker`, next to a memory's log.

A job and its report are events in the log, so they are redacted and forgotten like other events.
The queue's own tables contain only the job's id, state and worker.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
import sqlalchemy as sa

from em.errors import NotFound, UsageError, WorkError
from em.log.event import Draft, check_name, job_stream
from em.memory import Memory
from em.settings import Settings, WorkSettings
from em.store import redactor_of
from em.traces.catalogue import attempts
from em.values.canonical import Json
from em.values.ids import new_ids
from em.work.database import NAME, TASK, VERSION, Database
from em.work.job import (
    Job,
    JobReport,
    body_of,
    checkpoint_jobs,
    compile_jobs,
    portions,
    read_job,
    read_report,
    routine_jobs,
    workflow_jobs,
)

if TYPE_CHECKING:
    from dbos import EnqueueOptions, WorkflowStatus

DEFAULT = "default"
"""The queue of jobs for which no queue is named."""
CHUNK = 100
"""Subjects in one job: to queue one alone would cost more than to checkpoint it."""
AT_ONCE = 500
"""Jobs that are read or written in one transaction."""

State = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
_STATES: Mapping[str, State] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "SUCCESS": "done",
    "ERROR": "failed",
    "CANCELLED": "cancelled",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
}
OVER = frozenset({"waiting", "done", "failed", "cancelled"})


def lane_of(job: Job, queue: str | None, settings: WorkSettings) -> str:
    """Return the queue of a job. A workflow with a limit has a queue of its own."""
    if job.kind == "workflow" and job.name in settings.limits.workflows:
        if queue is not None:
            raise UsageError(
                f"the workflow {job.name!r} has a limit, and therefore a queue of its own",
                place="queue",
                fix=f"leave the queue out; its name for workers is workflow:{job.name}",
            )
        return f"workflow:{job.name}"
    if queue is None:
        return DEFAULT
    if queue.startswith("workflow:"):
        raise UsageError(
            f"{queue!r} can't be the name of a queue",
            place="queue",
            fix="workflow:… is reserved for workflows with a limit (work.limits.workflows)",
        )
    return check_lane(queue)


def check_lane(name: str) -> str:
    """Return the name if a queue can have it. A leading underscore is reserved for DBOS."""
    check_name(name, "queue")
    if name.startswith("_"):
        raise UsageError(f"{name!r} can't be the name of a queue", place="queue")
    return name


def register(
    make: Callable[..., Any], lane: str, settings: WorkSettings, concurrency: int | None = None
) -> None:
    """Register a queue with its limits. An existing queue keeps its limits without new ones."""
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


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its state. problem: why the whole job could not run."""

    id: str
    state: State
    kind: str = ""
    name: str = ""
    items: int = 0
    queue: str | None = None
    worker: str | None = None
    attempts: int = 0
    queued_at: datetime | None = None
    ended_at: datetime | None = None
    report: JobReport | None = None
    problem: str = ""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of jobs: how many have ended, of how many; and the running workers."""

    over: int
    all: int
    workers: int


class Queue:
    """The queue of a memory. A context manager. Needs the extra `distributed`."""

    def __init__(self, memory: Memory, settings: Settings | None = None) -> None:
        self._memory = memory
        settings = settings or Settings.load()
        self._settings: WorkSettings = settings.work
        self._redactor = redactor_of(settings)
        self._database = Database(memory.address)
        if not self._database.exists():
            self._database.make()
        self._client = self._database.client()
        self._known: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the queue's database. The memory stays open."""
        self._client.destroy()
        self._database.close()

    def add(
        self, jobs: Iterable[Job], queue: str | None = None, *, subject: str | None = None
    ) -> list[str]:
        """Queue all of these jobs, or none; return their ids. Invalid jobs are refused first.

        subject: who the jobs and their runs are about. Forgetting the subject forgets them.
        """
        checked = [(self._lane(job, queue), body_of(job, self._redactor)) for job in jobs]
        ids = new_ids(len(checked))
        drafts = (
            Draft(stream=job_stream(job_id), kind="job_queued", body=body, subject=subject)
            for job_id, (_, body) in zip(ids, checked, strict=True)
        )
        for portion in portions(drafts, AT_ONCE):
            self._memory.log.append_many(portion)
        with self._database.translated(), self._database.engine.begin() as connection:
            for job_id, (lane, _) in zip(ids, checked, strict=True):
                self._client.enqueue_in_transaction(connection, _options(job_id, lane))
        return ids

    def add_runs(
        self,
        routine: str,
        inputs: Iterable[Json | None],
        *,
        chunk: int = 1,
        queue: str | None = None,
        subject: str | None = None,
    ) -> list[str]:
        """Queue a run of a stored routine for each input; return the ids of the jobs.

        The routine's current version will run. chunk: runs per job, one after the other. subject:
        who they are about.
        """
        return self.add(routine_jobs(self._memory, routine, inputs, chunk), queue, subject=subject)

    def add_workflow_runs(
        self,
        workflow: str,
        params: Iterable[Mapping[str, Any] | None] = (None,),
        *,
        prompt: str | None = None,
        file: str | Path | None = None,
        chunk: int = 1,
        queue: str | None = None,
        subject: str | None = None,
    ) -> list[str]:
        """Queue a run of a workflow, as it is written now, for each set of parameters."""
        jobs = workflow_jobs(self._memory, workflow, params, chunk, prompt=prompt, file=file)
        return self.add(jobs, queue, subject=subject)

    def add_checkpoints(
        self,
        subjects: Iterable[str] | None = None,
        *,
        chunk: int = CHUNK,
        queue: str | None = None,
        how: Mapping[str, bool] | None = None,
    ) -> list[str]:
        """Queue checkpoints of these subjects, or of all.

        how: options of `Memory.checkpoint`; `llm`: use the model of the worker's settings.
        """
        return self.add(checkpoint_jobs(self._memory, subjects, chunk, dict(how or {})), queue)

    def add_compilations(
        self,
        tasks: Mapping[str, Sequence[str]] | None = None,
        *,
        chunk: int = 10,
        queue: str | None = None,
        how: Mapping[str, bool] | None = None,
    ) -> list[str]:
        """Queue the compilation of each task, given with the ids of its traces, or of all tasks.

        how: `keep_all`, as for `Memory.compile`; `llm`: use the model of the worker's settings;
            `allow_unlabelled`: also take traces that don't say whether they succeeded.
        """
        options = dict(how or {})
        if tasks is None:
            unlabelled = options.get("allow_unlabelled", False)
            tasks = attempts(self._memory.store, allow_unlabelled=unlabelled)
        return self.add(compile_jobs(self._memory, tasks, chunk, options), queue)

    def jobs(
        self,
        *,
        state: State | None = None,
        limit: int | None = 50,
        ids: Sequence[str] | None = None,
    ) -> list[JobView]:
        """List jobs, the newest first: all, those in a state, or those with these ids."""
        wanted = None
        if state is not None:
            asked = "done" if state == "waiting" else state
            wanted = [theirs for theirs, ours in _STATES.items() if ours == asked]
        found = self._list(
            status=wanted, workflow_ids=None if ids is None else list(ids), limit=limit
        )
        views = [self._view(one) for one in found]
        return [view for view in views if state is None or view.state == state]

    def job(self, job_id: str) -> JobView:
        """Return one job."""
        found = self._list(workflow_ids=[job_id])
        if not found:
            raise NotFound(f"there is no job {job_id!r}", fix="`em queue list` lists all jobs")
        return self._view(found[0])

    def what(self, job_id: str) -> Job:
        """Read the content of a job."""
        return read_job(self._memory, job_id).job

    def runs(self, jobs: Sequence[str]) -> list[str]:
        """Return the ids of the runs of these jobs. Only jobs that run something have any."""
        found = map(self.what, jobs)
        return [
            item.id for job in found if job.kind in ("routine", "workflow") for item in job.items
        ]

    def cancel(self, job_id: str) -> JobView:
        """Cancel a job. A running one stops after its current item."""
        view = self.job(job_id)
        if view.state in OVER:
            raise WorkError(f"this job has ended: {view.state}", place=f"job {job_id}")
        with self._database.translated():
            self._client.cancel_workflow(job_id)
        return self.job(job_id)

    def retry(self, job_id: str) -> str:
        """Queue the failed items of a job again, or all of a cancelled one; return the new id.

        A failed run of a routine can't be resumed: a new run starts. A failed run of a workflow
        continues at the step that failed.
        """
        view, (job, _, subject) = self.job(job_id), read_job(self._memory, job_id)
        if view.state not in ("failed", "cancelled"):
            raise WorkError(
                f"only failed and cancelled jobs can be retried, this one is {view.state}",
                place=f"job {job_id}",
            )
        items = [*job.items]
        if view.report is not None:
            items = [item for item in items if item.id in view.report.failed]
            if job.kind == "routine":
                renamed = zip(items, new_ids(len(items)), strict=True)
                items = [msgspec.structs.replace(item, id=run_id) for item, run_id in renamed]
            elif job.kind == "workflow":
                job = msgspec.structs.replace(job, how={**job.how, "retry": True})
        queue = view.queue if view.queue and not view.queue.startswith("workflow:") else None
        return self.add([msgspec.structs.replace(job, items=items)], queue, subject=subject)[0]

    def clear(self, older_than: timedelta) -> int:
        """Remove jobs that ended longer ago than this; return how many. Their events stay."""
        until = (datetime.now(UTC) - older_than).isoformat()
        dropped = 0
        while True:
            found = self._list(
                status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
                completed_before=until,
                limit=AT_ONCE,
            )
            if not found:
                return dropped
            with self._database.translated():
                self._client.delete_workflows([one.workflow_id for one in found])
            dropped += len(found)

    def counts(self, ids: Sequence[str]) -> Counts:
        """Count how many of these jobs have ended."""
        over = 0
        for portion in portions(ids, 5_000):
            found = self._list(workflow_ids=portion)
            over += sum(_STATES[one.status] in OVER for one in found)
        return Counts(over=over, all=len(ids), workers=len(self.workers()))

    def reports(self, ids: Sequence[str]) -> JobReport:
        """Return the reports of these jobs as one."""
        done = 0
        waiting: dict[str, str] = {}
        failed: dict[str, str] = {}
        for portion in portions(ids, AT_ONCE):
            for view in self.jobs(ids=portion, limit=None):
                report = view.report or JobReport()
                done += report.done
                waiting |= report.waiting
                failed |= report.failed
                if view.report is None and view.state in ("failed", "cancelled"):
                    items = self.what(view.id).items
                    failed |= {item.id: view.problem or view.state for item in items}
        return JobReport(done=done, waiting=waiting, failed=failed)

    def workers(self) -> dict[str, str]:
        """Return the workers and their machines. Dead ones are listed until their lease ends."""
        table = self._database.workers
        with self._database.translated(), self._database.engine.begin() as connection:
            return {row.id: row.place for row in connection.execute(sa.select(table))}

    def _list(self, **chosen: Any) -> "list[WorkflowStatus]":
        with self._database.translated():
            return self._client.list_workflows(
                name=TASK,
                application_name=NAME,
                sort_desc=True,
                load_input=False,
                load_output=False,
                **chosen,
            )

    def _view(self, one: "WorkflowStatus") -> JobView:
        state, problem, report = _STATES[one.status], "", None
        try:
            job: Job | None = self.what(one.workflow_id)
        except WorkError as error:
            job, problem = None, error.message
        if state in OVER and state != "cancelled":
            report = read_report(self._memory, one.workflow_id)
        if report is not None and report.waiting and not report.failed:
            state = "waiting"
        if one.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
            problem = "its worker died at every attempt"
        elif state == "failed" and report is None:
            problem = problem or "it could not be started"
        return JobView(
            id=one.workflow_id,
            state=state,
            kind=job.kind if job else "",
            name=job.name if job else "",
            items=len(job.items) if job else 0,
            queue=one.queue_name,
            worker=one.executor_id,
            attempts=one.recovery_attempts or 0,
            queued_at=_moment(one.created_at),
            ended_at=_moment(one.completed_at),
            report=report,
            problem=problem,
        )

    def _lane(self, job: Job, queue: str | None) -> str:
        """Return the queue of a job, and register it."""
        lane = lane_of(job, queue, self._settings)
        if lane not in self._known:
            with self._database.translated():
                register(self._client.register_queue, lane, self._settings)
            self._known.add(lane)
        return lane


def _options(job_id: str, lane: str) -> "EnqueueOptions":
    return {
        "workflow_name": TASK,
        "queue_name": lane,
        "workflow_id": job_id,
        "app_version": VERSION,
        "application_name": NAME,
    }


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
