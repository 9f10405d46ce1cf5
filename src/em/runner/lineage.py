"""Lineage of a routine's run: each event of its journal may hold something of those before it.

A step's arguments are made of the input and of earlier results, and its output of both. Which of
them it used is in its routine, which may be gone. So what came later goes with what came before.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from em.log.event import Event
from em.log.kinds import Edge, event_flow


@event_flow("run_started")
def later_events(events: Sequence[Event]) -> Iterator[Edge]:
    """Yield an edge from each event to the next."""
    for before, after in pairwise(events):
        yield before.id, after.id
