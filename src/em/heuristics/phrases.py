"""The words of mined lessons: errors without what was of one time, calls and goals in short."""

import re
from typing import Any

import msgspec

from em.compiler.calls import TracedCall

LONGEST_ERROR = 160
LONGEST_VALUE = 60
LONGEST_GOAL = 300

_PREFIX = re.compile(r"^(?:error|exception)\s*[:\-]\s*", re.IGNORECASE)
_OF_ONE_TIME = re.compile(
    r"\"[^\"]*\"|(?<!\w)'[^']*'|\b0x[0-9a-f]+\b|(?:/[\w.\-]+){2,}|[\w.\-+]+@[\w.\-]+"
    r"|#?\b\w*\d\w*(?:[-_.]\w*\d\w*)*\b",
    re.IGNORECASE,
)
GAP = "…"


def error_text(error: Any) -> str:
    """What an error says, in one line: the last of a traceback, else the first."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error") or msgspec.json.encode(error).decode()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "an error without words"
    return lines[-1] if "Traceback" in lines[0] else lines[0]


def error_shape(error: Any) -> str:
    """An error's words without names, numbers and values, which differ from time to time."""
    text = _PREFIX.sub("", error_text(error))
    shape = " ".join(_OF_ONE_TIME.sub(GAP, text).split())
    return cut(shape, LONGEST_ERROR) if re.search(r"[^\W\d_]", shape) else cut(text, LONGEST_ERROR)


def call_text(call: TracedCall) -> str:
    """A call as one line: `get_order(order_id='#W1')`."""
    args = ", ".join(f"{name}={value_text(value)}" for name, value in call.args.items())
    return f"{call.name}({cut(args, 240)})"


def value_text(value: Any) -> str:
    """A value, cut where it is long."""
    return cut(msgspec.json.encode(value).decode(), LONGEST_VALUE)


def names_text(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def goal_text(goal: str) -> str:
    """A goal in short."""
    return cut(" ".join(goal.split()), LONGEST_GOAL)


def cut(text: str, size: int) -> str:
    """A text, cut where it is longer."""
    return text if len(text) <= size else text[: size - 1].rstrip() + GAP
