"""The sandbox: runs code that a model wrote, away from this process."""

from em.runner.sandbox.sandbox import Limits, Sandbox, SandboxSession, choose

__all__ = ["Limits", "Sandbox", "SandboxSession", "choose"]
