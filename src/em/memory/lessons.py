"""Lessons from attempts, and agents that are handed them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from em.memory.passages import Recalling
from em.traces.trace import Outcome

if TYPE_CHECKING:
    from em.behaviour.engine import Engine
    from em.heuristics.book import Heuristics
    from em.heuristics.heuristic import Briefing, Heuristic
    from em.llm.interface import LlmClient
    from em.recall.embed import Progress
    from em.traces.trace import Trace


class Lessons(Recalling):
    """Heuristics, and the behaviour cache."""

    @cached_property
    def heuristics(self) -> "Heuristics":
        """The lessons in this memory: list them, give feedback, retire, merge."""
        from em.heuristics.book import Heuristics

        return Heuristics(self.store, self._settings, embed=self._embed)

    def _embed_lessons(self, progress: "Progress | None") -> None:
        self.heuristics.embed_all(progress)

    def reflect(
        self,
        trace: "Trace | str | Sequence[str]",
        client: "LlmClient | None" = None,
        *,
        subject: str | None = None,
    ) -> "list[Heuristic]":
        """Learn from a trace, or from traces of this memory by their ids; the lessons, kept.

        A trace that is given itself is kept too. Without a `client` lessons are mined from what
        happened; with one, the model also says them in words (see `em.llm`).
        """
        return self.heuristics.reflect(trace, client, subject=subject)

    def brief(
        self,
        task: str,
        k: int = 5,
        tokens: int | None = None,
        *,
        tools: Sequence[str] | None = None,
        subject: str | None = None,
        client: "LlmClient | None" = None,
    ) -> "Briefing":
        """A prompt section with the best lessons for a task, within `tokens`; empty if none fits.

        tools: the names of the tools in play. client: a model that puts the lessons in order.
        """
        return self.heuristics.brief(task, k, tokens, tools=tools, subject=subject, client=client)

    def feedback(
        self, heuristic_ids: str | Sequence[str], outcome: Outcome, *, task: str = ""
    ) -> "list[Heuristic]":
        """Say how a run ended that these heuristics were handed to: their rank follows it."""
        return self.heuristics.feedback(heuristic_ids, outcome, task=task)

    def engine(self, name: str, **options: Any) -> "Engine":
        """An engine whose behaviours are kept in this memory; `options` are those of `em.Engine`.

        On a miss the agent is handed the lessons of this memory that fit (`progress.heuristics`).
        It is plain for a plain agent and awaited for an async one, so AsyncMemory has it as it is.
        """
        from em.behaviour.engine import Engine

        def lessons(arguments: Mapping[str, Any]) -> Sequence[Any]:
            task = " ".join([name, *map(str, arguments.values())])
            return self.brief(task).heuristics

        return Engine(self.store, name=name, **{"briefing": lessons, **options})
