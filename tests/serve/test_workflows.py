"""Workflows over HTTP: list, run, status, answer a gate, inspect."""

import json
import re
from pathlib import Path

import pytest
from served import Serve, Served, token_in
from tests.children import wait_until

FLOW = """
workflows:
  tell:
    description: Write, and publish if a person agrees.
    params: [topic, {depth: 3}]
    steps:
      - {name: facts, inputs: {prompt: "Facts about {{params.topic}}"}}
      - name: text
        gate: true
        memory: {needs: [facts]}
        inputs: {prompt: "Write: {{memory.facts}}"}
  listed:
    steps:
      - {name: a, tool: command, inputs: {command: [ls]}}
"""


@pytest.fixture
def flows(serve: Serve, tmp_path: Path) -> Served:
    (tmp_path / "em.yaml").write_text(FLOW)
    (tmp_path / "replies.json").write_text(json.dumps(["some facts"]))
    env = {"EM_LLM_PROVIDER": "scripted", "EM_LLM_BASE_URL": str(tmp_path / "replies.json")}
    return serve(env=env)


def test_a_workflow_runs_waits_at_its_gate_and_goes_on(flows: Served) -> None:
    listed = flows.get("/workflows")
    assert listed["items"][0]["params"][0] == {
        "name": "topic",
        "type": None,
        "required": True,
    }
    body = {"workflow": "tell", "params": {"topic": "bees"}}
    started = flows.post("/workflow-runs", body, key="one")
    run = started.json()
    assert (started.status_code, run["status"]) == (201, "needs_input")
    assert flows.post("/workflow-runs", body, key="one").content == started.content
    path = f"/workflow-runs/{run['run_id']}"
    assert flows.get(path)["pending_prompt"]["step_id"] == "text"
    steps = flows.get(f"{path}/steps")
    assert [step["status"] for step in steps["steps"]] == ["done", "not begun"]
    assert steps["steps"][0]["inputs"]["prompt"] == "Facts about bees"
    wrong = flows.post(f"{path}/answers", {"answers": {"txt": {"approve": True}}})
    assert (wrong.status_code, "text" in wrong.json()["error"]["fix"]) == (400, True)
    went_on = flows.post(f"{path}/answers", {"answers": {"text": {"approve": True}}})
    assert went_on.status_code == 200, went_on.text
    # The script of this process begins anew with each request: it says the same again.
    assert went_on.json()["output"] == "some facts"
    assert flows.get("/workflow-runs")["items"][0]["status"] == "ok"
    over = flows.post(f"{path}/answers", {"answers": {"text": {"approve": True}}})
    assert over.status_code == 400
    assert flows.http.get(f"/runs/{run['run_id']}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"workflow": "nope"}, 404, "not_found"),
        ({"workflow": "tell"}, 400, "bad_input"),
        ({"workflow": "tell", "params": {"topic": "x", "dept": 1}}, 400, "bad_input"),
        ({"workflow": "listed"}, 400, "not_allowed"),
        ({"workflow": "tell", "parms": {}}, 400, "bad_request"),
    ],
)
def test_what_is_wrong_has_the_envelope(
    flows: Served, body: object, status: int, code: str
) -> None:
    answer = flows.post("/workflow-runs", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert flows.get("/workflow-runs")["items"] == []


def test_a_gate_is_answered_on_the_page_of_the_run(flows: Served) -> None:
    body = {"workflow": "tell", "params": {"topic": "bees"}}
    run = flows.post("/workflow-runs", body).json()["run_id"]
    page = flows.http.get(f"/ui/run?id={run}").text
    assert "Waiting for an answer" in page
    (name,) = set(re.findall(r'type="radio" name="([^"]+)"', page))
    form = {"form_token": token_in(page), "id": run, name: "true"}
    wrong = flows.http.post("/ui/run/answer", data={**form, "form_token": "guessed"})
    assert wrong.status_code == 403
    answered = flows.http.post("/ui/run/answer", data=form)
    assert (answered.status_code, answered.headers["location"]) == (303, f"/ui/run?id={run}")
    path = f"/workflow-runs/{run}"
    wait_until(lambda: flows.get(path)["status"] == "ok")
    assert flows.http.post("/ui/run/answer", data=form).status_code == 400, "it has ended"


def test_a_page_is_told_when_a_run_goes_on(flows: Served) -> None:
    run = flows.post("/workflow-runs", {"workflow": "tell", "params": {"topic": "bees"}}).json()
    stream = f"/ui/live?stream=run/{run['run_id']}&after="
    with flows.http.stream("GET", f"{stream}0") as told:
        assert told.headers["content-type"].startswith("text/event-stream")
        lines = told.iter_lines()
        assert next(lines).startswith("id: "), "what the page has not seen yet is told at once"
        assert next(lines) == "event: changed"
        pos = int(next(lines).removeprefix("data: "))
    with flows.http.stream("GET", f"{stream}{pos}") as told:
        answers = {"answers": {"text": {"approve": True}}}
        flows.post(f"/workflow-runs/{run['run_id']}/answers", answers)
        lines = told.iter_lines()
        later = next(int(line.removeprefix("id: ")) for line in lines if line.startswith("id: "))
        assert later > pos


def test_a_service_stops_although_a_page_listens(flows: Served) -> None:
    with flows.http.stream("GET", "/ui/live?stream=run/none") as told:
        assert told.status_code == 200
        assert flows.stop() == 0
