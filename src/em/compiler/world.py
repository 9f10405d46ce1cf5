"""The world beside an agent: what a run would have done there, compared with what the agent did.

Shadow mode runs routines in it. It is the world of a recording in
which effects may come in any order, and in which the order of lists does not count.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from em.compiler import replay_world
from em.compiler.calls import TracedCall
from em.compiler.example import Call
from em.compiler.replay_world import Outcome, unordered_key
from em.values.canonical import Json, short

Verdict = Literal["agreed", "differed", "handed_over", "not_compared"]

_VERDICTS: dict[replay_world.Verdict, Verdict] = {
    "right": "agreed",
    "handed over": "handed_over",
    "wrong": "differed",
}


class EffectMade(msgspec.Struct, frozen=True):
    """A call with an effect."""

    tool: str
    args: Json = {}


class World(replay_world.World):
    """The world as one agent saw it. did: the agent's effects."""

    def __init__(self, calls: Sequence[TracedCall], inputs: Json | None = None) -> None:
        made = [Call(one.name, one.args, one.result, one.error, one.effect) for one in calls]
        super().__init__(inputs or {}, made, in_any_order=True, key=unordered_key)
        self.did = [one for one in calls if one.effect == "write" and not one.failed]

    @property
    def would_do(self) -> list[EffectMade]:
        """The effects of the run, with the one that ended it."""
        return [EffectMade(one.tool, one.args) for one in self.made if one.effect == "write"]

    def outcome(self, stopped: str, *, goes_on: bool = False) -> Outcome:
        """Return how the run compares. A read that is missing stops it like anything else."""
        if self._end is not None and self._end.verdict == "handed over":
            stopped, self._end = self._end.reason, None
        return super().outcome(stopped, goes_on=goes_on)

    def verdict(self, found: Outcome) -> tuple[Verdict, str]:
        """Return how the run compares with the agent's, and why."""
        return _VERDICTS[found.verdict], found.reason

    def _unknown(self, name: str, args: Json) -> str:
        return f"the agent never called {name}({short(args)})"

    def _difference(self, name: str, args: Json) -> str:
        same = [call for call in self._left if call.tool == name]
        if not same:
            again = "again " if any(one.name == name for one in self.did) else ""
            return f"it would have called {name} {again}with {short(args)}; the agent did not"
        theirs = same[0].args
        names = [key for key in {**theirs, **args} if theirs.get(key) != args.get(key)]
        return f"it would have called {name} with another {' and '.join(names)}"
