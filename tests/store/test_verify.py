"""Whoever changes the log behind em's back is found out, and what they did is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em.errors import ForeignStream
from em.log.chain import hash_body, hash_event
from em.log.event import EventQuery
from em.log.verify import Finding, verify
from em.store import Commit
from em.store.postgres import PostgresStore
from em.store.protocol import ArtefactDraft, Record
from em.store.sqlite import SqliteStore
from em.testing import append, note
from raw import run_sql

AnyStore = SqliteStore | PostgresStore


@pytest.fixture
def log(store: AnyStore) -> AnyStore:
    append(store, *(note(f"n{n}", stream="s") for n in range(1, 7)), note("else", stream="t"))
    return store


def found(store: AnyStore) -> list[tuple[str, str, int]]:
    return [(f.problem, f.stream, f.pos) for f in verify(store).findings]


def finding(store: AnyStore) -> Finding:
    (only,) = verify(store).findings
    return only


def test_a_changed_body_is_found(log: AnyStore) -> None:
    run_sql(log, """UPDATE events SET body = '{"text":"N3"}' WHERE stream = 's' AND pos = 3""")
    assert found(log) == [("changed", "s", 3)]
    assert "body" in finding(log).detail


def test_a_body_that_means_the_same_but_is_written_otherwise_is_found(log: AnyStore) -> None:
    run_sql(log, """UPDATE events SET body = '{"text": "n3"}' WHERE stream = 's' AND pos = 3""")
    assert found(log) == [("changed", "s", 3)]


@pytest.mark.parametrize(
    "change",
    ["kind = 'other'", "subject = 'eve'", "at = at + 1", "recorded_at = 0", "id = 'x'", "v = 2"],
)
def test_a_changed_field_is_found(log: AnyStore, change: str) -> None:
    run_sql(log, f"UPDATE events SET {change} WHERE stream = 's' AND pos = 3")
    assert found(log) == [("changed", "s", 3)]


def test_a_body_that_is_no_json_any_more_is_found_and_the_rest_still_checked(
    log: AnyStore,
) -> None:
    run_sql(log, "UPDATE events SET body = 'garbage' WHERE stream = 's' AND pos IN (2, 5)")
    assert found(log) == [("changed", "s", 2), ("changed", "s", 5)]


def test_a_changed_body_with_its_own_hashes_made_anew_is_found_at_the_next_event(
    log: AnyStore,
) -> None:
    event = list(log.read(EventQuery(stream="s")))[2]
    rows = list(log.rows(EventQuery(stream="s")))
    text, salt = b'{"text":"forged"}', bytes.fromhex(event.salt or "")
    body_hash = hash_body(salt, text)
    row = rows[2]
    own = hash_event(
        rows[1].hash,
        *(row.id, row.stream, row.pos, row.subject, row.kind, row.v, row.at, row.recorded_at),
        body_hash,
    )
    blob = "X'{}'" if isinstance(log, SqliteStore) else "'\\x{}'"
    run_sql(
        log,
        f"UPDATE events SET body = '{text.decode()}', body_hash = {blob.format(body_hash.hex())},"
        f" hash = {blob.format(own.hex())} WHERE stream = 's' AND pos = 3",
    )
    assert found(log) == [("changed", "s", 4)]


def test_a_removed_event_is_found(log: AnyStore) -> None:
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos IN (3, 4)")
    assert found(log) == [("removed", "s", 5)]
    assert "positions 3 to 4 are missing" in finding(log).detail


def test_a_removed_beginning_is_found(log: AnyStore) -> None:
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos = 1")
    assert found(log) == [("removed", "s", 2)]


def test_reordered_events_are_named_with_where_they_belong(log: AnyStore) -> None:
    run_sql(
        log,
        "UPDATE events SET pos = 99 WHERE stream = 's' AND pos = 3",
        "UPDATE events SET pos = 3 WHERE stream = 's' AND pos = 4",
        "UPDATE events SET pos = 4 WHERE stream = 's' AND pos = 99",
    )
    findings = verify(log).findings
    assert [(f.problem, f.pos) for f in findings] == [("reordered", 3), ("reordered", 4)]
    assert findings[0].detail == "it was written at position 4"
    assert findings[1].detail == "it was written at position 3"


def test_an_event_removed_with_the_rest_moved_up_is_found(log: AnyStore) -> None:
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos = 3")
    for pos in (4, 5, 6):
        run_sql(log, f"UPDATE events SET pos = {pos - 1} WHERE stream = 's' AND pos = {pos}")
    assert ("changed", "s", 3) in found(log)


def test_a_missing_tail_is_found_once_with_a_saved_head_or_without(log: AnyStore) -> None:
    heads = verify(log).heads
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos > 4")
    for report in (verify(log), verify(log, heads=heads), verify(log, stream="s")):
        assert [(f.problem, f.pos) for f in report.findings] == [("missing_tail", 5)]
        assert "positions 5 to 6 are missing at the end" in report.findings[0].detail


def test_a_body_blanked_without_an_erasure_is_found(log: AnyStore) -> None:
    run_sql(log, "UPDATE events SET body = NULL, salt = NULL WHERE stream = 's' AND pos = 2")
    assert found(log) == [("changed", "s", 2)]
    assert "no tombstone" in finding(log).detail


def test_a_body_put_back_after_its_erasure_is_found(log: AnyStore) -> None:
    (event, *_) = log.read(EventQuery(stream="s"))
    log.erase([event.id])
    assert verify(log).ok
    run_sql(log, """UPDATE events SET body = '{"text":"n1"}' WHERE stream = 's' AND pos = 1""")
    assert found(log) == [("changed", "s", 1)]


@pytest.mark.parametrize(
    "change",
    [
        "seq = -seq WHERE stream = 's' AND pos = 3",
        "seq = 1000 - seq WHERE stream = 's'",
        "kind = 'erased' WHERE stream = 's' AND pos = 2",
        "pos = 0 WHERE stream = 's' AND pos = 1",
        "salt = NULL WHERE stream = 's' AND pos = 2",
        "body = NULL WHERE stream = 's' AND pos = 2",
        "v = 2000000000 WHERE stream = 's' AND pos = 6",
    ],
)
def test_no_change_escapes_or_stops_the_proof(log: AnyStore, change: str) -> None:
    run_sql(log, f"UPDATE events SET {change}")
    report = verify(log)
    assert report.events == 7
    assert {finding.stream for finding in report.findings} == {"s"}


@pytest.mark.parametrize(
    "change",
    [
        "pos = 'x' WHERE pos = 3",
        "pos = x'00' WHERE pos = 3",
        "id = x'ff' WHERE pos = 3",
        "kind = x'6e' WHERE pos = 3",
        "subject = x'8f79da' WHERE pos = 3",
        "body = CAST(x'ff' AS TEXT) WHERE pos = 3",
        "body = 5 WHERE pos = 3",
        "hash = 'x' WHERE pos = 3",
        "salt = salt || CAST(substr(body, 1, length(body) - 1) AS BLOB), body = '}' WHERE pos = 3",
        "at = 'soon' WHERE pos = 3",
    ],
)
def test_values_of_other_types_are_found_too(sqlite_store: SqliteStore, change: str) -> None:
    append(sqlite_store, *(note(f"n{n}", stream="s", subject="anna") for n in range(1, 7)))
    run_sql(sqlite_store, f"UPDATE events SET {change}")
    report = verify(sqlite_store)
    assert report.events == 6
    assert "changed" in {finding.problem for finding in report.findings}


@pytest.mark.parametrize("body", ["{}", "[1]", '{"events":[[1]]}', '{"events":5}', "{"])
def test_an_erasure_that_em_did_not_write_is_found(sqlite_store: SqliteStore, body: str) -> None:
    append(sqlite_store, note("n", stream="s"))
    row = next(sqlite_store.rows(EventQuery()))
    body_hash = hash_body(row.salt or b"", body.encode())
    own = hash_event(b"", row.id, "s", 1, None, "erased", 1, row.at, row.recorded_at, body_hash)
    run_sql(
        sqlite_store,
        f"UPDATE events SET kind = 'erased', body = '{body}',"
        f" body_hash = x'{body_hash.hex()}', hash = x'{own.hex()}'",
    )
    assert "changed" in [finding.problem for finding in verify(sqlite_store).findings]


# --- the register ------------------------------------------------------------------------------


@pytest.fixture
def held(log: AnyStore) -> AnyStore:
    """The log with artefacts in use and retired, and records of two subjects."""
    drafts = [ArtefactDraft(kind="state", name=name, body={"x": name}) for name in "abc"]
    artefacts = log.commit(Commit(artefacts=drafts)).artefacts
    records = [
        Record(subject=subject, type="T", id=str(n), body={"n": n})
        for subject in ("ana", "bo")
        for n in range(3)
    ]
    log.commit(Commit(records=records, retire=[artefacts[2].id]))
    replaced = Record(subject="bo", type="T", id="1", body={"n": "new"})
    log.commit(Commit(records=[replaced, msgspec.structs.replace(records[5], body=None)]))
    assert verify(log).ok
    return log


def named(store: AnyStore) -> list[tuple[str, str, str, str]]:
    return [(f.noun, f.problem, f.stream, f.event_id) for f in verify(store).findings]


def test_a_deleted_stream_is_found_and_named(log: AnyStore) -> None:
    for stream, pos in (("s", 6), ("t", 1)):
        run_sql(log, f"DELETE FROM events WHERE stream = '{stream}'")
        only = verify(log).findings[-1]
        assert (only.problem, only.stream) == ("missing_tail", stream)
        assert only.detail == f"the whole stream is missing; the register has its head at {pos}"
    assert not verify(log, stream="s").ok


def chain_register(store: AnyStore) -> None:
    """Chain what is to be entered; PostgreSQL does it some commits later."""
    if isinstance(store, PostgresStore):
        store.chain_register()
        assert run_sql(store, "SELECT * FROM unchained") == []


def test_a_deleted_stream_is_found_though_its_entries_were_deleted_too(log: AnyStore) -> None:
    chain_register(log)
    run_sql(log, "DELETE FROM events WHERE stream = 's'", "DELETE FROM register WHERE key = 's'")
    (only,) = verify(log).findings
    assert (only.noun, only.problem, only.pos) == ("register", "removed", 2)


def test_an_end_that_was_written_anew_with_its_hash_is_found(log: AnyStore) -> None:
    row = list(log.rows(EventQuery(stream="s")))[-1]
    before = list(log.rows(EventQuery(stream="s")))[-2]
    own = hash_event(
        before.hash,
        *(row.id, row.stream, row.pos, "eve", row.kind, row.v, row.at, row.recorded_at),
        row.body_hash,
    )
    blob = "X'{}'" if isinstance(log, SqliteStore) else "'\\x{}'"
    change = f"UPDATE events SET subject = 'eve', hash = {blob.format(own.hex())}"
    run_sql(log, f"{change} WHERE stream = 's' AND pos = 6")
    assert found(log) == [("rewritten", "s", 6)]


def test_an_event_that_no_commit_wrote_is_found(log: AnyStore) -> None:
    with SqliteStore(":memory:") as other:
        (forged,) = append(other, note("forged", stream="u"))
        row = next(other.rows(EventQuery()))
    blob = "X'{}'" if isinstance(log, SqliteStore) else "'\\x{}'"
    hashes = ", ".join(blob.format(x.hex()) for x in (row.salt or b"", row.body_hash, row.hash))
    run_sql(
        log,
        f"INSERT INTO events VALUES (99, '{forged.id}', 'u', 1, NULL, 'note', 1,"
        f" {row.at}, {row.recorded_at}, '{row.body}', {hashes})",
    )
    assert found(log) == [("added", "u", 1)]


@pytest.mark.parametrize(
    "change",
    [
        """body = '{"x":"evil"}'""",
        "body = NULL, hash = '', seal = NULL",
        "name = 'evil'",
        "kind = 'routine'",
        "created_at = 1",
        """from_events = '["x"]' """,
        "retired_at = 5",
        "seal = NULL",
    ],
)
def test_a_changed_artefact_is_found_and_named(held: AnyStore, change: str) -> None:
    ((artefact_id,),) = run_sql(held, "SELECT id FROM artefacts WHERE name = 'b'")
    run_sql(held, f"UPDATE artefacts SET {change} WHERE name = 'b'")
    ((noun, problem, _, item),) = named(held)
    assert (noun, problem, item) == ("artefact", "changed", artefact_id)


def test_a_retired_artefact_that_is_in_use_again_is_found(held: AnyStore) -> None:
    run_sql(held, "UPDATE artefacts SET retired_at = NULL")
    assert [found[:3] for found in named(held)] == [("artefact", "changed", "state/c")]


def test_a_deleted_artefact_and_one_that_no_commit_wrote_are_found(held: AnyStore) -> None:
    ((artefact_id,),) = run_sql(held, "SELECT id FROM artefacts WHERE name = 'b'")
    run_sql(held, "UPDATE artefacts SET id = 'forged' WHERE name = 'b'")
    assert sorted(found[:2] + found[3:] for found in named(held)) == [
        ("artefact", "added", "forged"),
        ("artefact", "removed", artefact_id),
    ]


def test_a_changed_record_is_found_and_named(held: AnyStore) -> None:
    for change in ("""body = '{"n":9}'""", """from_events = '["x"]' """):
        run_sql(held, f"UPDATE records SET {change} WHERE subject = 'ana' AND id = '1'")
        assert named(held) == [("record", "changed", "ana", "T/1")]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("DELETE FROM records WHERE subject = 'ana' AND id = '1'", "removed"),
        ("DELETE FROM records WHERE subject = 'ana'", "removed"),
        ("INSERT INTO records SELECT 'ana', type, '9', body, from_events, seal FROM records"
         " WHERE subject = 'ana' AND id = '1'", "added"),
        ("UPDATE records SET id = '7' WHERE subject = 'ana' AND id = '1'", "changed"),
        ("UPDATE records SET seal = NULL WHERE subject = 'ana' AND id = '1'", "changed"),
    ],
)  # fmt: skip
def test_records_that_came_or_went_are_found(held: AnyStore, change: str, problem: str) -> None:
    run_sql(held, change)
    assert {(found[0], found[2]) for found in named(held)} == {("record", "ana")}
    assert problem in {found[1] for found in named(held)}


def test_records_that_were_exchanged_with_their_seals_are_found(held: AnyStore) -> None:
    run_sql(
        held,
        "UPDATE records SET (body, from_events, seal) = (SELECT body, from_events, seal"
        " FROM records WHERE subject = 'bo' AND id = '0') WHERE subject = 'ana' AND id = '0'",
    )
    assert {found[:3] for found in named(held)} == {("record", "changed", "ana")}


@pytest.mark.parametrize("column", ["key = 'x'", "pos = 7", "noun = 'x'", "hash = link"])
def test_a_changed_register_is_found(held: AnyStore, column: str) -> None:
    chain_register(held)
    run_sql(held, f"UPDATE register SET {column} WHERE n = 1")
    assert ("register", "changed") in {found[:2] for found in named(held)}


def test_forgetting_and_retiring_are_no_findings(held: AnyStore) -> None:
    (source,) = append(held, note("plan", "u", subject="ana"))
    artefact = ArtefactDraft(kind="routine", name="r", body={"v": 1}, from_events=[source.id])
    record = Record(subject="cy", type="T", id="1", body={}, from_events=[source.id])
    held.commit(Commit(artefacts=[artefact], records=[record]))
    held.commit(Commit(artefacts=[artefact]))
    assert held.erase([], subjects=["ana"]).records == 4
    assert verify(held).ok
    append(held, note("after", "u"))
    assert verify(held).ok


def test_events_that_are_appended_alone_are_entered_by_and_by_and_at_the_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "alone.db"
    with SqliteStore(path) as store:
        for n in range(1, 41):
            append(store, note(str(n), "s"), expected_pos={"s": n - 1})
            append(store, note(str(n), "t"))
            assert verify(store).ok
        entered = "SELECT DISTINCT pos FROM register WHERE key = 's' ORDER BY pos"
        assert run_sql(store, entered) == [(1,), (17,), (33,)]
        run_sql(store, "DELETE FROM events WHERE stream = 's' AND pos > 38")
    with SqliteStore(path) as store:
        assert [(f.problem, f.stream, f.pos) for f in verify(store).findings] == [
            ("missing_tail", "s", 39)
        ]
        assert run_sql(store, "SELECT MAX(pos) FROM register WHERE key = 't'") == [(40,)]


def test_a_larger_commit_enters_what_was_appended_alone(sqlite_store: SqliteStore) -> None:
    for n in range(5):
        append(sqlite_store, note(str(n), "s"))
    append(sqlite_store, note("a", "t"), note("b", "t"))
    sql = "SELECT key, MAX(pos) FROM register GROUP BY key ORDER BY key"
    assert run_sql(sqlite_store, sql) == [("s", 5), ("t", 2)]
    count = "SELECT count(*) FROM register"
    before = run_sql(sqlite_store, count)
    append(sqlite_store, note("c", "t"), note("d", "t"))
    assert run_sql(sqlite_store, count) == [(before[0][0] + 1,)]
    assert verify(sqlite_store).ok


def test_a_process_that_was_killed_leaves_a_log_that_verifies(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "killed.db")
    for n in range(20):
        append(store, note(str(n), "s"))
    with SqliteStore(tmp_path / "killed.db") as other:
        assert verify(other).ok
        append(other, note("next", "s"))
        append(other, note("next", "s"), note("next", "t"))
        assert verify(other).ok
    append(store, note("late", "s"))
    store.close()
    with SqliteStore(tmp_path / "killed.db") as other:
        assert verify(other).ok


def test_gaps_in_seq_are_no_findings_and_a_deleted_event_is_one(
    postgres_store: PostgresStore,
) -> None:
    append(postgres_store, note("1", "s"), note("1", "t"))
    for _ in range(3):
        with pytest.raises(ForeignStream):
            append(postgres_store, note("!", "s", subject="ana"), note("!", "s", subject="bo"))
    append(postgres_store, note("2", "s"), note("2", "t"))
    assert [event.seq for event in postgres_store.read(EventQuery())] == [1, 2, 9, 10]
    report = verify(postgres_store)
    assert (report.findings, report.events) == ([], 4)
    assert postgres_store.health().events == 4
    run_sql(postgres_store, "DELETE FROM events WHERE seq = 10")
    assert found(postgres_store) == [("missing_tail", "t", 2)]


def test_the_register_is_chained_by_and_by_and_finds_the_same(
    postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("em.store.postgres.FOLD_SECONDS", 1e9)
    monkeypatch.setattr("em.store.postgres.FOLD_EVERY", 10)
    saved = {}
    for n in range(1, 26):
        append(postgres_store, note(str(n), f"s{n % 3}"))
        saved = verify(postgres_store, heads=saved).heads
    assert run_sql(postgres_store, "SELECT count(*) FROM unchained") == [(5,)]
    run_sql(postgres_store, "DELETE FROM events WHERE stream = 's2'")
    for _ in range(2):
        assert found(postgres_store) == [("missing_tail", "s2", 1)]
        chain_register(postgres_store)
    # Of several entries about a stream the last is chained: its head then.
    entered = "SELECT key, pos FROM register ORDER BY n DESC LIMIT 3"
    assert sorted(run_sql(postgres_store, entered)) == [("s0", 8), ("s1", 9), ("s2", 8)]
    run_sql(postgres_store, "DELETE FROM events WHERE stream = 's0' AND pos = 8")
    run_sql(postgres_store, "DELETE FROM register WHERE n = (SELECT MAX(n) FROM register)")
    findings = verify(postgres_store, heads=saved).findings
    assert {(f.problem, f.stream) for f in findings} >= {("missing_tail", "s0")}


def statements_of(store: AnyStore, monkeypatch: pytest.MonkeyPatch, commit: Commit) -> int:
    """Count the statements of a commit."""
    count = 0
    writing = store._writing

    class Counting:
        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            nonlocal count
            count += name in ("execute", "executemany")
            return getattr(self._session, name)

    @contextmanager
    def counted() -> Iterator[Any]:
        with writing() as session:
            yield Counting(session)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_writing", counted)
        store.commit(commit)
    return count


def test_the_register_costs_the_same_in_a_log_of_any_size(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(first: int, last: int) -> None:
        for n in range(first, last):
            records = [Record(subject="ana", type="T", id=f"{n}.{m}", body={}) for m in range(5)]
            sqlite_store.commit(Commit(events=[note(str(n), f"s{n}")], records=records))

    commit = Commit(
        events=[note("1", "s0"), note("2", "s1")],
        records=[Record(subject="ana", type="T", id="0.0", body={"n": 1})],
        artefacts=[ArtefactDraft(kind="state", name="a", body={"x": 1})],
    )
    grow(0, 20)
    small = statements_of(sqlite_store, monkeypatch, commit)
    grow(20, 200)
    assert statements_of(sqlite_store, monkeypatch, commit) == small
    several = [note(str(n), "s0") for n in range(100)]
    one = statements_of(sqlite_store, monkeypatch, Commit(events=several[:10]))
    assert statements_of(sqlite_store, monkeypatch, Commit(events=several)) == one


def test_forgetting_while_verifying_is_no_false_alarm(store: AnyStore) -> None:
    events = append(store, *(note(str(n)) for n in range(5_000)))
    once = iter([events[4_500].id])

    def forget(_count: int) -> None:
        for event_id in once:
            store.erase([event_id])

    report = verify(store, progress=forget)
    assert (report.ok, report.erased) == (True, 1)


def test_a_head_of_nothing_proves_nothing(log: AnyStore) -> None:
    from em.log.verify import Head

    assert verify(log, heads={"none": Head(*log.head("none"))}).ok


def test_one_stream_is_verified_alone(log: AnyStore) -> None:
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos = 2")
    assert verify(log, stream="t").ok
    assert not verify(log, stream="s").ok


def test_reading_a_damaged_event_names_it(log: AnyStore) -> None:
    from em.errors import StoreCorrupt

    run_sql(log, "UPDATE events SET body = 'garbage' WHERE stream = 's' AND pos = 2")
    with pytest.raises(StoreCorrupt) as caught:
        list(log.read(EventQuery(stream="s")))
    assert caught.value.place == "stream 's', position 2"
    assert "em log verify" in caught.value.fix


def test_a_report_is_plain_data(log: AnyStore) -> None:
    report = verify(log)
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report
