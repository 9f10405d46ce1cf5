"""A memory that is open: its store, its log, and what it was told when it was opened."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from em.log.event import Event
from em.settings import Settings
from em.store import open_store
from em.store.log import Log
from em.store.protocol import Store

if TYPE_CHECKING:
    from em.llm.interface import LlmClient
    from em.recall.embed import Embed


class Opened:
    """What every part of a memory stands on."""

    def __init__(
        self,
        db: str | Path | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        embedder: "Embed | None" = None,
        llm: "LlmClient | None" = None,
        checkpoint_every: int | str | None = None,
    ) -> None:
        self._settings = settings
        # None: what em.yaml says when a run asks for it.
        self._allow = None if settings is None else settings.allow
        settings = settings or Settings.load()
        self.store: Store = open_store(db, settings, create=create)
        self._db = None if db is None else str(db)
        self.address = settings.db if db is None else str(db)
        self._embed_settings = settings.embed
        self._state_settings = settings.state
        if checkpoint_every is not None:
            self._state_settings = msgspec.structs.replace(
                settings.state, checkpoint_every=checkpoint_every
            )
        self._embedder = embedder
        self._llm = llm
        self.log = Log(self.store)

    def __repr__(self) -> str:
        return f"<Memory {self.store.location}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def _observed(self, events: Sequence[Event]) -> None:
        """Events came in; a part may want to follow."""
