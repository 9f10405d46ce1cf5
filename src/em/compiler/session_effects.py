"""Session effects: what a coding agent's session did, to find sessions that did the same."""

from typing import NamedTuple

from em.compiler.calls import TracedCall
from em.compiler.file_changes import session_of
from em.compiler.sessions import FILES, is_session
from em.runner.tools.coding import CREATE
from em.traces.trace import Trace


class SessionEffects(NamedTuple):
    """What a session did: the kinds of its effects, and each change with the name of its file.

    kinds: `change *.py`, `git commit`. changes: `Edit pyproject.toml`, one for each change.
    files: the names of the changed files without their endings, each once.
    """

    kinds: tuple[str, ...]
    changes: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def kinds_of_changes(self) -> tuple[str, ...]:
        """Each change with the kind of its file: `Edit *.toml`."""
        parts = (change.partition(" ") for change in self.changes)
        return tuple(sorted(f"{tool} {_kind_of_file(name)}" for tool, _, name in parts))


def session_effects(trace: Trace) -> SessionEffects | None:
    """Return what a coding agent's session did, with paths from its own folder.

    None if it is no such session, or if it is not known what it did.
    """
    session = session_of(trace, {}) if is_session(trace) else None
    if session is None:
        return None
    writes = [call for call in session.calls if call.effect == "write"]
    changes = sorted(f"{call.name} {_file_name(call)}".strip() for call in writes)
    names = (_file_name(call) for call in writes)
    stems = dict.fromkeys(name[:1] + name[1:].partition(".")[0] for name in names if name)
    return SessionEffects(tuple(sorted({*map(_effect, writes)})), tuple(changes), tuple(stems))


def _file_name(call: TracedCall) -> str:
    path = call.args.get("file_path")
    return path.rpartition("/")[2] if call.name in FILES and isinstance(path, str) else ""


def _kind_of_file(name: str) -> str:
    """Return a file's name without what tells it from others: `*.py`."""
    return f"*.{name.rpartition('.')[2]}" if "." in name[1:] else name


def _effect(call: TracedCall) -> str:
    name = _file_name(call)
    if not name:
        return call.title
    return f"{'create' if call.name == CREATE else 'change'} {_kind_of_file(name)}"
