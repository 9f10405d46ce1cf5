"""Slots: limit how many requests to a provider run at a time, over all workers.

A slot is a row in the queue's database that exists while a request runs. The slots of a worker that
died are freed together with its jobs (`worker.Presence`).
"""

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from em.errors import StoreUnreachable
from em.llm.client import Completion, LlmClient, Spent
from em.llm.wires import Message
from em.values.times import new_id
from em.work.database import Database

PAUSE = 0.05
LONGEST = 1.0


class Slots:
    """The slots of one worker. limits: requests at a time, by provider."""

    def __init__(self, database: Database, worker: str, limits: Mapping[str, int]) -> None:
        self._database = database
        self._worker = worker
        self._limits = limits
        self._unused: list[str] = []
        self._guard = threading.Lock()

    @contextmanager
    def slot(self, provider: str) -> Iterator[None]:
        """Wait for a free slot and use it in the `with` block. Without a limit, don't wait."""
        limit = self._limits.get(provider)
        if limit is None:
            yield
            return
        taken = self._take(provider, limit)
        try:
            yield
        finally:
            with self._guard:
                self._unused.append(taken)
            self.tidy()

    def _take(self, provider: str, limit: int) -> str:
        pause = PAUSE
        while True:
            self.tidy()
            try:
                taken = self._try(provider, limit)
            except StoreUnreachable:  # the database is gone: wait until it is back
                taken = None
            if taken is not None:
                return taken
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the retries of many workers
            pause = min(LONGEST, pause * 1.5)

    def _try(self, provider: str, limit: int) -> str | None:
        with self._database.writing(provider) as session:
            rows = session.execute("SELECT slot FROM slots WHERE provider = ?", (provider,))
            others = {slot for (slot,) in rows}
            free = next((slot for slot in range(limit) if slot not in others), None)
            if free is None:
                return None
            held = new_id()
            session.execute(
                "INSERT INTO slots(provider, slot, worker, held) VALUES (?, ?, ?, ?)",
                (provider, free, self._worker, held),
            )
            return held

    def tidy(self) -> None:
        """Free the slots that are no longer used. Retry the next time if that fails."""
        with self._guard:
            unused, self._unused = self._unused, []
        for held in unused:
            try:
                with self._database.writing() as session:
                    session.execute("DELETE FROM slots WHERE held = ?", (held,))
            except StoreUnreachable:
                with self._guard:
                    self._unused.append(held)


class LimitedClient:
    """A client that waits for a free slot of its provider before each request."""

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
        """Ask the model once a slot is free."""
        with self._slots.slot(self.provider):
            return self._client.complete(prompt, **options)
