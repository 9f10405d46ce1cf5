"""Pages of lessons: search by task, and one lesson with its evidence and use."""

from itertools import islice

from litestar import Response, get

from em.heuristics.heuristic import Heuristic, Ranked, list_heuristics
from em.log.summary import Cursor
from em.serve.api.heuristics import may_see, subjects_seen
from em.serve.auth import PAGES
from em.serve.pages.view import page, parameter
from em.serve.service import AnyRequest, service_of

SHOWN = 25


@get(f"{PAGES}/lessons", include_in_schema=False, sync_to_thread=True)
def get_lessons(request: AnyRequest) -> Response[str]:
    """Show the lessons that the caller may see, or those that fit a task."""
    service = service_of(request)
    caller = service.caller(request)
    task, before = parameter(request, "q"), Cursor.of(parameter(request, "before"))
    ranked: list[Ranked] = []
    listed: list[tuple[Cursor, Heuristic]] = []
    if task:
        subjects = [None] if caller.subjects is None else [None, *sorted(caller.subjects)]
        best: dict[str, Ranked] = {}
        for subject in subjects:
            for one in service.memory.brief(task, SHOWN, subject=subject).heuristics:
                best.setdefault(one.heuristic.id, one)
        ranked = sorted(
            (one for one in best.values() if may_see(caller, one.heuristic.lesson)),
            key=lambda one: -one.score,
        )[:SHOWN]
    else:
        seen = list_heuristics(service.store, subjects=subjects_seen(caller), before=before)
        listed = list(islice(seen, SHOWN + 1))
    return page(
        request,
        "lessons.html",
        q=task,
        ranked=ranked,
        listed=[one for _, one in listed[:SHOWN]],
        older=listed[SHOWN - 1][0] if len(listed) > SHOWN else None,
        before=before,
    )


@get(f"{PAGES}/lesson", include_in_schema=False, sync_to_thread=True)
def get_lesson(request: AnyRequest) -> Response[str]:
    """Show one lesson."""
    service = service_of(request)
    caller = service.caller(request)
    lesson_id = parameter(request, "id")
    book = service.memory.heuristics
    found = book.get(lesson_id)
    if found.lesson.subject is not None:
        caller.must_find(found.lesson.subject, f"heuristic {lesson_id!r}")
    against = [
        pair.other for pair in book.contradictions(found) if may_see(caller, pair.other.lesson)
    ]
    evidence = book.evidence(lesson_id)
    return page(
        request, "lesson.html", one=found, lesson=found.lesson, evidence=evidence, against=against
    )


HANDLERS = [get_lessons, get_lesson]
