"""The machine: runs a program step by step and yields what it wants done. No I/O of its own."""

import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from em.errors import EmError, RoutineError
from em.models.canonical import Json
from em.models.routine import Default, Retry
from em.models.run import Failure, PendingPrompt, RunResult, StepReport, StepStatus
from em.runner import schemas
from em.runner.answers import check_answers
from em.runner.effects import (
    AskForFix,
    CallMany,
    CallTool,
    Effect,
    Fix,
    Outcome,
    Wait,
    Write,
)
from em.runner.functions import FUNCTIONS
from em.runner.journal import ItemKey, Note, Restored, keepable, question_of
from em.runner.program import CompiledStep, Program
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool, missing_tool

AutoFix = Callable[[Json], Any]
Steps = Generator[Effect, Any, Any]


class CheckFailed(RoutineError):
    """A check or an assertion of a routine does not hold."""

    code = "check_failed"


class _Pause(Exception):
    def __init__(self, prompt: PendingPrompt) -> None:
        self.prompt = prompt


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


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
        secrets: Secrets | None = None,
        notes: list[Note] | None = None,
        restored: Restored | None = None,
    ) -> None:
        self._program = program
        # The notes that are not written yet; None where there is no journal.
        self._notes = notes
        self._restored = restored or Restored()
        self._run_id = run_id
        self._tools = tools
        self._udfs = {name: Tool(name, function) for name, function in udfs.items()}
        self._auto_fix = auto_fix
        self._answers = answers or {}
        self._on_step = on_step
        self._on_start = on_start
        self._secrets = secrets or Secrets(())
        self._reports: list[StepReport] = []
        self._saved: Json = {}
        self._scope: Json = {}

    def run(self, input_data: Json) -> Generator[Effect, Any, RunResult]:
        """Yield effects until there is a result. Never raises for a failing step."""
        try:
            self._prepare(input_data)
            output = yield from self._steps()
            self._check_schema(self._program.routine.output_schema, output, "output")
        except _Pause as pause:
            result = self._result("needs_input", pending_prompt=pause.prompt)
        except _Failed as failed:
            result = self._result("failed", failure=failed.failure)
        except EmError as error:
            result = self._result("failed", failure=_failure("", error, {}))
        else:
            result = self._result("ok", output=output)
        if self._notes is not None:
            yield Write([*self._notes, _last_note(result)])
            self._notes.clear()
        return result

    def _prepare(self, input_data: Json) -> None:
        self._check_schema(self._program.routine.input_schema, input_data, "input")
        for name in sorted(self._program.tool_names - self._tools.keys()):
            raise missing_tool(name, self._tools)
        for name in sorted(self._program.udf_names - self._udfs.keys()):
            raise RoutineError(
                f"there is no function {name!r}", place="udf.py", fix="write it there"
            )
        self._secrets.check()
        functions = {name: udf.function for name, udf in self._udfs.items()}
        self._scope = {**FUNCTIONS, **functions, **input_data, **self._secrets.values}

    def _check_schema(self, schema: Json | None, value: Any, what: str) -> None:
        if schema is None:
            return
        found = [f"{path or what}: {problem}" for path, problem in schemas.problems(schema, value)]
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise RoutineError(
                f"the {what} does not fit its schema: {found[0]}{more}", place=what, problems=found
            )

    def _steps(self) -> Steps:
        for step in self._program.steps:
            start = time.perf_counter()
            if self._on_start is not None:
                self._on_start(step.id)
            if step.is_plain and self._notes is None:
                try:
                    value = yield self._call(step, self._scope)
                except Exception as error:  # noqa: BLE001 - a tool may raise anything; it is told
                    value = yield from self._mended(step, self._scope, error, 1, start)
                else:
                    self._report(step, "done", 1, start)
            elif step.when is not None and not self._truth(step):
                self._report(step, "skipped", 0, start)
                continue
            elif step.kind == "return":
                value = self._evaluated(step, step.value)
                self._report(step, "done", 0, start)
                return value
            else:
                value = yield from self._do(step, start)
            if step.save_as is not None:
                self._saved[step.save_as] = self._scope[step.save_as] = value
        return None

    def _do(self, step: CompiledStep, start: float) -> Steps:
        if step.kind == "assert":
            self._assert(step)
            self._report(step, "done", 0, start)
            return None
        if step.kind == "prompt":
            answer = self._ask(step)
            self._report(step, "done", 0, start)
            return answer
        if step.for_each is None:
            return (yield from self._once(step, self._scope, None, start))
        return (yield from self._for_each(step, start))

    def _once(self, step: CompiledStep, scope: Json, item: int | None, start: float) -> Steps:
        """A call that is not made again if the journal has its result."""
        if self._notes is None:
            return (yield from self._tried(step, scope, start))
        key = (step.id, item)
        known = self._known(step, key)
        if known is not None:
            self._report(step, "done", 0, start)
            return known.value
        yield from self._announce(step, [(scope, item)])
        return self._kept(step, item, (yield from self._tried(step, scope, start)))

    def _known(self, step: CompiledStep, key: ItemKey) -> Outcome | None:
        """What the journal has of a call, or a person knows of it; None if it is to be made."""
        restored = self._restored
        if key in restored.results and key not in restored.redacted:
            return Outcome(value=restored.results[key])
        uncertain = key in restored.redacted or (key in restored.in_flight and step.key is None)
        return self._unknown(step, key) if uncertain and self._writes(step) else None

    def _unknown(self, step: CompiledStep, key: ItemKey) -> Outcome | None:
        """Ask what became of a call that was under way; the answer counts for that call alone."""
        question = question_of(key)
        prompt = PendingPrompt(
            step_id=question,
            message=(
                f"The run was interrupted while {question.rstrip('?')} was under way."
                " Nobody knows whether it happened. Did it, and with what result?"
            ),
            fields=(
                {"name": "happened", "type": "confirm"},
                {"name": "result", "type": "json", "required": False},
            ),
        )
        answer = self._answer_to(question)
        if answer is None:
            raise _Pause(prompt)
        checked = check_answers(prompt, answer)
        return Outcome(value=checked["result"]) if checked["happened"] else None

    def _announce(self, step: CompiledStep, calls: list[tuple[Json, int | None]]) -> Steps:
        """Write what is not written yet, with the intent of a step that has an effect."""
        assert self._notes is not None
        if self._writes(step):
            for scope, item in calls:
                args = keepable(_quietly(step.args, scope), step.id)
                body: Json = {"step": step.id, "item": item, "args": args}
                if step.key is not None:
                    body["key"] = step.key(scope)
                self._notes.append(("step_started", body))
        if self._notes:
            yield Write(self._notes)
            self._notes.clear()

    def _done_note(self, step: CompiledStep, item: int | None, value: Any) -> Note:
        report = self._reports[-1]
        body: Json = {"step": step.id, "result": keepable(value, step.id), "status": report.status}
        body |= {"attempts": report.attempts, "duration_ms": round(report.duration_ms, 3)}
        if item is not None:
            body["item"] = item
        if report.error:
            body["error"] = report.error
        return "step_done", body

    def _call(self, step: CompiledStep, scope: Json) -> CallTool:
        tool = (self._tools if step.kind == "tool" else self._udfs)[step.target]
        args = step.args(scope)
        if step.key is not None and tool.takes_key:
            args["idempotency_key"] = step.key(scope)
        return CallTool(tool.function, args, tool.is_async, step.timeout)

    def _writes(self, step: CompiledStep) -> bool:
        """A step has an effect if either the routine or its tool says so."""
        tool = self._tools.get(step.target) if step.kind == "tool" else None
        return step.is_write or (tool is not None and tool.effect == "write")

    def _tried(self, step: CompiledStep, scope: Json, start: float) -> Steps:
        """One call, with its checks, again as its retry policy says."""
        retry = step.retry or Retry(attempts=1)
        attempt = 0
        while True:
            attempt += 1
            returned = False
            try:
                _check(step.pre, scope, step, "pre")
                value = yield self._call(step, scope)
                returned = True
                _check(step.post, {**scope, "result": value}, step, "post")
            except Exception as error:  # noqa: BLE001 - a tool may raise anything; it is told
                if not returned and attempt < retry.attempts and _retriable(retry, error):
                    yield Wait(retry.backoff * 2 ** (attempt - 1))
                    continue
                return (yield from self._mended(step, scope, error, attempt, start))
            self._report(step, "done", attempt, start)
            return value

    def _for_each(self, step: CompiledStep, start: float) -> Steps:
        assert step.for_each is not None
        items = self._evaluated(step, step.for_each)
        if not isinstance(items, list | tuple):
            error = RoutineError(
                f"for_each needs a list, not a {type(items).__name__}", place=f"step {step.id}"
            )
            raise _Failed(_failure(step.id, error, {}))
        scopes = [{**self._scope, step.as_name: item} for item in items]
        if step.parallel <= 1:
            values = []
            for item, scope in enumerate(scopes):
                values.append((yield from self._once(step, scope, item, start)))
            return values
        return (yield from self._side_by_side(step, scopes, start))

    def _side_by_side(self, step: CompiledStep, scopes: list[Json], start: float) -> Steps:
        values: dict[int, Any] = {}
        if self._notes is not None:
            for item in range(len(scopes)):
                known = self._known(step, (step.id, item))
                if known is not None:
                    values[item] = known.value
        todo = [item for item in range(len(scopes)) if item not in values]
        if self._notes is not None and todo:
            yield from self._announce(step, [(scopes[item], item) for item in todo])
        outcomes = yield CallMany(self._calls(step, [scopes[n] for n in todo]), step.parallel)
        self._report(step, "done", 1, start)
        failed: list[tuple[int, Exception]] = []
        for item, outcome in zip(todo, outcomes, strict=True):
            problem = outcome.error or _violated(step, scopes[item], outcome.value)
            if problem is None:
                values[item] = self._kept(step, item, outcome.value)
            else:
                failed.append((item, problem))
        # What was done is noted before what failed can end the run.
        for item, problem in failed:
            value = yield from self._again(step, scopes[item], problem, start)
            values[item] = self._kept(step, item, value)
        return [values[item] for item in range(len(scopes))]

    def _calls(self, step: CompiledStep, scopes: list[Json]) -> list[CallTool]:
        try:
            for scope in scopes:
                _check(step.pre, scope, step, "pre")
            return [self._call(step, scope) for scope in scopes]
        except EmError as error:
            raise _Failed(_failure(step.id, error, {})) from error

    def _kept(self, step: CompiledStep, item: int | None, value: Any) -> Any:
        """A result as the run goes on with it: as the journal keeps it, if there is one."""
        if self._notes is None:
            return value
        plain = keepable(value, step.id)
        self._notes.append(self._done_note(step, item, plain))
        return plain

    def _again(self, step: CompiledStep, scope: Json, error: Exception, start: float) -> Steps:
        """An item that failed beside others: tried again by itself if its policy says so."""
        if step.retry is not None and step.retry.attempts > 1 and _retriable(step.retry, error):
            return (yield from self._tried(step, scope, start))
        return (yield from self._mended(step, scope, error, 1, start))

    def _mended(
        self, step: CompiledStep, scope: Json, error: Exception, attempts: int, start: float
    ) -> Steps:
        """A value for a step that failed: from a fix, or from its `on_error`; else the run ends."""
        args = _plain(_quietly(step.args, scope))
        failure = _failure(step.id, error, {"args": args})
        if self._auto_fix is not None:
            context = {
                "step_id": step.id,
                "tool": step.target,
                "args": args,
                "error_type": failure.error_type,
                "message": failure.message,
            }
            fix: Fix = yield AskForFix(self._auto_fix, context)
            if fix.strategy == "skip":
                self._report(step, "defaulted", attempts, start, failure.message)
                return fix.default
            if fix.strategy == "modify_args":
                call = self._call(step, scope)
                call.args = fix.args
                try:
                    value = yield call
                except Exception as again:  # noqa: BLE001 - as above
                    failure = _failure(step.id, again, {"args": fix.args, "fix": fix.reason})
                else:
                    self._report(step, "done", attempts + 1, start)
                    return value
        if step.on_error == "fail":
            self._report(step, "failed", attempts, start, failure.message)
            raise _Failed(failure)
        self._report(step, "defaulted", attempts, start, failure.message)
        return step.on_error.default if isinstance(step.on_error, Default) else None

    def _assert(self, step: CompiledStep) -> None:
        assert step.check is not None
        if not self._evaluated(step, step.check):
            message = self._evaluated(step, step.message) or "the assertion does not hold"
            error = CheckFailed(str(message), place=f"step {step.id}")
            raise _Failed(_failure(step.id, error, {}))

    def _ask(self, step: CompiledStep) -> Json:
        assert step.prompt is not None
        prompt = self._evaluated(step, step.prompt)
        pending = PendingPrompt(
            step_id=step.id, message=prompt["message"], fields=prompt.get("fields", ())
        )
        answers = self._answer_to(step.id)
        if answers is None:
            raise _Pause(pending)
        return check_answers(pending, answers)

    def _answer_to(self, step_id: str) -> Json | None:
        return self._answers.get(step_id, self._restored.answers.get(step_id))

    def _truth(self, step: CompiledStep) -> bool:
        assert step.when is not None
        return bool(self._evaluated(step, step.when))

    def _evaluated(self, step: CompiledStep, evaluate: Callable[[Json], Any]) -> Any:
        try:
            return evaluate(self._scope)
        except EmError as error:
            raise _Failed(_failure(step.id, error, {})) from error

    def _report(
        self, step: CompiledStep, status: StepStatus, attempts: int, start: float, error: str = ""
    ) -> None:
        duration = (time.perf_counter() - start) * 1e3
        report = StepReport(
            id=step.id, status=status, attempts=attempts, duration_ms=duration, error=error
        )
        self._reports.append(report)
        if self._on_step is not None:
            self._on_step(report)

    def _result(self, status: Any, **rest: Any) -> RunResult:
        return RunResult(
            run_id=self._run_id, status=status, context=self._saved, steps=self._reports, **rest
        )


def _last_note(result: RunResult) -> Note:
    if result.pending_prompt is not None:
        return "run_paused", {"prompt": msgspec.to_builtins(result.pending_prompt)}
    body: Json = {"status": result.status, "output": keepable(result.output, "return")}
    if result.failure is not None:
        body["failure"] = _plain(result.failure)
    return "run_ended", body


def _check(checks: list[tuple[str, Any]], scope: Json, step: CompiledStep, when: str) -> None:
    for source, holds in checks:
        if not holds(scope):
            raise CheckFailed(f"the {when}-check {source!r} does not hold", place=f"step {step.id}")


def _violated(step: CompiledStep, scope: Json, value: Any) -> Exception | None:
    try:
        _check(step.post, {**scope, "result": value}, step, "post")
    except EmError as error:
        return error
    return None


def _retriable(retry: Retry, error: Exception) -> bool:
    if isinstance(error, EmError):
        return False  # a check or an expression of the routine itself
    names = (type(error).__name__, str(error))
    return not retry.errors or any(word in name for word in retry.errors for name in names)


def _failure(step_id: str, error: Exception, context: Json) -> Failure:
    message = str(error) or type(error).__name__
    return Failure(
        step_id=step_id, error_type=type(error).__name__, message=message, context=context
    )


def _quietly(evaluate: Callable[[Json], Any], scope: Json) -> Any:
    """The arguments of a call that failed; where they are what failed, nothing."""
    try:
        return evaluate(scope)
    except EmError:
        return {}


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, for a report."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return repr(value)
