"""`python -m bench right`: a routine does the right thing or refuses, shown on recorded runs.

The retail runs in `EM_BENCH_DATA` are compiled and run with the real tools of a checkout of
tau-bench (`EM_TAU_BENCH`). Options choose parts and show single cases; see `--help`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bench import behaviour
from bench.figure import Figure
from bench.right import (
    changed,
    constants,
    failed,
    insurer,
    pairs,
    same,
    stranger,
    suite,
    times,
    town_hall,
)
from bench.right.recording import Recording, recordings
from bench.right.shelf import Shelf
from bench.right.suite import Suite
from bench.right.world import HOW_TO_GET_IT, checkout, digest, domain
from bench.routines import DATA

DOMAINS = ("retail", "airline")
SYNTHESISED = (
    ("synthesised retail train", "retail", "train", 60),
    ("synthesised retail dev", "retail", "dev", 20),
    ("synthesised airline", "airline", "test", 50),
)
"""Title, domain and tasks of the runs that are made up, and how many at most."""


class Options(NamedTuple):
    parts: Sequence[str] = ()
    limit: int | None = None
    pairs: int = 1_500
    verbose: bool = False


class Bench:
    """What the parts share: the options, the runs, and the routines compiled from them."""

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
    def recorded(self) -> Suite | None:
        """The successful retail runs, if the data and a checkout are there."""
        if not self.runs or not _has_checkout():
            return None
        successes = [run for run in self.runs if run.reward == 1.0]
        return suite.recorded(successes[: self.options.limit], domain("retail"))

    @cached_property
    def synthesised(self) -> list[Suite]:
        if not _has_checkout():
            return []
        return [
            suite.synthesised(title, domain(name), split, min(self.options.limit or most, most))
            for title, name, split, most in SYNTHESISED
        ]


def _has_checkout() -> bool:
    if checkout() is None:
        print(HOW_TO_GET_IT)
    return checkout() is not None


def same_task(bench: Bench) -> Iterator[Figure]:
    if bench.recorded:
        yield from same.same_task(bench.shelf, bench.recorded, verbose=bench.options.verbose)


def failed_runs(bench: Bench) -> Iterator[Figure]:
    runs = [run for run in bench.runs if run.reward != 1.0]
    if runs:
        chosen = runs[: bench.options.limit]
        yield from failed.refused(bench.shelf, chosen, verbose=bench.options.verbose)


def other_task(bench: Bench) -> Iterator[Figure]:
    if bench.recorded:
        pairs_, verbose = bench.options.pairs, bench.options.verbose
        yield from pairs.other_task(bench.shelf, bench.recorded, pairs_, verbose=verbose)


def changed_world(bench: Bench) -> Iterator[Figure]:
    if bench.recorded:
        yield from changed.acts(bench.shelf, bench.recorded, verbose=bench.options.verbose)


def synthesised_runs(bench: Bench) -> Iterator[Figure]:
    """The same three questions, on runs that are made up from tau-bench's gold actions."""
    verbose = bench.options.verbose
    for one in bench.synthesised:
        yield from same.same_task(bench.shelf, one, verbose=verbose)
        yield from pairs.other_task(bench.shelf, one, bench.options.pairs, verbose=verbose)
        yield from changed.acts(bench.shelf, one, verbose=verbose)


def two_that_differ(bench: Bench) -> Iterator[Figure]:
    yield from constants.constants(verbose=bench.options.verbose)


def strangers(bench: Bench) -> Iterator[Figure]:
    kinds = (*insurer.KINDS, *town_hall.KINDS)
    yield from stranger.figures(kinds, verbose=bench.options.verbose)


def hits(_bench: Bench) -> Iterator[Figure]:
    """A hit of the behaviour cache, as `python -m bench behaviour` measures it."""
    few, many = islice(behaviour.hits(), 2)
    what = f"a hit with {behaviour.STEPS} trivial steps: microseconds"
    yield Figure(what, few.ours, "the plain calls", few.theirs, "µs", few.ours, 400, False)
    yield many


def compile_times(_bench: Bench) -> Iterator[Figure]:
    yield from times.growth()


PARTS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "same": same_task,
    "failed": failed_runs,
    "other": other_task,
    "changed": changed_world,
    "synthesised": synthesised_runs,
    "constants": two_that_differ,
    "stranger": strangers,
    "hits": hits,
    "times": compile_times,
}


def read_options(words: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench right", description=__doc__)
    parser.add_argument("--part", action="append", choices=[*PARTS], help="only this part")
    parser.add_argument("--limit", type=int, help="use only the first so many runs of each part")
    parser.add_argument("--pairs", type=int, default=1_500, help="how many pairs of tasks  [1500]")
    parser.add_argument("--verbose", action="store_true", help="show each case that is not right")
    found = parser.parse_args(words)
    return Options(found.part or (), found.limit, found.pairs, found.verbose)


def figures(options: Options | None = None) -> Iterator[Figure]:
    """The figures of the chosen parts, or of all; then one line for each."""
    chosen = options or Options()
    found: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(chosen, Path(name))
        before = {one: digest(domain(one)) for one in DOMAINS if checkout()}
        for part in chosen.parts or PARTS:
            start = time.perf_counter()
            print(f"\n== {part}", flush=True)
            found[part] = []
            for figure in PARTS[part](bench):
                found[part].append(figure)
                yield figure
            print(f"({part} took {time.perf_counter() - start:.0f} s)", flush=True)
        after = {one: digest(domain(one)) for one in before}
        assert before == after, "a run changed the records that all runs share"
        bench.shelf.memory.close()
    _summary(found)


def _summary(found: dict[str, list[Figure]]) -> None:
    print("\n== summary")
    for part, measured in found.items():
        if not measured:
            print(f"{part:<12} passed over")
        for one in measured:
            verdict = "cleared" if one.cleared else "MISSED"
            print(f"{part:<12} {verdict:<8} {one.ours:>10,.0f} | {one.theirs:>8,.0f}  {one.what}")
