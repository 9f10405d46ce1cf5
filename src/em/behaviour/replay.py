"""Replay: follow a task's behaviours behind their checks, until they diverge.

A recording is followed as it is while every call returns what it returned then. Where something
differs, the routines that recordings teach go on with this run's values: the runner's machine runs
them, and yields the calls. They are made here, behind the checks that stand beside them. Where one
way does not go on, the next one that makes the same calls so far is told what they returned.
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
from em.behaviour.course import Course, Tape
from em.behaviour.likeness import Returned, difference
from em.behaviour.result import Done, short
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.behaviour.way import Way
from em.errors import EmError
from em.runner.drivers import Consult, Effects
from em.runner.expressions.language import compile_value
from em.runner.run import did_not_happen
from em.traces.recorder import error_text
from em.values.canonical import Json, identical, same
from em.values.leaves import leaves

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
        tapes: Sequence[tuple[Way, int]],
        lessons: Callable[[], Sequence[tuple[Way, int]]],
        are_all: bool,
        inputs: Json,
        tools: Mapping[str, EngineTool],
        contexts: Contexts,
        budget: tuple[float, float],
    ) -> None:
        """Take the ways that may be replayed, each with its behaviours as bits.

        tapes: recordings with just these inputs; are_all: there are no others. lessons: returns
        what recordings teach. It takes time, and is called if it is needed.
        """
        self._tapes, self._lessons, self._are_all = tapes, lessons, are_all
        self._inputs = inputs
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
    def followed(self) -> tuple[Way, int] | None:
        """The way that came farthest, with its behaviours as bits; None if there was none."""
        return (self._farthest.way, self._farthest.mask) if self._refused else None

    @property
    def has_begun(self) -> bool:
        """Whether any tool was called."""
        return bool(self.done) or self.failed is not None

    def run(self, hint: Any) -> Effects[bool]:
        """Replay; return whether it reached the end. If not, `reason` and `done` say more."""
        try:
            if (yield from self._try(self._tapes, hint)):
                return True
            if self._is_hopeless:
                return False
            ways = yield Consult(self._lessons)
            if ways:
                self._refused = []
            return (yield from self._try(ways, hint))
        finally:
            self.seconds = time.perf_counter() - self.started

    @property
    def _is_hopeless(self) -> bool:
        """Whether no lesson can go on: a call failed, or all is as recorded but for the checks."""
        causes = [one.cause for one in self._refused]
        is_all = self._are_all and {*causes} == {"check"}
        return is_all or causes[-1:] in (["time"], ["error"])

    def _try(self, ways: Sequence[tuple[Way, int]], hint: Any) -> Effects[bool]:
        """Follow ways until one reaches its end."""
        for way, mask in ways:
            self._now = way, mask
            if (yield from self._follow(way, mask, hint)):
                return True
            if self._refused[-1].cause in ("time", "error"):
                break
        return False

    def interrupted(self, error: BaseException) -> None:
        """Set the reason of a replay that an error from outside ended."""
        self._refused = []
        self._refuse(*self._now, "error", f"it was interrupted by {type(error).__name__}")

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
        course = way.course(self._inputs)
        for place in range(len(way.steps)):
            if course.is_stopped:
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
        step = way.steps[place]
        live = step.live
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
            arguments = tool.restored(copy(args), step.forms)
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
        if way.taught is not None and not way.parts[place]:
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
        beside = way.beside(place)
        if way.taught is None and mask and not identical(made.result, step.result):
            why = f"step {place + 1} ({step.tool}) returned something else than when recorded"
            return self._refuse(way, mask, "value", why, place + 1)
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

    def _end(self, way: Way, mask: int, course: Course | Tape, hint: Any) -> bool:
        """Set the answer if the routine has returned one; return whether it has."""
        place = course.answered
        if not course.is_over:
            self._refuse(way, mask, "value", _why_stopped(way, course), place)
            return False
        mask = self._parted(way, mask, place)
        if not mask:
            return False
        answer = way.behaviour.answer
        try:
            self.value = decode(copy(course.output), answer.form, hint)
        except FAILURES as error:
            self._refuse(way, mask, "value", f"the answer can't be restored: {error}")
            return False
        if answer.live is not None:
            self.value = self.taken[answer.live].value
        self.ended = way, mask
        return True

    # ---- what a hand-over needs

    def steps_to_come(self) -> list[tuple[EngineTool, Json]]:
        """Return the calls that the way that came farthest would have made next.

        Calls whose arguments need results that are not there are left out.
        """
        way, _ = self._now if self.followed is None else self.followed
        made = len(self.taken)
        if way.taught is None:
            return [(self._tools[step.tool], step.args) for step in way.steps[made:]]
        scope, number, found = dict(self._inputs), 0, []
        for step in way.taught.routine["steps"]:
            with suppress(*FAILURES):
                if step["type"] == "let":
                    scope[step["save_as"]] = compile_value(step["value"], "")(scope)
            if step["type"] != "tool.call":
                continue
            if number < made:
                scope[step["save_as"]] = self.taken[number].result
            else:
                live = way.steps[number].live
                own = {name: one for name, one in step["args"].items() if name not in live}
                with suppress(*FAILURES):
                    found.append((self._tools[step["tool"]], compile_value(own, "")(scope)))
            number += 1
        return found

    def recount(self, run: Run) -> list[Call]:
        """Add the replayed calls to the run of the agent that takes over; return them."""
        for made in self.taken:
            call = Call(made.tool)
            call.began = run.tick()
            call.args, call.forms = made.args, dict(made.step.forms)
            call.live = dict(made.live)
            call.value, call.result = made.value, made.result
            call.opaque = not made.is_complete
            call.seconds = made.seconds
            call.replayed = True
            call.owner = made.bound.owner
            known = [leaf for one in run.calls for _, leaf in leaves(one.result)]
            call.fixed = {
                name: one
                for name, one in made.args.items()
                if not any(same(one, leaf) for leaf in known)
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
            run.cannot_store(f"its capture can't be stored: {problem}", place=place)
            return None
        return Capture(value, form)


def _difference(place: str, now: Any, then: Any, verdict: Any) -> Callable[[], str]:
    """Return what says why a check did not pass; the text is made only when it is needed."""

    def text() -> str:
        score = f", score {verdict:g}" if type(verdict) is float else ""
        seen, known = short(snapshot(now)[0]), short(snapshot(then)[0])
        return f"{place} did not pass: now {seen}, recorded {known}{score}"

    return text


def _why_stopped(way: Way, course: Course | Tape) -> str:
    """Say why a routine does not go on, and where."""
    step_id, why, about = course.why_stopped()
    if step_id == "input":
        return why
    number, steps = course.answered, way.steps
    calls = () if way.taught is None else way.taught.calls
    if number and calls[number - 1]["id"] == step_id:
        where = about.removeprefix(calls[number - 1]["save_as"]).lstrip(".") or "result"
        return f"step {number} ({steps[number - 1].tool}) returned another {where}: {why}"
    if number < len(steps):
        return f"before step {number + 1} ({steps[number].tool}): {why}"
    return f"before the answer: {why}"
