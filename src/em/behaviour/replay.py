"""Replay: run a behaviour's routine behind its checks, with this run's values, until it diverges.

The runner's machine runs each routine. It yields the calls; they are made here, behind the checks
that stand beside them. Behaviours begin with the same calls, so where one does not go on, another
one is run: its machine is given the results that are there.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from em.behaviour.agent_run import Call, Run
from em.behaviour.behaviour import Behaviour, Capture, result_hash
from em.behaviour.cache import Known
from em.behaviour.check import Check
from em.behaviour.codec import NotEncodable, copy, decode, encode, is_lazy, snapshot
from em.behaviour.likeness import Seen
from em.behaviour.result import Done, short
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.behaviour.tree import Node, Sight, members, newest
from em.errors import EmError, NotRecordable
from em.runner.drivers import CallTool, Effects
from em.runner.expressions.language import compile_value
from em.runner.machine import Machine
from em.runner.request import Bound as Given
from em.runner.run import RunResult
from em.traces.recorder import error_text
from em.values.canonical import Json

FAILURES = (EmError, ValueError, TypeError, LookupError)
"""What evaluating an expression raises if a value is not there."""

Cause = Literal["", "check", "error", "time", "value"]


class Course:
    """The run of one behaviour's routine, as far as this run's results carry it.

    args: those of the call that it wants to make next. result: how it ended.
    """

    def __init__(self, behaviour: Behaviour, inputs: Json, tools: Mapping[str, EngineTool]) -> None:
        self._behaviour = behaviour
        machine = Machine(
            behaviour.program,
            run_id="",
            tools=tools,
            udfs={},
            bound=Given(inputs=inputs, how="given"),
        )
        self._running = machine.run(inputs)
        self._answered = 0
        self.args: Json = {}
        self.result: RunResult | None = None
        self._advance(None)

    def _advance(self, result: Any) -> None:
        try:
            effect = self._running.send(result)
        except StopIteration as end:
            self.result = end.value
        else:
            assert isinstance(effect, CallTool)
            self.args = effect.args

    def goes_on(self, taken: Sequence["Prepared"]) -> bool:
        """Return whether its asserts and what it expects hold, with the results of these calls."""
        while self.result is None and self._answered < len(taken):
            self._answered += 1
            self._advance(taken[self._answered - 1].result)
        return self.result is None or self.result.status == "ok"

    def why_stopped(self) -> str:
        """Say why the routine does not go on, and where."""
        assert self.result is not None
        found, about = self.result.reason, ""
        if found is not None:
            step_id, why, about = found.step_id, found.message, found.check
        else:
            assert self.result.failure is not None
            failed = self.result.failure
            step_id, why = failed.step_id, failed.message.removeprefix(f"step {failed.step_id}: ")
            about = str(failed.context.get("check", ""))
        number, steps = self._answered, self._behaviour.steps
        if number and steps[number - 1].id == step_id:
            last = steps[number - 1]
            where = about.removeprefix(last.save_as or last.id).lstrip(".") or "result"
            return f"step {number} ({last.tool}) returned another {where}: {why}"
        if number < len(steps):
            return f"before step {number + 1} ({steps[number].tool}): {why}"
        return f"before the answer: {why}"


class Prepared(msgspec.Struct):
    """A call with this run's arguments and, once it is made, its result.

    args: the arguments as JSON. bound: as the tool takes them, with the object it belongs to.
    """

    node: Node
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
        self._inputs = inputs
        self._courses: dict[int, Course] = {}
        self.alive = alive
        self.taken: list[Prepared] = []
        self._seen: list[Seen] = []
        self._alike: list[int] = []
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
        node = self._known.root
        try:
            while self._has_time():
                self._forgive()
                only = node.only
                chosen = (
                    self._prepare(only, self.alive) if only else (yield from self._choose(node))
                )
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

    def _choose(self, node: Node) -> Effects["Prepared | None"]:
        """Return the next call: one whose check passes, else one without a check.

        None if no call is possible: only then may a behaviour that ends here answer. Where
        behaviours differ in the next call, one without a check is made only if this run's results
        equal the recorded ones.
        """
        unchecked: Prepared | None = None
        possible = [child for child in node.children if child.mask & self.alive]
        parting = self._parts(node, possible)
        if len(possible) > 1:
            possible.sort(key=self._order)
        alike = self._alike_of(self.alive) if parting else self.alive
        refused = 0
        for child in possible:
            check = self._tools[child.tool].pre_check
            if check is None or not child.pre:
                unchecked = unchecked or self._prepare(child, alike)
                continue
            prepared = self._prepare(child, self.alive, is_checked=True)
            if prepared is None:
                continue
            passing = yield from self._compare(prepared, check, child.pre, "pre-check")
            passing &= child.mask
            if self._that_goes_on(passing) is not None:
                self.alive = passing
                return prepared
            refused |= child.mask
        if refused & alike and parting:
            alike = 0  # the results fit, and its check says that the world has changed
        if not self._narrow(alike) or unchecked is None:
            return None
        self.alive &= unchecked.node.mask
        return unchecked

    def _prepare(self, node: Node, mask: int, *, is_checked: bool = False) -> "Prepared | None":
        """Return a call with this run's arguments; None if none of these behaviours may make it.

        Before a write, results are compared with the recorded ones; where it has a check, that
        compares what matters.
        """
        tool = self._tools[node.tool]
        found = self._that_goes_on(node.mask & mask, is_like=tool.writes and not is_checked)
        if found is None:
            return None
        args = found[1].args
        for name in node.live:
            args.pop(name, None)
        try:
            # A tool may change its arguments; the record of the call must not change with them.
            arguments = tool.restored(copy(args), node.beside.forms)
        except FAILURES as error:
            problem = f"its arguments can't be restored: {error}"
            self._diverge("value", f"step {len(self.done) + 1} ({tool.name}): {problem}")
            return None
        arguments |= {name: self.taken[place].value for name, place in node.live.items()}
        owner = self._contexts.owner_of(tool) if tool.is_method else None
        return Prepared(node, tool, Bound(owner, arguments), args)

    def _that_goes_on(self, mask: int, *, is_like: bool = False) -> tuple[int, Course] | None:
        """Return the newest of these behaviours whose routine goes on, with its course.

        is_like: only one whose recorded reads returned what this run's did.
        """
        while mask:
            number = newest(mask)
            mask ^= 1 << number
            if is_like and (problem := self._unlike_recorded(number)):
                self._diverge("value", problem)
                continue
            course = self._courses.get(number)
            if course is None:
                behaviour = self._known.stored[number].behaviour
                course = self._courses[number] = Course(behaviour, self._inputs, self._tools)
            if course.goes_on(self.taken):
                return number, course
            self._diverge("value", course.why_stopped())
        return None

    def _unlike_recorded(self, number: int) -> str:
        """Say which result differs from what a behaviour recorded; "" if none does."""
        done = self._compared.get(number, 0)
        if number not in self._unlike and done < len(self.taken):
            steps = self._known.stored[number].behaviour.steps
            for place in range(done, len(self.taken)):
                if path := self._seen[place].difference(steps[place].beside):
                    self._unlike[number] = self._differs(place, path)
                    break
            self._compared[number] = len(self.taken)
        return self._unlike.get(number, "")

    def _differs(self, place: int, path: str) -> str:
        tool = self.taken[place].tool.name
        return f"step {place + 1} ({tool}) returned another {path} than when this was recorded"

    def _narrow(self, alike: int) -> bool:
        """Continue with these behaviours only; stop if there are none."""
        self._lost = not alike
        if self._lost and not self._reasons:
            last = (
                f"step {len(self.done)} ({self.taken[-1].tool.name})" if self.taken else "the task"
            )
            self._diverge("value", f"{last} returned a result that was never recorded")
        self.alive = alike or self.alive
        return not self._lost

    def _parts(self, node: Node, possible: Sequence[Node]) -> bool:
        """Return whether behaviours differ in what comes next."""
        return len(possible) > 1 or bool(possible and node.end_mask & self.alive)

    def _alike_of(self, mask: int) -> int:
        """Return those of these behaviours whose recorded results all equal this run's."""
        self._compare_results()
        for alike in self._alike:
            mask &= alike
        return mask

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
        passing, alive, inputs = 0, self.alive, self._inputs
        refused = 0
        first: str | _Refusal = ""
        hint, compare = tool.captured_type(check), check.compare
        for sight in reversed(sights):  # up to as many as the task has behaviours
            if not sight.mask & alive:
                continue
            try:
                then = sight.known if sight.is_known else sight.value(inputs, hint)
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
        result, prepared.is_complete = snapshot(value)
        prepared.value, prepared.result, prepared.seconds = value, result, seconds
        self.taken.append(prepared)
        self._seen.append(Seen(prepared.args, result))
        self.done.append(Done(prepared.tool.name, prepared.args, result, None, True))
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
        name = prepared.tool.name
        self.failed = Done(name, prepared.args, None, error, True)
        self.failed_in_a_write = prepared.tool.writes
        return self._diverge("error", f"step {len(self.done) + 1} ({name}) {problem}")

    def steps_to_come(self) -> list[tuple[EngineTool, Json]]:
        """Return the calls that the newest possible behaviour would have made next.

        Calls whose arguments need results that are not there are left out.
        """
        behaviour = self._known.stored[newest(self.alive)].behaviour
        results = [one.result for one in self.taken]
        scope = dict(self._inputs)
        found = []
        for step in behaviour.routine["steps"]:
            with suppress(*FAILURES):
                if step["type"] == "let":
                    scope[step["save_as"]] = compile_value(step["value"], "")(scope)
                elif step["type"] == "tool.call" and results:
                    scope[step.get("save_as", "")] = results.pop(0)
                elif step["type"] == "tool.call":
                    live = behaviour.captures[step["id"]].live
                    own = {name: one for name, one in step["args"].items() if name not in live}
                    found.append((self._tools[step["tool"]], compile_value(own, "")(scope)))
        return found

    def recount(self, run: Run) -> list[Call]:
        """Add the replayed calls to the run of the agent that takes over; return them."""
        for prepared in self.taken:
            call = Call(prepared.tool)
            call.began = run.tick()
            call.args, call.forms = prepared.args, dict(prepared.node.beside.forms)
            call.live = dict(prepared.node.live)
            call.value, call.result = prepared.value, prepared.result
            call.opaque = not prepared.is_complete
            call.seconds = prepared.seconds
            call.replayed = True
            call.owner = prepared.bound.owner
            fixed = prepared.node.fixed
            call.fixed = {name: one for name, one in prepared.args.items() if name in fixed}
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

    def _outdated(self, number: int) -> str:
        """Say which result an answer may not fit any more; "" if it takes all of it from them."""
        behaviour = self._known.stored[number].behaviour
        free = behaviour.answer.free
        if free is None:
            return ""
        # The check of a write has compared what matters of a record that was read before it.
        checked = (n for n, one in enumerate(self.taken) if one.tool.writes and one.node.pre)
        last = max(checked, default=0)
        for place, step in enumerate(behaviour.steps):
            if place < last and not self._seen[place].is_asked_again(step.beside):
                continue
            if path := self._seen[place].difference(step.beside, free.get(step.id, ())):
                return self._differs(place, path)
        return ""

    def _answers_differ(self, node: Node, ending: int) -> bool:
        """Return whether behaviours that end here have different answers."""
        several = bool(ending & (ending - 1))
        return several and len({node.ends[one] for one in members(ending)}) > 1

    def _end(self, node: Node, hint: Any) -> bool:
        """Set the answer if a behaviour ends here; return whether one does."""
        ending = node.end_mask & self.alive
        if not ending or self._lost:
            return False
        self._forgive()
        if self._answers_differ(node, ending):
            ending = sum(1 << one for one in members(ending) if self._that_goes_on(1 << one))
        if self._answers_differ(node, ending):
            # Equal calls with different answers: the recorded results decide.
            ending = self._alike_of(ending)
            if not self._narrow(ending):
                return False
        several = members(ending)
        if len(several) > 1:
            several.sort(key=lambda one: (self._likeness(one), one), reverse=True)
        number = next((one for one in several if self._that_goes_on(1 << one)), None)
        if number is None:
            return False
        behaviour = self._known.stored[number].behaviour
        answer, result = behaviour.answer, self._courses[number].result
        assert result is not None
        try:
            self.value = decode(copy(result.output), answer.form, hint)
        except FAILURES as error:
            return self._diverge("value", f"the answer can't be restored: {error}")
        if answer.live is not None:
            place = next(n for n, step in enumerate(behaviour.steps) if step.id == answer.live)
            self.value = self.taken[place].value
        if problem := self._outdated(number):
            return self._diverge("value", f"the answer may be out of date: {problem}")
        self.alive = 1 << number
        self.ended_as = number
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
