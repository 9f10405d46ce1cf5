"""What takes too long is ended: over HTTP, on pages, over MCP; and a run between two calls."""

import threading
from pathlib import Path

import pytest
from mcp_agents import agent, over_http
from served import Serve
from tests.children import wait_until

from em import Memory
from em.runner.package import keep_routine
from mcp import Client

AT_ONCE = {"EM_API_REQUEST_SECONDS": "0.000001"}
"""So little that every request is ended where it first looks."""
SLOW = "password " * 110_000
"""It takes seconds to look for secrets here."""


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/observations", {"subject": "ana", "text": "x"}),
        ("POST", "/checkpoint", {"subject": "ana"}),
        ("POST", "/reflect", {"trajectory": {"task": "t", "steps": []}}),
        ("POST", "/trajectories", {"task": "t", "steps": []}),
        ("GET", "/log", None),
        ("GET", "/recall?query=x", None),
    ],
)
def test_over_http(serve: Serve, method: str, path: str, body: object) -> None:
    service = serve(env=AT_ONCE)
    answer = service.http.request(method, path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "took_too_long")
    assert error["place"] == f"{method} {path.partition('?')[0]}"
    assert "EM_API_REQUEST_SECONDS" in error["fix"]
    assert service.get("/health")["status"] == "ok"


def test_on_a_page(serve: Serve) -> None:
    answer = serve(env=AT_ONCE).http.get("/ui/log")
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")


def test_over_mcp(serve: Serve) -> None:
    service = serve(env=AT_ONCE)

    async def asks(client: Client) -> None:
        result = await client.call_tool("remember", {"subject": "ana", "text": "x"})
        assert result.is_error
        assert result.structured_content["error"]["code"] == "took_too_long"

    agent(over_http(service.url), asks)


def test_work_that_looks_ends_by_itself_and_stores_nothing(serve: Serve) -> None:
    service = serve(env={"EM_API_REQUEST_SECONDS": "0.3"})
    late = service.post("/observations", {"subject": "ana", "text": SLOW}, key="k")
    assert (late.status_code, late.json()["error"]["code"]) == (503, "took_too_long")
    assert service.get("/log", subject="ana")["items"] == []
    # The key is free again: the request was not carried out.
    more = serve(env={"EM_API_LEASE_SECONDS": "3000"})
    assert more.post("/observations", {"subject": "ana", "text": SLOW}, key="k").status_code == 201


WAITS = '''
import pathlib, time

def wait() -> str:
    """Wait for a file."""
    with pathlib.Path("calls").open("a") as calls:
        calls.write("x")
    for _ in range(1_000):
        if not pathlib.Path("go").exists():
            time.sleep(0.02)
    return "waited"
'''
ROUTINE = """
version: "1"
name: waits
steps:
  - {id: wait, type: tool.call, tool: wait, effect: write, save_as: out}
  - {id: again, type: tool.call, tool: wait, effect: write, save_as: again}
  - {id: done, type: return, value: "{{ again }}"}
"""


def test_a_run_is_answered_for_and_goes_on_with_the_same_key(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EM_TRUSTED_FOLDERS", str(tmp_path))
    (tmp_path / "tools.py").write_text(WAITS)
    (tmp_path / "em.yaml").write_text("tools: tools.py\n")
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": ROUTINE})
    env = {
        "EM_API_RUN_SECONDS": "3",
        "EM_API_REQUEST_SECONDS": "3",
        "EM_TRUSTED_FOLDERS": str(tmp_path),
    }
    service = serve(env=env)
    # The tool does not look: the client is answered while it goes on.
    late = service.post("/runs", {"routine": "waits"}, key="k")
    (tmp_path / "go").touch()
    assert (late.status_code, late.json()["error"]["code"]) == (503, "took_too_long")
    (tmp_path / "go").touch()
    wait_until(lambda: service.get("/runs")["items"][0]["status"] == "running")
    calls = tmp_path / "calls"
    assert calls.read_text() == "x", "no second call is begun"
    more = serve()
    done = more.post("/runs", {"routine": "waits"}, key="k")
    assert (done.status_code, done.json()["output"], calls.read_text()) == (201, "waited", "xx")


def test_looks_at_the_service_are_answered_while_all_threads_have_work(serve: Serve) -> None:
    service = serve(env={"EM_API_REQUEST_SECONDS": "3"})
    body = {"subject": "ana", "text": SLOW}
    threads = [
        threading.Thread(target=service.post, args=("/observations", body)) for _ in range(30)
    ]
    for thread in threads:
        thread.start()
    try:
        for path in ("/healthz/live", "/healthz/ready"):
            assert service.http.get(path).status_code == 200
    finally:
        for thread in threads:
            thread.join()
    # Those that waited until then were not begun, and nobody is kept out afterwards.
    assert service.post("/observations", {"subject": "ana", "text": "x"}).status_code == 201
