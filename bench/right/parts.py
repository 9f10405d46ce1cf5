"""`python -m bench right`: a routine does the right thing or refuses, shown on recorded runs.

The retail runs in `EM_BENCH_DATA` are compiled and run with the real tools of a checkout of
tau-bench (`EM_TAU_BENCH`). Options choose parts and show single cases; see `--help`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure
from bench.right import same
from bench.right.recording import Aim, Recording, recordings, succeeded
from bench.right.shelf import Shelf
from bench.right.world import HOW_TO_GET_IT, Domain, checkout, digest, domain
from bench.routines import DATA


class Options(NamedTuple):
    parts: Sequence[str] = ()
    limit: int | None = None
    pairs: int = 300
    verbose: bool = False


class Bench:
    """What the parts share: the options, the recorded runs, and the routines compiled from them."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.options = options
        self.shelf = Shelf(folder)

    @cached_property
    def runs(self) -> list[Recording]:
        found = recordings()
        if not found:
            print(f"no data in {DATA / 'tau_retail'}: set EM_BENCH_DATA; this part is passed over")
        return found

    @cached_property
    def successes(self) -> list[Recording]:
        return list(succeeded(self.runs))[: self.options.limit]

    @cached_property
    def retail(self) -> Domain:
        return domain("retail")

    @cached_property
    def aims(self) -> dict[str, Aim]:
        return same.aims(self.successes, self.retail, "test")

    @property
    def has_tools(self) -> bool:
        if checkout() is None:
            print(HOW_TO_GET_IT)
        return checkout() is not None and bool(self.runs)


def same_task(bench: Bench) -> Iterator[Figure]:
    if bench.has_tools:
        yield from same.figures(
            same.same_task(
                bench.shelf,
                bench.successes,
                bench.aims,
                bench.retail,
                verbose=bench.options.verbose,
            ),
            "same task",
        )


PARTS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "same": same_task,
}


def read_options(words: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench right", description=__doc__)
    parser.add_argument("--part", action="append", choices=[*PARTS], help="only this part")
    parser.add_argument("--limit", type=int, help="use only the first so many runs of each part")
    parser.add_argument("--pairs", type=int, default=300, help="how many pairs of tasks  [300]")
    parser.add_argument("--verbose", action="store_true", help="show each case that is not right")
    found = parser.parse_args(words)
    return Options(found.part or (), found.limit, found.pairs, found.verbose)


def figures(options: Options | None = None) -> Iterator[Figure]:
    """The figures of the chosen parts, or of all."""
    chosen = options or Options()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(chosen, Path(name))
        before = {one: digest(domain(one)) for one in ("retail", "airline") if checkout()}
        for part in chosen.parts or PARTS:
            start = time.perf_counter()
            print(f"\n== {part}", flush=True)
            yield from PARTS[part](bench)
            print(f"({part} took {time.perf_counter() - start:.0f} s)", flush=True)
        assert before == {one: digest(domain(one)) for one in before}, (
            "a run changed shared records"
        )
        bench.shelf.memory.close()
