"""The tables, as a numbered, append-only list of migrations.

The first one makes all tables; older databases are refused. Opening a database runs the migrations
it lacks, in one transaction. Never edit a migration that was released: append a new one.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from typing import NamedTuple

from em.errors import NewerDatabase, OlderDatabase


class Migration(NamedTuple):
    """One migration. `shared` runs on both back ends, before what is their own.

    In `shared`, NAME, NUMBER, BYTES and KEYED stand for the words of a back end. A statement ends
    with `;` at the end of a line.
    """

    number: int
    why: str
    shared: str
    sqlite: str = ""
    postgres: str = ""


_WORDS = {
    "NAME": ("TEXT", 'TEXT COLLATE "C"'),  # sorted by code points, as SQLite does
    "NUMBER": ("INTEGER", "BIGINT"),
    "BYTES": ("BLOB", "BYTEA"),
    "KEYED": (" WITHOUT ROWID", ""),
}

MIGRATIONS = (
    Migration(
        12,
        "the log, what is compiled from it, the search index, lists, and the register",
        shared="""
        CREATE TABLE events(
            seq NUMBER PRIMARY KEY, id NAME NOT NULL UNIQUE,
            stream NAME NOT NULL, pos NUMBER NOT NULL, subject NAME,
            kind NAME NOT NULL, v INTEGER NOT NULL,
            at NUMBER NOT NULL, recorded_at NUMBER NOT NULL,
            body TEXT, salt BYTES, body_hash BYTES NOT NULL, hash BYTES NOT NULL,
            UNIQUE(stream, pos));
        CREATE INDEX events_subject ON events(subject, seq) WHERE subject IS NOT NULL;
        CREATE INDEX events_kind ON events(kind, seq);
        CREATE TABLE owners(stream NAME PRIMARY KEY, subject NAME NOT NULL)KEYED;
        CREATE TABLE artefacts(
            id NAME PRIMARY KEY, kind NAME NOT NULL, name NAME NOT NULL, version INTEGER NOT NULL,
            body TEXT, hash TEXT NOT NULL, from_events TEXT NOT NULL,
            created_at NUMBER NOT NULL, retired_at NUMBER, seal BYTES,
            UNIQUE(kind, name, version))KEYED;
        CREATE TABLE cards(id NAME PRIMARY KEY, body TEXT NOT NULL)KEYED;
        CREATE TABLE records(
            subject NAME NOT NULL, type NAME NOT NULL, id NAME NOT NULL,
            body TEXT NOT NULL, from_events TEXT NOT NULL, seal BYTES,
            PRIMARY KEY(subject, type, id))KEYED;
        CREATE TABLE requests(
            key NAME PRIMARY KEY, fingerprint TEXT NOT NULL, owner TEXT NOT NULL,
            state TEXT NOT NULL, response BYTES, from_events TEXT NOT NULL DEFAULT '[]',
            lease_until NUMBER NOT NULL, expires_at NUMBER NOT NULL);
        CREATE INDEX requests_expiry ON requests(expires_at);
        CREATE TABLE derivations(
            source NAME NOT NULL, noun NAME NOT NULL, holder NAME NOT NULL,
            PRIMARY KEY(source, noun, holder))KEYED;
        CREATE TABLE flags(name TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE scopes(
            number NUMBER PRIMARY KEY, subject NAME NOT NULL UNIQUE, next NUMBER NOT NULL,
            passages NUMBER NOT NULL, stamp NUMBER NOT NULL);
        CREATE TABLE threads(
            scope NUMBER NOT NULL, stream NAME NOT NULL, next NUMBER NOT NULL,
            ends NUMBER NOT NULL, at NUMBER, session TEXT,
            PRIMARY KEY(scope, stream))KEYED;
        CREATE TABLE passages(
            number NUMBER PRIMARY KEY, shape SMALLINT NOT NULL, seq NUMBER NOT NULL,
            starts INTEGER NOT NULL, ends INTEGER NOT NULL, at NUMBER NOT NULL,
            speaker TEXT, role TEXT);
        CREATE INDEX passages_seq ON passages(seq);
        CREATE TABLE lessons(stream NAME PRIMARY KEY, seq NUMBER NOT NULL UNIQUE)KEYED;
        CREATE TABLE register(
            n NUMBER PRIMARY KEY, noun TEXT NOT NULL, key NAME NOT NULL, pos NUMBER NOT NULL,
            hash BYTES NOT NULL, link BYTES NOT NULL);
        CREATE TABLE tallies(
            subject NAME PRIMARY KEY, count NUMBER NOT NULL, sum BYTES NOT NULL)KEYED;
        CREATE TABLE summaries(
            seq NUMBER PRIMARY KEY, stream NAME NOT NULL UNIQUE, noun NAME NOT NULL,
            subject NAME, at NUMBER NOT NULL, ended NUMBER, status NAME NOT NULL,
            name NAME NOT NULL, agent TEXT NOT NULL, parent NAME, calls INTEGER NOT NULL,
            failed INTEGER NOT NULL, size NUMBER NOT NULL, shown TEXT NOT NULL);
        CREATE INDEX summaries_subject ON summaries(subject, noun, at, seq)
            WHERE subject IS NOT NULL;
        CREATE INDEX summaries_parent ON summaries(parent, noun, at, seq)
            WHERE parent IS NOT NULL;
        CREATE INDEX summaries_noun ON summaries(noun, at, seq);
        CREATE INDEX summaries_status ON summaries(noun, status, at, seq);
        CREATE INDEX summaries_name ON summaries(noun, name, at, seq);
        CREATE TABLE tickets(
            name NAME PRIMARY KEY, value TEXT NOT NULL, count NUMBER NOT NULL,
            expires_at NUMBER NOT NULL)KEYED;
        CREATE INDEX tickets_expiry ON tickets(expires_at);
        """,
        # Words are analysed before they are inserted, so the tokenizer only splits them. A search
        # asks for the passages of one word at a time, so positions and lengths are not stored.
        # The view lets one statement insert an event with the register's entry: see `SqliteStore`.
        sqlite="""
        CREATE VIRTUAL TABLE words USING fts5(
            terms, detail=none, columnsize=0, tokenize="ascii tokenchars '@='");
        CREATE TABLE vectors(number INTEGER PRIMARY KEY, vector BLOB NOT NULL);
        CREATE VIEW registered_events AS SELECT events.*, 0 AS n, x'' AS link FROM events;
        CREATE TRIGGER register_event INSTEAD OF INSERT ON registered_events BEGIN
            INSERT INTO events VALUES (new.seq, new.id, new.stream, new.pos, new.subject, new.kind,
                new.v, new.at, new.recorded_at, new.body, new.salt, new.body_hash, new.hash);
            INSERT INTO register VALUES (new.n, 'stream', new.stream, new.pos, new.hash, new.link);
            END;
        """,
        # No statistics: the server's samples of content would outlive what is forgotten.
        # `em_enter` takes the locks of a commit, then marks which numbers it may draw: from the
        # next one on. A reader that sees no such mark below a number knows that nothing below it
        # can still appear: see `em.store.lanes`. `em_append` is a whole commit of one event.
        postgres="""
        CREATE EXTENSION IF NOT EXISTS vector;
        ALTER TABLE passages ADD COLUMN words tsvector NOT NULL;
        CREATE INDEX passages_words ON passages USING gin(words);
        CREATE TABLE vectors(number BIGINT PRIMARY KEY, vector vector NOT NULL);
        ALTER TABLE events ALTER body SET STATISTICS 0;
        ALTER TABLE artefacts ALTER body SET STATISTICS 0;
        ALTER TABLE cards ALTER body SET STATISTICS 0;
        ALTER TABLE records ALTER id SET STATISTICS 0, ALTER body SET STATISTICS 0;
        ALTER TABLE requests ALTER response SET STATISTICS 0;
        ALTER TABLE derivations ALTER holder SET STATISTICS 0;
        ALTER TABLE passages ALTER words SET STATISTICS 0, ALTER speaker SET STATISTICS 0;
        ALTER TABLE vectors ALTER vector SET STATISTICS 0;
        ALTER TABLE threads ALTER session SET STATISTICS 0;
        ALTER TABLE summaries ALTER name SET STATISTICS 0, ALTER agent SET STATISTICS 0,
            ALTER shown SET STATISTICS 0;
        CREATE SEQUENCE events_seq;
        CREATE SEQUENCE scopes_said;
        CREATE SEQUENCE scopes_lessons;
        CREATE TABLE unchained(
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, noun TEXT NOT NULL,
            key TEXT COLLATE "C" NOT NULL, pos BIGINT NOT NULL, hash BYTEA NOT NULL);
        CREATE FUNCTION em_enter(whole BIGINT, keys BIGINT[]) RETURNS VOID LANGUAGE plpgsql AS $$
        DECLARE
            one BIGINT;
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(whole);
            FOREACH one IN ARRAY keys LOOP
                PERFORM pg_advisory_xact_lock(one);
            END LOOP;
            PERFORM pg_advisory_xact_lock_shared(
                'events'::regclass::oid::bigint::bit(32)::integer,
                (last_value + is_called::integer)::bit(32)::integer) FROM events_seq;
        END $$;
        CREATE FUNCTION em_append(
            whole BIGINT, own_key BIGINT, expected BIGINT, new_id TEXT, new_stream TEXT,
            new_subject TEXT, new_kind TEXT, new_v INTEGER, new_at BIGINT, new_recorded_at BIGINT,
            new_body TEXT, new_salt BYTEA, new_body_hash BYTEA, before_pos BYTEA, behind_pos BYTEA,
            OUT new_seq BIGINT, OUT new_pos BIGINT, OUT new_hash BYTEA) LANGUAGE plpgsql AS $$
        DECLARE
            owner TEXT;
        BEGIN
            PERFORM em_enter(whole, ARRAY[own_key]);
            SELECT pos, hash INTO new_pos, new_hash FROM events
                WHERE stream = new_stream ORDER BY pos DESC LIMIT 1;
            new_pos := COALESCE(new_pos, 0) + 1;
            IF expected <> new_pos - 1 THEN
                RETURN;
            END IF;
            IF new_subject IS NOT NULL THEN
                SELECT subject INTO owner FROM owners WHERE stream = new_stream;
                IF owner <> new_subject THEN
                    RETURN;
                ELSIF owner IS NULL THEN
                    INSERT INTO owners(stream, subject) VALUES (new_stream, new_subject);
                END IF;
            END IF;
            new_hash := sha256(before_pos || new_pos::text::bytea || behind_pos || new_body_hash
                || COALESCE(new_hash, ''));
            new_seq := nextval('events_seq');
            INSERT INTO events VALUES (new_seq, new_id, new_stream, new_pos, new_subject, new_kind,
                new_v, new_at, new_recorded_at, new_body, new_salt, new_body_hash, new_hash);
            INSERT INTO unchained(noun, key, pos, hash)
                VALUES ('stream', new_stream, new_pos, new_hash);
        END $$;
        """,
    ),
)

OLDEST, NEWEST = MIGRATIONS[0].number, MIGRATIONS[-1].number


def pending(current: int, location: str) -> tuple[Migration, ...]:
    """Return the migrations that a database lacks; 0 is one without tables.

    Raise NewerDatabase or OlderDatabase for a schema that this em does not know.
    """
    if current > NEWEST:
        raise NewerDatabase(
            f"the database has schema {current}; this em knows schemas up to {NEWEST}",
            place=location,
            fix="upgrade em-core",
        )
    if 0 < current < OLDEST:
        raise OlderDatabase(
            f"the database has schema {current}; this em knows schemas from {OLDEST} on",
            place=location,
            fix="run `em log export` with the em that wrote it, then `em log import` here",
        )
    return tuple(step for step in MIGRATIONS if step.number > current)


def sqlite_statements(step: Migration) -> Iterator[str]:
    """Yield the statements of a migration for SQLite; a trigger has semicolons inside."""
    return _split(_in_words(step.shared, 0) + step.sqlite, sqlite3.complete_statement)


def postgres_statements(step: Migration) -> Iterator[str]:
    """Yield the statements of a migration for PostgreSQL; a function has semicolons in `$$`."""
    return _split(
        _in_words(step.shared, 1) + step.postgres,
        lambda text: text.rstrip().endswith(";") and text.count("$$") % 2 == 0,
    )


def _in_words(script: str, back_end: int) -> str:
    return re.sub("|".join(_WORDS), lambda found: _WORDS[found[0]][back_end], script)


def _split(script: str, is_complete: Callable[[str], bool]) -> Iterator[str]:
    statement = ""
    for line in filter(str.strip, script.splitlines()):
        statement += line + "\n"
        if is_complete(statement):
            yield statement
            statement = ""
