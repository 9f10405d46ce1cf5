"""HTTP API of routines: list, strike, accept, retire; match a request; shadow mode.

A comparison with an agent may quote the traces that its routine was compiled from, so a token that
is limited to subjects sees none.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar.params import FromPath, JSONBody, QueryParameter

from em.compiler.checks import Check, Strike, checks_of, document_of
from em.compiler.match import LEAST_LIKENESS
from em.compiler.shadow import Comparison, ShadowReport, comparisons
from em.errors import NotFound
from em.runner.package import texts_of
from em.runner.standing import InUse, StoredRoutine, stored_routine, version, versions
from em.serve.api.shapes import (
    Exact,
    Limit,
    Offset,
    Page,
    Text,
    acts,
    fill,
    page_of,
    reads,
)
from em.serve.service import AnyRequest, service_of
from em.values.canonical import Json


class RoutineChecks(msgspec.Struct, frozen=True):
    """The checks of a learnt routine, and those that were struck."""

    items: Sequence[Check]
    struck: Sequence[str]


class StrikeIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a check that a person strikes, or of several, and why."""

    check: str | Sequence[str]
    reason: str = ""


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


@reads("/routines", "routines")
def list_routines(
    request: AnyRequest, limit: Limit = 50, offset: Offset = 0
) -> Page[StoredRoutine]:
    """List the stored routines, every version."""
    service = service_of(request)
    service.caller(request).must_see(None)
    found = page_of(versions(service.store), limit, offset)
    shown = [stored_routine(service.store, one) for one in found.items]
    return Page(shown, found.pagination)


@reads("/routines/{ref:str}/checks", "routines", 404)
def list_checks(request: AnyRequest, ref: FromPath[str]) -> RoutineChecks:
    """List the checks of a learnt routine, `name` or `name@version`."""
    service = service_of(request)
    service.caller(request).must_see(None)
    document = document_of(texts_of(version(service.store, ref)))
    return RoutineChecks(checks_of(document), list(document.get("struck", ())))


@acts("/routines/{ref:str}/strike", "routines", 404, 409)
def strike_check(request: AnyRequest, ref: FromPath[str], data: JSONBody[StrikeIn]) -> Strike:
    """Store a learnt routine without some of its checks as a new version."""
    by = _owner(request)
    checks = [data.check] if isinstance(data.check, str) else data.check
    return service_of(request).memory.strike(ref, *checks, reason=data.reason, by=by)


@acts("/routines/{ref:str}/{act:str}", "routines", 404, 409)
def change_use(request: AnyRequest, ref: FromPath[str], act: FromPath[str]) -> InUse:
    """Change which versions are in use: `accept`, `withdraw`, `retire` or `restore` one.

    An accepted version is in use, and used by itself; `withdraw` takes that back. `retire` takes
    `name@version` out of use: its name then means the one before. `restore` undoes that.
    """
    by = _owner(request)
    memory = service_of(request).memory
    acts = {"accept": memory.accept, "withdraw": memory.withdraw}
    acts |= {"retire": memory.retire, "restore": memory.restore}
    if act not in acts:
        raise NotFound(f"there is no act {act[:40]!r}", place="act", fix=f"one of {[*acts]}")
    return acts[act](ref, by=by)


def _owner(request: AnyRequest) -> str:
    """Return who decides about routines, which are everybody's: no token limited to subjects."""
    caller = service_of(request).caller(request, "write")
    caller.must_see(None)
    return caller.name


@acts("/match", "routines")
def match_request(request: AnyRequest, data: JSONBody[MatchIn]) -> MatchOut:
    """Find the routine in use that was recorded with the words of a request. Nothing is run."""
    service = service_of(request)
    service.caller(request, "write" if data.llm else "read").must_see(None)
    matcher = service.memory.matcher
    found = matcher.match(data.request, data.tools, service.model() if data.llm else None)
    if found is None:
        ranked = matcher.ranked(data.request, data.tools, at_least=LEAST_LIKENESS)
        return MatchOut(offered=[one.routine.ref for one in ranked])
    return fill(MatchOut, found, offered=[found.routine])


Routine = Annotated[
    str | None,
    QueryParameter(max_length=600, description="Only this one: `name`, or `name@version`."),
]


@reads("/shadow", "routines")
def list_shadow(
    request: AnyRequest,
    routine: Routine = None,
    subject: Exact = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Page[ShadowReport]:
    """Count how often each version of each routine agreed with the recorded agents."""
    service = service_of(request)
    service.caller(request).must_see(None)
    reports = service.memory.shadow_report(routine, subject=subject)
    counts = (msgspec.structs.replace(one, comparisons=()) for one in reports)
    return page_of(counts, limit, offset)


@reads("/shadow/comparisons", "routines")
def list_comparisons(
    request: AnyRequest,
    routine: Routine = None,
    subject: Exact = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Page[Comparison]:
    """List what routines would have done and what the agents did, newest first."""
    service = service_of(request)
    service.caller(request).must_see(None)
    found = comparisons(service.store, routine, about=subject)
    return page_of(reversed(found), limit, offset)


HANDLERS = [
    list_routines,
    list_checks,
    strike_check,
    change_use,
    match_request,
    list_shadow,
    list_comparisons,
]
