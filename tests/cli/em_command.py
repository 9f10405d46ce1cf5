"""Running `em` as a user does: a process of its own."""

import os
import pty
import sys

from tests.children import LIMIT
from tests.forks import Ran, run_python, start_python

EM = [sys.executable, "-m", "em"]


def em(*args: str, stdin: str | bytes = b"", **env: str) -> Ran:
    ran = run_python("-m", "em", *args, stdin=stdin, **env)
    assert "Traceback" not in ran.err, ran.err
    return ran


def on_terminal(*args: str, typed: str = "") -> str:
    """What a command shows on a terminal, where a person types this."""
    parent, child = pty.openpty()
    os.write(parent, typed.encode())
    shown = b""
    with start_python("-m", "em", *args, stdin=child, stdout=child, stderr=child) as process:
        os.close(child)
        while True:
            try:
                block = os.read(parent, 65_536)
            except OSError:
                break
            if not block:
                break
            shown += block
        process.wait(LIMIT)
    os.close(parent)
    return shown.decode()
