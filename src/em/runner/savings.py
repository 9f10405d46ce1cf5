"""What a run saved against the recorded agent run: only what was recorded, nothing made up."""

from collections.abc import Iterable

import msgspec

from em.errors import NotFound, RoutineError
from em.runner.journal import Note, PastRun
from em.runner.library import package_of
from em.runner.run import StepReport
from em.store.protocol import Store
from em.values.call import Usage

RECORDING = "recording.json"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the agent's run beside that of this one; None where it was not recorded."""

    what: str
    agent: float | None
    run: float | None

    @property
    def saved(self) -> float | None:
        """How much less this run took."""
        return None if self.agent is None or self.run is None else self.agent - self.run


class _Recording(msgspec.Struct):
    usage: Usage = Usage()


def recorded_usage(store: Store, past: PastRun) -> Usage:
    """What the agent's run took, as its package tells; nothing if that is another one now."""
    try:
        with package_of(store, past) as package:
            if package.content_hash != past.routine_hash:
                return Usage()
            data = (package.folder / RECORDING).read_bytes()
        return msgspec.json.decode(data, type=_Recording).usage
    except (OSError, RoutineError, NotFound, msgspec.MsgspecError):
        return Usage()


def savings(store: Store, past: PastRun, agent: Usage | None = None) -> list[Saved]:
    """A journalled run beside the recorded one; `agent` is what that took, where it is known."""
    agent = recorded_usage(store, past) if agent is None else agent
    reports = [_report(note) for note in past.notes if note[0] == "step_done"]
    asked = sum(1 for kind, body in past.notes if kind == "step_done" and body.get("fix"))
    # Without a model there are no tokens and no cost; with one, the journal does not have them.
    nothing = None if asked else 0
    seconds = None if agent.duration_ms is None else agent.duration_ms / 1e3
    return [
        Saved(what="calls", agent=agent.calls, run=sum(report.attempts for report in reports)),
        Saved(what="model calls", agent=agent.model_calls, run=asked),
        Saved(what="seconds", agent=seconds, run=_seconds(reports)),
        Saved(what="tokens", agent=agent.tokens, run=nothing),
        Saved(what="cost_usd", agent=agent.cost_usd, run=nothing),
    ]


def _report(note: Note) -> StepReport:
    body = note[1]
    return StepReport(
        id=str(body["step"]),
        status="done",
        attempts=body.get("attempts", 1),
        duration_ms=body.get("duration_ms", 0.0),
    )


def _seconds(reports: Iterable[StepReport]) -> float:
    """The time that steps took; waiting for a person is none of it."""
    longest: dict[str, float] = {}
    for report in reports:
        # Each item of a step counts from where the step began.
        longest[report.id] = max(longest.get(report.id, 0.0), report.duration_ms)
    return sum(longest.values()) / 1e3
