"""What a run's input names: the addresses and files that a person wants this run to read."""

import re
from typing import Any
from urllib.parse import urlsplit

from em.runner.tools.permissions import host_of
from em.values.leaves import texts

_URL = re.compile(r"https?://[^\s\"'<>]+")
_AROUND = "\"'`()[]{}<>,;:!?"


class NamedInput:
    """The texts of a run's input: what a person named for this run."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, given: Any) -> None:
        """Set the input of the run."""
        self._texts = list(texts(given))

    def has_host(self, host: str) -> bool:
        """Return whether an address of the input has this host."""
        found = (one for text in self._texts for one in _URL.findall(text))
        return any(_host_or_none(one) == host for one in found)

    def has_path(self, path: str) -> bool:
        """Return whether the input is this path, or has it as a word."""
        return any(
            path == text or path in (word.strip(_AROUND).rstrip(".") for word in text.split())
            for text in self._texts
        )


def _host_or_none(url: str) -> str | None:
    try:
        return host_of(urlsplit(url))
    except ValueError:
        return None
