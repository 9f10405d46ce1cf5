"""Record in one world, replay in another, without checks: the right writes, or none by the replay.

Each pair is one row of `PAIRS`. The agent is plain code, so what it does by itself in the changed
world is known: the engine must end with exactly those writes, by a replay, by a hand-over or by a
miss. A row that says `replays` must be a hit as well: a cache that always asks is of no use.
"""

import copy
import datetime as dt
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from em import Engine

World = dict[str, Any]

READS: Mapping[str, Callable[..., Any]] = {
    "get_order": lambda w, order_id: w["orders"].get(order_id),
    "get_user": lambda w, user_id: w["users"].get(user_id),
    "get_product": lambda w, product_id: w["products"].get(product_id),
    "get_account": lambda w, account_id: w["accounts"].get(account_id),
    "get_ticket": lambda w, ticket_id: w["tickets"].get(ticket_id),
    "get_coupon": lambda w, code: w["coupons"].get(code),
    "get_policy": lambda w: w["policy"],
    "get_project": lambda w: w["project"],
    "get_session": lambda w: w["session"],
    "get_mail": lambda w: w["mail"],
    "get_today": lambda w: w["today"],
    "list_products": lambda w: list(w["products"].values()),
    "list_orders": lambda w: list(w["orders"].values()),
    "list_users": lambda w: list(w["users"].values()),
    "list_slots": lambda w: w["slots"],
    "list_payments": lambda w: w["payments"],
    "list_tickets": lambda w: list(w["tickets"].values()),
    "search_users": lambda w, name: [u for u in w["users"].values() if u["name"] == name],
    "find_user": lambda w, email: next(
        (u for u in w["users"].values() if u["email"] == email), None
    ),
}
"""The tools that read, each given the world and its own arguments."""

WRITES: Mapping[str, Sequence[str]] = {
    "cancel_order": ["order_id"],
    "buy": ["product_id", "quantity"],
    "pay": ["account_id", "amount"],
    "charge": ["order_id", "method"],
    "refund": ["payment_id", "amount"],
    "send_mail": ["to", "text"],
    "set_limit": ["limit"],
    "set_label": ["ticket_id", "label"],
    "set_flag": ["user_id", "on"],
    "assign": ["ticket_id", "user_id"],
    "book_slot": ["slot"],
    "ship": ["order_id", "address"],
    "move_money": ["source", "target", "amount"],
    "apply_coupon": ["order_id", "code"],
    "confirm": ["code"],
    "create_login": ["login"],
    "create_version": ["number"],
    "reserve": ["seats"],
    "delete_user": ["user_id"],
    "approve": ["order_id"],
}
"""The tools that write, with the names of their arguments. What they were given is noted."""


def tools_of(world: World, writes: list[Any], engine: Engine | None) -> SimpleNamespace:
    """The tools over a world; decorated as a user would, if there is an engine."""
    tools = SimpleNamespace()

    def add(name: str, effect: Any, args: Sequence[str], do: Callable[..., Any]) -> None:
        scope: dict[str, Any] = {"do": do}
        exec(f"def {name}({', '.join(args)}): return do({', '.join(args)})", scope)
        function = scope[name]
        setattr(tools, name, engine.function(effect=effect)(function) if engine else function)

    def reader(read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: copy.deepcopy(read(world, *args))

    def writer(name: str) -> Callable[..., Any]:
        def write(*args: Any) -> Any:
            writes.append((name, *args))
            return world.get("replies", {}).get(name, {"ok": True})

        return write

    for name, read in READS.items():
        add(name, "read", list(inspect.signature(read).parameters)[1:], reader(read))
    for name, args in WRITES.items():
        add(name, "write", args, writer(name))
    return tools


class Pair(NamedTuple):
    """One row: an agent, the task, the world in which it is recorded, and what is then changed.

    again: what is different in the task on the replay; all of the task are params then.
    replays: this change does not matter, so it must be a hit.
    """

    name: str
    agent: Callable[..., Any]
    task: Mapping[str, Any] = {}
    change: Callable[[World], Any] = lambda _world: None
    again: Mapping[str, Any] | None = None
    replays: bool = False


def start() -> World:
    """The world in which all pairs are recorded."""
    return {
        "replies": {"pay": {"ok": True, "number": 7}},
        "orders": {
            "#W1001": {
                "order_id": "#W1001",
                "user_id": "ana_silva_1001",
                "status": "pending",
                "total": 120,
                "discount": None,
                "vip": True,
                "flags": [],
                "note": "",
                "placed": "2026-03-01",
                "return_by": "2026-06-30",
                "payment": {"status": "paid", "method": "card_77120"},
                "items": [
                    {"item_id": "item_5501", "name": "lamp", "price": 80, "gift": False},
                    {"item_id": "item_5502", "name": "cable", "price": 40, "gift": True},
                ],
            },
            "#W2002": {
                "order_id": "#W2002",
                "user_id": "bo_larsen_2002",
                "status": "pending",
                "total": 75,
                "discount": None,
                "vip": True,
                "flags": [],
                "note": "",
                "placed": "2026-02-01",
                "return_by": "2026-05-30",
                "payment": {"status": "paid", "method": "card_88230"},
                "items": [{"item_id": "item_6601", "name": "desk", "price": 75, "gift": False}],
            },
        },
        "users": {
            "ana_silva_1001": {
                "user_id": "ana_silva_1001",
                "name": "Ana Silva",
                "email": "ana@example.org",
                "role": "admin",
                "city": "Lisbon",
                "vip": True,
                "active": True,
                "manager": "cy_moreau_3003",
                "account": 7,
                "methods": ["card_77120", "bank_77999"],
                "home": {"street": "Rua Nova 1", "zip": "1100-148"},
                "billing": {"street": "Rua Nova 1", "zip": "1100-148"},
                "addresses": [
                    {"street": "Rua Nova 1", "default": True},
                    {"street": "Rua Velha 2", "default": False},
                ],
            },
            "bo_larsen_2002": {
                "user_id": "bo_larsen_2002",
                "name": "Bo Larsen",
                "email": "bo@example.org",
                "role": "guest",
                "city": "Oslo",
                "vip": False,
                "active": True,
                "manager": "cy_moreau_3003",
                "account": 4,
                "methods": ["card_88230"],
                "home": {"street": "Storgata 5", "zip": "0155"},
                "billing": {"street": "Postboks 9", "zip": "0101"},
                "addresses": [{"street": "Storgata 5", "default": True}],
            },
        },
        "products": {
            "prod_301": {
                "product_id": "prod_301", "name": "mug", "colour": "red", "price": 7, "stock": 5,
                "kind": "physical", "available": True, "size": "s",
            },
            "prod_302": {
                "product_id": "prod_302", "name": "mug", "colour": "blue", "price": 9, "stock": 5,
                "kind": "physical", "available": True, "size": "m",
            },
            "prod_303": {
                "product_id": "prod_303", "name": "mug", "colour": "green", "price": 12,
                "stock": 5, "kind": "physical", "available": True, "size": "l",
            },
        },
        "accounts": {
            "acc_9001": {
                "account_id": "acc_9001", "owner": "ana_silva_1001", "balance": 500,
                "currency": "EUR", "blocked": False, "primary": "acc_9001",
                "secondary": "acc_9002", "unpaid": 3,
            },
            "acc_9002": {
                "account_id": "acc_9002", "owner": "bo_larsen_2002", "balance": 900,
                "currency": "EUR", "blocked": False, "primary": "acc_9002",
                "secondary": "acc_9001", "unpaid": 0,
            },
        },
        "tickets": {
            "T-41": {"ticket_id": "T-41", "state": "open", "priority": "high", "owner": None},
            "T-42": {"ticket_id": "T-42", "state": "open", "priority": "low", "owner": None},
        },
        "coupons": {"SPRING24": {"code": "SPRING24", "valid": True, "until": "2026-12-31"}},
        "policy": {"max": 100, "min_items": 2, "window": 30, "approver_role": "admin"},
        "project": {
            "owner": "ana@example.org", "approver": "ana@example.org", "version": 4,
            "members": ["ana@example.org", "bo@example.org"],
        },
        "session": {"user_id": "ana_silva_1001", "expired": False},
        "mail": {"from": "bank@example.org", "text": "Your code is 471188. Do not share it."},
        "today": "2026-04-10",
        "slots": [
            {"slot": "mon-0900", "at": "2026-05-04T09:00", "free": True},
            {"slot": "tue-1400", "at": "2026-05-05T14:00", "free": True},
        ],
        "payments": [
            {"payment_id": "pay_61001", "amount": 30, "on": "2026-01-05"},
            {"payment_id": "pay_61002", "amount": 90, "on": "2026-03-05"},
            {"payment_id": "pay_61003", "amount": 45, "on": "2026-02-05"},
        ],
    }  # fmt: skip


# The agents. `t` are the tools; the rest are arguments of the task.


def cancel_pending(t: Any, order_id: str) -> str:
    if t.get_order(order_id)["status"] != "pending":
        return "no"
    t.cancel_order(order_id)
    return "done"


def cancel_paid(t: Any, order_id: str) -> str:
    if t.get_order(order_id)["payment"]["status"] == "paid":
        t.cancel_order(order_id)
    return "done"


def cancel_own(t: Any, email: str, order_id: str) -> str:
    user, order = t.find_user(email), t.get_order(order_id)
    if not user or not order or order["user_id"] != user["user_id"]:
        return "not yours"
    t.cancel_order(order_id)
    return "done"


def cancel_returnable(t: Any, order_id: str) -> str:
    today = t.get_today()
    if today <= t.get_order(order_id)["return_by"]:
        t.cancel_order(order_id)
    return "done"


def cancel_unflagged(t: Any, order_id: str) -> str:
    order = t.get_order(order_id)
    if not order["flags"] and not order["note"]:
        t.cancel_order(order_id)
    return "done"


def cancel_of_vip(t: Any, order_id: str) -> str:
    order = t.get_order(order_id)
    user = t.get_user(order["user_id"])
    if user["vip"] and order["vip"]:
        t.cancel_order(order_id)
    return "done"


def cancel_undiscounted(t: Any, order_id: str) -> str:
    order = t.get_order(order_id)
    if "discount" in order and order["discount"] is None:
        t.cancel_order(order_id)
    return "done"


def cancel_existing(t: Any, order_id: str) -> str:
    if t.get_order(order_id) is not None:
        t.cancel_order(order_id)
    return "done"


def cancel_first_listed_pending(t: Any) -> str:
    for order in t.list_orders():
        if order["status"] == "pending":
            t.cancel_order(order["order_id"])
            break
    return "done"


def charge_own_method(t: Any, user_id: str, method: str, order_id: str) -> str:
    if method in t.get_user(user_id)["methods"]:
        t.charge(order_id, method)
    return "done"


def charge_original_method(t: Any, order_id: str) -> str:
    t.charge(order_id, t.get_order(order_id)["payment"]["method"])
    return "done"


def charge_first_method(t: Any, user_id: str, order_id: str) -> str:
    t.charge(order_id, t.get_user(user_id)["methods"][0])
    return "done"


def charge_card(t: Any, user_id: str, order_id: str) -> str:
    methods = t.get_user(user_id)["methods"]
    t.charge(order_id, next(m for m in methods if m.startswith("card_")))
    return "done"


def buy_in_stock(t: Any, product_id: str, quantity: int) -> str:
    if t.get_product(product_id)["stock"] >= quantity:
        t.buy(product_id, quantity)
    return "done"


def buy_all_of_it(t: Any, product_id: str) -> str:
    t.buy(product_id, t.get_product(product_id)["stock"])
    return "done"


def buy_cheapest(t: Any) -> str:
    t.buy(min(t.list_products(), key=lambda p: p["price"])["product_id"], 1)
    return "done"


def buy_first(t: Any) -> str:
    t.buy(t.list_products()[0]["product_id"], 1)
    return "done"


def buy_colour(t: Any, colour: str) -> str:
    found = [p for p in t.list_products() if p["colour"] == colour]
    if len(found) == 1:
        t.buy(found[0]["product_id"], 1)
    return "done"


def buy_available(t: Any, colour: str) -> str:
    found = next(p for p in t.list_products() if p["colour"] == colour)
    if found["available"]:
        t.buy(found["product_id"], 1)
    return "done"


def buy_only_affordable(t: Any) -> str:
    cheap = [p for p in t.list_products() if p["price"] < 8]
    if len(cheap) == 1:
        t.buy(cheap[0]["product_id"], 1)
    return "done"


def buy_physical(t: Any, product_id: str) -> str:
    if t.get_product(product_id)["kind"] == "physical":
        t.buy(product_id, 1)
    return "done"


def limit_of_policy(t: Any, limit: int) -> str:
    t.set_limit(t.get_policy()["max"])
    return "done"


def limit_asked(t: Any, limit: int) -> str:
    t.get_policy()
    t.set_limit(limit)
    return "done"


def limit_capped(t: Any, limit: int) -> str:
    t.set_limit(min(limit, t.get_policy()["max"]))
    return "done"


def mail_approver(t: Any) -> str:
    t.send_mail(t.get_project()["approver"], "please approve")
    return "done"


def mail_members(t: Any) -> str:
    for member in t.get_project()["members"]:
        t.send_mail(member, "we meet today")
    return "done"


def mail_last_member(t: Any) -> str:
    t.send_mail(t.get_project()["members"][-1], "you are the newest")
    return "done"


def mail_by_name(t: Any, user_id: str) -> str:
    user = t.get_user(user_id)
    t.send_mail(user["email"], f"Dear {user['name']}, welcome")
    return "done"


def mail_status(t: Any, order_id: str) -> str:
    order = t.get_order(order_id)
    t.send_mail("desk@example.org", f"order is {order['status']}, {len(order['items'])} items")
    return "done"


def mail_domain(t: Any, user_id: str) -> str:
    domain = t.get_user(user_id)["email"].partition("@")[2]
    t.send_mail(f"postmaster@{domain}", "hello")
    return "done"


def confirm_code(t: Any) -> str:
    text = t.get_mail()["text"]
    t.confirm("".join(char for char in text if char.isdigit()))
    return "done"


def confirm_from_bank(t: Any) -> str:
    mail = t.get_mail()
    if mail["from"] == "bank@example.org":
        t.confirm("".join(char for char in mail["text"] if char.isdigit()))
    return "done"


def login_of_name(t: Any, user_id: str) -> str:
    first, last = t.get_user(user_id)["name"].lower().split()
    t.create_login(f"{first}.{last}")
    return "done"


def pay_sum(t: Any, order_id: str, account_id: str) -> str:
    items = t.get_order(order_id)["items"]
    t.pay(account_id, sum(item["price"] for item in items))
    return "done"


def pay_difference(t: Any, order_id: str, account_id: str) -> str:
    t.pay(account_id, t.get_order(order_id)["total"] - t.get_policy()["max"])
    return "done"


def pay_product(t: Any, product_id: str, quantity: int, account_id: str) -> str:
    t.pay(account_id, quantity * t.get_product(product_id)["price"])
    return "done"


def pay_in_euro(t: Any, account_id: str, amount: int) -> str:
    if t.get_account(account_id)["currency"] == "EUR":
        t.pay(account_id, amount)
    return "done"


def pay_unblocked(t: Any, account_id: str, amount: int) -> str:
    account = t.get_account(account_id)
    if not account["blocked"] and account["balance"] >= amount:
        t.pay(account_id, amount)
    return "done"


def pay_if_logged_in(t: Any, account_id: str, amount: int) -> str:
    session, account = t.get_session(), t.get_account(account_id)
    if not session["expired"] and account["owner"] == session["user_id"]:
        t.pay(account_id, amount)
    return "done"


def pay_small_total(t: Any, order_id: str, account_id: str) -> str:
    order = t.get_order(order_id)
    if order["total"] < 200:
        t.pay(account_id, order["total"])
    return "done"


def move_between(t: Any, account_id: str) -> str:
    account = t.get_account(account_id)
    t.move_money(account["primary"], account["secondary"], 50)
    return "done"


def refund_largest(t: Any) -> str:
    payment = max(t.list_payments(), key=lambda p: p["amount"])
    t.refund(payment["payment_id"], payment["amount"])
    return "done"


def refund_latest(t: Any) -> str:
    payment = max(t.list_payments(), key=lambda p: p["on"])
    t.refund(payment["payment_id"], payment["amount"])
    return "done"


def refund_second(t: Any) -> str:
    payment = t.list_payments()[1]
    t.refund(payment["payment_id"], payment["amount"])
    return "done"


def label_as_state(t: Any, ticket_id: str) -> str:
    t.set_label(ticket_id, t.get_ticket(ticket_id)["state"])
    return "done"


def label_open(t: Any, ticket_id: str) -> str:
    t.get_ticket(ticket_id)
    t.set_label(ticket_id, "open")
    return "done"


def label_high(t: Any) -> str:
    for ticket in t.list_tickets():
        if ticket["priority"] == "high":
            t.set_label(ticket["ticket_id"], "urgent")
    return "done"


def assign_if_free(t: Any, ticket_id: str, user_id: str) -> str:
    if t.get_ticket(ticket_id)["owner"] is None:
        t.assign(ticket_id, user_id)
    return "done"


def assign_manager(t: Any, user_id: str, ticket_id: str) -> str:
    t.assign(ticket_id, t.get_user(user_id)["manager"])
    return "done"


def reserve_for_open(t: Any) -> str:
    t.reserve(len([one for one in t.list_tickets() if one["state"] == "open"]))
    return "done"


def reserve_unpaid(t: Any, account_id: str, tables: int) -> str:
    t.reserve(t.get_account(account_id)["unpaid"])
    return "done"


def ship_to_default(t: Any, user_id: str, order_id: str) -> str:
    addresses = t.get_user(user_id)["addresses"]
    t.ship(order_id, next(a for a in addresses if a["default"])["street"])
    return "done"


def ship_to_city(t: Any, user_id: str, order_id: str, city: str) -> str:
    t.ship(order_id, t.get_user(user_id)["city"])
    return "done"


def ship_home(t: Any, user_id: str, order_id: str) -> str:
    t.ship(order_id, t.get_user(user_id)["home"])
    return "done"


def mail_greeting(t: Any, user_id: str, name: str) -> str:
    t.send_mail("desk@example.org", f"{t.get_user(user_id)['name']} says hello")
    return "done"


def approve_new(t: Any, user_id: str) -> str:
    user = t.get_user(user_id)
    t.approve(t.pay(user["account"], 40)["number"])
    return "done"


def mail_other(t: Any, user_id: str, other_id: str) -> str:
    user, other = t.get_user(user_id), t.get_user(other_id)
    t.send_mail(other["email"], f"{user['name']} says hello")
    return "done"


def ship_where_asked(t: Any, order_id: str, country: str) -> str:
    if country == "PT":
        t.ship(order_id, "Rua Nova 1")
    return "done"


def apply_valid_coupon(t: Any, order_id: str, code: str) -> str:
    coupon = t.get_coupon(code)
    if coupon and coupon["valid"]:
        t.apply_coupon(order_id, code)
    return "done"


def apply_coupon_in_time(t: Any, order_id: str, code: str) -> str:
    today = t.get_today()
    if today <= t.get_coupon(code)["until"]:
        t.apply_coupon(order_id, code)
    return "done"


def book_first_free(t: Any) -> str:
    t.book_slot(next(s for s in t.list_slots() if s["free"])["slot"])
    return "done"


def book_earliest(t: Any) -> str:
    t.book_slot(min(t.list_slots(), key=lambda s: s["at"])["slot"])
    return "done"


def next_version(t: Any) -> str:
    t.create_version(t.get_project()["version"] + 1)
    return "done"


def delete_the_one(t: Any, name: str) -> str:
    found = t.search_users(name)
    if len(found) == 1:
        t.delete_user(found[0]["user_id"])
    return "done"


def delete_guest(t: Any, user_id: str) -> str:
    if t.get_user(user_id)["role"] != "admin":
        t.delete_user(user_id)
    return "done"


def flag_as_active(t: Any, user_id: str) -> str:
    t.set_flag(user_id, t.get_user(user_id)["active"])
    return "done"


def approve_by_admin(t: Any, user_id: str, order_id: str) -> str:
    user, policy = t.get_user(user_id), t.get_policy()
    if user["role"] == policy["approver_role"]:
        t.approve(order_id)
    return "done"


def approve_many_items(t: Any, order_id: str) -> str:
    order, policy = t.get_order(order_id), t.get_policy()
    if len(order["items"]) >= policy["min_items"]:
        t.approve(order_id)
    return "done"


def approve_recent(t: Any, order_id: str) -> str:
    today = dt.date.fromisoformat(t.get_today())
    placed = dt.date.fromisoformat(t.get_order(order_id)["placed"])
    if (today - placed).days <= 60:
        t.approve(order_id)
    return "done"


def pay_then_ship(t: Any, account_id: str, amount: int, order_id: str) -> str:
    if t.pay(account_id, amount)["ok"]:
        t.ship(order_id, "Rua Nova 1")
    return "done"


def pay_then_tell(t: Any, account_id: str, amount: int) -> str:
    if t.pay(account_id, amount).get("state", "accepted") == "accepted":
        t.send_mail("desk@example.org", "paid")
    return "done"


def cancel_listed(t: Any, order_id: str) -> str:
    order = next(order for order in t.list_orders() if order["order_id"] == order_id)
    if order["status"] == "pending":
        t.cancel_order(order_id)
    return "done"


def ana(world: World) -> Any:
    return world["users"]["ana_silva_1001"]


def bo(world: World) -> Any:
    return world["users"]["bo_larsen_2002"]


def w2(world: World) -> Any:
    return world["orders"]["#W2002"]


def w1(world: World) -> Any:
    return world["orders"]["#W1001"]


def reorder(table: str, *keys: str) -> Callable[[World], Any]:
    def change(world: World) -> None:
        world[table] = {key: world[table][key] for key in keys}

    return change


def renamed(world: World) -> None:
    ana(world).update(name="Ana Costa")


def second_namesake(world: World) -> None:
    world["users"]["zoe_9"] = {**ana(world), "user_id": "zoe_9"}


def prefix(world: World) -> None:
    world["orders"]["#W100"] = {**w1(world), "order_id": "#W100", "status": "shipped"}


def numbered(world: World) -> None:
    world["products"]["prod_301"]["product_id"] = 301


def second_coupon(world: World) -> None:
    coupons = world["coupons"]
    coupons["WINTER25"] = {"code": "WINTER25", "valid": False, "until": "2026-01-31"}


W1 = {"order_id": "#W1001"}
W2 = {"order_id": "#W2002"}
OWN = {"email": "ana@example.org", "order_id": "#W1001"}
METHOD = {"user_id": "ana_silva_1001", "method": "card_77120", "order_id": "#W1001"}
ANA = {"user_id": "ana_silva_1001"}
MUG = {"product_id": "prod_301", "quantity": 2}
ACCOUNT = {"account_id": "acc_9001", "amount": 40}
BOTH = {"order_id": "#W1001", "account_id": "acc_9001"}
SPRING = {"order_id": "#W1001", "code": "SPRING24"}
SHUFFLED = reorder("products", "prod_303", "prod_301", "prod_302")

PAIRS = [
    # Facts of the record that is acted on
    Pair("status now shipped", cancel_pending, W1, lambda w: w1(w).update(status="shipped")),
    Pair("another order, shipped", cancel_pending, W1, lambda w: w["orders"]["#W2002"].update(
        status="shipped"), {"order_id": "#W2002"}),
    Pair("status one level down", cancel_paid, W1, lambda w: w1(w)["payment"].update(status="due")),
    Pair("stock now 0", buy_in_stock, MUG, lambda w: w["products"]["prod_301"].update(stock=0)),
    Pair("quantity above stock", buy_in_stock, MUG, again={"quantity": 9}),
    Pair("not available any more", buy_available, {"colour": "red"}, lambda w: w["products"][
        "prod_301"].update(available=False)),
    Pair("a type changed", buy_physical, {"product_id": "prod_301"}, lambda w: w["products"][
        "prod_301"].update(kind="digital")),
    Pair("account blocked", pay_unblocked, ACCOUNT, lambda w: w["accounts"]["acc_9001"].update(
        blocked=True)),
    Pair("balance too low", pay_unblocked, ACCOUNT, again={"amount": 600}),
    Pair("currency changed", pay_in_euro, ACCOUNT, lambda w: w["accounts"]["acc_9001"].update(
        currency="USD")),
    Pair("coupon no longer valid", apply_valid_coupon, SPRING, lambda w: w["coupons"][
        "SPRING24"].update(valid=False)),
    Pair("coupon expired", apply_coupon_in_time, SPRING, lambda w: w.update(today="2027-01-01")),
    Pair("coupon is gone", apply_valid_coupon, SPRING, lambda w: w["coupons"].clear()),
    Pair("too late to return", cancel_returnable, W1, lambda w: w.update(today="2026-07-01")),
    Pair("placed too long ago", approve_recent, W1, lambda w: w.update(today="2026-08-01")),
    Pair("session expired", pay_if_logged_in, ACCOUNT, lambda w: w["session"].update(expired=True)),
    Pair("a flag was raised", cancel_unflagged, W1, lambda w: w1(w).update(flags=["fraud"])),
    Pair("a note was added", cancel_unflagged, W1, lambda w: w1(w).update(note="do not touch")),
    Pair("discount missing, was none", cancel_undiscounted, W1, lambda w: w1(w).pop("discount")),
    Pair("discount given, was none", cancel_undiscounted, W1, lambda w: w1(w).update(discount=5)),
    Pair("flag of two records, the order's flips", cancel_of_vip, W1, lambda w: w1(w).update(
        vip=False)),
    Pair("flag of two records, the user's flips", cancel_of_vip, W1, lambda w: ana(w).update(
        vip=False)),
    Pair("ticket taken meanwhile", assign_if_free, {"ticket_id": "T-41", **ANA}, lambda w: w[
        "tickets"]["T-41"].update(owner="bo_larsen_2002")),
    Pair("role changed", delete_guest, {"user_id": "bo_larsen_2002"}, lambda w: w["users"][
        "bo_larsen_2002"].update(role="admin")),
    Pair("approver's role changed", approve_by_admin, {**ANA, **W1}, lambda w: ana(w).update(
        role="guest")),
    Pair("the policy asks for another role", approve_by_admin, {**ANA, **W1}, lambda w: w[
        "policy"].update(approver_role="owner")),
    Pair("too few items", approve_many_items, W1, lambda w: w1(w)["items"].pop()),
    Pair("the order is gone", cancel_existing, W1, lambda w: w["orders"].pop("#W1001")),
    Pair("total too large", pay_small_total, BOTH, lambda w: w1(w).update(total=2500)),
    Pair("boolean passed on", flag_as_active, ANA, lambda w: ana(w).update(active=False)),
    Pair("the payment is declined", pay_then_ship, {**ACCOUNT, **W1}, lambda w: w.update(
        replies={"pay": {"ok": False}})),
    Pair("the payment is put on hold", pay_then_tell, ACCOUNT, lambda w: w.update(
        replies={"pay": {"state": "held"}})),
    # The same facts, of another record
    Pair("another order, not paid", cancel_paid, W1, lambda w: w2(w)["payment"].update(
        status="due"), W2),
    Pair("another order, flagged", cancel_unflagged, W1, lambda w: w2(w).update(flags=["fraud"]),
         W2),
    Pair("another order, with a note", cancel_unflagged, W1, lambda w: w2(w).update(
        note="do not touch"), W2),
    Pair("another order, discounted", cancel_undiscounted, W1, lambda w: w2(w).update(discount=5),
         W2),
    Pair("another order, returned too late", cancel_returnable, W1, lambda w: w2(w).update(
        return_by="2026-03-30"), W2),
    Pair("another order, too few items", approve_many_items, W1, again=W2),
    Pair("another order, of somebody who is no vip", cancel_of_vip, W1, lambda w: w2(w).update(
        vip=True), W2),
    Pair("another ticket, taken", assign_if_free, {"ticket_id": "T-41", **ANA}, lambda w: w[
        "tickets"]["T-42"].update(owner="bo_larsen_2002"), {"ticket_id": "T-42"}),
    Pair("another user, an admin", delete_guest, {"user_id": "bo_larsen_2002"}, again=ANA),
    Pair("another approver, a guest", approve_by_admin, {**ANA, **W1}, again={
        "user_id": "bo_larsen_2002"}),
    Pair("another product, digital", buy_physical, {"product_id": "prod_301"}, lambda w: w[
        "products"]["prod_302"].update(kind="digital"), {"product_id": "prod_302"}),
    Pair("another product, sold out", buy_in_stock, MUG, lambda w: w["products"]["prod_302"].update(
        stock=0), {"product_id": "prod_302"}),
    Pair("another product, too few of it", buy_in_stock, MUG, lambda w: w["products"][
        "prod_302"].update(stock=1), {"product_id": "prod_302"}),
    Pair("another account, in dollars", pay_in_euro, ACCOUNT, lambda w: w["accounts"][
        "acc_9002"].update(currency="USD"), {"account_id": "acc_9002"}),
    Pair("another account, blocked", pay_unblocked, ACCOUNT, lambda w: w["accounts"][
        "acc_9002"].update(blocked=True), {"account_id": "acc_9002"}),
    Pair("another coupon, not valid", apply_valid_coupon, SPRING, second_coupon, {
        "code": "WINTER25"}),
    Pair("another coupon, expired", apply_coupon_in_time, SPRING, second_coupon, {
        "code": "WINTER25"}),
    Pair("another coupon, unknown", apply_valid_coupon, SPRING, again={"code": "AUTUMN26"}),
    Pair("another order of the list, shipped", cancel_listed, W1, lambda w: w2(w).update(
        status="shipped"), W2),
    Pair("not this order of the list, shipped", cancel_listed, W1, lambda w: w2(w).update(
        status="shipped")),
    # Who it is about
    Pair("somebody else's order", cancel_own, OWN, again={"order_id": "#W2002"}),
    Pair("the order changed hands", cancel_own, OWN, lambda w: w1(w).update(
        user_id="bo_larsen_2002")),
    Pair("somebody else's payment method", charge_own_method, METHOD, again={
        "method": "card_88230"}),
    Pair("a payment method was removed", charge_own_method, METHOD, lambda w: ana(w).update(
        methods=["bank_77999"])),
    Pair("somebody else's account", pay_if_logged_in, ACCOUNT, again={"account_id": "acc_9002"}),
    Pair("an unknown e-mail", cancel_own, OWN, again={"email": "eve@example.org"}),
    Pair("an id that is the start of another", cancel_pending, W1, prefix, {"order_id": "#W100"}),
    # One value, several sources
    Pair("policy that equalled a param", limit_of_policy, {"limit": 100}, lambda w: w[
        "policy"].update(max=500)),
    Pair("policy that equalled a param, other param", limit_of_policy, {"limit": 100}, again={
        "limit": 60}),
    Pair("param that equalled a policy", limit_asked, {"limit": 100}, again={"limit": 60}),
    Pair("the smaller of param and policy", limit_capped, {"limit": 100}, lambda w: w[
        "policy"].update(max=500), {"limit": 300}),
    Pair("approver equalled the owner", mail_approver, {}, lambda w: w["project"].update(
        owner="bo@example.org", approver="cy@example.org")),
    Pair("only the owner changed", mail_approver, {}, lambda w: w["project"].update(
        owner="bo@example.org")),
    Pair("two ids swapped", move_between, {"account_id": "acc_9001"}, lambda w: w["accounts"][
        "acc_9001"].update(primary="acc_9002", secondary="acc_9001")),
    Pair("city that equalled a param", ship_to_city, {**ANA, **W1, "city": "Lisbon"}, lambda w: ana(
        w).update(city="Porto")),
    Pair("an amount that equals a count", reserve_unpaid, {"account_id": "acc_9001", "tables": 3},
         again={"tables": 5}),
    Pair("a count that equals an amount", reserve_unpaid, {"account_id": "acc_9001", "tables": 3},
         lambda w: w["accounts"]["acc_9001"].update(unpaid=4)),
    Pair("a status as an argument", label_as_state, {"ticket_id": "T-41"}, lambda w: w["tickets"][
        "T-41"].update(state="closed")),
    Pair("a constant that equals a status", label_open, {"ticket_id": "T-41"}, lambda w: w[
        "tickets"]["T-41"].update(state="closed")),
    Pair("stock that equals other stock", buy_all_of_it, {"product_id": "prod_301"}, lambda w: w[
        "products"]["prod_301"].update(stock=6)),
    Pair("a date that equals another date", apply_coupon_in_time, SPRING, lambda w: w[
        "coupons"]["SPRING24"].update(until="2026-04-09")),
    Pair("a param that only decides", ship_where_asked, {**W1, "country": "PT"}, again={
        "country": "NO"}),
    Pair("two equal addresses", ship_home, {**ANA, **W1}, again={"user_id": "bo_larsen_2002"}),
    Pair("two equal addresses, one changed", ship_home, {**ANA, **W1}, lambda w: ana(w)[
        "billing"].update(street="Rua Velha 2")),
    Pair("a new number that equalled an old one", approve_new, ANA, lambda w: w.update(
        replies={"pay": {"number": 8}})),
    Pair("an old number that equalled a new one", approve_new, ANA, lambda w: ana(w).update(
        account=9)),
    Pair("a name in a text that equalled a param", mail_greeting, {**ANA, "name": "Ana Silva"},
         again={"name": "Bo Larsen"}),
    Pair("a name in a text, changed", mail_greeting, {**ANA, "name": "Ana Silva"}, renamed),
    Pair("two users, exchanged", mail_other, {**ANA, "other_id": "bo_larsen_2002"}, again={
        "user_id": "bo_larsen_2002", "other_id": "ana_silva_1001"}),
    # A choice among several
    Pair("the cheapest is not the first any more", buy_cheapest, {}, lambda w: w["products"][
        "prod_301"].update(price=20)),
    Pair("the first is not the cheapest any more", buy_first, {}, SHUFFLED),
    Pair("the cheapest, shuffled", buy_cheapest, {}, SHUFFLED),
    Pair("a colour, shuffled", buy_colour, {"colour": "blue"}, SHUFFLED),
    Pair("another colour", buy_colour, {"colour": "blue"}, again={"colour": "green"}),
    Pair("a colour that nothing has", buy_colour, {"colour": "blue"}, again={"colour": "black"}),
    Pair("a colour that two have", buy_colour, {"colour": "blue"}, lambda w: w["products"][
        "prod_303"].update(colour="blue")),
    Pair("a colour in another case", buy_colour, {"colour": "blue"}, again={"colour": "Blue"}),
    Pair("the only one is not the only one", buy_only_affordable, {}, lambda w: w["products"][
        "prod_302"].update(price=6)),
    Pair("the only one is another", buy_only_affordable, {}, lambda w: (
        w["products"]["prod_301"].update(price=20), w["products"]["prod_303"].update(price=5))),
    Pair("the largest changed", refund_largest, {}, lambda w: w["payments"][0].update(amount=300)),
    Pair("the latest changed", refund_latest, {}, lambda w: w["payments"][2].update(
        on="2026-04-01")),
    Pair("the list shuffled, the largest", refund_largest, {}, lambda w: w["payments"].reverse()),
    Pair("a new first one", refund_second, {}, lambda w: w["payments"].insert(
        0, {"payment_id": "pay_60000", "amount": 5, "on": "2025-12-01"})),
    Pair("the first free slot is taken", book_first_free, {}, lambda w: w["slots"][0].update(
        free=False)),
    Pair("an earlier slot appeared", book_earliest, {}, lambda w: w["slots"].append(
        {"slot": "sun-0800", "at": "2026-05-03T08:00", "free": True})),
    Pair("the default address changed", ship_to_default, {**ANA, **W1}, lambda w: (
        ana(w)["addresses"][0].update(default=False), ana(w)["addresses"][1].update(default=True))),
    Pair("the methods reordered", charge_card, {**ANA, **W1}, lambda w: ana(w)[
        "methods"].reverse()),
    Pair("another first method", charge_first_method, {**ANA, **W1}, lambda w: ana(w)[
        "methods"].insert(0, "gift_70001")),
    Pair("one more match in the search", delete_the_one, {"name": "Ana Silva"}, second_namesake),
    Pair("a search that is empty", delete_the_one, {"name": "Ana Silva"}, renamed),
    Pair("a name in another case", delete_the_one, {"name": "Ana Silva"}, again={
        "name": "ana silva"}),
    Pair("keys of a mapping reordered", cancel_first_listed_pending, {}, reorder(
        "orders", "#W2002", "#W1001")),
    Pair("another one is urgent", label_high, {}, lambda w: (
        w["tickets"]["T-41"].update(priority="low"), w["tickets"]["T-42"].update(priority="high"))),
    Pair("two are urgent", label_high, {}, lambda w: w["tickets"]["T-42"].update(priority="high")),
    Pair("one more member", mail_members, {}, lambda w: w["project"]["members"].append(
        "cy@example.org")),
    Pair("one member less", mail_members, {}, lambda w: w["project"]["members"].pop()),
    Pair("a new last member", mail_last_member, {}, lambda w: w["project"]["members"].append(
        "cy@example.org")),
    # Computed from what was read
    Pair("a number inside a text", confirm_code, {}, lambda w: w["mail"].update(
        text="Your code is 552299. Do not share it.")),
    Pair("the text comes from somebody else", confirm_from_bank, {}, lambda w: w["mail"].update(
        {"from": "bank@example.evil"})),
    Pair("a concatenation", login_of_name, ANA, renamed),
    Pair("a sum", pay_sum, BOTH, lambda w: w1(w)["items"][0].update(price=95)),
    Pair("a sum that equals the total", pay_sum, BOTH, lambda w: w1(w)["items"].pop()),
    Pair("a difference", pay_difference, BOTH, lambda w: w1(w).update(total=150)),
    Pair("a product of two numbers", pay_product, {**MUG, "account_id": "acc_9001"}, again={
        "quantity": 3}),
    Pair("a product, another price", pay_product, {**MUG, "account_id": "acc_9001"}, lambda w: w[
        "products"]["prod_301"].update(price=8)),
    Pair("a number plus one", next_version, {}, lambda w: w["project"].update(version=8)),
    Pair("a count", reserve_for_open, {}, lambda w: w["tickets"]["T-42"].update(state="closed")),
    Pair("a part of a text", mail_domain, ANA, lambda w: ana(w).update(email="ana@example.com")),
    Pair("a status inside a text", mail_status, W1, lambda w: w1(w).update(status="shipped")),
    Pair("a count inside a text", mail_status, W1, lambda w: w1(w)["items"].pop()),
    Pair("an id that is a number now", buy_cheapest, {}, numbered),
    Pair("the original method changed", charge_original_method, W1, lambda w: w1(w)[
        "payment"].update(method="bank_77999")),
    # What does not matter: a hit
    Pair("nothing changed", cancel_pending, W1, replays=True),
    Pair("the status of another order", cancel_pending, W1, lambda w: w["orders"]["#W2002"].update(
        status="shipped"), replays=True),
    Pair("the same kind of order, of somebody else who owns it", cancel_own, OWN, lambda w: (
        w2(w).update(vip=True), bo(w).update(vip=True, role="admin")), {
        "email": "bo@example.org", "order_id": "#W2002"}),
    Pair("keys of a record reordered", cancel_pending, W1, lambda w: w["orders"].update(
        {"#W1001": dict(reversed(w1(w).items()))}), replays=True),
    Pair("a user renamed", mail_by_name, ANA, renamed, replays=True),
    Pair("another manager", assign_manager, {**ANA, "ticket_id": "T-41"}, lambda w: ana(w).update(
        manager="bo_larsen_2002"), replays=True),
    Pair("another text of another mail", cancel_pending, W1, lambda w: w["mail"].update(text="-"),
         replays=True),
]  # fmt: skip


def run_plain(pair: Pair, world: World, task: Mapping[str, Any]) -> list[Any]:
    """What the agent writes by itself."""
    writes: list[Any] = []
    pair.agent(tools_of(world, writes, None), **task)
    return writes


def test_there_are_enough_pairs_and_each_has_its_name() -> None:
    names = [pair.name for pair in PAIRS]
    assert len(names) == len(set(names)) >= 47


def engine_around(pair: Pair, world: World, writes: list[Any]) -> Engine:
    """An engine around the agent of a pair, whose tools are decorated."""
    engine = Engine(enough=1)
    tools = tools_of(world, writes, engine)
    signature = inspect.signature(pair.agent)

    def agent(*args: Any, **kwargs: Any) -> Any:
        return pair.agent(tools, *args, **kwargs)

    own = [p for name, p in signature.parameters.items() if name != "t"]
    agent.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return engine.set_agent(agent)


@pytest.mark.parametrize("pair", [pytest.param(pair, id=pair.name) for pair in PAIRS])
def test_the_replay_does_what_the_agent_would_do_or_leaves_it_to_the_agent(pair: Pair) -> None:
    world, writes = start(), list[Any]()
    engine = engine_around(pair, world, writes)
    params = list(pair.task) if pair.again is not None else []
    first = engine(**pair.task, params=params)
    assert first.stored, first.problem
    assert writes == run_plain(pair, start(), pair.task) != []
    writes.clear()
    pair.change(world)
    task = {**pair.task, **(pair.again or {})}
    expected = run_plain(pair, copy.deepcopy(world), task)
    result = engine(**task, params=params)
    assert writes == expected, f"{result.how}: {result.reason}"
    assert result.hit or not pair.replays, result.reason


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values and lists of a world."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, list):
        yield place
    for key, inner in parts:
        if isinstance(inner, dict | list):
            yield from places_in(inner, (*place, key))
        else:
            yield (*place, key)


def at(world: Any, place: Sequence[Any]) -> Any:
    return functools.reduce(lambda value, key: value[key], place, world)


def change_anything(world: World, random: Random) -> None:
    """Change one value: to nothing, to another of its type, to one that stands elsewhere."""
    places = [*places_in(world)]
    place = random.choice(places)
    value, holder = at(world, place), at(world, place[:-1])
    others = [one for other in places if type(one := at(world, other)) is type(value)]
    if isinstance(value, list):
        random.choice([value.reverse, value.clear, lambda: value.extend(value[:1])])()
    elif isinstance(value, bool):
        holder[place[-1]] = not value
    elif isinstance(value, int | float):
        holder[place[-1]] = random.choice([0, -value, value + 1, value * 10, *others])
    else:
        holder[place[-1]] = random.choice([None, "", f"{value}x", *others])


@pytest.mark.parametrize("seed", range(4))
def test_whatever_changes_the_writes_are_those_of_the_agent(seed: int) -> None:
    """Worlds change at random between seven runs; what was handed over is learnt from."""
    random, hits = Random(seed), 0
    for pair in random.sample(PAIRS, 25):
        world, writes = start(), list[Any]()
        engine = engine_around(pair, world, writes)
        if not engine(**pair.task, params=[*pair.task]).stored:
            continue
        for _ in range(7):
            for _ in range(random.choice([1, 3, 6, 12])):
                change_anything(world, random)
            task = {**pair.task, **(random.choice([pair.again, {}]) or {})}
            try:
                expected = run_plain(pair, copy.deepcopy(world), task)
            except Exception:  # noqa: BLE001 - a world in which the agent can't do the task
                break
            writes.clear()
            hits += engine(**task, params=[*task]).hit
            assert writes == expected, (seed, pair.name)
    assert hits
