"""A failure: the line of an error that tells what went wrong, without the values of its session.

Quoted text, paths, addresses, names and whatever has a digit vary from time to time, and so do the
words of the session's values. All that becomes a gap: a lesson may say what failed, and never about
whom.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.calls import words_of as name_words
from em.text.terms import words_of
from em.traces.trace import Message, Trace
from em.values.leaves import leaves, mentioned_in, texts

LONGEST_ERROR = 160
LONGEST_VALUE = 40
"""Characters of a text that is a value, and not prose."""
LONGEST_LINE = 1_000
LONGEST_READ = 100_000
LOOKED_AT = 20
"""First and last lines of what was printed, in which an error may stand."""
GAP = "…"
_MARKS = ".,;:!?()[]{}\"'"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STATUS = re.compile(r"\s*exit code -?\d+:?", re.IGNORECASE)
"""How a program ended, before what it printed."""
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'|`[^`]*`|‘[^’]*’|“[^”]*”")
_OF_ONE_TIME = re.compile(r"[\d/\\@=]|\w[.:]\w")
"""What a word has that is a number, a path, an address, the name of a file, or has a value."""


def error_text(error: Any) -> str:
    """Return the line of an error that tells what went wrong: of a traceback the last one."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error") or msgspec.json.encode(error).decode()
    text = str(error)
    status = _STATUS.match(text)
    lines = (_lines(text[status.end() :]) if status else []) or _lines(text)
    if not lines:
        return "an error without words"
    told = lines[-1] if lines[0].startswith("Traceback") else _first_in_words(lines)
    name, colon, rest = told.partition(": ")
    if colon and name.lower() == "error":
        return rest
    # The name of an exception, without its package.
    is_dotted = colon and "." in name and name.replace(".", "").isidentifier()
    return f"{name.rpartition('.')[2]}: {rest}" if is_dotted else told


def _first_in_words(lines: list[str]) -> str:
    return next((line for line in lines if any(map(str.isalpha, line))), lines[0])


def _lines(text: str) -> list[str]:
    if len(text) > 2 * LONGEST_READ:
        text = f"{text[:LONGEST_READ]}\n{text[-LONGEST_READ:]}"
    found = (line.strip()[:LONGEST_LINE] for line in _ESCAPES.sub("", text).splitlines())
    return ["".join(c if c.isprintable() else " " for c in line) for line in found if line]


class SessionWords(NamedTuple):
    """The words of a session: those that may be data, and those that its tools are named with.

    data: words of short values, and of names of people and places. names: words of the names of
    tools and their arguments. ids: what stands for one thing, as it is written.
    """

    data: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    def is_value(self, word: str, at: int) -> bool:
        """Tell whether a word of an error may be a value. at: how many words stand before it."""
        bare = word.strip(_MARKS)
        parts = set(words_of(bare))
        if GAP in word or (parts and parts <= self.names):
            return GAP in word
        # Within a line a capital letter begins a name, unless all letters are capital.
        is_named = at > 0 and bare != bare.lower() and not bare.isupper()
        return is_named or bool(_OF_ONE_TIME.search(bare)) or not parts.isdisjoint(self.data)

    def is_quoted(self, text: str) -> bool:
        """Tell whether a text in own words has an id, a path or a name of the session."""
        return not self.ids.isdisjoint(_bare_words(text))


_UNKNOWN = SessionWords()


def session_of(trace: Trace, calls: Sequence[TracedCall]) -> SessionWords:
    """Return the words of a session, of which lessons tell names and never data."""
    said = [trace.mission.goal, *(one.text for one in trace.events if isinstance(one, Message))]
    given = [
        trace.mission.input_summary,
        *(part for one in calls for part in (one.args, one.result)),
    ]
    data = [text for value in given for text in texts(value, names=True)]
    names = {part for call in calls for one in (call.name, *call.args) for part in parts_of(one)}
    small = {word for text in said for word in _bare_words(text)}
    words = {word for text in (*said, *data) for word in _bare_words(text)}
    people = {word for word in words if word.istitle() and word.lower() not in small | names}
    values = (text for value in given for text in texts(value) if len(text) <= LONGEST_VALUE)
    short = {part for text in values for part in words_of(text)}
    return SessionWords(
        data=frozenset(part for part in short | {*map(str.lower, people)} if len(part) > 1),
        names=frozenset(names),
        ids=frozenset(people | {word for word in words if _OF_ONE_TIME.search(word)}),
    )


def parts_of(name: str) -> set[str]:
    """Return the words of a name, which `getOrder` and `get_order` have alike."""
    return {*words_of(name), *name_words(name)}


def _bare_words(text: str) -> Iterator[str]:
    return (word.strip(_MARKS) for word in text[:LONGEST_READ].split())


def error_shape(error: Any, values: Iterable[str] = (), session: SessionWords = _UNKNOWN) -> str:
    """Return the words of an error with gaps for what varies. values: what the call was given."""
    line = _QUOTED.sub(GAP, error_text(error))
    for value in sorted(set(values), key=len, reverse=True):
        line = _without(line, value)
    words: list[str] = []
    for at, word in enumerate(line.split()):
        if not session.is_value(word, at):
            words.append(word)
        elif words[-1:] != [GAP]:
            words.append(GAP)
    return cut(" ".join(words), LONGEST_ERROR)


def _without(line: str, value: str) -> str:
    at = line.casefold().find(value.casefold()) if mentioned_in(value, line) else -1
    # Lower case may be longer than upper case in some scripts: then the line is left as it is.
    if at < 0 or len(line) != len(line.casefold()):
        return line
    return _without(f"{line[:at]}{GAP}{line[at + len(value) :]}", value)


def shape_of_call(call: TracedCall, session: SessionWords) -> str:
    """Return the words of a call's error without the data of its session."""
    return error_shape(call.error, (str(leaf) for _, leaf in leaves(call.args)), session)


def is_telling(shape: str) -> bool:
    """Tell whether an error has words at all, by which it is known again."""
    return any(len(word) > 2 for word in words_of(shape.replace(GAP, " ")))


def fits(shape: str, printed: Any) -> bool:
    """Tell whether a text that was printed may tell of this error: its words stand in one line."""
    if not is_telling(shape):
        return False
    text = "\n".join(texts(printed)) if isinstance(printed, dict) else str(printed)
    lines = _lines(text)
    near = lines if len(lines) <= 2 * LOOKED_AT else [*lines[:LOOKED_AT], *lines[-LOOKED_AT:]]
    pieces = [piece.strip() for piece in shape.split(GAP) if piece.strip()]
    return any(_in_order(pieces, line) for line in near)


def _in_order(pieces: list[str], line: str) -> bool:
    at = 0
    for piece in pieces:
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def plain(text: str) -> str:
    """Return a text as one line without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def cut(text: str, size: int) -> str:
    """Shorten a text to a size."""
    return text if len(text) <= size else text[: size - 1].rstrip() + GAP
