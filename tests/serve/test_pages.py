"""The pages: each has an address, says what to do first, and shows nobody what is not theirs."""

import asyncio
import html
import re
import time
from pathlib import Path

import httpx
import pytest
import sample
from served import Serve, Served, log_in, token_in

from em import Memory
from em.llm import ScriptedClient
from em.serve.auth import COOKIE
from em.serve.pages.forms import input_fields, prompt_fields, read_fields
from em.serve.pages.traces import UNUSED
from em.traces.trace import Mission, ToolCall, Trace

TOKEN, ANA = "a-token-that-is-long-enough", "ana-token-0123456789abc"
READER = "reader-token-0123456789"
LISTS = (
    "",
    "/runs",
    "/traces",
    "/routines",
    "/state",
    "/recall",
    "/lessons",
    "/log",
)


@pytest.fixture
def filled(tmp_path: Path) -> dict[str, str]:
    with Memory(tmp_path / "em.db") as memory:
        return sample.addresses(sample.fill(memory))


def limited(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "em.yaml").write_text(
        "api:\n  tokens:\n"
        "    - {env: READER_TOKEN, access: read}\n"
        "    - {env: ANA_TOKEN, subjects: [ana]}\n"
    )
    return {"EM_API_TOKEN": TOKEN, "READER_TOKEN": READER, "ANA_TOKEN": ANA}


def test_every_page_of_an_empty_memory_says_what_to_do_first(service: Served) -> None:
    assert service.http.get("/").headers["location"] == "/ui"
    for path in LISTS:
        answer = service.http.get(f"/ui{path}")
        assert answer.status_code == 200, path
        assert 'class="card empty"' in answer.text, path


def test_every_page_is_there_and_lets_nothing_in(filled: dict[str, str], service: Served) -> None:
    for name, path in filled.items():
        answer = service.http.get(path)
        assert answer.status_code == 200, (name, answer.text)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert "<style" not in answer.text
        assert not re.search(r"<script(?! src=\"/ui/static/)", answer.text), name
        assert not re.search(r"<[^>]*\s(style|on\w+)=", answer.text), name
        assert not re.search(r"(src|href|action)=\"(?!/ui|/docs|#)", answer.text), name
    for name in ("em.css", "em.js", "icon.svg"):
        assert service.http.get(f"/ui/static/{name}").status_code == 200
    for name in ("../view.py", "..%2fview.py", "nothing.css"):
        assert service.http.get(f"/ui/static/{name}").status_code == 404


def test_what_is_not_there_is_told_on_a_page(service: Served) -> None:
    missing = "run?id=x trace?id=x routine?ref=x event?id=x lesson?id=x state?subject=x none"
    for path in [f"/ui/{one}" for one in missing.split()]:
        answer = service.http.get(path)
        assert answer.status_code == 404, path
        assert "<h1>Not found</h1>" in answer.text, path
    for path in ("/ui/runs?cursor=x", "/ui/state?subject=x&as_of=never", "/ui/log?subject=a%0ab",
                 f"/ui/runs?q={'x' * 2001}"):  # fmt: skip
        assert service.http.get(path).status_code in (400, 404), path


def test_the_overview_tells_what_was_saved_what_failed_and_what_waits(
    filled: dict[str, str], service: Served
) -> None:
    text = service.http.get("/ui").text
    assert "Pay 12.5 back for order A-18?" in text
    assert "not an amount that can be paid back" in text
    saved = re.search(r'class="figure">([\d,]+)</span> tokens', text)
    assert saved
    assert int(saved[1].replace(",", "")) > 100_000
    assert re.search(r"In the last 30 days: \d+ ok, \d+ handed over, 1 asked, \d+ failed", text)


def test_lists_are_searched_filtered_and_go_on(filled: dict[str, str], service: Served) -> None:
    def names(path: str) -> list[str]:
        return re.findall(r'href="/ui/run\?id=([^"]+)"', service.http.get(path).text)

    every: list[str] = []
    path = "/ui/runs"
    while path:
        text = service.http.get(path).text
        every += re.findall(r'href="/ui/run\?id=([^"]+)"', text)
        older = re.search(r'href="([^"]+)" rel="next"', text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert len(every) == len(set(every)) == 92
    assert names("/ui/runs?status=needs_input") == [filled["/ui/run"].partition("=")[2]]
    assert names("/ui/runs?q=past-7-") == [n for n in every if n.startswith("past-7-")]
    assert len(names("/ui/runs?status=failed")) == 8
    assert names("/ui/runs?since=2100-01-01") == names("/ui/runs?subject=nobody") == []
    assert len(names("/ui/runs?since=2000-01-01&until=2100-01-01")) == 25
    assert "since=2000-01-01" in service.http.get("/ui/runs?since=2000-01-01").text
    assert "Pay A-17 back" not in service.http.get("/ui/traces?subject=nobody").text
    assert service.http.get("/ui/runs?cursor=7").status_code == 400
    assert "Pay A-17 back" in service.http.get("/ui/traces?task=pay&outcome=success").text
    assert "No traces match" in service.http.get("/ui/traces?outcome=failure").text
    assert service.http.get("/ui/log?kind=run_ended").text.count(">run_ended<") == 25
    assert re.search(r"\b\d+ events verified", service.http.get("/ui/verify").text)


def test_a_trace_is_a_timeline_beside_what_each_event_holds(
    filled: dict[str, str], service: Served
) -> None:
    trace = filled["/ui/trace"]
    text = service.http.get(trace).text
    assert "Choose an event" in text
    assert 'href="/ui/routine?ref=pay_back%401"' in text
    rows = service.http.get(trace.replace("/ui/trace?", "/ui/trace/rows?")).json()["rows"]
    names = [row[2] for row in rows]
    (refund,) = [row[0] for row in rows if row[2] == "create_refund"]
    became = {row[0]: row[7] for row in rows}
    failed = names.index("get_order")
    assert became[failed] == UNUSED, "it was made again"
    assert became[refund] not in ("", UNUSED)
    shown = [service.http.get(f"{trace}&n={number}").text for number in range(len(rows))]
    assert "The routine does not make this call." in shown[failed]
    assert f"The step <code>{became[refund]}</code> makes this call." in shown[refund]
    assert "{{ order.total }}" in shown[refund]
    part = service.http.get(trace.replace("/ui/trace?", "/ui/trace/event?") + f"&n={refund}").text
    assert "{{ order.total }}" in part
    assert "<html" not in part
    assert service.http.get(f"{trace}&n=999").status_code == 200
    beyond = service.http.get(trace.replace("/ui/trace?", "/ui/trace/event?") + "&n=999")
    assert beyond.status_code == 404


def test_a_trace_without_events_says_so(service: Served) -> None:
    with Memory("em.db") as memory:
        trace = memory.add_trace({"version": "1", "mission": {"goal": "sort the post"}})
    text = service.http.get(f"/ui/trace?id={trace}").text
    assert "No message and no call was recorded." in text
    assert "Choose an event" not in text


def test_a_long_trace_is_shown_in_parts_however_much_its_calls_hold(
    tmp_path: Path, service: Served
) -> None:
    calls = [
        ToolCall(tool="look", args={"n": number, "text": "x" * 5_000}, result={"n": number})
        for number in range(2_000)
    ]
    with Memory(tmp_path / "em.db") as memory:
        trace = memory.add_trace(Trace(mission=Mission(goal="look"), events=calls))
    first = service.http.get(f"/ui/trace?id={trace}").text
    later = service.http.get(f"/ui/trace?id={trace}&n=1450").text
    assert (first.count('<li class="d0">'), later.count('<li class="d0">')) == (100, 100)
    assert len(first) < 300_000
    assert "Too many calls to compile on this page" in first
    rows = service.http.get(f"/ui/trace/rows?id={trace}")
    assert len(rows.json()["rows"]) == 2_000
    assert len(rows.content) < 2_000 * 400, "a row is short, whatever its call holds"


def test_a_change_of_a_file_is_shown_as_a_diff(tmp_path: Path, service: Served) -> None:
    edit = {"file_path": "/app/a.py", "old_string": "a = 1\nb = 2", "new_string": "a = 1\nb = 3"}
    patch = "*** Begin Patch\n*** Update File: b.py\n-old\n+new\n*** End Patch"
    events = [
        ToolCall(tool="Edit", args=edit, result="ok"),
        ToolCall(tool="apply_patch", args={"input": patch}, result="ok"),
    ]
    with Memory(tmp_path / "em.db") as memory:
        trace = memory.add_trace(Trace(mission=Mission(goal="edit"), events=events))
    shown = service.http.get(f"/ui/trace?id={trace}&n=0").text
    assert '<span class="del">-b = 2</span>' in shown
    assert '<span class="add">+b = 3</span>' in shown
    shown = service.http.get(f"/ui/trace?id={trace}&n=1").text
    assert '<span class="add">+new</span>' in shown


def test_state_is_shown_at_any_moment_with_its_history_and_conflicts(
    filled: dict[str, str], service: Served
) -> None:
    now = service.http.get("/ui/state?subject=ana").text
    assert "class Trip" in now  # the generated code
    then = service.http.get("/ui/state?subject=ana&as_of=2025-02-15").text
    assert "Lisbon" in then
    assert "Madrid" not in then.partition("Generated code")[0]
    assert "As of 2025-02-15" in then


def test_a_question_is_answered_on_the_page_with_its_code(serve: Serve) -> None:
    service = serve()
    for record, type_ in (({"city": "Porto"}, "Profile"), ({"to": "Rome"}, "Trip")):
        service.post("/observations", {"subject": "ana", "record": record, "type": type_})
    service.post("/checkpoint", {"subject": "ana"})

    def ask(question: str, **how: str) -> str:
        params = {"subject": "ana", "ask": question, **how}
        page = service.http.get("/ui/state", params=params).text
        return page.partition('id="answer"')[2].partition("</section>")[0]

    assert '<p class="message">Porto</p>' in ask("profile.city", python="1")
    assert "len(trips)" in ask("len(trips)", python="1")
    assert "no model" in ask("How many flights?")


def test_a_proposed_rule_is_accepted_on_the_page(serve: Serve) -> None:
    service = serve()
    service.post("/observations", {"subject": "ana", "text": "A limit."})
    rule = {"id": "limit", "severity": "warning", "action": "spend", "message": "too much"}
    reply = {"facts": [], "constraints": [{**rule, "events": ["e1"]}]}
    with Memory("em.db") as memory:
        memory.checkpoint("ana", llm=ScriptedClient([reply]))
    page = service.http.get("/ui/state?subject=ana").text
    assert '<span class="badge warn">proposed</span>' in page
    form = {"form_token": token_in(page), "subject": "ana", "rule": "limit", "verdict": "accepted"}
    assert service.http.post("/ui/state/rule", data=form).status_code == 303
    assert '<span class="badge warn">proposed' not in service.http.get("/ui/state?subject=ana").text


def test_the_page_says_where_facts_come_from_and_corrects_them(serve: Serve) -> None:
    service = serve()
    with Memory("em.db") as memory:
        memory.observe("eva", {"city": "Basel", "job": "nurse"}, type="Profile", at="2024-01-01")
        memory.observe("eva", {"to": "Rome", "cost": 120}, type="Trip")
        fact = {"op": "set", "field": "name", "value": "Eva Lang"}
        fact["evidence"] = text = "My name is Eva Lang."
        memory.observe("eva", text, speaker="eva", at="2025-01-01", facts=[fact])
        memory.observe("eva", "I don't live in Basel.", speaker="eva", at="2025-04-07")
        memory.checkpoint("eva")
    page = service.http.get("/ui/state?subject=eva").text
    assert "<q>My name is Eva Lang.</q> · read by an agent" in page
    assert '<span class="badge warn">1 unread</span>' in page
    form = {"form_token": token_in(page), "subject": "eva"}
    sent = [
        ("correct", {"field": "profile.city", "value": "Bern"}),
        ("retract", {"field": "profile.job"}),
    ]
    for path, more in sent:
        assert service.http.post(f"/ui/state/{path}", data={**form, **more}).status_code == 303
    with Memory("em.db") as memory:
        state = memory.state("eva")
        assert (state.profile.city, state.profile.job) == ("Bern", None)
    wrong = {**form, "form_token": "x", "field": "profile.city"}
    assert service.http.post("/ui/state/retract", data=wrong).status_code == 403
    number = service.http.post(
        "/ui/state/correct", data={**form, "field": "profile.city", "value": "5"}
    )
    assert (number.status_code, "holds str, not 5" in html.unescape(number.text)) == (400, True)


def test_a_routine_is_run_and_answered_on_its_page(filled: dict[str, str], service: Served) -> None:
    page = service.http.get("/ui/routine?ref=refund")
    form = {"form_token": token_in(page.text), "ref": "refund@2", "field.order": "B-1",
            "field.amount": "8.5", "field.reason": "broken"}  # fmt: skip
    started = service.http.post("/ui/routine/run", data=form)
    assert started.status_code == 303, started.text
    run = started.headers["location"]
    assert "Pay 8.5 back for order B-1?" in service.http.get(run).text
    answer = {"form_token": form["form_token"], "id": run.partition("=")[2], "field.ok": "true"}
    assert service.http.post("/ui/run/answer", data=answer).headers["location"] == run
    done = until(service, run, "Result")
    assert "B-1" in done
    wrong = service.http.post("/ui/routine/run", data={**form, "field.amount": "many"})
    assert (wrong.status_code, "is not a number" in wrong.text) == (400, True)
    assert 'value="B-1"' in wrong.text, "what was filled in stays"
    again = service.http.post("/ui/run/answer", data=answer)
    assert "the run is not waiting for an answer" in again.text


def until(service: Served, path: str, words: str) -> str:
    for _ in range(300):
        text = service.http.get(path).text
        if words in text:
            return text
        time.sleep(0.1)
    pytest.fail(f"{words!r} never came: {text}")


def test_forms_of_other_sites_are_refused(filled: dict[str, str], service: Served) -> None:
    form = {"ref": "refund@2", "field.order": "B-1", "field.amount": "8.5", "field.reason": "late"}
    token = token_in(service.http.get("/ui/routine?ref=refund").text)
    assert service.http.post("/ui/routine/run", data=form).status_code == 403
    bad = {**form, "form_token": "0" * 64}
    assert service.http.post("/ui/routine/run", data=bad).status_code == 403
    good = {**form, "form_token": token}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ):
        answer = service.http.post("/ui/routine/run", data=good, headers=headers)
        assert answer.status_code == 403, headers
    own = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    assert service.http.post("/ui/routine/run", data=good, headers=own).status_code == 303


def test_a_browser_logs_in_with_a_token_and_out_again(filled: dict[str, str], serve: Serve) -> None:
    service = serve(env={"EM_API_TOKEN": TOKEN})
    for path in filled.values():
        answer = service.http.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/ui/login?next=%2Fui")
        assert not answer.text
    assert service.http.get("/ui/static/em.css").status_code == 200
    form = {"form_token": token_in(service.http.get("/ui/login").text)}
    wrong = service.http.post("/ui/login", data={**form, "token": "wrong"})
    assert (wrong.status_code, "Unknown token" in wrong.text) == (401, True)
    assert "set-cookie" not in wrong.headers
    with log_in(service, TOKEN) as browser:
        assert browser.get("/ui/log").status_code == 200
        assert browser.get("/log").status_code == 401, "the cookie is for pages only"
        cookie = browser.cookies[COOKIE]
        assert TOKEN not in cookie
        page = browser.get("/ui").text
        assert browser.post("/ui/logout").status_code == 403
        assert browser.post("/ui/logout", data={"form_token": token_in(page)}).status_code == 303
        old = service.http.get("/ui/log", headers={"Cookie": f"{COOKIE}={cookie}"})
        assert old.status_code == 303, "a cookie that was kept is of no use after logging out"
        service.stop()
        assert TOKEN not in str(service.lines)


def test_the_cookie_is_out_of_reach_and_login_leads_nowhere_else(serve: Serve) -> None:
    service = serve(env={"EM_API_TOKEN": TOKEN})
    for next_ in ("//evil.example", "https://evil.example", "/ui\\evil", "/uix", "javascript:1"):
        page = service.http.get("/ui/login", params={"next": next_}).text
        assert 'name="next" value="/ui"' in page, next_
        form = {"form_token": token_in(page), "token": TOKEN, "next": next_}
        answer = service.http.post("/ui/login", data=form)
        assert answer.headers["location"] == "/ui"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie


def test_a_token_of_one_subject_never_sees_another(serve: Serve, tmp_path: Path) -> None:
    secret = "bos-own-words"
    with Memory(tmp_path / "em.db") as memory:
        everything = sample.addresses(sample.fill(memory, secret))
        sample.about(memory, "bo", secret)
        about_bo = memory.add_trace(sample.trace(secret), subject="bo")
        sample.lessons(memory, secret, subject="bo")
        bos_lesson = next(h.id for h in memory.heuristics.every() if h.lesson.subject == "bo")
        event = next(iter(memory.log.read(subject="bo", limit=1)))
        memory.forget(subject="ana")
        sample.about(memory, "ana", "anas-own-words")
        memory.add_trace(sample.trace("anas-own-words"), subject="ana")
    everything |= {
        "trace of bo": f"/ui/trace?id={about_bo}",
        "lesson of bo": f"/ui/lesson?id={bos_lesson}",
        "event of bo": f"/ui/event?id={event.id}",
        "state of bo": "/ui/state?subject=bo",
        "log of bo": "/ui/log?subject=bo",
        "stream of bo": "/ui/log?subject=ana&stream=subject/bo",
        "recall of bo": "/ui/recall?q=window&subject=bo",
        "recall of all": "/ui/recall?q=window&subject=",
    }
    del everything["/ui/lesson"], everything["/ui/lessons"], everything["/ui/lessons#fit"]
    service = serve(env=limited(tmp_path))
    with log_in(service, ANA) as browser:
        seen = ""
        for name, path in everything.items():
            answer = browser.get(path)
            assert answer.status_code in (200, 403, 404), (name, answer.status_code)
            assert secret not in answer.text, name
            seen += answer.text
        assert "anas-own-words" in seen
        for path in ("/ui/lessons", "/ui/lessons?task=a+refund+fails"):
            assert bos_lesson not in browser.get(path).text
        assert browser.get("/ui/runs").status_code == 403
        page = browser.get("/ui/state?subject=ana").text
        form = {"form_token": token_in(page), "subject": "bo", "ref": "refund@2", "id": "past-1-0"}
        for path in (
            *("/ui/state/checkpoint", "/ui/state/rule", "/ui/routine/run", "/ui/run/answer"),
            *("/ui/state/correct", "/ui/state/retract", "/ui/state/resolve"),
        ):
            assert browser.post(path, data=form).status_code == 403, path


def test_a_token_that_may_only_read_starts_and_answers_nothing(
    filled: dict[str, str], serve: Serve, tmp_path: Path
) -> None:
    service = serve(env=limited(tmp_path))
    with log_in(service, READER) as browser:
        page = browser.get("/ui/routine?ref=refund").text
        assert "is read-only" in page
        form = {"form_token": token_in(page), "ref": "refund@2", "subject": "ana", "id": "past-1-0"}
        for path in (
            *("/ui/state/checkpoint", "/ui/state/rule", "/ui/routine/run", "/ui/run/answer"),
            *("/ui/state/correct", "/ui/state/retract", "/ui/state/resolve"),
        ):
            assert browser.post(path, data=form).status_code == 403, path


def test_a_form_gives_the_values_that_the_schema_asks_for() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer"},
            "share": {"type": "number"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "sure": {"type": "boolean"},
            "rows": {"type": "array"},
            "left_out": {"type": "string"},
        },
        "required": ["name"],
    }
    fields = input_fields(schema, {"rows": [1, {"a": 2}]})
    assert [field.kind for field in fields] == [
        "text", "integer", "number", "select", "boolean", "json", "text",
    ]  # fmt: skip
    given = {
        "name": "x",
        "count": "3",
        "share": "0.5",
        "kind": "b",
        "sure": "false",
        "left_out": "",
    }
    form = {f"field.{name}": value for name, value in given.items()}
    form["field.rows"] = fields[5].value
    assert read_fields(fields, form) == {
        "name": "x", "count": 3, "share": 0.5, "kind": "b", "sure": False, "rows": [1, {"a": 2}],
    }  # fmt: skip
    prompt = prompt_fields([{"name": "which", "type": "multiselect", "options": [1, 2]}])
    assert read_fields(prompt, {"field.which": ["1", "2"]}) == {"which": ["1", "2"]}
    assert read_fields(prompt, {}) == {"which": []}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the framework, on its import
def test_what_is_ours_to_mend_is_told_without_its_stack_and_logged_with_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from em import Settings
    from em.serve.app import make_app

    def broken(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError("a slip of ours")

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    with Memory("em.db") as memory:
        monkeypatch.setattr(memory.log, "verify", broken)
        app = make_app(memory, Settings())
        page, api = asyncio.run(ask("/ui/verify")), asyncio.run(ask("/log/verify"))
    assert (page.status_code, api.status_code) == (500, 500)
    assert "<h1>Error</h1>" in page.text
    assert api.json()["error"]["code"] == "internal"
    assert "slip" not in page.text + api.text
    assert capfd.readouterr().err.count("ZeroDivisionError: a slip of ours") == 2
