"""How many may ask a provider at a time, over all workers.

A slot is a row in the queue's database, held while one question is asked. Those of a worker that
died are freed with its jobs (`presence`).
"""

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from em.llm.protocol import Completion, LlmClient, Message, Spent
from em.work.database import Database

PAUSE = 0.05
LONGEST = 1.0


class Slots:
    """The slots of one worker's questions. limits: how many at a time, by provider."""

    def __init__(self, database: Database, worker: str, limits: Mapping[str, int]) -> None:
        self._database = database
        self._worker = worker
        self._limits = limits
        self._left: list[tuple[str, int]] = []
        self._guard = threading.Lock()

    @contextmanager
    def held(self, provider: str) -> Iterator[None]:
        """Ask only while there is room for it; without a limit at once."""
        limit = self._limits.get(provider)
        if limit is None:
            yield
            return
        slot = self._take(provider, limit)
        try:
            yield
        finally:
            with self._guard:
                self._left.append((provider, slot))
            self.tidy()

    def _take(self, provider: str, limit: int) -> int:
        pause = PAUSE
        while True:
            self.tidy()
            try:
                taken = self._try(provider, limit)
            except sa.exc.DBAPIError:  # it will be there again; until then nobody can count
                taken = None
            if taken is not None:
                return taken
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - only so that they don't all come at once
            pause = min(LONGEST, pause * 1.5)

    def _try(self, provider: str, limit: int) -> int | None:
        slots = self._database.slots
        with self._database.engine.begin() as connection:
            query = sa.select(slots.c.slot).where(slots.c.provider == provider)
            held = set(connection.execute(query).scalars())
            free = next((slot for slot in range(limit) if slot not in held), None)
            if free is None:
                return None
            row = {"provider": provider, "slot": free, "worker": self._worker}
            taken = connection.execute(
                self._database.insert(slots).values(row).on_conflict_do_nothing()
            )
        return free if taken.rowcount else None

    def tidy(self) -> None:
        """Free what is not held any more; what fails is tried again the next time."""
        slots = self._database.slots
        with self._guard:
            left, self._left = self._left, []
        for provider, slot in left:
            ours = (
                slots.c.provider == provider,
                slots.c.slot == slot,
                slots.c.worker == self._worker,
            )
            try:
                with self._database.engine.begin() as connection:
                    connection.execute(sa.delete(slots).where(*ours))
            except sa.exc.DBAPIError:
                with self._guard:
                    self._left.append((provider, slot))


class LimitedClient:
    """A model that is asked only while its provider has a slot free."""

    def __init__(self, client: LlmClient, slots: Slots) -> None:
        self._client = client
        self._slots = slots
        self.provider = client.provider
        self.model = client.model

    @property
    def spent(self) -> Spent:
        """Everything this client has spent so far."""
        return self._client.spent

    def complete(self, prompt: str | Sequence[Message], **options: Any) -> Completion:
        """Ask, when it is this question's turn."""
        with self._slots.held(self.provider):
            return self._client.complete(prompt, **options)
