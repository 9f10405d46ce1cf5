"""Shared texts: what gives a text in every one of several sessions.

A text that differs from session to session is taken apart into what is the same in all of them and
what is not. Each part that differs must be something known that has just these values: an input,
the day, or what stands between the same words on one line of the same read. What holds in all
sessions is used; where several things hold, they must agree when the routine runs.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from em.compiler.calls import TracedCall
from em.compiler.evidence import information
from em.compiler.file_changes import FOLDER
from em.compiler.inputs import escaped
from em.compiler.said_values import SaidValues, shared_start
from em.compiler.sources import quoted
from em.runner.expressions.file_lines import line_part, module_name
from em.runner.tools.coding import FILE_TEXT, TODAY
from em.values.canonical import identical

FEWEST = 3
"""Sessions that must show the same: two may agree by chance."""
MOST_PLACES = 12
"""Lines of a text on which a value is looked for."""
MOST_READS = 6
"""Reads of one kind that a value is looked for in."""
MOST_RIVALS = 4
"""Explanations of a part that must agree."""
MOST_TRIED = 400
"""Ways to take one text apart that are tried."""
DEEPEST = 3
"""Reads that were found by reads that were found by reads."""
_KNOWN_ENOUGH = 6.0
"""Bits from which a value may stand within a word: v1.3.0."""
_SEGMENTS = (r"[^\s\"'`(),;:=<>\[\]{}]+", r"\w+", r"[^\n\"]+", r"[^\n]+")
_RULER = re.compile(r"\n?([^a-zA-Z0-9\s])\1{2,}\n?")
_DATE = re.compile(r"\b(?:19|20)\d\d\b|\b\d{1,2}\.\d{1,2}\.\d{2,4}\b")
"""A year stands in most dates."""
_PATH = re.compile(r"[\w.+-]+(?:/[\w.+-]+)*\.py")


class Way(NamedTuple):
    """An expression, and the reads whose results it needs."""

    expression: str
    reads: frozenset[str] = frozenset()


class Atom(NamedTuple):
    """Something known: the expressions that give it, and its value in each session.

    A value is None in a session that does not show it.
    """

    ways: tuple[Way, ...]
    values: tuple[str | None, ...]

    @property
    def expression(self) -> str:
        """The first of the expressions."""
        return self.ways[0].expression

    @property
    def reads(self) -> frozenset[str]:
        """The reads that all expressions need."""
        return frozenset().union(*(way.reads for way in self.ways))


class Given(NamedTuple):
    """An argument as the routine writes it, what must agree with it, and the reads it needs."""

    value: Any
    agree: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    expression: str = ""
    """The same as one expression, for a text."""
    fixed: tuple[str, ...] = ()
    """What stands around and between the parts of a text that differ."""


class Read(NamedTuple):
    """A read that all sessions made, or enough of them: the call in each, and its arguments."""

    name: str
    saved: str
    calls: tuple[TracedCall | None, ...]
    args: dict[str, Given]

    @property
    def sessions(self) -> frozenset[int]:
        """The sessions that made it."""
        return frozenset(number for number, call in enumerate(self.calls) if call is not None)

    @property
    def texts(self) -> list[str | None]:
        """What it showed in each session."""
        return [call.result if call is not None else None for call in self.calls]


class _Tried:
    """The positions from which a text was taken apart."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, ...]] = set()

    def is_new(self, at: tuple[int, ...]) -> bool:
        """Return whether a position was not tried yet, and may be."""
        if at in self._seen or len(self._seen) >= MOST_TRIED:
            return False
        self._seen.add(at)
        return True


class SharedTexts:
    """Explains the values that several sessions have at one place of the same call.

    calls: of each session. inputs: what each of them was asked for, by name.
    name_of: returns a new name for the result of a tool, and for the file that it read.
    said: where the words of the requests say what their inputs are, instead of `inputs`.
    """

    def __init__(
        self,
        calls: Sequence[Sequence[TracedCall]],
        inputs: Mapping[str, Sequence[str]],
        name_of: Callable[[str, str], str],
        said: SaidValues | None = None,
    ) -> None:
        self._calls, self._name_of, self._said = calls, name_of, said
        by_values: dict[tuple[str, ...], list[str]] = {}
        for name, values in inputs.items():
            by_values.setdefault(tuple(values), []).append(name)
        self._atoms = [Atom(tuple(map(Way, names)), values) for values, names in by_values.items()]
        self.inputs: dict[str, Sequence[str]] = dict(inputs)
        """What each session was asked for, by name."""
        self.reads: dict[str, Read] = {}
        """The reads that were found to be needed, by the name of their result."""
        self._failed: set[tuple[str, tuple[int, ...]]] = set()
        self._take_days()
        # The sessions that made all reads which are needed so far: some must have made every one.
        self._whole = frozenset(range(len(calls)))

    def _take_days(self) -> None:
        """Know the day of each session: it may stand in a text that all sessions share."""
        days = [[call for call in own if call.name == TODAY] for own in self._calls]
        found: dict[tuple[str, ...], list[Way]] = {}
        for calls in zip(*days, strict=False):
            saved = self._name_of(TODAY, "")
            args = {key: Given(value) for key, value in calls[0].args.items()}
            self.reads[saved] = Read(TODAY, saved, calls, args)
            ways = found.setdefault(tuple(str(call.result) for call in calls), [])
            ways.append(Way(saved, frozenset({saved})))
        self._atoms += [Atom(tuple(ways), values) for values, ways in found.items()]
        self._has_days = all(days)

    def explained(
        self, values: Sequence[Any], before: Sequence[int], depth: int = 0
    ) -> Given | None:
        """Return what gives a value in all sessions; None if nothing does.

        before: the number of the call that has it, in each session.
        """
        if all(identical(one, values[0]) for one in values) and not self._may_be_dated(values[0]):
            return Given(_literal(values[0]), expression=quoted(values[0]))
        if all(isinstance(one, dict) for one in values):
            return self._structure(values, before, depth)
        if not all(isinstance(one, str) and one for one in values):
            return None
        return self._text(values, before, depth)

    def _may_be_dated(self, value: Any) -> bool:
        return isinstance(value, str) and _DATE.search(value) is not None

    def needed(self, name: str, calls: Sequence[TracedCall]) -> Read | None:
        """Return a read that is needed whatever it shows; None if it can't be made again."""
        read = self._read(name, calls, 0)
        if read is not None:
            self.reads[read.saved] = read
        return read

    def _structure(self, values: Sequence[Any], before: Sequence[int], depth: int) -> Given | None:
        if any(one.keys() != values[0].keys() for one in values):
            return None
        parts = {
            key: self.explained([one[key] for one in values], before, depth) for key in values[0]
        }
        found = {key: part for key, part in parts.items() if part is not None}
        if len(found) < len(parts) or any(part.agree for part in found.values()):
            return None
        return Given(
            {key: part.value for key, part in found.items()},
            (),
            frozenset().union(*(part.reads for part in found.values())),
            frozenset().union(*(part.inputs for part in found.values())),
        )

    # --- taking a text apart ----------------------------------------------------------------------

    def _text(self, values: Sequence[str], before: Sequence[int], depth: int) -> Given | None:
        pieces = self._pieces(values, [0] * len(values), before, depth, _Tried())
        if pieces is None:
            return None
        if not self._has_days and any(isinstance(one, str) and _DATE.search(one) for one in pieces):
            return None  # nobody knows whether it is the day of the session
        joined: list[str | Atom] = []
        for piece in pieces:
            if isinstance(piece, str) and joined and isinstance(joined[-1], str):
                joined[-1] += piece
            else:
                joined.append(piece)
        return self._given(joined)

    def _given(self, pieces: Sequence[str | Atom]) -> Given:
        own = [piece if isinstance(piece, str) else piece.expression for piece in pieces]
        text = "".join(
            escaped(piece) if isinstance(piece, str) else f"{{{{ {piece.expression} }}}}"
            for piece in pieces
        )
        agree: list[str] = []
        for number, piece in enumerate(pieces):
            if isinstance(piece, str):
                continue
            rivals = [way.expression for way in piece.ways[1:]]
            known = {one for one in piece.values if one is not None}
            if len(known) == 1:
                rivals.append(quoted(known.pop()))
            for rival in rivals:
                parts = [
                    rival if at == number else quoted(one) if isinstance(pieces[at], str) else one
                    for at, one in enumerate(own)
                ]
                agree.append(parts[0] if len(parts) == 1 else " ~ ".join(['""', *parts]))
        atoms = [piece for piece in pieces if isinstance(piece, Atom)]
        own_text = " ~ ".join(['""', *map(_expression, pieces)])
        return Given(
            text,
            tuple(agree),
            frozenset().union(*(atom.reads for atom in atoms)),
            frozenset(way.expression for atom in atoms for way in atom.ways) & self.inputs.keys(),
            own_text,
            _fixed(pieces),
        )

    def _pieces(
        self,
        values: Sequence[str],
        at: list[int],
        before: Sequence[int],
        depth: int,
        tried: "_Tried",
    ) -> list[str | Atom] | None:
        """Return the rest of a text as pieces: what is the same everywhere, and what is known."""
        if all(start == len(text) for start, text in zip(at, values, strict=True)):
            return []
        if not tried.is_new(tuple(at)):
            return None
        for piece, after in self._next(values, at, before, depth):
            rest = self._pieces(values, after, before, depth, tried)
            if rest is not None:
                return [piece, *rest]
        return None

    def _next(
        self, values: Sequence[str], at: list[int], before: Sequence[int], depth: int
    ) -> Iterator[tuple[str | Atom, list[int]]]:
        """Yield what a text may go on with, the longest known value first."""
        fitting = [atom for atom in self._known(before) if _stands(atom, values, at)]
        for atom in sorted(fitting, key=lambda one: -len(one.values[0] or "")):
            yield atom, [start + len(own or "") for start, own in zip(at, atom.values, strict=True)]
        tokens = [_token(text, start) for text, start in zip(values, at, strict=True)]
        same = len(set(tokens)) == 1 and tokens[0]
        if same:
            yield tokens[0], [start + len(tokens[0]) for start in at]
        elif self._said is not None and depth <= DEEPEST:
            yield from self._newly_said(self._said, values, at)
        for pattern in _SEGMENTS if _may_begin(values, at) else ():
            found = [
                re.compile(pattern).match(text, start)
                for text, start in zip(values, at, strict=True)
            ]
            if all(one is not None for one in found):
                texts = [one.group() for one in found if one is not None]
                part = self._found(texts, before, depth)
                if part is not None:
                    yield part, [start + len(own) for start, own in zip(at, texts, strict=True)]
        if (
            not same
            and len({text[start : start + 1] for text, start in zip(values, at, strict=True)}) == 1
        ):
            yield values[0][at[0]], [start + 1 for start in at]

    def _newly_said(
        self, said: SaidValues, values: Sequence[str], at: list[int]
    ) -> Iterator[tuple[Atom, list[int]]]:
        """Yield what each request says as a new input; it goes if the rest is not explained."""
        for texts in said.at(values, at):
            name = said.name_of(texts)
            self.inputs[name] = texts
            self._atoms.append(Atom((Way(name),), texts))
            yield self._atoms[-1], [start + len(own) for start, own in zip(at, texts, strict=True)]
            del self.inputs[name]
            self._atoms = [one for one in self._atoms if one.expression != name]

    # --- looking for a part -----------------------------------------------------------------------

    def _found(self, values: Sequence[str], before: Sequence[int], depth: int) -> Atom | None:
        """Return something that gives these values, from what was read before."""
        if len(set(values)) == 1 or depth > DEEPEST:
            return None
        known = next((one for one in self._known(before) if list(one.values) == list(values)), None)
        if known is not None:
            return known
        ways: dict[str, Way] = {}
        for read in self._reads_with(values, before, depth):
            if len(self._whole & read.sessions) < FEWEST:
                continue
            for way in itertools.islice(self._parts_of(read, values, before), MOST_RIVALS):
                self.reads[read.saved] = read
                self._whole &= read.sessions
                needed = way.reads.union(*(_reads_of(self.reads[name]) for name in way.reads))
                ways.setdefault(way.expression, Way(way.expression, needed))
            if len(ways) >= MOST_RIVALS:
                break
        if not ways:
            return self._module(values, before, depth)
        self._atoms.append(Atom(tuple(ways.values()), tuple(values)))
        return self._atoms[-1]

    def _known(self, before: Sequence[int]) -> Iterator[Atom]:
        """Yield what is known before a call, by the reads that were made before it."""
        for atom in self._atoms:
            ways = tuple(way for way in atom.ways if self._is_made(way, before))
            if ways:
                yield atom._replace(ways=ways)

    def ways_to(self, values: Sequence[str], before: Sequence[int]) -> Iterator[Way]:
        """Yield the known expressions that give these values before a call."""
        for atom in self._known(before):
            if list(atom.values) == list(values):
                yield from atom.ways

    def _is_made(self, way: Way, before: Sequence[int]) -> bool:
        return all(
            call is None or call.index < limit
            for name in way.reads
            for call, limit in zip(self.reads[name].calls, before, strict=True)
        )

    def _module(self, values: Sequence[str], before: Sequence[int], depth: int) -> Atom | None:
        """Return the module of a file that a read named."""
        if not all(re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", one) for one in values):
            return None
        paths: list[set[str]] = []
        for own, limit, value in zip(self._calls, before, values, strict=True):
            shown = (call.result for call in own[:limit] if call.effect == "read")
            texts = [text for text in shown if isinstance(text, str)]
            found = {path for text in texts for path in _PATH.findall(text)}
            paths.append({path for path in found if _is_module(path, value)})
        for chosen in itertools.islice(itertools.product(*map(sorted, paths)), 64):
            path = self._found(chosen, before, depth + 1) if len(set(chosen)) > 1 else None
            if path is not None:
                roots = "".join(f", {quoted(root)}" for root in _roots(chosen, values))
                made = tuple(
                    Way(f"module_name({way.expression}{roots})", way.reads) for way in path.ways
                )
                self._atoms.append(Atom(made, tuple(values)))
                return self._atoms[-1]
        return None

    def _reads_with(
        self, values: Sequence[str], before: Sequence[int], depth: int
    ) -> Iterator[Read]:
        """Yield reads that showed these values: those in use, then those of all sessions."""
        known = [read for read in self.reads.values() if _shows(read, values, before)]
        yield from known
        seen = {read.saved for read in known}
        held = [
            [
                call
                for call in own[:limit]
                if call.effect == "read" and isinstance(call.result, str) and value in call.result
            ]
            for own, limit, value in zip(self._calls, before, values, strict=True)
        ]
        names = dict.fromkeys(call.name for own in held for call in own)
        counts = {
            name: sum(any(call.name == name for call in own) for own in held) for name in names
        }
        everywhere = [name for name, count in counts.items() if count == len(values)]
        some = [name for name, count in counts.items() if FEWEST <= count < len(values)]
        for name in everywhere or some:
            rows = [[call for call in own if call.name == name] for own in held]
            found = (one for one in self._aligned(name, rows, depth) if one.saved not in seen)
            yield from itertools.islice(found, MOST_READS)

    def _aligned(
        self, name: str, rows: Sequence[Sequence[TracedCall]], depth: int
    ) -> Iterator[Read]:
        """Yield the reads of one tool that have arguments which all sessions explain."""
        full = next(row for row in rows if row)
        seen: set[tuple[int, ...]] = set()
        for first in full[-MOST_READS:]:
            calls = [
                min(row, key=lambda call: _distance(call, first), default=None) for row in rows
            ]
            key = tuple(-1 if call is None else call.index for call in calls)
            if key in seen or (name, key) in self._failed:
                continue
            seen.add(key)
            read = self._read(name, calls, depth)
            if read is None:
                self._failed.add((name, key))
            else:
                yield read

    def _read(self, name: str, calls: Sequence[TracedCall | None], depth: int) -> Read | None:
        """Return a read with its arguments explained, by the sessions that made it."""
        known = next((one for one in self.reads.values() if one.calls == tuple(calls)), None)
        if known is not None:
            return known
        there = [number for number, call in enumerate(calls) if call is not None]
        made = [call for call in calls if call is not None]
        if any(call.args.keys() != made[0].args.keys() for call in made):
            return None
        # Where a session did not make the read, its arguments there don't matter.
        within = self if len(there) == len(calls) else self._of(there)
        args: dict[str, Given] = {}
        for key in made[0].args:
            found = within.explained(
                [call.args[key] for call in made], [call.index for call in made], depth + 1
            )
            if found is None:
                return None
            args[key] = found
        file = args["file_path"].value if name == FILE_TEXT else ""
        return Read(name, self._name_of(name, file), tuple(calls), args)

    def _of(self, sessions: Sequence[int]) -> "SharedTexts":
        """Return the same for some of the sessions; what is found there is shared."""
        other = SharedTexts.__new__(SharedTexts)
        other._calls = [self._calls[number] for number in sessions]
        other._name_of, other.inputs, other._failed = self._name_of, self.inputs, set()
        other._said = None  # an input is what all sessions say
        other._has_days = self._has_days
        other._whole = frozenset(range(len(sessions)))
        other._atoms = [
            atom._replace(values=tuple(atom.values[number] for number in sessions))
            for atom in self._atoms
        ]
        other.reads = {
            name: read._replace(calls=tuple(read.calls[number] for number in sessions))
            for name, read in self.reads.items()
        }
        return other

    def _parts_of(self, read: Read, values: Sequence[str], before: Sequence[int]) -> Iterator[Way]:
        """Yield what gives these values in all sessions: an expression over a read, and the reads.

        The values must be at least three different ones: fewer may be there by chance.
        """
        texts, own = read.texts, frozenset({read.saved})
        if all(
            text is None or text.strip("\n") == value
            for text, value in zip(texts, values, strict=True)
        ):
            yield Way(read.saved, own)
            return
        there = [
            (text, value) for text, value in zip(texts, values, strict=True) if text is not None
        ]
        places = [
            list(itertools.islice(_places(text, value), MOST_PLACES)) for text, value in there
        ]
        if len(there) < FEWEST or len({value for _, value in there}) < FEWEST:
            return
        done: set[tuple[str, str]] = set()
        for first in places[0]:
            lines = [
                first,
                *(max(own, key=lambda one: _alike(first, one)) for own in places[1:] if own),
            ]
            if len(lines) < len(places):
                return
            ends = _ends(lines)
            if ends is None or ends in done:
                continue
            done.add(ends)
            if all(_gives(text, ends, value) for text, value in there):
                part = f"line_part({read.saved}, {quoted(ends[0])}, {quoted(ends[1])})"
                yield Way(part, own)
                continue
            yield from self._by_known(read, lines, there, before)

    def _by_known(
        self,
        read: Read,
        lines: Sequence[tuple[str, str]],
        there: Sequence[tuple[str, str]],
        before: Sequence[int],
    ) -> Iterator[Way]:
        """Yield the place behind something known on a line: `from shop.cart import `."""
        if len(lines) < len(before):
            return
        none = [0] * len(lines)
        sides = [
            self._pieces([line[side] for line in lines], none, before, DEEPEST + 1, _Tried())
            for side in (0, 1)
        ]
        if sides[0] is None or sides[1] is None:
            return
        fits = all(
            _gives(text, (f"\n{line[0]}", f"{line[1]}\n"), value)
            for (text, value), line in zip(there, lines, strict=True)
        )
        atoms = [one for side in sides for one in side or () if isinstance(one, Atom)]
        if not fits or not atoms:
            return
        head = " ~ ".join([quoted("\n"), *map(_expression, sides[0])])
        tail = " ~ ".join([*map(_expression, sides[1]), quoted("\n")])
        reads = frozenset({read.saved}).union(*(atom.reads for atom in atoms))
        yield Way(f"line_part({read.saved}, {head}, {tail})", reads)


# --- helpers --------------------------------------------------------------------------------------


def _fixed(pieces: Sequence[str | Atom]) -> tuple[str, ...]:
    """Return the texts before, between and behind the parts that differ."""
    found = [""]
    for piece in pieces:
        if isinstance(piece, str):
            found[-1] += piece
        else:
            found.append("")
    return tuple(found)


def _expression(piece: str | Atom) -> str:
    return quoted(piece) if isinstance(piece, str) else piece.expression


def _literal(value: Any) -> Any:
    if isinstance(value, str):
        return escaped(value)
    return value


def _shows(read: Read, values: Sequence[str], before: Sequence[int]) -> bool:
    """Return whether a read showed these values in each session that made it, before a call."""
    return all(
        call is None
        or (call.index < limit and isinstance(call.result, str) and value in call.result)
        for call, value, limit in zip(read.calls, values, before, strict=True)
    )


def _reads_of(read: Read) -> frozenset[str]:
    return frozenset().union(*(given.reads for given in read.args.values()))


def _is_module(path: str, name: str) -> bool:
    """Return whether a file is a module, by all of its path or without the first folder."""
    first = path.removeprefix("./").partition("/")[0]
    for roots in ((), (first,)):
        with suppress(ValueError):
            if module_name(path, *roots) == name:
                return True
    return False


def _roots(paths: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the first folders that are not part of the names of modules."""
    firsts = [path.removeprefix("./").partition("/")[0] for path in paths]
    found = zip(firsts, names, strict=True)
    return sorted({first for first, name in found if name.partition(".")[0] != first})


def _distance(call: TracedCall, other: TracedCall) -> tuple[int, int]:
    """Return how much the arguments of two calls differ, and how far apart they are."""
    differing = sum(
        not identical(call.args.get(key), other.args.get(key))
        for key in {**call.args, **other.args}
    )
    return differing, abs(call.index - other.index)


def _token(text: str, at: int) -> str:
    found = re.compile(r"[\w.+/-]*\w|\s+|.", re.DOTALL).match(text, at)
    return found.group() if found else ""


def _may_begin(values: Sequence[str], at: Sequence[int]) -> bool:
    """Return whether a value may begin here: not within a word."""
    return all(
        start == 0 or not (text[start - 1].isalnum() and text[start : start + 1].isalnum())
        for text, start in zip(values, at, strict=True)
    )


def _stands(atom: Atom, values: Sequence[str], at: Sequence[int]) -> bool:
    """Return whether a known value stands at a position of each text, as a word of its own."""
    for own, text, start in zip(atom.values, values, at, strict=True):
        if not own or not text.startswith(own, start):
            return False
        end = start + len(own)
        inside = (start and text[start - 1].isalnum() and own[0].isalnum()) or (
            end < len(text) and text[end].isalnum() and own[-1].isalnum()
        )
        if inside and information(own) < _KNOWN_ENOUGH:
            return False
    return True


def _places(text: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before and after a value on each line that has it as a word of its own."""
    for line in text.split("\n"):
        at = line.find(value)
        while at >= 0:
            end = at + len(value)
            apart = not (at and line[at - 1].isalnum() and value[0].isalnum()) and not (
                end < len(line) and line[end].isalnum() and value[-1].isalnum()
            )
            if apart and FOLDER not in line:
                yield line[:at], line[end:]
            at = line.find(value, at + 1)


def _alike(one: tuple[str, str], other: tuple[str, str]) -> int:
    """Return how much two places have in common around them."""
    return len(shared_start([one[0][::-1], other[0][::-1]])) + len(shared_start([one[1], other[1]]))


def _ends(lines: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return what all lines have in common around a value; a line break at an end of the line."""
    before = shared_start([line[0][::-1] for line in lines])[::-1]
    after = shared_start([line[1] for line in lines])
    if all(line[0] == before for line in lines):
        before = f"\n{before}"
    if all(line[1] == after for line in lines):
        after = f"{after}\n"
    # A ruler of signs is as long as what stands beside it leaves room.
    before, after = (
        _RULER.sub("\0", before).rpartition("\0")[2],
        _RULER.sub("\0", after).partition("\0")[0],
    )
    return (before, after) if before.strip(" ") and after.strip(" ") else None


def _gives(text: str, ends: tuple[str, str], value: str) -> bool:
    try:
        return line_part(text, *ends) == value
    except ValueError:
        return False
