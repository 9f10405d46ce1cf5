"""BFCL multi-turn: each turn of a conversation is a task, on what the turns before it left.

A turn's trace has the gold calls, made by BFCL's own tools in the state that the gold calls of
earlier turns lead to. Its request is what the user said in it (`--turns joined`: in all turns up
to it). Kinds are the tools of a turn that write, or if none does, those that read. Every
second conversation is learnt from, the others are scored by BFCL's checker.

A sibling lacks a parameter in one turn, and says it in the next: in that turn nothing may be done.
"""

import ast
import importlib
import inspect
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.learn.learner import Learner, Learnt, Material, Tools
from bench.learn.report import Report
from bench.right.verdict import Ended, Verdict, zero
from bench.right.world import ToolError

FOLDER = "EM_BFCL"
HOW_TO_GET_IT = (
    f"{FOLDER} names no folder with bfcl-eval; this part is passed over. Get it with\n"
    "    python -m pip install --no-deps --target ../bfcl bfcl-eval mpmath\n"
    f"    export {FOLDER}=$PWD/../bfcl"
)
TURNS = ("alone", "joined")
EVAL = "bfcl_eval.eval_checker.multi_turn_eval"
COLUMNS = ("right", "state only", "asked", "refused", "wrong", "partial", "not learnt")
"""State only: the state is right, but BFCL misses the answer of a call."""

Call = tuple[str, dict[str, Any]]


class Turn(NamedTuple):
    """A turn: what was said so far, the gold calls before it and in it, and where it is from.

    hides: the user did not say everything yet; `gold` is what is done once it is said.
    """

    name: str
    entry: dict[str, Any]
    number: int
    said: list[str]
    before: list[str]
    gold: list[str]
    hides: bool = False


def folder() -> Path | None:
    path = Path(os.environ.get(FOLDER, ""))
    is_there = (path / "bfcl_eval" / "data").is_dir() and (path / "mpmath").is_dir()
    return path if is_there else None


class Conversations:
    """BFCL's multi-turn data, its tools, and its checker."""

    def __init__(self, root: Path, turns: str = TURNS[0]) -> None:
        self._data = root / "bfcl_eval" / "data"
        self._is_joined = turns == "joined"
        sys.path.append(str(root))
        self.checker = importlib.import_module(f"{EVAL}.multi_turn_checker")
        self._config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        self._names = (f"run{number}" for number in count())

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self._data / name).read_text().splitlines()]

    def _entries(self, category: str) -> Iterator[tuple[dict[str, Any], list[list[str]]]]:
        name = f"BFCL_v4_multi_turn_{category}.json"
        gold = {one["id"]: one["ground_truth"] for one in self._lines(f"possible_answer/{name}")}
        for entry in self._lines(name):
            yield entry, gold[entry["id"]]

    @cached_property
    def base(self) -> list[Turn]:
        """The turns in which something is to be done."""
        return [
            _turn(entry, gold, number)
            for entry, gold in self._entries("base")
            for number, calls in enumerate(gold)
            if calls
        ]

    @cached_property
    def siblings(self) -> list[Turn]:
        """The turns that hide a parameter: nothing is done in them, but something after them.

        Where the words are those of a turn in which something is done, nothing is hidden.
        """
        complete = {tuple(turn.said) for turn in self.base}
        turns = [
            _turn(entry, gold, number, hides=True)
            for entry, gold in self._entries("miss_param")
            for number, (calls, later) in enumerate(pairwise(gold))
            if not calls and later
        ]
        return [turn for turn in turns if tuple(turn.said) not in complete]

    def request(self, turn: Turn) -> str:
        return "\n\n".join(turn.said if self._is_joined else turn.said[-1:])

    def world(self, turn: Turn) -> "Desk":
        """The state that the turns before this one left."""
        desk = Desk(self._instances(turn.entry), self.writes)
        for call in turn.before:
            with suppress(ToolError):
                desk.call(*desk.parsed(call))
        return desk.begun()

    def earlier(self, turn: Turn) -> dict[str, Any]:
        """The calls of the turns before this one with their results, as the agent knows them."""
        desk = Desk(self._instances(turn.entry), self.writes)
        made = []
        for text in turn.before:
            tool, args = desk.parsed(text)
            with suppress(ToolError):
                made.append({"tool": tool, "args": args, "result": desk.call(tool, args)})
        return {"earlier": made}

    def _instances(self, entry: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name in entry["involved_classes"]:
            module = importlib.import_module(self._config.CLASS_FILE_PATH_MAPPING[name])
            found[name] = getattr(module, name)()
            if name not in self._config.STATELESS_CLASSES:
                found[name]._load_scenario(deepcopy(entry["initial_config"].get(name, {})))
        return found

    @cached_property
    def writes(self) -> frozenset[str]:
        """The tools that ever change a state, as the gold calls show."""
        found: set[str] = set()
        for entry, gold in self._entries("base"):
            desk = Desk(self._instances(entry), frozenset())
            for text in (call for calls in gold for call in calls):
                name, args = desk.parsed(text)
                desk.begun()
                with suppress(ToolError):
                    desk.call(name, args)
                if desk.is_changed(self.checker):
                    found.add(name)
        return frozenset(found)

    def kind(self, turn: Turn) -> tuple[str, ...]:
        tools = {ast.parse(call).body[0].value.func.id for call in turn.gold}  # type: ignore[attr-defined]
        return tuple(sorted(tools & self.writes or tools))

    def trace(self, turn: Turn) -> dict[str, Any] | None:
        """The gold calls of a turn as a trace; None if a tool refuses one of them."""
        desk = self.world(turn)
        said = self.request(turn)
        events: list[dict[str, Any]] = [{"type": "message", "role": "user", "text": said}]
        for text in turn.gold:
            tool, args = desk.parsed(text)
            effect = "write" if tool in self.writes else "read"
            try:
                result = desk.call(tool, args)
            except ToolError:
                return None
            called = {"type": "tool_call", "tool": tool, "args": args, "result": result}
            events.append({**called, "effect": effect})
        mission = {"goal": turn.said[-1], "input_summary": self.earlier(turn)}
        return {"version": "1", "mission": mission, "events": events, "outcome": "success"}

    def judge(self, turn: Turn, desk: "Desk", ended: Ended) -> Verdict:
        """What BFCL's checker says about a turn, after the gold calls of the turns before it."""
        said = f"{ended.status}: {ended.said}"
        gold = _gold(turn)
        ours = [[calls] for calls in gold[:-1]] + [[desk.texts]]
        found = self.checker.multi_turn_checker(ours, gold, turn.entry, "", next(self._names))
        error = found.get("error_type", "")
        is_state = "state_mismatch" not in error and "empty_turn" not in error
        if found["valid"] and ended.status == "ok":
            return Verdict("right")
        if not desk.is_changed(self.checker) and ended.status != "ok":
            return Verdict("asked" if ended.status == "needs_input" else "refused", said)
        if ended.status != "ok":
            return Verdict("partial", f"{desk.texts} instead of {turn.gold}; {said}")
        if is_state:
            return Verdict("state only", f"{desk.texts} instead of {turn.gold}")
        return Verdict("wrong", f"{desk.texts} instead of {turn.gold}; {error}")


def _turn(
    entry: dict[str, Any], gold: list[list[str]], number: int, *, hides: bool = False
) -> Turn:
    said = [message["content"] for turn in entry["question"][: number + 1] for message in turn]
    before = [call for calls in gold[:number] for call in calls]
    entry = {**entry, "gold": gold}
    name = f"{entry['id']}:{number}"
    return Turn(name, entry, number, said, before, gold[number + hides], hides)


def _gold(turn: Turn) -> list[list[str]]:
    found: list[list[str]] = turn.entry["gold"][: turn.number + 1]
    return found


class Desk:
    """Instances of BFCL's tools, and the calls that were made since it was begun."""

    def __init__(self, instances: dict[str, Any], writes: frozenset[str]) -> None:
        self._instances, self._writes = instances, writes
        self._methods = {
            name: method
            for instance in instances.values()
            for name, method in inspect.getmembers(instance, inspect.ismethod)
            if not name.startswith("_")
        }
        self._first: dict[str, Any] = {}
        self.texts: list[str] = []
        self.acts: list[str] = []

    def begun(self) -> "Desk":
        """This state is the first one from now on."""
        self._first = deepcopy(self._instances)
        self.texts, self.acts = [], []
        return self

    def is_changed(self, checker: Any) -> bool:
        """Whether the state is another one: as the checker compares it, or the current folder."""
        here, first = _where(self._instances), _where(self._first)
        return here != first or not checker.state_checker(self._instances, self._first)["valid"]

    def tools(self) -> Tools:
        return {name: self._tool(name) for name in self._methods}

    def _tool(self, name: str) -> Any:
        def call(**args: Any) -> Any:
            return self.call(name, args)

        call.__name__ = name
        call.__dict__["__signature__"] = inspect.signature(self._methods[name])
        return call

    def call(self, name: str, args: dict[str, Any]) -> Any:
        """What a tool gives back; an error is raised."""
        self.texts.append(f"{name}({', '.join(f'{key}={one!r}' for key, one in args.items())})")
        if name in self._writes:
            self.acts.append(self.texts[-1])
        try:
            result = self._methods[name](**deepcopy(args))
        except Exception as error:
            raise ToolError(f"Error: {error}") from error
        if isinstance(result, dict) and [*result] == ["error"]:
            raise ToolError(f"Error: {result['error']}")
        with suppress(TypeError, ValueError):
            return json.loads(json.dumps(result))
        return str(result)

    def parsed(self, text: str) -> Call:
        """A gold call as the tool's name and its arguments by name."""
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        values = [ast.literal_eval(one) for one in call.args]
        named = {one.arg or "": ast.literal_eval(one.value) for one in call.keywords}
        names = [*inspect.signature(self._methods[call.func.id]).parameters]
        return call.func.id, dict(zip(names, values, strict=False)) | named


def _where(instances: dict[str, Any]) -> list[str]:
    """The current folder of a file system, and those above it."""
    found, here = [], getattr(instances.get("GorillaFileSystem"), "_current_dir", None)
    while here is not None:
        found.append(str(here.name))
        here = here.parent
    return found


def scored(where: Path, turns: str, limit: int | None, *, verbose: bool) -> Iterator[Figure]:
    root = folder()
    if root is None:
        print(HOW_TO_GET_IT)
        return
    of = Conversations(root, turns)
    desk = Reception(of, Learner(where / "bfcl"))
    unseen = [turn for turn in of.base if not is_learnt(turn)]
    chosen = _drawn(unseen, limit)
    learnable = sum(desk.has_traces(turn) for turn in chosen)
    print(f"{len(chosen)} turns, of {learnable} of them there are traces of the same kind")
    tally = Report("BFCL, unseen turns", columns=COLUMNS, verbose=verbose)
    for turn in chosen:
        row = "+".join(turn.entry["involved_classes"])
        tally.add(row, turn.name, desk.score(turn))
    tally.show()
    what, right, whole = "BFCL, unseen turns", tally.count("right"), tally.count()
    yield Figure(f"{what}: right", right, "of", whole, "", right / max(whole, 1), 0.5, True)
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial"), whole)
    yield from _missing(desk, _drawn(of.siblings, limit), verbose=verbose)
    desk.close()


def _missing(desk: "Reception", turns: Sequence[Turn], *, verbose: bool) -> Iterator[Figure]:
    what = "BFCL, a parameter is missing"
    columns = ("asked", "refused", "acted", "answered", "not learnt")
    tally = Report(what, columns=columns, verbose=verbose)
    for turn in turns:
        row = "seen conversation" if is_learnt(turn) else "unseen conversation"
        tally.add(row, turn.name, desk.attack(turn))
    tally.show()
    yield zero(f"{what}: acts", tally.count("acted", "answered"), tally.count())


def is_learnt(turn: Turn) -> bool:
    """Every second conversation is learnt from, with all its turns."""
    return int(str(turn.entry["id"]).rpartition("_")[2]) % 2 == 0


def _drawn(turns: list[Turn], limit: int | None) -> list[Turn]:
    return turns if limit is None else random.Random(15).sample(turns, min(limit, len(turns)))


class Reception:
    """Learns a routine for each kind of turn."""

    def __init__(self, of: Conversations, learner: Learner) -> None:
        self._of, self._learner = of, learner
        self._kinds: dict[tuple[str, ...], list[str]] = {}
        for turn in of.base:
            trace = of.trace(turn) if is_learnt(turn) else None
            if trace is not None:
                learner.record({turn.name: trace})
                self._kinds.setdefault(of.kind(turn), []).append(turn.name)

    def has_traces(self, turn: Turn) -> bool:
        return self._of.kind(turn) in self._kinds

    def _learnt(self, turn: Turn, tools: Tools) -> Learnt | str:
        kind = self._of.kind(turn)
        parts = [
            name for other, names in self._kinds.items() if set(other) < set(kind) for name in names
        ]
        own = self._kinds.get(kind, [])
        every = [name for names in self._kinds.values() for name in names]
        beside = [name for name in every if name not in own and name not in parts]
        material = Material(own, parts, beside)
        return self._learner.learn("-".join(kind).replace("_", "-"), material, tools)

    def _run(self, turn: Turn) -> "tuple[Desk, Ended | str]":
        desk = self._of.world(turn)
        tools = desk.tools()
        learnt = self._learnt(turn, tools)
        if isinstance(learnt, str):
            return desk, learnt
        return desk, learnt.run(self._of.request(turn), tools, self._of.earlier(turn))

    def score(self, turn: Turn) -> Verdict:
        desk, ended = self._run(turn)
        if isinstance(ended, str):
            return Verdict("not learnt", ended)
        return self._of.judge(turn, desk, ended)

    def attack(self, turn: Turn) -> Verdict:
        """Acted: called a tool that writes. Answered: ended ok without what was not said."""
        desk, ended = self._run(turn)
        if isinstance(ended, str):
            return Verdict("not learnt", ended)
        said = f"{ended.status}: {ended.said}"
        if desk.acts:
            return Verdict("acted", f"{desk.acts}; {said}")
        if ended.status == "ok":
            return Verdict("answered", f"{desk.texts}")
        return Verdict("asked" if ended.status == "needs_input" else "refused", said)

    def close(self) -> None:
        self._learner.close()
