"""A shop with a few customers, its tools, and recordings of an agent that served them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from em.traces.trace import Message, Mission, ToolCall, Trace

NAMES = ("ana.silva", "bo.larsen", "cleo.okoye", "dan.meyer", "eva.rossi", "finn.jones")
GOODS = {
    "P-4401": ("Desk Lamp", {"color": ("white", "black"), "power": ("battery", "mains")}),
    "P-4402": ("Water Bottle", {"color": ("green", "blue"), "size": ("500ml", "750ml")}),
    "P-4403": ("Yoga Mat", {"color": ("violet", "grey"), "material": ("cork", "rubber")}),
}
WRITES = ("cancel_order", "return_items", "exchange_items")


class Shop:
    """The records of the shop. Customer `n` has two orders: one is delivered, one is pending."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.dies_at = ""
        self.products = {product: _product(product) for product in GOODS}
        self.users: dict[str, Any] = {}
        self.orders: dict[str, Any] = {}
        for number, name in enumerate(NAMES):
            user = f"{name.replace('.', '_')}_{3100 + number}"
            delivered, pending = f"#W{70100 + number}", f"#W{80200 + number}"
            card = f"card_{5500 + number}"
            self.users[user] = {
                "user_id": user,
                "email": f"{name}{number}@shop.example",
                "orders": [delivered, pending],
                "cards": {card: {"id": card, "brand": "visa"}},
            }
            for order, status in ((delivered, "delivered"), (pending, "pending")):
                items = [self._item(product, number) for product in GOODS]
                self.orders[order] = {
                    "order_id": order, "user_id": user, "status": status, "items": items,
                }  # fmt: skip

    def _item(self, product: str, number: int) -> dict[str, Any]:
        variants = list(self.products[product]["variants"].values())
        chosen = variants[number % 2]
        name = GOODS[product][0]
        return {
            "name": name, "product_id": product,
            "item_id": chosen["item_id"], "options": dict(chosen["options"]),
        }  # fmt: skip

    def variant(self, product: str, **options: str) -> str:
        """The id of the variant with these options."""
        found = [
            one["item_id"]
            for one in self.products[product]["variants"].values()
            if one["options"] == options
        ]
        (only,) = found
        return str(only)

    def tools(self) -> dict[str, Callable[..., Any]]:
        """The tools as a run is given them."""

        def found(records: Mapping[str, Any], key: str) -> Any:
            if key not in records:
                raise LookupError(f"there is no {key}")
            return copy.deepcopy(records[key])

        def find_user(email: str) -> str:
            for user, record in self.users.items():
                if record["email"] == email:
                    return user
            raise LookupError("there is no such user")

        def write(name: str) -> Callable[..., Any]:
            def call(**args: Any) -> Any:
                if self.dies_at == name:
                    raise KeyboardInterrupt
                self.done.append((name, args))
                return {"order_id": args["order_id"], "status": "changed"}

            return call

        return {
            "find_user": find_user,
            "get_user": lambda user_id: found(self.users, user_id),
            "get_order": lambda order_id: found(self.orders, order_id),
            "get_product": lambda product_id: found(self.products, product_id),
            **{name: write(name) for name in WRITES},
        }

    def trace(
        self, request: str, *calls: tuple[str, dict[str, Any]], given: Mapping[str, Any] = {}
    ) -> Trace:
        """What an agent did that made these calls; given: its inputs by name."""
        tools = Shop().tools()
        tools |= {name: tool for name, tool in self.tools().items() if name not in WRITES}
        events: list[Any] = [Message(role="user", text=request)]
        for name, args in calls:
            effect: Any = "write" if name in WRITES else "read"
            result = tools[name](**args)
            events.append(ToolCall(tool=name, args=args, result=result, effect=effect))
        mission = Mission(goal="serve", input_summary=dict(given))
        return Trace(mission=mission, events=events, outcome="success")


def _product(product: str) -> dict[str, Any]:
    name, options = GOODS[product]
    (first, firsts), (second, seconds) = options.items()
    variants = {}
    for one in firsts:
        for other in seconds:
            item = f"{int(product[2:]) * 7919 + len(variants) * 104729}"
            variants[item] = {
                "item_id": item, "options": {first: one, second: other}, "available": True,
            }  # fmt: skip
    return {"product_id": product, "name": name, "variants": variants}


def cancelled(shop: Shop, number: int, reason: str, words: str = "") -> Trace:
    """A customer cancelled the order that is pending."""
    user, email, _, pending = customer(shop, number)
    return shop.trace(
        words or f"I am {email}. Please cancel {pending} because {reason}.",
        ("find_user", {"email": email}),
        ("get_user", {"user_id": user}),
        ("get_order", {"order_id": pending}),
        ("cancel_order", {"order_id": pending, "reason": reason}),
        given={"email": email, "order_id": pending, "reason": reason},
    )


def returned(shop: Shop, number: int, products: Sequence[str], words: str = "") -> Trace:
    """A customer returned things of the order that was delivered."""
    user, email, delivered, _ = customer(shop, number)
    items = [one for one in shop.orders[delivered]["items"] if one["product_id"] in products]
    (card,) = shop.users[user]["cards"]
    names = " and the ".join(one["name"] for one in items)
    return shop.trace(
        words or f"My mail is {email}. I want to return the {names} of {delivered} to {card}.",
        ("find_user", {"email": email}),
        ("get_user", {"user_id": user}),
        ("get_order", {"order_id": delivered}),
        ("return_items", {
            "order_id": delivered, "item_ids": [one["item_id"] for one in items], "card_id": card,
        }),
        given={
            "email": email, "order_id": delivered, "card_id": card,
            "items": [{"name": one["name"]} for one in items],
        },
    )  # fmt: skip


def exchanged(shop: Shop, number: int, product: str, words: str = "", **wanted: str) -> Trace:
    """A customer exchanged a thing for another variant of it."""
    user, email, delivered, _ = customer(shop, number)
    (item,) = [one for one in shop.orders[delivered]["items"] if one["product_id"] == product]
    new = shop.variant(product, **{**item["options"], **wanted})
    text = (
        f"I'm {email}. For {delivered}, exchange the {item['name']} to {' '.join(wanted.values())}."
    )
    return shop.trace(
        words or text,
        ("find_user", {"email": email}),
        ("get_user", {"user_id": user}),
        ("get_order", {"order_id": delivered}),
        ("get_product", {"product_id": product}),
        ("exchange_items", {
            "order_id": delivered, "item_ids": [item["item_id"]], "new_item_ids": [new],
        }),
        given={
            "email": email, "order_id": delivered,
            "items": [{"name": item["name"]}], "new_items": [{"options": wanted}],
        },
    )  # fmt: skip


def customer(shop: Shop, number: int) -> tuple[str, str, str, str]:
    """User id, e-mail address, the delivered and the pending order of a customer."""
    user = list(shop.users)[number]
    delivered, pending = shop.users[user]["orders"]
    return user, shop.users[user]["email"], delivered, pending
