"""How a learnt routine did on other traces is stored with it, and shown wherever it is shown."""

import json
from typing import Any

import msgspec
import pytest
from mcp_agents import agent, over_stdio
from served import Served
from tests.cli.em_command import em

from corner_shop import GOODS, Shop, cancelled, customer, returned
from em import Memory
from em.compiler.compile_trace import compile_several
from em.errors import RoutineError
from em.runner.package import TRIALS, find_routine, keep_routine, texts_of
from em.traces.trace import Trace
from mcp import Client

DB = {"EM_DB": "em.db"}
NEEDED, MISTAKE = "no longer needed", "ordered by mistake"
RIGHT = "right in 3 of 4, handed over in 1, wrong in 0"


def cancellations(shop: Shop) -> list[Trace]:
    """They were not all asked for in the same words."""
    other = "Bo here, bo.larsen1@shop.example: cancel #W80201, it was ordered by mistake."
    return [
        cancelled(shop, number, (NEEDED, MISTAKE)[number % 2], other if number == 1 else "")
        for number in range(4)
    ]


def with_a_mistake(shop: Shop) -> list[Trace]:
    """Returns of which one did something else than its words said."""
    user, email, delivered, _ = customer(shop, 3)
    (card,) = shop.users[user]["cards"]
    bottle = shop.orders[delivered]["items"][1]["item_id"]
    odd = shop.trace(
        f"My mail is {email}. I want to return the Desk Lamp of {delivered} to {card}.",
        ("find_user", {"email": email}),
        ("get_user", {"user_id": user}),
        ("get_order", {"order_id": delivered}),
        ("return_items", {"order_id": delivered, "item_ids": [bottle], "card_id": card}),
    )
    return [returned(shop, 1, ["P-4401"]), returned(shop, 2, ["P-4402", "P-4403"]), odd]


def learnt(traces: list[Trace], **how: Any) -> Any:
    with Memory("em.db") as memory:
        ids = [memory.add_trace(trace) for trace in traces]
        return memory.compile(ids, name="serve", **how)


def page_of(service: Served) -> str:
    return str(service.http.get("/ui/routine", params={"ref": "serve"}).text)


def tool_of_the_routine() -> Any:
    async def work(client: Client) -> Any:
        return {tool.name: tool for tool in (await client.list_tools()).tools}["serve"]

    return agent(over_stdio(), work)


def test_the_proof_is_stored_and_shown_everywhere(service: Served) -> None:
    routine = learnt(cancellations(Shop()))
    assert routine.trials.summary == RIGHT
    assert RIGHT in em("routine", "show", "serve", **DB).err
    shown = json.loads(em("routine", "show", "serve", "--json", **DB).out)["proof"]
    assert shown == {"right": 3, "handed_over": 1, "wrong": 0, "summary": RIGHT}
    assert RIGHT in em("routine", "list", **DB).out
    (listed,) = service.get("/routines")["routines"]
    assert listed["proof"] == shown
    page = page_of(service)
    assert RIGHT in page
    assert RIGHT in tool_of_the_routine().description


def test_a_routine_with_a_wrong_trial_is_stored_by_force_only_and_says_so(
    service: Served,
) -> None:
    traces = with_a_mistake(Shop())
    with pytest.raises(RoutineError, match="wrong") as refused:
        learnt(traces)
    assert "--force" in refused.value.fix
    with Memory("em.db") as memory:
        ids = [kept.id for kept in memory.traces()]
    assert em("compile", *ids, "--name", "serve", "--keep", **DB).code == 1
    forced = em("compile", *ids, "--name", "serve", "--keep", "--force", **DB)
    assert "WRONG" in forced.err
    assert "WRONG" in em("routine", "show", "serve", **DB).err
    (listed,) = service.get("/routines")["routines"]
    assert "WRONG" in listed["proof"]["warning"]
    assert "WRONG" in page_of(service)
    assert tool_of_the_routine().description.startswith("WARNING")


def test_a_routine_that_was_changed_does_not_claim_the_proof_of_the_old_one() -> None:
    routine = learnt(cancellations(Shop()))
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, routine.ref))
        assert TRIALS in files
        files["routine.yaml"] = files["routine.yaml"].replace("pending", "delivered")
        changed = keep_routine(memory.store, files)
    assert changed.trials.summary == f"{RIGHT} (before the routine was changed)"


def test_the_tool_of_a_learnt_routine_has_its_schema_without_personal_data() -> None:
    shop = Shop()
    traces = [*cancellations(shop), returned(shop, 1, ["P-4401"]), returned(shop, 2, ["P-4402"])]
    words = [trace.events[0].text for trace in traces]
    traces = [
        msgspec.structs.replace(
            trace, mission=msgspec.structs.replace(trace.mission, goal=trace.events[0].text)
        )
        for trace in traces
    ]
    learnt(traces)
    tool = tool_of_the_routine()
    properties = tool.input_schema["properties"]
    assert properties["reason"]["enum"] == [NEEDED, MISTAKE]
    assert properties["order_id"] == {"type": "string", "examples": ["#W00000"]}
    assert properties["email"]["examples"] == ["name@host"]
    assert properties["item_ids"]["type"] == "array"
    assert "cancel_order" in tool.description
    told = tool.model_dump_json()
    private = [*shop.users, *shop.orders, *words, *GOODS]
    private += [one["email"] for one in shop.users.values()]
    private += [item["item_id"] for one in shop.orders.values() for item in one["items"]]
    private += [card for one in shop.users.values() for card in one["cards"]]
    assert [value for value in private if value in told] == []
    assert not tool.annotations.read_only_hint, "it writes"


def test_the_resource_of_a_learnt_routine_has_no_personal_data() -> None:
    shop = Shop()
    learnt([*cancellations(shop), returned(shop, 1, ["P-4401"]), returned(shop, 2, ["P-4402"])])

    async def work(client: Client) -> Any:
        return (await client.read_resource("em://routines/serve")).contents[0]

    text = str(agent(over_stdio(), work).text)
    assert NEEDED in text, "several traces had it"
    private = [*shop.users, *shop.orders]
    private += [one["email"] for one in shop.users.values()]
    private += [card for one in shop.users.values() for card in one["cards"]]
    assert [value for value in private if value in text] == []


def test_a_value_that_only_one_trace_said_is_not_shown() -> None:
    shop = Shop()
    moved = "Bo Larsen moved"
    words = f"cleo.okoye2@shop.example here: cancel #W80202, {moved}."
    made = compile_several_of(
        cancelled(shop, 0, NEEDED), cancelled(shop, 1, NEEDED), cancelled(shop, 2, moved, words)
    )
    shown = made.draft.routine.input_schema["properties"]["reason"]["examples"]
    assert shown == [NEEDED]


def test_what_one_trace_was_about_is_not_in_the_description_of_its_tool() -> None:
    shop = Shop()
    trace = cancelled(shop, 0, NEEDED)
    goal = "Cancel #W80200 of ana.silva0@shop.example in 2026"
    trace = msgspec.structs.replace(
        trace, mission=msgspec.structs.replace(trace.mission, goal=goal)
    )
    learnt([trace])
    tool = tool_of_the_routine()
    assert "80200" not in tool.model_dump_json()
    assert "ana.silva0" not in tool.model_dump_json()
    assert "in 2026" in tool.description


def compile_several_of(*traces: Trace) -> Any:
    with Memory("em.db") as memory:
        for trace in traces:
            memory.add_trace(trace)
        return compile_several(memory.traces(), force=True)
