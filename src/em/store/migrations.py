"""The migrations of the tables: a numbered, append-only list.

Opening an older database runs the migrations it lacks, in one transaction. Never edit a migration
that was released: append a new one.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import NamedTuple

from em.errors import NewerDatabase
from em.store.register import fill_register
from em.store.session import SqlSession
from em.store.summaries import fill_summaries
from em.values.ids import new_id


class Migration(NamedTuple):
    """One migration in both dialects. A statement ends with `;` at the end of a line.

    then: what SQL can't do, in the same transaction.
    """

    number: int
    why: str
    sqlite: str
    postgres: str
    then: Callable[[SqlSession], None] = lambda _session: None


def _name_database(session: SqlSession) -> None:
    session.execute(
        "INSERT INTO flags(name, value) VALUES ('database_id', ?) ON CONFLICT DO NOTHING",
        (new_id(),),
    )


MIGRATIONS = (
    Migration(
        1,
        "the log, and what is compiled from it",
        sqlite="""
        CREATE TABLE events(
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
            stream TEXT NOT NULL, pos INTEGER NOT NULL, subject TEXT,
            kind TEXT NOT NULL, v INTEGER NOT NULL,
            at INTEGER NOT NULL, recorded_at INTEGER NOT NULL,
            body TEXT, salt BLOB, body_hash BLOB NOT NULL, hash BLOB NOT NULL,
            UNIQUE(stream, pos));
        CREATE INDEX events_subject ON events(subject, seq) WHERE subject IS NOT NULL;
        CREATE INDEX events_kind ON events(kind, seq);
        CREATE TABLE artefacts(
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
            body TEXT, hash TEXT NOT NULL, from_events TEXT NOT NULL,
            created_at INTEGER NOT NULL, retired_at INTEGER,
            UNIQUE(kind, name, version)) WITHOUT ROWID;
        CREATE TABLE records(
            subject TEXT NOT NULL, type TEXT NOT NULL, id TEXT NOT NULL,
            body TEXT NOT NULL, from_events TEXT NOT NULL,
            PRIMARY KEY(subject, type, id)) WITHOUT ROWID;
        CREATE TABLE documents(
            num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, subject TEXT,
            at INTEGER NOT NULL, text TEXT NOT NULL, vector BLOB, from_events TEXT NOT NULL);
        CREATE INDEX documents_subject ON documents(subject) WHERE subject IS NOT NULL;
        CREATE VIRTUAL TABLE documents_words USING fts5(
            text, content='documents', content_rowid='num',
            tokenize='porter unicode61 remove_diacritics 2');
        CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
            INSERT INTO documents_words(rowid, text) VALUES (new.num, new.text); END;
        CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
            INSERT INTO documents_words(documents_words, rowid, text)
            VALUES ('delete', old.num, old.text); END;
        CREATE TABLE requests(
            key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, owner TEXT NOT NULL,
            state TEXT NOT NULL, response BLOB,
            from_events TEXT NOT NULL DEFAULT '[]',
            lease_until INTEGER NOT NULL, expires_at INTEGER NOT NULL);
        CREATE INDEX requests_expiry ON requests(expires_at);
        CREATE TABLE derivations(
            source TEXT NOT NULL, noun TEXT NOT NULL, holder TEXT NOT NULL,
            PRIMARY KEY(source, noun, holder)) WITHOUT ROWID;
        CREATE TABLE flags(name TEXT PRIMARY KEY, value TEXT NOT NULL);
        """,
        # As in SQLite, names sort by code points, words are stemmed, and there are no stop words.
        postgres="""
        CREATE EXTENSION IF NOT EXISTS vector;
        CREATE TEXT SEARCH DICTIONARY em_stem (TEMPLATE = snowball, LANGUAGE = english);
        CREATE TEXT SEARCH CONFIGURATION em_words (COPY = simple);
        ALTER TEXT SEARCH CONFIGURATION em_words
            ALTER MAPPING FOR asciiword, word, numword WITH em_stem;
        CREATE TABLE events(
            seq BIGINT PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE,
            stream TEXT COLLATE "C" NOT NULL, pos BIGINT NOT NULL, subject TEXT COLLATE "C",
            kind TEXT COLLATE "C" NOT NULL, v INTEGER NOT NULL,
            at BIGINT NOT NULL, recorded_at BIGINT NOT NULL,
            body TEXT, salt BYTEA, body_hash BYTEA NOT NULL, hash BYTEA NOT NULL,
            UNIQUE(stream, pos));
        CREATE INDEX events_subject ON events(subject, seq) WHERE subject IS NOT NULL;
        CREATE INDEX events_kind ON events(kind, seq);
        CREATE TABLE artefacts(
            id TEXT COLLATE "C" PRIMARY KEY, kind TEXT COLLATE "C" NOT NULL,
            name TEXT COLLATE "C" NOT NULL, version INTEGER NOT NULL,
            body TEXT, hash TEXT NOT NULL, from_events TEXT NOT NULL,
            created_at BIGINT NOT NULL, retired_at BIGINT,
            UNIQUE(kind, name, version));
        CREATE TABLE records(
            subject TEXT COLLATE "C" NOT NULL, type TEXT COLLATE "C" NOT NULL,
            id TEXT COLLATE "C" NOT NULL, body TEXT NOT NULL, from_events TEXT NOT NULL,
            PRIMARY KEY(subject, type, id));
        CREATE TABLE documents(
            num BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id TEXT COLLATE "C" NOT NULL UNIQUE,
            kind TEXT COLLATE "C" NOT NULL, subject TEXT COLLATE "C", at BIGINT NOT NULL,
            text TEXT NOT NULL, vector vector, from_events TEXT NOT NULL,
            words tsvector NOT NULL);
        CREATE INDEX documents_subject ON documents(subject) WHERE subject IS NOT NULL;
        CREATE INDEX documents_words ON documents USING gin(words);
        CREATE TABLE requests(
            key TEXT COLLATE "C" PRIMARY KEY, fingerprint TEXT NOT NULL, owner TEXT NOT NULL,
            state TEXT NOT NULL, response BYTEA,
            from_events TEXT NOT NULL DEFAULT '[]',
            lease_until BIGINT NOT NULL, expires_at BIGINT NOT NULL);
        CREATE INDEX requests_expiry ON requests(expires_at);
        CREATE TABLE derivations(
            source TEXT COLLATE "C" NOT NULL, noun TEXT COLLATE "C" NOT NULL,
            holder TEXT COLLATE "C" NOT NULL, PRIMARY KEY(source, noun, holder));
        CREATE TABLE flags(name TEXT PRIMARY KEY, value TEXT NOT NULL);
        """,
    ),
    Migration(
        2,
        "recall: passages of events with words of em's own, numbered so that neighbours touch",
        # Words are analysed before they are inserted, so the tokenizer only splits them. A search
        # asks for the passages of one word at a time, so positions and lengths are not stored.
        sqlite="""
        DELETE FROM derivations WHERE noun = 'documents' AND holder IN (
            SELECT id FROM documents
            WHERE kind IN ('observation', 'message') AND id <> replace(id, ':', ''));
        DELETE FROM documents
            WHERE kind IN ('observation', 'message') AND id <> replace(id, ':', '');
        CREATE TABLE scopes(
            number INTEGER PRIMARY KEY, subject TEXT NOT NULL UNIQUE, next INTEGER NOT NULL,
            passages INTEGER NOT NULL, stamp INTEGER NOT NULL);
        CREATE TABLE threads(
            scope INTEGER NOT NULL, stream TEXT NOT NULL, next INTEGER NOT NULL,
            ends INTEGER NOT NULL, at INTEGER, session TEXT,
            PRIMARY KEY(scope, stream)) WITHOUT ROWID;
        CREATE TABLE passages(
            number INTEGER PRIMARY KEY, shape INTEGER NOT NULL, seq INTEGER NOT NULL,
            starts INTEGER NOT NULL, ends INTEGER NOT NULL, at INTEGER NOT NULL,
            speaker TEXT, role TEXT);
        CREATE INDEX passages_seq ON passages(seq);
        CREATE VIRTUAL TABLE words USING fts5(
            terms, detail=none, columnsize=0, tokenize="ascii tokenchars '@='");
        CREATE TABLE vectors(number INTEGER PRIMARY KEY, vector BLOB NOT NULL);
        """,
        postgres="""
        DELETE FROM derivations WHERE noun = 'documents' AND holder IN (
            SELECT id FROM documents
            WHERE kind IN ('observation', 'message') AND id <> replace(id, ':', ''));
        DELETE FROM documents
            WHERE kind IN ('observation', 'message') AND id <> replace(id, ':', '');
        CREATE TABLE scopes(
            number BIGINT PRIMARY KEY, subject TEXT COLLATE "C" NOT NULL UNIQUE,
            next BIGINT NOT NULL, passages BIGINT NOT NULL, stamp BIGINT NOT NULL);
        CREATE TABLE threads(
            scope BIGINT NOT NULL, stream TEXT COLLATE "C" NOT NULL, next BIGINT NOT NULL,
            ends BIGINT NOT NULL, at BIGINT, session TEXT,
            PRIMARY KEY(scope, stream));
        CREATE TABLE passages(
            number BIGINT PRIMARY KEY, shape SMALLINT NOT NULL, seq BIGINT NOT NULL,
            starts INTEGER NOT NULL, ends INTEGER NOT NULL, at BIGINT NOT NULL,
            speaker TEXT, role TEXT, words tsvector NOT NULL);
        CREATE INDEX passages_seq ON passages(seq);
        CREATE INDEX passages_words ON passages USING gin(words);
        CREATE TABLE vectors(number BIGINT PRIMARY KEY, vector vector NOT NULL);
        """,
    ),
    Migration(
        3,
        "lessons are passages: a list of the events that hold them takes the place of documents",
        # A lesson's document was made from an event of the lesson's own stream. Its words are
        # indexed when the database is opened; its vector, if there was one, is made again.
        sqlite="""
        CREATE TABLE lessons(stream TEXT PRIMARY KEY, seq INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
        INSERT INTO lessons(stream, seq)
            SELECT e.stream, MIN(e.seq) FROM documents AS d
            JOIN derivations AS v ON v.noun = 'documents' AND v.holder = d.id
            JOIN events AS e ON e.id = v.source AND e.stream = d.id
            WHERE e.body IS NOT NULL GROUP BY e.stream;
        INSERT INTO flags(name, value) VALUES ('lessons_not_indexed', '1')
            ON CONFLICT(name) DO NOTHING;
        DELETE FROM vectors WHERE number >= 2305843009213693952;
        DELETE FROM scopes WHERE subject = char(10) || 'documents';
        DELETE FROM derivations WHERE noun = 'documents';
        DROP TABLE documents_words;
        DROP TABLE documents;
        """,
        postgres="""
        CREATE TABLE lessons(stream TEXT COLLATE "C" PRIMARY KEY, seq BIGINT NOT NULL UNIQUE);
        INSERT INTO lessons(stream, seq)
            SELECT e.stream, MIN(e.seq) FROM documents AS d
            JOIN derivations AS v ON v.noun = 'documents' AND v.holder = d.id
            JOIN events AS e ON e.id = v.source AND e.stream = d.id
            WHERE e.body IS NOT NULL GROUP BY e.stream;
        INSERT INTO flags(name, value) VALUES ('lessons_not_indexed', '1')
            ON CONFLICT(name) DO NOTHING;
        DELETE FROM vectors WHERE number >= 2305843009213693952;
        DELETE FROM scopes WHERE subject = chr(10) || 'documents';
        DELETE FROM derivations WHERE noun = 'documents';
        DROP TABLE documents;
        DROP TEXT SEARCH CONFIGURATION em_words;
        DROP TEXT SEARCH DICTIONARY em_stem;
        """,
    ),
    Migration(
        4,
        "cards: what lists show of artefacts, so that a list reads and parses no bodies",
        sqlite="""
        CREATE TABLE cards(id TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
        """,
        postgres="""
        CREATE TABLE cards(id TEXT COLLATE "C" PRIMARY KEY, body TEXT NOT NULL);
        """,
    ),
    Migration(
        5,
        "PostgreSQL takes no samples of content: they would outlive what is forgotten",
        # Setting a type, even the same one, drops the samples that were taken before. Their bytes
        # go with the next scrub, which looks whether their file is still this one.
        sqlite="",
        postgres="""
        INSERT INTO flags(name, value)
            SELECT 'samples_pending', pg_relation_filenode('pg_catalog.pg_statistic')::text
            WHERE EXISTS (SELECT 1 FROM events)
            ON CONFLICT(name) DO UPDATE SET value = excluded.value;
        ALTER TABLE events ALTER body SET STATISTICS 0, ALTER body TYPE TEXT;
        ALTER TABLE artefacts ALTER body SET STATISTICS 0, ALTER body TYPE TEXT;
        ALTER TABLE cards ALTER body SET STATISTICS 0, ALTER body TYPE TEXT;
        ALTER TABLE records
            ALTER id SET STATISTICS 0, ALTER id TYPE TEXT COLLATE "C",
            ALTER body SET STATISTICS 0, ALTER body TYPE TEXT;
        ALTER TABLE requests ALTER response SET STATISTICS 0, ALTER response TYPE BYTEA;
        ALTER TABLE derivations ALTER holder SET STATISTICS 0, ALTER holder TYPE TEXT COLLATE "C";
        ALTER TABLE passages
            ALTER words SET STATISTICS 0, ALTER words TYPE tsvector,
            ALTER speaker SET STATISTICS 0, ALTER speaker TYPE TEXT;
        ALTER TABLE vectors ALTER vector SET STATISTICS 0, ALTER vector TYPE vector;
        ALTER TABLE threads ALTER session SET STATISTICS 0, ALTER session TYPE TEXT;
        """,
    ),
    Migration(
        6,
        "owners: whom a stream is about, so that nobody writes into the stream of another",
        sqlite="""
        CREATE TABLE owners(stream TEXT PRIMARY KEY, subject TEXT NOT NULL) WITHOUT ROWID;
        INSERT INTO owners(stream, subject)
            SELECT e.stream, e.subject FROM events AS e JOIN (
                SELECT stream, MIN(pos) AS pos FROM events
                WHERE subject IS NOT NULL GROUP BY stream) AS f
            ON f.stream = e.stream AND f.pos = e.pos;
        """,
        postgres="""
        CREATE TABLE owners(
            stream TEXT COLLATE "C" PRIMARY KEY, subject TEXT COLLATE "C" NOT NULL);
        INSERT INTO owners(stream, subject)
            SELECT e.stream, e.subject FROM events AS e JOIN (
                SELECT stream, MIN(pos) AS pos FROM events
                WHERE subject IS NOT NULL GROUP BY stream) AS f
            ON f.stream = e.stream AND f.pos = e.pos;
        """,
    ),
    Migration(
        7,
        "the register, which proves what streams, artefacts and records there are",
        # One statement of SQLite's inserts an event with the register's entry: see `SqliteStore`.
        sqlite="""
        CREATE TABLE register(
            n INTEGER PRIMARY KEY, noun TEXT NOT NULL, key TEXT NOT NULL, pos INTEGER NOT NULL,
            hash BLOB NOT NULL, link BLOB NOT NULL);
        CREATE TABLE tallies(
            subject TEXT PRIMARY KEY, count INTEGER NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
        ALTER TABLE artefacts ADD COLUMN seal BLOB;
        ALTER TABLE records ADD COLUMN seal BLOB;
        CREATE VIEW registered_events AS SELECT events.*, 0 AS n, x'' AS link FROM events;
        CREATE TRIGGER register_event INSTEAD OF INSERT ON registered_events BEGIN
            INSERT INTO events VALUES (new.seq, new.id, new.stream, new.pos, new.subject, new.kind,
                new.v, new.at, new.recorded_at, new.body, new.salt, new.body_hash, new.hash);
            INSERT INTO register VALUES (new.n, 'stream', new.stream, new.pos, new.hash, new.link);
            END;
        """,
        postgres="""
        CREATE TABLE register(
            n BIGINT PRIMARY KEY, noun TEXT NOT NULL, key TEXT COLLATE "C" NOT NULL,
            pos BIGINT NOT NULL, hash BYTEA NOT NULL, link BYTEA NOT NULL);
        CREATE TABLE tallies(
            subject TEXT COLLATE "C" PRIMARY KEY, count BIGINT NOT NULL, sum BYTEA NOT NULL);
        ALTER TABLE artefacts ADD COLUMN seal BYTEA;
        ALTER TABLE records ADD COLUMN seal BYTEA;
        """,
        then=fill_register,
    ),
    Migration(
        8,
        "an id, by which its user's list of trusted databases knows it",
        sqlite="",
        postgres="",
        then=_name_database,
    ),
    Migration(
        9,
        "summaries: what lists show of runs, traces, jobs and lessons, found by key",
        sqlite="""
        CREATE TABLE summaries(
            seq INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE, noun TEXT NOT NULL,
            subject TEXT, at INTEGER NOT NULL, ended INTEGER, status TEXT NOT NULL,
            name TEXT NOT NULL, agent TEXT NOT NULL, parent TEXT, calls INTEGER NOT NULL,
            failed INTEGER NOT NULL, size INTEGER NOT NULL, shown TEXT NOT NULL);
        CREATE INDEX summaries_subject ON summaries(subject, noun, at, seq)
            WHERE subject IS NOT NULL;
        CREATE INDEX summaries_parent ON summaries(parent, noun, at, seq)
            WHERE parent IS NOT NULL;
        CREATE INDEX summaries_noun ON summaries(noun, at, seq);
        CREATE INDEX summaries_status ON summaries(noun, status, at, seq);
        CREATE INDEX summaries_name ON summaries(noun, name, at, seq);
        """,
        # No samples of content, as in migration 5.
        postgres="""
        CREATE TABLE summaries(
            seq BIGINT PRIMARY KEY, stream TEXT COLLATE "C" NOT NULL UNIQUE,
            noun TEXT COLLATE "C" NOT NULL, subject TEXT COLLATE "C", at BIGINT NOT NULL,
            ended BIGINT, status TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL,
            agent TEXT NOT NULL, parent TEXT COLLATE "C", calls INTEGER NOT NULL,
            failed INTEGER NOT NULL, size BIGINT NOT NULL, shown TEXT NOT NULL);
        ALTER TABLE summaries ALTER name SET STATISTICS 0, ALTER agent SET STATISTICS 0,
            ALTER shown SET STATISTICS 0;
        CREATE INDEX summaries_subject ON summaries(subject, noun, at, seq)
            WHERE subject IS NOT NULL;
        CREATE INDEX summaries_parent ON summaries(parent, noun, at, seq)
            WHERE parent IS NOT NULL;
        CREATE INDEX summaries_noun ON summaries(noun, at, seq);
        CREATE INDEX summaries_status ON summaries(noun, status, at, seq);
        CREATE INDEX summaries_name ON summaries(noun, name, at, seq);
        """,
        then=fill_summaries,
    ),
    Migration(
        10,
        "tickets, on which the processes of a service agree",
        sqlite="""
        CREATE TABLE tickets(
            name TEXT PRIMARY KEY, value TEXT NOT NULL, count INTEGER NOT NULL,
            expires_at INTEGER NOT NULL) WITHOUT ROWID;
        CREATE INDEX tickets_expiry ON tickets(expires_at);
        """,
        postgres="""
        CREATE TABLE tickets(
            name TEXT COLLATE "C" PRIMARY KEY, value TEXT NOT NULL, count BIGINT NOT NULL,
            expires_at BIGINT NOT NULL);
        CREATE INDEX tickets_expiry ON tickets(expires_at);
        """,
    ),
    Migration(
        11,
        "commits side by side on PostgreSQL: `seq` from a sequence, a lock for each stream",
        # `em_enter` takes the locks of a commit, then marks which numbers it may draw: from the
        # next one on. A reader that sees no such mark below a number knows that nothing below it
        # can still appear: see `em.store.lanes`. `em_append` is a whole commit of one event.
        sqlite="",
        postgres="""
        CREATE SEQUENCE events_seq;
        SELECT setval('events_seq', MAX(seq)) FROM events HAVING MAX(seq) > 0;
        CREATE SEQUENCE scopes_said;
        SELECT setval('scopes_said', MAX(number)) FROM scopes HAVING MAX(number) > 0;
        CREATE SEQUENCE scopes_lessons;
        SELECT setval('scopes_lessons', -MIN(number)) FROM scopes HAVING MIN(number) < 0;
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
    Migration(
        12,
        "nothing: it marked routines of an earlier form",
        sqlite="",
        postgres="",
    ),
)

NEWEST = MIGRATIONS[-1].number


def pending(current: int, location: str) -> tuple[Migration, ...]:
    """Return the migrations that a database lacks. Raise NewerDatabase for a newer schema."""
    if current > NEWEST:
        raise NewerDatabase(
            f"the database has schema {current}; this em knows schemas up to {NEWEST}",
            place=location,
            fix="upgrade em-core",
        )
    return tuple(step for step in MIGRATIONS if step.number > current)


def statements(script: str) -> Iterator[str]:
    """Split a migration for SQLite into statements; a trigger has semicolons inside."""
    return _split(script, sqlite3.complete_statement)


def postgres_statements(script: str) -> Iterator[str]:
    """Split a migration for PostgreSQL; a function has semicolons between `$$`."""
    return _split(script, lambda text: text.rstrip().endswith(";") and text.count("$$") % 2 == 0)


def _split(script: str, is_complete: Callable[[str], bool]) -> Iterator[str]:
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if is_complete(statement):
            yield statement
            statement = ""
