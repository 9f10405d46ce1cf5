"""A routine grows: what an agent did after a hand-over teaches the next version."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em

from corner_shop import Shop, cancelled, customer, returned
from em import Memory
from em.runner.package import find_routine, keep_routine, texts_of
from em.settings import Settings, WorkSettings
from em.traces.trace import Mission, ToolCall, Trace
from em.work.worker import Upkeep

NEEDED, MISTAKE, MOVED = "no longer needed", "ordered by mistake", "moved abroad"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("em.db") as memory:
        yield memory


def learn(memory: Memory, *traces: Trace, name: str = "serve") -> Any:
    return memory.compile([memory.add_trace(trace) for trace in traces], name=name)


def asked_for(shop: Shop, number: int, reason: str) -> dict[str, Any]:
    _, email, _, pending = customer(shop, number)
    return {"email": email, "order_id": pending, "reason": reason}


def test_a_task_that_was_handed_over_and_then_done_is_learnt(memory: Memory, shop: Shop) -> None:
    """A gift was never cancelled, until an agent did it twice."""
    for number in (3, 4, 5):
        shop.orders[customer(shop, number)[3]]["gift"] = True
    learn(memory, *(cancelled(shop, n, (NEEDED, MISTAKE)[n % 2]) for n in range(3)))
    assert memory.run("serve", asked_for(shop, 3, NEEDED), shop.tools()).status == "needs_input"
    assert shop.done == []

    memory.add_trace(cancelled(shop, 3, MISTAKE))
    memory.add_trace(cancelled(shop, 4, NEEDED))
    grown = memory.compile_again("serve")
    assert (grown.old, grown.new, grown.why_not) == ("serve@1", "serve@2", "")
    assert len(grown.added) == 2
    assert grown.changes
    assert memory.run("serve", asked_for(shop, 5, NEEDED), shop.tools()).status == "ok"
    pending = customer(shop, 5)[3]
    assert shop.done == [("cancel_order", {"order_id": pending, "reason": NEEDED})]


def test_what_grows_from_a_version_out_of_use_is_not_in_use(memory: Memory, shop: Shop) -> None:
    first = [cancelled(shop, n, (NEEDED, MISTAKE)[n % 2]) for n in range(3)]
    memory.compile([memory.add_trace(trace) for trace in first], name="serve", proposed=True)
    memory.add_trace(cancelled(shop, 3, MOVED))
    memory.add_trace(cancelled(shop, 4, MOVED))
    assert memory.compile_again("serve@1").new == "serve@2"
    assert memory.store.artefact("routine", "serve") is None
    assert memory.accept("serve").routine == "serve@2"


def test_nothing_new_nothing_stored(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE))
    memory.add_trace(returned(shop, 1, ["P-4401"]))
    failed = msgspec.structs.replace(cancelled(shop, 2, NEEDED), outcome="failure")
    memory.add_trace(failed)
    grown = memory.compile_again("serve")
    assert (grown.new, list(grown.added)) == ("", [])
    assert grown.why_not
    assert find_routine(memory.store, "serve").version == 1


def test_a_new_trace_that_did_something_else_than_it_was_given_is_left_out(
    memory: Memory, shop: Shop
) -> None:
    chosen = (["P-4401"], ["P-4402", "P-4403"], ["P-4403"])
    learn(memory, *(returned(shop, n, products) for n, products in enumerate(chosen)))
    user, email, delivered, _ = customer(shop, 3)
    (card,) = shop.users[user]["cards"]
    bottle = shop.orders[delivered]["items"][1]["item_id"]
    items = [{"name": "Desk Lamp"}]
    odd = memory.add_trace(
        shop.trace(
            "",
            ("find_user", {"email": email}),
            ("get_user", {"user_id": user}),
            ("get_order", {"order_id": delivered}),
            ("return_items", {"order_id": delivered, "item_ids": [bottle], "card_id": card}),
            given={"email": email, "order_id": delivered, "card_id": card, "items": items},
        )
    )
    assert memory.compile_again("serve").new == ""
    memory.add_trace(returned(shop, 4, ["P-4401"]))
    grown = memory.compile_again("serve")
    assert (grown.left_out, grown.new) == ([odd], "serve@2"), grown
    user, email, delivered, _ = customer(shop, 5)
    (card,) = shop.users[user]["cards"]
    given = {"email": email, "order_id": delivered, "card_id": card, "items": items}
    assert memory.run("serve", given, shop.tools()).status == "ok"
    lamp = shop.orders[delivered]["items"][0]["item_id"]
    assert [args["item_ids"] for _, args in shop.done] == [[lamp]]


def test_a_version_that_knows_less_is_not_stored(memory: Memory, shop: Shop) -> None:
    """The old version was right on a gift that it had not seen; the new one would hand it over."""
    shop.orders[customer(shop, 2)[3]]["gift"] = True
    learn(memory, *(cancelled(shop, n, (NEEDED, MISTAKE)[n % 2]) for n in range(3)))
    files = texts_of(find_routine(memory.store, "serve"))
    was = json.loads(files["proof.json"])
    assert {one["verdict"] for one in was["trials"]["left out"]} != {"right"}
    for one in was["trials"]["left out"]:
        one |= {"verdict": "right", "reason": ""}
    from_events = find_routine(memory.store, "serve").from_events
    keep_routine(memory.store, {**files, "proof.json": json.dumps(was)}, from_events)
    memory.add_trace(cancelled(shop, 4, NEEDED))
    grown = memory.compile_again("serve")
    assert grown.new == ""
    assert grown.why_not


def test_new_traces_of_which_nothing_shows_how_they_ended_are_named(
    memory: Memory, shop: Shop
) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE))
    memory.add_trace(msgspec.structs.replace(cancelled(shop, 2, MOVED), outcome="unknown"))
    grown = memory.compile_again("serve")
    assert (grown.new, "--allow-unlabelled" in grown.why_not) == ("", True)
    assert memory.compile_again("serve", allow_unlabelled=True).new == "serve@2"


def lookup(order: str, status: str) -> Trace:
    call = ToolCall(tool="get_order", args={"order": order}, result={"status": status})
    note = ToolCall(tool="add_note", args={"order": order, "text": status}, result="ok")
    given = Mission("note the state", {"order": order})
    return Trace(mission=given, events=[call, note], outcome="success")


def test_a_routine_of_one_recording_grows_too(memory: Memory) -> None:
    memory.compile(memory.add_trace(lookup("#W10017", "pending")), name="note")
    memory.add_trace(lookup("#W20023", "delivered"))
    grown = memory.compile_again("note")
    assert grown.new == "note@2", grown
    noted: list[Any] = []
    tools = {
        "get_order": lambda order: {"status": "delivered"},
        "add_note": lambda order, text: noted.append((order, text)) or "ok",
    }
    assert memory.run("note", {"order": "#W30031"}, tools).status == "ok"
    assert noted == [("#W30031", "delivered")]


def test_the_command_compiles_again_and_says_why_not(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE))
    memory.close()
    none = em("compile", "--again", "serve", EM_DB="em.db")
    assert (none.code, bool(none.err)) == (1, True)
    with Memory("em.db") as again:
        again.add_trace(cancelled(shop, 2, MOVED))
    grown = em("compile", "--again", "serve", EM_DB="em.db")
    assert (grown.code, "stored as serve@2" in grown.out) == (0, True), grown
    assert em("compile", "--again", "serve", "--force", EM_DB="em.db").code == 2


def test_a_worker_grows_routines_by_itself_if_configured(memory: Memory, shop: Shop) -> None:
    learn(memory, cancelled(shop, 0, NEEDED), cancelled(shop, 1, MISTAKE))
    memory.add_trace(cancelled(shop, 2, MOVED))
    said: list[str] = []
    assert Upkeep(memory, Settings().work, said.append).look() is False
    assert find_routine(memory.store, "serve").version == 1
    upkeep = Upkeep(memory, WorkSettings(compile_again="1s"), said.append)
    while upkeep.look():
        pass
    assert find_routine(memory.store, "serve").version == 2
    assert "serve@2 has learnt from 1 new traces" in said[0]
