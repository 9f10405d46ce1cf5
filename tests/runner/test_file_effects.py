"""A command that changes files is checked, and shown, before it runs."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from em.compiler.compile_trace import compile_several
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.preparation import prepare_routine
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace, as_kept

ALLOWED = AllowSettings(commands=["sed", "grep", "cat", "mv", "cp", "git", "ls"], folders=["."])
RENAMES = [("q1", "amt", "amount"), ("q2", "cust", "customer"), ("no", "dt", "date")]


def session(goal: str, *commands: tuple[str, str]) -> Trace:
    calls = [ToolCall(tool="Bash", args={"command": one}, result=said) for one, said in commands]
    events: list[Any] = [Message(role="user", text=goal), *calls]
    return Trace(app={"cwd": "/work"}, mission=Mission(goal), events=events, outcome="success")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(command: str, only_new: bool = False, dry_run: bool = False, **args: str) -> Any:
        tool = {"name": "shell", "shell": command, "effect": "write", "only_new": only_new}
        step = {"id": "do", "type": "tool.call", "tool": "shell", "args": args}
        routine = {"name": "r", "checks": "hand_over", "tools": [tool], "steps": [step]}
        (tmp_path / "routine.yaml").write_text(yaml.safe_dump(routine))
        go = prepare_routine if dry_run else run_routine
        return go(tmp_path, {}, allow=ALLOWED)

    return run


@pytest.mark.parametrize(
    "go",
    [
        "cd sub &&",
        'cd "$HOME/here/sub" &&',
        "cd ~/here/sub &&",
        "cd ~/here && cd sub;",
        "pushd sub &&",
    ],
)
def test_an_edit_is_checked_where_it_is_made(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, go: str
) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd().parent))
    Path("sub").mkdir()
    Path("lf.csv").write_text("id,wgt\n")
    Path("sub/lf.csv").write_text("id,wgt\nwgt,5\n")
    result = run(f"{go} sed -i s/wgt/weight/ lf.csv", **{})
    assert result.status != "ok"
    assert Path("lf.csv").read_text() == "id,wgt\n"
    assert Path("sub/lf.csv").read_text() == "id,wgt\nwgt,5\n"


SED = "sed -i s/{{ old | old }}/{{ new | new }}/ {{ file }}"
RENAME = {"old": "wgt", "new": "weight", "file": "lf.csv"}


@pytest.fixture
def git(run: Callable[..., Any]) -> Callable[..., str]:
    def git(*args: str) -> str:
        who = ("-c", "user.name=Ana", "-c", "user.email=ana@example.com")
        return subprocess.run(
            ("git", *who, *args), check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "first")
    return git


def test_sed_replaces_a_text_that_stands_once(run: Callable[..., Any]) -> None:
    Path("lf.csv").write_text("id,wgt,note\n1,5,x\n")
    assert run(SED, **RENAME).status == "ok"
    assert Path("lf.csv").read_text() == "id,weight,note\n1,5,x\n"


@pytest.mark.parametrize(
    "text", ["id,wgt,note\n1,5,wgt\n", "id,wgt,wgt\n1,5,x\n", "id,x,y\n", "id,wgt\nwgtx\n"]
)
def test_sed_changes_nothing_where_the_text_does_not_stand_once(
    run: Callable[..., Any], text: str
) -> None:
    Path("lf.csv").write_text(text)
    assert run(SED, **RENAME).status != "ok"
    assert Path("lf.csv").read_text() == text


def test_a_text_with_signs_of_a_pattern_must_stand_once_too(run: Callable[..., Any]) -> None:
    Path("d.cfg").write_text("version = 7.0.1, not 7.0.1-rc\n")
    assert run(SED, old="7.0.1", new="7.0.2", file="d.cfg").status != "ok"
    assert Path("d.cfg").read_text() == "version = 7.0.1, not 7.0.1-rc\n"


def test_a_dry_run_shows_the_change_of_sed_as_a_diff(run: Callable[..., Any]) -> None:
    Path("lf.csv").write_text("id,wgt,note\n")
    planned, *_ = run(SED, dry_run=True, **RENAME).planned
    assert "-id,wgt,note\n+id,weight,note" in planned.shows
    assert Path("lf.csv").read_text() == "id,wgt,note\n"


COUNT = "grep -c TODO {{ file }} > {{ output }}"


def test_a_file_that_was_always_new_is_not_overwritten(run: Callable[..., Any]) -> None:
    Path("fri.txt").write_text("TODO\n")
    Path("fri.count").write_text("precious")
    given: Any = {"only_new": True, "file": "fri.txt", "output": "fri.count"}
    assert run(COUNT, **given).status != "ok"
    assert Path("fri.count").read_text() == "precious"
    Path("fri.count").unlink()
    assert run(COUNT, **given).status == "ok"


def test_another_file_is_written_again(run: Callable[..., Any]) -> None:
    Path("fri.txt").write_text("TODO\n")
    Path("all.count").write_text("7\n")
    assert run(COUNT, file="fri.txt", output="all.count").status == "ok"
    assert Path("all.count").read_text() == "1\n"


def test_a_dry_run_says_that_it_cannot_show_what_a_program_writes(run: Callable[..., Any]) -> None:
    Path("fri.txt").write_text("TODO\n")
    planned, *_ = run(COUNT, dry_run=True, file="fri.txt", output="fri.count").planned
    assert "only known when it runs" in planned.shows


@pytest.mark.parametrize(
    "command",
    [
        "perl -pi -e 's/{old}/{new}/' {file}.csv",
        "perl -i.bak -pe 's/{old}/{new}/' {file}.csv",
        "gawk -i inplace '{{sub(/{old}/, \"{new}\")}}1' {file}.csv",
        "python3 -c \"p = open('{file}.csv', 'w'); p.write('{new}')\"",
    ],
)
def test_code_that_changes_files_unseen_is_refused(command: str) -> None:
    traces = [
        session(
            f"rename the column {old} to {new} in {file}.csv",
            (command.format(old=old, new=new, file=file), ""),
        )
        for file, old, new in RENAMES
    ]
    with pytest.raises(RoutineError, match="nothing shows how"):
        compile_several([as_kept(one, f"t{n}") for n, one in enumerate(traces)])


def test_sed_replaces_no_part_of_a_longer_word(run: Callable[..., Any]) -> None:
    Path("fri.csv").write_text("id,amts\n")
    assert run(SED, old="amt", new="sum", file="fri.csv").status != "ok"
    assert Path("fri.csv").read_text() == "id,amts\n"


@pytest.mark.parametrize("program", ["mv", "cp"])
def test_a_file_that_is_there_is_not_replaced_by_another(
    run: Callable[..., Any], program: str
) -> None:
    rotate, given = f"{program} {{{{ old }}}} {{{{ new }}}}", {"old": "app.log", "new": "app.old"}
    Path("app.log").write_text("two")
    Path("app.old").write_text("one")
    assert run(rotate, **given).status != "ok"
    assert Path("app.old").read_text() == "one"
    Path("app.old").unlink()
    assert run(rotate, **given).status == "ok"
    assert Path("app.old").read_text() == "two"


@pytest.mark.parametrize(
    "move",
    [
        "mv fri.txt archive/",
        "mv *.txt archive/",
        "mv -t archive fri.txt",
        "cp -pt archive fri.txt",
        "cp --target-directory=archive fri.txt",
    ],
)
def test_a_file_in_a_folder_is_not_replaced_either(run: Callable[..., Any], move: str) -> None:
    Path("archive").mkdir()
    Path("fri.txt").write_text("new")
    Path("archive/fri.txt").write_text("old")
    assert run(move).status != "ok"
    assert Path("archive/fri.txt").read_text() == "old"


def test_files_that_match_are_moved_where_none_is_replaced(run: Callable[..., Any]) -> None:
    Path("archive").mkdir()
    Path("fri.txt").write_text("new")
    assert run("mv *.txt archive/").status == "ok"
    assert Path("archive/fri.txt").read_text() == "new"


RELEASE = """name: release
checks: hand_over
tools:
  - {name: status, effect: read, shell: git status --short}
  - {name: tag, effect: write, shell: "git tag {{ name }}"}
steps:
  - {id: status, type: tool.call, tool: status, save_as: status, expect: {const: ""}, held: 4/4}
  - {id: tag, type: tool.call, tool: tag, args: {name: v2.1.0}}
"""


def test_what_was_clean_in_all_sessions_must_be_clean_again(
    tmp_path: Path, git: Callable[..., str]
) -> None:
    (tmp_path / "routine.yaml").write_text(RELEASE)
    Path("wip.txt").write_text("not done")
    git("add", "wip.txt")
    handed_over = run_routine(tmp_path, {}, allow=ALLOWED)
    assert handed_over.reason is not None
    assert (handed_over.reason.step_id, handed_over.reason.held) == ("status", "4/4")
    assert git("tag") == ""
    git("commit", "-qm", "done")
    done = run_routine(tmp_path, {}, allow=ALLOWED)
    assert (done.status, done.output) == ("ok", None)
    assert git("tag") == "v2.1.0\n"
