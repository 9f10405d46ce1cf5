"""What others see of a routine has nothing of one recording but what a run needs as it is."""

from pathlib import Path
from typing import Any

import msgspec

from em.compiler.routine_text import text_of
from em.runner.card import described_input, description_of, public_form
from em.runner.engine import run_routine
from em.runner.package import read_routine
from em.runner.routine import Routine

OWN = ("Ada Lovelace", "ada@engine.org", "#W70101", "#W70102")
ROUTINE: dict[str, Any] = {
    "name": "cancel",
    "description": "Cancel #W70101 of ada@engine.org",
    "checks": "hand_over",
    "input_schema": {
        "type": "object",
        "required": ["order", "email"],
        "properties": {
            "order": {"type": "string", "examples": ["#W70101", "#W70102"]},
            "email": {"type": "string", "examples": ["ada@engine.org"]},
            "reason": {"enum": ["late", "no longer needed"]},
            "odd": True,
        },
    },
    "requests": ["I am Ada Lovelace, cancel {order}"],
    "review": {"inputs": ["cancel.note"], "constants": ["Ada Lovelace"]},
    "struck": ["order.by == 'Ada Lovelace'"],
    "tools": [{"name": "cancel", "effect": "write"}],
    "steps": [
        {"id": "do", "type": "tool.call", "tool": "cancel", "args": {"order": "{{ order }}"},
         "save_as": "done", "held": "2/2", "expect": {"required": ["status"]}},
        {"id": "end", "type": "return", "value": "{{ done.status }}"},
    ],
}  # fmt: skip


def routine() -> Routine:
    return read_routine(ROUTINE, "here")


def test_nothing_of_one_recording_leaves() -> None:
    public = public_form(routine())
    text = msgspec.json.encode([public, described_input(routine()), description_of(routine())])
    assert [own for own in OWN if own in text.decode()] == []


def test_what_shapes_and_several_traces_had_in_common_stays() -> None:
    shown = described_input(routine())["properties"]
    assert shown["order"]["examples"] == ["#W00000"]
    assert shown["reason"] == ROUTINE["input_schema"]["properties"]["reason"]
    assert shown["odd"] is True
    assert public_form(routine(), is_shared=True).requests == ROUTINE["requests"]


def test_the_public_form_is_a_routine_that_does_the_same(tmp_path: Path) -> None:
    public = public_form(routine())
    assert public.steps == routine().steps
    (tmp_path / "routine.yaml").write_text(text_of(public))
    made: list[str] = []

    def cancel(order: str) -> dict[str, str]:
        made.append(order)
        return {"status": "cancelled"}

    given = {"order": "#W1", "email": "bo@home.org"}
    result = run_routine(tmp_path, given, {"cancel": cancel})
    assert (result.status, result.output, made) == ("ok", "cancelled", ["#W1"])
