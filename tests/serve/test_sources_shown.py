"""Lessons and facts name the least trusted of what they come from; what waits, a person accepts."""

from pathlib import Path

import httpx
import pytest
from mcp_agents import over_http
from served import Serve, Served, token_in

from em import Memory
from em.heuristics.heuristic import Lesson
from mcp import Client

FROM_A_PAGE = Lesson(
    trigger="a refund fails", action="pay again", doubt="from the web", source="web"
)


@pytest.fixture
def service(serve: Serve, tmp_path: Path) -> Served:
    with Memory(tmp_path / "em.db") as memory:
        memory.heuristics.keep([FROM_A_PAGE])
        memory.observe("ana", {"city": "Porto"}, type="Profile", at="2025-01-01")
        memory.observe("ana", {"city": "Rome"}, type="Profile", origin="web", at="2025-02-01")
        memory.checkpoint("ana")
    return serve()


def lesson_of(service: Served) -> dict[str, object]:
    (found,) = service.get("/heuristics")["items"]
    return found


def send(service: Served, page: str, path: str, **fields: str) -> httpx.Response:
    form = {"form_token": token_in(service.http.get(page).text), **fields}
    return service.http.post(path, data=form)


def city(service: Served) -> tuple[str, str]:
    (why,) = service.get("/state/why", subject="ana", what="profile.city")["items"]
    return why["value"], why["origin"]


@pytest.mark.parametrize("on_a_page", [False, True])
def test_a_lesson_is_told_once_a_person_accepts_it(service: Served, on_a_page: bool) -> None:
    lesson = lesson_of(service)
    assert (lesson["source"], lesson["doubt"]) == ("web", "from the web")
    page = f"/ui/lesson?id={lesson['id']}"
    assert "<dd>web</dd>" in service.http.get(page).text
    assert service.get("/brief", task="a refund fails")["text"] == ""
    if on_a_page:
        done = send(service, page, "/ui/lesson/accept", id=str(lesson["id"]))
        assert (done.status_code, done.headers["location"]) == (303, page)
    else:
        assert service.post(f"/heuristics/{lesson['id']}/accept", None).status_code == 200
    assert (lesson_of(service)["source"], lesson_of(service).get("doubt", "")) == ("web", "")
    assert "source: web" in service.get("/brief", task="a refund fails")["text"]


@pytest.mark.parametrize("on_a_page", [False, True])
def test_an_observation_counts_once_a_person_accepts_it(service: Served, on_a_page: bool) -> None:
    assert city(service) == ("Porto", "own")
    (waits,) = service.get("/state", subject="ana")["unstructured"]
    if on_a_page:
        page = "/ui/state?subject=ana"
        done = send(service, page, "/ui/state/accept", subject="ana", event=waits["event_id"])
        assert done.status_code == 303
        assert "source: web" in service.http.get(page).text
    else:
        body = {"subject": "ana", "event_id": waits["event_id"]}
        assert service.post("/state/accept", body).status_code == 201
        service.post("/checkpoint", {"subject": "ana"})
    assert city(service) == ("Rome", "web")


def test_agents_are_told_where_it_comes_from(service: Served) -> None:
    lesson = lesson_of(service)
    service.post(f"/heuristics/{lesson['id']}/accept", None)
    (waits,) = service.get("/state", subject="ana")["unstructured"]
    service.post("/state/accept", {"subject": "ana", "event_id": waits["event_id"]})

    async def asks(client: Client) -> None:
        brief = await client.call_tool("brief", {"task": "a refund fails"})
        assert [one["source"] for one in brief.structured_content["lessons"]] == ["web"]
        found = await client.call_tool("ask", {"subject": "ana", "code": "state.profile.city"})
        assert found.structured_content["value"] == "Rome"
        assert found.structured_content["source"] == "web"

    over_http(service.url, asks)
