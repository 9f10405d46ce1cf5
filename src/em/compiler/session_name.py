"""Session name: what sessions of one kind are called, by the words of their requests.

Words that many of the requests say are what they ask for; those that also stand in what every
session changed or ran are what they are about. The word before such a thing, wherever it is said,
is what is done with it: `bump_version`, whatever courtesies stand around. A word of a single
recording may be somebody's name, so one recording gives none.
"""

from collections import Counter
from collections.abc import Sequence

from em.compiler.calls import TracedCall
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.leaves import texts

MOST_THINGS = 2
"""Words for what sessions are about."""
LONGEST_REQUEST = 1_000


def name_in_words(requests: Sequence[str], effects: Sequence[Sequence[TracedCall]]) -> str:
    """Return the words of a name; empty if the requests have no word in common.

    effects: what each session changed or ran.
    """
    said = [_by_stem(asking_words(one)) for one in requests]
    counts = Counter(stem for own in said for stem in own)
    in_effects = [_stems(effect) for effect in effects]
    every = frozenset.intersection(*in_effects) if in_effects else frozenset()
    often = sorted((one for one in counts if counts[one] > 1), key=lambda one: -counts[one])
    about = sorted((one for one in counts if one in every), key=lambda one: -counts[one])
    if len(requests) < 2 or not often:
        return ""
    best = about or often
    things = [one for one in best[:MOST_THINGS] if 2 * counts[one] >= counts[best[0]]]
    before = Counter[str]()
    for own in said:
        stems = [*own]
        at = next((number for number, stem in enumerate(stems) if stem in things), 0)
        before.update(stems[at - 1 : at])
    others = [one for one in often if one not in things]
    usual = [one for one in others if counts[one] >= counts[things[0]]] if about else []
    lead = next((one for one in others if one in before), "".join(usual[:1]))
    # In the order of the request that has the most of them.
    most = max(said, key=lambda own: sum(one in own for one in things))
    ordered = [*(one for one in most if one in things), *(one for one in things if one not in most)]
    shown = {stem: word for own in reversed(said) for stem, word in own.items()}
    return " ".join(shown[stem] for stem in ([lead] if lead else []) + ordered)


def asking_words(request: str) -> list[str]:
    """Return the words of a request that say what to do: no values, and no names."""
    found: dict[str, None] = {}
    is_start = True
    for token in request[:LONGEST_REQUEST].split():
        word = token.strip(",.;:!?()")
        is_plain = word.isascii() and word.isalpha() and len(word) > 1
        is_known = word.islower() or word.isupper() or (is_start and word[1:].islower())
        if is_plain and is_known and word.lower() not in STOP_WORDS:
            found[word.lower()] = None
        is_start = token.endswith((".", "!", "?", ":"))
    return [*found]


def _by_stem(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for stem, word in zip(stems_of(words), words, strict=True):
        found.setdefault(stem, word)
    return found


def _stems(calls: Sequence[TracedCall]) -> frozenset[str]:
    found = (text for call in calls for text in (call.title, *texts(call.args)))
    return frozenset(stem for text in found for stem in stems_of(words_of(text.replace("_", " "))))
