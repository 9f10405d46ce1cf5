"""Find passages and lessons for a question, best first."""

from collections.abc import Sequence, Set
from datetime import datetime
from typing import TypeVar

import msgspec

from em.errors import EmbedderError, InputError, UsageError
from em.log.event import check_name
from em.recall.embed import TIMEOUT, Embed, Meaning, Progress, silent
from em.recall.question import FRAME, MAX_CHARS, MAX_WORDS, Question, read_question
from em.recall.rank import (
    ALONE,
    RERANKED,
    RankedWord,
    Rerank,
    Weights,
    apart,
    best_of,
    rarity,
    reranked,
    score_words,
    substance,
)
from em.store.protocol import SHAPE_BITS, Passage, PassageMark, Store, Within
from em.store.search_index import SearchIndex
from em.text.tags import FIELDS
from em.text.terms import QUESTION, STOP_WORDS, speaker_terms, stems_of, words_of
from em.values.times import from_micros
from em.values.times import now as this_moment

T = TypeVar("T")
MOST = 10_000
POSTINGS = 20_000
"""Postings read of one word. Of a more frequent word, only those beside a rarer one are read."""
CANDIDATES = 20
OUTSIDE = 0.01
"""What meaning counts outside the times that a question names: it orders what is left."""


class Noted(list[T]):
    """What was found, best first. `notes` tells what could not be done."""

    def __init__(self, found: Sequence[T] = (), notes: Sequence[str] = ()) -> None:
        super().__init__(found)
        self.notes = list(notes)


class Recalled(Noted[Passage]):
    """Passages, best first."""


class Recall:
    """Search what was said in a store."""

    def __init__(
        self,
        store: Store,
        embed: Embed | None = None,
        weights: Weights | None = None,
        *,
        rerank: Rerank | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._index = store.index
        self._meaning = None if embed is None else Meaning(store, embed, timeout=timeout)
        self._weights = weights or Weights()
        self._rerank, self._timeout = rerank, timeout

    def recall(
        self,
        query: str,
        within: Within,
        k: int = 10,
        *,
        neighbours: int = 0,
        in_order: bool = False,
        now: datetime | None = None,
    ) -> Recalled:
        """Return the best passages, one for each event.

        neighbours: how many passages on each side to return with each.
        in_order: sort by time instead of by score.
        """
        _check(query, within, k, neighbours)
        question = self._read(query, within, now or this_moment())
        wide = k if self._rerank is None else max(k, RERANKED)
        # Meaning, and what others said around a voice, may lift a passage of any score.
        most = None if self._meaning is not None or within.is_voiced else _wanted(wide)
        scores, timed = self._by_words(question, within, most)
        notes: list[str] = []
        if self._meaning is not None and query.strip():
            try:
                scores = self._with_meaning(
                    self._meaning, scores, question, timed, within, k, notes
                )
            except EmbedderError as error:
                notes.append(f"found by words only: the embedder failed: {error}")
                if left := self._meaning.left(within):
                    notes.append(f"{left:,} passages have no vector")
        best = self._best(scores, question, timed, wide, within)
        if most is not None and len(best) < wide and len(scores) >= most:
            # A few long events took the places of all that were scored.
            scores, timed = self._by_words(question, within, None)
            best = self._best(scores, question, timed, wide, within)
        found = self._fetch(best, neighbours, within)
        if self._rerank is not None and found:
            found, problem = reranked(self._rerank, query, found, self._timeout)
            found = found[:k]
            notes += [problem] if problem else []
        if in_order:
            found.sort(key=lambda passage: (passage.at, passage.number))
        return Recalled(found, notes)

    def embed_all(self, progress: Progress | None = None, subject: str | None = None) -> int:
        """Embed every passage, or those of one subject. Return how many are left without a vector.

        subject: "" for passages without a subject.
        """
        if self._meaning is None:
            raise UsageError(
                "there is no embedder",
                fix="pass embedder= to Memory, or set EM_EMBED=local (docs/recall.md)",
            )
        self._meaning.vector("a text to learn the size of the vectors")
        return self._meaning.catch_up(Within(subject=subject), None, progress or silent)

    def _with_meaning(
        self,
        meaning: Meaning,
        scores: dict[int, float],
        question: Question,
        timed: Set[int],
        within: Within,
        k: int,
        notes: list[str],
    ) -> dict[int, float]:
        """Add the scores by meaning to those by words. Candidates of both stay.

        Where the question names a time, meaning does not lift what lies outside it.
        """
        vector = meaning.vector(question.text)
        try:
            left = meaning.catch_up(within)
        except EmbedderError as error:
            left = meaning.left(within)
            notes.append(f"the embedder failed: {error}")
        if left:
            notes.append(f"{left:,} passages have no vector yet; run `em recall --embed`")
        candidates = [number for _, number in best_of(scores, _wanted(k))]
        near = meaning.nearest(vector, within, candidates, self._weights.vector_neighbours)
        together = {number: scores[number] for number in candidates}
        for number, nearness in near.items():
            # A passage with a low score by words may become a candidate by meaning.
            score = scores.get(number, 0.0)
            weight = OUTSIDE if timed and number not in timed else self._weights.vector
            together[number] = score + weight * nearness
        return together

    def _read(self, query: str, within: Within, now: datetime) -> Question:
        def are_speakers(stems: Sequence[str]) -> list[bool]:
            names = [f"@{stem}" for stem in stems]
            if not any(self._index.find([names] if names else [], within, 1)):
                return [False] * len(stems)  # most questions name none: one look tells
            return [bool(has) for has in self._index.find([[name] for name in names], within, 1)]

        return read_question(query, now, are_speakers)

    def _by_words(
        self, question: Question, within: Within, most: int | None
    ) -> tuple[dict[int, float], Set[int]]:
        """Return the scores by words, and the passages of the times that the question names.

        most: how many of the best are wanted; None for all.
        Where only some voices count, what others said around them still counts as context.
        """
        scores, timed = self._of_scope(question, within, most)
        if not within.is_voiced:
            return scores, timed
        around, timed_around = self._of_scope(question, within.of_all_voices(), None)
        best = {number: score for score, number in best_of(around, POSTINGS)}
        for mark in self._index.marks(list(best)):
            if _has_voice(mark, within):
                scores[mark.number] = max(scores.get(mark.number, 0.0), best[mark.number])
        return scores, timed | timed_around

    def _of_scope(
        self, question: Question, within: Within, most: int | None
    ) -> tuple[dict[int, float], Set[int]]:
        groups = [*([word] for word in question.words), *question.times]
        found = self._index.find(groups, within, POSTINGS + 1) if groups else []
        if question.speakers and not any(found):
            # No passage has these words: search what the named speakers said instead.
            names = sorted(question.speakers)
            words = [*names, *(f"@{name}" for name in names)]
            question = question._replace(words=words, times=[], periods=[])
            groups = [[word] for word in question.words]
            found = self._index.find(groups, within, POSTINGS + 1)
        first = len(question.words)
        weights = self._weights
        if question.of_assistant or question.of_both:
            weights = msgspec.structs.replace(weights, assistant_words=1.0)
        scores = _score(self._index, groups, found, within, weights, first, most)
        bounding = found[first : first + len(question.periods)]
        return scores, {item >> SHAPE_BITS for postings in bounding for item in postings}

    def _best(
        self,
        scores: dict[int, float],
        question: Question,
        timed: Set[int],
        k: int,
        within: Within,
    ) -> list[tuple[PassageMark, float]]:
        """Return the best passage of each event, weighed by shape, role and speaker."""
        wanted, is_bounded = _wanted(k), within.is_bounded
        while True:
            raw = {number: score for score, number in best_of(scores, wanted)}
            weighed = [
                (mark, raw[mark.number] * self._factor(mark, question, timed))
                for mark in self._index.marks(list(raw))
                if not is_bounded
                or (within.holds(from_micros(mark.at)) and _has_voice(mark, within))
            ]
            if question.of_many:
                lower = apart({mark.number: score for mark, score in weighed}, self._weights.beside)
                weighed = [(mark, lower[mark.number]) for mark, _ in weighed]
            weighed.sort(key=lambda item: (-item[1], -item[0].number))
            best: dict[int, tuple[PassageMark, float]] = {}
            for mark, score in weighed:
                best.setdefault(mark.seq, (mark, score))
            if len(best) >= k or len(raw) < wanted or wanted > POSTINGS:
                return list(best.values())[:k]
            wanted *= 4  # one long event may have taken all places

    def _factor(self, mark: PassageMark, question: Question, timed: Set[int]) -> float:
        weights = self._weights
        factor = substance(mark.shape, weights)
        if mark.role is None:
            # Between people only: a user tells an assistant things while asking.
            if mark.shape & QUESTION and not question.of_asking:
                factor *= weights.asking
        elif question.of_assistant and mark.role != "assistant":
            factor *= weights.other_speaker
        elif not (question.of_assistant or question.of_both):
            factor *= weights.role(mark.role)
        if question.speakers and not is_speaker(mark.speaker, question.speakers):
            factor *= weights.other_speaker
        if timed and not (mark.number in timed or _was_said_in(question, mark)):
            factor *= weights.other_time
        return factor

    def _fetch(
        self, best: Sequence[tuple[PassageMark, float]], neighbours: int, within: Within
    ) -> list[Passage]:
        around = range(-neighbours, neighbours + 1)
        is_open = not within.is_bounded and not within.tags
        numbers = {mark.number + offset for mark, _ in best for offset in around}
        texts = {passage.number: passage for passage in self._index.passages(sorted(numbers))}
        found = []
        for mark, score in best:
            passage = texts.get(mark.number)
            if passage is None or not (is_open or within.admits(passage)):
                continue  # forgotten or changed since it was ranked
            beside = [
                texts[mark.number + offset]
                for offset in around
                if offset and _belongs(texts.get(mark.number + offset), passage, within)
            ]
            found.append(msgspec.structs.replace(passage, score=score, neighbours=beside))
        return found


def _score(
    index: SearchIndex,
    groups: Sequence[Sequence[str]],
    found: Sequence[list[int]],
    within: Within,
    weights: Weights,
    first_time: int,
    most: int | None = None,
) -> dict[int, float]:
    """Score the passages found for each group of words; groups from `first_time` on are times."""
    if not any(found):
        return {}
    total = index.status(within).passages
    rare = [
        word
        for group, has in zip(groups, found, strict=True)
        if 0 < len(has) <= POSTINGS
        for word in group
    ]
    words = []
    for n, (group, postings) in enumerate(zip(groups, found, strict=True)):
        count, known = _settle(index, group, postings, rare, within)
        named_time = n >= first_time
        worth = rarity(count, total)
        if named_time:
            worth *= weights.time
        elif not FRAME.isdisjoint(group):
            worth *= weights.frame
        words.append(RankedWord(worth, known, spreads=not named_time))
    return score_words(words, weights, most)


def _settle(
    index: SearchIndex,
    group: Sequence[str],
    postings: list[int],
    rare: Sequence[str],
    within: Within,
) -> tuple[int, list[int]]:
    """Count the passages that have a word, and return the postings to score."""
    if len(postings) <= POSTINGS:
        return len(postings), postings
    count = index.count(within, group)
    if rare:
        postings = index.find([group], within, POSTINGS, beside=rare)[0] or postings
    return count, postings


def _belongs(other: Passage | None, passage: Passage, within: Within) -> bool:
    """Return whether two passages are of one conversation, and the other is in the scope."""
    if other is None or other.stream != passage.stream or other.session != passage.session:
        return False
    return within.of_all_voices().admits(other)


def _wanted(k: int) -> int:
    """Return how many candidates to rank for k results: some of them drop out."""
    return 3 * k + CANDIDATES


def _has_voice(mark: PassageMark, within: Within) -> bool:
    given = ((within.role, mark.role), (within.speaker, mark.speaker))
    return all(
        wanted is None or (has is not None and has.casefold() == wanted.casefold())
        for wanted, has in given
    )


def _was_said_in(question: Question, mark: PassageMark) -> bool:
    day = from_micros(mark.at).date()
    return any(period.holds(day) for period in question.periods)


def is_speaker(speaker: str | None, names: frozenset[str]) -> bool:
    """Return whether one of the names, which are stems, is this speaker's."""
    return speaker is not None and any(term[1:] in names for term in speaker_terms(speaker))


def _check(query: str, within: Within, k: int, neighbours: int) -> None:
    if not isinstance(query, str):
        raise InputError(f"query must be a string, got {type(query).__name__}", place="query")
    if within.subject is not None:
        check_name(within.subject, "subject")
    for field in FIELDS:
        if not isinstance(value := getattr(within, field), str | None):
            raise InputError(f"expected a text, got {type(value).__name__}", place=field)
    for name, value in within.metadata.items():
        if not isinstance(value, str | int | float):
            raise InputError(
                f"expected a text, a number or a truth value, got {type(value).__name__}",
                place=f"metadata.{name}",
                fix="give one value of a field; a passage with a list has each of its values",
            )
    for name, value, least, most in (("k", k, 1, MOST), ("neighbours", neighbours, 0, 100)):
        if type(value) is not int or not least <= value <= most:
            raise UsageError(
                f"{name} must be a whole number from {least} to {most}, got {value!r}", place=name
            )


REMEMBERED = 64
"""The number of vectors of questions that are cached: a task is searched in several scopes."""


class LessonHit(msgspec.Struct, frozen=True):
    """A lesson that was found.

    score: how well its words fit, comparable within one search; 0 if found by meaning only.
    nearness: the cosine to the question, for the nearest lessons if there is an embedder.
    """

    passage: Passage
    score: float
    nearness: float | None = None


class LessonRecall:
    """Search the lessons of a store.

    passed_over: words to ignore in a question, unless it has no others.
    """

    def __init__(
        self, store: Store, embed: Embed | None = None, passed_over: Set[str] = STOP_WORDS
    ) -> None:
        self._index = store.index
        self._passed_over = passed_over
        self._meaning = None if embed is None else Meaning(store, embed)
        self._asked: dict[str, Sequence[float]] = {}

    def __call__(self, text: str, within: Within, limit: int) -> Noted[LessonHit]:
        """Find the lessons that share words with a text, and those near to it in meaning."""
        text = text[:MAX_CHARS]
        scores = self._by_words(text, within)
        near: dict[int, float] = {}
        notes: list[str] = []
        if self._meaning is not None and text.strip():
            try:
                near = self._near(self._meaning, text, within, limit, notes)
            except EmbedderError as error:
                notes.append(f"found by words only: the embedder failed: {error}")
        return Noted(self._hits(scores, near, limit), notes)

    def embed_all(self, progress: Progress | None = None) -> None:
        """Embed every lesson, if there is an embedder."""
        if self._meaning is not None:
            self._meaning.vector("a text to learn the size of the vectors")
            self._meaning.catch_up(Within(lessons=True), None, progress or silent)

    def _by_words(self, text: str, within: Within) -> dict[int, float]:
        words = words_of(text)
        telling = [word for word in words if word not in self._passed_over] or words
        groups = [[stem] for stem in list(dict.fromkeys(stems_of(telling)))[:MAX_WORDS]]
        found = self._index.find(groups, within, POSTINGS + 1) if groups else []
        return _score(self._index, groups, found, within, ALONE, len(groups))

    def _near(
        self, meaning: Meaning, text: str, within: Within, limit: int, notes: list[str]
    ) -> dict[int, float]:
        vector = self._asked.get(text)
        if vector is None:
            vector = meaning.vector(text)
            if len(self._asked) >= REMEMBERED:
                self._asked.clear()
            self._asked[text] = vector
        left = meaning.catch_up(within)
        if left:
            notes.append(f"{left:,} lessons have no vector yet; run `em recall --embed`")
        return dict(self._index.nearest(meaning.identity, vector, within, limit))

    def _hits(
        self, scores: dict[int, float], near: dict[int, float], limit: int
    ) -> list[LessonHit]:
        """Return the best hits of both searches, one passage for each lesson."""
        # A long lesson may have several passages.
        best = [number for _, number in best_of(scores, 2 * limit)]
        numbers = dict.fromkeys([*best, *near])
        passages = {one.number: one for one in self._index.passages(list(numbers))}
        hits: dict[str, LessonHit] = {}
        by_words = 0
        for number in numbers:
            passage = passages.get(number)
            if passage is None or passage.event_id in hits:
                continue  # forgotten since it was ranked, or a better passage is there
            if number not in near:
                if by_words >= limit:
                    continue
                by_words += 1
            hits[passage.event_id] = LessonHit(passage, scores.get(number, 0.0), near.get(number))
        return list(hits.values())
