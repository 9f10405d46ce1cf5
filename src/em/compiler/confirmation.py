"""Confirmation: a person says what a recording could not show, and the routine keeps it.

`confirm` makes asked inputs constants; `confirmed` does so for a draft, for `em compile --confirm`.
`learn` takes the answers of a run as evidence: explanations that gave something else are dropped,
and where one is left the routine does not ask again. It returns a new routine; a stored one becomes
a new version.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.arguments import literal
from em.compiler.differences import in_expression, recorded_scope
from em.compiler.draft import Draft
from em.compiler.evidence import ENOUGH, of_constant
from em.compiler.expectations import expectations
from em.compiler.explanations import Explained
from em.compiler.package_files import as_json, check_text, render_again
from em.compiler.result_facts import RESULT
from em.compiler.sources import quoted
from em.errors import EmError, UsageError
from em.runner.agreement import INPUTS, part_at, single_places, with_answers
from em.runner.expressions.functions import FUNCTIONS, equal
from em.runner.expressions.language import compile_expression, compile_value
from em.runner.history import PastRun, package_of, read_run
from em.runner.package import (
    ROUTINE,
    Package,
    files_in,
    find_routine,
    keep_routine,
    parse_yaml,
    read_routine,
    texts_of,
    write_files,
)
from em.runner.routine import (
    Asked,
    Decided,
    PromptStep,
    ReturnStep,
    Routine,
    Step,
    ToolStep,
    UdfStep,
)
from em.runner.run import Remembered, RunResult
from em.store.protocol import Store
from em.values.canonical import Json, identical, short
from em.values.json_schema import Declared
from em.values.mismatch import closest

_INPUT = "input.json"
_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def confirm(routine: Routine, names: Iterable[str]) -> Routine:
    """Make asked inputs constants: the recorded value counts on every run."""
    for name in names:
        known = names_to_confirm(routine)
        asked = known.get(name)
        if asked is None and name in routine.asks and routine.asks[name].others:
            one = routine.asks[name]
            values = " and ".join(map(short, (one.recorded, *one.others)))
            raise UsageError(
                f"{name!r} can't be a constant: it was {values} in the recordings",
                place="--confirm",
                fix="let the run ask for it, or compile only traces in which it is the same",
            )
        if asked is None:
            asks = f"it asks for: {', '.join(known)}" if known else "it asks for nothing"
            raise UsageError(
                f"the routine does not ask for {name!r}",
                place="--confirm",
                fix=closest(name, list(known)) or asks,
            )
        places = [f"{step}.{place}" for step, place in places_of(routine, name)]
        taken = Decided(of=name, take=quoted(asked.recorded), places=places)
        routine = replaced(routine, name, taken.take, literal(asked.recorded))
        routine = msgspec.structs.replace(routine, decided=[*routine.decided, taken])
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
        confirmed=[place for name in names for place in places_of(draft.routine, name)],
    )


def places_of(routine: Routine, name: str) -> Iterator[tuple[str, str]]:
    """Yield step and place of each argument that is just this input."""
    for step in routine.steps:
        if isinstance(step, ToolStep | UdfStep):
            for place, template in single_places(step.args):
                if template == f"{{{{ {name} }}}}":
                    yield step.id, place


def _as_constant(found: Explained, names: Iterable[str]) -> Explained:
    if not any(found.wired == f"{{{{ {name} }}}}" for name in names):
        return found
    return msgspec.structs.replace(
        found, wired=literal(found.recorded), how="constant", note="confirmed"
    )


def names_to_confirm(routine: Routine) -> Mapping[str, Asked]:
    """Return the asked inputs that may be made constants."""
    return {name: one for name, one in routine.asks.items() if not one.is_unused and not one.others}


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
    # Another recording has refuted that it is always the same.
    if len(fitting) == 1 and (len(tried) > 1 or asked.others):
        (text,) = fitting
        value = literal(asked.recorded) if text == quoted(asked.recorded) else f"{{{{ {text} }}}}"
        return replaced(routine, name, text, value)
    if fitting == tried == [quoted(asked.recorded)]:
        # The same value in one more task; it is a constant when that can't be chance any more.
        asked = msgspec.structs.replace(asked, tasks=asked.tasks + 1)
        if of_constant(asked.tasks) >= ENOUGH:
            return replaced(routine, name, quoted(asked.recorded), literal(asked.recorded))
        asks = {**routine.asks, name: asked}
        return msgspec.structs.replace(routine, asks=asks)
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
        own = part_at(step.args, place)
        args = step.args
        if not _template_gives(own, answer, scope):
            if not fitting:
                return step  # nothing that is known explains the answer
            args = with_answers(step.args, {place: f"{{{{ {fitting.pop(0)} }}}}"})
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


def relaxed(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft without the guards and expectations that another success did without.

    others: drafts that make the same calls in the same order.
    """
    scopes = [recorded_scope(draft, other) for other in others]
    calls = {
        item.step: [item, *(other.recording[number] for other in others)]
        for number, item in enumerate(draft.recording)
    }

    reads = {tool.name for tool in draft.routine.tools if tool.effect == "read"}
    checking = {item.step for item in draft.recording if item.name in reads}
    # What a program prints may be anything.
    printed = {call.name for call in draft.calls if call.shell}
    void = {
        item.step
        for item in draft.recording
        if item.result is None and not item.is_udf and item.name not in reads | printed
    }
    beside = [item for one in (draft, *others) for item in one.recording]

    def without(step: ToolStep | UdfStep) -> ToolStep | UdfStep:
        guards = tuple(
            text for text in step.guards if not any(_fails(text, scope) for scope in scopes)
        )
        expects = step.expects
        if (expects or step.id in void) and step.id in calls:
            call, *same = calls[step.id]
            if step.id in checking:
                seen = [{**own, RESULT: one.result} for own, one in zip(scopes, same, strict=True)]
                expects = tuple(t for t in expects if not any(_fails(t, own) for own in seen))
            else:
                expects = tuple(expectations(call, same, beside=beside))
        return msgspec.structs.replace(step, guards=guards, expects=expects)

    return msgspec.structs.replace(draft, routine=_each_call(draft.routine, without))


def _fails(guard: str, scope: Json) -> bool:
    """Return whether a guard is false; one that can't be evaluated says nothing."""
    try:
        return not compile_expression(guard, "")(scope)
    except EmError:
        return False


# --- rewriting ------------------------------------------------------------------------------------


def _each_call(
    routine: Routine, change: Callable[[ToolStep | UdfStep], ToolStep | UdfStep]
) -> Routine:
    steps = [
        change(step) if isinstance(step, ToolStep | UdfStep) else step for step in routine.steps
    ]
    return msgspec.structs.replace(routine, steps=steps)


def replaced(routine: Routine, name: str, expression: str, value: Any) -> Routine:
    """Replace an input by an expression; the routine no longer declares the input.

    value: what stands for an argument that was just this input.
    """
    steps = [_replaced_step(step, name, expression, value) for step in routine.steps]
    schema = dict(routine.input_schema or {})
    properties = schema.get("properties", {})
    schema["properties"] = {key: one for key, one in properties.items() if key != name}
    schema["required"] = [key for key in schema.get("required", ()) if key != name]
    asks = {
        other: msgspec.structs.replace(
            one, candidates=[in_expression(text, name, expression) for text in one.candidates]
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
        return _HOLE.sub(lambda hole: f"{{{{{in_expression(hole[1], name, expression)}}}}}", part)

    if isinstance(step, ToolStep | UdfStep):
        agree = {
            place: [in_expression(text, name, expression) for text in texts]
            for place, texts in step.agree.items()
        }
        same = (in_expression(text, name, expression) for text in step.guards)
        guards = tuple(dict.fromkeys(same))  # two that were about different values may be one now
        reasons = {in_expression(t, name, expression): e for t, e in step.reasons.items()}
        expects = tuple(in_expression(text, name, expression) for text in step.expects)
        return msgspec.structs.replace(
            step,
            args=fill(step.args),
            agree=agree,
            guards=guards,
            reasons=reasons,
            expects=expects,
        )
    if isinstance(step, ReturnStep):
        return msgspec.structs.replace(step, value=fill(step.value))
    if isinstance(step, PromptStep):
        prompt = msgspec.structs.replace(step.prompt, message=fill(step.prompt.message))
        return msgspec.structs.replace(step, prompt=prompt)
    return step


# --- runs -----------------------------------------------------------------------------------------


def remember_answers(store: Store, result: RunResult) -> RunResult:
    """Write what the answers of a run showed into its routine; return the result that says so.

    A stored routine becomes a new version of its newest one, and a folder's routine.yaml is
    replaced; the old one is kept beside it. The run is over, so a problem is only reported.
    """
    past = read_run(store, result.run_id) if result.status == "ok" else None
    if past is None or not past.evidence:
        return result
    try:
        remembered = _remember(store, past, past.evidence)
    except (EmError, OSError) as error:
        remembered = Remembered(names=list(past.evidence), problem=str(error))
    return msgspec.structs.replace(result, remembered=remembered)


def _remember(store: Store, past: PastRun, answers: Json) -> Remembered | None:
    with package_of(store, past) as package:
        scope = _scope(past, package)
        # The newest: a person or another answer may have changed the routine since the run began.
        newest = find_routine(store, package.routine.name) if package.stored else None
        old = files_in(package.folder) if newest is None else texts_of(newest)
        learnt, names = _learnt(old[ROUTINE], scope, answers)
        if not names:
            return None
        files = {ROUTINE: render_again(learnt, old[ROUTINE])}
        check_text(learnt, files[ROUTINE])
        if _INPUT in old:
            files[_INPUT] = declared_input(old[_INPUT], learnt)
        if newest is None:
            write_files(files, package.folder)
            return Remembered(names=names, where=str(package.folder))
        # The new version has what a person answered in this run: it is forgotten with it.
        events = [*newest.from_events, *(event.id for event in past.events)]
        kept = keep_routine(store, {**old, **files}, list(dict.fromkeys(events)))
        return Remembered(names=names, where=kept.ref)


def _learnt(text: str, scope: Json, answers: Json) -> tuple[Routine, list[str]]:
    """Return the routine with the answers taken in, and the names of those that changed it."""
    routine, names = read_routine(parse_yaml(text.encode(), ROUTINE), ROUTINE), []
    for name, answer in answers.items():
        after = learn(routine, scope, {name: answer})
        if not identical(msgspec.to_builtins(after), msgspec.to_builtins(routine)):
            routine = after
            names.append(name)
    return routine, names


def declared_input(text: str, routine: Routine) -> str:
    """Return the recorded input without what the routine no longer declares."""
    given = msgspec.json.decode(text)
    undeclared = Declared(routine.input_schema).without(given)
    return as_json({name: value for name, value in given.items() if name not in undeclared})


def _scope(past: PastRun, package: Package) -> Json:
    results = {
        step.save_as: past.restored.results[step.id, None]
        for step in package.routine.steps
        if step.save_as is not None and (step.id, None) in past.restored.results
    }
    answers = past.restored.answers.get(INPUTS, {})
    given = package.program.inputs(past.input)
    return {**FUNCTIONS, **given, **answers, **results}
