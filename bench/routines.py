"""Exported scripts of the recorded support runs, and routines beside plain Python."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.figure import Figure, in_turns, seconds
from bench.scale import journal
from bench.scale.journal import STEPS
from em.values.canonical import canonical

DATA = Path(os.environ.get("EM_BENCH_DATA", "../shared/data"))


def export_retail() -> Iterator[Figure]:
    """Every retail routine as a script: what it calls and returns, beside the runner."""
    from em.compiler.compile_trace import compile_trace
    from em.compiler.draft import write_package
    from em.compiler.export.script import export_python
    from em.runner.engine import run_routine
    from em.runner.package import Package
    from em.traces.transcripts import read_traces
    from em.values.canonical import identical

    total = equal = 0
    for file in sorted((DATA / "tau_retail").glob("*.jsonl")):
        for trace in (kept.trace for kept in read_traces(file.read_bytes(), file.name)):
            if not trace.calls:
                continue
            total += 1
            draft = compile_trace(trace, allow_failed=True).draft
            with tempfile.TemporaryDirectory() as name:
                write_package(draft, Path(name))
                package = Package(name)
                script: dict[str, Any] = {"__name__": "script"}
                exec(compile(export_python(package), "script", "exec"), script)
                calls = draft.recordings[0].calls
                theirs, ours = _Replayed(calls), _Replayed(calls)
                output = script["run"](draft.input, ours.tools)
                ran = run_routine(package, draft.input, theirs.tools)
                equal += identical(output, ran.output) and identical(ours.calls, theirs.calls)
    if total:
        yield _share("retail routines whose exported script does the same", equal, total, 1.0)


class _Replayed:
    """Tools that answer as recorded for the same arguments, and remember their calls."""

    def __init__(self, recorded: Sequence[Any]) -> None:
        self.calls: list[Any] = []
        self._results = {(one.tool, canonical(one.args)[0]): one.result for one in recorded}
        self.tools = {one.tool: self._tool(one.tool) for one in recorded}

    def _tool(self, name: str) -> Any:
        def call(**args: Any) -> Any:
            self.calls.append([name, args])
            return self._results.get((name, canonical(args)[0]))

        return call


def _share(what: str, part: int, whole: int, at_least: float) -> Figure:
    return Figure(what, part, "of", whole, "", part / whole, at_least, True)


def run_steps() -> Iterator[Figure]:
    from em.runner.engine import run_routine
    from em.runner.package import Package

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal.write_routine(folder)
        package = Package(folder)
        rounds = 50

        def add(x: int, y: int) -> int:
            return x + y

        def ours() -> float:
            def work() -> Any:
                for _ in range(rounds):
                    run_routine(package, {"x0": 0}, {"add": add})

            return seconds(work) / rounds

        def plain() -> float:
            def work() -> None:
                for _ in range(rounds):
                    x = 0
                    for _ in range(STEPS):
                        x = add(x=x, y=1)

            return seconds(work) / rounds

        mine, other, _ = in_turns(ours, plain, rounds=9)
        more = (mine - other) / STEPS * 1e6
        yield Figure(
            f"one step of {STEPS} trivial ones, journal off: microseconds more",
            mine / STEPS * 1e6,
            "a plain loop calling the same function",
            other / STEPS * 1e6,
            "µs",
            more,
            15,
            False,
        )

        for synchronous in ("normal", "full"):
            yield journal.routine_step(synchronous)
        yield _loading((folder / "routine.yaml").read_bytes())


def _loading(text: bytes) -> Figure:
    def load() -> float:
        from em.runner import package

        package._load.cache_clear()
        return seconds(lambda: package.load_program(text, "bench"))

    def yaml_only() -> float:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return seconds(lambda: yaml.load(text, Loader=loader))

    mine, other, ratio = in_turns(load, yaml_only, rounds=15)
    return Figure(
        f"load and check a routine of {STEPS} steps",
        mine * 1e3,
        "PyYAML's C loader",
        other * 1e3,
        "ms",
        ratio,
        5,
        False,
    )
