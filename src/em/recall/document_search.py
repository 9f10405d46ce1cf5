"""Recall for documents: texts beside the log, such as lessons, found by words and by meaning.

They are no passages, since they don't live as events do (docs/architecture.md says why). So a
question is read and embedded here as recall does it, and asked of the documents.
"""

import re
from collections.abc import Sequence, Set

import msgspec

from em.errors import EmbedderError
from em.recall.embed import Embed
from em.recall.question import MAX_CHARS
from em.recall.semantics import AT_ONCE, PORTION, Meaning, Progress, silent
from em.store.document import Document, DocumentQuery, Hit
from em.store.protocol import Store
from em.text.words import STOP_WORDS

_WORD = re.compile(r"[^\W_]+")
REMEMBERED = 64
"""Questions whose vectors are remembered: one task is looked for in several scopes."""


class Found(list[Hit]):
    """Documents; those found by words first. `notes` says what could not be done."""

    def __init__(self, hits: Sequence[Hit] = (), notes: Sequence[str] = ()) -> None:
        super().__init__(hits)
        self.notes = list(notes)


class DocumentRecall:
    """Search in the documents of a store.

    passed_over: words that tell nothing in these documents.
    """

    def __init__(
        self, store: Store, embed: Embed | None = None, passed_over: Set[str] = STOP_WORDS
    ) -> None:
        self._store = store
        self._passed_over = passed_over
        self._meaning = None if embed is None else Meaning(store, embed)
        self._asked: dict[str, Sequence[float]] = {}
        self._complete: dict[tuple[str, ...], tuple[int, str] | None] = {}

    def __call__(self, query: DocumentQuery) -> Found:
        """Documents with words of the query, and those near to it in meaning.

        A hit that has no word in common has a score of 0; one of those with the best `nearness` has
        that said, whether it was found by words or not.
        """
        text = telling(query.text, self._passed_over)
        hits = self._store.search(msgspec.structs.replace(query, text=text))
        if self._meaning is None or not query.text.strip():
            return Found(hits)
        try:
            near, left = self._near(self._meaning, query)
        except EmbedderError as error:
            return Found(hits, [f"found by words only, since the embedder failed: {error}"])
        by_words = {hit.document.id: hit for hit in hits}
        found = [
            msgspec.structs.replace(hit, nearness=near.pop(name)[1]) if name in near else hit
            for name, hit in by_words.items()
        ]
        found += [Hit(document, 0.0, nearness) for document, nearness in near.values()]
        notes = [f"{left} or more lessons have no vector yet: `em recall --embed` makes them"]
        return Found(found, notes if left else [])

    def embed_all(self, query: DocumentQuery, progress: Progress | None = None) -> None:
        """Give every document in a scope its vector."""
        if self._meaning is not None:
            self._meaning.vector("a first text, to learn how long its vectors are")
            self._catch_up(self._meaning, query, None, progress or silent)

    def _near(
        self, meaning: Meaning, query: DocumentQuery
    ) -> tuple[dict[str, tuple[Document, float]], int]:
        vector = self._vector(meaning, query.text[:MAX_CHARS])
        left = self._catch_up(meaning, query, AT_ONCE, silent)
        hits = self._store.near_documents(meaning.identity, vector, query)
        return {hit.document.id: (hit.document, hit.score) for hit in hits}, left

    def _vector(self, meaning: Meaning, text: str) -> Sequence[float]:
        vector = self._asked.get(text)
        if vector is None:
            vector = meaning.vector(text)
            if len(self._asked) >= REMEMBERED:
                self._asked.clear()
            self._asked[text] = vector
        return vector

    def _catch_up(
        self, meaning: Meaning, query: DocumentQuery, limit: int | None, progress: Progress
    ) -> int:
        """Embed documents that have no vector yet, the newest first; some that are left."""
        scope = (query.subject or "", *query.kinds)
        done = 0
        while True:
            asked = msgspec.structs.replace(query, text="", limit=PORTION)
            newest, texts = self._store.documents_without_vector(
                meaning.identity, asked, self._complete.get(scope)
            )
            if not texts:
                self._complete[scope] = newest
                return 0
            if limit is not None and done >= limit:
                return len(texts)
            vectors = meaning.vectors(list(texts.values()))
            self._store.put_vectors(meaning.identity, dict(zip(texts, vectors, strict=True)))
            done += len(texts)
            progress(done, done)


def telling(text: str, passed_over: Set[str] = STOP_WORDS) -> str:
    """The words of a question that are worth looking for; all, if none is."""
    return " ".join(word for word in _WORD.findall(text) if word.lower() not in passed_over) or text
