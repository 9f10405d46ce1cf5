"""Script: the script of a skill, and its run in a copy of recorded files.

It runs in bubblewrap: it sees the copy, Python and its own files, no network and nothing else. The
programs that the recording ran are stand-ins there: they print what was printed, end as they ended,
and note how the files were. A command that was not recorded fails.
"""

import json
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from em.compiler.example import Call
from em.compiler.file_world import FileWorld
from em.compiler.replay_world import Ended, Outcome, World
from em.errors import EmError, SandboxRefused
from em.runner.routine import ToolSpec
from em.runner.sandbox.process import Bubblewrap
from em.runner.sandbox.sandbox import interpreter
from em.runner.script_skill import about_of, script_in
from em.runner.tools.shell import template_of
from em.values.canonical import Json

SECONDS = 20.0
MEMORY = 512 * 1024 * 1024
LONGEST_SAID = 300

_STAND_IN = """\
#!{python} -IS
import json, os, pathlib, sys
argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
texts = {{}}
for path in sorted(pathlib.Path("/work").rglob("*")):
    if path.is_file() and not path.is_symlink():
        texts[str(path.relative_to("/work"))] = path.read_bytes().decode(errors="replace")
log = pathlib.Path("/log")
(log / f"{{len(os.listdir(log)):06}}.json").write_text(json.dumps([argv, texts]))
said, code = json.loads(pathlib.Path("/em/commands.json").read_text()).get(
    json.dumps(argv), ["it was not recorded\\n", 127]
)
(sys.stdout if code == 0 else sys.stderr).write(said)
sys.exit(code)
"""
_START = """\
import resource, runpy, sys
for what, most in ((resource.RLIMIT_AS, {memory}), (resource.RLIMIT_FSIZE, {memory})):
    resource.setrlimit(what, (most, most))
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Script(NamedTuple):
    """The files of a skill. name: of its script. tools: the recorded commands, with their forms."""

    files: Mapping[str, str]
    name: str
    tools: Sequence[Json]

    def run(self, world: World) -> Outcome:
        """Run the script in the world of a session, and compare what it did."""
        assert isinstance(world, FileWorld), "a skill is tried on sessions"
        if why := Bubblewrap.missing():
            raise SandboxRefused(
                f"a script can only be tried in bubblewrap: {why}",
                fix="install bubblewrap, or write routine.yaml",
            )
        lines = dict(self._lines(world.calls))
        with tempfile.TemporaryDirectory(prefix="em-skill-") as name:
            folder = Path(name).resolve()
            self._write(folder, world.inputs, lines)
            stopped = self._started(folder, world.folder)
            noted = [json.loads(one.read_bytes()) for one in sorted((folder / "log").iterdir())]
        for argv, texts in noted:
            call = lines.get(tuple(argv))
            try:
                if call is None:
                    world.leave(f"{shlex.join(argv)} was not recorded")
                else:
                    world.commanded(call, texts)
            except Ended:
                break
        return world.outcome(stopped)

    def _lines(self, calls: Sequence[Call]) -> Sequence[tuple[tuple[str, ...], Call]]:
        """Return the words of each recorded command that is one program, with its call."""
        forms = {tool["name"]: tool for tool in self.tools if tool.get("shell")}
        found = []
        for call in calls:
            tool = forms.get(call.tool)
            if tool is None:
                continue
            spec = ToolSpec(
                name=call.tool, shell=tool["shell"], args_schema=tool.get("args_schema")
            )
            try:
                text = template_of(spec).filled(call.args)
            except EmError:
                continue
            found.append((tuple(shlex.split(text)), call))
        return found

    def _write(self, folder: Path, inputs: Json, lines: Mapping[tuple[str, ...], Call]) -> None:
        for name in ("em", "bin", "log"):
            (folder / name).mkdir()
        for name, text in self.files.items():
            path = folder / "em" / "skill" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / "em" / "input.json").write_text(json.dumps(inputs), encoding="utf-8")
        answers = {json.dumps([*words]): _answer(call) for words, call in lines.items()}
        (folder / "em" / "commands.json").write_text(json.dumps(answers), encoding="utf-8")
        for program in {words[0] for words in lines if words and "/" not in words[0]}:
            path = folder / "bin" / program
            path.write_text(_STAND_IN.format(python=interpreter()), encoding="utf-8")
            path.chmod(0o755)

    def _started(self, folder: Path, work: Path) -> str:
        """Run the script; return why it stopped before its end, "" if it did not."""
        own = ["--ro-bind", str(folder / "em"), "/em", "--ro-bind", str(folder / "bin"), "/bin"]
        own += ["--bind", str(folder / "log"), "/log", "--bind", str(work), "/work"]
        own += ["--dev", "/dev", "--setenv", "PATH", "/bin", "--chdir", "/work"]
        start = ["-B", "-c", _START.format(memory=MEMORY), f"/em/skill/{self.name}"]
        try:
            done = subprocess.run(  # noqa: S603 - bubblewrap, without a shell
                [
                    *Bubblewrap.alone(),
                    *own,
                    "--",
                    interpreter(),
                    *start,
                    "--input",
                    "/em/input.json",
                ],
                capture_output=True,
                timeout=SECONDS,
                check=False,
                env={},
            )
        except subprocess.TimeoutExpired:
            return f"the script did not end within {SECONDS:g} s"
        said = done.stderr.decode(errors="replace").strip()[-LONGEST_SAID:]
        return "" if done.returncode == 0 else f"the script ended with {done.returncode}: {said}"


def _answer(call: Call) -> list[Any]:
    return [str(call.result or call.error or ""), 0 if call.error is None else 1]


def script_of(files: Mapping[str, str], tools: Sequence[Json]) -> Script:
    """Return the script of a skill. Raise UsageError if its files are no skill."""
    name = script_in(files)
    about_of(files)
    return Script(files, name, tools)
