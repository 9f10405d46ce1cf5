"""Services of one database behind a load balancer: it does not matter which one gets a request."""

import asyncio
import itertools
import time
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

from em.errors import TooManyRequests
from em.serve.rate import Rate
from mcp import Client

TOKEN = "all-" + "x" * 20
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
    changed = serve(env={**ENV, "EM_API_TOKEN": "new-" + "y" * 20})
    assert changed.http.get("/ui/log", headers=cookie).status_code == 303


def test_the_store_has_no_cookie_and_no_token(serve: Serve) -> None:
    service = serve(env=ENV)
    with log_in(service, TOKEN) as browser:
        cookie = browser.cookies["em_session"]
    assert service.stop() == 0
    kept = Path("em.db").read_bytes()
    assert TOKEN.encode() not in kept
    assert cookie.encode() not in kept


def minutes(began: float) -> int:
    """Return in how many minutes of the clock something happened."""
    return int(time.time() // 60) - int(began // 60) + 1


def test_requests_of_a_token_are_counted_over_all(serve: Serve) -> None:
    env = {**ENV, "EM_API_REQUESTS_PER_MINUTE": "40"}
    two = serve(env=env), serve(env=env)
    right = {"Authorization": f"Bearer {TOKEN}"}
    began = time.time()
    answers = [
        service.http.get("/log?limit=1", headers=right) for _ in range(120) for service in two
    ]
    served = sum(answer.status_code == 200 for answer in answers)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(answers) == served + len(refused)
    # Up to a lot of 2 for each service may be left. When a minute ends, they count anew.
    assert 36 <= served <= 40 * minutes(began)
    assert refused[0].json()["error"]["code"] == "too_many_requests"
    assert 1 <= int(refused[0].headers["retry-after"]) <= 60
    assert two[0].http.get("/healthz/ready").status_code == 200


def test_wrong_tokens_of_an_address_are_counted_and_right_ones_pass(serve: Serve) -> None:
    service = serve(env={**ENV, "EM_API_FAILURES_PER_MINUTE": "5"})
    wrong = {"Authorization": "Bearer wrong-wrong-wrong-wrong"}
    began = time.time()
    statuses = [service.http.get("/log", headers=wrong).status_code for _ in range(20)]
    assert set(statuses) <= {401, 429}
    assert 5 <= statuses.count(401) <= 5 * minutes(began)
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert service.http.get("/log", headers=right).status_code == 200
    form = {"form_token": token_in(service.http.get("/ui/login").text), "token": "wrong"}
    assert service.http.post("/ui/login", data=form).status_code in (401, 429)


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


def test_requests_that_come_together_get_what_is_left_and_no_more(sqlite_store: Any) -> None:
    async def take(rate: Rate, count: int) -> int:
        async def one() -> bool:
            try:
                await rate.take("ana")
            except TooManyRequests:
                return False
            return True

        return sum(await asyncio.gather(*(one() for _ in range(count))))

    async def both() -> tuple[int, int]:
        first, second = (Rate(sqlite_store.tickets, "requests", 100, b"key", 20) for _ in range(2))
        return await take(first, 64), await take(second, 64)

    began = time.time()
    one, other = asyncio.run(both())
    assert one == 64
    assert 30 <= other <= 64 if minutes(began) > 1 else 30 <= other <= 36
