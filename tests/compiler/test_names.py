"""A routine has a name that says what it is for."""

from typing import Any

import pytest

from em.compiler.compile_trace import compile_several
from em.traces.trace import KeptTrace, Message, Mission, ToolCall, Trace, as_kept

BUMP = (
    "Please bump the version of the package to {} in pyproject.toml and write the changelog entry"
)


def session(goal: str, *tools: str, number: int = 1) -> KeptTrace:
    calls = [
        ToolCall(tool=tool, args={argument: f"echo {number} {n}"}, result=f"{number} {n}")
        for n, tool in enumerate(tools)
        for argument in ["cmd" if tool == "exec_command" else "command"]
    ]
    trace = Trace(mission=Mission(goal), events=calls, outcome="success")
    return as_kept(trace, f"trace{number}")


def changed(*files: str, number: int = 1) -> KeptTrace:
    """A session that writes files, and was asked for in words of its own."""
    goal = BUMP.format(f"1.2.{number}")
    events: list[Any] = [Message(role="user", text=goal)]
    for file in files:
        given = {"file_path": f"/srv/{file}"}
        events.append(ToolCall(tool="Read", args=given, result=f"     1→version {number}"))
        given = {**given, "content": f"version 1.2.{number}\n"}
        events.append(ToolCall(tool="Write", args=given, result="updated"))
    trace = Trace(app={"cwd": "/srv"}, mission=Mission(goal), events=events, outcome="success")
    return as_kept(trace, f"trace{number}")


def name_of(*traces: KeptTrace) -> str:
    return compile_several(traces, force=True).draft.routine.name


def test_coding_sessions_are_named_after_the_files_that_they_changed() -> None:
    files = ("pyproject.toml", "docs/CHANGELOG.md")
    assert name_of(changed(*files), changed(*files, number=2)) == "change_pyproject_changelog"


def test_the_file_of_one_session_is_not_in_the_name() -> None:
    assert name_of(changed("letters/ana_silva.md")) == "change_md"


def test_files_that_only_one_session_changed_are_not_in_the_name() -> None:
    one, two = changed("a.md", "log.md"), changed("b.md", "log.md", number=2)
    assert name_of(one, two) == "change_log"
    assert name_of(changed("a.md"), changed("b.md", number=2)) == "change_md"


@pytest.mark.parametrize("last", ["Bash", "exec_command", "TodoWrite", "bash"])
def test_a_session_of_commands_is_named_after_them(last: str) -> None:
    assert name_of(session(BUMP.format("1.2.3"), "Bash", last)) == "echo"


def test_other_routines_are_named_after_the_tool_that_they_write_with() -> None:
    long = "the customer wants to cancel an order that was placed by mistake yesterday"
    made = compile_several([session(long, "cancel_order")], force=True)
    assert made.draft.routine.name == "cancel_order"
