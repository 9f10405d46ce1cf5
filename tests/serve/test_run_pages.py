"""The page of a run: it is cancelled, retried where that is safe, and says why where it is not."""

from pathlib import Path

import pytest
from run_sample import prepare, release
from served import Serve, Served, log_in, token_in
from tests.children import wait_until

from em import Memory

ALL, BO, READ = "all-0123456789abcdefghij", "bo-0123456789abcdefghij", "read-0123456789abcdefghij"
YES = {"answers": {"agree": {"ok": True}}}


def bearer(token: str = ALL) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def parcels(serve: Serve, tmp_path: Path) -> Served:
    prepare(tmp_path)
    tokens = "api: {tokens: [{env: BO, subjects: [bo]}, {env: READ, access: read}]}\n"
    (tmp_path / "em.yaml").write_text((tmp_path / "em.yaml").read_text() + tokens)
    return serve(env={"EM_API_TOKEN": ALL, "BO": BO, "READ": READ})


def waiting(service: Served) -> str:
    """Start a run, which asks; its id."""
    body = {"routine": "parcel", "input": {"parcel": "P-1"}}
    run = service.http.post("/runs", json=body, headers=bearer()).json()
    assert run["status"] == "needs_input", run
    return str(run["run_id"])


def test_a_run_is_cancelled_and_retried_over_http(parcels: Served, tmp_path: Path) -> None:
    run = waiting(parcels)
    for token, status in ((BO, 404), (READ, 403)):
        for act in ("cancel", "retry"):
            refused = parcels.http.post(f"/runs/{run}/{act}", json={}, headers=bearer(token))
            assert refused.status_code == status, (token, act)
    early = parcels.http.post(f"/runs/{run}/retry", json={}, headers=bearer())
    assert early.status_code == 400
    assert "it has neither failed nor been cancelled" in early.json()["error"]["message"]
    cancelled = parcels.http.post(f"/runs/{run}/cancel", headers=bearer())
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    again = parcels.http.post(f"/runs/{run}/cancel", headers=bearer())
    assert "the run is over: cancelled" in again.json()["error"]["message"]
    late = parcels.http.post(f"/runs/{run}/answers", json=YES, headers=bearer())
    assert late.status_code == 400
    assert not (tmp_path / "made").exists()
    with Memory(tmp_path / "em.db") as memory:
        (event,) = memory.log.read(kinds="run_cancelled")
    assert event.body == {"by": "EM_API_TOKEN"}
    parcels.http.post(f"/runs/{run}/retry", json={}, headers=bearer())
    assert parcels.http.get(f"/runs/{run}", headers=bearer()).json()["status"] == "needs_input"
    (tmp_path / "made").mkdir()
    failed = parcels.http.post(f"/runs/{run}/answers", json=YES, headers=bearer()).json()
    assert failed["failure"]["step_id"] == "make", failed
    refused = parcels.http.post(f"/runs/{run}/retry", json={}, headers=bearer())
    assert refused.status_code == 400
    assert "make may have happened, has no idempotency key" in refused.json()["error"]["message"]


def test_buttons_need_a_token_that_may_write_and_the_form_of_the_page(parcels: Served) -> None:
    run = waiting(parcels)
    with log_in(parcels, ALL) as browser:
        page = browser.get(f"/ui/run?id={run}").text
        form = {"form_token": token_in(page), "id": run}
        assert 'action="/ui/run/cancel"' in page
        for act in ("cancel", "retry"):
            forged = browser.post(f"/ui/run/{act}", data={**form, "form_token": "guessed"})
            assert forged.status_code == 403
        assert browser.post("/ui/run/cancel", data={**form, "id": "none"}).status_code == 404
        early = browser.post("/ui/run/retry", data=form)
        assert early.status_code == 400
        assert "it has neither failed nor been cancelled" in early.text
        with log_in(parcels, READ) as reader:
            shown = reader.get(f"/ui/run?id={run}").text
            assert "/ui/run/cancel" not in shown
            own = {"form_token": token_in(shown), "id": run}
            assert reader.post("/ui/run/cancel", data=own).status_code == 403
        with log_in(parcels, BO) as other:
            own = {"form_token": token_in(other.get("/ui/log?subject=bo").text), "id": run}
            for act in ("run/cancel", "run/retry"):
                assert other.post(f"/ui/{act}", data=own).status_code == 403
        done = browser.post("/ui/run/cancel", data=form)
        assert (done.status_code, done.headers["location"]) == (303, f"/ui/run?id={run}")
        page = browser.get(f"/ui/run?id={run}").text
        assert "by EM_API_TOKEN" in page
        assert "data-told" not in page, "there is nothing more to listen for"
        assert 'action="/ui/run/retry"' in page
        assert "cancelled" in browser.get("/ui/runs?status=cancelled").text


def test_a_workflow_is_cancelled_and_retried_on_its_page(serve: Serve, tmp_path: Path) -> None:
    flow = """
workflows:
  tell:
    steps:
      - {name: first, tool: command, effect: read, inputs: {command: [cat, facts.txt]}}
      - {name: second, gate: true, tool: command, effect: read, inputs: {command: [cat, facts.txt]}}
"""
    (tmp_path / "em.yaml").write_text(f"allow: {{commands: [cat]}}\n{flow}")
    service = serve()
    run = service.post("/workflow-runs", {"workflow": "tell"}).json()
    assert run["failure"]["step_id"] == "first"
    address = f"/ui/run?id={run['run_id']}"
    page = service.http.get(address).text
    assert "Retry from first" in page
    (tmp_path / "facts.txt").write_text("bees")
    form = {"form_token": token_in(page), "id": run["run_id"]}
    assert service.http.post("/ui/run/retry", data=form).status_code == 303
    wait_until(lambda: "Waiting for an answer" in service.http.get(address).text)
    assert service.http.post("/ui/run/cancel", data=form).status_code == 303
    page = service.http.get(address).text
    assert "by local" in page
    assert "Waiting for an answer" not in page
    path = f"/workflow-runs/{run['run_id']}"
    assert service.get(path)["status"] == "cancelled"
    late = service.post(f"{path}/answers", {"answers": {"second": {"approve": True}}})
    assert late.status_code == 400
    retried = service.post(f"{path}/retry", {"answers": {"second": {"approve": True}}})
    assert (retried.status_code, retried.json()["status"]) == (200, "ok"), retried.text
    over = service.post(f"{path}/cancel", {})
    assert "the run is over: ok" in over.json()["error"]["message"]


def test_the_log_is_told_of_and_only_to_who_may_see_it(parcels: Served) -> None:
    watched = "/ui/live?subject=bo&after=0"
    with log_in(parcels, BO) as browser:
        assert browser.get("/ui/live?subject=ana").status_code == 403
        with browser.stream("GET", watched) as told:
            body = {"subject": "bo", "text": "I live in Rome."}
            parcels.http.post("/observations", json=body, headers=bearer())
            lines = told.iter_lines()
            seq = next(int(line.removeprefix("id: ")) for line in lines if line[:4] == "id: ")
    with Memory("em.db") as memory:
        (event,) = memory.log.read(subject="bo")
        assert event.seq == seq


def test_a_step_under_way_is_shown_with_what_comes_then(parcels: Served, tmp_path: Path) -> None:
    run = waiting(parcels)
    with log_in(parcels, ALL) as browser:
        page = browser.get(f"/ui/run?id={run}").text
        form = {"form_token": token_in(page), "id": run, "field.ok": "true"}
        assert browser.post("/ui/run/answer", data=form).status_code == 303
        wait_until(lambda: ">hold</strong>" in browser.get(f"/ui/run?id={run}").text)
        page = browser.get(f"/ui/run?id={run}").text
        assert "data-told" in page
        assert "label" in page[page.index("Then") :]
        release(tmp_path)
        wait_until(lambda: "data-told" not in browser.get(f"/ui/run?id={run}").text)
