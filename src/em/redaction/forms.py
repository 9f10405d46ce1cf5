"""How else a known secret may be written: as JSON, in an address, in base64, as a number."""

import html
import json
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST_FORM = 3
"""Other forms that are shorter than this would be found everywhere."""
_SHORTEST_BASE64 = 8


def forms(value: str) -> set[str]:
    """A value as it is, and as others write it; letters may be of either case in each."""
    return {value} | {form for form in _others(value) if len(form) >= SHORTEST_FORM}


def _others(value: str) -> Iterator[str]:
    yield value.strip()
    for escape in (_json, _ascii_json):
        once = escape(value)
        yield once
        yield escape(once)
    # As the filter `tojson` has it.
    signs = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"}
    yield _json(value).translate(signs)
    yield _ascii_json(value).translate(signs)
    yield repr(value)[1:-1]
    yield ascii(value)[1:-1]
    yield html.escape(value)
    yield html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    raw = value.encode(errors="replace")
    for safe in ("", "/"):
        yield quote(raw, safe=safe)
        yield quote_plus(raw, safe=safe)
    yield from _base64(raw)
    yield from _numbers(value)


def _json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _ascii_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _base64(raw: bytes) -> Iterator[str]:
    """It as a whole, and what of it is the same whatever stands before and behind."""
    codes = [b64encode(raw).decode()]
    for before in range(3):
        code = b64encode(bytes(before) + raw).decode()
        codes.append(code[(0, 2, 3)[before] : len(code) - (0, 3, 2)[(before + len(raw)) % 3]])
    for code in codes:
        if len(code) >= _SHORTEST_BASE64:
            yield code
            yield code.rstrip("=").replace("+", "-").replace("/", "_")


def _numbers(value: str) -> Iterator[str]:
    """The number that it is, as JSON and Python write it."""
    for kind in (int, float):
        try:
            yield str(kind(value))
        except (ValueError, OverflowError):
            return
