"""Quoting: which language a text is in, and how a value must stand there.

Where a value stands in an address, a JSON text, an SQL statement or a command, the language says
how it is quoted, whether or not the recorded value needed it. Parsers tell the languages, no words.
"""

import re
import shlex
import sqlite3

from em.compiler.forms import QUERY, SHELL, SQL, URL, applied
from em.values.structure import structured

_IN_ADDRESS = re.compile(r"\w://[^\s\"'<>]*$")
_OPTION = re.compile(r"(?:^|\s)--?[A-Za-z]|&&|\|\||\$\(")


def quotings(before: str, written: str, after: str) -> tuple[str, ...]:
    """Return the forms of a text value that the language around it asks for; () if it is prose."""
    if _IN_ADDRESS.search(before):
        found: tuple[str, ...] = (URL, QUERY)
    elif is_inside(before, after, "'") and is_statement(before + written + after):
        found = (SQL,)
    elif is_command(before + written + after) and not is_quoted(before, after):
        found = (SHELL,)
    else:
        found = ()
    return tuple(form for form in found if applied(form, written) == written)


def is_json(text: str) -> bool:
    """Return whether a text is a JSON record or list."""
    return text.strip()[:1] in ("{", "[") and isinstance(structured(text), dict | list)


def is_statement(text: str) -> bool:
    """Return whether a text is a statement of SQL: its syntax is right, whatever it names."""
    base = sqlite3.connect(":memory:")
    try:
        base.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
        base.execute(f"EXPLAIN {text}")
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return re.search(r"no such|not authorized|prohibited", str(error)) is not None
    finally:
        base.close()
    return True


def is_command(text: str) -> bool:
    """Return whether a text reads as a command: words with options or operators, on one line."""
    if "\n" in text.strip() or not _OPTION.search(text):
        return False
    try:
        return len(shlex.split(text)) > 1
    except ValueError:
        return False


def is_inside(before: str, after: str, sign: str) -> bool:
    """Return whether a position stands between two quotes. An apostrophe in a word is none."""
    line = before.rpartition("\n")[2]
    times = len(re.findall(rf"(?<![^\W\d_]){sign}|{sign}(?![^\W\d_])", line))
    return times % 2 == 1 and sign in after


def is_quoted(before: str, after: str) -> bool:
    """Return whether a position stands in quotes of any kind."""
    return any(is_inside(before, after, sign) for sign in "\"'`")
