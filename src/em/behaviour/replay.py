"""Replaying: step by step, behind checks, with this run's values, until it is done or diverges."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from em.behaviour.agent_run import Call, Run
from em.behaviour.behaviour import Capture, Step, result_hash
from em.behaviour.cache import Known
from em.behaviour.check import Check
from em.behaviour.codec import Unkept, copy, is_lazy, keep, seen
from em.behaviour.result import Done, short
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.behaviour.tree import Node, Sight, members, newest, restored
from em.errors import EmError, NotRecordable
from em.runner.effects import Effects
from em.traces.recorder import error_text
from em.values.canonical import Json

Cause = Literal["", "check", "error", "time", "value"]


class _Prepared:
    """A step with this run's arguments, and then with what came of it."""

    __slots__ = (
        "bound", "is_seen", "kept", "node", "result", "seconds", "sights", "step", "tool", "value",
    )  # fmt: skip

    def __init__(self, node: Node, step: Step, tool: EngineTool, bound: Bound, kept: Json) -> None:
        self.node = node
        self.step = step
        self.tool = tool
        self.bound = bound
        self.kept = kept
        self.sights: dict[str, Any] = {}
        self.value: Any = None
        self.result: Any = None
        self.is_seen = True
        self.seconds = 0.0


class Replay:
    """One replay: where it is, what it has done, and what the world answered."""

    def __init__(
        self,
        known: Known,
        alive: int,
        inputs: Json,
        tools: Mapping[str, EngineTool],
        contexts: Contexts,
        budget: tuple[float, float],
    ) -> None:
        self._known = known
        self._tools = tools
        self._contexts = contexts
        self._factor, self._grace = budget
        self._scope: Json = dict(inputs)
        self._lives: list[Any] = []
        self.alive = alive
        self.taken: list[_Prepared] = []
        self._alike: list[int] = []
        self._lost = False
        self.done: list[Done] = []
        self.failed: Done | None = None
        self.reasons: list[str | _Refusal] = []
        self.cause: Cause = ""
        self.started = time.perf_counter()
        self.seconds = 0.0
        self.value: Any = None
        self.ended_as: int | None = None

    @property
    def reason(self) -> str:
        """Why it did not go through, in words."""
        first = str(self.reasons[0]) if self.reasons else ""
        more = len(self.reasons) - 1
        return f"{first} (and {more} more did not fit either)" if more > 0 else first

    @property
    def has_begun(self) -> bool:
        """Whether anything was done to the world."""
        return bool(self.done) or self.failed is not None

    def run(self, hint: Any) -> Effects[bool]:
        """Replay to the end; whether it got there. Otherwise it says why, and what was done."""
        node = self._known.root
        try:
            while True:
                if not self._has_time():
                    return False
                chosen = yield from self._choose(node)
                if chosen is None:
                    return self._end(node, hint)
                if not (yield from self._take(chosen)):
                    return False
                node = chosen.node
        finally:
            self.seconds = time.perf_counter() - self.started

    def _has_time(self) -> bool:
        allowed = self._grace + self._factor * self._known.tool_seconds[newest(self.alive)]
        spent = time.perf_counter() - self.started
        if spent <= allowed:
            return True
        return self._diverge(
            "time", f"the replay took {spent:.1f} s, and {allowed:.1f} s were allowed"
        )

    def _diverge(self, cause: Cause, reason: "str | _Refusal") -> bool:
        self.cause = cause
        self.reasons.append(reason)
        return False

    def _choose(self, node: Node) -> Effects["_Prepared | None"]:
        """The next step: one whose check passes, else one without a check.

        None where none is possible: only then a behaviour that is over here may answer. Where ways
        part, what has no check of its own is right only for the results that it was recorded with.
        """
        unchecked: _Prepared | None = None
        self.reasons.clear()
        possible = [child for child in node.children if child.mask & self.alive]
        parting = self._parts(node, possible)
        if len(possible) > 1:
            possible.sort(key=self._order)
        alike = self._alive_and_alike() if parting else self.alive
        refused = 0
        for child in possible:
            prepared = self._prepare(child)
            if prepared is None:
                continue
            check = prepared.tool.pre_check
            if check is None or not child.pre:
                if child.mask & alike:
                    unchecked = unchecked or prepared
                continue
            passing = yield from self._compare(prepared, check, child.pre, "pre-check")
            if passing & child.mask:
                self.alive &= passing & child.mask
                return prepared
            refused |= child.mask
        if refused & alike and parting:
            alike = 0  # it was the way to go, and the world has changed since
        if not self._narrow(alike) or unchecked is None:
            return None
        self.alive &= unchecked.node.mask
        return unchecked

    def _narrow(self, alike: int) -> bool:
        """Go on with some of the behaviours; if there are none, nobody knows which one is right."""
        self._lost = not alike
        if self._lost and not self.reasons:
            self._diverge("value", f"{self._where()} gave what no recording knows")
        self.alive = alike or self.alive
        return not self._lost

    def _parts(self, node: Node, possible: Sequence[Node]) -> bool:
        """Whether the behaviours that are left do different things from here on."""
        if node.end_mask & self.alive:
            return bool(possible)
        return len(possible) > 1 and len({child.call for child in possible}) > 1

    def _alive_and_alike(self) -> int:
        """The behaviours that were recorded with just the results of this run."""
        self._compare_results()
        alike = self.alive
        for mask in self._alike:
            alike &= mask
        return alike

    def _where(self) -> str:
        return f"step {len(self.done)} ({self.taken[-1].step.tool})" if self.taken else "the task"

    def _order(self, child: Node) -> tuple[bool, int, float, int]:
        """Checked ways first, of them those recorded with results like these, then the cheapest."""
        mask = child.mask & self.alive
        return (not child.pre, -max(map(self._likeness, members(mask))), child.cost, -mask)

    def _likeness(self, number: int) -> int:
        """How many of the results so far are those of a behaviour's recording."""
        self._compare_results()
        return sum(mask >> number & 1 for mask in self._alike)

    def _compare_results(self) -> None:
        while len(self._alike) < len(self.taken):
            prepared = self.taken[len(self._alike)]
            self._alike.append(prepared.node.gave.get(result_hash(prepared.result), 0))

    def _prepare(self, node: Node) -> "_Prepared | None":
        """The tool and its arguments now; None if they can't be put together any more."""
        step = node.step
        assert step is not None
        tool = self._tools[step.tool]
        try:
            kept = node.arguments(self._scope)
            # A tool may change what it is given; what is told of it must not change with it.
            arguments = copy(kept)
            if step.forms or step.live:
                arguments = restored(arguments, step.forms, tool.hints)
                for name, source in step.live.items():
                    arguments[name] = self._lives[source]
            problem = node.disagreement(self._scope)
        except (EmError, ValueError, TypeError, LookupError) as error:
            problem = f"its arguments can't be put together: {error}"
        if problem:
            self._diverge("value", f"{self._place(step)}: {problem}")
            return None
        owner = self._contexts.owner_of(tool) if tool.is_method else None
        return _Prepared(node, step, tool, Bound(owner, arguments), kept)

    def _place(self, step: Step) -> str:
        return f"step {len(self.done) + 1} ({step.tool})"

    def _compare(
        self, prepared: "_Prepared", check: Check[Any], sights: list[Sight], name: str
    ) -> Effects[int]:
        """Which behaviours the world still looks right for."""
        tool = prepared.tool
        place = f"the {name} of step {len(self.done) + (name == 'pre-check')} ({tool.name})"
        try:
            now = yield tool.capture(check, prepared.bound)
        except Exception as error:  # noqa: BLE001 - a check that raises does not pass
            self._diverge("check", f"{place} raised {error_text(error)}")
            return 0
        prepared.sights[name] = now
        passing = 0
        hint = tool.captured_type(check)
        for sight in reversed(sights):
            if not sight.mask & self.alive:
                continue
            try:
                then = sight.value(self._scope, hint)
                verdict = check.compare(now, then)
                passes = check.passes(verdict)
            except Exception as error:  # noqa: BLE001 - a check that raises does not pass
                self._diverge("check", f"{place} raised {error_text(error)}")
                continue
            if passes:
                passing |= sight.mask
            else:
                self._diverge("check", _Refusal(place, now, then, verdict))
        return passing

    def _take(self, prepared: "_Prepared") -> Effects[bool]:
        """Make the call of a step; whether the world then looks as it did."""
        step, tool, bound = prepared.step, prepared.tool, prepared.bound
        self.reasons.clear()
        started = time.perf_counter()
        try:
            value = yield tool.call(*tool.unbind(bound.owner, bound.arguments))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            self.failed = Done(step.tool, prepared.kept, None, error_text(error), True)
            return self._diverge("error", f"{self._place(step)} raised {error_text(error)}")
        if is_lazy(value):
            self.failed = Done(step.tool, prepared.kept, None, "it is not done", True)
            return self._diverge("error", f"{self._place(step)} gave what is not done yet")
        result, is_seen = seen(value)
        prepared.value, prepared.result, prepared.is_seen = value, result, is_seen
        prepared.seconds = time.perf_counter() - started
        self.taken.append(prepared)
        self._lives.append(value)
        self.done.append(Done(step.tool, prepared.kept, result, None, True))
        if step.save_as is not None:
            self._scope[step.save_as] = result
        post, suspects = prepared.node.post, self.alive
        if tool.post_check is None or not post:
            return True
        passing = yield from self._compare(prepared, tool.post_check, post, "post-check")
        if not passing & suspects:
            return False
        self.alive &= passing
        return True

    def recount(self, run: Run) -> None:
        """Note in an agent's run what was done before it took over."""
        for prepared in self.taken:
            call = Call(prepared.tool)
            call.started = None
            call.began = run.tick()
            call.args, call.forms = prepared.kept, dict(prepared.step.forms)
            call.live = dict(prepared.step.live)
            call.value, call.result = prepared.value, prepared.result
            call.opaque = not prepared.is_seen
            call.seconds = prepared.seconds
            call.replayed = True
            call.fixed = {
                name: value
                for name, value in prepared.kept.items()
                if "{{" not in str(prepared.step.args.get(name))
            }
            call.pre = self._capture(run, prepared, prepared.tool.pre_check, "pre-check")
            call.ended = run.tick()
            call.post = self._capture(run, prepared, prepared.tool.post_check, "post-check")
            run.calls.append(call)

    def _capture(
        self, run: Run, prepared: _Prepared, check: Check[Any] | None, name: str
    ) -> Capture | None:
        if check is None or name not in prepared.sights:
            return None
        try:
            value, form = keep(prepared.sights[name], prepared.tool.captured_type(check))
        except Unkept as problem:
            place = f"tool {prepared.tool.name}, {name}"
            run.cannot_keep(NotRecordable(f"its capture can't be kept: {problem}", place=place))
            return None
        return Capture(value, form)

    def _end(self, node: Node, hint: Any) -> bool:
        """The answer, if a behaviour is over here."""
        ending = node.end_mask & self.alive
        if not ending or self._lost:
            return False
        self.reasons.clear()
        if ending & (ending - 1) and len({node.ends[one].said for one in members(ending)}) > 1:
            # The same calls, and other answers: only what was seen tells which one is right.
            ending &= self._alive_and_alike()
            if not self._narrow(ending):
                return False
        number = newest(ending)
        if ending & (ending - 1):
            number = max(members(ending), key=lambda one: (self._likeness(one), one))
        end = node.ends[number]
        try:
            self.value = end.value(self._scope, self._lives, hint)
        except (EmError, ValueError, TypeError, LookupError) as error:
            return self._diverge("value", f"the answer can't be put together: {error}")
        self.alive = ending
        self.ended_as = end.number
        return True


class _Refusal(NamedTuple):
    """A check that did not pass, put into words only if somebody asks."""

    place: str
    now: Any
    then: Any
    verdict: Any

    def __str__(self) -> str:
        score = f", score {self.verdict:g}" if type(self.verdict) is float else ""
        now, then = _shown(self.now), _shown(self.then)
        return f"{self.place} did not pass: it is {now}, it was {then}{score}"


def _shown(value: Any) -> str:
    return short(seen(value)[0])
