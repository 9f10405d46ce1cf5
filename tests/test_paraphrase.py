"""A model puts a request into words that a routine reads; it can't make it do anything else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from corner_shop import Shop, cancelled, customer, exchanged, returned
from em import Memory
from em.llm import ScriptedClient
from em.runner.run import RunResult

NEEDED, MISTAKE = "no longer needed", "ordered by mistake"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture(scope="module")
def clerk(new_memory: Callable[[], Memory]) -> Memory:
    return taught(new_memory())


def taught(memory: Memory) -> Memory:
    """Let it learn to cancel, to return and to exchange."""
    shop = Shop()
    traces = [
        cancelled(shop, 0, NEEDED),
        cancelled(shop, 1, MISTAKE),
        cancelled(shop, 2, NEEDED),
        cancelled(shop, 3, MISTAKE),
        returned(shop, 1, ["P-4401"]),
        returned(shop, 2, ["P-4402", "P-4403"]),
        exchanged(shop, 3, "P-4401", color="black"),
        exchanged(shop, 4, "P-4403", material="rubber"),
    ]
    memory.compile([memory.add_trace(one) for one in traces], name="serve")
    return memory


def reading(
    *actions: tuple[str, dict[str, str]], complete: bool = True, **about: str
) -> dict[str, Any]:
    def said(values: dict[str, str]) -> list[dict[str, str]]:
        return [{"name": name, "words": words} for name, words in values.items()]

    shown = [{"action": action, "values": said(values)} for action, values in actions]
    return {"actions": shown, "about": said(about), "complete": complete}


def run(memory: Memory, text: str, shop: Shop, *replies: Any) -> tuple[RunResult, ScriptedClient]:
    client = ScriptedClient(replies)
    given = {"request": text}
    return memory.run("serve", given, shop.tools(), client=client, remember=False), client


def test_words_that_the_routine_does_not_read_are_put_into_such_that_it_does(
    clerk: Memory, shop: Shop
) -> None:
    _, email, _, pending = customer(shop, 5)
    text = f"Greetings from Porto! {pending} was a silly slip of my finger, kill it. {email}"
    assert clerk.run("serve", {"request": text}, shop.tools()).status == "needs_input"
    reply = reading(("cancel_order", {"order_id": pending, "reason": MISTAKE}), email=email)
    result, client = run(clerk, text, shop, reply)
    assert result.status == "ok", result
    assert shop.done == [("cancel_order", {"order_id": pending, "reason": MISTAKE})]
    assert pending in result.bound["request"]
    assert len(client.requests) == 1


def test_several_things_in_one_request(clerk: Memory, shop: Shop) -> None:
    _, email, delivered, pending = customer(shop, 5)
    text = (
        f"Ciao, {email} speaking. Bin {pending}, no longer needed. And I fancy my Yoga Mat from"
        f" {delivered} being violet cork!"
    )
    result, _ = run(
        clerk,
        text.replace("no longer", "no longer"),
        shop,
        reading(
            ("cancel_order", {"order_id": pending, "reason": NEEDED}),
            (
                "exchange_items",
                {"order_id": delivered, "item_ids": "Yoga Mat", "new_item_ids": "violet cork"},
            ),
            email=email,
        ),
    )
    # The word "no" stands in it, so a model is not trusted with it.
    assert (result.status, shop.done) == ("needs_input", [])
    text = text.replace("no longer needed", "ordered by mistake")
    result, _ = run(
        clerk,
        text,
        shop,
        reading(
            ("cancel_order", {"order_id": pending, "reason": MISTAKE}),
            (
                "exchange_items",
                {"order_id": delivered, "item_ids": "Yoga Mat", "new_item_ids": "violet cork"},
            ),
            email=email,
        ),
    )
    assert result.status == "ok", result
    assert [tool for tool, _ in shop.done] == ["cancel_order", "exchange_items"]


def test_a_request_that_the_routine_reads_by_itself_costs_no_call(
    clerk: Memory, shop: Shop
) -> None:
    _, email, _, pending = customer(shop, 5)
    result, client = run(clerk, f"I am {email}. Please cancel {pending} because {NEEDED}.", shop)
    assert (result.status, client.requests, result.bound) == ("ok", [], {})


def test_what_the_model_can_not_do(clerk: Memory, shop: Shop) -> None:
    _, email, delivered, pending = customer(shop, 5)
    other = customer(shop, 4)[3]
    text = f"Yo, {email}: kill {pending}, a silly slip of my finger"
    good = {"order_id": pending, "reason": MISTAKE}
    for reply in (
        reading(("cancel_order", {**good, "order_id": other}), email=email),  # made up
        reading(("cancel_order", {**good, "reason": "a bad day"}), email=email),  # made up
        reading(("cancel_order", {**good, "reason": "silly slip"}), email=email),  # not a reason
        reading(("cancel_order", good), email="bo.larsen1@shop.example"),  # somebody else
        reading(("cancel_order", good)),  # it does not say who asks
        reading(("cancel_order", good), email=email, complete=False),
        reading(email=email),
        reading(("cancel_order", {**good, "colour": "kill"}), email=email),
        reading(("cancel_order", {"reason": MISTAKE}), email=email),
    ):
        result, _ = run(clerk, text, shop, reply)
        assert (result.status, shop.done) == ("needs_input", []), reply
    assert delivered


@pytest.mark.parametrize(
    "words",
    [
        "Whatever you do, do not kill {pending}, ordered by mistake, {email}",
        "If it is still there, kill {pending}, ordered by mistake, {email}",
        "Kill {pending} or {delivered}, ordered by mistake, {email}",
        "Kill {pending}, {delivered} too, ordered by mistake, {email}",
        "Kill {pending} and send 500 to me, ordered by mistake, {email}",
        "> Kill {pending}, ordered by mistake, {email}",
        "~~Kill {pending}, ordered by mistake~~, {email}",
        "Kill ≠{pending}, ordered by mistake, {email}",
    ],
)
def test_a_request_that_a_model_may_overlook_a_part_of(
    clerk: Memory, shop: Shop, words: str
) -> None:
    _, email, delivered, pending = customer(shop, 5)
    text = words.format(email=email, delivered=delivered, pending=pending)
    reply = reading(("cancel_order", {"order_id": pending, "reason": MISTAKE}), email=email)
    result, _ = run(clerk, text, shop, reply)
    assert (result.status, shop.done) == ("needs_input", [])


def test_a_template_is_filled_in_with_what_stands_in_the_request(shop: Shop) -> None:
    with Memory("em.db") as memory:
        memory.compile(memory.add_trace(cancelled(shop, 0, MISTAKE)), name="serve")
        _, email, _, pending = customer(shop, 5)
        text = f"Yo, {email} wants {pending} gone: moved abroad"
        values = {"email": email, "order_id": pending, "reason": "moved abroad"}
        for wrong in ({"reason": "a bad day"}, {"order_id": customer(shop, 4)[3]}):
            result, _ = run(memory, text, shop, reading(("serve", {**values, **wrong})))
            assert (result.status, shop.done) == ("needs_input", [])
        result, _ = run(memory, text, shop, reading(("serve", values)))
        assert result.status == "ok", result
        assert shop.done == [("cancel_order", {"order_id": pending, "reason": "moved abroad"})]


def test_the_model_sees_no_recorded_person(clerk: Memory, shop: Shop) -> None:
    text = f"Yo, {customer(shop, 5)[1]}: kill {customer(shop, 5)[3]}"
    _, client = run(clerk, text, shop, reading(complete=False))
    (request,) = client.requests
    told = json.dumps([message.text for message in request.messages])
    for number in range(5):
        user, email, delivered, pending = customer(shop, number)
        assert not [one for one in (user, email, delivered, pending) if one in told]


def test_the_command_says_how_the_model_reads_it() -> None:
    with Memory("em.db") as memory:
        taught(memory)
    reply = reading(("cancel_order", {"order_id": "#W99017", "reason": MISTAKE}),
                    email="eva@shop.example")  # fmt: skip
    Path("replies.json").write_text(json.dumps([reply]))
    Path("em.yaml").write_text(
        "llm: {provider: tape}\nproviders: {tape: {protocol: scripted, base_url: replies.json}}\n"
    )
    Path("tools.py").write_text(
        "def find_user(email):\n    return 'eva_7714'\n"
        "def get_user(user_id):\n"
        "    return {'user_id': user_id, 'email': 'eva@shop.example', 'orders': ['#W99017'],\n"
        "            'cards': {'card_1': {'id': 'card_1', 'brand': 'visa'}}}\n"
        "def get_order(order_id):\n"
        "    return {'order_id': order_id, 'user_id': 'eva_7714', 'status': 'pending',\n"
        "            'items': [{'item_id': '1', 'name': 'lamp', 'product_id': 'p1'}]}\n"
        "def get_product(product_id):\n    return {}\n"
        "def cancel_order(order_id, reason):\n"
        "    return {'order_id': order_id, 'status': 'changed'}\n"
        "def return_items(order_id, item_ids, card_id):\n    return {}\n"
        "def exchange_items(order_id, item_ids, new_item_ids):\n    return {}\n"
    )
    said = "Yo, eva@shop.example: kill #W99017, a silly slip"
    Path("input.json").write_text(json.dumps({"request": said}))
    given = ["--input", "input.json", "--tools", "tools.py"]
    assert em("run", "serve", *given, EM_DB="em.db").code != 0
    ran = em("run", "serve", "--llm", *given, EM_DB="em.db")
    assert ran.code == 0, ran.err
    assert "the model reads the request as: I am eva@shop.example. cancel #W99017" in ran.err
