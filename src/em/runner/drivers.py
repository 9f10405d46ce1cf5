"""The thin drivers: they do what the machine wants done, one plainly, one for asyncio.

asyncio and threads are imported where they are used: most runs need neither, and start faster.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from em.runner.effects import AskForFix, CallMany, CallTool, Effect, Outcome, Wait, Write
from em.runner.failures import StepTimeout
from em.runner.journal import Note
from em.runner.run import RunResult

Running = Generator[Effect, Any, RunResult]
WriteNotes = Callable[[list[Note]], None]


def _no_journal(_notes: list[Note]) -> None:
    """Nothing is kept."""


CANCEL_SECONDS = 0.5
"""How long a coroutine whose time is up has to end."""


def drive(machine: Running, write: WriteNotes = _no_journal) -> RunResult:
    """Run a machine to its end; `write` keeps what it notes."""
    try:
        effect = next(machine)
        while True:
            if type(effect) is Write:
                # What can't be written is no failure of a step: it is raised.
                write(effect.notes)
                effect = machine.send(None)
                continue
            try:
                if type(effect) is CallTool and effect.timeout is None and not effect.is_async:
                    outcome = effect.function(**effect.args)
                else:
                    outcome = _perform(effect)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - the machine decides what it means
                effect = machine.throw(_as_failure(error))
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: RunResult = end.value
        return result


def _as_failure(error: BaseException) -> Exception:
    """What a tool raised: one that wants to end the process ends its step only."""
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"it raised {type(error).__name__}({error})")
    failure.__cause__ = error
    return failure


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
    except BaseException as error:  # noqa: BLE001 - who waits for it raises it
        return Outcome(error=_as_failure(error))


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
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - one failure of many is the machine's to judge
        return Outcome(error=_as_failure(error))


async def adrive(machine: Running, write: WriteNotes = _no_journal) -> RunResult:
    """The same under asyncio: tools that are no coroutines run in threads."""
    import asyncio

    try:
        effect = next(machine)
        while True:
            if type(effect) is Write:
                await asyncio.to_thread(write, effect.notes)
                effect = machine.send(None)
                continue
            try:
                outcome = await _aperform(effect)
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


def _in_thread(call: CallTool) -> Any:
    try:
        return call.function(**call.args)
    except StopIteration as error:
        # A future can't hold it: whoever waits for that one waits for ever.
        raise RuntimeError(f"the tool raised StopIteration({error})") from error
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _as_failure(error) from error


async def _in_loop(call: CallTool) -> Any:
    import asyncio

    try:
        return await call.function(**call.args)
    except (Exception, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException as error:
        # It would end the loop, with all that runs in it.
        raise _as_failure(error) from error


async def _acall(call: CallTool) -> Any:
    import asyncio

    running = _in_loop(call) if call.is_async else asyncio.to_thread(_in_thread, call)
    clock = asyncio.timeout(call.timeout)
    try:
        async with clock:
            return await running
    except TimeoutError:
        if clock.expired():
            raise _too_late(call) from None
        raise  # the tool's own
