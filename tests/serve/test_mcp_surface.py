"""The tools of routines over MCP: what they add to a context, hints, forms, finding and running."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_agents import agent, keep, over_stdio
from test_mcp import told
from test_mcp_start import session
from test_proof_shown import Shop, cancellations

from em import Memory
from mcp import Client, MCPError

REFUND = """\
name: {name}
description: Pay an order of the customer back, as a gift card or to the way it was paid.
checks: hand_over
input_schema:
  type: object
  required: [email, order_id, reason]
  properties:
    email: {{type: string, format: email, description: "the customer's e-mail"}}
    order_id: {{type: string, pattern: "^W-[0-9]+$", examples: [W-1001, W-1002]}}
    reason: {{type: string, enum: [late, broken]}}
requests: ["I am {{email}}. Please refund {{order_id}}, {{reason}}."]
steps:
  - {{id: s1, type: udf.call, function: pay, effect: write, args: {{order: "{{{{ order_id }}}}"}}, save_as: paid}}
  - {{id: out, type: return, value: "{{{{ paid }}}} ({{{{ reason }}}})"}}
"""  # noqa: E501 - a line of YAML
UDF = "def pay(order):\n    open('paid', 'a').write(order)\n    return f'paid {order}'\n"
GIVEN = {"email": "ana@mail.example", "order_id": "W-7", "reason": "late"}
WORDS = "I am ana@mail.example. Please refund W-7, late."


def refund(name: str = "refund") -> None:
    keep(REFUND.format(name=name), udf__py=UDF)


def listed(*args: str) -> list[Any]:
    """Return the tools as a client gets them."""
    with session(*args) as one:
        one.greet()
        tools: list[Any] = one.ask("tools/list")["result"]["tools"]
        return tools


def tokens(value: Any) -> float:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) / 4


def in_context(tools: list[Any]) -> list[Any]:
    """Return what a client gives a model of each tool."""
    return [{word: one[word] for word in ("name", "description", "inputSchema")} for one in tools]


def test_without_a_routine_em_adds_less_than_1000_tokens() -> None:
    tools = listed()
    assert [one["name"] for one in tools] == ["remember", "ask", "brief", "lesson", "propose"]
    assert tokens({"tools": tools}) < 1_000


def test_an_agent_with_hooks_gets_what_they_do_not_do_in_less_than_900_tokens() -> None:
    assert [one["name"] for one in listed("--beside-hooks")] == ["remember", "ask", "propose"]
    for number in range(4):
        refund(f"refund_{number}")
    few = listed("--beside-hooks")
    assert [one["name"] for one in few][3:] == ["resume", *(f"refund_{n}" for n in range(4))]
    assert tokens(in_context(few)) < 900
    refund("refund_4")
    many = listed("--beside-hooks")
    assert [one["name"] for one in many][4:] == ["find_routine", "run_routine"]
    assert tokens(in_context(many)) < 900


def test_a_routine_adds_less_than_60_tokens_and_em_itself_less_than_1000() -> None:
    refund("refund_0")
    one = listed()
    assert {tool["name"] for tool in one} >= {"resume", "prepare_routine", "refund_0"}
    first = tokens(in_context(one))
    for number in range(1, 20):
        refund(f"refund_{number}")
    more = (tokens(in_context(listed())) - first) / 19
    assert more < 60
    assert first - more < 1_000
    for number in range(20, 60):
        refund(f"refund_{number}")
    assert tokens(in_context(listed())) < 1_200  # they are found and run by two tools


def test_a_tool_says_its_inputs_its_result_and_what_it_may_do() -> None:
    keep("name: look_it_up\nsteps: [{id: out, type: return, value: 1}]\n")
    refund()
    tools = {one["name"]: one for one in listed()}
    shown = tools["refund"]
    assert (
        shown["title"]
        == "Pay an order of the customer back, as a gift card or to the way it was paid"
    )
    assert tools["look_it_up"]["title"] == "Look it up"
    assert shown["description"].startswith("Pay an order of the customer")
    assert shown["inputSchema"]["properties"].keys() == GIVEN.keys()
    assert shown["inputSchema"]["required"] == [*GIVEN]
    assert shown["outputSchema"]["required"] == ["run_id", "status"]
    for one in tools.values():
        assert one["outputSchema"]["type"] == "object"
        assert one["annotations"].keys() == {
            "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
        }  # fmt: skip
    assert tools["look_it_up"]["annotations"]["readOnlyHint"]
    assert not tools["look_it_up"]["annotations"]["destructiveHint"]


LEARNT = """\
name: cancel
description: "I am {to}, please cancel {order_id}, since it is {why}"
input_schema:
  type: object
  required: [order_id, to]
  properties:
    order_id: {type: string, description: "such as W-1001"}
    to: {type: string}
    why: {enum: [late, lost]}
steps: [{id: out, type: return, value: 1}]
"""


@pytest.mark.parametrize("most", range(20, 120, 3))
def test_what_is_left_out_is_the_least_and_no_word_is_cut(most: int) -> None:
    keep(LEARNT)
    Path("em.yaml").write_text(f"mcp: {{tokens: {most}}}\n")
    (shown,) = [one for one in listed() if one["name"] == "cancel"]
    schema, words = shown["inputSchema"], shown["description"].rstrip("…").split()
    assert schema["required"] == ["order_id", "to"]
    assert words == LEARNT.split('"')[1].split()[: len(words)]
    is_whole = len(words) == len(LEARNT.split('"')[1].split())
    has_enum = "enum" in schema["properties"]["why"]
    has_about = "description" in schema["properties"]["order_id"]
    assert (is_whole, has_enum, has_about) in {
        (True, True, True), (False, True, True), (True, True, False), (False, True, False),
        (True, False, False), (False, False, False),
    }  # fmt: skip
    if most >= 59:
        assert has_enum


def test_a_setting_gives_a_routine_more_room() -> None:
    refund()
    (shown,) = [one for one in listed() if one["name"] == "refund"]
    assert "pattern" not in shown["inputSchema"]["properties"]["order_id"]
    Path("em.yaml").write_text("mcp: {tokens: 500}\n")
    (shown,) = [one for one in listed() if one["name"] == "refund"]
    assert shown["inputSchema"]["required"] == ["email", "order_id", "reason"]
    assert shown["inputSchema"]["properties"]["order_id"]["pattern"] == "^W-[0-9]+$"
    assert shown["inputSchema"]["properties"]["reason"]["enum"] == ["late", "broken"]


def test_too_many_routines_are_found_and_run_by_two_tools() -> None:
    Path("em.yaml").write_text("mcp: {routines: 1}\n")
    refund()
    keep(
        "name: look\ndescription: Look up the weather.\nsteps: [{id: o, type: return, value: 1}]\n"
    )

    async def work(client: Client) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names >= {"find_routine", "run_routine", "resume"}
        assert not names & {"refund", "look"}
        found = told(await client.call_tool("find_routine", {"request": "pay a late order back"}))
        assert found["routines"][0]["name"] == "refund"
        assert found["routines"][0]["inputs"]["properties"]["order_id"]["pattern"]
        found = told(await client.call_tool("find_routine", {"request": WORDS}))
        assert found["routines"][0]["known"] == GIVEN
        run = told(await client.call_tool("run_routine", {"name": "refund", "inputs": GIVEN}))
        assert run["output"] == "paid W-7 (late)"
        run = told(await client.call_tool("run_routine", {"name": "refund", "request": WORDS}))
        assert run["output"] == "paid W-7 (late)"
        with pytest.raises(MCPError, match="refnd"):
            await client.call_tool("run_routine", {"name": "refnd"})

    agent(over_stdio(), work)


def test_routines_that_are_switched_off_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    refund()
    assert "refund" in {one["name"] for one in listed()}
    monkeypatch.setenv("EM_ROUTINES", "off")
    assert not {"refund", "resume"} & {one["name"] for one in listed()}


@pytest.mark.parametrize(
    ("given", "paid"),
    [
        ({**GIVEN, "request": "as said before"}, True),
        ({**GIVEN, "request": WORDS}, True),
        ({**GIVEN, "request": WORDS.replace("W-7", "W-8")}, False),
        ({**GIVEN, "request": "refund W-8 for me"}, False),
    ],
)
def test_values_beside_a_request_count_and_must_not_contradict_it(
    given: dict[str, Any], paid: bool
) -> None:
    refund()

    async def work(client: Client) -> Any:
        return told(await client.call_tool("refund", given))

    run = agent(over_stdio(), work)
    assert run["status"] == ("ok" if paid else "needs_input")
    assert Path("paid").exists() is paid
    if not paid:
        assert run["form"]["known"] == GIVEN


def test_a_hand_over_for_its_inputs_is_a_form_with_what_is_known() -> None:
    refund()

    async def work(client: Client) -> list[Any]:
        calls: list[dict[str, Any]] = [
            {"email": "ana@mail.example", "reason": "late"},
            {**GIVEN, "order_id": "7"},
            {"request": "my order came late"},
        ]
        return [told(await client.call_tool("refund", given)) for given in calls]

    missing, wrong, words = agent(over_stdio(), work)
    assert missing["form"]["known"] == {"email": "ana@mail.example", "reason": "late"}
    assert wrong["form"]["known"] == {"email": "ana@mail.example", "reason": "late"}
    assert words["form"]["known"] == {}
    for one in (missing, wrong, words):
        assert one["status"] == "needs_input"
        assert one["form"]["inputs"]["properties"]["reason"]["enum"] == ["late", "broken"]
    assert not Path("paid").exists()


def test_a_briefing_offers_the_routine_that_was_asked_for() -> None:
    refund()

    async def work(client: Client) -> list[Any]:
        tasks = (WORDS, "translate a poem into Latin")
        return [told(await client.call_tool("brief", {"task": one}))["routines"] for one in tasks]

    (offered,), nothing = agent(over_stdio(), work)
    assert (offered["name"], offered["known"]) == ("refund", GIVEN)
    assert nothing == []


def test_a_lesson_that_an_agent_records_is_in_the_next_briefing() -> None:
    lesson = {"when": "the printer shows E5", "do": "open tray two", "because": "it jams there"}

    async def work(client: Client) -> None:
        kept = told(await client.call_tool("lesson", lesson))["lesson"]
        briefing = told(await client.call_tool("brief", {"task": "the printer shows E5 again"}))
        assert [one["id"] for one in briefing["lessons"]] == [kept]
        assert "open tray two" in briefing["text"]

    agent(over_stdio(), work)


def test_a_lesson_names_the_steps_that_show_it_or_nothing_is_stored() -> None:
    failed = {"action": "make", "args": {"target": "db"}, "error": "no rule for db"}
    steps = [{"thought": "let me see"}, failed, {"action": "list_rules", "observation": ["all"]}]
    happened = {"task": "build it", "outcome": "success", "steps": steps}
    lesson = {"when": "the database is built", "do": "make all", **happened}

    async def work(client: Client) -> None:
        for wrong in ("1", "9", "e7"):
            refused = await client.call_tool("lesson", {**lesson, "evidence": ["2", wrong]})
            assert refused.structured_content["error"]["place"] == "evidence"
        kept = told(await client.call_tool("lesson", {**lesson, "evidence": ["2", "3"]}))
        with Memory("em.db") as memory:
            (stored,) = memory.traces()
            (one,) = memory.heuristics.evidence(kept["lesson"])
        assert (one.program, one.error) == ("make", "no rule for …")
        calls = [event for event in stored.happened_ids if event in one.evidence.event_ids]
        assert [*one.evidence.failed, *one.evidence.worked] == calls
        assert len(calls) == 2

    agent(over_stdio(), work)


def test_code_is_run_in_the_sandbox_and_its_errors_are_told() -> None:
    with Memory("em.db") as memory:
        memory.observe("ana", {"km": 3}, type="Run")
        memory.observe("ana", {"km": 4}, type="Run")

    async def work(client: Client) -> None:
        async def ask(code: str) -> Any:
            return await client.call_tool("ask", {"subject": "ana", "code": code})

        whole = "def used(state):\n    return state.runs[:1]\ndef answer(state):\n    return 5"
        computed = told(await ask(whole))
        assert (computed["value"], computed["records"]) == (5, 1)
        assert told(await ask("sum(run.km for run in state.runs)"))["value"] == 7
        for code in ("state.nothing", "1 +", "open('em.db').read()", "__import__('os').getcwd()"):
            answer = await ask(code)
            assert answer.is_error, code
            assert answer.structured_content["error"]["place"] == "code"

    agent(over_stdio(), work)


def test_an_agent_writes_a_routine_that_waits_for_a_person() -> None:
    with Memory("em.db") as memory:
        for one in cancellations(Shop()):
            memory.add_trace(one)

    async def work(client: Client) -> None:
        async def propose(**given: Any) -> Any:
            return await client.call_tool("propose", given)

        (group,) = told(await propose())["groups"]
        shown = told(await propose(group=group["group"]))
        assert "for_each" in shown["format"]
        assert len(shown["recordings"]) > len(shown["held_back"]) > 0
        for files in ({"routine.yaml": "steps: []"}, {"SKILL.md": "x"}):
            wrong = told(await propose(group=group["group"], files=files))
            assert not wrong["accepted"]
            assert wrong["differences"]
        files = {"routine.yaml": shown["draft"]}
        made = told(await propose(group=group["group"], files=files, name="by_agent"))
        assert (made["accepted"], made["wrong"], made["routine"]) == (True, 0, "by_agent@1")
        again = told(await propose(group=group["group"], files=files, name="by_agent"))
        assert again["routine"] == "by_agent@1", "the same files are no new version"
        assert "by_agent" not in {tool.name for tool in (await client.list_tools()).tools}

    agent(over_stdio(), work)
    with Memory("em.db") as memory:
        assert memory.standing("by_agent@1").state == "proposed"
        assert memory.accept("by_agent@1").changed
