"""The service under many connections, over four processes, and while they are replaced."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.server import postgres_address

WORKERS = 4
WARM_UP = 5.0
"""Seconds in which each process loads what it needs for its first requests."""


class Size(NamedTuple):
    connections: int
    seconds: float
    restarts: int


SIZES = {"quick": Size(64, 20, 1), "whole": Size(64, 600, 20)}


class Service:
    """`em serve --workers 4`, and what its supervisor says."""

    def __init__(self, db: str) -> None:
        command = [sys.executable, "-m", "em", "serve", "--port", "0", "--workers", str(WORKERS)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, env={**os.environ, "EM_DB": db}
        )
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(lambda: len(self.said("ready")) == WORKERS)
        self.port = self.lines[0]["port"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if b'"event":"request"' not in line:
                self.lines.append(json.loads(line))

    def said(self, state: str) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if line.get("state") == state]

    def wait(self, holds: Any) -> None:
        while not holds():
            if self.process.poll() is not None:
                raise SystemExit(f"the service has ended: {self.lines[-3:]}")
            time.sleep(0.05)

    def replace(self) -> None:
        """Replace all processes, and wait until the old ones have ended."""
        ended = len(self.said("ended")) + WORKERS
        self.process.send_signal(signal.SIGHUP)
        self.wait(lambda: len(self.said("ended")) >= ended)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._reader.join()


class Load:
    """Connections that send the next request when they have the answer to the last."""

    def __init__(self, port: int, lesson: str) -> None:
        self._port = port
        self._lesson = lesson
        self._over = False
        self.seconds: list[float] = []
        self.kept: set[str] = set()
        self.errors = 0
        self.unanswered = 0

    async def run(self, connections: int, until: Any) -> None:
        """Send requests while `until` runs."""
        tasks = [asyncio.create_task(self._client(number)) for number in range(connections)]
        await until
        self._over = True
        await asyncio.gather(*tasks)

    async def _client(self, number: int) -> None:
        count = 0
        while not self._over:
            async with _connection(self._port) as (reader, writer):
                is_open = True
                while is_open and not self._over:
                    count += 1
                    began = time.perf_counter()
                    try:
                        is_open = await self._ask(reader, writer, number, count)
                    except (OSError, asyncio.IncompleteReadError):
                        self.unanswered += 1
                        break
                    self.seconds.append(time.perf_counter() - began)

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, count: int
    ) -> bool:
        """Send one request; return whether the connection stays open."""
        body = b""
        head = f"GET /heuristics/{self._lesson} HTTP/1.1\r\n"
        if count % 3 == 0:
            said = {"subject": f"s{number}", "text": f"thing {count} of {number}"}
            body = json.dumps(said).encode()
            head = "POST /observations HTTP/1.1\r\nContent-Type: application/json\r\n"
            head += f"Idempotency-Key: {os.getpid()}-{number}-{count}\r\n"
        head += f"Host: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        header = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(header.partition(b"content-length:")[2].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        status = int(header.split(b" ", 2)[1])
        if status not in (200, 201):
            self.errors += 1
        elif body:
            self.kept.add(json.loads(answer)["id"])
        return b"connection: close" not in header


@contextlib.asynccontextmanager
async def _connection(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def figures(size: str) -> Iterator[Figure]:
    from em import Memory
    from em.heuristics.heuristic import Lesson

    wanted = SIZES[size]
    with tempfile.TemporaryDirectory() as folder, postgres_address() as db:
        os.chdir(folder)
        with Memory(db) as memory:
            lesson = Lesson(trigger="an insert fails", action="insert the parent row first")
            (kept,) = memory.heuristics.keep([lesson])
        service = Service(db)
        try:
            warm_up = Load(service.port, kept.id)
            asyncio.run(warm_up.run(wanted.connections, asyncio.sleep(WARM_UP)))
            load = Load(service.port, kept.id)
            asyncio.run(load.run(wanted.connections, asyncio.sleep(wanted.seconds)))
            yield from _steady(load, wanted, _stored(db))
            rolled = Load(service.port, kept.id)
            asyncio.run(rolled.run(wanted.connections, _replace(service, wanted.restarts)))
        finally:
            service.stop()
        lost = rolled.unanswered + rolled.errors + len(rolled.kept - _stored(db))
        os.chdir("/")
    what = f"requests lost in {wanted.restarts} rolling restarts, {wanted.connections} connections"
    yield Figure(what, lost, "answered", len(rolled.seconds), "", lost, 0, False)


def _stored(db: str) -> set[str]:
    from em import Memory

    with Memory(db) as memory:
        return {event.id for event in memory.log.read()}


async def _replace(service: Service, restarts: int) -> None:
    for _ in range(restarts):
        await asyncio.to_thread(service.replace)


def _steady(load: Load, wanted: Size, stored: set[str]) -> Iterator[Figure]:
    times = sorted(load.seconds)
    median, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    where = f"{wanted.connections} connections, {WORKERS} processes, {wanted.seconds:g} s"
    failed = load.errors + load.unanswered
    yield Figure(f"errors, {where}", failed, "answered", len(times), "", failed, 0, False)
    lost = len(load.kept - stored)
    yield Figure("acknowledged writes lost", lost, "written", len(load.kept), "", lost, 0, False)
    yield Figure(
        f"p99, {where}", p99 * 1e3, "median", median * 1e3, "ms", p99 / median, 10.0, False
    )
