"""The page of a routine: its code and proof, what is open, its runs and versions, its buttons."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import learnt
import pytest
from served import Serve, Served, log_in, token_in

from em import Memory
from em.runner.package import PROOF, ROUTINE, find_routine, keep_routine, texts_of
from em.serve.pages.forms import input_fields, read_fields

TOKEN, READER = "a-token-that-is-long-enough", "reader-token-0123456789"


@pytest.fixture
def trace() -> str:
    with Memory("em.db") as memory:
        return learnt.keep(memory)


def text_of(page: str) -> str:
    """Return what a reader sees, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", page)).split())


def shown(service: Served, **params: Any) -> str:
    return service.http.get("/ui/routine", params={"ref": "refund", **params}).text


def press(service: Served, action: str, **form: str) -> httpx.Response:
    token = token_in(shown(service))
    data = {"form_token": token, "ref": "refund@1", **form}
    return service.http.post(f"/ui/routine/{action}", data=data)


def test_the_proof_is_shown_by_policy_and_by_recording(trace: str, service: Served) -> None:
    page = shown(service)
    text = text_of(page)
    assert "Right in 1 of 2, handed over in 1, wrong in 0." in text
    assert re.search(r"as recorded\s*</th>(<td[^>]*>2</td>)(<td[^>]*>0</td>){2}", page)
    assert re.search(r"left out\s*</th>(<td[^>]*>1</td>){2}(<td[^>]*>0</td>)", page)
    assert '<time datetime="2026-02-03T04:05:00+00:00">' in page
    assert f'<a href="/ui/trace?id={trace}">Refund W-1001</a>' in page
    assert "a trace that is not in this memory, a-trace-from-elsewhere" in text
    assert "channel is not said" in page


def test_the_code_inputs_checks_constants_and_what_is_open_are_shown(
    trace: str, service: Served
) -> None:
    page = shown(service)
    parts = dict(re.findall(r'<section aria-labelledby="(\w+)">(.*?)</section>', page, re.DOTALL))
    with Memory("em.db") as memory:
        assert texts_of(find_routine(memory.store, "refund"))[ROUTINE] in unescape(parts["code"])
    assert "order_id required" in text_of(parts["inputs"])
    assert "pay.note is always" in text_of(parts["constants"])
    assert "pay.note is always" in text_of(parts["open"]), "two recordings are few"
    assert parts["checks"].count('action="/ui/routine/strike"') == 3
    assert parts["checks"].count("(in 2/2 recordings)") == 3


def test_a_hand_written_routine_has_nothing_open_and_no_check_to_strike(service: Served) -> None:
    with Memory("em.db") as memory:
        step = "{id: known, type: assert, check: len(order) > 2}"
        end = "{id: end, type: return, value: 1}"
        schema = "{type: object, properties: {order: {type: string}}}"
        text = f"name: refund\ninput_schema: {schema}\nsteps: [{step}, {end}]\n"
        keep_routine(memory.store, {ROUTINE: text})
    page = shown(service)
    assert "<code>known:</code>" in page.replace(' class="dim"', "")
    assert 'aria-labelledby="open"' not in page
    assert "/ui/routine/strike" not in page


def test_a_version_is_retired_and_restored(trace: str, service: Served) -> None:
    press(service, "strike", check="check")
    gone = press(service, "retire", ref="refund@2")
    page = service.http.get(gone.headers["location"]).text
    assert "Retired. refund means version 1 now." in text_of(page)
    assert "This version is retired, and is not run from here." in text_of(page)
    run = press(service, "run", ref="refund@2", **{"field.order_id": "W-1"})
    assert (run.status_code, "this version is not in use" in run.text) == (400, True)
    back = press(service, "restore", ref="refund@2")
    assert "refund means version 2 now" in text_of(service.http.get(back.headers["location"]).text)
    press(service, "retire", ref="refund@2", all="yes")
    with Memory("em.db") as memory:
        assert memory.store.artefact("routine", "refund") is None
    page = shown(service)
    assert "This version was in use, and was retired" in text_of(page)
    assert "local retired refund@1" in text_of(page)


def test_a_version_is_accepted_and_that_is_taken_back(trace: str, service: Served) -> None:
    page = shown(service, ref="refund@1")
    assert "right on 1 of 2 recordings left out" in text_of(page)
    assert 'action="/ui/routine/accept"' in page
    assert press(service, "accept", ref="refund@1").status_code == 303
    page = shown(service, ref="refund@1")
    assert "local accepted refund@1" in text_of(page)
    assert 'action="/ui/routine/accept"' not in page
    assert "used by itself" in text_of(service.http.get("/ui/routines").text)
    assert press(service, "withdraw", ref="refund@1").status_code == 303
    assert 'action="/ui/routine/accept"' in shown(service, ref="refund@1")
    assert "used by itself" not in text_of(service.http.get("/ui/routines").text)


def test_runs_are_counted_by_how_they_went(trace: str, service: Served) -> None:
    page = text_of(shown(service))
    assert "In the last 30 days: 0 ok, 1 handed over, 0 asked, 1 failed." in page
    assert "0 ok, 1 handed over, 0 asked, 1 failed in total" in shown(service), "read aloud"


def test_changes_are_said_in_words_and_shown_line_by_line(trace: str, service: Served) -> None:
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, "refund"))
        text = files[ROUTINE].replace("{{ order.total }}", "{{ limit }}")
        keep_routine(memory.store, {**files, ROUTINE: text})
    page = shown(service)
    assert "pay: " in text_of(page)
    assert re.search(r'<span class="add">\+.*limit', page)
    assert (
        "Proof: right in 1 of 2, handed over in 1, wrong in 0 (before the routine was changed)"
        in (text_of(page))
    )
    assert "Changes since version 2" in shown(service, ref="refund@1", against="2")


def test_a_token_that_may_only_read_sees_everything_and_presses_nothing(
    trace: str, serve: Serve
) -> None:
    Path("em.yaml").write_text("api:\n  tokens: [{env: READER_TOKEN, access: read}]\n")
    service = serve(env={"EM_API_TOKEN": TOKEN, "READER_TOKEN": READER})
    with log_in(service, READER) as reader:
        page = reader.get("/ui/routine?ref=refund").text
        assert "(in 2/2 recordings)" in text_of(page)
        main = page.partition("<main")[2]
        assert "<form" not in main
        token = token_in(reader.get("/ui/state").text)
        for action in ("strike", "accept", "withdraw", "retire", "restore", "run"):
            form = {"form_token": token, "ref": "refund@1", "check": "check"}
            assert reader.post(f"/ui/routine/{action}", data=form).status_code == 403
    with Memory("em.db") as memory:
        assert find_routine(memory.store, "refund").version == 1


def test_inputs_become_fields_by_their_schema() -> None:
    schema = {
        "properties": {
            "level": {"enum": [1, 2.5, None]},
            "only": {"const": "a"},
            "maybe": {"type": ["string", "null"]},
            "either": {"type": ["string", "integer"]},
            "size": {"type": "integer", "default": 3},
            "odd": {"enum": [{"a": 1}]},
        },
        "required": ["level"],
    }
    fields = {field.name: field for field in input_fields(schema, {"level": 2.5})}
    assert {name: field.kind for name, field in fields.items()} == {
        "level": "select", "only": "select", "maybe": "text", "either": "json", "size": "integer",
        "odd": "json",
    }  # fmt: skip
    assert (fields["level"].options, fields["level"].value) == (["1", "2.5", "null"], "2.5")
    assert fields["size"].value == "3"
    given = {"field.level": "2.5", "field.only": "a", "field.size": "4"}
    assert read_fields(list(fields.values()), given) == {"level": 2.5, "only": "a", "size": 4}


def test_a_routine_that_was_not_tried_says_so(trace: str, service: Served) -> None:
    with Memory("em.db") as memory:
        found = find_routine(memory.store, "refund")
        files = {name: text for name, text in texts_of(found).items() if name != PROOF}
        keep_routine(memory.store, files, found.from_events)
    assert "It was not tried on recordings." in text_of(shown(service))
