"""A trace that was kept comes back as it was."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from em import Memory
from em.errors import InputError, NotFound
from em.traces.catalogue import get_traces, list_traces
from em.traces.trace import Approval, Message, Mission, ToolCall, Trace, UdfCall
from em.values.call import Usage
from strategies import examples, traces

WHOLE = Trace(
    app={"name": "agent"},
    mission=Mission("Cancel the order", {"id": "#W1"}),
    events=[
        Message(role="user", text="please cancel #W1"),
        ToolCall(tool="cancel", args={"id": "#W1"}, result="done", duration_ms=3.5, tokens=12),
        UdfCall(function="total", args={"rows": [1, 2]}, result=3),
        Approval(prompt="Sure?", answer=True),
    ],
    final_output={"status": "cancelled"},
    outcome="success",
    thoughts=["it should be cancelled"],
    tags=["retail"],
    usage=Usage(tokens=120, cost_usd=0.01, model_calls=3),
)


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        trace_id = memory.add_trace(WHOLE)
        (kept,) = memory.traces()
        assert (kept.id, kept.trace) == (trace_id, WHOLE)
        assert len(kept.event_ids) == len(WHOLE.events) + 2
        assert get_traces(memory.store, [trace_id]) == [kept]


@given(traces())
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_trace_comes_back_as_it_was(trace: Trace) -> None:
    with Memory(":memory:") as memory:
        memory.add_trace(trace)
        assert [kept.trace for kept in memory.traces()] == [trace]


def test_traces_are_found_by_their_task_and_their_outcome(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for goal, outcome in (("Cancel an order", "success"), ("Cancel a trip", "failure")):
            memory.add_trace(Trace(mission=Mission(goal), outcome=outcome))  # type: ignore[arg-type]
        assert [kept.trace.mission.goal for kept in memory.traces(task="cancel")] == [
            "Cancel an order",
            "Cancel a trip",
        ]
        assert [kept.trace.mission.goal for kept in memory.traces("TRIP")] == ["Cancel a trip"]
        assert len(memory.traces(outcome="success")) == 1
        assert memory.traces("cancel", "unknown") == []


def test_a_trace_may_be_given_as_the_json_it_is(tmp_path: Path) -> None:
    plain = {"mission": {"goal": "g"}, "events": [{"type": "tool_call", "tool": "t", "args": {}}]}
    with Memory(tmp_path / "em.db") as memory:
        memory.add_trace(plain)
        memory.add_trace({"task": "g", "steps": [{"action": "t", "observation": 1}]})
        assert [kept.trace.mission.goal for kept in memory.traces()] == ["g", "g"]
        with pytest.raises(InputError):
            memory.add_trace({"events": 5})


def test_an_unknown_trace_and_an_erased_one_are_told(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        with pytest.raises(NotFound):
            get_traces(memory.store, ["nope"])
        trace_id = memory.add_trace(WHOLE)
        memory.forget(list(memory.log.read()))
        assert memory.traces() == []
        with pytest.raises(NotFound):
            get_traces(memory.store, [trace_id])


@pytest.mark.parametrize(
    ("mission", "title"),
    [
        ({"goal": "Cancel it", "input_summary": {"order": "W1"}}, "Cancel it"),
        ({"goal": " ", "input_summary": {"order": "W1", "n": 2, "why": None}}, "n: 2, order: W1"),
        ({"input_summary": {"order": "W1"}}, "order: W1"),
        ({}, "trace {id}"),
    ],
)
def test_every_trace_has_a_title(mission: dict[str, Any], title: str) -> None:
    with Memory(":memory:") as memory:
        memory.add_trace({"mission": mission, "events": [{"type": "tool_call", "tool": "look"}]})
        (one,) = list_traces(memory.store).traces
        assert one.title == title.format(id=one.id)
