"""The Chat Completions protocol of OpenAI, which many servers speak, through its SDK."""

import re
import weakref
from typing import Any

from em.errors import MissingExtra
from em.llm.client import all_required, is_closed
from em.llm.interface import Reply, Request, Tokens, WireError
from em.llm.sdk_errors import told_as_wire_errors, told_if_misshaped
from em.values.canonical import Json

STOPS = {"stop": "end", "length": "max_tokens"}
NEW_LIMIT, OLD_LIMIT = "max_completion_tokens", "max_tokens"


class OpenAIWire:
    """Speaks to one model. Retries are the client's.

    new_limit: OpenAI's models that reason take only `max_completion_tokens`, many other servers
    only `max_tokens`; where the server asks for the former, it is used from then on.
    """

    def __init__(
        self, *, key: str, base_url: str, model: str, timeout: float, new_limit: bool
    ) -> None:
        try:
            import openai
        except ImportError:
            raise MissingExtra("openai", "asking a model over OpenAI's protocol") from None
        self._sdk = openai
        self._key = key
        self._model = model
        self._limit = NEW_LIMIT if new_limit else OLD_LIMIT
        self._client = openai.OpenAI(api_key=key, base_url=base_url, timeout=timeout, max_retries=0)
        weakref.finalize(self, self._client.close)

    def fits(self, schema: Json) -> bool:
        """`response_format` takes any schema of an object."""
        return schema.get("type") == "object"

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Send it once."""
        try:
            with told_as_wire_errors(self._sdk, self._key):
                options = self._options(request, structured)
                completion = self._client.chat.completions.create(**options)
        except WireError as error:
            if error.status == 400 and self._limit == OLD_LIMIT and NEW_LIMIT in error.message:
                self._limit = NEW_LIMIT
                raise WireError(error.message, status=400, adapted=True) from None
            raise
        with told_if_misshaped():
            return _reply(completion)

    def _options(self, request: Request, structured: bool) -> dict[str, Any]:
        messages = [{"role": turn.role, "content": turn.text} for turn in request.messages]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        options: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            self._limit: request.max_tokens,
        }
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if structured and request.schema is not None:
            form = {
                "name": re.sub(r"[^A-Za-z0-9_-]+", "_", request.name)[:64] or "answer",
                "schema": request.schema,
                "strict": is_closed(request.schema) and all_required(request.schema),
            }
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        return options


def _reply(completion: Any) -> Reply:
    choice = completion.choices[0]
    stop = str(choice.finish_reason or "stop")
    refusal = choice.message.refusal
    if refusal is None and stop == "content_filter":
        refusal = choice.message.content or ""
    return Reply(
        text=choice.message.content or "",
        stop=STOPS.get(stop, stop),
        usage=_usage(getattr(completion, "usage", None)),
        model=str(completion.model or ""),
        refusal=refusal,
    )


def _usage(usage: Any) -> Tokens | None:
    if usage is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return Tokens(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)
