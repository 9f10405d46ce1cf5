"""Match: which routine in use does a request ask for, and with which inputs?

Templates of all routines come first: a request that is word for word a recorded one needs nothing
else. Then a model is asked once, with the routines whose recorded requests are most like this one;
it chooses one and fills in its inputs, and code checks the values (`em.runner.request`). Without a
model nothing is matched by likeness alone: `Matcher.ranked` only says what could be offered.

Likeness is that of the words around the values, also of those that only one of the two has: a text
about the same things that asks for something else has words that nobody said. What the values look
like counts beside them: a routine that was always asked for with a version is not asked for by a
text without one.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from em.compiler.example import request_of
from em.errors import EmError, LlmError
from em.runner.card import KIND
from em.runner.package import KeptRoutine, proof_of, routine_of, texts_of
from em.runner.reading import SYSTEM, Reading, checked, prompt
from em.runner.request import Bound, bind, unreadable
from em.runner.run import REQUEST
from em.runner.template import fill, parse_template, plain_of, signs_of
from em.runner.trial import AS_RECORDED
from em.store.protocol import Artefact, Card, Store
from em.text.terms import stems_of, words_of
from em.traces.catalogue import get_traces
from em.values import json_schema
from em.values.canonical import Json
from em.values.leaves import scalars
from em.values.mismatch import Where

if TYPE_CHECKING:
    from em.llm.client import LlmClient

MOST_CANDIDATES = 10
"""Routines that a model is shown."""
MOST_REQUESTS = 40
"""Recorded requests of a routine that a request is compared with."""
LEAST_LIKENESS = 0.36
"""How like a recorded request a text must be before the routine is offered without a model."""
UNHEARD = 1.5
"""The weight of a word that no routine was asked for with, beside that of the rarest one."""
MOST_COMPARED = 10_000
"""Characters of a text whose words are compared; what a person pastes below says little."""
FEWEST_VALUES = 2
"""Different values of an input that show what all of them look like."""
_VALUE = "\0"
"""Stands for a value among the words of a text."""
_AROUND = ",;:!?\"'()"
"""Signs around a value that are no part of it."""

Vector = Mapping[str, float]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A routine that a request asks for. why: what matched it, as a sentence.

    wishes: what the request asks for beyond the inputs. Then the routine must not simply be run:
    prepare it, and commit it if the plan meets the wishes.
    missing: a required input that the request does not state. A run takes the one value that the
    routine's reads leave for it, and otherwise asks or hands over.
    """

    routine: str
    inputs: Json
    why: str
    wishes: Sequence[str] = ()
    missing: Sequence[str] = ()


class Found(NamedTuple):
    """The routine that a request asks for. Without one, why_not says why, as a sentence."""

    match: Match | None
    why_not: str = ""


class Ranked(NamedTuple):
    """A routine whose recorded requests are like a text.

    likeness: 1 for the same words; half of it where the text has no word that looks like a value.
    """

    routine: KeptRoutine
    likeness: float


class Chosen(Reading, frozen=True):
    """What a model reads in a request, and the routine it reads it for; empty for none."""

    routine: str = ""


class _Known(NamedTuple):
    """A routine in use. wordings: its recorded requests, as stems of the words around values.

    about: the same of its name and description. said: all stems of wordings. looks: by input that
    every request said, the signs that all its values have. places: the words before and behind
    values. longest: the most words of a value. parts: of each template, a text that stands in every
    request that fits it.
    """

    routine: KeptRoutine
    tools: frozenset[str]
    wordings: Sequence[Counter[str]]
    about: Counter[str]
    said: frozenset[str]
    looks: Sequence[frozenset[str]]
    places: frozenset[tuple[str, str]]
    longest: int
    parts: Sequence[str]

    def wording(self, words: Sequence["_Word"]) -> Counter[str]:
        """Count the stems of a text without its values.

        Words that nobody said, between the words around a recorded value, are a value too.
        """
        stems = ["", *_stems(words, self.looks), ""]
        found, before = Counter[str](), ""
        runs = [[*run] for _, run in groupby(stems, self.said.__contains__)]
        for run, behind in zip(runs, [*runs[1:], [""]], strict=True):
            is_value = (before, behind[0]) in self.places and len(run) <= self.longest
            if run[0] in self.said or not is_value:
                found.update(run)
            before = run[-1]
        return _without_marks(found)

    def may_say(self, plain: str) -> bool:
        """Return whether a text, as templates see it, may fit a template."""
        return any(part in plain for part in self.parts)


class _Index(NamedTuple):
    """The routines in use, and how much each stem tells one from the others.

    end: how far the register went when it was made.
    """

    end: int | None
    by_id: Mapping[str, _Known | None]
    weights: Vector
    vectors: Mapping[str, Sequence[Vector]]


class Matcher:
    """The routines in use of a store. Each version is read once.

    is_on: whether routines are used at all (`EM_ROUTINES`); where they are not, none is found.
    asks_twice: what a model read must be agreed to. Safe to share between threads.
    """

    def __init__(
        self,
        store: Store,
        *,
        is_on: bool = True,
        asks_twice: bool = False,
    ) -> None:
        self._store, self.is_on = store, is_on
        self._asks_twice = asks_twice
        self._index = _Index(None, {}, {}, {})

    def match(
        self,
        request: str,
        tools: Collection[str] | None = None,
        client: "LlmClient | None" = None,
    ) -> Match | None:
        """Return the routine that a request asks for; None if none does, or several do.

        tools: only routines that need no other tools than these.
        """
        found = self.find(request, tools, client).match
        return None if found is None or found.wishes else found

    def find(
        self,
        request: str,
        tools: Collection[str] | None = None,
        client: "LlmClient | None" = None,
    ) -> Found:
        """Do the same, also for a request that asks for more than the inputs express.

        Say which routine was tried and why it does not fit, if none does.
        """
        fitting = self._fitting(tools)
        if not fitting:
            return Found(None, "no routine is in use here")
        said = [*self._said(fitting, request)]
        by_template = [(one, bound) for one, bound in said if not bound.problem]
        if len(by_template) == 1:
            routine, bound = by_template[0]
            return Found(Match(routine=routine.ref, inputs=bound.inputs, why="its recorded words"))
        if by_template:
            names = ", ".join(one.ref for one, _ in by_template)
            return Found(None, f"several routines fit the request: {names}")
        if client is not None:
            return self._by_model(request, self.ranked(request, tools), client)
        tried = [f"{one.ref}: {bound.problem}" for one, bound in said]
        return Found(None, "; ".join(tried) or "no routine was recorded with these words")

    def in_use(self) -> list[KeptRoutine]:
        """Return the newest version of every routine that may be used; none if all are off."""
        return sorted((one.routine for one in self._fitting(None)), key=lambda one: one.name)

    def ranked(
        self, request: str, tools: Collection[str] | None = None, *, at_least: float = 0.0
    ) -> list[Ranked]:
        """Return the routines whose recorded requests are most like a text, the best first.

        at_least: how like; with `LEAST_LIKENESS`, those that an agent may be told of.
        """
        fitting = self._fitting(tools)
        index, words = self._index, [*_words(request)]
        said = {one.ref for one, bound in self._said(fitting, request) if not bound.problem}
        found = []
        for one in fitting:
            ref = one.routine.ref
            wanted = _vector(one.wording(words), index.weights)
            vectors = index.vectors.get(ref, ())
            likeness = max((_cosine(wanted, each) for each in vectors), default=0.0)
            if not _has_values(words, one.looks):
                likeness /= 2  # it may ask for this, but rather for others
            found.append(Ranked(one.routine, 1.0 if ref in said else likeness))
        found.sort(key=lambda one: (-one.likeness, one.routine.name))
        return [one for one in found[:MOST_CANDIDATES] if one.likeness >= at_least]

    def _said(self, fitting: Sequence[_Known], request: str) -> Iterator[tuple[KeptRoutine, Bound]]:
        """Yield the routines whose recorded words a request has, with what templates make of it."""
        plain = plain_of(request)
        for one in fitting:
            if one.may_say(plain):
                bound = bind(one.routine, {REQUEST: request})
                if bound.how == "template" or bound.problem:
                    yield one.routine, bound

    def _by_model(self, request: str, candidates: Sequence[Ranked], client: "LlmClient") -> Found:
        from em.llm.client import ask_struct

        if problem := unreadable(request):
            return Found(None, problem)
        at = datetime.now(UTC)
        routines = {one.routine.name: one.routine for one in candidates}
        asked = "\n\n".join(prompt(one, None, at) for one in routines.values())
        text = f"{asked}\n\nRequest: {msgspec.json.encode(request).decode()}"
        system = f"{SYSTEM}\nroutine: the name of the routine that does it; empty if none does."
        choices = {"routine": ["", *routines]}
        try:
            chosen, _ = ask_struct(client, Chosen, text, system=system, choices=choices)
        except LlmError as error:
            return Found(None, f"the model could not read the request: {error}")
        routine = routines.get(chosen.routine)
        if routine is None:
            return Found(None, f"the model says that none of these does it: {', '.join(routines)}")
        bound = checked(routine, request, chosen, {}, at, asks_twice=self._asks_twice)
        schema = routine.input_schema or {}
        missing = json_schema.lacking(schema, bound.inputs)
        problem = "" if bound.wishes else bound.problem
        if not problem and missing:
            # One may be the only one that the routine's reads leave; the model must know of it.
            if len(missing) != 1 or missing[0] not in chosen.missing:
                problem = f"the request does not state {', '.join(missing)}"
        elif not problem:
            unfit = json_schema.misfit(schema, bound.inputs)
            problem = "" if unfit is None else f"input {unfit.where}: {unfit.message}"
        if problem:
            return Found(None, f"{routine.ref}: {problem}")
        return Found(
            Match(
                routine=routine.ref,
                inputs=bound.inputs,
                why="a model read the request",
                wishes=bound.wishes,
                missing=missing,
            )
        )

    def _fitting(self, tools: Collection[str] | None) -> list[_Known]:
        if not self.is_on:
            return []
        names = None if tools is None else set(tools)
        return [
            one
            for one in self._newest().by_id.values()
            if one is not None and (names is None or one.tools <= names)
        ]

    def _newest(self) -> _Index:
        """Return what is in use now, whichever process changed it."""
        old = self._index
        end, is_changed = self._store.changed_artefacts(old.end)
        if is_changed:
            rows = {row.name: row for row in self._store.cards(KIND)}  # by number: the newest last
            known = {
                row.id: old.by_id[row.id] if row.id in old.by_id else self._read(row)
                for row in rows.values()
            }
            self._index = _index(end, known)
        elif end != old.end:
            self._index = old._replace(end=end)
        return self._index

    def _read(self, row: Card) -> _Known | None:
        artefact = self._store.artefact(KIND, row.name, row.version)
        if artefact is None or artefact.body is None:
            return None
        try:
            routine = routine_of(artefact)
            return _known(routine, [*self._requests(artefact)])
        except EmError:
            return None  # a form that is not run any more, or traces that were forgotten

    def _requests(self, artefact: Artefact) -> Iterator[str]:
        proof = proof_of(texts_of(artefact))
        trials = () if proof is None else proof.trials.get(AS_RECORDED, ())
        ids = [*dict.fromkeys(one.trace for one in trials)][:MOST_REQUESTS]
        for kept in get_traces(self._store, ids) if ids else ():
            yield request_of(kept.trace)


def _known(routine: KeptRoutine, requests: Sequence[str]) -> _Known:
    """Return what is known of how a routine is asked for."""
    templates = [parse_template(one) for one in routine.requests]
    read = [fill(routine.requests, one, routine.input_schema) for one in requests]
    others = [one for one, inputs in zip(requests, read, strict=True) if inputs is None]
    texts = [*(f" {_VALUE} ".join(one.fixed) for one in templates), *others]
    looks = _looks([inputs for inputs in read if inputs is not None])
    stems = [["", *_stems([*_words(one)], looks), ""] for one in texts]
    around = (zip(own, own[1:], own[2:], strict=False) for own in stems)
    values = (str(value).split() for inputs in read if inputs for _, value in scalars(inputs))
    return _Known(
        routine,
        tools=frozenset(routine.called_tools),
        wordings=[_without_marks(Counter(own)) for own in stems],
        about=Counter(_stems([*_words(f"{routine.name} {routine.description}")], ())),
        said=frozenset(stem for own in stems for stem in own),
        looks=looks,
        places=frozenset((one, two) for own in around for one, mid, two in own if mid == _VALUE),
        longest=max(map(len, values), default=0),
        parts=[max(one.fixed, key=len) for one in templates],
    )


def _index(end: int, by_id: Mapping[str, _Known | None]) -> _Index:
    known = [one for one in by_id.values() if one is not None]
    weights = _weights(known)
    vectors = {
        one.routine.ref: [
            *(_vector(each, weights) for each in one.wordings),
            _vector(one.about, weights, 0.5 if one.wordings else 1.0),  # nobody asked in its words
        ]
        for one in known
    }
    return _Index(end, by_id, weights, vectors)


class _Word(NamedTuple):
    """A word of a text as it was written: its stems, and its signs."""

    stems: list[str]
    signs: frozenset[str]


def _words(text: str) -> Iterator[_Word]:
    for chunk in text[:MOST_COMPARED].split():
        bare = chunk.strip(_AROUND).rstrip(".")
        # Words with a digit are values, not wording.
        plain = [word for word in words_of(bare) if not any(map(str.isdigit, word))]
        yield _Word(stems_of(plain), _signs(bare))
    if "QUESTION MARK" in unicodedata.name(text.rstrip()[-1:] or " ", ""):
        yield _Word(["?"], frozenset())


def _signs(text: str) -> frozenset[str]:
    """Return what makes a word look like a value: digits, capitals inside, and signs."""
    found = signs_of(text) | ({"-"} & {*text})
    return frozenset({*found, "A"} if any(map(str.isupper, text[1:])) else found)


def _looks(read: Sequence[Json]) -> list[frozenset[str]]:
    """Return, for each input that all requests said, the signs that its values share.

    Values of several words, and those of one recording, show nothing.
    """
    values: dict[Where, dict[str, None]] = {}
    counts = Counter[Where]()
    for inputs in read:
        for where, value in scalars(inputs):
            values.setdefault(where, {})[str(value)] = None
            counts[where] += 1
    shared = [
        frozenset.intersection(*map(_signs, own))
        for where, own in values.items()
        if len(own) >= FEWEST_VALUES and counts[where] == len(read)
        if not any(" " in one for one in own)
    ]
    return [one for one in shared if one]


def _has_values(words: Sequence[_Word], looks: Sequence[frozenset[str]]) -> bool:
    """Return whether a text has a word of its own that looks like a value, for each input."""
    return all(
        sum(look <= word.signs for word in words) >= sum(look <= other for other in looks)
        for look in looks
    )


def _stems(words: Sequence[_Word], looks: Sequence[frozenset[str]]) -> Iterator[str]:
    """Yield the stems of a text in order, and a mark in place of what looks like a value."""
    for word in words:
        is_value = _VALUE in word.signs or any(look <= word.signs for look in looks)
        yield from [_VALUE] if is_value else word.stems


def _without_marks(stems: Counter[str]) -> Counter[str]:
    """Leave out the marks of values and of the ends."""
    return Counter({stem: count for stem, count in stems.items() if stem not in ("", _VALUE)})


def _weights(known: Sequence[_Known]) -> dict[str, float]:
    """Return how much a stem tells one routine from the others, by the routines that have it."""
    held = Counter(
        term for one in known for term in {t for said in one.wordings or [one.about] for t in said}
    )
    return {term: math.log1p(len(known) / count) for term, count in held.items()}


def _vector(terms: Counter[str], weights: Vector, size: float = 1.0) -> Vector:
    most = UNHEARD * max(weights.values(), default=1.0)
    found = {term: (1 + math.log(n)) * weights.get(term, most) for term, n in terms.items()}
    length = math.sqrt(sum(one * one for one in found.values())) or 1.0
    return {term: size * one / length for term, one in found.items()}


def _cosine(one: Vector, other: Vector) -> float:
    if len(other) < len(one):
        one, other = other, one
    return sum(weight * other.get(term, 0.0) for term, weight in one.items())
