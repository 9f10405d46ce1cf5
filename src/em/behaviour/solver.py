"""Solving a task: replay what is known, hand over where it ends, keep what the agent then did.

One machine for plain and for async agents; `em.runner.drivers` drives it.
"""

import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self, get_args

from em.behaviour.agent_run import NESTED, Call, Run, current, refuse_unfinished
from em.behaviour.behaviour import Behaviour, Task
from em.behaviour.cache import Cache, Known, Stored, expired
from em.behaviour.composition import compose
from em.behaviour.replay import Replay
from em.behaviour.result import Done, Progress, Result, Saved
from em.behaviour.tool import Contexts, EngineTool
from em.behaviour.tree import members, newest
from em.compiler.calls import infer_effect
from em.errors import Diverged, EmError, NotRecordable, StoreError, UsageError
from em.log.event import Draft, check_name
from em.log.stream import behaviour_stream
from em.runner.effects import CallTool, Consult, Effects
from em.store import Store, open_store
from em.traces.recorder import error_text
from em.values.canonical import Json, identical

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
        self.tools: dict[str, EngineTool] = {}
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


def solve(engine: Workings, task: Task, args: tuple[Any, ...], kwargs: Json) -> Effects[Result]:
    """Do a task; the result says how."""
    try:
        known: Known = yield Consult(lambda: engine.cache.find(task.key))
    except StoreError as error:  # the agent can work without the store
        start = _Start(f"the store could not be read: {error}", error)
        return (yield from _let_agent(engine, task, args, kwargs, start))
    alive, reason = _usable(engine, known, task)
    if not alive:
        start = _Start(reason, versions=_versions(known, known.all))
        return (yield from _let_agent(engine, task, args, kwargs, start))
    replay = Replay(
        known, alive, task.inputs, engine.tools, engine.contexts, (engine.budget, engine.grace)
    )
    if (yield from _replaying(engine, task, replay)):
        return (yield from _hit(engine, task, known, replay))
    start = _Start(replay.reason, versions=_versions(known, replay.alive))
    if replay.has_begun:
        # The newest was followed; others that began alike may be right for another state.
        followed = known.stored[newest(replay.alive)]
        start.problem = yield from _note_divergence(engine, task, replay, followed)
        start.replay = replay
        if engine.on_divergence == "raise":
            raise _diverged(replay)
    return (yield from _let_agent(engine, task, args, kwargs, start))


def _versions(known: Known, mask: int) -> list[int]:
    """The newest behaviours that did not fit; more of them would say no more."""
    return [known.stored[number].version for number in members(mask)[:8]]


class _Start:
    """How it stands when the agent begins: why it is needed, and what was done."""

    def __init__(
        self,
        reason: str,
        problem: EmError | None = None,
        versions: Sequence[int] = (),
    ) -> None:
        self.reason = reason
        self.problem = problem
        self.versions = versions
        self.replay: Replay | None = None


def _usable(engine: Workings, known: Known, task: Task) -> tuple[int, str]:
    """Which behaviours may answer at all; and why none may."""
    if not known.stored:
        return 0, "no behaviour is known for this task"
    alive, reason = engine.fitting(known)
    if known.has_pins or engine.ttl is not None:
        for number in members(alive):
            problem = _too_old_or_pinned(engine, known.stored[number], task)
            if problem:
                alive &= ~(1 << number)
                reason = reason or problem
    return alive, reason


def _too_old_or_pinned(engine: Workings, item: Stored, task: Task) -> str:
    if expired(item, engine.ttl):
        return f"what was recorded is older than {_words(engine.ttl)}"
    for name, value in item.behaviour.pinned.items():
        if not identical(task.params.get(name), value):
            return (
                f"param {name!r} was {value!r} when this was recorded,"
                " and its use could not be followed"
            )
    return ""


def _words(ttl: timedelta | None) -> str:
    return f"{ttl.total_seconds():g} s" if ttl is not None else ""


def _replaying(engine: Workings, task: Task, replay: Replay) -> Effects[bool]:
    token = current.set(NESTED)
    try:
        return (yield from replay.run(engine.returns))
    except BaseException as error:
        # Interrupted: what was done is told, then the interrupt goes on.
        if replay.has_begun:
            replay.reasons[:] = [f"it was interrupted by {type(error).__name__}"]
            replay.cause = "error"
            _tell_now(engine, _replayed(engine, task, replay, "interrupted", []))
        raise
    finally:
        current.reset(token)


def _hit(engine: Workings, task: Task, known: Known, replay: Replay) -> Effects[Result]:
    assert replay.ended_as is not None
    item = known.stored[replay.ended_as]
    saved = _saved(item.behaviour, replay)
    problem = None
    try:
        yield Consult(
            lambda: engine.cache.log(_replayed(engine, task, replay, "hit", [item], saved))
        )
    except Exception as error:  # noqa: BLE001 - the run itself went well
        problem = _store_problem(error)
    return Result(
        "hit",
        replay.value,
        steps=replay.done,
        saved=saved,
        behaviour=item.id,
        problem=problem,
    )


def _saved(behaviour: Behaviour, replay: Replay) -> Saved:
    return Saved(max(0.0, behaviour.seconds - replay.seconds), behaviour.tokens, behaviour.cost_usd)


def _replayed(
    engine: Workings,
    task: Task,
    replay: Replay,
    outcome: str,
    items: Sequence[Stored],
    saved: Saved | None = None,
) -> Draft:
    body: Json = {
        "engine": engine.name,
        "key": task.key,
        "outcome": outcome,
        "versions": [item.version for item in items],
        # The behaviour has the calls; with these, its expressions give the arguments again.
        "results": [step.result for step in replay.done],
        "seconds": round(replay.seconds, 6),
    }
    if task.params:
        body["params"] = task.params
    if items:
        body["from_events"] = [item.event for item in items if item.event]
    if saved is not None:
        body["saved"] = {"seconds": round(saved.seconds, 6)}
        if saved.tokens is not None:
            body["saved"]["tokens"] = saved.tokens
        if saved.cost_usd is not None:
            body["saved"]["cost_usd"] = saved.cost_usd
    if outcome != "hit":
        body |= {"reason": replay.reason, "cause": replay.cause}
    stream = behaviour_stream(engine.name, task.key)
    return Draft(stream=stream, kind="behaviour_replayed", body=body)


def _note_divergence(
    engine: Workings, task: Task, replay: Replay, followed: Stored
) -> Effects[EmError | None]:
    def note() -> None:
        engine.cache.log(_replayed(engine, task, replay, "handed_over", [followed]))
        if engine.retire_after:
            engine.cache.retire_doubtful(task.key, followed, engine.retire_after)

    try:
        yield Consult(note)
    except Exception as error:  # noqa: BLE001 - the run itself went well
        return _store_problem(error)
    return None


def _store_problem(error: Exception) -> EmError:
    if isinstance(error, EmError):
        return error
    return NotRecordable(f"it could not be stored: {error_text(error)}")


def _diverged(replay: Replay) -> Diverged:
    return Diverged(
        replay.reason,
        place=f"after {len(replay.done)} steps",
        done=[{"tool": d.tool, "args": d.args, "result": d.result} for d in replay.done],
    )


def _let_agent(
    engine: Workings, task: Task, args: tuple[Any, ...], kwargs: Json, start: _Start
) -> Effects[Result]:
    """Let the agent do it, or the rest of it; what it did is kept if it went well."""
    progress = yield from _progress(engine, task.arguments, start)
    run = Run(task, engine.name, progress, engine.contexts)
    replay = start.replay if engine.on_divergence == "continue" else None
    if replay is not None:
        replay.recount(run)
    inherited = len(run.calls)
    given = dict(kwargs)
    if engine.takes_progress:
        given["progress"] = run.progress
        run.briefed = True
    began = time.perf_counter()
    try:
        value = yield from _watched(engine, run, args, given)
    except BaseException as error:
        _tell_now(engine, _missed(engine, task, start, time.perf_counter() - began, error))
        raise
    seconds = time.perf_counter() - began
    steps = [*_done(run)] if replay is not None else [*_done_before(start), *_done(run)]
    if inherited and (not run.briefed or _did_all_again(run, inherited)):
        # It did not know what was done, or did not care: what it did is how the task is done.
        _forget_inherited(run, inherited)
    how = "miss" if start.replay is None else "handed_over"
    result = Result(how, value, steps=steps, reason=start.reason, problem=start.problem)  # type: ignore[arg-type]  # one of the two
    missed = _missed(engine, task, start, seconds)
    spent = seconds + (replay.seconds if replay is not None else 0.0)
    yield from _keep(engine, task, run, result, missed, spent)
    return result


def let_agent_alone(
    engine: Workings, args: tuple[Any, ...], kwargs: Json, problem: EmError
) -> Effects[Result]:
    """Let the agent do a task that can't be found again: nothing is looked up or kept."""
    progress = Progress(reason=str(problem))
    given = {**kwargs, "progress": progress} if engine.takes_progress else kwargs
    value = yield from _watched(engine, Run(None, engine.name, progress), args, given)
    _warn(problem)
    return Result("miss", value, reason=str(problem), problem=problem)


def _progress(engine: Workings, arguments: Json, start: _Start) -> Effects[Progress]:
    heuristics: Sequence[Any] = ()
    briefing = engine.briefing
    if briefing is not None:
        try:
            heuristics = yield Consult(lambda: briefing(arguments))
        except Exception as error:  # noqa: BLE001 - the agent can work without lessons
            start.problem = start.problem or _store_problem(error)
    replay = start.replay
    if replay is None or engine.on_divergence == "restart":
        return Progress(reason=start.reason, heuristics=heuristics)
    return Progress(replay.done, start.reason, replay.failed, heuristics)


def _watched(engine: Workings, run: Run, args: tuple[Any, ...], kwargs: Json) -> Effects[Any]:
    """Run the agent, with its calls recorded."""
    token = current.set(run)
    engine.watching.append(run)
    try:
        return (yield CallTool(engine.agent, kwargs, engine.is_async, None, args, False))
    finally:
        engine.watching.remove(run)
        current.reset(token)


def _done(run: Run) -> list[Done]:
    return [
        Done(call.name, call.arguments, call.result, call.error, call.replayed)
        for call in run.calls
    ]


def _done_before(start: _Start) -> Sequence[Done]:
    return () if start.replay is None else start.replay.done


def _did_all_again(run: Run, count: int) -> bool:
    """Whether the agent began anew. If it did some of it again, that can't be kept."""
    before, own = run.calls[:count], run.calls[count:]
    if len(own) >= count and all(map(_is_again, before, own)):
        return True
    for call in own:
        name = call.tool.name
        if infer_effect(name.rpartition(".")[2]) == "write" and any(
            old.tool is call.tool and identical(old.args, call.args) for old in before
        ):
            run.cannot_keep(
                NotRecordable(
                    "the agent did it again after the replay had done it",
                    place=f"tool {name}",
                    fix="let the agent go on from progress.done",
                )
            )
    return False


def _is_again(old: Call, new: Call) -> bool:
    return old.tool is new.tool and all(
        name in new.args and identical(value, new.args[name]) for name, value in old.fixed.items()
    )


def _forget_inherited(run: Run, count: int) -> None:
    del run.calls[:count]
    for call in run.calls:
        for name, source in call.live.items():
            call.live[name] = source - count
            if source < count:
                run.cannot_keep(
                    NotRecordable(
                        "it was given an object that only the replay had",
                        place=f"tool {call.tool.name}, argument {name}",
                    )
                )


def _missed(
    engine: Workings,
    task: Task,
    start: _Start,
    seconds: float,
    error: BaseException | None = None,
) -> Draft:
    body: Json = {
        "engine": engine.name,
        "key": task.key,
        "reason": start.reason,
        "seconds": seconds,
        "versions": list(start.versions),
        "handed_over": start.replay is not None,
    }
    if error is not None:
        body["error"] = error_text(error)
    stream = behaviour_stream(engine.name, task.key)
    return Draft(stream=stream, kind="behaviour_missed", body=body)


def _keep(
    engine: Workings, task: Task, run: Run, result: Result, missed: Draft, seconds: float
) -> Effects[None]:
    """Store what was done, or say in `problem` why not."""
    try:
        # Under asyncio not on the loop's own thread; what the agent left behind gets its turn.
        behaviour = yield Consult(lambda: compose(run, task, result.value, engine.returns, seconds))
    except Exception as error:  # noqa: BLE001 - the run itself went well
        problem = _store_problem(error)
        result.problem = result.problem or problem
        _warn(problem)
        yield from _tell(engine, missed, result)
        return

    def store() -> str:
        refuse_unfinished(run)
        stored = engine.cache.record(task, run, behaviour, missed, result.value)
        engine.cache.make_room(task.key, stored, engine.max_per_task)
        if engine.max_behaviours is not None:
            engine.cache.limit(engine.max_behaviours)
        return stored

    try:
        result.behaviour = yield Consult(store)
        result.stored = True
    except Exception as error:  # noqa: BLE001 - the run itself went well
        result.problem = _store_problem(error)
        _warn(result.problem)


def _tell(engine: Workings, draft: Draft, result: Result) -> Effects[None]:
    try:
        yield Consult(lambda: engine.cache.log(draft))
    except Exception as error:  # noqa: BLE001 - the run itself went well
        result.problem = _store_problem(error)


def _tell_now(engine: Workings, draft: Draft) -> None:
    """Tell of something while an error is on its way, which must not be lost for it."""
    try:
        engine.cache.log(draft)
    except Exception as problem:  # noqa: BLE001 - the error that is on its way says more
        _warn(_store_problem(problem))


def _warn(problem: EmError) -> None:
    import logging

    logging.getLogger("em.behaviour").warning("this was not stored: %s", problem)
