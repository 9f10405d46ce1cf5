"""Stored routines as MCP tools: run them, and ask the person what they prompt for."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

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
)

from em.errors import EmError, InputError, NotFound, UsageError
from em.runner.agent_reply import LARGEST, reply
from em.runner.answers import AskedField, fields_of, json_or_text
from em.runner.card import KIND
from em.runner.history import read_run, read_served_run
from em.runner.package import KeptRoutine, routine_of
from em.runner.preparation import plan_shown
from em.runner.run import REQUEST, Asks, PendingPrompt, RunResult, plain
from em.runner.tools import one_line, tool_name, tool_names
from em.serve.auth import Caller
from em.serve.mcp import tools as own_tools
from em.serve.mcp.desk import Context, McpDesk
from em.serve.mcp.listing import OWN_NAMES, PREPARE, RESUME, RUN_ROUTINE
from em.store.protocol import Artefact
from em.values.canonical import Json

_TYPES = {
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "confirm": "boolean",
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "string": (str,),
}


def may_be_asked(prompt: PendingPrompt) -> bool:
    """Return whether a form may ask a prompt: MCP forbids forms that ask for secrets."""
    return not any(field.type == "secret" for field in fields_of(prompt.fields))


def can_ask(ctx: Context) -> bool:
    """Return whether the client can show forms to a person."""
    capabilities = ctx.session.client_capabilities
    shown = None if capabilities is None else capabilities.elicitation
    # A client that names no mode supports forms, the only mode of earlier protocol versions.
    return shown is not None and (shown.form is not None or shown.url is None)


def request_for(prompt: PendingPrompt) -> ElicitRequest:
    """Return the form for a prompt."""
    return ElicitRequest(
        params=ElicitRequestFormParams(message=words_of(prompt), requested_schema=form_of(prompt))
    )


def words_of(prompt: PendingPrompt) -> str:
    """Return a prompt's message, with the problem of the previous answer."""
    return (
        f"{prompt.message} (invalid answer: {prompt.problem})" if prompt.problem else prompt.message
    )


def form_of(prompt: PendingPrompt) -> Json:
    """Return the fields of a prompt as the schema of a form."""
    fields = fields_of(prompt.fields)
    required = [field.name for field in fields if field.required and field.default is None]
    properties = {field.name: _property(field) for field in fields}
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _property(field: AskedField) -> Json:
    kind, title, options = field.type, field.label, field.option_texts
    if kind == "multiselect":
        items: Json = {"type": "string", "enum": options}
        return {"type": "array", "title": title, "items": items}
    shape: Json = {"type": _TYPES.get(kind, "string"), "title": title}
    if kind == "select":
        shape["enum"] = options
    if kind == "json":
        shape["description"] = "as JSON"
    default = field.filled
    if kind == "select" and default is not None:
        default = str(default)
    if isinstance(default, _PYTHON[shape["type"]]):
        shape["default"] = default
    return shape


def answer_in(prompt: PendingPrompt, given: ElicitResult) -> Json | None:
    """Return a person's answer to a prompt, or None if they declined."""
    if given.action != "accept":
        return None
    # Forms have no JSON fields: the value arrives as text.
    as_json = {field.name for field in fields_of(prompt.fields) if field.type == "json"}
    return {
        name: json_or_text(value) if name in as_json and isinstance(value, str) else value
        for name, value in (given.content or {}).items()
        if value is not None
    }


MOST_QUESTIONS = 20
"""Forms that one call shows; after that, a run is continued with `resume`."""
SUBJECT = "em/subject"
"""The name in `_meta` of a call for who it is about."""
LONGEST_SUBJECT = 512
REMEMBERED = 10_000
"""Versions whose parsed routine is cached."""

Answer = CallToolResult | InputRequiredResult
Go = Callable[[], RunResult]


def subject_in(params: CallToolRequestParams) -> str | None:
    """Return who a call is about, as the program that calls says it.

    The arguments are the routine's own, and a model writes them.
    """
    found = (params.meta or {}).get(SUBJECT)
    if found is not None and not (isinstance(found, str) and 1 <= len(found) <= LONGEST_SUBJECT):
        raise InputError(
            f"must be a name of 1 to {LONGEST_SUBJECT} characters", place=f"_meta, {SUBJECT}"
        )
    return found


class Routines:
    """The routines of a memory, as tools that can be called."""

    def __init__(self, desk: McpDesk) -> None:
        self._desk = desk
        self._known: dict[str, KeptRoutine | None] = {}

    def _read(self, artefact: Artefact | None) -> KeptRoutine | None:
        """Return the routine of a version, or None if it can't be read."""
        known = self._known
        if artefact is None or artefact.body is None:
            return None
        if artefact.id in known:
            return known[artefact.id]
        try:
            routine = routine_of(artefact)
        except EmError:
            routine = None
        if len(self._known) >= REMEMBERED:
            self._known = {}  # a new dict: other threads may be reading the old one
        self._known[artefact.id] = routine
        return routine

    def find(self, name: str) -> KeptRoutine:
        """Return the routine that a tool name stands for."""
        store = self._desk.store
        if tool_name(name, OWN_NAMES) == name:
            routine = self._read(store.artefact(KIND, name))
            if routine is not None:
                return routine
        versions = self._desk.listing.routines()
        names = tool_names(versions, OWN_NAMES)
        stored = names.get(name)
        if stored is not None:
            routine = self._read(store.artefact(KIND, stored, versions[stored]))
            if routine is not None:
                return routine
        raise _unknown(name, [*OWN_NAMES, *names])

    async def call(self, ctx: Context, caller: Caller, params: CallToolRequestParams) -> Answer:
        """Run a routine, or resume the run that an earlier part of this call started."""
        caller.must_see(None)
        caller.must("write")
        given = params.arguments or {}
        memory, tools = self._desk.memory, self._desk.tools
        if params.request_state is not None:
            return await self._continue(ctx, params.request_state, params.input_responses or {})
        if params.name == RESUME:
            asked: own_tools.Resume = own_tools.read(own_tools.Resume, given)
            return await self._converse(ctx, lambda: self._resume(asked))
        subject, name = subject_in(params), params.name
        if name == PREPARE:
            wanted = own_tools.read(own_tools.Prepare, given)
            if wanted.plan:
                go: Go = partial(memory.commit, wanted.plan, tools, subject=subject)
                return await self._converse(ctx, go)
            name, given = wanted.name, wanted.inputs
        if name == RUN_ROUTINE:
            name, given = _wanted(own_tools.read(own_tools.RunRoutine, given))
        routine = await self._desk.in_thread(lambda: self.find(name))
        if params.name == PREPARE:
            return await self._desk.in_thread(
                lambda: self._prepared(routine, given, subject), is_run=True
            )
        # Where no person is shown a form the agent completes the inputs, and no run waits.
        asks: Asks = True if can_ask(ctx) else "steps"
        go = partial(memory.run, routine, given, tools, subject=subject, asks=asks)
        return await self._converse(ctx, go, CalledRoutine(routine, given))

    def _prepared(self, routine: KeptRoutine, given: Json, subject: str | None) -> CallToolResult:
        """Run a routine up to its first write; return what it would write, and the plan's token.

        The agent commits the plan or leaves it. It can't change a value.
        """
        found = self._desk.memory.prepare(routine, given, self._desk.tools, subject=subject)
        answer: Json = {"status": found.status}
        if found.token:
            answer |= {"plan": found.token, **plan_shown(found)}
            answer["next"] = "send `plan` if it meets every wish; else do the task yourself"
        else:
            why = found.reason or found.failure or found.pending_prompt
            answer |= {"why": None if why is None else plain(why), "next": "do the task yourself"}
        return self._desk.answer(answer, is_error=found.status == "failed")

    def _resume(self, asked: own_tools.Resume) -> RunResult:
        try:
            read_served_run(self._desk.store, asked.run_id)
        except NotFound as error:
            error.fix = "take the `run_id` that the run returned"
            raise
        return self._desk.memory.resume(
            asked.run_id,
            self._desk.tools,
            input_data=asked.input,
            answers=asked.answers or None,
        )

    async def _converse(
        self, ctx: Context, go: Go, called: "CalledRoutine | None" = None
    ) -> Answer:
        """Run, and resume with the person's answers while the client can ask for them."""
        result = await self._desk.in_thread(go, is_run=True)
        for _ in range(MOST_QUESTIONS):
            prompt = result.pending_prompt
            if prompt is None or not may_be_asked(prompt) or not can_ask(ctx):
                break
            if not ctx.session.can_send_request:
                # Return the form; the client repeats the call with the answers.
                return InputRequiredResult(
                    input_requests={prompt.step_id: request_for(prompt)},
                    request_state=result.run_id,
                )
            form = request_for(prompt).params
            assert form.mode == "form"
            reply = await ctx.session.elicit_form(
                form.message, form.requested_schema, ctx.request_id
            )
            answer = answer_in(prompt, reply)
            if answer is None:
                return self._result(
                    result, f"the person did not answer ({reply.action})", called=called
                )
            go = self._answered(result.run_id, prompt, answer)
            result = await self._desk.in_thread(go, is_run=True)
        return self._result(result, called=called)

    async def _continue(self, ctx: Context, run_id: str, responses: dict[str, Any]) -> Answer:
        """Handle the repeated call of a client that got a form to show."""
        prompt = await self._desk.in_thread(lambda: self._waiting(run_id))
        reply = responses.get(prompt.step_id)
        answer = answer_in(prompt, reply) if isinstance(reply, ElicitResult) else None
        if answer is None:
            waiting = RunResult(run_id=run_id, status="needs_input", pending_prompt=prompt)
            return self._result(waiting, "the person did not answer")
        return await self._converse(ctx, self._answered(run_id, prompt, answer))

    def _answered(self, run_id: str, prompt: PendingPrompt, answer: Json) -> Go:
        answers = {prompt.step_id: answer}
        asked = own_tools.Resume(run_id=run_id, answers=answers)
        return lambda: self._resume(asked)

    def _waiting(self, run_id: str) -> PendingPrompt:
        past = read_run(self._desk.store, run_id)
        if past.prompt is None:
            raise UsageError(
                f"the run is not waiting for an answer: {past.status}", place=f"run {run_id}"
            )
        return msgspec.convert(past.prompt, PendingPrompt)

    def _result(
        self, result: RunResult, note: str = "", called: "CalledRoutine | None" = None
    ) -> CallToolResult:
        shown = reply(result) if called is None else reply(result, called.routine, called.given)
        words = ""
        if result.failure is not None:
            place = f"step {result.failure.step_id}: " if result.failure.step_id else ""
            words = f"{place}{result.failure.error_type}: {result.failure.message}"
        elif (prompt := result.pending_prompt) is not None:
            shown["next"] = (
                f"{note + '; ' if note else ''}ask the person: {words_of(prompt)} Then call "
                f'`{RESUME}` with run_id, answers {{"{prompt.step_id}": {{FIELD: VALUE}}}}'
            )
        is_error = result.status == "failed"
        return self._desk.answer(shown, words=words, is_error=is_error, most=LARGEST)


class CalledRoutine(NamedTuple):
    """A routine, and what it was called with."""

    routine: KeptRoutine
    given: Json


def _wanted(asked: own_tools.RunRoutine) -> tuple[str, Json]:
    """Return which routine to run, and what with."""
    words = {} if asked.request is None else {REQUEST: asked.request}
    return asked.name, {**words, **asked.inputs}


def _unknown(name: str, known: list[str]) -> MCPError:
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else "; list the tools again"
    return MCPError(INVALID_PARAMS, f"there is no tool {one_line(name, 100)!r}{hint}")
