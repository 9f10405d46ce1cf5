"""MCP resources (routines, states, traces) and prompts (a briefing)."""

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)

from em.errors import EmError, TooLarge
from em.runner.package import ROUTINE, find_routine, proof_of, texts_of
from em.runner.tools import one_line
from em.runner.trial import AS_RECORDED
from em.serve.auth import Caller
from em.serve.mcp import tools as own_tools
from em.serve.mcp.desk import LARGEST, Desk
from em.serve.mcp.listing import BRIEFING, ROUTINES, STATES, TRACES
from em.serve.mcp.tools import BUILT_IN
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.state.state import State
    from em.store.protocol import Artefact


class Reading:
    """The resources and prompts that a caller may read."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def read(self, caller: Caller, uri: str) -> ReadResourceResult:
        """Return the text of a resource."""
        kind, text = "application/json", ""
        try:
            if uri.startswith(ROUTINES):
                caller.must_see(None)
                artefact = find_routine(self._desk.store, unquote(uri.removeprefix(ROUTINES)))
                kind, text = "application/yaml", _public(artefact)
            elif uri.startswith(STATES):
                text = self._state(caller, unquote(uri.removeprefix(STATES)))
            elif uri.startswith(TRACES):
                text = self._json(self._trace(caller, unquote(uri.removeprefix(TRACES))))
            else:
                raise MCPError(INVALID_PARAMS, f"there is no resource {one_line(uri, 200)!r}")
            if len(text) > LARGEST:
                raise TooLarge(f"the resource has more than {LARGEST:,} characters", place=uri)
        except EmError as error:
            raise MCPError(INVALID_PARAMS, str(error), error.as_dict()) from error
        return ReadResourceResult(
            contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)]
        )

    def _state(self, caller: Caller, subject: str) -> str:
        caller.must_see(subject)
        return self._json(state_as_json(self._desk.memory.state(subject)))

    def _trace(self, caller: Caller, trace_id: str) -> Any:
        from em.serve.api.shapes import TrajectoryOut
        from em.traces.catalogue import get_traces

        (stored,) = get_traces(self._desk.store, [trace_id], subjects=caller.subjects)
        return msgspec.to_builtins(TrajectoryOut.of(stored))

    def _json(self, value: Any) -> str:
        return msgspec.json.encode(self._desk.results.plain(value)).decode()

    def prompt(self, caller: Caller, name: str, given: dict[str, str]) -> GetPromptResult:
        """Fill in a prompt."""
        if name != BRIEFING:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {one_line(name, 100)!r}")
        asked: Json = {key: value for key, value in given.items() if value}
        try:
            if asked.get("tokens", "").isdecimal():
                asked["tokens"] = int(asked["tokens"])
            task = own_tools.read(own_tools.Brief, asked).task
            briefing = BUILT_IN["brief"].carry_out(self._desk, caller, asked)
        except EmError as error:
            raise MCPError(INVALID_PARAMS, str(error), error.as_dict()) from error
        text = "\n\n".join(part for part in (briefing["text"], task) if part)
        clean = self._desk.results.plain(text)
        return GetPromptResult(
            description="A task, with the lessons that fit it",
            messages=[PromptMessage(role="user", content=TextContent(text=clean))],
        )


_PUBLIC = ("version", "name", "description")
_RECORDED = ("default", "examples", "enum", "const")
"""What the schema of an input says in values of recordings."""


def _public(artefact: "Artefact") -> str:
    """Return the routine.yaml of a version as others may see it.

    What is in the text of a routine, several recordings have in common, or a person wrote it. Of
    one that was learnt from a single recording only the inputs and tools are shown: its constants
    and words may be about somebody.
    """
    from em.compiler.checks import document_of
    from em.compiler.routine_text import routine_text

    files = texts_of(artefact)
    proof = proof_of(files)
    recordings = 0 if proof is None else len(proof.trials.get(AS_RECORDED, ()))
    if recordings > 1 or not (recordings or artefact.from_events):
        return files[ROUTINE]
    document = document_of(files)
    schema = document.get("input_schema") or {}
    properties = {
        name: {word: value for word, value in one.items() if word not in _RECORDED}
        for name, one in schema.get("properties", {}).items()
    }
    shown: Json = {name: document[name] for name in _PUBLIC if name in document}
    if properties:
        shown["input_schema"] = {**schema, "properties": properties}
    text = routine_text({**shown, "tools": document.get("tools", [])})
    return f"# learnt from one recording: its steps are not shown\n{text}"


def state_as_json(state: "State") -> Json:
    """Return a state as plain JSON: the profile, and the rows of every collection."""
    return {
        "subject": state.subject,
        "version": state.version,
        "profile": state.profile_row(),
        "unread": len(state.unread),
        "records": {name: state.rows(name) for name in state.collections},
        "unstructured": len(state.unstructured),
        "sources": state.sources(),
    }
