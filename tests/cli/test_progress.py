"""Long commands show on a terminal how far they are; elsewhere they print results only."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from em import Memory
from em.traces.trace import ToolCall, Trace

AT_ONCE = """
import os, signal, sys, time
import em.cli.output as output
from em.cli.root import run
from em.store.summaries import Summaries

class AtOnce:
    def __init__(self, _seconds, work):
        self.start = work
        self.cancel = self.join = lambda: None

output.threading.Timer = AtOnce
"""
"""Code that shows progress without waiting whether a command takes long."""
RUN = "sys.exit(run(sys.argv[1:]))"
INTERRUPTED = """
def rebuild(self, progress):
    progress(3)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

Summaries.rebuild = rebuild
"""


def on_terminal(code: str, *arguments: str, width: int = 100) -> tuple[int, str]:
    """Run code with a terminal as its standard error and output; return what it printed."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(width)},
    )
    os.close(child)
    printed = b""
    while True:
        try:
            more = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        printed += more
    os.close(parent)
    return process.wait(), printed.decode()


@pytest.fixture(autouse=True)
def _events() -> None:
    with Memory("em.db") as memory:
        for number in range(30):
            memory.observe("ana", {"type": "visit", "number": number})
        memory.add_trace(Trace(events=[ToolCall(tool="look")]))


def test_a_bar_shows_what_is_done_and_how_long_it_takes() -> None:
    code, printed = on_terminal(AT_ONCE + RUN, "log", "verify", "--db", "em.db")
    assert code == 0
    assert "verifying" in printed
    assert re.search(r"(\d+)/\1\b", printed), "all of all"
    assert "-:--:--" in printed or "0:00:0" in printed
    assert printed.rindex("\x1b[?25h") > printed.rindex("\x1b[?25l"), "the cursor is shown again"


@pytest.mark.parametrize(
    "command",
    [
        ("state", "checkpoint", "--all"),
        ("lessons", "evaluate", "--tasks", "1"),
        ("lessons", "reflect", "--all"),
        ("forget", "--subject", "ana", "--yes"),
        ("log", "import", "more.jsonl"),
    ],
    ids=lambda command: command[0],
)
def test_each_long_command_has_one(command: tuple[str, ...]) -> None:
    Path("more.jsonl").write_text('{"stream": "s", "kind": "note", "body": {}}\n' * 3)
    _, printed = on_terminal(AT_ONCE + RUN, *command, "--db", "em.db")
    assert "\x1b[?25l" in printed, printed


def test_nothing_is_drawn_for_a_program() -> None:
    command = [sys.executable, "-c", AT_ONCE + RUN, "log", "verify", "--db", "em.db"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stderr + piped.stdout
    assert "verifying" not in piped.stderr
    _, printed = on_terminal(AT_ONCE + RUN, "log", "verify", "--db", "em.db", "--json")
    assert "verifying" not in printed


def test_ctrl_c_leaves_the_terminal_clean() -> None:
    code, printed = on_terminal(AT_ONCE + INTERRUPTED + RUN, "log", "rebuild", "--db", "em.db")
    assert code == 130
    assert "summarising" in printed
    assert printed.rstrip().endswith("interrupted")
    assert printed.rindex("\x1b[?25h") > printed.rindex("\x1b[?25l"), "the cursor is shown again"
