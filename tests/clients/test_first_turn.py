"""The first request of a session offers the tools of em: its MCP server is ready by then."""

import json
import re
from pathlib import Path
from typing import Any

from tests.clients.coding_agents import CodingAgent

from em import Memory
from em.clients.hook_service import end_service
from em.clients.plugin import socket_of
from em.runner.package import keep_routine
from em.serve.mcp.listing import MOST_BESIDE_HOOKS

ECHO = "name: echo_{}\nsteps: [{{id: out, type: return, value: '{{{{ said }}}}'}}]\n"


def tokens(tools: list[Any]) -> float:
    """About how many tokens em's own tools take in a request: a quarter of their bytes."""
    written = [json.dumps(one, ensure_ascii=False) for one in tools]
    own = [one for one in written if re.search('"name": "(mcp__(plugin_em_)?em|em_)', one)]
    assert own
    return sum(len(one.encode()) for one in own) / 4


def test_the_first_turn_has_the_tools_of_em(agent: CodingAgent, tmp_path: Path) -> None:
    db = tmp_path / "memory.db"
    with Memory(db) as memory:
        for number in range(MOST_BESIDE_HOOKS):
            keep_routine(memory.store, {"routine.yaml": ECHO.format(number)})
    agent.em("install", agent.name, "--db", str(db))
    try:
        for _ in range(2):  # the first start of all makes the cards, and compiles modules
            before = len(agent.model.requests)
            agent.run("hello", "Hello.")
        first = next(seen for seen in agent.model.requests[before:] if seen.body.get("tools"))
        offered = json.dumps(first.body["tools"])
        assert "remember" in offered
        assert f"echo_{MOST_BESIDE_HOOKS - 1}" in offered
        assert tokens(first.body["tools"]) < 1_000
    finally:
        end_service(socket_of(str(db)))
