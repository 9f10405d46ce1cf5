"""Description: what a routine is asked for, in the words that several recorded requests share.

A word that only one person's requests have may be personal, and it does not say what all of them
are about. It becomes a gap: `bump … to {version} and tag the release`.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Sequence

from em.compiler.request_templates import FEWEST_SUBJECTS
from em.runner.template import fill, parse_template
from em.values.canonical import Json

MOST_WORDS = 40
"""Words of a description."""
GAP = "…"
_HOLE = re.compile(r"\{([A-Za-z_][\w.]*)(?::[^{}]*)?\}")
_OWN = re.compile(r"\{\{|\}\}|\{\w*=[^{}]*\}")
"""Matches what a template has that is neither a word nor a hole."""
_AROUND = ".,;:!?\"'()`"


def described(document: Json, said: Sequence[tuple[str, str]]) -> Json:
    """Return a routine with a description, if its recorded requests have words in common.

    said: each request, with who asked, or with its task where that is not known.
    """
    askers: dict[str, set[str]] = defaultdict(set)
    for request, asker in said:
        for chunk in request.split():
            askers[_bare(chunk)].add(asker)
    shared = {word for word, own in askers.items() if word and len(own) >= FEWEST_SUBJECTS}
    templates = [one for one in document.get("requests", ()) if not parse_template(one).digest]
    schema = document["input_schema"]
    # A request that no template fits says its values as words of its own.
    others = [one for one, _ in said if fill(templates, one, schema) is None]
    wordings = [_shown(one, shared) for one in [*templates, *others]]
    best = max(wordings, key=_worth, default=[])
    if "description" in document or all(one == GAP or _HOLE.search(one) for one in best):
        return document
    text = " ".join(best[:MOST_WORDS])
    head = {name: document[name] for name in ("version", "name")}
    return {**head, "description": text[:1].upper() + text[1:], **document}


def _bare(chunk: str) -> str:
    return chunk.strip(_AROUND).casefold()


def _shown(text: str, shared: Collection[str]) -> list[str]:
    """Return the words and holes of a wording; one gap for words in a row that are not shared."""
    found: list[str] = []
    for chunk in _OWN.sub(" ", text).split():
        is_shown = _HOLE.search(chunk) is not None or _bare(chunk) in shared
        word = _HOLE.sub(r"{\1}", chunk) if is_shown else GAP
        if word != GAP or found[-1:] != [GAP]:
            found.append(word)
    return found


def _worth(wording: Sequence[str]) -> tuple[int, int]:
    """Return how much a wording says: its inputs, and its words without those that it lacks."""
    holes = {hole for word in wording for hole in _HOLE.findall(word)}
    words = [word for word in wording if word != GAP]
    return len(holes), len(words) - wording.count(GAP)
