"""Intake: everything that one source tells of traces, written in batches, none of it twice."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from em.errors import Conflict, InputError
from em.log.event import Draft, Event, EventQuery
from em.store.protocol import Commit, Store
from em.traces.builder import Incoming, Known, digest
from em.traces.stream import PREFIX, kept_trace
from em.traces.trace import KeptTrace

BATCH = 1_000
BATCH_BYTES = 8 * 1024 * 1024
MOST_KNOWN = 100
"""So many traces of one file are looked at for what was added to each."""


class Problem(NamedTuple):
    """A part of a file that could not be used; the rest was."""

    place: str
    message: str


class Intake:
    """Everything that one file tells. Without a store it is gathered and given as traces."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        stream: str = "transcript/-",
        previous: Mapping[int, Known] | None = None,
        subject: str | None = None,
    ) -> None:
        self.store = store
        self.stream = stream
        self._subject = subject
        self._previous = previous or {}
        self.now_known: dict[int, Known] = {}
        self._traces: dict[str, Incoming] = {}
        self._told: dict[Incoming, None] = {}
        self._drafts: list[Draft] = []
        self._gathered: dict[str, list[Draft]] = {}
        self._expected: dict[str, int] = {}
        self._bytes = 0
        self._size = 0
        self.number, self.raw, self.place = 0, b"", ""
        self.calls = self.unknown_count = self.added = 0
        self.trace_ids: dict[str, None] = {}
        self.new_traces = 0
        self.problems: list[Problem] = []

    def reading(self, number: int, raw: bytes, place: str) -> None:
        """Which value the importer is told of now: where it stands, and its text."""
        self.number, self.raw, self.place = number, raw, place
        self._size = len(raw)

    def raw_text(self) -> str:
        """The text of what is being read, as far as one event can hold it."""
        return self.raw.decode("utf-8", "backslashreplace")

    def told(self, trace: Incoming) -> None:
        """Something was told of a trace."""
        self._told[trace] = None

    def take_size(self) -> int:
        """Roughly what an event brings: the first of a line stands for all of it."""
        size, self._size = self._size, 0
        return size

    def trace(self, key: str, name: str, **app: Any) -> Incoming:
        """The trace of this key: the same every time, in every file. `name` is the format's."""
        found = self._traces.get(key)
        if found is None:
            found = self._traces[key] = Incoming(self, key, {"name": name, **app})
        return found

    def known_trace(self, key: str) -> Incoming | None:
        """The trace of this key, if something was told of it."""
        return self._traces.get(key)

    def nameless(self, name: str, **app: Any) -> Incoming:
        """A trace that has no id of its own; it must be closed by who reads it."""
        return Incoming(self, None, {"name": name, **app})

    def unknown(self, why: str) -> None:
        """What is being read belongs to no trace: it is kept verbatim with the file."""
        text = self.raw_text()
        body = {"text": text, "place": self.place, "why": why}
        event_id = f"{self.stream.rpartition('/')[2]}-{digest(self.place, text)}"
        draft = Draft(stream=self.stream, kind="unknown_line", body=body, id=event_id)
        self.unknown_count += 1
        if self.store is None or not any(self.store.read(EventQuery(ids=(event_id,)))):
            self.put(draft, None)

    def refuse(self, error: InputError) -> None:
        """What is being read is of the format, and wrong: it is reported, and the rest goes on."""
        self.problems.append(Problem(error.place or self.place, error.message))

    def put(self, draft: Draft, pos: int | None) -> None:
        """One more event to be written; `pos` is where its stream stands before it."""
        if pos is not None:
            self.trace_ids[draft.stream.removeprefix(PREFIX)] = None
            self.new_traces += pos == 0
            self._expected.setdefault(draft.stream, pos)
        if self._subject is not None:
            draft = msgspec.structs.replace(draft, subject=self._subject)
        self._drafts.append(draft)

    def after_value(self) -> None:
        """A value was read: hand on what need not wait, and write if it is much."""
        self._bytes += len(self.raw)
        for trace in self._told:
            trace.release()
        self._told.clear()
        if len(self._drafts) >= BATCH or self._bytes > BATCH_BYTES:
            self.write()

    def end_traces(self) -> None:
        """No more comes of any trace, for now."""
        for trace in self._traces.values():
            trace.close()

    def close(self) -> None:
        """No more comes, for now: all of it is written."""
        self.end_traces()
        self.write()

    def pause(self) -> None:
        """Write what is there of traces that go on."""
        for trace in self._traces.values():
            trace.release(all_of_it=True)
        self.write()

    def forget(self, key: str) -> None:
        """A trace that nothing more will be told of."""
        self._traces.pop(key, None)

    def write(self) -> None:
        """Write what was handed on. What the store refuses is a problem of its own."""
        drafts, self._drafts, self._bytes = self._drafts, [], 0
        expected, self._expected = self._expected, {}
        if self.store is None:
            for draft in drafts:
                self._gathered.setdefault(draft.stream, []).append(draft)
            self.added += len(drafts)
            return
        while drafts:
            try:
                self.added += len(
                    self.store.commit(Commit(events=drafts, expected_pos=expected)).events
                )
            except InputError as error:
                if "index" not in error.data:
                    raise
                refused = error.data["index"]
                place = drafts[refused].body.get("place") or drafts[refused].stream
                self.problems.append(Problem(place, error.message))
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
        """How many events a stream has; what waits to be written of it is written first."""
        if stream in self._expected:
            self.write()
        if self.store is None:
            return len(self._gathered.get(stream, ()))
        return self.store.head(stream)[0]

    def events_of(self, stream: str) -> Iterable[Draft | Event]:
        """The events of a stream."""
        if self.store is None:
            return self._gathered.get(stream, [])
        return self.store.read(EventQuery(stream=stream))

    def known_here(self) -> Known | None:
        """What stood at this place of the file the last time."""
        return self._previous.get(len(self.now_known))

    def note_known(self, known: Known) -> None:
        """Remember what stands here, for the next time; of a file of many, they don't change."""
        if len(self.now_known) < MOST_KNOWN:
            self.now_known[len(self.now_known)] = known

    def gathered(self) -> Iterator[KeptTrace]:
        """The traces that were read, where there is no store."""
        for stream, drafts in self._gathered.items():
            if stream.startswith(PREFIX):
                yield kept_trace([_as_event(draft, n) for n, draft in enumerate(drafts)])


def _instead(draft: Draft, why: str) -> Draft:
    """What takes the place of an event that can't be written."""
    body = {"text": "", "place": draft.body.get("place", ""), "why": why}
    return msgspec.structs.replace(draft, kind="unknown_line", body=body)


def _ends(draft: Draft, place: str) -> bool:
    """Whether this is the result of the call that an error names."""
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
