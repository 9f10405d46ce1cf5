"""The names of streams: a prefix for what the stream is about, and an id, as in `run/01J…`."""

from em.log.event import check_name

BEHAVIOUR_PREFIX = "behaviours/"
CODE_PREFIX = "code/"
HEURISTIC_PREFIX = "heuristic/"
JOB_PREFIX = "job/"
LOOP_PREFIX = "loop/"
RUN_PREFIX = "run/"
SUBJECT_PREFIX = "subject/"
TRACE_PREFIX = "trace/"
TRANSCRIPT_PREFIX = "transcript/"

WORKFLOW_CLEAN_UP = "workflow/clean-up"
"""The stream that records when old workflow memory was erased."""


def behaviour_stream(engine: str, key: str | None = None) -> str:
    """Name the stream of an engine's cache; with a key, the stream of one of its tasks."""
    return BEHAVIOUR_PREFIX + (engine if key is None else f"{engine}/{key}")


def code_stream(sha256: str) -> str:
    """Name the stream of a piece of code: who wrote it, and whether a person trusts it."""
    return CODE_PREFIX + sha256


def heuristic_stream(heuristic_id: str) -> str:
    """Name the stream of a heuristic."""
    return HEURISTIC_PREFIX + heuristic_id


def job_stream(job_id: str) -> str:
    """Name the stream of a queued job."""
    return JOB_PREFIX + job_id


def loop_stream(loop_id: str) -> str:
    """Name the stream of a learning loop."""
    return LOOP_PREFIX + loop_id


def run_stream(run_id: str) -> str:
    """Name the stream of a run, which is its journal."""
    return RUN_PREFIX + run_id


def subject_stream(subject: str) -> str:
    """Name the stream of a subject's observations. Raise InputError for a bad name."""
    return SUBJECT_PREFIX + check_name(subject, "subject")


def trace_stream(trace_id: str) -> str:
    """Name the stream of a trace."""
    return TRACE_PREFIX + trace_id


def transcript_stream(name: str) -> str:
    """Name the stream of a transcript file that is watched."""
    return TRANSCRIPT_PREFIX + name
