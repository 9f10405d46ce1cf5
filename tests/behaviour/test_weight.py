"""Explanations are weighed in bits: ids say much, small numbers little, choices their share."""

import pytest

from em.behaviour.weight import (
    ENOUGH,
    is_incredible,
    of_choice,
    of_constant,
    of_match,
    of_mention,
    of_stated,
)


@pytest.mark.parametrize("value", ["#W2378156", "123456789", 123456789, "ana.lopez@shop.example"])
def test_an_id_can_not_stand_in_two_places_by_chance(value: object) -> None:
    assert is_incredible(value)


@pytest.mark.parametrize("value", [100, 1, 0, True, None, "", "US", "in", 2.5])
def test_a_small_value_can(value: object) -> None:
    assert not is_incredible(value)


def test_a_task_says_less_the_more_values_it_has() -> None:
    assert of_stated("10115", 1) > of_stated("10115", 100) > of_stated("10115", 10_000)


def test_equal_names_are_enough_where_the_same_task_is_done_again() -> None:
    assert of_match(1, equal_names=True) >= ENOUGH
    assert of_match(7, equal_names=False) < ENOUGH, "a short value alone is not"


def test_a_choice_earns_its_own_bits_and_not_those_of_the_id() -> None:
    assert of_choice(1) == 0
    assert of_choice(4) == 2


def test_a_lone_constant_earns_nothing_from_one_task() -> None:
    assert of_constant() == 0
    assert of_constant(tasks=2) > 0


def test_a_common_word_in_a_long_text_says_little_and_a_code_much() -> None:
    assert of_mention("payment", words=300, codes=3) < ENOUGH
    assert of_mention("#W1001", words=300, codes=3) > ENOUGH
