"""Generated modules are compiled once for each shape, however many subjects have it."""

import builtins
from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient


def rule(number: int) -> dict[str, Any]:
    return {
        "id": f"limit-{number}",
        "severity": "warning",
        "action": "spend",
        "message": f"more than {number} of {{amount}}",
        "when": {"op": ">", "left": {"detail": "amount"}, "right": {"value": number}},
        "events": ["e1"],
    }


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the modules that were compiled."""
    found: list[str] = []
    real = builtins.compile

    def counted(source: Any, filename: Any, *more: Any, **options: Any) -> Any:
        if filename == "<em_state>":
            found.append(filename)
        return real(source, filename, *more, **options)

    monkeypatch.setattr(builtins, "compile", counted)
    return found


@pytest.mark.parametrize("subjects", [8, 80])
def test_subjects_of_one_shape_share_one_compilation(
    memory: Memory, subjects: int, compilations: list[str]
) -> None:
    """Texts, values in rules, counts and event ids differ from subject to subject."""
    names = [f"subject {number}" for number in range(subjects)]
    for number, name in enumerate(names):
        for one in range(24):
            place = f"place {number} {one % 3}"
            memory.observe(name, {"place": place, "date": "2024-05-02"}, type="Trip")
        memory.observe(name, "A limit.")
        reply = {"facts": [], "constraints": [rule(number)]}
        memory.checkpoint(name, llm=ScriptedClient([reply]))
    compilations.clear()
    for _ in range(2):
        for number, name in enumerate(names):
            state = memory.state(name)
            assert len(state.trips) == 24
            (fired,) = state.check("spend", amount=number + 1)
            assert fired.message == f"more than {number} of {number + 1}"
            assert len(fired.event_ids) == 1
            assert state.check("spend", amount=number) == []
    assert len(compilations) <= 1
