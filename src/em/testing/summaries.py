"""The promises of every store about summaries: what lists show, kept with the events."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from em.errors import DuplicateEvent
from em.log.event import Draft, EventQuery
from em.log.summary import Cursor, Summary, SummaryQuery
from em.store.protocol import ArtefactDraft, Commit, Store
from em.testing.store import T0, append

RUN = {"routine": "refund", "hash": "h", "input": {"order": "#W1"}, "stored": "refund@2"}
WORKFLOW = {"workflow": "report", "hash": "h", "definition": "{}", "input": {}}
LESSON = {"trigger": "t", "action": "a", "source_task": "pay"}


def events_of(
    stream: str, *happened: tuple[str, dict[str, Any]], at: datetime = T0, **fields: Any
) -> list[Draft]:
    """Return drafts of the events of one stream."""
    return [Draft(stream=stream, kind=kind, body=body, at=at, **fields) for kind, body in happened]


def trace(
    trace_id: str, goal: str = "pay", outcome: str = "success", calls: int = 1, **fields: Any
) -> list[Draft]:
    """Return drafts of the events of a trace."""
    call = ("tool_call", {"tool": "pay", "args": {}, "result": 1})
    return events_of(
        f"trace/{trace_id}",
        ("trace_started", {"goal": goal, "input": {"a": 1}, "app": {"name": "claude"}}),
        *[call] * calls,
        ("trace_ended", {"outcome": outcome, "usage": {"tokens": 7}}),
        **fields,
    )


def listed(store: Store, noun: Any, **chosen: Any) -> list[str]:
    """Return the ids that a query lists."""
    return [one.id for one in store.summaries.read(SummaryQuery(noun=noun, **chosen))]


def everything(store: Store) -> list[Summary]:
    """Return all summaries of a store."""
    nouns: Any = ("trace", "run", "workflow", "job", "lesson")
    return [one for noun in nouns for one in store.summaries.read(SummaryQuery(noun=noun))]


class SummaryConformance:
    """The summaries of the store under test."""

    def test_a_trace_is_summarised_as_it_grows(self, store: Store) -> None:
        started, call, ended = trace("a")
        append(store, started)
        (one,) = everything(store)
        assert (one.id, one.noun, one.name, one.agent) == ("a", "trace", "pay", "claude")
        assert (one.status, one.calls, one.at, one.ended) == ("unknown", 0, T0, None)
        append(store, call)
        append(store, Draft(stream="trace/a", kind="tool_call", body={"tool": "x", "error": "no"}))
        append(store, ended)
        (one,) = everything(store)
        assert (one.status, one.calls, one.failed, one.ended) == ("success", 2, 1, T0)
        append(store, *events_of("trace/a", ("trace_labelled", {"outcome": "failure"})))
        append(store, ended)
        (one,) = everything(store)
        assert one.status == "failure", "what a person said counts, whatever comes after it"

    def test_a_run_is_summarised_when_it_starts_waits_and_ends(self, store: Store) -> None:
        run = "run/r"
        append(store, *events_of(run, ("run_started", RUN), subject="ana"))
        (one,) = everything(store)
        assert (one.id, one.noun, one.name, one.subject) == ("r", "run", "refund", "ana")
        assert (one.status, one.shown["stored"]) == ("running", "refund@2")
        append(store, *events_of(run, ("step_done", {"step": "look"})))
        append(store, *events_of(run, ("run_paused", {"prompt": {"message": "why?"}})))
        (one,) = everything(store)
        assert (one.status, one.calls, one.shown["note"]) == ("needs_input", 1, "why?")
        append(store, *events_of(run, ("run_answered", {"answers": {}})))
        (one,) = everything(store)
        assert (one.status, one.ended, one.shown.get("note")) == ("running", None, None)
        append(store, *events_of(run, ("run_cancelled", {"by": "ana"})))
        (one,) = everything(store)
        assert (one.status, one.ended, one.shown["note"]) == ("cancelled", T0, "cancelled by ana")
        append(store, *events_of(run, ("run_retried", {})))
        (one,) = everything(store)
        assert (one.status, one.ended) == ("running", None)
        append(
            store, *events_of(run, ("step_done", {"step": "pay"}), ("run_ended", {"status": "ok"}))
        )
        (one,) = everything(store)
        assert (one.status, one.calls, one.ended, one.size > 0) == ("ok", 2, T0, True)

    def test_jobs_and_lessons_are_summarised_too(self, store: Store) -> None:
        job = {"kind": "routine", "name": "refund", "items": [{"id": "1"}, {"id": "2"}]}
        append(store, *events_of("job/j", ("job_queued", job)))
        append(
            store, *events_of("job/j", ("job_done", {"done": 1, "waiting": {"1": "em resume 1"}}))
        )
        learned = events_of("heuristic/h1", ("heuristic_learned", {"lesson": LESSON}))
        draft = ArtefactDraft(kind="heuristic", name="h1", body=LESSON)
        made = store.commit(Commit(events=learned, artefacts=[draft]))
        queued, lesson = everything(store)
        assert (queued.id, queued.name, queued.status, queued.calls) == (
            "j",
            "refund",
            "waiting",
            2,
        )
        assert (lesson.id, lesson.name, lesson.status) == ("h1", "pay", "in use")
        store.commit(Commit(retire=[made.artefacts[0].id]))
        assert everything(store)[-1].status == "retired"

    def test_a_list_is_in_the_order_of_time_and_goes_on_behind_a_place(self, store: Store) -> None:
        """By when they began, however late they were stored; equal times by their number."""
        hours = {"c": 3, "a": 1, "b": 2, "b2": 2}
        for name, hour in hours.items():
            append(store, *trace(name, at=T0 + timedelta(hours=hour)))
        assert listed(store, "trace") == ["c", "b2", "b", "a"]
        assert listed(store, "trace", oldest=True) == ["a", "b", "b2", "c"]
        second = next(iter(store.summaries.of(["trace/b2"]).values()))
        assert listed(store, "trace", beyond=second.cursor) == ["b", "a"]
        assert listed(store, "trace", beyond=second.cursor, oldest=True) == ["c"]
        since, until = T0 + timedelta(hours=2), T0 + timedelta(hours=3)
        assert listed(store, "trace", since=since, until=until) == ["b2", "b"]
        assert listed(store, "trace", beyond=Cursor(T0, 0)) == []

    def test_a_list_is_filtered_and_counted(self, store: Store) -> None:
        """By subject, name, status and agent; a count takes the same query."""
        append(store, *trace("a", subject="ana"))
        append(store, *trace("b", goal="other", subject="bo"))
        append(store, *trace("c", outcome="failure", subject="ana"))
        append(store, *events_of("run/r", ("run_started", RUN)))
        append(store, *events_of("run/w", ("workflow_started", WORKFLOW)))
        assert sorted(listed(store, "trace", subjects=["ana"])) == ["a", "c"]
        assert len(listed(store, "trace", subjects=["ana", "bo"])) == 3
        assert listed(store, "trace", subjects=[]) == []
        assert listed(store, "trace", subjects=["ana"], status="failure") == ["c"]
        assert listed(store, "trace", name="other") == ["b"]
        assert listed(store, "trace", agent="codex") == []
        assert (listed(store, "run"), listed(store, "workflow")) == (["r"], ["w"])
        assert store.summaries.count(SummaryQuery(noun="trace", subjects=["ana", "bo"])) == 3
        assert store.summaries.count(SummaryQuery(noun="trace", status="success")) == 2

    def test_summaries_are_added_up_by_name(self, store: Store) -> None:
        append(store, *trace("a", subject="ana"))
        append(store, *trace("b", subject="bo"))
        append(store, *trace("c", goal="other", subject="bo"))
        found = {one.name: one for one in store.summaries.totals(SummaryQuery(noun="trace"))}
        other = found.pop("other")
        (same,) = found.values()
        assert (same.count, other.count) == (2, 1)
        assert same.calls == 2 * other.calls
        assert same.first <= same.last
        asked = SummaryQuery(noun="trace", subjects=["ana", "bo"])
        assert [one.count for one in store.summaries.totals(asked)] == [
            one.count for one in store.summaries.totals(SummaryQuery(noun="trace"))
        ]
        assert store.summaries.totals(SummaryQuery(noun="trace", subjects=[])) == []

    def test_more_summaries_than_a_page_are_listed_once_each(self, store: Store) -> None:
        for start in range(0, 1_200, 300):
            drafts = [one for n in range(start, start + 300) for one in trace(f"t{n}", calls=0)]
            append(store, *drafts)
        found = listed(store, "trace")
        assert found == [f"t{n}" for n in range(1_199, -1, -1)]
        assert store.summaries.count(SummaryQuery(noun="trace")) == 1_000, "counted so far"

    def test_what_is_erased_is_in_no_list(self, store: Store) -> None:
        """The rows of a forgotten subject go; one that lost a part says so, or is made again."""
        append(store, *trace("a", goal="quokka", subject="ana"), *trace("b", goal="wombat"))
        events = append(
            store, *events_of("run/r", ("run_started", RUN), ("step_done", {"step": "s"}))
        )
        store.erase([], subjects=["ana"])
        assert listed(store, "trace") == ["b"]
        assert "quokka" not in repr(everything(store))
        store.erase([events[1].id])
        assert listed(store, "run", status="forgotten") == ["r"]
        label = append(store, *events_of("trace/b", ("trace_labelled", {"outcome": "failure"})))
        store.erase([label[0].id])
        assert listed(store, "trace", status="success") == ["b"]

    def test_a_rebuild_makes_the_same_rows_from_the_log(self, store: Store) -> None:
        append(store, *trace("a", subject="ana"), *trace("b", goal="g" * 900, calls=3))
        append(store, *events_of("run/r", ("run_started", RUN), ("step_done", {"step": "s"})))
        append(store, *events_of("run/r", ("run_ended", {"status": "ok"})))
        append(store, *events_of("run/w", ("workflow_started", WORKFLOW)))
        store.erase([append(store, *events_of("run/w", ("step_done", {"step": "s"})))[0].id])
        learned = events_of("heuristic/h1", ("heuristic_learned", {"lesson": LESSON}))
        draft = ArtefactDraft(kind="heuristic", name="h1", body=LESSON)
        store.commit(Commit(events=learned, artefacts=[draft]))
        before = everything(store)
        made: list[int] = []
        store.summaries.rebuild(made.append)
        assert everything(store) == before
        assert sum(made) == len(before) == 5
        exported = list(store.read(EventQuery()))
        with self.another() as copy:  # type: ignore[attr-defined]  # of the suite of the log
            copy.commit_all([Commit(events=exported)])
            same = [msgspec.structs.replace(one, seq=0) for one in everything(copy)]
            assert same == [msgspec.structs.replace(one, seq=0) for one in before[:-1]]

    def test_a_commit_that_fails_leaves_no_summary(self, store: Store) -> None:
        append(store, *trace("a"))
        (known,) = list(store.read(EventQuery(kinds=["trace_started"])))
        with pytest.raises(DuplicateEvent):
            append(store, *trace("b"), msgspec.structs.replace(trace("c")[0], id=known.id))
        assert listed(store, "trace") == ["a"]
