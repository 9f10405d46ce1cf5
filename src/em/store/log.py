"""The append-only log of everything that happened: append, read, verify, export, import.

A spool holds a batch of events on its way into one commit. An iterable of any length is taken in
portions. Each is checked, redacted, encoded and compressed, so that a batch needs the memory of one
portion and some bytes for each event. Only when all of it is there does the transaction begin:
whoever makes the items may take their time and use the store, and other writers don't wait for it.

An anchor is the event that stands for a subject where a stream is shared by many. A stream has one
owner. What is stored about a subject in a stream that belongs to nobody, such as the behaviours of
an engine or the uses of a lesson, is made of the subject's anchor, and forgotten with the subject.
"""

import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

from em.errors import BadLine, Conflict, InputError, NotFound, UsageError
from em.log.event import Draft, Event, EventQuery, about_stream
from em.log.kinds import event_body
from em.redaction.masker import Echoes
from em.redaction.redactor import Redactor
from em.store.preparation import prepare, redacted, without_echoes
from em.store.protocol import Commit, Store
from em.values.canonical import Json, uncollected
from em.values.times import Moment, from_micros, moment

if TYPE_CHECKING:
    from em.log.verify import Head, Report

PORTION = 1_000
"""Events that are held as objects at a time."""
FAST = 1
"""The level of compression: half the size of none at all, and far less work than the best."""

_Line = tuple[str, str, str | None, str, int, int | None, msgspec.Raw]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[str, str, str | None, str, int, int | None, Json]]).decode


class Spool:
    """Events that are committed together."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._portions: list[bytes] = []
        # By stream, what was a secret in one of its events: it is masked in all of them.
        self._echoes: dict[str, Echoes] = {}
        self.ids: list[str] = []
        self.streams: dict[str, str | None] = {}
        """The subject of each stream that the events belong to."""

    def take(self, portion: Sequence[Draft]) -> None:
        """Take the next events; raise InputError for the first that can't be stored."""
        with uncollected():
            events = redacted(portion, self._redactor, self._echoes, len(self.ids))
            lines: list[_Line] = [
                (one.id, one.stream, one.subject, one.kind, one.v, one.at, msgspec.Raw(one.text))
                for one in events
                if one.text is not None
            ]
        self._portions.append(zlib.compress(_encode(lines), FAST))
        self.ids += [one.id for one in events]
        self.streams.update((one.stream, one.subject) for one in events)

    def commits(self) -> Iterator[Commit]:
        """Yield the events in portions, for `Store.commit_all`."""
        while self._portions:
            yield Commit(
                events=[
                    Draft(
                        id=event_id,
                        stream=stream,
                        subject=subject,
                        kind=kind,
                        v=v,
                        at=None if at is None else from_micros(at),
                        body=self._masked(stream, body),
                    )
                    for event_id, stream, subject, kind, v, at, body in _decode(
                        zlib.decompress(self._portions.pop(0))
                    )
                ],
                is_decoded=True,
            )

    def _masked(self, stream: str, body: Json) -> Json:
        return without_echoes(body, self._echoes[stream]) if stream in self._echoes else body


BATCH = 1_000
BATCH_BYTES = 8 * 1024 * 1024

Progress = Callable[[int], None]


class Imported(msgspec.Struct, frozen=True):
    """The outcome of an import. `left_out`: erased events, which `rechain` can't append."""

    added: int
    already_there: int
    left_out: int


class Appended(NamedTuple):
    """The ids of events that were appended, and their streams with the subject of each."""

    ids: list[str]
    streams: dict[str, str | None]


def _silent(_count: int) -> None:
    """Report no progress."""


class Log:
    """The log of a store."""

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
        """Append one event. With `expected_pos`, raise PositionConflict if the stream has moved."""
        when = None if at is None else moment(at)
        draft = Draft(stream=stream, kind=kind, body=body, subject=subject, at=when)
        expected = {} if expected_pos is None else {stream: expected_pos}
        return self.append_many([draft], expected_pos=expected)[0]

    def append_many(
        self, events: Sequence[Draft | Event], *, expected_pos: Mapping[str, int] | None = None
    ) -> Sequence[Event]:
        """Append events, all or none of them."""
        for event in events:
            if not isinstance(event, Draft | Event):
                raise UsageError(
                    f"expected em.Draft or em.Event, got {type(event).__name__}",
                    place="events",
                    fix="pass em.Draft(stream=…, kind=…, body=…)",
                )
        commit = Commit(events=events, expected_pos=expected_pos or {})
        return self._store.commit(commit).events

    def append_all(self, events: Iterable[Draft]) -> Appended:
        """Append any number of events, all or none of them, with the memory that a portion needs.

        They are taken before the transaction begins, so `events` may use the store.
        """
        source = iter(events)
        first = list(islice(source, PORTION))
        if len(first) < PORTION:
            stored = self.append_many(first)
            return Appended([one.id for one in stored], {one.stream: one.subject for one in stored})
        spool = Spool(self._store.redactor)
        spool.take(first)
        del first
        while portion := list(islice(source, PORTION)):
            spool.take(portion)
            del portion
        self._store.commit_all(spool.commits())
        return Appended(spool.ids, spool.streams)

    def read(
        self,
        *,
        stream: str | None = None,
        subject: str | None = None,
        kinds: str | Sequence[str] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        after: int = 0,
        limit: int | None = None,
        newest: bool = False,
    ) -> Iterator[Event]:
        """Stream events, oldest first; `newest` picks the last `limit` of them."""
        for name, value in (("stream", stream), ("subject", subject)):
            if value is not None and not isinstance(value, str):
                raise UsageError(f"{name} must be a string, got {value!r}", place=name)
        query = EventQuery(
            stream=stream,
            subject=subject,
            kinds=(kinds,) if isinstance(kinds, str) else kinds,
            since=None if since is None else moment(since, "since"),
            until=None if until is None else moment(until, "until"),
            after=after,
            limit=limit,
            newest=newest,
        )
        return self._store.read(query)

    def get(self, event_id: str, *, subjects: Collection[str] | None = None) -> Event:
        """Return the event with this id. subjects: look only among events about one of these."""
        for event in self._store.read(EventQuery(ids=(event_id,))):
            if subjects is None or event.subject in subjects:
                return event
        raise NotFound(
            f"no event has the id {event_id!r}",
            fix="`em log show --json` prints ids; the command also takes the seq of an event",
        )

    def follow(self, *, after: int, every: float = 0.5, **chosen: Any) -> Iterator[Event]:
        """Stream events as they are appended, forever. Takes the filters of `read`."""
        while True:
            for event in self.read(after=after, **chosen):
                after = event.seq
                yield event
            time.sleep(every)

    def head_seq(self) -> int:
        """Return the seq of the newest event; 0 for an empty log."""
        return next((event.seq for event in self.read(limit=1, newest=True)), 0)

    def head(self, stream: str) -> "Head":
        """Return the last position and hash of a stream; position 0 for one without events."""
        from em.log.verify import Head

        return Head(*self._store.head(stream))

    def verify(
        self,
        *,
        stream: str | None = None,
        heads: "Mapping[str, Head] | None" = None,
        progress: Progress = _silent,
    ) -> "Report":
        """Verify that nothing was changed, reordered or removed; against saved heads, if given."""
        from em.log.verify import verify

        return verify(self._store, stream=stream, heads=heads, progress=progress)

    def export(self, **chosen: Any) -> Iterator[bytes]:
        """Stream event lines from which an import makes the same log. Takes the filters of `read`.

        If events are erased meanwhile, the export goes on until it has their tombstones too.
        """
        from em.log.lines import write_line

        after, unexplained = 0, set[str]()
        while True:
            last = after
            for event in self.read(after=after, **chosen):
                after = event.seq
                if event.body is None:
                    unexplained.add(event.id)
                elif event.kind == "erased":
                    unexplained.difference_update(event.body["events"])
                yield write_line(event) + b"\n"
            if not unexplained or after == last:
                return

    def import_file(
        self,
        file: IO[bytes],
        name: str,
        *,
        rechain: bool = False,
        progress: Progress = _silent,
    ) -> Imported:
        """Append the event lines of a seekable file: all of them, or none.

        An event that is in the log already is skipped, so the same export can be imported again.
        Lines without an id are new events each time. `rechain` appends exported events as new ones
        and leaves out erased ones. Progress is in bytes; the file is read twice.
        """
        lines = _EventLines(file, name, rechain=rechain, progress=progress)
        for batch in lines:
            try:
                prepare(Commit(events=batch.events), self._store.redactor)
            except InputError as error:
                raise batch.at_line(error, name) from error
        try:
            added = self._store.commit_all(
                Commit(events=batch.events, skip_known=True) for batch in lines
            )
        except Conflict as error:
            error.place = f"{name}, {error.place}"
            error.message += "; nothing was imported"
            raise
        return Imported(added, lines.count - added, lines.left_out)


class _Batch(NamedTuple):
    """Events of a file with the numbers of their lines."""

    events: list[Draft | Event]
    numbers: list[int]

    def at_line(self, error: InputError, name: str) -> InputError:
        """Return the error of one of the events with the place of its line."""
        index = error.data.pop("index", None)
        if index is None:
            return error
        field = error.place.rpartition("the batch, ")[2]
        place = f"{name}:{self.numbers[index]}, field {field}"
        return BadLine(error.message, place=place, fix=error.fix)


class _EventLines:
    """The events of a file in batches. Each iteration starts at the beginning."""

    def __init__(self, file: IO[bytes], name: str, *, rechain: bool, progress: Progress) -> None:
        self._file, self._name, self._rechain, self._progress = file, name, rechain, progress
        self._start = file.tell()

    def __iter__(self) -> Iterator[_Batch]:
        from em.log.lines import parse_line, read_lines

        self._file.seek(self._start)
        self.count, self.left_out = 0, 0
        batch, size = _Batch([], []), 0
        for number, line in read_lines(self._file, self._name):
            event = parse_line(line, f"{self._name}:{number}", rechain=self._rechain)
            size += len(line)
            if event is None:
                self.left_out += 1
            else:
                self.count += 1
                batch.events.append(event)
                batch.numbers.append(number)
            if len(batch.events) == BATCH or size > BATCH_BYTES:
                yield batch
                self._progress(size)
                batch, size = _Batch([], []), 0
        yield batch
        self._progress(size)


FIRST = 50
"""Events of the first page: most callers stop there."""
THEN = 200


def newest_first(store: Store, *kinds: str, subject: str | None = None) -> Iterator[Event]:
    """Stream events of some kinds, newest first, without erased ones."""
    size, before = FIRST, None
    while True:
        query = EventQuery(kinds=kinds, subject=subject, before=before, limit=size, newest=True)
        events = list(store.read(query))
        for event in reversed(events):
            if event.body is not None:
                yield event
        if len(events) < size:
            return
        before, size = events[0].seq, THEN


@event_body("about")
class About(msgspec.Struct, frozen=True):
    """Body of an anchor. It is empty: the event's subject says whom it stands for."""


def anchor(store: Store, subject: str) -> str:
    """Return the id of a subject's anchor; append one if there is none, or it was forgotten."""
    stream = about_stream(subject)
    for event in store.read(EventQuery(stream=stream, kinds=["about"], newest=True, limit=1)):
        if event.body is not None:
            return event.id
    draft = Draft(stream=stream, kind="about", body={}, subject=subject)
    return store.commit(Commit(events=[draft])).events[0].id
