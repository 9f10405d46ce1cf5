"""Retry: whether a run that failed or was cancelled can go on where it stopped, and why not.

What its journal has is not done again. The step where it stopped is done once more only if that
can't do anything twice: it reads, it surely had no effect, or it has an idempotency key.
"""

from em.errors import EmError, RoutineError
from em.runner.history import PastRun
from em.runner.journal import question_of
from em.runner.run import HANDED_OVER, Declined, OutputMissing, UnexpectedResult

RETRIED = ("failed", "cancelled")
"""The statuses of runs that may be retried."""

_FINAL = {
    OutputMissing.__name__: "everything was done, and only the output is missing",
    UnexpectedResult.__name__: "{step} was made and returned something unexpected: look at what it"
    " did, and finish by hand",
    Declined.__name__: "a person did not agree to {step}",
}
"""By the error of a failure: why such a run can't go on."""


def retry_problem(past: PastRun) -> str:
    """Return in words why a run can't go on where it stopped; an empty text if it can."""
    if past.is_partial:
        return "part of this run was forgotten, and with it what it did"
    if past.status == HANDED_OVER:
        return "it handed over and did nothing: start a new run"
    if past.status not in RETRIED:
        return f"it has neither failed nor been cancelled: {past.status}"
    return _failure_problem(past) or _call_problem(past)


def refuse_retry(past: PastRun, error: type[EmError] = RoutineError) -> None:
    """Raise if a run can't go on where it stopped."""
    problem = retry_problem(past)
    if problem:
        raise error(
            f"this run can't be retried: {problem}",
            place=f"run {past.run_id}",
            fix="look at what was done, and start a new run for the rest",
        )


def _failure_problem(past: PastRun) -> str:
    """Return why a run would fail again, whatever changes outside it."""
    failure = past.failure or {}
    kind, step = failure.get("error_type", ""), failure.get("step_id", "")
    if kind in _FINAL:
        return _FINAL[kind].format(step=step)
    if past.status == "failed" and not step and not past.steps:
        return "it failed before its first step: start a new run"
    return ""


def _call_problem(past: PastRun) -> str:
    """Return which calls may have happened and must not be made again."""
    restored = past.restored
    doubtful = [key for key in restored.in_flight if restored.keys.get(key) is None]
    if not doubtful:
        return ""
    names = ", ".join(sorted(question_of(key).removesuffix("?") for key in doubtful))
    return f"{names} may have happened, has no idempotency key, and must not be done twice"
