"""A scripted agent in place of Claude Code: its tools really run, and its session is a file.

The same work is done in different ways: which files it looks at, in which order, with which tool,
how much of the text around a change it repeats, and what it says in between.
"""

import json
import random
import re
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.series.projects import Task

Object = dict[str, Any]
HOME = "/home/dev/"


class Agent:
    """Works in a folder, and writes down what it does as Claude Code does."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.folder, self.cwd = folder, f"{HOME}{task.name.partition('-')[2]}"
        self._session = str(uuid.uuid5(uuid.NAMESPACE_URL, task.name))
        self.day, self._second = task.day, 0
        self.lines: list[Object] = []
        self._add("user", task.request)

    def say(self, text: str) -> None:
        """Say something."""
        self._add("assistant", [{"type": "text", "text": text}])

    def read(self, path: str) -> str:
        """Read a file with the tool Read."""
        lines = (self.folder / path).read_text().split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        text = "\n".join(f"{n:6}\N{RIGHTWARDS ARROW}{line}" for n, line in enumerate(lines, 1))
        self._call("Read", {"file_path": f"{self.cwd}/{path}"}, text)
        return text

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text in a file with the tool Edit."""
        before = (self.folder / path).read_text()
        assert before.count(old) == 1, (path, old)
        (self.folder / path).write_text(before.replace(old, new))
        given = {"file_path": f"{self.cwd}/{path}", "old_string": old, "new_string": new}
        self._call("Edit", given, f"The file {self.cwd}/{path} has been updated.")

    def write(self, path: str, text: str) -> None:
        """Write a file with the tool Write."""
        (self.folder / path).write_text(text)
        given = {"file_path": f"{self.cwd}/{path}", "content": text}
        self._call("Write", given, f"The file {self.cwd}/{path} has been updated.")

    def create(self, path: str, text: str) -> None:
        """Write a new file with the tool Write."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)
        given = {"file_path": f"{self.cwd}/{path}", "content": text}
        self._call("Write", given, f"File created successfully at: {self.cwd}/{path}")

    def bash(self, command: str, description: str = "") -> str:
        """Run a command with the tool Bash."""
        done = subprocess.run(
            ["/bin/bash", "-c", command.replace(self.cwd, str(self.folder))],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        text = (done.stdout + done.stderr).strip("\n").replace(str(self.folder), self.cwd)
        given = {"command": command, "description": description or "Run a command"}
        if done.returncode:
            self._call("Bash", given, f"Exit code {done.returncode}\n{text}", failed=True)
        else:
            self._call("Bash", given, text)
        return text

    def grep(self, pattern: str) -> str:
        """Search with the tool Grep."""
        found = []
        for path in sorted(self.folder.rglob("*.py")):
            for number, line in enumerate(path.read_text().split("\n"), 1):
                if re.search(pattern, line):
                    found.append(f"{path.relative_to(self.folder)}:{number}:{line}")
        text = "\n".join(found) or "No matches found"
        self._call("Grep", {"pattern": pattern, "output_mode": "content", "-n": True}, text)
        return text

    def _call(self, name: str, given: Object, result: str, *, failed: bool = False) -> None:
        call_id = f"toolu_{len(self.lines):04}"
        self._add("assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": given}])
        block: Object = {"type": "tool_result", "tool_use_id": call_id, "content": result}
        self._add("user", [{**block, "is_error": True} if failed else block])

    def _add(self, role: str, content: Any) -> None:
        self._second += 7
        minute, second = divmod(self._second, 60)
        before = self.lines[-1]["uuid"] if self.lines else None
        self.lines.append({
            "parentUuid": before, "isSidechain": False, "userType": "external", "cwd": self.cwd,
            "sessionId": self._session, "version": "2.1.197", "gitBranch": "main", "type": role,
            "message": {"role": role, "content": content}, "uuid": str(uuid.uuid4()),
            "timestamp": f"{self.day}T11:{minute:02}:{second:02}.000Z",
        })  # fmt: skip

    def text(self) -> str:
        """Return the session file."""
        return "".join(f"{json.dumps(line)}\n" for line in self.lines)


def _look_around(agent: Agent, draw: random.Random, looks: Sequence[tuple[str, str]]) -> None:
    for tool, what in draw.sample(list(looks), draw.randint(0, len(looks))):
        if tool == "say":
            agent.say(what)
        elif tool == "bash":
            agent.bash(what, "Look around")
        else:
            agent.read(what)


def bump(agent: Agent, task: Task, seed: int) -> None:
    """Bump the version and write the changelog."""
    draw, value = random.Random(seed), task.values
    looks = [
        ("bash", "ls -la"),
        ("read", "README.md"),
        ("bash", "cat README.md | head -5"),
        ("say", "Let me look at the project first."),
        ("bash", "find . -name '*.toml'"),
    ]
    _look_around(agent, draw, looks)
    if seed % 6 in (1, 4):
        agent.grep("__version__")
        agent.bash(f'grep -n "{value["old"]}" pyproject.toml')
    agent.bash('grep -rn "__version__ =" --include=*.py .', "Find the version")
    init = f"{value['base']}/__init__.py"
    old, new = f'__version__ = "{value["old"]}"', f'__version__ = "{value["new"]}"'
    for part in ("project", "init") if seed % 2 else ("init", "project"):
        if part == "project":
            _project(agent, value, draw)
        else:
            agent.read(init)
            agent.edit(init, old, new)
        _look_around(agent, draw, looks[2:4])
    agent.say("Now the changelog.")
    _entry(agent, value, task.day, seed)
    _look_around(agent, draw, [("read", "pyproject.toml"), ("bash", "ls"), ("read", value["log"])])
    agent.say(f"The version is {value['new']} now, and the changelog has an entry for it.")


def _project(agent: Agent, value: Mapping[str, str], draw: random.Random) -> None:
    agent.read("pyproject.toml")
    old, new = f'version = "{value["old"]}"', f'version = "{value["new"]}"'
    text = (agent.folder / "pyproject.toml").read_text()
    if text.count(old) > 1 or draw.random() < 0.4:
        before = text.partition(old)[0].rstrip("\n").rpartition("\n")[2]
        old, new = f"{before}\n{old}", f"{before}\n{new}"
    agent.edit("pyproject.toml", old, new)


def _entry(agent: Agent, value: Mapping[str, str], day: str, seed: int) -> None:
    log = value["log"]
    agent.read(log)
    text = (agent.folder / log).read_text()
    entry = f"## {value['new']} ({day})\n\n- {value['note']}\n\n"
    at = text.index("\n## ") + 1
    if seed % 3 == 2:
        agent.write(log, text[:at] + entry + text[at:])
    elif seed % 3:
        head = text[at:].partition("\n")[0]
        agent.edit(log, head, entry + head)
    else:
        agent.edit(log, text[:at].rstrip("\n"), text[:at] + entry.rstrip("\n"))


def fix_import(agent: Agent, task: Task, seed: int) -> None:
    """Find the failing test, fix the import, run again."""
    draw, value = random.Random(seed), task.values
    looks = [("bash", "ls"), ("read", "pyproject.toml"), ("say", "I run the tests first."),
             ("bash", "ls tests"), ("read", "tests/test_other.py")]  # fmt: skip
    _look_around(agent, draw, looks)
    agent.bash("pytest -q", "Run the tests")
    agent.say(f"The module {value['gone']} is not there any more.")
    _look_around(agent, draw, looks[3:])
    agent.bash(f'grep -rn "def {value["function"]}" --include=*.py .', "Find the function")
    if seed % 3 == 0:
        agent.read(value["path"])
    agent.read(value["test"])
    old = f"from {value['gone']} import {value['function']}"
    new = f"from {value['now']} import {value['function']}"
    if seed % 2:
        old, new = f"{old}\n\n\ndef", f"{new}\n\n\ndef"
    agent.edit(value["test"], old, new)
    if seed % 3 == 1:
        agent.bash(f"pytest -q {value['test']}", "Run this test")
    agent.bash("pytest -q", "Run the tests again")
    agent.say("All tests pass now.")
