"""The built-in MCP tools. Agents read the docstrings of the functions here.

The tools are listed before the SDK is imported, so each imports what it works with when it is
called.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from em.errors import InputError, NotFound
from em.serve.api.step import StepIn
from em.serve.auth import Access, Caller
from em.store.protocol import Passage
from em.traces.trace import Outcome
from em.values.canonical import Json, short
from em.values.mismatch import closest, mismatch

if TYPE_CHECKING:
    from em.serve.api.shapes import TrajectoryOut
    from em.serve.mcp.desk import Desk


def _about(description: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **limits)


Subject = Annotated[
    str,
    _about("The person or thing it is about, such as a user's name.", min_length=1, max_length=512),
]
Limit = Annotated[int, _about("Return at most this many.", ge=1, le=100)]
Moment = Annotated[
    str, _about("A date or time: 2024-05-02 or 2024-05-02T10:00:00Z.", max_length=64)
]
Words = Annotated[
    str, _about("A question, or a few words.", min_length=1, max_length=2_000, pattern=r"\S")
]
Task = Annotated[
    str, _about("The task, in a sentence.", min_length=1, max_length=20_000, pattern=r"\S")
]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of one tool."""


class Observe(Arguments, frozen=True):
    """An observation about a subject: a text or a record."""

    subject: Subject
    text: Annotated[str, _about("What was said or seen.", max_length=1_000_000)] | None = None
    record: Annotated[Json, _about("Instead of a text: fields with values.")] | None = None
    type: Annotated[str, _about("The class of a record, such as Trip.")] | None = None
    at: Moment | None = None
    speaker: (
        Annotated[str, _about("Who says it; the subject's `I` counts only from it.")] | None
    ) = None
    role: Annotated[str, _about("user, assistant, …")] | None = None
    addressee: str | None = None
    session: str | None = None
    agent: str | None = None
    run: str | None = None
    source: str | None = None
    metadata: Annotated[Json, _about("Your own fields, to narrow `recall` by.")] | None = None


class Recall(Arguments, frozen=True):
    """A search in what was observed."""

    query: Words
    subject: Subject | None = None
    k: Limit = 10
    since: Moment | None = None
    until: Moment | None = None
    role: Annotated[str, _about("Only what was said in this role, such as user.")] | None = None
    speaker: str | None = None
    session: str | None = None
    agent: str | None = None
    run: str | None = None
    metadata: Annotated[Json, _about("Only with these fields of your own.")] | None = None


_NARROWED = ("since", "until", "role", "speaker", "session", "agent", "run", "metadata")


class Ask(Arguments, frozen=True):
    """A question about a subject."""

    subject: Subject
    question: Words
    as_of: Moment | None = None


class Checkpoint(Arguments, frozen=True):
    """The subject whose state to compile."""

    subject: Subject


class Check(Arguments, frozen=True):
    """An action to check before taking it."""

    subject: Subject
    action: Annotated[str, _about("The action, as the rules call it, such as book.", min_length=1)]
    details: Annotated[Json, _about("Details of the action, by name.")] = {}


class Brief(Arguments, frozen=True):
    """A task to prepare for."""

    task: Task
    subject: Subject | None = None
    tools: Annotated[list[str], _about("The names of the available tools.")] = []
    k: Limit = 5
    tokens: Annotated[int, _about("The most tokens for the text.", ge=0, le=1_000_000)] | None = (
        None
    )


class RecordOutcome(Arguments, frozen=True):
    """The outcome of an attempt at a task."""

    task: Task
    outcome: Outcome
    steps: Annotated[list[StepIn], _about("The steps, in order.")] = []
    input: Annotated[Json, _about("The input of the task.")] = {}
    final_output: Any = None
    heuristics: Annotated[
        list[str], _about("Ids of the lessons that `brief` returned for it.")
    ] = []
    subject: Subject | None = None


class ListTraces(Arguments, frozen=True):
    """The traces to list."""

    outcome: Outcome | None = None
    subject: Annotated[str, _about("Only about this subject.", max_length=512)] | None = None
    agent: Annotated[str, _about("Only of the app with this name.", max_length=512)] | None = None
    since: Annotated[str, _about("Only begun at or after this time.", max_length=64)] | None = None
    until: Annotated[str, _about("Only begun before this time.", max_length=64)] | None = None
    limit: Limit = 20
    offset: Annotated[int, _about("Skip this many.", ge=0, le=2**31 - 1)] = 0
    cursor: Annotated[str, _about("Go on behind this: `next`.", max_length=64)] | None = None


class SearchTraces(Arguments, frozen=True):
    """The traces to find."""

    query: Words
    outcome: Outcome | None = None
    limit: Limit = 10


class ReadTrace(Arguments, frozen=True):
    """The trace to read."""

    id: Annotated[str, _about("The id of a trace.", min_length=1, max_length=512)]


class Resume(Arguments, frozen=True):
    """A run to resume, and the answers to its question."""

    run_id: Annotated[
        str, _about("The `run_id` that the run returned.", min_length=1, max_length=512)
    ]
    answers: Annotated[
        dict[str, Json], _about("For each step that asks, by its id: fields with values.")
    ] = {}
    input: Annotated[Json, _about("The input again, if it contained secrets.")] | None = None


def schema_of(kind: type[Arguments]) -> Json:
    """Return the JSON Schema of a tool's arguments, self-contained."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own: Json = components.pop(kind.__name__)
    own.pop("title", None)
    return {**own, "$defs": components} if components else own


def read(kind: type[Arguments], given: Json) -> Any:
    """Convert the arguments of a call, or raise InputError that says what to give instead."""
    try:
        return msgspec.convert(given, kind)
    except RecursionError:
        raise InputError("nested too deeply", place="arguments") from None
    except msgspec.ValidationError as error:
        message, path = mismatch(error)
        raise _problem(kind, given, message, path) from None


def _problem(kind: type[Arguments], given: Json, message: str, path: str) -> InputError:
    """Say in words an agent can act on what is wrong with its arguments."""
    known: Json = schema_of(kind)["properties"]
    unknown = [name for name in given if name not in known]
    if not path and unknown:
        fix = closest(unknown[0], known) or f"there are: {', '.join(known)}"
        return InputError(f"there is no argument `{unknown[0]}`", place="arguments", fix=fix)
    missing = [name for name in kind.__struct_fields__ if f"`{name}`" in message]
    if not path and missing:
        about = _rules(known[missing[0]]).get("description", "")
        fix = f"add it: {about}" if about else "add it"
        return InputError(f"the argument `{missing[0]}` is missing", place="arguments", fix=fix)
    if path not in given:  # inside of an argument
        return InputError(message.replace("`", ""), place=path)
    rules = _rules(known[path])
    return InputError(_broken(rules, given[path]), place=path, fix=rules.get("description", ""))


def _rules(schema: Json) -> Json:
    """Return the schema of an argument, of one that may be left out that of its value."""
    found: Json = next((one for one in schema.get("anyOf", ()) if one != {"type": "null"}), schema)
    return found


_KINDS = {
    "string": (str, "a string"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list"),
    "object": (dict, "an object"),
}


def _broken(rules: Json, value: Any) -> str:
    """Say which rule of its schema a value breaks."""
    got = repr(value[:60]) if isinstance(value, str) else short(value)
    if "enum" in rules:
        return f"must be one of: {', '.join(map(str, rules['enum']))}; got {got}"
    python, words = _KINDS.get(rules.get("type", ""), (object, "another value"))
    if not isinstance(value, python) or (python is int and isinstance(value, bool)):
        return f"expected {words}, got {got}"
    if "minimum" in rules and value < rules["minimum"]:
        return f"must be at least {rules['minimum']}, got {got}"
    if "maximum" in rules and value > rules["maximum"]:
        return f"must be at most {rules['maximum']:,}, got {got}"
    if isinstance(value, str) and len(value) > rules.get("maxLength", len(value)):
        return f"must have at most {rules['maxLength']:,} characters, got {len(value):,}"
    return "must not be blank" if isinstance(value, str) else f"can't be used: {got}"


Work = Callable[["Desk", Caller, Any], Json]


class BuiltIn(NamedTuple):
    """A built-in tool."""

    name: str
    title: str
    access: Access
    arguments: type[Arguments]
    work: Work
    if_not_found: str = ""
    """What an agent can do if what it named is not there."""

    def listed(self) -> Json:
        """Return the tool as MCP lists it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": " ".join((self.work.__doc__ or "").split()),
            "inputSchema": schema_of(self.arguments),
            "annotations": {
                "readOnlyHint": self.access == "read",
                "destructiveHint": False,
                "openWorldHint": False,
            },
        }

    def carry_out(self, desk: "Desk", caller: Caller, given: Json) -> Json:
        """Call the tool, if the caller has the access that it needs."""
        caller.must(self.access)
        asked = desk.without_secrets(read(self.arguments, given))
        try:
            return self.work(desk, caller, asked)
        except NotFound as error:
            error.fix = self.if_not_found or error.fix
            raise


def _observe(desk: "Desk", caller: Caller, given: Observe) -> Json:
    """Record something learned about a subject, as a text or as a record of a type.
    Use it for facts, preferences, decisions and events that matter in a later session.
    """
    caller.must_see(given.subject)
    if (given.text is None) == (given.record is None):
        raise InputError("give either `text` or `record`", place="text, record")
    from em.state.schema import DETAILS

    content = given.record if given.text is None else given.text
    assert content is not None
    details = {name: getattr(given, name) for name in ("at", *DETAILS)}
    return {"id": desk.memory.observe(given.subject, content, **details)}


def _recall(desk: "Desk", caller: Caller, given: Recall) -> Json:
    """Find the recorded passages that fit a question best, with speaker and time.
    Without a subject, search all subjects.
    """
    caller.must_see(given.subject)
    narrowed = {name: getattr(given, name) for name in _NARROWED}
    found = desk.memory.recall(given.query, given.subject, given.k, **narrowed)
    return {"passages": [_passage(one) for one in found], "notes": list(found.notes)}


def _passage(passage: Passage) -> Json:
    shown: Json = msgspec.to_builtins(passage)
    for name in ("number", "neighbours", "start", "recorded_at", "stream", "kind"):
        del shown[name]
    return {name: value for name, value in shown.items() if value not in (None, {})}


def _checkpoint(desk: "Desk", caller: Caller, given: Checkpoint) -> Json:
    """Compile new observations about a subject into its state, which `ask` and `check` use."""
    caller.must_see(given.subject)
    state = desk.memory.checkpoint(given.subject)
    counts = {name: len(getattr(state, name)) for name in state.collections}
    return {"subject": given.subject, "version": state.version, "records": counts}


def _ask(desk: "Desk", caller: Caller, given: Ask) -> Json:
    """Answer a question about a subject: by code over its compiled state if such a question was
    answered before or has a common form (how many, how much, when last, list of, by month), else
    with recorded passages. `route` and `note` say which; `event_ids` are the sources.
    """
    caller.must_see(given.subject)
    answer = desk.memory.ask(given.subject, given.question, as_of=given.as_of)
    return msgspec.structs.asdict(answer)


def _check(desk: "Desk", caller: Caller, given: Check) -> Json:
    """Before an action, get the rules about a subject that it would break, most severe first.
    An empty list means that no rule forbids it.
    """
    caller.must_see(given.subject)
    alerts = desk.memory.check(given.subject, given.action, **given.details)
    return {"alerts": [msgspec.structs.asdict(alert) for alert in alerts]}


def _brief(desk: "Desk", caller: Caller, given: Brief) -> Json:
    """Before a task, get the lessons from earlier attempts that fit it, as text.
    Afterwards call `record_outcome` with the ids of `heuristics`.
    """
    if given.subject is not None:
        caller.must_see(given.subject)
    briefing = desk.memory.brief(
        given.task, given.k, given.tokens, tools=given.tools or None, subject=given.subject
    )
    found = [one.heuristic for one in briefing.heuristics]
    short = [
        {"id": one.id, "trigger": one.lesson.trigger, "action": one.lesson.action} for one in found
    ]
    return {"text": briefing.text, "heuristics": short}


def _record_outcome(desk: "Desk", caller: Caller, given: RecordOutcome) -> Json:
    """After a task, record its steps and outcome as a trace. Routines and lessons are compiled from
    traces, and the lessons that `brief` returned are ranked by the outcome.
    """
    caller.must_see(given.subject)
    mine = _own_lessons(desk, caller, given.heuristics)
    trace: Json = {
        "task": given.task,
        "steps": [_step(step) for step in given.steps],
        "outcome": given.outcome,
        "input": given.input,
    }
    if given.final_output is not None:
        trace["final_output"] = given.final_output
    trace_id = desk.memory.add_trace(trace, subject=given.subject)
    if mine and given.outcome != "unknown":
        desk.memory.feedback(mine, given.outcome, task=given.task, subject=given.subject)
        return {"trace_id": trace_id, "judged": mine}
    return {"trace_id": trace_id, "judged": []}


def _own_lessons(desk: "Desk", caller: Caller, ids: list[str]) -> list[str]:
    """Return the lessons whose outcome this caller may record."""
    mine = []
    for heuristic_id in dict.fromkeys(ids):
        found = desk.memory.heuristics.get(heuristic_id, subjects=caller.lesson_subjects)
        if caller.sees(found.lesson.subject):
            mine.append(heuristic_id)
    return mine


def _step(step: StepIn) -> Json:
    fields = msgspec.structs.asdict(step)
    return {name: value for name, value in fields.items() if value is not None}


def _list_traces(desk: "Desk", caller: Caller, given: ListTraces) -> Json:
    """List attempts at tasks, newest first, with their outcomes."""
    from em.log.summary import Cursor
    from em.serve.api.shapes import TrajectoryOut
    from em.traces.catalogue import TraceFilter, count_traces, list_traces
    from em.values.times import moment

    if given.subject is not None:
        caller.must_see(given.subject)
    chosen: TraceFilter = {
        "outcome": given.outcome,
        "subjects": caller.subjects if given.subject is None else [given.subject],
        "agent": given.agent,
        "since": None if given.since is None else moment(given.since, "since"),
        "until": None if given.until is None else moment(given.until, "until"),
    }
    before, limit = Cursor.of(given.cursor), given.offset + given.limit
    page = list_traces(desk.store, before=before, limit=limit, **chosen)
    return {
        "traces": [_short(TrajectoryOut.in_short(one)) for one in page.traces[given.offset :]],
        "total": count_traces(desk.store, **chosen),
        **({} if page.older is None else {"next": str(page.older)}),
    }


def _search_traces(desk: "Desk", caller: Caller, given: SearchTraces) -> Json:
    """Find attempts at tasks by words of the task or of its messages, best first."""
    from em.serve.api.shapes import TrajectoryOut
    from em.text.terms import STOP_WORDS
    from em.traces.catalogue import MOST_SCANNED, list_traces, summaries_of

    wanted = set(given.query.casefold().split())
    wanted = wanted - STOP_WORDS or wanted
    scores = _passage_scores(desk, caller, given.query)
    ranked = []
    # The goals of the newest traces, and whatever was said in any.
    newest = list_traces(
        desk.store, outcome=given.outcome, subjects=caller.subjects, limit=MOST_SCANNED
    )
    said = [
        one
        for one in summaries_of(desk.store, list(scores))
        if caller.sees(one.subject) and given.outcome in (None, one.outcome)
    ]
    found = {one.id: one for one in (*newest.traces, *said)}
    for number, one in enumerate(found.values()):
        task = one.goal.casefold()
        score = sum(word in task for word in wanted) / len(wanted) + scores.get(one.id, 0.0)
        if score:
            ranked.append((-score, number, one))
    ranked.sort(key=lambda found: found[:2])
    shown = [TrajectoryOut.in_short(one) for _, _, one in ranked[: given.limit]]
    return {"traces": [_short(one) for one in shown], "total": len(ranked)}


def _passage_scores(desk: "Desk", caller: Caller, query: str) -> dict[str, float]:
    """Return traces with passages that fit a query, with their best score, up to 1."""
    subjects = [None] if caller.subjects is None else sorted(caller.subjects)
    found = [one for subject in subjects for one in desk.memory.recall(query, subject, 50)]
    best = max((one.score for one in found), default=0.0) or 1.0
    scores: dict[str, float] = {}
    for one in found:
        kind, _, trace_id = one.stream.partition("/")
        if kind == "trace":
            scores[trace_id] = max(scores.get(trace_id, 0.0), one.score / best)
    return scores


def _short(one: "TrajectoryOut") -> Json:
    shown: Json = msgspec.to_builtins(one)
    return shown


def _read_trace(desk: "Desk", caller: Caller, given: ReadTrace) -> Json:
    """Read one attempt with its steps, their results and errors."""
    from em.serve.api.shapes import TrajectoryOut
    from em.traces.catalogue import get_traces

    (stored,) = get_traces(desk.store, [given.id], subjects=caller.subjects)
    return _short(TrajectoryOut.of(stored))


_COMPILE_FIRST = "call `checkpoint` first"
_FIND_TRACES = "take an id from `list_traces` or `search_traces`"
BUILT_IN = {
    tool.name: tool
    for tool in (
        BuiltIn("observe", "Remember", "write", Observe, _observe),
        BuiltIn("recall", "Recall", "read", Recall, _recall),
        BuiltIn(
            "checkpoint", "Compile a state", "write", Checkpoint, _checkpoint,
            "call `observe` first",
        ),
        BuiltIn("ask", "Ask", "read", Ask, _ask, _COMPILE_FIRST),
        BuiltIn("check", "Check an action", "read", Check, _check, _COMPILE_FIRST),
        BuiltIn("brief", "Brief", "read", Brief, _brief),
        BuiltIn(
            "record_outcome", "Record an outcome", "write", RecordOutcome, _record_outcome,
            "take the ids that `brief` returned",
        ),
        BuiltIn("list_traces", "List traces", "read", ListTraces, _list_traces),
        BuiltIn("search_traces", "Search traces", "read", SearchTraces, _search_traces),
        BuiltIn("read_trace", "Read a trace", "read", ReadTrace, _read_trace, _FIND_TRACES),
    )
}  # fmt: skip
