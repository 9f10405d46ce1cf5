"""One recording of each case, compiled as by a person: texts, everyday work, and other records.

A run is right if it makes the expected writes and ends ok. A run that wrote anything else is wrong.
Where checks handed over, a person strikes those that the hand-over names ("none of this matters"),
at most twice, and the run is repeated: for records in which nothing that matters changed it should
act then. A change that matters must be stopped; what acts only after strikes is counted apart.

The cases of one half serve development; of the other half only the totals are looked at, so
`--verbose` shows the first half.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.single.__main__ import cases
from bench.single.case import Case, Run, Tools
from em.compiler.checks import checks_of_reason, struck
from em.runner.run import Reason

MOST_STRIKES = 2
HALVES = ("developed on", "held out")
COLUMNS = ("right", "after 1", "after 2", "handed over", "wrong", "partial", "not compiled")
STOPPED = ("stopped", "acts", "acts after 1", "acts after 2", "not compiled")
BARS = {"texts": 0.95, "everyday": 34 / 40, "other_record": 20 / 40, "matters": 36 / 40}
STRUCK = {"other_record", "matters"}
"""Families in which a check that handed over is struck."""


class Outcome(NamedTuple):
    """What became of a case, and why."""

    kind: str
    why: str = ""


class Ran(NamedTuple):
    """One run of a routine: what it wrote, how it ended, and why it handed over."""

    tools: Tools
    status: str
    said: str
    reason: Reason | None = None


def scored(limit: int | None, *, verbose: bool) -> Iterator[Figure]:
    """Compile and run every case; yield the figures of each family."""
    found: dict[tuple[str, str], Counter[str]] = {}
    places: Counter[str] = Counter()
    twins = Twins()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            number = places[case.family]
            places[case.family] += 1
            if limit is not None and number >= limit:
                continue
            half = HALVES[_group(case.family, number) % 2]
            outcome = _outcome(case, Path(folder), twins)
            found.setdefault((case.family, half), Counter())[outcome.kind] += 1
            is_named = outcome.kind in ("wrong", "partial", "acts")
            if is_named or (verbose and half == HALVES[0] and outcome.kind not in _FINE):
                print(f"{case.family}/{case.name}: {outcome.kind}: {outcome.why}", flush=True)
    _show(found)
    yield from _figures(found)
    yield from twins.figures()


class Twins:
    """What a change that matters does once the checks are struck that its harmless twin needed."""

    def __init__(self) -> None:
        self._struck: dict[str, dict[str, Any]] = {}
        self._acts: list[str] = []
        self._count = 0

    def take(self, case: Case, routine: dict[str, Any], folder: Path) -> None:
        """Note the routine after the strikes of a harmless run, or try it on what matters."""
        name = case.name.removesuffix(f" {case.family}")
        if case.family == "other_record":
            self._struck[name] = routine
        elif name in self._struck:
            self._count += 1
            if any(_run(case, run, self._struck[name], folder).tools.writes for run in case.runs):
                self._acts.append(name)

    def figures(self) -> Iterator[Figure]:
        """Show which acts, and yield how many were stopped."""
        if self._count:
            print(f"acts after the strikes of its twin: {', '.join(self._acts) or 'none'}")
            good, size = self._count - len(self._acts), self._count
            what = "matters: stopped after the strikes of its twin"
            yield Figure(what, good, "of", size, "", good / size, None, True)


_FINE = ("right", "stopped")


def _group(family: str, number: int) -> int:
    """Return the number of what a case is about; a text has four cases, one for each source."""
    return number // 4 if family == "texts" else number


def _outcome(case: Case, folder: Path, twins: Twins) -> Outcome:
    try:
        routine = compiled(case)
    except Exception as error:  # noqa: BLE001 - a compile that fails in any way is counted
        return Outcome("not compiled", f"{type(error).__name__}: {error}")
    found = [judged(case, run, routine, folder) for run in case.runs]
    if case.family in STRUCK:
        twins.take(case, found[-1][1], folder)
    return next((one for one, _ in found if one.kind not in _FINE), found[0][0])


def compiled(case: Case) -> dict[str, Any]:
    """Return the routine that a person's compile makes of a case's recording."""
    from em.compiler.evidence import BY_PERSON
    from em.compiler.example import example_of
    from em.compiler.learner import learn
    from em.traces.trace import KeptTrace, read_trace
    from em.values.times import now

    trace = read_trace(json.dumps(case.trace).encode(), case.name)
    kept = KeptTrace(id=case.name, at=now(), trace=trace, event_ids=())
    from em.compiler.requested import with_requested

    return learn("task", with_requested([example_of(kept)]), caution=BY_PERSON).routine


def judged(
    case: Case, run: Run, routine: dict[str, Any], folder: Path
) -> tuple[Outcome, dict[str, Any]]:
    """Return what a run did, where it may after strikes, and the routine after them."""
    said = ""
    most = MOST_STRIKES if case.family in STRUCK else 0
    for strikes in range(most + 1):
        ran = _run(case, run, routine, folder)
        said += ("; then " if said else "") + f"{ran.status} {ran.said}"
        if run.expected == "stop":
            if ran.tools.writes:
                return Outcome("acts" if not strikes else f"acts after {strikes}", said), routine
        elif ran.tools.writes or ran.status == "ok":
            return _written(run, ran, strikes, said), routine
        if strikes == most or (left := strike(routine, ran.reason)) is None:
            break
        routine = left
    return Outcome("stopped" if run.expected == "stop" else "handed over", said), routine


def _written(run: Run, ran: Ran, strikes: int, said: str) -> Outcome:
    expected = [*run.expected]
    wrote = ran.tools.writes
    if wrote == expected and ran.status == "ok":
        return Outcome(f"after {strikes}" if strikes else "right", said)
    foreign = next((one for one in wrote if one not in expected), None)
    if foreign is not None or ran.status == "ok":
        return Outcome("wrong", f"wrote {foreign or wrote}, expected {expected}; {said}")
    return Outcome("partial", f"wrote {len(wrote)} of {len(expected)}; {said}")


def _run(case: Case, run: Run, routine: dict[str, Any], folder: Path) -> Ran:
    from em.errors import EmError
    from em.runner.engine import run_routine
    from em.runner.package import Package

    made = Path(tempfile.mkdtemp(dir=folder))
    (made / "routine.yaml").write_text(json.dumps(routine, ensure_ascii=False))
    tools = case.tools(case.world_of(run))
    try:
        ran = run_routine(Package(made), dict(run.inputs), dict(tools))
    except EmError as error:
        return Ran(tools, "raised", f"{error.code}: {error}")
    why = ran.failure or ran.pending_prompt or ran.reason
    said = "" if why is None else f"{why.step_id}: {why.message}"
    return Ran(tools, ran.status, said, ran.reason)


def strike(routine: dict[str, Any], reason: Reason | None) -> dict[str, Any] | None:
    """Return a routine without the checks that a hand-over names; None if it names none."""
    checks = [] if reason is None else checks_of_reason(routine, reason)
    for check in checks:
        routine = struck(routine, check.id)
    return routine if checks else None


def _show(found: dict[tuple[str, str], Counter[str]]) -> None:
    for (family, half), counts in found.items():
        columns = STOPPED if family == "matters" else COLUMNS
        told = "  ".join(f"{name} {counts[name]}" for name in columns if counts[name])
        print(f"{family:14}{half:14}{counts.total():4}  {told}", flush=True)


def _figures(found: dict[tuple[str, str], Counter[str]]) -> Iterator[Figure]:
    families = {family: Counter[str]() for family, _ in found}
    for (family, _), counts in found.items():
        families[family] += counts
    for family, counts in families.items():
        size = counts.total()
        good = counts["stopped"] + counts["acts after 1"] + counts["acts after 2"]
        good = good if family == "matters" else counts["right"]
        what = "not acted on at once" if family == "matters" else "right at once"
        share = good / size
        yield Figure(f"{family}: {what}", good, "of", size, "", share, BARS[family], True)
        wrong = counts["wrong"] + counts["partial"] + counts["not compiled"]
        yield Figure(f"{family}: wrong or not compiled", wrong, "of", size, "", wrong, 0, False)
    if "other_record" in families:
        counts = families["other_record"]
        good, size = sum(counts[one] for one in COLUMNS[:3]), counts.total()
        what = f"other_record: right after {MOST_STRIKES} strikes"
        yield Figure(what, good, "of", size, "", good / size, 1.0, True)
