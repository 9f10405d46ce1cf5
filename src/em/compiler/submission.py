"""Submission: a routine that an agent, a model or a person wrote, and how it is judged.

em lets in what is proved, whoever wrote it. It is run on every recording of its group, also on
those that its author was not shown, in a copy of the recorded files and with the recorded tools. It
is also run where something is otherwise, beside what em learnt from the recordings. Code runs in
the sandbox. One that does anything else than was done is refused, with the first differences.
"""

import ast
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from em.compiler.draft import Draft, GivenUdfs, Recorded, check_udfs, render_udfs
from em.compiler.example import APPROVAL, Call
from em.compiler.file_world import Course, FileWorld
from em.compiler.group import Case, Group
from em.compiler.replay_world import POLICIES, Outcome, Recording, World, program_of
from em.compiler.routine_text import routine_text
from em.compiler.variation import FAILED, Beside
from em.errors import EmError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.package import ROUTINE, UDF, Udfs, parse_yaml, read_routine, sandboxed
from em.runner.tools import Function
from em.runner.tools.coding import CREATE, effect_of_tool
from em.runner.trial import AS_RECORDED, LEFT_OUT, Proof, Trial
from em.runner.validation import all_steps
from em.values.canonical import Json, identical, same, short
from em.values.leaves import is_informative, scalars, texts
from em.values.syntax_tree import module_of

T = TypeVar("T")
LONGEST = 200_000
"""The most characters of one file."""
SECONDS = 120.0
"""The time limit for all trials, whose expressions may never end."""
MOST_DIFFERENCES = 5
MOST_OTHERWISE = 5
"""Sessions that are tried where something is otherwise."""
LEAST_RIGHT = 0.5
"""The share of recordings that were held back on which it must be right."""


_UNSEEN = {"retry", "timeout", "idempotency_key", "on_error"}
"""Fields of steps that matter where no recording shows it: em learns none."""
FORMAT = """\
Write a routine: steps that repeat, without a model, what was done in the recordings. Send
routine.yaml, and udf.py if it computes something. Write it as a careful engineer would: names that
say what they hold, a short description for each step, `for_each` where the same call is made for
several items, asserts that notice when the world differs, real bodies for the functions.

If there is a draft, em learnt it from all recordings. Its name, input_schema, requests and secrets
stay, and what its calls are expected to return. Without a draft, write input_schema too; the values
that a request says for its inputs may be sent by recording, also for those that are held back.

It is tried on every recording, also on those that are held back, and must do there what was done:
- Every call with an effect is made again, with the same arguments, in the same order, and once.
  Where files were changed, their texts must be the same at the end and at each command with an
  effect, whatever steps changed them; what is in `run_after_changes` must run again after the last
  change and before the next effect. The tools for files are FileText(file_path), FileThere, Edit
  (file_path, old_string, new_string), Insert (file_path, insert_line, new_string), Write and Create
  (file_path, content). Today(form, zone) is the day, as strftime writes it, `local` or `utc`. Only
  recorded tools are called.
- It returns what the draft returns, or what was recorded.
- The same again with lists in another order, with other inputs, and where one value, one answer or
  one call is otherwise: it must do what the draft does, or hand over. So no value of a recording is
  written into it, and every check of the draft has its like.
- No retry, timeout, idempotency_key or on_error. prompt.user steps keep their message and fields,
  and an assert of the answer follows. One return, the last step. No {% %}. Functions of
  udf.py are pure: arguments in, plain JSON values out.

Each step has id, type and optionally description, when, save_as, for_each with as. Types:
tool.call {tool, args}; udf.call {function, args}; assert {check, message}; let {value, save_as};
for_each {over: {name: list expression}, steps}; prompt.user {prompt: {message, fields}}; return
{value}. An argument that is exactly one "{{ expression }}" keeps its type; text around it makes a
text. `when`, `check` and the lists of `over` are bare expressions in Jinja2 (its sandbox).
Functions there: """
FORMAT += f"{', '.join(sorted(FUNCTIONS))}, and those of udf.py.\n"
_HEAD = ("tools", "steps")
"""The only fields that an author may write where em learnt a routine itself."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wrote. files: by name: routine.yaml and udf.py.

    inputs: by recording, where they are others than those that are shown. author: as it is marked.
    name: of the routine, in place of the one that em found.
    """

    files: Mapping[str, str]
    inputs: Mapping[str, Json] = {}
    author: str = "agent"
    name: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How a submission did. draft: the routine; None if `differences` say why it is refused."""

    proof: Proof | None = None
    differences: Sequence[str] = ()
    draft: Draft | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether it did nothing but what was done, and enough of that."""
        return not self.differences

    def as_dict(self) -> Json:
        """Return it for programs: the counts over all recordings, and the first differences."""
        own = () if self.proof is None else self.proof.trials.get(AS_RECORDED, ())
        verdicts = [one.verdict for one in own]
        return {
            "accepted": self.is_accepted,
            "right": verdicts.count("right"),
            "handed_over": verdicts.count("handed over"),
            "wrong": verdicts.count("wrong"),
            "differences": [*self.differences],
        }


def judged(group: Group, submission: Submission) -> Judged:
    """Judge a submission on all recordings of a group."""
    try:
        return _within(SECONDS, lambda: _Judging(group, submission).judged())
    except Refused as refused:
        return Judged(differences=refused.differences)
    except EmError as error:
        return Judged(differences=[str(error)])
    except Exception as error:  # noqa: BLE001 - what somebody wrote may cause any error
        return Judged(differences=[f"it can't be used: {type(error).__name__}: {error}"])


class Refused(Exception):
    """A submission is refused, for these reasons."""

    def __init__(self, *differences: str) -> None:
        super().__init__(*differences)
        self.differences = differences


Run = Callable[[World], Outcome]


class _Judging:
    """Judges one submission."""

    def __init__(self, group: Group, submission: Submission) -> None:
        self._group, self._submission = group, submission
        self._trials: dict[str, list[Trial]] = {}
        self._right: list[str] = []
        self._output: Any = None
        self._acted: set[str] = set()

    def judged(self) -> Judged:
        files = self._submission.files
        if ROUTINE not in files or files.keys() - {ROUTINE, UDF}:
            raise Refused(f"send {ROUTINE} and {UDF}, got {', '.join(sorted(files)) or 'nothing'}")
        if max(map(len, files.values())) > LONGEST:
            raise Refused(f"a file has more than {LONGEST:,} characters")
        code = files.get(UDF, "")
        document = self._document(files[ROUTINE], code or self._given())
        with self._functions(code) as functions:
            _check_functions(self._group, functions, code)
            program = program_of(_with_secrets_given(document))
            return self._tried(lambda world: world.run(program, functions), functions, document)

    # --- the document

    def _document(self, text: str, code: str) -> Json:
        """Return the routine, with what is not its author's to say."""
        document = parse_yaml(text.encode(), ROUTINE)
        if not isinstance(document, dict):
            raise Refused(f"{ROUTINE} must be a mapping")
        if any("{%" in one for one in texts(document, names=True)):
            raise Refused("no {% %} in a routine: write an expression, or a function in udf.py")
        draft = self._group.draft
        if draft is not None:
            own = {name: document[name] for name in _HEAD if name in document}
            document = {**draft.document, **own}
        document = {"version": "1", **document, "checks": "hand_over"}
        if self._submission.name:
            document["name"] = self._submission.name
        _refuse(_invalid(document, code))
        steps = [step for _, step in all_steps(document["steps"])]
        document["tools"] = self._tools(document, steps)
        known = [] if draft is None else [one for _, one in all_steps(draft.document["steps"])]
        _refuse([*_beyond(steps, known)])
        document["steps"] = [_kept(step, steps, known) for step in document["steps"]]
        _refuse(_invalid(document, code))
        read_routine(document, ROUTINE)
        return document

    def _tools(self, document: Json, steps: Sequence[Json]) -> list[Json]:
        """Return the declarations of the tools, as they were recorded."""
        recorded = {tool["name"]: tool for tool in self._group.tools}
        said = {one["name"]: one.get("description") for one in document.get("tools", ())}
        called = [*dict.fromkeys(step["tool"] for step in steps if step["type"] == "tool.call")]
        found = []
        for name in called:
            effect = effect_of_tool(name) if self._group.is_session else None
            if name not in recorded and effect is None:
                raise Refused(f"the recordings have no tool {name!r}")
            own = recorded.get(name, {"name": name, "effect": effect})
            found.append({**own, "description": said[name]} if said.get(name) else own)
        return found

    def _given(self) -> str:
        """Return the text of the functions that a person gave; they are not its author's to say."""
        draft = self._group.draft
        return "" if draft is None or not draft.udfs.functions else render_udfs(draft, draft.udfs)

    def _functions(self, code: str) -> AbstractContextManager[Udfs]:
        draft = self._group.draft
        given = {} if draft is None else draft.udfs.functions
        if given and code.strip():
            names = ", ".join(sorted(given))
            raise Refused(
                f"the functions are given and stay as they are ({names}): leave {UDF} empty"
            )
        # A person's functions are not called with values that an author made up.
        return sandboxed(Path(UDF), code.encode()) if code.strip() else Udfs()

    # --- trials

    def _tried(self, run: Run, functions: Mapping[str, Function], document: Json) -> Judged:
        group = self._group
        schema = document.get("input_schema") or {}
        recordings = [self._recording(case, document) for case in group.cases]
        wrong: list[str] = []
        for case, recording in zip(group.cases, recordings, strict=True):
            wrong += self._as_recorded(case, recording, run, schema)
        if not wrong and self._right:
            wrong += self._idle(document)
        pairs = [*zip(group.cases, recordings, strict=True)]
        if not wrong and group.is_session:
            wrong += [
                f"{case.name}: {one}"
                for case, rec in pairs[:MOST_OTHERWISE]
                for one in _otherwise(group, case, rec, run)
            ]
        elif not wrong and group.draft is not None:
            beside = Beside(
                _with_secrets_given(group.draft.document), _with_secrets_given(document), functions
            )
            found = (
                f"{case.name}: {one}" for case, rec in pairs for one in beside.differences(rec)
            )
            wrong += islice(found, MOST_DIFFERENCES)
        proof = self._proof()
        differences = wrong or self._too_little(proof)
        if differences:
            return Judged(proof=proof, differences=differences[:MOST_DIFFERENCES])
        return Judged(proof=proof, draft=self._draft(document, recordings, proof))

    def _recording(self, case: Case, document: Json) -> Recording:
        inputs = self._submission.inputs.get(case.name, case.inputs)
        for _, value in scalars(inputs):
            if not identical(inputs, case.inputs) and not _is_said(value, case):
                raise Refused(f"{case.name}: {short(value)} stands in no request and no input")
        plain = _with_secrets_given(document)
        return Recording.given({**case.inputs, **inputs}, case.calls, plain)

    def _as_recorded(
        self, case: Case, recording: Recording, run: Run, schema: Json
    ) -> Iterator[str]:
        """Yield how it differs on a recording, as it is and in other orders."""
        for how, policy in self._policies().items():
            world = self._world(case, recording, schema, policy)
            if world is None:
                continue
            with closing(world):
                outcome = run(world)
            self._note(how, case.name, outcome)
            if how == AS_RECORDED:
                self._acted |= world.acted
                if case is self._group.cases[0]:
                    self._output = world.output
                if case.is_held:
                    self._note(LEFT_OUT, case.name, outcome)
                if outcome.verdict == "right":
                    outcome = self._with_output(case, world, outcome)
            was_right = case.name in self._right
            if outcome.verdict == "wrong" or (outcome.is_unrecorded and was_right):
                yield f"{case.name}, {how}: {outcome.reason}"
            elif outcome.verdict == "right" and how == AS_RECORDED:
                self._right.append(case.name)

    def _with_output(self, case: Case, world: World, outcome: Outcome) -> Outcome:
        """Compare what is returned with the recording, or with what em's own routine returns."""
        draft = self._group.draft
        if self._group.is_session or draft is None or identical(world.output, case.output):
            return outcome
        own = World(world.inputs, case.calls)
        own.run(program_of(_with_secrets_given(draft.document)))
        if identical(own.output, world.output):
            return outcome
        return Outcome(
            "wrong", f"it returns {short(world.output)}, and should return {short(own.output)}"
        )

    def _policies(self) -> Mapping[str, Any]:
        if not self._group.is_session:
            return POLICIES
        is_held = any(case.is_held for case in self._group.cases)
        # The words of a request stand in files too, and not as inputs: recordings held back show
        # better whether a value is written into it.
        return {
            how: policy
            for how, policy in POLICIES.items()
            if how == AS_RECORDED or (how == "fresh inputs" and not is_held)
        }

    def _world(self, case: Case, recording: Recording, schema: Json, policy: Any) -> World | None:
        world: World = policy(recording, schema)
        if not self._group.is_session:
            return world
        same_calls = world.calls is recording.calls
        try:
            course = case.course if same_calls else Course(world.calls)
        except EmError:
            return None
        return FileWorld(world.inputs, world.calls, course, checks=self._group.checks)

    def _note(self, how: str, name: str, outcome: Outcome) -> None:
        trial = Trial(name, outcome.verdict, outcome.reason, outcome.is_unrecorded)
        self._trials.setdefault(how, []).append(trial)

    def _idle(self, document: Json) -> list[str]:
        """Refuse steps with an effect that no recording comes to."""
        writes = {tool["name"] for tool in document["tools"] if tool.get("effect") != "read"}
        return [
            f"step {step['id']} has an effect, and no recording comes to it: remove it"
            for _, step in all_steps(document["steps"])
            if step["type"] == "tool.call" and step["tool"] in writes
            if step["id"] not in self._acted
        ]

    def _too_little(self, proof: Proof) -> list[str]:
        """Say why it did too little of what was done; nothing if it did enough."""
        own = proof.trials.get(AS_RECORDED, ())
        held = proof.trials.get(LEFT_OUT, ())
        draft = self._group.draft
        stops = [f"{one.trace}: {one.reason}" for one in own if one.verdict != "right"]
        if draft is not None and draft.proof is not None:
            known = {
                one.trace
                for one in draft.proof.trials.get(AS_RECORDED, ())
                if one.verdict == "right"
            }
            return [
                f"it stops, and what em learnt does not: {one.trace}: {one.reason}"
                for one in own
                if one.verdict != "right" and one.trace in known
            ]
        right = sum(one.verdict == "right" for one in held)
        if not any(one.verdict == "right" for one in own) or right < LEAST_RIGHT * len(held):
            return stops
        return []

    def _proof(self) -> Proof:
        draft = self._group.draft
        open_values = () if draft is None or draft.proof is None else draft.proof.open
        return Proof(
            at=datetime.now(UTC),
            routine="",
            trials=self._trials,
            were_shown=LEFT_OUT not in self._trials,
            open=open_values,
        )

    def _draft(self, document: Json, recordings: Sequence[Recording], proof: Proof) -> Draft:
        """Return the routine, with the recordings behind it."""
        base = self._group.draft
        code = self._submission.files.get(UDF, "")
        if base is None:
            recorded = [
                Recorded(name=case.name, inputs=one.inputs, calls=case.calls, output=case.output)
                for case, one in zip(self._group.cases, recordings, strict=True)
            ]
            base = Draft(document=document, recordings=recorded)
        return msgspec.structs.replace(
            base,
            document=document,
            proof=proof,
            output=self._output,
            udf_source=code if code.strip() else "",
            written_by=self._submission.author,
        )


# --- what recordings do not show ------------------------------------------------------------------


def _beyond(steps: Sequence[Json], known: Sequence[Json]) -> Iterator[str]:
    """Yield what steps have that would matter where no recording shows it."""
    for step in steps:
        for name in _UNSEEN & step.keys():
            yield f"step {step['id']}: no `{name}`: no recording shows what it does"
    asks, asked = (
        [one["prompt"].get("fields") for one in some if one["type"] == APPROVAL]
        for some in (steps, known)
    )
    if known and not same(asks, asked):
        yield f"there must be {len(asked)} {APPROVAL} steps, with the fields of the draft"
    returns = [one for one in steps if one["type"] == "return"]
    if len(returns) != 1 or returns[0] is not steps[-1] or "when" in returns[0]:
        yield "there is one return step, the last one, without `when`"


def _kept(step: Json, steps: Sequence[Json], known: Sequence[Json]) -> Json:
    """Return a step that expects of its result what em learnt, and has its effect."""
    kept = {name: one for name, one in step.items() if name not in ("held", "effect")}
    if "steps" in step:
        kept["steps"] = [_kept(one, steps, known) for one in step["steps"]]
    if step["type"] not in ("tool.call", "udf.call"):
        return kept
    called = ("tool", "function")
    theirs, mine = (
        [one for one in some if all(one.get(name) == step.get(name) for name in called)]
        for some in (known, steps)
    )
    if len(theirs) == len(mine):
        theirs = [theirs[next(n for n, one in enumerate(mine) if one is step)]]
    if theirs and all(same(one.get("expect"), theirs[0].get("expect")) for one in theirs):
        own = ("expect", "held", "effect")
        kept.pop("expect", None)
        kept |= {name: theirs[0][name] for name in own if name in theirs[0]}
    return kept


def _otherwise(group: Group, case: Case, recording: Recording, run: Run) -> Iterator[str]:
    """Yield what it does wrong where something in a session is otherwise than recorded.

    A check that fails must stop it before the next effect, a file that it would create may be
    there, and a line like the one that it changes must stay as it is.
    """
    course = case.course

    def tried(
        calls: Sequence[Any], before: Mapping[str, str], more: Mapping[str, str]
    ) -> FileWorld:
        world = FileWorld(
            recording.inputs, calls, course, checks=group.checks, before=before, more=more
        )
        with closing(world):
            world.ended = run(world)
        return world

    for check in {
        one.tool: one for ran in course.checks for one in ran if one.tool in group.checks
    }.values():
        calls = [one._replace(error=FAILED) if one == check else one for one in case.calls]
        world = tried(calls, course.before, {})
        names = [one.tool for one in world.made]
        after = world.made[names.index(check.tool) + 1 :] if check.tool in names else []
        acts = any(one.effect == "write" and effect_of_tool(one.tool) is None for one in after)
        if world.ended.verdict == "right" or acts:
            yield f"where {check.tool} fails, it goes on"
    for path in {str(one.args["file_path"]) for one in case.calls if one.tool == CREATE}:
        there = {path: "somebody else wrote this\n"}
        world = tried(case.calls, {**course.before, **there}, there)
        if world.texts.get(path) != there[path]:
            yield f"where {path} is there already, it overwrites it"
    for path, before in course.before.items():
        # The first line that was replaced by another one.
        old, new = before.splitlines(), course.at[-1].get(path, before).splitlines()
        pairs = zip(old, new, strict=False) if len(old) == len(new) else ()
        if line := next((one for one, other in pairs if one != other), ""):
            twice = f"{line} and more\n{before}"
            world = tried(case.calls, {**course.before, path: twice}, {})
            now = world.texts.get(path, "")
            if now != twice and not now.startswith(f"{line} and more\n"):
                yield f"{path}: it changes another line of the kind: {short(f'{line} and more')}"


# --- functions ------------------------------------------------------------------------------------


def _check_functions(group: Group, functions: Mapping[str, Function], code: str) -> None:
    """Refuse functions that do not return what was recorded, or know it by heart."""
    defined = {
        node.name: node
        for node in module_of(code).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    recorded: dict[str, list[Call]] = {}
    for call in (one for case in group.cases for one in case.calls):
        if call.is_udf and call.error is None and call.tool in functions:
            recorded.setdefault(call.tool, []).append(call)
    check_udfs(GivenUdfs(functions), recorded)
    for name, calls in recorded.items():
        names = {node.arg for node in ast.walk(defined[name].args) if isinstance(node, ast.arg)}
        used = {node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)}
        if any(call.args for call in calls) and not names & used:
            raise Refused(f"{UDF}: {name} does not use its arguments")
    literals = {node.value for node in ast.walk(module_of(code)) if isinstance(node, ast.Constant)}
    known = set() if group.draft is None else {*texts(group.draft.document, names=True)}
    for case in group.cases:
        told = [[call.args, call.result] for call in case.calls if call.error is None]
        for _, value in scalars([case.inputs, told, case.output]):
            if is_informative(value) and value in literals and value not in known:
                raise Refused(f"{UDF}: {short(value)} is hard-coded: pass it as an argument")


# --- help -----------------------------------------------------------------------------------------


def _is_said(value: Any, case: Case) -> bool:
    """Return whether a value stands in a request, or is one of its inputs."""
    known = [one for _, one in scalars(case.inputs)]
    return value is None or value in known or str(value).lower() in case.request.lower()


def _with_secrets_given(document: Json) -> Json:
    """Return a routine that is given its secrets as inputs: recordings have their markers."""
    names = [secret["name"] for secret in document.get("secrets", ())]
    if not names:
        return document
    schema = document["input_schema"]
    properties = {**schema.get("properties", {}), **{name: {"type": "string"} for name in names}}
    plain = {name: one for name, one in document.items() if name != "secrets"}
    return {**plain, "input_schema": {**schema, "properties": properties}}


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise Refused(*problems)


def _invalid(document: Json, code: str) -> list[str]:
    from em.runner.validation import validate

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ROUTINE).write_text(routine_text(document), encoding="utf-8")
        if code.strip():
            (folder / UDF).write_text(code, encoding="utf-8")
        return [
            str(problem).replace(f"{folder}/", "")
            for problem in validate(folder)
            if problem.severity == "error"
        ]


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Do some work in a thread and return its result; give up after `seconds`."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again by the waiting thread
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(timeout=seconds)
    except TimeoutError:
        if done.done():  # the work's own
            raise
        raise Refused(f"its trials did not end within {seconds:g} s") from None
