"""Running a routine: `run_routine`, and `arun_routine` for asyncio."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from em.errors import UsageError
from em.models.canonical import Json
from em.models.ids import new_id
from em.models.run import RunResult, StepReport
from em.runner.drivers import adrive, drive
from em.runner.machine import AutoFix, Machine
from em.runner.package import Package
from em.runner.tools import Function, Tool, ToolRegistry

Tools = ToolRegistry | Mapping[str, Function] | None


def run_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    udfs: Mapping[str, Function] | None = None,
    answers: Mapping[str, Json] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
) -> RunResult:
    """Run a routine with no model call.

    It raises only for what can't be run at all (no such routine, no YAML); a failing step is told
    in the result. `answers` maps the ids of prompts to what a person said.
    """
    machine = _machine(routine_dir, tool_registry, auto_fix_fn, udfs, answers, on_step)
    return drive(machine.run(_input(input_data)))


async def arun_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    udfs: Mapping[str, Function] | None = None,
    answers: Mapping[str, Json] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
) -> RunResult:
    """`run_routine` for asyncio: coroutines are awaited, other tools run in threads."""
    machine = _machine(routine_dir, tool_registry, auto_fix_fn, udfs, answers, on_step)
    return await adrive(machine.run(_input(input_data)))


def _machine(
    routine_dir: str | Path | Package,
    tools: Tools,
    auto_fix: AutoFix | None,
    udfs: Mapping[str, Function] | None,
    answers: Mapping[str, Json] | None,
    on_step: Callable[[StepReport], None] | None,
) -> Machine:
    package = routine_dir if isinstance(routine_dir, Package) else Package(routine_dir)
    registry: Mapping[str, Tool] = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    return Machine(
        package.program,
        run_id=new_id(),
        tools=registry,
        udfs={**package.udfs(), **(udfs or {})},
        auto_fix=auto_fix,
        answers=answers,
        on_step=on_step,
    )


def _input(input_data: Any) -> Json:
    if input_data is None:
        return {}
    if not isinstance(input_data, dict):
        raise UsageError(
            f"input is names with values, not a {type(input_data).__name__}", place="input_data"
        )
    return input_data
