"""A routine of a coding agent's sessions, called over MCP, does its work in the allowed folder."""

from pathlib import Path
from typing import Any

import pytest
from mcp_agents import agent, over_stdio

from em import Memory
from em.traces.trace import Message, Mission, ToolCall, Trace
from mcp import Client


def session(file: str) -> Trace:
    request = f"Count the pending lines of {file} into report.txt"
    return Trace(
        mission=Mission(goal=request),
        events=[
            Message(role="user", text=request),
            ToolCall(tool="Bash", args={"command": "ls -la"}, result=f"{file} report.txt"),
            ToolCall(
                tool="Bash",
                args={"command": f"grep -c pending {file} > report.txt", "description": "Count"},
                result="",
            ),
        ],
        outcome="success",
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "returns.csv").write_text("a,pending\nb,done\nc,pending\n")
    with Memory("em.db") as memory:
        ids = [memory.add_trace(session(file)) for file in ("orders.csv", "sales.csv")]
        memory.compile(ids, name="count_pending")
    return tmp_path


REQUEST = {"request": "Count the pending lines of returns.csv into report.txt"}


def test_it_runs_on_a_third_input(project: Path) -> None:
    (project / "em.yaml").write_text("allow: {commands: [grep, ls], folders: [.]}\n")

    async def work(client: Client) -> Any:
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "count_pending"]
        assert "Can't run here" not in (tool.description or "")
        return await client.call_tool("count_pending", REQUEST)

    result = agent(over_stdio(), work)
    assert result.structured_content["status"] == "ok"
    assert (project / "report.txt").read_text() == "2\n"


def test_without_permission_it_says_how_to_give_it(project: Path) -> None:
    async def work(client: Client) -> Any:
        return await client.call_tool("count_pending", REQUEST)

    result = agent(over_stdio(), work)
    assert result.is_error
    assert "--allow-command grep" in result.content[0].text
    assert not (project / "report.txt").exists()
