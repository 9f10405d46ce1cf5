"""A learnt routine with everything that its page shows; `word` stands in each text of it."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from em import Memory
from em.log.event import Draft, run_stream
from em.runner.package import PROOF, ROUTINE, keep_routine
from em.runner.trial import AS_RECORDED, LEFT_OUT, Proof, Trial, hash_of, render_proof

UDF = """\
def look(order_id):
    return {"total": 80, "status": "open"}


def pay(order_id, amount, note):
    return f"{amount} for {order_id}: {note}"
"""
TRIED = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)


def keep(memory: Memory, word: str = "") -> str:
    """Store a routine that was tried on two traces and run twice; return the id of its trace."""
    goal = f"Refund W-1001 {word}".strip()
    event = {"type": "tool_call", "tool": "look", "args": {"order_id": "W-1001"}, "result": {}}
    trace = memory.add_trace(
        {"version": "1", "mission": {"goal": goal}, "events": [event], "outcome": "success"}
    )
    text = msgspec.yaml.encode(_routine(word)).decode()
    handed = Trial("a-trace-from-elsewhere", "handed over", f"channel is not said {word}")
    proof = Proof(
        at=TRIED,
        routine=hash_of(text),
        trials={
            AS_RECORDED: [Trial(trace, "right"), Trial(handed.trace, "right")],
            LEFT_OUT: [Trial(trace, "right"), handed],
        },
    )
    example = {"order_id": "W-1001", "limit": 100}
    files = {
        ROUTINE: text,
        "udf.py": UDF,
        "input.json": msgspec.json.encode(example).decode(),
        PROOF: render_proof(proof),
    }
    (kept,) = [one for one in memory.traces() if one.id == trace]
    keep_routine(memory.store, files, kept.event_ids)
    failure = {"step_id": "pay", "error_type": "ToolError", "message": f"closed {word}"}
    reason = {"step_id": "check", "check": "order.total > 0", "message": f"paid {word}"}
    memory.log.append_many(_run("stopped", {"status": "needs_input", "reason": reason}))
    memory.log.append_many(
        _run("broken", {"status": "failed", "failure": {**failure, "context": {}}})
    )
    return trace


def _routine(word: str) -> dict[str, Any]:
    bare = word.replace("{{", "{").replace("}}", "}")  # an expression can't hold these
    note = msgspec.json.encode(f"no {bare}".strip()).decode()
    return {
        "name": "refund",
        "description": f"Pay an order back {word}".strip(),
        "checks": "hand_over",
        "input_schema": {
            "type": "object",
            "properties": {
                "order_id": {"type": "string", "description": f"Its number {word}"},
                "limit": {"type": "integer", "enum": [100, 500], "default": 100},
            },
            "required": ["order_id"],
        },
        "steps": [
            {"id": "order", "type": "udf.call", "function": "look", "save_as": "order",
             "args": {"order_id": "{{ order_id }}"}, "held": "2/2",
             "expect": {"properties": {"status": {"const": "open"}}}},
            {"id": "check", "type": "assert", "check": "order.total > 0", "held": "2/2"},
            {"id": "noted", "type": "assert", "check": f"order.status != {note}", "held": "2/2"},
            {"id": "pay", "type": "udf.call", "function": "pay", "save_as": "paid",
             "args": {"order_id": "{{ order_id }}", "amount": "{{ order.total }}",
                      "note": f"as agreed {bare}".strip()}},
            {"id": "end", "type": "return", "value": "{{ paid }}"},
        ],
    }  # fmt: skip


def _run(run_id: str, ended: dict[str, Any]) -> list[Draft]:
    stream = run_stream(run_id)
    started = {"routine": "refund", "hash": "", "stored": "refund@1", "input": {}}
    return [
        Draft(stream=stream, kind="run_started", body=started),
        Draft(stream=stream, kind="run_ended", body=ended),
    ]
