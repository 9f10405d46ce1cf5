"""`make bench`, or `python -m bench NAME…` for some of them. Exit code 1 if a bar is missed.

`right`, `learn`, `fuzz`, `faults` and `scale` take options when one is named alone, as
`python -m bench right --help`. `python -m bench load --help` is a load for your own hardware.
"""

import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import chain

from bench import (
    behaviour,
    heuristics,
    hooks,
    importing,
    lessons,
    load,
    mcp,
    pages,
    recall,
    recall_speed,
    redaction,
    routines,
    sandbox,
    service,
    startup,
    state,
    state_text,
    store,
    workflow,
)  # fmt: skip
from bench.faults import table as faults
from bench.figure import Figure
from bench.fuzz import rounds as fuzz
from bench.learn import workloads as learn
from bench.right import parts as right
from bench.scale import parts as scale
from bench.scale import workers
from bench.series import proposing, repository
from bench.series import rotation as series
from bench.words import agent_calls, binders, coding_prompts, house, recorded

WORDS: dict[str, Callable[[], Iterator[Figure]]] = {
    "binders": binders.figures,
    "recorded": recorded.figures,
    "coding": coding_prompts.figures,
    "agent": agent_calls.figures,
    "house": house.figures,
}
"""The parts of the bench of words; `words binders` is one of them."""

BENCHES: dict[str, Callable[[], Iterator[Figure]]] = {
    "append": store.append,
    "read": store.read,
    "open": store.opening,
    "postgres": store.postgres,
    "redaction": redaction.found,
    "ordinary": redaction.ordinary,
    "startup": startup.startup,
    "command": startup.run_command,
    "export": routines.export_retail,
    "run": routines.run_steps,
    "right": right.figures,
    "learn": learn.figures,
    "series": lambda: chain(series.figures(), repository.figures(), proposing.figures()),
    "words": lambda: chain(*(part() for part in WORDS.values())),
    "fuzz": fuzz.figures,
    "faults": faults.figures,
    "scale": scale.figures,
    "sandbox": sandbox.calls,
    "behaviour": behaviour.hits,
    "recall": recall.quality,
    "recall-weights": recall.crossed,
    "recall-model": recall.quality_with_model,
    "recall-postgres": recall.quality_on_postgres,
    "recall-speed": recall_speed.query_time,
    "indexing": recall_speed.indexing,
    "vectors": recall_speed.vectors,
    "lessons": lessons.mined,
    "seeded": heuristics.seeded,
    "retail": heuristics.retail_retrieval,
    "brief": heuristics.brief_speed,
    "mcp": mcp.figures,
    "hooks": hooks.round_trip,
    "transcripts": importing.samples,
    "importing": importing.rate,
    "importing-large": importing.large,
    "service": service.load,
    "service-large": service.large,
    "pages": pages.every,
    "overview": pages.overview,
    "queue-jobs": workers.jobs,
    "queue-commits": workers.commits,
    "state-records": state.as_records,
    "state-sentences": state.as_sentences,
    "state-compile": state.compiling,
    "state-observe": state.observing,
    "state-subjects": state.many_subjects,
    "state_text": state_text.figures,
    "workflow": workflow.overhead,
    "workflow-tokens": workflow.tokens,
}


WITH_OPTIONS: dict[str, Callable[[list[str]], Iterator[Figure]]] = {
    "right": lambda words: right.figures(right.read_options(words)),
    "learn": lambda words: learn.figures(learn.read_options(words)),
    "words": lambda words: chain(*(WORDS[one]() for one in words)),
    "fuzz": lambda words: fuzz.figures(fuzz.read_options(words)),
    "faults": lambda words: faults.figures(faults.read_options(words)),
    "scale": lambda words: scale.figures(scale.read_options(words)),
}
"""What a bench does with the words behind its name."""


def show(figure: Figure) -> str:
    if figure.bar is None:
        verdict = ""
    else:
        sign = "at least" if figure.lower_bound else "at most"
        verdict = f"{sign} {figure.bar:g}: {'cleared' if figure.cleared else 'MISSED'}"
    number = "{:,.0f}" if figure.unit == "/s" else "{:,.3f}" if not figure.unit else "{:,.2f}"
    ours, theirs = number.format(figure.ours), number.format(figure.theirs)
    return (
        f"{figure.what}\n"
        f"    ours    {ours:>12} {figure.unit}\n"
        f"    beside  {theirs:>12} {figure.unit}  {figure.beside}\n"
        f"    ratio   {figure.ratio:>12.3f}     {verdict}"
    )


def main(words: list[str]) -> int:
    names = words
    if words[1:] and words[0] in WITH_OPTIONS:
        names, options = words[:1], words[1:]
        BENCHES[words[0]] = lambda: WITH_OPTIONS[words[0]](options)
    if words[:1] == ["load"]:
        return load.main(words[1:])
    unknown = set(names) - BENCHES.keys()
    if unknown:
        print(f"no bench {min(unknown)!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}\n")
    missed = 0
    for name in names or BENCHES:
        for figure in BENCHES[name]():
            print(show(figure), flush=True)
            missed += not figure.cleared
    print(f"\n{missed} bars missed" if missed else "\nno bar missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
