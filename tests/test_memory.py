"""Memory: observe, read, forget; and the same for asyncio."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Event, Memory
from em.errors import BadBody, EmError, InputError, NotFound, PositionConflict, UsageError


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def test_a_text_and_a_record_are_observed(memory: Memory) -> None:
    first = memory.observe("ana", "I moved to Porto", at="2025-04-07", speaker="Ana", role="user")
    second = memory.observe("ana", {"destination": "Lisbon", "type": "own"}, type="Trip")
    events = list(memory.log.read(subject="ana"))
    assert [event.id for event in events] == [first, second]
    assert events[0].body == {"text": "I moved to Porto", "speaker": "Ana", "role": "user"}
    assert events[0].at.isoformat() == "2025-04-07T00:00:00+00:00"
    assert events[1].body == {"record": {"destination": "Lisbon", "type": "own"}, "type": "Trip"}
    assert {event.stream for event in events} == {"subject/ana"}


def test_many_are_observed_in_one_transaction(memory: Memory) -> None:
    ids = memory.observe_many(
        [
            ("ana", "one"),
            ("bo", {"n": 2}),
            {"subject": "ana", "text": "three", "at": "2025-01-01", "session": "s1"},
        ]
    )
    assert [event.id for event in memory.log.read()] == ids
    with pytest.raises(BadBody):
        memory.observe_many([("ana", "good"), ("ana", {"x": float("nan")})])
    assert len(list(memory.log.read())) == 3


@pytest.mark.parametrize(
    "item",
    [
        {"subject": "ana"},
        {"subject": "ana", "text": "a", "record": {}},
        {"text": "a"},
        {"subject": "ana", "text": "a", "tpye": "Trip"},
        ("ana", 42),
        ["ana", "text"],
        "text",
        5,
        ("ana",),
        ("ana", "text", "2025-01-01"),
        {"subject": ["ana"], "text": "a"},
        {"subject": "ana", "record": {"x": object()}},
        {"subject": "ana", "text": "a", "at": 1712345678},
        ("", "a"),
        {"subject": "ana", "text": "a", "at": "soon"},
    ],
)
def test_an_item_that_is_no_observation_is_refused(memory: Memory, item: Any) -> None:
    with pytest.raises(InputError):
        memory.observe_many([item])
    assert list(memory.log.read()) == []


def test_what_is_observed_and_said_is_searchable_at_once(memory: Memory) -> None:
    long = "padding " * 30_000 + "needle"
    ids = [memory.observe("ana", long), memory.observe("ana", {"city": "Porto"})]
    ids.append(memory.log.append("run", "message", {"role": "user", "text": "hello there"}).id)
    memory.log.append("run", "tool_call", {"tool": "needle"})
    for word, expected in (("needle", ids[0]), ("porto", ids[1]), ("hello", ids[2])):
        assert memory.recall(word)[0].event_id == expected
    memory.forget(ids)
    for word in ("needle", "padding", "porto", "hello"):
        assert memory.recall(word) == []


def test_forget_takes_ids_or_a_subject(memory: Memory) -> None:
    one = memory.observe("ana", "1")
    memory.observe("ana", "2")
    memory.observe("bo", "3")
    assert memory.forget(one).events == [one]
    assert len(memory.forget(subject="ana").events) == 1
    assert memory.forget(subject="ana").events == []
    assert [event.erased for event in memory.log.read(subject="bo")] == [False]
    assert memory.log.verify().erased == 2
    with pytest.raises(UsageError):
        memory.forget()
    for nothing in (lambda: memory.forget(["nothing"]), lambda: memory.forget(subject="nobody")):
        with pytest.raises(NotFound):
            nothing()


def test_the_log_appends_and_reads_by_position(memory: Memory) -> None:
    event = memory.log.append("run", "step", {"n": 1}, expected_pos=0)
    assert isinstance(event, Event)
    assert memory.log.get(event.id) == event
    assert memory.log.head("run").pos == 1
    with pytest.raises(PositionConflict):
        memory.log.append("run", "step", {"n": 1}, expected_pos=0)
    with pytest.raises(NotFound):
        memory.log.get("nothing")


def test_natural_mistakes_are_told_in_words(memory: Memory) -> None:
    deep: Any = {}
    for _ in range(3_000):
        deep = {"x": deep}
    mistakes: list[Any] = [
        lambda: memory.log.append_many([{"stream": "s"}]),  # type: ignore[list-item]
        lambda: memory.log.read(stream=3),  # type: ignore[arg-type]
        lambda: memory.log.read(since=5),  # type: ignore[arg-type]
        lambda: list(memory.log.read(limit="3")),  # type: ignore[arg-type]
        lambda: memory.log.append("s", "note", {}, at=5),  # type: ignore[arg-type]
        lambda: memory.observe("ana", deep),
        lambda: Memory(5),  # type: ignore[arg-type]
        lambda: Memory("file:x.db"),
        lambda: Memory("a\0b"),
    ]
    for mistake in mistakes:
        with pytest.raises(EmError) as caught:
            mistake()
        assert caught.value.exit_code == 2


def test_one_kind_may_be_given_alone_and_an_event_be_forgotten_itself(memory: Memory) -> None:
    memory.observe("ana", "text")
    (event,) = memory.log.read(kinds="observation")
    assert memory.forget(event).events == [event.id]
    assert "em.db" in repr(memory)


def test_follow_yields_events_as_they_come(memory: Memory) -> None:
    following = memory.log.follow(after=0, every=0.01, stream="run")
    threading.Timer(0.1, lambda: memory.log.append("run", "step", {"n": 1})).start()
    assert next(following).body == {"n": 1}


def test_asyncio_has_the_same_methods(tmp_path: Path) -> None:
    async def work() -> list[str]:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            first = await memory.observe("ana", "one", at="2025-01-01")
            await memory.observe_many([("ana", "two"), ("bo", "three")])
            await memory.log.append("run", "step", {"n": 1})
            assert (await memory.log.head("run")).pos == 1
            assert (await memory.log.get(first)).kind == "observation"
            assert (await memory.log.verify()).ok
            assert len((await memory.forget(subject="bo")).events) == 1
            return [event.kind async for event in memory.log.read(stream="subject/ana")]

    assert asyncio.run(work()) == ["observation", "observation"]


def test_every_public_method_of_memory_and_log_exists_for_asyncio() -> None:
    from em.async_memory import AsyncLog
    from em.store.log import Log

    # Following for ever and moving whole files are for a thread of their own.
    left_out = {"follow", "export", "import_file"}
    for sync, twin in ((Memory, AsyncMemory), (Log, AsyncLog)):
        public = {name for name in vars(sync) if not name.startswith("_")} - left_out
        assert public <= set(vars(twin))


def test_an_engine_hands_its_agent_the_lessons_that_fit(memory: Memory) -> None:
    trace = {
        "mission": {"goal": "refund the order"},
        "events": [
            {"type": "tool_call", "tool": "refund", "args": {"order": "W1207"},
             "error": "Error: an order id starts with #"},
            {"type": "tool_call", "tool": "refund", "args": {"order": "#W1207"}, "result": "done"},
        ],
        "outcome": "success",
    }  # fmt: skip
    memory.reflect(memory.add_trace(trace))
    engine = memory.engine("refund the order")
    told: list[Any] = []

    def agent(order: str, progress: Any = None) -> str:
        told.extend(engine.progress().heuristics)
        return "done"

    engine.set_agent(agent)
    engine.finalize()
    engine("#W9001")
    assert "refund" in repr(told)
