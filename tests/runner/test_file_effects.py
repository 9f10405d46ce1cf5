"""A command that changes files is checked, and shown, before it runs."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_several
from em.compiler.draft import Draft, GivenUdfs
from em.compiler.package_files import write_package
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.settings import AllowSettings
from em.traces.trace import Message, Mission, ToolCall, Trace, as_kept

ALLOWED = AllowSettings(commands=["sed", "grep", "cat", "mv", "cp", "git", "ls"], folders=["."])
RENAMES = [("q1", "amt", "amount"), ("q2", "cust", "customer"), ("no", "dt", "date")]
FILES = ["mon", "tue", "wed", "thu"]


def session(goal: str, *commands: tuple[str, str]) -> Trace:
    calls = [ToolCall(tool="Bash", args={"command": one}, result=said) for one, said in commands]
    events: list[Any] = [Message(role="user", text=goal), *calls]
    return Trace(app={"cwd": "/work"}, mission=Mission(goal), events=events, outcome="success")


def learnt(traces: list[Trace]) -> Draft:
    return compile_several([as_kept(one, f"t{n}") for n, one in enumerate(traces)]).draft


@pytest.fixture
def renaming() -> Draft:
    return learnt(
        [
            session(
                f"rename the column {old} to {new} in {file}.csv",
                (f"sed -i 's/{old}/{new}/' {file}.csv", ""),
            )
            for file, old, new in RENAMES
        ]
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(draft: Draft, request: str, **options: Any) -> Any:
        write_package(draft, tmp_path / "package", GivenUdfs())
        return run_routine(tmp_path / "package", {"request": request}, allow=ALLOWED, **options)

    return run


RENAME = "rename the column wgt to weight in lf.csv"


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


def test_sed_replaces_a_text_that_stands_once(renaming: Draft, run: Callable[..., Any]) -> None:
    Path("lf.csv").write_text("id,wgt,note\n1,5,x\n")
    assert run(renaming, RENAME).status == "ok"
    assert Path("lf.csv").read_text() == "id,weight,note\n1,5,x\n"


@pytest.mark.parametrize(
    "text", ["id,wgt,note\n1,5,wgt\n", "id,wgt,wgt\n1,5,x\n", "id,x,y\n", "id,wgt\nwgtx\n"]
)
def test_sed_changes_nothing_where_the_text_does_not_stand_once(
    renaming: Draft, run: Callable[..., Any], text: str
) -> None:
    Path("lf.csv").write_text(text)
    assert run(renaming, RENAME).status != "ok"
    assert Path("lf.csv").read_text() == text


def test_a_text_with_signs_of_a_pattern_must_stand_once_too(run: Callable[..., Any]) -> None:
    versions = [("a", "1.0.1", "1.0.2"), ("b", "2.4.0", "2.5.0"), ("c", "3.3.3", "3.3.4")]
    draft = learnt(
        [
            session(f"change {old} to {new} in {f}.cfg", (f"sed -i 's/{old}/{new}/' {f}.cfg", ""))
            for f, old, new in versions
        ]
    )
    Path("d.cfg").write_text("version = 7.0.1, not 7.0.1-rc\n")
    assert run(draft, "change 7.0.1 to 7.0.2 in d.cfg").status != "ok"
    assert Path("d.cfg").read_text() == "version = 7.0.1, not 7.0.1-rc\n"


def test_a_dry_run_shows_the_change_of_sed_as_a_diff(
    renaming: Draft, run: Callable[..., Any]
) -> None:
    Path("lf.csv").write_text("id,wgt,note\n")
    planned, *_ = run(renaming, RENAME, dry_run=True).planned
    assert "-id,wgt,note\n+id,weight,note" in planned.shows
    assert Path("lf.csv").read_text() == "id,wgt,note\n"


def counted(looks: str = "") -> Draft:
    return learnt(
        [
            session(
                f"count the TODO lines of {file}.txt into {looks or file}.count",
                (f"grep -c TODO {file}.txt > {looks or file}.count", ""),
            )
            for file in FILES
        ]
    )


def test_a_file_that_was_always_new_is_not_overwritten(run: Callable[..., Any]) -> None:
    Path("fri.txt").write_text("TODO\n")
    Path("fri.count").write_text("precious")
    request = "count the TODO lines of fri.txt into fri.count"
    assert run(counted(), request).status != "ok"
    assert Path("fri.count").read_text() == "precious"
    Path("fri.count").unlink()
    assert run(counted(), request).status == "ok"


def test_a_file_that_sessions_wrote_one_after_the_other_is_written_again(
    run: Callable[..., Any],
) -> None:
    Path("fri.txt").write_text("TODO\n")
    Path("all.count").write_text("7\n")
    assert run(counted("all"), "count the TODO lines of fri.txt into all.count").status == "ok"
    assert Path("all.count").read_text() == "1\n"


def test_a_dry_run_says_that_it_cannot_show_what_a_program_writes(run: Callable[..., Any]) -> None:
    Path("fri.txt").write_text("TODO\n")
    request = "count the TODO lines of fri.txt into fri.count"
    planned, *_ = run(counted(), request, dry_run=True).planned
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
        learnt(traces)


def test_sed_replaces_no_part_of_a_longer_word(renaming: Draft, run: Callable[..., Any]) -> None:
    Path("fri.csv").write_text("id,amts\n")
    assert run(renaming, "rename the column amt to sum in fri.csv").status != "ok"
    assert Path("fri.csv").read_text() == "id,amts\n"


@pytest.mark.parametrize("program", ["mv", "cp"])
def test_a_file_that_is_there_is_not_replaced_by_another(
    run: Callable[..., Any], program: str
) -> None:
    rotated = learnt(
        [
            session(f"rotate the log {name}", (f"{program} {name}.log {name}.old", ""))
            for name in FILES
        ]
    )
    Path("app.log").write_text("two")
    Path("app.old").write_text("one")
    assert run(rotated, "rotate the log app").status != "ok"
    assert Path("app.old").read_text() == "one"
    Path("app.old").unlink()
    assert run(rotated, "rotate the log app").status == "ok"
    assert Path("app.old").read_text() == "two"


def test_a_file_in_a_folder_is_not_replaced_either(run: Callable[..., Any]) -> None:
    archived = learnt(
        [session(f"archive {name}", (f"mv {name}.txt archive/", "")) for name in FILES]
    )
    Path("archive").mkdir()
    Path("fri.txt").write_text("new")
    Path("archive/fri.txt").write_text("old")
    assert run(archived, "archive fri").status != "ok"
    assert Path("archive/fri.txt").read_text() == "old"


def released(said: str = "") -> Draft:
    def commands(version: str) -> list[tuple[str, str]]:
        return [
            ("ls", f"CHANGES\nnotes-{version}"),
            ("git status --short", said),
            (f"git tag v{version}", ""),
        ]

    versions = ["1.0.0", "1.1.0", "1.1.1", "2.0.0"]
    return learnt([session(f"tag version {one}", *commands(one)) for one in versions])


def test_what_was_clean_in_all_sessions_must_be_clean_again(
    run: Callable[..., Any], git: Callable[..., str]
) -> None:
    Path("wip.txt").write_text("not done")
    git("add", "wip.txt")
    assert run(released(), "tag version 2.1.0").status != "ok"
    assert git("tag") == ""
    git("commit", "-qm", "done")
    assert run(released(), "tag version 2.1.0").status == "ok"
    assert git("tag") == "v2.1.0\n"


def test_what_is_no_file_is_not_told_as_a_changed_one(
    run: Callable[..., Any], git: Callable[..., str]
) -> None:
    assert run(released(), "tag version 2.1.0").output is None
    assert git("tag") == "v2.1.0\n"
