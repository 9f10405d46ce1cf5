"""The calls of a run: made once or for each item, checked, tried again, and mended."""

from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from em.errors import EmError, RoutineError
from em.models import schemas
from em.models.canonical import Json
from em.models.fix import Fix
from em.models.routine import Default, Retry
from em.models.run import Failure
from em.runner.effects import AskForFix, CallMany, CallTool, Effect, Wait
from em.runner.failures import CheckFailed, Failed, failure_of, plain, quietly
from em.runner.notebook import Notebook
from em.runner.program import CompiledStep
from em.runner.reports import Reports
from em.runner.tools import Tool

MAX_WAIT = 300.0
"""Seconds between two attempts: the backoff doubles up to here."""

AutoFix = Callable[[Json], Any]
Steps = Generator[Effect, Any, Any]


class Calls:
    """Makes the calls of steps, as their fields say."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        udfs: Mapping[str, Tool],
        auto_fix: AutoFix | None,
        notebook: Notebook,
        reports: Reports,
    ) -> None:
        self._tools = tools
        self._udfs = udfs
        self._auto_fix = auto_fix
        self._notebook = notebook
        self._reports = reports

    def call(self, step: CompiledStep, scope: Json, mended: Json | None = None) -> CallTool:
        """One call, to be made; with `mended` arguments where a fix gave them."""
        tool = (self._tools if step.kind == "tool" else self._udfs)[step.target]
        args = step.args(scope) if mended is None else dict(mended)
        if step.key is not None and tool.takes_key:
            args["idempotency_key"] = step.key(scope)
        if step.args_schema is not None:
            check_schema(step.args_schema, args, "arguments", step.id)
        function = tool.function if tool.within is None else tool.within(step.timeout)
        return CallTool(function, args, tool.is_async, step.timeout)

    def once(self, step: CompiledStep, scope: Json, item: int | None, start: float) -> Steps:
        """A call that is not made again if the journal has its result."""
        notebook = self._notebook
        if not notebook.is_kept:
            return (yield from self._tried(step, scope, start))
        writes = self._writes(step)
        known = notebook.known(step, (step.id, item), writes=writes)
        if known is not None:
            self._reports.add(step.id, "done", 0, start)
            return known.value
        yield from notebook.announce(step, [(scope, item)], writes=writes)
        return self._kept(step, item, (yield from self._tried(step, scope, start)))

    def for_each(self, step: CompiledStep, items: Any, scope: Json, start: float) -> Steps:
        """A call for each of several items; their results in their order."""
        scopes = scopes_of(step, items, scope)
        if step.parallel <= 1:
            values = []
            for number, own in enumerate(scopes):
                values.append((yield from self.once(step, own, number, start)))
            return values
        return (yield from self._side_by_side(step, scopes, start))

    def mended(
        self, step: CompiledStep, scope: Json, error: Exception, attempts: int, start: float
    ) -> Steps:
        """A value for a step that failed: from a fix, or from its `on_error`; else the run ends."""
        args = plain(quietly(step.args, scope))
        failure = failure_of(step.id, error, {"args": args})
        if self._auto_fix is None:
            return self.given_up(step, failure, attempts, start)
        context: Json = {
            "step_id": step.id,
            "tool": step.target,
            "args": args,
            "error_type": failure.error_type,
            "message": failure.message,
        }
        fix: Fix = yield AskForFix(self._auto_fix, context)
        told = msgspec.to_builtins(fix)
        if fix.strategy == "skip":
            self._reports.add(step.id, "defaulted", attempts, start, failure.message, told)
            return fix.default
        if fix.strategy == "fail":
            if fix.reason:
                failure = failure_of(step.id, error, {"args": args, "fix": fix.reason})
            return self.given_up(step, failure, attempts, start)
        try:
            value = yield self.call(step, scope, fix.args)
            _check(step.post, {**scope, "result": value}, step, "post")
        except Exception as again:  # noqa: BLE001 - a tool may raise anything; it is told
            failure = failure_of(step.id, again, {"args": fix.args, "fix": fix.reason})
            return self.given_up(step, failure, attempts + 1, start)
        self._reports.add(step.id, "done", attempts + 1, start, failure.message, told)
        return value

    def given_up(self, step: CompiledStep, failure: Failure, attempts: int, start: float) -> Any:
        """What the run goes on with after a step that failed for good, if its `on_error` says."""
        if step.on_error == "fail":
            self._reports.add(step.id, "failed", attempts, start, failure.message)
            raise Failed(failure)
        self._reports.add(step.id, "defaulted", attempts, start, failure.message)
        return step.on_error.default if isinstance(step.on_error, Default) else None

    def _writes(self, step: CompiledStep) -> bool:
        """A step has an effect if either the routine or its tool says so."""
        tool = self._tools.get(step.target) if step.kind == "tool" else None
        return step.is_write or (tool is not None and tool.effect == "write")

    def _kept(self, step: CompiledStep, item: int | None, value: Any) -> Any:
        try:
            return self._notebook.kept(step, item, value, self._reports.made[-1])
        except EmError as error:
            raise Failed(failure_of(step.id, error, {})) from error

    def _tried(self, step: CompiledStep, scope: Json, start: float) -> Steps:
        """One call, with its checks, again as its retry policy says."""
        retry = step.retry or Retry(attempts=1)
        attempt = 0
        while True:
            attempt += 1
            returned = False
            try:
                _check(step.pre, scope, step, "pre")
                value = yield self.call(step, scope)
                returned = True
                _check_result(step, scope, value)
            except Exception as error:  # noqa: BLE001 - a tool may raise anything; it is told
                if not returned and attempt < retry.attempts and _retriable(retry, error):
                    yield Wait(min(retry.backoff * 2 ** (attempt - 1), MAX_WAIT))
                    continue
                return (yield from self.mended(step, scope, error, attempt, start))
            self._reports.add(step.id, "done", attempt, start)
            return value

    def _side_by_side(self, step: CompiledStep, scopes: list[Json], start: float) -> Steps:
        values: dict[int, Any] = {}
        writes = self._writes(step)
        if self._notebook.is_kept:
            for item in range(len(scopes)):
                known = self._notebook.known(step, (step.id, item), writes=writes)
                if known is not None:
                    values[item] = known.value
        todo = [item for item in range(len(scopes)) if item not in values]
        if self._notebook.is_kept and todo:
            intents = [(scopes[item], item) for item in todo]
            yield from self._notebook.announce(step, intents, writes=writes)
        calls, failed = self._many(step, scopes, todo)
        outcomes = yield CallMany(list(calls.values()), step.parallel)
        self._reports.add(step.id, "done", 1, start)
        for item, outcome in zip(calls, outcomes, strict=True):
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

    def _many(
        self, step: CompiledStep, scopes: list[Json], todo: list[int]
    ) -> tuple[dict[int, CallTool], list[tuple[int, Exception]]]:
        """The calls of items, and the items whose calls can't be made."""
        calls: dict[int, CallTool] = {}
        failed: list[tuple[int, Exception]] = []
        for item in todo:
            try:
                _check(step.pre, scopes[item], step, "pre")
                calls[item] = self.call(step, scopes[item])
            except EmError as error:
                failed.append((item, error))
        return calls, failed

    def _again(self, step: CompiledStep, scope: Json, error: Exception, start: float) -> Steps:
        """An item that failed beside others: tried again by itself if its policy says so."""
        if step.retry is not None and step.retry.attempts > 1 and _retriable(step.retry, error):
            return (yield from self._tried(step, scope, start))
        return (yield from self.mended(step, scope, error, 1, start))


def scopes_of(step: CompiledStep, items: Any, scope: Json) -> list[Json]:
    """The scope of each item of a `for_each`."""
    if not isinstance(items, list | tuple):
        error = RoutineError(
            f"for_each needs a list, not a {type(items).__name__}", place=f"step {step.id}"
        )
        raise Failed(failure_of(step.id, error, {}))
    return [{**scope, step.as_name: item} for item in items]


def _check(checks: list[tuple[str, Any]], scope: Json, step: CompiledStep, when: str) -> None:
    for source, holds in checks:
        if not holds(scope):
            raise CheckFailed(f"the {when}-check {source!r} does not hold", place=f"step {step.id}")


def _check_result(step: CompiledStep, scope: Json, value: Any) -> None:
    if step.result_schema is not None:
        check_schema(step.result_schema, plain(value), "result", step.id)
    _check(step.post, {**scope, "result": value}, step, "post")


def check_schema(schema: Json, value: Any, what: str, step_id: str = "") -> None:
    """Raise if a value does not fit its schema; the first problem is told, all are in the data."""
    found = [f"{path or what}: {problem}" for path, problem in schemas.problems(schema, value)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        fit = "do not fit their" if what.endswith("s") else "does not fit its"
        raise RoutineError(
            f"the {what} {fit} schema: {found[0]}{more}",
            place=f"step {step_id}" if step_id else what,
            problems=found,
        )


def _violated(step: CompiledStep, scope: Json, value: Any) -> Exception | None:
    try:
        _check_result(step, scope, value)
    except EmError as error:
        return error
    return None


def _retriable(retry: Retry, error: Exception) -> bool:
    if isinstance(error, EmError):
        return False  # a check or an expression of the routine itself
    names = (type(error).__name__, str(error))
    return not retry.errors or any(word in name for word in retry.errors for name in names)
