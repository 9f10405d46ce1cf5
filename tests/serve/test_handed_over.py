"""A run that handed over says why, over HTTP, on its page and over MCP, and asks nothing."""

import pytest
from mcp_agents import over_stdio
from served import Served
from test_mcp import agent, told

from em import Memory
from em.runner.package import keep_routine
from mcp import Client

REFUND = """\
name: refund
description: Pay an order back
checks: hand_over
input_schema:
  type: object
  required: [order_id]
  properties: {order_id: {type: string}}
requests: ["Please refund {order_id}."]
steps:
  - id: order
    type: udf.call
    function: look
    args: {order_id: "{{ order_id }}"}
    save_as: order
    expect: {properties: {status: {const: open}}}
    held: 14/14
  - id: pay
    type: udf.call
    function: pay
    effect: write
    args: {order_id: "{{ order_id }}", amount: "{{ order.total }}"}
    save_as: paid
  - {id: end, type: return, value: "{{ paid }}"}
"""
UDF = """\
def look(order_id):
    return {"total": 100, "status": "closed" if order_id == "W-9" else "open"}


def pay(order_id, amount):
    return f"{amount} for {order_id}"
"""


@pytest.fixture(autouse=True)
def kept() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": REFUND, "udf.py": UDF})


def test_the_reason_is_told_over_http(service: Served) -> None:
    run = service.post("/runs", {"routine": "refund", "input": {"order_id": "W-9"}}).json()
    assert run["status"] == "needs_input"
    assert "pending_prompt" not in run
    assert run["reason"] == {
        "step_id": "order",
        "check": "order.status",
        "message": '`order.status`: "open" was expected, and it is "closed"',
        "recorded": {"const": "open"},
        "now": "closed",
        "held": "14/14",
    }
    again = service.get(f"/runs/{run['run_id']}")
    assert (again["status"], again["reason"]) == ("needs_input", run["reason"])
    (listed,) = service.get("/runs", status="handed_over")["items"]
    assert (listed["status"], listed["reason"]) == ("needs_input", run["reason"])
    assert service.get("/runs", status="needs_input")["items"] == []
    answers = service.post(f"/runs/{run['run_id']}/answers", {"answers": {}})
    assert (answers.status_code, "the run is over" in answers.text) == (400, True)


def test_the_page_of_the_run_begins_with_the_reason(service: Served) -> None:
    run = service.post("/runs", {"routine": "refund", "input": {"order_id": "W-9"}}).json()
    page = service.http.get(f"/ui/run?id={run['run_id']}").text
    assert "Handed over, nothing was done" in page
    assert "It held in 14/14 recordings." in page
    main = page.partition("<main")[2]
    assert main.index("Handed over, nothing was done") < main.index("<dl")
    assert "Waiting for an answer" not in page
    assert 'action="/ui/run/answer"' not in page
    assert "handed over" in service.http.get("/ui/runs").text
    assert "All waiting runs" not in service.http.get("/ui/").text
    routine = service.http.get("/ui/routine?ref=refund").text
    assert "is &#34;open&#34; (in 14/14 recordings)" in routine
    assert "<q>Please refund {order_id}.</q>" in routine


def test_a_request_in_words_fits_a_template_or_is_asked_for_once(service: Served) -> None:
    run = service.post(
        "/runs", {"routine": "refund", "input": {"request": "please refund W-1"}}
    ).json()
    assert run["output"] == "100 for W-1"
    run = service.post("/runs", {"routine": "refund", "input": {"request": "W-1!"}}).json()
    assert "the request fits none of 1 template" in run["pending_prompt"]["message"]
    answers = {"answers": {"inputs": {"order_id": "W-1"}}}
    done = service.post(f"/runs/{run['run_id']}/answers", answers).json()
    assert (done["status"], done["output"]) == ("ok", "100 for W-1")


@pytest.mark.parametrize(
    ("words", "output"),
    [("as we said", "100 for W-1"), ("please refund W-1", "100 for W-1"), ("refund W-2", None)],
)
def test_inputs_beside_a_request_count_unless_it_contradicts_them(
    service: Served, words: str, output: str | None
) -> None:
    given = {"routine": "refund", "input": {"request": words, "order_id": "W-1"}}
    run = service.post("/runs", given).json()
    assert run.get("output") == output
    assert run["status"] == ("ok" if output else "needs_input")


def test_an_agent_is_told_to_do_it_itself() -> None:
    async def work(client: Client) -> None:
        answer = await client.call_tool("refund", {"order_id": "W-9"})
        run = told(answer)
        assert (run["status"], run["reason"]["step_id"]) == ("needs_input", "order")
        assert "pending_prompt" not in run
        assert "do the task yourself" in run["next"]
        assert not answer.is_error
        over = await client.call_tool("resume", {"run_id": run["run_id"], "answers": {}})
        assert over.is_error

    agent(over_stdio(), work)


def test_a_run_is_prepared_and_committed_over_http(service: Served) -> None:
    wanted = {"routine": "refund", "input": {"order_id": "W-1"}, "subject": "ana"}
    plan = service.post("/runs/prepare", wanted).json()
    assert (plan["status"], plan["context"]["order"]["total"]) == ("ok", 100)
    (pay,) = [one for one in plan["planned"] if one["does"] == "write"]
    assert [one["value"] for one in pay["arguments"]] == ["W-1", 100]
    assert "`order.total`" in plan["text"]
    assert service.get("/runs")["items"] == []
    other = service.post("/runs/commit", {"plan": plan["token"], "subject": "ben"})
    assert (other.status_code, other.json()["error"]["code"]) == (404, "not_prepared")
    commit = {"plan": plan["token"], "subject": "ana"}
    key = {"Idempotency-Key": "k1"}
    done = service.http.post("/runs/commit", json=commit, headers=key)
    assert (done.status_code, done.json()["output"]) == (201, "100 for W-1")
    assert service.http.post("/runs/commit", json=commit, headers=key).json() == done.json()
    assert service.post("/runs/commit", commit).status_code == 404
    assert len(service.get("/runs")["items"]) == 1


def test_what_hands_over_can_be_prepared_and_not_committed(service: Served) -> None:
    plan = service.post("/runs/prepare", {"routine": "refund", "input": {"order_id": "W-9"}}).json()
    assert (plan["status"], plan["reason"]["check"]) == ("needs_input", "order.status")
    assert "token" not in plan


def test_an_agent_prepares_a_routine_and_commits_the_plan_over_mcp() -> None:
    async def work(client: Client) -> None:
        asked = {"name": "refund", "inputs": {"order_id": "W-1"}}
        plan = told(await client.call_tool("prepare_routine", asked))
        assert plan["was_read"]["order"]["total"] == 100
        (write,) = plan["would_be_written"]
        assert write["arguments"] == {"order_id": "W-1", "amount": 100}
        done = told(await client.call_tool("prepare_routine", {"plan": plan["plan"]}))
        assert (done["status"], done["output"]) == ("ok", "100 for W-1")
        again = await client.call_tool("prepare_routine", {"plan": plan["plan"]})
        assert again.is_error
        asked["inputs"] = {"order_id": "W-9"}
        plan = told(await client.call_tool("prepare_routine", asked))
        assert ("plan" in plan, plan["why"]["check"]) == (False, "order.status")

    agent(over_stdio(), work)
