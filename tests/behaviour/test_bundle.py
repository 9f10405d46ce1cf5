"""A behaviour is exported as a plain routine, and a plain routine is imported as a behaviour."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from em import Engine
from em.behaviour.behaviour import Behaviour
from em.behaviour.bundle import export_behaviour, import_routine
from em.behaviour.cache import behaviour_of, list_behaviours
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.package import Package
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
    export_behaviour(one, tmp_path / "r")
    return tmp_path / "r"


def only(store: Store) -> Behaviour:
    (one,) = list_behaviours(store, limit=2).behaviours
    return behaviour_of(one)


def imported(folder: Path, **options: Any) -> Behaviour:
    with open_store(str(folder.parent / "other.db")) as opened:
        import_routine(opened, folder, **options)
        return only(opened)


def checks(behaviour: Behaviour) -> list[str]:
    return [step["check"] for step in behaviour.routine["steps"] if step["type"] == "assert"]


def read(folder: Path) -> Any:
    return yaml.safe_load((folder / "routine.yaml").read_text())


def edit(folder: Path, document: Any) -> None:
    (folder / "routine.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def test_the_routine_has_plain_steps_and_does_the_same_for_another(folder: Path) -> None:
    document = read(folder)
    assert document["checks"] == "hand_over"
    assert {step["type"] for step in document["steps"]} == {"tool.call", "assert", "return"}
    fields = {name for step in document["steps"] for name in step}
    assert fields <= {"id", "type", "tool", "args", "save_as", "expect", "check", "value"}
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


@pytest.mark.parametrize("answer", [{"status": "refused"}, {"order_id": "#W9"}, {"error": "no"}])
def test_what_a_write_returned_is_checked_before_the_next_call(folder: Path, answer: Any) -> None:
    desk = Desk()
    desk.answer = answer
    stopped = run_routine(folder, {"email": EMAIL, "order_id": ORDER}, desk.tools)
    assert stopped.status == "failed"
    assert [write[0] for write in desk.writes] == ["cancel"]


def test_all_checks_come_back(store: Store, folder: Path) -> None:
    was, now = only(store), imported(folder)
    assert checks(was)
    assert any(step.expect for step in was.steps)
    assert now == was


def test_a_check_that_is_deleted_is_not_made_on_a_replay(folder: Path) -> None:
    document = read(folder)
    left = [step for step in document["steps"] if "user_id" not in step.get("check", "")]
    assert len(left) < len(document["steps"])
    edit(folder, {**document, "steps": left})
    made = imported(folder)
    assert checks(made)
    assert not any("user_id" in text for text in checks(made))


def test_a_check_that_is_added_hands_over_before_its_call(folder: Path) -> None:
    document = read(folder)
    at = next(n for n, step in enumerate(document["steps"]) if step.get("tool") == "cancel")
    check = {"id": "mine", "type": "assert", "check": "order.user_id != 'bo_miller_1024'"}
    document["steps"].insert(at, check)
    edit(folder, document)
    steps = imported(folder).routine["steps"]
    at = next(n for n, step in enumerate(steps) if step.get("tool") == "cancel")
    assert steps[at - 1]["check"] == check["check"]


PLAIN = """
version: "1"
name: cancel
checks: hand_over
input_schema: {type: object, properties: {order_id: {type: string}}, required: [order_id]}
tools: [{name: get_order, effect: read}, {name: cancel, effect: write}]
steps:
- {id: order, type: tool.call, tool: get_order, args: {order_id: "{{ order_id }}"}, save_as: order,
   expect: {required: [user_id]}}
- {id: open, type: assert, check: 'order.status == "pending"', message: it is not open, held: 3/3}
- {id: cancel, type: tool.call, tool: cancel, save_as: done,
   args: {order_id: "{{ order.order_id }}", reason: late}}
- {id: same, type: assert, check: done.order_id == order.order_id}
- {id: result, type: return, value: "{{ done.status }}"}
"""


def plain(tmp_path: Path, text: str = PLAIN) -> Path:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "routine.yaml").write_text(text)
    (folder / "input.json").write_text(msgspec.json.encode({"order_id": ORDER}).decode())
    return folder


def test_a_routine_is_stored_as_it_is(tmp_path: Path) -> None:
    made = imported(plain(tmp_path), engine="desk")
    assert made.steps[0].expect == {"required": ["user_id"]}
    assert checks(made) == ['order.status == "pending"', "done.order_id == order.order_id"]
    assert made.program.routine == Package(tmp_path / "plain").routine


@pytest.mark.parametrize(
    ("change", "writes"),
    [({}, 1), ({"status": "delivered"}, 0), ({"owner": None}, 1), ({"answer": {"order_id": 9}}, 1)],
)
def test_an_imported_routine_acts_only_as_its_asserts_say(
    tmp_path: Path, change: dict[str, Any], writes: int
) -> None:
    folder = plain(tmp_path)
    db = tmp_path / "new.db"
    with open_store(str(db)) as opened:
        import_routine(opened, folder, engine="desk")
    desk = Desk()
    vars(desk).update(change)
    engine = Engine(str(db), name="desk")
    for name in ("get_order", "cancel"):
        effect: Any = "read" if name == "get_order" else "write"
        engine.function(name=name, effect=effect)(desk.tools[name])
    engine.set_agent(lambda order_id: "by the agent")
    with engine:
        result = engine(ORDER, params=["order_id"])
    assert result.hit is (change in ({}, {"owner": None}))
    assert len(desk.writes) == writes


def test_a_result_that_does_not_fit_its_schema_ends_a_replay(tmp_path: Path) -> None:
    text = PLAIN.replace("required: [user_id]", "required: [user_id, paid]")
    folder = plain(tmp_path, text)
    db = tmp_path / "new.db"
    with open_store(str(db)) as opened:
        import_routine(opened, folder, engine="desk")
    desk = Desk()
    engine = Engine(str(db), name="desk")
    for name in ("get_order", "cancel"):
        engine.function(name=name)(desk.tools[name])
    engine.set_agent(lambda order_id: "by the agent")
    with engine:
        result = engine(ORDER, params=["order_id"])
    assert not result.hit
    assert desk.writes == []


@pytest.mark.parametrize(
    "step",
    [
        '{id: extra, type: assert, check: "true", when: order_id}',
        "{id: extra, type: prompt.user, prompt: {message: really}}",
    ],
)
def test_what_a_behaviour_can_not_express_is_refused(tmp_path: Path, step: str) -> None:
    folder = plain(tmp_path, PLAIN.replace("- {id: result", f"- {step}\n- {{id: result"))
    with pytest.raises(RoutineError):
        imported(folder, engine="desk")
