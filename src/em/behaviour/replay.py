"""Replay: follow a task's behaviours behind their checks, until they diverge.

A recording is followed as it is while every call returns what it returned then. Where something
differs, the routines that recordings teach go on with this run's values: the runner's machine runs
them, and yields the calls. They are made here, behind the checks that stand beside them. Where one
way does not go on, the next one that makes the same calls so far is told what they returned.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from em.behaviour.agent_run import Call, Run
from em.behaviour.behaviour import Capture, Step
from em.behaviour.check import Check
from em.behaviour.codec import NotEncodable, copy, decode, encode, is_lazy, snapshot
from em.behaviour.lesson import HANDLE, Course, handle_of
from em.behaviour.likeness import Returned, difference
from em.behaviour.result import Done, short
from em.behaviour.tool import Bound, EngineTool
from em.behaviour.way import RETURN, Sight, Spot, Tape, Way
from em.errors import EmError
from em.runner.drivers import Consult, Effects
from em.runner.expressions.language import compile_value
from em.runner.run import did_not_happen
from em.traces.recorder import error_text
from em.values.canonical import Json, identical, same
from em.values.leaves import leaves

if TYPE_CHECKING:
    from em.behaviour.engine import Engine

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
    is_handle: bool = False
    number: int = -1
    value: Any = None
    result: Any = None
    is_complete: bool = True
    seconds: float = 0.0


def _number_of(handle: str) -> int:
    """Return the number of the call that an object is named after."""
    return int(handle.rpartition("n")[2])


class Refused(NamedTuple):
    """Why a way did not go on at a call. why: a text, or what makes it when it is needed."""

    way: Way
    mask: int
    place: int
    cause: Cause
    why: "str | Callable[[], str]"
    done: Mapping[Any, Made]
    times: int = 1


class Replay:
    """One replay: the calls made, their results, and why ways did not go on."""

    def __init__(
        self,
        tapes: Sequence[tuple[Way, int]],
        lessons: Callable[[], Sequence[tuple[Way, int]]],
        are_all: bool,
        inputs: Json,
        engine: "Engine",
    ) -> None:
        """Take the ways that may be replayed, each with its behaviours as bits.

        tapes: recordings with just these inputs; are_all: there are no others. lessons: returns
        what recordings teach. It takes time, and is called if it is needed.
        """
        self._tapes, self._lessons, self._are_all = tapes, lessons, are_all
        self._inputs = inputs
        self._tools, self._contexts = engine.tools, engine.contexts
        self._factor, self._grace = engine.budget, engine.grace
        self._enough = engine.enough
        self.taken: list[Made] = []
        self.done: list[Done] = []
        self.failed: Done | None = None
        self.failure: Exception | None = None
        self._refused: list[Refused] = []
        # A call that a check refused, to look at the world once for all ways that would make it.
        self._refused_call: Made | None = None
        # How far the way under way came, and its calls by their steps.
        self._at = 0
        self._done: dict[Any, Made] = {}
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
        times: int = 1,
    ) -> int:
        self._refused.append(Refused(way, mask, self._at, cause, why, self._done, times))
        return 0

    # ---- one way

    def _follow(self, way: Way, mask: int, hint: Any) -> Effects[bool]:
        """Follow a way; return whether it reached the end."""
        course = way.course(self._inputs)
        turns: Counter[Any] = Counter()
        self._done = {}
        used: dict[int, int] = {}  # the numbers of the calls made, by those of this way
        while not course.is_stopped:
            self._at = len(used)
            spot = way.spot(course.step, turns[course.step])
            turns[course.step] += 1
            made = self._prepared(way, mask, spot, course, used)
            if made is None:
                return False
            mask = yield from self._before(way, mask, spot, made, course.step)
            is_new = made.number < 0
            if not mask or (is_new and not (yield from self._call(way, mask, made))):
                return False
            self._at += 1
            self._done[course.step] = made
            mask = yield from self._after(way, mask, spot, made)
            if not mask:
                return False
            used[made.number] = len(used)
            course.answer(self._shown(made) if isinstance(course, Course) else made.result)
        return self._end(way, mask, course, used, hint)

    def _shown(self, made: Made) -> Any:
        """Return a result as the routine reads it, with the name of the object."""
        if not made.is_handle:
            return made.result
        return {**made.result, HANDLE: handle_of(0, made.number)}

    def _prepared(
        self, way: Way, mask: int, spot: Spot, course: Course | Tape, used: Mapping[int, int]
    ) -> Made | None:
        """Return a call with this run's arguments, also if it was made; None if it can't be."""
        step, args = spot.step, dict(course.args)
        live: Mapping[str, int] = step.live
        if isinstance(course, Course) and live:
            live = {name: _number_of(args.pop(name)) for name in live}
        known = self._made_before(course.tool, args, live, used, step.writes)
        if known is not None:
            return known
        tool = self._tools[course.tool]
        left = [n for n, one in enumerate(self.taken) if one.tool.writes and n not in used]
        if tool.writes and left:
            other = self.taken[left[0]].tool.name
            self._refuse(way, mask, "value", f"step {left[0] + 1} ({other}) differs")
            return None
        try:
            # A tool may change its arguments; the record of the call must not change with them.
            arguments = tool.restored(copy(args), step.forms)
        except FAILURES as error:
            why = f"step {len(used) + 1} ({tool.name}): its arguments can't be restored: {error}"
            self._refuse(way, mask, "value", why)
            return None
        arguments |= {name: self.taken[source].value for name, source in live.items()}
        owner = self._contexts.owner_of(tool) if tool.is_method else None
        return Made(step, tool, Bound(owner, arguments), args, live, {}, way.is_handle(step))

    def _made_before(
        self, tool: str, args: Json, live: Mapping[str, int], used: Mapping[int, int], writes: bool
    ) -> Made | None:
        """Return the call if it was made for another way, or was refused by a check just now.

        Writes are taken in their order; a read serves until a write of this way was made after it.
        """
        for number, one in enumerate(self.taken):
            is_old = any(later > number and self.taken[later].tool.writes for later in used)
            if number in used or (is_old and not writes):
                continue
            if one.tool.name == tool and one.live == live and identical(one.args, args):
                return one
            if writes and one.tool.writes:
                return None
        again = self._refused_call
        if again is not None and (again.tool.name, again.live) == (tool, live):
            return again if identical(again.args, args) else None
        return None

    def _before(self, way: Way, mask: int, spot: Spot, made: Made, step: Any) -> Effects[int]:
        """Return the behaviours of a way that may make a call."""
        check = made.tool.pre_check
        if check is not None and spot.pre:
            found = yield from self._compare(way, mask, spot.pre.values(), made, check, "pre-check")
            if not found:
                self._refused_call = made
            return found
        if made.number >= 0:
            return mask
        if made.tool.writes and self._is_guess(way):
            why = (
                f"what was read before step {len(self.taken) + 1} ({made.tool.name}) is new, and"
                f" {len(way.stored)} recordings show too little: {self._enough} are needed"
            )
            return self._refuse(way, mask, "value", why)
        return self._parted(way, mask, step)

    def _is_guess(self, way: Way) -> bool:
        """Whether a first write would rest on results that few recordings explain.

        Relations between what is read need several recordings to be told from chance. Nobody reads
        a behaviour's routine, and what a replay did teaches nothing.
        """
        if way.taught is None or len(way.stored) >= self._enough:
            return False
        is_first = not any(one.tool.writes for one in self.taken)
        return is_first and bool(self.taken) and not way.exact(self.taken)

    def _parted(self, way: Way, mask: int, step: Any) -> int:
        """Return the behaviours that may go on where another way goes on in another manner.

        Where no check tells them apart, the results of all calls must be those of a recording.
        """
        if step not in way.parts:
            return mask
        exact = mask & way.exact(self.taken)
        if exact:
            return exact
        made = len(self.taken)
        last = f"step {made} ({self.taken[-1].tool.name})" if made else "the task"
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
        made.number = len(self.taken)
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

    def _after(self, way: Way, mask: int, spot: Spot, made: Made) -> Effects[int]:
        """Return the behaviours to which what a call returned is no news."""
        check, step = made.tool.post_check, spot.step
        if check is not None and spot.post:
            mask = yield from self._compare(
                way, mask, spot.post.values(), made, check, "post-check"
            )
        if not mask:
            return 0
        where = f"step {made.number + 1} ({made.tool.name}) returned"
        if way.taught is None:
            if identical(made.result, step.result):
                return mask
            why = f"{where} something else than when recorded"
            return self._refuse(way, mask, "value", why)
        if step.post is not None if made.tool.writes else way.taught.is_checked:
            return mask
        now = Returned(made.args, made.result, self._inputs)
        past = [one for bit, one in spot.past if bit & mask or not made.tool.writes]
        path = difference(
            now, past, way.paths(spot), is_asked=spot.is_asked, writes=made.tool.writes
        )
        if not path and way.taught.is_open and not made.tool.writes:
            is_old = any(identical(made.result, one.result) for one in past)
            path = "" if is_old else "result"
        if path:
            why = f"{where} another {path} than when this was recorded"
            return self._refuse(way, mask, "value", why)
        return mask

    def _compare(
        self,
        way: Way,
        mask: int,
        sights: Iterable[Sight],
        made: Made,
        check: Check[Any],
        name: str,
    ) -> Effects[int]:
        """Return the behaviours whose check passes now."""
        tool, at = made.tool, len(self.taken) if made.number < 0 else made.number
        where = f"the {name} of step {at + 1} ({tool.name})"
        if name not in made.sights:
            try:
                made.sights[name] = yield tool.capture(check, made.bound)
            except Exception as error:  # noqa: BLE001 - a check that raises does not pass
                why = f"{where} raised {error_text(error)}"
                return self._refuse(way, mask, "check", why)
        now, compare, hint = made.sights[name], check.compare, tool.captured_type(check)
        passing, whys = 0, list[str | Callable[[], str]]()
        for sight in reversed([*sights]):
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
        return passing or self._refuse(way, mask, "check", whys[0], len(whys))

    # ---- the end

    def _end(
        self, way: Way, mask: int, course: Course | Tape, used: Mapping[int, int], hint: Any
    ) -> bool:
        """Set the answer if the routine has returned one; return whether it has."""
        left = [one for n, one in enumerate(self.taken) if one.tool.writes and n not in used]
        if not course.is_over or left:
            why = f"it would not have called {left[0].tool.name}" if left else ""
            self._refuse(way, mask, "value", why or _why_stopped(course, self._done))
            return False
        mask = self._parted(way, mask, RETURN)
        if not mask:
            return False
        answer = way.behaviour.answer
        try:
            self.value = decode(copy(course.output), answer.form, hint)
        except FAILURES as error:
            self._refuse(way, mask, "value", f"the answer can't be restored: {error}")
            return False
        if answer.live is not None:
            number = answer.live if way.taught is None else _number_of(course.output)
            self.value = self.taken[number].value
        self.ended = way, mask
        return True

    # ---- what a hand-over needs

    def steps_to_come(self) -> list[tuple[EngineTool, Json]]:
        """Return the calls that the way that came farthest would have made next.

        Calls whose arguments need results that are not there, and loops, are left out.
        """
        if not self._refused:
            return []
        way, done = self._farthest.way, self._farthest.done
        if way.taught is None:
            steps = way.behaviour.steps[len(self.taken) :]
            return [(self._tools[step.tool], step.args) for step in steps]
        scope, found = {**self._inputs, **way.taught.given}, []
        for step in way.taught.routine["steps"]:
            with suppress(*FAILURES):
                if step["type"] == "let":
                    scope[step["save_as"]] = compile_value(step["value"], "")(scope)
                elif step["id"] in done:
                    scope[step["save_as"]] = done[step["id"]].result
                elif step["type"] == "tool.call":
                    live = way.spot(step["id"], 0).step.live
                    own = {name: one for name, one in step["args"].items() if name not in live}
                    found.append((self._tools[step["tool"]], compile_value(own, "")(scope)))
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


def _why_stopped(course: Course | Tape, done: Mapping[Any, Made]) -> str:
    """Say why a routine does not go on, and where."""
    step_id, why, about = course.why_stopped()
    if step_id == "input":
        return why
    made = done.get(step_id)
    if made is None:
        last = max(done.values(), key=lambda one: one.number, default=None)
        where = "" if last is None else f"after step {last.number + 1} ({last.tool.name}): "
        return f"{where}{why}"
    path = about.partition(".")[2] or "result"
    return f"step {made.number + 1} ({made.tool.name}) returned another {path}: {why}"
