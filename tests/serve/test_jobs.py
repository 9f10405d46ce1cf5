"""Queued work over HTTP: the same jobs as those of `em queue`, for callers who may see them."""

from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served

from em import Memory
from em.runner.package import files_in, keep_routine, routine_of
from em.settings import Settings
from em.work.queue import Queue
from em.work.worker import Worker

ALL, ANA, BO = "all-0123456789abcdefghij", "ana-0123456789abcdefghij", "bo-0123456789abcdefghij"
SETTINGS = """\
work: {most_waiting: 6}
api:
  tokens:
    - {env: ANA_TOKEN, subjects: [ana, al]}
    - {env: BO_TOKEN, subjects: [bo]}
workflows:
  greet:
    params: [name]
    steps:
      - {name: hello, tool: greet, effect: read, inputs: {name: "{{ params.name }}"}}
"""
ROUTINE = """
version: "1"
name: greeting
steps:
  - {id: s1, type: tool.call, tool: greet, effect: read, args: {name: "{{ name }}"}}
"""


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@pytest.fixture
def served(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Served:
    Path("em.yaml").write_text(SETTINGS)
    Path("greeting").mkdir()
    Path("greeting/routine.yaml").write_text(ROUTINE)
    with Memory("em.db") as memory:
        keep_routine(memory.store, files_in(Path("greeting")))
        memory.observe("ana", {"city": "Porto"}, type="address")
        memory.observe("bo", {"city": "Oslo"}, type="address")
    env = {"EM_API_TOKEN": ALL, "ANA_TOKEN": ANA, "BO_TOKEN": BO}
    return serve(env=env)


def bearer(token: str = ALL) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def queue(served: Served, body: Any, token: str = ALL, key: str = "") -> Any:
    return served.post("/jobs", body, key, **bearer(token))


def drain() -> None:
    with Memory("em.db") as memory:
        Worker(memory, tools={"greet": greet}, settings=Settings.load()).run(drain=True)


def test_runs_checkpoints_and_workflows_are_queued_done_and_read(served: Served) -> None:
    run = {"kind": "routine", "name": "greeting", "inputs": [{"name": "Ana"}, {"name": "Bo"}]}
    sent = queue(served, run, key="one")
    assert sent.status_code == 201, sent.text
    first, second = (job["id"] for job in sent.json()["items"])
    again = queue(served, run, key="one")
    assert again.json() == sent.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    flow = {"kind": "workflow", "name": "greet", "inputs": [{"name": "Cy"}], "subject": "bo"}
    (third,) = queue(served, flow).json()["items"]
    assert (third["state"], third["subject"], third["queue"]) == ("queued", "bo", "default")
    (state,) = queue(served, {"kind": "checkpoint", "subjects": ["ana"]}).json()["items"]
    assert (state["subject"], state["queue"]) == ("ana", "batch")
    drain()
    for job in (first, second, third["id"], state["id"]):
        shown = served.http.get(f"/jobs/{job}", headers=bearer()).json()
        assert (shown["state"], shown["report"]["done"]) == ("done", 1), shown
    listed = served.http.get("/jobs", params={"kind": "routine"}, headers=bearer()).json()
    assert [job["id"] for job in listed["items"]] == [second, first]
    assert listed["pagination"] == {"limit": 50, "offset": 0, "total": 2}
    page = served.http.get(
        "/jobs", params={"state": "done", "limit": 1, "offset": 3}, headers=bearer()
    ).json()
    assert ([job["id"] for job in page["items"]], page["pagination"]["total"]) == ([first], 4)


# --- compilations ---------------------------------------------------------------------------------


def mailed(number: int) -> Any:
    args = {"to": f"u{number}@mail.example", "subject": "Your order", "footer": "The shop"}
    call = {"type": "tool_call", "tool": "send_mail", "args": args, "result": "sent"}
    mission = {"goal": "tell them", "input_summary": {"to": args["to"], "footer": args["footer"]}}
    return {"version": "1", "mission": mission, "outcome": "success", "events": [call]}


def compiled(served: Served, **more: Any) -> tuple[Any, Any]:
    """Compile two traces by a job; return the job, and the inputs of the routine if it has any."""
    with Memory("em.db") as memory:
        ids = [one.id for one in memory.traces()]
        ids = ids or [memory.add_trace(mailed(number)) for number in (1, 2)]
    sent = queue(served, {"kind": "compile", "name": "mail", "traces": ids, **more})
    assert sent.status_code == 201, sent.text
    drain()
    (job,) = sent.json()["items"]
    done = served.http.get(f"/jobs/{job['id']}", headers=bearer()).json()
    with Memory("em.db") as memory:
        found = memory.store.artefact("routine", "mail")
        inputs = (
            None if found is None else sorted((routine_of(found).input_schema or {})["properties"])
        )
    return done, inputs


def test_a_compilation_takes_what_a_person_says_about_the_routine(served: Served) -> None:
    assert compiled(served)[1] == ["footer", "to"]
    said = {"inputs": ["send_mail.subject"], "constants": ["footer"]}
    assert compiled(served, review=said)[1] == ["subject", "to"]
    assert compiled(served)[1] == ["subject", "to"], "it stays said"
    assert compiled(served, review={"fresh": True})[1] == ["footer", "to"]


def test_what_can_not_be_said_of_the_traces_fails_with_the_reason(served: Served) -> None:
    done, inputs = compiled(served, review={"constants": ["to"]})
    assert (done["state"], inputs) == ("failed", None)
    assert "--constant" in done["report"]["failed"]["mail"]
    done, inputs = compiled(served, review={"inputs": ["colour"]})
    assert (done["state"], inputs) == ("failed", None)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "compile", "review": {"inputs": ["subject"]}},
        {"kind": "compile", "name": "mail"},
        {"kind": "reflect", "review": {"fresh": True}},
        {"kind": "compile", "traces": ["t"], "review": {"input": ["subject"]}},
        {"kind": "compile", "traces": ["t"], "review": {"inputs": "subject"}},
    ],
)
def test_a_review_is_about_one_routine(served: Served, body: Any) -> None:
    assert queue(served, body).status_code == 400, body


def test_a_waiting_job_is_cancelled_once(served: Served) -> None:
    (job,) = queue(served, {"kind": "checkpoint"}).json()["items"]
    cancelled = served.post(f"/jobs/{job['id']}/cancel", {}, **bearer())
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    twice = served.post(f"/jobs/{job['id']}/cancel", {}, **bearer())
    assert twice.status_code == 409
    assert "this job has ended: cancelled" in twice.json()["error"]["message"]


def test_a_cancelled_job_is_queued_again_as_a_new_one(served: Served) -> None:
    (job,) = queue(served, {"kind": "checkpoint", "subjects": ["ana"]}).json()["items"]
    path = f"/jobs/{job['id']}"
    refused = served.post(f"{path}/retry", {}, **bearer())
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "work")
    served.post(f"{path}/cancel", {}, **bearer())
    assert served.post(f"{path}/retry", {}, **bearer(ANA)).status_code == 403
    again = served.post(f"{path}/retry", {}, **bearer())
    assert (again.status_code, again.json()["state"]) == (201, "queued")
    assert again.json()["id"] != job["id"]
    assert served.post("/jobs/none/retry", {}, **bearer()).status_code == 404


def test_a_full_queue_says_when_to_come_again(served: Served) -> None:
    runs = {"kind": "routine", "name": "greeting", "inputs": [{"name": "x"}] * 6}
    assert queue(served, runs).status_code == 201
    full = queue(served, runs, key="later")
    assert full.status_code == 429
    assert full.json()["error"]["code"] == "queue_full"
    assert int(full.headers["Retry-After"]) > 0
    drain()
    assert queue(served, runs, key="later").status_code == 201


def test_a_limited_token_queues_and_sees_its_own_subjects_only(served: Served) -> None:
    mine = queue(served, {"kind": "checkpoint", "subjects": ["ana", "al"]}, ANA).json()["items"]
    assert [job["subject"] for job in mine] == ["ana", "al"]
    for body in (
        {"kind": "checkpoint", "subjects": ["ana", "bo"]},
        {"kind": "checkpoint"},
        {"kind": "routine", "name": "greeting", "subject": "ana"},
        {"kind": "reflect"},
    ):
        assert queue(served, body, ANA).status_code == 403, body
    job = mine[0]["id"]
    assert served.http.get(f"/jobs/{job}", headers=bearer(ANA)).status_code == 200
    assert served.http.get(f"/jobs/{job}", headers=bearer(BO)).status_code == 404
    assert served.post(f"/jobs/{job}/cancel", {}, **bearer(BO)).status_code == 404
    assert served.http.get("/jobs", headers=bearer(ANA)).status_code == 403
    own = served.http.get("/jobs", params={"subject": "ana"}, headers=bearer(ANA)).json()
    assert [one["id"] for one in own["items"]] == [job]
    other = served.http.get("/jobs", params={"subject": "ana"}, headers=bearer(BO))
    assert other.status_code == 403


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"kind": "routine"}, 400, "name the routine"),
        ({"kind": "routine", "name": "nothing"}, 404, "nothing"),
        ({"kind": "checkpoint", "inputs": [{}]}, 400, "only routine and workflow jobs"),
        ({"kind": "workflow", "name": "greet", "inputs": [{"nam": "x"}]}, 400, "nam"),
        ({"kind": "dance"}, 400, "dance"),
        ({"kind": "embed", "queue": "workflow:greet"}, 400, "can't be the name of a queue"),
    ],
)
def test_what_can_not_be_queued_is_refused(
    served: Served, body: Any, status: int, said: str
) -> None:
    sent = queue(served, body)
    assert (sent.status_code, said in sent.text) == (status, True), sent.text
    with Memory("em.db") as memory, Queue(memory) as opened:
        assert opened.jobs() == []
