"""A person says how an attempt ended: the label counts, and what was recorded stays in the log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sessions import lines, order_session
from tests.cli.em_command import em

from em import AsyncMemory, Memory
from em.errors import InputError, NotFound
from em.log.kinds import body_type
from em.traces.catalogue import attempts, get_traces, list_traces
from em.traces.trace import TraceLabelled
from em.traces.watch import Watch


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "memory.db") as memory:
        yield memory


UNLABELLED = {"task": "Pay back", "steps": [{"action": "pay", "args": {"id": 1}}]}


def test_the_last_label_counts_for_reading_listing_and_compiling(memory: Memory) -> None:
    trace = memory.add_trace(UNLABELLED)
    assert attempts(memory.store) == {}
    memory.label(trace, "failure")
    memory.label(trace, "success", reason="the customer said so")
    (kept,) = memory.traces(outcome="success")
    assert (kept.trace.outcome, kept.label) == (
        "success",
        TraceLabelled(outcome="success", reason="the customer said so"),
    )
    assert attempts(memory.store) == {"Pay back": [trace]}
    assert list_traces(memory.store, outcome="unknown").traces == []
    memory.label(trace, "unknown")
    assert attempts(memory.store) == {}


def test_a_label_is_an_event_about_the_trace_and_the_recording_stays(memory: Memory) -> None:
    trace = memory.add_trace({**UNLABELLED, "outcome": "failure"}, subject="ana")
    labelled = memory.label(trace, "success")
    events = list(memory.log.read(stream=f"trace/{trace}"))
    assert [event.kind for event in events][-2:] == ["trace_ended", "trace_labelled"]
    assert events[-2].body is not None
    assert events[-2].body["outcome"] == "failure"
    assert (events[-1].id, events[-1].subject) == (labelled.id, "ana")
    (kept,) = get_traces(memory.store, [trace])
    assert labelled.id in kept.event_ids, "what is compiled because of a label comes from it"
    assert body_type("trace_labelled") is TraceLabelled


def test_a_label_that_is_forgotten_no_longer_counts(memory: Memory) -> None:
    trace = memory.add_trace(UNLABELLED)
    memory.forget([memory.label(trace, "success")])
    assert memory.traces()[0].trace.outcome == "unknown"
    assert list_traces(memory.store).traces[0].outcome == "unknown"


def test_a_label_given_after_a_page_began_is_on_the_next_page(memory: Memory) -> None:
    first = memory.add_trace({**UNLABELLED, "outcome": "failure"})
    memory.label(first, "unknown")
    memory.add_trace(UNLABELLED)
    page = list_traces(memory.store, limit=1)
    memory.label(first, "success")
    (older,) = list_traces(memory.store, before=page.older).traces
    assert (older.id, older.outcome) == (first, "success")


def test_what_is_no_outcome_and_no_trace_is_refused(memory: Memory) -> None:
    trace = memory.add_trace(UNLABELLED)
    with pytest.raises(InputError, match="good"):
        memory.label(trace, "good")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        memory.label("nope", "success")
    assert len(list(memory.log.read(stream=f"trace/{trace}"))) == 3


def test_a_label_counts_although_the_transcript_goes_on(tmp_path: Path, memory: Memory) -> None:
    session = order_session("s1", "W1")
    path = tmp_path / "s1.jsonl"
    path.write_bytes(lines(*session[:4]))
    watch = Watch(memory.store, tmp_path, settled=0.0)
    list(watch.look())
    (kept,) = memory.traces()
    memory.label(kept.id, "success")
    path.write_bytes(lines(*session))
    for _ in range(3):
        list(watch.look())
    memory.label(kept.id, "failure")
    watch.finish()
    (grown,) = memory.traces()
    assert (grown.trace.outcome, len(grown.trace.calls)) == ("failure", 3)


def test_a_watch_survives_a_label_between_the_last_line_and_the_end(
    tmp_path: Path, memory: Memory
) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(lines(*order_session("s1", "W1")))
    watch = Watch(memory.store, tmp_path, settled=3600.0)
    list(watch.look())
    memory.label(memory.traces()[0].id, "success")
    watch.finish()
    list(watch.look())
    (kept,) = memory.traces()
    ended = memory.log.read(stream=f"trace/{kept.id}", kinds=["trace_ended"])
    assert (kept.trace.outcome, len(list(ended))) == ("success", 1)


def test_an_async_memory_labels_too(tmp_path: Path) -> None:
    async def label() -> str:
        async with AsyncMemory(tmp_path / "other.db") as other:
            trace = await other.add_trace(UNLABELLED)
            await other.label(trace, "success")
            return str((await other.traces())[0].trace.outcome)

    assert asyncio.run(label()) == "success"


def test_the_command_labels_several_or_none() -> None:
    with Memory() as memory:
        ids = [memory.add_trace({**UNLABELLED, "task": task}) for task in ("Pay", "Call")]
    ran = em("traces", "label", *ids, "success", "--reason", "checked")
    assert ran.code == 0, ran.err
    assert f"{ids[0]}: success (was unknown)" in ran.out
    shown = em("traces", "show", ids[1])
    assert "labelled success: checked" in shown.out
    again = em("traces", "label", ids[0], "failure", "--json").json
    assert again == {"traces": [{"id": ids[0], "outcome": "failure", "was": "success"}]}
    assert "failure" in em("traces", "list").out
    assert em("traces", "label", ids[0], "great").code == 2
    missing = em("traces", "label", ids[0], "nope", "unknown")
    assert (missing.code, "there is no trace 'nope'" in missing.err) == (1, True)
    assert em("traces", "show", ids[0], "--json").json["trace"]["trace"]["outcome"] == "failure"
