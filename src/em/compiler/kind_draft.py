"""The draft of a routine that was learnt from several tasks of one kind."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.blanks import Spoken, form_of, is_marker, whole_examples
from em.compiler.calls import TracedCall, calls_of, specs_of
from em.compiler.commands import is_bookkeeping
from em.compiler.draft import Draft
from em.compiler.homes import Example, Kind
from em.compiler.learnt_input import learnt_input
from em.compiler.step_refusals import StepRefusals
from em.compiler.trials import REQUEST, refuse_wrong, trials, with_signs
from em.redaction.redactor import MARKER
from em.runner.free_words import recorded_request
from em.runner.phrases import identities, learnt_wording
from em.runner.routine import PlanStep, ReturnStep, Routine, Step, ToolSpec
from em.runner.sentences import SEVERAL, learnt_sentences
from em.runner.task_plan import EARLIER, Plan, asks_for
from em.runner.task_plan import Effect as PlannedEffect
from em.runner.trial import Trials
from em.traces.trace import KeptTrace, Trace
from em.values.call import Effect
from em.values.canonical import Json, identical

PLAN = "plan"
"""The id of the step that finds out what to do and does it."""
MOST_ROUNDS = 6
"""Times that sources which were wrong are left out, and the rest is tried again."""
FEWEST_RIGHT = 2
"""Traces with an effect that free words must have been read rightly in; without one, one."""
DONE = "done"
"""The name of its result."""


def examples_of(
    traces: Sequence[KeptTrace], declared: Mapping[str, Effect | None]
) -> dict[str, Example]:
    """Return the traces as they are learnt from: calls that succeeded, and the request."""
    found = {}
    for kept in traces:
        calls, _ = calls_of(kept.trace, declared)
        good: list[TracedCall] = []
        refused: list[TracedCall] = []
        for call in calls:
            call.index = len(good)
            if not call.failed:
                good.append(call)
            elif call.effect == "write" and not call.effect_unknown:
                refused.append(call)
        said = _with_codes(words_of(kept.trace, calls))
        found[kept.id] = Example(good, said, _earlier(kept.trace), refused)
    return found


def _with_codes(said: str) -> str:
    """Return words with a code where a secret stood that was taken out, as a request has one."""
    markers = list(dict.fromkeys(MARKER.findall(said)))
    return MARKER.sub(lambda one: f"redacted{markers.index(one.group()) + 1}", said)


def _earlier(trace: Trace) -> list[Json]:
    """Return the calls before the task that its input names."""
    given = trace.mission.input_summary.get(EARLIER)
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def words_of(trace: Trace, calls: Sequence[Any]) -> str:
    """Return what was asked for in words: by people, in the task's input, or as its goal."""
    spoken = calls[-1].said.strip() if calls else ""
    texts = [text for text in trace.mission.input_summary.values() if isinstance(text, str)]
    return spoken or "\n".join(texts) or trace.mission.goal


def is_learnable(plan: Plan, examples: Iterable[Example]) -> bool:
    """Return whether each effect was asked for in words at least once."""
    return bool(plan.effects) and all(
        any(
            asks_for(effect, example.said)
            for example in examples
            if any(call.name == effect.tool for call in example.writes)
        )
        for effect in plan.effects.values()
    )


def draft_kind(
    examples: Mapping[str, Example],
    *,
    name: str,
    description: str = "",
    force: bool = False,
    only_form: bool = False,
    beside: Sequence[Example] = (),
    pool: Sequence[Example] = (),
) -> Draft | None:
    """Learn a kind of task from traces, and try what was learnt on each of them.

    None if they teach nothing. description: unless it is given, the effects are named.
    force: return it though a trial was wrong. only_form: one way of doing the tasks is enough, if
    words ask for it. beside: tasks of other kinds that show how values are spoken of.
    pool: tasks of other kinds that show further ways to what reads give.
    """
    found = None if only_form else _strict(examples, pool)
    if found is None or found.made.count("right") * 2 < len(examples):
        right = 0 if found is None else found.made.count("right")
        free = _free(examples, right, beside)
        if free is not None and (found is None or not _is_less_careful(free.plan, found.plan)):
            # A form has one way to a result; a plan with several keeps them if it is as good.
            several = found is not None and any(len(one) > 1 for one in found.plan.reads.values())
            found = found if several and free.made.count("right") <= right else free
    if found is None:
        return None
    plan, made = with_signs(found.plan, examples.values()), found.made
    refuse_wrong(made, force=force)
    about = description or f"Does what is asked for: {', '.join(plan.effects)}"
    routine = _routine(plan, name, about, list(examples.values()))
    return draft_of(routine, PLAN, examples, made)


def _is_less_careful(one: Plan, other: Plan) -> bool:
    """Return whether a plan looks at less than another before its effects."""
    return any(
        len(one.effects[name].guards if name in one.effects else ()) < len(effect.guards)
        for name, effect in other.effects.items()
    )


def draft_of(routine: Routine, step: str, examples: Mapping[str, Example], made: Trials) -> Draft:
    """Return the draft of a learnt routine. It follows no recording; its trials are the proof.

    step: the step that does what was learnt.
    """
    return Draft(
        routine=routine,
        input={REQUEST: [*examples.values()][-1].said},
        output=None,
        recording=(),
        answers={},
        calls=(),
        verdicts=(),
        explained=(),
        comments={step: [str(made)]},
        proof=(str(made), *made.reasons()),
        trials=made,
    )


class _Tried(NamedTuple):
    """A plan, and how it did on traces that it was not learnt from."""

    plan: Plan
    made: Trials


def _strict(examples: Mapping[str, Example], pool: Sequence[Example]) -> _Tried | None:
    """Return a plan that accounts for every word of a request."""
    every = list(examples.values())
    plan = _worded(every)
    if not is_learnable(plan, examples.values()) or reads_left_out(plan, every):
        return None
    made = trials(examples, lambda some: _within(_worded(some), plan))
    pooled = _worded(every, pool) if pool else plan
    if pooled == plan:
        return _Tried(plan, made)
    more = trials(examples, lambda some: _within(_worded(some, pool), pooled))
    return _Tried(pooled, _either(made, more))


def reads_left_out(plan: Plan, examples: Sequence[Example]) -> set[str]:
    """Return the reads that all traces made before an effect, and that a plan would not make.

    Nobody knows what they would show, so such a plan must not act.
    """
    found: set[str] = set()
    for effect in plan.effects.values():
        before = [
            {one.name for one in example.calls[: call.index] if one.effect == "read"}
            for example in examples
            for call in example.writes
            if call.name == effect.tool
        ]
        if before:
            found |= set.intersection(*before) - plan.reads_for(effect)
    answers = {effect.tool for effect in plan.effects.values() if effect.reads}
    return {tool for tool in found - answers if not is_bookkeeping(tool)}


def _worded(examples: Sequence[Example], pool: Sequence[Example] = ()) -> Plan:
    """Return what traces teach, with how their requests were worded.

    pool: of these only how people say who they are, by what reads of the plan took.
    """
    plan = Kind(examples, pool).plan()
    said = ((one.said, [call.args for call in one.calls]) for one in examples)
    wording = learnt_wording(plan, said)
    tools = {read.tool for reads in plan.reads.values() for read in reads}
    talk = {*wording.talk}
    for one in pool:
        taken = [v for call in one.calls if call.name in tools for v in call.args.values()]
        talk |= identities(one.said, [v for v in taken if isinstance(v, str)])
    wording = msgspec.structs.replace(wording, talk=sorted(talk))
    return msgspec.structs.replace(plan, wording=wording)


def _either(alone: Trials, pooled: Trials) -> Trials:
    """Return the trials of a plan with further ways, which a recording may not have made.

    A trace that is done right without them is done right: they only have to agree.
    """
    ranks = ("wrong", "right", "handed over")
    return Trials(
        [
            min(other, one, key=lambda trial: ranks.index(trial.verdict))
            for one, other in zip(alone.made, pooled.made, strict=True)
        ]
    )


def _within(part: Plan, whole: Plan) -> Plan:
    """Return what some traces teach, without the words for several that others of them deny."""
    effects: dict[str, PlannedEffect] = {}
    for name, effect in part.effects.items():
        known = whole.effects[name]
        slots = {
            own: msgspec.structs.replace(
                slot, whole=[one for one in slot.whole if one in known.slots[own].whole]
            )
            for own, slot in effect.slots.items()
        }
        each = effect.each if effect.each == known.each else ""
        effects[name] = msgspec.structs.replace(effect, slots=slots, each=each)
    return msgspec.structs.replace(part, effects=effects)


def _free(
    examples: Mapping[str, Example], right: int, beside: Sequence[Example] = ()
) -> _Tried | None:
    """Return a plan that free words fill in, if that did better and was never wrong."""
    every = list(examples.values())
    whole = {id(one) for one in whole_examples(every)}
    names = [name for name, one in examples.items() if id(one) in whole]
    spoken = Spoken(beside, every)
    denied: set[str] = set()
    for _ in range(MOST_ROUNDS):
        now = frozenset(denied)

        def learn(some: Sequence[Example], denied: frozenset[str] = now) -> Plan | None:
            known = Kind(some).plan()
            form = form_of(some, known, denied, spoken)
            return None if form is None else StepRefusals(known).in_form(form)

        plan = learn(every)
        if plan is None or reads_left_out(plan, every):
            return None
        # What each told that no other did is known here, so that its values are tried at least.
        alike = trials(examples, lambda some: _told(learn(some), every, all_of=True), names, denied)
        if not alike.count("wrong"):
            made = trials(examples, lambda some: _told(learn(some), some), names)
            fewest = FEWEST_RIGHT if any(one.writes for one in every) else 1
            is_better = alike.count("right") >= max(fewest, right + 1)
            is_better &= made.count("right") >= right
            found = _told(_with_once(plan, every), every)
            return _Tried(found, made) if is_better and found is not None else None
        if denied == now:
            return None
    return None


def _told(plan: Plan | None, examples: Sequence[Example], *, all_of: bool = False) -> Plan | None:
    """Return a form that knows the sentences of its requests, where it has an effect.

    all_of: also of those that it would read otherwise than they were meant.
    """
    if plan is None or all(effect.reads for effect in plan.effects.values()):
        return plan
    found = []
    for example in whole_examples(examples):

        def is_right(tool: str, name: str, value: Any, own: Example = example) -> bool:
            held = [call.args.get(name) for call in own.calls if call.name == tool]
            return all_of or any(is_marker(one) or identical(one, value) for one in held)

        found.append(recorded_request(plan, example.said, is_right))
    wording = learnt_sentences(plan, [one for one in found if one is not None])
    return msgspec.structs.replace(plan, wording=wording)


def _with_once(plan: Plan, examples: Sequence[Example]) -> Plan:
    """Return a form that says which of its harmless words only one task had."""
    if plan.form is None:
        return plan
    texts = [one.said.lower() for one in examples]
    once = {w for w in plan.form.harmless if sum(w in text for text in texts) < SEVERAL}
    form = msgspec.structs.replace(plan.form, once=sorted(once))
    return msgspec.structs.replace(plan, form=form)


def _routine(plan: Plan, name: str, description: str, examples: Sequence[Example]) -> Routine:
    step = PlanStep(
        id=PLAN,
        effects=plan.effects,
        reads=plan.reads,
        inputs=plan.inputs,
        form=plan.form,
        signs=plan.signs,
        wording=plan.wording,
        save_as=DONE,
    )
    steps: list[Step] = [step, ReturnStep(id="return", value=f"{{{{ {DONE} }}}}")]
    writes = {spec.tool for spec in plan.effects.values() if not spec.reads}
    known = specs_of(call for example in examples for call in example.calls)
    tools = [
        msgspec.structs.replace(
            known.get(tool, ToolSpec(name=tool)),
            effect="write" if tool in writes else "read",
            effect_inferred=False,
        )
        for tool in sorted(step.tools)
    ]
    return Routine(
        name=name,
        description=description,
        tools=tools,
        input_schema=learnt_input(plan, examples, REQUEST),
        steps=steps,
    )


def with_outcome(draft: Draft, traces: Sequence[KeptTrace]) -> Draft:
    """Return the draft with what the traces say about their outcome."""
    known = {kept.trace.outcome for kept in traces}
    return msgspec.structs.replace(draft, outcome="success" if known == {"success"} else "unknown")
