"""What is given as a part of what is there, and what the other elements of a list are."""

from typing import Any

import pytest

from em import Memory, recorded_tool

Rows = dict[str, Any]


def account(n: int) -> Rows:
    boxes = [
        {"box": f"B{n}{k}", "label": ["oak", "elm", "ash"][k], "sealed": False} for k in range(3)
    ]
    return {"account": f"AC-{40 + n}", "points": 900 + 60 * n, "state": "active", "boxes": boxes}


def given(n: int) -> Rows:
    return {
        "account": f"AC-{40 + n}",
        "points": 200 + 20 * n,
        "label": ["oak", "elm", "ash"][n % 3],
    }


def spent(rows: Rows, inputs: Rows) -> list[Any]:
    """Return what a routine writes that six recordings taught."""
    made: list[Any] = []
    at: list[Rows] = [rows]

    def get_account(account: str) -> Rows:
        return at[0]

    def spend(account: str, points: int, box: str) -> Rows:
        made.append((account, points, box))
        return {"ok": True}

    get, use = recorded_tool(get_account), recorded_tool(spend)
    with Memory(":memory:") as memory:
        for n in range(6):
            at[0] = account(n)
            with memory.record("spend", given(n)):
                boxes = get(account=given(n)["account"])["boxes"]
                box = next(one["box"] for one in boxes if one["label"] == given(n)["label"])
                use(account=given(n)["account"], points=given(n)["points"], box=box)
        memory.compile([one.id for one in memory.traces()], name="spend")
        at[0] = rows
        made.clear()
        memory.run("spend", inputs, {"get_account": get_account, "spend": spend})
    return made


def test_no_more_is_taken_than_is_there_under_that_name() -> None:
    assert spent(account(8) | {"points": 361}, given(8)) == [("AC-48", 360, "B82")]
    assert spent(account(8) | {"points": 359}, given(8)) == []


@pytest.mark.parametrize(("number", "written"), [(0, [("AC-48", 360, "B82")]), (2, [])])
def test_only_the_state_of_the_chosen_element_matters(number: int, written: list[Any]) -> None:
    rows = account(8)
    rows["boxes"][number]["sealed"] = True
    assert spent(rows, given(8)) == written
