"""The Messages protocol of Anthropic, through its SDK."""

import weakref
from typing import Any

from em.errors import MissingExtra
from em.llm.client import is_closed
from em.llm.interface import Reply, Request, Tokens
from em.llm.sdk_errors import told_as_wire_errors, told_if_misshaped
from em.values.canonical import Json

STOPS = {"end_turn": "end", "stop_sequence": "end"}


class AnthropicWire:
    """Speaks to one model. Retries are the client's."""

    def __init__(self, *, key: str, base_url: str, model: str, timeout: float) -> None:
        try:
            import anthropic
        except ImportError:
            raise MissingExtra("anthropic", "asking a model over Anthropic's protocol") from None
        self._sdk = anthropic
        self._key = key
        self._model = model
        self._client = anthropic.Anthropic(
            api_key=key, base_url=base_url, timeout=timeout, max_retries=0
        )
        weakref.finalize(self, self._client.close)

    def fits(self, schema: Json) -> bool:
        """`output_config` takes schemas whose objects name all that may stand in them."""
        return is_closed(schema)

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Send it once."""
        with told_as_wire_errors(self._sdk, self._key):
            message = self._client.messages.create(**self._options(request, structured))
        with told_if_misshaped():
            return _reply(message)

    def _options(self, request: Request, structured: bool) -> dict[str, Any]:
        messages = [{"role": turn.role, "content": turn.text} for turn in request.messages]
        options: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": request.max_tokens,
        }
        if request.system:
            options["system"] = request.system
        if request.temperature is not None:
            # The SDK has no such argument any more; servers with other models still take it.
            options["extra_body"] = {"temperature": request.temperature}
        if structured and request.schema is not None:
            # Not a forced tool: models that always think refuse one. The SDK takes out of the
            # schema what the server would not enforce; the client checks all of it.
            schema = self._sdk.transform_schema(request.schema)
            options["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return options


def _reply(message: Any) -> Reply:
    text = "".join(block.text for block in message.content if block.type == "text")
    stop = str(message.stop_reason or "end_turn")
    return Reply(
        text=text,
        stop=STOPS.get(stop, stop),
        usage=_usage(getattr(message, "usage", None)),
        model=str(message.model or ""),
        refusal=text if stop == "refusal" else None,
    )


def _usage(usage: Any) -> Tokens | None:
    if usage is None:
        return None
    cached = usage.cache_read_input_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    return Tokens((usage.input_tokens or 0) + cached + written, usage.output_tokens or 0, cached)
