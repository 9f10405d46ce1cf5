"""Fixtures of the tests with the real coding agents; `make test-clients` runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.coding_agents import ClaudeCode, Codex, CodingAgent, aside

from em.testing import LoopbackModel


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "agent" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.clients)


@pytest.fixture(params=[ClaudeCode, Codex], ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CodingAgent]:
    with LoopbackModel(key="sk-dummy", aside=aside) as model:
        yield request.param(tmp_path, model)
