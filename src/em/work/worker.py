"""Worker: take jobs from a memory's queue and run them.

A worker takes jobs by writing its id into their rows (`Ledger.take`), and has a row of its own with
a heartbeat (`Presence`). When that stops for a lease, one of the others queues the dead worker's
jobs again. A worker may only have been slow, so a job may be run twice, even by two workers at a
time. That is harmless: the journal of a run and the positions of a subject's stream let only one of
them write the next step or state, and the position of the job's own stream lets only one report.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from em import telemetry
from em.errors import (
    Conflict,
    EmError,
    JobFailed,
    NotFound,
    StoreBusy,
    StoreUnreachable,
    WorkError,
)
from em.log.event import check_name, job_stream, run_stream
from em.memory import Memory
from em.runner.history import read_run
from em.runner.journal import how_to_resume
from em.runner.package import kept_routines
from em.settings import Settings, WorkSettings
from em.state.subjects import MANY_EVENTS
from em.values.canonical import Json, prepare_structs
from em.values.times import new_id, parse_duration
from em.work.job import (
    EVERYTHING_ELSE,
    Item,
    JobReport,
    Kind,
    Queued,
    failed_sources,
    read_job,
    read_report,
)
from em.work.ledger import Ledger, Outcome, Wanted
from em.work.queue import ATTEMPTS, BATCH, DEADLY, limit_of

if TYPE_CHECKING:
    from em.llm.client import LlmClient
    from em.runner.engine import RunOptions
    from em.runner.run import RunResult
    from em.runner.tools import Tools
    from em.state.checkpoint import NewState


T = TypeVar("T")

TOGETHER = 100
"""Subjects whose states are written in one transaction."""
LOOK = 0.2
"""Seconds between two looks at whether all jobs have ended."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds to wait for a store that can't be reached, at first and at most."""
BEATS = 5
"""Heartbeats in one lease."""
LOADED = ("em.compiler.compile_trace", "em.runner.engine", "em.workflows.runs")
"""What jobs would load otherwise, several at the same time."""


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

    def client(self, how: Json) -> "LlmClient | None":
        """Return a client for the configured model if the job asks for one."""
        if not how.pop("llm", False):
            return None
        from em.llm import get_llm_client

        return get_llm_client(settings=self.settings)


def run_items(equipment: Equipment, queued: Queued, items: Sequence[Item]) -> list[ItemResult]:
    """Run items of a job: subjects to checkpoint together, anything else one by one."""
    if queued.job.kind == "checkpoint":
        return _checkpoints(equipment, queued, items)
    run = _RUNNERS[queued.job.kind]
    return [_guarded(partial(run, equipment, queued, item)) for item in items]


def together(kind: Kind) -> int:
    """Return how many items of a kind are run in one go."""
    return TOGETHER if kind == "checkpoint" else 1


def _guarded(work: Callable[[], ItemResult]) -> ItemResult:
    """Return a failure as a result. What may pass, and a lost fence, go to the worker."""
    try:
        return work()
    except (StoreUnreachable, StoreBusy, Conflict):
        raise
    except EmError as error:
        return ItemResult("failed", str(error))
    except Exception as error:  # noqa: BLE001 - reported; the other items still run
        return ItemResult("failed", f"{type(error).__name__}: {error}")


def _routine(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    memory, job, subject = equipment.memory, queued.job, queued.subject
    try:
        # The queue decides whose run it is: a worker that is frozen must not keep it.
        past = read_run(memory.store, item.id)
    except NotFound:
        if memory.store.head(run_stream(item.id))[0]:
            return _PAST["forgotten"]
        options: RunOptions = {"is_held": True, "subject": subject}
        return _ended(memory.run(job.name, item.input, equipment.tools, run_id=item.id, **options))
    is_retried = past.status == "failed" and bool(job.how.get("retry"))
    if past.status == "running" or is_retried:
        return _ended(memory.resume(item.id, equipment.tools, is_held=True, retry=is_retried))
    if past.status == "needs_input":
        return ItemResult("waiting", how_to_resume(item.id, past.resume_with))
    if past.status in ("failed", "handed_over"):
        return _ended(past.result())
    return _PAST.get(past.status, DONE)


_PAST = {
    "forgotten": ItemResult("failed", "the run was forgotten"),
    "cancelled": ItemResult("failed", "the run was cancelled"),
}


def _ended(result: "RunResult") -> ItemResult:
    if result.reason is not None:
        return ItemResult("failed", f"handed over: {result.reason}")
    if result.status == "needs_input":
        return ItemResult("waiting", how_to_resume(result.run_id, ""))
    if result.status == "failed" and result.failure is not None:
        return ItemResult("failed", _failure(msgspec.structs.asdict(result.failure)))
    return DONE


def _failure(failure: Mapping[str, Any]) -> str:
    return f"step {failure.get('step_id')}: {failure.get('message')}"


def _checkpoints(equipment: Equipment, queued: Queued, items: Sequence[Item]) -> list[ItemResult]:
    """Compile subjects and write their states together: all workers share the log's writer."""
    how = dict(queued.job.how)
    client = equipment.client(how)
    subjects = equipment.memory.subjects
    results: dict[str, ItemResult] = {}
    ready: list[NewState] = []

    def compile_(subject: str) -> ItemResult:
        ready.append(subjects.compile(subject, client=client, **how))
        return DONE

    def write(subject: str) -> ItemResult:
        subjects.checkpoint(subject, client=client, **how)
        return DONE

    def write_ready() -> None:
        try:
            subjects.write(ready)
        except (StoreUnreachable, StoreBusy):
            raise
        except EmError:  # one of them has new events, or can't be written: write each on its own
            for one in ready:
                results[one.report.subject] = _guarded(partial(write, one.report.subject))
        ready.clear()

    for item in items:
        results[item.id] = _guarded(partial(compile_, item.id))
        if sum(one.report.new_events for one in ready) >= MANY_EVENTS:
            write_ready()  # early, to bound memory
    write_ready()
    return [results[item.id] for item in items]


def _compile(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    how = dict(queued.job.how)
    client = equipment.client(how)
    how.setdefault("allow_unlabelled", False)
    equipment.memory.compile(item.traces, client=client, **how)
    return DONE


def _reflect(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    equipment.memory.reflect(item.id, equipment.client(dict(queued.job.how)))
    return DONE


def _embed(equipment: Equipment, _queued: Queued, item: Item) -> ItemResult:
    memory = equipment.memory
    if item.id != EVERYTHING_ELSE:
        left = memory.embed(subject=item.id)
    else:
        left = memory.embed(subject="")
        memory.heuristics.embed_all()
    return ItemResult("failed", f"{left:,} passages have no vector") if left else DONE


def _workflow(equipment: Equipment, queued: Queued, item: Item) -> ItemResult:
    from em.workflows.definition import read_workflow

    job, subject = queued.job, queued.subject
    workflows = equipment.memory.workflows(tools=equipment.tools)
    if equipment.memory.store.head(run_stream(item.id))[0]:
        before = workflows.result(item.id)
        if before.status in _PAST:
            return _PAST[before.status]
        result = workflows.resume(item.id, retry=bool(job.how.get("retry")))
    else:
        workflow = read_workflow(job.how["definition"], f"workflow {job.name}")
        result = workflows.start_this(
            workflow, item.input, prompt=item.prompt, run_id=item.id, subject=subject
        )
    if result.status == "needs_input":
        return ItemResult("waiting", f"em resume {item.id}")
    if result.status == "failed" and result.failure is not None:
        return ItemResult("failed", _failure(msgspec.structs.asdict(result.failure)))
    return DONE


_RUNNERS: Mapping[Kind, Callable[[Equipment, Queued, Item], ItemResult]] = {
    "routine": _routine,
    "workflow": _workflow,
    "compile": _compile,
    "reflect": _reflect,
    "embed": _embed,
}


class Presence:
    """Writes the heartbeat of one worker, and watches those of the others.

    A worker whose heartbeat stops for a whole lease is dead: its jobs are queued again. The others
    count the time themselves, so no clocks are compared. The first to remove the dead worker's
    heartbeat frees its jobs, in one transaction.

    report: called with a line for people when something happens.
    """

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        lease: float,
        report: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._worker = worker
        self._lease = lease
        self._report = report
        self._seen: dict[str, tuple[int, float]] = {}
        self._ended = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._beat_forever, name="em-presence", daemon=True)

    def begin(self) -> None:
        """Write the first heartbeat, and start the thread that writes the next ones."""
        self._ledger.beat(self._worker, place())
        self._thread.start()

    def end(self) -> None:
        """Stop the heartbeat."""
        self._ended.set()
        self._thread.join()

    def _beat_forever(self) -> None:
        while not self._ended.wait(self._lease / BEATS):
            try:
                self._ledger.beat(self._worker, place())
                self._look()
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

    def _look(self) -> None:
        """Watch the others, and free the jobs of those that are dead."""
        now = time.monotonic()
        before, self._seen = self._seen, {}
        for worker, beat, _ in self._ledger.workers():
            if worker == self._worker:
                continue
            last, since = before.get(worker, (beat, now))
            self._seen[worker] = beat, since if last == beat else now
            if last == beat and now - since >= self._lease:
                jobs = self._ledger.bury(worker, beat)
                if jobs is not None:
                    self._report(f"worker {worker} is gone; {jobs} of its jobs were queued again")


def place() -> str:
    """Return the machine and process of this worker, for people."""
    return f"{socket.gethostname()}, process {os.getpid()}"


class Upkeep:
    """Compiles routines again with new traces, one at a look, so that a worker can stop in between.

    Several workers may do so: the second finds nothing new.
    report: called with a line for people when a routine has learnt something.
    """

    def __init__(
        self, memory: Memory, settings: WorkSettings, report: Callable[[str], None]
    ) -> None:
        every = settings.compile_again
        self._every = (
            None if every is None else parse_duration(every, "work.compile_again").total_seconds()
        )
        self._memory = memory
        self._report = report
        self._due = 0.0
        self._seen = -1
        self._left: list[str] = []

    def look(self) -> bool:
        """Compile the next routine again if it is time. Return whether something is left to do."""
        if self._every is None:
            return False
        if not self._left and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._every
            self._left = self._names()
        if self._left:
            self._grow(self._left.pop())
        return bool(self._left)

    def _names(self) -> list[str]:
        """Return the routines to look at; none while nothing was added to the log."""
        head = self._memory.log.head_seq()
        if head == self._seen:
            return []
        self._seen = head
        used = (one for one in kept_routines(self._memory.store) if one.retired_at is None)
        return sorted({one.name for one in used if one.body is not None})

    def _grow(self, name: str) -> None:
        try:
            grown = self._memory.compile_again(name, by_itself=True)
        except EmError as error:
            self._report(f"can't compile {name} again: {error}")
            return
        if grown.new:
            learnt = "; ".join(grown.changes)
            self._report(f"{grown.new} has learnt from {len(grown.added)} new traces: {learnt}")
        if grown.waits:
            self._report(
                f"{grown.new} is not in use: {grown.waits}; read it, then: em routine accept"
                f" {grown.new}"
            )


class _Leave(Exception):
    """Leave a job without an outcome, so that another worker can run it."""


class Worker:
    """Runs queued jobs until it is stopped.

    queues: only these queues.
    concurrency: jobs of a queue at a time.
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
        self._queues = [check_name(name, "queue") for name in queues]
        self._concurrency = concurrency or self._settings.work.concurrency
        self._report = report
        self._ledger = Ledger(memory.address)
        self._equipment = Equipment(memory, tools, self._settings)
        self._upkeep = Upkeep(memory, self._settings.work, report)
        self._stopping = threading.Event()
        # Set when a job has ended here: there is room for another one.
        self._room = threading.Event()
        self._guard = threading.Lock()
        # The jobs that run here, each with its queue.
        self._running: dict[str, str] = {}
        self._ended = 0
        self.failed = 0
        """How many jobs failed in this worker."""

    def stop(self) -> None:
        """Stop after the current items, and return the other jobs to the queue. Thread-safe."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopping.is_set()

    def run(self, *, drain: bool = False, advance: Callable[[int, int], None] | None = None) -> int:
        """Run jobs until `stop`, or with `drain` until none is left; return how many ended.

        advance: with `drain`, called with how many ended here, and these plus all that are open.
        """
        for name in LOADED:
            import_module(name)
        prepare_structs()
        self._ledger.make()
        presence = Presence(self._ledger, self.id, self._settings.work.lease, self._report)
        presence.begin()
        taking = threading.Thread(target=self._take_forever, name="em-taking", daemon=True)
        taking.start()
        try:
            self._wait(drain, advance)
        finally:
            self._stopping.set()
            taking.join()
            self._leave(presence)
        return self._ended

    def _leave(self, presence: Presence) -> None:
        """Return the jobs that were taken to the queue, and stop the heartbeat."""
        while self._running:
            time.sleep(LOOK / 4)
        try:
            presence.end()
            self._ledger.free(self.id)
        except StoreUnreachable as error:
            self._report(f"its jobs are queued again when its lease ends: {error.message}")
        self._ledger.close()

    def _wait(self, drain: bool, advance: Callable[[int, int], None] | None) -> None:
        while not self._stopping.wait(LOOK):
            growing = self._upkeep.look()
            try:
                left = self._left() if drain else 1
            except StoreUnreachable:  # Presence reports it; wait until it is back
                continue
            if not growing and not left:
                return
            if drain and advance is not None:
                advance(self._ended, self._ended + left)
        if self._running:
            self._report(f"stopping after the current items ({len(self._running)} jobs running)")

    def _left(self) -> int:
        """Count the jobs that are queued or running, in any worker."""
        lanes: Sequence[str | None] = self._queues or [None]
        return sum(self._ledger.count(Wanted("open", queue=lane)) for lane in lanes)

    def _take_forever(self) -> None:
        while not self._stopping.is_set():
            self._room.clear()
            try:
                self._take()
            except StoreUnreachable:
                pass  # Presence reports it
            except Exception as error:  # noqa: BLE001 - reported; a worker that takes no jobs is of no use
                self._report(f"can't take jobs, retrying: {error}")
                self._stopping.wait(LONGEST_PAUSE)
            self._room.wait(self._settings.work.poll)

    def _take(self) -> None:
        """Take jobs, as many as there is room for, and begin each in a thread of its own."""
        for lane in self._ledger.queues_with_work():
            with self._guard:
                running = [*self._running.items()]
            own = [job_id for job_id, other in running if other == lane]
            room = (1 if lane == BATCH else self._concurrency) - len(own)
            if room <= 0 or self._stopping.is_set() or lane not in (self._queues or [lane]):
                continue
            limit = limit_of(lane, self._settings.work)
            # A job may be free again while it runs here, if we were slow: leave it to others.
            for job_id in self._ledger.take(self.id, lane, room, limit=limit, but_not=own):
                with self._guard:
                    self._running[job_id] = lane
                threading.Thread(target=self._job, args=(job_id,), daemon=True).start()

    def _job(self, job_id: str) -> None:
        """Run one job, or leave it."""
        try:
            if not self._stopping.is_set():
                with telemetry.span("em.job") as span:
                    span.set("em.job.outcome", self._do(job_id))
        except _Leave:
            pass
        except Exception as error:  # noqa: BLE001 - reported; the other jobs go on
            self._report(f"job {job_id} failed: {error}")
        finally:
            with self._guard:
                del self._running[job_id]
            self._room.set()

    def _do(self, job_id: str) -> Outcome:
        """Run the items of a job and report, unless that was done before; return how it ended."""
        try:
            queued = self._patiently(job_id, partial(self._read, job_id))
            report = self._patiently(job_id, partial(read_report, self._memory, job_id))
            report = report or self._items(job_id, queued)
        except _Leave:
            raise
        except Exception:
            self._patiently(job_id, partial(self._ledger.end, job_id, "failed"))
            raise
        outcome: Outcome = "failed" if report.failed else "waiting" if report.waiting else "done"
        self._patiently(job_id, partial(self._ledger.end, job_id, outcome))
        with self._guard:
            self._ended += 1
            self.failed += bool(report.failed)
        return outcome

    def _read(self, job_id: str) -> Queued:
        """Read a job that may be run."""
        entry = self._ledger.find([job_id]).get(job_id)
        if entry is not None and entry.deaths >= ATTEMPTS:
            raise JobFailed(DEADLY, place=f"job {job_id}")
        queued = read_job(self._memory, job_id)
        if queued.is_cancelled:
            self._leave_cancelled(job_id)
        return queued

    def _items(self, job_id: str, queued: Queued) -> JobReport:
        job, looked = queued.job, time.monotonic()
        results: dict[str, ItemResult] = {}
        for start in range(0, len(job.items), together(job.kind)):
            if self._stopping.is_set():
                raise _Leave
            if queued.runs and self._is_behind(job_id, queued):
                self._check_owner(job_id)
            if start and time.monotonic() - looked > 1:
                self._check_owner(job_id)
                looked = time.monotonic()
            items = job.items[start : start + together(job.kind)]
            done = self._patiently(job_id, partial(run_items, self._equipment, queued, items))
            results |= zip((item.id for item in items), done, strict=True)
        named = {
            status: {name: one.why for name, one in results.items() if one.status == status}
            for status in ("done", "waiting", "failed")
        }
        report = JobReport(
            done=len(named["done"]),
            waiting=named["waiting"],
            failed=named["failed"],
            worker=self.id,
        )
        self._patiently(job_id, lambda: self._store(job_id, queued, report))
        return report

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

    def _is_behind(self, job_id: str, queued: Queued) -> bool:
        """Return whether the log has more of a job than this worker: it was cancelled, or ended."""
        store = self._memory.store
        return self._patiently(job_id, lambda: store.head(job_stream(job_id))[0]) > queued.pos

    def _leave_cancelled(self, job_id: str) -> None:
        """Leave a cancelled job. Whoever cancelled it may have died after writing the log."""
        self._ledger.end(job_id, "cancelled")
        raise _Leave

    def _check_owner(self, job_id: str) -> None:
        """Leave a job that was cancelled or that another worker has taken over."""
        with suppress(StoreUnreachable, StoreBusy, WorkError):
            if read_job(self._memory, job_id).is_cancelled:
                self._leave_cancelled(job_id)
        try:
            found = self._ledger.find([job_id]).get(job_id)
        except StoreUnreachable:  # no other worker can have taken it over either
            return
        if found is None or found.worker != self.id or found.outcome is not None:
            raise _Leave

    def _store(self, job_id: str, queued: Queued, report: JobReport) -> None:
        """Write the report. If another worker has written one, its position is taken."""
        sources = failed_sources(self._memory, queued.job, report)
        body = msgspec.to_builtins(msgspec.structs.replace(report, from_events=sources))
        self._memory.log.append(
            job_stream(job_id), "job_done", body, subject=queued.subject, expected_pos=queued.pos
        )
