"""Retail tasks with typed inputs, learnt from 1, 2, 5, 20 or all recordings of a write.

A kind is one tool that writes. A recording of it is one successful write of a recorded run: the
inputs as a person would say them (`inputs.py`), the reads before it, and the write. Recordings are
put in an order by chance, and a size takes the first of them: a larger size has those of a smaller
one. What few recordings teach depends on which they are, so `--draws` counts several orders.

A task with several writes is several routines on one request. All of them are prepared before the
first write: each must reach its write in a rehearsal, and in the run that follows reads still
answer as before the first write. Such tasks are counted apart.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figure import Figure
from bench.learn.inputs import CannotSay, Inputs, Tables, described, said, who_asks
from bench.learn.learner import Runnable, TypedLearner
from bench.learn.report import Report
from bench.learn.shop import SIZES, Shop, Task
from bench.right.recording import Recording, aim_of
from bench.right.verdict import Ended, Verdict, judge, zero
from bench.right.world import TRANSFER, Domain, World, Write

if TYPE_CHECKING:
    from em.traces.trace import ToolCall, Trace

COLUMNS = ("right", "handed over", "wrong", "partial", "not learnt")
WAYS = ("ids", "described")
"""How orders and payment methods are named: by id, or by what is known about them."""
BARS = {
    "ids": {"1": 0.55, "5": 0.8, "20": 0.92, "all": 0.93},
    "described": {"20": 0.8, "all": 0.85},
}
"""The share of tasks that must be right. These tasks are development data of the learner."""
SILENT = frozenset({TRANSFER, "think"})
IDENTIFY = frozenset({"find_user_id_by_email", "find_user_id_by_name_zip"})


class Example(NamedTuple):
    """One write of a recorded run: its inputs, and a trace that ends with it."""

    inputs: Inputs
    trace: "Trace"


class Step(NamedTuple):
    """One write that a task asks for, with its inputs. It has an error if the tool refuses it."""

    write: Write
    inputs: Inputs

    @property
    def kind(self) -> str:
        return self.write.tool


class Case(NamedTuple):
    """A task to score, as typed inputs for each of its writes."""

    task: Task
    steps: list[Step]

    @property
    def row(self) -> str:
        return "single" if len(self.steps) == 1 else "several"


class TypedShop:
    """The recordings of each kind, and the tasks to score, with typed inputs."""

    def __init__(self, shop: Shop, way: str = WAYS[0]) -> None:
        self.domain, self.way, self._shop = shop.domain, way, shop
        self.cannot_say: list[str] = []

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.domain.tools) - self.domain.writes - SILENT

    @cached_property
    def examples(self) -> dict[str, list[Example]]:
        """The recordings of each kind."""
        found: dict[str, list[Example]] = {}
        runs = sorted(self._shop.runs, key=_name)
        for run in runs:
            for kind, example in self._of_run(run):
                found.setdefault(kind, []).append(example)
        return found

    def drawn(self, size: str, draw: int) -> dict[str, list[Example]]:
        """Return so many recordings of each kind, the first ones in an order by chance."""
        return {
            kind: random.Random(f"{draw} {kind}").sample(found, len(found))[: SIZES[size]]
            for kind, found in self.examples.items()
        }

    def _of_run(self, run: Recording) -> Iterator[tuple[str, Example]]:
        world, who = World(self.domain), Inputs()
        calls: list[ToolCall] = []
        for (tool, args), answer in zip(run.calls, run.answers, strict=True):
            call = _call(tool, args, answer, is_write=tool in self.domain.writes)
            if tool in IDENTIFY and call.error is None:
                who = args
            if tool in self.domain.writes and call.error is None:
                write = Write(tool, args)
                asks = who or who_asks(_user(write, world.data), "", self.domain)
                inputs = self._inputs(run.name, write, asks, world.data)
                if inputs is not None:
                    own = [one for one in calls if one.effect == "read" or one.tool == tool]
                    yield tool, Example(inputs, _trace(run.name, inputs, [*own, call]))
                world.say(tool, args)
            elif tool in self.domain.tools and tool not in SILENT:
                calls.append(call)

    def cases(self, limit: int | None) -> list[Case]:
        """Return the tasks to score. Those whose inputs can't be said are in `cannot_say`."""
        found: list[Case] = []
        for task in self._shop.tasks(None):
            steps = [*self._steps(task)]
            if steps and None not in steps:
                found.append(Case(task, [step for step in steps if step is not None]))
        return found[:limit]

    def alone(self, limit: int | None) -> list[Case]:
        """Return each write of the tasks as a case of its own."""
        found: list[Case] = []
        for case in self.cases(None):
            for step in case.steps:
                world = World(self.domain)
                world.say(step.write.tool, step.write.args)
                if not world.asked[-1].error:
                    found.append(Case(case.task._replace(aim=aim_of(world)), [step]))
        return found[:limit]

    def _steps(self, task: Task) -> Iterator[Step | None]:
        world = World(self.domain)
        who = who_asks(task.user, task.request, self.domain)
        for action in task.actions:
            if action.name in self.domain.writes:
                write = Write(action.name, action.kwargs)
                inputs = self._inputs(task.name, write, who, world.data)
                world.say(action.name, action.kwargs)
                yield None if inputs is None else Step(world.asked[-1], inputs)

    def _inputs(self, name: str, write: Write, who: Inputs, tables: Tables) -> Inputs | None:
        try:
            inputs = said(write, who, tables)
            return inputs if self.way == WAYS[0] else described(inputs, tables)
        except CannotSay as error:
            self.cannot_say.append(f"{name}: {error}")
            return None


def _name(run: Recording) -> str:
    return run.name


def _user(write: Write, tables: Tables) -> str:
    order = tables["orders"].get(write.args.get("order_id", ""), {})
    return str(write.args.get("user_id") or order["user_id"])


def _call(tool: str, args: dict[str, Any], answer: str, *, is_write: bool) -> "ToolCall":
    from em.traces.formats._messages import as_value
    from em.traces.trace import ToolCall

    effect: Any = "write" if is_write else "read"
    if answer.startswith("Error"):
        return ToolCall(tool=tool, args=args, error=answer, effect=effect)
    return ToolCall(tool=tool, args=args, result=as_value(answer), effect=effect)


def _trace(name: str, inputs: Inputs, calls: Sequence["ToolCall"]) -> "Trace":
    from em.traces.trace import Mission, Trace

    mission = Mission(input_summary=inputs)
    return Trace(mission=mission, events=calls, outcome="success", tags=(name,))


class Class:
    """The routines that a learner learns at each size, and how they do on tasks."""

    def __init__(self, shop: TypedShop, learner: TypedLearner, order: str = "as is") -> None:
        self.shop, self._learner, self._order = shop, learner, order
        self._routines: dict[tuple[str, int], Mapping[str, Runnable]] = {}

    def routines(self, size: str, draw: int = 0) -> Mapping[str, Runnable]:
        """Return a routine for each kind that was learnt."""
        key = (size, draw)
        if key not in self._routines:
            drawn = self.shop.drawn(size, draw)
            kinds = {
                kind: [(one.inputs, one.trace) for one in found] for kind, found in drawn.items()
            }
            self._routines[key] = self._learner.learn(kinds, self.shop.reads)
        return self._routines[key]

    def score(self, case: Case, size: str, draw: int = 0) -> Verdict:
        """Do a task on a fresh database, and compare that with the gold one."""
        return self._score(case, self.routines(size, draw))

    def _score(self, case: Case, known: Mapping[str, Runnable]) -> Verdict:
        missing = [step.kind for step in case.steps if step.kind not in known]
        if missing:
            return Verdict("not learnt", missing[0])
        world = World(self.shop.domain, self._order, case.task.name)
        ended = self._rehearsed(case, known) if len(case.steps) > 1 else None
        for step in case.steps if ended is None else ():
            ran = known[step.kind].run(step.inputs, self._tools(case, world))
            # Where the tool refuses a gold action, a right run tries it and is refused too.
            is_as_gold = step.write.error and world.asked and world.asked[-1].error
            if ran.status != "ok" and not is_as_gold:
                ended = ran
                break
        found = judge(world, ended or Ended("ok"), case.task.aim)
        return Verdict("handed over", found.why) if found.kind in ("asked", "refused") else found

    def _rehearsed(self, case: Case, known: Mapping[str, Runnable]) -> Ended | None:
        """How the first routine ended that doesn't reach its write; None if all do."""
        for step in case.steps:
            stopped = Stopped(self.shop.domain)
            ended = known[step.kind].run(step.inputs, self._tools(case, stopped))
            if not stopped.asked:
                return Ended("needs_input" if ended.status == "ok" else ended.status, ended.said)
        return None

    def _tools(self, case: Case, world: World) -> dict[str, Callable[..., Any]]:
        """Tools that write into a world and read from one that nothing was written into."""
        if len(case.steps) == 1:
            return world.tools()
        before = World(self.shop.domain, self._order, case.task.name).tools()
        writes = self.shop.domain.writes | {TRANSFER}
        return {name: world.tools()[name] if name in writes else before[name] for name in before}


class Stopped(World):
    """A world that notes which writes were asked for and makes none of them."""

    def __init__(self, of: Domain) -> None:
        super().__init__(of)

    def say(self, name: str, args: Mapping[str, Any]) -> str:
        if name in self.domain.writes or name == TRANSFER:
            self.asked.append(Write(name, dict(args), "Error: only rehearsed"))
            return "Error: only rehearsed"
        return super().say(name, args)


def unseen(
    group: Class, sizes: Sequence[str], limit: int | None, draws: int, *, verbose: bool
) -> Iterator[Figure]:
    """Score the tasks at each size."""
    shop = group.shop
    cases = shop.cases(limit)
    counts = ", ".join(f"{kind} {len(found)}" for kind, found in shop.examples.items())
    print(f"{len(cases)} tasks; recordings: {counts}")
    if shop.cannot_say:
        print(f"passed over, since inputs can't say it: {len(shop.cannot_say)}")
        print(*(f"  {one}\n" for one in shop.cannot_say[: None if verbose else 3]), sep="")
    named = "typed inputs" if shop.way == WAYS[0] else "typed inputs without ids"
    for size in sizes:
        what = f"retail, {named}, learnt from {size}"
        tally = Report(what, columns=COLUMNS, verbose=verbose)
        for draw in range(draws):
            for case in cases:
                tally.add(case.row, f"{case.task.name} draw {draw}", group.score(case, size, draw))
        tally.show()
        yield from _figures(tally, what, BARS[shop.way].get(size))


def _figures(tally: Report, what: str, bar: float | None) -> Iterator[Figure]:
    for rows in (["single", "several"], ["single"], ["several"]):
        right, whole = tally.count("right", rows=rows), tally.count(rows=rows)
        which, limit = ("", bar) if len(rows) > 1 else (f" ({rows[0]})", None)
        ratio = right / max(whole, 1)
        yield Figure(f"{what}: right{which}", right, "of", whole, "", ratio, limit, True)
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial"), tally.count())
