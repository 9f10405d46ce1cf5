"""Services of one database behind a load balancer: it does not matter which one gets a request."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp_agents import ASKING, Connect, agent, keep
from mcp_types import ElicitRequestParams, ElicitResult
from served import Serve, Served, log_in, token_in

from mcp import Client

TOKEN = "all-0123456789abcdefghij"
ENV = {"EM_API_TOKEN": TOKEN, "EM_API_MCP_SESSIONS": "off"}


@pytest.fixture
def two(serve: Serve) -> tuple[Served, Served]:
    return serve(env=ENV), serve(env=ENV)


def test_a_login_counts_everywhere_until_the_logout(two: tuple[Served, Served]) -> None:
    one, other = two
    with log_in(one, TOKEN) as browser:
        shown = browser.get(f"{other.url}/ui/log")
        assert shown.status_code == 200
        # The form of one is accepted by the other.
        form = {"form_token": token_in(browser.get(f"{one.url}/ui").text)}
        left = browser.post(f"{other.url}/ui/logout", data=form)
        assert (left.status_code, left.headers["location"]) == (303, "/ui/login")
        browser.cookies.clear()
    with log_in(other, TOKEN) as browser:
        cookie = browser.cookies["em_session"]
        form = {"form_token": token_in(browser.get("/ui").text)}
        browser.post("/ui/logout", data=form)
    for service in two:
        again = service.http.get("/ui/log", headers={"Cookie": f"em_session={cookie}"})
        assert again.status_code == 303


def test_a_login_outlives_a_restart_and_ends_with_its_token(serve: Serve) -> None:
    first = serve(env=ENV)
    with log_in(first, TOKEN) as browser:
        cookie = {"Cookie": f"em_session={browser.cookies['em_session']}"}
    first.stop()
    second = serve(env=ENV)
    assert second.http.get("/ui/log", headers=cookie).status_code == 200
    changed = serve(env={**ENV, "EM_API_TOKEN": "new-9876543210abcdefghij"})
    assert changed.http.get("/ui/log", headers=cookie).status_code == 303


def test_the_store_has_no_cookie_and_no_token(serve: Serve) -> None:
    service = serve(env=ENV)
    with log_in(service, TOKEN) as browser:
        cookie = browser.cookies["em_session"]
    assert service.stop() == 0
    kept = Path("em.db").read_bytes()
    assert TOKEN.encode() not in kept
    assert cookie.encode() not in kept


def alternating(two: tuple[Served, Served]) -> Connect:
    """An agent behind a balancer that sends each request to the next service."""
    ports = itertools.cycle(int(service.url.rpartition(":")[2]) for service in two)

    async def send_on(request: httpx2.Request) -> None:
        request.url = request.url.copy_with(port=next(ports))

    @asynccontextmanager
    async def connect(**how: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        hooks = {"request": [send_on]}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, event_hooks=hooks) as http,
            Client(streamable_http_client(f"{two[0].url}/mcp", http_client=http), **how) as client,
        ):
            yield client

    return connect


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_needs_no_session_in_one_of_them(two: tuple[Served, Served], mode: str) -> None:
    keep(ASKING)

    async def talk(client: Client) -> None:
        for number in range(4):
            assert "greet" in {tool.name for tool in (await client.list_tools()).tools}
            given = {"subject": "ana", "text": f"thing {number}"}
            assert not (await client.call_tool("remember", given)).is_error
        asked = (await client.call_tool("greet", {"who": "Bo"})).structured_content
        assert asked["status"] == "needs_input"
        answers = {"style": {"word": "Bye", "loud": False}}
        run = {"run_id": asked["run_id"], "answers": answers}
        done = (await client.call_tool("resume", run)).structured_content
        assert (done["status"], done["output"]) == ("ok", "Bye Bo.")

    agent(alternating(two), talk, mode=mode)


def test_a_form_of_one_is_answered_at_the_other(two: tuple[Served, Served]) -> None:
    keep(ASKING)

    async def fill_in(_ctx: Any, _params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"word": "Hello", "loud": True})

    async def talk(client: Client) -> None:
        for _ in range(3):  # with both beginnings of the turn
            done = (await client.call_tool("greet", {"who": "Bo"})).structured_content
            assert done["output"] == "Hello Bo!"

    agent(alternating(two), talk, mode="auto", elicitation_callback=fill_in)
