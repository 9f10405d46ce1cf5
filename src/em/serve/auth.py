"""Who calls: bearer tokens, what they may do, and which hosts are served."""

import hmac
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal

import msgspec

from em.errors import Forbidden, NotFound, Unauthorized, UsageError
from em.settings import ApiSettings

TOKEN = "EM_API_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST = 16
Access = Literal["read", "write"]


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request: `subjects` None means all of them."""

    name: str = "local"
    subjects: frozenset[str] | None = None
    access: Access = "write"

    def must(self, access: Access) -> None:
        """Refuse what this caller's token does not allow."""
        if access == "write" and self.access == "read":
            raise Forbidden("this token may only read", place=self.name)

    def must_see(self, subject: str | None) -> None:
        """Refuse a subject that this caller's token does not name; None stands for all of them."""
        if self.subjects is not None and subject not in self.subjects:
            allowed = ", ".join(sorted(self.subjects))
            raise Forbidden(
                "this token is limited to subjects", place="subject", fix=f"name one of: {allowed}"
            )

    def sees(self, subject: str | None) -> bool:
        """Whether something about this subject may be shown."""
        return self.subjects is None or subject in self.subjects

    def must_find(self, subject: str | None, what: str) -> None:
        """What is about somebody else is not there, as far as this caller can tell."""
        if not self.sees(subject):
            raise NotFound(f"there is no {what}")


class Tokens:
    """The tokens that are taken. Only their hashes are kept; comparing takes the same time."""

    def __init__(self, settings: ApiSettings, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._known: list[tuple[bytes, Caller]] = []
        self._add(TOKEN, environ.get(TOKEN, ""), Caller(TOKEN))
        for number, token in enumerate(settings.tokens):
            if not environ.get(token.env):
                raise UsageError(
                    f"{token.env} is not set", place=f"em.yaml, api.tokens[{number}]", fix="set it"
                )
            subjects = None if token.subjects is None else frozenset(token.subjects)
            self._add(token.env, environ[token.env], Caller(token.env, subjects, token.access))

    def _add(self, name: str, value: str, caller: Caller) -> None:
        if not value:
            return
        if len(value) < SHORTEST or not value.isascii() or not value.isprintable():
            raise UsageError(
                f"a token has {SHORTEST} or more plain characters",
                place=f"environment, {name}",
                fix="make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        self._known.append((sha256(value.encode()).digest(), caller))

    def __bool__(self) -> bool:
        return bool(self._known)

    def caller(self, authorization: str) -> Caller:
        """Who sends this header; without any token set, whoever reaches the service."""
        if not self._known:
            return Caller()
        scheme, _, given = authorization.partition(" ")
        digest = sha256(given.strip().encode()).digest()
        found: Caller | None = None
        for known, caller in self._known:  # all of them: the time says nothing of which one it was
            if hmac.compare_digest(known, digest) and scheme.lower() == "bearer":
                found = caller
        if found is None:
            raise Unauthorized(
                "this needs a token that is known", fix="send `Authorization: Bearer TOKEN`"
            )
        return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_door(settings: ApiSettings, tokens: Tokens) -> None:
    """Other machines are served only where a token is asked for."""
    if not is_loopback(settings.host) and not tokens:
        raise UsageError(
            f"{settings.host} can be reached from other machines, and no token is set",
            place="EM_API_HOST",
            fix=f"set {TOKEN}, or bind to 127.0.0.1",
        )


class Hosts:
    """Which `Host` headers are served, so that DNS rebinding leads nowhere.

    Names: `localhost`, the host that the service is bound to and those in `allowed_hosts`, on any
    port. Addresses: loopback, and any address where the service is open to other machines.

    Litestar's AllowedHosts can't replace this: it compares the port too, knows no class of
    addresses, answers 400 without the envelope, and runs after the token was checked.
    """

    def __init__(self, settings: ApiSettings) -> None:
        self._names = {"localhost", settings.host.lower(), *map(str.lower, settings.allowed_hosts)}
        self._any_address = not is_loopback(settings.host)

    def check(self, header: str) -> None:
        """Refuse a host that is not ours."""
        name = _without_port(header.strip().lower())
        if name in self._names or is_loopback(name) or (self._any_address and _is_address(name)):
            return
        raise Forbidden("this host is not served", place="Host", fix="set EM_API_ALLOWED_HOSTS")

    def check_origin(self, origin: str, host: str, is_allowed: Callable[[str], bool]) -> None:
        """Refuse requests of pages of other sites, unless CORS allows their origin.

        Litestar's CORS answers such a request and only leaves out the headers that let the page
        read the answer: what it asked for would be done by then.
        """
        if origin and origin.partition("://")[2] != host and not is_allowed(origin):
            raise Forbidden(
                "pages of this origin are not served", place="Origin", fix="set EM_API_CORS_ORIGINS"
            )


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.rpartition(":")[0] if header.count(":") == 1 else header


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


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
