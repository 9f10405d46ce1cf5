"""Memory: one object that wires the parts together; the only place that does."""

from em.memory.memory import Memory
from em.memory.threads import AsyncLog, AsyncMemory

__all__ = ["AsyncLog", "AsyncMemory", "Memory"]
