"""Worker: take jobs from a memory's queue and run them.

DBOS hands out each job at least once, so a job may come twice, even to two workers at a time. The
journal of each run makes that harmless: the second worker resumes where the first one stopped, and
only one of them can write the next position of the run's stream.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from em.errors import (
    Conflict,
    EmError,
    JobFailed,
    NotFound,
    StoreBusy,
    StoreUnreachable,
)
from em.log.event import job_stream, run_stream
from em.memory import Memory
from em.runner.history import read_run
from em.runner.journal import how_to_resume
from em.settings import Settings
from em.values.canonical import Json
from em.values.ids import new_id
from em.work.database import NAME, SERIALIZER, TASK, VERSION, Database
from em.work.job import Item, JobReport, Kind, Queued, failed_sources, read_job
from em.work.queue import DEFAULT, check_lane, register
from em.work.slots import LimitedClient, Slots
from em.work.upkeep import Upkeep

if TYPE_CHECKING:
    from dbos import WorkflowStatus

    from em.llm.client import LlmClient
    from em.runner.engine import RunOptions, Tools
    from em.runner.run import RunResult


T = TypeVar("T")

ATTEMPTS = 20
"""Starts of a job before it counts as failed: it may be what kills its workers."""
LOOK = 0.2
"""Seconds between two looks at whether all jobs have ended."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds to wait for a store that can't be reached, at first and at most."""
BEATS = 5
"""Heartbeats in one lease."""


class ItemResult(NamedTuple):
    """How an item ended. why: the reason that it waits or failed."""

    status: str
    why: str = ""


DONE = ItemResult("done")


class Equipment(NamedTuple):
    """What a worker needs to run items."""

    memory: Memory
    tools: "Tools"
    settings: Settings
    limited: "Callable[[LlmClient], LlmClient]"
    """Wraps a client so that it respects the limit of its provider."""

    def client(self, how: Json) -> "LlmClient | None":
        """Return a client for the configured model if the job asks for one."""
        if not how.pop("llm", False):
            return None
        from em.llm import get_llm_client

        return self.limited(get_llm_client(settings=self.settings))


def run_item(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    """Run one item of a job."""
    return _RUNNERS[queued.job.kind](equipment, queued, item)


def _routine(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    memory, (job, _, subject) = equipment.memory, queued
    try:
        # The queue decides whose run it is: a worker that is frozen must not keep it.
        past = read_run(memory.store, item.id)
    except NotFound:
        if memory.store.head(run_stream(item.id))[0]:
            return _PAST["forgotten"]
        options: RunOptions = {"is_held": True, "subject": subject}
        return _ended(memory.run(job.name, item.input, equipment.tools, run_id=item.id, **options))
    if past.status == "running":
        return _ended(memory.resume(item.id, equipment.tools, is_held=True))
    if past.status == "needs_input":
        return ItemResult("waiting", how_to_resume(item.id, past.resume_with))
    if past.status == "failed":
        return ItemResult("failed", _failure(past.failure or {}))
    return _PAST.get(past.status, DONE)


_PAST = {"forgotten": ItemResult("failed", "the run was forgotten")}


def _ended(result: "RunResult") -> ItemResult:
    if result.status == "needs_input":
        return ItemResult("waiting", how_to_resume(result.run_id, ""))
    if result.status == "failed" and result.failure is not None:
        return ItemResult("failed", _failure(msgspec.structs.asdict(result.failure)))
    return DONE


def _failure(failure: Mapping[str, Any]) -> str:
    return f"step {failure.get('step_id')}: {failure.get('message')}"


def _checkpoint(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    how = dict(queued.job.how)
    client = equipment.client(how)
    equipment.memory.subjects.checkpoint(item.id, client=client, **how)
    return DONE


def _compile(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    how = dict(queued.job.how)
    client = equipment.client(how)
    how.setdefault("allow_unlabelled", False)
    equipment.memory.compile(item.traces, client=client, **how)
    return DONE


def _workflow(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    from em.workflows.definition import read_workflow

    job, _, subject = queued
    workflows = equipment.memory.workflows(tools=equipment.tools)
    workflows.models.limited = equipment.limited
    if equipment.memory.store.head(run_stream(item.id))[0]:
        result = workflows.resume(item.id, retry=bool(job.how.get("retry")))
    else:
        workflow = read_workflow(job.how["definition"], f"workflow {job.name}")
        result = workflows.start_this(
            workflow, item.input, prompt=item.prompt, run_id=item.id, subject=subject
        )
    if result.status == "needs_input":
        return ItemResult("waiting", f"em workflow resume {item.id}")
    if result.status == "failed" and result.failure is not None:
        return ItemResult("failed", _failure(msgspec.structs.asdict(result.failure)))
    return DONE


_RUNNERS: Mapping[Kind, Callable[[Equipment, Queued, Item], ItemResult]] = {
    "routine": _routine,
    "workflow": _workflow,
    "checkpoint": _checkpoint,
    "compile": _compile,
}


class Presence:
    """Writes the heartbeat of one worker, and watches those of the others.

    A worker whose heartbeat stops for a whole lease is dead: its jobs are queued again.

    recover: queues the jobs of a dead worker again; returns how many.
    tidy: called with each heartbeat.
    report: called with a line for people when something happens.
    """

    def __init__(
        self,
        database: Database,
        worker: str,
        lease: float,
        recover: Callable[[str], int],
        tidy: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._lease = lease
        self._recover = recover
        self._tidy = tidy
        self._report = report
        self._seen: dict[str, tuple[int, float]] = {}
        self._ended = threading.Event()
        self._lost = False
        self._watching = False
        self._thread = threading.Thread(target=self._beat_forever, name="em-presence", daemon=True)

    def begin(self) -> None:
        """Write the first heartbeat, and start the thread that writes the next ones."""
        self._beat()
        self._thread.start()

    def watch(self) -> None:
        """Watch the other workers too, from now on."""
        self._watching = True

    def end(self) -> None:
        """Stop, and remove this worker's heartbeat: it has returned its jobs."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        workers = self._database.workers
        with self._database.engine.begin() as connection:
            connection.execute(sa.delete(workers).where(workers.c.id == self._worker))

    def _beat_forever(self) -> None:
        while not self._ended.wait(self._lease / BEATS):
            try:
                self._beat()
                if self._watching:
                    self._look()
                self._tidy()
            except Exception as error:  # noqa: BLE001 - reported; a worker without a heartbeat loses its jobs
                # Other workers could not write either: start to count anew.
                self._seen.clear()
                if not self._lost:
                    reason = str(error.__cause__ or error).strip().partition("\n")[0]
                    self._report(f"can't reach the queue's database, retrying: {reason}")
                self._lost = True
            else:
                if self._lost:
                    self._report("reached the queue's database again")
                self._lost = False

    def _beat(self) -> None:
        workers = self._database.workers
        with self._database.engine.begin() as connection:
            counted = connection.execute(
                sa.update(workers)
                .where(workers.c.id == self._worker)
                .values(beat=workers.c.beat + 1)
            )
            if not counted.rowcount:
                row = {"id": self._worker, "beat": 1, "place": place()}
                connection.execute(sa.insert(workers).values(row))

    def _look(self) -> None:
        workers = self._database.workers
        with self._database.engine.begin() as connection:
            found = connection.execute(sa.select(workers.c.id, workers.c.beat)).all()
        now = time.monotonic()
        others = {worker: beat for worker, beat in found if worker != self._worker}
        self._seen = {
            worker: (beat, self._since(worker, beat, now)) for worker, beat in others.items()
        }
        for worker, (beat, since) in [*self._seen.items()]:
            if now - since >= self._lease:
                self._bury(worker, beat)

    def _since(self, worker: str, beat: int, now: float) -> float:
        """Return since when the worker's heartbeat has not changed."""
        before, since = self._seen.get(worker, (beat, now))
        return since if before == beat else now

    def _bury(self, worker: str, beat: int) -> None:
        # The jobs first: if we die in between, another worker repeats this.
        jobs = self._recover(worker)
        workers, slots = self._database.workers, self._database.slots
        with self._database.engine.begin() as connection:
            connection.execute(
                sa.delete(workers).where(workers.c.id == worker, workers.c.beat == beat)
            )
            connection.execute(sa.delete(slots).where(slots.c.worker == worker))
        del self._seen[worker]
        self._report(f"worker {worker} is gone; {jobs} of its jobs were queued again")


def place() -> str:
    """Return the machine and process of this worker, for people."""
    return f"{socket.gethostname()}, process {os.getpid()}"


class _Leave(BaseException):
    """Leave a job without an outcome, so that another worker can run it.

    Not an Exception, which DBOS would store as the outcome of the job.
    """


class Worker:
    """Runs queued jobs until it is stopped. A process can have only one.

    queues: only these queues.
    concurrency: jobs of a queue at a time, from now on for all workers of the queue.
    tools: what routines and workflows may call.
    report: called with a line for people when something happens.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        queues: Sequence[str] = (),
        concurrency: int | None = None,
        tools: "Tools" = None,
        report: Callable[[str], None] = lambda _text: None,
        settings: Settings | None = None,
    ) -> None:
        self.id = f"{socket.gethostname()[:40]}-{os.getpid()}-{new_id()[-6:]}"
        self._memory = memory
        self._settings = settings or Settings.load()
        self._queues = [check_lane(name) for name in queues]
        self._concurrency = concurrency
        self._report = report
        self._database = Database(memory.address)
        self._slots = Slots(self._database, self.id, self._settings.work.limits.providers)
        self._equipment = Equipment(memory, tools, self._settings, self._limited)
        self._upkeep = Upkeep(memory, self._settings.work, report)
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._active = 0
        self._ended = 0
        self.failed = 0
        """How many jobs failed in this worker."""
        self._guard = threading.Lock()

    def stop(self) -> None:
        """Stop after the current items, and return the other jobs to the queue. Thread-safe."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopping.is_set()

    def run(self, *, drain: bool = False) -> int:
        """Run jobs until `stop`, or with `drain` until none is left; return how many ended."""
        from dbos import DBOS

        self._database.make()
        self._client = self._database.client(patient=True)
        presence = Presence(
            self._database,
            self.id,
            self._settings.work.lease,
            self._recover,
            self._slots.tidy,
            self._report,
        )
        presence.begin()
        try:
            self._launch()
            presence.watch()
            self._wait(drain=drain)
        finally:
            self._stopping.set()
            DBOS.destroy(destroy_registry=True)
            self._over.set()
            self._leave(presence)
        return self._ended

    def _leave(self, presence: Presence) -> None:
        """Return the claimed jobs to the queue, and stop the heartbeat."""
        try:
            with self._database.translated():
                self._give_back()
                presence.end()
        except StoreUnreachable as error:
            self._report(f"its jobs are queued again when its lease ends: {error.message}")
        self._client.destroy()
        self._database.close()

    def _launch(self) -> None:
        from dbos import DBOS

        limited = [f"workflow:{name}" for name in self._settings.work.limits.workflows]
        for lane in self._queues or [DEFAULT, *limited]:
            register(self._client.register_queue, lane, self._settings.work, self._concurrency)

        @DBOS.workflow(name=TASK, max_recovery_attempts=ATTEMPTS)
        def job() -> dict[str, int]:
            return self._job()

        DBOS(
            config={
                "name": NAME,
                "application_version": VERSION,
                "executor_id": self.id,
                "system_database_engine": self._database.engine,
                "dbos_system_schema": self._database.schema,
                "serializer": SERIALIZER,
                "run_migrations": False,
                "log_level": "CRITICAL",
                "scheduler_polling_interval_sec": 3_600,
            }
        )
        if self._queues:
            DBOS.listen_queues(self._queues)
        DBOS.launch()

    def _wait(self, *, drain: bool) -> None:
        while not self._stopping.wait(LOOK):
            growing = self._upkeep.look()
            if drain and not growing and not self._left():
                return
        if self._active:
            self._report(f"stopping after the current items ({self._active} jobs running)")
        while self._active:
            time.sleep(LOOK / 4)

    def _left(self) -> bool:
        """Return whether a job is queued or running, in any worker."""
        try:
            return bool(
                self._list(
                    status=["ENQUEUED", "PENDING", "DELAYED"],
                    queue_name=self._queues or None,
                    limit=1,
                )
            )
        except StoreUnreachable:  # Presence reports it; wait until it is back
            return True

    def _list(self, **chosen: Any) -> "list[WorkflowStatus]":
        with self._database.translated():
            return self._client.list_workflows(
                name=TASK, load_input=False, load_output=False, **chosen
            )

    def _recover(self, worker: str) -> int:
        from dbos import DBOS

        # DBOS has no public function for this. It queues only the jobs that the worker still has:
        # two workers that do it at the same time do no harm.
        return len(DBOS._recover_pending_workflows([worker]))

    def _give_back(self) -> None:
        """Queue the jobs again that this worker has claimed and will not run."""
        for one in self._list(status="PENDING", executor_id=self.id):
            self._client.resume_workflow(one.workflow_id, queue_name=one.queue_name)

    def _job(self) -> dict[str, int]:
        """Run one job; called by DBOS."""
        from dbos import DBOS

        job_id = DBOS.workflow_id
        assert job_id is not None
        if self._stopping.is_set():
            # Wait here, or DBOS would claim one queued job after the other.
            self._over.wait()
            raise _Leave
        with self._guard:
            self._active += 1
        try:
            return self._do(job_id)
        finally:
            with self._guard:
                self._active -= 1

    def _do(self, job_id: str) -> dict[str, int]:
        queued = self._patiently(job_id, lambda: read_job(self._memory, job_id))
        job = queued.job
        counted = {"done": 0}
        waiting: dict[str, str] = {}
        failed: dict[str, str] = {}
        looked = time.monotonic()
        for number, item in enumerate(job.items):
            if self._stopping.is_set():
                raise _Leave
            if number and time.monotonic() - looked > 1:
                self._check_owner(job_id)
                looked = time.monotonic()
            ended = self._item(job_id, queued, item)
            if ended.status == "done":
                counted["done"] += 1
            else:
                (waiting if ended.status == "waiting" else failed)[item.id] = ended.why
        report = JobReport(done=counted["done"], waiting=waiting, failed=failed, worker=self.id)
        self._patiently(job_id, lambda: self._store(job_id, queued, report))
        with self._guard:
            self._ended += 1
            self.failed += bool(failed)
        if failed:
            raise JobFailed(f"{len(failed)} of {len(job.items)} failed", place=f"job {job_id}")
        return {**counted, "waiting": len(waiting)}

    def _item(self, job_id: str, queued: Queued, item: Item) -> ItemResult:
        try:
            return self._patiently(job_id, lambda: run_item(self._equipment, queued, item))
        except EmError as error:
            return ItemResult("failed", str(error))
        except Exception as error:  # noqa: BLE001 - reported; the other items still run
            return ItemResult("failed", f"{type(error).__name__}: {error}")

    def _patiently(self, job_id: str, work: Callable[[], T]) -> T:
        """Retry while the store can't be reached. After a conflict, check that the job is ours."""
        pause = FIRST_PAUSE
        while True:
            try:
                return work()
            except (StoreUnreachable, StoreBusy) as error:
                if pause == FIRST_PAUSE:
                    self._report(f"can't write the log, retrying: {error.message}")
            except Conflict:
                self._check_owner(job_id)
            if self._stopping.wait(pause):
                raise _Leave
            pause = min(LONGEST_PAUSE, pause * 2)

    def _check_owner(self, job_id: str) -> None:
        """Leave a job that was cancelled or that another worker has taken over."""
        try:
            found = self._list(workflow_ids=[job_id])
        except StoreUnreachable:  # no other worker can have taken it over either
            return
        if not found or found[0].status != "PENDING" or found[0].executor_id != self.id:
            raise _Leave

    def _store(self, job_id: str, queued: Queued, report: JobReport) -> None:
        sources = failed_sources(self._memory, queued.job, report)
        body = msgspec.to_builtins(msgspec.structs.replace(report, from_events=sources))
        self._memory.log.append(job_stream(job_id), "job_done", body, subject=queued.subject)

    def _limited(self, client: "LlmClient") -> "LlmClient":
        return LimitedClient(client, self._slots)
