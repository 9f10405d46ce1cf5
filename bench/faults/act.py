"""Acts: the ways in which em writes. A process does each until it is killed, and says what is done.

What it says after a write returned is acknowledged: it must be there, once, whatever happens then.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from em import Memory

ROOT = Path(__file__).parent.parent.parent
EARLY = 0.3
"""The share of processes that may be killed before they acknowledged anything."""


class Verdict(NamedTuple):
    """What became of what was acknowledged; `said` explains what is wrong."""

    lost: int = 0
    doubled: int = 0
    said: str = ""


class Act:
    """One way to write. `work` runs in a process that is killed, the rest in the bench."""

    name: ClassVar[str]
    longest: ClassVar[float] = 0.25
    """Seconds within which a process is killed."""

    def __init__(self, folder: Path, db: str) -> None:
        self.folder, self.db = folder, db

    def prepare(self) -> None:
        """Make what the processes find."""

    def work(self, turn: int) -> Iterator[str]:
        """Write on and on; yield what is acknowledged."""
        raise NotImplementedError

    def settle(self) -> None:
        """Go on with what a killed process left, as a user would."""

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        """Look at what is there."""
        raise NotImplementedError


class Append(Act):
    """`observe_many`: batches that are there as a whole, or not at all."""

    name = "append"

    def work(self, turn: int) -> Iterator[str]:
        draw = random.Random(turn)
        with Memory(self.db) as memory:
            for number in range(100_000):
                size = draw.randint(1, 40)
                texts = [f"{turn}-{number} {part}/{size}" for part in range(size)]
                memory.observe_many((f"s{turn}", text) for text in texts)
                yield f"{turn}-{number}"

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        with Memory(self.db) as memory:
            texts = Counter(str((event.body or {}).get("text")) for event in memory.log.read())
        there: Counter[str] = Counter()
        sizes: dict[str, int] = {}
        for text, count in texts.items():
            name, _, rest = text.partition(" ")
            there[name] += count
            sizes[name] = int(rest.partition("/")[2])
        lost = [name for name in acknowledged if there[name] < sizes.get(name, 1)]
        halves = [name for name in there if there[name] < sizes[name]]
        doubled = sum(count - 1 for count in texts.values())
        return Verdict(len({*lost, *halves}), doubled, _named("batches", [*lost, *halves]))


class Import(Act):
    """`import_files`: sessions of Claude Code, each acknowledged when its file was read."""

    name = "import"
    calls = 30

    def work(self, turn: int) -> Iterator[str]:
        with Memory(self.db) as memory:
            for number in range(1_000):
                path = self.folder / f"{turn}-{number}.jsonl"
                half = path.with_suffix(".half")  # killed here, the file is not em's to save
                half.write_bytes(_session(path.stem, self.calls))
                half.rename(path)
                memory.import_files(path)
                yield path.stem

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        with Memory(self.db) as memory:
            found = _calls_by_session(memory)
            lost = [f"{name} as acknowledged" for name in acknowledged if found[name] != self.calls]
            for path in self.folder.glob("*.half"):
                path.unlink()
            memory.import_files(self.folder)  # what was not read to its end
            found = _calls_by_session(memory)
        files = [path.stem for path in self.folder.glob("*.jsonl")]
        lost += [name for name in files if found[name] < self.calls]
        doubled = sum(max(0, count - self.calls) for count in found.values())
        return Verdict(len(set(lost)), doubled, _named("sessions", lost))


def _session(name: str, calls: int) -> bytes:
    sys.path.append(str(ROOT / "tests" / "traces"))
    from sessions import ClaudeCode, lines

    agent = ClaudeCode(name)
    rows = [agent.user(f"do {name}")]
    for number in range(calls):
        rows += [agent.calls(f"c{number}", "look", n=number), agent.result(f"c{number}", "x" * 500)]
    return lines(*rows)


def _calls_by_session(memory: Memory) -> Counter[str]:
    found: Counter[str] = Counter()
    for kept in memory.traces():
        found[str(kept.trace.app.get("session"))] += sum(
            call.result is not None for call in kept.trace.calls
        )
    return found


class World:
    """Tools with effects: one that knows its keys, and one that acts each time it is called."""

    def __init__(self, folder: Path) -> None:
        self._keys, self._lines = folder / "effects", folder / "effects.txt"
        self._keys.mkdir(exist_ok=True)

    def keyed(self, n: str, step: int, idempotency_key: str) -> str:
        """Act once for each key."""
        with suppress(FileExistsError):
            os.close(os.open(self._keys / idempotency_key, os.O_CREAT | os.O_EXCL))
        return f"{n}{step}"

    def plain(self, n: str, step: int) -> str:
        """Act each time: an appended line is whole or not there."""
        file = os.open(self._lines, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{n}-{step}\n".encode())
        os.close(file)
        return f"{n}{step}"

    def tools(self) -> dict[str, Any]:
        """Return the tools by name."""
        return {"keyed": self.keyed, "plain": self.plain}

    def made(self) -> Counter[str]:
        """Return how often each effect was made."""
        lines = self._lines.read_text().split() if self._lines.exists() else []
        return Counter([*lines, *os.listdir(self._keys)])


STEPS = 6
ANSWERS = 50
"""Questions about calls of unknown outcome that one run may have."""


class Run(Act):
    """`memory.run`: effects with and without keys; a killed run is resumed from its journal."""

    name = "run"
    longest = 0.1

    def __init__(self, folder: Path, db: str) -> None:
        super().__init__(folder, db)
        self.world = World(folder)

    def prepare(self) -> None:
        steps = "".join(
            f"  - {{id: s{n}, type: tool.call, tool: {_tool(n)}, save_as: r{n},"
            f' args: {{n: "{{{{ n }}}}", step: {n}}}{_key(n, "n")}}}\n'
            for n in range(STEPS)
        )
        (self.folder / "routine").mkdir()
        (self.folder / "routine" / "routine.yaml").write_text(
            "name: six\ntools: [{name: keyed, effect: write}, {name: plain, effect: write}]\n"
            f"steps:\n{steps}"
        )

    def work(self, turn: int) -> Iterator[str]:
        with Memory(self.db) as memory:
            for number in range(10_000):
                name = f"r{turn}x{number}"
                result = self.run(memory, name)
                assert result.status == "ok", result
                yield name

    def run(self, memory: Memory, name: str) -> Any:
        """Start a run of this name."""
        routine = self.folder / "routine"
        return memory.run(routine, {"n": name}, self.world.tools(), run_id=name)

    def resume(self, memory: Memory, name: str, answers: Any) -> Any:
        """Go on with a run."""
        return memory.resume(name, self.world.tools(), answers=answers)

    def runs(self, memory: Memory) -> dict[str, str]:
        """Return the status of every run."""
        from em.runner.history import read_run, run_query

        names = [one.id for one in memory.store.summaries.read(run_query(self.kind))]
        return {name: read_run(memory.store, name, self.kind).status for name in names}

    kind: ClassVar[Any] = "routine"

    def settle(self) -> None:
        with Memory(self.db) as memory:
            for name, status in self.runs(memory).items():
                if status != "ok":
                    self._finish(memory, name)

    def _finish(self, memory: Memory, name: str) -> None:
        """Resume a run; for a call of unknown outcome look whether it happened, and say so."""
        answers: dict[str, Any] = {}
        for _ in range(ANSWERS):
            result = self.resume(memory, name, answers)
            if result.status != "needs_input":
                return
            asked = result.pending_prompt.step_id
            step = int(asked.strip("s?"))
            happened = self.world.made()[f"{name}-{step}"] > 0
            answers[asked] = {"happened": happened, "result": f"{name}{step}" if happened else None}

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        self.settle()
        made = self.world.made()
        with Memory(self.db) as memory:
            runs = self.runs(memory)
        ended = {name for name, status in runs.items() if status == "ok"}
        effects = {f"{name}-{step}" for name in runs for step in range(STEPS)}
        lost = [*({*acknowledged, *runs} - ended), *(effects - made.keys())]
        strange = made.keys() - effects
        doubled = sum(count - 1 for count in made.values()) + len(strange)
        return Verdict(len(lost), doubled, _named("runs and effects", [*lost, *strange]))


def _tool(step: int) -> str:
    return "keyed" if step % 2 else "plain"


def _key(step: int, name: str) -> str:
    return f', idempotency_key: "{{{{ {name} }}}}-{step}"' if _tool(step) == "keyed" else ""


class Workflow(Run):
    """`workflow run`: the same effects, started again under the same id."""

    name = "workflow"
    kind = "workflow"

    def prepare(self) -> None:
        steps = "".join(
            f"      - {{name: s{n}, tool: {_tool(n)}, effect: write,"
            f' inputs: {{n: "{{{{ params.n }}}}", step: {n}}}{_key(n, "params.n")}}}\n'
            for n in range(STEPS)
        )
        text = f"workflows:\n  six:\n    params: [n]\n    steps:\n{steps}"
        (self.folder / "flow.yaml").write_text(text)

    def run(self, memory: Memory, name: str) -> Any:
        return self.resume(memory, name, None)

    def resume(self, memory: Memory, name: str, answers: Any) -> Any:
        flows = memory.workflows(self.folder / "flow.yaml", self.world.tools())
        return flows.start("six", {"n": name}, run_id=name, answers=answers or {})


class Compile(Act):
    """`compile`: a new version of a routine each time."""

    name = "compile"
    longest = 0.5

    def work(self, turn: int) -> Iterator[str]:
        with Memory(self.db) as memory:
            call = {"type": "tool_call", "tool": "look", "args": {"a": "b7"}, "result": {"c": "d9"}}
            goal = {"goal": f"look at b7 for {turn}"}
            trace = memory.add_trace({"mission": goal, "outcome": "success", "events": [call]})
            for _ in range(1_000):
                yield memory.compile(trace, name=f"c{turn}").ref

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        from em.runner.package import kept_routines, routine_of

        with Memory(self.db) as memory:
            there = Counter(routine_of(one).ref for one in kept_routines(memory.store))
        lost = [ref for ref in acknowledged if ref not in there]
        return Verdict(len(lost), sum(n - 1 for n in there.values()), _named("versions", lost))


class Checkpoint(Act):
    """`observe` and `checkpoint` in turns: the state has every record once."""

    name = "checkpoint"
    longest = 0.4

    def work(self, turn: int) -> Iterator[str]:
        with Memory(self.db) as memory:
            for number in range(100_000):
                memory.observe("ana", {"n": f"{turn}-{number}", "day": "2026-05-02"}, type="Thing")
                yield f"{turn}-{number}"
                if number % 10 == 0:
                    memory.checkpoint("ana")

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        with Memory(self.db) as memory:
            there = Counter(str(thing.n) for thing in memory.checkpoint("ana").things)
        lost = [name for name in acknowledged if name not in there]
        return Verdict(len(lost), sum(n - 1 for n in there.values()), _named("records", lost))


class Forget(Act):
    """`forget`: what is acknowledged is gone from every event and every byte; others stay."""

    name = "forget"
    longest = 0.5

    def work(self, turn: int) -> Iterator[str]:
        with Memory(self.db) as memory:
            for number in range(10_000):
                name = f"{turn}x{number}x"
                memory.observe_many((f"s{name}", f"quokka{name} {part}") for part in range(3))
                memory.observe("ben", f"kept {name}")
                yield f"kept {name}"
                erased = memory.forget(subject=f"s{name}", reason="asked")
                if erased.scrubbed:
                    yield f"quokka{name}"

    def judge(self, acknowledged: Sequence[str]) -> Verdict:
        with Memory(self.db) as memory:
            texts = Counter(str((event.body or {}).get("text")) for event in memory.log.read())
        everything = b"".join(path.read_bytes() for path in self.folder.glob("em.db*"))
        kept = {name for name in acknowledged if name.startswith("kept")}
        lost = [name for name in kept if name not in texts]
        still = [
            name
            for name in {*acknowledged} - kept
            if name.encode() in everything or any(text.startswith(f"{name} ") for text in texts)
        ]
        doubled = sum(n - 1 for text, n in texts.items() if text != "None")
        return Verdict(len(lost) + len(still), doubled, _named("texts", [*lost, *still]))


def _named(what: str, names: Sequence[str]) -> str:
    return f"{what}: {', '.join([*map(str, names)][:5])}" if names else ""


ACTS: dict[str, type[Act]] = {
    act.name: act for act in (Append, Import, Run, Workflow, Compile, Checkpoint, Forget)
}
