"""MCP resources (routines, states, traces) and prompts (a briefing)."""

from typing import Any
from urllib.parse import quote, unquote

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from em.errors import EmError, TooLarge
from em.runner.package import ROUTINE, find_routine, texts_of
from em.runner.tools import one_line
from em.serve.auth import Caller
from em.serve.mcp import tools as own_tools
from em.serve.mcp.desk import LARGEST, Desk
from em.serve.mcp.routines import Routines
from em.serve.mcp.tools import BUILT_IN
from em.state.state import State
from em.values.canonical import Json

ROUTINES = "em://routines/"
STATES = "em://state/"
TRACES = "em://traces/"
BRIEFING = "briefing"

TEMPLATES = [
    ResourceTemplate(
        name="routine",
        uri_template=ROUTINES + "{name}",
        description="The steps of a stored routine, by name or name@version.",
        mime_type="application/yaml",
    ),
    ResourceTemplate(
        name="state",
        uri_template=STATES + "{subject}",
        description="A subject's state, compiled from its observations.",
        mime_type="application/json",
    ),
    ResourceTemplate(
        name="trace",
        uri_template=TRACES + "{id}",
        description="One attempt at a task, with its steps.",
        mime_type="application/json",
    ),
]


class Reading:
    """The resources and prompts that a caller may read."""

    def __init__(self, desk: Desk, routines: Routines) -> None:
        self._desk = desk
        self._routines = routines

    def resources(self, caller: Caller) -> list[Resource]:
        """List every routine; for a caller limited to subjects, their states."""
        if caller.subjects is None:
            return [
                Resource(
                    name=one_line(name, 100),
                    uri=ROUTINES + quote(name, safe=""),
                    description=f"The routine {one_line(name, 100)}, version {artefact.version}",
                    mime_type="application/yaml",
                )
                for name, artefact in sorted(self._routines.newest().items())
            ]
        return [
            Resource(
                name=one_line(subject, 100),
                uri=STATES + quote(subject, safe=""),
                description=f"The state of {one_line(subject, 100)}",
                mime_type="application/json",
            )
            for subject in sorted(caller.subjects)
            if self._desk.memory.subjects.has_state(subject)
        ]

    def read(self, caller: Caller, uri: str) -> ReadResourceResult:
        """Return the text of a resource."""
        kind, text = "application/json", ""
        try:
            if uri.startswith(ROUTINES):
                caller.must_see(None)
                artefact = find_routine(self._desk.store, unquote(uri.removeprefix(ROUTINES)))
                kind, text = "application/yaml", texts_of(artefact)[ROUTINE]
            elif uri.startswith(STATES):
                text = self._state(caller, unquote(uri.removeprefix(STATES)))
            elif uri.startswith(TRACES):
                given = {"id": unquote(uri.removeprefix(TRACES))}
                text = self._json(BUILT_IN["read_trace"].carry_out(self._desk, caller, given))
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

    def _json(self, value: Any) -> str:
        return msgspec.json.encode(self._desk.results.plain(value)).decode()

    def prompts(self) -> list[Prompt]:
        """List the prompts."""
        return [
            Prompt(
                name=BRIEFING,
                title="Brief me for a task",
                description="A task, with the lessons from earlier attempts that fit it.",
                arguments=[
                    PromptArgument(
                        name="task", description="The task, in a sentence.", required=True
                    ),
                    PromptArgument(
                        name="subject", description="Include lessons about this subject."
                    ),
                    PromptArgument(name="tokens", description="The most tokens for the lessons."),
                ],
            )
        ]

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


def state_as_json(state: State) -> Json:
    """Return a state as plain JSON: the profile, and the rows of every collection."""
    return {
        "subject": state.subject,
        "version": state.version,
        "profile": state.profile_row(),
        "records": {name: state.rows(name) for name in state.collections},
        "unstructured": len(state.unstructured),
    }
