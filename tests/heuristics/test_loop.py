"""The loop: a program that only succeeds once it is told what the first failure taught."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.children import LIMIT

from em import Memory
from em.errors import UsageError
from em.heuristics.loop import Loop, LoopResult, LoopStarted

# It writes a port at random; only who is told that the port must be 8080 writes that one.
AGENT = """
import os, sys
told = sys.stdin.read() + " ".join(sys.argv[1:])
assert os.environ["EM_LOOP_GOAL"] in told
port = 8080 if "8080" in told else 1234
open("config.txt", "w").write(f"port={port}")
open("calls.txt", "a").write("x")
print("wrote port", port)
"""
CHECK = "grep -q port=8080 config.txt || { echo 'config.txt must have port=8080' >&2; exit 3; }"


@pytest.fixture(autouse=True)
def _agent() -> None:
    Path("agent.py").write_text(AGENT)


def start(agent: str, until: str = CHECK, limit: int = 5, **more: object) -> LoopResult:
    with Memory("em.db") as memory:
        started = LoopStarted("write the config of the server", agent, until, limit)
        return Loop(memory.store, memory.heuristics, started, **more).run()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "agent", [f"{sys.executable} agent.py", f"{sys.executable} agent.py {{prompt}}"]
)
def test_the_second_iteration_knows_what_the_first_failure_taught(agent: str) -> None:
    result = start(agent)
    assert result.status == "success"
    assert [done.outcome for done in result.iterations] == ["failure", "success"]
    assert "port=8080" in result.iterations[0].problem
    with Memory("em.db") as memory:
        first, second = memory.traces()
        assert (first.trace.outcome, second.trace.outcome) == ("failure", "success")
        assert any("wrote port 1234" in getattr(e, "text", "") for e in first.trace.events)
        assert list(memory.heuristics.every()) == []  # how it ended is told, and is no lesson
        kinds = [event.kind for event in memory.log.read(stream=f"loop/{result.id}")]
        assert kinds == [
            "loop_started",
            *["loop_iteration_started", "loop_iteration"] * 2,
            "loop_ended",
        ]
        assert memory.log.verify().ok


def test_it_stops_at_the_limit_and_a_new_one_may_begin() -> None:
    failing = f"{sys.executable} -c 'print(1)'"
    result = start(failing, until="exit 1", limit=2)
    assert (result.status, len(result.iterations)) == ("limit", 2)
    again = start(failing, until="exit 1", limit=1)
    assert again.id != result.id
    assert not again.resumed


def test_without_a_check_it_runs_to_the_limit_and_a_failing_agent_fails() -> None:
    result = start(f"{sys.executable} -c 'import sys; sys.exit(\"no config\")'", until="", limit=2)
    assert [done.outcome for done in result.iterations] == ["failure", "failure"]
    assert "no config" in result.iterations[0].problem
    plain = start(f"{sys.executable} -c 'pass'", until="", limit=2)
    assert [done.outcome for done in plain.iterations] == ["unknown", "unknown"]


def test_an_agent_that_writes_its_trace_is_learned_from_call_by_call() -> None:
    trace = {
        "task": "x",
        "steps": [
            {"action": "insert", "args": {"total": "1,5"}, "error": "invalid total"},
            {"action": "insert", "args": {"total": "1.5"}, "observation": 1},
        ],
    }
    Path("trace.json").write_text(json.dumps(trace))
    result = start("cat trace.json", until="true")
    with Memory("em.db") as memory:
        (lesson,) = memory.heuristics.every()
    assert list(result.iterations[0].learned) == [lesson.id]
    assert lesson.lesson.how == "recovery"


def test_a_command_that_cannot_be_started_is_named() -> None:
    for agent in ("no-such-program-here", "'", ""):
        with pytest.raises(UsageError):
            start(agent)


def test_an_iteration_that_runs_too_long_is_ended_with_all_it_started() -> None:
    agent = "sh -c 'sleep 60 & sleep 60'"
    began = time.monotonic()
    result = start(agent, until="", limit=1, timeout=0.5)
    assert time.monotonic() - began < 30
    assert "ran out of time" in result.iterations[0].problem


def command(*more: str) -> list[str]:
    agent = f"{sys.executable} agent.py"
    goal = "write the config of the server"
    return [
        *(sys.executable, "-m", "em", "--db", "em.db", "lessons", "loop", "--goal", goal),
        *("--agent", agent, "--until", CHECK, *more),
    ]


def test_killed_in_the_middle_it_goes_on_where_it_was() -> None:
    slow = "import time\ntime.sleep(60) if __import__('os').path.exists('calls.txt') else None\n"
    Path("agent.py").write_text(slow + AGENT)
    process = subprocess.Popen(command(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "iteration 1: failure" in process.stderr.readline()
    time.sleep(0.5)  # now the second iteration sleeps
    process.kill()
    process.wait()
    process.stderr.close()
    Path("agent.py").write_text(AGENT)
    ran = subprocess.run([*command(), "--json"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "resuming loop" in ran.stderr
    result = json.loads(ran.stdout)
    assert (result["status"], result["resumed"]) == ("success", True)
    assert [done["number"] for done in result["iterations"]] == [1, 2]
    assert Path("calls.txt").read_text() == "xx"


def test_ctrl_c_gives_a_summary_and_the_same_command_goes_on() -> None:
    Path("agent.py").write_text("import time\ntime.sleep(60)\n")
    process = subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not _started():
        time.sleep(0.1)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    assert "interrupted" in out
    assert "the same command resumes it" in err
    Path("agent.py").write_text(AGENT)
    ran = subprocess.run(command(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "goal reached, 2 iterations" in ran.stdout


def _started() -> bool:
    if not Path("em.db").exists():
        return False
    with Memory("em.db") as memory:
        return any(memory.log.read(kinds=["loop_iteration_started"]))


def test_not_reached_is_exit_code_1() -> None:
    Path("agent.py").write_text("print('did nothing')\n")
    ran = subprocess.run(
        [*command("--max-iterations", "1")], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, "stopped at the limit" in ran.stdout) == (1, True)
