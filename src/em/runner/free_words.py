"""Form: free words fill the values of effects that a kind of task always has.

The values that stand in the words (quotes, numbers, file names, tags, names) are given to the
blanks of the effects. A value fits a blank if it looks like the recorded ones; the words beside it
decide between several. Every such value must be used, each blank must be filled in one way only,
and words that negate, condition or leave open what is meant stop it: then the run asks. So does any
sentence that no recorded request told, where something has an effect (`em.runner.sentences`).
"""

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from em.redaction.redactor import MARKER
from em.runner.mentions import (
    FUNCTION_WORDS,
    OPERATORS,
    Span,
    analysed,
    is_placeholder,
    stem,
)
from em.runner.mood import asks, requests
from em.runner.sentences import Request, untold
from em.runner.signs import unknown_sign
from em.runner.task_plan import EffectCall, Plan, Slot, Unplanned, asking
from em.values.canonical import Json, short

MOST_WAYS = 20_000
"""Ways to fill the blanks that are compared; with more of them the run asks."""

HARD = frozenset(
    "not no never none nothing neither nor without except"
    " excluding unless if whether or either else otherwise instead rather other others another"
    " different opposite maybe perhaps possibly prefer preferably half double twice format template"
    " placeholder replace replaced replacing".split()
)
"""Words that negate, condition, offer a choice, or say how a value is made."""
VAGUE = frozenset(
    "some certain specific particular several something someone somebody somewhere sometime somehow"
    " anything anyone various few whatever whichever later".split()
)
"""Words that leave open what is meant, if no value says it."""
SEVERAL = frozenset("all every each both any them".split())
"""Words that ask for more than one thing, if no value says which."""
LOGIC = frozenset(
    "not no never none nothing neither nor without unless if"
    " whether or either else otherwise maybe perhaps possibly prefer preferably".split()
)
"""Words of `HARD` that change whether something is done, and not with which values."""
DENIALS = frozenset("not no never nothing neither nor without".split())
"""Words that turn round what stands behind them; `can not` says that somebody needs it."""
_UNABLE = (["can"], ["could"])
ORDINALS = frozenset("second third fourth fifth sixth seventh eighth ninth tenth next".split())
"""Words that choose from a list, if no value says which."""
SOFT = frozenset(
    "just before after everything again more most best until rest same but"
    " all every each both any".split()
)
"""Words of `OPERATORS` that seldom change what free words ask for."""
LAST = frozenset("last latest newest".split())
"""Words for what happened before the request."""
_IDIOMS = re.compile(
    r"\bif (?:you (?:could|can|would|don['’]t mind)|(?:it's |it is )?possible|(?:that|it) helps)\b"
    r"|\bdouble[- ]check\w*|\bdon['’]t mind\b|\bno longer\b|\bonce more\b|\bor so\b"
    r"|\b(?:don['’]t|not|never) forget\b|\bcan['’]t wait\b"
    r"|\bwithout (?:a hitch|delay|fail|issues?)\b",
    re.IGNORECASE,
)
"""Turns of speech whose words say nothing of their own."""
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
NEAR = 4
"""Words before a value among which the last one with a meaning tells what it is."""
_LINKS = FUNCTION_WORDS - {"name", "id", "number", "code", "named", "called", "from", "to", "by"}
HINTS = 2
"""Words that only hint at what is asked for, which are as good as one that asks."""
LONG = 5
"""Letters from which words that begin in the same way are of one family."""
_DIRECTED = frozenset("please kindly me".split())
_WISHES = frozenset("want need like love wish require appreciate appreciated should".split())
_LET_US = frozenset(("let", "us"))
_CURIOUS = frozenset("curious wonder wondering interested keen eager useful helpful great".split())
"""Words that wish to know something."""
_TELLERS = frozenset("i we you he she they it there my our your his her their the this".split())
"""Words with which sentences begin that tell something, unless they wish for it."""
_ASKS = re.compile(r"\b(?:can|could|will|would) you\b|\?\s*$", re.IGNORECASE)
"""Words and endings of sentences that ask somebody to do something."""
_DETERMINERS = frozenset("a an the my our your his her their this that these those its".split())
_NUMBERS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()
    )
    if number != 1
}
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = f"(?:{'|'.join(name.capitalize() for name in _MONTHS)})[a-z]*"
_LOOKS: tuple[tuple[str, str], ...] = (
    ("e-mail", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    ("tag", r"#[^\W\d]\w*"),
    ("handle", r"@\w+"),
    ("date", r"\d{4}-\d{2}-\d{2}"),
    ("day", rf"{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,| of)? \d{{4}}"),
    ("day", rf"\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,| of)? \d{{4}}"),
    ("file", r"[\w-]+(?:\.[\w-]+)*\.[^\W\d_]\w{0,4}"),
    (
        "number",
        r"[$€£]\s?\d+(?:,\d{3})*(?:\.\d+)?|\d+(?:,\d{3})*(?:\.\d+)?"
        r" ?(?:USD|EUR|GBP|RMB|JPY|dollars|euros)|#?\d+(?:,\d{3})*(?:\.\d+)?%?",
    ),
    ("identifier", r"[^\W_]+(?:_[^\W_]+)+|[^\W\d_]*[a-z][A-Z]\w*"),
    ("code", r"(?=\w*\d)(?=\w*[^\W\d])[\w-]+|[\da-fA-F]+(?:-[\da-fA-F]+)+"),
    ("symbol", r"[A-Z]{2,6}"),
    ("name", r"[A-Z][a-z]+(?:['’][A-Z])?[a-z]*(?: (?:[A-Z][a-z]+|[A-Z]{2,6}))*"),
)
_MENTION = re.compile(
    r"(?<![\w#@$€£.-])(?:" + "|".join(f"({look})" for _, look in _LOOKS) + r")(?![\w@]|\.\w|-\w)"
)
_DIRECTIONS = ("from", "by", "into", "onto", "off", "against")
"""Words before a value that turn round what is done with it, unless recorded ones had them."""
_THOUSANDS = re.compile(r"\d{1,3}(?:\.\d{3})+")
"""Matches what may be a number with a fraction, or one of thousands."""
_ROLES = ("to", "from", "for", "with", "of", "in", "on", "at", "by", "into", "onto", "as")
"""Words before a value that may tell what it is for."""
_INITIAL = re.compile(r"\b[A-Z]\.\s*\Z")
_TAGS = re.compile(r"[#@]\w+(?:,? +[#@]\w+)+")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|[.!?;:]")
_PLAIN_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)*")
WORD = "word"
"""The look of a recorded value that is plain words, and may be said in any case."""
SAID = frozenset(("cue", "bare", "alias", "list"))
"""Sources of values that stand in the words."""
_ALWAYS_USED = frozenset(("e-mail", "tag", "handle", "date", "file", "number", "quote"))
"""Looks of values that never stand in words for nothing."""


class Mention(NamedTuple):
    """A value in the words: where it stands, how it looks, and the words beside it."""

    span: Span
    text: str
    look: str
    cues: frozenset[str]


@lru_cache(maxsize=4096)
def mentions_in(text: str) -> tuple[Mention, ...]:
    """Return the values that stand in a text, in their order."""
    words = analysed(text)
    # A recording has a marker in the place of a secret.
    found = [(Span(*one.span()), one.group(), "code") for one in MARKER.finditer(text)]
    for span, quoted in words.quotes():
        said = quoted.strip()
        if _TAGS.fullmatch(said):
            start = text.index(said, span.start)
            for one in re.finditer(r"[#@]\w+", said):
                where = Span(start + one.start(), start + one.end())
                found.append((where, one.group(), look_of(one.group())))
        else:
            found.append((span, said, look_of(said) or "quote"))
    for match in _MENTION.finditer(text):
        span = Span(*match.span())
        if not any(one.start < span.end and span.start < one.end for one, _, _ in found):
            look = _LOOKS[(match.lastindex or 1) - 1][0]
            if look == "day":
                found.append((span, _iso(match.group()), "date"))
            elif look != "name" or not _begins_sentence(text, span):
                found.append((span, match.group(), look))
    for span, word in words.plain():
        if word in _NUMBERS and not any(o.start <= span.start < o.end for o, _, _ in found):
            found.append((span, str(_NUMBERS[word]), "number word"))
    return tuple(Mention(span, said, look, _cues(text, span)) for span, said, look in sorted(found))


def known_words(text: str, values: Iterable[Any]) -> tuple[Mention, ...]:
    """Return where values that are plain words stand in a text, in any case: `technology`."""
    words = analysed(text)
    return tuple(
        Mention(span, value, WORD, _cues(text, span))
        for value in values
        if isinstance(value, str) and len(value) >= LONG and _PLAIN_WORDS.fullmatch(value)
        for span in words.find(value)
        if not words.is_in_literal(span.start)
    )


def _iso(text: str) -> str:
    """Return a date in words as in `2026-11-15`."""
    year, (day, *_) = text[-4:], re.findall(r"\d+", text)
    month = next(n for n, name in enumerate(_MONTHS, 1) if re.search(rf"\b{name}", text.lower()))
    return f"{year}-{month:02}-{int(day):02}"


def look_of(text: str) -> str:
    """Return how a whole text looks; "" if like any other text."""
    match = _MENTION.fullmatch(text)
    look = _LOOKS[(match.lastindex or 1) - 1][0] if match else ""
    return "" if look == "name" else look


def roles_of(mentions: Sequence[Sequence[Mention]]) -> Sequence[str]:
    """Return the words that tell what a value is for, if one stood before each recorded one."""
    found = [
        {word for one in own for word in _ROLES if f"{word} …" in one.cues} for own in mentions
    ]
    return sorted(set().union(*found)) if found and all(found) else ()


def plain_name(text: str) -> str:
    """Return a name in lower case, without what stands behind it."""
    return re.sub(r"['’]s$|[.,]+$", "", text.strip()).lower()


def _begins_sentence(text: str, span: Span) -> bool:
    """Return whether a single capital word is one only because a sentence begins with it."""
    before = text[: span.start].rstrip(" \"'“(")
    word = text[span.start : span.end]
    return (not before or before[-1] in ".!?;:\n—") and " " not in word


def _cues(text: str, span: Span) -> frozenset[str]:
    before = [
        one.group().lower()
        for one in _WORD.finditer(text[max(0, span.start - 80) : span.start])
        if one.group().lower() not in _DETERMINERS
    ]
    after = [one.group().lower() for one in _WORD.finditer(text[span.end : span.end + 40])]
    found = set()
    if before and before[-1].isalpha():
        found.add(f"{stem(before[-1])} …")
    near = [word for word in before[-NEAR:] if word.isalpha() and word not in _LINKS]
    if near:
        found.add(f"{stem(near[-1])} …")
    if after and after[0].isalpha():
        found.add(f"… {stem(after[0])}")
    if (
        re.search(r"^[$€£]|[A-Za-z]$", text[span.start : span.end])
        and text[span.start] in "$€£0123456789"
    ):
        found.add("money")
    return frozenset(found)


def value_of(mention: Mention, slot: Slot) -> Any:
    """Return a mention as the type of the recorded values; None if it can't be one."""
    kinds = {type(one) for one in slot.examples}
    text = mention.text
    if plain_name(text) in slot.aliases:
        return slot.aliases[plain_name(text)]
    if kinds and kinds <= {int, float}:
        return _number_of(re.sub(r"[^\d.]", "", text), whole=kinds == {int})
    signs = {str(one)[:1] for one in slot.examples}
    if len(signs) == 1 and signs <= {"#", "@"} and text[:1] not in signs:
        return None if " " in text else signs.pop() + text
    return text


def _number_of(digits: str, *, whole: bool) -> float | None:
    """Return the number that digits and points say; None if they may say another one."""
    try:
        if whole:
            # 30.000 may be thirty or thirty thousand, and 3.5 is no such number.
            return int(digits) if digits.isdigit() else None
        number = float(digits)
    except ValueError:
        return None
    return None if _THOUSANDS.fullmatch(digits) or math.isinf(number) else number


class Reader:
    """Reads one request into the effects of a form."""

    def __init__(
        self,
        plan: Plan,
        text: str,
        given: Json,
        earlier: Sequence[Mapping[str, Any]],
        evaluate: Callable[[str, Json], Any],
    ) -> None:
        assert plan.form is not None
        self._plan, self._form = plan, plan.form
        self._text, self._given, self._earlier = text, given, earlier
        self._evaluate = evaluate
        self._only_reads = all(plan.effects[name].reads for name in plan.form.always)
        self._mentions = mentions_in(text)
        for slot in self._all_slots():
            if WORD in slot.looks:
                self._mentions += known_words(text, slot.examples)
        self.sources: dict[str, str] = {}
        """Where each value came from, by `effect.value`."""
        self._marks: dict[Span, str] = {}

    def effects(self) -> list[EffectCall]:
        """Return the effects with their values."""
        self._check_words()
        filled = self._assigned()
        self._check_asked(said=bool(filled))
        self._check_missing(filled)
        self._check_told()
        planned: list[EffectCall] = []
        for name in self._form.always:
            args: Json = {}
            for slot_name, slot in self._plan.effects[name].slots.items():
                value = self._value(name, slot_name, slot, filled, args)
                if value is not msgspec.UNSET:
                    args[slot_name] = filled[f"{name}.{slot_name}"] = value
            planned.append(EffectCall(name, args))
        self._check_vague()
        return planned

    def _plain(self) -> Iterator[str]:
        """Yield the words that stand outside of values that are texts."""
        return (word for _, word in self._spans())

    def _spans(self) -> Iterator[tuple[Span, str]]:
        quotes = [
            one.span for one in self._mentions if one.look not in ("name", "number word", WORD)
        ]
        idioms = [Span(*one.span()) for one in _IDIOMS.finditer(self._text)]
        for span, word in analysed(self._text).plain():
            if any(one.start <= span.start < one.end for one in idioms):
                continue
            if not any(one.start <= span.start < one.end for one in quotes):
                yield span, word

    def _check_words(self) -> None:
        """Refuse words that don't ask for this, or that leave something open."""
        plain = list(self._plain())
        known = {*SOFT, *self._form.harmless, *(LAST if self._is_earlier() else ())}
        slots = [slot for one in self._plan.effects.values() for slot in one.slots.values()]
        meanings = {word for slot in slots for words in slot.means.values() for word in words}
        unknown = [
            word
            for word in plain
            if word in HARD or (word in OPERATORS - known and stem(word) not in meanings)
        ]
        if self._only_reads:
            # Whether a read was to be made, or on what condition, does no harm; of what, does.
            unknown = [word for word in unknown if word not in LOGIC and self._all_slots()]
        if unknown:
            raise Unplanned(f"it is not clear what {', '.join(map(repr, unknown[:3]))} changes")
        values = [one.span for one in self._mentions]
        sign = "" if self._only_reads else unknown_sign(self._text, values, self._plan.signs)
        if sign:
            raise Unplanned(f"nothing accounts for the sign {sign!r}")

    def recorded(self, is_right: Callable[[str, str, Any], bool]) -> Request | None:
        """Return the request with its values; None if one is not that of the recording."""
        for blank, value in self._assigned().items():
            effect, _, name = blank.partition(".")
            if not is_right(self._plan.effects[effect].tool, name, value):
                return None
        return self._request()

    def _request(self) -> Request:
        return Request(self._text, self._sentences(), self._marks)

    def _mark(self, blank: str) -> str:
        """Return what stands for a value: its name, with the effect if several have it."""
        name = blank.partition(".")[2]
        owners = [one for one in self._form.always if name in self._plan.effects[one].slots]
        return f"<{name if len(owners) == 1 else blank}>"

    def _keep(self, blank: str, mentions: Sequence[Mention]) -> None:
        """Keep where a value stands; the unit or sign of a number stays."""
        for one in mentions:
            unit = re.sub(r"[\d.,\s]", "", one.text.lower()) if one.look == "number" else ""
            mark = self._mark(blank)
            self._marks.setdefault(one.span, f"{mark[:-1]}:{unit}>" if unit else mark)

    def _check_missing(self, filled: Mapping[str, Any]) -> None:
        """Refuse words that don't say a value which nothing else gives."""
        for blank, slot in self._blanks().items():
            if not (blank in filled or slot.means or slot.default or slot.earlier or slot.optional):
                name = blank.partition(".")[2]
                raise Unplanned(f"{name} is not said", [name])

    def _check_told(self) -> None:
        """Refuse sentences that no recorded request told, where something has an effect."""
        if self._only_reads:
            return
        given = {
            self._mark(f"{effect}.{name}")
            for effect in self._form.always
            for name in self._plan.effects[effect].slots
            if name in self._given
        }
        sentence = untold(self._plan, self._request(), given)
        if sentence:
            raise Unplanned(f"no recorded request was worded like {sentence[:80]!r}")
        effects = [one for one in self._plan.effects.values() if not one.reads]
        verbs = {word for one in effects for word in asking(one)}
        spoken = {stem(word) for _, word in analysed(self._text).plain()}
        is_named = not spoken.isdisjoint(map(stem, verbs))
        if not (requests(self._text, verbs) if is_named else asks(self._text)):
            raise Unplanned("the words speak of it, but don't ask for it")

    def _is_earlier(self) -> bool:
        """Return whether something comes from the last call of a tool before the request."""
        slots = (slot for one in self._plan.effects.values() for slot in one.slots.values())
        return any(slot.earlier for slot in slots)

    def _all_slots(self) -> list[Slot]:
        return [
            slot for name in self._form.always for slot in self._plan.effects[name].slots.values()
        ]

    def _check_vague(self) -> None:
        """Refuse words that leave something open, where not all values stand in the words."""
        sources = set(self.sources.values()) - {"unsaid"}
        is_said = bool(sources) and sources <= SAID
        is_known = sources <= {*SAID, "constant"}
        plain = list(self._plain())
        for number, word in enumerate(plain):
            if self._only_reads and not self._is_of_reads(plain[number + 1 : number + 3]):
                continue
            if (word in VAGUE | ORDINALS and not is_said) or (word in SEVERAL and not is_known):
                raise Unplanned(f"it is not clear what {word!r} means")

    def _is_of_reads(self, following: Sequence[str]) -> bool:
        """Return whether one of the words behind another one names what is read."""
        effects = [self._plan.effects[name] for name in self._form.always]
        names = [*(w for one in effects for w in one.words), *(n for e in effects for n in e.slots)]
        own = {stem(word) for name in names for word in re.findall(r"[a-z]+", name.lower())}
        return _has_one(map(stem, following), own)

    def _check_asked(self, *, said: bool) -> None:
        """Refuse words that don't ask for this, or for something else as well.

        What most tasks said counts only beside values of it. Of reads, each sentence that is
        directed to whoever does it must have such a word, or a value; where something has an
        effect, each must be told anyway.
        """
        stems = {one for piece in self._asking() for one in self._stems(piece)}
        enough = 1 if self._only_reads else HINTS
        is_hinted = said and sum(_has_one([one], self._form.hints) for one in stems) >= enough
        if not is_hinted and not _has_one(stems, self._form.words):
            raise Unplanned("nothing in these words asks for something that was learnt")
        known = {*self._form.words, *self._form.hints}
        is_asked = False
        for piece in self._asking():
            plain = {word for span, word in self._spans() if piece.start <= span.start < piece.end}
            asks = plain & _DIRECTED or _ASKS.search(self._text, piece.start, piece.end)
            words = [word for span, word in self._spans() if piece.start <= span.start < piece.end]
            tells = not words or words[0] in _TELLERS or words[1:2] in (["is"], ["are"], ["was"])
            wishes = plain & self._wishes() or plain >= _LET_US
            is_asked |= bool(asks or wishes or not tells)
            has_value = any(
                piece.start <= one.span.start < piece.end
                and one.look not in ("name", "number word")
                for one in self._mentions
            )
            refers = plain & {"it", "that", "this", "these", "those"}
            is_known = has_value or refers or _has_one(self._stems(piece), known)
            if self._only_reads and asks and not is_known:
                said_here = " ".join(self._text[piece.start : piece.end].split())
                raise Unplanned(f"it is not clear what this asks for: {said_here[:80]!r}")
        if not is_asked:
            raise Unplanned("these words tell something, and don't ask for it")

    def _wishes(self) -> frozenset[str]:
        return _WISHES | _CURIOUS if self._only_reads else _WISHES

    def _asking(self) -> list[Span]:
        """Return the sentences, of reads without those that deny what is asked for."""
        if not self._only_reads:
            return self._sentences()
        return [piece for piece in self._sentences() if not self._denies(piece)]

    def _denies(self, piece: Span) -> bool:
        """Return whether a word that asks for a read stands behind one that turns it round."""
        known = {*self._form.words, *self._form.hints}
        words = [word for span, word in self._spans() if piece.start <= span.start < piece.end]
        denials = (
            n for n, word in enumerate(words) if word in DENIALS and words[n - 1 : n] not in _UNABLE
        )
        first = next(denials, len(words))
        return _has_one(map(stem, words[first:]), known)

    def _sentences(self) -> list[Span]:
        """Return the sentences; what stands in quotes does not end one, nor does an initial."""
        found: list[Span] = []
        for piece in analysed(self._text).pieces():
            within = any(o.span.start < piece.start < o.span.end for o in self._mentions)
            if found and (within or _INITIAL.search(self._text, 0, found[-1].end)):
                found[-1] = Span(found[-1].start, piece.end)
            else:
                found.append(piece)
        return found

    def _stems(self, piece: Span) -> set[str]:
        """Return the stems of the words in a part of the text."""
        return {
            stem(part)
            for span, word in self._spans()
            if piece.start <= span.start < piece.end
            for part in (word, *word.split("-"))
        }

    # --- values in the words ----------------------------------------------------------------------

    def _blanks(self) -> dict[str, Slot]:
        """Return the blanks that words may fill, by `effect.value`."""
        found: dict[str, Slot] = {}
        for name in self._form.always:
            for slot_name, slot in self._plan.effects[name].slots.items():
                if slot_name not in self._given and slot.looks and not slot.same:
                    found[f"{name}.{slot_name}"] = slot
        return found

    def _assigned(self) -> dict[str, Any]:
        """Return the values of blanks that stand in the words: the one way that fits best."""
        blanks = self._blanks()
        values = self._distinct()
        taken: dict[str, Any] = {}
        for blank, slot in blanks.items():
            if slot.many:
                fitting = [v for v in values if self._is_listed(values[v], slot)]
                if fitting:
                    for one in fitting:
                        self._keep(blank, values[one])
                    taken[blank] = [self._as_value(values.pop(v), slot) for v in fitting]
                    self._check_count(blank.partition(".")[2], len(fitting))
                    self.sources[blank] = "list"
        single = {blank: slot for blank, slot in blanks.items() if not slot.many}
        options = [self._options(slot, values) for slot in single.values()]
        ways: list[tuple[int, dict[str, str]]] = []
        for count, way in enumerate(itertools.product(*options)):
            if count > MOST_WAYS:
                raise Unplanned("there are too many ways to read these words")
            used = [text for text, _ in way if text]
            if len(set(used)) == len(used):
                chosen = {b: text for b, (text, _) in zip(single, way, strict=True) if text}
                ways.append((sum(score for _, score in way), chosen))
        return taken | self._best(ways, single, values)

    def _check_count(self, name: str, count: int) -> None:
        """Refuse words that speak of a list more often than they say values of it."""
        own = {stem(word) for word in re.findall(r"[a-z]{3,}", name.lower())}
        spoken = sum(any(one in stem(word) for one in own) for word in self._plain())
        if spoken > count:
            raise Unplanned(f"the words speak {spoken} times of {name}, and say {count}", [name])

    def _best(
        self,
        ways: list[tuple[int, dict[str, str]]],
        single: Mapping[str, Slot],
        values: Mapping[str, list[Mention]],
    ) -> dict[str, Any]:
        whole = [(score, way) for score, way in ways if not self._left(values, way)]
        if not whole:
            left = self._left(values, max(ways, key=lambda one: len(one[1]))[1]) if ways else []
            if not left:
                raise Unplanned("the words say one value for two things")
            raise Unplanned(f"nothing accounts for {', '.join(map(repr, left[:4]))}")
        most = max(score for score, _ in whole)
        best = [way for score, way in whole if score == most]
        if self._only_reads and len({frozenset(way.values()) for way in best}) == 1:
            best = [way for way in best if self._is_in_order(way, values)] or best
        if len(best) > 1:
            raise Unplanned(f"the values can be read in {len(best)} ways: {short(best[:3])}")
        for blank, text in best[0].items():
            self._keep(blank, values[text])
            alias = any(plain_name(one.text) in single[blank].aliases for one in values[text])
            has_cue = self._score(values[text], single[blank])
            self.sources[blank] = "alias" if alias else "cue" if has_cue else "bare"
        return {
            blank: self._as_value(values[text], single[blank]) for blank, text in best[0].items()
        }

    def _is_in_order(self, way: Mapping[str, str], values: Mapping[str, list[Mention]]) -> bool:
        """Return whether what is read several times is read in the order of the words."""
        by_value: dict[tuple[str, str], list[int]] = {}
        for blank, text in way.items():
            effect, _, name = blank.partition(".")
            key = (self._plan.effects[effect].tool, name)
            by_value.setdefault(key, []).append(values[text][0].span.start)
        return all(starts == sorted(starts) for starts in by_value.values())

    def _distinct(self) -> dict[str, list[Mention]]:
        """Return the mentions by what they say."""
        found: dict[str, list[Mention]] = {}
        for before, one in itertools.pairwise(self._mentions):
            between = self._text[before.span.end : one.span.start]
            if before.text == one.text and not between.strip() and before.span != one.span:
                raise Unplanned(f"{one.text!r} is said twice")
        for one in self._mentions:
            found.setdefault(one.text, []).append(one)
        return found

    def _options(self, slot: Slot, values: Mapping[str, list[Mention]]) -> list[tuple[str, int]]:
        """Return the values that a blank may have with how well they fit; "" is none of them."""
        elsewhere = bool(slot.earlier or slot.default or slot.optional or slot.means)
        found: list[tuple[str, int]] = []
        for text, mentions in values.items():
            if self._fits(mentions, slot):
                score = self._score(mentions, slot)
                is_plain = any(one.look in ("number", "number word", "quote") for one in mentions)
                if score or not (slot.cued or (elsewhere and is_plain)):
                    found.append((text, score))
        return [*found, ("", 0)] if elsewhere or not found else found

    def _is_listed(self, mentions: Sequence[Mention], slot: Slot) -> bool:
        """Return whether a value belongs to a list: it has its sign, or a word of it beside it."""
        signs = {str(one)[:1] for one in slot.examples}
        if not self._fits(mentions, slot):
            return False
        has_sign = mentions[0].text[:1] in signs or not signs <= {"#", "@"}
        return has_sign or bool(self._score(mentions, slot))

    def _score(self, mentions: Sequence[Mention], slot: Slot) -> int:
        """Return how many of the words beside a value stood beside recorded ones."""
        alias = any(plain_name(one.text) in slot.aliases for one in mentions)
        return alias + len({cue for one in mentions for cue in one.cues} & set(slot.cues))

    def _fits(self, mentions: Sequence[Mention], slot: Slot) -> bool:
        return any(self._may_be(one, slot) for one in mentions)

    def _may_be(self, mention: Mention, slot: Slot) -> bool:
        # Of one thing that is only read, it does not matter which way it is looked at.
        is_directed = not self._only_reads or len(self._blanks()) > 1
        tools = [self._plan.effects[name].tool for name in self._form.always]
        verbs = {stem(word.lower()) for tool in tools for word in _NAME_PARTS.findall(tool)}
        # Behind the verb stands what another blank like this one had there.
        others = [one for one in self._all_slots() if one is not slot and mention.look in one.looks]
        verbs -= {cue.removesuffix(" …") for one in others for cue in one.cues}
        return _may_be(mention, slot, verbs, is_directed=is_directed)

    def _as_value(self, mentions: Sequence[Mention], slot: Slot) -> Any:
        return next(value_of(one, slot) for one in mentions if self._may_be(one, slot))

    def _left(self, values: Mapping[str, list[Mention]], way: Mapping[str, str]) -> list[str]:
        """Return the values in the words that a way does not use."""
        looks = {look for slot in self._blanks().values() for look in slot.looks}
        return [
            text
            for text, mentions in values.items()
            if text not in way.values()
            and plain_name(text) not in self._form.harmless
            and any(one.look in _ALWAYS_USED or one.look in looks for one in mentions)
        ]

    # --- values that the words don't name ---------------------------------------------------------

    def _value(
        self, effect: str, name: str, slot: Slot, filled: Mapping[str, Any], args: Json
    ) -> Any:
        blank = f"{effect}.{name}"
        if name in self._given:
            return self._given[name]
        if slot.same in filled:
            return filled[slot.same]
        if blank in filled:
            return filled[blank]
        found = {
            "means": self._meant(slot),
            "default": self._default(slot, {**_by_effect(filled), **args}),
            "earlier": self._known_earlier(slot),
        }
        known = {source: one for source, one in found.items() if one is not msgspec.UNSET}
        if slot.when and not _has_one(self._stems(Span(0, len(self._text))), slot.when):
            known = {source: one for source, one in known.items() if source == "means"}
        for source, one in known.items():
            if one != next(iter(known.values())):
                raise Unplanned(f"{name} can be {short(list(known.values()))}")
            is_constant = source == "default" and "(" not in slot.default[0]
            self.sources.setdefault(blank, "constant" if is_constant else source)
        if known:
            return next(iter(known.values()))
        if slot.optional:
            self._check_optional(name, slot)
            self.sources[blank] = "unsaid"
            return msgspec.UNSET
        raise Unplanned(f"{name} is not said", [name])

    def _default(self, slot: Slot, args: Json) -> Any:
        values = [self._evaluate(text, args) for text in slot.default]
        if not values or any(value != values[0] for value in values):
            return msgspec.UNSET
        return values[0]

    def _check_optional(self, name: str, slot: Slot) -> None:
        """Refuse words that speak of a value and don't say it."""
        stems = {stem(word) for word in self._plain()}
        own = {stem(word) for word in re.findall(r"[a-z]{3,}", name.lower())}
        if any(one in word for word in stems - set(self._form.words) for one in own):
            raise Unplanned(f"{name} is not said", [name])

    def _meant(self, slot: Slot) -> Any:
        stems = self._stems(Span(0, len(self._text)))
        found = [value for value, words in slot.means.items() if stems & set(words)]
        if len(found) > 1:
            raise Unplanned(f"the words can mean {', '.join(found)}")
        return msgspec.json.decode(found[0]) if found else msgspec.UNSET

    def _known_earlier(self, slot: Slot) -> Any:
        held = [value for way in slot.earlier for value in last_earlier(self._earlier, way)]
        if not held:
            return msgspec.UNSET
        if any(value != held[0] for value in held):
            raise Unplanned(f"earlier calls give {short(held[:3])}")
        return held[0]


def recorded_request(
    plan: Plan, text: str, is_right: Callable[[str, str, Any], bool]
) -> Request | None:
    """Return a recorded request with its values; None if it is not read rightly.

    is_right: whether an effect had a value, by its name.
    """
    reader = Reader(plan, text, {}, (), lambda *_: None)
    try:
        return reader.recorded(is_right)
    except Unplanned:
        return None


def _by_effect(filled: Mapping[str, Any]) -> Json:
    """Return values by effect and name, from `effect.value`."""
    found: Json = {}
    for blank, value in filled.items():
        effect, _, name = blank.partition(".")
        found.setdefault(effect, {})[name] = value
    return found


def _has_one(stems: Iterable[str], words: Collection[str]) -> bool:
    """Return whether a stem is one of some words, or begins like a long one: `cancellation`."""
    return any(
        own == word
        or (min(len(own), len(word)) >= LONG and (own.startswith(word) or word.startswith(own)))
        for own in stems
        for word in words
    )


def _may_be(mention: Mention, slot: Slot, verbs: Collection[str], *, is_directed: bool) -> bool:
    """Return whether a value in the words looks like those of a slot."""
    if plain_name(mention.text) in slot.aliases:
        return True
    if mention.text in slot.strange:
        return False
    if slot.secret and mention.cues.isdisjoint(slot.cues):
        return False
    if is_directed and not _has_role(mention, slot, verbs):
        return False
    is_quoted = mention.span.end - mention.span.start > len(mention.text)
    if not is_quoted and is_placeholder(mention.text) and mention.text not in slot.examples:
        return False
    look = "number" if mention.look == "number word" else mention.look
    value = value_of(mention, slot) if look in slot.looks else None
    is_nothing = value == 0 and not isinstance(value, str)
    return value is not None and not (is_nothing and 0 not in slot.examples)


def _has_role(mention: Mention, slot: Slot, verbs: Collection[str]) -> bool:
    """Return whether what stands before a value does not turn round what it is for.

    verbs: stems behind which a value needs no other word.
    """
    if {f"{word} …" for word in _DIRECTIONS} & mention.cues - set(slot.cues):
        return False
    if not slot.behind or not mention.cues.isdisjoint(f"{word} …" for word in slot.behind):
        return True
    has_other = not mention.cues.isdisjoint(f"{word} …" for word in _ROLES)
    return not has_other and not mention.cues.isdisjoint(f"{word} …" for word in verbs)


def last_earlier(earlier: Sequence[Mapping[str, Any]], way: str) -> list[Any]:
    """Return what the last earlier call of a tool has at a way, as a list of one or none."""
    tool, *parts = way.split(".")
    for call in reversed(earlier):
        if call.get("tool") == tool:
            value: Any = call
            for part in parts:
                if not isinstance(value, Mapping) or part not in value:
                    return []
                value = value[part]
            return [value]
    return []
