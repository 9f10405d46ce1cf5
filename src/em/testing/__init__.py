"""The conformance suites, for people who write a store or a provider.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            with MyStore(…) as store:
                yield store

Every back end of em passes it; one that does can take the place of any other. So do providers with
`ProviderConformance`, against a `LoopbackModel`.
"""

from em.testing.model_server import LoopbackModel
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

__all__ = [
    "SECRET",
    "T0",
    "LoopbackModel",
    "ProviderConformance",
    "RecallConformance",
    "StoreConformance",
    "append",
    "note",
    "texts",
]


class StoreConformance(LogConformance, HolderConformance, ForgettingConformance, RecallConformance):
    """What every store promises."""
