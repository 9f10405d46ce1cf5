"""The confined process: drops its rights, then defines the code and serves calls.

It talks over two pipes; what the code prints is discarded. Every answer carries the secret of its
call, so that the caller can tell it from data that the code writes to the pipe.
"""

import json
import os
import resource
import signal
import struct
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from em.runner.sandbox.inside import landlock, seccomp
from em.runner.sandbox.inside.plain import plain

FILE = "<udf>"
OUT_OF_MEMORY = 86
"""Exit code of a process that had no memory left to report it."""

INTERPRETER = 96 * 1024 * 1024
"""Address space that Python needs for itself, beyond what the code may use."""

MAX_MESSAGE = 2_000
_SET_PDEATHSIG, _CAPSET = 1, {"x86_64": 126, "aarch64": 91}

Answer = dict[str, Any]


class Channel:
    """Reads requests (length, JSON) and writes answers (the call's secret, length, JSON)."""

    def __init__(self, requests: int, answers: int) -> None:
        # Bound once, so that code which patches these modules does not change them here.
        self._encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
        self._decode = json.JSONDecoder().decode
        self._requests, self._answers = requests, answers
        self._read, self._write = os.read, os.write
        self._pack, self._unpack = struct.pack, struct.unpack

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._read(self._requests, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def take(self) -> Any:
        """Read the next request."""
        (size,) = self._unpack(">I", self._take(4))
        return self._decode(self._take(size).decode())

    def encoded(self, answer: Answer) -> bytes:
        """Return an answer as bytes."""
        return self._encode(answer).encode()

    def give(self, secret: str, data: bytes) -> None:
        """Answer a call."""
        rest = memoryview(bytes.fromhex(secret) + self._pack(">I", len(data)) + data)
        while rest:
            rest = rest[self._write(self._answers, rest) :]


def confine(config: dict[str, Any]) -> None:
    """Drop every right that computing does not need."""
    machine = os.uname().machine
    if config["landlock"]:
        _die_with(config["parent"])
        _drop_capabilities(machine)
        landlock.restrict(config["paths"])
    memory = config["memory_bytes"] + INTERPRETER
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        hard = resource.getrlimit(limit)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bound, bound))
    seccomp.install(machine)


def _die_with(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # the parent died before the line above


def _drop_capabilities(machine: str) -> None:
    """Drop the capabilities that root has."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    if libc.syscall(_CAPSET[machine], header, ctypes.create_string_buffer(24)):
        raise OSError(ctypes.get_errno(), "capset: " + os.strerror(ctypes.get_errno()))


def define(module: types.ModuleType, code: str) -> None:
    """Run the code as a module of its own."""
    sys.modules[module.__name__] = module
    exec(compile(code, FILE, "exec"), vars(module))  # noqa: S102 - this is the sandbox


def answer_to(work: Callable[[], Any], channel: Channel, output_bytes: int) -> bytes:
    """Do the work of a request and return the answer as bytes."""
    try:
        data = channel.encoded({"value": plain(work())})
        if len(data) > output_bytes + 64:
            data = channel.encoded({"failed": "output"})
    except MemoryError:
        return channel.encoded({"failed": "memory"})
    except BaseException as error:  # noqa: BLE001 - the code may raise anything; the caller gets it
        return channel.encoded(_failure(error))
    return data


def _failure(error: BaseException) -> Answer:
    try:
        message = str(error)[:MAX_MESSAGE].encode(errors="replace").decode()
    except BaseException:  # noqa: BLE001 - the code's own exception may have a broken __str__
        message = ""
    line = (error.lineno or 0) if isinstance(error, SyntaxError) else 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    kind = type(error).__name__[:200]
    return {"failed": "raised", "type": kind, "message": message, "line": line}


def serve(requests: int, answers: int) -> None:
    """Serve calls until the caller closes its pipe."""
    os.dup2(0, 1)
    os.dup2(0, 2)
    channel = Channel(requests, answers)
    config = channel.take()
    try:
        confine(config)
    except OSError as error:
        channel.give(config["secret"], channel.encoded(_failure(error)))
        return
    # The code imports its own copies of these modules.
    for name in [name for name in sys.modules if name.partition(".")[0] in ("json", "em")]:
        del sys.modules[name]
    channel.give(config["secret"], channel.encoded({"value": None}))
    try:
        _serve(channel, config["output_bytes"])
    except EOFError:
        os._exit(0)  # the caller closed its pipe
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _serve(channel: Channel, output_bytes: int) -> None:
    module = types.ModuleType("udf")
    while True:
        request = channel.take()
        if "code" in request:
            answer = answer_to(partial(define, module, request["code"]), channel, output_bytes)
        elif not callable(vars(module).get(request["function"])):
            answer = channel.encoded({"failed": "missing"})
        else:
            function = vars(module)[request["function"]]
            work = partial(function, *request["positional"], **request["args"])
            answer = answer_to(work, channel, output_bytes)
        channel.give(request["secret"], answer)
