"""The registry of event kinds: each room registers the Struct of its own events' bodies.

A kind that is not in HOMES is a user's kind, whose body is any JSON object. A body may have more
fields than its Struct: only the fields of the Struct are checked. A body that was derived from
other events lists them in `from_events`, so that forgetting those events forgets it too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from re import compile as pattern
from typing import Any, TypeVar

import msgspec

from em.errors import BadBody, InputError
from em.log.event import Event
from em.values.canonical import Json
from em.values.mismatch import mismatch

VERSION = 1
S = TypeVar("S", bound=msgspec.Struct)

HOMES: Mapping[str, str] = {
    "extracted": "em.state.schema",
    "read": "em.state.schema",
    "decided": "em.state.schema",
    "question": "em.state.schema",
    "observation": "em.state.schema",
    "message": "em.traces.trace",
    "trace_started": "em.traces.trace",
    "tool_call": "em.traces.trace",
    "udf_call": "em.traces.trace",
    "approval": "em.traces.trace",
    "trace_ended": "em.traces.trace",
    "trace_labelled": "em.traces.trace",
    "call_ended": "em.traces.trace",
    "unknown_line": "em.traces.trace",
    "transcript_read": "em.traces.trace",
    "erased": "em.log.kinds",
    "about": "em.store.log",
    "run_started": "em.runner.run",
    "step_started": "em.runner.run",
    "step_done": "em.runner.run",
    "run_paused": "em.runner.run",
    "run_answered": "em.runner.run",
    "run_resumed": "em.runner.run",
    "run_retried": "em.runner.run",
    "run_cancelled": "em.runner.run",
    "run_ended": "em.runner.run",
    "workflow_started": "em.workflows.inspection",
    "workflow_cleaned": "em.workflows.inspection",
    "code_written": "em.runner.authorship",
    "code_trusted": "em.runner.authorship",
    "code_distrusted": "em.runner.authorship",
    "shadow_compared": "em.compiler.shadow",
    "routine_struck": "em.compiler.checks",
    "routine_retired": "em.runner.standing",
    "routine_restored": "em.runner.standing",
    "routine_accepted": "em.runner.standing",
    "acceptance_withdrawn": "em.runner.standing",
    "routine_proposed": "em.compiler.proposals",
    "proposal_told": "em.compiler.proposals",
    "lessons_told": "em.heuristics.health",
    "lessons_judged": "em.heuristics.health",
    "behaviour_recorded": "em.behaviour.behaviour",
    "behaviour_replayed": "em.behaviour.behaviour",
    "behaviour_missed": "em.behaviour.behaviour",
    "behaviour_retired": "em.behaviour.behaviour",
    "heuristic_learned": "em.heuristics.heuristic",
    "heuristic_used": "em.heuristics.heuristic",
    "heuristic_retired": "em.heuristics.heuristic",
    "loop_started": "em.heuristics.loop",
    "loop_iteration_started": "em.heuristics.loop",
    "loop_iteration": "em.heuristics.loop",
    "loop_ended": "em.heuristics.loop",
    "job_queued": "em.work.job",
    "job_done": "em.work.job",
    "job_cancelled": "em.work.job",
}
"""The module that registers the body of each of em's kinds. It is imported at first use."""

_BODIES: dict[str, type[msgspec.Struct]] = {}
_DECODERS: dict[str, Callable[[bytes], Any]] = {}


def event_body(kind: str) -> Callable[[type[S]], type[S]]:
    """Register a Struct as the body of a kind of event. HOMES must list the kind.

    Make the decoder here, while the module is imported, by one thread: msgspec crashes when
    several threads prepare the same Struct at the same time.
    """

    def register(body: type[S]) -> type[S]:
        _DECODERS[kind] = msgspec.json.Decoder(body).decode
        _BODIES[kind] = body
        return body

    return register


def body_type(kind: str) -> type[msgspec.Struct] | None:
    """Return the Struct of a kind's body; None for a user's kind."""
    if kind not in _BODIES and kind in HOMES:
        import_module(HOMES[kind])
    return _BODIES.get(kind)


@event_body("erased")
class Erased(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a tombstone: the bodies of these events of the stream were erased."""

    events: list[str]
    reason: str = ""


Edge = tuple[str, str]
"""The id of an event, and what was made of it: the id of an event, or the name of a stream."""
ONLY = "only "
"""Before the id of an event: it goes because it also holds something else. What was made of its
other content stays."""
Flow = Callable[[Sequence[Event]], Iterable[Edge]]
"""Returns the edges among events of one stream, in their order. Erased ones have no body."""

FLOWS: Mapping[str, str] = {
    "trace_started": "em.traces.trace",
    "run_started": "em.runner.run",
    "workflow_started": "em.workflows.descent",
    "loop_started": "em.heuristics.loop",
    "job_queued": "em.work.job",
}
"""By the kind of a stream's first event, the module that knows what was made of what in it.

These edges follow from what the events are. No event lists them, so writing them costs nothing.
"""

_FLOWS: dict[str, Flow] = {}


def event_flow(kind: str) -> Callable[[Flow], Flow]:
    """Register the flow of streams whose first event has this kind. FLOWS must list the kind."""

    def register(flow: Flow) -> Flow:
        _FLOWS[kind] = flow
        return flow

    return register


def flow_of(kind: str) -> Flow | None:
    """Return the flow of streams that begin with this kind of event; None if there is none."""
    if kind not in _FLOWS and kind in FLOWS:
        import_module(FLOWS[kind])
    return _FLOWS.get(kind)


_NAME = pattern(r"[a-z][a-z0-9_.-]{0,63}")


def check_kind(kind: Any, v: Any) -> None:
    """Raise InputError unless the kind is a lower-case word and its version is known."""
    if type(kind) is str and type(v) is int:
        _check_kind(kind, v)
        return
    raise InputError(
        f"kind must be a string and v a whole number, got {kind!r} and {v!r}"[:200],
        place="kind" if type(v) is int else "v",
    )


@lru_cache(maxsize=1024)
def _check_kind(kind: str, v: int) -> None:
    if not _NAME.fullmatch(kind):
        raise InputError(
            f"expected a kind of event, got {kind[:60]!r}",
            place="kind",
            fix="use a lower-case word such as tool_call or my_app.login",
        )
    if not 1 <= v < 2**31:
        raise InputError(f"v must be a version from 1 on, got {v}", place="v")
    if kind in HOMES and v != VERSION:
        raise InputError(
            f"expected version {VERSION} of '{kind}', got {v}",
            place="v",
            fix="upgrade em-core" if v > VERSION else "leave v out",
        )


def check_body(kind: str, text: bytes) -> None:
    """Raise BadBody unless a body's canonical text fits the Struct of its kind."""
    if body_type(kind) is None:
        return
    try:
        _DECODERS[kind](text)
    except msgspec.ValidationError as error:
        message, path = mismatch(error)
        place = f"body.{path}" if path else "body"
        raise BadBody(f"{message} (kind '{kind}')", place=place, fix=_shape(kind)) from None


def _shape(kind: str) -> str:
    fields = msgspec.structs.fields(_BODIES[kind])
    required = [field.encode_name for field in fields if field.required]
    optional = [field.encode_name for field in fields if not field.required]
    has = f"has {' and '.join(required)}, and may have" if required else "may have"
    return f"it {has} {', '.join(optional)}" if optional else f"it has {' and '.join(required)}"


_TEXTS: dict[str, Callable[[Json], str]] = {}


def event_text(kind: str) -> Callable[[Callable[[Json], str]], Callable[[Json], str]]:
    """Register the function that returns the text of a body of this kind, as it is searched."""

    def register(text: Callable[[Json], str]) -> Callable[[Json], str]:
        _TEXTS[kind] = text
        return text

    return register


SEARCHED = frozenset({"observation", "message"})
"""Kinds whose events are indexed when they are appended."""


def searched_text(kind: str, body: Json | None) -> str | None:
    """Return the text by which an event is found; None for an event without one."""
    if body is None:
        return None
    if kind not in SEARCHED and body_type(kind) is not None and kind in _TEXTS:
        return _TEXTS[kind](body)
    if body.get("text") is not None:
        return str(body["text"])
    record = body.get("record")
    if not isinstance(record, dict):
        return None
    return " ".join([f"{name}: {value!s}" for name, value in record.items()])


def detail(body: Json | None, name: str) -> str | None:
    """Return a detail of a body, such as the speaker, if it is a string."""
    value = None if body is None else body.get(name)
    if not isinstance(value, str):
        return None
    # PostgreSQL stores no NUL in text: replace it in both stores.
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value


def details(body: Json | None) -> tuple[str | None, str | None, str | None]:
    """Return speaker, role and session of a body."""
    return detail(body, "speaker"), detail(body, "role"), detail(body, "session")
