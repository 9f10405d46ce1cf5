"""Verify a log: that nothing was changed, reordered or removed.

Each stream is a chain. The register, a chain of its own, has the head of each stream, so that the
end of a stream and a whole stream are missed too, and covers artefacts and records. Nothing inside
a database can show that all of it was written again: a head that was saved outside does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from types import NoneType
from typing import Literal, Protocol

import msgspec

from em.log.chain import (
    ARTEFACT,
    HASH_BYTES,
    LAG,
    SALT_BYTES,
    START,
    STREAM,
    Entry,
    Holding,
    hash_body,
    hash_event,
    hash_link,
    sum_of,
)
from em.log.event import EventQuery, Row
from em.log.kinds import Erased

Problem = Literal["changed", "removed", "reordered", "missing_tail", "rewritten", "added"]
MAX_SUSPECTS = 24
"""The number of broken links of a stream for which the original order is searched."""
REPORT_EVERY = 1_000
ReadRows = Callable[[EventQuery], Iterator[Row]]


class Verifiable(Protocol):
    """What can be verified, such as a store."""

    def rows(self, query: EventQuery) -> Iterator[Row]:
        """Stream events, undecoded."""

    def register(self, after: int = 0) -> Iterator[Entry | Holding]:
        """Stream the entries of the register, then artefacts and records, as of one moment."""


_TYPES: tuple[type | tuple[type, ...], ...] = (
    *(int, str, str, int, (str, NoneType)),
    *(str, int, int, int, (str, NoneType)),
)
"""The types of a row's fields, up to its body."""


class Head(msgspec.Struct, frozen=True):
    """Position and hash of a stream's last event."""

    pos: int
    hash: str


class Finding(msgspec.Struct, frozen=True):
    """One difference from what was written.

    noun: `stream`; or `artefact`: then `stream` is its kind and name, `pos` its version and
    `event_id` its id; or `record`: then `stream` is its subject and `event_id` its type and id; or
    `register`: then `pos` is the number of the entry.
    """

    problem: Problem
    stream: str
    pos: int
    event_id: str
    detail: str
    noun: str = "stream"


class Report(msgspec.Struct):
    """The result of verifying. An erased body is not a finding: a tombstone records it."""

    events: int
    streams: int
    erased: int
    findings: list[Finding]
    heads: dict[str, Head]

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


class _Suspect(msgspec.Struct, frozen=True):
    row: Row
    previous: bytes


class _Stream:
    """One stream while it is verified."""

    def __init__(self, name: str, saved: Head | None, registered: Head | None) -> None:
        self.name = name
        self.saved = saved
        self.registered = registered
        self.events = 0
        self.head = Head(0, "")
        self.findings: list[Finding] = []
        self.empty: dict[str, int] = {}
        self.erased: set[str] = set()
        self._previous: bytes | None = START
        self._last_seq = 0
        self._suspects: list[_Suspect] = []

    def take(self, row: Row) -> None:
        """Check a row against the rows before it."""
        self.events += 1
        if not _well_formed(row):
            self._find("changed", row, "a field has a value that em never writes there")
            self._step_over(row)
            return
        follows = row.pos == self.head.pos + 1
        if not follows:
            self._find(
                "removed", row, f"{_span(self.head.pos + 1, row.pos - 1)} missing before this event"
            )
        fits = self._check_body(row)
        linked = follows and self._previous is not None
        if linked and _hash(row, self._previous or START, row.pos) != row.hash:
            self._suspects.append(_Suspect(row, self._previous or START))
        elif row.seq <= self._last_seq:
            self._find("reordered", row, "its seq is not greater than that of the event before it")
        elif fits and row.kind == "erased":
            self._take_erasure(row)
        for known, name in ((self.saved, "saved head"), (self.registered, "register")):
            if known and row.pos == known.pos and row.hash.hex() != known.hash:
                self._find("rewritten", row, f"its hash differs from the {name}")
                break
        self._previous, self._last_seq = row.hash, row.seq
        self.head = Head(row.pos, row.hash.hex())

    def _step_over(self, row: Row) -> None:
        """Continue after a malformed row, without blaming the row behind it."""
        own: object = row.hash
        self._previous = own if isinstance(own, bytes) else None
        self.head = Head(_pos(row) or self.head.pos + 1, (self._previous or b"").hex())

    def finish(self) -> None:
        """Add the findings that need the whole stream."""
        self._explain_suspects()
        end, place = _furthest(self.saved, self.registered)
        if self.head.pos < end:
            detail = f"{_span(self.head.pos + 1, end)} missing at the end; {place}"
            self.findings.append(Finding("missing_tail", self.name, self.head.pos + 1, "", detail))

    def _check_body(self, row: Row) -> bool:
        if row.body is None:
            self.empty[row.id] = row.pos
            return False
        text = row.body.encode(errors="surrogateescape")
        if hash_body(row.salt or b"", text) != row.body_hash:
            self._find("changed", row, "its body does not match its hash")
            return False
        return True

    def _take_erasure(self, row: Row) -> None:
        try:
            self.erased.update(msgspec.json.decode(row.body or "", type=Erased).events)
        except msgspec.MsgspecError:
            self._find("changed", row, "its body is not a tombstone that em writes")

    def _explain_suspects(self) -> None:
        """Tell apart events that were moved, that were changed, and that only follow such a one."""
        suspects = self._suspects[:MAX_SUSPECTS]
        before = {suspect.previous for suspect in suspects} | {
            suspect.row.hash for suspect in suspects
        }
        origins = {suspect.row.pos: _origin(suspect.row, suspects, before) for suspect in suspects}
        moved = any(origin not in (None, pos) for pos, origin in origins.items())
        for suspect in self._suspects:
            row, origin = suspect.row, origins.get(suspect.row.pos)
            if origin is None:
                detail = "its hash does not fit: a field was changed, or the event before it was"
                self._find("changed", row, detail)
            elif origin != row.pos:
                self._find("reordered", row, f"it was written at position {origin}")
            elif not moved:
                self._find("changed", row, "its hash does not continue that of the event before it")

    def _find(self, problem: Problem, row: Row, detail: str) -> None:
        self.findings.append(Finding(problem, self.name, _pos(row), str(row.id), detail))


class _Register:
    """The register while it is verified, with what it says there must be."""

    def __init__(self, parts: Iterable[Entry | Holding]) -> None:
        self.end = 0
        self.findings: list[Finding] = []
        self.heads: dict[str, Head] = {}
        self._link: bytes | None = START
        self._latest: dict[str, dict[str, Entry]] = defaultdict(dict)
        self._seals: defaultdict[str, list[bytes]] = defaultdict(list)
        for part in parts:
            if isinstance(part, Entry):
                self._take_entry(part)
            else:
                self._take_holding(part)
        self._finish()

    def _take_entry(self, entry: Entry) -> None:
        if entry.n:
            self._check_link(entry)
        if entry.noun == STREAM:
            self.heads[entry.key] = Head(entry.pos, entry.hash.hex())
        else:
            self._latest[entry.noun][entry.key] = entry

    def _check_link(self, entry: Entry) -> None:
        if entry.n != self.end + 1:
            detail = f"entries of the register are missing: {self.end + 1} to {entry.n - 1}"
            self._find("removed", "register", "", entry.n, "", detail)
        elif self._link is not None and entry.link != _link(self._link, entry):
            detail = "this entry of the register does not fit the one before it"
            self._find("changed", "register", entry.key, entry.n, "", detail)
        self.end, self._link = entry.n, entry.link

    def _take_holding(self, held: Holding) -> None:
        if held.noun == ARTEFACT:
            entry = self._latest[ARTEFACT].pop(held.key, None)
            place = ("artefact", held.name, held.version, held.key)
            if entry is None:
                self._find("added", *place, "the register does not have it")
            elif not held.fits:
                self._find("changed", *place, "its content does not fit its seal")
            elif entry.hash != held.hash:
                detail = "its sources, or whether it is in use, are not as the register has them"
                self._find("changed", *place, detail)
            return
        if not held.fits:
            detail = "its content does not fit its seal"
            self._find("changed", "record", held.key, 0, held.name, detail)
        self._seals[held.key].append(held.hash)

    def _finish(self) -> None:
        for gone in self._latest.pop(ARTEFACT, {}).values():
            detail = f"version {gone.pos} of this artefact is missing"
            self._find("removed", "artefact", "", gone.pos, gone.key, detail)
        registered = {key: entry for each in self._latest.values() for key, entry in each.items()}
        for subject in sorted(registered.keys() | self._seals.keys()):
            entry, seals = registered.get(subject), self._seals.get(subject, [])
            count, total = (0, 0) if entry is None else (entry.pos, int.from_bytes(entry.hash))
            if count != len(seals):
                problem: Problem = "removed" if count > len(seals) else "added"
                detail = f"the register has {count} records of this subject, there are {len(seals)}"
                self._find(problem, "record", subject, 0, "", detail)
            elif sum_of(seals) % 256**HASH_BYTES != total:
                detail = "a record of this subject was replaced, together with its seal"
                self._find("changed", "record", subject, 0, "", detail)

    def _find(
        self, problem: Problem, noun: str, name: str, pos: int, item: str, detail: str
    ) -> None:
        self.findings.append(Finding(problem, name, pos, item, detail, noun))


def _link(previous: bytes, entry: Entry) -> bytes | None:
    try:
        return hash_link(previous, entry.noun, entry.key, entry.pos, entry.hash)
    except (TypeError, UnicodeEncodeError):
        return None  # values that em never writes fit no link


def _furthest(saved: Head | None, registered: Head | None) -> tuple[int, str]:
    """Return the furthest position that a stream must reach, and who says so."""
    if saved and (registered is None or saved.pos > registered.pos):
        return saved.pos, f"the saved head is at {saved.pos}"
    if registered is None:
        return 0, ""
    return registered.pos, f"the register has its head at {registered.pos}"


def verify(
    store: Verifiable,
    *,
    stream: str | None = None,
    heads: Mapping[str, Head] | None = None,
    progress: Callable[[int], None] = lambda _count: None,
) -> Report:
    """Verify every stream, artefact and record, or one stream; against saved heads, if given."""
    # Read first: what is written meanwhile is then behind it, and never missing.
    register = _Register(store.register())
    saved = {
        name: head
        for name, head in (heads or {}).items()
        if head.pos > 0 and stream in (None, name)
    }
    rows = store.rows(EventQuery(stream=stream, by_stream=True))
    total = Report(events=0, streams=0, erased=0, findings=[], heads={})
    for checked in _streams(rows, saved, register.heads, progress):
        total.findings.extend(sorted(_all_findings(store.rows, checked), key=attrgetter("pos")))
        total.heads[checked.name] = checked.head
        total.events += checked.events
        total.erased += len(checked.empty.keys() & checked.erased)
    total.streams = len(total.heads)
    total.findings += _missing(total.heads, saved, register.heads, stream)
    total.findings += _added(store, total.heads, register)
    if stream is None:
        total.findings += register.findings
    return total


def _missing(
    found: Mapping[str, Head],
    saved: Mapping[str, Head],
    registered: Mapping[str, Head],
    stream: str | None,
) -> Iterator[Finding]:
    """Find whole streams that are gone."""
    for name in sorted((saved.keys() | registered.keys()) - found.keys()):
        if stream in (None, name):
            _, place = _furthest(saved.get(name), registered.get(name))
            yield Finding("missing_tail", name, 1, "", f"the whole stream is missing; {place}")


def _added(store: Verifiable, found: Mapping[str, Head], register: _Register) -> Iterator[Finding]:
    """Find events that no commit wrote: the register does not reach them, now either."""
    nothing = Head(0, "")
    beyond = {
        name: head
        for name, head in found.items()
        if head.pos > register.heads.get(name, nothing).pos
    }
    if not beyond:
        return
    reached = dict(register.heads)
    for entry in store.register(after=register.end):
        if not isinstance(entry, Entry):
            break
        if entry.noun == STREAM:
            reached[entry.key] = Head(entry.pos, entry.hash.hex())
    for name in sorted(beyond):
        last = reached.get(name, nothing).pos
        if beyond[name].pos > (last + LAG if last else 0):
            detail = f"{_span(last + 1, beyond[name].pos)} not in the register"
            yield Finding("added", name, last + 1, "", detail)


def _streams(
    rows: Iterator[Row],
    saved: Mapping[str, Head],
    registered: Mapping[str, Head],
    progress: Callable[[int], None],
) -> Iterator[_Stream]:
    count = 0
    for name, events in groupby(rows, key=lambda row: str(row.stream)):
        checked = _Stream(name, saved.get(name), registered.get(name))
        for row in events:
            checked.take(row)
            count += 1
            if count % REPORT_EVERY == 0:
                progress(REPORT_EVERY)
        checked.finish()
        yield checked
    progress(count % REPORT_EVERY)


def _all_findings(read_rows: ReadRows, checked: _Stream) -> list[Finding]:
    """Return the findings of a stream, with those about missing and reappeared bodies."""
    if checked.empty.keys() - checked.erased:
        _read_newer_erasures(read_rows, checked)
    findings = checked.findings
    for event_id in checked.empty.keys() - checked.erased:
        detail = "its body is gone, and no tombstone in the stream records that"
        pos = checked.empty[event_id]
        findings.append(Finding("changed", checked.name, pos, event_id, detail))
    reported = {finding.event_id for finding in findings}
    named = sorted(checked.erased - checked.empty.keys() - reported)
    for start in range(0, len(named), 500):
        for row in read_rows(EventQuery(ids=named[start : start + 500])):
            if row.body is not None and row.stream == checked.name:
                detail = "it was erased and has a body again"
                findings.append(Finding("changed", checked.name, row.pos, row.id, detail))
    return findings


def _read_newer_erasures(read_rows: ReadRows, checked: _Stream) -> None:
    """Read tombstones that were written while the log was verified."""
    for row in read_rows(EventQuery(stream=checked.name, kinds=["erased"])):
        if row.pos > checked.head.pos and row.body is not None:
            checked.erased.update(msgspec.json.decode(row.body, type=Erased).events)


def _origin(row: Row, suspects: list[_Suspect], before: set[bytes]) -> int | None:
    """Return the position, among those of the suspects, at which a row's hash fits."""
    for suspect in suspects:
        for previous in before:
            if _hash(row, previous, suspect.row.pos) == row.hash:
                return suspect.row.pos
    return None


def _pos(row: Row) -> int:
    pos: object = row.pos  # it may have been tampered with
    return pos if isinstance(pos, int) else 0


def _hash(row: Row, previous: bytes, pos: int) -> bytes | None:
    try:
        return hash_event(
            previous,
            row.id,
            row.stream,
            pos,
            row.subject,
            row.kind,
            row.v,
            row.at,
            row.recorded_at,
            row.body_hash,
        )
    except UnicodeEncodeError:
        return None  # bytes that are not UTF-8 fit no hash


def _well_formed(row: Row) -> bool:
    """Return whether every field has its type and size: JSON hides some differences."""
    fields: tuple[object, ...] = msgspec.structs.astuple(row)
    typed = all(isinstance(value, kind) for value, kind in zip(fields, _TYPES, strict=False))
    salt, *hashes = fields[len(_TYPES) :]
    return (
        typed
        and row.seq > 0
        and row.pos > 0
        and (row.body is None) == (salt is None)
        and (salt is None or (isinstance(salt, bytes) and len(salt) == SALT_BYTES))
        and all(isinstance(value, bytes) and len(value) == HASH_BYTES for value in hashes)
    )


def _span(first: int, last: int) -> str:
    if last < first:
        return "the right position is"
    return f"position {first} is" if first == last else f"positions {first} to {last} are"
