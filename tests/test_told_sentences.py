"""Free words with an effect: what no recorded request told has none, however it is put together.

Three kinds of task are learnt, each from requests in different words. Hostile wordings are made of
a plain request by what is put before it, behind it, into it, or by turning it round.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from em import Memory
from em.runner.package import find_routine, texts_of
from em.traces.trace import Message, Mission, ToolCall, Trace


class Kind(NamedTuple):
    """One effect, how it was asked for, another request for it, and others that are told too."""

    tool: str
    said: dict[str, dict[str, Any]]
    base: str
    args: dict[str, Any]
    told: tuple[str, ...]
    swapped: tuple[str, ...]


CARDS = Kind(
    "block_card",
    {
        "Please block CD-711, I lost it.": {"card_id": "CD-711"},
        "I need to block my card CD-712, it is gone!": {"card_id": "CD-712"},
        "Somebody took my purse. Block CD-713 please.": {"card_id": "CD-713"},
        "Could you block card CD-714 for me? It broke.": {"card_id": "CD-714"},
    },
    "block CD-716",
    {"card_id": "CD-716"},
    (
        "Block CD-716, I lost it.", "Hi, I want to block my card CD-716, it is gone.",
        "Could you please block card CD-716 for me?", "Block CD-716 now. Thank you very much!",
        "Good morning! Somebody took my purse. Block CD-716, thanks.",
    ),
    (
        "Please block my lost card, I need CD-716.", "CD-716 is the one I block.",
        "I lost it, block for me CD-716.", "Block my purse, somebody took CD-716.",
        "Block card CD-716, I lost it.", "Block CD-716 for me, it is gone.",
        "Could you for me block card CD-716?", "My card is CD-716, I need to block it.",
        "I lost my card CD-712, block it and keep CD-716.", "I need CD-716. Block my card.",
    ),
)  # fmt: skip
GARDEN = Kind(
    "water_garden",
    {
        "The roses look sad. Could you water the garden for 10 minutes?": {"minutes": 10},
        "It's so hot! Please water the garden for 25 minutes.": {"minutes": 25},
        "water the garden, 15 minutes please": {"minutes": 15},
        "I want you to water my garden for 30 minutes, thanks": {"minutes": 30},
        "Water the garden for 5 minutes": {"minutes": 5},
    },
    "water the garden for 20 minutes",
    {"minutes": 20},
    (
        "Water my garden for 20 minutes!", "It's so hot! Water the garden, 20 minutes, thank you.",
        "The roses look sad. I would like you to water the garden for 20 minutes.",
        "Hello there! Would you water the garden for 20 minutes, please?",
    ),
    (
        "Water the garden in 20 minutes.", "Water his garden for 20 minutes.",
        "Water the roses for 20 minutes.", "Water the garden for 20 minutes when it's so hot.",
        "Water the garden for 20 hours.", "Water the garden at 20.", "Water 20 minutes the garden.",
        "The garden is so hot for 20 minutes, water!", "Water the sad roses for 20 minutes.",
        "For 20 minutes I want you to look.", "Water the garden, the roses, for 20 minutes.",
    ),
)  # fmt: skip
VISITS = Kind(
    "cancel_appointment",
    {
        "Hi, please cancel my appointment A-5001.": {"appointment_id": "A-5001"},
        "I need to cancel appointment A-5002, thanks!": {"appointment_id": "A-5002"},
        "Could you cancel A-5003 for me? I have a cold.": {"appointment_id": "A-5003"},
    },
    "cancel appointment A-5004",
    {"appointment_id": "A-5004"},
    (
        "Please cancel appointment A-5004.", "I have a cold. I want to cancel appointment A-5004.",
        "Hello, could you cancel my appointment A-5004, please?",
        "Cancel A-5004 for me. I have a cold.",
    ),
    (
        "Please cancel A-5004. Cancel that.", "Cancel my cold for A-5004.",
        "Please cancel A-5004 was cancelled.", "I have a cold, cancel, A-5004.",
        "I need appointment A-5004, cancel A-5003.", "I have appointment A-5004. Cancel my cold.",
    ),
)  # fmt: skip
KINDS = (CARDS, GARDEN, VISITS)

BEFORE = (
    "I found it.", "I lack permission.", "The court prohibits it.", "I revoked my wish.",
    "These are his words.", "Let me think.", "I am unsure.", "We are against it.", "He begs me:",
    "I have it.", "It is mine.", "I need it.", "My son wrote:", "Is it ok?", "What would you do?",
    "I had a dream.", "You could do it then.", "Wait.", "For him.", "Later.", "I was like:",
)  # fmt: skip
LEADS = (
    "I would", "I might", "I can", "I will", "I have to", "You may", "You should have to", "They",
    "He wants to", "She needs you to", "I wish I could", "How to", "Who would", "When can I",
    "When he is here,", "Let him", "Make him", "So I could", "It was to", "Is it ok to", "May I",
    "Shall we", "Do I have to", "Did you", "It is great to", "I like to", "I need him to",
    "To", "By", "Once I go,", "I was asked to", "Ask him to", "It is my turn to", "With his ok,",
)  # fmt: skip
TAILS = (
    "when he is here", "with his ok", "when you can", "as I would", "for him", "for them", "to be",
    "so I could", "by him", "with him", "which was his", "since you can", "because I want it",
    "because the approval is missing", "because it is wrong", "now and then", "then", "at will",
    "of his", "about it", "for now", "was cancelled", "would be great", "might be", "is what I had",
    "is mine", "has been done", "had to wait", ", he would like", ", should you?", ", may I?",
    ", is that so?", ", what then?", ", I wish", ", I would", ", I could", "for me to look at",
    "and then", "and the garden", "and his", "on Monday", "in the morning", "by email", "as usual",
    "like a pro", "so that she can go", "until noon", "from there", "into it", ", I found it",
)  # fmt: skip
BEHIND = (
    "Let it be.", "I will do it.", "Thanks, I have it now.", "Is that ok?", "Cancel that.",
    "I want to be there.", "I withdraw my request.", "Forget that.", "It is his.", "I had to.",
    "Would you?", "I did that.", "It has been done.", "I may.", "That would be great.", "Ok?",
    "Well, well.", "How is that?", "It must be there.", "I can go now.", "He is here.", "Hmm.",
    "Stop.", "Wait for me.", "It is a joke.", "Then wait.", "And his.", "Twice.", "LOL", "Sure?",
    "I lost my mind.", "Do it when he is here.", "Thanks for nothing.", "No.", "Let me have it.",
)  # fmt: skip
INSERTED = (
    "his", "her", "their", "to", "not", "for", "about", "without", "when", "is", "was", "almost",
    "like", "on", "from", "no", "it", "that", "another", "old",
)  # fmt: skip


def hostile(kind: Kind) -> Iterator[str]:
    """Yield wordings of a request that change what it means."""
    base, begun = kind.base, kind.base[0].upper() + kind.base[1:]
    for text in BEFORE:
        yield f"{text} {begun}."
        yield f"Please {base}. {text}"
    for lead in LEADS:
        ending = (
            "?" if lead.split()[0] in ("Who", "When", "Is", "May", "Shall", "Do", "Did") else "."
        )
        yield f"{lead} {base}{ending}"
    for tail in TAILS:
        yield f"Please {base}{'' if tail[0] == ',' else ' '}{tail}{'' if tail[-1] == '?' else '.'}"
    for text in BEHIND:
        yield f"Please {base}. {text}"
        yield f"{begun}, {text[0].lower()}{text[1:]}"
    words = base.split()
    for word, place in itertools.product(INSERTED, range(1, len(words))):
        yield " ".join(["Please", *words[:place], word, *words[place:]]) + "."
    yield f"{begun}?"
    yield f"{begun}. {begun}."
    yield f"Could you {base}? Please {base}."
    yield f"{begun}..."
    yield f"{begun}: {base}."
    yield f'"{begun}."'
    yield from kind.swapped


class Learnt:
    """What was learnt about a kind, and what it did."""

    def __init__(self, memory: Memory, kind: Kind) -> None:
        traces = [
            Trace(
                mission=Mission(goal="work"),
                events=[
                    Message(role="user", text=words),
                    ToolCall(tool=kind.tool, args=args, result={"status": "ok"}, effect="write"),
                ],
                outcome="success",
            )
            for words, args in kind.said.items()
        ]
        self._memory, self._kind = memory, kind
        ids = [memory.add_trace(one) for one in traces]
        self.routine = memory.compile(ids, name=kind.tool.replace("_", "-"))
        assert "form:" in str(
            texts_of(find_routine(memory.store, self.routine.ref))["routine.yaml"]
        )

    def done(self, request: str, **given: Any) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []

        def call(**args: Any) -> dict[str, str]:
            made.append(args)
            return {"status": "ok"}

        result = self._memory.run(
            self.routine, {"request": request, **given}, {self._kind.tool: call}, remember=False
        )
        assert made or result.status == "needs_input", (request, result)
        return made


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Learnt]]:
    with Memory(tmp_path_factory.mktemp("kinds") / "em.db") as memory:
        yield {kind.tool: Learnt(memory, kind) for kind in KINDS}


def test_there_are_many_hostile_wordings() -> None:
    assert all(len({*hostile(kind)}) >= 200 for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tool)
def test_words_that_no_recorded_request_told_have_no_effect(
    learnt: dict[str, Learnt], kind: Kind
) -> None:
    assert [words for words in hostile(kind) if learnt[kind.tool].done(words)] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tool)
def test_what_was_told_is_done_also_with_other_courtesies(
    learnt: dict[str, Learnt], kind: Kind
) -> None:
    for words in (kind.base, f"Please {kind.base}.", *kind.told):
        assert learnt[kind.tool].done(words) == [kind.args], words


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tool)
def test_every_recorded_request_is_done_again(learnt: dict[str, Learnt], kind: Kind) -> None:
    for words, args in kind.said.items():
        assert learnt[kind.tool].done(words) == [args], words


def test_what_a_value_is_for_is_told_by_the_words_beside_it(tmp_path: Path) -> None:
    moved = Kind(
        "transfer_money",
        {
            "Rent is due. Please transfer 300 dollars from AC-411 to AC-512.":
                {"amount": 300, "source": "AC-411", "target": "AC-512"},
            "From AC-415, transfer 75 dollars to AC-516 please":
                {"amount": 75, "source": "AC-415", "target": "AC-516"},
            "It's payday! Could you transfer 20 dollars to AC-518 from AC-417?":
                {"amount": 20, "source": "AC-417", "target": "AC-518"},
            "Take 10 dollars out of AC-419 and transfer it to AC-520":
                {"amount": 10, "source": "AC-419", "target": "AC-520"},
        },
        "", {"amount": 33, "source": "AC-430", "target": "AC-531"}, (), (),
    )  # fmt: skip
    with Memory(tmp_path / "em.db") as memory:
        learnt = Learnt(memory, moved)
        for words in (
            "It is payday. Transfer 33 dollars from AC-430 to AC-531.",
            "Transfer 33 dollars to AC-531 from AC-430.",
            "Take 33 dollars out of AC-430 and transfer it to AC-531.",
        ):
            assert learnt.done(words) == [moved.args], words
        assert learnt.done("Transfer 33 dollars to AC-531.", source="AC-430") == [moved.args]
        for words in (
            "Transfer 33 dollars from AC-430 to AC-531 from AC-417.",
            "From AC-430, transfer 33 dollars from AC-531.",
            "From AC-430 to AC-531. Transfer 33 dollars.",
            "Take 33 dollars out of AC-430 to AC-531 and transfer it.",
            "Transfer $33 from AC-430 to AC-531.",
            "Rent is due? Transfer 33 dollars from AC-430 to AC-531.",
            "Transfer 33 dollars from AC-531 to AC-531.",
            "33 dollars from AC-430 to AC-531.",
            "Transfer 33 dollars to AC-531.",
        ):
            assert learnt.done(words) == [], words


def test_what_only_one_of_two_effects_is_asked_for_is_not_done(tmp_path: Path) -> None:
    """No request says only `block card <card_id>`; parts of two requests together would."""
    said = (
        "Please block card CD-711 and order a new one.",
        "I lost my card CD-712. Block it and order a new one please",
        "Could you block CD-713 and send me a new card?",
        "My card CD-714 is gone, block it and order a replacement",
    )
    traces = [
        Trace(
            mission=Mission(goal="replace"),
            events=[
                Message(role="user", text=words),
                ToolCall(tool="block_card", args={"card_id": f"CD-71{n}"}, result={"ok": True},
                         effect="write"),
                ToolCall(tool="order_card", args={"card_id": f"CD-71{n}", "kind": "debit"},
                         result={"ok": True}, effect="write"),
            ],
            outcome="success",
        )
        for n, words in enumerate(said, 1)
    ]  # fmt: skip
    done: list[Any] = []

    def write(**args: Any) -> dict[str, bool]:
        done.append(args["card_id"])
        return {"ok": True}

    tools = {"block_card": write, "order_card": write}
    with Memory(tmp_path / "em.db") as memory:
        routine = memory.compile([memory.add_trace(one) for one in traces], name="replace")
        for words in ("Please block card CD-716.", "Block CD-716", "I lost my card CD-716."):
            memory.run(routine, {"request": words}, tools, remember=False)
            assert done == [], words
        asked = "I lost my card CD-716. Block it and order a new one."
        memory.run(routine, {"request": asked}, tools, remember=False)
        assert done == ["CD-716", "CD-716"]
