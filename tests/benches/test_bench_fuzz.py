"""The fuzzing bench makes the same inputs from a seed, and shows what it was that failed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.fuzz import rounds
from bench.fuzz.mutation import Mutation
from bench.fuzz.parts import PARTS, Part, folder_of_its_own

from em.errors import InputError


class Brittle(Part):
    """Fails on `!`, hangs on `again and again`, and answers anything else with an error of em."""

    name = "brittle"

    def make(self, mutation: Mutation) -> bytes:
        return mutation.data(b"what a day!" if mutation.draw.random() < 0.5 else b"a day")

    def take(self, data: bytes) -> None:
        while b"again and again" in data:
            pass
        if b"!" in data:
            raise KeyError("!")
        raise InputError("no such day")


@pytest.fixture(autouse=True)
def _limits() -> Iterator[None]:
    with rounds.signals():
        yield


@pytest.fixture
def brittle(tmp_path: Path) -> Brittle:
    return Brittle(tmp_path)


def test_a_failure_is_counted_and_shown_with_its_smallest_input(brittle: Brittle) -> None:
    found = rounds.run_part(brittle, 200, seed=1)
    (kind,) = found
    assert kind.startswith("KeyError")
    assert 20 < found[kind].count < 180
    assert rounds.reduced(brittle, kind, found[kind].data) == b"!"


def test_an_input_that_takes_too_long_is_a_failure(
    brittle: Brittle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "BUSY", 0.2)
    assert isinstance(rounds.outcome(brittle, b"again and again"), rounds.Hang)
    assert rounds.outcome(brittle, b"a day") is None


@pytest.mark.parametrize("name", [*PARTS])
def test_a_seed_gives_the_same_inputs_and_em_withstands_them(name: str) -> None:
    """Some inputs only; `python -m bench fuzz --size nightly` has 100,000."""
    with folder_of_its_own() as folder:
        part = PARTS[name](folder)
        try:
            made = [part.make(Mutation(f"7/{name}/{number}")) for number in range(10)]
            assert made == [part.make(Mutation(f"7/{name}/{number}")) for number in range(10)]
            assert rounds.run_part(part, 25, seed=7) == {}
        finally:
            part.close()


def test_the_command_needs_nothing_that_only_pytest_has() -> None:
    command = [sys.executable, "-m", "bench", "fuzz", "--part", "routines", "--size", "2"]
    root = Path(rounds.__file__).parents[2]
    said = subprocess.run(command, check=False, cwd=root, capture_output=True)
    assert said.returncode == 0, said.stderr.decode()
