"""AsyncMemory: Memory for asyncio. Each method is derived from Memory's and runs in a thread."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from em import deadline
from em.errors import Cancelled
from em.log.event import Event
from em.memory import Memory
from em.settings import Settings
from em.store.log import Log

if TYPE_CHECKING:
    from em.behaviour.engine import Engine
    from em.compiler.match import Matcher
    from em.compiler.toolset import Format
    from em.heuristics.lessons import Heuristics
    from em.llm.client import LlmClient
    from em.recall.embed import Embed
    from em.recall.rank import Rerank
    from em.runner.tools import Tools
    from em.state.subjects import Subjects
    from em.traces.recorder import Recording
    from em.traces.trace import KeptTrace, Outcome
    from em.workflows.runs import Workflows

P = ParamSpec("P")
R = TypeVar("R")


def _threaded(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Make a coroutine of a sync method: it runs in a thread, on the sync object behind self."""

    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _in_thread(method, self._sync, *args, **kwargs)

    return wraps(method)(run)


async def _in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a thread. If this task is cancelled, its run stops before its next call.

    A thread can't be ended from outside, so it is told.
    """
    import asyncio

    with deadline.until(deadline.Deadline()) as waited_for:
        try:
            return await asyncio.to_thread(function, *args, **kwargs)
        except asyncio.CancelledError:
            waited_for.end(Cancelled("the task that waited for this run was cancelled"))
            raise


def _awaited(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Make a coroutine function of a routine's function: it runs in a thread."""

    @wraps(function)
    async def call(**inputs: Any) -> Any:
        return await _in_thread(function, **inputs)

    return call


class AsyncLog:
    """Log for asyncio."""

    def __init__(self, log: Log) -> None:
        self._sync = log

    append = _threaded(Log.append)
    append_many = _threaded(Log.append_many)
    append_all = _threaded(Log.append_all)
    get = _threaded(Log.get)
    head = _threaded(Log.head)
    head_seq = _threaded(Log.head_seq)
    verify = _threaded(Log.verify)

    async def read(self, **query: Any) -> AsyncIterator[Event]:
        """Stream events, as `Log.read` does."""
        import asyncio

        events = self._sync.read(**query)
        while batch := await asyncio.to_thread(lambda: list(islice(events, 500))):
            for event in batch:
                yield event


class AsyncMemory:
    """Memory for asyncio: the same methods, awaited."""

    def __init__(
        self,
        db: str | Path | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        embedder: "Embed | None" = None,
        reranker: "Rerank | None" = None,
        llm: "LlmClient | None" = None,
        checkpoint_every: int | str | None = None,
    ) -> None:
        self._sync = Memory(
            db,
            settings=settings,
            create=create,
            embedder=embedder,
            reranker=reranker,
            llm=llm,
            checkpoint_every=checkpoint_every,
        )
        self.log = AsyncLog(self._sync.log)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def agent(self, agent: Any = None, tools: "Tools" = None, **options: Any) -> Any:
        """Return an agent whose tasks are done by routines where one fits: see `Memory.agent`."""
        return self._sync.agent(agent, tools, **options)

    @property
    def matcher(self) -> "Matcher":
        """The routines in use, to be found by a request."""
        return self._sync.matcher

    def engine(self, name: str, **options: Any) -> "Engine":
        """Return an engine whose behaviours are stored in this memory."""
        return self._sync.engine(name, **options)

    @property
    def heuristics(self) -> "Heuristics":
        """The lessons in this memory; call its methods without await."""
        return self._sync.heuristics

    @property
    def subjects(self) -> "Subjects":
        """The states of this memory's subjects; call its methods without await."""
        return self._sync.subjects

    def workflows(self, *args: Any, **options: Any) -> "Workflows":
        """Return the workflows of a file; call their methods without await."""
        return self._sync.workflows(*args, **options)

    def record(self, goal: str | None = None, **options: Any) -> "Recording":
        """Record an agent, as `Memory.record` does; `async with` works too."""
        return self._sync.record(goal, **options)

    async def traces(
        self, task: str | None = None, outcome: "Outcome | None" = None
    ) -> "Sequence[KeptTrace]":
        """Return the traces in this memory, read at once: see `Memory.traces`."""
        return await _in_thread(lambda: list(self._sync.traces(task, outcome)))

    async def routine(
        self, name: str, tools: "Tools" = None
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return a routine in use as a coroutine function: see `Memory.routine`."""
        return _awaited(await _in_thread(self._sync.routine, name, tools))

    async def tools(
        self,
        format: "Format | None" = None,  # noqa: A002 - as of Memory
        tools: "Tools" = None,
        *,
        names: Sequence[str] | None = None,
    ) -> Any:
        """Return the routines in use as tools: see `Memory.tools`; functions are coroutines."""
        from em.compiler.toolset import AsyncToolset, Toolset

        get: Callable[..., Any] = self._sync.tools
        made = await _in_thread(get, format, tools, names=names)
        if isinstance(made, Toolset):
            return AsyncToolset(made)
        return made if format else [_awaited(function) for function in made]

    match = _threaded(Memory.match)
    observe = _threaded(Memory.observe)
    observe_many = _threaded(Memory.observe_many)
    add_trace = _threaded(Memory.add_trace)
    label = _threaded(Memory.label)
    import_files = _threaded(Memory.import_files)
    shadow_report = _threaded(Memory.shadow_report)
    standing = _threaded(Memory.standing)
    accept = _threaded(Memory.accept)
    propose = _threaded(Memory.propose)
    withdraw = _threaded(Memory.withdraw)
    retire = _threaded(Memory.retire)
    restore = _threaded(Memory.restore)
    strike = _threaded(Memory.strike)
    suggest = _threaded(Memory.suggest)
    compile = _threaded(Memory.compile)
    compile_again = _threaded(Memory.compile_again)
    run = _threaded(Memory.run)
    prepare = _threaded(Memory.prepare)
    commit = _threaded(Memory.commit)
    resume = _threaded(Memory.resume)
    cancel = _threaded(Memory.cancel)
    workflow = _threaded(Memory.workflow)
    recall = _threaded(Memory.recall)
    embed = _threaded(Memory.embed)
    reflect = _threaded(Memory.reflect)
    lesson = _threaded(Memory.lesson)
    brief = _threaded(Memory.brief)
    feedback = _threaded(Memory.feedback)
    checkpoint = _threaded(Memory.checkpoint)
    checkpoint_many = _threaded(Memory.checkpoint_many)
    state = _threaded(Memory.state)
    ask = _threaded(Memory.ask)
    check = _threaded(Memory.check)
    alerts = _threaded(Memory.alerts)
    conflicts = _threaded(Memory.conflicts)
    resolve = _threaded(Memory.resolve)
    accept_rule = _threaded(Memory.accept_rule)
    accept_observation = _threaded(Memory.accept_observation)
    reject_rule = _threaded(Memory.reject_rule)
    declare = _threaded(Memory.declare)
    correct = _threaded(Memory.correct)
    retract = _threaded(Memory.retract)
    undo = _threaded(Memory.undo)
    forget = _threaded(Memory.forget)
    close = _threaded(Memory.close)
