"""`em lessons reflect`, `retrieve`, `heuristics` and `evaluate`, as a user runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from em_command import em

from em import Memory
from em.testing import SECRET

TRAJECTORY: dict[str, Any] = {
    "task": "load the orders",
    "outcome": "success",
    "steps": [
        {
            "action": "insert_order",
            "args": {"customer": "c7", "total": "12,50"},
            "error": "invalid total",
        },
        {
            "action": "insert_order",
            "args": {"customer": "c7", "total": "12.50"},
            "observation": "ok",
        },
    ],
}


def write(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def test_reflect_keeps_nothing_without_store_and_all_of_it_with(tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", TRAJECTORY)
    looked = em("--db", "h.db", "lessons", "reflect", file)
    assert "insert_order fails with: invalid total" in looked.out
    assert "not stored" in looked.err
    assert em("--db", "h.db", "lessons", "list", "--json").json == {"heuristics": []}
    assert em("--db", "h.db", "lessons", "reflect", file, "--store").code == 0
    (kept,) = em("--db", "h.db", "lessons", "list", "--json").json["heuristics"]
    shown = em("--db", "h.db", "lessons", "show", kept["id"])
    assert "failed:" in shown.out
    assert "worked:" in shown.out
    found = em(
        "--db", "h.db", "lessons", "retrieve", "debug a failing insert of an order", "--json"
    ).json
    assert [one["heuristic"]["id"] for one in found["heuristics"]] == [kept["id"]]
    assert (
        em("--db", "h.db", "lessons", "retrieve", "bake bread").err == "no lesson fits this task\n"
    )
    assert (
        em("--db", "h.db", "lessons", "reflect", "--all", "--json").json["lessons"][0]["id"]
        == kept["id"]
    )


def test_reflect_takes_a_trace_of_the_log_by_its_id_or_the_beginning_of_it() -> None:
    with Memory("h.db") as memory:
        trace = memory.add_trace(TRAJECTORY)
    for name in (trace, trace[:8]):
        ran = em("--db", "h.db", "lessons", "reflect", name, "--json")
        assert (ran.code, len(ran.json["lessons"])) == (0, 1), ran.err
    assert em("--db", "h.db", "lessons", "reflect", "abcdef").code == 1


def test_reflect_prints_no_secret_in_the_name_of_a_tool(tmp_path: Path) -> None:
    fetch = f"curl -H 'Authorization: Bearer {SECRET}' https://shop.test/orders"
    steps = [{**step, "action": fetch} for step in TRAJECTORY["steps"]]
    file = write(tmp_path / "t.json", {**TRAJECTORY, "steps": steps})
    for more in ((), ("--json",), ("--json", "--store")):
        said = em("--db", "h.db", "lessons", "reflect", file, *more)
        assert "invalid total" in said.out
        assert SECRET not in said.out + said.err


@pytest.mark.parametrize(
    ("annotated", "action"),
    [
        ({"destructive": False}, "First insert_customer with id (the customer_id of the failed"),
        ({}, "First make sure that the customer_id exists; insert_customer takes it as id."),
    ],
)
def test_a_lesson_of_one_trajectory_is_told_and_marked(
    tmp_path: Path, annotated: dict[str, bool], action: str
) -> None:
    order = {"action": "insert_order", "args": {"id": 1, "customer_id": 7}}
    customer = {"action": "insert_customer", "args": {"id": 7}, "observation": "ok"} | annotated
    failed = {**order, "error": "FOREIGN KEY constraint failed"}
    steps = [failed, customer, {**order, "observation": "ok"}]
    file = write(tmp_path / "t.json", {"task": "load the orders", "steps": steps})
    assert em("--db", "h.db", "lessons", "reflect", file, "--store").err == "1 lesson; stored\n"
    found = em("--db", "h.db", "lessons", "retrieve", "debug a failing SQL insert")
    assert action in " ".join(found.out.split())
    assert "seen once" in found.out


def test_what_a_refusing_model_says_is_told_and_nothing_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "t.json", TRAJECTORY)
    script = write(tmp_path / "s.json", ["no JSON", "still none", "none at all"])
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", script)
    refused = em("--db", "h.db", "lessons", "reflect", file, "--store", "--llm")
    assert refused.code == 1
    assert "error:" in refused.err
    assert em("--db", "h.db", "log", "show", "--json").json["events"] == []


def test_looking_after_lessons(tmp_path: Path) -> None:
    em("--db", "h.db", "lessons", "reflect", write(tmp_path / "t.json", TRAJECTORY), "--store")
    (kept,) = em("--db", "h.db", "lessons", "list", "--json").json["heuristics"]
    for _ in range(5):
        fed = em("--db", "h.db", "lessons", "feedback", kept["id"], "--outcome", "failure")
    assert "its runs keep failing" in fed.out
    assert "all of these lessons are retired" in em("--db", "h.db", "lessons", "list").err
    assert "retired" in em("--db", "h.db", "lessons", "list", "--retired").out
    missing = em("--db", "h.db", "lessons", "show", "nope")
    assert (missing.code, "em lessons list" in missing.err) == (1, True)
    assert em("--db", "h.db", "lessons", "reflect").code == 2
    assert em("--db", "h.db", "lessons", "reflect", "gone.json").code == 2


def test_a_lesson_that_only_a_page_led_to_is_told_once_it_is_accepted(tmp_path: Path) -> None:
    page = {"action": "fetch", "observation": "so do that", "effect": "read", "open_world": True}
    file = write(tmp_path / "t.json", {**TRAJECTORY, "steps": [page, *TRAJECTORY["steps"]]})
    em("--db", "h.db", "lessons", "reflect", file, "--store")
    task = "debug a failing insert of an order with an invalid total"
    assert em("--db", "h.db", "lessons", "retrieve", task, "--json").json["heuristics"] == []
    (kept,) = em("--db", "h.db", "lessons", "list", "--json").json["heuristics"]
    assert (kept["lesson"]["source"], bool(kept["lesson"]["doubt"])) == ("web", True)
    assert em("--db", "h.db", "lessons", "accept", kept["id"]).code == 0
    (found,) = em("--db", "h.db", "lessons", "retrieve", task, "--json").json["heuristics"]
    assert found["heuristic"]["id"] == kept["id"]


def test_what_is_no_trace_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", TRAJECTORY)
    other = write(tmp_path / "f.json", {"foo": 1})
    ran = em("--db", "h.db", "lessons", "reflect", file, other, "--store")
    assert ran.code == 2
    assert "f.json: expected a trace, found neither `mission` nor `events`" in ran.err
    assert em("--db", "h.db", "traces", "list", "--json").json["traces"] == []
    assert em("--db", "h.db", "lessons", "list", "--json").json == {"heuristics": []}


def test_evaluate_is_repeatable_and_touches_no_log() -> None:
    one = em("lessons", "evaluate", "--tasks", "40", "--seed", "3", "--json").json
    assert (
        one
        == em("--db", "h.db", "lessons", "evaluate", "--tasks", "40", "--seed", "3", "--json").json
    )
    assert not Path("h.db").exists()
    assert not Path(".em").exists()
    methods = one["methods"]
    assert methods["em"]["mrr"] > methods["bm25"]["mrr"] > methods["random"]["mrr"]
    assert methods["em"]["silent"] == 1.0
    assert one["margin_95"][0] > 0
    assert "margin over BM25" in em("lessons", "evaluate", "--tasks", "20").out


def test_lessons_move_with_the_log(tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", TRAJECTORY)
    em("--db", "h.db", "lessons", "reflect", file, "--store")
    em("--db", "h.db", "log", "export", "h.jsonl")
    brought = em("--db", "n.db", "log", "import", "h.jsonl")
    assert "1 lessons restored" in brought.out
    (kept,) = em("--db", "n.db", "lessons", "list", "--json").json["heuristics"]
    assert kept["lesson"]["trigger"] == "insert_order fails with: invalid total"
    assert "stored" in em("--db", "n.db", "lessons", "reflect", "--all", "--store").err
    assert em("--db", "n.db", "lessons", "retrieve", "insert an order with an invalid total").out
    em("--db", "n.db", "lessons", "retire", kept["id"])
    listed = em("--db", "n.db", "lessons", "list").err
    assert "all of these lessons are retired; `em lessons list --retired` lists them" in listed
    again = em("--db", "n.db", "lessons", "reflect", "--all", "--store").err
    assert "1 of them as evidence of lessons that are retired" in again
