"""Whoever changes the log behind em's back is found out, and what they did is named."""

import msgspec
import pytest

from em.log.chain import hash_body, hash_event
from em.log.event import EventQuery
from em.log.verify import Finding, verify
from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore
from em.testing import append, note
from raw import run_sql

AnyStore = SqliteStore | PostgresStore


@pytest.fixture
def log(store: AnyStore) -> AnyStore:
    append(store, *(note(f"n{n}", stream="s") for n in range(1, 7)), note("else", stream="t"))
    return store


def found(store: AnyStore) -> list[tuple[str, str, int]]:
    return [(f.problem, f.stream, f.pos) for f in verify(store.rows).findings]


def finding(store: AnyStore) -> Finding:
    (only,) = verify(store.rows).findings
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
    findings = verify(log.rows).findings
    assert [(f.problem, f.pos) for f in findings] == [("reordered", 3), ("reordered", 4)]
    assert findings[0].detail == "it was written at position 4"
    assert findings[1].detail == "it was written at position 3"


def test_an_event_removed_with_the_rest_moved_up_is_found(log: AnyStore) -> None:
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos = 3")
    for pos in (4, 5, 6):
        run_sql(log, f"UPDATE events SET pos = {pos - 1} WHERE stream = 's' AND pos = {pos}")
    assert ("changed", "s", 3) in found(log)


def test_a_missing_tail_is_found_only_with_a_saved_head(log: AnyStore) -> None:
    heads = verify(log.rows).heads
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos > 4")
    assert verify(log.rows).ok
    report = verify(log.rows, heads=heads)
    assert [(f.problem, f.pos) for f in report.findings] == [("missing_tail", 5)]
    assert "positions 5 to 6 are missing at the end" in report.findings[0].detail


def test_a_body_blanked_without_an_erasure_is_found(log: AnyStore) -> None:
    run_sql(log, "UPDATE events SET body = NULL, salt = NULL WHERE stream = 's' AND pos = 2")
    assert found(log) == [("changed", "s", 2)]
    assert "no tombstone" in finding(log).detail


def test_a_body_put_back_after_its_erasure_is_found(log: AnyStore) -> None:
    (event, *_) = log.read(EventQuery(stream="s"))
    log.erase([event.id])
    assert verify(log.rows).ok
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
    report = verify(log.rows)
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
    report = verify(sqlite_store.rows)
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
    assert [finding.problem for finding in verify(sqlite_store.rows).findings] == ["changed"]


def test_forgetting_while_verifying_is_no_false_alarm(store: AnyStore) -> None:
    events = append(store, *(note(str(n)) for n in range(5_000)))
    once = iter([events[4_500].id])

    def forget(_count: int) -> None:
        for event_id in once:
            store.erase([event_id])

    report = verify(store.rows, progress=forget)
    assert (report.ok, report.erased) == (True, 1)


def test_a_head_of_nothing_proves_nothing(log: AnyStore) -> None:
    from em.log.verify import Head

    assert verify(log.rows, heads={"none": Head(*log.head("none"))}).ok


def test_one_stream_is_verified_alone(log: AnyStore) -> None:
    run_sql(log, "DELETE FROM events WHERE stream = 's' AND pos = 2")
    assert verify(log.rows, stream="t").ok
    assert not verify(log.rows, stream="s").ok


def test_reading_a_damaged_event_names_it(log: AnyStore) -> None:
    from em.errors import StoreCorrupt

    run_sql(log, "UPDATE events SET body = 'garbage' WHERE stream = 's' AND pos = 2")
    with pytest.raises(StoreCorrupt) as caught:
        list(log.read(EventQuery(stream="s")))
    assert caught.value.place == "stream 's', position 2"
    assert "em log verify" in caught.value.fix


def test_a_report_is_plain_data(log: AnyStore) -> None:
    report = verify(log.rows)
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report
