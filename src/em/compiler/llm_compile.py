"""Compiling a trace with a model: it improves the draft, and its work is proved like the draft.

What does not validate and reproduce the trace goes back to the model with the problems, twice; then
the routine that was compiled without it is kept, and the report says so.
"""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.compile_trace import compile_trace, read_trace_file, write_package
from em.compiler.draft import Draft, Recorded
from em.compiler.llm_prompt import SCHEMA, SYSTEM, correction, first_prompt
from em.compiler.replay import NotReproduced, verify_improved
from em.compiler.show import short
from em.compiler.written_in import written_in
from em.errors import EmError, LlmError
from em.llm.protocol import LlmClient, Message, Spent, Tokens
from em.models.canonical import identical
from em.models.trace import Effect, Trace
from em.runner.package import ROUTINE, UDF, parse_yaml, read_routine
from em.runner.sandbox.subset import SUBSET_RULES
from em.runner.tools import Function
from em.runner.udfs import sandboxed
from em.runner.validate import validate

MAX_TOKENS = 16_384
CORRECTIONS = 2


class Improved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of asking a model.

    draft: the model's routine if `by_model`, else the one compiled without it.
    problems: for each try, what was wrong with the answer.
    """

    draft: Draft
    by_model: bool
    problems: list[list[str]]
    notes: str = ""
    spent: Spent = Spent()


def llm_compile_trace(
    trace: Trace,
    client: LlmClient,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
) -> Improved:
    """Compile a trace and let a model improve the routine; what it returns must reproduce it."""
    return improve(trace, compile_trace(trace, name=name, declared=declared), client)


def improve(trace: Trace, draft: Draft, client: LlmClient) -> Improved:
    """Let a model improve a draft; what it returns must validate and reproduce the trace."""
    messages = [Message("user", first_prompt(trace, draft))]
    tried: list[list[str]] = []
    before = client.spent
    while len(tried) <= CORRECTIONS:
        try:
            answer = client.complete(
                messages,
                system=SYSTEM + SUBSET_RULES,
                schema=SCHEMA,
                name="routine",
                max_tokens=MAX_TOKENS,
            )
        except LlmError as error:
            tried.append([f"the model could not be asked: {error}"])
            break
        improved, problems = _checked(draft, answer.value, f"{client.provider}/{client.model}")
        if improved is not None:
            return Improved(
                draft=improved,
                by_model=True,
                problems=tried,
                notes=answer.value["notes"],
                spent=_difference(before, client.spent),
            )
        tried.append(problems)
        messages += [Message("assistant", answer.text), Message("user", correction(problems))]
    spent = _difference(before, client.spent)
    return Improved(draft=draft, by_model=False, problems=tried, spent=spent)


def llm_compile_trace_file(
    trace_path: str | Path,
    output_dir: str | Path,
    client: LlmClient,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
) -> Improved:
    """Compile a trace file into a package folder with a model's help."""
    trace = read_trace_file(trace_path)
    improved = llm_compile_trace(trace, client, name=name, declared=declared)
    write_package(improved.draft, Path(output_dir))
    return improved


def _checked(draft: Draft, answer: Any, model: str) -> tuple[Draft | None, list[str]]:
    """The model's routine, if it holds; else what is wrong with it."""
    text, code = _without_fence(answer["routine_yaml"]), _without_fence(answer["udf_py"])
    problems = _invalid(text, code)
    if problems:
        return None, problems
    try:
        routine = read_routine(parse_yaml(text.encode(), ROUTINE), ROUTINE)
        improved = msgspec.structs.replace(
            draft, routine=routine, comments={}, udf_source=code, written_by=model
        )
        problems = [*_kept_promises(draft, improved), *written_in(draft, improved)]
        if not problems:
            _replay(improved)
    except EmError as error:
        problems = [str(error)]
    return (None, problems) if problems else (improved, [])


def _kept_promises(draft: Draft, improved: Draft) -> list[str]:
    old = (draft.routine.input_schema or {}).get("properties", {})
    new = (improved.routine.input_schema or {}).get("properties", {})
    problems = []
    if old.keys() != new.keys():
        problems.append(f"input_schema must name just {sorted(old)}, not {sorted(new)}")
    if improved.routine.output_schema is None and draft.routine.output_schema is not None:
        problems.append("output_schema must stay")
    effects = {tool.name: tool.effect for tool in draft.routine.tools}
    for tool in improved.routine.tools:
        if tool.name in effects and tool.effect != effects[tool.name]:
            problems.append(f"tool {tool.name}: its effect is {effects[tool.name]}, and stays so")
    if any(step.effect is not None for step in improved.routine.steps):
        problems.append("a step's effect is its tool's: leave `effect` out of steps")
    return problems


def _invalid(text: str, code: str) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ROUTINE).write_text(text, encoding="utf-8")
        if code.strip():
            (folder / UDF).write_text(code, encoding="utf-8")
        return [
            str(problem).replace(f"{folder}/", "")
            for problem in validate(folder)
            if problem.severity == "error"
        ]


def _replay(improved: Draft) -> None:
    """Replay with the functions that the model wrote, in the sandbox."""
    code = improved.udf_source
    if not code.strip():
        verify_improved(improved, {})
        return
    with sandboxed(Path(UDF), code.encode()) as functions:
        for item in improved.recording:
            if item.is_udf and item.name in functions:
                _check_example(functions[item.name], item)
        verify_improved(improved, functions)


def _check_example(function: Function, item: Recorded) -> None:
    result = function(**item.args)
    if not identical(result, item.result):
        raise NotReproduced(
            f"{item.name}({short(item.args)}) was recorded to give {short(item.result)},"
            f" and gives {short(result)}",
            place=f"{UDF}, {item.name}",
        )


def _without_fence(text: str) -> str:
    """A text without the Markdown fence that models like to put around code."""
    match = re.fullmatch(r"\s*```[a-z]*\n(.*?)\n?```\s*", text, re.DOTALL)
    return (match.group(1) if match else text).rstrip() + "\n"


def _difference(before: Spent, after: Spent) -> Spent:
    """What was spent between two moments."""
    costs = (before.cost_usd, after.cost_usd)
    return Spent(
        calls=after.calls - before.calls,
        tokens=Tokens(
            after.tokens.input - before.tokens.input,
            after.tokens.output - before.tokens.output,
            after.tokens.cached - before.tokens.cached,
        ),
        cost_usd=None if costs[0] is None or costs[1] is None else costs[1] - costs[0],
    )
