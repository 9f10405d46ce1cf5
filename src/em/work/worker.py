"""Worker: takes jobs from a memory's queue and does them.

DBOS gives out each job at least once, so a job may come twice, also to two workers at a time. The
journal of each run makes that harmless: who comes second goes on where the first one stopped, and
is told apart from it by the position in the run's stream.
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
from em.log.stream import job_stream, run_stream
from em.memory import Memory
from em.runner.history import read_run
from em.runner.journal import how_to_resume
from em.settings import Settings
from em.values.canonical import Json
from em.values.ids import new_id
from em.work.database import NAME, SERIALIZER, TASK, VERSION, Database
from em.work.job import Item, Job, JobReport, Kind, read_job
from em.work.queue import DEFAULT, check_lane, register
from em.work.slots import LimitedClient, Slots

if TYPE_CHECKING:
    from dbos import WorkflowStatus

    from em.llm.client import LlmClient
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
        return Ended("failed", _failure(past.failure or {}))
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
    if doing.memory.store.head(run_stream(item.id))[0]:
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


BEATS = 5
"""Signs of life in one lease."""


class Presence:
    """Gives signs of life for one worker, and watches those of the others.

    recover: gives the jobs of a worker that is dead back to the queue; how many. tidy: is called
    with each sign of life. tell: is told what happens.
    """

    def __init__(
        self,
        database: Database,
        worker: str,
        lease: float,
        recover: Callable[[str], int],
        tidy: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._lease = lease
        self._recover = recover
        self._tidy = tidy
        self._tell = tell
        self._seen: dict[str, tuple[int, float]] = {}
        self._ended = threading.Event()
        self._lost = False
        self._watching = False
        self._thread = threading.Thread(target=self._go_on, name="em-presence", daemon=True)

    def begin(self) -> None:
        """Be there, from now on."""
        self._beat()
        self._thread.start()

    def watch(self) -> None:
        """From now on, look after the others too."""
        self._watching = True

    def end(self) -> None:
        """Be gone: nobody needs to look for what this worker left."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        workers = self._database.workers
        with self._database.engine.begin() as connection:
            connection.execute(sa.delete(workers).where(workers.c.id == self._worker))

    def _go_on(self) -> None:
        while not self._ended.wait(self._lease / BEATS):
            try:
                self._beat()
                if self._watching:
                    self._look()
                self._tidy()
            except Exception as error:  # noqa: BLE001 - it is told; one that falls silent loses its jobs
                # What is seen after this says nothing about the time before it.
                self._seen.clear()
                if not self._lost:
                    reason = str(error.__cause__ or error).strip().partition("\n")[0]
                    self._tell(f"the queue's database can't be reached, trying again: {reason}")
                self._lost = True
            else:
                if self._lost:
                    self._tell("the queue's database is there again")
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
        """Since when this number has been seen."""
        before, since = self._seen.get(worker, (beat, now))
        return since if before == beat else now

    def _bury(self, worker: str, beat: int) -> None:
        # First the jobs: who dies between the two leaves it to the next one who looks.
        jobs = self._recover(worker)
        workers, slots = self._database.workers, self._database.slots
        with self._database.engine.begin() as connection:
            connection.execute(
                sa.delete(workers).where(workers.c.id == worker, workers.c.beat == beat)
            )
            connection.execute(sa.delete(slots).where(slots.c.worker == worker))
        del self._seen[worker]
        self._tell(f"worker {worker} is gone; {jobs} of its jobs are queued again")


def place() -> str:
    """Where this process runs, for people."""
    return f"{socket.gethostname()}, process {os.getpid()}"


T = TypeVar("T")

ATTEMPTS = 20
"""Times a job is begun before it is set aside: it may be what its workers die of."""
LOOK = 0.2
"""Seconds between two looks at whether everything is done."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds to wait for a store that is gone, at first and at most."""


class _Leave(BaseException):
    """This worker does not go on with a job, and says nothing of its outcome.

    Not an Exception: DBOS would take it for how the job ended.
    """


class Worker:
    """Does queued work until it is stopped. One in a process.

    queues: only these. concurrency: jobs of a queue at a time, from now on for all its workers.
    tools: what routines and workflows may call. tell: is told what happens, in words.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        queues: Sequence[str] = (),
        concurrency: int | None = None,
        tools: "Tools" = None,
        tell: Callable[[str], None] = lambda _text: None,
        settings: Settings | None = None,
    ) -> None:
        self.id = f"{socket.gethostname()[:40]}-{os.getpid()}-{new_id()[-6:]}"
        self._memory = memory
        self._settings = settings or Settings.load()
        self._queues = [check_lane(name) for name in queues]
        self._concurrency = concurrency
        self._tell = tell
        self._database = Database(memory.address)
        self._slots = Slots(self._database, self.id, self._settings.work.limits.providers)
        self._doing = Doing(memory, tools, self._settings, self._limited)
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._active = 0
        self._ended = 0
        self.failed = 0
        """Of the jobs that ended here."""
        self._guard = threading.Lock()

    def stop(self) -> None:
        """End after the items that are under way; the rest is given back. For any thread."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stopping.is_set()

    def run(self, *, drain: bool = False) -> int:
        """Work until `stop`, or with `drain` until nothing is queued or running; the jobs done."""
        from dbos import DBOS

        self._database.make()
        self._client = self._database.client(patient=True)
        presence = Presence(
            self._database,
            self.id,
            self._settings.work.lease,
            self._recover,
            self._slots.tidy,
            self._tell,
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
        """Give back what was claimed, and be gone."""
        try:
            with self._database.translated():
                self._give_back()
                presence.end()
        except StoreUnreachable as error:
            self._tell(f"what it had is given to others when its lease is over: {error.message}")
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
            if drain and not self._left():
                return
        if self._active:
            self._tell(f"ending after what is under way ({self._active})")
        while self._active:
            time.sleep(LOOK / 4)

    def _left(self) -> bool:
        """Whether anything is queued or running, here or with another worker."""
        try:
            return bool(
                self._list(
                    status=["ENQUEUED", "PENDING", "DELAYED"],
                    queue_name=self._queues or None,
                    limit=1,
                )
            )
        except StoreUnreachable:  # presence tells of it; it will be there again
            return True

    def _list(self, **chosen: Any) -> "list[WorkflowStatus]":
        with self._database.translated():
            return self._client.list_workflows(
                name=TASK, load_input=False, load_output=False, **chosen
            )

    def _recover(self, worker: str) -> int:
        from dbos import DBOS

        # DBOS leaves this to its own paid service and has no public name for it. It gives back only
        # what that worker still has, so two who do it at a time do no harm.
        return len(DBOS._recover_pending_workflows([worker]))

    def _give_back(self) -> None:
        """Queue again what this worker has claimed and will not do."""
        for one in self._list(status="PENDING", executor_id=self.id):
            self._client.resume_workflow(one.workflow_id, queue_name=one.queue_name)

    def _job(self) -> dict[str, int]:
        """What DBOS calls for each job."""
        from dbos import DBOS

        job_id = DBOS.workflow_id
        assert job_id is not None
        if self._stopping.is_set():
            # Held until nothing more is claimed: else all that is queued would come by here.
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
        job = self._patiently(job_id, lambda: read_job(self._memory, job_id))
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
            ended = self._item(job_id, job, item)
            if ended.status == "done":
                counted["done"] += 1
            else:
                (waiting if ended.status == "waiting" else failed)[item.id] = ended.why
        report = JobReport(done=counted["done"], waiting=waiting, failed=failed, worker=self.id)
        self._patiently(job_id, lambda: self._keep(job_id, report))
        with self._guard:
            self._ended += 1
            self.failed += bool(failed)
        if failed:
            raise JobFailed(f"{len(failed)} of {len(job.items)} failed", place=f"job {job_id}")
        return {**counted, "waiting": len(waiting)}

    def _item(self, job_id: str, job: Job, item: Item) -> Ended:
        try:
            return self._patiently(job_id, lambda: do(self._doing, job, item))
        except EmError as error:
            return Ended("failed", str(error))
        except Exception as error:  # noqa: BLE001 - one item's fault is not the others'; the report has it
            return Ended("failed", f"{type(error).__name__}: {error}")

    def _patiently(self, job_id: str, work: Callable[[], T]) -> T:
        """Wait for a store that is gone; who lost a race looks whether the job is still ours."""
        pause = FIRST_PAUSE
        while True:
            try:
                return work()
            except (StoreUnreachable, StoreBusy) as error:
                if pause == FIRST_PAUSE:
                    self._tell(f"the log can't be written, trying again: {error.message}")
            except Conflict:
                self._check_owner(job_id)
            if self._stopping.wait(pause):
                raise _Leave
            pause = min(LONGEST_PAUSE, pause * 2)

    def _check_owner(self, job_id: str) -> None:
        """Leave a job that was cancelled, or that another worker has."""
        try:
            found = self._list(workflow_ids=[job_id])
        except StoreUnreachable:  # nobody can have taken it meanwhile
            return
        if not found or found[0].status != "PENDING" or found[0].executor_id != self.id:
            raise _Leave

    def _keep(self, job_id: str, report: JobReport) -> None:
        body = msgspec.to_builtins(report)
        self._memory.log.append(job_stream(job_id), "job_done", body)

    def _limited(self, client: "LlmClient") -> "LlmClient":
        return LimitedClient(client, self._slots)
