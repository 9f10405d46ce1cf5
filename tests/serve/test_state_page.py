"""The page of a state: who said what and when, decisions, the past, tables, questions."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sample
from served import Serve, Served, token_in

from em import Memory
from em.serve.pages.state import FACTS, ROWS, words

TRIPS = [
    {"to": "Lisbon", "date": "2024-05-02", "cost": 840.5, "note": "=1+1"},
    {"to": "Rome", "date": "2024-06-10", "cost": -10.0, "note": "a, b"},
    {"to": "Oslo", "date": "2023-07-01", "cost": 9.5},
]


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "em.db")


def section(page: str, name: str) -> str:
    """The part of a page under a heading, without tags."""
    part = page.partition(f'id="{name}"')[2].partition("<section")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def show(service: Served, subject: str = "ana", **params: Any) -> str:
    answer = service.http.get("/ui/state", params={"subject": subject, **params})
    assert answer.status_code == 200, answer.text
    return answer.text


def send(service: Served, path: str, page: str = "", **fields: str) -> None:
    form = {"form_token": token_in(page or show(service)), "subject": "ana", **fields}
    answer = service.http.post(f"/ui/state/{path}", data=form)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/ui/state?subject=ana")


def test_each_fact_says_who_said_it_when_and_what_it_was_before(
    memory: Memory, serve: Serve
) -> None:
    memory.observe("ana", {"city": "Faro", "diet": "vegan"}, type="Profile", at="2024-01-02",
                   source="form")  # fmt: skip
    text = "I live in Porto."
    fact = {"op": "set", "field": "city", "value": "Porto", "evidence": text}
    said = memory.observe(
        "ana", text, speaker="Ana", role="user", at="2025-02-03T09:30:00Z", facts=[fact]
    )
    memory.checkpoint("ana")
    page = show(serve())
    facts = section(page, "facts")
    assert f"Porto Ana (user), 2025-02-03 09:30 {text} · read by an agent · event" in facts
    assert f'href="/ui/event?id={said}"' in page
    past = facts.partition("2 values")[2].partition("Change")[0]
    assert past.index("Porto 2025-02-03") < past.index("Faro 2024-01-02 form event")
    assert facts.count(" values ") == 1, "what never changed has no history"


def test_a_contradiction_is_decided_by_a_button_and_says_who_decided(
    memory: Memory, serve: Serve
) -> None:
    memory.observe("ana", {"dose": 10}, type="Profile", at="2024-01-02", source="doctor")
    memory.observe("ana", {"dose": 20}, type="Profile", at="2024-01-03", source="ana")
    memory.checkpoint("ana")
    memory.resolve("ana", "dose", policy="ask")
    memory.checkpoint("ana")
    service = serve()
    page = show(service, facts="dose")
    assert "dose open 20 ana, 2024-01-03 · event Choose 10 doctor" in section(page, "decide")
    forms = re.findall(r'<form method="post" action="/ui/state/resolve">(.*?)</form>', page)
    (chosen,) = [one for one in forms if 'name="value" value="10"' in one]
    form = {n: html.unescape(v) for n, v in re.findall(r'name="(\w+)" value="([^"]*)"', chosen)}
    answer = service.http.post("/ui/state/resolve", data=form)
    assert answer.headers["location"] == "/ui/state?subject=ana&facts=dose", "back to where it was"
    page = show(service)
    assert "Needs a decision" not in page
    assert "10 decided by local" in section(page, "facts")
    why = memory.state("ana").why("dose")
    assert (why.value, why.speaker, form["event"] in why.event_ids) == (10, "local", True)
    refused = service.http.post("/ui/state/resolve", data={**form, "value": "15"})
    assert refused.status_code == 404, "only a value that was observed can be chosen"


def test_a_fact_that_unread_texts_mention_says_so(memory: Memory, serve: Serve) -> None:
    memory.observe("ana", {"job": "nurse"}, type="Profile", at="2024-01-02")
    memory.observe("ana", "I'm not a nurse.", speaker="ana", at="2025-01-02")
    memory.checkpoint("ana")
    assert "nurse 1 unread" in section(show(serve()), "facts")


def test_the_past_is_shown_by_a_date_and_offers_no_actions(memory: Memory, serve: Serve) -> None:
    for at, city in (("2024-01-02", "Faro"), ("2024-05-06", "Porto")):
        memory.observe("ana", {"city": city}, type="Profile", at=at)
        memory.observe("ana", {"to": city}, type="Trip", at=at)
    memory.checkpoint("ana")
    service = serve()
    past = show(service, as_of="2024-03-04T05:06:07")
    assert 'type="datetime-local" step="1" value="2024-03-04T05:06:07"' in past
    assert "As of 2024-03-04 05:06:07. This is the past" in section(past, "main")
    assert 'method="post"' not in past
    assert "Porto" not in past.partition("Generated code")[0]
    assert 'name="as_of" value="2024-03-04T05:06:07"' in past, "questions stay in that time"
    answered = show(service, as_of="2024-03-04", ask="profile.city", python="1")
    assert '<p class="message">Faro</p>' in answered
    assert "Nothing" not in show(service, as_of="2020-01-01")
    assert service.http.get("/ui/state?subject=ana&as_of=then").status_code == 400


def test_code_is_asked_on_the_page(memory: Memory, serve: Serve) -> None:
    for trip in TRIPS:
        memory.observe("ana", trip, type="Trip")
    memory.checkpoint("ana")
    service = serve()
    listed = section(
        show(service, ask="[t for t in trips if t.to == 'Rome']", python="1"), "answer"
    )
    assert "to: Rome" in listed
    years = "{str(y): len([t for t in trips if t.date.year == y]) for y in (2023, 2024)}"
    grouped = section(show(service, ask=years, python="1"), "answer")
    assert grouped.startswith(">Answer 2023 1 2024 2 from 3 records")
    assert "No answer" in section(show(service, ask="How many trips?"), "answer")


@pytest.mark.parametrize(
    ("sought", "found"),
    [
        ("", ["Lisbon", "Rome", "Oslo"]),
        ("S", ["Lisbon", "Oslo"]),
        ("rome", ["Rome"]),
        ("nothing", []),
    ],
)
def test_records_are_filtered_by_words(
    memory: Memory, serve: Serve, sought: str, found: list[str]
) -> None:
    for trip in TRIPS:
        memory.observe("ana", trip, type="Trip")
    memory.checkpoint("ana")
    service = serve()
    shown = show(service, value=sought).partition('id="records"')[2].partition("</section>")[0]
    assert [one for one in ("Lisbon", "Rome", "Oslo") if f">{one}</td>" in shown] == found
    wrong = service.http.get("/ui/state", params={"subject": "ana", "records": "cats"})
    assert wrong.status_code == 404


def test_a_long_list_of_facts_and_records_is_found_by_words_and_pages(
    memory: Memory, serve: Serve
) -> None:
    records = [{"number": n} for n in range(2 * ROWS + 1)]
    memory.observe_many({"subject": "ana", "record": one, "type": "Row"} for one in records)
    memory.observe("ana", {f"fact_{n}": n for n in range(FACTS + 20)}, type="Profile")
    memory.checkpoint("ana")
    service = serve()
    page = show(service, page="2")
    assert page.count("<dt>fact_") == FACTS
    assert "and 20 more: find them by their words" in page
    (further,) = re.findall(r'href="([^"]+)" rel="next"', page)
    last = section(service.http.get(html.unescape(further)).text, "records")
    assert f" {2 * ROWS} " in last
    assert "Page 3 of 3" in last
    assert "<dt>fact_77</dt>" in show(service, facts="77")


def test_a_record_shows_what_its_fields_were_before(memory: Memory, serve: Serve) -> None:
    memory.declare("ana", "Contact", "email")
    for name, city, at in (("a", "Rome", "2024-01-01"), ("b", "Bern", "2024-01-01"),
                           ("a", "Oslo", "2024-02-01")):  # fmt: skip
        memory.observe("ana", {"email": f"{name}@x.org", "city": city}, type="Contact", at=at,
                       source="crm")  # fmt: skip
    memory.checkpoint("ana")
    assert 'title="before: Rome">+1 earlier</span>' in show(serve())


def test_a_text_stays_a_text_whatever_is_written(memory: Memory, serve: Serve) -> None:
    memory.observe("ana", {"postcode": "1234-567", "age": 30}, type="Profile")
    memory.checkpoint("ana")
    service = serve()
    assert show(service).count('name="as" value="text"') == 1
    send(service, "correct", field="profile.postcode", value="00123", **{"as": "text"})
    send(service, "correct", field="profile.age", value="31")
    profile = memory.state("ana").profile
    assert (profile.postcode, profile.age) == ("00123", 31)


def test_values_are_written_as_people_write_them() -> None:
    given = [None, "a", True, 3, -0.5, ["a", 1], {"amount": "5", "currency": "EUR"}, {"a": [1]}]
    assert [words(one) for one in given] == [
        "", "a", "yes", "3", "-0.5", "a, 1", "5 EUR", '{"a":[1]}',
    ]  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page with their attributes, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))


def test_hostile_words_are_words_in_every_part_of_the_page(memory: Memory, serve: Serve) -> None:
    nasty = sample.HOSTILE
    sample.about(memory, word=nasty)
    memory.observe("ana", {nasty: nasty}, type="Profile", source=nasty, role=nasty)
    memory.observe("ana", {nasty: nasty, "x": 1}, type=f"T {nasty}"[:100])
    memory.checkpoint("ana")
    (name,) = [one for one in memory.state("ana").collections if one != "trips"]
    params = {"records": name, "value": nasty[:30]}
    page = show(serve(), **params, facts=nasty[:20], ask=nasty)
    found = Tags(page)
    assert not {"img", "svg", "iframe", "style", "base"} & {tag for tag, _ in found.tags}
    for tag, attributes in found.tags:
        assert not [one for one in attributes if one.startswith("on") or one == "style"], tag
        assert tag != "script" or attributes["src"].startswith("/ui/static/")
        link = attributes.get("href") or attributes.get("action") or "/ui"
        assert re.match(r"/ui|/docs|#", link), link
