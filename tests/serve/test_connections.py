"""Half-open, idle, greedy and deaf clients give their places up to others."""

import json
import socket
import time

import pytest
from served import Serve, Served
from test_service_attacked import raw


def connect(service: Served, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])))
    connection.settimeout(20)
    connection.sendall(data)
    return connection


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: local"])
def test_headers_that_do_not_come_end_the_connection(serve: Serve, sent: bytes) -> None:
    service = serve(env={"EM_API_HEADER_SECONDS": "0.5"})
    with connect(service, sent) as connection:
        answer = connection.recv(65_536)
    assert answer.split(b" ")[1] == b"408"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_slow"


def test_a_trickle_of_headers_does_not_buy_more_time(serve: Serve) -> None:
    service = serve(env={"EM_API_HEADER_SECONDS": "1"})
    with connect(service, b"GET /health HTTP/1.1\r\n") as connection:
        connection.settimeout(0.1)
        for _ in range(200):
            try:
                connection.sendall(b"X: y\r\n")
                answer = connection.recv(65_536)
            except TimeoutError:
                continue
            except ConnectionError:
                return
            assert answer == b"" or answer.split(b" ")[1] == b"408"
            return
    pytest.fail("the service took headers for 20 seconds")


def test_half_open_connections_keep_nobody_out(serve: Serve) -> None:
    service = serve(env={"EM_API_CONNECTIONS_PER_CLIENT": "20"})
    half_open = [connect(service, b"GET /health HTTP/1.1\r\n") for _ in range(60)]
    try:
        assert [service.get("/health")["status"] for _ in range(5)] == ["ok"] * 5
    finally:
        for connection in half_open:
            connection.close()


def test_one_connection_too_many_takes_the_place_of_the_one_that_waited_longest(
    serve: Serve,
) -> None:
    service = serve(env={"EM_API_CONNECTIONS_PER_CLIENT": "2"})
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(service) as oldest, connect(service) as newer:
        time.sleep(0.1)
        assert raw(service, request).split(b" ")[1] == b"200"
        assert gone(oldest)
        newer.sendall(request)
        assert newer.recv(65_536).split(b" ")[1] == b"200"


def gone(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_headers_that_come_all_at_once_are_measured_too(service: Served) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    answer = raw(service, head + b"X: " + b"a" * 100_000 + b"\r\n\r\n")
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"431")
    asked = service.http.get("/health", headers={"X": "a" * 60_000})
    assert asked.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "[::1]evil.com",
        "localhost:80@evil.com",
        "localhost:80:80",
        "localhost evil.com",
        "localhost/evil.com",
        "127.0.0.1.evil.com",
        "[::1",
        "localhost:port",
        "",
    ],
)
def test_only_a_whole_host_counts(shared: Served, host: str) -> None:
    answer = raw(shared, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"400", b"403")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:1"])
def test_this_machine_is_served_under_its_names(shared: Served, host: str) -> None:
    answer = raw(shared, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.split(b" ")[1] == b"200"


def test_a_key_in_a_path_does_not_reach_the_log(service: Served) -> None:
    key = "sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
    assert service.http.get(f"/heuristics/{key}").status_code in (400, 404)
    service.stop()
    assert not any(key in json.dumps(line) for line in service.lines)
    assert any("[redacted:anthropic-key]" in json.dumps(line) for line in service.lines)
