"""A chore that recurs in a person's own words: a release, asked for differently every time.

Nothing in the requests is worded alike. The agent takes detours: it keeps a list of what to do,
looks around, repeats an edit that failed, corrects one that it made, and finds the file with the
version by whatever it thinks of. Each project is a checkout of its own, and all paths are absolute.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.series import claude
from bench.series.projects import Task, bump_judgements, bumps

_WORDINGS = [
    'bump to {new} and note "{note}" in the changelog',
    "please release {new}: {note}",
    "version {new}, changelog: {note}",
    "can you cut {new}? For the changelog - {note}",
    "We need {new} out today. The entry is: {note}",
    "{note}. That's all that is in {new}, so set the version and write it down.",
]
_PARENTS = [
    "/home/dev/",
    "/home/dev/code/",
    "/tmp/checkouts/a-",
    "/srv/repos/",
    "/home/dev/",
    "/w/",
]
_LOG = "CHANGELOG.md"


def chores() -> list[Task]:
    """Return the tasks: those of the first series, with a changelog of one name."""
    return [_chore(number, task) for number, task in enumerate(bumps())]


def _chore(number: int, task: Task) -> Task:
    values = {**task.values, "cwd": f"{_PARENTS[number]}{task.values['package']}"}
    files = {**task.files, _LOG: task.files[task.values["log"]]}
    if values["log"] != _LOG:
        del files[values["log"]]
    note = values["note"]
    said = note if number % 2 else note[0].lower() + note[1:]
    request = _WORDINGS[number].format(new=values["new"], note=said)
    return task._replace(
        name=f"chore-{values['package']}", request=request, files=files,
        values={**values, "log": _LOG, "said": said},
    )  # fmt: skip


def chore_judgements() -> list[Task]:
    """Return tasks that need a person, whose inputs are given by name."""
    given = {"version": "3.2.0", "note": "Open two gates"}
    odd = {
        "a version in words": {"version": "the next minor one"},
        "a version with a letter before it": {"version": "v3.2.0"},
        "no version asked for": {"version": ""},
        "a version that is there": {"version": "3.1.4"},
        "more is asked for": {"note": "Open two gates\n\n## 9.9.9"},
    }
    skipped = {"a condition", "no such changelog"}
    return [
        task._replace(values={**given, **odd.get(task.name, {})})
        for task in bump_judgements()
        if task.name not in skipped
    ]


class Agent(claude.Agent):
    """Works as the first one does, in a checkout of its own, and not straight on."""

    def __init__(self, task: Task, folder: Path) -> None:
        super().__init__(task, folder)
        self.cwd = task.values["cwd"]
        for line in self.lines:
            line["cwd"] = self.cwd

    def todo(self, *items: str) -> None:
        """Write down what to do."""
        todos = [{"content": one, "status": "pending", "activeForm": one} for one in items]
        self._call("TodoWrite", {"todos": todos}, "Todos have been modified successfully.")

    def miss(self, path: str, old: str, new: str) -> None:
        """Try to replace a text that is not in the file."""
        given = {"file_path": f"{self.cwd}/{path}", "old_string": old, "new_string": new}
        error = f"<tool_use_error>String to replace not found in file.\nString: {old}"
        self._call("Edit", given, f"{error}</tool_use_error>", failed=True)


def release(agent: Agent, task: Task, seed: int) -> None:
    """Do the chore, with detours."""
    draw, value = random.Random(seed + 300), task.values
    if seed % 2 == 0:
        agent.todo("Set the version", "Write the changelog")
    _look(agent, draw)
    _find(agent, value, seed)
    init = f"{value['base']}/__init__.py"
    parts: list[Callable[[], None]] = [
        lambda: _set(agent, "pyproject.toml", "version", value, seed),
        lambda: _set(agent, init, "__version__", value, seed + 1),
        lambda: _entry(agent, value, task.day, seed),
    ]
    draw.shuffle(parts)
    for part in parts:
        part()
        _look(agent, draw)
    agent.bash("git diff --stat || true", "Look at what changed")
    agent.say(f"Released {value['new']}.")


def _look(agent: Agent, draw: random.Random) -> None:
    looks = ["ls -la", "cat README.md", "ls", "find . -name '*.py' | head", "pwd", "git log -3"]
    for command in draw.sample(looks, draw.randint(0, 2)):
        agent.bash(command, "Look around")


def _find(agent: Agent, value: Mapping[str, str], seed: int) -> None:
    """Find where the version is."""
    if seed % 3 == 0:
        agent.grep("__version__")
    elif seed % 3 == 1:
        agent.bash('grep -rn "__version__ =" --include=*.py .', "Find the version")
    else:
        agent.bash(f"grep -rn '{value['old']}' .", "Find the version")
        agent.bash('grep -rn "__version__ =" --include=*.py .', "Find it in the code")


def _set(agent: Agent, path: str, name: str, value: Mapping[str, str], seed: int) -> None:
    old, new = f'{name} = "{value["old"]}"', f'{name} = "{value["new"]}"'
    if seed % 3 == 1:
        agent.miss(path, old.replace('"', "'"), new)
    if seed % 2:
        agent.read(path)
    else:
        agent.bash(f"cat {path}", "Read it")
    if seed % 4 == 2:
        agent.edit(path, old, f'{name} = "{value["new"]}.0"')
        agent.edit(path, f'{name} = "{value["new"]}.0"', new)
    else:
        agent.edit(path, old, new)


def _entry(agent: Agent, value: Mapping[str, str], day: str, seed: int) -> None:
    agent.read(value["log"])
    text = (agent.folder / value["log"]).read_text()
    head = text[text.index("\n## ") + 1 :].partition("\n")[0]
    entry = f"## {value['new']} ({day})\n\n- {value['note']}\n\n"
    if seed % 3 == 2:
        agent.write(value["log"], text.replace(head, entry + head, 1))
    else:
        agent.edit(value["log"], head, entry + head)


def given(task: Task) -> dict[str, Any]:
    """Return what a person gives by name."""
    if "said" in task.values:
        return {"version": task.values["new"], "note": task.values["note"]}
    return dict(task.values)
