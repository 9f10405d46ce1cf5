"""Cancellation: stop a run before its next step, on a person's word.

The word is an event in the run's own stream. Whoever works on the run finds it with the next write
of its journal, which comes before every call, stores the result of the call that was under way, and
stops. Nobody has to be reached, so a run whose process is gone is cancelled in the same way.
"""

from contextlib import suppress

from em.errors import PositionConflict, StoreBusy, UsageError
from em.log.event import Draft, EventQuery, inner_run_id, run_stream
from em.runner.history import PastRun, RunKind, read_run
from em.store.protocol import Commit, Store

TRIES = 200
"""How often to try while the run writes its own steps."""


def cancel_run(store: Store, run_id: str, *, by: str = "", kind: RunKind | None = None) -> PastRun:
    """Cancel a run of a routine or a workflow, and the runs inside it; return it as it is then.

    by: who wants it, for the log. Raises UsageError if the run is over.
    """
    past = read_run(store, run_id, kind)
    stream = run_stream(run_id)
    body = {"by": by} if by else {}
    event = Draft(stream=stream, kind="run_cancelled", body=body, subject=past.subject)
    for _ in range(TRIES):
        _refuse_over(past)
        try:
            store.commit(Commit(events=[event], expected_pos={stream: past.pos}))
        except PositionConflict:
            past = read_run(store, run_id, kind)
        else:
            _cancel_inner(store, past, by)
            return read_run(store, run_id, kind)
    raise StoreBusy(
        "the run writes its steps faster than it can be cancelled",
        place=f"run {run_id}",
        fix="try again",
    )


def _refuse_over(past: PastRun) -> None:
    if past.is_over:
        raise UsageError(f"the run is over: {past.status}", place=f"run {past.run_id}")


def _cancel_inner(store: Store, past: PastRun, by: str) -> None:
    """Cancel the routines that steps of a workflow's run are running."""
    keys = [past.restored.keys.get(call) for call in past.restored.in_flight]
    for key in keys if past.is_workflow else ():
        inner = inner_run_id(str(key))
        if store.head(run_stream(inner))[0]:
            with suppress(UsageError):  # it has just ended
                cancel_run(store, inner, by=by, kind="routine")


def cancel_runs(store: Store, run_ids: list[str], *, by: str) -> None:
    """Cancel those of these runs that have begun and are not over."""
    for run_id in run_ids:
        newest = EventQuery(stream=run_stream(run_id), newest=True, limit=1)
        if any(event.kind not in ("run_ended", "run_cancelled") for event in store.read(newest)):
            with suppress(UsageError):
                cancel_run(store, run_id, by=by)
