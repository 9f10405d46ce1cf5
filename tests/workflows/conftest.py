"""A memory on a real file, and workflows written as YAML."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flows import Write

from em import Memory
from em.llm import ScriptedClient
from em.workflows import Workflows


def echo(request: Any) -> str:
    """A model that says back what it was asked."""
    return f"[{request.prompt}]"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


@pytest.fixture
def model() -> ScriptedClient:
    return ScriptedClient(echo)


@pytest.fixture
def write(memory: Memory, model: ScriptedClient, tmp_path: Path) -> Write:
    """Workflows from YAML, with a model that says back what it was asked."""

    def make(text: str, tools: Any = None, **options: Any) -> Workflows:
        (tmp_path / "flow.yaml").write_text(text)
        return memory.workflows("flow.yaml", tools, **{"client": model, **options})

    return make
