"""A secret that comes in over HTTP or MCP is stored nowhere, also where something echoes it."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_agents import agent, over_http
from served import Serve, Served

from em import Memory, Settings
from em.heuristics.heuristic import Lesson
from em.redaction.masker import without_secrets
from em.runner.package import keep_routine
from em.serve.app import make_app
from em.testing import SECRET
from mcp import Client

PASSWORD = "kW7Qz9LpX2"
KNOWN = {"password": PASSWORD}
SAID = f"my password is {PASSWORD} so type {PASSWORD}"
ATTEMPT = {
    "task": f"log in with {PASSWORD}",
    "outcome": "success",
    "steps": [
        {"action": "login", "args": KNOWN, "error": f"wrong: {PASSWORD}"},
        {"action": "login", "args": {**KNOWN, "again": True}, "observation": f"ok {PASSWORD}"},
    ],
    "final_output": {"note": [PASSWORD]},
}
ROUTINE = """\
version: "1"
name: greet
input_schema: {type: object, properties: {password: {type: string}, note: {type: string}}}
steps: [{id: out, type: return, value: "Hello {{ note }}"}]
"""
FLOW = """\
workflows:
  notes:
    params: [password, note]
    steps:
      - {name: look, tool: recall, inputs: {query: "{{ params.note }}"}}
"""
SPAN = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "login",
    "gen_ai.tool.call.arguments": json.dumps(KNOWN),
    "gen_ai.tool.call.result": f"ok {PASSWORD}",
}


def otlp() -> dict[str, Any]:
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "login",
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000",
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in SPAN.items()],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def stored() -> str:
    """Every byte of the database's files, read by another process: this one has no locks there."""
    files = sorted(map(str, Path().glob("em.db*")))
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout.decode("latin-1")


@pytest.fixture
def service(serve: Serve) -> Served:
    Path("em.yaml").write_text(FLOW)
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": ROUTINE})
    return serve()


ECHOES: tuple[tuple[str, Any], ...] = (
    ("/trajectories", ATTEMPT),
    ("/observations", {"record": {**KNOWN, "note": f"use {PASSWORD}"}, "type": "Login"}),
    ("/observations", {"text": SAID, "speaker": PASSWORD}),
    ("/observations", {"text": "hello", "metadata": {**KNOWN, "note": PASSWORD}}),
    ("/heuristics", {"trigger": f"my password is {PASSWORD}", "action": f"type {PASSWORD}"}),
    ("/reflect", {"trajectory": ATTEMPT}),
    ("/resolve", {"field": "city", "value": SAID}),
    ("/ask", {"question": SAID}),
    ("/v1/traces", otlp()),
)


@pytest.mark.parametrize("key", ["", "k"])
def test_an_echo_of_a_secret_is_stored_by_no_path(service: Served, key: str) -> None:
    service.post("/observations", {"subject": "ana", "record": {"city": "Faro"}, "type": "Profile"})
    service.post("/checkpoint", {"subject": "ana"})
    for number, (path, body) in enumerate(ECHOES):
        about = {"subject": "ana"}
        if "trajectory" in body:
            given = {"trajectory": {**body["trajectory"], **about}}
        else:
            given = body if path.startswith("/v1") else {**body, **about}
        headers = {"X-Em-Subject": "ana"} if path.startswith("/v1") else {}
        answer = service.post(path, given, key=key and f"{key}{number}", **headers)
        assert answer.is_success, (path, answer.text)
        assert PASSWORD not in answer.text, path
        assert PASSWORD.lower() not in stored().lower(), path
    events = service.get("/log", subject="ana", limit=200)["items"]
    assert "use [redacted:password]" in str(events)
    assert "ok [redacted:password]" in str(events)


def test_a_payload_is_cleaned_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a large one would stop every other request."""
    beside: list[bool] = []

    def clean(*given: Any) -> Any:
        beside.append(asyncio._get_running_loop() is None)
        return without_secrets(*given)

    async def post(app: Any) -> int:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.post("/trajectories", json=ATTEMPT)).status_code

    monkeypatch.setattr("em.serve.service.without_secrets", clean)
    with Memory("em.db") as memory:
        assert asyncio.run(post(make_app(memory, Settings()))) == 201
    assert beside == [True]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs", {"routine": "greet", "input": KNOWN}),
        ("/runs", {"routine": "greet", "answers": {"ask": KNOWN}}),
        ("/workflow-runs", {"workflow": "notes", "params": {**KNOWN, "note": "x"}}),
        ("/runs/none/answers", {"answers": {"ask": KNOWN}}),
        ("/workflow-runs/none/answers", {"answers": {"ask": KNOWN}}),
    ],
)
def test_no_run_acts_on_the_marker_of_a_secret(service: Served, path: str, body: Any) -> None:
    refused = service.post(path, body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_input")
    assert "this looks like a secret" in refused.json()["error"]["message"]
    assert "password" in refused.json()["error"]["place"]
    assert PASSWORD not in refused.text + stored()
    assert service.get("/runs")["items"] == []


def test_a_job_with_a_secret_is_refused_as_in_python(service: Served) -> None:
    """It would run with a marker in the place of the value."""
    for body in (
        {"kind": "routine", "name": "greet", "inputs": [{**KNOWN, "note": PASSWORD}]},
        {"kind": "workflow", "name": "notes", "inputs": [{**KNOWN, "note": PASSWORD}]},
    ):
        answer = service.post("/jobs", body, key="k")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_input")
        assert "secret" in answer.text
        assert PASSWORD not in answer.text + stored()


def test_an_echo_of_a_secret_is_stored_by_no_mcp_tool(service: Served) -> None:
    with Memory("em.db") as memory:
        (known,) = memory.heuristics.keep([Lesson(trigger="a door is locked", action="knock")])

    async def work(client: Client) -> None:
        record = {**KNOWN, "note": f"use {PASSWORD}"}
        about = {"subject": "ana"}
        fact = {"op": "add", "type": "Login", "evidence": SAID}
        calls: tuple[tuple[str, Any], ...] = (
            ("remember", {**about, "facts": [{"op": "add", "type": "Login", "record": record}]}),
            ("remember", {**about, "text": SAID}),
            ("remember", {**about, "text": SAID, "facts": [{**fact, "record": record}]}),
            ("lesson", {**about, **ATTEMPT, "lessons": [known.id]}),
            ("lesson", {**about, "when": "locked out", "do": SAID}),
            ("greet", record),
        )
        for name, given in calls:
            result = await client.call_tool(name, given)
            assert not result.is_error, (name, result)
            assert PASSWORD.lower() not in stored().lower(), name

    agent(over_http(service.url), work)


def test_names_and_choices_stay_where_they_look_like_an_echo(service: Served) -> None:
    steps = [{"action": "x", "args": {"password": "success", "note": "success"}}]
    given = {"task": "a success", "outcome": "success", "steps": steps, "subject": "success"}
    answer = service.post("/trajectories", given).json()
    assert (answer["outcome"], answer["subject"]) == ("success", "success")
    assert answer["task"] == "a [redacted:password]"


def with_subject(service: Served) -> set[str]:
    """The paths whose body names a subject, as the API describes them."""
    described = service.get("/docs/openapi.json")
    shapes = described["components"]["schemas"]
    found = set()
    for path, operations in described["paths"].items():
        body = operations.get("post", {}).get("requestBody", {}).get("content", {})
        name = body.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        if {"subject", "subjects"} & shapes.get(name, {}).get("properties", {}).keys():
            found.add(path)
    return found


def test_a_subject_that_holds_a_secret_is_refused(service: Served) -> None:
    known = service.post("/heuristics", {"trigger": "a door is locked", "action": "knock"}).json()
    bodies: dict[str, Any] = {
        "/observations": {"text": "hello"},
        "/trajectories": ATTEMPT,
        "/heuristics": {"trigger": "it rains", "action": "wait"},
        "/heuristics/{heuristic_id}/feedback": {"outcome": "success"},
        "/runs": {"routine": "greet"},
        "/runs/prepare": {"routine": "greet"},
        "/runs/commit": {"plan": "x"},
        "/workflow-runs": {"workflow": "notes", "params": {"password": "", "note": "x"}},
        "/jobs": {"kind": "routine", "name": "greet"},
        "/checkpoint": {},
        "/ask": {"question": "where?"},
        "/check": {"action": "book"},
        "/resolve": {"field": "city", "value": 1},
        "/state/correct": {"event_id": "e", "changes": {}},
        "/state/retract": {"field": "city"},
        "/state/accept": {"event_id": "e"},
        "/rules": {"rule": "r", "verdict": "accepted"},
        "/forget": {},
    }
    assert set(bodies) == with_subject(service), "try it there, too"
    before = service.get("/log", limit=200)
    for path, body in bodies.items():
        at, given = path.format(heuristic_id=known["id"]), {**body, "subject": SECRET}
        for key in ("", path):
            answer = service.post(at, given, key=key)
            if path in ("/check", "/forget"):  # they only look for it
                assert answer.status_code == 404
            else:
                assert (answer.status_code, "holds a secret" in answer.text) == (400, True), path
                assert SECRET not in answer.text
    about = {"trajectory": {**ATTEMPT, "subject": SECRET}}
    assert service.post("/reflect", about).status_code == 400
    assert service.post("/v1/traces", otlp(), **{"X-Em-Subject": SECRET}).status_code == 400
    assert service.get("/log", limit=200) == before
    assert SECRET not in stored()


@pytest.mark.parametrize(
    "named",
    [
        {"kind": "checkpoint", "subjects": [SECRET]},
        {"kind": "routine", "name": "greet", "queue": SECRET},
        {"kind": "compile", "name": SECRET, "traces": ["x"]},
    ],
)
def test_a_job_with_a_secret_in_a_name_is_refused(service: Served, named: Any) -> None:
    answer = service.post("/jobs", named)
    assert (answer.status_code, "secret" in answer.text) == (400, True), answer.text
    assert SECRET not in answer.text + stored()


def test_a_tool_of_mcp_refuses_a_subject_that_holds_a_secret(service: Served) -> None:
    async def work(client: Client) -> None:
        for name, given in (("remember", {"text": "hello"}), ("lesson", ATTEMPT)):
            result = await client.call_tool(name, {**given, "subject": SECRET})
            assert (result.is_error, "holds a secret" in str(result.content)) == (True, True)

    agent(over_http(service.url), work)
    assert SECRET not in stored()
