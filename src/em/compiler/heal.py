"""Healing: a fix that made a run succeed becomes a change of the routine.

A fixed argument becomes an expression that the step had elsewhere (a renamed argument), a reference
to the input or an earlier result, or a constant in place of a constant. A value that nothing in the
run explains was right for that run only, and is refused.
"""

import difflib
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.arguments import Arguments
from em.compiler.calls import Names
from em.compiler.draft import Recorded
from em.compiler.explanations import Explainer
from em.compiler.inputs import Inputs, Use
from em.compiler.package_files import as_json, render_again
from em.compiler.sources import Sources
from em.compiler.verification import NotReproduced
from em.errors import EmError, RoutineError
from em.redaction.redactor import marker
from em.runner.agreement import INPUTS, GuardFailed, part_at, single_places
from em.runner.drivers import drive
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_value
from em.runner.history import RECORDING, PastRun, PastStep, package_of, read_run
from em.runner.machine import Machine
from em.runner.package import ROUTINE, files_in, find_routine, keep_routine, write_files
from em.runner.routine import Default, Program, PromptStep, Routine, Step, ToolStep, UdfStep
from em.runner.run import cause_of
from em.runner.secrets import Secrets
from em.runner.tools import Tool
from em.store.protocol import Store
from em.values.canonical import Json, canonical, identical, short
from em.values.leaves import is_informative, leaves

_NOTHING = object()


class Healed(msgspec.Struct, frozen=True, kw_only=True):
    """A routine with the fixes of a run written into it.

    refused: the fixes that can't become part of the routine, each with the reason.
    recording: the calls of the run, as the healed routine makes them.
    """

    routine: Routine
    changed: Sequence[str]
    refused: Sequence[str]
    input: Json
    output: Any
    answers: Mapping[str, Json]
    recording: Sequence[Recorded] = ()


class Healing(msgspec.Struct, frozen=True, kw_only=True):
    """The change that healing a run makes, or would make.

    patch: the change of routine.yaml. old, new: the stored versions, if the change was made.
    """

    changed: Sequence[str]
    refused: Sequence[str]
    patch: str
    old: str = ""
    new: str = ""


def healing_of(
    routine: Routine, files: Mapping[str, str], past: PastRun
) -> tuple[Healing, dict[str, str]]:
    """What the fixes of a run change in its package, and the files of the new version."""
    healed = heal(routine, past)
    new = dict(files)
    if healed.changed:
        new[ROUTINE] = render_again(healed.routine, files[ROUTINE])
        new["input.json"] = as_json(healed.input)
        new["expected_output.json"] = as_json(healed.output)
        # What the trace said about its outcome, and what the agent used, stay.
        recorded = _object(files.get(RECORDING, ""))
        again = {"calls": healed.recording, "answers": healed.answers}
        new[RECORDING] = as_json({**recorded, **again})
    lines = difflib.unified_diff(
        files[ROUTINE].splitlines(keepends=True),
        new[ROUTINE].splitlines(keepends=True),
        ROUTINE,
        ROUTINE,
    )
    patch = "".join(lines)
    return Healing(changed=healed.changed, refused=healed.refused, patch=patch), new


def _object(text: str) -> Json:
    """Read a JSON object that a person may have edited; empty if it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def heal_run(store: Store, run_id: str, *, dry_run: bool = False) -> Healing:
    """Write the fixes that a run needed into its routine, stored as a new version.

    Replay the run from its journal as proof: the healed routine must need no fix and return the
    same output. With `dry_run` nothing is written.
    """
    past = read_run(store, run_id)
    with package_of(store, past) as package:
        package.check_unchanged(past.routine_hash)
        old = files_in(package.folder)
        healing, new = healing_of(package.routine, old, past)
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


def heal(routine: Routine, past: PastRun) -> Healed:
    """Write the fixes of a run into its routine, and prove the result by replaying the run."""
    _refuse_doubts(past)
    if not any(done.fix for done in past.steps):
        raise RoutineError("no step of this run was fixed", place=f"run {past.run_id}")
    if past.status != "ok":
        raise RoutineError(
            f"the run must have succeeded to be healed, but it ended as {past.status}",
            place=f"run {past.run_id}",
            fix="resume the run, or heal one that succeeded",
        )
    healer = _Healer(routine, past)
    healed = healer.heal()
    if not healed.changed:
        return healed
    return msgspec.structs.replace(healed, recording=_replay(healed, past))


def _refuse_doubts(past: PastRun) -> None:
    """Refuse a run that a guard stopped, or that asked what is right: no fix may decide that."""
    place = f"run {past.run_id}"
    if past.failure is not None and past.failure["error_type"] == GuardFailed.__name__:
        raise RoutineError(
            "a guard stopped this run, and healing never removes a guard",
            place=place,
            fix="an author may remove one that is not needed from routine.yaml",
        )
    if INPUTS in past.restored.answers or (past.prompt or {}).get("step_id") == INPUTS:
        raise RoutineError(
            "this run asked for inputs, so its values are not those of every run",
            place=place,
            fix="answer it, and heal a run that needed a fix and did not ask",
        )


class _Healer:
    def __init__(self, routine: Routine, past: PastRun) -> None:
        self._routine, self._past = routine, past
        self._changed: list[str] = []
        self._refused: list[str] = []

    def heal(self) -> Healed:
        steps = []
        given = Program(self._routine).inputs(self._past.input)
        scope: Json = {**FUNCTIONS, **given, **_markers(self._routine)}
        sources, inputs = Sources(), Inputs(given, "", [], Names())
        explainer = Explainer(inputs, sources)
        arguments = Arguments(inputs, sources, explainer, {}, is_reading=True)
        for number, step in enumerate(self._routine.steps):
            own = [done for done in self._past.steps if done.step == step.id]
            steps.append(self._mended(step, own, scope, arguments))
            if isinstance(step, PromptStep) and step.save_as is not None:
                scope[step.save_as] = self._past.restored.answers.get(step.id, {})
            elif step.save_as is not None and own:
                result = own[0].result
                if step.for_each is not None:
                    result = [done.result for done in own]
                scope[step.save_as] = result
                sources.add(number, step.save_as, result)
        return Healed(
            routine=msgspec.structs.replace(self._routine, steps=steps),
            changed=self._changed,
            refused=self._refused,
            input=self._past.input,
            output=self._past.output,
            answers=self._past.restored.answers,
        )

    def _mended(
        self, step: Step, own: Sequence[PastStep], scope: Json, arguments: Arguments
    ) -> Step:
        fixed = [done for done in own if done.fix]
        if not fixed or not isinstance(step, ToolStep | UdfStep):
            return step
        if len(fixed) < len(own):
            self._refused.append(f"step {step.id}: only some items needed a fix")
            return step
        made = {canonical(self._one(step, done, scope, arguments))[0] for done in fixed}
        if len(made) > 1:
            self._refused.append(f"step {step.id}: the items needed different fixes")
            return step
        healed = self._one(step, fixed[0], scope, arguments)
        if not identical(healed, step):
            self._changed.append(_described(step, healed))
        return healed

    def _one(
        self, step: ToolStep | UdfStep, done: PastStep, scope: Json, arguments: Arguments
    ) -> ToolStep | UdfStep:
        """Return the step with one fix written into it."""
        fix = done.fix or {}
        try:
            if fix["strategy"] == "skip":
                self._check_default(step, fix.get("default"), scope)
                return msgspec.structs.replace(step, on_error=Default(fix.get("default")))
            args = self._args(step, done, fix["args"], scope, arguments)
            return msgspec.structs.replace(step, args=args, agree=_moved(step, args))
        except _Unexplained as error:
            refusal = f"step {step.id}{error}"
            if refusal not in self._refused:
                self._refused.append(refusal)
            return step

    def _check_default(self, step: Step, default: Any, scope: Json) -> None:
        """Refuse a default that is a value of this run, or that another step decides by."""
        known = {
            canonical(value)[0]
            for name, held in scope.items()
            if name not in FUNCTIONS
            for _, value in leaves(held)
        }
        own = [value for _, value in leaves(default) if is_informative(value)]
        if any(canonical(value)[0] in known for value in own):
            raise _Unexplained(f": the default {short(default)} is a value of this run only")
        for other in self._routine.steps:
            checks = [other.when or "", getattr(other, "check", "")]
            checks += [*(other.checks.pre if other.checks else ())]
            if step.save_as and any(re.search(rf"\b{step.save_as}\b", text) for text in checks):
                raise _Unexplained(
                    f": step {other.id} decides by its result, so a default is not safe"
                )

    def _args(
        self,
        step: ToolStep | UdfStep,
        done: PastStep,
        args: Json,
        scope: Json,
        arguments: Arguments,
    ) -> Json:
        own = dict(scope)
        if step.for_each is not None:
            items = compile_value(step.for_each, f"step {step.id}")(scope)
            own[step.as_] = items[done.item or 0]
        old = _evaluated(step.args, own, step.id)
        source = _Source(step.args, old, arguments)
        return {key: source.of((key,), value) for key, value in args.items()}


def _moved(step: ToolStep | UdfStep, args: Json) -> dict[str, Sequence[str]]:
    """Return what must agree with the arguments, where these have other names now."""
    agree: dict[str, Sequence[str]] = {}
    for place, texts in step.agree.items():
        template = part_at(step.args, place)
        now = dict(single_places(args, step.agree))
        moved = [other for other, one in now.items() if identical(one, template)]
        if not moved:
            raise _Unexplained(f", args.{place}: what must agree with it would be lost")
        agree[place if place in moved else moved[0]] = texts
    return agree


def _described(old: ToolStep | UdfStep, new: ToolStep | UdfStep) -> str:
    """Describe the change of a step."""
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
    """Finds where the values of fixed arguments come from."""

    def __init__(self, template: Json, value: Any, arguments: Arguments) -> None:
        self._template, self._value, self._arguments = template, value, arguments
        self._leaves = list(_leaves(template, value))

    def of(self, path: Path, value: Any) -> Any:
        """Return a fixed value as the routine can write it; raise _Unexplained if it can't."""
        before, template = _at(self._value, path), _at(self._template, path)
        if template is not _NOTHING and before is not _NOTHING and identical(before, value):
            return template
        elsewhere = self._elsewhere(value)
        if elsewhere is not _NOTHING:
            return elsewhere
        if isinstance(value, dict):
            return {key: self.of((*path, key), item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of((*path, n), item) for n, item in enumerate(value)]
        is_expression = isinstance(template, str) and "{{" in template
        if template is not _NOTHING and not is_expression:
            return value  # a wrong constant
        if not is_expression and is_informative(value):
            use = Use(str(path[-1]), "", False)
            wired = self._arguments.wire(value, use, 0, ".".join(map(str, path)), "output")
            if wired.calls or wired.value != value:
                return wired.value
        place = f", args.{'.'.join(map(str, path))}"
        earlier = f"it was {template}" if is_expression else "it was missing"
        raise _Unexplained(
            f"{place}: {earlier}; the fix set {short(value)}, and nothing in the run explains it"
        )

    def _elsewhere(self, value: Any) -> Any:
        """Return the expression of another argument that had exactly this value."""
        if not isinstance(value, dict | list) and not is_informative(value):
            return _NOTHING
        for leaf in self._leaves:
            if identical(leaf.value, value) and leaf.template is not leaf.value:
                return leaf.template
        return _NOTHING


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


def _replay(healed: Healed, past: PastRun) -> list[Recorded]:
    """Replay the run from its journal: it must need no fix and return the same output."""
    calls = {step.id: step for step in healed.routine.steps if isinstance(step, ToolStep | UdfStep)}
    left = [done for done in past.steps if done.step in calls]
    made: list[Recorded] = []

    def stand_in(name: str, *, is_udf: bool) -> Any:
        def call(**args: Any) -> Any:
            done = left.pop(0) if left else None
            step = calls[done.step] if done else None
            if done is None or step is None or _name_of(step) != name:
                raise NotReproduced(f"the healed routine calls {name}, but the run did not")
            fix = done.fix or {}
            args.pop("idempotency_key", None)
            if fix.get("strategy") == "skip":
                raise RuntimeError(done.error or "it failed")
            expected = fix.get("args", done.args)
            if expected is not None and not identical(expected, args):
                raise NotReproduced(
                    f"the run called {name}({short(expected)}), the healed routine"
                    f" {name}({short(args)})",
                    place=f"step {step.id}",
                )
            made.append(Recorded(step.id, name, is_udf, args, done.result))
            return done.result

        return call

    names = {(_name_of(step), isinstance(step, UdfStep)) for step in calls.values()}
    machine = Machine(
        Program(healed.routine),
        run_id="verification",
        tools={n: Tool(n, stand_in(n, is_udf=False)) for n, is_udf in names if not is_udf},
        udfs={n: stand_in(n, is_udf=True) for n, is_udf in names if is_udf},
        answers=healed.answers,
        secrets=Secrets(healed.routine.secrets, _markers(healed.routine)),
    )
    result = drive(machine.run(healed.input))
    if result.failure is not None:
        raise NotReproduced(
            f"the replay of the run failed: {cause_of(result.failure)}",
            place=f"step {result.failure.step_id}",
        )
    if left or result.reason or not identical(result.output, healed.output):
        raise NotReproduced(
            "the replay of the run returned another output",
            place=f"run {past.run_id}",
            recorded=short(healed.output),
            replayed=short(result.output),
        )
    return made


def _markers(routine: Routine) -> dict[str, str]:
    """Return each secret's marker, as the journal writes it."""
    return {secret.name: marker(secret.name) for secret in routine.secrets}


def _name_of(step: ToolStep | UdfStep) -> str:
    return step.tool if isinstance(step, ToolStep) else step.function
