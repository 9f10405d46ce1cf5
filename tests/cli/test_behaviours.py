"""`em routine behaviours`, as a user runs it."""

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
        own = order(item, (41, 42))
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
    listed = em("routine", "behaviours", "list", "--db", db)
    assert "in use" in listed.out
    assert '{"item":"{{ item }}"}' in listed.out
    (row,) = em("routine", "behaviours", "list", "--json", "--db", db).json["behaviours"]
    assert (row["hits"], row["misses"], row["steps"]) == (1, 0, 2)
    short = listed.out.splitlines()[1].split()[0]
    shown = em("routine", "behaviours", "show", short, "--db", db).out
    assert row["id"] in shown
    assert "{{ order_done.total }}" in shown
    assert em("routine", "behaviours", "show", row["id"], "--json", "--db", db).json["behaviour"][
        "routine"
    ]["steps"]
    stats = em("routine", "behaviours", "stats", "--json", "--db", db).json
    assert (stats["hits"], stats["misses"], stats["recorded"]) == (1, 1, 1)
    assert "hits" in em("routine", "behaviours", "stats", "--db", db).out


def test_what_is_not_there_is_said(db: str, tmp_path: Path) -> None:
    assert "no behaviour 'nope@1'" in em("routine", "behaviours", "show", "nope@1", "--db", db).err
    assert (
        "expected the id of a behaviour"
        in em("routine", "behaviours", "show", "nope", "--db", db).err
    )
    empty = str(tmp_path / "empty.db")
    Memory(empty).close()
    assert "no behaviours yet" in em("routine", "behaviours", "list", "--db", empty).err
    assert em("routine", "behaviours", "list", "--json", "--db", empty).json == {"behaviours": []}
    assert em("routine", "behaviours", "--db", empty).code in (0, 2)


@pytest.mark.parametrize("how", ["--retire", ""])
def test_a_forgotten_behaviour_answers_no_more_also_where_it_is_loaded(db: str, how: str) -> None:
    orders: list[Any] = []
    with shop(db, orders) as engine:
        assert engine("lamp", params=["item"])
        (row,) = em("routine", "behaviours", "list", "--json", "--db", db).json["behaviours"]
        done = em("routine", "behaviours", "forget", row["id"], *filter(None, [how]), "--db", db)
        assert done.code == 0, done.err
        result = engine("lamp", params=["item"])
        assert not result
        assert result.stored
        assert engine("lamp", params=["item"])
    if not how:
        assert b"receipt 00002" not in Path(db).read_bytes().replace(b"receipt 00004", b"")
        with Memory(db) as memory:
            assert memory.log.verify().ok


def test_a_behaviour_becomes_a_routine_that_runs(db: str, tmp_path: Path) -> None:
    (row,) = em("routine", "behaviours", "list", "--json", "--db", db).json["behaviours"]
    folder = tmp_path / "routine"
    exported = em("routine", "behaviours", "export", row["id"], "-o", str(folder), "--db", db)
    assert exported.code == 0, exported.err
    assert em("routine", "validate", str(folder)).code == 0
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
