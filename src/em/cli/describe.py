"""An event in one line, for people."""

from typing import Any

import msgspec

from em.log.event import Event

MAX_CHARS = 400


def in_one_line(event: Event) -> str:
    """What happened, as somebody would tell it; the JSON of a kind that em does not know."""
    if event.body is None:
        return "(erased)"
    try:
        text = _TELL.get(event.kind, _json)(event.body)
    except (KeyError, TypeError, AttributeError):
        text = _json(event.body)  # an unusual body is shown as it is
    return text[:MAX_CHARS]


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _call(body: dict[str, Any]) -> str:
    name = body.get("tool") or body["function"]
    arguments = ", ".join(f"{key}={_json(value)}" for key, value in body.get("args", {}).items())
    if body.get("error") is not None:
        return f"{name}({arguments}) failed: {_json(body['error'])}"
    return f"{name}({arguments}) → {_json(body.get('result'))}"


def _observation(body: dict[str, Any]) -> str:
    who = f"{body['speaker']}: " if body.get("speaker") else ""
    what = f"{body['type']} " if body.get("type") else ""
    return who + (body["text"] if body.get("text") is not None else what + _json(body["record"]))


def _ended(body: dict[str, Any]) -> str:
    output = body.get("output")
    return body["outcome"] if output is None else f"{body['outcome']}: {_json(output)}"


_TELL = {
    "approval": lambda body: f"{body['prompt']} {_json(body.get('answer'))}",
    "erased": lambda body: f"{len(body['events'])} erased {body.get('reason', '')}".rstrip(),
    "message": lambda body: f"{body['role']}: {body['text']}",
    "observation": _observation,
    "tool_call": _call,
    "trace_ended": _ended,
    "trace_started": lambda body: str(body["goal"]),
    "udf_call": _call,
}
