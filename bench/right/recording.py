"""Recorded runs: chats with the calls that an agent made, and the database they lead to."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from bench.right.world import Domain, World, Write
from bench.routines import DATA


class Recording(NamedTuple):
    """One run: the line of its file, as an importer reads it, and what is known about it."""

    name: str
    task: int
    reward: float
    line: bytes
    calls: list[tuple[str, dict[str, Any]]]
    answers: list[str]


class Aim(NamedTuple):
    """What a run should lead to: the changes of the database, and the writes that make them."""

    changes: Mapping[tuple[str, str], str]
    writes: Counter[str]
    examples: list[Write]


def recordings() -> list[Recording]:
    """The retail runs, in the order of their files."""
    return [
        recording_of(f"{file.stem}:{number}", line)
        for file in sorted((DATA / "tau_retail").glob("*.jsonl"))
        for number, line in enumerate(file.read_bytes().splitlines(), 1)
        if line.strip()
    ]


def recording_of(name: str, line: bytes) -> Recording:
    chat = json.loads(line)
    # Calls and results are paired by their order: recordings use an id of a call again.
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
        for message in chat["messages"]
        for call in message.get("tool_calls") or ()
    ]
    answers = [m["content"] or "" for m in chat["messages"] if m["role"] == "tool"]
    return Recording(name, chat["task_id"], chat["reward"], line, calls, answers)


def recorded_aim(recording: Recording, of: Domain) -> Aim:
    """Where the recorded calls lead, made again on a fresh database."""
    world = World(of)
    for name, args in recording.calls:
        world.say(name, args)
    return aim_of(world)


def gold_aim(task: Any, of: Domain) -> Aim:
    """Where the actions lead that tau-bench expects for a task."""
    world = World(of)
    for action in task.actions:
        world.say(action.name, action.kwargs)
    return aim_of(world)


def aim_of(world: World) -> Aim:
    return Aim(world.changes(), Counter(map(key_of, world.written)), world.written)


def both(first: Aim, second: Aim) -> Aim:
    """An aim that two ways of writing lead to; the changes are those of the first."""
    return Aim(first.changes, first.writes | second.writes, first.examples)


def key_of(write: Write) -> str:
    """A write as text. The order of the items of an order doesn't matter."""
    args = dict(write.args)
    old, new = args.get("item_ids"), args.get("new_item_ids")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        args["item_ids"] = sorted(zip(old, new, strict=True), key=str)
        del args["new_item_ids"]
    elif isinstance(old, list):
        args["item_ids"] = sorted(old, key=str)
    return json.dumps([write.tool, args], sort_keys=True)
