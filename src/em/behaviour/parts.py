"""Workings: what an engine is made of, as its machines use it."""

import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self, get_args

from em.behaviour.cache import Cache, Known, Stored
from em.behaviour.tape import Run
from em.behaviour.tool import Contexts, Tool
from em.errors import UsageError
from em.log.event import check_name
from em.store import Store, open_store

Briefing = Callable[[Mapping[str, Any]], Sequence[Any]]
OnDivergence = Literal["continue", "restart", "raise"]

IN_MEMORY = ":memory:"


class Workings:
    """The agent, its tools and their objects, the behaviours, and what was decided about them."""

    def __init__(
        self,
        db: str | Path | Store | None = None,
        *,
        name: str | None = None,
        on_divergence: OnDivergence = "continue",
        retire_after: int = 3,
        budget: float = 10.0,
        grace: float = 1.0,
        ttl: float | timedelta | None = None,
        max_per_task: int | None = 128,
        max_behaviours: int | None = None,
        briefing: Briefing | None = None,
    ) -> None:
        if on_divergence not in get_args(OnDivergence):
            raise UsageError(
                f"{on_divergence!r} is no way to go on",
                place="on_divergence",
                fix="use continue, restart or raise",
            )
        self.on_divergence = on_divergence
        self.retire_after = retire_after
        self.budget = budget
        self.grace = grace
        self.ttl = timedelta(seconds=ttl) if isinstance(ttl, int | float) else ttl
        self.max_per_task = max_per_task
        self.max_behaviours = max_behaviours
        self.briefing = briefing
        self.tools: dict[str, Tool] = {}
        self.contexts = Contexts()
        self.agent: Callable[..., Any] = no_agent
        self.is_async = False
        self.takes_progress = False
        self.returns: Any = None
        self.watching: list[Run] = []
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
        """Whose behaviours they are: the given name, or the agent's own."""
        return self._name or self._agents_name

    @property
    def cache(self) -> Cache:
        """The behaviours, opened when they are first needed."""
        with self._lock:
            private = self._db is None and self._pid != os.getpid()
            if self._cache is None or private or self._cache.engine != self.name:
                # What is private to a process is not its children's.
                self._pid = os.getpid()
                known = None if self._cache is None or private else self._cache.store
                self._cache = Cache(known or self._open(), self.name)
            return self._cache

    def _open(self) -> Store:
        if self._db is not None and not isinstance(self._db, str | Path):
            return self._db
        store = open_store(IN_MEMORY if self._db is None else self._db)
        # An engine that nobody closed lets go of its own store when it goes.
        weakref.finalize(self, store.close).atexit = False
        return store

    def close(self) -> None:
        """Let go of a store that this engine opened itself."""
        if self._cache is not None and (self._db is None or isinstance(self._db, str | Path)):
            self._cache.store.close()
            self._cache = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def fitting(self, known: Known) -> tuple[int, str]:
        """Which behaviours this program can replay, as bits; and why the newest other can't be."""
        if self.contexts.is_scoped:
            return self._fitting(known)
        if known.fitting is None or known.fitting[0] != self._changes:
            known.fitting = (self._changes, *self._fitting(known))
        return known.fitting[1], known.fitting[2]

    def _fitting(self, known: Known) -> tuple[int, str]:
        alive, reason = known.all, ""
        for number in range(len(known.stored) - 1, -1, -1):
            problem = self._missing_for(known.stored[number])
            if problem:
                alive &= ~(1 << number)
                reason = reason or problem
        return alive, reason

    def _missing_for(self, item: Stored) -> str:
        for step in item.behaviour.steps:
            tool = self.tools.get(step.tool)
            if tool is None:
                return f"there is no tool {step.tool!r} here"
            if step.code and tool.code != step.code:
                return f"the code of tool {step.tool!r} or of its checks has changed"
            if tool.is_method and self.contexts.owner_of(tool) is None:
                return f"no object of class {tool.class_name} was given to set_context"
        return ""


def no_agent(*_args: Any, **_kwargs: Any) -> Any:
    """Stands for the agent until one is given."""
    raise UsageError("no agent was given", fix="call set_agent first")


def shares_its_name(agent: Callable[..., Any]) -> bool:
    """Whether other agents are called the same: a partial, a lambda, a method of some object."""
    inner = inspect.unwrap(agent)
    return (
        isinstance(inner, functools.partial)
        or inspect.ismethod(inner)
        or getattr(inner, "__name__", "") == "<lambda>"
    )


def own_name(agent: Callable[..., Any]) -> str:
    """The agent's name with its module's, or its file's where that is the program itself."""
    inner = inspect.unwrap(agent)
    while isinstance(inner, functools.partial):
        inner = inner.func
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    module = getattr(named, "__module__", "") or ""
    if module == "__main__":
        code = getattr(inner, "__code__", None)
        module = Path(code.co_filename).stem if code is not None else ""
    return f"{module}.{named.__qualname__}".strip(".")
