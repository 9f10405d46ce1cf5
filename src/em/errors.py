"""The errors that em raises.

    EmError
    ├── UsageError            wrong call: an argument, a setting or a name (exit code 2)
    │   ├── MissingExtra      an optional part of em is not installed
    │   ├── MissingKey        no API key for the model's provider
    │   └── UntrustedDatabase code in a database that its user has not trusted
    ├── InputError            data that can't be used; `place` names the field (exit code 2)
    │   ├── BadBody           not JSON, too deep, too large, or invalid for its kind
    │   ├── BadLine           a line of a file is not an event
    │   ├── NoTranscript      a file in no known transcript format
    │   ├── ForeignStream     an event about someone in the stream of someone else
    │   └── NotFound          no such event, artefact or log
    ├── RoutineError          a routine is invalid, or can't run here
    │   ├── InvalidRoutine    validation failed; all problems in `problems`
    │   ├── ExpressionError   an expression does not parse, or uses an unknown name
    │   ├── NotAllowed        a declared tool uses something that is not allowed
    │   ├── ExportError       a routine can't be exported as a script
    │   └── RunNotDone        a routine that was called handed over, asks or failed
    ├── StateError            a state can't be compiled, or can't answer this
    │   ├── StateInvalid      a checkpoint failed its proof; the last good one stays
    │   ├── StateHeld         it would break questions or rules; needs --accept
    │   └── BadQuestion       the code of a question failed on every attempt
    ├── WorkflowError         a workflow is invalid, or can't run here
    │   └── InvalidWorkflow   validation failed; all problems in `problems`
    ├── LlmError              a model can't be asked, or its answer not used
    │   ├── LlmUnavailable    no answer after every retry
    │   ├── LlmRejected       the provider rejects the request: key, model, parameter
    │   ├── LlmRefused        the model declines to answer
    │   └── BadAnswer         cut off, empty, or invalid for its schema; see `problems`
    ├── SandboxError          code that a model wrote did not finish
    │   ├── SandboxRefused    no sandbox on this machine can run it
    │   ├── SandboxFault      the code raised, or returned what is not JSON
    │   ├── SandboxTimeout    it ran longer than allowed
    │   ├── SandboxMemory     it used more memory than allowed
    │   ├── SandboxOutput     its result is larger than allowed
    │   └── SandboxBroken     its process died, or answered with garbage
    ├── BehaviourError        a behaviour can't be stored, or its replay failed
    │   ├── NotRecordable     a run can't be recorded; the agent's answer counts
    │   ├── Diverged          a replay stopped half-way, with on_divergence="raise"
    │   └── OutcomeUnknown    a call of a routine failed, and may have had its effect
    ├── NoEffect              raised by a tool: its call did nothing, and may be made again
    ├── EmbedderError         an embedder failed, or returned something else than vectors
    ├── TookTooLong           work on what somebody sent was not done in time, and was ended
    ├── ServiceError          the service rejects a request
    │   ├── Unauthorized      no token, or an unknown one
    │   ├── Forbidden         this token may not do this, or the host is not served
    │   ├── TooLarge          the body is larger than allowed
    │   ├── HeadersTooLarge   the headers are larger than allowed
    │   ├── TooSlow           the body took longer than allowed
    │   ├── KeyReused         the idempotency key belongs to another request
    │   └── ResponseGone      the request was done, but its response was forgotten
    ├── WorkError             work can't be queued, or failed
    │   ├── JobFailed         a part of a job failed; its report says which
    │   └── QueueFull         too many jobs wait; queue these later
    ├── StoreError            the store failed; what it held before is still there
    │   ├── NotADatabase      the file is not a database of em
    │   ├── NewerDatabase     the database was written by a newer em
    │   ├── OlderDatabase     the database was written by an em that this one can't follow
    │   ├── StoreBusy         another writer held the lock for the whole busy timeout
    │   ├── StoreReadOnly     the file, folder or server is read-only
    │   ├── StoreFull         no space left
    │   ├── StoreUnreachable  the server or the file can't be reached
    │   └── StoreCorrupt      a stored value can't be read
    └── Conflict              another writer was faster: read again, then decide
        ├── PositionConflict  the stream has moved on since it was read
        │   └── RunBusy       another process works on this run
        │       └── Cancelled a person cancelled this run
        ├── DuplicateEvent    the log has an event with this id already
        ├── ChainConflict     an imported event does not continue its stream
        └── ClaimLost         another process took over the request key

An error carries a stable `code`, its `place` (file, line, field, step), the `fix`, and data. The
command line, HTTP and MCP render it.
"""

from typing import Any, ClassVar


class EmError(Exception):
    """Base of all errors. `str()` is one line: the place, the message and the fix."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, place: str = "", fix: str = "", **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.fix = fix
        self.data = data

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text} ({self.fix})" if self.fix else text

    def as_dict(self) -> dict[str, Any]:
        """Return the error as data, for `--json`, HTTP and MCP."""
        known = {"code": self.code, "message": self.message, "place": self.place, "fix": self.fix}
        return {name: value for name, value in {**known, **self.data}.items() if value != ""}


class UsageError(EmError):
    """The call is wrong: an argument, a setting or a name."""

    code = "usage"
    exit_code = 2


class MissingExtra(UsageError):
    """An optional part of em is not installed."""

    code = "missing_extra"

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs the extra '{extra}'",
            fix=f"pip install 'em-core[{extra}]'",
            extra=extra,
        )


class MissingKey(UsageError):
    """No API key for the model's provider."""

    code = "missing_key"


class UntrustedDatabase(UsageError):
    """Code of a database did not run, because its user has not trusted the database."""

    code = "untrusted_database"
    exit_code = 1


class InputError(EmError):
    """The given data can't be used."""

    code = "bad_input"
    exit_code = 2


class BadBody(InputError):
    """A body is not JSON, too deep, too large, or invalid for its kind."""

    code = "bad_body"


class BadLine(InputError):
    """A line of a file is not an event."""

    code = "bad_line"
    exit_code = 1


class NoTranscript(InputError):
    """A file is in no known transcript format."""

    code = "no_transcript"


class ForeignStream(InputError):
    """An event about one subject was to be written into the stream of another."""

    code = "foreign_stream"
    exit_code = 1


class NotFound(InputError):
    """No such event, artefact or log."""

    code = "not_found"
    exit_code = 1


class RoutineError(EmError):
    """A routine is invalid, or can't run here."""

    code = "routine"


class InvalidRoutine(RoutineError):
    """Validation of a routine failed; `problems` lists everything."""

    code = "invalid_routine"


class ExpressionError(RoutineError):
    """An expression does not parse, or uses an unknown name."""

    code = "bad_expression"


class StateError(EmError):
    """A state can't be compiled, or can't answer this."""

    code = "state"


class StateInvalid(StateError):
    """A checkpoint failed its proof; the last good one stays."""

    code = "state_invalid"


class StateHeld(StateError):
    """A checkpoint would break questions or rules (`breaks`); it must be accepted."""

    code = "state_held"


class BadQuestion(StateError):
    """The code of a question failed on every attempt."""

    code = "bad_question"


class WorkflowError(EmError):
    """A workflow is invalid, or can't run here."""

    code = "workflow"


class InvalidWorkflow(WorkflowError):
    """Validation of a workflow failed; `problems` lists everything."""

    code = "invalid_workflow"


class LlmError(EmError):
    """A model can't be asked, or its answer not used. `place` is provider and model."""

    code = "llm"


class LlmUnavailable(LlmError):
    """No answer after every retry."""

    code = "llm_unavailable"


class LlmRejected(LlmError):
    """The provider rejects the request: its key, its model, a parameter."""

    code = "llm_rejected"


class LlmRefused(LlmError):
    """The model declines to answer."""

    code = "llm_refused"


class BadAnswer(LlmError):
    """The answer is cut off, empty, or invalid for its schema; see `problems`."""

    code = "bad_answer"


class SandboxError(EmError):
    """Code that a model wrote did not finish."""

    code = "sandbox"


class SandboxRefused(SandboxError):
    """No sandbox on this machine can run this code; `findings` says why."""

    code = "sandbox_refused"


class SandboxFault(SandboxError):
    """The code raised, or returned what is not JSON; see `type`, `reason` and `line`."""

    code = "sandbox_fault"


class SandboxTimeout(SandboxError):
    """It ran longer than allowed."""

    code = "sandbox_timeout"


class SandboxMemory(SandboxError):
    """It used more memory than allowed."""

    code = "sandbox_memory"


class SandboxOutput(SandboxError):
    """Its result is larger than allowed."""

    code = "sandbox_output"


class SandboxBroken(SandboxError):
    """Its process died, or answered with garbage."""

    code = "sandbox_broken"


class NotAllowed(RoutineError):
    """A declared tool uses a command, host, variable or server that is not allowed."""

    code = "not_allowed"


class ExportError(RoutineError):
    """A routine can't be exported as a script."""

    code = "export"


class RunNotDone(RoutineError):
    """A routine called as a function handed over, asks a person, or failed: see `reason`."""

    code = "run_not_done"


class BehaviourError(EmError):
    """A behaviour can't be stored, or its replay failed."""

    code = "behaviour"


class NotRecordable(BehaviourError):
    """A run can't be recorded; the agent's answer counts."""

    code = "not_recordable"


class Diverged(BehaviourError):
    """A replay stopped half-way, and the engine is set to raise; `data` lists what was done."""

    code = "diverged"


class OutcomeUnknown(BehaviourError):
    """A routine or replay made this call, it failed, and may have had its effect all the same."""

    code = "outcome_unknown"


class NoEffect(EmError):
    """Raised by a tool whose call had no effect, so that it may be made again."""

    code = "no_effect"


class EmbedderError(EmError):
    """An embedder failed, or returned something else than vectors."""

    code = "embedder"


class TookTooLong(EmError):
    """Work on what somebody sent was not done in time, and was ended."""

    code = "took_too_long"


class ServiceError(EmError):
    """The service rejects a request."""

    code = "service"


class Unauthorized(ServiceError):
    """No token, or an unknown one."""

    code = "unauthorized"


class Forbidden(ServiceError):
    """This token may not do this, or the host is not served."""

    code = "forbidden"


class TooLarge(ServiceError):
    """The body is larger than allowed."""

    code = "too_large"


class HeadersTooLarge(ServiceError):
    """The headers of a request are larger than allowed."""

    code = "headers_too_large"


class TooSlow(ServiceError):
    """The body took longer than allowed."""

    code = "too_slow"


class KeyReused(ServiceError):
    """The idempotency key belongs to another request."""

    code = "key_reused"


class ResponseGone(ServiceError):
    """The request was done, but its response was forgotten since."""

    code = "response_gone"


class WorkError(EmError):
    """Work can't be queued, or failed."""

    code = "work"


class JobFailed(WorkError):
    """A part of a job failed; its report says which."""

    code = "job_failed"


class QueueFull(WorkError):
    """As many jobs wait as may; nothing was queued. `data` has `retry_after`, in seconds."""

    code = "queue_full"


class StoreError(EmError):
    """The store failed; what it held before is still there."""

    code = "store"


class NotADatabase(StoreError):
    """The file is not a database of em."""

    code = "not_a_database"


class NewerDatabase(StoreError):
    """The database was written by a newer em."""

    code = "newer_database"


class OlderDatabase(StoreError):
    """The database was written by an em whose tables this one does not know."""

    code = "older_database"


class StoreBusy(StoreError):
    """Another writer held the lock for the whole busy timeout."""

    code = "store_busy"


class StoreReadOnly(StoreError):
    """The file, folder or server is read-only."""

    code = "read_only"


class StoreFull(StoreError):
    """No space left."""

    code = "disk_full"


class StoreUnreachable(StoreError):
    """The server or the file can't be reached."""

    code = "unreachable"


class StoreCorrupt(StoreError):
    """A stored value can't be read."""

    code = "corrupt"


class Conflict(EmError):
    """Another writer was faster: read again, then decide."""

    code = "conflict"


class PositionConflict(Conflict):
    """The stream has moved on since it was read."""

    code = "position_conflict"


class RunBusy(PositionConflict):
    """Another process works on this run, or has continued it."""

    code = "run_busy"


class Cancelled(RunBusy):
    """A person cancelled this run: it stops before its next step."""

    code = "cancelled"


class DuplicateEvent(Conflict):
    """The log has an event with this id already."""

    code = "duplicate_event"


class ChainConflict(Conflict):
    """An imported event does not continue its stream."""

    code = "chain_conflict"


class ClaimLost(Conflict):
    """Another process took over the request key."""

    code = "claim_lost"
