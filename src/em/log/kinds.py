"""Every kind of event, with the Struct of its body.

A kind that is not listed here is the user's own: its body is any JSON object. A body may hold more
than its Struct names; what it names must be right. A body that was derived from other events says
so in `from_events`, so that forgetting those forgets it too.
"""

from collections.abc import Mapping
from functools import lru_cache
from re import compile as pattern
from typing import Any

import msgspec

from em.errors import BadBody, InputError
from em.heuristics.heuristic import Learned, Retired, Used
from em.heuristics.loop_events import IterationDone, IterationStarted, LoopEnded, LoopStarted
from em.log.job import Job, JobReport
from em.state.schema import Decision, Extraction, Question
from em.traces.trace import Approval, Message, Outcome, ToolCall, UdfCall
from em.values.canonical import Json

VERSION = 1


class Observation(msgspec.Struct, frozen=True):
    """Something learned about a subject: a text or a record, and who said it."""

    text: str | None = None
    record: Json | None = None
    type: str | None = None
    speaker: str | None = None
    role: str | None = None
    session: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.record is None):
            raise ValueError("an observation has either `text` or `record`")


class TraceStarted(msgspec.Struct, frozen=True):
    """An attempt at a task begins."""

    goal: str
    app: Json | None = None
    input: Any = None
    parent: str | None = None
    parent_call: str | None = None


class TraceEnded(msgspec.Struct, frozen=True):
    """An attempt is over."""

    outcome: Outcome
    output: Any = None


class CallEnded(msgspec.Struct, frozen=True):
    """The result of a call that was kept before it had one; `call` is the id of its event."""

    call: str
    result: Any = None
    error: Any = None
    duration_ms: float | None = None
    from_events: list[str] = []


class UnknownLine(msgspec.Struct, frozen=True):
    """A part of a transcript that is neither said nor called, as it stood there."""

    text: str
    place: str = ""
    why: str = ""


class TranscriptRead(msgspec.Struct, frozen=True):
    """A file of transcripts was read to its end, as large and as old as this."""

    path: str
    format: str
    size: int
    modified: int
    traces: list[Json] = []


class Erased(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bodies of earlier events of this stream were erased on request."""

    events: list[str]
    reason: str = ""


class RunStarted(msgspec.Struct, frozen=True):
    """A routine begins to run: the one in a folder, or one that is stored as `name@version`."""

    routine: str
    hash: str
    input: Json
    folder: str = ""
    stored: str = ""
    resume_with: str = ""


class StepStarted(msgspec.Struct, frozen=True):
    """A step with an effect is about to run."""

    step: str
    tool: str = ""
    item: int | None = None
    item_hash: str = ""
    args: Any = None
    key: Any = None


class StepDone(msgspec.Struct, frozen=True):
    """A step is over: done, or gone on from with a default; `next` is about to run."""

    step: str
    item: int | None = None
    item_hash: str = ""
    result: Any = None
    status: str = "done"
    attempts: int = 1
    duration_ms: float = 0.0
    error: str = ""
    fix: Json | None = None
    next: StepStarted | None = None
    from_events: list[str] = []


class WorkflowStarted(msgspec.Struct, frozen=True):
    """A workflow begins to run: all of it, so that the run goes on whatever becomes of its file.

    `definition` is its JSON as one text: it is written with every run, and looked into by few.
    """

    workflow: str
    hash: str
    definition: str
    input: Json
    prompt: str | None = None
    resume_with: str = ""
    from_events: list[str] = []


class WorkflowCleaned(msgspec.Struct, frozen=True):
    """Old workflow runs were erased: which, and why."""

    runs: list[str]
    events: int
    bytes: int = 0
    reason: str = ""


class RunPaused(msgspec.Struct, frozen=True):
    """A run waits for a person."""

    prompt: Json


class RunAnswered(msgspec.Struct, frozen=True):
    """A person answered."""

    answers: dict[str, Json]


class RunEnded(msgspec.Struct, frozen=True):
    """A run is over."""

    status: str
    output: Any = None
    failure: Json | None = None


class CodeWritten(msgspec.Struct, frozen=True):
    """A model wrote code that a routine runs."""

    file: str
    sha256: str
    model: str = ""
    routine: str = ""
    from_events: list[str] = []


class CodeTrusted(msgspec.Struct, frozen=True):
    """A person said that they have read this code. A record of it; it gives no rights."""

    file: str
    sha256: str
    size: int = 0


class CodeDistrusted(msgspec.Struct, frozen=True):
    """A person took back that they trust this code."""

    file: str
    sha256: str


class BehaviourRecorded(msgspec.Struct, frozen=True):
    """A run became a behaviour of an engine; `key` is the task's."""

    engine: str
    key: str
    steps: int
    seconds: float = 0.0
    from_events: list[str] = []


class BehaviourReplayed(msgspec.Struct, frozen=True):
    """A behaviour was replayed: to its end (`hit`), or until the agent took over.

    `results` are those of its steps, in their order; the steps are the behaviour's.
    """

    engine: str
    key: str
    outcome: str
    versions: list[int]
    results: list[Any] = []
    params: Json | None = None
    seconds: float = 0.0
    saved: Json | None = None
    reason: str = ""
    cause: str = ""
    from_events: list[str] = []


class BehaviourMissed(msgspec.Struct, frozen=True):
    """An engine had nothing to replay, or nothing that fits: the agent did it."""

    engine: str
    key: str
    reason: str
    seconds: float = 0.0
    versions: list[int] = []
    handed_over: bool = False
    error: str = ""


class BehaviourRetired(msgspec.Struct, frozen=True):
    """A behaviour was taken out of use."""

    engine: str
    key: str
    version: int
    reason: str
    recorded: str = ""


BODIES: Mapping[str, type[msgspec.Struct]] = {
    "extracted": Extraction,
    "decided": Decision,
    "question": Question,
    "observation": Observation,
    "message": Message,
    "trace_started": TraceStarted,
    "tool_call": ToolCall,
    "udf_call": UdfCall,
    "approval": Approval,
    "trace_ended": TraceEnded,
    "call_ended": CallEnded,
    "unknown_line": UnknownLine,
    "transcript_read": TranscriptRead,
    "erased": Erased,
    "run_started": RunStarted,
    "step_started": StepStarted,
    "step_done": StepDone,
    "workflow_started": WorkflowStarted,
    "workflow_cleaned": WorkflowCleaned,
    "run_paused": RunPaused,
    "run_answered": RunAnswered,
    "run_ended": RunEnded,
    "code_written": CodeWritten,
    "code_trusted": CodeTrusted,
    "code_distrusted": CodeDistrusted,
    "behaviour_recorded": BehaviourRecorded,
    "behaviour_replayed": BehaviourReplayed,
    "behaviour_missed": BehaviourMissed,
    "behaviour_retired": BehaviourRetired,
    "heuristic_learned": Learned,
    "heuristic_used": Used,
    "heuristic_retired": Retired,
    "loop_started": LoopStarted,
    "loop_iteration_started": IterationStarted,
    "loop_iteration": IterationDone,
    "loop_ended": LoopEnded,
    "job_queued": Job,
    "job_done": JobReport,
}

_DECODERS = {kind: msgspec.json.Decoder(body).decode for kind, body in BODIES.items()}
_NAME = pattern(r"[a-z][a-z0-9_.-]{0,63}")


def check_kind(kind: Any, v: Any) -> None:
    """A kind is a short lower-case word; its version is one that this em knows."""
    if type(kind) is str and type(v) is int:
        _check_kind(kind, v)
        return
    raise InputError(
        f"a kind is a text and its version a whole number, not {kind!r} and {v!r}"[:200],
        place="kind" if type(v) is int else "v",
    )


@lru_cache(maxsize=1024)
def _check_kind(kind: str, v: int) -> None:
    if not _NAME.fullmatch(kind):
        raise InputError(
            f"{kind[:60]!r} is no kind of event",
            place="kind",
            fix="use a lower-case word such as tool_call or my_app.login",
        )
    if not 1 <= v < 2**31:
        raise InputError(f"{v} is no version", place="v", fix="count from 1")
    if kind in BODIES and v != VERSION:
        raise InputError(
            f"version {v} of '{kind}' is not known; this em writes version {VERSION}",
            place="v",
            fix="upgrade em-core" if v > VERSION else "leave v out",
        )


def check_body(kind: str, text: bytes) -> None:
    """Check a body's canonical text against the Struct of its kind."""
    decode = _DECODERS.get(kind)
    if decode is None:
        return
    try:
        decode(text)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise BadBody(
            f"{message} (kind '{kind}')", place="body" + path.rstrip("`"), fix=_shape(kind)
        ) from None


def _shape(kind: str) -> str:
    fields = msgspec.structs.fields(BODIES[kind])
    required = [field.encode_name for field in fields if field.required]
    optional = [field.encode_name for field in fields if not field.required]
    has = f"has {' and '.join(required)}, and may have" if required else "may have"
    return f"it {has} {', '.join(optional)}" if optional else f"it has {' and '.join(required)}"


SEARCHED = frozenset({"observation", "message"})


def searched_text(kind: str, body: Json | None) -> str | None:
    """The text of an event that recall searches; None for a kind that is not searched."""
    if body is None or kind not in SEARCHED:
        return None
    if body.get("text") is not None:
        return str(body["text"])
    return " ".join([f"{name}: {value!s}" for name, value in body["record"].items()])


def detail(body: Json | None, name: str) -> str | None:
    """What a body says of an event's speaker, role or session, if it is a text."""
    value = None if body is None else body.get(name)
    if not isinstance(value, str):
        return None
    # PostgreSQL has no NUL in a text; both stores keep the same.
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value


def details(body: Json | None) -> tuple[str | None, str | None, str | None]:
    """Speaker, role and session."""
    return detail(body, "speaker"), detail(body, "role"), detail(body, "session")
