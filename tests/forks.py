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
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from typing import Any

LOADED_LATER = (
    "em.store.sqlite jsonschema_rs ahocorasick rich.cells uvicorn litestar em.serve.app".split()
)
"""What many commands load when they run, beside the modules of the commands."""

READ_AT_START = ("PYTHON", "LC_", "LANG")
"""How the names of variables start that Python reads before it runs anything."""


class Fork:
    """A running command, with the methods of a `Popen`."""

    def __init__(self, pid: int, over: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = over  # what the exit code is written to

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None and select.select([self._over], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends. The exit code of a killed one is the signal's number, negative."""
        if self.returncode is None:
            if not select.select([self._over], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("em", timeout or 0)
            self.returncode = _number(os.read(self._over, 8))
            os.close(self._over)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self.wait()


def start_em(*args: str, stdin: int, stdout: int, stderr: int, **env: str) -> Fork:
    """Start `em` with these arguments, descriptors and additions to the environment."""
    parent, started_with = _parent()
    environment = {**os.environ, **env}
    assert started_with == _read_at_start(environment), "run `python -m em`: no fork sees this"
    os.umask(mask := os.umask(0))
    request = json.dumps([args, os.getcwd(), mask, environment]).encode()
    over, told = os.pipe()
    socket.send_fds(parent, [len(request).to_bytes(8)], [stdin, stdout, stderr, told])
    os.close(told)
    parent.sendall(request)
    return Fork(_number(parent.recv(8, socket.MSG_WAITALL)), over)


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
    return ours, _read_at_start(dict(os.environ))


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _number(sent: bytes) -> int:
    assert len(sent) == 8, "the process whose forks are the commands has ended"
    return int.from_bytes(sent, signed=True)


def _serve(asked: socket.socket) -> bool:
    """Fork for each request. Return True in a fork, and False when there are no more requests."""
    running: dict[int, int] = {}  # the pid of each fork, and where to write its exit code
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    while True:
        ready = select.select([asked, ended], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            _tell_exit_codes(running)
        if asked not in ready:
            continue
        size, descriptors, _, _ = socket.recv_fds(asked, 8, 4)
        if not size:
            return False
        request = asked.recv(int.from_bytes(size), socket.MSG_WAITALL)
        *streams, told = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            for descriptor in (ended, wake, told, *running.values()):
                os.close(descriptor)
            _become(json.loads(request), streams)
            return True
        for descriptor in streams:
            os.close(descriptor)
        running[pid] = told
        asked.sendall(pid.to_bytes(8, signed=True))


def _tell_exit_codes(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = running.pop(pid)
        try:
            os.write(told, os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))
        except BrokenPipeError:
            pass  # nobody waits for this one
        finally:
            os.close(told)


def _become(request: tuple[list[str], str, int, dict[str, str]], streams: list[int]) -> None:
    """Make this process what `python -m em` is before its first import."""
    args, folder, mask, environment = request
    for place, descriptor in enumerate(streams):
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
    assert threading.active_count() == 1, "a fork would lack the other threads"
    if _serve(asked):
        runpy.run_module("em", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
