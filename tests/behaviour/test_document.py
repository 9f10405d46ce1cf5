"""The original's document: each snippet works here. The last script is `examples/greeter`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from em import Check, Engine

ROOT = Path(__file__).parent.parent.parent


def test_engine_and_agent_have_the_same_interface() -> None:
    done = []
    engine = Engine()
    act = engine.function()(done.append)

    def your_agent(task: str) -> None:
        act(task)

    engine.set_agent(your_agent).finalize()
    your_agent("do some task")
    assert not engine("do some task")
    assert engine("do some task")  # cache hit
    assert done == ["do some task"] * 3


def test_functions_and_methods_are_instrumented(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()

    @engine.function()
    def hello(name: str):
        print(f"hello {name}!")

    hello("world")

    class SomeClient:
        @engine.method()
        def hello(self, name: str):
            print(f"hello {name}!")

    client = SomeClient()
    client.hello("world")

    def your_agent(task: str) -> None:
        client.hello("world")

    engine = engine.set_agent(your_agent).set_context(client).finalize()
    assert not engine("say hello world!")
    assert engine("say hello world!")
    assert capsys.readouterr().out == "hello world!\n" * 4


def test_the_combined_script_runs_word_for_word() -> None:
    """On a clock of its own: the script allows one second for nine sleeps of 0.1."""
    script = ROOT / "examples" / "greeter" / "greeter.py"
    run = subprocess.run(
        [sys.executable, "-c", ON_ITS_OWN_CLOCK, str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("hello erik + 8") == 3


ON_ITS_OWN_CLOCK = """
import runpy, sys, time
now = [1_000_000.0]
time.time = lambda: now[0]
time.sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("params", [(), ("name",)])
def test_nothing_is_imported_between_finalize_and_the_second_run(params: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", IMPORTED_LATE, *params], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


IMPORTED_LATE = """
import sys, time
from dataclasses import dataclass
from em import Check, Engine

engine = Engine()

@dataclass
class Seen:
    name: str
    time: float

def capture(name: str) -> Seen:
    return Seen(name, time.time())

@engine.function(pre_check=Check(capture, lambda now, then: now.name == then.name))
def hello(name: str) -> None:
    pass

def agent(name: str) -> None:
    for number in range(9):
        hello(name + " + " + str(number))

engine.set_agent(agent).finalize()
known = {*sys.modules}
assert not engine("erik", params=sys.argv[1:])
assert engine("erik", params=sys.argv[1:])
late = {*sys.modules} - known
print(*(name for name in late if name.partition(".")[0] not in sys.stdlib_module_names))
"""


def test_finalizing_inside_of_a_run_leaves_that_run_alone() -> None:
    outer, inner = Engine(name="outer"), Engine(name="inner")
    act = outer.function()(str.upper)

    def agent(task: str) -> str:
        inner.set_agent(lambda name: name).finalize()
        return act(task)

    outer.set_agent(agent)
    assert outer("a task").stored
    assert outer("a task").value == "A TASK"


@pytest.fixture
def env() -> Any:
    """The original's own test, where captures and comparisons are methods."""
    engine = Engine()

    class Env:
        def __init__(self) -> None:
            self.val = 0

        def capture(self, n: int) -> int:
            return self.val

        @staticmethod
        def compare(current: int, candidate: int) -> bool:
            return current == candidate

        @engine.method(pre_check=Check(capture=capture, compare=compare))
        def increment(self, n: int = 1) -> int:
            self.val += n
            return self.val

    env = Env()
    env.engine = engine

    class Agent:
        def __call__(self, task: str) -> None:
            for _ in range(int(task.split(" ")[1])):
                env.increment(1)

    engine.set_context(env).set_agent(Agent()).finalize()
    return env


def test_returning_to_an_earlier_state_still_hits(env: Any) -> None:
    for start, hit in ((0, False), (0, True), (1, False), (1, True), (0, True)):
        env.val = start
        assert env.engine("add 1").hit is hit
        assert env.val == start + 1
    for hit in (False, True):
        env.val = 0
        assert env.engine("add 2").hit is hit
        assert env.val == 2


def test_params_are_used_where_the_recorded_value_was(env: Any) -> None:
    assert not env.engine("add 1", params={"n": 1}, tags=["add"])
    env.val = 0
    assert env.engine("add 2", params={"n": 2}, tags=["add"])
    assert env.val == 2
