"""The proof of a routine: what it did on recordings, without a store and without effects.

It is replayed on each of its recordings as it is, with lists in another order, and with fresh
inputs. Then each recording is left out once: what the others teach is tried on it. A routine that
hands over did no harm; one that would have written anything else than was recorded is wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from em.compiler.example import Example
from em.compiler.learner import learnt_from, material_of
from em.compiler.replay_world import POLICIES, Outcome, Recording, Verdict, as_recorded
from em.errors import EmError
from em.runner.package import read_routine
from em.runner.routine import Program
from em.values.canonical import Json

LEFT_OUT = "left out"
"""The trial in which a recording is not learnt from."""
MOST_LEFT_OUT = 25
"""Recordings that are left out, one after the other; of more, some are taken evenly."""
LEFT_OUT_TOGETHER = 5
"""Recordings that are left out at a time, where there are many."""
ENOUGH = 3
"""Times that a routine must be right on recordings that it was not learnt from."""

Kinds = Mapping[str, Sequence[Example]]
Mended = Callable[[Json], Json]


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a routine did on one recording. is_unrecorded: it needed a read that was not made."""

    recording: str
    verdict: Verdict
    reason: str = ""
    is_unrecorded: bool = False


class Proof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The file `proof.json`: what was tried, when, and with which tools.

    routine: the hash of the document that was tried. tools: hashes of the tools' schemas, as far
    as they are known. trials: by policy.
    """

    at: datetime
    routine: str
    trials: Mapping[str, Sequence[Trial]]
    tools: Mapping[str, str] = {}

    @property
    def is_proved(self) -> bool:
        """Whether it does what was recorded on its own recordings, and nothing else anywhere."""
        own = self.trials.get("as recorded", ())
        return (
            self.count("right", "as recorded") > 0
            and all(one.verdict == "right" or one.is_unrecorded for one in own)
            and not self.count("wrong")
        )

    @property
    def is_enough_alone(self) -> bool:
        """Whether it may be used without a person's word: right on recordings left out of it."""
        return self.is_proved and self.count("right", LEFT_OUT) >= ENOUGH

    def count(self, verdict: Verdict, policy: str = "") -> int:
        """Return how many trials of a policy, or of all, ended so."""
        chosen = [self.trials.get(policy, ())] if policy else self.trials.values()
        return sum(one.verdict == verdict for trials in chosen for one in trials)

    @property
    def summary(self) -> str:
        """The trials in one line for each policy."""
        return "\n".join(
            f"{policy}: right in {self.count('right', policy)} of {len(trials)}, handed over in"
            f" {self.count('handed over', policy)}, wrong in {self.count('wrong', policy)}"
            for policy, trials in self.trials.items()
        )


def render_proof(proof: Proof) -> str:
    """Return the text of `proof.json`."""
    return msgspec.json.format(msgspec.json.encode(proof), indent=2).decode() + "\n"


def read_proof(text: str) -> Proof:
    """Parse `proof.json`. Raise msgspec.ValidationError if it is no proof."""
    return msgspec.json.decode(text, type=Proof)


def prove(
    routine: Json,
    kinds: Kinds,
    *,
    schemas: Mapping[str, Any] | None = None,
    mended: Mended = lambda document: document,
    **options: Any,
) -> Proof:
    """Try a routine on the recordings of its kind, `kinds[routine["name"]]`.

    kinds: the recordings of all kinds that were learnt together. schemas: of the tools, by name.
    mended: what was done to the routine after it was learnt; also done to those that are learnt
    here. options: those of `learn`.
    """
    name, examples = routine["name"], kinds[routine["name"]]
    program, schema = program_of(routine), _schema(routine)
    trials = {
        policy: [
            _trial(recording, world(Recording.of(example, routine), schema).run(program))
            for recording, example in _named(examples)
        ]
        for policy, world in POLICIES.items()
    }
    trials[LEFT_OUT] = [*_left_out(name, kinds, mended, options)]
    return Proof(
        at=datetime.now(UTC),
        routine=digest_of(routine),
        trials=trials,
        tools={tool: digest_of(schema) for tool, schema in sorted((schemas or {}).items())},
    )


def program_of(routine: Json) -> Program:
    """Return a learnt document as a program that runs."""
    return Program(read_routine(routine, str(routine.get("name", "routine"))))


def digest_of(value: Any) -> str:
    """Return a hash of a document or a schema, in which the order of keys does not count."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _schema(routine: Json) -> Json:
    return routine.get("input_schema") or {}


def _named(examples: Sequence[Example]) -> Iterator[tuple[str, Example]]:
    for number, example in enumerate(examples, 1):
        yield example.name or f"recording {number}", example


def _trial(name: str, outcome: Outcome) -> Trial:
    return Trial(name, outcome.verdict, outcome.reason, outcome.is_unrecorded)


def _left_out(
    name: str, kinds: Kinds, mended: Mended, options: Mapping[str, Any]
) -> Iterator[Trial]:
    """Leave recordings out, and try on each what the others teach.

    They are left out one after the other; of many, several at a time, so that it is not learnt
    anew for each.
    """
    every = [*_named(kinds[name])]
    if len(every) < 2:
        return
    known = {
        kind: material_of(kind, beside, **options) for kind, beside in kinds.items() if kind != name
    }
    chosen = _some(every, MOST_LEFT_OUT)
    together = 1 if len(every) <= MOST_LEFT_OUT else LEFT_OUT_TOGETHER
    for start in range(0, len(chosen), together):
        group = chosen[start : start + together]
        left = {id(one) for _, one in group}
        try:
            own = material_of(name, [one for _, one in every if id(one) not in left], **options)
            learnt = mended(learnt_from({**known, name: own}, name).routine)
            program = program_of(learnt)
        except EmError as error:
            yield from (_trial(one, Outcome("handed over", error.message)) for one, _ in group)
            continue
        for recording, example in group:
            recorded = Recording.of(example, learnt)
            yield _trial(recording, as_recorded(recorded, _schema(learnt)).run(program))


def _some(rows: list[Any], most: int) -> list[Any]:
    """Return at most so many, evenly spread and the same ones each time."""
    if len(rows) <= most:
        return rows
    return [rows[number * len(rows) // most] for number in range(most)]
