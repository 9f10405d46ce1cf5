"""Consent: a person puts a proposed routine in use, at the question of an agent.

The form shows what the routine does, how it did, and all that it needs. Only a form counts as the
person's word: an agent that says that they agreed could be wrong. What is put in use is what was
shown, or it is shown again.
"""

import getpass
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from em.serve.mcp.tools import Arguments, hints, listed, read
from em.trust import content_hash
from em.values.canonical import Json

if TYPE_CHECKING:
    from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

    from em.runner.tools.grant import Grant
    from em.serve.mcp.desk import Context, McpDesk

ACCEPT = "accept_routine"
_ACCEPT = """
    Ask the person whether a proposed routine is put in use, with the permissions that it needs.
"""
_FORM = "accept"
_NOTHING: Json = {"type": "object", "properties": {}}
"""The form has no fields: a person accepts or declines it."""
_DECLINED: Json = {"accepted": False, "next": "the person does not want it"}
_CHANGED: Json = {"accepted": False, "next": "it changed meanwhile: ask once more"}


class Accept(Arguments, frozen=True):
    """The routine that is proposed."""

    routine: Annotated[str, msgspec.Meta(description="Its key, or NAME@VERSION.")]
    name: Annotated[str, msgspec.Meta(description="With a key: such as bump_version.")] = ""


def tool() -> Json:
    """Return the tool for a list."""
    made = listed(ACCEPT, "Accept a routine", _ACCEPT, Accept, {}, False)
    return {**made, "annotations": hints(is_read=False, is_destructive=True)}


class _Shown(NamedTuple):
    """What a person is asked about. grant: None for a script. digest: of it and of the words."""

    words: str
    grant: "Grant | None"
    digest: str


class _NotAgreed(Exception):
    """A person has not agreed to this."""


async def accept(
    desk: "McpDesk", ctx: "Context", params: "CallToolRequestParams", *, can_ask: bool
) -> "CallToolResult | InputRequiredResult":
    """Accept a routine if the person agrees. can_ask: the client can show them a form."""
    from mcp_types import (
        ElicitRequest,
        ElicitRequestFormParams,
        ElicitResult,
        InputRequiredResult,
    )

    asked: Accept = read(Accept, params.arguments or {})
    if params.request_state is not None:
        reply: Any = (params.input_responses or {}).get(_FORM)
        if not isinstance(reply, ElicitResult) or reply.action != "accept":
            return desk.answer(_DECLINED)
    found = await desk.in_thread(partial(_accepted, desk, asked, params.request_state or ""))
    if not isinstance(found, _Shown):
        return desk.answer(found)
    if not can_ask:
        next_ = f"show the person this; they type: em routine accept {asked.routine}"
        return desk.answer({"accepted": False, "asks": found.words, "next": next_})
    form = ElicitRequestFormParams(message=found.words, requested_schema=_NOTHING)
    if not ctx.session.can_send_request:
        return InputRequiredResult(
            input_requests={_FORM: ElicitRequest(params=form)}, request_state=found.digest
        )
    said = await ctx.session.elicit_form(form.message, _NOTHING, ctx.request_id)
    if said.action != "accept":
        return desk.answer(_DECLINED)
    done = await desk.in_thread(partial(_accepted, desk, asked, found.digest))
    return desk.answer(_CHANGED if isinstance(done, _Shown) else done)


def _accepted(desk: "McpDesk", asked: Accept, agreed: str) -> "Json | _Shown":
    """Accept what the person agreed to. If it has changed since, return the new form instead."""
    found: list[_Shown] = []

    def agree(files: Mapping[str, str]) -> None:
        found.append(_shown(desk, files))
        if found[0].grant is not None:
            found[0].grant.refuse_untrusted()
        if found[0].digest != agreed:
            raise _NotAgreed

    try:
        done = desk.memory.accept(asked.routine, by=_person(), name=asked.name or None, agree=agree)
    except _NotAgreed:
        return found[0]
    if found[0].grant:
        found[0].grant.apply()
    return {"accepted": True, "routine": done.routine}


def _shown(desk: "McpDesk", files: Mapping[str, str]) -> _Shown:
    from em.runner.package import ROUTINE, parse_yaml, trials_of
    from em.runner.tools import one_line
    from em.runner.tools.grant import grant_for

    text = files[ROUTINE]
    document = parse_yaml(text.encode(), ROUTINE)
    grant = grant_for(desk.store, files)
    tried = trials_of(files).summary or "it was not tried"
    lines = [
        f"Put the routine {document.get('name')} in use?",
        one_line(str(document.get("description", "")), 300),
        f"On other recordings: {tried}.",
        *grant.lines,
    ]
    words = "\n".join(filter(None, lines))
    return _Shown(words, grant, content_hash(f"{words}\n{text}".encode()))


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a container may run as nobody in particular
