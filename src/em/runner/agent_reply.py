"""Agent reply: what an agent that called a routine as a tool gets back of the run."""

import msgspec

from em.runner.public_form import described_input
from em.runner.routine import Routine
from em.runner.run import INPUTS, RunResult, plain
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
