"""The promises of recall on every store; part of `StoreConformance`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from em.log.event import Draft, Event
from em.recall.embed import Meaning
from em.recall.search import Recall
from em.store.protocol import Store, Within
from em.testing.store import MINUTE, SECRET, T0, append
from em.text.tags import FIELDS

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts by their letters: texts that are spelt alike are near."""
    return [[1.0 + text.lower().count(letter) for letter in LETTERS] for text in texts]


def said(text: str, subject: str | None = "ana", stream: str = "talk", **body: Any) -> Draft:
    """Return a draft of an observation, by default at T0."""
    at = body.pop("at", T0)
    body = {"text": text, **body}
    return Draft(stream=stream, kind="observation", body=body, subject=subject, at=at)


def found(store: Store, query: str, subject: str | None = "ana", **options: Any) -> list[str]:
    """Return the texts that recall finds, best first."""
    names = ("since", "until", *FIELDS, "metadata")
    only = {name: options.pop(name) for name in names if name in options}
    recall = Recall(store, options.pop("embed", None))
    passages = recall.recall(query, Within(subject, **only), options.pop("k", 10), **options)
    return [passage.text for passage in passages]


class RecallConformance:
    """Recall on the store under test."""

    def test_what_is_appended_is_found_at_once(self, store: Store) -> None:
        append(
            store,
            said("I moved to Porto in March", speaker="Ana"),
            Draft(stream="run", kind="message", body={"role": "user", "text": "book a flight"}),
            Draft(
                stream="r", subject="ana", kind="observation", body={"record": {"city": "Lisbon"}}
            ),
            Draft(stream="run", kind="tool_call", body={"tool": "porto"}),
        )
        assert found(store, "moving to porto")[0] == "I moved to Porto in March"
        assert found(store, "Lisbon") == ["city: Lisbon"]
        assert found(store, "flights", None) == ["book a flight"]
        assert len(found(store, "porto", None)) == 1
        assert found(store, "nowhere") == []

    def test_a_search_is_narrowed_by_who_where_and_own_fields(self, store: Store) -> None:
        append(
            store,
            said("where is the key", role="user", speaker="Ana", session="one", agent="a"),
            said("it lies below the mat", role="assistant", session="one", agent="a", run="r1"),
            said("the key is lost", role="user", speaker="Bo", session="two", run="r2"),
            said("a key of gold", "bo", "b", session="one", metadata={"project": "atlas", "n": 42}),
            said("a key of iron", "bo", "b", metadata={"project": "borea", "tags": ["x", "y"]}),
            Draft(stream="trace/t7", kind="message", body={"role": "user", "text": "key seven"}),
        )
        for model in (None, embed):

            def only(subject: str | None = None, _model: Any = model, **given: Any) -> set[str]:
                return set(found(store, "key", subject, embed=_model, **given))

            assert only(role="USER", session="one") == {"where is the key"}
            assert only(speaker="ana") == {"where is the key"}
            assert only(session="two") == {"the key is lost"}
            assert only(run="r2") == {"the key is lost"}
            assert only(run="t7") == {"key seven"}
            assert only("ana", metadata={"project": "atlas"}) == set()
            assert only(metadata={"project": "atlas"}) == {"a key of gold"}
            assert only(metadata={"project": "atlas", "n": "42"}) == {"a key of gold"}
            assert only(metadata={"tags": "y"}) == {"a key of iron"}
            assert only(metadata={"project": "x"}) == set()
            # The words of the question before it count for what the assistant answered.
            assert only("ana", role="assistant") == {"it lies below the mat"}
            assert only("ana", agent="a", role="assistant") == {"it lies below the mat"}
            assert only("ana", until=T0, session="one") == set()

    def test_the_answer_is_found_by_the_words_of_its_question(self, store: Store) -> None:
        append(
            store,
            said("What did you think of the concert?", speaker="Bo", session="1"),
            said("It was wonderful, I cried a lot.", speaker="Ana", session="1"),
            said("By the way, the dishwasher broke.", speaker="Ana", session="2"),
        )
        assert sorted(found(store, "concert")) == [
            "It was wonderful, I cried a lot.",
            "What did you think of the concert?",
        ]

    def test_conversations_that_take_turns_do_not_touch(self, store: Store) -> None:
        for n in range(5):
            append(store, said(f"alpha {n}", stream="a"), said(f"beta {n}", stream="b"))
        assert all(text.startswith("alpha") for text in found(store, "alpha", k=30))
        assert len(found(store, "alpha", k=30)) == 5

    def test_a_subject_never_sees_anothers_text(self, store: Store) -> None:
        mine = [said("the red car", "ana"), said("the blue boat", "ana")]
        append(store, *mine)
        recall = Recall(store)
        before = recall.recall("red boat", Within("ana"), neighbours=3)
        append(store, *(said(f"the red secret {n}", "bo", "talk of bo") for n in range(50)))
        after = recall.recall("red boat", Within("ana"), neighbours=3)
        assert before == after
        assert found(store, "secret") == []
        assert found(store, "secret", "nobody") == []
        for hostile in ("ana' OR 1=1", 'ana" OR "x', "an_", "%", "*"):
            assert found(store, "secret car", hostile) == []
        together = recall.recall("secret", Within("bo"), 50, neighbours=5)
        assert {p.subject for hit in together for p in (hit, *hit.neighbours)} == {"bo"}
        assert len(found(store, "secret car", None, k=100)) > 40, (
            "all subjects, where none is named"
        )

    def test_times_bound_what_is_found(self, store: Store) -> None:
        """`since` is included, `until` is not."""
        append(store, *(said(f"note {n}", at=T0 + n * timedelta(days=1)) for n in range(4)))
        day = timedelta(days=1)
        assert set(found(store, "note", since=T0 + 2 * day)) == {"note 2", "note 3"}
        assert set(found(store, "note", until=T0 + day)) == {"note 0"}
        for embedder in (None, embed):
            bounds = {"since": T0 + day, "until": T0 + 2 * day, "embed": embedder}
            assert found(store, "note", "ana", **bounds) == ["note 1"]

    def test_a_relative_date_is_found_by_the_day_it_means(self, store: Store) -> None:
        append(store, said("We met last Friday", at=T0), said("We talked", at=T0 + 40 * MINUTE))
        append(store, said("We met often", at=T0 - timedelta(days=90)))
        assert found(store, "whom did they meet on 28 February 2025")[0] == "We met last Friday"
        assert found(store, "what was on 2025-02-28")[0] == "We met last Friday"
        assert found(store, "what happened in December 2024")[0] == "We met often"

    def test_a_named_speaker_is_preferred(self, store: Store) -> None:
        append(
            store,
            said("I love hiking", speaker="Bo", session="1"),
            said("I love hiking", speaker="Ana", session="2"),
        )
        recall = Recall(store)
        assert recall.recall("what does Bo love", Within("ana"))[0].speaker == "Bo"
        assert recall.recall("what does Ana love", Within("ana"))[0].speaker == "Ana"
        assert recall.recall("bo", Within("ana"))[0].speaker == "Bo"
        assert recall.recall("where does Bo live", Within("ana"))[0].speaker == "Bo"

    def test_neighbours_and_reading_order(self, store: Store) -> None:
        append(store, *(said(f"line {word}") for word in ("one", "two", "three", "four")))
        (best, *_) = Recall(store).recall("three", Within("ana"), 1, neighbours=1)
        assert [passage.text for passage in best.neighbours] == ["line two", "line four"]
        assert found(store, "four two", in_order=True) == [
            *("line one", "line two", "line three", "line four")
        ]

    def test_a_long_text_is_found_in_parts(self, store: Store) -> None:
        filler = "padding words to fill the pages " * 320_000
        middle = len(filler) // 2
        append(store, said(filler[:middle] + " the needle lies here " + filler[middle:]))
        (passage, *others) = Recall(store).recall("needle", Within("ana"))
        assert "needle lies here" in passage.text
        assert len(passage.text) <= 2_000
        assert passage.start > 4_000_000
        assert others == []

    @pytest.mark.parametrize(
        "query",
        [
            *("", " ", "a", "?", '"', "'", "AND", "OR NOT", "NEAR(a b)", "a* OR (", "text:x"),
            *("'; DROP TABLE events", "%", "\0", "{}", "^x", "-x", "\ud800", "=20250301", "@ana"),
            *(
                "日本語",
                "приве́т",
                "สวัสดี",
                "🎉",
                "🏳️‍🌈",
                "٣٤٥",
                "ﬁ",
                "a" * 1_000_000,
                "word " * 200_000,
            ),
        ],
    )
    def test_any_query_is_words_and_never_syntax(self, store: Store, query: str) -> None:
        append(store, said("some plain text"))
        found(store, query)
        assert found(store, f"plain {query[:50]}") == ["some plain text"]

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("Grüße aus München", "munchen"),
            ("Я купил машину вчера", "машину"),
            ("今日は東京タワーに行きました", "東京タワー"),
            ("오늘은 서울에서 만났다", "서울"),
            ("ฉันไปเที่ยวเชียงใหม่", "เชียงใหม่"),
            ("party 🎉 tonight", "🎉"),
            ("मुझे आम पसंद है", "आम"),
            ("אני גר בחיפה", "בחיפה"),
            ("invoice-4711 at ana@example.com", "ana@example.com"),
            ("to be or not to be", "to be"),
        ],
    )
    def test_every_script_is_found(self, store: Store, text: str, query: str) -> None:
        append(store, said("something else entirely", session="1"), said(text, session="2"))
        assert found(store, query)[0] == text

    def test_a_text_without_words_is_kept_as_a_neighbour(self, store: Store) -> None:
        append(store, said("…"), said(" "), said("alpha"), said("!!!", speaker="?"), said(""))
        (best, *_) = Recall(store).recall("alpha", Within("ana"), neighbours=1)
        assert [passage.text for passage in best.neighbours] == [" ", "!!!"]

    def test_nothing_secret_reaches_the_index(self, store: Store) -> None:
        append(store, said(f"my key is {SECRET}"))
        assert found(store, "key") == ["my key is [redacted:anthropic-key]"]
        assert found(store, SECRET.rpartition("-")[2]) == []

    def test_what_was_forgotten_is_not_found(self, store: Store) -> None:
        """It is neither a hit nor a neighbour any more; other passages are."""
        events = append(store, said("we spoke of xylophones"), said("yes indeed"), said("more"))
        found(store, "xylophones", embed=embed)
        assert store.erase([events[0].id]).passages == 1
        assert found(store, "xylophones") == []
        for embedder in (None, embed):
            texts = found(store, "yes xylophones", neighbours=3, embed=embedder)
            assert "yes indeed" in texts
            assert "xylophones" not in "".join(texts)
        assert store.index.status(Within("ana")).passages == 2

    def test_a_forgotten_subject_leaves_nothing(self, store: Store) -> None:
        append(store, said("alpha"), said("beta", "bo", "talk of bo"))
        store.erase([], subjects=["ana"])
        assert (found(store, "alpha"), store.index.status(Within("ana")).passages) == ([], 0)
        assert found(store, "beta", "bo") == ["beta"]

    def test_an_export_is_found_where_it_is_imported(self, store: Store) -> None:
        from em.log.event import EventQuery
        from em.store.protocol import Commit
        from em.store.sqlite import SqliteStore

        append(store, said("alpha"), said("beta"))
        exported: list[Event] = list(store.read(EventQuery()))
        with SqliteStore(":memory:") as copy:
            for _ in range(2):
                copy.commit(Commit(events=exported, skip_known=True))
            assert found(copy, "alpha")[0] == "alpha"
            assert copy.index.status(Within("ana")).passages == 2

    # --- meaning -------------------------------------------------------------------------------

    def test_meaning_finds_what_words_do_not(self, store: Store) -> None:
        append(store, said("zzzzzz zz", session="1"), said("plain words", session="2"))
        assert found(store, "zzzz") == []
        texts = found(store, "zzzz plain", embed=embed)
        assert set(texts) == {"zzzzzz zz", "plain words"}

    def test_vectors_of_two_embedders_are_never_mixed(self, store: Store) -> None:
        def other(texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, float(len(text))] for text in texts]

        append(store, *(said(f"text {n}") for n in range(10)))
        Meaning(store, embed).catch_up(Within("ana"))
        first = store.index.status(Within()).embedder
        assert first is not None
        assert store.index.without_vector(first, Within(), 1)[0] == 0
        meaning = Meaning(store, other)
        meaning.vector("x")
        meaning.catch_up(Within("ana"), 3)
        second = store.index.status(Within()).embedder
        assert second not in (None, first)
        assert store.index.without_vector(second or "", Within(), 1)[0] == 7
        assert store.index.nearest(first, embed(["text"])[0], Within("ana"), 5) == []

    def test_vectors_wait_for_nobody(self, store: Store) -> None:
        events = append(store, said("alpha"), said("beta"))
        _, numbers = store.index.without_vector("x", Within("ana"), 10)
        store.erase([events[0].id])
        store.index.put_vectors("x", {number: [1.0, 0.0] for number in numbers})
        assert len(store.index.nearest("x", [1.0, 0.0], Within("ana"), 10)) == 1

    def test_lessons_are_found_by_meaning_and_never_among_what_was_said(self, store: Store) -> None:
        from em.recall.search import LessonRecall
        from em.store.protocol import Commit
        from em.testing.store import learn

        append(store, said("zzz qqq"))
        for n in range(70):
            learn(store, f"other {n}", f"zzzz{n}", subject="bo")
        learn(store, "1", "zzzz zz")
        learn(store, "2", "plain words")
        search, everybody = LessonRecall(store, embed), Within("", lessons=True)
        (hit,) = search("zzz", everybody, 1)
        assert (hit.passage.stream, hit.score, (hit.nearness or 0) > 0.9) == ("1", 0.0, True)
        both = search("plain zzz", everybody, 10)
        assert [hit.passage.stream for hit in both] == ["2", "1"]
        assert search("zzz", Within("ana", lessons=True), 10) == []
        assert found(store, "zzz", None, embed=embed) == ["zzz qqq"]
        store.commit(Commit(lessons={"1": None}))
        assert [hit.passage.stream for hit in search("zzz", everybody, 1)] == ["2"]
        learn(store, "2", "zzz zzz zzz")
        assert (search("zzz", everybody, 1)[0].nearness or 0) > 0.9, "it was embedded again"
        learn(store, "2", "plain words")
        learn(store, "3", "zzz zzz zzz")
        assert [hit.passage.stream for hit in search("zzz", everybody, 1)] == ["3"]

        def failing(texts: Sequence[str]) -> Any:
            raise RuntimeError("out of memory")

        words = LessonRecall(store, failing)("plain", everybody, 10)
        assert [hit.passage.stream for hit in words] == ["2"]
        assert "by words only" in words.notes[0]

    @pytest.mark.parametrize("how", ["fails", "hangs", "too few", "wrong size", "nan", "no vector"])
    def test_an_embedder_that_fails_leaves_the_words(self, store: Store, how: str) -> None:
        from time import sleep

        def broken(texts: Sequence[str]) -> Any:
            if how == "fails":
                raise RuntimeError("out of memory")
            if how == "hangs":
                sleep(2)
            wrong: dict[str, Any] = {
                "too few": [],
                "wrong size": [[1.0, 2.0]] * len(texts),
                "nan": [[float("nan")] * len(LETTERS)] * len(texts),
                "no vector": ["text"] * len(texts),
            }
            return wrong.get(how, embed(texts))

        broken.identity = "same"  # type: ignore[attr-defined]  # as an embedder may say who it is

        def good(texts: Sequence[str]) -> Any:
            return embed(texts)

        good.identity = "same"  # type: ignore[attr-defined]  # as above
        append(store, said("alpha"), said("beta"))
        assert Recall(store, good).recall("alpha", Within("ana")).notes == []
        recall = Recall(store, broken)
        assert recall._meaning is not None
        recall._meaning._timeout = 0.2
        append(store, said("alpha again"))
        answer = recall.recall("alpha", Within("ana"))
        assert {"alpha", "alpha again"} <= {passage.text for passage in answer}
        assert "by words only" in answer.notes[0]
        assert Recall(store, good).recall("alpha", Within("ana")).notes == []

    def test_more_than_a_few_passages_without_a_vector_are_told_of(self, store: Store) -> None:
        append(store, *(said(f"text {n}") for n in range(300)))
        recall = Recall(store, embed)
        assert "44 passages have no vector yet" in recall.recall("text", Within("ana")).notes[0]
        steps: list[tuple[int, int]] = []
        assert recall.embed_all(lambda done, total: steps.append((done, total))) == 0
        assert steps[-1] == (44, 44)
        assert recall.recall("text", Within("ana")).notes == []
