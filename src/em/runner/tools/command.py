"""Run programs for command tools: without a shell, bounded in time and output.

A program runs in a process group of its own, which is killed at the end: nothing is left running.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import IO

from em.runner.run import StepTimeout, UnknownOutcome

MAX_OUTPUT = 10 * 1024 * 1024
TAIL = 2000
_BLOCK = 65536
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class CommandFailed(Exception):
    """A program could not start, failed, ran too long or printed too much."""


class CommandTimeout(CommandFailed, StepTimeout):
    """A program ran too long: its outcome is unknown."""


class CommandKilled(CommandFailed, UnknownOutcome):
    """A program was killed, or printed too much and was ended: its outcome is unknown."""


def plain_environment() -> dict[str, str]:
    """The variables of em's environment that every program gets."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def run_command(
    argv: Sequence[str],
    program: str,
    *,
    timeout: float,
    env: Mapping[str, str],
    accept: Collection[int] = (0,),
) -> bytes:
    """Run a program and return what it prints. Beside PLAIN variables it gets those of `env`.

    accept: the exit codes that are no failure.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - an allowed program, no shell
            argv,
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**plain_environment(), **env},
            # A process group of its own: what the program starts is killed with it.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{argv[0]} can't be run: {error}") from None
    deadline = time.monotonic() + timeout
    try:
        output, errors = _read(process, argv[0], deadline, timeout)
        # It may have closed its output before it ends.
        code = _ended(process, argv[0], deadline, timeout)
    finally:
        _end(process)
    if code not in accept:
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        said = errors.decode(errors="replace").strip()
        kind = CommandKilled if code < 0 else CommandFailed
        raise kind(f"{argv[0]} ended {how}: {said}" if said else f"{argv[0]} ended {how}")
    return output


def _read(
    process: "subprocess.Popen[bytes]", name: str, deadline: float, timeout: float
) -> tuple[bytes, bytes]:
    """Return all of standard output, and the tail of standard error."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, output)
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise CommandTimeout(f"{name} took longer than {timeout:g} s")
            ready = selector.select(min(left, 0.1))
            if not ready and _is_over(process):
                break  # something that it started holds its output
            for key, _ in ready:
                block = _block(key.fileobj)  # type: ignore[arg-type]  # they are what was registered
                if not block:
                    selector.unregister(key.fileobj)
                key.data.extend(block)
            del errors[:-TAIL]
            if len(output) > MAX_OUTPUT:
                raise CommandKilled(f"{name} printed more than {MAX_OUTPUT:,} bytes")
    return bytes(output), bytes(errors)


def _block(pipe: IO[bytes]) -> bytes:
    return os.read(pipe.fileno(), _BLOCK)


def _is_over(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether the process ended. It is not reaped, so its id is not reused."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def _ended(process: "subprocess.Popen[bytes]", name: str, deadline: float, timeout: float) -> int:
    pause = 0.0005
    while not _is_over(process):
        if time.monotonic() > deadline:
            raise CommandTimeout(f"{name} took longer than {timeout:g} s")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    # Before it is reaped: as long as it is not, its group is nobody else's.
    _kill_group(process)
    return process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        _kill_group(process)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    # Both say that nobody is left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
