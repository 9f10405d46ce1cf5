"""Preparation: run a routine up to its first write (`prepare_routine`), then commit that.

A request that a model read, with wishes that no input expresses, is run so: the model sees the
plan and says yes or no (`as_agreed`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from em.runner.acceptance import refuse_if_off
from em.runner.commitment import Agreed, Plan, committed, plan_of
from em.runner.decision import decided
from em.runner.drivers import Consult, Effects
from em.runner.engine import OneRun, RunOptions, begun, held, input_of
from em.runner.package import Package
from em.runner.prepared import Prepared
from em.runner.rehearsal import Rehearsal
from em.runner.request import Bound
from em.runner.run import RunResult
from em.runner.template import REQUEST
from em.runner.tools import Tools
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.files import path_to_text
from em.values.times import new_id

if TYPE_CHECKING:
    from em.llm.client import LlmClient


def prepare_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    *,
    store: Store | None = None,
    **options: Unpack[RunOptions],
) -> Prepared:
    """Run a routine up to its first write: make the reads and checks, and plan the writes.

    The result's `planned` has each call with an effect, with its values and where they come from.
    Nothing is journalled, and nobody is asked. With a `store`, `token` commits just these writes
    (`commit_prepared`), once and within 15 minutes.
    """
    given = input_of(input_data)
    with begun(routine_dir, tool_registry, None, options, None) as run:
        return run.done(_prepared(run, given, store))


async def aprepare_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    *,
    store: Store | None = None,
    **options: Unpack[RunOptions],
) -> Prepared:
    """Do the same under asyncio."""
    given = input_of(input_data)
    with begun(routine_dir, tool_registry, None, options, None) as run:
        return await run.adone(_prepared(run, given, store))


def commit_prepared(
    store: Store,
    token: str,
    tool_registry: Tools = None,
    *,
    run_id: str | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Make the writes of a plan, those and no others.

    The reads and checks are made again. If anything that the plan shows is not as it was, the run
    hands over: its `reason` says what differs, and nothing was written, not even to the journal.
    Raises NotPrepared if there is no such plan: a token serves once. subject: as it was prepared.
    """
    with _taken(store, token, tool_registry, run_id or new_id(), options) as (run, plan):
        return run.done(_commit(run, plan))


async def acommit_prepared(
    store: Store,
    token: str,
    tool_registry: Tools = None,
    *,
    run_id: str | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Do the same under asyncio."""
    with _taken(store, token, tool_registry, run_id or new_id(), options) as (run, plan):
        return await run.adone(_commit(run, plan))


@contextmanager
def _taken(
    store: Store, token: str, tools: Tools, run_id: str, options: RunOptions
) -> Iterator[tuple[OneRun, Plan]]:
    """Take the plan of a token, and open its run."""
    plan = Plan.taken(store, token, options.get("subject"))
    options = {**options, "answers": plan.answers}
    with (
        held(store, run_id, options),
        plan.package(store) as package,
        OneRun(package, tools, None, options, store, run_id) as run,
    ):
        yield run, plan


def _prepared(run: OneRun, given: Json, store: Store | None) -> Effects[Prepared]:
    """Prepare a run; store what can be committed, and return it with its token."""
    bound = yield from run.bound(given)
    found = yield from _rehearsed(run, bound)
    plan = None if store is None else _plan(run, found, bound)
    if store is None or plan is None:
        return found
    return msgspec.structs.replace(found, token=plan.keep(store, run.subject))


def as_agreed(run: OneRun, bound: Bound, given: Json, client: "LlmClient") -> Effects[RunResult]:
    """Prepare a run, and make its writes if a model says that they meet the wishes.

    bound: what a model has read in the request. Without a yes, the run hands over.
    """
    found = yield from _rehearsed(run, Bound(inputs=bound.inputs, how=bound.how))
    word = yield Consult(lambda: decided(found, given[REQUEST], bound.wishes, client))
    plan = _plan(run, found, bound) if word.yes else None
    if plan is not None:
        return (yield from _commit(run, plan))
    why = found.reason.message if found.reason else word.reason
    inputs = run.package.program.by_names(given)
    refused = Bound(inputs=inputs, how=bound.how, problem=f"{bound.problem}: {why}")
    return (yield from run.begin(refused))


def _commit(run: OneRun, plan: Plan) -> Effects[RunResult]:
    """Run what was planned: rehearse it, then make its writes if all is as it was prepared."""
    run.package.check_unchanged(plan.hash)
    run.check_code(plan.code, "commit")
    bound, agreed = Bound(inputs=plan.input, how="given"), Agreed()
    rehearsal = _rehearsal(run, bound)
    machine = run.begin(bound, agreed)
    return (yield from committed(plan, rehearsal, machine, agreed, run.secrets.result))


def _rehearsed(run: OneRun, bound: Bound) -> Effects[Prepared]:
    """Return what was prepared, without secrets. Nothing of a rehearsal is journalled."""
    return run.secrets.result((yield from _rehearsal(run, bound).run(bound.inputs)))


def _rehearsal(run: OneRun, bound: Bound) -> Rehearsal:
    """Return a run that makes the reads and plans the writes. It asks nobody."""
    refuse_if_off(run.mode, run.name, is_dry=True)
    run.take(bound)
    options = {**run.options, "ask": None, "auto_fix": None}
    machine = Rehearsal(run.package.program, run_id=run.run_id, **options)
    machine.check()
    return machine


def _plan(run: OneRun, found: Prepared, bound: Bound) -> Plan | None:
    """Return the plan that commits what was prepared, if anything can."""
    return plan_of(
        found,
        at=datetime.now(UTC),
        stored=run.package.stored,
        folder=path_to_text(run.package.folder.resolve()),
        hash=run.package.content_hash,
        input={**bound.inputs, **found.chosen},
        answers=dict(run.answers or {}),
        code=run.code(),
    )
