"""A scripted agent that writes a routine for each kind of chore, or one that is wrong in some way.

It sees what em shows of a group, and sends routine.yaml and udf.py. What is taken does the chores
that nobody learnt from, with its inputs given by name.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.series.kinds import KINDS, LEARNT, Kind
from bench.series.repository import RIGHT, WRONG, judged, learnt_from, request_of
from em.runner.package import parse_yaml

Object = dict[str, Any]

FUNCTIONS = """\
def lines_of(text, start):
    found = [line for line in text.split("\\n") if line.startswith(start)]
    if not found:
        raise ValueError(f"no line begins with {start}")
    return found


def with_line(text, start, new):
    (old,) = lines_of(text, start)
    return "\\n".join(new if line == old else line for line in text.split("\\n"))


def with_word(text, start, old, new):
    (line,) = [line for line in lines_of(text, start) if old in line]
    return with_line(text, line, line.replace(old, new))


def before_first(text, start, new):
    line = lines_of(text, start)[0]
    at = f"\\n{text}".index(f"\\n{line}")
    return text[:at] + new + text[at:]


def in_order(text, start, new):
    rows = text.splitlines(keepends=True)
    own = [number for number, row in enumerate(rows) if row.startswith(start)]
    if not own or own != [*range(own[0], own[-1] + 1)] or new in rows:
        raise ValueError("the list is not as it was")
    at = next((number for number in own if rows[number] > new), own[-1] + 1)
    return "".join([*rows[:at], new, *rows[at:]])


def stem(path):
    return path.rpartition("/")[2].partition(".")[0]


def dashed(name):
    return "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in name).strip("-")


def slug(title):
    return title.lower().replace(" ", "-")


def next_number(names):
    return f"{max(int(name[:4]) for name in names.split() if name[:4].isdigit()) + 1:04}"
"""


class Author:
    """Writes the routine of a kind, with the inputs and commands that em shows."""

    def __init__(self, kind: Kind, shown: Object) -> None:
        self._kind, self._rows = kind, shown["recordings"]
        path = Path(__file__).with_suffix(".yaml")
        self._written = parse_yaml(path.read_bytes(), path.name)[kind.name]
        self._known = parse_yaml(shown.get("draft", "steps: []").encode(), "draft")["steps"]
        first = self._rows[0]
        self.names = {
            name: next((own for own, one in first["inputs"].items() if one == value), name)
            for name, value in self._values(first).items()
        }

    def _values(self, row: Object) -> Mapping[str, str]:
        """Return the values of the chore that a recording shows."""
        numbers = (n for n in range(LEARNT) if request_of(self._kind, n) == row["request"])
        return self._kind.chores[next(numbers)]

    def _named(self, text: str) -> str:
        """Return a text in which values of the chore have the names of the routine's inputs."""
        for name, own in self.names.items():
            text = text.replace(f"${name.upper()}", own)
        return text

    def _command(self, start: str, number: int) -> Object:
        """Return a recorded command as a step: as em learnt it, else as most sessions ran it."""
        calls = [
            json.dumps({"tool": one["tool"], "args": one["args"]})
            for one in self._known
            if str(one.get("tool")).startswith(start)
        ]
        for row in self._rows if not calls else ():
            made: dict[str, str] = {}
            for name, value in self._values(row).items():
                if "/" in value:
                    made[Path(value).stem] = f"{{{{ stem({self.names[name]}) }}}}"
                made[value] = f"{{{{ {self.names[name]} }}}}"
            for one in row["calls"]:
                text = json.dumps({"tool": one["tool"], "args": one["args"]})
                for value in sorted(made, key=len, reverse=True):
                    text = text.replace(value, made[value])
                calls += [text] * one["tool"].startswith(start)
        call: Object = json.loads(max(calls, key=calls.count))
        return {"id": f"run_{number}", "type": "tool.call", **call}

    def files(self) -> dict[str, str]:
        """Return the files of the routine."""
        steps = [_call("day", "Today", {"form": "%Y-%m-%d", "zone": "utc"}, save_as="day")]
        for number, (name, what) in enumerate(self._written["reads"].items()):
            where = {"file_path": self._named(what)}
            is_run = what.startswith("<")
            run = self._command(what[1:], number) if is_run else _call(name, "FileText", where)
            steps.append({**run, "save_as": name})
        writes: list[Object] = []
        for number, (path, text) in enumerate(self._written["texts"].items()):
            is_new, where = path[0] == "+", {"file_path": self._named(path.removeprefix("+"))}
            name = f"text_{number}"
            steps.append({"id": name, "type": "let", "value": self._named(text), "save_as": name})
            if is_new:
                steps.append(_call(f"there_{number}", "FileThere", where, expect={"const": False}))
            args = {**where, "content": f"{{{{ {name} }}}}"}
            writes.append(_call(f"write_{number}", "Create" if is_new else "Write", args))
        for number, start in enumerate(self._written["commands"], 50):
            run = self._command(start.removeprefix("<"), number)
            writes.insert(0 if start[0] == "<" else len(writes), run)
        steps += writes
        inputs = {own: {"type": "string", "minLength": 1} for own in self.names.values()}
        tools = dict.fromkeys(step["tool"] for step in steps if "tool" in step)
        document = {
            "name": "proposed",
            "input_schema": {"type": "object", "required": [*inputs], "properties": inputs},
            "tools": [{"name": one} for one in tools],
            "steps": [*steps, {"id": "end", "type": "return", "value": "done"}],
        }
        return {"routine.yaml": json.dumps(document), "udf.py": FUNCTIONS}


def _call(name: str, tool: str, args: Object, **more: Any) -> Object:
    return {"id": name, "type": "tool.call", "tool": tool, "args": args, **more}


def proposed(kind: Kind) -> tuple[Object, list[str]]:
    """Send the agent's routine of a kind; return what em says, and how it did new chores."""
    with learnt_from(kind) as (memory, repository, ids):
        author = Author(kind, memory.propose(ids))
        told = memory.propose(ids, author.files(), name="proposed")
        if not told["accepted"]:
            return told, []
        memory.accept(told["routine"], by="ana")

        def given(number: int) -> Object:
            return {author.names[name]: value for name, value in kind.chores[number].items()}

        found = judged(kind, memory, told["routine"], repository, given)
        return told, [verdict for verdict, _ in found.verdicts]


# --- wrong ones -----------------------------------------------------------------------------------

WITH_LINES = """

def with_lines(text, start, new):
    return "\\n".join(new if line.startswith(start) else line for line in text.split("\\n"))
"""


def _in_texts(old: str, new: str) -> Callable[[Object], None]:
    """Replace something in the texts that files become."""

    def changed(document: Object) -> None:
        for step in document["steps"]:
            if step["type"] == "let":
                step["value"] = step["value"].replace(old, new)

    return changed


def _without(tool: str, *, goes_first: bool = False) -> Callable[[Object], None]:
    """Remove the last call of a tool, or make it before the first change."""

    def changed(document: Object) -> None:
        steps = document["steps"]
        gone = [one for one in steps if str(one.get("tool", "")).startswith(tool)][-1]
        steps.remove(gone)
        if goes_first:
            at = next(n for n, one in enumerate(steps) if one.get("tool") == "Write")
            steps.insert(at, gone)

    return changed


WRONG_WAYS: Mapping[str, Callable[[Object], None]] = {
    "a value of one recording": _in_texts("'## ' ~ version", "'## 1.0.0'"),
    "forgets a file": _without("Write"),
    "changes every such line": _in_texts("with_line(project, 'version", "with_lines(project, 'v"),
    "drops the check": _without("python3"),
    "checks before the change": _without("python3", goes_first=True),
    "writes twice": _in_texts("before_first(log, ", "before_first(log ~ log, "),
    "swaps two inputs": _in_texts("'## ' ~ version", "'## ' ~ note"),
    "loses the end of a file": _in_texts("before_first(log, ", "before_first(log | trim, "),
}
"""Ways to be wrong about a version and its changelog."""


def refused() -> Iterator[tuple[str, bool]]:
    """Yield each way to be wrong, and whether it is refused with a difference shown."""
    with learnt_from(KINDS[0]) as (memory, _, ids):
        files = Author(KINDS[0], memory.propose(ids)).files()
        for way, change in {"right": lambda _: None, **WRONG_WAYS}.items():
            document = json.loads(files["routine.yaml"])
            change(document)
            is_right = document == json.loads(files["routine.yaml"])
            assert is_right == (way == "right"), way
            wrong = {"routine.yaml": json.dumps(document), "udf.py": FUNCTIONS + WITH_LINES}
            told = memory.propose(ids, wrong, name="wrong")
            if is_right:
                assert told["accepted"], told["differences"]
            else:
                yield way, not told["accepted"] and bool(told["differences"])


def figures() -> Iterator[Figure]:
    """Kinds that a proposal does, right of what runs, wrong, and wrong proposals taken."""
    every = [(kind, *proposed(kind)) for kind in KINDS]
    for kind, told, verdicts in every:
        shown = f"{verdicts.count(RIGHT)} of {len(verdicts)} right" if verdicts else "refused"
        print(f"    {kind.name:<40} {shown} {' '.join(told['differences'][:1])[:150]}")
    done = [verdict for _, _, verdicts in every for verdict in verdicts]
    right, wrong = done.count(RIGHT), done.count(WRONG)
    kinds, share = sum(bool(verdicts) for _, _, verdicts in every), right / max(1, right + wrong)
    gone = dict(refused())
    for way, is_refused in gone.items():
        print(f"    {way:<40} {'refused' if is_refused else 'TAKEN'}")
    n = sum(gone.values())
    yield Figure("series: proposals taken of 12", kinds, "bar", 12, "", kinds / 12, 1.0, True)
    yield Figure(
        "series: proposals right of what runs", right, "runs", right + wrong, "", share, 0.95, True
    )
    yield Figure("series: wrong by proposals", wrong, "none", 0, "", wrong, 0.0, False)
    yield Figure("series: wrong proposals refused", n, "bar", 8, "", n / 8, 1.0, True)


if __name__ == "__main__":
    for one in figures():
        print(one.what, one.ours, one.theirs, one.cleared)
