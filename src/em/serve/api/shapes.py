"""Shapes of HTTP requests and responses, as the API documents them.

A model is sent as it is where its fields are those that are promised. A shape of its own says in
its docstring how its promise differs from the model's. Shapes of requests are stricter than models:
they limit lengths and reject unknown fields.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from em.compiler.shadow import Comparison
from em.heuristics.heuristic import Heuristic, How, Lesson, Polarity, Ranked, Use
from em.runner.run import Failure, PendingPrompt, Planned, Reason
from em.runner.standing import StoredRoutine
from em.state.checkpoint import Checkpoint
from em.state.knowledge import Unread
from em.state.questions import Answer
from em.state.rules import Alert, written_condition
from em.state.schema import Constraint, Coverage, PolicyName, Severity, StateSchema, Verdict
from em.state.state import Conflict, Origin, Unstructured
from em.store.protocol import Passage
from em.traces.catalogue import TraceSummary
from em.traces.trace import KeptTrace, Outcome, Source
from em.values.canonical import Json
from em.work.job import Kind, State
from em.workflows.inspection import StepView
from em.workflows.slices import StepTokens

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000, pattern=r"\S")]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=512, description="Printable characters.")
]


S = TypeVar("S", bound=msgspec.Struct)


def fill(shape: type[S], model: object, **more: Any) -> S:
    """Fill a shape with a model's fields of the same names; `more` adds fields or replaces them."""
    same = {name: getattr(model, name) for name in shape.__struct_fields__ if hasattr(model, name)}
    return shape(**{**same, **more})


class Pagination(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of a page in its collection.

    Lists of runs, traces and lessons count up to 1,000, so that a page costs what it shows. `next`
    is the `cursor` of the next page, if there is one.
    """

    limit: int
    offset: int
    total: int
    next: str | None = None


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
        list[Name], msgspec.Meta(max_length=100, description="Ids of the events that show it.")
    ] = []


class HeuristicOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A heuristic: its lesson and its use, flat, without the key that only finds duplicates.

    `doubt` says why agents are not told; it is empty if they are. `source` is the least trusted of
    what it comes from.
    `use`, `created_at` and `retired` are there once it is stored, `score` and `reasons` where it
    was found for a task.
    """

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
    program: str
    doubt: str
    source: Source
    from_events: Sequence[str]
    use: Use | None = None
    created_at: datetime | None = None
    retired: bool | None = None
    score: float | None = None
    reasons: dict[str, float] | None = None

    @classmethod
    def of_lesson(cls, lesson: Lesson, **more: Any) -> "HeuristicOut":
        """Show a lesson that may not be stored yet."""
        return fill(cls, lesson, from_events=lesson.evidence.event_ids, **more)

    @classmethod
    def of(cls, one: Heuristic, **more: Any) -> "HeuristicOut":
        """Show a stored heuristic."""
        known = {"id": one.id, "use": one.use, "created_at": one.at, "retired": one.retired}
        return cls.of_lesson(one.lesson, **known, **more)

    @classmethod
    def of_ranked(cls, one: Ranked) -> "HeuristicOut":
        """Show a heuristic that was found for a task."""
        return cls.of(one.heuristic, score=one.score, reasons=one.reasons)


class Heuristics(msgspec.Struct, frozen=True):
    """A page of heuristics."""

    heuristics: Sequence[HeuristicOut]
    pagination: Pagination


class BriefingOut(msgspec.Struct, frozen=True):
    """A prompt section and the heuristics in it. `notes`: what was skipped, and why."""

    text: str
    heuristics: Sequence[HeuristicOut]
    notes: Sequence[str]


class FeedbackIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a run that used a heuristic."""

    outcome: Outcome
    task: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=512)] | None = None


class RetireIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a heuristic is retired."""

    reason: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


class StepIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a trajectory."""

    thought: str | None = None
    action: Annotated[str, msgspec.Meta(description="The tool that was called.")] | None = None
    args: Json = {}
    observation: Annotated[Any, msgspec.Meta(description="The tool's result.")] = None
    error: Annotated[Any, msgspec.Meta(description="The tool's error.")] = None


class TrajectoryIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One attempt at a task: `task` and `steps`, or a trace's `mission` and `events`."""

    task: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    steps: list[StepIn] | None = None
    outcome: Outcome = "unknown"
    incomplete: Annotated[
        str, msgspec.Meta(description="Why calls may be missing.", max_length=2_000)
    ] = ""
    input: Json = {}
    final_output: Any = None
    subject: Name | None = None
    mission: Json | None = None
    events: list[Json] | None = None
    app: Json = {}


class LabelIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says about how a trajectory ended."""

    outcome: Outcome
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class TrajectoryOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trace, flat. Steps, output and event ids are present where one trace is read."""

    id: str
    task: str
    outcome: Outcome
    subject: str | None
    incomplete: Annotated[
        str, msgspec.Meta(description="Why calls may be missing; it can't be compiled then.")
    ] = ""
    created_at: datetime | None = None
    steps: Sequence[Json] | None = None
    final_output: Any = None
    event_ids: Sequence[str] | None = None

    @classmethod
    def in_short(cls, one: TraceSummary) -> "TrajectoryOut":
        """Show a trace in a list, without its steps."""
        return cls(
            id=one.id,
            task=one.goal,
            outcome=one.outcome,
            incomplete=one.incomplete,
            subject=one.subject,
            created_at=one.at,
        )

    @classmethod
    def of(cls, stored: KeptTrace) -> "TrajectoryOut":
        """Show one trace with its steps."""
        trace = stored.trace
        output = None if trace.final_output is msgspec.UNSET else trace.final_output
        return cls(
            id=stored.id,
            task=trace.mission.goal,
            outcome=trace.outcome,
            incomplete=trace.incomplete,
            subject=stored.subject,
            created_at=stored.at,
            steps=[msgspec.to_builtins(event) for event in trace.events],
            final_output=output,
            event_ids=stored.event_ids,
        )


class Trajectories(msgspec.Struct, frozen=True):
    """A page of trajectories."""

    trajectories: Sequence[TrajectoryOut]
    pagination: Pagination


class ReflectIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The trajectory to learn from, given or stored. `llm`: also ask the server's model."""

    trajectory: TrajectoryIn | None = None
    trajectory_id: str | None = None
    store: bool = True
    llm: bool = False


class Reflected(msgspec.Struct, frozen=True):
    """The lessons that were learned. `trajectory_id` is empty if nothing was stored."""

    heuristics: Sequence[HeuristicOut]
    trajectory_id: str
    stored: bool


class HealthOut(msgspec.Struct, frozen=True):
    """Whether the service is ready: ok, degraded, unreachable or stopping."""

    status: str
    store: str
    version: str


class LiveOut(msgspec.Struct, frozen=True):
    """Whether the process responds."""

    status: str


class ObservationIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something learned about a subject: a text or a record.

    facts, rules: what the text states, each with its evidence; the next checkpoint checks them.
    event: the id of a stored text that they were read in, in place of the text.
    """

    subject: Name
    text: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    record: Json | None = None
    type: Name | None = None
    at: str | None = None
    speaker: Name | None = None
    role: Name | None = None
    addressee: Name | None = None
    session: Name | None = None
    agent: Name | None = None
    run: Name | None = None
    source: Name | None = None
    origin: Source | None = None
    metadata: Json | None = None
    facts: list[Json] | None = None
    rules: list[Json] | None = None
    event: Name | None = None


class Kept(msgspec.Struct, frozen=True):
    """The id of the event that was stored."""

    id: str


class EventOut(msgspec.Struct, frozen=True):
    """An event without `salt` and `body_hash`, which only serve to verify the chain."""

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
    """Events, oldest first. For the next page pass the last `seq` as `after`."""

    events: Sequence[EventOut]
    more: bool


class ForgetIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to forget: events, the events of traces and runs, everything about a subject.

    dry_run: erase nothing, only list what would be erased.
    """

    events: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    traces: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    runs: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    subject: Name | None = None
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    dry_run: bool = False


class Forgotten(msgspec.Struct, frozen=True):
    """What was erased, or in a dry run what would be: ids by noun and kind.

    scrubbed: whether it is also gone from the files; if not, `scrub_problem` tells why.
    """

    gone: dict[str, dict[str, list[str]]]
    is_dry_run: bool
    scrubbed: bool
    scrub_problem: str


class Verified(msgspec.Struct, frozen=True):
    """Whether the log verifies, and the problems found."""

    ok: bool
    events: int
    problems: Sequence[str]


class Routines(msgspec.Struct, frozen=True):
    """A page of routines."""

    routines: Sequence[StoredRoutine]
    pagination: Pagination


class CheckOut(msgspec.Struct, frozen=True):
    """One check of a learnt routine, which a person can strike by its id.

    held: in how many recordings it held. is_late: a write comes before it.
    """

    id: str
    step_id: str
    text: str
    held: str
    is_late: bool


class Checks(msgspec.Struct, frozen=True):
    """The checks of a learnt routine, and those that were struck."""

    checks: Sequence[CheckOut]
    struck: Sequence[str]


class StrikeIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a check that a person strikes, or of several, and why."""

    check: str | Sequence[str]
    reason: str = ""


class ShadowOut(msgspec.Struct, frozen=True, kw_only=True):
    """How often one version of a routine agreed with the agent; without its comparisons."""

    routine: str
    agreed: int
    differed: int
    handed_over: int
    not_compared: int
    in_a_row: int
    last_difference: Comparison | None


class Shadows(msgspec.Struct, frozen=True):
    """A page of routines that were compared with agents."""

    routines: Sequence[ShadowOut]
    pagination: Pagination


class Comparisons(msgspec.Struct, frozen=True):
    """A page of comparisons."""

    comparisons: Sequence[Comparison]
    pagination: Pagination


class RunIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored routine (`name` or `name@version`) and its input.

    subject: who the run is about; it is forgotten with them. llm: the server's model may read a
    request in words.
    """

    routine: Name
    input: Json = {}
    answers: dict[str, Json] = {}
    subject: Name | None = None
    llm: bool = False


class MatchIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked for, in words.

    tools: only routines that need no other tools than these. llm: the server's model may read it.
    """

    request: Text
    tools: list[str] | None = None
    llm: bool = False


class MatchOut(msgspec.Struct, frozen=True, kw_only=True):
    """The routine in use that a request asks for, and its inputs; null if none does.

    why: what matched it. offered: routines whose recorded requests are like it, the best first.
    """

    routine: str | None = None
    inputs: Json = {}
    why: str = ""
    offered: list[str] = []


class CommitIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan by its token, and the subject that it was prepared for."""

    plan: Name
    subject: Name | None = None


class PreparedOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run up to its first write: what was read, and what would be written.

    The status says how the run would go. `token` commits just this, once, for 15 minutes; there is
    none if the run would ask, hand over or fail. `text` is all of it in words.
    """

    status: str
    token: str = ""
    text: str = ""
    context: Json = {}
    planned: Sequence[Planned] = ()
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    reason: Reason | None = None


class AnswersIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers, by the ids of the steps that ask."""

    answers: dict[str, Json]


class RetryIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be taken up where it stopped. answers: to what it asks on its way, if known."""

    answers: dict[str, Json] = {}


class RunOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's result, with its routine and start; without its steps, which can be large.

    `output` belongs to ok, `failure` to failed, `pending_prompt` or `reason` to needs_input. With a
    `reason` it handed over: a check failed before anything was done, and nothing can be answered.
    `chosen` has a required input that was not given, where only this value passed all checks.
    """

    run_id: str
    status: str
    routine: str = ""
    chosen: Json = {}
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    reason: Reason | None = None
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
    """A workflow of em.yaml, its parameters, the prompt that starts it, and who it is about."""

    workflow: Name
    params: Json = {}
    prompt: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    answers: dict[str, Json] = {}
    subject: Name | None = None


class WorkflowRunOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's result, with its start; `/workflow-runs/{id}/steps` has the outputs of its steps.

    `output` belongs to ok, `failure` to failed, `pending_prompt` to needs_input.
    """

    run_id: str
    workflow: str
    status: str
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    warnings: Sequence[str] = ()
    started_at: datetime | None = None


class WorkflowRuns(msgspec.Struct, frozen=True):
    """A page of runs, newest first."""

    runs: Sequence[WorkflowRunOut]
    pagination: Pagination


class WorkflowSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A run, step by step: context, output and tokens of each. The run itself has its result."""

    run_id: str
    workflow: str
    status: str
    prompt: str | None
    params: Json
    tokens: StepTokens
    steps: Sequence[StepView]


When = Annotated[str, msgspec.Meta(max_length=64, description="An ISO 8601 date or time.")]


class PassageOut(msgspec.Struct, frozen=True, kw_only=True):
    """A passage, without its `number`, which changes when the index is rebuilt."""

    event_id: str
    text: str
    at: datetime
    recorded_at: datetime
    score: float
    subject: str | None
    stream: str
    kind: str
    speaker: str | None
    role: str | None
    session: str | None
    agent: str | None = None
    run: str | None = None
    metadata: Json = {}
    start: int
    neighbours: Sequence["PassageOut"] = ()

    @classmethod
    def of(cls, passage: Passage) -> "PassageOut":
        """Show a passage and its neighbours."""
        return fill(cls, passage, neighbours=[cls.of(one) for one in passage.neighbours])


class RecalledOut(msgspec.Struct, frozen=True):
    """Passages, best first. `notes`: what was skipped, and why."""

    passages: Sequence[PassageOut]
    notes: Sequence[str]


class CheckpointIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The subject to checkpoint, and how. `llm`: also ask the server's model."""

    subject: Name
    accept: bool = False
    again: bool = False
    rebuild: bool = False
    llm: bool = False


class CheckpointOut(msgspec.Struct, frozen=True):
    """The result of a checkpoint, with its changes as text."""

    subject: str
    version: int
    new_events: int
    coverage: Coverage
    changes: Sequence[str]
    problems: Sequence[str]
    rebuilt: bool
    proposed: Sequence[str]

    @classmethod
    def of(cls, done: Checkpoint) -> "CheckpointOut":
        """Show what a checkpoint did."""
        return fill(cls, done, changes=[str(change) for change in done.changes])


class StateOut(msgspec.Struct, frozen=True):
    """A subject's state: its facts, and the number of records in each collection.

    unread: the newer texts that nobody has read and that mention what is known.
    """

    subject: str
    version: int
    profile: Json
    collections: dict[str, int]
    coverage: Coverage
    unstructured: Sequence[Unstructured]
    unread: Sequence[Unread]


class CodeOut(msgspec.Struct, frozen=True):
    """The module that a subject's state was compiled to."""

    subject: str
    version: int
    code: str


class RecordOut(msgspec.Struct, frozen=True):
    """A record as it was observed, and the ids of its events."""

    record: Any
    event_ids: Sequence[str]


class Records(msgspec.Struct, frozen=True):
    """A page of a collection."""

    records: Sequence[RecordOut]
    pagination: Pagination


class AskIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, or code for it, which runs in the sandbox.

    llm: the server's model may write code to answer the question.
    """

    subject: Name
    question: Text | None = None
    code: Text | None = None
    as_of: When | None = None
    llm: bool = False


class AnswerOut(msgspec.Struct, frozen=True, kw_only=True):
    """An answer by code (`value`), or the passages that may contain it (`passages`).

    The model has both in `value`; here each has one type.
    """

    value: Any
    passages: Sequence[PassageOut]
    route: Literal["code", "recall"]
    question: str
    code: str
    parameters: Json
    records: int
    event_ids: Sequence[str]
    kept: bool
    asked_model: bool
    note: str
    unread: Sequence[str]

    @classmethod
    def of(cls, answer: Answer) -> "AnswerOut":
        """Show an answer."""
        if answer.route == "recall":
            found = [PassageOut.of(passage) for passage in answer.value]
            return fill(cls, answer, value=None, passages=found)
        return fill(cls, answer, passages=())


class CheckIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action to check before taking it, and its details by name."""

    subject: Name
    action: Name
    details: Json = {}


class Alerts(msgspec.Struct, frozen=True):
    """The alerts of rules, most severe first."""

    alerts: Sequence[Alert]


class EntryOut(msgspec.Struct, frozen=True):
    """One observed value of a field: when it was true, and when it was recorded."""

    value: Any
    at: datetime
    recorded_at: datetime
    event_ids: Sequence[str]
    source: str | None
    status: str


class ConflictOut(msgspec.Struct, frozen=True):
    """Differing values of one field, and how the conflict was resolved.

    The model's entries are of a generated class, which no schema can describe.
    """

    field: str
    key: Sequence[Any]
    value: Any
    policy: str
    open: bool
    event_ids: Sequence[str]
    against: Sequence[str]
    entries: Sequence[EntryOut]

    @classmethod
    def of(cls, found: Conflict) -> "ConflictOut":
        """Show a conflict."""
        return fill(cls, found, entries=[fill(EntryOut, one) for one in found.entries])


class Conflicts(msgspec.Struct, frozen=True):
    """A subject's conflicts, open ones first."""

    conflicts: Sequence[ConflictOut]


class RuleOut(msgspec.Struct, frozen=True):
    """A rule that a model derived, with a person's verdict and its condition as Python."""

    id: str
    severity: Severity
    message: str
    verdict: Verdict
    action: str | None
    code: str
    event_ids: Sequence[str]

    @classmethod
    def of(cls, rule: Constraint, schema: StateSchema) -> "RuleOut":
        """Show a rule."""
        code = written_condition(rule, schema)
        return cls(
            rule.id, rule.severity, rule.message, rule.verdict, rule.action, code, rule.events
        )


class Rules(msgspec.Struct, frozen=True):
    """A subject's derived rules, the worst first."""

    rules: Sequence[RuleOut]


class Origins(msgspec.Struct, frozen=True):
    """Where a fact comes from, or each of the records of an event."""

    origins: Sequence[Origin]


class CorrectIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's correction of the record that came from an event: new values of its fields."""

    subject: Name
    event_id: Name
    changes: Json


class AcceptIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An observation that a person accepts, by its event."""

    subject: Name
    event_id: Name


class RetractIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to take back: a field such as `profile.city`, or the record that came from an event.

    key: that of the record whose field it is; empty for the profile.
    """

    subject: Name
    field: Name | None = None
    event_id: Name | None = None
    key: list[Any] = []


class RuleIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's verdict on a rule that a model derived."""

    subject: Name
    rule: Name
    verdict: Verdict


class ResolveIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's decision about a field: `value`, `event` or `policy`.

    Where an event has several values for the field, `value` and `key` say which is right.
    """

    subject: Name
    field: Name
    value: Any = None
    event: Name | None = None
    policy: PolicyName | None = None
    order: list[Name] = []
    key: list[Any] | None = None


class ReviewIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says about a routine that is compiled, as with `em compile`.

    inputs: arguments (`subject`, `send_mail.subject`) that become inputs. constants: inputs or
    arguments that are always as recorded. fresh: forget what was said about the version before.
    """

    inputs: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    constants: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    fresh: bool = False


class JobIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work to queue.

    name: the routine or workflow to run, or the name of the routine to compile.
    inputs: one run for each, of routines and workflows.
    subjects: to checkpoint or to embed; none stands for all. traces: to compile or to reflect on.
    subject: who the runs are about. llm: use the model that the worker is configured with.
    review: what a person says about the routine that these traces are compiled to.
    """

    kind: Kind
    name: Annotated[str, msgspec.Meta(max_length=512)] = ""
    inputs: Annotated[list[Json], msgspec.Meta(max_length=10_000)] = []
    prompt: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    subjects: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    traces: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    subject: Name | None = None
    queue: Name | None = None
    llm: bool = False
    review: ReviewIn | None = None


class JobOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, with its results when it has ended.

    done: how many items are done. waiting: the runs that wait for an answer, each with the command
    that resumes it. failed: what failed, each with its reason. problem: why it could not run.
    """

    id: str
    state: State
    kind: str = ""
    name: str = ""
    subject: str | None = None
    items: int = 0
    queue: str | None = None
    worker: str | None = None
    attempts: int = 0
    queued_at: datetime | None = None
    ended_at: datetime | None = None
    done: int = 0
    waiting: dict[str, str] = {}
    failed: dict[str, str] = {}
    problem: str = ""


class JobsQueued(msgspec.Struct, frozen=True):
    """The jobs that were queued."""

    jobs: list[JobOut]


class Jobs(msgspec.Struct, frozen=True):
    """A page of jobs."""

    jobs: list[JobOut]
    pagination: Pagination
