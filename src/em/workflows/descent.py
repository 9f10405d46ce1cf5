"""Descent in a workflow's run: a step is made of what its needs brought, and of nothing else.

All events of one step belong together: its question, its intent, the results of its items, and
the inner run that it started. An edge between two steps thus leads from all events of one to all
of the other. The first event has the parameters and the prompt, which every step sees.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from em.errors import EmError
from em.log.event import Event, inner_run_id, run_stream
from em.log.kinds import ONLY, Edge, event_flow
from em.runner.run import later_events
from em.values.canonical import Json
from em.workflows.plan import ROUTINE, Plan, PlannedStep, plan_of


@event_flow("workflow_started")
def made_of_needs(events: Sequence[Event]) -> Iterable[Edge]:
    """Yield the edges of a run and its inner runs. Where the plan can't be read: later events."""
    first = events[0]
    try:
        plan = plan_of(msgspec.json.decode((first.body or {})["definition"]))
    except (EmError, KeyError, msgspec.DecodeError):
        return later_events(events)
    return _Descent(plan, events).edges()


class _Descent:
    """The edges of one run. A step is a node of its own, which no event has as its id."""

    def __init__(self, plan: Plan, events: Sequence[Event]) -> None:
        self._plan = plan
        self._events = events
        self._root = events[0].stream
        self._order = [step.name for step in plan.steps]
        self._done: set[str] = set()
        self._inner: dict[str, str] = {}
        for event in events:
            if event.stream == self._root and event.body is not None:
                self._look_at(event.kind, event.body)

    def _look_at(self, kind: str, body: Json) -> None:
        """Note which steps are done, and the streams of inner runs."""
        for step in _steps_in(kind, body):
            if kind == "step_done" and body["step"] == step and _is_done(body):
                self._done.add(step)
        for intent in (body, body.get("next") or {}):
            step = str(intent.get("step", ""))
            if intent.get("key") is not None and self._plan.tools.get(step) == ROUTINE:
                self._inner[run_stream(inner_run_id(str(intent["key"])))] = step

    def edges(self) -> Iterator[Edge]:
        """Yield every edge."""
        first = self._events[0]
        for name in self._order:
            yield first.id, self._node(name)
        for step in self._plan.steps:
            for source in self._needed(step):
                yield self._node(source), self._node(step.name)
        for stream, name in self._inner.items():
            yield self._node(name), stream
        for n, event in enumerate(self._events):
            if n:
                yield from self._edges_of(event, n)

    def _edges_of(self, event: Event, at: int) -> Iterator[Edge]:
        if event.body is None:
            # Nobody knows any more which step it belonged to.
            for later in self._events[at + 1 :]:
                yield event.id, later.id
        elif event.stream != self._root:
            yield from self._both(event.id, self._inner.get(event.stream, ""))
        elif event.kind == "run_ended":
            for step in self._ended_by(event.body):
                yield self._node(step), event.id
        else:
            for step in _steps_in(event.kind, event.body):
                if event.kind == "step_done" and step != event.body["step"]:
                    # The event also has the intent of the next step, and goes with that step.
                    yield self._node(step), ONLY + event.id
                else:
                    yield from self._both(event.id, step)

    def _both(self, event_id: str, step: str) -> Iterator[Edge]:
        for name in [step] if step in self._order else self._order:
            yield event_id, self._node(name)
            yield self._node(name), event_id

    def _needed(self, step: PlannedStep) -> Iterator[str]:
        """Yield the steps that left something which this step was given."""
        for need in step.needs:
            if need.kind == "step":
                yield need.target
            elif need.kind == "last_output":
                before = [name for name in self._order if name in step.before & self._done]
                yield from before[-1:]
            elif need.kind == "classification":
                yield from step.before

    def _ended_by(self, body: Json) -> Iterator[str]:
        """Yield the step whose output is the run's, and the step that failed."""
        yield from [name for name in self._order if name in self._done][-1:]
        failed = (body.get("failure") or {}).get("step_id")
        if failed:
            yield failed if failed in self._order else self._order[-1]

    def _node(self, step: str) -> str:
        return f"step {step} of {self._root}"


def _is_done(body: Json) -> bool:
    return body.get("status", "done") not in ("skipped", "defaulted")


def _steps_in(kind: str, body: Json) -> Iterator[str]:
    """Yield the steps that an event is about; nothing for one that is about no step."""
    if kind in ("step_started", "step_done"):
        yield str(body["step"])
        if body.get("next"):
            yield str(body["next"]["step"])
    elif kind == "run_paused":
        yield _asking(str(body["prompt"].get("step_id", "")))
    elif kind == "run_answered":
        yield from map(_asking, body["answers"])


def _asking(question: str) -> str:
    """Return the step of a question: `step`, `step?`, `step[2]?`, `step/question of a routine`."""
    return question.partition("/")[0].removesuffix("?").partition("[")[0]
