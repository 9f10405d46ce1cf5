"""Queue: jobs for `em worker`, next to a memory's log.

A job and its report are events in the log, so they are redacted and forgotten like other events.
The queue's own tables contain only the job's id, state and worker.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypedDict, TypeVar, Unpack

import msgspec

from em.compiler.kind import tasks_in
from em.errors import InvalidWorkflow, NotFound, QueueFull, UsageError, WorkError
from em.log.event import JOB_PREFIX, Draft, EventQuery, check_name, job_stream, trace_stream
from em.memory import Memory
from em.runner.history import cancel_runs, read_run
from em.runner.package import find_routine
from em.settings import Settings, WorkSettings
from em.state.subjects import subjects_of
from em.store import redactor_of
from em.store.preparation import refuse_secret_name
from em.values.canonical import Json
from em.values.times import from_micros, made_at, new_id, new_ids, now_micros
from em.work.job import (
    EVERYTHING_ELSE,
    OVER,
    Item,
    Job,
    JobReport,
    JobView,
    Kind,
    State,
    body_of,
    read_job,
    read_report,
)
from em.work.ledger import JobRow, Ledger, Wanted

T = TypeVar("T")

DEFAULT = "default"
"""The queue of jobs for which no queue is named."""
LIMITED = "workflow:"
"""How the queues of workflows with a limit begin."""
BATCH = "batch"
"""The queue of jobs that compute: a worker takes one of them at a time."""
CHUNK: Mapping[Kind, int] = {"checkpoint": 100, "compile": 5, "reflect": 20, "embed": 20}
"""Items in one job: few enough to spread over workers, enough to outweigh the cost of a job."""
RETRY_AFTER = 10
"""Seconds after which to try again to queue jobs, when too many wait."""
AT_ONCE = 500
"""Jobs that are read or written in one transaction."""

ATTEMPTS = 20
"""Workers that may die while they run a job before it counts as failed: it may be the reason."""
DEADLY = "its worker died at every attempt"


def lane_of(job: Job, queue: str | None, settings: WorkSettings) -> str:
    """Return the queue of a job. A workflow with a limit has a queue of its own."""
    if job.kind == "workflow" and job.name in settings.limits.workflows:
        if queue is not None:
            raise UsageError(
                f"the workflow {job.name!r} has a limit, and therefore a queue of its own",
                place="queue",
                fix=f"leave the queue out; its name for workers is {LIMITED}{job.name}",
            )
        return LIMITED + job.name
    if queue is None:
        # With a model they mostly wait, and may do so side by side.
        return BATCH if job.kind in CHUNK and not job.how.get("llm") else DEFAULT
    if queue.startswith(LIMITED):
        raise UsageError(
            f"{queue!r} can't be the name of a queue",
            place="queue",
            fix="workflow:… is reserved for workflows with a limit (work.limits.workflows)",
        )
    return check_name(queue, "queue")


def limit_of(lane: str, settings: WorkSettings) -> int | None:
    """Return how many jobs of a queue may run at a time, over all workers; None for any number."""
    is_limited = lane.startswith(LIMITED)
    return settings.limits.workflows.get(lane.removeprefix(LIMITED)) if is_limited else None


class Options(TypedDict, total=False):
    """How items are queued."""

    queue: str | None
    """The queue of the jobs; without it, that of their kind."""
    subject: str | None
    """Who the jobs and their runs are about. Forgetting the subject forgets them."""
    key: str | None
    """Jobs that were queued with this key are not queued again; their ids are returned."""
    chunk: int | None
    """Items in one job, done one after the other. By default 1 run, and of other items `CHUNK`."""


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of jobs: how many have ended, of how many; and the running workers."""

    over: int
    all: int
    workers: int


class Queue:
    """The queue of a memory. A context manager."""

    def __init__(self, memory: Memory, settings: Settings | None = None) -> None:
        self._memory = memory
        settings = settings or Settings.load()
        self._settings: WorkSettings = settings.work
        self._redactor = redactor_of(settings)
        self._ledger = Ledger(memory.address)
        self._ledger.make()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the queue's database. The memory stays open."""
        self._ledger.close()

    def add(
        self,
        jobs: Iterable[Job],
        queue: str | None = None,
        *,
        subject: str | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Queue all of these jobs, or none; return their ids. Invalid jobs are refused first.

        The rest is as in `Options`. Raises QueueFull if more jobs would wait than
        `work.most_waiting`.
        """
        checked = [(job.kind, self._lane(job, queue), body_of(job, self._redactor)) for job in jobs]
        keys = [_numbered(key, number) for number in range(len(checked))]
        if key is not None and (known := self._with_keys(keys)):
            return known
        self._refuse_excess(len(checked))
        ids = new_ids(len(checked))
        drafts = (
            Draft(stream=job_stream(job_id), kind="job_queued", body=body, subject=subject)
            for job_id, (_, _, body) in zip(ids, checked, strict=True)
        )
        for portion in portions(drafts, AT_ONCE):
            self._memory.log.append_many(portion)
        self._ledger.enter(
            (job_id, kind, lane, one)
            for job_id, (kind, lane, _), one in zip(ids, checked, keys, strict=True)
        )
        return self._with_keys(keys) if key is not None else ids

    def _with_keys(self, keys: Sequence[str | None]) -> list[str]:
        found = [self._ledger.with_key(key) for key in keys if key is not None]
        return [one for one in found if one is not None]

    def _refuse_excess(self, more: int) -> None:
        most = self._settings.most_waiting
        waiting = self._ledger.waiting(most + 1)
        if waiting + more > most:
            raise QueueFull(
                f"{waiting:,} jobs wait already, {more:,} more would exceed the limit of {most:,}",
                place="work.most_waiting",
                fix="queue them later, start more workers, or raise work.most_waiting in em.yaml",
                retry_after=RETRY_AFTER,
            )

    def add_runs(
        self, routine: str, inputs: Iterable[Json | None], **options: Unpack[Options]
    ) -> list[str]:
        """Queue a run of a stored routine, in its current version, for each input."""
        found = find_routine(self._memory.store, routine)
        name = f"{found.name}@{found.version}"
        return self._add("routine", _runs(inputs), options, name=name)

    def add_workflow_runs(
        self,
        workflow: str,
        params: Iterable[Mapping[str, Any] | None] = (None,),
        *,
        prompt: str | None = None,
        file: str | Path | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Queue a run of a workflow, as it is written now, for each set of parameters.

        Workers don't need its file.
        """
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
        items = _runs((check_params(found, given or {}) for given in params), prompt)
        how = {"definition": msgspec.to_builtins(found)}
        return self._add("workflow", items, options, name=workflow, how=how)

    def add_checkpoints(
        self,
        subjects: Iterable[str] | None = None,
        *,
        how: Mapping[str, bool] | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Queue checkpoints of these subjects, or of all with observations.

        how: options of `Memory.checkpoint`; `llm`: use the model of the worker's settings.
        """
        names = subjects_of(self._memory.store) if subjects is None else subjects
        return self._add("checkpoint", _named(names, "subject"), options, how=how)

    def add_compilations(
        self,
        tasks: Mapping[str, Sequence[str]] | None = None,
        *,
        how: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Queue the compilation of each task, given with the ids of its traces, or of all tasks.

        how: `name`, `inputs`, `constants`, `fresh` and `keep_all`, as for `Memory.compile`; `llm`:
            use the model of the worker's settings; `allow_unlabelled`: also take traces that don't
            say whether they succeeded.
        """
        if tasks is None:
            unlabelled = (how or {}).get("allow_unlabelled", False)
            tasks = tasks_in(self._memory.store, allow_unlabelled=unlabelled)
        items = [Item(id=task, traces=list(ids)) for task, ids in tasks.items()]
        return self._add("compile", items, options, how=how)

    def add_reflections(
        self,
        traces: Iterable[str] | None = None,
        *,
        how: Mapping[str, bool] | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Queue `Memory.reflect` for these traces, given by their ids, or for all.

        how: `llm`: use the model of the worker's settings.
        """
        if traces is None:
            prefix = trace_stream("")
            traces = (one.removeprefix(prefix) for one in self._memory.store.streams(prefix))
        return self._add("reflect", _named(traces, "trace"), options, how=how)

    def add_embeddings(
        self, subjects: Iterable[str] | None = None, **options: Unpack[Options]
    ) -> list[str]:
        """Queue the missing vectors of these subjects, or of everything."""
        every = subjects is None
        names = [*subjects_of(self._memory.store), EVERYTHING_ELSE] if every else subjects
        return self._add("embed", _named(names or (), "subject"), options)

    def _add(
        self,
        kind: Kind,
        items: Iterable[Item],
        options: Options,
        *,
        name: str = "",
        how: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Queue items of one kind, in chunks."""
        size = options.get("chunk") or CHUNK.get(kind, 1)
        jobs = (
            Job(
                kind=kind,
                name=name,
                items=part,
                how=dict(how or {}),
                from_events=self._traces(kind, part),
            )
            for part in portions(items, size)
        )
        return self.add(
            jobs, options.get("queue"), subject=options.get("subject"), key=options.get("key")
        )

    def _traces(self, kind: Kind, items: Sequence[Item]) -> list[str]:
        """Return the first events of the traces that items are about: forgetting follows them."""
        named = [item.id for item in items] if kind == "reflect" else ()
        firsts = [
            EventQuery(stream=trace_stream(one), limit=1)
            for one in (*named, *(trace for item in items for trace in item.traces))
        ]
        return [event.id for query in firsts for event in self._memory.store.read(query)]

    def jobs(
        self,
        *,
        state: State | None = None,
        kind: Kind | None = None,
        queue: str | None = None,
        subject: str | None = None,
        limit: int | None = 50,
        offset: int = 0,
        ids: Sequence[str] | None = None,
    ) -> list[JobView]:
        """List jobs, the newest first: all, those that fit, or those with these ids."""
        size = AT_ONCE if limit is None else min(AT_ONCE, limit + offset)
        found = self._entries(Wanted(state, kind, queue), subject, ids, size)
        chosen = islice(found, offset, None if limit is None else offset + limit)
        return [self._view(entry) for entry in chosen]

    def count(
        self,
        *,
        state: State | None = None,
        kind: Kind | None = None,
        queue: str | None = None,
        subject: str | None = None,
    ) -> int:
        """Count the jobs that `jobs` lists. Reads ids and states, not the log."""
        wanted = Wanted(state, kind, queue)
        if subject is None:
            return self._ledger.count(wanted)
        return sum(1 for _ in self._entries(wanted, subject, None, AT_ONCE))

    def _entries(
        self, wanted: Wanted, subject: str | None, ids: Sequence[str] | None, size: int
    ) -> Iterator[JobRow]:
        """Yield rows of the ledger, the newest first. A subject's jobs are found in the log.

        size: how many to read at a time.
        """
        if subject is None and ids is None:
            yield from self._ledger.newest(wanted, size)
            return
        named = iter(ids) if ids is not None else self._about(subject or "", size)
        for portion in portions(named, size):
            rows = self._ledger.find(portion)
            yield from (
                rows[one]
                for one in sorted(portion, reverse=True)
                if one in rows and wanted.fits(rows[one])
            )

    def _about(self, subject: str, size: int) -> Iterator[str]:
        """Yield the ids of a subject's jobs, the newest first."""
        before: int | None = None
        while True:
            query = EventQuery(
                subject=subject, kinds=("job_queued",), newest=True, limit=size, before=before
            )
            events = list(self._memory.store.read(query))
            yield from (one.stream.removeprefix(JOB_PREFIX) for one in reversed(events))
            if len(events) < size:
                return
            before = events[0].seq

    def job(self, job_id: str, *, subjects: Collection[str] | None = None) -> JobView:
        """Return one job. subjects: look only among jobs about one of these."""
        for entry in self._ledger.find([job_id]).values():
            view = self._view(entry)
            if subjects is None or view.subject in subjects:
                return view
        raise NotFound(f"there is no job {job_id!r}", fix="`em queue list` lists all jobs")

    def what(self, job_id: str) -> Job:
        """Read the content of a job."""
        return read_job(self._memory, job_id).job

    def runs(self, jobs: Sequence[str]) -> list[str]:
        """Return the ids of the runs of these jobs. Only jobs that run something have any."""
        return [run for job in jobs for run in read_job(self._memory, job).runs]

    def cancel(self, job_id: str, *, by: str = "") -> JobView:
        """Cancel a job, and its runs that have begun: they stop before their next step.

        Other work stops after its current item. by: who wants it, for the log.
        """
        view = self.job(job_id)
        if view.state in OVER:
            raise _cant_cancel(view)
        queued = read_job(self._memory, job_id)
        body = {"by": by} if by else {}
        # First here: a worker that takes the job over meanwhile then leaves it alone.
        self._memory.log.append(job_stream(job_id), "job_cancelled", body, subject=queued.subject)
        self._ledger.end(job_id, "cancelled")
        cancel_runs(self._memory.store, queued.runs, by=by)
        return self.job(job_id)

    def retry(self, job_id: str) -> str:
        """Queue the failed items of a job again, or all of a cancelled one; return the new id.

        A failed run that had an effect, and any run of a workflow, continues at the step that
        failed, if nothing can be done twice by that. A run of a routine that did nothing starts
        anew. A run that was cancelled stays so: a person takes it up.
        """
        view, queued = self.job(job_id), read_job(self._memory, job_id)
        job, subject = queued.job, queued.subject
        if view.state not in ("failed", "cancelled"):
            raise WorkError(
                f"only failed and cancelled jobs can be retried, this one is {view.state}",
                place=f"job {job_id}",
            )
        items = [*job.items]
        if view.report is not None:
            items = [item for item in items if item.id in view.report.failed]
            if job.kind in ("routine", "workflow"):
                job = msgspec.structs.replace(job, how={**job.how, "retry": True})
            if job.kind == "routine":
                items = [self._to_retry(item) for item in items]
        queue = None if view.queue.startswith(LIMITED) else view.queue
        return self.add([msgspec.structs.replace(job, items=items)], queue, subject=subject)[0]

    def _to_retry(self, item: Item) -> Item:
        """Return the item of a run to retry: a failed one that had no effect gets another id."""
        try:
            past = read_run(self._memory.store, item.id)
        except NotFound:  # it never began, or was forgotten
            return item
        is_new = past.status == "failed" and not past.restored.has_acted({})
        return msgspec.structs.replace(item, id=new_id()) if is_new else item

    def clear(self, older_than: timedelta) -> int:
        """Remove jobs that ended longer ago than this; return how many. Their events stay."""
        until = now_micros() - round(older_than.total_seconds() * 1e6)
        dropped = 0
        while found := self._ledger.clear(until, AT_ONCE):
            dropped += found
        return dropped

    def counts(self, ids: Sequence[str]) -> JobCounts:
        """Count how many of these jobs have ended."""
        over = 0
        for portion in portions(ids, AT_ONCE):
            over += sum(one.state in OVER for one in self._ledger.find(portion).values())
        return JobCounts(over=over, all=len(ids), workers=len(self.workers()))

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
        """Return the workers and their machines; dead ones too, until another worker notices."""
        return {worker: place for worker, _, place in self._ledger.workers()}

    def _view(self, entry: JobRow) -> JobView:
        problem, report, job, subject = "", None, None, None
        try:
            queued = read_job(self._memory, entry.id)
            job, subject = queued.job, queued.subject
        except WorkError as error:
            problem = error.message
        if entry.outcome not in (None, "cancelled"):
            report = read_report(self._memory, entry.id)
        if entry.state == "failed" and report is None:
            problem = DEADLY if entry.deaths >= ATTEMPTS else problem or "it could not be started"
        return JobView(
            id=entry.id,
            state=entry.state,
            kind=job.kind if job else "",
            name=job.name if job else "",
            subject=subject,
            items=len(job.items) if job else 0,
            queue=entry.queue,
            worker=entry.worker,
            attempts=entry.deaths + (entry.worker is not None),
            queued_at=made_at(entry.id),
            ended_at=None if entry.ended_at is None else from_micros(entry.ended_at),
            report=report,
            problem=problem,
        )

    def _lane(self, job: Job, queue: str | None) -> str:
        """Return the queue of a job."""
        lane = lane_of(job, queue, self._settings)
        refuse_secret_name(lane, self._redactor, "queue")
        return lane


def _cant_cancel(view: JobView) -> WorkError:
    """Say why a job that has ended can't be cancelled, and how its waiting runs can be."""
    waiting = {} if view.report is None else view.report.waiting
    if view.state != "waiting" or not waiting:
        return WorkError(f"this job has ended: {view.state}", place=f"job {view.id}")
    runs = "its run waits" if len(waiting) == 1 else f"{len(waiting)} of its runs wait"
    noun = "workflow" if next(iter(waiting.values())).startswith("em workflow") else "runs"
    return WorkError(
        f"this job has ended, and {runs} for an answer",
        place=f"job {view.id}",
        fix=f"cancel what waits: em {noun} cancel {' '.join(list(waiting)[:10])}",
    )


def _numbered(key: str | None, number: int) -> str | None:
    """Return the key of one job of several: a hash, since a key may look like a secret."""
    return None if key is None else sha256(f"{number}/{key}".encode()).hexdigest()


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


def _named(names: Iterable[str], what: str) -> Iterator[Item]:
    return (Item(id=check_name(name, what)) for name in names)
