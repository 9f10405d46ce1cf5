"""Programs that a loop runs: the agent, and the check that decides whether the goal is reached."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

import msgspec

from em.errors import UsageError

PROMPT = "{prompt}"
LONGEST_TRANSCRIPT = 1_000_000
TAIL = 2_000


class Ran(msgspec.Struct, frozen=True):
    """What became of a program. `exit_code` None: it ran longer than it may."""

    exit_code: int | None
    output: str
    errors: str
    seconds: float

    @property
    def problem(self) -> str:
        """Why it counts as failed; empty where it does not."""
        if self.exit_code == 0:
            return ""
        how = "ran out of time" if self.exit_code is None else f"exit code {self.exit_code}"
        said = (self.errors.strip() or self.output.strip())[-TAIL:]
        return f"{how}: {said}" if said else how

    @property
    def transcript(self) -> str:
        """All that it wrote."""
        return "\n".join(filter(None, (self.output.strip("\n"), self.errors.strip("\n"))))


def run_agent(command: str, prompt: str, environ: Mapping[str, str], timeout: float | None) -> Ran:
    """Run any program: the prompt takes the place of `{prompt}`, else it is its standard input."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"this is no command: {error}", place="agent") from None
    if not words:
        raise UsageError("there is no command", place="agent", fix="name a program")
    named = any(PROMPT in word for word in words)
    args = [word.replace(PROMPT, prompt) for word in words]
    return _run(args, "" if named else prompt, environ, timeout, "agent")


def run_check(command: str, environ: Mapping[str, str], timeout: float | None) -> Ran:
    """Run a check as the shell does: exit code 0 means that the goal is reached."""
    return _run(["/bin/sh", "-c", command], "", environ, timeout, "until")


def _run(
    args: Sequence[str],
    given: str,
    environ: Mapping[str, str],
    timeout: float | None,
    place: str,
) -> Ran:
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(  # noqa: S603 - running the user's own command is the job
                args,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env={**os.environ, **environ},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"it can't be started: {error}", place=place) from None
        too_long = False
        try:
            process.communicate(given.encode(), timeout)
        except subprocess.TimeoutExpired:
            too_long = True
        finally:
            # Also on Ctrl-C, and for what the program itself left running.
            _end(process)
        code = None if too_long else process.returncode
        return Ran(code, _text(out), _text(err), time.perf_counter() - started)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _text(file: IO[bytes]) -> str:
    """What was written; of very much, the beginning and the end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= LONGEST_TRANSCRIPT:
        return file.read().decode(errors="replace")
    half = LONGEST_TRANSCRIPT // 2
    first = file.read(half)
    file.seek(size - half)
    return (first + b"\n[...]\n" + file.read()).decode(errors="replace")
