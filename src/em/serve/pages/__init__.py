"""Pages for people: rendered on the server, with one small script and no external files."""

from typing import Any

from em.serve.pages import (
    groups,
    jobs,
    lessons,
    log,
    login,
    overview,
    routines,
    runs,
    search,
    state,
    traces,
)

HANDLERS: list[Any] = [
    *login.HANDLERS,
    *overview.HANDLERS,
    *groups.HANDLERS,
    *runs.HANDLERS,
    *jobs.HANDLERS,
    *traces.HANDLERS,
    *routines.HANDLERS,
    *state.HANDLERS,
    *lessons.HANDLERS,
    *log.HANDLERS,
    *search.HANDLERS,
]
