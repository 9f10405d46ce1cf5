"""A small shop: HTTP on the outside, SQLite behind it. Every id is new each time."""

import json
import sqlite3
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote

TABLES = """
CREATE TABLE items(sku TEXT PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER);
CREATE TABLE carts(id INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE lines(cart INTEGER, sku TEXT, quantity INTEGER);
CREATE TABLE orders(
    id INTEGER PRIMARY KEY AUTOINCREMENT, cart INTEGER, customer TEXT, total INTEGER);
INSERT INTO items VALUES ('LMP-1', 'lamp', 1900, 9), ('LMP-2', 'lamp', 2400, 9),
    ('RUG-1', 'rug', 5500, 2);
"""


class Refused(Exception):
    """What the shop does not do."""


class Shop:
    """The shop's books."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._books = sqlite3.connect(":memory:", check_same_thread=False)
        self._books.row_factory = sqlite3.Row
        self._books.executescript(TABLES)

    def ask(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Run one statement on the books."""
        with self._lock, self._books:
            return [dict(row) for row in self._books.execute(sql, values).fetchall()]

    def offers(self, name: str) -> list[dict[str, Any]]:
        """What is sold under a name, the cheapest first."""
        return self.ask("SELECT * FROM items WHERE name = ? ORDER BY price", name)

    def item(self, sku: str) -> dict[str, Any]:
        """One thing that is sold."""
        return self.ask("SELECT * FROM items WHERE sku = ?", sku)[0]

    def open_cart(self) -> dict[str, Any]:
        """A new cart."""
        return self.ask("INSERT INTO carts DEFAULT VALUES RETURNING id")[0]

    def add(self, cart: int, sku: str, quantity: int) -> dict[str, Any]:
        """Put something into a cart."""
        item = self.item(sku)
        if item["stock"] < quantity:
            raise Refused(f"{sku}: {item['stock']} left")
        self.ask("UPDATE items SET stock = stock - ? WHERE sku = ?", quantity, sku)
        self.ask("INSERT INTO lines VALUES (?, ?, ?)", cart, sku, quantity)
        return {"cart": cart, "sku": sku, "quantity": quantity}

    def order(self, cart: int, customer: str) -> dict[str, Any]:
        """Buy what is in a cart."""
        (cost,) = self.ask(
            "SELECT SUM(quantity * price) AS total FROM lines JOIN items USING (sku)"
            " WHERE cart = ?",
            cart,
        )
        return self.ask(
            "INSERT INTO orders(cart, customer, total) VALUES (?, ?, ?) RETURNING id, total",
            cart,
            customer,
            cost["total"],
        )[0]


class _Handler(BaseHTTPRequestHandler):
    shop: ClassVar[Shop]

    def do_GET(self) -> None:
        what, name = unquote(self.path).strip("/").split("/")
        self._answer(lambda: getattr(self.shop, what)(name))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        self._answer(lambda: getattr(self.shop, self.path.strip("/"))(**body))

    def _answer(self, work: Callable[[], Any]) -> None:
        try:
            status, answer = 200, work()
        except Refused as refused:
            status, answer = 409, {"error": str(refused)}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


def serve(shop: Shop) -> ThreadingHTTPServer:
    """Serve a shop on a free port of this machine, in a thread."""
    handler = type("Handler", (_Handler,), {"shop": shop})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
