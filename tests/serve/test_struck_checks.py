"""A learnt routine on its page and over HTTP: its code, its checks, and striking one of them."""

from pathlib import Path

import httpx
import pytest
from served import Serve, Served, log_in, token_in
from test_routine_page import text_of

from cancelled_orders import kept, order_of, tools
from em import Memory
from em.log.event import EventQuery
from em.runner.package import find_routine, routine_of

TOKEN, READER = "a-token-that-is-long-enough", "reader-token-0123456789"


@pytest.fixture(autouse=True)
def run_id() -> str:
    """Store a routine, and a run of it that handed over because of the channel."""
    with Memory("em.db") as memory:
        kept(memory)
        given = {"email": "u7@example.com", "order_id": "W700", "reason": "no longer needed"}
        ran = memory.run("cancel", given, tools(order_of(7, channel="phone"), []))
        assert ran.status == "needs_input"
        return ran.run_id


def shown(service: Served, **params: str) -> str:
    return service.http.get("/ui/routine", params={"ref": "cancel", **params}).text


def press(service: Served, page: str, ref: str, check: str) -> httpx.Response:
    data = {"form_token": token_in(page), "ref": ref, "check": check}
    return service.http.post("/ui/routine/strike", data=data)


def struck() -> list[str]:
    with Memory("em.db") as memory:
        return [*routine_of(find_routine(memory.store, "cancel")).struck]


def test_the_page_shows_code_inputs_checks_and_trials(service: Served) -> None:
    page = shown(service)
    text = text_of(page)
    assert "checks: hand_over" in text
    assert "def cancel(email: str, order_id: str, reason: str, *, tools: Any)" in text
    assert "order_id required a text that matches ^W[0-9]+$" in text
    assert 'order.status is "pending" (in 4/4 recordings)' in text
    assert "cancel_order.notify is always true" in text
    assert "Right in 4 of 4, handed over in 0, wrong in 0." in text
    assert page.count('action="/ui/routine/strike"') == page.count(">Strike</button>") > 5


def test_one_click_strikes_a_check(service: Served) -> None:
    done = press(service, shown(service), "cancel@1", "order.status")
    assert done.headers["location"] == "/ui/routine?ref=cancel%402&done=struck"
    after = text_of(service.http.get(done.headers["location"]).text)
    assert 'Struck: order.status is "pending". This is the new version 2.' in after
    assert 'local changed cancel@1: struck: order.status is "pending"' in after
    assert "Struck by people" in after
    assert struck() == ['order.status is "pending"']
    again = press(service, shown(service), "cancel@2", "order.status")
    assert again.status_code == 400
    assert "there is no check" in again.text


def test_a_run_that_handed_over_has_the_button_of_its_check(service: Served, run_id: str) -> None:
    page = service.http.get("/ui/run", params={"id": run_id}).text
    assert "Handed over, nothing was done" in page
    assert 'Strike order.channel order.channel is "web".' in text_of(page)
    done = press(service, page, "cancel@1", "order.channel")
    assert "cancel%402" in done.headers["location"]
    page = service.http.get("/ui/run", params={"id": run_id}).text
    assert "Handed over, nothing was done" in page
    assert "/ui/routine/strike" not in page


def test_a_run_has_a_button_for_each_check_and_one_for_all(service: Served) -> None:
    with Memory("em.db") as memory:
        given = {"email": "u7@example.com", "order_id": "W700", "reason": "no longer needed"}
        ran = memory.run("cancel", given, tools(order_of(7, channel="phone", total=0), []))
    page = service.http.get("/ui/run", params={"id": ran.run_id}).text
    assert page.count('action="/ui/routine/strike"') == 3
    assert "Strike order.channel, order.total" in text_of(page)
    checks = ["order.channel", "order.total"]
    data = {"form_token": token_in(page), "ref": "cancel@1", "check": checks}
    assert service.http.post("/ui/routine/strike", data=data).is_redirect
    assert [one.split()[0] for one in struck()] == checks


def test_several_over_http(service: Served) -> None:
    checks = ["order.channel", "order.total"]
    done = service.post("/routines/cancel/strike", {"check": checks}).json()
    assert done["new"] == "cancel@2"
    assert [one.split()[0] for one in struck()] == checks


def test_over_http(service: Served) -> None:
    found = service.get("/routines/cancel/checks")
    (check,) = [one for one in found["items"] if one["id"] == "order.channel"]
    assert check == {
        "place": "order.channel",
        "words": '`order.channel` is "web"',
        "id": "order.channel",
        "step_id": "order",
        "text": 'order.channel is "web"',
        "held": "4/4",
        "is_late": False,
    }
    body = {"check": "order.channel", "reason": "any channel will do"}
    done = service.post("/routines/cancel/strike", body).json()
    assert done == {"words": 'struck: order.channel is "web"', "old": "cancel@1", "new": "cancel@2"}
    assert service.get("/routines/cancel/checks")["struck"] == ['order.channel is "web"']
    assert service.get("/routines/cancel@1/checks")["struck"] == []
    assert service.post("/routines/cancel/strike", body).status_code == 404
    with Memory("em.db") as memory:
        (event,) = memory.store.read(EventQuery(kinds=["routine_struck"]))
    assert event.body is not None
    assert (event.body["by"], event.body["reason"]) == ("local", "any channel will do")


def test_a_reader_strikes_nothing(serve: Serve) -> None:
    Path("em.yaml").write_text("api:\n  tokens: [{env: READER_TOKEN, access: read}]\n")
    service = serve(env={"EM_API_TOKEN": TOKEN, "READER_TOKEN": READER})
    body = {"check": "order.channel"}
    refused = service.post("/routines/cancel/strike", body, Authorization=f"Bearer {READER}")
    assert refused.status_code == 403
    with log_in(service, READER) as reader:
        assert "/ui/routine/strike" not in reader.get("/ui/routine?ref=cancel").text
        form = {"form_token": token_in(reader.get("/ui/state").text), "ref": "cancel", **body}
        assert reader.post("/ui/routine/strike", data=form).status_code == 403
    assert struck() == []
