"""A routine has a name that says what it is for."""

import pytest

from em.compiler.compile_trace import compile_several
from em.traces.trace import KeptTrace, Mission, ToolCall, Trace, as_kept

BUMP = (
    "Please bump the version of the package to {} in pyproject.toml and write the changelog entry"
)


def session(goal: str, *tools: str, number: int = 1) -> KeptTrace:
    calls = [
        ToolCall(tool=tool, args={"command": f"echo {number} {n}"}, result=f"{number} {n}")
        for n, tool in enumerate(tools)
    ]
    trace = Trace(mission=Mission(goal), events=calls, outcome="success")
    return as_kept(trace, f"trace{number}")


@pytest.mark.parametrize("last", ["Bash", "exec_command", "TodoWrite", "Write", "bash"])
def test_a_coding_session_is_named_after_its_request(last: str) -> None:
    made = compile_several([session(BUMP.format("1.2.3"), "Bash", last)], force=True)
    assert made.draft.routine.name == "bump_version_package_write_changelog"


def test_what_differs_between_the_requests_is_not_in_the_name() -> None:
    goals = [f"Rename the function {name} everywhere it is used in the code" for name in "xy"]
    traces = [session(goal, "Bash", number=n) for n, goal in enumerate(goals)]
    name = compile_several(traces, force=True).draft.routine.name
    assert name == "rename_function_everywhere_used_code"


def test_a_request_without_words_leaves_the_name_of_what_was_done() -> None:
    made = compile_several([session("1 2 3 4 5 6 7 8 9", "Bash")], force=True)
    assert made.draft.routine.name == "echo"


def test_other_routines_are_named_after_the_tool_that_they_write_with() -> None:
    long = "the customer wants to cancel an order that was placed by mistake yesterday"
    made = compile_several([session(long, "cancel_order")], force=True)
    assert made.draft.routine.name == "cancel_order"
