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
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.children import LIMIT

COMMAND = "em.store.sqlite jsonschema_rs re2 rich.cells"
"""What commands load when they run, beside the modules of all commands."""

SERVICE = (
    f"{COMMAND} em.serve.app em.serve.mcp.server litestar.plugins.attrs litestar.plugins.pydantic "
    "uvicorn.lifespan.on uvicorn.protocols.http.h11_impl uvicorn.protocols.websockets.auto"
)
"""What the service loads."""

QUEUE = f"{COMMAND} em.work.worker psycopg"
"""What workers and the commands of the queue load."""

ROOT = Path(__file__).parent.parent
READ_AT_START = ("PYTHON", "LC_", "LANG")
"""How the names of variables start that Python reads before it runs anything."""


class Fork:
    """A running process, with the methods of a `Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = _number(connection)
        self.returncode: int | None = None
        self._connection = connection  # closing it kills the process

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends. The exit code of a killed one is the signal's number, negative."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
            self.returncode = _number(self._connection)
            self._connection.close()
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
    address, started_with = _parent(loaded)
    environment = {**os.environ, **env}
    assert started_with == _read_at_start(environment), "start sys.executable: no fork sees this"
    return _request(address, args, environment, (stdin, stdout, stderr))


def command_line(*args: str, loaded: str = COMMAND) -> list[str]:
    """Return a command like `python ARGS` for a program that starts its processes itself."""
    code = f"import sys; sys.path.append({str(ROOT)!r}); import tests.forks as f; f.stand_in()"
    return [sys.executable, "-I", "-S", "-c", code, _parent(loaded)[0], *args]


def stand_in() -> None:
    """Stand in for a fork: give it the streams, pass signals on to it, and end as it ends."""
    address, *args = sys.argv[1:]
    fork = _request(address, tuple(args), dict(os.environ), (0, 1, 2))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os.kill(fork.pid, number))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    code = fork.wait()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _request(
    address: str, args: tuple[str, ...], environment: dict[str, str], streams: tuple[int, ...]
) -> Fork:
    os.umask(mask := os.umask(0))
    request = json.dumps([args, os.getcwd(), mask, environment]).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [len(request).to_bytes(8)], streams)
    connection.sendall(request)
    return Fork(connection)


@cache
def _parent(loaded: str) -> tuple[str, dict[str, str]]:
    """Start the process whose forks the others are; its address. It ends when this one does."""
    folder = tempfile.TemporaryDirectory(prefix="em-forks-")
    address = f"{folder.name}/asked"
    life = socket.socket(socket.AF_UNIX)
    with socket.socket(socket.AF_UNIX) as asked:
        asked.bind(address)
        asked.listen()
        life.connect(address)
        command = [sys.executable, "-m", __name__, *loaded.split()]
        process = subprocess.Popen(command, stdin=asked, cwd=ROOT)

    def end() -> None:
        life.close()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return address, _read_at_start(dict(os.environ))


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _number(sender: socket.socket) -> int:
    sent = sender.recv(8, socket.MSG_WAITALL)
    assert len(sent) == 8, "the process whose forks the others are has ended"
    return int.from_bytes(sent, signed=True)


def _serve(asked: socket.socket) -> list[str]:
    """Fork for each request. Return the arguments in a fork, and none when the tests have ended."""
    life, _ = asked.accept()
    clients: dict[int, socket.socket] = {}  # who is told the exit code of each fork
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    while True:
        ready = select.select([asked, life, ended, *clients.values()], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            _tell_exit_codes(clients)
        for pid in [pid for pid, client in clients.items() if life in ready or client in ready]:
            os.kill(pid, signal.SIGKILL)  # who started it has left
            clients.pop(pid).close()
        if life in ready:
            return []
        if asked not in ready:
            continue
        client, _ = asked.accept()
        size, streams, _, _ = socket.recv_fds(client, 8, 3)
        request = client.recv(int.from_bytes(size), socket.MSG_WAITALL)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for connection in (asked, life, client, *clients.values()):
                connection.close()
            os.close(ended)
            os.close(wake)
            return _become(json.loads(request), streams)
        for descriptor in streams:
            os.close(descriptor)
        clients[pid] = client
        client.sendall(pid.to_bytes(8, signed=True))


def _tell_exit_codes(clients: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in clients:
            with clients.pop(pid) as client, suppress(OSError):  # nobody may wait for this one
                client.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))


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
    for module in (*(place.partition(":")[0] for place in COMMANDS.values()), *sys.argv[1:]):
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
