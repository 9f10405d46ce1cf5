"""Shadow mode over HTTP: counts, comparisons, acceptance; and who may see them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp_agents import agent, over_http
from served import Serve, Served

from em import Memory, recorded_tool
from em.runner.package import keep_routine
from mcp import Client

ROUTINE = {
    "version": "1",
    "name": "refund",
    "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}},
    "tools": [{"name": "pay", "effect": "write"}],
    "steps": [
        {
            "id": "pay",
            "type": "tool.call",
            "tool": "pay",
            "args": {"order_id": "{{ order_id }}", "amount": 5},
        }
    ],
}


@recorded_tool(effect="write")
def pay(order_id: str, amount: float) -> str:
    return f"{amount} for {order_id}"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with Memory(tmp_path / "em.db") as memory:
        text = msgspec.yaml.encode(ROUTINE).decode()
        keep_routine(memory.store, {"routine.yaml": text}, retired=True)
        for order, amount, subject in (("A-1", 7, "bo"), ("A-2", 5, "ana"), ("A-3", 5, "ana")):
            given: dict[str, Any] = {"order_id": order}
            with memory.record("refund", given, subject=subject, shadow=True):
                pay(order, amount)
    return tmp_path


def test_counts_comparisons_and_acceptance(filled: Path, serve: Serve) -> None:
    service: Served = serve()
    (row,) = service.get("/shadow")["items"]
    assert (row["routine"], row["agreed"], row["differed"], row["in_a_row"]) == (
        "refund@1",
        2,
        1,
        2,
    )
    assert row["last_difference"]["did"] == [
        {"tool": "pay", "args": {"order_id": "A-1", "amount": 7}}
    ]
    assert service.get("/shadow", routine="nothing")["items"] == []
    (own,) = service.get("/shadow", subject="bo")["items"]
    assert (own["agreed"], own["differed"]) == (0, 1)
    found = service.get("/shadow/comparisons", routine="refund", limit=2)
    assert [one["verdict"] for one in found["items"]] == ["agreed", "agreed"]
    assert found["pagination"] == {"limit": 2, "offset": 0, "total": 3}

    assert service.post("/routines/refund@1/promote", {}).status_code == 404
    done = service.post("/routines/refund@1/accept", {})
    assert (done.json()["changed"], done.json()["now"]) == (True, "refund@1")
    assert [one["state"] for one in service.get("/routines")["items"]] == ["in use"]
    assert service.post("/routines/nothing/accept", {}).status_code == 404


def test_a_token_for_one_subject_sees_no_comparison(filled: Path, serve: Serve) -> None:
    (filled / "em.yaml").write_text("api: {tokens: [{env: ANA, subjects: [ana]}, {env: ALL}]}")
    tokens = {"ANA": "ana-token-0123456789", "ALL": "all-token-0123456789"}
    service: Served = serve(env=tokens)

    def get(path: str, token: str) -> Any:
        headers = {"Authorization": f"Bearer {tokens[token]}"}
        return service.http.get(path, headers=headers)

    for path in ("/shadow", "/shadow?subject=ana", "/shadow/comparisons?subject=ana"):
        assert get(path, "ANA").status_code == 403
        assert get(path, "ALL").status_code == 200
    kinds = {event["kind"] for event in get("/log?subject=ana", "ANA").json()["items"]}
    assert kinds
    assert "shadow_compared" not in kinds


def test_mcp_offers_a_routine_once_it_is_accepted(filled: Path, serve: Serve) -> None:
    async def offered(client: Client) -> bool:
        return "refund" in {tool.name for tool in (await client.list_tools()).tools}

    connect = over_http(serve().url)
    assert not agent(connect, offered)
    with Memory(filled / "em.db") as memory:
        assert memory.accept("refund").changed
    assert agent(connect, offered)


def test_the_switch_stops_runs_over_http_and_mcp(filled: Path, serve: Serve) -> None:
    with Memory(filled / "em.db") as memory:
        memory.accept("refund")
        ended = len(list(memory.log.read(kinds="run_started")))
    service: Served = serve(env={"EM_ROUTINES": "off"})
    refused = service.post("/runs", {"routine": "refund", "input": {"order_id": "A-9"}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "routines_off")

    async def call(client: Client) -> bool:
        return bool((await client.call_tool("refund", {"order_id": "A-9"})).is_error)

    assert agent(over_http(service.url), call)
    with Memory(filled / "em.db") as memory:
        assert len(list(memory.log.read(kinds="run_started"))) == ended
