"""Memory: one object that wires the parts together; the only place that does."""

from em.memory.async_memory import AsyncLog, AsyncMemory
from em.memory.memory import Memory

__all__ = ["AsyncLog", "AsyncMemory", "Memory"]
