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

from em.llm.client import Completion, LlmClient, Spent
from em.llm.wire import Message
from em.values.ids import new_id
from em.work.database import Database

PAUSE = 0.05
LONGEST = 1.0


class Slots:
    """The slots of one worker's questions. limits: how many at a time, by provider."""

    def __init__(self, database: Database, worker: str, limits: Mapping[str, int]) -> None:
        self._database = database
        self._worker = worker
        self._limits = limits
        self._left: list[str] = []
        self._guard = threading.Lock()

    @contextmanager
    def held(self, provider: str) -> Iterator[None]:
        """Ask only while there is room for it; without a limit at once."""
        limit = self._limits.get(provider)
        if limit is None:
            yield
            return
        held = self._take(provider, limit)
        try:
            yield
        finally:
            with self._guard:
                self._left.append(held)
            self.tidy()

    def _take(self, provider: str, limit: int) -> str:
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

    def _try(self, provider: str, limit: int) -> str | None:
        slots = self._database.slots
        with self._database.engine.begin() as connection:
            query = sa.select(slots.c.slot).where(slots.c.provider == provider)
            others = set(connection.execute(query).scalars())
            free = next((slot for slot in range(limit) if slot not in others), None)
            if free is None:
                return None
            held = new_id()
            row = {"provider": provider, "slot": free, "worker": self._worker, "held": held}
            take = self._database.insert(slots).values(row).on_conflict_do_nothing()
            # Asked for by name: how many rows an insert made is not told by every driver.
            return connection.execute(take.returning(slots.c.held)).scalar()

    def tidy(self) -> None:
        """Free what is not held any more; what fails is tried again the next time."""
        slots = self._database.slots
        with self._guard:
            left, self._left = self._left, []
        for held in left:
            try:
                with self._database.engine.begin() as connection:
                    connection.execute(sa.delete(slots).where(slots.c.held == held))
            except sa.exc.DBAPIError:
                with self._guard:
                    self._left.append(held)


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
