"""Agent reply: what an agent that called a routine as a tool gets back of the run."""

import inspect
import keyword
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from em.errors import InputError, RunNotDone
from em.runner.card import described_input, description_of
from em.runner.routine import Routine
from em.runner.run import INPUTS, REQUEST, RunResult, plain
from em.runner.tools import one_line
from em.values import json_schema
from em.values.canonical import Json

LARGEST = 100_000
"""Characters of a run's result, about 25,000 tokens: clients let a model have no more."""
BEGINS = 20_000
"""Characters that are shown of a larger one."""
_INPUT = "input"
"""The step id of a reason that is about the inputs."""


def reply(result: RunResult, routine: Routine | None = None, given: Json | None = None) -> Json:
    """Return a result for an agent: its output, or why it stopped and what to do `next`.

    A run that stops for its inputs comes with `form`: the schema of the inputs, and those that are
    known, so that the agent, which is a model, can complete them. routine, given: what was called,
    unless the run was resumed.
    """
    shown: Json = {"run_id": result.run_id, "status": result.status}
    prompt, reason = result.pending_prompt, result.reason
    if result.status == "ok":
        shown["output"] = result.output
        if result.chosen:
            shown |= {"chosen": result.chosen, "next": _TELL}
    elif result.failure is not None:
        shown["failure"] = plain(result.failure)
    elif prompt is not None:
        shown["pending_prompt"] = plain(prompt)
    elif reason is not None:
        shown |= {"reason": plain(reason), "next": _DO_IT}
    stopped = prompt or reason
    if stopped is not None and stopped.step_id in (INPUTS, _INPUT) and routine is not None:
        shown |= {"form": form(routine, given or {}), "next": _COMPLETE}
    return shown


_COMPLETE = (
    "nothing was done: complete `form.known` to fit `form.inputs` with what the request says, ask"
    " the person for what it does not say, and call again. If the inputs can't express the request,"
    " do the task yourself"
)
_TELL = "tell the person what was chosen for them: nothing else passed all checks"
_DO_IT = (
    "nothing was done, and there is nothing to resume: do the task yourself, and tell the person"
    " which check stopped the routine"
)


def form(routine: Routine, given: Json) -> Json:
    """Return the inputs of a routine to be filled in: their schema, and the usable ones of `given`.

    Values that the schema lists are the candidates of an input.
    """
    properties = json_schema.properties_of(routine.input_schema)
    known = {
        name: value
        for name, value in given.items()
        if name in properties and not any(json_schema.problems(properties[name], value))
    }
    return {"inputs": described_input(routine), "known": known}


def bounded(shown: Json, most: int = LARGEST) -> tuple[Json, str]:
    """Return an answer and its text as JSON; the short fields and the beginning if it is too large.

    The run has all of it.
    """
    text = msgspec.json.encode(shown, enc_hook=repr).decode()
    if len(text) <= most:
        return shown, text
    short = {
        name: value
        for name, value in shown.items()
        if isinstance(value, str | int | float | None) and len(str(value)) < 1_000
    }
    note = f"the result has {len(text):,} characters; `begins` has the first {BEGINS:,}"
    if "run_id" in short:
        note += f", `em runs show {short['run_id']} --json` has all"
    cut: Json = {**short, "too_large": note, "begins": text[:BEGINS]}
    return cut, msgspec.json.encode(cut).decode()


_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def as_function(routine: Routine, run: Callable[[Json], RunResult]) -> Callable[..., Any]:
    """Return a function that runs a routine with its inputs by name, and returns its output.

    It raises InputError for a missing input, and RunNotDone (`run_not_done`) if the run hands over
    or fails.
    """
    required: Sequence[str] = (routine.input_schema or {}).get("required") or ()

    def call(**inputs: Any) -> Any:
        missing = [] if REQUEST in inputs else [name for name in required if name not in inputs]
        if missing:
            words = f"missing: {', '.join(missing)}"
            raise InputError(words, place=f"routine {routine.name}, inputs", fix="give all by name")
        return output_of(routine.name, run(inputs))

    declared: Any = call
    declared.__name__ = declared.__qualname__ = routine.name
    declared.__doc__ = one_line(description_of(routine)) or f"Run the routine {routine.name}."
    declared.__signature__ = _signature(described_input(routine))
    declared.__annotations__ = {
        one.name: one.annotation for one in declared.__signature__.parameters.values()
    }
    return call


def output_of(name: str, result: RunResult) -> Any:
    """Return the output of a run that is ok; else raise RunNotDone with the reason."""
    if result.status == "ok":
        return result.output
    why = result.reason or result.failure or result.pending_prompt
    message = getattr(why, "message", "") or result.status
    raise RunNotDone(
        message,
        place=f"routine {name}, run {result.run_id}",
        run_id=result.run_id,
        status=result.status,
        reason=None if why is None else plain(why),
    )


def _signature(schema: Json) -> inspect.Signature:
    """Return the inputs as parameters by name; one that can't be a parameter is in `**inputs`."""
    required = schema.get("required") or ()
    known = schema.get("properties") or {}
    names = [one for one in known if one.isidentifier() and not keyword.iskeyword(one)]
    parameters = [
        inspect.Parameter(
            one,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one in required else None,
            annotation=_annotation(known[one]),
        )
        for one in names
    ]
    if len(names) < len(known):
        parameters.append(inspect.Parameter("inputs", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _annotation(schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any
