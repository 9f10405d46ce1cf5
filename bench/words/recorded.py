"""Recorded requests of a kind, in mixed wordings: the same again, and the same with other values.

Each kind is recorded 1, 3, 5 and 12 times: a request, and the write that an agent made.
A fresh request counts where its wording was recorded, apart where the wording was recorded only
with lists of another length. Right is the recorded write, made without a model and without a
question; any other write is wrong. A value that the routine takes from nobody, given by name too,
is counted apart: it is unlike all recorded ones.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import em
from bench.figure import Figure
from bench.words.cases import Case, domains
from em.values.canonical import same

SIZES = (1, 3, 5, 12)
WORDINGS = 4


def mixed(cases: list[Case]) -> list[tuple[int, Case]]:
    """Return cases with the number of their wording, wordings in turns."""
    each = len(cases) // WORDINGS
    return [(one, cases[one * each + turn]) for turn in range(each) for one in range(WORDINGS)]


def results(kind: Case, size: int) -> Iterator[tuple[str, str, Case, Any]]:
    """Yield what became of each request after `size` recordings: which sort, right or how not."""
    recorded = mixed(kind["recorded"])[:size]
    wordings = {wording for wording, _ in recorded}
    forms = {_form(wording, case) for wording, case in recorded}
    fresh = [one for one in mixed(kind["fresh"]) if one[0] in wordings]
    alike = [case for wording, case in fresh if _form(wording, case) in forms]
    longer = [case for wording, case in fresh if _form(wording, case) not in forms]
    with tempfile.TemporaryDirectory() as folder, em.Memory(Path(folder) / "em.db") as memory:
        written: list[Any] = []
        write = _tool(kind, written)
        for _, case in recorded:
            with memory.record(kind["name"], {"request": case["request"]}):
                write(**case["inputs"])
        ids = [one.id for one in memory.traces()]
        memory.compile(ids, name=kind["name"], force=True)
        asked = {
            "same": [one for _, one in recorded],
            "other values": alike,
            "other lengths": longer,
        }
        for sort, cases in asked.items():
            for case in cases:
                written.clear()
                run = memory.run(kind["name"], {"request": case["request"]}, [write])
                if not written:
                    memory.run(kind["name"], case["inputs"], [write])
                    yield sort, "asked" if written else "unlike", case, run.reason
                elif same(written, [case["inputs"]]):
                    yield sort, "right", case, None
                else:
                    yield sort, "wrong", case, written[0]


def _form(wording: int, case: Case) -> tuple[int, ...]:
    """Return what a wording is with: the lengths of its lists."""
    return wording, *(len(one) for one in case["inputs"].values() if isinstance(one, list))


def _tool(kind: Case, written: list[Any]) -> Callable[..., Any]:
    def write(**arguments: Any) -> dict[str, Any]:
        written.append(arguments)
        return {"done": True}

    return em.tool(write, name=kind["name"], effect="write")


def figures() -> Iterator[Figure]:
    for size in SIZES:
        counted: Counter[tuple[str, str]] = Counter()
        for domain in domains():
            for kind in domain["kinds"]:
                counted.update((sort, how) for sort, how, *_ in results(kind, size))
        for sort, bar in (("same", 1.0), ("other values", 1.0), ("other lengths", None)):
            right, wrong = counted[sort, "right"], counted[sort, "wrong"]
            count, unlike = right + wrong + counted[sort, "asked"], counted[sort, "unlike"]
            beside = f"{wrong} wrong, {unlike} more with a value unlike the recorded ones"
            what = f"recorded requests, {sort}, {size} recordings ({beside})"
            yield Figure(what, right, "requests", count, "", right / max(count, 1), bar, True)
