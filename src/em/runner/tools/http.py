"""Making an HTTP request: to allowed hosts only, bounded in time and size."""

import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urljoin, urlsplit

from em.errors import NotAllowed
from em.runner.run import StepTimeout
from em.runner.tools.permissions import check_host, host_of
from em.settings import AllowSettings

MAX_ANSWER = 10 * 1024 * 1024
TAIL = 2000
_BLOCK = 65536
_REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5


class HttpFailed(Exception):
    """A request got no answer, or not the one it asked for."""


class HttpTimeout(HttpFailed, StepTimeout):
    """No answer in time: what the request did is not known."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any) -> None:
        return None  # then it is an error, and looked at below


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | None,
    *,
    timeout: float,
    allow: AllowSettings,
) -> tuple[bytes, str]:
    """The answer's bytes and charset. Redirects are followed on the same host, for reads."""
    deadline = time.monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        address = urlsplit(url)
        check_host(address, allow)
        asked = urllib.request.Request(url, content, dict(headers), method=method)  # noqa: S310 - http or https
        try:
            with _opener().open(asked, timeout=_left(deadline, timeout)) as answer:
                charset = answer.headers.get_content_charset() or "utf-8"
                content = _read(answer, deadline, timeout)
                # What breaks off looks like an end; a length that is given tells.
                if answer.length is not None and method != "HEAD" and _is_cut(answer, content):
                    raise HttpFailed(f"the answer of {host_of(address)} broke off")
                return content, charset
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in _REDIRECTS:
                    raise _failed(error, deadline, timeout) from None
                url = _next(url, error, method)
        except (OSError, HTTPException, ValueError) as error:
            # URLError is an OSError; the reason inside it says more.
            reason = getattr(error, "reason", None) or error
            raise HttpFailed(f"no answer from {host_of(address)}: {reason}") from None
    raise HttpFailed(f"{host_of(address)} redirects without end")


def _opener() -> urllib.request.OpenerDirector:
    """Only HTTP: by itself urllib also opens files."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _NoRedirects(),
    ):
        opener.add_handler(handler)
    return opener


def _left(deadline: float, timeout: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise HttpTimeout(f"no whole answer within {timeout:g} s")
    return left


def _read(answer: Any, deadline: float, timeout: float) -> bytes:
    content = bytearray()
    while block := answer.read1(_BLOCK):
        content += block
        if len(content) > MAX_ANSWER:
            raise HttpFailed(f"the answer has more than {MAX_ANSWER:,} bytes")
        _left(deadline, timeout)
    return bytes(content)


def _is_cut(answer: Any, content: bytes) -> bool:
    promised = answer.headers.get("Content-Length")
    return promised is not None and promised.isdecimal() and len(content) < int(promised)


def _failed(error: urllib.error.HTTPError, deadline: float, timeout: float) -> HttpFailed:
    try:
        said = _read(error, deadline, timeout)[-TAIL:].decode(errors="replace").strip()
    except (OSError, HTTPException, HttpFailed):
        said = ""  # the status is what counts
    status = f"status {error.code} {error.reason or ''}".rstrip()
    return HttpFailed(f"{status}: {said}" if said else status)


def _next(url: str, error: urllib.error.HTTPError, method: str) -> str:
    """Where a redirect leads, if it may be followed."""
    target = urljoin(url, error.headers.get("Location", ""))
    old, new = urlsplit(url), urlsplit(target)
    if (old.scheme, host_of(old)) != (new.scheme, host_of(new)):
        raise NotAllowed(
            f"{host_of(old)} redirects to another place: {new.scheme}://{host_of(new)}",
            fix="declare that address, if it is meant",
        )
    if method not in ("GET", "HEAD"):
        raise HttpFailed(f"status {error.code}: a {method} is not repeated at {target}")
    return target
