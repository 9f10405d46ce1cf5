"""A run: its result, its events, and the exceptions that end it before its last step."""

import ast
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_origin

import msgspec

from em.errors import EmError, NoEffect, NotAllowed, RoutineError, WorkflowError
from em.log.event import Event
from em.log.kinds import Edge, event_body, event_flow
from em.log.summary import Summary, event_summary, shown_text, shown_value
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import compile_expression
from em.values.canonical import Json, short
from em.values.json_schema import Misfit
from em.values.syntax_tree import expression_of

MOST_SHOWN = 8
"""Values that are shown of one check."""


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run handed over.

    step_id: the step whose check failed; `input` for the inputs. check: the expression, or the
    place in the result that is not as expected. recorded: what it must be like. now: what is there.
    held: in how many recordings it held, as the routine says. also: what else the same step expects
    and did not find, or the asserts behind it that don't hold either; the message names them too.
    """

    step_id: str
    check: str = ""
    message: str = ""
    recorded: Any = None
    now: Any = None
    held: str = ""
    also: "Sequence[Reason]" = ()

    def __str__(self) -> str:
        held = f" (it held in {self.held} recordings)" if self.held else ""
        return f"{self.step_id}: {self.message}{held}; nothing was done"

    @property
    def in_short(self) -> str:
        """Say what is there, and what was: `order.status is 'shipped'; it was 'pending' in 3 of 3`.

        What is no single value is said by its message.
        """
        recorded = self.recorded if isinstance(self.recorded, dict) else {}
        words = [*recorded.get("enum", ()), *([recorded["const"]] if "const" in recorded else ())]
        is_value = self.check and not self.also and not isinstance(self.now, dict | list)
        share = f" in {self.held.replace('/', ' of ')}" if self.held else ""
        if not words or not is_value:
            return f"{self.message}; it held{share}" if share else self.message
        return f"{self.check} is {self.now!r}; it was {' or '.join(map(repr, words))}{share}"


def context_of_check(check: str, scope: Json) -> Json:
    """Return what a failure says about an assert: the check, and its values now."""
    now: Json = {}
    for text in _references(check):
        try:
            value = compile_expression(text, "")(scope)
        except EmError:
            continue
        now[text] = short(value) if isinstance(value, dict | list) else value
        if len(now) == MOST_SHOWN:
            break
    return {"check": check, "recorded": check, "now": now}


def check_failed_in_words(about: Json) -> str:
    """Say which assert failed, and what its values are now."""
    now = ", ".join(f"`{text}` is {short(value)}" for text, value in about["now"].items())
    return f"`{about['check']}` does not hold{': ' if now else ''}{now}"


def _references(check: str) -> Iterator[str]:
    """Yield the references of an expression, such as `order.user_id`, each once."""
    try:
        tree = expression_of(check.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    seen: set[str] = set()
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and _is_reference(node):
            text = ast.unparse(node)
            if text not in seen and text not in SCOPE:
                seen.add(text)
                yield text
        else:
            waiting += ast.iter_child_nodes(node)


def _is_reference(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def context_of_misfit(name: str, found: Misfit) -> Json:
    """Return what a failure says about a value that does not fit its schema."""
    place = place_of(name, found)
    more = [{**context_of_misfit(name, one), "message": _in_words(name, one)} for one in found.also]
    about = {"check": place, "recorded": found.wanted, "now": found.found}
    return {**about, "also": more} if more else about


def place_of(name: str, found: Misfit) -> str:
    """Return where a value does not fit, as an expression would name it: `order.status`."""
    dot = "" if not found.where or found.where.startswith("[") else "."
    return f"{name}{dot}{found.where}"


def misfit_in_words(name: str, found: Misfit) -> str:
    """Say what does not fit: `order.status`: "pending" was expected, and it is "delivered"."""
    return "; ".join(_in_words(name, one) for one in (found, *found.also))


def _in_words(name: str, found: Misfit) -> str:
    is_now = "" if isinstance(found.found, dict | list) else f", and it is {short(found.found)}"
    return f"`{place_of(name, found)}`: {found.message}{is_now}"


Status = Literal["ok", "failed", "needs_input", "cancelled"]
INPUTS = "inputs"
"""The step id of the question for missing inputs."""
REQUEST = "request"
"""The only input of a run that is given a request in words."""
Asks = bool | Literal["steps"]
"""Whether a run may wait for an answer: to any question, or only to those of its steps."""
StepStatus = Literal["done", "skipped", "failed", "defaulted"]
HANDED_OVER = "handed_over"
"""The status in lists of a run whose result is `needs_input` with a reason."""
Item = int | str | None
"""Which one of several calls of a step: the number of its item, or of its turn in a block.

In a block within a block, and for the items of a step in a block, the numbers are joined: `2.0`.
"""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed: the step, the error, and what it was called with."""

    step_id: str
    error_type: str
    message: str
    context: Json = {}


class PendingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks a person. `problem`: what is wrong with the last answer."""

    step_id: str
    message: str
    fields: Sequence[Json] = ()
    problem: str = ""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended. A step that is done has `error` and `fix` if a fix was needed."""

    id: str
    status: StepStatus
    attempts: int = 0
    duration_ms: float = 0.0
    error: str = ""
    fix: Json | None = None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: ok has `output`, failed `failure`, needs_input `pending_prompt`.

    A run that handed over is `needs_input` too: it has a `reason` instead of a prompt, did nothing,
    and can't be resumed.

    chosen: a required input that was not given, where only this value passed all checks.

    Only a result that was read from the journal is `cancelled`: the run itself raises Cancelled.
    """

    run_id: str
    status: Status
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    reason: Reason | None = None
    context: Json = {}
    steps: Sequence[StepReport] = ()
    chosen: Json = {}


T = TypeVar("T")
Value = Annotated[T, "a value of the run"]
"""The type of a field of an event that may hold secrets, which are masked there."""


@event_body("run_started")
class RunStarted(msgspec.Struct, frozen=True):
    """A routine begins to run: one in a folder, or one stored as `name@version`.

    code: digests of its functions and tools. A resumed run must have the same.
    """

    routine: str
    hash: str
    input: Value[Json]
    folder: str = ""
    stored: str = ""
    resume_with: str = ""
    code: list[tuple[str, str]] = []


@event_summary("run_started")
def _summarise_start(made: Summary, body: Json, _at: datetime) -> None:
    made.name, made.status = body["routine"], "running"
    made.shown = {"input": shown_value(body["input"])}
    if body.get("stored"):
        made.shown["stored"] = body["stored"]


@event_body("step_started")
class StepStarted(msgspec.Struct, frozen=True):
    """A step with an effect is about to run."""

    step: str
    tool: str = ""
    item: Item = None
    item_hash: str = ""
    args: Value[Any] = None
    key: Value[Any] = None
    from_events: list[str] = []


@event_body("step_done")
class StepDone(msgspec.Struct, frozen=True):
    """A step ended: done, skipped, defaulted after an error, or failed although its call returned.

    `next` is about to run.
    """

    step: str
    item: Item = None
    item_hash: str = ""
    result: Value[Any] = None
    status: str = "done"
    attempts: int = 1
    duration_ms: float = 0.0
    error: Value[str] = ""
    fix: Value[Json | None] = None
    next: StepStarted | None = None
    from_events: list[str] = []


@event_body("run_paused")
class RunPaused(msgspec.Struct, frozen=True):
    """A run waits for a person."""

    prompt: Value[Json]
    from_events: list[str] = []


@event_body("run_resumed")
class RunResumed(msgspec.Struct, frozen=True):
    """A run goes on. It has had no effect yet, so it makes its reads again."""

    reads_again: bool = True


@event_body("run_retried")
class RunRetried(msgspec.Struct, frozen=True):
    """A run that failed or was cancelled goes on where it stopped. by: who wanted it."""

    by: str = ""


@event_body("run_cancelled")
class RunCancelled(msgspec.Struct, frozen=True):
    """A run stops before its next step. by: who wanted it."""

    by: str = ""


@event_body("run_answered")
class RunAnswered(msgspec.Struct, frozen=True):
    """Somebody answered."""

    answers: Value[dict[str, Json]]


@event_body("run_ended")
class RunEnded(msgspec.Struct, frozen=True):
    """A run is over."""

    status: str
    output: Value[Any] = None
    failure: Value[Json | None] = None
    reason: Value[Json | None] = None
    from_events: list[str] = []


@event_flow("run_started")
def later_events(events: Sequence[Event]) -> Iterator[Edge]:
    """Yield an edge from each event to the next, which may hold something of it.

    Which of the input and of earlier results a step used is in its routine, which may be gone. So
    what came later is forgotten with what came before.
    """
    for before, after in pairwise(events):
        yield before.id, after.id


VALUES = frozenset(
    field.name
    for body in (RunStarted, StepStarted, StepDone, RunPaused, RunAnswered, RunEnded)
    for field in msgspec.structs.fields(body)
    if get_origin(field.type) is Annotated
)
"""The fields of events that hold values of the run."""


@event_summary("run_paused")
def _summarise_pause(made: Summary, body: Json, _at: datetime) -> None:
    made.status = body.get("status", "needs_input")
    made.shown["note"] = shown_text(body["prompt"].get("message", ""))
    made.shown["asks"] = str(body["prompt"].get("step_id", ""))


@event_summary("run_answered", "run_resumed", "run_retried")
def _summarise_resumption(made: Summary, _body: Json, _at: datetime) -> None:
    made.status, made.ended = "running", None
    made.shown.pop("note", None)


@event_summary("run_cancelled")
def _summarise_cancellation(made: Summary, body: Json, at: datetime) -> None:
    made.status, made.ended = "cancelled", at
    made.shown["note"] = shown_text(f"cancelled by {body['by']}" if body.get("by") else "")


@event_summary("run_ended")
def _summarise_end(made: Summary, body: Json, at: datetime) -> None:
    # Nobody can answer a run that handed over: it is not among those that wait.
    made.status, made.ended = HANDED_OVER if body.get("reason") else body["status"], at
    failure = body.get("failure") or {}
    made.shown["note"] = shown_text((failure or body.get("reason") or {}).get("message", ""))
    if failure:
        made.shown["error"] = shown_text(failure.get("error_type", ""))


class Reports:
    """Collects the reports of a run; calls `on_step` with each."""

    __slots__ = ("_on_step", "made")

    def __init__(self, on_step: Callable[[StepReport], None] | None) -> None:
        self._on_step = on_step
        self.made: list[StepReport] = []

    def add(
        self,
        step_id: str,
        status: StepStatus,
        attempts: int,
        start: float,
        error: str = "",
        fix: Json | None = None,
    ) -> None:
        """Report how a step ended that began at `start`."""
        took = (time.perf_counter() - start) * 1e3
        self.tell(
            StepReport(
                id=step_id,
                status=status,
                attempts=attempts,
                duration_ms=took,
                error=error,
                fix=fix,
            )
        )

    def tell(self, report: StepReport) -> None:
        """Add a report that was made before."""
        self.made.append(report)
        if self._on_step is not None:
            self._on_step(report)


class CheckFailed(RoutineError):
    """A check or an assertion of a routine failed."""

    code = "check_failed"


class UnexpectedResult(RoutineError):
    """A call was made, and returned something else than it must. It is not repeated."""

    code = "unexpected_result"


class OutputMissing(RoutineError):
    """All calls with an effect were made, and the output can't be put together or does not fit."""

    code = "output_missing"


class Declined(WorkflowError):
    """A person did not agree to a step."""

    code = "declined"


class UnknownOutcome(Exception):
    """A call was made and its outcome is unknown: it may have had its effect, or have it yet."""


class StepTimeout(UnknownOutcome):
    """A call ran past its timeout. It may still be running."""


_NOT_SENT = frozenset(
    "builtins.ConnectionRefusedError socket.gaierror ssl.SSLCertVerificationError"
    " httpx.ConnectError httpx.ConnectTimeout httpx.PoolTimeout httpx.ProxyError"
    " httpx.UnsupportedProtocol httpx.LocalProtocolError"
    " requests.ConnectTimeout requests.ProxyError requests.SSLError"
    " urllib3.ConnectTimeoutError urllib3.NewConnectionError urllib3.ProxyError urllib3.SSLError"
    " aiohttp.ClientConnectorError aiohttp.ConnectionTimeoutError".split()
)
"""Errors of HTTP libraries and of Python, by package and name: the request was not sent."""

_NO_ANSWER = frozenset(
    "builtins.TimeoutError builtins.ConnectionResetError builtins.ConnectionAbortedError"
    " builtins.BrokenPipeError http.IncompleteRead http.BadStatusLine"
    " httpx.TransportError httpx.DecodingError"
    " requests.Timeout requests.ChunkedEncodingError requests.ContentDecodingError"
    " urllib3.TimeoutError urllib3.ProtocolError urllib3.DecodeError"
    " aiohttp.ServerConnectionError aiohttp.ClientPayloadError aiohttp.ClientOSError".split()
)
"""The same: the request was sent, and no whole answer came."""


UNDONE = "none: the call had no effect"
"""The outcome in the context of a failure if the call that failed surely had no effect."""


def outcome_is_unknown(error: BaseException) -> bool:
    """Return whether a call that raised this may have had its effect all the same.

    True for a timeout, for a connection that broke while the answer was awaited, and for a status
    of 500 or above. An error that a tool raised because of another one counts as that one.
    """
    return _may_have_happened(error) is True


def did_not_happen(error: BaseException) -> bool:
    """Return whether a call that raised this surely had no effect.

    True if nothing was sent, it was not allowed, the server refused it, or the tool says so
    (`NoEffect`). Any other error of a tool does not say how far it came.
    """
    return _may_have_happened(error) is False


def _may_have_happened(error: BaseException) -> bool | None:
    """Return whether a call may have had its effect; None if its error does not say."""
    seen: list[BaseException] = []
    following: list[Any] = [error]
    while following:
        one = following.pop(0)
        if not isinstance(one, BaseException) or one in seen:
            continue
        seen.append(one)
        known = _sent_without_answer(one)
        if known is not None:
            return known
        # Libraries put the error that they wrap into its arguments or into `reason`.
        following += [getattr(one, "reason", None), *one.args, one.__cause__]
        following += [] if one.__suppress_context__ else [one.__context__]
    return None


def _sent_without_answer(error: BaseException) -> bool | None:
    """Return what one error says by itself; None if it says nothing."""
    if isinstance(error, UnknownOutcome | NotAllowed | NoEffect):
        return isinstance(error, UnknownOutcome)
    status = _status(error)
    if status is not None:
        return status >= 500
    for kind in type(error).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if name in _NOT_SENT:
            return False
        if name in _NO_ANSWER:
            return True
    return None


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error of httpx, requests, urllib or aiohttp is about."""
    for holder, field in (
        (getattr(error, "response", None), "status_code"),
        (error, "code"),  # urllib
        (error, "status"),  # aiohttp
    ):
        status = getattr(holder, field, None)
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return None


class ResumedDifferently(RoutineError):
    """A resumed run finds other items than it began with. Raised; nothing is written."""

    code = "resumed_differently"


class Pause(Exception):
    """The run waits for a person; `in_flight`: it only asks for the outcome of a call."""

    def __init__(self, prompt: PendingPrompt, *, in_flight: bool = False) -> None:
        self.prompt = prompt
        self.in_flight = in_flight


class Failed(Exception):
    """The run ends with this failure."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def failure_of(step_id: str, error: Exception, context: Json) -> Failure:
    """Return an error as the failure of a run."""
    message = str(error) or type(error).__name__
    return Failure(
        step_id=step_id, error_type=type(error).__name__, message=message, context=context
    )


def quietly(evaluate: Callable[[Json], Any], scope: Json) -> Any:
    """Evaluate the arguments of a call that failed; empty if evaluating is what failed."""
    try:
        return evaluate(scope)
    except EmError:
        return {}


def plain(value: Any) -> Any:
    """Return a value as plain JSON values, for a report."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return repr(value)


class PlannedArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One argument of a call that was planned: its value, or the problem why it has none.

    source: where it comes from, in words.
    """

    place: str
    source: str
    value: Any = msgspec.UNSET
    problem: str = ""


class Planned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that was not done: a call with an effect, a question, or one that must wait.

    needs: what it waits for, such as "the result of refund". expects: what the call must return, in
    words. shows: what the tool would do, such as a command or a diff.
    """

    step: str
    does: Literal["write", "ask", "wait"]
    tool: str = ""
    item: Item = None
    arguments: Sequence[PlannedArgument] = ()
    expects: Sequence[str] = ()
    needs: Sequence[str] = ()
    message: str = ""
    shows: str = ""


class Prepared(RunResult, frozen=True, kw_only=True):
    """A run that made its reads and checks, and no call with an effect.

    The status says how the run would go: `ok` to its end; `needs_input` if it would ask or hand
    over; `failed`. context: what was read, by name. planned: what was left undone.
    token: commits just this, once (`memory.commit`); empty if the run would not reach its end, if
    it asks something on its way, or where there is no memory to keep it.
    """

    planned: Sequence[Planned] = ()
    token: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to be asked or to go wrong before the first write."""
        return self.status == "ok" and not any(one.does == "ask" for one in self.planned)

    @property
    def text(self) -> str:
        """What was read and what would be done, a line for each value."""
        read = [f"`{name}` is {short(plain(value))}" for name, value in self.context.items()]
        return "\n".join([*read, *(line for one in self.planned for line in _lines(one))])


def _lines(planned: Planned) -> Iterator[str]:
    number = "" if planned.item is None else f"[{planned.item}]"
    needs = f" (needs {', '.join(planned.needs)})" if planned.needs else ""
    if planned.does == "ask":
        yield f"{planned.step}: would ask: {planned.message}{needs}"
        return
    if planned.does == "wait":
        yield f"{planned.step}{number}: needs {', '.join(planned.needs)}"
    else:
        yield f"{planned.step}{number}: would call {planned.tool}{needs}"
    yield from (f"  | {line}" for line in planned.shows.splitlines())
    for one in planned.arguments:
        value = "?" if one.value is msgspec.UNSET else short(one.value)
        yield f"  {one.place} = {value}: {one.problem or one.source}"
    yield from (f"  afterwards: {words}" for words in planned.expects)
