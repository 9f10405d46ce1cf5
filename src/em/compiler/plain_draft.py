"""The draft of a plain routine: learnt from recordings with typed inputs, proved in their world.

It is used where every recording says its inputs by name and the routine never does anything else
than what was recorded. It may need a read that a recording lacks; that recording then proves
nothing. Everything else still goes the older ways.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from em.compiler.calls import Verdict, calls_of
from em.compiler.checks import with_struck
from em.compiler.commands import is_bookkeeping
from em.compiler.draft import Draft, GivenUdfs, Recorded
from em.compiler.evidence import CONSTANTS_SHOWN
from em.compiler.example import Example, example_of
from em.compiler.learner import Learnt, learn
from em.compiler.package_files import package_texts
from em.compiler.proofs import LEFT_OUT, Proof, prove
from em.compiler.request_templates import request_templates
from em.compiler.routine_text import routine_text
from em.errors import EmError
from em.runner.package import ROUTINE, read_routine, render_trials
from em.runner.package import TRIALS as TRIALS_FILE
from em.runner.template import REQUEST
from em.runner.tools.coding import is_coding_tool
from em.runner.trial import Trial, Trials
from em.traces.trace import Approval, KeptTrace, Message, UdfCall
from em.values.call import Effect

ENOUGH_TRACES = 2
"""One recording still goes the older way, where a person decides what it leaves open."""


class PlainDraft(msgspec.Struct, frozen=True):
    """A plain routine with its proof, and the files of its package."""

    draft: Draft
    files: Mapping[str, str]
    proof: Proof
    learnt: Learnt


def plain_draft(
    traces: Sequence[KeptTrace],
    name: str,
    declared: Mapping[str, Effect | None] | None = None,
    struck: Sequence[str] = (),
) -> PlainDraft | None:
    """Return the plain routine of recordings, or None if an older way must compile them.

    That is where inputs are not typed, where the routine would ask for something, or where it is
    not proved. struck: checks of an earlier version that a person struck; they are left out.
    """
    if len(traces) < ENOUGH_TRACES or not all(map(_is_typed, traces)):
        return None
    examples = [example_of(kept, declared, _silent(kept)) for kept in traces]
    kinds = {name: examples}
    try:
        learnt = _with_templates(learn(kinds, caution=CONSTANTS_SHOWN)[name], examples)
        learnt = learnt._replace(routine=with_struck(learnt.routine, struck))
        mended = partial(with_struck, texts=struck)
        proof = prove(learnt.routine, kinds, mended=mended, caution=CONSTANTS_SHOWN)
    except EmError:
        # What the learner can't put into steps, an older way may.
        return None
    if learnt.asked or not proof.is_proved:
        return None
    return _draft(traces, examples, learnt, proof, declared or {})


def _with_templates(learnt: Learnt, examples: Sequence[Example]) -> Learnt:
    """Return a routine with the wordings in which recordings asked for it."""
    document = learnt.routine
    templates = request_templates(examples, document["input_schema"])
    if not templates:
        return learnt
    head = {name: document[name] for name in ("version", "name", "checks", "input_schema")}
    return learnt._replace(routine={**head, "requests": templates, **document})


def _is_typed(kept: KeptTrace) -> bool:
    trace = kept.trace
    is_plain = not any(isinstance(event, UdfCall | Approval) for event in trace.events)
    tools = [call.tool for call in trace.calls if not isinstance(call, UdfCall)]
    inputs = trace.mission.input_summary
    # An input that is what the person said is words, and not read here.
    said = {trace.mission.goal, *(one.text for one in trace.events if isinstance(one, Message))}
    has_words = REQUEST in inputs or any(
        value in said for value in inputs.values() if isinstance(value, str)
    )
    return bool(inputs) and is_plain and not has_words and not any(map(is_coding_tool, tools))


def _silent(kept: KeptTrace) -> Collection[str]:
    """Return the tools with which the agent kept notes for itself."""
    tools = {call.tool for call in kept.trace.calls if not isinstance(call, UdfCall)}
    return {tool for tool in tools if is_bookkeeping(tool)}


def _draft(
    traces: Sequence[KeptTrace],
    examples: Sequence[Example],
    learnt: Learnt,
    proof: Proof,
    declared: Mapping[str, Effect | None],
) -> PlainDraft:
    first, example = traces[0], examples[0]
    calls, _ = calls_of(first.trace, declared)
    used = {tool["name"] for tool in learnt.routine["tools"]}
    verdicts = [
        Verdict(call.name in used and not call.failed, "used" if call.name in used else "not used")
        for call in calls
    ]
    trials = _trials(proof) if len(traces) > 1 else Trials()
    draft = Draft(
        routine=read_routine(learnt.routine, learnt.routine["name"]),
        input=example.inputs,
        output=_output(example),
        recording=[
            Recorded(call.tool, call.tool, False, call.args, call.result)
            for call in example.calls
            if call.error is None
        ],
        answers={},
        calls=calls,
        verdicts=verdicts,
        explained=(),
        comments={},
        usage=first.trace.recorded_usage,
        proof=[*_without_trials(proof), *([str(trials)] if trials else [])],
        trials=trials,
        outcome=first.trace.outcome,
    )
    files = package_texts(draft, GivenUdfs())
    files[ROUTINE] = routine_text(learnt.routine)
    if draft.trials:
        files[TRIALS_FILE] = render_trials(draft.trials, files[ROUTINE])
    return PlainDraft(draft, files, proof, learnt)


def _output(example: Example) -> Any:
    """Return what the routine returns for its recording: the result of its last write."""
    return example.writes[-1].result if example.writes else example.output


def _without_trials(proof: Proof) -> list[str]:
    """Return the lines of a proof without those of the trials, which have a file of their own."""
    return [one for one in proof.summary.splitlines() if not one.startswith(f"{LEFT_OUT}:")]


def _trials(proof: Proof) -> Trials:
    made = [Trial(one.recording, one.verdict, one.reason) for one in proof.trials[LEFT_OUT]]
    return Trials(made)
