"""Requirements: what must hold of results before the next write, beside what they were.

From all recordings of a behaviour: what a result must look like (the learner's schema, in which
nothing new may stand), what it repeats of the task, of its call and of earlier results, and on
which side of each other numbers and dates were.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from em.behaviour.likeness import is_one_of_few
from em.behaviour.task import as_expression, literal_text, reference
from em.compiler.calls import words_of
from em.compiler.draft import Recorded
from em.compiler.evidence import ENOUGH_TO_ACT, information, is_small
from em.compiler.places import Place, at, is_code, is_number, is_scalar, is_word, plain
from em.values.canonical import Json, same
from em.values.leaves import is_by_id, leaves
from em.values.times import is_date

MOST = 100
"""Relations of one call."""
MOST_DATES = 8
"""Dates of one result that are compared with others."""
LONGEST_TEXT = 2_000
"""Of a longer text only the type is expected."""
MOST_KNOWN = 500
"""Known values that are looked for in texts."""
_FREE = re.compile(r"\S*\d\S*")


class Recordings:
    """The recordings of a behaviour, as relations are looked for in them.

    names: what each call saves. args: the templates of each. asks: whether each was made to know
    something; reads: whether for that alone.
    """

    def __init__(
        self,
        recordings: Sequence[Recorded],
        names: Sequence[str],
        args: Sequence[Json],
        asks: Sequence[bool],
        reads: Sequence[bool],
    ) -> None:
        self._all, self._names, self._args = recordings, names, args
        self._asks, self._reads = asks, reads
        self._calls = recordings[-1].calls
        self._inputs = [(place, value) for place, value in plain(recordings[-1].inputs) if place]

    def relations(self, number: int) -> list[str]:
        """Return what fields of a result repeat: of the call, of the task, of earlier results."""
        found = []
        for place, value in plain(self._result(number)):
            other = self._repeated(number, place, value)
            if other:
                found.append(f"{self._text(number, place)} == {other}")
        return [*found, *self._dates(number)][:MOST]

    def _result(self, number: int) -> Any:
        return self._calls[number].result

    def _text(self, number: int, place: Place) -> str:
        return reference(self._names[number], tuple(map(str, place)))

    def _holds(self, number: int, place: Place, other: Any) -> bool:
        """Return whether a field was equal to another value in each recording."""
        return all(same(at(one.calls[number].result, place), other(one)) for one in self._all)

    def _repeated(self, number: int, place: Place, value: Any) -> str:
        if value is None or isinstance(value, bool) or value == "":
            return ""
        own = [(where, one) for where, one in plain(self._calls[number].args) if same(one, value)]
        own.sort(key=lambda row: row[0][-1:] != place[-1:])
        for where, _ in own[:1]:
            is_told = where[-1:] == place[-1:] or information(value) >= ENOUGH_TO_ACT
            if is_told and self._holds(
                number, place, lambda r, w=where: at(r.calls[number].args, w)
            ):
                return _part(self._args[number], where)
        if is_small(value):
            return ""
        for where, one in self._inputs:
            if same(one, value) and self._holds(number, place, lambda r, w=where: at(r.inputs, w)):
                return reference(str(where[0]), tuple(map(str, where[1:])))
        is_telling = is_number(value) or is_code(value) or is_word(value)
        for call in range(number) if self._reads[number] and is_telling else ():
            for where, one in plain(self._result(call)):
                if same(one, value) and self._holds(
                    number, place, lambda r, c=call, w=where: at(r.calls[c].result, w)
                ):
                    return self._text(call, where)
        return ""

    def _dates(self, number: int) -> Iterator[str]:
        """Yield on which side of other dates those of a result are."""
        own = [(place, one) for place, one in plain(self._result(number)) if is_date(one)]
        others = [(reference(str(p[0]), tuple(map(str, p[1:]))), one) for p, one in self._inputs]
        for call in range(number):
            found = [(self._text(call, p), one) for p, one in plain(self._result(call))]
            others += [row for row in found if is_date(row[1])][:MOST_DATES]
        for place, date in own[:MOST_DATES]:
            for text, one in others:
                if is_date(one) and len(one) == len(date) and one != date:
                    yield f"{self._text(number, place)} {'<=' if date < one else '>='} {text}"

    def limits(self, number: int) -> list[str]:
        """Return on which side of the numbers that were read those are that a write takes.

        A number that a read was made with is an id. The length of a list has a limit whose name
        has a word of the list's name.
        """
        asked = {str(leaf) for call in self._calls[:number] for _, leaf in leaves(call.args)}
        acted = [
            (_part(self._args[number], place), value)
            for place, value in plain(self._calls[number].args)
            if place and (is_number(value) or is_date(value)) and str(value) not in asked
        ]
        found = []
        for call in range(number):
            if not self._asks[call]:
                continue
            for place, value in plain(self._result(call)):
                text = self._text(call, place)
                for other, own in acted:
                    if not _is_comparable(own, value) or text in other or other in text:
                        continue
                    if not self._reads[call] and self._names[call] in other:
                        continue  # what a write made is compared with what was read
                    found.append(f"{text} {'>=' if value > own else '<='} {other}")
                if is_number(value) and place:
                    found += self._lengths(number, str(place[-1]), text, value)
            found += self._elements(number, call)
        return found[:MOST]

    def _elements(self, number: int, call: int) -> Iterator[str]:
        """Yield that what a write takes still stands in a list, and what its record must be like.

        Of the record only states are looked at: yes or no, nothing, a word, and how much there is.
        """
        acted = [
            (_part(self._args[number], place), value)
            for place, value in plain(self._calls[number].args)
            if not is_small(value) and is_scalar(value)
        ]
        for place, items in _lists(self._result(call)):
            text = self._text(call, place)
            for own, value in acted:
                is_chosen = text in own
                if not is_chosen and any(same(item, value) for item in items):
                    yield f"{own} in {text}"
                fields = dict.fromkeys(
                    f for item in items for f, v in plain(item) if same(v, value)
                )
                for field in fields if len(fields) == 1 else ():
                    path = literal_text(".".join(map(str, field)))
                    if not is_chosen:
                        yield f"{own} in every({text}, {path})"
                    held = [item for item in items if same(at(item, field), value)]
                    if len(held) == 1 and len(field) == 1 and str(field[0]).isidentifier():
                        record = f"only({text}, {field[0]}={own})"
                        yield from _states(record, held[0], field)

    def _lengths(self, number: int, name: str, text: str, limit: Any) -> Iterator[str]:
        words = {*words_of(name)}
        for call in range(number):
            for place, items in _lists(self._result(call)) if self._asks[call] else ():
                if place and len(words) > 1 and not words.isdisjoint(words_of(place[-1])):
                    sign = ">=" if len(items) >= limit else "<="
                    yield f"len({self._text(call, place)}) {sign} {text}"


def _is_comparable(one: Any, other: Any) -> bool:
    if is_number(one) and is_number(other):
        return bool(one != other)
    return is_date(one) and is_date(other) and len(one) == len(other) and one != other


def _states(record: str, item: Json, but: Place) -> Iterator[str]:
    """Yield what the fields of a record must be that may be states."""
    for place, value in plain(item):
        text = reference(record, tuple(map(str, place)))
        if place == but:
            continue
        if is_number(value) and value > 0:
            yield f"{text} > 0"
        elif value is None or isinstance(value, bool) or value in ("", 0) or is_word(value):
            yield f"{text} == {literal_text(value)}"


def _lists(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    if isinstance(value, list):
        yield place, value
    elif isinstance(value, dict) and not is_by_id(value):
        for name, one in value.items():
            yield from _lists(one, (*place, str(name)))


def _part(template: Any, place: Place) -> str:
    """Return the expression of a part of an argument."""
    rest = [*place]
    while rest and isinstance(template, dict):
        template = template[rest.pop(0)]
    own = as_expression(template)
    if not rest:
        return own
    return reference(own if re.fullmatch(r"[\w.]+", own) else f"({own})", tuple(map(str, rest)))


# --- what a result must look like -----------------------------------------------------------------


def schema_of(
    results: Sequence[Any], given: Sequence[Any], known: Sequence[Any], *, is_asked: bool
) -> Json | None:
    """Return the JSON Schema of what a call must return again; None if anything will do.

    given: by recording, what the task and the call gave. known: what else there was; as a part of
    a text it may differ, as a whole text only what was given. is_asked: the call asked about
    another record, whose words may differ but for states.
    """
    from em.compiler.constancy import Look

    if any(result is None for result in results):
        return None
    schema = Look("", {}).schema(results, "result")
    if is_asked:
        return _closed(schema, results, (), ())
    values = [_texts([one, more]) for one, more in zip(given, known, strict=True)]
    return _closed(schema, results, values, [_texts(one) for one in given])


def _texts(values: Any) -> list[str]:
    found = {str(value) for _, value in leaves(values) if value not in (None, "", True, False)}
    return sorted(found, key=len, reverse=True)[:MOST_KNOWN]


def _closed(
    schema: Json, results: Sequence[Any], known: Sequence[list[str]], given: Sequence[list[str]]
) -> Json:
    """Return a schema that also refuses new fields and other texts."""
    if all(isinstance(one, dict) and not is_by_id(one) for one in results):
        names = dict.fromkeys(name for one in results for name in one)
        always = [name for name in names if all(name in one for one in results)]
        found = schema.get("properties", {})
        fields = {
            name: _closed(found.get(name, {}), [one[name] for one in results], known, given)
            for name in always
        }
        fields = {name: one for name, one in fields.items() if one}
        more = {"required": [*fields], "properties": fields} if fields else {}
        return {**schema, **more, "propertyNames": {"enum": [*names]}}
    if not schema and all(map(is_one_of_few, results)):
        return {"enum": [*{json.dumps(one): one for one in results}.values()]}
    if all(isinstance(one, str) and one.strip() for one in results) and known:
        return _wording(results, known, given)
    if known and "const" in schema:
        is_given = all(str(one) in own for one, own in zip(results, given, strict=True))
        return {} if is_given else schema
    return schema


def _wording(texts: Sequence[str], known: Sequence[list[str]], given: Sequence[list[str]]) -> Json:
    """Return the patterns of texts: what was known is free, and so is a word with a digit."""
    rows = [*zip(texts, known, given, strict=True)]
    if any(text in own or len(text) > LONGEST_TEXT for text, _, own in rows):
        return {"type": "string", "minLength": 1}
    patterns = dict.fromkeys("".join(_pattern(text, all_of)) for text, all_of, _ in rows)
    ways = "|".join(f"(?:{one})" for one in patterns)
    return {"type": "string", "pattern": f"^(?:{ways})$"}


def _pattern(text: str, known: list[str]) -> Iterator[str]:
    held = [re.escape(one) for one in known if one in text and one != text]
    split = re.compile(rf"(?<!\w)(?:{'|'.join(held)})(?!\w)|{_FREE.pattern}" if held else _FREE)
    end = 0
    for match in split.finditer(text):
        yield re.escape(text[end : match.start()])
        yield r"[\s\S]+" if _FREE.fullmatch(match[0]) is None else r"\S+"
        end = match.end()
    yield re.escape(text[end:])
