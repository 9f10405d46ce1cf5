"""Suites of runs: recorded ones, and ones that are synthesised from tau-bench's gold actions."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench.right.recording import (
    Aim,
    Recording,
    both,
    gold_aim,
    recorded_aim,
    recording_of,
)
from bench.right.world import Domain, World

Call = tuple[str, dict[str, Any]]


class Suite(NamedTuple):
    """Successful runs in one domain, and where each should lead."""

    title: str
    domain: Domain
    runs: list[Recording]
    aims: dict[str, Aim]


def recorded(runs: list[Recording], of: Domain) -> Suite:
    """The successful retail runs. Their databases are compared with tau-bench's gold state."""
    aims: dict[str, Aim] = {}
    differ = 0
    for run in runs:
        gold = gold_aim(of.tasks["test"][run.task], of)
        aims[run.name] = both(gold, recorded_aim(run, of))
        differ += gold.changes != recorded_aim(run, of).changes
    print(f"{len(runs)} runs; {differ} of them led to another database than the gold actions")
    return Suite("retail", of, runs, aims)


def synthesised(title: str, of: Domain, split: str, limit: int | None) -> Suite:
    """Runs made up from the gold actions of tasks: the reads that they need, then each write.

    The user's message is the whole instruction. Tasks that write nothing are left out.
    """
    runs: list[Recording] = []
    for number, task in enumerate(of.tasks[split]):
        line = _chat(number, task, of)
        if line is not None:
            runs.append(recording_of(f"{title}:{number}", line))
    chosen = runs[:limit]
    aims = {run.name: recorded_aim(run, of) for run in chosen}
    print(f"{len(chosen)} runs are {title}, from the gold actions of its tasks")
    return Suite(title, of, chosen, aims)


def _chat(number: int, task: Any, of: Domain) -> bytes | None:
    """A chat in which an agent makes the gold actions, with results of the real tools."""
    world = World(of)
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.instruction}]
    made: list[Call] = []
    for call in _calls(task, of):
        if call in made and call[0] not in of.writes:
            continue
        made.append(call)
        call_id = f"call_{len(made)}"
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        asked = {"id": call_id, "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": call_id, "content": world.say(*call)},
        ]
    if not world.written or any(write.error for write in world.asked):
        return None
    messages.append({"role": "assistant", "content": "It is done."})
    chat = {"task_id": number, "reward": 1.0, "instruction": task.instruction, "messages": messages}
    return json.dumps(chat).encode()


def _calls(task: Any, of: Domain) -> Iterator[Call]:
    """Identify the customer, and read what each write is about before it."""
    before = _retail_reads if of.name == "retail" else _airline_reads
    if of.name == "retail":
        yield identify(task.user_id, task.instruction, of)
    yield "get_user_details", {"user_id": task.user_id}
    for action in task.actions:
        if action.name in of.writes:
            yield from before(action.kwargs, of)
        if action.name in of.tools:
            yield action.name, action.kwargs


def identify(user_id: str, request: str, of: Domain) -> Call:
    """The call that finds a customer: by e-mail if the request has it, else by name and zip."""
    user = of.tables["users"][user_id]
    if re.search(re.escape(user["email"]), request, re.IGNORECASE):
        return "find_user_id_by_email", {"email": user["email"]}
    name = {key: user["name"][key] for key in ("first_name", "last_name")}
    return "find_user_id_by_name_zip", {**name, "zip": user["address"]["zip"]}


def _retail_reads(args: dict[str, Any], of: Domain) -> Iterator[Call]:
    order = of.tables["orders"].get(args.get("order_id", ""))
    if order is None:
        return
    yield "get_order_details", {"order_id": args["order_id"]}
    wanted = args.get("item_ids", ()) if "new_item_ids" in args else ()
    for item in order["items"]:
        if item["item_id"] in wanted:
            yield "get_product_details", {"product_id": item["product_id"]}


def _airline_reads(args: dict[str, Any], of: Domain) -> Iterator[Call]:
    reservation = of.tables["reservations"].get(args.get("reservation_id", ""), {})
    if reservation:
        yield "get_reservation_details", {"reservation_id": args["reservation_id"]}
    booked = [(leg["flight_number"], leg["date"]) for leg in reservation.get("flights", ())]
    for leg in args.get("flights", ()):
        flight = of.tables["flights"].get(leg["flight_number"])
        if flight is not None and (leg["flight_number"], leg["date"]) not in booked:
            ends = {key: flight[key] for key in ("origin", "destination")}
            yield "search_direct_flight", {**ends, "date": leg["date"]}


def kind_of(run: Recording, suite: Suite) -> tuple[str, ...]:
    """The tools of a run's writes, to find runs of the same kind."""
    tools = Counter(write.tool for write in suite.aims[run.name].examples)
    return tuple(sorted(tools.elements()))


def by_kind(suite: Suite) -> Iterable[list[Recording]]:
    groups: dict[tuple[str, ...], list[Recording]] = {}
    for run in suite.runs:
        groups.setdefault(kind_of(run, suite), []).append(run)
    return [runs for kind, runs in groups.items() if kind]
