"""The thin drivers: they do what the machine wants done, one plainly, one for asyncio.

asyncio and threads are imported where they are used: most runs need neither, and start faster.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from em.errors import Conflict as ConflictError
from em.errors import StoreError
from em.models.run import RunResult
from em.runner.effects import AskForFix, CallMany, CallTool, Effect, Outcome, Wait, Write
from em.runner.journal import Note

Running = Generator[Effect, Any, RunResult]
WriteNotes = Callable[[list[Note]], None]


def _no_journal(_notes: list[Note]) -> None:
    """Nothing is kept."""


CANCEL_SECONDS = 0.5
"""How long a coroutine whose time is up has to end."""


class StepTimeout(Exception):
    """A call ran past its timeout. It may still be running: its effect is unknown."""


def drive(machine: Running, write: WriteNotes = _no_journal) -> RunResult:
    """Run a machine to its end; `write` keeps what it notes."""
    try:
        effect = next(machine)
        while True:
            try:
                if type(effect) is CallTool and effect.timeout is None and not effect.is_async:
                    outcome = effect.function(**effect.args)
                elif type(effect) is Write:
                    write(effect.notes)
                    outcome = None
                else:
                    outcome = _perform(effect)
            except (ConflictError, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - the machine decides what a failure means
                effect = machine.throw(error)
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: RunResult = end.value
        return result


def _perform(effect: Effect) -> Any:
    if isinstance(effect, CallTool):
        return _call(effect)
    if isinstance(effect, CallMany):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=effect.limit) as pool:
            return list(pool.map(_outcome, effect.calls))
    if isinstance(effect, Wait):
        time.sleep(effect.seconds)
        return None
    assert isinstance(effect, AskForFix)
    return effect.ask(effect.context)


def _call(call: CallTool) -> Any:
    if call.timeout is None and not call.is_async:
        return call.function(**call.args)
    if call.timeout is None and not _in_a_loop():
        return _run_coroutine(call)
    done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    # A daemon: what runs on is left behind, and does not keep the process from ending.
    threading.Thread(target=lambda: done.put(_outcome_here(call)), daemon=True).start()
    # A coroutine is cancelled when its time is up; one that does not yield is left behind too.
    grace = CANCEL_SECONDS if call.is_async else 0
    try:
        outcome = done.get(timeout=None if call.timeout is None else call.timeout + grace)
    except queue.Empty:
        raise _too_late(call) from None
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _outcome_here(call: CallTool) -> Outcome:
    """What becomes of a call in this thread."""
    try:
        return Outcome(value=_run_coroutine(call) if call.is_async else call.function(**call.args))
    except Exception as error:  # noqa: BLE001 - who waits for it raises it
        return Outcome(error=error)


def _in_a_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_coroutine(call: CallTool) -> Any:
    import asyncio

    return asyncio.run(_acall(call))


def _too_late(call: CallTool) -> StepTimeout:
    return StepTimeout(f"no answer within {call.timeout:g} s")


def _outcome(call: CallTool) -> Outcome:
    try:
        return Outcome(value=_call(call))
    except Exception as error:  # noqa: BLE001 - one failure of many is the machine's to judge
        return Outcome(error=error)


async def adrive(machine: Running, write: WriteNotes = _no_journal) -> RunResult:
    """The same under asyncio: tools that are no coroutines run in threads."""
    import asyncio

    try:
        effect = next(machine)
        while True:
            try:
                if type(effect) is Write:
                    await asyncio.to_thread(write, effect.notes)
                    outcome = None
                else:
                    outcome = await _aperform(effect)
            except (ConflictError, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - the machine decides what a failure means
                effect = machine.throw(error)
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: RunResult = end.value
        return result


async def _aperform(effect: Effect) -> Any:
    import asyncio

    if isinstance(effect, CallTool):
        return await _acall(effect)
    if isinstance(effect, CallMany):
        gate = asyncio.Semaphore(effect.limit)

        async def one(call: CallTool) -> Outcome:
            async with gate:
                try:
                    return Outcome(value=await _acall(call))
                except Exception as error:  # noqa: BLE001 - as above
                    return Outcome(error=error)

        return await asyncio.gather(*(one(call) for call in effect.calls))
    if isinstance(effect, Wait):
        await asyncio.sleep(effect.seconds)
        return None
    assert isinstance(effect, AskForFix)
    return await asyncio.to_thread(effect.ask, effect.context)


def _without_stop_iteration(call: CallTool) -> Any:
    try:
        return call.function(**call.args)
    except StopIteration as error:
        # A future can't hold it: whoever waits for that one waits for ever.
        raise RuntimeError(f"the tool raised StopIteration({error})") from error


async def _acall(call: CallTool) -> Any:
    import asyncio

    if call.is_async:
        running = call.function(**call.args)
    else:
        running = asyncio.to_thread(_without_stop_iteration, call)
    clock = asyncio.timeout(call.timeout)
    try:
        async with clock:
            return await running
    except TimeoutError:
        if clock.expired():
            raise _too_late(call) from None
        raise  # the tool's own
