"""Solver: replay a task's behaviours, hand over to the agent, store what the agent did.

One machine for plain and for async agents; `em.runner.drivers` drives it.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from em.behaviour.agent_run import NESTED, Run, current, refuse_unfinished
from em.behaviour.behaviour import Behaviour
from em.behaviour.cache import Known, Stored, expired
from em.behaviour.composition import Composition
from em.behaviour.hand_over import HandOver
from em.behaviour.replay import Replay
from em.behaviour.result import Done, Progress, Result, Saved
from em.behaviour.task import Task
from em.behaviour.way import Way, newest
from em.errors import Diverged, EmError, NotRecordable, StoreError
from em.log.event import Draft, behaviour_stream
from em.log.use import collecting, uses_here
from em.runner.drivers import CallTool, Consult, Effects
from em.traces.recorder import error_text, follow_into_pools
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.behaviour.engine import Engine

LOOKED_AT = 8
"""Behaviours that an event of a miss or a hand-over names, the newest."""


def solve(engine: "Engine", task: Task, args: tuple[Any, ...], kwargs: Json) -> Effects[Result]:
    """Do a task; `Result.how` says how."""
    try:
        known: Known = yield Consult(lambda: engine.cache.find(task.key))
    except StoreError as error:  # the agent can work without the store
        start = _Start(f"the store could not be read: {error}", error)
        return (yield from _run_agent(engine, task, args, kwargs, start))
    ways, reason = _usable(engine, known)
    if not ways:
        start = _Start(reason, looked_at=known.stored[: -LOOKED_AT - 1 : -1])
        return (yield from _run_agent(engine, task, args, kwargs, start))
    replay = Replay(ways, task.inputs, engine.tools, engine.contexts, (engine.budget, engine.grace))
    if (yield from _replaying(engine, task, replay)):
        return (yield from _hit(engine, task, replay))
    followed = newest(*replay.followed, LOOKED_AT)
    start = _Start(replay.reason, looked_at=followed)
    if replay.has_begun:
        # Only the newest is blamed; older ones that begin alike may fit another state.
        start.problem = yield from _note_divergence(engine, task, replay, followed[0])
        start.replay = replay
        if engine.on_divergence == "raise":
            raise _diverged(replay)
    return (yield from _run_agent(engine, task, args, kwargs, start))


class _Start:
    """The state when the agent begins: why it is needed, and what a replay has done."""

    def __init__(
        self,
        reason: str,
        problem: EmError | None = None,
        looked_at: Sequence[Stored] = (),
    ) -> None:
        self.reason = reason
        self.problem = problem
        self.versions = [item.version for item in looked_at]
        self.sources = [item.event for item in looked_at if item.event]
        self.replay: Replay | None = None


def _usable(engine: "Engine", known: Known) -> tuple[list[tuple[Way, int]], str]:
    """Return the ways that may be replayed, with their behaviours, and why the others may not."""
    if not known.stored:
        return [], "no behaviour is stored for this task"
    ways, reason = engine.fitting(known)
    found = [(way, way.all) for way in ways]
    if engine.ttl is not None:
        rows = [
            (way, sum(1 << n for n, one in enumerate(way.stored) if not expired(one, engine.ttl)))
            for way in ways
        ]
        found = [(way, mask) for way, mask in rows if mask]
        reason = reason or f"the behaviour is older than {engine.ttl.total_seconds():g} s"
    return found, reason


def _replaying(engine: "Engine", task: Task, replay: Replay) -> Effects[bool]:
    token = current.set(NESTED)
    try:
        return (yield from replay.run(engine.returns))
    except BaseException as error:
        # Interrupted: log what was done, then raise on.
        if replay.has_begun:
            replay.interrupted(error)
            _log_now(engine, _replayed(engine, task, replay, "interrupted", []))
        raise
    finally:
        current.reset(token)


def _hit(engine: "Engine", task: Task, replay: Replay) -> Effects[Result]:
    assert replay.ended is not None
    (item,) = newest(*replay.ended)
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
    engine: "Engine",
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
        # The behaviour has the calls; with the results, its expressions give the arguments.
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
    return Draft(stream=stream, kind="behaviour_replayed", body=body, subject=task.subject)


def _note_divergence(
    engine: "Engine", task: Task, replay: Replay, followed: Stored
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


def _run_agent(
    engine: "Engine", task: Task, args: tuple[Any, ...], kwargs: Json, start: _Start
) -> Effects[Result]:
    """Let the agent do the task, or the rest of it; store the run if it succeeded."""
    progress = yield from _progress(engine, task.arguments, start)
    run = Run(task, engine.name, progress, engine.contexts)
    replay = start.replay if engine.on_divergence == "continue" else None
    hand_over = None
    if start.replay is not None:
        hand_over = HandOver(start.replay, run, answers=replay is not None)
    given = dict(kwargs)
    if engine.takes_progress:
        given["progress"] = run.progress
        run.briefed = True
    began = time.perf_counter()
    try:
        value = yield from _record_agent(engine, run, args, given)
    except BaseException as error:
        _log_now(engine, _missed(engine, task, start, time.perf_counter() - began, error))
        raise
    seconds = time.perf_counter() - began
    steps = [*_done(run)] if replay is not None else [*_done_before(start), *_done(run)]
    if hand_over is not None:
        hand_over.settle()
    how = "miss" if start.replay is None else "handed_over"
    result = Result(how, value, steps=steps, reason=start.reason, problem=start.problem)  # type: ignore[arg-type]  # one of the two
    missed = _missed(engine, task, start, seconds)
    spent = seconds + (replay.seconds if replay is not None else 0.0)
    # After a hand-over, the first calls of the run are those of behaviours.
    before = start.sources if replay is not None else ()
    yield from _keep(engine, task, run, result, missed, spent, before)
    return result


def run_agent_only(
    engine: "Engine", args: tuple[Any, ...], kwargs: Json, problem: EmError
) -> Effects[Result]:
    """Let the agent do a task whose arguments can't be stored: nothing is looked up or stored."""
    progress = Progress(reason=str(problem))
    given = {**kwargs, "progress": progress} if engine.takes_progress else kwargs
    value = yield from _record_agent(engine, Run(None, engine.name, progress), args, given)
    _warn(problem)
    result = Result("miss", value, reason=str(problem), problem=problem)
    return result


def _progress(engine: "Engine", arguments: Json, start: _Start) -> Effects[Progress]:
    heuristics: Sequence[Any] = ()
    briefing = engine.briefing
    if briefing is not None:
        try:
            heuristics = yield Consult(lambda: briefing(arguments))
        except Exception as error:  # noqa: BLE001 - the agent can work without lessons
            start.problem = start.problem or _store_problem(error)
    replay = start.replay
    is_unknown = replay is not None and replay.is_unknown
    if replay is None or engine.on_divergence == "restart":
        return Progress((), start.reason, None, heuristics, is_unknown)
    return Progress(replay.done, start.reason, replay.failed, heuristics, is_unknown)


def _record_agent(engine: "Engine", run: Run, args: tuple[Any, ...], kwargs: Json) -> Effects[Any]:
    """Run the agent and record its calls."""
    follow_into_pools(current)
    follow_into_pools(uses_here)
    token = current.set(run)
    engine.watching.append(run)
    try:
        with collecting(run.uses):
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


def _missed(
    engine: "Engine",
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
        "versions": start.versions,
        "handed_over": start.replay is not None,
    }
    if error is not None:
        body["error"] = error_text(error)
    stream = behaviour_stream(engine.name, task.key)
    if start.sources:
        # The reason may quote what a behaviour recorded.
        body["from_events"] = list(start.sources)
    return Draft(stream=stream, kind="behaviour_missed", body=body, subject=task.subject)


def _keep(
    engine: "Engine",
    task: Task,
    run: Run,
    result: Result,
    missed: Draft,
    seconds: float,
    before: Sequence[str],
) -> Effects[None]:
    """Store the run and its behaviour; if that fails, `problem` says why."""
    uses = [missed]
    name = engine.name.rpartition(".")[2]
    try:
        # Under asyncio in a thread: tasks that the agent left running get their turn.
        made = yield Consult(
            lambda: Composition(name, run, task, result.value, engine.returns, seconds)
        )
    except Exception as error:  # noqa: BLE001 - the run itself went well
        problem = _store_problem(error)
        result.problem = result.problem or problem
        _warn(problem)
        yield from _log(engine, uses, result)
        return

    def store() -> str:
        refuse_unfinished(run)
        known = engine.cache.find(task.key).stored
        behaviour, numbers = made.together([item.behaviour for item in known])
        again = [known[number] for number in numbers]
        sources = [*before, *(item.event for item in again if item.event), *run.uses.take()]
        stored = engine.cache.record(task, run, behaviour, uses, result.value, sources)
        ids = {item.id for item in again}
        engine.cache.make_room(task.key, stored, ids, engine.max_per_task)
        if engine.max_behaviours is not None:
            engine.cache.limit(engine.max_behaviours)
        return stored

    try:
        result.behaviour = yield Consult(store)
        result.stored = True
    except Exception as error:  # noqa: BLE001 - the run itself went well
        result.problem = _store_problem(error)
        _warn(result.problem)


def _log(engine: "Engine", drafts: Sequence[Draft], result: Result) -> Effects[None]:
    try:
        yield Consult(lambda: engine.cache.log(*drafts))
    except Exception as error:  # noqa: BLE001 - the run itself went well
        result.problem = _store_problem(error)


def _log_now(engine: "Engine", draft: Draft) -> None:
    """Log while an error is being raised; a failing store must not hide that error."""
    try:
        engine.cache.log(draft)
    except Exception as problem:  # noqa: BLE001 - the error being raised matters more
        _warn(_store_problem(problem))


def _warn(problem: EmError) -> None:
    import logging

    logging.getLogger("em.behaviour").warning("the run was not stored: %s", problem)
