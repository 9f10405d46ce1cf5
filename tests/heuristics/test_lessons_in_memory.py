"""Lessons in a memory: learned once each, found when they fit, kept healthy by their use."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.errors import InputError, LlmRefused, NotFound, UsageError
from em.heuristics.brief import after_failure
from em.heuristics.health import goes_along_with_failures
from em.heuristics.heuristic import Evidence, Heuristic, Lesson, Use, list_heuristics
from em.heuristics.lessons import Heuristics
from em.heuristics.reflection import call_ids
from em.llm import ScriptedClient
from em.llm.wires import Reply
from em.log.event import Draft
from em.store.postgres import PostgresStore
from em.store.protocol import Commit
from em.store.sqlite import SqliteStore
from em.testing import SECRET
from em.traces.trace import KeptTrace, Mission, Outcome, ToolCall, Trace, trace_events

TASK = "Load the order of ana@example.com"


def call(tool: str, error: str | None = None, **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args, error=error, result=None if error else "ok")


def recovered(goal: str = TASK, outcome: Outcome = "success", email: str = "a@b.c") -> Trace:
    return Trace(
        mission=Mission(goal),
        events=[
            call("insert_order", "Error: invalid total", email=email, total="12,50"),
            call("insert_order", email=email, total="12.50"),
        ],
        outcome=outcome,
    )


def twice(memory: Memory, **more: Any) -> Heuristic:
    """Two sessions teach a lesson."""
    memory.reflect(recovered(), **more)
    (learned,) = memory.reflect(recovered(email="x@y.z"), **more)
    return learned


def said(trigger: str, action: str, **more: Any) -> Lesson:
    return Lesson(trigger=trigger, action=action, **more)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def test_what_was_learned_briefs_the_next_attempt(memory: Memory) -> None:
    learned = twice(memory)
    briefing = memory.brief("insert the order of bo@example.com")
    assert briefing.ids == [learned.id]
    assert "Give total as" in briefing.text
    assert learned.id in briefing.text
    assert set(briefing.heuristics[0].reasons) == {
        "words", "coverage", "tools", "usefulness", "frequency", "recency", "meaning",
    }  # fmt: skip


def test_nothing_relevant_gives_an_empty_briefing(memory: Memory) -> None:
    assert not memory.brief("anything at all")
    twice(memory)
    briefing = memory.brief("bake bread with less salt")
    assert (briefing.text, list(briefing.heuristics), bool(briefing)) == ("", [], False)
    assert not memory.brief("")


def test_a_briefing_keeps_to_its_budget(memory: Memory) -> None:
    for tool in ("alpha", "beta", "gamma", "delta"):
        memory.heuristics.keep(
            [
                said(
                    f"the {tool} upload of a report breaks",
                    f"split it for {tool}",
                    analysis="x" * 400,
                )
            ]
        )
    task = "upload a report with alpha, beta, gamma and delta"
    everything = memory.brief(task)
    assert len(everything.heuristics) == 4
    for tokens in range(0, 400, 20):
        briefing = memory.brief(task, tokens=tokens)
        assert len(briefing.text) / 3 <= tokens
        assert len(briefing.text.splitlines()) in (0, len(briefing.heuristics) + 1)
    assert memory.brief(task, k=2).ids == everything.ids[:2]
    with pytest.raises(UsageError):
        memory.brief(task, tokens=-1)


def test_the_same_lesson_from_two_attempts_is_one_with_both_as_evidence(memory: Memory) -> None:
    (once,) = memory.reflect(recovered())
    assert (once.use.learned, once.use.seen) == (1, "seen once")
    (again,) = memory.reflect(recovered(email="x@y.z"))
    assert (again.id, again.use.learned) == (once.id, 2)
    traces = [lesson.evidence.trace for lesson in memory.heuristics.evidence(again.id)]
    assert traces == [kept.id for kept in memory.traces()]
    for lesson in memory.heuristics.evidence(again.id):
        assert [memory.log.get(e).kind for e in lesson.evidence.event_ids] == ["tool_call"] * 2


def test_a_lesson_in_words_is_told_again_at_the_failure_that_shows_it(memory: Memory) -> None:
    trace = Trace(mission=Mission(TASK), events=[call("Bash", "no table ana", command="make db")])
    memory.add_trace(trace)
    (failed,) = memory.traces()[0].happened_ids
    kept = memory.lesson("a table is missing", "Migrate first.", "so it says", evidence=[failed])
    assert (kept.lesson.how, list(kept.lesson.evidence.failed)) == ("given", [failed])
    assert after_failure(memory.store, "Bash", "Exit code 1\nError: no table bo") == []
    assert after_failure(memory.store, "Bash", "Exit code 1\nError: no table ana") == [kept]
    with pytest.raises(InputError, match="no event"):
        memory.lesson("a table is missing", "Migrate first.", evidence=["gone"])
    memory.add_trace(trace, subject="ana")
    own = next(kept.happened_ids for kept in memory.traces() if kept.subject == "ana")
    with pytest.raises(InputError, match="no event"):  # a lesson for everybody is not shown by hers
        memory.lesson("so", "do", evidence=own)
    assert memory.lesson("so", "do", evidence=own, subject="ana").lesson.subject == "ana"


def test_a_failure_of_a_shell_is_known_by_what_was_printed_and_not_by_its_status(
    memory: Memory,
) -> None:
    failed = "exit code 1: no database here\n"
    kept = memory.add_trace(
        Trace(mission=Mission(TASK), events=[call("exec_command", failed, cmd="sh load.sh")])
    )
    lesson = memory.lesson(
        "it is not set up", "Run make.", evidence=call_ids(kept_of(memory, kept))
    )
    assert lesson.lesson.error == "no database here"
    assert after_failure(memory.store, "Bash", "Exit code 1\nno database here") == [lesson]
    assert after_failure(memory.store, "Bash", "Exit code 1\nno such file") == []
    assert after_failure(memory.store, "insert", "no database here") == []


def test_the_failure_of_a_call_that_was_stored_before_it_ended_is_known(memory: Memory) -> None:
    drafts = trace_events(
        Trace(mission=Mission(TASK), events=[call("load", None)]), "t1", known_ids=True
    )
    (begun,) = (one for one in drafts if one.kind == "tool_call")
    body = {name: value for name, value in begun.body.items() if name != "result"}
    ended = Draft(
        stream=begun.stream,
        kind="call_ended",
        body={"call": begun.id, "error": "no table here", "from_events": [begun.id]},
    )
    events = [msgspec.structs.replace(one, body=body) if one is begun else one for one in drafts]
    memory.store.commit(Commit(events=[*events[:-1], ended, events[-1]]))
    lesson = memory.lesson("it is not set up", "Run make.", evidence=[begun.id]).lesson
    assert (lesson.error, list(lesson.evidence.failed)) == ("no table here", [begun.id])


def kept_of(memory: Memory, trace_id: str) -> KeptTrace:
    return next(one for one in memory.traces() if one.id == trace_id)


def test_reflecting_again_on_the_same_trace_changes_nothing(memory: Memory) -> None:
    ids = [memory.add_trace(recovered()), memory.add_trace(recovered(email="x@y.z"))]
    (first,) = memory.reflect(ids)
    head = memory.log.head_seq()
    assert memory.reflect(ids) == [first]
    assert memory.log.head_seq() == head


def test_near_duplicates_in_free_words_merge_and_keep_all_evidence(memory: Memory) -> None:
    book = memory.heuristics
    (one,) = book.keep([said("an insert fails on a foreign key", "insert the parent row first")])
    (same,) = book.keep([said("An insert fails on foreign keys", "First insert the parent row.")])
    (other,) = book.keep([said("an insert is slow", "insert many rows at once")])
    assert same.id == one.id != other.id
    assert same.use.learned == 2


def test_merging_by_hand_keeps_all_evidence_and_retires_the_other(memory: Memory) -> None:
    book = memory.heuristics
    one = twice(memory)
    (other,) = book.keep([said("a user is not found by email", "look for the name")])
    kept = book.merge(one.id, [other.id])
    assert kept.use.learned == 3
    assert book.get(other.id).retired
    assert [found.id for found in book.every()] == [one.id]
    assert {found.id for found in book.every(retired=True)} == {one.id, other.id}
    with pytest.raises(UsageError, match="itself"):
        book.merge(one.id, [one.id])


def test_the_opposite_advice_is_another_lesson(memory: Memory) -> None:
    book = memory.heuristics
    (do,) = book.keep([said("the cache is stale after a deploy", "Clear the cache by hand.")])
    (dont,) = book.keep(
        [said("the cache is stale after deploys", "Don't clear the cache by hand.")]
    )
    assert do.id != dont.id
    assert set(memory.brief("the cache is stale after our deploy").ids) == {do.id, dont.id}


def test_what_goes_along_with_failures_loses_rank_and_is_retired(memory: Memory) -> None:
    book = memory.heuristics
    (good,) = book.keep([said("the nightly import of orders hangs", "restart the import worker")])
    (bad,) = book.keep([said("the nightly import of orders hangs", "delete the queue of orders")])
    task = "the nightly import of orders hangs again"
    memory.feedback(bad.id, "success")
    memory.feedback(bad.id, "success")
    assert memory.brief(task).ids == [bad.id, good.id]
    for _ in range(4):
        memory.feedback([bad.id], "failure")
        memory.feedback([good.id], "success")
    assert memory.brief(task).ids == [good.id, bad.id]
    while not book.get(bad.id).retired:
        (found,) = memory.feedback([bad.id], "failure", task=task)
        assert found.use.used < 20
    assert memory.brief(task).ids == [good.id]
    assert book.get(bad.id).use.hindered > 6
    # Learning it again does not bring back what experience has retired.
    book.keep([bad.lesson])
    assert memory.brief(task).ids == [good.id]


def test_a_few_failures_are_no_proof() -> None:
    assert not goes_along_with_failures(Use())
    assert not goes_along_with_failures(Use(hindered=3))
    assert goes_along_with_failures(Use(hindered=5))
    assert not goes_along_with_failures(Use(helped=20, hindered=20))


def test_feedback_by_many_at_once_is_all_counted(memory: Memory) -> None:
    learned = twice(memory)
    threads = [
        threading.Thread(target=memory.feedback, args=([learned.id], "success")) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.heuristics.get(learned.id).use.helped == 8


def test_one_subjects_lessons_are_for_that_subject_alone(memory: Memory) -> None:
    own = twice(memory, subject="ana")
    task = "insert an order with a total"
    assert memory.brief(task, subject="ana").ids == [own.id]
    assert not memory.brief(task, subject="bo")
    assert not memory.brief(task)
    memory.forget(subject="ana")
    assert not memory.brief(task, subject="ana")
    with pytest.raises(NotFound):
        memory.heuristics.get(own.id)


def test_forgetting_one_attempt_leaves_the_lesson_that_others_taught_too(memory: Memory) -> None:
    memory.reflect(recovered(email="secret.person@example.com"))
    learned = twice(memory)
    first, second, third = memory.traces()
    memory.forget(first.event_ids)
    left = memory.heuristics.get(learned.id)
    assert left.use.learned == 2
    assert "secret.person" not in repr(left)
    assert memory.brief("insert an order with a total").ids == [learned.id]
    memory.forget([*second.event_ids, *third.event_ids])
    assert not memory.brief("insert an order with a total")
    with pytest.raises(NotFound):
        memory.heuristics.get(learned.id)
    assert memory.log.verify().ok


def test_secrets_of_a_trace_reach_neither_lessons_nor_model(memory: Memory) -> None:
    secret = SECRET
    trace = Trace(
        mission=Mission("call the API"),
        events=[
            call("fetch", f"Error: bad day {secret}", url="u", api_key=secret, day="1.2.2025"),
            call("fetch", url="u", api_key=secret, day="2025-1-2"),
        ],
    )
    client = ScriptedClient([{"lessons": []}] * 2)
    memory.reflect(trace, client)
    again = msgspec.structs.replace(trace, mission=Mission("call the API again"))
    (learned,) = memory.reflect(again, client)
    assert "Give day as" in learned.lesson.action
    assert secret not in repr(learned)
    assert secret not in client.requests[0].prompt
    assert all(secret not in repr(event) for event in memory.log.read())
    assert memory.heuristics.get(learned.id).lesson.id == learned.id


def test_a_secret_in_the_name_of_a_tool_reaches_neither_lessons_nor_model(memory: Memory) -> None:
    fetch = f"curl -H 'Authorization: Bearer {SECRET}' https://shop.test/orders"
    events = [call(fetch, "invalid total", total="12,50"), call(fetch, total="12.50")]
    kept, _ = memory.heuristics.to_keep(Trace(mission=Mission("load the orders"), events=events))
    client = ScriptedClient([{"lessons": []}])
    (lesson,) = memory.heuristics.lessons_of(kept, client)
    assert "[redacted:" in lesson.trigger
    assert SECRET not in repr((kept, lesson, client.requests))


def test_a_refusing_model_stores_nothing_and_says_so(memory: Memory) -> None:
    client = ScriptedClient([Reply(text="", refusal="no")])
    with pytest.raises(LlmRefused):
        memory.reflect(recovered(), client)
    assert memory.log.head_seq() == 0


def test_a_model_may_put_the_lessons_in_order_and_leave_some_out(memory: Memory) -> None:
    book = memory.heuristics
    (one,) = book.keep([said("a report upload breaks", "split the report")])
    (two,) = book.keep([said("a report upload is refused", "sign the report")])
    client = ScriptedClient([{"ids": [two.id]}])
    assert memory.brief("the upload of a report breaks", client=client).ids == [two.id]
    assert one.id in client.requests[0].prompt


def test_both_stores_rank_alike(store: SqliteStore | PostgresStore) -> None:
    book = Heuristics(store)
    (one,) = book.keep([said("an insert fails on a foreign key", "insert the parent row first")])
    book.keep([said("an insert is slow", "insert many rows at once")])
    assert book.brief("debug a failing SQL insert: foreign key error").ids[0] == one.id
    assert book.feedback(one.id, "success")[0].use.helped == 1
    assert book.retire(one.id, "tired of it").retired
    assert one.id not in book.brief("debug a failing SQL insert: foreign key error").ids


def test_lessons_of_older_rules_are_loaded_and_shown_but_not_told(memory: Memory) -> None:
    book = memory.heuristics
    old = said(
        "Write fails with: file has not been read yet",
        "Call it again with a different file_path.",
        how="recovery",
        error="file has not been read yet",
        tools=["Write"],
        key="Write|file has not been read yet|file_path<",
        evidence=Evidence(trace="t1", failed=["t1-1"], worked=["t1-2"], note="x"),
    )
    (kept,) = book.keep([old])  # as an older em stored it: without a form
    assert book.get(kept.id).lesson == old
    assert not memory.brief("Write fails: the file has not been read yet")
    assert after_failure(memory.store, "Write", "file has not been read yet") == []
    assert [one.id for one in book.retire_outdated()] == [kept.id]
    assert list(book.every()) == []


def moved(memory: Memory) -> Memory:
    """A new memory with the same log."""
    other = Memory("moved.db")
    lines = io.BytesIO(b"".join(memory.log.export()))
    other.log.import_file(lines, "export")
    return other


def as_told(memory: Memory) -> list[tuple[Any, ...]]:
    found = memory.heuristics.every(retired=True)
    return [(one.id, one.lesson, one.retired, one.use.learned, one.use.helped) for one in found]


def test_lessons_come_from_the_log_again_in_a_new_memory(memory: Memory) -> None:
    learned = twice(memory)
    cases = [("the disk is full", "Delete the cache."), ("the fan is loud", "Clean it.")]
    _, old = memory.heuristics.keep([said(when, do) for when, do in cases])
    memory.feedback([learned.id, old.id], "success")
    memory.heuristics.retire(old.id, "not ours")
    other = moved(memory)
    assert as_told(other) == []
    assert other.heuristics.restore() == 3
    assert sorted(as_told(other)) == sorted(as_told(memory))
    assert other.heuristics.restore() == 0
    assert other.brief("insert an order with a total").ids == [learned.id]
    assert [one.id for _, one in list_heuristics(other.store)] != []
    assert not other.brief("the fan is loud")
    assert other.log.verify().ok
    other.close()


def test_learning_again_what_an_import_brought_stores_it(memory: Memory) -> None:
    learned = twice(memory)
    retired = memory.heuristics.keep([said("the fan is loud", "Clean it.")])[0]
    memory.heuristics.retire(retired.id)
    other = moved(memory)
    traces = other.heuristics.every_trace()
    kept = other.heuristics.keep(other.heuristics.lessons_in(traces))
    assert [one.id for one in kept] == [learned.id]
    assert [one.id for one in other.heuristics.every()] == [learned.id]
    other.heuristics.keep([said("the fan is loud", "Clean it.")])
    assert [one.id for one in other.heuristics.every()] == [learned.id]
    other.close()
