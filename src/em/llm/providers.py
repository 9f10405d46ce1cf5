"""Make a client from settings and the environment; or one that follows a script, for tests."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from em.errors import InputError, LlmUnavailable, MissingKey, UsageError
from em.llm.client import PRICES, Client, LlmClient
from em.llm.wires import AnthropicWire, OpenAIWire, Reply, Request, Wire
from em.settings import Price, ProviderSettings, Settings
from em.values.canonical import Json
from em.values.mismatch import closest

KEY = "EM_LLM_API_KEY"
"""Takes precedence over the provider's own variable."""

PROVIDERS = {
    "anthropic": ProviderSettings(
        protocol="anthropic",
        base_url="https://api.anthropic.com",
        model="claude-sonnet-5-5",
        key_env="ANTHROPIC_API_KEY",
    ),
    "openai": ProviderSettings(
        protocol="openai",
        base_url="https://api.openai.com/v1",
        model="gpt-6-sol",
        key_env="OPENAI_API_KEY",
    ),
    "gemini": ProviderSettings(
        protocol="openai",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        model="gemini-flash-latest",
        key_env="GEMINI_API_KEY",
    ),
    "scripted": ProviderSettings(protocol="scripted", model="scripted"),
}
DEFAULT = "anthropic"
NO_KEY = "none"
"""Sent to servers that need no key, since the SDKs require one."""


def get_llm_client(
    provider: str | None = None,
    model: str | None = None,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> LlmClient:
    """Make a client for a provider: the given one, else that of the environment or em.yaml.

    Where none is named, the provider whose key is set, if there is one; Anthropic if several are.

    Raises MissingKey, MissingExtra, or UsageError for an unknown provider.
    """
    environ = os.environ if environ is None else environ
    settings = Settings.load(environ=environ) if settings is None else settings
    name = (
        provider
        or settings.llm.provider
        or _by_address(settings.llm.base_url)
        or _by_key(environ)
        or DEFAULT
    )
    found = provider_settings(name, settings)
    base_url = settings.llm.base_url if _is_meant(name, settings) else None
    found = msgspec.structs.replace(
        found,
        base_url=base_url or found.base_url,
        model=model or (settings.llm.model if _is_meant(name, settings) else None) or found.model,
    )
    if found.protocol == "scripted":
        return _scripted(name, found)
    if not found.model:
        raise UsageError(
            f"the provider {name!r} has no model", fix=f"set providers.{name}.model or EM_LLM_MODEL"
        )
    # Other servers may have other prices.
    is_own = name in PROVIDERS and found.base_url == PROVIDERS[name].base_url
    price = found.price or (PRICES.get(found.model) if is_own else None)
    return Client(
        _wire(name, found, _key(name, found, environ)),
        provider=name,
        model=found.model,
        price=price,
        max_retries=found.max_retries,
        key_hint=" or ".join(filter(None, (found.key_env, KEY))),
    )


def _is_meant(name: str, settings: Settings) -> bool:
    """Whether `llm.model` and `llm.base_url` are meant for this provider."""
    return settings.llm.provider in (None, name)


def provider_settings(name: str, settings: Settings) -> ProviderSettings:
    """Return the settings of a provider; em.yaml overrides the built-in ones."""
    own, known = settings.providers.get(name), PROVIDERS.get(name)
    if own is None and known is None:
        names = sorted({*PROVIDERS, *settings.providers})
        hint = closest(name, names)
        raise UsageError(
            f"unknown provider {name!r}",
            place="providers",
            fix=f"{hint} known: {', '.join(names)}; declare others in em.yaml".strip(),
        )
    if own is None or known is None:
        found = own or known
        assert found is not None
    else:
        given = {field: getattr(own, field) for field in own.__struct_fields__}
        found = msgspec.structs.replace(
            known, **{field: value for field, value in given.items() if value is not None}
        )
    if found.protocol is None:
        protocol = _by_address(found.base_url)
        if protocol is None:
            raise UsageError(
                f"the provider {name!r} has no protocol",
                place=f"providers.{name}.protocol",
                fix="use anthropic, openai or scripted",
            )
        found = msgspec.structs.replace(found, protocol=protocol)
    return found


def _by_address(base_url: str | None) -> Literal["anthropic", "openai"] | None:
    """Return the protocol of an address by its ending, or None."""
    path = (base_url or "").rstrip("/")
    if path.endswith("/chat/completions"):
        return "openai"
    return "anthropic" if path.endswith("/messages") else None


def _by_key(environ: Mapping[str, str]) -> str | None:
    """Return the built-in provider whose key is set, if it is the only one."""
    if environ.get(KEY):
        return None
    known = [name for name, one in PROVIDERS.items() if one.key_env and environ.get(one.key_env)]
    return known[0] if len(known) == 1 else None


def _key(name: str, found: ProviderSettings, environ: Mapping[str, str]) -> str:
    key = environ.get(KEY) or environ.get(found.key_env or "")
    if key:
        return _checked_key(key.strip(), name)
    if found.key_env is None:
        return NO_KEY
    others = [
        other
        for other, known in PROVIDERS.items()
        if other != name and known.key_env and environ.get(known.key_env)
    ]
    fix = f"set {found.key_env} (or {KEY})"
    if others:
        fix += f", or EM_LLM_PROVIDER={others[0]}, which has a key"
    raise MissingKey(f"the provider {name!r} has no key", place=name, fix=fix)


def _checked_key(key: str, name: str) -> str:
    """Return a key that is valid in a header; the error does not show it."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            f"the key for the provider {name!r} has invalid characters",
            place=name,
            fix="copy it again; shortened keys have an ellipsis",
        )
    return key


def _wire(name: str, found: ProviderSettings, key: str) -> Wire:
    assert found.model is not None
    if not found.base_url:
        raise UsageError(
            f"the provider {name!r} has no address", fix=f"set providers.{name}.base_url"
        )
    if found.protocol == "anthropic":
        return AnthropicWire(
            key=key,
            base_url=anthropic_address(found.base_url),
            model=found.model,
            timeout=found.timeout,
        )
    return OpenAIWire(
        key=key,
        base_url=openai_address(found.base_url),
        model=found.model,
        timeout=found.timeout,
        new_limit=name == "openai",
    )


def _scripted(name: str, found: ProviderSettings) -> LlmClient:
    if not found.base_url:
        raise UsageError(
            "a scripted provider needs its script",
            place=name,
            fix="set EM_LLM_BASE_URL (or base_url in em.yaml) to a JSON file: a list of replies",
        )
    return ScriptedClient.from_file(found.base_url, provider=name, model=found.model or name)


def anthropic_address(base_url: str) -> str:
    """Return the address to which Anthropic's SDK adds `/v1/messages`."""
    address = _checked(base_url)
    return address.removesuffix("/messages").removesuffix("/v1")


def openai_address(base_url: str) -> str:
    """Return the address to which OpenAI's SDK adds `/chat/completions`; `/v1` is the default."""
    address = _checked(base_url).removesuffix("/chat/completions")
    return address if urlsplit(address).path.strip("/") else f"{address}/v1"


def _checked(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(
            f"expected the address of a server, got {base_url!r}",
            place="base_url",
            fix="write https://HOST/v1",
        )
    return base_url.rstrip("/")


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
