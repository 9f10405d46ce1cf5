"""The overview: what can be saved and was, what waits, what failed. No more."""

import re
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample
from served import Serve, Served, log_in, token_in

from em import Memory
from em.compiler.suggestions import Suggestion
from em.llm import ScriptedClient
from em.log.event import EventQuery
from em.runner.package import find_routine, routine_of
from em.runner.trial import TrialCounts
from em.serve.pages.groups import Groups, TraceGroup, example_of
from em.traces.catalogue import TraceSummary
from em.traces.trace import Mission, ToolCall, Trace

TOKEN, READER, ANA = (
    "a-token-that-is-long-enough",
    "reader-token-0123456789",
    "ana-token-0123456789abc",
)
GATED = """\
workflows:
  publish:
    steps:
      - {name: text, gate: 'Publish the notes?', inputs: {prompt: 'Write it'}}
"""


def cancelled(order: str, word: str = "", **more: Any) -> Trace:
    """An agent that looked an order up and cancelled it."""
    number = f"W-{order}"
    events = [
        ToolCall(
            tool="get_order",
            args={"order_id": number},
            result={"order_id": number, "status": "open"},
            effect="read",
        ),
        ToolCall(
            tool="cancel_order",
            args={"order_id": number},
            result={"order_id": number, "status": "cancelled"},
            effect="write",
        ),
    ]
    goal = f"Cancel an order {word}".strip()
    mission = Mission(goal=goal, input_summary={"order_id": number})
    return Trace(mission=mission, events=events, outcome="success", final_output="done", **more)


def recur(memory: Memory, word: str = "", **more: Any) -> list[str]:
    orders = ("1001", "2044", "3977")
    return [memory.add_trace(cancelled(order, word), **more) for order in orders]


def found(service: Served, client: Any = None) -> str:
    """Return the overview once it has looked at the traces."""
    for _ in range(600):
        text = str((client or service.http).get("/ui").text)
        if "Looking at your traces" not in text:
            return text
        time.sleep(0.1)
    pytest.fail("it never stopped looking")


def headings(text: str) -> list[str]:
    return [" ".join(one.split()) for one in re.findall(r"<h2[^>]*>([^<]+)", text)]


def test_an_empty_memory_gets_a_welcome_with_two_commands(service: Served) -> None:
    text = service.http.get("/ui").text
    assert headings(text) == ["Welcome to em"]
    assert re.findall(r"<pre>([^<]+)</pre>", text) == [
        "em import ~/.claude/projects",
        "em install claude-code",
    ]


def test_traces_alone_show_what_recurs_until_they_are_forgotten_and_nothing_empty(
    serve: Serve, tmp_path: Path
) -> None:
    with Memory(tmp_path / "em.db") as memory:
        recur(memory, "for-ana", subject="ana")
    service = serve()
    assert "Looking at your traces…" in service.http.get("/ui").text, "no request waits for it"
    text = found(service)
    assert headings(text) == ["What can be saved"]
    assert "<h3>Cancel order</h3>" in text
    assert "Right in 3 of 3 tries, wrong in none" in text
    assert "3 traces · each run saves about <strong>3 model calls</strong>" in text
    assert not re.search(r'class="(chart|tiles|list|dim kept)"', text)
    assert "for-ana" in text
    with Memory(tmp_path / "em.db") as memory:
        memory.forget(subject="ana")
    assert "for-ana" not in service.http.get("/ui").text, "nor from what was found before"


def test_a_group_is_compiled_shown_and_kept_as_one_routine(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        ids = recur(memory)
    service = serve()
    group = re.search(r'class="button" href="(/ui/group[^"]+)"', found(service))
    assert group
    for _ in range(600):
        draft = service.http.get(group[1]).text
        if "Compiling 3 traces together" not in draft:
            break
        time.sleep(0.1)
    assert "Right in 3 of 3" in draft
    assert all(f'name="id" value="{one}"' in draft for one in ids)
    form = {"form_token": token_in(draft), "id": ids, "name": "cancel"}
    kept = service.http.post("/ui/trace/keep", data=form)
    assert kept.headers["location"] == "/ui/routine?ref=cancel%401", kept.text
    with Memory(tmp_path / "em.db") as memory:
        routine = find_routine(memory.store, "cancel")
        learnt_from = {e.stream for e in memory.store.read(EventQuery(ids=routine.from_events))}
    assert learnt_from == {f"trace/{one}" for one in ids}
    text = found(service)
    assert "What can be saved" not in headings(text)
    assert 'In use already: <a href="/ui/routine?ref=cancel%401">cancel</a>' in text
    assert "in use: <a" in service.http.get(group[1]).text
    for wrong in ("", "x", f"{ids[0]},x", ",".join(f"t{n}" for n in range(51))):
        answer = service.http.get("/ui/group", params={"traces": wrong})
        assert answer.status_code in (400, 404), wrong


def test_a_person_says_what_is_an_input_and_what_is_constant(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        trace = cancelled("1001")
        given = {"order_id": "W-1001", "channel": "web"}
        calls = [*trace.events]
        calls[-1] = msgspec.structs.replace(calls[-1], args={**given, "note": "late"})
        mission = msgspec.structs.replace(trace.mission, input_summary=given)
        ids = [memory.add_trace(msgspec.structs.replace(trace, events=calls, mission=mission))]
    service = serve()
    page = service.http.get("/ui/trace", params={"id": ids[0]}).text
    assert "<code>cancel_order.note</code> is always late" in page.partition('id="open"')[2]
    form = {"form_token": token_in(page), "id": ids, "name": "cancel"}
    names = {"inputs": "cancel_order.note", "constants": " channel ,"}
    kept = service.http.post("/ui/trace/keep", data={**form, **names})
    assert kept.headers["location"] == "/ui/routine?ref=cancel%401", kept.text
    with Memory(tmp_path / "em.db") as memory:
        routine = routine_of(find_routine(memory.store, "cancel"))
    assert {*(routine.input_schema or {})["properties"]} == {"order_id", "note"}


def test_what_is_not_worth_compiling_says_why(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for order in ("1001", "2044"):
            calls = [ToolCall(tool="beep", args={"n": 7}, result="ok", effect="write")]
            mission = Mission(goal=f"Beep for order {order}")
            memory.add_trace(Trace(mission=mission, events=calls, outcome="success"))
    text = found(serve())
    assert headings(text) == ["What recurs"]
    assert "<strong>Beep</strong>" in text
    assert "It would do the same on every run, though the requests differ." in text
    assert 'class="button"' not in text


def test_what_waits_and_failed_is_linked(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        sample.fill(memory)
        Path("gated.yaml").write_text(GATED)
        gated = memory.workflow("publish", {}, file="gated.yaml", client=ScriptedClient(["x"]))
        assert gated.status == "needs_input", gated
    text = found(serve())
    assert headings(text) == [
        "What can be saved",
        "What was saved",
        "Waits for an answer",
        "Failed this week",
    ]
    assert '<span class="count">2</span>' in text
    assert f'href="/ui/run?id={gated.run_id}"' in text
    assert "Publish the notes?" in text


def test_only_who_may_see_everything_sees_groups_and_only_writers_keep(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "em.yaml").write_text(
        "api:\n  tokens:\n    - {env: READER_TOKEN, access: read}\n"
        "    - {env: ANA_TOKEN, subjects: [ana]}\n"
    )
    with Memory(tmp_path / "em.db") as memory:
        ids = recur(memory, "bos-own-words", subject="bo")
    service = serve(env={"EM_API_TOKEN": TOKEN, "READER_TOKEN": READER, "ANA_TOKEN": ANA})
    group = f"/ui/group?traces={','.join(ids)}"
    with log_in(service, READER) as reader:
        assert "bos-own-words" in found(service, reader)
        draft = reader.get(group).text
        assert "Keep as a routine" not in draft
        form = {"form_token": token_in(draft), "id": ids}
        assert reader.post("/ui/trace/keep", data=form).status_code == 403
    with log_in(service, ANA) as ana:
        assert "bos-own-words" not in ana.get("/ui").text
        refused = ana.get(group)
        assert refused.status_code == 403
        assert "bos-own-words" not in refused.text


def test_a_memory_in_which_nothing_recurs_says_so(serve: Serve, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        memory.add_trace(cancelled("1001"))
    assert headings(serve().http.get("/ui").text) == ["Nothing to report"], "and looks for nothing"


def test_a_search_ends_with_the_service(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with Memory(tmp_path / "em.db") as memory:
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        with subprocess.Popen(sleep, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert Groups(memory, stopping)._wait(child) == (b"", b"")
        assert child.returncode == -9


def test_a_group_is_told_in_words() -> None:
    told: dict[str, Any] = {
        "goal": "",
        "effects": ["cancel_order", "change *.py"],
        "way": ["get_a", "get_b", "get_c", "get_d", "get_e"],
        "traces": [],
        "sample": ["a", "b"],
        "count": 2,
        "steps": 1,
        "model_calls": 4.0,
        "tokens": None,
        "seconds": 0.0001,
        "cost_usd": 0.5,
    }
    group = TraceGroup(Suggestion(**told))
    assert group.title == "Cancel order, change *.py"
    assert group.saves == {"model calls": 4.0, "dollars": 0.5}
    assert group.trials is None
    asked = "Please cancel order W-1001."
    row = TraceSummary(id="a", seq=1, at=datetime.now(UTC), goal="Help", input={"request": asked})
    assert example_of(row) == asked
    assert example_of(msgspec.structs.replace(row, input={"order_id": "W-1001"})) == "Help"
    reads = TraceGroup(Suggestion(**{**told, "effects": []}))
    assert reads.title == "Look up: get a, get b, get c, get d, …"
    proof = TrialCounts(right=0, handed_over=5, wrong=0, summary="right in 0 of 5")
    never = TraceGroup(Suggestion(**told, proof=proof))
    assert never.why_not == "tried on 5 of them: it would have handed over every time"
