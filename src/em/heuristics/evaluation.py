"""Measuring retrieval: hit@k, MRR and nDCG against BM25 alone and against chance.

It runs in a store of its own, in memory: no live table is touched.
"""

import random
from collections.abc import Callable, Sequence
from math import log2
from statistics import fmean
from typing import Any

import msgspec

from em.errors import UsageError
from em.heuristics import shelf
from em.heuristics.benchmark import SeededSet, SeededTask, seeded_set
from em.heuristics.book import Heuristics
from em.heuristics.health import feedback
from em.recall.embed import Embed
from em.store.document import DocumentQuery
from em.store.protocol import Store
from em.store.sqlite import IN_MEMORY, SqliteStore

DEPTH = 10
KS = (1, 3, 5)
RESAMPLES = 1_000

Method = Callable[[SeededTask], Sequence[str]]


class Scores(msgspec.Struct, frozen=True):
    """How one method did. `silent`: the share of tasks without a lesson that it left unanswered."""

    hit: dict[str, float]
    mrr: float
    ndcg: float
    silent: float


class Evaluation(msgspec.Struct, frozen=True):
    """Every method's scores on one seeded set, and the margin of ours over BM25 in MRR.

    `margin_95` is its confidence interval, by resampling the tasks.
    """

    seed: int
    tasks: int
    heuristics: int
    methods: dict[str, Scores]
    margin: float
    margin_95: tuple[float, float]


def evaluate(seed: int = 0, tasks: int = 300, embed: Embed | None = None) -> Evaluation:
    """Run the seeded benchmark in a store of its own.

    embed: an embedder, so that candidates are found by meaning too.
    """
    if not 1 <= tasks <= 900:
        raise UsageError(f"{tasks} tasks can't be made", place="tasks", fix="give 1 to 900")
    made = seeded_set(seed, tasks)
    with SqliteStore(IN_MEMORY) as store:
        _fill(store, made)
        methods = _methods(store, made, seed, embed)
        ranks = {name: [_reciprocal(method, t) for t in made.tasks] for name, method in methods}
        scores = {name: _scores(method, made) for name, method in methods}
    margins = [ours - theirs for ours, theirs in zip(ranks["em"], ranks["bm25"], strict=True)]
    return Evaluation(
        seed, len(made.tasks), len(made.lessons), scores, fmean(margins), _interval(margins, seed)
    )


def _fill(store: Store, made: SeededSet) -> None:
    shelf.learn(store, made.lessons)
    for heuristic_id, (well, badly) in made.used.items():
        for _ in range(well):
            feedback(store, [heuristic_id], "success")
        for _ in range(badly):
            feedback(store, [heuristic_id], "failure")


def _methods(
    store: Store, made: SeededSet, seed: int, embed: Embed | None
) -> list[tuple[str, Method]]:
    book = Heuristics(store, embed=embed)
    book.embed_all()
    answers: dict[str, Sequence[str]] = {}
    ids = sorted(lesson.id for lesson in made.lessons)
    chance = random.Random(seed)  # noqa: S311 - a benchmark is to be repeatable, not secret

    def ours(task: SeededTask) -> list[str]:
        return book.brief(task.text, DEPTH, tools=task.tools).ids

    def bm25(task: SeededTask) -> list[str]:
        query = DocumentQuery(text=task.text, kinds=[shelf.KIND], limit=DEPTH)
        return [hit.document.id.removeprefix("heuristic/") for hit in store.search(query)]

    def remembered(name: str, method: Method) -> Method:
        def answer(task: SeededTask) -> Sequence[str]:
            key = f"{name} {task.text} {task.tools}"
            if key not in answers:
                answers[key] = method(task)
            return answers[key]

        return answer

    plain: list[tuple[str, Method]] = [
        ("em", ours),
        ("bm25", bm25),
        ("random", lambda _task: chance.sample(ids, DEPTH)),
    ]
    return [(name, remembered(name, method)) for name, method in plain]


def _scores(method: Method, made: SeededSet) -> Scores:
    return Scores(
        hit={str(k): fmean(_hit(method(task), task, k) for task in made.tasks) for k in KS},
        mrr=fmean(_reciprocal(method, task) for task in made.tasks),
        ndcg=fmean(_ndcg(method(task), task) for task in made.tasks),
        silent=fmean(not method(task) for task in made.silent),
    )


def _hit(found: Sequence[str], task: SeededTask, k: int) -> float:
    return float(not task.gains.keys().isdisjoint(found[:k]))


def _reciprocal(method: Method, task: SeededTask) -> float:
    for place, heuristic_id in enumerate(method(task), 1):
        if heuristic_id in task.gains:
            return 1 / place
    return 0.0


def _ndcg(found: Sequence[str], task: SeededTask) -> float:
    def total(gains: Sequence[float]) -> float:
        return sum(gain / log2(place + 1) for place, gain in enumerate(gains, 1))

    best = total(sorted(task.gains.values(), reverse=True)[:DEPTH])
    return total([task.gains.get(heuristic_id, 0.0) for heuristic_id in found]) / best


def _interval(margins: Sequence[float], seed: int) -> tuple[float, float]:
    chance = random.Random(seed)  # noqa: S311 - a benchmark is to be repeatable, not secret
    means = sorted(fmean(chance.choices(margins, k=len(margins))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def as_rows(done: Evaluation) -> list[dict[str, Any]]:
    """The scores as rows of a table."""
    return [
        {
            "method": name,
            **{f"hit@{k}": scores.hit[str(k)] for k in KS},
            "MRR": scores.mrr,
            f"nDCG@{DEPTH}": scores.ndcg,
            "silent": scores.silent,
        }
        for name, scores in done.methods.items()
    ]
