"""Evidence is weighed in bits: ids say much, small numbers little."""

from em.compiler.evidence import ENOUGH_TO_ACT, information, of_separation


def test_longer_values_have_more_information() -> None:
    for less, more in ((1, 100), (100, 100_000), ("12", "1234"), ("cup", "cup 4711"), (1.5, 1.234)):
        assert information(less) < information(more)


def test_a_huge_number_is_weighed_too() -> None:
    assert information(10**5000) == information(10**30)


def test_what_separates_a_few_traces_may_do_so_by_chance() -> None:
    assert of_separation([3, 3], 2, 5) < ENOUGH_TO_ACT < of_separation([10, 10], 2, 5)
    assert of_separation([10, 10], 20, 5) == 0, "ids separate any traces"
    assert of_separation([10, 10], 2, 500) < of_separation([10, 10], 2, 5)
    assert of_separation([19, 1], 2, 5) < ENOUGH_TO_ACT, "one trace shows little"
