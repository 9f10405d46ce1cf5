"""Shadow mode: what a routine would have done beside an agent, compared with what the agent did.

A prediction is made when the agent is done, from its recording alone. The routine runs on the
machine. A read is answered with what the agent got for the same call. A call with an effect is not
made: it is looked up among those of the agent. A read that the agent never made ends the prediction
as a hand-over. So the shadow calls no tool at all, and can't disturb the agent or its tools.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any, Literal

import msgspec

from em.compiler import replay_world
from em.compiler.calls import TracedCall, calls_of, infer_effect
from em.compiler.example import Call, request_of
from em.compiler.replay_world import Outcome, unordered_key
from em.errors import Conflict, EmError, RoutineError, UsageError
from em.log.event import Draft, Event, EventQuery, shadow_stream
from em.log.kinds import event_body
from em.runner.journal import MOST_ARGS
from em.runner.machine import check_input
from em.runner.package import (
    ROUTINE,
    UDF,
    Udfs,
    find_routine,
    kept_routines,
    load_program,
    texts_of,
    unpacked,
)
from em.runner.routine import Program
from em.runner.secrets import Secrets
from em.runner.standing import was_in_use
from em.runner.template import fill
from em.runner.tools import Function
from em.settings import AllowSettings
from em.store.protocol import Artefact, Commit, Store
from em.traces.recorder import error_text
from em.traces.trace import ToolCall, Trace
from em.values.call import Effect
from em.values.canonical import Json, canonical, identical, short
from em.values.json_schema import Declared

Which = bool | str | Sequence[str]
"""The routines to compare with: all that fit, or those with these names."""

WITH_CALLS = ("differed", "handed_over")
"""The verdicts whose events have the calls."""

LARGEST = MOST_ARGS // 4
"""Bytes of the arguments of one call that an event has."""

_encode = msgspec.json.Encoder(enc_hook=repr).encode
_log = logging.getLogger("em.shadow")


Verdict = Literal["agreed", "differed", "handed_over", "not_compared"]

_VERDICTS: dict[replay_world.Verdict, Verdict] = {
    "right": "agreed",
    "handed over": "handed_over",
    "wrong": "differed",
}


class EffectMade(msgspec.Struct, frozen=True):
    """A call with an effect."""

    tool: str
    args: Json = {}


class _BesideAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What a routine would have done, and what the agent did.

    The calls are there where the two differ, and where the routine would have handed over.
    about: the subject of the trace.
    """

    routine: str = ""
    verdict: Verdict
    reason: str = ""
    would_do: Sequence[EffectMade] = ()
    did: Sequence[EffectMade] = ()
    trace: str = ""
    about: str | None = None


@event_body("shadow_compared")
class Compared(_BesideAgent, frozen=True, kw_only=True, omit_defaults=True):
    """What a routine would have done was compared with what the agent did.

    The event has no subject: what a routine would have done may quote what it was compiled from.
    """

    from_events: Sequence[str] = ()


# --- one prediction -------------------------------------------------------------------------------


class _World(replay_world.World):
    """The world as one agent saw it, with its effects in any order. did: the agent's effects."""

    def __init__(self, calls: Sequence[TracedCall], inputs: Json | None = None) -> None:
        made = [Call(one.name, one.args, one.result, one.error, one.effect) for one in calls]
        super().__init__(inputs or {}, made, in_any_order=True, key=unordered_key)
        self.did = [one for one in calls if one.effect == "write" and not one.failed]

    @property
    def would_do(self) -> list[EffectMade]:
        """The effects of the run, with the one that ended it."""
        return [EffectMade(one.tool, one.args) for one in self.made if one.effect == "write"]

    def outcome(self, stopped: str, *, goes_on: bool = False) -> Outcome:
        """Return how the run compares. A read that is missing stops it like anything else."""
        if self._end is not None and self._end.verdict == "handed over":
            stopped, self._end = self._end.reason, None
        return super().outcome(stopped, goes_on=goes_on)

    def _unknown(self, name: str, args: Json) -> str:
        return f"the agent never called {name}({short(args)})"

    def _difference(self, name: str, args: Json) -> str:
        same = [call for call in self._left if call.tool == name]
        if not same:
            again = "again " if any(one.name == name for one in self.did) else ""
            return f"it would have called {name} {again}with {short(args)}; the agent did not"
        theirs = same[0].args
        names = [key for key in {**theirs, **args} if theirs.get(key) != args.get(key)]
        return f"it would have called {name} with another {' and '.join(names)}"


def predict(
    program: Program,
    trace: Trace,
    given: Json,
    *,
    udfs: Mapping[str, Function] | None = None,
    secrets: Secrets | None = None,
) -> Compared:
    """Return what a routine would have done with this input, compared with what an agent did."""
    if trace.incomplete or trace.outcome == "failure":
        why = trace.incomplete or "the agent's run ended as failure"
        return Compared(verdict="not_compared", reason=why)
    effects = _effects_of(program, trace)
    calls = calls_of(trace, effects)[0]
    world = _World(calls, given)
    did = [EffectMade(one.name, one.args) for one in world.did]
    unknown = next((one for one in calls if one.effect_unknown), None)
    if unknown is not None:
        why = f"nobody knows whether {unknown.name} had an effect: it failed with {unknown.error}"
        return Compared(verdict="not_compared", reason=why, did=did)
    writes = {name for name, effect in effects.items() if effect == "write"}
    found = world.run(program, udfs, writes=writes, secrets=secrets)
    verdict, reason = _VERDICTS[found.verdict], found.reason
    acts = bool(did) or any(step.is_write for step in program.steps)
    if verdict == "agreed" and not acts:
        verdict, reason = compare_answers(world.output, trace.final_output)
    return Compared(verdict=verdict, reason=reason, would_do=world.would_do, did=did)


def _effects_of(program: Program, trace: Trace) -> dict[str, Effect]:
    """Return the effect of each tool: as the routine or the agent's program declares it."""
    found: dict[str, Effect] = {}
    recorded = {one.tool: one.effect for one in trace.calls if isinstance(one, ToolCall)}
    for step in program.steps:
        if step.kind in ("tool", "udf"):
            known = recorded.get(step.target) if step.is_in_doubt else None
            effect: Effect = known or ("write" if step.is_write else "read")
            # A tool that one step reads with and another writes with counts as a write.
            found[step.target] = "write" if found.get(step.target) == "write" else effect
    others = {name: effect or infer_effect(name) for name, effect in recorded.items()}
    return {**others, **found}


def compare_answers(would_return: Any, returned: Any) -> tuple[Verdict, str]:
    """Compare what was returned where neither had an effect."""
    if returned is msgspec.UNSET or returned is None:
        return "not_compared", "neither had an effect, and the agent returned nothing"
    same = identical(would_return, returned)
    return ("agreed", "") if same else ("differed", "it would have returned another answer")


# --- which routines -------------------------------------------------------------------------------


def on_trial(store: Store) -> Iterator[Artefact]:
    """Yield the versions that are compared: of each name the newest in use, and the newest.

    The newest may be retired: then it waits to be accepted.
    """
    newest: dict[str, Artefact] = {}
    in_use: dict[str, Artefact] = {}
    for artefact in kept_routines(store):
        if artefact.body is not None:
            newest[artefact.name] = artefact
            if artefact.retired_at is None:
                in_use[artefact.name] = artefact
    for name, artefact in newest.items():
        if in_use.get(name, artefact) is not artefact:
            yield in_use[name]
        yield artefact


def given_to(program: Program, trace: Trace) -> Json:
    """Return what a routine would have been given: the agent's arguments that it declares.

    If they are not enough, the inputs that a request gives which fits one of its templates.
    """
    schema = program.routine.input_schema or {}
    summary = program.by_names(trace.mission.input_summary)
    undeclared = set(Declared(schema).without(summary))
    given = {name: value for name, value in summary.items() if name not in undeclared}
    if fits(program, given) or not program.routine.requests:
        return given
    said = [*(one for one in summary.values() if isinstance(one, str)), request_of(trace)]
    filled = (fill(program.routine.requests, text, schema) for text in said)
    return {**given, **next(filter(None, filled), {})}


def fits(program: Program, given: Json) -> bool:
    """Return whether a routine could be given this: all it requires, and something it declares."""
    schema = program.routine.input_schema
    if schema is None:
        return True
    if Declared(schema).names and not given:
        return False
    try:
        check_input(schema, program.by_names(given))
    except RoutineError:
        return False
    return True


# --- beside the agent -----------------------------------------------------------------------------


class Shadow:
    """Compares recordings with the routines of a store, in a thread of its own."""

    def __init__(self, store: Store, allow: AllowSettings | None = None) -> None:
        self._store, self._allow = store, allow
        self._apps: dict[str, set[str]] = {}
        self._read_to: int | None = None
        self._trials: list[Artefact] = []
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def beside(
        self, which: Which, about: str | None, *, only_proposed: bool = False
    ) -> Callable[[Trace, str, Sequence[Event]], None]:
        """Return what a recording calls with its trace once that is stored.

        only_proposed: of all that fit, leave out those that are, or were, in use.
        """
        listed = isinstance(which, list | tuple) and all(isinstance(one, str) for one in which)
        if not isinstance(which, bool | str) and not listed:
            raise UsageError(
                f"expected True, the name of a routine or a list of names, got {which!r}",
                place="shadow",
            )

        def compare(trace: Trace, trace_id: str, events: Sequence[Event]) -> None:
            sources = [event.id for event in events]
            work = partial(self._compare, which, trace, trace_id, about, sources, only_proposed)
            try:
                self._later(work)
            except RuntimeError as error:  # the interpreter shuts down
                _log.warning("trace %s was not compared: %s", trace_id, error)

        return compare

    def _later(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                # The threads of a forked process are gone.
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="em-shadow")
                self._pid = os.getpid()
            self._pool.submit(work)

    def wait(self) -> None:
        """Wait until everything that was recorded so far is compared."""
        with self._lock:
            pool = self._pool if self._pid == os.getpid() else None
        if pool is not None:
            # Its one thread makes the comparisons in their order.
            pool.submit(lambda: None).result()

    def close(self) -> None:
        """Finish what is under way, and end the thread."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.shutdown()

    def _compare(
        self,
        which: Which,
        trace: Trace,
        trace_id: str,
        about: str | None,
        sources: Sequence[str],
        only_proposed: bool,
    ) -> None:
        try:
            for ref, made, artefact in self._compared(which, trace, sources, only_proposed):
                # What the routine would have done may quote what it was compiled from.
                quoted = artefact is not None and made.verdict in WITH_CALLS
                made_of = [*sources, *(artefact.from_events if artefact and quoted else ())]
                whole = msgspec.structs.replace(
                    made,
                    routine=ref,
                    trace=trace_id,
                    about=about,
                    from_events=[*dict.fromkeys(made_of)],
                )
                self._store.commit(Commit(events=[draft_of(whole)]))
        except Conflict as error:
            # The trace was forgotten in the meantime, and the comparison with it.
            _log.info("trace %s was not compared: %s", trace_id, error)
        except Exception:  # noqa: BLE001 - nobody is there to raise it to: the agent is done
            _log.exception("trace %s was not compared", trace_id)

    def _compared(
        self, which: Which, trace: Trace, sources: Sequence[str], only_proposed: bool
    ) -> Iterator[tuple[str, Compared, Artefact | None]]:
        if which is True:
            for artefact in self._on_trial():
                is_left_out = only_proposed and (
                    artefact.retired_at is None or was_in_use(self._store, artefact)
                )
                # What it learnt from this trace is no news.
                is_own = not {*sources}.isdisjoint(artefact.from_events)
                if not is_left_out and not is_own and self._is_of_app(artefact, trace):
                    made = self._predicted(artefact, trace, if_fits=True)
                    if made is not None:
                        yield artefact.ref, made, artefact
            return
        for name in dict.fromkeys([which] if isinstance(which, str) else list(which or ())):
            try:
                artefact = version_of(self._store, name)
            except EmError as error:
                yield name, Compared(verdict="handed_over", reason=str(error)), None
                continue
            made = self._predicted(artefact, trace)
            assert made is not None, "a routine that is named is compared"
            yield artefact.ref, made, artefact

    def _on_trial(self) -> list[Artefact]:
        """Return the versions that are compared, read again where routines have changed."""
        end, is_changed = self._store.changed_artefacts(self._read_to)
        if is_changed:
            self._trials = [*on_trial(self._store)]
        self._read_to = end
        return self._trials

    def _is_of_app(self, artefact: Artefact, trace: Trace) -> bool:
        """Return whether a routine may have been compiled from traces of the same program."""
        if artefact.id not in self._apps:
            ids = artefact.from_events[:500]
            query = EventQuery(ids=ids, kinds=["trace_started"])
            started = self._store.read(query) if ids else ()
            found = {_app_name((event.body or {}).get("app")) for event in started}
            self._apps[artefact.id] = found - {""}
        apps, app = self._apps[artefact.id], _app_name(trace.app)
        return not apps or not app or app in apps

    def _predicted(
        self, artefact: Artefact, trace: Trace, *, if_fits: bool = False
    ) -> Compared | None:
        """Predict. An error is a hand-over: a run would have ended there too.

        if_fits: None if the trace has other inputs.
        """
        try:
            files = texts_of(artefact)
            program = load_program(files[ROUTINE].encode(), artefact.ref)
            given = given_to(program, trace)
            if if_fits and not fits(program, given):
                return None
            secrets = Secrets(program.routine.secrets, None, self._allow)
            with (
                unpacked(self._store, artefact.ref) if UDF in files else nullcontext() as package,
                Udfs() if package is None else package.udfs() as udfs,
            ):
                made = predict(program, trace, given, udfs=udfs, secrets=secrets)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; reported
            reason = str(error) if isinstance(error, EmError) else error_text(error)
            return Compared(verdict="handed_over", reason=reason)

        def masked(calls: Sequence[EffectMade]) -> list[EffectMade]:
            return [EffectMade(one.tool, secrets.masked(one.args)) for one in calls]

        reason, would_do, did = secrets.masked(made.reason), masked(made.would_do), masked(made.did)
        return msgspec.structs.replace(made, reason=reason, would_do=would_do, did=did)


def draft_of(made: Compared) -> Draft:
    """Return the event of a comparison; each routine has a stream of its own."""
    body: Json = msgspec.structs.asdict(made)
    for name in ("would_do", "did"):
        calls = body[name] if made.verdict in WITH_CALLS else ()
        # Arguments that are too large for one event are left out.
        body[name] = [
            {"tool": one.tool, "args": one.args if len(_encode(one.args)) <= LARGEST else {}}
            for one in calls
        ]
    body = {name: value for name, value in body.items() if value not in ("", None, [], ())}
    try:
        canonical(body)
    except EmError as error:
        # An agent may use values that can't be stored. Its own trace has the same problem.
        body = {"routine": made.routine, "verdict": "not_compared", "reason": str(error)}
    return Draft(stream=stream_of(made.routine), kind="shadow_compared", body=body)


def stream_of(ref: str) -> str:
    """Return the stream of the comparisons of a routine; all of its versions have one."""
    return shadow_stream(ref.partition("@")[0])


def _app_name(app: Any) -> str:
    """Return the name of a recorded program."""
    return str((app.get("name") if isinstance(app, dict) else app) or "")


def version_of(store: Store, ref: str) -> Artefact:
    """Find the routine `name@version`, or the newest version of `name`, in use or retired."""
    known = [one for one in kept_routines(store, ref) if one.body is not None and "@" not in ref]
    return known[-1] if known else find_routine(store, ref)


# --- the report -----------------------------------------------------------------------------------


class Comparison(_BesideAgent, frozen=True, kw_only=True):
    """One comparison as a report shows it: when it was made, and its event."""

    at: datetime
    event_id: str


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """How often one version of a routine agreed with the agent.

    in_a_row: the agreements since the last difference; a hand-over does not end the row.
    """

    routine: str
    agreed: int = 0
    differed: int = 0
    handed_over: int = 0
    not_compared: int = 0
    in_a_row: int = 0
    last_difference: Comparison | None = None
    comparisons: Sequence[Comparison] = ()


def comparisons(
    store: Store,
    ref: str | None = None,
    *,
    about: str | None = None,
    newest: int | None = None,
) -> list[Comparison]:
    """Return the comparisons of all routines, of one (`name`), or of one version, oldest first.

    about: only those of traces about this subject. newest: look only at so many, the newest.
    Of two about one trace, the last counts.
    """
    stream = None if ref is None else stream_of(ref)
    found: dict[tuple[str, str], Comparison] = {}
    query = EventQuery(
        kinds=["shadow_compared"], stream=stream, limit=newest, newest=newest is not None
    )
    for event in store.read(query):
        if event.body is None:
            continue
        body = {name: one for name, one in event.body.items() if name != "from_events"}
        made = msgspec.convert({**body, "at": event.at, "event_id": event.id}, Comparison)
        is_other = ref is not None and ref not in (made.routine, made.routine.partition("@")[0])
        if not is_other and about in (None, made.about):
            key = (made.routine, made.trace or event.id)
            found.pop(key, None)
            found[key] = made
    return list(found.values())


def shadow_report(
    store: Store,
    ref: str | None = None,
    *,
    about: str | None = None,
    newest: int | None = None,
) -> list[ShadowReport]:
    """Count the comparisons of each version of each routine, or of one; as `comparisons` does."""
    by_routine: dict[str, list[Comparison]] = {}
    for one in comparisons(store, ref, about=about, newest=newest):
        by_routine.setdefault(one.routine, []).append(one)
    reports = []
    for routine, made in sorted(by_routine.items()):
        counts = Counter(one.verdict for one in made)
        differing = [number for number, one in enumerate(made) if one.verdict == "differed"]
        since = differing[-1] + 1 if differing else 0
        reports.append(
            ShadowReport(
                routine=routine,
                agreed=counts["agreed"],
                differed=counts["differed"],
                handed_over=counts["handed_over"],
                not_compared=counts["not_compared"],
                in_a_row=sum(one.verdict == "agreed" for one in made[since:]),
                last_difference=made[differing[-1]] if differing else None,
                comparisons=made,
            )
        )
    return reports
