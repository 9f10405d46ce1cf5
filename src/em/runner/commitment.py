"""Commitment: make the writes that were prepared, those and no others, or none.

Why it is safe: a plan is stored under its token, sealed by it, so that only who holds the token
finds it, can read it or could have written it; taking it removes it. The reads and checks are made
again, and everything that the plan shows must be the same. The run is then answered with just these
reads up to its first write. What is read later can change no value that the plan shows: a write
with another value is refused before it is made.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from em.errors import EmError, NotFound
from em.log.event import EventQuery
from em.runner.drivers import CallMany, CallTool, Effect, Effects, Wait, Write, through
from em.runner.journal import Attempt, Note, keepable
from em.runner.package import Package, unpacked
from em.runner.prepared import Planned, Prepared
from em.runner.reason import MOST_SHOWN, Reason
from em.runner.rehearsal import Rehearsal, argument_values
from em.runner.routine import ToolStep, UdfStep
from em.runner.run import CheckFailed, RunResult
from em.store.protocol import Store
from em.values.canonical import Json, identical, short
from em.values.files import path_from_text
from em.values.leaves import differences

T = TypeVar("T")

KEPT_FOR = timedelta(minutes=15)
"""How long a plan can be committed."""
LARGEST = 1_000_000
"""Bytes of a plan that is kept."""


class NotPrepared(NotFound):
    """There is no such plan: it was committed, has expired, or is about another subject."""

    code = "not_prepared"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was prepared, to be committed: the routine as it was, its inputs, and what was shown."""

    at: datetime
    stored: str
    folder: str
    hash: str
    input: Json
    answers: dict[str, Json]
    code: list[tuple[str, str]]
    shown: Json

    def keep(self, store: Store, subject: str | None) -> str:
        """Store the plan; return its token, empty if the plan is too large to be kept."""
        data = msgspec.json.encode(self)
        if len(data) > LARGEST:
            return ""
        token = secrets.token_urlsafe(24)
        seal = _Seal(token, subject)
        store.tickets.put(seal.name, seal.closed(data), KEPT_FOR)
        return token

    @staticmethod
    def taken(store: Store, token: str, subject: str | None) -> "Plan":
        """Return the plan of a token, which is gone with it. Raise NotPrepared if there is none."""
        seal = _Seal(token, subject)
        kept = store.tickets.take(seal.name)
        data = None if kept is None else seal.opened(kept)
        plan = None if data is None else msgspec.json.decode(data, type=Plan)
        if plan is not None and not _forgotten_since(store, plan.at):
            return plan
        raise NotPrepared(
            "there is no such plan: it was committed, has expired, is about another subject, or"
            " something was forgotten since",
            place="token",
            fix="prepare it again",
        )

    def package(self, store: Store) -> AbstractContextManager[Package]:
        """Open the routine, as the plan found it."""
        if self.stored:
            return unpacked(store, self.stored)
        return nullcontext(Package(path_from_text(self.folder)))


def _forgotten_since(store: Store, at: datetime) -> bool:
    query = EventQuery(kinds=["erased"], since=at, limit=1)
    return any(True for _ in store.read(query))


class _Seal:
    """What a token and its subject make of a plan: a name that tells nothing, and a closed text.

    A key is used for one text only, so a stream of key bytes hides it as well as a one-time pad.
    """

    def __init__(self, token: str, subject: str | None) -> None:
        key = msgspec.json.encode([token, subject])
        self.name = f"plan {hashlib.sha256(b'name' + key).hexdigest()[:32]}"
        self._hiding = hashlib.sha256(b"hide" + key).digest()
        self._proving = hashlib.sha256(b"prove" + key).digest()

    def closed(self, data: bytes) -> str:
        hidden = self._turned(data)
        return b64encode(hmac.digest(self._proving, hidden, "sha256") + hidden).decode()

    def opened(self, text: str) -> bytes | None:
        """Return what was closed; None if somebody else wrote the text."""
        raw = b64decode(text)
        proof, hidden = raw[:32], raw[32:]
        is_own = hmac.compare_digest(proof, hmac.digest(self._proving, hidden, "sha256"))
        return self._turned(hidden) if is_own else None

    def _turned(self, data: bytes) -> bytes:
        stream = hashlib.shake_256(self._hiding).digest(len(data))
        both = int.from_bytes(data) ^ int.from_bytes(stream)
        return both.to_bytes(len(data))


def shown_of(prepared: Prepared) -> Json:
    """Return everything that a plan shows, as JSON by place. Raise RoutineError if it is none."""
    shown: Json = {"output": prepared.output, **prepared.context}
    for one in prepared.planned:
        number = "" if one.item is None else f"[{one.item}]"
        arguments = {
            each.place: each.problem if each.value is msgspec.UNSET else each.value
            for each in one.arguments
        }
        shown[f"{one.step}{number}: {one.tool}"] = {**arguments, "": [one.needs, one.shows]}
    return dict(keepable(shown, "plan"))


class Agreed:
    """The writes that a plan shows. Any other is refused before it is made."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], Planned] = {}

    def take(self, planned: Sequence[Planned]) -> None:
        """Set the writes of the plan."""
        self._known = {(one.step, one.item): one for one in planned if one.does == "write"}

    def __call__(self, attempt: Attempt) -> None:
        """Raise CheckFailed if the plan does not show this write with these values."""
        step = attempt.step
        # A write that waits for the result of another is shown once, however often it is made.
        known = self._known.get(attempt.item_key) or self._known.get((step.id, None))
        if known is None:
            raise CheckFailed("this write was not prepared", place=f"step {step.id}")
        assert isinstance(step.source, ToolStep | UdfStep)
        wanted = {one.place: one.value for one in known.arguments}
        for place, _, value, error in argument_values(step.source, attempt.scope):
            agreed = wanted.get(place, msgspec.UNSET)
            if agreed is not msgspec.UNSET and (error or not identical(value, agreed)):
                words = f"`{place}` would be {short(value)}, and {short(agreed)} was prepared"
                raise CheckFailed(words, place=f"step {step.id}")


class _Answered(NamedTuple):
    what: Any
    value: Any
    error: BaseException | None


class Tape:
    """What the reads of a rehearsal gave, to answer the run with, in their order."""

    def __init__(self) -> None:
        self._left: deque[_Answered] = deque()

    def recorded(self, machine: Effects[T], is_open: Callable[[], bool]) -> Effects[T]:
        """Pass on the effects of a rehearsal; note what they gave as long as it `is_open`."""

        def noted(effect: Effect) -> Effects[Any]:
            value, error = None, None
            try:
                value = yield effect
            except BaseException as raised:
                error = raised
                raise
            finally:
                if is_open() and isinstance(effect, CallTool | CallMany):
                    self._left.append(_Answered(_asked(effect), value, error))
            return value

        return through(machine, noted)

    def answered(self, machine: Effects[T]) -> Effects[T]:
        """Answer a run's calls, then pass its effects on.

        Its journal begins with its first own call: what stops before it leaves nothing behind.
        """
        held: list[Note] = []
        is_held = True

        def own(effect: Effect) -> Effects[Any]:
            nonlocal is_held
            if is_held and type(effect) is Write:
                held.extend(effect.notes)
                return None
            if self._left:
                return self._answer(effect)
            if is_held:
                is_held = False
                yield Write(held)
            return (yield effect)

        result = yield from through(machine, own)
        if is_held and held:
            yield Write(held)
        return result

    def _answer(self, effect: Effect) -> Any:
        if type(effect) is Wait:
            return None  # it was waited for
        if self._left[0].what != _asked(effect):
            raise CheckFailed("the run differs from the one that was prepared")
        _, value, error = self._left.popleft()
        if error is not None:
            raise error
        return value


def _asked(effect: Effect) -> Any:
    """Return what tells a call from others."""
    if isinstance(effect, CallMany):
        return [_asked(one) for one in effect.calls]
    return (effect.args, effect.positional) if isinstance(effect, CallTool) else effect


def committed(
    plan: Plan,
    rehearsal: Rehearsal,
    machine: Effects[RunResult],
    agreed: Agreed,
    masked: Callable[[Prepared], Prepared],
) -> Effects[RunResult]:
    """Make the reads and checks of a plan again; run it if all that it shows is the same."""
    tape = Tape()
    fresh = yield from tape.recorded(
        rehearsal.run(plan.input), lambda: not rehearsal.has_planned_write
    )
    reason = fresh.reason or _asks(fresh) or _changed(plan, masked(fresh))
    if fresh.status == "failed" or reason is not None:
        return RunResult(
            run_id=fresh.run_id,
            status="needs_input" if reason else "failed",
            reason=reason,
            failure=fresh.failure,
            context=fresh.context,
            steps=fresh.steps,
        )
    agreed.take(fresh.planned)
    return (yield from tape.answered(machine))


def _asks(fresh: Prepared) -> Reason | None:
    if fresh.pending_prompt is None:
        return None
    return Reason(step_id=fresh.pending_prompt.step_id, message=fresh.pending_prompt.message)


def _changed(plan: Plan, fresh: Prepared) -> Reason | None:
    """Return what is not as it was when the run was prepared."""
    if fresh.status != "ok":
        return None
    found = [
        Reason(
            step_id="commit",
            check=place,
            message=f"`{place}` was {short(before)} when it was prepared, and is {short(now)}",
            recorded=before,
            now=now,
        )
        for place, *both in differences(plan.shown, shown_of(fresh))
        for before, now in [(None if one is msgspec.UNSET else one for one in both)]
    ][:MOST_SHOWN]
    if not found:
        return None
    message = "; ".join(one.message for one in found)
    return msgspec.structs.replace(found[0], message=message, also=tuple(found[1:]))


def plan_of(prepared: Prepared, **about: Any) -> Plan | None:
    """Return the plan of a run that was prepared; None if it can't be committed."""
    if not prepared.is_decided:
        return None
    try:
        return Plan(shown=shown_of(prepared), **about)
    except EmError:
        return None  # a value of it can't be stored: the run could not be either
