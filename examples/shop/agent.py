"""An agent that orders things, through a client whose methods an engine watches."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from em import Check, Engine
from em.behaviour.result import Progress


@dataclass
class Offer:
    """What decides whether adding a thing to a cart is still what it was."""

    price: int
    in_stock: bool


class OutOfStock(Exception):
    """The shop has none left."""


def build(engine: Engine, url: str) -> tuple[Any, list[str]]:
    """The client of the shop at an address, and what the agent has thought, one line a time."""

    class Client:
        def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            try:
                with urllib.request.urlopen(f"{url}/{path}", data) as answer:  # noqa: S310 - our own server
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                raise OutOfStock(json.load(error)["error"]) from None

        def look(self, sku: str) -> Offer:
            item = self._call(f"item/{sku}")
            return Offer(item["price"], item["stock"] > 0)

        @engine.method()
        def find(self, name: str) -> list[dict[str, Any]]:
            return [
                {"sku": offer["sku"], "price": offer["price"], "in_stock": offer["stock"] > 0}
                for offer in self._call(f"offers/{name}")
            ]

        @engine.method()
        def open_cart(self) -> dict[str, int]:
            return {"cart": self._call("open_cart", {})["id"]}

        @engine.method(pre_check=Check(look, lambda now, then: now == then))
        def add(self, cart: int, sku: str, quantity: int) -> None:
            self._call("add", {"cart": cart, "sku": sku, "quantity": quantity})

        @engine.method()
        def order(self, cart: int, customer: str) -> dict[str, Any]:
            placed = self._call("order", {"cart": cart, "customer": customer})
            return {"number": f"W-{placed['id']:04}", "total": f"{placed['total'] / 100:.2f}"}

    client = Client()
    thoughts: list[str] = []

    def agent(item: str, customer: str, progress: Progress) -> str:
        """Plays the part of the model: it looks at what was done, and decides on the rest."""
        thoughts.append(str(progress) or "a new task")
        done = {step.tool.rpartition(".")[2]: step.result for step in progress.done}
        cart = done.get("open_cart") or client.open_cart()
        offers = done.get("find") or client.find(item)
        best = next(offer for offer in offers if offer["in_stock"])
        client.add(cart["cart"], best["sku"], 1)
        order = client.order(cart["cart"], customer)
        return f"order {order['number']} for {customer}: {best['sku']}, {order['total']}"

    engine.set_agent(agent).set_context(client).finalize()
    return client, thoughts
