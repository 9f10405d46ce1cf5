"""Words that stand for a value and are none fill no blank; nor does a value in another's place."""

from typing import Any

import pytest

from test_signs import Learnt, stock

__all__ = ["stock"]


@pytest.mark.parametrize(
    "word", ["ALL", "ANY", "TBD", "YOU", "NONE", "N/A", "?", "IT", "XXX", "Any", "UNKNOWN"]
)
@pytest.mark.parametrize(
    "request_", ["Move 30 TAPE from {} to BER.", "Move 30 {} from HAM to BER."]
)
def test_a_word_that_stands_for_a_value_fills_no_blank(
    stock: Learnt, word: str, request_: str
) -> None:
    stock.asks(request_.format(word))


@pytest.mark.parametrize(
    "request_",
    [
        "Move 30 TAPE to HAM to BER.",
        "Move 30 TAPE from HAM, BER.",
        "Move 30 TAPE from HAM from BER.",
        "Move 30 TAPE HAM BER.",
        "Move 30 30 TAPE from HAM to BER.",
    ],
)
def test_a_value_fills_a_blank_only_behind_the_recorded_words(stock: Learnt, request_: str) -> None:
    stock.asks(request_)


def test_values_stand_in_a_recorded_order(stock: Learnt) -> None:
    moved: list[dict[str, Any]] = [{"count": 30, "sku": "TAPE", "source": "HAM", "target": "BER"}]
    assert stock.does("Please move 30 TAPE from HAM to BER.") == moved
    stock.asks("Please move 30 TAPE to BER from HAM.")
