"""A failure: the line of an error that tells what went wrong, without the values of its session.

Quoted text, paths, addresses and whatever has a digit vary from time to time, and so does what the
call was given. All that becomes a gap: a lesson may say what failed, and never about whom.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from em.compiler.calls import TracedCall
from em.text.terms import words_of
from em.traces.trace import ToolCall, Trace, UdfCall
from em.values.leaves import leaves, mentioned_in, texts

LONGEST_ERROR = 160
LONGEST_LINE = 1_000
LONGEST_READ = 100_000
LOOKED_AT = 20
"""First and last lines of what was printed, in which an error may stand."""
GAP = "…"
_MARKS = ".,;:!?()[]{}\"'"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'|`[^`]*`|‘[^’]*’|“[^”]*”")
_OF_ONE_TIME = re.compile(r"[\d/\\@]|\w\.\w")
"""What a word has that is a number, a path, an address, or the name of a file."""


def error_text(error: Any) -> str:
    """Return the line of an error that tells what went wrong: of a traceback the last one."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error") or msgspec.json.encode(error).decode()
    lines = _lines(str(error))
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


def error_shape(error: Any, values: Iterable[str] = (), names: Collection[str] = ()) -> str:
    """Return the words of an error with gaps for what varies.

    values: what the call was given. names: words of the session that may be names of its people.
    """
    line = _QUOTED.sub(GAP, error_text(error))
    for value in sorted(set(values), key=len, reverse=True):
        line = _without(line, value)
    words: list[str] = []
    for word in line.split():
        bare = word.strip(_MARKS)
        is_value = GAP in word or _OF_ONE_TIME.search(bare) or bare in names
        if not is_value:
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


def shape_of_call(call: TracedCall, names: Collection[str] = ()) -> str:
    """Return the words of a call's error without what the call was given."""
    return error_shape(call.error, (str(leaf) for _, leaf in leaves(call.args)), names)


def names_in(trace: Trace) -> frozenset[str]:
    """Return the words of a session's data that are written like names of people and places.

    A word that is also said in small letters, or that is part of a tool's name, is none.
    """
    said, data = [trace.mission.goal], [*texts(trace.mission.input_summary)]
    tools: set[str] = set()
    for event in trace.events:
        if isinstance(event, ToolCall | UdfCall):
            data += [*texts(event.args), *texts(event.result, names=True)]
            tools |= set(words_of(event.tool if isinstance(event, ToolCall) else event.function))
        else:
            said += texts(msgspec.to_builtins(event))
    words = {word for text in said for word in _bare_words(text)}
    names = {word for text in (*said, *data) for word in _bare_words(text) if word.istitle()}
    return frozenset(word for word in names if word.lower() not in words | tools)


def _bare_words(text: str) -> Iterator[str]:
    return (word.strip(_MARKS) for word in text[:LONGEST_READ].split())


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
