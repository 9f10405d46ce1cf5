"""The proof of a routine: what it did on recordings, without a store and without effects.

It is replayed on each of its recordings as it is, with lists in another order, and with fresh
inputs. Then each recording is left out once: what the others teach is tried on it. A routine that
hands over did no harm; one that would have written anything else than was recorded is wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from em.compiler.example import Example
from em.compiler.replay_world import POLICIES, Outcome, Recording, as_recorded, program_of
from em.errors import EmError
from em.runner.trial import LEFT_OUT, Proof, Trial
from em.values.canonical import Json

MOST_LEFT_OUT = 25
"""Recordings that are left out, one after the other; of more, some are taken evenly."""
LEFT_OUT_TOGETHER = 5
"""Recordings that are left out at a time, where there are many."""

Learn = Callable[[Sequence[int]], Json]
"""Returns the routine that the recordings with these numbers teach. Raises EmError if none."""


def prove(
    routine: Json,
    examples: Sequence[Example],
    learn: Learn,
    *,
    asked: Sequence[Json] = (),
    open_values: Sequence[str] = (),
) -> Proof:
    """Try a routine on its recordings, and on each of them what the others teach.

    asked: by recording, what inputs were that nothing explains. open_values: as of `Proof`.
    """
    program = program_of(routine)
    schema: Json = routine.get("input_schema") or {}
    given: Sequence[Json] = asked or [{}] * len(examples)
    trials = {
        policy: [
            _trial(name, world(Recording.of(one, routine, more), schema).run(program))
            for (name, one), more in zip(_named(examples), given, strict=True)
        ]
        for policy, world in POLICIES.items()
    }
    trials[LEFT_OUT] = [*_left_out(examples, learn)]
    return Proof(at=datetime.now(UTC), routine="", trials=trials, open=open_values)


def _named(examples: Sequence[Example]) -> Iterator[tuple[str, Example]]:
    for number, example in enumerate(examples, 1):
        yield example.name or f"recording {number}", example


def _trial(name: str, outcome: Outcome) -> Trial:
    return Trial(name, outcome.verdict, outcome.reason, outcome.is_unrecorded)


def _left_out(examples: Sequence[Example], learn: Learn) -> Iterator[Trial]:
    """Leave recordings out, and try on each what the others teach.

    They are left out one after the other; of many, several at a time, so that it is not learnt
    anew for each.
    """
    every = [*_named(examples)]
    if len(every) < 2:
        return
    chosen = _some([*range(len(every))], MOST_LEFT_OUT)
    together = 1 if len(every) <= MOST_LEFT_OUT else LEFT_OUT_TOGETHER
    for start in range(0, len(chosen), together):
        group = chosen[start : start + together]
        try:
            rest = [number for number in range(len(every)) if number not in group]
            learnt = learn(rest)
            program = program_of(learnt)
        except EmError as error:
            for number in group:
                yield _trial(every[number][0], Outcome("handed over", error.message))
            continue
        known = {name for number in rest for name in examples[number].inputs}
        for number in group:
            name, example = every[number]
            unknown = [one for one in example.inputs if one not in known]
            if unknown:
                reason = f"no other recording was given {unknown[0]!r}"
                yield _trial(name, Outcome("handed over", reason))
                continue
            world = as_recorded(Recording.of(example, learnt), learnt.get("input_schema") or {})
            yield _trial(name, world.run(program))


def _some(rows: list[int], most: int) -> list[int]:
    """Return at most so many, evenly spread and the same ones each time."""
    if len(rows) <= most:
        return rows
    return [rows[number * len(rows) // most] for number in range(most)]
