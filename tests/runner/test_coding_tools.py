"""Routines of coding agents run with em's own tools, in allowed folders, with allowed programs."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em import Memory
from em.errors import NotAllowed, RoutineError
from em.runner.engine import run_routine
from em.runner.tools import ToolRegistry
from em.runner.tools.coding import (
    BadPatch,
    Files,
    FileToolFailed,
    coding_tool,
    command_of,
    plain_edit,
)
from em.runner.tools.shell import check_paths
from em.settings import AllowSettings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "orders.csv").write_text("1,pending\n2,done\n3,pending\n")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.chdir(project)
    return project


def allowed(*commands: str) -> AllowSettings:
    return AllowSettings(commands=list(commands), folders=["."])


def routine(folder: Path, *steps: str, tools: str = "") -> Path:
    made = folder.parent / "routine"
    made.mkdir(exist_ok=True)
    lines = "\n".join(f"  - {step}" for step in steps)
    (made / "routine.yaml").write_text(f"name: r\n{tools}\nsteps:\n{lines}\n")
    return made


COUNT = """tools:
  - name: count
    effect: write
    shell: "grep -c {{ pattern }} {{ file }} > {{ output }}"
"""
STEP = "{id: count, type: tool.call, tool: count, args: {pattern: pending, file: %s, output: %s}}"


def test_a_declared_shell_command_runs_with_its_values(here: Path):
    made = routine(here, STEP % ("orders.csv", "'my report.txt'"), tools=COUNT)
    result = run_routine(made, allow=allowed("grep"))
    assert result.status == "ok"
    assert (here / "my report.txt").read_text() == "2\n"


@pytest.mark.parametrize(
    ("file", "output", "error"),
    [
        ("../secret.txt", "x", "NotAllowed"),
        ("orders.csv", "/tmp/em-never", "NotAllowed"),
        ("orders.csv", "../x", "NotAllowed"),
        ("-r", "x", "UnsafeValue"),
        ("'*'", "x", "UnsafeValue"),
        (r'"a\nb"', "x", "UnsafeValue"),
    ],
)
def test_values_outside_of_what_is_allowed_are_refused(
    here: Path, file: str, output: str, error: str
):
    made = routine(here, STEP % (file, output), tools=COUNT)
    result = run_routine(made, allow=allowed("grep"))
    assert (result.status, result.failure.error_type) == ("failed", error)
    assert [path.name for path in here.iterdir()] == ["orders.csv"]


def test_a_file_that_is_in_a_folder_above_says_where_to_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / "src").mkdir()
    monkeypatch.chdir(here / "src")
    read = "{id: look, type: tool.call, tool: FileText, args: {file_path: %s}}"
    failure = run_routine(routine(here, read % "orders.csv"), allow=allowed()).failure
    assert failure.message.endswith(
        f"can't be read: No such file or directory; it is in {here}: run the routine there"
    )
    (here / ".git").mkdir()
    outside = run_routine(routine(here, read % "secret.txt"), allow=allowed()).failure
    assert outside.message.endswith("can't be read: No such file or directory")


def test_a_link_that_leads_out_of_the_folder_is_refused(here: Path):
    (here / "link").symlink_to(here.parent)
    made = routine(here, STEP % ("link/secret.txt", "x"), tools=COUNT)
    assert run_routine(made, allow=allowed("grep")).failure.error_type == "NotAllowed"


@pytest.mark.parametrize("allow", [AllowSettings(commands=["grep"]), AllowSettings(folders=["."])])
def test_programs_and_folders_must_both_be_allowed_before_the_first_step(
    here: Path, allow: AllowSettings
):
    made = routine(here, STEP % ("orders.csv", "x"), tools=COUNT)
    result = run_routine(made, allow=allow)
    assert result.failure.error_type == "NotAllowed"
    assert "--allow-" in result.failure.message or "--allow-" in str(result.failure)


def test_a_script_that_nobody_can_read_needs_an_allowed_bash(here: Path):
    tools = """tools:
  - name: odd
    shell: "{{ script | raw }}"
    args_schema: {properties: {script: {const: "X=touch; $X made"}}}
"""
    step = "{id: odd, type: tool.call, tool: odd, args: {script: X=touch; $X made}}"
    made = routine(here, step, tools=tools)
    assert run_routine(made, allow=allowed("touch")).failure.error_type == "NotAllowed"
    assert run_routine(made, allow=allowed("bash")).status == "ok"
    assert (here / "made").exists()


def test_a_registered_shell_runs_the_command_instead(here: Path):
    tools = COUNT.replace("effect: write", "effect: write\n    via: Bash")
    made = routine(here, STEP % ("orders.csv", "x"), tools=tools)
    ran = []

    def bash(command: str) -> None:
        ran.append(command)

    result = run_routine(made, {}, {"Bash": bash})
    assert result.status == "ok"
    assert ran == ["grep -c pending orders.csv > x"]


def test_a_run_is_not_resumed_with_another_shell(here: Path, tmp_path: Path):
    tools = COUNT.replace("effect: write", "effect: write\n    via: Bash")
    ask = "{id: ask, type: prompt.user, prompt: {message: Go on?, fields: [{name: said}]}}"
    made = routine(here, ask, STEP % ("orders.csv", "x"), tools=tools)
    shell = tmp_path / "my_shell.py"
    with Memory(str(tmp_path / "em.db")) as memory:
        shell.write_text("def Bash(command):\n    return command\n")
        waiting = memory.run(made, {}, ToolRegistry.load(str(shell)))
        shell.write_text("def Bash(command):\n    return command + '!'\n")
        with pytest.raises(RoutineError, match="was changed since this run began"):
            memory.resume(
                waiting.run_id, ToolRegistry.load(str(shell)), answers={"ask": {"said": "y"}}
            )


def test_tools_of_coding_agents_are_found_without_a_module(here: Path):
    made = routine(
        here,
        "{id: w, type: tool.call, tool: Write, args: {file_path: a.txt, content: one}}",
        "{id: e, type: tool.call, tool: edit, args:"
        " {filePath: a.txt, oldString: one, newString: two}}",
        "{id: r, type: tool.call, tool: Read, args: {file_path: a.txt}, save_as: text}",
        "{id: end, type: return, value: '{{ text }}'}",
    )
    result = run_routine(made, allow=allowed())
    assert result.output == "     1→two"
    mine = run_routine(made, {}, {"Read": lambda file_path: f"mine {file_path}"}, allow=allowed())
    assert mine.output == "mine a.txt"
    assert run_routine(made).failure.error_type == "NotAllowed"


def test_a_dry_run_shows_each_command_and_each_diff(here: Path):
    made = routine(
        here,
        STEP % ("orders.csv", "out.txt"),
        "{id: e, type: tool.call, tool: Edit, args:"
        " {file_path: orders.csv, old_string: done, new_string: open}}",
        tools=COUNT + "  - {name: Edit, effect: write}",
    )
    options = ["--allow-command", "grep", "--allow-folder", "."]
    ran = em("run", str(made), "--dry-run", *options)
    assert ran.code == 0
    shown = ran.out
    assert "  | grep -c pending orders.csv > out.txt" in shown
    assert "  | -2,done" in shown
    assert "  | +2,open" in shown
    assert "done" in (here / "orders.csv").read_text()
    assert not (here / "out.txt").exists()


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("Bash", {"command": "ls", "description": "List"}, ("ls", "")),
        ("shell", {"command": ["bash", "-lc", "ls | wc"], "workdir": "/r"}, ("ls | wc", "/r")),
        ("shell", {"command": ["git", "commit", "-m", "a b"]}, ("git commit -m 'a b'", "")),
        ("exec_command", {"cmd": "ls", "yield_time_ms": 100}, ("ls", "")),
        ("execute_bash", {"command": "ls", "is_input": "false"}, ("ls", "")),
        ("execute_bash", {"command": "y", "is_input": "true"}, None),
        ("Bash", {"command": "serve", "run_in_background": True}, None),
        ("Bash", {"command": ""}, None),
        ("other", {"command": "ls"}, None),
    ],
)
def test_the_command_of_a_call_is_found(name: str, args: dict[str, Any], expected: tuple | None):
    assert command_of(name, args) == expected


def test_an_editor_with_several_commands_is_several_tools():
    view = {"command": "view", "path": "a", "view_range": [3, 7]}
    assert plain_edit("str_replace_editor", view) == (
        "Read",
        {"file_path": "a", "offset": 3, "limit": 5},
    )
    change = {"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y"}
    assert plain_edit("file_editor", change) == (
        "Edit",
        {"file_path": "a", "old_string": "x", "new_string": "y"},
    )
    assert plain_edit("file_editor", {"command": "undo_edit", "path": "a"}) is None


PATCH = """*** Begin Patch
*** Update File: orders.csv
@@
 1,pending
-2,done
+2,open
*** Add File: new/notes.txt
+hello
+there
*** End Patch"""


def test_a_patch_of_codex_changes_adds_and_deletes_files(here: Path):
    files = Files(allowed())
    assert "A new/notes.txt" in files.apply_patch(PATCH)
    assert (here / "orders.csv").read_text() == "1,pending\n2,open\n3,pending\n"
    assert (here / "new" / "notes.txt").read_text() == "hello\nthere\n"
    files = Files(allowed())
    files.apply_patch(
        "*** Begin Patch\n*** Update File: orders.csv\n*** Move to: sales.csv\n@@\n-2,open\n+2,x\n"
        "*** Delete File: new/notes.txt\n*** End Patch"
    )
    assert (here / "sales.csv").read_text() == "1,pending\n2,x\n3,pending\n"
    assert not (here / "orders.csv").exists()
    assert not (here / "new" / "notes.txt").exists()


@pytest.mark.parametrize(
    "patch",
    [
        PATCH.replace("2,done", "2,gone"),
        PATCH.replace("new/notes.txt", "../notes.txt"),
        PATCH.replace("*** Begin", "Begin"),
        PATCH.replace("orders.csv", "missing.csv"),
        PATCH.replace("+there", "there"),
        PATCH.replace("*** Update", "+4,open\n*** Update"),
        PATCH.replace(" 1,pending\n-2,done\n+2,open", "-9,twice\n+9,once"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(here: Path, patch: str):
    before = "9,twice\n1,pending\n2,done\n9,twice\n"
    (here / "orders.csv").write_text(before)
    with pytest.raises((BadPatch, NotAllowed)):
        Files(allowed()).apply_patch(patch)
    assert (here / "orders.csv").read_text() == before
    assert not (here.parent / "notes.txt").exists()


@pytest.mark.parametrize(
    "text",
    [
        "cat ../secret.txt",
        "cat /etc/hostname",
        "cat ~/x",
        "cat $X",
        "cat sub/../../x",
        "ls > ../x",
        "sort -o../x orders.csv",
        "mytool --out=../x",
        "mytool -o/tmp/x",
        "git -C .. status",
        "cd .. && ls",
        "cd sub && cat ../../x",
        'for f in ../*; do cat "$f"; done',
        "cd && ls",
        "(cd ..; ls)",
        "(cd sub && ls); cat ../secret.txt",
        "cd sub | cat ../secret.txt",
        "cd sub || cat ../secret.txt",
        "cd sub && cd - && cat ../secret.txt",
        "pushd sub && popd && cat ../secret.txt",
        "find / -name x",
        "cat ../*.txt",
        "echo x > $HOME/y",
    ],
)
def test_words_that_lead_out_of_the_folder_are_refused(here: Path, text: str):
    (here / "sub").mkdir()
    with pytest.raises(NotAllowed):
        check_paths(text, allowed())


@pytest.mark.parametrize(
    "text",
    [
        "sed -n '/error/p' orders.csv",
        "awk '/x/ {print}' orders.csv",
        "grep '/api/..' orders.csv",
        "git commit -m '/ is the root'",
        "cd sub && cat ../orders.csv",
        "cd sub; cat ../orders.csv && cat ../x",
        "pushd sub && cat ../orders.csv",
        "(cd sub && ls); cat orders.csv",
        "cat *.csv > /dev/null",
        "curl https://example.com/../x",
        f"cat {'sub/' * 3}x",
    ],
)
def test_words_that_are_no_paths_are_let_through(here: Path, text: str):
    (here / "sub").mkdir()
    check_paths(text, allowed())


def test_an_edit_must_fit_exactly_once(here: Path):
    files = Files(allowed())
    for old in ("pending", "missing"):
        with pytest.raises(FileToolFailed):
            files.edit("orders.csv", old, "x")
    edits = [
        {"old_string": "done", "new_string": "x"},
        {"old_string": "missing", "new_string": "y"},
    ]
    with pytest.raises(FileToolFailed):
        files.multi_edit("orders.csv", edits)
    assert "done" in (here / "orders.csv").read_text()
    files.edit("orders.csv", "pending", "open", replace_all=True)
    assert (here / "orders.csv").read_text().count("open") == 2


def test_searches_stay_in_their_folder(here: Path):
    files = Files(allowed())
    (here / "a.py").write_text("x = 1\n")
    assert files.glob("*.py") == str(here / "a.py")
    assert files.grep("x = ") == "Found 1 file\na.py"
    assert files.grep("x", "a.py", output_mode="content") == "1:x = 1"
    assert files.list() == "a.py\norders.csv"
    with pytest.raises(FileToolFailed):
        files.glob("../*")
    with pytest.raises(NotAllowed):
        files.grep("secret", "..")


def test_there_is_no_tool_for_an_unknown_name():
    assert coding_tool("refund_order", allowed()) is None


def test_a_command_that_must_fail_returns_all_that_it_printed(here: Path):
    tools = """tools:
  - {name: tests, effect: read, shell: "sh {{ script | fixed }}", exit_codes: [3],
     args_schema: {properties: {script: {const: tests.sh}}}}
"""
    run = "{id: run, type: tool.call, tool: tests, args: {script: tests.sh}, save_as: printed}"
    made = routine(here, run, '{id: end, type: return, value: "{{ printed }}"}', tools=tools)
    (here / "tests.sh").write_text("echo out; echo err >&2; exit 3\n")
    assert run_routine(made, allow=allowed("bash")).output == "out\nerr"
    (here / "tests.sh").write_text("exit 0\n")
    failure = run_routine(made, allow=allowed("bash")).failure
    assert failure.message == "`sh tests.sh` ended with exit code 0 (it ended with 3 when recorded)"


def test_a_new_file_is_never_written_over_another_one(here: Path):
    step = "{id: make, type: tool.call, tool: Create, args: {file_path: a.txt, content: new}}"
    made = routine(here, step)
    assert run_routine(made, allow=allowed()).status == "ok"
    assert run_routine(made, allow=allowed()).failure.error_type == "FileToolFailed"


@pytest.mark.parametrize(
    ("content", "old"),
    [
        ("timeout: 45\n", "timeout: 4"),
        ("port: 9090\n", "port: 909"),
        ("max_retries: 5\n", "retries: 5"),
        ("version = 1.25\n", "version = 1"),
        ("version = 1.25\n", "25"),
    ],
)
def test_a_text_inside_a_longer_word_or_number_is_not_replaced(
    here: Path, content: str, old: str
) -> None:
    (here / "settings").write_text(content)
    with pytest.raises(FileToolFailed, match="part of a longer word or number"):
        Files(allowed()).edit("settings", old, "new")
    assert (here / "settings").read_text() == content


def test_a_text_beside_signs_is_replaced(here: Path) -> None:
    (here / "settings").write_text('timeout: 4, "port": 90.\n')
    Files(allowed()).edit("settings", "timeout: 4", "timeout: 5")
    Files(allowed()).edit("settings", "90", "91")
    assert (here / "settings").read_text() == 'timeout: 5, "port": 91.\n'
