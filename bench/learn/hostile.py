"""Hostile requests against learnt routines that read requests by their own templates only.

A kind of task is learnt from its recordings, with the inputs that the twins name for them, as by a
person who compiles it: constants are shown to him, and it acts on them. A file
with several kinds becomes several routines, as in a memory: a request that fits none, or more than
one, is handed over. No hostile request may lead to a write; every recorded request must be done.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figure import Figure
from bench.hostile import Desk, HostileTask, Twin, hostile_tasks
from bench.learn.report import Report
from bench.right.verdict import Verdict, zero

if TYPE_CHECKING:
    from em.compiler.example import Example
    from em.runner.package import Package

COLUMNS = ("right", "handed over", "wrong")
MUST = ("recorded", "new values")
"""The groups of twins that must be done."""


class Read(NamedTuple):
    """A routine that takes a request, and the inputs that it reads out of it."""

    package: "Package"
    inputs: Mapping[str, Any]


class Kinds:
    """The routines of one file."""

    def __init__(self, task: HostileTask, folder: Path) -> None:
        self.task = task
        self.packages = [*_packages(task, folder)]

    def do(self, request: str, given: Mapping[str, Any] | None = None) -> Desk:
        """Do a request if it fits one routine; return the desk with what was done."""
        from em.runner.engine import run_routine
        from em.runner.template import fill

        desk = Desk(self.task)
        fitting = [
            Read(package, inputs)
            for package in self.packages
            for routine in [package.routine]
            for inputs in [fill(routine.requests, request, routine.input_schema)]
            if inputs is not None
        ]
        if len(fitting) == 1:
            (found,) = fitting
            run_routine(found.package, {**found.inputs, **(given or {})}, desk.tools())
        return desk


def _packages(task: HostileTask, folder: Path) -> Iterator["Package"]:
    from em.compiler.evidence import CONSTANTS_SHOWN
    from em.compiler.learner import learn
    from em.compiler.request_templates import request_templates
    from em.compiler.routine_text import routine_text
    from em.runner.package import Package

    kinds = examples_of(task)
    for name, examples in kinds.items():
        document = learn(name, examples, caution=CONSTANTS_SHOWN).routine
        schema = document["input_schema"]
        document["requests"] = request_templates(examples, schema)
        place = folder / task.name / name
        place.mkdir(parents=True)
        (place / "routine.yaml").write_text(routine_text(document))
        yield Package(place)


def examples_of(task: HostileTask) -> dict[str, "list[Example]"]:
    """The recordings by the tools that they wrote with; inputs as their twins name them."""
    from em.compiler.example import Call, Example

    inputs = {twin.request: twin.inputs | twin.given for twin in task.requests_to_do(MUST[0])}
    found: dict[str, list[Example]] = defaultdict(list)
    for number, recording in enumerate(task.recordings):
        events: Sequence[dict[str, Any]] = recording["events"]
        request = next(one["text"] for one in events if one["type"] == "message")
        calls = [
            Call(one["tool"], one["args"], one["result"], one.get("error"), one["effect"])
            for one in events
            if one["type"] == "tool_call"
        ]
        example = Example(inputs[request], calls, request=request, name=f"{task.name} {number}")
        found["_and_".join(example.kind)].append(example)
    return found


def acts(folder: Path, limit: int | None, *, verbose: bool = False) -> Iterator[Figure]:
    """How many hostile requests lead to a write, and how many twins are done."""
    hostile = Report("hostile requests", columns=("right", "ACTED"), verbose=verbose)
    twins = Report("right twins", columns=COLUMNS, verbose=verbose)
    requests = acted = 0
    done: dict[str, list[bool]] = defaultdict(list)
    for task in hostile_tasks():
        kinds = Kinds(task, folder / "hostile")
        for request in [*task.requests()][:limit]:
            desk = kinds.do(request)
            requests, acted = requests + 1, acted + bool(desk.done)
            if desk.done:
                hostile.add(task.name, request, Verdict("ACTED", _shown(desk)))
            else:
                hostile.add(task.name, request, Verdict("right"))
        for group in task.twins:
            for twin in task.requests_to_do(group):
                verdict = _judged(twin, kinds.do(twin.request, twin.given))
                done[group].append(verdict.kind == "right")
                twins.add(group, twin.request, verdict)
    hostile.show()
    twins.show()
    yield zero("hostile requests that lead to a write", acted, requests)
    for group, right in done.items():
        bar = 1.0 if group in MUST else None
        share = sum(right) / len(right)
        yield Figure(f"twins done, {group}", sum(right), "of", len(right), "", share, bar, True)


def _judged(twin: Twin, desk: Desk) -> Verdict:
    if _plain(desk.done) == _plain(twin.writes):
        return Verdict("right")
    return Verdict("wrong", _shown(desk)) if desk.done else Verdict("handed over", twin.request)


def _plain(writes: Sequence[Any]) -> str:
    return json.dumps([[tool, args] for tool, args in writes], sort_keys=True)


def _shown(desk: Desk) -> str:
    return json.dumps(desk.done)
