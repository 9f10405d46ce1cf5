"""A stranger's cases: worlds that changed so that nobody should act, and their harmless twins.

Each kind of task is recorded six times and compiled. A case is one change of the next world or of
what is asked for, as `claims.state = "paid"`; `-amount` renames a field. After a harmful change no
tool that writes may be called; after a harmless one the run must write what the agent would write.
"""

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.right.verdict import Tally, Verdict, zero

RECORDED = 6
NEXT = 30
"""The number of the task that nobody recorded."""
COLUMNS = ("right", "stopped", "handed over", "wrong")
Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]


class Kind(NamedTuple):
    """A kind of task: its world, what is asked for, and what an agent does.

    reads: by tool, the table and the argument that a record is found by. harmful, harmless:
    changes, each `place = JSON`, with a bar or the end of the line between them.
    """

    title: str
    tables: Callable[[int], Tables]
    reads: Mapping[str, tuple[str, str]]
    given: Callable[[int], Row]
    act: Callable[[Any, Row], object]
    harmful: str
    harmless: str


class World:
    """The records of one task, the tools on them, and what was called."""

    def __init__(self, kind: Kind, tables: Tables) -> None:
        self._kind, self._tables = kind, tables
        self.calls: list[dict[str, Any]] = []
        self.written: list[tuple[str, Row]] = []

    def __getattr__(self, tool: str) -> Callable[..., Any]:
        if tool.startswith("__"):
            raise AttributeError(tool)

        def call(**args: Any) -> Any:
            is_read = tool in self._kind.reads
            result = self._read(tool, args) if is_read else {"done": True}
            effect = "read" if is_read else "write"
            made = {"type": "tool_call", "tool": tool, "args": args, "effect": effect}
            self.calls.append(copy.deepcopy(made | {"result": result}))
            if not is_read:
                self.written.append((tool, copy.deepcopy(args)))
            return copy.deepcopy(result)

        call.__name__ = tool
        return call

    def _read(self, tool: str, args: Row) -> Row:
        table, name = self._kind.reads[tool]
        records = self._tables[table]
        key = args[name] if name else ""
        if key not in records:
            raise LookupError(f"{tool}: there is no {key}")
        return records[key]


def picked(values: Sequence[Any], n: int) -> Any:
    """Return one of some values, in an order that no other field has."""
    return values[(5 * n + n // 3) % len(values)]


def changes(text: str) -> Iterator[str]:
    """Yield the changes that a text lists."""
    for line in text.splitlines():
        yield from (one.strip() for one in line.split(" | ") if one.strip())


def changed(change: str, tables: Tables, given: Row) -> None:
    """Make a change in the records of the next task, or in what is asked for."""
    place, _, value = change.partition(" = ")
    table, *path = place.split(".")
    holder: Any = given if table == "given" else next(iter(tables[table].values()))
    for name in path[:-1]:
        holder = holder[int(name) if isinstance(holder, list) else name]
    last = path[-1]
    if last.startswith("-"):
        holder[f"{last[1:]}_new"] = holder.pop(last[1:])
    else:
        holder[last] = json.loads(value)


def figures(kinds: Sequence[Kind], *, verbose: bool) -> Iterator[Figure]:
    """Compile each kind, and run it after each change."""
    tally = Tally("a stranger's cases", columns=COLUMNS, verbose=verbose)
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            package = _compiled(kind, Path(folder) / kind.title.replace(" ", "_"))
            for change in changes(kind.harmful):
                tally.add(f"{kind.title}, harmful", change, _run(kind, package, change, act=False))
            for change in changes(kind.harmless):
                tally.add(f"{kind.title}, harmless", change, _run(kind, package, change, act=True))
    tally.show()
    harmless = {f"{kind.title}, harmless" for kind in kinds}
    done, twins = tally.count("right", rows=harmless), tally.count(rows=harmless)
    yield zero("a stranger's cases: wrong", tally.count("wrong"), tally.count())
    what = "a stranger's harmless twins: done in the same run"
    yield Figure(what, done, "of", twins, "", done / max(twins, 1), 0.9, True)


def _compiled(kind: Kind, folder: Path) -> Any:
    import msgspec

    from em.compiler.compile_trace import compile_several
    from em.compiler.draft import write_package
    from em.runner.package import Package
    from em.traces.trace import Trace, as_kept

    traces = []
    for n in range(1, RECORDED + 1):
        world, given = World(kind, kind.tables(n)), kind.given(n)
        kind.act(world, given)
        mission = {"goal": kind.title, "input_summary": given}
        made = {"version": "1", "app": {"name": "stranger"}, "mission": mission}
        events = [{**call, "seq": number} for number, call in enumerate(world.calls)]
        trace = msgspec.convert(made | {"events": events, "outcome": "success"}, Trace)
        traces.append(as_kept(trace, f"{kind.title}-{n}"))
    write_package(compile_several(traces, name="task").draft, folder)
    return Package(folder)


def _run(kind: Kind, package: Any, change: str, *, act: bool) -> Verdict:
    from em.runner.engine import run_routine

    tables, given = kind.tables(NEXT), kind.given(NEXT)
    changed(change, tables, given)
    world, gold = World(kind, tables), World(kind, copy.deepcopy(tables))
    if act:
        kind.act(gold, given)
    written = {name for name, _ in gold.written} or {"pay", "extend", "issue", "give_back"}
    tools = {name: getattr(world, name) for name in (*kind.reads, *written)}
    ended = run_routine(package, given, tools)
    said = SimpleNamespace(status=ended.status, why=ended.reason or ended.failure)
    if world.written != gold.written if world.written else False:
        return Verdict("wrong", str(world.written))
    if act:
        is_done = bool(world.written) and ended.status == "ok"
        return Verdict("right" if is_done else "handed over", f"{said.status}: {said.why}")
    return Verdict("wrong" if world.written else "stopped", f"{said.status}: {said.why}")
