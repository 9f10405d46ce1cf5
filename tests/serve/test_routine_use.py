"""Routines are accepted, retired and restored over HTTP as on their page and by the command."""

from pathlib import Path
from typing import Any

import learnt
import pytest
from served import Serve, Served

from em import Memory
from em.log.event import EventQuery
from em.runner.package import find_routine, keep_routine, texts_of

ALL, READER, ANA = (
    "all-0123456789abcdefghij",
    "reader-0123456789abc",
    "ana-0123456789abcdefghij",
)


@pytest.fixture
def trace() -> str:
    with Memory("em.db") as memory:
        return learnt.keep(memory)


def events(kind: str) -> list[dict[str, Any]]:
    with Memory("em.db") as memory:
        return [event.body or {} for event in memory.store.read(EventQuery(kinds=[kind]))]


@pytest.mark.usefixtures("trace")
def test_a_version_is_retired_and_restored_once(service: Served) -> None:
    for word, now in (("retire", ""), ("restore", "refund@1")):
        for changed in (True, False):
            done = service.post(f"/routines/refund@1/{word}", {})
            assert (done.status_code, done.json()) == (
                200,
                {"routine": "refund@1", "changed": changed, "now": now},
            )
    assert len(events("routine_retired")) == len(events("routine_restored")) == 1
    for path in ("/routines/nothing@1/retire", "/routines/nothing@1/restore"):
        assert service.http.post(path).status_code == 404


@pytest.mark.usefixtures("trace")
def test_a_version_is_accepted_and_that_is_taken_back(service: Served) -> None:
    for word, is_used in (("accept", True), ("withdraw", False)):
        for changed in (True, False):
            done = service.post(f"/routines/refund@1/{word}", {})
            assert (done.status_code, done.json()) == (
                200,
                {"routine": "refund@1", "changed": changed, "now": "refund@1"},
            )
        (shown,) = service.get("/routines")["items"]
        assert (shown["state"], shown["by_itself"]) == ("in use", is_used)
        assert (shown["accepted_at"] is not None) is is_used
        assert shown["why"]
    assert len(events("routine_accepted")) == len(events("acceptance_withdrawn")) == 1
    for path in ("/routines/nothing@1/accept", "/routines/nothing@1/withdraw"):
        assert service.http.post(path).status_code == 404


@pytest.mark.usefixtures("trace")
def test_a_proposed_version_is_put_in_use_by_accepting_it(service: Served) -> None:
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, "refund"))
        keep_routine(memory.store, {**files, "notes.md": "another"}, retired=True)
    assert service.post("/routines/refund/accept", {}).status_code == 400, "which one?"
    assert service.post("/routines/refund@2/accept", {}).json()["now"] == "refund@2"
    assert service.post("/routines/refund@2/withdraw", {}).json()["now"] == "refund@1"


@pytest.mark.usefixtures("trace")
def test_a_version_that_never_was_in_use_is_not_restored(service: Served) -> None:
    with Memory("em.db") as memory:
        files = texts_of(find_routine(memory.store, "refund"))
        keep_routine(memory.store, {**files, "notes.md": "another"}, retired=True)
    refused = service.post("/routines/refund@2/restore", {})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "never_in_use"


@pytest.mark.usefixtures("trace")
def test_only_those_who_may_write_for_everybody_change_it(serve: Serve) -> None:
    Path("em.yaml").write_text(
        "api: {tokens: [{env: READER, access: read}, {env: ANA, subjects: [ana]}]}"
    )
    service = serve(env={"EM_API_TOKEN": ALL, "READER": READER, "ANA": ANA})
    for token in (READER, ANA):
        acts = ("retire", "restore", "accept", "withdraw")
        for word, body in (*((word, {}) for word in acts), ("strike", {"check": "check"})):
            refused = service.post(
                f"/routines/refund@1/{word}", body, Authorization=f"Bearer {token}"
            )
            assert refused.status_code == 403, (token, word)
    assert not events("routine_retired") + events("routine_struck") + events("routine_accepted")
