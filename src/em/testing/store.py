"""The promises of every store: its log, what is compiled from it, and forgetting."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from em.errors import (
    BadBody,
    ChainConflict,
    ClaimLost,
    Conflict,
    DuplicateEvent,
    ForeignStream,
    InputError,
    NotFound,
    PositionConflict,
    UsageError,
)
from em.log.chain import hash_event
from em.log.event import Draft, Event, EventQuery
from em.log.verify import Head, verify
from em.recall.search import LessonRecall
from em.store.protocol import (
    Artefact,
    ArtefactDraft,
    Commit,
    Erasure,
    Record,
    RequestOutcome,
    Store,
    Within,
)
from em.store.sqlite import SqliteStore
from em.values.canonical import Json
from em.values.times import new_id, to_micros

T0 = datetime(2025, 3, 1, 12, tzinfo=UTC)
SECRET = "sk-ant-api03-" + "Abc1" * 10
MINUTE = timedelta(minutes=1)


def note(text: str, stream: str = "notes", **fields: Any) -> Draft:
    """Return a draft of a small event."""
    return Draft(stream=stream, kind="note", body={"text": text}, **fields)


def append(store: Store, *drafts: Draft | Event, **rest: Any) -> list[Event]:
    """Commit events and return them."""
    return list(store.commit(Commit(events=drafts, **rest)).events)


def learn(store: Store, stream: str, text: str, **fields: Any) -> Event:
    """Append a note that is indexed as the lesson of its stream."""
    draft = note(text, stream, id=new_id(), **fields)
    return append(store, draft, lessons={stream: draft.id})[0]


def lessons(store: Store, text: str, within: Within | None = None, limit: int = 10) -> list[str]:
    """Return the streams of the lessons that have a word of a text, best first."""
    search = LessonRecall(store, passed_over=frozenset())
    return [hit.passage.stream for hit in search(text, within or Within(lessons=True), limit)]


def texts(events: Iterator[Event]) -> list[str | None]:
    """Return the texts of notes; None for an erased one."""
    return [None if event.body is None else event.body["text"] for event in events]


class Crowd:
    """Writers to one store and followers of its log, each in a thread of its own.

    Each writer has a stream of its own and one that it shares with others, and some of its commits
    are refused after they have begun.
    """

    def __init__(self, store: Store, *, writers: int, commits: int) -> None:
        self._store = store
        self._writers = writers
        self._commits = commits
        self._ended = threading.Event()
        self.written: list[str] = []
        self.seen: dict[tuple[str, ...], list[str]] = {(): [], ("note",): [], ("other",): []}

    def work(self) -> None:
        """Let all of them work until the writers are done and the followers have seen it."""
        with ThreadPoolExecutor(self._writers + len(self.seen)) as pool:
            followers = [pool.submit(self._follow, kinds) for kinds in self.seen]
            try:
                list(pool.map(self._write, range(self._writers)))
            finally:
                self._ended.set()
            for follower in followers:
                follower.result()

    def _write(self, number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - not a secret
        own, shared = f"own/{number}", f"shared/{number % 4}"
        for n in range(self._commits):
            text = f"{number}.{n}"
            drafts = [note(text, own)]
            if chance.random() < 0.3:
                drafts.append(Draft(stream=shared, kind="other", body={"text": text}))
            if chance.random() < 0.3:
                refused = [note(text, f"{own}/{n}", subject=name) for name in ("ana", "bo")]
                with pytest.raises(ForeignStream):
                    append(self._store, *drafts, *refused)
            self.written += [event.id for event in append(self._store, *drafts)]

    def _follow(self, kinds: tuple[str, ...]) -> None:
        last, more = 0, True
        while more:
            more = not self._ended.wait(0.01)
            for event in self._store.read(EventQuery(kinds=kinds, after=last)):
                last = event.seq
                self.seen[kinds].append(event.id)


class LogConformance:
    """The log of the store under test."""

    def another(self) -> AbstractContextManager[Store]:
        """Return a second store to copy into; override it to use your own."""
        return SqliteStore(":memory:")

    @pytest.mark.parametrize(
        "query",
        [
            {"stream": "\udcff"},
            {"subject": "a\0b"},
            {"ids": ["\udcff"]},
            {"kinds": [3]},
            {"after": 2**70},
            {"limit": -1},
            {"limit": "3"},
            {"newest": True},
            {"ids": ["x"] * 20_000},
        ],
    )
    def test_a_query_that_no_event_can_answer_is_refused(
        self, store: Store, query: dict[str, Any]
    ) -> None:
        with pytest.raises((InputError, UsageError)):
            list(store.read(EventQuery(**query)))

    def test_what_was_appended_is_read_back_equal(self, store: Store) -> None:
        written = append(store, note("a", subject="ana", at=T0), note("b", stream="other"))
        assert list(store.read(EventQuery())) == written
        assert [(event.seq, event.stream, event.pos) for event in written] == [
            (1, "notes", 1),
            (2, "other", 1),
        ]
        assert written[0].at == T0
        assert written[1].at == written[1].recorded_at

    def test_events_are_chosen_by_stream_subject_kind_time_seq_and_id(self, store: Store) -> None:
        log = append(
            store,
            note("1", stream="s", subject="ana", at=T0),
            note("2", stream="s", at=T0 + MINUTE),
            Draft(stream="t", kind="other", body={"text": "3"}, subject="ana", at=T0 + 2 * MINUTE),
        )
        cases: list[tuple[dict[str, Any], str]] = [
            ({"stream": "s"}, "12"),
            ({"subject": "ana"}, "13"),
            ({"kinds": ["other"]}, "3"),
            ({"kinds": ["other", "note"]}, "123"),
            ({"since": T0 + MINUTE}, "23"),
            ({"until": T0 + MINUTE}, "1"),
            ({"after": log[1].seq}, "3"),
            ({"stream": "s", "after": log[0].seq}, "2"),
            ({"before": log[1].seq}, "1"),
            ({"before": log[2].seq, "limit": 1, "newest": True}, "2"),
            ({"stream": "s", "before": log[1].seq}, "1"),
            ({"before": 0}, ""),
            ({"ids": [log[2].id, log[0].id]}, "13"),
            ({"limit": 2}, "12"),
            ({"limit": 0}, ""),
            ({"limit": 2, "newest": True}, "23"),
            ({"subject": "ana", "stream": "t"}, "3"),
            ({"stream": "none"}, ""),
        ]
        for conditions, expected in cases:
            found = "".join(str(text) for text in texts(store.read(EventQuery(**conditions))))
            assert found == expected, conditions

    def test_reading_streams_over_many_pages_in_order(self, store: Store) -> None:
        for start in range(0, 5_000, 1_000):
            append(store, *(note(str(n), stream=f"s{n % 3}") for n in range(start, start + 1_000)))
        assert texts(store.read(EventQuery())) == [str(n) for n in range(5_000)]
        assert texts(store.read(EventQuery(stream="s1"))) == [str(n) for n in range(1, 5_000, 3)]
        rows = [(row.stream, row.pos) for row in store.rows(EventQuery(by_stream=True))]
        assert rows == sorted(rows)
        assert len(rows) == 5_000

    def test_a_reader_ends_where_the_log_ended_when_it_began(self, store: Store) -> None:
        append(store, *(note(str(n)) for n in range(10)))
        seen = 0
        for _ in store.read(EventQuery()):
            append(store, note("meanwhile"))
            seen += 1
        assert seen == 10

    def test_a_batch_is_all_or_nothing(self, store: Store) -> None:
        with pytest.raises(BadBody) as caught:
            append(
                store,
                note("good"),
                Draft(stream="s", kind="note", body={"x": float("nan")}),
                records=[Record(subject="ana", type="T", id="1", body={})],
            )
        assert "event 1 of the batch" in str(caught.value)
        assert list(store.read(EventQuery())) == []
        assert list(store.records("ana")) == []

    def test_expected_position_makes_it_compare_and_append(self, store: Store) -> None:
        """The second writer at a position is refused; the error has the actual position."""
        append(store, note("1"), expected_pos={"notes": 0})
        append(store, note("2"), expected_pos={"notes": 1})
        with pytest.raises(PositionConflict) as caught:
            append(store, note("late"), expected_pos={"notes": 1})
        assert caught.value.data == {"expected": 1, "actual": 2}
        assert texts(store.read(EventQuery())) == ["1", "2"]

    def test_an_id_is_used_once(self, store: Store) -> None:
        append(store, note("1", id="x"))
        for batch in ([note("2", id="x")], [note("2", id="y"), note("3", id="y")]):
            with pytest.raises(DuplicateEvent):
                append(store, *batch)
        assert len(list(store.read(EventQuery()))) == 1

    @pytest.mark.parametrize("before", [None, "ana"], ids=["first", "later"])
    def test_a_stream_is_about_one_subject(self, store: Store, before: str | None) -> None:
        """Another's event is refused, with all of its commit; events about nobody are welcome."""
        append(store, note("1", subject=before), note("2", "of bo", subject="bo"))
        append(store, note("3", subject="ana"), note("4"), note("5", subject="ana"))
        for batch in ([note("!", subject="bo")], [note("!", "of bo"), note("!", subject="bo")]):
            for _ in range(2):
                with pytest.raises(ForeignStream) as caught:
                    append(store, *batch)
            assert caught.value.code == "foreign_stream"
            assert "'notes'" in caught.value.place
        append(store, note("6", subject="ana"), note("7", "of bo", subject="bo"))
        assert texts(store.read(EventQuery())) == [str(n) for n in range(1, 8)]
        with pytest.raises(ForeignStream):
            append(store, note("!", "new", subject="ana"), note("!", "new", subject="bo"))
        append(store, note("8", "new", subject="bo"))
        assert verify(store).ok

    def test_a_stream_keeps_its_owner_when_the_owner_is_forgotten(self, store: Store) -> None:
        """Otherwise the next to write could take it over."""
        append(store, note("1", subject="ana"))
        store.erase([], subjects=["ana"])
        with pytest.raises(ForeignStream):
            append(store, note("!", subject="bo"))

    def test_an_export_of_a_stream_about_several_can_still_be_imported(self, store: Store) -> None:
        """It was written before streams had owners, and its hashes prove that it stood there."""
        hashed = append(store, note("1", subject="ana"))
        body_hash, at = bytes.fromhex(hashed[0].body_hash), to_micros(hashed[0].at)
        fields = ("x", "notes", 2, "bo", "note", 1, at, at, body_hash)
        own = hash_event(bytes.fromhex(hashed[0].hash), *fields).hex()
        other = msgspec.structs.replace(
            hashed[0], id="x", pos=2, subject="bo", hash=own, recorded_at=hashed[0].at
        )
        append(store, other)
        with pytest.raises(ForeignStream):
            append(store, note("!", subject="bo"))
        assert len(store.erase([], subjects=["bo"]).events) == 1
        assert verify(store).ok

    def test_threads_append_to_one_stream_without_loss(self, store: Store) -> None:
        def work(name: int) -> None:
            for n in range(20):
                append(store, note(f"{name}.{n}"), note(f"{name}.{n}+"))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        events = list(store.read(EventQuery(stream="notes")))
        assert [event.pos for event in events] == list(range(1, 241))
        assert len(set(texts(iter(events)))) == 240
        assert verify(store).ok

    def test_followers_see_every_event_once_beside_many_writers(self, store: Store) -> None:
        crowd = Crowd(store, writers=32, commits=5)
        crowd.work()
        everything = list(store.read(EventQuery()))
        assert sorted(event.id for event in everything) == sorted(crowd.written)
        assert [event.seq for event in everything] == sorted({event.seq for event in everything})
        for kinds, seen in crowd.seen.items():
            wanted = [event for event in everything if not kinds or event.kind in kinds]
            assert seen == [event.id for event in wanted], f"what a follower of {kinds} saw"
        report = verify(store)
        assert (report.findings, report.events) == ([], len(everything))

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"": "empty key", "é": "ü", "emoji": "🧠", "rtl": "שלום"},
            {"nul": "a\0b", "line": "\u2028\r\n\t", "quote": "\"'\\%?"},
            {"big": 2**80, "small": -(2**63) - 1, "float": 0.1, "tiny": 5e-324, "zero": -0.0},
            {"none": None, "true": True, "list": [[], {}, [[1]]], "deep": {"a": {"b": {"c": 1}}}},
            {"long": "x" * 3_000_000},
        ],
        ids=["empty", "scripts", "controls", "numbers", "shapes", "3MB"],
    )
    def test_bodies_come_back_exactly(self, store: Store, body: dict[str, Any]) -> None:
        append(store, Draft(stream="s", kind="note", body=body))
        (event,) = store.read(EventQuery())
        assert event.body == body
        assert verify(store).ok

    @pytest.mark.parametrize(
        ("fields", "place"),
        [
            ({"stream": ""}, "stream"),
            ({"stream": "a\0b"}, "stream"),
            ({"stream": "x" * 513}, "stream"),
            ({"subject": "two\nlines"}, "subject"),
            ({"kind": "No Kind"}, "kind"),
            ({"kind": "message"}, "body"),
            ({"kind": "message", "v": 99, "body": {"role": "user", "text": ""}}, "v"),
            ({"body": {"x": "\ud800"}}, "body.x"),
            ({"body": {"list": [1, float("inf")]}}, "body.list[1]"),
            ({"body": {"x": {1: "a"}}}, "body.x"),
            ({"body": {"x": object()}}, "body"),
            ({"body": {"x": [b"bytes"]}}, "body.x[0]"),
            ({"body": {"x": {float("nan")}}}, "body.x[0]"),
            ({"body": {"from_events": "no list"}}, "body.from_events"),
            ({"body": {"from_events": [1]}}, "body.from_events"),
            ({"kind": "erased", "body": {"events": []}}, "kind"),
            ({"v": True}, "v"),
            ({"v": 1.0}, "v"),
            ({"v": "1"}, "v"),
            ({"v": 0}, "v"),
            ({"v": 2**31}, "v"),
            ({"kind": ["list"]}, "kind"),
            ({"subject": ["list"]}, "subject"),
            ({"body": ["no object"]}, "body"),
            ({"stream": SECRET}, "stream, subject or id"),
        ],
    )
    def test_what_cannot_be_kept_is_refused_with_its_place(
        self, store: Store, fields: dict[str, Any], place: str
    ) -> None:
        values = {"stream": "s", "kind": "note", "body": {}, **fields}
        with pytest.raises(InputError) as caught:
            append(store, Draft(**values))
        assert caught.value.place == place
        assert SECRET not in str(caught.value)
        assert list(store.read(EventQuery())) == []

    def test_a_body_too_deep_is_refused(self, store: Store) -> None:
        for depth in (101, 10_000):
            body: dict[str, Any] = {}
            for _ in range(depth):
                body = {"x": body}
            with pytest.raises(BadBody, match="levels deep"):
                append(store, Draft(stream="s", kind="note", body=body))

    def test_secrets_are_redacted_in_everything_that_is_written(self, store: Store) -> None:
        claim = store.claim("k", "f", lease=MINUTE, keep=MINUTE)
        done = store.commit(
            Commit(
                events=[note(f"word {SECRET}", id="n")],
                artefacts=[ArtefactDraft(kind="routine", name="r", body={"x": SECRET})],
                records=[Record(subject="ana", type="T", id="1", body={"x": SECRET})],
                lessons={"notes": "n"},
                request=RequestOutcome(key="k", owner=claim.owner, response=SECRET.encode()),
            )
        )
        kept = [
            *store.read(EventQuery()),
            *done.events,
            *done.artefacts,
            *store.artefacts(),
            *store.records("ana"),
            *LessonRecall(store)("word", Within(lessons=True), 10),
            store.claim("k", "f", lease=MINUTE, keep=MINUTE),
        ]
        assert len(kept) == 7
        for value in kept:
            assert SECRET not in repr(value)
            assert "[redacted:anthropic-key]" in repr(value)

    # --- the chain ---------------------------------------------------------------------------

    def test_an_import_keeps_every_field_but_seq(self, store: Store) -> None:
        original = append(
            store, note("1", stream="a"), note("2", stream="b"), note("3", stream="a")
        )
        with self.another() as copy:
            append(copy, note("before", stream="c"))
            assert copy.commit_all([Commit(events=original, skip_known=True)]) == 3
            copied = list(copy.read(EventQuery(ids=[event.id for event in original])))
            assert [event.seq for event in copied] == [2, 3, 4]
            assert [msgspec.structs.replace(event, seq=0) for event in copied] == [
                msgspec.structs.replace(event, seq=0) for event in original
            ]
            assert verify(copy).ok
        store.erase([original[0].id])
        with pytest.raises(DuplicateEvent):
            append(store, original[2])
        with pytest.raises(ChainConflict):
            append(store, msgspec.structs.replace(original[2], id="x"))
        with pytest.raises(ChainConflict):
            append(store, msgspec.structs.replace(original[2], id="x", stream="c", pos=1))

    def test_known_events_are_passed_over_and_others_of_their_id_refused(
        self, store: Store
    ) -> None:
        """Events are compared by hash, or by content; also within a batch."""
        (event,) = append(store, note("1"), note("2", id="x", at=T0))[:1]
        known = Commit(
            events=[event, note("2", id="x"), note("3", id="y"), note("3", id="y")], skip_known=True
        )
        assert texts(iter(store.commit(known).events)) == ["3"]
        for other in (note("other", id="x"), note("2", id="x", at=T0 + MINUTE)):
            with pytest.raises(DuplicateEvent):
                store.commit(Commit(events=[other], skip_known=True))
        assert texts(store.read(EventQuery())) == ["1", "2", "3"]

    def test_many_commits_are_one_transaction(self, store: Store) -> None:
        def commits() -> Iterator[Commit]:
            yield Commit(events=[note("1")])
            yield Commit(events=[Draft(stream="s", kind="note", body={"x": float("nan")})])

        with pytest.raises(BadBody):
            store.commit_all(commits())
        assert list(store.read(EventQuery())) == []

    def test_commits_written_together_are_all_there_or_none(self, store: Store) -> None:
        append(store, note("0", stream="a"))
        first = Commit(events=[note("1", stream="b")], expected_pos={"b": 0})
        late = Commit(events=[note("2", stream="a")], expected_pos={"a": 0})
        with pytest.raises(PositionConflict):
            store.commit_all([first, late])
        assert texts(store.read(EventQuery())) == ["0"]
        again = msgspec.structs.replace(late, expected_pos={"a": 1})
        assert store.commit_all([first, again]) == 2
        assert [store.head(stream)[0] for stream in ("b", "a")] == [1, 2]
        append(store, note("3", stream="a"))
        assert verify(store).ok

    def test_streams_are_found_by_how_they_begin(self, store: Store) -> None:
        names = ["subject/b", "subject/a", "subjects", "run/1", "subject/\U0001f600", "subject/b"]
        append(store, *(note("1", stream=name) for name in names))
        found = ["subject/a", "subject/b", "subject/\U0001f600"]
        assert list(store.streams("subject/")) == found
        assert list(store.streams("nothing/")) == []

    def test_a_body_can_be_seen_as_it_would_be_stored(self, store: Store) -> None:
        body = {"text": f"use {SECRET}", "n": 1}
        assert SECRET not in str(store.redactor.value(body))
        assert store.redactor.value({"n": 1}) == {"n": 1}

    def test_verify_accepts_an_untouched_log_and_gives_its_heads(self, store: Store) -> None:
        log = append(store, note("1", stream="a"), note("2", stream="b"), note("3", stream="a"))
        report = verify(store)
        assert (report.ok, report.events, report.streams, report.erased) == (True, 3, 2, 0)
        assert report.heads == {"a": Head(2, log[2].hash), "b": Head(1, log[1].hash)}
        assert store.head("a") == (2, log[2].hash)
        assert store.head("nothing") == (0, "")

    def test_a_saved_head_shows_a_missing_tail(self, store: Store) -> None:
        log = append(store, note("1"))
        heads = {
            "notes": Head(3, "00"),
            "gone": Head(1, "00"),
        }
        found = verify(store, heads=heads).findings
        assert [(f.problem, f.stream) for f in found] == [
            ("missing_tail", "notes"),
            ("missing_tail", "gone"),
        ]
        assert "positions 2 to 3" in found[0].detail
        rewritten = verify(store, heads={"notes": Head(1, "00")}).findings
        assert [f.problem for f in rewritten] == ["rewritten"]
        assert verify(store, heads={"notes": Head(1, log[0].hash)}).ok

    def test_health_tells_how_the_store_is(self, store: Store) -> None:
        append(store, note("1"), note("2"))
        health = store.health(deep=True)
        assert (health.events, health.scrub_pending, list(health.problems)) == (2, False, [])
        assert health.size_bytes > 0


class HolderConformance:
    """What is compiled from events, and idempotency keys."""

    def test_artefacts_have_versions_and_equal_content_is_one(self, store: Store) -> None:
        def put(body: dict[str, Any], *sources: str) -> Any:
            draft = ArtefactDraft(kind="routine", name="r", body=body, from_events=sources)
            return store.commit(Commit(artefacts=[draft])).artefacts[0]

        first, again, second, third = (
            put({"a": 1}, "e1"),
            put({"a": 1}, "e2"),
            put({}),
            put({"a": 1}),
        )
        assert [first.version, again.version, second.version, third.version] == [1, 1, 2, 3]
        assert again.from_events == ("e1", "e2")
        assert store.artefact("routine", "r") == third
        assert store.artefact("routine", "r", 2) == second
        assert store.artefact("routine", "none") is None
        retire = Commit(retire=[third.id])
        assert [store.commit(retire).retired for _ in range(2)] == [[third.id], []]
        assert store.artefact("routine", "r") == second
        store.commit(Commit(restore=[third.id]))
        assert store.artefact("routine", "r") == third
        assert [a.version for a in store.artefacts("routine")] == [1, 2, 3]
        assert list(store.artefacts("state")) == []

    def test_what_counts_as_decoded_is_redacted_as_it_is_stored(self, store: Store) -> None:
        """Bodies that are marked as decoded are redacted even if they contain tuples."""
        body = {"text": "x", "parts": (f"key {SECRET}", 1)}
        draft = Draft(stream="notes", kind="note", body=body)
        assert store.commit_all([Commit(events=[draft], is_decoded=True)]) == 1
        (event,) = store.read(EventQuery(stream="notes"))
        assert event.body is not None
        assert event.body["parts"][1] == 1
        assert SECRET not in event.body["parts"][0]
        assert verify(store).ok

    def test_whoever_keeps_what_artefacts_say_learns_that_they_changed(self, store: Store) -> None:
        (source,) = append(store, note("plan"))
        draft = ArtefactDraft(kind="routine", name="r", body={}, from_events=[source.id])
        kept: list[Artefact] = []
        works: list[Callable[[], object]] = [
            lambda: kept.extend(store.commit(Commit(artefacts=[draft])).artefacts),
            lambda: store.commit(Commit(retire=[kept[0].id])),
            lambda: store.commit(Commit(restore=[kept[0].id])),
            lambda: store.erase([source.id]),
        ]
        end, is_changed = store.changed_artefacts()
        assert is_changed
        for work in works:
            work()
            end, is_changed = store.changed_artefacts(end)
            assert is_changed

    def test_cards_show_artefacts_in_use_without_their_bodies(self, store: Store) -> None:
        (source,) = append(store, note("plan"))

        def keep(name: str, body: Json) -> Artefact:
            draft = ArtefactDraft(kind="routine", name=name, body=body, from_events=[source.id])
            return store.commit(Commit(artefacts=[draft])).artefacts[0]

        first, second, other = keep("r", {"v": 1}), keep("r", {"v": 2}), keep("q", {})
        cards = {second.id: {"about": "old"}, "unknown": {"about": "nothing"}}
        store.commit(Commit(cards=cards))
        store.commit(Commit(cards={second.id: {"about": f"with {SECRET}"}}, retire=[other.id]))
        found = list(store.cards("routine"))
        assert [(one.id, one.name, one.version) for one in found] == [
            (first.id, "r", 1), (second.id, "r", 2),
        ]  # fmt: skip
        assert found[0].body is None
        assert found[1].body is not None
        assert found[1].body["about"].startswith("with ")
        assert SECRET not in found[1].body["about"]
        every = [
            (one.name, one.version, one.retired_at is None)
            for one in store.cards("routine", retired=True)
        ]
        assert every == [("q", 1, False), ("r", 1, True), ("r", 2, True)]
        assert found[1].created_at == second.created_at
        assert list(store.cards("state")) == []
        store.erase([source.id])
        store.commit(Commit(cards={second.id: {"about": "too late"}}))
        assert list(store.cards("routine")) == []

    def test_an_artefact_may_be_stored_out_of_use(self, store: Store) -> None:
        """Its name means the version before until it is restored; equal content is one version."""

        def put(body: dict[str, Any], *, retired: bool) -> Any:
            draft = ArtefactDraft(kind="routine", name="r", body=body, retired=retired)
            return store.commit(Commit(artefacts=[draft])).artefacts[0]

        first = put({"a": 1}, retired=False)
        assert put({"a": 1}, retired=True) == first
        second, again = put({}, retired=True), put({}, retired=True)
        assert (second.version, again) == (2, second)
        assert second.retired_at is not None
        assert store.artefact("routine", "r") == first
        store.commit(Commit(restore=[second.id]))
        found = store.artefact("routine", "r")
        assert found is not None
        assert (found.version, found.retired_at) == (2, None)

    def test_records_are_replaced_and_removed_by_key(self, store: Store) -> None:
        """Subject, type and id; listed in that order, over many pages."""
        records = [
            Record(subject="ana", type="T", id=f"{n:04}", body={"n": n}) for n in range(1_200)
        ]
        store.commit(Commit(records=[*records, Record(subject="bo", type="T", id="1", body={})]))
        store.commit(
            Commit(
                records=[
                    Record(subject="ana", type="T", id="0001", body={"n": "new"}),
                    Record(subject="ana", type="T", id="0002", body=None),
                    Record(subject="ana", type="U", id="1", body={}),
                ]
            )
        )
        kept = list(store.records("ana", "T"))
        assert len(kept) == 1_199
        assert [record.body for record in kept[:3]] == [{"n": 0}, {"n": "new"}, {"n": 3}]
        assert len(list(store.records("ana"))) == 1_200

    def test_lessons_are_found_by_any_word_within_their_scope(self, store: Store) -> None:
        learn(store, "1", "She was running in Lisbon", at=T0, subject="ana")
        learn(store, "2", "He runs a shop", at=T0 + MINUTE, subject="bo")
        learn(store, "3", "nothing here")

        def find(text: str, subject: str | None = None, limit: int = 10, **times: Any) -> set[str]:
            return set(lessons(store, text, Within(subject, **times, lessons=True), limit))

        assert find("run") == {"1", "2"}
        assert find("run", "ana") == {"1"}
        assert find("run", since=T0 + MINUTE) == {"2"}
        assert find("run", until=T0 + MINUTE) == {"1"}
        assert find("run nothing", "") == {"3"}
        assert find("run", "nobody") == set()
        assert find("run", limit=1) < {"1", "2"}
        assert find("lisbon shop") == {"1", "2"}

    def test_what_was_said_and_lessons_are_never_mixed(self, store: Store) -> None:
        draft = Draft(stream="s", kind="message", body={"role": "user", "text": "word"}, id="m")
        append(store, draft, note("word", "t", id="n"), lessons={"s": "m", "t": "n"})
        assert sorted(lessons(store, "word")) == ["s", "t"]
        assert [len(found) for found in store.index.find([["word"]], Within(), 10)] == [1]
        assert store.index.status(Within()).passages == 1
        assert store.index.status(Within(lessons=True)).passages == 2
        store.commit(Commit(lessons={"s": None}))
        assert lessons(store, "word") == ["t"]
        assert store.index.status(Within()).passages == 1
        assert store.erase(["m"]).passages == 1

    def test_a_lesson_is_an_event_of_its_stream(self, store: Store) -> None:
        append(store, note("1", id="n"))
        for stream, event_id in (("notes", "none"), ("other", "n")):
            with pytest.raises(NotFound):
                append(store, note("2"), lessons={stream: event_id})
        assert texts(store.read(EventQuery())) == ["1"]

    def test_a_word_is_found_however_it_is_surrounded(self, store: Store) -> None:
        """Parts of addresses, paths and versions match, accents or not; there are no stop words."""
        text = "write to ana@example.com about invoice-4711 in /etc/hosts, version 1.2.3; café, who"
        learn(store, "1", text)
        queries = (
            *("ana@example.com", "ana", "example", "4711", "/etc/hosts", "hosts", "1.2.3"),
            *("cafe", "café", "who", "versions", "CAFÉ"),
        )
        for query in queries:
            assert lessons(store, query) == ["1"], query
        assert lessons(store, "nowhere") == []

    @pytest.mark.parametrize("query", ["", " ", '"', "AND", "a* OR (", "'; DROP TABLE", "%", "\0"])
    def test_a_query_is_words_never_syntax(self, store: Store, query: str) -> None:
        learn(store, "1", "text")
        assert lessons(store, query) == []
        assert lessons(store, f"{query} text") == ["1"]

    def test_a_lesson_is_replaced_and_removed(self, store: Store) -> None:
        for text in ("alpha", "beta", None):
            if text is None:
                store.commit(Commit(lessons={"1": None}))
            else:
                learn(store, "1", text)
            for word in ("alpha", "beta"):
                assert lessons(store, word) == (["1"] if word == text else [])

    # --- requests ------------------------------------------------------------------------------

    def test_a_request_key_is_carried_out_once(self, store: Store) -> None:
        """The second claim gets the state or the response; another request gets a mismatch."""

        def claim(fingerprint: str = "f") -> Any:
            return store.claim("key", fingerprint, lease=MINUTE, keep=MINUTE)

        mine = claim()
        assert mine.status == "yours"
        assert claim().status == "running"
        assert claim("other").status == "mismatch"
        outcome = RequestOutcome(key="key", owner=mine.owner, response=b'{"ok":\x00}')
        append(store, note("done"), request=outcome)
        assert claim().status == "done"
        assert claim().response == b'{"ok":\x00}'

    def test_a_claim_can_be_given_back_taken_over_and_expires(self, store: Store) -> None:
        now = timedelta(0)
        lost = store.claim("key", "f", lease=now, keep=MINUTE)
        taken = store.claim("key", "f", lease=MINUTE, keep=MINUTE)
        assert taken.status == "yours"
        late = RequestOutcome(key="key", owner=lost.owner, response=b"")
        with pytest.raises(ClaimLost):
            append(store, note("late"), request=late)
        assert list(store.read(EventQuery())) == []
        store.release("key", lost.owner)
        assert store.claim("key", "f", lease=MINUTE, keep=MINUTE).status == "running"
        store.release("key", taken.owner)
        assert store.claim("key", "f", lease=MINUTE, keep=now).status == "yours"
        assert store.claim("key", "other", lease=MINUTE, keep=MINUTE).status == "yours"

    # --- tickets -------------------------------------------------------------------------------

    def test_the_first_ticket_of_a_name_counts_until_it_expires(self, store: Store) -> None:
        tickets = store.tickets
        assert tickets.get("key") is None
        assert tickets.put("key", "first", MINUTE) == "first"
        assert tickets.put("key", "second", MINUTE) == "first"
        assert tickets.get("key") == "first"
        assert (tickets.take("key"), tickets.take("key")) == ("first", None)
        tickets.put("key", "first", MINUTE)
        tickets.take("key")
        assert tickets.get("key") is None
        tickets.put("key", "over", timedelta(0))
        assert tickets.get("key") is None
        assert tickets.put("key", "third", MINUTE) == "third"

    def test_a_ticket_counts_for_all_threads_together(self, store: Store) -> None:
        sums: list[int] = []

        def count(_: int) -> None:
            sums.extend(store.tickets.count("n", 2, MINUTE) for _ in range(5))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(count, range(8)))
        assert sorted(sums) == list(range(2, 82, 2))
        store.tickets.count("m", 5, timedelta(0))
        assert store.tickets.count("m", 1, MINUTE) == 1


class ForgettingConformance:
    """Forgetting erases everything derived, and the log still verifies."""

    def test_an_erased_body_is_gone_and_the_chain_still_proves_it(self, store: Store) -> None:
        log = append(store, note("secret plan", subject="ana"), note("other", subject="ana"))
        erasure = store.erase([log[0].id], reason="asked")
        assert erasure.events == [log[0].id]
        assert erasure.scrubbed
        first, second, fact = store.read(EventQuery())
        assert (first.body, first.salt, first.hash) == (None, None, log[0].hash)
        assert second == log[1]
        assert (fact.kind, fact.stream, fact.subject) == ("erased", "notes", "ana")
        assert fact.body == {"events": [log[0].id], "reason": "asked"}
        assert store.erase(()) == Erasure()
        assert len(list(store.read(EventQuery()))) == 3
        report = verify(store)
        assert (report.ok, report.erased) == (True, 1)
        assert store.erase([log[0].id]).events == []

    def test_erasing_what_is_not_there_erases_nothing(self, store: Store) -> None:
        (event,) = append(store, note("stays"))
        with pytest.raises(NotFound):
            store.erase([event.id, "no such id"])
        assert texts(store.read(EventQuery())) == ["stays"]

    def test_a_dry_run_lists_what_would_be_erased_and_changes_nothing(self, store: Store) -> None:
        (source,) = append(store, note("plan", subject="ana"))
        derived = {"text": "plan!", "from_events": [source.id]}
        (made,) = append(store, Draft(stream="derived", kind="lesson", body=derived))
        draft = ArtefactDraft(kind="routine", name="r", body={"v": 1}, from_events=[made.id])
        record = Record(subject="ana", type="T", id="1", body={}, from_events=[source.id])
        store.commit(Commit(artefacts=[draft], records=[record]))
        listed = store.erase([], subjects=["ana"], dry_run=True)
        assert listed.is_dry_run
        assert listed.gone == {
            "events": {"note": [source.id], "lesson": [made.id]},
            "artefacts": {"routine": ["r@1"]},
            "records": {"T": ["ana/1"]},
        }
        assert [event.body for event in store.read(EventQuery())] == [source.body, made.body]
        assert store.erase([], subjects=["ana"]).gone == listed.gone
        assert not store.erase([], subjects=["ana"], dry_run=True).gone

    def test_everything_derived_is_erased_too(self, store: Store) -> None:
        """Derivations are followed through any number of steps; other content stays."""
        claim = store.claim("k", "f", lease=MINUTE, keep=MINUTE)
        source, elsewhere = append(store, note("plan"), note("else"))
        (derived,) = append(
            store,
            Draft(
                stream="derived",
                kind="lesson",
                body={"text": "plan!", "from_events": [source.id, elsewhere.id]},
            ),
            artefacts=[
                ArtefactDraft(kind="routine", name="r", body={"v": 1}, from_events=[source.id]),
                ArtefactDraft(kind="routine", name="q", body={}, from_events=[elsewhere.id]),
            ],
            records=[Record(subject="a", type="T", id="1", body={}, from_events=[source.id])],
            request=RequestOutcome(
                key="k", owner=claim.owner, response=b"plan", from_events=[source.id]
            ),
        )
        store.commit(Commit(lessons={"derived": derived.id}))
        assert lessons(store, "plan") == ["derived"]
        erasure = store.erase([source.id])
        assert sorted(erasure.events) == sorted([source.id, derived.id])
        counts = (erasure.artefacts, erasure.records, erasure.passages, erasure.responses)
        assert counts == (1, 1, 1, 1)
        artefact = store.artefact("routine", "r", 1)
        assert artefact is not None
        assert (artefact.body, artefact.hash) == (None, "")
        assert store.artefact("routine", "q", 1) is not None
        assert list(store.records("a")) == []
        assert lessons(store, "plan") == []
        assert store.claim("k", "f", lease=MINUTE, keep=MINUTE).status == "erased"
        assert texts(store.read(EventQuery(ids=[elsewhere.id]))) == ["else"]
        assert verify(store).ok

    def test_forgetting_a_subject_leaves_the_others(self, store: Store) -> None:
        mine, other = append(store, note("1", subject="ana"), note("2", "other", subject="bo"))
        store.commit(
            Commit(
                records=[Record(subject=name, type="T", id="1", body={}) for name in ("ana", "bo")],
            )
        )
        for name in ("ana", "bo"):
            learn(store, name, "word", subject=name)
        store.erase([mine.id], subjects=["ana"])
        assert list(store.records("ana")) == []
        assert len(list(store.records("bo"))) == 1
        assert lessons(store, "word") == ["bo"]
        assert texts(store.read(EventQuery(ids=[other.id]))) == ["2"]

    def test_what_replaced_a_derived_thing_is_not_erased_with_the_old_source(
        self, store: Store
    ) -> None:
        old, new = append(store, note("1"), note("2 word"))
        for source in (old, new):
            store.commit(
                Commit(
                    records=[
                        Record(subject="a", type="T", id="1", body={}, from_events=[source.id])
                    ],
                    lessons={"notes": source.id},
                )
            )
        erasure = store.erase([old.id])
        assert (erasure.records, erasure.passages) == (0, 0)
        assert len(list(store.records("a"))) == 1
        assert lessons(store, "word") == ["notes"]
        assert store.erase([new.id]).records == 1

    def test_a_key_used_again_is_not_erased_with_what_it_was_used_for_before(
        self, store: Store
    ) -> None:
        (event,) = append(store, note("1"))
        first = store.claim("k", "f", lease=MINUTE, keep=timedelta(0))
        store.commit(
            Commit(
                request=RequestOutcome(
                    key="k", owner=first.owner, response=b"", from_events=[event.id]
                )
            )
        )
        assert store.claim("k", "g", lease=MINUTE, keep=MINUTE).status == "yours"
        assert store.erase([event.id]).responses == 0
        assert store.claim("k", "g", lease=MINUTE, keep=MINUTE).status == "running"

    def test_nothing_can_be_derived_from_what_was_erased(self, store: Store) -> None:
        (event,) = append(store, note("1"))
        store.erase([event.id])
        derived = {"text": "copied", "from_events": [event.id]}
        record = Record(subject="a", type="T", id="1", body={}, from_events=[event.id])
        for commit in (
            Commit(artefacts=[ArtefactDraft(kind="k", name="n", body={}, from_events=[event.id])]),
            Commit(records=[record]),
            Commit(events=[Draft(stream="s", kind="lesson", body=derived)]),
        ):
            with pytest.raises(Conflict, match="erased since"):
                store.commit(commit)

    def test_an_erasure_travels_with_an_export(self, store: Store) -> None:
        first = append(store, note("plan", subject="ana"))
        store.erase([first[0].id])
        exported = list(store.read(EventQuery()))
        with SqliteStore(":memory:") as copy:
            copy.commit_all([Commit(events=first)])
            assert texts(copy.read(EventQuery())) == ["plan"]
            copy.commit_all([Commit(events=exported, skip_known=True)])
            assert next(copy.read(EventQuery())).erased
            report = verify(copy)
            assert (report.ok, report.erased) == (True, 1)
        with SqliteStore(":memory:") as copy:
            copy.commit(Commit(events=first))
            copy.commit(Commit(events=exported[1:]))
            assert next(copy.read(EventQuery())).erased

    def test_forgetting_a_subject_selects_within_its_transaction(self, store: Store) -> None:
        """The store selects the events itself; erasing again erases nothing."""
        append(store, note("1", subject="ana"), note("2", "other", subject="bo"))
        assert len(store.erase([], subjects=["ana"]).events) == 1
        assert store.erase([], subjects=["ana"]).events == []
        assert verify(store).erased == 1

    def test_who_compiled_from_what_was_erased_is_fenced_off(self, store: Store) -> None:
        (event,) = append(store, note("1"))
        pos, _ = store.head("notes")
        store.erase([event.id])
        draft = ArtefactDraft(kind="state", name="x", body={"copied": "1"})
        with pytest.raises(PositionConflict):
            store.commit(Commit(artefacts=[draft], expected_pos={"notes": pos}))
