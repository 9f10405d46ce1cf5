"""`python -m bench learn`: learn from traces of a kind of task, do tasks that were never seen.

Each part prints what became of its tasks beside its bar. A part whose data or checkout is missing
says how to get it and is passed over. Options choose parts and show single cases; see `--help`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure
from bench.learn import (
    hostile,
    miniwob,
    single,
    speed,
    telecom,
    typed,
    typed_attacks,
    worlds,
)
from bench.learn.learner import PLAIN, TypedLearner, typed_learner
from bench.learn.shop import RUNS, SIZES, Shop, runs_to_learn
from bench.right.world import HOW_TO_GET_IT, checkout, digest, domain
from bench.routines import DATA


class Options(NamedTuple):
    parts: Sequence[str] = ()
    limit: int | None = None
    sizes: Sequence[str] = ()
    runs: str = "recorded"
    order: str = "as is"
    verbose: bool = False
    draws: int = 1
    learner: str = PLAIN


class Bench:
    """What the parts share: the options, a folder, and the shop."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.options, self.folder = options, folder

    @cached_property
    def shop(self) -> Shop | None:
        if checkout() is None:
            print(HOW_TO_GET_IT)
            return None
        if not (DATA / "tau_retail").is_dir():
            print(f"no data in {DATA / 'tau_retail'}: set EM_BENCH_DATA; this part is passed over")
            return None
        of = domain("retail")
        return Shop(of, runs_to_learn(of, self.options.runs))

    @cached_property
    def typed_learner(self) -> TypedLearner | None:
        try:
            return typed_learner(self.options.learner)
        except ModuleNotFoundError as error:
            print(f"no learner for typed inputs: {error}; this part is passed over")
            return None

    def typed(self, way: str) -> typed.Class | None:
        if self.shop is None or self.typed_learner is None:
            return None
        shop = typed.TypedShop(self.shop, way)
        return typed.Class(shop, self.typed_learner, self.options.order)

    def sizes(self, *usual: str) -> Sequence[str]:
        """The sizes that were chosen, or those that a part usually has."""
        return self.options.sizes or usual


def typed_tasks(bench: Bench) -> Iterator[Figure]:
    yield from _typed(bench, typed.WAYS[0], bench.sizes(*SIZES))


def hidden_ids(bench: Bench) -> Iterator[Figure]:
    yield from _typed(bench, typed.WAYS[1], bench.sizes("20", "all"))


def _typed(bench: Bench, way: str, sizes: Sequence[str]) -> Iterator[Figure]:
    chosen, group = bench.options, bench.typed(way)
    if group is not None:
        yield from typed.unseen(group, sizes, chosen.limit, chosen.draws, verbose=chosen.verbose)


def typed_acts(bench: Bench) -> Iterator[Figure]:
    chosen, group = bench.options, bench.typed(typed.WAYS[0])
    if group is not None:
        sizes, draws = bench.sizes("all"), chosen.draws
        yield from typed_attacks.acts(group, sizes, chosen.limit, draws, verbose=chosen.verbose)


def world_tasks(bench: Bench) -> Iterator[Figure]:
    if bench.typed_learner is not None:
        yield from worlds.tasks(bench.typed_learner, worlds.SIZES, verbose=bench.options.verbose)


def later_tasks(bench: Bench) -> Iterator[Figure]:
    if bench.typed_learner is not None:
        yield from worlds.tasks(
            bench.typed_learner,
            worlds.SIZES,
            verbose=bench.options.verbose,
            name="later worlds",
            kinds=worlds.LATER,
        )


def hostile_acts(bench: Bench) -> Iterator[Figure]:
    chosen = bench.options
    yield from hostile.acts(bench.folder, chosen.limit, verbose=chosen.verbose)


def single_recordings(bench: Bench) -> Iterator[Figure]:
    yield from single.scored(bench.options.limit, verbose=bench.options.verbose)


def telecom_tasks(bench: Bench) -> Iterator[Figure]:
    chosen = bench.options
    yield from telecom.solved(chosen.limit, verbose=chosen.verbose)


def miniwob_episodes(bench: Bench) -> Iterator[Figure]:
    chosen = bench.options
    yield from miniwob.episodes(chosen.limit, verbose=chosen.verbose)


def learning_time(_bench: Bench) -> Iterator[Figure]:
    yield from speed.growth()


def run_overhead(bench: Bench) -> Iterator[Figure]:
    yield from speed.overhead(bench.folder)


PARTS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "typed": typed_tasks,
    "hidden": hidden_ids,
    "typed-attacks": typed_acts,
    "worlds": world_tasks,
    "later": later_tasks,
    "hostile": hostile_acts,
    "single": single_recordings,
    "telecom": telecom_tasks,
    "miniwob": miniwob_episodes,
    "time": learning_time,
    "overhead": run_overhead,
}


def read_options(words: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench learn", description=__doc__)
    parser.add_argument("--part", action="append", choices=[*PARTS], help="only this part")
    parser.add_argument("--limit", type=int, help="use only the first so many tasks of each part")
    parser.add_argument("--verbose", action="store_true", help="show each case that is not right")
    shop = parser.add_argument_group("retail with typed inputs")
    shop.add_argument("--size", action="append", choices=[*SIZES], help="only this size")
    shop.add_argument("--runs", choices=RUNS, default=RUNS[0], help="made: from gold actions")
    shop.add_argument("--order", choices=("as is", "keys", "lists"), default="as is")
    shop.add_argument("--draws", type=int, default=1, help="learn from so many draws of a size")
    shop.add_argument("--learner", default=PLAIN, help="another learner, as module:class")
    found = parser.parse_args(words)
    return Options(
        parts=found.part or (),
        limit=found.limit,
        sizes=found.size or (),
        runs=found.runs,
        order=found.order,
        verbose=found.verbose,
        draws=found.draws,
        learner=found.learner,
    )


def figures(options: Options | None = None) -> Iterator[Figure]:
    """The figures of the chosen parts, or of all; then one line for each."""
    chosen = options or Options()
    found: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(chosen, Path(name))
        before = digest(domain("retail")) if checkout() else ""
        for part in chosen.parts or PARTS:
            start = time.perf_counter()
            print(f"\n== {part}", flush=True)
            found[part] = []
            for figure in PARTS[part](bench):
                found[part].append(figure)
                yield figure
            print(f"({part} took {time.perf_counter() - start:.0f} s)", flush=True)
        after = digest(domain("retail")) if checkout() else ""
        assert before == after, "a run changed the records that all runs share"
    _summary(found)


def _summary(found: dict[str, list[Figure]]) -> None:
    print("\n== summary")
    for part, measured in found.items():
        if not measured:
            print(f"{part:<12} passed over")
        for one in measured:
            verdict = "" if one.bar is None else "cleared" if one.cleared else "MISSED"
            share = f"{one.ratio:>7.1%}" if one.beside == "of" and one.lower_bound else " " * 7
            beside = f"{one.ours:>10,.2f} | {one.theirs:>8,.0f}"
            print(f"{part:<12} {verdict:<8} {beside} {share}  {one.what}")
