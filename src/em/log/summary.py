"""Summary: a run, a trace, a job or a lesson in short, as lists show it.

A summary is made of the first event of a stream, and changed by some of those that follow. Each
room registers how its own events change it (`event_summary`). The store has a row for each summary
and writes it in the same commit as the events.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from em.errors import InputError
from em.log.event import JOB_PREFIX, MAX_NAME, RUN_PREFIX, TRACE_PREFIX
from em.log.kinds import body_type
from em.values.canonical import Json
from em.values.times import from_micros, to_micros

Noun = Literal["trace", "run", "workflow", "job", "lesson"]
STARTS: Mapping[str, tuple[Noun, str]] = {
    "trace_started": ("trace", TRACE_PREFIX),
    "run_started": ("run", RUN_PREFIX),
    "workflow_started": ("workflow", RUN_PREFIX),
    "job_queued": ("job", JOB_PREFIX),
}
"""By the kind of a stream's first event: what it begins, and how the stream's name begins."""
CHANGES: Mapping[str, tuple[Noun, ...]] = {
    **dict.fromkeys(("tool_call", "udf_call", "call_ended"), ("trace",)),
    **dict.fromkeys(("trace_ended", "trace_labelled"), ("trace",)),
    **dict.fromkeys(("run_paused", "run_ended", "run_cancelled"), ("run", "workflow")),
    **dict.fromkeys(("run_answered", "run_resumed", "run_retried"), ("run", "workflow")),
    **dict.fromkeys(("job_done", "job_cancelled"), ("job",)),
}
"""Kinds of events that change a summary, and of what. The steps of a run are not among them: they
are counted when it pauses or ends, so that a step writes no second row."""
SUMMARISED = frozenset({*STARTS, *CHANGES})

LONGEST = 500
"""Characters of a value that a summary has. Lists read the rest from the event."""


class Summary(msgspec.Struct, kw_only=True):
    """What lists show of a stream, and what they are filtered by.

    seq, at: the number and the time of the first event. ended: the time of the last end.
    name: the routine, the workflow, the job's routine, or the first characters of a trace's goal.
    parent: the stream that this one is a part of: a sub-agent's trace, a run inside a workflow's.
    calls, failed: calls of a trace, steps of a run or items of a job; and how many failed.
    size: the characters of a run's events, counted when it pauses or ends.
    shown: what else the noun's lists show.
    """

    stream: str
    noun: Noun
    subject: str | None
    seq: int
    at: datetime
    ended: datetime | None = None
    status: str = ""
    name: str = ""
    agent: str = ""
    parent: str | None = None
    calls: int = 0
    failed: int = 0
    size: int = 0
    shown: Json = {}

    @property
    def id(self) -> str:
        """The id of the run, the trace, the job or the lesson."""
        return self.stream.partition("/")[2]

    @property
    def cursor(self) -> "Cursor":
        """Where a list goes on after this."""
        return Cursor(self.at, self.seq)


class Cursor(NamedTuple):
    """A place in a list: the time and the number of the summary that was shown last."""

    at: datetime
    seq: int

    def __str__(self) -> str:
        return f"{to_micros(self.at)}-{self.seq}"

    @classmethod
    def of(cls, text: str | None) -> "Cursor | None":
        """Read a cursor as a list printed it. Raise InputError if it is none."""
        if not text:
            return None
        found = re.fullmatch(r"(-?\d{1,18})-(\d{1,18})", text)
        if found is None:
            raise InputError(
                f"expected a cursor as a list returned it, got {text[:60]!r}",
                place="cursor",
                fix="leave it out for the first page",
            )
        try:
            return cls(from_micros(int(found[1])), int(found[2]))
        except OverflowError:
            raise InputError("the cursor is out of range", place="cursor") from None


class SummaryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which summaries to list: by when they began, the newest first.

    subjects: about one of these; "" stands for those about nobody. None for all.
    name, status, agent, parent: exactly this.
    since, until: when they began.
    beyond: go on behind this place.
    oldest: the oldest first instead.
    """

    noun: Noun
    subjects: Sequence[str] | None = None
    name: str | None = None
    status: str | None = None
    agent: str | None = None
    parent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    beyond: Cursor | None = None
    oldest: bool = False


class Totals(msgspec.Struct, frozen=True):
    """What the summaries of one name add up to; `first` and `last` are when they began."""

    name: str
    count: int
    calls: int
    size: int
    first: datetime
    last: datetime

    def __add__(self, other: "Totals") -> "Totals":
        """Add up two."""
        return Totals(
            self.name,
            self.count + other.count,
            self.calls + other.calls,
            self.size + other.size,
            min(self.first, other.first),
            max(self.last, other.last),
        )


Fold = Callable[[Summary, Json, datetime], None]
"""Changes a summary by the body and the time of an event."""
_FOLDS: dict[str, Fold] = {}


def event_summary(*kinds: str) -> Callable[[Fold], Fold]:
    """Register how events of these kinds change a summary. SUMMARISED must have the kinds."""

    def register(fold: Fold) -> Fold:
        _FOLDS.update(dict.fromkeys(kinds, fold))
        return fold

    return register


def begin(
    stream: str, kind: str, subject: str | None, seq: int, at: datetime, body: Json
) -> Summary | None:
    """Return the summary that an event begins; None if it begins none."""
    noun, prefix = STARTS.get(kind, (None, ""))
    if noun is None or not stream.startswith(prefix):
        return None
    made = Summary(stream=stream, noun=noun, subject=subject, seq=seq, at=at, shown={})
    _fold_of(kind)(made, body, at)
    made.name = shown_text(made.name, MAX_NAME)
    made.agent = shown_text(made.agent, MAX_NAME)
    return made


def change(made: Summary, kind: str, at: datetime, body: Json) -> None:
    """Change a summary by an event, if events of its kind do."""
    if made.noun in CHANGES.get(kind, ()):
        _fold_of(kind)(made, body, at)


def _fold_of(kind: str) -> Fold:
    if kind not in _FOLDS:
        body_type(kind)  # imports the room of the kind
    return _FOLDS[kind]


def shown_text(value: Any, longest: int = LONGEST) -> str:
    """Return the first characters of a text; PostgreSQL stores no NUL, so neither store does."""
    return str(value)[:longest].replace("\0", "\N{REPLACEMENT CHARACTER}")


def shown_value(value: Any) -> Json:
    """Return a value as a summary has it: itself if it is short, or a note that it was too long."""
    short = len(msgspec.json.encode(value)) <= LONGEST
    return {"value": value} if short else {"cut": True}
