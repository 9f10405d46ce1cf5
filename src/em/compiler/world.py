"""The world of a recording: it answers calls as an agent's were answered, and compares effects.

Trials and shadow mode run a routine in it. A read is answered with what the agent got for the same
call. A call with an effect is not made: it is looked up among those of the agent.
"""

import itertools
import threading
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.trials import written
from em.errors import RoutineError
from em.runner.tools import Function
from em.values.call import Effect
from em.values.canonical import Json, short

Verdict = Literal["agreed", "differed", "handed_over", "not_compared"]

_KEY = "idempotency_key"


class EffectMade(msgspec.Struct, frozen=True):
    """A call with an effect."""

    tool: str
    args: Json = {}


class Ended(RoutineError):
    """A run in a recorded world is over: `World.end` says why."""

    code = "recording_ended"


class World:
    """The world as one agent saw it.

    did: the agent's effects. left: those that the run has not made yet. would_do: the run's.
    end: the verdict and its reason, once a call ended the run.
    """

    def __init__(self, calls: Sequence[TracedCall]) -> None:
        self.calls = calls
        self.did = [one for one in calls if one.effect == "write" and not one.failed]
        self.left = list(self.did)
        self.would_do: list[EffectMade] = []
        self.end: tuple[Verdict, str] | None = None
        self._lock = threading.Lock()
        self._keys = [_key_of(one.name, one.args) for one in calls]
        # How many effects the agent had made before each call.
        effects = [one.effect == "write" and not one.failed for one in calls]
        self._moments = [0, *itertools.accumulate(effects)][:-1]

    def tool(self, name: str) -> Function:
        """Return a stand-in for a tool or a function, whose effect is as recorded."""
        writes = any(one.name == name and one.effect == "write" for one in self.calls)
        return self.stand_in(name, "write" if writes else "read")

    def stand_in(self, name: str, effect: Effect) -> Function:
        """Return what answers calls of a tool or a function."""

        def call(**args: Any) -> Any:
            found = self.take(name, args, effect)
            if found.failed:
                raise RuntimeError(str(found.error))
            return found.result

        call.__name__ = name
        return call

    def find(self, name: str, args: Json, effect: Effect) -> TracedCall | None:
        """Return the agent's call that is the same as this one; None if it made none.

        Of several reads, the one made after as many effects counts, or the nearest to that.
        """
        key = _key_of(name, args)
        same = [
            one
            for one, known in zip(self.calls, self._keys, strict=True)
            if known == key and one.effect == effect
        ]
        if effect == "write":
            still = [one for one in same if one.failed or one in self.left]
            return min(still, key=lambda one: (one.failed, one.index), default=None)
        return min(same, key=self._distance, default=None)

    def _distance(self, read: TracedCall) -> tuple[int, int, int]:
        """Rank a read by when it was made: now, else before, else later."""
        then, now = self._moments[read.index], len(self.did) - len(self.left)
        return (0 if then == now else 1 if then < now else 2), abs(then - now), read.index

    def take(self, name: str, args: Json, effect: Effect) -> TracedCall:
        """Return the same, and note an effect that the run would have had.

        Raises Ended if the agent made no such call.
        """
        with self._lock:
            if self.end is not None:
                raise Ended(self.end[1])
            found = self.find(name, args, effect)
            if effect == "write":
                self.would_do.append(EffectMade(name, args))
                if found is None:
                    raise self.over("differed", self._other(name, args))
                if not found.failed:
                    self.left.remove(found)
            elif found is None:
                raise self.over("handed_over", f"the agent never called {name}({short(args)})")
            return found

    def over(self, verdict: Verdict, reason: str) -> Ended:
        """End the run with this verdict; return the error to raise."""
        self.end = verdict, reason
        return Ended(reason)

    def _other(self, name: str, args: Json) -> str:
        """Say how a call differs from those of the agent."""
        same = [one for one in self.left if one.name == name]
        if not same:
            again = "again " if any(one.name == name for one in self.did) else ""
            return f"it would have called {name} {again}with {short(args)}; the agent did not"
        theirs = same[0].args
        names = [key for key in {**theirs, **args} if theirs.get(key) != args.get(key)]
        return f"it would have called {name} with another {' and '.join(names)}"

    def verdict(self, stopped: str, *, goes_on: bool = False) -> tuple[Verdict, str]:
        """Return how the run compares with the agent's, and why.

        stopped: why the run stopped before its end, "" if it did not.
        goes_on: an agent goes on where the run stopped, so nothing stays half done.
        """
        if self.end is not None:
            if self.end[0] != "handed_over":
                return self.end
            stopped = self.end[1]
        left = ", ".join(one.name for one in self.left)
        made = [one for one in self.did if one not in self.left]
        if stopped and made and left and not goes_on:
            done = ", ".join(one.name for one in made)
            return "differed", f"it would have stopped after {done}, without {left}: {stopped}"
        if stopped:
            return "handed_over", stopped
        return ("differed", f"it would not have called {left}") if left else ("agreed", "")


def _key_of(name: str, args: Json) -> str:
    """Return a call as text to compare; its idempotency key is another each time."""
    return written(name, {key: value for key, value in args.items() if key != _KEY})
