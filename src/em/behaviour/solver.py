"""Solver: replay a task's behaviours, hand over to the agent, store what the agent did.

One machine for plain and for async agents; `em.runner.drivers` drives it.
"""

import functools
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from em.behaviour.agent_run import Inside, Run, composed, current, refuse_unfinished
from em.behaviour.behaviour import Behaviour
from em.behaviour.cache import Known, Stored, expired
from em.behaviour.hand_over import HandOver
from em.behaviour.replay import Replay
from em.behaviour.result import Done, Progress, Result, Saved
from em.behaviour.task import Task
from em.behaviour.way import Way, newest
from em.errors import Diverged, EmError, NotRecordable, StoreError
from em.log.event import Draft, behaviour_stream
from em.log.use import collecting, uses_here
from em.runner.drivers import CallTool, Consult, Effects
from em.traces.recorder import error_text
from em.traces.threads import follow_into_pools
from em.values.canonical import Json, identical

if TYPE_CHECKING:
    from em.behaviour.engine import Engine

LOOKED_AT = 8
"""Behaviours that an event of a miss or a hand-over names, the newest."""


class Solver:
    """One call of an engine: why the agent is needed, and what a replay did before.

    task: None if the arguments can't be stored; then nothing is looked up or stored.
    """

    def __init__(
        self, engine: "Engine", task: Task | None, args: tuple[Any, ...], kwargs: Json
    ) -> None:
        self._engine, self._args, self._kwargs = engine, args, kwargs
        self._task = task
        self._reason = ""
        self._problem: EmError | None = None
        self._looked_at: Sequence[Stored] = ()
        self._replay: Replay | None = None

    def solve(self) -> Effects[Result]:
        """Do the task; `Result.how` says how."""
        engine, task = self._engine, self._task
        assert task is not None
        try:
            known: Known = yield Consult(lambda: engine.cache.find(task.key))
        except StoreError as error:  # the agent can work without the store
            self._reason, self._problem = f"the store could not be read: {error}", error
            return (yield from self._run_agent(task))
        usable, self._reason = self._usable(known)
        self._looked_at = known.stored[: -LOOKED_AT - 1 : -1]
        if not usable:
            return (yield from self._run_agent(task))

        same, given = known.tapes, task.inputs
        if task.params:
            same = [way for way in same if identical(way.behaviour.inputs, given)]
        tapes = _with_masks(same, usable)
        are_all = sum(mask.bit_count() for _, mask in tapes) == len(usable)
        lessons = functools.partial(self._lessons, task.key, known, usable)
        replay = Replay(tapes, lessons, are_all, given, engine)
        if (yield from self._replaying(task, replay)):
            return (yield from self._hit(task, replay))
        self._reason = replay.reason or "no behaviour was recorded with these params"
        if replay.followed is not None:
            self._looked_at = newest(*replay.followed, LOOKED_AT)
        if replay.has_begun:
            self._replay = replay
            yield from self._trying(lambda: self._note_divergence(task, replay))
            if engine.on_divergence == "raise":
                done = [{"tool": d.tool, "args": d.args, "result": d.result} for d in replay.done]
                raise Diverged(replay.reason, place=f"after {len(done)} steps", done=done)
        return (yield from self._run_agent(task))

    def without_task(self, problem: EmError) -> Effects[Result]:
        """Let the agent do a task whose arguments can't be stored."""
        progress = Progress(reason=str(problem))
        value = yield from self._record_agent(Run(None, self._engine.name, progress))
        _warn(problem)
        return Result("miss", value, reason=str(problem), problem=problem)

    # ---- replays

    def _usable(self, known: Known) -> tuple[Collection[str], str]:
        """Return the ids of the behaviours that may be replayed, and why not the others."""
        if not known.stored:
            return (), "no behaviour is stored for this task"
        (fit, reason), ttl = self._engine.fitting(known), self._engine.ttl
        if ttl is None:
            return fit, reason
        old = f"the behaviour is older than {ttl.total_seconds():g} s"
        found = {one.id for one in known.stored if one.id in fit and not expired(one, ttl)}
        return found, reason or old

    def _lessons(
        self, key: str, known: Known, usable: Collection[str]
    ) -> Sequence[tuple[Way, int]]:
        """Return the ways that recordings teach; none if the learner fails."""
        try:
            return _with_masks(self._engine.cache.lessons(key, known), usable)
        except Exception as error:  # noqa: BLE001 - the agent can do the task
            self._problem = NotRecordable(f"nothing could be learnt: {error_text(error)}")
            _warn(self._problem)
            return ()

    def _replaying(self, task: Task, replay: Replay) -> Effects[bool]:
        token = current.set(Inside(None))
        try:
            return (yield from replay.run(self._engine.returns))
        except BaseException as error:
            # Interrupted: log what was done, then raise on.
            if replay.has_begun:
                replay.interrupted(error)
                self._log_now(self._replayed(task, replay, "interrupted", []))
            raise
        finally:
            current.reset(token)

    def _hit(self, task: Task, replay: Replay) -> Effects[Result]:
        assert replay.ended is not None
        (item,) = newest(*replay.ended)
        behaviour = item.behaviour
        seconds = max(0.0, behaviour.seconds - replay.seconds)
        saved = Saved(seconds, behaviour.tokens, behaviour.cost_usd)
        event = self._replayed(task, replay, "hit", [item], saved)
        yield from self._trying(lambda: self._engine.cache.log(event))
        return Result(
            "hit",
            replay.value,
            steps=replay.done,
            saved=saved,
            behaviour=item.id,
            problem=self._problem,
        )

    def _note_divergence(self, task: Task, replay: Replay) -> None:
        """Log a hand-over. Only the newest is blamed: older ones may fit another state."""
        engine, followed = self._engine, self._looked_at[0]
        engine.cache.log(self._replayed(task, replay, "handed_over", [followed]))
        if engine.retire_after:
            engine.cache.retire_doubtful(task.key, followed, engine.retire_after)

    def _replayed(
        self,
        task: Task,
        replay: Replay,
        outcome: str,
        items: Sequence[Stored],
        saved: Saved | None = None,
    ) -> Draft:
        body: Json = {
            "outcome": outcome,
            "versions": [item.version for item in items],
            # The behaviour has the calls; with the results, its expressions give the arguments.
            "results": [step.result for step in replay.done],
            "seconds": round(replay.seconds, 6),
        }
        if task.params:
            body["params"] = task.params
        if saved is not None:
            told = {"seconds": round(saved.seconds, 6), "tokens": saved.tokens}
            told["cost_usd"] = saved.cost_usd
            body["saved"] = {name: one for name, one in told.items() if one is not None}
        if outcome != "hit":
            body |= {"reason": replay.reason, "cause": replay.cause}
        return self._draft(task, "behaviour_replayed", body, items)

    def _draft(self, task: Task, kind: str, body: Json, items: Sequence[Stored]) -> Draft:
        """Return an event of the task; it may quote what these behaviours recorded."""
        name = self._engine.name
        sources = [item.event for item in items if item.event]
        body = {"engine": name, "key": task.key, **body} | (
            {"from_events": sources} if sources else {}
        )
        stream = behaviour_stream(name, task.key)
        return Draft(stream=stream, kind=kind, body=body, subject=task.subject)

    # ---- the agent

    def _run_agent(self, task: Task) -> Effects[Result]:
        """Let the agent do the task, or the rest of it; store the run if it succeeded."""
        before, goes_on = self._replay, self._engine.on_divergence == "continue"
        run = Run(task, self._engine.name, (yield from self._progress(task)), self._engine.contexts)
        hand_over = None if before is None else HandOver(before, run, answers=goes_on)
        began = time.perf_counter()
        try:
            value = yield from self._record_agent(run)
        except BaseException as error:
            self._log_now(self._missed(task, time.perf_counter() - began, error))
            raise
        seconds = time.perf_counter() - began
        missed = self._missed(task, seconds)
        steps = [
            Done(call.name, call.arguments, call.result, call.error, call.replayed)
            for call in run.calls
        ]
        result = Result("miss", value, steps=steps, reason=self._reason, problem=self._problem)
        sources: Sequence[str] = ()
        if before is not None and hand_over is not None:
            result.how = "handed_over"
            hand_over.settle()
            if goes_on:
                # The first calls of the run are those of behaviours.
                seconds += before.seconds
                sources = [item.event for item in self._looked_at if item.event]
            else:
                result.steps = [*before.done, *steps]
        yield from self._keep(task, run, result, missed, seconds, sources)
        return result

    def _progress(self, task: Task) -> Effects[Progress]:
        found, briefing = Progress(reason=self._reason), self._engine.briefing
        if briefing is not None:
            lessons = yield from self._trying(lambda: briefing(task.arguments))
            found.heuristics = lessons or ()
        if self._replay is not None:
            found.is_unknown = self._replay.is_unknown
            if self._engine.on_divergence != "restart":
                found.done, found.failed = self._replay.done, self._replay.failed
        return found

    def _record_agent(self, run: Run) -> Effects[Any]:
        """Run the agent and record its calls."""
        engine, given = self._engine, self._kwargs
        if engine.takes_progress:
            given, run.briefed = {**given, "progress": run.progress}, True
        follow_into_pools(current, Run)
        follow_into_pools(uses_here)
        token = current.set(run)
        engine.watching.append(run)
        try:
            with collecting(run.uses):
                call = CallTool(engine.agent, given, engine.is_async, None, self._args, False)
                return (yield call)
        finally:
            engine.watching.remove(run)
            current.reset(token)

    def _missed(self, task: Task, seconds: float, error: BaseException | None = None) -> Draft:
        body: Json = {
            "reason": self._reason,
            "seconds": seconds,
            "versions": [item.version for item in self._looked_at],
            "handed_over": self._replay is not None,
        }
        if error is not None:
            body["error"] = error_text(error)
        return self._draft(task, "behaviour_missed", body, self._looked_at)

    # ---- the store

    def _keep(
        self,
        task: Task,
        run: Run,
        result: Result,
        missed: Draft,
        seconds: float,
        before: Sequence[str],
    ) -> Effects[None]:
        """Store the run and its behaviour; if that fails, `problem` says why."""
        engine = self._engine

        def store(made: Behaviour) -> str:
            refuse_unfinished(run)
            sources = [*before, *run.uses.take()]
            stored = engine.cache.record(task, run, made, [missed], result.value, sources)
            engine.cache.make_room(task.key, stored, engine.max_per_task)
            if engine.max_behaviours is not None:
                engine.cache.limit(engine.max_behaviours)
            return stored

        try:
            # Under asyncio in a thread: tasks that the agent left running get their turn.
            made = yield Consult(lambda: composed(run, task, result.value, engine.returns, seconds))
        except Exception as error:  # noqa: BLE001 - the run itself went well
            problem = _store_problem(error)
            _warn(problem)
            self._problem = result.problem or problem
            yield from self._trying(lambda: engine.cache.log(missed))
            result.problem = self._problem
            return
        try:
            result.behaviour = yield Consult(lambda: store(made))
            result.stored = True
        except Exception as error:  # noqa: BLE001 - the run itself went well
            result.problem = _store_problem(error)
            _warn(result.problem)

    def _trying(self, work: Callable[[], Any]) -> Effects[Any]:
        """Do what the run does not depend on; note why it failed."""
        try:
            return (yield Consult(work))
        except Exception as error:  # noqa: BLE001 - the run itself went well
            self._problem = self._problem or _store_problem(error)
        return None

    def _log_now(self, draft: Draft) -> None:
        """Log while an error is being raised; a failing store must not hide that error."""
        try:
            self._engine.cache.log(draft)
        except Exception as problem:  # noqa: BLE001 - the error being raised matters more
            _warn(_store_problem(problem))


def _with_masks(ways: Sequence[Way], usable: Collection[str]) -> list[tuple[Way, int]]:
    """Return ways with those of their behaviours that are usable, as bits."""
    found = []
    for way in ways:
        mask = way.all
        if not all(one.id in usable for one in way.stored):
            mask = sum(1 << n for n, one in enumerate(way.stored) if one.id in usable)
        if mask:
            found.append((way, mask))
    return found


def _store_problem(error: Exception) -> EmError:
    if isinstance(error, EmError):
        return error
    return NotRecordable(f"it could not be stored: {error_text(error)}")


def _warn(problem: EmError) -> None:
    logging.getLogger("em.behaviour").warning("%s", problem)
