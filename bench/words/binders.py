"""How well words become inputs: natural wordings by a careful binder, the same and traps by others.

A binder is a scripted model. The careful one copies the right values. One that invents gives the
value of another request for an input; one that swaps gives an input the value of another input. The
careless one says that every request fits, and gives the values that its author wrote for a model
that does not look: what a trap asks for can't be seen by values, so the figure counts its kinds.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations, pairwise
from typing import Any

from bench.figure import Figure
from bench.words.cases import Case, domains
from em.runner.reading import misread
from em.values.canonical import same
from em.values.json_schema import misfit

AT = datetime(2026, 4, 20, tzinfo=UTC)


def figures() -> Iterator[Figure]:
    right, count = Counter[str](), Counter[str]()
    kinds_acted: Counter[str] = Counter()
    for domain in domains():
        schemas = {kind["name"]: kind["input_schema"] for kind in domain["kinds"]}
        for kind in domain["kinds"]:
            for how, case, inputs in bindings(kind):
                count[how] += 1
                right[how] += not misread(kind["input_schema"], case["request"], inputs, {}, AT)
        for trap in domain["traps"]:
            count["trap"] += 1
            if not misread(schemas[trap["kind"]], trap["request"], trap["careless"], {}, AT):
                kinds_acted[trap["why"]] += 1
    every = count["careful"]
    share = right["careful"] / every
    yield Figure("natural wordings", right["careful"], "cases", every, "", share, 0.95, True)
    for how in ("invented", "swapped"):
        share = right[how] / count[how]
        yield Figure(f"{how} values taken", right[how], "cases", count[how], "", share, 0.0, False)
    acted = kinds_acted.total()
    why = ", ".join(f"{name} {n}" for name, n in sorted(kinds_acted.items()))
    what = f"traps that a careless binder passes ({why})"
    yield Figure(what, acted, "traps", count["trap"], "", acted / count["trap"], 0.05, False)


def bindings(kind: Case) -> Iterator[tuple[str, Case, Any]]:
    """Yield inputs for the natural wordings of a kind: right ones, invented ones, swapped ones.

    Values are swapped where a schema does not allow it: no value tells two of one sort apart.
    """
    schemas = kind["input_schema"]["properties"]
    for case in kind["natural"]:
        yield "careful", case, case["inputs"]
        for one, other in combinations(sorted(case["inputs"]), 2):
            first, second = case["inputs"][one], case["inputs"][other]
            if misfit(schemas[one], second) or misfit(schemas[other], first):
                yield "swapped", case, {**case["inputs"], one: second, other: first}
    for case, other_case in pairwise(kind["natural"]):
        for name, value in other_case["inputs"].items():
            own = case["inputs"].get(name)
            is_free = "enum" not in schemas[name] and schemas[name].get("type") != "boolean"
            if own is not None and is_free and not same(own, value):
                yield "invented", case, {**case["inputs"], name: value}
