"""Preparation: run a routine up to its first write (`prepare_routine`), then commit that.

A request that a model read, with wishes that no input expresses, is run so: the model sees the
plan and says yes or no (`run_as_agreed`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import msgspec

from em.runner.acceptance import refuse_if_off
from em.runner.commitment import Agreed, Plan, committed, plan_of
from em.runner.decision import Decision, decided
from em.runner.drivers import Effects, WriteNotes, no_journal
from em.runner.engine import OneRun, RunOptions, held, input_of
from em.runner.package import Package
from em.runner.prepared import Prepared
from em.runner.rehearsal import Rehearsal
from em.runner.request import Bound
from em.runner.run import RunResult
from em.runner.template import REQUEST
from em.runner.tools import Tools
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.ids import new_id
from em.values.paths import path_to_text

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


class Asked(NamedTuple):
    """A request whose inputs were read, and that has wishes: what was given, and where to run."""

    bound: Bound
    given: Json
    store: Store | None
    run_id: str


def run_as_agreed(
    package: Package, tools: Tools, client: "LlmClient", options: RunOptions, asked: Asked
) -> RunResult:
    """Prepare a run, and make its writes if a model says that they meet the wishes."""
    with _Run(package, tools, None, options, is_kept=asked.store is not None) as run:
        found = run.done(*run.read(asked.bound), None)
        word = decided(found, asked.given[REQUEST], asked.bound.wishes, client)
        return run.done(*run.as_decided(found, word, asked), asked.store)


async def arun_as_agreed(
    package: Package, tools: Tools, client: "LlmClient", options: RunOptions, asked: Asked
) -> RunResult:
    """Do the same under asyncio."""
    import asyncio  # here: a plain run starts without it

    with _Run(package, tools, None, options, is_kept=asked.store is not None) as run:
        found = await run.adone(*run.read(asked.bound), None)
        question = (found, asked.given[REQUEST], asked.bound.wishes, client)
        word = await asyncio.to_thread(decided, *question)
        return await run.adone(*run.as_decided(found, word, asked), asked.store)


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
        plan = None if store is None else self.plan(found, bound)
        if store is None or plan is None:
            return found
        return msgspec.structs.replace(found, token=plan.keep(store, self.subject))

    def plan(self, found: Prepared, bound: Bound) -> Plan | None:
        """Return the plan that commits what was prepared, if anything can."""
        return plan_of(
            found,
            at=datetime.now(UTC),
            stored=self.package.stored,
            folder=path_to_text(self.package.folder.resolve()),
            hash=self.package.content_hash,
            input={**bound.inputs, **found.chosen},
            answers=dict(self.answers or {}),
            code=self.code(),
        )

    def read(self, bound: Bound) -> tuple[Effects[Prepared], WriteNotes]:
        """Begin to prepare what a request with wishes gives as inputs."""
        return self.prepared(Bound(inputs=bound.inputs, how=bound.how))

    def as_decided(
        self, found: Prepared, word: Decision, asked: Asked
    ) -> tuple[Effects[RunResult], WriteNotes]:
        """Begin the run of what a model agreed to; without its yes, one that hands over."""
        bound, given, store, run_id = asked
        plan = self.plan(found, bound) if word.yes else None
        if plan is not None:
            return self.commit(plan, store, run_id)
        why = found.reason.message if found.reason else word.reason
        inputs = self.package.program.by_names(given)
        refused = Bound(inputs=inputs, how=bound.how, problem=f"{bound.problem}: {why}")
        return self.begin(refused, store, run_id)

    def commit(
        self, plan: Plan, store: Store | None, run_id: str
    ) -> tuple[Effects[RunResult], WriteNotes]:
        """Begin the run of a plan: a rehearsal, then the run if it finds what was prepared."""
        self.package.check_unchanged(plan.hash)
        self.check_code(plan.code, "commit")
        bound, agreed = Bound(inputs=plan.input, how="given"), Agreed()
        rehearsal = self.rehearsal(bound, run_id)
        machine, write = self.begin(bound, store, run_id, agreed)
        return committed(plan, rehearsal, machine, agreed, self.secrets.result), write
