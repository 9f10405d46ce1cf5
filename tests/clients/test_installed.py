"""em installed into each coding agent: sessions are recorded, and lessons reach the next one."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em
from tests.clients.coding_agents import CLIENTS, ClaudeCode, Codex, CodingAgent, aside
from tests.clients.test_install import contents

from em import Memory
from em.clients.advice import HEADING
from em.clients.hook import ask
from em.clients.hook_service import end_service
from em.clients.plugin import socket_of
from em.compiler.proposals import open_proposals
from em.testing.model_server import SeenRequest

ORDER = "test -f customer || { echo 'no customer: insert them first' >&2; exit 1; }; touch order\n"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def installed(agent: CodingAgent, db: Path) -> Iterator[CodingAgent]:
    """The agent with em installed and its service running, which is ended afterwards."""
    agent.em("install", agent.name, "--db", str(db))
    if isinstance(agent, Codex):
        agent.options = ("--dangerously-bypass-hook-trust",)
    agent.run("hello", "Hello.")  # the first hook starts the service
    until(lambda: ask(str(socket_of(str(db))), b"{}") is not None)
    yield agent
    end_service(socket_of(str(db)))


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1_800):  # what looks for tasks that recur has a low priority
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("not within three minutes")


def told(agent: CodingAgent) -> str:
    """What em told the agent in its last request to the model."""
    text = json.dumps(agent.model.requests[-1].body, ensure_ascii=False)
    return text.partition(HEADING)[2][:1500]


def test_sessions_are_recorded_and_a_lesson_from_them_reaches_the_next_one(
    installed: CodingAgent, db: Path
) -> None:
    agent = installed
    (agent.folder / "order.sh").write_text(ORDER)
    steps = [agent.shell(command) for command in ("sh order.sh", "touch customer", "sh order.sh")]
    agent.run("place the order of ana", *steps, "It is placed.")
    for made in ("customer", "order"):
        (agent.folder / made).unlink()
    with Memory(db) as memory:
        until(lambda: any(len(one.trace.calls) == 3 for one in memory.traces()))
        (kept,) = (one for one in memory.traces() if one.trace.calls)
        assert kept.trace.mission.goal == "place the order of ana"
        assert [bool(call.error) for call in kept.trace.calls] == [True, False, False]
        assert not any(memory.heuristics.every())  # a shell may do anything: somebody must read it
        pairs = zip(kept.trace.events, kept.happened_ids, strict=True)
        failed = [one for event, one in pairs if getattr(event, "error", None)]
        memory.lesson("an order has no customer", "touch customer", evidence=failed)

        agent.run("now do it for eve", agent.shell("sh order.sh"), "I see.")
        assert "an order has no customer" in told(agent)
        assert "touch customer" in told(agent)

        until(lambda: len(memory.traces()) == 3)
        calls = [len(one.trace.calls) for one in memory.traces()]
        memory.import_files(agent.sessions())
        assert [len(one.trace.calls) for one in memory.traces()] == calls


def test_a_routine_is_proposed_after_two_sessions_and_does_the_third_task_over_mcp(
    installed: CodingAgent, db: Path
) -> None:
    agent = installed
    (agent.folder / "em.yaml").write_text("allow: {commands: [grep], folders: [.]}\n")
    as_user = {"HOME": str(agent.home), "XDG_DATA_HOME": "", "EM_TRUSTED_FOLDERS": ""}
    trusted = em("trust", "--folder", str(agent.folder), "--yes", **as_user)
    assert trusted.code == 0, trusted.err
    for count, name in enumerate(("orders", "sales", "returns"), 1):
        (agent.folder / f"{name}.csv").write_text("1,pending\n" * count + "2,paid\n")
    for name in ("orders", "sales"):
        counted = agent.shell(f"grep -c pending {name}.csv > {name}.txt")
        agent.run(f"count the pending lines of {name}.csv into {name}.txt", counted, "Done.")

    def recorded() -> list[str]:
        return [one.id for one in memory.traces() if one.trace.calls]

    with Memory(db) as memory:
        until(lambda: len(recorded()) == 2)
        until(lambda: bool(open_proposals(memory.store)))  # by the service, when it was quiet
        (proposed,) = open_proposals(memory.store)
        agent.run("hello again", "Hello.")
        assert f"em routine accept {proposed.key}" in told(agent)
        memory.compile(proposed.traces, name="count_pending")
    agent.model.aside = until_offered(agent, "count_pending")
    args = {"pattern": "pending", "file": "returns.csv", "output": "returns.txt"}
    call = agent.tool_of_em("count_pending", args)
    agent.run("count the pending lines of returns.csv into returns.txt", call, "Done.")
    assert (agent.folder / "returns.txt").read_text() == "3\n"
    assert "The routine count_pending" in told(agent)
    assert "call it only if they agree" in told(agent)
    # The service saw the new routine at that session: the skill lists it.
    until(lambda: any("`count_pending`" in one.read_text() for one in agent.home.rglob("SKILL.md")))
    agent.model.aside = aside
    agent.run("what can you do?", "Much.")
    assert "Use routines and lessons from" in json.dumps(agent.model.requests[-1].body)


def until_offered(agent: CodingAgent, tool: str) -> Callable[[SeenRequest], Any]:
    """Let the agent wait until the MCP server has started, which its first request does not."""

    def reply(seen: SeenRequest) -> Any:
        offered = f'"name": "{tool}"', f'_{tool}"'
        tools = json.dumps(seen.body.get("tools"))
        is_there = any(name in tools for name in offered)
        return aside(seen) if is_there else aside(seen) or agent.shell("sleep 0.5")

    return reply


def of_helper(replies: list[Any], word: str) -> Callable[[SeenRequest], Any]:
    """Reply to requests without a word, which the main agent's have, and to those aside."""

    def reply(seen: SeenRequest) -> Any:
        if aside(seen) is not None or word in json.dumps(seen.body):
            return aside(seen)
        return replies.pop(0)

    return reply


def test_a_sub_agent_is_recorded_as_part_of_its_session(installed: CodingAgent, db: Path) -> None:
    agent = installed
    by_helper = [agent.shell("ls"), "One file."]
    waits = []
    if isinstance(agent, Codex):
        # It goes on beside its sub-agent, so the two are told apart by what they were asked for.
        waits = [agent.shell("sleep 3")]
        agent.model.aside = of_helper([*by_helper], "somebody")
        by_helper = []
    replies = agent.delegate("look around"), *by_helper, *waits, "There is one file."
    agent.run("let somebody look around", *replies)
    agent.model.aside = aside
    with Memory(db) as memory:

        def children() -> dict[str, int]:
            """The calls of the sub-agents of the task's session."""
            (task,) = (one.id for one in memory.traces() if "somebody" in one.trace.mission.goal)
            of_task = [one for one in memory.traces() if one.trace.parent == task]
            return {one.trace.mission.goal: len(one.trace.calls) for one in of_task}

        until(lambda: any("somebody" in one.trace.mission.goal for one in memory.traces()))
        until(lambda: children() == {"look around": 1})
        before = len(memory.traces())
        memory.import_files(agent.sessions())
        assert (len(memory.traces()), children()) == (before, {"look around": 1})


def test_a_folder_that_opted_out_is_not_recorded(installed: CodingAgent, db: Path) -> None:
    (installed.folder / ".emignore").touch()
    installed.run("the secret task", installed.shell("echo secret"), "Done.")
    (installed.folder / ".emignore").unlink()
    installed.run("the open task", "Done.")
    with Memory(db) as memory:
        until(lambda: any("open" in one.trace.mission.goal for one in memory.traces()))
        assert not any("secret" in one.trace.mission.goal for one in memory.traces())


def test_uninstalling_after_sessions_leaves_nothing_of_em(installed: CodingAgent, db: Path) -> None:
    installed.em("uninstall", installed.name)
    assert not [*socket_of(str(db)).parent.glob(f"{socket_of(str(db)).stem}*")]
    assert traces_of_em(installed) == []
    installed.run("hello again", "Hello.")
    assert traces_of_em(installed) == []
    assert HEADING not in json.dumps(installed.model.requests[-1].body, ensure_ascii=False)


def test_the_agents_own_check_has_nothing_against_the_plugin(agent: CodingAgent) -> None:
    if not isinstance(agent, ClaudeCode):
        pytest.skip("only Claude Code checks plugins")
    root = Path(__file__).parents[2]
    for folder in (root, root / "plugins" / "em"):
        command = [CLIENTS / "node_modules/.bin/claude", "plugin", "validate", "--strict", folder]
        done = subprocess.run(
            command, env=agent.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def traces_of_em(agent: CodingAgent) -> list[str]:
    """Files in the agent's home and folder that have to do with em; its own logs may name it.

    The list of a person's memories stays, as the memories themselves do.
    """
    marks = (b"em_hook", b"launch.json", b"em@em", HEADING.encode())
    return [
        name
        for folder in (agent.home, agent.folder)
        for name, (_, data) in contents(folder).items()
        if not any(part in name for part in ("node_modules", ".local/share/em", *agent.own))
        and (
            Path(name).parts[-1] in ("em", "em.js") or any(mark in (data or b"") for mark in marks)
        )
    ]
