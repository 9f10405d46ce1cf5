"""Effects, which a machine yields, and the two drivers that do them: sync, and under asyncio.

asyncio and threads are imported where they are used: most runs need neither, and start faster.
"""

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import msgspec

from em import deadline
from em.runner.run import StepTimeout
from em.values.canonical import Json

T = TypeVar("T")


class CallTool(msgspec.Struct, gc=False):
    """Call a function with these arguments.

    isolated: the call must not disturb its surroundings. Under asyncio a plain function runs in a
        thread, and what would end the process (SystemExit) fails the call only. Otherwise the
        function is called just where the agent would call it, and the machine is given whatever
        it raises.
    """

    function: Callable[..., Any]
    args: Json
    is_async: bool = False
    timeout: float | None = None
    positional: tuple[Any, ...] = ()
    isolated: bool = True


class Wait(msgspec.Struct, gc=False):
    """Wait for some seconds."""

    isolated: ClassVar[bool] = True
    seconds: float


class Consult(msgspec.Struct, gc=False):
    """Read or write a store: under asyncio in a thread. The machine is given what it raises."""

    isolated: ClassVar[bool] = False
    work: Callable[[], Any]


class WriteJournal(msgspec.Struct, gc=False):
    """Write these notes to the journal before going on. If that fails, the driver raises."""

    isolated: ClassVar[bool] = True
    notes: list[tuple[str, Json]]


Effect = CallTool | Wait | Consult | WriteJournal
Effects = Generator[Effect, Any, T]
"""A machine under way: it yields effects and returns a T."""


WriteNotes = Callable[[list[tuple[str, Json]]], None]

_UNSET = object()

CANCEL_SECONDS = 0.5
"""How long a coroutine has to end after its timeout."""


def no_journal(_notes: list[tuple[str, Json]]) -> None:
    """Drop the notes of a run without a journal."""


def drive(machine: Effects[T], write: WriteNotes = no_journal) -> T:
    """Run a machine to its end in plain code; `write` stores its notes.

    At the deadline of who waits for it, the run stops between two calls: the results that are
    known are stored first, so that it can be resumed. Nothing is stopped within a call.
    """
    limit = deadline.current()
    if limit is None:
        return _drive(machine, write, None)
    with deadline.suspended():
        return _drive(machine, write, limit)


def _drive(machine: Effects[T], write: WriteNotes, limit: deadline.Deadline | None) -> T:
    is_noted = False  # whether the journal says that the call which comes now was begun
    try:
        effect = next(machine)
        while True:
            if limit is not None and limit.is_over and not is_noted:
                _stop(effect, write, limit)
            is_noted = type(effect) is WriteJournal
            if type(effect) is WriteJournal:
                # A failing write is not a failing step: it is raised, not handed to the machine.
                write(effect.notes)
                effect = machine.send(None)
                continue
            try:
                if type(effect) is CallTool and effect.timeout is None and not effect.is_async:
                    outcome = effect.function(*effect.positional, **effect.args)
                elif type(effect) is Consult:
                    outcome = effect.work()
                else:
                    outcome = _perform(effect)
            except BaseException as error:
                if effect.isolated and isinstance(error, KeyboardInterrupt | GeneratorExit):
                    raise
                effect = machine.throw(_failure(error) if effect.isolated else error)
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


def _stop(effect: Effect, write: WriteNotes, limit: deadline.Deadline) -> None:
    """Store the results that are known, and raise; a run that is over is left to end."""
    if type(effect) is WriteJournal:
        if any(kind in _ENDS for kind, _ in effect.notes):
            return
        # Without the intent of the next step, which is not begun.
        done = [
            (kind, {name: value for name, value in body.items() if name != "next"})
            for kind, body in effect.notes
            if kind == "step_done"
        ]
        if done:
            write(done)
    limit.check()


_ENDS = frozenset({"run_ended", "run_paused"})


def through(
    machine: Effects[T], each: Callable[[Effect], Generator[Effect, Any, Any]]
) -> Effects[T]:
    """Pass the effects of a machine through `each`, which may change, answer or watch them.

    What `each` returns or raises for an effect is what the machine gets for it.
    """
    try:
        effect = next(machine)
        while True:
            try:
                outcome = yield from each(effect)
            except GeneratorExit:
                machine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the machine judges what a call raised
                effect = machine.throw(error)
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


def _failure(error: BaseException) -> Exception:
    """Return what an isolated call raised as an Exception, so that only its step ends."""
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"it raised {type(error).__name__}({error})")
    failure.__cause__ = error
    return failure


def _perform(effect: Effect) -> Any:
    if isinstance(effect, CallTool):
        return _call(effect)
    assert isinstance(effect, Wait)
    time.sleep(effect.seconds)
    return None


def _call(call: CallTool) -> Any:
    if call.timeout is None and not call.is_async:
        return call.function(*call.positional, **call.args)
    if call.timeout is None and not _in_a_loop():
        return _run_coroutine(call)
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    context = contextvars.copy_context()
    # A daemon: a call past its timeout is left behind, and the process can still end.
    threading.Thread(target=context.run, args=(_call_into, done, call), daemon=True).start()
    # A coroutine is cancelled at its timeout; one that never yields is left behind too.
    grace = CANCEL_SECONDS if call.is_async else 0
    try:
        value, error = done.get(timeout=None if call.timeout is None else call.timeout + grace)
    except queue.Empty:
        raise _too_late(call) from None
    _adopt(context)
    if error is not None:
        raise error
    return value


def _adopt(context: contextvars.Context) -> None:
    """Set here the context variables that a call set in its copy: later calls see them."""
    for variable, value in context.items():
        if variable.get(_UNSET) is not value:
            variable.set(value)


def _call_into(done: "queue.SimpleQueue[Any]", call: CallTool) -> None:
    """Make a call in this thread, and put its value and its error where they are waited for."""
    try:
        if call.is_async:
            done.put((_run_coroutine(call), None))
        else:
            done.put((call.function(*call.positional, **call.args), None))
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        done.put((None, _failure(error) if call.isolated else error))


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


async def adrive(machine: Effects[T], write: WriteNotes = no_journal) -> T:
    """Run a machine to its end under asyncio; `write` stores its notes."""
    import asyncio

    try:
        effect = next(machine)
        while True:
            if type(effect) is WriteJournal:
                await asyncio.to_thread(write, effect.notes)
                effect = machine.send(None)
                continue
            try:
                outcome = await _aperform(effect)
            except BaseException as error:
                if effect.isolated and not isinstance(error, Exception):
                    raise  # the task was cancelled, or the process is to end
                effect = machine.throw(error)
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def _aperform(effect: Effect) -> Any:
    import asyncio

    if isinstance(effect, CallTool):
        return await _acall(effect)
    if isinstance(effect, Consult):
        return await asyncio.to_thread(effect.work)
    assert isinstance(effect, Wait)
    await asyncio.sleep(effect.seconds)
    return None


async def _acall(call: CallTool) -> Any:
    if not call.isolated:
        value = call.function(*call.positional, **call.args)
        return await value if call.is_async else value
    import asyncio

    running = _in_loop(call) if call.is_async else _beside_the_loop(call)
    clock = asyncio.timeout(call.timeout)
    try:
        async with clock:
            return await running
    except TimeoutError:
        if clock.expired():
            raise _too_late(call) from None
        raise  # the tool's own


async def _beside_the_loop(call: CallTool) -> Any:
    """Make a call in a thread, as `_call` does.

    With a timeout not in one of the loop's own: the end of the loop would wait for it.
    """
    import asyncio

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def work() -> None:
        context.run(_call_into, done, call)
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(ended.set)

    if call.timeout is None:
        await loop.run_in_executor(None, work)
    else:
        threading.Thread(target=work, daemon=True).start()
        await ended.wait()
    _adopt(context)
    value, error = done.get_nowait()
    if isinstance(error, StopIteration):
        told = f"the tool raised StopIteration({error})"
        raise RuntimeError(told) from error  # noqa: TRY004 - a coroutine can't raise that itself
    if error is not None:
        raise error
    return value


async def _in_loop(call: CallTool) -> Any:
    import asyncio

    try:
        return await call.function(*call.positional, **call.args)
    except (Exception, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException as error:
        # It would end the loop, and everything that runs in it.
        raise _failure(error) from error
