"""Running `em` as a user does: a process of its own."""

import json
import os
import pty
import sys
import tempfile
from typing import Any, NamedTuple

from tests.children import LIMIT
from tests.forks import start_em

EM = [sys.executable, "-m", "em"]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def em(*args: str, stdin: str | bytes = b"", **env: str) -> Ran:
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.seek(0)
        streams = {"stdin": given.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        with start_em(*args, **streams, **env) as process:
            code = process.wait(LIMIT)
        out.seek(0)
        err.seek(0)
        ran = Ran(code, out.read().decode(), err.read().decode())
    assert "Traceback" not in ran.err, ran.err
    return ran


def on_terminal(*args: str, typed: str = "") -> str:
    """What a command shows on a terminal, where a person types this."""
    parent, child = pty.openpty()
    os.write(parent, typed.encode())
    shown = b""
    with start_em(*args, stdin=child, stdout=child, stderr=child) as process:
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
