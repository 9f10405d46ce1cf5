"""Secure as it comes: loopback, tokens, hosts, sizes; one subject never sees another's data."""

import socket
from pathlib import Path

import httpx
import pytest
from served import Serve, Served
from tests.cli.em_command import em

from em import Memory, Settings
from em.errors import Forbidden, Unauthorized, UsageError
from em.runner.package import keep_routine
from em.serve.auth import Hosts, Tokens, refuse_open_door
from em.settings import ApiSettings, TokenSettings

TOKEN = "a-token-that-is-long-enough"
LESSON = {"trigger": "an insert fails on a foreign key", "action": "insert the parent row first"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_standing_open_to_others_without_a_token_is_refused() -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.com"):
        with pytest.raises(UsageError, match="EM_API_TOKEN"):
            refuse_open_door(ApiSettings(host=host), Tokens(ApiSettings(), {}))
        refuse_open_door(ApiSettings(host=host), Tokens(ApiSettings(), {"EM_API_TOKEN": TOKEN}))
    for host in ("127.0.0.1", "localhost", "::1"):
        refuse_open_door(ApiSettings(host=host), Tokens(ApiSettings(), {}))


def test_the_command_refuses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = em("serve", "--host", "0.0.0.0", "--port", "0")
    assert (ran.code, "set EM_API_TOKEN" in ran.err) == (2, True)
    assert not Path(".em").exists()
    monkeypatch.setenv("EM_API_TOKEN", "short")
    assert "16 or more" in em("serve").err
    monkeypatch.setenv("EM_API_TOKEN", TOKEN)
    monkeypatch.setenv("EM_API_PORT", "many")
    assert "EM_API_PORT" in em("serve").err


@pytest.mark.parametrize("token", ["short", "x" * 40, "ab" * 20, "täglich-0123456789ab"])
def test_a_token_is_long_and_not_monotonous(token: str) -> None:
    with pytest.raises(UsageError) as refused:
        Tokens(ApiSettings(), {"EM_API_TOKEN": token})
    assert refused.value.place == "environment, EM_API_TOKEN"


def test_a_token_is_asked_for_where_one_is_set(serve: Serve) -> None:
    service = serve(env={"EM_API_TOKEN": TOKEN})
    assert service.http.get("/health").status_code == 200
    for headers in ({}, bearer("wrong"), bearer(TOKEN[:-1]), {"Authorization": TOKEN}):
        answer = service.http.get("/heuristics", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["x-request-id"]
    assert service.http.get("/heuristics", headers=bearer(TOKEN)).status_code == 200
    service.stop()
    assert TOKEN not in str(service.lines)


def test_tokens_are_limited_to_reading_and_to_subjects(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text(
        "api:\n  tokens:\n"
        "    - {env: READER_TOKEN, access: read}\n"
        "    - {env: ANA_TOKEN, subjects: [ana]}\n"
    )
    reader, ana = "reader-token-0123456789", "ana-token-0123456789abc"
    env = {"EM_API_TOKEN": TOKEN, "READER_TOKEN": reader, "ANA_TOKEN": ana}
    service = serve(env=env)

    def post(path: str, body: object, token: str) -> httpx.Response:
        return service.http.post(path, json=body, headers=bearer(token))

    def get(path: str, token: str) -> httpx.Response:
        return service.http.get(path, headers=bearer(token))

    assert post("/heuristics", LESSON, reader).status_code == 403
    shared = post("/heuristics", LESSON, TOKEN).json()["id"]
    bos = post("/heuristics", {**LESSON, "subject": "bo"}, TOKEN).json()["id"]
    assert post("/heuristics", LESSON, ana).status_code == 403
    assert post("/heuristics", {**LESSON, "subject": "bo"}, ana).status_code == 403
    own = post("/heuristics", {**LESSON, "subject": "ana"}, ana).json()["id"]
    assert len({shared, bos, own}) == 3
    # The lessons for everybody, and one's own.
    seen = {one["id"] for one in get("/heuristics", ana).json()["items"]}
    assert seen == {shared, own}
    assert get(f"/heuristics/{bos}", ana).status_code == 404
    assert get(f"/heuristics/{bos}", reader).status_code == 200
    assert post(f"/heuristics/{shared}/retire", {}, ana).status_code == 403
    assert post(f"/heuristics/{bos}/feedback", {"outcome": "failure"}, ana).status_code == 404

    steps = {"task": "t", "steps": []}
    hidden = post("/trajectories", {**steps, "subject": "bo"}, TOKEN).json()["id"]
    mine = post("/trajectories", {**steps, "subject": "ana"}, ana).json()["id"]
    assert get(f"/trajectories/{hidden}", ana).status_code == 404
    assert post("/reflect", {"trajectory_id": hidden}, ana).status_code == 404
    worked = {"outcome": "success"}
    assert post(f"/trajectories/{hidden}/label", worked, ana).status_code == 404
    assert post(f"/trajectories/{hidden}/label", worked, reader).status_code == 403
    assert post(f"/trajectories/{mine}/label", worked, ana).status_code == 201
    assert [one["id"] for one in get("/trajectories", ana).json()["items"]] == [mine]
    for path in ("/log", "/log?subject=bo", "/log/verify", "/runs", "/routines"):
        assert get(path, ana).status_code == 403, path
    assert get("/log?subject=ana", ana).status_code == 200
    assert get("/brief?task=insert+foreign+key&subject=bo", ana).status_code == 403
    # One caller's key is not another's.
    one = service.http.post(
        "/heuristics", json=LESSON, headers={**bearer(TOKEN), "Idempotency-Key": "same"}
    )
    other = service.http.post(
        "/heuristics",
        json={**LESSON, "subject": "ana"},
        headers={**bearer(ana), "Idempotency-Key": "same"},
    )
    assert (one.status_code, other.status_code) == (201, 201)


GREETING = """
version: "1"
name: greeting
input_schema: {type: object, required: [name], properties: {name: {type: string}}}
steps:
  - {id: ask, type: prompt.user, prompt: {message: "Greet?", fields: [{name: ok, type: confirm}]}}
  - {id: done, type: return, value: "hello {{ name }}"}
"""


def test_a_token_limited_to_a_subject_runs_routines_about_it(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("api: {tokens: [{env: ANA_TOKEN, subjects: [ana]}]}\n")
    ana = "ana-token-0123456789abc"
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREETING})
    service = serve(env={"EM_API_TOKEN": TOKEN, "ANA_TOKEN": ana})

    def post(path: str, body: object, token: str = ana) -> httpx.Response:
        return service.http.post(path, json=body, headers=bearer(token))

    def get(path: str) -> httpx.Response:
        return service.http.get(path, headers=bearer(ana))

    run = {"routine": "greeting", "input": {"name": "Ana"}}
    assert post("/runs", {**run, "subject": "ana"}).status_code == 403, "it is a proposal"
    assert post("/routines/greeting/accept", {}).status_code == 403
    assert post("/routines/greeting/accept", {}, TOKEN).status_code == 200
    for subject in ({}, {"subject": "bo"}):
        assert post("/runs", {**run, **subject}).status_code == 403
        assert post("/runs/prepare", {**run, **subject}).status_code == 403
    others = post("/runs", {**run, "subject": "bo"}, TOKEN).json()["run_id"]
    own = post("/runs", {**run, "subject": "ana"})
    assert (own.status_code, own.json()["status"]) == (201, "needs_input")
    mine = own.json()["run_id"]
    assert get(f"/runs/{mine}").status_code == 200
    answers = {"answers": {"ask": {"ok": True}}}
    assert post(f"/runs/{mine}/answers", answers).json()["output"] == "hello Ana"
    assert [one["run_id"] for one in get("/runs?subject=ana").json()["items"]] == [mine]
    hidden = get(f"/runs/{others}").json()["error"]
    assert hidden == {**get("/runs/none").json()["error"], "message": hidden["message"]}
    assert get(f"/runs/{others}").status_code == 404
    assert post(f"/runs/{others}/answers", answers).status_code == 404
    assert post(f"/runs/{others}/cancel", {}).status_code == 404
    assert post(f"/runs/{others}/retry", {}).status_code == 404
    for path in ("/runs", "/runs?subject=bo", "/workflow-runs"):
        assert get(path).status_code == 403, path
    assert post("/workflow-runs", {"workflow": "w", "subject": "ana"}).status_code == 403


def test_a_body_is_limited_before_it_is_read(serve: Serve) -> None:
    service = serve(env={"EM_API_MAX_REQUEST_BYTES": "2048"})
    port = int(service.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(
            b"POST /heuristics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        )
        answer = connection.recv(65_536)  # nothing of the body was sent
        assert b"413" in answer.split(b"\r\n")[0]

    def parts() -> object:
        for _ in range(100):
            yield b"x" * 1000

    chunked = service.http.post("/heuristics", content=parts())  # type: ignore[arg-type]
    assert (chunked.status_code, chunked.json()["error"]["code"]) == (413, "too_large")
    assert service.http.get("/health").status_code == 200


def test_other_hosts_and_pages_of_other_sites_are_not_served(service: Served) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        answer = service.http.get("/heuristics", headers={"Host": host})
        assert answer.status_code in (400, 403), host
    assert service.http.get("/heuristics", headers={"Host": "localhost:1"}).status_code == 200
    for origin in ("https://evil.example", "null"):
        answer = service.http.post("/heuristics", json=LESSON, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    own = service.http.get("/heuristics", headers={"Origin": service.url})
    assert own.status_code == 200


def test_cors_is_there_once_it_is_set(serve: Serve) -> None:
    service = serve(env={"EM_API_CORS_ORIGINS": "https://app.example, https://*.team.example"})
    answer = service.http.get("/heuristics", headers={"Origin": "https://app.example"})
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    for origin in ("https://x.y", "https://app.example.evil", "https://evil.team.example.x"):
        assert service.http.get("/heuristics", headers={"Origin": origin}).status_code == 403
    pattern = service.http.get("/heuristics", headers={"Origin": "https://a.team.example"})
    assert pattern.headers["access-control-allow-origin"] == "https://a.team.example"


def test_hosts_by_where_the_service_stands() -> None:
    outside = Hosts(ApiSettings(host="0.0.0.0", allowed_hosts=["em.example"]))
    for host in ("em.example", "em.example:8765", "10.0.0.7:80", "[::1]:80", "localhost"):
        outside.check(host)
    with pytest.raises(Forbidden):
        outside.check("other.example")
    with pytest.raises(Forbidden):
        Hosts(ApiSettings()).check("10.0.0.7")


def test_a_token_that_em_yaml_names_must_be_set() -> None:
    settings = ApiSettings(tokens=[TokenSettings(env="MISSING_TOKEN")])
    with pytest.raises(UsageError, match="MISSING_TOKEN is not set"):
        Tokens(settings, {})
    tokens = Tokens(settings, {"MISSING_TOKEN": TOKEN})
    assert tokens.caller(f"bearer {TOKEN}").name == "MISSING_TOKEN"
    with pytest.raises(Unauthorized):
        tokens.caller(f"Basic {TOKEN}")


def test_settings_come_from_the_environment_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "em.yaml").write_text("api: {port: 9000, allowed_hosts: [a.example]}")
    environ = {"EM_API_ALLOWED_HOSTS": "b.example, c.example", "EM_API_HOST": "0.0.0.0"}
    api = Settings.load(tmp_path, environ).api
    assert (api.host, api.port, api.allowed_hosts) == ("0.0.0.0", 9000, ["b.example", "c.example"])


def test_what_breaks_inside_is_told_without_its_stack(serve: Serve) -> None:
    service = serve()
    import sqlite3

    connection = sqlite3.connect("em.db")
    connection.execute("DROP TABLE artefacts")
    connection.commit()
    connection.close()
    answer = service.http.get("/heuristics/h1")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "artefacts" not in answer.text
