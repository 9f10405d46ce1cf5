"""Every way to search takes every filter, on both stores."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_agents import agent, over_stdio
from served import Serve
from tests.cli.em_command import em

from em import Memory
from mcp import Client

SAID = {
    "subject": "ana",
    "role": "user",
    "speaker": "Ana",
    "session": "s1",
    "agent": "a1",
    "run": "r1",
    "metadata": {"project": "atlas"},
    "at": "2025-03-01",
}
OTHERWISE = {
    "subject": "bo",
    "role": "assistant",
    "speaker": "Bo",
    "session": "s2",
    "agent": "a2",
    "run": "r2",
    "metadata": {"project": "borea"},
}
FILTERS: dict[str, Any] = {name: SAID[name] for name in OTHERWISE}
FILTERS |= {"since": "2025-02-01", "until": "2025-04-01"}
EVERY = {*OTHERWISE, "since", "until", "none"}

Search = Callable[[dict[str, Any]], list[str]]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    address = str(tmp_path / "said.db")
    if request.param == "postgres":
        address = request.getfixturevalue("new_database")()
    said = {name: {**SAID, name: value} for name, value in OTHERWISE.items()}
    said |= {"none": SAID, "since": {**SAID, "at": "2025-01-01"}}
    said |= {"until": {**SAID, "at": "2025-05-01"}}
    with Memory(address) as memory:
        memory.observe_many([{**one, "text": f"a key {name}"} for name, one in said.items()])
    return address


def check(search: Search) -> None:
    """Each filter must leave out the one text that differs in it, and all of them all but one."""
    for name, value in FILTERS.items():
        found = {text.removeprefix("a key ") for text in search({name: value})}
        assert found == EVERY - {name}, name
    assert search(FILTERS) == ["a key none"]


def test_python(database: str) -> None:
    with Memory(database) as memory:
        check(lambda only: [one.text for one in memory.recall("key", k=20, **only)])


def test_the_command(database: str) -> None:
    def search(only: dict[str, Any]) -> list[str]:
        pairs = {**only, "metadata": "project=atlas"} if "metadata" in only else only
        options = [part for name, value in pairs.items() for part in (f"--{name}", value)]
        found = em("recall", "key", "-k", "20", *options, "--json", "--db", database).json
        return [one["text"] for one in found["passages"]]

    check(search)


def test_http(database: str, serve: Serve) -> None:
    served = serve(db=database)

    def search(only: dict[str, Any]) -> list[str]:
        given = {**only, "metadata": json.dumps(only.get("metadata", {}))}
        return [one["text"] for one in served.get("/recall", query="key", k=20, **given)["items"]]

    check(search)


def test_mcp(database: str) -> None:
    asked = [*({name: value} for name, value in FILTERS.items()), FILTERS]

    async def work(client: Client) -> list[list[str]]:
        found = []
        for only in asked:
            about = {name: value for name, value in only.items() if name == "subject"}
            rest = {name: value for name, value in only.items() if name != "subject"}
            given = {"question": "key", "k": 20, "only": rest, **about}
            result = await client.call_tool("ask", given)
            assert not result.is_error, result.content
            found.append([one["text"] for one in result.structured_content["passages"]])
        return found

    answers = agent(over_stdio(db=database), work)
    check(lambda only: answers[asked.index(only)])


def test_workflows(database: str) -> None:
    with Memory(database) as memory:

        def search(only: dict[str, Any]) -> list[str]:
            step = {"name": "r", "tool": "recall", "inputs": {"query": "key", "k": 20, **only}}
            Path("flow.yaml").write_text(json.dumps({"workflows": {"w": {"steps": [step]}}}))
            found: list[str] = memory.workflow("w", file="flow.yaml").outputs["r"]
            return found

        check(search)


def test_a_token_of_one_subject_starts_no_workflow_that_recalls_everybody(serve: Serve) -> None:
    tokens = "api: {tokens: [{env: ALL_TOKEN}, {env: ANA_TOKEN, subjects: [ana]}]}\n"
    step = "{name: r, tool: recall, inputs: {query: key, everybody: true}}"
    Path("em.yaml").write_text(f"{tokens}workflows: {{w: {{steps: [{step}]}}}}\n")
    with Memory("em.db") as memory:
        memory.observe("bo", "a key of Bo's")
    ana, everybody = "ana-0123456789abcdefghij", "all-0123456789abcdefghij"
    served = serve(env={"ANA_TOKEN": ana, "ALL_TOKEN": everybody})
    answers = [
        served.http.post(
            "/workflow-runs",
            json={"workflow": "w", "subject": "ana"},
            headers={"Authorization": f"Bearer {token}"},
        )
        for token in (ana, everybody)
    ]
    assert [answer.status_code for answer in answers] == [403, 201], answers[1].text
    assert "Bo" not in answers[0].text
    assert "a key of Bo's" in answers[1].text
