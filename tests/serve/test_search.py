"""Search over everything: by everyone what they may see, and at the same cost in a long log."""

import asyncio
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample
from served import Serve, log_in
from tests.store.test_list_growth import fill, instructions

from em import Memory
from em.runner import history
from em.serve.auth import Caller
from em.serve.pages import search
from em.serve.pages.search import HitGroup, SiteSearch
from em.store import summaries

TOKEN, ANA = "a-token-that-is-long-enough", "ana-token-0123456789abc"


class Asked:
    """What a search needs of the service."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.store = memory, memory.store


def groups(
    memory: Memory, words: str, subjects: Sequence[str] | None = None
) -> dict[str, HitGroup]:
    about = None if subjects is None else frozenset(subjects)
    found = SiteSearch(Asked(memory), Caller("x", about, "read"), words, 5)  # type: ignore[arg-type]
    return {group.name: group for group in found.groups()}


def test_everything_is_found_by_a_part_of_its_name_its_id_or_its_words(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        pages = sample.addresses(sample.fill(memory))
        found = groups(memory, "REFUND")
        assert {"Routines", "Runs", "Lessons"} <= found.keys()
        assert [hit.title for hit in found["Routines"].hits] == ["refund"]
        assert (len(found["Runs"].hits), found["Runs"].more) == (5, "/ui/runs?q=REFUND")
        found = groups(memory, "pay a-17 back")
        assert [hit.address for hit in found["Traces"].hits] == [pages["/ui/trace"]]
        assert groups(memory, "an")["Subjects"].hits[0].address == "/ui/state?subject=ana"
        assert groups(memory, "window seats")["Texts"].hits[0].title == "I like window seats."
        assert groups(memory, "tea")["Workflows"].hits[0].address == pages["/ui/run#workflow"]
        for page in ("/ui/trace", "/ui/run", "/ui/run#workflow"):
            (group,) = groups(memory, pages[page].partition("=")[2]).values()
            assert [hit.address for hit in group.hits] == [pages[page]]
        assert groups(memory, "nothing of the kind zzz") == {}


def test_a_token_of_one_subject_finds_nothing_of_another(serve: Serve, tmp_path: Path) -> None:
    secret = "bosownwords"
    with Memory(tmp_path / "em.db") as memory:
        sample.fill(memory, secret)
        trace = memory.add_trace(sample.trace(secret), subject="bo")
        sample.about(memory, "bo", secret)
        sample.lessons(memory, secret, subject="bo")
        memory.forget(subject="ana")
        sample.about(memory, "ana", "anasownwords")
        memory.add_trace(sample.trace("anasownwords"), subject="ana")
        about_bo = next(iter(memory.log.read(subject="bo", limit=1)))
        everything = groups(memory, secret)
        assert everything.keys() >= {"Traces", "Runs", "Lessons", "Texts"}
        for words in (secret, "bo", trace, "past-1-0", "refund", "window", about_bo.id, "Madrid"):
            for group in groups(memory, words, ["ana"]).values():
                assert group.name in ("Subjects", "Traces", "Lessons", "Texts")
                if group.name != "Lessons":  # those about nobody are for everybody
                    assert secret not in str(group), words
                assert trace not in str(group)
        own = groups(memory, "anasownwords", ["ana"])
        assert own.keys() == {"Traces", "Texts"}
    (tmp_path / "em.yaml").write_text("api:\n  tokens: [{env: ANA_TOKEN, subjects: [ana]}]\n")
    service = serve(env={"EM_API_TOKEN": TOKEN, "ANA_TOKEN": ANA})
    for path in ("/ui/search", "/ui/search/found"):
        assert service.http.get(f"{path}?q=x").status_code == 303, "who is not logged in sees none"
        with log_in(service, ANA) as browser:
            text = browser.get(f"{path}?q=anasownwords").text
            assert "/ui/trace?id=" in text
            assert "/ui/run?" not in text
            assert trace not in browser.get(f"{path}?q={secret}").text


def test_a_search_reads_as_much_of_a_log_of_ten_times_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs and traces are looked for among the newest, and the list goes on from there."""
    monkeypatch.setattr(search, "MOST_SCANNED", 50)
    monkeypatch.setattr(history, "LOOKED_AT", 50)
    monkeypatch.setattr(summaries, "THEN", 50)
    taken: dict[str, list[int]] = {}
    for count in (100, 1_000):
        with Memory(tmp_path / f"{count}.db") as memory:
            fill(memory, count)
            for words in ("flow3", "task 4", "nothing-of-the-kind", "t000001"):
                cost = instructions(memory.store, lambda w=words, m=memory: groups(m, w))  # type: ignore[arg-type, misc]
                taken.setdefault(words, []).append(cost)
    for words, (small, large) in taken.items():
        assert small > 0
        assert large <= 1.3 * small + 500, f"{words}: {small:,} instructions became {large:,}"


def test_the_page_of_a_search_works_without_a_script(tmp_path: Path) -> None:
    from em import Settings
    from em.serve.app import make_app

    async def ask(app: Any, *paths: str) -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(path) for path in paths]

    with Memory(tmp_path / "em.db") as memory:
        sample.runs(memory, sample.keep_refund(memory))
        app = make_app(memory, Settings())
        paths = ["", "?q=refund", "?q=zzz", f"?q={'x' * 2_001}", "?q=%3Cb%3E", "?q=%20"]
        answers = asyncio.run(ask(app, *[f"/ui/search{path}" for path in paths], "/ui/runs"))
    empty, found, nothing, _, tag, blank, runs = answers
    assert [one.status_code for one in answers] == [200, 200, 200, 400, 200, 200, 200]
    assert "Search everything" in empty.text
    assert re.findall(r'<h2 id="group-\d">(\w+)', found.text) == ["Routines", "Runs"]
    (more,) = re.findall(r'<a href="([^"]+)">More runs', found.text)
    assert unescape(more) == "/ui/runs?q=refund"
    assert 'name="q" type="search" value="refund"' in found.text, "the box keeps the words"
    assert "Nothing was found" in nothing.text
    assert "<b>" not in tag.text
    assert "Search everything" in blank.text
    assert '<form class="finder" method="get" action="/ui/search"' in runs.text
