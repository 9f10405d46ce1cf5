"""Fixtures of the tests with the real coding agents; `make test-clients` runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.coding_agents import (
    ClaudeCode,
    Codex,
    CodingAgent,
    MiniSweAgent,
    Opencode,
    aside,
)

from em.testing import LoopbackModel

EVERY = [ClaudeCode, Codex, Opencode, MiniSweAgent]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"agent", "any_agent"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.clients)


@pytest.fixture(params=EVERY, ids=lambda agent: agent.name)
def any_agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CodingAgent]:
    """Every agent, also mini-swe-agent, which has no hooks."""
    with LoopbackModel(key="sk-dummy", aside=aside) as model:
        agent = request.param(tmp_path, model)
        _skip_if_left_out(agent)
        yield agent


@pytest.fixture(params=[ClaudeCode, Codex, Opencode], ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CodingAgent]:
    """The agents into which em is installed."""
    with LoopbackModel(key="sk-dummy", aside=aside) as model:
        agent = request.param(tmp_path, model)
        _skip_if_left_out(agent)
        yield agent


def _skip_if_left_out(agent: CodingAgent) -> None:
    if not isinstance(agent, ClaudeCode | Codex) and not agent.is_there:
        pytest.skip(f"{agent.name} is not installed (CI leaves it out)")
