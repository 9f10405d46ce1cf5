"""Each coding agent works against the scripted model, and its session is imported."""

import msgspec
import pytest
from tests.clients.coding_agents import CodingAgent, MiniSweAgent, Opencode

from em import Memory
from em.testing import Turn
from em.testing.model_server import broken_stream, cut_off


def test_a_session_calls_tools_and_is_imported_with_its_calls(any_agent: CodingAgent) -> None:
    agent = any_agent
    (agent.folder / "orders.csv").write_text("1,paid\n2,pending\n")
    agent.run(
        "count the pending orders",
        agent.shell("cat nothing.csv"),
        agent.shell("grep -c pending orders.csv > report.txt"),
        agent.end("There is one."),
    )
    assert (agent.folder / "report.txt").read_text() == "1\n"
    assert "No such file" in str(agent.model.requests[-2].body)
    (session,) = agent.sessions()
    with Memory() as memory:
        (read,) = memory.import_files(session)
        calls = 2 + isinstance(agent.end(""), Turn)
        assert (read.format, len(read.traces), read.calls) == (agent.name, 1, calls)
        (trace,) = memory.traces()
        assert "count the pending orders" in trace.trace.mission.goal
        assert [bool(call.error) for call in trace.trace.calls[:2]] == [True, False]


def test_a_stream_that_is_slow_cut_or_malformed_is_only_asked_for_again(
    any_agent: CodingAgent,
) -> None:
    agent = any_agent
    slowly = msgspec.structs.replace(agent.shell("echo 1 > a.txt"), pace=0.02)
    if isinstance(agent, MiniSweAgent):
        pytest.skip("mini-swe-agent asks for no streams")
    # opencode ends at data that is not JSON.
    malformed = [] if isinstance(agent, Opencode) else [broken_stream()]
    said = agent.run("write a.txt", cut_off(), slowly, *malformed, "It is written.")
    assert (agent.folder / "a.txt").read_text() == "1\n"
    assert "It is written." in str(said)
    with Memory() as memory:
        memory.import_files(agent.sessions())
        (trace,) = memory.traces()
        assert [call.error for call in trace.trace.calls] == [None]
