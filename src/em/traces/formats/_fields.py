"""From fields of transcripts to values: times, arguments, results, texts."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from em.values.canonical import Json

_decode = msgspec.json.Decoder().decode
_TEXTS = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text"})


def when(value: Any) -> datetime | None:
    """A moment, however it is written: ISO 8601, or seconds, milli-, micro- or nanoseconds."""
    if isinstance(value, str):
        if value.isdecimal():
            return when(int(value))
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    seconds = float(value)
    while seconds > 1e11:
        seconds /= 1e3
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def as_args(given: Any) -> Json:
    """The arguments of a call: an object, or the text of one."""
    if isinstance(given, str):
        given = as_value(given) if given.strip() else {}
    if given is None:
        return {}
    return given if isinstance(given, dict) else {"value": given}


def as_value(content: Any) -> Any:
    """A result: JSON that was written as text is read; a single text block is its text."""
    if isinstance(content, list):
        if content and all(is_text(block) for block in content):
            return as_value(text_of(content))
        return content
    if not isinstance(content, str) or not content.lstrip().startswith(("{", "[", '"')):
        return content
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content


def is_text(block: Any) -> bool:
    """Whether a block of content is text."""
    return isinstance(block, dict) and block.get("type") in _TEXTS and "text" in block


def text_of(content: Any) -> str:
    """The text in a content: itself, or that of its blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or "")
    if isinstance(content, list):
        return "\n".join(part for part in map(_block_text, content) if part)
    return ""


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    return str(block["text"]) if is_text(block) else ""


def tokens_of(usage: Any) -> int | None:
    """All tokens of one answer, in and out, whoever counts them."""
    if not isinstance(usage, dict):
        return None
    for name in ("total_tokens", "total"):
        if isinstance(usage.get(name), int):
            return int(usage[name])
    names = (
        "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
        "prompt_tokens", "completion_tokens", "input", "output",
    )  # fmt: skip
    counted = [usage[name] for name in names if isinstance(usage.get(name), int)]
    return sum(counted) if counted else None


def first_of(source: Json, names: Iterable[str]) -> Any:
    """The first of these fields that has a value."""
    return next((source[name] for name in names if source.get(name) not in (None, "")), None)


def text_or_json(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
