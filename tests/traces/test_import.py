"""What agents left on disk comes in as traces; the same again changes nothing."""

import json
import os
import re
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sessions import ClaudeCode, lines, order_session, otlp

from em import Memory
from em.errors import InputError, NotFound, NoTranscript, UsageError
from em.store.protocol import Store
from em.traces.trace import Message, ToolCall
from em.traces.transcripts import FileRead
from strategies import examples


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def one(read: list[FileRead]) -> FileRead:
    assert len(read) == 1
    return read[0]


def kinds(memory: Memory) -> list[str]:
    return [event.kind for event in memory.log.read() if event.stream.startswith("trace/")]


def test_a_call_comes_with_its_arguments_result_error_times_and_tokens(
    memory: Memory, tmp_path: Path
) -> None:
    path = put(tmp_path / "s.jsonl", lines(*order_session("s1", "W1")))
    read = one(memory.import_files(path))
    assert (read.format, read.calls, read.new_traces, read.problems) == ("claude-code", 3, 1, [])
    (kept,) = memory.traces()
    assert kept.trace.mission.goal == "please cancel order #W1"
    first, second, third = kept.trace.calls
    assert isinstance(first, ToolCall)
    assert (first.tool, first.args) == ("get_order", {"order_id": "#W1"})
    assert first.result["status"] == "pending"  # JSON that was written as text is read
    assert (second.error, second.result) == ("there is no such order", None)
    assert (first.started_at, first.duration_ms) == ("2025-06-01T10:00:02+00:00", 1000.0)
    assert (first.tokens, kept.trace.usage.tokens, kept.trace.usage.model_calls) == (100, 400, 4)
    assert third.error is None
    said = [event for event in kept.trace.events if isinstance(event, Message)]
    assert [(event.role, event.text) for event in said] == [
        ("user", "please cancel order #W1"),
        ("assistant", "It is cancelled."),
    ]


def test_importing_the_same_twice_changes_nothing(memory: Memory, tmp_path: Path) -> None:
    path = put(tmp_path / "s.jsonl", lines(*order_session("s1", "W1")))
    memory.import_files(path)
    before = list(memory.log.read())
    assert one(memory.import_files(path)).skipped == "unchanged"
    assert list(memory.log.read()) == before
    os.utime(path, (1, 1))  # it looks changed, and is not
    assert one(memory.import_files(path)).new == 0
    copy = put(tmp_path / "copy.jsonl", path.read_bytes())
    assert one(memory.import_files(copy)).new == 0
    traces = [event for event in memory.log.read() if event.stream.startswith("trace/")]
    assert traces == [event for event in before if event.stream.startswith("trace/")]
    assert memory.log.verify().ok


@given(cuts=st.lists(st.integers(0, 8), min_size=1, max_size=4).map(sorted))
@settings(max_examples=examples(25), deadline=None)
def test_a_file_that_grows_brings_what_it_would_have_brought_at_once(cuts: list[int]) -> None:
    import tempfile

    session = order_session("s1", "W1")
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        path = Path(folder, "s.jsonl")
        for cut in [*cuts, len(session)]:
            if not cut:
                continue
            path.write_bytes(lines(*session[:cut]))
            memory.import_files(path)
        (grown,) = memory.traces()
        with Memory(":memory:") as other:
            other.import_files(path)
            (at_once,) = other.traces()
        assert grown.trace == at_once.trace
        assert grown.id == at_once.id
        assert memory.log.verify().ok


def test_a_document_that_grows_goes_on_as_the_same_trace(memory: Memory, tmp_path: Path) -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
    chat: list[Any] = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    path = put(tmp_path / "chat.json", json.dumps({"messages": chat}).encode())
    memory.import_files(path)
    (before,) = memory.traces()
    assert before.trace.calls[0].result is None
    chat += [
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "assistant", "content": "I see a cat."},
    ]
    path.write_text(json.dumps({"messages": chat}))
    memory.import_files(path)
    (after,) = memory.traces()
    assert (after.id, after.trace.calls[0].result) == (before.id, "a cat")
    # Another attempt in the same file is another trace.
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "something else"}]}))
    memory.import_files(path)
    assert len(memory.traces()) == 2


def test_a_broken_line_is_named_and_the_rest_goes_on(memory: Memory, tmp_path: Path) -> None:
    good = lines(*order_session("s1", "W1")).splitlines(keepends=True)
    path = put(tmp_path / "s.jsonl", b"".join([*good[:3], b'{"type": "user", \n', *good[3:], b"{"]))
    read = one(memory.import_files(path))
    assert [problem.place for problem in read.problems] == [f"{path}:4", f"{path}:10"]
    assert "cut off" in read.problems[1].message
    assert len(memory.traces()[0].trace.calls) == 3


def test_what_nobody_understands_is_kept_as_it_is_and_counted(
    memory: Memory, tmp_path: Path
) -> None:
    says = ClaudeCode()
    strange = [{"type": "telepathy", "thought": "é"}, 42, ["x"], "text", {"no": "type"}]
    path = put(tmp_path / "s.jsonl", lines(strange[0], says.user("hello"), *strange[1:]))
    read = one(memory.import_files(path, format="claude-code"))
    assert read.unknown == 5
    kept = [event.body for event in memory.log.read(kinds="unknown_line")]
    assert [json.loads(body["text"]) for body in kept if body] == strange
    assert memory.traces()[0].unknown == 5


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40).filter(lambda part: b"\n" not in part),
            st.recursive(
                st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(
                            "type message content role uuid sessionId isSidechain parentUuid "
                            "payload id name input tool_use_id usage".split()
                        ),
                        inner,
                        max_size=5,
                    )
                ),
            ).map(lambda value: json.dumps(value).encode()),
        ),
        max_size=8,
    ),
    st.sampled_from(
        [
            "claude-code",
            "codex",
            "openhands-sdk",
            "openai",
            "otel",
            "langchain",
            "langsmith",
            "responses",
            "anthropic",
            "atif",
            "openhands",
            "swe-agent",
            "mini-swe-agent",
            "langfuse",
            "openai-agents",
            "openinference",
            "jaeger",
            "native",
        ]
    ),
)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_line_stops_an_import_and_none_is_lost(parts: list[bytes], format_: str) -> None:
    """Hostile lines between good ones: every one is told, kept, or named as broken."""
    import tempfile

    # A file in another format than its user says is refused; one in none is read as they say.
    good = order_session("s1", "W1")[0] if format_ == "claude-code" else {"odd": 1}
    data = b"\n".join([json.dumps(good).encode(), *parts, json.dumps(good).encode()]) + b"\n"
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        path = Path(folder, "s.jsonl")
        path.write_bytes(data)
        try:
            read = one(memory.import_files(path, format=format_))
        except NoTranscript:  # a part is in another format: the whole file is refused
            assert not [*memory.log.read()]
            return
        for number, part in enumerate(parts, 2):
            try:
                json.loads(part)
            except ValueError:
                if part.strip():
                    assert any(p.place.endswith(f":{number}") for p in read.problems), part
        assert memory.log.verify().ok
        assert one(memory.import_files(path, format=format_)).skipped == "unchanged"


def test_sub_agents_are_traces_of_their_own(memory: Memory, tmp_path: Path) -> None:
    main, helper = ClaudeCode(), ClaudeCode(isSidechain=True)
    path = put(tmp_path / "s.jsonl", lines(
        main.user("find the bug"),
        main.calls("t1", "Task", prompt="read the logs", description="logs"),
        helper.user("read the logs") | {"uuid": "h1", "parentUuid": None},
        helper.calls("t2", "Read", file="app.log") | {"uuid": "h2", "parentUuid": "h1"},
        helper.result("t2", "boom") | {"uuid": "h3", "parentUuid": "h2"},
        main.result("t1", "it says boom"),
    ))  # fmt: skip
    memory.import_files(path)
    parent, child = sorted(memory.traces(), key=lambda kept: kept.trace.parent or "")
    assert (child.trace.parent, child.trace.parent_call) == (parent.id, "t1")
    assert [call.result for call in parent.trace.calls] == ["it says boom"]
    assert [call.result for call in child.trace.calls] == ["boom"]
    # Newer versions write a sub-agent into a file of its own, which may come first.
    own = ClaudeCode("s2", isSidechain=True, agentId="a7")
    put(tmp_path / "agent-a7.jsonl", lines(own.user("look"), own.says("seen")))
    put(tmp_path / "s2.jsonl", lines(ClaudeCode("s2").user("go")))
    memory.import_files([tmp_path / "agent-a7.jsonl", tmp_path / "s2.jsonl"])
    by_goal = {kept.trace.mission.goal: kept for kept in memory.traces()}
    assert by_goal["look"].trace.parent == by_goal["go"].id


def test_secrets_do_not_come_in(memory: Memory, tmp_path: Path) -> None:
    secret = "sk-ant-api03-abcdefGHIJ0123456789abcdefGHIJ"
    says = ClaudeCode()
    path = put(tmp_path / "s.jsonl", lines(
        says.user(f"my key is {secret}"),
        says.calls("t1", "login", password="hunter2x!", key=secret),
        says.result("t1", f"welcome, {secret}"),
        {"type": "odd", "token": secret},
    ))  # fmt: skip
    memory.import_files(path)
    written = (tmp_path / "em.db").read_bytes() + b"".join(
        file.read_bytes() for file in tmp_path.glob("em.db-*")
    )
    assert secret.encode() not in written
    assert b"hunter2x!" not in written
    assert "[redacted:" in str(memory.traces()[0].trace)


def test_what_was_forgotten_does_not_come_back(memory: Memory, tmp_path: Path) -> None:
    session = order_session("s1", "W1")
    path = put(tmp_path / "s.jsonl", lines(*session[:2]))
    memory.import_files(path)
    (call,) = memory.log.read(kinds="tool_call")
    memory.forget(call)
    path.write_bytes(lines(*session))
    memory.import_files(path)  # its result came meanwhile
    assert [call.result for call in memory.traces()[0].trace.calls[:1]] != ["pending"]
    assert b"lamp" not in (tmp_path / "em.db").read_bytes()
    assert memory.log.verify().ok


def test_an_empty_a_binary_and_a_foreign_file_are_named(memory: Memory, tmp_path: Path) -> None:
    for name, data in (
        ("empty.jsonl", b""),
        ("blank.jsonl", b"\n \n"),
        ("binary.jsonl", os.urandom(3000)),
        ("foreign.json", b'{"name": "package", "version": "1"}'),
        ("prose.json", b"Dear reader,\nthis is no JSON.\n"),
        ("deep.json", b"[" * 5000),
    ):
        with pytest.raises(NoTranscript) as raised:
            memory.import_files(put(tmp_path / name, data))
        assert name in raised.value.place
    read = memory.import_files(tmp_path)  # in a folder they are passed over, and said to be
    assert len(read) == 6
    assert all(file.skipped for file in read)
    assert list(memory.log.read()) == []


def test_paths_may_be_folders_and_patterns_and_must_be_there(
    memory: Memory, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        put(tmp_path / f"{name}.jsonl", lines(*order_session(name, "W1")))
    assert len(memory.import_files(str(tmp_path / "*.jsonl"))) == 2
    assert [file.skipped for file in memory.import_files(tmp_path)] == ["unchanged"] * 2
    with pytest.raises(NotFound):
        memory.import_files(tmp_path / "c.jsonl")
    with pytest.raises(UsageError, match="claude-code"):
        memory.import_files(tmp_path, format="claud-code")


def test_a_wrong_format_is_refused_and_loses_nothing(memory: Memory, tmp_path: Path) -> None:
    path = put(tmp_path / "s.jsonl", lines(*order_session("s1", "W1")))
    with pytest.raises(NoTranscript):
        memory.import_files(path, format="codex")
    right = one(memory.import_files(path, format="claude-code"))
    assert (right.skipped, right.calls) == ("", 3)


def test_two_strange_blocks_of_one_line_and_spans_told_twice_are_no_trouble(
    memory: Memory, tmp_path: Path
) -> None:
    says = ClaudeCode()
    images = [
        {"type": "image", "source": {"data": "x"}},
        {"type": "image", "source": {"data": "y"}},
    ]
    path = put(tmp_path / "s.jsonl", lines(says.user("see"), says.line("user", images)))
    assert one(memory.import_files(path)).unknown == 2
    export = otlp("ab" * 16, "W1")
    spans = export["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans += spans
    read = one(memory.import_files(put(tmp_path / "t.json", json.dumps(export).encode())))
    assert (read.calls, read.problems) == (2, [])


def test_both_stores_keep_the_same(store: Store, tmp_path: Path) -> None:
    from em.traces.catalogue import find_traces
    from em.traces.transcripts import import_each

    path = put(tmp_path / "s.jsonl", lines(*order_session("s1", "W1")[:4]))
    [*import_each(store, [path])]
    path.write_bytes(lines(*order_session("s1", "W1")))
    [*import_each(store, [path])]
    (kept,) = find_traces(store)
    assert [call.error for call in kept.trace.calls] == [None, "there is no such order", None]


def test_large_files_stream_in_bounded_memory(tmp_path: Path) -> None:
    """64 MB of lines within a process that may have 160 MB more than it has after importing em."""
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        says = ClaudeCode()
        for number in range(8000):
            call = [says.calls(f"t{number}", "Read", n=number),
                    says.result(f"t{number}", "x" * 7000)]  # fmt: skip
            file.write(lines(*call))
    code = (
        "import resource, sys\n"
        "from em import Memory\n"
        "import em.traces.transcripts\n"
        "memory = Memory('em.db')\n"
        "have = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (have + 160 * 2**20,) * 2)\n"
        f"(read,) = memory.import_files({str(path)!r})\n"
        "print(read.calls)\n"
    )
    assert path.stat().st_size > 56 * 2**20
    assert resource.RLIMIT_AS
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("8000", "")


def test_a_call_that_nothing_follows_for_long_is_kept_without_its_result(
    memory: Memory, tmp_path: Path
) -> None:
    says = ClaudeCode()
    long = [says.user("go"), says.calls("slow", "Build")]
    long += [says.says(f"still waiting {number}") for number in range(600)]
    path = put(tmp_path / "s.jsonl", lines(*long, says.result("slow", "built")))
    memory.import_files(path)
    assert "call_ended" in kinds(memory)
    assert memory.traces()[0].trace.calls[0].result == "built"


def test_the_same_trace_twice_in_a_file_is_one(memory: Memory, tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    read = one(memory.import_files(put(tmp_path / "chats.jsonl", lines(chat, chat, chat))))
    assert (read.new_traces, len(memory.traces())) == (1, 1)


def test_two_files_of_one_session_lose_nothing(memory: Memory, tmp_path: Path) -> None:
    """A resumed session may go on in another file, whose lines have the same numbers."""
    put(tmp_path / "a.jsonl", lines(*order_session("s1", "W1")))
    put(tmp_path / "b.jsonl", lines(*order_session("s1", "W2")))
    memory.import_files(tmp_path)
    memory.import_files(tmp_path)
    (kept,) = memory.traces()
    asked = [call.args["order_id"] for call in kept.trace.calls]
    assert asked == ["#W1", "W1", "#W1", "#W2", "W2", "#W2"]


def test_every_importer_has_a_name_to_type_and_a_title() -> None:
    from em.traces.formats import importers

    assert len(importers()) >= 18
    for name, importer in importers().items():
        assert re.fullmatch(r"[a-z][a-z-]+", name)
        assert importer.title


@pytest.mark.parametrize("odd", [[None], 7, {"a": 1}, True])
def test_an_id_of_a_call_may_be_anything(memory: Memory, tmp_path: Path, odd: Any) -> None:
    agent = ClaudeCode()
    called = agent.calls(odd, "look", a=1)
    path = put(tmp_path / "s.jsonl", lines(agent.user("look"), called, agent.result(odd, "seen")))
    assert one(memory.import_files(path)).calls == 1
    (kept,) = memory.traces()
    assert kept.trace.calls[0].result == "seen"


def test_a_step_without_arguments_is_a_call(memory: Memory, tmp_path: Path) -> None:
    steps = b'{"task": "look", "steps": [{"action": "look"}, {"action": "see", "result": 1}]}'
    assert one(memory.import_files(put(tmp_path / "t.json", steps))).calls == 2
    (kept,) = memory.traces()
    assert [(call.tool, call.args) for call in kept.trace.calls] == [("look", {}), ("see", {})]


def test_importing_a_folder_with_the_open_memory_in_it_loses_nothing(tmp_path: Path) -> None:
    # SQLite's locks are the process's: closing any file that is open twice would end them. Another
    # process would then take this one for gone, and remove the write-ahead log under it.
    db = tmp_path / "project" / ".em" / "em.db"
    script = f"from em import Memory\nwith Memory({str(db)!r}) as memory: memory.observe('b', 'x')"
    with Memory(db) as memory:
        memory.observe("ana", "before")
        for named in (tmp_path, tmp_path / "project", db, Path(f"{db}-wal"), Path(f"{db}-shm")):
            with suppress(InputError):
                memory.import_files(named)
            subprocess.run([sys.executable, "-c", script], check=True)
            memory.observe("ana", f"after {named}")
    with Memory(db) as again:
        texts = [event.body["text"] for event in again.log.read() if event.body]
    assert sum(text.startswith("after") for text in texts) == texts.count("x") == 5
