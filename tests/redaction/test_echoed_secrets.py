"""A secret that is known by its parameter's name is stored nowhere, also where a tool echoes it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.runner.engine import run_routine
from em.traces.trace import Mission, ToolCall, Trace
from em.values.canonical import Json

PASSWORD = "tulips and rain"
LOGIN = """
version: "1"
name: login
steps:
  - {id: enter, type: tool.call, tool: enter, save_as: entered,
     args: {user: "{{ user }}", password: "{{ password }}"}}
  - {id: fetch, type: tool.call, tool: fetch, args: {page: "{{ entered.page }}"}, save_as: fetched}
  - {id: out, type: return, value: "{{ fetched.title }}"}
"""
NESTED = """
version: "1"
name: login
steps:
  - {id: enter, type: tool.call, tool: enter, save_as: entered,
     args: {user: "{{ user }}", password: "{{ words[0] }} and {{ words[1] }}"}}
  - {id: fetch, type: tool.call, tool: fetch, args: {page: "{{ entered.page }}"}, save_as: fetched}
  - {id: out, type: return, value: "{{ fetched.title }}"}
"""


def enter(user: str, password: str) -> Json:
    return {"page": "home", "log": f"{user} came in with {password}", "password_was": [password]}


def fetch(page: str) -> Json:
    return {"title": page, "note": f"the words were: {PASSWORD.upper()}"}


def written(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file())


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (LOGIN, {"user": "ana", "password": PASSWORD}),
        (NESTED, {"user": "ana", "words": ["tulips", "rain"]}),
    ],
)
def test_a_run_writes_no_echo_of_a_secret_parameter(tmp_path: Path, text: str, given: Json) -> None:
    routine = tmp_path / "login"
    routine.mkdir()
    (routine / "routine.yaml").write_text(text)
    store = tmp_path / "store"
    store.mkdir()
    with Memory(store / "em.db") as memory:
        result = memory.run(routine, given, tools={"enter": enter, "fetch": fetch})
        assert (result.status, result.output) == ("ok", "home")
    assert PASSWORD.encode() not in written(store).lower()


def test_an_error_and_what_a_run_reports_hide_it(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(LOGIN)
    told: list[Any] = []

    def refuses(user: str, password: str) -> Json:
        raise ValueError(f"{password!r} is wrong for {user}")

    result = run_routine(
        tmp_path,
        {"user": "ana", "password": PASSWORD},
        {"enter": refuses, "fetch": fetch},
        on_step=told.append,
    )
    assert result.status == "failed"
    assert PASSWORD not in msgspec.json.encode([result, told], enc_hook=repr).decode()
    assert "[redacted:password]" in str(result.failure)


def test_a_trace_writes_no_echo_of_a_secret_parameter(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        call = {"type": "tool_call", "tool": "enter", "args": {"user": "ana", "password": PASSWORD}}
        memory.add_trace(
            {
                "mission": {"goal": "come in"},
                "events": [
                    {**call, "result": enter("ana", PASSWORD)},
                    {"type": "tool_call", "tool": "fetch", "args": {}, "result": fetch("home")},
                ],
                "final_output": f"done with {PASSWORD}",
            }
        )
    assert PASSWORD.encode() not in written(tmp_path).lower()


def test_a_recorded_run_writes_no_echo_of_a_secret_parameter(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory, memory.record("come in") as recording:
        tool = recording.tool(enter)
        tool("ana", password=PASSWORD)
        recording.tool(fetch)("home")
        recording.output = f"done with {PASSWORD}"
    assert PASSWORD.encode() not in written(tmp_path).lower()


def test_a_short_or_ordinary_word_under_a_secret_name_changes_nothing_else(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        trace_id = memory.add_trace(
            {
                "mission": {"goal": "look"},
                "events": [
                    {"type": "tool_call", "tool": "look", "args": {"token": None, "secret": True},
                     "result": {"password": "", "said": "None of it is true"}},
                ],
            }
        )  # fmt: skip
        (event,) = [one for one in memory.log.read() if one.kind == "tool_call"]
        assert event.body is not None
        assert event.body["result"]["said"] == "None of it is true"
        assert trace_id


def test_a_reflection_stores_no_echo_of_a_secret(tmp_path: Path) -> None:
    steps = [
        ToolCall(tool="enter", args={"password": PASSWORD}, error=f"wrong: {PASSWORD}"),
        ToolCall(tool="enter", args={"password": PASSWORD, "again": True}, result=[PASSWORD]),
    ]
    trace = Trace(mission=Mission(f"go in with {PASSWORD}", {}), events=steps, outcome="success")
    with Memory(tmp_path / "em.db") as memory:
        memory.heuristics.reflect(trace)
        stored = str([event.body for event in memory.log.read()])
    assert "wrong: [redacted:password]" in stored
    assert PASSWORD.encode() not in written(tmp_path).lower()
