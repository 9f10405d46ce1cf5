"""`/mcp` in the service: its tokens, hosts and limits hold there too."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_agents import ASKING, agent, keep, over_http
from mcp_types import ElicitRequestParams, ElicitResult
from served import Serve, Served

from em import Memory
from mcp import Client, MCPError

ALL, ANA, READ = "all-0123456789abcdefghij", "ana-0123456789abcdefghij", "read-0123456789abcdefghij"
SETTINGS = """\
api:
  tokens:
    - {env: ANA_TOKEN, subjects: [ana]}
    - {env: READ_TOKEN, access: read}
"""
ENV = {"EM_API_TOKEN": ALL, "ANA_TOKEN": ANA, "READ_TOKEN": READ}


@pytest.fixture
def guarded(serve: Serve) -> Served:
    Path("em.yaml").write_text(SETTINGS)
    keep(ASKING)
    with Memory("em.db") as memory:
        for who in ("ana", "bo"):
            memory.observe(who, {"likes": f"{who}'s fruit"}, type="Taste")
            memory.observe(who, f"{who} said something about a secret garden")
            memory.checkpoint(who)
            memory.add_trace({"task": f"help {who}", "steps": []}, subject=who)
    return serve(env=ENV)


def names(client: Client) -> Any:
    async def listed() -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    return listed()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_token_sees_its_subjects_and_nothing_else(guarded: Served, mode: str) -> None:
    async def ana(client: Client) -> None:
        assert not await names(client) & {"greet", "resume"}
        for name, given in (
            ("ask", {"question": "garden"}),
            ("ask", {"subject": "bo", "question": "what did bo say?"}),
            ("ask", {"subject": "bo", "code": "1"}),
            ("ask", {"subject": "bo", "action": "eat"}),
            ("brief", {"task": "x", "subject": "bo"}),
            ("remember", {"subject": "bo", "text": "x"}),
            ("lesson", {"task": "x", "outcome": "success"}),
            ("lesson", {"when": "x", "do": "y"}),
            ("propose", {}),
            ("find_routine", {"request": "greet"}),
            ("run_routine", {"name": "greet"}),
            ("greet", {"who": "x"}),
            ("resume", {"run_id": "x"}),
            ("no_such_routine", {}),
        ):
            result = await client.call_tool(name, given)
            assert result.is_error, name
            assert "limited to subjects" in result.content[0].text
        mine = await client.call_tool("ask", {"question": "garden", "subject": "ana"})
        assert {one["subject"] for one in mine.structured_content["passages"]} == {"ana"}
        assert (await client.call_tool("brief", {"task": "greet"})).structured_content[
            "routines"
        ] == []

    agent(over_http(guarded.url, ANA), ana, mode=mode)


def test_a_token_that_may_only_read_writes_and_runs_nothing(guarded: Served) -> None:
    async def reader(client: Client) -> None:
        assert not await names(client) - {"ask", "brief"}
        for name, given in (("remember", {"subject": "a", "text": "b"}), ("greet", {"who": "x"})):
            result = await client.call_tool(name, given)
            assert (result.is_error, "read-only access" in result.content[0].text) == (True, True)
        assert not (await client.call_tool("ask", {"question": "garden"})).is_error

    agent(over_http(guarded.url, READ), reader)
    with Memory("em.db") as memory:
        assert not list(memory.log.read(kinds=["run_started"]))


def test_nobody_without_a_token_and_no_other_host_or_page(guarded: Served) -> None:
    url, good = f"{guarded.url}/mcp", {"Authorization": f"Bearer {ALL}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with httpx2.Client() as http:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong-wrong-wrong-wrong"}, 401),
            ({**good, "Host": "evil.example"}, 403),
            ({**good, "Origin": "http://evil.example"}, 403),
        ):
            assert http.post(url, json=body, headers=headers).status_code == status
        large = http.post(url, content=b"x" * 2_000_000, headers=good)
        assert large.status_code == 413
        assert http.post(url, content=b"no JSON", headers=good).status_code < 500


def test_a_session_is_of_the_token_that_began_it(guarded: Served) -> None:
    me = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params = {**me, "clientInfo": {"name": "t", "version": "1"}}
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    with httpx2.Client(headers=accept) as http:
        mine = {"Authorization": f"Bearer {ALL}"}
        begun = http.post(f"{guarded.url}/mcp", json=start, headers=mine)
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        for token, status in ((ANA, 404), (ALL, 200)):
            headers = {**session, "Authorization": f"Bearer {token}"}
            answer = http.post(f"{guarded.url}/mcp", json=asked, headers=headers)
            assert answer.status_code == status


def test_a_call_that_waits_for_an_answer_belongs_to_who_began_it(guarded: Served) -> None:
    async def begin(client: Client) -> Any:
        return await client.session.call_tool("greet", {"who": "x"}, allow_input_required=True)

    async def never(_context: Any, _params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError

    waiting = agent(over_http(guarded.url, ALL), begin, elicitation_callback=never)
    said = {"style": ElicitResult(action="accept", content={"word": "Bye", "loud": False})}

    async def go_on(client: Client, state: str) -> Any:
        return await client.session.call_tool(
            "greet",
            {"who": "x"},
            input_responses=said,
            request_state=state,
            allow_input_required=True,
        )

    async def refused(client: Client) -> None:
        for state in (waiting.request_state, waiting.request_state[:-2] + "xx"):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await go_on(client, state)

    agent(over_http(guarded.url, READ), refused)
    done = agent(over_http(guarded.url, ALL), lambda client: go_on(client, waiting.request_state))
    assert done.structured_content["output"] == "Bye x."


def test_the_service_ends_while_clients_listen(service: Served) -> None:
    async def listens(client: Client) -> None:
        async with client.listen(tools_list_changed=True) as events:
            service.process.terminate()
            async for _ in events:
                pass

    with suppress(Exception):  # how a client takes it that it is alone is its own
        agent(over_http(service.url), listens)
    assert service.process.wait(60) in (0, -15, 143)


def test_without_the_extra_the_rest_of_the_service_is_there() -> None:
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        "from em import Memory, Settings\nfrom em.serve.app import make_app\n"
        "make_app(Memory('em.db'), Settings())\nprint('made')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True
    )
    assert run.stdout == "made\n"
