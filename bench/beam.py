"""BEAM: long chats between a user and an assistant, with the messages that answer each question.

Nothing of it is part of em: `git clone https://github.com/mohammadtavakoli78/BEAM`, and set EM_BEAM
to that folder.
"""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.locomo import Asked, Conversation

CHOSEN_ON, SCORED_ON = range(1, 11), range(11, 21)
CATEGORIES = (
    *("contradictions", "order of events", "extraction", "instructions", "updates"),
    *("several sessions", "preferences", "summaries", "temporal"),
)
"""The kinds of questions that have evidence, in the order of the files; the first has none."""


def load(numbers: range) -> list[Conversation]:
    """The chats of 100K tokens with these numbers; none where the checkout is not there."""
    folder = Path(os.environ.get("EM_BEAM", "../beam")) / "chats" / "100K"
    if not folder.is_dir():
        print(f"no chats in {folder}; this bench is passed over")
        print("    git clone https://github.com/mohammadtavakoli78/BEAM, and set EM_BEAM to it")
        return []
    return [_chat(f"beam-{n}", folder / str(n)) for n in numbers]


def _chat(name: str, folder: Path) -> Conversation:
    turns = list(_turns(name, json.loads((folder / "chat.json").read_text())))
    known = {turn["source"] for turn in turns}
    asked = json.loads((folder / "probing_questions" / "probing_questions.json").read_text())
    questions = []
    for kind, those in enumerate(asked.values()):
        for one in those:
            evidence = frozenset(map(str, _ids(one.get("source_chat_ids", ())))) & known
            if evidence:
                questions.append(Asked(one["question"], kind, evidence))
    return Conversation(name, turns, questions)


def _ids(given: Any) -> Iterator[int]:
    if isinstance(given, dict):
        given = list(given.values())
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, list | dict):
            yield from _ids(one)
        elif isinstance(one, int):
            yield one


def _turns(name: str, batches: list[Any]) -> Iterator[dict[str, Any]]:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    for number, batch in enumerate(batches):
        for pair in batch["turns"]:
            for said in pair:
                anchor = said.get("time_anchor")
                if anchor:
                    at = datetime.strptime(anchor + " +0000", "%B-%d-%Y %z")
                text = said["content"].partition(" ->-> ")[0]
                yield {
                    "subject": name,
                    "text": text,
                    "at": at,
                    "role": said["role"],
                    "session": f"batch {number}",
                    "source": str(said["id"]),
                }
