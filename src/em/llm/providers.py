"""From settings and the environment to a client: which provider, where, with which key."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from em.errors import MissingKey, UsageError
from em.llm.client import PRICES, Client, LlmClient
from em.llm.wire import Wire
from em.settings import ProviderSettings, Settings

KEY = "EM_LLM_API_KEY"
"""Wins over the provider's own variable."""

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
"""What a server that asks for no key gets: the SDKs insist on one."""


def get_llm_client(
    provider: str | None = None,
    model: str | None = None,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> LlmClient:
    """A client for the provider that is named, or that the environment or em.yaml names.

    Raises MissingKey, MissingExtra, or UsageError for a provider that is not known.
    """
    environ = os.environ if environ is None else environ
    settings = Settings.load(environ=environ) if settings is None else settings
    name = provider or settings.llm.provider or _by_address(settings.llm.base_url) or DEFAULT
    found = _find(name, settings)
    base_url = settings.llm.base_url if _is_asked(name, settings) else None
    found = msgspec.structs.replace(
        found,
        base_url=base_url or found.base_url,
        model=model or (settings.llm.model if _is_asked(name, settings) else None) or found.model,
    )
    if found.protocol == "scripted":
        return _scripted(name, found)
    if not found.model:
        raise UsageError(
            f"the provider {name!r} has no model", fix=f"set providers.{name}.model or EM_LLM_MODEL"
        )
    # Another server may have other prices.
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


def _is_asked(name: str, settings: Settings) -> bool:
    """Whether `llm.model` and `llm.base_url` speak of this provider, not of another."""
    return settings.llm.provider in (None, name)


def _find(name: str, settings: Settings) -> ProviderSettings:
    """The provider's settings; what em.yaml says of a built-in one goes over what em knows."""
    own, known = settings.providers.get(name), PROVIDERS.get(name)
    if own is None and known is None:
        names = sorted({*PROVIDERS, *settings.providers})
        close = get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"there is no provider {name!r}",
            place="providers",
            fix=f"{hint}known are: {', '.join(names)}; others are named in em.yaml",
        )
    if own is None or known is None:
        found = own or known
        assert found is not None
    else:
        said = {field: getattr(own, field) for field in own.__struct_fields__}
        found = msgspec.structs.replace(
            known, **{field: value for field, value in said.items() if value is not None}
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
    """The protocol that an address tells by how it ends."""
    path = (base_url or "").rstrip("/")
    if path.endswith("/chat/completions"):
        return "openai"
    return "anthropic" if path.endswith("/messages") else None


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
        fix += f", or EM_LLM_PROVIDER={others[0]}, whose key is set"
    raise MissingKey(f"there is no key for the provider {name!r}", place=name, fix=fix)


def _checked_key(key: str, name: str) -> str:
    """A key that can stand in a header; the error does not show it."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            f"the key for the provider {name!r} has characters that no key has",
            place=name,
            fix="copy it again; a shortened one has an ellipsis in it",
        )
    return key


def _wire(name: str, found: ProviderSettings, key: str) -> Wire:
    assert found.model is not None
    if not found.base_url:
        raise UsageError(
            f"the provider {name!r} has no address", fix=f"set providers.{name}.base_url"
        )
    if found.protocol == "anthropic":
        from em.llm.wire import AnthropicWire

        return AnthropicWire(
            key=key,
            base_url=anthropic_address(found.base_url),
            model=found.model,
            timeout=found.timeout,
        )
    from em.llm.wire import OpenAIWire

    return OpenAIWire(
        key=key,
        base_url=openai_address(found.base_url),
        model=found.model,
        timeout=found.timeout,
        new_limit=name == "openai",
    )


def _scripted(name: str, found: ProviderSettings) -> LlmClient:
    from em.llm.script import ScriptedClient

    if not found.base_url:
        raise UsageError(
            "a scripted provider needs its script",
            place=name,
            fix="set EM_LLM_BASE_URL (or base_url in em.yaml) to a JSON file: a list of replies",
        )
    return ScriptedClient.from_file(found.base_url, provider=name, model=found.model or name)


def anthropic_address(base_url: str) -> str:
    """What Anthropic's SDK adds `/v1/messages` to."""
    address = _checked(base_url)
    return address.removesuffix("/messages").removesuffix("/v1")


def openai_address(base_url: str) -> str:
    """What OpenAI's SDK adds `/chat/completions` to: with `/v1` where no path is given."""
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
            f"{base_url!r} is no address of a server",
            place="base_url",
            fix="write it as https://HOST/v1",
        )
    return base_url.rstrip("/")
