"""Free words that fill in values: a payment that is asked for, and words that are close to one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.run import RunResult
from em.traces.trace import Message, Mission, ToolCall, Trace

TASKS = (
    ("Send 20 dollars to Bob for the lunch.", 20, "Bob"),
    ("I'd like to send 35 dollars to Alice, she paid for the taxi.", 35, "Alice"),
    ("Could you please send Carol 50 dollars?", 50, "Carol"),
    ("Please transfer 15 dollars to Dave.", 15, "Dave"),
    ("Send 80 dollars to Erin now.", 80, "Erin"),
)


class Payer:
    """A routine learnt from payments, with the payments that its runs make."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        ids = [memory.add_trace(payment(*task)) for task in TASKS]
        self._routine = memory.compile(ids, name="pay")

    def run(self, request: str) -> tuple[RunResult, list[Any]]:
        paid: list[Any] = []

        def send_money(amount: float, recipient: str) -> Any:
            paid.append((amount, recipient))
            return {"status": "sent"}

        tools = {"send_money": send_money}
        ran = self._memory.run(self._routine, {"request": request}, tools, remember=False)
        return ran, paid


def payment(request: str, amount: int, recipient: str) -> Trace:
    call = ToolCall(
        tool="send_money",
        args={"amount": amount, "recipient": recipient},
        result={"status": "sent"},
        effect="write",
    )
    events: list[Any] = [Message(role="user", text=request), call]
    return Trace(mission=Mission(goal="pay"), events=events, outcome="success")


@pytest.fixture(scope="module")
def payer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Payer]:
    folder: Path = tmp_path_factory.mktemp("payer")
    with Memory(folder / "em.db") as memory:
        yield Payer(memory)


@pytest.mark.parametrize(
    ("request_", "paid"),
    [
        ("Send 33 dollars to Zoe.", (33, "Zoe")),
        ("Could you send 1,000 dollars to Zoe Smith?", (1000, "Zoe Smith")),
        ("I'd like to send 12 dollars to Omar for the lunch.", (12, "Omar")),
    ],
)
def test_a_payment_that_is_asked_for(payer: Payer, request_: str, paid: Any) -> None:
    ran, done = payer.run(request_)
    assert (ran.status, done) == ("ok", [paid]), ran


@pytest.mark.parametrize(
    "request_",
    [
        "I sent 33 dollars to Zoe.",
        "Zoe will send 33 dollars to Bob.",
        "Should I send 33 dollars to Zoe?",
        "Did you send 33 dollars to Zoe?",
        "How do I send 33 dollars to Zoe?",
        "I might send 33 dollars to Zoe.",
        "Never send 33 dollars to Zoe.",
        "Stop sending 33 dollars to Zoe.",
        "Cancel: send 33 dollars to Zoe.",
        "Send 33 dollars to Zoe. Just kidding!",
        "Please ask Zoe to send 33 dollars.",
        "Send 33 dollars to Zoe tomorrow.",
        "Send 33 dollars to Zoe every month.",
        "Send 33 dollars to Zoe if she asks.",
        "Send Zoe a postcard for 33 dollars.",
        "Send back the 33 dollars that Zoe gave me.",
        "Send 33 euros to Zoe.",
        "Send €33 to Zoe.",
        "Send about 33 dollars to Zoe.",
        "Send up to 33 dollars to Zoe.",
        "Send -33 dollars to Zoe.",
        "Send 3 times 33 dollars to Zoe.",
        "Send 33 dollars to Zoe or Bob.",
        "Send 33 dollars to Zoe, not Bob.",
        "Send 33 dollars to Zoe and 44 dollars to Bob.",
        "Send 33 dollars to nobody.",
        "Send 33 dollars from Zoe.",
        "Send 0 dollars to Zoe.",
        "Send 33 dollars.",
        "Send dollars to Zoe.",
        "Send 33 dollars to Zoe for the taxi.",
    ],
)
def test_words_that_are_close_to_a_payment(payer: Payer, request_: str) -> None:
    ran, done = payer.run(request_)
    assert (ran.status, done) == ("needs_input", []), ran
