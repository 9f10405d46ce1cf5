"""The machine: runs a program step by step and yields what it wants done. No I/O of its own."""

import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from em.errors import EmError, RoutineError
from em.runner.answers import fields_of
from em.runner.attempts import AutoFix, Calls, Steps, check_schema, scopes_of
from em.runner.effects import Effect
from em.runner.expressions.language import FUNCTIONS
from em.runner.failures import CheckFailed, Failed, Mismatch, Pause, failure_of
from em.runner.journal import Note, Notebook, Restored
from em.runner.program import CompiledStep, Program
from em.runner.run import PendingPrompt, Reports, RunResult, StepReport
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool, missing_tool
from em.values.canonical import Json


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
    ) -> None:
        self._program = program
        # Why it can't be run at all here: told as its result.
        self._refusal = refusal
        self._run_id = run_id
        self._tools = tools
        self._udfs = udfs
        self._on_start = on_start
        self._secrets = Secrets() if secrets is None else secrets
        self._notebook = Notebook(notes, restored, answers, self._secrets, run_id)
        self._reports = Reports(on_step)
        own = {name: Tool(name, function) for name, function in udfs.items()}
        self._calls = Calls(tools, own, auto_fix, self._notebook, self._reports)
        self._saved: Json = {}
        self._scope: Json = {}

    def run(self, input_data: Json) -> Generator[Effect, Any, RunResult]:
        """Yield effects until there is a result. Never raises for a failing step."""
        in_flight = False
        try:
            self._prepare(input_data)
            output = yield from self._steps()
            if self._program.routine.output_schema is not None:
                check_schema(self._program.routine.output_schema, output, "output")
            self._notebook.check_output(output)
        except Pause as pause:
            in_flight = pause.in_flight
            result = self._result("needs_input", pending_prompt=pause.prompt)
        except Failed as failed:
            result = self._result("failed", failure=failed.failure)
        except Mismatch:
            raise
        except EmError as error:
            result = self._result("failed", failure=failure_of("", error, {}))
        except (Exception, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a function in an expression wants to exit
            failure = failure_of("", RuntimeError(f"it raised {type(error).__name__}({error})"), {})
            result = self._result("failed", failure=failure)
        else:
            result = self._result("ok", output=output)
        yield from self._notebook.end(result, in_flight=in_flight)
        return result

    def check(self) -> None:
        """Raise if anything that the run needs is missing here."""
        if self._refusal is not None:
            raise self._refusal
        self._check_targets()
        self._secrets.check()

    def _prepare(self, input_data: Json) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self._program.routine.input_schema is not None:
            check_schema(self._program.routine.input_schema, input_data, "input")
        try:
            self._check_targets()
        except RoutineError as error:
            raise Failed(failure_of(error.data["step"], error, {})) from error
        self._secrets.check()
        self._scope = {**FUNCTIONS, **self._udfs, **input_data, **self._secrets.values}

    def _check_targets(self) -> None:
        """All that is called must be there before the first step."""
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

    def _steps(self) -> Steps:
        calls, reports, is_kept = self._calls, self._reports, self._notebook.is_kept
        for step in self._program.steps:
            start = time.perf_counter()
            if self._on_start is not None:
                self._on_start(step.id)
            if step.is_plain and not is_kept and step.key is None:
                try:
                    value = yield calls.call(step, self._scope)
                except Exception as error:  # noqa: BLE001 - a tool may raise anything; it is told
                    value = yield from calls.mended_plain(step, self._scope, error, start)
                else:
                    reports.add(step.id, "done", 1, start)
            elif step.when is not None and not self._evaluated(step, step.when):
                reports.add(step.id, "skipped", 0, start)
                continue
            elif step.kind == "return":
                value = self._evaluated(step, step.value)
                reports.add(step.id, "done", 0, start)
                return value
            else:
                value = yield from self._do(step, start)
            if step.save_as is not None:
                self._saved[step.save_as] = self._scope[step.save_as] = value
        return None

    def _do(self, step: CompiledStep, start: float) -> Steps:
        if step.kind == "assert":
            return self._assert(step, start)
        if step.kind == "prompt":
            answer = self._ask(step, self._scope)
            self._reports.add(step.id, "done", 0, start)
            return answer
        if step.for_each is None:
            return (yield from self._calls.once(step, self._scope, None, start))
        items = self._evaluated(step, step.for_each)
        return (yield from self._calls.for_each(step, items, self._scope, start))

    def _assert(self, step: CompiledStep, start: float) -> Any:
        assert step.check is not None
        scopes = [self._scope]
        if step.for_each is not None:
            scopes = scopes_of(step, self._evaluated(step, step.for_each), self._scope)
        try:
            for scope in scopes:
                if not step.check(scope):
                    message = step.message(scope) or "the assertion does not hold"
                    raise CheckFailed(str(message), place=f"step {step.id}")
        except EmError as error:
            return self._calls.given_up(step, failure_of(step.id, error, {}), 0, start)
        self._reports.add(step.id, "done", 0, start)
        return None

    def _ask(self, step: CompiledStep, scope: Json) -> Json:
        assert step.prompt is not None
        prompt = self._evaluated(step, step.prompt, scope)
        pending = PendingPrompt(
            step_id=step.id, message=prompt["message"], fields=prompt.get("fields", ())
        )
        secret = [field.name for field in fields_of(pending.fields) if field.type == "secret"]
        checked = self._notebook.answer_to(pending, secret)
        if checked is None:
            raise Pause(pending)
        for name in secret:
            self._secrets.add(name, checked[name])
        return checked

    def _evaluated(
        self, step: CompiledStep, evaluate: Callable[[Json], Any], scope: Json | None = None
    ) -> Any:
        try:
            return evaluate(self._scope if scope is None else scope)
        except EmError as error:
            raise Failed(failure_of(step.id, error, {})) from error

    def _result(self, status: Any, **rest: Any) -> RunResult:
        return RunResult(
            run_id=self._run_id,
            status=status,
            context=self._saved,
            steps=self._reports.made,
            **rest,
        )
