"""Evidence is weighed in one place: ids say much, small numbers little, choices what they chose."""

import pytest

from em.compiler.evidence import (
    ENOUGH,
    information,
    is_incredible,
    of_choice,
    of_constant,
    of_match,
    of_mention,
    of_separation,
)


@pytest.mark.parametrize("value", ["#W2378156", "123456789", 123456789, "ana.lopez@shop.example"])
def test_an_id_can_not_stand_in_two_places_by_chance(value: object) -> None:
    assert is_incredible(value)


@pytest.mark.parametrize("value", [100, 1, 0, True, None, "", "US", "in", 2.5])
def test_a_small_value_can(value: object) -> None:
    assert not is_incredible(value)


def test_longer_values_have_more_information() -> None:
    for less, more in ((1, 100), (100, 100_000), ("12", "1234"), ("cup", "cup 4711"), (1.5, 1.234)):
        assert information(less) < information(more)


def test_a_huge_number_is_weighed_too() -> None:
    assert information(10**5000) == information(10**30)


def test_a_match_says_less_the_more_places_it_could_have_matched() -> None:
    assert of_match("10115", 1) > of_match("10115", 100) > of_match("10115", 10_000)


def test_equal_names_are_evidence() -> None:
    assert of_match("Porto", 40) < ENOUGH <= of_match("Porto", 1, equal_names=True)


def test_a_choice_earns_its_own_bits_for_each_task_and_not_those_of_the_id() -> None:
    assert of_choice(1) == 0
    assert of_choice(4) == 2
    assert of_choice(4, tasks=5) == 10


def test_a_lone_constant_earns_nothing_from_one_task() -> None:
    assert of_constant() == 0
    assert of_constant(tasks=2) > 0


def test_a_common_word_in_a_long_request_says_little_and_a_code_much() -> None:
    assert of_mention("payment", words=300, codes=3) < ENOUGH
    assert of_mention("#W1001", words=300, codes=3) > ENOUGH


def test_what_separates_a_few_traces_may_do_so_by_chance() -> None:
    assert of_separation([3, 3], 2, 5) < ENOUGH < of_separation([10, 10], 2, 5)
    assert of_separation([10, 10], 20, 5) == 0, "ids separate any traces"
    assert of_separation([10, 10], 2, 500) < of_separation([10, 10], 2, 5)
    assert of_separation([19, 1], 2, 5) < ENOUGH, "one trace shows little"
