"""Values in messages: as JSON, and not too long."""

from typing import Any

import msgspec

LONGEST = 300


def short(value: Any) -> str:
    """A value as a message shows it."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
