"""Reads that only some traces made are made where something needs them, and say what must hold."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import EmError
from em.traces.trace import Message, Mission, ToolCall, Trace

SAID = "Please archive {} today."
FORMS = ("template", "steps", "plan")
WORDS = (
    SAID,
    "{}: please archive it.",
    "I want to archive {}!",
    "Archive {} for me, please.",
    "Could you archive {}?",
)


def file(number: int, state: str = "open") -> dict[str, Any]:
    return {"file_id": f"F-{4000 + 37 * number}", "state": state, "shelf": f"shelf_{700 + number}"}


class Archive:
    """Files on shelves: each has a state, and a history."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record, self.done, self.looked = record, [], []

    def act(self, **args: Any) -> str:
        self.done.append(args)
        return "ok"

    def look(self, what: str, result: Any) -> Any:
        self.looked.append(what)
        return result

    def tools(self) -> dict[str, Any]:
        return {
            "get_file": lambda file_id: self.look("file", self.record),
            "get_notes": lambda file_id: self.look("notes", {"notes": "none"}),
            "get_rules": lambda: self.look("rules", {"days": 14}),
            "archive_file": self.act,
        }


def archived(number: int, form: str, *reads: str, shelf: bool = True) -> Trace:
    record = file(number)
    own = {"file_id": record["file_id"]}
    results = {"file": record, "notes": {"notes": f"note {number}"}, "rules": {"days": 14}}
    args = {"file": own, "notes": own, "rules": {}}
    events: list[Any] = []
    if form != "steps":
        words = WORDS[number % 5] if form == "plan" else SAID
        events.append(Message(role="user", text=words.format(record["file_id"])))
    events += [
        ToolCall(tool=f"get_{one}", args=args[one], result=results[one], effect="read")
        for one in reads
    ]
    done = {**own, **({"shelf": record["shelf"]} if shelf else {})}
    events.append(ToolCall(tool="archive_file", args=done, result="ok", effect="write"))
    stated = own if form == "steps" else {}
    return Trace(
        mission=Mission(goal="archive", input_summary=stated), events=events, outcome="success"
    )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def learnt(memory: Memory, traces: Sequence[Trace]) -> Any:
    return memory.compile([memory.add_trace(one) for one in traces], name="archive")


def run(memory: Memory, routine: Any, form: str, state: str = "open") -> tuple[str, Archive]:
    archive = Archive(file(50, state))
    own = archive.record["file_id"]
    given = {"file_id": own} if form == "steps" else {"request": SAID.format(own)}
    return memory.run(routine, given, archive.tools()).status, archive


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "reads",
    [
        (("file",), ("file", "notes"), ("file",), ("notes", "file"), ("file",)),
        (("file",), ("rules", "file"), ("file",), ("file",), ("file", "rules")),
    ],
)
def test_a_read_that_few_made_and_nothing_needs_is_not_made(
    memory: Memory, form: str, reads: Sequence[Sequence[str]]
) -> None:
    routine = learnt(memory, [archived(n, form, *own) for n, own in enumerate(reads)])
    assert routine.trials.count("wrong") == 0
    status, archive = run(memory, routine, form)
    record = file(50)
    assert (status, archive.done) == (
        "ok",
        [{"file_id": record["file_id"], "shelf": record["shelf"]}],
    )
    assert set(archive.looked) == {"file"}


@pytest.mark.parametrize("form", FORMS)
def test_a_read_that_gives_a_value_is_made_though_one_trace_did_without(
    memory: Memory, form: str
) -> None:
    reads = (("file",), ("file",), ("file",), (), ("file",))
    routine = learnt(memory, [archived(n, form, *own) for n, own in enumerate(reads)])
    assert routine.trials.count("wrong") == 0
    status, archive = run(memory, routine, form)
    assert (status, [one["shelf"] for one in archive.done]) == ("ok", [file(50)["shelf"]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shelf", [True, False])
def test_what_held_whenever_somebody_looked_must_hold(
    memory: Memory, form: str, shelf: bool
) -> None:
    """Those who did not look say nothing about the state that they would have seen."""
    reads = (("file",), ("file",), (), ("file",), ("file",))
    made = [archived(n, form, *own, shelf=shelf) for n, own in enumerate(reads)]
    routine = learnt(memory, made)
    assert run(memory, routine, form)[0] == "ok"
    status, archive = run(memory, routine, form, "lost")
    assert (status != "ok", archive.done) == (True, [])


@pytest.mark.parametrize("form", FORMS)
def test_a_join_that_one_trace_denies_is_not_used(memory: Memory, form: str) -> None:
    """In one trace the shelf was another one than that of the file."""
    made = [archived(n, form, "file") for n in range(4)]
    odd = archived(4, form, "file")
    last = odd.events[-1]
    assert isinstance(last, ToolCall)
    other = ToolCall(
        tool=last.tool, args={**last.args, "shelf": "shelf_9"}, result="ok", effect="write"
    )
    made.append(Trace(mission=odd.mission, events=[*odd.events[:-1], other], outcome="success"))
    try:
        routine = learnt(memory, made)
    except EmError:
        return  # they contradict each other
    status, archive = run(memory, routine, form)
    assert (status, archive.done) == ("needs_input", [])
