"""A person puts a proposed routine in use at the question of an agent, and nobody else does."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp_agents import agent, over_http, over_stdio
from mcp_types import ElicitRequestParams, ElicitResult
from served import Served
from tests.clients.test_proposals import count_lines

from em import Memory
from em.compiler.proposals import propose
from em.compiler.suggestions import suggest
from em.runner.package import kept_routines
from mcp import Client, MCPError

NAMES = ("orders", "sales", "returns", "bills")


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """The protocol of 2026, and the one with a handshake."""
    return str(request.param)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("EM_TRUSTED_FOLDERS", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Memory("em.db") as memory:
        count_lines(memory, *NAMES)
        (made,) = propose(memory.store, suggest(memory.store, allow_unlabelled=True))
    return made.key


def routines() -> list[str]:
    with Memory("em.db") as memory:
        return [one.name for one in kept_routines(memory.store)]


def accepting(key: str, **how: Any) -> Any:
    """What `accept_routine` returns, and then a run of the routine."""

    async def work(client: Client) -> Any:
        args = {"routine": key, "name": "count_lines"}
        return (await client.call_tool("accept_routine", args)).structured_content

    return agent(over_stdio(), work, **how)


def test_a_yes_of_the_person_puts_it_in_use_with_what_it_needs(key: str, mode: str) -> None:
    asked: list[str] = []

    async def agree(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    async def work(client: Client) -> Any:
        args = {"routine": key, "name": "count_lines"}
        done = (await client.call_tool("accept_routine", args)).structured_content
        Path("fresh.csv").write_text("1,pending\n")
        inputs = {"file": "fresh.csv", "output": "fresh.txt"}
        return done, (await client.call_tool("count_lines", inputs)).structured_content

    done, ran = agent(over_stdio(), work, mode=mode, elicitation_callback=agree)
    assert done == {"accepted": True, "routine": "count_lines@1"}
    assert (ran["status"], Path("fresh.txt").read_text()) == ("ok", "1\n")
    (words,) = asked
    for part in ("count_lines", "right in 4 of 4", "commands: grep", "folders: .", "em.yaml"):
        assert part in words
    allow = yaml.safe_load(Path("em.yaml").read_text())["allow"]
    assert allow == {"commands": ["grep"], "folders": ["."]}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_without_a_yes_nothing_is_changed(key: str, mode: str, action: Any) -> None:
    async def refuse(_context: Any, _params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action=action)

    done = accepting(key, mode=mode, elicitation_callback=refuse)
    assert (done["accepted"], routines(), Path("em.yaml").exists()) == (False, [], False)


def test_where_no_form_can_be_shown_the_person_types_the_command(key: str, mode: str) -> None:
    done = accepting(key, mode=mode)
    assert (done["accepted"], routines(), Path("em.yaml").exists()) == (False, [], False)
    assert "commands: grep" in done["asks"]
    assert f"em routine accept {key}" in done["next"]


def test_an_answer_to_another_question_is_none(key: str) -> None:
    """A client of the newer protocol sends the answer with the state that it was given."""
    yes = {"accept": ElicitResult(action="accept", content={})}

    async def work(client: Client) -> Any:
        async def call(name: str, state: str | None = None) -> Any:
            return await client.session.call_tool(
                "accept_routine",
                {"routine": key, "name": name},
                allow_input_required=True,
                **({} if state is None else {"request_state": state, "input_responses": yes}),
            )

        asked = await call("count_lines")
        with pytest.raises(MCPError, match="requestState"):
            await call("delete_all", asked.request_state)

    async def never(_context: Any, _params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError

    agent(over_stdio(), work, mode="auto", elicitation_callback=never)
    assert routines() == []


def test_it_is_listed_only_for_the_person_of_this_account_and_if_something_waits(
    key: str, service: Served
) -> None:
    async def listed(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    assert "accept_routine" in agent(over_stdio(), listed)
    for other in (
        over_stdio("--read-only"),
        over_stdio("--subject", "ana"),
        over_stdio(db="other.db"),
        over_http(service.url),
    ):
        assert "accept_routine" not in agent(other, listed)

    async def refused(client: Client) -> None:
        with pytest.raises(MCPError, match="accept_routine"):
            await client.call_tool("accept_routine", {"routine": key})

    agent(over_http(service.url), refused)
    assert routines() == []
