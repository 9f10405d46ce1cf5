"""Neighbourhood: the words that stand beside each input in recorded requests: `from {home}`.

With the words of its name they tell inputs of one sort apart. Two values that stand beside the
other's words, and not beside their own, were swapped. It only refuses: other words say nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from em.runner.template import Template, parse_template
from em.text.terms import words_of
from em.values.canonical import Json
from em.values.json_schema import problems, properties_of

Beside = Mapping[str, set[tuple[int, str]]]
"""By input: the words before (-1) and behind (1) it."""


def neighbourhood(requests: Sequence[str], names: Iterable[str] = ()) -> Beside:
    """Return the words beside the inputs of templates, and beside inputs of these names."""
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for name in names:
        found[name] |= {(side, word) for word in words_of(name) for side in (-1, 1)}
    for template in map(parse_template, requests):
        for n, hole in enumerate(template.holes):
            if len(hole.path) == 1:
                found[hole.path[0]] |= _beside(template, n)
    return found


def _beside(template: Template, n: int) -> set[tuple[int, str]]:
    before, behind = words_of(template.fixed[n]), words_of(template.fixed[n + 1])
    return {(-1, one) for one in before[-1:]} | {(1, one) for one in behind[:1]}


def swapped(
    schema: Json, beside: Beside, inputs: Json, said: Mapping[str, set[tuple[int, str]]]
) -> tuple[str, str] | None:
    """Return two inputs whose values both stand where the other's stand; None if none do.

    said: by input, the words beside its value in this request.
    """
    properties = properties_of(schema)
    for one, other in combinations([name for name in inputs if name in beside and name in said], 2):
        # Words that both have tell nothing.
        own = {one: beside[one] - beside[other], other: beside[other] - beside[one]}
        right = len(said[one] & own[one]) + len(said[other] & own[other])
        crossed = len(said[one] & own[other]), len(said[other] & own[one])
        if (
            all(crossed)
            and sum(crossed) > right
            and _fit(properties, one, inputs[other], other, inputs[one])
        ):
            return one, other
    return None


def _fit(properties: Json, one: str, value: Any, other: str, other_value: Any) -> bool:
    pairs = ((one, value), (other, other_value))
    return not any(any(problems(properties.get(name, {}), each)) for name, each in pairs)
