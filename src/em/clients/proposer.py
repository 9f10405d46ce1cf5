"""Proposer: look for what recurs after sessions ended, beside the service and bounded in time.

To compile and prove takes a processor for a while, and hooks must be answered at once. So a process
of its own does it, with a low priority, and is ended if it takes too long. It only reads traces and
stores proposals: it calls no tool.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic

QUIET = 10.0
"""Seconds without a new session before it looks."""
MOST_SECONDS = 180.0
MOST_TRACES = 50
"""Sessions that are looked at together; a computer that was off may have many."""


class Proposer:
    """Starts a command with the traces that are new, once they are quiet; one at a time."""

    def __init__(self, command: Sequence[str], *, quiet: float = QUIET) -> None:
        self._command, self._quiet = command, quiet
        self._new: dict[str, None] = {}
        self._last = self._began = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, trace_ids: Iterable[str]) -> None:
        """Note traces that have news."""
        for trace_id in trace_ids:
            self._new[trace_id] = None
            self._last = monotonic()

    def look(self) -> None:
        """Start the command if it is time to, or end one that takes too long."""
        now = monotonic()
        if self._process is not None:
            if self._process.poll() is None and now - self._began > MOST_SECONDS:
                self._process.kill()
            if self._process.poll() is None:
                return
            self._process = None
        if not self._new or not self._command or now - self._last < self._quiet:
            return
        traces, self._new = [*self._new][-MOST_TRACES:], {}
        about = [part for trace_id in traces for part in ("--about", trace_id)]
        self._began = now
        self._process = subprocess.Popen(  # noqa: S603 - em's own command
            [*self._command, *about],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def end(self) -> None:
        """End a command that still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
