"""A run without a journal can't be resumed, so it asks while it runs: nothing is made twice."""

from pathlib import Path
from typing import Any

import pytest

from em.runner.engine import run_routine
from em.runner.run import PendingPrompt

HEAD = """name: refund
input_schema: {type: object, required: [order], properties:
  {order: {type: string, examples: [W1]}}}
steps:
"""
STEPS = """  - {id: look, type: tool.call, tool: look, effect: read, args: {order: "{{ order }}"}}
  - {id: much, type: prompt.user, save_as: much,
     prompt: {message: "How much?", fields: [{name: amount, type: integer}]}}
  - {id: pay, type: tool.call, tool: pay, effect: write, args: {amount: "{{ much.amount }}"}}
  - {id: ok, type: prompt.user, save_as: said,
     prompt: {message: "Tell them?", fields: [{name: ok, type: confirm}]}}
  - {id: tell, type: tool.call, tool: tell, effect: write}
  - {id: end, type: return, value: "{{ said.ok }}"}
"""


def routine(folder: Path, head: str = HEAD) -> Path:
    (folder / "routine.yaml").write_text(head + STEPS)
    return folder


class World:
    def __init__(self) -> None:
        self.made: list[Any] = []

    @property
    def tools(self) -> dict[str, Any]:
        return {
            "look": lambda order: self.made.append(f"look {order}"),
            "pay": lambda amount: self.made.append(f"pay {amount}"),
            "tell": lambda: self.made.append("tell"),
        }


def test_every_question_is_asked_in_its_place_and_nothing_is_made_twice(tmp_path: Path) -> None:
    world, asked = World(), list[tuple[str, list[Any]]]()

    def ask(prompt: PendingPrompt) -> dict[str, Any]:
        asked.append((prompt.step_id, list(world.made)))
        return {field["name"]: 7 if field["name"] == "amount" else True for field in prompt.fields}

    result = run_routine(routine(tmp_path), {"order": "W2"}, world.tools, ask=ask)
    assert (result.status, result.output) == ("ok", True)
    assert world.made == ["look W2", "pay 7", "tell"]
    assert [made for _, made in asked] == [["look W2"], ["look W2", "pay 7"]]


@pytest.mark.parametrize("answers", [0, 1])
def test_without_an_answer_the_run_waits_where_it_is(tmp_path: Path, answers: int) -> None:
    world, given = World(), [{"amount": 7}][:answers]
    result = run_routine(
        routine(tmp_path),
        {"order": "W2"},
        world.tools,
        ask=lambda _p: given.pop() if given else None,
    )
    assert result.status == "needs_input"
    assert world.made == ["look W2", "pay 7"][: 1 + answers]


def test_an_answer_that_does_not_fit_is_asked_again(tmp_path: Path) -> None:
    world, problems = World(), list[str]()
    replies: list[Any] = [{"amount": 5}, {"ok": "perhaps"}, {"ok": True}]

    def ask(prompt: PendingPrompt) -> Any:
        problems.append(prompt.problem)
        return replies.pop(0)

    result = run_routine(routine(tmp_path), {"order": "W1"}, world.tools, ask=ask)
    assert result.status == "ok"
    assert [bool(problem) for problem in problems] == [False, False, True]
    assert world.made == ["look W1", "pay 5", "tell"]
