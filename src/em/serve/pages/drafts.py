"""Drafts: what traces compile to, before anything is stored; and what to show of a routine."""

import threading
import time
from collections.abc import Sequence

import msgspec

from em.compiler.checks import Constant, Outline, document_of, is_plain, open_constants, outline_of
from em.compiler.compile_trace import Compiled, compile_several
from em.compiler.evidence import ENOUGH_ALIKE
from em.compiler.export.function import function_text
from em.errors import EmError, ExportError, StoreBusy
from em.log.event import trace_stream
from em.runner.package import ROUTINE, KeptRoutine, proof_of
from em.runner.trial import AS_RECORDED
from em.serve.guard import log_line
from em.store.protocol import Store
from em.traces.catalogue import get_traces
from em.values.canonical import Json

AT_ONCE, WAITING = 2, 16
KEPT_DRAFTS, KEPT_SECONDS = 8, 60.0
PATIENCE = 0.2
"""Seconds that a page waits for a draft before it is shown without."""


class TraceDraft:
    """What some traces compile to: `made` or a `problem` once it is `done`."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.made: Compiled | None = None
        self.problem: EmError | None = None
        self.until = float("inf")


class Drafts:
    """Compile traces in threads, to show what they become. Nothing is stored.

    A draft is kept for a minute, unless one of its traces has changed: a page, its rows and its
    events all need it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], TraceDraft] = {}
        self._free = threading.BoundedSemaphore(AT_ONCE)

    def of(self, traces: Sequence[str], patience: float = PATIENCE) -> TraceDraft:
        """Return what becomes of these traces together, or that it is being made."""
        key = (*traces, *(self._store.head(trace_stream(one)) for one in traces))
        with self._lock:
            now = time.monotonic()
            fresh = [(key, one) for key, one in self._known.items() if one.until > now]
            self._known = dict(fresh[-KEPT_DRAFTS - WAITING :])
            found = self._known.get(key)
            if found is None:
                if sum(not one.done.is_set() for one in self._known.values()) >= WAITING:
                    raise StoreBusy(
                        f"{WAITING} drafts are being compiled already",
                        fix="wait until one of them is shown",
                    )
                found = self._known[key] = TraceDraft()
                work = threading.Thread(target=self._compile, args=(traces, found), daemon=True)
                work.start()
        found.done.wait(patience)
        return found

    def _compile(self, traces: Sequence[str], draft: TraceDraft) -> None:
        try:
            with self._free:
                draft.made = compile_several(get_traces(self._store, traces))
        except EmError as error:
            draft.problem = error
        except Exception as error:
            draft.problem = EmError("the traces could not be compiled")
            log_line(level="error", event="compile", message=repr(error))
            raise
        finally:
            draft.until = time.monotonic() + KEPT_SECONDS
            draft.done.set()


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """A routine as a page shows it: its code, its inputs, checks and constants.

    recordings: how many it was learnt from; 0 if a person wrote it. open: the constants that so
    few recordings show. asked: inputs because nothing recorded explains their values. unchecked:
    numbers that nothing is compared with. python: the same as a function, if Python can say it.
    """

    code: str
    outline: Outline
    python: str = ""
    hands_over: bool = True
    recordings: int = 0
    open: Sequence[Constant] = ()
    asked: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    enough: int = ENOUGH_ALIKE


def review_of(made: Compiled) -> Reviewed:
    """Return what to show of a routine that was compiled and is not stored yet."""
    document, recordings = made.draft.document, len(made.draft.recordings)
    return Reviewed(
        code=made.files[ROUTINE],
        outline=outline_of(document),
        python=_python(document),
        recordings=recordings,
        open=open_constants(document, recordings),
        asked=made.asked,
        unchecked=made.unchecked,
    )


def review_of_kept(routine: KeptRoutine, files: dict[str, str]) -> Reviewed:
    """Return what to show of a stored routine."""
    document, proof = document_of(files), proof_of(files)
    recordings = 0 if proof is None else len(proof.trials.get(AS_RECORDED, ()))
    return Reviewed(
        code=files[ROUTINE],
        outline=outline_of(document),
        python=_python(document) if is_plain(routine) else "",
        hands_over=is_plain(routine),
        recordings=recordings,
        open=open_constants(document, recordings) if recordings else (),
    )


def _python(document: Json) -> str:
    try:
        return function_text(document)
    except ExportError:
        return ""
