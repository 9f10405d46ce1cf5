"""`em` in a process of its own that starts fast: as the fork of a Python that has em loaded.

A fork has its own arguments, folder, environment and standard streams, and ends as `python -m em`
ends. Only the imports are done before. A test of what `em` imports, or of what Python itself reads
when it starts, runs `python -m em` instead.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

READ_AT_START = ("PYTHON", "LC_", "LANG")
"""How the names of variables start that Python reads before it runs anything."""

LOADED_LATER = "em.store.sqlite jsonschema_rs ahocorasick rich.cells".split()
"""What most commands load when they run, beside the modules of the commands."""


class Fork:
    """A running command."""

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid = pid
        self._answers = answers

    def wait(self) -> int:
        """Wait until the command ends; its exit code, or the signal that killed it, negative."""
        return _number(self._answers)


@contextmanager
def forked(args: tuple[str, ...], stdin: int, stdout: int, stderr: int) -> Iterator[Fork]:
    """Run `em` with these arguments and descriptors. One at a time; it is killed if left early."""
    parent, started_with = _parent()
    assert started_with == _read_at_start(), "start `python -m em`: a fork would not see this"
    os.umask(mask := os.umask(0))
    request = json.dumps([args, os.getcwd(), mask, dict(os.environ)]).encode()
    socket.send_fds(parent, [len(request).to_bytes(8)], [stdin, stdout, stderr])
    parent.sendall(request)
    fork = Fork(_number(parent), parent)
    try:
        yield fork
    except BaseException:
        os.kill(fork.pid, signal.SIGKILL)
        fork.wait()
        raise


@cache
def _parent() -> tuple[socket.socket, dict[str, str]]:
    """Start the process whose forks are the commands. It ends when this one does."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, __file__], stdin=theirs)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, _read_at_start()


def _read_at_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(READ_AT_START)}


def _number(sender: socket.socket) -> int:
    sent = sender.recv(8, socket.MSG_WAITALL)
    assert len(sent) == 8, "the process whose forks are the commands has ended"
    return int.from_bytes(sent, signed=True)


def _serve(asked: socket.socket) -> bool:
    """Fork for each request. Return True in a fork, and False when there are no more requests."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(asked, 8, 3)
        if not size:
            return False
        request = asked.recv(int.from_bytes(size), socket.MSG_WAITALL)
        pid = os.fork()
        if pid == 0:
            asked.close()
            _become(json.loads(request), descriptors)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        asked.sendall(pid.to_bytes(8, signed=True))
        _, status = os.waitpid(pid, 0)
        asked.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))


def _become(request: tuple[list[str], str, int, dict[str, str]], descriptors: list[int]) -> None:
    """Make this process what `python -m em` is before its first import."""
    args, folder, mask, environment = request
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.umask(mask)
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv[1:] = args
    sys.stdin = _stream(0, sys.stdin, "r")
    sys.stdout = _stream(1, sys.stdout, "w")
    sys.stderr = _stream(2, sys.stderr, "w")
    sys.stderr.reconfigure(line_buffering=True)


def _stream(descriptor: int, like: Any, mode: str) -> Any:
    """Return a stream as Python makes it: it writes line by line only on a terminal."""
    return open(descriptor, mode, encoding=like.encoding, errors=like.errors, closefd=False)


def main() -> None:
    """Load em, and serve requests from standard input."""
    from em.cli.root import COMMANDS

    asked = socket.socket(fileno=os.dup(0))
    for module in (*(place.partition(":")[0] for place, _ in COMMANDS.values()), *LOADED_LATER):
        import_module(module)
    gc.collect()
    gc.freeze()
    if _serve(asked):
        runpy.run_module("em", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
