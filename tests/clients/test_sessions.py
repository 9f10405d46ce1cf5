"""Each coding agent works against the scripted model, and its session is imported."""

import msgspec
from tests.clients.coding_agents import CodingAgent

from em import Memory
from em.testing.turn import broken_stream, cut_off


def test_a_session_calls_tools_and_is_imported_with_its_calls(agent: CodingAgent) -> None:
    (agent.folder / "orders.csv").write_text("1,paid\n2,pending\n")
    agent.run(
        "count the pending orders",
        agent.shell("cat nothing.csv"),
        agent.shell("grep -c pending orders.csv > report.txt"),
        "There is one.",
    )
    assert (agent.folder / "report.txt").read_text() == "1\n"
    assert "No such file" in str(agent.model.requests[-2].body)
    (session,) = agent.sessions()
    with Memory() as memory:
        (read,) = memory.import_files(session)
        assert (read.format, len(read.traces), read.calls) == (agent.name, 1, 2)
        (trace,) = memory.traces()
        assert trace.trace.mission.goal == "count the pending orders"


def test_a_stream_that_is_slow_cut_or_malformed_is_only_asked_for_again(agent: CodingAgent) -> None:
    slowly = msgspec.structs.replace(agent.shell("echo 1 > a.txt"), pace=0.02)
    said = agent.run("write a.txt", cut_off(), slowly, broken_stream(), "It is written.")
    assert (agent.folder / "a.txt").read_text() == "1\n"
    assert "It is written." in str(said)
