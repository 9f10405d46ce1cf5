"""A failure: which program or tool failed, and the stable part of what it printed.

Programs print much. The line that tells what went wrong is the last exception, else the first line
that a program marks as an error, else the first line with words. Numbers, paths, ids and quoted
names in it vary from time to time: they become gaps, and the values are kept apart.
"""

import re
from typing import Any, NamedTuple

import msgspec

from em.text.terms import STOP_WORDS, stems_of, words_of

LONGEST_ERROR = 160
LONGEST_READ, LONGEST_LINE = 100_000, 1_000
LOOKED_AT = 20
GAP = "…"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TAG = re.compile(r"^<([\w-]+)>|</[\w-]+>$")
_PREFIX = re.compile(r"^(?:error|exception|exit code -?\d+)\s*[:\-]\s*", re.IGNORECASE)
_EXIT_CODE = re.compile(
    r"(?:process |command )?(?:failed with )?exit(?:ed with)? (?:code|status) -?\d+[.:]?",
    re.IGNORECASE,
)
_LED_BY_CODE = re.compile(r"^exit code -?\d+:\s*", re.IGNORECASE)
_MEASURE = re.compile(r"[\w ]+:\s*(?:[\d.]+(?: \w+)?)?")
"""A line such as `Wall time: 0.5 seconds` or `Output:`, which an agent's shell adds."""
_EXCEPTION = re.compile(
    r"^(?:E\s+)?(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)\b(?: \[\w+\])?:"
)
_MARKED = re.compile(
    r"(?:^|[:\s(])(?:fatal|(?:fatal )?error)(?:\[\w+\]| \w{2,8}\d+)?:"
    r"|^npm (?:ERR!|error) |^panic:",
    re.IGNORECASE,
)
_CODE_ONLY = re.compile(r"\b(?:code|errno|syscall|path) \S+$")
_PYTEST = re.compile(r"^E\s{2,}")
_OF_ONE_TIME = re.compile(
    r"\"[^\"]*\"|(?<!\w)'[^']*'|`[^`]*`|‘[^’]*’|“[^”]*”|\b0x[0-9a-f]+\b"
    r"|(?:~|\.{1,2})?(?:/[\w.\-@+]+){2,}/?|\.{1,2}/[\w.\-@+]+|\b[\w.\-]+(?:/[\w.\-]+)+\.\w{1,5}\b"
    r"|[\w.\-+]+@[\w.\-]+|\b[\w\-]+\.(?:py|js|ts|tsx|jsx|json|ya?ml|toml|txt|md|csv|rs|go|c|h|sh|sql|lock|cfg|ini)\b"
    r"|(?<!error\[)(?<!error )#?\b\w*\d\w*(?:[-_.:]\w*\d\w*)*\b",
    re.IGNORECASE,
)
_SAYS_NOTHING = frozenset(
    stems_of(
        "error fail failed fails failure exit code status command process returned non zero exited"
        " words without".split()
    )
)
_PERSONAL = re.compile(
    r"[\w.\-+]+@[\w\-]+\.[\w.\-]+|(?<=/home/)[\w.\-]+|(?<=/Users/)[\w.\-]+|\+?\d(?:[\d \-]{5,})\d"
)


class Failure(NamedTuple):
    """What failed, and how.

    where: the program with its subcommand (`pip install`), or the tool.
    shape: the telling line with gaps. values: what stood in the gaps, "" for counts.
    line: the telling line with its values, except counts.
    """

    where: str
    shape: str
    line: str
    values: tuple[str, ...] = ()


def failure_of(where: str, printed: Any) -> Failure:
    """Return the failure of a program or tool that printed, or returned, this."""
    line = _without_prefix(error_text(printed))
    shape, values = _gapped(line)
    exact = _OF_ONE_TIME.sub(lambda found: GAP if _is_count(found[0]) else found[0], line)
    return Failure(where, shape, cut(plain(exact), LONGEST_ERROR), values)


def error_text(error: Any) -> str:
    """Return the line of an error that tells what went wrong."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error") or msgspec.json.encode(error).decode()
    text = str(error)
    if len(text) > 2 * LONGEST_READ:
        text = f"{text[:LONGEST_READ]}\n{text[-LONGEST_READ:]}"
    text = _ESCAPES.sub("", text)
    lines = _lines(text)
    if not lines:
        return "an error without words"
    lines[0] = _LED_BY_CODE.sub("", lines[0]) or lines[0]
    return _telling(lines)


def _lines(text: str) -> list[str]:
    found = (_TAG.sub("", line.strip()[:LONGEST_LINE]).strip() for line in text.splitlines())
    return ["".join(c if c.isprintable() else " " for c in line) for line in found if line]


def errors_in(printed: Any) -> frozenset[str]:
    """Return the errors that a text may tell of: lines with gaps, and as they are.

    The first and the last lines are looked at: there programs say what went wrong.
    """
    if isinstance(printed, dict):
        printed = "\n".join(str(value) for value in printed.values())
    if not isinstance(printed, str) or not printed.strip():
        return frozenset()
    looked_at = (error_text(printed), *edges_of(printed, LOOKED_AT))
    found = [failure_of("", line) for line in dict.fromkeys(looked_at)]
    return frozenset(text for one in found for text in (one.shape, one.line))


def _telling(lines: list[str]) -> str:
    chosen = _chosen(lines)
    after = lines.index(chosen) + 1
    # `… due to the following issue:` has the issue on the next line.
    return f"{chosen} {lines[after]}" if chosen.endswith(":") and after < len(lines) else chosen


def edges_of(printed: str, size: int) -> list[str]:
    """Return the first and the last lines of a text."""
    lines = _lines(_ESCAPES.sub("", printed))
    return lines if len(lines) <= 2 * size else [*lines[:size], *lines[-size:]]


def _chosen(lines: list[str]) -> str:
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    if exceptions:
        return exceptions[-1]
    marked = [line for line in lines if _MARKED.search(line)]
    if marked and len(lines) > 1:
        return next((line for line in marked if not _CODE_ONLY.search(line)), marked[0])
    if "Traceback" in lines[0]:
        return lines[-1]
    said = [
        line
        for line in lines[_header_of(lines) :]
        if re.search(r"[^\W\d_]", line)
        and not _EXIT_CODE.fullmatch(line)
        and not _MEASURE.fullmatch(line)
    ]
    return said[0] if said else lines[0]


def _header_of(lines: list[str]) -> int:
    """Return how many lines a shell tool wrote before what the program printed."""
    at = next((n for n, line in enumerate(lines[:LOOKED_AT]) if line == "Output:"), -1)
    return at + 1 if at + 1 < len(lines) else 0


def error_shape(error: Any) -> str:
    """Return the stable words of an error, with gaps for what varies."""
    return _gapped(_without_prefix(error_text(error)))[0]


def _without_prefix(line: str) -> str:
    return _PREFIX.sub("", _PYTEST.sub("", line)) or line


def _gapped(line: str) -> tuple[str, tuple[str, ...]]:
    values: list[str] = []

    def gap(found: re.Match[str]) -> str:
        values.append("" if _is_count(found[0]) else found[0].strip("\"'`‘’“”"))
        return GAP

    shape = " ".join(_OF_ONE_TIME.sub(gap, line).split())
    if not re.search(r"[^\W\d_]", shape):
        return cut(line, LONGEST_ERROR), ()
    return cut(shape, LONGEST_ERROR), tuple(values)


def _is_count(text: str) -> bool:
    """Tell whether a gap has a count, a line or a time, which identify nothing."""
    return bool(re.fullmatch(r"[\d.,:\-]+", text)) and not re.search(r"\d{5}", text)


def is_telling(shape: str) -> bool:
    """Tell whether the words of an error say more than that something failed."""
    words = [word for word in words_of(shape) if word not in STOP_WORDS and not word.isdigit()]
    return bool(frozenset(stems_of(words)) - _SAYS_NOTHING)


def plain(text: str) -> str:
    """Return a text as one line without control characters and without personal data."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return _PERSONAL.sub(GAP, " ".join(shown.split()))


def cut(text: str, size: int) -> str:
    """Shorten a text to a size."""
    return text if len(text) <= size else text[: size - 1].rstrip() + GAP
