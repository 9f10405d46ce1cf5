"""Blocks in the journal: a killed run goes on where it was, and makes no write twice."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import EmError
from em.runner.history import find_runs, read_run

SHIP = """
name: ship
checks: hand_over
input_schema: {type: object, required: [boxes], properties: {boxes: {type: array}}}
tools:
- {name: look, effect: read}
- {name: pack, effect: write}
- {name: send, effect: write}
steps:
- id: boxes
  type: for_each
  over: {box: boxes}
  save_as: all
  steps:
  - {id: look, type: tool.call, tool: look, args: {of: "{{ box.to }}"}, save_as: seen, expect: {const: ok}}
  - id: things
    type: for_each
    over: {thing: box.things}
    save_as: packed
    steps:
    - {id: pack, type: tool.call, tool: pack, args: {thing: "{{ thing }}"}, save_as: place}
  - {id: labels, type: tool.call, tool: pack, for_each: "{{ box.things }}", args: {thing: "label {{ item }}"}}
  - {id: send, type: tool.call, tool: send, args: {to: "{{ box.to }}", places: '{{ every(packed, "place") }}'}}
- {id: end, type: return, value: "{{ len(all) }}"}
"""  # noqa: E501 - one step a line, as people write them
BOXES: Any = {"boxes": [{"to": "x", "things": ["a", "b"]}, {"to": "y", "things": ["c"]}]}
WRITES = [
    "pack a", "pack b", "pack label a", "pack label b", "send x ['in a', 'in b']",
    "pack c", "pack label c", "send y ['in c']",
]  # fmt: skip


class Killed(KeyboardInterrupt):
    """The process dies here."""


class Depot:
    """Notes what was done, and dies at one call: before it, or after it was done."""

    def __init__(self, dies_at: int = -1, *, after: bool = False) -> None:
        self.done: list[str] = []
        self.calls = 0
        self._dies_at, self._after = dies_at, after

    def _call(self, words: str = "") -> None:
        dies, self.calls = self.calls == self._dies_at, self.calls + 1
        if dies and not self._after:
            raise Killed
        self.done += [words] if words else []
        if dies:
            raise Killed

    def look(self, of: str) -> str:
        self._call()
        return "ok" if of != "z" else "closed"

    def pack(self, thing: str) -> str:
        self._call(f"pack {thing}")
        return f"in {thing}"

    def send(self, to: str, places: list[str]) -> str:
        self._call(f"send {to} {places}")
        return "sent"

    def tools(self) -> dict[str, Any]:
        return {"look": self.look, "pack": self.pack, "send": self.send}


def written(folder: Path, text: str = SHIP) -> Path:
    (folder / "routine.yaml").write_text(text)
    return folder


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(10))
def test_a_run_that_was_killed_in_a_block_makes_no_write_twice(
    tmp_path: Path, dies_at: int, after: bool
) -> None:
    depot = Depot(dies_at, after=after)
    with Memory(tmp_path / "em.db") as memory:
        with pytest.raises(Killed):
            memory.run(written(tmp_path), BOXES, depot.tools(), run_id="r1")
        result = memory.resume("r1", depot.tools())
        if result.status == "needs_input":
            prompt = result.pending_prompt
            assert prompt is not None, result.reason
            name = prompt.step_id.removesuffix("?")
            assert f"[{name.partition('[')[2]}" in prompt.step_id, "the question names the turn"
            answer: Any = {"happened": after}
            if after:
                answer["result"] = depot.done[-1].replace("pack", "in", 1)
            result = memory.resume("r1", depot.tools(), answers={prompt.step_id: answer})
        assert (result.status, result.output) == ("ok", 2), result.failure
        assert depot.done == WRITES


def test_the_calls_of_each_turn_are_in_the_journal(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        memory.run(written(tmp_path), BOXES, Depot().tools(), run_id="r1")
        past = read_run(memory.store, "r1")
        assert [(one.step, one.item) for one in past.steps] == [
            ("look", 0), ("pack", "0.0"), ("pack", "0.1"), ("labels", "0.0"), ("labels", "0.1"),
            ("send", 0), ("look", 1), ("pack", "1.0"), ("labels", "1.0"), ("send", 1),
        ]  # fmt: skip


def test_a_list_that_changed_stops_the_resumed_run(tmp_path: Path) -> None:
    text = SHIP.replace("over: {box: boxes}", "over: {box: 'stock(boxes)'}")
    (tmp_path / "udf.py").write_text("def stock(boxes):\n    return list(boxes)\n")
    stock: list[Any] = [BOXES["boxes"]]
    depot = Depot(dies_at=8)
    with Memory(tmp_path / "em.db") as memory:
        udfs = {"stock": lambda boxes: stock[-1]}
        with pytest.raises(Killed):
            memory.run(written(tmp_path, text), BOXES, depot.tools(), run_id="r1", udfs=udfs)
        done = list(depot.done)
        for other in (stock[0][:1], [BOXES["boxes"][1], BOXES["boxes"][0]]):
            stock.append(other)
            with pytest.raises(EmError, match="the list has changed"):
                memory.resume("r1", depot.tools(), udfs=udfs)
        assert depot.done == done


def test_a_run_that_handed_over_is_stored_with_its_reason_and_over(tmp_path: Path) -> None:
    given = {"boxes": [{"to": "z", "things": ["a"]}]}
    depot = Depot()
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(written(tmp_path), given, depot.tools(), run_id="r1")
        assert (result.status, result.pending_prompt) == ("needs_input", None)
        assert result.reason is not None
        assert (result.reason.step_id, result.reason.now) == ("look", "closed")
        past = read_run(memory.store, "r1")
        assert (past.status, past.is_over) == ("handed_over", True)
        assert past.result().reason == result.reason
        assert past.result().status == "needs_input"
        with pytest.raises(EmError, match="this run is over: handed over"):
            memory.resume("r1", depot.tools())
        with pytest.raises(EmError, match="handed over and did nothing"):
            memory.resume("r1", depot.tools(), retry=True)
        listed = find_runs(memory.store, status="handed_over").runs
        assert [(one.run_id, one.note) for one in listed] == [("r1", result.reason.message)]
        assert find_runs(memory.store, status="needs_input").runs == []
        assert memory.log.verify()
    assert depot.done == []


def test_after_a_write_in_a_block_a_failed_check_is_a_failure(tmp_path: Path) -> None:
    given = {"boxes": [*BOXES["boxes"], {"to": "z", "things": ["d"]}]}
    depot = Depot()
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(written(tmp_path), given, depot.tools(), run_id="r1")
    assert (result.status, result.reason) == ("failed", None)
    assert result.failure is not None
    assert result.failure.step_id == "look"
    assert result.failure.context["done"] == [
        "pack[0.0]", "pack[0.1]", "pack[1.0]", "labels[0.0]", "labels[0.1]", "labels[1.0]",
        "send[0]", "send[1]",
    ]  # fmt: skip


def test_secrets_stay_out_of_the_reason(tmp_path: Path) -> None:
    check = "- {id: sure, type: assert, check: 'key == boxes'}\n"
    text = SHIP.replace("steps:\n- id", f"secrets: [{{name: key}}]\nsteps:\n{check}- id")
    with Memory(tmp_path / "em.db") as memory:
        secret = "s3cr3t-value-of-the-key"
        result = memory.run(
            written(tmp_path, text), BOXES, Depot().tools(), run_id="r1", secrets={"key": secret}
        )
        assert result.reason is not None
        assert (result.reason.step_id, "boxes" in result.reason.now) == ("sure", True)
        stored = str([event.body for event in memory.log.read()])
        assert secret not in repr(result.reason)
        assert secret not in stored


def test_secrets_stay_out_of_all_that_a_reason_names(tmp_path: Path) -> None:
    text = """
version: "1"
name: look
checks: hand_over
secrets: [{name: key}]
tools: [{name: look, effect: read}]
steps:
- {id: look, type: tool.call, tool: look, args: {key: "{{ key }}"}, save_as: it,
   expect: {properties: {a: {const: 1}, b: {const: 2}}}}
- {id: end, type: return, value: "{{ it.a }}"}
"""
    secret = "s3cr3t-value-of-the-key"
    tools = {"look": lambda key: {"a": 7, "b": key}}
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(written(tmp_path, text), {}, tools, secrets={"key": secret})
        assert result.reason is not None
        assert [one.check for one in (result.reason, *result.reason.also)] == ["it.a", "it.b"]
        assert secret not in repr(result)
        assert secret not in str([event.body for event in memory.log.read()])


def test_arguments_without_a_value_hand_over_and_the_call_counts_as_not_made(
    tmp_path: Path,
) -> None:
    text = SHIP.replace('args: {thing: "{{ thing }}"}', 'args: {thing: "{{ thing.name }}"}')
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(written(tmp_path, text), BOXES, Depot().tools(), run_id="r1")
        assert result.reason is not None
        assert result.reason.step_id == "pack"
        past = read_run(memory.store, "r1")
    assert (past.restored.in_flight, past.restored.has_acted({})) == (set(), False)
    assert [line.status for line in past.timeline] == ["done"]


def test_a_resumed_run_that_acted_never_hands_over(tmp_path: Path) -> None:
    text = SHIP.replace(
        "steps:\n- id: boxes", "steps:\n- {id: sure, type: assert, check: sure()}\n- id: boxes", 1
    )
    answers = [True]
    depot = Depot(dies_at=2)
    (tmp_path / "udf.py").write_text("def sure():\n    return True\n")
    with Memory(tmp_path / "em.db") as memory:
        udfs = {"sure": lambda: answers[-1]}
        with pytest.raises(Killed):
            memory.run(written(tmp_path, text), BOXES, depot.tools(), run_id="r1", udfs=udfs)
        answers.append(False)
        result = memory.resume("r1", depot.tools(), udfs=udfs)
    assert (result.status, result.reason) == ("failed", None)
    assert depot.done == ["pack a"]
