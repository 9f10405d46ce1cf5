"""How well words become inputs: natural wordings by a careful binder, traps by a careless one.

A binder is a scripted model. The careful one copies the right values; the careless one says that
every request fits, and gives the values that its author wrote for a model that does not look.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from bench.figure import Figure
from bench.words.cases import domains
from em.runner.reading import misread

AT = datetime(2026, 4, 20, tzinfo=UTC)


def figures() -> Iterator[Figure]:
    right = count = acted = traps = 0
    kinds_acted: Counter[str] = Counter()
    for domain in domains():
        schemas = {kind["name"]: kind["input_schema"] for kind in domain["kinds"]}
        for kind in domain["kinds"]:
            for case in kind["natural"]:
                count += 1
                right += not misread(schemas[kind["name"]], case["request"], case["inputs"], {}, AT)
        for trap in domain["traps"]:
            traps += 1
            if not misread(schemas[trap["kind"]], trap["request"], trap["careless"], {}, AT):
                acted += 1
                kinds_acted[trap["why"]] += 1
    yield Figure("natural wordings", right, "cases", count, "", right / count, 0.95, True)
    why = ", ".join(f"{name} {n}" for name, n in sorted(kinds_acted.items()))
    what = f"traps that a careless binder passes ({why})"
    yield Figure(what, acted, "traps", traps, "", acted / traps, 0.05, False)
