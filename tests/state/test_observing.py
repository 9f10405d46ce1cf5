"""An observation costs the store what an append costs it."""

from collections.abc import Callable

from em import Memory
from em.store.sqlite import SqliteStore


def statements_of(memory: Memory, work: Callable[[], object]) -> list[str]:
    """Return the first words of the statements that a call sends, once everything is read."""
    assert isinstance(memory.store, SqliteStore)
    work()
    seen: list[str] = []
    connection = memory.store._pool.take()
    connection.set_trace_callback(seen.append)
    memory.store._pool.give_back(connection)
    work()
    connection.set_trace_callback(None)
    return [" ".join(one.split()[:3]) for one in seen]


def test_an_observation_takes_the_statements_of_an_append(memory: Memory) -> None:
    observed = statements_of(memory, lambda: memory.observe("ana", "I had tea.", speaker="Ana"))
    body = {"text": "I had tea.", "speaker": "Ana"}
    appended = statements_of(
        memory,
        lambda: memory.log.append(
            stream="subject/ana", kind="observation", body=body, subject="ana"
        ),
    )
    assert observed
    assert observed == appended
