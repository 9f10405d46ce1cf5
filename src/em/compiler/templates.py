"""Templates: what the requests of several traces have in common, with holes for what differs.

Three goals such as `Click on the "Ok" button.` show which words are the task and which are its
values, however short a value is. The values become inputs, named after the arguments they are.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Names, identifier
from em.compiler.draft import Draft
from em.compiler.inputs import REQUEST, escaped
from em.compiler.loops import Loop, folded, inputs_of, loop_of, turns
from em.compiler.sources import text_key
from em.errors import RoutineError
from em.runner.expressions.functions import kind_of
from em.runner.routine import Request
from em.text.contractions import expanded
from em.traces.trace import Message, Mission, ToolCall, Trace, UdfCall
from em.values.canonical import Json

FEWEST = 3
"""Requests that a template needs: two may agree in a value by chance."""
MOST_ALIKE = 3
"""Ids, mails, dates or numbers that are kept as examples: they only show how one looks."""
MOST_HOLES = 8
FEWEST_WORDS = 2
"""Words that requests must have in common."""

TOKEN = re.compile(r"[#$@]?\w+(?:[-./:@+]\w+)*|[^\w\s]")
"""Matches a word, an id, an address or a date as one."""
_WORD = re.compile(r"[\"“”]|[^\s\"“”]+?(?=[.,;:!?]*(?:[\s\"“”]|$))|[.,;:!?]")
"""Matches everything between spaces or quotation marks as one, such as `(1,-2)`."""


_LOWER = re.compile(r"[a-zà-öø-ÿ]+(?:[ -][a-zà-öø-ÿ]+)*")


class Template(NamedTuple):
    """The words between the holes, one more than there are holes, and the values by request."""

    words: Sequence[str]
    values: Sequence[Sequence[str]]

    def text(self, names: Sequence[str]) -> str:
        """Return the template with names in its holes."""
        first, *rest = self.words
        parts = [escaped(first)]
        for name, words in zip(names, rest, strict=True):
            parts += [f"{{{{ {name} }}}}", escaped(words)]
        return "".join(parts)


def templates_of(texts: Sequence[str]) -> Iterator[Template]:
    """Yield what texts have in common, with values of signs and words apart, then as wholes.

    Behind these as if no text had contractions, so that `I'm` and `I am` are the same.
    """
    plain = [expanded(text).text for text in texts]
    ways = [texts, plain] if plain != [*texts] else [texts]
    found = [template_of(one, token) for one in ways for token in (TOKEN, _WORD)]
    yield from (one for number, one in enumerate(found) if one and one not in found[:number])


def merged_of(texts: Sequence[str]) -> Iterator[Template]:
    """Yield templates in which holes are one with the words between them.

    The items of a list may have words in common: `swap A for B and C for D`.
    """
    for one in templates_of(texts):
        holes = len(one.words) - 1
        for size in range(2, holes + 1):
            for first in range(holes - size + 1):
                yield _merged(one, first, first + size)
    ends = _ends_of(texts)
    if ends is not None:
        yield ends


def _ends_of(texts: Sequence[str]) -> Template | None:
    """Return the words that texts begin and end with, with one hole between them."""
    found = [list(TOKEN.finditer(text)) for text in texts]
    tokens = [[one.group() for one in own] for own in found]
    start = _alike(tokens)
    end = _alike([own[start:][::-1] for own in tokens])
    common = tokens[0][:start] + tokens[0][len(tokens[0]) - end :]
    if sum(word[-1].isalnum() for word in common) < FEWEST_WORDS or len(set(texts)) < FEWEST:
        return None
    if any(len(own) == start + end for own in tokens):
        return None
    spans = [(own[start].start(), own[len(own) - end - 1].end()) for own in found]
    first, last = spans[0]
    values = [[text[one:other]] for text, (one, other) in zip(texts, spans, strict=True)]
    return Template([texts[0][:first], texts[0][last:]], values)


def _alike(rows: Sequence[Sequence[str]]) -> int:
    """Return how many first words all rows have in common."""
    count = 0
    for words in zip(*rows, strict=False):
        if len(set(words)) > 1:
            break
        count += 1
    return count


def _merged(template: Template, first: int, end: int) -> Template:
    words, values = template.words, []
    for own in template.values:
        parts = [own[first]]
        for number in range(first + 1, end):
            parts += [words[number], own[number]]
        values.append([*own[:first], "".join(parts), *own[end:]])
    return Template([*words[: first + 1], *words[end:]], values)


def template_of(texts: Sequence[str], token: re.Pattern[str] = TOKEN) -> Template | None:
    """Return what texts have in common; None if that is too little, or if they are equal."""
    if len(texts) < FEWEST or len(set(texts)) < FEWEST:
        return None
    tokens = [token.findall(text) for text in texts]
    common = tokens[0]
    for other in tokens[1:]:
        blocks = _matched(common, other)
        common = [common[at] for at, _ in blocks]
    if sum(word[-1].isalnum() for word in common) < FEWEST_WORDS:
        return None
    cut = [_cut(text, common, token) for text in texts]
    holes = [number for number in range(len(common) + 1) if any(gaps[number] for gaps in cut)]
    if not 0 < len(holes) <= MOST_HOLES or any(not gaps[n] for gaps in cut for n in holes):
        return None
    words = _between(texts[0], common, holes, token)
    return Template(words, [[gaps[n] for n in holes] for gaps in cut])


def _matched(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    matcher = SequenceMatcher(None, list(one), list(other), autojunk=False)
    return [
        (block.a + step, block.b + step)
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    ]


def _cut(text: str, common: Sequence[str], token: re.Pattern[str]) -> list[str]:
    """Return what stands before, between and behind the common tokens of a text."""
    found = list(token.finditer(text))
    places = [at for _, at in _matched(common, [one.group() for one in found])]
    gaps = []
    for before, after in zip([-1, *places], [*places, len(found)], strict=True):
        between = found[before + 1 : after]
        gaps.append(text[between[0].start() : between[-1].end()] if between else "")
    return gaps if len(places) == len(common) else [""] * (len(common) + 1)


def _between(
    text: str, common: Sequence[str], holes: Sequence[int], token: re.Pattern[str]
) -> list[str]:
    """Return the words around the holes of a text, with their spaces."""
    found = list(token.finditer(text))
    places = [at for _, at in _matched(common, [one.group() for one in found])]
    words, start = [], 0
    for hole in holes:
        first = places[hole - 1] + 1 if hole else 0
        last = places[hole] - 1 if hole < len(places) else len(found) - 1
        words.append(text[start : found[first].start()])
        start = found[last].end()
    return [*words, text[start:]]


# --- traces ---------------------------------------------------------------------------------------


class Filled(NamedTuple):
    """Traces whose requests are inputs, and the template that the requests fit.

    traces: folded, so that a loop was gone through once; one for each turn. origins: the number of
    the trace that each was made of. values: those of each input. loops: by what they are made with.
    """

    traces: Sequence[Trace]
    origins: Sequence[int]
    template: str
    values: Mapping[str, Sequence[Any]]
    loops: Sequence[Loop]

    def row(self, number: int) -> Json:
        """Return the inputs of one trace."""
        return {name: values[number] for name, values in self.values.items()}


def filled(traces: Sequence[Trace], said: Sequence[str], template: Template) -> Filled:
    """Return traces with the values of their requests as inputs.

    said: what each was asked for in words.
    """
    names = Names()
    calls = [trace.calls for trace in traces]
    loops: dict[int, Loop] = {}
    for hole, texts in enumerate(zip(*template.values, strict=True)):
        found = loop_of(texts, calls, list(loops.values()), names)
        if found is not None:
            loops[hole] = found
    holes = {
        hole: names.free(_name(template, traces, hole))
        for hole in range(len(template.words) - 1)
        if hole not in loops
    }
    made, origins = [], []
    for number, (trace, text) in enumerate(zip(traces, said, strict=True)):
        plain = {name: template.values[number][hole] for hole, name in holes.items()}
        for turn in range(turns(list(loops.values()), number)):
            given = dict(plain)
            for loop in loops.values():
                given |= inputs_of(loop, number, turn)
            left = folded(calls[number], list(loops.values()), number, turn)
            made.append(_with_inputs(trace, given, text, left))
            origins.append(number)
    named = {**holes, **{hole: loop.name for hole, loop in loops.items()}}
    columns: dict[str, Sequence[Any]] = {loop.name: loop.lists for loop in loops.values()}
    columns |= {name: [own[hole] for own in template.values] for hole, name in holes.items()}
    text = template.text([named[hole] for hole in sorted(named)])
    return Filled(made, origins, text, columns, list(loops.values()))


def with_template(draft: Draft, found: Filled) -> Draft:
    """Return a draft whose inputs are taken from a request in words.

    Raises if a part of the requests varied that the routine does not use: nobody knows what other
    words there would ask for.
    """
    schema = dict(draft.routine.input_schema or {})
    unused = sorted(found.values.keys() - schema.get("properties", {}).keys())
    if unused:
        raise RoutineError(
            f"nothing depends on {', '.join(unused)} of the requests",
            place="traces",
            fix="record more traces, or say in other words what varies",
        )
    properties = {
        name: {**content, "examples": _examples(found.values[name])}
        if name in found.values
        else content
        for name, content in schema.get("properties", {}).items()
    }
    request = REQUEST
    while request in properties:
        request += "_2"
    schema["properties"] = {**properties, request: {"type": "string"}}
    schema["required"] = []
    routine = msgspec.structs.replace(
        draft.routine,
        input_schema=schema,
        request=Request(
            input=request,
            template=found.template,
            between={loop.name: list(loop.between) for loop in found.loops},
            each={loop.name: loop.each for loop in found.loops if loop.each},
            closed=tuple(name for name, values in found.values.items() if _is_closed(values)),
        ),
        seen={},
    )
    return msgspec.structs.replace(draft, routine=routine)


def _is_closed(values: Sequence[Any]) -> bool:
    """Return whether values are a few plain words that repeat, as `on` and `off` do."""
    return len(_different(values)) < len(values) and all(
        isinstance(one, str) and _LOWER.fullmatch(one) for one in values
    )


def _examples(values: Sequence[Any]) -> list[Any]:
    """Return what tells how a value looks: all texts, and a few ids, mails and numbers each."""
    found: list[Any] = []
    kinds: Counter[str] = Counter()
    for value in _different(values):
        kind = "list" if isinstance(value, dict | list) else kind_of(value)
        kinds[kind] += 1
        if kind in ("list", "text", "word") or kinds[kind] <= MOST_ALIKE:
            found.append(value)
    return found


def _different(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _with_inputs(trace: Trace, given: Json, said: str, left: Collection[int]) -> Trace:
    """Return a trace with inputs in place of its request, and with some of its calls."""
    rest = {
        name: value for name, value in trace.mission.input_summary.items() if value not in (said,)
    }
    mission = Mission(goal=trace.mission.goal, input_summary={**rest, **given})
    events, number = [], -1
    for event in trace.events:
        number += isinstance(event, ToolCall | UdfCall)
        is_left = number in left if isinstance(event, ToolCall | UdfCall) else True
        if is_left and not (isinstance(event, Message) and event.role == "user"):
            events.append(event)
    return msgspec.structs.replace(trace, mission=mission, events=events)


def _name(template: Template, traces: Sequence[Trace], hole: int) -> str:
    """Name a hole after the argument that it is in every trace, where there is one."""
    shared: set[str] | None = None
    for values, trace in zip(template.values, traces, strict=True):
        own = {name for name, value in _arguments(trace) if _is(value, values[hole])}
        shared = own if shared is None else shared & own
    return identifier(min(shared)) if shared else f"part_{hole + 1}"


def _arguments(trace: Trace) -> list[tuple[str, Any]]:
    return [(name, value) for call in trace.calls for name, value in call.args.items()]


def _is(value: Any, text: str) -> bool:
    return not isinstance(value, dict | list) and text_key(value) == text.strip()
