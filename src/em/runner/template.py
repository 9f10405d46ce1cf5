"""Request templates: a text that is word for word a recorded request gives the inputs of a run.

`I am {email}. Please cancel {order_id}.` has two holes. `{who.email}` fills a part of an input,
`{note:4}` takes at most four words of letters, `{note:4+0,}` also digits and commas, `{note:4+}` of
any signs, `{who:2^}` only words that begin with a capital, as a name; between quotation marks each
takes any words, but no such mark. `{tongue|lower}` takes `French` for `french`, `{day|%d %B %Y}`
takes `3 May 2026`. A hole of a list takes its next element each time: a text without the words that
stand between two elements. `{express=true}` takes no words: it is what this wording says without a
word for it. Case, white space and a full stop at the end don't matter; everything else does: a
question is no order.

`{=9f86d081884c7d65}` limits a template to the text with this digest. Its holes say how long their
values are, `{email:=16}`, so it is read in one way. `{_:=3}` hides three characters of the text
that no input takes.

A text that can be read in two ways fits none. The fixed parts are placed as far left as possible,
then as far right, each in one pass over the text, which may be long and a stranger's. Unless both
are the same, other readings are tried too, up to a limit: those whose values have the types that
the holes take count.
"""

import hashlib
import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import msgspec

from em.errors import RoutineError
from em.values import json_schema
from em.values.canonical import Json, same
from em.values.times import read_date

LONGEST = 1_000_000
"""Characters of a request; a longer one fits no template."""
LONGEST_SEARCHED, MOST_HOLES = 10_000, 100
"""Characters and holes beyond which only one placement is looked for, not the right one of many."""
MOST_TRIED = 500
"""Values that are tried for the holes of a template; with more, a text can be read in many ways."""

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_SPACE = re.compile(r"\s+")
HIDDEN = ("_",)
"""The path of a hole that fills no input."""
_HOLE = re.compile(
    r"([^:|]*)(?:\|(lower|upper|%[^:|]+))?"
    r"(?::(?:([1-9][0-9]{0,3})(\^|\+(\S*))?|=([1-9][0-9]{0,6})))?"
)
_IN_WORDS = "-'\N{RIGHT SINGLE QUOTATION MARK}"
_TEXT = re.compile(r"=([0-9a-f]{16})")
_SETTING = re.compile(r"(\w+)=(true|false|null)")
_NUMBERS = {
    "integer": re.compile(r"[+-]?\d{1,300}", re.ASCII),
    "number": re.compile(r"[+-]?\d{1,300}(\.\d{1,300})?", re.ASCII),
}


class Hole(NamedTuple):
    """A hole of a template: the path of the input that it fills, and what it takes.

    limit: the most words; 0 is no limit. signs: what they may have beside letters; None for
    anything. is_name: its words begin with a capital. form: `lower` or `upper` if the input has
    another case than the text, the format of the text for a date. length: how many characters, if
    that is known; else 0.
    """

    path: tuple[str, ...]
    limit: int = 0
    signs: str | None = None
    form: str = ""
    length: int = 0
    is_name: bool = False

    def value(self, text: str) -> str | None:
        """Return what the hole makes of its text; None if it does not take it."""
        if self.form.startswith("%"):
            day = read_date(text, self.form)
            return None if day is None else day.isoformat()
        return text if not self.form else text.lower() if self.form == "lower" else text.upper()


class Template(NamedTuple):
    """The fixed parts of a template, plain and in lower case, and the holes between them.

    settings: inputs that the wording stands for, whatever is in the holes. digest: of the only text
    that it fits; empty for any.
    """

    fixed: tuple[str, ...]
    holes: tuple[Hole, ...]
    settings: tuple[tuple[str, bool | None], ...] = ()
    digest: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether it is known how long the values of all holes are."""
        return all(hole.length for hole in self.holes)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that its holes fill, or fill a part of."""
        names = [hole.path[0] for hole in self.holes if hole.path != HIDDEN]
        return tuple(dict.fromkeys([*names, *(name for name, _ in self.settings)]))

    def takes(self, number: int, value: str, around: "Around") -> bool:
        """Return whether a hole takes a value: as many words, and the signs, that it may have.

        In quotation marks it may have any. A single word may be in any case, and so may names in a
        text that has no capitals, or nothing else.
        """
        hole, words = self.holes[number], value.split()
        if not all(map(_is_quotation, self._marks(number))):
            if hole.limit and len(words) > hole.limit:
                return False
            if hole.signs is not None and not signs_of(value) <= {*hole.signs}:
                return False
            is_name = hole.is_name and around.is_cased and len(words) > 1
            if is_name and not all(map(is_capital, words)):
                return False
        return self.may_hold(number, value, around)

    def _marks(self, number: int) -> tuple[str, str]:
        """Return the signs before and behind a hole."""
        return self.fixed[number][-1:], self.fixed[number + 1][:1]

    def may_hold(self, number: int, value: str, around: "Around") -> bool:
        """Return whether a value may end where the hole ends: no end of its quotation is in it.

        What stands between the elements of a list stands in none of them.
        """
        own = around.between.get(self.holes[number].path[0], ())
        if own and any(words in _folded(_SPACE.sub(" ", value)) for words in own):
            return False
        marks = self._marks(number)
        return not all(map(_is_quotation, marks)) or not any(mark in value for mark in marks)


class Around(NamedTuple):
    """What is known beside a template.

    between: by the name of an input that is a list, the words that stand between its elements.
    is_cased: whether words of the text begin with a capital, and others don't.
    """

    between: Mapping[str, Collection[str]]
    is_cased: bool


def parse_template(text: str) -> Template:
    """Parse a template. Raise RoutineError where it can't be told what a hole takes."""
    fixed: list[str] = [""]
    holes: list[Hole] = []
    settings: dict[str, bool | None] = {}
    digest = ""
    for found in _PARTS.finditer(text):
        part, hole = found[0], found[1]
        if hole is not None and (setting := _SETTING.fullmatch(hole)) is not None:
            settings[setting[1]] = msgspec.json.decode(setting[2])
        elif hole is not None and (only := _TEXT.fullmatch(hole)) is not None:
            digest = only[1]
        elif hole is not None:
            named = _HOLE.fullmatch(hole)
            if named is None or not all(map(str.isidentifier, named[1].split("."))):
                raise RoutineError(f"a hole must be the name of an input, got {part!r}")
            signs = None if not named[3] or named[4] == "+" else named[5] or ""
            is_name = named[4] == "^"
            path, form = tuple(named[1].split(".")), named[2] or ""
            length = int(named[6] or 0)
            holes.append(Hole(path, int(named[3] or 0), signs, form, length, is_name))
            fixed.append("")
        elif part in ("{", "}"):
            raise RoutineError(f"there is a single {part!r}", fix=f"write {part * 2!r} for it")
        else:
            fixed[-1] += part.replace("{{", "{").replace("}}", "}")
    is_measured = all(hole.length for hole in holes)
    if not all(fixed[1:-1]) and not is_measured:
        raise RoutineError("two holes must have words or a space between them")
    words = [_SPACE.sub(" ", part) for part in fixed]
    words[0] = words[0].lstrip()
    words[-1] = words[-1][: _end_of(words[-1])]
    if not "".join(words).strip() and not digest:
        raise RoutineError("a template needs words beside its holes")
    if any(hole.length or hole.path == HIDDEN for hole in holes) and not (digest and is_measured):
        raise RoutineError("only a template of one text says how long its values are, all of them")
    return Template(
        fixed=tuple(map(_folded, words)),
        holes=tuple(holes),
        settings=tuple(settings.items()),
        digest=digest,
    )


def escaped(words: str) -> str:
    """Return words as they stand in a template."""
    return words.replace("{", "{{").replace("}", "}}")


def only_for(text: str, holes: Iterable[tuple[str, int, int]]) -> str:
    """Return a template that fits nothing but this text.

    holes: what each fills, with where its value starts and ends.
    """
    words, made, place = _Words(text), list[str](), 0
    for name, *edges in holes:
        start, end = map(words.plain_place, edges)
        made += [escaped(words.between(place, start)), f"{{{name}:={end - start}}}"]
        place = end
    return f"{''.join(made)}{escaped(words.between(place, len(words.plain)))} {{={words.digest}}}"


def signs_of(text: str) -> set[str]:
    """Return the signs of a text that are no letters; `0` stands for any digit."""
    return {
        "0" if sign.isdigit() else sign
        for sign in text
        if not (sign.isalpha() or sign.isspace() or unicodedata.combining(sign))
        if sign not in _IN_WORDS
    }


def is_capital(word: str) -> bool:
    """Return whether a word begins with a capital letter, and has small ones if it goes on."""
    return word[:1].isupper() and not word[1:].isupper()


def _end_of(text: str) -> int:
    """Return where a text ends without a full stop or exclamation marks, and white space."""
    end = len(text.rstrip())
    marks = end - len(text[:end].rstrip("!"))
    if not marks and text[:end].endswith(".") and not text[: end - 1].endswith("."):
        marks = 1
    return len(text[: end - marks].rstrip())


def _is_quotation(sign: str) -> bool:
    return bool(sign) and (sign in "\"'`" or unicodedata.category(sign) in ("Pi", "Pf"))


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> Template:
    return parse_template(text)


def plain_of(text: str) -> str:
    """Return a text as templates see it. All fixed parts of one that it fits stand in it."""
    return _Words(text).plain if len(text) <= LONGEST else ""


class Filling(NamedTuple):
    """What templates make of a text: its inputs, or None and the reason in words."""

    inputs: Json | None
    problem: str = ""


def fill(templates: Sequence[str], text: str, schema: Json | None = None) -> Json | None:
    """Return the inputs that a text gives, by the one template that it fits in one way; else None.

    schema: of all inputs. Values get the types of their inputs, and must fit.
    """
    return filling(templates, text, schema).inputs


def filling(templates: Sequence[str], text: str, schema: Json | None = None) -> Filling:
    """Do the same, and say why a text gives no inputs."""
    count = f"{len(templates)} template{'' if len(templates) == 1 else 's'}"
    none = Filling(None, f"the request fits none of {count}")
    if len(text) > LONGEST:
        return none
    words, found = _Words(text), list[Json]()
    known_by = {template: _parsed(template) for template in templates}
    around = Around(_words_between(known_by.values(), schema or {}), words.is_cased)
    own = [one for one, known in known_by.items() if known.digest == words.digest]
    for template in own or (one for one, known in known_by.items() if not known.digest):
        known = known_by[template]
        readings = _readings(known, words, schema, around)
        if readings is None or len(readings) > 1:
            return Filling(
                None, f"the request can be read in two ways by the template {template!r}"
            )
        inputs = (_inputs(known, values, schema, around) for values in readings)
        found += [one for one in inputs if one is not None]
    if not found:
        return none
    if any(one != found[0] for one in found):
        return Filling(None, f"the request fits several of {count}, with different inputs")
    return Filling(found[0])


def _words_between(templates: Iterable[Template], schema: Json) -> Mapping[str, set[str]]:
    """Return the words between the elements of lists, in all templates."""
    properties = json_schema.properties_of(schema)
    found = defaultdict[str, set[str]](set)
    for template in templates:
        begun: set[tuple[str, ...]] = set()
        for number, hole in enumerate(template.holes):
            name = hole.path[0]
            own = properties.get(name)
            if isinstance(own, dict) and own.get("type") == "array" and hole.path in begun:
                found[name].add(template.fixed[number])
                begun -= {other for other in begun if other[0] == name}
            begun.add(hole.path)
    return {name: {one for one in words if one.strip()} for name, words in found.items()}


class _Words:
    """A text with single spaces in lower case, and where each place of it is in the text itself."""

    def __init__(self, text: str) -> None:
        self._text = text
        begin = len(text) - len(text.lstrip())
        end = max(begin, _end_of(text))
        # By word: where it starts among single spaces, and where in the text.
        plain, starts, moved = [], [0], [begin]
        for space in _SPACE.finditer(text, begin, end):
            plain.append(text[moved[-1] : space.start()])
            starts.append(starts[-1] + len(plain[-1]) + 1)
            moved.append(space.end())
        plain.append(text[moved[-1] : end])
        self._starts, self._moved = starts, moved
        self.plain = _folded(" ".join(plain))

    @cached_property
    def digest(self) -> str:
        """What tells the text from others, whatever its case and white space."""
        return hashlib.sha256(self.plain.encode()).hexdigest()[:16]

    @cached_property
    def is_cased(self) -> bool:
        """Whether words begin with a capital, and others with a small letter."""
        signs = {self._text[place : place + 1] for place in self._moved}
        return any(map(str.isupper, signs)) and any(map(str.islower, signs))

    def between(self, start: int, end: int) -> str:
        """Return a part of the text as it was written."""
        return self._text[self._place(start) : self._place(end - 1) + 1] if start < end else ""

    def plain_place(self, place: int) -> int:
        """Return where a place of the text is among single spaces."""
        number = max(bisect_right(self._moved, place) - 1, 0)
        return min(self._starts[number] + max(place - self._moved[number], 0), len(self.plain))

    def _place(self, position: int) -> int:
        number = bisect_right(self._starts, position) - 1
        return self._moved[number] + position - self._starts[number]


def _folded(text: str) -> str:
    """Return a text in lower case; each character stays in its place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)


def _readings(
    template: Template, words: _Words, schema: Json | None, around: Around
) -> list[list[str]] | None:
    """Return the values of holes in each way that a text can be read; None if there are too many.

    Where there is more than one placement, those count whose values have the types of the holes.
    """
    text, (first, *rest) = words.plain, template.fixed
    if template.is_measured:
        return _measured(template, words)
    *inner, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return []
    start, end = len(first), len(text) - len(last)
    left = _placed(text, inner, start, end)
    if left is None:
        return []
    backwards = [part[::-1] for part in reversed(inner)]
    right = _placed(text[::-1], backwards, len(last), len(text) - start)
    assert right is not None  # what fits from the left fits from the right
    if left != [(len(text) - stop, len(text) - begin) for begin, stop in reversed(right)]:
        if len(text) > LONGEST_SEARCHED or len(template.holes) > MOST_HOLES:
            return None
        return _PlacementSearch(template, words, schema or {}, around).readings(start, end)
    edges = [start, *(edge for pair in left for edge in pair), end]
    return [[words.between(*pair).strip() for pair in zip(edges[::2], edges[1::2], strict=True)]]


def _measured(template: Template, words: _Words) -> list[list[str]]:
    """Return the values in the only text that such a template fits."""
    values, place = list[str](), 0
    for fixed, hole in zip(template.fixed, (*template.holes, None), strict=True):
        start = place + len(fixed)
        if words.plain[place:start] != fixed:
            return []
        place = start + (0 if hole is None else hole.length)
        values.append(words.between(start, place))
    return [values[:-1]] if place == len(words.plain) else []


class _PlacementSearch:
    """All ways to place the fixed parts of a template so that each hole may hold its value.

    How long recorded values were tells no way from another, but for a recorded text itself: `Porto`
    is a city, or `Ann Porto` is.
    """

    def __init__(self, template: Template, words: _Words, schema: Json, around: Around) -> None:
        self._parts, self._words = template.fixed[1:-1], words
        may_hold = template.takes if template.digest else template.may_hold
        self._may_hold = partial(may_hold, around=around)
        self._holes = [(hole, _schema_at(schema, hole.path)) for hole in template.holes]
        self._left = MOST_TRIED

    def readings(self, start: int, end: int) -> list[list[str]] | None:
        """Return the values of holes between two places, of each way; None if there are many."""
        found = [*self._from(0, start, end)]
        return found if self._left > 0 else None

    def _from(self, number: int, start: int, end: int) -> Iterator[list[str]]:
        for stop, following in self._stops(number, start, end):
            self._left -= 1
            if self._left <= 0:
                return
            value = self._words.between(start, stop).strip()
            if not value or not self._may_hold(number, value):
                continue
            hole, schema = self._holes[number]
            made = hole.value(value)
            if made is None or json_schema.misfit(schema, typed(made, schema)) is not None:
                continue
            if number == len(self._parts):
                yield [value]
            else:
                yield from ([value, *more] for more in self._from(number + 1, following, end))

    def _stops(self, number: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield where a hole may end, and where the next one begins."""
        if number == len(self._parts):
            yield end, end
            return
        part = self._parts[number]
        place = self._words.plain.find(part, start + 1, end)
        while place >= 0:
            yield place, place + len(part)
            place = self._words.plain.find(part, place + 1, end)


def _schema_at(schema: Json, path: Sequence[str]) -> Json:
    """Return the schema of the values that a hole takes."""
    for name in path:
        found = json_schema.properties_of(schema).get(name)
        schema = found if isinstance(found, dict) else {}
        items = schema.get("items")
        if schema.get("type") == "array" and isinstance(items, dict):
            schema = items
    return schema


def _placed(text: str, fixed: Sequence[str], start: int, end: int) -> list[tuple[int, int]] | None:
    """Return where parts stand that follow each other with something between, leftmost.

    start, end: of what lies between the first and the last part. None if they don't fit.
    """
    found = []
    for part in fixed:
        start = _beyond_word(text, start, end)
        place = text.find(part, start, end) if start >= 0 else -1
        if place < 0:
            return None
        found.append((place, place + len(part)))
        start = place + len(part)
    return found if _beyond_word(text, start, end) >= 0 else None


def _beyond_word(text: str, start: int, end: int) -> int:
    """Return the place behind the first sign that is no space: a hole holds at least one."""
    if start < end and text[start] == " ":
        start += 1  # there are single spaces only
    return start + 1 if start < end else -1


def _inputs(
    template: Template, values: list[str], schema: Json | None, around: Around
) -> Json | None:
    """Return the values of holes as inputs; None if a hole or the schema does not take one."""
    if not all(template.takes(number, value, around) for number, value in enumerate(values)):
        return None
    said: dict[tuple[str, ...], list[str]] = {}
    for hole, value in zip(template.holes, values, strict=True):
        if hole.path == HIDDEN:
            continue
        made = hole.value(value)
        if made is None:
            return None
        said.setdefault(hole.path, []).append(made)
    inputs: Json = dict(template.settings)
    for path, texts in said.items():
        if not _put(inputs, path, texts, schema or {}):
            return None
    if schema is None:
        return inputs
    # Inputs that the template does not have may come otherwise.
    unfit = json_schema.misfit(json_schema.partial(schema), inputs)
    return inputs if unfit is None else None


def _put(holder: Json, path: Sequence[str], texts: list[str], schema: Json) -> bool:
    """Put the texts of a hole at its path; return False if they don't belong together there."""
    name, *rest = path
    own = json_schema.properties_of(schema).get(name, {})
    if own.get("type") == "array":
        return _put_list(holder, name, rest, texts, own)
    if rest:
        inner = holder.setdefault(name, {})
        return isinstance(inner, dict) and _put(inner, rest, texts, own)
    if name in holder or any(not same(text, texts[0]) for text in texts):
        return False
    holder[name] = typed(texts[0], own)
    return True


def _put_list(holder: Json, name: str, rest: list[str], texts: list[str], schema: Json) -> bool:
    """Put one text into each element of a list; a single one may be the whole list as JSON."""
    items = schema.get("items")
    items = items if isinstance(items, dict) else {}
    if not rest:
        whole = typed(texts[0], schema)
        is_whole = len(texts) == 1 and isinstance(whole, list)
        holder[name] = whole if is_whole else [typed(text, items) for text in texts]
        return True
    elements = holder.setdefault(name, [{} for _ in texts])
    return len(elements) == len(texts) and all(
        isinstance(element, dict) and _put(element, rest, [text], items)
        for element, text in zip(elements, texts, strict=True)
    )


def typed(text: str, schema: Json) -> Any:
    """Return a text as the value that an input takes; as it is if it can't be one."""
    options = schema.get("enum", [schema["const"]] if "const" in schema else ())
    for option in options if isinstance(options, list) else ():
        if same(text, option) or (not isinstance(option, str) and text == _as_json(option)):
            return option
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind in _NUMBERS and _NUMBERS[kind].fullmatch(text):
            return float(text) if "." in text else int(text)
        if kind == "boolean" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind in ("array", "object"):
            try:
                return msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                continue
    return text


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
