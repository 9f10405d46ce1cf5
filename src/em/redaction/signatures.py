"""Secrets that are known by their form, or by what stands around them: rows of `signatures.tsv`."""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from em.redaction.view import QUOTES

_EDGE = r"(?:^|[^A-Za-z0-9])"
_USUAL_TAIL = r"[\w-]{16,}"


class Signature(NamedTuple):
    """One form of secrets. The file says what the fields are.

    anchors: short patterns in lower case, one of which matches wherever the signature does, in the
    text itself and in its JSON; a text without any anchor is clean.
    begins: what each anchor begins with, without repetition, so that one automaton can look for
    those of all signatures; empty if an anchor has repetition itself.
    """

    name: str
    anchors: str
    begins: str
    pattern: str
    form: str
    examples: tuple[str, ...]
    source: str


@lru_cache(maxsize=1)
def signatures() -> tuple[Signature, ...]:
    """Return the rows of the file."""
    path = Path(__file__).with_name("signatures.tsv")
    rows = path.read_text(encoding="utf-8").splitlines()
    return tuple(_row(row) for row in rows if row and not row.startswith("#"))


def _row(row: str) -> Signature:
    name, anchors, pattern, form, examples, source = row.split("\t")
    known = tuple(one.replace("⏎", "\n") for one in examples.split(" ¦ "))
    if form != "key":
        pattern = pattern.replace("{EDGE}", _EDGE).replace("{Q}", f"[{QUOTES}]")
        pattern = pattern.replace("{S}", rf"(?:[ \t]+|[{QUOTES}],[ \t]*[{QUOTES}])")
        pattern = pattern.replace("{q}", QUOTES)
        words = "" if re.search(r"[*+{]", anchors) else anchors
        return Signature(name, anchors, words, pattern, form.strip("-"), known, source)
    body = pattern or _USUAL_TAIL
    end = r"(?:[^\w-]|\z)" if body.endswith("$") else ""
    begins = [begin.replace(".", r"\.") for begin in anchors.split()]
    pattern = f"{_EDGE}(?P<secret>(?:{'|'.join(begins)}){body.removesuffix('$')}){end}"
    sign = body[: body.index("{")] if body[0] == "[" else r"\w"
    anchors = " ".join(f"(?-i:{begin}{sign}{{4}})" for begin in begins)
    words = " ".join(f"(?-i:{begin})" for begin in begins)
    return Signature(name, anchors, words, pattern, "", known, source)
