"""Runs that a page started: they go on in the background, and the page looks at their journal."""

import threading
import time
from collections.abc import Callable
from typing import Any

from em.errors import EmError, StoreBusy
from em.log.stream import run_stream
from em.memory import Memory
from em.runner.history import read_run
from em.runner.library import find_routine, routine_of
from em.runner.run import RunResult
from em.values.canonical import Json
from em.values.ids import new_id

AT_ONCE = 8
FIRST_NOTE = 10.0
"""Seconds after which a page no longer waits for a run to begin or to go on."""


class Background:
    """Starts runs and goes on with them. What is killed with the process can be resumed."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._free = threading.BoundedSemaphore(AT_ONCE)

    def start(self, ref: str, input_data: Json) -> str:
        """Begin a run of a routine that is kept; its id. What can't be run at all is raised."""
        # The routine itself: a name alone could also be a folder of this machine.
        routine = routine_of(find_routine(self._memory.store, ref))
        run_id = new_id()
        self._do(run_id, 0, lambda: self._memory.run(routine, input_data, run_id=run_id))
        return run_id

    def answer(self, run_id: str, answers: dict[str, Any]) -> None:
        """Go on with a run that waits."""
        pos = read_run(self._memory.store, run_id).pos
        self._do(run_id, pos, lambda: self._memory.resume(run_id, answers=answers))

    def _do(self, run_id: str, pos: int, work: Callable[[], RunResult]) -> None:
        if not self._free.acquire(blocking=False):
            raise StoreBusy(f"{AT_ONCE} runs are under way already", fix="wait for one of them")
        problem: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - told to who waits; the journal has the rest
                problem.append(error)
            finally:
                self._free.release()
                done.set()

        threading.Thread(target=run, daemon=True, name=f"em-run-{run_id}").start()
        deadline = time.monotonic() + FIRST_NOTE
        while not done.wait(0.02) and time.monotonic() < deadline:
            if self._memory.store.head(run_stream(run_id))[0] > pos:
                break
        if problem and isinstance(problem[0], EmError):
            raise problem[0]
        if problem:
            raise EmError("the run could not be started") from problem[0]
