"""Skills: each routine in use as a SKILL.md that a coding agent finds by itself.

A skill describes the routine as the MCP server does, without the values of its recordings, and
names the tool to call. The files of an installation follow the routines: they are written again
when one is kept, changed or retired.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from em.clients import claude_plugin, codex_config, opencode_config
from em.clients.installation import refresh_skills, socket_of_note
from em.compiler.export.agent_tools import tool_skill
from em.errors import EmError
from em.runner.acceptance import Standing, standing_of
from em.runner.card import KIND
from em.runner.package import KeptRoutine, proof_of, routine_of, texts_of
from em.store.protocol import Artefact, Store

CLIENTS = {one.NAME: one for one in (claude_plugin, codex_config, opencode_config)}
"""What em can be installed into, by name."""


class Skills:
    """The skills of a memory. Each version of a routine is read once, and when its use changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, Standing | None], tuple[str, str] | None] = {}

    def files(self) -> dict[str, str]:
        """Return the text of each skill by its path."""
        known, self._known = self._known, {}
        rows = {row.name: row for row in self._store.cards(KIND)}  # by number: the newest last
        for row in rows.values():
            one = self._store.artefact(KIND, row.name, row.version)
            if one is None or one.body is None:
                continue  # it was forgotten just now
            standing = _standing(self._store, one)
            key = (one.id, standing)
            self._known[key] = known[key] if key in known else _skill(one, standing)
        found = sorted(skill for skill in self._known.values() if skill is not None)
        # Names that differ only in signs would be one folder: the first has it.
        return {f"{name}/SKILL.md": text for name, text in reversed(found)}

    def refresh(self, homes: Sequence[Path]) -> None:
        """Write the skills into installations, and remove those of routines out of use."""
        wanted: Mapping[str, str] = self.files() if homes else {}
        for home in homes:
            refresh_skills(home, wanted)


class Offer(NamedTuple):
    """A routine that an agent is told of. by_itself: it may call it without asking its user."""

    routine: KeptRoutine
    by_itself: bool


def offer_of(store: Store, artefact: Artefact) -> Offer | None:
    """Return a routine as an agent is told of it.

    None if it can't be read, or if trials went wrong and no person accepted it.
    """
    return _offer(artefact, _standing(store, artefact))


def _standing(store: Store, artefact: Artefact) -> Standing | None:
    try:
        return standing_of(store, artefact)
    except EmError:
        return None  # `em routine list` shows what is wrong with it


def _offer(artefact: Artefact, standing: Standing | None) -> Offer | None:
    if standing is None:
        return None
    try:
        routine, proof = routine_of(artefact), proof_of(texts_of(artefact))
    except EmError:
        return None
    is_refuted = bool(routine.trials.warning) or (proof is not None and not proof.is_proved)
    is_accepted = standing.accepted_at is not None
    return Offer(routine, standing.by_itself) if is_accepted or not is_refuted else None


def _skill(artefact: Artefact, standing: Standing | None) -> tuple[str, str] | None:
    """Return the name and text of a skill; None for a routine that is not offered."""
    offer = _offer(artefact, standing)
    return None if offer is None else tool_skill(offer.routine, by_itself=offer.by_itself)


def homes_of(socket: str, also: Sequence[Path] = ()) -> list[Path]:
    """Return em's folders in the agents that use the memory of a socket."""
    usual = [client.home_of(client.config_folder()) for client in CLIENTS.values()]
    return [home for home in dict.fromkeys([*also, *usual]) if socket_of_note(home) == socket]
