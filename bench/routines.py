"""Compiling the recorded support runs, and running routines beside plain Python."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure, in_turns, seconds
from bench.scale import journal
from bench.scale.journal import STEPS

DATA = Path(os.environ.get("EM_BENCH_DATA", "../shared/data"))


def compile_retail() -> Iterator[Figure]:
    from em.compiler.calls import Later
    from em.compiler.compile_trace import compile_trace
    from em.errors import EmError
    from em.traces.transcripts import read_traces

    files = sorted((DATA / "tau_retail").glob("*.jsonl"))
    if not files:
        print(f"no data in {DATA / 'tau_retail'}: set EM_BENCH_DATA; this bench is passed over")
        return
    how: Counter[str] = Counter()
    times: list[float] = []
    total = compiled = left = 0
    for file in files:
        for trace in (kept.trace for kept in read_traces(file.read_bytes(), file.name)):
            if not trace.calls:
                continue
            total += 1
            start = time.perf_counter()
            try:
                draft = compile_trace(trace, allow_failed=True)
            except EmError as error:
                print(f"not compiled: {error}")
                continue
            times.append(time.perf_counter() - start)
            compiled += 1
            later = Later(draft.calls)
            left += sum(
                draft.verdicts[call.index].keep
                and call.failed
                and later.replacing(call) is not None
                for call in draft.calls
            )
            writes = {c.index for c in draft.calls if c.effect == "write" and not c.failed}
            how.update(found.how for found in draft.explained if found.call in writes)
    leaves = how.total()
    wired = leaves - how["constant"]
    print(
        f"{leaves:,} argument leaves of successful writes: "
        + ", ".join(f"{name} {count}" for name, count in how.most_common())
    )
    print(f"wired by a bare index: {how['index']} of {leaves:,} ({how['index'] / leaves:.1%})")
    yield _share("traces compiled and verified by replay", compiled, total, 1.0)
    yield Figure(
        "failed calls left that a later call made good",
        left,
        "of all runs",
        total,
        "",
        left,
        0,
        False,
    )
    yield _share("leaves of successful writes wired (in part: 'parts')", wired, leaves, 0.95)
    milliseconds = median(times) * 1e3
    yield Figure(
        "median compile time, verification included",
        milliseconds,
        "",
        20,
        "ms",
        milliseconds,
        20,
        False,
    )


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
            draft = compile_trace(trace, allow_failed=True)
            with tempfile.TemporaryDirectory() as name:
                write_package(draft, Path(name))
                package = Package(name)
                script: dict[str, Any] = {"__name__": "script"}
                exec(compile(export_python(package), "script", "exec"), script)
                theirs, ours = _Replayed(draft.recording), _Replayed(draft.recording)
                output = script["run"](draft.input, ours.tools, draft.answers)
                ran = run_routine(package, draft.input, theirs.tools, answers=draft.answers)
                equal += identical(output, ran.output) and identical(ours.calls, theirs.calls)
    if total:
        yield _share("retail routines whose exported script does the same", equal, total, 1.0)


class _Replayed:
    """Tools that answer from a recording, and remember their calls."""

    def __init__(self, recording: Any) -> None:
        self.calls: list[Any] = []
        self._left = iter(recording)
        self.tools = {item.name: self._tool(item.name) for item in recording}

    def _tool(self, name: str) -> Any:
        def call(**args: Any) -> Any:
            self.calls.append([name, args])
            return next(self._left).result

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
