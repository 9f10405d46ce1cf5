"""Readers: the tools that every routine has. They read what the run's input names, and no more.

A routine is data that anyone may have sent. So without a permission `fetch_url` gets only an
address of a host that the input names, on the public network, and `read_text` only a file that the
input names, below the current folder. What `allow` names may be read too. Nothing here writes.
Each imports what it needs when it is called: every run loads this module.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from em.errors import NotAllowed
from em.runner.tools import Tool
from em.runner.tools.permissions import check_path, host_of, refused
from em.settings import AllowSettings
from em.values.leaves import texts

_URL = re.compile(r"https?://[^\s\"'<>]+")
_AROUND = "\"'`()[]{}<>,;:!?"


class NamedInput:
    """The texts of a run's input: what a person named for this run."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, given: Any) -> None:
        """Set the input of the run."""
        self._texts = list(texts(given))

    def has_host(self, host: str) -> bool:
        """Return whether an address of the input has this host."""
        found = (one for text in self._texts for one in _URL.findall(text))
        return any(_host_or_none(one) == host for one in found)

    def has_path(self, path: str) -> bool:
        """Return whether the input is this path, or has it as a word."""
        return any(
            path == text or path in (word.strip(_AROUND).rstrip(".") for word in text.split())
            for text in self._texts
        )


def _host_or_none(url: str) -> str | None:
    try:
        return host_of(urlsplit(url))
    except ValueError:
        return None


TIMEOUT = 30.0
MAX_FILE = 10 * 1024 * 1024
_THROUGH_IPV4 = "64:ff9b::/96"
"""A gateway sends on to the IPv4 address in the last bits."""


def reader(name: str, allow: AllowSettings, named: NamedInput) -> Tool | None:
    """Return the reader of this name; None if there is none."""
    made = _READERS.get(name)
    return None if made is None else Tool(name, made(allow, named), "read")


def _fetch(allow: AllowSettings, named: NamedInput) -> Callable[..., Any]:
    def fetch(url: str) -> str:
        """Return the text at an address (GET)."""
        from em.runner.tools.http import HttpFailed, request

        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise HttpFailed("an address must begin with http:// or https://")
        host, at = host_of(address), None
        allowed = allow
        if host not in (one.lower() for one in allow.hosts):
            if not named.has_host(host):
                raise refused("host", host)
            allowed, at = AllowSettings(hosts=[host]), public_address(address)
        content, charset = request("GET", url, {}, None, timeout=TIMEOUT, allow=allowed, at=at)
        return content.decode(charset, errors="replace")

    return fetch


def public_address(address: SplitResult) -> str:
    """Return the network address of a host; raise unless all that it has are public.

    The request is sent to that one: what the name means may be another a moment later.
    """
    import socket

    from em.runner.tools.http import HttpFailed

    host = host_of(address)
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    try:
        found = socket.getaddrinfo(address.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HttpFailed(f"no answer from {host}: {error}") from None
    addresses = [str(one[4][0]) for one in found]
    for one in addresses:
        if not is_public(one):
            raise NotAllowed(
                f"{host} is an address of a private network ({one})",
                fix=f"if you trust the routine with it, run with --allow-host {host}, or add"
                f" `allow: {{hosts: [{host}]}}` to em.yaml and run `em trust --folder .`",
            )
    return addresses[0]


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public network."""
    import ipaddress

    one = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(one, "ipv4_mapped", None) or getattr(one, "sixtofour", None)
    if one in ipaddress.ip_network(_THROUGH_IPV4):
        inner = ipaddress.ip_address(int(one) & 0xFFFF_FFFF)
    return one.is_global and not one.is_multicast and (inner is None or inner.is_global)


def _read(allow: AllowSettings, named: NamedInput) -> Callable[..., Any]:
    def read(path: str) -> str:
        """Return the text of a file."""
        here = Path.cwd().resolve()
        found = (here / Path(path)).resolve()
        is_hidden = any(part.startswith(".") for part in found.parts[len(here.parts) :])
        if not named.has_path(path) or not found.is_relative_to(here) or is_hidden:
            found = check_path(path, allow)
        with found.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise ValueError(f"{path} has more than {MAX_FILE:,} bytes")
        return content.decode()

    return read


def parse_csv(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Return the rows of a CSV text, each by the names of the first line. All values are texts."""
    import csv
    import io

    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    found = []
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"line {rows.line_num} of the CSV text has another number of columns")
        found.append({str(name): value for name, value in row.items()})
    return found


def _read_csv(allow: AllowSettings, named: NamedInput) -> Callable[..., Any]:
    read = _read(allow, named)

    def read_csv(path: str, delimiter: str = ",") -> list[dict[str, str]]:
        """Return the rows of a CSV file."""
        return parse_csv(read(path), delimiter)

    return read_csv


_READERS: dict[str, Callable[[AllowSettings, NamedInput], Callable[..., Any]]] = {
    "fetch_csv": _fetch,
    "fetch_url": _fetch,
    "parse_csv": lambda _allow, _named: parse_csv,
    "read_csv": _read_csv,
    "read_text": _read,
}
