"""Trials of steps: a routine made of all traces but some is run on the recordings of those.

As in `trials`, a call that was not recorded ends the run as a hand-over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.draft import Draft
from em.compiler.homes import Example
from em.compiler.return_value import returns_words
from em.compiler.trials import in_both_orders
from em.compiler.verification import replayed
from em.compiler.world import World
from em.errors import EmError
from em.runner.run import RunResult, cause_of
from em.runner.tools import Function
from em.runner.trial import Trial, Trials, Verdict
from em.values.canonical import Json, short

FEW_FOLDS = 5
"""Groups of traces that are left out in turn if there are many traces."""
MOST_TRIED = 20
"""Traces on which a routine is tried; of more, some are taken evenly."""
MOST_OTHERS = 40
"""Traces that a routine is made of for a trial."""

_VERDICTS: Mapping[str, Verdict] = {
    "agreed": "right",
    "differed": "wrong",
    "handed_over": "handed over",
}

Make = Callable[[Sequence[str]], Draft]
"""Makes a routine of the traces with these ids."""


def step_trials(
    examples: Mapping[str, Example], alone: Mapping[str, Draft], make: Make, final: Draft
) -> Trials:
    """Leave each trace out once, and run what the others become on its recording.

    alone: the draft of each trace by itself, which knows the inputs of its task.
    final: what all traces become. Where this one asks, because the trace that was left out shows
    that a value varies, a trial is a hand-over whatever the others did without that trace.
    """
    names, compares = _some(list(alone), MOST_TRIED), returns_words(final)
    folds = len(names) if len(alone) <= MOST_TRIED else FEW_FOLDS
    made: dict[str, Trial] = {}
    for fold in range(folds):
        left_out = names[fold::folds]
        try:
            others = [name for name in alone if name not in left_out]
            draft = make(_some(others, MOST_OTHERS))
        except EmError as error:
            made |= {one: Trial(one, "handed over", error.message) for one in left_out}
            continue
        for name in left_out:
            verdict, reason = _tried(draft, examples[name], alone[name], compares=compares)
            if verdict == "wrong":
                now, why = _tried(final, examples[name], alone[name])
                verdict, reason = (now, why) if now == "handed over" else (verdict, reason)
            made[name] = Trial(name, verdict, reason)
    return Trials([made[name] for name in names])


class Group(NamedTuple):
    """Traces of one kind of task: their calls and words, and the draft of each by itself."""

    examples: Mapping[str, Example]
    alone: Mapping[str, Draft]

    def compared(
        self, draft: Draft, other: Draft, functions: Mapping[str, Function]
    ) -> tuple[list[str], Trials]:
        """Return on which traces a rewritten routine does worse than its draft, and its trials.

        functions: those that come with the rewritten routine.
        """
        problems: list[str] = []
        made: list[Trial] = []
        for name in _some(list(self.alone), MOST_TRIED):
            example, alone = self.examples[name], self.alone[name]
            verdict, reason = _tried(other, example, alone, functions)
            made.append(Trial(name, verdict, reason))
            if verdict == "wrong":
                problems.append(f"on recording {name} it would do the wrong thing: {reason}")
            elif verdict == "handed over" and _tried(draft, example, alone)[0] == "right":
                problems.append(f"on recording {name} it stops, and the draft does not: {reason}")
        return problems, Trials(made, were_shown=True)


def does_all(draft: Draft, examples: Mapping[str, Example], alone: Mapping[str, Draft]) -> bool:
    """Return whether a routine does the tasks of all traces that it was made of."""
    names = _some(list(alone), MOST_TRIED)
    return all(_tried(draft, examples[name], alone[name])[0] == "right" for name in names)


def _some(names: Sequence[str], most: int) -> Sequence[str]:
    """Return at most so many of the names, evenly spread."""
    return (
        [names[number * len(names) // most] for number in range(most)]
        if len(names) > most
        else names
    )


def _tried(
    draft: Draft,
    example: Example,
    alone: Draft,
    functions: Mapping[str, Function] | None = None,
    *,
    compares: bool = False,
) -> tuple[Verdict, str]:
    """Return how a draft does on a recording.

    compares: the text that it returns must be the recorded answer.
    """
    given = _input(draft, example, alone)
    asked = msgspec.structs.replace(draft, input=given, answers=alone.answers)
    answer = alone.output if compares and isinstance(alone.output, str) else None
    return in_both_orders(example, lambda one: _run(asked, one.calls, functions, answer))


def _input(draft: Draft, example: Example, alone: Draft) -> Json:
    """Return what the task of a trace gives: its words, or the inputs that nobody is asked for."""
    request = draft.routine.request
    if request is not None:
        return {request.input: example.said}
    return {name: value for name, value in alone.input.items() if name not in alone.routine.asks}


def _run(
    draft: Draft,
    calls: Sequence[TracedCall],
    functions: Mapping[str, Function] | None,
    answer: str | None,
) -> tuple[Verdict, str]:
    world = World(calls)
    # What the agent did not do at all shows no effect; the routine knows it.
    writes = {tool.name for tool in draft.routine.tools if tool.effect == "write"}

    def stand_in(name: str) -> Function:
        return world.stand_in(name, "write") if name in writes else world.tool(name)

    said: object = None
    try:
        result = replayed(draft, stand_in, functions)
        stopped, said = why_stopped(result), result.output
    except EmError as error:
        stopped = error.message
    verdict, reason = world.verdict(stopped)
    if verdict == "agreed" and answer is not None and str(said).split() != answer.split():
        return "handed over", f"it would return {short(said)}; the answer was {short(answer)}"
    return _VERDICTS[verdict], reason


def why_stopped(result: RunResult) -> str:
    """Return why a run did not go to its end: what it asks, or what stopped it; "" if it did."""
    if result.pending_prompt is not None:
        return result.pending_prompt.message
    if result.reason is not None:
        return result.reason.message
    return "" if result.failure is None else cause_of(result.failure)
