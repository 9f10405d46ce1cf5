"""The service under load, beside a bare endpoint of its framework."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.figure import Figure

CONNECTIONS = 64
SECONDS = float(os.environ.get("EM_BENCH_SECONDS", "30"))
TURNS = 10

BARE = """
import socket, sys, uvicorn
from litestar import Litestar, get, post
@get("/bare")
async def bare() -> dict[str, str]:
    return {"status": "ok"}
@post("/bare")
async def take(data: dict[str, str]) -> dict[str, str]:
    return data
app = Litestar([bare, take], logging_config=None, openapi_config=None)
port = int(sys.argv[1])
config = uvicorn.Config(app, port=port, log_config=None, access_log=False, lifespan="off")
uvicorn.Server(config).run()
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _running(args: list[str], port: int) -> Iterator["subprocess.Popen[bytes]"]:
    environ = {**os.environ, "EM_API_LEASE_SECONDS": "1"}
    process = subprocess.Popen(args, stderr=subprocess.DEVNULL, env=environ)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _em(port: int, db: Path) -> list[str]:
    return [sys.executable, "-m", "em", "--db", str(db), "serve", "--port", str(port)]


@contextlib.contextmanager
def served(db: Path) -> Iterator[str]:
    """Serve a database; the address of the service."""
    port = _free_port()
    with _running(_em(port, db), port):
        yield f"http://127.0.0.1:{port}"


async def _request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str, body: bytes
) -> tuple[int, bytes]:
    writer.write(f"{head}Host: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    header = await reader.readuntil(b"\r\n\r\n")
    length = int(header.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return int(header.split(b" ", 2)[1]), await reader.readexactly(length)


async def _load(port: int, method: str, path: str, length: float) -> tuple[int, int, list[str]]:
    """Requests done, those that failed, and the ids of what was written."""
    deadline = time.monotonic() + length
    done = failed = 0
    written: list[str] = []

    async def work(worker: int) -> None:
        nonlocal done, failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while time.monotonic() < deadline:
            count += 1
            name = f"w{worker}n{count}"
            extra, body = "", b""
            if method == "POST":
                lesson = {
                    "trigger": f"{name} alpha{count}x{worker}",
                    "action": f"{name} do{worker}",
                }
                body = json.dumps(lesson).encode()
                extra = "Content-Type: application/json\r\n"
            status, answer = await _request(
                reader, writer, f"{method} {path} HTTP/1.1\r\n{extra}", body
            )
            done += 1
            if status not in (200, 201):
                failed += 1
            elif method == "POST" and path != "/bare":
                written.append(json.loads(answer)["id"])
        writer.close()

    await asyncio.gather(*(work(worker) for worker in range(CONNECTIONS)))
    return done, failed, written


def load() -> Iterator[Figure]:
    from em import Memory
    from em.heuristics.heuristic import Lesson

    bare_port, port = _free_port(), _free_port()
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "em.db"
        with Memory(db) as memory:
            lesson = Lesson(trigger="an insert fails", action="insert the parent row first")
            (kept,) = memory.heuristics.keep([lesson])
        bare = [sys.executable, "-c", BARE, str(bare_port)]
        with _running(bare, bare_port) as theirs, _running(_em(port, db), port) as ours:
            sides = (port, ours), (bare_port, theirs)
            yield from _compare("GET", f"/heuristics/{kept.id}", sides, 3.0, [])
            written: list[str] = []
            yield from _compare("POST", "/heuristics", sides, None, written)
        with Memory(db) as memory:
            there = {one.id for one in memory.heuristics.every()}
    lost = len(set(written) - there)
    yield Figure("acknowledged writes lost", lost, "written", len(written), "", lost, 0, False)


Side = tuple[int, "subprocess.Popen[bytes]"]


def _compare(
    method: str, path: str, sides: tuple[Side, Side], limit: float | None, written: list[str]
) -> Iterator[Figure]:
    """In short turns: the machine's noise hits both."""
    done, busy, errors = [[], []], [0.0, 0.0], 0
    for turn in range(TURNS + 1):
        for number, (port, process) in enumerate(sides):
            before = _cpu(process)
            where = "/bare" if number else path
            n, failed, ids = asyncio.run(_load(port, method, where, SECONDS / TURNS))
            written += ids
            errors += failed
            if turn:  # the first one warms up
                done[number].append(n / SECONDS * TURNS)
                busy[number] += _cpu(process) - before
    spent = [
        1e3 * cpu / max(sum(n) * SECONDS / TURNS, 1) for cpu, n in zip(busy, done, strict=True)
    ]
    print(f"{method}: {spent[0]:.2f} ms of processor time a request, the bare one {spent[1]:.2f}")
    ratio = median(theirs / max(ours, 1) for ours, theirs in zip(*done, strict=True))
    yield Figure(
        f"{method} of a heuristic, {CONNECTIONS} connections, {errors} errors",
        median(done[0]),
        "a bare endpoint",
        median(done[1]),
        "/s",
        ratio if not errors else 1e9,
        limit,
        False,
    )


def _cpu(process: "subprocess.Popen[bytes]") -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


LARGE_CONNECTIONS = 32
LARGE_SECONDS = float(os.environ.get("EM_BENCH_LARGE_SECONDS", "20"))
LARGE = 200_000
"""Characters of each text."""
LATE = 60.0
"""Seconds after which a client gives up."""


def _large_texts() -> list[str]:
    """Return ordinary texts and those that cost a pattern or a tokenizer most."""
    draw = random.Random(1)
    words = [f"{draw.choice(WORDS)}{draw.randrange(500)}" for _ in range(LARGE // 6)]
    lines = [
        f"- {one}: token = {other}, see https://example.com/{one}?a={other}"
        for one, other in itertools.pairwise(words)
    ]
    made = (
        " ".join(words),
        "\n".join(lines),
        json.dumps([{"name": one, "value": other} for one, other in itertools.pairwise(words)]),
        "password " * (LARGE // 9),
        " " * LARGE,
        "a" * LARGE,
    )
    return [one[:LARGE] for one in made]


WORDS = ("order", "Porto", "key", "customer", "returned", "password", "the", "is", "parcel")


def large() -> Iterator[Figure]:
    """32 clients that each send texts of 200 kB, one after the other, and read in between."""
    port = _free_port()
    texts = _large_texts()
    with tempfile.TemporaryDirectory() as folder, _running(_em(port, Path(folder) / "em.db"), port):
        times, failed = asyncio.run(_send_large(port, texts))
    for what, taken in times.items():
        taken.sort()
        p50, p99 = median(taken), taken[int(len(taken) * 0.99)]
        yield Figure(
            f"{what}, {LARGE_CONNECTIONS} connections, {len(taken)} requests, {failed} failed",
            p99 * 1e3,
            "its median",
            p50 * 1e3,
            "ms",
            p99 / p50 if not failed else 1e9,
            20,
            False,
        )


async def _send_large(port: int, texts: list[str]) -> tuple[dict[str, list[float]], int]:
    """Return how long each request took by what it was, and how many failed or came too late."""
    times: dict[str, list[float]] = {"an observation of 200 kB": [], "a question meanwhile": []}
    failed = 0
    end = time.monotonic() + LARGE_SECONDS

    async def ask(
        client: httpx.AsyncClient, what: str, method: str, path: str, **more: Any
    ) -> None:
        nonlocal failed
        began = time.monotonic()
        try:
            answer = await client.request(method, path, **more)
            failed += answer.status_code >= 400
        except httpx.HTTPError:
            failed += 1
        times[what].append(time.monotonic() - began)

    async def work(number: int) -> None:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=LATE, trust_env=False) as client:
            for count in itertools.count(number):
                if time.monotonic() > end:
                    return
                body = {"subject": f"s{number}", "text": f"{count} {texts[count % len(texts)]}"}
                await ask(client, "an observation of 200 kB", "POST", "/observations", json=body)
                question = {"query": "the parcel to Porto", "subject": f"s{number}"}
                await ask(client, "a question meanwhile", "GET", "/recall", params=question)

    await asyncio.gather(*(work(number) for number in range(LARGE_CONNECTIONS)))
    return times, failed
