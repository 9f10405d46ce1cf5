"""Proving a log: that nothing in a stream was changed, reordered or removed.

A chain can't prove that nothing was cut off at its end, nor that it was not written anew as a
whole. A head that was saved earlier, outside the log, proves both.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Literal

import msgspec

from em.models.chain import START, hash_body, hash_event
from em.models.event import EventQuery
from em.store.protocol import Row, Store

Problem = Literal["changed", "removed", "reordered", "missing_tail", "rewritten"]
MAX_SUSPECTS = 24
"""Broken links of one stream that are searched for the order they were written in."""
REPORT_EVERY = 1_000


class Head(msgspec.Struct, frozen=True):
    """The end of a stream at some moment."""

    pos: int
    hash: str


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it was written."""

    problem: Problem
    stream: str
    pos: int
    event_id: str
    detail: str


class Report(msgspec.Struct, frozen=True):
    """What verifying found. An erased body is no problem: its erasure stands in the stream."""

    events: int
    streams: int
    erased: int
    findings: list[Finding]
    heads: dict[str, Head]

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.findings


class _Suspect(msgspec.Struct, frozen=True):
    row: Row
    previous: bytes


class _Stream:
    """One stream while it is being read."""

    def __init__(self, name: str, saved: Head | None) -> None:
        self.name = name
        self.saved = saved
        self.events = 0
        self.head = Head(0, "")
        self.findings: list[Finding] = []
        self._previous = START
        self._suspects: list[_Suspect] = []
        self._empty: dict[str, int] = {}
        self._erased: set[str] = set()

    def take(self, row: Row) -> None:
        """Check one row against those before it."""
        self.events += 1
        follows = row.pos == self.head.pos + 1
        if not follows:
            self._removed(row)
        self._check_body(row)
        if follows and _hash(row, self._previous, row.pos) != row.hash:
            self._suspects.append(_Suspect(row, self._previous))
        if self.saved and row.pos == self.saved.pos and _hex(row.hash) != self.saved.hash:
            self._find("rewritten", row, "it differs from the saved head")
        self._previous = row.hash
        self.head = Head(row.pos, _hex(row.hash))

    def finish(self) -> int:
        """Conclude; how many bodies were erased properly."""
        self._explain_suspects()
        for event_id, pos in self._empty.items():
            if event_id not in self._erased:
                detail = "its body is gone, and no erasure in the stream says why"
                self.findings.append(Finding("changed", self.name, pos, event_id, detail))
        if self.saved and self.head.pos < self.saved.pos:
            span = _span(self.head.pos + 1, self.saved.pos)
            detail = f"{span} missing at the end; the saved head is at {self.saved.pos}"
            self.findings.append(Finding("missing_tail", self.name, self.head.pos + 1, "", detail))
        self.findings.sort(key=attrgetter("pos"))
        return len(self._empty.keys() & self._erased)

    def _check_body(self, row: Row) -> None:
        if row.body is None:
            self._empty[row.id] = row.pos
            return
        try:
            fits = hash_body(row.salt or b"", row.body.encode()) == row.body_hash
        except (TypeError, AttributeError):
            fits = False
        if not fits:
            self._find("changed", row, "its body does not match its hash")
        elif row.kind == "erased":
            self._erased.update(msgspec.json.decode(row.body)["events"])

    def _removed(self, row: Row) -> None:
        span = _span(self.head.pos + 1, row.pos - 1)
        self._find("removed", row, f"{span} missing before it")

    def _explain_suspects(self) -> None:
        """Tell what was moved from what was changed and what only stands behind it."""
        suspects = self._suspects[:MAX_SUSPECTS]
        before = {suspect.previous for suspect in suspects} | {
            suspect.row.hash for suspect in suspects
        }
        origins = {suspect.row.pos: _origin(suspect.row, suspects, before) for suspect in suspects}
        moved = any(origin not in (None, pos) for pos, origin in origins.items())
        for suspect in self._suspects:
            row, origin = suspect.row, origins.get(suspect.row.pos)
            if origin is None:
                detail = (
                    "its hash does not fit: a field of it was changed, or what stood before it was"
                )
                self._find("changed", row, detail)
            elif origin != row.pos:
                self._find("reordered", row, f"it was written at position {origin}")
            elif not moved:
                self._find("changed", row, "it does not follow from the event before it")

    def _find(self, problem: Problem, row: Row, detail: str) -> None:
        self.findings.append(Finding(problem, self.name, row.pos, row.id, detail))


def verify(
    store: Store,
    *,
    stream: str | None = None,
    heads: Mapping[str, Head] | None = None,
    progress: Callable[[int], None] = lambda _count: None,
) -> Report:
    """Check every stream, or one; against saved heads, if given."""
    heads = {name: head for name, head in (heads or {}).items() if stream in (None, name)}
    rows = store.rows(EventQuery(stream=stream, by_stream=True))
    found = list(_streams(rows, heads, progress))
    findings = [finding for checked, _ in found for finding in checked.findings]
    for name in sorted(heads.keys() - {checked.name for checked, _ in found}):
        detail = f"the whole stream is missing; the saved head is at {heads[name].pos}"
        findings.append(Finding("missing_tail", name, 1, "", detail))
    return Report(
        events=sum(checked.events for checked, _ in found),
        streams=len(found),
        erased=sum(erased for _, erased in found),
        findings=findings,
        heads={checked.name: checked.head for checked, _ in found},
    )


def _streams(
    rows: Iterator[Row], heads: Mapping[str, Head], progress: Callable[[int], None]
) -> Iterator[tuple[_Stream, int]]:
    count = 0
    for name, events in groupby(rows, key=attrgetter("stream")):
        checked = _Stream(name, heads.get(name))
        for row in events:
            checked.take(row)
            count += 1
            if count % REPORT_EVERY == 0:
                progress(REPORT_EVERY)
        yield checked, checked.finish()
    progress(count % REPORT_EVERY)


def _origin(row: Row, suspects: list[_Suspect], before: set[bytes]) -> int | None:
    """The position at which a row's hash fits, among those of the suspects."""
    for suspect in suspects:
        for previous in before:
            if _hash(row, previous, suspect.row.pos) == row.hash:
                return suspect.row.pos
    return None


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
    except TypeError:
        return None  # somebody wrote a value of another type there: it fits no hash


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _span(first: int, last: int) -> str:
    return f"position {first} is" if first == last else f"positions {first} to {last} are"
