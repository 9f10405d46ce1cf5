"""`python -m bench fuzz`: damaged inputs by the thousand; a traceback or a hang is a failure.

A seed and a number give one input, always the same. The smallest input that still fails is printed.
"""

import argparse
import faulthandler
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.fuzz.mutation import Mutation, smallest
from bench.fuzz.parts import PARTS, Part, folder_of_its_own
from em.errors import EmError

SIZES = {"quick": 2_000, "nightly": 100_000}
SHARES = {"transcripts": 8, "otlp": 2, "http": 3, "routines": 2, "workflows": 1, "expressions": 4,
          "em.yaml": 2, "log": 1, "hooks": 1}  # fmt: skip
"""How inputs are shared out; a routine takes longer than an expression."""
BUSY, LONGEST = 5.0, 60.0
"""Seconds of processor time, and of any time, after which an input counts as a hang."""
AGAIN = 1.0
"""Seconds after which Hang is raised again: Python drops what is raised in a finaliser."""


class Options(NamedTuple):
    """What to run."""

    parts: Sequence[str] = ()
    inputs: int = SIZES["quick"]
    seed: int = 1


class Hang(BaseException):
    """An input took too long. Not an Exception: nothing on the way may catch it."""


class Failure:
    """A way to fail: where, how often, and an input."""

    def __init__(self, part: str, number: int, data: bytes, error: BaseException) -> None:
        self.part, self.number, self.data, self.count = part, number, data, 0
        self.text = "".join(traceback.format_exception(error))


def signature(error: BaseException) -> str:
    """Return what tells one failure from another: its kind and the innermost line of em."""
    text = str(error) if type(error).__name__ == "ServerError" else ""
    lines = text.splitlines() or "".join(traceback.format_exception(error)).splitlines()
    ours = [line.strip() for line in lines if "/src/em/" in line]
    return f"{lines[-1].partition(':')[0] if text else type(error).__name__} {(ours or ['?'])[-1]}"


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hang in what takes too long. Processor time is counted: others share the machine."""
    signal.setitimer(signal.ITIMER_PROF, BUSY, AGAIN)
    signal.setitimer(signal.ITIMER_REAL, LONGEST, AGAIN)
    faulthandler.dump_traceback_later(4 * LONGEST, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def signals() -> Iterator[None]:
    """Let the timers of `limited` raise Hang."""
    numbers = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, _raise_hang) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _raise_hang(_signal: int, _frame: Any) -> None:
    raise Hang


def outcome(part: Part, data: bytes) -> BaseException | None:
    """Let a part take an input; return what it should not have raised."""
    try:
        with limited():
            part.take(data)
    except EmError:
        return None
    except (Exception, Hang) as error:  # noqa: BLE001 - finding these is the point
        return error
    return None


def run_part(part: Part, inputs: int, seed: int) -> dict[str, Failure]:
    """Let a part take its inputs; return the ways in which it failed."""
    found: dict[str, Failure] = {}
    for number in range(inputs):
        data = part.make(Mutation(f"{seed}/{part.name}/{number}"))
        error = outcome(part, data)
        if error is None:
            continue
        kind = signature(error)
        if kind not in found or len(data) < len(found[kind].data):
            count = found[kind].count if kind in found else 0
            found[kind] = Failure(part.name, number, data, error)
            found[kind].count = count
        found[kind].count += 1
        if isinstance(error, Hang):
            part.renew()
    return found


def reduced(part: Part, kind: str, data: bytes) -> bytes:
    """Return the smallest input that fails in the same way in a fresh state."""

    def fails(shorter: bytes) -> bool:
        error = outcome(part, shorter)
        return error is not None and signature(error) == kind

    part.renew()
    return smallest(data, fails) if fails(data) else data


def read_options(words: Sequence[str]) -> Options:
    """Read the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--part", action="append", choices=[*PARTS], help="only this part")
    parser.add_argument(
        "--size",
        default="quick",
        help="quick (2,000 inputs), nightly (100,000), or a number  [quick]",
    )
    parser.add_argument("--seed", type=int, default=1, help="other seeds give other inputs  [1]")
    found = parser.parse_args(words)
    inputs = SIZES[found.size] if found.size in SIZES else int(found.size)
    return Options(found.part or (), inputs, found.seed)


def figures(options: Options | None = None) -> Iterator[Figure]:
    """Run the parts, print each failure, and yield how many inputs failed in each part."""
    chosen = options or Options()
    names = chosen.parts or PARTS
    total = sum(SHARES[name] for name in names)
    for name in names:
        inputs = max(1, chosen.inputs * SHARES[name] // total)
        start = time.perf_counter()
        with signals(), folder_of_its_own() as folder:
            yield _figure(name, folder, inputs, chosen.seed)
        print(f"    ({name}: {inputs:,} inputs in {time.perf_counter() - start:.0f} s)", flush=True)


def _figure(name: str, folder: Path, inputs: int, seed: int) -> Figure:
    part = PARTS[name](folder)
    try:
        found = run_part(part, inputs, seed)
        for kind, failure in found.items():
            shown = reduced(part, kind, failure.data)
            place = f"{name}, seed {seed}, input {failure.number}, {failure.count} times: {kind}"
            print(
                f"\n{failure.text}\n    {place}\n    smallest input: {shown[:2_000]!r}\n",
                flush=True,
            )
    finally:
        part.close()
    failed = sum(one.count for one in found.values())
    return Figure(f"tracebacks and hangs, {name}", failed, "inputs", inputs, "", failed, 0, False)
