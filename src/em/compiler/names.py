"""Names that say what a thing holds: of saved results, steps and inputs."""

import keyword
import re

_VERBS = frozenset(
    "get list find search fetch read query lookup look check show describe view load select"
    " calculate compute parse extract resolve retrieve download".split()
)
_CUTS = frozenset("by with for from in of using via".split())
_RESERVED = frozenset("only pick nth str int float true false none".split())
"""What compiled expressions use themselves, and words that Jinja reads as values."""
_NOISE = frozenset("details detail info information data all the".split())


def words_of(name: str) -> list[str]:
    """The words of a name, however it is written."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def result_name(tool: str, *, is_write: bool) -> str:
    """What a call's result is called: `get_order_details` gives `order`."""
    words = words_of(tool)
    if is_write or not words or words[0] not in _VERBS:
        return identifier(f"{tool}_result")
    rest = words[1:]
    for cut, word in enumerate(rest):
        if word in _CUTS and cut > 0:
            rest = rest[:cut]
            break
    kept = [word for word in rest if word not in _NOISE]
    return identifier("_".join(kept) or f"{tool}_result")


def identifier(text: str) -> str:
    """A name that expressions can hold."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "value"
    if name[0].isdigit() or keyword.iskeyword(name) or name in _RESERVED:
        name = f"the_{name}"
    return name


class Names:
    """Hands out each name once: `order`, `order_2`, …"""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def free(self, name: str) -> str:
        """The name, or the first numbered one that is free."""
        free, number = name, 2
        while free in self._taken:
            free, number = f"{name}_{number}", number + 1
        self._taken.add(free)
        return free
