"""Money: amounts of one currency add up and compare; two currencies never do."""

from decimal import Decimal
from typing import Any

import pytest

from em import Memory
from em.errors import BadQuestion, InputError
from em.llm import ScriptedClient


@pytest.fixture
def spent(memory: Memory) -> Any:
    for amount in ("12.50 EUR", "7.50 EUR", "100 EUR"):
        memory.observe("ana", {"what": "food", "amount": amount}, type="Expense")
    return memory.checkpoint("ana")


def test_amounts_of_one_currency_add_up_and_compare(spent: Any) -> None:
    amounts = [one.amount for one in spent.expenses]
    total = sum(amounts)
    assert (total.amount, total.currency) == (Decimal("120.00"), "EUR")
    assert (amounts[0] - amounts[1]).amount == Decimal("5.00")
    assert (amounts[0] * 2).amount == Decimal("25.00")
    assert (max(amounts).amount, min(amounts).amount) == (Decimal(100), Decimal("7.50"))
    assert sorted(amounts)[0] == amounts[1]


def test_amounts_of_two_currencies_are_refused(memory: Memory, spent: Any) -> None:
    memory.observe("ana", {"what": "food", "amount": "$5"}, type="Expense")
    amounts = [one.amount for one in memory.checkpoint("ana").expenses]
    for act in (sum, max, sorted, lambda given: given[0] - given[3]):
        with pytest.raises(TypeError, match=r"EUR and USD|USD and EUR"):
            act(amounts)  # type: ignore[operator]  # each takes a list
    with pytest.raises(InputError, match="EUR and USD"):
        memory.ask("ana", code="sum(e.amount for e in expenses)")


@pytest.mark.parametrize("other", [1, 2.5, Decimal(3), "1 EUR"])
def test_an_amount_is_never_added_to_a_plain_number(spent: Any, other: Any) -> None:
    amount = spent.expenses[0].amount
    for act in (lambda: amount + other, lambda: other + amount, lambda: amount < other):
        with pytest.raises(TypeError):
            act()


def test_the_sandbox_adds_amounts_up_too(memory: Memory, spent: Any) -> None:
    code = "def answer(state):\n    return sum(e.amount for e in state.expenses)"
    reply = {"route": "code", "code": code, "parameters": {}}
    answer = memory.ask("ana", "How much?", llm=ScriptedClient([reply]))
    assert answer.value == {"amount": "120.00", "currency": "EUR"}
    memory.observe("ana", {"what": "food", "amount": "$5"}, type="Expense")
    memory.checkpoint("ana")
    with pytest.raises(BadQuestion, match="EUR and USD"):
        memory.ask("ana", "How much in all?", llm=ScriptedClient([reply] * 3))
