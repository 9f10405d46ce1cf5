"""A routine with everything that its page shows; `word` stands in each text of it."""

from typing import Any

import msgspec

from em import Memory
from em.log.event import Draft, run_stream
from em.runner.package import ROUTINE, TRIALS, keep_routine, render_trials
from em.runner.trial import Trial, Trials

UDF = """\
def look(order_id):
    return {"total": 80, "status": "open"}


def pay(order_id, amount, note):
    return f"{amount} for {order_id}: {note}"
"""


def keep(memory: Memory, word: str = "") -> str:
    """Store a routine that was tried on two traces and run once; return the id of its trace."""
    goal = f"Refund W-1001 {word}".strip()
    event = {"type": "tool_call", "tool": "look", "args": {"order_id": "W-1001"}, "result": {}}
    trace = memory.add_trace(
        {"version": "1", "mission": {"goal": goal}, "events": [event], "outcome": "success"}
    )
    text = msgspec.yaml.encode(_routine(word)).decode()
    trials = Trials(
        [
            Trial(trace, "right"),
            Trial("a-trace-from-elsewhere", "handed over", f"channel is not said {word}"),
        ]
    )
    example = {"order_id": "W-1001", "limit": 100, "note": f"as agreed {word}"}
    files = {
        ROUTINE: text,
        "udf.py": UDF,
        "input.json": msgspec.json.encode(example).decode(),
        TRIALS: render_trials(trials, text),
    }
    (kept,) = [one for one in memory.traces() if one.id == trace]
    keep_routine(memory.store, files, kept.event_ids)
    memory.log.append_many(_run("stopped", "GuardFailed", word))
    memory.log.append_many(_run("broken", "ToolError", word))
    return trace


def _routine(word: str) -> dict[str, Any]:
    bare = word.replace("{{", "{").replace("}}", "}")  # an expression can't hold these
    return {
        "name": "refund",
        "description": f"Pay an order back {word}".strip(),
        "input_schema": {
            "type": "object",
            "properties": {
                "order_id": {"type": "string", "description": f"Its number {word}"},
                "limit": {"type": "integer", "enum": [100, 500], "default": 100},
                "note": {"type": "string"},
            },
            "required": ["order_id"],
        },
        "asks": {
            "note": {
                "recorded": f"as agreed {bare}".strip(),
                "candidates": ["order.status", _quoted(f"as agreed {bare}".strip())],
            }
        },
        "steps": [
            {"id": "look", "type": "udf.call", "function": "look", "save_as": "order",
             "args": {"order_id": "{{ order_id }}"}},
            {"id": "pay", "type": "udf.call", "function": "pay", "save_as": "paid",
             "args": {"order_id": "{{ order_id }}", "amount": "{{ order.total }}",
                      "note": "{{ note }}"},
             "agree": {"amount": ["limit", "100"]},
             "guards": ['order.status == "open"', f"note != {_quoted(f'no {bare}')}"]},
            {"id": "end", "type": "return", "value": "{{ paid }}"},
        ],
    }  # fmt: skip


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _run(run_id: str, error: str, word: str) -> list[Draft]:
    stream = run_stream(run_id)
    started = {"routine": "refund", "hash": "", "stored": "refund@1", "input": {}}
    failure = {
        "step_id": "pay",
        "error_type": error,
        "message": f"it is closed {word}",
        "context": {},
    }
    ended = {"status": "failed", "failure": failure}
    return [
        Draft(stream=stream, kind="run_started", body=started),
        Draft(stream=stream, kind="run_ended", body=ended),
    ]
