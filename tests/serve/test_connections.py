"""What a request line and its headers may be."""

import json

import pytest
from served import Served
from test_service_attacked import raw


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
