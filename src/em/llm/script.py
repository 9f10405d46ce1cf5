"""A model that says what it was told to say: for tests, docs and trying em without a model."""

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
    """Gives the replies in their order, and checks them by schema as any client does.

    replies: texts; JSON values, said as JSON; a Reply, to say more (tokens, `stop`); exceptions,
    raised; functions of the request that return one of these. One function instead of a list
    answers every request.
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
        """Every request so far, corrections included."""
        return self._script.requests

    @classmethod
    def from_file(cls, path: str, *, provider: str, model: str) -> "ScriptedClient":
        """Replies from a JSON file: a list of texts and JSON values."""
        try:
            replies = msgspec.json.decode(Path(path).read_bytes(), type=list[Any])
        except OSError as error:
            raise InputError(f"the script can't be read: {error.strerror}", place=path) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"a script is a JSON list of replies: {error}", place=path) from None
        return cls(replies, provider=provider, model=model)


class _Script:
    """The wire of a script."""

    def __init__(self, replies: Iterable[Any] | ReplyTo) -> None:
        self._always = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self._lock = threading.Lock()
        self.requests: list[Request] = []

    def fits(self, schema: Json) -> bool:
        """A script needs no schema in words."""
        return True

    def send(self, request: Request, *, structured: bool) -> Reply:
        """The next reply. No tokens are counted: none were used."""
        with self._lock:
            position = len(self.requests)
            self.requests.append(request)
        said = self._always or self._next(position)
        while callable(said):
            said = said(request)
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, Reply):
            return said
        return Reply(text=said if isinstance(said, str) else msgspec.json.encode(said).decode())

    def _next(self, position: int) -> Any:
        if position >= len(self._replies):
            raise LlmUnavailable(
                f"the script has no reply left: it had {len(self._replies)}",
                place="scripted",
                fix="add replies, or see `requests` for what was asked",
            )
        return self._replies[position]
