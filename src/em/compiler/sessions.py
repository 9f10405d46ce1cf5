"""Sessions: what several sessions of a coding agent did alike, as looks, effects and test runs.

A session is followed by its effects (`file_changes`, `commands`): one for each changed place of a
file, however it was changed, each new file, and each shell command with an effect, by its form.
How a session looked around does not matter; what it looked at may say where a value comes from.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby, permutations
from typing import Any, NamedTuple

import msgspec

from em.compiler.alignment import Column, Span, cut, explained, pieces_of, places_of
from em.compiler.calls import TracedCall
from em.compiler.file_changes import EDIT, INSERT, WRITE, Session, session_of
from em.compiler.forms import DATES
from em.compiler.places import Key, key_of
from em.compiler.term import unused
from em.errors import RoutineError
from em.runner.expressions.functions import kind_of
from em.runner.tools.coding import CREATE, FILE_TEXT, TODAY, day_of, is_coding_tool
from em.shell.form import CommandTemplate, form_of
from em.shell.status import settled
from em.text.terms import STOP_WORDS
from em.traces.outcomes import outcome_of_call
from em.traces.trace import Message, ToolCall, Trace
from em.values.call import Effect
from em.values.leaves import texts

FEWEST = 2
"""Sessions that must have made a look, where there are more of them."""
MOST_SWAPPED = 6
"""Changes of files in a row whose order is compared."""
FILES = frozenset({EDIT, INSERT, WRITE, CREATE})
_DAYS = ["%Y", *(form for form in DATES if len(form) > len("%Y") and "%H" not in form)]
"""The ways to write a day, a month or a year; not an hour, a month or a weekday alone."""
_TOKEN = re.compile(r"\w[\w.+-]*|\s+|.", re.DOTALL)
_WORD = re.compile(r"\w+|\S")


class UnseenEnd(RoutineError):
    """Nobody knows whether a command succeeded, so nothing may be done after it."""

    code = "unseen_end"


class Look(NamedTuple):
    """A read that sessions made to the same end: the call in each, None where it was not made.

    which: what tells it from other reads of the same tool.
    """

    tool: str
    which: str
    calls: tuple[TracedCall | None, ...]

    @property
    def made(self) -> list[int]:
        """The numbers of the sessions that made it."""
        return [number for number, call in enumerate(self.calls) if call is not None]

    def text(self, session: int) -> str | None:
        """Return what it showed in a session."""
        call = self.calls[session]
        return call.result if call is not None and isinstance(call.result, str) else None


class Check(NamedTuple):
    """A command that changes nothing and can fail, and that sessions ran after so many effects.

    It succeeded in all of them, so it must succeed again before the next effect.
    """

    after: int
    look: Look


class Sessions(NamedTuple):
    """Sessions that had the same effects, in one order.

    effects: of each session. files: by effect, the look at the file that it changes. looks: what
    else they read before they acted. checks: what had to succeed between effects and behind them.
    has_days: it is known when each session was. names: of inputs whose values are known already,
    as more sessions than these named them.
    """

    prompts: list[str]
    inputs: list[dict[str, Any]]
    effects: list[list[TracedCall]]
    files: list[Look | None]
    looks: list[Look]
    checks: list[Check]
    has_days: bool
    names: Mapping[tuple[str, ...], str] = {}

    @property
    def size(self) -> int:
        """How many sessions there are."""
        return len(self.prompts)

    @property
    def every_look(self) -> list[Look]:
        """All looks, each once: those at changed files first."""
        files = {id(one): one for one in self.files if one is not None}
        return [*files.values(), *self.looks]


def is_session(trace: Trace) -> bool:
    """Return whether an agent worked on files or with a shell."""
    return any(is_coding_tool(call.tool) for call in trace.calls if isinstance(call, ToolCall))


def sessions_of(
    traces: Sequence[Trace], declared: Mapping[str, Effect | None] | None = None
) -> Sessions:
    """Return traces as sessions that did the same. Raises RoutineError if they did not."""
    if len(traces) < 2:
        raise RoutineError(
            f"a routine of sessions needs at least 2 of them, got {len(traces)}",
            fix="add sessions that did the same work",
        )
    made = [session_of(trace, declared or {}) for trace in traces]
    known = [one for one in made if one is not None]
    if len(known) < len(made) or not all(map(is_session, traces)):
        raise RoutineError("it is not known what one of the sessions did", place="traces")
    effects = [[call for call in one.calls if call.effect == "write"] for one in known]
    aligned = [_in_order_of(effects[0], own) for own in effects]
    if not effects[0] or any(own is None for own in aligned):
        kinds = sorted({", ".join(call.title for call in own) or "nothing" for own in effects})
        raise RoutineError(f"the sessions had different effects: {'; '.join(kinds)}")
    ordered = [own for own in aligned if own is not None]
    return Sessions(
        prompts=[_prompt(trace) for trace in traces],
        inputs=[dict(trace.mission.input_summary) for trace in traces],
        effects=ordered,
        files=_files(known, ordered),
        looks=[*_days(known), *_other_looks(known, ordered)],
        checks=[*_checks(known, ordered)],
        has_days=all(one.at is not None for one in known),
    )


def _prompt(trace: Trace) -> str:
    said = [one.text for one in trace.events if isinstance(one, Message) and one.role == "user"]
    return "\n".join(said) or trace.mission.goal


# --- effects --------------------------------------------------------------------------------------


def _in_order_of(
    first: Sequence[TracedCall], other: Sequence[TracedCall]
) -> list[TracedCall] | None:
    """Return effects in the order of others; None if they are not the same.

    Changes of files in a row are in the order of those that they are most like.
    """
    if Counter(call.name for call in first) != Counter(call.name for call in other):
        return None
    found: list[TracedCall] = []
    for is_file, run in groupby(first, lambda call: call.name in FILES):
        ours = [*run]
        theirs = [*other[len(found) : len(found) + len(ours)]]
        if is_file:
            theirs = _most_alike(ours, theirs)
        if [one.name for one in ours] != [one.name for one in theirs]:
            return None
        found += theirs
    return found


def _most_alike(ours: list[TracedCall], theirs: list[TracedCall]) -> list[TracedCall]:
    if len(ours) <= MOST_SWAPPED:
        score = {(n, m): _alike(a, b) for n, a in enumerate(ours) for m, b in enumerate(theirs)}
        orders = permutations(range(len(theirs)))
        best = max(orders, key=lambda some: sum(score[n, m] for n, m in enumerate(some)))
        return [theirs[number] for number in best]
    left, found = [*theirs], []
    for one in ours:
        chosen = max(left, key=lambda other, one=one: _alike(one, other))  # type: ignore[misc]
        left.remove(chosen)
        found.append(chosen)
    return found


def _alike(one: TracedCall, two: TracedCall) -> float:
    """Return how much two changes of files are alike: by path, name and ending, and texts."""
    if one.name != two.name:
        return -100.0
    paths = [str(call.args.get("file_path")) for call in (one, two)]
    same = [len({path.rpartition(sign)[2] for path in paths}) == 1 for sign in ("\0", "/", ".")]
    texts = [
        _WORD.findall(" ".join(str(call.args.get(name)) for name in ("old_string", "new_string")))
        for call in (one, two)
    ]
    return sum(same) + SequenceMatcher(None, texts[0], texts[1]).ratio()


def gone(old: str, new: str) -> str:
    """Return the part of a text that is not in what replaces it: whole words."""
    before, after = _TOKEN.findall(old), _TOKEN.findall(new)
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return "".join(before)


# --- looks ----------------------------------------------------------------------------------------


def days_of(session: Session) -> Iterator[TracedCall]:
    """Yield the day of a session in the usual forms, as if it had asked for it."""
    if session.at is None or not session.calls:
        return
    for form in _DAYS:
        for zone in ("local", "utc"):
            yield msgspec.structs.replace(
                session.calls[0], name=TODAY, args={"form": form, "zone": zone}, index=-1,
                result=day_of(session.at, form, zone), effect="read", effect_inferred=False,
                error=None, shell="", via="", fixed={}, exit_code=0,
            )  # fmt: skip


def _days(sessions: Sequence[Session]) -> Iterator[Look]:
    rows = [{" ".join(one.args.values()): one for one in days_of(session)} for session in sessions]
    for which in dict.fromkeys(which for row in rows for which in row):
        yield Look(TODAY, which, tuple(row.get(which) for row in rows))


def _files(
    sessions: Sequence[Session], effects: Sequence[Sequence[TracedCall]]
) -> list[Look | None]:
    """Return, by effect, the look at the file that it changes."""
    found: list[Look | None] = []
    for number, effect in enumerate(effects[0]):
        pairs = [*zip(sessions, (own[number] for own in effects), strict=True)]
        calls = tuple(_text_before(*pair) for pair in pairs) if effect.name in FILES else ()
        if effect.name not in (EDIT, INSERT) or any(call is None for call in calls):
            found.append(None)
            continue
        known = (one for one in found if one is not None and one.calls == calls)
        found.append(next(known, Look(FILE_TEXT, f"changed file {number + 1}", calls)))
    return found


def _text_before(session: Session, effect: TracedCall) -> TracedCall | None:
    return next(
        (
            one
            for one in reversed(session.calls[: effect.index])
            if one.name == FILE_TEXT and one.args["file_path"] == effect.args["file_path"]
        ),
        None,
    )


def _other_looks(
    sessions: Sequence[Session], effects: Sequence[Sequence[TracedCall]]
) -> Iterator[Look]:
    """Yield the other reads, those of several sessions that have the same telling arguments.

    An argument tells if most sessions that used the tool used it with this value: a path of all
    projects does, the name of a function does not.
    """
    reads = [[*_early(one, own)] for one, own in zip(sessions, effects, strict=True)]
    using = Counter(name for own in reads for name in {call.name for call in own})
    having: Counter[tuple[str, str, Key]] = Counter(
        one
        for own in reads
        for one in {(call.name, arg, key_of(v)) for call in own for arg, v in call.args.items()}
    )

    def which(call: TracedCall) -> str:
        told = [
            f"{arg}={value}"
            for arg, value in call.args.items()
            if having[call.name, arg, key_of(value)] > using[call.name] / 2
        ]
        return f"{call.shell or call.name} {' '.join(told)}"

    found: dict[tuple[str, str], list[TracedCall | None]] = {}
    for number, own in enumerate(reads):
        for call in own:
            row = found.setdefault((call.name, which(call)), [None] * len(sessions))
            row[number] = row[number] or call
    for (name, told), calls in found.items():
        if sum(call is not None for call in calls) >= min(FEWEST, len(sessions)):
            yield Look(name, told, tuple(calls))


def _early(session: Session, effects: Sequence[TracedCall]) -> Iterator[TracedCall]:
    """Yield the reads that show the same before all effects: files that were not changed yet.

    Of other reads that were made between effects nobody knows it.
    """
    first = min(call.index for call in effects)
    for call in session.calls:
        if call.effect != "read" or not isinstance(call.result, str):
            continue
        changed = {one.args.get("file_path") for one in effects}
        is_file = call.name == FILE_TEXT
        if is_file and call.args["file_path"] in changed:
            continue  # the look at a changed file is known by its effect
        if call.index < first or is_file:
            yield call


# --- checks ---------------------------------------------------------------------------------------


def _checks(
    sessions: Sequence[Session], effects: Sequence[Sequence[TracedCall]]
) -> Iterator[Check]:
    """Yield the commands that can fail behind the first effect, and that never did at their place.

    What a session ran several times at one place counts as it ended in the end. Between changes of
    files agents look around, so there most sessions must have run it.
    """
    last_file = max((n for n, call in enumerate(effects[0], 1) if call.name in FILES), default=0)
    for after in range(1, len(effects[0]) + 1):
        found: dict[str, list[TracedCall | None]] = {}
        failed: set[str] = set()
        for number, (session, own) in enumerate(zip(sessions, effects, strict=True)):
            for call in _run_after(session, own, after):
                found.setdefault(call.name, [None] * len(sessions))[number] = call
                failed |= {call.name} if call.failed else set()
        for name, calls in found.items():
            held = sum(call is not None for call in calls)
            if name not in failed and (after >= last_file or 2 * held >= len(sessions)):
                yield Check(after, Look(name, f"after effect {after}", tuple(calls)))


def _run_after(session: Session, effects: Sequence[TracedCall], after: int) -> Iterator[TracedCall]:
    """Yield the commands that changed nothing and can fail, run between two effects, each once.

    One that failed, or shows that it did, has an error. One whose output alone tells has it.
    """
    order = sorted(call.index for call in effects)
    end = order[after] if after < len(order) else len(session.calls)
    runs: dict[tuple[str, Key], TracedCall] = {}
    for call in session.calls[order[after - 1] + 1 : end]:
        check = as_check(call)
        if check is not None:
            runs[check.name, key_of(check.args)] = check
    yield from runs.values()


def as_check(call: TracedCall) -> TracedCall | None:
    """Return a command as what of it must succeed; None if it changes something, or can't fail."""
    if call.effect != "read" or not call.shell:
        return None
    text = command_line(call)
    told = settled(text, call.result)
    if told == "":
        return None
    form = form_of(text if told is None else told)
    ended = outcome_of_call({"command": text}, call.result, None)
    return msgspec.structs.replace(
        call, name=form.name, args=dict(form.args), shell=form.text, fixed=dict(form.fixed),
        effect_inferred=False, result=call.shown if told is None else None, exit_code=0,
        error="it failed" if call.exit_code or ended == "failure" else None,
    )  # fmt: skip


def command_line(call: TracedCall) -> str:
    """Return the command of a call by its form."""
    return CommandTemplate(call.shell, call.fixed).filled(call.args)


def shown_alike(calls: Iterable[TracedCall | None]) -> str | None:
    """Return what calls printed whose output alone tells that they succeeded; None if it varied."""
    shown = {str(call.shown) for call in calls if call is not None}
    return shown.pop() if len(shown) == 1 else None


def is_told_by_output(call: TracedCall) -> bool:
    """Return whether only what a command printed tells how it ended."""
    return bool(call.shell) and settled(command_line(call), call.result) is None


# --- what prompts say -----------------------------------------------------------------------------


PLAIN = ("name", "note")
"""Names that say no more than what a value looks like."""
LONGEST = 500
"""Characters of a value that a prompt says."""
_KEY = re.compile(r"([A-Za-z][A-Za-z_]*?)_*[\"'`]?[ \t]*[:=][ \t]*[\"'`]?\Z")
"""Matches the key that stands before a value: `__version__ = "`."""
_BEFORE = re.compile(r"\s([a-z]+):?\s+[\"'`]?\Z", re.IGNORECASE)
"""Matches the word before a value, not the first one: that is what to do."""
_WORD = re.compile(r"[\w.+/@:#~-]*\w")
"""A word of a prompt; an address of mail is one."""
_VERSION = re.compile(r"v?\d+(?:\.\d+)+\S*")
_FILE = re.compile(r"\S*/\S*|\S+\.[a-z]\w{0,4}")


def inputs_of(found: Sessions, *, are_whole: bool) -> dict[str, tuple[str, ...]]:
    """Return the inputs that prompts say, by name, with their values in each session.

    are_whole: each with all that stands around it in one word of every prompt: `PROJ-117`, though
    only the number differs.
    """
    columns: dict[tuple[str, ...], None] = {}
    for number, effect in enumerate(found.effects[0]):
        for arg in effect.args:
            values = [own[number].args.get(arg) for own in found.effects]
            if all(isinstance(one, str) for one in values) and len({*values}) > 1:
                for column in _said([str(one) for one in values], found.prompts):
                    columns[_whole(column, found.prompts) if are_whole else column] = None
    longest = sorted(columns, key=lambda column: _rank(column, found.prompts))
    left = [*longest]
    for one in longest:
        if _is_made(one, left):
            left.remove(one)
    taken: list[list[Span]] = [[] for _ in found.prompts]
    return _named([one for one in left if _is_apart(one, found.prompts, taken)], found)


def _rank(column: tuple[str, ...], prompts: Sequence[str]) -> tuple[int, int]:
    """Return the order of values: the longest first, then those that are said to the letter."""
    pairs = zip(column, prompts, strict=True)
    return -sum(map(len, column)), -sum(bool(places_of(prompt, one)) for one, prompt in pairs)


def _is_apart(column: tuple[str, ...], prompts: Sequence[str], taken: Sequence[list[Span]]) -> bool:
    """Return whether values stand in the prompts beside longer ones, and take their places."""
    rows = zip(column, prompts, taken, strict=True)
    spans = [said_at(value, prompt, own) for value, prompt, own in rows]
    if not all(spans):
        return False
    for own, more in zip(taken, spans, strict=True):
        own.extend(more)
    return True


def _said(values: Sequence[str], prompts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the columns of texts that stand in the prompts."""
    seen: dict[tuple[str, ...], None] = {}

    def explain(column: Column) -> Column | None:
        pairs = zip(column.values, prompts, strict=True)
        if len({*column.values}) > 1 and all(is_said(one, prompt) for one, prompt in pairs):
            seen[column.values] = None
            return column
        return None

    # What is not said does not matter here.
    explained(pieces_of(values), explain, _are_words, lambda column: column)
    yield from seen


def _whole(column: tuple[str, ...], prompts: Sequence[str]) -> tuple[str, ...]:
    """Return values with what stands around them in their word, if it is the same everywhere."""
    sides = set()
    for value, prompt in zip(column, prompts, strict=True):
        start, stop = said_at(value, prompt)[0]
        words = [one.span() for one in _WORD.finditer(prompt)]
        first = max((one for one, _ in words if one <= start), default=start)
        last = min((one for _, one in words if one >= stop), default=stop)
        sides.add((prompt[first:start], prompt[stop:last]))
    before, after = sides.pop()
    return column if sides else tuple(f"{before}{value}{after}" for value in column)


def _are_words(text: str) -> bool:
    """Return whether a text that all share may be inside a value that people say."""
    return "\n" not in text and all(sign.isalnum() or sign.isspace() for sign in text)


def is_said(value: str, prompt: str) -> bool:
    """Return whether a value stands in a prompt as words of its own.

    A sentence begins with a capital, wherever its words stood in the prompt.
    """
    if not value.strip() or value != value.strip() or "\n" in value or len(value) > LONGEST:
        return False
    return bool(said_at(value, prompt))


def said_at(value: str, prompt: str, taken: Sequence[Span] = ()) -> list[Span]:
    """Return where a prompt says a value, beside what is taken."""
    for one in (value, value[0].lower() + value[1:], value[0].upper() + value[1:]):
        found = places_of(prompt, one, taken)
        if found:
            return found
    return []


def _is_made(column: tuple[str, ...], columns: Sequence[tuple[str, ...]]) -> bool:
    """Return whether a column is made of others, with the same signs around and between.

    Inputs that always moved together are one.
    """
    others = [one for one in columns if one != column]
    rows = []
    for number, value in enumerate(column):
        known = {one[number]: str(at) for at, one in enumerate(others) if one[number]}
        rows.append([f"\0{known[one]}" if is_it else one for one, is_it in cut(value, known)])
    return all(row == rows[0] for row in rows) and any(part.startswith("\0") for part in rows[0])


# --- names ----------------------------------------------------------------------------------------


def _named(columns: Sequence[tuple[str, ...]], found: Sessions) -> dict[str, tuple[str, ...]]:
    wanted = {column: name_of(column, found) for column in columns}
    replaced = {column: _replaced_by(column, found) for column in columns}
    for column, name in [*wanted.items()]:
        if name in PLAIN and column not in found.names:
            old = wanted.get(replaced[column])
            wanted[column] = f"new_{old}" if old else _mostly_before(column, found, 1) or name
    counts = Counter(wanted.values())
    named: dict[str, tuple[str, ...]] = {}
    for column, plain in wanted.items():
        is_known = counts[plain] == 1 or column in found.names
        name = plain if is_known else f"{'old' if column in replaced.values() else 'new'}_{plain}"
        named[unused(name, named)] = column
    return named


def _replaced_by(column: tuple[str, ...], found: Sessions) -> tuple[str, ...]:
    """Return the values that an edit replaced by these; none if no edit did."""
    for number, effect in enumerate(found.effects[0]):
        if effect.name == EDIT:
            edits = [own[number].args for own in found.effects]
            texts = [(one["old_string"], one["new_string"]) for one in edits]
            if tuple(gone(new, old) for old, new in texts) == column:
                return tuple(gone(old, new) for old, new in texts)
    return ()


def name_of(column: tuple[str, ...], found: Sessions) -> str:
    """Name an input after the key that its value is written behind, after its looks, or after the
    word that stands before it in most prompts.
    """
    written = [[text for call in own for text in texts(call.args)] for own in found.effects]
    keys = _words_before(column, written, _KEY).most_common()
    return (
        found.names.get(column, "")
        or next((name for name, count in keys if count == len(column)), "")
        or _look(column)
        or _mostly_before(column, found, min(2, len(column)))
        or ("note" if any(" " in value for value in column) else "name")
    )


def _mostly_before(column: tuple[str, ...], found: Sessions, least: int) -> str:
    """Return the word that more prompts than any other have before the value; "" if none does."""
    said = [[one] for one in found.prompts]
    (name, count), (_, other) = (
        *_words_before(column, said, _BEFORE).most_common(2), ("", 0), ("", 0),
    )[:2]  # fmt: skip
    return name if count >= least and count > other else ""


def _words_before(
    column: tuple[str, ...], shown: Sequence[Sequence[str]], pattern: re.Pattern[str]
) -> Counter[str]:
    """Count the words that stand before the value of a session, by sessions."""
    names: Counter[str] = Counter()
    for value, own in zip(column, shown, strict=True):
        found = {
            match[1].lower().strip("_")
            for text in own
            for at, _ in places_of(text, value)
            if (match := pattern.search(text[:at].rpartition("\n")[2]))
        }
        names.update(found - STOP_WORDS)
    return names


def _look(values: Sequence[str]) -> str:
    if all(map(_VERSION.fullmatch, values)):
        return "version"
    if all(map(_FILE.fullmatch, values)):
        return "file"
    kinds = {kind_of(value) for value in values}
    return kinds.pop() if len(kinds) == 1 and not kinds & {"text", "word", "code"} else ""
