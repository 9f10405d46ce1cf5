"""Pages for people: rendered here, with nothing from elsewhere and hardly any script."""

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
)

HANDLERS = [
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
]
