"""The tools of the MCP server that are not a routine's own. Agents read the docstrings here.

The tools are listed before the SDK is imported, so each imports what it works with when it is
called.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from em.errors import InputError, NotFound, StateError
from em.serve.auth import Access, Caller
from em.store.protocol import Passage
from em.traces.trace import Outcome, Source, least_trusted
from em.values.canonical import Json
from em.values.mismatch import closest, mismatch

if TYPE_CHECKING:
    from em.serve.mcp.desk import McpDesk
    from em.state.state import State


def _about(description: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **limits)


Subject = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000, pattern=r"\S")]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of one tool."""


class Remember(Arguments, frozen=True):
    """What was learned about a subject."""

    subject: Subject
    text: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    facts: (
        Annotated[
            list[Json],
            _about(
                "{op: set, field, value}, {op: add, type, record}, {op: retract, field}; each "
                "with `evidence`."
            ),
        ]
        | None
    ) = None
    rules: list[Json] | None = None
    event: str | None = None
    at: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    context: Annotated[Json, _about("speaker, role, addressee, session, metadata.")] = {}


class SaidArguments(Arguments, frozen=True):
    """Who said something, to whom and where."""

    speaker: str | None = None
    role: str | None = None
    addressee: str | None = None
    session: str | None = None
    agent: str | None = None
    run: str | None = None
    source: str | None = None
    origin: Source | None = None
    metadata: Json | None = None


class Ask(Arguments, frozen=True):
    """A question, code, or an action."""

    subject: Subject | None = None
    question: Words | None = None
    code: (
        Annotated[
            str,
            _about(
                "Python: an expression, or def answer(state).",
                max_length=100_000,
            ),
        ]
        | None
    ) = None
    action: (
        Annotated[str, _about("Returns the rules that it would break.", min_length=1)] | None
    ) = None
    details: Annotated[Json, _about("Of the action.")] = {}
    only: Annotated[
        Json,
        _about("Of passages: since, until, role, speaker, session, agent, run, metadata."),
    ] = {}
    k: Annotated[int, _about("Most passages.", ge=1, le=100)] = 10
    as_of: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class Only(Arguments, frozen=True):
    """Which passages to search."""

    since: str | None = None
    until: str | None = None
    role: str | None = None
    speaker: str | None = None
    session: str | None = None
    agent: str | None = None
    run: str | None = None
    metadata: Json | None = None


class Brief(Arguments, frozen=True):
    """A task to prepare for."""

    task: Words
    subject: Subject | None = None
    tools: Annotated[list[str], _about("The names of your tools.")] = []
    tokens: Annotated[int, _about("Most, for the lessons.", ge=0, le=1_000_000)] | None = None


class LessonArguments(Arguments, frozen=True):
    """A lesson, or what happened."""

    when: str | None = None
    do: str | None = None
    because: str | None = None
    evidence: Annotated[list[str], _about("Ids or steps.")] = []
    task: Words | None = None
    outcome: Outcome | None = None
    steps: Annotated[
        list[Json], _about("In order: {action, args, observation or error, thought}.")
    ] = []
    input: Annotated[Json, _about("Of the task.")] = {}
    final_output: Any = None
    lessons: Annotated[list[str], _about("Ids that `brief` gave.")] = []
    subject: Subject | None = None


class StepArguments(Arguments, frozen=True):
    """A step of what happened."""

    thought: str | None = None
    action: str | None = None
    args: Json = {}
    observation: Any = None
    error: Any = None


class Prepare(Arguments, frozen=True):
    """A routine to prepare, or the plan to commit."""

    name: str = ""
    inputs: Json = msgspec.field(default_factory=dict)
    plan: str = ""


class Propose(Arguments, frozen=True):
    """A group of recorded tasks, and the routine for them."""

    group: Annotated[str, _about("Without it: all groups.")] | None = None
    files: Annotated[dict[str, str], _about("routine.yaml and udf.py. Without: recordings.")] = {}
    inputs: Annotated[dict[str, Json], _about("By recording, where others than shown.")] = {}
    name: Annotated[str, _about("Of the routine.")] | None = None


class FindRoutine(Arguments, frozen=True):
    """What to find a routine for."""

    request: Words


class RunRoutine(Arguments, frozen=True):
    """A routine to run."""

    name: str
    inputs: Json = {}
    request: Annotated[str, _about("In words, if no inputs are known.")] | None = None


class Resume(Arguments, frozen=True):
    """A run to resume, and the answers to its question."""

    run_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    answers: Annotated[dict[str, Json], _about("{STEP: {FIELD: VALUE}}")] = {}
    input: Annotated[Json, _about("Again, if it held secrets.")] | None = None


def schema_of(kind: type[Arguments]) -> Json:
    """Return the JSON Schema of a tool's arguments, self-contained."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own: Json = components.pop(kind.__name__)
    own.pop("title", None)
    return {**own, "$defs": components} if components else own


NAMED = ("type", "properties", "items", "required", "anyOf", "oneOf", "allOf", "$defs", "$ref")
"""The keywords of a schema that name its values and their types."""


def slim(schema: Any, words: Sequence[str]) -> Any:
    """Return a schema with only some of its keywords."""
    if not isinstance(schema, dict):
        return schema
    made: Json = {}
    for word, value in schema.items():
        if word in ("properties", "$defs"):
            made[word] = {name: slim(one, words) for name, one in value.items()}
        elif word in words and isinstance(value, list) and word not in ("required", "enum", "type"):
            made[word] = [slim(one, words) for one in value]
        elif word in words:
            made[word] = slim(value, words) if word == "items" else value
    return made


def shown_schema(kind: type[Arguments]) -> Json:
    """Return the schema of a tool's arguments as clients get it: short, since models read it.

    An argument that may be left out is left out, so null is not listed. Errors say the rest.
    """
    schema = schema_of(kind)
    properties = {name: _rules(one) for name, one in schema["properties"].items()}
    words = (*NAMED, "enum", "description")
    shown = {name: slim(one, words) for name, one in properties.items()}
    required = {"required": schema["required"]} if schema.get("required") else {}
    return {"type": "object", "properties": shown, **required}


def read(kind: type[Arguments], given: Json) -> Any:
    """Convert the arguments of a call, or raise InputError that says what to give instead."""
    try:
        return msgspec.convert(given, kind)
    except RecursionError:
        raise InputError("nested too deeply", place="arguments") from None
    except msgspec.ValidationError as error:
        raise _problem(kind, given, error) from None


def _problem(kind: type[Arguments], given: Json, error: msgspec.ValidationError) -> InputError:
    """Return an error that names the wrong argument and the fix, for the next call of an agent."""
    schema = schema_of(kind)
    known = {name: _rules(one) for name, one in schema["properties"].items()}
    unknown = [name for name in given if name not in known]
    if unknown:
        fix = closest(unknown[0], known) or f"there are: {', '.join(known)}"
        return InputError(f"there is no argument `{unknown[0]}`", place="arguments", fix=fix)
    missing = [name for name in schema.get("required", ()) if name not in given]
    if missing:
        about = known[missing[0]].get("description", "")
        fix = f"add it: {about}" if about else "add it"
        return InputError(f"the argument `{missing[0]}` is missing", place="arguments", fix=fix)
    from em.values.json_schema import problems

    for name, value in given.items():
        for where, message in problems(known[name], value):
            inside = where if where[:1] in ("", "[") else f".{where}"
            fix = known[name].get("description", "")
            return InputError(message, place=f"{name}{inside}", fix=fix)
    found = mismatch(error)
    return InputError(found.message.replace("`", ""), place=found.path)


def _rules(schema: Json) -> Json:
    """Return the schema of an argument, of one that may be left out that of its value."""
    found: Json = next((one for one in schema.get("anyOf", ()) if one != {"type": "null"}), schema)
    return found


Work = Callable[["McpDesk", Caller, Any], Json]


class BuiltIn(NamedTuple):
    """A built-in tool."""

    name: str
    title: str
    access: Access
    arguments: type[Arguments]
    work: Work
    output: Json
    if_not_found: str = ""
    """What an agent can do if what it named is not there."""

    def listed(self) -> Json:
        """Return the tool as MCP lists it."""
        about = self.work.__doc__ or ""
        is_read = self.access == "read"
        return listed(self.name, self.title, about, self.arguments, self.output, is_read)

    def carry_out(self, desk: "McpDesk", caller: Caller, given: Json) -> Json:
        """Call the tool, if the caller has the access that it needs."""
        caller.must(self.access)
        asked = desk.without_secrets(read(self.arguments, given))
        try:
            return self.work(desk, caller, asked)
        except NotFound as error:
            error.fix = self.if_not_found or error.fix
            raise


def listed(
    name: str, title: str, about: str, arguments: type[Arguments], output: Json, is_read: bool
) -> Json:
    """Return a tool as MCP lists it. Only routines destroy anything, or reach the open world."""
    return {
        "name": name,
        "title": title,
        "description": " ".join(about.split()),
        "inputSchema": shown_schema(arguments),
        "outputSchema": {"type": "object", **output},
        "annotations": hints(is_read=is_read),
    }


def hints(*, is_read: bool, is_destructive: bool = False, is_open: bool = False) -> Json:
    """Return the four hints of a tool."""
    return {
        "readOnlyHint": is_read,
        "destructiveHint": is_destructive,
        "idempotentHint": is_read,
        "openWorldHint": is_open,
    }


def _remember(desk: "McpDesk", caller: Caller, given: Remember) -> Json:
    """Remember a text about a subject, or a stored `event`, with the facts that it states or ends;
    or facts alone. With neither: the schema.
    """
    caller.must_see(given.subject)
    about = {**msgspec.structs.asdict(read(SaidArguments, given.context)), "at": given.at}
    if given.event is None:
        about["origin"] = least_trusted(["agent", about["origin"] or "own"])
    has_text = given.text is not None or given.event is not None
    if has_text:
        named = {"text": given.text, "event": given.event}
        content = {name: value for name, value in named.items() if value is not None}
        contents = [{**content, "facts": given.facts, "rules": given.rules}]
    elif given.rules is not None:
        raise InputError("rules need the text that asks for them", place="text", fix="give `text`")
    elif not given.facts:
        return {"ids": [], **_forms(desk, caller, given.subject)}
    else:
        contents = [_as_record(fact) for fact in given.facts]
    items = [{"subject": given.subject, **one, **about} for one in contents]
    ids = desk.memory.observe_many(items)
    if not has_text or not (given.facts or given.rules or given.event):
        return {"ids": ids}
    try:
        left_out = desk.memory.subjects.checkpoint(given.subject).problems
    except StateError as error:
        return {"ids": ids, "not_compiled": str(error)}
    return {"ids": ids, "left_out": left_out}


def _forms(desk: "McpDesk", caller: Caller, subject: str) -> Json:
    """Return the schemas of facts, made from the types that the subject has, and of rules."""
    from em.state.rules import rule_schema
    from em.state.statement import statement_schema

    try:
        schema = _state(desk, caller, subject, None)[0].schema
    except NotFound:
        schema = None
    return {"facts": statement_schema(schema), "rules": rule_schema()}


def _as_record(fact: Json) -> Json:
    """Return a fact that has no text as the record to observe."""
    from em.state.schema import PROFILE

    op, type_ = fact.get("op"), fact.get("type")
    if op == "set" and fact.get("field") and type_ in (None, PROFILE):
        return {"type": PROFILE, "record": {fact["field"]: fact.get("value")}}
    if op == "add" and isinstance(fact.get("record"), dict) and isinstance(type_, str):
        return {"type": type_, "record": fact["record"]}
    raise InputError(
        "without a text, a fact is `set` with a `field` and `value`, or `add` with `type` and "
        "`record`",
        place="facts",
    )


def _ask(desk: "McpDesk", caller: Caller, given: Ask) -> Json:
    """Look up what is known: for a question, passages and the subject's classes; then `code` over
    these computes the answer.
    """
    caller.must_see(given.subject)
    if given.subject is None and (given.question is None or given.code or given.action):
        raise InputError("the argument `subject` is missing", place="subject", fix="name it")
    if given.subject is None:
        return _passages(desk, given)
    if given.code is not None or given.action is not None:
        state, note = _state(desk, caller, given.subject, given.as_of)
        return {**_answered(state, given), **note}
    found = {} if given.question is None else _passages(desk, given)
    try:
        state, note = _state(desk, caller, given.subject, given.as_of)
    except NotFound:
        if not found:
            raise
        return {"classes": [], **found}  # what was said in traces has no classes
    from em.state.code import class_lines

    return {"classes": [*class_lines(state.schema)], **found, **note}


def _answered(state: "State", given: Ask) -> Json:
    if given.code is not None:
        return _computed(state, given.code)
    alerts = state.check(given.action or "", **given.details)
    return {"alerts": [msgspec.structs.asdict(alert) for alert in alerts]}


def _state(
    desk: "McpDesk", caller: Caller, subject: str, as_of: str | None
) -> "tuple[State, Json]":
    """Return a subject's state, compiled with what is new if the caller may write.

    If the new one is refused, it is the one before, and a note says so.
    """
    note: Json = {}
    if caller.access == "write":
        try:
            desk.memory.checkpoint(subject)
        except StateError as error:
            note = {"not_compiled": str(error)}
    return desk.memory.state(subject, as_of), note


def _passages(desk: "McpDesk", given: Ask) -> Json:
    only = msgspec.structs.asdict(read(Only, given.only))
    found = desk.memory.recall(given.question or "", given.subject, given.k, **only)
    return {"passages": [_passage(one) for one in found], "notes": list(found.notes)}


def _passage(passage: Passage) -> Json:
    shown: Json = msgspec.to_builtins(passage)
    for name in ("number", "neighbours", "start", "recorded_at", "stream", "kind"):
        del shown[name]
    return {name: value for name, value in shown.items() if value not in (None, {})}


def _computed(state: "State", code: str) -> Json:
    """Run code in the sandbox: it comes from a model."""
    from em.state.questions import run_own_code

    answer = run_own_code(state, code)
    note = {"unread": answer.unread, "note": answer.note} if answer.unread else {}
    return {
        "value": answer.value,
        "records": answer.records,
        "event_ids": answer.event_ids,
        "source": state.source_of(answer.event_ids),
        **note,
    }


def _brief(desk: "McpDesk", caller: Caller, given: Brief) -> Json:
    """Before a task, get the lessons from earlier attempts and the routines that fit it. Afterwards
    call `lesson`.
    """
    if given.subject is not None:
        caller.must_see(given.subject)
    briefing = desk.memory.brief(
        given.task, 5, given.tokens, tools=given.tools or None, subject=given.subject
    )
    found = [one.heuristic for one in briefing.heuristics]
    lessons = [
        {
            "id": one.id,
            "when": one.lesson.trigger,
            "do": one.lesson.action,
            "source": one.lesson.source,
        }
        for one in found
    ]
    may_run = caller.subjects is None and caller.access == "write"
    routines = desk.listing.offers(given.task, only_likely=True) if may_run else []
    return {"text": briefing.text, "lessons": lessons, "routines": routines}


def _lesson(desk: "McpDesk", caller: Caller, given: LessonArguments) -> Json:
    """After a task, record a lesson (when, do, because) or what happened: task, outcome, steps.
    That teaches, and ranks the lessons of `brief`.
    """
    caller.must_see(given.subject)
    if (given.when is None) != (given.do is None):
        raise InputError("a lesson needs `when` and `do`", place="when, do")
    if (given.outcome is None) != (given.task is None) and given.when is None:
        raise InputError("what happened needs `task` and `outcome`", place="task, outcome")
    if given.when is None and given.outcome is None:
        raise InputError("give a lesson or what happened", place="when, outcome")
    called = [str(n) for n, step in enumerate(given.steps, 1) if step.get("action")]
    known = [one for one in given.evidence if one not in called]
    # Evidence that is not there is refused before anything is stored.
    desk.memory.heuristics.check_evidence(known, given.subject, caller.sees)
    happened = _happened(desk, caller, given)
    calls: list[str] = []
    if happened:
        from em.heuristics.reflection import call_ids
        from em.traces.catalogue import get_traces

        calls = call_ids(get_traces(desk.store, [happened["trace_id"]])[0])
    numbered = dict(zip(called, calls, strict=False))
    shown = [numbered.get(one, one) for one in given.evidence]
    return {**_learned(desk, caller, given, shown), **happened}


def _learned(desk: "McpDesk", caller: Caller, given: LessonArguments, evidence: list[str]) -> Json:
    if given.when is None or given.do is None:
        return {}
    kept = desk.memory.heuristics.lesson(
        given.when,
        given.do,
        given.because or "",
        evidence=evidence,
        subject=given.subject,
        task=given.task or "",
        source="agent",
        sees=caller.sees,
    )
    return {"lesson": kept.id}


def _happened(desk: "McpDesk", caller: Caller, given: LessonArguments) -> Json:
    if given.task is None or given.outcome is None:
        return {}
    mine = _own_lessons(desk, caller, given.lessons)
    trace: Json = {
        "task": given.task,
        "steps": [_step(number, step) for number, step in enumerate(given.steps)],
        "outcome": given.outcome,
        "input": given.input,
    }
    if given.final_output is not None:
        trace["final_output"] = given.final_output
    trace_id = desk.memory.add_trace(trace, subject=given.subject)
    judged = mine if given.outcome != "unknown" else []
    if judged:
        desk.memory.feedback(mine, given.outcome, task=given.task, subject=given.subject)
    return {"trace_id": trace_id, "judged": judged}


def _own_lessons(desk: "McpDesk", caller: Caller, ids: list[str]) -> list[str]:
    """Return the lessons whose outcome this caller may record."""
    mine = []
    for heuristic_id in dict.fromkeys(ids):
        found = desk.memory.heuristics.get(heuristic_id, subjects=caller.lesson_subjects)
        if caller.sees(found.lesson.subject):
            mine.append(heuristic_id)
    return mine


def _step(number: int, given: Json) -> Json:
    try:
        fields = msgspec.structs.asdict(read(StepArguments, given))
    except InputError as error:
        error.place = f"steps[{number}]"
        raise
    return {name: value for name, value in fields.items() if value is not None}


def _propose(desk: "McpDesk", caller: Caller, given: Propose) -> Json:
    """Write a routine for tasks that recur: get the groups, then a group's recordings and the
    format, then send files. What is right on all recordings, a person may accept.
    """
    caller.must_see(None)
    return desk.memory.propose(given.group, given.files, name=given.name or "", inputs=given.inputs)


def _find_routine(desk: "McpDesk", caller: Caller, given: FindRoutine) -> Json:
    """Find routines: tasks done before, which run without a model. Each has the schema of its
    inputs. Run the one that fits with `run_routine`, in place of doing its steps yourself.
    """
    caller.must_see(None)
    return {"routines": desk.listing.offers(given.request, only_likely=False, with_inputs=True)}


_REMEMBER_FIRST = "call `remember` first"
BUILT_IN = {
    tool.name: tool
    for tool in (
        BuiltIn("remember", "Remember", "write", Remember, _remember, {"required": ["ids"]}),
        BuiltIn("ask", "Ask", "read", Ask, _ask, {}, _REMEMBER_FIRST),
        BuiltIn("brief", "Brief", "read", Brief, _brief, {"required": ["lessons"]}),
        BuiltIn(
            "lesson", "Record a lesson", "write", LessonArguments, _lesson, {},
            "take the ids that `brief` returned",
        ),
        BuiltIn(
            "propose", "Propose a routine", "write", Propose, _propose, {},
            "take a group that `propose` returned",
        ),
    )
}  # fmt: skip
FIND_ROUTINE = BuiltIn(
    "find_routine", "Find a routine", "read", FindRoutine, _find_routine, {"required": ["routines"]}
)
