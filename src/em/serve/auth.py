"""Callers: bearer tokens and what they allow, logged-in browsers, and the hosts to serve."""

import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal

import msgspec

from em.errors import Forbidden, StoreReadOnly, Unauthorized, UsageError
from em.settings import ApiSettings
from em.store.protocol import Store
from em.store.sql import Tickets

TOKEN = "EM_API_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST, DIFFERENT = 16, 8
"""Characters of a token, and different ones: em itself does not limit guesses."""
Access = Literal["read", "write"]


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request. `subjects` is None for a caller who may see every subject.

    Pass `subjects` to whatever lists things or looks one up: what a caller may not see then is
    not found exactly as what does not exist.
    """

    name: str = "local"
    subjects: frozenset[str] | None = None
    access: Access = "write"

    def must(self, access: Access) -> None:
        """Raise Forbidden unless this caller's token allows `access`."""
        if access == "write" and self.access == "read":
            raise Forbidden(
                "this needs write access, and the caller has read-only access", place=self.name
            )

    def must_see(self, subject: str | None) -> None:
        """Raise Forbidden unless this caller may see a subject; None stands for every subject."""
        if self.subjects is not None and subject not in self.subjects:
            allowed = ", ".join(sorted(self.subjects))
            raise Forbidden(
                "this token is limited to subjects", place="subject", fix=f"name one of: {allowed}"
            )

    def sees(self, subject: str | None) -> bool:
        """Return whether this caller may see a subject."""
        return self.subjects is None or subject in self.subjects

    def sees_lesson(self, subject: str | None) -> bool:
        """Return whether this caller may see a lesson about a subject, or about nobody."""
        return subject is None or self.sees(subject)

    @property
    def lesson_subjects(self) -> list[str] | None:
        """The subjects of the lessons that this caller may see; "" for those about nobody."""
        return None if self.subjects is None else ["", *self.subjects]


class Tokens:
    """The tokens that callers may use. Stores hashes only and compares them in constant time."""

    def __init__(self, settings: ApiSettings, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self.known: list[tuple[bytes, Caller]] = []
        """The hash of each token, and its caller."""
        self._add(TOKEN, environ.get(TOKEN, ""), Caller(TOKEN))
        for number, token in enumerate(settings.tokens):
            if not environ.get(token.env):
                raise UsageError(
                    f"{token.env} is not set",
                    place=f"em.yaml, api.tokens[{number}]",
                    fix=f"set the environment variable {token.env}, or remove the entry",
                )
            subjects = None if token.subjects is None else frozenset(token.subjects)
            self._add(token.env, environ[token.env], Caller(token.env, subjects, token.access))

    def _add(self, name: str, value: str, caller: Caller) -> None:
        if not value:
            return
        is_long = len(value) >= SHORTEST and len(set(value)) >= DIFFERENT
        if not is_long or not value.isascii() or not value.isprintable():
            raise UsageError(
                f"a token must have {SHORTEST} or more printable ASCII characters, {DIFFERENT} of"
                " them different",
                place=f"environment, {name}",
                fix="generate one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        self.known.append((_digest(value), caller))

    def __bool__(self) -> bool:
        return bool(self.known)

    def caller(self, authorization: str) -> Caller:
        """Return the caller for an Authorization header. With no token set, anybody may call."""
        if not self.known:
            return Caller()
        scheme, _, given = authorization.partition(" ")
        digest = _digest(given.strip())
        found: Caller | None = None
        for known, caller in self.known:  # compare all of them, so that timing reveals nothing
            if hmac.compare_digest(known, digest) and scheme.lower() == "bearer":
                found = caller
        if found is None:
            raise Unauthorized(
                "a valid token is required", fix="send `Authorization: Bearer TOKEN`"
            )
        return found


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_door(settings: ApiSettings, tokens: Tokens) -> None:
    """Raise UsageError if other machines could reach the service and no token is set."""
    if not is_loopback(settings.host) and not tokens:
        raise UsageError(
            f"no token is set, and other machines can reach {settings.host}",
            place="EM_API_HOST",
            fix=f"set {TOKEN}, or bind to 127.0.0.1",
        )


class Hosts:
    """Which `Host` headers are served, so that DNS rebinding leads nowhere.

    Names: `localhost`, the host that the service is bound to and those in `allowed_hosts`, on any
    port. Addresses: loopback, and any address where the service is open to other machines.

    Litestar's AllowedHosts can't replace this: it compares the port too, can't allow a class of
    addresses, responds with 400 and no error envelope, and runs after the token was checked.
    """

    def __init__(self, settings: ApiSettings) -> None:
        self._names = {"localhost", settings.host.lower(), *map(str.lower, settings.allowed_hosts)}
        self._any_address = not is_loopback(settings.host)

    def check(self, header: str) -> None:
        """Raise Forbidden for a `Host` header that is not served."""
        found = _HOST.fullmatch(header.strip().lower())
        name = found["name"] if found else header
        if found is None:
            raise Forbidden(
                f"{name[:80]!r} is no host", place="Host", fix="send a name or address and a port"
            )
        if name in self._names or is_loopback(name) or (self._any_address and _is_address(name)):
            return
        raise Forbidden(
            f"host {name[:80]!r} is not served", place="Host", fix="add it to EM_API_ALLOWED_HOSTS"
        )

    def check_origin(self, origin: str, host: str, is_allowed: Callable[[str], bool]) -> None:
        """Raise Forbidden for a request from a page of another site, unless CORS allows its origin.

        Litestar's CORS handles such a request and only omits the headers that let the page read the
        response: by then the request has had its effect.
        """
        if origin and origin.partition("://")[2] != host and not is_allowed(origin):
            raise Forbidden(
                "requests from pages of this origin are not allowed",
                place="Origin",
                fix="add it to EM_API_CORS_ORIGINS",
            )


_HOST = re.compile(
    r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9._-]{0,252}))(?::[0-9]{1,5})?", re.ASCII
)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


PAGES = "/ui"
LOGIN, STATIC = f"{PAGES}/login", f"{PAGES}/static/"
COOKIE = "em_session"
HOURS = timedelta(hours=12)
_FOR_EVER = timedelta(days=100 * 365)


def shared_key(store: Store) -> bytes:
    """Return the key of this database's services: all processes must accept each other's forms."""
    name = "service/key"
    found = store.tickets.get(name)
    if found is None:
        try:
            found = store.tickets.put(name, secrets.token_hex(32), _FOR_EVER)
        except StoreReadOnly:
            found = secrets.token_hex(32)
    return bytes.fromhex(found)


class BrowserSessions:
    """The browsers that are logged in: a random cookie each, for HOURS, in the store.

    The store has the hash of a cookie, and of the token it stands for. A session ends when its
    token is no longer one of the service's.
    """

    def __init__(self, tokens: Tokens, tickets: Tickets, key: bytes) -> None:
        self._tokens = tokens
        self._tickets = tickets
        self._key = key

    def needs_login(self) -> bool:
        """Return whether the pages require a login."""
        return bool(self._tokens)

    def log_in(self, token: str) -> str:
        """Check a token and return a new session cookie for it."""
        self._tokens.caller(f"Bearer {token.strip()}")
        cookie = secrets.token_urlsafe(32)
        self._tickets.put(self._name(cookie), self._mark(_digest(token.strip())), HOURS)
        return cookie

    def log_out(self, cookie: str) -> None:
        """Remove a session."""
        self._tickets.take(self._name(cookie))

    def caller(self, cookie: str, authorization: str) -> Caller:
        """Return the caller of a page, by the Authorization header or else by the cookie."""
        if authorization or not self._tokens:
            return self._tokens.caller(authorization)
        mark = self._tickets.get(self._name(cookie)) if cookie else None
        for digest, caller in self._tokens.known:
            if mark is not None and hmac.compare_digest(mark, self._mark(digest)):
                return caller
        raise Unauthorized("this page requires a login", fix=f"log in at {LOGIN}")

    def _name(self, cookie: str) -> str:
        return f"session/{_digest(cookie).hex()}"

    def _mark(self, digest: bytes) -> str:
        """Return the mark of a token that its sessions keep; the token can't be read from it."""
        return hmac.new(self._key, b"token" + digest, sha256).hexdigest()

    def form_token(self, cookie: str) -> str:
        """Return the token that our forms carry against CSRF, bound to the browser's cookie."""
        return hmac.new(self._key, b"form" + cookie.encode(), sha256).hexdigest()

    def check_form(self, cookie: str, given: str) -> None:
        """Raise Forbidden for a form without the token of this browser."""
        if not hmac.compare_digest(self.form_token(cookie).encode(), given.encode()):
            raise Forbidden(
                "this form is not from a page of this service",
                fix="reload the page and send the form again",
            )


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def cookie_in(header: str) -> str:
    """Return our cookie from a `Cookie` header, or an empty string."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
