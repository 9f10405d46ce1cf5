"""The reverse proxy of docs/deployment.md, in front of a service."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from pwd import getpwuid

import httpx
import pytest
from served import Served
from tests.children import LIMIT, wait_until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
ROOT = Path(__file__).parents[2]
AROUND = """
daemon off;
{user}
pid {folder}/pid;
error_log {folder}/error.log;
worker_rlimit_nofile 4096;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    {block}
}}
"""

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def proxy(service: Served, tmp_path: Path) -> Iterator[int]:
    """The proxy as the guide has it, but for the two ports."""
    guide = (ROOT / "docs" / "deployment.md").read_text()
    (block,) = re.findall(r"```nginx\n(.*?)```", guide, re.DOTALL)
    port = free_port()
    block = block.replace("http://127.0.0.1:8765", service.url)
    block = block.replace("listen 8080", f"listen {port}")
    user = f"user {getpwuid(os.getuid()).pw_name};" if os.geteuid() == 0 else ""
    config = tmp_path / "nginx.conf"
    config.write_text(AROUND.format(folder=tmp_path, user=user, block=block))
    assert NGINX
    running = subprocess.Popen([NGINX, "-c", config, "-p", tmp_path], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port))
        yield port
    finally:
        running.terminate()
        running.wait(LIMIT)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)


def test_requests_pass_with_their_body(proxy: int) -> None:
    body = {"subject": "ana", "text": "word " * 40_000}
    with client(proxy) as http:
        assert http.post("/observations", json=body).status_code == 201
        assert http.post("/observations", content=b"x" * 2_000_000).status_code == 413
        assert http.get("/ui/log").status_code == 200


def test_half_open_connections_keep_nobody_out(proxy: int, service: Served) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", proxy)))
            one.sendall(b"GET /health HTTP/1.1\r\n")
        # They never reach the service, and whoever sends a request is served.
        with client(proxy) as http:
            assert [http.get("/health").status_code for _ in range(5)] == [200] * 5


def test_requests_of_a_client_are_limited(proxy: int) -> None:
    with client(proxy) as http:
        statuses = [http.get("/docs/openapi.json").status_code for _ in range(400)]
    assert set(statuses) == {200, 429}
    assert statuses[:50] == [200] * 50
