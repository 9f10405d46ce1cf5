"""Processes of Python that start fast: forks of one that has em loaded.

A fork has its own arguments, folder, environment and standard streams. Its imports were done
before, and at its end Python does not take its modules apart: that takes longer than most commands.
A test of either, or of what Python itself reads when it starts, starts `sys.executable` instead.
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
import tempfile
import threading
import time
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.children import LIMIT

COMMAND = "em.store.sqlite jsonschema_rs ahocorasick rich.cells"
"""What commands load when they run, beside the modules of all commands."""

SERVICE = (
    f"{COMMAND} em.serve.app em.serve.mcp.server litestar.plugins.attrs litestar.plugins.pydantic "
    "uvicorn.lifespan.on uvicorn.protocols.http.h11_impl uvicorn.protocols.websockets.auto"
)
"""What the service loads."""

QUEUE = f"{COMMAND} dbos em.work.worker psycopg"
"""What workers and the commands of the queue load."""

ROOT = Path(__file__).parent.parent
READ_AT_START = ("PYTHON", "LC_", "LANG")
"""How the names of variables start that Python reads before it runs anything."""


class Fork:
    """A running process, with the methods of a `Popen`."""

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
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
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


class Ran(NamedTuple):
    """What a process that has ended left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output, as JSON."""
        return json.loads(self.out)


def run_python(*args: str, stdin: str | bytes = b"", **env: str) -> Ran:
    """Run Python with these arguments and additions to the environment."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.seek(0)
        streams = {"stdin": given.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        with start_python(*args, **streams, **env) as process:
            code = process.wait(LIMIT)
        out.seek(0)
        err.seek(0)
        return Ran(code, out.read().decode(), err.read().decode())


def start_python(
    *args: str, stdin: int, stdout: int, stderr: int, loaded: str = COMMAND, **env: str
) -> Fork:
    """Start Python with `-m MODULE`, `-c CODE` or a script, and these descriptors and modules."""
    parent, started_with = _parent(loaded)
    environment = {**os.environ, **env}
    assert started_with == _read_at_start(environment), "start sys.executable: no fork sees this"
    os.umask(mask := os.umask(0))
    request = json.dumps([args, os.getcwd(), mask, environment]).encode()
    over, told = os.pipe()
    socket.send_fds(parent, [len(request).to_bytes(8)], [stdin, stdout, stderr, told])
    os.close(told)
    parent.sendall(request)
    return Fork(_number(parent.recv(8, socket.MSG_WAITALL)), over)


@cache
def _parent(loaded: str) -> tuple[socket.socket, dict[str, str]]:
    """Start the process whose forks the others are. It ends when this one does."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", __name__, *loaded.split()]
    process = subprocess.Popen(command, stdin=theirs, cwd=ROOT)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, _read_at_start(dict(os.environ))


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _number(sent: bytes) -> int:
    assert len(sent) == 8, "the process whose forks the others are has ended"
    return int.from_bytes(sent, signed=True)


def _serve(asked: socket.socket) -> list[str]:
    """Fork for each request. Return the arguments in a fork, and none after the last request."""
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
            return []
        request = asked.recv(int.from_bytes(size), socket.MSG_WAITALL)
        *streams, told = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            for descriptor in (ended, wake, told, *running.values()):
                os.close(descriptor)
            return _become(json.loads(request), streams)
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


def _become(request: tuple[list[str], str, int, dict[str, str]], streams: list[int]) -> list[str]:
    """Make this process what Python is before it runs anything; the arguments."""
    args, folder, mask, environment = request
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.umask(mask)
    os.chdir(folder)
    sys.stdin = _stream(0, sys.stdin, "r")
    sys.stdout = _stream(1, sys.stdout, "w")
    sys.stderr = _stream(2, sys.stderr, "w")
    sys.stderr.reconfigure(line_buffering=True)
    return args


def _stream(descriptor: int, like: Any, mode: str) -> Any:
    """Return a stream as Python makes it: it writes line by line only on a terminal."""
    return open(descriptor, mode, encoding=like.encoding, errors=like.errors, closefd=False)


def _run(how: str, *args: str) -> None:
    """Do what Python does with its arguments."""
    if how == "-m":
        sys.argv, sys.path[0] = list(args), os.getcwd()
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv, sys.path[0] = ["-c", *args[1:]], ""
        exec(compile(args[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [how, *args], os.path.dirname(how)
        runpy.run_path(how, run_name="__main__")


def _end(ended_by: BaseException | None) -> None:
    """End as Python ends: threads are waited for, exit functions called, streams flushed."""
    code = 0
    if isinstance(ended_by, SystemExit):
        code = ended_by.code if isinstance(ended_by.code, int) else int(ended_by.code is not None)
        if code and not isinstance(ended_by.code, int):
            print(ended_by.code, file=sys.stderr)
    elif ended_by:
        traceback.print_exception(ended_by)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main() -> None:
    """Load em, and serve requests from standard input."""
    from em.cli.root import COMMANDS

    asked = socket.socket(fileno=os.dup(0))
    for module in (*(place.partition(":")[0] for place, _ in COMMANDS.values()), *sys.argv[1:]):
        import_module(module)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a fork would lack the other threads"
    if args := _serve(asked):
        ended_by: BaseException | None = None
        try:
            _run(*args)
        except BaseException as error:  # noqa: BLE001 - this is where a process ends
            ended_by = error
        _end(ended_by)


if __name__ == "__main__":
    main()
