"""Healing: a fix that made a run succeed becomes a change of the routine.

A fixed argument becomes an expression that the step had elsewhere (a renamed argument), a reference
to the only input or earlier result that has exactly this value, or a constant in place of a
constant. Any other value was right for that run only, and is refused.
"""

import difflib
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.draft import Recorded
from em.compiler.example import APPROVAL, Call
from em.compiler.package_files import as_json, recorded_json
from em.compiler.replay_world import InTurn, NotReproduced, Outcome
from em.compiler.routine_text import text_of
from em.errors import EmError, RoutineError
from em.redaction.redactor import marker
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import compile_value
from em.runner.history import RECORDING, PastRun, PastStep, package_of, read_run
from em.runner.package import ROUTINE, files_in, find_routine, keep_routine, write_files
from em.runner.routine import (
    Default,
    ForEachStep,
    LetStep,
    Program,
    PromptStep,
    Routine,
    Step,
    ToolStep,
    UdfStep,
)
from em.runner.run import PendingPrompt
from em.runner.secrets import Secrets
from em.store.protocol import Store
from em.values.canonical import Json, canonical, identical, short
from em.values.leaves import is_informative, leaves


class Healing(msgspec.Struct, frozen=True, kw_only=True):
    """The change that healing a run makes, or would make.

    patch: the change of routine.yaml. old, new: the stored versions, if the change was made.
    """

    changed: Sequence[str]
    refused: Sequence[str]
    patch: str
    old: str = ""
    new: str = ""


def heal_run(store: Store, run_id: str, *, dry_run: bool = False) -> Healing:
    """Write the fixes that a run needed into its routine, stored as a new version.

    Replay the run from its journal as proof: the healed routine must need no fix and return the
    same output. With `dry_run` nothing is written.
    """
    past = read_run(store, run_id)
    with package_of(store, past) as package:
        package.check_unchanged(past.routine_hash)
        old = files_in(package.folder)
        routine = package.routine
    if not any(done.fix for done in past.steps):
        raise RoutineError("no step of this run was fixed", place=f"run {past.run_id}")
    if past.status != "ok":
        raise RoutineError(
            f"the run must have succeeded to be healed, but it ended as {past.status}",
            place=f"run {past.run_id}",
            fix="resume the run, or heal one that succeeded",
        )
    healer = _Healer(routine, past)
    new = _files(healer.heal(), old, past) if healer.changed else dict(old)
    was, now = (files[ROUTINE].splitlines(keepends=True) for files in (old, new))
    patch = "".join(difflib.unified_diff(was, now, ROUTINE, ROUTINE))
    healing = Healing(changed=healer.changed, refused=healer.refused, patch=patch)
    if dry_run or not healing.changed:
        return healing
    before = past.stored or keep_routine(store, old).ref
    healed = find_routine(store, past.stored) if past.stored else None
    sources = () if healed is None else healed.from_events
    # A version that is not in use yet is not put in use by healing it.
    retired = healed is not None and healed.retired_at is not None
    # The new version contains what this run was given and returned: it is forgotten with it.
    events = [*sources, *(event.id for event in past.events)]
    after = keep_routine(store, new, events, retired=retired).ref
    if past.folder:
        write_files(new, pathlib.Path(past.folder))
    return msgspec.structs.replace(healing, old=before, new=after)


def _files(routine: Routine, old: Mapping[str, str], past: PastRun) -> dict[str, str]:
    """Return the files of a healed routine, once the replay of the run has proved it."""
    calls = _replay(routine, past)
    run = Recorded(name=past.run_id, inputs=past.input, calls=calls, output=past.output)
    try:
        recorded = msgspec.json.decode(old.get(RECORDING, ""), type=dict[str, Any])
    except msgspec.MsgspecError:  # a person may have edited it
        recorded = {}
    return {
        **old,
        ROUTINE: text_of(routine, old[ROUTINE]),
        "input.json": as_json(past.input),
        "expected_output.json": as_json(past.output),
        # What the trace said about its outcome, and what the agent used, stay.
        RECORDING: as_json({**recorded, "recordings": [recorded_json(run)]}),
    }


class _Unexplained(Exception):
    """Nothing in the run explains where a value comes from."""


class _Healer:
    """Writes fixes into the steps. refused: those that can't become part of them, with reasons."""

    def __init__(self, routine: Routine, past: PastRun) -> None:
        self._routine, self._past = routine, past
        self.changed: list[str] = []
        self.refused: list[str] = []
        # What the steps before have saved.
        self._scope: Json = dict(Program(routine).by_names(past.input))
        self._steps = [*self._mended_all(routine.steps)]

    def heal(self) -> Routine:
        """Return the routine with the fixes."""
        return msgspec.structs.replace(self._routine, steps=self._steps)

    def _mended_all(self, steps: Sequence[Step]) -> Iterator[Step]:
        for step in steps:
            own = [done for done in self._past.steps if done.step == step.id]
            if isinstance(step, ForEachStep):
                yield msgspec.structs.replace(step, steps=[*self._mended_all(step.steps)])
                continue
            yield self._mended(step, own)
            if step.save_as is None or step not in self._routine.steps:
                continue
            if isinstance(step, PromptStep):
                self._scope[step.save_as] = self._past.restored.answers.get(step.id, {})
            elif isinstance(step, LetStep):
                self._scope[step.save_as] = self._evaluated(step.value, step.id)
            elif own:
                results = [done.result for done in own]
                self._scope[step.save_as] = results[0] if step.for_each is None else results

    def _mended(self, step: Step, own: Sequence[PastStep]) -> Step:
        """Return a step with its fixes, if each of its calls needed the same."""
        fixed = [done for done in own if done.fix]
        if not fixed or not isinstance(step, ToolStep | UdfStep):
            return step
        try:
            made = [self._fixed(step, done) for done in fixed]
        except _Unexplained as error:
            self.refused.append(f"step {step.id}{error}")
            return step
        if len(fixed) < len(own) or len({canonical(one)[0] for one in made}) > 1:
            self.refused.append(f"step {step.id}: the items needed different fixes")
            return step
        healed = made[0]
        if not identical(healed.args, step.args):
            self.changed.append(
                f"step {step.id}: args {short(step.args)} become {short(healed.args)}"
            )
        elif not identical(healed, step):
            self.changed.append(
                f"step {step.id}: continues with {short(healed.on_error)} when it fails"
            )
        return healed

    def _fixed(self, step: ToolStep | UdfStep, done: PastStep) -> ToolStep | UdfStep:
        fix = done.fix or {}
        if fix["strategy"] == "skip":
            self._check_default(step, fix.get("default"))
            return msgspec.structs.replace(step, on_error=Default(fix.get("default")))
        before = done.args  # the journal has those of effects
        if before is None:
            item = {} if step.for_each is None else {step.as_: self._item(step, done)}
            before = self._evaluated(step.args, step.id, item)
        args = {name: self._source(step, before, name, one) for name, one in fix["args"].items()}
        return msgspec.structs.replace(step, args=args)

    def _item(self, step: ToolStep | UdfStep, done: PastStep) -> Any:
        items = self._evaluated(step.for_each, step.id)
        return items[done.item] if isinstance(items, list) and isinstance(done.item, int) else None

    def _source(self, step: ToolStep | UdfStep, before: Json, name: str, value: Any) -> Any:
        """Return a fixed argument as the routine can write it; raise _Unexplained if it can't."""
        template = step.args.get(name)
        if name in step.args and identical(before.get(name), value):
            return template
        has_value = isinstance(value, dict | list) or is_informative(value)
        found = [
            one
            for other, one in step.args.items()
            if has_value and other in before and identical(before[other], value)
            if one is not value and isinstance(one, str) and "{{" in one
        ]
        places = [*self._places(value)] if is_informative(value) else []
        if name not in step.args:
            found = found or places
        if len({*found}) == 1:
            return found[0]
        is_constant = isinstance(template, str) and "{{" not in template
        is_constant = is_constant or (name in step.args and not isinstance(template, str))
        if not found and is_constant and not places:
            return value  # a wrong constant
        earlier = f"it was {template}" if name in step.args else "it was missing"
        why = f"it could be any of {short(found)}" if found else "nothing in the run explains it"
        raise _Unexplained(f", args.{name}: {earlier}; the fix set {short(value)}, and {why}")

    def _places(self, value: Any) -> Iterator[str]:
        """Yield references to the inputs and results that are exactly this value."""
        for name, held in self._scope.items():
            for path, one in leaves(held):
                if identical(one, value) and not any(segment.in_collection for segment in path):
                    keys = [msgspec.json.encode(str(segment.key)).decode() for segment in path]
                    yield f"{{{{ {name}{''.join(f'[{key}]' for key in keys)} }}}}"

    def _check_default(self, step: Step, default: Any) -> None:
        """Refuse a default that is a value of this run, or that another step decides by."""
        known = {canonical(value)[0] for _, value in leaves(self._scope)}
        own = [value for _, value in leaves(default) if is_informative(value)]
        if any(canonical(value)[0] in known for value in own):
            raise _Unexplained(f": the default {short(default)} is a value of this run only")
        for other in self._routine.all_steps:
            checks = [other.when or "", getattr(other, "check", "")]
            if isinstance(other, ToolStep | UdfStep) and other.checks:
                checks += other.checks.pre
            if step.save_as and any(re.search(rf"\b{step.save_as}\b", text) for text in checks):
                raise _Unexplained(
                    f": step {other.id} decides by its result, so a default is not safe"
                )

    def _evaluated(self, template: Any, step_id: str, more: Json | None = None) -> Any:
        scope = {**SCOPE, **self._scope, **_markers(self._routine), **(more or {})}
        try:
            return compile_value(template, f"step {step_id}")(scope)
        except EmError:
            return {}  # evaluating the arguments was what failed


class _Replay(InTurn):
    """Answers the calls of a healed routine as those of the run, with the fixed arguments."""

    def __init__(self, routine: Routine, past: PastRun) -> None:
        steps = {
            step.id: step for step in routine.all_steps if isinstance(step, ToolStep | UdfStep)
        }
        done = [one for one in past.steps if one.step in steps]
        super().__init__(past.input, [_call(steps[one.step], one) for one in done])
        fixes = [one.fix or {} for one in done]
        self._wanted = [
            fix["args"] if fix.get("strategy") == "modify_args" else one.args
            for one, fix in zip(done, fixes, strict=True)
        ]
        self._answers = past.restored.answers

    def take(self, name: str, args: Json, *, is_write: bool) -> Call:
        """Return the next call of the run, if it was given the same."""
        found = super().take(name, args, is_write=is_write)
        wanted = self._wanted.pop(0)
        own = {key: value for key, value in args.items() if key != "idempotency_key"}
        if wanted is not None and not identical(wanted, own):
            why = f"the run called {name}({short(wanted)}), the healed routine {name}({short(own)})"
            raise self._over(Outcome("wrong", why))
        return found

    def _answer(self, pending: PendingPrompt) -> Json | None:
        answer = self._answers.get(pending.step_id)
        self.made.append(Call(APPROVAL, {"message": pending.message}, answer, effect="write"))
        return answer

    @property
    def is_over(self) -> bool:
        """Whether all calls of the run were made."""
        return not self._log


def _call(step: ToolStep | UdfStep, done: PastStep) -> Call:
    name = step.tool if isinstance(step, ToolStep) else step.function
    skipped = (done.fix or {}).get("strategy") == "skip"
    error = (done.error or "it failed") if skipped else None
    return Call(name, {}, done.result, error, is_udf=isinstance(step, UdfStep))


def _replay(routine: Routine, past: PastRun) -> list[Call]:
    """Replay the run from its journal: it must need no fix and return the same output."""
    world = _Replay(routine, past)
    secrets = Secrets(routine.secrets, _markers(routine))
    outcome = world.run(Program(routine), secrets=secrets)
    if outcome.verdict != "right":
        raise NotReproduced(
            f"the replay of the run failed: {outcome.reason}", place=f"run {past.run_id}"
        )
    if not world.is_over or not identical(world.output, past.output):
        raise NotReproduced(
            "the replay of the run returned another output",
            place=f"run {past.run_id}",
            recorded=short(past.output),
            replayed=short(world.output),
        )
    return world.made


def _markers(routine: Routine) -> dict[str, str]:
    """Return each secret's marker, as the journal writes it."""
    return {secret.name: marker(secret.name) for secret in routine.secrets}
