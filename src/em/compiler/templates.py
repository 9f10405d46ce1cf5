"""Templates: what the requests of several traces have in common, with holes for what differs.

Three goals such as `Click on the "Ok" button.` show which words are the task and which are its
values, however short a value is. The values become inputs, named after the arguments they are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import identifier
from em.compiler.draft import Draft
from em.compiler.inputs import REQUEST, escaped
from em.compiler.sources import text_key
from em.runner.routine import Request
from em.traces.trace import Message, Mission, Trace

FEWEST = 3
"""Requests that a template needs: two may agree in a value by chance."""
MOST_HOLES = 8
FEWEST_WORDS = 2
"""Words that requests must have in common."""

_TOKEN = re.compile(r"[#$@]?\w+(?:[-./:@+]\w+)*|[^\w\s]")
"""Matches a word, an id, an address or a date as one."""
_WORD = re.compile(r"[\"“”]|[^\s\"“”]+?(?=[.,;:!?]*(?:[\s\"“”]|$))|[.,;:!?]")
"""Matches everything between spaces or quotation marks as one, such as `(1,-2)`."""


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
    """Yield what texts have in common, with values of signs and words apart, then as wholes."""
    found = [template_of(texts, token) for token in (_TOKEN, _WORD)]
    yield from (one for number, one in enumerate(found) if one and one not in found[:number])


def template_of(texts: Sequence[str], token: re.Pattern[str] = _TOKEN) -> Template | None:
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
    """Traces whose requests are inputs, and the template that the requests fit."""

    traces: Sequence[Trace]
    template: str
    values: Mapping[str, Sequence[str]]


def filled(traces: Sequence[Trace], said: Sequence[str], template: Template) -> Filled:
    """Return traces with the values of their requests as inputs.

    said: what each was asked for in words.
    """
    names = _names(template, traces)
    given = [dict(zip(names, values, strict=True)) for values in template.values]
    made = [
        _with_inputs(trace, one, text) for trace, one, text in zip(traces, given, said, strict=True)
    ]
    columns = {name: [one[name] for one in given] for name in names}
    return Filled(made, template.text(names), columns)


def with_template(draft: Draft, found: Filled) -> Draft:
    """Return a draft whose inputs are taken from a request in words."""
    schema = dict(draft.routine.input_schema or {})
    properties = {
        name: {**content, "examples": list(dict.fromkeys(found.values.get(name, ())))}
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
        request=Request(input=request, template=found.template),
        seen={},
    )
    return msgspec.structs.replace(draft, routine=routine)


def _with_inputs(trace: Trace, given: Mapping[str, str], said: str) -> Trace:
    rest = {
        name: value for name, value in trace.mission.input_summary.items() if value not in (said,)
    }
    mission = Mission(goal=trace.mission.goal, input_summary={**rest, **given})
    events = [
        event for event in trace.events if not (isinstance(event, Message) and event.role == "user")
    ]
    return msgspec.structs.replace(trace, mission=mission, events=events)


def _names(template: Template, traces: Sequence[Trace]) -> list[str]:
    """Name each hole after the argument that it is in every trace, where there is one."""
    names: list[str] = []
    for number in range(len(template.words) - 1):
        shared: set[str] | None = None
        for values, trace in zip(template.values, traces, strict=True):
            own = {name for name, value in _arguments(trace) if _is(value, values[number])}
            shared = own if shared is None else shared & own
        name = identifier(min(shared)) if shared else f"part_{number + 1}"
        while name in names:
            name += "_2"
        names.append(name)
    return names


def _arguments(trace: Trace) -> list[tuple[str, Any]]:
    return [(name, value) for call in trace.calls for name, value in call.args.items()]


def _is(value: Any, text: str) -> bool:
    return not isinstance(value, dict | list) and text_key(value) == text.strip()
