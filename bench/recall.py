"""Recall on conversations (LOCOMO) and on chats with an assistant (BEAM), beside plain FTS5.

Ablations, named times, and weights chosen by cross-validation on both.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import msgspec

from bench import beam
from bench.figure import Figure
from bench.locomo import Asked, Conversation, Locomo, load
from em import Memory
from em.recall.rank import Weights
from em.recall.search import Recall
from em.store.protocol import Within
from em.text.periods import periods
from em.text.terms import words_of

CATEGORIES = (1, 2, 3, 4, 5)
WITHOUT: Mapping[str, dict[str, float]] = {
    "neighbours": {"previous": 0.0, "following": 0.0},
    "more from a question before": {"answer": 0.0},
    "lengths": {"length": 0.0, "substance": 0.0},
    "speakers' weight": {"other_speaker": 1.0},
    "times": {"time": 0.0, "other_time": 1.0},
    "roles": {"assistant": 1.0, "machine": 1.0, "assistant_words": 1.0},
    "a limit to length": {"enough": 2_000.0},
    "coverage of lists": {"beside": 1.0},
    "less for words that frame a question": {"frame": 1.0},
    "less for what asks": {"asking": 1.0},
}
GRID: Mapping[str, Sequence[float]] = {
    "length": (0.4, 0.5),
    "substance": (0.2, 0.3),
    "previous": (0.4, 0.5),
    "answer": (0.6, 1.0),
    "frame": (0.5, 1.0),
    "asking": (0.9, 1.0),
}

Search = Callable[[Conversation, Asked], Sequence[str]]


class Score(NamedTuple):
    """Of one question: the share of its evidence among the first 10 and the first 30."""

    conversation: str
    category: int
    at_10: float
    at_30: float


def judge(conversations: Sequence[Conversation], search: Search) -> list[Score]:
    scores = []
    for conversation in conversations:
        for asked in conversation.questions:
            found = search(conversation, asked)
            shares = [len(asked.evidence & set(found[:k])) / len(asked.evidence) for k in (10, 30)]
            scores.append(Score(conversation.name, asked.category, *shares))
    return scores


def line(what: str, scores: Sequence[Score], categories: Sequence[int] = CATEGORIES) -> str:
    columns = [scores, *([s for s in scores if s.category == n] for n in categories)]
    cells = [f"{mean(s.at_10 for s in c):.3f} {mean(s.at_30 for s in c):.3f}" for c in columns if c]
    return f"    {what:38} " + "   ".join(cells)


def plain_fts5(data: Locomo) -> Search:
    """One FTS5 table for each conversation, every word of the question, its own BM25."""
    tables = {}
    for conversation in data.conversations:
        connection = tables[conversation.name] = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='porter unicode61')")
        rows = [
            (n, f"{turn['speaker']}: {turn['text']}") for n, turn in enumerate(conversation.turns)
        ]
        connection.executemany("INSERT INTO t(rowid, x) VALUES (?, ?)", rows)

    def search(conversation: Conversation, asked: Asked) -> list[str]:
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(words_of(asked.text)))
        sql = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT 30"
        rows = tables[conversation.name].execute(sql, (match,))
        return [conversation.turns[row[0]]["source"] for row in rows]

    return search


def fill(memory: Memory, conversations: Sequence[Conversation]) -> dict[str, str]:
    """Observe every turn; from an event's id to the turn's."""
    sources = {}
    for conversation in conversations:
        ids = memory.observe_many(conversation.turns)
        sources |= dict(zip(ids, (turn["source"] for turn in conversation.turns), strict=True))
    return sources


class Remembered:
    """A store whose index remembers its answers, for trying many weights on the same questions."""

    def __init__(self, store: Any) -> None:
        self._index = store.index
        self.index = self
        self._answers: dict[Any, Any] = {}
        self._of_number: dict[str, dict[int, Any]] = {"marks": {}, "passages": {}}

    def find(self, groups: Sequence[Sequence[str]], within: Within, limit: int) -> Any:
        key = (tuple(map(tuple, groups)), within.subject, limit)
        if key not in self._answers:
            self._answers[key] = self._index.find(groups, within, limit)
        return self._answers[key]

    def status(self, within: Within) -> Any:
        if within.subject not in self._answers:
            self._answers[within.subject] = self._index.status(within)
        return self._answers[within.subject]

    def marks(self, numbers: Sequence[int]) -> list[Any]:
        return self._numbered("marks", numbers)

    def passages(self, numbers: Sequence[int]) -> list[Any]:
        return self._numbered("passages", numbers)

    def _numbered(self, what: str, numbers: Sequence[int]) -> list[Any]:
        known = self._of_number[what]
        if missing := [number for number in numbers if number not in known]:
            known |= dict.fromkeys(missing)
            known |= {one.number: one for one in getattr(self._index, what)(missing)}
        return [known[number] for number in numbers if known[number] is not None]


def by_em(memory: Memory, sources: Mapping[str, str], **options: Any) -> Search:
    recall = Recall(options.pop("store", memory.store), **options)

    def search(conversation: Conversation, asked: Asked) -> list[str]:
        found = recall.recall(asked.text, Within(conversation.name), 30)
        assert not found.notes, found.notes
        return [sources[passage.event_id] for passage in found]

    return search


def _bars(what: str, scores: Sequence[Score], bars: tuple[float, float]) -> Iterator[Figure]:
    shares = mean(s.at_10 for s in scores), mean(s.at_30 for s in scores)
    for k, share, bar in zip((10, 30), shares, bars, strict=True):
        yield Figure(f"recall@{k} {what}", share, "of all evidence", 1, "", share, bar, True)


def quality() -> Iterator[Figure]:
    """Recall without a model, on conversations and on chats."""
    yield from talks()
    yield from chats()


def talks() -> Iterator[Figure]:
    data = load()
    if data is None:
        return
    count = sum(len(c.questions) for c in data.conversations)
    print(
        f"LOCOMO, {len(data.conversations)} conversations, {count} questions with usable evidence"
        f" ({data.without_evidence} have none, {data.malformed} ids are malformed)"
    )
    heads = "".join(f"{f'category {n}':14}" for n in CATEGORIES)
    print(f"    {'recall@10 and @30':38} {'all':14}{heads}")
    print(line("plain FTS5, porter, every word", judge(data.conversations, plain_fts5(data))))
    with Memory(":memory:") as memory:
        sources = fill(memory, data.conversations)
        ours = judge(data.conversations, by_em(memory, sources))
        print(line("em, by words", ours))
        store = Remembered(memory.store)
        for what, change in WITHOUT.items():
            weights = msgspec.structs.replace(Weights(), **change)
            search = by_em(memory, sources, weights=weights, store=store)
            without = judge(data.conversations, search)
            print(line(f"  without {what}", without))
        yield from _bars("without a model", ours, (0.83, 0.90))
        yield from _named_times("LOCOMO", data.conversations, ours)


def chats() -> Iterator[Figure]:
    """Recall in chats with an assistant: 1 to 10 to choose weights on, 11 to 20 to score."""
    chosen, scored = beam.load(beam.CHOSEN_ON), beam.load(beam.SCORED_ON)
    if not scored:
        return
    with Memory(":memory:") as memory:
        sources = fill(memory, [*chosen, *scored])
        heads = "".join(f"{name[:13]:14}" for name in beam.CATEGORIES)
        print(f"    {'recall@10 and @30':38} {'all':14}{heads}")
        both = {}
        store = Remembered(memory.store)
        for what, change in {"em, by words": {}, **WITHOUT}.items():
            weights = msgspec.structs.replace(Weights(), **change)
            search = by_em(memory, sources, weights=weights, store=store)
            both[what] = [judge(part, search) for part in (chosen, scored)]
            for part, scores in zip(("1-10", "11-20"), both[what], strict=True):
                label = what if not change else f"  without {what}"
                print(line(f"{label}, chats {part}", scores, range(1, len(beam.CATEGORIES) + 1)))
        yield from _bars(
            "in chats 11 to 20, without a model", both["em, by words"][1], (0.53, 0.68)
        )
        yield from _named_times("BEAM", scored, both["em, by words"][1])


def _named_times(
    what: str, conversations: Sequence[Conversation], scores: Sequence[Score]
) -> Iterator[Figure]:
    """Yield the share of evidence among the first ten for questions that name a time."""
    asked = [asked for conversation in conversations for asked in conversation.questions]
    now = datetime.now(UTC)
    named = [
        score.at_10
        for score, one in zip(scores, asked, strict=True)
        if periods(words_of(one.text), now)
    ]
    if named:
        label = f"recall@10 of {len(named)} questions of {what} that name a time"
        yield Figure(label, mean(named), "of all evidence", 1, "", mean(named), 0.70, True)


def crossed() -> Iterator[Figure]:
    """Choose weights on all conversations and chats but one, again and again; what it costs."""
    data, chosen = load(), beam.load(beam.CHOSEN_ON)
    if data is None or not chosen:
        return
    with Memory(":memory:") as memory:
        kinds = (data.conversations, chosen)
        sources = fill(memory, [one for kind in kinds for one in kind])
        trials: list[dict[str, list[Score]]] = []
        store = Remembered(memory.store)
        for values in product(*GRID.values()):
            weights = msgspec.structs.replace(Weights(), **dict(zip(GRID, values, strict=True)))
            search = by_em(memory, sources, weights=weights, store=store)
            trials.append({one.name: judge([one], search) for kind in kinds for one in kind})
    names = [[one.name for one in kind] for kind in kinds]

    def worth(trial: dict[str, list[Score]], left_out: str = "") -> float:
        """Weigh conversations and chats alike, though there are more questions of the former."""
        return mean(
            mean(s.at_10 + s.at_30 for name in kind if name != left_out for s in trial[name])
            for kind in names
        )

    best = max(trials, key=worth)
    settings = list(product(*GRID.values()))
    for trial in sorted(trials, key=worth, reverse=True)[:3]:
        chosen_values = dict(zip(GRID, settings[trials.index(trial)], strict=True))
        print(f"    {worth(trial):.4f} {chosen_values}")
    drops = []
    for kind in names:
        held_out = [
            s
            for name in kind
            for s in max(trials, key=lambda trial, name=name: worth(trial, name))[name]
        ]
        chosen_on_all = [s for name in kind for s in best[name]]
        print(f"    {len(kind)} held out, weights from the others ({len(trials)} tried)", end=": ")
        print(f"{mean(s.at_10 for s in held_out):.3f} {mean(s.at_30 for s in held_out):.3f}")
        drops += [
            mean(getattr(s, at) for s in chosen_on_all) - mean(getattr(s, at) for s in held_out)
            for at in ("at_10", "at_30")
        ]
    yield Figure(
        "drop of recall when weights are chosen on the others (worst of @10, @30)",
        max(drops), "chosen on all", 0, "", max(drops), 0.02, False,
    )  # fmt: skip


def quality_with_model() -> Iterator[Figure]:
    from bench.model import development_model

    data, embed = load(), development_model()
    if data is None or embed is None:
        return
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "em.db") as memory:
        sources = fill(memory, data.conversations)
        start = time.perf_counter()
        recall = Recall(memory.store, embed)
        recall.embed_all()
        print(f"    {len(sources):,} turns embedded in {time.perf_counter() - start:.0f} s")
        only = Weights(vector=1_000.0, other_speaker=1.0, substance=0.0, vector_neighbours=0.0)
        alone = judge(data.conversations, by_em(memory, sources, embed=embed, weights=only))
        print(line("the model alone", alone))
        ours = judge(data.conversations, by_em(memory, sources, embed=embed))
        print(line("em, by words and meaning", ours))
        for weight in (0.15, 0.6):
            other = judge(
                data.conversations,
                by_em(memory, sources, embed=embed, weights=Weights(vector=weight)),
            )
            print(line(f"  with a weight of {weight} instead of {Weights().vector}", other))
        yield from _bars("with the model of the extra `embed`", ours, (0.85, 0.92))


def quality_on_postgres() -> Iterator[Figure]:
    from bench.server import postgres_address

    data = load()
    if data is None:
        return
    with postgres_address() as address, Memory(address) as memory:
        sources = fill(memory, data.conversations)
        ours = judge(data.conversations, by_em(memory, sources))
        print(line("em on PostgreSQL, by words", ours))
        yield from _bars("on PostgreSQL, without a model", ours, (0.83, 0.90))
