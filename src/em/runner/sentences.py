"""Sentences: whether a recorded request told what a request in free words says.

The sentences that ask for something or have a value must be those of one recorded request, with all
their words in this order: `block card <card_id> and order new one`. Parts of several requests are
not put together, since each may say elsewhere what another one says here. A sentence that has no
value and asks for nothing must have been told in some request. Only greetings, thanks, and what
asks for a verb (`Please`, `Could you`, `I want to`) may differ.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from em.runner.mentions import FUNCTION_WORDS, Span, Words, analysed
from em.runner.mood import leads, requests
from em.runner.phrases import SILENT, is_greeting, is_talk, tokens_of, told
from em.runner.task_plan import Plan, Wording, asking
from em.text.courtesies import courtesies

SEVERAL = 2
"""Traces that must have had a value or a word before others see it."""
_BREAK = "|"
_HURRY = frozenset("now immediately promptly quickly swiftly urgently asap".split())
_ENDING_SIGNS = frozenset((".", "!", ";"))


class Request(NamedTuple):
    """A request in free words: its sentences, and the name of the value that stands at a place."""

    text: str
    pieces: Sequence[Span]
    marks: Mapping[Span, str]


def learnt_sentences(plan: Plan, recorded: Iterable[Request]) -> Wording:
    """Return what the sentences of recorded requests told, without their values."""
    turns: list[str] = []
    talk: set[str] = set()
    for request in recorded:
        own, others, _ = _read(plan, request)
        for part in others:
            talk |= told(part, exact=True)
        if own and not any(word.isupper() for word in own.split()):
            turns.append(own)
    words = Counter(word for turn in turns for word in {*_words_of(turn)})
    rare = {word for word, n in words.items() if n < SEVERAL} - FUNCTION_WORDS
    once = {turn for turn in turns if not rare.isdisjoint(_words_of(turn))}
    return Wording(turns=sorted({*turns}), talk=sorted(talk), once=sorted(once))


def untold(plan: Plan, request: Request, given: Collection[str] = ()) -> str:
    """Return the first part of a request that no recorded one told, without its values.

    It is empty if there is none. given: marks of values that are given by name. They may be left
    out with the words beside them.
    """
    known = {*plan.wording.turns}
    for name in given:
        known |= {_without(turn, name) for turn in known}
    own, talk, shown = _read(plan, request)
    for part in talk:
        if not is_talk(plan, part):
            return " ".join(part.text.split())
    return "" if own in known else shown or request.text


def words_in(wording: Wording) -> set[str]:
    """Return the words that stood beside values."""
    return {word for turn in wording.turns for word in _words_of(turn)}


def _words_of(turn: str) -> list[str]:
    """Return the words of a turn, without values and signs."""
    return [word for word in turn.split(" ") if word[:1].isalnum()]


def _without(turn: str, value: str) -> str:
    """Return a turn without a value and the words beside it, up to the values next to it.

    Before the first value stands what is asked for, which is not left out.
    """
    words = turn.split(" ")
    edges = [n for n, word in enumerate(words) if _is_mark(word) or word == _BREAK]
    for before, at, behind in zip(edges, edges[1:], [*edges[2:], len(words)], strict=False):
        if _name_of(words[at]) == value and words[before] != _BREAK:
            return " ".join([*words[: before + 1], *words[behind:]])
    return turn


def _is_mark(word: str) -> bool:
    return len(word) > len("<>") and word[0] == "<" and word[-1] == ">"


def _name_of(mark: str) -> str:
    """Return a mark without the unit of its number."""
    return re.sub(r":[^>]*>$", ">", mark)


def _read(plan: Plan, request: Request) -> tuple[str, list[Words], str]:
    """Return the sentences that ask or have a value as one turn, the others, and the first ones.

    The last is the text of those that ask or have a value, as it stands, without the values.
    """
    turns: list[str] = []
    talk: list[Words] = []
    shown: list[str] = []
    for part, turn, marks in _sentences(plan, request):
        if turn is None:
            talk.append(part)
            continue
        text = part.text
        for span, mark in sorted(marks.items(), reverse=True):
            text = text[: span.start] + mark + text[span.end :]
        turns.append(turn)
        shown += text.split()
    return f" {_BREAK} ".join(turns), talk, " ".join(shown)


def _sentences(
    plan: Plan, request: Request
) -> Iterator[tuple[Words, str | None, Mapping[Span, str]]]:
    """Yield the sentences with their turn and the places of their values.

    The turn is None if a sentence has no value and asks for nothing.
    """
    effects = [one for one in plan.effects.values() if not one.reads]
    verbs = {verb for effect in effects for verb in asking(effect)}
    for piece in request.pieces:
        part = analysed(request.text).part(piece)
        marks = {
            Span(span.start - piece.start, span.end - piece.start): name
            for span, name in request.marks.items()
            if piece.start <= span.start < piece.end
        }
        if is_greeting(part) and not marks:
            continue
        is_asked = bool(requests(part.text, verbs))
        has_turn = bool(marks) or is_asked
        turn = _turn(part, verbs, marks, is_asked=is_asked) if has_turn else None
        yield part, turn, marks


def _turn(
    words: Words, verbs: Collection[str], marks: Mapping[Span, str], *, is_asked: bool
) -> str:
    """Return the words, signs and marks of a sentence, without courtesies and what asks for it."""
    skipped = [*leads(words.text, verbs), *(Span(*one) for one in courtesies(words.text))]
    plain = dict(words.plain())
    said: list[str] = []
    for span, text in tokens_of(words, marks):
        if any(one.start <= span.start < one.end for one in skipped):
            continue
        word = text if span in marks else plain.get(span, text)
        if word not in SILENT | _HURRY and not (word == "," and said[-1:] in ([], [","])):
            said.append(word)
    endings = _ENDING_SIGNS | ({"?"} if is_asked else set()) | {","}
    while said and said[-1] in endings:
        said.pop()
    return " ".join(said)
