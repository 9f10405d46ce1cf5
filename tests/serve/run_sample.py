"""A routine that a page can start, hold, cancel, fail and retry; its tools are programs."""

import os
from pathlib import Path
from typing import Any

import msgspec

from em import Memory
from em.runner.package import keep_routine

SETTINGS = "allow: {commands: [mkdir, cat]}\n"


def keep_parcel(memory: Memory, word: str = "") -> str:
    """Keep a routine: ask, make the folder `made`, read from the pipe `gate`, read `label.txt`."""
    field = {"name": "ok", "type": "confirm", "label": f"Agreed {word}".strip()}
    message = f"Pack {{{{ parcel }}}}? {word}".strip()
    prompt = {"message": message.replace("{{ 7*7 }}", "7*7"), "fields": [field]}
    routine = {
        "version": "1",
        "name": "parcel",
        "description": f"Pack a parcel {word}".strip(),
        "input_schema": {
            "type": "object",
            "properties": {"parcel": {"type": "string"}},
            "required": ["parcel"],
        },
        "tools": [
            {"name": "make", "command": ["mkdir", "--", "made"], "output": "text"},
            {"name": "hold", "command": ["cat", "--", "gate"], "output": "text", "effect": "read"},
            {"name": "label", "command": ["cat", "label.txt"], "output": "text", "effect": "read"},
        ],
        "steps": [
            {"id": "agree", "type": "prompt.user", "save_as": "said", "prompt": prompt},
            {"id": "make", "type": "tool.call", "tool": "make", "effect": "write"},
            {
                "id": "hold",
                "type": "tool.call",
                "tool": "hold",
                "save_as": "held",
                "timeout": 3600,
            },
            {"id": "label", "type": "tool.call", "tool": "label", "save_as": "label"},
            {"id": "done", "type": "return", "value": "{{ label }}"},
        ],
    }
    files = {"routine.yaml": msgspec.yaml.encode(routine).decode()}
    return keep_routine(memory.store, files).ref


def prepare(folder: Path, word: str = "") -> dict[str, Any]:
    """Set up a folder for the service; the input of the routine."""
    (folder / "em.yaml").write_text(SETTINGS)
    os.mkfifo(folder / "gate")
    with Memory(folder / "em.db") as memory:
        keep_parcel(memory, word)
    return {"parcel": f"P-1 {word}".strip()}


def release(folder: Path, text: str = "go") -> None:
    """Let the step go on that reads from the pipe; waits until it does."""
    with (folder / "gate").open("w") as gate:
        gate.write(text)
