"""Sentences: whether recorded requests told what a request in free words says.

A sentence is taken apart at its values. What stands before, between and behind them must have
stood so in a recorded request, as a whole and in this order: `block card <card_id>`, `<card_id> for
me`. A sentence that has no value and asks for nothing must have been told in one. Only greetings,
thanks, and what asks for a verb (`Please`, `Could you`, `I want to`) may differ.
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
_START, _END = "START", "END"
_HURRY = frozenset("immediately promptly quickly swiftly urgently asap".split())
_ENDING_SIGNS = frozenset((".", "!", ";"))


class Request(NamedTuple):
    """A request in free words: its sentences, and the name of the value that stands at a place."""

    text: str
    pieces: Sequence[Span]
    marks: Mapping[Span, str]


def learnt_sentences(plan: Plan, recorded: Iterable[Request]) -> Wording:
    """Return what the sentences of recorded requests told, without their values."""
    said: dict[str, set[int]] = {}
    words: Counter[str] = Counter()
    talk: set[str] = set()
    for number, request in enumerate(recorded):
        own: set[str] = set()
        for part, turns, _ in _sentences(plan, request):
            if turns is None:
                talk |= told(part, exact=True)
            elif not any(word.isupper() for turn in turns for word in _inner(turn)):
                own |= {*turns}
        for turn in own:
            said.setdefault(turn, set()).add(number)
        words.update({word for turn in own for word in _inner(turn)})
    rare = {word for word, n in words.items() if n < SEVERAL and word[0].isalnum()}
    rare -= FUNCTION_WORDS
    once = [turn for turn in said if not rare.isdisjoint(_inner(turn))]
    return Wording(turns=sorted(said), talk=sorted(talk), once=sorted(once))


def untold(plan: Plan, request: Request, given: Collection[str] = ()) -> str:
    """Return the first sentence that no recorded request told, without its values.

    It is empty if there is none.
    given: marks of values that are given by name. They may be left out with the words beside them.
    """
    known = {*plan.wording.turns}
    for name in given:
        known |= _left_out(known, name)
    for part, turns, marks in _sentences(plan, request):
        is_told = is_talk(plan, part) if turns is None else known.issuperset(turns)
        if not is_told:
            text = part.text
            for span, mark in sorted(marks.items(), reverse=True):
                text = text[: span.start] + mark + text[span.end :]
            return " ".join(text.split())
    return ""


def words_in(wording: Wording) -> set[str]:
    """Return the words that stood beside values."""
    return {word for turn in wording.turns for word in _inner(turn)}


def _inner(turn: str) -> list[str]:
    """Return the words of a turn, without the values and edges that it stands between."""
    return turn.split(" ")[1:-1]


def _left_out(turns: Iterable[str], value: str) -> set[str]:
    """Return what stands side by side if a value is left out with the words beside it."""
    ends = [(one.split(" ")[0], one.split(" ")[-1]) for one in turns]
    before = {first for first, last in ends if _name_of(last) == value}
    behind = {last for first, last in ends if _name_of(first) == value}
    return {f"{one} {other}" for one in before - {_START} for other in behind}


def _name_of(mark: str) -> str:
    """Return a mark without the unit of its number."""
    return re.sub(r":[^>]*>$", ">", mark)


def _sentences(
    plan: Plan, request: Request
) -> Iterator[tuple[Words, list[str] | None, Mapping[Span, str]]]:
    """Yield the sentences with their turns and the places of their values.

    The turns are None if a sentence has no value and asks for nothing.
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
        has_turns = bool(marks) or is_asked
        turns = _turns(part, verbs, marks, is_asked=is_asked) if has_turns else None
        yield part, turns, marks


def _turns(
    words: Words, verbs: Collection[str], marks: Mapping[Span, str], *, is_asked: bool
) -> list[str]:
    """Return what stands before, between and behind the values of a sentence."""
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
    found, last = [], [_START]
    for word in said:
        last.append(word)
        if len(word) > len("<>") and word[0] == "<" and word[-1] == ">":
            found.append(" ".join(last))
            last = [word]
    return [*found, " ".join([*last, _END])]
