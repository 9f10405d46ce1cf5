"""The journal of a run: what each step is about to do, and how it ended, in the log.

The intent of a step with an effect is written before its call, its result after; the result of one
step and the intent of the next share a transaction. So a run that was killed anywhere can be
resumed: no call with an effect is made again, and one under way differs from one that never began.
Reads stay as they were from the first effect on; before that they are made again.
"""

import fcntl
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from em.errors import (
    BadBody,
    Cancelled,
    EmError,
    PositionConflict,
    RoutineError,
    RunBusy,
    StoreBusy,
    StoreUnreachable,
)
from em.log.event import Draft, EventQuery, run_stream
from em.log.use import Uses
from em.redaction.redactor import MARKER
from em.runner.answers import check_answers
from em.runner.drivers import WriteJournal
from em.runner.routine import CompiledStep
from em.runner.run import (
    INPUTS,
    VALUES,
    Failure,
    Item,
    Pause,
    PendingPrompt,
    ResumedDifferently,
    RunResult,
    StepReport,
    StepStatus,
    plain,
)
from em.runner.secrets import Secrets
from em.store.protocol import Commit, Store
from em.values.canonical import Json, canonical, identical

Note = tuple[str, Json]
"""The kind and the body of an event."""

ROUTINE_STARTED, WORKFLOW_STARTED = "run_started", "workflow_started"
"""The kinds of the first event of a run."""

ItemKey = tuple[str, Item]
"""A step, and the number of its item where it runs for each of several."""


Past = tuple[StepStatus, str, Json | None]
"""How a call ended before a resume: its status, its error, and the fix that it needed."""

PAST_DONE: Past = ("done", "", None)


class Restored(msgspec.Struct):
    """What a resumed run knows of its earlier attempts."""

    ends: dict[ItemKey, Past] = {}
    results: dict[ItemKey, Any] = {}
    keys: dict[ItemKey, Any] = {}
    items: dict[ItemKey, str] = {}
    in_flight: set[ItemKey] = set()
    redacted: set[ItemKey] = set()
    answers: dict[str, Json] = {}
    effects: set[ItemKey] = set()
    """The calls with an effect that began, whether they ended or not."""
    asked: dict[str, Json] = {}
    """How each question read, by its name."""
    is_asking_anew: bool = False
    """Whether questions may read differently now: an answer counts for the old wording only."""

    def has_acted(self, answers: Mapping[str, Json]) -> bool:
        """Return whether a call had an effect, or may have had one.

        answers: a person's answers now; they may say that an interrupted call did not happen.
        """
        said = {**self.answers, **answers}
        return any(
            key in self.results or not _did_not_happen(key, said.get(question_of(key)))
            for key in self.effects
        )

    def without_reads(self) -> "Restored":
        """Return what stays known if all reads are made again: people's answers."""
        return Restored(answers=self.answers, asked=self.asked, is_asking_anew=True)

    def ask(self, prompt: Json) -> None:
        """Take a question. An earlier answer to another question of that name no longer counts."""
        step_id, now = str(prompt["step_id"]), wording(prompt)
        before = self.asked.get(step_id, {})
        other = {name for name, words in now.items() if before.get(name, words) != words}
        self.asked[step_id] = {**before, **now}
        given = self.answers.get(step_id, {})
        if WHOLE in other:
            self.answers.pop(step_id, None)
        elif other & given.keys():
            rest = {name: answer for name, answer in given.items() if name not in other}
            self.answers[step_id] = rest


WHOLE = ""
"""Stands for a question as a whole in how it reads, beside the names of single fields."""


def wording(prompt: Json) -> Json:
    """Return how a question reads: one for inputs by its fields, since they come in rounds.

    Whether a call happened is asked in different words; the answer is about the call.
    """
    step_id, fields = str(prompt["step_id"]), prompt.get("fields") or ()
    if step_id.endswith("?"):
        return {}
    if step_id == INPUTS:
        return {str(field["name"]): field.get("label", "") for field in fields}
    return {WHOLE: [prompt["message"], msgspec.to_builtins(fields)]}


def _did_not_happen(key: ItemKey, answer: Json | None) -> bool:
    try:
        return answer is not None and check_answers(unknown(key, ""), answer)["happened"] is False
    except RoutineError:
        return False


def fits(kept: Any, given: Any) -> bool:
    """Return whether two values are the same, except where the stored one has a marker."""
    if isinstance(kept, str) and MARKER.search(kept):
        pattern = ".*".join(re.escape(part) for part in MARKER.split(kept))
        text = given if isinstance(given, str) else ""
        return bool(MARKER.fullmatch(kept) or re.fullmatch(pattern, text, re.DOTALL))
    if isinstance(kept, dict) and isinstance(given, dict):
        # A key may have been a secret itself: compare such keys by their order.
        known = kept.keys() & given.keys()
        hidden = [[*pair] for pair in kept.items() if pair[0] not in known]
        others = [[*pair] for pair in given.items() if pair[0] not in known]
        return fits(hidden, others) and all(fits(kept[name], given[name]) for name in known)
    if isinstance(kept, list) and isinstance(given, list):
        return len(kept) == len(given) and all(map(fits, kept, given))
    return identical(kept, given)


class Journal:
    """Writes a run's notes; a second worker on the same run is fenced off, and a cancelled run
    stops: its next write raises Cancelled, after it has stored what was done by then.

    patience: seconds for which a write is repeated while the database can't be reached. If an
    attempt was written after all, the expected position differs: that raises RunBusy, and a
    resumed run goes on from there.
    subject: who the run is about; all its events are.
    uses: what tools of the run got from a memory; the notes that are written next are made of it.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        pos: int = 0,
        patience: float = 0.0,
        *,
        subject: str | None = None,
        uses: Uses | None = None,
    ) -> None:
        self._store = store
        self._subject = subject
        self._uses = uses
        self._run_id = run_id
        self._stream = run_stream(run_id)
        self._pos = pos
        self._patience = patience
        self._lock = threading.Lock()

    def write(self, notes: Iterable[Note]) -> None:
        """Store notes before the run goes on. Threads take turns."""
        mine = self._with_uses(notes)
        with self._lock:
            self._commit(mine)

    def _commit(self, notes: Sequence[Note]) -> None:
        stream, subject, is_decoded = self._stream, self._subject, True
        drafts = []
        for kind, body in notes:
            # What a step was given and returned was made plain before; what a fix gave was not.
            is_decoded &= kind in _STEP_KINDS and "fix" not in body
            drafts.append(Draft(stream=stream, kind=kind, body=body, subject=subject))
        commit = Commit(
            events=drafts,
            expected_pos={stream: self._pos},
            is_decoded=is_decoded,
            only_rows=True,
        )
        try:
            self._store.commit(commit)
        except (StoreUnreachable, StoreBusy):
            if not self._patience:
                raise
            self._repeat(commit, drafts)
        except PositionConflict as error:
            raise self._overtaken(drafts) from error
        self._pos += len(notes)

    def _with_uses(self, notes: Iterable[Note]) -> list[Note]:
        used = self._uses.take() if self._uses is not None else ()
        if not used:
            return list(notes)
        return [
            (kind, {**body, "from_events": [*body.get("from_events", ()), *used]})
            for kind, body in notes
        ]

    def _repeat(self, commit: Commit, drafts: Sequence[Draft]) -> None:
        until, wait = time.monotonic() + self._patience, 0.1
        while True:
            time.sleep(wait)
            wait = min(2 * wait, 2.0)
            try:
                self._store.commit(commit)
            except (StoreUnreachable, StoreBusy):
                if time.monotonic() > until:
                    raise
            except PositionConflict as error:
                raise self._overtaken(drafts) from error
            else:
                return

    def _overtaken(self, drafts: Sequence[Draft]) -> RunBusy:
        """Return why the run stops here. Of a cancelled run, store the results that are known."""
        found = self._store.read(EventQuery(stream=self._stream))
        later = [event for event in found if event.pos > self._pos]
        kinds = [event.kind for event in later]
        if kinds[:1] == ["run_cancelled"] and set(kinds[1:]) <= {"step_done"}:
            done = [_without_next(one) for one in drafts if one.kind == "step_done"]
            if done:
                fence = {self._stream: later[-1].pos}
                with suppress(PositionConflict):  # somebody retries it already
                    self._store.commit(Commit(events=done, expected_pos=fence))
            return Cancelled(
                f"this run was cancelled{by_whom(later[0].body)}",
                place=f"run {self._run_id}",
                fix="what was done by then is done; the run's steps show it",
            )
        return RunBusy(
            "this run was continued elsewhere: its journal has moved on",
            place=f"run {self._run_id}",
            fix="look at the run, and resume it if it is not over",
        )


def _without_next(done: Draft) -> Draft:
    """Return the note of a result without the intent of the next step."""
    body = {name: value for name, value in done.body.items() if name != "next"}
    return msgspec.structs.replace(done, body=body)


def by_whom(body: Json | None) -> str:
    """Return ` by NAME` for an event that says who wanted it; else an empty text."""
    return f" by {body['by']}" if body and body.get("by") else ""


@contextmanager
def running(store: Store, run_id: str) -> Iterator[None]:
    """Hold a run while this block works on it. Raise RunBusy if another block or process does.

    A lock of the operating system: it ends with its process, however that ends. It counts on one
    machine and for one user. Elsewhere the journal's position decides: who writes second stops.
    """
    place = store.location if "://" in store.location else str(Path(store.location).resolve())
    name = sha256(os.fsencode(f"{place}\0{run_id}")).hexdigest()
    try:
        held = _locked(_lock_folder() / name)
    except BlockingIOError:
        raise RunBusy(
            "another process works on this run",
            place=f"run {run_id}",
            fix="wait until it ends; the run's steps show how far it is",
        ) from None
    except OSError:
        held = None  # no folder for locks: the position in the journal still decides
    try:
        yield
    finally:
        if held is not None:
            with suppress(OSError):
                (_lock_folder() / name).unlink()
            os.close(held)


def _lock_folder() -> Path:
    wanted = os.environ.get("TMPDIR", "")
    place = wanted if os.path.isdir(wanted) else "/tmp"  # noqa: S108 - a folder for us alone
    folder = Path(place) / f"em-runs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def _locked(path: Path) -> int:
    """Open and lock a file. Another block may remove it in between: then try the new one."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def how_to_resume(run_id: str, options: str) -> str:
    """Return the command that resumes a run."""
    return f"em resume {run_id} {options}".rstrip()


def question_of(key: ItemKey) -> str:
    """Return the name of the question about a call's outcome; no step can have such a name."""
    step, item = key
    return f"{step}?" if item is None else f"{step}[{item}]?"


def started_note(
    folder: str,
    routine: str,
    routine_hash: str,
    input_data: Json,
    *,
    stored: str = "",
    code: Sequence[tuple[str, str]] = (),
) -> Note:
    """The first note of a run; `stored` is the `name@version` of a routine in the memory.

    code: what errors call each piece of code, and its digest.
    """
    body: Json = {"routine": routine, "hash": routine_hash, "input": input_data}
    if code:
        # Pairs, not a mapping: redaction takes a name such as `get_token` for that of a secret.
        body["code"] = [list(pair) for pair in code]
    body |= {"stored": stored} if stored else {"folder": folder}
    return ROUTINE_STARTED, body


def resumed_note() -> Note:
    """Return the note of a run that goes on and makes its reads again."""
    return "run_resumed", {"reads_again": True}


def retried_note(by: str) -> Note:
    """Return the note of a run that goes on where it failed or was cancelled."""
    return "run_retried", {"by": by} if by else {}


def answered_note(answers: Mapping[str, Json]) -> Note:
    """Return the note of answers; it is written before the run uses them."""
    return "run_answered", {"answers": dict(answers)}


def keepable(value: Any, step_id: str) -> Any:
    """Return a result as the journal stores it: two levels deep in the body of a note."""
    return sized(value, step_id)[0]


def sized(value: Any, step_id: str) -> tuple[Any, int]:
    """Return the same, and its size in bytes; that of a small number or text is not counted."""
    kind = type(value)
    if (kind is int and -_EXACT < value < _EXACT) or (
        kind is str and len(value) < MOST_SIMPLE and value.isascii()
    ):
        return value, 0  # plain at a glance
    try:
        text, plain = canonical([[value]], "result")
        return plain[0][0], len(text)
    except BadBody as error:
        raise RoutineError(
            f"its result can't be stored in the journal: {error.message}",
            place=f"step {step_id}",
            fix="let the tool return plain values (numbers, texts, lists, mappings, dataclasses)",
        ) from None


_EXACT = 2**53
MOST_SIMPLE = 1_000
"""Characters of a text that is plain at a glance."""


_STEP_KINDS = frozenset({"step_started", "step_done"})


MOST_ARGS = 1_000_000
"""Bytes of arguments that an intent tells: larger ones are made of results that are noted by
themselves, and one event must hold them both."""


_CHANGED = "what was read has changed since this was asked, and the question with it"


class KnownResult(NamedTuple):
    """The result of a call, from the journal or from a person."""

    value: Any


class Notebook:
    """The notes of a run that are not written yet, what its journal has, and people's answers."""

    def __init__(
        self,
        notes: list[Note] | None,
        restored: Restored | None,
        answers: Mapping[str, Json] | None,
        secrets: Secrets,
        run_id: str = "",
    ) -> None:
        self._run_id = run_id
        self._wrote = False
        # None where there is no journal.
        self._notes = notes
        self._restored = restored or Restored()
        self._answers = answers or {}
        self.secrets = secrets
        self.is_kept = notes is not None
        # By step: events that its result contains something of. Forgetting follows them.
        self.sources: Mapping[str, Iterable[str]] = {}

    def answer_to(self, prompt: PendingPrompt, secret: Collection[str] = ()) -> Json | None:
        """Return a person's checked answer to a prompt, given now or before; None: ask.

        Answers to secret fields are not stored: they are asked again. An answer that does not fit
        pauses the run, with the problem in its question.
        """
        step_id = prompt.step_id
        now, before = self._answers.get(step_id), self._restored.answers.get(step_id)
        if before is not None:
            if any(name not in (now or {}) for name in secret):
                return None
            if now is not None:
                # Answers without a field were reported the first time.
                names = {field["name"] for field in prompt.fields}
                before = {name: said for name, said in before.items() if name in names}
            now = {**before, **(now or {})}
        if now is None:
            return None
        try:
            return check_answers(prompt, now)
        except RoutineError as error:
            problem = f"{error.place}: {error.message}" + (f" ({error.fix})" if error.fix else "")
            raise Pause(msgspec.structs.replace(prompt, problem=problem)) from error

    def answers(self, step_id: str) -> Json:
        """Return all answers that were given under a name, now or before, unchecked."""
        return {**self._restored.answers.get(step_id, {}), **self._answers.get(step_id, {})}

    def note_answer(self, step_id: str, answer: Json) -> None:
        """Note an answer that the run found by itself, so that it stays when it is resumed."""
        if self._notes is not None:
            self._notes.append(answered_note({step_id: answer}))

    def take(self, prompt: PendingPrompt, answer: Json) -> Json:
        """Check an answer that a person gives while the run waits."""
        self._answers = {**self._answers, prompt.step_id: answer}
        checked = self.answer_to(prompt)
        assert checked is not None
        return checked

    def past(self, key: ItemKey) -> Past:
        """Return how a call ended whose result is known."""
        return self._restored.ends.get(key, PAST_DONE)

    def answers_to(self, prompt: PendingPrompt) -> tuple[Json, PendingPrompt]:
        """Return all answers that were given under a name, now or before, unchecked.

        What was read again may have changed the question: answers to the old one don't count, and
        the question says so.
        """
        step_id = prompt.step_id
        given = self.answers(step_id)
        asked = self._restored.asked if self._restored.is_asking_anew else {}
        before, now = asked.get(step_id, {}), wording(plain(prompt))
        changed = {name for name in now if not fits(before.get(name, now[name]), now[name])}
        lost = given.keys() if WHOLE in changed else given.keys() & changed
        if not lost:
            return given, prompt
        rest = {name: answer for name, answer in given.items() if name not in lost}
        return rest, msgspec.structs.replace(prompt, problem=_CHANGED)

    def key_before(self, key: ItemKey) -> Any:
        """Return the idempotency key that an interrupted call was announced with."""
        return self._restored.keys.get(key) if key in self._restored.in_flight else None

    def hash_of(self, item: Any) -> str:
        """Return a digest of an item within this run, to detect that the list changed."""
        try:
            text = canonical(item, "item")[0]
        except BadBody:
            return ""  # such an item can't be stored either
        return sha256(self._run_id.encode() + b"\0" + text).hexdigest()[:12]

    def check_count(self, step: CompiledStep, count: int, turn: "BlockTurn | None" = None) -> None:
        """Raise if an item that was done or under way is no longer in the list.

        turn: of the block that holds the list.
        """
        start = "" if turn is None else f"{turn.place}."
        for name, item in self._restored.items:
            if name != step.id or item is None or not str(item).startswith(start):
                continue
            if int(str(item)[len(start) :].partition(".")[0]) >= count:
                raise _other_list(step, item)

    def known(self, attempt: "Attempt") -> KnownResult | None:
        """Return a call's result from the journal or a person's answer; None: make the call."""
        restored, key = self._restored, attempt.item_key
        before = restored.items.get(key)
        if before and attempt.item_hash and before != attempt.item_hash:
            raise _other_list(attempt.step, key[1])
        if key in restored.results:
            if key not in restored.redacted:
                return KnownResult(restored.results[key])
            return self._redacted(attempt) if attempt.writes else None
        if key not in restored.in_flight or not attempt.writes:
            return None
        # A key counts if the first attempt had it too.
        if attempt.key is not None and restored.keys.get(key) is not None:
            return None
        prompt = unknown(key, "The run was interrupted while {} was under way.")
        answer = self.answer_to(prompt)
        if answer is None:
            raise Pause(prompt, in_flight=True)
        return KnownResult(answer["result"]) if answer["happened"] else None

    def _redacted(self, attempt: "Attempt") -> KnownResult:
        """Return the result of a call that happened; ask for what the journal redacted."""
        key = attempt.item_key
        if attempt.step.save_as is None:
            return KnownResult(self._restored.results[key])
        question = question_of(key)
        prompt = PendingPrompt(
            step_id=question,
            message=(
                f"{question.rstrip('?')} is done, and not made again; its result held a secret,"
                " which the journal did not keep. What was the result?"
            ),
            fields=({"name": "result", "type": "json"},),
        )
        answer = self.answer_to(prompt)
        if answer is None:
            raise Pause(prompt, in_flight=True)
        return KnownResult(answer["result"])

    def announce(self, attempt: "Attempt | None" = None) -> Iterable[WriteJournal]:
        """Return the write of the pending notes, with the intent of a call if it has an effect.

        At most one write. A tuple to be yielded from costs less than one more generator.
        """
        notes = self._notes
        assert notes is not None
        if attempt is not None and attempt.writes:
            intent = self._sourced(attempt.step.id, _intent(attempt))
            is_after_step = bool(notes) and notes[-1][0] == "step_done"
            if is_after_step and "from_events" not in intent:
                # One event for both: half the work of writing two. An intent with sources has its
                # own, so that the result before it stays when they are forgotten.
                notes[-1][1]["next"] = intent
            else:
                notes.append(("step_started", intent))
        return self._write(notes)

    def kept(self, attempt: "Attempt", value: Any, report: StepReport) -> Any:
        """Note a result; return it as the journal stores it, for the run to go on with."""
        if self._notes is None:
            return value
        result = keepable(value, attempt.step.id)
        kind, body = _done_note(attempt, result, report)
        self._notes.append((kind, self._sourced(attempt.step.id, body)))
        return result

    def _sourced(self, step_id: str, body: Json) -> Json:
        """Return the body of a note about a step, with the events that it contains part of."""
        if not self.sources:
            return body
        sources = self.sources.get(step_id) or self.sources.get(step_id.partition("/")[0])
        return {**body, "from_events": list(sources)} if sources else body

    def end_step(self, step_id: str, status: StepStatus, error: str = "") -> None:
        """Note a step that ended before its call; it is written with what comes next."""
        body: Json = {"step": step_id, "status": status}
        if error:
            body |= {"error": error, "attempts": 0}
        if self._notes is not None:
            self._notes.append(("step_done", self._sourced(step_id, body)))

    def check_output(self, output: Any) -> None:
        """Raise if the output can't be stored."""
        if self._notes is not None:
            keepable(output, "return")

    def end(self, result: RunResult, *, in_flight: bool = False) -> Iterable[WriteJournal]:
        """Return the write of the pending notes, and of how the run ended.

        A resumed run that only asked about an interrupted call writes nothing: another worker may
        still be making that call, and would be fenced off.
        """
        if self._notes is None:
            return ()
        is_told = any(kind in ("run_answered", "run_retried") for kind, _ in self._notes)
        if in_flight and not is_told and not self._wrote:
            return ()
        kind, body = _last_note(result)
        about = result.pending_prompt or result.failure
        if about is not None:
            # A question or a failure may be all that is stored of its step.
            body = self._sourced(about.step_id, body)
        return self._write([*self._notes, (kind, body)])

    def _write(self, notes: list[Note]) -> Iterable[WriteJournal]:
        """Return the write of these notes. If it fails, the run ends: nobody writes them again."""
        if not notes:
            return ()
        self._wrote = True
        self._notes = []
        return (WriteJournal(self._masked(notes)),)

    def _masked(self, notes: list[Note]) -> list[Note]:
        if not self.secrets:
            return notes
        return [(kind, self._hidden(body)) for kind, body in notes]

    def _hidden(self, body: Json) -> Json:
        """Mask the content of a body, not its field names."""
        hide = self.secrets.masked
        hidden = body | {name: hide(body[name]) for name in VALUES & body.keys()}
        if "next" in body:
            hidden["next"] = self._hidden(body["next"])
        return hidden


class BlockTurn(NamedTuple):
    """One turn of a block.

    place: its number, behind those of the turns around it: `2.0`. rows: what the lists of all these
    blocks have in this turn, by name; it tells whether a list has changed.
    """

    place: str
    rows: Json

    def inner(self, number: int, row: Json) -> "BlockTurn":
        """Return a turn of a block within this turn."""
        return BlockTurn(f"{self.place}.{number}", {**self.rows, **row})

    def item(self, number: int | None) -> Item:
        """Return the key of a call in this turn, or of one for an item of a step in it."""
        if number is not None:
            return f"{self.place}.{number}"
        return int(self.place) if self.place.isdecimal() else self.place


class Attempt:
    """A call to be made: the step, its scope, and what makes it safe to repeat."""

    def __init__(
        self, step: CompiledStep, scope: Json, item: Item, start: float, writes: bool
    ) -> None:
        self.step = step
        self.scope = scope
        self.item = item
        self.start = start
        self.writes = writes
        self.item_hash = ""
        # The arguments in the intent, for the first call.
        self.args: Json | None = None
        # The idempotency key, if there is one and the tool takes it.
        self.key: Any = None
        # Why evaluating the key failed.
        self.problem: EmError | None = None
        # Whether it failed and surely had no effect.
        self.is_undone = False

    @property
    def item_key(self) -> ItemKey:
        """The key of this call in the journal."""
        return self.step.id, self.item

    @property
    def is_repeatable(self) -> bool:
        """Whether it is safe to make the call twice."""
        retry = self.step.retry
        return not self.writes or self.key is not None or (retry is not None and retry.safe)


def unknown(key: ItemKey, why: str) -> PendingPrompt:
    """Return the question about a call's outcome; the answer counts for that call alone.

    why: the first {} in it is replaced by the name of the call.
    """
    question = question_of(key)
    why = why.replace("{}", question.rstrip("?"), 1)
    return PendingPrompt(
        step_id=question,
        message=f"{why} Its outcome is unknown. Did it happen, and with what result?",
        fields=(
            {"name": "happened", "type": "confirm"},
            {"name": "result", "type": "json", "required": False},
        ),
    )


def _other_list(step: CompiledStep, item: Item) -> ResumedDifferently:
    return ResumedDifferently(
        f"item {item} differs from the one that this run began with: the list has changed",
        place=f"step {step.id}, field for_each",
        fix="start a new run for the rest; `em runs show` lists what was done",
    )


def _intent(attempt: Attempt) -> Json:
    step = attempt.step
    with suppress(EmError):  # the call raises it again
        attempt.args = step.args(attempt.scope)
    args, size = sized(attempt.args or {}, step.id)
    body: Json = {"step": step.id, "tool": step.target}
    if size <= MOST_ARGS:
        body["args"] = args
    if attempt.item is not None:
        body |= {"item": attempt.item, "item_hash": attempt.item_hash}
    if attempt.key is not None:
        body["key"] = attempt.key
    return body


def _done_note(attempt: Attempt, result: Any, report: StepReport) -> Note:
    # Leave out defaults: every step waits until this is written.
    body: Json = {
        "step": attempt.step.id,
        "result": result,
        "duration_ms": round(report.duration_ms, 3),
    }
    if report.status != "done":
        body["status"] = report.status
    if report.attempts != 1:
        body["attempts"] = report.attempts
    if attempt.item is not None:
        body |= {"item": attempt.item, "item_hash": attempt.item_hash}
    if report.error:
        body["error"] = report.error
    if report.fix is not None:
        body["fix"] = report.fix
    return "step_done", body


def _last_note(result: RunResult) -> Note:
    if result.pending_prompt is not None:
        return "run_paused", {"prompt": msgspec.to_builtins(result.pending_prompt)}
    body: Json = {"status": result.status, "output": keepable(result.output, "return")}
    if result.failure is not None:
        body["failure"] = _told(result.failure)
    if result.reason is not None:
        body["reason"] = plain(result.reason)
    return "run_ended", body


def _told(failure: Failure) -> Json:
    told: Json = plain(failure)
    try:
        return dict(keepable(told, failure.step_id))
    except RoutineError:
        # Report the failure even if its arguments can't be written.
        return {**told, "message": ascii(failure.message), "context": {}}
