"""A session in which a routine handed over, and the agent did the task, mends the routine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em
from tests.clients.test_hooks import event
from tests.clients.test_proposals import FILES, count_lines, session

from em import Memory
from em.clients.advice import Advice
from em.compiler.growth import mend
from em.compiler.proposals import open_proposals, propose, propose_mended
from em.compiler.suggestions import suggest
from em.errors import UsageError
from em.runner.package import find_routine, keep_routine, texts_of
from em.settings import AllowSettings


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        memory.compile(count_lines(memory, *FILES), name="count_pending")
        yield memory


def handed_over(memory: Memory) -> str:
    """The id of a run that did nothing: it lacks its inputs."""
    allow = AllowSettings(commands=["grep"], folders=["."])
    result = memory.run("count_pending", {}, allow=allow)
    assert result.status == "needs_input"
    return result.run_id


def with_em(memory: Memory, name: str, status: str, run_id: str) -> str:
    """Record a session that called the routine, which ended so, and then did the task itself."""
    said = f"count the pending lines of {name}.csv into {name}.txt"
    trace = session(said, f"grep -c pending {name}.csv > {name}.txt")
    call: dict[str, Any] = {
        "type": "tool_call",
        "tool": "mcp__plugin_em_em__count_pending",
        "args": {"file": f"{name}.csv", "output": f"{name}.txt"},
        "result": {"run_id": run_id, "status": status},
    }
    trace["events"].insert(1, call)
    return memory.add_trace(trace)


def test_what_it_handed_over_is_learnt_from_the_agent(memory: Memory) -> None:
    done = with_em(memory, "fresh", "needs_input", handed_over(memory))
    (grown,) = mend(memory.store, [done])
    assert (grown.old, grown.new, grown.added) == ("count_pending@1", "count_pending@2", [done])
    assert any("proof: right in 5 of 5" in words for words in grown.changes)


def test_what_it_did_teaches_nothing_since_the_session_does_not_show_it(memory: Memory) -> None:
    run_id = handed_over(memory)
    done = [with_em(memory, name, "ok", run_id) for name in ("one", "two", "three")]
    assert mend(memory.store, done) == []
    suggested = suggest(memory.store, allow_unlabelled=True)
    assert not any({*done} & {*one.traces} for one in suggested)
    grown = memory.compile_again("count_pending", allow_unlabelled=True)
    assert (grown.new, [*grown.added]) == ("", [])


def test_without_a_hand_over_nothing_is_compiled_again(memory: Memory) -> None:
    (done,) = count_lines(memory, "fresh")
    unknown = with_em(memory, "other", "needs_input", "no-such-run")
    assert mend(memory.store, [done, unknown]) == []


def test_a_version_that_must_wait_is_told_once_and_accepted_by_a_person(memory: Memory) -> None:
    done = with_em(memory, "fresh", "needs_input", handed_over(memory))
    (grown,) = propose_mended(memory.store, [done])
    assert grown.waits
    (proposal,) = open_proposals(memory.store)
    assert (proposal.key, proposal.count) == ("count_pending@2", 5)
    said = Advice(memory).to(event("UserPromptSubmit", prompt="hello"))
    assert "em routine accept count_pending@2" in said
    shown = em("routine", "diff", "count_pending", "1", "2", "--db", memory.store.location)
    assert "right in 4 of 4" in shown.out
    assert "right in 5 of 5" in shown.out
    memory.accept("count_pending@2")
    assert open_proposals(memory.store) == []


def test_an_agent_is_asked_for_the_next_version_where_em_can_not_learn_it(memory: Memory) -> None:
    texts = texts_of(find_routine(memory.store, "count_pending"))
    events = find_routine(memory.store, "count_pending").from_events
    own = {**texts, "udf.py": "def twice(n):\n    return 2 * n\n"}  # a person's own code
    keep_routine(memory.store, own, events)
    done = with_em(memory, "fresh", "needs_input", handed_over(memory))
    (grown,) = propose_mended(memory.store, [done])
    assert (grown.new, [*grown.added]) == ("", [done])
    (asked,) = open_proposals(memory.store)
    assert asked.routine == "count_pending@2"
    said = Advice(memory).to(event("UserPromptSubmit", prompt="hello"))
    assert f"group {asked.key}" in said
    db = ("--db", memory.store.location)
    assert f"the group {asked.key}" in em("routine", "suggest", *db).out
    assert em("routine", "accept", asked.key, *db).code == 2  # em can't compile it
    assert [(one["group"], one["next_version_of"]) for one in memory.propose()["groups"]] == [
        (asked.key, "count_pending@2")
    ]
    shown = memory.propose(asked.key)
    assert "twice" in shown["version_in_use"]["udf.py"]
    assert done in [one["recording"] for one in (*shown["recordings"], *shown["held_back"])]

    told = memory.propose(asked.key, {"routine.yaml": shown["draft"]}, name="another_name")
    assert (told["accepted"], told["routine"]) == (True, "count_pending@3"), told
    assert [one.key for one in open_proposals(memory.store)] == ["count_pending@3"]
    assert memory.standing("count_pending").state == "in use"
    compared = em("routine", "diff", "count_pending", *db, "--json").json
    assert (compared["old"], compared["new"]) == ("count_pending@2", "count_pending@3")
    memory.accept("count_pending@3")
    assert open_proposals(memory.store) == []


def test_a_group_of_which_a_version_waits_is_proposed_once(tmp_path: Path) -> None:
    with Memory(tmp_path / "new.db") as memory:
        ids = count_lines(memory, *FILES)
        found = suggest(memory.store, allow_unlabelled=True)
        (first,) = propose(memory.store, found)
        draft = memory.propose(first.key)["draft"]
        made = memory.propose(first.key, {"routine.yaml": draft}, name="count_pending")["routine"]
        assert [one.key for one in open_proposals(memory.store)] == [made]
        assert propose(memory.store, found) == []
        again = em("routine", "accept", first.key, "--db", memory.store.location)
        assert (again.code, made in again.err) == (2, True)
        listed = em("routine", "suggest", "--allow-unlabelled", "--db", memory.store.location).out
        assert f"em routine accept {made}" in listed
        assert "--keep" not in listed
        memory.accept(made)
        count_lines(memory, "april", "may", "june")  # of the kind that is in use now
        newer = [one.id for one in memory.traces() if one.id not in ids]
        assert (
            propose(memory.store, suggest(memory.store, allow_unlabelled=True, about=newer)) == []
        )


def test_another_kind_does_not_become_a_version_of_a_routine(memory: Memory) -> None:
    ids = [
        memory.add_trace(session(f"copy {name}.md to old/{name}.md", f"cp {name}.md old/{name}.md"))
        for name in FILES
    ]
    draft = memory.propose(ids)["draft"]
    with pytest.raises(UsageError, match="another kind"):
        memory.propose(ids, {"routine.yaml": draft}, name="count_pending")
    assert memory.propose(ids, {"routine.yaml": draft}, name="copy")["routine"] == "copy@1"
