"""Ordering in a shop: by the agent once, then without it; and what happens as the shop changes."""

import tempfile
from pathlib import Path

from agent import build

from em import Memory
from server import Shop, serve


def main() -> None:
    """Tell the story."""
    shop = Shop()
    server = serve(shop)
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "em.db") as memory:
        engine = memory.engine("shop")
        _, thoughts = build(engine, f"http://127.0.0.1:{server.server_port}")

        def order(customer: str) -> None:
            before = len(thoughts)
            result = engine("lamp", customer, params=["customer"])
            print(f"  {result.how}: {result.value}")
            if result.reason:
                print(f"    {result.reason}")
            for thought in thoughts[before:]:
                print("".join(f"    agent: {line}\n" for line in thought.splitlines()), end="")

        print("Ana orders a lamp. Nobody knows how yet:")
        order("Ana Lima")
        print("Bo wants one too. New cart, new order, no agent:")
        order("Bo Berg")
        print("The price goes up:")
        shop.ask("UPDATE items SET price = 2100 WHERE sku = 'LMP-1'")
        order("Cy Cole")
        print("That was learned:")
        order("Di Dorn")
        print("The lamp runs out:")
        shop.ask("UPDATE items SET stock = 0 WHERE sku = 'LMP-1'")
        order("Ed East")
        order("Flo Fisk")
        print("It is back, at the old price:")
        shop.ask("UPDATE items SET stock = 5, price = 1900 WHERE sku = 'LMP-1'")
        order("Gus Gale")
        stats = engine.stats()
        (books,) = shop.ask(
            "SELECT (SELECT COUNT(*) FROM orders) AS orders, (SELECT COUNT(*) FROM carts) AS carts"
        )
        print(
            f"{stats.hits} hits, {stats.misses} miss, {stats.hand_overs} hand-overs;"
            f" the agent thought {len(thoughts)} times;"
            f" {books['orders']} orders, {books['carts']} carts"
        )
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
