"""Recoveries: what repaired the failed calls of one trace, as episodes.

A trace is read as acts: one for each call of a tool, and for a shell command one for each program
in it. A failed act is looked for again: the same program or tool with the same arguments. What had
an effect between the two is what repaired it, if the second worked or failed in another way. If a
value differs the second time, and nothing else was done, the difference is.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from em.compiler.calls import TracedCall, words_of
from em.compiler.commands import can_read_commands, is_bookkeeping
from em.heuristics.danger import (
    is_dangerous_call,
    is_dangerous_command,
    is_forcing,
    is_refusal,
    runs_what_it_gets,
    talks_to_reader,
)
from em.heuristics.episode import SPELLED, Episode, Kind, Step
from em.heuristics.failure import GAP, Failure, edges_of, error_text, failure_of, is_telling
from em.runner.tools.coding import EDITORS, SHELLS, command_of, plain_edit
from em.traces.outcomes import check_of, outcome_of_call
from em.values.canonical import Json, identical
from em.values.leaves import is_informative, leaves

if TYPE_CHECKING:
    from em.shell.programs import Programs
    from em.shell.syntax import Script, Simple

Status = Literal["ok", "failed", "unknown"]

MOST_BETWEEN = 3
"""Effects between a failure and a success, after which it is unknown what helped."""
MOST_CHANGED = 3
"""Words of a command that may differ the second time."""
LONGEST_PRINTED = 4_000
EDGE = 5
"""First and last lines of what was printed, in which a refusal would stand."""
SIMILAR, NEARLY_THE_SAME = 0.6, 0.9
"""How similar two spellings of one value are: with the same digits, and with different ones."""

_FREE = frozenset(
    "description explanation justification thought reasoning rationale comment comments message"
    " title summary note notes purpose why commit_message activeform".split()
)
"""Arguments in which an agent says something to people. They are never why a call failed."""
_PROSE_WORD = re.compile(r"[(\"'“]?[^\W\d_]+(?:['’\-][^\W\d_]+)*[.,;:!?)\"'”]*")
_PROSE_LOOKED_AT = 20
_TRIVIAL = frozenset("cd pushd popd echo printf true : set pwd sleep".split())
_FILE_TOOLS = frozenset(
    "Write Edit MultiEdit Insert NotebookEdit write edit multiedit write_file".split()
)
_EDITS = _FILE_TOOLS | EDITORS | {"apply_patch"}
_TEXT_PROGRAMS = frozenset("sed awk perl tee patch cat ed".split())
_FIRST = re.compile(r"\b(?:first|before|must|need|not been|not yet|yet)\b", re.IGNORECASE)
_WRONG_VALUE = re.compile(
    r"not found|unknown|invalid|not exist|no such|missing|unrecogni[sz]ed|not recogni[sz]ed"
    r"|not valid|(?:must|should) be|not available",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"pass(?:word|wd|phrase)?$|token|secret|api[_\-]?key|private[_\-]?key|credential|\bauth$|^pin$",
    re.IGNORECASE,
)
"""Names of options and arguments whose values are not kept, whoever shares them."""
_PYTHON = re.compile(r"python[\d.]*")
_CHECKERS = frozenset(
    ("mypy", "pyright", "pylint", "tsc", "ruff check", "cargo check", "cargo clippy", "go vet")
)
"""Programs that look for mistakes, and repair none unless they are told to."""
_NO_PROGRAM = re.compile(r"not found|not recognized|no such file", re.IGNORECASE)


class Act(NamedTuple):
    """One program that was run, or one call of a tool.

    key: what makes it the same act another time. words: of a command; args: of a call.
    printed: what it printed or returned, if it failed. step: what it is as a recovery.
    """

    call: TracedCall
    label: str
    key: str
    status: Status
    is_write: bool
    words: tuple[str, ...] = ()
    args: Mapping[str, Any] = MappingProxyType({})
    printed: str = ""
    step: Step = Step("unsafe")
    variables: tuple[str, ...] = ()
    is_piped: bool = False

    @property
    def is_command(self) -> bool:
        """Whether this is a program that was run by a shell."""
        return bool(self.words)


class Found(NamedTuple):
    """A failure with what became of it. worked: the call that shows it; None if none does."""

    failure: Failure
    act: Act
    worked: Act | None
    episode: Episode


def episodes(calls: Sequence[TracedCall], session: str) -> Iterator[Found]:
    """Yield an episode for each failed act of a trace from which something can be learned."""
    acts = list(acts_of(calls))
    for at, act in enumerate(acts):
        if act.status != "failed":
            continue
        failure = failure_of(act.label, act.printed)
        if not _can_teach(act, failure):
            continue
        found = _episode(acts, at, failure, session, calls)
        if found is not None:
            yield found


def _can_teach(act: Act, failure: Failure) -> bool:
    said = "\n".join((error_text(act.printed), *edges_of(act.printed, EDGE)))
    if not is_telling(failure.shape) or is_refusal(said) or talks_to_reader(act.printed, said):
        return False
    return not act.is_command or act.step.kind != "unsafe"


def _episode(
    acts: Sequence[Act], at: int, failure: Failure, session: str, calls: Sequence[TracedCall]
) -> Found | None:
    act = acts[at]
    first = _read_first(acts, at)
    if first is not None:
        step, worked = first
        return Found(failure, act, worked, Episode(session, failure.values, [step], is_named=True))
    again = next((n for n in range(at + 1, len(acts)) if acts[n].key == act.key), None)
    if again is not None:
        return _same_again(acts, at, again, failure, session)
    changed = _changed(acts, at, calls) or _instead(acts, at)
    if changed is None:
        return None
    step, worked = changed
    named = _is_named(step, act)
    return Found(failure, act, worked, Episode(session, failure.values, [step], is_named=named))


def _same_again(
    acts: Sequence[Act], at: int, again: int, failure: Failure, session: str
) -> Found | None:
    """Return what was done before the same act was made again, and whether that helped."""
    act, later = acts[at], acts[again]
    steps = [one.step for one in acts[at + 1 : again] if one.is_write and one.status != "failed"]
    if later.status == "unknown" or len(steps) > MOST_BETWEEN:
        return None
    came_back = later.status == "failed" and (
        failure_of(later.label, later.printed).line == failure.line
    )
    if any(one.is_write and one.status == "failed" for one in acts[at + 1 : again]) and not steps:
        return None  # what failed may have had a part of its effect
    named = len(steps) == 1 and _names(act, steps[0])
    made = Episode(session, failure.values, steps, is_named=named, came_back=came_back)
    return Found(failure, act, None if came_back else later, made)


def _names(act: Act, step: Step) -> bool:
    """Tell whether an error names a step that adds no value of its own: `run npm install first`.

    What a program printed may be anybody's words, so that a value in them is not enough.
    """
    words = step.label.lower().replace("_", " ").split()
    said = re.split(r"[^\w\-./]+", act.printed[:LONGEST_PRINTED].lower().replace("_", " "))
    if f" {' '.join(words)} " not in f" {' '.join(said)} ":
        return False
    if step.kind == "run":
        return len(words) > 1 and [text for _, text in step.parts] == step.label.split()
    given = {_text(value) for value in act.args.values()}
    return step.kind == "call" and all(text in given for _, text in step.parts)


def _read_first(acts: Sequence[Act], at: int) -> tuple[Step, Act] | None:
    """Return the read that an error asks for, if the call worked after it."""
    act = acts[at]
    asked = error_text(act.printed)
    if act.is_command or not _FIRST.search(asked):
        return None
    mentioned = set(words_of(asked))
    own = {str(leaf) for _, leaf in leaves(act.args) if is_informative(leaf)}
    for n in range(at + 1, len(acts)):
        one = acts[n]
        if one.is_write and one.status == "ok":
            return None
        shared = own & {str(leaf) for _, leaf in leaves(one.args) if is_informative(leaf)}
        if one.is_write or one.status != "ok" or not shared or one.is_command:
            continue
        if mentioned.isdisjoint(words_of(one.label)):
            continue
        for later in acts[n + 1 :]:
            values = {str(leaf) for _, leaf in leaves(later.args)}
            if later.is_write and shared & values:
                return (Step("read", one.label), later) if later.status == "ok" else None
    return None


# --- another value, another tool ------------------------------------------------------------------


def _changed(acts: Sequence[Act], at: int, calls: Sequence[TracedCall]) -> tuple[Step, Act] | None:
    """Return the difference to the first later success of the same program or tool."""
    act = acts[at]
    for later in acts[at + 1 :]:
        same = later.is_command == act.is_command and later.call.is_udf == act.call.is_udf
        if same and later.status == "ok":
            step = (
                _words_changed(act, later) if act.is_command else _value_changed(act, later, calls)
            )
            if step is not None:
                return step, later
        if later.is_write and later.status != "failed":
            return None  # that may have helped
    return None


def _words_changed(act: Act, later: Act) -> Step | None:
    old, new = list(act.words), list(later.words)
    if later.step.kind == "unsafe":
        return None
    if act.variables != later.variables:
        added = set(later.variables) - set(act.variables)
        return Step("change", f"variable {added.pop()}") if old == new and len(added) == 1 else None
    if old[1:] == new[1:]:
        missing = old[0] != new[0] and old[0] in act.printed and _NO_PROGRAM.search(act.printed)
        return _change("program", old[0], new[0]) if missing else None
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    blocks = [block for block in matcher.get_opcodes() if block[0] != "equal"]
    _, a, b, c, d = blocks[0]
    if len(blocks) != 1 or act.label != later.label or max(b - a, d - c) > MOST_CHANGED or a == 0:
        return None
    return _related_words(" ".join(old[a:b]), " ".join(new[c:d]), act.printed)


def _related_words(old: str, new: str, printed: str) -> Step | None:
    """Return the change of some words; None if the second may have been about something else."""
    are_options = all(text.startswith("-") or not text for text in (old, new))
    is_said = bool(new) and new in printed
    is_related = are_options or is_said or (old and new and _is_same_path(old, new))
    return _change("word", old, new) if is_related else None


def _is_same_path(old: str, new: str) -> bool:
    """Tell whether two paths are of the same file, or one name is a spelling of the other."""
    names = [text.rstrip("/").rpartition("/")[2].lower() for text in (old, new)]
    return names[0] == names[1] or (not _is_path(old) and not _is_path(new) and _alike(old, new))


def _is_path(text: str) -> bool:
    return "@" not in text and ("/" in text or bool(re.search(r"\w\.[A-Za-z]\w{0,4}$", text)))


def _change(name: str, old: str, new: str) -> Step:
    return Step("change", name, [("old", old), ("new", new)])


def _value_changed(act: Act, later: Act, calls: Sequence[TracedCall]) -> Step | None:
    names = sorted(act.args.keys() | later.args.keys())
    differ = [n for n in names if not _is_same(act.args.get(n, _NONE), later.args.get(n, _NONE))]
    if later.label != act.label or act.label in _EDITS or len(differ) != 1:
        return None
    (name,) = differ
    # Which part of a list or an object helped, nobody knows.
    is_plain = all(_is_plain(one.args[name]) for one in (act, later) if name in one.args)
    old, new = (_text(one.args[name]) if name in one.args else "" for one in (act, later))
    is_secret = bool(_SECRET.search(name))
    if not is_plain or is_secret or is_forcing(name) or is_dangerous_call("", (), [new]):
        return None
    source = _source(later.args.get(name), later.call, calls)
    origin = f"{name} from {source}" if source else name
    if name not in later.args or name not in act.args:
        return _change(origin, old, new)
    if _is_path(old) or _is_path(new):
        return _change(name, old, new) if _is_same_path(old, new) else None
    if _alike(act.args[name], later.args[name]):
        return _change(f"{name}|{_edit(old, new)}{SPELLED}", old, new)
    # Perhaps another object, and not the same one again.
    return _change(origin, old, new) if _is_about(name, act) else None


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_about(name: str, act: Act) -> bool:
    """Tell whether an error says that an argument is wrong; another one says which object it is.

    An error about anything else, such as a balance, is no reason to take another value.
    """
    has_id = any(
        re.search(r"\d", str(leaf))
        for other, value in act.args.items()
        if other != name
        for _, leaf in leaves(value)
    )
    return has_id and mentions(act.printed, name) and bool(_WRONG_VALUE.search(act.printed))


def mentions(printed: str, name: str) -> bool:
    """Tell whether an error names an argument; `payment_method_id` is said as payment method."""
    said = {word.removesuffix("s") for word in words_of(error_text(printed))}
    wanted = {word.removesuffix("s") for word in words_of(name)} - {
        "id",
        "ids",
        "new",
        "the",
        "name",
    }
    return bool(wanted) and wanted <= said


def _instead(acts: Sequence[Act], at: int) -> tuple[Step, Act] | None:
    """Return another tool that gave the same kind of thing, or took the same arguments."""
    act = acts[at]
    if act.is_command or act.call.name in SHELLS or act.label in _EDITS:
        return None
    for later in acts[at + 1 :]:
        if later.status == "ok" and not later.is_command and later.label != act.label:
            kinds = _kind_of_result(act.label) == _kind_of_result(later.label)
            takes_all = (
                len(act.args) > 1
                and later.is_write == act.is_write
                and all(_alike(v, later.args.get(n, _NONE)) for n, v in act.args.items())
            )
            if (kinds or takes_all) and later.step.kind != "unsafe":
                given = [(name, "") for name in sorted(later.args)]
                return Step("instead", later.label, given), later
        if later.is_write and later.status != "failed":
            return None
    return None


def _kind_of_result(tool: str) -> str:
    """Return the kind of a tool's result: its name up to `by`, `with` and the like."""
    words = words_of(tool)
    cuts = (cut for cut, word in enumerate(words) if cut and word in _LEADS_ON)
    return " ".join(words[: next(cuts, None)])


_LEADS_ON = ("by", "with", "using", "via", "from")


def _is_named(step: Step, act: Act) -> bool:
    """Tell whether an error names the value that was changed, or the new one."""
    values, printed = dict(step.parts), act.printed[:LONGEST_PRINTED]
    old, new = values.get("old", ""), values.get("new", "")
    name = step.label.removesuffix(SPELLED).partition("|")[0].partition(" from ")[0]
    if step.kind != "change" or "://" in new:
        return False
    if name.startswith("variable "):
        return name.partition(" ")[2] in printed
    if name in ("word", "program"):
        said = [word for word in old.split() if len(word) > 2 and word.partition("=")[0] in printed]
        return bool(said) or (len(new) > 2 and new in printed)
    if step.label.endswith(SPELLED) or not old or not new:
        return mentions(act.printed, name) or name in act.printed
    return len(new) > 2 and new in printed


_NONE: Any = object()


def _is_same(one: Any, other: Any) -> bool:
    return one is not _NONE and other is not _NONE and identical(one, other)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _alike(one: Any, other: Any) -> bool:
    if one is _NONE or other is _NONE:
        return False
    if identical(one, other):
        return True
    if isinstance(one, str) and isinstance(other, str):
        least = SIMILAR if _same_digits(one, other) else NEARLY_THE_SAME
        return SequenceMatcher(None, one.lower(), other.lower()).ratio() >= least
    return False


def _same_digits(one: str, other: str) -> bool:
    """Compare digits: two similar ids are different things, but spellings share their digits."""
    digits = ["".join(filter(str.isdigit, text)) for text in (one, other)]
    return digits[0] == digits[1] or not all(digits)


def _edit(old: str, new: str) -> str:
    """Return how one spelling becomes another: `,>.` for `12,50` and `12.50`."""
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return " ".join(f"{old[a:b]}>{new[c:d]}" for op, a, b, c, d in blocks if op != "equal")


def _source(value: Any, call: TracedCall, calls: Sequence[TracedCall]) -> str:
    """Return the tool whose earlier result contains this value; empty if none does."""
    wanted = [leaf for _, leaf in leaves(value) if is_informative(leaf)]
    if not wanted:
        return ""
    before = [earlier for earlier in reversed(calls[: call.index]) if not earlier.failed]
    for earlier in sorted(before, key=lambda one: one.effect == "write"):
        if holds(earlier.result, wanted):
            return earlier.name
    return ""


def holds(result: Any, wanted: Sequence[Any]) -> bool:
    """Tell whether a result has all these values, as values or as keys."""
    texts = {core(leaf) for _, leaf in leaves(result)} | _keys(result)
    return all(core(leaf) in texts for leaf in wanted)


def core(value: Any) -> str:
    """Strip the signs around a value: `W123` for `#W123`."""
    return re.sub(r"^\W+|\W+$", "", str(value)) if is_informative(value) else ""


def _keys(value: Any) -> set[str]:
    """Collect the keys of mappings, which may be ids too."""
    if isinstance(value, dict):
        below = (_keys(item) for item in value.values())
        return {core(key) for key in value}.union(*below)
    return set().union(*map(_keys, value)) if isinstance(value, list | tuple) else set()


# --- acts -----------------------------------------------------------------------------------------


def acts_of(calls: Sequence[TracedCall]) -> Iterator[Act]:
    """Yield the acts of a trace, without the agent's own notes."""
    free = free_texts(calls)
    shell = _Shell() if can_read_commands() else None
    for call in calls:
        if is_bookkeeping(call.name):
            continue
        if call.name in SHELLS:
            yield from _unread(call) if shell is None else shell.acts(call)
        else:
            yield _tool_act(call, free)


def programs_in(tool: str, args: Json) -> frozenset[str]:
    """Return what a call is known by in lessons: the programs it runs, or its tool."""
    call = TracedCall(0, tool, False, args, None, "failed", "write", True, "")
    return frozenset(act.label for act in acts_of([call])) | {tool}


def free_texts(calls: Sequence[TracedCall]) -> frozenset[tuple[str, str]]:
    """Return the arguments, by tool and name, in which an agent says something to people.

    They have such a name, or are prose in every call: words without signs, digits and paths, that
    occur in no other argument. The only argument of a tool is what the call is about.
    """
    values: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    alone: set[tuple[str, str]] = set()
    for call in calls:
        for name, value in call.args.items():
            values[call.name, name].append(value)
            if len(call.args) == 1:
                alone.add((call.name, name))
    found = {one for one in values if one[1].lower() in _FREE and one not in alone}
    for key, given in values.items():
        if key in alone or key in found or not all(map(_is_prose, given)):
            continue
        others = [str(v) for other, more in values.items() if other != key for v in more]
        if not any(str(value) in text for text in others for value in given[:_PROSE_LOOKED_AT]):
            found.add(key)
    return frozenset(found)


def _is_prose(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    words = value.split()
    plain = sum(bool(_PROSE_WORD.fullmatch(word)) for word in words)
    return len(words) > 3 and plain >= 0.9 * len(words)


def _tool_act(call: TracedCall, free: frozenset[tuple[str, str]]) -> Act:
    edit = plain_edit(call.name, call.args)
    name, args = edit if edit is not None else (call.name, call.args)
    own = {n: value for n, value in args.items() if (call.name, n) not in free}
    texts = [(n, GAP if _SECRET.search(n) else _text(value)) for n, value in own.items()]
    kind: Kind = "edit" if name in _EDITS else "call"
    is_unsafe = is_dangerous_call(name, words_of(name), [text for _, text in texts]) or any(
        is_forcing(n) and value not in (None, False, "", 0) for n, value in own.items()
    )
    step = Step("unsafe") if is_unsafe else Step(kind, name, texts)
    return Act(
        call=call,
        label=name,
        key=msgspec.json.encode((call.is_udf, name, own), order="sorted").decode(),
        status="failed" if call.failed else "ok",
        is_write=call.effect == "write",
        args=own,
        printed=_printed(call.error) if call.failed else "",
        step=step,
    )


def _unread(call: TracedCall) -> Iterator[Act]:
    """Yield a shell command that can't be read: it may have done anything, and teaches nothing."""
    key = msgspec.json.encode(call.args, order="sorted").decode()
    status: Status = "failed" if call.failed else "ok"
    yield Act(call, call.name, key, status, is_write=call.effect == "write", printed="")


def _printed(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("message") or value.get("error") or msgspec.json.encode(value).decode()
    return "" if value is None else str(value)


class _Shell:
    """Reads the commands of one trace."""

    def __init__(self) -> None:
        from em.shell.programs import known_programs

        self._programs: Programs = known_programs()

    def acts(self, call: TracedCall) -> Iterator[Act]:
        """Yield the programs that a call of a shell ran, as far as their end is known."""
        from em.shell.syntax import Opaque, parse

        run = command_of(call.name, call.args)
        try:
            script = None if run is None else parse(run.text)
        except Opaque:
            script = None
        if run is None or script is None or not script.is_flat:
            yield from _unread(call)
            return
        printed = _printed(call.error if call.failed else call.result)
        heads = self._heads(script, call, run.folder)
        recognised = outcome_of_call(call.args, call.result, call.error)
        has_failed = call.failed or recognised == "failure"
        yield from _ended(heads, printed, has_failed, recognised == "success")

    def _heads(self, script: "Script", call: TracedCall, folder: str) -> list[tuple[Act, str]]:
        """Return the first program of each pipeline with its join, in the folder it runs in."""
        found: list[tuple[Act, str]] = []
        pipe: list[Simple] = []
        for command in [*script.commands, None]:
            if command is not None and command.join in ("|", "|&"):
                pipe.append(command)
                continue
            if pipe and pipe[0].words:
                name = pipe[0].words[0].shown
                if name in ("cd", "pushd") and len(pipe[0].words) > 1:
                    folder = f"{folder}/{pipe[0].words[1].shown}"
                elif name not in _TRIVIAL or any(r.writes for r in pipe[0].redirects):
                    found.append((self._act(pipe, call, folder), pipe[0].join))
            pipe = [] if command is None else [command]
        return found

    def _act(self, pipe: Sequence["Simple"], call: TracedCall, folder: str) -> Act:
        from em.shell.programs import read_command

        readings = [read_command(one, self._programs) for one in pipe]
        first, reading = pipe[0], readings[0]
        whole = [word.shown for word in first.words]
        words = tuple(_without_secrets(whole))
        variables = tuple(sorted({one.name for one in first.assignments}))
        writes = [r for one in pipe for r in one.redirects if r.writes]
        label, own = _label(words, reading.roles)
        is_export = words[0] == "export"
        programs = [name for one in readings for name in one.programs]
        heads = [one.words[0].shown for one in pipe if one.words]
        is_unsafe = (
            "" in programs
            or runs_what_it_gets(heads)
            or is_dangerous_command(programs, label, words, variables)
        )
        step = Step("run", label, [("", word) for word in (*label.split(), *words[own:])])
        inputs = [(r.target, r.body) for one in pipe for r in one.redirects]
        given = [word.shown for pair in inputs for word in pair if word is not None]
        if is_export:
            step = Step(
                "run", f"export {' '.join(variables)}", [("", w) for w in ("export", *variables)]
            )
        elif writes or label.split()[0] in _TEXT_PROGRAMS or any(r.body for r in first.redirects):
            step = Step("edit", label, [("command", " ".join(words)), ("text", "\n".join(given))])
        return Act(
            call=call,
            label=label,
            key=msgspec.json.encode(("$", folder, whole, variables, given)).decode(),
            status="unknown",
            is_write=is_export
            or bool(writes)
            or (not _only_checks(label, words) and any(one.reason for one in readings)),
            words=words,
            step=Step("unsafe") if is_unsafe else step,
            variables=variables,
            is_piped=len(pipe) > 1,
        )


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command with gaps for passwords, tokens and the like."""
    is_secret = False
    for word in words:
        name, has_value, _ = word.partition("=")
        is_option = word.startswith("-") and bool(_SECRET.search(name.lstrip("-")))
        if is_option and has_value:
            yield f"{name}={GAP}"
        else:
            yield GAP if is_secret else word
        is_secret = is_option and not has_value


def _only_checks(label: str, words: Sequence[str]) -> bool:
    """Tell whether a program only tests or checks, so that it repairs nothing."""
    return check_of(words) is not None or (label in _CHECKERS and "--fix" not in words)


def _label(words: Sequence[str], roles: Sequence[str]) -> tuple[str, int]:
    """Return a program with its subcommands, and where its own arguments begin.

    Programs that only start another one are left out. A script is an argument of its interpreter.
    """
    start = max(n for n, role in enumerate(roles) if role == "program")
    name = words[start].rstrip("/").rpartition("/")[2] or words[start]
    rest = list(enumerate(zip(words, roles, strict=True)))[start + 1 :]
    is_python = bool(_PYTHON.fullmatch(name))
    if is_python and len(rest) > 1 and rest[0][1][0] == "-m":
        module, after = rest[1][1][0], rest[2:]
        if module == "pip" and after and not after[0][1][0].startswith("-"):
            return f"pip {after[0][1][0]}", after[0][0] + 1
        return module, rest[1][0] + 1
    names = [name if not is_python else "python"] if name != "pip3" else ["pip"]
    end = start + 1
    for number, (word, role) in rest:
        if role == "command" and not re.search(r"[/.]", word):
            names.append(word)
            end = number + 1
    return " ".join(names), end


def _ended(
    heads: Sequence[tuple[Act, str]], printed: str, has_failed: bool, has_passed: bool
) -> Iterator[Act]:
    """Yield the programs of one command line with how they ended.

    With `&&` between them, all before the one that failed worked, and none after it was run.
    """
    joins = {join for _, join in heads[1:]}
    is_chain = joins <= {"&&"}
    acts = [act for act, _ in heads]
    if not has_failed:
        for n, act in enumerate(acts):
            is_last = n == len(acts) - 1
            known = (is_last or is_chain) and (not act.is_piped or has_passed)
            yield act._replace(status="ok" if known else "unknown")
        return
    at = _failing(acts, printed)
    if at is None:
        yield from acts  # nobody knows which of them failed
        return
    for act in acts[:at]:
        yield act._replace(status="ok" if is_chain and not act.is_piped else "unknown")
    yield acts[at]._replace(status="failed", printed=printed)
    if not is_chain:
        yield from acts[at + 1 :]


def _failing(acts: Sequence[Act], printed: str) -> int | None:
    """Return which program of a command line failed: the only one, or the one the output names."""
    if len(acts) == 1:
        return 0
    named = [
        n
        for n, act in enumerate(acts)
        if re.search(rf"(?:^|[\s:/]){re.escape(act.words[0].rpartition('/')[2])}: ", printed)
    ]
    if len(named) != 1:
        line = words_of(error_text(printed))
        named = [
            n
            for n, act in enumerate(acts)
            if words_of(act.label)[-1:] and words_of(act.label)[-1] in line
        ]
    return named[0] if len(named) == 1 else None
