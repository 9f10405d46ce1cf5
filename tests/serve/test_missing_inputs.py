"""A run without a required input asks for it, over HTTP, on its page and over MCP."""

from pathlib import Path
from typing import Any

import pytest
from mcp_agents import over_stdio
from mcp_types import ElicitRequestParams, ElicitResult
from served import Served
from test_mcp import agent, told
from test_pages import token_in, until

from em import Memory
from em.runner.package import find_routine, keep_routine
from mcp import Client

REFUND = """\
name: refund
description: Pay an order back
checks: hand_over
input_schema:
  type: object
  required: [order_id, note, limit]
  properties:
    order_id: {type: string}
    note: {type: string, minLength: 1, description: "why, in a word"}
    limit: {type: integer, enum: [80, 500]}
  additionalProperties: false
steps:
  - {id: look, type: udf.call, function: look, args: {order_id: "{{ order_id }}"}, save_as: order}
  - id: pay
    type: udf.call
    function: pay
    effect: write
    args: {order_id: "{{ order_id }}", amount: "{{ limit }}", note: "{{ note }}"}
    save_as: paid
  - {id: end, type: return, value: "{{ paid }}"}
"""
UDF = """\
def look(order_id):
    return {"total": 100}


def pay(order_id, amount, note):
    return f"{amount} for {order_id}: {note}"
"""
GIVEN = {"order_id": "W-2002"}
ANSWERS = {"inputs": {"note": "sorry", "limit": 80}}
DONE = "80 for W-2002: sorry"


@pytest.fixture(autouse=True)
def kept() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": REFUND, "udf.py": UDF})


def newest() -> int:
    with Memory("em.db") as memory:
        return find_routine(memory.store, "refund").version


def test_missing_inputs_are_answered_over_http(service: Served) -> None:
    run = service.post("/runs", {"routine": "refund", "input": GIVEN}).json()
    assert (run["status"], run["pending_prompt"]["step_id"]) == ("needs_input", "inputs")
    assert [one["name"] for one in run["pending_prompt"]["fields"]] == ["note", "limit"]
    address = f"/runs/{run['run_id']}/answers"
    typo = service.post(address, {"answers": {"inputs": {"noet": "sorry"}}})
    assert (typo.status_code, "did you mean 'note'" in typo.text) == (400, True)
    wrong = service.post(address, {"answers": {"inputs": {"note": "sorry", "limit": 7}}}).json()
    assert wrong["status"] == "needs_input"
    assert wrong["pending_prompt"]["problem"]
    done = service.post(address, {"answers": ANSWERS}).json()
    assert (done["status"], done["output"]) == ("ok", DONE)
    assert newest() == 1, "an answer is of its run"


def test_answers_may_come_with_the_start(service: Served) -> None:
    body = {"routine": "refund", "input": GIVEN, "answers": ANSWERS}
    run = service.post("/runs", body).json()
    assert (run["status"], run["output"]) == ("ok", DONE)


def test_missing_inputs_are_answered_on_the_page(service: Served) -> None:
    run = service.post("/runs", {"routine": "refund", "input": GIVEN}).json()
    page = f"/ui/run?id={run['run_id']}"
    asking = service.http.get(page).text
    assert "Waiting for an answer" in asking
    answer = {"form_token": token_in(asking), "id": run["run_id"], "field.limit": "80"}
    service.http.post("/ui/run/answer", data={**answer, "field.note": ""})
    assert 'name="field.note"' in until(service, page, "Waiting for an answer")
    service.http.post("/ui/run/answer", data={**answer, "field.note": "sorry"})
    assert DONE in until(service, page, "Result")


def test_missing_inputs_are_answered_over_mcp() -> None:
    Path("em.yaml").write_text("mcp: {tokens: 500}\n")

    async def work(client: Client) -> None:
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "refund"]
        about: Any = tool.input_schema
        assert about["required"] == ["order_id", "note", "limit"]
        assert about["properties"]["limit"]["enum"] == [80, 500]
        assert about["properties"]["note"]["description"].startswith("why, in a word")
        run = told(await client.call_tool("refund", GIVEN))
        assert (run["status"], run["reason"]["step_id"]) == ("needs_input", "inputs")
        assert [one["name"] for one in run["reason"]["recorded"]] == ["note", "limit"]
        assert run["form"]["known"] == GIVEN
        again = {**run["form"]["known"], **ANSWERS["inputs"]}
        assert told(await client.call_tool("refund", again))["output"] == DONE

    agent(over_stdio(), work)
    with Memory("em.db") as memory:
        assert not [*memory.log.read(kinds=["run_waiting"])], "the agent completes the inputs"


def test_a_tool_says_which_of_its_inputs_are_alternatives() -> None:
    Path("em.yaml").write_text("mcp: {tokens: 500}\n")
    either = "anyOf: [{required: [order_id]}, {required: [note]}]"
    with Memory("em.db") as memory:
        text = REFUND.replace("required: [order_id, note, limit]", f"required: [limit]\n  {either}")
        keep_routine(memory.store, {"routine.yaml": text, "udf.py": UDF})

    async def work(client: Client) -> None:
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "refund"]
        assert tool.input_schema["required"] == ["limit"]
        assert tool.input_schema["anyOf"] == [{"required": ["order_id"]}, {"required": ["note"]}]
        run = told(await client.call_tool("refund", {"limit": 80}))
        assert run["status"] == "needs_input"
        assert "output" not in run

    agent(over_stdio(), work)


def test_a_form_asks_the_person_for_missing_inputs() -> None:
    async def answer(_context: Any, _params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"note": "sorry", "limit": "80"})

    async def work(client: Client) -> None:
        assert told(await client.call_tool("refund", GIVEN))["output"] == DONE

    agent(over_stdio(), work, elicitation_callback=answer)
    assert newest() == 1
