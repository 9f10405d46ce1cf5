"""The seeded benchmark: tasks and lessons made from a seed, with distractors and near-misses.

Each task has one lesson that fits it: the same tool and the same trouble, in other words. Around it
stand lessons for the same tool with another trouble, for the same trouble with another tool, and
for some a rival that says it in nearly the same words and whose runs went wrong. Some tasks have no
lesson at all.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from em.heuristics.heuristic import Lesson

_VERBS = {
    "create": ["set up", "add"],
    "update": ["change", "edit"],
    "delete": ["remove", "clear out"],
    "export": ["download", "hand over"],
    "send": ["deliver", "mail out"],
    "schedule": ["plan", "arrange"],
    "merge": ["combine", "join"],
    "approve": ["sign off", "accept"],
}
_OBJECTS = {
    "invoice": ["bill"],
    "customer_record": ["client entry"],
    "calendar_event": ["meeting"],
    "pull_request": ["code change"],
    "database_row": ["table entry"],
    "shipment": ["parcel"],
    "email_campaign": ["newsletter"],
    "deployment": ["rollout"],
    "sales_report": ["revenue summary"],
    "user_account": ["login"],
    "product_image": ["photo"],
    "refund": ["repayment"],
}
_TROUBLES = {
    "permission denied": (
        ["we are not allowed to", "access is refused"],
        "ask the owner for the editor role before the call",
    ),
    "rate limit exceeded": (
        ["too many requests", "we are being throttled"],
        "wait a minute and go on in batches of ten",
    ),
    "required field is missing": (
        ["it wants more details than we gave", "something was left empty"],
        "read the schema first and fill in every mandatory field",
    ),
    "request timed out": (
        ["it hangs and never returns", "no answer after minutes"],
        "split the work into smaller parts",
    ),
    "duplicate key": (
        ["it exists already", "there are two of the same"],
        "look the entry up and change it in place",
    ),
    "not found": (
        ["it can't be located", "nobody knows this number"],
        "search by name when the number gives nothing",
    ),
    "invalid date format": (
        ["the day and the month are swapped", "the dates come out wrong"],
        "write dates as year, month, day",
    ),
    "version conflict": (
        ["someone else changed it meanwhile", "our copy is old"],
        "read it again and apply the change to the newest version",
    ),
    "payload too large": (
        ["the file is too big", "the attachment is heavy"],
        "compress it and send a link",
    ),
    "session expired": (
        ["we got logged out", "the token is no longer good"],
        "sign in again and repeat the call once",
    ),
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


class SeededTask(NamedTuple):
    """A task, the tools in play where they are known, and the ids of lessons with their gain."""

    text: str
    tools: Sequence[str] | None
    gains: dict[str, float]


class SeededSet(NamedTuple):
    """Lessons, what became of some (well, badly), and tasks; `silent` ones have no lesson."""

    lessons: list[Lesson]
    used: dict[str, tuple[int, int]]
    tasks: list[SeededTask]
    silent: list[SeededTask]


def seeded_set(seed: int = 0, tasks: int = 300, silent: int = 60) -> SeededSet:
    """Make the set; the same seed gives the same set."""
    chance = random.Random(seed)  # noqa: S311 - a benchmark is to be repeatable, not secret
    situations = [(v, o, t) for v in _VERBS for o in _OBJECTS for t in _TROUBLES]
    chance.shuffle(situations)
    lessons = [_lesson(*situation) for situation in situations]
    used: dict[str, tuple[int, int]] = {}
    made: list[SeededTask] = []
    for number, situation in enumerate(situations[:tasks]):
        gold = lessons[number]
        gains = {gold.id: 1.0}
        if number % 3 == 0:
            rival = _rival(*situation)
            lessons.append(rival)
            used[rival.id], used[gold.id] = (1, 4), (3, 0)
        made.append(_task(chance, situation, gains))
    chance.shuffle(lessons)
    nothing = [
        SeededTask(f"{chance.choice(_ELSEWHERE)}, {chance.choice(_ELSEWHERE)}", None, {})
        for _ in range(silent)
    ]
    return SeededSet(lessons, used, made, nothing)


def _tool(verb: str, thing: str) -> str:
    return f"{verb}_{thing}"


def _lesson(verb: str, thing: str, trouble: str) -> Lesson:
    tool = _tool(verb, thing)
    return Lesson(
        trigger=f"{tool} fails with: {trouble}",
        action=f"For the {thing.replace('_', ' ')}, {_TROUBLES[trouble][1]}.",
        how="recovery",
        tools=[tool],
        error=trouble,
        key=f"{tool}|{trouble}",
    )


def _rival(verb: str, thing: str, trouble: str) -> Lesson:
    tool = _tool(verb, thing)
    return Lesson(
        trigger=f"{tool} fails with: {trouble}",
        action=f"For the {thing.replace('_', ' ')}, make the same call three more times.",
        how="recovery",
        tools=[tool],
        error=trouble,
        key=f"{tool}|{trouble}|rival",
    )


def _task(
    chance: random.Random, situation: tuple[str, str, str], gains: dict[str, float]
) -> SeededTask:
    verb, thing, trouble = situation
    said_verb = chance.choice([verb, *_VERBS[verb]])
    plain = thing.replace("_", " ")
    said_thing = chance.choice([plain, plain, *_OBJECTS[thing]])
    said_trouble = chance.choice([trouble, trouble, *_TROUBLES[trouble][0]])
    other = chance.choice([name for name in _OBJECTS if name != thing]).replace("_", " ")
    aside = chance.choice(_ASIDES).format(other=other)
    text = f"{said_verb.capitalize()} the {said_thing}, where {said_trouble}. {aside}"
    tools = None
    if chance.random() < 0.6:
        more = {_tool(chance.choice(list(_VERBS)), chance.choice(list(_OBJECTS))) for _ in range(4)}
        tools = sorted({_tool(verb, thing), *more})
    return SeededTask(text, tools, gains)
