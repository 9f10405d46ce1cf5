"""The machine: runs a program step by step and yields the effects it wants. It does no I/O.

`Calls` makes the calls of one step: once or for each item, checked, retried and fixed.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile, islice, takewhile
from typing import Any

import msgspec

from em.errors import EmError, InputError, RoutineError, UsageError, WorkflowError
from em.runner.answers import check_answers, fields_of, input_field
from em.runner.drivers import CallTool, Effect, Wait
from em.runner.expressions.functions import SCOPE
from em.runner.journal import (
    Attempt,
    BlockTurn,
    ItemKey,
    Note,
    Notebook,
    Restored,
    keepable,
    question_of,
    unknown,
)
from em.runner.request import Bound, bind
from em.runner.routine import (
    AssertStep,
    CompiledStep,
    Default,
    ForEachStep,
    LetStep,
    Program,
    Retry,
)
from em.runner.run import (
    INPUTS,
    MOST_SHOWN,
    REQUEST,
    UNDONE,
    Asks,
    CheckFailed,
    Failed,
    Failure,
    OutputMissing,
    Pause,
    PendingPrompt,
    Reason,
    Reports,
    ResumedDifferently,
    RunResult,
    StepReport,
    UnexpectedResult,
    check_failed_in_words,
    context_of_check,
    context_of_misfit,
    did_not_happen,
    failure_of,
    misfit_in_words,
    outcome_is_unknown,
    plain,
    quietly,
)
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool, argument_problem, missing_tool
from em.values import json_schema
from em.values.call import Fix, fix_problem
from em.values.canonical import Json, same, short
from em.values.json_schema import Misfit
from em.values.leaves import scalars
from em.values.mismatch import closest

MAX_WAIT = 300.0
"""The longest wait between two attempts, in seconds; the backoff doubles up to it."""

SLACK = 5.0
"""Seconds beyond its timeout for a tool that enforces it itself."""

_HAPPENED = "the step returned: its effect happened, and is not repeated"
_UNKNOWN = "unknown: the call may have happened, and is not repeated"

_CHECKED = "the values of a call with an effect are checked before it, and a fix can't change them"

_ONCE = Retry(attempts=1)

AutoFix = Callable[[Json], Any]
Steps = Generator[Effect, Any, Any]


class Calls:
    """Makes the calls of steps, as their fields say; one object for each line of steps."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        udfs: Mapping[str, Tool],
        auto_fix: AutoFix | None,
        notebook: Notebook,
        reports: Reports,
        *,
        are_checked: bool = False,
        agreed: Callable[[Attempt], None] | None = None,
    ) -> None:
        """Take what calls need.

        are_checked: the routine checks what it writes beforehand. agreed: raises if a call with an
        effect is not one that was agreed to.
        """
        self._are_checked, self._agreed = are_checked, agreed
        self._tools = tools
        self._udfs = udfs
        self._auto_fix = auto_fix
        self.notebook = notebook
        self.reports = reports
        # Whether a call with an effect was made, or may have been.
        self.has_acted = False
        # The calls with an effect that returned.
        self.made: list[ItemKey] = []

    def call(
        self, step: CompiledStep, scope: Json, args: Json | None = None, key: Any = None
    ) -> CallTool:
        """Return the call of a step; `args` where they are known already, or a fix gave them."""
        tool = self._tool(step)
        args = step.args(scope) if args is None else dict(args)
        if key is not None:
            args["idempotency_key"] = key
        if step.args_schema is not None:
            check_schema(step.args_schema, args, "arguments", step.id)
        if step.secret_args:
            self.notebook.secrets.learn(args)
        if tool.within is None:
            return CallTool(tool.function, args, tool.is_async, step.timeout)
        # Such a tool ends its work in time, and nothing is left behind. This is if it does not.
        timeout = None if step.timeout is None else step.timeout + SLACK
        return CallTool(tool.within(step.timeout), args, tool.is_async, timeout)

    def once(
        self,
        step: CompiledStep,
        scope: Json,
        item: int | None,
        start: float,
        turn: BlockTurn | None = None,
    ) -> Steps:
        """Make a call, unless the journal has its result. turn: of the block that holds it."""
        notebook = self.notebook
        attempt = self._attempt(step, scope, item, start, turn)
        if not notebook.is_kept:
            return (yield from self._tried(attempt))
        known = notebook.known(attempt)
        if known is not None:
            self._check_known(attempt, known.value)
            self._report_past(attempt)
            return known.value
        yield from notebook.announce(attempt)
        value = yield from self._tried(attempt)
        return self._kept(attempt, value, self.reports.made[-1])

    def for_each(
        self,
        step: CompiledStep,
        items: Any,
        scope: Json,
        start: float,
        turn: BlockTurn | None = None,
    ) -> Steps:
        """Make a call for each item; return the results in the order of the items."""
        scopes = scopes_of(step, items, scope)
        self.notebook.check_count(step, len(scopes), turn)
        values = []
        for number, own in enumerate(scopes):
            values.append((yield from self.once(step, own, number, start, turn)))
        return values

    def mended(
        self, attempt: Attempt, error: Exception, count: int, *, returned: bool = False
    ) -> Steps:
        """Return a value for a step that failed: from a fix or its `on_error`. Else end the run."""
        step, scope, start = attempt.step, attempt.scope, attempt.start
        args = plain(quietly(step.args, scope))
        failure = failure_of(step.id, error, {"args": args})
        if self._auto_fix is None or self._is_unknown(attempt, error):
            return self._left(attempt, error, failure, count)
        context: Json = {
            "step_id": step.id,
            "tool": step.target,
            "args": args,
            "error_type": failure.error_type,
            "message": failure.message,
        }
        fix = yield from self._fix(self._auto_fix, context)
        told: Json = {
            "strategy": fix.strategy,
            "args": plain(fix.args),
            "default": plain(fix.default),
            "reason": fix.reason,
        }
        if fix.strategy == "skip":
            self.reports.add(step.id, "defaulted", count, start, failure.message, told)
            return fix.default
        if fix.strategy == "modify_args" and returned and not attempt.is_repeatable:
            fix = Fix(strategy="fail", reason=_HAPPENED)
        # Arguments may have other names now; their values were checked, and stay.
        is_checked = self._are_checked and attempt.writes
        if fix.strategy == "modify_args" and is_checked and not _same_values(args, fix.args):
            fix = Fix(strategy="fail", reason=_CHECKED)
        if fix.strategy == "fail":
            if fix.reason:
                failure = failure_of(step.id, error, {"args": args, "fix": fix.reason})
            return self.given_up(step, _judged(attempt, failure), count, start)
        try:
            call = self.call(step, scope, fix.args, attempt.key)
            self.has_acted |= attempt.writes
            value = yield call
            _check_result(step, scope, value)
        except Exception as again:  # noqa: BLE001 - a tool may raise anything; reported
            attempt.is_undone = False
            failure = failure_of(step.id, again, {"args": fix.args, "fix": fix.reason})
            return self._left(attempt, again, failure, count + 1)
        self._check_expected(attempt, value, count + 1)
        self.reports.add(step.id, "done", count + 1, start, failure.message, told)
        return value

    def _fix(self, ask: AutoFix, context: Json) -> Generator[Effect, Any, Fix]:
        """Ask for a fix. Where there is none the step fails; nothing is raised."""
        try:
            fix = yield CallTool(ask, {}, positional=(context,))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; reported
            problem = f"it raised {type(error).__name__}: {error}"
        else:
            problem = fix_problem(fix)
            if not problem:
                assert isinstance(fix, Fix)
                return fix
        return Fix(strategy="fail", reason=f"auto_fix_fn gave no fix: {problem}")

    def mended_plain(
        self, step: CompiledStep, scope: Json, error: Exception, start: float
    ) -> Steps:
        """Do the same for a step that was called without an attempt."""
        if isinstance(error, Pause):
            raise error  # an inner run waits for a person
        return (yield from self.mended(self._attempt(step, scope, None, start), error, 1))

    def end_plain(self, step: CompiledStep, scope: Json, value: Any, start: float) -> None:
        """Check and report the result of such a call."""
        if step.expect is not None and misfit_of(step, value) is not None:
            self._check_expected(self._attempt(step, scope, None, start), value, 1)
        self.reports.add(step.id, "done", 1, start)

    def given_up(self, step: CompiledStep, failure: Failure, attempts: int, start: float) -> Any:
        """Return the value of `on_error` for a step that failed for good; else end the run."""
        if step.on_error == "fail":
            self.reports.add(step.id, "failed", attempts, start, failure.message)
            raise Failed(failure)
        self.reports.add(step.id, "defaulted", attempts, start, failure.message)
        return step.on_error.default if isinstance(step.on_error, Default) else None

    def _left(self, attempt: Attempt, error: Exception, failure: Failure, count: int) -> Any:
        """Give up a call; if its outcome is unknown, ask a person, or fail without a journal.

        `on_error` is for calls that failed: going on after this one could make its effect twice.
        """
        step = attempt.step
        if not self._is_unknown(attempt, error):
            return self.given_up(step, _judged(attempt, failure), count, attempt.start)
        self.reports.add(step.id, "failed", count, attempt.start, failure.message)
        if self.notebook.is_kept:
            raise Pause(unknown(attempt.item_key, f"{{}} gave {failure.message}."))
        context = {**failure.context, "outcome": _UNKNOWN}
        raise Failed(msgspec.structs.replace(failure, context=context))

    def _is_unknown(self, attempt: Attempt, error: Exception) -> bool:
        """Return whether a write may have happened: it must not be repeated."""
        return not attempt.is_repeatable and outcome_is_unknown(error)

    def _may_repeat(self, attempt: Attempt, retry: Retry, error: Exception) -> bool:
        """Return whether a call that raised may be made again: never if it may write twice."""
        is_safe = attempt.is_repeatable or attempt.is_undone or did_not_happen(error)
        return is_safe and _retriable(retry, error)

    def _tool(self, step: CompiledStep) -> Tool:
        return (self._tools if step.kind == "tool" else self._udfs)[step.target]

    def _attempt(
        self,
        step: CompiledStep,
        scope: Json,
        item: int | None,
        start: float,
        turn: BlockTurn | None = None,
    ) -> Attempt:
        tool = self._tool(step)
        key = item if turn is None else turn.item(item)
        attempt = Attempt(step, scope, key, start, writes(step, tool))
        if key is not None and self.notebook.is_kept:
            own = None if item is None else scope[step.as_name]
            attempt.item_hash = self.notebook.hash_of(own if turn is None else [turn.rows, own])
        if step.key is not None and tool.takes_key:
            # Evaluate it once: it must be the same for every attempt, also after a resume.
            attempt.key = self.notebook.key_before(attempt.item_key)
            if attempt.key is None:
                try:
                    attempt.key = keepable(step.key(scope), step.id)
                except EmError as error:
                    attempt.problem = error
        return attempt

    def _report_past(self, attempt: Attempt) -> None:
        """Report a call whose end the journal has, as it ended."""
        status, error, fix = self.notebook.past(attempt.item_key)
        self.reports.add(attempt.step.id, status, 0, attempt.start, error, fix)

    def _kept(self, attempt: Attempt, value: Any, report: StepReport) -> Any:
        try:
            return self.notebook.kept(attempt, value, report)
        except EmError as error:
            raise Failed(failure_of(attempt.step.id, error, {})) from error

    def _tried(self, attempt: Attempt) -> Steps:
        """Make one call with its checks; repeat it as its retry policy says."""
        step, scope = attempt.step, attempt.scope
        retry, count, may_have_acted = step.retry or _ONCE, 0, False
        while True:
            count += 1
            called = returned = False
            try:
                call = self._checked_call(attempt)
                called = True
                self.has_acted |= attempt.writes
                value = yield call
                returned = True
                _check_result(step, scope, value)
            except Pause:
                raise  # an inner run waits for a person
            except Exception as error:  # noqa: BLE001 - a tool may raise anything; reported
                may_have_acted |= called and (returned or not did_not_happen(error))
                attempt.is_undone = not may_have_acted
                final = returned or count >= retry.attempts
                if not final and self._may_repeat(attempt, retry, error):
                    yield _wait_after(retry, count)
                    continue
                return (yield from self.mended(attempt, error, count, returned=returned))
            self._check_expected(attempt, value, count)
            self.reports.add(step.id, "done", count, attempt.start)
            return value

    def _check_expected(self, attempt: Attempt, value: Any, count: int) -> None:
        """End the run if a call returned something else than it must.

        It was made: neither a retry, nor a fix, nor `on_error` may decide what that means.
        """
        step = attempt.step
        unfit = misfit_of(step, value)
        if unfit is not None:
            problem = unfit_result(step, unfit, is_made=attempt.writes)
            about = context_of_misfit(step.save_as or step.id, unfit)
            raise self._surprised(attempt, value, problem, count, about)
        if attempt.writes:
            self.made.append(attempt.item_key)

    def _surprised(
        self,
        attempt: Attempt,
        value: Any,
        problem: RoutineError,
        count: int,
        about: Json,
    ) -> Failed:
        """Report and note a call that returned something unexpected; return the run's failure."""
        step = attempt.step
        args = plain(quietly(step.args, attempt.scope))
        context = {"args": args, "result": plain(value), **about}
        failure = failure_of(step.id, problem, context)
        self.reports.add(step.id, "failed", count, attempt.start, failure.message)
        self._kept(attempt, value, self.reports.made[-1])
        return Failed(failure)

    def _check_known(self, attempt: Attempt, value: Any) -> None:
        """Do the same for a result that the journal or a person's answer has."""
        self.has_acted |= attempt.writes
        if value is not None:
            self._check_expected(attempt, value, 0)

    def _checked_call(self, attempt: Attempt) -> CallTool:
        if attempt.problem is not None:
            raise attempt.problem
        _check(attempt.step.pre, attempt.scope, attempt.step, "pre")
        if attempt.writes and self._agreed is not None:
            self._agreed(attempt)
        args, attempt.args = attempt.args, None
        return self.call(attempt.step, attempt.scope, args, attempt.key)


def _judged(attempt: Attempt, failure: Failure) -> Failure:
    """Return the failure of a call; it says so if the call surely had no effect."""
    if not attempt.writes or not attempt.is_undone:
        return failure
    return msgspec.structs.replace(failure, context={**failure.context, "outcome": UNDONE})


def _same_values(one: Any, other: Any) -> bool:
    """Return whether two structures hold the same values, whatever their names are."""
    both = ([msgspec.json.encode(value) for _, value in scalars(each)] for each in (one, other))
    return sorted(next(both)) == sorted(next(both))


def scopes_of(step: CompiledStep, items: Any, scope: Json) -> list[Json]:
    """Return the scope of each item of a `for_each`."""
    if not isinstance(items, list | tuple):
        error = RoutineError(
            f"for_each needs a list, got a {type(items).__name__}", place=f"step {step.id}"
        )
        raise Failed(failure_of(step.id, error, {}))
    return [{**scope, step.as_name: item} for item in items]


def _check(checks: list[tuple[str, Any]], scope: Json, step: CompiledStep, when: str) -> None:
    for source, holds in checks:
        if not holds(scope):
            raise CheckFailed(f"the {when}-check failed: {source}", place=f"step {step.id}")


def writes(step: CompiledStep, tool: Tool) -> bool:
    """Return whether a step has an effect, as the routine or its tool declares it."""
    if step.kind == "tool" and tool.effect is not None and (step.is_in_doubt or not step.is_write):
        return tool.effect == "write"
    harmless = tool.does_no_harm
    if step.is_write and step.is_in_doubt and harmless is not None and harmless():
        return False
    return step.is_write


def _check_result(step: CompiledStep, scope: Json, value: Any) -> None:
    if step.result_schema is not None:
        check_schema(step.result_schema, plain(value), "result", step.id)
    if step.post:
        _check(step.post, {**scope, "result": value}, step, "post")


def misfit_of(step: CompiledStep, value: Any) -> Misfit | None:
    """Return what in a result does not fit the step's `expect`; None if it fits."""
    if step.expect is None:
        return None
    try:
        if step.expect(value):
            return None
    except (TypeError, ValueError):
        pass  # an object of a tool: as the journal has it, it is plain
    assert step.source.expect is not None
    return json_schema.misfit(step.source.expect, _as_noted(value))


def unfit_result(step: CompiledStep, found: Misfit, *, is_made: bool) -> RoutineError:
    """Return the error of a result that does not fit the step's `expect`."""
    words, place = misfit_in_words(step.save_as or step.id, found), f"step {step.id}"
    if not is_made:
        return CheckFailed(words, place=place)
    return UnexpectedResult(
        f"the call was made, and its result is not as expected: {words}. Nothing was done after it",
        place=place,
        fix="look at what the call did, and finish by hand; don't run it again",
    )


def _after_effects(failure: Failure, done: Sequence[str]) -> Failure:
    """Return a failure after effects, which says that they were made."""
    if not done:
        return failure
    return msgspec.structs.replace(
        failure,
        message=f"{failure.message}; these effects were made: {', '.join(done)}",
        context={**failure.context, "done": [*done]},
    )


def _as_noted(value: Any) -> Any:
    """Return a result as the journal stores it, also where there is none."""
    try:
        return keepable(value, "")
    except EmError:
        return value  # the journal refuses it as well, with its reason


def check_schema(schema: Json, value: Any, what: str, step_id: str = "") -> None:
    """Raise if a value does not fit its schema: the first problem as message, all in the data."""
    found = [f"{path or what}: {problem}" for path, problem in json_schema.problems(schema, value)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        fit = "do not fit their" if what.endswith("s") else "does not fit its"
        raise RoutineError(
            f"the {what} {fit} schema: {found[0]}{more}",
            place=f"step {step_id}" if step_id else what,
            problems=found,
        )


def check_input(schema: Json, given: Json) -> None:
    """Raise if a routine does not declare an input, or if the input does not fit its schema."""
    declared = json_schema.Declared(schema)
    undeclared = declared.without(given)
    if undeclared:
        known = sorted(declared.names)
        inputs = f"its inputs are: {', '.join(known)}" if known else "it takes no input"
        raise RoutineError(
            f"the routine has no input {undeclared[0]!r}",
            place="input",
            fix=closest(undeclared[0], known) or inputs,
            problems=[f"{name}: not declared" for name in undeclared],
        )
    check_schema(schema, given, "input")


def _wait_after(retry: Retry, count: int) -> Wait:
    return Wait(min(retry.backoff * 2 ** (count - 1), MAX_WAIT))


def _retriable(retry: Retry, error: Exception) -> bool:
    if isinstance(error, RoutineError | WorkflowError | UsageError | InputError):
        return False  # the routine or its input is wrong: repeating won't help
    names = (type(error).__name__, str(error))
    return not retry.errors or any(word in name for word in retry.errors for name in names)


class Machine:
    """One run of a program."""

    def __init__(
        self,
        program: Program,
        *,
        run_id: str,
        tools: Mapping[str, Tool],
        udfs: Mapping[str, Function],
        auto_fix: AutoFix | None = None,
        answers: Mapping[str, Json] | None = None,
        on_step: Callable[[StepReport], None] | None = None,
        on_start: Callable[[str], None] | None = None,
        notes: list[Note] | None = None,
        restored: Restored | None = None,
        secrets: Secrets | None = None,
        refusal: RoutineError | None = None,
        ask: Callable[[PendingPrompt], Json | None] | None = None,
        bound: Bound | None = None,
        agreed: Callable[[Attempt], None] | None = None,
        asks: Asks = True,
    ) -> None:
        self._program = program
        self._agreed, self._asks = agreed, asks
        # The inputs that a model read in a request, or why it could not.
        self._bound = bound
        self._hands_over = program.routine.checks == "hand_over"
        # Why the program can't run here at all; reported as the result.
        self._refusal = refusal
        self._run_id = run_id
        self._tools = tools
        self._udfs = udfs
        self._secrets = Secrets() if secrets is None else secrets
        self._ask_person = ask
        self._on_start, self._on_step = on_start, on_step
        self._restored, self._answers = restored, answers
        self._auto_fix = auto_fix
        self._own = {name: Tool(name, function) for name, function in udfs.items()}
        self._calls = self._line(notes)
        self._calls.has_acted = restored is not None and restored.has_acted(answers or {})
        self._notebook, self._reports = self._calls.notebook, self._calls.reports
        self._saved: Json = {}
        self._scope: Json = {}
        # What a missing input may be, and the one that was taken.
        self._choices: dict[str, list[Any]] = {}
        self._chosen: Json = {}
        # Whether only the output is left to do.
        self._is_ending = False
        # Whether the inputs were taken, and the steps began.
        self._is_prepared = False

    def _line(self, notes: list[Note] | None) -> Calls:
        """Return a line of steps: its notebook, its reports and its calls."""
        notebook = Notebook(notes, self._restored, self._answers, self._secrets, self._run_id)
        reports = Reports(self._on_step)
        return Calls(
            self._tools,
            self._own,
            self._auto_fix,
            notebook,
            reports,
            are_checked=self._hands_over,
            agreed=self._agreed,
        )

    def run(self, input_data: Json) -> Generator[Effect, Any, RunResult]:
        """Yield effects, then return the result. A failing step does not raise."""
        in_flight = False
        try:
            if self._hands_over and self._refusal is None:
                input_data = yield from self._with_choice(input_data)
            self._prepare(input_data)
            output = yield from self._steps()
            self._is_ending = True
            self._check_output(output)
        except Pause as pause:
            in_flight = pause.in_flight and bool(self._asks)
            result = self._asked(pause.prompt)
        except Failed as failed:
            result = self._failed(failed.failure)
        except ResumedDifferently:
            raise
        except EmError as error:
            result = self._failed(failure_of("", error, {}))
        except (Exception, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a function in an expression wants to exit
            failure = failure_of("", RuntimeError(f"it raised {type(error).__name__}({error})"), {})
            result = self._result("failed", failure=failure)
        else:
            result = self._result("ok", output=output)
        yield from self._notebook.end(result, in_flight=in_flight)
        return result

    def _asked(self, prompt: PendingPrompt) -> RunResult:
        """Return the result of a run that asks, or of one that would have to and must not."""
        is_for_caller = self._asks == "steps" and prompt.step_id == INPUTS
        if self._asks and not is_for_caller:
            return self._result("needs_input", pending_prompt=prompt)
        message = prompt.message
        if not is_for_caller:
            message = f"a person would have to answer: {message}"
        if not self._calls.has_acted:
            wanted = [*prompt.fields] if is_for_caller else None
            reason = Reason(step_id=prompt.step_id, message=message, recorded=wanted)
            return self._result("needs_input", reason=reason)
        step_id = prompt.step_id.removesuffix("?")
        failure = Failure(step_id=step_id, error_type="NotAnswered", message=message)
        return self._result("failed", failure=self._with_effects(failure))

    def _failed(self, failure: Failure) -> RunResult:
        """Return the result of a run that failed: before the first write it may hand over."""
        if not self._hands_over or not self._is_prepared or self._calls.has_acted:
            return self._result("failed", failure=self._with_effects(failure))
        step = next((one for one in self._program.steps if one.id == failure.step_id), None)
        reason = _reason_of(failure, step)
        if step is not None and (more := [*islice(self._unmet_behind(step), MOST_SHOWN)]):
            message = "; ".join(one.message for one in (reason, *more))
            reason = msgspec.structs.replace(reason, message=message, also=(*reason.also, *more))
        return self._result("needs_input", reason=reason)

    def _check_output(self, output: Any) -> None:
        if self._program.routine.output_schema is not None:
            check_schema(self._program.routine.output_schema, output, "output")
        self._notebook.check_output(output)

    def _with_effects(self, failure: Failure) -> Failure:
        """Return a failure that says what was done before it, or that only an output is missing."""
        ended = {report.id for report in self._reports.made if report.status == "done"}
        is_unexpected = failure.error_type == UnexpectedResult.__name__
        if is_unexpected:
            ended.add(failure.step_id)  # it was made
        done = [
            name
            for step in self._program.steps
            if step.id in ended and self._acts(step)
            for name in self._made_names(step)
        ]
        if not done:
            return failure
        context = {**failure.context, "done": done}
        if not self._is_ending:
            if is_unexpected:
                return _after_effects(failure, done)
            return msgspec.structs.replace(failure, context=context)
        plural = f"all {len(done)} steps with an effect were" if len(done) > 1 else "the effect was"
        return Failure(
            step_id=failure.step_id,
            error_type=OutputMissing.__name__,
            message=(
                f"{plural} done ({', '.join(done)}), only the output is missing: {failure.message}."
                " Nothing is left to do: don't run it again"
            ),
            context={**context, "cause": failure.message, "cause_type": failure.error_type},
        )

    def _made_names(self, step: CompiledStep) -> list[str]:
        """Return what was done of a step: one in a block is named for each of its turns."""
        if not step.is_in_block:
            return [step.id]
        return [question_of(key).removesuffix("?") for key in self._calls.made if key[0] == step.id]

    def _acts(self, step: CompiledStep) -> bool:
        return self._has_effect(step) if step.kind == "tool" else step.is_write

    def check(self) -> None:
        """Raise if a tool, function, secret or permission is missing here."""
        if self._refusal is not None:
            raise self._refusal
        self._check_targets()
        self._secrets.check()

    def _prepare(self, input_data: Json) -> None:
        if self._refusal is not None:
            raise self._refusal
        routine = self._program.routine
        input_data = self._program.by_names(input_data)
        if not self._hands_over:
            input_data, _ = self._from_words(input_data)
        if routine.input_schema is not None and not self._hands_over:
            check_input(routine.input_schema, input_data)
        try:
            self._check_targets()
        except RoutineError as error:
            raise Failed(failure_of(error.data["step"], error, {})) from error
        self._secrets.check()
        self._is_prepared = True
        if self._hands_over and self._auto_fix is None:
            self._check_arguments()
        if self._hands_over:
            input_data = self._take_input(input_data)
        self._secrets.learn(input_data)
        self._scope = {**SCOPE, **self._udfs, **input_data, **self._secrets.values}

    def _with_choice(self, input_data: Json) -> Steps:
        """Return the input with a missing one, if the routine's reads leave only one value for it.

        Several values are shown beside the question, and so are those of several inputs, or of one
        where nobody read the request.
        """
        bound = self._bound or bind(self._program.routine, self._program.by_names(input_data))
        answered = {**bound.inputs, **self._notebook.answers(INPUTS)}
        missing = json_schema.lacking(self._program.routine.input_schema, answered)
        may_ask = not bound.problem or (bound.how == "nothing" and bound.missing)
        if not may_ask or not missing:
            return input_data
        from em.runner.rehearsal import choices  # most runs have all inputs

        options = {
            "run_id": self._run_id,
            "tools": self._tools,
            "udfs": self._udfs,
            "secrets": self._secrets,
        }
        known = {**bound.inputs}
        if bound.problem:  # nobody read the request
            known.pop(REQUEST, None)
        self._choices = yield from choices(self._program, options, known, missing)
        values = self._choices.get(missing[0], ())
        if bound.problem or len(missing) > 1 or len(values) != 1:
            return input_data
        self._chosen, self._choices = {missing[0]: values[0]}, {}
        self._notebook.note_answer(INPUTS, self._chosen)
        self._bound = msgspec.structs.replace(bound, inputs={**bound.inputs, **self._chosen})
        return {**input_data, **self._chosen}

    def _take_input(self, given: Json) -> Json:
        """Return the inputs of a run that hands over if they don't fit."""
        given = self._ask_missing(*self._from_words(given))
        if self._program.routine.input_schema is not None:
            self._check_given(self._program.routine.input_schema, given)
        return given

    def _from_words(self, given: Json) -> tuple[Json, Bound]:
        """Return the inputs that were given, by name or by a request in words, and how."""
        routine = self._program.routine
        bound = self._bound or bind(routine, given)
        may_ask = self._hands_over and bound.how == "nothing" and bound.missing
        if bound.problem and may_ask:
            return {name: one for name, one in bound.inputs.items() if name != REQUEST}, bound
        if bound.problem:
            error = RoutineError(
                bound.problem, place="input", fix="give the inputs that its schema names"
            )
            now = given.get(REQUEST)
            about = {"check": "requests", "recorded": list(routine.requests), "now": now}
            raise Failed(failure_of("input", error, about))
        return bound.inputs, bound

    def _check_given(self, schema: Json, given: Json) -> None:
        """Raise Failed if the input does not fit its schema."""
        try:
            check_input(schema, given)
        except RoutineError as error:
            found = json_schema.misfit(schema, given)
            about = (
                {"check": "input_schema"} if found is None else context_of_misfit("input", found)
            )
            raise Failed(failure_of("input", error, about)) from error

    def _ask_missing(self, given: Json, bound: Bound) -> Json:
        """Return the input with answers for the required inputs that are missing.

        Where nobody could read a request, all inputs are asked for that it may have.
        """
        schema = self._program.routine.input_schema or {}
        if not json_schema.lacking(schema, given):
            return given
        properties = json_schema.properties_of(schema)
        unfit = json_schema.misfit(json_schema.partial(schema), given)
        if unfit is not None or json_schema.Declared(schema).without(given):
            return given  # it hands over: nobody needs to answer
        given = {**self._answered(properties), **given}
        names = json_schema.lacking(schema, given)
        if not names:
            return given
        fields = [input_field(name, properties[name]) for name in names]
        for field in fields:
            if field["name"] in self._choices:
                field["candidates"] = self._choices[field["name"]]
        if bound.problem:
            optional = [name for name in bound.missing if name not in names and name not in given]
            fields += [{**input_field(one, properties[one]), "required": False} for one in optional]
        self._secrets.learn(given)
        known = "; ".join(f"{name} is {short(value)}" for name, value in given.items())
        needs = f"The run needs these inputs: {', '.join(names)}"
        words = [bound.problem, needs, known and f"Known: {known}"]
        words += [f"{name} may be {short(values)}" for name, values in self._choices.items()]
        message = f"{'. '.join(one for one in words if one)}."
        pending = PendingPrompt(step_id=INPUTS, message=message, fields=fields)
        return {**given, **self._answer(pending)}

    def _answered(self, properties: Json) -> Json:
        """Return the inputs that were answered before, as far as they fit: nobody asks again."""
        found: Json = {}
        for name, value in self._notebook.answers(INPUTS).items():
            if name in properties:
                fields = [input_field(name, properties[name])]
                question = PendingPrompt(step_id=INPUTS, message="", fields=fields)
                with suppress(RoutineError):
                    answer = check_answers(question, {name: value})
                    self._check_inputs(question, answer)
                    found |= answer
        return found

    def _answer(self, pending: PendingPrompt) -> Json:
        """Return a person's checked answers to a question for inputs; raise Pause to ask."""
        given, pending = self._notebook.answers_to(pending)
        names = [field["name"] for field in pending.fields]
        required = [field["name"] for field in pending.fields if field.get("required", True)]
        while True:
            if all(name in given for name in required):
                try:
                    said = {name: given[name] for name in names if name in given}
                    found = check_answers(pending, said)
                    answers = {name: one for name, one in found.items() if name in said}
                    self._check_inputs(pending, answers)
                except RoutineError as error:
                    problem = f"{error.place}: {error.message}"
                    pending = msgspec.structs.replace(pending, problem=problem)
                else:
                    return answers
            answer = None if self._ask_person is None else self._ask_person(pending)
            if not answer:
                raise Pause(pending)
            given = {**given, **answer}

    def _check_inputs(self, pending: PendingPrompt, answers: Json) -> None:
        """Raise if an answer does not fit the schema of its input."""
        known = json_schema.properties_of(self._program.routine.input_schema)
        names = [field["name"] for field in pending.fields if field["type"] != "confirm"]
        schema = {"properties": {name: known[name] for name in names if name in known}}
        check_schema(schema, answers, "answer", pending.step_id)

    def _has_effect(self, step: CompiledStep) -> bool:
        return step.kind == "tool" and writes(step, self._tools[step.target])

    def _check_targets(self) -> None:
        """Raise if a tool or function that a step calls is missing."""
        program = self._program
        if program.tool_names <= self._tools.keys() and program.udf_names <= self._udfs.keys():
            return
        for step in self._program.steps:
            error = None
            if step.kind == "tool" and step.target not in self._tools:
                error = missing_tool(step.target, self._tools)
                error.place = f"step {step.id}, field tool"
            elif step.kind == "udf" and step.target not in self._udfs:
                error = RoutineError(
                    f"there is no function {step.target!r}",
                    place=f"step {step.id}, field function",
                    fix="write it in udf.py",
                )
            if error is not None:
                error.data["step"] = step.id
                raise error

    def _check_arguments(self) -> None:
        """Fail before anything is done if a later write can't be made as the routine says.

        The first write itself fails before it is made.
        """
        writes = [step for step in self._program.steps if step.is_write and step.kind == "tool"]
        for step in writes[1:]:
            problem = argument_problem(self._tools[step.target], step.names)
            if problem:
                error = RoutineError(
                    problem, place=f"step {step.id}", fix="compile the routine again"
                )
                raise Failed(failure_of(step.id, error, {}))

    def _begin(self, step: CompiledStep) -> float:
        """Say that a step begins; return when."""
        if self._on_start is not None:
            self._on_start(step.id)
        return time.perf_counter()

    def _steps(self) -> Steps:
        """Make the steps of the routine; return the value of its return step."""
        return (yield from self._made(self._program.outer_steps, self._scope, self._saved, None))

    def _made(
        self, steps: Sequence[CompiledStep], scope: Json, saved: Json, turn: BlockTurn | None
    ) -> Steps:
        """Make steps in their order; save their results by name. turn: of the block around them."""
        calls, is_kept = self._calls, self._notebook.is_kept
        for step in steps:
            start = self._begin(step)
            if step.is_plain and not is_kept and turn is None:
                try:
                    call = calls.call(step, scope)
                    calls.has_acted = calls.has_acted or self._has_effect(step)
                    value = yield call
                except Exception as error:  # noqa: BLE001 - a tool may raise anything; reported
                    value = yield from calls.mended_plain(step, scope, error, start)
                else:
                    calls.end_plain(step, scope, value, start)
            elif step.when is not None and not self._evaluated(step, step.when, scope):
                self._reports.add(step.id, "skipped", 0, start)
                continue
            elif step.kind == "return":
                self._is_ending = True
                value = self._evaluated(step, step.value, scope)
                self._reports.add(step.id, "done", 0, start)
                return value
            else:
                value = yield from self._do(step, scope, start, turn)
            if step.save_as is not None:
                check_conflict(step, saved, value)
                saved[step.save_as] = scope[step.save_as] = value
        return None

    def _let(self, step: CompiledStep, scope: Json, start: float) -> Any:
        """Return the value of a `let` step, if it is as expected."""
        about: Json = {}
        try:
            value = step.value(scope)
            unfit = misfit_of(step, value)
            if unfit is not None:
                about = context_of_misfit(step.save_as or step.id, unfit)
                raise unfit_result(step, unfit, is_made=False)
        except EmError as error:
            return self._calls.given_up(step, failure_of(step.id, error, about), 0, start)
        self._reports.add(step.id, "done", 0, start)
        return value

    def _rows(self, step: CompiledStep, scope: Json) -> list[Json]:
        """Return the rows of a block: what its lists have side by side, by name."""
        lists = {name: self._evaluated(step, one, scope) for name, one in step.over.items()}
        for name, one in lists.items():
            if not isinstance(one, list | tuple):
                problem = f"`over.{name}` must be a list, got a {type(one).__name__}"
                raise _unpaired(step, problem, {name: short(one)})
        counts = {name: len(one) for name, one in lists.items()}
        most = max(counts.values())
        if min(counts.values()) != most:
            said = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise _unpaired(step, f"the lists do not pair up: {said}", counts)
        if step.most is not None and most > step.most:
            raise _unpaired(step, f"there are {most} rows, at most {step.most} are allowed", counts)
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]

    def _block(
        self, step: CompiledStep, scope: Json, start: float, turn: BlockTurn | None
    ) -> Steps:
        """Make the steps of a block for each row; return one record of each turn's names.

        turn: of the block around this one.
        """
        rows = self._rows(step, scope)
        for inner in step.steps:
            self._notebook.check_count(inner, len(rows), turn)
        names = step.source.saved_names if isinstance(step.source, ForEachStep) else ()
        records = []
        for number, row in enumerate(rows):
            own = {**scope, **row}
            place = BlockTurn(str(number), row) if turn is None else turn.inner(number, row)
            saved = yield from self._turn(step.steps, own, place)
            known = {**row, **saved}
            records.append({name: known[name] for name in names if name in known})
        return self._end_block(step, records, start)

    def _end_block(self, step: CompiledStep, records: list[Json], start: float) -> Any:
        """Check the records of all turns, and return them."""
        unfit = misfit_of(step, records)
        if unfit is not None:
            about = context_of_misfit(step.save_as or step.id, unfit)
            error = unfit_result(step, unfit, is_made=False)
            raise Failed(failure_of(step.id, error, about))
        self._reports.add(step.id, "done", 0, start)
        return records

    def _turn(self, steps: Sequence[CompiledStep], scope: Json, turn: BlockTurn) -> Steps:
        """Make the steps of one turn; return the names that they saved."""
        saved: Json = {}
        yield from self._made(steps, scope, saved, turn)
        return saved

    def _do(
        self, step: CompiledStep, scope: Json, start: float, turn: BlockTurn | None = None
    ) -> Steps:
        """Do one step; return its value. turn: of the block that holds it."""
        if step.kind == "assert":
            return self._assert(step, scope, start)
        if step.kind == "let":
            return self._let(step, scope, start)
        if step.kind == "for_each":
            return (yield from self._block(step, scope, start, turn))
        if step.kind == "prompt":
            answer = self._ask(step, scope)
            self._reports.add(step.id, "done", 0, start)
            return answer
        if step.for_each is None:
            return (yield from self._calls.once(step, scope, None, start, turn))
        items = self._evaluated(step, step.for_each, scope)
        return (yield from self._calls.for_each(step, items, scope, start, turn))

    def _assert(self, step: CompiledStep, scope: Json, start: float) -> Any:
        assert step.check is not None
        scopes = [scope]
        if step.for_each is not None:
            items = self._evaluated(step, step.for_each, scope)
            scopes = scopes_of(step, items, scope)
        own: Json = {}
        try:
            for own in scopes:
                if not step.check(own):
                    raise CheckFailed(self._unmet(step, own), place=f"step {step.id}")
        except EmError as error:
            about: Json = {}
            if self._hands_over and isinstance(step.source, AssertStep):
                about = context_of_check(step.source.check, own)
            return self._calls.given_up(step, failure_of(step.id, error, about), 0, start)
        self._reports.add(step.id, "done", 0, start)
        return None

    def _unmet(self, step: CompiledStep, scope: Json) -> str:
        """Say which assert failed: its message, or where a routine hands over the check itself."""
        message = step.message(scope)
        if message or not self._hands_over or not isinstance(step.source, AssertStep):
            return str(message or "the assertion failed")
        return check_failed_in_words(context_of_check(step.source.check, scope))

    def _unmet_behind(self, step: CompiledStep) -> Iterator[Reason]:
        """Yield the asserts behind a step that don't hold either, as far as their values are known.

        Nothing is called for it: an assert that needs a later result is left out.
        """
        behind = dropwhile(lambda one: one is not step, self._program.outer_steps)
        for one in takewhile(lambda each: not each.is_write, islice(behind, 1, None)):
            source = one.source
            is_single = one.for_each is None and one.when is None
            if not isinstance(source, AssertStep) or one.check is None or not is_single:
                continue
            try:
                if not one.check(self._scope):
                    failure = failure_of(
                        one.id,
                        CheckFailed(self._unmet(one, self._scope)),
                        context_of_check(source.check, self._scope),
                    )
                    yield _reason_of(failure, one)
            except EmError:
                continue

    def _ask(self, step: CompiledStep, scope: Json) -> Json:
        assert step.prompt is not None
        prompt = self._evaluated(step, step.prompt, scope)
        pending = PendingPrompt(
            step_id=step.id, message=prompt["message"], fields=prompt.get("fields", ())
        )
        _, pending = self._notebook.answers_to(pending)
        if pending.problem:
            raise Pause(pending)
        secret = [field.name for field in fields_of(pending.fields) if field.type == "secret"]
        checked = self._notebook.answer_to(pending, secret)
        while checked is None:
            answer = None if self._ask_person is None else self._ask_person(pending)
            if answer is None:
                raise Pause(pending)
            try:
                checked = self._notebook.take(pending, answer)
            except Pause as again:
                pending = again.prompt
        for name in secret:
            self._secrets.add(name, checked[name])
        return checked

    def _evaluated(self, step: CompiledStep, evaluate: Callable[[Json], Any], scope: Json) -> Any:
        try:
            return evaluate(scope)
        except EmError as error:
            raise Failed(failure_of(step.id, error, {})) from error

    def _result(self, status: Any, **rest: Any) -> RunResult:
        return RunResult(
            run_id=self._run_id,
            status=status,
            context=self._saved,
            steps=self._reports.made,
            chosen=self._chosen,
            **rest,
        )


def check_conflict(step: CompiledStep, saved: Json, value: Any) -> None:
    """Raise Failed if the name of a result was saved before with another value."""
    if step.save_as not in saved or same(saved[step.save_as], value):
        return
    before = saved[step.save_as]
    words = f"`{step.save_as}` is {short(value)}, and an earlier step saved {short(before)}"
    error = CheckFailed(words, place=f"step {step.id}, field save_as")
    about = {"check": f"{step.save_as}", "recorded": plain(before), "now": plain(value)}
    raise Failed(failure_of(step.id, error, about))


def _unpaired(step: CompiledStep, problem: str, now: Json) -> Failed:
    error = CheckFailed(problem, place=f"step {step.id}, field over")
    source = step.source.over if isinstance(step.source, ForEachStep) else {}
    return Failed(failure_of(step.id, error, {"check": "over", "recorded": source, "now": now}))


def _reason_of(failure: Failure, step: CompiledStep | None) -> Reason:
    """Return a failure before the first write as the reason of a hand-over."""
    context = failure.context
    check = context.get("check", "")
    if not check and step is not None and isinstance(step.source, LetStep):
        check = str(step.source.value)
    return Reason(
        step_id=failure.step_id or "output",
        check=check,
        message=failure.message.removeprefix(f"step {failure.step_id}: "),
        recorded=plain(context.get("recorded")),
        now=plain(context.get("now")),
        held="" if step is None else step.source.held,
        also=tuple(
            Reason(step_id=failure.step_id or "output", **plain(one))
            for one in context.get("also", ())
        ),
    )
