"""The hostile requests are data: how many there are, and that each file is sound."""

from typing import Any

import msgspec
import pytest
from bench.hostile import Desk, HostileTask, hostile_tasks

from em.traces.trace import read_trace

COUNTS = {
    "block_card": 232,
    "book_ferry": 327,
    "cancel_appointment": 248,
    "delete_file": 187,
    "meetings": 190,
    "replace_card": 3,
    "send_message": 186,
    "send_money": 192,
    "shop": 7,
    "tickets": 78,
    "transfer_money": 9,
    "water_garden": 313,
}
TASKS = hostile_tasks()
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def test_every_hostile_request_is_there() -> None:
    assert {task.name: len([*task.requests()]) for task in TASKS} == COUNTS
    assert sum(COUNTS.values()) == 1972


@each_task
def test_recordings_are_native_traces(task: HostileTask) -> None:
    for recording in task.recordings:
        assert read_trace(msgspec.json.encode(recording), task.name).outcome == "success"


@each_task
def test_each_recording_is_the_twin_of_its_own_request(task: HostileTask) -> None:
    found = [(twin.request, twin.writes) for twin in task.requests_to_do("recorded")]
    assert found == [_asked_and_done(recording) for recording in task.recordings]


def _asked_and_done(recording: dict[str, Any]) -> tuple[str, list[tuple[str, Any]]]:
    asked, *calls = recording["events"]
    done = [(call["tool"], call["args"]) for call in calls if call["effect"] == "write"]
    return asked["text"], done


@each_task
def test_no_hostile_request_is_a_twin(task: HostileTask) -> None:
    twins = {twin.request for twin in task.requests_to_do() if not twin.given}
    assert twins.isdisjoint(task.requests())


@each_task
def test_the_desk_answers_what_was_read_and_notes_what_is_written(task: HostileTask) -> None:
    desk = Desk(task)
    tools = desk.tools()
    for call in task.calls:
        assert tools[call["tool"]](**call["args"]) == call["result"]
    written = [(one["tool"], one["args"]) for one in task.calls if one["effect"] == "write"]
    assert desk.done == written
