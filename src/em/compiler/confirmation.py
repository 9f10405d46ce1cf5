"""Confirmation: a person says what a recording could not show, and the routine keeps it.

`confirm` makes asked inputs constants; `confirmed` does so for a draft, for `em compile --confirm`.
`learn` takes the answers of a run as evidence: explanations that gave something else are dropped,
and where one is left the routine does not ask again. It returns a new routine; a stored one becomes
a new version.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from em.compiler.arguments import literal
from em.compiler.draft import Draft
from em.compiler.explanations import Explained
from em.compiler.package_files import render_routine
from em.compiler.sources import quoted
from em.errors import EmError, UsageError
from em.runner.agreement import INPUTS, place_parts
from em.runner.expressions.functions import FUNCTIONS, equal
from em.runner.expressions.language import compile_expression, compile_value
from em.runner.history import PastRun, package_of, read_run
from em.runner.package import ROUTINE, Package, files_in, keep_routine, write_files
from em.runner.routine import Asked, PromptStep, ReturnStep, Routine, Step, ToolStep, UdfStep
from em.store.protocol import Store
from em.values.canonical import Json, identical
from em.values.mismatch import closest

_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def confirm(routine: Routine, names: Iterable[str]) -> Routine:
    """Make asked inputs constants: the recorded value counts on every run."""
    for name in names:
        known = names_to_confirm(routine)
        asked = known.get(name)
        if asked is None:
            asks = f"it asks for: {', '.join(known)}" if known else "it asks for nothing"
            raise UsageError(
                f"the routine does not ask for {name!r}",
                place="--confirm",
                fix=closest(name, list(known)) or asks,
            )
        routine = _replaced(routine, name, quoted(asked.recorded), literal(asked.recorded))
    return routine


Confirm = Iterable[str] | Callable[[Mapping[str, Asked]], Iterable[str]]
"""The names of asked inputs that are constants, or a function that chooses among them."""


def confirmed(draft: Draft, choice: Confirm) -> Draft:
    """Return a draft with the chosen values as constants. It must be verified again."""
    choices = names_to_confirm(draft.routine)
    if not callable(choice):
        names = [choice] if isinstance(choice, str) else list(choice)
    else:
        names = list(choice(choices)) if choices else []
    if not names:
        return draft
    return msgspec.structs.replace(
        draft,
        routine=confirm(draft.routine, dict.fromkeys(names)),
        input={name: value for name, value in draft.input.items() if name not in names},
        explained=[_as_constant(one, names) for one in draft.explained],
    )


def _as_constant(found: Explained, names: Iterable[str]) -> Explained:
    if not any(found.wired == f"{{{{ {name} }}}}" for name in names):
        return found
    return msgspec.structs.replace(
        found, wired=literal(found.recorded), how="constant", note="confirmed"
    )


def names_to_confirm(routine: Routine) -> Mapping[str, Asked]:
    """Return the asked inputs that may be made constants."""
    return {name: one for name, one in routine.asks.items() if not one.is_unused}


def learn(routine: Routine, scope: Json, answers: Json) -> Routine:
    """Return the routine without the explanations that a person's answers contradict.

    scope: the inputs and results of the run that asked.
    """
    for name, answer in answers.items():
        if routine.request is not None and name == routine.request.input:
            request = msgspec.structs.replace(routine.request, decides=False)
            routine = msgspec.structs.replace(routine, request=request)
        elif name in routine.asks:
            routine = _learn_input(routine, name, answer, scope)
        else:
            step_id, _, place = name.partition(".")
            routine = _learn_place(routine, step_id, place, answer, scope)
    return routine


def _learn_input(routine: Routine, name: str, answer: Any, scope: Json) -> Routine:
    """Keep the candidates that give the answer; take the last one that is left as the source."""
    asked = routine.asks[name]
    if asked.is_unused:
        asks = {other: one for other, one in routine.asks.items() if other != name}
        return msgspec.structs.replace(routine, asks=asks)
    fitting = [text for text in asked.candidates if _gives(text, answer, scope)]
    tried = [text for text in asked.candidates if _gives(text, None, scope) is not None]
    if len(fitting) == 1 and len(tried) > 1:
        (text,) = fitting
        value = literal(asked.recorded) if text == quoted(asked.recorded) else f"{{{{ {text} }}}}"
        return _replaced(routine, name, text, value)
    rest = [text for text in asked.candidates if text in fitting or text not in tried]
    if rest == list(asked.candidates):
        return routine
    asks = {**routine.asks, name: msgspec.structs.replace(asked, candidates=rest)}
    return msgspec.structs.replace(routine, asks=asks)


def _gives(text: str, answer: Any, scope: Json) -> bool | None:
    """Return whether an expression gives the answer; None if it can't be evaluated."""
    try:
        return equal(compile_expression(text, "")(scope), answer)
    except EmError:
        return None


def _learn_place(routine: Routine, step_id: str, place: str, answer: Any, scope: Json) -> Routine:
    def learnt(step: ToolStep | UdfStep) -> ToolStep | UdfStep:
        if step.id != step_id or place not in step.agree:
            return step
        fitting = [text for text in step.agree[place] if _gives(text, answer, scope)]
        own = _value_at(step.args, place)
        args = step.args
        if not _template_gives(own, answer, scope):
            if not fitting:
                return step  # nothing that is known explains the answer
            args = _with_value(step.args, place, f"{{{{ {fitting.pop(0)} }}}}")
        agree = {**step.agree, place: fitting}
        if not fitting:
            del agree[place]
        return msgspec.structs.replace(step, args=args, agree=agree)

    return _each_call(routine, learnt)


def _template_gives(template: Any, answer: Any, scope: Json) -> bool:
    try:
        return equal(compile_value(template, "")(scope), answer)
    except EmError:
        return False


def _value_at(args: Json, place: str) -> Any:
    value: Any = args
    for part in place_parts(place):
        value = value[part]
    return value


def _with_value(args: Json, place: str, value: Any) -> Json:
    changed = msgspec.json.decode(msgspec.json.encode(args))
    *way, last = place_parts(place)
    holder: Any = changed
    for part in way:
        holder = holder[part]
    holder[last] = value
    return dict(changed)


# --- rewriting ------------------------------------------------------------------------------------


def _each_call(
    routine: Routine, change: Callable[[ToolStep | UdfStep], ToolStep | UdfStep]
) -> Routine:
    steps = [
        change(step) if isinstance(step, ToolStep | UdfStep) else step for step in routine.steps
    ]
    return msgspec.structs.replace(routine, steps=steps)


def _replaced(routine: Routine, name: str, expression: str, value: Any) -> Routine:
    """Return a routine with an expression in place of an input, which is no longer declared.

    value: what stands for an argument that was just this input.
    """
    steps = [_replaced_step(step, name, expression, value) for step in routine.steps]
    schema = dict(routine.input_schema or {})
    properties = schema.get("properties", {})
    schema["properties"] = {key: one for key, one in properties.items() if key != name}
    schema["required"] = [key for key in schema.get("required", ()) if key != name]
    asks = {
        other: Asked(
            recorded=one.recorded,
            candidates=[_in_expression(text, name, expression) for text in one.candidates],
            is_unused=one.is_unused,
        )
        for other, one in routine.asks.items()
        if other != name
    }
    return msgspec.structs.replace(routine, steps=steps, input_schema=schema, asks=asks)


def _replaced_step(step: Step, name: str, expression: str, value: Any) -> Step:
    def fill(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: fill(item) for key, item in part.items()}
        if isinstance(part, list):
            return [fill(item) for item in part]
        if not isinstance(part, str):
            return part
        if part.removeprefix("{{").removesuffix("}}").strip() == name and part.startswith("{{"):
            return value
        return _HOLE.sub(lambda hole: f"{{{{{_in_expression(hole[1], name, expression)}}}}}", part)

    if isinstance(step, ToolStep | UdfStep):
        agree = {
            place: [_in_expression(text, name, expression) for text in texts]
            for place, texts in step.agree.items()
        }
        guards = tuple(_in_expression(text, name, expression) for text in step.guards)
        return msgspec.structs.replace(step, args=fill(step.args), agree=agree, guards=guards)
    if isinstance(step, ReturnStep):
        return msgspec.structs.replace(step, value=fill(step.value))
    if isinstance(step, PromptStep):
        prompt = msgspec.structs.replace(step.prompt, message=fill(step.prompt.message))
        return msgspec.structs.replace(step, prompt=prompt)
    return step


def _in_expression(text: str, name: str, expression: str) -> str:
    """Replace a name in an expression; not in its texts, and not the name of an argument."""
    parts = re.split(r"(\"(?:[^\"\\]|\\.)*\")", text)
    pattern = rf"(?<![\w.]){re.escape(name)}(?!\w|\s*\(|\s*=[^=])"
    parts[::2] = [re.sub(pattern, lambda _: expression, part) for part in parts[::2]]
    return "".join(parts)


# --- runs -----------------------------------------------------------------------------------------


def remember_answers(store: Store, run_id: str) -> str | None:
    """Write what a run's answers showed into its routine; return where, None if nothing changed.

    A stored routine becomes a new version, and a folder's routine.yaml is replaced; the old one is
    kept beside it.
    """
    past = read_run(store, run_id)
    answers = past.restored.answers.get(INPUTS)
    if past.status != "ok" or not answers:
        return None
    with package_of(store, past) as package:
        old = package.routine
        new = learn(old, _scope(past, package), answers)
        if identical(msgspec.to_builtins(new), msgspec.to_builtins(old)):
            return None
        files = {**files_in(package.folder), ROUTINE: render_routine(new, {})}
        if package.stored:
            return keep_routine(store, files).ref
        write_files({ROUTINE: files[ROUTINE]}, package.folder)
        return str(package.folder)


def _scope(past: PastRun, package: Package) -> Json:
    results = {
        step.save_as: past.restored.results[step.id, None]
        for step in package.routine.steps
        if step.save_as is not None and (step.id, None) in past.restored.results
    }
    answers = past.restored.answers.get(INPUTS, {})
    return {**FUNCTIONS, **past.input, **answers, **results}
