"""Forms: built from an input schema or the fields of a prompt, and read back."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Response

from em.errors import Forbidden, InputError
from em.runner.answers import fields_of
from em.serve.auth import Caller
from em.serve.pages.view import cookie_of, sessions_of
from em.serve.service import AnyRequest, Service, service_of
from em.values.canonical import Json


async def form_of(request: AnyRequest) -> dict[str, Any]:
    """Return the fields of a form, or raise Forbidden if another site sent it."""
    _refuse_other_sites(request)
    form = await request.form()
    given = {name: form.getall(name) for name in form}
    found = {name: values[0] if len(values) == 1 else values for name, values in given.items()}
    sessions_of(request).check_form(cookie_of(request), str(found.get("form_token", "")))
    return found


Do = Callable[[Service, Json, Caller], Response[str]]


async def acted(request: AnyRequest, do: Do) -> Response[str]:
    """Check a form and who sent it, then do in a thread what it asks for."""
    form = await form_of(request)
    service = service_of(request)
    return await asyncio.to_thread(do, service, form, service.caller(request, "write"))


def _refuse_other_sites(request: AnyRequest) -> None:
    """Check the headers by which a browser names the site of a form; `none` is a direct visit."""
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin", "")
    ours = not origin or origin.partition("://")[2] == request.headers.get("host", "")
    if site not in ("same-origin", "none") or not ours:
        raise Forbidden("forms of other sites are not accepted", place="Origin")


PREFIX = "field."
"""Prefix of the routine's fields, so that none collides with a field of ours."""
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_PROMPTS = {"confirm": "boolean"}


class FormField(NamedTuple):
    """One field to fill in."""

    name: str
    label: str
    kind: str
    required: bool
    value: str = ""
    options: Sequence[str] = ()
    help: str = ""
    is_json: bool = False
    """Whether the options are written as JSON: numbers, or yes and no."""

    @property
    def input_name(self) -> str:
        """The field's name in the form."""
        return PREFIX + self.name


def input_fields(schema: Any, example: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of an input schema, filled in with an example."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        properties = {name: {} for name in example}
    required = schema.get("required", []) if isinstance(schema, dict) else []
    return [
        _from_schema(str(name), part if isinstance(part, dict) else {}, name in required, example)
        for name, part in properties.items()
    ]


def _from_schema(
    name: str, part: Mapping[str, Any], required: bool, example: Mapping[str, Any]
) -> FormField:
    options, kind, is_json = _kind_of(part)
    value = example.get(name, part.get("default"))
    if kind == "text" and not isinstance(value, str | None):
        kind = "json"
    shown = _json(value) if is_json and value is not None else _shown(value)
    help_ = str(part.get("description", ""))
    return FormField(name, name, kind, required, shown, options, help_, is_json)


def _kind_of(part: Mapping[str, Any]) -> tuple[Sequence[str], str, bool]:
    """Return the options of a field, its kind, and whether the options are JSON."""
    options = [part["const"]] if "const" in part else part.get("enum")
    if isinstance(options, list) and options:
        if all(isinstance(one, str) for one in options):
            return options, "select", False
        if not any(isinstance(one, dict | list) for one in options):
            return [_json(one) for one in options], "select", True
    types = part.get("type")
    known = [one for one in types if one != "null"] if isinstance(types, list) else [types]
    return (), _KINDS.get(str(known[0]), "json") if len(known) == 1 else "json", False


def prompt_fields(fields: Sequence[Json]) -> list[FormField]:
    """Return the fields of a prompt."""
    return [
        FormField(
            field.name,
            field.label,
            _PROMPTS.get(field.type, field.type),
            field.required,
            _shown(field.filled),
            field.option_texts,
        )
        for field in fields_of(fields)
    ]


def read_fields(fields: Sequence[FormField], form: Mapping[str, Any]) -> Json:
    """Convert the submitted text to values. Empty fields are omitted."""
    found: Json = {}
    for field in fields:
        given = form.get(field.input_name)
        if field.kind == "multiselect":
            chosen = given if isinstance(given, list) else [given]
            found[field.name] = [str(one) for one in chosen if one]
        elif given is not None and str(given) != "":
            found[field.name] = _value(field, str(given))
        elif field.required and field.kind == "text":
            found[field.name] = ""
    return found


def _value(field: FormField, text: str) -> Any:
    if field.kind in ("text", "select", "secret") and not field.is_json:
        return text.replace("\r\n", "\n")
    if field.kind == "boolean":
        return text == "true"
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        expected = "a number" if field.kind in ("number", "integer") else "JSON"
        raise InputError(
            f"{text[:60]!r} is not {expected}", place=field.name, fix='put text in quotes: "…"'
        ) from None


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
