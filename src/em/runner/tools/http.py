"""HTTP requests of declared tools: to allowed hosts only, bounded in time and size.

A failure says whether the request can have had an effect. `HttpFailed` alone: it was not sent, or
the server refused it. `HttpTimeout` and `HttpBroken`: it was sent, and its outcome is unknown, so a
write is never repeated silently. A write that is answered with a status of 500 or above counts as
unknown too: a server may fail after it has written, and a proxy may lose the answer.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

from em.errors import NoEffect, NotAllowed
from em.runner.run import StepTimeout, UnknownOutcome
from em.runner.tools.permissions import check_host, host_of
from em.settings import AllowSettings

if TYPE_CHECKING:
    import httpx

MAX_ANSWER = 10 * 1024 * 1024
TAIL = 2000
_REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
_REPEATABLE = ("GET", "HEAD")
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "em"}


class HttpFailed(NoEffect):
    """A request was not sent, or the server answered with an error."""


class HttpTimeout(HttpFailed, StepTimeout):
    """No whole answer in time: what the request did is unknown."""


class HttpBroken(HttpFailed, UnknownOutcome):
    """No whole answer came, or one that does not say what the request did."""


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | None,
    *,
    timeout: float,
    allow: AllowSettings,
    at: str | None = None,
) -> tuple[bytes, str]:
    """Return the answer's bytes and charset. Follow redirects on the same host, for reads.

    at: the network address to connect to, whatever the host's name means now.
    """
    deadline = time.monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        check_host(urlsplit(url), allow)
        with _answer(method, url, headers, content, deadline, timeout, at) as answer:
            if answer.is_success:
                charset = _charset(answer.headers.get("Content-Type", ""))
                return _read(answer, deadline, timeout), charset
            if answer.status_code not in _REDIRECTS:
                raise _failed(answer, method, deadline, timeout)
            url = _next(url, answer, method)
    raise HttpFailed(f"{host_of(urlsplit(url))} redirects without end")


@contextmanager
def _answer(
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | None,
    deadline: float,
    timeout: float,
    at: str | None,
) -> "Iterator[httpx.Response]":
    """Send a request and open its answer; turn httpx's errors into those of this module."""
    import httpx

    host = host_of(urlsplit(url))
    try:
        address = _address(url)
        extensions: dict[str, Any] = {"timeout": httpx.Timeout(_left(deadline, timeout)).as_dict()}
        if at is not None:
            headers = {**headers, "Host": address.netloc.decode("ascii")}
            extensions["sni_hostname"] = address.raw_host.decode("ascii")
            address = address.copy_with(host=at)
        sent = httpx.Request(
            method, address, headers=_merged(headers), content=content, extensions=extensions
        )
        proxies = tuple(sorted(getproxies().items()))
        answer = _client(proxies, method in _REPEATABLE).send(sent, stream=True)
        try:
            yield answer
        finally:
            answer.close()
    except (httpx.ConnectTimeout, httpx.PoolTimeout):
        raise HttpFailed(f"no answer from {host}: no connection within {timeout:g} s") from None
    except httpx.TimeoutException:
        raise HttpTimeout(f"no answer from {host} within {timeout:g} s") from None
    except (httpx.ConnectError, httpx.ProxyError, httpx.LocalProtocolError) as error:
        raise HttpFailed(f"no answer from {host}: {_reason(error)}") from None
    except httpx.TransportError as error:
        raise HttpBroken(f"the answer of {host} broke off: {_reason(error)}") from None
    except (httpx.InvalidURL, ValueError) as error:
        raise HttpFailed(f"no answer from {host}: {error}") from None


def _address(url: str) -> "httpx.URL":
    """Parse an address for httpx. Refuse one in which httpx sees another host than was checked."""
    import httpx

    address, checked = httpx.URL(url), urlsplit(url)
    usual = {"http": 80, "https": 443}.get(checked.scheme)
    ports = [port or usual for port in (address.port, checked.port)]
    seen = {address.host.lower(), address.raw_host.decode().lower()}  # with and without punycode
    if ports[0] != ports[1] or (checked.hostname or "").lower() not in seen or address.userinfo:
        host = host_of(checked)
        raise NotAllowed(f"this address of {host} is ambiguous: it may name another host")
    return address


def _merged(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers to send: the caller's replace ours by name, in any case."""
    own = {name.lower(): (name, value) for name, value in {**_HEADERS, **headers}.items()}
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in own.values()]


@lru_cache(maxsize=8)
def _client(_proxies: tuple[tuple[str, str], ...], reuse: bool) -> "httpx.Client":
    """Return the client of this process for a set of proxies.

    reuse: whether to reuse connections. A write gets a connection of its own: if the server
    closed a reused one just then, nobody could tell whether the write happened. The client takes
    no cookies, trusts the certificates of the system, and does not follow redirects.
    """
    import ssl
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    return httpx.Client(
        verify=ssl.create_default_context(),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        limits=httpx.Limits(max_keepalive_connections=20 if reuse else 0),
    )


# A child process must not write into its parent's connections.
os.register_at_fork(after_in_child=_client.cache_clear)


def _left(deadline: float, timeout: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise HttpTimeout(f"no whole answer within {timeout:g} s")
    return left


def _read(answer: "httpx.Response", deadline: float, timeout: float) -> bytes:
    content = bytearray()
    for block in answer.iter_raw():
        content += block
        if len(content) > MAX_ANSWER:
            raise HttpBroken(f"the answer has more than {MAX_ANSWER:,} bytes")
        _left(deadline, timeout)
    return bytes(content)


def _charset(content_type: str) -> str:
    header = Message()
    header["Content-Type"] = content_type
    return header.get_content_charset() or "utf-8"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _failed(answer: "httpx.Response", method: str, deadline: float, timeout: float) -> HttpFailed:
    import httpx

    try:
        text = _read(answer, deadline, timeout)[-TAIL:].decode(errors="replace").strip()
    except (httpx.HTTPError, HttpFailed):
        text = ""  # the status is what counts
    status = f"status {answer.status_code} {answer.reason_phrase}".rstrip()
    is_unknown = answer.status_code >= 500 and method not in _REPEATABLE
    kind = HttpBroken if is_unknown else HttpFailed
    return kind(f"{status}: {text}" if text else status)


def _next(url: str, answer: "httpx.Response", method: str) -> str:
    """Return where a redirect leads, if it may be followed."""
    target: str = urljoin(url, answer.headers.get("Location", ""))
    if method not in _REPEATABLE:
        # 307 and 308 ask to send it again there; the others mostly follow a write that was made.
        kind = HttpFailed if answer.status_code in (307, 308) else HttpBroken
        raise kind(f"status {answer.status_code}: a {method} is not repeated at {target}")
    old, new = urlsplit(url), urlsplit(target)
    if (old.scheme, host_of(old)) != (new.scheme, host_of(new)):
        raise NotAllowed(
            f"{host_of(old)} redirects to another place: {new.scheme}://{host_of(new)}",
            fix="declare that address, if it is meant",
        )
    return target
