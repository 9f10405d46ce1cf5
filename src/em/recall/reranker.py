"""A reranker: a function that scores passages for a question once more.

def rerank(question, passages):        # any callable; the higher, the better
    return [my_model(question, passage.text) for passage in passages]

Memory("em.db", reranker=rerank)
"""

from collections.abc import Callable, Sequence
from math import isfinite

import msgspec

from em.recall.embed import guarded
from em.store.protocol import Passage

Rerank = Callable[[str, Sequence[Passage]], Sequence[float]]

RERANKED = 100
"""How many passages a reranker gets. The first 100 hold nearly all of the evidence."""


def reranked(
    rerank: Rerank, query: str, passages: list[Passage], timeout: float
) -> tuple[list[Passage], str]:
    """Return passages in the reranker's order, with its scores. If it fails, say why instead."""

    def work() -> list[float]:
        return [float(score) for score in rerank(query, tuple(passages))]

    try:
        scores = guarded(work, timeout)
    except Exception as error:  # noqa: BLE001 - the user's code; recall goes on without it
        return passages, f"not reranked: {type(error).__name__}: {error}"
    if len(scores) != len(passages) or not all(map(isfinite, scores)):
        return passages, f"not reranked: expected {len(passages)} finite scores, got {len(scores)}"
    order = sorted(range(len(passages)), key=lambda n: -scores[n])
    return [msgspec.structs.replace(passages[n], score=scores[n]) for n in order], ""
