"""How a learnt routine did on other traces is stored with it, and shown wherever it is shown."""

import json
from pathlib import Path
from typing import Any

import msgspec
from mcp_agents import agent, over_stdio
from served import Served
from tests.cli.em_command import em

from corner_shop import Shop, cancelled
from em import Memory
from em.runner.package import PROOF, find_routine, keep_routine, proof_of, texts_of
from em.runner.trial import LEFT_OUT, Trial, render_proof
from em.traces.trace import Trace
from mcp import Client

DB = {"EM_DB": "em.db"}
NEEDED, MISTAKE = "no longer needed", "ordered by mistake"
RIGHT = "right in 4 of 4, handed over in 0, wrong in 0"


def cancellations(shop: Shop) -> list[Trace]:
    """They were not all asked for in the same words."""
    other = "Bo here, bo.larsen1@shop.example: cancel #W80201, it was ordered by mistake."
    return [
        cancelled(shop, number, (NEEDED, MISTAKE)[number % 2], other if number == 1 else "")
        for number in range(4)
    ]


def learnt(traces: list[Trace], **how: Any) -> Any:
    with Memory("em.db") as memory:
        ids = [memory.add_trace(trace) for trace in traces]
        return memory.compile(ids, name="serve", **how)


def page_of(service: Served) -> str:
    return str(service.http.get("/ui/routine", params={"ref": "serve"}).text)


def tool_of_the_routine() -> Any:
    Path("em.yaml").write_text("mcp: {tokens: 500}\n")

    async def work(client: Client) -> Any:
        return {tool.name: tool for tool in (await client.list_tools()).tools}["serve"]

    return agent(over_stdio(), work)


def test_the_proof_is_stored_and_shown_everywhere(service: Served) -> None:
    routine = learnt(cancellations(Shop()))
    assert routine.trials.summary == RIGHT
    assert RIGHT in em("routine", "show", "serve", **DB).out
    shown = json.loads(em("routine", "show", "serve", "--json", **DB).out)["proof"]
    assert shown == {"right": 4, "handed_over": 0, "wrong": 0, "summary": RIGHT}
    assert RIGHT in em("routine", "list", **DB).out
    (listed,) = service.get("/routines")["items"]
    assert listed["proof"] == shown
    page = page_of(service)
    assert RIGHT in page
    assert RIGHT in tool_of_the_routine().description


def test_a_routine_that_did_the_wrong_thing_in_a_trial_says_so_everywhere(
    service: Served,
) -> None:
    routine = learnt(cancellations(Shop()))
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, routine.ref))
        proof = proof_of(files)
        assert proof is not None
        (first, *rest) = proof.trials[LEFT_OUT]
        wrong = Trial(first.trace, "wrong", "it cancels another order")
        proof = msgspec.structs.replace(proof, trials={**proof.trials, LEFT_OUT: [wrong, *rest]})
        keep_routine(memory.store, {**files, PROOF: render_proof(proof)})
    shown = em("routine", "show", "serve", **DB)
    assert "WRONG" in shown.out + shown.err
    listed = {one["version"]: one["proof"] for one in service.get("/routines")["items"]}
    assert "WRONG" in listed[2]["warning"]
    assert "warning" not in listed[1]
    page = page_of(service)
    assert "WRONG" in page
    assert page.index("it cancels another order") < page.index("Code</h2>")
    assert tool_of_the_routine().description.startswith("WARNING")


def test_a_routine_that_was_changed_does_not_claim_the_proof_of_the_old_one() -> None:
    routine = learnt(cancellations(Shop()))
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, routine.ref))
        assert PROOF in files
        files["routine.yaml"] = files["routine.yaml"].replace("changed", "delivered")
        changed = keep_routine(memory.store, files)
    assert changed.trials.summary == f"{RIGHT} (before the routine was changed)"


def private_of(shop: Shop) -> list[str]:
    """Return what only one customer has."""
    found = [*shop.users, *shop.orders]
    found += [one["email"] for one in shop.users.values()]
    return found + [card for one in shop.users.values() for card in one["cards"]]


def test_the_tool_of_a_learnt_routine_has_its_schema_without_personal_data() -> None:
    shop = Shop()
    learnt(cancellations(shop))
    tool = tool_of_the_routine()
    properties = tool.input_schema["properties"]
    assert {*tool.input_schema["required"]} == {*properties} == {"email", "order_id", "reason"}
    assert properties["email"]["format"] == "email"
    assert properties["order_id"]["pattern"] == "^#W[0-9]+$"
    told = tool.model_dump_json()
    assert [value for value in private_of(shop) if value in told] == []
    assert not tool.annotations.read_only_hint, "it writes"


def one_cancellation(shop: Shop) -> Trace:
    """Its goal, and a constant of its write, are about one customer."""
    trace = cancelled(shop, 0, NEEDED)
    goal = "Cancel #W80200 of ana.silva0@shop.example in 2026"
    return msgspec.structs.replace(trace, mission=msgspec.structs.replace(trace.mission, goal=goal))


def test_what_one_trace_was_about_is_not_in_its_tool() -> None:
    learnt([one_cancellation(Shop())])
    shown = tool_of_the_routine().model_dump_json()
    assert "80200" not in shown
    assert "ana.silva0" not in shown
    assert "email" in shown, "an input"
