"""Program: a routine compiled once, so that running a step costs little more than its call."""

from collections.abc import Sequence
from typing import Any

from em.errors import InvalidRoutine
from em.runner.expressions.language import Evaluate, compile_expression, compile_value
from em.runner.routine import (
    AssertStep,
    PromptStep,
    ReturnStep,
    Routine,
    Step,
    ToolSpec,
    ToolStep,
    UdfStep,
)


class CompiledStep:
    """A step with its expressions compiled. `kind` is tool, udf, assert, prompt or return."""

    __slots__ = (
        "args", "args_schema", "as_name", "check", "for_each", "gate", "id", "is_in_doubt",
        "is_plain", "is_write", "key", "kind", "message", "on_error", "parallel", "post", "pre",
        "prompt", "result_schema", "retry", "save_as", "target", "timeout", "value", "when",
    )  # fmt: skip

    def __init__(self, step: Step, spec: ToolSpec | None) -> None:
        place = f"step {step.id}"
        self.id = step.id
        self.save_as = step.save_as
        self.when = _expression(step.when, f"{place}, field when")
        self.for_each = _value(step.for_each, f"{place}, field for_each")
        self.as_name = step.as_
        self.parallel = step.parallel
        self.retry = step.retry
        self.timeout = step.timeout
        self.on_error = step.on_error
        checks = step.checks
        self.pre = _expressions(checks.pre if checks else (), f"{place}, field checks.pre")
        self.post = _expressions(checks.post if checks else (), f"{place}, field checks.post")
        self.key = _value(step.idempotency_key, f"{place}, field idempotency_key")
        self.is_write = _is_write(step, spec)
        # Nobody says what the step does; its tool may know.
        self.is_in_doubt = step.effect is None and (spec is None or spec.known_effect is None)
        self.args_schema = spec.args_schema if spec else None
        self.result_schema = spec.result_schema if spec else None
        # A prompt that a person answers before the call; only steps of a workflow have one.
        self.gate: CompiledStep | None = None
        self.kind = "return"
        self.target = ""
        self.args: Evaluate = _nothing
        self.check: Evaluate | None = None
        self.message: Evaluate = _nothing
        self.prompt: Evaluate | None = None
        self.value: Evaluate = _nothing
        self._take_details(step, place)
        # Nothing but a call and a name to keep its result under: the common case goes straight on.
        self.is_plain = self.kind in ("tool", "udf") and not (
            self.when or self.for_each or self.retry or self.pre or self.post or self.timeout
        )
        if self.args_schema is not None or self.result_schema is not None:
            self.is_plain = False

    def _take_details(self, step: Step, place: str) -> None:
        if isinstance(step, ToolStep | UdfStep):
            self.kind = "tool" if isinstance(step, ToolStep) else "udf"
            self.target = step.tool if isinstance(step, ToolStep) else step.function
            self.args = compile_value(step.args, f"{place}, field args")
        elif isinstance(step, AssertStep):
            self.kind = "assert"
            self.check = compile_expression(step.check, f"{place}, field check")
            self.message = compile_value(step.message, f"{place}, field message")
        elif isinstance(step, PromptStep):
            self.kind = "prompt"
            import msgspec

            prompt = msgspec.to_builtins(step.prompt)
            self.prompt = compile_value(prompt, f"{place}, field prompt")
        elif isinstance(step, ReturnStep):
            self.value = compile_value(step.value, f"{place}, field value")


class Program:
    """A routine, ready to run."""

    __slots__ = ("declared_names", "routine", "steps", "tool_names", "udf_names")

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        specs = {tool.name: tool for tool in routine.tools}
        self.steps = [
            CompiledStep(step, specs.get(step.tool) if isinstance(step, ToolStep) else None)
            for step in routine.steps
        ]
        _check_ids(self.steps)
        self.tool_names = {step.target for step in self.steps if step.kind == "tool"}
        # Those that are called and say by themselves how.
        self.declared_names = {
            name for name in self.tool_names if routine.says_how(name) is not None
        }
        self.udf_names = {step.target for step in self.steps if step.kind == "udf"}


def _check_ids(steps: list[CompiledStep]) -> None:
    """The journal knows steps by their ids."""
    seen: set[str] = set()
    for step in steps:
        if step.id in seen:
            raise InvalidRoutine(f"two steps are called {step.id!r}", place=f"step {step.id}")
        seen.add(step.id)


def _is_write(step: Step, spec: ToolSpec | None) -> bool:
    """When in doubt it is a write; a function of the routine's own is none."""
    if step.effect is not None:
        return step.effect == "write"
    return isinstance(step, ToolStep) and (spec is None or spec.known_effect != "read")


def _nothing(_scope: Any) -> Any:
    return None


def _value(source: Any, place: str) -> Evaluate | None:
    return None if source is None else compile_value(source, place)


def _expression(source: str | None, place: str) -> Evaluate | None:
    return None if source is None else compile_expression(source, place)


def _expressions(sources: Sequence[str], place: str) -> list[tuple[str, Evaluate]]:
    return [
        (source, compile_expression(source, f"{place}[{n}]")) for n, source in enumerate(sources)
    ]
