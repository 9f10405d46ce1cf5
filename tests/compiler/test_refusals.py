"""Calls that failed in recordings teach what must be so before the call is made."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.routine import Routine
from em.traces.trace import Mission, ToolCall, Trace

READS = ("find_user", "get_user", "get_account")


def asked(n: int, amount: int) -> dict[str, Any]:
    """The inputs of a task."""
    account = f"ACC-{70100 + 2 * n}"
    return {"email": f"ana{3100 + n}@bank.example", "account_id": account, "amount": amount}


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

        return {
            "find_user": find_user,
            "get_user": get_user,
            "get_account": get_account,
            "pay_bill": pay_bill,
        }

    def trace(self, n: int, amount: int, *calls: tuple[str, dict[str, Any]]) -> Trace:
        tools = self.tools()
        mail = f"ana{3100 + n}@bank.example"
        events = []
        about = [("find_user", {"email": mail}), ("get_user", {"user_id": f"ana_{3100 + n}"})]
        for name, args in (*about, *calls):
            effect: Any = "read" if name in READS else "write"
            try:
                found: Any = {"result": tools[name](**args)}
            except ValueError as error:
                found = {"error": str(error)}
            events.append(ToolCall(tool=name, args=args, effect=effect, **found))
        return Trace(mission=Mission("pay", asked(n, amount)), events=events, outcome="success")

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
            amount,
            *calls,
            ("get_account", {"account_id": first}),
            ("pay_bill", {"account_id": first, "amount": amount}),
        )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def learnt(memory: Memory, *traces: Trace) -> Routine:
    return memory.compile([memory.add_trace(trace) for trace in traces], name="serve")


def pays(memory: Memory, routine: Routine, world: Bank, amount: int) -> bool:
    """Pay from an account that no recording had; return whether it was done."""
    ended = memory.run(routine, asked(11, amount), world.tools())
    assert (ended.status == "ok") == bool(world.done)
    return bool(world.done)


def test_an_amount_above_the_balance_is_refused(memory: Memory) -> None:
    bank = Bank()
    tried = {1: 901, 2: 902}
    routine = learnt(memory, *(bank.paid(n, 51 + n, tried.get(n, 0)) for n in range(5)))
    world = Bank()
    world.accounts["ACC-70122"]["balance"] = 60
    assert not pays(memory, routine, world, 61)
    world.accounts["ACC-70122"]["balance"] = 90
    assert pays(memory, routine, world, 61)


def test_a_flag_that_only_refused_records_had_is_refused(memory: Memory) -> None:
    bank = Bank()
    for account in ("ACC-70103", "ACC-70105"):
        bank.accounts[account]["blocked"] = True
    tried = {1: 55, 2: 56}
    routine = learnt(memory, *(bank.paid(n, 51 + n, tried.get(n, 0)) for n in range(5)))
    world = Bank()
    world.accounts["ACC-70122"]["blocked"] = True
    assert not pays(memory, routine, world, 61)


# --- a state that only refused records had --------------------------------------------------------


class Library:
    """Copies that are lent. The states of those that were lent differ; a damaged one is refused."""

    def __init__(self) -> None:
        self.lent: list[str] = []

    def tools(self) -> dict[str, Callable[..., Any]]:
        def get_copy(copy_id: str) -> Any:
            number = int(copy_id.removeprefix("C-")) - 7100
            state = "damaged" if number >= 50 else ("new", "used", "worn")[number % 3]
            return {"copy_id": copy_id, "state": state, "shelf": f"S-{300 + number}"}

        def lend(copy_id: str) -> Any:
            if get_copy(copy_id)["state"] == "damaged":
                raise ValueError(f"copy {copy_id} is damaged")
            self.lent.append(copy_id)
            return {"ok": True}

        return {"get_copy": get_copy, "lend": lend}

    def trace(self, n: int, *refused: int, looked: bool = True) -> Trace:
        """Somebody got a copy; the agent tried the refused ones before."""
        events = []
        for number in (*refused, n):
            args = {"copy_id": f"C-{7100 + number}"}
            for name, tool in self.tools().items():
                if name == "get_copy" and not looked:
                    continue
                try:
                    found: Any = {"result": tool(**args)}
                except ValueError as error:
                    found = {"error": str(error)}
                effect: Any = "read" if name == "get_copy" else "write"
                events.append(ToolCall(tool=name, args=args, effect=effect, **found))
        return Trace(
            mission=Mission("lend", {"copy_id": f"C-{7100 + n}"}), events=events, outcome="success"
        )


def lending(memory: Memory, *, looked: bool = True) -> Routine:
    library = Library()
    tried = {1: [61], 2: [62]}
    traces = [library.trace(n, *tried.get(n, []), looked=looked) for n in range(6)]
    return memory.compile([memory.add_trace(one) for one in traces], name="lend")


def test_a_refused_call_is_not_made_again_by_a_routine(memory: Memory) -> None:
    """What failed on the way is no step: one copy is lent, with one call."""
    routine = lending(memory, looked=False)
    library = Library()
    assert memory.run(routine, {"copy_id": "C-7141"}, library.tools()).status == "ok"
    assert library.lent == ["C-7141"]


def test_recordings_with_refused_calls_are_right_in_their_trials(memory: Memory) -> None:
    trials = lending(memory).trials
    assert trials.count("wrong") == 0
    assert trials.count("right") >= 4
