"""Replay: run a behaviour's routine behind its checks, with this run's values, until it diverges.

The runner's machine runs the routine. It yields the calls; they are made here, behind the checks
that stand beside them. Where one way does not go on, the next one that makes the same calls so far
is told what they returned.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from em.behaviour.agent_run import Call, Run
from em.behaviour.behaviour import Capture, Step
from em.behaviour.check import Check
from em.behaviour.codec import NotEncodable, copy, decode, encode, is_lazy, snapshot
from em.behaviour.course import Course
from em.behaviour.likeness import Returned, difference
from em.behaviour.result import Done, short
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.behaviour.way import Way
from em.errors import EmError, NotRecordable
from em.runner.drivers import Effects
from em.runner.expressions.language import compile_value
from em.runner.run import did_not_happen
from em.traces.recorder import error_text
from em.values.canonical import Json, identical

FAILURES = (EmError, ValueError, TypeError, LookupError)
"""What evaluating an expression raises if a value is not there."""

Cause = Literal["", "check", "error", "time", "value"]


class Made(msgspec.Struct):
    """A call with this run's arguments and, once it is made, its result.

    args: the arguments as JSON. bound: as the tool takes them, with the object it belongs to.
    """

    step: Step
    tool: EngineTool
    bound: Bound
    args: Json
    live: Mapping[str, int]
    sights: dict[str, Any] = {}
    value: Any = None
    result: Any = None
    is_complete: bool = True
    seconds: float = 0.0


class Refused(NamedTuple):
    """Why a way did not go on at a call. why: a text, or what makes it when it is needed."""

    way: Way
    mask: int
    place: int
    cause: Cause
    why: "str | Callable[[], str]"
    times: int = 1


class Replay:
    """One replay: the calls made, their results, and why ways did not go on."""

    def __init__(
        self,
        ways: Sequence[tuple[Way, int]],
        inputs: Json,
        tools: Mapping[str, EngineTool],
        contexts: Contexts,
        budget: tuple[float, float],
    ) -> None:
        """Take the ways that may be replayed, each with its behaviours as bits."""
        self._ways, self._inputs = ways, inputs
        self._tools, self._contexts = tools, contexts
        self._factor, self._grace = budget
        self.taken: list[Made] = []
        self.done: list[Done] = []
        self.failed: Done | None = None
        self.failure: Exception | None = None
        self._refused: list[Refused] = []
        # A call that a check refused, to look at the world once for all ways that would make it.
        self._refused_call: Made | None = None
        # The calls at which a check refused a way whose recorded results are those of this run.
        self._checked: set[int] = set()
        self.started = time.perf_counter()
        self.seconds = 0.0
        self.value: Any = None
        self.ended: tuple[Way, int] | None = None

    @property
    def _farthest(self) -> Refused:
        """Why the way stopped that came farthest, the first of them."""
        return max(self._refused, key=lambda one: one.place)

    @property
    def reason(self) -> str:
        """Why the replay stopped, in words."""
        if not self._refused:
            return ""
        found, more = self._farthest, sum(one.times for one in self._refused) - 1
        why = found.why if isinstance(found.why, str) else found.why()
        return f"{why} (and {more} more did not fit)" if more else why

    @property
    def cause(self) -> Cause:
        """What kind of reason that is."""
        return self._farthest.cause if self._refused else ""

    @property
    def followed(self) -> tuple[Way, int]:
        """The way that came farthest, with its behaviours as bits."""
        return (self._farthest.way, self._farthest.mask) if self._refused else self._ways[0]

    @property
    def has_begun(self) -> bool:
        """Whether any tool was called."""
        return bool(self.done) or self.failed is not None

    def run(self, hint: Any) -> Effects[bool]:
        """Replay; return whether it reached the end. If not, `reason` and `done` say more."""
        try:
            for way, mask in self._ways:
                if (yield from self._follow(way, mask, hint)):
                    return True
                if self._refused[-1].cause in ("time", "error"):
                    break
            return False
        finally:
            self.seconds = time.perf_counter() - self.started

    def interrupted(self, error: BaseException) -> None:
        """Set the reason of a replay that an error from outside ended."""
        way, mask = self.followed
        why = f"it was interrupted by {type(error).__name__}"
        self._refused = []
        self._refuse(way, mask, "error", why)

    def _refuse(
        self,
        way: Way,
        mask: int,
        cause: Cause,
        why: str | Callable[[], str],
        place: int = -1,
        times: int = 1,
    ) -> int:
        at = len(self.taken) if place < 0 else place
        self._refused.append(Refused(way, mask, at, cause, why, times))
        return 0

    # ---- one way

    def _follow(self, way: Way, mask: int, hint: Any) -> Effects[bool]:
        """Follow a way; return whether it reached the end."""
        course = Course(way.program, self._inputs, self._tools)
        for place in range(len(way.steps)):
            if course.result is not None:
                break
            made = self._prepared(way, mask, place, course.args)
            if made is None:
                return False
            is_new = place == len(self.taken)
            mask = yield from self._before(way, mask, place, made)
            if not mask or (is_new and not (yield from self._call(way, mask, made))):
                return False
            mask = yield from self._after(way, mask, place)
            if not mask:
                return False
            course.answer(self.taken[place].result)
        return self._end(way, mask, course, hint)

    def _prepared(self, way: Way, mask: int, place: int, args: Json) -> Made | None:
        """Return a call with this run's arguments, also if it was made; None if it can't be."""
        step, live = way.steps[place], way.live[place]
        args = {name: one for name, one in args.items() if name not in live} if live else args
        known = self.taken[place] if place < len(self.taken) else self._refused_call
        wanted = (step.tool, live)
        if known and (known.step.tool, known.live) == wanted and identical(known.args, args):
            return known
        if place < len(self.taken):
            self._refuse(way, mask, "value", f"step {place + 1} ({step.tool}) differs", place)
            return None
        tool = self._tools[step.tool]
        try:
            # A tool may change its arguments; the record of the call must not change with them.
            arguments = tool.restored(copy(args), step.beside.forms)
        except FAILURES as error:
            why = f"step {place + 1} ({tool.name}): its arguments can't be restored: {error}"
            self._refuse(way, mask, "value", why)
            return None
        arguments |= {name: self.taken[source].value for name, source in live.items()}
        owner = self._contexts.owner_of(tool) if tool.is_method else None
        return Made(step, tool, Bound(owner, arguments), args, live, {})

    def _before(self, way: Way, mask: int, place: int, made: Made) -> Effects[int]:
        """Return the behaviours of a way that may make a call."""
        check = made.tool.pre_check
        if check is not None and way.pre[place]:
            found = yield from self._compare(way, mask, place, made, check, "pre-check")
            if not found:
                self._refused_call = made
                if mask & way.exact([one.result for one in self.taken[:place]]):
                    self._checked.add(place)
            return found
        if place == len(self.taken):
            return self._parted(way, mask, place)
        return mask

    def _parted(self, way: Way, mask: int, place: int) -> int:
        """Return the behaviours that may go on where another way goes on in another manner.

        Where no check tells them apart, the results of all calls must be those of a recording, and
        no check may have refused one that was recorded with the same.
        """
        if not way.parts[place]:
            return mask
        exact = mask & way.exact([one.result for one in self.taken[:place]])
        if exact and place not in self._checked:
            return exact
        last = f"step {place} ({self.taken[-1].tool.name})" if self.taken else "the task"
        why = f"{last} returned a result that was never recorded"
        return self._refuse(way, mask, "value", why)

    def _call(self, way: Way, mask: int, made: Made) -> Effects[bool]:
        """Make a call; return whether a replay may go on with what it returned."""
        allowed = self._grace + self._factor * way.seconds(mask)
        spent = time.perf_counter() - self.started
        if spent > allowed:
            why = f"the replay took {spent:.1f} s of {allowed:.1f} s allowed"
            self._refuse(way, mask, "time", why)
            return False
        tool, began = made.tool, time.perf_counter()
        self._refused_call = None
        try:
            value = yield tool.call(*tool.unbind(made.bound.owner, made.bound.arguments))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            self.failure = error
            return self._fail(way, mask, made, error_text(error), f"raised {error_text(error)}")
        if is_lazy(value):
            problem = "returned work that is not done yet"
            return self._fail(way, mask, made, "its work is not done", problem)
        result, made.is_complete = snapshot(value)
        made.value, made.result = value, result
        made.seconds = time.perf_counter() - began
        self.taken.append(made)
        self.done.append(Done(tool.name, made.args, result, None, True))
        return True

    def _fail(self, way: Way, mask: int, made: Made, error: str, problem: str) -> bool:
        """Note a call without a result: its effect is unknown."""
        name = made.tool.name
        self.failed = Done(name, made.args, None, error, True)
        self._refuse(way, mask, "error", f"step {len(self.done) + 1} ({name}) {problem}")
        return False

    @property
    def failed_in_a_write(self) -> bool:
        """Whether a call that may have had an effect has no result."""
        return self.failed is not None and self._tools[self.failed.tool].writes

    @property
    def is_unknown(self) -> bool:
        """Whether that call may have had its effect: only some errors say that it had none."""
        is_undone = self.failure is not None and did_not_happen(self.failure)
        return self.failed_in_a_write and not is_undone

    def _after(self, way: Way, mask: int, place: int) -> Effects[int]:
        """Return the behaviours to which what a call returned is no news."""
        made, step = self.taken[place], way.steps[place]
        check = made.tool.post_check
        if check is not None and way.post[place]:
            mask = yield from self._compare(way, mask, place, made, check, "post-check")
        beside = step.beside
        if not beside.watched or not mask:
            return mask
        now = Returned(made.args, made.result, self._inputs)
        found, path = 0, ""
        for past in way.past[place]:
            if past.mask & mask:
                other = difference(now, past.recorded, beside, writes=made.tool.writes)
                found |= 0 if other else past.mask
                path = other or path
        if not found & mask:
            returned = f"step {place + 1} ({step.tool}) returned another {path}"
            why = f"{returned} than when this was recorded"
            return self._refuse(way, mask, "value", why, place + 1)
        return found & mask

    def _compare(
        self, way: Way, mask: int, place: int, made: Made, check: Check[Any], name: str
    ) -> Effects[int]:
        """Return the behaviours whose check passes now."""
        tool, at = made.tool, place + (name != "pre-check")
        where = f"the {name} of step {place + 1} ({tool.name})"
        if name not in made.sights:
            try:
                made.sights[name] = yield tool.capture(check, made.bound)
            except Exception as error:  # noqa: BLE001 - a check that raises does not pass
                why = f"{where} raised {error_text(error)}"
                return self._refuse(way, mask, "check", why, at)
        now, compare, hint = made.sights[name], check.compare, tool.captured_type(check)
        passing, whys = 0, list[str | Callable[[], str]]()
        for sight in reversed((way.pre if name == "pre-check" else way.post)[place]):
            if not sight.mask & mask:
                continue
            try:
                then = sight.known if sight.is_known else sight.value(self._inputs, hint)
                verdict = compare(now, then)
                if verdict is True or (verdict is not False and check.passes(verdict)):
                    passing |= sight.mask & mask
                    continue
                whys.append(_difference(where, now, then, verdict))
            except Exception as error:  # noqa: BLE001 - a check that raises does not pass
                whys.append(f"{where} raised {error_text(error)}")
        return passing or self._refuse(way, mask, "check", whys[0], at, len(whys))

    # ---- the end

    def _end(self, way: Way, mask: int, course: Course, hint: Any) -> bool:
        """Set the answer if the routine has returned one; return whether it has."""
        place = course.answered
        if not course.is_over:
            self._refuse(way, mask, "value", _why_stopped(way, course), place)
            return False
        mask = self._parted(way, mask, place)
        if not mask:
            return False
        assert course.result is not None
        try:
            self.value = decode(copy(course.result.output), way.behaviour.answer.form, hint)
        except FAILURES as error:
            self._refuse(way, mask, "value", f"the answer can't be restored: {error}")
            return False
        if way.live_answer is not None:
            self.value = self.taken[way.live_answer].value
        self.ended = way, mask
        return True

    # ---- what a hand-over needs

    def steps_to_come(self) -> list[tuple[EngineTool, Json]]:
        """Return the calls that the way that came farthest would have made next.

        Calls whose arguments need results that are not there are left out.
        """
        way, _ = self.followed
        results = [one.result for one in self.taken]
        scope = dict(self._inputs)
        live = {step.id: one for step, one in zip(way.steps, way.live, strict=True)}
        found = []
        for step in way.behaviour.routine["steps"]:
            with suppress(*FAILURES):
                if step["type"] == "let":
                    scope[step["save_as"]] = compile_value(step["value"], "")(scope)
                elif step["type"] == "tool.call" and results:
                    scope[step.get("save_as", "")] = results.pop(0)
                elif step["type"] == "tool.call":
                    own = {n: one for n, one in step["args"].items() if n not in live[step["id"]]}
                    found.append((self._tools[step["tool"]], compile_value(own, "")(scope)))
        return found

    def recount(self, run: Run) -> list[Call]:
        """Add the replayed calls to the run of the agent that takes over; return them."""
        for made in self.taken:
            call = Call(made.tool)
            call.began = run.tick()
            call.args, call.forms = made.args, dict(made.step.beside.forms)
            call.live = dict(made.live)
            call.value, call.result = made.value, made.result
            call.opaque = not made.is_complete
            call.seconds = made.seconds
            call.replayed = True
            call.owner = made.bound.owner
            call.fixed = {
                n: one for n, one in made.args.items() if "{{" not in str(made.step.args[n])
            }
            call.pre = self._capture(run, made, made.tool.pre_check, "pre-check")
            call.ended = run.tick()
            call.post = self._capture(run, made, made.tool.post_check, "post-check")
            run.calls.append(call)
        return list(run.calls)

    def _capture(self, run: Run, made: Made, check: Check[Any] | None, name: str) -> Capture | None:
        if check is None or name not in made.sights:
            return None
        try:
            value, form = encode(made.sights[name], made.tool.captured_type(check))
        except NotEncodable as problem:
            place = f"tool {made.tool.name}, {name}"
            run.cannot_store(NotRecordable(f"its capture can't be stored: {problem}", place=place))
            return None
        return Capture(value, form)


def _difference(place: str, now: Any, then: Any, verdict: Any) -> Callable[[], str]:
    """Return what says why a check did not pass; the text is made only when it is needed."""

    def text() -> str:
        score = f", score {verdict:g}" if type(verdict) is float else ""
        seen, known = short(snapshot(now)[0]), short(snapshot(then)[0])
        return f"{place} did not pass: now {seen}, recorded {known}{score}"

    return text


def _why_stopped(way: Way, course: Course) -> str:
    """Say why a routine does not go on, and where."""
    step_id, why, about = course.why_stopped()
    if step_id == "input":
        return why
    number, steps = course.answered, way.steps
    if number and steps[number - 1].id == step_id:
        last = steps[number - 1]
        where = about.removeprefix(last.save_as or last.id).lstrip(".") or "result"
        return f"step {number} ({last.tool}) returned another {where}: {why}"
    if number < len(steps):
        return f"before step {number + 1} ({steps[number].tool}): {why}"
    return f"before the answer: {why}"
