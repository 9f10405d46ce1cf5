"""A stored routine as a plain Python function: its signature is the routine's input schema."""

import inspect
import keyword
from collections.abc import Callable, Sequence
from typing import Any

from em.errors import InputError, RunNotDone
from em.runner.public_form import described_input, description_of
from em.runner.routine import Routine
from em.runner.run import RunResult, plain
from em.runner.template import REQUEST
from em.runner.tools import one_line
from em.values.canonical import Json

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
