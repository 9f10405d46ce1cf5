"""Heuristic: a lesson with its evidence and its record of use. Briefing: the best for a task."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from em.log.kinds import event_body, event_text
from em.traces.trace import Outcome
from em.values.canonical import Json

Polarity = Literal["failure", "success"]
How = Literal["recovery", "difference", "dead_end", "failed_check", "model", "given"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a lesson was learned: the events that failed, those that worked, and what happened."""

    trace: str = ""
    failed: Sequence[str] = ()
    worked: Sequence[str] = ()
    note: str = ""

    @property
    def event_ids(self) -> list[str]:
        """Every event it speaks of."""
        return [*self.failed, *self.worked]


class Lesson(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When (trigger), do (action), because (analysis).

    key: what makes two lessons the same one; lessons in free words have none.
    polarity: whether it says what worked, or what failed.
    """

    trigger: str
    action: str
    analysis: str = ""
    polarity: Polarity = "success"
    how: How = "given"
    tools: Sequence[str] = ()
    error: str = ""
    domain: str = ""
    subject: str | None = None
    source_task: str = ""
    key: str = ""
    evidence: Evidence = Evidence()

    @property
    def id(self) -> str:
        """The same lesson has the same id, wherever it was learned."""
        words = self.key or f"{self.trigger}\n{self.action}".casefold()
        said = msgspec.json.encode((self.subject, self.how if self.key else "", words))
        return "h" + hashlib.sha256(said).hexdigest()[:15]


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How often a heuristic was learned and handed out, and how those runs ended."""

    learned: int = 0
    used: int = 0
    helped: int = 0
    hindered: int = 0
    last_used: str = ""

    @property
    def usefulness(self) -> float:
        """The share of its runs that went well, drawn to one half while there are few."""
        return (self.helped + 1) / (self.helped + self.hindered + 2)


class Heuristic(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson in a memory."""

    id: str
    lesson: Lesson
    use: Use
    at: datetime
    retired: bool = False


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A heuristic that fits a task: its score, and each reason with its part of it."""

    heuristic: Heuristic
    score: float
    reasons: dict[str, float]


class Briefing(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt section with the lessons for a task; empty where none is relevant.

    notes: what could not be done, such as asking an embedder.
    """

    text: str
    heuristics: Sequence[Ranked] = ()
    notes: Sequence[str] = ()

    @property
    def ids(self) -> list[str]:
        """What to name when the outcome is known (`memory.feedback`)."""
        return [ranked.heuristic.id for ranked in self.heuristics]

    def __bool__(self) -> bool:
        return bool(self.heuristics)


@event_body("heuristic_learned")
class Learned(msgspec.Struct, frozen=True):
    """Body of an event: a lesson was learned, from these events."""

    lesson: Lesson
    from_events: list[str] = []


@event_text("heuristic_learned")
def learned_text(body: Json) -> str:
    """Return the words by which a lesson is found."""
    return searched_text(msgspec.convert(body, Learned).lesson)


def searched_text(lesson: Lesson) -> str:
    """Return the words by which a lesson is found."""
    return "\n".join(
        filter(None, (lesson.trigger, lesson.action, " ".join(lesson.tools), lesson.domain))
    )


@event_body("heuristic_used")
class Used(msgspec.Struct, frozen=True):
    """Body of an event: a heuristic was handed out, and its run ended so."""

    outcome: Outcome
    task: str = ""
    trace: str = ""
    from_events: list[str] = []


@event_body("heuristic_retired")
class Retired(msgspec.Struct, frozen=True):
    """Body of an event: a heuristic was taken out of use; `into`: merged into another one."""

    reason: str = ""
    into: str = ""
