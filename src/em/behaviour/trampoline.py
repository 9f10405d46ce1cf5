"""What the machines want done, and the two thin drivers that do it: plainly, or under asyncio."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Invoke:
    """Call a user's function."""

    __slots__ = ("args", "function", "is_async", "kwargs")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_async: bool,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.is_async = is_async


class Consult:
    """Read from the store or write to it: under asyncio not on the loop's own thread."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work


Effect = Invoke | Consult
Machine = Generator[Effect, Any, T]


def drive(machine: Machine[T]) -> T:
    """Run a machine to its end."""
    try:
        effect = next(machine)
        while True:
            try:
                if type(effect) is Invoke:
                    if effect.is_async:
                        outcome = _finish(effect)
                    else:
                        outcome = effect.function(*effect.args, **effect.kwargs)
                else:
                    outcome = effect.work()  # type: ignore[union-attr]  # there are only two
            except BaseException as error:  # noqa: BLE001 - the machine decides what a failure means
                effect = machine.throw(Raised(error))
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(machine: Machine[T]) -> T:
    """The same under asyncio. A plain tool is called where the agent would have called it."""
    import asyncio

    try:
        effect = next(machine)
        while True:
            try:
                if type(effect) is Invoke:
                    outcome = effect.function(*effect.args, **effect.kwargs)
                    if effect.is_async:
                        outcome = await outcome
                else:
                    outcome = await asyncio.to_thread(effect.work)  # type: ignore[union-attr]  # there are only two
            except BaseException as error:  # noqa: BLE001 - the machine decides what a failure means
                effect = machine.throw(Raised(error))
            else:
                effect = machine.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


class Raised(Exception):
    """What an effect raised, whatever it was: a generator can't be handed a StopIteration."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def _finish(effect: Invoke) -> Any:
    """Run a coroutine to its end from plain code, also where a loop runs in this thread."""
    import asyncio

    running = effect.function(*effect.args, **effect.kwargs)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(running)
    import contextvars
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, running).result()
