"""The sandbox: where code that a model wrote runs, and never anywhere else."""

from em.runner.sandbox.sandbox import Limits, Sandbox, Session, choose

__all__ = ["Limits", "Sandbox", "Session", "choose"]
