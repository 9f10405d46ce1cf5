"""Every back end that is there: a test that takes `sandbox` runs on each."""

import pytest

from em.runner.sandbox import Sandbox
from em.runner.sandbox.sandbox import backends

FULL_PYTHON = ("bubblewrap", "landlock")


def back_end(name: str) -> Sandbox:
    (kind,) = [kind for kind in backends() if kind.name == name]
    if reason := kind.missing():
        pytest.skip(f"{name}: {reason}")
    return kind()


@pytest.fixture(params=["monty", *FULL_PYTHON])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return back_end(request.param)


@pytest.fixture(params=FULL_PYTHON)
def full_python(request: pytest.FixtureRequest) -> Sandbox:
    return back_end(request.param)
