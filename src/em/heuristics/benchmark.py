"""The seeded benchmark: tasks and lessons made from a seed, with distractors and near-misses.

Each task has one lesson that fits: the same tool and the same problem, in other words. Distractors
share the tool or the problem. Some lessons have a rival in nearly the same words whose runs failed.
Some tasks have no lesson at all.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import log2
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from em.errors import UsageError
from em.heuristics.health import feedback
from em.heuristics.heuristic import Lesson, learn
from em.heuristics.lessons import Heuristics
from em.heuristics.relevance import EVERYBODY
from em.log.event import HEURISTIC_PREFIX
from em.recall.embed import Embed
from em.recall.search import LessonHit, LessonRecall
from em.store.protocol import Store
from em.store.sqlite import IN_MEMORY, SqliteStore

_VERBS = {
    "create": ["set up", "add"], "update": ["change", "edit"],
    "delete": ["remove", "clear out"], "export": ["download", "hand over"],
    "send": ["deliver", "mail out"], "schedule": ["plan", "arrange"],
    "merge": ["combine", "join"], "approve": ["sign off", "accept"],
}  # fmt: skip
_OBJECTS = {
    "invoice": ["bill"], "customer_record": ["client entry"], "calendar_event": ["meeting"],
    "pull_request": ["code change"], "database_row": ["table entry"], "shipment": ["parcel"],
    "email_campaign": ["newsletter"], "deployment": ["rollout"],
    "sales_report": ["revenue summary"], "user_account": ["login"], "product_image": ["photo"],
    "refund": ["repayment"],
}  # fmt: skip
_TROUBLES = {
    "permission denied": ["we are not allowed to", "access is refused"],
    "rate limit exceeded": ["too many requests", "we are being throttled"],
    "required field is missing": ["it wants more details than we gave", "something was left empty"],
    "request timed out": ["it hangs and never returns", "no answer after minutes"],
    "duplicate key": ["it exists already", "there are two of the same"],
    "not found": ["it can't be located", "nobody knows this number"],
    "invalid date format": ["the day and the month are swapped", "the dates come out wrong"],
    "version conflict": ["someone else changed it meanwhile", "our copy is old"],
    "payload too large": ["the file is too big", "the attachment is heavy"],
    "session expired": ["we got logged out", "the token is no longer good"],
}
_ADVICE = {
    "permission denied": "ask the owner for the editor role before the call",
    "rate limit exceeded": "wait a minute and go on in batches of ten",
    "required field is missing": "read the schema first and fill in every mandatory field",
    "request timed out": "split the work into smaller parts",
    "duplicate key": "look the entry up and change it in place",
    "not found": "search by name when the number gives nothing",
    "invalid date format": "write dates as year, month, day",
    "version conflict": "read it again and apply the change to the newest version",
    "payload too large": "compress it and send a link",
    "session expired": "sign in again and repeat the call once",
}
_ASIDES = [
    "Last week the {other} went fine.",
    "Afterwards we also look at the {other}.",
    "Please be quick, the team waits for it.",
    "This is not about the {other}.",
    "Keep the notes short and friendly.",
]
_ELSEWHERE = [
    "bake a loaf of rye bread with less salt",
    "prune the apple trees before the first frost",
    "tune the piano in the small hall",
    "teach the choir the second verse",
    "knit a scarf with a herringbone pattern",
    "paint the kitchen ceiling without drips",
    "walk the dog along the river at dawn",
    "learn the opening moves of the Sicilian",
    "sharpen the garden shears with a whetstone",
    "choose a tent for windy mountains",
]


SILENT = 20
"""Tasks of a set that have no lesson."""


class SeededTask(NamedTuple):
    """A task, its tools if known, and the gain of each lesson that fits, by id."""

    text: str
    tools: Sequence[str] | None
    gains: dict[str, float]


class SeededSet(NamedTuple):
    """Lessons, counts of successes and failures of some, and tasks; `silent` have no lesson."""

    lessons: list[Lesson]
    used: dict[str, tuple[int, int]]
    tasks: list[SeededTask]
    silent: list[SeededTask]


def seeded_set(seed: int, tasks: int = 100) -> SeededSet:
    """Make a set of lessons and tasks; the same seed gives the same set."""
    chance = random.Random(seed)  # noqa: S311 - a benchmark is to be repeatable, not secret
    situations = [(v, o, t) for v in _VERBS for o in _OBJECTS for t in _TROUBLES]
    chance.shuffle(situations)
    lessons = [_lesson(*situation) for situation in situations]
    used: dict[str, tuple[int, int]] = {}
    made: list[SeededTask] = []
    for number, situation in enumerate(situations[:tasks]):
        gold = lessons[number]
        if number % 3 == 0:
            rival = _lesson(*situation, "make the same call three more times", "|rival")
            lessons.append(rival)
            used[rival.id], used[gold.id] = (1, 4), (3, 0)
        made.append(_task(chance, situation, {gold.id: 1.0}))
    chance.shuffle(lessons)
    nothing = [
        SeededTask(f"{chance.choice(_ELSEWHERE)}, {chance.choice(_ELSEWHERE)}", None, {})
        for _ in range(SILENT)
    ]
    return SeededSet(lessons, used, made, nothing)


def _tool(verb: str, thing: str) -> str:
    return f"{verb}_{thing}"


def _lesson(verb: str, thing: str, trouble: str, advice: str = "", mark: str = "") -> Lesson:
    tool = _tool(verb, thing)
    return Lesson(
        trigger=f"{tool} fails with: {trouble}",
        action=f"For the {thing.replace('_', ' ')}, {advice or _ADVICE[trouble]}.",
        how="recovery",
        tools=[tool],
        error=trouble,
        key=f"{tool}|{trouble}{mark}",
    )


def _task(
    chance: random.Random, situation: tuple[str, str, str], gains: dict[str, float]
) -> SeededTask:
    verb, thing, trouble = situation
    said_verb = chance.choice([verb, *_VERBS[verb]])
    plain = thing.replace("_", " ")
    said_thing = chance.choice([plain, plain, *_OBJECTS[thing]])
    said_trouble = chance.choice([trouble, trouble, *_TROUBLES[trouble]])
    other = chance.choice([name for name in _OBJECTS if name != thing]).replace("_", " ")
    aside = chance.choice(_ASIDES).format(other=other)
    text = f"{said_verb.capitalize()} the {said_thing}, where {said_trouble}. {aside}"
    tools = None
    if chance.random() < 0.6:
        more = {_tool(chance.choice(list(_VERBS)), chance.choice(list(_OBJECTS))) for _ in range(4)}
        tools = sorted({_tool(verb, thing), *more})
    return SeededTask(text, tools, gains)


DEPTH = 10
KS = (1, 3, 5)
RESAMPLES = 1_000


class Scores(msgspec.Struct, frozen=True):
    """Scores of a method. silent: the share of tasks without a lesson that it left unanswered."""

    hit: dict[str, float]
    mrr: float
    ndcg: float
    silent: float


class Evaluation(msgspec.Struct, frozen=True):
    """Scores of all methods on one seeded set, and em's margin over BM25 in MRR.

    margin_95: the margin's confidence interval, by resampling the tasks.
    """

    seed: int
    tasks: int
    heuristics: int
    methods: dict[str, Scores]
    margin: float
    margin_95: tuple[float, float]


def evaluate(
    seed: int = 0,
    tasks: int = 100,
    embed: Embed | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Evaluation:
    """Run the seeded benchmark in a store of its own.

    embed: an embedder, to find candidates by meaning too.
    progress: called with the number of tasks that were answered, and of all of them.
    """
    if not 1 <= tasks <= 900:
        raise UsageError(f"tasks must be 1 to 900, got {tasks}", place="tasks")
    made = seeded_set(seed, tasks)
    asked = [*made.tasks, *made.silent]
    found: dict[str, list[Sequence[str]]] = {}
    with SqliteStore(IN_MEMORY) as store:
        _fill(store, made)
        book = Heuristics(store, embed=embed)
        book.embed_all()
        by_words = LessonRecall(store, passed_over=frozenset())
        ids = sorted(lesson.id for lesson in made.lessons)
        chance = random.Random(seed)  # noqa: S311 - a benchmark is to be repeatable, not secret
        methods: dict[str, Callable[[SeededTask], Sequence[str]]] = {
            "em": lambda task: book.brief(task.text, DEPTH, tools=task.tools).ids,
            "bm25": lambda task: _ids(by_words(task.text, EVERYBODY, DEPTH)),
            "random": lambda _task: chance.sample(ids, DEPTH),
        }
        for name, method in methods.items():
            found[name] = []
            for task in asked:
                found[name].append(method(task))
                progress(sum(map(len, found.values())), len(methods) * len(asked))
    ranks = [[*map(_reciprocal, found[name], made.tasks)] for name in ("em", "bm25")]
    margins = [ours - theirs for ours, theirs in zip(*ranks, strict=True)]
    scores = {name: _scores(answers, made) for name, answers in found.items()}
    return Evaluation(
        seed, len(made.tasks), len(made.lessons), scores, fmean(margins), _interval(margins, seed)
    )


def _fill(store: Store, made: SeededSet) -> None:
    learn(store, made.lessons)
    for heuristic_id, (well, badly) in made.used.items():
        for _ in range(well):
            feedback(store, [heuristic_id], "success")
        for _ in range(badly):
            feedback(store, [heuristic_id], "failure")


def _ids(hits: Iterable[LessonHit]) -> list[str]:
    return [hit.passage.stream.removeprefix(HEURISTIC_PREFIX) for hit in hits]


def _scores(answers: Sequence[Sequence[str]], made: SeededSet) -> Scores:
    fitting, silent = answers[: len(made.tasks)], answers[len(made.tasks) :]
    return Scores(
        hit={str(k): fmean(map(partial(_hit, k), fitting, made.tasks)) for k in KS},
        mrr=fmean(map(_reciprocal, fitting, made.tasks)),
        ndcg=fmean(map(_ndcg, fitting, made.tasks)),
        silent=fmean(not one for one in silent),
    )


def _hit(k: int, found: Sequence[str], task: SeededTask) -> float:
    return float(not task.gains.keys().isdisjoint(found[:k]))


def _reciprocal(found: Sequence[str], task: SeededTask) -> float:
    return next((1 / place for place, one in enumerate(found, 1) if one in task.gains), 0.0)


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
    """Return the scores as rows of a table."""
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
