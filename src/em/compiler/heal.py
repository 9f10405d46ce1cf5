"""Healing: a fix that made a run succeed becomes a change of the routine.

A fixed argument becomes an expression that the step had elsewhere (a renamed argument), a reference
to an input or an earlier result that has exactly this value, or a constant in place of a constant.
If several places have it, an assert says that they must agree. A value that nothing in the run
explains was right for that run only, and is refused.
"""

import difflib
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
    AssertStep,
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
from em.values.leaves import Path as LeafPath
from em.values.leaves import is_informative, leaves

_NOTHING = object()


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
            yield from self._mended(step, own)
            if step.save_as is None or step not in self._routine.steps:
                continue
            if isinstance(step, PromptStep):
                self._scope[step.save_as] = self._past.restored.answers.get(step.id, {})
            elif isinstance(step, LetStep):
                self._scope[step.save_as] = _evaluated(step.value, self._known(), step.id)
            elif own:
                results = [done.result for done in own]
                self._scope[step.save_as] = results[0] if step.for_each is None else results

    def _known(self) -> Json:
        return {**SCOPE, **self._scope, **_markers(self._routine)}

    def _mended(self, step: Step, own: Sequence[PastStep]) -> list[Step]:
        """Return a step with its fixes, and before it what must agree for them."""
        fixed = [done for done in own if done.fix]
        if not fixed or not isinstance(step, ToolStep | UdfStep):
            return [step]
        if len(fixed) < len(own):
            self.refused.append(f"step {step.id}: only some items needed a fix")
            return [step]
        made = [self._one(step, done) for done in fixed]
        if len({canonical(one)[0] for one in made}) > 1:
            self.refused.append(f"step {step.id}: the items needed different fixes")
            return [step]
        healed = made[0]
        if not identical(healed[-1], step):
            self.changed.append(_described(step, healed[-1]))
        return healed

    def _one(self, step: ToolStep | UdfStep, done: PastStep) -> list[Step]:
        """Return the same for one fix."""
        fix = done.fix or {}
        try:
            if fix["strategy"] == "skip":
                self._check_default(step, fix.get("default"))
                return [msgspec.structs.replace(step, on_error=Default(fix.get("default")))]
            source = _Source(step.args, self._before(step, done), self._scope)
            args = {key: source.of((key,), value) for key, value in fix["args"].items()}
        except _Unexplained as error:
            refusal = f"step {step.id}{error}"
            if refusal not in self.refused:
                self.refused.append(refusal)
            return [step]
        asserts = [
            AssertStep(id=f"{step.id}_agrees_{number}", check=check)
            for number, check in enumerate(source.agreed, 1)
        ]
        return [*asserts, msgspec.structs.replace(step, args=args)]

    def _before(self, step: ToolStep | UdfStep, done: PastStep) -> Any:
        """Return the arguments before the fix; the journal has only those of effects."""
        if done.args is not None:
            return done.args
        own = self._known()
        if step.for_each is not None and isinstance(done.item, int):
            own[step.as_] = compile_value(step.for_each, f"step {step.id}")(own)[done.item]
        return _evaluated(step.args, own, step.id)

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


def _described(old: ToolStep | UdfStep, new: Step) -> str:
    """Describe the change of a step."""
    assert isinstance(new, ToolStep | UdfStep), "the same step"
    if identical(old.args, new.args):
        return f"step {old.id}: continues with {short(new.on_error)} when it fails"
    return f"step {old.id}: args {short(old.args)} become {short(new.args)}"


class _Unexplained(Exception):
    """Nothing in the run explains where a value comes from."""


Path = tuple[str | int, ...]


class _Leaf(NamedTuple):
    path: Path
    template: Any
    value: Any


class _Source:
    """Finds where the values of fixed arguments come from. agreed: what must be equal for it."""

    def __init__(self, template: Json, value: Any, scope: Json) -> None:
        self._template, self._value, self._scope = template, value, scope
        self._leaves = list(_leaves(template, value))
        self.agreed: list[str] = []

    def of(self, path: Path, value: Any) -> Any:
        """Return a fixed value as the routine can write it; raise _Unexplained if it can't."""
        before, template = _at(self._value, path), _at(self._template, path)
        if template is not _NOTHING and before is not _NOTHING and identical(before, value):
            return template
        found = self._elsewhere(value)
        is_expression = isinstance(template, str) and "{{" in template
        if not found and template is _NOTHING and is_informative(value):
            found = [*self._places(value)]
        if found:
            return self._one_of(found)
        if isinstance(value, dict):
            return {key: self.of((*path, key), item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of((*path, n), item) for n, item in enumerate(value)]
        is_of_run = is_informative(value) and any(
            identical(one, value) for _, one in leaves(self._scope)
        )
        if template is not _NOTHING and not is_expression and not is_of_run:
            return value  # a wrong constant
        place = f", args.{'.'.join(map(str, path))}"
        earlier = "it was missing" if template is _NOTHING else f"it was {template}"
        raise _Unexplained(
            f"{place}: {earlier}; the fix set {short(value)}, and nothing in the run explains it"
        )

    def _one_of(self, found: list[Any]) -> Any:
        """Return the first of several expressions; the others must agree with it."""
        if len(found) == 1:
            return found[0]
        bare = [_BARE.fullmatch(one) if isinstance(one, str) else None for one in found]
        if None in bare:
            raise _Unexplained(f": it could be any of {short(found)}")
        first, *others = [match[1] for match in bare if match is not None]
        self.agreed += [f"{first} == {other}" for other in others]
        return found[0]

    def _elsewhere(self, value: Any) -> list[Any]:
        """Return the expressions of other arguments that had exactly this value."""
        if not isinstance(value, dict | list) and not is_informative(value):
            return []
        found: list[Any] = []
        for leaf in self._leaves:
            is_same = identical(leaf.value, value) and leaf.template is not leaf.value
            if is_same and leaf.template not in found:
                found.append(leaf.template)
        return found

    def _places(self, value: Any) -> Iterator[str]:
        """Yield references to the inputs and results that are exactly this value."""
        for name, held in self._scope.items():
            for path, one in leaves(held):
                if identical(one, value) and not any(segment.in_collection for segment in path):
                    yield f"{{{{ {_reference(name, path)} }}}}"


_BARE = re.compile(r"\{\{ ([^{}]+) \}\}")


def _reference(name: str, path: LeafPath) -> str:
    keys = [str(segment.key) for segment in path]
    return name + "".join(
        f".{key}" if key.isidentifier() else f"[{msgspec.json.encode(key).decode()}]"
        for key in keys
    )


def _leaves(template: Any, value: Any, path: Path = ()) -> list[_Leaf]:
    """Return the leaves of a template, each with its value."""
    if isinstance(template, dict) and isinstance(value, dict):
        pairs = [(key, template[key], value.get(key)) for key in template]
        return [leaf for key, t, v in pairs for leaf in _leaves(t, v, (*path, key))]
    if isinstance(template, list) and isinstance(value, list):
        both = enumerate(zip(template, value, strict=False))
        return [leaf for n, (t, v) in both for leaf in _leaves(t, v, (*path, n))]
    return [_Leaf(path, template, value)]


def _at(value: Any, path: Path) -> Any:
    for key in path:
        inside = isinstance(value, dict) and key in value
        inside = inside or (isinstance(value, list) and isinstance(key, int) and key < len(value))
        if not inside:
            return _NOTHING
        value = value[key]
    return value


def _evaluated(template: Any, scope: Json, step_id: str) -> Any:
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
