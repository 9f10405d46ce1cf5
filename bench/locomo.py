"""The LOCOMO conversations: turns as observations, questions with the turns that answer them."""

import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(os.environ.get("EM_BENCH_DATA", "../shared/data")) / "locomo" / "locomo_dev5.json"


class Asked(NamedTuple):
    """A question, its category, and the ids of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[str]


class Conversation(NamedTuple):
    name: str
    turns: list[dict[str, Any]]
    """As `observe_many` takes them; `source` is the turn's id."""
    questions: list[Asked]


class Locomo(NamedTuple):
    conversations: list[Conversation]
    without_evidence: int
    malformed: int


def load(path: Path = DATA) -> Locomo | None:
    """All conversations; None where the file is not there."""
    if not path.exists():
        print(f"no data in {path}: set EM_BENCH_DATA; this bench is passed over")
        return None
    conversations, without, malformed = [], 0, 0
    for item in json.loads(path.read_text()):
        name = item["sample_id"]
        turns = list(_turns(name, item["conversation"]))
        known = {turn["source"] for turn in turns}
        questions = []
        for asked in item["qa"]:
            evidence = frozenset(asked["evidence"]) & known
            without += not asked["evidence"]
            malformed += len(set(asked["evidence"]) - known)
            if evidence:
                questions.append(Asked(asked["question"], asked["category"], evidence))
        conversations.append(Conversation(name, turns, questions))
    return Locomo(conversations, without, malformed)


def _turns(name: str, conversation: dict[str, Any]) -> Any:
    for key, turns in conversation.items():
        if not re.fullmatch(r"session_\d+", key) or not isinstance(turns, list):
            continue
        said = conversation[f"{key}_date_time"] + " +0000"
        at = datetime.strptime(said, "%I:%M %p on %d %B, %Y %z")
        for turn in turns:
            caption = turn.get("blip_caption")
            yield {
                "subject": name,
                "text": f"{turn['text']} [image: {caption}]" if caption else turn["text"],
                "at": at,
                "speaker": turn["speaker"],
                "session": key,
                "source": turn["dia_id"],
            }
