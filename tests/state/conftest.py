from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "state.db") as memory:
        yield memory


@pytest.fixture
def compiled(memory: Memory) -> Any:
    """Observes records of one type and compiles them."""

    def compile_(*records: dict[str, Any], type: str = "Thing") -> Any:  # noqa: A002 - as observe
        memory.observe_many({"subject": "ana", "record": one, "type": type} for one in records)
        return memory.checkpoint("ana")

    return compile_
