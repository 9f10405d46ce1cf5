"""`em mcp` is ready before an agent's first turn: it answers the handshake and the lists at once.

How long that takes is measured by `python -m bench mcp`. Here is what it rests on: what is not
imported, how much is read, and that a client can't tell these answers from the SDK's.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_agents import keep
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from tests.children import wait_until
from tests.forks import SERVICE, command_line

from em import Memory
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.mcp.handshake import VERSIONS
from em.serve.mcp.listing import ToolListing
from em.settings import AllowSettings, McpServer, McpSettings
from em.store.protocol import ArtefactDraft, Commit
from em.store.sqlite import SqliteStore
from raw import run_sql

ECHO = (
    "name: {}\ndescription: Say it.\nsteps: [{{id: out, type: return, value: '{{{{ said }}}}'}}]\n"
)
CALLING = """\
name: order
input_schema: {type: object, properties: {id: {type: string, examples: ["#W1"]}}, required: [id]}
steps:
  - {id: a, type: tool.call, tool: mcp__shop__find, args: {id: "{{ id }}"}, effect: read}
  - {id: b, type: tool.call, tool: Read, args: {file_path: x}, effect: read}
  - {id: c, type: tool.call, tool: unheard_of, args: {}, effect: read}
"""
HELLO: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
LISTS = ("ping", "tools/list")


class Session:
    """`em mcp`, by its lines."""

    def __init__(self, *args: str, code: str | None = None) -> None:
        usual = ("-m", "em", "mcp", "--db", "em.db", *args)
        command = command_line(*usual, loaded=SERVICE)
        self.process = subprocess.Popen(
            command if code is None else [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.number = 0

    def write(self, *messages: dict[str, Any]) -> None:
        """Send messages in one piece."""
        assert self.process.stdin is not None
        lines = [json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages]
        self.process.stdin.write("".join(lines).encode())
        self.process.stdin.flush()

    def read(self) -> Any:
        """Return the next message."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: Any) -> Any:
        """Return the answer to a request, without its id."""
        self.number += 1
        self.write({"id": self.number, "method": method, "params": params})
        answer = self.read()
        assert answer.pop("id") == self.number
        return answer

    def greet(self, version: str = VERSIONS[-1]) -> Any:
        """Shake hands."""
        answer = self.ask("initialize", protocolVersion=version, **HELLO)
        self.write({"method": "notifications/initialized"})
        return answer

    def end(self) -> int:
        """Close its input, and return the exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode


@contextmanager
def session(*args: str) -> Iterator[Session]:
    begun = Session(*args)
    try:
        yield begun
    finally:
        assert begun.end() == 0


FORBIDDEN = (
    "mcp", "mcp_types", "pydantic", "anyio", "asyncio", "yaml", "jsonschema_rs", "jinja2",
    "tree_sitter", "litestar", "uvicorn", "starlette", "anthropic", "openai", "httpx", "numpy",
    "em.compiler", "em.traces.formats", "em.traces.catalogue", "em.state", "em.heuristics",
    "em.workflows", "em.behaviour", "em.llm", "em.recall", "em.clients", "em.runner.package",
    "em.runner.routine", "em.runner.engine", "em.serve.app", "em.serve.server", "em.serve.guard",
    "em.serve.api.shapes", "em.serve.mcp.server",
)  # fmt: skip


def test_until_the_tools_are_listed_nothing_is_imported_that_they_do_not_need() -> None:
    for number in range(3):
        keep(ECHO.format(f"echo_{number}"))
    with session() as first:  # makes the cards
        first.greet()
        first.ask("tools/list")
    lines = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": VERSIONS[-1], **HELLO}},
        {"method": "notifications/initialized"},
        *({"id": n, "method": method} for n, method in enumerate(LISTS, 2)),
    ]
    start = (
        "import sys; sys.argv = ['em', 'mcp', '--db', 'em.db']; from em.cli import main\n"
        "import atexit\n"
        "atexit.register(lambda: open('modules', 'w').write(' '.join(sys.modules)))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", start],
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert "echo_2" in [tool["name"] for tool in answers[2]["result"]["tools"]]
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    modules = Path("modules").read_text().split()
    begins = [name.split(".") for name in FORBIDDEN]
    assert not [
        name for name in modules if any(name.split(".")[: len(one)] == one for one in begins)
    ]


SLOW = """\
import sys, time
from pathlib import Path


class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp.server":
            Path("loading").touch()
            time.sleep(3600)


sys.meta_path.insert(0, Slow())
sys.argv = ["em", "mcp", "--db", "em.db"]
from em.cli import main
main()
"""


def test_a_client_that_leaves_while_the_sdk_is_imported_does_not_wait_for_it() -> None:
    begun = Session(code=SLOW)
    begun.greet()
    begun.ask("tools/list")
    wait_until(Path("loading").exists)
    assert begun.ask("ping") == {"jsonrpc": "2.0", "result": {}}  # and it is served meanwhile
    assert begun.end() == 0


def statements_of_a_list(count: int) -> list[str]:
    """Return the statements by which tools are listed, when the cards of all routines are there."""
    with Memory(f"{count}.db") as memory:
        assert isinstance(memory.store, SqliteStore)
        for number in range(count):
            keep(ECHO.format(f"echo_{number}"), db=f"{count}.db")
        listing = ToolListing(memory, AllowSettings(), ToolRegistry(), McpSettings(routines=count))
        assert len(listing.tools(Caller())) >= count
        listing.save()
        seen: list[str] = []
        connection = memory.store._pool.take()
        connection.set_trace_callback(seen.append)
        memory.store._pool.give_back(connection)
        listing = ToolListing(memory, AllowSettings(), ToolRegistry(), McpSettings(routines=count))
        assert len(listing.tools(Caller())) >= count
        connection.set_trace_callback(None)
    return seen


def test_a_list_of_a_hundred_routines_takes_as_many_queries_as_one_of_ten() -> None:
    ten, hundred = statements_of_a_list(10), statements_of_a_list(100)
    assert len(ten) == len(hundred) == 2  # the routines, and whether there is one subject


def test_the_versions_that_begin_with_a_handshake_are_those_of_the_sdk() -> None:
    assert VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS


@pytest.mark.parametrize("version", [*VERSIONS, "2026-07-28", "1999-01-01"])
@pytest.mark.parametrize("args", [(), ("--read-only",), ("--subject", "ana"), ("--beside-hooks",)])
def test_a_client_can_not_tell_the_first_answers_from_those_of_the_sdk(
    version: str, args: tuple[str, ...]
) -> None:
    keep(ECHO.format("echo"))
    keep(CALLING)
    keep("name: ask\nsteps: [{id: out, type: return, value: 1}]\n")  # as one of em's own
    with Memory("em.db") as memory:
        memory.observe("ana", {"city": "Porto"}, type="Home")
        memory.checkpoint("ana")
    found = []
    for is_first in (True, False):
        with session(*args) as one:
            if not is_first:
                assert one.ask("no/such/method")["error"]  # so that the SDK answers from now on
            answers = [one.greet(version), *(one.ask(method) for method in LISTS)]
            answers.append(one.ask("tools/list", _meta={"progressToken": 7}))
            found.append(answers)
    assert found[0] == found[1]


def test_odd_requests_are_answered_by_the_sdk() -> None:
    keep(ECHO.format("echo"))
    odd: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 5, **HELLO}},
        {"id": 1, "method": "initialize", "params": {"protocolVersion": VERSIONS[0]}},
        {"id": 1, "method": "tools/list", "params": {}},
    ]
    for message in odd:
        with session() as one:
            one.write(message)
            assert one.read()["error"]["code"] == -32602
    with session() as one:
        one.greet()
        assert one.ask("tools/list", cursor=5)["error"]["code"] == -32602
    with session() as one:
        one.greet()
        assert one.ask("nonsense")["error"]["code"] == -32601


def test_the_session_goes_on_with_the_sdk_as_if_it_had_begun_there() -> None:
    keep(ECHO.format("echo"))
    call = {"name": "echo", "arguments": {"said": "x" * 300_000}}
    with session() as one:
        hello = {"protocolVersion": VERSIONS[-1], **HELLO}
        one.write(  # in one piece, as a client in a hurry sends it
            {"id": "a", "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": "b", "method": "tools/list"},
            {"id": "c", "method": "tools/call", "params": call},
            {"id": "d", "method": "tools/list"},
        )
        answers = [one.read() for _ in range(4)]
        assert [answer["id"] for answer in answers[:2]] == ["a", "b"]
        late = {answer["id"]: answer["result"] for answer in answers[2:]}
        assert late["c"]["structuredContent"]["begins"].endswith("xxx")
        assert late["d"]["tools"] == answers[1]["result"]["tools"]
        assert one.ask("ping") == {"jsonrpc": "2.0", "result": {}}


def test_a_routine_that_is_kept_after_the_first_list_is_announced() -> None:
    with session() as one:
        one.greet()
        one.ask("tools/list")
        keep(ECHO.format("echo"))
        told = one.read()
        assert told["method"] == "notifications/tools/list_changed"
        assert "echo" in [tool["name"] for tool in one.ask("tools/list")["result"]["tools"]]


def test_a_card_that_other_code_made_is_made_again() -> None:
    keep(ECHO.format("echo"))
    with Memory("em.db") as memory:
        assert isinstance(memory.store, SqliteStore)
        listing = ToolListing(memory, AllowSettings(), ToolRegistry())
        listing.tools(Caller())
        listing.save()
        (card,) = memory.store.cards("routine")
        assert card.body is not None
        old = {"maker": "older", "card": {**card.body["card"], "about": "an old description"}}
        run_sql(memory.store, f"UPDATE cards SET body = '{json.dumps(old)}'")
        for body in (old, card.body):
            assert [one.body for one in memory.store.cards("routine")] == [body]
            listing = ToolListing(memory, AllowSettings(), ToolRegistry())
            assert listing.tools(Caller())[-1]["description"] == "Say it."
            listing.save()


def test_a_routine_that_can_not_be_read_gives_way_to_the_version_before() -> None:
    keep(ECHO.format("echo"))
    with Memory("em.db") as memory:
        broken = {"files": {"routine.yaml": "name: echo\nsteps: 5\n"}}
        draft = ArtefactDraft(kind="routine", name="echo", body=broken)
        memory.store.commit(Commit(artefacts=[draft]))
        for _ in range(2):  # with and without cards
            listing = ToolListing(memory, AllowSettings(), ToolRegistry())
            assert listing.routines() == {"echo": 1}
            listing.save()


def test_a_tool_is_missing_unless_a_server_or_a_module_has_it() -> None:
    keep(CALLING)
    shop = AllowSettings(mcp={"shop": McpServer(command=["shop-mcp"])})
    registry = ToolRegistry()
    with Memory("em.db") as memory:

        def about(allow: AllowSettings) -> str:
            found: str = ToolListing(memory, allow, registry).tools(Caller())[-1]["description"]
            return found

        assert about(AllowSettings()).endswith("tools: 'mcp__shop__find', 'unheard_of'.)")
        assert about(shop).endswith("tools: 'unheard_of'.)")
        registry.register("unheard_of", lambda: None)
        assert "Can't run here" not in about(shop)


def test_a_memory_that_can_only_be_read_lists_its_routines() -> None:
    keep(ECHO.format("echo"))
    Path("em.db").chmod(0o444)
    with session() as one:
        one.greet()
        assert "echo" in [tool["name"] for tool in one.ask("tools/list")["result"]["tools"]]
