"""Running `em` as a user does: a process of its own."""

import os
import pty
import select
import sys
from collections.abc import Sequence

from tests.children import LIMIT
from tests.forks import Ran, run_python, start_python

EM = [sys.executable, "-m", "em"]


def em(*args: str, stdin: str | bytes = b"", **env: str) -> Ran:
    ran = run_python("-m", "em", *args, stdin=stdin, **env)
    assert "Traceback" not in ran.err, ran.err
    return ran


def on_terminal(*args: str, typed: str = "") -> str:
    """What a command shows on a terminal, where a person types this."""
    return pressing(*args, keys=[("", typed)])[1]


def pressing(*args: str, keys: Sequence[tuple[str, str]]) -> tuple[int, str]:
    """The exit code of a command and what it shows on a terminal.

    keys: after which new words on the screen a person types what.
    """
    parent, child = pty.openpty()
    waiting, shown, seen = list(keys), b"", 0
    with start_python("-m", "em", *args, stdin=child, stdout=child, stderr=child) as process:
        os.close(child)
        while True:
            while waiting and (found := shown.find(waiting[0][0].encode(), seen)) >= 0:
                words, typed = waiting.pop(0)
                seen = found + len(words)
                os.write(parent, typed.encode())
            ready, _, _ = select.select([parent], [], [], LIMIT)
            assert ready, f"nothing more was shown than: {shown.decode()}"
            try:
                block = os.read(parent, 65_536)
            except OSError:
                break
            if not block:
                break
            shown += block
        code = process.wait(LIMIT)
    os.close(parent)
    return code, shown.decode()
