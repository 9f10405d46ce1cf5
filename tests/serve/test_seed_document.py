"""The document that this part was built from, walked in its order under the name em."""

import json
import socket
from pathlib import Path
from typing import Any

from served import Serve, Served
from tests.cli.em_command import em

TRAJECTORY: dict[str, Any] = {
    "task": "load the orders with a SQL insert",
    "outcome": "success",
    "steps": [
        {
            "thought": "insert the order first",
            "action": "sql_insert",
            "args": {"customer": "c7", "total": "12,50"},
            "error": "invalid total",
        },
        {
            "action": "sql_insert",
            "args": {"customer": "c7", "total": "12.50"},
            "observation": "ok",
        },
    ],
}
TOKEN = "a-token-that-is-long-enough"


def test_every_command_it_lists(tmp_path: Path) -> None:
    (tmp_path / "trajectory.json").write_text(json.dumps(TRAJECTORY))
    (tmp_path / "script.json").write_text(json.dumps([{"answer": "yes"}]))
    smoke = em("smoke-llm", EM_LLM_PROVIDER="scripted", EM_LLM_BASE_URL="script.json")
    assert smoke.code == 0, smoke.err
    reflected = em("--db", "heuristics.db", "reflect", "trajectory.json", "--store")
    assert reflected.code == 0, reflected.err
    assert "sql_insert" in reflected.out
    found = em("--db", "heuristics.db", "retrieve", "debug a failing SQL insert")
    assert (found.code, "sql_insert fails with" in found.out) == (0, True)
    before = (tmp_path / "heuristics.db").read_bytes()
    measured = em("--db", "heuristics.db", "evaluate", "--tasks", "20")
    assert (measured.code, "MRR" in measured.out) == (0, True)
    assert (tmp_path / "heuristics.db").read_bytes() == before
    looped = em(
        *("lessons", "loop", "--goal", "Continue improving this repository", "--agent", "true"),
        *("--max-iterations", "5", "--until", "true"),
    )
    assert looped.code == 0, looped.err


def test_serve_takes_its_address_and_limit_from_the_environment(serve: Serve) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    env = {"EM_API_HOST": "0.0.0.0", "EM_API_PORT": port, "EM_API_MAX_REQUEST_BYTES": "131072"}
    assert "EM_API_TOKEN" in em("serve", **env).err  # open to others only with a token
    service = serve(port=None, env={**env, "EM_API_TOKEN": TOKEN})
    assert (service.lines[0]["host"], str(service.lines[0]["port"])) == ("0.0.0.0", port)
    service.http.headers["Authorization"] = f"Bearer {TOKEN}"
    assert service.post("/heuristics", {"trigger": "x" * 131_073}).status_code == 413


def test_every_endpoint_it_lists(service: Served) -> None:
    assert service.get("/health")["status"] == "ok"
    given = {
        "trigger": "a SQL insert fails on a foreign key",
        "action": "insert the parent row first",
        "source_task": "load the orders",
    }
    posted = service.post("/heuristics", given).json()
    page = service.get("/heuristics")
    assert [one["id"] for one in page["items"]] == [posted["id"]]
    assert page["pagination"] == {"limit": 50, "offset": 0, "total": 1}
    beyond = service.get("/heuristics", limit=1, offset=1)
    assert (beyond["items"], beyond["pagination"]["total"]) == ([], 1)
    assert service.get("/heuristics", source_task="load the orders")["pagination"]["total"] == 1
    assert service.get("/heuristics", source_task="load")["pagination"]["total"] == 0
    assert service.get(f"/heuristics/{posted['id']}")["trigger"] == given["trigger"]
    found = service.get("/heuristics", task="debug a failing SQL insert", top_k=3)
    assert [one["id"] for one in found["items"]] == [posted["id"]]
    reflected = service.post("/reflect", {"trajectory": TRAJECTORY})
    assert reflected.status_code == 201
    assert reflected.json()["heuristics"]
    kept = service.post("/trajectories", TRAJECTORY).json()
    both = service.get("/trajectories")
    assert both["pagination"] == {"limit": 50, "offset": 0, "total": 2}
    assert service.get("/trajectories", limit=1, offset=1)["items"] == [both["items"][1]]
    matching = service.get("/trajectories", task=TRAJECTORY["task"], outcome="success")
    assert matching["pagination"]["total"] == 2
    assert service.get("/trajectories", outcome="failure")["items"] == []
    one = service.get(f"/trajectories/{kept['id']}")
    assert (one["task"], len(one["steps"])) == (TRAJECTORY["task"], 2)
    before = service.get("/log", limit=200)
    assert service.get("/evaluate", tasks=20)["methods"]["em"]["mrr"] > 0
    assert service.get("/log", limit=200) == before


def test_its_notes_on_the_api(service: Served) -> None:
    wrong = service.http.get("/heuristics/nope")
    assert set(wrong.json()["error"]) >= {"code", "message"}
    for path, body in (
        ("/reflect", {"trajectory": TRAJECTORY}),
        ("/heuristics", {"trigger": "t", "action": "a"}),
        ("/trajectories", TRAJECTORY),
    ):
        first = service.post(path, body, key=path)
        assert service.post(path, body, key=path).content == first.content
        other = {"trigger": "t", "action": "b"} if path == "/heuristics" else {**body, "x": 1}
        other = {"trajectory": TRAJECTORY, "store": False} if path == "/reflect" else other
        other = {**TRAJECTORY, "outcome": "failure"} if path == "/trajectories" else other
        assert service.post(path, other, key=path).status_code == 409
        assert first.headers["x-request-id"] != wrong.headers["x-request-id"]
    # Trajectories are kept apart from heuristics.
    assert service.get("/trajectories")["pagination"]["total"] == 2
