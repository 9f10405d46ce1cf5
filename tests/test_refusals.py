"""Calls that failed in traces teach what must be so before the call is made."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.requirements import requirements
from em.runner.routine import PlanStep, Routine
from em.traces.trace import Message, Mission, ToolCall, Trace

READS = ("find_user", "get_user", "get_account")


class Bank:
    """Accounts that money is paid from. Each person has two."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.accounts = {
            f"ACC-{70100 + n}": {"holder": f"ana_{3100 + n // 2}", "balance": 100 + 10 * n}
            for n in range(40)
        }

    def tools(self) -> dict[str, Callable[..., Any]]:
        def find_user(email: str) -> str:
            return f"ana_{email.removeprefix('ana').partition('@')[0]}"

        def get_user(user_id: str) -> Any:
            return {"accounts": [k for k, a in self.accounts.items() if a["holder"] == user_id]}

        def get_account(account_id: str) -> Any:
            return dict(self.accounts[account_id])

        def pay_bill(account_id: str, amount: int) -> Any:
            account = self.accounts[account_id]
            if account.get("blocked"):
                raise ValueError(f"account {account_id} is blocked")
            if account["balance"] < amount:
                raise ValueError("balance too low")
            self.done.append((account_id, amount))
            return {"ok": True}

        def close_card(account_id: str) -> Any:
            self.done.append((account_id, "closed"))
            return {"ok": True}

        return {
            "find_user": find_user,
            "get_user": get_user,
            "get_account": get_account,
            "pay_bill": pay_bill,
            "close_card": close_card,
        }

    def trace(self, n: int, request: str, *calls: tuple[str, dict[str, Any]]) -> Trace:
        tools = self.tools()
        mail = f"ana{3100 + n}@bank.example"
        events: list[Any] = [Message(role="user", text=f"I am {mail}. {request}")]
        about = [("find_user", {"email": mail}), ("get_user", {"user_id": f"ana_{3100 + n}"})]
        for name, args in (*about, *calls):
            effect: Any = "read" if name in READS else "write"
            try:
                found: Any = {"result": tools[name](**args)}
            except ValueError as error:
                found = {"error": str(error)}
            events.append(ToolCall(tool=name, args=args, effect=effect, **found))
        return Trace(mission=Mission(goal="serve"), events=events, outcome="success")

    def paid(self, n: int, amount: int, refused: int = 0) -> Trace:
        """Somebody paid; refused: an amount that the agent tried before with the other account."""
        first, second = f"ACC-{70100 + 2 * n}", f"ACC-{70101 + 2 * n}"
        calls: list[tuple[str, dict[str, Any]]] = []
        if refused:
            calls = [
                ("get_account", {"account_id": second}),
                ("pay_bill", {"account_id": second, "amount": refused}),
            ]
        return self.trace(
            n,
            f"Please pay {amount} from {first}.",
            *calls,
            ("get_account", {"account_id": first}),
            ("pay_bill", {"account_id": first, "amount": amount}),
        )

    def closed(self, n: int) -> Trace:
        account = {"account_id": f"ACC-{70100 + 2 * n}"}
        return self.trace(
            n,
            f"Please close {account['account_id']}.",
            ("get_account", account),
            ("close_card", account),
        )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def learnt(memory: Memory, bank: Bank, *traces: Trace) -> Routine:
    every = [*traces, *(bank.closed(n) for n in (6, 7, 8))]
    return memory.compile([memory.add_trace(trace) for trace in every], name="serve")


def guards(routine: Routine) -> list[str]:
    step = routine.steps[0]
    assert isinstance(step, PlanStep)
    return [*step.effects["pay_bill"].guards]


def test_an_amount_above_the_balance_is_refused_with_the_recorded_error(memory: Memory) -> None:
    bank = Bank()
    traces = [bank.paid(0, 51), bank.paid(1, 52, refused=901), bank.paid(2, 53, refused=902)]
    routine = learnt(memory, bank, *traces)
    assert "account(account_id).balance >= amount" in guards(routine)
    world = Bank()
    text = {"request": "I am ana3111@bank.example. Please pay 61 from ACC-70122."}
    world.accounts["ACC-70122"]["balance"] = 60
    low = memory.run(routine, text, world.tools(), remember=False)
    assert (low.status, world.done) == ("needs_input", [])
    assert low.pending_prompt is not None
    assert "balance too low" in low.pending_prompt.message
    world.accounts["ACC-70122"]["balance"] = 61
    fine = memory.run(routine, text, world.tools(), remember=False)
    assert (fine.status, world.done) == ("ok", [("ACC-70122", 61)])
    said = {one.step_id: one.hold for one in requirements(routine)}
    assert any("balance too low" in words for words in said["pay_bill"])


def test_a_flag_that_only_refused_records_had_is_refused(memory: Memory) -> None:
    bank = Bank()
    for account in ("ACC-70103", "ACC-70105"):
        bank.accounts[account]["blocked"] = True
    traces = [bank.paid(0, 51), bank.paid(1, 52, refused=55), bank.paid(2, 53, refused=56)]
    routine = learnt(memory, bank, *traces)
    world = Bank()
    world.accounts["ACC-70122"]["blocked"] = True
    text = {"request": "I am ana3111@bank.example. Please pay 61 from ACC-70122."}
    result = memory.run(routine, text, world.tools(), remember=False)
    assert (result.status, world.done) == ("needs_input", [])
    assert result.pending_prompt is not None
    # The ids of other people's accounts are not shown.
    assert "account … is blocked" in result.pending_prompt.message


def test_one_failure_is_too_little_to_learn_from(memory: Memory) -> None:
    bank = Bank()
    traces = [bank.paid(0, 51), bank.paid(1, 52, refused=901), bank.paid(2, 53)]
    assert not any("balance" in text for text in guards(learnt(memory, bank, *traces)))


def test_what_does_not_separate_all_failures_teaches_nothing(memory: Memory) -> None:
    bank = Bank()
    traces = [bank.paid(0, 51), bank.paid(1, 52, refused=901), bank.paid(2, 53, refused=902)]
    # The same error with enough money: the balance is not the reason.
    events = [
        ToolCall(tool="get_account", args={"account_id": "ACC-70107"},
                 result={"holder": "ana_3103", "balance": 170}, effect="read"),
        ToolCall(tool="pay_bill", args={"account_id": "ACC-70107", "amount": 30},
                 error="balance too low", effect="write"),
    ]  # fmt: skip
    last = bank.paid(3, 54)
    last = Trace(
        mission=last.mission,
        events=[*last.events[:3], *events, *last.events[3:]],
        outcome="success",
    )
    assert not any("balance" in text for text in guards(learnt(memory, bank, *traces, last)))
