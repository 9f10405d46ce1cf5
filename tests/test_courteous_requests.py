"""Requests like a template, with other courtesies around them, and what only looks like one."""

from collections.abc import Iterator
from typing import Any

import pytest

from em import Memory
from em.traces.trace import Message, Mission, ToolCall, Trace


class Desk:
    """A memory that learnt one kind of task, and what a run of it did."""

    def __init__(self, memory: Memory, tool: str, said: dict[str, dict[str, Any]]) -> None:
        traces = [
            Trace(
                mission=Mission(goal="work"),
                events=[
                    Message(role="user", text=words),
                    ToolCall(tool=tool, args=args, result={"ok": True}, effect="write"),
                ],
                outcome="success",
            )
            for words, args in said.items()
        ]
        self._memory, self._tool = memory, tool
        ids = [memory.add_trace(one) for one in traces]
        self.routine = memory.compile(ids, name=tool.replace("_", "-"))
        assert self.routine.request is not None

    def done(self, request: str) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []

        def call(**args: Any) -> dict[str, bool]:
            made.append(args)
            return {"ok": True}

        tools = {self._tool: call}
        result = self._memory.run(self.routine, {"request": request}, tools, remember=False)
        assert made or result.status == "needs_input", result
        return made


@pytest.fixture(scope="module")
def desks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Desk]]:
    people = enumerate(("ana", "bo", "cy", "di"), 1)
    texts = {"Ana": "the train is late", "Bo": "lunch is ready", "Cy": "the door is open",
             "Di": "we start at nine"}  # fmt: skip
    with Memory(tmp_path_factory.mktemp("desks") / "em.db") as memory:
        yield {
            "assign": Desk(
                memory,
                "assign_bug",
                {
                    f"Assign BUG-40{n} to {who}.": {"bug": f"BUG-40{n}", "person": who}
                    for n, who in people
                },
            ),
            "close": Desk(
                memory,
                "close_bug",
                {f"Please close BUG-4{n} as stale, thanks!": {"bug": f"BUG-4{n}"} for n in "1234"},
            ),
            "tell": Desk(
                memory,
                "send_message",
                {f"Tell {who} that {text}.": {"person": who, "text": text}
                 for who, text in texts.items()},
            ),
        }  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["Assign BUG-216 to priya", "Please assign BUG-216 to priya.", "hey assign BUG-216 to priya",
     "Hi, assign BUG-216 to priya. Thanks!", "Good morning! pls assign BUG-216 to priya!",
     "Assign BUG-216 to priya, please.", "Assign BUG-216 to priya. Thank you very much."],
)  # fmt: skip
def test_courtesies_may_be_added_or_left_out(desks: dict[str, Desk], words: str) -> None:
    assert desks["assign"].done(words) == [{"bug": "BUG-216", "person": "priya"}]


@pytest.mark.parametrize(
    "words",
    ["Close BUG-216 as stale", "close BUG-216 as stale.", "Hi! Close BUG-216 as stale, pls"],
)
def test_recorded_courtesies_may_be_left_out(desks: dict[str, Desk], words: str) -> None:
    assert desks["close"].done(words) == [{"bug": "BUG-216"}]


@pytest.mark.parametrize(
    "words",
    ["Assign BUG-216 to priya?", "Assign BUG-216 to priya...",
     "Thanks, but assign BUG-216 to priya", "Assign BUG-216 to priya. Please don't.",
     "Assign BUG-216 to please.", "Assign BUG-216 to hi",
     "Assign BUG-216 to thanks", "Assign BUG-216 to priya and bo", "Ok? Assign BUG-216 to priya.",
     "No thanks. Assign BUG-216 to priya.", "Thanks for nothing. Assign BUG-216 to priya.",
     "Assign BUG-216 to priya please no", "Again. Assign BUG-216 to priya.", "Please BUG-216 to jo",
     "Could I assign BUG-216 to priya", "Assign BUG-216 to priya; thanks, no."],
)  # fmt: skip
def test_what_is_no_courtesy_is_asked_about(desks: dict[str, Desk], words: str) -> None:
    assert desks["assign"].done(words) == []


@pytest.mark.parametrize(
    "words",
    ["Tell Eve that the bus is full", "Please tell Eve that the bus is full.",
     "Hi! Tell Eve that the bus is full"],
)  # fmt: skip
def test_a_text_at_the_end_is_taken_as_it_is(desks: dict[str, Desk], words: str) -> None:
    assert desks["tell"].done(words) == [{"person": "Eve", "text": "the bus is full"}]


@pytest.mark.parametrize(
    "words",
    ["Tell Eve that the bus is full, please.", "Tell Eve that the bus is full, thanks",
     "Tell Eve that the bus is full. Thanks!", "Tell Eve that thanks", "Tell Eve that we won!"],
)  # fmt: skip
def test_whether_thanks_belong_to_a_text_is_asked(desks: dict[str, Desk], words: str) -> None:
    assert desks["tell"].done(words) == []


# --- a plain word in a blank ----------------------------------------------------------------------

ROOMS = ("kitchen", "bedroom", "office", "garage", "nursery")


def _thermostat(room: str) -> dict[str, Any]:
    if room not in ROOMS:
        raise LookupError(f"there is no {room}")
    return {"room": room, "mode": "auto"}


@pytest.fixture(scope="module")
def warmer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Memory(tmp_path_factory.mktemp("warmer") / "em.db") as memory:
        ids = [
            memory.add_trace(
                Trace(
                    mission=Mission(goal="warm"),
                    events=[
                        Message(role="user", text=f"Set the temperature in the {room} to {n}."),
                        ToolCall(tool="get_thermostat", args={"room": room},
                                 result=_thermostat(room), effect="read"),
                        ToolCall(tool="set_temperature", args={"room": room, "degrees": n},
                                 result={"room": room, "target": n}, effect="write"),
                    ],
                    outcome="success",
                )
            )
            for room, n in (("kitchen", 22), ("bedroom", 18), ("office", 21))
        ]  # fmt: skip
        routine = memory.compile(ids, name="warm")

        def done(request: str) -> list[tuple[str, int]]:
            made: list[tuple[str, int]] = []

            def warm(room: str, degrees: int) -> dict[str, Any]:
                made.append((room, degrees))
                return {"room": room, "target": degrees}

            tools = {"get_thermostat": _thermostat, "set_temperature": warm}
            memory.run(routine, {"request": request}, tools, remember=False)
            return made

        yield done


def test_a_plain_word_may_stand_where_three_others_stood(warmer: Any) -> None:
    assert warmer("Set the temperature in the garage to 15.") == [("garage", 15)]
    assert warmer("Please set the temperature in the nursery to 23") == [("nursery", 23)]


@pytest.mark.parametrize(
    "words",
    ["Set the temperature in the morning to 15.", "Set the temperature in the pantry to 15.",
     "Set the temperature in the other room to 15.", "Set the temperature of the garage to 15.",
     "Set the temperature in the garage and nursery to 15.",
     "Set the temperature in the garage to 15 or 16.", "Set the temperature in the garage to -15.",
     "Set the temperature in the garage to 15 when we are away.",
     "Set the temperature in the rest to 15.", "Set the temperature in the garage to 15?",
     "Set the temperature in his garage to 15.", "Set the temperature in the garage to 0."],
)  # fmt: skip
def test_other_words_around_or_no_such_value_have_no_effect(warmer: Any, words: str) -> None:
    assert warmer(words) == []
