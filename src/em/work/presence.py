"""Who is at work. The jobs of a worker that gives no sign of life are given to the others.

A worker counts up in the queue's database. Another one that sees the same number for a whole lease,
by its own clock and with the database there all the time, takes it for dead. So no two clocks are
compared, and a database that was gone for a while makes nobody look dead.
"""

import os
import socket
import threading
import time
from collections.abc import Callable

import sqlalchemy as sa

from em.work.database import Database

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
