"""The page of a routine: its proof, what is to decide, its runs, its versions, its buttons."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import decided
import httpx
import pytest
from served import Serve, Served, log_in, token_in

from em import Memory
from em.log.event import EventQuery
from em.runner.package import ROUTINE, TRIALS, find_routine, keep_routine, texts_of
from em.serve.pages.diff import diff_of
from em.serve.pages.forms import input_fields, read_fields

TOKEN, READER = "a-token-that-is-long-enough", "reader-token-0123456789"


@pytest.fixture
def trace() -> str:
    with Memory("em.db") as memory:
        return decided.keep(memory)


def text_of(page: str) -> str:
    """Return what a reader sees, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", page)).split())


def shown(service: Served, **params: Any) -> str:
    return service.http.get("/ui/routine", params={"ref": "refund", **params}).text


def press(service: Served, action: str, **form: str) -> httpx.Response:
    token = token_in(shown(service))
    data = {"form_token": token, "ref": "refund@1", **form}
    return service.http.post(f"/ui/routine/{action}", data=data)


def choice_of(page: str, words: str) -> str:
    """Return the code of the choice with these words."""
    found = re.findall(r'name="choice" value="(\w+)"><button[^>]*>(.*?)</button>', page, re.DOTALL)
    found += re.findall(r'<option value="(\w+)">(.*?)</option>', page)
    (code,) = [code for code, label in found if text_of(label) == words]
    return str(code)


def test_the_proof_names_each_trace_it_was_tried_on(trace: str, service: Served) -> None:
    page = shown(service)
    assert "Right in 1 of 2, handed over in 1, wrong in 0." in text_of(page)
    assert f'<a href="/ui/trace?id={trace}">Refund W-1001</a>' in page
    assert "a trace that is not in this memory, a-trace-from-elsewhere" in text_of(page)
    assert "channel is not said" in page


def test_each_explanation_is_a_button_and_pressing_it_makes_a_version(
    trace: str, service: Served
) -> None:
    page = shown(service)
    assert 'note was "as agreed" when recorded; it may be order.status' in text_of(page)
    done = press(service, "decide", choice=choice_of(page, "order.status"))
    assert done.headers["location"] == "/ui/routine?ref=refund%402&done=decided"
    after = service.http.get(done.headers["location"]).text
    assert "Decided: note is order.status. This is the new version 2." in text_of(after)
    assert "local decided about refund@1: note is order.status" in text_of(after)
    taken = press(service, "decide", ref="refund@2", choice=choice_of(after, "the input limit"))
    assert "refund%403" in taken.headers["location"]
    with Memory("em.db") as memory:
        text = texts_of(find_routine(memory.store, "refund"))[ROUTINE]
        assert "amount: '{{ limit }}'" in text
        assert "agree:" not in text
        events = memory.store.read(EventQuery(kinds=["routine_decided"]))
        assert [(event.body or {})["by"] for event in events] == ["local", "local"]


def test_a_check_is_dropped_only_by_a_person_who_ticked_the_box(
    trace: str, service: Served
) -> None:
    code = choice_of(shown(service), 'order.status is "open"')
    refused = press(service, "decide", choice=code)
    assert (refused.status_code, "tick the box to drop a check" in refused.text) == (400, True)
    done = press(service, "decide", choice=code, sure="yes")
    page = service.http.get(done.headers["location"]).text
    assert 'before pay it need not be so: order.status is "open"' in text_of(page)


def test_what_was_decided_already_or_elsewhere_is_refused(trace: str, service: Served) -> None:
    code = choice_of(shown(service), "order.status")
    press(service, "decide", choice=code)
    again = press(service, "decide", choice=code)
    assert (again.status_code, "refund@1 is not the version in use" in again.text) == (400, True)
    made_up = press(service, "decide", ref="refund@2", choice="{{ 7 * 7 }}")
    assert made_up.status_code == 400
    assert press(service, "decide", ref="", choice=code).status_code == 400
    assert "Decide about" in text_of(shown(service, ref="refund@1"))
    assert 'name="choice"' not in shown(service, ref="refund@1")


def test_a_version_is_retired_and_restored(trace: str, service: Served) -> None:
    press(service, "decide", choice=choice_of(shown(service), "order.status"))
    gone = press(service, "retire", ref="refund@2")
    page = service.http.get(gone.headers["location"]).text
    assert "Retired. refund means version 1 now." in text_of(page)
    assert "This version is retired, and is not run from here." in text_of(page)
    run = press(service, "run", ref="refund@2", **{"field.order_id": "W-1"})
    assert (run.status_code, "this version is retired" in run.text) == (400, True)
    back = press(service, "restore", ref="refund@2")
    assert "refund means version 2 now" in text_of(service.http.get(back.headers["location"]).text)
    press(service, "retire", ref="refund@2", all="yes")
    with Memory("em.db") as memory:
        assert memory.store.artefact("routine", "refund") is None
    page = shown(service)
    assert "This version was in use, and was retired" in text_of(page)
    assert "local retired refund@1" in text_of(page)


def test_runs_are_counted_by_how_they_went(trace: str, service: Served) -> None:
    page = text_of(shown(service))
    assert "In the last 30 days: 0 ok, 1 handed over, 0 asked, 1 failed." in page
    assert "0 ok, 1 handed over, 0 asked, 1 failed in total" in shown(service), "read aloud"


def test_changes_are_said_in_words_and_shown_line_by_line(trace: str, service: Served) -> None:
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, "refund"))
        text = files[ROUTINE].replace("[100, 500]", "[100, 900]").replace("- 500", "- 900")
        keep_routine(
            memory.store, {**files, ROUTINE: text.replace("{{ order.total }}", "{{ limit }}")}
        )
    page = shown(service)
    assert "Step 2, pay: amount is the input limit; before: order.total" in text_of(page)
    assert "<mark>limit</mark>" in page
    assert "unchanged lines</summary>" in page
    assert (
        "Proof: right in 1 of 2, handed over in 1, wrong in 0 (before the routine was changed)"
        in (text_of(page))
    )
    assert "Changes since version 2" in shown(service, ref="refund@1", against="2")


def test_the_diff_of_two_texts() -> None:
    assert diff_of("a\nb", "a\nb") == []
    old = "\n".join(map(str, range(30)))
    blocks = diff_of(old, old.replace("15", "15 and more"))
    assert [(block.folded, len(block.lines)) for block in blocks] == [
        (True, 12),
        (False, 8),
        (True, 11),
    ]
    (gone,) = [line for line in blocks[1].lines if line.kind == "del"]
    (new,) = [line for line in blocks[1].lines if line.kind == "add"]
    assert (gone.old, gone.new, new.old, new.new) == (16, None, None, 16)
    assert new.parts == [("15 and more", False)], "there is little in common"
    (_, line) = diff_of("pay: order.total", "pay: order.limit")[0].lines
    assert line.parts == [("pay: order.", False), ("limit", True)]
    long = "a " * 100_000
    assert diff_of(long, f"{long}b")[0].lines[1].parts == [(f"{long}b", False)]


def test_a_token_that_may_only_read_sees_everything_and_presses_nothing(
    trace: str, serve: Serve
) -> None:
    Path("em.yaml").write_text("api:\n  tokens: [{env: READER_TOKEN, access: read}]\n")
    service = serve(env={"EM_API_TOKEN": TOKEN, "READER_TOKEN": READER})
    with log_in(service, READER) as reader:
        page = reader.get("/ui/routine?ref=refund").text
        assert "it may be order.status" in text_of(page)
        main = page.partition("<main")[2]
        assert "<form" not in main
        token = token_in(reader.get("/ui/state").text)
        for action in ("decide", "retire", "restore", "run"):
            form = {"form_token": token, "ref": "refund@1", "choice": "x"}
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


def test_a_routine_without_trials_says_what_it_was_learnt_from(trace: str, service: Served) -> None:
    with Memory("em.db") as memory:
        found = find_routine(memory.store, "refund")
        files = {name: text for name, text in texts_of(found).items() if name != TRIALS}
        keep_routine(memory.store, files, found.from_events)
        keep_routine(memory.store, {**files, "input.json": "{}"})
    assert "Replaying its trace gives the same calls" in text_of(shown(service, ref="refund@2"))
    assert "It was not tried on traces." in text_of(shown(service, ref="refund@3"))
