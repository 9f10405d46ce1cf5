"""The draft of a routine from sessions of a coding agent that did the same work.

Sessions are compared by their effects: what they changed in files (`file_changes`), and the other
commands that wrote something. How they looked around before does not matter. Each value of an
effect must be explained by all sessions together (`shared_texts`); from there the reads that are
needed are found. Tests that the sessions ran at the end are run at the end.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby, permutations
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Names, TracedCall, Verdict, identifier, specs_of
from em.compiler.draft import Draft, Recorded
from em.compiler.explanations import Explained, How
from em.compiler.file_changes import EDIT, INSERT, WRITE, Session, session_of
from em.compiler.homes import Example
from em.compiler.inputs import escaped
from em.compiler.new_files import with_overwritten
from em.compiler.said_values import SaidValues, shared_start, worded_alike
from em.compiler.shared_texts import FEWEST, Given, Read, SharedTexts
from em.compiler.sources import quoted
from em.compiler.step_trials import step_trials
from em.compiler.templates import Filled, Template, templates_of, with_template
from em.compiler.trials import refuse_wrong
from em.compiler.verification import verify_draft
from em.errors import EmError, RoutineError
from em.runner.expressions.file_lines import lists_only, sign_of, stands_once
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_expression
from em.runner.routine import ReturnStep, Routine, Step, ToolStep
from em.runner.tools.coding import CREATE, FILE_TEXT, TODAY, day_of, is_coding_tool
from em.runner.trial import TOO_FEW
from em.runner.wording import Wording
from em.text.courtesies import begun, ended, is_courteous
from em.text.terms import STOP_WORDS
from em.traces.trace import ToolCall, Trace
from em.values.call import Effect
from em.values.json_schema import of_input
from em.values.leaves import texts

CHANGED = "changed"
"""The part of the routine's result that lists the files which it changed."""
MOST_SWAPPED = 6
"""Changes of files in a row whose order is compared."""
MOST_ANCHORS = 4
"""Lines above an insertion that may say where it is."""
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%B %d, %Y", "%d %B %Y", "%b %d, %Y", "%d %b %Y")
_NEW = "inserted_lines"
"""Stands in an expression for what is inserted."""
_TELLING = re.compile(r"\S\S")
"""What a line has that says where it is."""
_FILE = re.compile(r"[\w.-]*(?:/[\w.-]+)+|[\w-]+\.[A-Za-z]\w{0,5}")
"""Matches what names a file."""
_FILES = frozenset({EDIT, INSERT, WRITE, CREATE})


class Sessions(NamedTuple):
    """Sessions that had the same effects: by session its calls, and its effects in one order."""

    names: Sequence[str]
    sessions: Sequence[Session]
    effects: Sequence[Sequence[TracedCall]]

    def of(self, names: Sequence[str]) -> "Sessions":
        """Return some of the sessions."""
        chosen = [number for number, name in enumerate(self.names) if name in names]
        return Sessions(
            [self.names[number] for number in chosen],
            [self.sessions[number] for number in chosen],
            [self.effects[number] for number in chosen],
        )


def is_session(trace: Trace) -> bool:
    """Return whether an agent worked on files or with a shell, and with nothing else."""
    tools = {call.tool for call in trace.calls if isinstance(call, ToolCall)}
    return bool(tools) and any(map(is_coding_tool, tools))


class SessionEffects(NamedTuple):
    """What a session did: the kinds of its effects, and each change with the name of its file.

    kinds: `change *.py`, `git commit`. changes: `Edit pyproject.toml`, one for each change.
    """

    kinds: tuple[str, ...]
    changes: tuple[str, ...]

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
    return SessionEffects(tuple(sorted({*map(_effect, writes)})), tuple(changes))


def _file_name(call: TracedCall) -> str:
    path = call.args.get("file_path")
    return path.rpartition("/")[2] if call.name in _FILES and isinstance(path, str) else ""


def _kind_of_file(name: str) -> str:
    """Return a file's name without what tells it from others: `*.py`."""
    return f"*.{name.rpartition('.')[2]}" if "." in name[1:] else name


def _effect(call: TracedCall) -> str:
    name = _file_name(call)
    if not name:
        return call.title
    return f"{'create' if call.name == CREATE else 'change'} {_kind_of_file(name)}"


def draft_sessions(
    traces: Mapping[str, Trace],
    said: Mapping[str, str],
    *,
    name: str,
    declared: Mapping[str, Effect | None],
    force: bool = False,
) -> Draft | None:
    """Return the routine of sessions that did the same, tried on each; None if there is none.

    said: what each was asked for in words.
    """
    found = sessions_of(traces, declared)
    if found is None:
        return None

    def made_of(names: Sequence[str]) -> _Made:
        if len(names) < FEWEST:
            raise RoutineError(TOO_FEW)
        some = found.of(names)
        made = next(_drafts(some, [said[one] for one in some.names], name), None)
        if made is None:
            raise RoutineError("the other sessions don't explain all that was done")
        return made

    try:
        made = made_of(list(traces))
    except RoutineError:
        return None
    draft = made.draft
    examples = {
        one: Example(session.calls, said[one])
        for one, session in zip(traces, found.sessions, strict=True)
    }
    alone = {
        one: msgspec.structs.replace(draft, input=made.filled.row(number))
        for number, one in enumerate(traces)
    }
    tried = step_trials(examples, alone, lambda names: made_of(names).draft, draft)
    refuse_wrong(tried, force=force)
    proof = (*draft.proof, str(tried), *tried.reasons())
    if draft.routine.request is None:
        draft = _with_words(made, [said[one] for one in traces])
        proof = (*proof, *_how_given(draft, said))
    return msgspec.structs.replace(draft, trials=tried, proof=proof)


class _Made(NamedTuple):
    """A routine, and the inputs of each session."""

    draft: Draft
    filled: Filled


def _drafts(found: "Sessions", said: Sequence[str], name: str) -> Iterator[_Made]:
    """Yield the routine for each template of the requests that explains everything.

    The last one has inputs by name: what all requests say, each in its own words.
    """
    ways: list[Template | Sequence[str]] = [*_templates(said), said]
    for words in ways:
        made = _Drafted(found, words).draft(name)
        if made is None:
            continue
        draft, filled = made
        try:
            verify_draft(draft)
        except EmError:
            continue  # it does not repeat its own recording
        draft = msgspec.structs.replace(draft, proof=("same task: proved",))
        yield _Made(with_template(draft, filled) if filled.template else _asking(draft), filled)


def _how_given(draft: Draft, said: Mapping[str, str]) -> Iterator[str]:
    """Say how a routine is given its inputs whose requests have no words in common."""
    given = " ".join(f"{name}=…" for name in draft.input)
    yield (
        "the requests say the inputs in different words: in the trials they were given by name,"
        f" as in `em run {draft.routine.name} {given}`"
    )
    request = draft.routine.request
    if request is not None:
        wording = Wording(request, (draft.routine.input_schema or {}).get("properties", {}))
        others = [one for one, text in said.items() if wording.bind(text) is None]
        shown = request.template.replace("{{ ", "{").replace(" }}", "}")
        yield f"a request in these words is read too: {shown}"
        if others:
            yield f"not so the requests of {', '.join(others)}"


def _asking(draft: Draft) -> Draft:
    """Return a routine that asks for inputs which are not given."""
    schema = {**(draft.routine.input_schema or {}), "required": []}
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, input_schema=schema)
    )


def _with_words(made: _Made, said: Sequence[str]) -> Draft:
    """Return a routine whose inputs are also read from a request, if enough are worded alike."""
    values = made.filled.values
    for template in worded_alike(said, values):
        draft = with_template(made.draft, made.filled._replace(template=template))
        routine = draft.routine
        if routine.request is None:
            continue
        wording = Wording(routine.request, (routine.input_schema or {}).get("properties", {}))
        bound = [wording.bind(text) for text in said]
        rows = [made.filled.row(number) for number in range(len(said))]
        if all(one in (None, row) for one, row in zip(bound, rows, strict=True)):
            return draft
    return made.draft


def sessions_of(
    traces: Mapping[str, Trace], declared: Mapping[str, Effect | None]
) -> Sessions | None:
    """Return traces as sessions; None if they are too few, or had other effects than the others."""
    if len(traces) < FEWEST or not all(map(is_session, traces.values())):
        return None
    made = [session_of(trace, declared) for trace in traces.values()]
    sessions = [_with_days(one) for one in made if one is not None]
    effects = [[call for call in one.calls if call.effect == "write"] for one in sessions]
    if len(sessions) < len(traces) or not effects[0]:
        return None
    aligned = [_in_order_of(effects[0], own) for own in effects]
    known = [own for own in aligned if own is not None]
    return Sessions(list(traces), sessions, known) if len(known) == len(aligned) else None


def odd_sessions(
    traces: Mapping[str, Trace], declared: Mapping[str, Effect | None]
) -> dict[str, str]:
    """Return the sessions that others did without, with the reason: what they changed is not known.

    The others are most of them, and changed the same files in the same way. These changed no
    other file, but one of those by a command that can't be followed, or without having read it. A
    session that did something else is none of them.
    """
    if len(traces) <= FEWEST or not all(map(is_session, traces.values())):
        return {}
    unknown: dict[str, list[TracedCall]] = {}
    known: dict[str, Counter[tuple[str, str]]] = {}
    for name, trace in traces.items():
        session = session_of(trace, declared)
        if session is None:
            return {}
        unknown[name] = [*_unknown(session)]
        known[name] = Counter(
            (call.name, str(call.args.get("file_path")))
            for call in session.calls
            if call.effect == "write" and call not in unknown[name]
        )
    whole = [known[name] for name in traces if not unknown[name]]
    are_enough = len(whole) >= FEWEST and 2 * len(whole) > len(traces)
    if not are_enough or any(one != whole[0] for one in whole):
        return {}
    files = {file for _, file in whole[0]}
    odd = {name: calls for name, calls in unknown.items() if calls}
    if any(known[name] - whole[0] or not _within(calls, files) for name, calls in odd.items()):
        return {}
    return {name: _why_unknown(calls[0]) for name, calls in odd.items()}


def _unknown(session: Session) -> Iterator[TracedCall]:
    """Yield the changes of files of which it is not known what they were."""
    read: set[str] = set()
    for call in session.calls:
        path = str(call.args.get("file_path"))
        if call.name == FILE_TEXT:
            read.add(path)
        elif call.effect == "write" and (
            call.name not in _FILES or (call.name != CREATE and path not in read)
        ):
            read.clear()
            yield call


def _within(calls: Iterable[TracedCall], files: Collection[str]) -> bool:
    """Return whether calls only edit, and only files of these."""
    for call in calls:
        named = [value for value in texts(call.args) if _FILE.fullmatch(value)]
        edits = call.name in _FILES or {*call.title.split("_")} == {"sed"}
        if not edits or not named or any(one not in files for one in named):
            return False
    return True


def _why_unknown(call: TracedCall) -> str:
    if call.shell:
        program = call.title.partition("_")[0]
        return f"it is not known what its `{program}` changed: it had not read each file as a whole"
    return f"it changed {call.args.get('file_path')}, which it had not read as a whole"


# --- effects --------------------------------------------------------------------------------------


def _in_order_of(
    first: Sequence[TracedCall], other: Sequence[TracedCall]
) -> list[TracedCall] | None:
    """Return effects in the order of others; None if they are not the same.

    Changes of files in a row are in the order of those that they are most like.
    """
    if Counter(call.name for call in first) != Counter(call.name for call in other):
        return None
    found: list[TracedCall] = []
    runs = groupby(first, lambda call: call.name in _FILES)
    for is_file, run in runs:
        ours = list(run)
        theirs = list(other[len(found) : len(found) + len(ours)])
        if is_file and len(ours) <= MOST_SWAPPED:
            theirs = list(max(permutations(theirs), key=lambda some: _likeness(ours, some)))
        if any(one.name != two.name for one, two in zip(ours, theirs, strict=True)):
            return None
        found += theirs
    return found


def _likeness(ours: Iterable[TracedCall], theirs: Iterable[TracedCall]) -> float:
    return sum(_alike(one, two) for one, two in zip(ours, theirs, strict=True))


def _alike(one: TracedCall, two: TracedCall) -> float:
    if one.name != two.name:
        return -100.0
    paths = [str(call.args.get("file_path")) for call in (one, two)]
    names, ends = ({path.rpartition(sign)[2] for path in paths} for sign in ("/", "."))
    texts = [
        re.findall(r"\w+|\S", f"{call.args.get('old_string')} {call.args.get('new_string')}")
        for call in (one, two)
    ]
    return (len(names) == 1) + (len(ends) == 1) + SequenceMatcher(None, texts[0], texts[1]).ratio()


# --- days -----------------------------------------------------------------------------------------


def _with_days(session: Session) -> Session:
    """Return a session with calls that tell its day in each form, before all others."""
    if session.at is None or not session.calls:
        return session
    calls = [
        msgspec.structs.replace(
            session.calls[0],
            name=TODAY,
            args={"form": form, "zone": zone},
            result=day_of(session.at, form, zone),
            effect="read",
            effect_inferred=False,
            shell="",
            via="",
            fixed={},
            exit_code=0,
        )
        for form in _DAYS
        for zone in ("local", "utc")
    ]
    calls += session.calls
    for number, call in enumerate(calls):
        call.index = number
    return session._replace(calls=calls)


# --- requests -------------------------------------------------------------------------------------


def _templates(said: Sequence[str]) -> Iterator[Template]:
    if len(set(said)) == 1:
        yield Template([said[0]], [[] for _ in said])
        return
    yield from templates_of(said)
    plain = _without_courtesies(said)
    if plain != [*said] and len(set(plain)) > 1:
        yield from templates_of(plain)


def _without_courtesies(said: Sequence[str]) -> list[str]:
    """Return requests without greetings, thanks and `please` around them.

    The first word of all is then in one case: `Please bump`, `Bump`.
    """
    plain = [begun(text)[1] for text in said]
    ends = [ended(text) for text in plain]
    plain = [
        rest if is_courteous(text) else text for text, (rest, _) in zip(plain, ends, strict=True)
    ]
    words = [text.partition(" ")[0] for text in plain]
    if len({word.lower() for word in words}) == 1:
        return [words[0] + text[len(words[0]) :] for text in plain]
    return plain


def _named(template: Template) -> list[str]:
    """Name the holes of a template after the word before each."""
    names, found = Names(), []
    for number, words in enumerate(template.words[:-1]):
        plain = [word for word in re.findall(r"[a-z]+", words.lower()) if word not in STOP_WORDS]
        is_quoted = words.endswith(('"', "“", "'"))
        other = "text" if is_quoted else f"part_{number + 1}"
        found.append(names.free(identifier(plain[-1] if plain else other)))
    return found


# --- the routine ----------------------------------------------------------------------------------


class _Placed(NamedTuple):
    """A call of the routine: as one session made it, its arguments, and the name of its result."""

    call: TracedCall
    args: Mapping[str, Given]
    saved: str | None = None


class _Drafted:
    """Drafts the routine of sessions: their requests fit a template, or say the same values."""

    def __init__(self, found: Sessions, words: Template | Sequence[str]) -> None:
        self._sessions, self._effects = found.sessions, found.effects
        self._names = Names()
        self._template = words if isinstance(words, Template) else None
        self._holes: list[str] = []
        inputs: dict[str, Sequence[str]] = {}
        self._said: SaidValues | None = None
        if isinstance(words, Template):
            self._holes = [self._names.free(name) for name in _named(words)]
            inputs = {
                name: [values[hole] for values in words.values]
                for hole, name in enumerate(self._holes)
            }
        else:
            self._said = SaidValues(words, self._effects, self._names)
        self._conditions: dict[int, tuple[str, ...]] = {}
        calls = [session.calls for session in self._sessions]
        self._texts = SharedTexts(calls, inputs, self._saved, self._said)

    @property
    def _inputs(self) -> Mapping[str, Sequence[str]]:
        return self._texts.inputs

    def _saved(self, tool: str, file: str) -> str:
        """Name what a read returns: people see it in questions. file: what was read, if known."""
        plain = {FILE_TEXT: "text", TODAY: "today"}.get(tool) or f"{tool.partition('_')[0]}_output"
        if file and "{{" not in file:
            plain = f"text_of_{file.rpartition('/')[2].strip('_')}"
        return self._names.free(identifier(plain))

    def draft(self, name: str) -> tuple[Draft, Filled] | None:
        """Return the routine; None if something that they did is not explained."""
        wired = []
        for number in range(len(self._effects[0])):
            args = self._effect([own[number] for own in self._effects])
            if args is None:
                return None
            wired.append(args)
        wired = [
            self._alone(args, [own[number] for own in self._effects])
            for number, args in enumerate(wired)
        ]
        needed = self._needed(wired)
        needed += [read for read in self._same_in_all() if read not in needed]
        needed += [read for read in self._searches(wired) if read not in needed]
        used = {one for args in wired for given in args.values() for one in given.inputs}
        used |= {one for read in needed for given in read.args.values() for one in given.inputs}
        if used != set(self._inputs) or not self._says_all():
            return None  # words that nothing uses may decide
        base = self._base(needed)
        if base is None:
            return None
        return self._routine(name, wired, needed, base)

    def _says_all(self) -> bool:
        """Return whether no other value of a request was written, where no template has them."""
        return self._said is None or (
            bool(self._inputs) and self._said.are_all([*self._inputs.values()])
        )

    # --- arguments --------------------------------------------------------------------------------

    def _effect(self, calls: Sequence[TracedCall]) -> dict[str, Given] | None:
        """Return the arguments of an effect, explained by all sessions."""
        keys = calls[0].args.keys()
        if any(call.args.keys() != keys for call in calls):
            return None
        before = [call.index for call in calls]
        args: dict[str, Given] = {}
        # The file that is changed is looked at first for what is replaced there.
        text = self._text_of(calls) if calls[0].name in (EDIT, INSERT) else None
        for key in keys:
            if key == "insert_line" and calls[0].name == INSERT:
                continue
            found = self._texts.explained([call.args[key] for call in calls], before)
            if found is None:
                return None
            args[key] = found
        if calls[0].name == INSERT:
            line = self._line(args["new_string"], calls)
            if line is None:
                return None
            args["insert_line"] = line
        if calls[0].name == EDIT:
            if text is None:
                return None
            args["old_string"] = self._replaced(args["old_string"], calls, text)
        conditions = tuple(self._new(args, text))
        self._conditions |= {id(call): conditions for call in calls}
        return args

    def _new(self, args: Mapping[str, Given], text: Read | None) -> Iterator[str]:
        """Yield that what is written is new: it stood in no file where it was written."""
        given = args.get("new_string")
        if text is None or given is None:
            return
        for name in sorted(given.inputs):
            values = self._inputs[name]
            shown = zip(text.texts, values, strict=True)
            if all(one is not None and value not in one for one, value in shown):
                yield f"absent({text.saved}, {name})"

    def _replaced(self, old: Given, calls: Sequence[TracedCall], text: Read) -> Given:
        """Return the text that is replaced: it stands once, and nothing else looks like it.

        Where sessions had other lines that look like it, they don't have to be alone.
        """
        checks = [f"once({text.saved}, {old.expression})"]
        like = f"line_like({text.saved}, {', '.join(map(quoted, old.fixed))})"
        if len(old.fixed) > 1 and all(
            _gives(like, {text.saved: shown}, call.args["old_string"])
            for shown, call in zip(text.texts, calls, strict=True)
        ):
            checks.append(like)
        return old._replace(agree=(*old.agree, *checks), reads=old.reads | {text.saved})

    def _alone(self, args: dict[str, Given], calls: Sequence[TracedCall]) -> dict[str, Given]:
        """Require that what is replaced stands once in its file, if it did in all sessions.

        Nothing shows whether a second one would have been replaced too. What went from another
        file, and from this one in all sessions, must be here as well.
        """
        text = self._text_of(calls) if calls[0].name == EDIT else None
        if text is None:
            return args
        gone = [_gone(call.args["old_string"], call.args["new_string"]) for call in calls]
        shown = zip(text.texts, gone, strict=True)
        if len(set(gone)) < FEWEST or not all(stands_once(one, part) for one, part in shown):
            return args
        ways = [*self._texts.ways_to(gone, [call.index for call in calls])]
        facts = [f"stands_once({text.saved}, {way.expression})" for way in ways]
        for call in calls:
            self._conditions[id(call)] = (*self._conditions.get(id(call), ()), *facts)
        old = args["old_string"]
        reads = old.reads.union({text.saved}, *(way.reads for way in ways))
        inputs = old.inputs | (self._inputs.keys() & {way.expression for way in ways})
        return {**args, "old_string": old._replace(reads=reads, inputs=inputs)}

    def _text_of(self, calls: Sequence[TracedCall]) -> Read | None:
        """Return the read of the file that is changed, just before."""
        found = [
            next(
                (
                    one
                    for one in reversed(session.calls[: call.index])
                    if one.name == FILE_TEXT and one.args["file_path"] == call.args["file_path"]
                ),
                None,
            )
            for call, session in zip(calls, self._sessions, strict=True)
        ]
        reads = [one for one in found if one is not None]
        return self._texts.needed(FILE_TEXT, reads) if len(reads) == len(calls) else None

    def _line(self, new: Given, calls: Sequence[TracedCall]) -> Given | None:
        """Return where lines are inserted: by the lines around, or by how the next one begins.

        new: what is inserted.
        """
        read = self._text_of(calls)
        if read is None:
            return None
        lines = [call.args["insert_line"] for call in calls]
        texts = [str(text) for text in read.texts]
        rows = [text.split("\n") for text in texts]
        following = [own[line] for own, line in zip(rows, lines, strict=True)]
        start = shared_start(following)
        forms = [f"lines_before({read.saved}, {quoted(start)})"] if _TELLING.search(start) else []
        kinds = {sign_of(line[len(start) :][:1]) for line in following}
        if forms and len(kinds) == 1:
            # The next entry is like those of all sessions: a version, not "Unreleased".
            kind = quoted(kinds.pop())
            forms.append(f"lines_before({read.saved}, {quoted(start)}, {kind})")
        forms += [f"lines_after({read.saved}, {quoted(one)})" for one in _anchors(rows, lines)]
        forms += [f"lines_above({read.saved}, {quoted(one)})" for one in _below(rows, lines)]
        for start in _list_starts(calls, rows, lines):
            forms.append(f"lines_through({read.saved}, {quoted(start)})")
            forms.append(f"sorted_place({read.saved}, {quoted(start)}, {_NEW})")
        forms.append(f"line_count({read.saved})")
        holding = [
            form.replace(_NEW, new.expression)
            for form in forms
            if all(
                _gives(form, {read.saved: text, _NEW: call.args["new_string"]}, line)
                for text, call, line in zip(texts, calls, lines, strict=True)
            )
        ]
        if not holding:
            return None
        return Given(
            f"{{{{ {holding[0]} }}}}",
            tuple(holding[1:]),
            frozenset({read.saved}) | new.reads,
            new.inputs,
        )

    # --- steps ------------------------------------------------------------------------------------

    def _needed(self, wired: Sequence[Mapping[str, Given]]) -> list[Read]:
        """Return the reads that the effects need, also by way of other reads."""
        todo = [name for args in wired for given in args.values() for name in given.reads]
        found: dict[str, Read] = {}
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = self._texts.reads[name]
                todo += [one for given in found[name].args.values() for one in given.reads]
        return list(found.values())

    def _same_in_all(self) -> Iterator[Read]:
        """Yield the reads that all sessions made before they acted, and that said the same in few
        words: `git status --short` said nothing. They must say it again.
        """
        made: list[dict[str, TracedCall]] = []
        for session, effects in zip(self._sessions, self._effects, strict=True):
            before = session.calls[: min(one.index for one in effects)]
            made.append({quoted([one.name, one.args]): one for one in before if _says_little(one)})
        for key in made[0]:
            calls = [own[key] for own in made if key in own]
            if len(calls) == len(made) > 1 and len({one.result for one in calls}) == 1:
                read = self._texts.needed(calls[0].name, calls)
                if read is not None:
                    self._require(f"{read.saved} == {quoted(calls[0].result)}")
                    yield read

    def _require(self, fact: str) -> None:
        """Require a fact before the first effect."""
        for effects in self._effects:
            known = self._conditions.get(id(effects[0]), ())
            self._conditions[id(effects[0])] = (*known, fact)

    def _searches(self, wired: Sequence[Mapping[str, Given]]) -> Iterator[Read]:
        """Yield the searches of all sessions that listed only files which were changed.

        They may have said which files to change, so they must list no others again.
        """
        changed = [args["file_path"] for args in wired if "file_path" in args]
        paths = ", ".join(dict.fromkeys(given.expression for given in changed))
        if not paths or not all(given.expression for given in changed):
            return
        made: list[dict[str, TracedCall]] = []
        for session, effects in zip(self._sessions, self._effects, strict=True):
            own = [str(one.args["file_path"]) for one in effects if "file_path" in one.args]
            before = session.calls[: min(one.index for one in effects)]
            made.append({one.name: one for one in before if _is_search(one, own)})
        for name in made[0]:
            calls = [own[name] for own in made if name in own]
            read = self._texts.needed(name, calls) if len(calls) == len(made) else None
            if read is not None:
                self._require(f"lists_only({read.saved}, {paths})")
                yield read

    def _base(self, needed: Sequence[Read]) -> int | None:
        """Return a session that made all reads; the one that made most of them before it acted."""
        whole = [
            number
            for number in range(len(self._sessions))
            if all(read.calls[number] is not None for read in needed)
        ]
        return max(whole, key=lambda number: (self._early(needed, number), number), default=None)

    def _early(self, needed: Sequence[Read], session: int) -> int:
        first = min(call.index for call in self._effects[session])
        return sum(call.index < first for read in needed if (call := read.calls[session]))

    def _is_early(self, read: Read) -> bool:
        """Return whether a read can be made before anything is done.

        A file that is not changed before is as it was; of other reads a session must show it.
        """
        if read.name == FILE_TEXT:
            return not any(
                one.index < call.index and one.args.get("file_path") == call.args["file_path"]
                for call, effects in zip(read.calls, self._effects, strict=True)
                for one in effects
                if call is not None
            )
        return any(
            call is not None and call.index < min(one.index for one in effects)
            for call, effects in zip(read.calls, self._effects, strict=True)
        )

    def _placed(
        self, wired: Sequence[Mapping[str, Given]], needed: Sequence[Read], base: int
    ) -> list[_Placed]:
        """Return the calls of the routine in their order, as one session made them.

        All reads that can be made before anything is done come first, the tests last.
        """
        placed = [
            (0 if self._is_early(read) else 1, _Placed(call, read.args, read.saved))
            for read in needed
            if (call := read.calls[base]) is not None
        ]
        placed += [
            (1, _Placed(call, args)) for call, args in zip(self._effects[base], wired, strict=True)
        ]
        check = self._check(base)
        if check is not None:
            args = {key: Given(escaped_value(value)) for key, value in check.args.items()}
            placed.append((2, _Placed(check, args)))
        return [one for _, one in sorted(placed, key=lambda one: (one[0], one[1].call.index))]

    def _routine(
        self, name: str, wired: Sequence[Mapping[str, Given]], needed: Sequence[Read], base: int
    ) -> tuple[Draft, Filled]:
        ids, steps, recording = Names(), list[Step](), list[Recorded]()
        placed = self._placed(wired, needed, base)
        for call, args, saved in placed:
            step = ids.free(identifier(call.title.removesuffix("_failed")))
            steps.append(
                ToolStep(
                    id=step,
                    tool=call.name,
                    args={key: given.value for key, given in args.items()},
                    agree={key: list(given.agree) for key, given in args.items() if given.agree},
                    guards=self._guards(call, args) if call.effect == "write" else (),
                    save_as=saved,
                )
            )
            recording.append(Recorded(step, call.name, False, call.args, call.result))
        changed = [args["file_path"].value for args in wired if "file_path" in args]
        if changed:
            steps.append(ReturnStep(id=ids.free("return"), value={CHANGED: _once(changed)}))
        effects = self._effects[base]
        paths = [call.args["file_path"] for call in effects if "file_path" in call.args]
        given = {key: values[base] for key, values in self._inputs.items()}
        text = "" if self._template is None else self._template.text(self._holes)
        routine = Routine(
            name=name,
            description=text.replace("{{ ", "{").replace(" }}", "}") or self._described(base),
            tools=list(specs_of(one.call for one in placed).values()),
            input_schema=of_input(given),
            steps=steps,
        )
        session = self._sessions[base].calls
        draft = Draft(
            routine=routine,
            input=given,
            output={CHANGED: _once(paths)} if paths else None,
            recording=recording,
            answers={},
            calls=session,
            verdicts=_verdicts(session, {id(one.call) for one in placed}),
            explained=[*_explained(placed)],
            comments={},
        )
        others = [one.calls for n, one in enumerate(self._sessions) if n != base]
        return with_overwritten(draft, others), Filled([], [], text, self._inputs, [])

    def _described(self, base: int) -> str:
        """Say what is done, where no words of the requests do."""
        done = dict.fromkeys(map(_effect, self._effects[base]))
        text = f"{', '.join(done)} with {' and '.join(self._inputs)}"
        return f"{text[0].upper()}{text[1:]}"

    def _guards(self, call: TracedCall, args: Mapping[str, Given]) -> tuple[str, ...]:
        """Return that a version or an id looks like those of all sessions: 1.3.0, not v1.3.0."""
        used = sorted({name for given in args.values() for name in given.inputs})
        alike: list[str] = []
        for name in used:
            values = self._inputs[name]
            if all(re.fullmatch(r"\S*\d\S*", value) for value in values):
                ends = quoted(_sign_at(values, 0)), quoted(_sign_at(values, -1))
                alike.append(f"looks_like({name}, {', '.join(ends)})")
            elif not any("\n" in value for value in values):
                alike += [f'{name} != ""', f'absent({name}, "\\n")']
        return (*alike, *self._conditions.get(id(call), ()))

    def _check(self, base: int) -> TracedCall | None:
        """Return the test run that ends the routine: one that sessions ended with, as it was."""
        ends = [_last_test(session) for session in self._sessions]
        made = [call for call in ends if call is not None]
        if not made:
            return None
        texts = Counter(quoted([call.name, call.args]) for call in made)
        chosen = ends[base]
        best = max(texts, key=lambda text: texts[text])
        is_best = chosen is not None and quoted([chosen.name, chosen.args]) == best
        return chosen if is_best else None


def _sign_at(values: Sequence[str], at: int) -> str:
    """Return the kind of sign that all texts have at an end; empty if they differ."""
    kinds = {sign_of(value[at]) for value in values}
    return kinds.pop() if len(kinds) == 1 else ""


def _once(values: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _verdicts(calls: Sequence[TracedCall], kept: set[int]) -> list[Verdict]:
    def verdict(call: TracedCall) -> Verdict:
        if id(call) not in kept:
            return Verdict(False, "nothing uses its result")
        if call.is_test and not call.exit_code:
            return Verdict(True, "the tests that the sessions ended with")
        return Verdict(True, "it has an effect" if call.effect == "write" else "its result is used")

    return [verdict(call) for call in calls]


def _explained(placed: Sequence[_Placed]) -> Iterator[Explained]:
    for call, args, _ in placed:
        for key, given in args.items():
            how: How = "computed" if given.reads else "said" if given.inputs else "constant"
            yield Explained(call.index, key, call.args[key], given.value, how, agree=given.agree)


def _last_test(session: Session) -> TracedCall | None:
    """Return the last test run, if it came after all effects and passed."""
    last = max((call.index for call in session.calls if call.effect == "write"), default=0)
    runs = [call for call in session.calls if call.is_test and call.index > last]
    return runs[-1] if runs and not runs[-1].exit_code else None


def escaped_value(value: Any) -> Any:
    """Return a constant argument, in which braces are not read as an expression."""
    return escaped(value) if isinstance(value, str) else value


def _anchors(rows: Sequence[Sequence[str]], lines: Sequence[int]) -> Iterator[str]:
    """Yield the fewest lines above a place that are the same in all texts, and say something."""
    for count in range(1, MOST_ANCHORS):
        above = {
            "".join(f"{row}\n" for row in own[max(0, line - count) : line])
            for own, line in zip(rows, lines, strict=True)
        }
        anchor = above.pop()
        if above:
            return
        if _TELLING.search(anchor):
            yield anchor
            return


def _below(rows: Sequence[Sequence[str]], lines: Sequence[int]) -> Iterator[str]:
    """Yield the fewest lines below a place that are the same in all texts, and not empty."""
    for count in range(1, MOST_ANCHORS):
        below = {
            "".join(f"{row}\n" for row in own[line : line + count])
            for own, line in zip(rows, lines, strict=True)
        }
        anchor = below.pop()
        if below:
            return
        if anchor.strip():
            yield anchor
            return


def _list_starts(
    calls: Sequence[TracedCall], rows: Sequence[Sequence[str]], lines: Sequence[int]
) -> list[str]:
    """Return what new lines begin with, and in all sessions also those above, or those below."""
    new = [str(call.args["new_string"]).partition("\n")[0] for call in calls]
    above = [own[line - 1] if line else "" for own, line in zip(rows, lines, strict=True)]
    below = [own[line] for own, line in zip(rows, lines, strict=True)]
    starts = [shared_start([*new, *others]) for others in (above, below)]
    return [start for start in dict.fromkeys(starts) if start.strip()]


_TOKEN = re.compile(r"\w[\w.+-]*|\s+|.", re.DOTALL)


def _gone(old: str, new: str) -> str:
    """Return the part of a text that is not in what replaces it: whole words."""
    before, after = _TOKEN.findall(old), _TOKEN.findall(new)
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return "".join(before)


def _gives(form: str, scope: Mapping[str, Any], value: Any) -> bool:
    """Return whether an expression has a value."""
    try:
        found = compile_expression(form, "")({**FUNCTIONS, **scope})
    except EmError:
        return False
    return bool(found == value)


def _is_search(call: TracedCall, changed: Sequence[str]) -> bool:
    """Return whether a call is a read that listed some of the changed files, and no others."""
    is_listing = call.effect == "read" and call.name not in (FILE_TEXT, TODAY)
    return is_listing and isinstance(call.result, str) and lists_only(call.result, *changed)


LONGEST_FACT = 80
"""Characters of an output that is a fact, and no listing."""


def _says_little(call: TracedCall) -> bool:
    """Return whether a call is a read that said nothing, or one line that is no path."""
    said = call.result
    return (
        call.effect == "read"
        and call.name not in (FILE_TEXT, TODAY)
        and isinstance(said, str)
        and len(said) <= LONGEST_FACT
        and "\n" not in said
        and not said.startswith(("/", "~"))
    )
