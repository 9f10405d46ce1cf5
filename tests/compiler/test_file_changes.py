"""What a session changed in files is the same, however it was done."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.compiler.file_changes import FOLDER, Session, hunks, session_of
from em.shell.form import CommandTemplate
from em.traces.trace import Message, ToolCall, Trace

BEFORE = '[project]\nname = "mill"\nversion = "1.0.0"\n'
NUMBERED = '     1→[project]\n     2→name = "mill"\n     3→version = "1.0.0"'
READ = ToolCall(tool="Read", args={"file_path": "/srv/p.toml"}, result=NUMBERED)
CAT = ToolCall(tool="exec_command", args={"cmd": "cat p.toml"}, result=BEFORE)
SED = ToolCall(tool="exec_command", args={"cmd": "sed -n '1,80p' p.toml"}, result=BEFORE)
LINE = {
    "file_path": "p.toml",
    "old_string": 'version = "1.0.0"',
    "new_string": 'version = "1.1.0"',
}
PATCH = """*** Begin Patch
*** Update File: p.toml
@@
 name = "mill"
-version = "1.0.0"
+version = "1.1.0"
*** End Patch"""


def session(*calls: ToolCall) -> Session:
    events = [Message(role="user", text="Bump it."), *calls]
    made = session_of(Trace(app={"cwd": "/srv"}, events=events), {})
    assert made is not None
    return made


def writes(made: Session) -> list[tuple[str, Any]]:
    return [(call.name, call.args) for call in made.calls if call.effect == "write"]


def edit(old: str, new: str, tool: str = "Edit") -> ToolCall:
    args = {"file_path": "/srv/p.toml", "old_string": old, "new_string": new}
    return ToolCall(tool=tool, args=args, result="updated")


def whole(text: str) -> ToolCall:
    return ToolCall(tool="Write", args={"file_path": "p.toml", "content": text}, result="updated")


BEHIND = ToolCall(tool="Read", args={"file_path": "/srv/p.toml"}, result=f"{NUMBERED}\n     4→")
"""A read that shows an empty line behind the last one, as some agents do."""
WRITE = whole(BEFORE.replace("1.0.0", "1.1.0"))


@pytest.mark.parametrize(
    "calls",
    [
        [READ, edit('version = "1.0.0"', 'version = "1.1.0"')],
        [READ, edit('"mill"\nversion = "1.0.0"', '"mill"\nversion = "1.1.0"')],
        [READ, edit("1.0.0", "1.1.0")],
        [READ, edit("1.0.0", "9.9.9"), edit("9.9.9", "1.1.0")],
        [READ, WRITE],
        [BEHIND, WRITE],
        [BEHIND, edit("1.0.0", "1.0.9"), WRITE],
        [CAT, ToolCall(tool="apply_patch", args={"input": PATCH}, result="Success")],
        [CAT, ToolCall(tool="apply_patch", args={"value": PATCH}, result="Success")],
        [CAT, ToolCall(tool="shell", args={"command": ["apply_patch", PATCH]}, result="Success")],
        [CAT, ToolCall(tool="exec_command", result="Success",
                       args={"cmd": f"apply_patch <<'END'\n{PATCH}\nEND\n"})],
        [SED, ToolCall(tool="apply_patch", args={"input": PATCH}, result="Success")],
        [CAT, ToolCall(tool="exec_command", args={"cmd": "sed -i 's/1.0.0/1.1.0/' p.toml"},
                       result="")],
    ],
)  # fmt: skip
def test_every_way_to_change_a_line_is_the_same_change(calls: list[ToolCall]) -> None:
    assert writes(session(*calls)) == [("Edit", LINE)]


def test_a_file_that_is_written_as_it_was_shown_is_not_changed() -> None:
    (read,) = session(BEHIND, whole(BEFORE)).calls
    assert read.result == BEFORE


def test_an_empty_line_at_the_end_that_is_known_is_taken_away() -> None:
    shown = ToolCall(tool="exec_command", args={"cmd": "cat p.toml"}, result=f"{BEFORE}\n")
    assert len(writes(session(shown, whole(BEFORE)))) == 1


def test_a_change_that_was_taken_back_is_none() -> None:
    assert writes(session(READ, edit("1.0.0", "2"), edit("2", "1.0.0"))) == []


def test_a_part_of_a_file_is_not_the_file() -> None:
    part = ToolCall(tool="exec_command", args={"cmd": "sed -n '1,3p' p.toml"}, result=BEFORE)
    patch = ToolCall(tool="apply_patch", args={"input": PATCH}, result="Success")
    assert [name for name, _ in writes(session(part, patch))] == ["apply_patch"]


def test_the_read_before_a_change_has_the_text_of_the_file() -> None:
    (read, _) = session(READ, edit("1.0.0", "1.1.0")).calls
    assert read.name == "FileText"
    assert read.result == BEFORE


def test_a_change_of_a_file_that_nobody_read_stays_as_it_was_made() -> None:
    made = writes(session(edit("1.0.0", "1.1.0")))
    assert made == [("Edit", {"file_path": "p.toml", "old_string": "1.0.0", "new_string": "1.1.0"})]


def test_a_file_that_a_command_may_have_changed_is_not_known_any_more() -> None:
    other = ToolCall(tool="Bash", args={"command": "make format"}, result="")
    names = [name for name, _ in writes(session(READ, other, edit("1.0.0", "1.1.0")))]
    assert names[-1] == "Edit"
    assert not any(call.name == "FileText" for call in session(READ, other).calls[1:])


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("pytest -q", "read"),
        ("cd tests && pytest -q 2>&1 | tail -3", "read"),
        ("rm -rf build && pytest -q", "write"),
        ("pytest -q > report.txt", "write"),
        ("git push && pytest", "write"),
    ],
)
def test_a_command_that_only_runs_tests_has_no_effect(command: str, effect: str) -> None:
    made = session(ToolCall(tool="Bash", args={"command": command}, result="1 passed")).calls
    assert max(call.effect for call in made) == effect


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("rm -rf build && pytest -q", ["rm -rf build", "pytest -q"]),
        ("git add -A; git commit -m x", ["git add -A", "git commit -m x"]),
        ("cd src && make lint && git add a", ["cd src && make lint", "cd src && git add a"]),
        ("export A=1; make; git add a", ["export A=1 && make", "export A=1 && git add a"]),
        ("ls && git status", ["ls && git status"]),
    ],
)
def test_each_statement_of_a_command_with_an_effect_is_a_call(
    command: str, made: list[str]
) -> None:
    calls = session(ToolCall(tool="Bash", args={"command": command}, result="done")).calls
    assert [CommandTemplate(call.shell, call.fixed).filled(call.args) for call in calls] == made


def test_what_a_failing_test_run_printed_is_its_result() -> None:
    text = "Exit code 1\n/srv/tests/test_a.py:3: in <module>"
    run = ToolCall(tool="Bash", args={"command": "pytest -q"}, error=text)
    (call,) = session(run).calls
    assert (call.result, call.exit_code) == (f"{FOLDER}/tests/test_a.py:3: in <module>", 1)


lines = st.lists(st.sampled_from(["a", "b", "", "## 1", "x = 1"]), max_size=8)


@given(lines, lines)
def test_the_hunks_of_two_texts_make_one_of_the_other(one: list[str], other: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in text) for text in (one, other))
    text = before
    for name, args in hunks(before, after):
        if name == "Insert":
            rows = text.splitlines(keepends=True)
            rows.insert(args["insert_line"], args["new_string"])
            text = "".join(rows)
        elif name == "Write":
            text = args["content"]
        else:
            assert text.count(args["old_string"]) == 1
            text = text.replace(args["old_string"], args["new_string"])
    assert text == after
