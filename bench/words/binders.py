"""How well words become inputs, end to end: recordings, compiled routine, request, model, write.

The headline is what a careful model reaches through what recordings taught (`bench.words.taught`).
Other models say that everything fits and agree to every plan. One that invents gives the value of
another request for an input; one that swaps gives an input the value of another input. The careless
one gives the values that its author wrote for a model that does not look: what a trap asks for
can't be seen by values, so the figure lists them. A second question, answered with care, is what
stops those; it takes one call more.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.words.cases import Case, domains
from bench.words.taught import NO, YES, Taught, grouped, taught
from em.values.canonical import same
from em.values.json_schema import misfit

SIZES = (3, 5, 12)


class Outcome(NamedTuple):
    """What became of natural wordings: how many, and why the others were handed over."""

    counts: Counter[str]
    refused: list[tuple[str, str]]


def figures() -> Iterator[Figure]:
    kinds = [kind for domain in domains() for kind in domain["kinds"]]
    for declares in (True, False):
        tools = "tools that declare what they take" if declares else "tools that declare nothing"
        for size in SIZES:
            yield _natural(kinds, size, tools, declares=declares)
    with ExitStack() as open_ones:
        known = {
            kind["name"]: open_ones.enter_context(taught(kind, SIZES[-1], declares=True))
            for kind in kinds
        }
        for how, bar in (("invented", 0.0), ("swapped", 0.0), ("of one sort swapped", None)):
            cases = [
                (known[kind["name"]], case, inputs)
                for kind in kinds
                for own, case, inputs in bindings(kind)
                if own == how
            ]
            acted = sum(_acts(one, case["request"], inputs) for one, case, inputs in cases)
            count = len(cases)
            yield Figure(f"{how} values", acted, "cases", count, "", acted / count, bar, False)
        yield from _traps(known)


def outcomes(kind: Case, size: int, *, declares: bool) -> Outcome:
    """Ask for everything that the natural wordings of a kind ask for, through a careful model."""
    counts, refused = Counter[str](), []
    with taught(kind, size, declares=declares) as one:
        for case in kind["natural"]:
            reading = one.reading(case["inputs"])
            lacks = one.lacks(case["inputs"])
            result, asked = one.asked(case["request"], reading, NO if lacks else YES)
            if lacks and not one.written:
                counts["beyond"] += 1
            elif not one.written:
                why = result.reason.message if result.reason else result.status
                refused.append((f"{kind['name']}: {why}", case["request"]))
            elif same(one.written, [case["inputs"]]):
                counts["right"] += 1
                counts["agreed"] += asked > 1
            else:
                counts["wrong"] += 1
    return Outcome(counts, refused)


def _natural(kinds: list[Case], size: int, tools: str, *, declares: bool) -> Figure:
    counts, refused = Counter[str](), []
    for kind in kinds:
        found = outcomes(kind, size, declares=declares)
        counts += found.counts
        refused += found.refused
    every = counts["right"] + counts["wrong"] + len(refused)
    what = (
        f"natural wordings, {size} recordings, {tools} ({counts['wrong']} wrong,"
        f" {counts['agreed']} right after a yes to the plan, {counts['beyond']} more ask for an"
        f" input that no recording had){grouped(refused) if declares else ''}"
    )
    share = counts["right"] / every
    return Figure(
        what, counts["right"], "cases", every, "", share, 0.95 if declares else None, True
    )


def _acts(one: Taught, request: str, inputs: Any) -> bool:
    one.asked(request, one.reading(inputs), YES)
    return bool(one.written)


def _traps(known: dict[str, Taught]) -> Iterator[Figure]:
    traps = [trap for domain in domains() for trap in domain["traps"]]
    acted, calls, stopped = [], 0, 0
    for trap in traps:
        one = known[trap["kind"]]
        reading = {**one.reading(trap["careless"]), "not_expressed": [], "missing": []}
        _, asked = one.asked(trap["request"], reading, YES)
        if one.written:
            acted.append((trap["why"], trap["request"]))
        _, more = one.asked(trap["request"], reading, NO, second_question=True)
        calls, stopped = calls + more - asked, stopped + (not one.written)
    kinds = ", ".join(f"{why} {n}" for why, n in sorted(Counter(why for why, _ in acted).items()))
    what = f"traps that a careless model acts on ({kinds}){grouped(acted)}"
    count = len(traps)
    yield Figure(what, len(acted), "traps", count, "", len(acted) / count, 0.05, False)
    what = f"the same with second_question, answered with care ({calls} calls more)"
    left = count - stopped
    yield Figure(what, left, "traps", count, "", left / count, 0.05, False)


def bindings(kind: Case) -> Iterator[tuple[str, Case, Any]]:
    """Yield inputs for the natural wordings of a kind: invented ones and swapped ones.

    Where a schema allows either value, only the words beside them tell which is which.
    """
    schemas = kind["input_schema"]["properties"]
    for case in kind["natural"]:
        for one, other in combinations(sorted(case["inputs"]), 2):
            first, second = case["inputs"][one], case["inputs"][other]
            crossed = {**case["inputs"], one: second, other: first}
            if misfit(schemas[one], second) or misfit(schemas[other], first):
                yield "swapped", case, crossed
            elif not same(first, second):
                yield "of one sort swapped", case, crossed
    for case, other_case in pairwise(kind["natural"]):
        for name, value in other_case["inputs"].items():
            own = case["inputs"].get(name)
            is_free = "enum" not in schemas[name] and schemas[name].get("type") != "boolean"
            if own is not None and is_free and not same(own, value):
                yield "invented", case, {**case["inputs"], name: value}
