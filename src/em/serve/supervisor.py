"""The supervisor of a service with several processes.

It binds the socket and starts processes that all accept connections from it. While one of them
stops or is dead, the connections wait in the socket's queue and the others take them: none is lost.
SIGTERM and SIGINT stop the service. SIGHUP replaces the processes one by one, each only once its
successor is ready: new code and settings come into use and no request fails. A process that dies is
started again, after a pause that grows while it dies at once.

Why not uvicorn's own supervisor: it closes idle connections the moment it stops a process, so a
request that a client sends just then is lost, and it restarts a process that can't start without
a pause.
"""

import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from em.errors import StoreError
from em.serve.guard import log_line
from em.serve.process import READY, REPLACED, Order
from em.settings import ApiSettings

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
LONG_LIFE = 10.0
"""Seconds after which a process that dies has not died at once."""
START_SECONDS = 300.0
"""Seconds within which a process must be ready."""
GRACE = 10.0
"""Seconds beyond those of the settings, before a process that should stop is killed."""


class Child:
    """A process of the service."""

    def __init__(self, listener: socket.socket, order: Order) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (listener.fileno(), theirs.fileno())
            command = [sys.executable, "-P", "-m", "em.serve.process", *map(str, fds)]
            # A group of its own: Ctrl-C in a terminal reaches the supervisor alone.
            self.process = subprocess.Popen(command, pass_fds=fds, process_group=0)  # noqa: S603 - this Python and this package
        self.control = ours
        self.began = time.monotonic()
        self.is_ready = False
        self.kill_at = float("inf")
        ours.sendall(msgspec.json.encode(order) + b"\n")
        ours.setblocking(False)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def hear(self) -> bool:
        """Take what the process says; return whether it is still there."""
        try:
            word = self.control.recv(64)
        except BlockingIOError:
            return True
        except OSError:
            word = b""
        self.is_ready = self.is_ready or word == READY
        return bool(word)

    def replace(self, within: float) -> None:
        """Let it end, since its successor has taken over."""
        self.kill_at = time.monotonic() + within
        with suppress(OSError):
            self.control.send(REPLACED)

    def stop(self, within: float) -> None:
        """Let it end, with the whole service."""
        self.kill_at = min(self.kill_at, time.monotonic() + within)
        with suppress(ProcessLookupError):
            self.process.terminate()

    def end(self) -> int:
        """Return the exit code of a process whose socket has closed: it has just ended."""
        self.control.close()
        return self.process.wait()


class _Place:
    """The place of one process, which others take one after another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        self.successor: Child | None = None
        self.deaths = 0
        """How often in a row the process died at once."""
        self.start_at = 0.0


class Supervisor:
    """Keeps the processes of one service running."""

    def __init__(self, listener: socket.socket, db: str | None, api: ApiSettings) -> None:
        self._listener = listener
        port = listener.getsockname()[1]
        self._order = Order(db, api.host, port, api.workers, tempfile.mkdtemp(prefix="em-serve-"))
        self._stop_within = api.linger_seconds + api.stop_seconds + GRACE
        self._replace_within = api.keep_alive_seconds + api.stop_seconds + GRACE
        self._places = [_Place(number) for number in range(api.workers)]
        self._leaving: list[Child] = []
        self._to_replace: list[_Place] = []
        self._selector = selectors.DefaultSelector()
        self._is_stopping = False
        self._has_begun = False
        self._failed = False

    def run(self) -> int:
        """Supervise until SIGINT or SIGTERM, and until every process has ended."""
        try:
            with self._signals():
                while not (self._is_stopping and not self._children()):
                    self._start_and_kill()
                    for key, _ in self._selector.select(self._pause()):
                        self._handle(key.data)
        finally:
            shutil.rmtree(self._order.counts, ignore_errors=True)
        if self._failed:
            raise StoreError("the service could not start; see its log")
        log_line(level="info", event="stopped", workers=len(self._places))
        return 0

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into bytes of a socket that the selector watches."""
        ours, theirs = socket.socketpair()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            handlers = {
                number: signal.signal(number, lambda _number, _frame: None) for number in numbers
            }
            self._selector.register(ours, selectors.EVENT_READ, ours)
            try:
                yield
            finally:
                self._selector.close()
                signal.set_wakeup_fd(before)
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def _children(self) -> list[Child]:
        current = [child for place in self._places for child in (place.child, place.successor)]
        return [child for child in (*current, *self._leaving) if child is not None]

    def _pause(self) -> float:
        """Return how long nothing is to be done."""
        moments = [child.kill_at for child in self._children()]
        if not self._is_stopping:
            moments += [place.start_at for place in self._places if place.child is None]
        starting = [child for child in self._children() if not child.is_ready]
        moments += [child.began + START_SECONDS for child in starting]
        return min(max(min(moments, default=0.0) - time.monotonic(), 0.0), 3_600.0)

    def _start_and_kill(self) -> None:
        """Start the processes that are missing, and kill those that had time enough."""
        moment = time.monotonic()
        for place in self._places:
            if place.child is None and moment >= place.start_at and not self._is_stopping:
                place.child = self._start(place)
        for child in self._children():
            late = not child.is_ready and moment > child.began + START_SECONDS
            if moment > child.kill_at or late:
                _say("killed", child, level="error", reason="not ready" if late else "still busy")
                child.process.kill()
                child.kill_at = float("inf")
                child.is_ready = True  # kill it once; its socket closes now

    def _start(self, place: _Place) -> Child:
        child = Child(self._listener, self._order)
        self._selector.register(child.control, selectors.EVENT_READ, child)
        _say("started", child, place=place.number)
        return child

    def _handle(self, source: "Child | socket.socket") -> None:
        if isinstance(source, socket.socket):
            for number in source.recv(64):
                self._obey(number)
            return
        was_ready = source.is_ready
        if not source.hear():
            self._ended(source)
        elif source.is_ready and not was_ready:
            self._ready(source)

    def _obey(self, number: int) -> None:
        if number == signal.SIGHUP:
            if not self._is_stopping and not self._to_replace:
                log_line(level="info", event="replacing", workers=len(self._places))
                self._to_replace = list(self._places)
                self._replace_next()
        elif number in (signal.SIGINT, signal.SIGTERM):
            self._stop()

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._to_replace = []
            # The processes have it too. Once they have closed it, clients are refused, not queued.
            self._listener.close()
        for child in self._children():
            child.stop(self._stop_within)

    def _replace_next(self) -> None:
        """Start the successor of the next process; a dead one is started anew anyway."""
        while self._to_replace and self._to_replace[0].child is None:
            self._to_replace.pop(0)
        if self._to_replace:
            place = self._to_replace[0]
            place.successor = self._start(place)
        else:
            log_line(level="info", event="replaced", workers=len(self._places))

    def _ready(self, child: Child) -> None:
        place = self._place_of(child)
        _say("ready", child, place=place.number)
        self._has_begun = True
        if child is not place.successor:
            return
        old, place.child, place.successor = place.child, child, None
        if old is not None:
            self._leaving.append(old)
            old.replace(self._replace_within)
        if self._to_replace and self._to_replace[0] is place:
            self._to_replace.pop(0)
            self._replace_next()

    def _ended(self, child: Child) -> None:
        self._selector.unregister(child.control)
        code = child.end()
        if child in self._leaving:
            self._leaving.remove(child)
            _say("ended", child, code=code)
            return
        place = self._place_of(child)
        if self._is_stopping:
            _say("ended", child, code=code)
        elif child is place.successor:
            _say("failed", child, level="error", code=code, message="its predecessor goes on")
            self._to_replace = []
        elif not child.is_ready and not self._has_begun:
            _say("failed", child, level="error", code=code)
            self._failed = True
            self._stop()
        else:
            self._died(place, child, code)
        if child is place.successor:
            place.successor = None
        else:
            place.child = None

    def _died(self, place: _Place, child: Child, code: int) -> None:
        lived = time.monotonic() - child.began
        place.deaths = 1 if lived > LONG_LIFE else place.deaths + 1
        pause = min(FIRST_PAUSE * 2 ** (place.deaths - 1), LONGEST_PAUSE)
        place.start_at = time.monotonic() + pause
        _say("died", child, level="error", code=code, starts_in=pause)

    def _place_of(self, child: Child) -> _Place:
        return next(place for place in self._places if child in (place.child, place.successor))


def _say(what: str, child: Child, *, level: str = "info", **fields: object) -> None:
    log_line(level=level, event="process", state=what, pid=child.pid, **fields)
