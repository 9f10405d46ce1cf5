"""What goes in and out over HTTP, as it is documented."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from em.heuristics.heuristic import Heuristic, How, Lesson, Polarity, Ranked, Use
from em.traces.trace import KeptTrace, Outcome
from em.values.canonical import Json

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000, pattern=r"\S")]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=512, description="printable characters")
]


class Pagination(msgspec.Struct, frozen=True):
    """Where in a collection this page is."""

    limit: int
    offset: int
    total: int


class HeuristicIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lesson: when (trigger), do (action), because (analysis)."""

    trigger: Text
    action: Text
    analysis: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    polarity: Polarity = "success"
    tools: list[Name] = []
    domain: Annotated[str, msgspec.Meta(max_length=512)] = ""
    source_task: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    subject: Name | None = None
    from_events: Annotated[
        list[Name], msgspec.Meta(max_length=100, description="ids of the events that show it")
    ] = []


class HeuristicOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A heuristic. `use` and `created_at` are told where it is read, `score` where it was found."""

    id: str
    trigger: str
    action: str
    analysis: str
    polarity: Polarity
    how: How
    tools: Sequence[str]
    domain: str
    subject: str | None
    source_task: str
    error: str
    from_events: Sequence[str]
    use: Use | None = None
    created_at: datetime | None = None
    retired: bool | None = None
    score: float | None = None
    reasons: dict[str, float] | None = None

    @classmethod
    def of_lesson(cls, lesson: Lesson, heuristic_id: str = "", **more: Any) -> "HeuristicOut":
        """A lesson as it is told."""
        return cls(
            id=heuristic_id or lesson.id,
            trigger=lesson.trigger,
            action=lesson.action,
            analysis=lesson.analysis,
            polarity=lesson.polarity,
            how=lesson.how,
            tools=lesson.tools,
            domain=lesson.domain,
            subject=lesson.subject,
            source_task=lesson.source_task,
            error=lesson.error,
            from_events=lesson.evidence.event_ids,
            **more,
        )

    @classmethod
    def of(cls, one: Heuristic, **more: Any) -> "HeuristicOut":
        """A heuristic as it is told."""
        known = {"use": one.use, "created_at": one.at, "retired": one.retired}
        return cls.of_lesson(one.lesson, one.id, **known, **more)

    @classmethod
    def of_ranked(cls, one: Ranked) -> "HeuristicOut":
        """A heuristic that was found for a task."""
        return cls.of(one.heuristic, score=one.score, reasons=one.reasons)


class Heuristics(msgspec.Struct, frozen=True):
    """A page of heuristics."""

    heuristics: Sequence[HeuristicOut]
    pagination: Pagination


class BriefingOut(msgspec.Struct, frozen=True):
    """A prompt section, and the heuristics in it; `notes` says what could not be done."""

    text: str
    heuristics: Sequence[HeuristicOut]
    notes: Sequence[str]


class FeedbackIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run ended that a heuristic was handed to."""

    outcome: Outcome
    task: Annotated[str, msgspec.Meta(max_length=20_000)] = ""


class RetireIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a heuristic is taken out of use."""

    reason: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


class StepIn(msgspec.Struct, frozen=True):
    """One step of a trajectory."""

    thought: str | None = None
    action: str | None = None
    args: Json = {}
    observation: Any = None
    error: Any = None


class TrajectoryIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One attempt at a task. `events` and `mission` in the place of `task` and `steps`: a trace."""

    task: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    steps: list[StepIn] | None = None
    outcome: Outcome = "unknown"
    input: Json = {}
    final_output: Any = None
    subject: Name | None = None
    mission: Json | None = None
    events: list[Json] | None = None
    app: Json = {}


class TrajectoryOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trajectory; its steps are told where it is read alone."""

    id: str
    task: str
    outcome: Outcome
    subject: str | None
    created_at: datetime | None = None
    steps: Sequence[Json] | None = None
    final_output: Any = None
    event_ids: Sequence[str] | None = None

    @classmethod
    def of(cls, kept: KeptTrace) -> "TrajectoryOut":
        """A trace as it is told."""
        trace = kept.trace
        output = None if trace.final_output is msgspec.UNSET else trace.final_output
        return cls(
            id=kept.id,
            task=trace.mission.goal,
            outcome=trace.outcome,
            subject=kept.subject,
            created_at=kept.at,
            steps=[msgspec.to_builtins(event) for event in trace.events],
            final_output=output,
            event_ids=kept.event_ids,
        )


class Trajectories(msgspec.Struct, frozen=True):
    """A page of trajectories."""

    trajectories: Sequence[TrajectoryOut]
    pagination: Pagination


class ReflectIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which trajectory to learn from: one that is kept, or this one. `llm`: also ask a model."""

    trajectory: TrajectoryIn | None = None
    trajectory_id: str | None = None
    store: bool = True
    llm: bool = False


class Reflected(msgspec.Struct, frozen=True):
    """What was learned; `trajectory_id` is empty where nothing was kept."""

    heuristics: Sequence[HeuristicOut]
    trajectory_id: str
    stored: bool


class HealthOut(msgspec.Struct, frozen=True):
    """Whether the service is ready: its store can be reached, and nothing is wrong with it."""

    status: str
    store: str
    version: str


class ObservationIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something learned about a subject: a text or a record."""

    subject: Name
    text: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    record: Json | None = None
    type: Name | None = None
    at: str | None = None
    speaker: Name | None = None
    role: Name | None = None
    session: Name | None = None
    source: Name | None = None


class Kept(msgspec.Struct, frozen=True):
    """The id of what was kept."""

    id: str


class EventOut(msgspec.Struct, frozen=True):
    """An event, without the salt and the hash of its body, which only prove it."""

    seq: int
    id: str
    stream: str
    pos: int
    subject: str | None
    kind: str
    v: int
    at: datetime
    recorded_at: datetime
    body: Json | None
    hash: str


class Events(msgspec.Struct, frozen=True):
    """Events, oldest first; ask for more with `after`, the `seq` of the last one."""

    events: Sequence[EventOut]
    more: bool


class Verified(msgspec.Struct, frozen=True):
    """Whether the log proves itself."""

    ok: bool
    events: int
    problems: Sequence[str]


class RoutineOut(msgspec.Struct, frozen=True):
    """A routine that is kept."""

    ref: str
    name: str
    version: int
    created_at: datetime
    retired: bool


class Routines(msgspec.Struct, frozen=True):
    """A page of routines."""

    routines: Sequence[RoutineOut]
    pagination: Pagination


class RunIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A routine of the memory (`name` or `name@version`) and its input."""

    routine: Name
    input: Json = {}
    answers: dict[str, Json] = {}


class AnswersIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person said, by the ids of prompts."""

    answers: dict[str, Json]


class RunOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run. `output` belongs to ok, `failure` to failed, `pending_prompt` to needs_input."""

    run_id: str
    status: str
    routine: str = ""
    output: Any = None
    failure: Json | None = None
    pending_prompt: Json | None = None
    started_at: datetime | None = None


class Runs(msgspec.Struct, frozen=True):
    """A page of runs, newest first."""

    runs: Sequence[RunOut]
    pagination: Pagination


class ParamOut(msgspec.Struct, frozen=True):
    """A parameter of a workflow."""

    name: str
    type: str | None
    required: bool


class WorkflowOut(msgspec.Struct, frozen=True):
    """A workflow of em.yaml."""

    name: str
    description: str
    params: Sequence[ParamOut]
    steps: Sequence[str]


class Workflows(msgspec.Struct, frozen=True):
    """A page of workflows, in the order of the file."""

    workflows: Sequence[WorkflowOut]
    pagination: Pagination


class WorkflowRunIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workflow of em.yaml, its parameters, and what started it."""

    workflow: Name
    params: Json = {}
    prompt: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    answers: dict[str, Json] = {}


class WorkflowRunOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run. `output` belongs to ok, `failure` to failed, `pending_prompt` to needs_input."""

    run_id: str
    workflow: str
    status: str
    output: Any = None
    failure: Json | None = None
    pending_prompt: Json | None = None
    warnings: Sequence[str] = ()
    started_at: datetime | None = None


class WorkflowRuns(msgspec.Struct, frozen=True):
    """A page of runs, newest first."""

    runs: Sequence[WorkflowRunOut]
    pagination: Pagination


class TokensOut(msgspec.Struct, frozen=True):
    """What was sent to models, about, beside what the full context would have been."""

    sent: int
    full: int
    told: int | None = None


class WorkflowSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A run, step by step: what each was given and left."""

    run_id: str
    workflow: str
    status: str
    prompt: str | None
    params: Json
    tokens: TokensOut
    steps: Sequence[Json]
