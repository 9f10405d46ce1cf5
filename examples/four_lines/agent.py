"""A small support agent on the Anthropic SDK, as people write them. It knows nothing of em."""

import json
import os
from pathlib import Path
from typing import Any

import anthropic

client = anthropic.Anthropic()
SHOP = Path(os.environ.get("SHOP", "shop.json"))


def get_order(order_id: str) -> dict[str, str]:
    """Look up an order."""
    orders: dict[str, dict[str, str]] = json.loads(SHOP.read_text())
    return {"order_id": order_id, **orders[order_id]}


def cancel_order(order_id: str, reason: str) -> dict[str, str]:
    """Cancel an order that is not sent yet."""
    orders = json.loads(SHOP.read_text())
    orders[order_id] = {"status": "cancelled", "reason": reason}
    SHOP.write_text(json.dumps(orders))
    return {"order_id": order_id, "status": "cancelled"}


FUNCTIONS: dict[str, Any] = {"get_order": get_order, "cancel_order": cancel_order}
ORDER = {"type": "string", "description": "such as #W1001"}
TOOLS: Any = [
    {
        "name": "get_order",
        "description": "Look up an order.",
        "input_schema": {
            "type": "object",
            "properties": {"order_id": ORDER},
            "required": ["order_id"],
        },
    },
    {
        "name": "cancel_order",
        "description": "Cancel an order that is not sent yet.",
        "input_schema": {
            "type": "object",
            "properties": {"order_id": ORDER, "reason": {"type": "string"}},
            "required": ["order_id", "reason"],
        },
    },
]


def agent(request: str) -> str:
    """Do what a customer asks for."""
    messages: list[Any] = [{"role": "user", "content": request}]
    while True:
        answer = client.messages.create(
            model="claude-sonnet-5-5", max_tokens=1024, tools=TOOLS, messages=messages
        )
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": json.dumps(FUNCTIONS[block.name](**block.input)),
            }
            for block in answer.content
            if block.type == "tool_use"
        ]
        if not results:
            return "".join(block.text for block in answer.content if block.type == "text")
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    import sys

    print(agent(sys.argv[1]))
