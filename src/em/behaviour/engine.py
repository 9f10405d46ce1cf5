"""Engine: an agent that remembers how it did its tasks, and replays them behind checks."""

import contextvars
import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import msgspec

from em.behaviour.agent_run import Run, record_calls, running
from em.behaviour.behaviour import FORMAT, Behaviour
from em.behaviour.cache import Cache, Known, Stats, read_stats
from em.behaviour.check import Check
from em.behaviour.codec import NotEncodable, encode, hints_of
from em.behaviour.result import Metrics, Progress, Result
from em.behaviour.solver import Solver
from em.behaviour.task import make_task
from em.behaviour.tool import Contexts, EngineTool
from em.errors import NotRecordable, UsageError
from em.log.event import check_name
from em.runner.drivers import adrive, drive
from em.store import Store, open_store
from em.values.call import Effect
from em.values.canonical import Json

F = TypeVar("F", bound=Callable[..., Any])
PROGRESS, PARAMS = "progress", "params"


Briefing = Callable[[Mapping[str, Any]], Sequence[Any]]
Subject = str | Callable[[Mapping[str, Any]], str | None]
OnDivergence = Literal["continue", "restart", "raise"]

IN_MEMORY = ":memory:"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Engine:
    """Do a task by replaying a stored behaviour where one fits, and with the agent where not.

    ```python
    from em import Engine

    engine = Engine()

    @engine.function()
    def greet(name: str) -> str:
        return f"hello {name}"

    def agent(name: str) -> str:  # yours: a model would decide here
        return greet(name)

    engine.set_agent(agent).finalize()
    assert not engine("world")
    again = engine("world")  # a hit: the agent is not asked
    assert again.hit and again.value == "hello world"
    assert engine.metrics.hit_rate == 0.5
    ```

    db: where behaviours are stored: a path, a `postgresql://` address, or an open store. Without
        it they are private to this object and lost with it.
    name: the name under which behaviours are stored; by default the agent's own name.
    on_divergence: what happens when a replay stops half-way: `continue` (the agent gets a
        `progress` of what was done), `restart` (the agent starts from the beginning), `raise`.
    retire_after: failures in a row after which a behaviour is retired; 0 for never.
    budget, grace: a replay stops when it takes longer than `budget` times its recorded time plus
        `grace` seconds. The time is checked between steps: a call is never interrupted.
    enough: recordings from which on a write without a check may follow results that are new.
    ttl: seconds (or a timedelta) after which a behaviour is no longer replayed.
    max_per_task, max_behaviours: how many to store; beyond that the least used, or the oldest,
        are retired.
    briefing: called with the task's arguments on a miss; returns `progress.heuristics`.
    subject: who the tasks are about, or a function of a task's arguments that returns it.
        Forgetting the subject forgets the runs, the behaviours and the replays.
    """

    def __init__(
        self,
        db: str | Path | Store | None = None,
        *,
        name: str | None = None,
        on_divergence: OnDivergence = "continue",
        retire_after: int = 3,
        budget: float = 10.0,
        grace: float = 1.0,
        enough: int = 4,
        ttl: float | timedelta | None = None,
        max_per_task: int | None = 128,
        max_behaviours: int | None = None,
        briefing: Briefing | None = None,
        subject: Subject | None = None,
    ) -> None:
        if on_divergence not in get_args(OnDivergence):
            raise UsageError(
                f"on_divergence must be continue, restart or raise, got {on_divergence!r}",
                place="on_divergence",
            )
        self.on_divergence = on_divergence
        self.retire_after = retire_after
        self.budget = budget
        self.grace = grace
        self.enough = enough
        self.ttl = timedelta(seconds=ttl) if isinstance(ttl, int | float) else ttl
        self.max_per_task = max_per_task
        self.max_behaviours = max_behaviours
        self.briefing = briefing
        self._subject = check_name(subject, "subject") if isinstance(subject, str) else subject
        self.tools: dict[str, EngineTool] = {}
        self.contexts = Contexts()
        self.agent: Callable[..., Any] = no_agent
        self.is_async = False
        self.takes_progress = False
        self.returns: Any = None
        self.watching: list[Run] = []
        self.metrics = Metrics()
        self._signature: inspect.Signature | None = None
        self._positional: list[str] | None = None
        self._hints: dict[str, Any] = {}
        self._defaults: Json = {}
        self._takes_params = False
        self._partial: list[Any] = []
        self._db = db
        self._name = None if name is None else check_name(name, "engine name")
        self._cache: Cache | None = None
        self._agents_name = ""
        self._pid = os.getpid()
        self._changes = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        where = "in memory" if self._db is None else getattr(self._db, "location", self._db)
        return f"<Engine {self.name!r}, {where}>"

    @property
    def name(self) -> str:
        """The name under which behaviours are stored: the given one, or the agent's own."""
        return self._name or self._agents_name

    @property
    def cache(self) -> Cache:
        """The stored behaviours; the store is opened on first use."""
        with self._lock:
            private = self._db is None and self._pid != os.getpid()
            if self._cache is None or private or self._cache.engine != self.name:
                # After a fork: a private store belongs to the parent process.
                self._pid = os.getpid()
                known = None if self._cache is None or private else self._cache.store
                self._cache = Cache(known or self._open(), self.name)
            return self._cache

    def _open(self) -> Store:
        if self._db is not None and not isinstance(self._db, str | Path):
            return self._db
        store = open_store(IN_MEMORY if self._db is None else self._db)
        # Close the store with the engine if `close` is never called.
        weakref.finalize(self, store.close).atexit = False
        return store

    def close(self) -> None:
        """Close the store, if this engine opened it."""
        if self._cache is not None and (self._db is None or isinstance(self._db, str | Path)):
            self._cache.store.close()
            self._cache = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def fitting(self, known: Known) -> tuple[Collection[str], str]:
        """Return the ids of the behaviours that this program can replay, and why not the others."""
        if self.contexts.is_scoped:
            return self._fitting(known)
        if known.fitting is None or known.fitting[0] != self._changes:
            known.fitting = (self._changes, *self._fitting(known))
        return known.fitting[1], known.fitting[2]

    def _fitting(self, known: Known) -> tuple[Collection[str], str]:
        problems = {one.id: self._missing_for(one.behaviour) for one in known.stored}
        fit = {name for name, problem in problems.items() if not problem}
        return fit, next(filter(None, problems.values()), "")

    def _missing_for(self, behaviour: Behaviour) -> str:
        if behaviour.format != FORMAT:
            return "the behaviour was recorded by an older em, with other checks"
        for step in behaviour.steps:
            tool = self.tools.get(step.tool)
            if tool is None:
                return f"tool {step.tool!r} is not defined here"
            if step.code and tool.code != step.code:
                return f"the code of tool {step.tool!r} or of its checks has changed"
            if tool.is_method and self.contexts.owner_of(tool) is None:
                return f"set_context was given no object of class {tool.class_name}"
        return ""

    def set_agent(self, agent: Callable[..., Any]) -> Self:
        """Set the agent, which does the tasks that no behaviour fits: any callable."""
        if not callable(agent):
            raise UsageError(f"expected a callable, got a {type(agent).__name__}", place="agent")
        try:
            signature = inspect.signature(agent)
        except (TypeError, ValueError):
            signature = None
        own = {} if signature is None else dict(signature.parameters)
        if "tags" in own:
            raise UsageError(
                "the agent takes 'tags', a parameter of the engine",
                place="agent",
                fix="rename the agent's parameter",
            )
        self.takes_progress = PROGRESS in own
        self._takes_params = PARAMS in own
        own.pop(PROGRESS, None)
        own.pop(PARAMS, None)
        self._signature = (
            None if signature is None else signature.replace(parameters=list(own.values()))
        )
        is_positional = all(one.kind in _POSITIONAL for one in own.values())
        self._positional = list(own) if signature is not None and is_positional else None
        self._defaults = {
            name: parameter.default
            for name, parameter in own.items()
            if parameter.default is not parameter.empty
        }
        if self._db is not None and self._name is None and shares_its_name(agent):
            raise UsageError(
                "other agents may have the same name, and their behaviours would be mixed",
                place=f"agent {own_name(agent)}",
                fix='name the engine: Engine(db, name="…")',
            )
        self.agent = agent
        self._agents_name = own_name(agent)
        self._partial = list(agent.args) if isinstance(agent, functools.partial) else []
        self.is_async = inspect.iscoroutinefunction(agent) or (
            not inspect.isroutine(agent) and inspect.iscoroutinefunction(type(agent).__call__)
        )
        self._hints = hints_of(agent)
        self.returns = self._hints.get("return")
        return self

    def set_context(self, *things: Any) -> Self:
        """Set the objects on which methods are replayed, one of each class."""
        for thing in things:
            self.contexts.put(thing)
        self._changes += 1
        return self

    @contextmanager
    def context(self, *things: Any) -> Iterator[Self]:
        """Set objects for the calls inside of the `with` only, in this thread or task."""
        with self.contexts.scope(things):
            yield self

    def finalize(self) -> Self:
        """Check that the agent and the objects of all methods are set, and get ready to run.

        What the first run and the first hit import is imported here: a check may look at a clock.
        """
        if self.agent is no_agent:
            raise UsageError("the engine has no agent", fix="call set_agent first")
        for tool in self.tools.values():
            if tool.is_method and self.contexts.owner_of(tool) is None:
                raise UsageError(
                    f"no object with the method {tool.name} was given",
                    place=f"tool {tool.name}",
                    fix=f"call set_context with an object of class {tool.class_name}",
                )
        # Not as a part of the run that may be under way here.
        contextvars.Context().run(_import_all)
        return self

    def function(
        self,
        *,
        pre_check: Check[Any] | None = None,
        post_check: Check[Any] | None = None,
        name: str | None = None,
        effect: Effect | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function so that its calls are recorded and replayed.

        effect: "read" if its calls change nothing, else "write"; by default inferred from its name.
        """
        return self._decorator(name, pre_check, post_check, effect, is_method=False)

    def method(
        self,
        *,
        pre_check: Check[Any] | None = None,
        post_check: Check[Any] | None = None,
        name: str | None = None,
        effect: Effect | None = None,
    ) -> Callable[[F], F]:
        """Decorate a method; it is replayed on the object given to `set_context`."""
        return self._decorator(name, pre_check, post_check, effect, is_method=True)

    def _decorator(
        self,
        name: str | None,
        pre_check: Check[Any] | None,
        post_check: Check[Any] | None,
        effect: Effect | None,
        *,
        is_method: bool,
    ) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            tool = EngineTool(
                function,
                name=name,
                is_method=is_method,
                pre_check=pre_check,
                post_check=post_check,
                effect=effect,
            )
            self._refuse_second(tool)
            self.tools[tool.name] = tool
            self._changes += 1
            return record_calls(tool, function, self.watching)

        return decorate

    def _refuse_second(self, tool: EngineTool) -> None:
        """Refuse a second tool of one name, unless a notebook cell just defined it again."""
        known = self.tools.get(tool.name)
        if known is None:
            return
        if not tool.is_defined_again(known):
            raise UsageError(
                f"two tools have the name {tool.name!r}",
                place=f"tool {tool.name}",
                fix='give each its own name: function(name="…")',
            )

    def __call__(
        self,
        *args: Any,
        tags: Sequence[str] = (),
        params: Mapping[str, Any] | Sequence[str] = (),
        **kwargs: Any,
    ) -> Result:
        """Do a task: replay a behaviour if one fits, else call the agent.

        Arguments are the agent's own. tags: only behaviours with the same tags are replayed.
        params: what may vary within one task: values by name, or names of arguments. With an
        async agent, await the call: it returns a coroutine of a Result then.
        """
        solving = self._solving(args, kwargs, tags, params)
        if self.is_async:
            later: Any = self._counted_later(adrive(solving))
            awaited: Result = later  # as its type says, it can be awaited
            return awaited
        start = time.perf_counter()
        result: Result = drive(solving)
        self.metrics.count(result, time.perf_counter() - start)
        return result

    async def _counted_later(self, solving: Any) -> Result:
        start = time.perf_counter()
        result: Result = await solving
        self.metrics.count(result, time.perf_counter() - start)
        return result

    async def acall(self, *args: Any, **kwargs: Any) -> Result:
        """Do a task under asyncio, with any agent: a plain one runs in a thread."""
        import asyncio

        if self.is_async:
            result: Result = await self(*args, **kwargs)
        else:
            result = await asyncio.to_thread(self.__call__, *args, **kwargs)
        return result

    def _solving(
        self,
        args: tuple[Any, ...],
        kwargs: Json,
        tags: Sequence[str],
        params: Mapping[str, Any] | Sequence[str],
    ) -> Any:
        if self.agent is no_agent:
            raise UsageError("the engine has no agent", fix="call set_agent first")
        run = running()
        if run is not None:
            run.cannot_store(
                "the agent called another engine",
                place=f"engine {self.name}",
                fix="call the other engine inside of a tool: a tool is replayed as a whole",
            )
        arguments, defaults = self._bind(args, kwargs)
        try:
            encoded = {name: self._encoded(name, value) for name, value in arguments.items()}
            for name, value in defaults.items():
                with suppress(NotRecordable):  # a default such as a client is not part of the task
                    encoded[name] = arguments[name] = self._encoded(name, value)
            for number, value in enumerate(self._partial):
                with suppress(NotRecordable):
                    encoded[f"partial_{number}"] = self._encoded(f"partial_{number}", value)
            given = _params(params, arguments)
            values = {name: self._encoded(name, value) for name, value in given.items()}
        except NotRecordable as problem:
            return Solver(self, None, args, self._with_params(kwargs, params)).without_task(problem)
        task = make_task(encoded, _tags(tags), values)
        if self._subject is not None:
            task = msgspec.structs.replace(task, subject=self._about(arguments))
        return Solver(self, task, args, self._with_params(kwargs, given)).solve()

    def _about(self, arguments: Mapping[str, Any]) -> str | None:
        """Return who a task is about."""
        found = self._subject(arguments) if callable(self._subject) else self._subject
        return None if found is None else check_name(found, "subject")

    def _with_params(self, kwargs: Json, params: Any) -> Json:
        return {**kwargs, PARAMS: params} if self._takes_params else kwargs

    def _bind(self, args: tuple[Any, ...], kwargs: Json) -> tuple[Json, Json]:
        """Return the agent's arguments by name, and the defaults of those not given."""
        if self._signature is None:
            return {"args": list(args), **kwargs}, {}
        if self._positional is not None and not kwargs and len(args) == len(self._positional):
            return dict(zip(self._positional, args, strict=True)), {}
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise UsageError(f"the arguments don't fit the agent: {error}", place="agent") from None
        defaults = {name: value for name, value in self._defaults.items() if name not in given}
        return given, defaults

    def _encoded(self, name: str, value: Any) -> Any:
        try:
            return encode(value, self._hints.get(name))[0]
        except NotEncodable as problem:
            raise NotRecordable(
                f"the arguments of a task are stored as JSON, and {problem.why}",
                place=f"the agent's argument {name}{problem.path}",
                fix="annotate the argument with its type if that is a dataclass or a model,"
                " or give the value to the agent in another way",
            ) from None

    def progress(self) -> Progress:
        """Inside an agent's run: return what a replay did before, and why it stopped."""
        run = running()
        if run is None:
            return Progress()
        run.briefed = True
        return run.progress

    def report(self, *, tokens: int | None = None, cost_usd: float | None = None) -> None:
        """Inside an agent's run: add to its cost, so that hits can report what they save."""
        run = running()
        if run is not None:
            run.report(tokens=tokens, cost_usd=cost_usd)

    def stats(self) -> Stats:
        """Count hits, misses, hand-overs and failures, of the engine and of each behaviour."""
        return read_stats(self.cache.store, self.name)


@functools.cache
def _import_all() -> None:
    """Record a task and replay it in a store of its own: that imports all that these need."""
    import em.runner.expressions.jinja  # noqa: F401 - harder expressions are written in it

    with Engine(name="imports") as engine:

        @engine.function(name="note")
        def note(text: str) -> str:
            return text

        engine.set_agent(lambda name: note(f"{name} + 0"))
        for name in ("Ana", "Bo"):
            engine(name, params=["name"])


def no_agent(*_args: Any, **_kwargs: Any) -> Any:
    """Raise: no agent is set."""
    raise UsageError("the engine has no agent", fix="call set_agent first")


def shares_its_name(agent: Callable[..., Any]) -> bool:
    """Return whether other agents have the same name: a partial, a lambda, a bound method."""
    inner = inspect.unwrap(agent)
    return (
        isinstance(inner, functools.partial)
        or inspect.ismethod(inner)
        or getattr(inner, "__name__", "") == "<lambda>"
    )


def own_name(agent: Callable[..., Any]) -> str:
    """Return the agent's name with its module's; with its file's if that is `__main__`."""
    inner = inspect.unwrap(agent)
    while isinstance(inner, functools.partial):
        inner = inner.func
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    module = getattr(named, "__module__", "") or ""
    if module == "__main__":
        code = getattr(inner, "__code__", None)
        module = Path(code.co_filename).stem if code is not None else ""
    return f"{module}.{named.__qualname__}".strip(".")


def _tags(tags: Sequence[str]) -> list[str]:
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise UsageError(f'tags must be a list such as ["a", "b"], got {tags!r}', place="tags")
    return sorted(set(tags))


def _params(params: Mapping[str, Any] | Sequence[str], arguments: Json) -> Json:
    if isinstance(params, Mapping):
        return dict(params)
    if isinstance(params, str):
        params = [params]
    for name in params:
        if name not in arguments:
            raise UsageError(
                f"{name!r} is not an argument of the agent",
                place="params",
                fix=f"name some of {list(arguments)}",
            )
    return {name: arguments[name] for name in params}
