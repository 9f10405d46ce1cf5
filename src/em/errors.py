"""Every error em raises on purpose.

    EmError
    ├── UsageError            the call is wrong: an argument, a setting, a name (exit code 2)
    │   ├── MissingExtra      a part that was not installed
    │   └── MissingKey        no key for the model's provider
    ├── InputError            what was given can't be used; `place` says where (exit code 2)
    │   ├── BadBody           not JSON, too deep, too large, or not what its kind asks for
    │   ├── BadLine           a line of a file that is no event
    │   ├── NoTranscript      a file in which no format of transcripts was found
    │   └── NotFound          no such event, artefact or log
    ├── RoutineError          a routine is wrong, or can't be run here
    │   ├── InvalidRoutine    everything that is wrong with it, in `problems`
    │   ├── ExpressionError   an expression does not parse, or a name in it is not there
    │   ├── NotAllowed        a declared tool uses what the user did not allow
    │   └── ExportError       it can't be written as a script of its own
    ├── StateError            a state can't be compiled, or not be asked that
    │   ├── StateInvalid      a checkpoint that failed its proof; the last good one stays
    │   ├── StateHeld         it would break questions or rules; it waits for --accept
    │   └── BadQuestion       the code of a question failed, each time it was tried
    ├── WorkflowError         a workflow is wrong, or can't be run here
    │   └── InvalidWorkflow   what is wrong with it; all of it in `problems`
    ├── LlmError              a model could not be asked, or its answer not be used
    │   ├── LlmUnavailable    no answer, after every retry
    │   ├── LlmRejected       the provider does not take the request: key, model, parameter
    │   ├── LlmRefused        the model declines to answer
    │   └── BadAnswer         the answer is cut off, empty or no fit for its schema; see `problems`
    ├── SandboxError          code that a model wrote did not run to its end
    │   ├── SandboxRefused    there is no sandbox here that can run it
    │   ├── SandboxFault      the code raised, or gave what JSON can't say
    │   ├── SandboxTimeout    it ran longer than it may
    │   ├── SandboxMemory     it asked for more memory than it may have
    │   ├── SandboxOutput     its result is larger than it may be
    │   └── SandboxBroken     its process ended, or answered with nonsense
    ├── BehaviourError        a recorded behaviour can't be kept, or did not go through
    │   ├── NotRecordable     a run that can't be kept; the agent's answer stands
    │   └── Diverged          a replay ended half-way, and the engine was told to raise
    ├── EmbedderError         an embedder failed, or what it returned is no vector
    ├── ServiceError          a request that the service does not carry out
    │   ├── Unauthorized      no token, or one that is not known
    │   ├── Forbidden         a token that may not do this, or a host that is not served
    │   ├── TooLarge          a body of more bytes than are taken
    │   ├── TooSlow           a body that did not come in time
    │   ├── KeyReused         an idempotency key that stands for another request
    │   └── ResponseGone      the request was carried out, and its response was forgotten since
    ├── WorkError             queued work could not be done, or not be queued
    │   └── JobFailed         something of a job failed; its report says what
    ├── StoreError            the store could not do it; what it held before is still there
    │   ├── NotADatabase      the file is something else
    │   ├── NewerDatabase     written by a newer em
    │   ├── StoreBusy         another writer held the lock for the whole busy timeout
    │   ├── StoreReadOnly     the file, folder or server takes no writes
    │   ├── StoreFull         no space left
    │   ├── StoreUnreachable  the server or the file can't be reached
    │   └── StoreCorrupt      a stored value can't be read back
    └── Conflict              somebody else was there first: read again, then decide
        ├── PositionConflict  the stream is not where the writer expected it
        ├── DuplicateEvent    an event of that id is in the log already
        ├── ChainConflict     an imported event does not continue its stream
        └── ClaimLost         the request key was taken over

An error carries a stable `code`, its `place` (file, line, field, step), the `fix`, and data. The
command line, HTTP and MCP only render it.
"""

from typing import Any, ClassVar


class EmError(Exception):
    """Base of the tree. `str()` is one line a user can act on."""

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
        """The error as data, for `--json`, HTTP and MCP."""
        known = {"code": self.code, "message": self.message, "place": self.place, "fix": self.fix}
        return {name: value for name, value in {**known, **self.data}.items() if value != ""}


class UsageError(EmError):
    """The call is wrong: an argument, a setting, a name."""

    code = "usage"
    exit_code = 2


class MissingExtra(UsageError):
    """A part of em that was not installed."""

    code = "missing_extra"

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs the extra '{extra}'",
            fix=f"pip install 'em-core[{extra}]'",
            extra=extra,
        )


class MissingKey(UsageError):
    """No key for the model's provider."""

    code = "missing_key"


class InputError(EmError):
    """What was given can't be used."""

    code = "bad_input"
    exit_code = 2


class BadBody(InputError):
    """A body that is not JSON, too deep, too large, or not what its kind asks for."""

    code = "bad_body"


class BadLine(InputError):
    """A line of a file that is no event."""

    code = "bad_line"
    exit_code = 1


class NoTranscript(InputError):
    """A file in which no format of transcripts was found."""

    code = "no_transcript"


class NotFound(InputError):
    """No such event, artefact or log."""

    code = "not_found"
    exit_code = 1


class RoutineError(EmError):
    """A routine is wrong, or can't be run here."""

    code = "routine"


class InvalidRoutine(RoutineError):
    """Everything that is wrong with a routine, in `problems`."""

    code = "invalid_routine"


class ExpressionError(RoutineError):
    """An expression does not parse, or a name in it is not there."""

    code = "bad_expression"


class StateError(EmError):
    """A state can't be compiled, or not be asked that."""

    code = "state"


class StateInvalid(StateError):
    """A checkpoint that failed its proof; the last good one stays."""

    code = "state_invalid"


class StateHeld(StateError):
    """A checkpoint that would break questions or rules, in `breaks`; it waits to be accepted."""

    code = "state_held"


class BadQuestion(StateError):
    """The code of a question failed, each time it was tried."""

    code = "bad_question"


class WorkflowError(EmError):
    """A workflow is wrong, or can't be run here."""

    code = "workflow"


class InvalidWorkflow(WorkflowError):
    """What is wrong with a workflow; all of it in `problems`."""

    code = "invalid_workflow"


class LlmError(EmError):
    """A model could not be asked, or its answer not be used. `place` is provider and model."""

    code = "llm"


class LlmUnavailable(LlmError):
    """No answer, after every retry."""

    code = "llm_unavailable"


class LlmRejected(LlmError):
    """The provider does not take the request: its key, its model, a parameter."""

    code = "llm_rejected"


class LlmRefused(LlmError):
    """The model declines to answer."""

    code = "llm_refused"


class BadAnswer(LlmError):
    """The answer is cut off, empty, or does not fit its schema; see `problems`."""

    code = "bad_answer"


class SandboxError(EmError):
    """Code that a model wrote did not run to its end."""

    code = "sandbox"


class SandboxRefused(SandboxError):
    """There is no sandbox here that can run this code; `findings` says what stood in the way."""

    code = "sandbox_refused"


class SandboxFault(SandboxError):
    """The code raised, or gave what JSON can't say; `type`, `reason` and `line` are in its data."""

    code = "sandbox_fault"


class SandboxTimeout(SandboxError):
    """It ran longer than it may."""

    code = "sandbox_timeout"


class SandboxMemory(SandboxError):
    """It asked for more memory than it may have."""

    code = "sandbox_memory"


class SandboxOutput(SandboxError):
    """Its result is larger than it may be."""

    code = "sandbox_output"


class SandboxBroken(SandboxError):
    """Its process ended, or answered with nonsense."""

    code = "sandbox_broken"


class NotAllowed(RoutineError):
    """A tool that is declared in a routine uses what the user did not allow."""

    code = "not_allowed"


class ExportError(RoutineError):
    """A routine that can't be written as a script of its own."""

    code = "export"


class BehaviourError(EmError):
    """A recorded behaviour can't be kept, or did not go through."""

    code = "behaviour"


class NotRecordable(BehaviourError):
    """A run that can't be kept; the agent's answer stands."""

    code = "not_recordable"


class Diverged(BehaviourError):
    """A replay ended half-way, and the engine was told to raise; `data` has what was done."""

    code = "diverged"


class EmbedderError(EmError):
    """An embedder failed, or what it returned is no vector."""

    code = "embedder"


class ServiceError(EmError):
    """A request that the service does not carry out."""

    code = "service"


class Unauthorized(ServiceError):
    """No token, or one that is not known."""

    code = "unauthorized"


class Forbidden(ServiceError):
    """A token that may not do this, or a host that is not served."""

    code = "forbidden"


class TooLarge(ServiceError):
    """A body of more bytes than are taken."""

    code = "too_large"


class TooSlow(ServiceError):
    """A body that did not come in time."""

    code = "too_slow"


class KeyReused(ServiceError):
    """An idempotency key that stands for another request."""

    code = "key_reused"


class ResponseGone(ServiceError):
    """The request was carried out, and its response was forgotten since."""

    code = "response_gone"


class WorkError(EmError):
    """Queued work could not be done, or not be queued."""

    code = "work"


class JobFailed(WorkError):
    """Something of a job failed; its report says what."""

    code = "job_failed"


class StoreError(EmError):
    """The store could not do it; what it held before is still there."""

    code = "store"


class NotADatabase(StoreError):
    """The file is something else."""

    code = "not_a_database"


class NewerDatabase(StoreError):
    """Written by a newer em."""

    code = "newer_database"


class StoreBusy(StoreError):
    """Another writer held the lock for the whole busy timeout."""

    code = "store_busy"


class StoreReadOnly(StoreError):
    """The file, folder or server takes no writes."""

    code = "read_only"


class StoreFull(StoreError):
    """No space left."""

    code = "disk_full"


class StoreUnreachable(StoreError):
    """The server or the file can't be reached."""

    code = "unreachable"


class StoreCorrupt(StoreError):
    """A stored value can't be read back."""

    code = "corrupt"


class Conflict(EmError):
    """Somebody else was there first: read again, then decide."""

    code = "conflict"


class PositionConflict(Conflict):
    """The stream is not where the writer expected it."""

    code = "position_conflict"


class DuplicateEvent(Conflict):
    """An event of that id is in the log already."""

    code = "duplicate_event"


class ChainConflict(Conflict):
    """An imported event does not continue its stream."""

    code = "chain_conflict"


class ClaimLost(Conflict):
    """The request key was taken over."""

    code = "claim_lost"
