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
from em.compiler.proposals import open_proposals, propose_mended
from em.compiler.suggestions import suggest
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
