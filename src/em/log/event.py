"""Event: one thing that happened. Drafts of events, queries, and the names of streams."""

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from em.errors import InputError
from em.values.canonical import Json

MAX_NAME = 512
"""The maximum length of a name, such as that of a stream or a subject."""


class Draft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event to append. The store adds position, times and hashes."""

    stream: str
    kind: str
    body: Json
    subject: str | None = None
    at: datetime | None = None
    v: int = 1
    id: str | None = None


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event in the log. `body` and `salt` are None once it was erased."""

    seq: int
    id: str
    stream: str
    pos: int
    subject: str | None
    kind: str
    v: int
    at: datetime
    recorded_at: datetime
    body: Json | None
    salt: str | None
    body_hash: str
    hash: str

    @property
    def erased(self) -> bool:
        """Whether the body was erased."""
        return self.body is None


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to read, oldest first.

    after, before: only events with a greater, or a smaller, `seq`.
    newest: the last `limit` events instead of the first.
    by_stream: in the order of streams and positions instead of `seq`.
    """

    stream: str | None = None
    subject: str | None = None
    kinds: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0
    before: int | None = None
    ids: Sequence[str] = ()
    limit: int | None = None
    newest: bool = False
    by_stream: bool = False


def check_name(name: Any, field: str) -> str:
    """Return a name, such as that of a stream. Raise InputError if it is not printable text."""
    if type(name) is str and 0 < len(name) <= MAX_NAME and name.isprintable():
        return name
    raise InputError(
        f"expected a name, got {str(name)[:60]!r}",
        place=field,
        fix=f"use 1 to {MAX_NAME} printable characters",
    )


class Row(msgspec.Struct, frozen=True):
    """An event as the table has it, undecoded: for verifying and for exact copies."""

    seq: int
    id: str
    stream: str
    pos: int
    subject: str | None
    kind: str
    v: int
    at: int
    recorded_at: int
    body: str | None
    salt: bytes | None
    body_hash: bytes
    hash: bytes


ABOUT_PREFIX = "about/"
BEHAVIOUR_PREFIX = "behaviours/"
CODE_PREFIX = "code/"
HEURISTIC_PREFIX = "heuristic/"
JOB_PREFIX = "job/"
LOOP_PREFIX = "loop/"
PROPOSAL_PREFIX = "proposal/"
ROUTINE_PREFIX = "routine/"
RUN_PREFIX = "run/"
SHADOW_PREFIX = "shadow/"
SUBJECT_PREFIX = "subject/"
TOLD_PREFIX = "told/"
TRACE_PREFIX = "trace/"
TRANSCRIPT_PREFIX = "transcript/"

WORKFLOW_CLEAN_UP = "workflow/clean-up"
"""The stream that records when old workflow memory was erased."""


def about_stream(subject: str) -> str:
    """Name the stream of the event that stands for a subject. Raise InputError for a bad name."""
    return ABOUT_PREFIX + check_name(subject, "subject")


def behaviour_stream(engine: str, key: str | None = None) -> str:
    """Name the stream of an engine's cache; with a key, the stream of one of its tasks."""
    return BEHAVIOUR_PREFIX + (engine if key is None else f"{engine}/{key}")


def code_stream(sha256: str) -> str:
    """Name the stream of a piece of code: who wrote it, and whether a person trusts it."""
    return CODE_PREFIX + sha256


def heuristic_stream(heuristic_id: str) -> str:
    """Name the stream of a heuristic."""
    return HEURISTIC_PREFIX + heuristic_id


def job_stream(job_id: str) -> str:
    """Name the stream of a queued job."""
    return JOB_PREFIX + job_id


def loop_stream(loop_id: str) -> str:
    """Name the stream of a learning loop."""
    return LOOP_PREFIX + loop_id


def proposal_stream(key: str) -> str:
    """Return the stream of a proposal to keep a routine."""
    return PROPOSAL_PREFIX + key


def routine_stream(name: str) -> str:
    """Name the stream of what people did with a routine: accepted, retired, restored."""
    return ROUTINE_PREFIX + name


def run_stream(run_id: str) -> str:
    """Name the stream of a run, which is its journal."""
    return RUN_PREFIX + run_id


_INNER = re.compile(r"(.+)-[0-9a-f]{12}")


def inner_run_id(key: str) -> str:
    """Return the id of a run inside a workflow's step: the same for the same key.

    The default key begins with the id of the workflow's run and a slash.
    """
    run_id, _, rest = key.partition("/")
    return f"{run_id}-{sha256(rest.encode()).hexdigest()[:12]}"


def outer_stream(stream: str) -> str | None:
    """Return the stream of the run that an inner run belongs to, judged by its name."""
    found = _INNER.fullmatch(stream) if stream.startswith(RUN_PREFIX) else None
    return found[1] if found else None


def shadow_stream(routine: str) -> str:
    """Name the stream of what a routine would have done beside an agent."""
    return SHADOW_PREFIX + routine


def subject_stream(subject: str) -> str:
    """Name the stream of a subject's observations. Raise InputError for a bad name."""
    return SUBJECT_PREFIX + check_name(subject, "subject")


def told_stream(session: str) -> str:
    """Name the stream of what a coding agent's session was told; sessions have any names."""
    return TOLD_PREFIX + sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:28]


def trace_stream(trace_id: str) -> str:
    """Name the stream of a trace."""
    return TRACE_PREFIX + trace_id


def transcript_stream(name: str) -> str:
    """Name the stream of a transcript file that is watched."""
    return TRANSCRIPT_PREFIX + name
