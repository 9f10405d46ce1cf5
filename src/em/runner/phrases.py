"""Wording: how recorded requests were put together, and what of a request is put otherwise.

Small words carry no value of their own, but they say what a value is: "move M-1 to Monday" and
"move M-1 from Monday" have the same values. So a plan keeps which small words and signs stood
beside which, and behind what each value stood. It also keeps the sentences before what was asked
for: what a person tells there about themselves. No value is kept: each is called by what it is.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from em.runner.mentions import (
    FUNCTION_WORDS,
    OPERATORS,
    Span,
    Words,
    analysed,
    points_ahead,
    stem,
)
from em.runner.mood import leads
from em.runner.task_plan import Plan, Wording, asking, asking_stems
from em.runner.traits import AMONG_TRAITS, TRAITS
from em.text.courtesies import PLEASE, is_courtesy
from em.values.canonical import Json

_SIGNS = re.compile(r"[^\w\s]+|_+")
_FREE_SIGNS = frozenset((".", ",", ";", "!", "?"))
_INNER_SIGNS = frozenset((":", "(", ")"))
_START, _END, _CONTENT, _NAME = "START", "END", "WORD", "NAME"
_CODE, _NUMBER, _MAIL, _QUOTE, _RECORD = "CODE", "NUMBER", "MAIL", "QUOTE", "RECORD"
_KINDS = frozenset((_CONTENT, _CODE, _NUMBER, _MAIL, _QUOTE, _RECORD, _END))
"""What other words and the values of no slot are called; small words are in lower case."""
_THINGS = frozenset((_CONTENT, _QUOTE, _RECORD))
_JOINTS = frozenset("to via using because and for".split())
"""Small words that say what a value is for, and nothing else."""
_ROLES = _JOINTS - {"because", "and"} | frozenset("from in on of at by with into onto".split())
_OF_ALL = frozenset("of in from".split())
SILENT = PLEASE | frozenset("the a an my our thanks hi hello hey dear".split())
"""Words that change nothing wherever they stand."""
_PERSONS = frozenset("i you we".split())
_COPULAS = frozenset("am are".split())
_WHO = frozenset(("i am", "you are", "we are"))
_NAMED_SO = re.compile(rf"\b(?:am|are|this is) {_NAME}\b")
_MAILS = frozenset("e-mail email mail".split())


class Token(NamedTuple):
    """A word, a value or a sign, as far as it matters how words are put together."""

    span: Span
    text: str


def parts_of(plan: Plan, words: Words) -> tuple[list[Span], list[Span]]:
    """Return the pieces before the first effect, and the part of the words for each effect."""
    effects = plan.effects.values()
    stems = frozenset().union(*(asking_stems(tuple(one.words)) for one in effects))
    before: list[Span] = []
    parts: list[Span] = []
    for piece in words.pieces():
        plain = words.part(piece).plain()
        if any(stem(word) in stems for _, word in plain):
            parts.append(piece)
        elif parts:
            parts[-1] = Span(parts[-1].start, piece.end)
        else:
            before.append(piece)
    return before, parts


def learnt_wording(plan: Plan, requests: Iterable[tuple[str, Sequence[Json]]]) -> Wording:
    """Return how requests were worded. Each comes with the arguments of its calls."""
    turns: set[str] = set()
    talk: set[str] = set()
    verbs = {verb for effect in plan.effects.values() for verb in asking(effect)}
    for said, args in requests:
        words = analysed(said)
        before, parts = parts_of(plan, words)
        held = {word for one in args for value in one.values() for word in _words_in(value)}
        talk |= {one for span in before for one in told(words.part(span), held)}
        for span in parts:
            part = words.part(span)
            for one in args:
                pairs = ((a.text, b.text) for a, b in _pairs(part, verbs, one, ()))
                turns |= {f"{a} {b}" for a, b in pairs if not _is_free(a, b)}
    return Wording(turns=sorted(turns), talk=sorted(talk))


def unseen(
    wording: Wording,
    words: Words,
    verbs: Collection[str],
    values: Json,
    used: Iterable[Span],
    *,
    is_whole: bool = False,
) -> list[str]:
    """Return the places of a part of a request that no recorded one was worded like.

    is_whole: a word like `all` says a value; which words may stand beside it is known.
    """
    known = {*wording.turns}
    stems = {stem(verb) for verb in verbs}
    found = []
    before = _START
    for a, b in _pairs(words, verbs, values, used):
        own, value = (words.text[one.span.start : one.span.end].lower() for one in (a, b))
        names = stems | {stem(word) for word in re.findall(r"[a-z]+", b.text)}
        is_object = a.text == _CONTENT and _is_value(b.text) and stem(own) in names
        behind = {turn.partition(" ")[0] for turn in known if turn.endswith(f" {b.text}")}
        is_known = f"{a.text} {b.text}" in known or _is_free(a.text, b.text)
        is_plain = _is_plain(before, a.text, b.text, is_shown=bool(behind))
        if _is_value(b.text) and not any(char.isdigit() for char in value):
            is_plain |= a.text == "because"
            is_plain |= _is_named(before, a.text) and behind.isdisjoint(_ROLES)
        is_plain |= _is_why(before, a.text, b.text)
        is_plain |= is_whole and not _OF_ALL.isdisjoint((a.text, b.text))
        if not (is_known or is_object or is_plain):
            found.append(words.text[a.span.start : b.span.end].strip())
        before = a.text
    return found


def _is_named(before: str, a: str) -> bool:
    """Return whether a value in words may be added here: `cancel #W1, too late`."""
    return a in (",", ":") or _is_value(a) or (before == "it" and a == "is")


def _is_why(before: str, a: str, b: str) -> bool:
    return (a, b) == ("because", "it") or (before, a, b) == ("because", "it", "is")


def is_greeting(words: Words) -> bool:
    """Return whether a sentence only greets or thanks."""
    if words.codes() or words.literals or "?" in words.text or _odd_signs(words.text):
        return False
    return is_courtesy(" ".join(word for _, word in words.plain()))


def is_talk(plan: Plan, words: Words, left: Words | None = None) -> bool:
    """Return whether a sentence before a request changes nothing, or was told in a recorded one.

    It changes nothing if it is a greeting, or only says who asks, or how they are.
    left: the sentence without what reads took of it.
    """
    if "?" in words.text:
        return False
    if is_greeting(words):
        return True
    said = skeleton(words, exact=plan.form is not None)
    inputs = [name.replace("_", " ") for name in plan.inputs]
    if _NAMED_SO.search(skeleton(words if left is None else left)):
        return False  # `I am Unsure` looks as if it said a name: it counts if a read takes that
    if said in plan.wording.talk or _tells_who(said, inputs):
        return True
    claims, known = _claims(words), {*plan.wording.talk}
    traits = TRAITS if TRAITS.isdisjoint(claims) else TRAITS | AMONG_TRAITS
    return bool(claims) and all(word in traits or one in known for word, one in claims.items())


def told(words: Words, masked: Collection[str] = (), *, exact: bool = False) -> set[str]:
    """Return what a plan keeps of a sentence before a request: as a whole, and what people are.

    masked, exact: see `skeleton`.
    """
    claims = _claims(words)
    kept = {claims[word] for word in claims if word not in masked}
    return {skeleton(words, masked, exact=exact), *kept}


def identities(said: str, taken: Iterable[Any]) -> set[str]:
    """Return the sentences that only say who asks: values that reads took, and small words.

    taken: the values.
    """
    words = analysed(said)
    spans = [span for value in taken for span in words.find(value)]
    found: set[str] = set()
    for piece in words.pieces():
        own = [one for one in spans if piece.start <= one.start < piece.end]
        left = words.without(own).part(piece)
        plain = {word for _, word in left.plain()}
        is_small = plain <= FUNCTION_WORDS - OPERATORS and not (left.codes() or left.quotes())
        if own and is_small and "?" not in left.text and not points_ahead(left):
            found.add(skeleton(words.part(piece)))
    return found


def _claims(words: Words) -> dict[str, str]:
    """Return each word that people say they are, with a sentence that says only that.

    It is empty for a sentence that tells something else as well.
    """
    tokens = [one for one in tokens_of(words, {}) if one.text not in (".", "!", ",")]
    who = " ".join(one.text for one in tokens[:2])
    rest = [words.text[one.span.start : one.span.end] for one in tokens[2:] if one.text != "and"]
    is_plain = {one.text for one in tokens[2:]} <= {_CONTENT, "and"} and not words.quotes()
    if who not in _WHO or not is_plain or any(word != word.lower() for word in rest):
        return {}
    return {word: f"{who} {word}" for word in rest}


def skeleton(words: Words, masked: Collection[str] = (), *, exact: bool = False) -> str:
    """Return a sentence without names, values and moods or characters of people.

    masked: words that must not be kept. exact: all words but names are kept.
    """
    found: list[str] = []
    for number, token in enumerate(tokens_of(words, {})):
        text = token.text
        if text in (".", "!", ",", ";") or text in ("please", "the", "a", "an"):
            continue
        if text == _CONTENT:
            own = words.text[token.span.start : token.span.end]
            says_what = len(found) > 1 and found[-1] in _COPULAS and found[-2] in _PERSONS
            is_more = found[-1:] == [_CONTENT] or found[-2:] == [_CONTENT, "and"]
            is_trait = (says_what or is_more) and own in TRAITS
            if number and own != own.lower():
                text = _NAME
            elif exact:
                text = own.lower()
            elif number and not (is_trait or own in masked):
                text = "mail" if own in _MAILS else own
            elif number == 0 and own.lower() in _MAILS:
                text = "mail"
        if text == _CONTENT and found[-2:] == [_CONTENT, "and"]:
            found.pop()
        elif text not in (_CONTENT, _NAME) or found[-1:] != [text]:
            found.append(text)
    return " ".join(found)


def _tells_who(said: str, inputs: Iterable[str]) -> bool:
    """Return whether a sentence only says who asks: `i am NAME and my zip code is NUMBER`.

    inputs: what the plan calls that, which may be said by its name.
    """
    names = "|".join(sorted({"name", "mail", "mail address", "zip code", "user id", *inputs}))
    value = rf"(?:{_NAME}|{_CODE}|{_NUMBER}|{_MAIL})(?: {_NAME}| {_NUMBER})*"
    one = rf"(?:i am|you are|we are) {value}"
    one += rf"|(?:my|your|our) (?:{names}) is {value}|(?:i|you|we) live in {value}"
    return re.fullmatch(rf"(?:{one})(?: and (?:{one})| (?:{one}))*", said) is not None


def _pairs(
    words: Words, verbs: Collection[str], values: Json, used: Iterable[Span]
) -> Iterator[tuple[Token, Token]]:
    """Yield what stands side by side where that may matter."""
    marks = dict.fromkeys(used, _CONTENT)
    for name, value in values.items():
        if not isinstance(value, dict | list | bool | None):
            marks |= dict.fromkeys(words.find(value), f"<{name}>")
    skipped = leads(words.text, verbs)
    tokens = [
        one
        for one in tokens_of(words, marks)
        if one.text not in SILENT
        and not any(span.start <= one.span.start < span.end for span in skipped)
    ]
    start = Token(Span(0, 0), _START)
    end = Token(Span(len(words.text), len(words.text)), _END)
    return pairwise([start, *tokens, end])


def _is_plain(before: str, a: str, b: str, *, is_shown: bool) -> bool:
    """Return whether two things say the same in any request, though none was worded so.

    before: what stands before them. is_shown: recorded requests showed what may stand before `b`.
    """
    if b in _JOINTS:
        begins = b == "for" and a in (_START, ":")
        return a in _THINGS or _is_value(a) or begins or a in _FREE_SIGNS
    if a == "and":
        return b in _THINGS
    if a == "for":
        return before in (_START, ":", ",", _MAIL) and _is_value(b)
    return (
        a in _JOINTS
        and a != "because"
        and not is_shown
        and (_is_value(b) or (a == "to" and b == _RECORD))
    )


def _is_free(a: str, b: str) -> bool:
    """Return whether two things may stand side by side in any request."""
    if a == _START:
        return b in _KINDS
    plain = _KINDS | _FREE_SIGNS | _INNER_SIGNS
    return (a in plain or _is_value(a)) and b in plain


def _is_value(text: str) -> bool:
    return len(text) > len("<>") and text[0] == "<" and text[-1] == ">"


def tokens_of(words: Words, marks: Mapping[Span, str]) -> list[Token]:
    """Return the words, values and signs of a text in their order."""
    found = [Token(span, text) for span, text in marks.items()]
    found += [Token(one.span, _RECORD) for one in words.literals]
    found += [Token(span, _QUOTE) for span, _ in words.quotes()]
    found += [Token(span, _kind(text)) for span, text in words.codes()]
    for span, word in words.plain():
        is_small = word in FUNCTION_WORDS and word not in OPERATORS
        found.append(Token(span, word if is_small else _CONTENT))
    found += [Token(Span(*one.span()), one.group()) for one in _SIGNS.finditer(words.text)]
    taken: list[Token] = []
    for token in found:
        if not any(t.span.start < token.span.end and token.span.start < t.span.end for t in taken):
            taken.append(token)
    return sorted(taken)


def _kind(code: str) -> str:
    return _MAIL if "@" in code else _NUMBER if code[0].isdigit() else _CODE


def _odd_signs(text: str) -> bool:
    return any(one not in _FREE_SIGNS for one in _SIGNS.findall(text))


def _words_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (word for _, word in analysed(value).plain())
        yield from re.findall(r"[^\W\d_]+", value.lower())
    elif isinstance(value, list):
        for one in value:
            yield from _words_in(one)
    elif isinstance(value, dict):
        yield from _words_in([*value.values()])
