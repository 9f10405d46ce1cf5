"""What recurs in the traces: found in the background, shown on the overview, compiled on a page."""

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

from em.compiler.suggestions import Suggestion
from em.errors import EmError, InputError, NotFound
from em.log.event import EventQuery, trace_stream
from em.log.summary import SummaryQuery
from em.memory import Memory
from em.runner.card import KIND
from em.serve.auth import PAGES
from em.serve.guard import log_line
from em.serve.pages.drafts import Drafts, review_of
from em.serve.pages.view import address, page, parameter
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Store
from em.traces.catalogue import TraceSummary, summaries_of
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
LONGEST_WAY = 4
FEWEST_WORDS = 3
"""Words of a text that is a request and no value."""
SHORTEST = 0.1
"""The fewest seconds of a saving that are shown."""


class TraceGroup(msgspec.Struct, frozen=True):
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
    def why_not(self) -> str:
        """Why a routine of them would not be worth keeping; empty if it would."""
        if self.found.problem or self.trials is None or self.trials[0]:
            return self.found.problem
        return f"tried on {sum(self.trials)} of them: it would have handed over every time"

    @property
    def saves(self) -> Json:
        """What one run saves, by what it is; only what is known and not nothing."""
        one = self.found
        seconds = one.seconds if (one.seconds or 0.0) >= SHORTEST else None
        figures = {"model calls": one.model_calls, "tokens": one.tokens, "seconds": seconds}
        figures["dollars"] = one.cost_usd
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

    groups: Sequence[TraceGroup] = ()
    is_looking: bool = False
    problem: str = ""

    @property
    def ready(self) -> list[TraceGroup]:
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
    def not_yet(self) -> list[TraceGroup]:
        """The groups whose routine would only ask or hand over yet."""
        return [one for one in self.groups if not one.kept_as and one.why_not]


class _Suggested(msgspec.Struct):
    suggestions: list[Suggestion]


class Groups:
    """The groups of a memory's traces, searched for again after there are new traces.

    Safe to share between threads. After something was erased, nothing found before is shown.
    """

    def __init__(self, memory: Memory, stopping: threading.Event) -> None:
        self._memory, self._store = memory, memory.store
        self._stopping = stopping
        self._lock = threading.Lock()
        self._groups: Sequence[TraceGroup] = ()
        self._seq = 0
        """The newest event when the last search began; 0 if its groups must not be shown."""
        self._problem = ""
        self._is_looking = False
        self._not_before = 0.0

    def look(self) -> Recurring:
        """Return what is known, and start a search if there is something new. Never waits."""
        with self._lock:
            kinds = self._changes()
            if "erased" in kinds:
                self._groups, self._seq, self._not_before = (), 0, 0.0
            if kinds and not self._is_looking and time.monotonic() >= self._not_before:
                self._is_looking = True
                threading.Thread(target=self._search, daemon=True, name="em-groups").start()
            groups, problem, is_looking = self._groups, self._problem, self._is_looking
        known = [
            msgspec.structs.replace(one, kept_as=kept_as(self._store, one.found.sample))
            for one in groups
        ]
        return Recurring(known, is_looking, "" if known or is_looking else problem)

    def _changes(self) -> set[str]:
        """Return the kinds of events after which to search again; empty with too few traces."""
        kinds = {
            kind
            for kind in CHANGED
            for _ in self._store.read(EventQuery(kinds=[kind], after=self._seq, limit=1))
        }
        few = list(islice(self._store.summaries.read(SummaryQuery(noun="trace")), 2))
        return kinds if len(few) > 1 else kinds & {"erased"}

    def _search(self) -> None:
        began, problem, groups, seq = time.monotonic(), "", None, self._memory.log.head_seq()
        try:
            groups = [*map(self._group, self._suggest())]
        except (EmError, OSError, msgspec.MsgspecError) as error:
            problem = str(error)
            log_line(level="error", event="suggest", message=problem)
        ended = time.monotonic()
        with self._lock:
            if groups is not None:
                self._groups, self._seq = groups, seq
            self._problem, self._is_looking = problem, False
            self._not_before = ended + max(LEAST_REST, REST * (ended - began))

    def _group(self, one: Suggestion) -> TraceGroup:
        asked = [example_of(trace) for trace in summaries_of(self._store, one.sample[-1:])]
        return TraceGroup(one, example="".join(asked))

    def _suggest(self) -> list[Suggestion]:
        """Run `em routine suggest` and return what it prints: it takes long and much of a core."""
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
        return msgspec.json.decode(printed, type=_Suggested).suggestions

    def _wait(self, child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
        """Wait for a process; end it if the service stops."""
        deadline = time.monotonic() + LONGEST_SEARCH
        while True:
            try:
                return child.communicate(timeout=0.2)
            except subprocess.TimeoutExpired:
                if self._stopping.is_set() or time.monotonic() > deadline:
                    child.kill()


def kept_as(store: Store, traces: Sequence[str]) -> str:
    """Return the routine in use that was made of some of these traces; empty if there is none."""
    queries = (EventQuery(stream=trace_stream(trace), limit=1) for trace in traces)
    for held in store.holders([event.id for query in queries for event in store.read(query)]):
        kind, _, ref = held.holder.partition(" ")
        name, _, version = ref.rpartition("@")
        if held.noun == "artefacts" and kind == KIND:
            newest = store.artefact(KIND, name)
            if newest is not None and newest.version == int(version):
                return ref
    return ""


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
    drafts: Drafts = request.app.state.drafts
    found = drafts.of(ids)
    made = found.made
    trials = {} if made is None else {one.trace: one for one in made.draft.trials.made}
    left_out = {} if made is None else made.not_compiled
    return page(
        request,
        "group.html",
        traces=[(known[one], trials.get(one), left_out.get(one, "")) for one in ids],
        is_live=not found.done.is_set(),
        problem=found.problem,
        draft=None if made is None else made.draft,
        title="" if made is None else sentence(plain(made.draft.routine.name)),
        review=None if made is None else review_of(made),
        kept_as=kept_as(service.store, ids),
    )


HANDLERS = [get_group]
