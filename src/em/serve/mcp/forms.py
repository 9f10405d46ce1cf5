"""What a run asks a person, as a form that a client shows."""

from typing import Any

import msgspec
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from em.runner.run import PendingPrompt
from em.serve.mcp.desk import Context
from em.values.canonical import Json

_TYPES = {"number": "number", "integer": "integer", "confirm": "boolean"}
_PYTHON: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "string": (str,),
}


def may_be_asked(prompt: PendingPrompt) -> bool:
    """Whether a form may ask it: the protocol forbids forms to ask for secrets."""
    return not any(field.get("type") == "secret" for field in prompt.fields)


def can_ask(ctx: Context) -> bool:
    """Whether the client shows forms to a person."""
    capabilities = ctx.session.client_capabilities
    shown = None if capabilities is None else capabilities.elicitation
    # Who names no mode at all means forms: there was nothing else once.
    return shown is not None and (shown.form is not None or shown.url is None)


def request_for(prompt: PendingPrompt) -> ElicitRequest:
    """The form for a prompt."""
    return ElicitRequest(
        params=ElicitRequestFormParams(message=words_of(prompt), requested_schema=form_of(prompt))
    )


def words_of(prompt: PendingPrompt) -> str:
    """What is asked, and what was wrong with the answer before."""
    return f"{prompt.message} (not taken: {prompt.problem})" if prompt.problem else prompt.message


def form_of(prompt: PendingPrompt) -> Json:
    """The fields of a prompt as the schema of a form."""
    required = [
        field["name"]
        for field in prompt.fields
        if field.get("required", True) and field.get("default") is None
    ]
    properties = {field["name"]: _property(field) for field in prompt.fields}
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _property(field: Json) -> Json:
    kind = field.get("type", "text")
    title = str(field.get("label") or field["name"])
    options = [str(option) for option in field.get("options", ())]
    if kind == "multiselect":
        items: Json = {"type": "string", "enum": options}
        return {"type": "array", "title": title, "items": items}
    shape: Json = {"type": _TYPES.get(kind, "string"), "title": title}
    if kind == "select":
        shape["enum"] = options
    if kind == "json":
        shape["description"] = "as JSON"
    default = field.get("default")
    if kind == "select" and default is not None:
        default = str(default)
    if isinstance(default, _PYTHON[shape["type"]]):
        shape["default"] = default
    return shape


def answer_in(prompt: PendingPrompt, given: ElicitResult) -> Json | None:
    """What a person said to a prompt; None if they would not say."""
    if given.action != "accept":
        return None
    kinds = {field["name"]: field.get("type", "text") for field in prompt.fields}
    return {
        name: _value(kinds.get(name, "text"), value)
        for name, value in (given.content or {}).items()
        if value is not None
    }


def _value(kind: str, value: Any) -> Any:
    """A form has no field for JSON: it comes as a text."""
    if kind != "json" or not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
