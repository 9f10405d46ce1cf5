"""Result lists: a call, or an entry of an argument, repeated for each element of a list.

Mostly a list of the inputs is gone through. Where none has as many elements, it may be a list that
a read returned: then every round shows something of its own element.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from em.compiler.evidence import is_small
from em.compiler.places import Over, Place, is_exactly, key_of, lists_in, walk

if TYPE_CHECKING:
    from em.compiler.example import Example


def looped(example: "Example", rounds: Sequence[Any], before: int) -> set[Place]:
    """Return the lists that were gone through: one round for each element.

    rounds: what was written in each of them. before: the number of reads that were made before.
    """
    given: set[Place] = {
        place for place, one in lists_in(example.inputs) if len(one) == len(rounds)
    }
    if given or not rounds:
        return given
    best: tuple[int, Over] | None = None
    for over, (number, items) in example.result_lists.items():
        if number >= before or len(items) != len(rounds):
            continue
        hits = [_hits(example, one, written) for one, written in zip(items, rounds, strict=True)]
        if all(hits) and (best is None or sum(hits) > best[0]):
            best = sum(hits), over
    return set() if best is None else {(best[1],)}


def _hits(example: "Example", element: Any, written: Any) -> int:
    """Return how many values of an element were written, also in texts, or led to what was."""
    values = [value for _, _, value in walk(written)]
    own = [one for _, _, one in walk(element) if not is_small(one)]
    found = sum(any(_is_in(one, value) for value in values) for one in own)
    for number in example.asked_with(map(key_of, own), len(example.reads)):
        read = example.reads[number]
        is_own = any(is_exactly(one, arg) for one in own for arg in read.args.values())
        found += is_own and any(read.holds(value) for value in values)
    return found


def _is_in(one: Any, value: Any) -> bool:
    return is_exactly(one, value) or (isinstance(value, str) and str(one) in value)
