"""Every back end keeps the same promises: values, errors, limits, sessions."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from em.errors import (
    InputError,
    SandboxFault,
    SandboxMemory,
    SandboxOutput,
    SandboxRefused,
    SandboxTimeout,
    UsageError,
)
from em.runner.sandbox import Limits, Sandbox, choose
from em.runner.sandbox.inside import plain
from em.runner.sandbox.sandbox import MEGABYTE, backends
from em.values.canonical import MAX_DEPTH, identical
from strategies import examples

ECHO = "def echo(value): return value"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_a_back_end_for_the_whole_of_python_is_there() -> None:
    """Tests of one that is not there are skipped; not of both."""
    assert not all(kind.missing() for kind in backends() if kind.name != "monty")


@pytest.mark.hypothesis
def test_values_go_in_and_come_out_exactly(sandbox: Sandbox) -> None:
    with sandbox.open(ECHO) as session:

        @settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
        @given(JSON)
        def same(value: Any) -> None:
            found = session.call("echo", {"value": value})
            assert repr(found) == repr(value)

        same()


@pytest.mark.parametrize(
    "value",
    [2**64, -(2**70), 10**400, 5e-324, 1.7976931348623157e308, -0.0, "é😀\x00\n\u2028", "", [[]]],
)
def test_values_at_the_edges(sandbox: Sandbox, value: Any) -> None:
    found = sandbox.run(ECHO, "echo", {"value": {"": [value]}})
    assert repr(found) == repr({"": [value]})


def test_what_is_more_than_json_becomes_plain_by_the_same_rules(sandbox: Sandbox) -> None:
    code = """
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal

@dataclass
class Point:
    x: int
    at: date

def f():
    return {
        "date": date(2024, 2, 29), "moment": datetime(2024, 2, 29, 12, tzinfo=timezone.utc),
        "time": time(1, 2), "price": Decimal("1.10"), "pair": (1, 2), "set": {3, 1, 2},
        "points": [Point(1, date(2024, 1, 1))],
    }
"""
    assert sandbox.run(code, "f", {}) == {
        "date": "2024-02-29",
        "moment": "2024-02-29T12:00:00+00:00",
        "time": "01:02:00",
        "price": "1.10",
        "pair": [1, 2],
        "set": [1, 2, 3],
        "points": [{"x": 1, "at": "2024-01-01"}],
    }


@pytest.mark.parametrize(
    "returned",
    ["float('nan')", "float('inf')", "b'bytes'", "{1: 2}", "lambda: 1", "range(3)", "len",
     "{'a': [1, {'b': range(3)}]}", "{}.keys()", "1j"],
)  # fmt: skip
def test_what_json_can_not_say_is_the_codes_fault(sandbox: Sandbox, returned: str) -> None:
    with pytest.raises(SandboxFault) as caught:
        sandbox.run(f"def f(): return {returned}", "f", {})
    assert caught.value.data["type"] == "NotPlain"


@pytest.mark.parametrize("value", [float("nan"), b"x", object(), "\ud800", {1: 2}])
def test_an_argument_that_is_no_json_is_the_callers_mistake(sandbox: Sandbox, value: Any) -> None:
    with pytest.raises(InputError, match="arguments of echo"):
        sandbox.run(ECHO, "echo", {"value": value})


def test_an_exception_tells_its_type_its_message_and_its_line(sandbox: Sandbox) -> None:
    code = (
        "def inner(x):\n    y = x\n    raise ValueError(f'bad: {y}')\n\ndef f(x):\n    inner(x)\n"
    )
    with pytest.raises(SandboxFault) as caught:
        sandbox.run(code, "f", {"x": "é"})
    error = caught.value
    assert (error.data["type"], error.data["reason"], error.data["line"]) == (
        "ValueError",
        "bad: é",
        3,
    )
    assert str(error) == "line 3: ValueError: bad: é"


def test_an_exception_where_the_code_is_defined_tells_its_line(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFault) as caught:
        sandbox.run("x = 1\ny = x / 0\ndef f(): return 1\n", "f", {})
    assert (caught.value.data["type"], caught.value.data["line"]) == ("ZeroDivisionError", 2)


def test_code_that_is_no_python_tells_its_line(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFault) as caught:
        sandbox.run("x = 1\ndef f(:\n", "f", {})
    assert (caught.value.data["type"], caught.value.data["line"]) == ("SyntaxError", 2)


@pytest.mark.parametrize("code", ["x = '\0'", "raise SyntaxError('own')", "x = \\"])
def test_odd_code_is_a_fault_too(full_python: Sandbox, code: str) -> None:
    with pytest.raises(SandboxFault):
        full_python.run(f"{code}\ndef f(): return 1\n", "f", {})


def test_a_machine_with_lower_limits_of_its_own_is_no_obstacle(full_python: Sandbox) -> None:
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9, 2 * 10**9))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
from em.runner.sandbox import Limits, choose
sandbox = choose("", prefer={full_python.name!r})
print(sandbox.run("def f(): return 1", "f", {{}}, Limits(memory_bytes=10**12)))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.stdout == "1\n", run.stderr


@pytest.mark.parametrize("name", ["g", "x", "no such", "class", ""])
def test_a_function_that_is_not_there(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(SandboxFault):
        sandbox.run("x = 1\ndef f(): return 1", name, {})


def test_wrong_arguments_are_a_type_error_of_the_call(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFault) as caught:
        sandbox.run("def f(a): return a", "f", {"b": 1})
    assert caught.value.data["type"] == "TypeError"


def test_arguments_by_position(sandbox: Sandbox) -> None:
    with sandbox.open("def f(a, /, b, *c, d=0): return [a, b, c, d]") as session:
        assert session.call("f", {"d": 4}, (1, 2, 3)) == [1, 2, [3], 4]


def test_an_endless_loop_ends_and_the_session_goes_on(sandbox: Sandbox) -> None:
    code = "def loop():\n    while True:\n        pass\ndef f(): return 1"
    with sandbox.open(code, Limits(seconds=1.5)) as session:
        with pytest.raises(SandboxTimeout, match=r"1\.5 s"):
            session.call("loop", {})
        assert session.call("f", {}) == 1


def test_memory_is_bounded_and_the_session_goes_on(sandbox: Sandbox) -> None:
    code = "def grow():\n    x = []\n    while True: x.append('y' * 100000)\ndef f(): return 1"
    with sandbox.open(code, Limits(seconds=30, memory_bytes=64 * MEGABYTE)) as session:
        with pytest.raises(SandboxMemory, match="67,108,864"):
            session.call("grow", {})
        assert session.call("f", {}) == 1


def test_a_result_is_bounded_and_the_session_goes_on(sandbox: Sandbox) -> None:
    code = "def f(n): return 'y' * n"
    with sandbox.open(code, Limits(output_bytes=100_000)) as session:
        with pytest.raises(SandboxOutput, match="100,000"):
            session.call("f", {"n": 200_000})
        assert session.call("f", {"n": 90_000}) == "y" * 90_000


def test_a_session_keeps_what_the_code_keeps_through_many_calls(sandbox: Sandbox) -> None:
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    with sandbox.open(code) as session:
        assert [session.call("f", {"x": n}) for n in range(1_000)] == list(range(1, 1_001))


def test_sessions_know_nothing_of_each_other(sandbox: Sandbox) -> None:
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return seen"
    with sandbox.open(code) as one, sandbox.open(code) as other:
        assert one.call("f", {"x": 1}) == [1]
        assert other.call("f", {"x": 2}) == [2]
    assert sandbox.run(code, "f", {"x": 3}) == [3]


def test_a_session_serves_several_threads(sandbox: Sandbox) -> None:
    with sandbox.open(ECHO) as session:
        wrong: list[Any] = []

        def ask(thread: int) -> None:
            for n in range(50):
                if session.call("echo", {"value": [thread, n]}) != [thread, n]:
                    wrong.append((thread, n))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        # and it outlives the thread in which it was first used
        assert session.call("echo", {"value": "still"}) == "still"


def test_what_the_code_keeps_outlives_the_thread_that_began(full_python: Sandbox) -> None:
    code = "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)"
    with full_python.open(code) as session:
        first = threading.Thread(target=session.call, args=("f", {}))
        first.start()
        first.join()
        time.sleep(0.2)  # a process that died with that thread would be dead by now
        assert session.call("f", {}) == 2


def test_large_arguments_and_results(sandbox: Sandbox) -> None:
    value = ["x" * 1_000] * 5_000
    assert sandbox.run(ECHO, "echo", {"value": value}) == value


def test_printing_is_dropped(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    assert sandbox.run("def f():\n    print('hello')\n    return 1", "f", {}) == 1
    assert capfd.readouterr() == ("", "")


def test_full_python_has_what_the_subset_lacks(full_python: Sandbox) -> None:
    code = """
import statistics, zoneinfo, sqlite3, heapq, operator
from enum import Enum

class Colour(Enum):
    RED = "red"

class Wrong(Exception):
    pass

def numbers():
    yield from [1, 2, 6]

def f():
    import uuid
    with sqlite3.connect(":memory:") as db:
        (one,) = db.execute("SELECT 1").fetchone()
    return [statistics.mean(numbers()), Colour.RED, one, str(zoneinfo.ZoneInfo("UTC")),
            uuid.UUID(int=1)]

def g():
    raise Wrong("own")
"""
    with full_python.open(code) as session:
        assert session.call("f", {}) == [
            3, "red", 1, "UTC", "00000000-0000-0000-0000-000000000001",
        ]  # fmt: skip
        with pytest.raises(SandboxFault) as caught:
            session.call("g", {})
    assert (caught.value.data["type"], caught.value.data["line"]) == ("Wrong", 22)


def test_a_session_that_nobody_closes_leaves_no_process(full_python: Sandbox) -> None:
    session = full_python.open("import os\ndef f(): return 1")
    session.call("f", {})
    (popen,) = [
        value for value in vars(vars(session)["_process"]).values()
        if isinstance(value, subprocess.Popen)
    ]  # fmt: skip
    pid = popen.pid
    del session, popen
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_confined_code_dies_with_a_parent_that_is_killed(
    full_python: Sandbox, tmp_path: Path
) -> None:
    script = f"""
import os, sys
from em.runner.sandbox import choose
session = choose("", prefer={full_python.name!r}).open("def f():\\n    while True: pass")
import threading
threading.Thread(target=session.call, args=("f", {{}}), daemon=True).start()
import time
while vars(session)["_process"] is None: time.sleep(0.01)
time.sleep(0.2)
print(vars(vars(session)["_process"])["_popen"].pid, flush=True)
os.kill(os.getpid(), 9)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    pid = int(run.stdout)
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists() or "Z" in _state(pid):
            return
        time.sleep(0.02)
    pytest.fail("it runs on")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except FileNotFoundError:
        return "Z"


def test_a_fork_starts_its_own_process_and_leaves_the_parents_alone(full_python: Sandbox) -> None:
    script = f"""
import os
from em.runner.sandbox import choose
code = "seen = []\\ndef f():\\n    seen.append(1)\\n    return len(seen)"
with choose(code, prefer={full_python.name!r}).open(code) as session:
    assert session.call("f", {{}}) == 1
    child = os.fork()
    if child == 0:
        assert session.call("f", {{}}) == 1
        raise SystemExit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert session.call("f", {{}}) == 2
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_depth_of_a_value_is_that_of_an_event(sandbox: Sandbox) -> None:
    assert plain.MAX_DEPTH == MAX_DEPTH
    code = "def f(n):\n    x = 1\n    for i in range(n):\n        x = [x]\n    return x"
    assert identical(sandbox.run(code, "f", {"n": 3}), [[[1]]])
    assert sandbox.run(code, "f", {"n": MAX_DEPTH})
    with pytest.raises(SandboxFault, match="levels deep"):
        sandbox.run(code, "f", {"n": MAX_DEPTH + 1})


def test_the_subset_goes_to_monty_and_the_rest_to_a_process() -> None:
    pytest.importorskip("pydantic_monty")
    assert choose("def f(): return 1").name == "monty"
    assert choose("import statistics").name in ("bubblewrap", "landlock")
    assert choose("def f(): return 1", prefer="landlock").name == "landlock"
    with pytest.raises(UsageError, match="must be one of monty, bubblewrap, landlock"):
        choose("", prefer="chroot")


def test_without_any_back_end_code_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in backends():
        monkeypatch.setattr(kind, "missing", lambda: "not here")
    with pytest.raises(SandboxRefused, match="em trust DIR") as caught:
        choose("def f(): return 1")
    assert set(caught.value.data["reasons"]) == {"monty", "bubblewrap", "landlock"}


def test_limits_are_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Limits(seconds=0)
