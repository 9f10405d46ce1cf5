"""`python -m bench scale`: what grows with writers, events, runs, subjects and connections.

Every part is a file of its own beside this one, with a function `figures(size)`.
"""

import argparse
import importlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.figure import Figure

PARTS: dict[str, str] = {
    "connections": "bench.scale.connections",
    "journal": "bench.scale.journal",
    "lists": "bench.scale.lists",
    "workers": "bench.scale.workers",
    "writers": "bench.scale.writers",
}
"""The module of each part, by its name; loaded when it is run."""
SIZES = ("quick", "whole")


class Options(NamedTuple):
    """What to run."""

    parts: Sequence[str] = ()
    size: str = "quick"


def read_options(words: Sequence[str]) -> Options:
    """Read the words after `python -m bench scale`."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, default=[], help="only this part")
    parser.add_argument("--size", choices=SIZES, default="quick", help="whole: as the bars say")
    found = parser.parse_args(words)
    return Options(found.part, found.size)


QUICK = Options()


def figures(options: Options = QUICK) -> Iterator[Figure]:
    """Yield the figures of the wanted parts."""
    for name in options.parts or PARTS:
        yield from importlib.import_module(PARTS[name]).figures(options.size)
