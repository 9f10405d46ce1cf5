"""Every kept routine as a tool of its own."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    Tool,
    ToolAnnotations,
)

from em.errors import EmError, NotFound, UsageError
from em.runner.answers import Field, fields_of, json_or_text
from em.runner.history import read_run
from em.runner.package import KIND, KeptRoutine, kept_routines, routine_of
from em.runner.routine import Routine, ToolStep
from em.runner.run import PendingPrompt, RunResult, plain
from em.runner.tools import one_line, tool_name
from em.runner.tools.declarations import spec_of
from em.serve.auth import Caller
from em.serve.mcp import tools as arguments
from em.serve.mcp.desk import Context, Desk
from em.serve.mcp.tools import BUILT_IN
from em.store.protocol import Artefact
from em.values.canonical import Json

_TYPES = {"number": "number", "integer": "integer", "confirm": "boolean"}
_PYTHON: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "string": (str,),
}


def may_be_asked(prompt: PendingPrompt) -> bool:
    """Whether a form may ask it: the protocol forbids forms to ask for secrets."""
    return not any(field.type == "secret" for field in fields_of(prompt.fields))


def can_ask(ctx: Context) -> bool:
    """Whether the client shows forms to a person."""
    capabilities = ctx.session.client_capabilities
    shown = None if capabilities is None else capabilities.elicitation
    # Who names no mode at all means forms: there was nothing else once.
    return shown is not None and (shown.form is not None or shown.url is None)


def request_for(prompt: PendingPrompt) -> ElicitRequest:
    """The form for a prompt."""
    return ElicitRequest(
        params=ElicitRequestFormParams(message=words_of(prompt), requested_schema=form_of(prompt))
    )


def words_of(prompt: PendingPrompt) -> str:
    """What is asked, and what was wrong with the answer before."""
    return f"{prompt.message} (not taken: {prompt.problem})" if prompt.problem else prompt.message


def form_of(prompt: PendingPrompt) -> Json:
    """The fields of a prompt as the schema of a form."""
    fields = fields_of(prompt.fields)
    required = [field.name for field in fields if field.required and field.default is None]
    properties = {field.name: _property(field) for field in fields}
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _property(field: Field) -> Json:
    kind, title, options = field.type, field.label, field.option_texts
    if kind == "multiselect":
        items: Json = {"type": "string", "enum": options}
        return {"type": "array", "title": title, "items": items}
    shape: Json = {"type": _TYPES.get(kind, "string"), "title": title}
    if kind == "select":
        shape["enum"] = options
    if kind == "json":
        shape["description"] = "as JSON"
    default = field.default
    if kind == "select" and default is not None:
        default = str(default)
    if isinstance(default, _PYTHON[shape["type"]]):
        shape["default"] = default
    return shape


def answer_in(prompt: PendingPrompt, given: ElicitResult) -> Json | None:
    """What a person said to a prompt; None if they would not say."""
    if given.action != "accept":
        return None
    # A form has no field for JSON: it comes as a text.
    as_json = {field.name for field in fields_of(prompt.fields) if field.type == "json"}
    return {
        name: json_or_text(value) if name in as_json and isinstance(value, str) else value
        for name, value in (given.content or {}).items()
        if value is not None
    }


MOST_QUESTIONS = 20
"""Forms that one call shows; a run that asks more often goes on with `resume`."""
REMEMBERED = 10_000
"""Versions whose YAML is not read again."""

RESUME = "resume"
OWN_NAMES = frozenset({*BUILT_IN, RESUME})

Answer = CallToolResult | InputRequiredResult
Go = Callable[[], RunResult]


def resume_tool() -> Tool:
    """The tool that answers a run which waits."""
    return Tool(
        name=RESUME,
        title="Answer a run that waits",
        description=(
            "Go on with a run that answered `needs_input`, with what a person said to its "
            "`pending_prompt`, or with one that was interrupted. Ask the person; don't make the "
            "answer up."
        ),
        input_schema=arguments.schema_of(arguments.Resume),
        annotations=ToolAnnotations(read_only_hint=False),
    )


class Routines:
    """The routines of a memory: which there are now, and running one."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: dict[str, KeptRoutine | None] = {}

    def newest(self) -> dict[str, Artefact]:
        """The version in use of every routine, by the routine's name."""
        found: dict[str, Artefact] = {}
        for artefact in kept_routines(self._desk.store):
            usable = artefact.body is not None and artefact.retired_at is None
            if usable and self._read(artefact) is not None:
                older = found.get(artefact.name)
                if older is None or older.version < artefact.version:
                    found[artefact.name] = artefact
        return found

    def tools(self) -> list[Tool]:
        """Every routine as a tool."""
        newest = self.newest()
        return [self._told(name, newest[kept]) for name, kept in _named(newest).items()]

    def _read(self, artefact: Artefact) -> KeptRoutine | None:
        """The routine of a version; None for one that can't be read."""
        known = self._known
        if artefact.id in known:
            return known[artefact.id]
        try:
            routine = routine_of(artefact)
        except EmError:
            routine = None
        if len(self._known) >= REMEMBERED:
            self._known = {}  # another, so that who reads the old one is not disturbed
        self._known[artefact.id] = routine
        return routine

    def _told(self, name: str, artefact: Artefact) -> Tool:
        routine = self._read(artefact)
        assert routine is not None
        about = one_line(routine.description) or f"Run the routine {one_line(routine.name, 100)}."
        missing = self._missing(routine)
        if missing:
            names = one_line(", ".join(map(repr, missing)), 300)
            about += f" (It can't run here: there is no tool {names}.)"
        return Tool(
            name=name,
            title=one_line(routine.name, 100),
            description=about,
            input_schema=_input_schema(routine),
            annotations=ToolAnnotations(read_only_hint=_only_reads(routine)),
        )

    def _missing(self, routine: Routine) -> list[str]:
        called = {step.tool for step in routine.steps if isinstance(step, ToolStep)}
        return sorted(
            name
            for name in called - self._desk.tools.keys()
            if spec_of(routine, name, self._desk.allow) is None
        )

    def find(self, name: str) -> KeptRoutine:
        """The routine that a tool stands for."""
        artefact = None
        if tool_name(name, OWN_NAMES) == name:
            artefact = self._desk.store.artefact(KIND, name)
        if artefact is None or artefact.body is None or self._read(artefact) is None:
            newest = self.newest()
            names = _named(newest)
            if name not in names:
                raise _unknown(name, [*OWN_NAMES, *names])
            artefact = newest[names[name]]
        routine = self._read(artefact)
        assert routine is not None
        return routine

    async def call(self, ctx: Context, caller: Caller, params: CallToolRequestParams) -> Answer:
        """Run a routine, or go on with the run that this call began."""
        caller.must_see(None)
        caller.must("write")
        given = params.arguments or {}
        memory, tools = self._desk.memory, self._desk.tools
        if params.request_state is not None:
            return await self._go_on(ctx, params.request_state, params.input_responses or {})
        if params.name == RESUME:
            asked: arguments.Resume = arguments.read(arguments.Resume, given)
            return await self._converse(ctx, lambda: self._resume(asked))
        routine = await self._desk.in_thread(lambda: self.find(params.name))
        return await self._converse(ctx, lambda: memory.run(routine, given, tools))

    def _resume(self, asked: arguments.Resume) -> RunResult:
        past = read_run(self._desk.store, asked.run_id)
        if not past.stored:
            raise NotFound("this run is not of a routine that is kept", place=asked.run_id)
        if past.status not in ("needs_input", "running"):
            raise UsageError(f"this run is over: {past.status}", place=f"run {asked.run_id}")
        return self._desk.memory.resume(
            asked.run_id,
            self._desk.tools,
            input_data=asked.input,
            answers=asked.answers or None,
        )

    async def _converse(self, ctx: Context, go: Go) -> Answer:
        """Run; ask the person where the client can, and go on."""
        result = await self._desk.in_thread(go)
        for _ in range(MOST_QUESTIONS):
            prompt = result.pending_prompt
            if prompt is None or not may_be_asked(prompt) or not can_ask(ctx):
                break
            if not ctx.session.can_send_request:
                # The client is told what to ask, and makes the call again with the answers.
                return InputRequiredResult(
                    input_requests={prompt.step_id: request_for(prompt)},
                    request_state=result.run_id,
                )
            form = request_for(prompt).params
            assert form.mode == "form"
            said = await ctx.session.elicit_form(
                form.message, form.requested_schema, ctx.request_id
            )
            answer = answer_in(prompt, said)
            if answer is None:
                return self._told_result(result, f"the person did not answer ({said.action})")
            result = await self._desk.in_thread(self._answered(result.run_id, prompt, answer))
        return self._told_result(result)

    async def _go_on(self, ctx: Context, run_id: str, responses: dict[str, Any]) -> Answer:
        """The second half of a call that was told what to ask."""
        prompt = await self._desk.in_thread(lambda: self._waiting(run_id))
        said = responses.get(prompt.step_id)
        answer = answer_in(prompt, said) if isinstance(said, ElicitResult) else None
        if answer is None:
            waiting = RunResult(run_id=run_id, status="needs_input", pending_prompt=prompt)
            return self._told_result(waiting, "the person did not answer")
        return await self._converse(ctx, self._answered(run_id, prompt, answer))

    def _answered(self, run_id: str, prompt: PendingPrompt, answer: Json) -> Go:
        asked = arguments.Resume(run_id=run_id, answers={prompt.step_id: answer})
        return lambda: self._resume(asked)

    def _waiting(self, run_id: str) -> PendingPrompt:
        past = read_run(self._desk.store, run_id)
        if past.prompt is None:
            raise UsageError(f"this run does not wait: {past.status}", place=f"run {run_id}")
        return msgspec.convert(past.prompt, PendingPrompt)

    def _told_result(self, result: RunResult, note: str = "") -> CallToolResult:
        told: Json = {"run_id": result.run_id, "status": result.status}
        words = ""
        if result.status == "ok":
            told["output"] = result.output
        elif result.failure is not None:
            told["failure"] = plain(result.failure)
            place = f"step {result.failure.step_id}: " if result.failure.step_id else ""
            words = f"{place}{result.failure.error_type}: {result.failure.message}"
        elif result.pending_prompt is not None:
            told["pending_prompt"] = plain(result.pending_prompt)
            told["next"] = (
                f"{note + '; ' if note else ''}ask the person: {words_of(result.pending_prompt)} "
                f'Then call `{RESUME}` with run_id and answers {{"{result.pending_prompt.step_id}":'
                " {FIELD: VALUE}}"
            )
        failed = result.status == "failed"
        return self._desk.results.answer(told, words=words, is_error=failed)


def _named(newest: dict[str, Artefact]) -> dict[str, str]:
    """Routines by the names of their tools; a name that can be called as it is comes first."""
    named: dict[str, str] = {}
    for name in sorted(newest, key=lambda name: (tool_name(name, OWN_NAMES) != name, name)):
        named[tool_name(name, {*OWN_NAMES, *named})] = name
    return named


def _input_schema(routine: Routine) -> Json:
    schema = routine.input_schema or {}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _only_reads(routine: Routine) -> bool:
    effects = {tool.name: tool.known_effect for tool in routine.tools}
    return all(
        (step.effect or effects.get(step.tool)) == "read"
        for step in routine.steps
        if isinstance(step, ToolStep)
    )


def _unknown(name: str, known: list[str]) -> MCPError:
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return MCPError(INVALID_PARAMS, f"there is no tool {one_line(name, 100)!r}{hint}")
