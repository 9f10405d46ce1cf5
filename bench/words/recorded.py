"""Recorded requests of a kind, in mixed wordings: the same again, and the same with other values.

Each kind is recorded 1, 3, 5 and 12 times: a request, and the write that an agent made. In kinds
with reads the agent looked things up first, and a fresh request is about records not seen before.
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
from bench.words import desks
from bench.words.cases import Case, domains
from em.runner.package import find_routine, routine_of
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
        write, *reads = tools = _tools(kind, written)
        for _, case in recorded:
            with memory.record(kind["name"], {"request": case["request"]}):
                for name, args, _ in case.get("reads", ()):
                    next(one for one in reads if one.__name__ == name)(**args)
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
                run = memory.run(kind["name"], {"request": case["request"]}, tools)
                if not written:
                    memory.run(kind["name"], _typed(memory, kind["name"], case), tools)
                    yield sort, "asked" if written else "unlike", case, run.reason
                elif same(written, [case["inputs"]]):
                    yield sort, "right", case, None
                else:
                    yield sort, "wrong", case, written[0]


def _typed(memory: em.Memory, name: str, case: Case) -> dict[str, Any]:
    """Return the inputs that a caller gives by name: arguments of the write and of the reads."""
    schema = routine_of(find_routine(memory.store, name)).input_schema or {}
    asked = {name: value for _, args, _ in case.get("reads", ()) for name, value in args.items()}
    known = {**asked, **case["inputs"]}
    return {one: known[one] for one in schema["properties"] if one in known}


def _form(wording: int, case: Case) -> tuple[int, ...]:
    """Return what a wording is with: the lengths of its lists."""
    return wording, *(len(one) for one in case["inputs"].values() if isinstance(one, list))


def _tools(kind: Case, written: list[Any]) -> list[Callable[..., Any]]:
    """Return the tool that writes, and those that look up what the cases have."""

    def write(**arguments: Any) -> dict[str, Any]:
        written.append(arguments)
        return {"done": True}

    found = [em.tool(write, name=kind["name"], effect="write")]
    answers: dict[str, dict[str, Any]] = {}
    for case in [*kind["recorded"], *kind["fresh"]]:
        for name, args, result in case.get("reads", ()):
            answers.setdefault(name, {})[str(args)] = result
    return [*found, *(_read(name, own) for name, own in answers.items())]


def _read(name: str, answers: dict[str, Any]) -> Callable[..., Any]:
    def read(**arguments: Any) -> Any:
        return answers.get(str(arguments))

    read.__name__ = name
    return em.tool(read, name=name, effect="read")


def figures() -> Iterator[Figure]:
    yield from _figures([kind for domain in domains() for kind in domain["kinds"]], "")
    yield from _figures([*desks.kinds()], " of kinds with reads")


def _figures(kinds: list[Case], which: str) -> Iterator[Figure]:
    for size in SIZES:
        counted: Counter[tuple[str, str]] = Counter()
        for kind in kinds:
            counted.update((sort, how) for sort, how, *_ in results(kind, size))
        for sort, bar in (("same", 1.0), ("other values", 1.0), ("other lengths", None)):
            right, wrong = counted[sort, "right"], counted[sort, "wrong"]
            count, unlike = right + wrong + counted[sort, "asked"], counted[sort, "unlike"]
            beside = f"{wrong} wrong, {unlike} more with a value unlike the recorded ones"
            what = f"recorded requests{which}, {sort}, {size} recordings ({beside})"
            yield Figure(what, right, "requests", count, "", right / max(count, 1), bar, True)
