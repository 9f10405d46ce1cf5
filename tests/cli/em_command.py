"""Running `em` as a user does: a process of its own."""

import json
import os
import pty
import subprocess
import sys
from typing import Any, NamedTuple

from tests.children import LIMIT

EM = [sys.executable, "-m", "em"]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def em(*args: str, stdin: str | bytes = b"") -> Ran:
    given = stdin.encode() if isinstance(stdin, str) else stdin
    run = subprocess.run([*EM, *args], input=given, capture_output=True, timeout=LIMIT, check=False)
    ran = Ran(run.returncode, run.stdout.decode(), run.stderr.decode())
    assert "Traceback" not in ran.err, ran.err
    return ran


def on_terminal(*args: str, typed: str = "") -> str:
    """What a command shows on a terminal, where a person types this."""
    parent, child = pty.openpty()
    os.write(parent, typed.encode())
    process = subprocess.Popen([*EM, *args], stdout=child, stderr=child, stdin=child)
    os.close(child)
    shown = b""
    while True:
        try:
            block = os.read(parent, 65_536)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(parent)
    process.wait()
    return shown.decode()
