"""Each format is found by looking, and its calls come with what they were given and gave."""

import json
from pathlib import Path
from typing import Any

import pytest
from sessions import lines, order_session, otlp

from em import Memory
from em.traces.trace import KeptTrace, ToolCall
from em.traces.transcripts import read_traces

ARGS, RESULT = {"city": "Lisbon"}, {"temperature": 21}
OPENAI_CALL = {"id": "c1", "type": "function",
               "function": {"name": "weather", "arguments": json.dumps(ARGS)}}  # fmt: skip
LC_CALL = {"name": "weather", "args": ARGS, "id": "c1", "type": "tool_call"}
TEXT = json.dumps(RESULT)

ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s1",
    "agent": {"name": "terminus", "version": "1"},
    "steps": [
        {"step_id": 1, "timestamp": "2025-10-01T10:00:00Z", "source": "user",
         "message": "weather?"},
        {"step_id": 2, "timestamp": "2025-10-01T10:00:01Z", "source": "agent", "message": "",
         "tool_calls": [{"tool_call_id": "c1", "function_name": "weather", "arguments": ARGS}],
         "observation": {"results": [{"source_call_id": "c1", "content": TEXT}]},
         "metrics": {"prompt_tokens": 10, "completion_tokens": 5, "cost_usd": 0.01}},
    ],
}  # fmt: skip
LANGSMITH = [
    {"id": "r1", "trace_id": "r1", "name": "agent", "run_type": "chain", "dotted_order": "1",
     "start_time": "2025-10-01T10:00:00", "end_time": "2025-10-01T10:00:03",
     "inputs": {"messages": [{"role": "user", "content": "weather?"}]}, "outputs": {}},
    {"id": "r2", "trace_id": "r1", "parent_run_id": "r1", "name": "model", "run_type": "llm",
     "start_time": "2025-10-01T10:00:00.5", "end_time": "2025-10-01T10:00:01", "total_tokens": 15,
     "inputs": {"messages": [[{"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"],
                               "kwargs": {"content": "weather?", "type": "human"}}]]},
     "outputs": {"generations": [[{"message": {
         "lc": 1, "type": "constructor", "id": ["x", "AIMessage"],
         "kwargs": {"content": "", "tool_calls": [LC_CALL], "type": "ai"}}}]]}},
    {"id": "r3", "trace_id": "r1", "parent_run_id": "r1", "name": "weather", "run_type": "tool",
     "start_time": "2025-10-01T10:00:01", "end_time": "2025-10-01T10:00:02",
     "inputs": {"input": str(ARGS)},
     "outputs": {"output": {"content": TEXT, "tool_call_id": "c1", "type": "tool"}}},
]  # fmt: skip
LANGFUSE = {
    "id": "t1", "name": "agent", "input": {"question": "weather?"}, "output": "21 degrees",
    "timestamp": "2025-10-01T10:00:00Z",
    "observations": [
        {"id": "o1", "traceId": "t1", "type": "GENERATION", "name": "model", "level": "DEFAULT",
         "startTime": "2025-10-01T10:00:00Z", "endTime": "2025-10-01T10:00:01Z",
         "input": [{"role": "user", "content": "weather?"}],
         "output": {"role": "assistant", "tool_calls": [OPENAI_CALL]},
         "usageDetails": {"input": 10, "output": 5, "total": 15}},
        {"id": "o2", "traceId": "t1", "type": "TOOL", "name": "weather", "level": "DEFAULT",
         "startTime": "2025-10-01T10:00:01Z", "endTime": "2025-10-01T10:00:02Z",
         "input": ARGS, "output": RESULT},
    ],
}  # fmt: skip
AGENTS = [
    {"object": "trace", "id": "trace_1", "workflow_name": "weather"},
    {"object": "trace.span", "id": "s1", "trace_id": "trace_1", "parent_id": None,
     "started_at": "2025-10-01T10:00:00Z", "ended_at": "2025-10-01T10:00:01Z", "error": None,
     "span_data": {"type": "generation", "input": [{"role": "user", "content": "weather?"}],
                   "output": [{"role": "assistant", "tool_calls": [OPENAI_CALL]}],
                   "usage": {"input_tokens": 10, "output_tokens": 5}}},
    {"object": "trace.span", "id": "s2", "trace_id": "trace_1", "parent_id": None,
     "started_at": "2025-10-01T10:00:01Z", "ended_at": "2025-10-01T10:00:02Z", "error": None,
     "span_data": {"type": "function", "name": "weather", "input": json.dumps(ARGS),
                   "output": TEXT}},
]  # fmt: skip
RESPONSE = {
    "object": "response", "id": "resp_1", "created_at": 1759312800, "usage": {"total_tokens": 15},
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "weather?"}]}],
    "output": [{"type": "function_call", "call_id": "c1", "name": "weather",
                "arguments": json.dumps(ARGS)}],
}  # fmt: skip
NEXT_RESPONSE = {
    "object": "response", "id": "resp_2", "previous_response_id": "resp_1",
    "created_at": 1759312801,
    "input": [{"type": "function_call_output", "call_id": "c1", "output": TEXT}],
    "output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "21 degrees"}]}],
}  # fmt: skip
TOOL_TURN = [
    {"type": "human", "content": "weather?"},
    {"type": "ai", "content": "", "tool_calls": [LC_CALL]},
    {"type": "tool", "content": TEXT, "tool_call_id": "c1", "status": "success"},
]
JAEGER_TAGS = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather",
    "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": json.dumps(ARGS),
    "gen_ai.tool.call.result": TEXT,
}  # fmt: skip
JAEGER = {"data": [{"traceID": "t1", "processes": {}, "spans": [
    {"traceID": "t1", "spanID": "s1", "operationName": "execute_tool weather", "references": [],
     "startTime": 1759312800000000, "duration": 1000000,
     "tags": [{"key": key, "value": value} for key, value in JAEGER_TAGS.items()],
     "logs": []}]}]}  # fmt: skip
INFERENCE = {"trace_id": "t1", "spans": [{
    "trace_id": "t1", "span_id": "s1", "parent_span_id": None, "span_name": "weather",
    "timestamp": "2025-10-01T10:00:00Z", "duration": "PT1S", "status_code": "Ok",
    "span_attributes": {"openinference.span.kind": "TOOL", "tool.name": "weather",
                        "input.value": json.dumps(ARGS), "output.value": TEXT},
    "child_spans": []}]}  # fmt: skip
ANTHROPIC = {"messages": [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": [
        {"type": "tool_use", "id": "c1", "name": "weather", "input": ARGS}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": TEXT}]}]},
]}  # fmt: skip
OPENAI = {"messages": [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": TEXT},
]}  # fmt: skip
CODEX = lines(
    {"type": "session_meta", "payload": {"id": "s1", "cwd": "/x"}},
    {"type": "event_msg", "payload": {"type": "user_message", "message": "weather?"}},
    {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "weather?"}]}},
    {"type": "response_item", "payload": {
        "type": "function_call", "name": "weather", "call_id": "c1",
        "arguments": json.dumps(ARGS)}},
    {"type": "event_msg", "payload": {
        "type": "exec_command_end", "call_id": "c1", "aggregated_output": TEXT, "exit_code": 0,
        "duration": {"secs": 1, "nanos": 500000000}}},
    {"type": "response_item", "payload": {
        "type": "function_call_output", "call_id": "c1", "output": "Exit code: 0 ..."}},
)  # fmt: skip
CODEX_STREAM = lines(
    {"type": "thread.started", "thread_id": "t1"},
    {"type": "item.started", "item": {"id": "i1", "type": "mcp_tool_call", "tool": "weather",
                                      "arguments": ARGS}},
    {"type": "item.completed", "item": {"id": "i1", "type": "mcp_tool_call", "tool": "weather",
                                        "arguments": ARGS, "result": RESULT}},
    {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 5}},
)  # fmt: skip
TRAJECTORY = {"task": "weather?", "steps": [
    {"action": "weather", "args": ARGS, "observation": RESULT}]}  # fmt: skip


def doc(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


SAMPLES = [
    ("openai", doc(OPENAI)),
    ("openai", lines(OPENAI)),
    ("openai", doc(OPENAI["messages"])),
    ("anthropic", doc(ANTHROPIC)),
    ("responses", lines(RESPONSE, NEXT_RESPONSE)),
    ("responses", doc([*RESPONSE["input"], *RESPONSE["output"], *NEXT_RESPONSE["input"]])),  # type: ignore[misc]
    ("atif", doc(ATIF)),
    ("langchain", doc(TOOL_TURN)),
    ("langchain", doc({"values": {"messages": TOOL_TURN}, "config": {
        "configurable": {"thread_id": "t1"}}})),
    ("langchain", lines({"agent": {"messages": TOOL_TURN[:2]}}, {"tools": {
        "messages": TOOL_TURN[2:]}})),
    ("langsmith", lines(*LANGSMITH)),
    ("langsmith", doc({"runs": LANGSMITH})),
    ("langfuse", doc(LANGFUSE)),
    ("langfuse", lines(*LANGFUSE["observations"])),  # type: ignore[arg-type]
    ("openai-agents", lines(*AGENTS)),
    ("jaeger", doc(JAEGER)),
    ("openinference", doc(INFERENCE)),
    ("codex", CODEX),
    ("codex", CODEX_STREAM),
    ("native", doc(TRAJECTORY)),
]  # fmt: skip


@pytest.mark.parametrize(("format_", "data"), SAMPLES, ids=lambda given: str(given)[:20])
def test_a_call_is_found_in_every_format(format_: str, data: bytes) -> None:
    (kept,) = read_traces(data)
    assert kept.trace.app["name"] == format_
    (call,) = kept.trace.calls
    assert isinstance(call, ToolCall)
    assert (call.tool, call.args, call.result, call.error) == ("weather", ARGS, RESULT, None)


def read_one(value: Any) -> KeptTrace:
    (kept,) = read_traces(doc(value))
    return kept


def test_times_and_tokens_come_where_a_format_has_them() -> None:
    for value in (ATIF, LANGFUSE, {"runs": LANGSMITH}):
        assert read_one(value).trace.usage.tokens == 15, value
    for value in (LANGFUSE, {"runs": LANGSMITH}, JAEGER, INFERENCE):
        call = read_one(value).trace.calls[0]
        assert call.duration_ms == 1000.0
        assert str(call.started_at).startswith("2025-10-01T10:00:0")
    (codex,) = read_traces(CODEX)
    assert codex.trace.calls[0].duration_ms == 1500.0


def test_what_is_said_twice_by_a_format_is_said_once() -> None:
    (codex,) = read_traces(CODEX)
    assert [event for event in codex.trace.events if not isinstance(event, ToolCall)] == [
        codex.trace.events[0]
    ]
    (spans,) = read_traces(doc(otlp("ab" * 16, "W1")))
    assert sum(getattr(event, "text", "") == "cancel #W1" for event in spans.trace.events) == 1


def test_a_call_that_only_a_models_answer_names_is_found_with_its_later_result() -> None:
    """`gen_ai.tool.call.arguments` and `.result` are opt-in, and a tool may have no span."""
    old = {
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "weather",
        "gen_ai.completion.0.tool_calls.0.arguments": json.dumps(ARGS),
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "weather?",
    }
    later = {"gen_ai.prompt.3.role": "tool", "gen_ai.prompt.3.tool_call_id": "c1",
             "gen_ai.prompt.3.content": TEXT, "gen_ai.request.model": "m"}  # fmt: skip
    new = [{"role": "assistant", "parts": [
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": ARGS}]}]  # fmt: skip
    answered = [{"role": "tool", "parts": [
        {"type": "tool_call_response", "id": "c1", "result": RESULT}]}]  # fmt: skip
    bare = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather",
            "gen_ai.tool.call.id": "c1"}  # fmt: skip
    for first, second, tool in (
        ({**old, "gen_ai.request.model": "m"}, later, None),
        ({"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(new)},
         {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(answered)}, bare),
    ):  # fmt: skip
        tags = [first, *([tool] if tool else []), second]
        spans = [
            {"traceID": "t1", "spanID": f"s{n}", "operationName": "x", "startTime": 10**15 + n,
             "duration": 1, "tags": [{"key": key, "value": value} for key, value in one.items()]}
            for n, one in enumerate(tags)
        ]  # fmt: skip
        (call,) = read_one({"data": [{"traceID": "t1", "spans": spans}]}).trace.calls
        assert (call.args, call.result) == (ARGS, RESULT)


def test_failures_are_errors() -> None:
    failed: Any = json.loads(json.dumps(JAEGER))
    failed["data"][0]["spans"][0]["tags"] += [
        {"key": "error", "value": True},
        {"key": "otel.status_description", "value": "no such city"},
    ]
    assert read_one(failed).trace.calls[0].error == "no such city"
    runs: Any = json.loads(json.dumps(LANGSMITH))
    runs[2] |= {"error": "ValueError: no such city", "outputs": None}
    assert read_one({"runs": runs}).trace.calls[0].error == "ValueError: no such city"
    observation: Any = json.loads(json.dumps(LANGFUSE))
    observation["observations"][1] |= {"level": "ERROR", "statusMessage": "no such city"}
    assert read_one(observation).trace.calls[0].error == "no such city"
    shell = {"type": "response_item", "payload": {
        "type": "function_call", "name": "shell", "call_id": "c9", "arguments": "{}"}}  # fmt: skip
    ended = {"type": "response_item", "payload": {
        "type": "function_call_output", "call_id": "c9",
        "output": json.dumps({"output": "no", "metadata": {"exit_code": 2}})}}  # fmt: skip
    (codex,) = read_traces(lines(shell, ended))
    assert codex.trace.calls[0].error == "exit code 2: no"


def test_a_sub_agent_of_spans_is_a_trace_of_its_own() -> None:
    def span(own: str, parent: str, at: int, **tags: str) -> dict[str, Any]:
        return {"traceID": "t1", "spanID": own, "operationName": own, "startTime": 10**15 + at,
                "references": [{"refType": "CHILD_OF", "spanID": parent}] if parent else [],
                "duration": 5, "tags": [{"key": key.replace("__", "."), "value": value}
                                        for key, value in tags.items()]}  # fmt: skip

    agent, tool = "invoke_agent", "execute_tool"
    spans = [
        span("a", "", 0, gen_ai__operation__name=agent, gen_ai__agent__name="shop-agent"),
        span("a2", "a", 1, gen_ai__operation__name=agent, gen_ai__agent__name="shop_agent"),
        span("t", "a2", 2, gen_ai__operation__name=tool, gen_ai__tool__name="ask",
             gen_ai__tool__call__id="c1"),
        span("b", "t", 3, gen_ai__operation__name=agent, gen_ai__agent__name="helper"),
        span("u", "b", 4, gen_ai__operation__name=tool, gen_ai__tool__name="read"),
    ]  # fmt: skip
    main, helper = read_traces(doc({"data": [{"traceID": "t1", "spans": spans}]}))
    assert [call.tool for call in main.trace.calls if isinstance(call, ToolCall)] == ["ask"]
    assert [call.tool for call in helper.trace.calls if isinstance(call, ToolCall)] == ["read"]
    assert (helper.trace.parent, helper.trace.parent_call) == (main.id, "c1")


def test_a_list_of_lines_is_read_as_lines() -> None:
    (kept,) = read_traces(doc(order_session("s1", "W1")))
    assert len(kept.trace.calls) == 3


def test_otlp_ids_may_be_hexadecimal_or_base64() -> None:
    from base64 import b64encode

    hexadecimal = otlp("ab" * 16, "W1")
    base64: Any = json.loads(json.dumps(hexadecimal))
    for span in base64["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            span[name] = b64encode(bytes.fromhex(span[name])).decode()
    assert read_one(hexadecimal).trace == read_one(base64).trace


def test_lines_of_claude_code_are_read_whatever_their_other_fields_hold(tmp_path: Path) -> None:
    line = {"type": "user", "sessionId": "s", "uuid": "1", "parentUuid": None, "isSidechain": False}
    said = {"role": "user", "content": "Do it"}
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}
    written: list[dict[str, object]] = [
        {**line, "message": said, "toolUseResult": 5, "more": {"message": [1, {}]}},
        {**line, "type": "assistant", "message": {"id": "m", "content": [call], "usage": "odd"}},
        {**line, "message": {"content": [result]}, "toolUseResult": ["durationMs", {"x": 1}]},
        {**line, "message": 17},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in written))
    with Memory(":memory:") as memory:
        (read,) = memory.import_files(path)
        (kept,) = memory.traces()
    assert (read.calls, read.unknown, read.broken) == (1, 1, 0)
    assert [one.result for one in kept.trace.calls] == ["a.txt"]


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        (
            "claude-code",
            '{"type":"user","sessionId":"s","cwd":"/x","version":"2","uuid":"u","parentUuid":null,'
            '"message":{"role":"user","content":"go"}}\n'
            '{"type":"assistant","sessionId":"s","cwd":"/x","uuid":"v","parentUuid":"u","message":'
            '{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"Bash","input":'
            '{"command":"cat a.json"}}]}}\n'
            '{"type":"user","sessionId":"s","cwd":"/x","uuid":"w","parentUuid":"v","message":'
            '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":'
            '"{\\"a\\": 1}\\n"}]}}\n',
        ),
        (
            "codex",
            '{"timestamp":"2026-11-16T02:20:32Z","type":"session_meta","payload":{"id":"s",'
            '"cwd":"/x"}}\n'
            '{"timestamp":"2026-11-16T02:20:32Z","type":"response_item","payload":{"type":'
            '"function_call","name":"exec_command","arguments":"{\\"cmd\\": \\"cat a.json\\"}",'
            '"call_id":"t"}}\n'
            '{"timestamp":"2026-11-16T02:20:32Z","type":"response_item","payload":{"type":'
            '"function_call_output","call_id":"t","output":"Chunk ID: 3e7552\\nWall time: 0.0000 '
            "seconds\\nProcess exited with code 0\\nOriginal token count: 2\\nOutput:\\n"
            '{\\"a\\": 1}\\n"}}\n',
        ),
    ],
)
def test_what_a_command_printed_stays_a_text(format_: str, data: str) -> None:
    (kept,) = read_traces(data.encode())
    (call,) = kept.trace.calls
    assert isinstance(call, ToolCall)
    assert (kept.trace.app["name"], call.result) == (format_, '{"a": 1}\n')
