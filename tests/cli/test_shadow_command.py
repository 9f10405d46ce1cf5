"""`em routine shadow`, and `em routine accept` of what agreed, as a user runs them."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from em_command import em

from em import Memory, recorded_tool
from em.runner.package import keep_routine

STEPS = [
    {
        "id": "pay",
        "type": "tool.call",
        "tool": "pay",
        "args": {"order_id": "{{ order_id }}", "amount": 5},
    }
]
ROUTINE = {
    "version": "1",
    "name": "refund",
    "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}},
    "tools": [{"name": "pay", "effect": "write"}],
    "steps": STEPS,
}


@recorded_tool(effect="write")
def pay(order_id: str, amount: float) -> str:
    return f"{amount} for {order_id}"


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A memory with a routine in shadow, compared twelve times: once it differed."""
    path = str(tmp_path / "em.db")
    with Memory(path) as memory:
        text = msgspec.yaml.encode(ROUTINE).decode()
        keep_routine(memory.store, {"routine.yaml": text}, retired=True)

        def agent(order_id: str, amount: int, subject: str) -> None:
            given: dict[str, Any] = {"order_id": order_id}
            with memory.record("refund", given, subject=subject, shadow=True):
                pay(order_id, amount)

        agent("A-1", 5, "ana")
        agent("A-2\x1b[31m", 7, "bo")
        for number in range(10):
            agent(f"A-{number + 3}", 5, "ana")
    return path


def test_the_list_counts_by_routine(db: str) -> None:
    (row,) = em("routine", "shadow", "--db", db, "--json").json["routines"]
    assert (row["routine"], row["agreed"], row["differed"], row["in_a_row"]) == (
        "refund@1",
        11,
        1,
        10,
    )
    assert row["last_difference"]["did"] == [
        {"tool": "pay", "args": {"order_id": "A-2\x1b[31m", "amount": 7}}
    ]
    assert "comparisons" not in row
    assert "it would have called pay with another amount" in em("--db", db, "routine", "shadow").out


def test_show_tells_what_em_would_have_done_and_what_the_agent_did(db: str) -> None:
    shown = em("routine", "shadow", "refund", "--db", db).out
    assert re.search("amount: +7", shown)
    assert "\x1b" not in shown
    (row,) = em("routine", "shadow", "refund@1", "--db", db, "--json").json["routines"]
    assert [one["verdict"] for one in row["comparisons"]] == ["differed"]
    missing = em("routine", "shadow", "nothing", "--db", db)
    assert (missing.code, "em routine shadow" in missing.err) == (1, True)


def test_a_person_sees_how_often_it_agreed_and_accepts_it(db: str) -> None:
    shown = msgspec.json.decode(em("routine", "show", "refund@1", "--db", db, "--json").out)
    assert shown["standing"]["state"] == "proposed"
    assert "agreed with the agent 10 times in a row" in shown["standing"]["beside_agent"]
    assert shown["standing"]["next"] == "em routine accept refund@1"
    assert em("routine", "show", "refund", "--db", db).code == 1
    assert em("routine", "accept", "refund", "--db", db).code == 0
    assert em("routine", "show", "refund", "--db", db).code == 0


def test_what_is_compiled_may_begin_as_a_proposal(db: str) -> None:
    with Memory(db) as memory:
        trace = memory.traces()[0].id
    made = em("compile", trace, "--keep", "--proposed", "--name", "pay_back", "--db", db, "--json")
    assert made.json["kept"] == "pay_back@1"
    assert em("routine", "show", "pay_back", "--db", db).code == 1
    assert em("compile", trace, "-o", "folder", "--proposed", "--db", db).code == 2
    assert em("compile", "--all", "--proposed", "--db", db).code == 0
    rows = em("routine", "list", "--db", db, "--json").json["routines"]
    assert {row["state"] for row in rows} == {"proposed"}


def test_nothing_was_compared_yet(tmp_path: Path) -> None:
    Memory(tmp_path / "new.db").close()
    listed = em("routine", "shadow", "--db", str(tmp_path / "new.db"))
    assert (listed.code, listed.out) == (0, "")
    assert "shadow=True" in listed.err
