"""Conformance suites for people who write a store, an embedder or a provider.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            with MyStore(…) as store:
                yield store

A store that passes can take the place of em's own. Providers pass `ProviderConformance` against a
`LoopbackModel`.
"""

from em.testing.model_server import LoopbackModel, ModelCall, Turn
from em.testing.providers import ProviderConformance
from em.testing.recall import RecallConformance
from em.testing.store import (
    SECRET,
    T0,
    ForgettingConformance,
    HolderConformance,
    LogConformance,
    append,
    note,
    texts,
)
from em.testing.summaries import SummaryConformance

__all__ = [
    "SECRET",
    "T0",
    "LoopbackModel",
    "ModelCall",
    "ProviderConformance",
    "RecallConformance",
    "StoreConformance",
    "Turn",
    "append",
    "note",
    "texts",
]


class StoreConformance(
    LogConformance,
    HolderConformance,
    ForgettingConformance,
    RecallConformance,
    SummaryConformance,
):
    """The promises of every store."""
