"""The journal of a run: what a step was about to do, and what became of it, in the log.

The intent of a step with an effect is written before it runs, its result after; the result of one
step and the intent of the next share a transaction. So a run that was killed anywhere can go on:
no completed step runs again, and a step that was in flight is told apart from one that never began.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from em.errors import BadBody, NotFound, RoutineError
from em.log.event import Draft, EventQuery
from em.redaction.redactor import MARKER
from em.store.protocol import Commit, Store
from em.values.canonical import Json, canonical
from em.values.ids import new_id

Note = tuple[str, Json]
"""The kind and the body of an event."""

ItemKey = tuple[str, int | None]
"""A step, and the number of its item where it runs for each of several."""


class Restored(msgspec.Struct):
    """What is known of a run that began before."""

    results: dict[ItemKey, Any] = {}
    keys: dict[ItemKey, Any] = {}
    items: dict[ItemKey, str] = {}
    in_flight: set[ItemKey] = set()
    redacted: set[ItemKey] = set()
    answers: dict[str, Json] = {}


class Journal:
    """Writes a run's notes; a second worker on the same run is fenced off."""

    def __init__(self, store: Store, run_id: str, pos: int = 0) -> None:
        self._store = store
        self._stream = stream_of(run_id)
        self._pos = pos

    def write(self, notes: Iterable[Note]) -> None:
        """Keep notes before the run goes on."""
        drafts = [Draft(stream=self._stream, kind=kind, body=body) for kind, body in notes]
        expected = {self._stream: self._pos}
        self._store.commit(Commit(events=drafts, expected_pos=expected))
        self._pos += len(drafts)


class PastRun(msgspec.Struct, kw_only=True):
    """A run as its journal tells it."""

    run_id: str
    folder: str
    stored: str
    routine_hash: str
    input: Json
    status: str
    resume_with: str
    pos: int
    restored: Restored
    notes: list[Note]


def how_to_resume(run_id: str, options: str) -> str:
    """What a person types to go on with a run."""
    return f"em resume {run_id} {options}".rstrip()


def question_of(key: ItemKey) -> str:
    """The name under which is asked what became of a call: no step can have it."""
    step, item = key
    return f"{step}?" if item is None else f"{step}[{item}]?"


def stream_of(run_id: str) -> str:
    """The stream of a run."""
    return f"run/{run_id}"


def read_run(store: Store, run_id: str, first: str = "run_started") -> PastRun:
    """What the journal says of a run; `first` is the kind of event that it begins with."""
    notes: list[Note] = []
    pos = 0
    for event in store.read(EventQuery(stream=stream_of(run_id))):
        pos = event.pos
        if event.body is not None and event.kind != "erased":
            notes += _notes_of(event.kind, event.body)
    if not notes or notes[0][0] != first:
        raise _no_run(run_id, notes[0][0] if notes else "")
    started = notes[0][1]
    restored, status = _restore(notes)
    return PastRun(
        run_id=run_id,
        folder=started.get("folder", ""),
        stored=started.get("stored", ""),
        routine_hash=started["hash"],
        input=started["input"],
        status=status,
        resume_with=started.get("resume_with", ""),
        pos=pos,
        restored=restored,
        notes=notes,
    )


def _no_run(run_id: str, kind: str) -> NotFound:
    fix = "`em runs list` shows those there are"
    if kind == "workflow_started":
        fix = "it is a workflow's: see `em workflow inspect` and `em workflow resume`"
    return NotFound(f"there is no run {run_id!r}", fix=fix)


def _notes_of(kind: str, body: Json) -> list[Note]:
    """What an event says: a step that is done may carry the intent of the next."""
    if kind != "step_done":
        return [(kind, body)]
    intent = body.pop("next", None)
    done: Note = (kind, {"status": "done", "attempts": 1, **body})
    return [done] if intent is None else [done, ("step_started", intent)]


def _restore(notes: Iterable[Note]) -> tuple[Restored, str]:
    """What is known of a run's steps, and its status."""
    restored, status = Restored(), "running"
    for kind, body in notes:
        key = (str(body.get("step")), body.get("item"))
        if kind in ("step_started", "step_done") and body.get("item_hash"):
            restored.items[key] = body["item_hash"]
        if kind == "step_started":
            restored.in_flight.add(key)
            restored.keys[key] = None if _has_marker(body.get("key")) else body.get("key")
            # What was said of an earlier attempt says nothing of this one.
            restored.answers.pop(question_of(key), None)
        elif kind == "step_done":
            restored.in_flight.discard(key)
            restored.results[key] = body.get("result")
            if _has_marker(body.get("result")):
                restored.redacted.add(key)
        elif kind == "run_answered":
            restored.answers.update(body["answers"])
        elif kind in ("run_paused", "run_ended"):
            status = body.get("status", "needs_input")
    return restored, status


def _has_marker(value: Any) -> bool:
    return MARKER.search(msgspec.json.encode(value).decode()) is not None


def started_note(
    folder: str, routine: str, routine_hash: str, input_data: Json, *, stored: str = ""
) -> Note:
    """The first note of a run; `stored` is the `name@version` of a routine in the memory."""
    body = {"routine": routine, "hash": routine_hash, "input": input_data}
    body |= {"stored": stored} if stored else {"folder": folder}
    return "run_started", body


def answered_note(answers: Mapping[str, Json]) -> Note:
    """What a person answered, before the run goes on with it."""
    return "run_answered", {"answers": dict(answers)}


def keepable(value: Any, step_id: str) -> Any:
    """A result as the journal can hold it: two levels deep in the body of a note."""
    return sized(value, step_id)[0]


def sized(value: Any, step_id: str) -> tuple[Any, int]:
    """The same, and how many bytes it takes."""
    try:
        text, plain = canonical([[value]], "result")
        return plain[0][0], len(text)
    except BadBody as error:
        raise RoutineError(
            f"its result can't be kept in the journal: {error.message}",
            place=f"step {step_id}",
            fix="let the tool return plain values (numbers, texts, lists, mappings, dataclasses)",
        ) from None


def new_run_id() -> str:
    """An id for a run."""
    return new_id()
