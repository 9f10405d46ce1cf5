"""Compiling a trace with a model: it improves the draft, and its work is proved like the draft.

What does not validate and reproduce the trace goes back to the model with the problems, twice; then
the routine that was compiled without it is kept, and the report says so.
"""

import queue
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.compile_trace import (
    check_text,
    compile_trace,
    read_trace_file,
    redactor,
    without_secrets,
    write_package,
)
from em.compiler.draft import Draft, Recorded
from em.compiler.literals import written_in
from em.compiler.llm_prompt import SCHEMA, SYSTEM, correction, first_prompt
from em.compiler.package_files import render_routine, render_udfs
from em.compiler.promises import LONGEST_ROUTINE, broken_promises, with_what_stays
from em.compiler.trace_udfs import GivenUdfs
from em.compiler.variation import WAYS, answered, verify_renamed
from em.compiler.verification import NotReproduced, effects_of, rehearsed, verify_improved
from em.errors import EmError, LlmError
from em.llm.interface import LlmClient, Message, Spent, Tokens
from em.runner.package import ROUTINE, UDF, parse_yaml, read_routine
from em.runner.sandbox.subset import SUBSET_RULES
from em.runner.tools import Function
from em.runner.udfs import sandboxed
from em.runner.validation import validate
from em.traces.trace import Trace
from em.values.call import Effect
from em.values.canonical import identical
from em.values.excerpt import short

MAX_TOKENS = 16_384
CORRECTIONS = 2
REPLAY_SECONDS = 60.0
"""How long the replays of one answer may take: an expression may be made never to end."""


class Improved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of asking a model.

    draft: the model's routine if `by_model`, else the one compiled without it.
    problems: for each try, what was wrong with the answer.
    not_compared: why it could not be compared with the draft on other values, if so.
    """

    draft: Draft
    by_model: bool
    problems: list[list[str]]
    notes: str = ""
    not_compared: str = ""
    spent: Spent = Spent()


def llm_compile_trace(
    trace: Trace,
    client: LlmClient,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
) -> Improved:
    """Compile a trace and let a model improve the routine; what it returns must reproduce it."""
    trace = without_secrets(trace)
    return improve(trace, compile_trace(trace, name=name, declared=declared), client)


def improve(
    trace: Trace, draft: Draft, client: LlmClient, given: GivenUdfs | None = None
) -> Improved:
    """Let a model improve a draft; what it returns must validate and reproduce the trace.

    Functions that are `given` stay as they are. What the model is told holds no secret.
    """
    redact = redactor()
    given = _of_these(given or GivenUdfs(), draft)
    messages = [Message("user", first_prompt(trace, draft, given, redact))]
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
        model = f"{client.provider}/{client.model}"
        try:
            improved, not_compared = _checked(draft, answer.value, model, given)
        except _DoesNotHold as wrong:
            problems = [redact.text(problem) for problem in wrong.problems]
        else:
            return Improved(
                draft=improved,
                by_model=True,
                problems=tried,
                notes=answer.value["notes"],
                not_compared=not_compared,
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


def _of_these(given: GivenUdfs, draft: Draft) -> GivenUdfs:
    """The functions that are given and that the draft calls."""
    called = {item.name for item in draft.recording if item.is_udf}
    functions = {name: own for name, own in given.functions.items() if name in called}
    return msgspec.structs.replace(given, functions=functions)


class _DoesNotHold(Exception):
    """A model's answer is not taken, for these reasons."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems


def _checked(draft: Draft, answer: Any, model: str, given: GivenUdfs) -> tuple[Draft, str]:
    """The model's routine, if it holds, and why it was not compared on other values, if so."""
    text, code = _without_fence(answer["routine_yaml"]), _without_fence(answer["udf_py"])
    if max(len(text), len(code)) > LONGEST_ROUTINE:
        raise _DoesNotHold([f"an answer of more than {LONGEST_ROUTINE:,} characters"])
    if given.functions and code.strip():
        raise _DoesNotHold(["the functions are given and stay as they are: leave udf_py empty"])
    try:
        _refuse(_invalid(draft, text, code, given))
        routine = read_routine(parse_yaml(text.encode(), ROUTINE), ROUTINE)
        _refuse(broken_promises(draft, routine))
        improved = msgspec.structs.replace(
            draft,
            routine=with_what_stays(draft, routine),
            comments={},
            udf_source=code if code.strip() else "",
            written_by=model,
        )
        written = render_routine(improved.routine, {})
        check_text(improved, written)
        _refuse([*_invalid(draft, written, code, given), *written_in(draft, improved)])
        return improved, _within(REPLAY_SECONDS, lambda: _replay(draft, improved, given))
    except EmError as error:
        raise _DoesNotHold([str(error)]) from error
    except _DoesNotHold:
        raise
    except Exception as error:  # whatever an answer brings about is told to it
        raise _DoesNotHold([f"it can't be used: {type(error).__name__}: {error}"]) from error


def _refuse(problems: list[str]) -> None:
    if problems:
        raise _DoesNotHold(problems)


def _invalid(draft: Draft, text: str, code: str, given: GivenUdfs) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ROUTINE).write_text(text, encoding="utf-8")
        if given.functions:
            code = render_udfs(draft, given)
        if code.strip():
            (folder / UDF).write_text(code, encoding="utf-8")
        return [
            str(problem).replace(f"{folder}/", "")
            for problem in validate(folder)
            if problem.severity == "error"
        ]


def _within(seconds: float, work: Callable[[], str]) -> str:
    """What this gives, if it does so in time; else it is left behind, in a thread of its own."""
    done: queue.SimpleQueue[tuple[str, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:  # noqa: BLE001 - who waits for it raises it
            done.put(("", error))

    threading.Thread(target=run, daemon=True).start()
    try:
        found, error = done.get(timeout=seconds)
    except queue.Empty:
        raise NotReproduced(f"its replay did not end within {seconds:g} s") from None
    if error is not None:
        raise error
    return found


def _replay(draft: Draft, improved: Draft, given: GivenUdfs) -> str:
    """Replay with the functions that the model wrote, in the sandbox, or with those given."""
    code = improved.udf_source
    if not code:
        return _compare(draft, improved, {}, recorded=bool(given.functions))
    with sandboxed(Path(UDF), code.encode()) as functions:
        for item in improved.recording:
            if item.is_udf and item.name in functions:
                _check_example(functions[item.name], item)
        return _compare(draft, improved, functions, recorded=False)


def _compare(
    draft: Draft, improved: Draft, functions: Mapping[str, Function], *, recorded: bool
) -> str:
    """Hold it against the draft, on what was recorded and on other values.

    With `recorded`, functions answer as they did in the recording: they are a person's, and are
    not called with what a model made up.
    """
    expected = rehearsed(draft)
    own = answered(expected, {}) if recorded else functions
    same = msgspec.structs.replace(improved, recording=expected.recording)
    verify_improved(same, own, effects_of(draft))
    failed = [verify_renamed(draft, improved, functions, way) for way in WAYS]
    return failed[0] or "" if all(failed) else ""


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
