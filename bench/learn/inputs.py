"""Typed inputs of a retail write, as a person would say them.

Inputs are made from the arguments of a write and the records at that moment, in the same way for
recordings and for tasks. They have the names of the tool's arguments, with these exceptions:

| argument | input |
|---|---|
| `user_id` | `who`: name and zip, or the e-mail address |
| `item_ids` | `items`: the name and the options of each |
| `new_item_ids` | `new_items`: of each, the options that differ from the item it replaces |

Without ids (`described`), `order_id` becomes `which_order` (its status, and as many of its items
as tell it from the customer's other orders), and `payment_method_id` becomes `payment_method`.
"""

from collections.abc import Mapping
from typing import Any

from bench.right.suite import identify
from bench.right.world import Domain, Write

Inputs = dict[str, Any]
Tables = Mapping[str, Mapping[str, Any]]

WRITTEN_BY_ID = ("user_id", "item_ids", "new_item_ids")
CARD = ("source", "brand", "last_four")


class CannotSay(Exception):
    """The records don't have what a write names, or a description would fit several of them."""


def who_asks(user: str, request: str, of: Domain) -> Inputs:
    """Return the e-mail address if the request has it, else name and zip."""
    _, args = identify(user, request, of)
    return args


def said(write: Write, who: Inputs, tables: Tables) -> Inputs:
    """Return inputs that name what the arguments of a write name."""
    args = write.args
    inputs: Inputs = {"who": dict(who)}
    inputs |= {name: value for name, value in args.items() if name not in WRITTEN_BY_ID}
    if "item_ids" in args:
        items = [_item(args["order_id"], one, tables) for one in args["item_ids"]]
        inputs["items"] = [_spoken(item) for item in items]
        if "new_item_ids" in args:
            pairs = zip(items, args["new_item_ids"], strict=True)
            inputs["new_items"] = [_wanted(item, new, tables) for item, new in pairs]
    return inputs


def described(inputs: Inputs, tables: Tables) -> Inputs:
    """Return inputs without ids: orders and payment methods by what is known about them."""
    found = dict(inputs)
    if "order_id" not in found:
        return found
    order = _record(tables, "orders", found.pop("order_id"))
    user = _record(tables, "users", order["user_id"])
    found["which_order"] = _which(order, user, inputs.get("items", ()), tables)
    if "payment_method_id" in found:
        found["payment_method"] = _card(user["payment_methods"], found.pop("payment_method_id"))
    return found


def _record(tables: Tables, table: str, key: str) -> dict[str, Any]:
    record: dict[str, Any] | None = tables[table].get(key)
    if record is None:
        raise CannotSay(f"{table} has no {key}")
    return record


def _item(order_id: str, item_id: str, tables: Tables) -> dict[str, Any]:
    items: list[dict[str, Any]] = _record(tables, "orders", order_id)["items"]
    for item in items:
        if item["item_id"] == item_id:
            return item
    raise CannotSay(f"{order_id} has no item {item_id}")


def _spoken(item: Mapping[str, Any]) -> Inputs:
    return {"name": item["name"], "options": dict(item["options"])}


def _wanted(item: Mapping[str, Any], new: str, tables: Tables) -> Inputs:
    variants = _record(tables, "products", item["product_id"])["variants"]
    if new not in variants:
        raise CannotSay(f"{item['name']} has no variant {new}")
    old, wanted = item["options"], variants[new]["options"]
    return {"options": {name: one for name, one in wanted.items() if old.get(name) != one}}


def _which(order: Inputs, user: Inputs, named: list[Inputs], tables: Tables) -> Inputs:
    """Describe an order by the items that the request names, then by its others if it must be."""
    every = [_spoken(item) for item in order["items"]]
    rest = [item for item in every if item not in named]
    chosen = [*named] or [rest.pop(0)]
    others = [tables["orders"][key] for key in user["orders"] if key != order["order_id"]]
    while any(_fits(other, chosen, order["status"]) for other in others):
        if not rest:
            raise CannotSay(f"{order['order_id']} is like another order of the customer")
        chosen.append(rest.pop(0))
    return {"items": chosen, "status": order["status"]}


def _fits(order: Inputs, items: list[Inputs], status: str) -> bool:
    has = [_spoken(item) for item in order["items"]]
    return order["status"] == status and all(item in has for item in items)


def _card(methods: Mapping[str, Any], key: str) -> Inputs:
    if key not in methods:
        raise CannotSay(f"the customer has no {key}")
    spoken = {name: {k: one[k] for k in CARD if k in one} for name, one in methods.items()}
    if [*spoken.values()].count(spoken[key]) > 1:
        raise CannotSay(f"{key} is like another payment method of the customer")
    return spoken[key]
