"""A help desk: an agent with four tools over a shop's books. A script plays the model.

What a model call takes and costs is scripted too: `SECONDS`, `TOKENS` and `USD` say how much.
"""

import os
import re
import sqlite3
import time
from typing import Any

from em import Memory, recorded_tool
from em.traces.recorder import recorder_here

SECONDS = float(os.environ.get("DEMO_SECONDS", "0.4"))
TOKENS, USD = 1_150, 0.0052
"""What one call of the model is made to take and to cost in this demo."""
BOOKS = sqlite3.connect(":memory:", check_same_thread=False)
BOOKS.row_factory = sqlite3.Row
BOOKS.executescript("""
CREATE TABLE customers(id TEXT, email TEXT, name TEXT);
CREATE TABLE orders(id TEXT, customer TEXT, status TEXT, shipping TEXT);
""")
NAMES = "Ana Bo Cy Di Ed Flo Gus Hal Iva".split()
for place, name in enumerate(NAMES, 1):
    mail = f"{name.lower()}@mail.example"
    BOOKS.execute("INSERT INTO customers VALUES (?, ?, ?)", (f"C-{410 + place}", mail, name))
    status = "shipped" if name == "Iva" else "open"
    order = (f"W-{7300 + 11 * place}", f"C-{410 + place}", status, "mail")
    BOOKS.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", order)


@recorded_tool(effect="read")
def find_customer(email: str) -> dict[str, Any]:
    """Find a customer, with the numbers of the orders."""
    found = dict(BOOKS.execute("SELECT * FROM customers WHERE email = ?", (email,)).fetchone())
    rows = BOOKS.execute("SELECT id FROM orders WHERE customer = ?", (found["id"],))
    return {**found, "orders": [row["id"] for row in rows]}


@recorded_tool(effect="read")
def get_order(order_id: str) -> dict[str, Any]:
    """Look an order up."""
    row = BOOKS.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
    return {**dict(row), "order_id": order_id}


@recorded_tool(effect="write")
def cancel_order(order_id: str) -> dict[str, Any]:
    """Cancel an order."""
    BOOKS.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", (order_id,))
    return {"order_id": order_id, "status": "cancelled"}


@recorded_tool(effect="write")
def change_shipping(order_id: str, shipping: str) -> dict[str, Any]:
    """Send an order in another way."""
    BOOKS.execute("UPDATE orders SET shipping = ? WHERE id = ?", (shipping, order_id))
    return {"order_id": order_id, "shipping": shipping}


TOOLS = {
    "find_customer": find_customer,
    "get_order": get_order,
    "cancel_order": cancel_order,
    "change_shipping": change_shipping,
}


def think() -> None:
    """Take as long, and cost as much, as a call of a model."""
    time.sleep(SECONDS)
    recorder = recorder_here()
    if recorder is not None:
        recorder.answered()
        recorder.report(tokens=TOKENS, cost_usd=USD)


def agent_of(memory: Memory) -> Any:
    """Return the agent, which records what it does."""

    @memory.record(app="help-desk")
    def agent(request: str) -> str:
        """Do what a customer asks for."""
        think()
        email = re.search(r"\S+@[\w.]+\w", request)
        customer = find_customer(email[0] if email else "")
        think()
        order = get_order(customer["orders"][0])
        think()
        moved = re.search(r" to (\w+)\.", request)
        if moved:
            change_shipping(order["order_id"], moved[1])
        else:
            cancel_order(order["order_id"])
        think()
        return "done"

    return agent
