"""Value looks: a value that an effect is given must be of a type and look that was recorded.

A record may hold a list where it held an e-mail, a word (`DELETED`) where it held an id, or a time
with its zone where it held a day; a request may have signs that no recorded value had.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from em.compiler.record_facts import FEWEST_SAME, distinct
from em.redaction.redactor import MARKER
from em.runner.expressions.functions import kind_of, shape_of

_LOOKS = frozenset({"e-mail", "date", "time", "code"})


def look_facts(expression: str, values: Sequence[Any]) -> Iterator[str]:
    """Yield how different values of one expression looked, if there were enough of them."""
    shapes, different = {shape_of(one) for one in values}, len(distinct(values))
    if len(values) < FEWEST_SAME or different == 1 or len(shapes) != 1:
        return
    yield f'shape_of({expression}) == "{shapes.pop()}"'
    if any(not isinstance(one, str) or MARKER.search(one) for one in values):
        return
    if different < FEWEST_SAME:
        return
    kinds = {kind_of(one) for one in values}
    if kinds == {"number"}:
        # The next one may have a letter: 12b.
        yield f'kind_of({expression}) in ["number", "code"]'
    elif len(kinds) == 1 and kinds <= _LOOKS:
        kind = kinds.pop()
        yield f'kind_of({expression}) == "{kind}"'
        lengths = {len(one) for one in values}
        if kind == "date" and len(lengths) == 1:
            yield f"size_of({expression}) == {lengths.pop()}"
