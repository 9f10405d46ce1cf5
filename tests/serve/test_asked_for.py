"""A run that asks for inputs or stops at a guard, over HTTP, on its page and over MCP."""

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
input_schema:
  type: object
  properties:
    order_id: {type: string, examples: [W-1001]}
    limit: {type: integer, examples: [100]}
    note: {type: string, examples: [as agreed]}
    request: {type: string}
  additionalProperties: false
request: {input: request, template: "refund {{ order_id }} please"}
asks: {note: {recorded: as agreed}}
steps:
  - {id: look, type: udf.call, function: look, args: {order_id: "{{ order_id }}"}, save_as: order}
  - id: pay
    type: udf.call
    function: pay
    args: {order_id: "{{ order_id }}", amount: "{{ order.total }}", note: "{{ note }}"}
    agree: {amount: [limit, "100"]}
    guards: [order.status == "open"]
    save_as: paid
  - {id: end, type: return, value: "{{ paid }}"}
"""
UDF = """\
def look(order_id):
    return {"total": 100, "status": "closed" if order_id == "W-9" else "open"}


def pay(order_id, amount, note):
    return f"{amount} for {order_id}: {note}"
"""
ANSWERS = {"inputs": {"note": "sorry", "pay.amount": 80}}


@pytest.fixture(autouse=True)
def kept() -> None:
    example = '{"order_id": "W-1001", "limit": 100, "note": "as agreed"}'
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": REFUND, "udf.py": UDF, "input.json": example})


def test_a_question_for_inputs_is_answered_over_http(service: Served) -> None:
    given = {"request": "Refund W-2002 please", "limit": 500}
    run = service.post("/runs", {"routine": "refund", "input": given}).json()
    assert (run["status"], run["pending_prompt"]["step_id"]) == ("needs_input", "inputs")
    labels = {field["name"]: field["label"] for field in run["pending_prompt"]["fields"]}
    assert 'it was "as agreed" in the recording' in labels["note"]
    assert "500 if it is the input `limit`" in labels["pay.amount"]
    address = f"/runs/{run['run_id']}/answers"
    typo = service.post(address, {"answers": {"inputs": {"noet": "sorry"}}})
    assert (typo.status_code, "did you mean 'note'" in typo.text) == (400, True)
    wrong = service.post(address, {"answers": {"inputs": {"note": 1, "pay.amount": "many"}}}).json()
    assert wrong["status"] == "needs_input"
    assert "note: 1 is not a text" in wrong["pending_prompt"]["problem"]
    done = service.post(address, {"answers": ANSWERS}).json()
    assert (done["status"], done["output"]) == ("ok", "80 for W-2002: sorry")


def test_answers_may_come_with_the_start(service: Served) -> None:
    given = {"order_id": "W-2002", "limit": 100}
    body = {"routine": "refund", "input": given, "answers": {"inputs": {"note": "sorry"}}}
    run = service.post("/runs", body).json()
    assert (run["status"], run["output"]) == ("ok", "100 for W-2002: sorry")


def test_a_guard_that_fails_is_told_over_http_and_on_the_page(service: Served) -> None:
    given = {"order_id": "W-9", "limit": 100, "note": "sorry"}
    run = service.post("/runs", {"routine": "refund", "input": given}).json()
    assert (run["status"], run["failure"]["error_type"]) == ("failed", "GuardFailed")
    assert run["failure"]["step_id"] == "pay"
    page = service.http.get(f"/ui/run?id={run['run_id']}").text
    assert "Stopped before pay" in page
    assert "the routine did not act" in page
    assert "is &#34;closed&#34; now" in page


def test_the_page_shows_what_a_routine_requires_and_asks_for(service: Served) -> None:
    page = service.http.get("/ui/routine?ref=refund").text
    for words in (
        "amount must also be the input <code>limit</code>, and always 100",
        "<code>order.status</code> is &#34;open&#34;",
        "With other inputs a run asks for these values",
        "note was &#34;as agreed&#34; when recorded; nothing recorded explains it",
        "refund {{ order_id }} please",
        "Leave it empty, and the run asks where it has to.",
    ):
        assert words in page, words
    assert 'value="W-1001"' in page
    assert 'value="as agreed"' not in page, "nobody chose it"


def test_a_question_for_inputs_is_answered_on_the_page(service: Served) -> None:
    token = {"form_token": token_in(service.http.get("/ui/routine?ref=refund").text)}
    form = {"ref": "refund@1", "field.order_id": "W-2002", "field.limit": "500", "field.note": ""}
    run = service.http.post("/ui/routine/run", data={**token, **form}).headers["location"]
    asking = until(service, run, "Some values are not known")
    assert "it was &#34;as agreed&#34; in the recording" in asking
    answer = {**token, "id": run.partition("=")[2], "field.pay.amount": "80"}
    service.http.post("/ui/answer", data={**answer, "field.note": ""})
    assert "Some values are not known" in until(service, run, "Some values are not known")
    service.http.post("/ui/answer", data={**answer, "field.note": "sorry"})
    assert "80 for W-2002: sorry" in until(service, run, "Result")


def test_a_question_for_inputs_is_answered_over_mcp() -> None:
    async def work(client: Client) -> None:
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "refund"]
        about: Any = tool.input_schema["properties"]
        assert "Ask the user if they did not say it." in about["note"]["description"]
        run = told(await client.call_tool("refund", {"order_id": "W-2002", "limit": 500}))
        assert (run["status"], run["pending_prompt"]["step_id"]) == ("needs_input", "inputs")
        assert 'answers {"inputs":' in run["next"]
        again = {"run_id": run["run_id"], "answers": ANSWERS}
        assert told(await client.call_tool("resume", again))["output"] == "80 for W-2002: sorry"

    agent(over_stdio(), work)


def newest() -> int:
    with Memory("em.db") as memory:
        return find_routine(memory.store, "refund").version


async def begin(client: Client) -> dict[str, Any]:
    asked: dict[str, Any] = told(
        await client.call_tool("refund", {"order_id": "W-2002", "limit": 500})
    )
    return {"run_id": asked["run_id"], "answers": {"inputs": {"note": "sorry", "pay.amount": 500}}}


def test_an_agents_own_answer_counts_for_this_run_only() -> None:
    async def work(client: Client) -> None:
        done = told(await client.call_tool("resume", await begin(client)))
        assert done["output"] == "500 for W-2002: sorry"
        assert "remembered" not in done

    agent(over_stdio(), work)
    assert newest() == 1


def test_an_answer_that_a_person_gave_to_the_agent_is_remembered() -> None:
    async def work(client: Client) -> None:
        said = {**await begin(client), "from_person": True}
        done = told(await client.call_tool("resume", said))
        assert done["remembered"] == {"names": ["pay.amount"], "where": "refund@2", "problem": ""}

    agent(over_stdio(), work)
    assert newest() == 2


def test_an_answer_to_a_form_is_a_persons_and_is_remembered() -> None:
    async def answer(_context: Any, _params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"note": "sorry", "pay.amount": "500"})

    async def work(client: Client) -> None:
        given = {"order_id": "W-2002", "limit": 500}
        assert told(await client.call_tool("refund", given))["remembered"]["where"] == "refund@2"

    agent(over_stdio(), work, elicitation_callback=answer)


def test_an_agents_answer_is_not_remembered_when_a_person_ends_the_run() -> None:
    run_id = ""

    async def work(client: Client) -> None:
        nonlocal run_id
        half = {**await begin(client), "answers": {"inputs": {"pay.amount": 500}}}
        run_id = half["run_id"]
        assert told(await client.call_tool("resume", half))["status"] == "needs_input"

    agent(over_stdio(), work)
    with Memory("em.db") as memory:
        done = memory.resume(run_id, answers={"inputs": {"note": "sorry"}})
    assert (done.status, done.remembered, newest()) == ("ok", None, 1)


def test_an_answer_over_http_says_whether_it_is_to_be_remembered(service: Served) -> None:
    given = {"order_id": "W-2002", "limit": 500}
    said = {"answers": {"inputs": {"note": "sorry", "pay.amount": 500}}}
    start = {"routine": "refund@1", "input": given}
    for once in (True, False):
        asked = service.post("/runs", start).json()
        body = {**said, "remember": False} if once else said
        done = service.post(f"/runs/{asked['run_id']}/answers", body).json()
        assert (done["status"], "remembered" in done) == ("ok", not once)
    at_once = service.post("/runs", {**start, **said, "remember": False}).json()
    assert (at_once["status"], "remembered" in at_once) == ("ok", False)
