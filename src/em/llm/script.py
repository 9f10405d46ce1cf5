"""A scripted model: it returns given replies, for tests, docs and trying em without a model."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from em.errors import InputError, LlmUnavailable
from em.llm.client import Client
from em.llm.wire import Reply, Request
from em.settings import Price
from em.values.canonical import Json

ReplyTo = Callable[[Request], Any]


class ScriptedClient(Client):
    """A client that returns its replies in order, and checks them by schema like any other.

    replies: texts; JSON values; a Reply, to set more (tokens, `stop`); exceptions to raise;
    functions of the request that return one of these. A function instead of a list answers every
    request.
    """

    def __init__(
        self,
        replies: Iterable[Any] | ReplyTo,
        *,
        provider: str = "scripted",
        model: str = "scripted",
        price: Price | None = None,
    ) -> None:
        self._script = _Script(replies)
        super().__init__(self._script, provider=provider, model=model, price=price, max_retries=0)

    @property
    def requests(self) -> list[Request]:
        """All requests so far, with corrections."""
        return self._script.requests

    @classmethod
    def from_file(cls, path: str, *, provider: str, model: str) -> "ScriptedClient":
        """Read replies from a JSON file: a list of texts and JSON values."""
        try:
            replies = msgspec.json.decode(Path(path).read_bytes(), type=list[Any])
        except OSError as error:
            raise InputError(f"can't read the script: {error.strerror}", place=path) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"expected a JSON list of replies: {error}", place=path) from None
        return cls(replies, provider=provider, model=model)


class _Script:
    """The wire that returns the replies of a script."""

    def __init__(self, replies: Iterable[Any] | ReplyTo) -> None:
        self._always = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self._lock = threading.Lock()
        self.requests: list[Request] = []

    def fits(self, schema: Json) -> bool:
        """Accept every schema."""
        return True

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Return the next reply, which counts no tokens."""
        with self._lock:
            position = len(self.requests)
            self.requests.append(request)
        reply = self._always or self._next(position)
        while callable(reply):
            reply = reply(request)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Reply):
            return reply
        return Reply(text=reply if isinstance(reply, str) else msgspec.json.encode(reply).decode())

    def _next(self, position: int) -> Any:
        if position >= len(self._replies):
            raise LlmUnavailable(
                f"the script has no reply left: it had {len(self._replies)}",
                place="scripted",
                fix="add replies, or look at `requests`",
            )
        return self._replies[position]
