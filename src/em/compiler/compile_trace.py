"""Compilation of traces into a routine package: from a file or the log, with or without a model.

Several attempts at one task must have had the same effects. Of their ways to them, the routine
follows the most common one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from em.compiler.branches import NothingDecides
from em.compiler.calls import (
    TracedCall,
    calls_of,
    identifier,
    judged_reads,
    tried_in_vain,
)
from em.compiler.checks import is_plain
from em.compiler.commands import is_bookkeeping, refuse_unrepeatable, require_commands
from em.compiler.confirmation import Confirm, confirmed, relaxed
from em.compiler.differences import told_apart
from em.compiler.draft import Draft, GivenUdfs, Recorded, Udfs, draft_routine, load_udfs
from em.compiler.improvement import Improved, improve
from em.compiler.kind_draft import draft_kind, examples_of, with_outcome
from em.compiler.new_files import with_overwritten
from em.compiler.package_files import package_texts, write_package
from em.compiler.plain_draft import plain_draft
from em.compiler.proof import prove
from em.compiler.return_value import says_what_one_saw, with_last_result, with_return
from em.compiler.rules_draft import draft_rules
from em.compiler.session_draft import draft_sessions, odd_sessions
from em.compiler.step_refusals import StepRefusals
from em.compiler.step_trials import Group, does_all, step_trials
from em.compiler.trials import refuse_wrong
from em.compiler.verification import verify_draft
from em.compiler.way_draft import read_before_effects, way_drafts, with_record_facts
from em.errors import EmError, InputError, RoutineError, UsageError
from em.llm.client import LlmClient
from em.runner.package import write_files
from em.runner.tools import Function
from em.runner.tools.coding import is_coding_tool
from em.settings import Settings
from em.store import redactor_of
from em.text.terms import STOP_WORDS
from em.traces.outcomes import outcome_of
from em.traces.trace import KeptTrace, ToolCall, Trace, as_kept, read_trace
from em.values.call import Effect
from em.values.canonical import uncollected
from em.values.files import BOM, open_file

MAX_NAME_WORDS = 6
WORDS_OF_REQUEST = 5
"""How many words of a long request become the name of its routine."""
_NOT_IN_NAMES = STOP_WORDS | {"please", "want", "need", "like", "hi", "hello", "hey", "sure"}


def compile_trace(
    trace: Trace,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
    allow_failed: bool = False,
    confirm: Confirm = (),
    refusals: StepRefusals | None = None,
    is_only: bool = False,
) -> Draft:
    """Compile a trace into a routine, and prove it by replaying the recording.

    A trace that says that it failed is refused unless `allow_failed`; an incomplete one always.
    confirm: values that the routine would ask for, and that are the recorded ones on every run.
    refusals: what failed calls teach; those of this trace unless they are given.
    is_only: there are no other traces, so that what its records had in common is known.
    """
    _check_outcomes([trace], allow_failed=allow_failed)
    if not allow_failed:
        _refuse_in_vain(trace, declared or {})
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
    require_commands(trace)
    refuse_unrepeatable(trace, declared or {})
    chosen = name or _name_of(trace)
    functions = load_udfs(udfs).functions
    with uncollected():
        draft = _guarded(trace, chosen, declared or {}, keep_all=keep_all, refusals=refusals)
        if says_what_one_saw(draft):
            seen = judged_reads(draft.calls)[-1:]
            draft = _guarded(
                trace, chosen, declared or {}, keep_all=keep_all, keep=seen, refusals=refusals
            )
            draft = with_last_result(draft) if says_what_one_saw(draft) else draft
        draft = with_record_facts(draft, ()) if is_only else draft
        draft = _proved(msgspec.structs.replace(draft, outcome=trace.outcome), functions)
    return _confirmed(draft, confirm, functions)


def _guarded(
    trace: Trace,
    name: str,
    declared: Mapping[str, Effect | None],
    *,
    keep_all: bool,
    keep: Collection[int] = (),
    refusals: StepRefusals | None = None,
) -> Draft:
    """Draft a trace, with the checks that failed calls teach and the reads that these look at."""
    if refusals is None:
        refusals = _refusals([as_kept(trace, "")], declared)
    if refusals.checks:
        keep = {*keep, *refusals.needed(calls_of(trace, declared)[0])}
    draft = draft_routine(trace, name=name, declared=declared, keep_all=keep_all, keep=keep)
    return refusals.guarded(draft)


def _refusals(
    traces: Sequence[KeptTrace], declared: Mapping[str, Effect | None] | None
) -> StepRefusals:
    """Return what the failed calls of traces teach; most traces have none."""
    if all(call.error is None for kept in traces for call in kept.trace.calls):
        return StepRefusals()
    return StepRefusals.of(examples_of(traces, declared or {}))


def _proved(draft: Draft, functions: Mapping[str, Function]) -> Draft:
    """Return the draft with what replays of it have shown; raise if one acts otherwise."""
    verify_draft(draft, functions)
    return msgspec.structs.replace(draft, proof=tuple(prove(draft).sentences()))


def _confirmed(draft: Draft, confirm: Confirm, functions: Mapping[str, Function]) -> Draft:
    """Return the draft with confirmed values as constants, proved again."""
    made = confirmed(draft, confirm)
    return draft if made is draft else _proved(made, functions)


def _check_outcomes(
    traces: Sequence[Trace], *, allow_failed: bool, allow_unlabelled: bool = True
) -> None:
    """Refuse the traces if the outcome of every one forbids compiling it."""
    outcomes = {outcome_of(trace) for trace in traces}
    alone = len(traces) == 1
    if "success" in outcomes:
        return
    if outcomes == {"failure"} and not allow_failed:
        raise RoutineError(
            "the trace says that it failed"
            if alone
            else f"all {len(traces)} traces say that they failed",
            place="outcome",
            fix="compile an attempt that succeeded, label it if it did (`em traces label TRACE"
            " success`), or allow it with --allow-failed, in Python allow_failed=True",
        )
    if "unknown" in outcomes and not allow_unlabelled:
        raise RoutineError(
            "the trace does not say whether it succeeded"
            if alone
            else f"none of the {len(traces)} traces says that it succeeded",
            place="outcome",
            fix="label it (`em traces label TRACE success`), or allow it with --allow-unlabelled,"
            " in Python allow_unlabelled=True",
        )


def compile_trace_file(
    trace_path: str | Path,
    output_dir: str | Path,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
    allow_failed: bool = False,
    confirm: Confirm = (),
) -> Draft:
    """Compile a trace file into a package folder. Write nothing unless the replay succeeds.

    udfs: the real functions that the trace called, as a mapping, a `package.module` or a file.
    allow_failed: compile a trace that says that it failed.
    confirm: values that the routine would ask for, and that are the recorded ones on every run.
    Secrets in the file are redacted first, and become secrets of the routine.
    """
    made = compile_file(
        trace_path,
        name=name,
        declared=declared,
        keep_all=keep_all,
        udfs=udfs,
        allow_failed=allow_failed,
        confirm=confirm,
    )
    write_package(made.draft, Path(output_dir), made.udfs)
    return made.draft


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


def _name_of(trace: Trace) -> str:
    """Name the routine after its goal if that is short, else after the last call.

    The tools of coding agents (`Bash`, `Write`) say nothing: there the request's words do, or,
    without a request, what was done.
    """
    words = trace.mission.goal.split()
    if 0 < len(words) <= MAX_NAME_WORDS:
        return identifier("_".join(words))
    if _is_general(_last_tool(trace)):
        said = request_words(trace.mission.goal)[:WORDS_OF_REQUEST]
        if said:
            return identifier("_".join(said))
    calls, _ = calls_of(trace, {})
    done = [call for call in calls if not is_bookkeeping(call.name)] or calls
    # A coding agent looks at what it did in the end.
    writes = [call for call in done if call.effect == "write" and not call.failed]
    is_coding = any(call.shell for call in done)
    if not done:
        return "task"
    return identifier((writes if is_coding and writes else done)[-1].title)


def _common_name(traces: Sequence[KeptTrace]) -> str | None:
    """Name a routine after what the requests of several coding sessions have in common."""
    goals = [request_words(kept.trace.mission.goal) for kept in traces]
    all_general = all(_is_general(_last_tool(kept.trace)) for kept in traces)
    if len({kept.trace.mission.goal for kept in traces}) < 2 or not all_general:
        return None
    common = [word for word in goals[0] if all(word in words for words in goals)]
    return identifier("_".join(common[:WORDS_OF_REQUEST])) if common else None


def _last_tool(trace: Trace) -> str:
    last = trace.calls[-1] if trace.calls else None
    return last.tool if isinstance(last, ToolCall) else ""


def _is_general(tool: str) -> bool:
    """Return whether a tool's name says nothing about the task."""
    return is_coding_tool(tool) or is_bookkeeping(tool)


def request_words(request: str) -> list[str]:
    """Return the words of a request that say what to do: no values, and no names."""
    found: list[str] = []
    is_start = True
    for token in request[:1_000].split():
        word = token.strip(",.;:!?()")
        is_plain = word.isascii() and word.isalpha() and len(word) > 1
        if is_plain and (is_start or word.islower()) and word.lower() not in _NOT_IN_NAMES:
            found.append(word.lower())
        is_start = token.endswith((".", "!", "?", ":"))
    return list(dict.fromkeys(found))


class CompiledTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A routine compiled from stored traces.

    improved: the outcome of asking a model, if one was asked.
    from_events: the events of the compiled trace, and of the traces that took the same path.
    same_way: the traces that took the same path.
    not_compiled: the traces that could not be compiled, with the reason.
    """

    draft: Draft
    files: Mapping[str, str]
    udfs: GivenUdfs
    improved: Improved | None = None
    from_events: Sequence[str] = ()
    same_way: Sequence[str] = ()
    not_compiled: Mapping[str, str] = {}


def write_compiled(made: CompiledTrace, folder: Path) -> None:
    """Write a compiled routine into a package folder; a plain one as it is stored."""
    if is_plain(made.draft.routine):
        write_files(made.files, folder)
    else:
        write_package(made.draft, folder, made.udfs)


class _Others(NamedTuple):
    """Traces of other tasks: how values are spoken of, and what reads give."""

    spoken: Sequence[KeptTrace] = ()
    pool: Sequence[KeptTrace] = ()


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
    confirm: Confirm = (),
    force: bool = False,
    beside: Sequence[KeptTrace] = (),
    pool: Sequence[KeptTrace] = (),
    struck: Sequence[str] = (),
    may_be_plain: bool = True,
) -> CompiledTrace:
    """Compile one routine from attempts at one task: from those that succeeded, if any did.

    With a `client`, its model improves the chosen routine; `udfs` and `confirm` as for
    `compile_trace_file`.
    If all say that they failed, they are refused unless `allow_failed`. Compiling in bulk sets
    `allow_unlabelled` to False: traces that don't say whether they succeeded are refused then.
    force: return the routine though it did the wrong thing in a trial.
    beside: traces of other tasks, from which it is learnt how values are spoken of.
    pool: traces of other tasks, from which it is learnt which other reads give what is needed, as
    those of `beside`. Of their arguments only the looks get into the routine.
    struck: checks that a person struck of an earlier version. may_be_plain: False for a routine
    with decisions, which only the older form can take.
    """
    given = load_udfs(udfs)
    usable = _usable(
        traces, declared or {}, allow_failed=allow_failed, allow_unlabelled=allow_unlabelled
    )
    how: dict[str, Any] = {
        "name": name or _common_name(usable),
        "declared": declared,
        "keep_all": keep_all,
        "udfs": given.functions,
        "allow_failed": allow_failed,
        "refusals": _refusals(usable, declared),
    }
    others = _Others(beside, [*pool, *beside])
    is_confirmed = not callable(confirm) and bool(list(confirm))
    if may_be_plain and client is None and not keep_all and not is_confirmed:
        known = how["name"] or _name_of(usable[0].trace)
        plain = plain_draft(usable, known, declared, struck)
        if plain is not None:
            return CompiledTrace(
                draft=plain.draft,
                files=plain.files,
                udfs=given,
                from_events=[event for kept in usable for event in kept.event_ids],
                same_way=[kept.id for kept in usable],
            )
    if client is None and len(usable) > 1:
        repaired = _repaired(usable, how, force=force)
        if repaired is not None:
            return repaired
    try:
        drafts, failed = _drafts(usable, how)
    except RoutineError as error:
        # What no trace shows alone, all of them may show together.
        alone = error.data.get("failed") if len(usable) > 1 and client is None else None
        learnt = _said(usable, how, others, force=force, only_form=True) if alone else None
        if learnt is None:
            raise
        return msgspec.structs.replace(learnt, udfs=given)
    # Names that a person gave are of values that the steps of one trace ask for.
    if not callable(confirm) and list(confirm):
        made = _one_way(usable, drafts, how)
    else:
        made = _proven(usable, drafts, how, others, with_model=client is not None, force=force)
    draft = _confirmed(made.draft, confirm, given.functions)
    failed = {kept: why for kept, why in failed.items() if kept not in made.same_way}
    failed |= made.not_compiled
    made = msgspec.structs.replace(made, draft=draft, udfs=given, not_compiled=failed)
    return _with_model(made, usable, drafts, declared or {}, client)


def _with_model(
    made: CompiledTrace,
    traces: Sequence[KeptTrace],
    drafts: Mapping[str, Draft],
    declared: Mapping[str, Effect | None],
    client: LlmClient | None,
) -> CompiledTrace:
    """Return a routine with its files, improved by a model if there is one."""
    group = None
    if client is not None and len(drafts) > 1:
        group = Group(examples_of(traces, declared), drafts)
    trace = next(kept.trace for kept in traces if kept.id == made.same_way[0])
    final = _improved(trace, made.draft, made.udfs, client, group)
    return msgspec.structs.replace(
        made, draft=final.draft, files=final.files, improved=final.improved
    )


def _proven(
    traces: Sequence[KeptTrace],
    drafts: Mapping[str, Draft],
    how: Mapping[str, Any],
    beside: _Others,
    *,
    with_model: bool,
    force: bool,
) -> CompiledTrace:
    """Return the routine of the traces, tried on each of them. A model improves one way only."""
    drafter = _Drafter(how)
    if with_model:
        made = _one_way(traces, drafts, how)
    else:
        made = (
            _filled_in_or_said(traces, drafts, how, drafter, beside, force=force)
            or (_of_sessions(traces, how, force=force) if _need_more(drafts) else None)
            or (_said(traces, how, beside, force=force) if _need_more(drafts) else None)
            or _one_way_or_asked(traces, drafts, how, beside)
        )
    return _tried(made, traces, drafts, how, drafter, force=force)


def _one_way(
    traces: Sequence[KeptTrace], drafts: Mapping[str, Draft], how: Mapping[str, Any]
) -> CompiledTrace:
    """Return a routine that goes the most common way; `same_way` begins with its trace."""
    _refuse_other_effects(drafts)
    chosen = _most_common(drafts, traces)
    same = [kept for kept, draft in drafts.items() if _way(draft) == _way(drafts[chosen])]
    others = [kept for kept in same if kept != chosen]
    drafts = {**drafts, **_with_reads(traces, [drafts[kept] for kept in same], same, how)}
    # What a success did without holds for this kind of task only by chance.
    succeeded = [drafts[one] for one in others if _succeeded(traces, one)]
    draft = relaxed(drafts[chosen], succeeded)
    alike = [drafts[kept] for kept in others]
    apart = with_return(told_apart(draft, alike), alike)
    apart = with_overwritten(apart, [one.calls for one in alike])
    apart = with_record_facts(apart, succeeded)
    if apart is not draft:
        draft = _proved(apart, how["udfs"])
    events = {kept.id: kept.event_ids for kept in traces}
    return CompiledTrace(
        draft=draft,
        files={},
        udfs=GivenUdfs(),
        from_events=[event for kept in same for event in events[kept]],
        same_way=[chosen, *others],
    )


def _with_reads(
    traces: Sequence[KeptTrace],
    drafts: Sequence[Draft],
    names: Sequence[str],
    how: Mapping[str, Any],
) -> dict[str, Draft]:
    """Return drafts of traces with the reads that all of them made before their effects.

    Nothing uses the result of some, but what all traces saw must be so again. One trace does not
    show that a read was no detour.
    """
    made = dict(zip(names, drafts, strict=True))
    if len(drafts) == 1 or len({tuple(call.name for call in one.calls) for one in drafts}) > 1:
        return made
    kept = [{n for n, verdict in enumerate(one.verdicts) if verdict.keep} for one in drafts]
    needed = set.union(*kept, read_before_effects(drafts[0]))
    if all(own == needed for own in kept):
        return made
    drafter, by_id = _Drafter(how), {kept.id: kept.trace for kept in traces}
    again = {name: drafter(by_id[name], keep=needed) for name in names}
    return again if len({_way(one) for one in again.values()}) == 1 else made


def _tried(
    made: CompiledTrace,
    traces: Sequence[KeptTrace],
    drafts: Mapping[str, Draft],
    how: Mapping[str, Any],
    drafter: "_Drafter",
    *,
    force: bool,
) -> CompiledTrace:
    """Return a routine with trials: each trace is left out once, and the others are tried on it.

    Raises if one was wrong, unless `force`.
    """
    if len(drafts) < 2 or made.draft.trials:
        return made

    def make(names: Sequence[str]) -> Draft:
        chosen = [kept for kept in traces if kept.id in names]
        some, own, by = {name: drafts[name] for name in names}, how, drafter
        refusals = _refusals(chosen, how["declared"])
        if refusals.checks != how["refusals"].checks:
            # A failed call of the trace that is left out must not help.
            own = {**how, "refusals": refusals}
            by, (some, _) = _Drafter(own), _drafts(chosen, own)
        made = _filled_in(chosen, some, own, by) or _one_way(chosen, some, own)
        return made.draft

    examples = examples_of(traces, how["declared"] or {})
    tried = step_trials(examples, drafts, make, made.draft)
    refuse_wrong(tried, force=force)
    draft = msgspec.structs.replace(
        made.draft, trials=tried, proof=(*made.draft.proof, str(tried), *tried.reasons())
    )
    return msgspec.structs.replace(made, draft=draft)


class _Drafter:
    """Drafts traces, each once. They are not proved: what becomes of them together is."""

    def __init__(self, how: Mapping[str, Any]) -> None:
        self._name, self._declared = how["name"], how["declared"] or {}
        self._keep_all, self._refusals = how["keep_all"], how["refusals"]
        self._made: dict[tuple[bytes, frozenset[int]], Draft] = {}

    def __call__(self, trace: Trace, *, keep: Collection[int] = ()) -> Draft:
        key = sha256(msgspec.json.encode(trace)).digest(), frozenset(keep)
        if key not in self._made:
            name = self._name or _name_of(trace)
            with uncollected():
                draft = _guarded(
                    trace,
                    name,
                    self._declared,
                    keep_all=self._keep_all,
                    keep=keep,
                    refusals=self._refusals,
                )
            self._made[key] = msgspec.structs.replace(draft, outcome=trace.outcome)
        return self._made[key]


def _filled_in_or_said(
    traces: Sequence[KeptTrace],
    drafts: Mapping[str, Draft],
    how: Mapping[str, Any],
    drafter: _Drafter,
    beside: _Others,
    *,
    force: bool,
) -> CompiledTrace | None:
    """Return the same; where nothing decides how often something is done, what words teach."""
    try:
        return _filled_in(traces, drafts, how, drafter)
    except NothingDecides:
        if len({frozenset(item.name for item in writes_of(one)) for one in drafts.values()}) > 1:
            raise
        try:
            learnt = _said(traces, how, beside, force=force)
        except RoutineError:
            learnt = None  # the ways contradict each other in words as well
        if learnt is None:
            raise
        return learnt


def _filled_in(
    traces: Sequence[KeptTrace],
    drafts: Mapping[str, Draft],
    how: Mapping[str, Any],
    drafter: _Drafter,
) -> CompiledTrace | None:
    """Return a routine whose request is a template; None if that leaves something to ask."""
    if not _need_more(drafts):
        return None
    examples = examples_of(traces, how["declared"] or {})
    found = way_drafts(
        [kept.trace for kept in traces],
        [one.said for one in examples.values()],
        drafter,
        partial(_proved, functions=how["udfs"]),
    )
    draft = next((one for one in found if does_all(one, examples, drafts)), None)
    return None if draft is None else _of_all(traces, draft)


def _of_sessions(
    traces: Sequence[KeptTrace], how: Mapping[str, Any], *, force: bool
) -> CompiledTrace | None:
    """Return the routine of a coding agent's sessions that changed files in the same way.

    If there is none, sessions are left out that changed files in ways that em can't see.
    """
    made = _of_these_sessions(traces, how, force=force)
    if made is not None:
        return made
    odd = odd_sessions({kept.id: kept.trace for kept in traces}, how["declared"] or {})
    rest = [kept for kept in traces if kept.id not in odd]
    made = _of_these_sessions(rest, how, force=force) if odd else None
    return None if made is None else msgspec.structs.replace(made, not_compiled=odd)


def _of_these_sessions(
    traces: Sequence[KeptTrace], how: Mapping[str, Any], *, force: bool
) -> CompiledTrace | None:
    examples = examples_of(traces, how["declared"] or {})
    draft = draft_sessions(
        {kept.id: kept.trace for kept in traces},
        {name: example.said for name, example in examples.items()},
        name=how["name"] or _name_of(traces[-1].trace),
        declared=how["declared"] or {},
        force=force,
    )
    return None if draft is None else _of_all(traces, with_outcome(draft, traces))


def _said(
    traces: Sequence[KeptTrace],
    how: Mapping[str, Any],
    beside: _Others,
    *,
    force: bool = False,
    only_form: bool = False,
) -> CompiledTrace | None:
    """Return what different tasks of one kind teach about how they are asked for in words."""
    examples = examples_of(traces, how["declared"] or {})
    if len({example.said for example in examples.values()}) < 2:
        return None
    # A goal that not all traces have may be the words of one person.
    goals = {kept.trace.mission.goal for kept in traces}
    draft = draft_kind(
        examples,
        name=how["name"] or _name_of(traces[-1].trace),
        description=goals.pop() if len(goals) == 1 else "",
        force=force,
        only_form=only_form,
        beside=list(examples_of(beside.spoken, how["declared"] or {}).values()),
        pool=list(examples_of(beside.pool, how["declared"] or {}).values()),
    )
    return None if draft is None else _of_all(traces, with_outcome(draft, traces))


def _one_way_or_asked(
    traces: Sequence[KeptTrace],
    drafts: Mapping[str, Draft],
    how: Mapping[str, Any],
    beside: _Others,
) -> CompiledTrace:
    """Return a routine that goes one way; where it can't be made, one that words must ask for."""
    try:
        return _one_way(traces, drafts, how)
    except RoutineError:
        asked = _said(traces, how, beside, only_form=True)
        if asked is None:
            raise
        return asked


def _repaired(
    traces: Sequence[KeptTrace], how: Mapping[str, Any], *, force: bool
) -> CompiledTrace | None:
    """Return the rules that traces of repairs teach; None if they are none."""
    draft = draft_rules(
        examples_of(traces, how["declared"] or {}),
        name=how["name"] or _name_of(traces[-1].trace),
        goals={kept.trace.mission.goal for kept in traces},
        force=force,
    )
    return None if draft is None else _of_all(traces, with_outcome(draft, traces))


def _of_all(traces: Sequence[KeptTrace], draft: Draft) -> CompiledTrace:
    """Return a routine that was made of all traces."""
    return CompiledTrace(
        draft=draft,
        files=package_texts(draft, GivenUdfs()),
        udfs=GivenUdfs(),
        from_events=[event for kept in traces for event in kept.event_ids],
        same_way=[kept.id for kept in traces],
    )


def _need_more(drafts: Mapping[str, Draft]) -> bool:
    """Return whether the steps of one trace would not do the tasks of the others."""
    routines = [draft.routine for draft in drafts.values()]
    words = {None if one.request is None else one.request.template for one in routines}
    effects = {tuple(item.name for item in writes_of(draft)) for draft in drafts.values()}
    return any(one.asks for one in routines) or len(words) > 1 or len(effects) > 1


def _drafts(
    traces: Sequence[KeptTrace], how: Mapping[str, Any]
) -> tuple[dict[str, Draft], dict[str, str]]:
    """Compile each trace; return the drafts, and why the others could not be compiled."""
    drafts: dict[str, Draft] = {}
    failed: dict[str, str] = {}
    for kept in traces:
        try:
            drafts[kept.id] = compile_trace(kept.trace, **how)
        except EmError as error:
            if len(traces) == 1:
                raise
            failed[kept.id] = str(error)
    if not drafts:
        raise RoutineError(
            f"none of the {len(traces)} traces can be compiled: {next(iter(failed.values()))}",
            place="traces",
            failed=failed,
        )
    return drafts, failed


def _refuse_other_effects(drafts: Mapping[str, Draft]) -> None:
    """Refuse traces that did different things: nothing shows which of them a new task needs."""
    done = {kept: tuple(item.name for item in writes_of(draft)) for kept, draft in drafts.items()}
    if len(set(done.values())) > 1:
        shown = "; ".join(
            f"{kept}: {', '.join(tools) or 'no effect'}" for kept, tools in done.items()
        )
        (most, count), *_ = Counter(done.values()).most_common(1)
        others = [kept for kept, tools in done.items() if tools != most]
        raise RoutineError(
            f"the traces have different effects ({shown})",
            place="traces",
            fix=f"compile the others without {', '.join(others)}"
            if count > len(others)
            else "compile those together that do the same",
        )


def _most_common(drafts: Mapping[str, Draft], traces: Sequence[KeptTrace]) -> str:
    """Return the trace to compile: the most common sequence of calls, then the shortest.

    A way with more reads that are used is the more careful one, if two went it and at least half
    as many: those who did not look say nothing about what they would have seen.
    """
    ways = Counter(_way(draft) for draft in drafts.values())
    most = max(ways.values())
    ways = Counter(
        {
            way: sum(n for other, n in ways.items() if _is_part(other, way))
            if count > 1 and count * 2 >= most
            else count
            for way, count in ways.items()
        }
    )
    # Among equals take the newest: the last recording is most likely still true.
    return max(
        drafts,
        key=lambda kept: (
            ways[_way(drafts[kept])],
            -len(drafts[kept].recording),
            _age(traces, kept),
        ),
    )


def _is_part(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a way has all calls of another, in their order."""
    left = iter(other)
    return all(name in left for name in one)


def _last_in_vain(trace: Trace, declared: Mapping[str, Effect | None]) -> TracedCall | None:
    """Return the last write of a trace of which nothing says that it succeeded, if all failed."""
    is_known = outcome_of(trace) == "success"
    return None if is_known else tried_in_vain(calls_of(trace, declared)[0])


def _refuse_in_vain(trace: Trace, declared: Mapping[str, Effect | None]) -> None:
    failed = _last_in_vain(trace, declared)
    if failed is not None:
        raise RoutineError(
            f"everything that the trace tried to change failed, and nothing says that it"
            f" succeeded: call {failed.index + 1} ({failed.name}) is the last that failed",
            place="outcome",
            fix="compile an attempt that succeeded, or label it if it did"
            " (`em traces label TRACE success`)",
        )


def _usable(
    traces: Sequence[KeptTrace],
    declared: Mapping[str, Effect | None],
    *,
    allow_failed: bool,
    allow_unlabelled: bool,
) -> Sequence[KeptTrace]:
    """Return the traces to compile: those that succeeded, else the unlabelled, else the failed."""
    if not traces:
        raise UsageError("no traces to compile", fix="give the id of at least one trace")
    whole = [kept for kept in traces if not kept.trace.incomplete] or traces
    _check_outcomes(
        [kept.trace for kept in whole],
        allow_failed=allow_failed,
        allow_unlabelled=allow_unlabelled,
    )
    for outcome in ("success", "unknown"):
        found = [kept for kept in whole if kept.trace.outcome == outcome]
        if found and not allow_failed:
            left = [kept for kept in found if _last_in_vain(kept.trace, declared) is None]
            if not left:
                _refuse_in_vain(found[-1].trace, declared)
            found = left
        if found:
            return found
    return whole


def compile_file(
    trace_path: str | Path,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
    client: LlmClient | None = None,
    allow_failed: bool = False,
    confirm: Confirm = (),
) -> CompiledTrace:
    """Compile the trace in a file into a routine.

    Without a model its calls with an effect have the same guards as in a memory. A model may make
    one step of several calls, which have no place for guards of their own.
    """
    trace, given = read_trace_file(trace_path), load_udfs(udfs)
    draft = compile_trace(
        trace,
        name=name,
        declared=declared,
        keep_all=keep_all,
        udfs=given.functions,
        allow_failed=allow_failed,
        confirm=confirm,
        is_only=client is None,
    )
    return _improved(trace, draft, given, client)


def _improved(
    trace: Trace,
    draft: Draft,
    given: GivenUdfs,
    client: LlmClient | None,
    group: Group | None = None,
) -> CompiledTrace:
    improved = None if client is None else improve(trace, draft, client, given, group)
    best = draft if improved is None else improved.draft
    files = package_texts(best, given)
    return CompiledTrace(draft=best, files=files, udfs=given, improved=improved)


def writes_of(draft: Draft) -> list[Recorded]:
    """Return the recorded calls of a draft that have an effect."""
    reads = {tool.name for tool in draft.routine.tools if tool.effect == "read"}
    return [item for item in draft.recording if not item.is_udf and item.name not in reads]


def _way(draft: Draft) -> tuple[str, ...]:
    """Return the tools that a routine calls, in their order."""
    return tuple(item.name for item in draft.recording)


def _succeeded(traces: Sequence[KeptTrace], trace_id: str) -> bool:
    return any(kept.id == trace_id and kept.trace.outcome == "success" for kept in traces)


def _age(traces: Sequence[KeptTrace], trace_id: str) -> int:
    return next(n for n, kept in enumerate(traces) if kept.id == trace_id)
