"""A confined process that runs code and answers calls over two pipes; bubblewrap and landlock."""

import json
import marshal
import os
import secrets
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, ClassVar

from em.errors import SandboxBroken, SandboxError
from em.runner.sandbox import sandbox
from em.runner.sandbox.inside import landlock, plain, seccomp, worker
from em.runner.sandbox.inside.worker import OUT_OF_MEMORY
from em.runner.sandbox.sandbox import (
    DEFAULT_LIMITS,
    Limits,
    Sandbox,
    SandboxSession,
    fault,
    no_such_function,
    plain_arguments,
    too_large,
    too_much_memory,
    too_slow,
)

START_SECONDS = 30.0
_HEAD = struct.Struct(">16sI")
_PACKAGE = "em.runner.sandbox.inside"
_INSIDE = (plain, landlock, seccomp, worker)
"""The modules of the process, each after those that it imports."""
_BOOT = f"""
import marshal, os, sys, types
requests, answers = int(sys.argv[1]), int(sys.argv[2])
def take(size):
    data = b""
    while len(data) < size:
        data += os.read(requests, size - len(data)) or sys.exit(0)
    return data
package = sys.modules["{_PACKAGE}"] = types.ModuleType("{_PACKAGE}")
for name, code in marshal.loads(take(int.from_bytes(take(4), "big"))):
    module = sys.modules["{_PACKAGE}." + name] = types.ModuleType("{_PACKAGE}." + name)
    setattr(package, name, module)
    exec(code, module.__dict__)
module.serve(requests, answers)
"""


@lru_cache(maxsize=1)
def _inside() -> bytes:
    """Return the compiled modules of the process, which can't read em's files itself."""
    codes = []
    for module in _INSIDE:
        get_code: Any = getattr(module.__loader__, "get_code", None)
        codes.append((module.__name__.removeprefix(f"{_PACKAGE}."), get_code(module.__name__)))
    data = marshal.dumps(codes)
    return len(data).to_bytes(4, "big") + data


@lru_cache(maxsize=1)
def _starter(_pid: int) -> ThreadPoolExecutor:
    """Return the one thread that starts every sandbox process.

    The kernel ends a child that dies with its parent when the thread that started it ends, so that
    thread must live as long as this process.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="em-sandbox")


class Process:
    """One confined Python process."""

    def __init__(self, command: Sequence[str], config: dict[str, Any], limits: Limits) -> None:
        self._limits = limits
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        python = ["-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, str(requests), str(answers)]
        try:
            self._popen = (
                _starter(os.getpid())
                .submit(
                    subprocess.Popen,
                    [*command, *python],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=(requests, answers),
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
                .result()
            )
        except OSError as error:
            os.close(self._requests)
            os.close(self._answers)
            raise SandboxBroken(f"can't start {command[0]}: {error.strerror}") from error
        finally:
            os.close(requests)
            os.close(answers)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        # End the process also if its session is never closed.
        self._owner = os.getpid()
        pipes = (self._requests, self._answers)
        self._finish = weakref.finalize(self, _end, self._owner, self._popen, *pipes)
        self._begin(config)

    def _begin(self, config: dict[str, Any]) -> None:
        deadline = time.monotonic() + START_SECONDS
        try:
            self._send(_inside(), deadline)
            answer = self.ask({**config, "parent": os.getpid()}, START_SECONDS)
        except SandboxError as error:
            complaint = self._complaint()
            reason = complaint or error.message
            raise SandboxBroken(f"can't start the process: {reason}") from None
        if not isinstance(answer, dict) or answer.get("failed"):
            self.end()
            raise SandboxBroken(f"can't confine the process: {answer}"[:500])

    def _complaint(self) -> str:
        """Return the last line that the process wrote to stderr before it could answer."""
        assert self._popen.stderr is not None
        self._popen.kill()
        text = self._popen.stderr.read(4000).decode(errors="replace").strip()
        self.end()
        return text.rpartition("\n")[2]

    def ask(self, request: dict[str, Any], seconds: float | None = None) -> Any:
        """Send a request and wait for the answer. End the process if anything goes wrong."""
        deadline = time.monotonic() + (seconds or self._limits.seconds)
        secret = secrets.token_bytes(16)
        data = json.dumps({**request, "secret": secret.hex()}, allow_nan=False).encode()
        try:
            self._send(struct.pack(">I", len(data)) + data, deadline)
            return self._answer(secret, deadline)
        except BaseException:
            if seconds is None:
                self.end()
            raise

    def _answer(self, secret: bytes, deadline: float) -> Any:
        found, size = _HEAD.unpack(self._receive(_HEAD.size, deadline))
        if found != secret:
            raise SandboxBroken("the process sent data that is not an answer")
        if size > self._limits.output_bytes + 4096:
            raise too_large(self._limits)
        return _decoded(self._receive(size, deadline))

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(self._requests, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._requests, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._ended() from None

    def _receive(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(self._answers, select.POLLIN, deadline)
            try:
                part = os.read(self._answers, min(size - len(data), 1 << 20))
            except BlockingIOError:
                continue
            if not part:
                raise self._ended()
            data += part
        return bytes(data)

    def _wait(self, pipe: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000 + 1):
            raise too_slow(self._limits)

    def _ended(self) -> SandboxError:
        try:
            code = self._popen.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return SandboxBroken("the process closed its pipe before it answered")
        # bubblewrap reports a signal as shells do: 128 + its number
        number = -code if code < 0 else code - 128
        if code == OUT_OF_MEMORY:
            return too_much_memory(self._limits)
        if number in signal.valid_signals():
            how = f"by {signal.Signals(number).name}"
        else:
            how = f"with exit code {code}"
        return SandboxBroken(f"the process ended {how} before it answered")

    @property
    def alive(self) -> bool:
        """Whether the process can take requests."""
        return self._finish.alive and self._owner == os.getpid()

    def kill(self) -> None:
        """Stop the process, also during a request; its pipes stay open until `end`."""
        if self._owner == os.getpid():
            self._popen.kill()

    def end(self) -> None:
        """End the process."""
        self._finish()


def _end(owner: int, popen: "subprocess.Popen[bytes]", *pipes: int) -> None:
    if owner != os.getpid():
        return  # this is a fork: only the original process may end its child
    popen.kill()
    popen.wait()
    if popen.stderr is not None:
        popen.stderr.close()
    for pipe in pipes:
        os.close(pipe)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise SandboxBroken("the process sent an invalid answer") from None


def _refuse(name: str) -> Any:
    raise ValueError(name)


class Confined(Sandbox):
    """A back end that runs code in a confined process; subclasses say how it is confined."""

    landlock: ClassVar[bool]

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts Python, without Python's arguments."""

    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> SandboxSession:
        """Open a session whose process starts with the first call."""
        return _ConfinedSession(self, code, limits)

    def start(self, limits: Limits) -> Process:
        """Start a confined process, without any code yet."""
        config = {
            "landlock": self.landlock,
            "paths": sandbox.readable() if self.landlock else (),
            "memory_bytes": limits.memory_bytes,
            "output_bytes": limits.output_bytes,
        }
        return Process(self.command(), config, limits)

    @classmethod
    def trial(cls) -> str:
        """Try the back end; return why it does not work here, or ""."""
        if not sandbox.interpreter():
            return "no Python interpreter was found"
        try:
            answer = cls().run("def works(): return 'yes'", "works", {})
        except SandboxError as error:
            return error.message
        return "" if answer == "yes" else "a trial call returned a wrong result"


class _ConfinedSession(SandboxSession):
    def __init__(self, sandbox: Confined, code: str, limits: Limits) -> None:
        self._sandbox, self._code, self._limits = sandbox, code, limits
        self._lock = threading.Lock()
        self._process: Process | None = None

    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        given, named = plain_arguments(function, args, positional)
        with self._lock:
            if self._process is None or not self._process.alive:
                self._process = self._started()
            request = {"function": function, "positional": given, "args": named}
            return self._result(self._process, self._process.ask(request), function)

    def _started(self) -> Process:
        """Start a process and define the code in it."""
        process = self._sandbox.start(self._limits)
        try:
            self._result(process, process.ask({"code": self._code}), "")
        except BaseException:
            process.end()
            raise
        return process

    def _result(self, process: Process, answer: Any, function: str) -> Any:
        failed = answer.get("failed", "") if isinstance(answer, dict) else "invalid"
        if not failed and "value" in answer:
            return answer["value"]
        if failed == "raised":
            return _raise(answer)
        if failed == "missing":
            raise no_such_function(function)
        if failed == "output":
            raise too_large(self._limits)
        process.end()
        if failed == "memory":
            raise too_much_memory(self._limits)
        raise SandboxBroken("the process sent an invalid answer")

    def close(self) -> None:
        process = self._process
        if process is not None:
            process.kill()  # another thread that waits for an answer gets an error at once
        with self._lock:
            if self._process is not None:
                self._process.end()
                self._process = None


def _raise(answer: dict[str, Any]) -> Any:
    try:
        kind, message, line = str(answer["type"]), str(answer["message"]), int(answer["line"])
    except (KeyError, TypeError, ValueError):
        raise SandboxBroken("the process sent an invalid answer") from None
    raise fault(kind, message, line)


_ALONE = (
    "--unshare-all --unshare-user --die-with-parent --new-session --clearenv --cap-drop ALL "
    "--uid 65534 --gid 65534 --hostname sandbox"
).split()


class Bubblewrap(Confined):
    """Own file system with a read-only Python; no network, no other process."""

    name: ClassVar[str] = "bubblewrap"
    landlock: ClassVar[bool] = False

    def command(self) -> list[str]:
        """Return bwrap with the folders that it shows, and Python."""
        return [*_prefix(), "--remount-ro", "/", "--chdir", "/", "--", sandbox.interpreter()]

    @classmethod
    @lru_cache(maxsize=1)
    def missing(cls) -> str:
        """Return why this back end can't be used here, or ""."""
        if sys.platform != "linux":
            return "it needs Linux"
        if shutil.which("bwrap") is None:
            return "bwrap is not installed (Debian: apt install bubblewrap)"
        if os.uname().machine not in seccomp.MACHINES:
            return f"its system call filter does not support {os.uname().machine}"
        return cls.trial()


@lru_cache(maxsize=1)
def _prefix() -> tuple[str, ...]:
    words = [str(shutil.which("bwrap")), *_ALONE]
    for path in (
        *sandbox.SYSTEM,
        *sandbox.shared_libraries(),
        sandbox.library(),
        sandbox.interpreter(),
    ):
        if os.path.islink(path) and os.path.isdir(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    for path in sandbox.hidden():
        words += ["--tmpfs", path, "--remount-ro", path]
    return tuple(words)


class Landlock(Confined):
    """The process confines itself before it gets the code."""

    name: ClassVar[str] = "landlock"
    landlock: ClassVar[bool] = True

    def command(self) -> list[str]:
        """Return Python alone; the worker confines itself."""
        return [sandbox.interpreter()]

    @classmethod
    @lru_cache(maxsize=1)
    def missing(cls) -> str:
        """Return why this back end can't be used here, or ""."""
        if sys.platform != "linux":
            return "it needs Linux"
        if os.uname().machine not in seccomp.MACHINES:
            return f"its system call filter does not support {os.uname().machine}"
        if not landlock.version():
            return "this kernel has no landlock"
        return cls.trial()
