"""What the official SDKs raise, as a WireError. Both are made alike, so one reading serves both."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from em.llm.interface import WireError

LONGEST_MESSAGE = 500


@contextmanager
def told_as_wire_errors(sdk: Any, key: str) -> Iterator[None]:
    """Turn what an SDK raises into a WireError that never holds the key."""
    try:
        yield
    except sdk.APIStatusError as error:
        raise WireError(
            _without(key, _message(error)),
            status=error.status_code,
            retry_after=_retry_after(error.response.headers),
        ) from None
    except sdk.APITimeoutError:
        raise WireError("no answer within the timeout") from None
    except sdk.APIConnectionError as error:
        cause = error.__cause__ or error
        raise WireError(_without(key, f"the connection failed: {cause}")) from None
    except (sdk.APIError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise WireError(_without(key, f"the reply can't be read: {error}")) from None


@contextmanager
def told_if_misshaped() -> Iterator[None]:
    """The SDKs hand on a body of any shape: what is missing shows when it is read."""
    try:
        yield
    except (AttributeError, IndexError, TypeError) as error:
        raise WireError(f"the reply is not of the protocol: {error}") from None


def _message(error: Any) -> str:
    """The server's own words, where it has some."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return str(inner["message"])
    return str(error.message)


def _without(key: str, text: str) -> str:
    """A server may repeat the key that it does not take."""
    text = text.replace(key, "[key]") if key else text
    return text[:LONGEST_MESSAGE]


def _retry_after(headers: Any) -> float | None:
    """How long a server asks to wait: in seconds, or up to a date."""
    value = headers.get("retry-after")
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
