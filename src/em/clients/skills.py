"""Skills: each routine in use as a SKILL.md that a coding agent finds by itself.

A skill describes the routine as the MCP server does, without the values of its recordings, and
names the tool to call. The files of an installation follow the routines: they are written again
when one is kept, changed or retired.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from em.clients import claude_plugin, codex_config, opencode_config
from em.clients.installation import refresh_skills, socket_of_note
from em.compiler.export.agent_tools import tool_skill
from em.errors import EmError
from em.runner.package import KeptRoutine, kept_routines, proof_of, routine_of, texts_of
from em.store.protocol import Artefact, Store

CLIENTS = {one.NAME: one for one in (claude_plugin, codex_config, opencode_config)}
"""What em can be installed into, by name."""


class Skills:
    """The skills of a memory. Each version of a routine is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, str] | None] = {}

    def files(self) -> dict[str, str]:
        """Return the text of each skill by its path."""
        known = self._known
        self._known = {
            one.id: known[one.id] if one.id in known else _skill(one)
            for one in newest_in_use(self._store)
        }
        found = sorted(skill for skill in self._known.values() if skill is not None)
        # Names that differ only in signs would be one folder: the first has it.
        return {f"{name}/SKILL.md": text for name, text in reversed(found)}

    def refresh(self, homes: Sequence[Path]) -> None:
        """Write the skills into installations, and remove those of routines out of use."""
        wanted: Mapping[str, str] = self.files() if homes else {}
        for home in homes:
            refresh_skills(home, wanted)


def newest_in_use(store: Store) -> Iterator[Artefact]:
    """Yield the newest version in use of every routine."""
    newest: dict[str, Artefact] = {}
    for artefact in kept_routines(store):
        if artefact.body is not None and artefact.retired_at is None:
            older = newest.get(artefact.name)
            if older is None or older.version < artefact.version:
                newest[artefact.name] = artefact
    yield from newest.values()


def offered(artefact: Artefact) -> KeptRoutine | None:
    """Return a routine that an agent may be told of; None if it can't be read, or is not proved."""
    try:
        routine = routine_of(artefact)
        proof = proof_of(texts_of(artefact))
    except EmError:
        return None  # `em routine list` shows what is wrong with it
    is_refuted = bool(routine.trials.warning) or (proof is not None and not proof.is_proved)
    return None if is_refuted else routine


def _skill(artefact: Artefact) -> tuple[str, str] | None:
    """Return the name and text of a skill; None for a routine that is not offered."""
    routine = offered(artefact)
    return None if routine is None else tool_skill(routine)


def homes_of(socket: str, also: Sequence[Path] = ()) -> list[Path]:
    """Return em's folders in the agents that use the memory of a socket."""
    usual = [client.home_of(client.config_folder()) for client in CLIENTS.values()]
    return [home for home in dict.fromkeys([*also, *usual]) if socket_of_note(home) == socket]
