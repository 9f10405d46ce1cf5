"""Recall: search in what was said, with its evidence."""

from litestar import Response, get

from em.serve.auth import PAGES
from em.serve.pages.view import asked, page
from em.serve.service import AnyRequest, service_of

MOST = 20


@get(f"{PAGES}/recall", include_in_schema=False, sync_to_thread=True)
def get_recall(request: AnyRequest) -> Response[str]:
    """Passages that fit a question; a token that is limited to subjects searches one of them."""
    service = service_of(request)
    caller = service.caller(request)
    words, subject = asked(request, "q"), asked(request, "subject")
    if caller.subjects is not None and not subject:
        subject = min(caller.subjects, default="")
    found = None
    if words:
        caller.must_see(subject or None)
        found = service.memory.recall(words, subject=subject or None, k=MOST, neighbours=1)
    subjects = [] if caller.subjects is None else sorted(caller.subjects)
    return page(request, "recall.html", q=words, subject=subject, subjects=subjects, found=found)


HANDLERS = [get_recall]
