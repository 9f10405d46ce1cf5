"""Prepare, then commit: the writes that were shown are made, those and no others, or none."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Memory
from em.errors import RoutineError
from em.runner import preparation
from em.runner.preparation import NotPrepared, acommit_prepared, aprepare_routine
from em.runner.run import Prepared, RunResult

ROUTINE = """
name: reorder
checks: hand_over
input_schema:
  type: object
  required: [shelf, note]
  properties: {shelf: {type: string}, note: {type: string}}
tools:
  - {name: look, effect: read}
  - {name: order, effect: write}
  - {name: mail, effect: write}
steps:
  - {id: look, type: tool.call, tool: look, args: {shelf: "{{ shelf }}"}, save_as: seen,
     expect: {properties: {state: {const: open}}}, held: 3/3}
  - {id: order, type: tool.call, tool: order, args: {item: "{{ seen.item }}", note: "{{ note }}"},
     save_as: done}
  - {id: mail, type: tool.call, tool: mail, args: {about: "{{ done.number }}"}}
  - {id: result, type: return, value: "{{ done.number }}"}
"""
GIVEN = {"shelf": "S-1", "note": "soon"}


class Store:
    """A store room whose shelf may change, and what was ordered and mailed."""

    def __init__(self) -> None:
        self.shelf: dict[str, Any] = {"item": "I-9", "state": "open", "price": 150}
        self.reads = 0
        self.made: list[Any] = []

    @property
    def tools(self) -> dict[str, Any]:
        return {"look": self.look, "order": self.order, "mail": self.mail}

    def look(self, shelf: str) -> Any:
        self.reads += 1
        return dict(self.shelf)

    def order(self, item: str, note: str) -> Any:
        self.made.append((item, note))
        return {"number": "N-1"}

    def mail(self, about: str) -> str:
        self.made.append(about)
        return "sent"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reorder").mkdir()
    (tmp_path / "reorder" / "routine.yaml").write_text(ROUTINE)
    return tmp_path / "reorder"


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "em.db") as opened:
        yield opened


ALL = [("I-9", "soon"), "N-1"]


def prepared(memory: Memory, folder: Path, room: Store, **options: Any) -> Prepared:
    found = memory.prepare(folder, GIVEN, room.tools, **options)
    assert (found.status, room.made, bool(found.token)) == ("ok", [], True)
    return found


def handed_over(memory: Memory, room: Store, result: RunResult) -> list[str]:
    """Return the places that differ, after nothing was written."""
    assert (result.status, room.made) == ("needs_input", [])
    assert result.pending_prompt is None
    assert result.reason is not None
    assert not [*memory.log.read()]
    return [one.check for one in (result.reason, *result.reason.also)]


def test_it_shows_what_was_read_and_what_would_be_written_with_its_sources(
    memory: Memory, folder: Path
) -> None:
    found = prepared(memory, folder, Store())
    assert found.context == {"seen": {"item": "I-9", "state": "open", "price": 150}}
    order, mail, _ = found.planned
    sources = {one.place: (one.value, one.source) for one in order.arguments}
    assert sources == {"item": ("I-9", "`seen.item`"), "note": ("soon", "the input `note`")}
    assert mail.needs == ["the result of order"]
    for word in ("I-9", "150", "`seen.item`", "the input `note`"):
        assert word in found.text
    assert not [*memory.log.read()]


def test_a_commit_makes_the_writes_with_one_fresh_look(memory: Memory, folder: Path) -> None:
    room = Store()
    found = prepared(memory, folder, room)
    result = memory.commit(found.token, room.tools)
    assert (result.status, result.output, room.made, room.reads) == ("ok", "N-1", ALL, 2)
    kinds = [one.kind for one in memory.log.read()]
    assert kinds.count("step_done") == 3  # the run is journalled like any other
    assert kinds[-1] == "run_ended"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"item": "I-8"}, "seen.item"),  # another write
        ({"price": 250}, "seen.price"),  # only something that was shown
        ({"state": "shut"}, "seen.state"),  # a check
    ],
)
def test_what_is_not_as_it_was_shown_hands_over(
    memory: Memory, folder: Path, change: dict[str, Any], place: str
) -> None:
    room = Store()
    found = prepared(memory, folder, room)
    room.shelf |= change
    assert place in handed_over(memory, room, memory.commit(found.token, room.tools))
    with pytest.raises(NotPrepared):
        memory.commit(found.token, room.tools)
    assert room.made == []


def test_a_token_serves_once(memory: Memory, folder: Path) -> None:
    room = Store()
    found = prepared(memory, folder, room)
    memory.commit(found.token, room.tools)
    with pytest.raises(NotPrepared) as error:
        memory.commit(found.token, room.tools)
    assert error.value.code == "not_prepared"
    assert room.made == ALL


def test_a_token_belongs_to_its_subject(memory: Memory, folder: Path) -> None:
    room = Store()
    found = prepared(memory, folder, room, subject="ana")
    for other in (None, "ben"):
        with pytest.raises(NotPrepared):
            memory.commit(found.token, room.tools, subject=other)
    assert room.made == []
    memory.commit(found.token, room.tools, subject="ana")
    assert room.made == ALL
    assert {one.subject for one in memory.log.read()} == {"ana"}


def test_a_token_expires(memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "KEPT_FOR", timedelta(0))
    room = Store()
    found = prepared(memory, folder, room)
    with pytest.raises(NotPrepared):
        memory.commit(found.token, room.tools)
    assert room.made == []


def test_what_is_forgotten_takes_plans_with_it(memory: Memory, folder: Path) -> None:
    room = Store()
    memory.observe("ana", "I like I-9.")
    found = prepared(memory, folder, room, subject="ana")
    memory.forget(subject="ana")
    with pytest.raises(NotPrepared):
        memory.commit(found.token, room.tools, subject="ana")
    assert room.made == []


def test_a_plan_in_the_database_can_be_neither_read_nor_changed_without_its_token(
    memory: Memory, folder: Path
) -> None:
    room, kept = Store(), dict[str, str]()
    tickets, put = memory.store.tickets, memory.store.tickets.put

    def noted(name: str, value: str, keep: timedelta) -> str:
        kept[name] = value
        return put(name, value, keep)

    tickets.put = noted  # type: ignore[method-assign]
    found = prepared(memory, folder, room)
    ((name, value),) = kept.items()
    for text in (found.token, "I-9", "S-1", "reorder"):
        assert text not in name + value
    tickets.take(name)
    put(name, value[:-8] + "AAAAAAA=", timedelta(minutes=1))
    with pytest.raises(NotPrepared):
        memory.commit(found.token, room.tools)
    assert room.made == []


def test_another_routine_is_not_what_was_prepared(memory: Memory, folder: Path) -> None:
    room = Store()
    found = prepared(memory, folder, room)
    (folder / "routine.yaml").write_text(ROUTINE.replace("{{ note }}", "other"))
    with pytest.raises(RoutineError):
        memory.commit(found.token, room.tools)
    assert room.made == []


@pytest.mark.parametrize("given", [{"shelf": "S-1"}, {"shelf": 1, "note": "x"}])
def test_what_would_not_run_to_its_end_has_no_token(
    memory: Memory, folder: Path, given: Any
) -> None:
    found = memory.prepare(folder, given, Store().tools)
    assert (found.status, found.token) == ("needs_input", "")


def test_what_would_ask_has_no_token_until_it_is_answered(tmp_path: Path, memory: Memory) -> None:
    asks = ROUTINE.replace(
        "  - {id: order,",
        '  - {id: sure, type: prompt.user, prompt: {message: "Sure?",'
        " fields: [{name: agreed, type: confirm}]}}\n  - {id: order,",
    )
    (tmp_path / "routine.yaml").write_text(asks)
    room = Store()
    assert memory.prepare(tmp_path, GIVEN, room.tools).token == ""
    answers = {"sure": {"agreed": True}}
    found = memory.prepare(tmp_path, GIVEN, room.tools, answers=answers)
    assert memory.commit(found.token, room.tools).status == "ok"
    assert room.made == ALL


TURNS = """
name: turns
checks: hand_over
tools: [{name: look, effect: read}, {name: order, effect: write}]
steps:
  - id: each
    type: for_each
    over: {shelf: shelves}
    steps:
      - {id: look, type: tool.call, tool: look, args: {shelf: "{{ shelf }}"}, save_as: seen}
      - {id: order, type: tool.call, tool: order, args: {item: "{{ seen.item }}", note: "x"}}
"""


def test_a_later_write_with_another_value_than_was_shown_is_not_made(
    tmp_path: Path, memory: Memory
) -> None:
    (tmp_path / "routine.yaml").write_text(TURNS)
    room = Store()

    def order(item: str, note: str) -> Any:
        room.shelf["item"] = "I-1"  # the first write changes what the second turn reads
        return room.order(item, note)

    tools = {"look": room.look, "order": order}
    found = memory.prepare(tmp_path, {"shelves": ["S-1", "S-2"]}, tools)
    shown = [one.arguments[0].value for one in found.planned if one.does == "write"]
    assert shown == ["I-9", "I-9"]
    result = memory.commit(found.token, tools)
    assert result.status == "failed"
    assert room.made == [("I-9", "x")]


READ_AFTER = """
name: after
tools: [{name: look, effect: read}, {name: order, effect: write}, {name: mail, effect: write}]
steps:
  - {id: order, type: tool.call, tool: order, args: {item: "I-9", note: "x"}}
  - {id: look, type: tool.call, tool: look, args: {shelf: "S-1"}, save_as: seen}
  - {id: mail, type: tool.call, tool: mail, args: {about: "{{ seen.item }}"}}
"""


def test_a_value_that_a_write_may_change_is_not_shown_as_known(
    tmp_path: Path, memory: Memory
) -> None:
    (tmp_path / "routine.yaml").write_text(READ_AFTER)
    room = Store()
    found = memory.prepare(tmp_path, {}, room.tools)
    (about,) = found.planned[1].arguments
    assert about.problem == "needs the effect of order"
    assert memory.commit(found.token, room.tools).status == "ok"
    assert room.made == [("I-9", "x"), "I-9"]


def test_a_whole_result_is_no_input(memory: Memory, folder: Path) -> None:
    text = ROUTINE.replace('note: "{{ note }}"', 'note: "{{ seen }}"')
    (folder / "routine.yaml").write_text(text)
    order = prepared(memory, folder, Store()).planned[0]
    assert {one.source for one in order.arguments if one.place == "note"} == {"the result `seen`"}


def test_a_write_waits_for_a_result_in_a_list_too(memory: Memory, folder: Path) -> None:
    text = ROUTINE.replace('{about: "{{ done.number }}"}', '{about: ["{{ done.number }}"]}')
    (folder / "routine.yaml").write_text(text)
    _, mail, _ = prepared(memory, folder, Store()).planned
    assert (mail.tool, mail.needs) == ("mail", ["the result of order"])


CHANGEABLE = "import itertools\n_turns = itertools.count(1)\ndef turn(): return next(_turns)\n"
"""A function that gives another value at each call: the run can't be as it was prepared."""


def test_a_run_that_reads_otherwise_than_was_prepared_writes_nothing(
    memory: Memory, folder: Path
) -> None:
    text = ROUTINE.replace('shelf: "{{ shelf }}"', 'shelf: "{{ shelf }}-{{ turn() }}"')
    (folder / "routine.yaml").write_text(text)
    (folder / "udf.py").write_text(CHANGEABLE)
    room = Store()
    found = prepared(memory, folder, room)
    result = memory.commit(found.token, room.tools)
    assert (result.status, room.made) == ("needs_input", [])
    assert result.reason is not None


def test_a_write_that_was_not_shown_is_not_made(memory: Memory, folder: Path) -> None:
    text = ROUTINE.replace("tool: order, args", 'tool: order, for_each: "{{ [1] * turn() }}", args')
    text = text.replace("done.number", "done[0].number")
    (folder / "routine.yaml").write_text(text)
    (folder / "udf.py").write_text(CHANGEABLE)
    room = Store()
    found = prepared(memory, folder, room)
    result = memory.commit(found.token, room.tools)
    assert result.failure is not None
    assert result.failure.error_type == "CheckFailed"
    assert room.made == [("I-9", "soon")]


def test_a_read_that_fails_at_first_is_repeated_as_in_any_run(
    tmp_path: Path, memory: Memory
) -> None:
    retried = ROUTINE.replace("held: 3/3}", "held: 3/3, retry: {attempts: 2, backoff: 0}}")
    (tmp_path / "routine.yaml").write_text(retried)
    room, calls = Store(), list[str]()

    def look(shelf: str) -> Any:
        calls.append(shelf)
        if len(calls) % 2:
            raise ConnectionError("try again")
        return room.look(shelf)

    tools = {**room.tools, "look": look}
    found = memory.prepare(tmp_path, GIVEN, tools)
    assert memory.commit(found.token, tools).status == "ok"
    assert (room.made, len(calls)) == (ALL, 4)


def test_it_is_the_same_under_asyncio(folder: Path, tmp_path: Path) -> None:
    room = Store()

    async def both() -> RunResult:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            found = await memory.prepare(folder, GIVEN, room.tools)
            return await memory.commit(found.token, room.tools)

    assert (asyncio.run(both()).status, room.made) == ("ok", ALL)

    async def again(memory: Memory) -> RunResult:
        found = await aprepare_routine(folder, GIVEN, room.tools, store=memory.store)
        return await acommit_prepared(memory.store, found.token, room.tools)

    with Memory(tmp_path / "em.db") as memory:
        assert asyncio.run(again(memory)).status == "ok"
    assert room.made == [*ALL, *ALL]
