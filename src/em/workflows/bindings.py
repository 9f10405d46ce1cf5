"""Binding a plan to what its steps call: built-in tools, written ones, registered functions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from em.errors import NotAllowed, WorkflowError
from em.runner.routine import Routine
from em.runner.secrets import Secrets
from em.runner.tools import Tool, missing_tool, renamed
from em.runner.tools.declarations import declared_tools, spec_of
from em.runner.tools.mcp import Servers
from em.runner.tools.permissions import refused
from em.settings import AllowSettings
from em.values.call import Effect
from em.values.canonical import Json
from em.workflows.builtins import Routines
from em.workflows.plan import ASK, ASKS_A_MODEL, BUILT_IN, ROUTINE, Plan, PlannedStep

if TYPE_CHECKING:
    from em.workflows.runs import Workflows
    from em.workflows.workflow_machine import WorkflowMachine


class Binding:
    """The tools of one run, by the names of its steps. What is missing is raised here."""

    def __init__(
        self,
        workflows: "Workflows",
        plan: Plan,
        allow: AllowSettings,
        secrets: Secrets,
        answers: Mapping[str, Json],
        servers: Servers,
    ) -> None:
        self._workflows = workflows
        self._plan = plan
        self._allow = allow
        self._secrets = secrets
        self._answers = answers
        self._servers = servers
        # Set once there is one: some tools speak with the run.
        self.machine: WorkflowMachine | None = None
        self.tools = {step.name: self._bound(step) for step in plan.steps}

    def _bound(self, step: PlannedStep) -> Tool:
        found = self._find(step)
        found.effect = _effect(step.definition.effect, found.effect)
        return found

    def _find(self, step: PlannedStep) -> Tool:
        name, registry = step.definition.tool, self._workflows.tools
        allow = self._allowed(step)
        if name in registry:
            return renamed(registry[name], step.name)
        made = declared_tools(
            self._written(step, allow), {step.name}, allow, self._secrets, self._servers
        )
        if step.name in made:
            return made[step.name]
        if name in BUILT_IN:
            return self._built_in(step, name, allow)
        error = missing_tool(name, {**dict.fromkeys(BUILT_IN), **dict.fromkeys(registry)})
        raise WorkflowError(error.message, place=f"step {step.name}, field tool", fix=error.fix)

    def _written(self, step: PlannedStep, allow: AllowSettings) -> Routine:
        """Where it stands how a step is called: in its workflow, or with the user's servers."""
        routine = self._plan.program.routine
        if not step.definition.tool.startswith("mcp__") or routine.says_how(step.name):
            return routine
        spec = spec_of(routine, step.definition.tool, allow)
        return routine if spec is None else Routine(name="", tools=[spec.renamed(step.name)])

    def _built_in(self, step: PlannedStep, name: str, allow: AllowSettings) -> Tool:
        if name == ASK:
            return Tool(step.name, lambda: self._run.answer_of(step.name), "read")
        if name == "recall":
            return Tool(step.name, self._recalling(step.name), "read")
        if name == ROUTINE:
            routines = Routines(self._workflows.store, self._workflows.tools, allow)
            return Tool(step.name, routines.runner(step.name, self._answers), "write")
        assert name in ASKS_A_MODEL
        self._check_key(step)
        models = self._workflows.models
        return Tool(step.name, models.ask if name == "model_call" else models.ask_several, "read")

    @property
    def _run(self) -> "WorkflowMachine":
        assert self.machine is not None
        return self.machine

    def _recalling(self, step: str) -> Any:
        def recall(query: Any, k: int = 5, subject: str | None = None) -> Any:
            found = self._workflows.recall(query, k, subject)
            self._run.note_sources(step, found.from_events)
            return found.value

        return recall

    def _check_key(self, step: PlannedStep) -> None:
        """A missing key is told before the first step, where it can be seen whose it is."""
        inputs = step.definition.inputs
        who = [inputs.get("provider"), inputs.get("model")]
        if step.definition.tool == "model_call" and not any("{" in str(one) for one in who):
            self._workflows.models.client(*who)

    def _allowed(self, step: PlannedStep) -> AllowSettings:
        """What a step asks for, as far as the user allows it; where it says nothing, that."""
        asked = step.definition.permissions
        if asked is None:
            return self._allow
        for field in ("commands", "hosts", "env"):
            for name in getattr(asked, field):
                if name not in getattr(self._allow, field):
                    error: NotAllowed = refused(field.removesuffix("s"), name, field)
                    error.place = f"step {step.name}, field permissions.{field}"
                    raise error
        return asked


def _effect(step: Effect | None, tool: Effect | None) -> Effect:
    """When in doubt it is a write."""
    if "write" in (step, tool):
        return "write"
    return "read" if "read" in (step, tool) else "write"
