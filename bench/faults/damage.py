"""Other faults: full disks, read-only places, clocks that step, damaged files, many threads."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.faults.act import ACTS, Act, Append, Verdict
from em import Memory
from em.errors import EmError

Found = tuple[Sequence[str], Verdict]
COPIES = 40
"""Copies of a file that are damaged, each in another place."""


def _ended(act: Act, turn: int, fault: str) -> tuple[list[str], str]:
    """Let an act end by itself; return what it acknowledged, and what is wrong with its end."""
    from bench.faults.table import Child

    lines, code, complaint = Child(act, turn, fault).end()
    wrong = "" if code in (0, 3) else f"{act.name}: exit code {code}: {complaint[-300:]}"
    return lines, wrong


def sum_of(verdicts: Sequence[Verdict], wrong: Sequence[str]) -> Verdict:
    """Return one verdict for several; each text in `wrong` counts as something lost."""
    said = "; ".join(filter(None, [*(one.said for one in verdicts), *wrong]))
    lost = sum(one.lost for one in verdicts) + sum(map(bool, wrong))
    return Verdict(lost, sum(one.doubled for one in verdicts), said)


def full(store: str, make: Any, _draw: random.Random) -> Found:
    """No file may grow any more: an error of em, and everything acknowledged is there."""
    if store != "SQLite":
        return [], Verdict()
    found, verdicts, wrong = [], [], []
    for name in ("append", "import", "run", "workflow", "checkpoint", "compile"):
        act = ACTS[name](*make(store))
        act.prepare()
        lines, problem = _ended(act, 0, "full")
        found += lines
        wrong.append(problem)
        verdicts.append(act.judge(lines))
    return found, sum_of(verdicts, wrong)


def read_only(store: str, make: Any, _draw: random.Random) -> Found:
    """Nothing can be written: an error of em, and what was there stays."""
    act = Append(*make(store))
    with Memory(act.db) as memory:
        memory.observe("ana", "0-0 0/1")
    if store == "SQLite":
        for path in act.folder.glob("em.db*"):
            path.chmod(0o444)
        act.folder.chmod(0o555)
    else:
        _forbid_writing(act.db)
    lines, problem = _ended(act, 1, "read-only")
    act.folder.chmod(0o755)
    for path in act.folder.glob("em.db*"):
        path.chmod(0o644)
    written = [f"{line} was written" for line in lines]
    _forbid_writing(act.db, "off") if store != "SQLite" else None
    return ["0-0"], sum_of([act.judge(["0-0"])], [problem, *written])


def _forbid_writing(db: str, how: str = "on") -> None:
    import psycopg

    with psycopg.connect(db, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {how}")


def clock(store: str, make: Any, draw: random.Random) -> Found:
    """The clock steps back and forth by days: the order of the log and of runs does not change."""
    from bench.faults.table import Child, verified

    found, verdicts, wrong = [], [], []
    for name in ("append", "run", "checkpoint"):
        act = ACTS[name](*make(store))
        act.prepare()
        lines: list[str] = []
        for turn in range(3):
            lines += Child(act, turn, "clock").kill_after(draw.uniform(0.2, 0.6))
            act.settle()
        found += lines
        verdicts.append(act.judge(lines))
        wrong.append(verified(act.db))
    return found, sum_of(verdicts, wrong)


def threads(store: str, make: Any, _draw: random.Random) -> Found:
    """Two processes with 32 threads each write at once."""
    from bench.faults.table import Child, verified

    act = Append(*make(store))
    children = [Child(act, turn, "threads") for turn in (1, 2)]
    ended = [child.end() for child in children]
    lines = [line for one, _, _ in ended for line in one]
    wrong = [said[-300:] for _, code, said in ended if code]
    expected = 2 * 32 * 4
    if len(lines) != expected:
        wrong.append(f"{len(lines)} of {expected} batches were acknowledged")
    return lines, sum_of([act.judge(lines)], [*wrong, verified(act.db)])


def damaged(store: str, make: Any, draw: random.Random) -> Found:
    """Bytes are overwritten, or the end is cut off: em says so, or reads what it wrote."""
    if store != "SQLite":
        return [], Verdict()
    folder, db = make(store)
    with Memory(db) as memory:
        for number in range(200):
            memory.observe(f"s{number % 7}", f"text {number} {'x' * (number % 50)}")
        good = [(event.seq, event.body) for event in memory.log.read()]
    for beside in ("-wal", "-shm"):
        Path(db + beside).unlink(missing_ok=True)
    wrong = [_judged_copy(Path(db), folder / f"{n}.db", good, draw) for n in range(COPIES)]
    return [str(seq) for seq, _ in good], sum_of([], wrong)


def _judged_copy(path: Path, copy: Path, good: Sequence[Any], draw: random.Random) -> str:
    """Damage a copy; return what is wrong with what em says of it."""
    shutil.copy(path, copy)
    size = copy.stat().st_size
    at, length = draw.randrange(size), draw.choice((1, 16, 512, 4096))
    with copy.open("r+b") as file:
        if draw.random() < 0.2:
            file.truncate(at)
        else:
            file.seek(at)
            file.write(bytes(draw.randrange(256) for _ in range(min(length, size - at))))
    place = f"{length} bytes at {at} of {size}"
    try:
        with Memory(copy) as memory:
            is_told = not memory.log.verify().ok or bool(memory.store.health(deep=True).problems)
            there = [(event.seq, event.body) for event in memory.log.read()]
    except EmError:
        return ""
    except Exception as error:  # noqa: BLE001 - a traceback is what must not be
        return f"{place}: {type(error).__name__}: {error}"
    return "" if there == good or is_told else f"{place}: changed, and nobody says so"


FAULTS: dict[str, Callable[[str, Any, random.Random], Found]] = {
    "full disk": full,
    "read-only": read_only,
    "clock steps": clock,
    "damaged files": damaged,
    "threads": threads,
}
