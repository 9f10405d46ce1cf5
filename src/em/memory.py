"""Memory: one object that wires the parts together; the only place that does."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from functools import cached_property, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from em.capture.log import Log
from em.capture.traces import find_traces, get_traces, trace_events
from em.errors import InputError, NotFound, UsageError
from em.models.canonical import Json, canonical
from em.models.event import Draft, Event, check_name
from em.models.ids import new_id
from em.models.passage import Within
from em.models.run import RunResult
from em.models.times import Moment, moment
from em.models.trace import Effect, KeptTrace, Outcome, Trace, read_trace
from em.settings import Settings
from em.store import Erasure, open_store
from em.store.protocol import Store

if TYPE_CHECKING:
    from typing import Unpack

    from em.behaviour.engine import Engine
    from em.capture.importing import FileRead
    from em.capture.importing import Progress as ImportProgress
    from em.capture.recorder import Recording
    from em.compiler.heal import Healing
    from em.compiler.suggesting import Suggestion
    from em.heuristics.book import Heuristics
    from em.llm.protocol import LlmClient
    from em.models.heuristic import Briefing, Heuristic
    from em.models.routine import Routine
    from em.recall.embed import Embed
    from em.recall.meaning import Progress
    from em.recall.search import Recall, Recalled
    from em.runner.calls import AutoFix
    from em.runner.engine import RunOptions, Tools
    from em.runner.stored import KeptRoutine

P = ParamSpec("P")
R = TypeVar("R")

_DETAILS = ("type", "speaker", "role", "session", "source")


class Memory:
    """The memory of an agent, on one store. A context manager; safe to share between threads.

    db: a path or a `postgresql://` address; `EM_DB`, then `.em/em.db`, where it is not given.
    embedder: a function from texts to vectors, for recall; the settings may name one too.
    """

    def __init__(
        self,
        db: str | Path | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        embedder: "Embed | None" = None,
    ) -> None:
        self._settings = settings
        # None: what em.yaml says when a run asks for it.
        self._allow = None if settings is None else settings.allow
        settings = settings or Settings.load()
        self.store: Store = open_store(db, settings, create=create)
        self._embed_settings = settings.embed
        self._embedder = embedder
        self.log = Log(self.store)

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
        draft = observation(subject, text_or_record, at, details)
        return self.log.append_many([draft])[0].id

    def observe_many(
        self, items: Iterable[tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]]
    ) -> list[str]:
        """Keep many observations in one transaction; the ids of their events.

        An item is `(subject, text_or_record)`, or a mapping with `subject`, either `text` or
        `record`, and optionally what `observe` takes by name.
        """
        drafts = []
        for number, item in enumerate(items):
            try:
                drafts.append(_item(item))
            except InputError as error:
                error.place = f"item {number}, {error.place}".rstrip(", ")
                raise
        return [event.id for event in self.log.append_many(drafts)]

    def add_trace(self, trace: Trace | Mapping[str, Any], *, subject: str | None = None) -> str:
        """Keep one attempt at a task; the id of the trace, whose stream is `trace/ID`.

        A mapping is read as the native format, or as a trajectory.
        """
        if not isinstance(trace, Trace):
            trace = read_trace(canonical(trace, "trace")[0], "trace")
        trace_id = new_id()
        self.log.append_many(trace_events(trace, trace_id, subject=subject))
        return trace_id

    def import_files(
        self,
        paths: "str | Path | Sequence[str | Path]",
        *,
        format: str | None = None,  # noqa: A002 - the name users know from the command
        subject: str | None = None,
        progress: "ImportProgress | None" = None,
    ) -> "list[FileRead]":
        """Keep the traces in transcripts that agents left on disk; what became of each file.

        A path is a file, a folder or a pattern. The format is found, if it is not named. What is
        there already is not kept twice; a file that has grown brings only what is new.
        """
        from em.capture.importing import import_paths

        given = [paths] if isinstance(paths, str | Path) else paths
        return import_paths(self.store, given, format_=format, subject=subject, progress=progress)

    def traces(self, task: str | None = None, outcome: Outcome | None = None) -> list[KeptTrace]:
        """The traces in this memory, oldest first; `task` is some words of their goal."""
        return list(find_traces(self.store, task=task, outcome=outcome))

    def record(
        self,
        goal: str | None = None,
        input_summary: Json | None = None,
        *,
        app: str = "",
        subject: str | None = None,
    ) -> "Recording":
        """Record an agent: as a context manager, or as a decorator of a plain or an async agent.

        The trace is kept when the agent is done. Tools are recorded that were made so by
        `recorder.tool`, or by `em.capture.recorder.recorded_tool` wherever they are.
        """
        from em.capture.recorder import Recording

        def keep(trace: Trace) -> str:
            return self.add_trace(trace, subject=subject)

        return Recording(keep, goal, input_summary, app=app)

    def suggest(
        self, task: str | None = None, *, at_least: int = 2, limit: int = 10
    ) -> "list[Suggestion]":
        """Which traces went the same way and are worth compiling, the most worth first."""
        from em.compiler.suggesting import suggest

        return suggest(find_traces(self.store, task=task), at_least=at_least, limit=limit)

    def compile(
        self,
        trace_ids: str | Sequence[str],
        *,
        name: str | None = None,
        declared: Mapping[str, Effect | None] | None = None,
        keep_all: bool = False,
        client: "LlmClient | None" = None,
    ) -> "KeptRoutine":
        """Compile a trace of this memory into a routine, kept as a new version.

        Of several traces of one task, the way that most of them went is taken, and of those the
        shortest; the routine is proved by replaying the trace it was made of. With a `client` its
        model may improve it; what does not pass the same proof is dropped.
        """
        from em.compiler.compiling import compile_several
        from em.runner.stored import keep_routine

        ids = [trace_ids] if isinstance(trace_ids, str) else trace_ids
        kept = get_traces(self.store, ids)
        made = compile_several(kept, name=name, declared=declared, keep_all=keep_all, client=client)
        return keep_routine(self.store, made.files, made.from_events)

    @property
    def heuristics(self) -> "Heuristics":
        """The lessons in this memory: list them, give feedback, retire, merge."""
        from em.heuristics.book import Heuristics

        return Heuristics(self.store, self._settings)

    def reflect(
        self,
        trace: "Trace | str | Sequence[str]",
        client: "LlmClient | None" = None,
        *,
        subject: str | None = None,
    ) -> "list[Heuristic]":
        """Learn from a trace, or from traces of this memory by their ids; the lessons, kept.

        A trace that is given itself is kept too. Without a `client` lessons are mined from what
        happened; with one, the model also says them in words (see `em.llm`).
        """
        return self.heuristics.reflect(trace, client, subject=subject)

    def brief(
        self,
        task: str,
        k: int = 5,
        tokens: int | None = None,
        *,
        tools: Sequence[str] | None = None,
        subject: str | None = None,
        client: "LlmClient | None" = None,
    ) -> "Briefing":
        """A prompt section with the best lessons for a task, within `tokens`; empty if none fits.

        tools: the names of the tools in play. client: a model that puts the lessons in order.
        """
        return self.heuristics.brief(task, k, tokens, tools=tools, subject=subject, client=client)

    def feedback(
        self, heuristic_ids: str | Sequence[str], outcome: Outcome, *, task: str = ""
    ) -> "list[Heuristic]":
        """Say how a run ended that these heuristics were handed to: their rank follows it."""
        return self.heuristics.feedback(heuristic_ids, outcome, task=task)

    def run(
        self,
        routine: "str | Path | Routine",
        input_data: Json | None = None,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        *,
        run_id: str | None = None,
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
            return run_routine(
                package,
                input_data,
                tools,
                auto_fix_fn,
                store=self.store,
                run_id=run_id,
                **options,
            )

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

    def heal(self, run_id: str, *, dry_run: bool = False) -> "Healing":
        """Write the fixes that a run needed into its routine, as a new version.

        The run is made again with what its journal holds: the healed routine must need no fix and
        give the same output. The old version is kept; with `dry_run` nothing is written.
        """
        from em.compiler.heal import healing_of
        from em.runner.journal import read_run
        from em.runner.package import write_files
        from em.runner.stored import files_in, keep_routine, package_of

        past = read_run(self.store, run_id)
        with package_of(self.store, past) as package:
            package.check_unchanged(past.routine_hash)
            old = files_in(package.folder)
            healing, new = healing_of(package.routine, old, past)
        if dry_run or not healing.changed:
            return healing
        before = past.stored or keep_routine(self.store, old).ref
        after = keep_routine(self.store, new).ref
        if past.folder:
            write_files(new, Path(past.folder))
        return msgspec.structs.replace(healing, old=before, new=after)

    def engine(self, name: str, **options: Any) -> "Engine":
        """An engine whose behaviours are kept in this memory; `options` are those of `em.Engine`.

        On a miss the agent is handed the lessons of this memory that fit (`progress.heuristics`).
        It is plain for a plain agent and awaited for an async one, so AsyncMemory has it as it is.
        """
        from em.behaviour.engine import Engine

        def lessons(arguments: Mapping[str, Any]) -> Sequence[Any]:
            task = " ".join([name, *map(str, arguments.values())])
            return self.brief(task).heuristics

        return Engine(self.store, name=name, **{"briefing": lessons, **options})

    def recall(
        self,
        query: str,
        subject: str | None = None,
        k: int = 10,
        since: Moment | None = None,
        until: Moment | None = None,
        *,
        neighbours: int = 0,
        in_order: bool = False,
        now: Moment | None = None,
    ) -> "Recalled":
        """The passages that fit a question best, one of each event; all subjects' without one.

        `neighbours` brings so many passages before and after each; `in_order` gives them as they
        were said. "Last week" in a question means the week before `now`. What could not be done,
        such as asking an embedder, stands in the result's `notes`.
        """
        within = Within(
            subject=subject,
            since=None if since is None else moment(since, "since"),
            until=None if until is None else moment(until, "until"),
        )
        return self._recall.recall(
            query,
            within,
            k,
            neighbours=neighbours,
            in_order=in_order,
            now=None if now is None else moment(now, "now"),
        )

    @cached_property
    def _recall(self) -> "Recall":
        from em.recall.search import Recall

        embedder = self._embedder
        if embedder is None and self._embed_settings.use != "none":
            from em.recall.embed import make_embedder

            embedder = make_embedder(self._embed_settings)
        return Recall(self.store, embedder)

    def embed(self, progress: "Progress | None" = None) -> int:
        """Give every passage its vector, after an import or a change of embedder; those left.

        Searching does so by itself for a few hundred. `progress(done, total)` is told of it.
        """
        return self._recall.embed_all(progress)

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
        # What recall remembers of which passages have vectors is not true any more.
        self.__dict__.pop("_recall", None)
        erasure = self.store.erase(ids, subjects=subjects, reason=reason)
        from em.heuristics.shelf import rebuild

        rebuild(self.store, erasure.events)
        return erasure

    def _ids_about(self, subject: str) -> list[str]:
        check_name(subject, "subject")
        found = [(event.id, event.kind) for event in self.log.read(subject=subject)]
        if not found:
            raise NotFound(f"nothing in the log is about {subject!r}", place="subject")
        return [event_id for event_id, kind in found if kind != "erased"]


def observation(
    subject: str,
    text_or_record: str | Mapping[str, Any],
    at: Moment | None,
    details: Mapping[str, str | None],
) -> Draft:
    """The event by which something learned about a subject is kept."""
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
        return observation(subject, content, None, {})
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
    return observation(item["subject"], content, item.get("at"), details)


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
        embedder: "Embed | None" = None,
    ) -> None:
        self._sync = Memory(db, settings=settings, create=create, embedder=embedder)
        self.log = AsyncLog(self._sync.log)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def engine(self, name: str, **options: Any) -> "Engine":
        """An engine whose behaviours are kept in this memory."""
        return self._sync.engine(name, **options)

    @property
    def heuristics(self) -> "Heuristics":
        """The lessons in this memory; its methods are not awaited."""
        return self._sync.heuristics

    def record(self, goal: str | None = None, **options: Any) -> "Recording":
        """Record an agent, as `Memory.record` does; `async with` takes it too."""
        return self._sync.record(goal, **options)

    observe = _threaded(Memory.observe)
    observe_many = _threaded(Memory.observe_many)
    add_trace = _threaded(Memory.add_trace)
    import_files = _threaded(Memory.import_files)
    traces = _threaded(Memory.traces)
    suggest = _threaded(Memory.suggest)
    compile = _threaded(Memory.compile)
    run = _threaded(Memory.run)
    resume = _threaded(Memory.resume)
    heal = _threaded(Memory.heal)
    recall = _threaded(Memory.recall)
    embed = _threaded(Memory.embed)
    reflect = _threaded(Memory.reflect)
    brief = _threaded(Memory.brief)
    feedback = _threaded(Memory.feedback)
    forget = _threaded(Memory.forget)
    close = _threaded(Memory.close)
