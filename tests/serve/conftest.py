"""The service as it really runs, started and stopped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def start(*args: str, **more: Any) -> Served:
        started.append(Served(*args, **more))
        return started[-1]

    yield start
    for served in started:
        served.stop()


@pytest.fixture
def service(serve: Serve) -> Served:
    return serve()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One service for all tests of a module, which don't mind what the others left in it."""
    served = Served(db=str(tmp_path_factory.mktemp("served") / "em.db"))
    yield served
    served.stop()
