"""Lessons mined from real transcripts, each with its evidence, and what a reader found them worth.

A person read them: `READ` has the verdict by a hash of the lesson's words, so that it quotes no
data. A lesson whose words changed is unread again.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bench.figure import Figure
from bench.importing import DATA, TRANSCRIPTS

if TYPE_CHECKING:
    from em.heuristics.heuristic import Heuristic, Lesson

Verdict = Literal["useful", "useless", "harmful"]

READ: dict[str, Verdict] = {
    # tau_retail
    "1df4e397a827": "useful",
    "b1bc24d596e9": "useful",
    "64363bacba56": "useful",
}


def mined() -> Iterator[Figure]:
    """Print every lesson that agents would be told, for each data set, and count the verdicts."""
    folders = [
        DATA / "tau_retail",
        *sorted(path for path in TRANSCRIPTS.glob("*") if path.is_dir()),
    ]
    folders = [folder for folder in folders if folder.is_dir()]
    if not folders:
        print(f"no data in {DATA}: set EM_BENCH_DATA; this bench is passed over")
        return
    total: Counter[str] = Counter()
    for folder in folders:
        counted = _in_folder(folder)
        total += counted
        verdicts = ", ".join(f"{counted[name]} {name}" for name in (*VERDICTS, "unread"))
        print(
            f"{folder.name}: {counted['sessions']} sessions, {counted['failures']} failed calls,"
            f" {counted['told']} lessons told ({verdicts}), {counted['waiting']} not told"
        )
    told = total["told"]
    useful = total["useful"]
    yield Figure("lessons told that are unread", total["unread"], "all", told, "", 0, None, False)
    yield Figure("useful lessons", useful, "all", told, "", useful / max(told, 1), None, True)
    yield Figure("useless lessons", total["useless"], "all", told, "", 0, None, False)
    harmful = total["harmful"]
    yield Figure("harmful lessons", harmful, "all", told, "", harmful, 0, False)


VERDICTS: tuple[Verdict, ...] = ("useful", "useless", "harmful")


def _in_folder(folder: Path) -> Counter[str]:
    from em import Memory

    counted: Counter[str] = Counter()
    with Memory(":memory:") as memory:
        memory.import_files(folder)
        traces = memory.traces()
        counted["sessions"] = len(traces)
        counted["failures"] = sum(
            call.error is not None for kept in traces for call in kept.trace.calls
        )
        book = memory.heuristics
        lessons = book.lessons_in([kept.id for kept in traces])
        told = [one for one in book.keep(lessons) if one.lesson.is_told]
        for one in told:
            verdict = READ.get(mark(one.lesson), "unread")
            counted[verdict] += 1
            _show(one, verdict, [each.evidence.note for each in book.evidence(one.id)])
        counted["told"] = len(told)
        counted["waiting"] = len({one.id for one in lessons}) - len(told)
    return counted


def mark(lesson: "Lesson") -> str:
    """A hash of a lesson's words."""
    words = f"{lesson.trigger}\n{lesson.action}"
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _show(one: "Heuristic", verdict: str, notes: list[str]) -> None:
    shown = "; ".join(notes[:2]) + (f"; and {len(notes) - 2} more" if len(notes) > 2 else "")
    print(f"  {mark(one.lesson)} [{verdict}] When {one.lesson.trigger[:200]}")
    print(f"    do: {one.lesson.action}")
    print(f"    because: {one.lesson.analysis} ({shown})")
