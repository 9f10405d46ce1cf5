"""Draft: a routine built from a trace by pruning, wiring and naming, and how it came about."""

import importlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.calls import (
    Names,
    TracedApproval,
    TracedCall,
    Verdict,
    calls_of,
    identifier,
    judge,
    result_name,
    unused,
)
from em.compiler.contradictions import Contradiction, contradictions
from em.compiler.wire import OUTPUT, Explained, Wiring
from em.errors import InputError
from em.runner.authorship import is_model_written, model_of
from em.runner.routine import (
    AssertStep,
    FieldType,
    Prompt,
    PromptField,
    PromptStep,
    ReturnStep,
    Routine,
    Secret,
    Step,
    ToolSpec,
    ToolStep,
    UdfStep,
)
from em.runner.tools import Function, functions_of, load_module
from em.traces.trace import Outcome, Trace
from em.values.call import Effect, Usage
from em.values.canonical import Json
from em.values.json_schema import of_input, of_output

MAX_ROUNDS = 8


class Recorded(msgspec.Struct, frozen=True):
    """A recorded call that a replay of the routine must repeat exactly."""

    step: str
    name: str
    is_udf: bool
    args: Json
    result: Any


class Draft(msgspec.Struct, frozen=True):
    """A routine, with everything known about how it was compiled."""

    routine: Routine
    input: Json
    output: Any
    recording: Sequence[Recorded]
    answers: Mapping[str, Json]
    calls: Sequence[TracedCall]
    verdicts: Sequence[Verdict]
    explained: Sequence[Explained]
    comments: Mapping[str, Sequence[str]]
    usage: Usage = Usage()
    secrets: Mapping[str, str] = {}
    contradictions: Sequence[Contradiction] = ()
    udf_source: str = ""
    """The text of udf.py, if it holds more than stubs."""
    written_by: str = ""
    """The model that wrote `udf_source`."""
    outcome: Outcome = "success"
    """What the trace says about its outcome."""


def draft_routine(
    trace: Trace,
    *,
    name: str,
    declared: Mapping[str, Effect | None],
    keep_all: bool = False,
) -> Draft:
    """Build a routine from a trace; with `keep_all` from every call that succeeded."""
    calls, approvals = calls_of(trace, declared)
    if keep_all:
        verdicts = [
            Verdict(not call.failed, "failed" if call.failed else "--keep-all") for call in calls
        ]
        return _Builder(trace, calls, approvals, verdicts, name).build()
    verdicts = judge(calls)
    for _ in range(MAX_ROUNDS):
        builder = _Builder(trace, calls, approvals, verdicts, name)
        draft = builder.build()
        idle = [
            call.index
            for call in calls
            if verdicts[call.index].keep
            and call.effect == "read"
            and call.index not in builder.used
        ]
        if not idle:
            break
        idle = _but_the_last(idle, verdicts)
        if not idle:
            break
        # The next round finds reads that only these ones used.
        for index in idle:
            verdicts[index] = unused(verdicts[index])
    return draft


def _but_the_last(idle: list[int], verdicts: list[Verdict]) -> list[int]:
    """Keep the last read if it is all that is left: the routine must not just repeat an answer."""
    kept = [index for index, verdict in enumerate(verdicts) if verdict.keep]
    if len(idle) < len(kept):
        return idle
    last = idle[-1]
    verdicts[last] = Verdict(True, "nothing uses its result, but no other call is left")
    return idle[:-1]


def _field_type(answer: Any) -> FieldType:
    if isinstance(answer, bool):
        return "confirm"
    return "text" if answer is None or isinstance(answer, str) else "json"


def _is_answer(name: str, answer: Any) -> str:
    """Return an expression that holds if the answer equals the recorded one."""
    if isinstance(answer, bool):
        return name if answer else f"not {name}"
    return f"{name} is none" if answer is None else f"{name} == {_as_expression(answer)}"


def _as_expression(value: Any) -> str:
    """Write a value as an expression: JSON, but `none` for null."""
    if isinstance(value, dict):
        pairs = (f"{_as_expression(key)}: {_as_expression(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_as_expression, value)) + "]"
    return "none" if value is None else msgspec.json.encode(value).decode()


class _Builder:
    def __init__(
        self,
        trace: Trace,
        calls: Sequence[TracedCall],
        approvals: Sequence[TracedApproval],
        verdicts: Sequence[Verdict],
        name: str,
    ) -> None:
        self._trace, self._calls, self._verdicts, self._name = trace, calls, verdicts, name
        self._approvals = list(approvals)
        self._ids, names = Names(), Names()
        self._names = names
        self._wiring = Wiring(trace.mission.input_summary, names)
        self._steps: list[Step] = []
        self._recording: list[Recorded] = []
        self._answers: dict[str, Json] = {}
        self._step_of: dict[int, str] = {}
        self._saved: dict[int, str] = {}
        self.used: set[int] = set()

    def build(self) -> Draft:
        """Build the routine."""
        for call in self._calls:
            self._ask_before(call.index)
            if self._verdicts[call.index].keep:
                self._add(call)
        self._ask_before(len(self._calls))
        output = self._add_return()
        self._contradictions = self._contradicted()
        routine = Routine(
            name=self._name,
            description=self._trace.mission.goal,
            tools=self._tools(),
            input_schema=of_input(self._wiring.inputs),
            output_schema=of_output(self._returned, output) or None,
            secrets=tuple(Secret(name) for name in self._wiring.secrets.values()),
            steps=self._without_idle_names(),
        )
        return Draft(
            routine=routine,
            input=self._wiring.inputs,
            output=output,
            recording=self._recording,
            answers=self._answers,
            calls=self._calls,
            verdicts=self._verdicts,
            explained=self._wiring.explained,
            comments=self._comments(),
            usage=self._trace.recorded_usage,
            secrets={name: text for text, name in self._wiring.secrets.items()},
            contradictions=self._contradictions,
        )

    def _add(self, call: TracedCall) -> None:
        wired, used = self._wiring.wire(call.args, call.said, call.index, "args")
        self.used |= used
        args = wired if isinstance(wired, dict) else call.args
        step_id = self._ids.free(identifier(call.name))
        saved = self._names.free(result_name(call.name, is_write=call.effect == "write"))
        common: dict[str, Any] = {"id": step_id, "args": args, "save_as": saved}
        if call.effect_unknown:
            common["on_error"] = "continue"
        if call.is_udf:
            self._steps.append(UdfStep(function=call.name, **common))
        else:
            self._steps.append(ToolStep(tool=call.name, **common))
        self._step_of[call.index] = step_id
        self._saved[call.index] = saved
        self._wiring.add_result(call.index, saved, call.result, computed=call.is_udf)
        self._recording.append(Recorded(step_id, call.name, call.is_udf, call.args, call.result))

    def _ask_before(self, index: int) -> None:
        while self._approvals and self._approvals[0].index <= index:
            approval = self._approvals.pop(0)
            step_id = self._ids.free("approval")
            saved = self._names.free("approval")
            said = self._calls[min(index, len(self._calls) - 1)].said if self._calls else ""
            message, used = self._wiring.wire(approval.prompt, said, index, "approval")
            self.used |= used
            field = PromptField(
                name="answer",
                type=_field_type(approval.answer),
                required=approval.answer is not None,
            )
            prompt = Prompt(message=message, fields=[field])
            self._steps.append(PromptStep(id=step_id, prompt=prompt, save_as=saved))
            self._answers[step_id] = {"answer": approval.answer}
            # The following steps are right only after this answer.
            self._steps.append(
                AssertStep(
                    id=self._ids.free("as_approved"),
                    check=_is_answer(f"{saved}.answer", approval.answer),
                    message="the answer differs from the recorded one, which this routine follows",
                )
            )

    def _add_return(self) -> Any:
        output = self._trace.final_output
        kept = [call for call in self._calls if self._verdicts[call.index].keep]
        if output is msgspec.UNSET:
            writes = [call for call in kept if call.effect == "write"]
            last = (writes or kept)[-1:]
            output = last[0].result if last else None
            if last and last[0].index in self._saved:
                self.used.add(last[0].index)
                return self._return(f"{{{{ {self._saved[last[0].index]} }}}}", output)
        said = self._calls[-1].said if self._calls else ""
        value, used = self._wiring.wire(output, said, len(self._calls), OUTPUT)
        self.used |= used
        return self._return(value, output)

    def _return(self, value: Any, output: Any) -> Any:
        self._returned = value
        self._steps.append(ReturnStep(id=self._ids.free("return"), value=value))
        return output

    def _contradicted(self) -> list[Contradiction]:
        output = self._trace.final_output
        if output is msgspec.UNSET:
            return []
        said = self._calls[-1].said if self._calls else ""
        return contradictions(output, self._calls, self._trace.mission.input_summary, said)

    def _tools(self) -> list[ToolSpec]:
        tools: dict[str, ToolSpec] = {}
        for call in self._calls:
            if self._verdicts[call.index].keep and not call.is_udf:
                tools[call.name] = ToolSpec(
                    name=call.name, effect=call.effect, effect_inferred=call.effect_inferred
                )
        return list(tools.values())

    def _without_idle_names(self) -> list[Step]:
        """Return the steps without `save_as` names that nothing refers to."""
        used = {self._step_of[index] for index in self.used if index in self._step_of}
        return [
            msgspec.structs.replace(step, save_as=None)
            if isinstance(step, ToolStep | UdfStep) and step.id not in used
            else step
            for step in self._steps
        ]

    def _comments(self) -> dict[str, list[str]]:
        comments: dict[str, list[str]] = {}
        for found in self._wiring.explained:
            step = self._step_of.get(found.call, "return")
            if found.note:
                comments.setdefault(step, []).append(f"{found.place}: {found.note}")
        for contradiction in self._contradictions:
            comments.setdefault("return", []).append(str(contradiction))
        return comments


Udfs = Mapping[str, Function] | str | None
"""Functions by name, or where to load them from: `package.module` or a file."""


class GivenUdfs(msgspec.Struct, frozen=True):
    """Functions that the user gave, and the text of their file, if they came from one."""

    functions: Mapping[str, Function] = {}
    text: str = ""
    written_by: str = ""
    """The model that wrote that file, if a model did and a person has read it."""


def load_udfs(udfs: Udfs) -> GivenUdfs:
    """Load the functions of a module, of a file or of a mapping."""
    if not isinstance(udfs, str):
        return GivenUdfs(dict(udfs or {}))
    functions = functions_of(load_module(udfs), imported=True)
    if not udfs.endswith(".py"):
        return GivenUdfs(functions)
    try:
        text = Path(udfs).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the file must be UTF-8: {error}", place=udfs) from None
    file = Path(udfs).resolve()
    marked = is_model_written(file.parent, file.name)
    return GivenUdfs(
        functions, text, (model_of(file.parent, file.name) or "model") if marked else ""
    )


def import_line(name: str, function: Any) -> str | None:
    """Return the import line for a function under this name; None if it can't be imported."""
    module, own = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not own.isidentifier():
        return None
    try:
        found = inspect.getattr_static(importlib.import_module(module), own, None)
    except ImportError:
        return None
    if found is not function:
        return None
    return f"from {module} import {own}" + (f" as {name}" if own != name else "")
