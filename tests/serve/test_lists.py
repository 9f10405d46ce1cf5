"""Lists of the pages: filtered and paged by their address alone."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import sample
from served import Serve, Served

from em import Memory
from em.heuristics.heuristic import Lesson, learn
from em.log.event import Draft
from em.traces.trace import Mission, ToolCall, Trace, trace_events

AT = datetime(2026, 3, 1, tzinfo=UTC)
LISTS = "runs traces routines workflows state lessons log".split()


def many(memory: Memory, count: int) -> None:
    """Add so many traces, runs of routines and of workflows, lessons and subjects."""
    drafts: list[Draft] = []
    for number in range(count):
        calls = [ToolCall(tool="look", args={"n": number})] * (number % 7)
        goal = Mission(f"task {number:03}")
        outcome = "success" if number % 2 else "failure"
        trace = Trace(mission=goal, events=calls, outcome=outcome)  # type: ignore[arg-type]
        drafts += trace_events(trace, f"t{number:03}", subject=f"s{number % 3}")
        at = AT + timedelta(minutes=number)
        drafts += sample.run_events(f"r{number:03}", "refund@1", at, failed=bool(number % 2))
        begun = {"workflow": "tell", "hash": "h", "definition": "{}", "input": {"n": number}}
        drafts.append(Draft(stream=f"run/w{number:03}", kind="workflow_started", body=begun, at=at))
        drafts.append(
            Draft(
                stream=f"subject/p{number:03}",
                kind="observation",
                subject=f"p{number:03}",
                body={"text": "seen"},
            )
        )
    memory.log.append_many(drafts)
    learn(memory.store, [Lesson(trigger=f"t{n}", action="a") for n in range(count)])


def links(service: Served, path: str, page: str) -> list[str]:
    """The rows of a list, each by the parameter of its link."""
    text = service.http.get(path).text
    return re.findall(
        rf'(?:<th [^>]*>|<td [^>]*>|· )<a href="/ui/{page}\?(?:id|ref|subject)=([^"&]+)"', text
    )


def turned(service: Served, path: str, way: str) -> str:
    """The address of the next or the first page; empty if there is none."""
    found = re.search(rf'href="([^"]+)" rel="{way}"', service.http.get(path).text)
    return unescape(found[1]) if found else ""


def test_every_list_is_read_to_its_end(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        many(memory, 60)
    service = serve()
    for page, one, sizes in [
        ("traces", "trace", [25, 25, 10]),
        ("runs", "run", [25, 25, 10]),
        ("workflows", "run", [25, 25, 10]),
        ("lessons", "lesson", [25, 25, 10]),
        ("state", "state", [25, 25, 10]),
        ("log?kind=run_started", "event", [25, 25, 10]),
    ]:
        path = f"/ui/{page}"
        there: list[list[str]] = []
        while path:
            there.append(links(service, path, one))
            last, path = path, turned(service, path, "next")
        assert [len(rows) for rows in there] == sizes, page
        assert len({name for rows in there for name in rows}) == 60, page
        assert links(service, turned(service, last, "first"), one) == there[0], page


def test_what_recall_finds_is_shown_page_by_page(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for number in range(30):
            memory.observe("ana", f"Note {number} about tea.")
    service = serve()
    first = service.http.get("/ui/recall?q=tea&subject=ana").text
    following = turned(service, "/ui/recall?q=tea&subject=ana", "next")
    second = service.http.get(following).text
    shown = re.findall(r"Note \d+ about tea", first), re.findall(r"Note \d+ about tea", second)
    assert [page.count('<li class="card">') for page in (first, second)] == [25, 5]
    assert len({*shown[0], *shown[1]}) == 30
    assert turned(service, following, "first") == "/ui/recall?q=tea&subject=ana"
    assert turned(service, following, "next") == ""
    assert "No passages match" in service.http.get("/ui/recall?q=tea&since=2100-01-01").text
    assert service.http.get("/ui/recall?q=tea&cursor=x").status_code == 400


def test_filters_have_the_names_of_http_and_what_matches_nothing_says_what_to_change(
    serve: Serve, tmp_path: Path
) -> None:
    with Memory(tmp_path / "em.db") as memory:
        many(memory, 30)
        sample.keep_refund(memory)
    service = serve()
    for list_, page, one, query, count in [
        ("trajectories", "traces", "trace", "task=task%2000&outcome=success", 5),
        ("trajectories", "traces", "trace", "subject=s1", 10),
        ("runs", "runs", "run", "status=failed", 15),
        ("runs", "runs", "run", "routine=refund&since=2026-03-01T00:20", 10),
        ("workflow-runs", "workflows", "run", "workflow=tell&until=2026-03-01T00:05", 5),
    ]:
        assert len(links(service, f"/ui/{page}?{query}", one)) == count, query
        assert service.http.get(f"/{list_}?{query}").json()["pagination"]["total"] == count, query
    nothing = service.http.get("/ui/traces?task=%3Cb%3Enone&outcome=success").text
    assert "No traces match" in nothing
    assert 'href="/ui/traces?outcome=success"' in nothing, "without the words"
    assert "<b>none" not in nothing
    for page in LISTS:
        text = service.http.get(f"/ui/{page}?since=2100-01-01&q=zzz&task=zzz&stream=zzz").text
        assert "match" in text.partition("<main")[2], page
        assert service.http.get(f"/ui/{page}?cursor=%00x").status_code == 400, page
    assert service.http.get("/ui/runs?status=nothing").status_code == 400
    assert service.http.get("/ui/traces?since=never").status_code == 400
