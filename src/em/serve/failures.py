"""Errors over HTTP: one envelope, `{"error": {"code": …, "message": …}}`, and never a stack."""

import msgspec

from em.errors import (
    BadQuestion,
    Conflict,
    EmError,
    Forbidden,
    InputError,
    KeyReused,
    LlmError,
    NotFound,
    ResponseGone,
    RoutineError,
    StateError,
    StateInvalid,
    StoreBusy,
    StoreReadOnly,
    StoreUnreachable,
    TooLarge,
    TooSlow,
    Unauthorized,
    UsageError,
    WorkflowError,
)

_STATUS: tuple[tuple[type[EmError], int], ...] = (
    (NotFound, 404),
    (Unauthorized, 401),
    (Forbidden, 403),
    (TooLarge, 413),
    (TooSlow, 408),
    (KeyReused, 409),
    (ResponseGone, 410),
    (Conflict, 409),
    (InputError, 400),
    (UsageError, 400),
    (RoutineError, 400),
    (WorkflowError, 400),
    (StoreBusy, 503),
    (StoreUnreachable, 503),
    (StoreReadOnly, 503),
    (LlmError, 502),
    (BadQuestion, 502),
    (StateInvalid, 500),
    (StateError, 409),
)
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class ErrorOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was wrong: a stable code, words, and where known the place and the fix."""

    code: str
    message: str
    place: str = ""
    fix: str = ""


class ErrorBody(msgspec.Struct, frozen=True):
    """The envelope of every error."""

    error: ErrorOut


def status_of(error: EmError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def body_of(error: EmError) -> bytes:
    """An error as a response; one that is ours to mend says no more than that."""
    if status_of(error) == 500:
        return envelope("internal", "the service could not do this; its log says why")
    out = ErrorOut(error.code, error.message, error.place, error.fix)
    return msgspec.json.encode(ErrorBody(out))


def envelope(code: str, message: str) -> bytes:
    """The envelope, from words."""
    return msgspec.json.encode(ErrorBody(ErrorOut(code, message)))


def code_of(status: int) -> str:
    """A stable code for what the framework refuses."""
    return _CODES.get(status, "bad_request" if status < 500 else "internal")
