"""The log and the artefacts: one narrow `Store` protocol, on SQLite and on PostgreSQL."""

from em.store.address import open_store
from em.store.protocol import Commit, Committed, Erasure, Health, Store

__all__ = ["Commit", "Committed", "Erasure", "Health", "Store", "open_store"]
