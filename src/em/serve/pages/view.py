"""What all pages share: templates, headers, parameters and formats.

Text from traces is untrusted. Templates escape it, and should that ever fail, the content security
policy forbids inline scripts and any file that is not ours.
"""

from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

import jinja2
import msgspec
from litestar import Response

import em
from em.errors import InputError
from em.serve.auth import PAGES, BrowserSessions, Caller, cookie_in
from em.serve.guard import CALLER, ErrorBody
from em.serve.service import AnyRequest

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LONGEST = 20_000
"""The most characters of one value on a page."""
LONGEST_QUERY = 2_000

NAVIGATION = [
    ("", "Overview", False),
    ("/runs", "Runs", True),
    ("/traces", "Traces", False),
    ("/routines", "Routines", True),
    ("/workflows", "Workflows", True),
    ("/state", "State", False),
    ("/recall", "Recall", False),
    ("/lessons", "Lessons", False),
    ("/log", "Log", False),
]
"""Path, name, and whether the page requires a token that is not limited to subjects."""


def sessions_of(request: AnyRequest) -> BrowserSessions:
    """Return the sessions of the service that a request came to."""
    found: BrowserSessions = request.app.state.sessions
    return found


def page(request: AnyRequest, template: str, /, *, code: int = 200, **values: Any) -> Response[str]:
    """Render a template as a page."""
    found = request.scope.get(CALLER)
    caller = found if isinstance(found, Caller) else Caller("anyone", frozenset(), "read")
    sessions = sessions_of(request)
    limited = caller.subjects is not None
    shown = {
        "caller": caller,
        "navigation": [] if caller.name == "anyone" else navigation(limited=limited),
        "section": _section(request.url.path),
        "form_token": sessions.form_token(cookie_of(request)),
        "logged_in": sessions.needs_login() and caller.name != "anyone",
        "may_write": caller.access == "write",
        "version": em.__version__,
        **values,
    }
    text = _templates().get_template(template).render(shown)
    return Response(text, status_code=code, media_type="text/html; charset=utf-8", headers=HEADERS)


def _section(path: str) -> str:
    """Return the entry of the navigation for a page: `/ui/runs` for `/ui/run`."""
    known = {PAGES + path for path, _, _ in NAVIGATION}
    if path in (f"{PAGES}/event", f"{PAGES}/verify"):
        return f"{PAGES}/log"
    if path in (f"{PAGES}/job", f"{PAGES}/jobs"):
        return f"{PAGES}/runs"
    if path == f"{PAGES}/group":
        return PAGES
    return path if path in known else f"{path}s"


def navigation(*, limited: bool) -> list[tuple[str, str]]:
    """Return the address and the name of each page that a caller may see."""
    return [
        (PAGES + path, name) for path, name, everybody in NAVIGATION if not (everybody and limited)
    ]


def go_to(address_: str) -> Response[str]:
    """Redirect to another page of ours."""
    return Response("", status_code=303, headers={**HEADERS, "Location": address_})


def error_page(request: AnyRequest, status: int, body: bytes) -> Response[str]:
    """Render an error as a page."""
    error = msgspec.json.decode(body, type=ErrorBody).error
    return page(request, "error.html", code=status, error=error, status=status)


def cookie_of(request: AnyRequest) -> str:
    """Return the session cookie of a request."""
    return cookie_in(request.headers.get("cookie", ""))


def parameter(request: AnyRequest, name: str) -> str:
    """Return a parameter of the address, or an empty string."""
    given = request.query_params.get(name, "")
    text = given[-1] if isinstance(given, list) else given
    if len(text) > LONGEST_QUERY:
        raise InputError(f"use at most {LONGEST_QUERY:,} characters, got {len(text):,}", place=name)
    return str(text).strip()


def whole_number(request: AnyRequest, name: str) -> int | None:
    """Return a parameter that is a whole number, or None if it is not given."""
    text = parameter(request, name)
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise InputError(f"expected a whole number, got {text[:40]!r}", place=name)
    return int(text)


def address(path: str, **params: Any) -> str:
    """Return the address of a page; empty parameters are omitted."""
    given = {name: value for name, value in params.items() if value not in (None, "")}
    return f"{PAGES}{path}" + (f"?{urlencode(given)}" if given else "")


def pretty(value: Any) -> str:
    """Format a value as indented JSON, and a text as it is."""
    text = value if isinstance(value, str) else _json(value, 2)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} more"


def short(value: Any, longest: int = 100) -> str:
    """Format a value on one line."""
    text = value if isinstance(value, str) else _json(value, 0)
    text = " ".join(text[: longest * 4].split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _json(value: Any, indent: int) -> str:
    data = msgspec.json.encode(value, enc_hook=str)
    return msgspec.json.format(data, indent=indent).decode() if indent else data.decode()


def when(at: datetime | None) -> str:
    """Format a time."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def amount(value: float | None) -> str:
    """Format a number."""
    if value is None:
        return "–"
    if value >= 1_000_000:
        return f"{value / 1e6:,.1f} M"
    if value >= 1_000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1 else f"{value:,.3f}"


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds >= 7_200:
        return f"{seconds / 3_600:,.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds:,.1f} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1e3:,.1f} ms"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("em.serve.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "pretty": pretty,
        "short": short,
        "when": when,
        "amount": amount,
        "duration": duration,
    }
    environment.globals |= {"address": address}
    return environment
