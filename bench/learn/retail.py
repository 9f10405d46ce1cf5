"""Retail tasks that were never seen, learnt from 1, 5, 20 or all runs of a kind."""

from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.learn.learner import Learner, Learnt
from bench.learn.report import Report
from bench.learn.shop import Kind, Shop, Task, name_of
from bench.right.verdict import Verdict, judge, zero
from bench.right.world import World

SIZES: dict[str, int | None] = {"1": 1, "2": 2, "5": 5, "20": 20, "all": None}
USUAL = ("1", "5", "20", "all")
BARS = {"5": 0.6, "20": 0.8, "all": 0.9}
COLUMNS = ("right", "asked", "refused", "wrong", "partial", "not learnt")


class School:
    """The learners of all sizes: each has recorded its runs of every kind."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.shop = shop
        self._folder = folder
        self._learners: dict[str, Learner] = {}

    def learnt(self, task: Task, size: str) -> Learnt | str:
        """The routine for tasks of this kind, or why there is none."""
        if size not in self._learners:
            self._learners[size] = Learner(self._folder / f"retail-{size}")
            self._learners[size].record(self.shop.drawn(SIZES[size]))
        material = self.shop.material(task.kind, SIZES[size])
        tools = World(self.shop.domain).tools()
        return self._learners[size].learn(name_of(task.kind), material, tools)

    def score(self, task: Task, size: str, order: str = "as is") -> Verdict:
        """Run a task on a fresh database, and compare that with the gold one."""
        learnt = self.learnt(task, size)
        if isinstance(learnt, str):
            return Verdict("not learnt", learnt)
        world = World(self.shop.domain, order, task.name)
        ended = learnt.run(task.request, world.tools())
        # Where a tool refuses a gold action, a right run tries it and is refused too.
        is_refused = task.refused and any(write.error for write in world.asked)
        if is_refused and world.changes() == task.aim.changes:
            return Verdict("right")
        return judge(world, ended, task.aim)

    def close(self) -> None:
        for learner in self._learners.values():
            learner.close()


def unseen(
    school: School, sizes: list[str], limit: int | None, order: str, *, verbose: bool
) -> Iterator[Figure]:
    """Score the tasks at each size. A kind without runs of its own is learnt from its parts."""
    tasks = school.shop.tasks(limit)
    print(f"{len(tasks)} tasks; {sum(map(len, school.shop.runs.values()))} runs to learn from")
    tally = Report("retail, unseen tasks", columns=COLUMNS, verbose=verbose)
    kinds: dict[tuple[str, Kind], list[str]] = {}
    for size in sizes:
        for task in tasks:
            verdict = school.score(task, size, order)
            tally.add(_row(school, task, size), task.name, verdict)
            kinds.setdefault((size, task.kind), []).append(verdict.kind)
    _show_kinds(school, sizes, kinds)
    tally.show()
    for size in sizes:
        yield from _figures(tally, size, len(tasks))


def _show_kinds(
    school: School, sizes: list[str], verdicts: dict[tuple[str, Kind], list[str]]
) -> None:
    print(f"\nright, of the tasks of a kind{'':<31}runs  tasks" + "".join(f"{s:>6}" for s in sizes))
    kinds = dict.fromkeys(kind for _, kind in verdicts)
    for kind in sorted(kinds, key=lambda one: -len(verdicts[sizes[0], one])):
        tasks, runs = len(verdicts[sizes[0], kind]), len(school.shop.runs.get(kind, ()))
        right = "".join(f"{verdicts[size, kind].count('right'):>6}" for size in sizes)
        first, *more = kind
        print(f"{first:<60}{runs:>4}{tasks:>7}{right}")
        for tool in more:
            print(f"  + {tool}")


def _row(school: School, task: Task, size: str) -> str:
    own = len(school.shop.material(task.kind, SIZES[size]).own)
    return f"{size:>3} | {'own kind' if own else 'composed'}"


def _figures(tally: Report, size: str, tasks: int) -> Iterator[Figure]:
    rows = [f"{size:>3} | {how}" for how in ("own kind", "composed")]
    right = tally.count("right", rows=rows)
    what = f"retail, learnt from {size}"
    yield Figure(
        f"{what}: right", right, "of", tasks, "", right / max(tasks, 1), BARS.get(size), True
    )
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial", rows=rows), tasks)
