"""Older databases are brought up to date on opening; newer ones are refused."""

import json
from pathlib import Path

import msgspec
import pytest

from em.errors import ForeignStream, NewerDatabase
from em.heuristics.lessons import Heuristics
from em.log.event import Draft, EventQuery
from em.log.verify import verify
from em.recall.search import Recall
from em.store import Commit, migrations
from em.store.migrations import MIGRATIONS, Migration, postgres_statements, statements
from em.store.postgres import PostgresStore
from em.store.protocol import ArtefactDraft, Record, Within
from em.store.sqlite import SqliteStore
from em.testing import append, note
from em.testing.summaries import LESSON as NEW_LESSON
from em.testing.summaries import RUN, events_of, everything, trace
from em.text import ANALYSIS
from raw import run_sql

AnyStore = SqliteStore | PostgresStore
NEXT = Migration(
    len(MIGRATIONS) + 1,
    "a step for this test",
    sqlite="CREATE TABLE extra(x INTEGER);\nINSERT INTO extra VALUES (1);",
    postgres="CREATE TABLE extra(x INTEGER);\nINSERT INTO extra VALUES (1);",
)


def reopen(store: AnyStore) -> AnyStore:
    store.close()
    address = store._path if isinstance(store, SqliteStore) else store._url
    return type(store)(address)


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert all(step.why for step in MIGRATIONS)


def test_an_older_database_is_migrated_once_and_keeps_its_events(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = append(store, note("from before"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, NEXT))
    monkeypatch.setattr(migrations, "NEWEST", NEXT.number)
    for _ in range(2):
        store = reopen(store)
        assert list(store.read(EventQuery())) == written
        assert store.health().schema == NEXT.number
        assert run_sql(store, "SELECT x FROM extra") == [(1,)]
    store.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = append(store, note("from before"))
    broken = NEXT._replace(sqlite=NEXT.sqlite + "\nBROKEN;", postgres=NEXT.postgres + "\nBROKEN;")
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, broken))
    monkeypatch.setattr(migrations, "NEWEST", broken.number)
    with pytest.raises(Exception, match="says"):
        reopen(store)
    monkeypatch.undo()
    again = reopen(store)
    assert list(again.read(EventQuery())) == written
    assert again.health().schema == MIGRATIONS[-1].number
    again.close()


def test_a_newer_database_is_refused(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "NEWEST", 0)
    with pytest.raises(NewerDatabase) as caught:
        reopen(store)
    assert caught.value.fix == "upgrade em-core"


LESSON = {
    "trigger": "an insert fails on a foreign key",
    "action": "insert the parent row first",
    "key": "k",
    "how": "recovery",
}
BODY = json.dumps({"lesson": LESSON, "from_events": ["source"]})


_WITHOUT_LANES = (
    "DROP FUNCTION em_append",
    "DROP FUNCTION em_enter",
    "DROP SEQUENCE events_seq, scopes_said, scopes_lessons",
    "DROP TABLE unchained",
)
"""Takes away what the migration to commits side by side brought."""


def make_old(store: AnyStore) -> None:
    """Put tables of schema 2 with one lesson in place of the store's own."""
    store.close()
    is_sqlite = isinstance(store, SqliteStore)
    if is_sqlite:
        Path(store._path).unlink()
        setup = ["PRAGMA application_id=1701668205", "PRAGMA user_version=2"]
        made = [part for step in MIGRATIONS[:2] for part in statements(step.sqlite)]
        documents, values = "documents(num, id, kind, at, text, from_events)", "1, "
        vector, empty = "x'003c'", "x''"
    else:
        gone = ("lessons", "events", "artefacts", "records", "requests", "derivations", "flags")
        gone += (
            "cards",
            "owners",
            "register",
            "tallies",
            "summaries",
            "tickets",
            "scopes",
            "threads",
            "passages",
            "vectors",
            "em_schema",
        )
        setup = [*_WITHOUT_LANES, *(f"DROP TABLE {name}" for name in gone)]
        setup.append("CREATE TABLE em_schema(number INTEGER, applied_at TIMESTAMPTZ)")
        setup.append("INSERT INTO em_schema VALUES (1), (2)")
        made = [part for step in MIGRATIONS[:2] for part in postgres_statements(step.postgres)]
        documents, values = "documents(id, kind, at, text, from_events, words)", ""
        vector, empty = "'[1]'", "''"
    text = "an insert fails on a foreign key insert the parent row first"
    words = "" if is_sqlite else ", to_tsvector('em_words', 'insert')"
    event = f"'heuristic/h1', 1, NULL, 'heuristic_learned', 1, 5, 5, '{BODY}', {empty}, {empty}"
    run_sql(
        store,
        *setup,
        *made,
        f"INSERT INTO events VALUES (1, 'l1', {event}, {empty})",
        "INSERT INTO artefacts VALUES ('a1', 'heuristic', 'h1', 1,"
        f" '{json.dumps(LESSON)}', '', '[\"l1\"]', 5, NULL)",
        f"INSERT INTO {documents} VALUES"
        f" ({values}'heuristic/h1', 'heuristic', 5, '{text}', '[\"l1\"]'{words})",
        "INSERT INTO derivations VALUES ('l1', 'documents', 'heuristic/h1')",
        "INSERT INTO derivations VALUES ('l1', 'artefacts', 'a1')",
        f"INSERT INTO flags VALUES ('analysis', '{ANALYSIS}'), ('embedder', 'e/1')",
        f"INSERT INTO vectors VALUES (2305843009213693953, {vector})",
        "INSERT INTO scopes VALUES (1, 'ana', 9, 0, 0)",
    )


def test_lessons_of_a_database_with_documents_are_found_and_forgotten(store: AnyStore) -> None:
    make_old(store)
    store = type(store)(store._path if isinstance(store, SqliteStore) else store._url)
    book = Heuristics(store)
    assert book.brief("debug a failing SQL insert: foreign key error").ids == ["h1"]
    assert run_sql(store, "SELECT count(*) FROM vectors") == [(0,)]
    assert run_sql(store, "SELECT count(*) FROM flags WHERE name = 'lessons_not_indexed'") == [(0,)]
    assert store.erase(["l1"]).passages == 1
    assert book.brief("debug a failing SQL insert: foreign key error").ids == []
    store.close()


def make_older(store: AnyStore) -> None:
    """Take away what migrations from 5 on brought: owners, the register, summaries, tickets."""
    columns = [f"ALTER TABLE {table} DROP COLUMN seal" for table in ("artefacts", "records")]
    made = ("register", "tallies", "owners", "summaries", "tickets")
    tables = [f"DROP TABLE {table}" for table in made]
    if isinstance(store, SqliteStore):
        views = ["DROP TRIGGER register_event", "DROP VIEW registered_events"]
        run_sql(store, *views, *columns, *tables, "PRAGMA user_version=4")
    else:
        run_sql(store, *_WITHOUT_LANES, *columns, *tables, "DELETE FROM em_schema WHERE number > 4")


def test_a_log_with_one_write_lock_goes_on_side_by_side_and_its_heads_still_verify(
    postgres_store: PostgresStore,
) -> None:
    append(postgres_store, *(note(str(n), f"s{n % 3}") for n in range(9)))
    append(
        postgres_store,
        *(Draft(stream="t", kind="message", body={"role": "user", "text": "a train"}, subject=name)
          for name in ("ana", "ana")),
    )  # fmt: skip
    postgres_store.chain_register()
    saved = verify(postgres_store).heads
    before = list(postgres_store.read(EventQuery()))
    run_sql(postgres_store, *_WITHOUT_LANES, "DELETE FROM em_schema WHERE number > 10")
    store = reopen(postgres_store)
    assert list(store.read(EventQuery())) == before
    new = append(store, note("new", "s1"))
    append(store, Draft(stream="u", kind="message", body={"role": "user", "text": "a bus"},
                        subject="bo"))  # fmt: skip
    assert (new[0].seq, new[0].pos) == (len(before) + 1, 4)
    report = verify(store, heads=saved)
    assert (report.findings, report.events) == ([], 13)
    assert store.index.status(Within("bo")).passages == 1
    run_sql(store, "DELETE FROM events WHERE stream = 's2'")
    assert [(f.problem, f.stream) for f in verify(store).findings] == [("missing_tail", "s2")]
    store.close()


def test_a_database_of_before_the_register_verifies_and_its_changes_are_found(
    store: AnyStore,
) -> None:
    events = append(store, *(note(str(n), f"s{n % 3}", subject=f"a{n % 3}") for n in range(9)))
    draft = ArtefactDraft(kind="state", name="a", body={}, from_events=[events[0].id])
    records = [
        Record(subject="a1", type="T", id=str(n), body={"text": "marker"}, from_events=[])
        for n in range(4_100)
    ]
    store.commit(Commit(artefacts=[draft], records=records))
    erased = store.commit(Commit(artefacts=[msgspec.structs.replace(draft, name="b")]))
    store.erase([events[0].id])
    make_older(store)
    store = reopen(store)
    report = verify(store)
    assert (report.findings, report.events, report.streams) == ([], 10, 3)
    with pytest.raises(ForeignStream):
        append(store, note("!", "s1", subject="a2"))
    append(store, note("after", "s1", subject="a1"))
    assert verify(store).ok
    run_sql(store, "UPDATE records SET body = '{}' WHERE id = '4000'")
    run_sql(store, f"UPDATE artefacts SET retired_at = 1 WHERE id = '{erased.artefacts[0].id}'")
    run_sql(store, "DELETE FROM events WHERE stream = 's2'")
    found = [(f.problem, f.noun, f.stream) for f in verify(store).findings]
    assert found == [
        ("missing_tail", "stream", "s2"),
        ("changed", "artefact", "state/b"),
        ("changed", "record", "a1"),
    ]
    assert store.erase([], subjects=["a1"]).records == 4_100
    assert run_sql(store, "SELECT count(*) FROM records") == [(0,)]
    store.close()


def test_a_database_of_before_the_summaries_lists_what_it_has(store: AnyStore) -> None:
    append(store, *trace("a", goal="pay", subject="ana"), *trace("b", outcome="failure"))
    append(store, *events_of("run/r", ("run_started", RUN), ("run_ended", {"status": "ok"})))
    learned = events_of("heuristic/h1", ("heuristic_learned", {"lesson": NEW_LESSON}))
    draft = ArtefactDraft(kind="heuristic", name="h1", body=NEW_LESSON)
    store.commit(Commit(events=learned, artefacts=[draft]))
    store.erase([], subjects=["ana"])
    before = everything(store)
    assert [one.id for one in before] == ["b", "r", "h1"]
    older = "PRAGMA user_version=8"
    if isinstance(store, PostgresStore):
        older = "DELETE FROM em_schema WHERE number > 8"
        run_sql(store, *_WITHOUT_LANES)
    run_sql(store, "DROP TABLE summaries", "DROP TABLE tickets", older)
    store = reopen(store)
    assert everything(store) == before
    store.close()


def test_what_was_said_before_there_were_filters_is_narrowed_by_them(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("em.store.preparation.field_tags", lambda _given: ())
        for number in range(3):
            said = {"text": f"a key {number}", "speaker": f"S{number}", "session": f"s{number}"}
            append(store, Draft(stream="s", subject="ana", kind="observation", body=said))
    make_older(store)
    run_sql(store, "UPDATE flags SET value = '1' WHERE name = 'analysis'")
    store = reopen(store)
    recall = Recall(store)
    assert len(recall.recall("key", Within("ana"))) == 3
    for narrowed in (Within("ana", speaker="s1"), Within("ana", session="s1")):
        assert [one.text for one in recall.recall("key", narrowed)] == ["a key 1"]
    assert verify(store).ok
    store.close()
