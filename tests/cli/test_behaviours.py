"""`em behaviours`, as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from em_command import em

from em import Check, Engine, Memory

SHOP = "shop"


def shop(db: str | Path, orders: list[Any], name: str = SHOP) -> Engine:
    engine = Engine(db, name=name)

    @engine.function(pre_check=Check(lambda: "open", lambda now, then: now == then))
    def order(item: str, sizes: tuple[int, int]) -> dict[str, Any]:
        orders.append(("order", item, sizes))
        return {"id": len(orders), "total": 1250}

    @engine.function()
    def pay(order_id: int, amount: int) -> str:
        orders.append(("pay", order_id, amount))
        return f"receipt {order_id:05}"

    def agent(item: str) -> dict[str, Any]:
        own = order(item, (1, 2))
        return {"receipt": pay(own["id"], own["total"]), "order": own["id"]}

    return engine.set_agent(agent)


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "em.db")
    with shop(path, []) as engine:
        engine("lamp", params=["item"])
        assert engine("chair", params=["item"])
    return path


def test_list_show_and_stats_tell_of_behaviours(db: str) -> None:
    listed = em("behaviours", "list", "--db", db)
    assert "in use" in listed.out
    assert '{"item":"{{ item }}"}' in listed.out
    (row,) = em("behaviours", "list", "--json", "--db", db, "--engine", SHOP).json["behaviours"]
    assert (row["hits"], row["misses"], row["steps"]) == (1, 0, 2)
    short = listed.out.splitlines()[1].split()[0]
    shown = em("behaviours", "show", short, "--db", db).out
    assert row["id"] in shown
    assert "{{ order_result.total }}" in shown
    assert '"open"' in shown
    assert "1 hit" in shown
    assert em("behaviours", "show", row["id"], "--json", "--db", db).json["behaviour"]["routine"][
        "steps"
    ]
    stats = em("behaviours", "stats", "--json", "--db", db).json
    assert (stats["hits"], stats["misses"], stats["recorded"]) == (1, 1, 1)
    assert "hits" in em("behaviours", "stats", "--db", db).out


def test_what_is_not_there_is_said(db: str, tmp_path: Path) -> None:
    assert "no behaviour 'nope@1'" in em("behaviours", "show", "nope@1", "--db", db).err
    assert "expected the id of a behaviour" in em("behaviours", "show", "nope", "--db", db).err
    empty = str(tmp_path / "empty.db")
    Memory(empty).close()
    assert "no behaviours yet" in em("behaviours", "list", "--db", empty).err
    assert em("behaviours", "list", "--json", "--db", empty).json == {"behaviours": []}
    assert em("behaviours", "--db", empty).code in (0, 2)


@pytest.mark.parametrize("how", ["--retire", ""])
def test_a_forgotten_behaviour_answers_no_more_also_where_it_is_loaded(db: str, how: str) -> None:
    orders: list[Any] = []
    with shop(db, orders) as engine:
        assert engine("lamp", params=["item"])
        (row,) = em("behaviours", "list", "--json", "--db", db).json["behaviours"]
        done = em("behaviours", "forget", row["id"], *filter(None, [how]), "--db", db)
        assert done.code == 0, done.err
        result = engine("lamp", params=["item"])
        assert not result
        assert result.stored
        assert engine("lamp", params=["item"])
    if not how:
        assert b"receipt 00002" not in Path(db).read_bytes().replace(b"receipt 00004", b"")
        with Memory(db) as memory:
            assert memory.log.verify().ok


def test_a_behaviour_becomes_a_routine_that_runs_and_comes_back(db: str, tmp_path: Path) -> None:
    (row,) = em("behaviours", "list", "--json", "--db", db).json["behaviours"]
    folder = tmp_path / "routine"
    exported = em("behaviours", "export", row["id"], "-o", str(folder), "--db", db)
    assert exported.code == 0, exported.err
    assert em("validate", str(folder)).code == 0
    text = (folder / "routine.yaml").read_text()
    assert "the pre-check of this call is not part of the routine" in text
    tools = tmp_path / "tools.py"
    tools.write_text(
        "def order(item, sizes):\n    return {'id': 41, 'total': 7}\n"
        "def pay(order_id, amount):\n    return f'receipt {order_id:05}'\n"
    )
    given = tmp_path / "in.json"
    given.write_text('{"item": "rug"}')
    ran = em(
        "run", str(folder), "--tools", str(tools), "--input", str(given), "--json", "--no-journal"
    )
    assert ran.json["output"] == {"receipt": "receipt 00041", "order": 41}

    other = str(tmp_path / "other.db")
    assert em("behaviours", "import", str(folder), "--db", other).code == 0
    orders: list[Any] = []
    with shop(other, orders) as engine:
        result = engine("sofa", params=["item"])
        assert result.hit, result.reason
        assert orders[0] == ("order", "sofa", (1, 2)), "a tuple is still a tuple"
        assert result.value == {"receipt": "receipt 00001", "order": 1}


def test_a_compiled_routine_becomes_a_behaviour(tmp_path: Path) -> None:
    trace = {
        "mission": {"goal": "order", "input_summary": {"item": "lamp-4711", "sizes": [1, 2]}},
        "events": [
            {"type": "tool_call", "tool": "order", "args": {"item": "lamp-4711", "sizes": [1, 2]},
             "result": {"id": 5001, "total": 1250}},
            {"type": "tool_call", "tool": "pay", "args": {"order_id": 5001, "amount": 1250},
             "result": "receipt 05001"},
        ],
        "final_output": "receipt 05001",
    }  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    assert em("compile", str(tmp_path / "trace.json"), "-o", str(tmp_path / "r")).code == 0
    db = str(tmp_path / "em.db")
    missing = em("behaviours", "import", str(tmp_path / "r"), "--db", db)
    assert "--engine" in missing.err
    brought = em(
        "behaviours", "import", str(tmp_path / "r"), "--engine", SHOP, "--db", db, "--json"
    )
    assert brought.json["id"].startswith("shop/")
    orders: list[Any] = []

    def agent(item: str, sizes: list[int]) -> Any:
        raise AssertionError("the routine knows how")

    with shop(db, orders).set_agent(agent) as engine:
        result = engine("sofa-1000", [3, 4], params=["item", "sizes"])
        assert result.hit, result.reason
        assert orders == [("order", "sofa-1000", [3, 4]), ("pay", 1, 1250)]


def test_a_routine_that_does_more_than_call_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "routine.yaml").write_text(
        "name: r\nsteps:\n  - {id: s1, type: tool.call, tool: pay, when: 'x'}\n"
    )
    refused = em(
        "behaviours", "import", str(folder), "--engine", "e", "--db", str(tmp_path / "em.db")
    )
    assert refused.code == 1
    assert "step s1" in refused.err
