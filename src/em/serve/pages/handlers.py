"""Every page, as the application takes them."""

from typing import Any

from em.serve.pages import (
    behaviours,
    lessons,
    log,
    login,
    overview,
    recall,
    routines,
    runs,
    state,
    traces,
    workflows,
)

HANDLERS: list[Any] = [
    *login.HANDLERS,
    *overview.HANDLERS,
    *runs.HANDLERS,
    *traces.HANDLERS,
    *routines.HANDLERS,
    *behaviours.HANDLERS,
    *state.HANDLERS,
    *recall.HANDLERS,
    *lessons.HANDLERS,
    *log.HANDLERS,
    *workflows.HANDLERS,
]
