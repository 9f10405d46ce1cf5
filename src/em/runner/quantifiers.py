"""Quantifiers: `all`, `everything`, `all except …`, `the others`, and the records they mean.

Such words change what others ask for, so they are read only where traces showed what they mean,
and only beside words that can't restrict them: `all items I got for him` is not all items.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from em.runner.candidates import mentions_of, the_one_meant
from em.runner.mentions import FUNCTION_WORDS, Span, Words, analysed, stem
from em.runner.task_plan import Effect, Unplanned, asking_stems
from em.values.canonical import short

_WHOLE = frozenset("all every everything".split())
_BUT = frozenset("except excluding but".split())
_REST = frozenset("other others rest remaining".split())
_OPERATORS = _WHOLE | _BUT | _REST
_OF = frozenset("of the my our".split())
_BEHIND = frozenset("in from to via using please because".split())
_PLAIN = _OF | _BEHIND | frozenset("for and kindly thanks thank you".split())
"""Words that may stand behind the verb without restricting what is meant."""

Pair = tuple[Any, Any]
"""A value of a list, and the record that holds it."""


class Quantity(NamedTuple):
    """Which of a list is meant. phrase: the words that say it, as `all except`."""

    phrase: str
    pairs: Sequence[Pair]
    used: Sequence[Span]


def quantified(
    words: Words, pairs: Sequence[Pair], name: str, elsewhere: Callable[[], Sequence[Pair]]
) -> Quantity | None:
    """Return which values of a list a part of a request means by its quantifiers, if it has any.

    name: what the values are called. elsewhere: returns those that the rest of the request names.
    Raises Unplanned if it is not clear.
    """
    said = [(span, word) for span, word in words.plain() if word in _OPERATORS]
    if not said:
        return None
    kinds = [next(k for k in (_WHOLE, _BUT, _REST) if word in k) for _, word in said]
    named = mentions_of(words, pairs)
    used = [span for span, _ in said]
    phrase = " ".join(word for _, word in said)
    if len({short(value) for value, _ in pairs}) < len(pairs):
        raise Unplanned(f"{name}: the list has one of them twice, so {phrase!r} is not clear")
    if _REST not in kinds and elsewhere():
        raise Unplanned(f"{name}: the words say {phrase!r}, and name some of them elsewhere")
    if kinds == [_WHOLE] and not named:
        left: Sequence[Pair] = []
    elif kinds == [_WHOLE, _BUT] and named and used[1].end <= named[0][0].start:
        left, more = _excepted(words, named)
        used += more
    elif kinds in ([_REST], [_WHOLE, _REST]) and not named:
        left = elsewhere()
        if not left:
            raise Unplanned(f"{name}: nothing says what {phrase!r} are not")
    else:
        raise Unplanned(f"{name}: it is not clear what {phrase!r} means here")
    _check_noun(words, said, kinds, name)
    out = {short(value) for value, _ in left}
    meant = [(value, record) for value, record in pairs if short(value) not in out]
    if not meant:
        raise Unplanned(f"{name}: there are none")
    return Quantity(phrase, meant, used)


def _excepted(
    words: Words, named: Sequence[tuple[Span, list[Pair]]]
) -> tuple[list[Pair], list[Span]]:
    """Return the records that are named as exceptions, and where."""
    left: list[Pair] = []
    used: list[Span] = []
    for number, (span, held) in enumerate(named):
        end = named[number + 1][0].start if number + 1 < len(named) else len(words.text)
        one, more = the_one_meant(words, Span(span.end, end), held)
        left.append(one)
        used += [span, *more]
    return left, used


def _check_noun(
    words: Words, said: Sequence[tuple[Span, str]], kinds: Sequence[frozenset[str]], name: str
) -> None:
    """Refuse a quantifier that is one of something else: `all orders`, `all black ones`."""
    last = [span for (span, _), kind in zip(said, kinds, strict=True) if kind is not _BUT][-1]
    behind = [word for span, word in words.plain() if span.start >= last.end and word not in _OF]
    following = behind[0] if behind else ""
    if following and stem(following) not in own_stems(name) and following not in _BEHIND | _BUT:
        raise Unplanned(f"{name}: {following!r} is not one of them")


def own_stems(name: str) -> set[str]:
    """Return the stems of the words in the name of a value."""
    return {stem(word) for word in re.findall(r"[a-z]+", name.lower())}


def restricting(words: Words, effect: Effect) -> list[str]:
    """Return the words behind the verb that may restrict what a quantifier means.

    words: what is left of them without the values.
    """
    stems = asking_stems(tuple(effect.words))
    plain = [word for _, word in words.plain()]
    verb = next((n for n, word in enumerate(plain) if stem(word) in stems), -1)
    known = stems.union(*(own_stems(name) for name in effect.slots))
    return [w for w in plain[verb + 1 :] if w not in _PLAIN and stem(w) not in known]


_BETWEEN = frozenset("and plus also both as well the my our a an one".split())
"""Words that may stand between two things of one list."""
_APART = frozenset("i we you he she they it because since so about like have has had than".split())
"""Words between a verb and the first thing behind which that is no longer what is meant by it."""
_POINTERS = frozenset("these those this that them it what which".split())
"""Words for further things that are not named: `and these`."""
_JOINED_BY = re.compile(r"[\s,;&()'\"-]*")


def scattered(
    words: Words,
    effect: Effect,
    name: str,
    first: Span,
    segments: Sequence[Span],
) -> str:
    """Return what parts the things of a list from the verb, or from each other; empty if nothing.

    words: what is left of a part of a request without the values. first: where the first of them
    stands. segments: what follows each of them, up to the next.
    """
    own = own_stems(name)
    for segment in segments[:-1]:
        between = words.part(segment)
        plain = [span for span, word in between.plain() if word in _BETWEEN or stem(word) in own]
        rest = between.without(plain).text
        if not _JOINED_BY.fullmatch(rest):
            return rest.strip()
    plain_words = [word for _, word in words.plain()]
    for word, following in itertools.pairwise(plain_words):
        if word == "and" and following in _POINTERS:
            return f"and {following}"
    stems = asking_stems(tuple(effect.words))
    before = [(span, word) for span, word in words.plain() if span.end <= first.start]
    verbs = [span for span, word in before if stem(word) in stems]
    piece = next(one for one in words.pieces() if one.start <= first.start < one.end)
    if not verbs or verbs[-1].start < piece.start:
        return words.text[: first.start].strip() or "the words before them"
    return next((w for span, w in before if span.start > verbs[-1].end and w in _APART), "")


_TALK = FUNCTION_WORDS | frozenset("mail email e-mail".split())
_KEEP = frozenset("keep keeping".split())
_KEEPING = _KEEP | frozenset("i we want to would like will am the my our and".split())
_KEPT = frozenset("the my our and".split())


def unclear_talk(words: Words, named: Iterable[Span]) -> list[str]:
    """Return the words of talk before a request that may speak of a part of the list.

    named: where it names things of the list; then it must say that they are kept.
    """
    spans = [*named]
    plain = [word for _, word in words.without(spans).plain()]
    if not spans:
        return [word for word in plain if word not in _TALK]
    if not _KEEP & {*plain} or "?" in words.text:
        return [words.text[spans[0].start : spans[0].end]]
    kept = next(number for number, word in enumerate(plain) if word in _KEEP)
    return [
        word
        for number, word in enumerate(plain)
        if word not in (_KEEPING if number <= kept else _KEPT)
    ]


def shown(effect: Effect, name: str, said: str, pairs: Sequence[Pair]) -> Quantity | None:
    """Return what the quantifiers of a recorded request mean by the rules here, if it has any."""
    words = analysed(said)
    stems = asking_stems(tuple(effect.words))
    found = [span for span in words.pieces() if _has(words.part(span), _OPERATORS)]
    if len(found) != 1 or not _has(words.part(found[0]), stems, stem):
        return None

    def elsewhere() -> list[Pair]:
        return [held[0] for _, held in mentions_of(words.without(found), pairs) if len(held) == 1]

    try:
        return quantified(words.part(found[0]), pairs, name, elsewhere)
    except Unplanned:
        return None


def _has(words: Words, wanted: Iterable[str], form: Callable[[str], str] = str) -> bool:
    return any(form(word) in wanted for _, word in words.plain())
