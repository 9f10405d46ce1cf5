"""The pages of queued work: what waits, what failed and why, cancel and retry."""

import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served, log_in, token_in

from em import Memory
from em.runner.package import files_in, keep_routine
from em.work.queue import Queue
from em.work.worker import Worker

ALL, READER, ANA = (
    "all-0123456789abcdefghij",
    "reader-0123456789abc",
    "ana-0123456789abcdefghij",
)
HOSTILE = "<script>alert(1)</script>"
ROUTINE = """
version: "1"
name: greeting
steps:
  - {id: s1, type: tool.call, tool: greet, effect: read, args: {name: "{{ name }}"}}
"""


def greet(name: str) -> str:
    if name == "nobody":
        raise ValueError(f"{HOSTILE} is nobody")
    return f"hello {name}"


@pytest.fixture
def jobs() -> list[str]:
    """One that is done, one that failed, one that waits for a worker."""
    Path("greeting").mkdir()
    Path("greeting/routine.yaml").write_text(ROUTINE)
    with Memory("em.db") as memory, Queue(memory) as queue:
        keep_routine(memory.store, files_in(Path("greeting")))
        (done,) = queue.add_runs("greeting", [{"name": "Ana"}], subject=HOSTILE)
        time.sleep(0.002)  # ids of one millisecond have no order
        (failed,) = queue.add_runs("greeting", [{"name": "nobody"}])
        Worker(memory, tools={"greet": greet}).run(drain=True)
        (waits,) = queue.add_runs("greeting", [{"name": "Bo"}], queue="later")
    return [done, failed, waits]


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def listed(service: Served, **params: Any) -> list[str]:
    page = service.http.get("/ui/jobs", params=params).text
    return re.findall(r'/ui/job\?id=(\w+)"', page)


def press(service: Served, action: str, job: str) -> Any:
    token = token_in(service.http.get("/ui/job", params={"id": job}).text)
    return service.http.post(f"/ui/job/{action}", data={"form_token": token, "id": job})


def test_jobs_are_listed_and_filtered_by_their_address(jobs: list[str], service: Served) -> None:
    done, failed, waits = jobs
    assert listed(service) == [waits, failed, done]
    assert listed(service, state="failed") == [failed]
    assert listed(service, queue="later") == [waits]
    assert listed(service, subject=HOSTILE) == [done]
    assert listed(service, kind="checkpoint") == []
    assert "Leave out a filter" in service.http.get("/ui/jobs?kind=checkpoint").text
    assert service.http.get("/ui/jobs?state=sleeping").status_code == 400
    assert "No worker is running" in service.http.get("/ui/jobs").text


def test_a_page_of_jobs_leads_to_the_next_and_back(service: Served) -> None:
    with Memory("em.db") as memory, Queue(memory) as queue:
        added = queue.add_checkpoints([f"user-{n}" for n in range(60)], chunk=1)
    seen: list[list[str]] = []
    at = "/ui/jobs"
    while at:
        page = service.http.get(at).text
        seen.append(re.findall(r'/ui/job\?id=(\w+)"', page))
        found = re.search(r'<a href="([^"]*)" rel="next"', page)
        at = unescape(found[1]) if found else ""
    assert [len(one) for one in seen] == [25, 25, 10]
    assert [job for one in seen for job in one] == sorted(added, reverse=True)


def test_a_job_shows_its_runs_and_why_they_failed(jobs: list[str], service: Served) -> None:
    done, failed, _ = jobs
    page = service.http.get("/ui/job", params={"id": done}).text
    assert HOSTILE not in page
    assert f"About {HOSTILE}" in text_of(page)
    (run,) = re.findall(r'/ui/run\?id=(\w+)"', page)
    assert "hello Ana" in service.http.get(f"/ui/run?id={run}").text
    page = service.http.get("/ui/job", params={"id": failed}).text
    assert HOSTILE not in page
    assert f"{HOSTILE} is nobody" in text_of(page)
    assert "Cancel</button>" not in page


def test_a_job_without_runs_shows_what_it_is_about(service: Served) -> None:
    with Memory("em.db") as memory, Queue(memory) as queue:
        memory.observe("ana", {"city": "Porto"}, type="Profile")
        (job,) = queue.add_checkpoints(["ana"])
        (other,) = queue.add_embeddings()
    page = service.http.get("/ui/job", params={"id": job}).text
    assert '<a href="/ui/state?subject=ana">ana</a>' in page
    assert "everything else" in service.http.get("/ui/job", params={"id": other}).text


def test_a_waiting_job_is_cancelled_and_what_failed_is_queued_again(
    jobs: list[str], service: Served
) -> None:
    _, failed, waits = jobs
    done = press(service, "cancel", waits)
    assert done.headers["location"] == f"/ui/job?id={waits}"
    page = service.http.get(done.headers["location"]).text
    assert "cancelled" in text_of(page)
    assert "All of it is queued again" in page
    assert "/ui/run?id=" not in page, "the run never began"
    twice = press(service, "cancel", waits)
    assert (twice.status_code, "this job has ended: cancelled" in twice.text) == (400, True)
    again = press(service, "retry", failed).headers["location"]
    assert again != f"/ui/job?id={failed}"
    assert "queued" in text_of(service.http.get(again).text)
    with Memory("em.db") as memory:
        (event,) = memory.log.read(kinds=["job_cancelled"])
        assert (event.body or {})["by"] == "local"


def test_looking_at_jobs_makes_no_queue(service: Served) -> None:
    assert "No jobs yet" in service.http.get("/ui/jobs").text
    assert service.http.get("/ui/job?id=none").status_code == 404
    assert not Path("em.queue.db").exists()


def test_jobs_are_for_those_who_may_see_everything(jobs: list[str], serve: Serve) -> None:
    Path("em.yaml").write_text(
        "api: {tokens: [{env: READER, access: read}, {env: ANA, subjects: [ana]}]}"
    )
    service = serve(env={"EM_API_TOKEN": ALL, "READER": READER, "ANA": ANA})
    with log_in(service, ANA) as browser:
        assert browser.get("/ui/jobs").status_code == 403
        assert browser.get("/ui/job", params={"id": jobs[0]}).status_code == 403
    with log_in(service, READER) as browser:
        page = browser.get("/ui/job", params={"id": jobs[1]}).text
        assert "Your token is read-only" in page
        for action in ("cancel", "retry"):
            data = {"form_token": token_in(page), "id": jobs[2]}
            assert browser.post(f"/ui/job/{action}", data=data).status_code == 403
