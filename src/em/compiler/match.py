"""Match: which routine in use does a request ask for, and with which inputs?

Templates of all routines come first: a request that is word for word a recorded one needs nothing
else. Then a model is asked once, with the routines whose recorded requests are most like this one;
it chooses one and fills in its inputs, and code checks the values (`em.runner.request`). Without a
model nothing is matched by likeness alone: `Matcher.ranked` only says what could be offered.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from em.compiler.example import request_of
from em.errors import EmError, LlmError
from em.runner.package import KeptRoutine, kept_routines, proof_of, routine_of, texts_of
from em.runner.reading import SYSTEM, Reading, checked, prompt, unreadable
from em.runner.request import Bound, bind
from em.runner.template import REQUEST
from em.runner.trial import AS_RECORDED
from em.store.protocol import Artefact, Store
from em.text.terms import stems_of, words_of
from em.traces.catalogue import get_traces
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.llm.client import LlmClient

MOST_CANDIDATES = 10
"""Routines that a model is shown."""
MOST_REQUESTS = 40
"""Recorded requests of a routine that a request is compared with."""
LEAST_LIKENESS = 0.35
"""How like a recorded request a text must be before the routine is offered without a model."""

Vector = Mapping[str, float]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A routine that a request asks for. why: what matched it, as a sentence."""

    routine: str
    inputs: Json
    why: str


class Ranked(NamedTuple):
    """A routine whose recorded requests are like a text. likeness: 1 for the same words."""

    routine: KeptRoutine
    likeness: float


class Chosen(Reading, frozen=True):
    """What a model reads in a request, and the routine it reads it for; empty for none."""

    routine: str = ""


class _Known(NamedTuple):
    artefact: Artefact
    routine: KeptRoutine
    requests: Sequence[Counter[str]]


class Matcher:
    """The routines in use of a store. Each version is read once.

    courtesies: texts that may stand around a recorded request. is_on: whether routines are used at
    all (`EM_ROUTINES`); where they are not, none is found.
    """

    def __init__(self, store: Store, courtesies: Sequence[str] = (), *, is_on: bool = True) -> None:
        self._store, self._courtesies, self._is_on = store, courtesies, is_on
        self._known: dict[str, _Known | None] = {}

    def match(
        self,
        request: str,
        tools: Collection[str] | None = None,
        client: "LlmClient | None" = None,
    ) -> Match | None:
        """Return the routine that a request asks for; None if none does, or several do.

        tools: only routines that need no other tools than these.
        """
        fitting = self._fitting(tools)
        by_template = [
            (one.routine, bound)
            for one in fitting
            if (bound := self._by_template(one, request)).how == "template" and not bound.problem
        ]
        if len(by_template) == 1:
            routine, bound = by_template[0]
            return Match(routine=routine.ref, inputs=bound.inputs, why="its recorded words")
        if by_template or client is None:
            return None
        return self._by_model(request, self.ranked(request, tools), client)

    def ranked(
        self, request: str, tools: Collection[str] | None = None, *, at_least: float = 0.0
    ) -> list[Ranked]:
        """Return the routines whose recorded requests are most like a text, the best first."""
        fitting = self._fitting(tools)
        weights = _weights(fitting)
        wanted = _vector(_terms(request), weights)
        found = [
            Ranked(
                one.routine,
                max((_cosine(wanted, _vector(said, weights)) for said in one.requests), default=0),
            )
            for one in fitting
        ]
        found.sort(key=lambda one: (-one.likeness, one.routine.name))
        return [one for one in found[:MOST_CANDIDATES] if one.likeness >= at_least]

    def _by_template(self, known: _Known, request: str) -> Bound:
        return bind(known.routine, {REQUEST: request}, courtesies=self._courtesies)

    def _by_model(
        self, request: str, candidates: Sequence[Ranked], client: "LlmClient"
    ) -> Match | None:
        from em.llm.client import ask_struct

        if not candidates or unreadable(request):
            return None
        at = datetime.now(UTC)
        routines = {one.routine.name: one.routine for one in candidates}
        asked = "\n\n".join(prompt(one, None, at) for one in routines.values())
        text = f"{asked}\n\nRequest: {msgspec.json.encode(request).decode()}"
        system = f"{SYSTEM}\nroutine: the name of the routine that does it; empty if none does."
        choices = {"routine": ["", *routines]}
        try:
            chosen, _ = ask_struct(client, Chosen, text, system=system, choices=choices)
        except LlmError:
            return None  # the agent goes on without a routine
        routine = routines.get(chosen.routine)
        if routine is None or chosen.missing:
            return None
        bound = checked(routine, request, chosen, {}, at)
        if bound.problem:
            return None
        return Match(routine=routine.ref, inputs=bound.inputs, why="a model read the request")

    def _fitting(self, tools: Collection[str] | None) -> list[_Known]:
        if not self._is_on:
            return []
        known = self._known
        self._known = {
            one.id: known[one.id] if one.id in known else self._read(one)
            for one in newest_in_use(self._store)
        }
        return [
            one
            for one in self._known.values()
            if one is not None and (tools is None or _needs(one.routine) <= set(tools))
        ]

    def _read(self, artefact: Artefact) -> _Known | None:
        try:
            routine = routine_of(artefact)
            requests = [*self._requests(artefact)]
        except EmError:
            return None  # a form that is not run any more, or traces that were forgotten
        texts = [*requests, *routine.requests, f"{routine.name} {routine.description}"]
        return _Known(artefact, routine, [_terms(one) for one in texts])

    def _requests(self, artefact: Artefact) -> Iterator[str]:
        proof = proof_of(texts_of(artefact))
        trials = () if proof is None else proof.trials.get(AS_RECORDED, ())
        ids = [*dict.fromkeys(one.trace for one in trials)][:MOST_REQUESTS]
        for kept in get_traces(self._store, ids) if ids else ():
            yield request_of(kept.trace)


def newest_in_use(store: Store) -> Iterator[Artefact]:
    """Yield the newest version in use of every routine."""
    newest: dict[str, Artefact] = {}
    for artefact in kept_routines(store):
        if artefact.body is not None and artefact.retired_at is None:
            older = newest.get(artefact.name)
            if older is None or older.version < artefact.version:
                newest[artefact.name] = artefact
    yield from newest.values()


def _needs(routine: KeptRoutine) -> set[str]:
    return routine.called_tools


def _terms(text: str) -> Counter[str]:
    """Count the stems of a text's words; words with a digit are values, not wording."""
    words = [word for word in words_of(text) if not any(map(str.isdigit, word))]
    return Counter(stems_of(words))


def _weights(known: Sequence[_Known]) -> dict[str, float]:
    """Return how much a stem tells one routine from the others, by the routines that have it."""
    held = Counter(term for one in known for term in {t for said in one.requests for t in said})
    return {term: math.log1p(len(known) / count) for term, count in held.items()}


def _vector(terms: Counter[str], weights: Vector) -> Vector:
    most = max(weights.values(), default=1.0)
    found = {term: (1 + math.log(n)) * weights.get(term, most) for term, n in terms.items()}
    length = math.sqrt(sum(one * one for one in found.values())) or 1.0
    return {term: one / length for term, one in found.items()}


def _cosine(one: Vector, other: Vector) -> float:
    if len(other) < len(one):
        one, other = other, one
    return sum(weight * other.get(term, 0.0) for term, weight in one.items())
