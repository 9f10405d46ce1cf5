"""What was forgotten is gone from the bytes: file, write-ahead log, word index, rows."""

import sqlite3
from contextlib import suppress
from datetime import timedelta
from os import urandom
from pathlib import Path

import msgspec
import psycopg
import pytest

from em import Memory
from em.log.event import Draft, EventQuery
from em.log.verify import verify
from em.store import Commit
from em.store.postgres import TABLES, PostgresStore
from em.store.protocol import ArtefactDraft, Record, RequestOutcome
from em.store.sqlite import SqliteStore
from em.testing import append, note
from em.testing.store import learn, lessons
from raw import run_sql, with_option

WORDS = ("xylophonist", "quetzalcoatl", "zwitterionic")
TEXT = " ".join(WORDS)
MINUTE = timedelta(minutes=1)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


def held(raw: bytes) -> list[str]:
    return [word for word in WORDS if word.encode() in raw.lower()]


@pytest.mark.parametrize("by", ["event", "subject"])
def test_nothing_of_a_forgotten_text_is_left_in_the_files(tmp_path: Path, by: str) -> None:
    with Memory(tmp_path / "em.db") as memory:
        memory.observe_many([("bo", f"other words {n}") for n in range(200)])
        event_id = memory.observe("ana", TEXT)
        memory.observe_many([("bo", f"more words {n}") for n in range(200)])
        assert held(bytes_of(tmp_path)) == list(WORDS)
        erasure = memory.forget([event_id]) if by == "event" else memory.forget(subject="ana")
        assert (erasure.events, erasure.passages) == ([event_id], 1)
        assert erasure.scrubbed
        assert held(bytes_of(tmp_path)) == []
        assert memory.log.verify().ok
        assert sum(1 for _ in memory.log.read(subject="bo")) == 400
    assert held(bytes_of(tmp_path)) == []


def test_while_another_reader_keeps_old_pages_alive_it_says_so_and_can_be_finished(
    tmp_path: Path,
) -> None:
    path = tmp_path / "em.db"
    with SqliteStore(path, busy_timeout=0.3) as store:
        (event,) = append(store, note(TEXT))
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        erasure = store.erase([event.id])
        assert erasure.events == [event.id]
        assert not erasure.scrubbed
        assert "em forget --finish" in erasure.scrub_problem
        assert store.health().scrub_pending
        assert next(store.read(EventQuery())).erased
        reader.close()
        assert store.erase(()).scrubbed
        assert not store.health().scrub_pending
        assert held(bytes_of(tmp_path)) == []
        assert verify(store).ok


def test_an_import_that_erases_succeeds_though_the_scrub_has_to_wait(tmp_path: Path) -> None:
    with SqliteStore(":memory:") as original:
        first = append(original, note(TEXT))
        original.erase([first[0].id])
        exported = list(original.read(EventQuery()))
    path = tmp_path / "em.db"
    with SqliteStore(path, busy_timeout=0.3) as store:
        store.commit(Commit(events=first))
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        assert store.commit_all([Commit(events=exported, skip_known=True)]) == 1
        assert store.health().scrub_pending, "which doctor and the command tell"
        reader.close()
        assert store.erase(()).scrubbed
        assert held(bytes_of(tmp_path)) == []


def test_postgres_waits_for_older_readers_and_says_so(postgres_store: PostgresStore) -> None:
    postgres_store._busy_timeout = 0.3
    (event,) = append(postgres_store, note(TEXT))
    with psycopg.connect(postgres_store._url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM events").fetchone()
        erasure = postgres_store.erase([event.id])
        assert not erasure.scrubbed
        assert "em forget --finish" in erasure.scrub_problem
        assert postgres_store.health().scrub_pending
    assert postgres_store.erase(()).scrubbed
    assert not postgres_store.health().scrub_pending


def held_by_server(store: PostgresStore) -> list[str]:
    """Return the words that any file of the server's tables and indexes has, after a checkpoint."""
    run_sql(store, "CHECKPOINT")
    ((folder,),) = run_sql(store, "SHOW data_directory")
    files = [path for path in (Path(folder) / "base").rglob("*") if path.is_file()]
    words = set[str]()
    for path in files:
        with suppress(FileNotFoundError):  # the server has just removed it
            words.update(held(path.read_bytes()))
    return sorted(words)


def plant(store: PostgresStore) -> str:
    """Put the words into every table that holds content, and into remains of replaced rows."""
    said = Draft(stream="s", kind="message", body={"role": "user", "text": TEXT}, id="m")
    large = TEXT + urandom(60_000).hex()  # beyond a page: stored apart, too random to compress
    claim = store.claim("k", "f", lease=MINUTE, keep=MINUTE)
    artefact, *_ = store.commit(
        Commit(
            events=[said, note(large, stream="s", id="n"), note(TEXT, "lesson", id="l")],
            artefacts=[
                ArtefactDraft(kind="state", name="a", body={"x": TEXT}, from_events=["m"]),
                ArtefactDraft(kind="state", name="b", body={"x": large}, from_events=["n"]),
            ],
            records=[Record(subject="a", type="T", id=TEXT, body={"x": TEXT}, from_events=["m"])],
            lessons={"lesson": "l"},
            request=RequestOutcome(
                key="k", owner=claim.owner, response=TEXT.encode(), from_events=["m"]
            ),
        )
    ).artefacts
    store.commit(Commit(cards={artefact.id: {"about": TEXT}}, retire=[artefact.id]))
    kept = Record(subject="a", type="T", id="kept", body={"x": TEXT}, from_events=["m"])
    store.commit(Commit(records=[kept]))
    store.commit(Commit(records=[msgspec.structs.replace(kept, body={}, from_events=())]))
    return artefact.id


def test_when_postgres_says_scrubbed_no_file_of_its_tables_has_the_words(
    postgres_store: PostgresStore,
) -> None:
    plant(postgres_store)
    run_sql(postgres_store, "ANALYZE")  # the server keeps samples of columns for its planner
    assert held_by_server(postgres_store) == sorted(WORDS)
    assert postgres_store.erase(["m", "n", "l"]).scrubbed
    assert held_by_server(postgres_store) == []
    assert postgres_store.artefact("state", "a", 1) is not None
    assert verify(postgres_store).ok


def test_a_table_that_postgres_may_not_rewrite_is_not_called_scrubbed(
    postgres_store: PostgresStore,
) -> None:
    postgres_store._busy_timeout = 0.3
    (event,) = append(postgres_store, note(TEXT))
    with psycopg.connect(postgres_store._url) as reader:
        reader.execute("LOCK TABLE records IN ACCESS SHARE MODE")
        erasure = postgres_store.erase([event.id])
        assert not erasure.scrubbed
        assert "em forget --finish" in erasure.scrub_problem
    assert postgres_store.erase(()).scrubbed
    assert held_by_server(postgres_store) == []


def test_who_may_not_rewrite_a_postgres_table_is_told_that_it_is_not_scrubbed(
    postgres_store: PostgresStore,
) -> None:
    (event,) = append(postgres_store, note(TEXT))
    ((schema,),) = run_sql(postgres_store, "SELECT current_schema()")
    role = f"{schema}_writer"
    run_sql(
        postgres_store,
        f"CREATE ROLE {role}",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    )
    try:
        address = with_option(postgres_store._url, f"role={role}")
        with PostgresStore(address, busy_timeout=0.3) as store:
            erasure = store.erase([event.id])
            assert not erasure.scrubbed
            assert "only the owner of the table" in erasure.scrub_problem
            assert store.health().scrub_pending
    finally:
        run_sql(postgres_store, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_every_table_of_em_is_rewritten(postgres_store: PostgresStore) -> None:
    sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    assert {name for (name,) in run_sql(postgres_store, sql)} == {*TABLES, "em_schema"}


def test_a_forgotten_text_is_gone_from_postgres_rows(postgres_store: PostgresStore) -> None:
    (event,) = append(postgres_store, note(TEXT))
    assert run_sql(postgres_store, f"SELECT 1 FROM events WHERE body LIKE '%{WORDS[0]}%'")
    assert postgres_store.erase([event.id]).scrubbed
    for table in (
        "events",
        "artefacts",
        "records",
        "passages",
        "lessons",
        "requests",
        "derivations",
    ):
        rows = run_sql(postgres_store, f"SELECT t::text FROM {table} AS t")
        assert held(repr(rows).encode()) == []


def test_a_long_list_of_erasures_is_split_over_several_facts(
    store: SqliteStore | PostgresStore,
) -> None:
    events = append(store, *(note(str(n), subject="ana") for n in range(2_500)))
    erasure = store.erase([event.id for event in events])
    assert len(erasure.events) == 2_500
    facts = list(store.read(EventQuery(kinds=["erased"])))
    assert [len(fact.body["events"]) for fact in facts if fact.body] == [1_000, 1_000, 500]
    report = verify(store)
    assert (report.ok, report.erased) == (True, 2_500)


def test_secrets_in_the_reason_are_redacted(store: SqliteStore | PostgresStore) -> None:
    (event,) = append(store, note("1"))
    store.erase([event.id], reason="password='hunter2'")
    fact = next(store.read(EventQuery(kinds=["erased"])))
    assert fact.body is not None
    assert fact.body["reason"] == "password='[redacted:password]'"


def test_forgetting_a_lesson_keeps_others_searchable(
    store: SqliteStore | PostgresStore,
) -> None:
    one, _ = (learn(store, stream, "shared word") for stream in ("one", "two"))
    store.erase([one.id])
    assert lessons(store, "shared") == ["two"]
