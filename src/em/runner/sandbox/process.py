"""A process that runs confined code: started, asked over two pipes of its own, and ended."""

import importlib.util
import json
import marshal
import os
import secrets
import select
import signal
import struct
import subprocess
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from em.errors import SandboxBroken, SandboxError
from em.runner.sandbox.faults import too_large, too_much_memory, too_slow
from em.runner.sandbox.inside.worker import OUT_OF_MEMORY
from em.runner.sandbox.sandbox import Limits

START_SECONDS = 30.0
_HEAD = struct.Struct(">16sI")
_PACKAGE = "em.runner.sandbox.inside"
_INSIDE = ("plain", "landlock", "seccomp", "worker")
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
    """What runs inside, compiled: em itself can't be read from there."""
    codes = []
    for name in _INSIDE:
        spec = importlib.util.find_spec(f"{_PACKAGE}.{name}")
        assert spec is not None
        get_code: Any = getattr(spec.loader, "get_code", None)
        codes.append((name, get_code(spec.name)))
    data = marshal.dumps(codes)
    return len(data).to_bytes(4, "big") + data


@lru_cache(maxsize=1)
def _starter(_pid: int) -> ThreadPoolExecutor:
    """One thread of this process that starts all others.

    A child that is to die with its parent dies with the thread that started it; this one stays.
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
            raise SandboxBroken(f"{command[0]} can't be started: {error.strerror}") from error
        finally:
            os.close(requests)
            os.close(answers)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        # Also where nobody closes the session: nothing runs on behind its back.
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
            said = self._complaint()
            raise SandboxBroken(f"it can't be started: {said or error.message}") from None
        if not isinstance(answer, dict) or answer.get("failed"):
            self.end()
            raise SandboxBroken(f"it can't be confined: {answer}"[:500])

    def _complaint(self) -> str:
        """What was said on stderr before the process could speak."""
        assert self._popen.stderr is not None
        self._popen.kill()
        said = self._popen.stderr.read(4000).decode(errors="replace").strip()
        self.end()
        return said.rpartition("\n")[2]

    def ask(self, request: dict[str, Any], seconds: float | None = None) -> Any:
        """Ask, and wait for the answer. Whatever goes wrong, the process is ended."""
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
            raise SandboxBroken("something else than an answer came from its process")
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
            return SandboxBroken("its process closed its pipe before it answered")
        # bubblewrap tells of a signal as shells do
        number = -code if code < 0 else code - 128
        if code == OUT_OF_MEMORY:
            return too_much_memory(self._limits)
        if number in signal.valid_signals():
            how = f"by {signal.Signals(number).name}"
        else:
            how = f"with exit code {code}"
        return SandboxBroken(f"its process ended {how} before it answered")

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._finish.alive and self._owner == os.getpid()

    def kill(self) -> None:
        """Stop the process, also while it is being asked; its pipes stay until `end`."""
        if self._owner == os.getpid():
            self._popen.kill()

    def end(self) -> None:
        """End the process."""
        self._finish()


def _end(owner: int, popen: "subprocess.Popen[bytes]", *pipes: int) -> None:
    if owner != os.getpid():
        return  # a fork of who started it: the process is not ours to end
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
        raise SandboxBroken("its process answered with nonsense") from None


def _refuse(name: str) -> Any:
    raise ValueError(name)
