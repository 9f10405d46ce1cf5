"""Clean-up erases what finished runs left once it is old, and nothing that something refers to."""

from datetime import UTC, datetime, timedelta

import pytest
from flows import Write

from em import Memory
from em.errors import UsageError
from em.log.event import Draft
from em.store.protocol import ArtefactDraft, Commit
from em.workflows import MemoryStore
from em.workflows.runs import clean

TEXT = """
workflows:
  w:
    params: [x]
    steps:
      - {name: a, inputs: {prompt: "{{params.x}}"}}
"""


def make_old(memory: Memory, run_id: str, days: int) -> str:
    """The same run again, as if it had begun so long ago."""
    at = datetime.now(UTC) - timedelta(days=days)
    events = [
        Draft(stream=f"run/old-{run_id}", kind=event.kind, body=event.body or {}, at=at)
        for event in memory.log.read(stream=f"run/{run_id}")
    ]
    memory.store.commit(Commit(events=events))
    return f"old-{run_id}"


def test_only_what_is_old_goes_and_it_is_said_what_went(write: Write, memory: Memory) -> None:
    flow = write(TEXT)
    new = flow.start("w", {"x": "new"})
    old = make_old(memory, flow.start("w", {"x": "a secret of long ago"}).run_id, 31)
    memory.observe("ana", "what she said stays")
    trace = memory.add_trace({"task": "t", "outcome": "success", "steps": []})
    done = flow.cleanup(30)
    assert (done.runs, done.left, done.scrubbed) == ([old], {}, True)
    assert done.events == 3
    assert flow.cleanup(30).runs == []
    assert flow.result(new.run_id).status == "ok"
    assert memory.recall("what she said")[0].text == "what she said stays"
    assert memory.traces()[0].id == trace
    # Its place in the log is there, and still proves itself; so is the fact.
    kept = list(memory.log.read(stream=f"run/{old}"))
    assert [event.erased for event in kept] == [True] * 3 + [False]
    assert kept[-1].body == {
        "events": sorted(event.id for event in kept[:3]),
        "reason": "clean-up of workflow memory",
    }
    (said,) = memory.log.read(kinds=["workflow_cleaned"])
    assert said.body is not None
    assert said.body["runs"] == [old]
    assert memory.log.verify().ok


def test_the_original_s_name_for_it(write: Write, memory: Memory) -> None:
    flow = write(TEXT)
    make_old(memory, flow.start("w", {"x": "x"}).run_id, 40)
    with MemoryStore("em.db") as store:
        assert store.cleanup_old_entries(days_old=50) == 0
        assert store.cleanup_old_entries() == 3
        with pytest.raises(UsageError):
            store.cleanup_old_entries(days_old=-1)


def test_what_something_refers_to_stays(write: Write, memory: Memory) -> None:
    flow = write(TEXT)
    run = flow.start("w", {"x": "x"})
    first = next(memory.log.read(stream=f"run/{run.run_id}"))
    draft = ArtefactDraft(kind="routine", name="r", body={}, from_events=[first.id])
    memory.store.commit(Commit(artefacts=[draft]))
    done = flow.cleanup(0)
    assert (done.runs, done.left) == ([], {run.run_id: "routine r@1 refers to it"})


def test_a_dry_run_only_says_what_would_go(write: Write, memory: Memory) -> None:
    flow = write(TEXT)
    run = flow.start("w", {"x": "x"})
    assert flow.cleanup(0, dry_run=True).runs == [run.run_id]
    assert flow.result(run.run_id).status == "ok"


def test_the_oldest_go_first_where_there_is_too_much(write: Write, memory: Memory) -> None:
    flow = write(TEXT)
    runs = [flow.start("w", {"x": "y" * 20_000}).run_id for _ in range(4)]
    done = clean(memory.store, max_bytes=170_000)
    assert list(done.runs) == runs[:2]


def test_it_happens_by_itself_where_em_yaml_sets_a_limit(write: Write, memory: Memory) -> None:
    from em.settings import Settings, WorkflowMemorySettings
    from em.workflows import Workflows

    old = make_old(memory, write(TEXT).start("w", {"x": "x"}).run_id, 31)
    limits = Settings(workflow_memory=WorkflowMemorySettings(keep_days=30))
    from em.llm import ScriptedClient

    flow = Workflows(
        memory.store, file="flow.yaml", settings=limits, client=ScriptedClient(["a", "b"])
    )
    flow.start("w", {"x": "x"})
    assert [
        event.body["runs"] for event in memory.log.read(kinds=["workflow_cleaned"]) if event.body
    ]
    assert all(event.erased for event in list(memory.log.read(stream=f"run/{old}"))[:3])
    # Not after every run: an hour later at the earliest.
    make_old(memory, flow.start("w", {"x": "x"}).run_id, 32)
    assert len(list(memory.log.read(kinds=["workflow_cleaned"]))) == 1
