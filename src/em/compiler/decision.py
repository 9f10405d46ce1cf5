"""Decision: a person says where a value of a routine comes from, or that a check is not needed.

A routine acts only if everything that may explain a value agrees, and asks otherwise. `questions`
lists what is open, with the answers that the traces allow; nothing else can be decided. `decide`
stores the answer as a new version, with an event that says who decided. The routine keeps its
decisions (`decided`), so that compiling it again applies them to what the new traces show.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from em.compiler.arguments import literal
from em.compiler.confirmation import declared_input, names_to_confirm, places_of, replaced
from em.compiler.package_files import check_text, render_again
from em.compiler.sources import quoted
from em.errors import NotFound, RoutineError, UsageError
from em.log.event import Draft, routine_stream
from em.log.kinds import event_body
from em.runner.agreement import part_at, with_answers
from em.runner.expressions.language import whole_expression
from em.runner.expressions.words import check_in_words, in_words, left_of
from em.runner.package import (
    ROUTINE,
    find_routine,
    keep_routine,
    kept_routines,
    parse_yaml,
    read_routine,
    texts_of,
    write_files,
)
from em.runner.requirements import decided_in_words, why_asked
from em.runner.routine import Decided, PlanStep, Routine, Step, ToolStep, UdfStep
from em.runner.validation import INPUT, validate
from em.store.protocol import Artefact, Store
from em.values.canonical import short

Kind = Literal["value", "agreement", "input", "check"]


@event_body("routine_decided")
class RoutineDecided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person decided something about a routine, which became a new version.

    routine: the version that they saw.
    """

    routine: str
    words: str
    decided: Decided
    by: str = ""
    from_events: Sequence[str] = ()


class Choice(msgspec.Struct, frozen=True):
    """One answer to a question. `id` names it on a page and on the command line."""

    id: str
    words: str
    decided: Decided


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a routine that a person can decide.

    kind: `value` for one that runs ask for, `agreement` for an argument with several explanations
    that must agree, `input` for one that no step uses, `check` for the checks before an effect.
    """

    of: str
    kind: Kind
    words: str
    choices: Sequence[Choice]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was stored: in words, and the versions before and after it."""

    words: str
    old: str
    new: str


# --- what is open ---------------------------------------------------------------------------------


def questions(routine: Routine) -> list[Question]:
    """Return what a person can decide about a routine: what runs ask for comes first."""
    return [
        *_asked(routine),
        *(one for step in routine.steps for one in _agreeing(step)),
        *(one for step in routine.steps for one in _checks(step)),
    ]


def _asked(routine: Routine) -> Iterator[Question]:
    constant = names_to_confirm(routine)
    for name, asked in routine.asks.items():
        if asked.is_unused:
            words = f"no step uses {name}, but it may have been a reason for what was done"
            choice = _choice("it plays no part in what is done", Decided(of=name, ignore=True))
            yield Question(of=name, kind="input", words=words, choices=[choice])
            continue
        texts = list(asked.candidates)
        if name in constant:
            texts.append(quoted(asked.recorded))
        places = [f"{step}.{place}" for step, place in places_of(routine, name)]
        choices = [
            _choice(in_words(text), Decided(of=name, take=text, places=places))
            for text in dict.fromkeys(texts)
        ]
        if choices:
            words = f"{name} was {short(asked.recorded)} when recorded; {why_asked(asked)}"
            yield Question(of=name, kind="value", words=words, choices=choices)


def _agreeing(step: Step) -> Iterator[Question]:
    """Yield the arguments with several explanations, and the values of a plan that have some."""
    if isinstance(step, ToolStep | UdfStep):
        for place, texts in step.agree.items():
            own = _expression(part_at(step.args, place))
            yield from _one_of(f"{step.id}.{place}", [own, *filter(_explains, texts)])
    elif isinstance(step, PlanStep):
        for name, effect in step.effects.items():
            for slot, how in effect.slots.items():
                yield from _one_of(f"{name}.{slot}", how.default)


def _one_of(of: str, texts: Sequence[str]) -> Iterator[Question]:
    texts = list(dict.fromkeys(texts))
    if len(texts) > 1:
        choices = [
            _choice(in_words(text), Decided(of=of, take=text, places=[of])) for text in texts
        ]
        words = f"{of} must be {', and '.join(one.words for one in choices)}"
        yield Question(of=of, kind="agreement", words=words, choices=choices)


def _expression(template: Any) -> str:
    """Return an argument as an expression."""
    whole = whole_expression(template) if isinstance(template, str) else None
    if whole is not None:
        return whole.strip()
    is_filled_in = isinstance(template, str) and "{{" in template
    return str(template) if is_filled_in else quoted(template)


def _explains(text: str) -> bool:
    """Return whether an expression says what a value is; `among` only says what it may be."""
    return not text.startswith("among(")


def _checks(step: Step) -> Iterator[Question]:
    """Yield the checks before each effect. That a read reports no error is always checked."""
    if isinstance(step, ToolStep | UdfStep):
        checks = {step.id: step.guards}
    elif isinstance(step, PlanStep):
        checks = {name: effect.guards for name, effect in step.effects.items()}
    else:
        return
    for of, guards in checks.items():
        choices = [
            _choice(check_in_words(text), Decided(of=of, drop=text))
            for text in guards
            if not text.startswith("error_of(")
        ]
        if choices:
            words = f"before {of}, all of this must be so"
            yield Question(of=of, kind="check", words=words, choices=choices)


def _choice(words: str, decided: Decided) -> Choice:
    return Choice(hashlib.sha256(msgspec.json.encode(decided)).hexdigest()[:12], words, decided)


# --- what is decided ------------------------------------------------------------------------------


def applied(routine: Routine, decided: Decided) -> Routine:
    """Return a routine that follows a decision, and has it.

    Raise RoutineError if the routine does not allow it (any more).
    """
    if decided.drop:
        step = _step_of(routine, decided.of)
        made = routine if step is None else _with(routine, step, _without_guard(step, decided))
    elif decided.ignore:
        asks = {name: one for name, one in routine.asks.items() if name != decided.of}
        made = msgspec.structs.replace(routine, asks=asks)
    else:
        made = _taken(routine, decided)
    others = [one for one in made.decided if one.of != decided.of or one.drop != decided.drop]
    return msgspec.structs.replace(made, decided=[*others, decided])


def _taken(routine: Routine, decided: Decided) -> Routine:
    if decided.of in routine.asks:
        return _taken_for_input(routine, decided.of, decided)
    if not decided.places:
        raise _not_possible(decided)
    for place in decided.places:
        of, _, inner = place.partition(".")
        step = _step_of(routine, of)
        if step is None:
            raise _not_possible(decided)
        own = _own_input(routine, step, inner)
        if own:  # it is asked for under another name now
            routine = _taken_for_input(routine, own, decided)
        else:
            routine = _with(routine, step, _taken_for_argument(step, of, inner, decided))
    return routine


def _taken_for_input(routine: Routine, name: str, decided: Decided) -> Routine:
    asked = routine.asks[name]
    constant = quoted(asked.recorded)
    allowed = [*asked.candidates, *([constant] if name in names_to_confirm(routine) else [])]
    if decided.take not in allowed:
        raise _not_possible(decided)
    is_constant = decided.take == constant
    value = literal(asked.recorded) if is_constant else f"{{{{ {decided.take} }}}}"
    return replaced(routine, name, decided.take, value)


def _own_input(routine: Routine, step: Step, place: str) -> str:
    """Return the asked input that an argument is; empty if it is something else."""
    if not isinstance(step, ToolStep | UdfStep):
        return ""
    try:
        name = _expression(part_at(step.args, place))
    except (KeyError, IndexError, TypeError):
        return ""
    return name if name in routine.asks else ""


def _taken_for_argument(step: Step, of: str, place: str, decided: Decided) -> Step:
    if isinstance(step, PlanStep):
        return _taken_for_slot(step, of, place, decided)
    if not isinstance(step, ToolStep | UdfStep):
        raise _not_possible(decided)
    try:
        own = _expression(part_at(step.args, place))
    except (KeyError, IndexError, TypeError):
        raise _not_possible(decided) from None
    texts = step.agree.get(place, [])
    if decided.take != own and decided.take not in texts:
        raise _not_possible(decided)
    args = step.args
    if decided.take != own:
        args = with_answers(args, {place: f"{{{{ {decided.take} }}}}"})
    kept = [
        f"{text.removesuffix(f', {own})')}, {decided.take})" if text.endswith(f", {own})") else text
        for text in texts
        if not _explains(text)
    ]
    agree = {name: found for name, found in step.agree.items() if name != place}
    agree |= {place: kept} if kept else {}
    return msgspec.structs.replace(step, args=args, agree=agree)


def _taken_for_slot(step: PlanStep, of: str, name: str, decided: Decided) -> PlanStep:
    effect = step.effects[of]
    slot = effect.slots.get(name)
    if slot is None or decided.take not in slot.default:
        raise _not_possible(decided)
    slots = {**effect.slots, name: msgspec.structs.replace(slot, default=[decided.take])}
    effects = {**step.effects, of: msgspec.structs.replace(effect, slots=slots)}
    return msgspec.structs.replace(step, effects=effects)


def _without_guard(step: Step, decided: Decided) -> Step:
    if isinstance(step, PlanStep):
        effect = _unguarded(step.effects[decided.of], decided)
        return msgspec.structs.replace(step, effects={**step.effects, decided.of: effect})
    return _unguarded(step, decided) if isinstance(step, ToolStep | UdfStep) else step


def _unguarded(holder: Any, decided: Decided) -> Any:
    """Return a step or an effect without a guard; also if new traces gave it further values."""
    gone = [text for text in holder.guards if _about(text) == _about(decided.drop)]
    guards = tuple(text for text in holder.guards if text not in gone)
    reasons = {text: error for text, error in holder.reasons.items() if text not in gone}
    return msgspec.structs.replace(holder, guards=guards, reasons=reasons)


def _about(guard: str) -> str:
    """Return what a guard compares with recorded values; a guard of another form itself."""
    left = left_of(guard)
    is_value = guard.startswith((f"{left} == ", f"{left} in ["))
    return left if is_value else guard


def _step_of(routine: Routine, of: str) -> Step | None:
    """Return the call with this id, or the plan with such an effect."""
    for step in routine.steps:
        if isinstance(step, PlanStep) and of in step.effects:
            return step
        if isinstance(step, ToolStep | UdfStep) and step.id == of:
            return step
    return None


def _with(routine: Routine, old: Step, new: Step) -> Routine:
    steps = [new if step is old else step for step in routine.steps]
    return msgspec.structs.replace(routine, steps=steps)


def _not_possible(decided: Decided) -> RoutineError:
    return RoutineError(
        f"it was decided that {decided.of} is {in_words(decided.take)}, which is not possible with"
        " these traces",
        fix="compile the traces again, and decide anew",
    )


# --- in a memory ----------------------------------------------------------------------------------


def current_version(store: Store, name: str) -> Artefact:
    """Return the version that a name means; if none is in use, the newest."""
    found = [one for one in kept_routines(store, name) if one.body is not None]
    used = [one for one in found if one.retired_at is None] or found
    return used[-1] if used else find_routine(store, name)


def decide(store: Store, ref: str, choice: str, *, by: str = "") -> Decision:
    """Store a routine with a decision as a new version, and record who decided.

    choice: the id of a choice, as `questions` lists it. Only the version that the name means can be
    decided about: otherwise an older decision would be lost.
    """
    name = ref.partition("@")[0]
    stream = routine_stream(name)
    head = store.head(stream)[0]
    artefact = current_version(store, name)
    old, files = f"{name}@{artefact.version}", texts_of(artefact)
    if ref not in (name, old):
        raise UsageError(f"{ref} is not the version in use", place=ref, fix=f"decide about {old}")
    routine = read_routine(parse_yaml(files[ROUTINE].encode(), old), old)
    found = _chosen(routine, choice, old)
    made = applied(routine, found.decided)
    new = {**files, ROUTINE: render_again(made, files[ROUTINE])}
    if INPUT in files:
        new[INPUT] = declared_input(files[INPUT], made)
    check_text(made, new[ROUTINE])
    _validate(new, old)
    words = decided_in_words(found.decided)
    body = RoutineDecided(
        routine=old, words=words, decided=found.decided, by=by, from_events=artefact.from_events
    )
    note = Draft(stream=stream, kind="routine_decided", body=msgspec.to_builtins(body))
    kept = keep_routine(
        store,
        new,
        artefact.from_events,
        retired=artefact.retired_at is not None,
        note=note,
        expected_pos={stream: head},
    )
    return Decision(words=words, old=old, new=kept.ref)


def _chosen(routine: Routine, choice: str, ref: str) -> Choice:
    for question in questions(routine):
        for one in question.choices:
            if one.id == choice:
                return one
    raise NotFound(
        f"there is no choice {choice[:40]!r} in {ref}",
        place=ref,
        fix="somebody may have decided it already; look at the choices again",
    )


def _validate(files: dict[str, str], ref: str) -> None:
    """Raise if a routine with a decision could not run."""
    with tempfile.TemporaryDirectory(prefix="em-decided-") as folder:
        write_files(files, Path(folder))
        errors = [one for one in validate(folder) if one.severity == "error"]
    if errors:
        raise RoutineError(
            f"with this decision the routine could not run: {errors[0].message}", place=ref
        )
