"""YAML workflows whose steps name the context they need, and get just that.

    from em.workflow import MemoryStore, Workflows, memory_manager

This module only re-exports; each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from em.workflow.cleaning import MemoryStore
    from em.workflow.result import WorkflowResult
    from em.workflow.running import Workflows
    from em.workflow.saving import MemoryManager, memory_manager
    from em.workflow.tools import Sourced, Sources

_HOME = {
    "MemoryManager": "em.workflow.saving",
    "MemoryStore": "em.workflow.cleaning",
    "Sourced": "em.workflow.tools",
    "Sources": "em.workflow.tools",
    "WorkflowResult": "em.workflow.result",
    "Workflows": "em.workflow.running",
    "memory_manager": "em.workflow.saving",
}

__all__ = [
    "MemoryManager",
    "MemoryStore",
    "Sourced",
    "Sources",
    "WorkflowResult",
    "Workflows",
    "memory_manager",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'em.workflow' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
