"""Compilation of traces into a routine: from a file or the log, with or without a model.

Traces become `recordings`, the `learner` writes the routine that all of them agree on, and it is
tried in their own world: as recorded, with lists in another order, and with fresh inputs. Then each
recording is left out once, and what the others teach is tried on it. One that hands over did no
harm; one that would have written anything else than was recorded is wrong, and is not returned.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from em.compiler.calls import calls_of, tried_in_vain
from em.compiler.checks import general, open_values
from em.compiler.commands import is_bookkeeping, refuse_unrepeatable, require_commands
from em.compiler.draft import (
    Draft,
    GivenUdfs,
    Recorded,
    Udfs,
    check_udfs,
    load_udfs,
    package_texts,
    write_package,
)
from em.compiler.kind import free_name, name_of
from em.compiler.learner import Learnt
from em.compiler.recordings import Recordings
from em.compiler.replay_world import Recording, as_recorded, program_of
from em.compiler.request_templates import described
from em.errors import EmError, InputError, RoutineError, UsageError
from em.llm.client import LlmClient
from em.runner.package import current_version, routine_of
from em.runner.routine import NO_REVIEW, Review, Routine
from em.runner.trial import Proof
from em.settings import Settings
from em.store import redactor_of
from em.store.protocol import Store
from em.traces.outcomes import outcome_of
from em.traces.trace import KeptTrace, ToolCall, Trace, as_kept, read_trace
from em.values.call import Effect
from em.values.canonical import Json, uncollected
from em.values.files import BOM, open_file

if TYPE_CHECKING:
    from em.compiler.llm_compile import Improved
from datetime import UTC, datetime

from em.compiler.example import Example
from em.compiler.replay_world import POLICIES, Outcome
from em.runner.trial import LEFT_OUT, Trial

REASONS_SHOWN = 3


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A routine compiled from traces, with what a person should look at.

    constants: arguments that are always the same. asked: inputs because nothing explains them.
    unchecked: numbers of inputs and records that are not compared. improved: the outcome of asking
    a model, if one was asked. same_way: the traces that it was learnt from. not_compiled: those
    that were left out, each with the reason.
    """

    draft: Draft
    files: Mapping[str, str]
    constants: Sequence[tuple[str, Any]] = ()
    asked: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    improved: "Improved | None" = None
    from_events: Sequence[str] = ()
    same_way: Sequence[str] = ()
    not_compiled: Mapping[str, str] = {}


def compile_several(
    traces: Sequence[KeptTrace],
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
    client: LlmClient | None = None,
    allow_failed: bool = False,
    allow_unlabelled: bool = True,
    review: Review = NO_REVIEW,
    struck: Sequence[str] = (),
    inputs_before: Mapping[str, Json] | None = None,
    kept_in: Store | None = None,
    fresh: bool = False,
    force: bool = False,
) -> Compiled:
    """Compile one routine from recordings of one kind of task.

    Those that say that they failed are left out; if all do, they are refused unless `allow_failed`.
    `allow_unlabelled=False` refuses traces if none of them says that it succeeded.

    review, struck: what a person said about the routine. inputs_before: by recording, the inputs of
    an earlier version, whose names stay. kept_in: the memory that it is for; there
    it gets a name that means no routine of another kind, unless a `name` is given, and what was
    said about the version with its name stays said, unless `fresh`. force: return the
    routine though it is not proved. With a `client`, its model improves the routine.
    """
    declared = declared or {}
    usable, left_out = _usable(
        traces, declared, allow_failed=allow_failed, allow_unlabelled=allow_unlabelled
    )
    name = name or (
        name_of([kept.trace for kept in usable], declared)
        if kept_in is None
        else free_name(kept_in, usable, declared)
    )
    before = None if kept_in is None or fresh else _stored(kept_in, name)
    with uncollected(), _nested_too_deeply():
        made = Recordings(
            name,
            usable,
            declared,
            keep_all=keep_all,
            review=review,
            before=NO_REVIEW if before is None else before.review,
            struck=[*dict.fromkeys([*general(before.struck if before else ()), *struck])],
            inputs_before=inputs_before or {},
        )
        learnt, proof = _proved(made, force=force)
        sources = Counter(kept.trace.origin for kept in usable)
        proof = msgspec.structs.replace(proof, sources=dict(sorted(sources.items())))
        made.require_said(learnt)
    draft = _draft(made, learnt, proof, usable, load_udfs(udfs))
    improved = None if client is None else _improved(draft, made, usable, client)
    return _compiled(learnt, improved.draft if improved else draft, improved, usable, left_out)


def _improved(
    draft: Draft, made: Recordings, traces: Sequence[KeptTrace], client: LlmClient
) -> "Improved":
    """Let a model write the routine."""
    from em.compiler.llm_compile import improve

    def relearn(names: Sequence[str]) -> Draft:
        other = made.with_inputs(names)
        learnt, proof = _proved(other, force=False)
        return _draft(other, learnt, proof, traces, draft.udfs)

    return improve(draft, traces, client, relearn)


def _compiled(
    learnt: Learnt,
    draft: Draft,
    improved: "Improved | None",
    usable: Sequence[KeptTrace],
    left_out: Mapping[str, str],
) -> Compiled:
    """Return a routine with its files, and with what a person should look at."""
    return Compiled(
        draft=draft,
        files=package_texts(draft),
        constants=learnt.constants,
        asked=learnt.asked,
        unchecked=learnt.unchecked,
        improved=improved,
        from_events=[event for kept in usable for event in kept.event_ids],
        same_way=[kept.id for kept in usable],
        not_compiled=left_out,
    )


def _stored(store: Store, name: str) -> Routine | None:
    """Return the version that a name means in a memory, if it has one that can be read."""
    try:
        return routine_of(current_version(store, name))
    except EmError:
        return None


def _proved(made: Recordings, *, force: bool) -> tuple[Learnt, Proof]:
    """Return what recordings teach, with its proof; raise if it is not proved.

    One recording is always learnt from: if its loops can't be written down, its writes are single
    ones, and if that can't, all of its values are constants.
    """
    is_one = len(made.examples) == 1
    ways: list[Callable[[], Learnt]] = [made.learnt]
    ways += [made.flat().learnt, made.verbatim] if is_one else []
    for number, learn in enumerate(ways, 1):
        try:
            learnt = learn()
            proof = prove(
                learnt.routine,
                made.examples,
                made.document,
                asked=made.asked(learnt),
                open_values=open_values(learnt.routine, learnt.asked, made.examples),
            )
        except RoutineError:
            if number == len(ways):
                raise
            continue
        if force or proof.is_proved:
            return learnt, proof
    reasons = proof.reasons("wrong") or proof.reasons("handed over")
    what = (
        f"what was learnt is right on none of {len(made.examples)} recordings left out, so it would"
        " hand over each time"
        if proof.is_by_heart
        else "the recordings contradict each other, or what was learnt from them does not do what"
        " they did"
    )
    raise RoutineError(
        f"{what}: {'; '.join(reasons[:REASONS_SHOWN])}",
        place="traces",
        fix="compile those together that do the same, or see what it would be with --force",
    )


@contextmanager
def _nested_too_deeply() -> Iterator[None]:
    """Turn the end of Python's stack into an error that says what is wrong."""
    try:
        yield
    except RecursionError:
        raise RoutineError(
            "a value of the recordings is nested too deeply to be learnt from", place="traces"
        ) from None


def _draft(
    made: Recordings, learnt: Learnt, proof: Proof, traces: Sequence[KeptTrace], udfs: GivenUdfs
) -> Draft:
    """Return the draft of what was learnt, with what it returns for its first recording."""
    document, secret = learnt.routine, made.secrets
    asked = made.asked(learnt)
    first = as_recorded(Recording.of(made.examples[0], document, asked[0]), {})
    first.run(program_of(document))
    recordings = []
    for example, more in zip(made.examples, asked, strict=True):
        given = Recording.of(example, document, more).inputs
        recordings.append(
            Recorded(
                name=example.name,
                inputs={name: one for name, one in given.items() if name not in secret},
                calls=example.calls,
                output=example.output,
            )
        )
    outcomes = {outcome_of(kept.trace) for kept in traces}
    pairs = zip(made.examples, traces, strict=True)
    said = [(example.request, kept.subject or kept.id) for example, kept in pairs]
    draft = Draft(
        document=described(made.with_secrets(document), said),
        recordings=recordings,
        output=first.output,
        usage=traces[0].trace.recorded_usage,
        outcome=next(one for one in ("success", "unknown", "failure") if one in outcomes),
        proof=proof,
        udfs=udfs,
    )
    check_udfs(udfs, draft.functions)
    return draft


# --- files ----------------------------------------------------------------------------------------


def compile_trace_file(trace_path: str | Path, output_dir: str | Path, **options: Any) -> Draft:
    """Compile a trace file into a package folder. Write nothing unless it is proved.

    options: those of `compile_several`. Secrets in the file are redacted first, and become secrets
    of the routine.
    """
    made = compile_file(trace_path, **options)
    write_package(made.draft, Path(output_dir))
    return made.draft


def compile_file(trace_path: str | Path, **options: Any) -> Compiled:
    """Compile the trace in a file; options: those of `compile_several`."""
    return compile_trace(read_trace_file(trace_path), **options)


def compile_trace(trace: Trace, **options: Any) -> Compiled:
    """Compile one trace; options: those of `compile_several`."""
    return compile_several([as_kept(trace, "")], **options)


def read_trace_file(trace_path: str | Path) -> Trace:
    """Read a trace from a file and redact its secrets."""
    path = Path(trace_path)
    if not path.exists():
        raise InputError("the file does not exist", place=str(path))
    with open_file(path) as file:
        data = file.read().removeprefix(BOM)
    return without_secrets(read_trace(data, str(path)))


def without_secrets(trace: Trace) -> Trace:
    """Replace each secret of a trace by a marker."""
    redact = redactor_of(Settings.load())
    # The decoded trace, since escapes in the JSON text could hide a secret.
    if not redact.suspects([msgspec.json.encode(trace)]):
        return trace
    return msgspec.convert(redact.value(msgspec.to_builtins(trace)), Trace)


# --- which traces ---------------------------------------------------------------------------------


def _usable(
    traces: Sequence[KeptTrace],
    declared: Mapping[str, Effect | None],
    *,
    allow_failed: bool,
    allow_unlabelled: bool,
) -> tuple[Sequence[KeptTrace], dict[str, str]]:
    """Return the traces to learn from, and why the others are left out. Raise if none is left."""
    if not traces:
        raise UsageError("no traces to compile", fix="give the id of at least one trace")
    refused = {
        kept.id: why
        for kept in traces
        if (why := _why_not(kept.trace, declared, allow_failed=allow_failed)) is not None
    }
    usable = [kept for kept in traces if kept.id not in refused]
    if not usable:
        raise next(iter(refused.values()))
    outcomes = {outcome_of(kept.trace) for kept in usable}
    if "success" not in outcomes and "unknown" in outcomes and not allow_unlabelled:
        raise RoutineError(
            "the trace does not say whether it succeeded"
            if len(usable) == 1
            else f"none of the {len(usable)} traces says that it succeeded",
            place="outcome",
            fix="label it (`em traces label TRACE success`), or allow it with --allow-unlabelled,"
            " in Python allow_unlabelled=True",
        )
    for kept in usable:
        require_commands(kept.trace)
    return usable, {trace: why.message for trace, why in refused.items()}


def _why_not(
    trace: Trace, declared: Mapping[str, Effect | None], *, allow_failed: bool
) -> RoutineError | None:
    """Return why nothing can be learnt from a trace; None if something can."""
    outcome = outcome_of(trace)
    if outcome == "failure" and not allow_failed:
        return RoutineError(
            "the trace says that it failed",
            place="outcome",
            fix="compile an attempt that succeeded, label it if it did (`em traces label TRACE"
            " success`), or allow it with --allow-failed, in Python allow_failed=True",
        )
    is_open = outcome != "success" and not allow_failed
    failed = tried_in_vain(calls_of(trace, declared)[0]) if is_open else None
    if failed is not None:
        return RoutineError(
            "everything that the trace tried to change failed, and nothing says that it"
            f" succeeded: call {failed.index + 1} ({failed.name}) is the last that failed",
            place="outcome",
            fix="compile an attempt that succeeded, or label it if it did"
            " (`em traces label TRACE success`)",
        )
    try:
        _check_calls(trace, declared)
    except RoutineError as error:
        return error
    return None


def _check_calls(trace: Trace, declared: Mapping[str, Effect | None]) -> None:
    """Refuse a trace whose calls are not all there, or can't be made again."""
    refuse_unrepeatable(trace, declared)
    if trace.incomplete:
        raise RoutineError(
            f"the trace is incomplete: {trace.incomplete}",
            place="trace",
            fix="record the agent again: start its threads inside of the recording, in a"
            " ThreadPoolExecutor, with asyncio or by contextvars.copy_context().run, and let the"
            " agent wait for its calls",
        )
    if all(isinstance(call, ToolCall) and is_bookkeeping(call.tool) for call in trace.calls):
        raise RoutineError(
            "the trace has no tool call"
            if not trace.calls
            else "the trace has only calls with which the agent kept notes for itself",
            place="events",
            fix="record the agent's tool calls: a routine is made of them",
        )


# --- proof ----------------------------------------------------------------------------------------

MOST_LEFT_OUT = 25
"""Recordings that are left out, one after the other; of more, some are taken evenly."""
LEFT_OUT_TOGETHER = 5
"""Recordings that are left out at a time, where there are many."""

Learn = Callable[[Sequence[int]], Json]
"""Returns the routine that the recordings with these numbers teach. Raises EmError if none."""


def prove(
    routine: Json,
    examples: Sequence[Example],
    learn: Learn,
    *,
    asked: Sequence[Json] = (),
    open_values: Sequence[str] = (),
) -> Proof:
    """Try a routine on its recordings, and on each of them what the others teach.

    asked: by recording, what inputs were that nothing explains. open_values: as of `Proof`.
    """
    program = program_of(routine)
    schema: Json = routine.get("input_schema") or {}
    given: Sequence[Json] = asked or [{}] * len(examples)
    trials = {
        policy: [
            _trial(name, world(Recording.of(one, routine, more), schema).run(program))
            for (name, one), more in zip(_named(examples), given, strict=True)
        ]
        for policy, world in POLICIES.items()
    }
    trials[LEFT_OUT] = [*_left_out(examples, learn)]
    return Proof(at=datetime.now(UTC), routine="", trials=trials, open=open_values)


def _named(examples: Sequence[Example]) -> Iterator[tuple[str, Example]]:
    for number, example in enumerate(examples, 1):
        yield example.name or f"recording {number}", example


def _trial(name: str, outcome: Outcome) -> Trial:
    return Trial(name, outcome.verdict, outcome.reason, outcome.is_unrecorded)


def _left_out(examples: Sequence[Example], learn: Learn) -> Iterator[Trial]:
    """Leave recordings out, and try on each what the others teach.

    They are left out one after the other; of many, several at a time, so that it is not learnt
    anew for each.
    """
    every = [*_named(examples)]
    if len(every) < 2:
        return
    chosen = _some([*range(len(every))], MOST_LEFT_OUT)
    together = 1 if len(every) <= MOST_LEFT_OUT else LEFT_OUT_TOGETHER
    for start in range(0, len(chosen), together):
        group = chosen[start : start + together]
        try:
            rest = [number for number in range(len(every)) if number not in group]
            learnt = learn(rest)
            program = program_of(learnt)
        except EmError as error:
            for number in group:
                yield _trial(every[number][0], Outcome("handed over", error.message))
            continue
        known = {name for number in rest for name in examples[number].inputs}
        for number in group:
            name, example = every[number]
            unknown = [one for one in example.inputs if one not in known]
            if unknown:
                reason = f"no other recording was given {unknown[0]!r}"
                yield _trial(name, Outcome("handed over", reason))
                continue
            world = as_recorded(Recording.of(example, learnt), learnt.get("input_schema") or {})
            yield _trial(name, world.run(program))


def _some(rows: list[int], most: int) -> list[int]:
    """Return at most so many, evenly spread and the same ones each time."""
    if len(rows) <= most:
        return rows
    return [rows[number * len(rows) // most] for number in range(most)]
