"""Runs and traces as lists: newest first, searched, page by page."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.log.event import Draft
from em.runner import history
from em.traces import catalogue


def add_run(memory: Memory, run_id: str, status: str = "ok", **given: Any) -> None:
    started = {"routine": "greet", "hash": "", "folder": "x", "input": given}
    notes = [("run_started", started)]
    if status in ("ok", "failed"):
        notes.append(("run_ended", {"status": status, "failure": {"step_id": "s", "message": "m"}}))
    memory.log.append_many(
        [Draft(stream=f"run/{run_id}", kind=kind, body=body) for kind, body in notes]
    )


def test_runs_come_newest_first_page_by_page_and_none_twice(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for number in range(130):
            add_run(memory, f"r{number:03}")
        found: list[str] = []
        before = None
        while True:
            page = history.find_runs(memory.store, before=before, limit=40)
            found += [run.run_id for run in page.runs]
            if page.older is None:
                break
            before = page.older
        assert found == [f"r{number:03}" for number in range(129, -1, -1)]


def test_runs_are_found_by_words_and_status(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        add_run(memory, "a", city="Porto")
        add_run(memory, "b", "failed", city="Faro")
        add_run(memory, "c", "running", city="Porto")

        def ids(**chosen: str) -> list[str]:
            return [run.run_id for run in history.find_runs(memory.store, **chosen).runs]

        assert ids(words="porto") == ["c", "a"]
        assert ids(status="failed") == ["b"]
        assert ids(words="porto", status="ok") == ["a"]
        assert ids(words="nowhere") == []
        memory.forget(list(memory.log.read(stream="run/a")))
        assert ids() == ["c", "b"]


def test_a_search_looks_at_so_many_and_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LOOKED_AT", 5)
    with Memory(tmp_path / "em.db") as memory:
        add_run(memory, "old", city="Porto")
        for number in range(12):
            add_run(memory, f"r{number}")
        pages = [history.find_runs(memory.store, words="porto")]
        while pages[-1].older is not None:
            pages.append(history.find_runs(memory.store, words="porto", before=pages[-1].older))
        assert [len(page.runs) for page in pages] == [0, 0, 1]


def test_a_step_that_failed_without_an_effect_is_in_the_timeline(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        add_run(memory, "a", "failed")
        seen = history.read_run(memory.store, "a")
        assert [(line.step, line.status, line.error) for line in seen.timeline] == [
            ("s", "failed", "m")
        ]


def test_the_intent_of_a_step_gives_its_arguments(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        add_run(memory, "a", "running")
        intent = {"step": "send", "tool": "mail", "args": {"to": "ana"}}
        other = {"step": "pay", "tool": "bank", "args": {"sum": 4}}
        done = {"step": "send", "result": "sent", "duration_ms": 20.0, "next": other}
        for kind, body in (("step_started", intent), ("step_done", done)):
            memory.log.append("run/a", kind, body)
        first, second = history.read_run(memory.store, "a").timeline
        assert (first.tool, first.args, first.result) == ("mail", {"to": "ana"}, "sent")
        assert (second.tool, second.args, second.status) == ("bank", {"sum": 4}, "under way")


def test_traces_are_listed_by_subject_words_and_outcome(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for goal, subject, outcome in [
            ("Pay Ana back", "ana", "success"),
            ("Pay Bo back", "bo", "failure"),
            ("Tidy up", None, "unknown"),
            ("Call Ana", "ana", "failure"),
        ]:
            memory.add_trace({"task": goal, "steps": [], "outcome": outcome}, subject=subject)

        def goals(**chosen: Any) -> list[str]:
            return [one.goal for one in catalogue.list_traces(memory.store, **chosen).traces]

        assert goals() == ["Call Ana", "Tidy up", "Pay Bo back", "Pay Ana back"]
        assert goals(subjects=["ana"]) == ["Call Ana", "Pay Ana back"]
        assert goals(subjects=["bo", "ana"], outcome="failure") == ["Call Ana", "Pay Bo back"]
        assert goals(subjects=[]) == []
        assert goals(task="pay") == ["Pay Bo back", "Pay Ana back"]
        page = catalogue.list_traces(memory.store, limit=2)
        assert page.older is not None
        assert goals(before=page.older) == ["Pay Bo back", "Pay Ana back"]


def test_traces_are_listed_by_tags_with_their_calls_and_a_late_end(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        call = {"type": "tool_call", "tool": "x"}
        given = {"mission": {"goal": "Pay"}, "events": [call, {**call, "error": "no"}]}
        first = memory.add_trace({**given, "tags": ["a", "b"]})
        memory.add_trace({**given, "tags": ["a"]})
        (found,) = catalogue.list_traces(memory.store, tags=["a", "b"]).traces
        assert (found.id, found.calls, found.failed) == (first, 2, 1)
        page = catalogue.list_traces(memory.store, limit=1)
        ended = {"outcome": "failure", "usage": {}}
        memory.log.append(f"trace/{first}", "trace_ended", ended)
        (older,) = catalogue.list_traces(memory.store, before=page.older).traces
        assert (older.id, older.outcome) == (first, "failure"), "it ended after the page began"
        assert older == catalogue.list_traces(memory.store).traces[-1]


def test_a_search_of_traces_stops_after_those_that_do_not_match(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for number in range(10):
            memory.add_trace({"task": f"task {number}", "steps": []})
        page = catalogue.list_traces(memory.store, task="TASK 0", limit=5, scan=4)
        assert (page.traces, page.older is None) == ([], False)
        seen = []
        while page.older is not None:
            page = catalogue.list_traces(
                memory.store, task="TASK 0", limit=5, scan=4, before=page.older
            )
            seen += page.traces
        assert [one.goal for one in seen] == ["task 0"]
