"""Sessions of coding agents: their calls, what failed, what was answered, and how they ended.

The samples are made by hand, in the form of files that the programs themselves wrote when they were
run against a model on loopback: Codex 0.166.0, opencode 1.18.33, pi 0.73.1. The other fields and
variants are those of the programs' sources: codex-rs `protocol` and `rollout`, opencode's
`schema/v1/session.ts`, pi's `docs/session-format.md`, mini-swe-agent 2 (`models/utils`),
tau-bench's `types.py` and tau2-bench's `data_model`.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sessions import ClaudeCode, lines

from em import Memory
from em.errors import MissingExtra, NoTranscript
from em.traces import outcomes
from em.traces.outcomes import CHECKS
from em.traces.trace import Message, ToolCall, Trace
from em.traces.transcripts import find_shape, read_traces

FAILS, WARNS = "grep -c missing a.txt", "echo 'Errors: 0, warnings: 2'"
SAID = "Errors: 0, warnings: 2\n"
ANSWER = "a.txt has 0 matches."


def read(data: bytes, format_: str) -> Trace:
    from io import BytesIO

    assert find_shape(BytesIO(data), "sample").importer.name == format_
    (kept,) = read_traces(data)
    return kept.trace


def doc(value: Any) -> bytes:
    return json.dumps(value).encode()


def ends(trace: Trace) -> list[tuple[Any, bool]]:
    """Return for each call its command, and whether it failed."""
    return [
        (call.args.get("command", call.args.get("cmd")), call.error is not None)
        for call in trace.calls
    ]


# ---------------------------------------------------------------------------------------- Codex


class Codex:
    """A rollout, line by line."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.add("session_meta", {
            "session_id": "s1", "id": "s1", "cwd": "/x", "cli_version": "0.166.0",
            "base_instructions": {"text": "You are a coding agent."}})  # fmt: skip
        self.event({"type": "task_started", "turn_id": "t1"})
        self.item({"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "<environment_context/>"}]})  # fmt: skip
        self.add("world_state", {"full": True, "state": {}})
        self.add("turn_context", {"turn_id": "t1", "cwd": "/x"})

    def add(self, kind: str, payload: dict[str, Any]) -> None:
        at = f"2026-11-16T02:20:{len(self.lines):02}.000Z"
        row = {"timestamp": at, "ordinal": len(self.lines), "type": kind, "payload": payload}
        self.lines.append(row)

    def event(self, payload: dict[str, Any]) -> None:
        self.add("event_msg", payload)

    def item(self, payload: dict[str, Any]) -> None:
        self.add("response_item", payload)

    def completed(self, **item: Any) -> None:
        self.event({"type": "item_completed", "thread_id": "s1", "turn_id": "t1", "item": item})

    def user(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.item({"type": "message", "role": "user", "content": content})
        self.completed(type="UserMessage", id=f"u{len(self.lines)}",
                       content=[{"type": "text", "text": text}])  # fmt: skip

    def says(self, text: str) -> None:
        self.completed(type="AgentMessage", id=f"m{len(self.lines)}",
                       content=[{"type": "Text", "text": text}])  # fmt: skip
        self.item({"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": text}]})  # fmt: skip

    def asks(self, call_id: str, cmd: str) -> None:
        self.item({"type": "function_call", "name": "exec_command", "call_id": call_id,
                   "arguments": json.dumps({"cmd": cmd})})  # fmt: skip

    def ran(self, call_id: str, cmd: str, code: int, output: str) -> None:
        self.completed(
            type="CommandExecution", id=call_id, command=["/bin/bash", "-lc", cmd],
            cwd="file:///x", source="unified_exec_startup", aggregated_output=output,
            status="failed" if code else "completed", exit_code=code,
            duration={"secs": 1, "nanos": 5},
        )  # fmt: skip

    def told(self, call_id: str, code: int, output: str) -> None:
        text = (
            f"Chunk ID: 3e7552\nWall time: 1.5000 seconds\nProcess exited with code {code}\n"
            f"Original token count: 2\nOutput:\n{output}"
        )
        self.item({"type": "function_call_output", "call_id": call_id, "output": text})


@pytest.mark.parametrize("sources", [("ran", "told"), ("told",), ("ran",)])
def test_a_codex_rollout_of_today_has_each_call_once_with_its_exit_code(
    sources: tuple[str, ...],
) -> None:
    codex = Codex()
    codex.user("count the matches")
    for call_id, cmd, code, output in (("c1", FAILS, 1, "0\n"), ("c2", WARNS, 0, SAID)):
        codex.asks(call_id, cmd)
        if "ran" in sources:
            codex.ran(call_id, cmd, code, output)
        if "told" in sources:
            codex.told(call_id, code, output)
    codex.says(ANSWER)
    codex.event({"type": "task_complete", "turn_id": "t1", "last_agent_message": ANSWER})
    trace = read(lines(*codex.lines), "codex")
    assert ends(trace) == [(FAILS, True), (WARNS, False)]
    assert [call.error or call.result for call in trace.calls] == ["exit code 1: 0\n", SAID]
    assert trace.mission.goal == "count the matches"
    assert trace.final_output == ANSWER
    assert [event.role for event in trace.events if hasattr(event, "role")].count("assistant") == 1


def test_codex_items_without_a_response_item_are_calls_too() -> None:
    """In code mode one script makes many calls, and only `item_completed` has them."""
    codex = Codex()
    codex.ran("n1", FAILS, 1, "0\n")
    codex.completed(type="McpToolCall", id="n2", server="docs", tool="search",
                    arguments={}, status="failed", error={"message": "no server"})  # fmt: skip
    codex.completed(type="mcpToolCall", id="n4", server="docs", tool="search", arguments={},
                    status="completed", result={"isError": True, "content": [
                        {"type": "text", "text": "no index"}]})  # fmt: skip
    codex.completed(type="FileChange", id="n3", changes={"a.py": {"type": "delete"}},
                    status="completed", stdout="Success.")  # fmt: skip
    trace = read(lines(*codex.lines), "codex")
    assert [call.tool for call in trace.calls] == [
        "shell", "mcp__docs__search", "mcp__docs__search", "apply_patch",
    ]  # fmt: skip
    errors = ["exit code 1: 0\n", "no server", "no index", None]
    assert [call.error for call in trace.calls] == errors


@pytest.mark.parametrize("namespace", ["mcp__em", "mcp__em__"])
def test_a_tool_of_an_mcp_server_has_the_name_that_runs_it_in_codex(namespace: str) -> None:
    codex = Codex()
    codex.item({"type": "function_call", "name": "bump", "namespace": namespace, "call_id": "c1",
                "arguments": "{}"})  # fmt: skip
    trace = read(lines(*codex.lines), "codex")
    assert [call.tool for call in trace.calls if isinstance(call, ToolCall)] == ["mcp__em__bump"]


def test_what_codex_could_not_call_is_a_failure_and_an_error_in_a_file_is_not() -> None:
    codex = Codex()
    outputs = {
        "c1": "apply_patch verification failed: Failed to find expected lines in a.py",
        "c2": "exec_command failed for `x`: CreateProcess",
        "c3": "Exit code: 2\nWall time: 0.1 seconds\nOutput:\nno such file",
        "c4": "Error: this is the first line of a log that was read",
        "c5": "Chunk ID: a\nWall time: 10.0 seconds\nProcess running with session ID 4\nOutput:\n",
    }
    for call_id, output in outputs.items():
        codex.asks(call_id, "x")
        codex.item({"type": "function_call_output", "call_id": call_id, "output": output})
    trace = read(lines(*codex.lines), "codex")
    assert [failed for _, failed in ends(trace)] == [True, True, True, False, False]


def test_codex_results_belong_to_their_calls_when_they_ran_in_parallel() -> None:
    codex = Codex()
    for name in "abc":
        codex.asks(name, f"cat {name}")
    for name in "cab":
        codex.told(name, 0, f"text of {name}")
    trace = read(lines(*codex.lines), "codex")
    assert [call.result for call in trace.calls] == ["text of a", "text of b", "text of c"]


def test_the_same_words_twice_in_a_codex_session_are_two_messages() -> None:
    codex = Codex()
    for text in ("go on", "go on"):
        codex.user(text)
        codex.says("done")
    trace = read(lines(*codex.lines), "codex")
    said = [event.text for event in trace.events if hasattr(event, "text")]
    assert said[1:] == ["go on", "done"] * 2


BY_CODEX = [
    "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>",
    '<subagent_notification>\n{"status": {"completed": "All good."}}\n</subagent_notification>',
    "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>",
]


@pytest.mark.parametrize("text", BY_CODEX)
@pytest.mark.parametrize("by", ["", "harness", "user"])
def test_what_codex_says_in_the_name_of_the_user_is_not_what_was_asked_for(
    text: str, by: str
) -> None:
    codex = Codex()
    codex.user("count the lines")
    told = {"content_item_metadata": [{"provenance": {"type": by}}]} if by else {}
    codex.item({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": text}],
        "internal_chat_message_metadata_passthrough": told})  # fmt: skip
    codex.asks("c1", "wc -l")
    codex.told("c1", 0, "3")
    trace = read(lines(*codex.lines), "codex")
    said = [one.text for one in trace.events if isinstance(one, Message) and one.role == "user"]
    # A person may write it too, and Codex then says so.
    assert said[-1] == (text if by == "user" else "count the lines")


def test_a_sub_agent_of_codex_names_the_session_that_it_is_of() -> None:
    main, helper = Codex(), Codex()
    main.user("let somebody look")
    helper.lines[0]["payload"] |= {"id": "s2", "parent_thread_id": "s1"}
    helper.user("look")
    (one,) = read_traces(lines(*main.lines))
    (other,) = read_traces(lines(*helper.lines))
    assert (other.trace.parent, other.trace.mission.goal) == (one.id, "look")


def test_rollouts_of_codex_before_they_were_wrapped_are_read() -> None:
    trace = read(
        lines(
            {"id": "s1", "timestamp": "2025-06-01T10:00:00Z", "instructions": None},
            {"record_type": "state"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "count"}]},
            {"type": "function_call", "name": "shell", "call_id": "c1",
             "arguments": json.dumps({"command": ["bash", "-lc", FAILS]})},
            {"type": "function_call_output", "call_id": "c1", "output": json.dumps(
                {"output": "0\n", "metadata": {"exit_code": 1, "duration_seconds": 0.1}})},
        ),
        "codex",
    )  # fmt: skip
    assert [call.error for call in trace.calls] == ["exit code 1: 0\n"]
    assert trace.mission.goal == "count"


# ------------------------------------------------------------------------------------- opencode


def opencode_tool(number: int, command: str, state: dict[str, Any]) -> dict[str, Any]:
    times = {"start": 1_794_795_662_000 + number * 1000, "end": 1_794_795_662_500 + number * 1000}
    state = {"input": {"command": command}, "time": times, **state}
    return {"type": "tool", "tool": "bash", "callID": f"c{number}", "state": state,
            "id": f"prt_{number}", "sessionID": "ses_1", "messageID": "msg_2"}  # fmt: skip


PARTS = [
    {"type": "step-start", "id": "prt_a", "snapshot": "x"},
    {"type": "text", "text": "Working.", "id": "prt_b"},
    opencode_tool(1, FAILS, {"status": "completed", "output": "0\n",
                             "metadata": {"output": "0\n", "exit": 1, "truncated": False}}),
    opencode_tool(2, WARNS, {"status": "completed", "output": SAID,
                             "metadata": {"output": SAID, "exit": 0, "truncated": False}}),
    opencode_tool(3, "sleep 9", {"status": "error", "error": "Tool execution aborted"}),
    {"type": "step-finish", "id": "prt_c", "reason": "stop", "cost": 0.25,
     "tokens": {"input": 5, "output": 2, "reasoning": 0, "cache": {"read": 3, "write": 0}}},
]  # fmt: skip
OPENCODE: dict[str, Any] = {
    "info": {"id": "ses_1", "directory": "/x", "title": "A title", "version": "1.18.33"},
    "messages": [
        {"info": {"id": "msg_1", "role": "user", "time": {"created": 1_794_795_655_269}},
         "parts": [{"type": "text", "text": "count the matches", "id": "prt_0"}]},
        {"info": {"id": "msg_2", "role": "assistant", "cost": 0.25,
                  "tokens": {"input": 5, "output": 2, "cache": {"read": 3, "write": 0}},
                  "time": {"created": 1_794_795_658_537}}, "parts": PARTS},
        {"info": {"id": "msg_3", "role": "assistant", "cost": 0, "tokens": {"total": 7},
                  "time": {"created": 1_794_795_668_537}},
         "parts": [{"type": "text", "text": ANSWER, "id": "prt_z"}]},
    ],
}  # fmt: skip
TYPES = {"tool": "tool_use", "text": "text", "step-start": "step_start"}
OPENCODE_STREAM = [
    {"type": TYPES.get(str(part["type"]), "step_finish"), "timestamp": 1_794_795_662_687,
     "sessionID": "ses_1", "part": part}
    for part in [*PARTS, {"type": "text", "text": ANSWER, "id": "prt_z"}]
]  # fmt: skip


@pytest.mark.parametrize("data", [doc(OPENCODE), lines(*OPENCODE_STREAM)])
def test_an_opencode_session_has_its_calls_by_exit_code_and_state(data: bytes) -> None:
    trace = read(data, "opencode")
    assert ends(trace) == [(FAILS, True), (WARNS, False), ("sleep 9", True)]
    assert [call.error for call in trace.calls] == [
        "exit code 1: 0\n", None, "Tool execution aborted",
    ]  # fmt: skip
    assert trace.final_output == ANSWER
    assert (trace.usage.cost_usd, trace.calls[0].duration_ms) == (0.25, 500)


def test_opencodes_name_of_a_tool_of_em_is_that_of_other_agents() -> None:
    call = {**opencode_tool(1, FAILS, {"status": "completed", "output": "0"}), "tool": "em_bump"}
    messages = [OPENCODE["messages"][0], {**OPENCODE["messages"][1], "parts": [call]}]
    trace = read(doc({**OPENCODE, "messages": messages}), "opencode")
    assert [one.tool for one in trace.calls if isinstance(one, ToolCall)] == ["mcp__em__bump"]


def test_the_stream_and_the_export_of_an_opencode_session_are_one_trace(tmp_path: Path) -> None:
    with Memory(":memory:") as memory:
        for name, data in (("a.jsonl", lines(*OPENCODE_STREAM)), ("b.json", doc(OPENCODE))):
            (tmp_path / name).write_bytes(data)
            memory.import_files(tmp_path / name)
        (kept,) = memory.traces()
        assert len(kept.trace.calls) == 3


def write_database(path: Path, sessions: int) -> None:
    """Write sessions as opencode 1.18.33 stores them, without the columns that nothing reads."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript("""
            PRAGMA journal_mode = wal;
            CREATE TABLE IF NOT EXISTS session (id, parent_id, directory, time_created);
            CREATE TABLE IF NOT EXISTS message (id, session_id, time_created, data);
            CREATE TABLE IF NOT EXISTS part (id, message_id, session_id, data);
            DELETE FROM session; DELETE FROM message; DELETE FROM part;
        """)
        for number in range(1, sessions + 1):
            session = f"ses_{number}"
            row = (session, None, "/x", number)
            database.execute("INSERT INTO session VALUES (?, ?, ?, ?)", row)
            messages: Any = OPENCODE["messages"]
            for at, message in enumerate(messages):
                own, data = message["info"]["id"] + str(number), json.dumps(message["info"])
                row = (own, session, at, data)
                database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
                for part in message["parts"]:
                    parts = (part["id"], own, session, json.dumps(part))
                    database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", parts)
        database.commit()


def test_the_database_of_opencode_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with Memory(":memory:") as memory:
        write_database(path, 1)
        (read,) = memory.import_files(tmp_path)
        assert (read.format, read.calls) == ("opencode", 3)
        assert [one.skipped for one in memory.import_files(path)] == ["unchanged"]
        write_database(path, 2)
        (grown,) = memory.import_files(path)
        assert grown.new_traces == 1
        for kept in memory.traces():
            assert ends(kept.trace) == [(FAILS, True), (WARNS, False), ("sleep 9", True)]
            assert (kept.trace.final_output, kept.trace.app["cwd"]) == (ANSWER, "/x")


@pytest.mark.parametrize(
    "damaged", ["{", "[1]", b"\xb6{}", None, 7, '{"a": "\\ud83d"}', "[" * 5000]
)
def test_a_damaged_row_of_a_database_is_stored_verbatim(tmp_path: Path, damaged: Any) -> None:
    path = tmp_path / "opencode.db"
    write_database(path, 2)
    with closing(sqlite3.connect(path)) as database:
        for table in ("message", "part"):
            row = f"(SELECT min(rowid) FROM {table} WHERE session_id = 'ses_1')"
            database.execute(f"UPDATE {table} SET data = ? WHERE rowid = {row}", (damaged,))
        database.commit()
    with Memory(":memory:") as memory:
        (read,) = memory.import_files(path)
        assert (read.format, read.new_traces) == ("opencode", 2)
        sessions = {kept.trace.app["session"]: kept.trace for kept in memory.traces()}
    assert ends(sessions["ses_2"]) == [(FAILS, True), (WARNS, False), ("sleep 9", True)]


def test_another_database_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE message (id)")
    with Memory(tmp_path / "em.db") as memory:
        assert memory.import_files(tmp_path) == []
        with pytest.raises(NoTranscript):
            memory.import_files(tmp_path / "other.db")


# ------------------------------------------------------------------------------------------- pi


def pi_message(number: int, **message: Any) -> dict[str, Any]:
    return {"type": "message", "id": f"{number:08x}", "parentId": f"{number - 1:08x}",
            "timestamp": f"2026-11-16T02:20:{number:02}.000Z",
            "message": {**message, "timestamp": 1_794_795_637_550 + number}}  # fmt: skip


def pi_answer(number: int, *content: dict[str, Any]) -> dict[str, Any]:
    usage = {"input": 5, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 7,
             "cost": {"total": 0.5}}  # fmt: skip
    return pi_message(
        number, role="assistant", content=[*content], usage=usage, stopReason="toolUse"
    )


def pi_call(call_id: str, command: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {"command": command}}


def pi_result(number: int, call_id: str, text: str, *, failed: bool = False) -> dict[str, Any]:
    return pi_message(number, role="toolResult", toolCallId=call_id, toolName="bash",
                      content=[{"type": "text", "text": text}], isError=failed)  # fmt: skip


PI_HEADER = {"type": "session", "version": 3, "id": "p1", "timestamp": "2026-11-16T02:20:37.424Z",
             "cwd": "/x"}  # fmt: skip
PI_MESSAGES = [
    pi_message(3, role="user", content=[{"type": "text", "text": "count the matches"}]),
    pi_answer(4, {"type": "text", "text": "Working."}, pi_call("c1", FAILS), pi_call("c2", WARNS)),
    pi_result(5, "c2", SAID),  # they ran in parallel
    pi_result(6, "c1", "0\n\n\nCommand exited with code 1", failed=True),
    pi_answer(7, {"type": "text", "text": ANSWER}),
]
PI = [
    PI_HEADER,
    {"type": "model_change", "id": "00000001", "parentId": None,
     "timestamp": "2026-11-16T02:20:37.501Z", "provider": "loop", "modelId": "m"},
    *PI_MESSAGES,
]  # fmt: skip
PI_STREAM = [
    PI_HEADER,
    {"type": "agent_start"},
    *[{"type": kind, "message": line["message"]} for line in PI_MESSAGES
      for kind in ("message_start", "message_end")],
    {"type": "agent_end", "messages": []},
]  # fmt: skip


@pytest.mark.parametrize("data", [lines(*PI), lines(*PI_STREAM)])
def test_a_pi_session_has_its_calls_with_their_own_results(data: bytes) -> None:
    trace = read(data, "pi")
    assert ends(trace) == [(FAILS, True), (WARNS, False)]
    assert (trace.calls[1].result, trace.final_output) == (SAID, ANSWER)
    assert (trace.usage.tokens, trace.usage.cost_usd) == (14, 1.0)
    assert trace.mission.goal == "count the matches"


# ------------------------------------------------------------------------------- mini-swe-agent


def observation(text: str, code: int, **more: Any) -> dict[str, Any]:
    content = f"<returncode>{code}</returncode>\n<output>\n{text}</output>"
    extra = {"raw_output": text, "returncode": code, "exception_info": ""}
    return {"role": "user", "content": content, "extra": extra, **more}


def mini(*messages: dict[str, Any], status: str = "Submitted") -> bytes:
    first = [{"role": "system", "content": "s"}, {"role": "user", "content": "count the matches"}]
    return doc({"info": {"exit_status": status, "submission": "the patch"}, "messages": [
        *first, *messages], "trajectory_format": "mini-swe-agent-1.1"})  # fmt: skip


BOTH = [{"command": FAILS, "tool_call_id": "c1"}, {"command": WARNS, "tool_call_id": "c2"}]
AS_TEXT = [
    {"role": "assistant", "content": "two", "extra": {"actions": [
        {"command": one["command"]} for one in BOTH]}},
    observation("0\n", 1), observation(SAID, 0),
]  # fmt: skip
AS_CALLS = [
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": one["tool_call_id"], "type": "function", "function": {
            "name": "bash", "arguments": json.dumps({"command": one["command"]})}}
        for one in BOTH], "extra": {"actions": BOTH}},
    observation(SAID, 0, role="tool", tool_call_id="c2"),
    observation("0\n", 1, role="tool", tool_call_id="c1"),
]  # fmt: skip
AS_RESPONSES = [
    {"object": "response", "id": "r1", "output": [
        {"type": "function_call", "call_id": one["tool_call_id"], "name": "bash",
         "arguments": json.dumps({"command": one["command"]})} for one in BOTH],
     "extra": {"actions": BOTH}},
    {"type": "function_call_output", "call_id": "c1",
     "output": json.dumps({"returncode": 1, "output": "0\n"}), "extra": {
         "raw_output": "0\n", "returncode": 1}},
    {"type": "function_call_output", "call_id": "c2",
     "output": json.dumps({"returncode": 0, "output": SAID})},
]  # fmt: skip


@pytest.mark.parametrize("messages", [AS_TEXT, AS_CALLS, AS_RESPONSES])
def test_every_command_of_a_mini_swe_agent_message_is_a_call(messages: list[Any]) -> None:
    trace = read(mini(*messages), "mini-swe-agent")
    assert ends(trace) == [(FAILS, True), (WARNS, False)]
    assert [call.error or call.result for call in trace.calls] == ["exit code 1: 0\n", SAID]
    assert trace.final_output == "the patch"
    assert trace.outcome == "unknown"
    assert read(mini(*messages, status="LimitsExceeded"), "mini-swe-agent").outcome == "failure"


# ------------------------------------------------------------------------------------ tau-bench

TAU_CALL = {"id": "c1", "type": "function",
            "function": {"name": "get_order", "arguments": '{"order_id": "#W1"}'}}  # fmt: skip


def tau_run(task: int, reward: float, *traj: Any) -> dict[str, Any]:
    info = {"task": {"user_id": "u", "instruction": "You want to return #W1", "actions": [
        {"name": "return_order", "kwargs": {}}]}, "source": "user"}  # fmt: skip
    return {"task_id": task, "reward": reward, "info": info, "traj": [*traj], "trial": 0}


def test_raw_results_of_tau_bench_are_runs_with_their_rewards(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "policy"}, {"role": "user", "content": "hi"}]
    with_tools = [
        *asked, {"role": "assistant", "content": None, "tool_calls": [TAU_CALL]},
        {"role": "tool", "tool_call_id": "c1", "name": "get_order",
         "content": "Error: order not found"},
    ]  # fmt: skip
    as_text = [
        *asked,
        {"role": "assistant", "content":
            'Thought:\nlook\nAction:\n{"name": "get_order", "arguments": {"order_id": "#W1"}}'},
        {"role": "user", "content": 'API output: {"status": "open"}'},
        {"role": "assistant", "content":
            'Action:\n{"name": "respond", "arguments": {"content": "It is open."}}'},
        {"role": "user", "content": "###STOP###"},
    ]  # fmt: skip
    broken = tau_run(2, 0.0)
    broken["info"] = {"error": "timeout", "traceback": "Traceback"}
    path = tmp_path / "results.json"
    path.write_bytes(doc([broken, tau_run(0, 0.0, *with_tools), tau_run(1, 1.0, *as_text)]))
    with Memory(":memory:") as memory:
        (file,) = memory.import_files(path)
        assert (file.format, file.calls) == ("tau-bench", 2)
        found = {kept.trace.app["task"]: kept.trace for kept in memory.traces()}
    assert {task: trace.outcome for task, trace in found.items()} == {
        "0": "failure", "1": "success", "2": "failure",
    }  # fmt: skip
    assert found["0"].calls[0].error == "Error: order not found"
    assert found["1"].calls[0].result == {"status": "open"}
    assert found["0"].mission.goal == "You want to return #W1"


def test_simulations_of_tau2_bench_have_the_agents_calls_and_not_the_users() -> None:
    messages = [
        {"role": "user", "content": "no signal", "tool_calls": [
            {"id": "u1", "name": "check_phone", "arguments": {}, "requestor": "user"}]},
        {"role": "tool", "id": "u1", "content": "no SIM", "requestor": "user", "error": False},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a1", "name": "get_line", "arguments": {"id": "L1"}, "requestor": "assistant"}]},
        {"role": "tool", "id": "a1", "content": "Error: is the text of a ticket",
         "requestor": "assistant", "error": False},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a2", "name": "reset", "arguments": {"id": "L1"}, "requestor": "assistant"}]},
        {"role": "tool", "id": "a2", "content": "locked", "requestor": "assistant", "error": True},
    ]  # fmt: skip
    run = {"id": "x", "task_id": "t1", "termination_reason": "user_stop", "messages": messages,
           "reward_info": {"reward": 1.0}}  # fmt: skip
    task = {"id": "t1", "user_scenario": {"instructions": {"reason_for_call": "no signal"}}}
    trace = read(doc({"info": {}, "tasks": [task], "simulations": [run]}), "tau-bench")
    assert [(call.tool, call.error) for call in trace.calls] == [
        ("get_line", None), ("reset", "locked"),
    ]  # fmt: skip
    assert (trace.outcome, trace.mission.goal) == ("success", "no signal")


# ----------------------------------------------------------------------------- failures in chats


def chat(content: Any, **more: Any) -> bytes:
    function = {"name": "lint", "arguments": "{}"}
    return doc({"messages": [
        {"role": "user", "content": "lint it"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": content, **more}]})  # fmt: skip


@pytest.mark.parametrize(
    ("content", "failed"),
    [
        ("Errors: 0, warnings: 2", False),
        ("ErrorBoundary.tsx was read", False),
        ("Error handling is described in chapter 2", False),
        ("Error: no such file", True),
        ("Error executing tool lint: no such file", True),
        ("An error occurred while running the tool. Please try again. Error: x", True),
    ],
)
def test_a_chat_fails_by_a_text_that_reports_an_error(content: str, *, failed: bool) -> None:
    (call,) = read(chat(content), "openai").calls
    assert (call.error is not None) == failed


@pytest.mark.parametrize("said", [{"is_error": False}, {}])
def test_where_a_format_has_a_flag_text_is_not_a_failure(said: dict[str, Any]) -> None:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "Error: in a log", **said}
    messages = [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
        {"role": "user", "content": [block]},
    ]  # fmt: skip
    assert read(doc({"messages": messages}), "anthropic").calls[0].error is None
    langchain = [
        {"type": "human", "content": "read it"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "read", "args": {}, "id": "c1"}]},
        {"type": "tool", "content": "Error: in a log", "tool_call_id": "c1", "status": "success"},
    ]
    assert read(doc(langchain), "langchain").calls[0].error is None


# -------------------------------------------------------------------------------------- outcomes


def session(*commands: tuple[str, str, bool]) -> Trace:
    says = ClaudeCode()
    rows = [says.user("make it work")]
    for number, (command, output, failed) in enumerate(commands):
        rows.append(says.calls(f"t{number}", "Bash", command=command, description="run it"))
        rows.append(says.result(f"t{number}", output, **({"is_error": True} if failed else {})))
    rows.append(says.says("It works."))
    return read(lines(*rows), "claude-code")


@pytest.mark.parametrize(
    ("commands", "outcome"),
    [
        ([("pytest -q", "3 passed", False)], "success"),
        ([("pytest -q", "Exit code 1\n1 failed", True)], "failure"),
        ([("pytest -q", "1 failed", True), ("uv run pytest -q", "4 passed", False)], "success"),
        ([("cd web && CI=1 npm test -- --run", "ok", False), ("ls", "a", False)], "success"),
        ([("cargo test 2>&1", "", True)], "failure"),
        ([("go test ./...", "ok", False), ("git push origin main", "", True)], "failure"),
        ([("git -C sub push", "", False)], "success"),
        ([("pytest 2>&1 | tail -3", "== 1 failed, 3 passed in 0.1s ==", False)], "failure"),
        ([("pytest 2>&1 | tail -3", "== 4 passed in 0.1s ==", False)], "success"),
        ([("pytest | tee log", "nothing to see", False)], "unknown"),
        ([("make test || true", "", False)], "unknown"),
        ([("pytest --version", "pytest 8", False)], "unknown"),
        ([("pip install pytest", "ok", False)], "unknown"),
        ([("git commit -m 'run pytest, then git push'", "", False)], "unknown"),
        ([("cat > run.sh <<'EOF'\npytest\nEOF", "", False)], "unknown"),
        ([("git push --dry-run", "", False)], "unknown"),
        # The exit code is that of something else: the output decides, or nothing does.
        ([("pytest &", "", False)], "unknown"),
        ([("pytest; echo done", "", False)], "unknown"),
        ([("pytest; echo done", "2 failed", False)], "failure"),
        ([("for f in a b; do pytest $f; done", "", False)], "unknown"),
        ([("for f in a b; do pytest $f; done", "1 failed", False)], "failure"),
        ([("if pytest; then echo yes; fi", "yes", False)], "unknown"),
        ([('echo "$(pytest -q)"', "2 passed", False)], "success"),
        ([("! pytest", "", False)], "unknown"),
        ([("make build || pytest", "built", False)], "unknown"),
        ([("ls # then pytest", "a", False)], "unknown"),
        ([("(cd sub && pytest)", "", False)], "success"),
        ([("git log --grep='a\ngit push'", "", False)], "unknown"),
    ],
)
def test_the_last_test_run_or_push_is_the_outcome_of_a_session(
    commands: list[tuple[str, str, bool]], outcome: str
) -> None:
    assert session(*commands).outcome == outcome


def test_without_the_parser_of_commands_a_test_run_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_text: str) -> None:
        raise MissingExtra("shell", "reading shell commands")

    monkeypatch.setattr(outcomes, "parse", missing)
    assert session(("pytest", "1 passed", False)).outcome == "unknown"


@pytest.mark.parametrize("words", [check.words for check in CHECKS])
def test_every_command_of_the_table_is_recognised(words: str) -> None:
    command = f"cd sub && {words.rstrip('*')} --some-option"
    assert session((command, "", False)).outcome == "success"
    assert session((command, "", True)).outcome == "failure"
    assert session((f"echo '{words}'", "", False)).outcome == "unknown"


def test_what_a_format_says_of_the_outcome_goes_before_a_test_run() -> None:
    run = [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {
            "name": "bash", "arguments": json.dumps({"command": "pytest"})}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "3 passed"}]  # fmt: skip
    messages = [{"role": "user", "content": "fix it"}, *run]
    assert read(doc({"messages": messages}), "openai").outcome == "success"
    assert read(doc({"messages": messages, "reward": False}), "openai").outcome == "failure"


def test_the_agents_last_words_are_the_output_unless_it_went_on() -> None:
    assert session(("ls", "a", False)).final_output == "It works."
    says = ClaudeCode()
    open_end = [says.user("go"), says.says("I look."), says.calls("t1", "Bash", command="ls"),
                says.result("t1", "a")]  # fmt: skip
    assert read(lines(*open_end), "claude-code").final_output is msgspec.UNSET


# ----------------------------------------------------------------------------- Claude Code, again


def stream(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": "s1", "uuid": "u", "parent_tool_use_id": None, **more}


def test_the_stream_of_claude_code_is_a_session_with_its_sub_agents() -> None:
    """As `claude -p --output-format stream-json` writes it, by the types of the Agent SDK."""

    def message(role: str, *content: Any, **more: Any) -> dict[str, Any]:
        return stream(role, message={"role": role, "content": [*content]}, **more)

    def use(call_id: str, name: str, **args: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": name, "input": args}

    def result(call_id: str, content: str, **more: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}

    data = lines(
        stream("system", subtype="init", cwd="/x", tools=["Bash"]),
        message("assistant", use("t1", "Task", prompt="look")),
        message("assistant", use("t2", "Bash", command=FAILS), parent_tool_use_id="t1"),
        message("user", result("t2", "Exit code 1", is_error=True), parent_tool_use_id="t1"),
        message("user", result("t1", "nothing there")),
        stream("result", subtype="success", is_error=False, result=ANSWER, total_cost_usd=0.5),
    )
    own, sub = sorted(read_traces(data), key=lambda kept: kept.trace.parent is not None)
    assert (own.trace.final_output, own.trace.usage.cost_usd) == (ANSWER, 0.5)
    assert [call.tool for call in own.trace.calls] == ["Task"]
    assert ends(sub.trace) == [(FAILS, True)]
    assert (sub.trace.parent, sub.trace.parent_call) == (own.id, "t1")


def test_what_claude_code_says_itself_is_no_goal_and_no_answer() -> None:
    says = ClaudeCode()
    trace = read(
        lines(
            says.user("Caveat: The messages below were generated by the user", isMeta=True),
            says.user("This session is being continued", isCompactSummary=True),
            says.user("fix it"),
            says.calls("t1", "Bash", command="ls"),
            says.result("t1", "a"),
            {**says.says("API Error: 529 overloaded"), "isApiErrorMessage": True},
        ),
        "claude-code",
    )
    assert (trace.mission.goal, trace.final_output) == ("fix it", msgspec.UNSET)


def test_a_resumed_session_that_repeats_its_lines_has_each_call_once() -> None:
    says = ClaudeCode()
    first = [
        says.user("go"),
        says.calls("t1", "Bash", command="ls"),
        says.result("t1", "a.txt"),
        says.calls("t2", "Bash", command=FAILS),
        says.result("t2", "Exit code 1\n0", is_error=True),
    ]
    rest = [says.calls("t3", "Bash", command="ls"), says.result("t3", "a.txt")]
    (kept,) = read_traces(lines(*first, *first, *rest))
    assert ends(kept.trace) == [("ls", False), (FAILS, True), ("ls", False)]


def test_calls_of_claude_code_that_share_an_id_are_all_there() -> None:
    says = ClaudeCode()
    made = [says.user("go")]
    for command in ("ls", "pwd", "ls"):
        made += [says.calls("t", "Bash", command=command), says.result("t", command.upper())]
    (kept,) = read_traces(lines(*made))
    assert [call.result for call in kept.trace.calls] == ["LS", "PWD", "LS"]


def test_lines_of_claude_code_without_ids_are_one_session() -> None:
    says = ClaudeCode()
    rows = [says.user("look"), says.calls("t1", "Bash", command="ls"), says.result("t1", "a")]
    bare = [{name: row[name] for name in ("type", "timestamp", "cwd", "message")} for row in rows]
    assert ends(read(lines(*bare), "claude-code")) == [("ls", False)]


def test_a_call_that_printed_nothing_returned_nothing() -> None:
    says = ClaudeCode()
    session = lines(
        says.user("is it clean?"),
        says.calls("t1", "Bash", command="git status --short"),
        says.result("t1", "(Bash completed with no output)"),
        says.says("It is."),
    )
    (call,) = read(session, "claude-code").calls
    assert call.result == ""
