"""What was said and what is true, over HTTP: recall, checkpoint, state, ask, rules, decisions."""

import json
from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served

from em import Memory
from em.llm import ScriptedClient

TRIP = {"destination": "Lisbon", "date": "2024-05-02", "cost_usd": 840.5}
RULES = """
from em.state.rules import Fired, alert, rule

@rule("book", severity="high")
def been_there(state, destination):
    trips = [t for t in state.trips if t.destination == destination]
    return Fired(f"{destination} again", evidence=trips) if trips else None

@alert()
def travelled(state, now):
    return "a year without a trip" if now.year > 2030 else None
"""


def observe(service: Served, **said: Any) -> str:
    answer = service.post("/observations", {"subject": "ana", **said})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.fixture
def ana(serve: Serve, tmp_path: Path) -> Served:
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "em.yaml").write_text("state: {rules: rules.py}")
    service = serve()
    observe(service, record=TRIP, type="Trip")
    observe(service, record={"city": "Faro"}, type="Profile", at="2024-01-01")
    moved = {"op": "set", "field": "city", "value": "Porto", "since": "2025-03"}
    moved["evidence"] = "I moved to Porto in March."
    observe(service, text="I moved to Porto in March.", at="2025-04-07", facts=[moved])
    return service


def test_a_state_is_compiled_and_read(ana: Served) -> None:
    assert ana.http.get("/state", params={"subject": "ana"}).status_code == 404
    done = ana.post("/checkpoint", {"subject": "ana"})
    assert (done.status_code, done.json()["new_events"], done.json()["version"]) == (200, 3, 1)
    state = ana.get("/state", subject="ana")
    assert (state["profile"], state["collections"]) == ({"city": "Porto"}, {"trips": 1})
    assert ana.get("/state", subject="ana", as_of="2024-06-01")["profile"] == {"city": "Faro"}
    page = ana.get("/state/records", subject="ana", collection="trips")
    assert page["items"][0]["record"] == TRIP
    assert page["pagination"] == {"limit": 50, "offset": 0, "total": 1}
    assert "class Trip" in ana.get("/state/code", subject="ana")["code"]
    wrong = ana.http.get("/state/records", params={"subject": "ana", "collection": "Trip"})
    assert (wrong.status_code, "trips" in wrong.json()["error"]["fix"]) == (404, True)


def test_recall_finds_what_was_said(ana: Served) -> None:
    found = ana.get("/recall", query="where did she move?", subject="ana", k=1)
    assert [one["text"] for one in found["items"]] == ["I moved to Porto in March."]
    assert found["notes"] == []
    assert ana.get("/recall", query="Porto", subject="bo")["items"] == []
    assert ana.get("/recall", query="Porto", until="2025-01-01")["items"] == []
    bad = ana.http.get("/recall", params={"query": "Porto", "since": "soon"})
    assert (bad.status_code, bad.json()["error"]["place"]) == (400, "since")


def test_a_question_needs_a_model_only_where_code_must_be_written(
    serve: Serve, tmp_path: Path
) -> None:
    code = "def used(state): return state.trips\ndef answer(state): return len(state.trips)"
    reply = {"route": "code", "code": code, "parameters": {}}
    (tmp_path / "script.json").write_text(json.dumps([reply]))
    env = {"EM_LLM_PROVIDER": "scripted", "EM_LLM_BASE_URL": str(tmp_path / "script.json")}
    service = serve(env=env)
    observe(service, record=TRIP, type="Trip")
    observe(service, text="Lisbon was lovely.")
    service.post("/checkpoint", {"subject": "ana"})
    asked = {"subject": "ana", "question": "How many journeys?"}
    without = service.post("/ask", asked).json()
    assert (without["route"], without["asked_model"], without["value"]) == ("recall", False, None)
    first = service.post("/ask", {**asked, "llm": True}, key="q")
    assert (first.status_code, first.json()["value"], first.json()["records"]) == (200, 1, 1)
    assert service.post("/ask", {**asked, "llm": True}, key="q").content == first.content
    kept = service.post("/ask", asked).json()
    assert (kept["value"], kept["kept"], kept["asked_model"]) == (1, True, False)
    assert service.post("/ask", {"subject": "ana", "code": "len(trips)"}).json()["value"] == 1
    for own in ({"code": "1 / 0"}, {"code": "1", "question": "x"}, {}):
        assert service.post("/ask", {"subject": "ana", **own}).status_code == 400


def test_a_server_without_a_model_says_so(ana: Served) -> None:
    ana.post("/checkpoint", {"subject": "ana"})
    for path, body in (("/ask", {"question": "How many trips?"}), ("/checkpoint", {})):
        answer = ana.post(path, {"subject": "ana", "llm": True, **body})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "missing_key")


def test_rules_fire_and_alerts_are_told(ana: Served) -> None:
    ana.post("/checkpoint", {"subject": "ana"})
    asked = {"subject": "ana", "action": "book", "details": {"destination": "Lisbon"}}
    (fired,) = ana.post("/check", asked).json()["items"]
    assert (fired["message"], fired["severity"]) == ("Lisbon again", "high")
    assert len(fired["event_ids"]) == 1
    assert ana.post("/check", {**asked, "details": {"destination": "Rome"}}).json() == {"items": []}
    assert ana.get("/alerts", subject="ana") == {"items": []}
    (due,) = ana.get("/alerts", subject="ana", now="2031-01-01")["items"]
    assert due["rule"] == "travelled"


def test_a_contradiction_is_shown_and_settled_once(ana: Served) -> None:
    ana.post("/checkpoint", {"subject": "ana"})
    (conflict,) = ana.get("/conflicts", subject="ana")["items"]
    assert (conflict["field"], conflict["value"], conflict["policy"]) == (
        "Profile.city",
        "Porto",
        "latest",
    )
    assert [entry["value"] for entry in conflict["entries"]] == ["Faro", "Porto"]
    decision = {"subject": "ana", "field": "city", "value": "Faro"}
    first = ana.post("/resolve", decision, key="d")
    assert first.status_code == 201
    assert ana.post("/resolve", decision, key="d").content == first.content
    assert ana.post("/resolve", {**decision, "policy": "ask"}).status_code == 400
    ana.post("/checkpoint", {"subject": "ana"})
    assert ana.get("/state", subject="ana")["profile"] == {"city": "Faro"}
    with Memory("em.db") as memory:
        assert len(list(memory.log.read(subject="ana", kinds=["decided"]))) == 1


def test_a_token_for_one_subject_reads_and_decides_about_no_other(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "em.yaml").write_text("api: {tokens: [{env: BO_TOKEN, subjects: [bo]}]}")
    token, bo = "a-token-that-is-long-enough", "bo-token-0123456789abc"
    service = serve(env={"EM_API_TOKEN": token, "BO_TOKEN": bo})
    service.http.headers["Authorization"] = f"Bearer {token}"
    observe(service, record=TRIP, type="Trip")
    observe(service, text="Ana's secret garden")
    service.post("/checkpoint", {"subject": "ana"})
    service.http.headers["Authorization"] = f"Bearer {bo}"
    reads = ["/state?", "/state/code?", "/state/records?collection=trips&", "/alerts?"]
    for path in (*reads, "/conflicts?", "/recall?query=secret&"):
        assert service.http.get(f"{path}subject=ana").status_code == 403, path
    assert service.http.get("/recall?query=secret").status_code == 403
    for path, body in (
        ("/checkpoint", {}),
        ("/ask", {"question": "what was said of the secret garden?"}),
        ("/check", {"action": "book"}),
        ("/resolve", {"field": "city", "value": "x"}),
        ("/observations", {"text": "x"}),
    ):
        assert service.post(path, {"subject": "ana", **body}).status_code == 403, path
    assert service.get("/recall", query="secret", subject="bo")["items"] == []


def test_a_token_that_may_only_read_asks_and_checks_and_writes_nothing(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "em.yaml").write_text("api: {tokens: [{env: READ_TOKEN, access: read}]}")
    token, reader = "a-token-that-is-long-enough", "reader-token-0123456789"
    service = serve(env={"EM_API_TOKEN": token, "READ_TOKEN": reader})
    service.http.headers["Authorization"] = f"Bearer {token}"
    observe(service, record=TRIP, type="Trip")
    service.post("/checkpoint", {"subject": "ana"})
    before = service.get("/log", limit=200)
    service.http.headers["Authorization"] = f"Bearer {reader}"
    asked = {"subject": "ana", "question": "what did I say?"}
    assert service.post("/ask", asked).status_code == 200
    assert service.post("/check", {"subject": "ana", "action": "x"}).status_code == 200
    for path, body in (
        ("/ask", {**asked, "llm": True}),
        ("/checkpoint", {"subject": "ana"}),
        ("/resolve", {"subject": "ana", "field": "x", "value": 1}),
    ):
        assert service.post(path, body).status_code == 403, path
    assert service.post("/ask", asked, key="k").status_code == 403
    assert service.get("/log", limit=200) == before


def test_observations_over_http_are_compiled_by_themselves_where_that_is_set(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "em.yaml").write_text("state: {checkpoint_every: 2}")
    service = serve()
    observe(service, record=TRIP, type="Trip")
    assert service.http.get("/state?subject=ana").status_code == 404
    observe(service, record=TRIP, type="Trip")
    assert service.get("/state", subject="ana")["collections"] == {"trips": 2}


def test_forgetting_takes_a_stored_answer_about_a_subject(ana: Served) -> None:
    ana.post("/checkpoint", {"subject": "ana"})
    asked = {"subject": "ana", "question": "what did she say about Porto?"}
    assert "Porto" in ana.post("/ask", asked, key="k").text
    with Memory("em.db") as memory:
        memory.forget(subject="ana")
    assert ana.post("/ask", asked, key="k").status_code == 410


def test_a_proposed_rule_is_listed_and_a_person_rejects_it_once(ana: Served) -> None:
    rule = {
        "id": "limit",
        "severity": "warning",
        "action": "spend",
        "message": "{amount} is too much",
        "when": {"op": ">", "left": {"detail": "amount"}, "right": {"value": 100}},
        "events": ["e1"],
    }
    reply = {"facts": [], "constraints": [rule]}
    observe(ana, text="Warn me above 100.")
    with Memory("em.db") as memory:
        stated = {"stated": ["s1"]}  # of each text that an agent read
        memory.checkpoint("ana", llm=ScriptedClient([stated, stated, reply]))
    (found,) = ana.get("/rules", subject="ana")["items"]
    assert (found["id"], found["verdict"]) == ("limit", "proposed")
    assert found["code"] == 'holds(details.get("amount"), ">", 100)'
    check = {"subject": "ana", "action": "spend", "details": {"amount": 200}}
    assert [one["proposed"] for one in ana.post("/check", check).json()["items"]] == [True]
    verdict = {"subject": "ana", "rule": "limit", "verdict": "rejected"}
    first = ana.post("/rules", verdict, key="r")
    assert first.status_code == 201
    assert ana.post("/rules", verdict, key="r").content == first.content
    assert ana.post("/rules", {**verdict, "verdict": "perhaps"}).status_code == 400
    assert ana.post("/rules", {**verdict, "rule": "other"}).status_code == 404
    ana.post("/checkpoint", {"subject": "ana"})
    assert ana.post("/check", check).json()["items"] == []


def test_where_a_fact_comes_from_and_taking_it_back(ana: Served) -> None:
    ana.post("/checkpoint", {"subject": "ana"})
    (why,) = ana.get("/state/why", subject="ana", what="profile.city")["items"]
    assert (why["value"], why["how"], why["confidence"]) == ("Porto", "agent", "stated")
    assert why["words"] == "I moved to Porto in March."
    (trip,) = ana.get("/state/records", subject="ana", collection="trips")["items"]
    (event,) = trip["event_ids"]
    (why,) = ana.get("/state/why", subject="ana", what=event)["items"]
    assert (why["value"], why["how"]) == (TRIP, "record")
    wrong = ana.http.get("/state/why", params={"subject": "ana", "what": "profile.shoe"})
    assert wrong.status_code == 404

    change = {"subject": "ana", "event_id": event, "changes": {"cost_usd": 90}}
    done = ana.http.post("/state/correct", json=change, headers={"Idempotency-Key": "k"})
    assert done.status_code == 201, done.text
    again = ana.http.post("/state/correct", json=change, headers={"Idempotency-Key": "k"})
    assert again.json() == done.json()
    assert ana.post("/state/retract", {"subject": "ana", "field": "profile.city"}).is_success
    ana.post("/checkpoint", {"subject": "ana"})
    (trip,) = ana.get("/state/records", subject="ana", collection="trips")["items"]
    assert trip["record"] == {**TRIP, "cost_usd": 90}
    assert ana.get("/state", subject="ana")["profile"].get("city") is None
    assert ana.post("/state/retract", {"subject": "ana", "event_id": event}).is_success
    ana.post("/checkpoint", {"subject": "ana"})
    assert ana.get("/state", subject="ana")["collections"] == {"trips": 0}
    both = {"subject": "ana", "event_id": event, "field": "profile.city"}
    assert ana.post("/state/retract", both).status_code == 400
    assert ana.post("/state/correct", {**change, "changes": {}}).status_code == 400
    assert ana.post("/state/correct", {**change, "event_id": "none"}).status_code == 404


def test_a_wrong_correction_is_refused_over_http(ana: Served) -> None:
    ana.post("/checkpoint", {"subject": "ana"})
    (trip,) = ana.get("/state/records", subject="ana", collection="trips")["items"]
    change = {"subject": "ana", "event_id": trip["event_ids"][0]}
    typo = ana.post("/state/correct", {**change, "changes": {"cost_usdd": 90}})
    assert (typo.status_code, "did you mean 'cost_usd'?" in typo.text) == (404, True)
    text = ana.post("/state/correct", {**change, "changes": {"cost_usd": "abc"}})
    assert (text.status_code, "'cost_usd' holds" in text.text) == (400, True)
    decided = ana.post("/resolve", {"subject": "ana", "field": "city", "value": 5})
    assert (decided.status_code, "'city' holds str" in decided.text) == (400, True)


def test_unread_texts_are_told_over_http(ana: Served) -> None:
    observe(ana, record={"employer": "Nokia"}, type="Profile", at="2024-01-01")
    event = observe(ana, text="I quit Nokia on Friday.", at="2025-04-08")
    ana.post("/checkpoint", {"subject": "ana"})
    (unread,) = ana.get("/state", subject="ana")["unread"]
    assert (unread["event_id"], unread["mentions"]) == (event, ["profile.employer"])
    (why,) = ana.get("/state/why", subject="ana", what="profile.employer")["items"]
    assert (why["value"], why["unread"]) == ("Nokia", [event])
    answer = ana.post("/ask", {"subject": "ana", "code": "profile.employer"}).json()
    assert (answer["value"], answer["unread"]) == ("Nokia", [event])


def test_a_fact_of_another_form_is_left_out_over_http(ana: Served) -> None:
    wrong = {"subject": "ana", "text": "I left.", "facts": [{"op": "retract", "evidence": "left"}]}
    assert ana.post("/observations", wrong).status_code == 201
    report = ana.post("/checkpoint", {"subject": "ana"}).json()
    assert [one.partition(" ")[0] for one in report["problems"]] == ["facts[0]"]
