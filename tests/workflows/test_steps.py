"""The fields of steps, and the tools that every workflow has."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from flows import Write

from em import Memory
from em.errors import InvalidWorkflow, LlmUnavailable, NotAllowed, UsageError, WorkflowError
from em.llm import ScriptedClient
from em.settings import AllowSettings, McpServer


def flow(*steps: str, head: str = "") -> str:
    return "workflows:\n  w:\n" + head + "    steps:\n" + "".join(f"      - {s}\n" for s in steps)


def test_model_call_takes_a_schema_and_says_what_it_took(write: Write) -> None:
    client = ScriptedClient([{"label": "urgent"}])
    schema = "{type: object, required: [label], properties: {label: {type: string}}}"
    text = flow(
        f"{{name: a, inputs: {{prompt: x, system: s, max_tokens: 9, temperature: 0, "
        f"output_schema: {schema}}}}}",
        "{name: b, tool: say, memory: {needs: [a]}, inputs: {text: '{{memory.a.label}}'}}",
    )
    result = write(text, {"say": lambda text: text}, client=client).start("w")
    assert result.output == "urgent"
    (request,) = client.requests
    assert (request.system, request.max_tokens, request.temperature) == ("s", 9, 0)


def test_parallel_query_asks_several_models_side_by_side(write: Write) -> None:
    text = flow(
        "{name: a, tool: parallel_query, inputs: {prompt: hi, models: [anthropic/x, "
        "{provider: openai, model: y}, anthropic/x]}}"
    )
    result = write(text).start("w")
    assert result.output == {"anthropic/x": "[hi]", "openai/y": "[hi]", "anthropic/x#2": "[hi]"}


def test_parallel_query_needs_as_many_answers_as_it_says(write: Write) -> None:
    client = ScriptedClient([LlmUnavailable("down"), "yes", LlmUnavailable("down"), "yes"])
    text = flow(
        "{name: a, tool: parallel_query, inputs: {prompt: hi, least: 1, models: [a/x, b/y]}}",
        "{name: b, tool: parallel_query, inputs: {prompt: hi, models: [a/x, b/y]}}",
    )
    result = write(text, client=client).start("w")
    assert list(result.outputs["a"].values()) == ["yes"]
    assert result.failure is not None
    assert "1 of 2 gave no answer" in result.failure.message


ROUTINE = """
name: greet
steps:
  - id: ask
    type: prompt.user
    prompt: {message: "Who?", fields: [{name: who}]}
    save_as: said
  - {id: note, type: tool.call, tool: note, args: {text: "{{ said.who }}"}, save_as: noted}
  - {id: end, type: return, value: "{{ word }} {{ noted }}"}
"""


def test_run_routine_is_a_run_of_its_own_that_asks_through_the_workflow(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "routine.yaml").write_text(ROUTINE)
    noted: list[str] = []

    def note(text: str) -> str:
        noted.append(text)
        return text.upper()

    text = flow(
        "{name: a, tool: run_routine, inputs: {routine: ./greet, input: {word: Hello}}}",
        "{name: b, memory: {needs: [a]}, inputs: {prompt: '{{memory.a}}'}}",
    )
    workflows = write(text, {"note": note})
    waits = workflows.start("w")
    assert waits.pending_prompt is not None
    assert (waits.pending_prompt.step_id, waits.pending_prompt.message) == ("a/ask", "Who?")
    with pytest.raises(UsageError, match="no step asks for"):
        workflows.resume(waits.run_id, answers={"c/ask": {"who": "Ana"}})
    result = workflows.resume(waits.run_id, answers={"a/ask": {"who": "Ana"}})
    assert (result.output, noted) == ("[Hello ANA]", ["Ana"])


def test_ask_waits_for_a_person_and_what_they_say_is_its_output(write: Write) -> None:
    text = flow(
        "{name: who, tool: ask, memory: {needs: [parameters]}, inputs: {message: 'Who "
        "likes {{memory.x}}?'}}",
        "{name: b, tool: ask, inputs: {message: m, fields: [{name: n, type: integer}, {name: t}]}}",
        "{name: c, memory: {needs: [who, b]}, inputs: {prompt: '{{memory.who}} {{memory.b.n}}'}}",
        head="    params: [x]\n",
    )
    workflows = write(text)
    waits = workflows.start("w", {"x": "tea"})
    assert waits.pending_prompt is not None
    assert waits.pending_prompt.message == "Who likes tea?"
    second = workflows.resume(waits.run_id, answers={"who": {"answer": "Ana"}})
    assert second.pending_prompt is not None
    wrong = workflows.resume(waits.run_id, answers={"b": {"n": "x", "t": "y"}})
    assert wrong.pending_prompt is not None
    assert "not a number" in wrong.pending_prompt.problem
    done = workflows.resume(waits.run_id, answers={"b": {"n": 3, "t": "y"}})
    assert done.output == "[Ana 3]"


def test_a_gate_lets_a_step_run_only_if_a_person_agrees(write: Write) -> None:
    sent: list[str] = []

    def send(text: str) -> None:
        sent.append(text)

    text = flow(
        "{name: draft, inputs: {prompt: dear}}",
        "{name: send, tool: send, gate: 'Send {{memory.draft_output}}?', memory: "
        "{needs: [draft]}, inputs: {text: '{{memory.draft}}'}}",
    )
    workflows = write(text, {"send": send})
    waits = workflows.start("w")
    assert waits.pending_prompt is not None
    assert waits.pending_prompt.message == "Send [dear]?"
    assert not sent
    no = workflows.resume(waits.run_id, answers={"send": {"approve": False}})
    assert (no.status, sent) == ("failed", [])
    assert no.failure is not None
    assert "did not agree" in no.failure.message
    yes = workflows.start("w", answers={"send": {"approve": True}})
    assert (yes.status, sent) == ("ok", ["[dear]"])


def test_a_gate_that_is_declined_may_let_the_workflow_go_on(write: Write) -> None:
    text = flow(
        "{name: a, gate: true, on_failure: continue, inputs: {prompt: a}}",
        "{name: b, memory: {needs: [a]}, inputs: {prompt: 'b{{memory.a}}'}}",
    )
    result = write(text).start("w", answers={"a": {"approve": "no"}})
    assert (result.status, result.output) == ("ok", "[b]")


def test_recall_commands_and_functions(write: Write, memory: Memory) -> None:
    memory.observe("ana", "Bees swarm in May.")

    async def shout(text: str) -> str:
        return text.upper()

    text = flow(
        "{name: r, tool: recall, inputs: {query: when do bees swarm, k: 1, subject: ana}}",
        "{name: c, tool: command, memory: {needs: [r]}, inputs: {command: [printf, "
        "'%s/%s', '--', '{{ memory.r[0] }}'], output: text}}",
        "{name: f, tool: shout, memory: {needs: [c]}, inputs: {text: '{{memory.c}}'}}",
    )
    workflows = write(text, {"shout": shout}, allow=AllowSettings(commands=["printf"]))
    result = workflows.start("w")
    assert result.outputs["r"] == ["Bees swarm in May."]
    assert result.output == "--/BEES SWARM IN MAY."


def test_nothing_is_allowed_that_the_user_did_not_allow_and_a_step_may_ask_for_less(
    write: Write, model: ScriptedClient
) -> None:
    text = flow(
        "{name: a, inputs: {prompt: x}}", "{name: c, tool: command, inputs: {command: [ls]}}"
    )
    with pytest.raises(NotAllowed, match="ls"):
        write(text).start("w")
    assert not model.requests
    less = text.replace("tool: command,", "tool: command, permissions: {commands: [cat]},")
    both = AllowSettings(commands=["ls", "cat"])
    with pytest.raises(NotAllowed, match="'ls' is not allowed"):
        write(less, allow=both).start("w")
    with pytest.raises(NotAllowed, match=r"permissions.commands.*'cat'"):
        write(less, allow=AllowSettings(commands=["ls"])).start("w")
    assert write(text, allow=both).start("w").status == "ok"


@pytest.fixture
def server() -> Iterator[tuple[str, list[Any]]]:
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"id": 7}')

        def log_message(self, *_args: Any) -> None:
            pass

    served = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{served.server_port}", seen
    served.shutdown()
    served.server_close()


def test_a_request_keeps_each_value_in_its_place(
    write: Write,
    server: tuple[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    memory: Memory,
) -> None:
    host, seen = server
    monkeypatch.setenv("TOKEN_X", "very-secret-1")
    text = f"""
workflows:
  w:
    params: [who]
    steps:
      - name: post
        tool: http
        memory: {{needs: [user_prompt]}}
        inputs:
          method: POST
          url: "http://{host}/users/{{{{ params.who }}}}/notes"
          headers: {{Authorization: "Bearer {{{{ env.TOKEN_X }}}}"}}
          json: {{text: "{{{{ memory.user_prompt }}}}", of: ["{{{{ params.who }}}}"]}}
"""
    allow = AllowSettings(hosts=[host], env=["TOKEN_X"])
    result = write(text, allow=allow).start("w", {"who": "a/../b?c"}, prompt="{{ x }}")
    assert (result.output, result.failure) == ({"id": 7}, None)
    sent = {"text": "{{ x }}", "of": ["a/../b?c"]}
    assert seen == [("/users/a%2F..%2Fb%3Fc/notes", "Bearer very-secret-1", sent)]
    assert "very-secret-1" not in str([event.body for event in memory.log.read()])


def test_tools_that_the_workflow_declares(write: Write) -> None:
    head = "    tools: [{name: say, command: [printf, '%s', '{{ text }}'], effect: read}]\n"
    text = flow("{name: a, tool: say, inputs: {text: 'hi'}}", head=head)
    result = write(text, allow=AllowSettings(commands=["printf"])).start("w")
    assert result.output == "hi"


def test_when_and_for_each(write: Write) -> None:
    text = flow(
        "{name: a, tool: numbers}",
        "{name: b, memory: {needs: [a]}, for_each: memory.a, as: n, "
        "inputs: {prompt: '{{n}} of {{params.x}}'}}",
        "{name: c, memory: {needs: [b]}, when: len(memory.b) > 2, inputs: {prompt: "
        "'{{memory.b[1]}}'}}",
        "{name: d, when: 'params.x == \"no\"', inputs: {prompt: never}}",
        head="    params: [x]\n",
    )
    result = write(text, {"numbers": lambda: [1, 2, 3]}).start("w", {"x": "y"})
    assert result.outputs["b"] == ["[1 of y]", "[2 of y]", "[3 of y]"]
    assert result.output == "[[2 of y]]"
    assert [step.status for step in result.steps if step.id == "d"] == ["skipped"]


def test_a_step_may_fail_and_the_workflow_go_on(write: Write) -> None:
    def fail() -> None:
        raise ValueError("no such page")

    text = flow(
        "{name: a, tool: fail, on_failure: continue}",
        "{name: b, memory: {needs: [a, classification(error)]}, inputs: {prompt: "
        "'{{memory.a}}<{{memory.error}}>'}}",
    )
    result = write(text, {"fail": fail}).start("w")
    assert (result.status, result.output) == ("ok", "[<no such page>]")
    assert [step.status for step in result.steps] == ["defaulted", "done"]


def test_retry_and_timeout(write: Write) -> None:
    tries = iter([OSError("busy"), OSError("busy"), None])

    def flaky() -> str:
        problem = next(tries)
        if problem:
            raise problem
        return "ok"

    text = flow("{name: a, tool: flaky, effect: read, retry: {attempts: 3, backoff: 0}}")
    result = write(text, {"flaky": flaky}).start("w")
    assert (result.output, result.steps[0].attempts) == ("ok", 3)


def test_a_model_that_is_down_is_asked_again_if_the_step_says_so(write: Write) -> None:
    client = ScriptedClient([LlmUnavailable("down"), "up"])
    text = flow("{name: a, retry: {attempts: 2, backoff: 0}, inputs: {prompt: x}}")
    assert write(text, client=client).start("w").output == "up"


def test_a_tool_that_never_returns_ends_with_its_time(write: Write) -> None:
    forever = threading.Event()
    try:
        read = flow("{name: a, tool: hang, effect: read, timeout: 0.05}")
        result = write(read, {"hang": forever.wait}).start("w")
        assert result.failure is not None
        assert "no answer within 0.05 s" in result.failure.message
        # One that may have had its effect is asked about.
        effect = flow("{name: a, tool: hang}", head="    timeout: 0.05\n")
        waits = write(effect, {"hang": forever.wait}).start("w")
        assert waits.pending_prompt is not None
        assert waits.pending_prompt.step_id == "a?"
        said = {"a?": {"happened": True, "result": "by hand"}}
        assert write(effect, {"hang": forever.wait}).resume(waits.run_id, answers=said).output == (
            "by hand"
        )
    finally:
        forever.set()


def test_steps_run_side_by_side_as_soon_as_they_may(write: Write, memory: Memory) -> None:
    both = threading.Barrier(2, timeout=60)
    order: list[str] = []
    lock = threading.Lock()

    def meet(name: str, needs: Any = None) -> str:
        if name in "ab":
            both.wait()  # nobody passes alone
        with lock:
            order.append(name)
        return f"{name}({needs or ''})"

    text = flow(
        "{name: end, tool: meet, memory: {needs: [a, b, c]}, inputs: {name: end, "
        "needs: '{{memory.a}}{{memory.b}}{{memory.c}}'}}",
        "{name: a, tool: meet, inputs: {name: a}}",
        "{name: b, tool: meet, inputs: {name: b}}",
        "{name: c, tool: meet, depends_on: a, inputs: {name: c}}",
        head="    parallel: true\n",
    )
    workflows = write(text, {"meet": meet})
    result = workflows.start("w")
    assert result.status == "ok"
    assert result.outputs["end"] == "end(a()b()c())"
    assert order.index("c") > order.index("a")
    assert order[-1] == "end"
    # Shown in the order of the file, whatever came first.
    assert [step.id for step in result.steps] == ["end", "a", "b", "c"]
    assert [step.name for step in workflows.inspect(result.run_id).steps] == ["end", "a", "b", "c"]
    assert memory.log.verify().ok


def test_side_by_side_is_bounded(write: Write) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def busy() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.01)
        with lock:
            now[0] -= 1

    steps = [f"{{name: s{n}, tool: busy}}" for n in range(12)]
    result = write(flow(*steps, head="    parallel: 3\n"), {"busy": busy}).start("w")
    assert (result.status, most[0] <= 3) == ("ok", True)


def test_beside_a_failure_what_runs_is_kept_and_nothing_new_begins(write: Write) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def fail() -> None:
        begun.wait(60)
        let_go.set()
        raise ValueError("broken")

    def slow() -> str:
        begun.set()
        let_go.wait(60)
        return "slow"

    text = flow(
        "{name: a, tool: slow}",
        "{name: b, tool: fail, effect: read}",
        "{name: c, depends_on: b, inputs: {prompt: x}}",
        head="    parallel: 2\n",
    )
    workflows = write(text, {"slow": slow, "fail": fail})
    result = workflows.start("w")
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.step_id == "b"
    states = {step.name: step.status for step in workflows.inspect(result.run_id).steps}
    assert (states["a"], states["c"]) == ("done", "not begun")


def test_a_gate_side_by_side_waits_and_the_others_go_on(write: Write) -> None:
    text = flow(
        "{name: a, gate: true, inputs: {prompt: a}}",
        "{name: b, inputs: {prompt: b}}",
        "{name: c, memory: {needs: [a, b]}, inputs: {prompt: '{{memory.a}}{{memory.b}}'}}",
        head="    parallel: true\n",
    )
    workflows = write(text)
    waits = workflows.start("w")
    assert waits.status == "needs_input"
    assert workflows.inspect(waits.run_id).steps[1].status == "done"
    done = workflows.resume(waits.run_id, answers={"a": {"approve": True}})
    assert done.output == "[[a][b]]"


def test_last_output_means_nothing_side_by_side(write: Write) -> None:
    text = flow(
        "{name: a, memory: {needs: [last_output]}, inputs: {prompt: x}}",
        head="    parallel: true\n",
    )
    with pytest.raises(InvalidWorkflow, match="last_output"):
        write(text).start("w")


def test_a_dry_run_shows_the_prompts_and_asks_nobody(write: Write, model: ScriptedClient) -> None:
    text = flow(
        "{name: a, inputs: {prompt: 'About {{params.x}}'}}",
        "{name: b, gate: true, memory: {needs: [a, 'recall({{params.x}}, 2)']}, "
        "inputs: {prompt: '{{memory.a}} {{memory.recall}}'}}",
        "{name: c, tool: command, inputs: {command: [rm, -rf, /]}}",
        head="    params: [x]\n",
    )
    steps = write(text).dry_run("w", {"x": "bees"})
    assert [step.inputs for step in steps[:2]] == [
        {"prompt": "About bees"},
        {"prompt": "<output of a> <recall({{params.x}}, 2)>"},
    ]
    assert steps[1].asks == "Run the step b (model_call)?"
    assert not model.requests


def test_inspect_says_what_the_full_context_would_have_cost(write: Write) -> None:
    long = "word " * 500
    text = flow(
        "{name: a, tool: talk}",
        "{name: b, inputs: {prompt: short}}",
        "{name: c, memory: {needs: [b]}, inputs: {prompt: 'Use {{memory.b}}'}}",
    )
    workflows = write(text, {"talk": lambda: long})
    view = workflows.inspect(workflows.start("w").run_id, lambda text: len(text.split()))
    assert view.steps[0].tokens is None
    assert view.steps[2].tokens is not None
    assert (view.steps[2].tokens.sent, view.steps[2].tokens.full) == (2, 502)
    assert view.tokens.saved == 500 + 500


def test_a_memory_may_be_awaited(write: Write, model: ScriptedClient) -> None:
    import asyncio

    from em import AsyncMemory

    write(flow("{name: a, inputs: {prompt: x}}"))

    async def run() -> Any:
        async with AsyncMemory("em.db") as memory:
            return await memory.workflow("w", file="flow.yaml", client=model)

    assert asyncio.run(run()).output == "[x]"


SERVER = str(Path(__file__).parent.parent / "runner" / "mcp_server.py")


def test_a_step_calls_a_tool_of_an_mcp_server_that_the_workflow_names(write: Write) -> None:
    server = f"    tools: [{{name: shop, mcp: {{command: [{sys.executable}, {SERVER}]}}}}]\n"
    text = flow(
        "{name: order, tool: mcp__shop__find_order, inputs: {order_id: W1}}",
        "{name: gone, tool: mcp__shop__cancel, memory: {needs: [order]}, "
        "inputs: {order_id: '{{memory.order.order_id}}'}}",
        head=server,
    )
    with pytest.raises(NotAllowed):
        write(text).start("w")
    result = write(text, allow=AllowSettings(commands=[sys.executable])).start("w")
    assert result.output == {"result": "cancelled W1"}
    lines = [line.partition(" ")[2] for line in Path("server.log").read_text().splitlines()]
    assert lines == ["started", "find W1", "cancel W1"]  # one session for the whole run


def test_a_step_calls_a_tool_of_a_server_of_the_users_own(write: Write) -> None:
    text = flow("{name: a, tool: mcp__shop__find_order, inputs: {order_id: W1}}")
    allow = AllowSettings(mcp={"shop": McpServer(command=[sys.executable, SERVER])})
    assert write(text, allow=allow).start("w").output["total"] == 12.5
    other = write(flow("{name: a, tool: mcp__other__find, inputs: {}}"), allow=allow)
    with pytest.raises(WorkflowError, match="mcp__other__find"):
        other.start("w")
