"""A routine grows: what an agent did after a hand-over teaches the next version."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em

from corner_shop import Shop, cancelled, customer, exchanged, returned
from em import Memory
from em.runner.package import find_routine, keep_routine, texts_of
from em.settings import Settings, WorkSettings
from em.traces.trace import Mission, ToolCall, Trace
from em.work.upkeep import Upkeep

NEEDED, MISTAKE, MOVED = "no longer needed", "ordered by mistake", "moved abroad"
OTHER = "Hello, bo.larsen1@shop.example: cancel #W80201, ordered by mistake."


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


def learn(memory: Memory, *traces: Trace, name: str = "serve") -> Any:
    return memory.compile([memory.add_trace(trace) for trace in traces], name=name)


def test_a_task_that_was_handed_over_and_then_done_is_learnt(memory: Memory, shop: Shop) -> None:
    first = [cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE, OTHER)]
    first.append(cancelled(shop, 2, NEEDED))
    learn(memory, *first)
    _, email, _, pending = customer(shop, 3)
    request = {"request": f"I am {email}. Please cancel {pending} because {MOVED}."}
    assert memory.run("serve", request, shop.tools()).status == "needs_input"

    # An agent does it instead; and somebody else asks for the same reason.
    memory.add_trace(cancelled(shop, 3, MOVED))
    memory.add_trace(cancelled(shop, 4, MOVED))
    grown = memory.compile_again("serve")
    assert (grown.old, grown.new, grown.why_not) == ("serve@1", "serve@2", "")
    assert len(grown.added) == 2
    assert any("reason" in words and MOVED in words for words in grown.changes)
    assert grown.changes[-1].startswith("proof: right in")

    _, email, _, pending = customer(shop, 5)
    request = {"request": f"I am {email}. Please cancel {pending} because {MOVED}."}
    assert memory.run("serve", request, shop.tools()).status == "ok"
    assert shop.done == [("cancel_order", {"order_id": pending, "reason": MOVED})]


def test_what_grows_from_a_version_out_of_use_is_not_in_use(memory: Memory, shop: Shop) -> None:
    first = [cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE, OTHER)]
    ids = [memory.add_trace(trace) for trace in (*first, cancelled(shop, 2, NEEDED))]
    memory.compile(ids, name="serve", shadow=True)
    memory.add_trace(cancelled(shop, 3, MOVED))
    memory.add_trace(cancelled(shop, 4, MOVED))
    assert memory.compile_again("serve@1").new == "serve@2"
    assert memory.store.artefact("routine", "serve") is None
    assert memory.promote("serve", force=True).routine == "serve@2"


def test_nothing_new_nothing_stored(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE, OTHER))
    memory.add_trace(returned(shop, 1, ["P-4401"]))
    failed = msgspec.structs.replace(cancelled(shop, 2, NEEDED), outcome="failure")
    memory.add_trace(failed)
    grown = memory.compile_again("serve")
    assert grown.new == ""
    assert "no new traces" in grown.why_not
    assert find_routine(memory.store, "serve").version == 1


def test_a_new_trace_that_did_something_else_than_its_words_is_left_out(
    memory: Memory, shop: Shop
) -> None:
    learn(memory, returned(shop, 1, ["P-4401"]), returned(shop, 2, ["P-4402", "P-4403"]))
    user, email, delivered, _ = customer(shop, 3)
    (card,) = shop.users[user]["cards"]
    bottle = shop.orders[delivered]["items"][1]["item_id"]
    odd = memory.add_trace(
        shop.trace(
            f"My mail is {email}. I want to return the Desk Lamp of {delivered} to {card}.",
            ("find_user", {"email": email}),
            ("get_user", {"user_id": user}),
            ("get_order", {"order_id": delivered}),
            ("return_items", {"order_id": delivered, "item_ids": [bottle], "card_id": card}),
        )
    )
    assert memory.compile_again("serve").new == ""
    memory.add_trace(returned(shop, 4, ["P-4401"]))
    grown = memory.compile_again("serve")
    assert (grown.left_out, grown.new) == ([odd], "serve@2"), grown


def test_a_version_that_knows_less_is_not_stored(memory: Memory, shop: Shop) -> None:
    learn(memory, *(cancelled(shop, n, NEEDED, OTHER if n == 1 else "") for n in range(3)))
    files = texts_of(find_routine(memory.store, "serve"))
    better = json.loads(files["trials.json"])
    for one in better["trials"]:
        one |= {"verdict": "right", "reason": ""}
    was = json.loads(files["trials.json"])
    assert any(one["verdict"] != "right" for one in was["trials"])
    from_events = find_routine(memory.store, "serve").from_events
    keep_routine(memory.store, {**files, "trials.json": json.dumps(better)}, from_events)
    memory.add_trace(cancelled(shop, 4, NEEDED))
    grown = memory.compile_again("serve")
    if grown.new:
        assert "right in 4 of 4" in grown.changes[-1]
    else:
        assert "it was right in 3 of them" in grown.why_not


def lookup(order: str, status: str) -> Trace:
    call = ToolCall(tool="get_order", args={"order": order}, result={"status": status})
    note = ToolCall(tool="add_note", args={"order": order, "text": status}, result="ok")
    given = Mission("note the state", {"order": order})
    return Trace(mission=given, events=[call, note], outcome="success")


def test_a_routine_of_steps_grows_too(memory: Memory) -> None:
    memory.compile(memory.add_trace(lookup("#W10017", "pending")), name="note")
    memory.add_trace(lookup("#W20023", "delivered"))
    grown = memory.compile_again("note")
    assert grown.new == "note@2", grown
    assert any("get_order" in words for words in grown.changes), grown.changes


def test_what_was_learnt_is_said_in_words(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE, OTHER))
    learn(
        memory,
        cancelled(shop, 0, NEEDED),
        cancelled(shop, 1, MISTAKE, OTHER),
        cancelled(shop, 2, MOVED),
        exchanged(shop, 3, "P-4401", color="black"),
        exchanged(shop, 4, "P-4403", material="rubber"),
    )
    memory.close()
    ran = em("routine", "diff", "serve", EM_DB="em.db")
    assert "learnt to make exchange_items" in ran.out
    assert f'reason may be "{MOVED}" too' in ran.out
    assert "new input: new_item_ids" in ran.out
    assert "proof: right in" in ran.out
    back = em("routine", "diff", "serve", "2", "1", "--json", EM_DB="em.db").json
    assert "no longer makes exchange_items" in back["changes"]
    assert em("routine", "diff", "serve", "1", "1", EM_DB="em.db").out.startswith("nothing")


def test_the_command_compiles_again_and_says_why_not(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE, OTHER))
    memory.close()
    none = em("compile", "--again", "serve", EM_DB="em.db")
    assert (none.code, "no new traces" in none.err) == (1, True)
    with Memory("em.db") as again:
        again.add_trace(cancelled(shop, 2, MOVED))
    grown = em("compile", "--again", "serve", EM_DB="em.db")
    assert (grown.code, "stored as serve@2" in grown.out) == (0, True), grown
    assert em("compile", "--again", "serve", "--force", EM_DB="em.db").code == 2


def test_a_worker_grows_routines_by_itself_if_configured(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE, OTHER))
    memory.add_trace(cancelled(shop, 2, MOVED))
    said: list[str] = []
    assert Upkeep(memory, Settings().work, said.append).look() is False
    assert find_routine(memory.store, "serve").version == 1
    upkeep = Upkeep(memory, WorkSettings(compile_again="1s"), said.append)
    while upkeep.look():
        pass
    assert find_routine(memory.store, "serve").version == 2
    assert "serve@2 has learnt from 1 new traces" in said[0]
