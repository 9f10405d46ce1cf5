"""YAML workflows whose steps name the context they need, and get just that.

    from em.workflows import MemoryStore, Workflows, memory_manager

This module only re-exports; each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from em.workflows.builtins import Sourced, Sources
    from em.workflows.inspection import WorkflowResult
    from em.workflows.runs import MemoryStore, Workflows
    from em.workflows.slices import MemoryManager, memory_manager

_HOME = {
    "MemoryManager": "em.workflows.slices",
    "MemoryStore": "em.workflows.runs",
    "Sourced": "em.workflows.builtins",
    "Sources": "em.workflows.builtins",
    "WorkflowResult": "em.workflows.inspection",
    "Workflows": "em.workflows.runs",
    "memory_manager": "em.workflows.slices",
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
        raise AttributeError(f"module 'em.workflows' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
