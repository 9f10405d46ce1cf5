"""Sessions made for measuring: opencode, pi, today's Codex, mini-swe-agent and tau-bench.

The form is that of files which these programs wrote themselves; the content is drawn at random, so
that the count is not of one small sample. Two calls of a turn run in parallel, and their results
come in another order.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]
TURNS = 40


class Ran(NamedTuple):
    """A command and what came of it."""

    id: str
    command: str
    code: int
    output: str


def turns(seed: int) -> list[list[Ran]]:
    """The calls of a session, turn by turn; the last one is a test run."""
    draw = random.Random(seed)
    made: list[list[Ran]] = []
    for turn in range(TURNS):
        made.append([
            Ran(
                f"call_{seed}_{turn}_{number}",
                draw.choice(["ls -la", "cat notes.txt", "grep -c x a.txt", "pytest -q", "make"]),
                draw.choice([0, 0, 0, 1, 2]),
                draw.choice(["Errors: 0, warnings: 2\n", "Error: a line of a log\n", "ok\n", "{}"]),
            )
            for number in range(draw.choice([1, 1, 2, 3]))
        ])  # fmt: skip
    return [*made, [Ran(f"call_{seed}_last", "cd src && pytest -q", seed % 2, "3 passed\n")]]


def sessions() -> Iterator[tuple[str, str]]:
    """Yield the name of a format and the text of a session."""
    for seed in range(4):
        made = turns(seed)
        yield "codex", _lines(_codex(made))
        yield "opencode", json.dumps(_opencode(made), indent=2)
        yield "pi", _lines(_pi(made))
        yield "mini_swe_agent", json.dumps(_mini(made))
    yield "tau_bench", json.dumps([_tau(seed) for seed in range(20)])


def _lines(values: Iterator[Object]) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


def _codex(made: list[list[Ran]]) -> Iterator[Object]:
    def row(kind: str, payload: Object) -> Object:
        return {"timestamp": "2026-11-16T02:20:32.110Z", "type": kind, "payload": payload}

    session = made[-1][0].id
    yield row("session_meta", {"id": session, "cwd": "/x", "cli_version": "0.166.0"})
    for turn in made:
        for ran in turn:
            args = json.dumps({"cmd": ran.command})
            yield row("response_item", {"type": "function_call", "name": "exec_command",
                                        "arguments": args, "call_id": ran.id})  # fmt: skip
        for ran in reversed(turn):
            item = {"type": "CommandExecution", "id": ran.id, "exit_code": ran.code,
                    "command": ["/bin/bash", "-lc", ran.command], "aggregated_output": ran.output,
                    "status": "failed" if ran.code else "completed"}  # fmt: skip
            yield row("event_msg", {"type": "item_completed", "item": item})
            text = (
                f"Chunk ID: 3e7552\nWall time: 0.0000 seconds\nProcess exited with code {ran.code}"
            )
            text += f"\nOriginal token count: 2\nOutput:\n{ran.output}"
            yield row("response_item", {"type": "function_call_output", "call_id": ran.id,
                                        "output": text})  # fmt: skip
    yield row("event_msg", {"type": "task_complete", "last_agent_message": "done"})


def _opencode(made: list[list[Ran]]) -> Object:
    def part(ran: Ran) -> Object:
        state = {"status": "completed", "input": {"command": ran.command}, "output": ran.output,
                 "metadata": {"exit": ran.code}, "time": {"start": 1, "end": 2}}  # fmt: skip
        return {"type": "tool", "tool": "bash", "callID": ran.id, "id": f"prt_{ran.id}",
                "state": state}  # fmt: skip

    session = f"ses_{made[-1][0].id}"
    messages = [
        {"info": {"role": "assistant", "id": f"msg_{n}"}, "parts": [part(ran) for ran in turn]}
        for n, turn in enumerate(made)
    ]
    return {"info": {"id": session, "directory": "/x"}, "messages": messages}


def _pi(made: list[list[Ran]]) -> Iterator[Object]:
    def entry(message: Object) -> Object:
        return {"type": "message", "id": "a1b2c3d4", "parentId": None, "message": message,
                "timestamp": "2026-11-16T02:20:38.009Z"}  # fmt: skip

    yield {"type": "session", "version": 3, "id": made[-1][0].id, "cwd": "/x",
           "timestamp": "2026-11-16T02:20:37.424Z"}  # fmt: skip
    for turn in made:
        calls = [{"type": "toolCall", "id": ran.id, "name": "bash",
                  "arguments": {"command": ran.command}} for ran in turn]  # fmt: skip
        yield entry({"role": "assistant", "content": calls})
        for ran in reversed(turn):
            text = (
                f"{ran.output}\n\nCommand exited with code {ran.code}" if ran.code else ran.output
            )
            yield entry({"role": "toolResult", "toolCallId": ran.id, "toolName": "bash",
                         "content": [{"type": "text", "text": text}],
                         "isError": ran.code != 0})  # fmt: skip


def _mini(made: list[list[Ran]]) -> Object:
    messages: list[Object] = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
    for turn in made:
        actions = [{"command": ran.command, "tool_call_id": ran.id} for ran in turn]
        messages.append({"role": "assistant", "content": "", "extra": {"actions": actions}})
        for ran in turn:
            extra = {"raw_output": ran.output, "returncode": ran.code}
            messages.append({"role": "tool", "tool_call_id": ran.id, "content": "see extra",
                             "extra": extra})  # fmt: skip
    return {"messages": messages, "info": {}, "trajectory_format": "mini-swe-agent-1.1"}


def _tau(seed: int) -> Object:
    traj: list[Object] = [{"role": "user", "content": "hello"}]
    for turn in turns(seed)[:6]:
        for ran in turn:
            call = {"id": ran.id, "type": "function",
                    "function": {"name": "get_order", "arguments": "{}"}}  # fmt: skip
            text = f"Error: no order {ran.id}" if ran.code else "Errors: 0, warnings: 2"
            traj.append({"role": "assistant", "content": None, "tool_calls": [call]})
            traj.append({"role": "tool", "tool_call_id": ran.id, "content": text})
    info = {"task": {"instruction": f"task {seed}"}}
    return {"task_id": seed, "reward": float(seed % 3 == 0), "info": info, "traj": traj, "trial": 0}
