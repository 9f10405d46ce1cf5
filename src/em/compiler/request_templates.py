"""Request templates of a routine: its recorded requests, with holes where its inputs stand.

A request becomes a template only if it says every input that was given, to the letter and as whole
words, and if the template reads it back to those inputs. The words between the holes stay as they
were, but for values: an id or a value of a record that only one subject's requests have is that
person's own. It is never stored in a template.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from em.compiler.example import Example
from em.compiler.places import is_code, is_scalar
from em.compiler.requested import stands_in
from em.errors import RoutineError
from em.runner.template import fill, parse_template
from em.values.canonical import Json, same
from em.values.json_schema import properties_of
from em.values.leaves import texts

MOST = 40
"""Templates of one routine: the wordings that were recorded most often."""
FEWEST_SUBJECTS = 2
"""Subjects or tasks whose requests must share a value before a template has it as a word."""
_BEFORE, _AFTER = r"(?<!\w)(?<!\w[-./@:+'])", r"(?!\w)(?![-./@:+']\w)"
"""Whole words: `10` stands in `10 people`, not in `2026-10-02`."""
_LIMITS = frozenset({"enum", "const", "pattern", "format"})
"""Words of a schema that say what a text must be."""
_CHUNK = re.compile(r"[^\s,;!?\"()]+")


def request_templates(
    examples: Sequence[Example], schema: Json, others: Collection[str] = ()
) -> list[str]:
    """Return the templates of a kind of task.

    schema: of its inputs. others: requests for other kinds of task; no template may fit one.
    """
    widest: dict[str, int] = defaultdict(int)
    for one in examples:
        for hole, text in _texts_in(one.inputs):
            widest[hole] = max(widest[hole], len(text.split()))
    made = (_template(one, examples, schema, widest) for one in examples)
    found = Counter(one for one in made if one is not None)
    chosen = (
        text for text, _ in found.most_common() if not _misreads(text, examples, others, schema)
    )
    return [*islice(chosen, MOST)]


class Said(NamedTuple):
    """A value that a request has to say: its hole, how it may be written, and its schema.

    number: of the element of a list that it belongs to; None outside of lists.
    """

    hole: str
    forms: Sequence[str]
    schema: Json
    number: int | None


def _template(
    example: Example, examples: Sequence[Example], schema: Json, widest: Mapping[str, int]
) -> str | None:
    """Return a request with holes for its inputs; None if it can't be read back to them.

    widest: by hole, the most words that were recorded there.
    """
    said = _all_said(example, schema)
    is_fixed = not schema.get("properties") and not example.inputs
    if not example.request.strip() or not (said or is_fixed):
        return None
    parts = [*_cut(example.request, said)] if said else [(example.request, None)]
    if not _says_all(parts, said):
        return None
    words = "\n".join(words for words, value in parts if value is None)
    if any(_is_private(value, example, examples) for value in _values_in(words, example)):
        return None
    made = "".join(
        _escaped(words) if value is None else _hole(value, widest) for words, value in parts
    )
    try:
        parse_template(made)
    except RoutineError:
        return None
    return made if _reads(made, example, schema) else None


def _reads(template: str, example: Example, schema: Json) -> bool:
    """Return whether a template reads a recorded request to its own inputs."""
    found = fill([template], example.request, schema)
    return found is not None and same(found, _given(example.inputs, schema, example.request))


def _misreads(
    template: str, examples: Sequence[Example], others: Collection[str], schema: Json
) -> bool:
    """Return whether a template reads a recorded request to anything else than was recorded."""
    for one in examples:
        found = fill([template], one.request, schema)
        if found is not None and not same(found, _given(one.inputs, schema, one.request)):
            return True
    return any(fill([template], one, schema) is not None for one in others)


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


def _all_said(example: Example, schema: Json) -> list[Said]:
    """Return the values that a request has to say; nothing if it can't, or if two look alike."""
    found = [*_said(_given(example.inputs, schema, example.request), schema, (), None)]
    forms = [form.lower() for one in found for form in one.forms]
    is_clear = len({*forms}) == len(forms) and all(one.forms for one in found)
    return found if is_clear and all(map(str.strip, forms)) else []


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
        yield Said(".".join(path), _forms(value) if is_sayable and is_named else [], schema, number)


def _forms(value: Any) -> list[str]:
    if isinstance(value, float):
        return [*dict.fromkeys((f"{value:.2f}", str(value), f"{value:g}"))]
    return [str(value)]


def _cut(request: str, said: Sequence[Said]) -> Iterator[tuple[str, Said | None]]:
    """Yield the parts of a request: words, or the text of a value with the value."""
    values = {form: one for one in said for form in one.forms}
    longest = sorted(values, key=len, reverse=True)
    pattern = re.compile(f"{_BEFORE}(?:{'|'.join(map(re.escape, longest))}){_AFTER}")
    start = 0
    for match in pattern.finditer(request):
        if match.start() > start:
            yield request[start : match.start()], None
        yield match[0], values[match[0]]
        start = match.end()
    if start < len(request):
        yield request[start:], None


def _says_all(parts: Sequence[tuple[str, Said | None]], said: Sequence[Said]) -> bool:
    """Return whether a request says every value, and the elements of lists once and in order."""
    found = [one for _, one in parts if one is not None]
    for hole in {one.hole for one in said}:
        wanted = [one.number for one in said if one.hole == hole]
        here = [one.number for one in found if one.hole == hole]
        if not here or wanted not in ([None], here):
            return False
    return True


def _hole(value: Said, widest: Mapping[str, int]) -> str:
    """Return a hole; of words that nothing else limits it takes no more than were recorded."""
    is_limited = value.schema.keys() & _LIMITS or value.schema.get("type", "string") != "string"
    if is_limited or value.hole not in widest:
        return f"{{{value.hole}}}"
    return f"{{{value.hole}:{widest[value.hole]}}}"


def _texts_in(value: Any, hole: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of inputs, each with the name of its hole."""
    if isinstance(value, str):
        yield hole, value
    elif isinstance(value, list):
        for one in value:
            yield from _texts_in(one, hole)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _texts_in(one, f"{hole}.{name}" if hole else name)


def _values_in(words: str, example: Example) -> Iterator[str]:
    """Yield what words say that is a value: ids, and texts that stand in the recording."""
    yield from (chunk.rstrip(".:'") for chunk in _CHUNK.findall(words) if is_code(chunk))
    recorded = [example.inputs, *([call.args, call.result] for call in example.calls)]
    folded = words.casefold()
    known = {value for value in texts(recorded) if value.strip()}
    for value in sorted(known):
        whole = f"{_BEFORE}{re.escape(value)}{_AFTER}"
        if value.casefold() in folded and re.search(whole, words, re.IGNORECASE):
            yield value


def _is_private(value: str, example: Example, examples: Sequence[Example]) -> bool:
    """Return whether the requests of one subject only have a value."""
    pattern = re.compile(f"{_BEFORE}{re.escape(value)}{_AFTER}", re.IGNORECASE)
    sharing = {
        one.subject or one.name or f"#{number}"
        for number, one in enumerate(examples)
        if one is example or pattern.search(one.request)
    }
    return len(sharing) < FEWEST_SUBJECTS


def _escaped(words: str) -> str:
    return words.replace("{", "{{").replace("}", "}}")
