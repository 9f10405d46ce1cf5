"""The tools that every routine has read what the run's input names, and nothing else."""

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em.runner.engine import run_routine
from em.runner.tools.readers import is_public, parse_csv
from em.settings import AllowSettings

CSV = "city,cost\nLisbon,840.5\nPorto,120\n"
ROWS = [{"city": "Lisbon", "cost": "840.5"}, {"city": "Porto", "cost": "120"}]


class Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Host"]))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/csv; charset=utf-8")
        self.end_headers()
        self.wfile.write(CSV.encode())

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def routine(place: Path, tool: str, **args: str) -> Path:
    """Write a routine that calls one tool, and returns what it gives."""
    folder = place.parent / "routine"
    folder.mkdir(exist_ok=True)
    lines = "".join(f"      {name}: {value!r}\n" for name, value in args.items())
    (folder / "routine.yaml").write_text(
        "version: '1'\nname: r\ninput_schema: {type: object}\nsteps:\n"
        f"  - id: look\n    type: tool.call\n    tool: {tool}\n    args:\n{lines}"
        "    save_as: seen\n  - id: end\n    type: return\n    value: '{{ seen }}'\n"
    )
    return folder


def test_a_file_that_the_input_names_is_read(place: Path) -> None:
    (place / "costs.csv").write_text(CSV)
    for tool, expected in (("read_text", CSV), ("read_csv", ROWS)):
        folder = routine(place, tool, path="{{ file }}")
        result = run_routine(folder, {"file": "costs.csv"})
        assert (result.status, result.output) == ("ok", expected), result.failure
    folder = routine(place, "read_text", path="costs.csv")
    said = run_routine(folder, {"request": "Add up what is in costs.csv."})
    assert said.output == CSV


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("secret.txt", {"file": "costs.csv"}),  # nobody named it
        ("../outside.txt", {"file": "../outside.txt"}),
        ("link.txt", {"file": "link.txt"}),  # leads outside
        (".env", {"file": ".env"}),
        (".config/key.txt", {"file": ".config/key.txt"}),
    ],
)
def test_other_files_need_a_permission(place: Path, path: str, given: Any) -> None:
    (place / ".config").mkdir()
    for name in ("secret.txt", ".env", ".config/key.txt", "../outside.txt"):
        (place / name).write_text("the secret")
    (place / "link.txt").symlink_to(place.parent / "outside.txt")
    folder = routine(place, "read_text", path=path)
    result = run_routine(folder, given)
    assert result.status == "failed"
    assert result.failure is not None
    assert "is not allowed" in result.failure.message
    assert "the secret" not in repr(result)
    allow = AllowSettings(folders=[str(place.parent)])
    assert run_routine(folder, given, allow=allow).output == "the secret"


def test_a_private_address_needs_a_permission_though_the_input_names_it(
    place: Path, server: Any
) -> None:
    host = f"127.0.0.1:{server.server_port}"
    url = f"http://{host}/costs.csv"
    folder = routine(place, "fetch_url", url="{{ url }}")
    result = run_routine(folder, {"url": url})
    assert result.failure is not None
    assert "private network" in result.failure.message
    assert f"--allow-host {host}" in result.failure.message
    assert server.seen == []
    allowed = run_routine(folder, {"url": url}, allow=AllowSettings(hosts=[host]))
    assert allowed.output == CSV


def test_a_host_that_the_input_does_not_name_needs_a_permission(place: Path, server: Any) -> None:
    url = f"http://127.0.0.1:{server.server_port}/?q={{{{ word }}}}"
    result = run_routine(routine(place, "fetch_url", url=url), {"word": "secret"})
    assert result.failure is not None
    assert "is not allowed" in result.failure.message
    assert server.seen == []


def test_a_public_host_is_asked_at_the_address_that_was_checked(
    place: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name means something else at the second look: the request goes where it was checked."""
    real, asked = socket.getaddrinfo, []

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "shop.example":
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", args[0]))]
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr("em.runner.tools.readers.is_public", lambda _address: True)
    url = f"http://shop.example:{server.server_port}/costs.csv"
    result = run_routine(routine(place, "fetch_csv", url="{{ url }}"), {"url": url})
    assert result.output == CSV
    assert asked == ["shop.example"]
    assert server.seen == [("/costs.csv", f"shop.example:{server.server_port}")]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True),
        ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False), ("172.16.0.1", False),
        ("169.254.169.254", False), ("0.0.0.0", False), ("100.64.0.1", False), ("::1", False),
        ("fe80::1%eth0", False), ("fd00::1", False), ("::ffff:10.0.0.1", False),
        ("2002:a00:1::", False), ("224.0.0.1", False), ("64:ff9b::a00:1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_public(address: str, expected: bool) -> None:
    assert is_public(address) is expected


def test_only_web_addresses_are_fetched(place: Path) -> None:
    for url in ("file:///etc/passwd", "ftp://x.example/", "data:,x", "http://"):
        result = run_routine(routine(place, "fetch_url", url="{{ url }}"), {"url": url})
        assert result.status == "failed"


def test_csv_is_read_as_texts_and_rows_must_have_their_columns() -> None:
    assert parse_csv(CSV) == ROWS
    assert parse_csv('a;b\n"x;\n1";2\n', ";") == [{"a": "x;\n1", "b": "2"}]
    for text in ("a,b\n1\n", "a,b\n1,2,3\n"):
        with pytest.raises(ValueError, match="line 2"):
            parse_csv(text)


def test_a_tool_that_is_given_wins_over_a_reader(place: Path) -> None:
    folder = routine(place, "fetch_url", url="{{ url }}")
    result = run_routine(folder, {"url": "x"}, {"fetch_url": lambda url: f"mine {url}"})
    assert result.output == "mine x"
