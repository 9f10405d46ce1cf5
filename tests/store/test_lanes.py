"""Commits to different streams run side by side on PostgreSQL, and readers skip no late one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from itertools import islice

import psycopg
import pytest

from em.behaviour.cache import Cache
from em.errors import DuplicateEvent, PositionConflict, StoreBusy, StoreReadOnly, StoreUnreachable
from em.log.chain import hash_event, text_around_pos
from em.log.event import Draft, EventQuery
from em.log.verify import verify
from em.redaction.redactor import Redactor
from em.store import Commit
from em.store.lanes import MOST_EVENTS, MOST_KEYS, keys_of, settled
from em.store.log import Log
from em.store.postgres import PostgresStore
from em.store.preparation import prepare
from em.store.protocol import ArtefactDraft, Record
from em.testing import append, note
from em.values.times import to_micros


@pytest.fixture
def quick(postgres_store: PostgresStore) -> Iterator[PostgresStore]:
    """A store that does not wait long."""
    with PostgresStore(postgres_store._url, busy_timeout=0.3) as store:
        yield store


@contextmanager
def under_way(store: PostgresStore, *drafts: Draft, **rest: object) -> Iterator[None]:
    """Write a commit that becomes visible only at the end of the block."""
    prepared = prepare(Commit(events=drafts, **rest), store.redactor)  # type: ignore[arg-type]
    with store._committing([prepared]) as session:
        store._write(session, prepared)
        yield


def test_a_commit_waits_only_for_who_writes_to_the_same(
    postgres_store: PostgresStore, quick: PostgresStore
) -> None:
    record = Record(subject="ana", type="T", id="1", body={})
    draft = ArtefactDraft(kind="state", name="ana", body={})
    with under_way(postgres_store, note("a", "a"), records=[record], artefacts=[draft]):
        append(quick, note("b", "b"))
        append(quick, note("b", "b"), note("c", "c"))
        quick.commit(Commit(records=[Record(subject="bo", type="T", id="1", body={})]))
        quick.commit(Commit(artefacts=[ArtefactDraft(kind="state", name="bo", body={})]))
        quick.claim("k", "f", lease=timedelta(minutes=1), keep=timedelta(hours=1))
        for same in (
            Commit(events=[note("a", "a")]),
            Commit(events=[note("b", "b"), note("a", "a")]),
            Commit(events=[note("b", "b")], expected_pos={"a": 0}),
            Commit(records=[record]),
            Commit(artefacts=[draft]),
        ):
            with pytest.raises(StoreBusy):
                quick.commit(same)
        with pytest.raises(StoreBusy):
            quick.erase([], subjects=["ana"])
    assert verify(quick).ok
    assert quick.head("a")[0] == 1


def test_a_follower_never_passes_a_commit_that_is_under_way(
    postgres_store: PostgresStore, quick: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("em.store.postgres.PATIENCE", 0.05)
    append(quick, note("0", "z"))
    with under_way(postgres_store, note("late", "late"), note("later", "late")):
        (newer,) = append(quick, note("newer", "b"))
        assert [event.stream for event in quick.read(EventQuery())] == ["z"]
        assert [event.stream for event in quick.read(EventQuery(kinds=["note"], after=1))] == []
        assert [event.stream for event in quick.read(EventQuery(newest=True, limit=1))] == ["z"]
        assert Log(quick).head_seq() == 1
        # By its stream or id it is there.
        assert [event.id for event in quick.read(EventQuery(stream="b"))] == [newer.id]
        assert [event.id for event in quick.read(EventQuery(ids=[newer.id]))] == [newer.id]
        assert verify(quick).ok
    followed = islice(Log(quick).follow(after=1), 3)
    assert [event.stream for event in followed] == ["late", "late", "b"]


def test_a_loaded_behaviour_is_loaded_again_after_a_change_that_is_not_settled(
    postgres_store: PostgresStore, quick: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("em.store.postgres.PATIENCE", 0.05)
    cache = Cache(quick, "shop")

    def change(version: int) -> Draft:
        body = {"engine": "shop", "key": "k", "version": version, "reason": "old", "recorded": "e"}
        return Draft(stream=cache.stream, kind="behaviour_retired", body=body)

    append(quick, change(1))
    loaded = cache.find("k")
    assert cache.find("k") is loaded
    with under_way(postgres_store, note("late", "late")):
        append(quick, change(2))
        assert cache.find("k") is not loaded
    again = cache.find("k")
    assert cache.find("k") is again


def test_nobody_follows_the_log_on_a_replica_which_knows_no_marks(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(postgres_store, note("1"), note("2"))
    monkeypatch.setattr("em.store.postgres.NEWEST", "SELECT MAX(seq), TRUE FROM events")
    assert len(list(postgres_store.read(EventQuery()))) == 2
    assert len(list(postgres_store.read(EventQuery(stream="notes", after=1)))) == 1
    with pytest.raises(StoreReadOnly):
        list(postgres_store.read(EventQuery(after=1)))


def test_a_reader_waits_for_older_commits_to_see_newer_ones(
    postgres_store: PostgresStore, quick: PostgresStore
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with under_way(postgres_store, note("late", "late")):
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(10)
    append(quick, note("newer", "b"))
    timer = threading.Timer(0.1, go_on.set)
    timer.start()
    assert [event.stream for event in quick.read(EventQuery())] == ["late", "b"]
    thread.join()


def test_what_rolled_back_or_was_cut_off_holds_nobody_up(
    postgres_store: PostgresStore, quick: PostgresStore
) -> None:
    with suppress(KeyError), under_way(postgres_store, note("gone", "a")):
        append(quick, note("b", "b"))
        raise KeyError
    assert [event.stream for event in quick.read(EventQuery())] == ["b"]
    with suppress(StoreUnreachable), under_way(postgres_store, note("gone", "a")):
        append(quick, note("b", "b"))
        end_others(quick)
        assert [event.pos for event in quick.read(EventQuery())] == [1, 2]
    append(quick, note("a", "a"))
    assert quick.head("a")[0] == 1
    assert verify(quick).ok


def end_others(store: PostgresStore) -> None:
    """End the transactions of all other connections, as when their processes are killed."""
    others = "FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()"
    with store._reading() as session:
        session.execute(f"SELECT pg_terminate_backend(pid) {others}")
        while session.execute(f"SELECT count(*) {others}").fetchone()[0]:
            pass


def test_commits_over_several_streams_never_wait_in_a_circle(
    postgres_store: PostgresStore,
) -> None:
    failed: list[BaseException] = []

    def write(names: str) -> None:
        try:
            for _ in range(10):
                append(postgres_store, *(note(names, name, subject=None) for name in names))
        except BaseException as error:  # noqa: BLE001 - a thread's failure is reported by the test
            failed.append(error)

    orders = ("abc", "cba", "bca", "acb", "cab", "bac")
    threads = [threading.Thread(target=write, args=(names,)) for names in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    report = verify(postgres_store)
    assert (report.findings, report.events) == ([], 180)
    assert [head.pos for head in report.heads.values()] == [60, 60, 60]


def test_new_subjects_are_indexed_side_by_side(postgres_store: PostgresStore) -> None:
    failed: list[BaseException] = []

    def say(name: str) -> None:
        body = {"role": "user", "text": "the train is late"}
        try:
            append(postgres_store, Draft(stream=name, kind="message", body=body, subject=name))
        except BaseException as error:  # noqa: BLE001 - a thread's failure is reported by the test
            failed.append(error)

    threads = [threading.Thread(target=say, args=(f"u{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with postgres_store._reading() as session:
        found = session.execute("SELECT COUNT(DISTINCT number), SUM(passages) FROM scopes")
        assert found.fetchone() == (16, 16)


def test_one_event_is_the_same_event_however_it_is_appended(
    postgres_store: PostgresStore,
) -> None:
    text = 'a "quoted" \\ text, é 漢\u2028'
    for n, stream in enumerate(["s", "é/漢", "s"]):
        draft = Draft(stream=stream, kind="note", body={"text": text, "n": n}, subject=stream)
        (alone,) = append(postgres_store, draft)
        assert [*postgres_store.read(EventQuery(ids=[alone.id]))] == [alone]
    with pytest.raises(PositionConflict) as caught:
        append(postgres_store, note("!", "s"), expected_pos={"s": 1})
    assert caught.value.data == {"expected": 1, "actual": 2}
    append(postgres_store, note("!", "s"), expected_pos={"s": 2})
    assert verify(postgres_store).ok


def test_the_server_hashes_the_text_that_the_client_hashes() -> None:
    fields = ("an id", 'a "stream"', None, "note", 1, 5, -7)
    before, behind = text_around_pos(*fields)
    assert before + b"12" + behind == b'["em1","an id","a \\"stream\\"",12,null,"note",1,5,-7]'
    own = hash_event(b"p", fields[0], fields[1], 12, *fields[2:], b"body")
    assert own == sha256(before + b"12" + behind + b"body" + b"p").digest()


def test_an_id_that_two_commits_bring_at_once_is_used_once(
    postgres_store: PostgresStore, quick: PostgresStore
) -> None:
    draft = note("a", "a", id="x")
    with under_way(postgres_store, draft), pytest.raises(StoreBusy):
        append(quick, note("b", "b", id="x"))
    with pytest.raises(DuplicateEvent):
        append(quick, note("b", "b", id="x"))


def test_a_commit_with_very_many_locks_or_events_runs_alone(
    postgres_store: PostgresStore, quick: PostgresStore
) -> None:
    def keys(*drafts: Draft) -> list[int] | None:
        return keys_of([prepare(Commit(events=drafts), postgres_store.redactor)])

    assert len(keys(note("1", "a"), note("2", "b"), note("3", "a")) or []) == 2
    assert keys(*(note("x", f"s{n}") for n in range(MOST_KEYS + 1))) is None
    assert keys(*(note("x", "s") for _ in range(MOST_EVENTS + 1))) is None
    many = [note(str(n), f"s{n}") for n in range(MOST_KEYS + 1)]
    with under_way(postgres_store, *many), pytest.raises(StoreBusy):
        append(quick, note("x", "elsewhere"))
    assert [event.seq for event in quick.read(EventQuery())] == list(range(1, len(many) + 1))


@pytest.mark.parametrize(
    ("one", "other", "is_shared"), [("ana", "ana", True), ("ana", "bo", False), (None, None, True)]
)
def test_commits_that_index_texts_of_one_subject_share_a_lock(
    one: str | None, other: str | None, is_shared: bool
) -> None:
    """The passages of a subject are numbered in one row, whatever the streams are."""

    def keys(stream: str, subject: str | None) -> set[int]:
        body = {"role": "user", "text": "the train is late"}
        draft = Draft(stream=stream, kind="message", body=body, subject=subject)
        return {*(keys_of([prepare(Commit(events=[draft]), Redactor())]) or ())}

    assert bool(keys("a", one) & keys("b", other)) == is_shared


def test_all_below_the_smallest_mark_is_settled() -> None:
    assert settled(0, []) == 0
    assert settled(9, []) == 9
    assert settled(9, [7, 12]) == 6
    assert settled(9, [10]) == 9
    # Locks have the lowest 32 bits of a number only.
    assert settled(2**32 + 5, [2**32 - 3]) == 2**32 - 4
    assert settled(2**32 + 5, [3]) == 2**32 + 2
    assert settled(2**32 - 2, [3]) == 2**32 - 2


def test_expired_requests_go_whoever_claims(postgres_store: PostgresStore) -> None:
    minute = timedelta(minutes=1)
    for n in range(5):
        postgres_store.claim(f"k{n}", "f", lease=minute, keep=timedelta(0))
    with postgres_store._reading() as session:
        assert session.execute("SELECT key FROM requests").fetchall() == [("k4",)]
    assert postgres_store.claim("k4", "other", lease=minute, keep=minute).status == "yours"
    (event,) = append(postgres_store, note("a"))
    assert to_micros(event.at) == to_micros(event.recorded_at)


def test_a_server_without_room_for_more_connections_is_waited_for(
    postgres_store: PostgresStore,
) -> None:
    append(postgres_store, note("1"))
    with postgres_store._reading() as session:
        (room,) = session.execute("SHOW max_connections").fetchone()
    others: list[psycopg.Connection[tuple[int]]] = []
    inside, failed = threading.Barrier(9), list[BaseException]()

    def work(n: int) -> None:
        inside.wait(30)
        try:
            append(postgres_store, note(str(n), f"s{n}"))
        except BaseException as error:  # noqa: BLE001 - a thread's failure is reported by the test
            failed.append(error)

    try:
        with suppress(psycopg.OperationalError):
            for _ in range(int(room)):
                others.append(psycopg.connect(postgres_store._url))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        inside.wait(30)
        for thread in threads:
            thread.join()
    finally:
        for other in others:
            other.close()
    assert failed == []
