"""Preparation: run a routine up to its first write (`prepare_routine`), then commit that."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Unpack

import msgspec

from em.runner.acceptance import refuse_if_off
from em.runner.commitment import Agreed, Plan, committed, plan_of
from em.runner.drivers import Effects, WriteNotes, no_journal
from em.runner.engine import OneRun, RunOptions, held, input_of
from em.runner.package import Package
from em.runner.prepared import Prepared
from em.runner.rehearsal import Rehearsal
from em.runner.request import Bound
from em.runner.run import RunResult
from em.runner.tools import Tools
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.ids import new_id
from em.values.paths import path_to_text


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
    with _Run(routine_dir, tool_registry, None, options, is_kept=False) as run:
        bound = run.bind(given)
        return run.with_token(run.done(*run.prepared(bound), None), bound, store)


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
    with _Run(routine_dir, tool_registry, None, options, is_kept=False) as run:
        bound = await run.abind(given)
        return run.with_token(await run.adone(*run.prepared(bound), None), bound, store)


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
    with _taken(store, token, tool_registry, run_id or new_id(), options) as (run, machine, write):
        return run.done(machine, write, store)


async def acommit_prepared(
    store: Store,
    token: str,
    tool_registry: Tools = None,
    *,
    run_id: str | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Do the same under asyncio."""
    with _taken(store, token, tool_registry, run_id or new_id(), options) as (run, machine, write):
        return await run.adone(machine, write, store)


@contextmanager
def _taken(
    store: Store, token: str, tools: Tools, run_id: str, options: RunOptions
) -> Iterator[tuple["_Run", Effects[RunResult], WriteNotes]]:
    """Take the plan of a token, and begin its run."""
    plan = Plan.taken(store, token, options.get("subject"))
    options = {**options, "answers": plan.answers}
    with (
        held(store, run_id, options),
        plan.package(store) as package,
        _Run(package, tools, None, options, is_kept=True) as run,
    ):
        yield run, *run.commit(plan, store, run_id)


class _Run(OneRun):
    """Everything that preparing and committing a run need."""

    def rehearsal(self, bound: Bound, run_id: str) -> Rehearsal:
        """Return a run that makes the reads and plans the writes. It asks nobody."""
        refuse_if_off(self.mode, self.name, is_dry=True)
        self.take(bound)
        options = {**self.options, "ask": None, "auto_fix": None}
        machine = Rehearsal(self.package.program, run_id=run_id, **options)
        machine.check()
        return machine

    def prepared(self, bound: Bound) -> tuple[Effects[Prepared], WriteNotes]:
        """Begin to prepare a run. Nothing of a rehearsal is journalled."""
        return self.rehearsal(bound, new_id()).run(bound.inputs), no_journal

    def with_token(self, found: Prepared, bound: Bound, store: Store | None) -> Prepared:
        """Return what was prepared with the token that commits it, if anything can."""
        plan = None
        if store is not None:
            plan = plan_of(
                found,
                at=datetime.now(UTC),
                stored=self.package.stored,
                folder=path_to_text(self.package.folder.resolve()),
                hash=self.package.content_hash,
                input={**bound.inputs, **found.chosen},
                answers=dict(self.answers or {}),
                code=self.code(),
            )
        if store is None or plan is None:
            return found
        return msgspec.structs.replace(found, token=plan.keep(store, self.subject))

    def commit(
        self, plan: Plan, store: Store, run_id: str
    ) -> tuple[Effects[RunResult], WriteNotes]:
        """Begin the run of a plan: a rehearsal, then the run if it finds what was prepared."""
        self.package.check_unchanged(plan.hash)
        self.check_code(plan.code, "commit")
        bound, agreed = Bound(inputs=plan.input, how="given"), Agreed()
        rehearsal = self.rehearsal(bound, run_id)
        machine, write = self.begin(bound, store, run_id, agreed)
        return committed(plan, rehearsal, machine, agreed, self.secrets.result), write
