"""Check that every recording is consistent with its own world, and count the cases."""

import json
import sys
from collections import Counter
from collections.abc import Iterator

from bench.single import everyday, pairs, texts
from bench.single.case import Case

SIZES = {"texts": 200, "everyday": 40, "other_record": 40, "matters": 40}


def cases() -> list[Case]:
    """Return the cases of all families."""
    return [*texts.cases(), *everyday.CASES, *pairs.cases()]


def problems(case: Case) -> Iterator[str]:
    """Yield what is wrong with a case: its recording, its inputs, or its expected writes."""
    calls = [event for event in case.trace["events"] if event["type"] == "tool_call"]
    tools = case.tools()
    for call in calls:
        if tools[call["tool"]](**call["args"]) != call["result"]:
            yield f"call {call['seq']} answers otherwise than recorded"
    recorded = [(call["tool"], call["args"]) for call in calls if call["effect"] == "write"]
    if not recorded or tools.writes != recorded:
        yield "the writes of the replay differ from the recording"
    if json.loads(json.dumps(case.trace)) != case.trace:
        yield "the trace changes when it is stored as JSON"
    given = case.trace["mission"]["input_summary"]
    known = set(given) or {name for call in calls for name in call["args"]}
    for run in case.runs:
        if not (set(run.inputs) == set(given) if given else set(run.inputs) <= known):
            yield f"inputs {sorted(run.inputs)} are not those of the recording {sorted(known)}"
        if (run.expected == "stop") != (case.family == "matters"):
            yield "only a change that matters must stop"
        if run.expected == recorded and case.family in ("texts", "everyday"):
            yield "the run expects what was recorded, so it tests nothing"
        if run.change is None and run.inputs == given:
            yield "the run has the inputs and the world of the recording"


def main() -> int:
    """Print the number of cases by family and every problem; return 1 if there is one."""
    every = cases()
    found = [f"{case.family}/{case.name}: {text}" for case in every for text in problems(case)]
    sizes = Counter(case.family for case in every)
    names = Counter((case.family, case.name) for case in every)
    found += [f"{'/'.join(name)}: {count} cases" for name, count in names.items() if count > 1]
    found += [f"{f}: {sizes[f]} cases, not {n}" for f, n in SIZES.items() if sizes[f] != n]
    for family, size in sizes.items():
        print(f"{family:14}{size:5}")
    print(f"{'all':14}{len(every):5}")
    for text in found:
        print(text, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
