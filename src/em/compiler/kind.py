"""Kind: which traces do the same task, by all that they change; and the name of their routine.

Traces are of one kind if they call the same tools with an effect; how often each, and on which way,
depends on the task. Traces without an effect are of one kind if they took the same path. Sessions
of coding agents count by the kinds of what they changed. Suggestions, growth and compiling without
a name all go by this, so a name never comes to mean a routine of another kind.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from em.compiler.calls import TracedCall, calls_of, identifier
from em.compiler.commands import is_bookkeeping
from em.compiler.example import request_of
from em.compiler.file_changes import session_of
from em.compiler.sessions import FILES, is_session
from em.errors import EmError
from em.runner.package import kept_routines, proof_of, routine_of, texts_of
from em.runner.routine import Routine, ToolSpec
from em.runner.tools.coding import CREATE, OWN_SERVER, is_coding_tool
from em.runner.trial import AS_RECORDED
from em.store.protocol import Artefact, Store
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.traces.catalogue import attempts, get_traces
from em.traces.trace import KeptTrace, ToolCall, Trace, UdfCall
from em.values.call import Effect
from em.values.leaves import texts

PARTS_OF_NAME = 3
"""How many tools, files or kinds of effects become the name of a routine."""
LONGEST_NAME = 60
"""Characters of a name; a tool for a model may have 64."""

Declared = Mapping[str, Effect | None]


class Kind(NamedTuple):
    """What a trace did: its effects by name, each once, and its path.

    words: what a session was asked for. Sessions that change the same kinds of files do many kinds
    of work.
    """

    effects: tuple[str, ...]
    way: tuple[str, ...]
    words: tuple[str, ...] = ()


def kind_of(trace: Trace, declared: Declared) -> Kind:
    """Return what a trace did."""
    session = session_effects(trace)
    if session is not None and session.kinds:
        return Kind(session.kinds, way_of(trace), tuple(asking_words(trace.mission.goal)))
    return Kind(tuple(sorted(effects_of(calls_of(trace, declared)[0]))), way_of(trace))


def effects_of(calls: Iterable[TracedCall]) -> set[str]:
    """Return the names of the tools that had an effect."""
    return {one.name for one in calls if one.effect == "write" and not (one.is_udf or one.failed)}


def writes_of(routine: Routine) -> frozenset[str]:
    """Return the tools that a routine calls with an effect."""
    reads = {tool.name for tool in routine.tools if tool.known_effect == "read"}
    return frozenset(routine.called_tools) - reads


def declared_effects(tools: Sequence[ToolSpec]) -> dict[str, Effect | None]:
    """Return the effects of tools that a person or the tool itself declared."""
    return {
        tool.name: tool.known_effect
        for tool in tools
        if tool.known_effect is not None and not tool.effect_inferred
    }


def way_of(trace: Trace) -> tuple[str, ...]:
    """Return a trace's path: its successful calls in order, repeats in a row once."""
    names = (name_of_call(call) for call in trace.calls if call.error is None)
    return tuple(name for name, _ in groupby(names) if not name.startswith(OWN_SERVER))


def name_of_call(call: ToolCall | UdfCall) -> str:
    """Return the name of a call; for a shell with the program, which says what it does."""
    name = call.tool if isinstance(call, ToolCall) else call.function
    command = call.args.get("command", call.args.get("cmd"))
    words = command.split(maxsplit=1) if isinstance(command, str) else command
    if isinstance(words, list) and words and isinstance(words[0], str):
        return f"{name} {words[0][:40]}"
    return name


def are_one_kind(some: Sequence[Kind], others: Sequence[Kind]) -> bool:
    """Return whether one routine can stand for both: they have the same effects in all.

    Sessions must also have been asked for in words that are alike.
    """
    effects, theirs = ({name for one in kinds for name in one.effects} for kinds in (some, others))
    asked, wanted = ([one.words for one in kinds if one.words] for kinds in (some, others))
    is_other = asked and wanted and not any(are_alike(a, b) for a in asked for b in wanted)
    if effects != theirs or is_other:
        return False
    return bool(effects) or not {one.way for one in some}.isdisjoint(one.way for one in others)


def are_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two requests have at least half of the shorter one's words in common.

    The other words may be values.
    """
    return 2 * len({*one} & {*other}) >= min(len(one), len(other)) > 0 or one == other


def tasks_in(store: Store, *, allow_unlabelled: bool = False) -> dict[str, list[str]]:
    """Map each task in the log to the traces to compile for it: those with one goal, of one kind.

    Where several kinds have one goal, their effects are named beside it. Sessions stay together.
    """
    found: dict[str, list[str]] = {}
    for goal, ids in attempts(store, allow_unlabelled=allow_unlabelled).items():
        kinds: dict[tuple[str, ...], list[str]] = {}
        for kept in get_traces(store, ids) if len(ids) > 1 else ():
            is_other = session_effects(kept.trace) is None
            effects = kind_of(kept.trace, {}).effects if is_other else ()
            kinds.setdefault(effects, []).append(kept.id)
        if len(kinds.keys() - {()}) > 1:
            found |= {_task(goal, effects): own for effects, own in kinds.items()}
        else:
            found[goal] = ids
    return found


def _task(goal: str, effects: tuple[str, ...]) -> str:
    return f"{goal} ({', '.join(effects)})" if effects else goal


# --- names ----------------------------------------------------------------------------------------


def name_of(traces: Sequence[Trace], declared: Declared) -> str:
    """Name a routine after all tools that its traces write with, else after their last call.

    The tools of coding agents (`Bash`, `Write`) say nothing: there the requests do, else what they
    changed.
    """
    last = [call.tool for call in traces[0].calls[-1:] if isinstance(call, ToolCall)]
    is_coding = any(is_coding_tool(tool) or is_bookkeeping(tool) for tool in last)
    made = [_made(trace, declared) for trace in traces]
    writes = [[one for one in calls if one.effect == "write" and not one.is_udf] for calls in made]
    if is_coding:
        asked = name_in_words([request_of(trace) for trace in traces], _session_writes(traces))
        last_title = [one.title for one in writes[0] or made[0]][-1:]
        named = asked or _session_name(traces) or _joined(last_title)
    else:
        named = _joined([*dict.fromkeys(one.title for calls in writes for one in calls)])
    return identifier(named or _joined([one.title for one in made[0]][-1:]) or "task")


def _made(trace: Trace, declared: Declared) -> list[TracedCall]:
    """Return the calls that a trace made, without those that failed if others did not."""
    calls = [call for call in calls_of(trace, declared)[0] if not is_bookkeeping(call.name)]
    return [call for call in calls if not call.failed] or calls


def _joined(titles: Sequence[str]) -> str:
    """Return titles as one text that is no longer than a name may be."""
    counts = range(min(len(titles), PARTS_OF_NAME), 0, -1)
    texts = (" and ".join(titles[:count]) for count in counts)
    return next((one for one in texts if len(one) <= LONGEST_NAME), "".join(titles[:1]))


def _session_writes(traces: Sequence[Trace]) -> list[list[TracedCall]]:
    """Return what each session changed or ran."""
    sessions = (session_of(trace, {}) for trace in traces)
    calls = [[] if one is None else one.calls for one in sessions]
    return [[one for one in own if one.effect == "write"] for own in calls]


def _session_name(traces: Sequence[Trace]) -> str:
    """Name sessions after the files that all changed, else after what all did.

    Empty if one changed none: then the last command says what they are for.

    The file of a single session may be named after somebody.
    """
    done = [one for trace in traces if (one := session_effects(trace)) is not None]
    if len(done) < len(traces) or not all(one.files for one in done):
        return ""
    files = _common([one.files for one in done]) if len(done) > 1 else []
    return " ".join(["change", *files] if files else _common([one.kinds for one in done]))


def _common(several: Sequence[Sequence[str]]) -> list[str]:
    """Return what all have, as many as a name holds."""
    return [one for one in several[0] if all(one in other for other in several)][:PARTS_OF_NAME]


def free_name(store: Store, traces: Sequence[KeptTrace], declared: Declared) -> str:
    """Return the name of a routine of these traces, numbered where one of another kind has it.

    A name that means a routine of the same kind is that routine's: the new one is its next version.
    """
    name = name_of([kept.trace for kept in traces], declared)
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(
        one
        for one in itertools.chain([name], numbered)
        if not is_of_another_kind(store, one, traces, declared)
    )


def is_of_another_kind(
    store: Store, name: str, traces: Sequence[KeptTrace], declared: Declared
) -> bool:
    """Return whether a name means a routine that was not made of traces of this kind."""
    known = [one for one in kept_routines(store, name) if one.body is not None]
    used = [one for one in known if one.retired_at is None] or known
    if not used:
        return False
    known_events = {*used[-1].from_events}
    if not all(known_events.isdisjoint(kept.event_ids) for kept in traces):
        return False
    try:
        routine = routine_of(used[-1])
        declared = {**declared_effects(routine.tools), **declared}
        new = [kind_of(kept.trace, declared) for kept in traces]
        return not are_one_kind(_kinds_of(store, used[-1], routine, declared), new)
    except EmError:
        return True  # a form that is not run any more


def _kinds_of(
    store: Store, artefact: Artefact, routine: Routine, declared: Declared
) -> Sequence[Kind]:
    """Return what the traces of a routine did; without traces, what the routine does."""
    proof = proof_of(texts_of(artefact))
    trials = () if proof is None else proof.trials.get(AS_RECORDED, ())
    ids = [*dict.fromkeys(one.trace for one in trials)]
    try:
        traces = get_traces(store, ids) if ids else ()
        kinds = [kind_of(kept.trace, declared) for kept in traces]
    except EmError:  # they are not in this memory
        kinds = []
    return kinds or [Kind(tuple(writes_of(routine)), ())]


# --- what sessions changed ------------------------------------------------------------------------


class SessionEffects(NamedTuple):
    """What a session did: the kinds of its effects, and each change with the name of its file.

    kinds: `change *.py`, `git commit`. changes: `Edit pyproject.toml`, one for each change.
    files: the names of the changed files without their endings, each once.
    """

    kinds: tuple[str, ...]
    changes: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def kinds_of_changes(self) -> tuple[str, ...]:
        """Each change with the kind of its file: `Edit *.toml`."""
        parts = (change.partition(" ") for change in self.changes)
        return tuple(sorted(f"{tool} {_kind_of_file(name)}" for tool, _, name in parts))


def session_effects(trace: Trace) -> SessionEffects | None:
    """Return what a coding agent's session did, with paths from its own folder.

    None if it is no such session, or if it is not known what it did.
    """
    session = session_of(trace, {}) if is_session(trace) else None
    if session is None:
        return None
    writes = [call for call in session.calls if call.effect == "write"]
    changes = sorted(f"{call.name} {_file_name(call)}".strip() for call in writes)
    names = (_file_name(call) for call in writes)
    stems = dict.fromkeys(name[:1] + name[1:].partition(".")[0] for name in names if name)
    return SessionEffects(tuple(sorted({*map(_effect, writes)})), tuple(changes), tuple(stems))


def _file_name(call: TracedCall) -> str:
    path = call.args.get("file_path")
    return path.rpartition("/")[2] if call.name in FILES and isinstance(path, str) else ""


def _kind_of_file(name: str) -> str:
    """Return a file's name without what tells it from others: `*.py`."""
    return f"*.{name.rpartition('.')[2]}" if "." in name[1:] else name


def _effect(call: TracedCall) -> str:
    name = _file_name(call)
    if not name:
        return call.title
    return f"{'create' if call.name == CREATE else 'change'} {_kind_of_file(name)}"


MOST_THINGS = 2
"""Words for what sessions are about."""
LONGEST_REQUEST = 1_000


# --- names by the words of sessions' requests -----------------------------------------------------


def name_in_words(requests: Sequence[str], effects: Sequence[Sequence[TracedCall]]) -> str:
    """Return the words of a name; empty if the requests have no word in common.

    Words that many of the requests say are what they ask for; those that also stand in what every
    session changed or ran are what they are about. The word before such a thing, wherever it is
    said, is what is done with it: `bump_version`, whatever courtesies stand around. A word of a
    single recording may be somebody's name, so one recording gives none.

    effects: what each session changed or ran.
    """
    said = [_by_stem(asking_words(one)) for one in requests]
    counts = Counter(stem for own in said for stem in own)
    in_effects = [_stems(effect) for effect in effects]
    every = frozenset.intersection(*in_effects) if in_effects else frozenset()
    often = sorted((one for one in counts if counts[one] > 1), key=lambda one: -counts[one])
    about = sorted((one for one in counts if one in every), key=lambda one: -counts[one])
    if len(requests) < 2 or not often:
        return ""
    best = about or often
    things = [one for one in best[:MOST_THINGS] if 2 * counts[one] >= counts[best[0]]]
    before = Counter[str]()
    for own in said:
        stems = [*own]
        at = next((number for number, stem in enumerate(stems) if stem in things), 0)
        before.update(stems[at - 1 : at])
    others = [one for one in often if one not in things]
    usual = [one for one in others if counts[one] >= counts[things[0]]] if about else []
    lead = next((one for one in others if one in before), "".join(usual[:1]))
    # In the order of the request that has the most of them.
    most = max(said, key=lambda own: sum(one in own for one in things))
    ordered = [*(one for one in most if one in things), *(one for one in things if one not in most)]
    shown = {stem: word for own in reversed(said) for stem, word in own.items()}
    return " ".join(shown[stem] for stem in ([lead] if lead else []) + ordered)


def asking_words(request: str) -> list[str]:
    """Return the words of a request that say what to do: no values, and no names."""
    found: dict[str, None] = {}
    is_start = True
    for token in request[:LONGEST_REQUEST].split():
        word = token.strip(",.;:!?()")
        is_plain = word.isascii() and word.isalpha() and len(word) > 1
        is_known = word.islower() or word.isupper() or (is_start and word[1:].islower())
        if is_plain and is_known and word.lower() not in STOP_WORDS:
            found[word.lower()] = None
        is_start = token.endswith((".", "!", "?", ":"))
    return [*found]


def _by_stem(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for stem, word in zip(stems_of(words), words, strict=True):
        found.setdefault(stem, word)
    return found


def _stems(calls: Sequence[TracedCall]) -> frozenset[str]:
    found = (text for call in calls for text in (call.title, *texts(call.args)))
    return frozenset(stem for text in found for stem in stems_of(words_of(text.replace("_", " "))))
