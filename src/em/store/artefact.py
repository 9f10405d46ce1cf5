"""Artefact: a compiled thing (routine, state, heuristic), versioned, with the events it is from."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from em.values.canonical import Json


class ArtefactDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A version to store. Content equal to the newest version's is that version.

    from_log: what it quotes are bodies of events as the log has them, which are redacted.
    """

    kind: str
    name: str
    body: Json
    from_events: Sequence[str] = ()
    from_log: bool = False


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """One version, as the store holds it. `body` is None once it was erased."""

    id: str
    kind: str
    name: str
    version: int
    body: Json | None
    hash: str
    from_events: tuple[str, ...]
    created_at: datetime
    retired_at: datetime | None
