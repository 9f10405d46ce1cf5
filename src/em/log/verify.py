"""Verify a log: that nothing in a stream was changed, reordered or removed.

The chain alone can't show that its end was cut off, or that all of it was written again. A head
that was saved earlier outside the log shows both.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from types import NoneType
from typing import Literal

import msgspec

from em.log.chain import HASH_BYTES, SALT_BYTES, START, hash_body, hash_event
from em.log.event import EventQuery, Row
from em.log.kinds import Erased

Problem = Literal["changed", "removed", "reordered", "missing_tail", "rewritten"]
MAX_SUSPECTS = 24
"""The number of broken links of a stream for which the original order is searched."""
REPORT_EVERY = 1_000
ReadRows = Callable[[EventQuery], Iterator[Row]]

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
    """One difference from what was written."""

    problem: Problem
    stream: str
    pos: int
    event_id: str
    detail: str


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

    def __init__(self, name: str, saved: Head | None) -> None:
        self.name = name
        self.saved = saved
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
        if self.saved and row.pos == self.saved.pos and row.hash.hex() != self.saved.hash:
            self._find("rewritten", row, "its hash differs from the saved head")
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
        if self.saved and self.head.pos < self.saved.pos:
            span = _span(self.head.pos + 1, self.saved.pos)
            detail = f"{span} missing at the end; the saved head is at {self.saved.pos}"
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


def verify(
    read_rows: ReadRows,
    *,
    stream: str | None = None,
    heads: Mapping[str, Head] | None = None,
    progress: Callable[[int], None] = lambda _count: None,
) -> Report:
    """Verify every stream, or one; against saved heads, if given.

    read_rows: streams the rows of a query, as `Store.rows` does.
    """
    heads = {
        name: head
        for name, head in (heads or {}).items()
        if head.pos > 0 and stream in (None, name)
    }
    rows = read_rows(EventQuery(stream=stream, by_stream=True))
    total = Report(events=0, streams=0, erased=0, findings=[], heads={})
    for checked in _streams(rows, heads, progress):
        total.findings.extend(sorted(_all_findings(read_rows, checked), key=attrgetter("pos")))
        total.heads[checked.name] = checked.head
        total.events += checked.events
        total.erased += len(checked.empty.keys() & checked.erased)
    total.streams = len(total.heads)
    for name in sorted(heads.keys() - total.heads.keys()):
        detail = f"the whole stream is missing; the saved head is at {heads[name].pos}"
        total.findings.append(Finding("missing_tail", name, 1, "", detail))
    return total


def _streams(
    rows: Iterator[Row], heads: Mapping[str, Head], progress: Callable[[int], None]
) -> Iterator[_Stream]:
    count = 0
    for name, events in groupby(rows, key=lambda row: str(row.stream)):
        checked = _Stream(name, heads.get(name))
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
