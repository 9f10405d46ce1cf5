"""A choice that no input names: all that explains it must agree in a run."""

import json
from pathlib import Path
from typing import Any

from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.runner.engine import run_routine

PRICES = [[310, 120, 450, 280], [90, 75, 60, 88], [500, 410, 990, 620], [33, 47, 29, 41]]
DAYS = [[3, 1, 4, 2], [5, 4, 2, 6], [7, 3, 9, 5], [8, 6, 2, 9]]


def offers(number: int) -> list[dict[str, Any]]:
    rows = zip(PRICES[number], DAYS[number], strict=True)
    return [
        {"offer_id": f"OF-{number}{n}17", "price": price, "days": days}
        for n, (price, days) in enumerate(rows)
    ]


def ordered(number: int, rows: list[dict[str, Any]]) -> Example:
    """The cheapest offer is taken; in all recordings it is the fastest one, too."""
    part = f"PT-{4100 + 7 * number}"
    best = min(rows, key=lambda row: row["price"])["offer_id"]
    calls = [
        Call("list_offers", {"part": part}, rows),
        Call("place_order", {"offer_id": best}, {"placed": True}, None, "write"),
    ]
    return Example({"part": part}, calls)


def run(folder: Path, examples: list[Example], rows: list[dict[str, Any]]) -> list[str]:
    """Return the offers that the routine orders when these are there."""
    routine = learn("task", examples).routine
    (folder / "routine.yaml").write_text(json.dumps(routine))
    placed: list[str] = []

    def place_order(offer_id: str) -> Any:
        placed.append(offer_id)
        return {"placed": True}

    tools = {"list_offers": lambda part: rows, "place_order": place_order}
    run_routine(folder, {"part": "PT-4999"}, tools)
    return placed


def test_a_few_recordings_are_enough_where_all_explanations_agree(tmp_path: Path) -> None:
    recorded = [ordered(n, offers(n)) for n in range(4)]
    rows = [
        {"offer_id": "OF-9117", "price": 80, "days": 4},
        {"offer_id": "OF-9217", "price": 60, "days": 2},
        {"offer_id": "OF-9317", "price": 70, "days": 3},
    ]
    assert run(tmp_path, recorded, rows) == ["OF-9217"]


def test_where_they_differ_nothing_is_done(tmp_path: Path) -> None:
    recorded = [ordered(n, offers(n)) for n in range(4)]
    rows = [
        {"offer_id": "OF-9117", "price": 80, "days": 1},
        {"offer_id": "OF-9217", "price": 60, "days": 2},
        {"offer_id": "OF-9317", "price": 70, "days": 3},
    ]
    assert run(tmp_path, recorded, rows) == []


def test_one_recording_tells_the_explanations_apart(tmp_path: Path) -> None:
    slow = [{**row, "days": 9 - row["days"]} for row in offers(3)]
    recorded = [*(ordered(n, offers(n)) for n in range(3)), ordered(3, slow)]
    rows = [
        {"offer_id": "OF-9117", "price": 80, "days": 1},
        {"offer_id": "OF-9217", "price": 60, "days": 2},
        {"offer_id": "OF-9317", "price": 70, "days": 3},
    ]
    assert run(tmp_path, recorded, rows) == ["OF-9217"]
