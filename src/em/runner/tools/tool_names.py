"""Names under which agents call a tool: what every protocol and model takes."""

import re
from collections.abc import Collection
from hashlib import sha256

LONGEST = 64
_PLAIN = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


def tool_name(name: str, taken: Collection[str] = ()) -> str:
    """The name itself where it can be called; else one like it, the same every time."""
    if _PLAIN.fullmatch(name) and name not in taken:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(8, len(digest)):
        sign = f"-{digest[:length]}"
        begin = _OTHER.sub("_", name).strip("_")[: LONGEST - len(sign)]
        if f"{begin or 'routine'}{sign}" not in taken:
            return f"{begin or 'routine'}{sign}"
    raise AssertionError("no two names have the same hash")


def one_line(text: str, longest: int = 1024) -> str:
    """A description without characters that steer a terminal or a page, not too long."""
    shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return shown if len(shown) <= longest else shown[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"
