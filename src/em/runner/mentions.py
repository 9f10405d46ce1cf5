"""Mentions: what stands in the words of a request, and what of it nothing accounts for.

Values are looked up as words of their own, in any case. Whatever a plan uses is taken away; what
is left decides whether the words were understood: an id, a record, a name or a word like `not`
that nothing used means that they ask for more than was read in them.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple

from em.text.contractions import contraction
from em.text.courtesies import PLEASE

_LITERAL = re.compile(r"\{[^{}]*\}|\[[^\[\]{}]*\]")
_QUOTED = re.compile(
    r"(?<!\w)'((?:[^'\n]|(?<=\w)'(?=\w)){1,400})'(?!\w)|\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”"
)
"""Texts in quotes. An apostrophe within a word is no quote."""
_CODE = re.compile(r"[#$€£\w@.+/:-]*\d[\w@+/:-]*(?:\.[\w@+-]+)*")
_CODE_ENDS = ".:/-"
"""Signs behind an id that are not a part of it."""
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CAPITAL = re.compile(r"[^\W\d_a-z][\w'’-]*")
_ENDS = re.compile(r"[.;!?](?=\s|$)|\n")

FUNCTION_WORDS = PLEASE | frozenset(
    "a an the of to for in on at by with from into onto and as is are be been was were am i you he"
    " she it we they me him her us them my your his its our their mine yours this that these those"
    " there here who whom whose which what when where how thanks thank hi hello dear"
    " would could should will shall may might can must do does did have has had want wants wanted"
    " like need needs wish let make made get got so too also then now today via because since due"
    " about per use using regarding concerning named called name id number code go ahead".split()
)
"""Words that carry no value of their own."""
OPERATORS = frozenset(
    "not no never none nothing neither nor without except excluding but unless"
    " if whether or either else otherwise instead rather only just all every everything each any"
    " both other others another rest remaining same similar different opposite cheapest cheaper"
    " lowest highest most least more less first last latest newest oldest best biggest smallest"
    " until before after again twice half double maybe perhaps possibly prefer preferably".split()
)
"""Words that change what other words ask for. A plan that does not use them must not act."""

PLACEHOLDERS = frozenset(
    "tbd tba tbc todo n/a na nil null nan unknown undefined unspecified undecided anywhere anyone"
    " anybody anything everywhere everyone everybody somewhere someone somebody something sometime"
    " nowhere nobody whoever whatever whichever wherever x xx xxx xyz foo bar unassigned unset"
    " unnamed untitled blank empty default".split()
)
"""Words that hold the place of a value."""
_CLOSED_WORDS = (
    frozenset(
        "me myself mine you yourself him himself her herself us ourselves them themselves self"
        " owner".split()
    ),
    frozenset(
        "now today tomorrow yesterday tonight later soon next previous ago weekend week month year"
        " day days morning evening temporarily".split()
    ),
    frozenset("monday tuesday wednesday thursday friday saturday sunday".split()),
    frozenset(
        "january february march april may june july august september october november"
        " december".split()
    ),
)
"""Words that say who or when: a value has them only if recorded ones had some of their kind."""
_NO_VALUES = FUNCTION_WORDS | OPERATORS | PLACEHOLDERS

FRAMES = frozenset(
    "imagine imagining suppose supposing pretend pretending assume assuming follows hypothetical"
    " hypothetically theoretically example instance following quote quoted quoting joke joking"
    " kidding fiction novel story play scene drill rehearsal simulation test testing said says"
    " saying told tells wrote writes written reads asked asks claimed claims dream dreamt"
    " mind".split()
)
"""Words that put what follows into other mouths or other worlds."""


class Span(NamedTuple):
    """Where something stands in a text."""

    start: int
    end: int


class Literal(NamedTuple):
    """A record or a list that is written in a text as in JSON or in Python."""

    span: Span
    value: Any


class Words:
    """A text, or a part of one, and what stands in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lower = _same_length(text)
        self.literals = list(_literals(text)) if "{" in text or "[" in text else []
        self._codes: list[tuple[Span, str]] | None = None
        self._plain: list[tuple[Span, str]] | None = None

    def find(self, value: Any) -> list[Span]:
        """Return where a value is mentioned as a word of its own, also inside of a literal."""
        wanted = _same_length(str(value).strip())
        found = []
        at = self._lower.find(wanted) if wanted else -1
        while at >= 0:
            end = at + len(wanted)
            if _is_apart(self._lower, at, end):
                found.append(Span(at, end))
            at = self._lower.find(wanted, at + 1)
        return found

    def capitals(self) -> list[tuple[Span, str]]:
        """Return the words that begin with a capital letter, outside of literals."""
        return [
            (Span(*found.span()), found.group())
            for found in _CAPITAL.finditer(self.text)
            if not self.is_in_literal(found.start()) and _is_apart(self.text, *found.span())
        ]

    def codes(self) -> list[tuple[Span, str]]:
        """Return the ids, numbers and e-mail addresses, outside of literals."""
        if self._codes is None:
            found = {Span(*one.span()): one.group() for one in _MAIL.finditer(self.text)}
            for one in _CODE.finditer(self.text):
                if not any(mail.start <= one.start() < mail.end for mail in found):
                    text = one.group().rstrip(_CODE_ENDS)
                    found[Span(one.start(), one.start() + len(text))] = text
            self._codes = sorted(
                (span, text) for span, text in found.items() if not self.is_in_literal(span.start)
            )
        return self._codes

    def quotes(self) -> list[tuple[Span, str]]:
        """Return the quoted texts, outside of literals."""
        return [
            (Span(*one.span()), next(filter(None, one.groups())))
            for one in _QUOTED.finditer(self.text)
            if not self.is_in_literal(one.start()) and _is_apart(self.text, *one.span())
        ]

    def plain(self) -> Sequence[tuple[Span, str]]:
        """Return the words of letters, in lower case, outside of literals, ids and addresses.

        A contraction is two words: `I'm` is `i` and `am`.
        """
        if self._plain is None:
            codes = [span for span, _ in self.codes()]
            self._plain = [
                part
                for one in _WORD.finditer(self.text)
                if not self.is_in_literal(one.start())
                and not any(code.start <= one.start() < code.end for code in codes)
                for part in _words_of(one)
            ]
        return self._plain

    def is_in_literal(self, at: int) -> bool:
        """Return whether a position is within a record or a list."""
        return bool(self.literals) and any(
            one.span.start <= at < one.span.end for one in self.literals
        )

    def pieces(self) -> list[Span]:
        """Return the parts that full stops, semicolons and line ends separate."""
        ends = [
            one.end() for one in _ENDS.finditer(self.text) if not self.is_in_literal(one.start())
        ]
        found, start = [], 0
        for end in (*ends, len(self.text)):
            if self.text[start:end].strip(" \t\n.;"):
                found.append(Span(start, end))
            start = end
        return found

    def part(self, span: Span) -> "Words":
        """Return a part of the text."""
        return analysed(self.text[span.start : span.end])

    def without(self, used: Iterable[Span]) -> "Words":
        """Return the text with spaces in the place of what was used."""
        left = list(self.text)
        for start, end in used:
            left[start:end] = " " * (end - start)
        return analysed("".join(left))


@lru_cache(maxsize=500)
def analysed(text: str) -> Words:
    """Return a text with what stands in it; a run looks at the same words again and again."""
    return Words(text)


_JOINED = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)


def enumerations(words: Words) -> list[list[tuple[Span, str]]]:
    """Return the ids and numbers that stand in lists: `#W1, #W2 and #W3`."""
    lists: list[list[tuple[Span, str]]] = []
    for span, text in words.codes():
        last = lists[-1][-1][0] if lists else None
        if last is not None and _JOINED.fullmatch(words.text, last.end, span.start):
            lists[-1].append((span, text))
        else:
            lists.append([(span, text)])
    return [one for one in lists if len(one) > 1]


def unread(words: Words, known: Iterable[str]) -> list[str]:
    """Return what of the words nothing accounts for, in the order of the text.

    known: words that may stand there, such as those of a tool's name.
    """
    allowed = {stem(word) for word in known}
    found = [(one.span.start, words.text[one.span.start : one.span.end]) for one in words.literals]
    found += [(span.start, text) for span, text in words.codes()]
    found += [(span.start, text) for span, text in words.quotes()]
    for span, word in words.plain():
        if word in OPERATORS or (word not in FUNCTION_WORDS and stem(word) not in allowed):
            found.append((span.start, word))
    return [text for _, text in sorted(found)]


def is_chatter(words: Words) -> bool:
    """Return whether a piece of text says something that no plan depends on.

    It has no ids, records, quotes or words that change others or frame what follows, and is in a
    known language.
    """
    if words.literals or words.codes() or words.quotes():
        return False
    plain = [word for _, word in words.plain()]
    if points_ahead(words):
        return False
    return not (OPERATORS | FRAMES) & set(plain) and (
        not plain or bool(FUNCTION_WORDS & set(plain))
    )


def points_ahead(words: Words) -> bool:
    """Return whether a sentence presents what comes after it: `Here is his mail.`"""
    plain = [word for _, word in words.plain()]
    return bool(plain) and (plain[0] == "here" or plain[-1] in ("this", "these", "here", "below"))


def is_value(text: Any, known: Set[str]) -> bool:
    """Return whether a part of a request names something, as recorded values do.

    `nothing`, `all but one` and `them` don't: what they mean is not what they say.
    known: the words of letters in the recorded values.
    """
    if _is_code(str(text)):
        return True
    words = analysed(str(text))
    plain = {word for _, word in words.plain()}
    if OPERATORS & plain - known:
        return False
    has_others = words.codes() or words.quotes() or not plain - known <= FUNCTION_WORDS
    return bool(has_others) or bool(plain & known) or not plain


def _is_code(text: str) -> bool:
    """Return whether a text is one id, number or e-mail address, and nothing else."""
    if _CODE.fullmatch(text):
        return text[-1] not in _CODE_ENDS
    return _MAIL.fullmatch(text) is not None


def is_placeholder(text: Any) -> bool:
    """Return whether a text stands for a value, and is none: `ALL`, `you`, `TBD`, `N/A`."""
    return str(text).strip().lower() in _NO_VALUES


class Vocabulary(NamedTuple):
    """The words of recorded values in lower case, and how they were written."""

    words: Set[str]
    kinds: Set[str]
    is_free: bool
    """Whether a recorded value is a sentence."""
    has_values: bool
    """Whether there are recorded values."""


def vocabulary(examples: Iterable[Any]) -> Vocabulary:
    """Return the words of recorded values."""
    known = [_parts_of(one) for one in examples]
    words = {word.lower() for one in known for word in one}
    kinds = {_kind(word) for one in known for word in one}
    is_free = any(len(one) >= _SENTENCE for one in known)
    return Vocabulary(words, kinds, is_free, bool(known))


def has_other_words(text: Any, known: Vocabulary) -> bool:
    """Return whether a text has words of a kind that no recorded value had.

    `18 Rose Hill when she moves` is no address, `my wife` no name and `Someday` no day of the week:
    small words, words that point, numbers and small letters must have stood in recorded values.
    Recorded sentences have all of these.
    """
    if known.is_free:
        return False
    own, recorded = _parts_of(text), known.words
    lowered = {word.lower() for word in own}
    for closed in _CLOSED_WORDS:
        if closed & lowered - recorded and not closed & recorded:
            return True
        if known.has_values and recorded <= closed and not lowered <= closed:
            return True
    new = [word for word in own if word.lower() not in recorded]
    return any(word.lower() in _NO_VALUES or _kind(word) not in known.kinds for word in new)


def _parts_of(text: Any) -> list[str]:
    return _BETWEEN_SIGNS.findall(str(text))


def _kind(word: str) -> str:
    """Return how a word is written: `Rose`, `rose`, `18`, `CZ-207`."""
    if any(map(str.isdigit, word)):
        return "number" if word.isdigit() else "code"
    return "small" if word[:1].islower() else "large"


_BETWEEN_SIGNS = re.compile(r"[^\s,;:.!?()]+")
_SENTENCE = 4
"""Words from which on a recorded value is a sentence."""


def single_forms(examples: Iterable[Any]) -> Set[str]:
    """Return how recorded values are made up; nothing if one of them is several side by side."""
    forms = {_form(str(one)) for one in examples}
    return frozenset() if any(_is_joined(form, forms) for form in forms) else forms


def is_several(text: Any, forms: Set[str]) -> bool:
    """Return whether a text is two values side by side: `Ana/Bo`, `TK-1-TK-4`, `Emma's`.

    forms: what `single_forms` returned for the recorded values.
    """
    return bool(forms) and _is_joined(_form(str(text)), forms)


def _is_joined(form: str, forms: Set[str]) -> bool:
    return any(
        form[: sign.start()] in forms and form[sign.end() :] in forms
        for sign in _INNER_SIGN.finditer(form)
    )


def ends_a_sentence(text: Any, examples: Iterable[Any]) -> bool:
    """Return whether a sentence ends inside of a text, and inside of no recorded value."""
    return bool(_INNER_END.search(str(text))) and not any(
        _INNER_END.search(str(one)) for one in examples
    )


def _form(value: str) -> str:
    """Return how a value is made up: `a-0` for `TK-761`."""
    return _DIGITS.sub("0", _LETTERS.sub("a", value))


_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_INNER_SIGN = re.compile(r"(?<=\w)[^\w\s](?=\w)")
_INNER_END = re.compile(r"[.!?;]\s+\S|\n")


def plain_words(values: Iterable[Any]) -> Set[str]:
    """Return the words of letters in recorded values."""
    return {word for value in values for _, word in Words(str(value)).plain()}


def is_item(text: Any, examples: Iterable[Any]) -> bool:
    """Return whether a part of a list in words is one item: it has no sign of a list in itself."""
    known = {sign for one in examples for sign in _LIST_SIGNS.findall(str(one).lower())}
    return all(sign in known for sign in _LIST_SIGNS.findall(str(text).lower()))


_LIST_SIGNS = re.compile(r"[,;&]|\b(?:and|or|plus)\b")
_ENDINGS = ("ing", "ed", "es", "s", "e")
_SHORTEST_STEM = 3


@lru_cache(maxsize=10_000)
def stem(word: str) -> str:
    """Return a word without its ending: `cancels`, `cancelled` and `cancelling` are one."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            word = word.removesuffix(ending)
            break
    is_doubled = len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeiou"
    return word[:-1] if is_doubled else word


def _words_of(found: re.Match[str]) -> Iterator[tuple[Span, str]]:
    """Yield the words of a match in lower case, those of a contraction each by itself."""
    pair = contraction(found.group(), found.start())
    if pair is None:
        yield Span(*found.span()), found.group().lower().replace("’", "'")
    else:
        yield from ((Span(one.start, one.end), one.word) for one in pair)


def _literals(text: str) -> Iterator[Literal]:
    for found in _LITERAL.finditer(text):
        try:
            value = ast.literal_eval(found.group())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict | list):
            yield Literal(Span(*found.span()), value)


def _same_length(text: str) -> str:
    lower = text.lower()
    return lower if len(lower) == len(text) else text


_JOINS = "_@#-.+/:"
"""Signs that join what stands on both sides of them to one word."""


def _is_apart(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text is a word of its own."""
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    first, last = text[start], text[end - 1]
    if before and (before.isalnum() or before in "_@#") and (first.isalnum() or first in "_@#"):
        return False
    if after and after.isalnum() and last.isalnum():
        return False
    if after == "_" or (after and after in _JOINS and text[end + 1 : end + 2].isalnum()):
        return after in ".:/" and text[end + 1 : end + 2].isspace()
    joined = bool(before) and before in _JOINS and start > 1 and text[start - 2].isalnum()
    return not joined or before in ":/"
