"""Intake: what an importer reads from one source, written to the log in batches, nothing twice."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from em.errors import Conflict, EmError, InputError
from em.log.event import TRACE_PREFIX, Draft, Event, EventQuery, trace_stream, transcript_stream
from em.redaction.redactor import MARKER
from em.settings import Settings
from em.store.protocol import Commit, Store
from em.traces.outcomes import command_of, outcome_of_call
from em.traces.trace import KeptTrace, Outcome, Source, end_of, kept_trace
from em.values.canonical import Json

WAITING = 256
"""How many events wait for the result of one call before it is stored without."""
WAITING_BYTES = 8 * 1024 * 1024
ID_LENGTH = 28

_encode = msgspec.json.Encoder(order="sorted").encode


def digest(*parts: Any) -> str:
    """Return an id that depends on these parts only."""
    return hashlib.sha256(_encode(parts)).hexdigest()[:ID_LENGTH]


class KnownTrace(NamedTuple):
    """A trace without an id of its own, as it was when its file was last read."""

    id: str
    events: int
    digest: str


class _WaitingEvent:
    """An event that is not written yet."""

    __slots__ = ("at", "body", "event_id", "is_open", "kind", "size", "suffix", "turn")

    def __init__(self, kind: str, body: Json, at: datetime | None, suffix: str, size: int) -> None:
        self.kind, self.body, self.at, self.suffix, self.size = kind, body, at, suffix, size
        self.is_open = False
        self.turn = 0

    @property
    def identity(self) -> Json:
        """The event without its outcome, which may still change."""
        return {
            name: value
            for name, value in self.body.items()
            if name not in ("result", "error", "duration_ms")
        }


class Incoming:
    """One trace while it is being read. `goal` defaults to the user's first message.

    `ends_with_answer`: what the agent says after its last call is the output, if nothing else is.
    The outcome defaults to that of the last test run or push (`em.traces.outcomes`).
    """

    def __init__(self, intake: "Intake", key: str | None, app: Json) -> None:
        self._intake = intake
        self._key = key
        self.app = app
        self.goal = ""
        self._first_said = ""
        self.input: Json = {}
        self.parent: str | None = None
        self.parent_call: str | None = None
        self.outcome: Outcome = "unknown"
        self.incomplete = ""
        self.output: Any = msgspec.UNSET
        self.ends_with_answer = False
        self._answer = ""
        self._shown: Outcome = "unknown"
        self._shown_by = ""
        self._shown_args: Json = {}
        self.usage: dict[str, Any] = {}
        self.thoughts: Any = None
        self.tags: Sequence[str] = ()
        self.id = "" if key is None else intake.trace_id(app.get("name"), key)
        self._began: datetime | None = None
        self._last: datetime | None = None
        self._queue: deque[_WaitingEvent] = deque()
        self._waiting_bytes = 0
        self._open: dict[str, list[_WaitingEvent]] = {}
        self._turn = 0
        self._kept_calls: dict[str, tuple[str, datetime | None]] = {}
        self._numbers: tuple[int, int] = (0, 0)
        self._last_turn: tuple[str | None, int] = (None, 0)
        self._started = False
        self._pos = 0
        self._there: set[str] = set()
        self._there_open: set[str] = set()
        self._there_args: dict[str, Json] = {}
        self._keyed: set[str] = set()
        if self.id:
            self._look_up()

    def say(
        self,
        role: str,
        text: str,
        at: datetime | None = None,
        *,
        key: str | None = None,
        speaker: str = "",
    ) -> None:
        """Add a message; an empty text is ignored."""
        if not text:
            return
        self._turn += role == "user"
        if role == "user" and not self.goal:
            self._first_said = self._first_said or text
            # A text in tags was written by a program.
            self.goal = "" if text.lstrip().startswith("<") else text
        if role == "assistant":
            self._answer = text
        body: Json = {"role": role, "text": text}
        if speaker:
            body["speaker"] = speaker
        self._add("message", body, at, key)

    def add(self, kind: str, body: Json) -> None:
        """Add an event whose body is already as in the log."""
        self._add(kind, body, None, None)

    def call(
        self,
        tool: str,
        args: Any,
        call_id: str | None = None,
        at: datetime | None = None,
        *,
        tokens: int | None = None,
        key: str | None = None,
        open_world: bool = False,
    ) -> None:
        """Add a call; its result may follow. open_world: anybody may have written it.

        Calls may share an id: those of one turn get their results in order, and a call of an
        earlier turn that got none gets none any more. With a `key`, an open call of the same id
        is the same call, told again.
        """
        self._answer = ""
        call_id = _as_text(call_id)
        args = args if isinstance(args, dict) else {"value": args}
        body: Json = {"tool": tool, "args": args}
        if call_id:
            body["id"] = call_id
        if at is not None:
            body["started_at"] = at.isoformat()
        if tokens is not None:
            body["tokens"] = tokens
        if open_world:
            body["open_world"] = True
        entry = self._add("tool_call", body, at, key)
        entry.is_open, entry.turn = True, self._turn
        waiting = self._open.get(call_id or "", [])
        if key is None or not waiting:
            same = [one for one in waiting if one.turn == self._turn]
            self._open[call_id or ""] = [*same, entry]

    def result(
        self,
        call_id: str | None,
        result: Any = None,
        error: Any = None,
        at: datetime | None = None,
        *,
        duration_ms: float | None = None,
    ) -> bool:
        """Add the result of a call; return False if there is no such call.

        Without an id, it is the result of the first call of the last turn that waits for one.
        """
        self._seen(at)
        self._turn += 1
        call_id = _as_text(call_id)
        entry = self._next_open(call_id)
        if entry is None:
            return self._late(call_id or "", result, error, at, duration_ms)
        self._no_longer_open(entry)
        duration_ms = _took(entry.at, at) if duration_ms is None else duration_ms
        entry.is_open = False
        self._intake.changed(self)
        entry.body.update(_outcome_of(result, error, duration_ms))
        return True

    def is_command(self, call_id: str) -> bool:
        """Return whether a call that waits for its result is one of a shell: it prints text."""
        entry = self._next_open(call_id)
        return entry is not None and bool(command_of(entry.body.get("args", {})))

    def has_open(self, call_id: str) -> bool:
        """Return whether a call of this id waits for its result."""
        return call_id in self._open

    def _next_open(self, call_id: str | None) -> _WaitingEvent | None:
        """Return the call that the next result belongs to."""
        if call_id:
            return self._open.get(call_id, [None])[0]
        waiting = [entry for entries in self._open.values() for entry in entries]
        last = max((entry.turn for entry in waiting), default=0)
        now = {id(entry) for entry in waiting if entry.turn == last}
        return next((entry for entry in self._queue if id(entry) in now), None)

    def _no_longer_open(self, entry: _WaitingEvent) -> None:
        """Note that a call does not wait for its result any more."""
        call_id = entry.body.get("id", "")
        left = [one for one in self._open.pop(call_id, ()) if one is not entry]
        if left:
            self._open[call_id] = left

    def unknown(self, why: str, text: str | None = None, *, key: str | None = None) -> None:
        """Store the current value verbatim: it has neither a message nor a call."""
        text = self._intake.raw_text() if text is None else text
        body = {"text": text, "place": self._intake.place, "why": why}
        self._add("unknown_line", body, None, key)
        self._intake.unknown_count += 1

    def spent(self, tokens: int | None, *, turn: str | None = None, cost: float = 0.0) -> int:
        """Add one answer of the model with its tokens; return how many of them are new.

        A second count for the same turn replaces the first.
        """
        last_turn, last_tokens = self._last_turn
        again = turn is not None and turn == last_turn
        new = (tokens or 0) - (last_tokens if again else 0)
        self._last_turn = (turn, tokens or 0)
        used = self.usage
        if tokens is not None:
            used["tokens"] = used.get("tokens", 0) + new
        used["model_calls"] = used.get("model_calls", 0) + (not again)
        if cost:
            used["cost_usd"] = used.get("cost_usd", 0.0) + cost
        return new

    def release(self, *, all_of_it: bool = False) -> None:
        """Write the events that no longer wait for a result."""
        if not self.id or not (all_of_it or self.may_start()):
            return
        queue = self._queue
        while queue and (
            all_of_it
            or not queue[0].is_open
            or len(queue) > WAITING
            or self._waiting_bytes > WAITING_BYTES
        ):
            entry = queue.popleft()
            self._waiting_bytes -= entry.size
            self._write(entry)

    def may_start(self) -> bool:
        """Return whether the trace was started, or its goal is known or can no longer come."""
        return (
            self._started
            or bool(self.goal)
            or len(self._queue) > WAITING // 4
            or any(
                entry.kind == "tool_call" or entry.body.get("role") == "assistant"
                for entry in self._queue
            )
        )

    def close(self) -> None:
        """Write everything that is left, and the trace's end, for now."""
        if not self.id:
            self._settle_id()
        self.release(all_of_it=True)
        if not self._started:
            self._start()
        if self._began is not None and self._last is not None and "duration_ms" not in self.usage:
            self.usage["duration_ms"] = (self._last - self._began).total_seconds() * 1e3
        output = self.output
        if output is msgspec.UNSET and self.ends_with_answer and self._answer:
            output = self._answer
        body = end_of(
            self._shown if self.outcome == "unknown" else self.outcome,
            dict(self.usage),
            output=output,
            thoughts=self.thoughts,
            incomplete=self.incomplete,
        )
        self._put(f"end-{digest(body)[:12]}", "trace_ended", body, self._last)
        self.usage.pop("duration_ms", None)

    def _add(self, kind: str, body: Json, at: datetime | None, key: str | None) -> _WaitingEvent:
        self._seen(at)
        if key is None:
            number, count = self._numbers
            count = count + 1 if number == self._intake.number else 0
            self._numbers = (self._intake.number, count)
            # Position and content: two files may have events of one trace.
            suffix = f"{self._intake.number}.{count}-{digest(kind, body)[:10]}"
        else:
            suffix = digest(key)[:16]
        entry = _WaitingEvent(kind, body, at, suffix, self._intake.take_size())
        if key is not None:
            if suffix in self._keyed:
                return entry  # added already
            self._keyed.add(suffix)
        self._waiting_bytes += entry.size
        self._queue.append(entry)
        self._intake.changed(self)
        return entry

    def _seen(self, at: datetime | None) -> None:
        if at is not None:
            self._began = at if self._began is None else min(self._began, at)
            self._last = at if self._last is None else max(self._last, at)

    def _late(
        self, call_id: str, result: Any, error: Any, at: datetime | None, took: float | None
    ) -> bool:
        """Add the result of a call that was stored without one."""
        if call_id not in self._kept_calls:
            return False
        call, began = self._kept_calls.pop(call_id)
        if call == self._shown_by:
            self._shown = outcome_of_call(self._shown_args, result, error) or "unknown"
        self._ended(call, _outcome_of(result, error, _took(began, at) if took is None else took))
        return True

    def _write(self, entry: _WaitingEvent) -> None:
        if not self._started:
            self._start()
        event_id = f"{self.id}-{entry.suffix}"
        if entry.kind == "tool_call":
            self._intake.calls += 1
            args = entry.body.get("args", {})
            shown = outcome_of_call(args, entry.body.get("result"), entry.body.get("error"))
            if shown is not None:  # a test run or a push
                self._shown, self._shown_by, self._shown_args = shown, event_id, args
            if entry.is_open:
                self._no_longer_open(entry)
            if entry.is_open and "id" in entry.body:
                self._kept_calls[entry.body["id"]] = (event_id, entry.at)
            if entry.suffix in self._keyed:
                self._compare(event_id, entry.body)
        if event_id not in self._there:
            self._put(entry.suffix, entry.kind, entry.body, entry.at)
        elif event_id in self._there_open and not entry.is_open:
            self._ended(event_id, entry.body)

    def _compare(self, event_id: str, body: Json) -> None:
        """Mark the trace incomplete if another call is stored under the key of this one."""
        there, args = self._there_args.get(event_id), body.get("args", {})
        if there is None or there.keys() != args.keys():
            return
        # A secret was stored as a marker.
        if any(there[name] != args[name] and not _is_redacted(there[name]) for name in args):
            self.incomplete = f"two calls of `{body['tool']}` share the id {body.get('id')!r}"

    def _ended(self, call: str, body: Json) -> None:
        ended = {"call": call, "from_events": [call]}
        ended |= {name: body[name] for name in ("result", "error", "duration_ms") if name in body}
        self._put(f"{call.removeprefix(self.id + '-')}-result", "call_ended", ended, None)

    def _start(self) -> None:
        self._started = True
        body: Json = {"goal": self.goal or self._first_said, "input": self.input, "app": self.app}
        source = self._intake.source
        more = {
            "source": source if source != "own" else None,
            "parent": self.parent,
            "parent_call": self.parent_call,
            "tags": self.tags,
        }
        body |= {name: value for name, value in more.items() if value}
        self._put("0", "trace_started", body, self._began)

    def _put(self, suffix: str, kind: str, body: Json, at: datetime | None) -> None:
        event_id = f"{self.id}-{suffix}"
        if event_id in self._there:
            return
        if kind in ("trace_ended", "call_ended"):
            self._there.add(event_id)
        stream = trace_stream(self.id)
        self._intake.put(Draft(stream=stream, kind=kind, body=body, at=at, id=event_id), self._pos)
        self._pos += 1

    def _look_up(self) -> None:
        """Read which events of this trace are in the log already."""
        stream = trace_stream(self.id)
        self._pos = self._intake.head(stream)
        if not self._pos:
            return
        for event in self._intake.events_of(stream):
            assert event.id is not None
            self._there.add(event.id)
            body = event.body or {}
            if event.kind == "tool_call" and event.body:
                self._there_args[event.id] = body.get("args", {})
            if event.kind == "tool_call" and event.body and not {"result", "error"} & body.keys():
                self._there_open.add(event.id)
                if "id" in body:
                    self._kept_calls[body["id"]] = (event.id, event.at)
        self._started = f"{self.id}-0" in self._there

    def _settle_id(self) -> None:
        """Find the id of a trace that has none: its earlier id, else a digest of its content."""
        known = self._intake.known_here()
        identities = [(entry.kind, entry.identity) for entry in self._queue]
        if known is not None and len(identities) >= known.events:
            goes_on = digest(identities[: known.events]) == known.digest
            self.id = known.id if goes_on else ""
        self.id = self.id or self._intake.trace_id(
            self.app.get("name"), self.goal, self.outcome, [entry.body for entry in self._queue]
        )
        self._intake.note_known(KnownTrace(self.id, len(identities), digest(identities)))
        self._look_up()


def _as_text(call_id: Any) -> str | None:
    """Return the id of a call as a text: a file may have a number there, or anything."""
    return call_id if isinstance(call_id, str | None) else str(call_id)


def _took(began: datetime | None, ended: datetime | None) -> float | None:
    if began is None or ended is None:
        return None
    return max(0.0, (ended - began).total_seconds() * 1e3)


def _outcome_of(result: Any, error: Any, duration_ms: float | None) -> Json:
    body: Json = {"result": result} if error is None else {"error": error}
    if duration_ms is not None:
        body["duration_ms"] = round(duration_ms, 3)
    return body


BATCH = 1_000
BATCH_BYTES = 8 * 1024 * 1024
MOST_KNOWN = 100
"""How many traces of one file are remembered, to notice what was added to each."""


MOST_NAMED = 1_000
"""How many broken parts of one file are named."""


class BrokenPart(NamedTuple):
    """A part of a file that could not be imported; the rest was."""

    place: str
    message: str


class Intake:
    """The traces of one file. Without a store they are collected for `gathered`."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        stream: str = transcript_stream("-"),
        previous: Mapping[int, KnownTrace] | None = None,
        subject: str | None = None,
        source: Source = "imported",
    ) -> None:
        self.store = store
        self.source = source
        self.stream = stream
        self._subject = subject
        self._previous = previous or {}
        self.now_known: dict[int, KnownTrace] = {}
        self._traces: dict[str, Incoming] = {}
        self._left_out: set[str] = set()
        self._folders: dict[str, bool] = {}
        self._changed: dict[Incoming, None] = {}
        self._drafts: list[Draft] = []
        self._gathered: dict[str, list[Draft]] = {}
        self._expected: dict[str, int] = {}
        self._bytes = 0
        self._size = 0
        self.number, self.raw, self.place = 0, b"", ""
        self.calls = self.unknown_count = self.added = 0
        self.trace_ids: dict[str, None] = {}
        self.new_traces = 0
        self.problems: list[BrokenPart] = []
        self.broken = 0
        self.mended = 0

    def reading(self, number: int, raw: bytes, place: str) -> None:
        """Set the value that is being read: its number, its text and its place."""
        self.number, self.raw, self.place = number, raw, place
        self._size = len(raw)

    def raw_text(self) -> str:
        """Return the text of the value that is being read."""
        return self.raw.decode("utf-8", "backslashreplace")

    def changed(self, trace: Incoming) -> None:
        """Note that a trace has new events."""
        self._changed[trace] = None

    def take_size(self) -> int:
        """Return the size of the current value once; the first event of a line counts for all."""
        size, self._size = self._size, 0
        return size

    def trace(self, key: str, name: str, **app: Any) -> Incoming:
        """Return the trace of this key, the same in every file. `name` is the format's."""
        found = self._traces.get(key)
        if found is None:
            found = self._traces[key] = Incoming(self, key, {"name": name, **app})
            if self._is_left_alone(app.get("cwd")):
                self._left_out.add(trace_stream(found.id))
        return found

    def session(self, given: Any, name: str, folder: Any) -> Incoming:
        """Return the trace of a coding agent's session: by its id, else by its first value."""
        key = given if isinstance(given, str) else digest(self.raw_text())
        app = {"cwd": folder} if isinstance(folder, str) else {}
        trace = self.trace(key, name, session=key, **app)
        trace.ends_with_answer = True
        return trace

    def _is_left_alone(self, folder: Any) -> bool:
        """Return whether the folder of a session says that it must not be recorded."""
        if self.store is None or not isinstance(folder, str) or not folder.startswith("/"):
            return False
        if folder not in self._folders:
            self._folders[folder] = is_left_alone(Path(folder))
        return self._folders[folder]

    @property
    def left_out(self) -> int:
        """How many traces were not stored, since their folder says so."""
        return len(self._left_out)

    def trace_id(self, *parts: Any) -> str:
        """Return the id of the trace that these parts name, for the subject of this intake.

        A trace belongs to one subject: who sends the key of another's trace begins one of their
        own. Traces of before were named without the subject.
        """
        plain = digest(*parts)
        if self._subject is None:
            return plain
        first = EventQuery(stream=trace_stream(plain), limit=1)
        found = [] if self.store is None else self.store.read(first)
        if any(one.subject == self._subject for one in found):
            return plain
        return digest("subject", self._subject, *parts)

    def known_trace(self, key: str) -> Incoming | None:
        """Return the trace of this key, or None."""
        return self._traces.get(key)

    def nameless(self, name: str, **app: Any) -> Incoming:
        """Return a new trace that has no id of its own; the reader must close it."""
        return Incoming(self, None, {"name": name, **app})

    def unknown(self, why: str) -> None:
        """Store the current value verbatim with the file: it belongs to no trace."""
        text = self.raw_text()
        body = {"text": text, "place": self.place, "why": why}
        event_id = f"{self.stream.rpartition('/')[2]}-{digest(self.place, text)}"
        draft = Draft(stream=self.stream, kind="unknown_line", body=body, id=event_id)
        self.unknown_count += 1
        if self.store is None or not any(self.store.read(EventQuery(ids=(event_id,)))):
            self.put(draft, None)

    def add_problem(self, place: str, message: str) -> None:
        """Report a part that could not be imported. The first ones are named, all are counted."""
        self.broken += 1
        if self.broken <= MOST_NAMED:
            self.problems.append(BrokenPart(place, message))

    def put(self, draft: Draft, pos: int | None) -> None:
        """Add an event to the next batch; `pos` is its stream's position before it."""
        if draft.stream in self._left_out:
            return
        if pos is not None:
            self.trace_ids[draft.stream.removeprefix(TRACE_PREFIX)] = None
            self.new_traces += pos == 0
            self._expected.setdefault(draft.stream, pos)
        if self._subject is not None:
            draft = msgspec.structs.replace(draft, subject=self._subject)
        self._drafts.append(draft)

    def after_value(self) -> None:
        """Release what need not wait after a value was read, and write a full batch."""
        self._bytes += len(self.raw)
        for trace in self._changed:
            trace.release()
        self._changed.clear()
        if len(self._drafts) >= BATCH or self._bytes > BATCH_BYTES:
            self.write()

    def end_traces(self) -> None:
        """Close all traces, for now."""
        for trace in self._traces.values():
            trace.close()

    def close(self) -> None:
        """Close all traces and write the rest."""
        self.end_traces()
        self.write()

    def pause(self) -> None:
        """Write what is there of traces that are not closed, once their goal is known."""
        for trace in self._traces.values():
            if trace.may_start():
                trace.release(all_of_it=True)
        self.write()

    def forget(self, key: str) -> None:
        """Drop a trace that has no more events."""
        self._traces.pop(key, None)

    def write(self) -> None:
        """Write the batch. An event that the store refuses is reported as a problem."""
        drafts, self._drafts, self._bytes = self._drafts, [], 0
        expected, self._expected = self._expected, {}
        if self.store is None:
            for draft in drafts:
                self._gathered.setdefault(draft.stream, []).append(draft)
            self.added += len(drafts)
            return
        while drafts:
            try:
                commit = Commit(events=drafts, expected_pos=expected, is_decoded=True)
                self.added += self.store.commit_all([commit])
            except InputError as error:
                if "index" not in error.data:
                    raise
                refused = error.data["index"]
                place = drafts[refused].body.get("place") or drafts[refused].stream
                self.add_problem(place, error.message)
                drafts[refused] = _instead(drafts[refused], error.message)
            except Conflict as error:
                of_erased = [n for n, draft in enumerate(drafts) if _ends(draft, error.place)]
                if not of_erased:
                    raise
                for n in of_erased:
                    drafts[n] = _instead(drafts[n], "its call was erased")
            else:
                return

    def head(self, stream: str) -> int:
        """Return how many events a stream has, after writing those of the batch."""
        if stream in self._expected:
            self.write()
        if self.store is None:
            return len(self._gathered.get(stream, ()))
        return self.store.head(stream)[0]

    def events_of(self, stream: str) -> Iterable[Draft | Event]:
        """Return the events of a stream."""
        if self.store is None:
            return self._gathered.get(stream, [])
        return self.store.read(EventQuery(stream=stream))

    def known_here(self) -> KnownTrace | None:
        """Return the trace that was at this place when the file was last read."""
        return self._previous.get(len(self.now_known))

    def note_known(self, known: KnownTrace) -> None:
        """Remember the trace at this place for the next time, up to MOST_KNOWN."""
        if len(self.now_known) < MOST_KNOWN:
            self.now_known[len(self.now_known)] = known

    def gathered(self) -> Iterator[KeptTrace]:
        """Yield the traces that were read without a store."""
        for stream, drafts in self._gathered.items():
            if stream.startswith(TRACE_PREFIX):
                yield kept_trace([_as_event(draft, n) for n, draft in enumerate(drafts)])


IGNORE = ".emignore"
"""The file of a folder whose sessions em must not record."""


def is_left_alone(folder: Path) -> bool:
    """Return whether a folder, or one that it is in, says that em must not record there.

    It says so with a file `.emignore`, or with `record: false` in em.yaml. An em.yaml that can't be
    read may say so too.
    """
    for place in (folder, *folder.parents):
        try:
            if (place / IGNORE).exists() or not Settings.load(place, {}, tells=False).record:
                return True
        except (EmError, OSError):
            return True
    return False


def _is_redacted(value: Any) -> bool:
    return MARKER.search(_encode(value).decode()) is not None


def _instead(draft: Draft, why: str) -> Draft:
    """Return the event that replaces one that can't be written."""
    body = {"text": "", "place": draft.body.get("place", ""), "why": why}
    return msgspec.structs.replace(draft, kind="unknown_line", body=body)


def _ends(draft: Draft, place: str) -> bool:
    """Return whether this is the result of the call that an error names."""
    return draft.kind == "call_ended" and place == f"event {draft.body['call']}"


def _as_event(draft: Draft, number: int) -> Event:
    at = draft.at or datetime.fromtimestamp(0).astimezone()
    return Event(
        seq=number,
        id=draft.id or "",
        stream=draft.stream,
        pos=number,
        subject=draft.subject,
        kind=draft.kind,
        v=1,
        at=at,
        recorded_at=at,
        body=draft.body,
        salt=None,
        body_hash="",
        hash="",
    )
