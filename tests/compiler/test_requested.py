"""Values that only the request has become inputs; what the call leaves out need not be given."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from em import Memory, tool
from em.runner.package import find_routine, routine_of

Asked = tuple[str, dict[str, Any]]

ROOMS: Sequence[Asked] = (
    ("Book room R-101 for 3 people.", {"room": "R-101", "people": 3}),
    ("R-207 for 12 people with projector and flip chart, please.",
     {"room": "R-207", "people": 12, "equipment": ["projector", "flip chart"]}),
    ("Book room R-318 for 5 people.", {"room": "R-318", "people": 5}),
    ("R-411 for 9 people with lectern and water jug, please.",
     {"room": "R-411", "people": 9, "equipment": ["lectern", "water jug"]}),
)  # fmt: skip
DOORS: Sequence[Asked] = (
    ("Open door D-7 with alarm off.", {"door": "D-7", "alarm": False}),
    ("Open door D-9.", {"door": "D-9"}),
    ("Open door D-12 with alarm off.", {"door": "D-12", "alarm": False}),
    ("Open door D-31.", {"door": "D-31"}),
)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def asked(memory: Memory, recorded: Sequence[Asked], then: Sequence[str]) -> list[Any]:
    """Learn from requests and the calls that were made for them; return the calls for others."""
    made: list[Any] = []
    act = _tool(made)
    for request, arguments in recorded:
        with memory.record("act", {"request": request}):
            act(**arguments)
    made.clear()
    memory.compile([one.id for one in memory.traces()], name="act")
    for request in then:
        memory.run("act", {"request": request}, [act])
    return made


def _tool(made: list[Any]) -> Callable[..., Any]:
    def act(**arguments: Any) -> str:
        made.append(arguments)
        return "done"

    return tool(act, name="act", effect="write")


@pytest.mark.parametrize("recorded", [ROOMS, DOORS], ids=["list", "yes or no"])
def test_what_some_calls_leave_out_need_not_be_said(
    memory: Memory, recorded: Sequence[Asked]
) -> None:
    assert asked(memory, recorded, [one for one, _ in recorded]) == [one for _, one in recorded]


def test_other_values_in_a_recorded_wording_are_understood(memory: Memory) -> None:
    fresh = "R-512 for 8 people with piano and foot stool, please."
    wanted = {"room": "R-512", "people": 8, "equipment": ["piano", "foot stool"]}
    assert asked(memory, ROOMS, [fresh, "Book room R-600 for 4 people."]) == [
        wanted,
        {"room": "R-600", "people": 4},
    ]


def test_one_value_in_two_calls_is_one_input(memory: Memory) -> None:
    """A read that not all recordings made is made with the id that all writes have."""

    @tool(effect="read")
    def get_file(file_id: str) -> dict[str, str]:
        return {"file_id": file_id, "shelf": f"shelf of {file_id}"}

    @tool(effect="write")
    def archive(file_id: str) -> str:
        return "done"

    for number, looks in enumerate([True, False, True, True]):
        name = f"F-{400 + 37 * number}"
        with memory.record("archive", {"request": f"Archive {name}."}):
            if looks:
                get_file(name)
            archive(name)
    routine = memory.compile([one.id for one in memory.traces()], name="archive")
    assert [*routine.input_schema["properties"]] == ["file_id"]


def test_what_only_one_person_said_is_in_no_template(memory: Memory) -> None:
    """However many recordings are about that person."""
    customers = {"W-101": "Hildegard Klum", "W-202": "Hildegard Klum", "W-303": "Bo Ek"}

    @tool(effect="read")
    def get_order(order: str) -> dict[str, str]:
        return {"order": order, "customer": customers[order]}

    @tool(effect="write")
    def cancel(order: str) -> str:
        return "done"

    for order, name in customers.items():
        request = f"{name} here. Cancel {order}."
        with memory.record("cancel", {"request": request}, subject=name):
            get_order(order)
            cancel(order)
    routine = memory.compile([one.id for one in memory.traces()], name="cancel", force=True)
    assert "order" in routine.input_schema["properties"]
    assert not [one for one in routine.requests if "Klum" in one or "Ek" in one]


def test_a_yes_or_no_that_was_given_is_one_input(memory: Memory) -> None:
    act = _tool([])
    for request, arguments in DOORS:
        with memory.record("act", {**arguments, "request": request}):
            act(**arguments)
    memory.compile([one.id for one in memory.traces()], name="act")
    schema = routine_of(find_routine(memory.store, "act")).input_schema or {}
    assert {*schema["properties"]} == {"door", "alarm"}
