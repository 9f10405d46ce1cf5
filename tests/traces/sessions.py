"""Small transcripts, made by hand, as each tool writes them."""

import json
from typing import Any


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


class ClaudeCode:
    """A session of Claude Code, line by line."""

    def __init__(self, session: str = "s1", **more: Any) -> None:
        self._session, self._more, self._number = session, more, 0

    def line(self, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {
                "id": f"msg_{self._number}",
                "usage": {"input_tokens": 90, "output_tokens": 10},
            }
        return {
            "type": kind,
            "uuid": f"{self._session}-{self._number}",
            "parentUuid": f"{self._session}-{self._number - 1}" if self._number > 1 else None,
            "sessionId": self._session,
            "isSidechain": False,
            "cwd": "/home/me/project",
            "timestamp": f"2025-06-01T10:{self._number // 60:02}:{self._number % 60:02}Z",
            "message": message,
            **self._more,
            **more,
        }

    def user(self, text: str, **more: Any) -> dict[str, Any]:
        return self.line("user", text, **more)

    def says(self, text: str) -> dict[str, Any]:
        return self.line("assistant", [{"type": "text", "text": text}])

    def calls(self, call_id: str, name: str, **args: Any) -> dict[str, Any]:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": args}
        return self.line("assistant", [block])

    def result(self, call_id: str, content: Any, **more: Any) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}
        return self.line("user", [block])


def order_session(session: str, order: str) -> list[dict[str, Any]]:
    """An agent that cancels an order, with one mistake on the way."""
    says = ClaudeCode(session)
    status = json.dumps({"order_id": f"#{order}", "status": "pending", "items": ["lamp", "rug"]})
    return [
        says.user(f"please cancel order #{order}"),
        says.calls("t1", "get_order", order_id=f"#{order}"),
        says.result("t1", status),
        says.calls("t2", "cancel_order", order_id=order, reason="no longer needed"),
        says.result("t2", "there is no such order", is_error=True),
        says.calls("t3", "cancel_order", order_id=f"#{order}", reason="no longer needed"),
        says.result("t3", json.dumps({"order_id": f"#{order}", "status": "cancelled"})),
        says.says("It is cancelled."),
    ]


def otlp(trace_id: str, order: str, *, start: int = 1_760_000_000) -> dict[str, Any]:
    """One agent's run as OTLP JSON: a model asks for two calls, and tools make them."""

    def attributes(**given: Any) -> list[dict[str, Any]]:
        return [
            {"key": name.replace("__", "."), "value": {"stringValue": value}}
            for name, value in given.items()
        ]

    def span(number: int, name: str, parent: str, **given: Any) -> dict[str, Any]:
        return {
            "traceId": trace_id,
            "spanId": f"{number:016x}",
            "parentSpanId": parent,
            "name": name,
            "startTimeUnixNano": str((start + number) * 10**9),
            "endTimeUnixNano": str((start + number) * 10**9 + 5 * 10**8),
            "attributes": attributes(**given),
            "status": {},
        }

    root = f"{1:016x}"
    status = json.dumps({"order_id": f"#{order}", "status": "pending"})
    asked = [{"role": "user", "parts": [{"type": "text", "content": f"cancel #{order}"}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "It is cancelled."}]}]
    spans = [
        span(1, "invoke_agent shop", "", gen_ai__operation__name="invoke_agent",
             gen_ai__agent__name="shop"),
        span(2, "chat m", root, gen_ai__operation__name="chat",
             gen_ai__input__messages=json.dumps(asked), gen_ai__usage__input_tokens="50"),
        span(3, "execute_tool get_order", root, gen_ai__operation__name="execute_tool",
             gen_ai__tool__name="get_order", gen_ai__tool__call__id="c1",
             gen_ai__tool__call__arguments=json.dumps({"order_id": f"#{order}"}),
             gen_ai__tool__call__result=status),
        span(4, "execute_tool cancel_order", root, gen_ai__operation__name="execute_tool",
             gen_ai__tool__name="cancel_order", gen_ai__tool__call__id="c2",
             gen_ai__tool__call__arguments=json.dumps({"order_id": f"#{order}"}),
             gen_ai__tool__call__result=json.dumps({"order_id": f"#{order}", "done": True})),
        span(5, "chat m", root, gen_ai__operation__name="chat",
             gen_ai__input__messages=json.dumps(asked),
             gen_ai__output__messages=json.dumps(answer), gen_ai__usage__input_tokens="70"),
    ]  # fmt: skip
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
