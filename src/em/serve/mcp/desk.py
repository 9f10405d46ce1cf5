"""One memory, as it is offered to agents: who calls, and where the work is done."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server import ServerRequestContext

from em.memory import Memory
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.guard import CALLER
from em.serve.mcp.results import Results
from em.settings import Settings
from em.store.address import redactor_of

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

AT_ONCE = 32
"""Calls that are carried out at the same time; more wait."""


class Desk:
    """What the tools, the resources and the prompts share.

    tools: those that routines may call beside what they declare. local: who calls where no request
    says so, which is over standard input; without one, every request says who sends it.
    """

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        *,
        tools: ToolRegistry | None = None,
        local: Caller | None = None,
    ) -> None:
        self.memory = memory
        self.store = memory.store
        self.tools = ToolRegistry() if tools is None else tools
        self.results = Results(redactor_of(settings), local=local is not None)
        self.allow = settings.allow
        self._local = local
        self._at_once = anyio.CapacityLimiter(AT_ONCE)

    def caller(self, ctx: Context) -> Caller:
        """Who sends a request."""
        if self._local is not None:
            return self._local
        assert ctx.request is not None
        caller: Caller = ctx.request.scope[CALLER]
        return caller

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work that waits. A caller who leaves does not end it: a run comes to its end."""
        return await anyio.to_thread.run_sync(work, limiter=self._at_once)
