"""Request templates of a routine: its recorded requests, with holes where its inputs stand.

A request becomes a template only if it says every input that was given, to the letter and as whole
words, and if the template reads it back to those inputs. A yes or no is said by the wording as a
whole, if it has the name of the input, if other requests leave that input out, or if all recordings
in that wording agree. A request whose wording is not sure, or says something else of another
request, is a template of its own text only: what was recorded once is understood for ever.

The words between the holes stay as they were, but for values: an id or a value of a record that
only one subject's requests have is that person's own, and means the same in no other request. Such
a request is a template of its own text too, in which those values are hidden.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from em.compiler.example import Example
from em.compiler.places import is_code, is_scalar
from em.compiler.requested import is_named, stands_in
from em.errors import RoutineError
from em.runner.template import escaped, fill, is_capital, only_for, parse_template, signs_of
from em.values.canonical import Json, same
from em.values.json_schema import limits_text, properties_of
from em.values.leaves import texts
from em.values.times import read_date, written_dates

MOST = 40
"""Templates of one routine: the wordings that were recorded most often."""
FEWEST_SUBJECTS = 2
"""Subjects or tasks whose requests must share a value before a template has it as a word."""
_BEFORE, _AFTER = r"(?<!\w)(?<!\w[-./@:+'])", r"(?!\w)(?![-./@:+']\w)"
"""Whole words: `10` stands in `10 people`, not in `2026-10-02`."""
_WHOLE, _LOOSE = (_BEFORE, _AFTER), (r"(?<!\w)", r"(?!\w)")
"""What stands around a value; in a request that says all of them only so, `Ann` in `Ann's` too."""
_FINE = (
    rf"(?:{_BEFORE}|(?<=[^\W\d])(?=\d))",
    rf"(?:{_AFTER}|(?<=\d)(?=[^\W\d]))",
)
"""The same for digits beside a letter: `1.2` in `v1.2`, where a schema tells them from words."""
_CHUNK = re.compile(r"[^\s,;!?\"()]+")


def request_templates(
    examples: Sequence[Example], schema: Json, confirmed: Collection[str] = ()
) -> list[str]:
    """Return the templates of a kind of task.

    schema: of its inputs. confirmed: those that must agree with what is read before anything is
    written, so that their holes need no limit.
    """
    limits = {hole: one for hole, one in _limits(examples, schema).items() if hole not in confirmed}
    made = [_wording(one, examples, schema, limits) for one in examples]
    # What the words don't name is known by recordings in the same words, which must agree.
    told = Counter((one.text, one.settings) for one in made if one is not None)
    several = Counter(text for text, _ in told)
    sure = [
        one
        for one in made
        if one is not None
        if one.is_sure
        or (
            several[one.text] == 1
            and (one.is_asked or told[one.text, one.settings] >= FEWEST_SUBJECTS)
        )
    ]
    found = [text for text, _ in Counter(one.text for one in sure).most_common()]
    chosen = (text for text in found if not _misreads(text, examples, schema))
    kept = [*islice(chosen, MOST)]
    # What was recorded stays understood, though its wording may say something else too.
    for one in examples:
        own = "" if len(kept) >= MOST or _reads(kept, one, schema) else _own(one, examples, schema)
        if own and _reads([own], one, schema) and not _misreads(own, examples, schema):
            kept.append(own)
    return kept


class Wording(NamedTuple):
    """A template that one recording gives.

    is_sure: whether its words name all that it sets. is_asked: whether other requests leave out
    what its words don't name, so that somebody must have asked for it here. settings: what no word
    stands for.
    """

    text: str
    is_sure: bool
    is_asked: bool
    settings: str


class Said(NamedTuple):
    """A value that a request has to say: its hole and its schema.

    forms: how it may be written, each with the format that its hole needs for that.

    number: of the element of a list that it belongs to; None outside of lists.
    """

    hole: str
    forms: Mapping[str, str]
    schema: Json
    number: int | None


Part = tuple[str, Said | None]
"""Words of a request, or the text of a value and the value."""


class Cut(NamedTuple):
    """A request with its values cut out. settings: what no word stands for, as JSON."""

    parts: Sequence[Part]
    settings: Mapping[str, str]

    @property
    def places(self) -> list[tuple[int, str, Said | None]]:
        """Where each part starts in the request."""
        starts = accumulate((len(words) for words, _ in self.parts), initial=0)
        return [(start, *part) for start, part in zip(starts, self.parts, strict=False)]


def cut_out(example: Example, schema: Json) -> Cut | None:
    """Return a request without its values; None if it does not say all of them."""
    settings, rest = _settings(_given(example.inputs, schema, example.request))
    said = _all_said(rest, schema)
    is_fixed = not rest and not said
    if not example.request.strip() or not (said or is_fixed):
        return None
    parts: list[Part] = [(example.request, None)]
    if said:
        fine = (_FINE,) if all(limits_text(one.schema) for one in said) else ()
        ways = ([*_cut(example.request, said, *around)] for around in (*fine, _WHOLE, _LOOSE))
        parts = next((way for way in ways if _says_all(way, said)), [])
    return Cut(parts, settings) if parts else None


def _wording(
    example: Example, examples: Sequence[Example], schema: Json, limits: Mapping[str, str]
) -> Wording | None:
    """Return a request with holes for its inputs; None if it has other values or is misread.

    limits: by hole, what texts were recorded there.
    """
    cut = cut_out(example, schema)
    if cut is None or any(_private(cut, example, examples)):
        return None
    words = "\n".join(words for words, value in cut.parts if value is None)
    texts = [
        escaped(words) if value is None else _hole(value, words, limits)
        for words, value in cut.parts
    ]
    told = _told(cut.settings)
    made = f"{''.join(texts).rstrip()} {told}".rstrip()
    try:
        parse_template(made)
    except RoutineError:
        return None
    if not _reads([made], example, schema):
        return None
    open_ = {name for name, text in cut.settings.items() if text != "null"}
    unnamed = {name for name in open_ if not _is_told(name, words)}
    left_out = all(any(one.inputs.get(name) is None for one in examples) for name in unnamed)
    return Wording(made, not unnamed, left_out, told)


def _own(example: Example, examples: Sequence[Example], schema: Json) -> str:
    """Return a template of one text: values that no input takes are hidden. Empty if it can't be.

    An id, or what only this person's records have, means the same in no other request.
    """
    cut = cut_out(example, schema)
    if cut is None:
        return ""
    holes = [
        (_named(value, text), start, start + len(text))
        for start, text, value in cut.places
        if value is not None
    ]
    hidden = [("_", *edges) for edges in _private(cut, example, examples)]
    made = only_for(example.request, sorted([*holes, *hidden], key=itemgetter(1)))
    return f"{made} {_told(cut.settings)}".rstrip()


def _told(settings: Mapping[str, str]) -> str:
    return " ".join(f"{{{name}={text}}}" for name, text in settings.items())


def _is_told(name: str, words: str) -> bool:
    """Return whether a wording has each word of a name: "as a voucher" for `as_voucher`."""
    return all(is_named((word,), words) for word in name.split("_") if word)


def _settings(inputs: Json) -> tuple[dict[str, str], Json]:
    """Return the inputs that no word stands for, as JSON, and the others."""
    bare = {name: one for name, one in inputs.items() if one is None or isinstance(one, bool)}
    rest = {name: one for name, one in inputs.items() if name not in bare}
    return {name: msgspec.json.encode(one).decode() for name, one in bare.items()}, rest


def _reads(templates: Sequence[str], example: Example, schema: Json) -> bool:
    """Return whether templates read a recorded request to its own inputs."""
    found = fill(templates, example.request, schema)
    return found is not None and same(found, _given(example.inputs, schema, example.request))


def _misreads(template: str, examples: Sequence[Example], schema: Json) -> bool:
    """Return whether a template reads a recorded request to anything else than was recorded."""
    for one in examples:
        found = fill([template], one.request, schema)
        if found is not None and not same(found, _given(one.inputs, schema, one.request)):
            return True
    return False


def _given(inputs: Any, schema: Any, request: str) -> Any:
    """Return the inputs that the routine takes and that a request has to say.

    What is the same without being given need not be said; where it is said, it is an input too.
    """
    if isinstance(inputs, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        return [_given(one, items, request) for one in inputs]
    properties = properties_of(schema)
    if not isinstance(inputs, dict) or not properties:
        return inputs
    return {
        name: _given(inputs[name], one, request)
        for name, one in properties.items()
        if name in inputs
        if not ("default" in one and same(one["default"], inputs[name]))
        or stands_in(inputs[name], request)
    }


def _all_said(inputs: Json, schema: Json) -> list[Said]:
    """Return the values that a request has to say.

    Nothing if it can't, or if the values of two holes look alike: it is not known which is which.
    """
    found = [*_said(inputs, schema, (), None)]
    forms = {(form.lower(), one.hole) for one in found for form in one.forms}
    is_clear = len({form for form, _ in forms}) == len(forms) and all(one.forms for one in found)
    return found if is_clear and all(form.strip() for form, _ in forms) else []


def _said(value: Any, schema: Any, path: tuple[str, ...], number: int | None) -> Iterator[Said]:
    schema = schema if isinstance(schema, dict) else {}
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _said(one, properties_of(schema).get(name), (*path, name), number)
    elif isinstance(value, list) and number is None and value:
        for place, one in enumerate(value):
            yield from _said(one, schema.get("items"), path, place)
    else:
        is_sayable = is_scalar(value) and value is not None and not isinstance(value, bool)
        is_named = all(map(str.isidentifier, path))
        yield Said(".".join(path), _forms(value) if is_sayable and is_named else {}, schema, number)


def _forms(value: Any) -> dict[str, str]:
    """Return how a value may be written, each with the format that its hole needs."""
    if isinstance(value, float):
        return dict.fromkeys((f"{value:.2f}", str(value), f"{value:g}"), "")
    day = read_date(value, "%Y-%m-%d") if isinstance(value, str) else None
    return {str(value): "", **({} if day is None else written_dates(day))}


def _cut(request: str, said: Sequence[Said], before: str, behind: str) -> Iterator[Part]:
    """Yield the parts of a request. before, behind: what may stand around a value.

    A value that elements of a list share is said by them in turn. A member of an enumeration may be
    written in another case, and so may a value in lower or upper case that is not said otherwise.
    """
    values: dict[str, list[Said]] = {}
    for one in reversed(said):
        for form in one.forms:
            values.setdefault(form, []).append(one)
    longest = sorted(values, key=len, reverse=True)
    members = {
        form.lower(): form
        for form in longest
        if "enum" in values[form][0].schema
        or (form not in request and form in (form.lower(), form.upper()))
    }
    wanted = "|".join(
        f"(?i:{re.escape(form)})" if form.lower() in members else re.escape(form)
        for form in longest
    )
    pattern = re.compile(f"{before}(?:{wanted}){behind}")
    start = 0
    for match in pattern.finditer(request):
        if match.start() > start:
            yield request[start : match.start()], None
        text = match[0]
        sharing = values[text if text in values else members[text.lower()]]
        yield match[0], sharing.pop() if len(sharing) > 1 else sharing[0]
        start = match.end()
    if start < len(request):
        yield request[start:], None


def _says_all(parts: Sequence[Part], said: Sequence[Said]) -> bool:
    """Return whether a request says every value, and the elements of lists once and in order."""
    found = [one for _, one in parts if one is not None]
    for hole in {one.hole for one in said}:
        wanted = [one.number for one in said if one.hole == hole]
        here = [one.number for one in found if one.hole == hole]
        if not here or wanted not in ([None], here):
            return False
    return True


def _named(value: Said, text: str) -> str:
    """Return what a hole fills, with the form of the text that stands there for the value."""
    if form := value.forms.get(text, ""):
        return f"{value.hole}|{form}"
    if "enum" in value.schema or text in value.forms:
        return value.hole
    return f"{value.hole}|{'lower' if text.lower() in value.forms else 'upper'}"


def _hole(value: Said, text: str, limits: Mapping[str, str]) -> str:
    """Return a hole; where nothing else limits its texts, they must be like the recorded ones.

    text: what stands in the request for the value.
    """
    hole = _named(value, text)
    if _is_limited(value.schema) or value.hole not in limits:
        return f"{{{hole}}}"
    return f"{{{hole}:{limits[value.hole]}}}"


def _is_limited(schema: Json) -> bool:
    """Return whether a schema says what a text must be, or that it is none."""
    kinds = schema.get("type", "string")
    is_text = "string" in (kinds if isinstance(kinds, list) else [kinds])
    return limits_text(schema) or not is_text


def _limits(examples: Sequence[Example], schema: Json) -> dict[str, str]:
    """Return by hole what texts were recorded there."""
    texts = defaultdict[str, list[str]](list)
    for example in examples:
        for one in _said(example.inputs, schema, (), None):
            texts[one.hole] += islice(one.forms, 1)
    return {hole: _limit(held) for hole, held in texts.items() if held}


def _limit(recorded: Sequence[str]) -> str:
    """Return what a hole takes: as many words, and the signs, that were recorded."""
    most = max(len(text.split()) for text in recorded)
    signs = "".join(sorted({sign for text in recorded for sign in signs_of(text)} - {*"{}"}))
    if not signs:
        are_names = all(is_capital(one) for text in recorded for one in text.split())
        return f"{most}^" if are_names and most > 1 else f"{most}"
    return "1+" if most == 1 else f"{most}+{signs}"  # the signs of one word end nothing


def _private(cut: Cut, example: Example, examples: Sequence[Example]) -> Iterator[tuple[int, int]]:
    """Yield where a request says a value that no input takes and only one subject's requests have.

    That is an id, or a text that stands in the recording.
    """
    recorded = [example.inputs, *([call.args, call.result] for call in example.calls)]
    known = {value for value in texts(recorded) if value.strip()}
    reached = 0
    for begin, words, value in cut.places:
        if value is not None:
            continue
        folded = words.casefold()
        found = [_edges(one) for one in _CHUNK.finditer(words) if is_code(one[0])]
        for one in known:
            if one.casefold() in folded:
                whole = f"{_BEFORE}{re.escape(one)}{_AFTER}"
                found += [it.span() for it in re.finditer(whole, words, re.IGNORECASE)]
        for start, end in sorted(found, key=lambda edges: (edges[0], -edges[1])):
            if begin + start >= reached and _is_private(words[start:end], example, examples):
                reached = begin + end
                yield begin + start, reached


def _edges(chunk: re.Match[str]) -> tuple[int, int]:
    """Return where a chunk of a text starts and ends without the punctuation behind it."""
    return chunk.start(), chunk.start() + len(chunk[0].rstrip(".:'"))


def _is_private(value: str, example: Example, examples: Sequence[Example]) -> bool:
    """Return whether the requests of one subject only have a value, and no call of others."""
    pattern = re.compile(f"{_BEFORE}{re.escape(value)}{_AFTER}", re.IGNORECASE)
    sharing = {
        one.subject or one.name or f"#{number}"
        for number, one in enumerate(examples)
        if one is example
        or pattern.search(one.request)
        or value in texts([call.args for call in one.calls])
    }
    return len(sharing) < FEWEST_SUBJECTS


# --- description ----------------------------------------------------------------------------------

MOST_WORDS = 40
"""Words of a description."""
GAP = "…"
_HOLE = re.compile(r"\{([A-Za-z_][\w.]*)(?::[^{}]*)?\}")
_OWN = re.compile(r"\{\{|\}\}|\{\w*=[^{}]*\}")
"""Matches what a template has that is neither a word nor a hole."""
_AROUND = ".,;:!?\"'()`"


def described(document: Json, said: Sequence[tuple[str, str]]) -> Json:
    """Return a routine with a description, if its recorded requests have words in common.

    A word that only one person's requests have may be personal, and it does not say what all of
    them are about. It becomes a gap: `bump … to {version} and tag the release`.

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
