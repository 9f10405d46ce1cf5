"""Log in with a token, log out, and the files that every page loads."""

import asyncio
from importlib.resources import files

from litestar import Response, get, post
from litestar.params import FromPath

from em.errors import NotFound, Unauthorized
from em.serve.auth import COOKIE, LOGIN, PAGES
from em.serve.pages.forms import form_of
from em.serve.pages.view import (
    HEADERS,
    cookie_of,
    go_to,
    page,
    parameter,
    sessions_of,
)
from em.serve.service import AnyRequest

_FILES = {
    "em.css": "text/css; charset=utf-8",
    "em.js": "text/javascript; charset=utf-8",
    "search.js": "text/javascript; charset=utf-8",
    "timeline.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@get("/", include_in_schema=False, sync_to_thread=False)
def get_root() -> Response[str]:
    """Send browsers to the overview."""
    return go_to(PAGES)


@get(LOGIN, include_in_schema=False, sync_to_thread=False)
def get_login(request: AnyRequest) -> Response[str]:
    """Show the login form."""
    if not sessions_of(request).needs_login():
        return go_to(PAGES)
    return page(request, "login.html", next=_safe(parameter(request, "next")), problem="")


@post(LOGIN, include_in_schema=False)
async def post_login(request: AnyRequest) -> Response[str]:
    """Check the token and give the browser a session cookie."""
    form = await form_of(request)
    next_, sessions = _safe(str(form.get("next", ""))), sessions_of(request)
    try:
        cookie = await asyncio.to_thread(sessions.log_in, str(form.get("token", "")))
    except Unauthorized:
        problem = "Unknown token."
        return page(request, "login.html", code=401, next=next_, problem=problem)
    answer = go_to(next_)
    is_https = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
    secure = "; Secure" if is_https else ""
    answer.headers["Set-Cookie"] = (
        f"{COOKIE}={cookie}; Path={PAGES}; HttpOnly; SameSite=Strict{secure}"
    )
    return answer


@post(f"{PAGES}/logout", include_in_schema=False)
async def post_logout(request: AnyRequest) -> Response[str]:
    """Log out."""
    await form_of(request)
    await asyncio.to_thread(sessions_of(request).log_out, cookie_of(request))
    answer = go_to(LOGIN)
    answer.headers["Set-Cookie"] = f"{COOKIE}=; Path={PAGES}; Max-Age=0; HttpOnly; SameSite=Strict"
    return answer


def _safe(next_: str) -> str:
    """Return the page to go to after the login, only if it is one of ours."""
    is_ours = next_ == PAGES or next_.startswith((f"{PAGES}/", f"{PAGES}?"))
    return next_ if is_ours and "\\" not in next_ and next_.isprintable() else PAGES


@get(f"{PAGES}/static/{{name:str}}", include_in_schema=False, sync_to_thread=False)
def get_static(name: FromPath[str]) -> Response[bytes]:
    """Serve the style sheet, the script and the icon."""
    if name not in _FILES:
        raise NotFound(f"there is no file {name[:80]!r}")
    data = files("em.serve.pages").joinpath("static", name).read_bytes()
    headers = {**HEADERS, "Cache-Control": "max-age=300"}
    return Response(data, media_type=_FILES[name], headers=headers)


HANDLERS = [get_root, get_login, post_login, post_logout, get_static]
