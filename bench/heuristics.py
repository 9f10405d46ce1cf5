"""Retrieval of lessons on a seeded set and on real runs, and speed."""

import random
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from bench.figure import Figure, in_turns, seconds, time_figure
from bench.routines import DATA

if TYPE_CHECKING:
    from em.traces.trace import KeptTrace

HEURISTICS = 100_000
QUERIES = 20
SPLITS = 5


def _runs() -> "list[KeptTrace]":
    from em.traces.trace import as_kept
    from em.traces.transcripts import read_traces

    files = sorted((DATA / "tau_retail").glob("*.jsonl"))
    if not files:
        print(f"no data in {DATA / 'tau_retail'}: set EM_BENCH_DATA; this bench is passed over")
    found = [kept for file in files for kept in read_traces(file.read_bytes(), file.name)]
    return [as_kept(kept.trace, kept.id) for kept in found]


def seeded() -> Iterator[Figure]:
    from em.heuristics.benchmark import evaluate

    took = seconds(evaluate)
    done = evaluate()
    low, high = done.margin_95
    print(f"margin in MRR {done.margin:+.3f}, 95% interval {low:+.3f} to {high:+.3f}")
    ours, theirs = done.methods["em"].mrr, done.methods["bm25"].mrr
    yield Figure("seeded MRR", ours, "BM25 alone", theirs, "", ours / theirs, 1.0, True)
    yield Figure("em lessons evaluate", took * 1e3, "", 2_000, "ms", took, 2, False)
    yield from _with_meaning(ours)


def _with_meaning(by_words: float) -> Iterator[Figure]:
    """The same set, with candidates by meaning too."""
    from bench.model import development_model
    from em.heuristics.benchmark import evaluate

    embed = development_model()
    if embed is not None:
        ours = evaluate(embed=embed).methods["em"]
        print(f"with an embedder {ours.silent:.0%} of the tasks without a lesson get none")
        yield Figure(
            "seeded MRR with an embedder",
            ours.mrr, "by words", by_words, "", ours.mrr / by_words, 1.0, True,
        )  # fmt: skip


def retail_retrieval() -> Iterator[Figure]:
    """Learn from half of the runs; for the others, is a lesson of an error found that occurs?"""
    runs = _runs()
    if not runs:
        return
    tools = sorted({call.tool for kept in runs for call in kept.trace.calls})  # type: ignore[union-attr]
    ours: list[float] = []
    theirs: list[float] = []
    for split in range(SPLITS):
        random.Random(split).shuffle(runs)
        one, other = _retrieved(runs, tools)
        ours += one
        theirs += other
    print(f"{len(ours)} times, in {SPLITS} splits, a run met an error that the other half knows")
    yield Figure(
        "hit@5 on real runs: a lesson of an error that occurs",
        fmean(ours), "BM25 alone", fmean(theirs), "", fmean(ours) / max(fmean(theirs), 1e-9),
        None, True,
    )  # fmt: skip


def _retrieved(runs: "list[KeptTrace]", tools: list[str]) -> tuple[list[float], list[float]]:
    from em.compiler.calls import calls_of
    from em.heuristics.failure import session_of, shape_of_call
    from em.heuristics.heuristic import every_heuristic, get_heuristic, learn
    from em.heuristics.reflection import mine
    from em.heuristics.relevance import EVERYBODY, TaskAtHand, rank
    from em.recall.search import LessonRecall
    from em.store.sqlite import SqliteStore

    half = len(runs) // 2
    ours: list[float] = []
    theirs: list[float] = []
    with SqliteStore(":memory:") as store:
        learn(store, [lesson for kept in runs[:half] for lesson in mine(kept)])
        known = {(one.lesson.tools[0], one.lesson.error) for one in every_heuristic(store)}
        for kept in runs[half:]:
            calls, _ = calls_of(kept.trace, {})
            session = session_of(kept.trace, calls)
            wanted = {(c.name, shape_of_call(c, session)) for c in calls if c.failed} & known
            if not wanted:
                continue
            goal = kept.trace.mission.goal
            found = [one.heuristic for one in rank(store, TaskAtHand(goal, tools), 5)]
            hits = LessonRecall(store, passed_over=frozenset())(goal, EVERYBODY, 5)
            plain = [
                get_heuristic(store, hit.passage.stream.removeprefix("heuristic/")) for hit in hits
            ]
            for answers, into in ((found, ours), (plain, theirs)):
                shown = {(one.lesson.tools[0], one.lesson.error) for one in answers}
                into.append(float(not wanted.isdisjoint(shown)))
    return ours, theirs


def brief_speed() -> Iterator[Figure]:
    from em.heuristics.benchmark import seeded_set
    from em.heuristics.heuristic import Lesson, learn, searched_text
    from em.heuristics.lessons import Heuristics
    from em.store.sqlite import SqliteStore
    from em.text.terms import STOP_WORDS, words_of

    chance = random.Random(1)
    made = seeded_set(0)
    words = sorted({word for one in made.lessons for word in one.action.split()})
    lessons = [
        Lesson(
            trigger=f"{one.trigger} in plant{chance.randrange(5_000)}",
            action=f"{one.action} {' '.join(chance.sample(words, 4))}",
            how="recovery",
            tools=one.tools,
            key=str(number),
        )
        for number, one in ((n, chance.choice(made.lessons)) for n in range(HEURISTICS))
    ]
    tasks = [f"{task.text} in plant{chance.randrange(5_000)}" for task in made.tasks[:QUERIES]]
    with tempfile.TemporaryDirectory() as folder:
        plain = sqlite3.connect(Path(folder) / "plain.db")
        plain.execute(
            "CREATE VIRTUAL TABLE w"
            " USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        texts = [searched_text(one) for one in lessons]
        plain.executemany("INSERT INTO w(text) VALUES (?)", [(text,) for text in texts])
        plain.commit()
        with SqliteStore(Path(folder) / "em.db") as store:
            for start in range(0, HEURISTICS, 5_000):
                learn(store, lessons[start : start + 5_000])
            book = Heuristics(store)

            def ours() -> float:
                return seconds(lambda: [book.brief(task) for task in tasks]) / QUERIES

            def theirs() -> float:
                def query(task: str) -> list[tuple[str]]:
                    match = " OR ".join(
                        f'"{w}"' for w in dict.fromkeys(words_of(task)) if w not in STOP_WORDS
                    )
                    sql = "SELECT text FROM w WHERE w MATCH ? ORDER BY rank LIMIT 5"
                    return plain.execute(sql, (match,)).fetchall()

                return seconds(lambda: [query(task) for task in tasks]) / QUERIES

            sides = in_turns(ours, theirs, 5)
        plain.close()
    yield time_figure(f"brief() at {HEURISTICS:,} heuristics", "plain FTS5", sides, 4)
