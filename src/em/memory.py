"""Memory: one object that wires the parts together; the only place that does."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cached_property, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from em.capture.log import Log
from em.capture.traces import content_id, find_traces, get_traces, trace_events
from em.errors import InputError, NotFound, UsageError
from em.models.bulk import uncollected
from em.models.canonical import Json
from em.models.event import Draft, Event, EventQuery, check_name
from em.models.ids import new_id
from em.models.run import RunResult
from em.models.times import Moment, moment
from em.models.trace import Effect, KeptTrace, Outcome, Trace
from em.settings import Settings, StateSettings
from em.store import Commit, Erasure, open_store
from em.store.protocol import Store

if TYPE_CHECKING:
    from typing import Unpack

    from em.llm.protocol import LlmClient
    from em.models.routine import Routine
    from em.runner.calls import AutoFix
    from em.runner.engine import RunOptions, Tools
    from em.runner.stored import KeptRoutine
    from em.state.asking import Answer
    from em.state.rules import Alert
    from em.state.state import Conflict, State
    from em.state.subjects import Subjects

P = ParamSpec("P")
R = TypeVar("R")

_DETAILS = ("type", "speaker", "role", "session", "source")


class Memory:
    """The memory of an agent, on one store. A context manager; safe to share between threads.

    db: a path or a `postgresql://` address; `EM_DB`, then `.em/em.db`, where it is not given.
    llm: the model that checkpoints and questions may ask; none is asked where it is not given.
    checkpoint_every: so many events about a subject, or minutes as `10m`; else `em.yaml` says.
    """

    def __init__(
        self,
        db: str | Path | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        llm: "LlmClient | None" = None,
        checkpoint_every: int | str | None = None,
    ) -> None:
        self.store: Store = open_store(db, settings, create=create)
        self.log = Log(self.store)
        self._settings = settings
        self._db = None if db is None else str(db)
        self._llm = llm
        self._checkpoint_every = checkpoint_every
        # None: what em.yaml says when a run asks for it.
        self._allow = None if settings is None else settings.allow

    def __repr__(self) -> str:
        return f"<Memory {self.store.location}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def observe(
        self,
        subject: str,
        text_or_record: str | Mapping[str, Any],
        *,
        type: str | None = None,  # noqa: A002 - the name users know from records
        at: Moment | None = None,
        speaker: str | None = None,
        role: str | None = None,
        session: str | None = None,
        source: str | None = None,
    ) -> str:
        """Keep something learned about a subject; the id of its event."""
        details = {
            "type": type,
            "speaker": speaker,
            "role": role,
            "session": session,
            "source": source,
        }
        draft = _observation(subject, text_or_record, at, details)
        events = self.log.append_many([draft])
        self._observed(events)
        return events[0].id

    def observe_many(
        self, items: Iterable[tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]]
    ) -> list[str]:
        """Keep many observations in one transaction; the ids of their events.

        An item is `(subject, text_or_record)`, or a mapping with `subject`, either `text` or
        `record`, and optionally what `observe` takes by name.
        """
        with uncollected():
            drafts = []
            for number, item in enumerate(items):
                try:
                    drafts.append(_item(item))
                except InputError as error:
                    error.place = f"item {number}, {error.place}".rstrip(", ")
                    raise
            events = self.log.append_many(drafts)
        self._observed(events)
        return [event.id for event in events]

    def _observed(self, events: Sequence[Event]) -> None:
        if self._checkpoints_itself:
            self.subjects.observed(events)

    @cached_property
    def _checkpoints_itself(self) -> bool:
        return self._state_settings.checkpoint_every is not None

    @cached_property
    def _state_settings(self) -> StateSettings:
        found = (self._settings or Settings.load()).state
        if self._checkpoint_every is None:
            return found
        return msgspec.structs.replace(found, checkpoint_every=self._checkpoint_every)

    @cached_property
    def subjects(self) -> "Subjects":
        """The states of this memory's subjects."""
        from em.state.subjects import Subjects

        # Recall proper, where this memory has it; else the store's own search.
        recall = getattr(self, "recall", None)
        seam = None if recall is None else lambda text, subject: recall(text, subject=subject, k=10)
        return Subjects(self.store, self._state_settings, recall=seam, client=self._llm)

    def checkpoint(
        self,
        subject: str,
        *,
        llm: "LlmClient | None" = None,
        accept: bool = False,
        again: bool = False,
        rebuild: bool = False,
    ) -> "State":
        """Compile what is new about a subject; its state then, with the `report` of what was done.

        accept: also if it breaks kept questions or rules. again: what no model has read well is
        read again. rebuild: all of it anew, from the log.
        """
        report = self.subjects.checkpoint(
            subject, client=llm, accept=accept, again=again, rebuild=rebuild
        )
        state = self.subjects.state(subject)
        state.report = report
        return state

    def checkpoint_many(
        self,
        /,
        subjects: Iterable[str] | None = None,
        *,
        processes: int | None = None,
        **how: Any,
    ) -> tuple[int, dict[str, str]]:
        """Checkpoint many subjects, or all, with all cores; how many, and which failed and why."""
        from em.state.parallel import checkpoint_many, subjects_of

        names = subjects_of(self.store) if subjects is None else subjects
        return checkpoint_many(self.subjects, names, processes=processes, db=self._db, **how)

    def state(
        self, subject: str, as_of: Moment | None = None, *, known_at: Moment | None = None
    ) -> "State":
        """What was last compiled about a subject; as it was at a moment, or was known by then."""
        return self.subjects.state(subject, as_of=as_of, known_at=known_at)

    def ask(
        self,
        subject: str,
        question: str | None = None,
        *,
        code: str | None = None,
        llm: "LlmClient | None" = None,
        as_of: Moment | None = None,
    ) -> "Answer":
        """Answer a question by code over the state, or from what was said; or run your own code."""
        return self.subjects.ask(subject, question, code=code, client=llm, as_of=as_of)

    def check(self, subject: str, action: str, /, **details: Any) -> "list[Alert]":
        """The rules that fire before an action, the worst first."""
        return self.subjects.state(subject).check(action, **details)

    def alerts(self, subject: str, now: Moment | None = None) -> "list[Alert]":
        """What is due about a subject: deadlines, active windows."""
        return self.subjects.state(subject).alerts(now)

    def conflicts(self, subject: str) -> "list[Conflict]":
        """What contradicts itself about a subject, and how each was settled."""
        return self.subjects.state(subject).conflicts()

    def resolve(self, subject: str, field: str, /, **decision: Any) -> str:
        """Settle a field: by `value`, by an `event`, or by a `policy` (with `order`); an event."""
        return self.subjects.resolve(subject, field, **decision)

    def declare(self, subject: str, type: str, key: str | Sequence[str]) -> str:  # noqa: A002 - the name users know from records
        """Say by which fields records of a type are one and the same; an event."""
        return self.subjects.declare(subject, type, [key] if isinstance(key, str) else key)

    def add_trace(self, trace: Trace) -> str:
        """Keep one attempt at a task; the id of the trace, whose stream is `trace/ID`."""
        trace_id = new_id()
        self.log.append_many(trace_events(trace, trace_id))
        return trace_id

    def import_traces(self, traces: Iterable[Trace]) -> tuple[int, int]:
        """Keep traces that were read from elsewhere; how many were new, and how many known.

        All come in or none. The same trace again changes nothing.
        """
        ids: list[str] = []

        def commits() -> Iterator[Commit]:
            for trace in traces:
                events = trace_events(trace, content_id(trace), known_ids=True)
                ids.append(str(events[0].id))
                yield Commit(events=events, skip_known=True)

        before = self.log.head_seq()
        self.store.commit_all(commits())
        new = 0
        for start in range(0, len(ids), 500):
            query = EventQuery(ids=ids[start : start + 500], after=before)
            new += sum(1 for _ in self.store.read(query))
        return new, len(ids) - new

    def traces(self, task: str | None = None, outcome: Outcome | None = None) -> list[KeptTrace]:
        """The traces in this memory, oldest first; `task` is some words of their goal."""
        return list(find_traces(self.store, task=task, outcome=outcome))

    def compile(
        self,
        trace_ids: str | Sequence[str],
        *,
        name: str | None = None,
        declared: Mapping[str, Effect | None] | None = None,
        keep_all: bool = False,
    ) -> "KeptRoutine":
        """Compile a trace of this memory into a routine, kept as a new version.

        Of several traces of one task, the way that most of them went is taken, and of those the
        shortest; the routine is proved by replaying the trace it was made of.
        """
        from em.compiler.several import compile_several
        from em.runner.stored import keep_routine

        ids = [trace_ids] if isinstance(trace_ids, str) else trace_ids
        kept = get_traces(self.store, ids)
        made = compile_several(kept, name=name, declared=declared, keep_all=keep_all)
        return keep_routine(self.store, made.files, made.from_events)

    def run(
        self,
        routine: "str | Path | Routine",
        input_data: Json | None = None,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        **options: "Unpack[RunOptions]",
    ) -> RunResult:
        """Run a routine; every step is journalled in this memory.

        routine: its folder, or a routine of this memory: its name, `name@version`, or itself.
        Tools that the routine declares may use what `allow` names, else what the settings allow.
        """
        from em.runner.engine import run_routine
        from em.runner.stored import opened

        options.setdefault("allow", self._allow)
        with opened(self.store, routine) as package:
            return run_routine(package, input_data, tools, auto_fix_fn, store=self.store, **options)

    def resume(
        self,
        run_id: str,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        *,
        input_data: Json | None = None,
        **options: "Unpack[RunOptions]",
    ) -> RunResult:
        """Go on with a run that was interrupted or waits; no completed step runs again."""
        from em.runner.engine import resume_run

        options.setdefault("allow", self._allow)
        return resume_run(self.store, run_id, tools, auto_fix_fn, input_data=input_data, **options)

    def forget(
        self,
        events: str | Event | Sequence[str | Event] = (),
        *,
        subject: str | None = None,
        reason: str = "",
    ) -> Erasure:
        """Erase the bodies of events, or all of a subject's, with everything derived from them."""
        chosen = [events] if isinstance(events, str | Event) else events
        if not chosen and subject is None:
            raise UsageError("nothing to forget", fix="name events or a subject")
        ids = [event.id if isinstance(event, Event) else event for event in chosen]
        if subject is not None:
            ids += self._ids_about(subject)
        subjects = () if subject is None else (subject,)
        touched = self._subjects_of(ids) - {subject}
        erasure = self.store.erase(ids, subjects=subjects, reason=reason)
        for other in sorted(touched):
            if self.subjects.has_state(other):
                self.subjects.checkpoint(other, accept=True, rebuild=True)
        return erasure

    def _subjects_of(self, ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(ids), 500):
            query = EventQuery(ids=ids[start : start + 500])
            found |= {event.subject for event in self.store.read(query) if event.subject}
        return found

    def _ids_about(self, subject: str) -> list[str]:
        check_name(subject, "subject")
        found = [(event.id, event.kind) for event in self.log.read(subject=subject)]
        if not found:
            raise NotFound(f"nothing in the log is about {subject!r}", place="subject")
        return [event_id for event_id, kind in found if kind != "erased"]


def _observation(
    subject: str,
    text_or_record: str | Mapping[str, Any],
    at: Moment | None,
    details: Mapping[str, str | None],
) -> Draft:
    body: Json = {name: value for name, value in details.items() if value is not None}
    if isinstance(text_or_record, str):
        body["text"] = text_or_record
    elif isinstance(text_or_record, Mapping):
        body["record"] = dict(text_or_record)
    else:
        raise InputError(
            f"a {type(text_or_record).__name__} can't be observed",
            place="text_or_record",
            fix="give a text or a mapping",
        )
    return Draft(
        stream=subject_stream(subject),
        kind="observation",
        body=body,
        subject=subject,
        at=None if at is None else moment(at),
    )


def subject_stream(subject: str) -> str:
    """The stream of what was observed about a subject."""
    return f"subject/{check_name(subject, 'subject')}"


def _item(item: tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]) -> Draft:
    if isinstance(item, tuple) and len(item) == 2:
        subject, content = item
        return _observation(subject, content, None, {})
    if not isinstance(item, Mapping):
        raise InputError(
            f"a {type(item).__name__} is no observation",
            fix="give (subject, text_or_record) or a mapping",
        )
    unknown = item.keys() - {"subject", "text", "record", "at", *_DETAILS}
    if unknown or "subject" not in item or ("text" in item) == ("record" in item):
        raise InputError(
            f"no field {min(unknown)!r} in an observation"
            if unknown
            else "an observation has a subject, and either a text or a record",
            fix="give subject, text or record, and optionally at, " + ", ".join(_DETAILS),
        )
    content = item["text"] if "text" in item else item["record"]
    details = {name: item.get(name) for name in _DETAILS}
    return _observation(item["subject"], content, item.get("at"), details)


def _threaded(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method as a coroutine: the same code, in a thread, on what this object stands for."""

    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio

        return await asyncio.to_thread(method, self._sync, *args, **kwargs)

    return wraps(method)(run)


class AsyncLog:
    """Log for asyncio."""

    def __init__(self, log: Log) -> None:
        self._sync = log

    append = _threaded(Log.append)
    append_many = _threaded(Log.append_many)
    get = _threaded(Log.get)
    head = _threaded(Log.head)
    head_seq = _threaded(Log.head_seq)
    verify = _threaded(Log.verify)

    async def read(self, **query: Any) -> AsyncIterator[Event]:
        """Stream events, as `Log.read` does."""
        import asyncio

        events = self._sync.read(**query)
        while batch := await asyncio.to_thread(lambda: list(islice(events, 500))):
            for event in batch:
                yield event


class AsyncMemory:
    """Memory for asyncio: the same methods, awaited."""

    def __init__(
        self,
        db: str | Path | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        llm: "LlmClient | None" = None,
        checkpoint_every: int | str | None = None,
    ) -> None:
        self._sync = Memory(
            db, settings=settings, create=create, llm=llm, checkpoint_every=checkpoint_every
        )
        self.log = AsyncLog(self._sync.log)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    @property
    def subjects(self) -> "Subjects":
        """The states of this memory's subjects; its methods are not awaited."""
        return self._sync.subjects

    observe = _threaded(Memory.observe)
    observe_many = _threaded(Memory.observe_many)
    add_trace = _threaded(Memory.add_trace)
    import_traces = _threaded(Memory.import_traces)
    traces = _threaded(Memory.traces)
    compile = _threaded(Memory.compile)
    run = _threaded(Memory.run)
    resume = _threaded(Memory.resume)
    checkpoint = _threaded(Memory.checkpoint)
    checkpoint_many = _threaded(Memory.checkpoint_many)
    state = _threaded(Memory.state)
    ask = _threaded(Memory.ask)
    check = _threaded(Memory.check)
    alerts = _threaded(Memory.alerts)
    conflicts = _threaded(Memory.conflicts)
    resolve = _threaded(Memory.resolve)
    declare = _threaded(Memory.declare)
    forget = _threaded(Memory.forget)
    close = _threaded(Memory.close)
