"""Hand-over: the agent goes on after a partial replay, and nothing is done twice.

A call of the agent that is identical to one that the replay completed is answered with the result
that the replay got. Each completed call answers once, in order. Writes are always answered. A read
is answered only if no write was made since: a write may have changed what it would return. A write
that raised and may have happened all the same is refused until the agent says that it did not.
"""

import threading
from collections.abc import Collection, Sequence

from em.behaviour.agent_run import Call, Run
from em.behaviour.codec import NotEncodable, encode
from em.behaviour.replay import Replay
from em.behaviour.tool import EngineTool
from em.errors import OutcomeUnknown
from em.values.canonical import Json, identical


class HandOver:
    """The calls that a replay completed before the agent of `run` took over.

    answers: whether they answer the agent's calls; else it starts from the beginning.
    """

    def __init__(self, replay: Replay, run: Run, *, answers: bool) -> None:
        self._run, self._answers = run, answers
        self._unknown = replay.failed if replay.is_unknown else None
        self._replayed = replay.recount(run) if answers else []
        self._open = list(self._replayed)
        self._to_come = [
            (tool, with_defaults(tool, args, ())) for tool, args in replay.steps_to_come()
        ]
        self._reads_are_old = replay.failed_in_a_write
        self._claims: dict[Call, int] = {}
        self._lock = threading.Lock()
        run.answer = self._answer

    def _answer(self, call: Call) -> Call | None:
        """Return the completed call that answers this one, or None if it must be made.

        An agent that was told of the progress may go on where the replay stopped, or begin again.
        The calls that were still to come are therefore made before completed ones answer: the
        number of calls is right in both cases.
        """
        args = with_defaults(call.tool, call.args, call.live)
        self._refuse_unknown(call, args)
        with self._lock:
            if self._run.briefed and (call.tool, args) in self._to_come:
                self._to_come.remove((call.tool, args))
                return None
            return self._claim(call, args)

    def _refuse_unknown(self, call: Call, args: Json) -> None:
        """Refuse to make a call again that may have had its effect."""
        failed = self._unknown if self._run.progress.is_unknown else None
        if failed is None or failed.tool != call.tool.name:
            return
        if with_defaults(call.tool, failed.args, call.live) == args:
            raise OutcomeUnknown(
                f"a replay made this call, and it failed: {failed.error}",
                place=f"tool {failed.tool}",
                fix="find out whether it had its effect; if not, call progress.did_not_happen()",
            )

    def _claim(self, call: Call, args: Json) -> Call | None:
        for done in self._open:
            if (
                done.tool is call.tool
                and done.owner is call.owner
                and done.live == call.live
                and with_defaults(done.tool, done.args, done.live) == args
                and (done.tool.writes or not self._is_old(done))
            ):
                self._open.remove(done)
                self._claims[done] = call.began
                return done
        return None

    def _is_old(self, read: Call) -> bool:
        """Return whether a write was made, or begun, after this read."""
        return self._reads_are_old or any(
            other.tool.writes and other.began > read.ended for other in self._run.calls
        )

    def settle(self) -> None:
        """Leave in the run what is to be stored: every call once, in an order that explains it.

        An agent that was told of the progress used the replayed calls, so they come first. One
        that was not told, or that did all of it again, made its own calls in its own order; a
        completed call that answered one of them counts as that call.
        """
        run = self._run
        if self._unknown is not None and run.progress.is_unknown:
            run.cannot_store(
                f"a call failed, and its effect is unknown: {self._unknown.error}",
                place=f"tool {self._unknown.tool}",
            )
        if not self._answers:
            return
        unclaimed = {call for call in self._replayed if call not in self._claims}
        made = [call for call in run.calls if call not in unclaimed]
        made.sort(key=lambda call: self._claims.get(call, call.began))
        if run.briefed and not self._is_all_again(made):
            return
        for call in self._replayed:
            if call in unclaimed and call.tool.writes:
                run.cannot_store(
                    "the replay made a write that the agent did not ask for",
                    place=f"tool {call.tool.name}",
                    fix="let the agent continue after progress.done",
                )
        for call, tick in self._claims.items():
            call.began = call.ended = tick
        _renumber(run, made)

    def _is_all_again(self, made: Sequence[Call]) -> bool:
        """Return whether the agent began with all the replayed calls again."""
        before = self._replayed
        return len(made) >= len(before) and all(map(_is_again, before, made))


def with_defaults(tool: EngineTool, args: Json, live: Collection[str]) -> Json:
    """Return a call's arguments with the defaults of those that were not given."""
    full = dict(args)
    for name, default in tool.defaults.items():
        if name not in full and name not in live:
            try:
                full[name] = encode(default, tool.hints.get(name))[0]
            except NotEncodable:
                full[name] = repr(default)
    return full


def _is_again(old: Call, new: Call) -> bool:
    return old.tool is new.tool and all(
        name in new.args and identical(value, new.args[name]) for name, value in old.fixed.items()
    )


def _renumber(run: Run, calls: list[Call]) -> None:
    """Make these the run's calls; arguments that are earlier results follow."""
    numbers = {id(call): number for number, call in enumerate(calls)}
    for number, call in enumerate(calls):
        for name, source in call.live.items():
            found = numbers.get(id(run.calls[source]), number)
            call.live[name] = found
            if found >= number:
                run.cannot_store(
                    "it was given an object that a replayed call had returned",
                    place=f"tool {call.tool.name}, argument {name}",
                )
    run.calls = calls
