"""A write whose answer did not come may have happened: it is never made twice, and never ignored.

A real server on this machine counts what it was asked to do.
"""

import asyncio
import socket
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from em import Memory
from em.runner.engine import arun_routine, run_routine
from em.runner.run import UNDONE, RunResult, outcome_is_unknown
from em.runner.tools import ToolRegistry
from em.settings import AllowSettings
from em.values.call import Fix


class Shop(BaseHTTPRequestHandler):
    """Takes every order, and answers as the path says."""

    protocol_version = "HTTP/1.1"
    asked: list[str]
    keys: list[str | None]
    over: threading.Event

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append(self.command)
        self.keys.append(self.headers.get("Idempotency-Key"))
        self.close_connection = True
        how = self.path.removeprefix("/")
        if how == "never":
            self.over.wait(60)
        elif how == "reset":
            # Without lingering, closing a socket resets its connection.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.connection.close()
        elif how == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        elif how == "garbage":
            self.wfile.write(b"this is not HTTP\r\n\r\n")
        elif how == "no-json":
            self.reply(200, b"<html>done")
        else:
            self.reply(int(how), b"{}")

    do_GET = do_POST = answer  # noqa: N815 - http.server asks for these names

    def reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        if 300 <= status < 400:
            self.send_header("Location", "/200")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        """Say nothing: connections break on purpose here."""


@pytest.fixture
def host() -> Iterator[str]:
    Shop.asked, Shop.keys, Shop.over = [], [], threading.Event()
    with _Server(("127.0.0.1", 0), Shop) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        Shop.over.set()
        server.shutdown()


TRIES = ", retry: {attempts: 3, backoff: 0}"
UNKNOWN = ["never", "reset", "cut", "garbage", "no-json", "500", "502", "503", "504", "302", "303"]
REFUSED = ["400", "404", "409", "429", "307"]


def order(folder: Path, host: str, how: str, more: str = "", method: str = "POST") -> Path:
    """Write a routine of one request."""
    (folder / "routine.yaml").write_text(
        "name: order\n"
        f'tools: [{{name: t, timeout: 0.3, http: {{method: {method}, url: "http://{host}/{how}"}}}}]'
        "\n"
        f"steps:\n  - {{id: a, type: tool.call, tool: t, save_as: r{more}}}\n"
        '  - {id: b, type: return, value: "{{ r }}"}\n'
    )
    return folder


def allow(host: str) -> AllowSettings:
    return AllowSettings(hosts=[host])


def repeats(_context: Any) -> Fix:
    return Fix(strategy="modify_args", args={})


def skips(_context: Any) -> Fix:
    return Fix(strategy="skip", default="never mind")


@pytest.mark.parametrize("how", UNKNOWN)
def test_a_write_without_an_answer_is_made_once_and_asked_about(
    tmp_path: Path, host: str, how: str
) -> None:
    folder = order(tmp_path, host, how, TRIES)
    with Memory(tmp_path / "em.db") as memory:
        waiting = memory.run(folder, allow=allow(host))
        assert Shop.asked == ["POST"]
        assert waiting.status == "needs_input", waiting.failure
        assert waiting.pending_prompt is not None
        assert waiting.pending_prompt.step_id == "a?"
        said = {"a?": {"happened": True, "result": {"order": 1}}}
        done = memory.resume(waiting.run_id, answers=said, allow=allow(host))
    assert (done.status, done.output) == ("ok", {"order": 1})
    assert Shop.asked == ["POST"]


@pytest.mark.parametrize("more", ["", ", on_error: continue", ", on_error: {default: 1}"])
@pytest.mark.parametrize("fix", [None, repeats, skips])
@pytest.mark.parametrize("journalled", [True, False])
def test_no_policy_takes_it_for_an_ordinary_failure(
    tmp_path: Path, host: str, more: str, fix: Any, journalled: bool
) -> None:
    folder = order(tmp_path, host, "reset", TRIES + more)
    with Memory(tmp_path / "em.db") as memory:
        store = memory.store if journalled else None
        result = run_routine(folder, {}, None, fix, store=store, allow=allow(host))
    assert Shop.asked == ["POST"]
    assert result.status == ("needs_input" if journalled else "failed")
    if not journalled:
        assert result.failure is not None
        assert "may have happened" in result.failure.context["outcome"]


@pytest.mark.parametrize("how", REFUSED)
def test_a_write_that_the_server_refused_is_an_ordinary_failure(
    tmp_path: Path, host: str, how: str
) -> None:
    result = run_routine(order(tmp_path, host, how, TRIES), allow=allow(host))
    assert (result.status, Shop.asked) == ("failed", ["POST"] * 3)
    assert result.failure is not None
    assert result.failure.context["outcome"] == UNDONE


@pytest.mark.parametrize("how", UNKNOWN)
def test_a_read_is_tried_again(tmp_path: Path, host: str, how: str) -> None:
    if how.startswith("30"):
        return  # a redirect of a read is followed
    result = run_routine(order(tmp_path, host, how, TRIES, "GET"), allow=allow(host))
    assert (result.status, Shop.asked) == ("failed", ["GET"] * 3)


def test_a_request_that_could_not_be_sent_is_tried_again(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    result = run_routine(order(tmp_path, host, "200", TRIES), allow=allow(host))
    assert result.steps[0].attempts == 3


def test_with_an_idempotency_key_it_is_tried_again_with_the_same_key(
    tmp_path: Path, host: str
) -> None:
    folder = order(tmp_path, host, "reset", TRIES + ", idempotency_key: order-7")
    text = (folder / "routine.yaml").read_text()
    header = '/reset", headers: {Idempotency-Key: "{{ idempotency_key }}"}'
    (folder / "routine.yaml").write_text(text.replace('/reset"', header))
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(folder, allow=allow(host))
    assert result.status == "failed"
    assert (Shop.asked, set(Shop.keys)) == (["POST"] * 3, {"order-7"})


def by_httpx(url: str) -> Any:
    return httpx.post(url, timeout=0.3).raise_for_status().json()


def by_requests(url: str) -> Any:
    answer = requests.post(url, timeout=0.3)
    answer.raise_for_status()
    return answer.text


def by_urllib(url: str) -> Any:
    with urllib.request.urlopen(url, b"{}", timeout=0.3) as answer:
        return answer.read().decode()


def behind_an_error_of_its_own(url: str) -> Any:
    try:
        return by_httpx(url)
    except httpx.HTTPError as error:
        raise ValueError("no order") from error


async def by_coroutine(url: str) -> Any:
    async with httpx.AsyncClient(timeout=0.3) as client:
        return (await client.post(url)).raise_for_status().json()


def own(folder: Path, host: str, how: str, tool: Callable[..., Any], effect: Any) -> RunResult:
    (folder / "routine.yaml").write_text(
        "name: order\nsteps:\n"
        f'  - {{id: a, type: tool.call, tool: t, args: {{url: "http://{host}/{how}"}}{TRIES}}}\n'
    )
    registry = ToolRegistry()
    registry.register("t", tool, effect=effect)
    if asyncio.iscoroutinefunction(tool):
        return asyncio.run(arun_routine(folder, {}, registry))
    return run_routine(folder, {}, registry)


OWN = [by_httpx, by_requests, by_urllib, behind_an_error_of_its_own, by_coroutine]


@pytest.mark.parametrize("how", ["never", "reset", "cut", "garbage", "502"])
@pytest.mark.parametrize("tool", OWN)
def test_the_same_holds_for_a_tool_in_python(
    tmp_path: Path, host: str, how: str, tool: Callable[..., Any]
) -> None:
    assert own(tmp_path, host, how, tool, "write").steps[0].attempts == 1
    assert Shop.asked == ["POST"]
    Shop.asked.clear()
    assert own(tmp_path, host, how, tool, "read").steps[0].attempts == 3
    Shop.asked.clear()
    assert own(tmp_path, host, "409", tool, "write").steps[0].attempts == 3


@pytest.mark.parametrize("tool", OWN)
def test_a_connection_that_never_was_is_no_unknown_outcome(
    tmp_path: Path, tool: Callable[..., Any]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    assert own(tmp_path, host, "200", tool, "write").steps[0].attempts == 3


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (BrokenPipeError(), True),
        (ConnectionRefusedError(), False),
        (ConnectionError("down"), False),
        (socket.gaierror("no such host"), False),
        (ValueError("bad"), False),
    ],
)
def test_errors_of_python_itself(error: Exception, unknown: bool) -> None:
    assert outcome_is_unknown(error) is unknown


@pytest.mark.parametrize("more", [TRIES, TRIES + ", for_each: [1, 2]"])
@pytest.mark.parametrize(
    ("command", "says"),
    [("echo paid >> paid; kill -9 $$", "by signal 9"), ("echo paid | tee -a paid", "not JSON")],
)
def test_a_program_that_was_cut_off_is_not_started_again(
    tmp_path: Path, command: str, says: str, more: str
) -> None:
    (tmp_path / "routine.yaml").write_text(
        f'name: pay\ntools: [{{name: t, command: [sh, -c, "{command}"], output: json}}]\n'
        f"steps:\n  - {{id: a, type: tool.call, tool: t{more}}}\n"
    )
    result = run_routine(tmp_path, allow=AllowSettings(commands=["sh"]))
    assert result.failure is not None
    assert says in result.failure.message
    assert (tmp_path / "paid").read_text() == "paid\n"
