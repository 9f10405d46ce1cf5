"""Replay: call a behaviour's tools behind its checks, with this run's values, until it diverges."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from em.behaviour.agent_run import Call, Run
from em.behaviour.behaviour import Capture, Step, result_hash
from em.behaviour.cache import Known
from em.behaviour.check import Check
from em.behaviour.codec import NotEncodable, copy, encode, is_lazy, snapshot
from em.behaviour.likeness import Seen
from em.behaviour.outlook import FAILURES, Part
from em.behaviour.result import Done, short
from em.behaviour.task import used_by
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.behaviour.tree import End, Node, Sight, members, newest, restored
from em.errors import NotRecordable
from em.runner.drivers import CallTool, Effects
from em.runner.expressions.language import compile_value, whole_expression
from em.traces.recorder import error_text
from em.values.canonical import Json

Cause = Literal["", "check", "error", "time", "value"]


class Prepared(msgspec.Struct):
    """A step with this run's arguments and, once it is taken, its result.

    args: the arguments as JSON. bound: as the tool takes them, with the object it belongs to.
    """

    node: Node
    step: Step
    tool: EngineTool
    bound: Bound
    args: Json
    sights: dict[str, Any] = {}
    value: Any = None
    result: Any = None
    is_complete: bool = True
    seconds: float = 0.0


class Replay:
    """One replay: the behaviours still possible (`alive`), the calls made, and their results."""

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
        self.taken: list[Prepared] = []
        self._seen: list[Seen] = []
        self._alike: list[int] = []
        self._due: list[Part] = []
        self._doomed: list[tuple[int, str]] = []
        self._compared: dict[int, int] = {}
        self._unlike: dict[int, str] = {}
        self._lost = False
        self.done: list[Done] = []
        self.failed: Done | None = None
        self.failed_in_a_write = False
        self._reason: str | _Refusal = ""
        self._reasons = 0
        self.cause: Cause = ""
        self.started = time.perf_counter()
        self.seconds = 0.0
        self.value: Any = None
        self.ended_as: int | None = None

    @property
    def reason(self) -> str:
        """Why the replay stopped, in words."""
        more = self._reasons - 1
        return f"{self._reason} (and {more} more did not fit)" if more > 0 else str(self._reason)

    @property
    def has_begun(self) -> bool:
        """Whether any tool was called."""
        return bool(self.done) or self.failed is not None

    def run(self, hint: Any) -> Effects[bool]:
        """Replay; return whether it reached the end. If not, `reason` and `done` say more."""
        node, due_after = self._known.root, self._known.outlook.after
        try:
            while self._has_time():
                self._due += due_after(node)
                self._forgive()
                only = node.only
                chosen = self._follow(only) if only else (yield from self._choose(node))
                if chosen is None:
                    return self._end(node, hint)
                node = chosen.node
                self._forgive()
                began = time.perf_counter()
                try:
                    value = yield self._call(chosen)
                except Exception as error:  # noqa: BLE001 - a tool may raise anything
                    why = error_text(error)
                    return self._fail(chosen, why, f"raised {why}")
                if not self._note(chosen, value, time.perf_counter() - began):
                    return False
                if node.post and not (yield from self._passes_after(chosen)):
                    return False
            return False
        finally:
            self.seconds = time.perf_counter() - self.started

    def _has_time(self) -> bool:
        allowed = self._grace + self._factor * self._known.tool_seconds[newest(self.alive)]
        spent = time.perf_counter() - self.started
        if spent <= allowed:
            return True
        return self._diverge("time", f"the replay took {spent:.1f} s of {allowed:.1f} s allowed")

    def interrupted(self, error: BaseException) -> None:
        """Set the reason of a replay that an error from outside ended."""
        self._forgive()
        self._diverge("error", f"it was interrupted by {type(error).__name__}")

    def _diverge(self, cause: Cause, reason: "str | _Refusal", times: int = 1) -> bool:
        """Note why a behaviour does not fit: the first reason is shown, the others are counted."""
        self.cause = cause
        if not self._reasons:
            self._reason = reason
        self._reasons += times
        return False

    def _forgive(self) -> None:
        """Drop the reasons against behaviours that no longer matter."""
        if self._reasons:
            self._reason, self._reasons = "", 0

    def _follow(self, only: Node) -> "Prepared | None":
        """Return the one step that can be next; None if it may not be taken."""
        prepared = self._prepare(only)
        may_take = prepared is not None and self._may_take(prepared, only.mask & self.alive)
        return prepared if may_take else None

    def _choose(self, node: Node) -> Effects["Prepared | None"]:
        """Return the next step: one whose check passes, else one without a check.

        None if no step is possible: only then may a behaviour that ends here answer. Where
        behaviours differ in the next call, one without a check is taken only if this run's results
        equal the recorded ones.
        """
        unchecked: Prepared | None = None
        possible = [child for child in node.children if child.mask & self.alive]
        parting = self._parts(node, possible, self.alive)
        if len(possible) > 1:
            possible.sort(key=self._order)
        alike = self._alike_of(self.alive) if parting else self.alive
        refused = 0
        for child in possible:
            prepared = self._prepare(child)
            if prepared is None:
                continue
            check = prepared.tool.pre_check
            if check is None or not child.pre:
                if unchecked is None and self._may_take(prepared, child.mask & alike):
                    unchecked = prepared
                continue
            passing = yield from self._compare(prepared, check, child.pre, "pre-check")
            passing &= child.mask & self.alive
            if self._may_take(prepared, passing, is_checked=True):
                self.alive = passing
                return prepared
            refused |= child.mask
        if refused & alike and parting:
            alike = 0  # the results fit, and its check says that the world has changed
        if not self._narrow(alike) or unchecked is None:
            return None
        self.alive &= unchecked.node.mask
        return unchecked

    def _may_take(self, prepared: "Prepared", mask: int, *, is_checked: bool = False) -> bool:
        """Return whether one of these behaviours may take a step that some of them prepared.

        All that can be evaluated by now of what follows is tried. Before a write, results are
        compared with the recorded ones; where a check has passed, it has compared what matters.
        """
        mask = self._sound(mask)
        if not mask or not prepared.tool.writes:
            return bool(mask)
        if not is_checked:
            mask = self._like_of(mask)
        if not mask & (mask - 1):
            return bool(mask)  # one is left: nothing has to be decided
        return self._can_be_decided(prepared.node, mask)

    def _sound(self, mask: int) -> int:
        """Return those of these behaviours that can still reach their end."""
        if self._due:
            self._try_parts(mask)
        for doomed, problem in self._doomed:
            if doomed & mask:
                mask &= ~doomed
                self._diverge("value", problem)
        return mask

    def _try_parts(self, mask: int) -> None:
        """Try the parts that are due and that one of these behaviours needs."""
        waiting = []
        for part in self._due:
            if not part.mask & mask:
                waiting.append(part)
            elif problem := part.problem(self._scope):
                self._doomed.append((part.mask, problem))
        self._due = waiting

    def _like_of(self, mask: int) -> int:
        """Return those of these behaviours whose reads returned what was recorded."""
        for number in members(mask):
            if self._compared.get(number) != len(self.taken):
                self._compare_parts(number)
            if problem := self._unlike.get(number):
                mask &= ~(1 << number)
                self._diverge("value", problem)
        return mask

    def _compare_parts(self, number: int) -> None:
        """Compare the results since the last time with those that a behaviour recorded."""
        steps = self._known.stored[number].behaviour.steps
        for place in range(self._compared.get(number, 0), len(self.taken)):
            if path := self._seen[place].difference(steps[place]):
                self._unlike[number] = self._differs(place, path)
                break
        self._compared[number] = len(self.taken)

    def _differs(self, place: int, path: str) -> str:
        tool = self.taken[place].step.tool
        return f"step {place + 1} ({tool}) returned another {path} than when this was recorded"

    def _can_be_decided(self, node: Node, mask: int) -> bool:
        """Return whether this run's results may still decide where these behaviours differ."""
        while mask & (mask - 1):
            possible = [child for child in node.children if child.mask & mask]
            ending = node.end_mask & mask
            if any(child.pre for child in possible):
                return True
            if self._parts(node, possible, mask) or self._answers_differ(node, ending):
                return bool(self._alike_of(mask)) or self._diverge(
                    "value", f"{self._where()} returned a result that was never recorded"
                )
            if len(possible) != 1:
                return True
            node = possible[0]
        return True

    def _narrow(self, alike: int) -> bool:
        """Continue with these behaviours only; stop if there are none."""
        self._lost = not alike
        if self._lost and not self._reasons:
            self._diverge("value", f"{self._where()} returned a result that was never recorded")
        self.alive = alike or self.alive
        return not self._lost

    def _parts(self, node: Node, possible: Sequence[Node], mask: int) -> bool:
        """Return whether these behaviours differ in what comes next."""
        if node.end_mask & mask:
            return bool(possible)
        return len(possible) > 1 and len({child.call for child in possible}) > 1

    def _alike_of(self, mask: int) -> int:
        """Return those of these behaviours whose recorded results all equal this run's."""
        self._compare_results()
        for alike in self._alike:
            mask &= alike
        return mask

    def _where(self) -> str:
        return f"step {len(self.done)} ({self.taken[-1].step.tool})" if self.taken else "the task"

    def _order(self, child: Node) -> tuple[bool, int, float, int]:
        """Order by: has a check, recorded results equal to this run's, cost, newest."""
        mask = child.mask & self.alive
        return (not child.pre, -max(map(self._likeness, members(mask))), child.cost, -mask)

    def _likeness(self, number: int) -> int:
        """Count the results so far that equal a behaviour's recorded ones."""
        self._compare_results()
        return sum(mask >> number & 1 for mask in self._alike)

    def _compare_results(self) -> None:
        while len(self._alike) < len(self.taken):
            prepared = self.taken[len(self._alike)]
            self._alike.append(prepared.node.gave.get(result_hash(prepared.result), 0))

    def _prepare(self, node: Node) -> "Prepared | None":
        """Return a step with this run's arguments; None if they can't be evaluated."""
        step = node.step
        assert step is not None
        tool = self._tools[step.tool]
        try:
            args = node.arguments(self._scope)
            # A tool may change its arguments; the record of the call must not change with them.
            arguments = copy(args)
            if step.forms or step.live:
                arguments = restored(arguments, step.forms, tool.hints)
                for name, source in step.live.items():
                    arguments[name] = self._lives[source]
        except FAILURES as error:
            problem = f"its arguments can't be evaluated: {error}"
            self._diverge("value", f"{self._place(step)}: {problem}")
            return None
        owner = self._contexts.owner_of(tool) if tool.is_method else None
        return Prepared(node, step, tool, Bound(owner, arguments), args)

    def _place(self, step: Step) -> str:
        return f"step {len(self.done) + 1} ({step.tool})"

    def _compare(
        self, prepared: "Prepared", check: Check[Any], sights: list[Sight], name: str
    ) -> Effects[int]:
        """Return the behaviours whose check passes now."""
        tool = prepared.tool
        place = f"the {name} of step {len(self.done) + (name == 'pre-check')} ({tool.name})"
        try:
            now = yield self._look(prepared, check, name)
        except Exception as error:  # noqa: BLE001 - a check that raises does not pass
            self._diverge("check", f"{place} raised {error_text(error)}")
            return 0
        prepared.sights[name] = now
        passing, alive, scope = 0, self.alive, self._scope
        refused = 0
        first: str | _Refusal = ""
        hint, compare = tool.captured_type(check), check.compare
        for sight in reversed(sights):  # up to as many as the task has behaviours
            if not sight.mask & alive:
                continue
            try:
                then = sight.known if sight.is_known else sight.value(scope, hint)
                verdict = compare(now, then)
                if verdict is True or (verdict is not False and check.passes(verdict)):
                    passing |= sight.mask
                    continue
                first = first or _Refusal(place, now, then, verdict)
            except Exception as error:  # noqa: BLE001 - a check that raises does not pass
                first = first or f"{place} raised {error_text(error)}"
            refused += 1
        if refused:
            self._diverge("check", first, refused)
        return passing

    def _call(self, prepared: "Prepared") -> CallTool:
        """Return the effect that calls a step's tool."""
        tool, bound = prepared.tool, prepared.bound
        return tool.call(*tool.unbind(bound.owner, bound.arguments))

    def _look(self, prepared: "Prepared", check: Check[Any], _name: str) -> CallTool:
        """Return the effect that captures what a step's check compares."""
        return prepared.tool.capture(check, prepared.bound)

    def _note(self, prepared: "Prepared", value: Any, seconds: float) -> bool:
        """Note what a step's tool returned; return whether it is what a replay may go on with."""
        if is_lazy(value):
            return self._fail(
                prepared, "its work is not done", "returned work that is not done yet"
            )
        step = prepared.step
        result, prepared.is_complete = snapshot(value)
        prepared.value, prepared.result, prepared.seconds = value, result, seconds
        self.taken.append(prepared)
        self._seen.append(Seen(prepared.args, result))
        self._lives.append(value)
        self.done.append(Done(step.tool, prepared.args, result, None, True))
        if step.save_as is not None:
            self._scope[step.save_as] = result
        for mask, missed in prepared.node.surprised(result):
            if not self.alive & ~mask:
                problem = f"returned {short(result)}, and it was expected that {missed}"
                return self._diverge("value", f"step {len(self.done)} ({step.tool}) {problem}")
            self.alive &= ~mask
        return True

    def _passes_after(self, prepared: "Prepared") -> Effects[bool]:
        """Return whether the post-check of a step passes for a behaviour that is possible."""
        check = prepared.tool.post_check
        if check is None:
            return True
        passing = yield from self._compare(prepared, check, prepared.node.post, "post-check")
        if not passing & self.alive:
            return False
        self.alive &= passing
        return True

    def _fail(self, prepared: "Prepared", error: str, problem: str) -> bool:
        """Note a call without a result: its effect is unknown."""
        self.failed = Done(prepared.step.tool, prepared.args, None, error, True)
        self.failed_in_a_write = prepared.tool.writes
        return self._diverge("error", f"{self._place(prepared.step)} {problem}")

    def steps_to_come(self) -> list[tuple[EngineTool, Json]]:
        """Return the calls that the newest possible behaviour would have made next.

        Calls whose arguments need results that are not there are left out.
        """
        steps = self._known.stored[newest(self.alive)].behaviour.steps[len(self.taken) :]
        found = []
        for step in steps:
            with suppress(*FAILURES):
                found.append((self._tools[step.tool], compile_value(step.args, "")(self._scope)))
        return found

    def recount(self, run: Run) -> list[Call]:
        """Add the replayed calls to the run of the agent that takes over; return them."""
        for prepared in self.taken:
            call = Call(prepared.tool)
            call.began = run.tick()
            call.args, call.forms = prepared.args, dict(prepared.step.forms)
            call.live = dict(prepared.step.live)
            call.value, call.result = prepared.value, prepared.result
            call.opaque = not prepared.is_complete
            call.seconds = prepared.seconds
            call.replayed = True
            call.owner = prepared.bound.owner
            call.fixed = {
                name: value
                for name, value in prepared.args.items()
                if "{{" not in str(prepared.step.args.get(name))
            }
            call.pre = self._capture(run, prepared, prepared.tool.pre_check, "pre-check")
            call.ended = run.tick()
            call.post = self._capture(run, prepared, prepared.tool.post_check, "post-check")
            run.calls.append(call)
        return list(run.calls)

    def _capture(
        self, run: Run, prepared: Prepared, check: Check[Any] | None, name: str
    ) -> Capture | None:
        if check is None or name not in prepared.sights:
            return None
        try:
            value, form = encode(prepared.sights[name], prepared.tool.captured_type(check))
        except NotEncodable as problem:
            place = f"tool {prepared.tool.name}, {name}"
            run.cannot_store(NotRecordable(f"its capture can't be stored: {problem}", place=place))
            return None
        return Capture(value, form)

    def _answers_differ(self, node: Node, ending: int) -> bool:
        """Return whether behaviours that end here have different answers."""
        several = bool(ending & (ending - 1))
        return several and len({node.ends[one].content for one in members(ending)}) > 1

    def _outdated(self, end: End) -> str:
        """Say which result an answer may not fit any more; "" if it takes all of it from them."""
        answer = end.answer
        if (
            answer.live is not None
            or answer.value is None
            or (isinstance(answer.value, str) and whole_expression(answer.value) is not None)
        ):
            return ""
        uses: dict[str, list[str]] = {}
        for name, parts in used_by(answer.value):
            uses.setdefault(name, []).append("".join(f".{part}" for part in parts))
        steps = self._known.stored[end.number].behaviour.steps
        # The check of a write has compared what matters of a record that was read before it.
        checked = (n for n, one in enumerate(self.taken) if one.tool.writes and one.node.pre)
        last = max(checked, default=0)
        for place, step in enumerate(steps):
            if place < last and not self._seen[place].is_asked_again(step):
                continue
            if path := self._seen[place].difference(step, uses.get(step.save_as or "", ())):
                return self._differs(place, path)
        return ""

    def _end(self, node: Node, hint: Any) -> bool:
        """Set the answer if a behaviour ends here; return whether one does."""
        ending = node.end_mask & self.alive
        if not ending or self._lost:
            return False
        self._forgive()
        ending = self._sound(ending)
        if not ending:
            return False
        if self._answers_differ(node, ending):
            # Equal calls with different answers: the recorded results decide.
            ending = self._alike_of(ending)
            if not self._narrow(ending):
                return False
        number = newest(ending)
        if ending & (ending - 1):
            number = max(members(ending), key=lambda one: (self._likeness(one), one))
        end = node.ends[number]
        try:
            self.value = end.value(self._scope, self._lives, hint)
        except FAILURES as error:
            return self._diverge("value", f"the answer can't be evaluated: {error}")
        if problem := self._outdated(end):
            return self._diverge("value", f"the answer may be out of date: {problem}")
        self.alive = ending
        self.ended_as = end.number
        return True


class _Refusal(NamedTuple):
    """A check that did not pass; its text is made only when it is needed."""

    place: str
    now: Any
    then: Any
    verdict: Any

    def __str__(self) -> str:
        score = f", score {self.verdict:g}" if type(self.verdict) is float else ""
        now, then = _shown(self.now), _shown(self.then)
        return f"{self.place} did not pass: now {now}, recorded {then}{score}"


def _shown(value: Any) -> str:
    return short(snapshot(value)[0])
