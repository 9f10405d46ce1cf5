"""The service does what its description says: paths, filters, pages, errors."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from served import Serve, Served

from em import Memory
from em.runner.history import STATUSES
from em.work.job import Kind, State
from strategies import examples

LESSON = {"trigger": "an insert fails on a foreign key", "action": "insert the parent row first"}
TRAJECTORY = {
    "task": "load the orders",
    "outcome": "success",
    "steps": [
        {"action": "insert", "args": {"c": "c7", "total": "1,5"}, "error": "invalid total"},
        {"action": "insert", "args": {"c": "c7", "total": "1.5"}, "observation": "ok"},
    ],
}
PAY = """
version: "1"
name: greet
steps:
  - id: ask
    type: prompt.user
    prompt: {message: "Who?", fields: [{name: who, type: text}]}
    save_as: said
  - {id: done, type: return, value: "Hello {{ said.who }}, {{ word }}"}
"""


def test_health_docs_and_a_log_of_json_lines(service: Served) -> None:
    assert service.get("/health") == {"status": "ok", "store": "sqlite", "version": "0.1.0"}
    page = service.http.get("/docs")
    assert "text/html" in page.headers["content-type"]
    assert "<script" not in page.text
    described = service.get("/docs/openapi.json")
    assert {"/heuristics", "/trajectories", "/reflect", "/evaluate"} <= set(described["paths"])
    asked = service.http.get("/health", headers={"X-Request-ID": "mine-1"})
    assert asked.headers["x-request-id"] == "mine-1"
    assert service.stop() == 0
    told = [line for line in service.lines if line["event"] == "request"]
    assert told[-1]["request_id"] == "mine-1"
    assert {"at", "level", "method", "path", "status", "ms"} <= set(told[0])


def test_a_small_answer_does_not_wait_for_its_header_to_be_acknowledged() -> None:
    import socket

    from em.serve.server import listen
    from em.settings import ApiSettings

    with listen(ApiSettings(port=0)) as listening:
        address = listening.getsockname()[:2]
        with socket.create_connection(address), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_first_example_of_the_page_finds_what_it_gave(service: Served) -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    body = re.search(r"-d '(\{.*\})'", page)
    path = re.search(r"curl 'localhost:8765(/heuristics\?.*)'", page)
    assert body is not None
    assert path is not None
    form = {"Content-Type": "application/x-www-form-urlencoded", "Idempotency-Key": "7f3a"}
    made = service.http.post("/heuristics", content=body[1], headers=form)
    assert made.status_code == 201, made.text
    found = service.get(path[1])["items"]
    assert [one["action"] for one in found] == ["insert the parent row first"]
    told = service.get("/heuristics", task="debug a failing SQL insert")
    assert [one["id"] for one in told["items"]] == [made.json()["id"]]


def test_heuristics_are_kept_found_and_paged(service: Served) -> None:
    made = []
    for number in range(5):
        lesson = {
            "trigger": f"the {'abcde'[number] * 4} import hangs",
            "action": f"restart worker {'vwxyz'[number] * 4}",
            "source_task": f"task {number % 2}",
        }
        answer = service.post("/heuristics", lesson)
        assert answer.status_code == 201
        made.append(answer.json()["id"])
    first = service.get("/heuristics", limit=3)
    behind = first["pagination"].pop("next")
    second = service.get("/heuristics", limit=3, cursor=behind)
    assert second == service.get("/heuristics", limit=3, offset=3) | {
        "pagination": second["pagination"]
    }
    assert first["pagination"] == {"limit": 3, "offset": 0, "total": 5}
    assert second["pagination"] == {"limit": 3, "offset": 0, "total": 5}
    ids = [one["id"] for one in (*first["items"], *second["items"])]
    assert ids == made[::-1], "the newest first"
    even = service.get("/heuristics", source_task="task 0")
    assert {one["id"] for one in even["items"]} == set(made[::2])
    found = service.get("/heuristics", task="why does the aaaa import hang?", top_k=2)
    assert found["items"][0]["id"] == made[0]
    assert found["items"][0]["score"] > 0
    assert service.get("/heuristics", task="bake bread with salt")["items"] == []
    one = service.get(f"/heuristics/{made[0]}")
    assert (one["source_task"], one["use"]["learned"]) == ("task 0", 1)
    briefing = service.get("/brief", task="why does the aaaa import hang?", k=1)
    assert briefing["text"].startswith("Lessons from earlier attempts")
    fed = service.post(f"/heuristics/{made[0]}/feedback", {"outcome": "success"})
    assert (fed.status_code, fed.json()["use"]["helped"]) == (200, 1)
    assert service.post(f"/heuristics/{made[0]}/retire", {"reason": "old"}).json()["retired"]
    assert service.get("/heuristics")["pagination"]["total"] == 4


def test_trajectories_are_kept_apart_and_filtered(service: Served) -> None:
    kept = service.post("/trajectories", TRAJECTORY).json()
    service.post("/trajectories", {**TRAJECTORY, "outcome": "failure"})
    native = {"mission": {"goal": "other"}, "events": [{"type": "tool_call", "tool": "x"}]}
    assert service.post("/trajectories", native).status_code == 201
    assert service.get("/heuristics")["pagination"]["total"] == 0
    assert service.get("/trajectories")["pagination"] == {"limit": 50, "offset": 0, "total": 3}
    both = service.get("/trajectories", task="load the orders")
    assert [one["outcome"] for one in both["items"]] == ["success", "failure"]
    assert both["items"][0]["id"] == kept["id"]
    failed = service.get("/trajectories", task="load the orders", outcome="failure")
    assert failed["pagination"]["total"] == 1
    assert service.get("/trajectories", task="LOAD")["pagination"]["total"] == 2
    assert service.get("/trajectories", task="unload")["items"] == []
    first = service.get("/trajectories", limit=2)
    rest = service.get("/trajectories", limit=2, cursor=first["pagination"]["next"])
    assert [one["task"] for one in rest["items"]] == ["other"]
    assert service.get("/trajectories", since="2100-01-01")["pagination"]["total"] == 0
    assert service.get("/trajectories", subject="nobody")["items"] == []
    wrong = service.http.get("/trajectories", params={"cursor": "12"})
    assert (wrong.status_code, "cursor" in wrong.json()["error"]["message"]) == (400, True)
    one = service.get(f"/trajectories/{kept['id']}")
    assert [step["tool"] for step in one["steps"]] == ["insert", "insert"]


def test_reflect_learns_from_a_trajectory_given_or_kept(service: Served) -> None:
    looked = service.post("/reflect", {"trajectory": TRAJECTORY, "store": False})
    assert (looked.status_code, looked.json()["stored"]) == (200, False)
    assert service.get("/trajectories")["items"] == []
    done = service.post("/reflect", {"trajectory": TRAJECTORY})
    assert done.status_code == 201
    (lesson,) = done.json()["heuristics"]
    assert lesson["trigger"] == "insert fails with: invalid total"
    assert service.get(f"/heuristics/{lesson['id']}")["use"]["learned"] == 1
    kept = service.post("/trajectories", TRAJECTORY).json()["id"]
    assert service.post("/reflect", {"trajectory_id": kept}).json()["trajectory_id"] == kept
    assert service.get(f"/heuristics/{lesson['id']}")["use"]["learned"] == 2


def test_a_model_that_answers_nonsense_leaves_nothing_behind(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(["nonsense"] * 3))
    env = {"EM_LLM_PROVIDER": "scripted", "EM_LLM_BASE_URL": str(tmp_path / "script.json")}
    service = serve(env=env)
    answer = service.post("/reflect", {"trajectory": TRAJECTORY, "llm": True}, key="k")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "bad_answer")
    assert service.get("/trajectories")["pagination"]["total"] == 0
    # What failed was not kept: the same key may be tried again.
    again = service.post("/reflect", {"trajectory": TRAJECTORY, "llm": True}, key="k")
    assert again.status_code == 502


def test_evaluate_touches_no_live_table(service: Served) -> None:
    service.post("/heuristics", LESSON)
    before = service.get("/log", limit=200)
    done = service.get("/evaluate", tasks=30)
    assert done["methods"]["em"]["mrr"] > done["methods"]["random"]["mrr"]
    assert service.get("/log", limit=200) == before


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", None, 404, "not_found"),
        ("GET", "/heuristics/nope", None, 404, "not_found"),
        ("GET", "/trajectories/nope", None, 404, "not_found"),
        ("GET", "/runs/nope", None, 404, "not_found"),
        ("DELETE", "/heuristics", None, 405, "method_not_allowed"),
        ("GET", "/heuristics?limit=0", None, 400, "bad_request"),
        ("GET", "/trajectories?outcome=maybe", None, 400, "bad_request"),
        ("POST", "/heuristics", b"{broken", 400, "bad_request"),
        ("POST", "/heuristics", b'{"trigger": "x"}', 400, "bad_request"),
        ("POST", "/heuristics", b'{"trigger": " ", "action": "y"}', 400, "bad_request"),
        ("POST", "/heuristics", b"\xff\xfe", 400, "bad_request"),
        ("POST", "/trajectories", b'{"task": "x"}', 400, "bad_input"),
        ("POST", "/reflect", b"{}", 400, "bad_input"),
        ("POST", "/reflect", b'{"trajectory_id": "nope"}', 404, "not_found"),
        ("POST", "/runs", b'{"routine": "/etc"}', 404, "not_found"),
    ],
)
def test_every_error_has_the_envelope_and_the_request_id(
    shared: Served, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = shared.http.request(method, path, content=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], bool(error["message"])) == (code, True)
    assert answer.headers["x-request-id"]
    assert "Traceback" not in answer.text


def one_of(options: Iterable[str]) -> str:
    return f"expected one of: {', '.join(sorted(options))}"


@pytest.mark.parametrize(
    ("method", "path", "body", "place", "says"),
    [
        ("POST", "/observations", b"", "body", "a JSON body is needed"),
        ("POST", "/runs", b"", "body", "a JSON body is needed"),
        ("POST", "/v1/traces", b"", "body", "a JSON body is needed"),
        ("POST", "/runs", b"{}", "body", "missing required field `routine`"),
        ("GET", "/jobs?state=zz", None, "state", one_of(get_args(State))),
        ("GET", "/jobs?kind=zz", None, "kind", one_of(get_args(Kind))),
        ("GET", "/runs?status=bad", None, "status", one_of(STATUSES)),
        ("GET", "/workflow-runs?status=bad", None, "status", one_of(STATUSES)),
        ("GET", "/runs?limit=0", None, "limit", "Expected `int` >= 1"),
        ("POST", "/jobs", b'{"kind": "zz"}', "kind", one_of(get_args(Kind))),
        (
            "POST", "/rules", b'{"subject": "ana", "rule": "r", "verdict": "accept"}',
            "verdict", "'accept', expected one of: accepted, proposed, rejected",
        ),
        (
            "POST", "/reflect", b'{"trajectory": {"task": "t", "steps": [], "outcome": "zz"}}',
            "trajectory.outcome", one_of(("success", "failure", "unknown")),
        ),
    ],
)  # fmt: skip
def test_what_is_invalid_is_named_as_the_caller_wrote_it_with_what_to_write(
    shared: Served, method: str, path: str, body: Any, place: str, says: str
) -> None:
    answer = shared.http.request(method, path, content=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["place"]) == ("bad_request", place)
    assert says in error["message"]


def test_observing_and_the_log(service: Served) -> None:
    kept = service.post("/observations", {"subject": "ana", "text": "moved to Porto"}).json()
    service.post("/observations", {"subject": "bo", "record": {"city": "Lisbon"}, "type": "Home"})
    events = service.get("/log", subject="ana")["items"]
    assert [event["id"] for event in events] == [kept["id"]]
    page = service.get("/log", limit=1)
    assert page["more"]
    assert (
        service.get("/log", limit=1, after=page["items"][0]["seq"])["items"][0]["subject"] == "bo"
    )
    assert service.get("/log/verify") == {"ok": True, "events": 2, "problems": []}


def test_a_routine_runs_asks_and_goes_on(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "greet"
    folder.mkdir()
    (folder / "routine.yaml").write_text(PAY)
    with Memory("em.db") as memory:
        from em.runner.package import files_in, keep_routine

        keep_routine(memory.store, files_in(folder))
    service = serve()
    assert service.get("/routines")["items"][0]["ref"] == "greet@1"
    started = service.post("/runs", {"routine": "greet", "input": {"word": "welcome"}}, key="r")
    run = started.json()
    assert (started.status_code, run["status"]) == (201, "needs_input")
    assert service.post(
        "/runs", {"routine": "greet", "input": {"word": "welcome"}}, key="r"
    ).content == (started.content)
    assert service.get(f"/runs/{run['run_id']}")["pending_prompt"]["message"] == "Who?"
    went_on = service.post(f"/runs/{run['run_id']}/answers", {"answers": {"ask": {"who": "Ana"}}})
    assert went_on.status_code == 200, went_on.text
    assert went_on.json()["output"] == "Hello Ana, welcome"
    assert service.get("/runs")["items"][0]["status"] == "ok"
    over = service.post(f"/runs/{run['run_id']}/answers", {"answers": {"ask": {"who": "Bo"}}})
    assert over.status_code == 400


@pytest.mark.hypothesis
def test_no_generated_request_gets_a_5xx_or_an_undocumented_answer(service: Served) -> None:
    service.post("/reflect", {"trajectory": TRAJECTORY})
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,"
        "response_schema_conformance"
    )
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "schemathesis"), "run"),
            *(f"{service.url}/docs/openapi.json", "--checks", checks, "--phases"),
            *(
                "coverage,fuzzing,stateful",
                "--max-examples",
                str(examples(10)),
                "--seed",
                "1",
                "--no-color",
            ),
            *("--exclude-path", "/evaluate"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert not [line for line in service.lines if line.get("status", 0) >= 500]


def test_a_trajectory_is_labelled_once_for_each_key(service: Served) -> None:
    kept = service.post("/trajectories", {**TRAJECTORY, "outcome": "unknown"}).json()["id"]
    address, label = f"/trajectories/{kept}/label", {"outcome": "success", "reason": "checked"}
    first = service.post(address, label, key="k")
    assert (first.status_code, first.json()["outcome"]) == (201, "success")
    assert service.post(address, label, key="k").content == first.content
    assert service.get(f"/trajectories/{kept}")["outcome"] == "success"
    assert service.get("/trajectories", outcome="success")["pagination"]["total"] == 1
    events = service.get("/log", stream=f"trace/{kept}")["items"]
    assert [one["kind"] for one in events].count("trace_labelled") == 1
    assert service.post(address, {"outcome": "good"}).status_code == 400
    assert service.post("/trajectories/nope/label", label).status_code == 404


def test_forgetting_lists_what_goes_and_then_erases_it_with_its_stored_responses(
    service: Served,
) -> None:
    observed = {"subject": "ana", "text": "I live in Porto."}
    event = service.post("/observations", observed, key="k").json()["id"]
    service.post("/observations", {"subject": "bob", "text": "I live in Faro."})
    dry = service.post("/forget", {"subject": "ana", "dry_run": True})
    assert dry.status_code == 200, dry.text
    listed = dry.json()
    assert listed["is_dry_run"]
    assert listed["gone"]["events"] == {"observation": [event]}
    assert len(listed["gone"]["responses"]["response"]) == 1
    assert service.post("/observations", observed, key="k").status_code == 201
    real = service.post("/forget", {"subject": "ana", "reason": "asked"}).json()
    assert (real["gone"], real["scrubbed"]) == (listed["gone"], True)
    again = service.post("/observations", observed, key="k")
    assert (again.status_code, again.json()["error"]["code"]) == (410, "response_gone")
    assert not service.get("/recall", query="Porto")["items"]
    assert service.get("/recall", query="Faro")["items"]
    assert service.post("/forget", {"subject": "nobody"}).status_code == 404
    assert service.post("/forget", {}).status_code == 400


def test_recall_is_narrowed_over_http(service: Served) -> None:
    own = {"project": "atlas"}
    for body in ({"session": "s1", "metadata": own}, {"run": "r1", "role": "user"}):
        service.post("/observations", {"subject": "ana", "text": f"a key {body}", **body})
    found = service.get("/recall", query="key", metadata=json.dumps(own))["items"]
    assert [(one["session"], one["metadata"]) for one in found] == [("s1", own)]
    found = service.get("/recall", query="key", run="r1", role="user")["items"]
    assert [one["run"] for one in found] == ["r1"]
