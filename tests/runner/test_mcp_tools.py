"""Tools of MCP servers in routines: against a real server, over a pipe and over HTTP."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.forks import command_line

from em import Memory
from em.errors import NotAllowed
from em.runner.engine import arun_routine, run_routine
from em.runner.package import find_routine, texts_of, write_files
from em.runner.run import RunResult
from em.runner.validation import validate
from em.settings import AllowSettings
from em.traces.trace import Mission, ToolCall, Trace

SERVER = str(Path(__file__).with_name("mcp_server.py"))
SHOP: dict[str, Any] = {"name": "shop", "mcp": {"command": [sys.executable, SERVER]}}
ALLOW = AllowSettings(commands=[sys.executable])


@pytest.fixture(scope="module", autouse=True)
def _fast_server() -> None:
    """Start the server as a fork of a process that has the SDK loaded."""
    SHOP["mcp"]["command"] = command_line(SERVER, loaded="mcp.server.mcpserver mcp.server.stdio")


def folder(*steps: dict[str, Any], tools: Any = (SHOP,), **more: Any) -> Path:
    path = Path("routine")
    path.mkdir(exist_ok=True)
    numbered = [
        {"id": f"s{n}", **({"type": "tool.call"} if "tool" in step else {}), **step}
        for n, step in enumerate(steps)
    ]
    routine = {"name": "orders", "tools": list(tools), "steps": numbered, **more}
    plain = json.loads(json.dumps(routine))  # what stands twice is written twice
    (path / "routine.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    return path


def calling(tool: str, args: Any = None, **more: Any) -> list[dict[str, Any]]:
    call = {"tool": f"mcp__shop__{tool}", "args": args or {}, "save_as": "out", **more}
    return [call, {"type": "return", "value": "{{ out }}"}]


def run(path: Path, data: Any = None, allow: AllowSettings = ALLOW, **more: Any) -> RunResult:
    return run_routine(path, data or {}, allow=allow, **more)


def log() -> list[str]:
    text = Path("server.log").read_text() if Path("server.log").exists() else ""
    return [line.partition(" ")[2] for line in text.splitlines()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def server_pids() -> set[int]:
    return {int(line.split()[0]) for line in Path("server.log").read_text().splitlines()}


def test_a_server_is_started_once_for_a_run_and_ended_with_it() -> None:
    path = folder(
        {"tool": "mcp__shop__find_order", "args": {"order_id": "{{ id }}"}, "save_as": "order"},
        {"tool": "mcp__shop__cancel", "args": {"order_id": "{{ order.order_id }}"}, "save_as": "o"},
        {"type": "return", "value": ["{{ order.total }}", "{{ o.result }}"]},
    )
    assert not [problem for problem in validate(path) if problem.severity == "error"]
    result = run(path, {"id": "W1"})
    assert (result.failure, result.output) == (None, [12.5, "cancelled W1"])
    assert log() == ["started", "find W1", "cancel W1"]
    assert not any(map(is_alive, server_pids()))
    again = asyncio.run(arun_routine(path, {"id": "W2"}, allow=ALLOW))
    assert again.output == [12.5, "cancelled W2"]


def test_a_trace_of_an_agents_calls_replays_against_the_same_server() -> None:
    order = {"order_id": "W#44", "total": 12.5, "items": ["lamp"]}
    calls = [
        ToolCall(tool="mcp__shop__find_order", args={"order_id": "W#44"}, result=order),
        ToolCall(
            tool="mcp__shop__cancel",
            args={"order_id": "W#44"},
            result={"result": "cancelled W#44"},
        ),
    ]
    mission = Mission("Cancel the order", {"order_id": "W#44"})
    trace = Trace(mission=mission, events=calls, final_output={"result": "cancelled W#44"})
    path = Path("compiled")
    with Memory("em.db") as memory:
        kept = memory.compile(memory.add_trace(trace))
        write_files(texts_of(find_routine(memory.store, kept.ref)), path)
    written = yaml.safe_load((path / "routine.yaml").read_text())
    written["tools"].append(SHOP)
    (path / "routine.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
    assert [problem for problem in validate(path) if problem.severity == "error"] == []
    result = run(path, {"order_id": "W#55"})
    assert (result.failure, result.output) == (None, {"result": "cancelled W#55"})


def test_a_server_that_the_user_names_serves_routines_that_say_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MINE", "s3cret-value")
    server = {"command": [sys.executable, SERVER], "env": ["MINE"]}
    Path("em.yaml").write_text(json.dumps({"allow": {"mcp": {"shop": server}}}))
    for tools in ([], [{"name": "mcp__shop__environment", "effect": "read"}]):
        result = run_routine(folder(*calling("environment"), tools=tools))
        assert result.failure is None
        assert "MINE" in result.output["result"]
    # What the routine itself names is not allowed by that.
    own = {"name": "shop", "mcp": {"command": [sys.executable, "-c", "1"]}}
    failure = run_routine(folder(*calling("environment"), tools=[own])).failure
    assert failure is not None
    assert failure.error_type == "NotAllowed"
    unknown = run_routine(folder({"tool": "mcp__other__x"}, tools=[])).failure
    assert unknown is not None
    assert "there is no tool 'mcp__other__x'" in unknown.message


def test_a_tool_may_have_a_name_of_its_own() -> None:
    own = {"name": "look_up", "mcp": {**SHOP["mcp"], "tool": "find_order"}}
    full = {"name": "mcp__x__label", "mcp": SHOP["mcp"], "output": "text"}
    path = folder(
        {"tool": "look_up", "args": {"order_id": "a"}, "save_as": "one"},
        {"tool": "mcp__x__label", "args": {"order_id": "b"}, "save_as": "two"},
        {"type": "return", "value": ["{{ one.total }}", "{{ two }}"]},
        tools=[own, full],
    )
    assert run(path).output == [12.5, "b"]
    assert log().count("started") == 1, "both are of one server"


@pytest.mark.parametrize(
    ("tool", "output", "expected"),
    [
        ("plain", None, '{"a": 1}'),
        ("plain", "json", {"a": 1}),
        ("plain", "lines", ['{"a": 1}']),
        ("find_order", "text", None),
        ("picture", None, None),
    ],
)
def test_structure_is_preferred_and_the_routine_may_ask_for_text(
    tool: str, output: str | None, expected: Any
) -> None:
    shop = {**SHOP, **({"output": output} if output else {})}
    args = {"order_id": "x"} if tool == "find_order" else {}
    result = run(folder(*calling(tool, args), tools=[shop]))
    assert result.failure is None
    if tool == "find_order":
        assert json.loads(result.output)["total"] == 12.5
    elif tool == "picture":
        assert [block["type"] for block in result.output] == ["text", "image"]
    else:
        assert result.output == expected


@pytest.mark.parametrize(
    ("tool", "args", "words"),
    [
        ("refuse", {}, "the shop is closed"),
        ("die", {}, "it hurts"),
        ("no_such_tool", {}, "no_such_tool"),
        ("find_order", {"id": 3}, "order_id"),
        ("much", {}, "more than 10,485,760 characters"),
    ],
)
def test_what_goes_wrong_is_an_error_of_the_step(tool: str, args: Any, words: str) -> None:
    failure = run(folder(*calling(tool, args))).failure
    assert failure is not None
    assert failure.step_id == "s0"
    assert failure.error_type == ("McpBroken" if tool in ("die", "much") else "McpFailed")
    assert words in failure.message


def test_a_server_that_was_killed_is_started_again_for_the_next_attempt() -> None:
    path = folder(*calling("die_once", retry={"attempts": 2, "backoff": 0}, effect="read"))
    result = run(path)
    assert (result.failure, result.output) == (None, {"result": "alive"})
    assert log().count("started") == 2


def test_a_write_during_which_its_server_ended_is_not_made_again_but_asked_about() -> None:
    with Memory("em.db") as memory:
        path = folder(*calling("die_once", retry={"attempts": 2, "backoff": 0}))
        waiting = memory.run(path, {}, allow=ALLOW)
    assert waiting.pending_prompt is not None
    assert "Its outcome is unknown" in waiting.pending_prompt.message
    assert log().count("started") == 1


def test_a_slow_tool_ends_its_step_in_time_and_nobody_knows_what_it_did() -> None:
    path = folder(*calling("slow", {"seconds": 600}, timeout=5))
    failure = run(path).failure
    assert failure is not None
    assert failure.error_type in ("McpTimeout", "StepTimeout")
    assert not any(map(is_alive, server_pids()))
    with Memory("em.db") as memory:
        waiting = memory.run(path, {}, allow=ALLOW)
        assert waiting.pending_prompt is not None, "a write that was left behind is asked about"


def test_a_server_that_never_answers_and_one_that_is_no_server() -> None:
    for code, timeout, words in (
        ("import time; time.sleep(600)", 0.5, "no answer"),
        ("print(1)", 60, "can't be"),
    ):
        command = [sys.executable, "-c", code]
        deaf = {"name": "shop", "mcp": {"command": command}, "timeout": timeout}
        failure = run(folder(*calling("x"), tools=[deaf])).failure
        assert failure is not None
        assert words in failure.message


def test_a_server_says_whether_a_call_may_be_made_again() -> None:
    with Memory("em.db") as memory:
        for tool, is_announced in (("find_order", False), ("label", False), ("cancel", True)):
            path = folder(*calling(tool, {"order_id": "x"}))
            run_id = memory.run(path, {}, allow=ALLOW).run_id
            kinds = [event.kind for event in memory.log.read(stream=f"run/{run_id}")]
            assert ("step_started" in kinds) == is_announced, tool
        # What the routine says counts more.
        path = folder(*calling("find_order", {"order_id": "x"}, effect="write"))
        run_id = memory.run(path, {}, allow=ALLOW).run_id
        assert "step_started" in [event.kind for event in memory.log.read(stream=f"run/{run_id}")]


def test_starting_a_server_is_allowed_by_the_user_only() -> None:
    path = folder(*calling("cancel", {"order_id": "x"}))
    failure = run(path, allow=AllowSettings()).failure
    assert failure is not None
    assert failure.error_type == "NotAllowed"
    with Memory("em.db") as memory, pytest.raises(NotAllowed, match="--allow-command"):
        memory.run(path, {}, allow=AllowSettings())
    there = {"name": "shop", "mcp": {"url": "http://elsewhere.example/mcp"}}
    failure = run(folder(*calling("cancel"), tools=[there])).failure
    assert failure is not None
    assert "host 'elsewhere.example' is not allowed" in failure.message
    assert log() == []


def test_a_server_sees_of_the_environment_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "s3cret-value")
    monkeypatch.setenv("OTHER", "not yours")
    result = run(folder(*calling("environment")))
    assert not {"MINE", "OTHER"} & set(result.output["result"])
    given = {"name": "shop", "mcp": {**SHOP["mcp"], "env": ["MINE"]}}
    refused = run(folder(*calling("environment"), tools=[given])).failure
    assert refused is not None
    allow = AllowSettings(commands=[sys.executable], env=["MINE"])
    result = run(folder(*calling("environment"), tools=[given]), allow=allow)
    assert "MINE" in result.output["result"]


@pytest.fixture
def shop_url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
    while True:
        assert process.poll() is None
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_server_at_an_address(shop_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "t0ken-of-the-shop")
    headers = {"Authorization": "Bearer {{ env.SHOP_TOKEN }}"}
    shop = {"name": "shop", "mcp": {"url": shop_url, "headers": headers}}
    allow = AllowSettings(hosts=[shop_url.split("/")[2]], env=["SHOP_TOKEN"])
    result = run(folder(*calling("find_order", {"order_id": "x"}), tools=[shop]), allow=allow)
    assert (result.failure, result.output["total"]) == (None, 12.5)
    failure = run(folder(*calling("refuse"), tools=[shop]), allow=allow).failure
    assert failure is not None
    assert "the shop is closed" in failure.message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "x", "mcp": {}}, "either `command` or `url`"),
        ({"name": "x", "mcp": {"command": ["a"], "url": "http://b"}}, "either `command` or `url`"),
        ({"name": "x", "mcp": {"command": []}}, "must begin with a program"),
        ({"name": "x", "mcp": {"command": ["{{ a }}"]}}, "must not have expressions"),
        ({"name": "x", "mcp": {"url": "ftp://b"}}, "http:// or https://"),
        ({"name": "x", "mcp": {"url": "http://me:pw@b/"}}, "no password"),
        ({"name": "x", "mcp": {"command": ["a"]}, "command": ["b"]}, "exclude each other"),
        ({"name": "x", "mcp": {"command": ["a"], "colour": 1}}, "unknown field 'colour'"),
    ],
)
def test_a_server_that_is_declared_wrongly_is_told(spec: Any, words: str) -> None:
    path = folder({"tool": "mcp__x__y"}, tools=[spec])
    assert any(words in problem.message for problem in validate(path))
