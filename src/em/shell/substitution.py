"""Substitutions of sed: `s/1.2.3/1.2.4/` as two values.

A program text is recorded or nothing, with this exception: it is how agents change a version or a
name in a file. Both texts must be plain; where they are filled in, every sign that sed would read
as something else is escaped, so they stay plain.
"""

import re
from typing import NamedTuple

_WHOLE = re.compile(
    r"s([/|#,])((?:\\[^\n]|(?!\1)[^\\\n])+)\1((?:\\[^\n]|(?!\1)[^\\\n])*)\1([gI0-9]*)"
)
_SPECIAL = frozenset(".[*^$+?(){}|")
"""Signs with a meaning in a basic or an extended regular expression."""


class Substitution(NamedTuple):
    """A substitution: the texts as sed has them, and as plain texts where they are plain."""

    delimiter: str
    old: str
    new: str
    flags: str

    @property
    def plain_old(self) -> str | None:
        """The text that is replaced; None if it is a pattern. A dot counts as a dot."""
        # What is escaped, or alone in brackets, is itself.
        text = re.sub(r"\\([./|#,^\\-])|\[([^\]\\^])\]", "\0", self.old)
        if "\\" in text or not _SPECIAL.isdisjoint(text.replace(".", "")):
            return None
        return re.sub(r"\\([./|#,^\\-])|\[([^\]\\^])\]", lambda one: one[1] or one[2], self.old)

    @property
    def plain_new(self) -> str | None:
        """The text that replaces it; None if it repeats what was found."""
        text = re.sub(r"\\([./|#,&-])", lambda found: f"\0{found[1]}", self.new)
        if "\\" in text or re.search(r"(?<!\0)&", text) or not text:
            return None
        return text.replace("\0", "")


def substitution_of(code: str) -> Substitution | None:
    """Return the one substitution that a program text of sed is; None if it is another one."""
    found = _WHOLE.fullmatch(code)
    return None if found is None else Substitution(*found.groups())


def escaped_old(text: str) -> str:
    """Return a regular expression that matches exactly a text, with the delimiter `/`."""
    return "".join(_escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    if sign in "\\^/":
        return f"\\{sign}"
    return f"[{sign}]" if sign in _SPECIAL else sign


def escaped_new(text: str) -> str:
    """Return a replacement that is exactly a text, with the delimiter `/`."""
    return re.sub(r"([\\&/])", r"\\\1", text)
