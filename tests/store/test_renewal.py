"""Opening a database with routines of an older form compiles them again, or retires them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.cli.em_command import em
from tests.forks import run_python

from em import Memory
from em.compiler import renewal
from em.errors import InvalidRoutine, StoreReadOnly
from em.log.event import EventQuery
from em.store.migrations import TO_RENEW
from em.store.postgres import PostgresStore
from em.store.protocol import ArtefactDraft, Commit
from em.store.sqlite import SqliteStore
from em.traces.trace import Mission, ToolCall, Trace
from raw import run_sql

AnyStore = SqliteStore | PostgresStore
OLD_ROUTINE = """\
version: '1'
name: {name}
description: Cancel order o1 because of a mistake
tools:
- {{name: get_order, effect: read}}
- {{name: cancel_order, effect: write}}
input_schema: {{type: object, properties: {{order_id: {{type: string}}, reason: {{type: string}}}},
  required: [order_id, reason], additionalProperties: false}}
steps:
- id: get_order
  type: tool.call
  tool: get_order
  args: {{order_id: '{{{{ order_id }}}}'}}
  save_as: order
- id: cancel_order
  type: tool.call
  tool: cancel_order
  args: {{order_id: '{{{{ order_id }}}}', reason: '{{{{ reason }}}}'}}
  agree: {{order_id: [order.id]}}
  guards: [order.status == "pending"]
  expects: [result.status == "cancelled"]
  save_as: done
- {{id: return, type: return, value: '{{{{ done }}}}'}}
"""
RECORDING = json.dumps({"calls": [], "usage": {}})
BY_HAND = "version: '1'\nname: greet\nsteps: [{id: end, type: return, value: hello}]\n"


def address_of(store: AnyStore) -> str:
    return store._path if isinstance(store, SqliteStore) else store._url


def cancelled(order: str) -> Trace:
    found = {"id": order, "status": "pending", "total": 30}
    done = {"id": order, "status": "cancelled"}
    args = {"order_id": order, "reason": "mistake"}
    return Trace(
        mission=Mission(goal=f"Cancel order {order} because of a mistake", input_summary=args),
        events=[
            ToolCall(tool="get_order", args={"order_id": order}, result=found),
            ToolCall(tool="cancel_order", args=args, result=done),
        ],
    )


def add_old(memory: Memory, name: str, traces: Sequence[str], text: str = OLD_ROUTINE) -> None:
    """Store a routine as the em before did it."""
    files = {"routine.yaml": text.format(name=name), "recording.json": RECORDING}
    sources = [event.id for one in traces for event in memory.log.read(stream=f"trace/{one}")]
    draft = ArtefactDraft(kind="routine", name=name, body={"files": files}, from_events=sources)
    memory.store.commit(Commit(artefacts=[draft]))


def make_old(store: AnyStore, *names: str, forget: Sequence[str] = ()) -> str:
    """Make a database of schema 11 with one routine by hand, and an old one for each name.

    The recording of each is about a subject of the same name; some are forgotten.
    """
    address = address_of(store)
    with Memory(address) as memory:
        for name in names:
            trace = memory.add_trace(cancelled(f"order_{name}"), subject=name)
            add_old(memory, name, [trace])
        files = {"routine.yaml": BY_HAND}
        draft = ArtefactDraft(kind="routine", name="greet", body={"files": files})
        memory.store.commit(Commit(artefacts=[draft]))
        for name in forget:
            memory.forget(subject=name)
    set_back(store)
    return address


def set_back(store: AnyStore) -> None:
    is_sqlite = isinstance(store, SqliteStore)
    run_sql(
        store,
        "PRAGMA user_version=11" if is_sqlite else "DELETE FROM em_schema WHERE number > 11",
    )


def versions(memory: Memory) -> list[tuple[str, bool]]:
    """The versions of all routines, and which of them are in use."""
    found = memory.store.artefacts("routine")
    return [(f"{one.name}@{one.version}", one.retired_at is None) for one in found]


def retired(memory: Memory) -> dict[str, str]:
    events = memory.store.read(EventQuery(kinds=["routine_retired"]))
    return {event.body["routine"]: event.body["reason"] for event in events if event.body}


def run(memory: Memory, name: str, status: str) -> tuple[Any, list[str]]:
    """Run a routine on an order of this status; the result, and what was cancelled."""
    done: list[str] = []

    def cancel_order(order_id: str, reason: str) -> dict[str, str]:
        done.append(f"{order_id}: {reason}")
        return {"id": order_id, "status": "cancelled"}

    def get_order(order_id: str) -> dict[str, Any]:
        return {"id": order_id, "status": status, "total": 70}

    tools = {"get_order": get_order, "cancel_order": cancel_order}
    return memory.run(name, {"order_id": "o9", "reason": "moved"}, tools), done


def test_an_old_routine_is_compiled_again_and_does_what_was_recorded(store: AnyStore) -> None:
    with Memory(make_old(store, "cancel")) as memory:
        assert [(one.old, one.new) for one in memory.renewed] == [("cancel@1", "cancel@2")]
        assert versions(memory) == [("cancel@1", False), ("cancel@2", True), ("greet@1", True)]
        assert list(retired(memory)) == ["cancel@1"]
        result, done = run(memory, "cancel", "pending")
        assert (result.status, done) == ("ok", ["o9: moved"])
        result, done = run(memory, "cancel", "shipped")
        assert (result.status, done) == ("needs_input", [])
        assert memory.run("greet").output == "hello"
        assert memory.log.verify().ok
        with pytest.raises(InvalidRoutine):
            memory.restore("cancel@1")
        assert versions(memory)[0] == ("cancel@1", False)


def test_opening_it_twice_changes_nothing(store: AnyStore) -> None:
    address = make_old(store, "cancel")
    with Memory(address) as memory:
        before = versions(memory), list(memory.log.read())
        assert memory.store.tickets.get(TO_RENEW) is None
    with Memory(address) as memory:
        assert not memory.renewed
        assert (versions(memory), list(memory.log.read())) == before
        # Even if it were marked again.
        assert renewal.renew_routines(memory.store) == []
        assert (versions(memory), list(memory.log.read())) == before


def test_one_whose_recordings_were_forgotten_is_only_retired(store: AnyStore) -> None:
    with Memory(make_old(store, "ana", "bo", forget=["ana"])) as memory:
        found = {one.old: (one.new, one.reason) for one in memory.renewed}
        assert found["ana@1"] == ("", renewal.FORGOTTEN)
        assert found["bo@1"][0] == "bo@2"
        assert versions(memory)[0] == ("ana@1", False)


def test_one_that_cannot_be_compiled_is_retired_with_the_reason(store: AnyStore) -> None:
    address = make_old(store)
    with Memory(address) as memory:
        trace = memory.add_trace(cancelled("o1"), subject="ana")
        memory.label(trace, "failure")
        add_old(memory, "cancel", [trace])
        add_old(memory, "written", [])
        add_old(memory, "both", [memory.add_trace(cancelled("o1"), subject="bo")])
        add_old(memory, "both", [trace], OLD_ROUTINE.replace("o1", "o2"))
    set_back(store)
    with Memory(address) as memory:
        told = {one.old: one.reason for one in memory.renewed}
        assert told.keys() == {"cancel@1", "written@1", "both@2"}
        assert all(told.values())
        assert not any(one.new for one in memory.renewed)
        # The version before has the older form too: the name does not come to mean it.
        assert dict(versions(memory))["both@1"] is False
        assert retired(memory).items() >= told.items()
        assert memory.run("greet").output == "hello"
        # The reason may quote what was recorded.
        memory.forget(subject="ana")
        assert "cancel@1" not in retired(memory)


def test_of_two_that_renew_at_once_one_does_it(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, compile_several = make_old(store, "cancel"), renewal.compile_several
    others = []

    def compile_while_another_opens(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(renewal, "compile_several", compile_several)
        with Memory(address) as other:
            others.extend(other.renewed)
        return compile_several(*args, **options)

    monkeypatch.setattr(renewal, "compile_several", compile_while_another_opens)
    with Memory(address) as memory:
        assert [one.new for one in others] == ["cancel@2"]
        assert not memory.renewed
        assert versions(memory) == [("cancel@1", False), ("cancel@2", True), ("greet@1", True)]
        assert len(list(memory.store.read(EventQuery(kinds=["routine_retired"])))) == 1


def test_a_failure_of_the_compiler_does_not_keep_the_database_closed(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("o1")

    monkeypatch.setattr(renewal, "compile_several", fail)
    with Memory(make_old(store, "cancel")) as memory:
        assert [(one.old, one.new) for one in memory.renewed] == [("cancel@1", "")]
        assert versions(memory) == [("cancel@1", False), ("greet@1", True)]
        assert "KeyError" in retired(memory)["cancel@1"]


CALL = "id: a, type: tool.call, tool: cancel_order"


@pytest.mark.parametrize(
    ("fields", "has_recording", "is_old"),
    [
        (f"steps: [{{{CALL}, guards: ['1 == 1']}}]", True, True),
        (f"checks: hand_over\nsteps: [{{{CALL}, expects: ['1 == 1']}}]", True, True),
        ("steps: [{id: a, type: plan}]", True, True),
        ("steps: [{id: a, type: rules}]", False, True),
        (f"steps: [{{id: l, type: for_each, over: {{x: y}}, steps: [{{{CALL}, within: l}}]}}]",
         True, True),
        (f"decided: []\nsteps: [{{{CALL}}}]", False, True),
        (f"steps: [{{{CALL}}}]", True, True),
        (f"steps: [{{{CALL}}}]", False, False),
        (f"checks: hand_over\nsteps: [{{{CALL}}}]", True, False),
        (f"checks: hand_over\nsteps: [{{{CALL}, args: {{guards: 1, request: 2}}}}]", True, False),
    ],
)  # fmt: skip
def test_what_an_older_form_is(
    sqlite_store: SqliteStore, fields: str, has_recording: bool, is_old: bool
) -> None:
    address = make_old(sqlite_store)
    with Memory(address) as memory:
        traces = [memory.add_trace(cancelled("o1"))] if has_recording else []
        text = f"version: '1'\nname: cancel\n{fields}\n"
        add_old(memory, "cancel", traces, text.replace("{", "{{").replace("}", "}}"))
    set_back(sqlite_store)
    with Memory(address) as memory:
        assert [one.old for one in memory.renewed] == (["cancel@1"] if is_old else [])
        assert dict(versions(memory))["cancel@1"] is not is_old
        assert ("cancel@2", True) in versions(memory) or not (is_old and has_recording)


def test_versions_out_of_use_stay_as_they_are(store: AnyStore) -> None:
    address = make_old(store, "cancel")
    run_sql(store, "UPDATE artefacts SET retired_at = 5 WHERE name = 'cancel'")
    with Memory(address) as memory:
        assert not memory.renewed
        assert versions(memory) == [("cancel@1", False), ("greet@1", True)]
        assert not retired(memory)


def test_a_database_without_routines_is_not_marked(store: AnyStore) -> None:
    set_back(store)
    with type(store)(address_of(store)) as again:
        assert again.health().schema > 11
        assert again.tickets.get(TO_RENEW) is None


def test_a_database_that_cannot_be_written_is_opened_as_it_is(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = make_old(store, "cancel")

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreReadOnly("it is read-only")

    monkeypatch.setattr(type(store), "_writing", refuse)
    monkeypatch.setattr(type(store), "_committing", refuse)
    monkeypatch.setattr(type(store), "_migrate", lambda *_, **__: None)
    mark = f"INSERT INTO tickets VALUES ('{TO_RENEW}', '', 0, 253402300799000000)"
    run_sql(store, mark)
    with Memory(address) as memory:
        assert not memory.renewed
        assert versions(memory) == [("cancel@1", True), ("greet@1", True)]
        assert memory.store.tickets.get(TO_RENEW) is not None


def test_the_command_tells_it_once(sqlite_store: SqliteStore) -> None:
    address = make_old(sqlite_store, "cancel")
    first = em("routine", "list", "--json", EM_DB=address)
    assert first.code == 0
    assert first.err.count("cancel@1") == 1
    assert "cancel@2" in first.err
    assert em("routine", "list", "--json", EM_DB=address).err == ""


def test_processes_that_open_it_at_once_make_one_version(sqlite_store: SqliteStore) -> None:
    address = make_old(sqlite_store, "cancel", "refund")
    code = f"""
import os
from em import Memory
children = []
for _ in range(4):
    pid = os.fork()
    if not pid:
        with Memory({address!r}):
            os._exit(0)
    children.append(pid)
assert not any(os.waitpid(pid, 0)[1] for pid in children)
"""
    ran = run_python("-c", code)
    assert ran.code == 0, ran.err
    with Memory(address) as memory:
        used = [("cancel@1", False), ("cancel@2", True), ("greet@1", True)]
        assert versions(memory) == [*used, ("refund@1", False), ("refund@2", True)]
        assert sorted(retired(memory)) == ["cancel@1", "refund@1"]
