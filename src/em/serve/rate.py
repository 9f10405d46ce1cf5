"""How many requests a token, and how many wrong tokens an address may send in a minute."""

import asyncio
import hmac
import time
from datetime import timedelta
from hashlib import sha256

from em.errors import StoreReadOnly, TooManyRequests
from em.settings import ApiSettings
from em.store.protocol import Tickets

WINDOW = 60
_KEEP = timedelta(seconds=2 * WINDOW)
LOTS = 20
"""Lots into which the limit of a minute is divided. A process takes one lot at a time."""


class Rate:
    """A limit for each of many senders, over all processes of the service.

    The store counts lots, so that not every request writes. A lot counts when it is taken: senders
    never get more than the limit, and up to a lot less for each process.
    """

    def __init__(self, tickets: Tickets, name: str, limit: int, key: bytes, lots: int) -> None:
        self._tickets = tickets
        self._name = name
        self._limit = limit
        self._key = key
        self._lot = max(limit // lots, 1)
        self._minute = 0
        self._left: dict[str, int] = {}
        self._over: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    async def take(self, sender: str) -> None:
        """Count one of a sender; raise TooManyRequests beyond the limit."""
        if not self._limit:
            return
        while not self._now().get(sender):
            if sender in self._over:
                wait = int(WINDOW - time.time() % WINDOW) + 1
                raise TooManyRequests(
                    f"more than {self._limit} {self._name} in a minute",
                    fix=f"try again in {wait} seconds",
                    retry_after=wait,
                )
            await self._refill(sender)
        self._left[sender] -= 1

    def _now(self) -> dict[str, int]:
        """Return how many are left to each sender in the minute of now."""
        minute = int(time.time() // WINDOW)
        if minute != self._minute:
            self._minute, self._left, self._over, self._locks = minute, {}, set(), {}
        return self._left

    async def _refill(self, sender: str) -> None:
        """Take one lot, however many requests wait for it: the rest is for other processes."""
        left, over, minute = self._left, self._over, self._minute
        async with self._locks.setdefault(sender, asyncio.Lock()):
            if not left.get(sender) and sender not in over:
                left[sender] = await self._more(sender, minute)
                if not left[sender]:
                    over.add(sender)

    async def _more(self, sender: str, minute: int) -> int:
        """Take a lot from the store; return how many of it are within the limit."""
        # Hashed with a key: an address tells who somebody is.
        who = hmac.new(self._key, sender.encode(), sha256).hexdigest()[:32]
        name = f"rate/{self._name}/{minute}/{who}"
        try:
            total = await asyncio.to_thread(self._tickets.count, name, self._lot, _KEEP)
        except StoreReadOnly:
            return self._lot  # nothing can be counted, and nothing be written
        return max(min(self._lot, self._limit - total + self._lot), 0)


class Rates:
    """The limits of the service."""

    def __init__(self, tickets: Tickets, api: ApiSettings, key: bytes) -> None:
        self.requests = Rate(tickets, "requests", api.requests_per_minute, key, LOTS)
        self.failures = Rate(tickets, "wrong tokens", api.failures_per_minute, key, LOTS)
