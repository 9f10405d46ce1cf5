"""em: executable memory for AI agents.

This module only re-exports; each name is imported when it is first used, so that
`import em` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from em.async_memory import AsyncMemory
    from em.behaviour.check import Check
    from em.behaviour.engine import Engine
    from em.errors import EmError
    from em.log.event import Draft, Event
    from em.memory import Memory
    from em.settings import Settings
    from em.traces.live.model_client import instrument, uninstrument
    from em.traces.recorder import recorded_tool, tool

__version__ = "0.1.0"

_HOME = {
    "AsyncMemory": "em.async_memory",
    "Check": "em.behaviour.check",
    "Draft": "em.log.event",
    "EmError": "em.errors",
    "Engine": "em.behaviour.engine",
    "Event": "em.log.event",
    "Memory": "em.memory",
    "Settings": "em.settings",
    "instrument": "em.traces.live.model_client",
    "recorded_tool": "em.traces.recorder",
    "tool": "em.traces.recorder",
    "uninstrument": "em.traces.live.model_client",
}

__all__ = [
    "AsyncMemory",
    "Check",
    "Draft",
    "EmError",
    "Engine",
    "Event",
    "Memory",
    "Settings",
    "__version__",
    "instrument",
    "recorded_tool",
    "tool",
    "uninstrument",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'em' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
