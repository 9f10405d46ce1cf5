"""What was made of something forgotten is forgotten: step to step, run to run, into outputs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import EmError, NotFound
from em.llm import ScriptedClient
from em.store import erasure
from em.workflows import Workflows

ANA, BOB = "zebra-ana-4711", "yak-bob-0815"

Write = Callable[..., Workflows]


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    on_postgres = request.param == "postgres"
    db = request.getfixturevalue("new_database")() if on_postgres else tmp_path / "em.db"
    with Memory(db) as memory:
        yield memory


@pytest.fixture
def write(memory: Memory, tmp_path: Path) -> Write:
    """Workflows from YAML, with a model that says back what it was asked."""
    model = ScriptedClient(lambda request: f"[{request.prompt}]")

    def make(text: str, tools: Any = None) -> Workflows:
        (tmp_path / "flow.yaml").write_text(text)
        return memory.workflows("flow.yaml", tools, client=model)

    return make


def stored(memory: Memory) -> str:
    """Everything that can be read from the log and the artefacts."""
    events = [event.body for event in memory.log.read()]
    return repr(events) + repr([one.body for one in memory.store.artefacts()])


FLOW = """
workflows:
  a:
    steps:
      - name: look
        memory: {needs: ["recall(lives, 1, ana)"]}
        inputs: {prompt: "{{memory.recall}}"}
      - name: apart
        memory: {needs: ["recall(lives, 1, bob)"]}
        inputs: {prompt: "{{memory.recall}}"}
      - {name: b, memory: {needs: [look]}, inputs: {prompt: "again {{memory.look_output}}"}}
      - {name: c, memory: {needs: [last_output]}, inputs: {prompt: "so {{memory.last_output}}"}}
  other:
    steps:
      - {name: use, memory: {needs: ["run(a, b)"]}, inputs: {prompt: "{{memory.a_b_output}}"}}
      - {name: last, memory: {needs: [use]}, inputs: {prompt: "{{memory.use_output}}"}}
"""


def test_steps_outputs_and_other_workflows_go_with_what_one_step_recalled(
    memory: Memory, write: Write
) -> None:
    memory.observe("ana", f"Ana lives at {ANA}.")
    memory.observe("bob", f"Bob lives at {BOB}.")
    flow = write(FLOW)
    first, second = flow.start("a"), flow.start("other")
    assert ANA in first.output
    assert ANA in second.output
    erasure = memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert memory.log.verify().ok
    kinds = set(erasure.gone["events"])
    assert {"observation", "step_done", "run_ended"} <= kinds
    # What did not use it stays.
    assert BOB in str(flow.inspect(first.run_id).steps)
    with pytest.raises(NotFound):
        memory.forget(subject="nobody")


def test_a_step_that_failed_or_asked_goes_with_what_it_was_given(
    memory: Memory, write: Write
) -> None:
    memory.observe("ana", f"Ana lives at {ANA}.")
    flow = write(
        """
workflows:
  fails:
    steps:
      - name: look
        tool: shout
        memory: {needs: ["recall(lives, 1, ana)"]}
        inputs: {text: "{{memory.recall}}"}
  asks:
    steps:
      - name: look
        tool: ask
        memory: {needs: ["recall(lives, 1, ana)"]}
        inputs: {message: "Is it {{memory.recall}}?"}
""",
        {"shout": _shout},
    )
    failed, asked = flow.start("fails"), flow.start("asks")
    assert (failed.status, asked.status) == ("failed", "needs_input")
    assert ANA in stored(memory)
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    # What is left of a run is not run again: nobody knows any more what it did.
    with pytest.raises(EmError, match="forgotten"):
        flow.resume(asked.run_id, answers={"look": {"answer": "yes"}})
    with pytest.raises(EmError, match="forgotten"):
        flow.resume(failed.run_id, retry=True)


def _shout(text: str) -> str:
    raise ValueError(f"can't shout {text}")


def test_a_call_with_an_effect_goes_and_is_never_made_again(memory: Memory, write: Write) -> None:
    memory.observe("ana", f"Ana lives at {ANA}.")
    sent: list[str] = []

    def send_mail(text: str) -> str:
        sent.append(text)
        return f"sent {text}"

    flow = write(
        """
workflows:
  w:
    steps:
      - {name: plain, inputs: {prompt: "hello"}}
      - name: mail
        tool: send_mail
        memory: {needs: ["recall(lives, 1, ana)"]}
        inputs: {text: "{{memory.recall}}"}
      - {name: after, tool: ask, inputs: {message: "go on?"}}
""",
        {"send_mail": send_mail},
    )
    result = flow.start("w")
    assert (result.status, len(sent)) == ("needs_input", 1)
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert "[hello]" in stored(memory), "what the step before it left stays"
    with pytest.raises(EmError, match="forgotten"):
        flow.resume(result.run_id, answers={"after": {"answer": "yes"}})
    with pytest.raises(EmError, match="forgotten"):
        flow.start("w", run_id=result.run_id)
    assert len(sent) == 1


def test_answers_and_what_was_made_of_them_go_with_the_question(
    memory: Memory, write: Write
) -> None:
    memory.observe("ana", f"Ana lives at {ANA}.")
    flow = write("""
workflows:
  w:
    steps:
      - name: where
        tool: ask
        memory: {needs: ["recall(lives, 1, ana)"]}
        inputs: {message: "Is it {{memory.recall}}?"}
      - {name: then, memory: {needs: [where]}, inputs: {prompt: "{{memory.where_output}}"}}
""")
    run = flow.start("w").run_id
    done = flow.resume(run, answers={"where": {"answer": f"no, at {ANA} 2"}})
    assert ANA in done.output
    memory.forget(subject="ana")
    assert ANA not in stored(memory)


@pytest.mark.parametrize("memory", ["sqlite"], indirect=True)
def test_what_is_read_does_not_grow_with_what_has_nothing_to_do_with_it(
    memory: Memory, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = write(FLOW)
    read: list[str] = []
    events = erasure._ProvenanceWalk._events

    def counted(walk: erasure._ProvenanceWalk, stream: str) -> Any:
        read.append(stream)
        return events(walk, stream)

    monkeypatch.setattr(erasure._ProvenanceWalk, "_events", counted)
    counts = []
    for others in (1, 10):
        for _ in range(others):
            memory.observe("bob", f"Bob lives at {BOB}.")
            flow.start("a")
        memory.observe("ana", f"Ana lives at {ANA}.")
        flow.start("a")
        read.clear()
        memory.forget(subject="ana")
        counts.append(len(read))
    assert counts[0] == counts[1] == 1
