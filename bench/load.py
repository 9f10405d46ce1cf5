"""`python -m bench load`: a load for your own hardware, on a database or on a running service.

It fills subjects with records and sentences, checkpoints them, and then mixes the things that
agents do. Ctrl-C prints what was measured so far.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import httpx

from em import Memory
from em.errors import EmError
from em.runner.package import files_in, keep_routine

MIX = "observe=40,recall=20,state=20,ask=10,run=10"
BATCH = 500
"""Subjects that are filled in one go."""
TOWNS = ("Porto", "Oslo", "Lima", "Quito", "Riga", "Bergen", "Turin", "Ghent")
EXAMPLE = """\
examples:
  python -m bench load --subjects 1000 --seconds 20
  python -m bench load --subjects 100000 --db postgresql://localhost/em --threads 32
  EM_API_TOKEN=… python -m bench load --subjects 1000 --url http://127.0.0.1:8000 --seconds 600

The database is filled with made-up subjects (load-000000 …): use one of its own.
"""
ROUTINE = """\
version: "1"
name: load_routine
steps:
  - {id: look, type: tool.call, tool: look, effect: read, args: {n: "{{ n }}"}}
"""


class Options(NamedTuple):
    """What to do, and where."""

    subjects: int
    events: int
    seconds: float
    threads: int
    db: str
    url: str
    mix: Mapping[str, int]
    fill: bool


def read_options(words: Sequence[str]) -> Options:
    """Read the words after `python -m bench load`."""
    parser = argparse.ArgumentParser(
        prog="python -m bench load",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--subjects", type=int, default=1_000, help="how many to fill and to use")
    parser.add_argument("--events", type=int, default=20, help="of each subject, to begin with")
    parser.add_argument("--seconds", type=float, default=60, help="of the mix")
    parser.add_argument("--threads", type=int, default=16, help="callers at a time")
    parser.add_argument("--mix", default=MIX, help=f"shares of the calls [{MIX}]")
    parser.add_argument("--no-fill", action="store_true", help="the subjects are there already")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--db", default="", help="a file or postgresql:// address [a new file]")
    where.add_argument("--url", default="", help="of a service; its token is in EM_API_TOKEN")
    found = parser.parse_args(words)
    shares = {
        name: int(share) for name, _, share in (p.partition("=") for p in found.mix.split(","))
    }
    unknown = shares.keys() - {part.partition("=")[0] for part in MIX.split(",")}
    if unknown:
        parser.error(
            f"--mix: no call {min(unknown)!r}; there are: observe, recall, state, ask, run"
        )
    return Options(
        found.subjects, found.events, found.seconds, found.threads, found.db, found.url, shares,
        not found.no_fill,
    )  # fmt: skip


def name_of(number: int) -> str:
    return f"load-{number:06d}"


def observations(number: int, events: int, draw: random.Random) -> Iterator[dict[str, object]]:
    """What a subject begins with: trips as records, and every tenth a sentence."""
    for n in range(events):
        town = draw.choice(TOWNS)
        if n % 10 == 9:
            yield {"subject": name_of(number), "text": f"I spent the week in {town}, trip {n}."}
        else:
            record = {"id": n, "town": town, "km": draw.randrange(1_000)}
            yield {"subject": name_of(number), "type": "Trip", "record": record}


class Target(Protocol):
    """Where the calls go."""

    def fill(self, options: Options) -> None:
        """Fill the subjects, and checkpoint them."""

    def calls(self) -> Mapping[str, Callable[[int, random.Random], None]]:
        """The calls of the mix, each with a subject's number."""


class Database:
    """A memory, called in this process."""

    def __init__(self, db: str) -> None:
        self._memory = Memory(db)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "routine.yaml").write_text(ROUTINE)
            keep_routine(self._memory.store, files_in(Path(folder)))

    def fill(self, options: Options) -> None:
        draw = random.Random(1)
        for start in range(0, options.subjects, BATCH):
            part = range(start, min(start + BATCH, options.subjects))
            self._memory.observe_many(
                one for number in part for one in observations(number, options.events, draw)
            )
            self._memory.checkpoint_many([name_of(number) for number in part], processes=1)
            print(f"\r    filled {part.stop:,} of {options.subjects:,}", end="", flush=True)
        print()

    def calls(self) -> Mapping[str, Callable[[int, random.Random], None]]:
        memory = self._memory

        def observe(number: int, draw: random.Random) -> None:
            memory.observe(name_of(number), {"id": new_number(draw)}, type="Trip")

        def recall(number: int, draw: random.Random) -> None:
            memory.recall(f"the week in {draw.choice(TOWNS)}", subject=name_of(number))

        def state(number: int, _draw: random.Random) -> None:
            memory.state(name_of(number))

        def ask(number: int, _draw: random.Random) -> None:
            memory.ask(name_of(number), code="len(state.trips)")

        def run(_number: int, draw: random.Random) -> None:
            memory.run("load_routine", {"n": draw.randrange(100)}, {"look": look})

        return {"observe": observe, "recall": recall, "state": state, "ask": ask, "run": run}


def look(n: int) -> int:
    """Return what was given: the tool of the routine."""
    return n


def new_number(draw: random.Random) -> int:
    return draw.randrange(100, 1_000_000_000)


class Service:
    """A service, called over HTTP: one connection for each thread."""

    def __init__(self, url: str) -> None:
        token = os.environ.get("EM_API_TOKEN", "")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url = url
        self._own = threading.local()

    @property
    def _http(self) -> httpx.Client:
        if not hasattr(self._own, "client"):
            self._own.client = httpx.Client(
                base_url=self._url, headers=self._headers, timeout=60, trust_env=False
            )
        client: httpx.Client = self._own.client
        return client

    def _send(self, method: str, path: str, **more: object) -> None:
        answer = self._http.request(method, path, **more)  # type: ignore[arg-type]
        answer.raise_for_status()

    def fill(self, options: Options) -> None:
        done = 0

        def one(number: int) -> None:
            nonlocal done
            draw = random.Random(number)
            for body in observations(number, options.events, draw):
                self._send("POST", "/observations", json=body)
            self._send("POST", "/checkpoint", json={"subject": name_of(number)})
            done += 1
            if done % 100 == 0:
                print(f"\r    filled {done:,} of {options.subjects:,}", end="", flush=True)

        with ThreadPoolExecutor(options.threads) as pool:
            list(pool.map(one, range(options.subjects)))
        print()

    def calls(self) -> Mapping[str, Callable[[int, random.Random], None]]:
        def observe(number: int, draw: random.Random) -> None:
            body = {"subject": name_of(number), "type": "Trip", "record": {"id": new_number(draw)}}
            self._send("POST", "/observations", json=body)

        def recall(number: int, draw: random.Random) -> None:
            asked = {"query": f"the week in {draw.choice(TOWNS)}", "subject": name_of(number)}
            self._send("GET", "/recall", params=asked)

        def state(number: int, _draw: random.Random) -> None:
            self._send("GET", "/state", params={"subject": name_of(number)})

        def ask(number: int, _draw: random.Random) -> None:
            asked = {"subject": name_of(number), "question": "How many trips are there?"}
            self._send("POST", "/ask", json=asked)

        def run(number: int, _draw: random.Random) -> None:
            # The service has no routine of ours: a job is the run that it can queue for anybody.
            body = {"kind": "checkpoint", "subjects": [name_of(number)]}
            self._send("POST", "/jobs", json=body)

        return {"observe": observe, "recall": recall, "state": state, "ask": ask, "run": run}


class Measured:
    """Durations of calls, and their errors, by name. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[str, list[float]] = defaultdict(list)
        self._errors: Counter[str] = Counter()
        self._began = time.monotonic()

    def note(self, name: str, seconds: float, error: str = "") -> None:
        with self._lock:
            if error:
                self._errors[f"{name}: {error}"] += 1
            else:
                self._times[name].append(seconds)

    @property
    def failed(self) -> bool:
        """Whether a call failed."""
        return bool(self._errors)

    def show(self) -> None:
        """Print a line for each call, and the errors."""
        with self._lock:
            took = time.monotonic() - self._began
            print(f"\n{'call':<10}{'count':>10}{'per s':>10}", end="")
            print("".join(f"{name:>11}" for name in ("p50 ms", "p90 ms", "p99 ms", "max ms")))
            every: list[float] = []
            for name, times in sorted(self._times.items()):
                every += times
                self._line(name, times, took)
            if every:
                self._line("all", every, took)
            for error, count in self._errors.most_common(10):
                print(f"error {count:,}×  {error}")
            print(f"{sum(self._errors.values()):,} errors in {took:,.1f} s", flush=True)

    def _line(self, name: str, times: list[float], took: float) -> None:
        ordered = sorted(times)
        shown = [ordered[min(len(ordered) - 1, int(len(ordered) * p))] for p in (0.5, 0.9, 0.99)]
        cells = "".join(f"{1e3 * one:>11,.1f}" for one in (*shown, ordered[-1]))
        print(f"{name:<10}{len(times):>10,}{len(times) / took:>10,.0f}{cells}")


def mix(target: Target, options: Options, measured: Measured, stop: threading.Event) -> None:
    """Make calls in all threads until the time is over, or `stop` is set."""
    calls = target.calls()
    names, weights = [*options.mix], [*options.mix.values()]
    end = time.monotonic() + options.seconds

    def work(thread: int) -> None:
        draw = random.Random(thread)
        while time.monotonic() < end and not stop.is_set():
            (name,) = draw.choices(names, weights)
            start = time.perf_counter()
            error = ""
            try:
                calls[name](draw.randrange(options.subjects), draw)
            except EmError as problem:
                error = problem.code
            except httpx.HTTPStatusError as problem:
                error = f"HTTP {problem.response.status_code}"
            except httpx.HTTPError as problem:
                error = type(problem).__name__
            measured.note(name, time.perf_counter() - start, error)

    threads = [
        threading.Thread(target=work, args=(n,), daemon=True) for n in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)


def main(words: Sequence[str]) -> int:
    """Fill, mix, print. The exit code is 1 if a call failed."""
    options = read_options(words)
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or str(Path(folder) / "em.db")
        target: Target = Service(options.url) if options.url else Database(db)
        print(f"{options.subjects:,} subjects, {options.url or db}", flush=True)
        start, stop = time.monotonic(), threading.Event()
        measured = None
        try:
            if options.fill:
                target.fill(options)
                took = time.monotonic() - start
                rate = options.subjects * options.events / took
                print(f"    {rate:,.0f} observations per second, checkpointed", flush=True)
            measured = Measured()
            mix(target, options, measured, stop)
        except KeyboardInterrupt:
            stop.set()
            print("\nstopped", file=sys.stderr)
        if measured is None:
            print("stopped before the mix: nothing was measured", file=sys.stderr)
            return 130
        measured.show()
    return 1 if measured.failed else 0
