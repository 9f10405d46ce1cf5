"""Groups of traces that recur: what `em routine suggest` finds, and one group as a draft to keep.

To find them takes seconds to minutes over a long log. A process of its own does it, with a lower
priority, so that no page and no request waits for it: a thread would share the interpreter's lock.
"""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import msgspec
from litestar import Response, get

from em.compiler.compile_trace import Compiled, compile_several
from em.compiler.suggestions import Suggestion
from em.errors import EmError, InputError, NotFound, StoreBusy
from em.log.event import EventQuery, trace_stream
from em.log.summary import SummaryQuery
from em.memory import Memory
from em.runner.card import KIND
from em.serve.auth import PAGES
from em.serve.guard import log_line
from em.serve.pages.drawing import graph_of
from em.serve.pages.review import review_of
from em.serve.pages.view import address, page, parameter
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Store
from em.traces.catalogue import TraceSummary, get_traces, summaries_of
from em.values.canonical import Json

CHANGED = ("trace_started", "trace_ended", "trace_labelled", "erased")
"""Kinds of events after which other traces may belong together."""
LEAST_REST, REST = 30.0, 20
"""Seconds to wait after a search: LEAST_REST, or REST times what it took, if that is longer."""
LONGEST_SEARCH = 1_800.0
PRIORITY = 5
"""How much lower the priority of a search is than that of the service."""
MOST_TRACES = 50
"""Traces that one page compiles together."""
AT_ONCE = 2
KEPT_DRAFTS, KEPT_SECONDS = 4, 60.0
PATIENCE = 0.2
"""Seconds that a page waits for a draft before it is shown without."""
LONGEST_WAY = 4
FEWEST_WORDS = 3
"""Words of a text that is a request and no value."""
SHORTEST = 0.1
"""Seconds that are worth telling."""


class Group(msgspec.Struct, frozen=True):
    """Traces that belong together, as a page shows them.

    kept_as: the routine in use that was made of some of them. example: what was asked for once.
    """

    found: Suggestion
    kept_as: str = ""
    example: str = ""

    @property
    def title(self) -> str:
        """What they do, in words."""
        if self.found.effects:
            return sentence(", ".join(map(plain, self.found.effects)))
        way = [plain(name) for name in self.found.way]
        more = ", …" if len(way) > LONGEST_WAY else ""
        return sentence(f"look up: {', '.join(way[:LONGEST_WAY])}{more}")

    @property
    def address(self) -> str:
        """The page that compiles them together."""
        return address("/group", traces=",".join(self.found.sample))

    @property
    def trials(self) -> tuple[int, int, int] | None:
        """How often what the others teach was right, handed over and wrong; None if not tried."""
        proof = self.found.proof
        if proof is None or proof.summary.startswith("not tried"):
            return None
        return proof.right, proof.handed_over, proof.wrong

    @property
    def untried(self) -> str:
        """Why it was not tried, in words."""
        proof = self.found.proof
        return sentence(proof.summary) if proof else "Not tried on other traces."

    @property
    def why_not(self) -> str:
        """Why a routine of them would not be worth keeping; empty if it would."""
        if self.found.problem:
            return self.found.problem
        if self.trials is None or self.trials[0]:
            return ""
        return f"tried on {sum(self.trials)} of them: it would have handed over every time"

    @property
    def saves(self) -> Json:
        """What one run saves, by what it is; only what is known and not nothing."""
        one = self.found
        figures = {
            "model calls": one.model_calls,
            "tokens": one.tokens,
            "seconds": one.seconds if (one.seconds or 0.0) >= SHORTEST else None,
            "dollars": one.cost_usd,
        }
        return {what: value for what, value in figures.items() if value}


def plain(name: str) -> str:
    """Return the name of a tool as words: `cancel_order` is `cancel order`."""
    return " ".join(name.replace("_", " ").split())


def sentence(words: str) -> str:
    """Return words that begin with a capital letter."""
    return words[:1].upper() + words[1:]


def example_of(trace: TraceSummary) -> str:
    """Return what was asked for in words: the longest sentence of the input, else the goal."""
    given = trace.input.values() if isinstance(trace.input, dict) else [trace.input]
    said = [text for text in given if isinstance(text, str) and len(text.split()) >= FEWEST_WORDS]
    return max(said, key=len, default=trace.goal)


class Recurring(msgspec.Struct, frozen=True):
    """What recurs. is_looking: it is being found now, and the groups are those of before."""

    groups: Sequence[Group] = ()
    is_looking: bool = False
    problem: str = ""

    @property
    def ready(self) -> list[Group]:
        """The groups that are worth compiling."""
        return [one for one in self.groups if not one.kept_as and not one.why_not]

    @property
    def kept(self) -> dict[str, int]:
        """The routines in use that were made of groups, each with the number of traces."""
        counts = Counter[str]()
        for one in self.groups:
            if one.kept_as:
                counts[one.kept_as] += one.found.count
        return counts

    @property
    def not_yet(self) -> list[Group]:
        """The groups whose routine would only ask or hand over yet."""
        return [one for one in self.groups if not one.kept_as and one.why_not]


class _Found(msgspec.Struct, frozen=True):
    """What a search found, and the newest event that there was when it began.

    groups: each with the first events of its sample, by which it is known what was made of it.
    """

    seq: int
    groups: Sequence[tuple[Group, Sequence[str]]]


class _Answer(msgspec.Struct):
    suggestions: list[Suggestion]


class Groups:
    """The groups of a memory's traces, searched for again after there are new traces.

    Safe to share between threads. After something was erased, nothing found before is shown.
    """

    def __init__(self, memory: Memory, stopping: threading.Event) -> None:
        self._memory, self._store = memory, memory.store
        self._stopping = stopping
        self._lock = threading.Lock()
        self._found: _Found | None = None
        self._problem = ""
        self._is_looking = False
        self._not_before = 0.0

    def look(self) -> Recurring:
        """Return what is known, and start a search if there is something new. Never waits."""
        with self._lock:
            kinds = self._changes()
            if "erased" in kinds:
                self._found, self._not_before = None, 0.0
            if kinds and not self._is_looking and time.monotonic() >= self._not_before:
                self._is_looking = True
                threading.Thread(target=self._search, daemon=True, name="em-groups").start()
            found, problem, is_looking = self._found, self._problem, self._is_looking
        groups = [] if found is None else found.groups
        return Recurring(
            [
                msgspec.structs.replace(one, kept_as=kept_as(self._store, events))
                for one, events in groups
            ],
            is_looking,
            "" if found or is_looking else problem,
        )

    def _changes(self) -> set[str]:
        """Return the kinds of events after which to search again; empty with too few traces."""
        after = 0 if self._found is None else self._found.seq
        kinds = {
            kind
            for kind in CHANGED
            for _ in self._store.read(EventQuery(kinds=[kind], after=after, limit=1))
        }
        few = list(islice(self._store.summaries.read(SummaryQuery(noun="trace")), 2))
        return kinds if len(few) > 1 else kinds & {"erased"}

    def _search(self) -> None:
        began, problem, found = time.monotonic(), "", None
        try:
            found = _Found(newest_seq(self._store), [*map(self._group, self._suggest())])
        except (EmError, OSError, msgspec.MsgspecError) as error:
            problem = str(error)
            log_line(level="error", event="suggest", message=problem)
        ended = time.monotonic()
        with self._lock:
            self._found, self._problem = found or self._found, problem
            self._is_looking = False
            self._not_before = ended + max(LEAST_REST, REST * (ended - began))

    def _group(self, one: Suggestion) -> tuple[Group, Sequence[str]]:
        asked = [example_of(trace) for trace in summaries_of(self._store, one.sample[-1:])]
        return Group(one, example="".join(asked)), _first_events(self._store, one.sample)

    def _suggest(self) -> list[Suggestion]:
        """Run `em routine suggest` and return what it prints."""
        command = [sys.executable, "-P", "-m", "em", "--json", "routine", "suggest"]
        command += ["--allow-unlabelled"]
        # By the environment: an address may have a password, and everybody sees arguments.
        with subprocess.Popen(  # noqa: S603 - this Python and this package
            command,
            env={**os.environ, "EM_DB": self._memory.address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        ) as child:
            os.setpriority(os.PRIO_PROCESS, child.pid, PRIORITY)
            printed, complaint = self._wait(child)
        if child.returncode:
            told = complaint[-500:].decode()
            raise EmError(f"em routine suggest ended with {child.returncode}: {told}")
        return msgspec.json.decode(printed, type=_Answer).suggestions

    def _wait(self, child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
        """Wait for a process; end it if the service stops."""
        deadline = time.monotonic() + LONGEST_SEARCH
        while True:
            try:
                return child.communicate(timeout=0.2)
            except subprocess.TimeoutExpired:
                if self._stopping.is_set() or time.monotonic() > deadline:
                    child.kill()


def newest_seq(store: Store) -> int:
    """Return the number of the newest event; 0 if there is none."""
    newest = next(iter(store.read(EventQuery(limit=1, newest=True))), None)
    return 0 if newest is None else newest.seq


def _first_events(store: Store, traces: Sequence[str]) -> list[str]:
    """Return the ids of the events with which traces begin."""
    queries = (EventQuery(stream=trace_stream(trace), limit=1) for trace in traces)
    return [event.id for query in queries for event in store.read(query)]


def kept_as(store: Store, events: Sequence[str]) -> str:
    """Return the routine in use that was made of some of these events; empty if there is none."""
    for held in store.holders(events):
        kind, _, ref = held.holder.partition(" ")
        name, _, version = ref.rpartition("@")
        if held.noun == "artefacts" and kind == KIND:
            newest = store.artefact(KIND, name)
            if newest is not None and newest.version == int(version):
                return ref
    return ""


# --- one group as a draft -------------------------------------------------------------------------


class _Compiling:
    """A group that is being compiled, or was."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.made: Compiled | None = None
        self.problem: EmError | None = None
        self.until = float("inf")


class Compilations:
    """Compile groups of traces in threads, to show what they become. Nothing is stored.

    What was made is kept for a minute, unless one of the traces has changed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], _Compiling] = {}

    def of(self, traces: Sequence[str]) -> _Compiling:
        """Return what becomes of these traces together, or that it is being made."""
        key = (*traces, *(self._store.head(trace_stream(one)) for one in traces))
        with self._lock:
            now = time.monotonic()
            fresh = [(key, one) for key, one in self._known.items() if one.until > now]
            self._known = dict(fresh[-KEPT_DRAFTS:])
            found = self._known.get(key)
            if found is None:
                if sum(not one.done.is_set() for one in self._known.values()) >= AT_ONCE:
                    raise StoreBusy(
                        f"{AT_ONCE} groups are being compiled already",
                        fix="wait until one of them is shown",
                    )
                found = self._known[key] = _Compiling()
                work = threading.Thread(target=self._compile, args=(traces, found), daemon=True)
                work.start()
        found.done.wait(PATIENCE)
        return found

    def _compile(self, traces: Sequence[str], one: _Compiling) -> None:
        try:
            one.made = compile_several(get_traces(self._store, traces))
        except EmError as error:
            one.problem = error
        except Exception as error:
            one.problem = EmError("the traces could not be compiled")
            log_line(level="error", event="compile", message=repr(error))
            raise
        finally:
            one.until = time.monotonic() + KEPT_SECONDS
            one.done.set()


@get(f"{PAGES}/group", include_in_schema=False, sync_to_thread=True)
def get_group(request: AnyRequest) -> Response[str]:
    """Compile traces together and show what they become, with how it did on each of them."""
    service = service_of(request)
    service.caller(request).must_see(None)
    ids = [*dict.fromkeys(one for one in parameter(request, "traces").split(",") if one)]
    if not 1 <= len(ids) <= MOST_TRACES:
        raise InputError(f"expected 1 to {MOST_TRACES} traces, got {len(ids)}", place="traces")
    known = {one.id: one for one in summaries_of(service.store, ids)}
    missing = next((one for one in ids if one not in known), None)
    if missing is not None:
        raise NotFound(f"there is no trace {missing!r}", place="traces")
    compilations: Compilations = request.app.state.compilations
    found = compilations.of(ids)
    made = found.made
    routine = None if made is None else made.draft.routine
    trials = {} if made is None else {one.trace: one for one in made.draft.trials.made}
    left_out = {} if made is None else made.not_compiled
    return page(
        request,
        "group.html",
        traces=[(known[one], trials.get(one), left_out.get(one, "")) for one in ids],
        is_live=not found.done.is_set(),
        problem=found.problem,
        draft=None if made is None else made.draft,
        title="" if routine is None else sentence(plain(routine.name)),
        graph=None if routine is None else graph_of(routine),
        review=None if made is None else review_of(made),
        kept_as=kept_as(service.store, _first_events(service.store, ids)),
    )


HANDLERS = [get_group]
