"""Running workflows, and where their steps' needs come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from em.memory.lessons import Lessons
from em.memory.states import States
from em.settings import AllowSettings
from em.values.canonical import Json

if TYPE_CHECKING:
    from typing import Unpack

    from em.llm.interface import LlmClient
    from em.runner.engine import Tools
    from em.workflows.builtins import Sourced, Sources
    from em.workflows.outcome import WorkflowResult
    from em.workflows.runs import WorkflowOptions, Workflows


class Workflowing(States, Lessons):
    """What a memory does with workflows."""

    def workflows(
        self,
        file: str | Path | None = None,
        tools: "Tools" = None,
        *,
        client: "LlmClient | None" = None,
        allow: AllowSettings | None = None,
    ) -> "Workflows":
        """The workflows of a file, em.yaml where it is not given, to be run in this memory.

        client: a model that answers for every provider that a step names.
        """
        from em.workflows.runs import Workflows

        return Workflows(
            self.store,
            file=file,
            tools=tools,
            client=client,
            settings=self._settings,
            allow=self._allow if allow is None else allow,
            sources=self._sources(),
        )

    def workflow(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        prompt: str | None = None,
        file: str | Path | None = None,
        tools: "Tools" = None,
        *,
        client: "LlmClient | None" = None,
        run_id: str | None = None,
        **options: "Unpack[WorkflowOptions]",
    ) -> "WorkflowResult":
        """Run a workflow: each step gets the context that it names.

        With the `run_id` of a run that is there already, that run goes on.
        """
        workflows = self.workflows(file, tools, client=client)
        return workflows.start(name, params, prompt=prompt, run_id=run_id, **options)

    def _sources(self) -> "Sources":
        """Where a step's needs come from that are not of its run."""
        from em.workflows.builtins import Sourced, Sources

        def recall(query: str, k: int, subject: str | None = None) -> Sourced:
            found = self.recall(query, subject, k)
            return Sourced([one.text for one in found], [one.event_id for one in found])

        def heuristics(task: str, k: int) -> Sourced:
            briefing = self.brief(task, k)
            lessons = [one.heuristic.lesson for one in briefing.heuristics]
            ids = [event_id for one in lessons for event_id in one.evidence.event_ids]
            return Sourced(briefing.text, ids)

        return Sources(recall=recall, heuristics=heuristics, state=self._state_at)

    def _state_at(self, subject: str, path: str) -> "Sourced":
        """A collection (`trips`, `trips.0.city`) or the profile (`profile.city`) of a subject."""
        from em.workflows.builtins import Sourced

        if not self.subjects.has_state(subject):
            return Sourced(None)
        first, *rest = path.split(".")
        state = self.state(subject)
        rows: list[Any] = []
        found: Any = None
        if first == "profile":
            rows = [state.profile_row()]
            found = _told(rows[0])
        elif first in state.collections:
            rows = state.rows(first)
            found = [_told(row) for row in rows]
        for part in rest:
            found = _part(found, part)
        return Sourced(found, [one for row in rows for one in row.get("event_ids") or ()])


def _told(row: Json) -> Json:
    """A row without what em keeps of it for itself."""
    return {name: value for name, value in row.items() if name not in ("event_ids", "as_given")}


def _part(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    return None
