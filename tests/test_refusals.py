"""Calls that failed in traces teach what must be so before the call is made."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler.export.python import export_python
from em.runner.package import opened
from em.runner.requirements import requirements
from em.runner.routine import PlanStep, Routine, ToolStep
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


def reasons(routine: Routine) -> dict[str, str]:
    """Return the checks that failed calls taught, with their error."""
    steps = [step for step in routine.steps if isinstance(step, PlanStep)]
    effects = [effect for step in steps for effect in step.effects.values()]
    return {text: error for effect in effects for text, error in effect.reasons.items()}


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
    assert reasons(learnt(memory, bank, *traces)) == {}


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
    assert reasons(learnt(memory, bank, *traces, last)) == {}


# --- routines of steps, and free words ------------------------------------------------------------


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

    def trace(self, n: int, request: str, *refused: int, looked: bool = True) -> Trace:
        """Somebody got a copy; the agent tried the refused ones before."""
        events: list[Any] = [Message(role="user", text=request.format(f"C-{7100 + n}"))]
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
        return Trace(mission=Mission(goal="lend"), events=events, outcome="success")


TEMPLATE = ["Lend {} to me now."] * 6
FREE = [
    "The rain is endless! Could you lend me {} for the week?",
    "My son reads so much. I think you should lend {} for the week.",
    "We met at the fair and talked; please lend {} for the week.",
    "Such lovely weather today, right? Do lend me {} for the week.",
    "I told my boss about you: lend {} for the week.",
    "Grandma is coming on Sunday! Lend me {} for the week.",
]


def lending(memory: Memory, words: list[str], **options: Any) -> Routine:
    library = Library()
    tried = {1: [61], 2: [62]}
    traces = [library.trace(n, text, *tried.get(n, [])) for n, text in enumerate(words)]
    return memory.compile([memory.add_trace(one) for one in traces], name="lend", **options)


@pytest.mark.parametrize("words", [TEMPLATE, FREE], ids=["a template", "free words"])
def test_a_refused_call_teaches_a_guard(memory: Memory, words: list[str]) -> None:
    routine = lending(memory, words)
    assert isinstance(routine.steps[0], PlanStep) == (words is FREE)
    library = Library()
    good = {"request": words[0].format("C-7141")}
    assert memory.run(routine, good, library.tools(), remember=False).status == "ok"
    bad = {"request": words[0].format("C-7171")}
    result = memory.run(routine, bad, library.tools(), remember=False)
    assert result.status in ("failed", "needs_input")
    assert library.lent == ["C-7141"]
    asked = result.pending_prompt
    said = str(result.failure) if asked is None else asked.message
    assert "copy … is damaged" in said
    assert any("damaged" in hold for one in requirements(routine) for hold in one.hold)


def test_the_way_of_one_trace_has_the_guards_of_its_refused_calls(memory: Memory) -> None:
    trace = Library().trace(1, "Lend {} to me now.", 61, 62)
    routine = memory.compile([memory.add_trace(trace)], name="lend")
    (lend,) = (step for step in routine.steps if isinstance(step, ToolStep) and step.reasons)
    assert lend.reasons == {'"damaged" not in every(copy, "state")': "copy … is damaged"}
    assert set(lend.reasons) <= set(lend.guards)


def test_traces_of_the_same_words_have_the_guards_of_refused_calls(memory: Memory) -> None:
    library = Library()
    traces = [library.trace(1, "Lend my copy.", *refused) for refused in ((), (61,), (62,))]
    routine = memory.compile([memory.add_trace(one) for one in traces], name="lend")
    found = [step.reasons for step in routine.steps if isinstance(step, ToolStep) and step.reasons]
    assert found == [{'"damaged" not in every(copy, "state")': "copy … is damaged"}]


def test_a_refused_call_of_the_left_out_trace_does_not_help_its_trial(memory: Memory) -> None:
    library = Library()
    traces = [library.trace(n, "Lend {} to me now.", *([61] * (n == 1))) for n in range(6)]
    # Of one failure nothing is learnt, so a second one counts only where it is not left out.
    traces[2] = library.trace(2, "Lend {} to me now.", 62)
    routine = memory.compile([memory.add_trace(one) for one in traces], name="lend")
    assert routine.trials.count("right") == 6
    assert any(step.guards for step in routine.steps)


def test_without_a_read_of_the_record_a_refused_call_teaches_nothing(memory: Memory) -> None:
    library = Library()
    tried = {1: [61], 2: [62]}
    traces = [
        library.trace(n, "Lend {} to me now.", *tried.get(n, []), looked=False) for n in range(6)
    ]
    routine = memory.compile([memory.add_trace(one) for one in traces], name="lend")
    assert not any(step.reasons for step in routine.steps if isinstance(step, ToolStep))


def test_a_script_has_the_guards_of_refused_calls(memory: Memory, tmp_path: Path) -> None:
    lending(memory, TEMPLATE)
    with opened(memory.store, "lend") as package:
        (tmp_path / "lend.py").write_text(export_python(package))
    spec = importlib.util.spec_from_file_location("lend", tmp_path / "lend.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    library = Library()
    tools = library.tools()
    script.run({"request": "Lend C-7141 to me now."}, tools)
    with pytest.raises(Exception, match="the call failed then: copy … is damaged"):
        script.run({"request": "Lend C-7171 to me now."}, tools)
    assert library.lent == ["C-7141"]
