"""Pages of lessons: search by task, and one lesson with its evidence and use."""

from collections.abc import Callable, Sequence

from litestar import Response, get, post

from em.heuristics.heuristic import Heuristic, Ranked, find_heuristics
from em.heuristics.lessons import Heuristics
from em.log.summary import Cursor
from em.serve.auth import PAGES, Caller
from em.serve.pages.forms import acted
from em.serve.pages.table import ROWS, SINCE, SUBJECT, UNTIL, Filter, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.values.canonical import Json

BEST = 25
"""The most lessons that are shown for a task."""
LESSONS = ListShape(
    "/lessons",
    "lessons",
    (),
    (
        Filter("task", "Find lessons for a task", "words", is_first=True),
        SUBJECT,
        Filter("source_task", "Learned from the task"),
        SINCE,
        UNTIL,
        Filter("retired", "Include retired lessons", "flag"),
    ),
)


@get(f"{PAGES}/lessons", include_in_schema=False, sync_to_thread=True)
def get_lessons(request: AnyRequest) -> Response[str]:
    """Show the lessons that the caller may see, or those that fit a task."""
    service = service_of(request)
    caller = service.caller(request)
    view = ListView(LESSONS, request)
    subject = view.get("subject")
    if subject:
        caller.must_see(subject)
    ranked = _best(service, caller, view.get("task"), subject) if view.get("task") else []
    listed = [] if view.get("task") else _listed(service, caller, view)
    return page(request, "lessons.html", view=view, ranked=ranked, listed=listed)


def _best(service: Service, caller: Caller, task: str, subject: str) -> list[Ranked]:
    """Return the lessons that fit a task best, the best first."""
    own = [subject] if subject else sorted(caller.subjects or ())
    best: dict[str, Ranked] = {}
    for about in (None, *own):
        for one in service.memory.brief(task, BEST, subject=about).heuristics:
            best.setdefault(one.heuristic.id, one)
    seen = (one for one in best.values() if caller.sees_lesson(one.heuristic.lesson.subject))
    return sorted(seen, key=lambda one: -one.score)[:BEST]


def _listed(service: Service, caller: Caller, view: ListView) -> Sequence[Heuristic]:
    subject = view.get("subject")
    found = find_heuristics(
        service.store,
        limit=ROWS,
        retired=bool(view.get("retired")),
        source_task=view.get("source_task") or None,
        subjects=[subject] if subject else caller.lesson_subjects,
        since=view.time("since"),
        until=view.time("until"),
        before=Cursor.of(view.cursor),
    )
    return view.go_on(found.heuristics, found.further)


@get(f"{PAGES}/lesson", include_in_schema=False, sync_to_thread=True)
def get_lesson(request: AnyRequest) -> Response[str]:
    """Show one lesson."""
    service = service_of(request)
    caller = service.caller(request)
    lesson_id = parameter(request, "id")
    book = service.memory.heuristics
    found = book.get(lesson_id, subjects=caller.lesson_subjects)
    evidence = book.evidence(lesson_id)
    return page(request, "lesson.html", one=found, lesson=found.lesson, evidence=evidence)


@post(f"{PAGES}/lesson/accept", include_in_schema=False)
async def post_accept(request: AnyRequest) -> Response[str]:
    """Accept a lesson in doubt, which a person has read."""
    return await _change_lesson(request, lambda book, lesson: book.accept(lesson))


@post(f"{PAGES}/lesson/retire", include_in_schema=False)
async def post_retire(request: AnyRequest) -> Response[str]:
    """Retire a lesson: briefings no longer show it."""
    return await _change_lesson(request, lambda book, lesson: book.retire(lesson))


async def _change_lesson(
    request: AnyRequest, act: Callable[[Heuristics, str], object]
) -> Response[str]:
    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        book, lesson = service.memory.heuristics, str(form.get("id", ""))
        caller.must_see(book.get(lesson, subjects=caller.lesson_subjects).lesson.subject)
        act(book, lesson)
        return go_to(address("/lesson", id=lesson))

    return await acted(request, do)


HANDLERS = [get_lessons, get_lesson, post_accept, post_retire]
