"""A stored answer goes with the subject it is about, and with whatever it was made of.

The paths come from the description of the API: a new one that takes an Idempotency-Key fails here
until a request for it plants the marker too.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import Serve, Served

from em import Memory
from em.llm import ScriptedClient
from em.runner.package import keep_routine

PLAIN = """
name: plain
input_schema: {type: object, properties: {who: {type: string}}, required: [who]}
steps: [{id: out, type: return, value: "Hello {{ who }}"}]
"""
MARK = "quokka"
YAN = {"subject": "yan"}
GREET = """\
version: "1"
name: greet
input_schema: {type: object, properties: {who: {type: string}}, required: [who]}
steps:
  - id: ask
    type: prompt.user
    prompt: {message: "How to greet {{ who }}?", fields: [{name: word, type: text}]}
    save_as: said
  - {id: long, type: assert, check: "len(said.word) > 3", message: "too short for {{ who }}"}
  - {id: out, type: return, value: "{{ said.word }} {{ who }}"}
"""
FLOW = """\
workflows:
  notes:
    params: [what]
    steps:
      - {name: look, tool: recall, inputs: {query: "{{ params.what }}"}}
      - name: say
        gate: true
        tool: recall
        inputs: {query: "{{ params.what }}"}
"""


def trajectory(mark: str, **more: Any) -> dict[str, Any]:
    steps = [
        {"action": f"insert_{mark}", "args": {"total": "1,5"}, "error": "invalid total"},
        {"action": f"insert_{mark}", "args": {"total": "1.5"}, "observation": "ok"},
    ]
    return {"task": f"load {mark}", "outcome": "success", "steps": steps, **more}


class Planted:
    """Requests about yan, each with a key and with a marker of its own."""

    def __init__(self, service: Served) -> None:
        self.service = service
        self.sent: list[tuple[str, str, Any, str]] = []

    def mark(self) -> str:
        return f"{MARK}{len(self.sent)}q"

    def post(self, path: str, body: Any, **ids: str) -> Any:
        key = f"key {len(self.sent)}"
        self.sent.append((path, path.format(**ids), body, key))
        answer = self.service.post(path.format(**ids), body, key=key)
        assert answer.status_code in (200, 201), (path, answer.text)
        return answer.json()

    def again(self) -> Iterator[tuple[str, httpx.Response]]:
        """Send every request once more, with its key."""
        for path, address, body, key in self.sent:
            yield path, self.service.post(address, body, key=key)


def plant(planted: Planted) -> None:
    post, mark = planted.post, planted.mark
    seen = post("/observations", {**YAN, "record": {"to": mark(), "cost": 3}, "type": "Trip"})["id"]
    post("/observations", {**YAN, "text": f"I keep the {mark()} in the garden."})
    post("/observations", {**YAN, "record": {"city": mark()}, "type": "Profile"})
    propose_rule(mark())
    post("/rules", {**YAN, "rule": "limit", "verdict": "rejected"})
    post("/resolve", {**YAN, "field": "city", "value": mark()})
    post("/state/correct", {**YAN, "event_id": seen, "changes": {"to": mark()}})
    post("/checkpoint", YAN)
    post("/ask", {**YAN, "question": f"How many trips to {mark()}?"})
    post("/ask", {**YAN, "question": f"Where is the {mark()} in the garden?"})
    post("/state/retract", {**YAN, "field": "profile.city"})
    page = {**YAN, "text": f"They say {mark()}.", "origin": "web"}
    post("/state/accept", {**YAN, "event_id": post("/observations", page)["id"]})
    trace = post("/trajectories", trajectory(mark(), **YAN))["id"]
    label = {"outcome": "success", "reason": mark()}
    post("/trajectories/{trajectory_id}/label", label, trajectory_id=trace)
    for store in (False, True):
        post("/reflect", {"trajectory_id": trace, "store": store})
        post("/reflect", {"trajectory": trajectory(mark(), **YAN), "store": store})
    post("/heuristics", {"trigger": f"a {mark()} is lost", "action": f"call the {mark()}", **YAN})
    run = post("/runs", {"routine": "greet", "input": {"who": mark()}, **YAN})["run_id"]
    said = post("/runs/{run_id}/answers", {"answers": {"ask": {"word": "Hi"}}}, run_id=run)
    assert said["status"] == "failed"
    post("/runs/{run_id}/retry", {}, run_id=run)
    asked = {"routine": "plain", "input": {"who": mark()}, **YAN}
    plan = planted.service.post("/runs/prepare", asked).json()["token"]
    assert post("/runs/commit", {"plan": plan, **YAN})["status"] == "ok"
    planted.service.post("/runs/prepare", asked)
    flow = {"workflow": "notes", "params": {"what": mark()}, **YAN}
    run = post("/workflow-runs", flow)["run_id"]
    path = "/workflow-runs/{run_id}"
    post(f"{path}/answers", {"answers": {"say": {"approve": True}}}, run_id=run)
    run = post("/workflow-runs", flow)["run_id"]
    assert planted.service.post(f"/workflow-runs/{run}/cancel", None).status_code == 200
    post(f"{path}/retry", {}, run_id=run)
    post("/jobs", {"kind": "routine", "name": "greet", "inputs": [{"who": mark()}], **YAN})
    post("/jobs", {"kind": "checkpoint", "subjects": ["yan"]})


def propose_rule(mark: str) -> None:
    """Let a model derive a rule about yan."""
    rule = {
        "id": "limit",
        "severity": "warning",
        "action": "spend",
        "message": f"too much for {mark}",
        "when": {"op": ">", "left": {"detail": "amount"}, "right": {"value": 100}},
        "events": ["e1"],
    }
    with Memory("em.db") as memory:
        reply = {"facts": [], "constraints": [rule]}
        memory.checkpoint("yan", llm=ScriptedClient([reply]))


def held() -> set[str]:
    """The markers in the bytes of all files of the database."""
    # Read by another process: closing a file here would end this process's locks on it.
    files = sorted(map(str, Path().glob("em.db*")))
    raw = subprocess.run(["cat", *files], capture_output=True, check=True).stdout
    return set(re.findall(rf"{MARK}\w*", raw.decode("latin-1")))


def with_key(service: Served) -> set[str]:
    """The paths that take an Idempotency-Key, as the API describes them."""
    described = service.get("/docs/openapi.json")["paths"]
    return {
        path
        for path, operations in described.items()
        for operation in operations.values()
        if any(one["name"] == "Idempotency-Key" for one in operation.get("parameters", ()))
    }


@pytest.fixture
def service(serve: Serve) -> Served:
    Path("em.yaml").write_text(FLOW)
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})
        keep_routine(memory.store, {"routine.yaml": PLAIN})
    return serve()


def forget(service: Served, **what: Any) -> None:
    answer = service.post("/forget", what)
    assert (answer.status_code, answer.json()["scrubbed"]) == (200, True), answer.text


def test_no_path_keeps_an_answer_about_a_forgotten_subject(service: Served) -> None:
    planted = Planted(service)
    plant(planted)
    assert {path for path, *_ in planted.sent} == with_key(service), "plant there, too"
    before = held()
    assert len(before) >= 20
    forget(service, subject="yan")
    assert held() == set()
    for path, answer in planted.again():
        assert answer.status_code == 410, (path, answer.text)


def test_a_reflection_that_stores_nothing_goes_with_its_trajectory(service: Served) -> None:
    kept = service.post("/trajectories", trajectory(MARK, **YAN)).json()["id"]
    asked = {"trajectory_id": kept, "store": False}
    first = service.post("/reflect", asked, key="a")
    assert MARK in first.text
    assert service.post("/reflect", asked, key="a").content == first.content
    forget(service, traces=[kept])
    assert held() == set()
    assert service.post("/reflect", asked, key="a").status_code == 410


def test_an_answer_that_nothing_could_forget_is_not_stored(service: Served) -> None:
    for subject in ({}, {"subject": "nobody"}):
        asked = {"trajectory": trajectory(MARK, **subject), "store": False}
        first = service.post("/reflect", asked, key=f"a {subject}")
        assert MARK in first.text
        assert held() == set()
        again = service.post("/reflect", asked, key=f"a {subject}")
        assert (again.status_code, "idempotency-replayed" in again.headers) == (200, False)


def test_an_answer_is_stored_however_many_newer_events_are_forgotten(service: Served) -> None:
    with Memory("em.db") as memory:
        memory.observe("yan", f"I keep the {MARK} in the garden.")
        memory.checkpoint("yan")
        newer = memory.observe_many(("yan", f"It rained on day {n}.") for n in range(260))
    forget(service, events=newer)
    asked = {**YAN, "question": "What is it about the weather?"}
    first = service.post("/ask", asked, key="a")
    again = service.post("/ask", asked, key="a")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    forget(service, subject="yan")
    assert service.post("/ask", asked, key="a").status_code == 410
