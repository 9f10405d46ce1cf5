"""A behaviour is exported as a plain routine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from em import Engine
from em.behaviour.bundle import export_behaviour
from em.behaviour.cache import list_behaviours
from em.runner.engine import run_routine
from em.store import Store, open_store

EMAIL, ORDER = "ana@shop.example", "#W1234567"


class Desk:
    """A help desk that cancels orders, with what its tools return now."""

    def __init__(self) -> None:
        self.status: Any = "pending"
        self.owner = "ana_lopez_4711"
        self.answer: Any = {}
        self.writes: list[Any] = []

    def get_user(self, email: str) -> Any:
        return {"user_id": "ana_lopez_4711", "email": email, "active": True}

    def get_order(self, order_id: str) -> Any:
        return {"order_id": order_id, "user_id": self.owner, "status": self.status}

    def cancel(self, order_id: str, reason: str) -> Any:
        self.writes.append(("cancel", order_id, reason))
        return {"order_id": order_id, "status": "cancelled", **self.answer}

    def tell(self, to: str, text: str) -> Any:
        self.writes.append(("tell", to, text))
        return {"ok": True}

    @property
    def tools(self) -> dict[str, Any]:
        names = ("get_user", "get_order", "cancel", "tell")
        return {name: getattr(self, name) for name in names}

    def engine(self, db: Path) -> Engine:
        engine = Engine(str(db), name="desk")
        made = {
            name: engine.function(name=name, effect="read" if name.startswith("get_") else "write")(
                tool
            )
            for name, tool in self.tools.items()
        }

        def agent(email: str, order_id: str) -> Any:
            user = made["get_user"](email)
            order = made["get_order"](order_id)
            done = made["cancel"](order["order_id"], "no longer needed")
            made["tell"](user["email"], f"order {order_id} is {done['status']}")
            return {"order": done["order_id"], "status": done["status"]}

        return engine.set_agent(agent)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Desk().engine(tmp_path / "em.db") as engine:
        assert engine(EMAIL, ORDER, params=["email", "order_id"]).stored
    with open_store(str(tmp_path / "em.db")) as opened:
        yield opened


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    (one,) = list_behaviours(store, limit=2).behaviours
    export_behaviour(store, one, tmp_path / "r")
    return tmp_path / "r"


def read(folder: Path) -> Any:
    return yaml.safe_load((folder / "routine.yaml").read_text())


def test_the_routine_has_plain_steps_and_does_the_same_for_another(folder: Path) -> None:
    document = read(folder)
    assert document["checks"] == "hand_over"
    assert {step["type"] for step in document["steps"]} == {"tool.call", "assert", "return"}
    fields = {name for step in document["steps"] for name in step}
    plain = {"id", "type", "tool", "args", "effect", "save_as", "expect", "check", "held", "value"}
    assert fields <= plain
    desk = Desk()
    done = run_routine(folder, {"email": "bo@shop.example", "order_id": "#W7654321"}, desk.tools)
    assert done.status == "ok"
    assert done.output == {"order": "#W7654321", "status": "cancelled"}
    assert [write[:2] for write in desk.writes] == [
        ("cancel", "#W7654321"),
        ("tell", "bo@shop.example"),
    ]


@pytest.mark.parametrize(
    "change", [{"status": "delivered"}, {"owner": "bo_miller_1024"}, {"status": None}]
)
def test_what_was_read_is_checked_before_the_first_write(
    folder: Path, change: dict[str, Any]
) -> None:
    desk = Desk()
    vars(desk).update(change)
    stopped = run_routine(folder, {"email": EMAIL, "order_id": ORDER}, desk.tools)
    assert stopped.status == "needs_input"
    assert stopped.pending_prompt is None
    assert desk.writes == []


@pytest.mark.parametrize("answer", [{"status": "refused"}, {"order_id": "#W9"}])
def test_what_a_write_returned_is_checked_before_the_next_call(folder: Path, answer: Any) -> None:
    desk = Desk()
    desk.answer = answer
    stopped = run_routine(folder, {"email": EMAIL, "order_id": ORDER}, desk.tools)
    assert stopped.status == "failed"
    assert [write[0] for write in desk.writes] == ["cancel"]
