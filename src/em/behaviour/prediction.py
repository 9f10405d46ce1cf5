"""Prediction: what a replay would have done beside an agent that did the task itself.

The replay runs on what the agent got: a call is answered with the result that the agent got for the
same call, a check with what it captured at that call. Nothing is called.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from em.behaviour.agent_run import Call, Run, refuse_unfinished, refuse_unknown_effects
from em.behaviour.cache import Known
from em.behaviour.check import Check
from em.behaviour.codec import copy, decode, snapshot
from em.behaviour.hand_over import with_defaults
from em.behaviour.replay import Prepared, Replay
from em.behaviour.task import Task
from em.behaviour.tool import Bound, EngineTool
from em.compiler.calls import TracedCall
from em.compiler.shadow import WITH_CALLS, Prediction, compare_answers, draft_of, failed
from em.compiler.world import EffectMade, World
from em.errors import NotRecordable
from em.log.event import Draft, behaviour_stream
from em.runner.drivers import CallTool, drive
from em.values.call import Effect
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.behaviour.engine import Engine


class PredictedReplay(Replay):
    """A replay in the world that an agent saw."""

    def __init__(self, engine: "Engine", task: Task, known: Known, alive: int, run: Run) -> None:
        budget = (engine.budget, engine.grace)
        super().__init__(known, alive, task.inputs, engine.tools, engine.contexts, budget)
        self._run = run
        self.world = World([_traced(number, call) for number, call in enumerate(run.calls)])
        # For each call of the replay, the agent's call that answered it.
        self._answers: list[int] = []

    def _call(self, prepared: Prepared) -> CallTool:
        return _effect(self._answer, prepared)

    def _look(self, prepared: Prepared, check: Check[Any], name: str) -> CallTool:
        return _effect(self._captured, prepared, check, name)

    def _answer(self, prepared: Prepared) -> Any:
        found = self.world.answer(*self._asked(prepared))
        self._answers.append(found.index)
        call = self._run.calls[found.index]
        if call.error is not None:
            raise RuntimeError(call.error)
        # The agent may have changed what it got; the run has it as it was.
        return call.value if call.opaque else copy(call.result)

    def _captured(self, prepared: Prepared, check: Check[Any], name: str) -> Any:
        """Return what a check would have captured: what it did capture at the agent's call."""
        if name == "pre-check":
            found = self.world.found(*self._asked(prepared))
            call = (
                self._looked_alike(prepared, check)
                if found is None
                else self._run.calls[found.index]
            )
            capture = None if call is None else call.pre
        else:
            capture = self._run.calls[self._answers[-1]].post
        if capture is None:
            why = f"nobody knows what the {name} of {prepared.tool.name} would have seen"
            raise self.world.leave(why)
        return decode(copy(capture.value), capture.form, prepared.tool.captured_type(check))

    def _looked_alike(self, prepared: Prepared, check: Check[Any]) -> Call | None:
        """Return another call of the agent at which the check looked at the same arguments."""
        tool = prepared.tool
        wanted = tool.capture(check, prepared.bound)
        for call in self._run.calls:
            if call.tool is tool and not call.live:
                bound = Bound(call.owner, tool.restored(copy(call.args), call.forms))
                looked = tool.capture(check, bound)
                if (looked.positional, looked.args) == (wanted.positional, wanted.args):
                    return call
        return None

    def _asked(self, prepared: Prepared) -> tuple[str, Json, Effect]:
        live = {name: self._answers[source] for name, source in prepared.node.live.items()}
        return _call_of(prepared.tool, prepared.args, live)


def _effect(function: Any, *args: Any) -> CallTool:
    return CallTool(function, {}, False, None, args, False)


def _call_of(tool: EngineTool, args: Json, live: dict[str, int]) -> tuple[str, Json, Effect]:
    """Return a call's tool, all of its arguments, and its effect."""
    steps = {name: {"step": number} for name, number in live.items()}
    return tool.name, {**with_defaults(tool, args, live), **steps}, _effect_of(tool)


def _effect_of(tool: EngineTool) -> Effect:
    return "write" if tool.writes else "read"


def _traced(number: int, call: Call) -> TracedCall:
    name, args, effect = _call_of(call.tool, call.args, call.live)
    return TracedCall(
        index=number,
        name=name,
        is_udf=False,
        args=args,
        result=call.result,
        error=call.error,
        effect=effect,
        effect_inferred=call.tool.effect is None,
        said="",
    )


def compared(
    engine: "Engine", task: Task, run: Run, value: Any, known: Known, alive: int, reason: str
) -> Draft:
    """Compare what a replay would have done with what the agent did and returned.

    alive: the behaviours that may be replayed, as bits. reason: why the others may not.
    Nothing is raised: a replay that failed here would have handed over.
    """
    try:
        made = _predicted(engine, task, run, value, known, alive, reason)
    except Exception as error:  # noqa: BLE001 - the agent is done; the event reports it
        made = failed(error)
    # What a replay would have done may quote what the behaviours recorded.
    quoted = known.stored if made.verdict in WITH_CALLS else ()
    return _draft(engine, made, [one.event for one in quoted if one.event])


def not_compared(engine: "Engine", reason: str) -> Draft:
    """Return the event of a run that can't be compared."""
    return _draft(engine, Prediction("not_compared", reason), ())


def _draft(engine: "Engine", made: Prediction, sources: Sequence[str]) -> Draft:
    return draft_of(behaviour_stream(engine.name), made, from_events=sources)


def _predicted(
    engine: "Engine", task: Task, run: Run, value: Any, known: Known, alive: int, reason: str
) -> Prediction:
    try:
        _refuse(run)
    except NotRecordable as problem:
        return Prediction("not_compared", str(problem))
    replay = PredictedReplay(engine, task, known, alive, run)
    world = replay.world
    did = [EffectMade(one.name, one.args) for one in world.did]
    if not alive:
        return Prediction("handed_over", reason, (), did)
    is_hit = drive(replay.run(engine.returns))
    stopped = "" if is_hit else replay.reason or "the behaviour does not fit"
    verdict, why = world.verdict(world.outcome(stopped, goes_on=True))
    if verdict == "agreed" and not did:
        verdict, why = compare_answers(snapshot(replay.value)[0], snapshot(value)[0])
    return Prediction(verdict, why, world.would_do, did)


def _refuse(run: Run) -> None:
    """Raise NotRecordable if the run does not say all that the agent did."""
    if run.problem is not None:
        raise NotRecordable(str(run.problem))
    refuse_unfinished(run)
    refuse_unknown_effects(run.calls)
