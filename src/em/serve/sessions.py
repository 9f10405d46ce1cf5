"""Who looks at the pages: a browser logs in with a token once, and is known by a cookie then.

The cookie is a random name for what this process remembers, so it tells nothing and ends with it.
Forms carry a token that only pages of ours can know; a page of another site can send a form, but
can't read ours.
"""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from hashlib import sha256

from em.errors import Forbidden, Unauthorized
from em.serve.auth import Caller, Tokens

PAGES = "/ui"
LOGIN, STATIC = f"{PAGES}/login", f"{PAGES}/static/"
COOKIE = "em_session"
HOURS = 12
MOST = 10_000


class Sessions:
    """The browsers that are logged in."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    def needs_login(self) -> bool:
        """Whether a token is asked for at all."""
        return bool(self._tokens)

    def log_in(self, token: str) -> str:
        """The cookie for a token that is known."""
        caller = self._tokens.caller(f"Bearer {token.strip()}")
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._known[_digest(cookie)] = (caller, time.monotonic() + HOURS * 3_600)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return cookie

    def log_out(self, cookie: str) -> None:
        """Forget a browser."""
        with self._lock:
            self._known.pop(_digest(cookie), None)

    def caller(self, cookie: str, authorization: str) -> Caller:
        """Who asks for a page: by the header, as everywhere, or by the cookie."""
        if authorization or not self._tokens:
            return self._tokens.caller(authorization)
        with self._lock:
            caller, until = self._known.get(_digest(cookie), (None, 0.0))
        if caller is None or time.monotonic() > until:
            raise Unauthorized("this needs a login", fix=f"log in at {LOGIN}")
        return caller

    def form_token(self, cookie: str) -> str:
        """What a form of ours carries; bound to the browser that is logged in."""
        return hmac.new(self._key, cookie.encode(), sha256).hexdigest()

    def check_form(self, cookie: str, given: str) -> None:
        """Refuse a form that is not from a page of ours."""
        if not hmac.compare_digest(self.form_token(cookie).encode(), given.encode()):
            raise Forbidden(
                "this form is not from a page of this service, or is from before its last start",
                fix="load the page again and send the form once more",
            )


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode()).digest()


def cookie_in(header: str) -> str:
    """Our cookie in a `Cookie` header; empty where there is none."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
