"""Questions and decisions made at once: none is lost, none is made on an old state."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from em import Memory
from em.llm import ScriptedClient
from em.state.schema import Question
from em.store.protocol import Commit, Store


def at_once(acts: list[Callable[[], Any]]) -> list[Any]:
    """Do all of them as nearly at the same time as threads can."""
    gate = threading.Barrier(len(acts))

    def act(one: Callable[[], Any]) -> Any:
        gate.wait()
        return one()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


def test_twenty_questions_kept_at_once_all_survive(memory: Memory) -> None:
    memory.observe("ana", {"n": 1}, type="Thing")
    memory.checkpoint("ana")

    def ask(number: int) -> Any:
        code = f"def answer(state):\n    return len(state.things) + {number}"
        model = ScriptedClient([{"route": "code", "code": code, "parameters": {}}])
        return memory.ask("ana", f"Which is number {number}th?", llm=model).value

    acts = [lambda n=n: ask(n) for n in range(20)]
    assert at_once(acts) == [n + 1 for n in range(20)]
    assert len(memory.subjects.questions("ana")) == 20
    artefact = memory.store.artefact("questions", "ana")
    assert artefact is not None
    assert len(set(artefact.from_events)) == 20


def test_questions_kept_by_two_processes_survive(tmp_path: Path) -> None:
    """Each has its own connection, as two processes do."""
    with Memory(tmp_path / "em.db") as one, Memory(tmp_path / "em.db") as other:
        one.observe("ana", {"n": 1}, type="Thing")
        one.checkpoint("ana")

        def keep(memory: Memory, number: int) -> None:
            question = Question(question=f"q{number}", code="", template=f"q{number}")
            memory.subjects._store_question("ana", question)

        acts = [lambda n=n: keep((one, other)[n % 2], n) for n in range(10)]
        at_once(acts)
        assert {one.question for one in one.subjects.questions("ana")} == {
            f"q{number}" for number in range(10)
        }


def test_a_decision_by_an_event_is_made_on_the_newest_state(memory: Memory) -> None:
    """What is observed and compiled while it is being made is taken into account."""
    said = memory.observe("ana", {"email": "b@x.org", "city": "Rome"}, type="Contact")
    memory.declare("ana", "Contact", "email")
    memory.checkpoint("ana")
    store = memory.store
    commits: list[Commit] = []

    class Interrupted:
        """A store in which something happens between the reading and the writing of a decision."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def commit(self, commit: Commit) -> Any:
            if not commits:
                commits.append(commit)
                memory.observe("ana", {"email": "b@x.org", "city": "Oslo"}, type="Contact")
            commits.append(commit)
            return store.commit(commit)

    subjects = memory.subjects
    interrupted: Store = Interrupted()  # type: ignore[assignment]  # delegates all of it
    subjects._store = interrupted
    subjects.resolve("ana", "Contact.city", event=said)
    assert commits[1].expected_pos  # refused, since the stream had moved
    assert len(commits) == 3
    memory.checkpoint("ana")
    assert memory.state("ana").contacts[0].city == "Rome"
