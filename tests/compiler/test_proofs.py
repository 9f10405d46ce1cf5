"""A proof says what a routine did on each recording, and decides whether it is used by itself."""

import copy
from collections.abc import Sequence

import pytest
from test_learner import cancel, facts, recorded, routine_of

from em.compiler.compile_trace import prove
from em.compiler.example import Example
from em.runner.trial import LEFT_OUT, Proof, Trial, read_proof, render_proof
from em.values.canonical import Json

EXAMPLES = [recorded(cancel, facts(number)) for number in range(6)]


def proved(routine: Json, examples: list[Example], **options: Json) -> Proof:
    def learn(numbers: Sequence[int]) -> Json:
        return routine_of([examples[number] for number in numbers])

    return prove(routine, examples, learn, **options)


def test_a_learnt_routine_is_proved() -> None:
    proof = proved(routine_of(EXAMPLES), EXAMPLES)
    assert proof.is_proved
    assert not proof.why_not_alone
    assert proof.count("right", LEFT_OUT) == 6
    assert "fresh inputs: right in 6 of 6, handed over in 0, wrong in 0" in proof.sentences
    assert read_proof(render_proof(proof)) == proof


def test_few_recordings_are_not_enough_alone() -> None:
    proof = proved(routine_of(EXAMPLES[:2]), EXAMPLES[:2])
    assert proof.is_proved
    assert proof.why_not_alone


def test_a_routine_with_a_recorded_value_in_it_is_not_proved() -> None:
    routine = copy.deepcopy(routine_of(EXAMPLES))
    write = next(step for step in routine["steps"] if step.get("effect") == "write")
    write["args"]["order_id"] = EXAMPLES[0].inputs["order_id"]
    proof = proved(routine, EXAMPLES[:1])
    assert proof.count("right", "as recorded") == 1
    assert proof.count("wrong", "fresh inputs") == 1
    assert not proof.is_proved


@pytest.mark.parametrize(
    ("trials", "is_proved"),
    [
        ([Trial("a", "right")], True),
        ([Trial("a", "right"), Trial("b", "handed over", "", True)], True),
        ([Trial("a", "right"), Trial("b", "handed over", "a check")], True),
        ([Trial("b", "handed over", "a check")], False),
        ([Trial("b", "handed over", "", True)], True),
        ([Trial("a", "right"), Trial("b", "wrong")], False),
        ([], False),
    ],
)
def test_its_own_recordings_must_be_right(trials: list[Trial], is_proved: bool) -> None:
    at = proved(routine_of(EXAMPLES[:1]), EXAMPLES[:1]).at
    assert Proof(at=at, routine="", trials={"as recorded": trials}).is_proved is is_proved


def test_of_many_recordings_some_are_left_out() -> None:
    many = [recorded(cancel, facts(number % 10)) for number in range(40)]
    proof = proved(routine_of(many), many)
    assert len(proof.trials[LEFT_OUT]) == 25
    assert len({one.trace for one in proof.trials[LEFT_OUT]}) == 25
