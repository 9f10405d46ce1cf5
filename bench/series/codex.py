"""The same work as Codex does it: with a shell, patches and `sed -i`. em is not made for this one.

Files are read with `cat` and `sed -n`, changed with `apply_patch` or `sed -i`, and searched with
`grep`. The style of the first series was there when em learnt to read sessions; this one was
written afterwards.
"""

import json
import random
import subprocess
import uuid
from pathlib import Path
from typing import Any

from bench.series.projects import Task

Object = dict[str, Any]


class Agent:
    """Works in a folder, and writes down what it does as Codex does."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.folder, self.cwd = folder, f"/srv/shop/{task.name.partition('-')[2]}"
        self._day, self._second, self._calls = task.day, 0, 0
        self.lines: list[Object] = []
        session = str(uuid.uuid5(uuid.NAMESPACE_DNS, task.name))
        self._add("session_meta", {"id": session, "cwd": self.cwd, "cli_version": "0.166.0"})
        self._add("response_item", _message("user", task.request))

    def say(self, text: str) -> None:
        """Say something."""
        self._add("response_item", _message("assistant", text))

    def run(self, command: str) -> str:
        """Run a command."""
        done = subprocess.run(
            ["/bin/bash", "-c", command], cwd=self.folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        text = (done.stdout + done.stderr).replace(str(self.folder), self.cwd)
        given = {"cmd": command, "workdir": self.cwd, "yield_time_ms": 1000}
        call = self._call("function_call", name="exec_command", arguments=json.dumps(given))
        head = "Chunk ID: 3e7552\nWall time: 0.1000 seconds\n"
        head += f"Process exited with code {done.returncode}\nOriginal token count: 20\nOutput:\n"
        self._result("function_call_output", call, head + text)
        return text

    def patch(self, path: str, old: str, new: str, *, context: int = 2) -> None:
        """Replace lines of a file by a patch, with some lines around them."""
        before = (self.folder / path).read_text()
        after = before.replace(old, new)
        (self.folder / path).write_text(after)
        lines = before.split("\n")
        gone, came = old.split("\n"), new.split("\n")
        at = next(n for n in range(len(lines)) if lines[n : n + len(gone)] == gone)
        while gone and came and gone[0] == came[0]:
            gone, came, at = gone[1:], came[1:], at + 1
        while gone and came and gone[-1] == came[-1]:
            gone, came = gone[:-1], came[:-1]
        end = at + len(gone)
        body = [f" {line}" for line in lines[max(0, at - context) : at]]
        body += [f"-{line}" for line in gone] + [f"+{line}" for line in came]
        body += [f" {line}" for line in lines[end : min(end + context, len(lines) - 1)]]
        text = "\n".join(
            ["*** Begin Patch", f"*** Update File: {path}", "@@", *body, "*** End Patch"]
        )
        call = self._call("custom_tool_call", name="apply_patch", input=text)
        done = json.dumps({
            "output": f"Success. Updated the following files:\nM {path}\n",
            "metadata": {"exit_code": 0, "duration_seconds": 0.0},
        })  # fmt: skip
        self._result("custom_tool_call_output", call, done)

    def _call(self, kind: str, **fields: Any) -> str:
        self._calls += 1
        call = f"call_{self._calls:03}"
        self._add("response_item", {"type": kind, "call_id": call, **fields})
        return call

    def _result(self, kind: str, call: str, output: str) -> None:
        self._add("response_item", {"type": kind, "call_id": call, "output": output})

    def _add(self, kind: str, payload: Object) -> None:
        self._second += 5
        minute, second = divmod(self._second, 60)
        at = f"{self._day}T12:{minute:02}:{second:02}.000Z"
        self.lines.append({"timestamp": at, "type": kind, "payload": payload})

    def text(self) -> str:
        """Return the session file."""
        return "".join(f"{json.dumps(line)}\n" for line in self.lines)


def _message(role: str, text: str) -> Object:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _look(agent: Agent, draw: random.Random) -> None:
    for command in draw.sample(["ls", "ls -la src", "cat README.md", "git status", "pwd"], 2):
        agent.run(command)


def bump(agent: Agent, task: Task, seed: int) -> None:
    """Bump the version and write the changelog, by `sed -i` or by patches."""
    draw, value = random.Random(seed + 100), task.values
    _look(agent, draw)
    agent.run('grep -rn "__version__ =" .')
    init, log = f"{value['base']}/__init__.py", value["log"]
    agent.run(f"cat {init}")
    agent.run("sed -n '1,80p' pyproject.toml")
    for path, name in ((init, "__version__"), ("pyproject.toml", "version")):
        if seed % 2:
            agent.run(f'sed -i \'s/{name} = "{value["old"]}"/{name} = "{value["new"]}"/\' {path}')
        else:
            old = f'{name} = "{value["old"]}"'
            agent.patch(path, old, old.replace(value["old"], value["new"]))
    agent.run(f"cat {log}")
    text = (agent.folder / log).read_text()
    head = text[text.index("\n## ") + 1 :].partition("\n")[0]
    agent.patch(log, head, f"## {value['new']} ({task.day})\n\n- {value['note']}\n\n{head}")
    agent.run("git diff --stat")
    agent.say("Done.")


def fix_import(agent: Agent, task: Task, seed: int) -> None:
    """Find the failing test, fix the import, run again."""
    draw, value = random.Random(seed + 100), task.values
    _look(agent, draw)
    agent.run("pytest -q")
    agent.run(f"cat {value['test']}")
    agent.run(f"grep -rn 'def {value['function']}' .")
    old = f"from {value['gone']} import {value['function']}"
    if seed % 3:
        agent.patch(value["test"], old, old.replace(value["gone"], value["now"]))
    else:
        agent.run(f"sed -i 's/{value['gone']}/{value['now']}/' {value['test']}")
    agent.run("pytest -q")
    agent.say("The tests pass.")
