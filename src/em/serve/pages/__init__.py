"""Pages for people: rendered here, with nothing from elsewhere and hardly any script."""

from typing import Any

from em.serve.pages import behaviours, lessons, log, login, overview, routines, runs, state, traces

HANDLERS: list[Any] = [
    *login.HANDLERS,
    *overview.HANDLERS,
    *runs.HANDLERS,
    *traces.HANDLERS,
    *routines.HANDLERS,
    *behaviours.HANDLERS,
    *state.HANDLERS,
    *lessons.HANDLERS,
    *log.HANDLERS,
]
