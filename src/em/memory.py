"""Memory: one object that reaches everything. It opens a store and delegates to the rooms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import msgspec

from em.errors import NotFound, UsageError
from em.log.event import Event, EventQuery, check_name
from em.log.use import note_use
from em.settings import AllowSettings, Settings
from em.store import Erasure, open_store
from em.store.log import Log, anchor
from em.store.protocol import Store, Within
from em.values.canonical import Json, canonical
from em.values.times import Moment, moment, new_id

if TYPE_CHECKING:
    from typing import Unpack

    from em.behaviour.engine import Engine
    from em.behaviour.routed_agent import RoutedAgent
    from em.compiler.checks import Strike
    from em.compiler.growth import Growth
    from em.compiler.match import Match, Matcher
    from em.compiler.shadow import Shadow, ShadowReport, Which
    from em.compiler.suggestions import Suggestion
    from em.compiler.toolset import Format, Toolset
    from em.heuristics.heuristic import Briefing, Heuristic
    from em.heuristics.lessons import Heuristics
    from em.llm.client import LlmClient
    from em.recall.embed import Embed
    from em.recall.embed import Progress as EmbedProgress
    from em.recall.rank import Rerank
    from em.recall.search import Recall, Recalled
    from em.runner.engine import RunOptions
    from em.runner.machine import AutoFix
    from em.runner.package import KeptRoutine
    from em.runner.routine import Routine
    from em.runner.run import Asks, Prepared, RunResult
    from em.runner.standing import InUse, Standing
    from em.runner.tools import Tools
    from em.state.questions import Answer
    from em.state.rules import Alert
    from em.state.state import Conflict, State
    from em.state.subjects import Subjects
    from em.traces.recorder import Recording
    from em.traces.trace import KeptTrace, Outcome, Source, Trace
    from em.traces.transcripts import FileRead, Progress
    from em.values.call import Effect
    from em.workflows.builtins import Sourced, Sources
    from em.workflows.inspection import WorkflowResult
    from em.workflows.runs import WorkflowOptions, Workflows


class Memory:
    """The memory of an agent, on one store. A context manager; safe to share between threads.

    ```python
    from em import Memory

    with Memory("em.db") as memory:
        memory.observe("ana", "I live in Lisbon.")
        assert memory.recall("Where does Ana live?", subject="ana")[0].text == "I live in Lisbon."
    ```

    db: a path or a `postgresql://` address; by default `EM_DB`, else `.em/em.db`.
    embedder: a function from texts to vectors for recall; the settings may name one too.
    reranker: a function that scores passages for a question, the best hundred once more.
    llm: the model that checkpoints and questions may ask; by default no model is asked.
    checkpoint_every: checkpoint a subject after this many events (500) or this much time (10m);
        by default as `em.yaml` says.
    """

    def __init__(
        self,
        db: str | Path | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        embedder: "Embed | None" = None,
        reranker: "Rerank | None" = None,
        llm: "LlmClient | None" = None,
        checkpoint_every: int | str | None = None,
    ) -> None:
        self._settings = settings
        # None: read em.yaml when a run needs to know.
        self._allow = None if settings is None else settings.allow
        settings = settings or Settings.load()
        self.store: Store = open_store(db, settings, create=create)
        self.routines = settings.routines
        """The switch for all routines: `off`, `shadow` or `on`."""
        self._db = None if db is None else str(db)
        self.address = settings.db if db is None else str(db)
        self._embed_settings = settings.embed
        self._state_settings = settings.state
        if checkpoint_every is not None:
            self._state_settings = msgspec.structs.replace(
                settings.state, checkpoint_every=checkpoint_every
            )
        self._embedder, self._reranker = embedder, reranker
        self._llm = llm
        self._asks_twice = settings.second_question
        self.log = Log(self.store)

    def __repr__(self) -> str:
        return f"<Memory {self.store.location}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the comparisons that are under way, and close the store."""
        if "_shadow" in self.__dict__:
            self._shadow.close()
        self.store.close()

    # Observations and recall

    def observe(
        self,
        subject: str,
        text_or_record: str | Mapping[str, Any] | None = None,
        *,
        type: str | None = None,  # noqa: A002 - the name users know from records
        at: Moment | None = None,
        speaker: str | None = None,
        role: str | None = None,
        addressee: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        source: str | None = None,
        origin: "Source | None" = None,
        metadata: Mapping[str, Any] | None = None,
        facts: Sequence[Mapping[str, Any]] | None = None,
        rules: Sequence[Mapping[str, Any]] | None = None,
        event: str | None = None,
    ) -> str:
        """Store something learned about a subject. Return the id of its event.

        facts, rules: what the text states, each fact with its evidence (see `em.state.statement`),
            if you have read it. The next checkpoint checks them; its `problems` say what it left
            out, and why. An empty list says that the text states nothing.
        event: the id of a stored text that `facts` and `rules` were read in, in place of the text.
            They take the place of what was read in it before.
        speaker, role, addressee: who says a text, as what (user, assistant, …), and to whom. "I"
        is the subject only where the subject speaks.
        agent, run: which agent it was said to or by, and in which of its runs.
        origin: "web" for what anybody may have written: it counts once a person accepts it.
        metadata: your own fields, each a text, a number, a truth value or a list of these. `recall`
            can be narrowed by all of them.
        """
        from em.state.schema import observation

        details = {
            "type": type,
            "speaker": speaker,
            "role": role,
            "addressee": addressee,
            "session": session,
            "agent": agent,
            "run": run,
            "source": source,
            "origin": origin,
            "metadata": None if metadata is None else dict(metadata),
            "facts": None if facts is None else [dict(one) for one in facts],
            "rules": None if rules is None else [dict(one) for one in rules],
        }
        draft = observation(subject, text_or_record, at, details, event)
        (stored,) = self.log.append_many([draft])
        if self._state_settings.checkpoint_every is not None:
            self.subjects.observed({stored.subject: stored.pos})
        return stored.id

    def observe_many(
        self, items: Iterable[tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]]
    ) -> list[str]:
        """Store many observations in one transaction. Return the ids of their events.

        A generator is taken in portions, so memory stays flat however many there are.
        An item is `(subject, text_or_record)`, or a mapping with `subject`, either `text` or
        `record`, and optionally what `observe` takes by name.
        """
        from em.state.schema import observations

        appended = self.log.append_all(observations(items))
        if self._state_settings.checkpoint_every is not None:
            streams = appended.streams.items()
            self.subjects.observed({who: self.store.head(one)[0] for one, who in streams})
        return appended.ids

    def recall(
        self,
        query: str,
        subject: str | None = None,
        k: int = 10,
        since: Moment | None = None,
        until: Moment | None = None,
        *,
        role: str | None = None,
        speaker: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        neighbours: int = 0,
        in_order: bool = False,
        now: Moment | None = None,
    ) -> "Recalled":
        """Return the passages that fit a question best, one per event, the best first.

        subject: search only this subject's texts; without it, everybody's.
        role, speaker, session, agent, run, metadata: only what was observed with these. A trace's
            messages have the trace as their run.
        neighbours: how many passages before and after each to return with it.
        in_order: sort by the order in which they were said.
        now: the moment that "last week" in a question counts from.

        The result's `notes` say what could not be done, such as reaching an embedder.
        """
        within = Within(
            subject=subject,
            since=None if since is None else moment(since, "since"),
            until=None if until is None else moment(until, "until"),
            role=role,
            speaker=speaker,
            session=session,
            agent=agent,
            run=run,
            metadata=metadata or {},
        )
        found = self._recall.recall(
            query,
            within,
            k,
            neighbours=neighbours,
            in_order=in_order,
            now=None if now is None else moment(now, "now"),
        )
        note_use(lambda: [near.event_id for one in found for near in (one, *one.neighbours)])
        return found

    def embed(self, progress: "EmbedProgress | None" = None, *, subject: str | None = None) -> int:
        """Compute missing vectors of passages and lessons. Return how many are still missing.

        Needed after a large import or with another embedder; a search computes a few hundred by
        itself. `progress(done, total)` is called as it goes. subject: only passages about this
        subject, without lessons.
        """
        left = self._recall.embed_all(progress, subject)
        if subject is None:
            self.heuristics.embed_all(progress)
        return left

    @cached_property
    def _recall(self) -> "Recall":
        from em.recall.search import Recall

        timeout = self._embed_settings.timeout
        return Recall(self.store, self._embed, rerank=self._reranker, timeout=timeout)

    @cached_property
    def _embed(self) -> "Embed | None":
        """The embedder that was given, or that the settings name."""
        if self._embedder is not None or self._embed_settings.use == "none":
            return self._embedder
        from em.recall.embed import make_embedder

        return make_embedder(self._embed_settings)

    # Traces and routines

    def record(
        self,
        goal: str | None = None,
        input_summary: Json | None = None,
        *,
        app: str = "",
        subject: str | None = None,
        shadow: "Which" = False,
    ) -> "Recording":
        """Record an agent: as a context manager, or as a decorator of a sync or async agent.

        ```python
        import em

        with em.Memory("em.db") as memory:
            look = em.tool(lambda item: {"item": item, "price": 3}, name="look", effect="read")

            @memory.record("Tell a price")
            def agent(item: str) -> int:
                return look(item)["price"]

            assert agent("tea") == 3
            (kept,) = memory.traces()
            assert kept.trace.mission.input_summary == {"item": "tea"}
            assert kept.trace.calls[0].result == {"item": "tea", "price": 3}
        ```

        The trace is stored when the agent is done. Calls are recorded of tools made by
        `recorder.tool`, and of those decorated with `em.tool` anywhere, also in thread
        pools and asyncio's tasks. A decorated agent's arguments are the input of its trace.

        shadow: compare what the agent did with what routines would have done: True for those of
        the same `app` whose inputs fit, or their names. Nothing is called for it, and the agent
        does not wait for it. `shadow_report` returns the counts.
        """
        from em.traces.recorder import Recording

        compares = False if self.routines == "off" else shadow or self.routines == "shadow"
        stored = self._shadow.beside(compares, subject) if compares else None
        return Recording(self.log, goal, input_summary, app=app, subject=subject, stored=stored)

    @cached_property
    def _shadow(self) -> "Shadow":
        from em.compiler.shadow import Shadow

        return Shadow(self.store, self._allow)

    def shadow_report(
        self, routine: str | None = None, *, subject: str | None = None
    ) -> "list[ShadowReport]":
        """Return how often each routine agreed with the agents that were recorded beside it.

        routine: only this one, by `name` or `name@version`. subject: only traces about them.
        """
        from em.compiler.shadow import shadow_report

        self._shadow.wait()
        return shadow_report(self.store, routine, about=subject)

    def standing(self, routine: str) -> "Standing":
        """Return whether a version of a routine is in use and used by itself, and why.

        routine: `name@version`; or `name` for the version in use, or for the newest if none is.
        """
        from em.runner.package import current_version, find_routine
        from em.runner.standing import standing_of

        found = find_routine if "@" in routine else current_version
        return standing_of(self.store, found(self.store, routine))

    def accept(
        self,
        routine: str,
        *,
        by: str = "",
        name: str | None = None,
        agree: Callable[[Mapping[str, str]], None] | None = None,
    ) -> "InUse":
        """Accept a routine on a person's word: it is in use, and used by itself.

        routine: `name@version`; or `name` for the version in use, or for the newest if none is; or
        the key of a proposal, which is compiled then, with this `name`.
        by: whose word it is, as the log says. `withdraw` takes it back.
        agree: is shown the files of the package before anything is stored, and raises to stop.
        """
        from em.compiler.proposals import accept

        return accept(self.store, routine, by=by, name=name, agree=agree)

    def propose(
        self,
        group: "str | Sequence[str] | None" = None,
        files: Mapping[str, str] | None = None,
        *,
        name: str = "",
        inputs: Mapping[str, Json] | None = None,
        author: str = "agent",
    ) -> Json:
        """Let somebody else write a routine: em tries it on recordings, and a person accepts it.

        Without arguments, return the groups of traces that recur; with a group (a key, or ids of
        traces), its recordings in a compact form, without what was done in those held back, and
        how a routine is written.

        files: routine.yaml and udf.py: return how often they were right,
        handed over and wrong on all recordings, with the first differences. A routine that did
        nothing else than was done is stored, out of use, under `name`. inputs: by recording, where
        they are others than those that are shown. author: who wrote it, as its code is marked.
        """
        from em.compiler.proposals import groups, shown_group, submit
        from em.compiler.submission import Submission

        if group is None:
            return groups(self.store)
        if not files:
            return shown_group(self.store, group)
        written = Submission(files=files, inputs=inputs or {}, author=author, name=name)
        return submit(self.store, group, written)

    def withdraw(self, routine: str, *, by: str = "") -> "InUse":
        """Take back that a version of a routine was accepted.

        Its proof and its recordings decide again. A version that was put in use by accepting it is
        proposed again.
        """
        from em.runner.standing import withdraw

        return withdraw(self.store, routine, by=by)

    def retire(self, routine: str, *, by: str = "") -> "InUse":
        """Take a version of a routine out of use, `name@version`; its name means the one before.

        by: who does it, as the log says. `restore` undoes it.
        """
        from em.runner.standing import retire

        return retire(self.store, routine, by=by)

    def restore(self, routine: str, *, by: str = "") -> "InUse":
        """Put a retired version of a routine in use again, `name@version`.

        One that never was in use is accepted instead: it raises NeverInUse (`never_in_use`).
        """
        from em.runner.standing import restore

        return restore(self.store, routine, by=by)

    def strike(self, routine: str, *checks: str, reason: str = "", by: str = "") -> "Strike":
        """Store a routine without some of its checks as a new version.

        checks: the id of an assert; `STEP.FIELD` for one thing that a step expects of its result;
        `STEP` for all that it expects. `em routine show` lists them. by: who strikes it, as the
        log says. Compiling the routine again leaves the checks out.
        """
        from em.compiler.checks import strike

        return strike(self.store, routine, checks, reason=reason, by=by)

    def add_trace(self, trace: "Trace | Mapping[str, Any]", *, subject: str | None = None) -> str:
        """Store one attempt at a task. Return the trace's id; its stream is `trace/ID`.

        A mapping is read as the native format, or as a trajectory.
        """
        from em.traces.trace import Trace, read_trace, trace_events

        if not isinstance(trace, Trace):
            trace = read_trace(canonical(trace, "trace")[0], "trace")
        trace_id = new_id()
        self.log.append_many(trace_events(trace, trace_id, subject=subject))
        return trace_id

    def label(self, trace_id: str, outcome: "Outcome", *, reason: str = "") -> Event:
        """Say how a trace ended: `success`, `failure` or `unknown`. The last label counts.

        Labels decide what is compiled. What was recorded stays in the log. Return the event.
        """
        from em.traces.catalogue import get_traces
        from em.traces.trace import label_event

        (kept,) = get_traces(self.store, [trace_id])
        (event,) = self.log.append_many([label_event(kept, outcome, reason)])
        return event

    def import_files(
        self,
        paths: "str | Path | Sequence[str | Path]",
        *,
        format: str | None = None,  # noqa: A002 - the name users know from the command
        subject: str | None = None,
        progress: "Progress | None" = None,
    ) -> "list[FileRead]":
        """Import the traces in transcripts that agents left on disk. Return a report per file.

        A path is a file, a folder or a pattern. The format is detected unless it is named. What
        the log has already is not stored twice; a file that has grown adds only what is new.
        """
        from em.traces.transcripts import import_each

        given = [paths] if isinstance(paths, str | Path) else paths
        how = {} if progress is None else {"progress": progress}
        return [*import_each(self.store, given, format_=format, subject=subject, **how)]

    def traces(
        self, task: str | None = None, outcome: "Outcome | None" = None
    ) -> "Sequence[KeptTrace]":
        """Return the traces in this memory, oldest first; `task` is some words of their goal.

        Each is read when it is taken from the sequence.
        """
        from em.traces.catalogue import find_traces

        return find_traces(self.store, task=task, outcome=outcome)

    def suggest(
        self,
        task: str | None = None,
        *,
        at_least: int = 2,
        limit: int = 10,
        allow_unlabelled: bool = False,
        progress: "EmbedProgress | None" = None,
    ) -> "list[Suggestion]":
        """Return groups of traces with the same effects that are worth compiling, best first.

        Each has what a run saves, and how well a routine learnt from the others did on each of its
        traces. Only successes count; `allow_unlabelled` adds traces that don't say how they ended.
        `progress(done, total)` is called as it goes.
        """
        from em.compiler.suggestions import suggest

        return suggest(
            self.store,
            task,
            at_least=at_least,
            limit=limit,
            allow_unlabelled=allow_unlabelled,
            progress=progress,
        )

    def compile(
        self,
        trace_ids: str | Sequence[str],
        *,
        name: str | None = None,
        declared: "Mapping[str, Effect | None] | None" = None,
        keep_all: bool = False,
        client: "LlmClient | None" = None,
        allow_failed: bool = False,
        allow_unlabelled: bool = True,
        inputs: Sequence[str] = (),
        constants: Sequence[str] = (),
        fresh: bool = False,
        proposed: bool = False,
        force: bool = False,
    ) -> "KeptRoutine":
        """Compile traces of one kind of task into a routine, stored as a new version.

        It is replayed on its recordings, and each is left out once: see the `trials` of the
        routine. One that would do anything else than was recorded is refused unless `force`. With
        a `client` its model may improve it; an improvement that fails the same proof is dropped.

        Traces that say that they failed are left out; if all do, they are refused unless
        `allow_failed`. Those that don't say how they ended are refused if `allow_unlabelled` is
        False.

        inputs: arguments, as `subject` or `send_mail.subject`, that are inputs though nothing
        recorded shows it. constants: inputs or arguments that are as recorded on every run. If the
        name has a version already, what was said about that stays said, and the checks that were
        struck stay struck, unless `fresh`.

        proposed: store the version out of use, so that its name does not mean it yet. `record`
        compares it with agents, and `accept` puts it in use.
        """
        from em.compiler.compile_trace import compile_several
        from em.runner.package import keep_routine
        from em.runner.routine import Review
        from em.traces.catalogue import get_traces

        ids = [trace_ids] if isinstance(trace_ids, str) else trace_ids
        made = compile_several(
            [*{one.id: one for one in get_traces(self.store, ids)}.values()],
            name=name,
            declared=declared,
            keep_all=keep_all,
            client=client,
            allow_failed=allow_failed,
            allow_unlabelled=allow_unlabelled,
            review=Review(inputs=inputs, constants=constants),
            kept_in=self.store,
            fresh=fresh,
            force=force,
        )
        return keep_routine(self.store, made.files, made.from_events, retired=proposed)

    def compile_again(
        self, name: str, *, allow_unlabelled: bool = False, by_itself: bool = False
    ) -> "Growth":
        """Compile a routine again, with the new traces that succeeded and have its effects.

        A new version is stored only if it is as good on the traces that the old one knew; the
        result says what was learnt, or why nothing was stored. `allow_unlabelled` adds traces that
        don't say how they ended. by_itself: no person wants it now, so the version is in use only
        if it may be used by itself; else it is proposed (`waits`) until a person accepts it.
        """
        from em.compiler.growth import compile_again

        return compile_again(
            self.store, name, allow_unlabelled=allow_unlabelled, by_itself=by_itself
        )

    def run(
        self,
        routine: "str | Path | Routine",
        input_data: Json | None = None,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        *,
        run_id: str | None = None,
        **options: "Unpack[RunOptions]",
    ) -> "RunResult":
        """Run a routine; every step is journalled in this memory.

        routine: a folder, or a routine of this memory: its name, `name@version`, or the object.
        input_data: the inputs by name, or `{"request": "…"}` in words that were recorded; a
        `client` is a model that reads other words (`em.runner.request`).
        Tools that the routine declares may use what `allow` names, else what the settings allow.
        """
        from em.runner.engine import run_routine
        from em.runner.package import opened

        with opened(self.store, routine) as package:
            return run_routine(
                package,
                input_data,
                tools,
                auto_fix_fn,
                store=self.store,
                run_id=run_id,
                **self._run_options(options),
            )

    def prepare(
        self,
        routine: "str | Path | Routine",
        input_data: Json | None = None,
        tools: "Tools" = None,
        **options: "Unpack[RunOptions]",
    ) -> "Prepared":
        """Run a routine up to its first write, and return what it would write.

        The reads and checks are made; nothing is journalled, and nobody is asked. `planned` has
        each call with an effect, with its values and where they come from, and `text` all of it in
        words. `token` commits just that; it is empty if the run would ask, hand over or fail.
        """
        from em.runner.package import opened
        from em.runner.preparation import prepare_routine

        with opened(self.store, routine) as package:
            return prepare_routine(
                package, input_data, tools, store=self.store, **self._run_options(options)
            )

    def commit(
        self,
        token: str,
        tools: "Tools" = None,
        *,
        run_id: str | None = None,
        **options: "Unpack[RunOptions]",
    ) -> "RunResult":
        """Make the writes that `prepare` showed, if everything that it showed is still the same.

        The reads and checks are made again; if anything differs, the run hands over and writes
        nothing. A token serves once, for 15 minutes, and for the `subject` that it was made for;
        otherwise this raises NotPrepared (`not_prepared`).
        """
        from em.runner.preparation import commit_prepared

        return commit_prepared(
            self.store, token, tools, run_id=run_id, **self._run_options(options)
        )

    def _run_options(self, options: "RunOptions") -> "RunOptions":
        """Return the options of a run, with those that this memory has."""
        return {
            "allow": self._allow,
            "second_question": self._asks_twice,
            "routines": self.routines,
            **options,
        }

    def match(
        self,
        request: str,
        tools: "Tools" = None,
        client: "LlmClient | None" = None,
    ) -> "Match | None":
        """Return the routine in use that a request asks for, with its inputs; None if none does.

        The templates of all routines are tried; then `client` is asked once. tools: only routines
        that need no other tools.
        """
        from em.runner.tools import ToolRegistry

        if not isinstance(request, str):
            raise UsageError(
                f"a request must be a text, got a {type(request).__name__}",
                place="request",
                fix="give what the person wrote, as one text",
            )
        names = None if tools is None else ToolRegistry(tools).keys()
        return self.matcher.match(request, names, client)

    @cached_property
    def matcher(self) -> "Matcher":
        """The routines in use, to be found by a request."""
        from em.compiler.match import Matcher

        is_on, asks_twice = self.routines == "on", self._asks_twice
        return Matcher(self.store, is_on=is_on, asks_twice=asks_twice)

    def routine(self, name: str, tools: "Tools" = None) -> "Callable[..., Any]":
        """Return a routine in use as a plain function, whose parameters are its inputs.

        It returns the output, and raises RunNotDone (`run_not_done`) if the run does not end well.
        No run waits for an answer: one that would ask hands over, or fails after a write.
        """
        from em.runner.agent_reply import as_function
        from em.runner.package import find_routine, routine_of

        kept = routine_of(find_routine(self.store, name))
        return as_function(kept, lambda inputs: self.run(kept, inputs, tools, asks=False))

    @overload
    def tools(
        self, format: None = None, tools: "Tools" = None, *, names: Sequence[str] | None = None
    ) -> "list[Callable[..., Any]]": ...
    @overload
    def tools(
        self,
        format: 'Literal["openai", "anthropic"]',
        tools: "Tools" = None,
        *,
        names: Sequence[str] | None = None,
    ) -> "Toolset": ...
    @overload
    def tools(
        self,
        format: 'Literal["langchain", "pydantic-ai"]',
        tools: "Tools" = None,
        *,
        names: Sequence[str] | None = None,
    ) -> list[Any]: ...
    def tools(
        self,
        format: "Format | None" = None,  # noqa: A002 - the name users know from import_files
        tools: "Tools" = None,
        *,
        names: Sequence[str] | None = None,
    ) -> Any:
        """Return the routines in use as tools of an agent; none where routines are switched off.

        format: `openai` or `anthropic` for a `Toolset` with `schemas` and `call`; `langchain` or
        `pydantic-ai` for tools of these libraries; None for plain functions, as of `routine`.
        tools: the tools that the routines call. names: only these routines.
        """
        from em.compiler.toolset import Callables, tools_of
        from em.runner.agent_reply import as_function
        from em.runner.package import find_routine, routine_of

        if names is None:
            found = self.matcher.in_use()
        else:
            wanted = names if self.routines == "on" else ()
            found = [routine_of(find_routine(self.store, name)) for name in wanted]

        def run(routine: "KeptRoutine", inputs: Json, *, asks: "Asks" = "steps") -> "RunResult":
            return self.run(routine, inputs, tools, asks=asks)

        if format is None:
            return [as_function(one, partial(run, one, asks=False)) for one in found]
        return tools_of(Callables(found, run), format)

    def resume(
        self,
        run_id: str,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        *,
        input_data: Json | None = None,
        retry: bool = False,
        by: str = "",
        **options: "Unpack[RunOptions]",
    ) -> "RunResult":
        """Resume a run that was interrupted or needs input; no call with an effect is repeated.

        Until the first one, reads are made again.
        retry: take up a run that failed or was cancelled at the step where it stopped; raises
        RoutineError where a call might be made twice. by: who wants it, for the log.
        """
        from em.runner.engine import resume_run

        return resume_run(
            self.store,
            run_id,
            tools,
            auto_fix_fn,
            input_data=input_data,
            retry=retry,
            by=by,
            **self._run_options(options),
        )

    def cancel(self, run_id: str, *, by: str = "") -> None:
        """Stop a run of a routine or a workflow before its next step, wherever it runs.

        What was done stays done. by: who wants it, for the log. Raises UsageError if it is over.
        """
        from em.runner.history import cancel_run

        cancel_run(self.store, run_id, by=by)

    # Heuristics and the behaviour cache

    @cached_property
    def heuristics(self) -> "Heuristics":
        """The lessons in this memory: list, report outcomes, retire, merge."""
        from em.heuristics.lessons import Heuristics

        return Heuristics(self.store, self._settings, embed=self._embed)

    def reflect(
        self,
        trace: "Trace | str | Sequence[str]",
        client: "LlmClient | None" = None,
        *,
        subject: str | None = None,
    ) -> "list[Heuristic]":
        """Learn lessons from a trace, or from stored traces by their ids; store and return them.

        A trace given as an object is stored too. Without a `client`, lessons are mined from what
        happened; with one, its model also puts them in words (see `em.llm`).
        """
        return self.heuristics.reflect(trace, client, subject=subject)

    def lesson(
        self,
        when: str,
        do: str,
        because: str = "",
        *,
        evidence: Sequence[str] = (),
        subject: str | None = None,
    ) -> "Heuristic":
        """Store a lesson in words and return it. evidence: ids of the events that show it.

        If one of them is a call that failed, it is told again when that happens.
        """
        return self.heuristics.lesson(when, do, because, evidence=evidence, subject=subject)

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
        """Return a prompt section with the best lessons for a task, empty if none fits.

        tokens: the limit of its length. tools: the names of the tools that the agent has.
        client: a model that ranks the lessons.
        """
        found = self.heuristics.brief(task, k, tokens, tools=tools, subject=subject, client=client)
        note_use(lambda: self._learned_in(found))
        return found

    def _learned_in(self, briefing: "Briefing") -> list[str]:
        from em.heuristics.heuristic import lesson_sources

        return lesson_sources(self.store, briefing.ids)

    def feedback(
        self,
        heuristic_ids: str | Sequence[str],
        outcome: "Outcome",
        *,
        task: str = "",
        subject: str | None = None,
    ) -> "list[Heuristic]":
        """Report the outcome of a run that got these lessons; it changes their rank.

        subject: who the task is about.
        """
        return self.heuristics.feedback(heuristic_ids, outcome, task=task, subject=subject)

    def engine(self, name: str, **options: Any) -> "Engine":
        """Return an engine whose behaviours are stored here; `options` are those of `em.Engine`.

        On a miss the agent gets the lessons that fit (`progress.heuristics`). The engine is called
        for a sync agent and awaited for an async one, so AsyncMemory returns the same.
        """
        from em.behaviour.engine import Engine

        def lessons(arguments: Mapping[str, Any]) -> Sequence[Any]:
            task = " ".join([name, *map(str, arguments.values())])
            return self.brief(task).heuristics

        return Engine(self.store, name=name, **{"briefing": lessons, **options})

    @overload
    def agent(
        self, agent: "Callable[..., Any]", tools: "Tools" = None, **options: Any
    ) -> "RoutedAgent": ...
    @overload
    def agent(
        self, agent: None = None, tools: "Tools" = None, **options: Any
    ) -> "Callable[[Callable[..., Any]], RoutedAgent]": ...
    def agent(
        self, agent: "Callable[..., Any] | None" = None, tools: "Tools" = None, **options: Any
    ) -> Any:
        """Return an agent whose tasks are done by routines where one fits; also a decorator.

        The agent takes the request as its first argument. Its tools are decorated with `em.tool`,
        so that what it does with them is recorded.

        client: a model that reads requests that no template fits. subject: who the tasks are
        about, or a function of the agent's arguments. success: a function of the agent's answer
        that says whether it was right. learn: compile again after three new traces of a kind.
        Proposed routines are compared with what the agent did (`shadow_report`).
        """
        from em.behaviour.routed_agent import Desk, RoutedAgent

        if agent is None:
            return lambda function: self.agent(function, tools, **options)
        shadow = None if self.routines == "off" else self._shadow
        desk = Desk(self.store, self.matcher, self._run_options({}), shadow)
        return RoutedAgent(desk, agent, tools, **options)

    # State

    @cached_property
    def subjects(self) -> "Subjects":
        """The states of this memory's subjects."""
        from em.state.subjects import Subjects

        def recall(text: str, subject: str, until: datetime | None) -> "Recalled":
            return self.recall(text, subject=subject, k=10, until=until)

        return Subjects(self.store, self._state_settings, recall=recall, client=self._llm)

    def checkpoint(
        self,
        subject: str,
        *,
        llm: "LlmClient | None" = None,
        accept: bool = False,
        again: bool = False,
        rebuild: bool = False,
    ) -> "State":
        """Compile what is new about a subject. Return its state, with the checkpoint's `report`.

        accept: store the state even if it breaks stored questions or rules. again: let the model
        read again what it could not structure before. rebuild: compile everything from the log.
        """
        return self.subjects.checkpoint_state(
            subject, client=llm, accept=accept, again=again, rebuild=rebuild
        )

    def checkpoint_many(
        self,
        /,
        subjects: Iterable[str] | None = None,
        *,
        processes: int | None = None,
        **how: Any,
    ) -> tuple[int, dict[str, str]]:
        """Checkpoint many subjects, or all, on all cores. Return the count and the failures."""
        from em.state.subjects import checkpoint_many, subjects_of

        names = subjects_of(self.store) if subjects is None else subjects
        return checkpoint_many(self.subjects, names, processes=processes, db=self._db, **how)

    def state(
        self, subject: str, as_of: Moment | None = None, *, known_at: Moment | None = None
    ) -> "State":
        """Return a subject's state as last compiled, as it was at a moment, or was known then."""
        note_use(lambda: [anchor(self.store, subject)])
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
        """Answer a question by code over the state, else from what was said; or run `code`."""
        note_use(lambda: [anchor(self.store, subject)])
        return self.subjects.ask(subject, question, code=code, client=llm, as_of=as_of)

    def check(self, subject: str, action: str, /, **details: Any) -> "list[Alert]":
        """Return the alerts of the rules that apply to an action, the most severe first."""
        return self.state(subject).check(action, **details)

    def alerts(self, subject: str, now: Moment | None = None) -> "list[Alert]":
        """Return the alerts that are due about a subject: deadlines and active windows."""
        return self.state(subject).alerts(now)

    def conflicts(self, subject: str) -> "list[Conflict]":
        """Return the contradictions about a subject, and how each was resolved."""
        return self.state(subject).conflicts()

    def resolve(self, subject: str, field: str, /, **decision: Any) -> str:
        """Decide a field by `value`, `event` or `policy` (with `order`). Return the event's id."""
        return self.subjects.resolve(subject, field, **decision)

    def correct(self, subject: str, record: Any, /, **changes: Any) -> str:
        """Correct fields of a record (`state.trips[0]`, or its event's id). Return the event's id.

        It is in force with the next checkpoint. `known_at` still shows what was known before.
        """
        return self.subjects.correct(subject, record, changes)

    def retract(self, subject: str, what: Any, key: Sequence[Any] = ()) -> str:
        """Take back a record, or a field's value (`profile.city`). Return the event's id."""
        return self.subjects.retract(subject, what, key)

    def accept_observation(self, subject: str, event: str) -> str:
        """Let an observation from the web count. Return the decision's event id."""
        return self.subjects.accept(subject, event)

    def accept_rule(self, subject: str, rule: str) -> str:
        """Accept a rule that a model derived. Return the decision's event id."""
        return self.subjects.judge(subject, rule, "accepted")

    def reject_rule(self, subject: str, rule: str) -> str:
        """Reject a rule that a model derived: it never fires. Return the decision's event id."""
        return self.subjects.judge(subject, rule, "rejected")

    def undo(self, subject: str, decision: str) -> str:
        """Take back a decision or a correction by its event. Return the event's id."""
        return self.subjects.undo(subject, decision)

    def declare(self, subject: str, type: str, key: str | Sequence[str]) -> str:  # noqa: A002 - the name users know from records
        """Declare which fields identify records of a type. Return the event's id."""
        return self.subjects.declare(subject, type, [key] if isinstance(key, str) else key)

    # Workflows

    def workflows(
        self,
        file: str | Path | None = None,
        tools: "Tools" = None,
        *,
        client: "LlmClient | None" = None,
        allow: AllowSettings | None = None,
    ) -> "Workflows":
        """Return the workflows of a file (by default em.yaml), to be run in this memory.

        client: a model that answers for every provider that a step names.
        """
        from em.workflows.runs import Workflows

        return Workflows(
            self.store,
            file=file,
            tools=tools,
            client=client,
            settings=self._settings,
            allow=self._allow if allow is None else allow,
            sources=self._sources(),
        )

    def workflow(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        prompt: str | None = None,
        file: str | Path | None = None,
        tools: "Tools" = None,
        *,
        client: "LlmClient | None" = None,
        run_id: str | None = None,
        **options: "Unpack[WorkflowOptions]",
    ) -> "WorkflowResult":
        """Run a workflow: each step gets the context that it names.

        run_id: resume this run if it exists, else start it under this id.
        """
        workflows = self.workflows(file, tools, client=client)
        return workflows.start(name, params, prompt=prompt, run_id=run_id, **options)

    def _sources(self) -> "Sources":
        """Where workflow steps get what is not of their run: recall, lessons, state."""
        from em.workflows.builtins import Sourced, Sources

        def recall(query: str, k: int, subject: str | None = None, **only: Any) -> Sourced:
            found = self.recall(query, subject, k, **only)
            return Sourced([one.text for one in found], [one.event_id for one in found])

        def heuristics(task: str, k: int) -> Sourced:
            briefing = self.brief(task, k)
            return Sourced(briefing.text, self._learned_in(briefing))

        def state(subject: str, path: str) -> "Sourced":
            return Sourced(*self.subjects.look_up(subject, path))

        return Sources(recall=recall, heuristics=heuristics, state=state)

    # Erasure

    def forget(
        self,
        events: str | Event | Sequence[str | Event] = (),
        *,
        subject: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Erasure:
        """Erase the bodies of events, or all of a subject's, with everything made of them.

        The result's `gone` lists all of it by kind. dry_run: change nothing, only return that.
        """
        chosen = [events] if isinstance(events, str | Event) else events
        if not chosen and subject is None:
            raise UsageError("nothing to forget", fix="name events or a subject")
        ids = [event.id if isinstance(event, Event) else event for event in chosen]
        if subject is not None:
            ids += self._ids_about(subject)
        subjects = () if subject is None else (subject,)
        if dry_run:
            return self.store.erase(ids, subjects=subjects, dry_run=True)
        # Drop recall's knowledge of which passages have vectors.
        self.__dict__.pop("_recall", None)
        touched = self._subjects_of(ids)
        erasure = self.store.erase(ids, subjects=subjects, reason=reason)
        from em.heuristics.heuristic import rebuild_heuristics

        rebuild_heuristics(self.store, erasure.events)
        states = erasure.gone.get("artefacts", {}).get("state", ())
        touched |= {name.rpartition("@")[0] for name in states}
        for other in sorted(touched - {subject}):
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
            raise NotFound(f"the log has no events about {subject!r}", place="subject")
        return [event_id for event_id, kind in found if kind != "erased"]
