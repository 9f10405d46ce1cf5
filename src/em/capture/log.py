"""Log: the append-only record of everything that happened, as its writers and readers see it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

import msgspec

from em.capture.lines import parse_line, read_lines, write_line
from em.errors import BadLine, Conflict, EmError, InputError, NotFound
from em.models.canonical import Json
from em.models.document import Document
from em.models.event import Draft, Event, EventQuery
from em.models.ids import new_id
from em.models.kinds import searched_text
from em.models.times import Moment, moment, now
from em.store.protocol import Commit, Store
from em.store.verify import Head, Report, verify

BATCH = 1_000
CHUNK = 100_000
"""Characters of one document; a longer text is searched in several."""

Progress = Callable[[int], None]


class Imported(msgspec.Struct, frozen=True):
    """What an import brought."""

    added: int
    already_there: int


def _silent(_count: int) -> None:
    """No progress to show."""


class Log:
    """The log of a store. Appending also keeps what is searched in step."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(
        self,
        stream: str,
        kind: str,
        body: Json,
        *,
        subject: str | None = None,
        at: Moment | None = None,
        expected_pos: int | None = None,
    ) -> Event:
        """Append one event; `expected_pos` refuses if the stream has moved on since."""
        when = None if at is None else moment(at)
        draft = Draft(stream=stream, kind=kind, body=body, subject=subject, at=when)
        expected = {} if expected_pos is None else {stream: expected_pos}
        return self.append_many([draft], expected_pos=expected)[0]

    def append_many(
        self, events: Sequence[Draft | Event], *, expected_pos: Mapping[str, int] | None = None
    ) -> Sequence[Event]:
        """Append events, all or none of them."""
        commit = _with_documents(events, expected_pos or {})
        return self._store.commit(commit).events

    def read(
        self,
        *,
        stream: str | None = None,
        subject: str | None = None,
        kinds: Sequence[str] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        after: int = 0,
        limit: int | None = None,
        newest: bool = False,
    ) -> Iterator[Event]:
        """Stream events, oldest first; `newest` picks the last `limit` of them."""
        query = EventQuery(
            stream=stream,
            subject=subject,
            kinds=kinds,
            since=None if since is None else moment(since, "since"),
            until=None if until is None else moment(until, "until"),
            after=after,
            limit=limit,
            newest=newest,
        )
        return self._store.read(query)

    def get(self, event_id: str) -> Event:
        """The event of that id."""
        for event in self._store.read(EventQuery(ids=(event_id,))):
            return event
        raise NotFound(f"no event has the id {event_id!r}", fix="`em log show` prints ids")

    def follow(self, *, after: int, every: float = 0.5, **chosen: Any) -> Iterator[Event]:
        """Events as they come in, for ever; chosen as in `read`."""
        while True:
            for event in self.read(after=after, **chosen):
                after = event.seq
                yield event
            time.sleep(every)

    def head(self, stream: str) -> Head:
        """The end of a stream; position 0 where it has no event."""
        return Head(*self._store.head(stream))

    def verify(
        self,
        *,
        stream: str | None = None,
        heads: Mapping[str, Head] | None = None,
        progress: Progress = _silent,
    ) -> Report:
        """Prove that nothing was changed, reordered or removed; against saved heads, if given."""
        return verify(self._store, stream=stream, heads=heads, progress=progress)

    def export(self, events: Iterator[Event]) -> Iterator[bytes]:
        """Event lines, exact enough that importing them gives the same log."""
        for event in events:
            yield write_line(event) + b"\n"

    def import_file(
        self,
        file: IO[bytes],
        name: str,
        *,
        rechain: bool = False,
        progress: Progress = _silent,
    ) -> Imported:
        """Append the event lines of a seekable file.

        All lines are checked before the first is written. An event that is in the log already is
        passed over, so the same export can be imported again. Progress is in bytes, twice the file.
        """
        start = file.tell()
        for batch in _batches(file, name, rechain, progress):
            self._check(batch, name)
        file.seek(start)
        added, already = 0, 0
        for batch in _batches(file, name, rechain, progress):
            new = self._new(batch, name)
            try:
                self.append_many([event for _, event in new])
            except Conflict as error:
                note = f"{added:,} events before it were imported" if added else "nothing imported"
                raise type(error)(
                    f"{error.message}; {note}",
                    place=f"{name}, {error.place}",
                    fix=error.fix,
                    **error.data,
                ) from error
            added += len(new)
            already += len(batch) - len(new)
        return Imported(added, already)

    def _check(self, batch: Sequence[tuple[int, Draft | Event]], name: str) -> None:
        try:
            self._store.check(Commit(events=[event for _, event in batch]))
        except InputError as error:
            raise _at_line(error, batch, name) from error

    def _new(
        self, batch: Sequence[tuple[int, Draft | Event]], name: str
    ) -> list[tuple[int, Draft | Event]]:
        """Without the events that are there already; an id that means another event is refused."""
        ids = [event.id for _, event in batch if event.id is not None]
        known = {event.id: event for event in self._store.read(EventQuery(ids=ids))} if ids else {}
        new = []
        for number, event in batch:
            there = known.get(event.id or "")
            if there is None:
                new.append((number, event))
            elif not _same(there, event):
                raise Conflict(
                    f"event {event.id} is in the log with other content",
                    place=f"{name}:{number}",
                    fix="import it into another log",
                )
        return new


def _batches(
    file: IO[bytes], name: str, rechain: bool, progress: Progress
) -> Iterator[list[tuple[int, Draft | Event]]]:
    lines = read_lines(file, name)
    while True:
        batch: list[tuple[int, Draft | Event]] = []
        size = 0
        for number, line in islice(lines, BATCH):
            batch.append((number, parse_line(line, f"{name}:{number}", rechain=rechain)))
            size += len(line)
            if size > CHUNK * 100:
                break
        if not batch:
            return
        yield batch
        progress(size)


def _at_line(error: InputError, batch: Sequence[tuple[int, Draft | Event]], name: str) -> EmError:
    index = error.data.pop("index", None)
    if index is None:
        return error
    field = error.place.rpartition("the batch, ")[2]
    return BadLine(error.message, place=f"{name}:{batch[index][0]}, field {field}", fix=error.fix)


def _same(there: Event, event: Draft | Event) -> bool:
    if isinstance(event, Event):
        return there.hash == event.hash
    return (there.stream, there.kind, there.subject) == (event.stream, event.kind, event.subject)


def _with_documents(events: Sequence[Draft | Event], expected_pos: Mapping[str, int]) -> Commit:
    """The commit of these events, with the documents of those that are searched."""
    drafts: list[Draft | Event] = []
    documents: list[Document] = []
    for event in events:
        text = searched_text(event.kind, event.body)
        named = msgspec.structs.replace(event, id=new_id()) if text and not event.id else event
        drafts.append(named)
        documents += _documents(named, text) if text else ()
    return Commit(events=drafts, documents=documents, expected_pos=expected_pos)


def _documents(event: Draft | Event, text: str) -> Iterator[Document]:
    assert event.id is not None
    for start in range(0, len(text), CHUNK):
        yield Document(
            id=event.id if start == 0 else f"{event.id}.{start // CHUNK}",
            kind=event.kind,
            text=text[start : start + CHUNK],
            at=event.at or now(),
            subject=event.subject,
            from_events=(event.id,),
        )
