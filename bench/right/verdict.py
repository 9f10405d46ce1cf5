"""Verdicts: whether a run did what it should, asked, refused, or wrote something wrong."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.right.recording import Aim, key_of
from bench.right.world import World, Write

KINDS = ("right", "asked", "refused", "wrong", "partial", "not compiled")


class Ended(NamedTuple):
    """How a run ended: ok, needs_input, failed or raised; and what it said."""

    status: str
    said: str = ""


class Verdict(NamedTuple):
    kind: str
    why: str = ""


def judge(world: World, ended: Ended, aim: Aim) -> Verdict:
    """Right: the database is as it should be, and the run ended ok.

    Wrong: a write that the aim doesn't have, or the end ok without the writes. Partial: some of
    its writes, or all of them by a run that then failed.
    """
    changes, written = world.changes(), world.written
    same = changes == aim.changes
    if same and ended.status == "ok":
        return Verdict("right")
    foreign = _foreign(written, aim)
    if foreign is not None:
        return Verdict("wrong", f"{_difference(foreign, aim)}; the run ended {_said(ended)}")
    if ended.status == "ok":
        made = f"{len(written)} of {aim.writes.total()} writes"
        return Verdict("wrong", f"{made}, and the run ended ok; differs: {_records(changes, aim)}")
    if written:
        made = "all writes" if same else f"{len(written)} of {len(aim.examples)} writes"
        return Verdict("partial", f"{made} were made; the run ended {_said(ended)}")
    return Verdict("asked" if ended.status == "needs_input" else "refused", _said(ended))


def _said(ended: Ended) -> str:
    return f"{ended.status}: {ended.said}" if ended.said else ended.status


def _foreign(written: Sequence[Write], aim: Aim) -> Write | None:
    """The first write that the aim doesn't have, or has less often."""
    left = Counter(aim.writes)
    for write in written:
        key = key_of(write)
        left[key] -= 1
        if left[key] < 0:
            return write
    return None


def _difference(write: Write, aim: Aim) -> str:
    """Where a write differs from the closest one of the aim."""
    candidates = [
        _leaves_that_differ(write.args, other.args)
        for other in aim.examples
        if other.tool == write.tool
    ]
    if not candidates:
        return f"{write.tool} should not be called, was called with {write.args}"
    closest = min(candidates, key=len)
    if not closest:
        return f"{write.tool} was called more often than it should be, with {write.args}"
    return f"{write.tool}: " + ", ".join(
        f"{place} is {found!r}, should be {expected!r}" for place, found, expected in closest
    )


def _leaves_that_differ(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    first, second = dict(_leaves(one)), dict(_leaves(other))
    return [
        (place, first.get(place), second.get(place))
        for place in dict.fromkeys([*first, *second])
        if first.get(place) != second.get(place)
    ]


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    else:
        yield place, value


def _records(changes: Mapping[tuple[str, str], str], aim: Aim) -> str:
    differ = [
        f"{table} {key}"
        for table, key in dict.fromkeys([*changes, *aim.changes])
        if changes.get((table, key)) != aim.changes.get((table, key))
    ]
    return ", ".join(differ[:3])


class Tally:
    """A table of verdicts: a row for each way of running, a column for each kind."""

    def __init__(self, title: str, *, columns: Sequence[str] = KINDS, verbose: bool) -> None:
        self._title, self._columns, self._verbose = title, columns, verbose
        self._rows: dict[str, Counter[str]] = {}

    def add(self, row: str, case: str, verdict: Verdict) -> None:
        self._rows.setdefault(row, Counter())[verdict.kind] += 1
        if self._verbose and verdict.kind not in ("right", "generalised"):
            print(f"  {row} | {case} | {verdict.kind}: {verdict.why}", flush=True)

    def count(self, *kinds: str, without: str = "\0", rows: Collection[str] | None = None) -> int:
        """How many cases had one of these verdicts, or any; rows that contain a text aside.

        rows: count only in these.
        """
        chosen = [
            found
            for row, found in self._rows.items()
            if without not in row and (rows is None or row in rows)
        ]
        return sum(found[kind] for found in chosen for kind in (kinds or found))

    def show(self) -> None:
        width = max([len(self._title), *map(len, self._rows)])
        print(f"\n{self._title:<{width}}  " + "".join(f"{name:>14}" for name in self._columns))
        for row, found in self._rows.items():
            print(f"{row:<{width}}  " + "".join(f"{found[name]:>14}" for name in self._columns))
        print(flush=True)


def share(what: str, part: int, whole: int) -> Figure:
    """A figure that must be the whole."""
    return Figure(what, part, "of", whole, "", part / max(whole, 1), 1.0, True)


def zero(what: str, found: int, whole: int) -> Figure:
    """A figure that must be zero."""
    return Figure(what, found, "of", whole, "", found, 0, False)
