"""Search by meaning: an embedder behind a guard, and passages that get their vectors when needed.

Passages are embedded when somebody searches, not when they are written: writing stays as fast as
without a model, an embedder that fails loses nothing, and the newest are found by words at once.
"""

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from threading import Thread
from typing import Any

from em.errors import EmbedderError
from em.recall.embed import Embed, identity_of
from em.store.passage import Within
from em.store.protocol import Store

Progress = Callable[[int, int], None]

AT_ONCE = 256
"""Passages without a vector that a search embeds first; more are left to `embed_all`."""
PORTION = 64
LISTED = 4_096
"""Passages that are looked up at once when all of them are embedded."""
NEAR = 200
TIMEOUT = 60.0


def silent(_done: int, _total: int) -> None:
    """No progress to show."""


class Meaning:
    """The vectors of a store's passages, made by one embedder."""

    def __init__(self, store: Store, embed: Embed, *, timeout: float = TIMEOUT) -> None:
        self._store, self._embed, self._timeout = store, embed, timeout
        self._name = identity_of(embed)
        self._size = 0
        self._complete: dict[str | None, int] = {}

    def vector(self, text: str) -> Sequence[float]:
        """The vector of a question."""
        return self.vectors([text])[0]

    def catch_up(
        self, subject: str | None, limit: int | None = AT_ONCE, progress: Progress = silent
    ) -> int:
        """Embed passages that have no vector yet, the newest first; how many are left."""
        done = 0
        identity = self.identity
        count = self._store.count_passages(subject)
        if self._complete.get(subject) == count and self._store.embedder() == identity:
            return 0  # as many as when all had theirs: looking for others would take long
        while limit is None or done < limit:
            most = LISTED if limit is None else limit - done
            left, numbers = self._store.without_vector(identity, subject, most)
            if not numbers:
                self._complete[subject] = count
                return left
            for start in range(0, len(numbers), PORTION):
                portion = numbers[start : start + PORTION]
                progress(done, done + left - start)
                self._embed_passages(portion)
                done += len(portion)
            identity = self.identity
            progress(done, done + left - len(numbers))
        return self._store.without_vector(identity, subject, 0)[0]

    def _embed_passages(self, numbers: Sequence[int]) -> None:
        passages = self._store.passages(numbers)
        if not passages:
            return  # forgotten meanwhile
        vectors = self.vectors([passage.text for passage in passages])
        found = {p.number: v for p, v in zip(passages, vectors, strict=True)}
        self._store.put_vectors(self.identity, found)

    def nearest(
        self, vector: Sequence[float], within: Within, candidates: Sequence[int], neighbours: float
    ) -> dict[int, float]:
        """How near passages are, from 0 to 1: the nearest of all, and candidates of other ways."""
        identity = self.identity
        near = dict(self._store.nearest(identity, vector, within, NEAR))
        if not near:
            return {}
        best, base = max(near.values()), min(near.values())
        wanted = {*near, *candidates}
        around = {number + offset for number in wanted for offset in (-1, 0, 1)}
        near |= self._store.similarities(identity, vector, sorted(around - near.keys()))
        span = best - base or 1.0
        level = {number: max(0.0, (score - base) / span) for number, score in near.items()}
        smooth = {
            number: level.get(number, 0.0)
            + neighbours * (level.get(number - 1, 0.0) + level.get(number + 1, 0.0))
            for number in wanted
        }
        top = max(smooth.values()) or 1.0
        return {number: score / top for number, score in smooth.items()}

    @property
    def identity(self) -> str:
        """The name of the embedder, and of how long its vectors are, once that is known."""
        return f"{self._name}/{self._size}" if self._size else self._name

    def vectors(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The embedder's vectors, checked and of length 1."""
        raw = self._guarded(texts)
        if len(raw) != len(texts):
            raise EmbedderError(f"it returned {len(raw)} vectors for {len(texts)} texts")
        sizes = {len(vector) for vector in raw}
        known = self._size or self._kept_size()
        if len(sizes) != 1 or 0 in sizes or (known and sizes != {known}):
            raise EmbedderError(
                f"it returned vectors of {sorted(sizes)} numbers, not of {known or 'one size'}",
                fix="give another model another identity: then all is embedded again",
            )
        self._size = sizes.pop()
        return [_unit(vector) for vector in raw]

    def _kept_size(self) -> int:
        """How long the vectors are that this embedder made before."""
        name, _, size = (self._store.embedder() or "").rpartition("/")
        return int(size) if name == self._name and size.isdecimal() else 0

    def _guarded(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Call the embedder in a thread of its own: it may hang, and raise whatever it likes."""
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append([[float(x) for x in vector] for vector in self._embed(texts)])
            except Exception as error:  # noqa: BLE001 - somebody else's code; it is told below
                outcome.append(error)

        thread = Thread(target=work, daemon=True, name="em-embed")
        thread.start()
        thread.join(self._timeout)
        if not outcome:
            raise EmbedderError(f"no answer within {self._timeout:g} seconds")
        if isinstance(outcome[0], EmbedderError):
            raise outcome[0]
        if isinstance(outcome[0], Exception):
            error = outcome[0]
            raise EmbedderError(f"{type(error).__name__}: {error}") from error
        return list(outcome[0])


def _unit(vector: Sequence[float]) -> Sequence[float]:
    length = sqrt(sum(x * x for x in vector))
    if not isfinite(length) or not length:
        raise EmbedderError("it returned a vector without a direction")
    return [x / length for x in vector]
