"""Said values: what differently worded requests have in common with what was done for them.

No template fits `bump to 1.4.2 and note "faster"` and `please release 2.0.1: less noise`. But each
says the version and the note that its session wrote. Such values are inputs that are given by name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from em.compiler.calls import Names, TracedCall, identifier
from em.compiler.inputs import escaped
from em.compiler.templates import FEWEST, TOKEN
from em.runner.expressions.functions import kind_of
from em.text.terms import STOP_WORDS
from em.values.leaves import texts

LONGEST_REQUEST, LONGEST_VALUE = 20_000, 500
"""Characters of a request in which values are looked for, and of a value."""
_ENDS = re.compile(r"[\w)\]}%]")
"""Matches what a value may end with."""
_VERSION = re.compile(r"v?\d+(?:\.\d+)+\S*")
_FILE = re.compile(r"\S*/\S*|\S+\.[a-z]\w{0,4}")
_KEY = re.compile(r"([A-Za-z][A-Za-z_]*?)_*[ \t]*[:=][ \t]*[\"'`]?\Z")
"""Matches the key that stands before a value: `__version__ = "`."""


class SaidValues:
    """Finds values that stand in the requests of all sessions, each in its own.

    A value is the longest text that stands in the request as words of its own. At least three
    sessions must have different ones. effects: what the sessions did, for the names of values.
    """

    def __init__(
        self,
        requests: Sequence[str],
        effects: Sequence[Iterable[TracedCall]],
        names: Names,
    ) -> None:
        self._requests, self._names = requests, names
        self._named: dict[tuple[str, ...], str] = {}
        self._written = [[text for call in own for text in texts(call.args)] for own in effects]
        found = [[*TOKEN.finditer(text, 0, LONGEST_REQUEST)] for text in requests]
        self._ends = [{one.end() for one in own if _ENDS.match(one.group()[-1])} for own in found]
        # By the first sign of each word, where it stands: most words of a text are in no request.
        self._words: list[dict[str, list[re.Match[str]]]] = []
        for own in found:
            by_sign: dict[str, list[re.Match[str]]] = {}
            for one in own:
                by_sign.setdefault(one.group()[0].lower(), []).append(one)
            self._words.append(by_sign)

    def at(self, values: Sequence[str], at: Sequence[int]) -> Iterator[tuple[str, ...]]:
        """Yield what stands at a position of each text and in its request: phrases, then words."""
        phrases = tuple(
            self._longest(number, text, start)
            for number, (text, start) in enumerate(zip(values, at, strict=True))
        )
        words = tuple(found.group() if (found := TOKEN.match(one)) else one for one in phrases)
        for said in dict.fromkeys((phrases, words)):
            if all(said) and len(set(said)) >= FEWEST:
                yield said

    def _longest(self, number: int, text: str, start: int) -> str:
        """Return the longest text from a position on that stands in a request, as whole words."""
        request, best = self._requests[number], ""
        if start and text[start - 1].isalnum() and text[start : start + 1].isalnum():
            return ""
        line = text[start : start + LONGEST_VALUE].partition("\n")[0]
        # A sentence begins with a capital, wherever its words stood in the request.
        for word in self._words[number].get(line[:1].lower(), ()):
            if not line.startswith(word.group()[1:], 1):
                continue
            first = word.start()
            length = 1 + len(shared_start([request[first + 1 : first + len(line)], line[1:]]))
            while length > len(best):
                inside = line[length - 1].isalnum() and line[length : length + 1].isalnum()
                if first + length in self._ends[number] and not inside:
                    best = line[:length]
                length -= 1
        return best

    def name_of(self, values: tuple[str, ...]) -> str:
        """Name an input: after the key that it is written behind, else after what it looks like."""
        if values not in self._named:
            self._named[values] = self._names.free(identifier(self._wanted_name(values)))
        return self._named[values]

    def _wanted_name(self, values: tuple[str, ...]) -> str:
        keys: Counter[str] = Counter()
        for value, written in zip(values, self._written, strict=True):
            found = {
                key[1].lower()
                for text in written
                for at in _places(text, value)
                if (key := _KEY.search(text[:at].rpartition("\n")[2]))
            }
            keys.update(found - STOP_WORDS)
        shared = [key for key, count in keys.most_common() if count == len(values)]
        return shared[0] if shared else _look(values)

    def are_all(self, inputs: Sequence[Sequence[str]]) -> bool:
        """Return whether the inputs hold every version, id and number that was said and written.

        One that was written, and that they don't hold, would be another explanation.
        """
        written = [_codes("\n".join(own)) for own in self._written]
        everywhere = set.intersection(*written)
        for number, request in enumerate(self._requests):
            known = {code for values in inputs for code in _codes(values[number])}
            if _codes(request) & written[number] - everywhere - known:
                return False
        return True


def shared_start(texts: Sequence[str]) -> str:
    """Return what all texts begin with."""
    first, last = min(texts), max(texts)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(one for one, _ in same)


def _codes(text: str) -> set[str]:
    return {one for one in TOKEN.findall(text) if re.search(r"\d", one)}


def worded_alike(requests: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the templates that at least three requests fit word by word, the most common first."""
    found = Counter(
        text
        for number, request in enumerate(requests)
        if (text := _masked(request, {name: own[number] for name, own in values.items()}))
    )
    return [text for text, count in found.most_common() if count >= FEWEST]


def _masked(request: str, values: Mapping[str, str]) -> str:
    """Return a request with names for its values; "" unless each value stands there once."""
    spans: list[tuple[int, int, str]] = []
    for name, value in values.items():
        places = [*_places(request, value)]
        if len(places) != 1:
            return ""
        spans.append((places[0], places[0] + len(value), name))
    made, end = "", 0
    for start, stop, name in sorted(spans):
        if start < end:
            return ""
        made += f"{escaped(request[end:start])}{{{{ {name} }}}}"
        end = stop
    return made + escaped(request[end:])


def _places(text: str, value: str) -> Iterator[int]:
    at = text.find(value)
    while at >= 0:
        yield at
        at = text.find(value, at + 1)


def _look(values: Sequence[str]) -> str:
    if all(map(_VERSION.fullmatch, values)):
        return "version"
    if all(map(_FILE.fullmatch, values)):
        return "file"
    kinds = {kind_of(value) for value in values}
    if len(kinds) == 1 and not kinds & {"text", "word", "code"}:
        return kinds.pop()
    return "note" if any(" " in value for value in values) else "name"
